//! Starting a node, and stopping it without losing what it knows.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cache::store::Limits;
use cluster::{Member, Standing};
use rustix::event::{EventfdFlags, eventfd};
use tokio::runtime::Runtime;

use super::admit::Doorkeeper;
use super::connections::CacheAnswerer;
use super::handovers::Handovers;
use super::members::Routings;
use super::peering::{Frames, Outside, Service};
use super::ports::PORTS;
use super::worker::{Start, Worker};
use super::{COMMANDS_MAX, CellHandle, Command, Node};
use crate::config::{CacheConfig, Config};
use crate::coordination::{self, Coordinator};
use crate::counters::Via;
use crate::peers::{
    ClusterKey, GossipSocket, NodeTag, Opener, PeerClients, PeerServer, Recipient, RefusalCounters,
    Sealer,
};
use crate::random;
use crate::serve::Server;
use crate::sockets::CacheSockets;
use crate::tcp::TcpServer;
use crate::udp::Listener;

/// How long a node that starts waits until it knows the others.
const JOINING_MAX: Duration = Duration::from_secs(1);
/// How often it looks.
const JOINING_STEP: Duration = Duration::from_millis(5);
/// How long a node that stops waits for its entries to be handed over.
const PARTING_MAX: Duration = Duration::from_secs(5);
/// How often it looks.
const PARTING_STEP: Duration = Duration::from_millis(100);

/// A node at work.
#[derive(Debug)]
pub struct Running {
    pub node: Arc<Node>,
    pub threads: Vec<JoinHandle<()>>,
}

/// Starts a node. It answers as soon as it knows the other members, or a moment
/// later without them.
pub fn start(
    server: &Arc<Server>,
    config: &Config,
    own_config: &CacheConfig,
    sockets: CacheSockets,
    runtime: &Runtime,
    stop: &Arc<AtomicBool>,
) -> Result<Running, String> {
    let _inside = runtime.enter();
    let CacheSockets { datagrams, tcp, addresses, peers, gossip, grpc, peer_address } = sockets;
    let key = match &own_config.key_file {
        Some(path) => ClusterKey::read(path)?,
        None => ClusterKey::draw(),
    };
    let own = own_member(own_config, peer_address, addresses);
    let session = u64::from_ne_bytes(random::octets());
    let mut refusals: Vec<Arc<RefusalCounters>> =
        (0..own_config.workers).map(|_| Arc::default()).collect();
    let coordinator = Coordinator::start(&own_config.coordination, own.clone(), || {
        let socket = GossipSocket::new(gossip, &key, session)
            .map_err(|error| format!("gossip cannot start: {error}"))?;
        refusals.push(socket.refused());
        Ok(socket)
    })?;
    warn_of_loneliness(own_config);
    let routings = Routings {
        placement: own_config.placement,
        replicas: own_config.replicas,
        secret: key.derive("hash keys"),
        own: own.name.clone(),
        started: Instant::now(),
    };
    let memberships = coordinator.membership();
    let first = routings.make(&memberships.borrow());
    let routed = Arc::new(ArcSwap::from_pointee(first));
    let (cells, commands) = open_cells(own_config.workers)?;
    let frames = Frames { cells: cells.clone(), routed: routed.clone() };
    let clients = grpc.is_some().then(|| {
        let receiver = Arc::new(frames.clone());
        Arc::new(PeerClients::new(&key, &own.name, receiver, runtime.handle().clone()))
    });
    let handovers = Handovers::start(clients.clone());
    runtime.spawn(routings.follow(memberships, routed.clone(), clients.clone()));
    let node = Arc::new(Node {
        own,
        cells,
        routed,
        coordinator,
        clients,
        handovers,
        refusals,
        strangers: OnceLock::new(),
        turn: AtomicUsize::new(0),
    });
    if let Some(listener) = grpc {
        let service = Arc::new(Service { node: node.clone(), frames });
        let peers = PeerServer::new(&key, &node.own.name, service);
        let _ = node.strangers.set(peers.counters());
        // It ends with the runtime.
        runtime.spawn(peers.run(listener, std::future::pending()));
    }
    let context = Context { server, config, own_config, key: &key, session, runtime, stop };
    let (threads, openings) = context.start_cells(&node, peers, commands)?;
    if !own_config.coordination.is_alone() {
        runtime.block_on(node.join());
    }
    for (open, listeners) in openings.iter().zip(datagrams.open(own_config.workers)?) {
        let _ = open.send(listeners);
    }
    node.cells.iter().for_each(CellHandle::wake);
    let answerer = CacheAnswerer::new(node.clone(), own_config.allow.clone(), &server.counters);
    take_connections(answerer, config, tcp)?;
    Ok(Running { node, threads })
}

