//! An answer, written section by section into a caller's buffer.
//!
//! Record sets come rendered in advance as [`Block`]s: the octets of their
//! records with the owner as a pointer, and a list of the places that hold a
//! compression pointer whose target is only known now. Writing a set is one
//! copy and a few stores. A set is written whole or not at all, which is what
//! truncation at record set boundaries needs (RFC 2181, 9).

use crate::code::Rcode;
use crate::edns::OptReply;
use crate::query::{Flags, HEADER_LEN, Query};

/// Largest DNS message.
pub const MESSAGE_LEN_MAX: usize = 65_535;
/// Compression pointers reach this far (RFC 1035, 4.1.4).
pub const POINTER_MAX: usize = 0x3fff;
/// Octets of a record between its owner and its data.
pub const RECORD_HEAD_LEN: usize = 10;
/// In a block, a pointer with this bit counts from the start of the block;
/// without it, it stands for the zone's own name.
pub const LOCAL: u16 = 0x2000;
/// Largest offset that a pointer inside a block can hold.
pub const BLOCK_POINTER_MAX: usize = 0x1fff;
/// Owner that records in a block carry: the name of the question.
pub const QUESTION_POINTER: u16 = 0xc000 | HEADER_LEN as u16;

/// A record set (with or without its signatures) rendered in advance.
#[derive(Clone, Copy, Debug)]
pub struct Block<'z> {
    /// Number of records.
    pub records: u16,
    /// Their octets; each owner is the two octets [`QUESTION_POINTER`].
    pub octets: &'z [u8],
    /// Places of compression pointers in `octets`, as little-endian `u16`.
    pub fixups: &'z [u8],
}

/// Where the owner name of a block comes from.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// It stands in the message already.
    At(usize),
    /// These labels, then the zone's own name.
    Below(&'a [u8]),
}

/// The sections that hold records, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

/// An answer being written.
#[derive(Debug)]
pub struct Reply<'b> {
    out: &'b mut [u8],
    at: usize,
    limit: usize,
    counts: [u16; 3],
    truncated: bool,
}

impl<'b> Reply<'b> {
    /// Starts the answer to `query`, which was read from `request`: header and
    /// question are copied. `limit` is where the records must end; it leaves
    /// room for the OPT record. `out` holds at least the request's question
    /// and `limit` octets.
    #[inline]
    pub fn start(out: &'b mut [u8], request: &[u8], query: &Query, limit: usize) -> Self {
        let at = query.question_end();
        out[..at].copy_from_slice(&request[..at]);
        Reply { at, limit: limit.min(out.len()), out, counts: [0; 3], truncated: false }
    }

    /// Where the next record will start.
    pub fn position(&self) -> usize {
        self.at
    }

    /// True once a set that belongs into the answer did not fit.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Says that something that belongs into the answer is missing (TC).
    pub fn truncate(&mut self) {
        self.truncated = true;
    }

    /// Writes `block` into `section`, whole or not at all. `apex_at` is where
    /// the name of the block's zone stands in the message. Returns where the
    /// block starts, to which its local offsets count; `None` also if no
    /// pointer reaches the names it needs.
    #[inline]
    pub fn put(
        &mut self,
        section: Section,
        block: &Block<'_>,
        owner: Owner<'_>,
        apex_at: usize,
        ttl_secs: Option<u32>,
    ) -> Option<usize> {
        let (labels, pointed_at) = match owner {
            Owner::At(at) => (&[][..], at),
            Owner::Below(labels) => (labels, apex_at),
        };
        let start = self.at + labels.len();
        let end = start + block.octets.len();
        if self.truncated || end > self.limit || pointed_at > POINTER_MAX {
            return None;
        }
        // Local pointers must reach; see BLOCK_POINTER_MAX. The zone's own name
        // stands before the block, so pointers to it do as well.
        if !block.fixups.is_empty() && start > POINTER_MAX - BLOCK_POINTER_MAX {
            return None;
        }
        if !labels.is_empty() && self.at > POINTER_MAX {
            return self.put_far(section, block, labels, apex_at);
        }
        self.out[self.at..start].copy_from_slice(labels);
        let out = &mut self.out[start..end];
        out.copy_from_slice(block.octets);
        for fixup in block.fixups.chunks_exact(2) {
            let place = u16::from_le_bytes([fixup[0], fixup[1]]) as usize;
            let pointer = u16::from_be_bytes([out[place], out[place + 1]]);
            let target = match pointer & LOCAL {
                0 => apex_at,
                _ => start + (pointer as usize & BLOCK_POINTER_MAX),
            };
            let value = 0xc000 | target as u16;
            out[place..place + 2].copy_from_slice(&value.to_be_bytes());
        }
        match owner {
            Owner::At(HEADER_LEN) if ttl_secs.is_none() => {}
            Owner::At(at) => patch_records(out, at, at, ttl_secs),
            Owner::Below([]) => patch_records(out, apex_at, apex_at, ttl_secs),
            Owner::Below(_) => patch_records(out, apex_at, self.at, ttl_secs),
        }
        self.at = end;
        self.counts[section as usize] += block.records;
        Some(start)
    }

