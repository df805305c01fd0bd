//! Shuffle sharding beside plain sharding and none: what one poisonous tenant
//! takes with it, and what several do.
//!
//! Without sharding every tenant is on all workers. With plain sharding the
//! workers are divided into disjoint shards; workers that are left over make
//! no shard. The measure is the share of all tenants that loses all of its
//! workers, with as many tenants on each shard of a scheme.

use std::fmt;

use crate::blast::{Blast, expected_of_random_failures, of_design_within, of_shards};
use crate::design::Design;
use crate::shard::Slot;

/// Steps for the exact count of one point of a curve.
const POINT_STEPS_MAX: u128 = 1 << 20;

/// A share as a fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    pub part: u128,
    pub whole: u128,
}

impl Ratio {
    pub const NOTHING: Ratio = Ratio { part: 0, whole: 1 };
    pub const EVERYTHING: Ratio = Ratio { part: 1, whole: 1 };

    /// `part` of `whole`; nothing, if there is no whole.
    pub fn new(part: u128, whole: u128) -> Self {
        let divisor = common_divisor(part, whole);
        match whole {
            0 => Ratio::NOTHING,
            _ => Ratio { part: part / divisor, whole: whole / divisor },
        }
    }

    pub fn value(self) -> f64 {
        self.part as f64 / self.whole as f64
    }
}

fn common_divisor(one: u128, other: u128) -> u128 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.whole)
    }
}

/// The share of all tenants that one poisonous tenant takes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    pub workers: u64,
    pub size: usize,
    /// All tenants on all workers: all of them.
    pub none: Ratio,
    /// Disjoint shards: those on the same one.
    pub plain: Ratio,
    /// Shuffle shards: those on the very same one.
    pub shuffled: Ratio,
    /// `shuffled` is not only an upper bound: the capacity of the design is
    /// exact.
    pub is_exact: bool,
}

/// The scope of impact of one tenant under each scheme, for the fleet and the
/// shards of a design.
pub fn scope(design: &Design) -> Scope {
    let (workers, size) = (design.columns().slot_count() as u64, design.guarantee().size);
    Scope {
        workers,
        size,
        none: Ratio::EVERYTHING,
        plain: Ratio::new(1, plain_shards(workers, size)),
        shuffled: Ratio::new(1, design.capacity()),
        is_exact: design.is_capacity_exact(),
    }
}

/// Disjoint shards of a fleet.
fn plain_shards(workers: u64, size: usize) -> u128 {
    u128::from(workers) / size as u128
}

/// What a scheme loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impact {
    /// The share of the tenants that loses all workers.
    pub lost_all: f64,
    /// The share of the tenants that loses half of its workers or more.
    pub lost_half: f64,
}

impl Impact {
    fn both(share: Ratio) -> Self {
        Impact { lost_all: share.value(), lost_half: share.value() }
    }

    fn of(blast: &Blast) -> Self {
        Impact { lost_all: blast.fraction_lost_all(), lost_half: blast.fraction_lost_half() }
    }
}

/// What is lost under each scheme when `count` tenants are flooded, or when
/// `count` workers fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub count: u32,
    pub none: Impact,
    pub plain: Impact,
    pub shuffled: Impact,
}

/// Which tenants a curve is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Population {
    /// One tenant on each shard of the design.
    Everyone,
    /// The tenants that get the first shards of the design, so many.
    First(u64),
}

/// What more and more flooded tenants take with them.
#[derive(Clone, Debug, PartialEq)]
pub struct FloodCurve {
    /// Whom the numbers for shuffle shards count.
    pub population: Population,
    pub points: Vec<Point>,
}

/// Floods 1, 2, and so on up to `most` tenants: those with the first shards of
/// the design. In its order these are apart as long as they can be, and so are
/// those of plain sharding, which is the worst for everybody else. Counts all
/// shards if that is quickly done, else the first `tenants`.
pub fn flood(design: &Design, most: u32, tenants: u64) -> FloodCurve {
    let size = design.guarantee().size;
    let shards = || design.shards(0).map(|(_, shard)| shard);
    let slots: Vec<Slot> = shards().take(most as usize).flat_map(|s| s.to_vec()).collect();
    let floods = || (1..=slots.len() / size).map(|count| &slots[..count * size]);
    let exact = floods().map(|slots| of_design_within(design, slots, POINT_STEPS_MAX));
    let (population, blasts) = match exact.collect::<Result<Vec<Blast>, _>>() {
        Ok(blasts) => (Population::Everyone, blasts),
        Err(_) => {
            let first = || shards().take(usize::try_from(tenants).unwrap_or(usize::MAX));
            let blasts: Vec<Blast> = floods().map(|slots| of_shards(first(), slots)).collect();
            let count = blasts.first().map_or(0, Blast::tenants);
            (Population::First(count as u64), blasts)
        }
    };
    let disjoint = plain_shards(design.columns().slot_count() as u64, size);
    let point = |(count, blast): (u32, &Blast)| Point {
        count,
        none: Impact::both(Ratio::EVERYTHING),
        plain: Impact::both(Ratio::new(disjoint.min(count.into()), disjoint)),
        shuffled: Impact::of(blast),
    };
    FloodCurve { population, points: (1..).zip(&blasts).map(point).collect() }
}

