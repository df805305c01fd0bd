//! `pharos front`: spreads the questions of clients over nodes that can all
//! answer them.
//!
//! It knows no names and keeps no answers. Of a message it reads the header and
//! the question ([`message`]), so that an answer is only taken from the node
//! that was asked and for what it was asked. Where a question goes is decided
//! by [`choice`] from what [`board`] says about the nodes; [`probe`] keeps that
//! up to date. Which nodes there are stands in a file, or [`members`] follows
//! those of a cluster. Datagrams ([`udp`]) have threads of their own, which share
//! nothing but the board; connections ([`tcp`]) are passed through.

mod admin;
mod board;
mod choice;
pub mod command;
mod config;
mod counters;
mod lane;
mod members;
mod message;
mod metrics;
mod node;
mod outstanding;
mod probe;
mod tcp;
mod udp;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::admin::host::Hosts;
use crate::admin::socket;
use crate::coordination::Observer;
use crate::fleet::Door;
use crate::serve::Signals;
use crate::sockets::{explain_bind, log_short_buffers};
use crate::{descriptors, say};
use board::Board;
use config::{Config, Flags};
use counters::Counters;
use node::NodeSpec;
use tcp::Streams;
use udp::{Exit, Worker};

/// Everything the parts of a running front share.
#[derive(Debug)]
struct Front {
    board: Arc<Board>,
    streams: Arc<Streams>,
    /// Of each thread.
    counters: Vec<Arc<Counters>>,
    probing: probe::Probing,
    /// Who tells the nodes, if not the file alone.
    observer: Option<Observer>,
}

impl Front {
    /// Called on the tokio runtime.
    fn new(config: &Config) -> Arc<Self> {
        let board = Arc::new(Board::new(config.workers, config.sharding));
        Arc::new(Front {
            streams: Arc::new(Streams::new(board.clone(), config.tcp)),
            board,
            counters: (0..config.workers).map(|_| Arc::default()).collect(),
            probing: config.probing.clone(),
            observer: config.coordination.as_ref().map(Observer::start),
        })
    }

    /// Makes `nodes` the ones that questions go to, and probes those that are
    /// new. No new questions go to those whose names are in `parting`.
    fn set_nodes(&self, nodes: &[NodeSpec], parting: &BTreeSet<String>) -> Result<(), String> {
        for node in self.board.replace(nodes, parting)? {
            let probing = self.probing.clone();
            tokio::spawn(probe::watch(self.board.clone(), Arc::downgrade(&node), probing));
        }
        if let Some(sharding) = &self.board.sharding
            && sharding.size >= nodes.len()
        {
            let (size, nodes) = (sharding.size, nodes.len());
            tracing::warn!("shards of {size} out of {nodes} nodes are all nodes: nobody is apart");
        }
        Ok(())
    }
}

/// Runs a front until it is told to stop; returns the exit code.
pub fn run(flags: &Flags) -> Result<u8, String> {
    let config = config::read(flags)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("pharos-io")
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    // First of all: a signal that nobody watches kills the process.
    let mut signals = runtime.block_on(async { Signals::watch() })?;
    let exits = config.workers * 2;
    let listeners = config.listen.len() * (config.workers + 1);
    // A connection is one to the client and one to the node.
    descriptors::provide_for(2 * config.tcp.connections_max + listeners + exits);
    let sockets = Sockets::bind(&config)?;
    sockets.announce();
    let Sockets { workers, tcp, admin, addresses, .. } = sockets;
    let front = runtime.block_on(async { Front::new(&config) });
    runtime.block_on(find_nodes(&front, &config.nodes, addresses))?;
    let opened = || socket::open(&config.control, config.control_group.as_ref());
    let control = runtime.block_on(async { opened() })?;
    let hosts = Hosts::new(config.admin, &config.admin_hosts);
    let _control = runtime.block_on(admin::start(&front, admin, hosts, control))?;
    let stop = Arc::new(AtomicBool::new(false));
    let threads = start_workers(&front, workers, &stop)?;
    start_connections(&front, &runtime, tcp)?;
    say(format_args!("ready: {} nodes", front.board.table().nodes().count()));
    runtime.block_on(wait(&front, flags, &mut signals));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let _ = thread.join();
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(0)
}

