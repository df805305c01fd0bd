//! What a cell wants done: replies, messages, upstream questions.
//!
//! Effects gather while a batch of events is handled, so that what goes to one
//! place leaves together. Buffers are used again from batch to batch.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use crate::peer::{CellAddress, FRAME_LEN_MAX, FrameHead, Message};
use crate::upstream::Address;

/// Buffers that are kept for the next batch.
const SPARE_MAX: usize = 256;
/// Octets of entries that are handed over in one piece.
const HANDOVER_LEN: usize = 64 * 1024;

/// Who asked, and so where a reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// In a datagram to the `listener`th socket, to address `to` if the socket
    /// has several.
    Datagram { listener: u16, from: SocketAddr, to: Option<IpAddr> },
    /// Over a connection; the number is its owner's.
    Stream(u64),
}

/// A reply to a client, in [`Effects::octets`].
#[derive(Clone, Debug)]
pub struct Reply {
    pub asker: Asker,
    pub octets: Range<usize>,
}

/// A frame for another cell.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub to: CellAddress,
    pub octets: Vec<u8>,
}

/// A question for an upstream server, from the `port`th socket.
#[derive(Clone, Debug)]
pub struct Datagram {
    pub to: SocketAddr,
    pub port: u16,
    pub octets: Vec<u8>,
}

/// A question for an upstream server over a connection, or for the zones of
/// this process. Its answer comes back with the token.
#[derive(Clone, Debug)]
pub struct StreamQuestion {
    pub to: Address,
    pub token: u64,
    pub octets: Vec<u8>,
}

/// Entries for a new owner.
#[derive(Clone, Debug)]
pub struct Handover {
    pub to: Arc<str>,
    pub cell: u8,
    pub octets: Vec<u8>,
}

/// A flush is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    pub token: u64,
    pub removed: usize,
}

/// Everything to be done.
#[derive(Debug, Default)]
pub struct Effects {
    pub replies: Vec<Reply>,
    /// The octets of the replies.
    pub octets: Vec<u8>,
    /// Frames that fit a datagram.
    pub parcels: Vec<Parcel>,
    /// Frames that do not.
    pub bulky: Vec<Parcel>,
    pub datagrams: Vec<Datagram>,
    pub streams: Vec<StreamQuestion>,
    pub handovers: Vec<Handover>,
    pub flushed: Vec<Flushed>,
    /// Upstream sockets to be replaced by ones on other ports.
    pub worn_ports: Vec<u16>,
    spare: Vec<Vec<u8>>,
}

impl Effects {
    /// Forgets everything; it was done.
    pub fn clear(&mut self) {
        self.replies.clear();
        self.octets.clear();
        let parcels = self.parcels.drain(..).map(|parcel| parcel.octets);
        let datagrams = self.datagrams.drain(..).map(|datagram| datagram.octets);
        for mut octets in parcels.chain(datagrams) {
            if self.spare.len() < SPARE_MAX {
                octets.clear();
                self.spare.push(octets);
            }
        }
        self.bulky.clear();
        self.streams.clear();
        self.handovers.clear();
        self.flushed.clear();
        self.worn_ports.clear();
    }

    /// True if there is nothing to be done.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
            && self.parcels.is_empty()
            && self.bulky.is_empty()
            && self.datagrams.is_empty()
            && self.streams.is_empty()
            && self.handovers.is_empty()
            && self.flushed.is_empty()
            && self.worn_ports.is_empty()
    }

    /// An empty buffer.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Says `message` to a cell, together with what else is said to it.
    pub(super) fn say(&mut self, head: FrameHead, to: CellAddress, message: &Message<'_>) {
        let is_there = |parcel: &&mut Parcel| parcel.to == to;
        // The last parcel of a cell is the one with room.
        if let Some(parcel) = self.parcels.iter_mut().rev().find(is_there) {
            let before = parcel.octets.len();
            message.write(&mut parcel.octets);
            if parcel.octets.len() <= FRAME_LEN_MAX {
                return;
            }
            parcel.octets.truncate(before);
        }
        let mut octets = self.buffer();
        head.write(&mut octets);
        message.write(&mut octets);
        let is_bulky = octets.len() > FRAME_LEN_MAX;
        let parcel = Parcel { to, octets };
        if is_bulky { self.bulky.push(parcel) } else { self.parcels.push(parcel) }
    }

    /// Hands an entry over, together with others for the same cell.
    pub(super) fn hand_over(&mut self, to: &Arc<str>, cell: u8, entry: &[u8]) {
        let has_room = |piece: &&mut Handover| {
            piece.to == *to && piece.cell == cell && piece.octets.len() < HANDOVER_LEN
        };
        if let Some(piece) = self.handovers.iter_mut().find(has_room) {
            piece.octets.extend_from_slice(entry);
            return;
        }
        self.handovers.push(Handover { to: to.clone(), cell, octets: entry.to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: FrameHead = FrameHead { tag: 1, from: 2 };

    fn to(cell: u8) -> CellAddress {
        CellAddress { node: 7, address: SocketAddr::from(([127, 0, 0, 1], 1)), cell }
    }

    #[test]
    fn what_goes_to_one_cell_goes_together_as_far_as_it_fits() {
        let mut effects = Effects::default();
        for request in 0..200 {
            effects.say(HEAD, to(0), &Message::Working { request });
            effects.say(HEAD, to(1), &Message::Working { request });
        }
        let mut seen = [Vec::new(), Vec::new()];
        for Parcel { to: address, octets } in &effects.parcels {
            assert!(octets.len() <= FRAME_LEN_MAX);
            let (head, messages) = FrameHead::read(octets).unwrap();
            assert_eq!(head, HEAD);
            seen[address.cell as usize].extend(messages.map(|message| match message.unwrap() {
                Message::Working { request } => request,
                other => panic!("{other:?}"),
            }));
        }
        assert_eq!(seen, [(0..200).collect::<Vec<_>>(), (0..200).collect()]);
        assert!(effects.parcels.len() < 10, "{}", effects.parcels.len());
        effects.clear();
        assert!(effects.is_empty());
    }

    #[test]
    fn what_no_datagram_holds_goes_another_way() {
        let mut effects = Effects::default();
        let answer = vec![7; FRAME_LEN_MAX];
        effects.say(HEAD, to(0), &Message::Put { is_hot: false, answer: &answer });
        assert_eq!((effects.parcels.len(), effects.bulky.len()), (0, 1));
    }
}
