//! The log is the state: what it makes of a fresh start is what the run is,
//! after every record that was written, and in the form it is kept in.

use std::sync::Arc;

use drain::engine::{Record, State};
use drain::{Plan, Time};

use super::{Checker, Event};

#[derive(Debug)]
pub struct Replay {
    plan: Arc<Plan>,
    replayed: State,
}

impl Replay {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Replay { plan: plan.clone(), replayed: State::new(plan) }
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        let text = serde_json::to_string(record).map_err(|error| error.to_string())?;
        let kept: Record = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if kept != *record {
            return Err(format!("{record:?} is {kept:?} after it was kept as {text}"));
        }
        self.replayed.apply(&self.plan, &kept).map_err(|corrupt| corrupt.to_string())
    }

    fn compare(&self, state: &State) -> Result<(), String> {
        if self.replayed == *state {
            return Ok(());
        }
        let differs = |(own, live): &(_, _)| own != live;
        let tasks = self.replayed.tasks.iter().zip(&state.tasks);
        match tasks.enumerate().find(|(_, both)| differs(both)) {
            Some((at, (own, live))) => Err(format!(
                "task {} is {live:?}, and by its records {own:?}",
                self.plan.tasks[at].name
            )),
            None => Err("the run is not what its records make of it".into()),
        }
    }
}

impl Checker for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(record),
            Event::Rested { state } | Event::Resumed { state } => self.compare(state),
            _ => Ok(()),
        }
    }
}
