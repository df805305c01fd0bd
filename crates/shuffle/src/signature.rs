//! Shards from nothing but a tenant's name: stateless, and WITHOUT A BOUND.
//!
//! Every worker draws a number for every tenant, under a key, and the lowest
//! of each column serve it (weighted rendezvous hashing). Nothing is kept and
//! nobody is asked, and when workers come or go a tenant changes only those.
//!
//! **Nothing is promised about what two tenants share.** Where a design
//! guarantees that no two of its shards share more than `overlap`, these may
//! share everything, and with enough tenants some do: of a million on four
//! stripes of 512, about seven pairs. [`Signature::chance_of_twins`] tells how
//! likely that is. Use an [`Allocator`](crate::Allocator) wherever a few bytes
//! of state can be kept; this is for where they cannot.

use std::hash::Hasher;
use std::ops::Deref;

use siphasher::sip::SipHasher24;

use crate::bound::choose;
use crate::fleet::{Columns, Fleet, FleetError, Worker};
use crate::key::Key;
use crate::shard::SIZE_MAX;

/// Tenants that are drawn to estimate a chance.
const SAMPLES: u64 = 200;

/// Draws shards from names. There is NO bound on what two of them share.
///
/// ```
/// use shuffle::{Fleet, Key, STRIPE, Signature};
/// let fleet = Fleet::numbered(2048, Some(4))?;
/// let signature = Signature::striped(&fleet, &fleet.columns(4, &[STRIPE])?, &Key::PUBLIC);
/// let shard = signature.shard(b"example.com");
/// assert_eq!(shard.len(), 4);
/// // Seven pairs of a million tenants share everything.
/// assert!((7.0..8.0).contains(&signature.twins_expected(1_000_000)));
/// # Ok::<(), shuffle::FleetError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Signature {
    columns: Vec<Vec<Candidate>>,
    /// Workers of each column that serve a tenant.
    picks: usize,
    key: Key,
}

#[derive(Clone, Debug)]
struct Candidate {
    worker: Worker,
    digest: u64,
}

/// The workers that serve a tenant, by chance.
///
/// It is neither a [`Shard`](crate::Shard) nor a number of one, and cannot be
/// made into either: what holds for the shards of a design does not hold here.
///
/// ```compile_fail
/// # use shuffle::*;
/// fn confuse(drawn: SignatureShard<'_>) -> DesignIndex {
///     drawn.into()
/// }
/// ```
///
/// ```compile_fail
/// # use shuffle::*;
/// fn confuse(design: &Design, drawn: &SignatureShard<'_>) -> Option<DesignIndex> {
///     design.index(drawn)
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SignatureShard<'s>(Vec<&'s Worker>);

impl Signature {
    /// One worker of each column serves a tenant.
    pub fn striped(fleet: &Fleet, columns: &Columns, key: &Key) -> Self {
        let column = |number: usize| {
            let workers = columns.column(number).iter().filter_map(|slot| fleet.worker(*slot));
            workers.map(|worker| Candidate::new(worker, key)).collect()
        };
        Signature { columns: (0..columns.count()).map(column).collect(), picks: 1, key: *key }
    }

    /// Any `size` workers of a fleet serve a tenant.
    pub fn whole(fleet: &Fleet, size: usize, key: &Key) -> Result<Self, FleetError> {
        let workers = fleet.workers().len();
        if size == 0 || size > SIZE_MAX.min(workers) {
            return Err(FleetError::Size { size, workers });
        }
        let candidates = fleet.workers().iter().map(|worker| Candidate::new(worker, key)).collect();
        Ok(Signature { columns: vec![candidates], picks: size, key: *key })
    }

