//! Conditions: what is measured, what it must be, for how long, and what it
//! means when there is nothing to measure.

use serde::{Deserialize, Serialize};

use crate::plan::KnobId;
use crate::time::{Millis, Time};

/// One condition. Its text is evaluated outside: here only values arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// As people know it: `web.errors`.
    pub name: String,
    pub source: Source,
    pub comparison: Comparison,
    pub bound: f64,
    /// How long it must have held without a break.
    pub hold_for: Millis,
    pub no_data: NoData,
}

/// Where values come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A query in PromQL.
    Query(String),
    /// The position of a knob, as its driver reads it.
    Gauge(KnobId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
    Equals,
}

/// What it means that nothing was measured. Stated in every runbook: there is
/// no right answer for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoData {
    /// Nothing goes on until there is a value, or somebody overrides it.
    Block,
    /// As if it held.
    Pass,
    /// As if it were breached.
    Fail,
}

/// What a condition says at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds, and has for as long as it must.
    Holds,
    /// It holds, but not for long enough yet.
    Rising,
    /// Nobody knows.
    Unknown,
    Breached,
}

/// What was seen of a condition. Not part of the durable state of a run: after
/// a crash everything is observed anew, and must hold for its time again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// The last value, and when it came. `None` inside: there was none.
    last: Option<(Time, Option<f64>)>,
    /// Since when the condition holds without a break.
    holds_since: Option<Time>,
}

/// How long a value says something about the present: nothing may be decided
/// by what was true a while ago.
pub const FRESH_FOR: Millis = Millis::from_secs(30);

impl Comparison {
    pub fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Comparison::Below => value < bound,
            Comparison::AtMost => value <= bound,
            Comparison::Above => value > bound,
            Comparison::AtLeast => value >= bound,
            Comparison::Equals => value == bound,
        }
    }

    pub fn symbol(self) -> &'static str {
        match self {
            Comparison::Below => "<",
            Comparison::AtMost => "<=",
            Comparison::Above => ">",
            Comparison::AtLeast => ">=",
            Comparison::Equals => "==",
        }
    }
}

impl Condition {
    /// How much of the way to the bound is used up: 1 at the bound, more past
    /// it; `None` where no such share exists.
    pub fn nearness(&self, value: f64) -> Option<f64> {
        let share = match self.comparison {
            Comparison::Below | Comparison::AtMost if self.bound > 0.0 => value / self.bound,
            Comparison::Above | Comparison::AtLeast if value > 0.0 => self.bound / value,
            _ => return None,
        };
        share.is_finite().then_some(share.max(0.0))
    }

    /// What a measured value says. What is no number says nothing. One without
    /// end comes of a division by nothing: it may breach a condition, as the
    /// largest number there is, but lets nobody pass.
    fn sound(&self, value: f64) -> Option<f64> {
        let holds = self.comparison.holds(value, self.bound);
        match value {
            _ if value.is_finite() => Some(value),
            _ if value.is_nan() || holds => None,
            _ => Some(f64::MAX.copysign(value)),
        }
    }

    /// Takes a value that was measured, or that there is none.
    pub fn observe(&self, observed: &mut Observed, now: Time, value: Option<f64>) {
        let value = value.and_then(|value| self.sound(value));
        let holds = value.is_some_and(|value| self.comparison.holds(value, self.bound));
        let stays = observed.last.is_some_and(|(at, _)| now - at <= FRESH_FOR);
        observed.last = Some((now, value));
        observed.holds_since = match observed.holds_since {
            Some(since) if holds && stays => Some(since),
            _ => holds.then_some(now),
        };
    }

    pub fn verdict(&self, observed: &Observed, now: Time) -> Verdict {
        let value = observed.value(now);
        match (value, observed.holds_since, self.no_data) {
            (None, _, NoData::Pass) => Verdict::Holds,
            (None, _, NoData::Block) => Verdict::Unknown,
            (None, _, NoData::Fail) => Verdict::Breached,
            (Some(_), None, _) => Verdict::Breached,
            (Some(_), Some(since), _) if now - since >= self.hold_for => Verdict::Holds,
            (Some(_), Some(_), _) => Verdict::Rising,
        }
    }
}

impl Observed {
    /// The last value, if it is fresh.
    pub fn value(&self, now: Time) -> Option<f64> {
        self.last.filter(|(at, _)| now - *at <= FRESH_FOR)?.1
    }

