//! Whether a task may do its next step: nobody paused it, no limit is in the
//! way, and everything that must be healthy is.

use super::{Hold, Mode, Phase, Run};
use crate::condition::{NoData, Verdict};
use crate::fleet::{Fleet, LimitReached};
use crate::plan::{ConditionId, Direction, KnobId, Next, StageKind, TakesOut, TaskId};
use crate::time::{Millis, Time};
use crate::value::Value;

/// How long a look counts, whatever it saw: for that long a condition that has
/// no value yet is nothing to be held for.
const LOOK_COUNTS_FOR: Millis = Millis::from_secs(30);

/// How long before a fence was closed a series may have ended that an exact condition misses:
/// a replica that was cut off just before has none, and is behind.
const MISSED_BEFORE_FENCE: Millis = Millis::from_secs(300);

/// What stands between a task and its next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// Nothing. `nearness`: how near the nearest condition is to its bound.
    Open {
        nearness: f64,
    },
    /// Conditions hold, but for too short a time, or nobody has looked at them
    /// yet. That is nothing to be held for before then. `None`: they hold by
    /// samples from before the last effect; the next samples decide.
    Rising {
        until: Option<Time>,
    },
    Closed(Hold),
}

impl Run {
    /// Whether a task may take a step.
    pub(super) fn gate(&self, now: Time, task: TaskId) -> Gate {
        if self.is_paused(task) {
            return Gate::Closed(Hold::Paused);
        }
        if let Some(reached) = self.limit_reached(task) {
            return Gate::Closed(Hold::Limit(reached));
        }
        let conditions = self.plan.task(task).health.iter().chain(&self.plan.health);
        self.judge(now, task, conditions.copied())
    }

    /// When the last effect was confirmed that conditions of a task have to
    /// judge: its own, those of all tasks before it, and those of other
    /// runs before this one began.
    pub(super) fn judged_since(&self, task: TaskId) -> Option<Time> {
        let before = self.state.effect_before(&self.plan, task);
        let effect = before.max(self.state.task(task).effect_at);
        // The clock of a process that took the run up may be ahead of the one that wrote it.
        let own = effect.map(|at| self.began.map_or(at, |began| began.max(at)));
        own.max(self.plan.changed)
    }

    /// How far back an exact condition misses series that have ended: to
    /// [`MISSED_BEFORE_FENCE`] before the first fence was closed behind which it is waited for.
    pub fn misses_within(&self, now: Time, condition: ConditionId) -> Millis {
        let tasks = self.index.watchers[condition.index()].iter();
        let since = tasks.filter_map(|task| self.state.task(*task).fenced_since).min();
        let max_age = self.plan.condition(condition).max_age;
        max_age.max(MISSED_BEFORE_FENCE) + (now - since.unwrap_or(now))
    }

    /// The exact condition behind the fence that the stage of a task closes, if it has
    /// no value: the fence would be closed for nothing.
    pub(super) fn unseen_behind(&self, now: Time, task: TaskId) -> Option<ConditionId> {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let stage = self.state.stage(&self.plan, task);
        let StageKind::Set { knob, to, .. } = &stage.kind else { return None };
        let Next::Stage(next) = stage.done else { return None };
        let condition = own.stages[next.index()].condition()?;
        let is_overridden =
            state.overridden.contains(&condition) || self.state.overridden.contains(&condition);
        let is_asked = own.is_closed_by(*knob, to.value())
            && self.plan.condition(condition).is_exact
            && !is_overridden;
        let seen = &self.seen[condition.index()];
        let verdict = self.plan.condition(condition).verdict(seen, now);
        (is_asked && verdict == Verdict::Unknown).then_some(condition)
    }

    pub fn is_paused(&self, task: TaskId) -> bool {
        (self.state.paused || self.state.task(task).paused) && self.is_interruptible(task)
    }

    /// What conditions say together: the worst of them.
    pub(super) fn judge(
        &self,
        now: Time,
        task: TaskId,
        conditions: impl Iterator<Item = ConditionId>,
    ) -> Gate {
        let overridden = &self.state.task(task).overridden;
        let after = self.judged_since(task);
        let (mut nearness, mut rising): (f64, Option<Time>) = (0.0, None);
        let (mut unknown, mut is_outdated) = (None, false);
        for id in conditions {
            if overridden.contains(&id) || self.state.overridden.contains(&id) {
                continue;
            }
            if let Some(until) = self.is_unseen_until(now, task, id) {
                rising = rising.max(Some(until));
                continue;
            }
            let (condition, seen) = (self.plan.condition(id), &self.seen[id.index()]);
            let value = seen.value(now, condition.max_age);
            match self.verdict_on_step(now, task, id, after) {
                Verdict::Breached => return Gate::Closed(Hold::Breach { condition: id, value }),
                Verdict::Unknown => unknown = unknown.or(Some(id)),
                // Only a later sample shows that it held for longer.
                Verdict::Rising | Verdict::Outdated => is_outdated = true,
                Verdict::Holds => {
                    let near = value.and_then(|value| condition.nearness(value));
                    nearness = nearness.max(near.unwrap_or(0.0));
                }
            }
        }
        match (unknown, rising) {
            (Some(condition), _) => Gate::Closed(Hold::NoData { condition }),
            (None, _) if is_outdated => Gate::Rising { until: None },
            (None, Some(until)) => Gate::Rising { until: Some(until) },
            (None, None) => Gate::Open { nearness },
        }
    }

