//! Shuffle sharding the usual way: by searching, with a memory.
//!
//! It stands for what libraries do that place shards without a construction,
//! so that `bench shuffle` has something to compare with. A shard is put
//! together of one random endpoint of each stripe, the stripes in random
//! order. Every `overlap + 1` endpoints of a shard that was handed out are
//! kept as a *fragment*; an endpoint that would complete a kept fragment is
//! passed over, and the next one of its stripe is tried. The search does not
//! go back: when no endpoint of a stripe fits, the attempt has failed. After
//! some failed attempts in a row it gives up, although shards may be left.
//!
//! It is kinder than what it stands for: a fragment is one word and the set is
//! flat, where others keep lists of objects, and the number of attempts is
//! free, where the best known sharder stops after four for each endpoint of a
//! stripe, at 57 % of what is possible on small ones.

use std::collections::HashSet;

use crate::stats::Random;

/// Endpoints of a fragment, so that it fits into a word.
const FRAGMENT_LEN_MAX: usize = 4;
/// The set grows when so many of so many buckets are in use.
const FILLED_MOST: (usize, usize) = (7, 8);

/// Searches for shards and remembers what it handed out.
#[derive(Debug)]
pub struct SearchSharder {
    /// The endpoints of each stripe, in the order of the last draw.
    stripes: Vec<Vec<u16>>,
    /// The order in which the stripes are drawn from.
    order: Vec<usize>,
    /// The places of each fragment of a shard, one bit each.
    fragment_places: Vec<u32>,
    fragments: HashSet<u64>,
    attempts_max: u32,
    random: Random,
    /// One endpoint for each stripe, as far as they are drawn.
    shard: Vec<u16>,
}

impl SearchSharder {
    /// For `count` stripes of `len` endpoints. Of a shard and any other at
    /// most `overlap` endpoints are the same.
    pub fn new(count: usize, len: usize, overlap: usize, attempts_max: u32, seed: u64) -> Self {
        assert!(overlap < count && overlap < FRAGMENT_LEN_MAX && count * len <= 1 << 16);
        let stripe = |number: usize| (number * len..(number + 1) * len).map(|at| at as u16);
        let is_fragment = |places: &u32| places.count_ones() as usize == overlap + 1;
        SearchSharder {
            stripes: (0..count).map(|number| stripe(number).collect()).collect(),
            order: (0..count).collect(),
            fragment_places: (0..1 << count).filter(is_fragment).collect(),
            fragments: HashSet::new(),
            attempts_max,
            random: Random::new(seed),
            shard: vec![0; count],
        }
    }

    /// A shard that shares at most `overlap` endpoints with every one before;
    /// `None` if it gave up.
    pub fn place(&mut self) -> Option<&[u16]> {
        let is_found = (0..self.attempts_max).any(|_| self.attempt());
        is_found.then(|| {
            self.keep_fragments();
            &self.shard[..]
        })
    }

    /// Draws one endpoint of each stripe.
    fn attempt(&mut self) -> bool {
        let mut drawn = 0;
        for turn in 0..self.order.len() {
            let other = turn + self.random.below(self.order.len() - turn);
            self.order.swap(turn, other);
            let stripe = self.order[turn];
            if !self.draw(stripe, drawn) {
                return false;
            }
            drawn |= 1 << stripe;
        }
        true
    }

    /// Draws endpoints of a stripe until one fits those of the stripes `drawn`.
    fn draw(&mut self, stripe: usize, drawn: u32) -> bool {
        let len = self.stripes[stripe].len();
        (0..len).any(|turn| {
            let other = turn + self.random.below(len - turn);
            self.stripes[stripe].swap(turn, other);
            self.shard[stripe] = self.stripes[stripe][turn];
            self.fits(stripe, drawn)
        })
    }

    /// No fragment that the endpoint of this stripe completes was kept.
    fn fits(&self, stripe: usize, drawn: u32) -> bool {
        let (new, all) = (1 << stripe, drawn | 1 << stripe);
        let is_completed = |places: &&u32| **places & new != 0 && **places & !all == 0;
        let mut completed = self.fragment_places.iter().filter(is_completed);
        completed.all(|places| !self.fragments.contains(&self.fragment(*places)))
    }