    /// When it will have held for `span`, if it goes on holding.
    pub fn holds_at(&self, span: Millis) -> Option<Time> {
        self.holds_since.map(|since| since + span)
    }

    /// When the last look was, whatever it saw.
    pub fn at(&self) -> Option<Time> {
        self.last.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(no_data: NoData) -> Condition {
        Condition {
            name: "errors".into(),
            source: Source::Query("errors".into()),
            comparison: Comparison::Below,
            bound: 0.5,
            hold_for: Millis(10),
            no_data,
        }
    }

    #[test]
    fn it_holds_after_its_time_and_breaks_at_once() {
        let (condition, mut seen) = (errors(NoData::Block), Observed::default());
        assert_eq!(condition.verdict(&seen, Time(0)), Verdict::Unknown);
        condition.observe(&mut seen, Time(0), Some(0.1));
        assert_eq!(condition.verdict(&seen, Time(9)), Verdict::Rising);
        assert_eq!(condition.verdict(&seen, Time(10)), Verdict::Holds);
        condition.observe(&mut seen, Time(11), Some(0.5));
        assert_eq!(condition.verdict(&seen, Time(11)), Verdict::Breached);
        condition.observe(&mut seen, Time(12), Some(0.4));
        assert_eq!(condition.verdict(&seen, Time(21)), Verdict::Rising);
        assert_eq!(condition.verdict(&seen, Time(22)), Verdict::Holds);
    }

    #[test]
    fn without_data_it_says_what_it_was_told_to() {
        let verdicts = [NoData::Block, NoData::Pass, NoData::Fail].map(|no_data| {
            let (condition, mut seen) = (errors(no_data), Observed::default());
            condition.observe(&mut seen, Time(0), Some(0.1));
            condition.observe(&mut seen, Time(20), None);
            condition.verdict(&seen, Time(20))
        });
        assert_eq!(verdicts, [Verdict::Unknown, Verdict::Holds, Verdict::Breached]);
    }

    #[test]
    fn what_was_true_a_while_ago_says_nothing() {
        let (condition, mut seen) = (errors(NoData::Block), Observed::default());
        condition.observe(&mut seen, Time(0), Some(0.1));
        let late = Time(0) + FRESH_FOR + Millis(1);
        assert_eq!(condition.verdict(&seen, late), Verdict::Unknown);
        // Nobody knows what was between.
        condition.observe(&mut seen, late, Some(0.1));
        assert_eq!(condition.verdict(&seen, late), Verdict::Rising);
        assert_eq!(condition.verdict(&seen, late + Millis(10)), Verdict::Holds);
    }

    #[test]
    fn not_a_number_is_no_value() {
        let (condition, mut seen) = (errors(NoData::Fail), Observed::default());
        condition.observe(&mut seen, Time(0), Some(f64::NAN));
        assert_eq!(condition.verdict(&seen, Time(0)), Verdict::Breached);
        assert_eq!(seen.value(Time(0)), None);
    }

    /// Neither the gate nor the log can do with them: JSON has no word for them.
    #[test]
    fn what_has_no_end_may_breach_but_lets_nobody_pass() {
        for comparison in [
            Comparison::Below,
            Comparison::AtMost,
            Comparison::Above,
            Comparison::AtLeast,
            Comparison::Equals,
        ] {
            let condition =
                Condition { comparison, hold_for: Millis::ZERO, ..errors(NoData::Block) };
            for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut seen = Observed::default();
                condition.observe(&mut seen, Time(0), Some(odd));
                let verdict = condition.verdict(&seen, Time(0));
                assert_ne!(verdict, Verdict::Holds, "{comparison:?} {odd}");
                assert!(seen.value(Time(0)).is_none_or(f64::is_finite));
            }
        }
        let (below, mut seen) = (errors(NoData::Block), Observed::default());
        below.observe(&mut seen, Time(0), Some(f64::INFINITY));
        assert_eq!(below.verdict(&seen, Time(0)), Verdict::Breached);
    }

    #[test]
    fn nearness_is_one_at_the_bound() {
        let below = errors(NoData::Fail);
        assert_eq!(below.nearness(0.25), Some(0.5));
        let above = Condition { comparison: Comparison::AtLeast, bound: 3.0, ..below };
        assert_eq!(above.nearness(4.0), Some(0.75));
        assert_eq!(above.nearness(0.0), None);
    }
}
