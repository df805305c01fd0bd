//! What reached the stub.
//!
//! A cache that asks the same thing twice is what tests look for, so only what came more than
//! once keeps its name; all else is a hash and a number.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use serde::Serialize;
use wire::{Query, rtype};

use super::answer::Transport;
use super::rule;

/// Questions told apart; later ones only count in all.
const UNIQUE_MAX: usize = 16 << 20;
/// Duplicates kept with their names.
const DUPLICATES_MAX: usize = 10_000;
const OPTION_CLIENT_SUBNET: u16 = 8;

/// Counts since the start or the last reset.
#[derive(Debug, Default)]
pub struct Counts {
    /// Well-formed questions.
    total: u64,
    over_tcp: u64,
    with_edns: u64,
    with_dnssec_ok: u64,
    with_client_subnet: u64,
    /// Names with an upper-case letter.
    mixed_case: u64,
    source_ports: HashSet<u16>,
    /// Answers that the socket did not take.
    pub unsent: u64,
    seen: HashMap<u64, u32>,
    duplicates: HashMap<u64, (String, u16)>,
}

/// The counts as they are told.
#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    pub total: u64,
    pub unique: usize,
    pub over_tcp: u64,
    pub with_edns: u64,
    pub with_dnssec_ok: u64,
    pub with_client_subnet: u64,
    pub mixed_case: u64,
    pub source_ports: usize,
    pub unsent: u64,
    /// Questions that came more than once, most often first.
    pub duplicates: Vec<Repeated>,
    /// Questions that came more than once and are not in the list.
    pub duplicates_left_off: usize,
}

/// One question and how often it came.
#[derive(Debug, PartialEq, Serialize)]
pub struct Repeated {
    pub name: String,
    #[serde(rename = "type")]
    pub rtype: u16,
    pub count: u32,
}

impl Counts {
    pub fn add(&mut self, query: &Query, message: &[u8], port: u16, transport: Transport) {
        self.total += 1;
        self.over_tcp += u64::from(transport == Transport::Tcp);
        self.source_ports.insert(port);
        let name = &message[12..query.question_end() - 4];
        self.mixed_case += u64::from(name.iter().any(u8::is_ascii_uppercase));
        if let Some(edns) = &query.edns {
            self.with_edns += 1;
            self.with_dnssec_ok += u64::from(edns.dnssec_ok);
            let rest = &message[query.question_end()..];
            self.with_client_subnet += u64::from(has_client_subnet(rest));
        }
        let (name, qtype) = (query.name().as_bytes(), query.qtype);
        let key = key(name, qtype);
        let full = self.seen.len() >= UNIQUE_MAX;
        let count = match self.seen.entry(key) {
            Entry::Vacant(_) if full => return,
            entry => entry.and_modify(|count| *count += 1).or_insert(1),
        };
        if *count == 2 && self.duplicates.len() < DUPLICATES_MAX {
            self.duplicates.insert(key, (presentation(name), qtype));
        }
    }

    pub fn summary(&self) -> Summary {
        let mut duplicates: Vec<Repeated> = self
            .duplicates
            .iter()
            .map(|(key, (name, rtype))| Repeated {
                name: name.clone(),
                rtype: *rtype,
                count: self.seen.get(key).copied().unwrap_or(0),
            })
            .collect();
        duplicates.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        let repeated = self.seen.values().filter(|count| **count > 1).count();
        Summary {
            total: self.total,
            unique: self.seen.len(),
            over_tcp: self.over_tcp,
            with_edns: self.with_edns,
            with_dnssec_ok: self.with_dnssec_ok,
            with_client_subnet: self.with_client_subnet,
            mixed_case: self.mixed_case,
            source_ports: self.source_ports.len(),
            unsent: self.unsent,
            duplicates_left_off: repeated - duplicates.len(),
            duplicates,
        }
    }

