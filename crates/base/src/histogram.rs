use crate::Counter;

/// Buckets by powers of two: bucket `i` counts values below `2^i`, the last
/// one everything above. Bounded in size, one writer.
#[derive(Debug)]
pub struct Histogram<const BUCKETS: usize> {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Histogram { buckets: std::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// Counts `times` observations of `value`.
    #[inline]
    pub fn observe(&self, value: u64, times: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].add(times);
        self.sum.add(value.wrapping_mul(times));
    }

    /// Observations per bucket, not summed up.
    pub fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|index| self.buckets[index].get())
    }

    /// The sum of all observed values.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_below_the_power_of_two_of_their_bucket() {
        let histogram = Histogram::<4>::default();
        for (value, times) in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1000, 6)] {
            histogram.observe(value, times);
        }
        assert_eq!(histogram.counts(), [1, 2, 7, 11]);
        assert_eq!(histogram.sum(), 2 + 6 + 12 + 20 + 6000);
    }
}
