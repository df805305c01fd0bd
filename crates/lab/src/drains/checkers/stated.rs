//! A run ends in a state that it states, and the world agrees: what is reverted
//! is where it was, what is complete is where it was to go, and after an abort
//! that holds nothing more is begun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::engine::{Abort, Effect, Fact, Phase, Record, RunOutcome, State};
use drain::{KnobId, Outcome, Plan, StageKind, TaskId, Time, Value};

use super::progress::Progress;
use super::{Checker, Event};
use crate::drains::world::{World, Written};

#[derive(Debug)]
pub struct Stated {
    progress: Progress,
    /// Where each knob was found first.
    origins: BTreeMap<KnobId, Value>,
    /// Knobs that somebody else turned since the run last did or looked.
    meddled: BTreeSet<KnobId>,
    /// Knobs that the run says are not where it left them.
    astray: BTreeSet<KnobId>,
    /// Where stages that are done have brought knobs.
    goals: BTreeMap<KnobId, Value>,
    closed: Option<RunOutcome>,
}

impl Stated {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Stated {
            progress: Progress::new(plan),
            origins: BTreeMap::new(),
            meddled: BTreeSet::new(),
            astray: BTreeSet::new(),
            goals: BTreeMap::new(),
            closed: None,
        }
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        if self.closed.is_some() {
            return Err(format!("the run is over, and {:?}", record.fact));
        }
        match &record.fact {
            Fact::Found { knob, value, .. } => {
                self.origins.entry(*knob).or_insert_with(|| value.clone());
            }
            Fact::Issued { task, what, .. }
                if self.progress.abort == Some(Abort::Hold)
                    && !self.keeps(*task, what)
                    && !self.progress.is_uninterruptible(*task) =>
            {
                return Err(format!(
                    "the run was aborted to hold, and {} begins {what:?}",
                    self.progress.name(*task)
                ));
            }
            Fact::Left { task, outcome: Outcome::Done, .. }
                if self.progress.task(*task).is_running =>
            {
                if let Some(StageKind::Shift { knob, to } | StageKind::Set { knob, to, .. }) =
                    self.progress.stage(*task)
                {
                    self.goals.insert(*knob, to.value().clone());
                }
            }
            Fact::Astray { knob, .. } => _ = self.astray.insert(*knob),
            Fact::Closed { outcome } => self.closed = Some(*outcome),
            _ => {}
        }
        self.progress.take(record);
        Ok(())
    }

    /// Whether an effect puts a knob where it is to stay.
    fn keeps(&self, task: TaskId, what: &Effect) -> bool {
        let Effect::Write { knob, value } = what else { return false };
        self.progress.task(task).at.iter().any(|(own, at)| own == knob && at == value)
    }

    fn finish(&self, state: &State, world: &World) -> Result<(), String> {
        let Some(outcome) = self.closed else { return Ok(()) };
        let aborted = self.progress.abort;
        let fits = match outcome {
            RunOutcome::Completed | RunOutcome::CompletedWithSkips => aborted.is_none(),
            RunOutcome::Held => aborted == Some(Abort::Hold),
            RunOutcome::Reverted | RunOutcome::PartlyReverted => aborted == Some(Abort::Revert),
        };
        if !fits {
            return Err(format!("the run ended {outcome:?}, and was aborted: {aborted:?}"));
        }
        for task in self.progress.plan.task_ids() {
            let phase = state.task(task).phase;
            let is_stated = match outcome {
                RunOutcome::Completed => phase == Phase::Done,
                RunOutcome::CompletedWithSkips => phase.is_complete(),
                RunOutcome::Held => phase.is_complete() || is_left(phase),
                RunOutcome::Reverted => matches!(phase, Phase::Reverted | Phase::Abandoned),
                RunOutcome::PartlyReverted => is_left(phase),
            };
            if !is_stated {
                let name = self.progress.name(task);
                return Err(format!("the run ended {outcome:?} with {name} {phase:?}"));
            }
        }
        match outcome {
            RunOutcome::Reverted => self.check_origins(world),
            RunOutcome::Completed => self.check_goals(world),
            _ => Ok(()),
        }
    }

    fn found(&self, world: &World, knob: KnobId) -> Result<Value, String> {
        Ok(world.read(&world.dial(self.progress.plan.knob(knob))?))
    }

    /// Whether a knob must be where the run left it: what others do after the
    /// last look nobody can know, and what was said needs no excuse.
    fn answers_for(&self, knob: KnobId) -> bool {
        !self.meddled.contains(&knob) && !self.astray.contains(&knob)
    }

    fn check_origins(&self, world: &World) -> Result<(), String> {
        for (knob, origin) in self.origins.iter().filter(|(knob, _)| self.answers_for(**knob)) {
            let found = self.found(world, *knob)?;
            if !origin.is_met_by(&found) {
                let knob = self.progress.plan.knob(*knob);
                return Err(format!(
                    "the run is reverted, and {knob} is at {found}, not at {origin}"
                ));
            }
        }
        Ok(())
    }

    /// Where the last stage that turned a knob was to bring it.
    fn check_goals(&self, world: &World) -> Result<(), String> {
        let goals = self.goals.iter().map(|(knob, goal)| (*knob, goal));
        for (knob, goal) in goals.filter(|(knob, _)| self.answers_for(*knob)) {
            let found = self.found(world, knob)?;
            if !goal.is_met_by(&found) {
                let knob = self.progress.plan.knob(knob);
                return Err(format!(
                    "the run is complete, and {knob} is at {found}, not at {goal}"
                ));
            }
        }
        Ok(())
    }
}

/// Phases that an abort ends tasks in.
fn is_left(phase: Phase) -> bool {
    matches!(phase, Phase::Abandoned | Phase::Reverted | Phase::Unreverted)
}

impl Checker for Stated {
    fn name(&self) -> &'static str {
        "stated"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(record),
            Event::Performed { effect, what: Effect::Write { .. }, .. }
                if self.closed.is_some() =>
            {
                Err(format!("the run is over, and effect {} was done", effect.0))
            }
            Event::Performed {
                what: Effect::Write { knob, .. },
                written: Written::Applied,
                ..
            } => {
                self.meddled.remove(knob);
                Ok(())
            }
            Event::Meddled { knob, .. } => {
                self.meddled.insert(*knob);
                Ok(())
            }
            Event::Looked { knob } => {
                self.meddled.remove(knob);
                Ok(())
            }
            Event::Finished { state, world } => self.finish(state, world),
            _ => Ok(()),
        }
    }
}
