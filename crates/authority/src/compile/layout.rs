//! The octets of an image, in the layout that `image.rs` describes.

use wire::name::LABEL_LEN_MAX;
use wire::{Name, rtype};

use super::IMAGE_LEN_MAX;
use super::render::{Rendering, SET_LEN_MAX, find_help};
use super::tree::{NO_NODE, Tree, TreeNode, TreeSet};
use crate::denial::{chain_of, decode_base32hex, order_key};
use crate::hash::NameHasher;
use crate::image::{self, *};
use crate::placement::Placement;
use crate::problem::Problems;
use crate::records::RecordSet;

/// Writes images. Kept from zone to zone for its buffers.
#[derive(Debug, Default)]
pub(super) struct Layout {
    octets: Vec<u8>,
    hashes: Vec<u64>,
    /// Nodes in order of their tags.
    order: Vec<u32>,
    /// The node of each slot of the table.
    table: Vec<u32>,
    offsets: Vec<u32>,
    /// Places that hold the index of a node and shall hold its offset.
    patches: Vec<usize>,
    rendering: Rendering,
    records: usize,
}

impl Layout {
    /// The image written last.
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Writes the image of `tree`. `None` if it grows too large.
    pub fn write(
        &mut self,
        tree: &Tree,
        records: &RecordSet,
        placement: &Placement,
        hasher: &NameHasher,
        problems: &mut Problems,
    ) -> Option<()> {
        self.plan_table(tree, hasher);
        let table = self.start(tree, placement);
        self.octets.resize(table + 8 * self.table.len(), 0);
        self.offsets.clear();
        self.patches.clear();
        self.records = 0;
        for node in &tree.nodes {
            self.offsets.push(self.octets.len() as u32);
            self.push_node(tree, node, records, problems);
            if self.octets.len() > IMAGE_LEN_MAX {
                problems.error(
                    records.get(tree.soa).at,
                    "the compiled zone is larger than 4 GiB",
                    "a zone whose compiled form has at most 4 GiB",
                );
                return None;
            }
        }
        self.fill_table(table);
        let flags = self.push_chain(tree, records, problems);
        self.fill_header(tree, records, flags, table);
        for index in 0..self.patches.len() {
            let at = self.patches[index];
            let node = u32_at(&self.octets, at);
            self.set_u32(at, self.offsets[node as usize]);
        }
        Some(())
    }