    /// The workers for a tenant, in the order of the columns; without columns,
    /// the one that wants it most first.
    pub fn shard(&self, tenant: &[u8]) -> SignatureShard<'_> {
        let digest = digest(&self.key, "tenant", tenant);
        let mut shard = Vec::with_capacity(self.columns.len() * self.picks);
        for column in &self.columns {
            let mut lowest: Vec<(f64, &Candidate)> = Vec::with_capacity(self.picks + 1);
            for candidate in column {
                let draw = candidate.draw(digest, &self.key);
                let is_before = |(other, rival): &(f64, &Candidate)| {
                    other
                        .total_cmp(&draw)
                        .then_with(|| rival.worker.id.cmp(&candidate.worker.id))
                        .is_lt()
                };
                let at = lowest.partition_point(is_before);
                lowest.insert(at, (draw, candidate));
                lowest.truncate(self.picks);
            }
            shard.extend(lowest.into_iter().map(|(_, candidate)| &candidate.worker));
        }
        SignatureShard(shard)
    }

    /// The chance that two tenants are served by exactly the same workers.
    /// Exact, except without columns and with unequal weights: then it is
    /// estimated from some hundred draws.
    pub fn chance_of_twins(&self) -> f64 {
        if self.picks == 1 {
            return self.columns.iter().map(|column| chance_of_same(column)).product();
        }
        let column = &self.columns[0];
        let first = column[0].worker.weight;
        if column.iter().all(|candidate| candidate.worker.weight == first) {
            let sets = choose(column.len() as u64, self.picks as u64);
            return sets.map_or(0.0, |sets| 1.0 / sets as f64);
        }
        // The chance of a set, on average over sets that are drawn by chance.
        let total: f64 = column.iter().map(|candidate| candidate.worker.weight).sum();
        let chance = |n: u64| chance_of_set(&self.shard(&n.to_le_bytes()), total);
        (0..SAMPLES).map(chance).sum::<f64>() / SAMPLES as f64
    }

    /// How many pairs of so many tenants have the same workers, on average.
    pub fn twins_expected(&self, tenants: u64) -> f64 {
        let tenants = tenants as f64;
        tenants * (tenants - 1.0).max(0.0) / 2.0 * self.chance_of_twins()
    }
}

impl Candidate {
    fn new(worker: &Worker, key: &Key) -> Self {
        let digest = digest(key, "worker", worker.id.as_bytes());
        Candidate { worker: worker.clone(), digest }
    }

