//! Which owner of a slot to ask first, while they are loaded unevenly.
//!
//! Slots are spread evenly, questions are not: one name may be asked as often
//! as all others together, and one node may be slower than the rest. Both show
//! in how many questions are outstanding at a member. Above a bound, what it
//! cannot take goes to the next owner, which has the entries as well.

/// Questions that a member may have outstanding above its share before any
/// overflow: chance alone makes small numbers differ by that much, and an
/// overflow is not free, because the next owner may have to ask upstream for
/// what the first one already asks.
const SLACK: u32 = 64;
/// How far above the average a member may be loaded: 5/4, as for slots on a
/// bounded ring. It must be above 1, so that the least loaded is always below.
const LOAD_NUMERATOR: u64 = 5;
const LOAD_DENOMINATOR: u64 = 4;

/// How many questions a member may have outstanding and still be asked: a
/// quarter more than the average member that serves, and [`SLACK`] on top.
///
/// The average is over all members, not over the owners of one slot: two
/// owners that are both drowning must not look normal to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBound(u32);

impl LoadBound {
    /// The bound when `outstanding` questions wait for `serving` members
    /// together.
    pub fn new(outstanding: u64, serving: usize) -> Self {
        let serving = (serving as u64).max(1);
        let share = outstanding.saturating_mul(LOAD_NUMERATOR) / LOAD_DENOMINATOR / serving;
        LoadBound(u32::try_from(share).unwrap_or(u32::MAX).saturating_add(SLACK))
    }

    /// True if a member with as many `outstanding` questions takes one more.
    pub fn admits(self, outstanding: u32) -> bool {
        outstanding < self.0
    }
}

/// The rank in `owners` of the one to ask first: the first that is up and whose
/// load the bound admits; if it admits none, the least loaded that is up.
/// `None` if none is up.
pub fn pick(
    owners: &[u16],
    bound: LoadBound,
    outstanding: impl Fn(u16) -> u32,
    is_up: impl Fn(u16) -> bool,
) -> Option<usize> {
    let mut least: Option<(u32, usize)> = None;
    for (rank, owner) in owners.iter().enumerate() {
        if !is_up(*owner) {
            continue;
        }
        let load = outstanding(*owner);
        if bound.admits(load) {
            return Some(rank);
        }
        if least.is_none_or(|(smallest, _)| load < smallest) {
            least = Some((load, rank));
        }
    }
    least.map(|(_, rank)| rank)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Picks among owners 0, 1, … with these loads; `None` is one that is down.
    fn pick_among(loads: &[Option<u32>], bound: LoadBound) -> Option<usize> {
        let owners: Vec<u16> = (0..loads.len() as u16).collect();
        let load = |owner: u16| loads[owner as usize];
        let outstanding = |owner| load(owner).expect("only those that are up are asked");
        pick(&owners, bound, outstanding, |owner| load(owner).is_some())
    }

    #[test]
    fn bounds_are_a_quarter_above_the_average_and_some() {
        let check = |outstanding, serving, expected| {
            assert_eq!(LoadBound::new(outstanding, serving), LoadBound(expected));
        };
        check(0, 4, 64);
        check(0, 0, 64);
        check(400, 4, 64 + 125);
        check(1_000, 0, 64 + 1_250);
        check(u64::MAX, 1, u32::MAX);
    }

    #[test]
    fn overflow_goes_to_the_next_in_rank() {
        let bound = LoadBound::new(400, 4);
        assert_eq!(pick_among(&[Some(188), Some(0), Some(0)], bound), Some(0));
        assert_eq!(pick_among(&[Some(189), Some(100), Some(0)], bound), Some(1));
        assert_eq!(pick_among(&[Some(189), Some(189), Some(0)], bound), Some(2));
        assert_eq!(pick_among(&[Some(200), Some(190), Some(190)], bound), Some(1));
        assert_eq!(pick_among(&[None, Some(500), Some(400)], bound), Some(2));
        assert_eq!(pick_among(&[None, None], bound), None);
        assert_eq!(pick_among(&[], bound), None);
    }

    fn loads() -> impl Strategy<Value = Vec<Option<u32>>> {
        prop::collection::vec(prop::option::weighted(0.8, 0..400u32), 0..8)
    }

    proptest! {
        #[test]
        fn a_member_that_is_down_is_never_asked(loads in loads(), outstanding in 0..4_000u64) {
            let picked = pick_among(&loads, LoadBound::new(outstanding, 8));
            prop_assert_eq!(picked.is_some(), loads.iter().any(Option::is_some));
            prop_assert!(picked.is_none_or(|rank| loads[rank].is_some()));
        }

        #[test]
        fn without_load_the_first_that_is_up_is_asked(loads in loads()) {
            let idle: Vec<Option<u32>> = loads.iter().map(|load| load.map(|_| 0)).collect();
            let expected = idle.iter().position(Option::is_some);
            prop_assert_eq!(pick_among(&idle, LoadBound::new(0, 8)), expected);
        }

        #[test]
        fn better_ranks_were_too_loaded_and_so_were_all_if_the_picked_one_is(
            loads in loads(), outstanding in 0..4_000u64,
        ) {
            let bound = LoadBound::new(outstanding, 8);
            let Some(rank) = pick_among(&loads, bound) else { return Ok(()) };
            let picked = loads[rank].unwrap();
            prop_assert!(!loads[..rank].iter().flatten().any(|load| bound.admits(*load)));
            if !bound.admits(picked) {
                prop_assert!(loads.iter().flatten().all(|load| picked <= *load));
                prop_assert!(loads[..rank].iter().flatten().all(|load| picked < *load));
            }
        }

        /// Why the factor is above 1: as long as all owners serve and are up,
        /// nobody is asked beyond the bound.
        #[test]
        fn somebody_is_always_below_the_bound(
            loads in prop::collection::vec(any::<u32>(), 1..16),
        ) {
            let total = loads.iter().map(|load| u64::from(*load)).sum();
            let bound = LoadBound::new(total, loads.len());
            let up: Vec<Option<u32>> = loads.iter().copied().map(Some).collect();
            let least = loads.iter().copied().min().unwrap();
            prop_assume!(least < u32::MAX);
            prop_assert!(bound.admits(least));
            prop_assert!(bound.admits(loads[pick_among(&up, bound).unwrap()]));
        }
    }
}
