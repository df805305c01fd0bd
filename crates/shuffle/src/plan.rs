//! From what is wished to the design that gives most.

use std::fmt;

use crate::bound;
use crate::design::Design;
use crate::fleet::{Columns, Fleet, FleetError};
use crate::key::Key;
use crate::shard::SIZE_MAX;

/// What is wished of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Workers of a shard.
    pub size: usize,
    /// Workers that two shards may share; by default as many as `attackers`
    /// allows, or half of a shard.
    pub overlap: Option<usize>,
    /// Tenants that may be flooded at once while everybody else keeps a worker.
    pub attackers: Option<usize>,
    /// Tenants that there must be shards for.
    pub tenants: Option<u64>,
    /// Dimensions of failure in which the workers of a shard must all differ.
    pub apart: Vec<String>,
    /// Workers that a column may grow to without moving anybody.
    pub room: Option<u32>,
}

/// The design for a wish, and how good it is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All its shards.
    pub design: Design,
    /// The most shards there can be for so many workers.
    pub bound: u128,
    /// The most shards there can be with one worker of each column; the same
    /// as `bound` for a design without columns.
    pub column_bound: u128,
    /// Tenants that were wished for.
    pub tenants: Option<u64>,
    /// What would have to change to get more shards, and how many that gives.
    pub more: Vec<Change>,
}

/// A change of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What would be different.
    pub what: String,
    /// How many shards there would be.
    pub capacity: u128,
}

/// A wish that cannot be fulfilled: why, and what is nearest to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What is impossible.
    pub reason: String,
    /// The nearest wish that is possible, if any is.
    pub nearest: Option<String>,
}

impl Plan {
    /// Finds the design that fulfils `wish` with the most shards.
    pub fn new(fleet: &Fleet, wish: &Wish, key: &Key) -> Result<Self, Refusal> {
        let overlap = overlap_of(wish, fleet.workers().len())?;
        let design = best_design(fleet, wish, overlap, key)?;
        let columns = design.columns();
        let packing = bound::packing(columns.slot_count() as u64, wish.size, overlap);
        let column_bound = bound::striped(columns, wish.size, overlap).min(packing);
        let more = changes(fleet, wish, overlap, design.capacity(), key);
        let plan = Plan { design, bound: packing, column_bound, tenants: wish.tenants, more };
        plan.check_tenants()?;
        Ok(plan)
    }

    /// The share of the bound that the design reaches.
    pub fn share_of_bound(&self) -> f64 {
        self.design.capacity() as f64 / self.bound.max(1) as f64
    }

    /// How many shards are left when all expected tenants have one.
    pub fn headroom(&self) -> Option<u128> {
        self.tenants.map(|tenants| self.design.capacity().saturating_sub(tenants.into()))
    }

    fn check_tenants(&self) -> Result<(), Refusal> {
        let capacity = self.design.capacity();
        let Some(tenants) = self.tenants.filter(|&tenants| u128::from(tenants) > capacity) else {
            return Ok(());
        };
        let enough = self.more.iter().find(|change| change.capacity >= tenants.into());
        let nearest = match enough {
            Some(Change { what, capacity }) => format!("{what}, which gives {capacity} shards"),
            None => format!("{capacity} tenants"),
        };
        Err(Refusal {
            reason: format!("{tenants} tenants need as many shards, and there are {capacity}"),
            nearest: Some(nearest),
        })
    }
}

/// Checks sizes, and decides how many workers two shards may share.
fn overlap_of(wish: &Wish, workers: usize) -> Result<usize, Refusal> {
    let size = wish.size;
    let refuse = |reason: String, nearest: String| Err(Refusal { reason, nearest: Some(nearest) });
    if size == 0 || size > SIZE_MAX.min(workers) {
        let most = SIZE_MAX.min(workers);
        let reason = format!("shards of {size} workers out of {workers}");
        return refuse(reason, format!("shards of {} workers", size.clamp(1, most)));
    }
    if let Some(overlap) = wish.overlap.filter(|&overlap| overlap >= size) {
        return refuse(
            format!(
                "shards of {size} workers that share up to {overlap}: two tenants could have the \
                 same shard"
            ),
            format!("an overlap of {}", size - 1),
        );
    }
    match (wish.overlap, wish.attackers) {
        (Some(overlap), Some(attackers)) if attackers * overlap >= size => {
            let others = match (size - 1).checked_div(attackers) {
                Some(less) => {
                    format!("an overlap of {less}, or shards of {}", attackers * overlap + 1)
                }
                None => format!("an overlap of {overlap}"),
            };
            refuse(
                format!(
                    "{attackers} flooded tenants that share up to {overlap} workers each with \
                     another can take all {size} of its workers"
                ),
                others,
            )
        }
        (Some(overlap), _) => Ok(overlap),
        (None, Some(0)) => Ok(size - 1),
        (None, Some(attackers)) => Ok((size - 1) / attackers),
        (None, None) => Ok(size / 2),
    }
}