    /// Makes room for the header and writes what follows it; returns where
    /// that ends.
    fn start(&mut self, tree: &Tree, placement: &Placement) -> usize {
        self.octets.clear();
        self.octets.resize(HEADER_LEN, 0);
        self.octets.extend_from_slice(&tree.origin);
        for server in placement.servers() {
            self.octets.extend(server.to_le_bytes());
            self.octets[AT_FLAGS] += ZONE_SERVER;
        }
        self.octets.len()
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        self.octets[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn set_u32(&mut self, at: usize, value: u32) {
        self.octets[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn push_node(
        &mut self,
        tree: &Tree,
        node: &TreeNode,
        records: &RecordSet,
        problems: &mut Problems,
    ) {
        let relative = tree.relative(node);
        let sets = tree.sets_of(node);
        self.octets.extend([relative.len() as u8, node.flags]);
        self.octets.extend((sets.len() as u16).to_le_bytes());
        self.octets.extend_from_slice(relative);
        let directory = self.octets.len();
        self.octets.resize(directory + DIRECTORY_ENTRY_LEN * sets.len(), 0);
        for (index, set) in sets.iter().enumerate() {
            let entry = directory + DIRECTORY_ENTRY_LEN * index;
            self.set_u16(entry, set.rtype);
            self.set_u32(entry + 2, self.octets.len() as u32);
            if !self.rendering.render(tree, set, records) {
                problems.error(
                    tree.place(set, records),
                    format!(
                        "the TYPE{} records of {} fit no message",
                        set.rtype,
                        tree.display(node)
                    ),
                    format!("record sets of at most {SET_LEN_MAX} octets, signatures included"),
                );
                continue;
            }
            self.push_set(tree, node, set);
        }
    }

    fn push_set(&mut self, tree: &Tree, node: &TreeNode, set: &TreeSet) {
        let rendering = std::mem::take(&mut self.rendering);
        let (members, signatures) = (tree.records_of(set).len(), tree.signatures_of(set).len());
        self.records += members + signatures;
        let head = self.octets.len();
        for value in [
            members,
            rendering.octets.len(),
            signatures,
            rendering.signatures.len(),
            rendering.fixups.len(),
            0,
        ] {
            self.octets.extend((value as u16).to_le_bytes());
        }
        self.octets.extend_from_slice(&rendering.octets);
        self.octets.extend_from_slice(&rendering.signatures);
        for fixup in &rendering.fixups {
            self.octets.extend(fixup.to_le_bytes());
        }
        // RFC 9460, 2.5.2: "." stands for the owner itself.
        let is_service = matches!(set.rtype, rtype::SVCB | rtype::HTTPS);
        let names_owner = is_service && rendering.targets.iter().any(|(_, name)| *name == [0]);
        let mut count = 0;
        for (at, target) in &rendering.targets {
            count += u16::from(self.push_additional(tree, node, set, names_owner, *at, target));
        }
        self.set_u16(head + 10, count);
        self.rendering = rendering;
    }

    /// Notes that the records of `target` go with `set`, if they do.
    fn push_additional(
        &mut self,
        tree: &Tree,
        node: &TreeNode,
        set: &TreeSet,
        names_owner: bool,
        target_at: u16,
        target: &[u8],
    ) -> bool {
        let is_owner = names_owner && target == [0];
        let relative = match is_owner {
            true => Some(tree.relative(node)),
            false => Name::from_trusted(target).strip_suffix(Name::from_trusted(&tree.origin)),
        };
        let Some(relative) = relative else { return false };
        let Some(found) = find_help(tree, relative, set.rtype) else { return false };
        // "." brings the owner's own records already.
        if names_owner && !is_owner && std::ptr::eq(&tree.nodes[found], node) {
            return false;
        }
        let is_glue = tree.nodes[found].flags & (NODE_BELOW_CUT | NODE_CUT) != 0;
        let why = match set.rtype {
            rtype::NS if node.flags & NODE_CUT != 0 && is_glue => {
                let own = tree.relative(node);
                let is_below = relative.len() >= own.len()
                    && Name::from_trusted(target)
                        .strip_suffix(Name::from_trusted(&[own, &tree.origin].concat()))
                        .is_some();
                if is_below { Why::Glue } else { Why::SiblingGlue }
            }
            rtype::NS => Why::Useful,
            // Only what this zone is the authority for goes with an answer.
            _ if is_glue => return false,
            _ => Why::Useful,
        };
        self.octets.extend(if is_owner { 0 } else { target_at }.to_le_bytes());
        self.octets.extend((why as u16).to_le_bytes());
        self.patches.push(self.octets.len());
        self.octets.extend((found as u32).to_le_bytes());
        true
    }

    /// Hashes the names and gives each its slot: its own or the next free one
    /// behind it, in order of the tags.
    fn plan_table(&mut self, tree: &Tree, hasher: &NameHasher) {
        self.hashes.clear();
        for node in &tree.nodes {
            self.hashes.push(match node.parent {
                NO_NODE => hasher.name(Name::from_trusted(&tree.origin)),
                parent => {
                    let relative = tree.relative(node);
                    let label = &relative[1..1 + relative[0] as usize];
                    hasher.child(self.hashes[parent as usize], label)
                }
            });
        }
        let hashes = &self.hashes;
        self.order.clear();
        self.order.extend(0..hashes.len() as u32);
        self.order.sort_unstable_by_key(|&node| tag_of(hashes[node as usize]));
        let slots = slots_for(hashes.len());
        self.table.clear();
        for &node in &self.order {
            let slot = slot_of(tag_of(hashes[node as usize]), slots);
            let slot = slot.max(self.table.len());
            self.table.resize(slot, NO_NODE);
            self.table.push(node);
        }
        self.table.resize(slots.max(self.table.len() + 1), NO_NODE);
    }

    fn fill_table(&mut self, table: usize) {
        for (slot, &node) in self.table.iter().enumerate() {
            if node != NO_NODE {
                let tag = u64::from(tag_of(self.hashes[node as usize]));
                let entry = tag << 32 | u64::from(self.offsets[node as usize]);
                let at = table + 8 * slot;
                self.octets[at..at + 8].copy_from_slice(&entry.to_le_bytes());
            }
        }
    }

    /// Appends the order of names that proofs of absence need; says which kind
    /// of proof the zone has.
    fn push_chain(&mut self, tree: &Tree, records: &RecordSet, problems: &mut Problems) -> u8 {
        let apex = &tree.nodes[0];
        if let Some(parameters) = nsec3_parameters(tree, records) {
            return self.push_nsec3_chain(tree, parameters, records, problems);
        }
        if tree.set(apex, rtype::NSEC).is_none() {
            return 0;
        }
        let start = self.octets.len();
        for (index, node) in tree.nodes.iter().enumerate() {
            if node.flags & NODE_BELOW_CUT == 0 && tree.set(node, rtype::NSEC).is_some() {
                self.octets.extend(order_key(tree.relative(node)).to_le_bytes());
                self.octets.extend(self.offsets[index].to_le_bytes());
            }
        }
        let count = (self.octets.len() - start) / NSEC_ENTRY_LEN;
        self.set_u32(AT_CHAIN, start as u32);
        self.set_u32(AT_CHAIN_LEN, count as u32);
        ZONE_NSEC
    }

    fn push_nsec3_chain(
        &mut self,
        tree: &Tree,
        parameters: &[u8],
        records: &RecordSet,
        problems: &mut Problems,
    ) -> u8 {
        let mut entries = Vec::new();
        for node in &tree.nsec3_nodes {
            let Some(set) = tree.set(node, rtype::NSEC3) else { continue };
            let rdata = records.get(tree.records_of(set)[0] as usize).rdata;
            if chain_of(rdata) != chain_of(parameters) {
                continue;
            }
            let relative = tree.relative(node);
            let label = &relative[1..];
            let hash = match relative.first() {
                Some(&len) if len as usize == label.len() && label.len() <= LABEL_LEN_MAX => {
                    decode_base32hex(label)
                }
                _ => None,
            };
            let Some(hash) = hash else {
                problems.warning(
                    tree.place(set, records),
                    "the owner of an NSEC3 record is no hash; the record is left out",
                    "one label of 32 characters of base32hex, then the name of the zone",
                );
                continue;
            };
            entries.push((hash, self.octets.len() as u32));
            self.push_node(tree, node, records, problems);
        }
        entries.sort_unstable();
        let start = self.octets.len();
        for (hash, offset) in &entries {
            self.octets.extend(hash);
            self.octets.extend(offset.to_le_bytes());
        }
        let at = self.octets.len();
        // algorithm, flags, iterations, salt length, salt
        self.octets.extend([parameters[3], parameters[2]]);
        self.octets.extend_from_slice(&parameters[4..]);
        self.set_u32(AT_CHAIN, start as u32);
        self.set_u32(AT_CHAIN_LEN, entries.len() as u32);
        self.set_u32(AT_NSEC3, at as u32);
        if entries.is_empty() { 0 } else { ZONE_NSEC3 }
    }

    fn fill_header(&mut self, tree: &Tree, records: &RecordSet, flags: u8, table: usize) {
        let soa = records.get(tree.soa);
        // Serial, refresh, retry, expire and minimum end the data.
        let number = |from_end: usize| {
            let at = soa.rdata.len() - from_end;
            u32::from_be_bytes(soa.rdata[at..at + 4].try_into().expect("4 octets"))
        };
        let soa_ttl_secs =
            tree.set(&tree.nodes[0], rtype::SOA).map_or(soa.ttl_secs, |set| set.ttl_secs);
        self.set_u32(AT_RECORDS, self.records as u32);
        self.set_u32(AT_SERIAL, number(20));
        self.set_u32(AT_NODES, tree.nodes.len() as u32);
        self.set_u32(AT_SLOTS, slots_for(tree.nodes.len()) as u32);
        self.set_u32(AT_TABLE, table as u32);
        self.set_u32(AT_NEGATIVE_TTL, soa_ttl_secs.min(number(4)));
        self.set_u32(AT_APEX, self.offsets[0]);
        self.octets[AT_HASH..AT_HASH + 8].copy_from_slice(&self.hashes[0].to_le_bytes());
        self.octets[AT_FLAGS] |= flags;
        self.octets[image::AT_DEPTH] =
            tree.nodes.iter().map(|node| node.depth).max().unwrap_or_default();
        self.octets[AT_ORIGIN_LEN] = tree.origin.len() as u8;
        self.octets[AT_ORIGIN_LABELS] = Name::from_trusted(&tree.origin).label_count() as u8;
    }
}

/// Slots of a table for `nodes` names; more are added behind the last one if
/// the names crowd there.
fn slots_for(nodes: usize) -> usize {
    nodes + nodes / 2 + 1
}

/// Data of the NSEC3PARAM record whose chain the zone has.
fn nsec3_parameters<'r>(tree: &Tree, records: &'r RecordSet) -> Option<&'r [u8]> {
    let set = tree.set(&tree.nodes[0], rtype::NSEC3PARAM)?;
    let has_chain = |parameters: &[u8]| {
        tree.nsec3_nodes.iter().filter_map(|node| tree.set(node, rtype::NSEC3)).any(|set| {
            let rdata = records.get(tree.records_of(set)[0] as usize).rdata;
            chain_of(rdata) == chain_of(parameters)
        })
    };
    tree.records_of(set)
        .iter()
        .map(|&index| records.get(index as usize).rdata)
        // RFC 5155, 4.1.2: a chain with flags set is not for answers.
        .find(|rdata| rdata.len() >= 5 && rdata[0] == 1 && rdata[1] == 0 && has_chain(rdata))
}
