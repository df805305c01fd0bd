//! Entries on their way to other nodes: a queue for each of them, so that one
//! that is slow delays nobody else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::cell::Handover;
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::peers::PeerClients;

/// Pieces that wait to be sorted by their nodes.
const PIECES_MAX: usize = 1024;
/// Pieces that wait for one node: all that a cell hands over at once, and more.
const PIECES_PER_NODE_MAX: usize = 16_384;
/// Octets of a piece before its entries.
const HEAD_LEN: usize = 9;
/// A handover to a node ends when nothing more came for so long.
const IDLE: Duration = Duration::from_millis(200);

/// Takes what cells hand over to other nodes.
#[derive(Clone, Debug)]
pub struct Handovers {
    pieces: mpsc::Sender<Handover>,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    /// Pieces that wait, and nodes that are being sent some.
    busy: AtomicUsize,
    lost: AtomicU64,
}

impl Handovers {
    /// Sends what is added to the nodes that `clients` knows.
    pub fn start(clients: Option<Arc<PeerClients>>) -> Self {
        let (pieces, waiting) = mpsc::channel(PIECES_MAX);
        let tally = Arc::new(Tally::default());
        if let Some(clients) = clients {
            tokio::spawn(sort(clients, waiting, tally.clone()));
        }
        Handovers { pieces, tally }
    }

    /// Adds a piece. One too many is lost, and counted: its entries are asked
    /// for when they are needed.
    pub fn add(&self, piece: Handover) {
        self.tally.busy.fetch_add(1, Ordering::AcqRel);
        if self.pieces.try_send(piece).is_err() {
            self.tally.lost.fetch_add(1, Ordering::Relaxed);
            self.tally.end();
        }
    }

    /// True if nothing waits and nothing is being sent.
    pub fn is_idle(&self) -> bool {
        self.tally.busy.load(Ordering::Acquire) == 0
    }

    /// Pieces that were lost.
    pub fn lost(&self) -> u64 {
        self.tally.lost.load(Ordering::Relaxed)
    }
}

impl Tally {
    fn end(&self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Puts pieces into the queues of their nodes.
async fn sort(clients: Arc<PeerClients>, mut pieces: mpsc::Receiver<Handover>, tally: Arc<Tally>) {
    let mut nodes: HashMap<Arc<str>, mpsc::Sender<Piece>> = HashMap::new();
    while let Some(Handover { to, cell, octets }) = pieces.recv().await {
        let mut piece = Piece { cell, octets, since: Instant::now() };
        if let Some(node) = nodes.get(&to) {
            match node.try_send(piece) {
                Ok(()) => {
                    tally.end();
                    continue;
                }
                Err(mpsc::error::TrySendError::Full(_)) => {
                    tally.lost.fetch_add(1, Ordering::Relaxed);
                    tally.end();
                    continue;
                }
                Err(mpsc::error::TrySendError::Closed(back)) => piece = back,
            }
        }
        let (sender, receiver) = mpsc::channel(PIECES_PER_NODE_MAX);
        let _ = sender.try_send(piece);
        nodes.insert(to.clone(), sender);
        // The piece's place in the tally is the node's from here on.
        tokio::spawn(send_to_node(clients.clone(), to, receiver, tally.clone()));
    }
}

async fn send_to_node(
    clients: Arc<PeerClients>,
    node: Arc<str>,
    pieces: mpsc::Receiver<Piece>,
    tally: Arc<Tally>,
) {
    let batches = stream::unfold(pieces, async |mut pieces| {
        let piece = timeout(IDLE, pieces.recv()).await.ok().flatten()?;
        Some((vec![piece.write()], pieces))
    });
    match clients.hand_over(&node, batches).await {
        Ok(kept) => tracing::info!(%node, kept, "entries handed over"),
        Err(error) => tracing::warn!("handing over: {error}"),
    }
    tally.end();
}

/// Entries for a cell of another node, and since when they wait.
pub struct Piece {
    cell: u8,
    octets: Vec<u8>,
    since: Instant,
}

impl Piece {
    /// As it is sent: the cell, how long it waited, the entries. While they
    /// wait they grow older, and the other node must know it.
    fn write(self) -> Bytes {
        let waited_us = self.since.elapsed().as_micros() as u64;
        let mut out = Vec::with_capacity(HEAD_LEN + self.octets.len());
        out.push(self.cell);
        out.extend(waited_us.to_be_bytes());
        out.extend_from_slice(&self.octets);
        Bytes::from(out)
    }

    /// The cell, the time that it waited, and the entries.
    pub fn read(mut octets: Bytes) -> Option<(u8, Duration, Bytes)> {
        let (&cell, rest) = octets.split_first()?;
        let waited_us = u64::from_be_bytes(*rest.first_chunk()?);
        let entries = octets.split_off(HEAD_LEN);
        Some((cell, Duration::from_micros(waited_us), entries))
    }
}
