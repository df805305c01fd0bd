//! Conditions: what is measured, what it must be, for how long, how old the data
//! may be, and what it means when there is nothing to measure.
//!
//! A [`Measurement`] carries the time of the data it was computed from, and that
//! is what counts: a query that is answered now may be answered from samples of
//! a minute ago. Fresh data that breaches a condition breaches it at once. Data
//! lets pass only what it has seen: to judge an effect, all of it must have been
//! taken after the effect was confirmed.

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
    /// Older samples say nothing about the present.
    pub max_age: Millis,
    pub no_data: NoData,
    /// What it means that the query divides nothing by nothing: there is no
    /// traffic that it could measure.
    pub no_traffic: NoData,
    /// The same on the way back of a task, which moves traffic the other way.
    pub no_traffic_back: NoData,
    /// It says that nothing is missing, such as behind a fence: whoever lets pass
    /// what it did not see loses what was acknowledged.
    pub is_exact: bool,
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
    /// Nothing goes on until there is a value, or an operator overrides it.
    Block,
    /// As if it held.
    Pass,
    /// As if it were breached.
    Fail,
}

impl NoData {
    /// Whether it lets pass; `None` if it says nothing.
    fn admits(self) -> Option<bool> {
        match self {
            NoData::Pass => Some(true),
            NoData::Fail => Some(false),
            NoData::Block => None,
        }
    }

    /// The same, but nothing passes unseen.
    pub fn unless_passes(self) -> NoData {
        if self == NoData::Pass { NoData::Block } else { self }
    }
}

/// What was measured, and when the data was taken: all of it lies between
/// `from` and `to`. A value that is not a number means that there is no traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    pub value: f64,
    /// The oldest data that may have contributed: `rate(x[1m])` of a sample at
    /// `to` reaches back for a minute.
    pub from: Time,
    /// The newest sample of the series that is furthest behind.
    pub to: Time,
}

/// What a condition says at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds, and has for as long as it must.
    Holds,
    /// It holds, but not for long enough yet.
    Rising,
    /// It holds by data from before the effect that it is to judge.
    Outdated,
    /// Nobody knows.
    Unknown,
    Breached,
}

/// What was seen of a condition. Not part of the durable state of a run: after
/// a crash everything is observed anew, and must hold for its time again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// When the last look began, and what it found.
    last: Option<(Time, Option<Measurement>)>,
    /// The sample since which the condition holds without a break.
    holds_since: Option<Time>,
}

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

