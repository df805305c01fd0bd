//! A restore begins in spite of bad health: where nothing is served, it is what
//! cures that. No task stays held by health that was bad before its first effect
//! for longer than its patience, and what a look takes.

use std::sync::Arc;

use drain::{Direction, Millis, Plan, StageKind, TaskId, Time};

use super::progress::Progress;
use super::{Checker, Event};

/// How long it takes beyond patience at the most: conditions that flap are seen
/// to hold for a while, and what failed is tried again later.
const SLACK: Millis = Millis::from_secs(90);

#[derive(Debug)]
pub struct Outages {
    progress: Progress,
    /// When everything was last observed anew.
    resumed: Time,
}

impl Outages {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Outages { progress: Progress::new(plan), resumed: Time(0) }
    }

    /// Whether the next effect of a task is one that bad health does not prevent.
    fn begins(&self, task: TaskId) -> bool {
        let own = self.progress.task(task);
        match self.progress.stage(task).filter(|_| own.is_running) {
            Some(StageKind::Shift { .. }) => !own.has_stepped,
            Some(StageKind::Set { .. } | StageKind::PutBack { .. } | StageKind::Act(_)) => {
                !own.has_changed()
            }
            _ => false,
        }
    }

    fn check(&self, now: Time, task: TaskId) -> Result<(), String> {
        let own = self.progress.task(task);
        let Some(since) = own.breached_since(now).filter(|_| self.begins(task)) else {
            return Ok(());
        };
        let held = now - since.max(own.tried).max(self.resumed);
        let patience = self.progress.plan.task(task).pace.patience;
        match held > patience + SLACK {
            true => Err(format!(
                "{} has had no effect yet, and bad health holds it for {held}; its patience is \
                 {patience}",
                self.progress.name(task)
            )),
            false => Ok(()),
        }
    }
}

impl Checker for Outages {
    fn name(&self) -> &'static str {
        "outages"
    }

    fn see(&mut self, now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.progress.take(record),
            Event::Resumed { .. } => self.resumed = now,
            Event::Rested { .. } if self.progress.plan.direction == Direction::Restore => {
                return self.progress.plan.task_ids().try_for_each(|task| self.check(now, task));
            }
            _ => {}
        }
        Ok(())
    }
}