    /// Exponentially distributed, by the weight: the lowest of several is that
    /// of one with a chance in proportion to its weight.
    fn draw(&self, tenant: u64, key: &Key) -> f64 {
        let mut hasher = SipHasher24::new_with_key(&key.to_bytes());
        hasher.write(&tenant.to_le_bytes());
        hasher.write(&self.digest.to_le_bytes());
        let uniform = ((hasher.finish() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln() / self.worker.weight
    }
}

fn digest(key: &Key, purpose: &str, name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&key.to_bytes());
    hasher.write(purpose.as_bytes());
    hasher.write(name);
    hasher.finish()
}

/// The chance that one column gives two tenants the same worker.
fn chance_of_same(column: &[Candidate]) -> f64 {
    let total: f64 = column.iter().map(|candidate| candidate.worker.weight).sum();
    column.iter().map(|candidate| (candidate.worker.weight / total).powi(2)).sum()
}

/// The chance to draw these workers, in whatever order, from a fleet whose
/// weights sum up to `total`.
fn chance_of_set(workers: &[&Worker], total: f64) -> f64 {
    // For each part of them, the chance that it comes first.
    let mut chances = vec![0.0; 1 << workers.len()];
    chances[0] = 1.0;
    for part in 0..chances.len() {
        let is_in = |at: &usize| part >> at & 1 == 1;
        let weight = |at: usize| workers[at].weight;
        let taken: f64 = (0..workers.len()).filter(is_in).map(weight).sum();
        for next in (0..workers.len()).filter(|at| !is_in(at)) {
            chances[part | 1 << next] += chances[part] * weight(next) / (total - taken);
        }
    }
    chances.last().copied().unwrap_or(1.0)
}

impl<'s> Deref for SignatureShard<'s> {
    type Target = [&'s Worker];

    fn deref(&self) -> &[&'s Worker] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::STRIPE;
    use std::collections::HashMap;

    fn worker(id: usize, stripe: usize, weight: f64) -> Worker {
        Worker { id: format!("w{id}"), domains: vec![stripe.to_string()], weight }
    }

    fn fleet(sizes: &[usize], weight: impl Fn(usize) -> f64) -> Fleet {
        let stripes = sizes.iter().enumerate().flat_map(|(s, &len)| (0..len).map(move |n| (s, n)));
        // Ids that do not change when a stripe grows.
        let workers = stripes.map(|(s, n)| worker(s * 1000 + n, s, weight(n))).collect();
        Fleet::new(vec![STRIPE.into()], workers).unwrap()
    }

    fn striped(sizes: &[usize]) -> Signature {
        let fleet = fleet(sizes, |_| 1.0);
        Signature::striped(&fleet, &fleet.columns(sizes.len(), &[STRIPE]).unwrap(), &Key::PUBLIC)
    }

    fn ids(signature: &Signature, tenant: u32) -> Vec<String> {
        let shard = signature.shard(&tenant.to_le_bytes());
        shard.iter().map(|worker| worker.id.clone()).collect()
    }

    /// How many workers a change of the fleet replaces, by tenants.
    fn replaced(before: &Signature, after: &Signature, tenants: u32) -> Vec<usize> {
        let count = |tenant| {
            let old = ids(before, tenant);
            ids(after, tenant).iter().filter(|id| !old.contains(id)).count()
        };
        let mut tenants_by_count = vec![0; 5];
        (0..tenants).for_each(|tenant| tenants_by_count[count(tenant)] += 1);
        tenants_by_count
    }

    #[test]
    fn one_worker_more_changes_one_place_of_few_tenants() {
        let changed = replaced(&striped(&[25; 4]), &striped(&[26, 25, 25, 25]), 4000);
        assert_eq!(changed[2..], [0; 3]);
        // A 26th of one column.
        assert!((110..200).contains(&changed[1]), "{changed:?}");
        let whole = |len| Signature::whole(&fleet(&[len], |_| 1.0), 4, &Key::PUBLIC).unwrap();
        let changed = replaced(&whole(100), &whole(101), 4000);
        assert_eq!(changed[2..], [0; 3]);
        // Four of 101.
        assert!((115..205).contains(&changed[1]), "{changed:?}");
        let back = replaced(&whole(101), &whole(100), 4000);
        assert_eq!(back, changed);
    }

    #[test]
    fn loads_follow_weights() {
        let fleet = fleet(&[10], |n| if n < 5 { 1.0 } else { 3.0 });
        let columns = fleet.columns(1, &[STRIPE]).unwrap();
        let signature = Signature::striped(&fleet, &columns, &Key::PUBLIC);
        let heavy = (0..8000u32).filter(|n| signature.shard(&n.to_le_bytes())[0].weight > 2.0);
        let share = heavy.count() as f64 / 8000.0;
        assert!((0.73..0.77).contains(&share), "{share}");
    }

    /// Pairs of tenants with the same workers, counted.
    fn twins(signature: &Signature, tenants: u32) -> f64 {
        let mut counts: HashMap<Vec<String>, u64> = HashMap::new();
        for tenant in 0..tenants {
            let mut ids = ids(signature, tenant);
            ids.sort_unstable();
            *counts.entry(ids).or_default() += 1;
        }
        counts.values().map(|n| n * (n - 1) / 2).sum::<u64>() as f64
    }

    #[test]
    fn twins_come_as_often_as_computed() {
        let uneven = |sizes: &[usize], n: usize| {
            let fleet = fleet(sizes, |n| 1.0 + n as f64);
            match n {
                1 => Signature::striped(
                    &fleet,
                    &fleet.columns(sizes.len(), &[STRIPE]).unwrap(),
                    &Key::PUBLIC,
                ),
                _ => Signature::whole(&fleet, n, &Key::PUBLIC).unwrap(),
            }
        };
        for signature in [
            striped(&[6, 5, 7]),
            uneven(&[6, 5, 7], 1),
            uneven(&[12], 3),
            Signature::whole(&fleet(&[10], |_| 1.0), 3, &Key::PUBLIC).unwrap(),
        ] {
            let (counted, expected) = (twins(&signature, 3000), signature.twins_expected(3000));
            assert!((counted / expected - 1.0).abs() < 0.1, "{counted} {expected}");
        }
    }

    #[test]
    fn sizes_are_checked_and_another_key_is_another_shard() {
        let fleet = fleet(&[4], |_| 1.0);
        assert!(Signature::whole(&fleet, 5, &Key::PUBLIC).is_err());
        assert!(Signature::whole(&fleet, 0, &Key::PUBLIC).is_err());
        let (one, other) = (striped(&[50; 4]), {
            let mut other = striped(&[50; 4]);
            let key = Key::from_hex("1").unwrap();
            other.columns.iter_mut().flatten().for_each(|c| *c = Candidate::new(&c.worker, &key));
            other.key = key;
            other
        });
        let same = (0..100).filter(|n| ids(&one, *n) == ids(&other, *n)).count();
        assert_eq!(same, 0);
        assert_eq!(ids(&one, 7), ids(&one.clone(), 7));
    }
}