impl Measurement {
    /// A value that is true of one moment.
    pub fn at(time: Time, value: f64) -> Self {
        Measurement { value, from: time, to: time }
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

    /// Whether a value lets pass; `None` if it says nothing. An infinite one
    /// comes of a division by zero: it may breach a condition, but lets nothing
    /// pass.
    fn admits(&self, value: f64) -> Option<bool> {
        match self.comparison.holds(value, self.bound) {
            _ if value.is_nan() => self.no_traffic.admits(),
            true if value.is_infinite() => None,
            // There is nothing less than nothing: that is what is said of what is not known.
            true if self.is_exact && value < 0.0 => None,
            holds => Some(holds),
        }
    }

    /// Takes what a look that began at `asked` found, or that it found nothing.
    pub fn observe(&self, observed: &mut Observed, asked: Time, found: Option<Measurement>) {
        let before = observed.last.and_then(|(_, before)| before);
        let holds = found.filter(|found| self.admits(found.value) == Some(true));
        // Nobody knows what was between samples that are too far apart.
        let stays = |to: Time| before.is_some_and(|before| to - before.to <= self.max_age);
        observed.last = Some((asked, found));
        observed.holds_since = match (observed.holds_since, holds) {
            (Some(since), Some(found)) if stays(found.to) => Some(since),
            (_, holds) => holds.map(|found| found.to),
        };
    }

    /// What it says of the present.
    pub fn verdict(&self, observed: &Observed, now: Time) -> Verdict {
        self.verdict_after(observed, now, None)
    }

    /// What it says of a step on the way back of a task, after an effect that was
    /// confirmed at `after`.
    pub fn verdict_back(&self, observed: &Observed, now: Time, after: Option<Time>) -> Verdict {
        let is_without_traffic =
            observed.fresh(now, self.max_age).is_some_and(|found| found.value.is_nan());
        if !is_without_traffic || self.no_traffic_back == self.no_traffic {
            return self.verdict_after(observed, now, after);
        }
        let is_after = after
            .is_none_or(|after| observed.measurement().is_some_and(|found| found.from > after));
        match self.no_traffic_back.admits() {
            Some(true) if is_after => Verdict::Holds,
            Some(true) => Verdict::Outdated,
            Some(false) => Verdict::Breached,
            None => Verdict::Unknown,
        }
    }

    /// What it says of an effect that was confirmed at `after`.
    pub fn verdict_after(&self, observed: &Observed, now: Time, after: Option<Time>) -> Verdict {
        let is_after = |time: Time| after.is_none_or(|after| time > after);
        let asked = observed.at();
        let Some(found) = observed.fresh(now, self.max_age) else {
            return match self.no_data {
                NoData::Pass if asked.is_none_or(is_after) => Verdict::Holds,
                NoData::Pass => Verdict::Outdated,
                NoData::Block => Verdict::Unknown,
                NoData::Fail => Verdict::Breached,
            };
        };
        match (self.admits(found.value), observed.holds_since) {
            (None, _) => Verdict::Unknown,
            (Some(false), _) | (_, None) => Verdict::Breached,
            _ if !is_after(found.from) => Verdict::Outdated,
            (Some(true), Some(since)) => {
                let since = after.map_or(since, |after| after.max(since));
                if found.to - since >= self.hold_for { Verdict::Holds } else { Verdict::Rising }
            }
        }
    }
}

impl Observed {
    /// The last value, if it is a number and its data is fresh. What is infinite
    /// is the largest number there is: JSON has no word for it.
    pub fn value(&self, now: Time, max_age: Millis) -> Option<f64> {
        let value = self.fresh(now, max_age)?.value;
        (!value.is_nan()).then(|| value.clamp(f64::MIN, f64::MAX))
    }

    /// The last measurement, if its data is fresh.
    pub fn fresh(&self, now: Time, max_age: Millis) -> Option<Measurement> {
        self.last?.1.filter(|found| now - found.to <= max_age)
    }

    /// The last measurement, however old its data is.
    pub fn measurement(&self) -> Option<Measurement> {
        self.last?.1
    }