    fn fragment(&self, places: u32) -> u64 {
        let chosen = self.shard.iter().enumerate().filter(|(place, _)| places >> place & 1 == 1);
        chosen.fold(0, |word, (_, &endpoint)| word << 16 | u64::from(endpoint))
    }

    fn keep_fragments(&mut self) {
        for at in 0..self.fragment_places.len() {
            let fragment = self.fragment(self.fragment_places[at]);
            self.fragments.insert(fragment);
        }
    }

    /// Not one shard is left that would fit: goes through all of them, so it
    /// is for small stripes.
    pub fn is_exhausted(&mut self) -> bool {
        !self.can_complete(0)
    }

    /// Endpoints of this stripe and those after it fit those before it.
    fn can_complete(&mut self, stripe: usize) -> bool {
        if stripe == self.stripes.len() {
            return true;
        }
        let drawn = (1 << stripe) - 1;
        (0..self.stripes[stripe].len()).any(|at| {
            self.shard[stripe] = self.stripes[stripe][at];
            self.fits(stripe, drawn) && self.can_complete(stripe + 1)
        })
    }

    /// How many fragments it remembers.
    pub fn fragment_count(&self) -> usize {
        self.fragments.len()
    }

    /// Octets of the table of fragments: a word and a tag for each bucket.
    pub fn table_bytes(&self) -> usize {
        let (filled, of) = FILLED_MOST;
        let buckets = (self.fragments.capacity() * of).div_ceil(filled).next_power_of_two();
        if self.fragments.capacity() == 0 { 0 } else { buckets * (size_of::<u64>() + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_shards(sharder: &mut SearchSharder) -> Vec<Vec<u16>> {
        std::iter::from_fn(|| sharder.place().map(<[u16]>::to_vec)).collect()
    }

    #[test]
    fn no_two_shards_share_more_than_promised() {
        for (count, len, overlap) in [(4, 6, 2), (4, 7, 1), (5, 5, 3), (3, 4, 0)] {
            let shards = all_shards(&mut SearchSharder::new(count, len, overlap, 20, 1));
            for (at, one) in shards.iter().enumerate() {
                let stripes: Vec<usize> = one.iter().map(|e| usize::from(*e) / len).collect();
                assert_eq!(stripes, (0..count).collect::<Vec<_>>());
                for other in &shards[..at] {
                    let shared = one.iter().filter(|endpoint| other.contains(endpoint)).count();
                    assert!(shared <= overlap, "{one:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn it_stops_within_the_bound_and_remembers_all_fragments() {
        let mut sharder = SearchSharder::new(4, 8, 2, 1, 7);
        assert_eq!((sharder.fragment_count(), sharder.table_bytes()), (0, 0));
        let count = all_shards(&mut sharder).len();
        assert!((100..512).contains(&count), "{count}");
        // No fragment belongs to two shards.
        assert_eq!(sharder.fragment_count(), 4 * count);
        assert!(sharder.table_bytes() > 8 * sharder.fragment_count());
        assert!(sharder.table_bytes().is_multiple_of(9 << 8));
    }

    #[test]
    fn it_knows_whether_anything_is_left() {
        let mut sharder = SearchSharder::new(4, 6, 2, 1, 7);
        assert!(!sharder.is_exhausted());
        all_shards(&mut sharder);
        assert!(!sharder.is_exhausted(), "the first failed attempt is not the end");
        sharder.attempts_max = 10_000;
        all_shards(&mut sharder);
        assert!(sharder.is_exhausted());
    }

    #[test]
    fn more_attempts_place_more_and_seeds_decide() {
        let count =
            |attempts, seed| all_shards(&mut SearchSharder::new(4, 8, 2, attempts, seed)).len();
        assert!(count(1000, 3) > count(1, 3));
        assert_eq!(count(10, 5), count(10, 5));
        // Where nothing can collide it places all there are.
        assert_eq!(all_shards(&mut SearchSharder::new(2, 5, 0, 1, 1)).len(), 5);
    }
}
