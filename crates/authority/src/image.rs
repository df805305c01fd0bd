//! A compiled zone: one block of octets that holds everything about it.
//!
//! An [`Image`] is made once by the compiler, never changed, and shared. It
//! holds a hash table of the zone's names, each name's record sets rendered as
//! the answer will carry them, which addresses go with which set, and the
//! order of names that proofs of absence need. One allocation per zone keeps a
//! million zones small, and a lookup within a few cache lines.
//!
//! Layout, all numbers little-endian, offsets from the start of the image:
//!
//! | part | content |
//! |---|---|
//! | header | [`HEADER_LEN`] octets, see the `AT_` constants |
//! | origin | the zone's name, lowered, wire form |
//! | servers | `u16` numbers of the virtual name servers that answer for the zone, in order; none = all |
//! | table | `u64` slots: upper half a tag from the hash, lower half a node's offset, 0 = free; in order of the tags, the last is free |
//! | nodes | `relative_len u8, flags u8, set_count u16, relative name, (type u16, offset u32)…`, then the node's sets |
//! | sets | `records u16, len u16, sig_records u16, sig_len u16, fixups u16, additionals u16`, octets, signatures, fixups, additionals |
//! | chain | NSEC: `order key u128, node u32` in canonical order; NSEC3: `hash [20], node u32` in order of the hash |
//! | nsec3 | `iterations u16, salt_len u8, salt` |

use std::hint::black_box;
use std::sync::Arc;

use wire::{Block, Name, rtype};

use crate::placement::{Placement, SHARD_SIZE_MAX};

pub(crate) const AT_RECORDS: usize = 0;
pub(crate) const AT_SERIAL: usize = 4;
pub(crate) const AT_NODES: usize = 8;
pub(crate) const AT_SLOTS: usize = 12;
pub(crate) const AT_TABLE: usize = 16;
pub(crate) const AT_NEGATIVE_TTL: usize = 20;
pub(crate) const AT_CHAIN: usize = 24;
pub(crate) const AT_CHAIN_LEN: usize = 28;
pub(crate) const AT_NSEC3: usize = 32;
pub(crate) const AT_APEX: usize = 36;
pub(crate) const AT_HASH: usize = 40;
pub(crate) const AT_FLAGS: usize = 48;
pub(crate) const AT_DEPTH: usize = 49;
pub(crate) const AT_ORIGIN_LEN: usize = 50;
pub(crate) const AT_ORIGIN_LABELS: usize = 51;
pub(crate) const HEADER_LEN: usize = 52;

pub(crate) const NODE_HEAD_LEN: usize = 4;
pub(crate) const DIRECTORY_ENTRY_LEN: usize = 6;
pub(crate) const SET_HEAD_LEN: usize = 12;
pub(crate) const ADDITIONAL_LEN: usize = 8;
pub(crate) const NSEC3_HASH_LEN: usize = 20;
pub(crate) const NSEC3_ENTRY_LEN: usize = NSEC3_HASH_LEN + 4;
pub(crate) const NSEC_KEY_LEN: usize = 16;
pub(crate) const NSEC_ENTRY_LEN: usize = NSEC_KEY_LEN + 4;

/// How much of a zone is touched before it is needed.
const APPROACH_LEN: usize = 512;
const CACHE_LINE_LEN: usize = 64;

/// The zone could not be loaded; it is answered with SERVFAIL.
pub(crate) const ZONE_BROKEN: u8 = 1;
/// Absence is proved with NSEC.
pub(crate) const ZONE_NSEC: u8 = 2;
/// Absence is proved with NSEC3.
pub(crate) const ZONE_NSEC3: u8 = 4;
/// One virtual name server, in the upper bits of the flags that count them.
pub(crate) const ZONE_SERVER: u8 = 8;
const _: () = assert!(SHARD_SIZE_MAX <= (u8::MAX / ZONE_SERVER) as usize);

/// A delegation starts here.
pub(crate) const NODE_CUT: u8 = 1;
/// A delegation starts somewhere above: this is glue, or not visible.
pub(crate) const NODE_BELOW_CUT: u8 = 2;
/// The name `*` exists directly below.
pub(crate) const NODE_WILDCARD_BELOW: u8 = 4;
/// Has a CNAME record.
pub(crate) const NODE_ALIAS: u8 = 8;
/// Has a DNAME record.
pub(crate) const NODE_REDIRECT: u8 = 16;

#[inline]
pub(crate) fn u16_at(octets: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([octets[at], octets[at + 1]])
}

#[inline]
pub(crate) fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(octets[at..at + 4].try_into().expect("4 octets"))
}

