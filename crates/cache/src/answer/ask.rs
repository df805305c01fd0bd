//! Questions to upstream servers.

use wire::{Flags, rtype};

use crate::question::{Bits, Question};

/// Largest answer over UDP that is asked for: what arrives in one piece nearly
/// everywhere (RFC 9715, 3.1 advises at most 1400).
pub const PAYLOAD: u16 = 1232;

/// DO, in the first octet of an OPT record's flags (RFC 3225, 3).
const OPT_FLAG_DO: u8 = 0x80;

/// Appends the question to an upstream: recursion is desired, AD is understood
/// (RFC 6840, 5.7), CD and DO are as the question has them, and nothing is
/// said about the client.
///
/// Each letter of the name is upper case if `is_upper` says so: drawn at
/// random, that is one more bit that a forger has to guess. The name as sent
/// stands 12 octets behind the start.
pub fn build_question(
    question: Question<'_>,
    is_upper: impl FnMut() -> bool,
    id: u16,
    payload: u16,
    out: &mut Vec<u8>,
) {
    write_question(question, is_upper, id, 1, out);
    let dnssec_ok = if question.bits.has(Bits::DO) { OPT_FLAG_DO } else { 0 };
    out.push(0);
    out.extend(rtype::OPT.to_be_bytes());
    out.extend(payload.to_be_bytes());
    out.extend([0, 0, dnssec_ok, 0, 0, 0]);
}

/// The same without EDNS, for servers that do not know it. DO is lost.
pub fn build_plain_question(
    question: Question<'_>,
    is_upper: impl FnMut() -> bool,
    id: u16,
    out: &mut Vec<u8>,
) {
    write_question(question, is_upper, id, 0, out);
}

fn write_question(
    question: Question<'_>,
    mut is_upper: impl FnMut() -> bool,
    id: u16,
    additionals: u16,
    out: &mut Vec<u8>,
) {
    let mut flags = Flags::RD | Flags::AD;
    if question.bits.has(Bits::CD) {
        flags |= Flags::CD;
    }
    for word in [id, flags, 1, 0, 0, additionals] {
        out.extend(word.to_be_bytes());
    }
    // Octets of length are never letters: they are at most 63.
    out.extend(question.name.iter().map(|octet| match octet {
        b'a'..=b'z' if is_upper() => octet.to_ascii_uppercase(),
        _ => *octet,
    }));
    out.extend(question.qtype.to_be_bytes());
    out.extend(question.qclass.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Query, Verdict};

    const NAME: &[u8] = b"\x03a1z\x07exam-le\0";

    fn question(bits: Bits) -> Question<'static> {
        Question { name: NAME, qtype: 28, qclass: 1, bits }
    }

    /// Reads the octets back as a server would.
    fn read(octets: &[u8]) -> Query {
        let mut query = Query::default();
        assert_eq!(query.read(octets), Verdict::Answer);
        assert_eq!(Question::of(&query).name, NAME);
        assert_eq!((query.qtype, query.qclass, query.id), (28, 1, 0x1234));
        query
    }

    #[test]
    fn questions_carry_what_was_asked_and_no_more() {
        for bits in [Bits::default(), Bits::DO, Bits::CD, Bits::DO.with(Bits::CD)] {
            let mut octets = Vec::new();
            build_question(question(bits), || false, 0x1234, PAYLOAD, &mut octets);
            let query = read(&octets);
            assert_eq!(Question::of(&query), question(bits));
            assert!(query.flags.has(Flags::RD) && query.flags.has(Flags::AD));
            let edns = query.edns.unwrap();
            assert_eq!((edns.payload, edns.version, edns.malformed), (PAYLOAD, 0, false));
            assert_eq!(octets.len(), 12 + NAME.len() + 4 + 11, "an OPT record without options");
        }
    }

    #[test]
    fn questions_without_edns_have_the_rest() {
        let mut octets = b"before".to_vec();
        build_plain_question(question(Bits::CD), || false, 0x1234, &mut octets);
        let query = read(&octets[6..]);
        assert!(query.edns.is_none() && query.flags.has(Flags::CD));
    }

    #[test]
    fn only_letters_change_their_case() {
        let (mut octets, mut turn) = (Vec::new(), false);
        let toggle = || {
            turn = !turn;
            turn
        };
        build_question(question(Bits::default()), toggle, 0x1234, PAYLOAD, &mut octets);
        assert_eq!(&octets[12..12 + NAME.len()], b"\x03A1z\x07ExAm-Le\0");
        read(&octets);
    }
}
