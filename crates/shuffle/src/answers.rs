//! Answers that leave out what is down.
//!
//! What a tree of health-checked records encodes is computed here at once: of
//! a shard's endpoints, those that are healthy. When a whole zone is down, the
//! answer is what is left of the others. When everything seems to be down, it
//! is more likely that the checks are broken than that all endpoints are: then
//! the answer is all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::lattice::{LatticeShard, Placed};

/// The endpoints of a shard, ready to be answered with.
///
/// ```
/// use shuffle::{AnswerSet, LatticeShard, Outcome, Placed};
/// let placed = |zone: &str, endpoint| Placed { coordinates: vec![zone.into()], endpoint };
/// let endpoints = vec![placed("a", 1), placed("a", 2), placed("b", 3), placed("b", 4)];
/// let set = AnswerSet::new(LatticeShard::new(["zone"], endpoints)?);
///
/// assert_eq!(set.answers(|_| true).endpoints, [&1, &3, &2, &4]);
/// let answers = set.answers(|endpoint| *endpoint > 2);
/// assert_eq!((answers.endpoints, answers.failed), (vec![&3, &4], vec![("zone", "a")]));
/// assert_eq!(set.answers(|_| false).outcome, Outcome::FailOpen);
/// assert_eq!(set.tree().to_string(), "zone\n  without a: 3, 4\n  without b: 1, 2\n");
/// # Ok::<(), shuffle::LatticeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerSet<E> {
    dimensions: Vec<String>,
    /// The first endpoints of all cells come first, then their second ones:
    /// however many are answered, they are from as many cells as possible.
    endpoints: Vec<Placed<E>>,
    max_records: usize,
    min_healthy: usize,
}

/// What to answer with, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers<'s, E> {
    pub endpoints: Vec<&'s E>,
    pub outcome: Outcome,
    /// Values of which no endpoint is healthy, with their dimensions.
    pub failed: Vec<(&'s str, &'s str)>,
}

/// How good an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All endpoints that are answered are healthy.
    Healthy,
    /// The healthy ones come first. They are too few to be left alone with all
    /// of the traffic, so some that are not come after them.
    Filled,
    /// None is healthy; the answer is all of them.
    FailOpen,
}

/// What is left of a shard when a value of a dimension fails, for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree<'s, E> {
    pub branches: Vec<Branch<'s, E>>,
}

/// What is left of a shard when one value fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch<'s, E> {
    pub dimension: &'s str,
    pub value: &'s str,
    pub left: Vec<&'s E>,
}

impl<E> AnswerSet<E> {
    /// Records of an answer, unless set otherwise.
    pub const MAX_RECORDS: usize = 8;

    /// Answers for the tenant of a shard.
    pub fn new(shard: LatticeShard<E>) -> Self {
        let (dimensions, endpoints) = shard.into_parts();
        let mut seen: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        let mut ranked: Vec<(usize, Placed<E>)> = Vec::with_capacity(endpoints.len());
        for placed in endpoints {
            let rank = seen.entry(placed.coordinates.clone()).or_default();
            ranked.push((*rank, placed));
            *rank += 1;
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        let endpoints = ranked.into_iter().map(|(_, placed)| placed).collect();
        AnswerSet { dimensions, endpoints, max_records: Self::MAX_RECORDS, min_healthy: 1 }
    }

    /// Answers have no more records than this, and at least one.
    pub fn with_max_records(mut self, max_records: usize) -> Self {
        self.max_records = max_records.max(1);
        self
    }

    /// Fewer healthy endpoints than this are not left alone: others, however
    /// they are, fill the answer up to it.
    pub fn with_min_healthy(mut self, min_healthy: usize) -> Self {
        self.min_healthy = min_healthy;
        self
    }

    /// What to answer with while these endpoints are healthy.
    pub fn answers(&self, is_healthy: impl Fn(&E) -> bool) -> Answers<'_, E> {
        let (healthy, sick): (Vec<&Placed<E>>, Vec<&Placed<E>>) =
            self.endpoints.iter().partition(|placed| is_healthy(&placed.endpoint));
        let failed = self.failed(&healthy);
        let (outcome, filling) = match healthy.len() {
            0 => (Outcome::FailOpen, self.max_records),
            n if n >= self.min_healthy || sick.is_empty() => (Outcome::Healthy, 0),
            n => (Outcome::Filled, self.min_healthy - n),
        };
        // Where something is healthy, the sick may be so, too, before long.
        let (hopeless, hopeful): (Vec<&Placed<E>>, Vec<&Placed<E>>) =
            sick.into_iter().partition(|placed| self.is_within(placed, &failed));
        let filling = hopeful.into_iter().chain(hopeless).take(filling);
        let endpoints = healthy.into_iter().chain(filling).take(self.max_records);
        Answers { endpoints: endpoints.map(|placed| &placed.endpoint).collect(), outcome, failed }
    }

