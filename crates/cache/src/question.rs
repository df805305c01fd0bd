//! What an entry is the answer to: the lowered name, the type, the class, and
//! the flags that change the answer.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use wire::{Flags, Name, Query};

/// Flags of a question that change its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bits(u8);

impl Bits {
    /// DNSSEC records are wanted (RFC 3225).
    pub const DO: Bits = Bits(1);
    /// Data that does not validate is wanted too (RFC 4035, 3.2.2).
    pub const CD: Bits = Bits(2);
    const ALL: u8 = 3;

    /// True if all of `bits` are set.
    pub fn has(self, bits: Bits) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// Both together.
    pub fn with(self, bits: Bits) -> Bits {
        Bits(self.0 | bits.0)
    }

    /// As one octet.
    pub fn octet(self) -> u8 {
        self.0
    }
}

/// What an entry is the answer to. Borrowed: a hit makes no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// In wire form, lowered.
    pub name: &'a [u8],
    pub qtype: u16,
    pub qclass: u16,
    pub bits: Bits,
}

/// Octets of an encoded question before its name.
const HEAD_LEN: usize = 5;

impl<'a> Question<'a> {
    /// The question of a client.
    pub fn of(query: &'a Query) -> Self {
        let mut bits = Bits::default();
        if query.wants_dnssec() {
            bits = bits.with(Bits::DO);
        }
        if query.flags.has(Flags::CD) {
            bits = bits.with(Bits::CD);
        }
        Question { name: query.name().as_bytes(), qtype: query.qtype, qclass: query.qclass, bits }
    }

    /// Its place in a table: hashed with a key that only this process knows.
    #[inline]
    pub fn hash(&self, key: &[u8; 16]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(key);
        let (qtype, qclass) = (u64::from(self.qtype), u64::from(self.qclass));
        hasher.write_u64(qtype << 32 | qclass << 8 | u64::from(self.bits.0));
        hasher.write(self.name);
        hasher.finish()
    }

    /// Appends the one form that all nodes share: hashed for slots, sent to
    /// peers, kept while it waits.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.bits.0);
        out.extend(self.qtype.to_be_bytes());
        out.extend(self.qclass.to_be_bytes());
        out.extend_from_slice(self.name);
    }

    /// Reads an encoded question from the start of `octets`; returns the rest.
    /// `None` if there is none, or its name is not lowered.
    pub fn decode(octets: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = octets.split_first_chunk::<HEAD_LEN>()?;
        let name = Name::parse(rest).ok()?.as_bytes();
        if head[0] > Bits::ALL || name.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        let question = Question {
            name,
            qtype: u16::from_be_bytes([head[1], head[2]]),
            qclass: u16::from_be_bytes([head[3], head[4]]),
            bits: Bits(head[0]),
        };
        Some((question, &rest[name.len()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_survive_their_encoding_and_nothing_else_does() {
        let question = Question {
            name: b"\x03www\x07example\0",
            qtype: 28,
            qclass: 1,
            bits: Bits::DO.with(Bits::CD),
        };
        let mut octets = Vec::new();
        question.encode(&mut octets);
        octets.extend(b"rest");
        assert_eq!(Question::decode(&octets), Some((question, &b"rest"[..])));
        for len in 0..octets.len() - 4 {
            assert_eq!(Question::decode(&octets[..len]), None, "{len}");
        }
        let upper = octets.iter().position(|octet| *octet == b'w').unwrap();
        octets[upper] = b'W';
        assert_eq!(Question::decode(&octets), None, "its name is not lowered");
    }

    #[test]
    fn every_part_of_a_question_counts() {
        let plain = Question { name: b"\x01a\0", qtype: 1, qclass: 1, bits: Bits::default() };
        let others = [
            Question { name: b"\x01b\0", ..plain },
            Question { qtype: 2, ..plain },
            Question { qclass: 3, ..plain },
            Question { bits: Bits::DO, ..plain },
            Question { bits: Bits::CD, ..plain },
        ];
        for other in others {
            assert_ne!(plain.hash(&[7; 16]), other.hash(&[7; 16]), "{other:?}");
        }
        assert_ne!(plain.hash(&[7; 16]), plain.hash(&[8; 16]));
    }
}
