//! A fence or a primary is set by one task at a time: not while another task
//! that has set it is under way, and not while another run uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::engine::{Effect, Fact, Record};
use drain::{Fence, KnobId, Plan, StageId, StageKind, TaskId, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Claims {
    progress: Progress,
    /// The knobs that each task must not share while it is under way.
    own: Vec<BTreeSet<KnobId>>,
    /// Tasks that have set one of them since they started, or go back.
    using: BTreeSet<TaskId>,
    /// Until when another run uses which knobs.
    used: BTreeMap<KnobId, Time>,
}

impl Claims {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let promotes = |service: &str| {
            let mut tasks = plan.tasks.iter().filter(|task| task.service == service);
            tasks.any(|task| !task.fences.is_empty())
        };
        let own = plan.tasks.iter().map(|task| {
            let set = task.stages.iter().filter_map(|stage| match stage.kind {
                StageKind::Set { knob, .. } | StageKind::PutBack { knob } => Some(knob),
                _ => None,
            });
            if promotes(&task.service) { set.collect() } else { BTreeSet::new() }
        });
        Claims {
            progress: Progress::new(plan),
            own: own.collect(),
            using: BTreeSet::new(),
            used: BTreeMap::new(),
        }
    }

    fn check(&self, now: Time, task: TaskId, knob: KnobId) -> Result<(), String> {
        if !self.own[task.index()].contains(&knob) {
            return Ok(());
        }
        let (name, set) = (self.progress.name(task), self.progress.plan.knob(knob));
        if self.used.get(&knob).is_some_and(|until| now < *until) {
            return Err(format!("{name} sets {set}, which another run uses"));
        }
        let is_rival = |other: &&TaskId| **other != task && self.own[other.index()].contains(&knob);
        match self.using.iter().find(is_rival) {
            Some(other) => {
                let other = self.progress.name(*other);
                Err(format!("{name} sets {set} while {other} is under way"))
            }
            None => Ok(()),
        }
    }

    /// Whether a task that enters a stage has nothing left to set, and has opened
    /// its fences: what it waits for then holds up no other.
    fn is_through(&self, task: TaskId, stage: StageId) -> bool {
        let own = self.progress.plan.task(task);
        let next = &own.stages[stage.index()];
        let at = &self.progress.task(task).at;
        let is_closed = |fence: &Fence| {
            at.iter().any(|(knob, value)| *knob == fence.knob && fence.closed.is_met_by(value))
        };
        next.is_interruptible
            && !matches!(next.kind, StageKind::Set { .. } | StageKind::PutBack { .. })
            && !own.fences.iter().any(is_closed)
    }

    fn take(&mut self, now: Time, record: &Record) -> Result<(), String> {
        if let Fact::Issued { task, what: Effect::Write { knob, .. }, .. } = &record.fact {
            self.check(now, *task, *knob)?;
            let at = self.progress.task(*task);
            if self.own[task.index()].contains(knob) && (at.is_running || at.is_reverting) {
                self.using.insert(*task);
            }
        }
        match &record.fact {
            Fact::Moved { task, .. } => _ = self.using.remove(task),
            Fact::Entered { task, stage } if self.is_through(*task, *stage) => {
                self.using.remove(task);
            }
            _ => {}
        }
        self.progress.take(record);
        Ok(())
    }
}

impl Checker for Claims {
    fn name(&self) -> &'static str {
        "claims"
    }

    fn see(&mut self, now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(now, record),
            Event::Used { knob, until } => {
                self.used.insert(*knob, *until);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
