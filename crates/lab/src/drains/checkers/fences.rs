//! A primary changes only behind a fence, on the way there and on the way back: one
//! that was read closed since the last try, with what is missing looked at since it was
//! last open. And nothing stays fenced: no task is held, stopped or abandoned between a
//! fence and what lifts it, and one that gives up has lifted its fence.

use std::sync::Arc;

use drain::engine::{Effect, Fact, Hold, Record, Trigger};
use drain::{KnobId, Outcome, Plan, StageKind, TaskId, Time, UndoBy, Value};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Fences {
    progress: Progress,
    promotions: Vec<Promotion>,
}

/// A task that promotes, and what it may not promote without.
#[derive(Debug)]
struct Promotion {
    task: TaskId,
    primary: KnobId,
    there: Fence,
    back: Fence,
    /// Whether the promotion was begun.
    is_begun: bool,
    /// Whether a write of the fence has failed since it last worked.
    is_in_doubt: bool,
    /// Whether the fence was read closed since the last try of the promotion, and
    /// whether what is missing was looked at since the fence was last open.
    is_verified: bool,
    is_awaited: bool,
    /// The primary as it was found first, and whether it was found elsewhere since: then
    /// something else promoted, and to open the fence would make two of it.
    origin: Option<Value>,
    is_elsewhere: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Fence {
    knob: KnobId,
    closed: Value,
}

impl Promotion {
    fn of(plan: &Plan, task: TaskId) -> Option<Promotion> {
        let own = plan.task(task);
        let undo = own.undo.as_ref()?;
        let UndoBy::Stages { first } = undo.how else { return None };
        let set = |stages: &[drain::Stage]| {
            stages.iter().find_map(|stage| match &stage.kind {
                StageKind::Set { knob, to, .. } => {
                    Some(Fence { knob: *knob, closed: to.value().clone() })
                }
                _ => None,
            })
        };
        Some(Promotion {
            task,
            primary: own.undone_knob()?,
            there: set(own.forward())?,
            back: set(&own.stages[first.index()..])?,
            is_begun: false,
            is_in_doubt: false,
            is_verified: false,
            is_awaited: false,
            origin: None,
            is_elsewhere: false,
        })
    }
}

impl Fences {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let promotions = plan.task_ids().filter_map(|task| Promotion::of(plan, task)).collect();
        Fences { progress: Progress::new(plan), promotions }
    }

    /// Where a task left a knob, as far as its records tell.
    fn at(&self, task: TaskId, knob: KnobId) -> Option<&Value> {
        let known = &self.progress.task(task).at;
        known.iter().find(|(own, _)| *own == knob).map(|(_, value)| value)
    }

    fn is_closed(&self, task: TaskId, fence: &Fence) -> bool {
        self.at(task, fence.knob) == Some(&fence.closed)
    }

    /// Whether a task is where it must not stay.
    fn is_fenced(&self, task: TaskId) -> bool {
        let (own, at) = (self.progress.plan.task(task), self.progress.task(task));
        let stage = at.stage.filter(|_| at.is_running);
        stage.is_some_and(|stage| !own.stages[stage.index()].is_interruptible)
    }

    fn check(&self, promotion: &Promotion, record: &Record) -> Result<(), String> {
        let Promotion { task, primary, there, back, .. } = promotion;
        let name = self.progress.name(*task);
        match &record.fact {
            Fact::Issued { task: own, what: Effect::Write { knob, value }, .. }
                if own == task && knob == primary && self.at(*task, *primary) != Some(value) =>
            {
                let fence = if self.progress.task(*task).is_running { there } else { back };
                let doubt = match self.is_closed(*task, fence) {
                    false => "without a fence",
                    true if !promotion.is_verified => "without a look at its fence since",
                    true if !promotion.is_awaited => "by what was seen before its fence was open",
                    true => return Ok(()),
                };
                Err(format!("{name} sets the primary to {value} {doubt}"))
            }
            Fact::Held {
                task: own,
                why: why @ (Hold::Breach { .. } | Hold::Paused | Hold::Limit(_)),
            } if own == task && self.is_fenced(*task) => {
                Err(format!("{name} is held behind its fence: {why:?}"))
            }
            Fact::Moved { task: own, trigger }
                if own == task
                    && matches!(trigger, Trigger::Abandon | Trigger::Skip | Trigger::Stop)
                    && self.is_fenced(*task) =>
            {
                Err(format!("{name} ends behind its fence: {trigger:?}"))
            }
            Fact::Moved { task: own, trigger: Trigger::StagesFailed }
                if own == task
                    && !promotion.is_begun
                    && !promotion.is_in_doubt
                    && !promotion.is_elsewhere =>
            {
                match self.is_closed(*task, there) {
                    true => Err(format!("{name} gives up and leaves its fence")),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        self.promotions.iter().try_for_each(|promotion| self.check(promotion, record))?;
        let plan = self.progress.plan.clone();
        for promotion in &mut self.promotions {
            match &record.fact {
                Fact::Found { task, knob, value, .. }
                    if (*task, *knob) == (promotion.task, promotion.primary) =>
                {
                    let origin = promotion.origin.get_or_insert_with(|| value.clone());
                    promotion.is_elsewhere = origin != value;
                }
                Fact::Left { task, stage, outcome: Outcome::Done } if *task == promotion.task => {
                    match &plan.task(*task).stages[stage.index()].kind {
                        StageKind::Verify { .. } => promotion.is_verified = true,
                        StageKind::Await { .. } => promotion.is_awaited = true,
                        _ => {}
                    }
                }
                Fact::Entered { task, stage } if *task == promotion.task => {
                    let kind = &plan.task(*task).stages[stage.index()].kind;
                    let fences = [&promotion.there, &promotion.back];
                    if matches!(kind, StageKind::Set { knob, to, .. } if fences
                        .iter()
                        .any(|own| own.knob == *knob && own.closed == *to.value()))
                    {
                        (promotion.is_verified, promotion.is_awaited) = (false, false);
                    }
                }
                Fact::Drifted { knob, .. }
                    if [promotion.there.knob, promotion.back.knob].contains(knob) =>
                {
                    (promotion.is_verified, promotion.is_awaited) = (false, false);
                }
                Fact::Issued { task, what: Effect::Write { knob, .. }, .. }
                    if *task == promotion.task =>
                {
                    promotion.is_begun |= *knob == promotion.primary;
                    promotion.is_verified &= *knob != promotion.primary;
                    promotion.is_in_doubt |= *knob == promotion.there.knob;
                }
                Fact::Ended { effect, result: drain::engine::Ended::Done { .. } } => {
                    let of = self.progress.in_flight.iter().find(|(own, ..)| own == effect);
                    if let Some((_, task, Effect::Write { knob, .. })) = of
                        && (*task, *knob) == (promotion.task, promotion.there.knob)
                    {
                        promotion.is_in_doubt = false;
                    }
                }
                Fact::Moved { task, trigger: Trigger::RevertDone } if *task == promotion.task => {
                    promotion.is_begun = false;
                }
                _ => {}
            }
        }
        self.progress.take(record);
        Ok(())
    }
}

impl Checker for Fences {
    fn name(&self) -> &'static str {
        "fences"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(record),
            _ => Ok(()),
        }
    }
}
