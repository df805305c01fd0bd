//! When tasks begin and end, and what they get of what they share.

use super::gate::Gate;
use super::{
    ATTEMPTS_MAX, Abort, Fact, Hold, Mode, Phase, Run, RunOutcome, Trigger, UNANSWERED_AFTER,
};
use crate::plan::TaskId;
use crate::time::Time;

impl Run {
    /// Looks at one task, and does whatever is due.
    pub(super) fn examine(&mut self, now: Time, task: TaskId) {
        #[cfg(test)]
        (self.toil.examined += 1);
        self.await_look.put(task, false);
        if self.state.closed.is_some() {
            return;
        }
        self.note_unanswered(now, task);
        if self.abort_if_due(now, task) {
            return;
        }
        let phase = self.state.task(task).phase;
        match phase {
            Phase::Running | Phase::Reverting
                if self.needs_claim(task) && self.is_held_for_claim(now, task) => {}
            Phase::Waiting => self.start_if_due(now, task),
            Phase::Running => self.advance(now, task),
            Phase::Settling => self.settle_if_due(now, task),
            Phase::Reverting => self.retreat(now, task),
            Phase::Failed | Phase::Stopped => self.let_go(now, task),
            _ => {}
        }
        self.flag_if_stuck(now, task);
    }

    /// Whether all that a task waits for is complete. In a disaster weak
    /// dependencies are not waited for.
    pub(super) fn parents_are_complete(&self, task: TaskId) -> bool {
        let own = self.plan.task(task);
        let is_complete = |parent: &TaskId| self.state.task(*parent).phase.is_complete();
        own.after.iter().all(is_complete)
            && (self.state.mode == Mode::Disaster || own.after_weak.iter().all(is_complete))
    }

    fn start_if_due(&mut self, now: Time, task: TaskId) {
        if !self.parents_are_complete(task) {
            return;
        }
        let gate = if self.is_paused(task) {
            Gate::Closed(Hold::Paused)
        } else if let Some(reached) = self.limit_reached(task) {
            Gate::Closed(Hold::Limit(reached))
        } else {
            self.judge(now, task, self.plan.task(task).pre.iter().copied())
        };
        match gate {
            Gate::Open { .. } => {
                self.move_task(now, task, Trigger::Start);
                let stage = self.state.task(task).stage;
                self.record(now, Fact::Entered { task, stage });
                self.wake_barriers(task);
            }
            Gate::Rising { until } => self.rise(task, until),
            Gate::Closed(why) => self.await_gate(now, task, why),
        }
    }

    /// A task whose stages are through is done when its post-conditions hold.
    fn settle_if_due(&mut self, now: Time, task: TaskId) {
        if self.state.task(task).in_flight.is_some() || self.retries_later(now, task) {
            return;
        }
        if self.state.task(task).failures < ATTEMPTS_MAX && self.govern(now, task) {
            return;
        }
        match self.judge(now, task, self.plan.task(task).post.iter().copied()) {
            Gate::Open { .. } => self.move_task(now, task, Trigger::Settle),
            Gate::Rising { until } => self.rise(task, until),
            Gate::Closed(why) => self.await_gate(now, task, why),
        }
    }

    /// Says that a task waits for the end of what it does, if that takes long.
    fn note_unanswered(&mut self, now: Time, task: TaskId) {
        let Some(effect) = self.state.task(task).in_flight else { return };
        let Some(in_flight) = self.state.in_flight.get(&effect) else { return };
        // After a crash it was begun anew.
        let since = Some(in_flight.since).max(self.began).unwrap_or(now);
        let at = since + UNANSWERED_AFTER;
        if now < at {
            self.wake_at(task, at);
        } else {
            self.hold(now, task, Hold::Unanswered { effect });
        }
    }

    /// Says once that a task takes longer than it should.
    fn flag_if_stuck(&mut self, now: Time, task: TaskId) {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let runs = matches!(state.phase, Phase::Running | Phase::Settling);
        let Some(started) = state.started.filter(|_| runs && !state.is_stuck) else { return };
        let at = started + own.expected.stuck_after.unwrap_or(own.timeout);
        if now >= at {
            self.record(now, Fact::Stuck { task });
        } else {
            self.wake_at(task, at);
        }
    }

    /// Ends a task of a run that is aborted, as soon as that is safe; true if
    /// nothing else is to be done for it.
    fn abort_if_due(&mut self, now: Time, task: TaskId) -> bool {
        let Some(how) = self.state.abort else { return false };
        let state = self.state.task(task);
        if state.in_flight.is_some() {
            // Nothing is left halfway.
            return true;
        }
        let trigger = match how {
            Abort::Hold => Trigger::Abandon,
            // What waits may have moved something before it was retried.
            Abort::Revert if state.phase == Phase::Waiting && state.origins.is_empty() => {
                Trigger::Abandon
            }
            Abort::Revert => Trigger::Revert,
        };
        if state.phase.after(trigger).is_none() {
            return state.phase != Phase::Reverting;
        }
        if how == Abort::Revert && !self.children_are_back(task) {
            return true;
        }
        if how == Abort::Hold && !self.is_interruptible(task) {
            // Where it is now it must not stay.
            return false;
        }
        self.move_task(now, task, trigger);
        true
    }

    /// Whether all that came after a task is undone: what depends on it goes
    /// first.
    fn children_are_back(&self, task: TaskId) -> bool {
        self.index.children[task.index()].iter().all(|child| {
            matches!(
                self.state.task(*child).phase,
                Phase::Reverted | Phase::Unreverted | Phase::Abandoned
            )
        })
    }

    /// Ends the run when nothing is left to be done, and everything that was
    /// turned was looked at once more.
    pub(super) fn close(&mut self, now: Time) {
        if self.state.closed.is_some() {
            return;
        }
        let Some(outcome) = self.outcome() else {
            self.last_look = None;
            return;
        };
        if self.state.in_flight.is_empty() && self.has_looked_at_all(now) {
            // By then something may have been found that was put elsewhere.
            let outcome = match outcome {
                RunOutcome::Reverted if !self.state.astray.is_empty() => RunOutcome::PartlyReverted,
                other => other,
            };
            self.record(now, Fact::Closed { outcome });
        }
    }

    fn has_abandoned(&self) -> bool {
        let mut tasks = self.state.tasks.iter();
        tasks.any(|task| task.phase == Phase::Abandoned && !task.origins.is_empty())
    }

    /// How the run ends, if all of its tasks have.
    pub(super) fn outcome(&self) -> Option<RunOutcome> {
        let census = &self.state.census;
        let has = |phase: Phase| census.has(|own| own == phase);
        if census.has(|phase| !phase.has_ended()) {
            return None;
        }
        match self.state.abort {
            None if census.has(|phase| !phase.is_complete()) => None,
            None if has(Phase::Skipped) => Some(RunOutcome::CompletedWithSkips),
            None => Some(RunOutcome::Completed),
            Some(Abort::Hold) => Some(RunOutcome::Held),
            // What is done or skipped still has its turn.
            Some(Abort::Revert) if census.has(Phase::is_complete) => None,
            Some(Abort::Revert) if has(Phase::Unreverted) => Some(RunOutcome::PartlyReverted),
            // An abort that was to hold came first, and left something where it was.
            Some(Abort::Revert) if self.has_abandoned() => Some(RunOutcome::PartlyReverted),
            Some(Abort::Revert) => Some(RunOutcome::Reverted),
        }
    }
}