    /// Values of the shard that no healthy endpoint has.
    fn failed(&self, healthy: &[&Placed<E>]) -> Vec<(&str, &str)> {
        let mut failed = Vec::new();
        for (place, dimension) in self.dimensions.iter().enumerate() {
            let alive: BTreeSet<&str> =
                healthy.iter().map(|placed| placed.coordinates[place].as_str()).collect();
            let dead = self.values(place).into_iter().filter(|value| !alive.contains(value));
            failed.extend(dead.map(|value| (dimension.as_str(), value)));
        }
        failed
    }

    fn is_within(&self, placed: &Placed<E>, failed: &[(&str, &str)]) -> bool {
        let mut coordinates = self.dimensions.iter().zip(&placed.coordinates);
        coordinates.any(|(name, value)| failed.contains(&(name.as_str(), value.as_str())))
    }

    fn values(&self, place: usize) -> BTreeSet<&str> {
        self.endpoints.iter().map(|placed| placed.coordinates[place].as_str()).collect()
    }

    /// What would be left, for each value of each dimension, if it failed.
    pub fn tree(&self) -> Tree<'_, E> {
        let mut branches = Vec::new();
        for (place, dimension) in self.dimensions.iter().enumerate() {
            for value in self.values(place) {
                let others = self.endpoints.iter().filter(|p| p.coordinates[place] != value);
                let left = others.map(|placed| &placed.endpoint).collect();
                branches.push(Branch { dimension, value, left });
            }
        }
        Tree { branches }
    }
}