    /// When the last look began, whatever it saw.
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
            max_age: Millis::from_secs(30),
            no_data,
            no_traffic: no_data,
            no_traffic_back: no_data,
            is_exact: false,
        }
    }

    fn see(condition: &Condition, seen: &mut Observed, at: u64, value: f64) {
        condition.observe(seen, Time(at), Some(Measurement::at(Time(at), value)));
    }

    #[test]
    fn it_holds_after_its_time_and_breaks_at_once() {
        let (condition, mut seen) = (errors(NoData::Block), Observed::default());
        assert_eq!(condition.verdict(&seen, Time(0)), Verdict::Unknown);
        see(&condition, &mut seen, 0, 0.1);
        see(&condition, &mut seen, 9, 0.1);
        assert_eq!(condition.verdict(&seen, Time(9)), Verdict::Rising);
        see(&condition, &mut seen, 10, 0.1);
        assert_eq!(condition.verdict(&seen, Time(10)), Verdict::Holds);
        see(&condition, &mut seen, 11, 0.5);
        assert_eq!(condition.verdict(&seen, Time(11)), Verdict::Breached);
        see(&condition, &mut seen, 12, 0.4);
        see(&condition, &mut seen, 21, 0.4);
        assert_eq!(condition.verdict(&seen, Time(21)), Verdict::Rising);
        see(&condition, &mut seen, 22, 0.4);
        assert_eq!(condition.verdict(&seen, Time(22)), Verdict::Holds);
    }

    /// Prometheus answers with the last sample for minutes after an exporter died.
    #[test]
    fn an_answer_from_an_old_sample_is_no_data_however_often_it_is_given() {
        let (condition, mut seen) = (errors(NoData::Block), Observed::default());
        let last = Measurement::at(Time(0), 0.1);
        for asked in [0, 5_000, 15_000, 30_000] {
            condition.observe(&mut seen, Time(asked), Some(last));
            assert_eq!(condition.verdict(&seen, Time(asked)), Verdict::Rising, "no time passes");
        }
        condition.observe(&mut seen, Time(30_001), Some(last));
        assert_eq!(condition.verdict(&seen, Time(30_001)), Verdict::Unknown);
        assert_eq!(seen.value(Time(30_001), condition.max_age), None);
    }

    #[test]
    fn an_effect_is_judged_only_by_samples_taken_after_it() {
        let condition = Condition { hold_for: Millis::ZERO, ..errors(NoData::Block) };
        let mut seen = Observed::default();
        see(&condition, &mut seen, 100, 0.1);
        let after = |seen: &Observed, at| condition.verdict_after(seen, Time(200), Some(Time(at)));
        assert_eq!(after(&seen, 99), Verdict::Holds);
        assert_eq!(after(&seen, 100), Verdict::Outdated);
        // A rate over the last 60 looks at what was before.
        let rate = Measurement { value: 0.1, from: Time(90), to: Time(150) };
        condition.observe(&mut seen, Time(150), Some(rate));
        assert_eq!(after(&seen, 89), Verdict::Holds);
        assert_eq!(after(&seen, 100), Verdict::Outdated);
        let breach = Measurement { value: 0.9, ..rate };
        condition.observe(&mut seen, Time(151), Some(breach));
        assert_eq!(after(&seen, 100), Verdict::Breached, "whatever it came from");
    }

    #[test]
    fn the_time_that_it_must_hold_begins_with_the_effect() {
        let (condition, mut seen) = (errors(NoData::Block), Observed::default());
        for at in [0, 10, 20, 24] {
            see(&condition, &mut seen, at, 0.1);
        }
        let after = |seen: &Observed| condition.verdict_after(seen, Time(30), Some(Time(15)));
        assert_eq!(condition.verdict(&seen, Time(30)), Verdict::Holds);
        assert_eq!(after(&seen), Verdict::Rising);
        see(&condition, &mut seen, 25, 0.1);
        assert_eq!(after(&seen), Verdict::Holds);
    }

    #[test]
    fn no_data_means_what_the_runbook_states() {
        let verdicts = [NoData::Block, NoData::Pass, NoData::Fail].map(|no_data| {
            let (condition, mut seen) = (errors(no_data), Observed::default());
            see(&condition, &mut seen, 0, 0.1);
            condition.observe(&mut seen, Time(20), None);
            condition.verdict(&seen, Time(20))
        });
        assert_eq!(verdicts, [Verdict::Unknown, Verdict::Holds, Verdict::Breached]);
        // That there is nothing to see is also seen after an effect, or not.
        let (condition, mut seen) = (errors(NoData::Pass), Observed::default());
        condition.observe(&mut seen, Time(20), None);
        assert_eq!(condition.verdict_after(&seen, Time(25), Some(Time(20))), Verdict::Outdated);
        assert_eq!(condition.verdict_after(&seen, Time(25), Some(Time(19))), Verdict::Holds);
    }

    #[test]
    fn no_traffic_is_not_no_data() {
        let verdict = |no_traffic| {
            let hold_for = Millis::ZERO;
            let condition = Condition { no_traffic, hold_for, ..errors(NoData::Block) };
            let mut seen = Observed::default();
            see(&condition, &mut seen, 0, f64::NAN);
            assert_eq!(seen.value(Time(0), condition.max_age), None);
            // The exporter may die all the same.
            let late = Time(0) + condition.max_age + Millis(1);
            assert_eq!(condition.verdict(&seen, late), Verdict::Unknown);
            condition.verdict(&seen, Time(0))
        };
        assert_eq!(verdict(NoData::Block), Verdict::Unknown);
        assert_eq!(verdict(NoData::Pass), Verdict::Holds);
        assert_eq!(verdict(NoData::Fail), Verdict::Breached);
    }

    /// `pass_on_restore` of a drain: its way back brings traffic in, as a restore does.
    #[test]
    fn no_traffic_on_the_way_back_is_judged_by_its_own_policy() {
        let condition = Condition { no_traffic_back: NoData::Pass, ..errors(NoData::Block) };
        let mut seen = Observed::default();
        see(&condition, &mut seen, 10, f64::NAN);
        let back = |after| condition.verdict_back(&seen, Time(10), after);
        assert_eq!(condition.verdict(&seen, Time(10)), Verdict::Unknown);
        assert_eq!(back(None), Verdict::Holds);
        assert_eq!(back(Some(Time(9))), Verdict::Holds);
        assert_eq!(back(Some(Time(10))), Verdict::Outdated, "the sample is not from after it");
        let late = Time(10) + condition.max_age + Millis(1);
        assert_eq!(condition.verdict_back(&seen, late, None), Verdict::Unknown, "no fresh sample");
        see(&condition, &mut seen, 20, 0.9);
        assert_eq!(condition.verdict_back(&seen, Time(20), None), Verdict::Breached);
        let restore = Condition { no_traffic: NoData::Pass, ..errors(NoData::Block) };
        let mut seen = Observed::default();
        see(&restore, &mut seen, 10, f64::NAN);
        assert_eq!(restore.verdict_back(&seen, Time(10), None), Verdict::Unknown, "leads out");
    }

    #[test]
    fn samples_too_far_apart_do_not_hold_in_between() {
        let (condition, mut seen) = (errors(NoData::Block), Observed::default());
        see(&condition, &mut seen, 0, 0.1);
        let late = 1 + condition.max_age.0;
        see(&condition, &mut seen, late, 0.1);
        assert_eq!(condition.verdict(&seen, Time(late)), Verdict::Rising);
        see(&condition, &mut seen, late + 10, 0.1);
        assert_eq!(condition.verdict(&seen, Time(late + 10)), Verdict::Holds);
    }

    #[test]
    fn a_negative_value_does_not_say_that_nothing_is_missing() {
        let verdict = |is_exact, value| {
            let comparison = Comparison::AtMost;
            let condition =
                Condition { is_exact, comparison, hold_for: Millis::ZERO, ..errors(NoData::Block) };
            let mut seen = Observed::default();
            see(&condition, &mut seen, 0, value);
            condition.verdict(&seen, Time(0))
        };
        assert_eq!(verdict(true, -1.0), Verdict::Unknown);
        assert_eq!(verdict(true, -0.0), Verdict::Holds);
        assert_eq!(verdict(false, -1.0), Verdict::Holds);
    }

    /// Neither the gate nor the log can do with them: JSON has no word for them.
    #[test]
    fn an_infinite_value_may_breach_but_lets_nothing_pass() {
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
                see(&condition, &mut seen, 0, odd);
                let verdict = condition.verdict(&seen, Time(0));
                assert_ne!(verdict, Verdict::Holds, "{comparison:?} {odd}");
                assert!(seen.value(Time(0), condition.max_age).is_none_or(f64::is_finite));
            }
        }
        let (below, mut seen) = (errors(NoData::Block), Observed::default());
        see(&below, &mut seen, 0, f64::INFINITY);
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
