//! What earlier runs of a task say about the next: how long it takes, when it
//! takes too long, and which steps it bears.

use serde::{Deserialize, Serialize};

use crate::plan::Expected;
use crate::time::Millis;

/// One time that a task ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub took: Millis,
    /// The largest step that its health bore; 0 if it moved nothing in steps.
    pub step: f64,
    /// Whether bad health held it on the way.
    #[serde(default)]
    pub was_breached: bool,
}

/// A task is stuck past this percentile of its history, times the margin. The
/// percentile alone would flag a quarter of all runs that are as usual.
const STUCK_PERCENTILE: f64 = 0.75;
pub const STUCK_MARGIN: f64 = 1.5;
/// With fewer samples a percentile says nothing: the timeout counts.
pub const SAMPLES_MIN: usize = 4;
/// Older samples than these are not looked at.
pub const SAMPLES_MAX: usize = 50;
/// Nothing is stuck before that: seconds more or less are nobody's business.
const STUCK_MIN: Millis = Millis::from_secs(10);

/// What samples, newest last, let expect.
pub fn expect(samples: &[Sample], margin: f64) -> Expected {
    let samples = &samples[samples.len().saturating_sub(SAMPLES_MAX)..];
    let mut took: Vec<f64> = samples.iter().map(|sample| sample.took.0 as f64).collect();
    let mut steps: Vec<f64> =
        samples.iter().map(|sample| sample.step).filter(|step| *step > 0.0).collect();
    // One bad run of two is not yet a habit.
    let breached = samples.iter().filter(|sample| sample.was_breached).count();
    let breached = breached as f64 / samples.len().max(SAMPLES_MIN) as f64;
    let millis = |millis: f64| Millis(millis.round() as u64);
    Expected {
        usual: percentile(&mut took, 0.5).map(millis),
        stuck_after: percentile(&mut took, STUCK_PERCENTILE)
            .filter(|_| samples.len() >= SAMPLES_MIN)
            .map(|millis_of| millis(millis_of * margin).max(STUCK_MIN)),
        step: percentile(&mut steps, 0.5),
        breached,
    }
}

/// How many of these runs, which all ended well, would have been called stuck
/// by those before them: how many could have been, and how many were.
pub fn false_alarms(samples: &[Sample], margin: f64) -> (usize, usize) {
    let judged = (SAMPLES_MIN..samples.len()).map(|at| {
        let expected = expect(&samples[..at], margin);
        expected.stuck_after.is_some_and(|after| samples[at].took > after)
    });
    judged.fold((0, 0), |(all, flagged), is_flagged| (all + 1, flagged + usize::from(is_flagged)))
}

/// The value below which a share of all lie, between neighbours in proportion.
fn percentile(values: &mut [f64], share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = share * values.len().checked_sub(1)? as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(took: &[u64]) -> Vec<Sample> {
        let sample =
            |secs: &u64| Sample { took: Millis::from_secs(*secs), step: 0.0, was_breached: false };
        took.iter().map(sample).collect()
    }

    #[test]
    fn stuck_is_past_the_percentile_with_a_margin() {
        let expected = expect(&samples(&[100, 200, 300, 400, 500]), STUCK_MARGIN);
        assert_eq!(expected.usual, Some(Millis::from_secs(300)));
        assert_eq!(expected.stuck_after, Some(Millis::from_secs(600)));
    }

    #[test]
    fn little_history_says_how_long_but_not_when_it_is_stuck() {
        let expected = expect(&samples(&[100, 200]), STUCK_MARGIN);
        assert_eq!((expected.usual, expected.stuck_after), (Some(Millis::from_secs(150)), None));
        assert_eq!(expect(&[], STUCK_MARGIN), Expected::default());
    }

    #[test]
    fn breaches_of_earlier_runs_are_a_share_that_is_forgotten_in_time() {
        let mut samples = samples(&[100, 100]);
        samples[1].was_breached = true;
        assert_eq!(expect(&samples, STUCK_MARGIN).breached, 0.25, "of four at the least");
        samples.extend(vec![samples[0]; SAMPLES_MAX - 1]);
        assert_eq!(expect(&samples, STUCK_MARGIN).breached, 1.0 / SAMPLES_MAX as f64);
        samples.push(samples[0]);
        assert_eq!(expect(&samples, STUCK_MARGIN).breached, 0.0);
        let kept: Sample = serde_json::from_str(r#"{"took":5,"step":0.1}"#).unwrap();
        assert!(!kept.was_breached, "what was kept before");
    }

    #[test]
    fn only_the_newest_count() {
        let mut took = vec![1_000_000; 30];
        took.extend([100; SAMPLES_MAX]);
        assert_eq!(expect(&samples(&took), STUCK_MARGIN).usual, Some(Millis::from_secs(100)));
    }

    /// A bare percentile flags a quarter of what is as usual; the margin makes
    /// it rare. Times of tasks are skewed, as these are.
    #[test]
    fn false_alarms_are_rare_with_the_margin_and_not_without() {
        let mut seed: u64 = 7;
        let mut chance = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 11) as f64 / (1u64 << 53) as f64
        };
        let took: Vec<u64> =
            (0..1000).map(|_| (300.0 * (1.0 + 0.4 * chance() + 0.4 * chance())) as u64).collect();
        let rate = |margin| {
            let (all, flagged) = false_alarms(&samples(&took), margin);
            flagged as f64 / all as f64
        };
        assert!((0.2..0.3).contains(&rate(1.0)), "{}", rate(1.0));
        assert!(rate(STUCK_MARGIN) < 0.01, "{}", rate(STUCK_MARGIN));
    }

    proptest! {
        #[test]
        fn percentiles_lie_between_the_smallest_and_the_largest(
            mut values in proptest::collection::vec(0.0..1e6f64, 1..40),
            share in 0.0..=1.0f64,
        ) {
            let found = percentile(&mut values, share).unwrap();
            prop_assert!(values[0] <= found && found <= values[values.len() - 1]);
        }
    }
}
