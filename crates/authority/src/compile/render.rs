//! Record sets as answers carry them.
//!
//! A set is rendered once: owner as a pointer to the question, names in the
//! data compressed against the zone's own name and against names earlier in
//! the same set. Which places hold pointers is noted, because their targets
//! are only known when an answer is written (see `wire::reply`).

use wire::reply::{BLOCK_POINTER_MAX, LOCAL, QUESTION_POINTER};
use wire::{Name, class, rtype};

use super::tree::{Tree, TreeSet};
use crate::image::{NODE_BELOW_CUT, NODE_CUT};
use crate::records::RecordSet;

/// Octets of records and signatures of one set at the most: with a header, a
/// question and an OPT record they must fit into a message of 65,535.
pub(super) const SET_LEN_MAX: usize = 65_000;

/// Scratch for one set.
#[derive(Debug, Default)]
pub(super) struct Rendering {
    pub octets: Vec<u8>,
    pub signatures: Vec<u8>,
    pub fixups: Vec<u16>,
    /// Lowered targets and where they stand in `octets`, for addresses.
    pub targets: Vec<(u16, Vec<u8>)>,
    /// Names written: place, octets of labels that stand there, lowered name.
    written: Vec<(u16, usize, Vec<u8>)>,
}

/// Names in the data of these types may be compressed (RFC 3597, 4) and
/// compare without case: where the first one starts. SOA and MINFO have two.
pub(super) fn names_at(rtype: u16) -> Option<usize> {
    match rtype {
        rtype::NS | rtype::CNAME | rtype::SOA | rtype::PTR => Some(0),
        // MD, MF, MB, MG, MR, MINFO.
        3 | 4 | 7 | 8 | 9 | 14 => Some(0),
        rtype::MX => Some(2),
        _ => None,
    }
}

fn name_count(rtype: u16) -> usize {
    match rtype {
        rtype::SOA | 14 => 2,
        _ => 1,
    }
}

/// The name in the data of these types whose addresses help the asker.
fn target_at(rtype: u16) -> Option<usize> {
    match rtype {
        rtype::NS => Some(0),
        rtype::MX | rtype::SVCB | rtype::HTTPS => Some(2),
        rtype::SRV => Some(6),
        _ => None,
    }
}

/// True for a record that says there is no such service: an alias to nowhere
/// (RFC 9460, 2.5.1).
fn is_unavailable(rtype: u16, rdata: &[u8]) -> bool {
    matches!(rtype, rtype::SVCB | rtype::HTTPS) && rdata.starts_with(&[0, 0, 0])
}

impl Rendering {
    /// Renders `set`. False if it is too large for any message.
    pub fn render(&mut self, tree: &Tree, set: &TreeSet, records: &RecordSet) -> bool {
        self.octets.clear();
        self.signatures.clear();
        self.fixups.clear();
        self.targets.clear();
        self.written.clear();
        for &index in tree.records_of(set) {
            let rdata = records.get(index as usize).rdata;
            self.push_record(&tree.origin, set.rtype, set.ttl_secs, rdata);
            if self.octets.len() > SET_LEN_MAX {
                return false;
            }
        }
        for &index in tree.signatures_of(set) {
            let record = records.get(index as usize);
            push_head(&mut self.signatures, rtype::RRSIG, record.ttl_secs);
            self.signatures.extend((record.rdata.len() as u16).to_be_bytes());
            self.signatures.extend_from_slice(record.rdata);
        }
        self.octets.len() + self.signatures.len() <= SET_LEN_MAX
    }

