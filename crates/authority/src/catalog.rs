//! All zones of a server, as one value that changes without being copied.
//!
//! A [`Catalog`] is a shallow tree of shared tables: 64 branches of 64 leaves,
//! each leaf a small hash table of zones. A change makes one new leaf per zone
//! it touches and shares everything else, so a catalogue of a million zones
//! changes in microseconds, readers keep the one they hold, and a change of
//! many zones is seen whole or not at all.

use std::hint::black_box;
use std::sync::Arc;

use wire::{Name, QueryName};

use crate::hash::SuffixHashes;
use crate::image::{Image, slot_of};

const FANOUT: usize = 64;
/// Zones that are expected to stay in a core's caches: a few megabytes.
const CACHED_ZONES_MAX: usize = 10_000;
const LABELS: usize = wire::name::LABELS_MAX + 1;

type Leaf = Arc<[Slot]>;
type Branch = Arc<[Leaf]>;

#[derive(Clone, Default)]
struct Slot {
    hash: u64,
    image: Option<Image>,
}

/// All zones of a server. Cloning shares them.
#[derive(Clone)]
pub struct Catalog {
    root: Arc<[Branch]>,
    totals: Totals,
    /// Zones by the number of labels of their names.
    depths: [u32; LABELS],
    /// Which numbers of labels the names of zones have; see [`depth_bit`].
    depth_mask: u64,
}

/// Sums over all zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Zones, the broken ones included.
    pub zones: usize,
    /// Zones that could not be loaded.
    pub broken: usize,
    /// Records of all zones.
    pub records: usize,
    /// Octets of all compiled zones.
    pub memory_len: usize,
}

/// One zone's change.
#[derive(Clone, Debug)]
pub enum Change {
    /// The zone is new, or replaces the one of the same name.
    Put(Image),
    /// The zone with the name that has this hash is gone.
    Remove { origin: Box<[u8]>, hash: u64 },
}

impl Default for Catalog {
    fn default() -> Self {
        let leaf: Leaf = Arc::from([]);
        let branch: Branch = Arc::from(vec![leaf; FANOUT]);
        Catalog {
            root: Arc::from(vec![branch; FANOUT]),
            totals: Totals::default(),
            depths: [0; LABELS],
            depth_mask: 0,
        }
    }
}

/// Branch and leaf of a hash: its upper bits, because slots use the lower.
#[inline]
fn path(hash: u64) -> (usize, usize) {
    ((hash >> 58) as usize % FANOUT, (hash >> 52) as usize % FANOUT)
}

/// The bit that stands for names of `labels` labels; the last one for all that
/// have more, which hardly a zone has.
#[inline]
fn depth_bit(labels: usize) -> u64 {
    1 << labels.min(63)
}

impl Catalog {
    /// Sums over all zones.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The zone of exactly this name, lowered, with its hash.
    #[inline]
    pub fn get(&self, origin: &[u8], hash: u64) -> Option<&Image> {
        let (branch, leaf) = path(hash);
        let slots = &self.root[branch][leaf];
        if slots.is_empty() {
            return None;
        }
        let mut at = slot_of(hash as u32, slots.len());
        loop {
            let slot = &slots[at];
            let image = slot.image.as_ref()?;
            if slot.hash == hash && image.origin().as_bytes() == origin {
                return Some(image);
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
        }
    }

    /// The deepest zone at or above the suffix of `name` that starts at label
    /// `from` and is served at `server`, and the label where the zone's own
    /// name starts.
    #[inline]
    pub fn find(
        &self,
        name: &QueryName,
        hashes: &SuffixHashes,
        from: usize,
        server: Option<u16>,
    ) -> Option<(&Image, usize)> {
        let count = name.label_count();
        for label in from..=count {
            // Suffixes of a length that no zone has need no look.
            if self.depth_mask & depth_bit(count - label) == 0 {
                continue;
            }
            if let Some(image) = self.get(name.suffix(label), hashes.get(label))
                && image.is_served_at(server)
            {
                return Some((image, label));
            }
        }
        None
    }

    /// True if the zones are too many to stay in the caches by themselves.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.totals.zones > CACHED_ZONES_MAX
    }

    /// Touches the slots that [`Catalog::find`] will look at.
    #[inline]
    pub(crate) fn approach_slots(&self, name: &QueryName, hashes: &SuffixHashes) {
        for slot in self.first_slots(name, hashes) {
            black_box(slot.hash);
        }
    }

    /// Touches the zone that [`Catalog::find`] will find, if it stands in the
    /// first slot of its hash, as most do.
    #[inline]
    pub(crate) fn approach_zones(&self, name: &QueryName, hashes: &SuffixHashes) {
        for slot in self.first_slots(name, hashes) {
            if let Some(image) = &slot.image {
                image.approach();
            }
        }
    }

