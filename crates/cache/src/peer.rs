//! What cells of a cluster say to each other.
//!
//! A frame is one datagram, or one piece of a stream: who sends it, by which
//! routing, and then any number of messages. Frames come from nodes that hold
//! the cluster's key, but they are read as if they came from anybody: a message
//! that is not well formed ends its frame.

use std::net::SocketAddr;

use crate::question::Question;

/// Octets of a frame that still fits a datagram on any path.
pub const FRAME_LEN_MAX: usize = 1200;
/// Octets of a frame before its first message.
pub const FRAME_HEAD_LEN: usize = 17;
/// Octets of a message before its body.
const HEAD_LEN: usize = 5;
const VERSION: u8 = 1;

/// Where a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellAddress {
    /// Its node: `cluster::name_tag` of the member's name.
    pub node: u64,
    pub address: SocketAddr,
    pub cell: u8,
}

/// The start of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The routing that the sender had (`cluster::Routing::tag`).
    pub tag: u64,
    /// Who sends it: `cluster::name_tag` of the member's name.
    pub from: u64,
}

impl FrameHead {
    /// Appends it to an empty frame.
    pub fn write(self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend(self.tag.to_be_bytes());
        out.extend(self.from.to_be_bytes());
    }

    /// Reads the start of a frame; returns the messages behind it.
    pub fn read(frame: &[u8]) -> Option<(Self, Messages<'_>)> {
        let (head, rest) = frame.split_first_chunk::<FRAME_HEAD_LEN>()?;
        let word = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 octets"));
        let found = FrameHead { tag: word(1), from: word(9) };
        (head[0] == VERSION).then_some((found, Messages(rest)))
    }
}

/// How a question is asked of another cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Answer it, resolve it if need be.
    Resolve,
    /// As before, and renew what is about to expire.
    Refresh,
    /// Say what you have; resolve nothing.
    Peek,
}

