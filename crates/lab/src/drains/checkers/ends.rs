//! A run that nothing disturbs any more ends, or says what it waits for, and
//! that is so.

use std::sync::Arc;

use drain::engine::{Fact, Hold, Phase, Record, State};
use drain::{Condition, ConditionId, Millis, Plan, Source, StageKind, TaskId, Time};

use super::{Checker, Event};
use crate::drains::world::World;

/// A run that went back and forth because of bad health did so lately.
const LATELY: Millis = Millis::from_secs(900);

#[derive(Debug)]
pub struct Ends {
    plan: Arc<Plan>,
    breached: Option<Time>,
}

impl Ends {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Ends { plan: plan.clone(), breached: None }
    }

    fn check(&self, state: &State, world: &World, task: TaskId) -> Result<(), String> {
        let (own, at) = (self.plan.task(task), state.task(task));
        if !matches!(at.phase, Phase::Waiting | Phase::Running | Phase::Settling | Phase::Reverting)
        {
            return Ok(());
        }
        let waits_for_parents = own.parents().any(|parent| !state.task(parent).phase.is_complete());
        if at.phase == Phase::Waiting && waits_for_parents {
            return Ok(());
        }
        let Some((_, hold)) = &at.hold else {
            match &own.stages[at.stage.index()].kind {
                // Its question is shown; who never answers is waited for.
                StageKind::Approve { people, .. }
                    if (at.approved_by.len() as u32) < *people && at.phase == Phase::Running =>
                {
                    return Ok(());
                }
                // Whether somebody is missing there is another checker's question.
                StageKind::Barrier { .. } if at.phase == Phase::Running => return Ok(()),
                _ => {}
            }
            return Err(format!("{} is {:?} and does not say why it waits", own.name, at.phase));
        };
        let is_so = match hold {
            Hold::Awaits { condition, .. } | Hold::Breach { condition, .. } => {
                !self.holds(world, *condition)
            }
            Hold::Limit(_) => true,
            // A fence that another task left closed is nobody else's before a person has
            // seen to it.
            Hold::InUse { knob, .. } => {
                let mut left = state.left_closed(&self.plan);
                left.any(|(other, fence)| other != task && fence.knob == *knob)
            }
            _ => false,
        };
        match is_so {
            true => Ok(()),
            false => Err(format!(
                "{} is {:?} and waits for {hold:?}, which is not so",
                own.name, at.phase
            )),
        }
    }

    /// Whether a condition really holds, with room for what metrics are off by.
    fn holds(&self, world: &World, id: ConditionId) -> bool {
        let Condition { source, comparison, bound, .. } = self.plan.condition(id);
        let value = match source {
            Source::Query(query) => world.gauge(query).map(|gauge| world.measure(&gauge)).ok(),
            Source::Gauge(knob) => {
                world.dial(self.plan.knob(*knob)).ok().and_then(|dial| world.read(&dial).number())
            }
        };
        let near = world.site.noise * 2.0;
        value.is_some_and(|value| {
            comparison.holds(value * (1.0 - near), *bound)
                && comparison.holds(value * (1.0 + near), *bound)
        })
    }
}

impl Checker for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }

    fn see(&mut self, now: Time, event: &Event<'_>) -> Result<(), String> {
        if let Event::Recorded(Record {
            at,
            fact: Fact::Held { why: Hold::Breach { .. }, .. },
            ..
        }) = event
        {
            self.breached = Some(*at);
        }
        let Event::Finished { state, world } = event else { return Ok(()) };
        if state.closed.is_some() || self.breached.is_some_and(|at| now - at < LATELY) {
            return Ok(());
        }
        self.plan.task_ids().try_for_each(|task| self.check(state, world, task))?;
        let needs_somebody =
            |phase| !matches!(phase, Phase::Done | Phase::Skipped | Phase::Abandoned);
        match state.tasks.iter().any(|task| needs_somebody(task.phase)) {
            true => Ok(()),
            false => Err("every task is at its end, and the run is not".into()),
        }
    }
}
