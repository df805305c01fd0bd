//! Where tasks are, by what their records say alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::engine::{
    Abort, Actor, Command, Effect, EffectId, Ended, Fact, Hold, Mode, Record, Trigger,
};
use drain::{
    ConditionId, Direction, Exit, KnobId, Next, Outcome, Plan, StageId, StageKind, TaskId, Time,
    UndoBy, Value,
};

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
    /// Uids.
    exact_overridden_by: BTreeMap<(ConditionId, Option<TaskId>), BTreeSet<u32>>,
    pub is_paused: bool,
    pub tasks: Vec<Traced>,
    /// Fences that tasks have closed, or tried to, and that were not seen open since.
    pub closed_fences: BTreeSet<(TaskId, KnobId)>,
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
    /// On the way back.
    pub is_reverting: bool,
    pub stage: Option<StageId>,
    /// On the way back, in the stages that its template undoes it with.
    pub is_undoing: bool,
    /// Whether it began what these undo.
    needs_undo: bool,
    /// On the way back, or at its end without having come there.
    is_back: bool,
    /// Where it begins when it is tried again.
    pub stumbled: Option<StageId>,
    pub entered: Time,
    pub is_paused: bool,
    pub overridden: BTreeSet<ConditionId>,
    /// Where it found its knobs, or brought them since.
    pub at: Vec<(KnobId, Value)>,
    /// Where else they were found since.
    elsewhere: Vec<(KnobId, Value)>,
    /// What it wrote without hearing whether that was done.
    unheard: Vec<(KnobId, Value)>,
    /// Where its knobs were found first.
    origins: Vec<(KnobId, Value)>,
    /// When the last effect was confirmed that changed something.
    effect_at: Option<Time>,
    /// Whether the shift that it is in has taken a step.
    pub has_stepped: bool,
    /// Since when bad health holds it, and when that was over.
    breached: Option<Time>,
    released: Option<Time>,
    /// When it was last tried to do something, or that ended.
    pub tried: Time,
}

impl Traced {
    /// Whether it has had an effect.
    pub fn has_changed(&self) -> bool {
        self.effect_at.is_some()
    }

    /// Since when bad health holds it, or did until now: whoever begins in spite
    /// of it is released first.
    pub fn breached_since(&self, now: Time) -> Option<Time> {
        self.breached.filter(|_| self.released.is_none_or(|at| at == now))
    }

    fn hold(&mut self, at: Time, why: &Hold) {
        self.breached = match why {
            Hold::Breach { .. } => self.breached_since(at).or(Some(at)),
            _ => None,
        };
        self.released = None;
    }
}

