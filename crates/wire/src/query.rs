//! A question, read from bytes that anybody may have sent.
//!
//! [`Query::read`] looks at the whole message once and says one of three
//! things: here is a question to answer; answer with this error; do not answer
//! at all. It copies the name, lowered, into a buffer of the [`Query`], which
//! is made once per thread and used again for every message.

use crate::code::{Rcode, class, opcode, rtype};
use crate::edns::{self, Edns};
use crate::name::{LABEL_LEN_MAX, LABELS_MAX, NAME_LEN_MAX, Name};

/// Octets of a DNS header; the question starts right after it.
pub const HEADER_LEN: usize = 12;
/// Room behind the lowered name, so that it can be read in words of 8 octets.
const PADDING: usize = 8;

/// One question and what came with it. Reused from message to message.
#[derive(Clone, Debug)]
pub struct Query {
    /// Message id, as sent.
    pub id: u16,
    /// The flag bits, as sent.
    pub flags: Flags,
    /// Type asked for.
    pub qtype: u16,
    /// Class asked for.
    pub qclass: u16,
    /// EDNS, if the message had it.
    pub edns: Option<Edns>,
    /// Octets of header and question together; 12 if there is no question.
    question_end: u16,
    name: QueryName,
}

/// The second 16 bits of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    pub const QR: u16 = 0x8000;
    pub const AA: u16 = 0x0400;
    pub const TC: u16 = 0x0200;
    pub const RD: u16 = 0x0100;
    pub const RA: u16 = 0x0080;
    pub const AD: u16 = 0x0020;
    pub const CD: u16 = 0x0010;
    pub const OPCODE: u16 = 0x7800;

    /// The operation code.
    pub fn opcode(self) -> u8 {
        ((self.0 >> 11) & 0xf) as u8
    }

    /// True if any of `bits` is set.
    pub fn has(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// The lowered name of a question, cut into labels.
#[derive(Clone, Debug)]
pub struct QueryName {
    octets: [u8; NAME_LEN_MAX + PADDING],
    len: u8,
    labels: u8,
    starts: [u8; LABELS_MAX + 1],
}

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A question to answer.
    Answer,
    /// No question to look up, but an answer with this code is due.
    Reply(Rcode),
    /// No answer may be sent.
    Drop(DropReason),
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Shorter than a header: there is no id to answer to.
    Short,
    /// An answer itself; answering it could loop between two servers.
    IsAnswer,
    /// The sender's port is 0: nobody can receive there.
    NoPort,
    /// Longer than any question: not even read whole.
    Long,
    /// Sent to a virtual name server that the host does not serve.
    NotServed,
}

impl DropReason {
    /// Every reason, for counters.
    pub const ALL: [DropReason; 5] = [
        DropReason::Short,
        DropReason::IsAnswer,
        DropReason::NoPort,
        DropReason::Long,
        DropReason::NotServed,
    ];

    /// The name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Short => "short",
            DropReason::IsAnswer => "is_answer",
            DropReason::NoPort => "no_port",
            DropReason::Long => "long",
            DropReason::NotServed => "not_served",
        }
    }
}

impl Default for Query {
    fn default() -> Self {
        Query {
            id: 0,
            flags: Flags(0),
            qtype: 0,
            qclass: 0,
            edns: None,
            question_end: HEADER_LEN as u16,
            name: QueryName {
                octets: [0; NAME_LEN_MAX + PADDING],
                len: 1,
                labels: 0,
                starts: [0; LABELS_MAX + 1],
            },
        }
    }
}

/// The EDNS of a message of another operation, so that the refusal carries an
/// OPT record as well (RFC 6891, 6.1.1). The other sections are only skipped;
/// `None` also for a message that does not have their form.
#[cold]
fn read_other(
    message: &[u8],
    [questions, answers, authorities, additionals]: [u16; 4],
) -> Option<Edns> {
    let mut at = HEADER_LEN;
    for _ in 0..questions {
        at = edns::skip_name(message, at)?.1 + 4;
    }
    let (mut misplaced, mut edns) = (None, None);
    let records = answers as usize + authorities as usize;
    at = edns::read_records(message, at, records, &mut misplaced)?;
    at = edns::read_records(message, at, additionals as usize, &mut edns)?;
    edns.filter(|_| misplaced.is_none() && at == message.len())
}