/// This node as the others are to know it.
fn own_member(config: &CacheConfig, peer: SocketAddr, listen: Vec<SocketAddr>) -> Member {
    Member {
        name: config.name.clone(),
        datacenter: config.datacenter.clone(),
        incarnation: coordination::incarnation(),
        peer: config.peer_advertise.unwrap_or(peer),
        listen,
        cells: config.workers as u8,
        standing: Standing::Serving,
    }
}

fn warn_of_loneliness(config: &CacheConfig) {
    if config.peer_listen.is_some() && config.coordination.is_alone() {
        tracing::warn!(
            "coordination.servers names nobody, so this node stays alone although it has a \
             peer_listen; name the peer_listen of one or more nodes of the cluster"
        );
    }
}

/// What all cells of a node start with.
struct Context<'a> {
    server: &'a Server,
    config: &'a Config,
    own_config: &'a CacheConfig,
    key: &'a ClusterKey,
    session: u64,
    runtime: &'a Runtime,
    stop: &'a Arc<AtomicBool>,
}

/// Where a cell gets the sockets of its clients.
type Opening = SyncSender<Vec<Listener>>;

impl Context<'_> {
    /// Starts the threads of all cells; they serve other cells at once, and
    /// clients when they are given the sockets.
    fn start_cells(
        &self,
        node: &Arc<Node>,
        peers: Vec<UdpSocket>,
        commands: Vec<Receiver<Command>>,
    ) -> Result<(Vec<JoinHandle<()>>, Vec<Opening>), String> {
        let (mut threads, mut openings) = (Vec::new(), Vec::new());
        for (number, (peers, commands)) in peers.into_iter().zip(commands).enumerate() {
            let (open, opening) = sync_channel(1);
            openings.push(open);
            threads.push(spawn(self.cell(node, number, peers, commands, opening))?);
        }
        Ok((threads, openings))
    }

    /// What one cell starts with.
    fn cell(
        &self,
        node: &Arc<Node>,
        number: usize,
        peers: UdpSocket,
        commands: Receiver<Command>,
        opening: Receiver<Vec<Listener>>,
    ) -> Start {
        let Context { server, config, own_config, key, session, runtime, stop } = *self;
        let cell = number as u8;
        let handle = &node.cells[number];
        let recipient = Recipient::cell(NodeTag::of(&node.own.name), cell);
        Start {
            cell: cell_config(config, own_config, cell),
            listeners: Vec::new(),
            opening,
            peers,
            sealer: Sealer::new(key, session, cell),
            opener: Opener::new(key, recipient, session),
            refusals: node.refusals[number].clone(),
            doorkeeper: Doorkeeper::new(
                own_config.allow.clone(),
                // Each cell sees its share of a client's questions.
                own_config.client_per_sec.map(|all| (all / own_config.workers as u32).max(1)),
                random::octets(),
            ),
            publisher: server.publisher.clone(),
            routed: node.routed.clone(),
            commands,
            bell: handle.bell.clone(),
            counts: handle.counts.clone(),
            sent: handle.sent.clone(),
            counters: server.counters.add(Via::Udp),
            stream_counters: server.counters.add(Via::Tcp),
            outside: Outside::new(
                cell,
                node.cells.clone(),
                &node.own,
                runtime.handle().clone(),
                node.clients.clone(),
                node.handovers.clone(),
            ),
            transport: own_config.transport,
            stop: stop.clone(),
        }
    }
}

