//! Budgets are never given twice, at no moment: what governed knobs may let
//! through is no more than there is. A knob counts for the most that it may
//! stand at: while a write is under way, and after one that failed, for both.

use std::collections::BTreeMap;
use std::sync::Arc;

use drain::engine::{Effect, EffectId, Ended, Fact, Phase, State};
use drain::{BudgetId, KnobId, Plan, StageKind, TaskId, Time, Value};

use super::{Checker, Event};

/// For what floating point makes of sums.
const LEEWAY: f64 = 1.0 + 1e-6;

#[derive(Debug)]
pub struct Budgets {
    plan: Arc<Plan>,
    /// Where each knob may stand by what was written to it.
    may_be_at: Vec<Vec<f64>>,
    under_way: BTreeMap<EffectId, (KnobId, f64)>,
}

impl Budgets {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let may_be_at = vec![Vec::new(); plan.knobs.len()];
        Budgets { plan: plan.clone(), may_be_at, under_way: BTreeMap::new() }
    }

    fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Issued {
                effect,
                what: Effect::Write { knob, value: Value::Number(value) },
                ..
            } => {
                self.may_be_at[knob.index()].push(*value);
                self.under_way.insert(*effect, (*knob, *value));
            }
            Fact::Ended { effect, result } => {
                let Some((knob, value)) = self.under_way.remove(effect) else { return };
                if matches!(result, Ended::Done { .. }) {
                    self.may_be_at[knob.index()] = vec![value];
                }
            }
            _ => {}
        }
    }

    /// What a task lets through of a budget, at the most.
    fn used(&self, state: &State, task: TaskId, budget: BudgetId) -> f64 {
        let own = state.task(task);
        // Who goes back switches off what makes use of a rate before the rate.
        let is_over = matches!(
            own.phase,
            Phase::Waiting | Phase::Done | Phase::Reverting | Phase::Reverted | Phase::Abandoned
        );
        if is_over {
            return 0.0;
        }
        // By the plan, not by what the run believes to keep.
        let governed = self.plan.task(task).stages.iter().filter_map(|stage| match stage.kind {
            StageKind::Govern { knob, budget: of } if of == budget => Some(knob),
            _ => None,
        });
        let may_be_at = governed.flat_map(|knob| &self.may_be_at[knob.index()]);
        let most = may_be_at.copied().fold(0.0, f64::max);
        let wants = self.plan.task(task).budgets.iter().find(|(of, _)| *of == budget);
        wants.map_or(most, |(_, wants)| most.min(*wants))
    }

    fn check(&self, state: &State) -> Result<(), String> {
        for (at, budget) in self.plan.budgets.iter().enumerate() {
            let id = BudgetId(at as u32);
            let used: f64 = self.plan.task_ids().map(|task| self.used(state, task, id)).sum();
            if used > budget.size * LEEWAY {
                let (name, size) = (&budget.name, budget.size);
                return Err(format!("{used} of {name} may be used, and there is {size}"));
            }
        }
        Ok(())
    }
}

impl Checker for Budgets {
    fn name(&self) -> &'static str {
        "budgets"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => {
                self.take(&record.fact);
                Ok(())
            }
            Event::Rested { state } => self.check(state),
            _ => Ok(()),
        }
    }
}