/// What 1, 2, and so on up to `most` random workers that fail are expected to
/// take. Plain and shuffle sharding lose the same on average; the difference
/// is in floods, and in who loses together.
pub fn failures(workers: u32, size: usize, most: u32) -> Vec<Point> {
    let sharded = |count: u32| {
        let chances = expected_of_random_failures(workers, size, count);
        let lost_half = chances[size.div_ceil(2)..].iter().sum();
        Impact { lost_all: chances[size], lost_half }
    };
    let share = |is_lost: bool| if is_lost { 1.0 } else { 0.0 };
    let point = |count: u32| Point {
        count,
        none: Impact {
            lost_all: share(count == workers),
            lost_half: share(2 * u64::from(count) >= workers.into()),
        },
        plain: sharded(count),
        shuffled: sharded(count),
    };
    (1..=most.min(workers)).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::shard::Shard;
    use crate::tally::tests::{striped, whole};

    #[test]
    fn eight_workers_in_pairs_are_as_in_the_books() {
        let Scope { none, plain, shuffled, is_exact, .. } =
            scope(&Design::pairs(whole(8), &Key::PUBLIC));
        assert_eq!((none.to_string(), plain.to_string()), ("1/1".into(), "1/4".into()));
        assert_eq!((shuffled, is_exact), (Ratio { part: 1, whole: 28 }, true));
        assert_eq!(plain.value(), 0.25);
        assert_eq!(Ratio::new(6, 8), Ratio { part: 3, whole: 4 });
        assert_eq!(Ratio::new(0, 8), Ratio::NOTHING);
        assert_eq!(Ratio::new(1, 0), Ratio::NOTHING);
        let default = scope(&striped(&[512; 4], 2, None));
        assert_eq!((default.plain.whole, default.shuffled.whole), (512, 134_217_728));
    }

    #[test]
    fn floods_of_small_designs_are_counted_exactly() {
        let design = striped(&[5; 4], 2, None);
        let curve = flood(&design, 5, 10);
        assert_eq!((curve.population, curve.points.len()), (Population::Everyone, 5));
        assert_eq!(curve.points[0].shuffled.lost_all, 1.0 / 125.0);
        // The fifth tenant is on the last shard that is apart from the others.
        let last = curve.points[4];
        assert_eq!(
            (last.none.lost_all, last.plain.lost_all, last.shuffled.lost_all),
            (1.0, 1.0, 1.0)
        );
        let all: Vec<Shard> = design.shards(0).map(|(_, shard)| shard).collect();
        let slots = [&all[0][..], &all[1], &all[2]].concat();
        let blast = of_shards(&all, &slots);
        assert_eq!(curve.points[2].shuffled, Impact::of(&blast));
        assert!(flood(&design, 1000, 10).points.len() == 125);
    }

    #[test]
    fn floods_of_designs_that_cannot_be_counted_say_so() {
        let design = striped(&[250; 8], 4, Some(503));
        let curve = flood(&design, 3, 1_000);
        assert_eq!(curve.population, Population::First(1_000));
        assert_eq!(curve.points[1].shuffled.lost_all, 2.0 / 1_000.0);
        let full = flood(&striped(&[512; 4], 2, None), 40, 1_000);
        assert_eq!(full.population, Population::Everyone);
        assert!(full.points.windows(2).all(|w| w[0].shuffled.lost_all < w[1].shuffled.lost_all));
        assert!(full.points[39].shuffled.lost_all < full.points[39].plain.lost_all / 100.0);
    }

    #[test]
    fn random_failures_are_alike_for_both_shardings() {
        let points = failures(8, 2, 8);
        assert_eq!(points[1].shuffled, points[1].plain);
        assert!((points[1].shuffled.lost_all - 1.0 / 28.0).abs() < 1e-12);
        assert_eq!((points[6].none.lost_all, points[7].none.lost_all), (0.0, 1.0));
        assert_eq!((points[2].none.lost_half, points[3].none.lost_half), (0.0, 1.0));
        assert_eq!(points[7].plain, Impact { lost_all: 1.0, lost_half: 1.0 });
    }
}
