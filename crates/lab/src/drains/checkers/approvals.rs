//! Nobody goes on who asks people, before so many of them have approved: each
//! counts once, and for this time only. Who they are is what the kernel says,
//! whatever name is typed.

use std::collections::BTreeSet;
use std::sync::Arc;

use drain::engine::{Command, Fact, Record, Trigger};
use drain::{Outcome, Plan, StageKind, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Approvals {
    progress: Progress,
    /// Who approved the stage that each task is in.
    by: Vec<BTreeSet<u32>>,
    /// Who said the last thing that was said.
    last: Option<u32>,
}

impl Approvals {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let by = vec![BTreeSet::new(); plan.tasks.len()];
        Approvals { progress: Progress::new(plan), by, last: None }
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        if let Fact::Commanded { by, .. } = &record.fact
            && by.uid() != self.last
        {
            return Err(format!("{by} is recorded, and uid {:?} said it", self.last));
        }
        match &record.fact {
            Fact::Left { task, outcome: Outcome::Done, .. }
                if self.progress.task(*task).is_running =>
            {
                let Some(StageKind::Approve { people, .. }) = self.progress.stage(*task) else {
                    return Ok(());
                };
                let by = &self.by[task.index()];
                if (by.len() as u32) < *people {
                    let name = self.progress.name(*task);
                    return Err(format!("{name} goes on by {by:?}, and asks {people} people"));
                }
            }
            Fact::Commanded { by, command: Command::Approve { task }, .. } => {
                self.by[task.index()].extend(by.uid());
            }
            Fact::Entered { task, .. } | Fact::Moved { task, trigger: Trigger::Start } => {
                self.by[task.index()].clear();
            }
            _ => {}
        }
        Ok(())
    }
}

impl Checker for Approvals {
    fn name(&self) -> &'static str {
        "approvals"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Said { uid } => self.last = Some(*uid),
            Event::Recorded(record) => {
                self.take(record)?;
                self.progress.take(record);
            }
            _ => {}
        }
        Ok(())
    }
}
