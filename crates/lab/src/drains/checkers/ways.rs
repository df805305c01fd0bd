//! Tasks go the ways of their templates: from the stage they are in to where its
//! outcome leads, out by the exit that it leads to, late when it is and only then: a
//! fence is not tried for longer than it may. Whoever
//! is tried again begins with what did not work, and whoever went back, anew.

use std::sync::Arc;

use drain::engine::{Effect, Fact, Record, Trigger};
use drain::{Exit, KnobId, Millis, Next, Outcome, Plan, StageId, StageKind, TaskId, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Ways {
    progress: Progress,
    /// Where each task is to go that has left the stage it was in.
    next: Vec<Option<Next>>,
    /// When each task first tried what the stage it is in sets.
    tried: Vec<Option<Time>>,
}

impl Ways {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let count = plan.tasks.len();
        Ways { progress: Progress::new(plan), next: vec![None; count], tried: vec![None; count] }
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        match &record.fact {
            Fact::Left { task, stage, outcome }
                if self.progress.task(*task).is_running || self.progress.task(*task).is_undoing =>
            {
                self.leave(record.at, *task, *stage, *outcome)?;
            }
            Fact::Entered { task, stage } => self.enter(*task, *stage)?,
            Fact::Moved { task, trigger } => self.move_task(*task, *trigger)?,
            Fact::Issued { task, what: Effect::Write { knob, .. }, .. } => {
                self.try_to_set(record.at, *task, *knob)?;
            }
            _ => {}
        }
        self.progress.take(record);
        Ok(())
    }

    fn leave(
        &mut self,
        now: Time,
        task: TaskId,
        stage: StageId,
        outcome: Outcome,
    ) -> Result<(), String> {
        let (name, at) = (self.progress.name(task), self.progress.task(task));
        if at.stage != Some(stage) {
            return Err(format!("{name} left {stage:?}, and was in {:?}", at.stage));
        }
        let own = &self.progress.plan.task(task).stages[stage.index()];
        let took: Millis = now - at.entered;
        if outcome == Outcome::Late && own.timeout.is_none_or(|timeout| took < timeout) {
            return Err(format!("{name} is late in {} after {took}", own.name));
        }
        self.next[task.index()] = Some(own.next(outcome));
        Ok(())
    }

    fn try_to_set(&mut self, now: Time, task: TaskId, knob: KnobId) -> Result<(), String> {
        let at = self.progress.task(task);
        let Some(stage) = at.stage.filter(|_| at.is_running || at.is_undoing) else {
            return Ok(());
        };
        let own = &self.progress.plan.task(task).stages[stage.index()];
        if !matches!(own.kind, StageKind::Set { knob: set, .. } if set == knob) {
            return Ok(());
        }
        let took = now - *self.tried[task.index()].get_or_insert(now);
        match own.timeout.is_some_and(|timeout| took >= timeout) {
            true => {
                Err(format!("{} still tries {} after {took}", self.progress.name(task), own.name))
            }
            false => Ok(()),
        }
    }

    fn enter(&mut self, task: TaskId, stage: StageId) -> Result<(), String> {
        self.tried[task.index()] = None;
        // Who begins enters the stage that it begins with.
        let begins = self.progress.task(task).stage.unwrap_or(StageId(0));
        let left = self.next[task.index()].take();
        let expected = left.unwrap_or(Next::Stage(begins));
        match expected == Next::Stage(stage) || (left.is_none() && self.is_again(task, stage)) {
            true => Ok(()),
            false => {
                let name = self.progress.name(task);
                Err(format!("{name} entered {stage:?}, and its way leads to {expected:?}"))
            }
        }
    }

    /// Whether a stage is where what is done behind a fence begins again, without
    /// having left its own: with the fence, or with a look at it. A look that failed
    /// leads back to the fence, too.
    fn is_again(&self, task: TaskId, stage: StageId) -> bool {
        let (own, at) = (self.progress.plan.task(task), self.progress.task(task));
        at.stage.is_some_and(|at| {
            let is_verify = matches!(own.stages[at.index()].kind, StageKind::Verify { .. });
            let is_fence = own.fence_before(at) == Some(stage);
            (is_fence && (is_verify || own.is_guarded(at)))
                || (own.is_guarded(at) && own.verified_before(at) == Some(stage))
        })
    }

    fn move_task(&mut self, task: TaskId, trigger: Trigger) -> Result<(), String> {
        let exit = match trigger {
            Trigger::StagesDone => Some(Exit::Done),
            Trigger::StagesFailed => Some(Exit::Failed),
            _ => None,
        };
        let expected = self.next[task.index()].take();
        // Who goes back enters the stage that undoes it without a record of that.
        self.tried[task.index()] = None;
        if let Some(exit) = exit.filter(|exit| expected != Some(Next::Exit(*exit))) {
            let name = self.progress.name(task);
            return Err(format!("{name} exits {exit:?}, and its way leads to {expected:?}"));
        }
        Ok(())
    }
}

impl Checker for Ways {
    fn name(&self) -> &'static str {
        "ways"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(record),
            _ => Ok(()),
        }
    }
}
