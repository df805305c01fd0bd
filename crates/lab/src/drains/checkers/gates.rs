//! No step past a breached gate, by what the run had been told: every condition
//! that a step depends on was seen to hold, for long enough, by samples that are
//! fresh and were taken after the effect before. The same for what must hold
//! before a task begins and ends, and for what its stages wait for and check.
//!
//! The other way round, nobody is held by a condition that lets pass: 0/0 holds
//! a task only where the plan says that it does.

use std::sync::Arc;

use drain::engine::{Effect, Fact, Hold, Trigger};
use drain::{
    Condition, ConditionId, Direction, Measurement, NoData, Outcome, Plan, StageKind, TaskId, Time,
    Value,
};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Gates {
    progress: Progress,
    told: Vec<Told>,
}

/// What a run knows of a condition.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    last: Option<(Time, Option<Measurement>)>,
    holds_since: Option<Time>,
}

/// What a condition says to a task, and why.
enum Judged {
    Passes,
    Breached(String),
    /// Nobody knows.
    Unknown(String),
    /// It holds, but not for long enough, or by samples from before an effect.
    TooEarly(String),
}

/// What a policy says; `None` if it says nothing.
fn allows(policy: NoData) -> Option<bool> {
    match policy {
        NoData::Block => None,
        NoData::Pass => Some(true),
        NoData::Fail => Some(false),
    }
}

/// What a value says; `None` if it says nothing.
fn admits(condition: &Condition, value: f64) -> Option<bool> {
    if value.is_nan() {
        return allows(condition.no_traffic);
    }
    let holds = condition.comparison.holds(value, condition.bound);
    (value.is_finite() || !holds).then_some(holds)
}

