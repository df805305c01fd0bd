//! Medians, percentiles and the random numbers of the generated data.

use serde::{Deserialize, Serialize};

/// Median, smallest and largest of some rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// `None` without a single value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Spread { median: median_sorted(&sorted), min, max })
    }
}

fn median_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The smallest value that at least `share` of the values do not exceed (nearest rank).
/// `sorted` must be in order and not empty.
pub fn percentile_sorted(sorted: &[u64], share: f64) -> u64 {
    assert!(!sorted.is_empty() && (0.0..=1.0).contains(&share));
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// SplitMix64: one seed decides all generated zones and queries.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is positive.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// At least 0, below 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A label of letters and digits.
    pub fn label(&mut self, len: usize) -> String {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..len).map(|_| char::from(LETTERS[self.below(LETTERS.len())])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_odd_even_and_no_rounds() {
        let odd = Spread { median: 2.0, min: 1.0, max: 9.0 };
        assert_eq!(Spread::of([9.0, 1.0, 2.0]), Some(odd));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 8.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!(percentile_sorted(&values, 0.5), 500);
        assert_eq!(percentile_sorted(&values, 0.99), 990);
        assert_eq!(percentile_sorted(&values, 0.999), 999);
        assert_eq!(percentile_sorted(&values, 1.0), 1000);
        assert_eq!(percentile_sorted(&values, 0.0), 1);
        assert_eq!(percentile_sorted(&[7], 0.5), 7);
    }

    #[test]
    fn random_is_repeatable_and_bounded() {
        let (mut a, mut b) = (Random::new(5), Random::new(5));
        for _ in 0..1000 {
            let value = a.below(7);
            assert!(value < 7);
            assert_eq!(value, b.below(7));
            assert!((0.0..1.0).contains(&a.share()) && (0.0..1.0).contains(&b.share()));
        }
        assert_eq!(a.label(12).len(), 12);
    }
}