/// The design with the most shards; of equals the one with the evener loads.
fn best_design(fleet: &Fleet, wish: &Wish, overlap: usize, key: &Key) -> Result<Design, Refusal> {
    let apart: Vec<&str> = wish.apart.iter().map(String::as_str).collect();
    let columns = fleet.columns(wish.size, &apart).map_err(refuse_columns)?;
    let mut best = Design::striped(columns.clone(), overlap, wish.room, key);
    // No other design can grow without moving anybody.
    if wish.room.is_some() {
        return Ok(best);
    }
    let mut limit = bound::striped(&columns, wish.size, overlap);
    let mut searched = columns;
    if apart.is_empty() {
        let whole = || whole_fleet(fleet);
        let other = match (wish.size, overlap) {
            (4, 2) => Some(Design::quadruples(whole(), key)),
            (2, 1) => Some(Design::pairs(whole(), key)),
            _ => None,
        };
        best = better(best, other);
        limit = u128::MAX;
        searched = whole();
    }
    limit = limit.min(bound::johnson(fleet.workers().len() as u64, wish.size, overlap));
    if best.capacity() < limit {
        best = better(best, Design::searched(searched, wish.size, overlap, key));
    }
    Ok(best)
}

fn whole_fleet(fleet: &Fleet) -> Columns {
    Columns::new(vec![(0..fleet.workers().len() as u32).map(crate::Slot).collect()])
}

fn better(one: Design, other: Option<Design>) -> Design {
    match other {
        Some(other) if other.capacity() > one.capacity() => other,
        _ => one,
    }
}

fn refuse_columns(error: FleetError) -> Refusal {
    let nearest = match &error {
        FleetError::TooFewGroups { groups, .. } => Some(format!("shards of {groups} workers")),
        _ => None,
    };
    Refusal { reason: error.to_string(), nearest }
}

/// What would give more shards than `capacity`, the least change first.
fn changes(fleet: &Fleet, wish: &Wish, overlap: usize, capacity: u128, key: &Key) -> Vec<Change> {
    let count = |fleet: &Fleet, wish: &Wish, overlap| {
        best_design(fleet, wish, overlap, key).map_or(0, |design| design.capacity())
    };
    let mut more = Vec::new();
    if !wish.apart.is_empty() {
        let what = format!("workers of a shard may share a {}", wish.apart.join(" or a "));
        let together = Wish { apart: Vec::new(), ..wish.clone() };
        more.push(Change { what, capacity: count(fleet, &together, overlap) });
    }
    if overlap + 1 < wish.size {
        let survives = (wish.size - 1) / (overlap + 1);
        let what = format!(
            "an overlap of {}, which survives {survives} flooded tenant{}",
            overlap + 1,
            if survives == 1 { "" } else { "s" }
        );
        more.push(Change { what, capacity: count(fleet, wish, overlap + 1) });
    }
    if let Some(twice) = doubled(fleet) {
        let what = format!("{} workers", twice.workers().len());
        more.push(Change { what, capacity: count(&twice, wish, overlap) });
    }
    more.retain(|change| change.capacity > capacity);
    more
}

