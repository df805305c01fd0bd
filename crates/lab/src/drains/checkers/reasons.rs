//! Whoever waits says for what, by its records alone: a task that a person has to
//! see to, and one that is held, has a reason that names the stage, the knob or
//! the condition, and its value. Nobody is silent for long.

use std::sync::Arc;

use drain::engine::{Abort, Command, Fact, Hold, Mode, Phase, Record, State, TaskState};
use drain::report::describe;
use drain::{ConditionId, Millis, Plan, StageKind, TaskId, Time, number};

use super::{Checker, Event};

/// How long a task may do nothing and say nothing: conditions are looked at, and
/// a clock that was set back makes that longer.
const SILENT_MAX: Millis = Millis::from_secs(300);
/// How much of the time between two events counts: clocks are set.
const STEP_MAX: Millis = Millis::from_secs(15);

#[derive(Debug)]
pub struct Reasons {
    plan: Arc<Plan>,
    /// What whoever reads the log knows.
    state: State,
    /// For how long each task has been silent.
    silent: Vec<Millis>,
    /// Who stopped each task.
    stopped_by: Vec<String>,
    last: Time,
}

impl Reasons {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Reasons {
            plan: plan.clone(),
            state: State::new(plan),
            silent: vec![Millis::ZERO; plan.tasks.len()],
            stopped_by: vec![String::new(); plan.tasks.len()],
            last: Time(0),
        }
    }

    fn take(&mut self, record: &Record) {
        if let Some(task) = concerns(&self.state, &record.fact) {
            self.silent[task.index()] = Millis::ZERO;
        }
        if let Fact::Commanded { by, command: Command::Stop { task }, .. } = &record.fact {
            self.stopped_by[task.index()] = by.to_string();
        }
        // What does not follow is found by another checker.
        let _ = self.state.apply(&self.plan, record);
    }

    /// Counts the time that has passed for those who are silent.
    fn pass(&mut self, now: Time) {
        let passed = (now - self.last).min(STEP_MAX);
        self.last = now;
        for task in self.plan.task_ids() {
            let silent = &mut self.silent[task.index()];
            *silent = match is_explained(&self.plan, &self.state, task, now) {
                true => Millis::ZERO,
                false => *silent + passed,
            };
        }
    }

    fn check(&self, task: TaskId) -> Result<(), String> {
        let (name, own) = (&self.plan.task(task).name, self.state.task(task));
        let wrong = |what: &str| Err(format!("{name} is {:?} {what}", own.phase));
        let needs_person = match own.phase {
            Phase::Failed | Phase::Unreverted => true,
            // Bad health put it back, and nobody else.
            Phase::Reverted => self.state.abort.is_none(),
            _ => false,
        };
        match own.phase {
            _ if needs_person => match own.trouble() {
                Some(why) if self.names_an_object(task, why) => Ok(()),
                why => wrong(&format!("without a reason that names something: {why:?}")),
            },
            Phase::Stopped if self.stopped_by[task.index()].is_empty() => {
                wrong("and nobody stopped it")
            }
            _ if self.silent[task.index()] > SILENT_MAX => {
                wrong(&format!("and silent for {}", self.silent[task.index()]))
            }
            _ => match &own.hold {
                Some((_, hold)) => self.check_hold(name, hold),
                None => Ok(()),
            },
        }
    }

    fn check_hold(&self, name: &str, hold: &Hold) -> Result<(), String> {
        let why = describe(&self.plan, hold);
        let condition = |id: &ConditionId| self.plan.condition(*id).name.clone();
        let parts = match hold {
            Hold::Awaits { condition: id, value } | Hold::Breach { condition: id, value } => {
                let own = self.plan.condition(*id);
                let shown = value.map_or("no value".into(), number);
                vec![condition(id), shown, own.comparison.symbol().into(), number(own.bound)]
            }
            Hold::NoData { condition: id } => vec![condition(id)],
            Hold::Contested { knob } | Hold::Unreadable { knob } | Hold::InUse { knob, .. } => {
                vec![self.plan.knob(*knob).to_string()]
            }
            Hold::Limit(reached) => vec![reached.to_string()],
            Hold::Paused | Hold::Budget | Hold::Unanswered { .. } => Vec::new(),
        };
        match parts.iter().find(|part| part.is_empty() || !why.contains(*part)) {
            None if !why.is_empty() => Ok(()),
            missing => Err(format!("{name} is held by {hold:?}, and {why:?} lacks {missing:?}")),
        }
    }

    /// Whether a text names a stage, a knob or a condition of a task.
    fn names_an_object(&self, task: TaskId, why: &str) -> bool {
        let own = self.plan.task(task);
        let stages = own.stages.iter().map(|stage| stage.name.clone());
        let knobs = self.state.task(task).origins.iter();
        let knobs = knobs.map(|(knob, _)| self.plan.knob(*knob).to_string());
        let conditions = own.conditions().map(|id| self.plan.condition(id).name.clone());
        stages.chain(knobs).chain(conditions).any(|name| why.contains(&name))
    }
}

