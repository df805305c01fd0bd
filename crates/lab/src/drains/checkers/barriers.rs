//! Nobody passes a barrier before all of its parties have come to it, and nobody
//! stays there when they have. Whoever is complete, or through with its stages
//! some other way, is not waited for.

use std::collections::BTreeSet;
use std::sync::Arc;

use drain::engine::{Fact, Record, State, Trigger};
use drain::{Outcome, Plan, StageKind, TaskId, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Barriers {
    progress: Progress,
    /// Barriers that each task has left since it last began anew.
    left: Vec<BTreeSet<String>>,
    /// Tasks whose stages ended well.
    through: BTreeSet<TaskId>,
}

impl Barriers {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let left = vec![BTreeSet::new(); plan.tasks.len()];
        Barriers { progress: Progress::new(plan), left, through: BTreeSet::new() }
    }

    /// The barrier that a running task is at.
    fn barrier(&self, task: TaskId) -> Option<&str> {
        let kind = self.progress.stage(task).filter(|_| self.progress.task(task).is_running);
        match kind? {
            StageKind::Barrier { name } => Some(name),
            _ => None,
        }
    }

    /// A party that a barrier has to wait for.
    fn missing(&self, barrier: &str) -> Option<TaskId> {
        let is_party = |task: &TaskId| {
            let mut stages = self.progress.plan.task(*task).stages.iter();
            stages
                .any(|stage| matches!(&stage.kind, StageKind::Barrier { name } if name == barrier))
        };
        let is_there = |task: &TaskId| {
            self.barrier(*task) == Some(barrier)
                || self.left[task.index()].contains(barrier)
                || self.through.contains(task)
                || self.progress.task(*task).is_complete
        };
        self.progress.plan.task_ids().find(|task| is_party(task) && !is_there(task))
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        if let Fact::Left { task, outcome, .. } = record.fact
            && let Some(barrier) = self.barrier(task).map(str::to_owned)
        {
            if let Some(other) = self.missing(&barrier).filter(|_| outcome == Outcome::Done) {
                let (name, other) = (self.progress.name(task), self.progress.name(other));
                return Err(format!("{name} passed {barrier}, and {other} was not there"));
            }
            self.left[task.index()].insert(barrier);
        }
        if let Fact::Moved { task, trigger } = record.fact {
            match trigger {
                Trigger::StagesDone => _ = self.through.insert(task),
                _ => _ = self.through.remove(&task),
            }
            if trigger == Trigger::RevertDone {
                self.left[task.index()].clear();
            }
        }
        self.progress.take(record);
        Ok(())
    }

    fn finish(&self, state: &State) -> Result<(), String> {
        if state.closed.is_some() {
            return Ok(());
        }
        let waits = |task: &TaskId| {
            let barrier = self.barrier(*task);
            barrier.is_some_and(|barrier| self.missing(barrier).is_none())
        };
        match self.progress.plan.task_ids().find(waits) {
            Some(task) => {
                Err(format!("{} is at a barrier, and so are all others", self.progress.name(task)))
            }
            None => Ok(()),
        }
    }
}

impl Checker for Barriers {
    fn name(&self) -> &'static str {
        "barriers"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(record),
            Event::Finished { state, .. } => self.finish(state),
            _ => Ok(()),
        }
    }
}
