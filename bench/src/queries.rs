//! Query packets built in advance, and what a right answer to each looks like.

use std::fmt;
use std::net::Ipv4Addr;

const TYPE_A: u16 = 1;
const TYPE_OPT: u16 = 41;
const CLASS_IN: u16 = 1;
const HEADER_BYTES: usize = 12;
const EDNS_PAYLOAD_BYTES: u16 = 1232;

/// Whether a query carries an OPT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdnsMode {
    None,
    /// OPT with the DO bit.
    Dnssec,
}

/// The shape of a right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    pub rcode: u8,
    pub authoritative: bool,
    pub answers: u16,
    pub authority_min: u16,
    pub authority_max: u16,
    pub additional_min: u16,
    /// The A record that must be among the answers.
    pub address: Option<Ipv4Addr>,
}

impl Expect {
    /// One A record, nothing said about the rest.
    pub fn address(address: Ipv4Addr) -> Expect {
        Expect {
            rcode: 0,
            authoritative: true,
            answers: 1,
            authority_min: 0,
            authority_max: u16::MAX,
            additional_min: 0,
            address: Some(address),
        }
    }

    /// No such name, with the SOA.
    pub fn nxdomain() -> Expect {
        Expect {
            rcode: 3,
            answers: 0,
            authority_min: 1,
            authority_max: 1,
            address: None,
            ..Expect::address(Ipv4Addr::UNSPECIFIED)
        }
    }

    /// A referral with so many name servers and addresses.
    pub fn referral(servers: u16, glue: u16) -> Expect {
        Expect {
            authoritative: false,
            answers: 0,
            authority_min: servers,
            authority_max: servers,
            additional_min: glue,
            address: None,
            ..Expect::address(Ipv4Addr::UNSPECIFIED)
        }
    }

    /// One A record and its signature, with OPT.
    pub fn signed_address(address: Ipv4Addr) -> Expect {
        Expect { answers: 2, additional_min: 1, ..Expect::address(address) }
    }

    /// SOA and one or two NSEC, all signed, with OPT.
    pub fn signed_nxdomain() -> Expect {
        Expect { authority_min: 4, authority_max: 6, additional_min: 1, ..Expect::nxdomain() }
    }

    /// What the floor responder says to everything.
    pub fn floor() -> Expect {
        Expect::address(crate::floor::ADDRESS)
    }
}

/// Why an answer is not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Short,
    NotAnAnswer,
    Truncated,
    Question,
    Rcode { got: u8, expected: u8 },
    Authoritative(bool),
    Answers { got: u16, expected: u16 },
    Authority { got: u16, min: u16, max: u16 },
    Additional { got: u16, min: u16 },
    Address(Ipv4Addr),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Short => write!(f, "shorter than a DNS header and question"),
            Wrong::NotAnAnswer => write!(f, "the QR bit is not set"),
            Wrong::Truncated => write!(f, "the TC bit is set"),
            Wrong::Question => write!(f, "the question is not the one asked"),
            Wrong::Rcode { got, expected } => write!(f, "rcode {got}, expected {expected}"),
            Wrong::Authoritative(got) => write!(f, "AA is {got}, expected {}", !got),
            Wrong::Answers { got, expected } => write!(f, "{got} answers, expected {expected}"),
            Wrong::Authority { got, min, max } => {
                write!(f, "{got} authority records, expected {min} to {max}")
            }
            Wrong::Additional { got, min } => {
                write!(f, "{got} additional records, expected at least {min}")
            }
            Wrong::Address(expected) => write!(f, "no A record {expected} among the answers"),
        }
    }
}

/// A query for `name` (presentation form without escapes) with id 0.
///
/// Panics on a name that DNS cannot carry: names come from our own generator.
pub fn query_packet(name: &str, qtype: u16, edns: EdnsMode) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEADER_BYTES + name.len() + 17);
    let additional = u8::from(edns == EdnsMode::Dnssec);
    packet.extend([0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, additional]);
    for label in name.trim_end_matches('.').split('.') {
        assert!((1..=63).contains(&label.len()), "label `{label}` of `{name}`");
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(qtype.to_be_bytes());
    packet.extend(CLASS_IN.to_be_bytes());
    if edns == EdnsMode::Dnssec {
        packet.push(0);
        packet.extend(TYPE_OPT.to_be_bytes());
        packet.extend(EDNS_PAYLOAD_BYTES.to_be_bytes());
        packet.extend([0, 0, 0x80, 0, 0, 0]);
    }
    packet
}