    /// [`Reply::put`] where no pointer reaches the place it is written to:
    /// every record gets its owner in full.
    #[cold]
    fn put_far(
        &mut self,
        section: Section,
        block: &Block<'_>,
        labels: &[u8],
        apex_at: usize,
    ) -> Option<usize> {
        let end = self.at + block.octets.len() + labels.len() * block.records as usize;
        if end > self.limit || !block.fixups.is_empty() {
            return None;
        }
        let start = self.at + labels.len();
        let mut octets = block.octets;
        while !octets.is_empty() {
            let (record, rest) = octets.split_at(record_len(octets));
            let owner_end = self.at + labels.len();
            self.out[self.at..owner_end].copy_from_slice(labels);
            self.out[owner_end..owner_end + record.len()].copy_from_slice(record);
            write_pointer(&mut self.out[owner_end..], apex_at);
            self.at = owner_end + record.len();
            octets = rest;
        }
        self.counts[section as usize] += block.records;
        Some(start)
    }

    /// Writes one record of the answer section that was made for this
    /// question. Returns where its data starts.
    pub fn put_record(
        &mut self,
        owner_at: usize,
        rtype: u16,
        class: u16,
        ttl_secs: u32,
        data: &[u8],
    ) -> Option<usize> {
        let data_at = self.at + 2 + RECORD_HEAD_LEN;
        let end = data_at + data.len();
        if self.truncated || end > self.limit || owner_at > POINTER_MAX {
            return None;
        }
        let out = &mut self.out[self.at..end];
        write_pointer(out, owner_at);
        out[2..4].copy_from_slice(&rtype.to_be_bytes());
        out[4..6].copy_from_slice(&class.to_be_bytes());
        out[6..10].copy_from_slice(&ttl_secs.to_be_bytes());
        out[10..12].copy_from_slice(&(data.len() as u16).to_be_bytes());
        out[12..].copy_from_slice(data);
        self.at = end;
        self.counts[Section::Answer as usize] += 1;
        Some(data_at)
    }

    /// Writes the header and the OPT record; returns the message's length.
    #[inline]
    pub fn finish(
        mut self,
        query: &Query,
        rcode: Rcode,
        authoritative: bool,
        opt: Option<OptReply<'_>>,
    ) -> usize {
        let mut additional = self.counts[Section::Additional as usize];
        if let Some(opt) = opt {
            self.at = opt.write(self.out, self.at);
            additional += 1;
        }
        // RD is copied (RFC 1035, 4.1.1); an authority clears CD (RFC 4035,
        // 3.1.6).
        let mut flags = Flags::QR | query.flags.0 & (Flags::OPCODE | Flags::RD);
        flags |= rcode as u16 & 0xf;
        if authoritative {
            flags |= Flags::AA;
        }
        if self.truncated {
            flags |= Flags::TC;
        }
        let has_question = query.question_end() > HEADER_LEN;
        let header = &mut self.out[..HEADER_LEN];
        header[0..2].copy_from_slice(&query.id.to_be_bytes());
        header[2..4].copy_from_slice(&flags.to_be_bytes());
        header[4..6].copy_from_slice(&u16::from(has_question).to_be_bytes());
        header[6..8].copy_from_slice(&self.counts[0].to_be_bytes());
        header[8..10].copy_from_slice(&self.counts[1].to_be_bytes());
        header[10..12].copy_from_slice(&additional.to_be_bytes());
        self.at
    }

