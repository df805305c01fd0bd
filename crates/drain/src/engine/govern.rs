//! What tasks get of what they share, and how knobs that stand for a share are
//! kept at it.
//!
//! At no moment is more let through than there is: what a task has is counted
//! as the most that its knob may stand at, and nobody's is raised before
//! somebody else's is known to be lower.
//!
//! | the task | its rate | its share |
//! |---|---|---|
//! | runs, settles, goes back | follows its share | is its own |
//! | failed, was stopped | is set to 0: nobody watches it | is free when that is confirmed |
//! | was skipped | stays, it may be in use | is kept until the run ends |
//! | is done | stays, it has nothing left to do | is free |
//! | was abandoned | stays, as everything does | the run is over |

use super::budget::{Claim, divide};
use super::gate::Gate;
use super::{ATTEMPTS_MAX, Effect, Hold, Phase, Run};
use crate::plan::{BudgetId, KnobId, Outcome, TaskId};
use crate::time::Time;
use crate::value::Value;

/// A governed knob is raised when it can be by more than this part of it.
const RAISE_MIN: f64 = 0.05;
/// Shares that differ by less are the same.
const SAME: f64 = 1e-9;

impl Run {
    /// Divides budgets anew if claims changed, and wakes whose share did.
    pub(super) fn divide_budgets(&mut self) {
        if !std::mem::take(&mut self.are_budgets_stale) || self.plan.budgets.is_empty() {
            return;
        }
        #[cfg(test)]
        (self.toil.divided += 1);
        let claimants = std::mem::take(&mut self.index.claimants);
        let before: Vec<f64> = claimants.iter().map(|task| self.speed(*task)).collect();
        claimants.iter().for_each(|task| self.speeds[task.index()] = 1.0);
        for at in 0..self.plan.budgets.len() {
            self.divide_budget(BudgetId(at as u32), &claimants);
        }
        for at in 0..self.plan.budgets.len() {
            let budget = BudgetId(at as u32);
            let over = claimants.iter().map(|task| self.overdraft(*task, budget)).sum();
            self.overdrawn[at] = over;
        }
        for (task, before) in claimants.iter().zip(before) {
            if self.speed(*task) != before && self.state.task(*task).phase.is_active() {
                self.wake(*task);
            }
        }
        self.index.claimants = claimants;
    }

    /// Whether what a task does next depends on its share.
    pub(super) fn needs_share(&self, task: TaskId) -> bool {
        !self.plan.task(task).budgets.is_empty() && self.state.task(task).phase.is_active()
    }

    fn divide_budget(&mut self, budget: BudgetId, claimants: &[TaskId]) {
        let mut size = self.plan.budgets[budget.index()].size;
        let mut of: Vec<(TaskId, Claim)> = Vec::new();
        for task in claimants {
            let Some(wants) = self.wants(*task, budget) else { continue };
            if self.uses_budgets(*task) {
                of.push((*task, Claim { priority: self.plan.task(*task).priority, wants }));
            } else {
                // What it does not claim it may still use.
                size -= self.let_through(*task, budget);
            }
        }
        let claims: Vec<Claim> = of.iter().map(|(_, claim)| *claim).collect();
        for ((task, claim), share) in of.into_iter().zip(divide(size, &claims)) {
            let speed = if claim.wants > 0.0 { share / claim.wants } else { 1.0 };
            let own = &mut self.speeds[task.index()];
            *own = own.min(speed);
        }
    }

    /// What a task would use of a budget at full speed.
    fn wants(&self, task: TaskId, budget: BudgetId) -> Option<f64> {
        let mut own = self.plan.task(task).budgets.iter();
        own.find(|(id, _)| *id == budget).map(|(_, wants)| *wants)
    }

    /// Whoever is held leaves its share to others, unless it keeps a knob at it:
    /// what that lets through goes on whatever the task waits for.
    pub(super) fn uses_budgets(&self, task: TaskId) -> bool {
        let state = self.state.task(task);
        let is_free = state
            .hold
            .as_ref()
            .is_none_or(|(_, why)| matches!(why, Hold::Budget | Hold::Awaits { .. }));
        match state.phase {
            Phase::Running | Phase::Reverting => is_free || state.governs.is_some(),
            Phase::Settling => state.governs.is_some(),
            _ => false,
        }
    }

