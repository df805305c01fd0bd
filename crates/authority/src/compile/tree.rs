//! The names of a zone in canonical order, with their record sets.
//!
//! Sorting records by a key that compares as octets like names compare
//! canonically (RFC 4034, 6.1) puts every name behind its ancestors, so one
//! walk finds sets, parents, empty non-terminals and delegations.

use wire::{Name, rtype};

use crate::image::{NODE_ALIAS, NODE_BELOW_CUT, NODE_CUT, NODE_REDIRECT, NODE_WILDCARD_BELOW};
use crate::problem::{Position, Problems};
use crate::records::RecordSet;

/// No node: the parent of the zone's own name.
pub(super) const NO_NODE: u32 = u32::MAX;

/// Names and sets of one zone. Kept from zone to zone for its buffers.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The zone's name, lowered.
    pub origin: Vec<u8>,
    /// Names, each behind its ancestors; the first is the zone's own.
    pub nodes: Vec<TreeNode>,
    /// Owners of NSEC3 records, which no question finds (RFC 5155, 7.2.8).
    pub nsec3_nodes: Vec<TreeNode>,
    /// Record sets of all nodes, those of a node side by side.
    pub sets: Vec<TreeSet>,
    /// Indices of records, those of a set side by side, signatures behind.
    pub members: Vec<u32>,
    /// Index of the SOA record.
    pub soa: usize,
    names: Vec<u8>,
    keys: Vec<u8>,
    order: Vec<Sorted>,
    path: Vec<u32>,
}

/// A name.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeNode {
    name: (u32, u8),
    key: (u32, u16),
    /// Index of the name one label shorter.
    pub parent: u32,
    /// `NODE_` bits of the image.
    pub flags: u8,
    /// Labels below the zone's own name.
    pub depth: u8,
    /// The node's sets.
    pub sets: (u32, u32),
}

/// A record set.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeSet {
    pub rtype: u16,
    pub ttl_secs: u32,
    /// The records, in [`Tree::members`].
    pub records: (u32, u32),
    /// Their signatures, in [`Tree::members`].
    pub signatures: (u32, u32),
}

/// One record on its way into order.
#[derive(Clone, Copy, Debug)]
struct Sorted {
    key: (u32, u16),
    name: (u32, u8),
    /// NSEC3 records stand apart from the names.
    apart: bool,
    /// A signature sorts behind the type it covers.
    rtype: u16,
    is_signature: bool,
    index: u32,
}

fn cut(arena: &[u8], start: u32, len: usize) -> &[u8] {
    &arena[start as usize..start as usize + len]
}

impl Tree {
    /// Labels of a node before the zone's own name.
    pub fn relative(&self, node: &TreeNode) -> &[u8] {
        cut(&self.names, node.name.0, node.name.1 as usize)
    }

    /// Name of a node in full, for messages.
    pub fn display(&self, node: &TreeNode) -> String {
        let wire = [self.relative(node), &self.origin].concat();
        Name::from_trusted(&wire).to_string()
    }

    /// The sets of a node.
    pub fn sets_of(&self, node: &TreeNode) -> &[TreeSet] {
        &self.sets[node.sets.0 as usize..node.sets.1 as usize]
    }

    /// The set of a type at a node.
    pub fn set(&self, node: &TreeNode, rtype: u16) -> Option<&TreeSet> {
        self.sets_of(node).iter().find(|set| set.rtype == rtype)
    }

    /// Indices of the records of a set.
    pub fn records_of(&self, set: &TreeSet) -> &[u32] {
        &self.members[set.records.0 as usize..set.records.1 as usize]
    }

    /// Indices of the signatures of a set.
    pub fn signatures_of(&self, set: &TreeSet) -> &[u32] {
        &self.members[set.signatures.0 as usize..set.signatures.1 as usize]
    }

    /// Where a set was first seen.
    pub fn place(&self, set: &TreeSet, records: &RecordSet) -> Position {
        records.get(self.records_of(set)[0] as usize).at
    }

    /// Sorts `records` into names and sets. `None`: there is no zone to speak
    /// of, because no SOA record says which.
    pub fn build(&mut self, records: &RecordSet, problems: &mut Problems) -> Option<()> {
        self.nodes.clear();
        self.nsec3_nodes.clear();
        self.sets.clear();
        self.members.clear();
        self.names.clear();
        self.keys.clear();
        self.order.clear();
        self.find_origin(records, problems)?;
        self.sort(records, problems);
        self.group(records, problems);
        Some(())
    }

