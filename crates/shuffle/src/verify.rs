//! What an assignment really promises, whoever made it.
//!
//! Takes nothing on trust: the overlap is that of all pairs of tenants. For a
//! million tenants these are too many to compare, so sets of workers that
//! several tenants have are looked for. Where shards are so
//! large that their sets are too many, tenants are compared by the lists of
//! tenants of each worker; and where that takes too long as well, some of the
//! tenants are compared with all others and the report says so.

use std::collections::BTreeSet;

use crate::assignment::{Assignment, FOREIGN_SIZE_MAX};
use crate::blast::{Blast, of_tenant_among};
use crate::bound::choose;
use crate::shard::Slot;
use crate::shared::{SharedSets, set_count};

/// Names of a list in a report at the most.
pub const LISTED_MAX: usize = 20;
/// Comparisons that are done without looking for something better.
const FEW_COMPARISONS: u128 = 1 << 24;
/// Comparisons at the most: some seconds.
const COMPARISONS_MAX: u128 = 1 << 29;
/// Sets that are looked at, at the most: some tens of seconds.
const SETS_MAX: u128 = 1 << 29;

/// What holds for an assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub tenants: usize,
    pub workers: usize,
    /// Sizes of shards, ascending, and how many tenants have each.
    pub sizes: Vec<(usize, usize)>,
    pub overlap: Overlap,
    pub balance: Balance,
    /// How many tenants can be flooded at the same time so that everybody else
    /// keeps a worker, by the overlap and the least size; `None` if any number
    /// can. Not more than that if the overlap is not complete.
    pub survives_attackers: Option<usize>,
    /// The flood that takes most from others; none without tenants.
    pub worst_flood: Option<Flood>,
    pub identical: Identical,
}

/// How much tenants have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// The most workers that two tenants share: no two share more.
    pub most: usize,
    /// How many pairs of tenants share as many.
    pub pairs: u128,
    /// The first of these pairs, in the order of the assignment.
    pub worst: Vec<(String, String)>,
    /// How many tenants were compared with all others.
    pub compared: usize,
    /// All were. If not, there may be a larger overlap, and more pairs.
    pub is_complete: bool,
}

/// How many tenants the workers have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balance {
    pub least: u32,
    pub mean: f64,
    pub most: u32,
    /// How many workers have the least, and the first of them.
    pub least_count: usize,
    pub least_loaded: Vec<String>,
    /// How many workers have the most, and the first of them.
    pub most_count: usize,
    pub most_loaded: Vec<String>,
}

/// What the others lose when a tenant is flooded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flood {
    pub tenant: String,
    pub others: Blast,
    /// No other flood takes more: first counts who loses all, then who loses
    /// half.
    pub is_worst: bool,
}

/// The largest group of tenants that have the very same workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identical {
    /// How many there are; 1 if no two tenants have the same.
    pub tenants: usize,
    /// The first of them.
    pub first: Vec<String>,
}

impl Report {
    /// No two tenants share more than `overlap` workers; `None` if not all
    /// were compared, so that it is not known.
    pub fn holds(&self, overlap: usize) -> Option<bool> {
        match self.overlap.most > overlap {
            true => Some(false),
            false => self.overlap.is_complete.then_some(true),
        }
    }
}

/// Finds out what holds for an assignment.
pub fn verify(assignment: &Assignment) -> Report {
    let mut sizes = [0; FOREIGN_SIZE_MAX + 1];
    let mut loads = vec![0; assignment.worker_count()];
    for (_, slots) in assignment.shards() {
        sizes[slots.len()] += 1;
        slots.iter().for_each(|slot| loads[slot.0 as usize] += 1);
    }
    let pairs = Pairs::find(assignment, &sizes, &loads);
    let least_size = sizes.iter().position(|&tenants| tenants > 0).unwrap_or(0);
    Report {
        tenants: assignment.tenant_count(),
        workers: assignment.worker_count(),
        sizes: (0..).zip(sizes).filter(|(_, tenants)| *tenants > 0).collect(),
        survives_attackers: least_size.saturating_sub(1).checked_div(pairs.most),
        balance: balance(assignment, &loads),
        identical: identical(assignment),
        worst_flood: pairs.worst_flood(assignment),
        overlap: pairs.overlap(assignment),
    }
}