/// An A query for `name`.
pub fn address_query(name: &str, edns: EdnsMode) -> Vec<u8> {
    query_packet(name, TYPE_A, edns)
}

/// Where the only question of `packet` ends; `None` if there is not exactly one.
pub fn question_end(packet: &[u8]) -> Option<usize> {
    if packet.len() < HEADER_BYTES || packet[4..6] != [0, 1] {
        return None;
    }
    let mut at = HEADER_BYTES;
    loop {
        match usize::from(*packet.get(at)?) {
            0 => break,
            len @ 1..=63 => at += 1 + len,
            _ => return None,
        }
    }
    let end = at + 5;
    (end <= packet.len()).then_some(end)
}

/// Compares `answer` with what was asked and expected. The id is the caller's affair.
pub fn check_answer(query: &[u8], answer: &[u8], expect: &Expect) -> Result<(), Wrong> {
    let end = question_end(query).expect("queries are built with one question");
    if answer.len() < HEADER_BYTES {
        return Err(Wrong::Short);
    }
    if answer[2] & 0x80 == 0 {
        return Err(Wrong::NotAnAnswer);
    }
    if answer[2] & 0x02 != 0 {
        return Err(Wrong::Truncated);
    }
    let rcode = answer[3] & 0x0f;
    if rcode != expect.rcode {
        return Err(Wrong::Rcode { got: rcode, expected: expect.rcode });
    }
    if answer.get(4..6) != Some(&[0, 1])
        || answer.get(HEADER_BYTES..end) != query.get(HEADER_BYTES..end)
    {
        return Err(Wrong::Question);
    }
    let authoritative = answer[2] & 0x04 != 0;
    if authoritative != expect.authoritative {
        return Err(Wrong::Authoritative(authoritative));
    }
    check_counts(answer, expect)?;
    match expect.address {
        Some(address) if !holds_address(answer, end, address) => Err(Wrong::Address(address)),
        _ => Ok(()),
    }
}

fn check_counts(answer: &[u8], expect: &Expect) -> Result<(), Wrong> {
    let count = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
    let (answers, authority, additional) = (count(6), count(8), count(10));
    let Expect { authority_min: min, authority_max: max, .. } = *expect;
    if answers != expect.answers {
        return Err(Wrong::Answers { got: answers, expected: expect.answers });
    }
    if !(min..=max).contains(&authority) {
        return Err(Wrong::Authority { got: authority, min, max });
    }
    if additional < expect.additional_min {
        return Err(Wrong::Additional { got: additional, min: expect.additional_min });
    }
    Ok(())
}

/// Whether an A record with `address` is in the answer section, which starts at `at`.
fn holds_address(answer: &[u8], at: usize, address: Ipv4Addr) -> bool {
    let count = u16::from_be_bytes([answer[6], answer[7]]);
    let mut at = at;
    for _ in 0..count {
        let Some(fixed) = name_end(answer, at) else { return false };
        let Some(&[t0, t1, _, _, _, _, _, _, l0, l1]) = answer.get(fixed..fixed + 10) else {
            return false;
        };
        let data = fixed + 10;
        let end = data + usize::from(u16::from_be_bytes([l0, l1]));
        if u16::from_be_bytes([t0, t1]) == TYPE_A
            && answer.get(data..end) == Some(&address.octets())
        {
            return true;
        }
        at = end;
    }
    false
}