#[inline]
pub(crate) fn u64_at(octets: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(octets[at..at + 8].try_into().expect("8 octets"))
}

/// The slot of a table of `slots` that `hash` falls on; a higher one for a
/// higher hash.
#[inline]
pub(crate) fn slot_of(hash: u32, slots: usize) -> usize {
    ((u64::from(hash) * slots as u64) >> 32) as usize
}

/// The part of a hash that a zone's table is in order of.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A compiled zone. Cloning shares it.
#[derive(Clone)]
pub struct Image(Arc<[u8]>);

impl Image {
    pub(crate) fn from_octets(octets: &[u8]) -> Self {
        Image(Arc::from(octets))
    }

    /// A zone that is known but could not be loaded: every question about it
    /// where it is placed is answered with SERVFAIL.
    pub fn broken(origin: Name<'_>, placement: &Placement, hasher: &crate::NameHasher) -> Self {
        let lowered = origin.as_bytes().to_ascii_lowercase();
        let name = Name::from_trusted(&lowered);
        let mut octets = vec![0; HEADER_LEN];
        octets[AT_FLAGS] = ZONE_BROKEN;
        octets[AT_HASH..AT_HASH + 8].copy_from_slice(&hasher.name(name).to_le_bytes());
        octets[AT_ORIGIN_LEN] = lowered.len() as u8;
        octets[AT_ORIGIN_LABELS] = name.label_count() as u8;
        octets.extend(&lowered);
        for server in placement.servers() {
            octets.extend(server.to_le_bytes());
            octets[AT_FLAGS] += ZONE_SERVER;
        }
        Image::from_octets(&octets)
    }

    /// Touches the start of the zone, which is all of a small one.
    #[inline]
    pub(crate) fn approach(&self) {
        for octet in self.0[..self.0.len().min(APPROACH_LEN)].iter().step_by(CACHE_LINE_LEN) {
            black_box(*octet);
        }
    }

