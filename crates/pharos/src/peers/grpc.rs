//! What nodes say to each other over connections: the messages of
//! `proto/peer.proto`, read into what the node works with, and their bounds.
//!
//! Both ends hold the cluster's key, so nobody here is a stranger. They may
//! still run another version, or be broken, so everything is bounded and
//! nothing is believed about lengths.

use bytes::Bytes;
use tonic::Status;

use super::outbox::Outbox;

/// What is made of `proto/peer.proto`.
#[allow(missing_debug_implementations, clippy::all)]
pub(super) mod proto {
    tonic::include_proto!("pharos.peer.v1");
}

/// Octets of any one gRPC message at the most.
pub const MESSAGE_LEN_MAX: usize = 1 << 20;
/// Octets of a message between cells at the most: the longest DNS answer, its
/// question, and what is said about both.
pub const FRAME_LEN_MAX: usize = 128 << 10;
/// Octets of messages between cells that are sent together at the most.
pub const BATCH_LEN_MAX: usize = 256 << 10;
/// Messages between cells that are sent together at the most.
pub const FRAMES_MAX: usize = 4096;
/// Entries that are handed over together at the most.
pub const ENTRIES_MAX: usize = 4096;
/// Octets of a node's name at the most.
pub const NODE_NAME_LEN_MAX: usize = 255;

/// A message from a cell to a cell of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub from_cell: u8,
    pub to_cell: u8,
    /// As in a datagram, before it is sealed.
    pub message: Bytes,
}

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flush {
    /// A name in wire form.
    pub name: Bytes,
    /// Also everything below it.
    pub subtree: bool,
}

/// Takes messages for the cells of a node, from whichever side a connection
/// was made.
pub trait Receiver: Send + Sync + 'static {
    /// Takes messages of the node `from`. Answers may go into `back`, which
    /// leads to that node for as long as the connection lasts. Must not wait.
    fn receive(&self, from: &str, frames: Vec<Frame>, back: &Outbox);
}

/// What a node does when others ask it to. Errors are told to them.
pub trait PeerService: Receiver {
    /// Forgets; returns how many entries there were, once they are gone.
    fn flush(&self, flush: Flush) -> impl Future<Output = Result<u64, String>> + Send;

    /// Takes some of the entries that the node `from` hands over; returns how
    /// many it keeps.
    fn take(
        &self,
        from: &str,
        entries: Vec<Bytes>,
    ) -> impl Future<Output = Result<u64, String>> + Send;

    /// Begins to drain, or takes its share back; returns how many entries there
    /// are.
    fn drain(&self, undo: bool) -> impl Future<Output = Result<u64, String>> + Send;

    /// How the node is, as a JSON object.
    fn status(&self) -> impl Future<Output = Result<String, String>> + Send;
}

/// Writes messages of the node `from`.
pub(super) fn write_frames(from: &str, frames: Vec<Frame>) -> proto::Frames {
    let write = |frame: Frame| proto::Frame {
        from_cell: frame.from_cell.into(),
        to_cell: frame.to_cell.into(),
        message: frame.message,
    };
    proto::Frames { from: from.to_owned(), frames: frames.into_iter().map(write).collect() }
}

/// Reads messages, and the node they are from.
pub(super) fn read_frames(message: proto::Frames) -> Result<(String, Vec<Frame>), Status> {
    check_node(&message.from)?;
    check_count("messages", message.frames.len(), FRAMES_MAX)?;
    let frames = message.frames.into_iter().map(read_frame).collect::<Result<_, _>>()?;
    Ok((message.from, frames))
}

fn read_frame(frame: proto::Frame) -> Result<Frame, Status> {
    check_count("octets of a message", frame.message.len(), FRAME_LEN_MAX)?;
    let cell = |number: u32| {
        let what = || format!("cell {number}; accepted: at most 255");
        u8::try_from(number).map_err(|_| Status::invalid_argument(what()))
    };
    Ok(Frame {
        from_cell: cell(frame.from_cell)?,
        to_cell: cell(frame.to_cell)?,
        message: frame.message,
    })
}

/// Reads what is to be forgotten.
pub(super) fn read_flush(request: proto::FlushRequest) -> Result<Flush, Status> {
    match wire::Name::parse(&request.name) {
        Ok(name) if name.as_bytes().len() == request.name.len() => {
            Ok(Flush { name: request.name.clone(), subtree: request.subtree })
        }
        _ => Err(Status::invalid_argument("no name; accepted: one in wire form")),
    }
}

/// Reads entries, and the node they are from.
pub(super) fn read_entries(message: proto::Entries) -> Result<(String, Vec<Bytes>), Status> {
    check_node(&message.from)?;
    check_count("entries", message.entries.len(), ENTRIES_MAX)?;
    Ok((message.from, message.entries))
}

fn check_node(name: &str) -> Result<(), Status> {
    check_count("octets of a node's name", name.len(), NODE_NAME_LEN_MAX)
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), Status> {
    match count > most {
        true => Err(Status::invalid_argument(format!("{count} {what}; accepted: at most {most}"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(from_cell: u32, to_cell: u32, len: usize) -> proto::Frame {
        proto::Frame { from_cell, to_cell, message: Bytes::from(vec![7; len]) }
    }

    fn frames(from: &str, frames: Vec<proto::Frame>) -> proto::Frames {
        proto::Frames { from: from.into(), frames }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let frame = |cell| Frame { from_cell: cell, to_cell: 255, message: Bytes::from("hello") };
        let sent = vec![frame(0), frame(9)];
        let read = read_frames(write_frames("a", sent.clone())).unwrap();
        assert_eq!(read, ("a".to_owned(), sent));
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let long = "a".repeat(NODE_NAME_LEN_MAX + 1);
        for (message, expected) in [
            (frames(&long, vec![]), "256 octets of a node's name; accepted: at most 255"),
            (frames("a", vec![frame(0, 0, 0); FRAMES_MAX + 1]), "4097 messages; accepted"),
            (frames("a", vec![frame(256, 0, 0)]), "cell 256; accepted: at most 255"),
            (frames("a", vec![frame(0, u32::MAX, 0)]), "cell 4294967295"),
            (frames("a", vec![frame(0, 0, FRAME_LEN_MAX + 1)]), "octets of a message; accepted"),
        ] {
            let status = read_frames(message).unwrap_err();
            assert!(status.message().contains(expected), "{status}");
        }
        let entries = vec![Bytes::new(); ENTRIES_MAX + 1];
        let status = read_entries(proto::Entries { from: "a".into(), entries }).unwrap_err();
        assert!(status.message().contains("4097 entries; accepted"), "{status}");
    }

    #[test]
    fn names_are_read_whole() {
        let read = |name: &'static [u8]| {
            read_flush(proto::FlushRequest { name: Bytes::from(name), subtree: true })
        };
        assert_eq!(read(b"\0").unwrap().name, &b"\0"[..]);
        assert_eq!(read(b"\x01a\x07example\0").unwrap().name, &b"\x01a\x07example\0"[..]);
        for bad in [&b""[..], b"\x01a", b"\x01a\0\0", b"\xc0\x0c", b"\x3fshort\0"] {
            let status = read(bad).unwrap_err();
            assert!(status.message().contains("accepted: one in wire form"), "{status}");
        }
    }
}