fn balance(assignment: &Assignment, loads: &[u32]) -> Balance {
    let (least, most) = (loads.iter().min().copied(), loads.iter().max().copied());
    let (Some(least), Some(most)) = (least, most) else { return Balance::default() };
    let with =
        |load: u32| (0..).zip(loads).filter(move |(_, of)| **of == load).map(|(slot, _)| slot);
    let names = |load: u32| {
        let names = with(load).take(LISTED_MAX).filter_map(|slot| assignment.worker(Slot(slot)));
        names.map(str::to_owned).collect()
    };
    let sum: u64 = loads.iter().map(|&load| u64::from(load)).sum();
    Balance {
        least,
        mean: sum as f64 / loads.len() as f64,
        most,
        least_count: with(least).count(),
        least_loaded: names(least),
        most_count: with(most).count(),
        most_loaded: names(most),
    }
}

/// Sorts the tenants by their workers: equal ones come together.
fn identical(assignment: &Assignment) -> Identical {
    let mut order: Vec<u32> = (0..assignment.tenant_count() as u32).collect();
    order.sort_unstable_by_key(|&tenant| (assignment.slots_of(tenant), tenant));
    let groups =
        order.chunk_by(|one, other| assignment.slots_of(*one) == assignment.slots_of(*other));
    let key = |group: &&[u32]| (group.len(), std::cmp::Reverse(group[0]));
    let Some(largest) = groups.max_by_key(key) else { return Identical::default() };
    let first = largest.iter().take(LISTED_MAX).map(|&tenant| assignment.tenant(tenant).to_owned());
    Identical { tenants: largest.len(), first: first.collect() }
}

/// What is known of pairs of tenants.
struct Pairs {
    most: usize,
    pairs: u128,
    worst: BTreeSet<(u32, u32)>,
    /// For each tenant that is flooded, how many others lose all workers, and
    /// how many lose half or more.
    floods: Vec<[i64; 2]>,
    /// Every so many tenants were compared with all others.
    step: usize,
}

impl Pairs {
    fn find(assignment: &Assignment, sizes: &[usize; FOREIGN_SIZE_MAX + 1], loads: &[u32]) -> Self {
        let comparisons: u128 = loads.iter().map(|&load| u128::from(load).pow(2)).sum();
        let counts = (1..=FOREIGN_SIZE_MAX).map(|count| set_count(sizes, count));
        let sets = counts.fold(0, u128::saturating_add);
        if comparisons > FEW_COMPARISONS && sets <= SETS_MAX {
            return Pairs::by_sets(assignment, sizes);
        }
        Pairs::by_lists(assignment, loads, comparisons.div_ceil(COMPARISONS_MAX).max(1) as usize)
    }

    fn new(assignment: &Assignment, step: usize) -> Self {
        let floods = vec![[0; 2]; assignment.tenant_count()];
        Pairs { most: 0, pairs: 0, worst: BTreeSet::new(), floods, step }
    }

    /// Looks for the largest sets that several tenants have. If these are half
    /// of a shard, floods matter: then those down to half of a shard too.
    fn by_sets(assignment: &Assignment, sizes: &[usize; FOREIGN_SIZE_MAX + 1]) -> Self {
        let mut pairs = Pairs::new(assignment, 1);
        let shared = SharedSets::new(assignment, *sizes);
        let least = sizes.iter().position(|&tenants| tenants > 0).unwrap_or(0);
        pairs.most = largest_shared(&shared, sizes);
        let half = least.div_ceil(2).max(1);
        for count in half.min(pairs.most).max(1)..=pairs.most {
            let factors = std::array::from_fn(|size| flood_factors(size, count));
            shared.each(count, |tenants| {
                if count == pairs.most {
                    pairs.add_group(tenants);
                }
                pairs.add_floods(assignment, tenants, &factors);
            });
        }
        pairs
    }

    /// Tenants that share the most workers, and so no others.
    fn add_group(&mut self, tenants: &[u32]) {
        self.pairs += tenants.len() as u128 * (tenants.len() as u128 - 1) / 2;
        let others = |at: usize| tenants[at + 1..].iter().map(move |&other| (tenants[at], other));
        (0..tenants.len()).flat_map(others).take(LISTED_MAX).for_each(|pair| self.keep(pair));
    }