/// One message between cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A question; `request` comes back with whatever is said to it.
    Lookup { request: u64, manner: Manner, question: Question<'a> },
    /// Its answer, as `Answer::encode` writes it; `is_stale` if it is past its
    /// time and nothing better can be had.
    Answer { request: u64, is_stale: bool, answer: &'a [u8] },
    /// It is being resolved: wait. Said again and again until it is.
    Working { request: u64 },
    /// Nothing is known (to a [`Manner::Peek`]).
    Miss { request: u64 },
    /// There is no room for another question: ask somebody else.
    Refused { request: u64 },
    /// An entry to keep: as an heir in L2, or, if it is hot, in L1.
    Put { is_hot: bool, answer: &'a [u8] },
    /// Are you there?
    Ping { request: u64 },
    /// Yes.
    Pong { request: u64 },
}

impl<'a> Message<'a> {
    /// Appends the message to a frame.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(self.kind());
        out.extend([0; 4]);
        match *self {
            Message::Lookup { request, manner, question } => {
                out.extend(request.to_be_bytes());
                out.push(manner as u8);
                question.encode(out);
            }
            Message::Answer { request, is_stale, answer } => {
                out.extend(request.to_be_bytes());
                out.push(u8::from(is_stale));
                out.extend_from_slice(answer);
            }
            Message::Working { request }
            | Message::Miss { request }
            | Message::Refused { request }
            | Message::Ping { request }
            | Message::Pong { request } => out.extend(request.to_be_bytes()),
            Message::Put { is_hot, answer } => {
                out.push(u8::from(is_hot));
                out.extend_from_slice(answer);
            }
        }
        let len = (out.len() - start - HEAD_LEN) as u32;
        out[start + 1..start + HEAD_LEN].copy_from_slice(&len.to_be_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Message::Lookup { .. } => 1,
            Message::Answer { .. } => 2,
            Message::Working { .. } => 3,
            Message::Miss { .. } => 4,
            Message::Refused { .. } => 5,
            Message::Put { .. } => 6,
            Message::Ping { .. } => 7,
            Message::Pong { .. } => 8,
        }
    }

    fn read(kind: u8, body: &'a [u8]) -> Option<Self> {
        if kind == 6 {
            let (&is_hot, answer) = body.split_first()?;
            return Some(Message::Put { is_hot: flag(is_hot)?, answer });
        }
        let (request, rest) = body.split_first_chunk::<8>()?;
        let request = u64::from_be_bytes(*request);
        let message = match kind {
            1 => {
                let (manner, rest) = rest.split_first()?;
                let manner = match manner {
                    0 => Manner::Resolve,
                    1 => Manner::Refresh,
                    2 => Manner::Peek,
                    _ => return None,
                };
                let (question, rest) = Question::decode(rest)?;
                return rest.is_empty().then_some(Message::Lookup { request, manner, question });
            }
            2 => {
                let (&is_stale, answer) = rest.split_first()?;
                return Some(Message::Answer { request, is_stale: flag(is_stale)?, answer });
            }
            3 => Message::Working { request },
            4 => Message::Miss { request },
            5 => Message::Refused { request },
            7 => Message::Ping { request },
            8 => Message::Pong { request },
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

fn flag(octet: u8) -> Option<bool> {
    match octet {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The messages of a frame, in their order.
#[derive(Clone, Debug)]
pub struct Messages<'a>(&'a [u8]);

/// A message was not well formed; what follows it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let message = self.read();
        if message.is_none() {
            self.0 = &[];
        }
        Some(message.ok_or(Malformed))
    }
}

impl<'a> Messages<'a> {
    fn read(&mut self) -> Option<Message<'a>> {
        let (head, rest) = self.0.split_first_chunk::<HEAD_LEN>()?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (body, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Message::read(head[0], body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::Bits;
    use proptest::prelude::*;

    const QUESTION: Question<'static> =
        Question { name: b"\x03www\x07example\0", qtype: 1, qclass: 1, bits: Bits::DO };

    fn messages() -> Vec<Message<'static>> {
        let request = 0xdead_beef_0000_0001;
        let mut all: Vec<_> = [Manner::Resolve, Manner::Refresh, Manner::Peek]
            .map(|manner| Message::Lookup { request, manner, question: QUESTION })
            .into();
        all.extend([
            Message::Answer { request, is_stale: true, answer: b"octets" },
            Message::Working { request },
            Message::Miss { request },
            Message::Refused { request },
            Message::Put { is_hot: true, answer: b"others" },
            Message::Ping { request },
            Message::Pong { request },
        ]);
        all
    }

    #[test]
    fn frames_survive_the_way() {
        let head = FrameHead { tag: 7, from: u64::MAX };
        let mut frame = Vec::new();
        head.write(&mut frame);
        messages().iter().for_each(|message| message.write(&mut frame));
        let (found, rest) = FrameHead::read(&frame).unwrap();
        assert_eq!(found, head);
        assert_eq!(rest.collect::<Result<Vec<_>, _>>(), Ok(messages()));
    }

    #[test]
    fn what_is_cut_off_or_follows_ends_the_frame() {
        for message in messages() {
            let mut octets = Vec::new();
            message.write(&mut octets);
            for len in 1..octets.len() {
                assert_eq!(Messages(&octets[..len]).next(), Some(Err(Malformed)), "{message:?}");
            }
            octets.push(9);
            let mut rest = Messages(&octets);
            assert_eq!(rest.next(), Some(Ok(message)));
            assert_eq!((rest.next(), rest.next()), (Some(Err(Malformed)), None));
        }
        let mut frame = Vec::new();
        FrameHead { tag: 1, from: 2 }.write(&mut frame);
        frame[0] = VERSION + 1;
        assert!(FrameHead::read(&frame).is_none(), "another version");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_to_their_end(octets: Vec<u8>) {
            if let Some((_, messages)) = FrameHead::read(&octets) {
                prop_assert!(messages.count() <= octets.len());
            }
        }
    }
}