    /// The zone's name, lowered.
    #[inline]
    pub fn origin(&self) -> Name<'_> {
        Name::from_trusted(&self.0[HEADER_LEN..HEADER_LEN + self.0[AT_ORIGIN_LEN] as usize])
    }

    /// Numbers of the virtual name servers that answer for the zone, in their
    /// order; none: all of them do.
    pub fn servers(&self) -> impl Iterator<Item = u16> + '_ {
        self.server_octets().map(|octets| u16::from_le_bytes(*octets))
    }

    /// True if the zone is answered at the virtual name server `asked`. An
    /// address that is none answers for every zone.
    #[inline]
    pub fn is_served_at(&self, asked: Option<u16>) -> bool {
        match asked {
            None => true,
            Some(asked) => self.is_served_by(asked),
        }
    }

    #[inline]
    fn is_served_by(&self, server: u16) -> bool {
        let wanted = server.to_le_bytes();
        self.0[AT_FLAGS] < ZONE_SERVER || self.server_octets().any(|octets| *octets == wanted)
    }

    fn server_octets(&self) -> impl Iterator<Item = &[u8; 2]> {
        let start = HEADER_LEN + self.0[AT_ORIGIN_LEN] as usize;
        let count = (self.0[AT_FLAGS] / ZONE_SERVER) as usize;
        self.0[start..start + 2 * count].as_chunks::<2>().0.iter()
    }

    /// Number of labels of the zone's name.
    pub fn origin_labels(&self) -> usize {
        self.0[AT_ORIGIN_LABELS] as usize
    }

    /// Hash of the zone's name.
    pub fn origin_hash(&self) -> u64 {
        u64_at(&self.0, AT_HASH)
    }

    /// Number of records.
    pub fn records(&self) -> usize {
        u32_at(&self.0, AT_RECORDS) as usize
    }

    /// The serial number of the SOA record.
    pub fn serial(&self) -> u32 {
        u32_at(&self.0, AT_SERIAL)
    }

    /// Number of names, the empty ones included.
    pub fn names(&self) -> usize {
        u32_at(&self.0, AT_NODES) as usize
    }

    /// Octets the zone takes in memory, without the allocator's own.
    pub fn memory_len(&self) -> usize {
        self.0.len() + 2 * size_of::<usize>()
    }

    /// True if the zone could not be loaded.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.0[AT_FLAGS] & ZONE_BROKEN != 0
    }

    /// True if absence can be proved.
    #[inline]
    pub fn is_signed(&self) -> bool {
        self.0[AT_FLAGS] & (ZONE_NSEC | ZONE_NSEC3) != 0
    }

    /// True if absence is proved with NSEC3.
    pub(crate) fn is_nsec3(&self) -> bool {
        self.0[AT_FLAGS] & ZONE_NSEC3 != 0
    }

    /// Labels of the deepest name, counted from the zone's own name.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.0[AT_DEPTH] as usize
    }

    /// How long the absence of something may be remembered (RFC 2308, 5).
    pub fn negative_ttl_secs(&self) -> u32 {
        u32_at(&self.0, AT_NEGATIVE_TTL)
    }

    /// The zone's own name.
    #[inline]
    pub(crate) fn apex(&self) -> Node<'_> {
        self.node(u32_at(&self.0, AT_APEX))
    }

    /// The node at an offset that the image itself holds.
    #[inline]
    pub(crate) fn node(&self, at: u32) -> Node<'_> {
        Node { image: &self.0, at: at as usize }
    }

    /// The node of the name that hashes to `hash` and whose labels before the
    /// zone's own name are the ones that `is_wanted` knows.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Node<'_>> {
        let slots = u32_at(&self.0, AT_SLOTS) as usize;
        let table = u32_at(&self.0, AT_TABLE) as usize;
        let tag = tag_of(hash);
        let (entries, _) = self.0[table + 8 * slot_of(tag, slots)..].as_chunks::<8>();
        for entry in entries {
            let entry = u64::from_le_bytes(*entry);
            // In order of the tags: what is not here by now is nowhere.
            if entry == 0 || tag_of(entry) > tag {
                return None;
            }
            if tag_of(entry) == tag {
                let node = self.node(entry as u32);
                if is_wanted(node.relative()) {
                    return Some(node);
                }
            }
        }
        None
    }

    /// Number of entries of the chain that proves absence.
    pub(crate) fn chain_len(&self) -> usize {
        u32_at(&self.0, AT_CHAIN_LEN) as usize
    }

    /// The `index`th owner of an NSEC record in canonical order, and the start
    /// of its place in that order.
    #[inline]
    pub(crate) fn nsec(&self, index: usize) -> (u128, Node<'_>) {
        let at = u32_at(&self.0, AT_CHAIN) as usize + NSEC_ENTRY_LEN * index;
        let entry: &[u8; NSEC_ENTRY_LEN] =
            self.0[at..at + NSEC_ENTRY_LEN].try_into().expect("an entry");
        let key = u128::from_le_bytes(entry[..NSEC_KEY_LEN].try_into().expect("16 octets"));
        (key, self.node(u32_at(entry, NSEC_KEY_LEN)))
    }

    /// The `index`th NSEC3 record in order of its hash.
    pub(crate) fn nsec3(&self, index: usize) -> (&[u8], Node<'_>) {
        let at = u32_at(&self.0, AT_CHAIN) as usize + NSEC3_ENTRY_LEN * index;
        let hash = &self.0[at..at + NSEC3_HASH_LEN];
        (hash, self.node(u32_at(&self.0, at + NSEC3_HASH_LEN)))
    }

    /// Iterations and salt of the NSEC3 chain.
    pub(crate) fn nsec3_parameters(&self) -> (u16, &[u8]) {
        let at = u32_at(&self.0, AT_NSEC3) as usize;
        let salt_len = self.0[at + 2] as usize;
        (u16_at(&self.0, at), &self.0[at + 3..at + 3 + salt_len])
    }

    /// True if both share the same octets.
    pub fn is_same(&self, other: &Image) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if both hold the same octets.
    pub fn has_same_content(&self, other: &Image) -> bool {
        self.0 == other.0
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} serial {})", self.origin(), self.serial())
    }
}

/// A name of a zone.
#[derive(Clone, Copy)]
pub(crate) struct Node<'z> {
    image: &'z [u8],
    at: usize,
}