    fn push_record(&mut self, origin: &[u8], rtype: u16, ttl_secs: u32, rdata: &[u8]) {
        push_head(&mut self.octets, rtype, ttl_secs);
        let len_at = self.octets.len();
        self.octets.extend([0, 0]);
        let data_at = self.octets.len();
        if let Some(at) = target_at(rtype)
            && !is_unavailable(rtype, rdata)
        {
            self.note_target(data_at + at, &rdata[at..]);
        }
        match names_at(rtype) {
            Some(start) => {
                self.octets.extend_from_slice(&rdata[..start]);
                let mut rest = &rdata[start..];
                for _ in 0..name_count(rtype) {
                    let Ok(name) = Name::parse(rest) else { break };
                    self.push_name(origin, name);
                    rest = &rest[name.as_bytes().len()..];
                }
                self.octets.extend_from_slice(rest);
            }
            None => self.octets.extend_from_slice(rdata),
        }
        let len = (self.octets.len() - data_at) as u16;
        self.octets[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
    }

    fn note_target(&mut self, place: usize, data: &[u8]) {
        let (Ok(place), Ok(name)) = (u16::try_from(place), Name::parse(data)) else { return };
        let lowered = name.as_bytes().to_ascii_lowercase();
        if self.targets.iter().all(|(_, known)| *known != lowered) {
            self.targets.push((place, lowered));
        }
    }

    /// Writes a name, its tail as a pointer where one is known: to a name
    /// earlier in this set, or to the zone's own name. Never into the middle
    /// of that: in a chain of aliases it may not stand in one piece.
    fn push_name(&mut self, origin: &[u8], name: Name<'_>) {
        let start = self.octets.len();
        let lowered = name.as_bytes().to_ascii_lowercase();
        let mut at = 0;
        loop {
            let suffix = &lowered[at..];
            if suffix.len() == 1 {
                self.octets.push(0);
                break;
            }
            if let Some(pointer) = self.pointer_to(origin, suffix) {
                self.fixups.push(self.octets.len() as u16);
                self.octets.extend(pointer.to_be_bytes());
                break;
            }
            let end = at + 1 + lowered[at] as usize;
            self.octets.extend_from_slice(&name.as_bytes()[at..end]);
            at = end;
        }
        if at > 0 && start <= BLOCK_POINTER_MAX {
            self.written.push((start as u16, at, lowered));
        }
    }

    fn pointer_to(&self, origin: &[u8], suffix: &[u8]) -> Option<u16> {
        if suffix == origin {
            return Some(0);
        }
        // Bounded: a set of thousands of names must not take quadratic time.
        self.written.iter().rev().take(16).find_map(|(place, inline, name)| {
            // The part of `name` that was itself written as a pointer does
            // not stand there; only labels written out can be pointed at.
            let skip = suffix_start(name, suffix).filter(|skip| skip < inline)?;
            let local = *place as usize + skip;
            (local <= BLOCK_POINTER_MAX).then_some(LOCAL | local as u16)
        })
    }
}

/// Owner, type, class and time to live of a record.
fn push_head(octets: &mut Vec<u8>, rtype: u16, ttl_secs: u32) {
    octets.extend(QUESTION_POINTER.to_be_bytes());
    octets.extend(rtype.to_be_bytes());
    octets.extend(class::IN.to_be_bytes());
    octets.extend(ttl_secs.to_be_bytes());
}

/// Where `suffix`, a name of at least one label, starts in `name`.
fn suffix_start(name: &[u8], suffix: &[u8]) -> Option<usize> {
    let start = name.len().checked_sub(suffix.len())?;
    (name[start..] == *suffix
        && Name::from_trusted(name).strip_suffix(Name::from_trusted(suffix)).is_some())
    .then_some(start)
}

/// The node whose addresses `relative` has.
pub(super) fn find_addresses(tree: &Tree, relative: &[u8]) -> Option<usize> {
    find_any(tree, relative, &[rtype::A, rtype::AAAA])
}

/// The node whose records help who got records of `rtype` with the target
/// `relative`: addresses, and for a service what it leads to (RFC 9460, 4.1).
pub(super) fn find_help(tree: &Tree, relative: &[u8], rtype: u16) -> Option<usize> {
    match rtype {
        rtype::SVCB | rtype::HTTPS => find_any(tree, relative, &[rtype::A, rtype::AAAA, rtype]),
        _ => find_addresses(tree, relative),
    }
}

/// The node that gives `relative` records of any of `types`: its own or that of
/// a wildcard. None is made at or below a cut, where the zone is no authority.
fn find_any(tree: &Tree, relative: &[u8], types: &[u16]) -> Option<usize> {
    let index = match tree.find(relative) {
        Ok(index) => index,
        Err(closest) => {
            let closest = &tree.nodes[closest];
            if closest.flags & (NODE_CUT | NODE_BELOW_CUT) != 0 {
                return None;
            }
            tree.find(&[b"\x01*", tree.relative(closest)].concat()).ok()?
        }
    };
    let sets = tree.sets_of(&tree.nodes[index]);
    sets.iter().any(|set| types.contains(&set.rtype)).then_some(index)
}
