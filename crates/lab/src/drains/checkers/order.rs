//! No task begins before its parents are complete; in a disaster, weak ones
//! aside.

use std::sync::Arc;

use drain::engine::{Fact, Mode, Trigger};
use drain::{Plan, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Order(Progress);

impl Order {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Order(Progress::new(plan))
    }
}

impl Checker for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        let Event::Recorded(record) = event else { return Ok(()) };
        if let Fact::Moved { task, trigger: Trigger::Start } = record.fact {
            let own = self.0.plan.task(task);
            let is_drill = self.0.mode == Mode::Drill;
            let weak = own.after_weak.iter().filter(|_| is_drill);
            let early =
                own.after.iter().chain(weak).find(|parent| !self.0.task(**parent).is_complete);
            if let Some(parent) = early {
                let (task, parent) = (self.0.name(task), self.0.name(*parent));
                return Err(format!("{task} began before {parent} was complete"));
            }
        }
        self.0.take(record);
        Ok(())
    }
}