    /// The slots where the search for each suffix of `name` starts.
    #[inline]
    fn first_slots(&self, name: &QueryName, hashes: &SuffixHashes) -> impl Iterator<Item = &Slot> {
        let count = name.label_count();
        (0..=count).filter(move |label| self.depth_mask & depth_bit(count - label) != 0).filter_map(
            move |label| {
                let hash = hashes.get(label);
                let (branch, leaf) = path(hash);
                let slots = &self.root[branch][leaf];
                slots.get(slot_of(hash as u32, slots.len()))
            },
        )
    }

    /// All zones, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Image> {
        self.root
            .iter()
            .flat_map(|branch| branch.iter())
            .flat_map(|leaf| leaf.iter())
            .filter_map(|slot| slot.image.as_ref())
    }

    /// The zone whose name has this hash; for counters that keep only that.
    pub fn by_hash(&self, hash: u64) -> Option<&Image> {
        let (branch, leaf) = path(hash);
        self.root[branch][leaf].iter().find(|slot| slot.hash == hash)?.image.as_ref()
    }

    /// The catalogue after `changes`, all of them at once.
    pub fn with(&self, mut changes: Vec<Change>) -> Catalog {
        // Changes of one leaf side by side, in the order they were given.
        changes.sort_by_key(|change| change.hash() >> 52);
        let mut next = self.clone();
        let mut root: Vec<Branch> = self.root.to_vec();
        let mut rest = &changes[..];
        while let Some(first) = rest.first() {
            let branch = path(first.hash()).0;
            let len = rest.iter().take_while(|change| path(change.hash()).0 == branch).count();
            let (own, others) = rest.split_at(len);
            root[branch] = next.change_branch(&root[branch], own);
            rest = others;
        }
        next.root = Arc::from(root);
        next.depth_mask =
            (0..LABELS).filter(|&n| next.depths[n] > 0).fold(0, |mask, n| mask | depth_bit(n));
        next
    }

    fn change_branch(&mut self, branch: &Branch, mut changes: &[Change]) -> Branch {
        let mut leaves: Vec<Leaf> = branch.to_vec();
        while let Some(first) = changes.first() {
            let leaf = path(first.hash()).1;
            let len = changes.iter().take_while(|change| path(change.hash()).1 == leaf).count();
            let (own, others) = changes.split_at(len);
            leaves[leaf] = self.change_leaf(&leaves[leaf], own);
            changes = others;
        }
        Arc::from(leaves)
    }

    fn change_leaf(&mut self, leaf: &Leaf, changes: &[Change]) -> Leaf {
        let mut taken: Vec<Slot> =
            leaf.iter().filter(|slot| slot.image.is_some()).cloned().collect();
        for change in changes {
            let (hash, origin) = (change.hash(), change.origin());
            let is_old = |slot: &Slot| {
                slot.hash == hash
                    && slot.image.as_ref().is_some_and(|i| i.origin().as_bytes() == origin)
            };
            if let Some(index) = taken.iter().position(is_old)
                && let Some(image) = taken.swap_remove(index).image
            {
                self.count(&image, false);
            }
            if let Change::Put(image) = change {
                self.count(image, true);
                taken.push(Slot { hash, image: Some(image.clone()) });
            }
        }
        build_leaf(taken)
    }

    fn count(&mut self, image: &Image, is_added: bool) {
        let totals = &mut self.totals;
        let depth = &mut self.depths[image.origin_labels()];
        if is_added {
            *depth += 1;
            totals.zones += 1;
            totals.broken += usize::from(image.is_broken());
            totals.records += image.records();
            totals.memory_len += image.memory_len();
        } else {
            *depth -= 1;
            totals.zones -= 1;
            totals.broken -= usize::from(image.is_broken());
            totals.records -= image.records();
            totals.memory_len -= image.memory_len();
        }
    }
}

/// A table with one slot in four free, so that searches end soon.
fn build_leaf(taken: Vec<Slot>) -> Leaf {
    if taken.is_empty() {
        return Arc::from([]);
    }
    let len = taken.len() + taken.len() / 3 + 1;
    let mut slots = vec![Slot::default(); len];
    for slot in taken {
        let mut at = slot_of(slot.hash as u32, len);
        while slots[at].image.is_some() {
            at = (at + 1) % len;
        }
        slots[at] = slot;
    }
    Arc::from(slots)
}

impl Change {
    /// The removal of the zone `origin`, lowered.
    pub fn remove(origin: Name<'_>, hasher: &crate::NameHasher) -> Self {
        Change::Remove { origin: origin.as_bytes().into(), hash: hasher.name(origin) }
    }

    fn hash(&self) -> u64 {
        match self {
            Change::Put(image) => image.origin_hash(),
            Change::Remove { hash, .. } => *hash,
        }
    }

    /// The name of the zone, lowered, in wire form.
    pub fn origin(&self) -> &[u8] {
        match self {
            Change::Put(image) => image.origin().as_bytes(),
            Change::Remove { origin, .. } => origin,
        }
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("totals", &self.totals).finish_non_exhaustive()
    }
}
