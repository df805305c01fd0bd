//! Latencies counted in buckets that grow with them, so that every percentile is known to 3 %
//! in a few kilobytes, however many there are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets for each power of two.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.ilog2();
/// From 2^36 ns, about a minute, on there is one bucket.
const POWERS: usize = 36;
const BUCKETS: usize = (POWERS + 1 - STEP_BITS as usize) * STEPS;

#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u32>,
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

/// What people want to know of a histogram, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    pub answers: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(nanos);
        self.max_ns = self.max_ns.max(nanos);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (to, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *to += from;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn latencies(&self) -> Latencies {
        let micros = |nanos: u64| nanos as f64 / 1e3;
        Latencies {
            answers: self.count,
            mean_us: micros(self.sum_ns) / self.count.max(1) as f64,
            p50_us: micros(self.percentile_ns(0.5)),
            p99_us: micros(self.percentile_ns(0.99)),
            p999_us: micros(self.percentile_ns(0.999)),
            max_us: micros(self.max_ns),
        }
    }

    /// By nearest rank: the upper end of the bucket that holds it, 0 if there is nothing.
    fn percentile_ns(&self, share: f64) -> u64 {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return end_of(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// Small values have a bucket each; from then on the highest bits decide.
fn bucket_of(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEP_BITS;
    let bucket = (shift as usize + 1) * STEPS + (nanos >> shift) as usize - STEPS;
    bucket.min(BUCKETS - 1)
}

/// The largest value in the bucket.
fn end_of(bucket: usize) -> u64 {
    match bucket / STEPS {
        0 => bucket as u64,
        power => {
            let first = (STEPS + bucket % STEPS) as u64;
            ((first + 1) << (power - 1)) - 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_touch_and_are_narrow() {
        for bucket in 1..BUCKETS - 1 {
            let (start, end) = (end_of(bucket - 1) + 1, end_of(bucket));
            assert_eq!((bucket_of(start), bucket_of(end)), (bucket, bucket));
            assert!((end - start) as f64 <= start as f64 / STEPS as f64);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_right_to_three_percent() {
        let mut histogram = Histogram::default();
        for micros in (1..=10_000).rev() {
            histogram.add(Duration::from_micros(micros));
        }
        let found = histogram.latencies();
        assert_eq!((found.answers, found.max_us), (10_000, 10_000.0));
        for (value, expected) in
            [(found.p50_us, 5000.0), (found.p99_us, 9900.0), (found.p999_us, 9990.0)]
        {
            assert!((value / expected - 1.0).abs() < 0.032, "{value} for {expected}");
        }
        assert!((found.mean_us - 5000.5).abs() < 0.1);
    }

    #[test]
    fn nothing_has_no_latency_and_sums_are_sums() {
        let mut all = Histogram::default();
        assert_eq!(all.latencies(), Latencies::default());
        let mut one = Histogram::default();
        one.add(Duration::from_nanos(7));
        all.merge(&one);
        all.merge(&one);
        assert_eq!((all.count(), all.latencies().p999_us), (2, 0.007));
    }
}