    /// Adds what tenants that have a set in common lose by each other's flood.
    fn add_floods(&mut self, assignment: &Assignment, tenants: &[u32], factors: &Factors) {
        let factors = |tenant: u32| factors[assignment.slots_of(tenant).len()];
        let mut sums = [0; 2];
        for &tenant in tenants {
            sums.iter_mut().zip(factors(tenant)).for_each(|(sum, factor)| *sum += factor);
        }
        for &tenant in tenants {
            let own = factors(tenant);
            let floods = &mut self.floods[tenant as usize];
            (0..2).for_each(|at| floods[at] += sums[at] - own[at]);
        }
    }

    /// Compares every `step`th tenant with all that share a worker with it.
    fn by_lists(assignment: &Assignment, loads: &[u32], step: usize) -> Self {
        let mut pairs = Pairs::new(assignment, step);
        let mut tenants_of: Vec<Vec<u32>> =
            loads.iter().map(|&load| Vec::with_capacity(load as usize)).collect();
        for tenant in 0..assignment.tenant_count() as u32 {
            let slots = assignment.slots_of(tenant).iter();
            slots.for_each(|slot| tenants_of[slot.0 as usize].push(tenant));
        }
        let mut shared = vec![0u8; assignment.tenant_count()];
        let mut met = Vec::new();
        for tenant in (0..assignment.tenant_count() as u32).step_by(step) {
            for slot in assignment.slots_of(tenant) {
                for &other in &tenants_of[slot.0 as usize] {
                    if shared[other as usize] == 0 {
                        met.push(other);
                    }
                    shared[other as usize] += 1;
                }
            }
            for other in met.drain(..) {
                let count = std::mem::take(&mut shared[other as usize]);
                if other != tenant {
                    pairs.add_pair(assignment, tenant, other, count.into());
                }
            }
        }
        pairs
    }

    fn add_pair(&mut self, assignment: &Assignment, tenant: u32, other: u32, count: usize) {
        let size = assignment.slots_of(other).len();
        let floods = &mut self.floods[tenant as usize];
        floods[0] += i64::from(count == size);
        floods[1] += i64::from(2 * count >= size);
        if count > self.most {
            (self.most, self.pairs) = (count, 0);
            self.worst.clear();
        }
        // Both are compared with all others; the pair counts once.
        let is_counted_there = other < tenant && (other as usize).is_multiple_of(self.step);
        if count == self.most && !is_counted_there {
            self.pairs += 1;
            self.keep((tenant.min(other), tenant.max(other)));
        }
    }

    fn keep(&mut self, pair: (u32, u32)) {
        let is_full = self.worst.len() == LISTED_MAX;
        if is_full && self.worst.last().is_some_and(|last| *last < pair) {
            return;
        }
        self.worst.insert(pair);
        if self.worst.len() > LISTED_MAX {
            self.worst.pop_last();
        }
    }

    fn overlap(&self, assignment: &Assignment) -> Overlap {
        let name = |tenant: u32| assignment.tenant(tenant).to_owned();
        Overlap {
            most: self.most,
            pairs: self.pairs,
            worst: self.worst.iter().map(|&(one, other)| (name(one), name(other))).collect(),
            compared: assignment.tenant_count().div_ceil(self.step),
            is_complete: self.step == 1,
        }
    }

    fn worst_flood(&self, assignment: &Assignment) -> Option<Flood> {
        let compared = (0..self.floods.len()).step_by(self.step);
        let worst = compared.max_by_key(|&at| (self.floods[at], std::cmp::Reverse(at)))? as u32;
        let shards = assignment.shards().map(|(_, slots)| slots);
        Some(Flood {
            tenant: assignment.tenant(worst).to_owned(),
            others: of_tenant_among(shards, assignment.slots_of(worst)),
            is_worst: self.step == 1,
        })
    }
}

/// For shards of each size, how a shared set counts for who loses all and for
/// who loses half.
type Factors = [[i64; 2]; FOREIGN_SIZE_MAX + 1];