impl Query {
    /// Reads `message`. After [`Verdict::Answer`] all fields are those of its
    /// question; after [`Verdict::Reply`] those that could be read.
    pub fn read(&mut self, message: &[u8]) -> Verdict {
        self.edns = None;
        self.question_end = HEADER_LEN as u16;
        (self.qtype, self.qclass) = (0, 0);
        let Some(header) = message.first_chunk::<HEADER_LEN>() else {
            return Verdict::Drop(DropReason::Short);
        };
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        self.id = word(0);
        self.flags = Flags(word(2));
        if self.flags.has(Flags::QR) {
            return Verdict::Drop(DropReason::IsAnswer);
        }
        let (questions, answers, authorities, additionals) = (word(4), word(6), word(8), word(10));
        if self.flags.opcode() != opcode::QUERY {
            self.edns = read_other(message, [questions, answers, authorities, additionals]);
            return Verdict::Reply(Rcode::NotImp);
        }
        // RFC 9619: a QUERY has one question. RFC 7873, 5.4 allows none, to
        // fetch a cookie; that is decided once the options are known.
        if questions > 1 {
            return Verdict::Reply(Rcode::FormErr);
        }
        let mut at = HEADER_LEN;
        if questions == 1 {
            match self.read_question(message) {
                Some(end) => at = end,
                None => return Verdict::Reply(Rcode::FormErr),
            }
        }
        // Only IXFR has a use for records in a question's authority section.
        if answers > 0 || (authorities > 0 && self.qtype != rtype::IXFR) {
            return Verdict::Reply(Rcode::FormErr);
        }
        let records = authorities as usize + additionals as usize;
        if records > 0 {
            match edns::read_records(message, at, records, &mut self.edns) {
                Some(end) => at = end,
                None => return Verdict::Reply(Rcode::FormErr),
            }
        }
        if at != message.len() {
            return Verdict::Reply(Rcode::FormErr);
        }
        match &self.edns {
            Some(edns) if edns.version > 0 => Verdict::Reply(Rcode::BadVers),
            Some(edns) if edns.malformed => Verdict::Reply(Rcode::FormErr),
            Some(edns) if questions == 0 && edns.cookie.is_some() => Verdict::Reply(Rcode::NoError),
            _ if questions == 0 => Verdict::Reply(Rcode::FormErr),
            _ => self.check_kind(),
        }
    }

    /// Questions that are well formed but of a kind with no ordinary answer.
    fn check_kind(&self) -> Verdict {
        match self.qtype {
            // RFC 6895: data types that never stand in a question.
            0 | rtype::OPT | rtype::TSIG => Verdict::Reply(Rcode::FormErr),
            rtype::IXFR | rtype::AXFR => Verdict::Reply(Rcode::Refused),
            rtype::MAILA | rtype::MAILB => Verdict::Reply(Rcode::NotImp),
            _ => Verdict::Answer,
        }
    }

    /// Reads name, type and class; returns where they end.
    fn read_question(&mut self, message: &[u8]) -> Option<usize> {
        let end = self.name.read(message, HEADER_LEN)?;
        let tail = message.get(end..end + 4)?;
        self.qtype = u16::from_be_bytes([tail[0], tail[1]]);
        self.qclass = u16::from_be_bytes([tail[2], tail[3]]);
        self.question_end = (end + 4) as u16;
        Some(end + 4)
    }

    /// The name asked for, lowered.
    pub fn name(&self) -> &QueryName {
        &self.name
    }

    /// Octets of the header and the question, as they stand in the message.
    pub fn question_end(&self) -> usize {
        self.question_end as usize
    }

    /// True if the question is in the Internet class.
    pub fn is_internet(&self) -> bool {
        self.qclass == class::IN
    }