    /// How often this was asked; `name` in presentation form without escapes.
    pub fn of(&self, name: &str, rtype: u16) -> u32 {
        let Ok(name) = wire::name::from_text(&name.to_ascii_lowercase()) else { return 0 };
        self.seen.get(&key(&name, rtype)).copied().unwrap_or(0)
    }
}

/// `A`, `aaaa`, `TXT` or a number.
pub fn parse_type(text: &str) -> Option<u16> {
    match text.to_ascii_uppercase().as_str() {
        "A" => Some(rtype::A),
        "AAAA" => Some(rtype::AAAA),
        "TXT" => Some(rtype::TXT),
        "CNAME" => Some(rtype::CNAME),
        "MX" => Some(rtype::MX),
        other => other.parse().ok(),
    }
}

fn key(name: &[u8], qtype: u16) -> u64 {
    // The links of a chain share the hash of their name, not its count.
    let hash = rule::fnv(name);
    (hash ^ u64::from(qtype)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The name in wire form as text; what is no letter, digit, hyphen or underline is escaped.
fn presentation(name: &[u8]) -> String {
    let mut text = String::new();
    for label in wire::Name::from_trusted(name).labels() {
        for octet in label {
            match octet {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(*octet)),
                _ => text += &format!("\\{octet:03}"),
            }
        }
        text.push('.');
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// Whether the first record of `records`, if it is OPT at the root, has the option (RFC 7871).
fn has_client_subnet(records: &[u8]) -> bool {
    const OPT_BYTES: usize = 11;
    let Some((head, mut options)) = records.split_at_checked(OPT_BYTES) else { return false };
    if head[..3] != [0, 0, rtype::OPT as u8] {
        return false;
    }
    while let Some((&[c0, c1, l0, l1], rest)) = options.split_first_chunk::<4>() {
        if u16::from_be_bytes([c0, c1]) == OPTION_CLIENT_SUBNET {
            return true;
        }
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        options = rest.get(len..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::{EdnsMode, query_packet};

    fn add(counts: &mut Counts, message: &[u8]) {
        let mut query = Query::default();
        assert_eq!(query.read(message), wire::Verdict::Answer);
        counts.add(&query, message, 4000, Transport::Udp);
    }

    #[test]
    fn repeated_questions_keep_their_names_in_any_case() {
        let mut counts = Counts::default();
        for name in ["a.example", "A.Example", "b.example", "link1.b.example"] {
            add(&mut counts, &query_packet(name, rtype::A, EdnsMode::None));
        }
        add(&mut counts, &query_packet("a.example", rtype::AAAA, EdnsMode::Dnssec));
        let summary = counts.summary();
        let repeated = Repeated { name: "a.example.".into(), rtype: 1, count: 2 };
        assert_eq!(summary.duplicates, [repeated]);
        assert_eq!((summary.total, summary.unique, summary.mixed_case), (5, 4, 1));
        assert_eq!((summary.with_edns, summary.with_dnssec_ok), (1, 1));
        assert_eq!((summary.source_ports, summary.duplicates_left_off), (1, 0));
        assert_eq!(counts.of("a.EXAMPLE.", rtype::A), 2);
        assert_eq!(counts.of("c.example", rtype::A), 0);
    }

    #[test]
    fn client_subnets_are_noticed() {
        let mut message = query_packet("a.example", rtype::A, EdnsMode::Dnssec);
        let end = message.len();
        message.extend(b"\0\x03\0\0\0\x08\0\x07\0\x01\x18\0\xc0\0\x02");
        message[end - 1] = 15;
        let mut counts = Counts::default();
        add(&mut counts, &message);
        assert_eq!(counts.summary().with_client_subnet, 1);
    }

    #[test]
    fn types_by_name_or_number() {
        assert_eq!(["a", "AAAA", "65", "?"].map(parse_type), [Some(1), Some(28), Some(65), None]);
    }

    #[test]
    fn names_are_printed_plainly() {
        assert_eq!(presentation(b"\x03a.b\0"), "a\\046b.");
        assert_eq!(presentation(b"\0"), ".");
    }
}