/// A tenant that loses half shares `half` workers or more with the flooded
/// one. Such tenants are counted by the sets that they share: by inclusion and
/// exclusion, sets of `count` workers count with this factor.
fn flood_factors(size: usize, count: usize) -> [i64; 2] {
    let half = size.div_ceil(2);
    if count < half || size == 0 {
        return [0; 2];
    }
    let sets = choose(count as u64 - 1, half as u64 - 1).unwrap_or(0) as i64;
    let sign = if (count - half).is_multiple_of(2) { 1 } else { -1 };
    [i64::from(count == size), sign * sets]
}

/// The size of the largest set that several tenants have. If there is none of
/// a size, there is none of a larger one; so sizes are tried from both ends,
/// the cheaper one first.
fn largest_shared(shared: &SharedSets<'_>, sizes: &[usize; FOREIGN_SIZE_MAX + 1]) -> usize {
    let largest = sizes.iter().rposition(|&tenants| tenants > 0).unwrap_or(0);
    let (mut low, mut high) = (0, largest + 1);
    while low + 1 < high {
        let is_up_cheaper = set_count(sizes, low + 1) <= set_count(sizes, high - 1);
        let count = if is_up_cheaper { low + 1 } else { high - 1 };
        match shared.is_any(count) {
            true => low = count,
            false => high = count,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::spread;
    use crate::shard::Shard;
    use crate::tally::tests::striped;

    fn named<'a>(shards: impl IntoIterator<Item = &'a [Slot]>) -> Assignment {
        let tenant = |(number, slots): (usize, &[Slot])| {
            (format!("t{number}"), slots.iter().map(|slot| format!("w{slot}")).collect())
        };
        Assignment::new(shards.into_iter().enumerate().map(tenant)).unwrap()
    }

    fn first_shards(sizes: &[u32], overlap: usize, count: usize) -> Vec<Shard> {
        striped(sizes, overlap, None).shards(0).map(|(_, shard)| shard).take(count).collect()
    }

    /// Random shards of the given sizes.
    fn random(seed: u64, tenants: u64, workers: u32, sizes: &[usize]) -> Assignment {
        let mut draw = spread(seed);
        let mut next = |below: usize| {
            draw = draw.wrapping_add(1);
            (spread(draw) % below as u64) as usize
        };
        let mut shards: Vec<Vec<Slot>> = Vec::new();
        for _ in 0..tenants {
            let size = sizes[next(sizes.len())];
            let mut slots = Vec::new();
            while slots.len() < size {
                let slot = Slot(next(workers as usize) as u32);
                if !slots.contains(&slot) {
                    slots.push(slot);
                }
            }
            shards.push(slots);
        }
        named(shards.iter().map(|slots| &slots[..]))
    }

    /// Compares every tenant with every other.
    fn by_brute_force(assignment: &Assignment) -> Pairs {
        let mut pairs = Pairs::new(assignment, 1);
        let tenants = 0..assignment.tenant_count() as u32;
        for tenant in tenants.clone() {
            let own = assignment.slots_of(tenant);
            for other in tenants.clone().filter(|other| *other != tenant) {
                let slots = assignment.slots_of(other);
                let count = slots.iter().filter(|slot| own.contains(slot)).count();
                if count > 0 {
                    pairs.add_pair(assignment, tenant, other, count);
                }
            }
        }
        pairs
    }

    #[test]
    fn all_ways_find_the_same_pairs() {
        for (seed, tenants, workers, sizes) in [
            (1, 120, 20, &[4][..]),
            (2, 100, 60, &[4]),
            (3, 60, 12, &[2, 3, 4]),
            (4, 80, 9, &[1, 2, 5]),
            (5, 50, 40, &[1]),
            (6, 40, 30, &[7, 3]),
            (7, 2, 30, &[3]),
            (8, 1, 30, &[3]),
        ] {
            let assignment = random(seed, tenants, workers, sizes);
            let mut sizes = [0; FOREIGN_SIZE_MAX + 1];
            let mut loads = vec![0; assignment.worker_count()];
            for (_, slots) in assignment.shards() {
                sizes[slots.len()] += 1;
                slots.iter().for_each(|slot| loads[slot.0 as usize] += 1);
            }
            let expected = by_brute_force(&assignment);
            for found in
                [Pairs::by_sets(&assignment, &sizes), Pairs::by_lists(&assignment, &loads, 1)]
            {
                assert_eq!((found.most, found.pairs), (expected.most, expected.pairs), "{seed}");
                assert_eq!(found.worst, expected.worst, "{seed}");
                assert_eq!(found.floods, expected.floods, "{seed}");
            }
        }
    }

    #[test]
    fn a_design_keeps_its_promise_and_a_planted_breach_is_found() {
        let mut shards = first_shards(&[32; 4], 2, 20_000);
        let report = verify(&named(shards.iter().map(|shard| &shard[..])));
        assert_eq!((report.tenants, report.workers), (20_000, 128));
        assert_eq!(report.sizes, [(4, 20_000)]);
        assert_eq!((report.overlap.most, report.overlap.is_complete), (2, true));
        assert_eq!((report.holds(2), report.holds(1)), (Some(true), Some(false)));
        assert_eq!((report.balance.least, report.balance.most), (625, 625));
        assert_eq!((report.identical.tenants, report.survives_attackers), (1, Some(1)));
        assert_eq!(report.worst_flood.as_ref().unwrap().others.lost_all, 0);
        // One tenant gets three of the four workers of another.
        let free = (0..32).map(Slot).find(|slot| *slot != shards[77][0]).unwrap();
        shards[19_000] = Shard::new([free, shards[77][1], shards[77][2], shards[77][3]]);
        let report = verify(&named(shards.iter().map(|shard| &shard[..])));
        assert_eq!(report.overlap.most, 3);
        assert!(report.overlap.worst.contains(&("t77".into(), "t19000".into())));
        assert_eq!(report.holds(2), Some(false));
        // Another gets the very same.
        shards[9] = shards[8];
        let report = verify(&named(shards.iter().map(|shard| &shard[..])));
        assert_eq!((report.overlap.most, report.overlap.pairs), (4, 1));
        assert_eq!(report.overlap.worst, [("t8".into(), "t9".into())]);
        assert_eq!((report.identical.tenants, report.survives_attackers), (2, Some(0)));
        assert_eq!(report.identical.first, ["t8", "t9"]);
        let flood = report.worst_flood.unwrap();
        assert!(flood.is_worst && ["t8", "t9"].contains(&flood.tenant.as_str()));
        assert_eq!(flood.others.lost_all, 1);
    }

    #[test]
    fn what_was_left_out_is_told() {
        let assignment = random(9, 3_000, 70, &[30]);
        let (mut loads, step) = (vec![0; 70], 10);
        let slots = assignment.shards().flat_map(|(_, slots)| slots);
        slots.for_each(|slot| loads[slot.0 as usize] += 1);
        let some = Pairs::by_lists(&assignment, &loads, step);
        let overlap = some.overlap(&assignment);
        assert_eq!((overlap.compared, overlap.is_complete), (300, false));
        assert!(!some.worst_flood(&assignment).unwrap().is_worst);
        // All of them are few enough: lists are used, since the sets are not.
        let all = verify(&assignment).overlap;
        assert!(all.is_complete && all.most >= overlap.most);
    }

    #[test]
    fn loads_and_groups_are_told_by_name() {
        let tenant = |name: &str, workers: &[&str]| {
            (name.to_owned(), workers.iter().map(|worker| worker.to_string()).collect())
        };
        let assignment = Assignment::with_workers(
            ["idle".to_owned()],
            [tenant("x", &["a", "b"]), tenant("y", &["b", "a"]), tenant("z", &["a", "c", "d"])],
        );
        let report = verify(&assignment.unwrap());
        assert_eq!(report.sizes, [(2, 2), (3, 1)]);
        let Balance { least, mean, most, least_loaded, most_loaded, .. } = report.balance;
        assert_eq!((least, mean, most), (0, 7.0 / 5.0, 3));
        assert_eq!((least_loaded, most_loaded), (vec!["idle".to_owned()], vec!["a".to_owned()]));
        assert_eq!(report.identical.first, ["x", "y"]);
        assert_eq!(report.worst_flood.unwrap().others.by_lost, [0, 1, 1, 0]);
        let nobody = verify(&Assignment::new([]).unwrap());
        assert_eq!((nobody.worst_flood, nobody.survives_attackers), (None, None));
        assert_eq!(nobody.identical, Identical::default());
    }
}
