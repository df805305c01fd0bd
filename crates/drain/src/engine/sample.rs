//! Which measured values are written down, for the curves of a report. Nothing
//! follows from them, so they are few: the further a run has come, the further
//! apart they are, and a run of a day has a few hundred.

use super::{Fact, Run, Seen};
use crate::condition::Verdict;
use crate::plan::ConditionId;
use crate::time::{Millis, Time};

/// How far apart the first values are, how many of them there are, and after
/// how many more they are twice as far apart.
const SAMPLE_EVERY: Millis = Millis::from_secs(5);
const SAMPLES_DENSE: u32 = 60;
const SAMPLES_DOUBLE: u32 = 30;
/// Changes of conditions that are written down: one that flaps says nothing new
/// after that.
const CHANGES_MAX: u32 = 400;

/// How long to wait after so many values.
fn sample_every(samples: u32) -> Millis {
    let doublings = match samples.checked_sub(SAMPLES_DENSE) {
        None => 0,
        Some(more) => 1 + more / SAMPLES_DOUBLE,
    };
    Millis(SAMPLE_EVERY.0 << doublings.min(20))
}

impl Run {
    /// Writes down what the conditions that decide something measured, if it is
    /// time.
    pub(super) fn sample(&mut self, now: Time) {
        let every = sample_every(self.state.samples);
        // A clock that was set back must not end it.
        if self.state.sampled.is_some_and(|at| now >= at && now - at < every) {
            return;
        }
        // What nobody has looked at lately is not known to have no value.
        let was_seen = |id: &ConditionId| {
            let asked = self.seen[id.index()].at();
            asked.is_some_and(|at| now - at <= self.plan.condition(*id).max_age)
        };
        let seen = |condition| Seen { condition, value: self.value(condition, now) };
        let values: Vec<Seen> = self.watched().into_iter().filter(was_seen).map(seen).collect();
        if !values.is_empty() {
            self.record(now, Fact::Measured { values });
        }
    }

    /// Writes down that a condition began or ceased to hold, or to have a value.
    pub(super) fn sample_change(
        &mut self,
        now: Time,
        condition: ConditionId,
        before: Option<Verdict>,
        after: Verdict,
    ) {
        // One that holds, but not for long enough, holds here.
        let kind = |verdict: Verdict| match verdict {
            Verdict::Rising | Verdict::Outdated => Verdict::Holds,
            other => other,
        };
        let is_change = before.is_some_and(|before| kind(before) != kind(after));
        if is_change && self.state.changes < CHANGES_MAX {
            let value = self.value(condition, now);
            self.record(now, Fact::Changed { condition, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_ever_further_apart() {
        assert_eq!(
            [0, 59, 60, 89, 90, 120].map(|samples| sample_every(samples).0 / 1000),
            [5, 5, 10, 10, 20, 40]
        );
        let day: u64 = (0..310).map(|samples| sample_every(samples).0 / 1000).sum();
        assert!(day > 24 * 3600, "a day has some 300 values: {day}");
        assert!(sample_every(u32::MAX).0 > 0);
    }
}