impl Progress {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Progress {
            plan: plan.clone(),
            mode: Mode::Drill,
            abort: None,
            waived_by: BTreeSet::new(),
            overridden: BTreeSet::new(),
            exact_overridden_by: BTreeMap::new(),
            is_paused: false,
            tasks: vec![Traced::default(); plan.tasks.len()],
            closed_fences: BTreeSet::new(),
            in_flight: Vec::new(),
        }
    }

    pub fn task(&self, id: TaskId) -> &Traced {
        &self.tasks[id.index()]
    }

    /// Where a task found a knob first.
    pub fn origin(&self, id: TaskId, knob: KnobId) -> Option<&Value> {
        self.task(id).origins.iter().find(|(own, _)| *own == knob).map(|(_, value)| value)
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

    /// Whether a task closes a fence that is closed, as far as anybody knows.
    pub fn closes_again(&self, task: TaskId) -> bool {
        let stage = self.task(task).stage.filter(|_| self.task(task).is_running);
        let fence = stage.and_then(|stage| self.plan.task(task).closed_in(stage));
        fence.is_some_and(|fence| self.closed_fences.contains(&(task, fence)))
    }

    /// Whether a task is between a fence and what lifts it.
    pub fn is_uninterruptible(&self, task: TaskId) -> bool {
        let stage = self.task(task).stage.filter(|_| self.task(task).is_running);
        stage.is_some_and(|at| !self.plan.task(task).stages[at.index()].is_interruptible)
    }

    /// The last effect that conditions of a task are to judge.
    pub fn judged_since(&self, task: TaskId) -> Option<Time> {
        let parents = self.plan.task(task).parents();
        let of_parents = parents.filter_map(|parent| self.task(parent).effect_at).max();
        of_parents.max(self.task(task).effect_at)
    }

    /// Whether a write brings the shift that a task is in nearer to its end, than where the
    /// task brought the knob and than where that was found since.
    pub fn is_step(&self, task: TaskId, knob: KnobId, value: &Value) -> bool {
        let Some(StageKind::Shift { knob: own, to }) = self.stage(task) else { return false };
        let known = |places: &[(KnobId, Value)]| {
            places.iter().find(|(known, _)| known == own).and_then(|(_, at)| at.number())
        };
        let traced = self.task(task);
        let ends = (known(&traced.at), to.value().number(), value.number());
        let (Some(at), Some(to), Some(value)) = ends else { return false };
        let is_nearer = |at: f64| (value - to).abs() < (at - to).abs() - 1e-9;
        let elsewhere = known(&traced.elsewhere);
        traced.is_running && *own == knob && is_nearer(at) && elsewhere.is_none_or(is_nearer)
    }

    pub fn take(&mut self, record: &Record) {
        match &record.fact {
            Fact::Opened { mode, .. } => self.mode = *mode,
            Fact::Moved { task, trigger } => {
                self.take_moved(*task, *trigger);
                self.tasks[task.index()].breached = None;
                if *trigger == Trigger::Start {
                    self.tasks[task.index()].entered = record.at;
                }
            }
            Fact::Entered { task, stage } => {
                let own = &mut self.tasks[task.index()];
                (own.stage, own.entered) = (Some(*stage), record.at);
                own.has_stepped = false;
            }
            Fact::Held { task, why } => self.tasks[task.index()].hold(record.at, why),
            Fact::Released { task } => self.tasks[task.index()].released = Some(record.at),
            Fact::Left { task, stage, outcome } => {
                let of_plan = &self.plan.task(*task).stages[stage.index()];
                let own = &mut self.tasks[task.index()];
                if *outcome != Outcome::Done {
                    own.stumbled = Some(of_plan.retry);
                }
                if own.is_undoing && of_plan.next(*outcome) == Next::Exit(Exit::Done) {
                    (own.is_undoing, own.needs_undo) = (false, false);
                }
            }
            Fact::Found { task, knob, value, .. } => {
                let undone = self.plan.task(*task).undone_knob() == Some(*knob);
                let own = &mut self.tasks[task.index()];
                if !own.origins.iter().any(|(known, _)| known == knob) {
                    own.origins.push((*knob, value.clone()));
                }
                let is_back = |(known, at): &(KnobId, Value)| known == knob && at.is_met_by(value);
                if own.is_undoing && undone && own.origins.iter().any(is_back) {
                    (own.is_undoing, own.needs_undo) = (false, false);
                }
                self.place(*task, *knob, value.clone());
            }
            Fact::MovedOut { task, knob, found, .. } => {
                let own = &mut self.tasks[task.index()];
                (own.effect_at, own.has_stepped) = (Some(record.at), true);
                own.elsewhere.retain(|(known, _)| known != knob);
                own.elsewhere.push((*knob, found.clone()));
                let is_step =
                    |(known, value): &(KnobId, Value)| known == knob && value.is_met_by(found);
                // What something else did is no step, and allows none.
                let is_restore = self.plan.direction == Direction::Restore;
                if is_restore || own.unheard.iter().any(is_step) {
                    self.place(*task, *knob, found.clone());
                }
            }
            Fact::Drifted { knob, found, .. } => {
                for own in self.tasks.iter_mut().filter(|own| own.is_running) {
                    own.elsewhere.retain(|(known, _)| known != knob);
                    own.elsewhere.push((*knob, found.clone()));
                }
            }
            Fact::Issued { effect, task, what } => {
                let undo = self.plan.task(*task).undo.as_ref();
                let own = &mut self.tasks[task.index()];
                own.tried = record.at;
                own.needs_undo |= own.is_running
                    && !matches!(what, Effect::Say(_))
                    && undo.is_some_and(|undo| Some(undo.after) == own.stage);
                self.in_flight.push((*effect, *task, what.clone()));
                if let Effect::Write { knob, value } = what
                    && self.plan.task(*task).is_closed_by(*knob, value)
                {
                    self.closed_fences.insert((*task, *knob));
                }
            }
            Fact::Ended { effect, result } => {
                let Some(at) = self.in_flight.iter().position(|(own, ..)| own == effect) else {
                    return;
                };
                let (_, task, what) = self.in_flight.remove(at);
                self.tasks[task.index()].tried = record.at;
                let Ended::Done { .. } = result else {
                    if let Effect::Write { knob, value } = what {
                        self.tasks[task.index()].unheard.push((knob, value));
                    }
                    return;
                };
                let governs = |knob: KnobId| {
                    let mut stages = self.plan.task(task).stages.iter();
                    stages.any(|stage| matches!(stage.kind, StageKind::Govern { knob: own, .. } if own == knob))
                };
                let is_change = match &what {
                    Effect::Write { knob, .. } => !governs(*knob),
                    Effect::Act(_) => true,
                    Effect::Say(_) => false,
                };
                if is_change {
                    self.tasks[task.index()].effect_at = Some(record.at);
                }
                if let Effect::Write { knob, value } = what {
                    self.place(task, knob, value);
                    // What puts another knob back is no step of this one.
                    let stage = self.stage(task);
                    let is_own =
                        matches!(stage, Some(StageKind::Shift { knob: own, .. }) if *own == knob);
                    self.tasks[task.index()].has_stepped |= is_own;
                }
            }
            Fact::Commanded { by, command, .. } => self.take_command(by, command),
            _ => {}
        }
    }

    fn place(&mut self, task: TaskId, knob: KnobId, value: Value) {
        match self.plan.task(task).is_closed_by(knob, &value) {
            true => _ = self.closed_fences.insert((task, knob)),
            false => self.closed_fences.retain(|(_, own)| *own != knob),
        }
        let at = &mut self.tasks[task.index()].at;
        at.retain(|(own, _)| *own != knob);
        at.push((knob, value));
        self.tasks[task.index()].unheard.retain(|(own, _)| *own != knob);
        self.tasks[task.index()].elsewhere.retain(|(own, _)| *own != knob);
    }

    fn take_moved(&mut self, task: TaskId, trigger: Trigger) {
        if trigger == Trigger::Retry {
            let plan = self.plan.clone();
            let is_own = |id: &ConditionId| {
                plan.condition(*id).is_exact && plan.task(task).conditions().any(|own| own == *id)
            };
            self.overridden.retain(|id| !is_own(id));
            self.tasks[task.index()].overridden.retain(|id| !plan.condition(*id).is_exact);
            let counts = |of: &Option<TaskId>| of.is_some_and(|of| of != task);
            self.exact_overridden_by.retain(|(id, of), _| !is_own(id) || counts(of));
        }
        let own = &mut self.tasks[task.index()];
        own.is_complete = matches!(trigger, Trigger::Settle | Trigger::Skip);
        own.is_running = matches!(trigger, Trigger::Start);
        own.is_reverting = matches!(trigger, Trigger::Revert);
        let undo = self.plan.task(task).undo.as_ref().map(|undo| &undo.how);
        own.is_undoing = false;
        let goes_back = trigger == Trigger::Revert || (trigger == Trigger::Retry && own.is_back);
        own.is_back = goes_back || (own.is_back && trigger == Trigger::RevertFailed);
        if let Some(UndoBy::Stages { first }) = undo
            && goes_back
            && own.needs_undo
        {
            (own.stage, own.is_undoing) = (Some(*first), true);
        }
        // Where it begins when it begins next: a crash may keep that from being said.
        match trigger {
            Trigger::Start => own.stage = own.stage.or(Some(StageId(0))),
            Trigger::StagesFailed => own.stage = own.stumbled.take().or(own.stage),
            Trigger::RevertDone => {
                (own.stage, own.stumbled, own.needs_undo) = (None, None, false);
            }
            _ => {}
        }
    }

    fn take_command(&mut self, by: &Actor, command: &Command) {
        match command {
            Command::Pause { task: None } => self.is_paused = true,
            Command::Resume { task: None } => self.is_paused = false,
            Command::Pause { task: Some(task) } => self.tasks[task.index()].is_paused = true,
            Command::Resume { task: Some(task) } => self.tasks[task.index()].is_paused = false,
            // Whoever says so loses what is missing: it takes two.
            Command::Override { condition, task } if self.plan.condition(*condition).is_exact => {
                let people = self.exact_overridden_by.entry((*condition, *task)).or_default();
                people.extend(by.uid());
                let of_all = self.exact_overridden_by.get(&(*condition, None)).cloned();
                let of_all = of_all.unwrap_or_default();
                for ((own, task), people) in &self.exact_overridden_by {
                    if own == condition && people.union(&of_all).count() >= 2 {
                        match task {
                            Some(task) => self.tasks[task.index()].overridden.insert(*condition),
                            None => self.overridden.insert(*condition),
                        };
                    }
                }
            }
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
