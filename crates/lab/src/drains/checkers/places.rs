//! A step begins where its knob is: whoever moved it meanwhile made the step larger,
//! or turned it round, and health was measured somewhere else. And what something else
//! moved out of a datacenter is not brought back at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use drain::engine::{Effect, Fact, Record};
use drain::{Direction, KnobId, Millis, Plan, StageKind, Time, Value};

use super::progress::Progress;
use super::{Checker, Event};
use crate::drains::world::Written;

/// What was moved so shortly before a step nobody can have seen.
const UNSEEN: Millis = Millis(1500);

#[derive(Debug)]
pub struct Places {
    progress: Progress,
    /// Knobs that somebody else moved since the run last did or saw it: when, and where to.
    moved: BTreeMap<KnobId, (Time, Value)>,
}

impl Places {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Places { progress: Progress::new(plan), moved: BTreeMap::new() }
    }

    fn take(&mut self, now: Time, record: &Record) -> Result<(), String> {
        match &record.fact {
            Fact::Issued { task, what: Effect::Write { knob, value }, .. } => {
                let is_shift = self.progress.plan.task(*task).stages.iter().any(
                    |stage| matches!(stage.kind, StageKind::Shift { knob: own, .. } if own == *knob),
                );
                let left = self.progress.task(*task).at.iter().find(|(own, _)| own == knob);
                let left = left.map(|(_, at)| at).filter(|_| is_shift);
                if let (Some((since, to)), Some(left)) = (self.moved.get(knob), left)
                    && now > *since + UNSEEN
                    && !left.is_met_by(to)
                    && !left.is_met_by(value)
                    // A try again of what is there already moves nothing.
                    && !value.is_met_by(to)
                {
                    return Err(format!(
                        "{} steps to {value} from {left}, and {} is at {to}",
                        self.progress.name(*task),
                        self.progress.plan.knob(*knob)
                    ));
                }
            }
            Fact::Drifted { knob, .. } => {
                if let Some((since, to)) = self.moved.remove(knob)
                    && now > since + UNSEEN
                    && let Some(task) = self.moved_out_of(*knob, &to)
                {
                    return Err(format!(
                        "{task} puts {} back from {to}, which is further out",
                        self.progress.plan.knob(*knob)
                    ));
                }
            }
            Fact::Found { knob, .. } | Fact::MovedOut { knob, .. } => _ = self.moved.remove(knob),
            _ => {}
        }
        self.progress.take(record);
        Ok(())
    }
}

impl Places {
    /// The task that moves a knob, if a value is further out of the datacenter than where it
    /// left it, and not past its goal.
    fn moved_out_of(&self, knob: KnobId, value: &Value) -> Option<&str> {
        let ids = self.progress.plan.task_ids();
        let ahead = ids.filter(|id| self.progress.task(*id).is_running).find(|id| {
            let Some(StageKind::Shift { knob: own, to }) = self.progress.stage(*id) else {
                return false;
            };
            let left = self.progress.task(*id).at.iter().find(|(at, _)| *at == knob);
            let left = left.and_then(|(_, left)| left.number()).filter(|_| *own == knob);
            match (left, value.number(), to.value().number()) {
                (Some(left), Some(value), Some(to)) => match self.progress.plan.direction {
                    Direction::Drain => {
                        (left > value && value >= to) || (left < value && value <= to)
                    }
                    Direction::Restore => (left > value) == (to > left) && left != value,
                },
                _ => false,
            }
        });
        ahead.map(|id| self.progress.name(id))
    }
}

impl Checker for Places {
    fn name(&self) -> &'static str {
        "places"
    }

    fn see(&mut self, now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => return self.take(now, record),
            Event::Meddled { knob, value: Some(value) } => {
                self.moved.insert(*knob, (now, (*value).clone()));
            }
            Event::Performed {
                what: Effect::Write { knob, .. },
                written: Written::Applied,
                ..
            } => _ = self.moved.remove(knob),
            _ => {}
        }
        Ok(())
    }
}