/// The task that a record is about.
fn concerns(state: &State, fact: &Fact) -> Option<TaskId> {
    match fact {
        Fact::Moved { task, .. }
        | Fact::Entered { task, .. }
        | Fact::Left { task, .. }
        | Fact::Failed { task, .. }
        | Fact::Found { task, .. }
        | Fact::Issued { task, .. }
        | Fact::Held { task, .. } => Some(*task),
        Fact::Ended { effect, .. } => state.in_flight.get(effect).map(|own| own.task),
        // That it is stuck, or held no longer, is no reason.
        _ => None,
    }
}

/// Whether it can be seen why a task does nothing.
fn is_explained(plan: &Plan, state: &State, task: TaskId, now: Time) -> bool {
    let own = state.task(task);
    let waits = || {
        let of_plan = plan.task(task);
        let is_open = |parent: &TaskId| !state.task(*parent).phase.is_complete();
        let weak = of_plan.after_weak.iter().filter(|_| state.mode == Mode::Drill);
        of_plan.after.iter().chain(weak).any(is_open)
    };
    let goes_back_later = || {
        let is_child = |child: &TaskId| plan.task(*child).parents().any(|parent| parent == task);
        let is_back = |child: TaskId| {
            let phase = state.task(child).phase;
            matches!(phase, Phase::Reverted | Phase::Unreverted | Phase::Abandoned)
        };
        state.abort == Some(Abort::Revert)
            && plan.task_ids().any(|child| is_child(&child) && !is_back(child))
    };
    // Each of their steps takes newer samples; `status` says of what.
    let parents_go_back = || {
        let mut parents = plan.task(task).parents();
        parents.any(|parent| state.task(parent).phase == Phase::Reverting)
    };
    let tries_again = own.failures > 0 && own.last_failure.is_some();
    match own.phase {
        _ if state.closed.is_some() || own.hold.is_some() || own.in_flight.is_some() => true,
        Phase::Waiting => waits() || goes_back_later(),
        Phase::Running => {
            let is_said = tries_again || explains(plan, own, task, now);
            is_said || goes_back_later() || parents_go_back()
        }
        Phase::Settling => tries_again || goes_back_later(),
        Phase::Reverting => tries_again,
        _ => true,
    }
}

/// Whether the stage that a task is in says what it waits for.
fn explains(plan: &Plan, own: &TaskState, task: TaskId, now: Time) -> bool {
    match &plan.task(task).stages[own.stage.index()].kind {
        StageKind::Approve { question, people } => {
            !question.is_empty() && (own.approved_by.len() as u32) < *people
        }
        StageKind::Barrier { name } => !name.is_empty(),
        StageKind::TimedWait { span } => now < own.entered + *span,
        _ => false,
    }
}

impl Checker for Reasons {
    fn name(&self) -> &'static str {
        "reasons"
    }

    fn see(&mut self, now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(record),
            // Everything is observed anew.
            Event::Resumed { .. } => self.silent.fill(Millis::ZERO),
            Event::Rested { .. } | Event::Finished { .. } => {
                self.pass(now);
                return self.plan.task_ids().try_for_each(|task| self.check(task));
            }
            _ => {}
        }
        Ok(())
    }
}