/// A fleet with every worker twice, beside itself.
fn doubled(fleet: &Fleet) -> Option<Fleet> {
    let again = |worker: &crate::Worker| {
        let other = crate::Worker { id: format!("{}'", worker.id), ..worker.clone() };
        [worker.clone(), other]
    };
    let workers = fleet.workers().iter().flat_map(again).collect();
    Fleet::new(fleet.dimensions().to_vec(), workers).ok()
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; nearest possible: {nearest}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::STRIPE;

    fn wish(size: usize, overlap: usize, stripes: Option<usize>) -> Wish {
        let apart = stripes.iter().map(|_| STRIPE.to_owned()).collect();
        Wish { size, overlap: Some(overlap), apart, ..Wish::default() }
    }

    fn plan(workers: usize, stripes: Option<usize>, size: usize, overlap: usize) -> Plan {
        let fleet = Fleet::numbered(workers, stripes).unwrap();
        Plan::new(&fleet, &wish(size, overlap, stripes), &Key::PUBLIC).unwrap()
    }

    #[track_caller]
    fn check(workers: usize, stripes: Option<usize>, wished: [usize; 2], name: &str, count: u128) {
        let plan = plan(workers, stripes, wished[0], wished[1]);
        assert_eq!((plan.design.name(), plan.design.capacity()), (name, count));
        assert!(plan.design.capacity() <= plan.column_bound && plan.column_bound <= plan.bound);
    }

    #[test]
    fn the_best_design_is_chosen() {
        check(2048, Some(4), [4, 2], "striped-sum", 134_217_728);
        check(2048, None, [4, 2], "boolean-quadruple", 357_389_824);
        check(2048, Some(8), [8, 2], "striped-polynomial", 16_777_216);
        check(2048, Some(8), [4, 2], "striped-sum", 134_217_728);
        check(8, None, [2, 1], "all-pairs", 28);
        check(7, None, [3, 1], "search", 7);
        check(12, Some(4), [4, 1], "search", 9);
        check(20, Some(5), [5, 2], "striped-polynomial", 64);
        check(100, None, [1, 0], "disjoint", 100);
        check(100, Some(4), [4, 0], "disjoint", 25);
    }

    #[test]
    fn the_full_designs_reach_their_bounds() {
        let striped = plan(2048, Some(4), 4, 2);
        assert_eq!((striped.bound, striped.column_bound), (357_389_824, 134_217_728));
        assert_eq!(plan(2048, None, 4, 2).share_of_bound(), 1.0);
        let whats: Vec<&str> = striped.more.iter().map(|change| change.what.as_str()).collect();
        assert_eq!(
            whats,
            [
                "workers of a shard may share a stripe",
                "an overlap of 3, which survives 1 flooded tenant",
                "4096 workers"
            ]
        );
        assert_eq!(striped.more[0].capacity, 357_389_824);
    }

    #[track_caller]
    fn refused(workers: usize, stripes: Option<usize>, wish: Wish, said: &str) {
        let fleet = Fleet::numbered(workers, stripes).unwrap();
        let refusal = Plan::new(&fleet, &wish, &Key::PUBLIC).unwrap_err();
        assert!(refusal.to_string().contains(said), "{refusal}");
    }

    #[test]
    fn impossible_wishes_are_refused_with_the_nearest_possible_one() {
        refused(2048, Some(4), wish(4, 4, Some(4)), "nearest possible: an overlap of 3");
        refused(2048, Some(4), wish(5, 2, Some(4)), "nearest possible: shards of 4 workers");
        refused(2048, None, wish(0, 0, None), "nearest possible: shards of 1 workers");
        refused(3, None, wish(4, 2, None), "nearest possible: shards of 3 workers");
        let attackers = Wish { attackers: Some(2), ..wish(4, 2, None) };
        refused(2048, None, attackers, "nearest possible: an overlap of 1, or shards of 5");
        let tenants = Wish { tenants: Some(200_000_000), ..wish(4, 2, Some(4)) };
        refused(2048, Some(4), tenants, "may share a stripe, which gives 357389824 shards");
        let tenants = Wish { tenants: Some(1_000_000), ..wish(2, 1, None) };
        refused(8, None, tenants, "nearest possible: 28 tenants");
    }

    #[test]
    fn room_to_grow_goes_before_capacity() {
        let fleet = Fleet::numbered(20, Some(4)).unwrap();
        let wish = Wish { room: Some(7), ..wish(4, 1, Some(4)) };
        let design = Plan::new(&fleet, &wish, &Key::PUBLIC).unwrap().design;
        assert_eq!((design.name(), design.room()), ("striped-polynomial", 7));
    }

    #[test]
    fn attackers_decide_the_overlap() {
        let fleet = Fleet::numbered(2048, None).unwrap();
        for (size, attackers, overlap) in [(4, 1, 3), (8, 3, 2), (8, 7, 1), (8, 8, 0), (8, 0, 7)] {
            let wish = Wish { size, attackers: Some(attackers), ..Wish::default() };
            assert_eq!(overlap_of(&wish, 2048), Ok(overlap));
        }
        let wish = Wish { size: 4, tenants: Some(1_000_000), ..Wish::default() };
        let plan = Plan::new(&fleet, &wish, &Key::PUBLIC).unwrap();
        assert_eq!(plan.design.guarantee().overlap, 2);
        assert_eq!(plan.headroom(), Some(356_389_824));
    }
}
