//! Where tasks are, by what their records say alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use drain::engine::{Abort, Actor, Command, Effect, EffectId, Ended, Fact, Mode, Record, Trigger};
use drain::{ConditionId, KnobId, Outcome, Plan, StageId, StageKind, TaskId, Time, Value};

/// A reader of a log.
#[derive(Clone, Debug)]
pub struct Progress {
    pub plan: Arc<Plan>,
    pub mode: Mode,
    pub abort: Option<Abort>,
    /// Uids.
    pub waived_by: BTreeSet<u32>,
    /// Set aside for all tasks.
    pub overridden: BTreeSet<ConditionId>,
    pub is_paused: bool,
    pub tasks: Vec<Traced>,
    /// Effects that have not ended.
    pub in_flight: Vec<(EffectId, TaskId, Effect)>,
}

/// One task, as its records tell.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// Done or skipped.
    pub is_complete: bool,
    /// Between its start and its end, and not on the way back.
    pub is_running: bool,
    pub stage: Option<StageId>,
    /// The stage that last ended otherwise than well.
    pub stumbled: Option<StageId>,
    pub entered: Time,
    pub is_paused: bool,
    pub overridden: BTreeSet<ConditionId>,
    /// Where its knobs are known to be.
    pub at: Vec<(KnobId, Value)>,
    /// When the last step of the stage it is in was confirmed.
    pub stepped: Option<Time>,
}

impl Progress {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Progress {
            plan: plan.clone(),
            mode: Mode::Drill,
            abort: None,
            waived_by: BTreeSet::new(),
            overridden: BTreeSet::new(),
            is_paused: false,
            tasks: vec![Traced::default(); plan.tasks.len()],
            in_flight: Vec::new(),
        }
    }

    pub fn task(&self, id: TaskId) -> &Traced {
        &self.tasks[id.index()]
    }

    pub fn name(&self, id: TaskId) -> &str {
        &self.plan.task(id).name
    }

    pub fn stage(&self, id: TaskId) -> Option<&StageKind> {
        let stage = self.task(id).stage?;
        self.plan.task(id).stages.get(stage.index()).map(|stage| &stage.kind)
    }

    pub fn is_overridden(&self, task: TaskId, condition: ConditionId) -> bool {
        self.overridden.contains(&condition) || self.task(task).overridden.contains(&condition)
    }

    pub fn is_paused(&self, task: TaskId) -> bool {
        self.is_paused || self.task(task).is_paused
    }

    /// Whether a write brings the shift that a task is in nearer to its end.
    pub fn is_step(&self, task: TaskId, knob: KnobId, value: &Value) -> bool {
        let Some(StageKind::Shift { knob: own, to }) = self.stage(task) else { return false };
        let at = self.task(task).at.iter().find(|(known, _)| known == own);
        let ends = (at.and_then(|(_, at)| at.number()), to.value().number(), value.number());
        let (Some(at), Some(to), Some(value)) = ends else { return false };
        self.task(task).is_running && *own == knob && (value - to).abs() < (at - to).abs() - 1e-9
    }

    pub fn take(&mut self, record: &Record) {
        match &record.fact {
            Fact::Opened { mode, .. } => self.mode = *mode,
            Fact::Moved { task, trigger } => {
                self.take_moved(*task, *trigger);
                if *trigger == Trigger::Start {
                    self.tasks[task.index()].entered = record.at;
                }
            }
            Fact::Entered { task, stage } => {
                let own = &mut self.tasks[task.index()];
                (own.stage, own.entered, own.stepped) = (Some(*stage), record.at, None);
            }
            Fact::Left { task, stage, outcome: Outcome::Failed | Outcome::Late } => {
                self.tasks[task.index()].stumbled = Some(*stage);
            }
            Fact::Found { task, knob, value } => self.place(*task, *knob, value.clone()),
            Fact::Issued { effect, task, what } => {
                self.in_flight.push((*effect, *task, what.clone()));
            }
            Fact::Ended { effect, result } => {
                let Some(at) = self.in_flight.iter().position(|(own, ..)| own == effect) else {
                    return;
                };
                let (_, task, what) = self.in_flight.remove(at);
                if let (Effect::Write { knob, value }, Ended::Done { .. }) = (what, result) {
                    self.place(task, knob, value);
                    // What puts another knob back is no step of this one.
                    if matches!(self.stage(task), Some(StageKind::Shift { knob: own, .. }) if *own == knob)
                    {
                        self.tasks[task.index()].stepped = Some(record.at);
                    }
                }
            }
            Fact::Commanded { by, command, .. } => self.take_command(by, command),
            _ => {}
        }
    }

    fn place(&mut self, task: TaskId, knob: KnobId, value: Value) {
        let at = &mut self.tasks[task.index()].at;
        at.retain(|(own, _)| *own != knob);
        at.push((knob, value));
    }

    fn take_moved(&mut self, task: TaskId, trigger: Trigger) {
        let own = &mut self.tasks[task.index()];
        own.is_complete = matches!(trigger, Trigger::Settle | Trigger::Skip);
        own.is_running = matches!(trigger, Trigger::Start);
        // Where it begins when it begins next: a crash may keep that from being said.
        match trigger {
            Trigger::Start => own.stage = own.stage.or(Some(StageId(0))),
            Trigger::StagesFailed => own.stage = own.stumbled.take().or(own.stage),
            Trigger::RevertDone => (own.stage, own.stumbled) = (None, None),
            _ => {}
        }
    }

    fn take_command(&mut self, by: &Actor, command: &Command) {
        match command {
            Command::Pause { task: None } => self.is_paused = true,
            Command::Resume { task: None } => self.is_paused = false,
            Command::Pause { task: Some(task) } => self.tasks[task.index()].is_paused = true,
            Command::Resume { task: Some(task) } => self.tasks[task.index()].is_paused = false,
            Command::Override { condition, task: None } => {
                self.overridden.insert(*condition);
            }
            Command::Override { condition, task: Some(task) } => {
                self.tasks[task.index()].overridden.insert(*condition);
            }
            Command::SetMode { mode } => self.mode = *mode,
            Command::WaiveLimits => {
                self.waived_by.extend(by.uid());
            }
            Command::Abort { how } => {
                self.abort = Some(*how);
                if *how == Abort::Revert {
                    self.is_paused = false;
                    self.tasks.iter_mut().for_each(|task| task.is_paused = false);
                }
            }
            _ => {}
        }
    }
}
