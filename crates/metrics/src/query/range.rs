//! Functions of the samples of a span, as Prometheus computes them.

use crate::series::Sample;

use super::expr::Over;

/// A span of time in milliseconds, from `start` (not part of it) to `end`.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub start: i64,
    pub end: i64,
}

/// The value of a function over the samples of a span, which are in order of
/// time and not empty; `None` where there are too few.
pub fn over(function: Over, samples: &[Sample], span: Span) -> Option<f64> {
    let values = || samples.iter().map(|sample| sample.value);
    let len = samples.len() as f64;
    match function {
        Over::Increase => extrapolated(samples, span, true),
        Over::Delta => extrapolated(samples, span, false),
        Over::Rate => {
            let secs = (span.end - span.start) as f64 / 1000.0;
            extrapolated(samples, span, true).map(|increase| increase / secs)
        }
        Over::Irate => latest_rate(samples),
        Over::Avg => Some(values().sum::<f64>() / len),
        Over::Sum => Some(values().sum()),
        Over::Count => Some(len),
        Over::Max => {
            values().reduce(|max, value| if value > max || max.is_nan() { value } else { max })
        }
        Over::Min => {
            values().reduce(|min, value| if value < min || min.is_nan() { value } else { min })
        }
        Over::Last => values().next_back(),
    }
}

/// The difference over the whole span. Samples do not reach to its ends: the
/// slope between the first and the last is continued to an end that is near,
/// else by half the distance of two samples. A counter is not continued to
/// below zero, and where it falls it was reset.
fn extrapolated(samples: &[Sample], span: Span, is_counter: bool) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let millis = |sample: &Sample| sample.at.0 as f64;
    let sampled = millis(last) - millis(first);
    if sampled <= 0.0 {
        return None;
    }
    let mut difference = last.value - first.value;
    if is_counter {
        let fallen = samples.windows(2).filter(|two| two[1].value < two[0].value);
        difference += fallen.map(|two| two[0].value).sum::<f64>();
    }
    let distance = sampled / (samples.len() - 1) as f64;
    let to_end = |gap: f64| if gap < distance * 1.1 { gap } else { distance / 2.0 };
    let mut before = to_end(millis(first) - span.start as f64);
    if is_counter && difference > 0.0 && first.value >= 0.0 {
        before = before.min(sampled * (first.value / difference));
    }
    let after = to_end(span.end as f64 - millis(last));
    Some(difference * ((before + sampled + after) / sampled))
}

/// The rate between the last two samples.
fn latest_rate(samples: &[Sample]) -> Option<f64> {
    let [.., before, last] = samples else { return None };
    let secs = (last.at - before.at).as_secs_f64();
    let difference = if last.value < before.value { last.value } else { last.value - before.value };
    (secs > 0.0).then_some(difference / secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drain::Time;
    use proptest::prelude::*;

    fn samples(pairs: &[(u64, f64)]) -> Vec<Sample> {
        pairs.iter().map(|&(secs, value)| Sample { at: Time(secs * 1000), value }).collect()
    }

    #[track_caller]
    fn check(function: Over, pairs: &[(u64, f64)], expected: Option<f64>) {
        assert_eq!(over(function, &samples(pairs), Span { start: 0, end: 60_000 }), expected);
    }

    #[test]
    fn differences_reach_to_the_ends_of_the_span() {
        // Near both ends: the whole minute.
        check(Over::Increase, &[(10, 1000.0), (30, 1020.0), (50, 1040.0)], Some(60.0));
        check(Over::Rate, &[(10, 1000.0), (30, 1020.0), (50, 1040.0)], Some(1.0));
        // Far from the start: half a distance more.
        check(Over::Increase, &[(40, 1000.0), (50, 1010.0), (60, 1020.0)], Some(25.0));
        // Not to below zero, except for what is no counter.
        check(Over::Increase, &[(10, 5.0), (30, 25.0), (50, 45.0)], Some(55.0));
        check(Over::Delta, &[(10, 5.0), (30, 25.0), (50, 45.0)], Some(60.0));
        check(Over::Delta, &[(10, 45.0), (30, 25.0), (50, 5.0)], Some(-60.0));
        // A reset.
        check(Over::Increase, &[(0, 1000.0), (30, 1030.0), (60, 30.0)], Some(60.0));
        check(Over::Rate, &[(10, 1.0)], None);
    }

    #[test]
    fn the_rest_is_plain() {
        let pairs = [(10, 3.0), (20, 1.0), (30, 8.0)];
        check(Over::Irate, &pairs, Some(0.7));
        check(Over::Irate, &[(10, 30.0), (20, 5.0)], Some(0.5));
        check(Over::Irate, &[(10, 30.0)], None);
        check(Over::Avg, &pairs, Some(4.0));
        check(Over::Sum, &pairs, Some(12.0));
        check(Over::Max, &pairs, Some(8.0));
        check(Over::Min, &pairs, Some(1.0));
        check(Over::Last, &pairs, Some(8.0));
        check(Over::Max, &[(1, f64::NAN), (2, 1.0)], Some(1.0));
        check(Over::Min, &[(1, 1.0), (2, f64::NAN)], Some(1.0));
    }

    proptest! {
        /// A counter of constant slope has that rate, however it is sampled and
        /// however often it starts again right behind a sample.
        #[test]
        fn a_constant_slope_is_its_rate(
            slope in 0.01f64..1e6,
            gaps in prop::collection::vec((900u64..1100, any::<bool>()), 3..60),
            before in 1u64..900,
            after in 1u64..900,
        ) {
            let (mut at, mut value) = (1_000_000u64, slope * 100.0);
            let mut samples = vec![Sample { at: Time(at), value }];
            for (gap, is_reset) in gaps {
                let more = slope * gap as f64 / 1000.0;
                // A reset shows only if the counter does not catch up by the next sample.
                let rest = if is_reset && value > 1.01 * more { 0.0 } else { value };
                at += gap;
                value = rest + more;
                samples.push(Sample { at: Time(at), value });
            }
            let span = Span { start: (1_000_000 - before) as i64, end: (at + after) as i64 };
            let rate = over(Over::Rate, &samples, span).unwrap();
            prop_assert!((rate / slope - 1.0).abs() < 1e-6, "{rate} for {slope}");
            let steady = over(Over::Irate, &samples, span).unwrap();
            prop_assert!((steady / slope - 1.0).abs() < 1e-6, "{steady} for {slope}");
        }
    }
}
