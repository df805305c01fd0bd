//! Whoever is to wait does: a timed wait is left no earlier than it says.

use std::sync::Arc;

use drain::engine::Fact;
use drain::{Outcome, Plan, StageKind, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Waits(Progress);

impl Waits {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Waits(Progress::new(plan))
    }
}

impl Checker for Waits {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        let Event::Recorded(record) = event else { return Ok(()) };
        if let Fact::Left { task, outcome: Outcome::Done, .. } = record.fact
            && self.0.task(task).is_running
            && let Some(StageKind::TimedWait { span }) = self.0.stage(task)
        {
            let waited = record.at - self.0.task(task).entered;
            if waited < *span {
                let name = self.0.name(task);
                return Err(format!("{name} waited for {waited}, not for {span}"));
            }
        }
        self.0.take(record);
        Ok(())
    }
}
