//! The durable state of a run: nothing but its records, applied in order.
//!
//! [`State::apply`] decides nothing. What it meets was decided when it was
//! written, so the state after a crash is the state before it.

use std::collections::BTreeMap;
use std::fmt;

use super::actor::{Actor, People};
use super::phase::{Census, Phase, Trigger};
use super::record::{Effect, EffectId, Ended, Fact, Hold, Mode, Record, RunOutcome};
use super::task::{Shifted, TaskState};
use super::verb::{Abort, Command};
use super::{DRIFT_FORGOTTEN_AFTER, DRIFTS_MAX};
use crate::fleet::Fleet;
use crate::plan::{
    ConditionId, Direction, Exit, Fence, KnobId, Next, Opening, Outcome, Plan, Stage, StageId,
    StageKind, Task, TaskId, Undo, UndoBy,
};
use crate::time::Time;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub mode: Mode,
    pub paused: bool,
    pub abort: Option<Abort>,
    /// Who set the limits aside; two are needed.
    pub waived_by: People,
    /// Conditions that count as held for all tasks.
    pub overridden: Vec<ConditionId>,
    /// Who overrode conditions by which nothing is missing; two are needed.
    pub exact_overridden_by: BTreeMap<(ConditionId, Option<TaskId>), People>,
    pub tasks: Vec<TaskState>,
    /// What is being done, and since when.
    pub in_flight: BTreeMap<EffectId, InFlight>,
    /// Where each knob was left, and by whom.
    pub knobs: Vec<Option<Left>>,
    /// How many writes of each knob have not ended.
    pub writes: Vec<u32>,
    /// Knobs that the last look did not find where they were left.
    pub astray: BTreeMap<KnobId, Astray>,
    /// Fences that are closed, or may be, by the tasks that closed or found them
    /// so, and since when: until one is written or read open.
    pub closed_fences: BTreeMap<(TaskId, KnobId), Time>,
    /// How near each condition came to its bound, once it was close.
    pub nearest: Vec<f64>,
    /// The position of the fleet, as the limits count it.
    pub fleet: Fleet,
    pub opened: Option<Time>,
    /// Who opened the run, and why.
    pub opened_by: String,
    pub reason: String,
    /// Who paused the whole run, if it is paused.
    pub pause: Option<Pause>,
    /// How often values were written down, when last, and how often because a
    /// condition changed.
    pub samples: u32,
    pub sampled: Option<Time>,
    pub changes: u32,
    /// How many commands each user gave.
    pub commands: BTreeMap<u32, u32>,
    pub closed: Option<(Time, RunOutcome)>,
    /// The sequence number of the next record, and the next effect.
    pub next_seq: u64,
    pub next_effect: EffectId,
    pub census: Census,
}

#[derive(Clone, Debug, PartialEq)]
pub struct InFlight {
    pub task: TaskId,
    pub what: Effect,
    pub since: Time,
}

/// Who paused a run, when and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    pub since: Time,
    pub by: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Left {
    pub value: Value,
    pub task: TaskId,
    pub since: Time,
    /// How often in a row it was found elsewhere, when last, and at what value.
    pub drifts: u32,
    pub drifted: Time,
    pub drifted_to: Option<Value>,
    /// Its task found it at its goal, and has not set it: that may have been read badly.
    pub is_found: bool,
}

/// Where a knob was at the end that was left elsewhere, and why nothing put it back.
#[derive(Clone, Debug, PartialEq)]
pub struct Astray {
    /// `None`: it could not be read.
    pub found: Option<Value>,
    pub why: String,
}

impl Left {
    fn new(value: Value, task: TaskId, since: Time) -> Self {
        Left { value, task, since, drifts: 0, drifted: Time(0), drifted_to: None, is_found: false }
    }

    /// Whether a task found it at its goal, and has not set it.
    pub fn is_found_by(&self, task: TaskId) -> bool {
        self.is_found && self.task == task
    }

    /// Something else moved it. What could not be put back has not stayed anywhere since.
    fn drift(&mut self, found: &Value, at: Time) {
        let is_another = at - self.since.max(self.drifted) >= DRIFT_FORGOTTEN_AFTER;
        self.drifts = if is_another { 1 } else { self.drifts + 1 };
        (self.drifted, self.drifted_to) = (at, Some(found.clone()));
    }
}

/// A record that does not follow from those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Corrupt {
    pub seq: u64,
    pub why: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} does not follow from those before it: {}", self.seq, self.why)
    }
}

impl std::error::Error for Corrupt {}