    fn find_origin(&mut self, records: &RecordSet, problems: &mut Problems) -> Option<()> {
        let mut found = None;
        for (index, record) in records.iter().enumerate() {
            if record.rtype != rtype::SOA {
                continue;
            }
            let Some(first) = found else {
                found = Some(index);
                continue;
            };
            let first = records.get(first);
            if !first.owner.eq_ignore_ascii_case(record.owner) || first.rdata != record.rdata {
                problems.error(
                    record.at,
                    format!("a second SOA record; the first is at {}", problems.place(first.at)),
                    "exactly one SOA record in a zone",
                );
            }
        }
        let Some(index) = found else {
            problems.error(
                Position::default(),
                "no SOA record",
                "exactly one SOA record, at the name of the zone",
            );
            return None;
        };
        self.soa = index;
        self.origin.clear();
        self.origin.extend(records.get(index).owner.iter().map(u8::to_ascii_lowercase));
        Some(())
    }

    fn sort(&mut self, records: &RecordSet, problems: &mut Problems) {
        let mut lowered = [0; 255];
        for (index, record) in records.iter().enumerate() {
            let owner = &mut lowered[..record.owner.len()];
            owner.copy_from_slice(record.owner);
            owner.make_ascii_lowercase();
            let Some(relative) =
                Name::from_trusted(owner).strip_suffix(Name::from_trusted(&self.origin))
            else {
                problems.warning(
                    record.at,
                    format!(
                        "{} is outside the zone {}; the record is left out",
                        Name::from_trusted(record.owner),
                        Name::from_trusted(&self.origin)
                    ),
                    "names at or below the name of the SOA record",
                );
                continue;
            };
            let (rtype, is_signature) = match record.rtype {
                rtype::RRSIG if record.rdata.len() >= 2 => {
                    (u16::from_be_bytes([record.rdata[0], record.rdata[1]]), true)
                }
                other => (other, false),
            };
            // Records of one name often stand together: use the key again.
            let (key, name) = match self.order.last() {
                Some(last) if cut(&self.names, last.name.0, last.name.1 as usize) == relative => {
                    (last.key, last.name)
                }
                _ => {
                    let name = (self.names.len() as u32, relative.len() as u8);
                    self.names.extend_from_slice(relative);
                    let start = self.keys.len();
                    push_key(&mut self.keys, relative);
                    ((start as u32, (self.keys.len() - start) as u16), name)
                }
            };
            let apart = rtype == rtype::NSEC3;
            self.order.push(Sorted { key, name, apart, rtype, is_signature, index: index as u32 });
        }
        let keys = &self.keys;
        self.order.sort_unstable_by(|a, b| {
            let key = |sorted: &Sorted| cut(keys, sorted.key.0, sorted.key.1 as usize);
            let data = |sorted: &Sorted| records.get(sorted.index as usize).rdata;
            a.apart
                .cmp(&b.apart)
                .then_with(|| if a.key == b.key { 0.cmp(&0) } else { key(a).cmp(key(b)) })
                .then_with(|| (a.rtype, a.is_signature).cmp(&(b.rtype, b.is_signature)))
                .then_with(|| match a.is_signature {
                    true => data(a).cmp(data(b)),
                    false => cmp_data(a.rtype, data(a), data(b)),
                })
                .then_with(|| a.index.cmp(&b.index))
        });
    }

    /// Walks the sorted records: nodes, their ancestors, their sets.
    fn group(&mut self, records: &RecordSet, problems: &mut Problems) {
        self.path.clear();
        let mut at = 0;
        // The zone's own name sorts first; it has at least the SOA record.
        while at < self.order.len() {
            let first = self.order[at];
            let same_name = |other: &Sorted| {
                other.apart == first.apart
                    && cut(&self.names, other.name.0, other.name.1 as usize)
                        == cut(&self.names, first.name.0, first.name.1 as usize)
            };
            let end = at + self.order[at..].iter().take_while(|other| same_name(other)).count();
            let sets_start = self.sets.len() as u32;
            self.group_sets(at, end, records, problems);
            let sets = (sets_start, self.sets.len() as u32);
            if first.apart {
                self.nsec3_nodes.push(TreeNode {
                    name: first.name,
                    key: first.key,
                    parent: 0,
                    flags: 0,
                    depth: 1,
                    sets,
                });
            } else if sets.0 < sets.1 {
                self.open_path(first.name, first.key);
                let node = *self.path.last().expect("just opened") as usize;
                self.nodes[node].sets = sets;
                self.nodes[node].flags |= self.flags_of(node);
            }
            at = end;
        }
    }

