//! All pairs of points, as the rounds of a tournament.
//!
//! In each round everybody plays once: one point stands still, the others go
//! round in a circle, and who faces each other is a pair. With an odd number
//! of points the one that stands still is nobody.

/// All pairs of an even number of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pairs {
    /// Points in the circle: one less than all, and odd.
    circle: u32,
}

impl Pairs {
    /// Pairs of `len` points, rounded up to an even number of them.
    pub fn new(len: u32) -> Self {
        assert!(len >= 2);
        Pairs { circle: len.next_multiple_of(2) - 1 }
    }

    pub fn class_count(self) -> u64 {
        u64::from(self.circle)
    }

    pub fn class_len(self) -> u32 {
        self.circle.div_ceil(2)
    }

    /// The pair number `offset` of a round, the lesser point first.
    #[inline]
    pub fn pair(self, class: u64, offset: u32) -> [u32; 2] {
        let round = class as u32;
        if offset == 0 {
            return [round, self.circle];
        }
        let after = (round + offset) % self.circle;
        let before = (round + self.circle - offset) % self.circle;
        [after.min(before), after.max(before)]
    }

    /// The round of a pair and its number there.
    #[inline]
    pub fn locate(self, pair: [u32; 2]) -> Option<(u64, u32)> {
        let (low, high) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
        if low == high || high > self.circle {
            return None;
        }
        if high == self.circle {
            return Some((u64::from(low), 0));
        }
        // The point in the middle of the two: half of their sum in the circle.
        let sum = low + high;
        let round = if sum.is_multiple_of(2) { sum / 2 } else { (sum + self.circle) / 2 };
        let round = round % self.circle;
        let apart = high.abs_diff(round);
        Some((u64::from(round), apart.min(self.circle - apart)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rounds_hold_every_pair_once_and_every_point_once_a_round() {
        for len in 2..40 {
            let pairs = Pairs::new(len);
            assert_eq!(pairs.circle + 1, len.next_multiple_of(2));
            let mut seen = HashSet::new();
            for round in 0..pairs.class_count() {
                let mut points = HashSet::new();
                for offset in 0..pairs.class_len() {
                    let pair = pairs.pair(round, offset);
                    assert!(pair[0] < pair[1]);
                    assert_eq!(pairs.locate(pair), Some((round, offset)), "{pair:?} of {len}");
                    points.extend(pair);
                    assert!(seen.insert(pair));
                }
                assert_eq!(points.len() as u32, pairs.circle + 1);
            }
        }
        assert_eq!(Pairs::new(8).locate([3, 3]), None);
        assert_eq!(Pairs::new(8).locate([3, 8]), None);
    }
}
