//! Quantiles of histograms, as Prometheus computes them.

use std::collections::BTreeMap;

use super::Element;
use crate::series::{Labels, NAME};

/// The label with the upper bound of a bucket.
const BOUND: &str = "le";

#[derive(Clone, Copy, Debug)]
struct Bucket {
    bound: f64,
    /// Of all observations up to the bound.
    count: f64,
}

/// The quantile of each histogram that these buckets make up.
pub fn quantiles(share: f64, elements: Vec<Element>) -> Vec<Element> {
    let mut histograms: BTreeMap<Labels, Vec<Bucket>> = BTreeMap::new();
    for element in elements {
        // What has no bound is no bucket.
        let Ok(bound) = element.labels.get(BOUND).parse() else { continue };
        let labels = element.labels.filtered(|name| name != NAME && name != BOUND);
        histograms.entry(labels).or_default().push(Bucket { bound, count: element.value });
    }
    let quantile = |(labels, buckets)| Element { labels, value: quantile(share, buckets) };
    histograms.into_iter().map(quantile).collect()
}

fn quantile(share: f64, buckets: Vec<Bucket>) -> f64 {
    match share {
        _ if share.is_nan() => return f64::NAN,
        _ if share < 0.0 => return f64::NEG_INFINITY,
        _ if share > 1.0 => return f64::INFINITY,
        _ => {}
    }
    let buckets = cumulative(buckets);
    let [rest @ .., last] = buckets.as_slice() else { return f64::NAN };
    let Some(largest) = rest.last() else { return f64::NAN };
    if last.bound != f64::INFINITY || last.count == 0.0 || last.count.is_nan() {
        return f64::NAN;
    }
    let rank = share * last.count;
    let Some(at) = rest.iter().position(|bucket| bucket.count >= rank) else {
        return largest.bound;
    };
    let own = rest[at];
    let below = match at.checked_sub(1) {
        Some(below) => rest[below],
        None if own.bound <= 0.0 => return own.bound,
        None => Bucket { bound: 0.0, count: 0.0 },
    };
    below.bound + (own.bound - below.bound) * ((rank - below.count) / (own.count - below.count))
}

/// In order, one for each bound, and none with less than those before it: buckets
/// of several targets are not read at the same instant.
fn cumulative(mut buckets: Vec<Bucket>) -> Vec<Bucket> {
    buckets.sort_by(|a, b| a.bound.total_cmp(&b.bound));
    let mut merged: Vec<Bucket> = Vec::new();
    for bucket in buckets {
        match merged.last_mut() {
            Some(last) if last.bound == bucket.bound => last.count += bucket.count,
            _ => merged.push(bucket),
        }
    }
    let mut most = f64::NEG_INFINITY;
    for bucket in &mut merged {
        most = most.max(bucket.count);
        bucket.count = most;
    }
    merged
}