/// Where the possibly compressed name at `at` ends.
fn name_end(packet: &[u8], at: usize) -> Option<usize> {
    let mut at = at;
    loop {
        match usize::from(*packet.get(at)?) {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + len,
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// Queries in one block of memory, each with its expectation.
#[derive(Debug, Default)]
pub struct QuerySet {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    start: u32,
    len: u16,
    expect: Expect,
}

impl QuerySet {
    pub fn push(&mut self, packet: &[u8], expect: Expect) {
        let start = u32::try_from(self.bytes.len()).expect("query sets stay below 4 GiB");
        self.bytes.extend(packet);
        self.entries.push(Entry { start, len: packet.len() as u16, expect });
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, index: usize) -> (&[u8], &Expect) {
        let entry = &self.entries[index];
        let start = entry.start as usize;
        (&self.bytes[start..start + usize::from(entry.len)], &entry.expect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

    fn answer_to(query: &[u8]) -> Vec<u8> {
        let mut answer = query[..question_end(query).unwrap()].to_vec();
        answer[2..12].copy_from_slice(&[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 7]);
        answer
    }

    #[test]
    fn query_bytes() {
        let query = address_query("a.bc", EdnsMode::None);
        let expected = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x01a\x02bc\0\0\x01\0\x01";
        assert_eq!(query, expected);
        assert_eq!(question_end(&query), Some(query.len()));

        let query = address_query("a.bc.", EdnsMode::Dnssec);
        assert_eq!(query[11], 1);
        assert_eq!(query[expected.len()..], *b"\0\0\x29\x04\xd0\0\0\x80\0\0\0");
        assert_eq!(question_end(&query), Some(expected.len()));
    }

    #[test]
    fn question_end_refuses_nonsense() {
        let query = address_query("a.bc", EdnsMode::None);
        for len in 0..query.len() {
            assert_eq!(question_end(&query[..len]), None);
        }
        let mut pointer = query.clone();
        pointer[12] = 0xc0;
        assert_eq!(question_end(&pointer), None);
    }

    #[test]
    fn right_answer_passes_and_each_fault_is_named() {
        let query = address_query("www.a.test", EdnsMode::None);
        let expect = Expect::address(ADDRESS);
        let check = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut answer = answer_to(&query);
            change(&mut answer);
            check_answer(&query, &answer, &expect)
        };
        assert_eq!(check(&|_| ()), Ok(()));
        assert_eq!(check(&|a| a.truncate(9)), Err(Wrong::Short));
        assert_eq!(check(&|a| a[2] = 0x04), Err(Wrong::NotAnAnswer));
        assert_eq!(check(&|a| a[2] |= 2), Err(Wrong::Truncated));
        assert_eq!(check(&|a| a[3] = 5), Err(Wrong::Rcode { got: 5, expected: 0 }));
        assert_eq!(check(&|a| a[13] = b'W'), Err(Wrong::Question));
        assert_eq!(check(&|a| a.truncate(20)), Err(Wrong::Question));
        assert_eq!(check(&|a| a[2] = 0x80), Err(Wrong::Authoritative(false)));
        assert_eq!(check(&|a| a[7] = 2), Err(Wrong::Answers { got: 2, expected: 1 }));
        assert_eq!(check(&|a| *a.last_mut().unwrap() = 8), Err(Wrong::Address(ADDRESS)));
        assert_eq!(check(&|a| a.truncate(a.len() - 1)), Err(Wrong::Address(ADDRESS)));
    }

    #[test]
    fn referral_counts() {
        let query = address_query("x.c.a.test", EdnsMode::None);
        let mut answer = query.clone();
        answer[2..12].copy_from_slice(&[0x80, 0, 0, 1, 0, 0, 0, 2, 0, 4]);
        assert_eq!(check_answer(&query, &answer, &Expect::referral(2, 4)), Ok(()));
        let missing = Wrong::Additional { got: 4, min: 5 };
        assert_eq!(check_answer(&query, &answer, &Expect::referral(2, 5)), Err(missing));
        let fewer = Wrong::Authority { got: 2, min: 1, max: 1 };
        assert_eq!(check_answer(&query, &answer, &Expect::referral(1, 4)), Err(fewer));
    }

    #[test]
    fn sets_give_back_what_was_pushed() {
        let mut set = QuerySet::default();
        let (one, two) =
            (address_query("a.b", EdnsMode::None), address_query("cc.d", EdnsMode::Dnssec));
        set.push(&one, Expect::nxdomain());
        set.push(&two, Expect::address(ADDRESS));
        assert_eq!(set.len(), 2);
        assert_eq!(set.get(0), (&one[..], &Expect::nxdomain()));
        assert_eq!(set.get(1), (&two[..], &Expect::address(ADDRESS)));
    }
}
