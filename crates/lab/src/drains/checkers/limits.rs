//! The limits of a plan are never broken: nothing begins and no step is taken
//! when too few datacenters would serve or too much would be drained, unless
//! two people said so.

use std::sync::Arc;

use drain::engine::{Effect, Fact, Trigger};
use drain::{Direction, Plan, TaskId, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Limits {
    progress: Progress,
    drained: Vec<f64>,
}

impl Limits {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Limits { progress: Progress::new(plan), drained: vec![0.0; plan.datacenters.len()] }
    }

    fn check(&self, task: TaskId, what: &str) -> Result<(), String> {
        let plan = &self.progress.plan;
        // What moves traffic in is never barred; the way back of a restore leads out.
        let moves_out =
            (plan.direction == Direction::Drain) != self.progress.task(task).is_reverting;
        if !moves_out || self.progress.waived_by.len() >= 2 {
            return Ok(());
        }
        let (mut serving, mut gone, mut all) = (0, 0.0, 0.0);
        for (place, by_others) in plan.datacenters.iter().zip(&self.drained) {
            let drained = if place.name == plan.datacenter { 1.0 } else { *by_others };
            serving += u32::from(drained < 1.0);
            gone += place.capacity * drained;
            all += place.capacity;
        }
        let name = self.progress.name(task);
        if serving < plan.limits.serving_min {
            return Err(format!("{name} {what} with {serving} datacenters left"));
        }
        if gone > all * plan.limits.drained_max + 1e-6 {
            return Err(format!("{name} {what} with {gone} of {all} drained"));
        }
        Ok(())
    }
}

impl Checker for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Fleet { drained } => self.drained = drained.to_vec(),
            Event::Recorded(record) => {
                match &record.fact {
                    Fact::Moved { task, trigger: Trigger::Start } => self.check(*task, "began")?,
                    Fact::Issued { task, what: Effect::Write { knob, value }, .. }
                        if self.progress.is_step(*task, *knob, value) =>
                    {
                        self.check(*task, "took a step")?;
                    }
                    Fact::Issued { task, what: Effect::Write { .. }, .. }
                        if self.progress.task(*task).is_reverting =>
                    {
                        self.check(*task, "went back a step")?;
                    }
                    Fact::Issued { task, what: Effect::Act(_), .. } => {
                        self.check(*task, "did something")?;
                    }
                    _ => {}
                }
                self.progress.take(record);
            }
            _ => {}
        }
        Ok(())
    }
}
