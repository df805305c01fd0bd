//! What a node does with other nodes over connections, and how its cells reach
//! everything that waits.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use cache::cell::{Flush as CellFlush, Handover, Parcel};
use cluster::{Member, Standing, View, name_tag};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::handovers::{Handovers, Piece};
use super::{CellHandle, Command, Node, Routed, streams};
use crate::peers::{Flush, Frame, Outbox, PeerClients, PeerService, Receiver};

/// Questions that a cell asks upstream over connections at the same time.
pub const STREAMS_MAX: usize = 256;

/// A cell's way to everything that waits.
#[derive(Debug)]
pub struct Outside {
    cell: u8,
    /// All cells of this node.
    cells: Vec<CellHandle>,
    own_tag: u64,
    /// Where the others know this node to be.
    address: SocketAddr,
    runtime: Handle,
    streams: Arc<Semaphore>,
    clients: Option<Arc<PeerClients>>,
    handovers: Handovers,
    /// Names of the members, by their tags.
    names: HashMap<u64, Arc<str>>,
}

impl Outside {
    pub fn new(
        cell: u8,
        cells: Vec<CellHandle>,
        own: &Member,
        runtime: Handle,
        clients: Option<Arc<PeerClients>>,
        handovers: Handovers,
    ) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        Outside {
            cell,
            cells,
            own_tag: name_tag(&own.name),
            address: own.peer,
            runtime,
            streams,
            clients,
            handovers,
            names: HashMap::new(),
        }
    }

    pub fn set_members(&mut self, view: &View) {
        let names =
            view.members().iter().map(|member| (name_tag(&member.name), member.name.clone()));
        self.names = names.collect();
    }

    /// True if a frame is for a cell of this node.
    pub fn is_own(&self, parcel: &Parcel) -> bool {
        parcel.to.node == self.own_tag
    }

    /// Sends a frame over a connection, or straight to a cell of this node;
    /// false if there is no way.
    pub fn send(&self, parcel: &Parcel) -> bool {
        if self.is_own(parcel) {
            let Some(cell) = self.cells.get(parcel.to.cell as usize) else { return false };
            let octets = Bytes::copy_from_slice(&parcel.octets);
            return cell.tell(Command::Frame { address: self.address, cell: self.cell, octets });
        }
        let (Some(clients), Some(name)) = (&self.clients, self.names.get(&parcel.to.node)) else {
            return false;
        };
        let message = Bytes::copy_from_slice(&parcel.octets);
        let frame = Frame { from_cell: self.cell, to_cell: parcel.to.cell, message };
        clients.send(name, frame).is_ok()
    }

    pub fn hand_over(&self, piece: Handover) {
        self.handovers.add(piece);
    }

    /// Asks an upstream server over a connection.
    pub fn ask(&self, to: SocketAddr, token: u64, octets: Vec<u8>) {
        let own = self.cells[self.cell as usize].clone();
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
        for entry in entries {
            let (number, waited, octets) =
                Piece::read(entry).ok_or("entries without a cell and their time")?;
            let Some(cell) = self.node.cells.get(number as usize) else {
                return Err(format!("there is no cell {number}"));
            };
            let (done, answer) = oneshot::channel();
            if !cell.tell(Command::Handover { waited, octets, done }) {
                return Err("this node has too much to do".into());
            }
            let taken = answer.await.map_err(|_| "this node stops".to_owned())?;
            kept += taken.ok_or("entries that are not well formed")? as u64;
        }
        Ok(kept)
    }

    async fn drain(&self, undo: bool) -> Result<u64, String> {
        Ok(self.node.drain(undo).await)
    }

    async fn status(&self) -> Result<String, String> {
        Ok(self.node.status().await.to_string())
    }
}

impl Node {
    /// Owns nothing from now on, and hands over; or takes its share back.
    /// Returns how many entries there are.
    pub async fn drain(&self, undo: bool) -> u64 {
        let standing = if undo { Standing::Serving } else { Standing::Draining };
        self.coordinator.set_standing(standing);
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
