//! From what is wished to the design that gives most.

use std::fmt;

use crate::bound;
use crate::design::Design;
use crate::fleet::{Columns, Fleet, FleetError};
use crate::key::Key;
use crate::ring::RING_LEN_MAX;
use crate::shard::SIZE_MAX;

/// One of so many numbers has a shard at least: whoever counts on from one
/// shard to the next must not count for long.
const SPARSE_MAX: u128 = 10_000;
/// Numbers that are looked at where shards cannot be counted.
const SAMPLE_LEN: u64 = 100_000;

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
        check_room(wish)?;
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
        let about = if self.design.is_capacity_exact() { "" } else { "at least " };
        Err(Refusal {
            reason: format!(
                "{tenants} tenants need as many shards, and there are {about}{capacity}"
            ),
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
        (Some(overlap), Some(attackers)) if attackers.saturating_mul(overlap) >= size => {
            let lost = attackers.saturating_mul(overlap);
            let others = match (size - 1).checked_div(attackers) {
                Some(less) if lost >= SIZE_MAX => format!("an overlap of {less}"),
                Some(less) => format!("an overlap of {less}, or shards of {}", lost + 1),
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

/// Checks that there is an alphabet for the room.
fn check_room(wish: &Wish) -> Result<(), Refusal> {
    match wish.room {
        Some(room) if room > RING_LEN_MAX => Err(Refusal {
            reason: format!(
                "room for {room} workers in a column; at most {RING_LEN_MAX} are possible"
            ),
            nearest: Some(format!("a room of {RING_LEN_MAX}")),
        }),
        _ => Ok(()),
    }
}

/// Refuses a design that has hardly a shard among its numbers.
fn refuse_sparse(design: Design, wish: &Wish, key: &Key) -> Result<Design, Refusal> {
    if !is_sparse(&design) {
        return Ok(design);
    }
    let columns = design.columns();
    let longest = columns.sizes().max().unwrap_or(0);
    let least = columns.sizes().min().unwrap_or(0);
    let lengths =
        if least == longest { longest.to_string() } else { format!("{least} to {longest}") };
    let overlap = design.guarantee().overlap;
    let fits =
        |room: &u32| !is_sparse(&Design::striped(columns.clone(), overlap, Some(*room), key));
    let rooms = std::iter::successors(wish.room.map(|room| room / 2), |room| Some(room / 2));
    let smaller = rooms.take_while(|room| *room > longest).chain([longest]).find(fits);
    let nearest = match smaller {
        Some(room) => format!("a smaller room, such as {room}"),
        None => format!("columns of more even lengths than {lengths} workers"),
    };
    Err(Refusal {
        reason: format!(
            "room for {} workers in a column of {lengths}: fewer than 1 of \
             {SPARSE_MAX} numbers would have a shard, and counting on to the next would take long",
            design.room()
        ),
        nearest: Some(nearest),
    })
}

/// Fewer than one of [`SPARSE_MAX`] numbers has a shard. Where the capacity is
/// only a bound, or counts shards beyond the last number, numbers are tried.
fn is_sparse(design: &Design) -> bool {
    let end = design.index_end();
    let capacity = design.capacity();
    if design.is_capacity_exact() && capacity <= end.into() {
        return capacity.saturating_mul(SPARSE_MAX) < end.into();
    }
    let step = (end / SAMPLE_LEN) as usize | 1;
    let (mut tried, mut found) = (0u128, 0u128);
    for number in (0..end).step_by(step) {
        tried += 1;
        found += u128::from(design.shard_at(number).is_some());
    }
    found * SPARSE_MAX < tried
}

/// The design with the most shards; of equals the one with the evener loads.
fn best_design(fleet: &Fleet, wish: &Wish, overlap: usize, key: &Key) -> Result<Design, Refusal> {
    let apart: Vec<&str> = wish.apart.iter().map(String::as_str).collect();
    let columns = fleet.columns(wish.size, &apart).map_err(refuse_columns)?;
    let mut best = Design::striped(columns.clone(), overlap, wish.room, key);
    // No other design can grow without moving anybody.
    if wish.room.is_some() {
        return refuse_sparse(best, wish, key);
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
    refuse_sparse(best, wish, key)
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
        for attackers in [usize::MAX, usize::MAX / 2 + 1] {
            let attackers = Wish { attackers: Some(attackers), ..wish(4, 2, None) };
            refused(10, None, attackers, "nearest possible: an overlap of 0");
        }
    }

    #[test]
    fn too_much_room_is_refused() {
        let roomy = |room, size, overlap| Wish { room: Some(room), ..wish(size, overlap, None) };
        for room in [RING_LEN_MAX + 1, 2_000_000, u32::MAX] {
            let said = format!("room for {room} workers in a column; at most 1048576 are possible");
            refused(64, None, roomy(room, 4, 2), &said);
        }
        refused(64, None, roomy(2000, 4, 2), "nearest possible: a smaller room, such as 125");
        refused(64, None, roomy(RING_LEN_MAX, 5, 2), "fewer than 1 of 10000 numbers");
        // More words than numbers, and shards in hardly any of the numbers.
        refused(8192, None, roomy(RING_LEN_MAX, 8, 7), "nearest possible: a smaller room");
        let fleet = Fleet::numbered(64, None).unwrap();
        assert!(Plan::new(&fleet, &roomy(125, 4, 2), &Key::PUBLIC).is_ok());
    }

    #[test]
    fn uneven_columns_with_hardly_a_shard_are_refused() {
        let domain = |number: usize| ["a", "b", "c", "d"][number.min(2 + number % 2)].to_owned();
        let worker = |number: usize| crate::Worker {
            id: number.to_string(),
            domains: vec![domain(number)],
            weight: 1.0,
        };
        let fleet = Fleet::new(vec![STRIPE.into()], (0..602).map(worker).collect()).unwrap();
        let refusal = Plan::new(&fleet, &wish(4, 2, Some(4)), &Key::PUBLIC).unwrap_err();
        assert!(refusal.to_string().contains("more even lengths than 1 to 300"), "{refusal}");
    }

    #[test]
    fn capacities_that_are_bounds_are_called_so() {
        let fleet = Fleet::numbered(2000, None).unwrap();
        let wish = Wish { room: Some(503), tenants: Some(u64::MAX), ..wish(8, 4, None) };
        let refusal = Plan::new(&fleet, &wish, &Key::PUBLIC).unwrap_err();
        assert!(refusal.reason.contains("and there are at least "), "{refusal}");
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