    /// True if the asker wants DNSSEC records.
    pub fn wants_dnssec(&self) -> bool {
        self.edns.as_ref().is_some_and(|edns| edns.dnssec_ok)
    }
}

impl Default for QueryName {
    fn default() -> Self {
        Query::default().name
    }
}

impl QueryName {
    /// Reads an uncompressed name at `start`, lowers it; returns its end.
    /// Compression in a question has nothing to point at and is refused.
    #[inline]
    fn read(&mut self, message: &[u8], start: usize) -> Option<usize> {
        let mut at = start;
        let mut labels = 0;
        loop {
            let len = *message.get(at)? as usize;
            if len > LABEL_LEN_MAX {
                return None;
            }
            // A name of 255 octets has at most 127 labels, so `labels` cannot
            // pass the end of `starts` before the length is refused.
            self.starts[labels] = (at - start) as u8;
            at += 1 + len;
            if at - start > NAME_LEN_MAX {
                return None;
            }
            if len == 0 {
                break;
            }
            labels += 1;
        }
        let name = message.get(start..at)?;
        // Length octets are below 'A', so the whole name lowers in one sweep.
        for (to, from) in self.octets.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        self.len = name.len() as u8;
        self.labels = labels as u8;
        Some(at)
    }

    /// Takes another name, lowering it.
    pub fn set(&mut self, name: Name<'_>) {
        let taken = self.read(name.as_bytes(), 0);
        debug_assert!(taken.is_some());
    }

