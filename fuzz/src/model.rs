//! What zones say, by the book: RFC 1034, 4.3.2 with RFC 4592 and RFC 6672,
//! walked label by label over sets of records. Slow and short.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use authority::RecordSet;
use wire::rtype;

use crate::packet::canonical_data;

/// Codes that an answer can have.
pub const NOERROR: u16 = 0;
pub const SERVFAIL: u16 = 2;
pub const NXDOMAIN: u16 = 3;
pub const REFUSED: u16 = 5;
pub const YXDOMAIN: u16 = 6;

/// Past this, servers may stop to follow a chain where they like.
pub const CHAIN_LEN_SURE: usize = 10;

/// Owner, type and data of a record.
pub type Key = (Vec<u8>, u16, Vec<u8>);

/// Zones of one server.
#[derive(Debug, Default)]
pub struct Model {
    zones: HashMap<Vec<u8>, Option<Zone>>,
    /// Type and data of every record.
    known: HashSet<(u16, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Zone {
    origin: Vec<u8>,
    sets: BTreeMap<(Vec<u8>, u16), BTreeSet<Vec<u8>>>,
    /// Every name with records, and the names between it and the origin.
    names: HashSet<Vec<u8>>,
}

/// What the answer has to be.
#[derive(Debug, Default)]
pub struct Expected {
    pub rcode: u16,
    /// The answer section, without signatures.
    pub answer: BTreeSet<Key>,
    /// Records that the authority section has to hold.
    pub authority: BTreeSet<Key>,
    /// The authority section has to hold a SOA record of this zone.
    pub absent_in: Option<Vec<u8>>,
    /// Aliases that were followed.
    pub links: usize,
}

enum Look {
    Found,
    Alias { owner: Vec<u8> },
    Redirect { owner: Vec<u8> },
    NoData,
    NoName,
    Referral { cut: Vec<u8> },
}

impl Model {
    /// Adds the zone that `records` describe.
    pub fn add_zone(&mut self, records: &RecordSet) {
        let mut zone = Zone::default();
        if let Some(soa) = records.iter().find(|record| record.rtype == rtype::SOA) {
            zone.origin = soa.owner.to_ascii_lowercase();
        }
        for record in records.iter() {
            let owner = record.owner.to_ascii_lowercase();
            let data = canonical_data(record.rtype, record.rdata).expect("good data");
            self.known.insert((record.rtype, data.clone()));
            let is_inside = suffixes(&owner).any(|suffix| suffix == zone.origin);
            if is_inside && !matches!(record.rtype, rtype::NSEC3 | rtype::RRSIG) {
                zone.names.extend(
                    suffixes(&owner)
                        .take_while(|suffix| suffix.len() >= zone.origin.len())
                        .map(<[u8]>::to_vec),
                );
                zone.sets.entry((owner, record.rtype)).or_default().insert(data);
            }
        }
        self.zones.insert(zone.origin.clone(), Some(zone));
    }

    /// Adds a zone that could not be loaded.
    pub fn add_broken(&mut self, origin: &[u8]) {
        self.zones.insert(origin.to_vec(), None);
    }

    /// Owner and type of all sets that questions find.
    pub fn sets(&self) -> Vec<(Vec<u8>, u16)> {
        self.zones.values().flatten().flat_map(|zone| zone.sets.keys().cloned()).collect()
    }

    /// True if some zone has a record of this type with this data.
    pub fn knows(&self, rtype: u16, data: &[u8]) -> bool {
        self.known.contains(&(rtype, data.to_vec()))
    }

    /// The right answer to a question for one type.
    pub fn resolve(&self, name: &[u8], qtype: u16) -> Expected {
        let mut expected = Expected::default();
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut name = name.to_vec();
        while !seen.contains(&name) {
            expected.links = seen.len();
            let Some(zone) = self.zone_of(&name, qtype) else {
                expected.rcode = if seen.is_empty() { REFUSED } else { NOERROR };
                break;
            };
            let Some(zone) = zone else {
                // An alias stands in a zone that answers.
                expected.rcode = if seen.is_empty() { SERVFAIL } else { NOERROR };
                break;
            };
            seen.push(name.clone());
            match zone.step(&name, qtype, &mut expected) {
                Some(next) => name = next,
                None => break,
            }
        }
        expected
    }

    /// The deepest zone; for DS the one above, if this is where a zone starts,
    /// unless that zone says that somebody else is the parent (RFC 4035, 3.1.4.1).
    fn zone_of(&self, name: &[u8], qtype: u16) -> Option<Option<&Zone>> {
        let above = suffixes(name).skip(1).find_map(|suffix| self.zones.get(suffix));
        let is_parent = |zone: &&Option<Zone>| match zone {
            Some(zone) => match zone.look(name, qtype).0 {
                Look::Referral { cut } => cut == name,
                _ => true,
            },
            None => true,
        };
        let found = match self.zones.get(name) {
            Some(own) if qtype == rtype::DS => above.filter(is_parent).or(Some(own)),
            Some(own) => Some(own),
            None => above,
        };
        found.map(Option::as_ref)
    }
}

impl Zone {
    fn set(&self, owner: &[u8], rtype: u16) -> Option<&BTreeSet<Vec<u8>>> {
        self.sets.get(&(owner.to_vec(), rtype))
    }

    /// One link: adds to `expected`; returns the name to go on with.
    fn step(&self, name: &[u8], qtype: u16, expected: &mut Expected) -> Option<Vec<u8>> {
        let (look, from) = self.look(name, qtype);
        let keys = |shown: &[u8], owner: &[u8], rtype: u16| {
            let set = self.set(owner, rtype).cloned().unwrap_or_default();
            let shown = shown.to_vec();
            set.into_iter().map(move |data| (shown.clone(), rtype, data))
        };
        match look {
            Look::Found => expected.answer.extend(keys(name, &from, qtype)),
            Look::Alias { owner } => {
                expected.answer.extend(keys(name, &owner, rtype::CNAME));
                return self.set(&owner, rtype::CNAME)?.first().cloned();
            }
            Look::Redirect { owner } => {
                expected.answer.extend(keys(&owner, &owner, rtype::DNAME));
                let target = self.set(&owner, rtype::DNAME)?.first()?;
                let mut made = name[..name.len() - owner.len()].to_vec();
                made.extend(target.to_ascii_lowercase());
                if made.len() > 255 {
                    expected.rcode = YXDOMAIN;
                    return None;
                }
                expected.answer.insert((name.to_vec(), rtype::CNAME, made.clone()));
                return Some(made);
            }
            Look::NoData => expected.absent_in = Some(self.origin.clone()),
            Look::NoName => {
                expected.rcode = NXDOMAIN;
                expected.absent_in = Some(self.origin.clone());
            }
            Look::Referral { cut } => expected.authority.extend(keys(&cut, &cut, rtype::NS)),
        }
        None
    }

    /// What the zone has at `name`, and at which of its own names.
    fn look(&self, name: &[u8], qtype: u16) -> (Look, Vec<u8>) {
        let mut path: Vec<&[u8]> = suffixes(name).collect();
        path.retain(|suffix| suffix.len() >= self.origin.len());
        let mut closest = &self.origin[..];
        for &at in path.iter().rev() {
            if !self.names.contains(at) {
                let wildcard = [b"\x01*", closest].concat();
                return match self.names.contains(&wildcard) {
                    true => (self.at(&wildcard, qtype), wildcard),
                    false => (Look::NoName, at.to_vec()),
                };
            }
            let delegates = at != self.origin && !at.starts_with(b"\x01*");
            let is_parents = at == name && qtype == rtype::DS;
            if delegates && !is_parents && self.set(at, rtype::NS).is_some() {
                return (Look::Referral { cut: at.to_vec() }, at.to_vec());
            }
            if at != name && self.set(at, rtype::DNAME).is_some() {
                return (Look::Redirect { owner: at.to_vec() }, at.to_vec());
            }
            closest = at;
        }
        (self.at(name, qtype), name.to_vec())
    }

    fn at(&self, owner: &[u8], qtype: u16) -> Look {
        if self.set(owner, qtype).is_some() {
            Look::Found
        } else if self.set(owner, rtype::CNAME).is_some() {
            Look::Alias { owner: owner.to_vec() }
        } else {
            Look::NoData
        }
    }
}

/// A name, the name above it, and so on to the root.
fn suffixes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| match name[0] as usize {
        0 => None,
        len => Some(&name[1 + len..]),
    })
}
