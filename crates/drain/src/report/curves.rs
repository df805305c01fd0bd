//! What conditions measured during a run: curves, with the times at which there
//! was no value and those at which the bound was breached.

use std::collections::BTreeSet;

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
    /// Whether it must hold while tasks run. Others are waited for: that they do
    /// not hold at first is what they are there for.
    pub is_health: bool,
    /// How near it came to its bound: 1 is at it.
    pub nearness: f64,
    /// When it had no value, and when it did not hold.
    pub outages: Vec<Span>,
    pub breaches: Vec<Span>,
    /// When it decided nothing, between times when it did.
    pub gaps: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    pub from: Time,
    pub to: Time,
}

/// What is gathered on the way through the records.
pub(super) struct Curves {
    points: Vec<Vec<(Time, Option<f64>)>>,
    gaps: Vec<Vec<Span>>,
    /// How many times values were written down before each condition's last one.
    rounds: Vec<usize>,
    round: usize,
}

impl Curves {
    pub fn new(plan: &Plan) -> Self {
        let count = plan.conditions.len();
        let (points, gaps) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        Curves { points, gaps, rounds: vec![0; count], round: 0 }
    }

    pub fn take(&mut self, record: &Record) {
        if matches!(record.fact, Fact::Measured { .. }) {
            self.round += 1;
        }
        let mut note = |id: ConditionId, value: Option<f64>| {
            let Some(points) = self.points.get_mut(id.index()) else { return };
            let round = std::mem::replace(&mut self.rounds[id.index()], self.round);
            // It was left out since.
            if let Some((from, _)) = points.last().filter(|_| self.round > round + 1) {
                self.gaps[id.index()].push(Span { from: *from, to: record.at });
            }
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

    /// The curves that have points: health first, and what came nearest to its
    /// bound.
    pub fn report(self, plan: &Plan, ended: Time) -> Vec<ConditionReport> {
        let own = plan.tasks.iter().flat_map(|task| &task.health);
        let health: BTreeSet<ConditionId> = own.chain(&plan.health).copied().collect();
        let ids = (0..plan.conditions.len() as u32).map(ConditionId);
        let measured = ids.zip(self.points).zip(self.gaps).filter(|((_, own), _)| !own.is_empty());
        let mut reports: Vec<ConditionReport> = measured
            .map(|((id, points), gaps)| {
                let condition = plan.condition(id);
                let near = points.iter().filter_map(|(_, value)| condition.nearness((*value)?));
                let holds = |value: f64| condition.comparison.holds(value, condition.bound);
                ConditionReport {
                    name: condition.name.clone(),
                    comparison: condition.comparison.symbol(),
                    bound: condition.bound,
                    is_health: health.contains(&id),
                    nearness: near.fold(0.0, f64::max),
                    outages: spans(&points, &gaps, ended, |value| value.is_none()),
                    breaches: spans(&points, &gaps, ended, |value| {
                        value.is_some_and(|own| !holds(own))
                    }),
                    points,
                    gaps,
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
    gaps: &[Span],
    ended: Time,
    is_so: impl Fn(Option<f64>) -> bool,
) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut since = None;
    for (at, value) in points {
        // What was not looked at is not known to have been so.
        let gap = gaps.iter().find(|gap| gap.to == *at);
        if let (Some(from), Some(gap)) = (since, gap) {
            spans.push(Span { from, to: gap.from.max(from) });
            since = None;
        }
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
