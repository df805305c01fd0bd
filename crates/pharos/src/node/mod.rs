//! A node of a cache cluster: a thread for each cell, and what they share with
//! the rest of the process.
//!
//! Cells do the work (`worker`): each has its sockets for clients, its socket
//! among those of the peer port, its sockets for upstream servers, and the
//! engine of the `cache` crate between them. Everything that waits is outside
//! of them, on the async threads: connections of clients and to upstream
//! servers, gRPC with other nodes, coordination. The two sides pass each other
//! [`Command`]s and never wait for each other.

pub mod admit;
mod clerk;
mod command;
mod connections;
mod handovers;
mod members;
mod peering;
mod ports;
mod report;
mod start;
mod streams;
mod worker;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use base::Counter;
use bytes::Bytes;
use cache::Counts;
use cache::cell::Flush;
use cluster::{Member, Routing, Standing};
use rustix::fd::OwnedFd;
use tokio::sync::{mpsc, oneshot};

use crate::coordination::Coordinator;
use crate::peers::{PeerClients, RefusalCounters, ServerCounters};

use handovers::Handovers;

pub use command::{CacheCommand, run as run_command};
pub use members::Routed;
pub use report::{CellReport, EntryReport, metrics};
pub use start::start;

/// Sockets that a cell may have open for upstream servers and other cells: two
/// for each place, and connections.
pub const SOCKETS_PER_CELL: usize = 2 * ports::PORTS as usize + peering::STREAMS_MAX + 4;
/// Commands that wait for a cell at the most.
pub const COMMANDS_MAX: usize = 4096;

/// What a cell is told from outside.
#[derive(Debug)]
pub enum Command {
    /// A client's question that came over a connection.
    Ask { request: Vec<u8>, from: IpAddr, idle_100ms: u16, reply: mpsc::Sender<Vec<u8>> },
    /// What an upstream server said over a connection, if it did.
    Stream { token: u64, octets: Option<Vec<u8>> },
    /// A frame of another node's cell that came over a connection.
    Frame { address: SocketAddr, cell: u8, octets: Bytes },
    /// Entries that another node hands over.
    Handover { waited: Duration, octets: Bytes, done: oneshot::Sender<Option<usize>> },
    /// Forget; says how many entries there were, nothing if there is too much
    /// to forget already.
    Flush { flush: Flush, done: oneshot::Sender<usize> },
    /// Say how you are.
    Report { done: oneshot::Sender<CellReport> },
    /// Say what you hold, some places from a cursor on.
    Dump { cursor: usize, count: usize, done: oneshot::Sender<(Vec<EntryReport>, Option<usize>)> },
}

/// The way to one cell.
#[derive(Clone, Debug)]
pub struct CellHandle {
    commands: SyncSender<Command>,
    /// Wakes the cell's thread.
    bell: Arc<OwnedFd>,
    pub counts: Arc<Counts>,
    pub sent: Arc<SentFrames>,
}

/// Frames that a cell sent to other nodes, by the way they went.
#[derive(Debug, Default)]
pub struct SentFrames {
    pub in_datagrams: Counter,
    pub over_connections: Counter,
}

impl CellHandle {
    /// Wakes the cell's thread.
    fn wake(&self) {
        // A full counter rings too.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    /// Tells the cell something; false if it has too much to do.
    pub fn tell(&self, command: Command) -> bool {
        match self.commands.try_send(command) {
            Ok(()) => {
                self.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

/// A node, for the async side.
#[derive(Debug)]
pub struct Node {
    pub own: Member,
    pub cells: Vec<CellHandle>,
    pub routed: Arc<ArcSwap<Routed>>,
    pub coordinator: Coordinator,
    /// The other members; a node that is alone has none.
    pub clients: Option<Arc<PeerClients>>,
    handovers: Handovers,
    /// Datagrams that were refused: by each cell, and by gossip.
    refusals: Vec<Arc<RefusalCounters>>,
    /// What was refused over connections.
    strangers: OnceLock<Arc<ServerCounters>>,
    /// The next cell that a connection's question goes to.
    turn: AtomicUsize,
}

impl Node {
    /// The cell whose turn it is.
    pub fn next_cell(&self) -> &CellHandle {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.cells[turn % self.cells.len()]
    }

    /// Who owns what now.
    pub fn routing(&self) -> Arc<Routing> {
        self.routed.load().now.clone()
    }

    /// True if this node is on its way out: balancers should send it no more.
    pub fn is_draining(&self) -> bool {
        let routing = self.routing();
        let own = routing.index_of(&self.own.name);
        own.is_some_and(|own| routing.view().members()[own as usize].standing == Standing::Draining)
    }

    /// Asks every cell; `None` for those that have too much to do or are gone.
    pub async fn ask_all<T>(&self, make: impl Fn(oneshot::Sender<T>) -> Command) -> Vec<Option<T>> {
        let mut answers = Vec::new();
        for cell in &self.cells {
            let (done, answer) = oneshot::channel();
            answers.push(cell.tell(make(done)).then_some(answer));
        }
        let mut all = Vec::new();
        for answer in answers {
            all.push(match answer {
                Some(answer) => answer.await.ok(),
                None => None,
            });
        }
        all
    }
}