    /// Makes the records `order[at..end]` of one name into sets.
    fn group_sets(
        &mut self,
        mut at: usize,
        end: usize,
        records: &RecordSet,
        problems: &mut Problems,
    ) {
        while at < end {
            let rtype = self.order[at].rtype;
            let type_end =
                at + self.order[at..end].iter().take_while(|other| other.rtype == rtype).count();
            let start = self.members.len();
            let mut signatures_start = None;
            let mut ttl_secs = u32::MAX;
            for sorted in &self.order[at..type_end] {
                let record = records.get(sorted.index as usize);
                let run = signatures_start.unwrap_or(start);
                if sorted.is_signature && signatures_start.is_none() {
                    signatures_start = Some(self.members.len());
                } else if let Some(&last) = self.members[run..].last()
                    && is_same_data(record.rtype, records.get(last as usize).rdata, record.rdata)
                {
                    continue;
                }
                if !sorted.is_signature {
                    if ttl_secs != u32::MAX && ttl_secs != record.ttl_secs {
                        problems.warning(
                            record.at,
                            format!(
                                "TTL {} differs from the TTL {ttl_secs} of the same record set; \
                                 the lower one counts",
                                record.ttl_secs
                            ),
                            "one TTL for all records of a name and type (RFC 2181, 5.2)",
                        );
                    }
                    ttl_secs = ttl_secs.min(record.ttl_secs);
                }
                self.members.push(sorted.index);
            }
            let (middle, stop) =
                (signatures_start.unwrap_or(self.members.len()), self.members.len());
            if start == middle {
                let lone = records.get(self.members[start] as usize);
                problems.warning(
                    lone.at,
                    format!("a signature over TYPE{rtype} records that the name does not have"),
                    "RRSIG records beside the records they sign",
                );
                self.members.truncate(start);
            } else {
                self.sets.push(TreeSet {
                    rtype,
                    ttl_secs,
                    records: (start as u32, middle as u32),
                    signatures: (middle as u32, stop as u32),
                });
            }
            at = type_end;
        }
    }

    /// Makes `path` end at the node of `name`, creating it and every ancestor
    /// that is not there yet.
    fn open_path(&mut self, name: (u32, u8), key: (u32, u16)) {
        let relative_len = |node: &TreeNode| node.name.1 as usize;
        while let Some(&top) = self.path.last() {
            let len = relative_len(&self.nodes[top as usize]);
            let own = cut(&self.names, name.0, name.1 as usize);
            let above = self.relative(&self.nodes[top as usize]);
            if len <= own.len() && is_suffix_at_label(own, above) {
                break;
            }
            self.path.pop();
        }
        loop {
            let (parent, parent_len) = match self.path.last() {
                Some(&top) => (top, relative_len(&self.nodes[top as usize])),
                None if !self.nodes.is_empty() => unreachable!("every name is below the first"),
                None => (NO_NODE, 0),
            };
            if parent != NO_NODE && parent_len == name.1 as usize {
                return;
            }
            // The suffix of `name` that is one label longer than the parent.
            let start = if parent == NO_NODE {
                name.1 as usize
            } else {
                last_label_before(
                    cut(&self.names, name.0, name.1 as usize),
                    name.1 as usize - parent_len,
                )
            };
            let own = (name.0 + start as u32, name.1 - start as u8);
            let key = (key.0, self.key_len(key, self.path.len()) as u16);
            let mut node = TreeNode { name: own, key, parent, flags: 0, depth: 0, sets: (0, 0) };
            if parent != NO_NODE {
                let above = &mut self.nodes[parent as usize];
                node.depth = above.depth + 1;
                if above.flags & (NODE_CUT | NODE_BELOW_CUT) != 0 {
                    node.flags |= NODE_BELOW_CUT;
                }
                if cut(&self.names, own.0, own.1 as usize).starts_with(b"\x01*") {
                    above.flags |= NODE_WILDCARD_BELOW;
                }
            }
            self.path.push(self.nodes.len() as u32);
            self.nodes.push(node);
        }
    }