    /// The most that the governed knob of a task may let through: where it was
    /// left, where it is being put, or where a write that failed may have put
    /// it. Never more than the task wants.
    fn let_through(&self, task: TaskId, budget: BudgetId) -> f64 {
        let state = self.state.task(task);
        let governs = state.governs.filter(|(_, own)| *own == budget);
        let is_counted = !matches!(
            state.phase,
            Phase::Waiting | Phase::Done | Phase::Reverted | Phase::Abandoned
        );
        let Some((knob, _)) = governs.filter(|_| is_counted) else { return 0.0 };
        if state.phase == Phase::Reverting && self.puts_back_after(task, knob) {
            // Nothing that made use of it is left.
            return 0.0;
        }
        let left = self.state.knobs[knob.index()].as_ref().map(|left| &left.value);
        let doubted = state.doubted.iter().filter(|(own, _)| *own == knob).map(|(_, value)| value);
        let written = state.in_flight.and_then(|effect| self.state.in_flight.get(&effect));
        let written = written.and_then(|own| match &own.what {
            Effect::Write { knob: own, value } if *own == knob => Some(value),
            _ => None,
        });
        let values = left.into_iter().chain(doubted).chain(written);
        let most = values.filter_map(Value::number).fold(0.0, f64::max);
        most.min(self.wants(task, budget).unwrap_or(most))
    }

    /// What the knob of a task lets through beyond its share.
    fn overdraft(&self, task: TaskId, budget: BudgetId) -> f64 {
        match self.uses_budgets(task) {
            true => (self.let_through(task, budget) - self.share(task, budget)).max(0.0),
            // It is not divided at all.
            false => 0.0,
        }
    }

    /// What a task is to get of a budget.
    fn share(&self, task: TaskId, budget: BudgetId) -> f64 {
        let size = self.plan.budgets[budget.index()].size;
        self.wants(task, budget).map_or(size, |wants| wants * self.speeds[task.index()])
    }

    /// What a task may have of it now: others are lowered first.
    fn grant(&self, task: TaskId, budget: BudgetId) -> f64 {
        let others = self.overdrawn[budget.index()] - self.overdraft(task, budget);
        let share = self.share(task, budget) - others;
        if share > SAME { share } else { 0.0 }
    }

    /// The share of its full speed that a task may go at now.
    pub(super) fn speed(&self, task: TaskId) -> f64 {
        let own = &self.plan.task(task).budgets;
        let speeds = own.iter().filter(|(_, wants)| *wants > 0.0);
        speeds.map(|(id, wants)| self.grant(task, *id) / wants).fold(1.0, f64::min)
    }

    /// Sets the knob to its share for the first time.
    pub(super) fn begin_to_govern(
        &mut self,
        now: Time,
        task: TaskId,
        knob: KnobId,
        budget: BudgetId,
    ) {
        if self.state.task(task).stage_done {
            return self.leave(now, task, Outcome::Done);
        }
        if self.state.task(task).origin(knob).is_none() {
            return self.look_first(now, task, knob);
        }
        let grant = self.grant(task, budget);
        if grant <= 0.0 {
            return self.hold(now, task, Hold::Budget);
        }
        self.act(now, task, Effect::Write { knob, value: Value::Number(grant) });
    }

    /// Keeps a governed knob at its share; true if it was written. To lower it
    /// nothing is waited for. It is raised as any step is taken: when health
    /// allows.
    pub(super) fn govern(&mut self, now: Time, task: TaskId) -> bool {
        let Some((knob, budget)) = self.state.task(task).governs else { return false };
        let Some(left) = &self.state.knobs[knob.index()] else { return false };
        let Some(at) = left.value.number() else { return false };
        let share = self.share(task, budget);
        let (grant, is_doubted) = (self.grant(task, budget), self.state.task(task).doubts(knob));
        let may_rise = grant > at * (1.0 + RAISE_MIN) + SAME
            && matches!(self.gate(now, task), Gate::Open { .. });
        let value = if at > share * (1.0 + SAME) {
            share
        } else if may_rise {
            grant
        } else if is_doubted {
            at
        } else {
            return false;
        };
        self.issue(now, task, Effect::Write { knob, value: Value::Number(value) });
        true
    }

    /// Stops what a task lets through that nobody sees to any more.
    pub(super) fn let_go(&mut self, now: Time, task: TaskId) {
        let state = self.state.task(task);
        let Some((knob, budget)) = state.governs else { return };
        let is_due = state.in_flight.is_none()
            && state.failures < ATTEMPTS_MAX
            && self.let_through(task, budget) > 0.0;
        if is_due && !self.retries_later(now, task) {
            self.issue(now, task, Effect::Write { knob, value: Value::Number(0.0) });
        }
    }
}