    /// The lowered octets, the root label included.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.octets[..self.len as usize]
    }

    /// Number of labels without the root.
    #[inline]
    pub fn label_count(&self) -> usize {
        self.labels as usize
    }

    /// Where the `index`th label from the left starts; `label_count()` gives
    /// the place of the root label.
    #[inline]
    pub fn label_start(&self, index: usize) -> usize {
        self.starts[index] as usize
    }

    /// The octets from the `index`th label on: a suffix of the name.
    #[inline]
    pub fn suffix(&self, index: usize) -> &[u8] {
        &self.octets[self.label_start(index)..self.len as usize]
    }

    /// Eight octets from `at` as a word, for hashing. What stands behind the
    /// name is left over from earlier names: mask it away.
    #[inline]
    pub fn word_at(&self, at: usize) -> u64 {
        match self.octets.get(at..at + 8) {
            Some(octets) => u64::from_le_bytes(octets.try_into().expect("8 octets")),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header for a query with the four counts, then `rest`.
    fn message(counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
        let mut out = vec![0xab, 0xcd, 0x01, 0x00];
        counts.iter().for_each(|count| out.extend(count.to_be_bytes()));
        out.extend(rest);
        out
    }

    fn check(message: &[u8], expected: Verdict) -> Query {
        let mut query = Query::default();
        assert_eq!(query.read(message), expected, "{message:02x?}");
        query
    }

    const QUESTION: &[u8] = b"\x03WwW\x07example\0\x00\x01\x00\x01";
    const OPT: &[u8] = b"\0\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00";

    #[test]
    fn a_plain_question_is_lowered_and_cut() {
        let query = check(&message([1, 0, 0, 0], QUESTION), Verdict::Answer);
        assert_eq!(query.name().as_bytes(), b"\x03www\x07example\0");
        assert_eq!(query.name().label_count(), 2);
        assert_eq!(query.name().suffix(1), b"\x07example\0");
        assert_eq!(query.name().suffix(2), b"\0");
        assert_eq!((query.id, query.qtype, query.qclass), (0xabcd, 1, 1));
        assert_eq!(query.question_end(), 12 + QUESTION.len());
        assert!(!query.wants_dnssec());
    }

    #[test]
    fn edns_is_read_and_dnssec_noticed() {
        let query = check(&message([1, 0, 0, 1], &[QUESTION, OPT].concat()), Verdict::Answer);
        assert!(query.wants_dnssec());
        assert_eq!(query.edns.unwrap().payload, 1232);
    }

    #[test]
    fn messages_that_cannot_be_answered_are_dropped() {
        check(&[0; 11], Verdict::Drop(DropReason::Short));
        let mut answer = message([1, 0, 0, 0], QUESTION);
        answer[2] |= 0x80;
        check(&answer, Verdict::Drop(DropReason::IsAnswer));
    }

    #[test]
    fn malformed_and_unsupported_messages_get_their_code() {
        let reply = |code| Verdict::Reply(code);
        check(&message([0, 0, 0, 0], b""), reply(Rcode::FormErr));
        check(&message([2, 0, 0, 0], &[QUESTION, QUESTION].concat()), reply(Rcode::FormErr));
        check(&message([1, 1, 0, 0], QUESTION), reply(Rcode::FormErr));
        check(&message([1, 0, 0, 0], b"\xc0\x0c\x00\x01\x00\x01"), reply(Rcode::FormErr));
        check(&message([1, 0, 0, 0], &QUESTION[..9]), reply(Rcode::FormErr));
        check(&message([1, 0, 0, 0], &[QUESTION, b"x"].concat()), reply(Rcode::FormErr));
        check(&message([1, 0, 0, 2], &[QUESTION, OPT, OPT].concat()), reply(Rcode::FormErr));
        let mut update = message([1, 0, 0, 0], QUESTION);
        update[2] |= opcode::UPDATE << 3;
        check(&update, reply(Rcode::NotImp));
        assert!(check(&update, reply(Rcode::NotImp)).edns.is_none());
        let version_1 = b"\0\x00\x29\x04\xd0\x00\x01\x00\x00\x00\x00";
        check(&message([1, 0, 0, 1], &[QUESTION, version_1].concat()), reply(Rcode::BadVers));
    }

    /// RFC 6891, 6.1.1: who sent an OPT record gets one, whatever it asked.
    #[test]
    fn other_operations_have_edns_too() {
        let record = b"\x01x\0\0\x01\0\x01\0\0\0\0\0\x04\xc0\0\x02\x01";
        let payload = |counts: [u16; 4], rest: &[&[u8]]| {
            let mut other = message(counts, &rest.concat());
            other[2] |= opcode::UPDATE << 3;
            let query = check(&other, Verdict::Reply(Rcode::NotImp));
            assert_eq!(query.question_end(), HEADER_LEN);
            query.edns.map(|edns| edns.payload)
        };
        assert_eq!(payload([1, 0, 0, 1], &[QUESTION, OPT]), Some(1232));
        assert_eq!(payload([0, 0, 0, 1], &[OPT]), Some(1232));
        assert_eq!(
            payload([1, 2, 1, 2], &[QUESTION, record, record, record, OPT, record]),
            Some(1232)
        );
        // Without their form there is nothing to find.
        assert_eq!(payload([1, 0, 0, 0], &[QUESTION]), None);
        assert_eq!(payload([1, 0, 0, 1], &[QUESTION, OPT, b"x"]), None);
        assert_eq!(payload([1, 0, 1, 0], &[QUESTION, OPT]), None);
        assert_eq!(payload([1, 0, 1, 1], &[QUESTION, OPT, OPT]), None);
        assert_eq!(payload([1, 0, 0, 2], &[QUESTION, OPT, OPT]), None);
        assert_eq!(payload([0xffff, 0xffff, 0xffff, 0xffff], &[QUESTION, OPT]), None);
        assert_eq!(payload([2, 0, 0, 0], &[&QUESTION[..QUESTION.len() - 2]]), None);
    }

    #[test]
    fn the_longest_name_fits_and_one_more_octet_does_not() {
        let longest = [[&[1u8, b'a'][..]; 127].concat(), vec![0, 0, 1, 0, 1]].concat();
        let query = check(&message([1, 0, 0, 0], &longest), Verdict::Answer);
        assert_eq!(query.name().label_count(), 127);
        let longer = [[&[1u8, b'a'][..]; 128].concat(), vec![0, 0, 1, 0, 1]].concat();
        check(&message([1, 0, 0, 0], &longer), Verdict::Reply(Rcode::FormErr));
    }
}