    /// A condition of the health of a task that has no value, and holds it for that.
    pub(super) fn unknown_health(&self, now: Time, task: TaskId) -> Option<ConditionId> {
        let after = self.judged_since(task);
        self.asked_health(task).find(|id| {
            let condition = self.plan.condition(*id);
            // That it counts as bad does not make it known.
            let is_missing = condition.no_data == NoData::Fail
                && self.seen[id.index()].fresh(now, condition.max_age).is_none();
            is_missing || self.verdict_on_step(now, task, *id, after) == Verdict::Unknown
        })
    }

    /// A condition of the health of a task of which there is no sample from after the last
    /// change, good or bad.
    pub(super) fn outdated_health(&self, now: Time, task: TaskId) -> Option<ConditionId> {
        let after = self.judged_since(task);
        self.asked_health(task).find(|id| {
            let is_known = self.seen[id.index()].fresh(now, self.plan.condition(*id).max_age);
            match is_known {
                Some(_) => !self.is_seen_since(*id, after),
                None => self.verdict_on_step(now, task, *id, after) == Verdict::Outdated,
            }
        })
    }

    /// The health of a task that no person has overridden.
    fn asked_health(&self, task: TaskId) -> impl Iterator<Item = ConditionId> {
        let health = self.plan.task(task).health.iter().chain(&self.plan.health).copied();
        let own = &self.state.task(task).overridden;
        health.filter(|id| !own.contains(id) && !self.state.overridden.contains(id))
    }

    /// The condition that a task waits for a newer sample of: those there are
    /// were taken before the last change.
    pub fn awaits_sample(&self, now: Time, task: TaskId) -> Option<ConditionId> {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        if state.in_flight.is_some() || state.hold.is_some() {
            return None;
        }
        if state.phase == Phase::Reverting && !state.is_undoing {
            return self.outdated_health(now, task);
        }
        if state.phase != Phase::Running {
            return None;
        }
        let awaited = match own.stages[state.stage.index()].kind {
            StageKind::Await { condition } | StageKind::Check { condition } => vec![condition],
            StageKind::Shift { .. } | StageKind::Set { .. } | StageKind::Act(_) => {
                own.health.iter().chain(&self.plan.health).copied().collect()
            }
            _ => Vec::new(),
        };
        let after = self.judged_since(task);
        awaited
            .into_iter()
            .find(|id| self.verdict_on_step(now, task, *id, after) == Verdict::Outdated)
    }

    /// What a condition says of the next step of a task, forward or back, after an
    /// effect that was confirmed at `after`.
    fn verdict_on_step(
        &self,
        now: Time,
        task: TaskId,
        id: ConditionId,
        after: Option<Time>,
    ) -> Verdict {
        let (condition, seen) = (self.plan.condition(id), &self.seen[id.index()]);
        if self.state.task(task).goes_back() {
            condition.verdict_back(seen, now, after)
        } else {
            condition.verdict_after(seen, now, after)
        }
    }

    /// Has a task looked at again when its conditions have had their time, or
    /// with the next sample.
    pub(super) fn rise(&mut self, task: TaskId, until: Option<Time>) {
        match until {
            Some(until) => self.wake_at(task, until),
            None => self.await_look.put(task, true),
        }
    }

    /// Whether what was measured last was taken after the last effect: a value
    /// from before it may breach a condition, but is no verdict on the effect.
    pub(super) fn is_seen_since(&self, id: ConditionId, since: Option<Time>) -> bool {
        let taken = self.seen[id.index()].measurement().map(|found| found.from);
        since.is_none_or(|since| taken.is_none_or(|taken| taken > since))
    }

    /// Until when it says nothing that a condition has no value: as long as it
    /// could not have been looked at since the run was taken up, or since the
    /// task is concerned with it.
    pub(super) fn is_unseen_until(&self, now: Time, task: TaskId, id: ConditionId) -> Option<Time> {
        let state = self.state.task(task);
        let since = match state.phase {
            Phase::Waiting => {
                let ended = |parent| self.state.task(parent).ended;
                // Who is retried was no concern of anybody before.
                self.plan.task(task).parents().filter_map(ended).max().max(state.ended)
            }
            _ => Some(state.entered),
        };
        let since = since.max(self.began);
        let (seen, max_age) = (&self.seen[id.index()], self.plan.condition(id).max_age);
        // A value from before that has become too old is no look in vain.
        let is_outdated = |at: Time| {
            since.is_some_and(|since| at < since)
                && seen.measurement().is_some_and(|found| now - found.to > max_age)
        };
        if seen.at().is_some_and(|at| now - at <= LOOK_COUNTS_FOR && !is_outdated(at)) {
            return None;
        }
        let until = since? + LOOK_COUNTS_FOR;
        // A clock that was set back must not make it longer.
        (now < until && until - now <= LOOK_COUNTS_FOR).then_some(until)
    }