impl<E: fmt::Display> fmt::Display for Tree<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for Branch { dimension, value, left } in &self.branches {
            if last.replace(dimension) != Some(dimension) {
                writeln!(f, "{dimension}")?;
            }
            let left: Vec<String> = left.iter().map(|endpoint| endpoint.to_string()).collect();
            let left = if left.is_empty() { "nothing".to_owned() } else { left.join(", ") };
            writeln!(f, "  without {value}: {left}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::lattice::Lattice;
    use proptest::prelude::*;

    /// Three zones, three versions; endpoints 0 to 8 by their cells.
    fn shard(each: usize) -> LatticeShard<u32> {
        let mut lattice = Lattice::new(["zone", "version"]).unwrap();
        for (number, zone) in (0..).zip(["a", "b", "c"]) {
            for (place, version) in (0..).zip(["1", "2", "3"]) {
                let first = (number * 3 + place) * 10;
                lattice.add(&[zone, version], first..first + 5).unwrap();
            }
        }
        lattice.shard(&Key::PUBLIC, b"tenant", 3, each).unwrap()
    }

    #[test]
    fn a_zone_that_is_down_is_left_out() {
        let set = AnswerSet::new(shard(3));
        let (all, zone) = (set.answers(|_| true), |endpoint: &u32| endpoint / 30);
        assert_eq!((all.endpoints.len(), all.outcome), (8, Outcome::Healthy));
        assert!(all.failed.is_empty());
        let answers = set.answers(|endpoint| zone(endpoint) != 1);
        assert_eq!((answers.endpoints.len(), answers.outcome), (6, Outcome::Healthy));
        assert!(answers.endpoints.iter().all(|endpoint| zone(endpoint) != 1));
        // With its zone, its version is gone from the shard.
        assert_eq!(answers.failed.len(), 2);
        assert_eq!(answers.failed[0], ("zone", "b"));
        let branch = &set.tree().branches[1];
        assert_eq!((branch.dimension, branch.value), ("zone", "b"));
        assert_eq!(branch.left, answers.endpoints);
    }

    #[test]
    fn short_answers_are_of_many_cells() {
        let set = AnswerSet::new(shard(5)).with_max_records(3);
        let answers = set.answers(|_| true);
        let zones: BTreeSet<u32> =
            answers.endpoints.iter().map(|&endpoint| endpoint / 30).collect();
        assert_eq!((answers.endpoints.len(), zones.len()), (3, 3));
    }

    #[test]
    fn few_survivors_are_not_left_alone() {
        let set = AnswerSet::new(shard(3)).with_min_healthy(4);
        let survivor = *set.answers(|_| true).endpoints[1];
        let answers = set.answers(|endpoint| *endpoint == survivor);
        assert_eq!((answers.endpoints.len(), answers.outcome), (4, Outcome::Filled));
        assert_eq!(*answers.endpoints[0], survivor);
        // Its neighbours are the next best.
        let zone = survivor / 30;
        assert!(answers.endpoints[..3].iter().all(|&endpoint| endpoint / 30 == zone));
        let open = set.answers(|_| false);
        assert_eq!((open.endpoints.len(), open.outcome), (8, Outcome::FailOpen));
        assert_eq!(AnswerSet::new(shard(1)).answers(|_| false).endpoints.len(), 3);
    }

    #[test]
    fn trees_are_printed() {
        let tree = AnswerSet::new(shard(1)).tree().to_string();
        let lines: Vec<&str> = tree.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[4]), (8, "zone", "version"));
        let one = Placed { coordinates: vec!["a".into()], endpoint: 7 };
        let set = AnswerSet::new(LatticeShard::new(["zone"], vec![one]).unwrap());
        assert_eq!(set.tree().to_string(), "zone\n  without a: nothing\n");
    }

    proptest! {
        #[test]
        fn answers_keep_their_rules(
            health: u16, each in 1usize..6, max_records in 1usize..20, min_healthy in 0usize..20,
        ) {
            let set = AnswerSet::new(shard(each))
                .with_max_records(max_records)
                .with_min_healthy(min_healthy);
            let order: Vec<u32> = set.endpoints.iter().map(|placed| placed.endpoint).collect();
            let is_healthy = |endpoint: &u32| {
                let at = order.iter().position(|other| other == endpoint).unwrap();
                health >> at & 1 == 1
            };
            let count = order.iter().filter(|endpoint| is_healthy(endpoint)).count();
            let answers = set.answers(is_healthy);
            let given: Vec<u32> = answers.endpoints.iter().map(|&&endpoint| endpoint).collect();
            prop_assert_eq!(&answers, &set.answers(is_healthy));
            prop_assert!(!given.is_empty() && given.len() <= max_records);
            let mut distinct = given.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), given.len());
            // The healthy come first, in the order of the set.
            let first: Vec<u32> = order.iter().copied().filter(|e| is_healthy(e)).collect();
            let shown = count.min(max_records);
            prop_assert_eq!(&given[..shown], &first[..shown]);
            let expected = match count {
                0 => order.len(),
                n => n.max(min_healthy).min(order.len()),
            };
            prop_assert_eq!(given.len(), expected.min(max_records));
            prop_assert_eq!(answers.outcome == Outcome::FailOpen, count == 0);
        }
    }
}