impl Gates {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let told = vec![Told::default(); plan.conditions.len()];
        Gates { progress: Progress::new(plan), told }
    }

    fn tell(&mut self, asked: Time, id: ConditionId, found: Option<Measurement>) {
        let condition = self.progress.plan.condition(id);
        let told = &mut self.told[id.index()];
        let holding = found.filter(|found| admits(condition, found.value) == Some(true));
        let before = told.last.and_then(|(_, before)| before);
        told.holds_since = match (holding, told.holds_since, before) {
            (Some(found), Some(since), Some(before))
                if found.to - before.to <= condition.max_age =>
            {
                Some(since)
            }
            (holding, ..) => holding.map(|found| found.to),
        };
        told.last = Some((asked, found));
    }

    fn judge(&self, now: Time, task: TaskId, id: ConditionId) -> Judged {
        if self.progress.is_overridden(task, id) {
            return Judged::Passes;
        }
        let (condition, told) = (self.progress.plan.condition(id), &self.told[id.index()]);
        let name = &condition.name;
        let after = self.progress.judged_since(task);
        let is_after = |time: Time| after.is_none_or(|after| time > after);
        let fresh = told.last.and_then(|(_, found)| found);
        let Some(found) = fresh.filter(|found| now - found.to <= condition.max_age) else {
            return match condition.no_data {
                NoData::Pass if told.last.is_none_or(|(asked, _)| is_after(asked)) => {
                    Judged::Passes
                }
                NoData::Pass => Judged::TooEarly(format!("nobody has looked at {name} since")),
                NoData::Block => Judged::Unknown(format!("nobody knew {name}")),
                NoData::Fail => Judged::Breached(format!("nobody knew {name}, which breaches it")),
            };
        };
        let is_back = self.progress.task(task).is_reverting;
        if found.value.is_nan() && is_back && condition.no_traffic_back != condition.no_traffic {
            return match allows(condition.no_traffic_back) {
                None => Judged::Unknown(format!("{name} had no traffic")),
                Some(false) => Judged::Breached(format!("{name} had no traffic")),
                Some(true) if is_after(found.from) => Judged::Passes,
                Some(true) => Judged::TooEarly(format!("{name} had no traffic before")),
            };
        }
        match (admits(condition, found.value), told.holds_since) {
            (None, _) => Judged::Unknown(format!("{name} was {}", found.value)),
            (Some(false), _) | (_, None) => {
                Judged::Breached(format!("{name} was breached at {}", found.value))
            }
            _ if !is_after(found.from) => {
                Judged::TooEarly(format!("nobody has seen {name} since the effect before"))
            }
            (Some(true), Some(since)) => {
                let held = found.to - since.max(after.unwrap_or(since));
                match held < condition.hold_for {
                    true => Judged::TooEarly(format!("{name} held for {held} only")),
                    false => Judged::Passes,
                }
            }
        }
    }

    /// Why a condition does not let a task pass.
    fn closes(&self, now: Time, task: TaskId, id: ConditionId) -> Option<String> {
        match self.judge(now, task, id) {
            Judged::Passes => None,
            Judged::Breached(why) | Judged::Unknown(why) | Judged::TooEarly(why) => Some(why),
        }
    }

    /// Whether a run knows a fresh value of a condition.
    fn has_value(&self, now: Time, id: ConditionId) -> bool {
        let max_age = self.progress.plan.condition(id).max_age;
        let found = self.told[id.index()].last.and_then(|(_, found)| found);
        found.is_some_and(|found| now - found.to <= max_age)
    }

    /// Whoever is held by a condition is held by what it says.
    fn check_hold(&self, now: Time, task: TaskId, why: &Hold) -> Result<(), String> {
        let Some(id) = why.condition() else { return Ok(()) };
        let is_so = match (why, self.judge(now, task, id)) {
            (Hold::NoData { .. }, Judged::Unknown(_)) => true,
            // That no value counts as bad does not make it known.
            (Hold::NoData { .. }, Judged::Breached(_)) => !self.has_value(now, id),
            (Hold::NoData { .. }, _) => false,
            (_, judged) => matches!(judged, Judged::Breached(_)),
        };
        match is_so {
            true => Ok(()),
            false => {
                let (name, told) = (self.progress.name(task), &self.told[id.index()]);
                Err(format!("{name} is held by {why:?}, and was told {:?}", told.last))
            }
        }
    }

    fn check(
        &self,
        now: Time,
        task: TaskId,
        what: &str,
        conditions: impl Iterator<Item = ConditionId>,
    ) -> Result<(), String> {
        for id in conditions {
            if let Some(why) = self.closes(now, task, id) {
                return Err(format!("{} {what}, though {why}", self.progress.name(task)));
            }
        }
        Ok(())
    }

    /// What a stage waits for holds when it is done; what it checks and did not
    /// find does not.
    fn check_left(&self, now: Time, task: TaskId, outcome: Outcome) -> Result<(), String> {
        let own = self.progress.task(task);
        let stage = self.progress.stage(task).filter(|_| own.is_running || own.is_undoing);
        match (stage, outcome) {
            (
                Some(StageKind::Await { condition } | StageKind::Check { condition }),
                Outcome::Done,
            ) => self.check(now, task, "went on", [*condition].into_iter()),
            (Some(StageKind::Check { condition }), Outcome::Failed)
                if self.closes(now, task, *condition).is_none() =>
            {
                let name = &self.progress.plan.condition(*condition).name;
                Err(format!("{} failed, though {name} holds", self.progress.name(task)))
            }
            _ => Ok(()),
        }
    }

    /// Whether a write is a step of the way back of a task.
    fn leads_back(&self, task: TaskId, what: &Effect) -> bool {
        let traced = self.progress.task(task);
        let Effect::Write { knob, value: value @ Value::Number(_) } = what else { return false };
        let is_elsewhere = !traced.at.iter().any(|(at, is)| at == knob && is == value);
        traced.is_reverting && !traced.is_undoing && is_elsewhere
    }

    /// The way back of a restore leads out of its datacenter, and is judged as a step of a
    /// drain. That of a drain may be what cures bad health, but nothing moves unseen.
    fn check_way_back(&self, now: Time, task: TaskId) -> Result<(), String> {
        let plan = &self.progress.plan;
        let mut own = plan.task(task).health.iter().chain(&plan.health).copied();
        match plan.direction {
            Direction::Restore => self.check(now, task, "took traffic out on its way back", own),
            Direction::Drain if self.progress.is_uninterruptible(task) => Ok(()),
            Direction::Drain => own.try_for_each(|id| match self.judge(now, task, id) {
                Judged::Unknown(why) => {
                    Err(format!("{} took a step back, though {why}", self.progress.name(task)))
                }
                _ => Ok(()),
            }),
        }
    }

    fn check_effect(&self, now: Time, task: TaskId, what: &Effect) -> Result<(), String> {
        let plan = &self.progress.plan;
        let is_step = match what {
            Effect::Write { knob, value } => self.progress.is_step(task, *knob, value),
            Effect::Act(_) => true,
            Effect::Say(_) => false,
        };
        let stage = self.progress.stage(task);
        let is_set = matches!((stage, what), (Some(StageKind::Set { knob: own, to, .. }), Effect::Write { knob, value })
            if own == knob && to.value() == value && self.progress.task(task).is_running
                && !self.progress.task(task).at.iter().any(|(at, is)| at == knob && is == value));
        if self.leads_back(task, what) {
            return self.check_way_back(now, task);
        }
        let is_fenced = self.progress.is_uninterruptible(task) || self.progress.closes_again(task);
        if (!is_step && !is_set) || is_fenced {
            return Ok(());
        }
        if self.progress.is_paused(task) {
            return Err(format!("{} took a step though it is paused", self.progress.name(task)));
        }
        let own = plan.task(task);
        let conditions = || own.health.iter().chain(&plan.health).copied();
        // A restore begins in spite of health that was bad before it, after a while.
        let traced = self.progress.task(task);
        let is_first = (is_step && !traced.has_stepped) || !traced.has_changed();
        let was_bad =
            traced.breached_since(now).is_some_and(|since| now - since >= own.pace.patience);
        if plan.direction == Direction::Restore && is_first && was_bad {
            return Ok(());
        }
        self.check(now, task, "took a step", conditions())
    }
}

impl Checker for Gates {
    fn name(&self) -> &'static str {
        "gates"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Told { condition, asked, found } => self.tell(*asked, *condition, *found),
            Event::Resumed { .. } => self.told.fill(Told::default()),
            Event::Recorded(record) => {
                let plan = self.progress.plan.clone();
                match &record.fact {
                    Fact::Issued { task, what, .. } => self.check_effect(record.at, *task, what)?,
                    Fact::Moved { task, trigger: Trigger::Start } => {
                        let pre = plan.task(*task).pre.iter().copied();
                        self.check(record.at, *task, "began", pre)?;
                    }
                    Fact::Moved { task, trigger: Trigger::Settle } => {
                        let post = plan.task(*task).post.iter().copied();
                        self.check(record.at, *task, "is done", post)?;
                    }
                    Fact::Left { task, outcome, .. } => {
                        self.check_left(record.at, *task, *outcome)?;
                    }
                    Fact::Held { task, why } => self.check_hold(record.at, *task, why)?,
                    _ => {}
                }
                self.progress.take(record);
            }
            _ => {}
        }
        Ok(())
    }
}
