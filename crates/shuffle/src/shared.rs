//! Sets of workers that several tenants have.
//!
//! Tenants that share `count` workers have a set of `count` workers in common,
//! so all pairs of them are found by looking for equal sets, not by comparing
//! tenants. Most sets have one owner: a bitmap of hashes leaves out nearly all
//! of these, and only the rest is sorted. Hashes that are equal by chance are
//! told apart by the sets themselves.

use std::ops::Range;

use crate::assignment::{Assignment, FOREIGN_SIZE_MAX};
use crate::bound::choose;
use crate::key::{scale, spread};
use crate::shard::Slot;

/// Hashes that a bitmap tells apart: 128 MB.
const SEEN_MAX: u64 = 1 << 29;
/// Sets that are sorted at a time: 256 MB.
const SORTED_MAX: u64 = 1 << 24;

/// Sets of `count` workers, counted once for each tenant that has them.
pub(crate) fn set_count(sizes: &[usize; FOREIGN_SIZE_MAX + 1], count: usize) -> u128 {
    let sets = |(size, &tenants): (usize, &usize)| {
        choose(size as u64, count as u64).map_or(u128::MAX, |n| n.saturating_mul(tenants as u128))
    };
    sizes.iter().enumerate().map(sets).fold(0, u128::saturating_add)
}

/// Looks for sets that several tenants have.
pub(crate) struct SharedSets<'a> {
    assignment: &'a Assignment,
    /// A random number for each worker; that of a set is their sum.
    hashes: Vec<u64>,
    sizes: [usize; FOREIGN_SIZE_MAX + 1],
}

/// A set of a tenant. The order decides what is next to each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Owned {
    hash: u64,
    tenant: u32,
    /// Which of the sets of the tenant.
    number: u32,
}

impl<'a> SharedSets<'a> {
    pub fn new(assignment: &'a Assignment, sizes: [usize; FOREIGN_SIZE_MAX + 1]) -> Self {
        let hashes = (0..assignment.worker_count() as u64).map(spread).collect();
        SharedSets { assignment, hashes, sizes }
    }

    /// Calls `visit` once for every set of `count` workers that more than one
    /// tenant has, with these tenants in ascending order.
    pub fn each(&self, count: usize, mut visit: impl FnMut(&[u32])) {
        let masks = self.masks(count);
        let all = self.set_count(count) as u64;
        let mut seen = Seen::new((all * 8).next_power_of_two().min(SEEN_MAX));
        self.each_owned(&masks, |set| seen.insert(set.hash));
        let mut kept = all;
        if all > SORTED_MAX {
            kept = 0;
            self.each_owned(&masks, |set| kept += u64::from(seen.is_repeated(set.hash)));
        }
        let parts = kept.div_ceil(SORTED_MAX);
        for part in 0..parts {
            let mut owned = Vec::new();
            self.each_owned(&masks, |set| {
                if seen.is_repeated(set.hash) && scale(set.hash, parts) == part {
                    owned.push(set);
                }
            });
            owned.sort_unstable();
            for same_hash in owned.chunk_by(|one, other| one.hash == other.hash) {
                self.each_group(same_hash, &masks, &mut visit);
            }
        }
    }

    /// Whether there is a set of `count` workers that more than one tenant has.
    pub fn is_any(&self, count: usize) -> bool {
        // More sets than there are different ones.
        let different = choose(self.hashes.len() as u64, count as u64).unwrap_or(u128::MAX);
        let mut is_any = self.set_count(count) > different;
        if !is_any {
            self.each(count, |_| is_any = true);
        }
        is_any
    }

    /// Divides sets of one hash into those that are equal: nearly always all.
    fn each_group(&self, sets: &[Owned], masks: &[Vec<u64>], visit: &mut impl FnMut(&[u32])) {
        let (mut tenants, mut others) = (Vec::new(), Vec::new());
        let Some((&first, rest)) = sets.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return;
        };
        tenants.push(first.tenant);
        for &set in rest {
            match self.members(first, masks).eq(self.members(set, masks)) {
                true => tenants.push(set.tenant),
                false => others.push(set),
            }
        }
        if tenants.len() > 1 {
            visit(&tenants);
        }
        self.each_group(&others, masks, visit);
    }

    fn members(&self, set: Owned, masks: &[Vec<u64>]) -> impl Iterator<Item = Slot> {
        let slots = self.assignment.slots_of(set.tenant);
        places(masks[slots.len()][set.number as usize]).map(|place| slots[place])
    }

    fn set_count(&self, count: usize) -> u128 {
        set_count(&self.sizes, count)
    }

    #[inline]
    fn each_owned(&self, masks: &[Vec<u64>], mut visit: impl FnMut(Owned)) {
        let mut hashes = [0; FOREIGN_SIZE_MAX];
        for tenant in 0..self.assignment.tenant_count() as u32 {
            let slots = self.assignment.slots_of(tenant);
            for (hash, slot) in hashes.iter_mut().zip(slots) {
                *hash = self.hashes[slot.0 as usize];
            }
            for (number, &mask) in (0..).zip(&masks[slots.len()]) {
                let hash = places(mask).fold(0u64, |sum, place| sum.wrapping_add(hashes[place]));
                visit(Owned { hash, tenant, number });
            }
        }
    }

    /// For each size of a shard that there is, its sets of `count` places, one
    /// bit for each place.
    fn masks(&self, count: usize) -> Vec<Vec<u64>> {
        let masks = |(size, &tenants): (usize, &usize)| match tenants {
            0 => Vec::new(),
            _ => masks_of(0..size as u32, count),
        };
        self.sizes.iter().enumerate().map(masks).collect()
    }
}

/// All sets of `count` of these places.
fn masks_of(places: Range<u32>, count: usize) -> Vec<u64> {
    if count == 0 {
        return vec![0];
    }
    let with_first = |first: u32| {
        let rest = masks_of(first + 1..places.end, count - 1);
        rest.into_iter().map(move |mask| mask | 1 << first)
    };
    places.clone().flat_map(with_first).collect()
}

#[inline]
fn places(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(place)
    })
}

/// Which hashes were seen, and which of them again; some are taken for others.
/// Two bits for each.
struct Seen(Vec<u64>);

impl Seen {
    fn new(hashes: u64) -> Self {
        Seen(vec![0; (hashes / 32).max(1) as usize])
    }

    #[inline]
    fn place(&self, hash: u64) -> (usize, u64) {
        ((hash >> 5) as usize & (self.0.len() - 1), hash % 32 * 2)
    }

    #[inline]
    fn insert(&mut self, hash: u64) {
        let (word, bit) = self.place(hash);
        let is_seen = self.0[word] >> bit & 1;
        self.0[word] |= (1 | is_seen << 1) << bit;
    }

    #[inline]
    fn is_repeated(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.0[word] >> bit & 2 != 0
    }
}
