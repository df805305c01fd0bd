//! What the stub says to a name: the addresses that follow from it, and how its first label
//! makes the stub behave.
//!
//! | first label | what happens |
//! |---|---|
//! | `nx-…` | NXDOMAIN with the SOA of the name above |
//! | `nodata-…` | no record, with that SOA |
//! | `servfail-…`, `refused-…` | that code |
//! | `timeout-…` | no answer at all |
//! | `tc-…` | truncated over UDP, whole over TCP |
//! | `chain-…` | two aliases, then the record; the second alias lives at most [`CHAIN_TTL_SECS`] |
//! | `large-…` | 3 KB of TXT, so truncated over UDP |
//! | `oversized-…` | 1,400 octets over UDP whatever the asker takes |
//! | `wrongid-…`, `wrongname-…`, `wrongport-…` | an answer that is to nobody's question |
//! | `cut-…` | an answer whose last octets are missing |
//! | `ttl<N>-…` | TTLs of N seconds |
//! | `delay<N>-…` | the answer waits N milliseconds, whatever the usual latency |
//!
//! The last two stand before any other: `ttl5-nx-a.example`. All other names have one A, one
//! AAAA and one TXT record and nothing else.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::delay::DELAY_MAX;

/// The second alias of a chain ends before the rest of it.
pub const CHAIN_TTL_SECS: u32 = 2;

/// How the stub behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Ordinary,
    NxDomain,
    NoData,
    ServFail,
    Refused,
    Silent,
    Truncated,
    Chain,
    Large,
    Oversized,
    WrongId,
    WrongName,
    WrongPort,
    Cut,
}

const MANNERS: [(&[u8], Manner); 13] = [
    (b"nx-", Manner::NxDomain),
    (b"nodata-", Manner::NoData),
    (b"servfail-", Manner::ServFail),
    (b"refused-", Manner::Refused),
    (b"timeout-", Manner::Silent),
    (b"tc-", Manner::Truncated),
    (b"chain-", Manner::Chain),
    (b"large-", Manner::Large),
    (b"oversized-", Manner::Oversized),
    (b"wrongid-", Manner::WrongId),
    (b"wrongname-", Manner::WrongName),
    (b"wrongport-", Manner::WrongPort),
    (b"cut-", Manner::Cut),
];

/// What a name asks for besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub manner: Manner,
    pub ttl_secs: Option<u32>,
    pub delay: Option<Duration>,
}

impl Rule {
    /// `name` in wire form, lowered.
    pub fn of(name: &[u8]) -> Rule {
        let mut label = first_label(name);
        let mut rule = Rule { manner: Manner::Ordinary, ttl_secs: None, delay: None };
        loop {
            if let Some((secs, rest)) = numbered(label, b"ttl") {
                (rule.ttl_secs, label) = (Some(secs), rest);
            } else if let Some((millis, rest)) = numbered(label, b"delay") {
                let delay = Duration::from_millis(millis.into());
                (rule.delay, label) = (Some(delay.min(DELAY_MAX)), rest);
            } else {
                break;
            }
        }
        if let Some((_, manner)) = MANNERS.iter().find(|(prefix, _)| label.starts_with(prefix)) {
            rule.manner = *manner;
        }
        rule
    }
}

fn first_label(name: &[u8]) -> &[u8] {
    match name.split_first() {
        Some((&len, rest)) => rest.get(..usize::from(len)).unwrap_or_default(),
        None => &[],
    }
}

/// The number in `<word><number>-` and what comes after it.
fn numbered<'l>(label: &'l [u8], word: &[u8]) -> Option<(u32, &'l [u8])> {
    let rest = label.strip_prefix(word)?;
    let end = rest.iter().position(|octet| *octet == b'-')?;
    let number = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((number, &rest[end + 1..]))
}

/// The names between a `chain-…` name and its record.
pub const LINKS: [&[u8]; 2] = [b"\x05link1", b"\x05link2"];

/// [`fnv`] of the name. The links of a chain have the hash of the name that leads to them, so
/// that whoever checks an answer need not know the chain.
pub fn hash(name: &[u8]) -> u64 {
    fnv(LINKS.iter().find_map(|link| name.strip_prefix(*link)).unwrap_or(name))
}

/// FNV-1a with 64 bits over the lowered wire form.
pub fn fnv(name: &[u8]) -> u64 {
    let step = |hash: u64, octet: &u8| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// 10.0.0.0/8 with the low 24 bits of the hash.
pub fn address(hash: u64) -> Ipv4Addr {
    Ipv4Addr::from(10 << 24 | (hash as u32 & 0x00ff_ffff))
}

/// 2001:db8::/64 with the hash.
pub fn address6(hash: u64) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_labels_decide() {
        let check = |name: &[u8], manner, ttl_secs, millis: Option<u64>| {
            let delay = millis.map(Duration::from_millis);
            assert_eq!(Rule::of(name), Rule { manner, ttl_secs, delay }, "{name:?}");
        };
        check(b"\x03www\x07example\0", Manner::Ordinary, None, None);
        check(b"\x04nx-a\x07example\0", Manner::NxDomain, None, None);
        check(b"\x03www\x04nx-a\0", Manner::Ordinary, None, None);
        check(b"\x09ttl5-nx-a\0", Manner::NxDomain, Some(5), None);
        check(b"\x12ttl5-delay20-tc-ab\0", Manner::Truncated, Some(5), Some(20));
        check(b"\x0edelay9999999-a\0", Manner::Ordinary, None, Some(3000));
        check(b"\x06ttlx-a\0", Manner::Ordinary, None, None);
        check(b"\x0fttl99999999999-\0", Manner::Ordinary, None, None);
        check(b"\0", Manner::Ordinary, None, None);
        check(b"", Manner::Ordinary, None, None);
    }

    #[test]
    fn addresses_follow_from_names() {
        // FNV-1a of a single octet "a" is known.
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(address(hash(b"a")), Ipv4Addr::new(10, 0x01, 0xec, 0x8c));
        assert_eq!(address6(hash(b"a")).segments()[4..], [0xaf63, 0xdc4c, 0x8601, 0xec8c]);
        assert_eq!(hash(b"\x05link1\x01a\0"), hash(b"\x01a\0"));
        assert_ne!(hash(b"\x01b\0"), hash(b"\x01a\0"));
    }
}
