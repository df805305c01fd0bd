//! What conditions measured during a run: curves, with the times at which there
//! was no value and those at which the bound was breached.

use serde::Serialize;

use crate::engine::{Fact, Hold, Record};
use crate::plan::{ConditionId, Plan};
use crate::time::Time;

/// What a condition measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConditionReport {
    pub name: String,
    pub comparison: &'static str,
    pub bound: f64,
    /// In the order of time; without a value: there was none.
    pub points: Vec<(Time, Option<f64>)>,
    /// How near it came to its bound: 1 is at it.
    pub nearness: f64,
    pub outages: Vec<Span>,
    pub breaches: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub from: Time,
    pub to: Time,
}

/// What is gathered on the way through the records.
pub(super) struct Curves {
    points: Vec<Vec<(Time, Option<f64>)>>,
}

impl Curves {
    pub fn new(plan: &Plan) -> Self {
        Curves { points: vec![Vec::new(); plan.conditions.len()] }
    }

    pub fn take(&mut self, record: &Record) {
        let mut note = |id: ConditionId, value: Option<f64>| {
            let Some(points) = self.points.get_mut(id.index()) else { return };
            if points.last() != Some(&(record.at, value)) {
                points.push((record.at, value));
            }
        };
        match &record.fact {
            Fact::Measured { values } => {
                values.iter().for_each(|seen| note(seen.condition, seen.value));
            }
            Fact::Changed { condition, value } => note(*condition, *value),
            Fact::Close { condition, value } => note(*condition, Some(*value)),
            Fact::Held { why: Hold::Breach { condition, value: Some(value) }, .. } => {
                note(*condition, Some(*value));
            }
            Fact::Held { why: Hold::NoData { condition }, .. } => note(*condition, None),
            _ => {}
        }
    }

    /// The curves that have points, those that came nearest to their bounds
    /// first.
    pub fn report(self, plan: &Plan, ended: Time) -> Vec<ConditionReport> {
        let measured = plan.conditions.iter().zip(self.points).filter(|(_, own)| !own.is_empty());
        let mut reports: Vec<ConditionReport> = measured
            .map(|(condition, points)| {
                let near = points.iter().filter_map(|(_, value)| condition.nearness((*value)?));
                let holds = |value: f64| condition.comparison.holds(value, condition.bound);
                ConditionReport {
                    name: condition.name.clone(),
                    comparison: condition.comparison.symbol(),
                    bound: condition.bound,
                    nearness: near.fold(0.0, f64::max),
                    outages: spans(&points, ended, |value| value.is_none()),
                    breaches: spans(&points, ended, |value| value.is_some_and(|own| !holds(own))),
                    points,
                }
            })
            .collect();
        let rank =
            |own: &ConditionReport| (own.breaches.is_empty(), own.outages.is_empty(), own.nearness);
        reports.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            (a.0, a.1).cmp(&(b.0, b.1)).then(b.2.total_cmp(&a.2))
        });
        reports
    }
}

/// When something was so: from the first point that says so to the first that
/// does not.
fn spans(
    points: &[(Time, Option<f64>)],
    ended: Time,
    is_so: impl Fn(Option<f64>) -> bool,
) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut since = None;
    for (at, value) in points {
        match (since, is_so(*value)) {
            (None, true) => since = Some(*at),
            (Some(from), false) => {
                spans.push(Span { from, to: *at });
                since = None;
            }
            _ => {}
        }
    }
    spans.extend(since.map(|from| Span { from, to: ended.max(from) }));
    spans
}