    /// Octets of the first `labels` labels of a key: the key of an ancestor is
    /// the beginning of the key of a name.
    fn key_len(&self, key: (u32, u16), labels: usize) -> usize {
        let octets = cut(&self.keys, key.0, key.1 as usize);
        match labels {
            0 => 0,
            _ => {
                let ends = octets.iter().enumerate().filter(|(_, octet)| **octet == 0);
                ends.map(|(at, _)| at + 1).nth(labels - 1).expect("a key has its labels")
            }
        }
    }

    /// Index of the node with these labels, or else of its closest ancestor.
    pub fn find(&self, relative: &[u8]) -> Result<usize, usize> {
        let mut key = Vec::with_capacity(relative.len() + 8);
        push_key(&mut key, relative);
        let mut wanted = &key[..];
        let mut is_whole = true;
        loop {
            let found = self.nodes.binary_search_by(|node| {
                cut(&self.keys, node.key.0, node.key.1 as usize).cmp(wanted)
            });
            match found {
                Ok(index) if is_whole => return Ok(index),
                Ok(index) => return Err(index),
                Err(_) => {
                    // Drop the leftmost label, which is the key's last.
                    let rest = &wanted[..wanted.len() - 1];
                    let end = rest.iter().rposition(|octet| *octet == 0).map_or(0, |at| at + 1);
                    wanted = &wanted[..end];
                    is_whole = false;
                }
            }
        }
    }

    /// The bits that a node's own sets give it.
    fn flags_of(&self, index: usize) -> u8 {
        let node = &self.nodes[index];
        let mut flags = 0;
        for set in self.sets_of(node) {
            match set.rtype {
                rtype::NS if index > 0 && !self.relative(node).starts_with(b"\x01*") => {
                    flags |= NODE_CUT;
                }
                rtype::CNAME => flags |= NODE_ALIAS,
                rtype::DNAME => flags |= NODE_REDIRECT,
                _ => {}
            }
        }
        flags
    }
}

/// Appends a key of the labels that sorts as octets like names sort
/// canonically: labels from the right, each closed by an octet below all
/// others; 0 and 1 are written as two octets to leave that one free.
fn push_key(keys: &mut Vec<u8>, relative: &[u8]) {
    let mut starts = [0u8; 128];
    let (mut count, mut at) = (0, 0);
    while at < relative.len() {
        starts[count] = at as u8;
        count += 1;
        at += 1 + relative[at] as usize;
    }
    for &start in starts[..count].iter().rev() {
        let start = start as usize;
        for &octet in &relative[start + 1..start + 1 + relative[start] as usize] {
            match octet {
                0 | 1 => keys.extend([1, octet + 1]),
                other => keys.push(other),
            }
        }
        keys.push(0);
    }
}

fn is_suffix_at_label(name: &[u8], suffix: &[u8]) -> bool {
    if !name.ends_with(suffix) {
        return false;
    }
    let cut = name.len() - suffix.len();
    let mut at = 0;
    while at < cut {
        at += 1 + name[at] as usize;
    }
    at == cut
}

/// Start of the last label that ends at `end`.
fn last_label_before(name: &[u8], end: usize) -> usize {
    let mut at = 0;
    loop {
        let next = at + 1 + name[at] as usize;
        if next >= end {
            return at;
        }
        at = next;
    }
}

/// Order of record data that puts what is the same side by side.
fn cmp_data(rtype: u16, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    match super::render::names_at(rtype) {
        Some(start) if a.len() > start && b.len() > start => {
            let lowered = |octet: &u8| octet.to_ascii_lowercase();
            let names = a[start..].iter().map(lowered).cmp(b[start..].iter().map(lowered));
            a[..start].cmp(&b[..start]).then(names).then_with(|| a.cmp(b))
        }
        _ => a.cmp(b),
    }
}

/// Equality of record data; names inside compare without case (RFC 2181, 5).
fn is_same_data(rtype: u16, a: &[u8], b: &[u8]) -> bool {
    match super::render::names_at(rtype) {
        Some(start) if a.len() > start && b.len() > start => {
            a[..start] == b[..start] && a[start..].eq_ignore_ascii_case(&b[start..])
        }
        _ => a == b,
    }
}