impl State {
    pub fn new(plan: &Plan) -> Self {
        State {
            mode: Mode::Drill,
            paused: false,
            abort: None,
            waived_by: People::default(),
            overridden: Vec::new(),
            exact_overridden_by: BTreeMap::new(),
            tasks: plan.tasks.iter().map(|_| TaskState::new()).collect(),
            in_flight: BTreeMap::new(),
            knobs: vec![None; plan.knobs.len()],
            writes: vec![0; plan.knobs.len()],
            astray: BTreeMap::new(),
            closed_fences: BTreeMap::new(),
            nearest: vec![0.0; plan.conditions.len()],
            fleet: match plan.fleet.is_of(plan) {
                true => plan.fleet.counted(plan),
                false => Fleet::unmoved(plan).counted(plan),
            },
            opened: None,
            opened_by: String::new(),
            reason: String::new(),
            pause: None,
            samples: 0,
            sampled: None,
            changes: 0,
            commands: BTreeMap::new(),
            closed: None,
            next_seq: 0,
            next_effect: EffectId(1),
            census: plan.tasks.iter().map(|_| Phase::Waiting).collect(),
        }
    }

    pub fn task(&self, id: TaskId) -> &TaskState {
        &self.tasks[id.index()]
    }

    pub(super) fn stage<'p>(&self, plan: &'p Plan, id: TaskId) -> &'p Stage {
        &plan.task(id).stages[self.task(id).stage.index()]
    }

    /// The first try of what an effect in flight does: the same for all tries
    /// of one act, so that a driver does it once.
    pub fn occasion(&self, effect: EffectId) -> EffectId {
        let act = self.in_flight.get(&effect).filter(|own| matches!(own.what, Effect::Act(_)));
        act.and_then(|own| self.task(own.task).occasion()).unwrap_or(effect)
    }

    /// Fences that tasks left closed which do not go on by themselves: nothing
    /// is written until a person sees to it.
    pub fn left_closed<'p>(&self, plan: &'p Plan) -> impl Iterator<Item = (TaskId, &'p Fence)> {
        // A drain leaves the old primary fenced on purpose. A restore leaves none: whoever was
        // to open it was skipped, or did not come to it.
        let (direction, is_over) = (plan.direction, self.closed.is_some());
        let is_left = move |phase: Phase| {
            let is_restored = phase == Phase::Done && direction == Direction::Restore;
            (is_restored && is_over)
                || matches!(
                    phase,
                    // A retry may wait for long before it comes to its fence again.
                    Phase::Waiting
                        | Phase::Failed
                        | Phase::Stopped
                        | Phase::Skipped
                        | Phase::Unreverted
                        | Phase::Abandoned
                )
        };
        self.closed_fences.keys().filter(move |(id, _)| is_left(self.task(*id).phase)).filter_map(
            |(id, knob)| {
                let fence = plan.task(*id).fences.iter().find(|own| own.knob == *knob)?;
                Some((*id, fence))
            },
        )
    }

    /// Whether a task has a fence that is closed, or may be.
    pub fn has_closed_fence(&self, task: TaskId) -> bool {
        self.closed_fences.range((task, KnobId(0))..=(task, KnobId(u32::MAX))).next().is_some()
    }

    /// Notes that a knob has a value, or may have it. Open is open for all.
    fn note_fence(&mut self, plan: &Plan, by: TaskId, knob: KnobId, value: &Value, at: Time) {
        if plan.task(by).is_closed_by(knob, value) {
            self.closed_fences.entry((by, knob)).or_insert(at);
        } else if !self.closed_fences.is_empty() {
            let closed = std::mem::take(&mut self.closed_fences);
            let is_open = |task: TaskId| self.is_open(plan, task, knob, value);
            let still = closed.into_iter();
            let still = still.filter(|((task, own), _)| *own != knob || !is_open(*task));
            self.closed_fences = still.collect();
        }
    }

    /// When the last effect was confirmed of the tasks that a task waits for, and of
    /// those that they waited for.
    pub fn effect_before(&self, plan: &Plan, task: TaskId) -> Option<Time> {
        let of = |own: TaskId| self.task(own).effect_at.max(self.task(own).inherited);
        plan.task(task).parents().map(of).max().flatten()
    }

    /// Whether a fence of a task is open that was found at a value. One that was
    /// not closed before the task came to it was open.
    pub fn is_open(&self, plan: &Plan, task: TaskId, knob: KnobId, value: &Value) -> bool {
        let mut fences = plan.task(task).fences.iter();
        let fence = fences.find(|own| own.knob == knob);
        fence.is_none_or(|fence| fence.is_open_at(value, self.task(task).origin(knob)))
    }

    /// The fence of another task that a task opens in the stage that it is in.
    pub fn opening<'p>(&self, plan: &'p Plan, task: TaskId) -> Option<&'p Opening> {
        let (own, state) = (plan.task(task), self.task(task));
        match &own.stages[state.stage.index()].kind {
            StageKind::Set { knob, to, .. } if state.phase == Phase::Running => {
                own.opening(*knob, to.value())
            }
            _ => None,
        }
    }

    /// Whether a task that closes a fence does so only to keep it as its promotion left it.
    pub(super) fn closes_again(&self, plan: &Plan, task: TaskId, fence: KnobId) -> bool {
        let (own, state) = (plan.task(task), self.task(task));
        let is_promoted = || {
            let left = own.promoted_knob().and_then(|knob| self.knobs[knob.index()].as_ref());
            let is_goal =
                |left: &Left| own.undone_goal().is_some_and(|to| to.is_met_by(&left.value));
            left.is_some_and(|left| left.task == task && is_goal(left))
        };
        match state.phase {
            Phase::Settling | Phase::Done => own.is_fence(fence),
            Phase::Running => own.closed_in(state.stage) != Some(fence) && is_promoted(),
            _ => false,
        }
    }

    /// What something else set a primary to since a task promoted it behind a fence: whether the
    /// fence keeps the right server from taking writes, only a person can tell.
    pub(super) fn overtaken(&self, plan: &Plan, fence: KnobId) -> Option<(KnobId, &Value)> {
        let task = self.knobs[fence.index()].as_ref()?.task;
        let primary = plan.task(task).promoted_knob()?;
        let left = self.knobs[primary.index()].as_ref()?;
        let found = left.drifted_to.as_ref().filter(|_| left.drifts >= DRIFTS_MAX)?;
        let closes = left.task == task && self.closes_again(plan, task, fence);
        closes.then_some((primary, found))
    }

    /// Whether a task is about to set a knob that is neither a fence nor set behind one.
    pub fn sets_openly(&self, plan: &Plan, task: TaskId, knob: KnobId) -> bool {
        let (own, state) = (plan.task(task), self.task(task));
        let is_set = matches!(
            own.stages[state.stage.index()].kind,
            StageKind::Set { knob: set, .. } if set == knob
        );
        is_set
            && state.phase == Phase::Running
            && !own.is_fence(knob)
            && !own.is_guarded(state.stage)
    }

    /// Whether somebody is writing a knob.
    pub fn is_written(&self, knob: KnobId) -> bool {
        self.writes[knob.index()] > 0
    }

    /// Takes the next record.
    pub fn apply(&mut self, plan: &Plan, record: &Record) -> Result<(), Corrupt> {
        let corrupt = |why: String| Corrupt { seq: record.seq, why };
        if record.seq != self.next_seq {
            return Err(corrupt(format!("expected record {}", self.next_seq)));
        }
        if self.closed.is_some() {
            return Err(corrupt("the run is closed".into()));
        }
        self.take(plan, record.at, &record.fact).map_err(corrupt)?;
        self.next_seq += 1;
        Ok(())
    }

    fn take(&mut self, plan: &Plan, at: Time, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Opened { mode, by, reason } => {
                self.mode = *mode;
                (self.opened_by, self.reason) = (by.to_string(), reason.clone());
                self.opened = Some(at);
            }
            Fact::Moved { task, trigger } => self.take_moved(plan, *task, *trigger, at)?,
            Fact::Entered { task, stage } => {
                let own = plan.tasks.get(task.index()).ok_or("no such task")?;
                if own.fence_before(self.task(*task).stage) == Some(*stage) {
                    // It begins again: what people gave up is what was missing then.
                    self.forget_exact_overrides(plan, *task);
                    self.task_mut(*task)?.begun_again += 1;
                }
                self.enter(*task, *stage, kind_of(plan, *task, *stage)?, at)?;
                let closes = |own: &Fence, value: &Value| own.closed.is_met_by(value);
                if let StageKind::Set { knob, to, .. } = &own.stages[stage.index()].kind
                    && own.fences.iter().any(|own| own.knob == *knob && closes(own, to.value()))
                {
                    let state = self.task_mut(*task)?;
                    (state.is_fence_disturbed, state.verified_at) = (false, None);
                }
            }
            Fact::Left { task, stage, outcome } => {
                let is_barrier = matches!(kind_of(plan, *task, *stage)?, StageKind::Barrier { .. });
                let state = self.task_mut(*task)?;
                state.shift = None;
                if is_barrier && state.phase == Phase::Running && !state.met.contains(stage) {
                    state.met.push(*stage);
                }
                let own = &plan.task(*task).stages[stage.index()];
                if *outcome == Outcome::Done && matches!(own.kind, StageKind::Approve { .. }) {
                    state.approved.push(*stage);
                }
                match outcome {
                    Outcome::Done => state.occasions.retain(|(own, _)| own != stage),
                    Outcome::Failed | Outcome::Late => state.stumbled = Some(own.retry),
                }
                if state.is_undoing && own.next(*outcome) == Next::Exit(Exit::Done) {
                    (state.is_undoing, state.needs_undo, state.has_acted) = (false, false, false);
                }
                if *outcome != Outcome::Failed {
                    (state.failures, state.last_failure) = (0, None);
                }
            }
            Fact::Failed { task, why } => self.task_mut(*task)?.failure = Some(why.clone()),
            Fact::Found { task, knob, value } => {
                self.take_found(plan, *task, *knob, value, at)?;
                self.take_verified(plan, *task, *knob, value, at)?;
                self.note_fence(plan, *task, *knob, value, at);
            }
            Fact::Issued { effect, task, what } => {
                self.take_issued(plan, *effect, *task, what, at)?;
                // It may be closed from now on, whatever is heard of it.
                if let Effect::Write { knob, value } = what
                    && plan.task(*task).is_closed_by(*knob, value)
                {
                    self.note_fence(plan, *task, *knob, value, at);
                    self.task_mut(*task)?.fenced_since.get_or_insert(at);
                }
            }
            Fact::Ended { effect, result } => self.take_ended(plan, *effect, result, at)?,
            Fact::Drifted { knob, found, .. } => {
                let is_overtaken =
                    knob.index() < self.knobs.len() && self.overtaken(plan, *knob).is_some();
                let left = self.knobs.get_mut(knob.index()).and_then(Option::as_mut);
                let left = left.ok_or("a knob drifted that was never turned")?;
                left.drift(found, at);
                let own = plan.task(left.task);
                let stays_open = is_overtaken && own.is_closed_by(*knob, &left.value);
                if own.is_final(*knob, &left.value) || stays_open {
                    // It is not put back: a person has to see to it.
                    left.drifts = DRIFTS_MAX;
                }
                let owner = left.task;
                if plan.task(owner).is_fence(*knob) {
                    self.task_mut(owner)?.is_fence_disturbed = true;
                }
            }
            Fact::MovedOut { task, knob, found, .. } => {
                let state = self.task_mut(*task)?;
                let leads_in = (plan.direction == Direction::Restore) != state.goes_back();
                let shift = state.shift.as_mut().filter(|shift| shift.knob == *knob);
                let shift = shift.ok_or("a knob moved out that is not moved in steps")?;
                let value = found.number().ok_or("a knob moved out to a text")?;
                match leads_in {
                    true => shift.begin_at(value, at),
                    false => shift.move_on(value, at),
                }
                state.effect_at = Some(at);
                // What a write that failed may have done, something else has undone.
                state.doubted.retain(|(own, _)| own != knob);
                // It was left where its last step brought it: that was judged, and is where it
                // is put back to from further in.
                let left = self.knobs.get_mut(knob.index()).and_then(Option::as_mut);
                let left = left.ok_or("a knob moved out that was never turned")?;
                left.drift(found, at);
                left.since = at;
            }
            Fact::Astray { knob, found, why, .. } => {
                let astray = Astray { found: found.clone(), why: why.clone() };
                self.astray.insert(*knob, astray);
                let left = self.knobs.get(knob.index()).and_then(Option::as_ref);
                if let (Some(found), Some(task)) = (found, left.map(|left| left.task)) {
                    self.note_fence(plan, task, *knob, found, at);
                }
            }
            Fact::Held { task, why } => {
                let state = self.task_mut(*task)?;
                let mut since = at;
                if matches!(why, Hold::Breach { .. }) {
                    state.breaches += 1;
                    // Bad health is bad health, whatever says so.
                    if let Some((known, Hold::Breach { .. })) = state.hold {
                        since = known;
                    }
                }
                state.hold = Some((since, why.clone()));
            }
            Fact::Released { task } => self.task_mut(*task)?.hold = None,
            Fact::Close { condition, value } => {
                let nearness = plan.conditions.get(condition.index()).ok_or("no such condition")?;
                self.nearest[condition.index()] = nearness.nearness(*value).unwrap_or(0.0);
            }
            Fact::Measured { .. } => {
                self.samples += 1;
                self.sampled = Some(at);
            }
            Fact::Changed { .. } => self.changes += 1,
            Fact::Stuck { task } => self.task_mut(*task)?.is_stuck = true,
            Fact::Commanded { by, reason, command, .. } => {
                self.take_command(plan, by, command)?;
                if let Some(uid) = by.uid() {
                    *self.commands.entry(uid).or_default() += 1;
                }
                if let Command::Pause { task: None } = command {
                    let (by, reason) = (by.to_string(), reason.clone());
                    self.pause = Some(Pause { since: at, by, reason });
                }
                self.pause.take_if(|_| !self.paused);
            }
            Fact::Fleet { fleet } => {
                if !fleet.is_of(plan) {
                    return Err("other services or datacenters than those of the plan".into());
                }
                self.fleet.clone_from(fleet);
            }
            Fact::Closed { outcome } => self.closed = Some((at, *outcome)),
        }
        Ok(())
    }

    fn task_mut(&mut self, id: TaskId) -> Result<&mut TaskState, String> {
        self.tasks.get_mut(id.index()).ok_or_else(|| format!("no task {}", id.0))
    }

    /// Whatever was of the stage before, or of an earlier time in this one, does
    /// not count any more.
    fn enter(
        &mut self,
        task: TaskId,
        stage: StageId,
        kind: &StageKind,
        at: Time,
    ) -> Result<(), String> {
        let state = self.task_mut(task)?;
        (state.stage, state.entered, state.begun) = (stage, at, None);
        (state.shift, state.stage_done, state.verified) = (None, false, None);
        (state.found_again, state.seen_primary) = (None, None);
        state.unfit = None;
        if let StageKind::Govern { knob, budget } = *kind {
            state.governs = Some((knob, budget));
        }
        (state.failures, state.last_failure) = (0, None);
        state.approved_by.clear();
        // Whoever comes to it again asks again.
        state.approved.retain(|own| *own != stage);
        Ok(())
    }

    fn take_moved(
        &mut self,
        plan: &Plan,
        task: TaskId,
        trigger: Trigger,
        at: Time,
    ) -> Result<(), String> {
        let inherited = self.effect_before(plan, task);
        let state = self.task_mut(task)?;
        state.inherited = inherited;
        let before = state.phase;
        let next = before
            .after(trigger)
            .ok_or_else(|| format!("{trigger:?} does not apply to a task that is {before:?}"))?;
        state.phase = next;
        if before == Phase::Waiting && next == Phase::Running && state.started.is_none() {
            state.started = Some(at);
        }
        if trigger == Trigger::StagesFailed {
            // Whatever was done about it since: that is what is to be tried again.
            state.stage = state.stumbled.take().unwrap_or(state.stage);
        }
        // What a running task is put back for was said just before.
        let is_anew = next == Phase::Reverting && before != Phase::Running;
        if matches!(next, Phase::Running | Phase::Settling) || is_anew {
            state.failure = None;
        }
        (state.tries_in_vain, state.begun_again) = (0, 0);
        if trigger == Trigger::Retry || next == Phase::Reverting {
            self.forget_exact_overrides(plan, task);
        }
        let state = self.task_mut(task)?;
        if next == Phase::Reverting {
            (state.shift, state.found_again) = (None, None);
            (state.failures, state.last_failure) = (0, None);
            if let Some(Undo { how: UndoBy::Stages { first }, .. }) = plan.task(task).undo
                && state.needs_undo
            {
                (state.stage, state.is_undoing, state.undo_seen) = (first, true, false);
            }
        }
        if next == Phase::Reverted {
            // All that it did is undone: whoever retries it begins anew.
            (state.stage, state.governs) = (StageId(0), None);
            state.stumbled = None;
            state.approved.clear();
            (state.needs_undo, state.is_undoing) = (false, false);
            state.met.clear();
        }
        state.hold = None;
        if !next.is_active() {
            state.ended = Some(at);
            // What comes now is tried as often as anything; why it ended stays.
            state.failures = 0;
        }
        let (stage, is_undoing) = (state.stage, state.is_undoing);
        self.census.move_one(before, next);
        match next {
            // A crash may come before the record that says which stage it enters.
            Phase::Running => self.enter(task, stage, kind_of(plan, task, stage)?, at),
            Phase::Reverting if is_undoing => {
                self.enter(task, stage, kind_of(plan, task, stage)?, at)
            }
            _ => Ok(()),
        }
    }

    /// What people gave up is what was missing then, and nothing that is missing later.
    fn forget_exact_overrides(&mut self, plan: &Plan, task: TaskId) {
        let exact = |id: &ConditionId| plan.condition(*id).is_exact;
        self.tasks[task.index()].overridden.retain(|own| !exact(own));
        let own: Vec<ConditionId> = plan.task(task).conditions().filter(exact).collect();
        self.overridden.retain(|id| !own.contains(id));
        self.exact_overridden_by
            .retain(|(id, of), _| !own.contains(id) || of.is_some_and(|of| of != task));
    }

    fn take_found(
        &mut self,
        plan: &Plan,
        task: TaskId,
        knob: KnobId,
        value: &Value,
        at: Time,
    ) -> Result<(), String> {
        let phase = self.task_mut(task)?.phase;
        if self.opening(plan, task).is_some_and(|opening| opening.primary == knob) {
            // It is not this task that changes it.
            self.task_mut(task)?.seen_primary = Some(value.clone());
            return Ok(());
        }
        let goal = match (phase, &self.stage(plan, task).kind) {
            (Phase::Running, StageKind::Shift { knob: own, to }) if *own == knob => {
                Some(to.value().clone())
            }
            // The way back.
            (Phase::Reverting, _) if !self.task(task).is_undoing => {
                self.task(task).origin(knob).cloned()
            }
            _ => None,
        };
        let needs_number = phase == Phase::Running
            && matches!(&self.stage(plan, task).kind,
                StageKind::Shift { knob: own, to } if *own == knob && to.value().number().is_some());
        let undone = plan.task(task).undone_knob();
        let verified = match &self.stage(plan, task).kind {
            StageKind::Verify { knob: own, to } if *own == knob => Some(to.is_met_by(value)),
            _ => None,
        };
        let (own, stage) = (plan.task(task), self.task(task).stage);
        let is_guarded = own.is_guarded(stage);
        let is_of_fence = phase == Phase::Running && own.fenced_primary(stage).is_some();
        let task_state = self.task(task);
        let is_doubted = task_state.doubts(knob);
        let is_there = goal.as_ref().is_some_and(|goal| goal.is_met_by(value));
        // What it found at its goal, and never set, was read badly or moved since.
        let is_found_anew = goal.is_some()
            && !is_there
            && phase == Phase::Running
            && self.knobs[knob.index()].as_ref().is_some_and(|left| left.is_found_by(task));
        let is_set_next = self.sets_openly(plan, task, knob)
            && task_state.begun.is_none()
            && !task_state.doubts(knob);
        let is_found_again = match own.stages[stage.index()].kind {
            // Whether what failed has worked all the same.
            StageKind::Set { knob: own, .. } if is_guarded => own == knob,
            StageKind::PutBack { knob: own } if is_guarded => own == knob,
            _ => false,
        };
        // Whether a fence may be opened.
        let is_way_back = phase == Phase::Reverting && !self.task(task).is_undoing;
        let decides_fence = own.promoted_knob() == Some(knob)
            && match &own.stages[stage.index()].kind {
                _ if is_way_back => true,
                StageKind::PutBack { knob: fence } => own.is_fence(*fence),
                StageKind::Set { knob: fence, to, .. } => {
                    own.is_opened_by(*fence, to.value())
                        || (phase == Phase::Running && own.is_fence(*fence))
                }
                _ => false,
            };
        let guarded_goal = match &own.stages[stage.index()].kind {
            StageKind::Set { to, .. } if is_guarded => Some(to.value().clone()),
            StageKind::PutBack { .. } if is_guarded => self.task(task).origin(knob).cloned(),
            _ => None,
        };
        let state = self.task_mut(task)?;
        state.verified = verified.or(state.verified);
        if decides_fence {
            (state.found_again, state.seen_primary) = (Some(value.clone()), Some(value.clone()));
        }
        if is_found_again && state.failures > 0 {
            state.found_again = Some(value.clone());
            if guarded_goal.is_some_and(|goal| goal.is_met_by(value)) {
                (state.stage_done, state.failures, state.last_failure) = (true, 0, None);
                state.effect_at = Some(at);
                state.doubted.retain(|(own, _)| *own != knob);
                self.knobs[knob.index()] = Some(Left::new(value.clone(), task, at));
            }
        }
        let state = self.task_mut(task)?;
        let origin = plan.task(task).origin_of(knob, value);
        let was_goal = |own: &Value| goal.as_ref().is_some_and(|goal| goal.is_met_by(own));
        let is_wrong = is_found_anew && state.origin(knob).is_some_and(was_goal);
        // Of numbers the first counts: those after it are what somebody moved it to.
        let is_set_next = (is_set_next && value.number().is_none()) || is_wrong;
        let is_another_primary = is_of_fence && undone == Some(knob) && {
            let known = [own.fenced_primary(stage), own.undone_goal()];
            !known.into_iter().flatten().any(|known| known.is_met_by(value))
        };
        match &origin {
            // What opens it is not known: it would be put back closed.
            None => state.unfit = Some(value.clone()),
            // A bad read is no place to go back to, and the next may be better.
            Some(_) if needs_number && value.number().is_none() => {
                state.unfit = Some(value.clone());
            }
            // Whoever is primary beside those two is none to go back to.
            Some(_) if is_another_primary => {}
            Some(origin) if state.origin(knob).is_none() => {
                state.origins.push((knob, origin.clone()));
            }
            Some(origin) if is_set_next => {
                let own = state.origins.iter_mut().find(|(own, _)| *own == knob);
                own.into_iter().for_each(|(_, known)| *known = origin.clone());
            }
            Some(_) => {}
        }
        if state.is_undoing && undone == Some(knob) {
            state.undo_seen = true;
            if state.origin(knob).is_some_and(|origin| origin.is_met_by(value)) {
                // It never came to it.
                (state.is_undoing, state.needs_undo) = (false, false);
            }
        }
        if is_there {
            // Whoever brought it there, it is what was wanted.
            state.doubted.retain(|(own, _)| *own != knob);
        }
        // From here on it counts as left where it was found, or it would be put
        // back behind the task's back.
        match self.knobs.get_mut(knob.index()).ok_or("no such knob")? {
            left if is_found_anew => *left = None,
            Some(left) => (left.value, left.since) = (value.clone(), at),
            // Who goes back does so from there, and a text is no place to make steps from.
            left if is_there || (phase == Phase::Reverting && value.number().is_none()) => {
                let is_found = phase == Phase::Running && !is_doubted;
                *left = Some(Left { is_found, ..Left::new(value.clone(), task, at) });
            }
            None => {}
        }
        let state = self.task_mut(task)?;
        state.shift.take_if(|_| is_found_anew);
        // What was promoted is not put back in steps.
        let goal = goal.filter(|_| !decides_fence);
        let ends = goal.and_then(|goal| Some((value.number()?, goal.number()?)));
        if let Some((from, to)) = ends {
            state.shift = Some(Shifted {
                knob,
                from,
                to,
                at: 0.0,
                at_since: at,
                next: 0.0,
                brought: 0.0,
                step: 0.0,
                steps: 0,
            });
        }
        Ok(())
    }

    /// Takes whether a fence is closed that a task is about to do something behind.
    fn take_verified(
        &mut self,
        plan: &Plan,
        task: TaskId,
        knob: KnobId,
        value: &Value,
        at: Time,
    ) -> Result<(), String> {
        let (own, state) = (plan.task(task), self.task_mut(task)?);
        match own.is_guarded(state.stage) && own.is_fence(knob) {
            _ if state.verified == Some(true) => state.verified_at = Some(at),
            true if own.is_closed_by(knob, value) => state.verified_at = Some(at),
            true => state.is_fence_disturbed = true,
            false => {}
        }
        Ok(())
    }

    fn take_issued(
        &mut self,
        plan: &Plan,
        effect: EffectId,
        task: TaskId,
        what: &Effect,
        at: Time,
    ) -> Result<(), String> {
        if effect != self.next_effect {
            return Err(format!("expected effect {}", self.next_effect.0));
        }
        let state = self.task_mut(task)?;
        if let Some(other) = state.in_flight {
            return Err(format!("effect {} has not ended", other.0));
        }
        state.in_flight = Some(effect);
        state.found_again = None;
        state.begun.get_or_insert(at);
        // Whether it worked or not: it may have.
        let undo = plan.tasks.get(task.index()).and_then(|own| own.undo.as_ref());
        let is_undone = undo.is_some_and(|undo| undo.after == state.stage);
        state.needs_undo |=
            is_undone && state.phase == Phase::Running && !matches!(what, Effect::Say(_));
        match (what, &mut state.shift) {
            (Effect::Write { knob, value: Value::Number(value) }, Some(shift))
                if shift.knob == *knob =>
            {
                let next = shift.share_of(*value);
                // Nobody goes on after a step that was not borne.
                if next > shift.at {
                    state.borne = state.borne.max(shift.step);
                }
                shift.next = next;
            }
            (Effect::Act(_), _) => {
                state.has_acted = true;
                if state.occasion().is_none() {
                    state.occasions.push((state.stage, effect));
                }
            }
            _ => {}
        }
        if let Effect::Write { knob, .. } = what {
            *self.writes.get_mut(knob.index()).ok_or("no such knob")? += 1;
        }
        self.in_flight.insert(effect, InFlight { task, what: what.clone(), since: at });
        self.next_effect = EffectId(effect.0 + 1);
        Ok(())
    }

    fn take_ended(
        &mut self,
        plan: &Plan,
        effect: EffectId,
        result: &Ended,
        at: Time,
    ) -> Result<(), String> {
        let ended = self.in_flight.remove(&effect).ok_or("an effect ended that was not begun")?;
        if let Effect::Write { knob, .. } = ended.what {
            self.writes[knob.index()] -= 1;
        }
        let stage = self.stage(plan, ended.task);
        let is_of_stage = match (&stage.kind, &ended.what) {
            // A repair of drift may write the same knob, and another value.
            (StageKind::PutBack { knob: own }, Effect::Write { knob, value }) => {
                own == knob && self.task(ended.task).origin(*knob) == Some(value)
            }
            _ => stage.wants(&ended.what),
        };
        let opens = match &ended.what {
            Effect::Write { knob, value } => {
                self.closed_fences.contains_key(&(ended.task, *knob))
                    && self.is_open(plan, ended.task, *knob, value)
            }
            _ => false,
        };
        let is_guarded =
            is_of_stage && plan.task(ended.task).is_guarded(self.task(ended.task).stage);
        let state = self.task_mut(ended.task)?;
        state.in_flight = None;
        if !matches!(result, Ended::Done { .. }) {
            state.tries_in_vain += u32::from(is_guarded);
            // Another server may be the primary by now.
            state.seen_primary = None;
        }
        match result {
            Ended::Done { .. } => {
                state.failures = 0;
                if state.phase.is_active() {
                    state.last_failure = None;
                }
                let is_in_stage = state.phase == Phase::Running || state.is_undoing;
                state.stage_done |= is_of_stage && is_in_stage;
                let governs = state.governs.map(|(knob, _)| knob);
                let is_change = match &ended.what {
                    // A rate that follows its budget is no step to be judged.
                    Effect::Write { knob, .. } => governs != Some(*knob),
                    Effect::Act(_) => true,
                    Effect::Say(_) => false,
                };
                if is_change {
                    state.effect_at = Some(at);
                }
                if let Effect::Write { knob, value } = ended.what {
                    let written = value.clone();
                    state.doubted.retain(|(own, _)| *own != knob);
                    if let Some(shift) = state.shift.as_mut().filter(|shift| shift.knob == knob) {
                        shift.arrive(at);
                        state.steps += 1;
                    }
                    let left = &mut self.knobs[knob.index()];
                    let now = Left::new(value, ended.task, at);
                    *left = Some(match left.take() {
                        Some(Left { drifts, drifted, drifted_to, .. }) => {
                            Left { drifts, drifted, drifted_to, ..now }
                        }
                        None => now,
                    });
                    self.note_fence(plan, ended.task, knob, &written, at);
                }
            }
            Ended::Failed { why } => {
                state.failures += 1;
                state.failed_at = at;
                // Why a task failed matters more than what came after.
                if state.phase.is_active() || state.last_failure.is_none() {
                    state.last_failure = Some(why.clone());
                }
                state.doubt(&ended.what);
            }
            Ended::Refused { why } => {
                // To open a fence loses nothing, and whoever cannot may be mended.
                state.failures = if opens { state.failures + 1 } else { u32::MAX };
                state.failed_at = at;
                state.last_failure = Some(why.clone());
                // A try from before a crash may have been done.
                state.doubt(&ended.what);
            }
        }
        Ok(())
    }

    /// Two people set an exact condition aside, for a task or for all: each task loses
    /// writes of its own.
    fn override_exactly(
        &mut self,
        condition: ConditionId,
        task: Option<TaskId>,
        by: &Actor,
    ) -> Result<(), String> {
        self.exact_overridden_by.entry((condition, task)).or_default().count(by);
        let of_all = self.exact_overridden_by.get(&(condition, None)).cloned().unwrap_or_default();
        if of_all.len() >= 2 {
            add(&mut self.overridden, condition);
            self.tasks.iter_mut().for_each(|task| task.was_helped = true);
        }
        let of_one = self.exact_overridden_by.iter().filter(|((own, _), _)| *own == condition);
        let both = of_one.filter(|(_, people)| people.len_with(&of_all) >= 2);
        let tasks: Vec<TaskId> = both.filter_map(|((_, task), _)| *task).collect();
        for task in tasks {
            let state = self.task_mut(task)?;
            add(&mut state.overridden, condition);
            state.was_helped = true;
        }
        Ok(())
    }

    fn take_command(&mut self, plan: &Plan, by: &Actor, command: &Command) -> Result<(), String> {
        match command {
            Command::Override { condition, task } if plan.condition(*condition).is_exact => {
                self.override_exactly(*condition, *task, by)?;
            }
            Command::Pause { task: None } => self.paused = true,
            Command::Resume { task: None } => self.paused = false,
            Command::Pause { task: Some(task) } => self.task_mut(*task)?.paused = true,
            Command::Resume { task: Some(task) } => {
                self.task_mut(*task)?.paused = false;
                // Whoever says this has seen to it that nobody else turns them.
                let own = self.knobs.iter_mut().flatten().filter(|left| left.task == *task);
                own.for_each(|left| left.drifts = 0);
            }
            Command::Override { condition, task: None } => add(&mut self.overridden, *condition),
            Command::Override { condition, task: Some(task) } => {
                let state = self.task_mut(*task)?;
                add(&mut state.overridden, *condition);
                state.was_helped = true;
            }
            Command::Accelerate { task: Some(task) } => self.task_mut(*task)?.hurry(),
            Command::Accelerate { task: None } => {
                self.tasks.iter_mut().for_each(TaskState::hurry);
            }
            Command::Approve { task } => self.task_mut(*task)?.approved_by.count(by),
            Command::SetMode { mode } => self.mode = *mode,
            Command::WaiveLimits => self.waived_by.count(by),
            Command::Abort { how } => {
                self.abort = Some(*how);
                self.astray.clear();
                if *how == Abort::Revert {
                    // It is the later word. The way back can be paused again.
                    self.paused = false;
                    self.tasks.iter_mut().for_each(|task| task.paused = false);
                    self.knobs.iter_mut().flatten().for_each(|left| left.drifts = 0);
                }
            }
            Command::Retry { task } => self.task_mut(*task)?.was_helped = true,
            // What they do to the task is a record of its own.
            Command::Skip { .. } | Command::Stop { .. } => {}
        }
        Ok(())
    }
}

fn kind_of(plan: &Plan, task: TaskId, stage: StageId) -> Result<&StageKind, String> {
    let own: &Task = plan.tasks.get(task.index()).ok_or("no such task")?;
    Ok(&own.stages.get(stage.index()).ok_or("no such stage")?.kind)
}

/// Adds what is not there yet: who says a thing twice says it once.
fn add(conditions: &mut Vec<ConditionId>, condition: ConditionId) {
    if !conditions.contains(&condition) {
        conditions.push(condition);
    }
}

impl Stage {
    /// Whether an effect is what this stage is there for.
    fn wants(&self, what: &Effect) -> bool {
        match (&self.kind, what) {
            (StageKind::Set { knob: own, to, .. }, Effect::Write { knob, value }) => {
                own == knob && to.value() == value
            }
            (StageKind::Govern { knob: own, .. }, Effect::Write { knob, .. }) => own == knob,
            (StageKind::Act(own), Effect::Act(act)) => own == act,
            (StageKind::Say(own), Effect::Say(saying)) => own == saying,
            _ => false,
        }
    }
}