/// Begins with the nodes of the file, and goes on with those that the
/// coordination lists.
async fn find_nodes(
    front: &Arc<Front>,
    by_file: &[NodeSpec],
    listen: Vec<SocketAddr>,
) -> Result<(), String> {
    // None is no error while they are still to be listed.
    if !by_file.is_empty() {
        front.set_nodes(by_file, &BTreeSet::new())?;
    }
    if let Some(observer) = &front.observer {
        members::follow(front, observer, listen).await;
    }
    Ok(())
}

/// Waits for the signal to stop; meanwhile takes over the nodes of the file
/// when told to read it again.
async fn wait(front: &Front, flags: &Flags, signals: &mut Signals) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.hangup.recv() => {}
        }
        match read_nodes_again(front, flags) {
            Ok(count) => tracing::info!(nodes = count, "the nodes were read again"),
            Err(problem) => tracing::error!("the nodes stay as they are: {problem}"),
        }
    }
}

/// Takes over the nodes of the file; says how many there are.
fn read_nodes_again(front: &Front, flags: &Flags) -> Result<usize, String> {
    let config = config::read(flags)?;
    if front.observer.is_some() {
        return Err("the coordination lists them; [coordination] is read at the start".into());
    }
    if config.coordination.is_some() {
        return Err("[coordination] is read at the start; restart the front to use it".into());
    }
    front.set_nodes(&config.nodes, &BTreeSet::new())?;
    Ok(config.nodes.len())
}

/// The sockets of a front.
#[derive(Debug)]
struct Sockets {
    workers: Vec<(Vec<crate::udp::Listener>, Vec<Exit>)>,
    tcp: Vec<std::net::TcpListener>,
    admin: std::net::TcpListener,
    addresses: Vec<SocketAddr>,
    admin_address: SocketAddr,
}

impl Sockets {
    /// Binds everything that `config` names.
    fn bind(config: &Config) -> Result<Self, String> {
        let mut listeners: Vec<Vec<_>> = (0..config.workers).map(|_| Vec::new()).collect();
        let (mut tcp, mut addresses) = (Vec::new(), Vec::new());
        for &wanted in &config.listen {
            let failed = |what: &str, error: io::Error| explain_bind(what, wanted, &error);
            let listener = crate::tcp::bind(wanted).map_err(|error| failed("TCP", error))?;
            // Port 0: UDP takes the port that TCP was given.
            let address = listener.local_addr().map_err(|error| failed("TCP", error))?;
            crate::udp::check_free(address).map_err(|error| failed("UDP", error))?;
            for own in &mut listeners {
                let listener = crate::udp::Listener::bind(address, Door::Host);
                own.push(listener.map_err(|error| failed("UDP", error))?);
            }
            tcp.push(listener);
            addresses.push(address);
        }
        let admin = crate::tcp::bind(config.admin)
            .map_err(|error| explain_bind("admin HTTP", config.admin, &error))?;
        let admin_address = admin.local_addr().unwrap_or(config.admin);
        log_short_buffers(&listeners);
        let failed = |error| format!("cannot open sockets to the nodes: {error}");
        let with_exits = |own| Ok((own, Exit::bind_all().map_err(failed)?));
        let workers = listeners.into_iter().map(with_exits).collect::<Result<_, String>>()?;
        Ok(Sockets { workers, tcp, admin, addresses, admin_address })
    }

    /// Says where the front listens.
    fn announce(&self) {
        for address in &self.addresses {
            tracing::info!("DNS on {address}, UDP and TCP");
        }
        tracing::info!("admin HTTP on http://{}", self.admin_address);
    }
}

fn start_workers(
    front: &Front,
    sockets: Vec<(Vec<crate::udp::Listener>, Vec<Exit>)>,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<std::thread::JoinHandle<()>>, String> {
    let mut threads = Vec::new();
    for (number, ((listeners, exits), counters)) in
        sockets.into_iter().zip(&front.counters).enumerate()
    {
        let worker = Worker {
            number,
            listeners,
            exits,
            board: front.board.clone(),
            counters: counters.clone(),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("pharos-udp-{number}"))
            .spawn(move || worker.run())
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        threads.push(thread);
    }
    Ok(threads)
}

fn start_connections(
    front: &Front,
    runtime: &Runtime,
    listeners: Vec<std::net::TcpListener>,
) -> Result<(), String> {
    let _inside = runtime.enter();
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|error| format!("cannot start: {error}"))?;
        runtime.spawn(front.streams.clone().run(listener));
    }
    Ok(())
}
