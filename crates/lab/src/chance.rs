//! Everything that is left to chance in a world, from one seed.

use std::ops::Range;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The one source of chance of a world.
#[derive(Clone, Debug)]
pub struct Chance(ChaCha12Rng);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance(ChaCha12Rng::seed_from_u64(seed))
    }

    /// A number of the range, which is not empty.
    pub fn among(&mut self, range: Range<u64>) -> u64 {
        range.start + self.0.next_u64() % (range.end - range.start)
    }

    /// An index below `len`, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.among(0..len as u64) as usize
    }

    /// True once in a thousand times `per_mille`.
    pub fn happens(&mut self, per_mille: u32) -> bool {
        self.among(0..1000) < u64::from(per_mille)
    }

    /// One of `values`, of which there are some.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }

    /// One of `values` by their weights.
    pub fn weigh<T: Copy>(&mut self, values: &[(u64, T)]) -> T {
        let mut draw = self.among(0..values.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in values {
            match draw.checked_sub(*weight) {
                Some(rest) => draw = rest,
                None => return *value,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }

    pub fn octets<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        self.0.fill_bytes(&mut octets);
        octets
    }
}

/// Places of a list of `len`, the first ones far more often than the last: the
/// popularity of names (Zipf's law).
#[derive(Clone, Debug)]
pub struct Popularity(Vec<u64>);

impl Popularity {
    pub fn of(len: usize) -> Self {
        let weights = (1..=len as u64).map(|rank| 1_000_000 / rank);
        Popularity(
            weights
                .scan(0, |sum, weight| {
                    *sum += weight;
                    Some(*sum)
                })
                .collect(),
        )
    }

    pub fn draw(&self, chance: &mut Chance) -> usize {
        let all = *self.0.last().expect("a popularity is of some");
        let draw = chance.among(0..all);
        self.0.partition_point(|sum| *sum <= draw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_drawn_most_and_the_last_now_and_then() {
        let (popularity, mut chance) = (Popularity::of(50), Chance::new(1));
        let mut counts = vec![0; 50];
        (0..100_000).for_each(|_| counts[popularity.draw(&mut chance)] += 1);
        assert!(counts[0] > 10 * counts[20] && counts[49] > 0, "{counts:?}");
    }

    #[test]
    fn weights_decide() {
        let mut chance = Chance::new(1);
        let draws = (0..10_000).filter(|_| chance.weigh(&[(1, 'a'), (0, 'b'), (9, 'c')]) == 'a');
        assert!((800..1200).contains(&draws.count()));
    }
}