impl<'z> Node<'z> {
    /// The labels before the zone's own name.
    #[inline]
    pub fn relative(self) -> &'z [u8] {
        let start = self.at + NODE_HEAD_LEN;
        &self.image[start..start + self.image[self.at] as usize]
    }

    /// True if any of the `NODE_` bits is set.
    #[inline]
    pub fn has(self, flags: u8) -> bool {
        self.image[self.at + 1] & flags != 0
    }

    /// Number of record sets; 0 for an empty non-terminal.
    #[inline]
    pub fn set_count(self) -> usize {
        u16_at(self.image, self.at + 2) as usize
    }

    /// Offset in the image: what makes the node the same as another.
    pub fn offset(self) -> usize {
        self.at
    }

    /// The type and the set at `index`, in order of the types.
    #[inline]
    pub fn set_at(self, index: usize) -> (u16, Set<'z>) {
        let directory = self.at + NODE_HEAD_LEN + self.image[self.at] as usize;
        let at = directory + DIRECTORY_ENTRY_LEN * index;
        (u16_at(self.image, at), Set { image: self.image, at: u32_at(self.image, at + 2) as usize })
    }

    /// The record set of a type.
    #[inline]
    pub fn set(self, rtype: u16) -> Option<Set<'z>> {
        let directory = self.at + NODE_HEAD_LEN + self.image[self.at] as usize;
        let end = directory + DIRECTORY_ENTRY_LEN * self.set_count();
        self.image[directory..end]
            .chunks_exact(DIRECTORY_ENTRY_LEN)
            .find(|entry| u16_at(entry, 0) == rtype)
            .map(|entry| Set { image: self.image, at: u32_at(entry, 2) as usize })
    }

    /// All sets in order of their types.
    pub fn sets(self) -> impl Iterator<Item = (u16, Set<'z>)> {
        (0..self.set_count()).map(move |index| self.set_at(index))
    }

    /// The addresses of the name.
    pub fn addresses(self) -> impl Iterator<Item = Set<'z>> {
        [rtype::A, rtype::AAAA].into_iter().filter_map(move |rtype| self.set(rtype))
    }
}

/// A record set of a node.
#[derive(Clone, Copy)]
pub(crate) struct Set<'z> {
    image: &'z [u8],
    at: usize,
}

/// Why the addresses of a name go with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Why {
    /// They save a question.
    Useful = 0,
    /// The name lies below the delegation itself: without its addresses the
    /// delegation leads nowhere (RFC 9471, 3.1).
    Glue = 1,
    /// The name lies below another delegation of the zone (RFC 9471, 3.2).
    SiblingGlue = 2,
}

/// A name whose addresses go with a set.
#[derive(Clone, Copy)]
pub(crate) struct Additional {
    /// Where the name stands in the set's octets; 0: it is the set's owner.
    pub target_at: usize,
    /// Why it is there.
    pub why: Why,
    /// The node that holds the addresses.
    pub node: u32,
}

/// The numbers at the start of a set.
struct SetHead {
    records: u16,
    len: usize,
    sig_records: u16,
    sig_len: usize,
    fixups: usize,
    additionals: usize,
}

impl<'z> Set<'z> {
    #[inline]
    fn head(self) -> SetHead {
        let head: &[u8; SET_HEAD_LEN] =
            self.image[self.at..self.at + SET_HEAD_LEN].try_into().expect("a set's head");
        let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        SetHead {
            records: number(0),
            len: number(2) as usize,
            sig_records: number(4),
            sig_len: number(6) as usize,
            fixups: number(8) as usize,
            additionals: number(10) as usize,
        }
    }

    /// The records; with their signatures if `signed`.
    #[inline]
    pub fn block(self, signed: bool) -> Block<'z> {
        let head = self.head();
        let octets = &self.image[self.at + SET_HEAD_LEN..];
        let (sig_records, sig_len) = if signed { (head.sig_records, head.sig_len) } else { (0, 0) };
        let fixups = head.len + head.sig_len;
        Block {
            records: head.records + sig_records,
            octets: &octets[..head.len + sig_len],
            fixups: &octets[fixups..fixups + 2 * head.fixups],
        }
    }

    /// Only the signatures; `None` if there are none.
    pub fn signatures(self) -> Option<Block<'z>> {
        let head = self.head();
        let octets = self.at + SET_HEAD_LEN + head.len;
        (head.sig_len > 0).then(|| Block {
            records: head.sig_records,
            octets: &self.image[octets..octets + head.sig_len],
            fixups: &[],
        })
    }

    /// The names whose addresses go with the set.
    #[inline]
    pub fn additionals(self) -> impl Iterator<Item = Additional> + use<'z> {
        let head = self.head();
        let start = self.at + SET_HEAD_LEN + head.len + head.sig_len + 2 * head.fixups;
        let end = start + ADDITIONAL_LEN * head.additionals;
        self.image[start..end].chunks_exact(ADDITIONAL_LEN).map(|entry| Additional {
            target_at: u16_at(entry, 0) as usize,
            why: match u16_at(entry, 2) {
                1 => Why::Glue,
                2 => Why::SiblingGlue,
                _ => Why::Useful,
            },
            node: u32_at(entry, 4),
        })
    }

    /// True if both are the same set of the same zone.
    pub fn is_same(self, other: Set<'_>) -> bool {
        self.at == other.at && std::ptr::eq(self.image, other.image)
    }

    /// Time to live of the records.
    pub fn ttl_secs(self) -> u32 {
        let at = self.at + SET_HEAD_LEN + 6;
        u32::from_be_bytes(self.image[at..at + 4].try_into().expect("4 octets"))
    }
}