    /// Takes the position of the fleet; recorded if it changed.
    pub(super) fn take_fleet(&mut self, now: Time, fleet: Fleet) {
        if !fleet.is_of(&self.plan) {
            return;
        }
        let fleet = fleet.counted(&self.plan);
        if fleet.differs(&self.state.fleet, &self.plan) {
            self.record(now, super::Fact::Fleet { fleet });
            self.wake_all();
        }
    }

    /// The limit that keeps a task from moving traffic out, if it does: with
    /// this run's datacenter counted as drained, since it will be.
    pub(super) fn limit_reached(&self, task: TaskId) -> Option<LimitReached> {
        if self.counts_as_out(self.takes_back_out(task)) {
            return self.limit_to_taking_back_out();
        }
        if self.moves_out(task) { self.limit_to_leaving() } else { None }
    }

    /// The same for what is to bring traffic back: whether others serve must be known, also in
    /// a disaster.
    pub(super) fn limit_to_taking_back_out(&self) -> Option<LimitReached> {
        if self.has_waived_limits() {
            return None;
        }
        self.state.fleet.check_limits(&self.plan, Mode::Drill).err()
    }

    /// Whether a task moves traffic out: by the direction of the run, or because what it
    /// brings a knob back to lets in less than its present value. Something else has moved
    /// it in by then, and may have moved all others out.
    pub(super) fn moves_out(&self, task: TaskId) -> bool {
        let state = self.state.task(task);
        let is_on_way_out = (self.plan.direction == Direction::Drain) != state.goes_back();
        is_on_way_out || self.counts_as_out(self.leads_out(task))
    }

    /// Whether what brings traffic back would take it out of what serves by now.
    pub fn takes_back_out(&self, task: TaskId) -> TakesOut {
        let is_on_way_in =
            (self.plan.direction == Direction::Restore) != self.state.task(task).goes_back();
        if is_on_way_in { self.leads_out(task) } else { TakesOut::No }
    }

    /// Whether a change is held as one that takes out what serves. In a disaster what nobody
    /// knows must not keep from coming back what is served nowhere else.
    pub(super) fn counts_as_out(&self, takes_out: TakesOut) -> bool {
        match takes_out {
            TakesOut::No => false,
            TakesOut::Maybe => self.state.mode == Mode::Drill,
            TakesOut::Yes => true,
        }
    }

    /// Whether the next write of a task takes out what serves.
    fn leads_out(&self, task: TaskId) -> TakesOut {
        let Some((knob, at, to)) = self.next_write(task) else { return TakesOut::No };
        self.takes_out(knob, &at, &to)
    }

    /// Which knob a task writes next, its value now, and the one that it brings it to in the
    /// end.
    fn next_write(&self, task: TaskId) -> Option<(KnobId, Value, Value)> {
        let state = self.state.task(task);
        match state.phase {
            Phase::Running => match &self.state.stage(&self.plan, task).kind {
                StageKind::Shift { knob, to } => {
                    let shift = state.shift.filter(|shift| shift.knob == *knob)?;
                    Some((*knob, shift.place(), to.value().clone()))
                }
                StageKind::Set { knob, to, .. } => {
                    let seen = self.in_place.get(knob).map(|(_, found)| found);
                    let at = seen.or(state.origin(*knob))?.clone();
                    Some((*knob, at, to.value().clone()))
                }
                _ => None,
            },
            Phase::Reverting if !state.is_undoing => {
                let (knob, origin) = self.next_to_put_back(task)?;
                let shift = state.shift.filter(|shift| shift.knob == knob);
                let left = self.state.knobs[knob.index()].as_ref();
                let at = shift.map(|shift| shift.place());
                Some((knob, at.or_else(|| Some(left?.value.clone()))?, origin))
            }
            _ => None,
        }
    }

    /// Whether a change of a knob may leave its service nothing in this datacenter that it
    /// had. A lone small weight is still all of the traffic.
    pub(super) fn takes_out(&self, knob: KnobId, at: &Value, to: &Value) -> TakesOut {
        let carrier = self.plan.carrier(self.plan.knob(knob));
        carrier.map_or(TakesOut::No, |carrier| carrier.takes_out(at, to))
    }

    /// The limit that keeps traffic from leaving this run's datacenter.
    pub(super) fn limit_to_leaving(&self) -> Option<LimitReached> {
        if self.has_waived_limits() {
            return None;
        }
        self.state.fleet.check_limits(&self.plan, self.state.mode).err()
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