/// The ways to `count` cells, and their ends.
fn open_cells(count: usize) -> Result<(Vec<CellHandle>, Vec<Receiver<Command>>), String> {
    let mut cells = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..count {
        let (commands, receiver) = sync_channel(COMMANDS_MAX);
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| format!("cannot start: {error}"))?;
        cells.push(CellHandle {
            commands,
            bell: Arc::new(bell),
            counts: Arc::default(),
            sent: Arc::default(),
        });
        receivers.push(receiver);
    }
    Ok((cells, receivers))
}

/// Takes clients' connections.
fn take_connections(
    answerer: CacheAnswerer,
    config: &Config,
    listeners: Vec<crate::tcp::Listener>,
) -> Result<(), String> {
    let tcp = Arc::new(TcpServer::new(answerer, config.tcp));
    for crate::tcp::Listener { socket, door } in listeners {
        let socket = tokio::net::TcpListener::from_std(socket)
            .map_err(|error| format!("cannot start: {error}"))?;
        tokio::spawn(tcp.clone().run(socket, door));
    }
    Ok(())
}

/// Starts a cell's thread.
fn spawn(start: Start) -> Result<JoinHandle<()>, String> {
    let name = format!("pharos-cell-{}", start.cell.cell);
    let worker = Worker::new(start);
    let thread = std::thread::Builder::new().name(name).spawn(move || worker.run());
    thread.map_err(|error| format!("cannot start a thread: {error}"))
}

/// A cell's share of what the node is told.
fn cell_config(config: &Config, own: &CacheConfig, cell: u8) -> cache::Config {
    let share = |limits: Limits| Limits {
        entries: (limits.entries / own.workers).max(1),
        bytes: (limits.bytes / own.workers).max(1 << 16),
    };
    let pending_max = (own.pending_max / own.workers).max(16);
    cache::Config {
        name: own.name.clone(),
        cell,
        cells: own.workers as u8,
        l1: share(own.l1),
        l2: share(own.l2),
        ttl: own.ttl,
        stale_secs: own.stale_secs,
        prefetch: own.prefetch,
        pending_max,
        pending_per_source_max: (pending_max / 2).min(u16::MAX.into()) as u16,
        udp_payload: config.udp_payload,
        identity: config.identity.as_deref().map(|identity| identity.as_bytes().into()),
        upstreams: own.upstreams.clone(),
        upstream_ports: PORTS,
        upstream_per_sec: own.upstream_per_sec,
        seed: random::octets(),
    }
}

impl Node {
    /// Waits until this node knows the others, but not for long. Before that
    /// nobody should ask it: it would ask upstream for what they know.
    async fn join(&self) {
        let until = tokio::time::Instant::now() + JOINING_MAX;
        while tokio::time::Instant::now() < until {
            let membership = self.coordinator.membership();
            let is_routed = self.routing().view().digest() == membership.borrow().view.digest();
            if self.coordinator.is_reached() && is_routed {
                return;
            }
            tokio::time::sleep(JOINING_STEP).await;
        }
        tracing::warn!("no other node was found yet; answering without them");
    }

    /// Takes leave: hands over what this node has, if there is somebody to take
    /// it, and tells the others.
    pub async fn part(&self) {
        let others = self.routing().view().members().len() - 1;
        if others == 0 {
            return;
        }
        self.drain(false).await;
        let until = tokio::time::Instant::now() + PARTING_MAX;
        let mut is_seen = false;
        while tokio::time::Instant::now() < until {
            tokio::time::sleep(PARTING_STEP).await;
            let routing = self.routing();
            let own = routing.index_of(&self.own.name);
            let standing = own.map(|at| routing.view().members()[at as usize].standing);
            // One more round after the routing changed: then the work has begun.
            let was_seen = std::mem::replace(&mut is_seen, standing != Some(Standing::Serving));
            let reports = self.ask_all(|done| Command::Report { done }).await;
            let left: usize = reports.iter().flatten().map(|own| own.sizes.handover_left).sum();
            if was_seen && left == 0 && self.handovers.is_idle() {
                break;
            }
        }
        self.coordinator.leave().await;
    }
}
