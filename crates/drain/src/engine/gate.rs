//! Whether a task may do its next step: nobody paused it, no limit is in the
//! way, and everything that must be healthy is.

use super::{Hold, Phase, Run};
use crate::condition::{FRESH_FOR, Verdict};
use crate::plan::{ConditionId, Direction, TaskId};
use crate::time::{Millis, Time};

/// What stands between a task and its next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// Nothing. `nearness`: how near the nearest condition is to its bound.
    Open {
        nearness: f64,
    },
    /// Conditions hold, but for too short a time, or nobody has looked at them
    /// yet. That is nothing to be held for before then.
    Rising {
        until: Time,
    },
    Closed(Hold),
}

impl Run {
    /// Whether a task may take a step.
    pub(super) fn gate(&self, now: Time, task: TaskId) -> Gate {
        if self.is_paused(task) {
            return Gate::Closed(Hold::Paused);
        }
        if !self.is_within_limits() {
            return Gate::Closed(Hold::Limit);
        }
        let conditions = self.plan.task(task).health.iter().chain(&self.plan.health);
        self.judge(now, task, conditions.copied())
    }

    pub(super) fn is_paused(&self, task: TaskId) -> bool {
        self.state.paused || self.state.task(task).paused
    }

    /// What conditions say together: the worst of them.
    pub(super) fn judge(
        &self,
        now: Time,
        task: TaskId,
        conditions: impl Iterator<Item = ConditionId>,
    ) -> Gate {
        let overridden = &self.state.task(task).overridden;
        let (mut nearness, mut rising): (f64, Option<Time>) = (0.0, None);
        let mut unknown = None;
        for id in conditions {
            if overridden.contains(&id) || self.state.overridden.contains(&id) {
                continue;
            }
            if let Some(until) = self.is_unseen_until(now, task, id) {
                rising = rising.max(Some(until));
                continue;
            }
            let (condition, seen) = (self.plan.condition(id), &self.seen[id.index()]);
            let value = seen.value(now);
            match condition.verdict(seen, now) {
                Verdict::Breached => return Gate::Closed(Hold::Breach { condition: id, value }),
                Verdict::Unknown => unknown = unknown.or(Some(id)),
                Verdict::Rising => {
                    let until = seen.holds_at(condition.hold_for).unwrap_or(now + Millis(1));
                    rising = rising.max(Some(until));
                }
                Verdict::Holds => {
                    let near = value.and_then(|value| condition.nearness(value));
                    nearness = nearness.max(near.unwrap_or(0.0));
                }
            }
        }
        match (unknown, rising) {
            (Some(condition), _) => Gate::Closed(Hold::NoData { condition }),
            (None, Some(until)) => Gate::Rising { until },
            (None, None) => Gate::Open { nearness },
        }
    }

    /// Until when it says nothing that a condition has no value: as long as it
    /// could not have been looked at since the run was taken up, or since the
    /// task is concerned with it.
    pub(super) fn is_unseen_until(&self, now: Time, task: TaskId, id: ConditionId) -> Option<Time> {
        if self.seen[id.index()].at().is_some_and(|at| now - at <= FRESH_FOR) {
            return None;
        }
        let state = self.state.task(task);
        let since = match state.phase {
            Phase::Waiting => {
                let ended = |parent| self.state.task(parent).ended;
                self.plan.task(task).parents().filter_map(ended).max()
            }
            _ => Some(state.entered),
        };
        let until = since.max(self.began)? + FRESH_FOR;
        // A clock that was set back must not make it longer.
        (now < until && until - now <= FRESH_FOR).then_some(until)
    }

    /// Whether every condition that a step depends on was looked at since
    /// `since`: what was healthy before a step says nothing about it.
    pub(super) fn has_looked_since(&self, task: TaskId, since: Time) -> bool {
        let overridden = &self.state.task(task).overridden;
        let conditions = self.plan.task(task).health.iter().chain(&self.plan.health);
        conditions
            .filter(|id| !overridden.contains(id) && !self.state.overridden.contains(id))
            .all(|id| self.seen[id.index()].at().is_some_and(|at| at > since))
    }

    /// Whether enough datacenters serve, and not too much is drained, with this
    /// run's counted as drained: it will be.
    pub(super) fn is_within_limits(&self) -> bool {
        if self.plan.direction == Direction::Restore || self.has_waived_limits() {
            return true;
        }
        let datacenters = || self.plan.datacenters.iter().zip(&self.state.drained);
        let drained = |(own, by_others): (&crate::plan::Datacenter, &f64)| {
            if own.name == self.plan.datacenter { 1.0 } else { *by_others }
        };
        let serving = datacenters().filter(|both| drained(*both) < 1.0).count();
        let capacity: f64 = datacenters().map(|(own, _)| own.capacity).sum();
        let gone: f64 = datacenters().map(|both| both.0.capacity * drained(both)).sum();
        let limits = &self.plan.limits;
        serving as u32 >= limits.serving_min
            && (capacity <= 0.0 || gone / capacity <= limits.drained_max + 1e-9)
    }

    /// Two people are needed.
    pub(super) fn has_waived_limits(&self) -> bool {
        self.state.waived_by.len() >= 2
    }

    /// Writes down that a task waits for what closes a gate.
    pub(super) fn await_gate(&mut self, now: Time, task: TaskId, why: Hold) {
        let why = match why {
            Hold::Breach { condition, value } => Hold::Awaits { condition, value },
            other => other,
        };
        self.hold(now, task, why);
    }

    /// Writes down why a task does not go on, once for each reason.
    pub(super) fn hold(&mut self, now: Time, task: TaskId, why: Hold) {
        let known = self.state.task(task).hold.as_ref().map(|(_, known)| known);
        if known.is_none_or(|known| !known.is_same(&why)) {
            let used_budgets = self.uses_budgets(task);
            self.record(now, super::Fact::Held { task, why });
            self.are_budgets_stale |= self.uses_budgets(task) != used_budgets;
        }
    }

    pub(super) fn release(&mut self, now: Time, task: TaskId) {
        if self.state.task(task).hold.is_some() {
            let used_budgets = self.uses_budgets(task);
            self.record(now, super::Fact::Released { task });
            self.are_budgets_stale |= self.uses_budgets(task) != used_budgets;
        }
    }
}

impl Hold {
    /// Whether it is the same reason, whatever the values.
    fn is_same(&self, other: &Hold) -> bool {
        match (self, other) {
            (Hold::Breach { condition: a, .. }, Hold::Breach { condition: b, .. })
            | (Hold::Awaits { condition: a, .. }, Hold::Awaits { condition: b, .. }) => a == b,
            _ => self == other,
        }
    }
}