    /// Where the octet `skip` of the name at `at` stands. The name was written
    /// by this reply, so its pointers lead back to labels, and end.
    pub fn locate(&self, at: usize, skip: usize) -> usize {
        let (mut at, mut left) = (at, skip);
        loop {
            match self.out[at] {
                high @ 0xc0.. => at = (high as usize & 0x3f) << 8 | self.out[at + 1] as usize,
                _ if left == 0 => return at,
                len => {
                    at += 1 + len as usize;
                    left = left.saturating_sub(1 + len as usize);
                }
            }
        }
    }
}

/// Octets of the record at the start of `octets`, its owner being a pointer.
fn record_len(octets: &[u8]) -> usize {
    2 + RECORD_HEAD_LEN + u16::from_be_bytes([octets[10], octets[11]]) as usize
}

/// Gives the first record the owner at `first`, the others the one at `rest`,
/// and all the time to live `ttl_secs`.
fn patch_records(octets: &mut [u8], first: usize, rest: usize, ttl_secs: Option<u32>) {
    let mut at = 0;
    let mut owner = first;
    while at < octets.len() {
        let len = record_len(&octets[at..]);
        write_pointer(&mut octets[at..], owner);
        if let Some(ttl_secs) = ttl_secs {
            octets[at + 6..at + 10].copy_from_slice(&ttl_secs.to_be_bytes());
        }
        owner = rest;
        at += len;
    }
}

fn write_pointer(out: &mut [u8], target: usize) {
    debug_assert!(target <= POINTER_MAX);
    out[..2].copy_from_slice(&(0xc000 | target as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Verdict;

    const QUESTION: &[u8] = b"\0\x01\0\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    /// One record of a type without names, its data `len` octets.
    fn record(len: usize) -> Vec<u8> {
        let mut octets = b"\xc0\x0c\0\x10\0\x01\0\0\0\0".to_vec();
        octets.extend((len as u16).to_be_bytes());
        octets.resize(octets.len() + len, 0);
        octets
    }

    /// A name that stands where no pointer reaches is no owner and no end of
    /// one: whoever needs it is told, and nothing is written.
    #[test]
    fn names_out_of_reach_are_not_pointed_at() {
        let (mut query, mut out) = (Query::default(), vec![0; MESSAGE_LEN_MAX]);
        assert_eq!(query.read(QUESTION), Verdict::Answer);
        let mut reply = Reply::start(&mut out, QUESTION, &query, MESSAGE_LEN_MAX);
        let (large, small) = (record(POINTER_MAX), record(4));
        let block = |octets| Block { records: 1, octets, fixups: &[] };
        let mut put = |octets, owner, apex_at| {
            reply.put(Section::Answer, &block(octets), owner, apex_at, None)
        };
        assert!(put(&large, Owner::At(HEADER_LEN), HEADER_LEN).is_some());
        let far = POINTER_MAX + 1;
        assert_eq!(put(&small, Owner::At(far), HEADER_LEN), None);
        assert_eq!(put(&small, Owner::Below(b""), far), None);
        assert_eq!(put(&small, Owner::Below(b"\x01b"), far), None);
        assert!(put(&small, Owner::At(POINTER_MAX), HEADER_LEN).is_some());
        assert!(put(&small, Owner::Below(b"\x01b"), POINTER_MAX).is_some());
        assert_eq!(reply.put_record(far, 16, 1, 0, b""), None);
        assert!(reply.put_record(POINTER_MAX, 16, 1, 0, b"").is_some());
        assert!(!reply.is_truncated());
    }
}
