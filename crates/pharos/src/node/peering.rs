//! What a node does with other nodes over connections, and how its cells reach
//! everything that waits.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use cache::cell::{Flush as CellFlush, Handover, Parcel};
use cluster::{Standing, View, name_tag};
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::{CellHandle, Command, Node, Routed, streams};
use crate::peers::{Flush, Frame, Outbox, PeerClients, PeerService, Receiver};

/// Questions that a cell asks upstream over connections at the same time.
const STREAMS_MAX: usize = 256;
/// Pieces of handovers that wait to be sent; one more is lost, and its entries
/// are asked for when they are needed.
pub const HANDOVERS_MAX: usize = 1024;
/// Pieces that wait for one node.
const PIECES_MAX: usize = 64;
/// A handover to a node ends when nothing more came for so long.
const HANDOVER_IDLE: Duration = Duration::from_millis(200);

/// A cell's way to everything that waits.
#[derive(Debug)]
pub struct Outside {
    cell: u8,
    own: CellHandle,
    runtime: Handle,
    streams: Arc<Semaphore>,
    clients: Option<Arc<PeerClients>>,
    handovers: mpsc::Sender<Handover>,
    /// Names of the members, by their tags.
    names: HashMap<u64, Arc<str>>,
}

impl Outside {
    pub fn new(
        cell: u8,
        own: CellHandle,
        runtime: Handle,
        clients: Option<Arc<PeerClients>>,
        handovers: mpsc::Sender<Handover>,
    ) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        Outside { cell, own, runtime, streams, clients, handovers, names: HashMap::new() }
    }

    pub fn set_members(&mut self, view: &View) {
        let names =
            view.members().iter().map(|member| (name_tag(&member.name), member.name.clone()));
        self.names = names.collect();
    }

    /// Sends a frame over a connection; false if there is no way to its node.
    pub fn send(&self, parcel: &Parcel) -> bool {
        let (Some(clients), Some(name)) = (&self.clients, self.names.get(&parcel.to.node)) else {
            return false;
        };
        let message = Bytes::copy_from_slice(&parcel.octets);
        let frame = Frame { from_cell: self.cell, to_cell: parcel.to.cell, message };
        clients.send(name, frame).is_ok()
    }

    pub fn hand_over(&self, piece: Handover) {
        let _ = self.handovers.try_send(piece);
    }

    /// Asks an upstream server over a connection.
    pub fn ask(&self, to: SocketAddr, token: u64, octets: Vec<u8>) {
        let own = self.own.clone();
        let Ok(permit) = self.streams.clone().try_acquire_owned() else {
            own.tell(Command::Stream { token, octets: None });
            return;
        };
        self.runtime.spawn(async move {
            let octets = streams::exchange(to, &octets).await.ok();
            own.tell(Command::Stream { token, octets });
            drop(permit);
        });
    }
}

/// Sends the pieces of handovers to their nodes, each node at its own pace.
pub async fn send_handovers(clients: Arc<PeerClients>, mut pieces: mpsc::Receiver<Handover>) {
    let mut nodes: HashMap<Arc<str>, mpsc::Sender<Bytes>> = HashMap::new();
    while let Some(Handover { to, cell, octets }) = pieces.recv().await {
        let mut entry = Vec::with_capacity(1 + octets.len());
        entry.push(cell);
        entry.extend_from_slice(&octets);
        let mut entry = Bytes::from(entry);
        if let Some(node) = nodes.get(&to) {
            match node.try_send(entry) {
                // A node that does not keep up loses some: they are asked for
                // when they are needed.
                Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => continue,
                Err(mpsc::error::TrySendError::Closed(back)) => entry = back,
            }
        }
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        let _ = sender.try_send(entry);
        nodes.insert(to.clone(), sender);
        tokio::spawn(send_to_node(clients.clone(), to, receiver));
    }
}

async fn send_to_node(clients: Arc<PeerClients>, node: Arc<str>, pieces: mpsc::Receiver<Bytes>) {
    let batches = stream::unfold(pieces, async |mut pieces| {
        let piece = timeout(HANDOVER_IDLE, pieces.recv()).await.ok().flatten()?;
        Some((vec![piece], pieces))
    });
    match clients.hand_over(&node, batches).await {
        Ok(kept) => tracing::info!(%node, kept, "entries handed over"),
        Err(error) => tracing::warn!("handing over: {error}"),
    }
}

/// Takes frames of other nodes' cells to the cells of this one.
#[derive(Clone, Debug)]
pub struct Frames {
    pub cells: Vec<CellHandle>,
    pub routed: Arc<ArcSwap<Routed>>,
}

impl Receiver for Frames {
    fn receive(&self, from: &str, frames: Vec<Frame>, _back: &Outbox) {
        let routing = &self.routed.load().now;
        // A reply goes where the others know the node to be.
        let Some(member) = routing.index_of(from) else { return };
        let address = routing.view().members()[member as usize].peer;
        for Frame { from_cell, to_cell, message } in frames {
            if let Some(cell) = self.cells.get(to_cell as usize) {
                cell.tell(Command::Frame { address, cell: from_cell, octets: message });
            }
        }
    }
}

/// What other nodes may ask of this one.
#[derive(Debug)]
pub struct Service {
    pub node: Arc<Node>,
    pub frames: Frames,
}

impl Receiver for Service {
    fn receive(&self, from: &str, frames: Vec<Frame>, back: &Outbox) {
        self.frames.receive(from, frames, back);
    }
}

impl PeerService for Service {
    async fn flush(&self, flush: Flush) -> Result<u64, String> {
        self.node.flush(&flush.name, flush.subtree).await
    }

    async fn take(&self, _from: &str, entries: Vec<Bytes>) -> Result<u64, String> {
        let mut kept = 0;
        for mut entry in entries {
            if entry.is_empty() {
                return Err("an entry without a cell".into());
            }
            let octets = entry.split_off(1);
            let Some(cell) = self.node.cells.get(entry[0] as usize) else {
                return Err(format!("there is no cell {}", entry[0]));
            };
            let (done, answer) = oneshot::channel();
            if !cell.tell(Command::Handover { octets, done }) {
                return Err("this node has too much to do".into());
            }
            let taken = answer.await.map_err(|_| "this node stops".to_owned())?;
            kept += taken.ok_or("entries that are not well formed")? as u64;
        }
        Ok(kept)
    }

    async fn drain(&self) -> Result<u64, String> {
        Ok(self.node.drain().await)
    }

    async fn status(&self) -> Result<String, String> {
        Ok(self.node.status().await.to_string())
    }
}

impl Node {
    /// Owns nothing from now on, and hands over; returns how many entries there
    /// are.
    pub async fn drain(&self) -> u64 {
        self.coordinator.set_standing(Standing::Draining);
        let reports = self.ask_all(|done| Command::Report { done }).await;
        reports.iter().flatten().map(|report| report.sizes.l2_entries as u64).sum()
    }

    /// Forgets a name, or a whole subtree, in all cells.
    pub async fn flush(&self, name: &[u8], with_subtree: bool) -> Result<u64, String> {
        let name: Box<[u8]> = name.to_ascii_lowercase().into();
        let make = |done| Command::Flush {
            flush: CellFlush { name: name.clone(), with_subtree, token: 0 },
            done,
        };
        let removed = self.ask_all(make).await;
        let cells = removed.len();
        let done: Vec<usize> = removed.into_iter().flatten().collect();
        match done.len() == cells {
            true => Ok(done.iter().map(|removed| *removed as u64).sum()),
            false => {
                Err(format!("{} of {cells} cells did not answer; try again", cells - done.len()))
            }
        }
    }
}
