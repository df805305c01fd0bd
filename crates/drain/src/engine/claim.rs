//! Which tasks must not be under way at the same time, of this run or of
//! others. A fence that one task closes must not be lifted by another before
//! the promotion behind it is through, and a primary is not promoted by two.
//!
//! A service that has such a task claims every knob that its tasks set. Before
//! one of them sets the first, goes back or corrects drift, the executor asks the
//! store for its claim ([`Run::wanted_claims`]), which it gives to one task of one
//! run. It is given back when the task is over ([`Run::claims`]). What a task waits
//! for before that, such as a replica that is far behind, holds up no other.

use std::collections::{BTreeMap, BTreeSet};

use super::{Hold, Phase, Run, State};
use crate::plan::{KnobId, Plan, Stage, StageKind, Task, TaskId};
use crate::time::{Millis, Time};

/// How long to wait before asking again for a claim that another task has.
const ASK_AGAIN: Millis = Millis(1000);
/// How long a task that is not under way keeps a claim: it asked for it to
/// correct drift, and the next look at the knob decides.
const IDLE_MAX: Millis = Millis::from_secs(30);

/// Who has a claim that a task asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    pub knob: KnobId,
    /// The run and the task, for people: `run 3 (orders.promote)`.
    pub by: String,
}

/// The claims of a run, as far as it knows. After a crash it asks again, and
/// gets what it had.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    /// The knobs that each task claims, and the tasks that claim any.
    of: Vec<Vec<KnobId>>,
    claimants: Vec<TaskId>,
    /// Tasks that have theirs.
    granted: BTreeMap<TaskId, Granted>,
    /// Tasks that ask for theirs, with when and why they did not get it.
    wanted: BTreeMap<TaskId, Option<(Time, InUse)>>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    since: Time,
    /// Whether the task has been under way with it: then it is given back when
    /// that is over.
    was_used: bool,
}

impl Claims {
    pub(super) fn new(plan: &Plan) -> Claims {
        let promotes = |task: &Task| {
            !task.fences.is_empty()
                || !task.opens.is_empty()
                || task.stages.iter().any(|stage| !stage.is_interruptible)
        };
        let fenced: BTreeSet<&str> = plan
            .tasks
            .iter()
            .filter(|task| promotes(task))
            .map(|task| task.service.as_str())
            .collect();
        let of = plan.tasks.iter().map(|task| match fenced.contains(task.service.as_str()) {
            // While another run promotes, no fence is opened.
            true => {
                let primaries = task.opens.iter().map(|own| own.primary);
                task.stages.iter().filter_map(set_by).chain(primaries).collect::<BTreeSet<_>>()
            }
            false => BTreeSet::new(),
        });
        let of: Vec<Vec<KnobId>> = of.map(|knobs| knobs.into_iter().collect()).collect();
        let claimants = plan.task_ids().filter(|task| !of[task.index()].is_empty()).collect();
        Claims { of, claimants, granted: BTreeMap::new(), wanted: BTreeMap::new() }
    }
}

impl Claims {
    /// A task that does something else does not want it any more.
    pub(super) fn forget_wish(&mut self, task: TaskId) {
        self.wanted.remove(&task);
    }
}

/// Whether the stage that a task is in takes its claim.
fn sets_claimed(plan: &Plan, state: &State, task: TaskId) -> bool {
    let stage = state.stage(plan, task);
    !stage.is_interruptible || set_by(stage).is_some()
}

/// Whether a task is between the first knob that it sets and the last: what it
/// waits for once its fence is open holds up no other.
fn is_under_way(plan: &Plan, state: &State, task: TaskId) -> bool {
    match state.task(task).phase {
        Phase::Running => sets_claimed(plan, state, task) || state.has_closed_fence(task),
        phase => phase == Phase::Reverting,
    }
}

/// Whether a task that does not go on by itself has a fence that is closed, or
/// may be.
fn is_left_closed(state: &State, task: TaskId) -> bool {
    let phase = state.task(task).phase;
    let goes_on = matches!(phase, Phase::Done | Phase::Reverted);
    !goes_on && state.has_closed_fence(task)
}

/// The knob that a stage sets at once. What is moved in steps is no fence.
fn set_by(stage: &Stage) -> Option<KnobId> {
    match stage.kind {
        StageKind::Set { knob, .. } | StageKind::PutBack { knob } => Some(knob),
        _ => None,
    }
}

impl Run {
    /// Claims to ask for now, with their knobs. To be asked after every event,
    /// and every second or so while there are none.
    pub fn wanted_claims(&self, now: Time) -> impl Iterator<Item = (TaskId, &[KnobId])> {
        let is_due = move |refused: &Option<(Time, InUse)>| match refused {
            Some((at, _)) => now < *at || now - *at >= ASK_AGAIN,
            None => true,
        };
        let due = self.claims.wanted.iter().filter(move |(_, refused)| is_due(refused));
        due.map(|(task, _)| (*task, self.claims.of[task.index()].as_slice()))
    }

    /// Tasks that keep their claims: those that have them, and those that are
    /// under way and had them before a crash. Others give theirs back.
    pub fn claims(&self) -> BTreeSet<TaskId> {
        let of = self.claims.claimants.iter().copied();
        of.filter(|task| {
            is_under_way(&self.plan, &self.state, *task)
                || is_left_closed(&self.state, *task)
                || self.claims.granted.contains_key(task)
        })
        .collect()
    }

    /// Whether any task claims something.
    pub fn has_claims(&self) -> bool {
        !self.claims.claimants.is_empty()
    }

    /// Whether a task claims anything.
    pub(super) fn has_claims_of(&self, task: TaskId) -> bool {
        !self.claims.of[task.index()].is_empty()
    }

    /// Whether a task claims a knob.
    pub fn is_claimed(&self, task: TaskId, knob: KnobId) -> bool {
        self.claims.of[task.index()].contains(&knob)
    }

    /// Whether a task has its claim, if it needs one. If not, it is asked for.
    pub(super) fn has_claim(&mut self, task: TaskId) -> bool {
        if self.claims.of[task.index()].is_empty() || self.claims.granted.contains_key(&task) {
            return true;
        }
        self.claims.wanted.entry(task).or_default();
        false
    }

    /// The same for a task that cannot go on without: it says who has it.
    pub(super) fn is_held_for_claim(&mut self, now: Time, task: TaskId) -> bool {
        if self.has_claim(task) {
            return false;
        }
        if let Some(InUse { knob, by }) = self.claim_refused(task) {
            self.hold(now, task, Hold::InUse { knob, by });
        }
        true
    }

    /// Who has the claim that a task asked for in vain.
    pub(super) fn claim_refused(&self, task: TaskId) -> Option<InUse> {
        self.claims.wanted.get(&task)?.as_ref().map(|(_, in_use)| in_use.clone())
    }

    /// Takes the answer to a claim.
    pub(super) fn take_claim(&mut self, now: Time, task: TaskId, answer: Result<(), InUse>) {
        // A task that does something else meanwhile does not need it any more.
        let Some(wanted) = self.claims.wanted.get_mut(&task) else { return };
        match answer {
            Ok(()) => {
                self.claims.wanted.remove(&task);
                self.claims.granted.insert(task, Granted { since: now, was_used: false });
                if matches!(self.state.task(task).hold, Some((_, Hold::InUse { .. }))) {
                    self.release(now, task);
                }
            }
            Err(in_use) => *wanted = Some((now, in_use)),
        }
        self.wake(task);
    }

    /// Whether what a task does now takes its claim: from the first knob that it
    /// sets on, and on its whole way back.
    pub(super) fn needs_claim(&self, task: TaskId) -> bool {
        let phase = self.state.task(task).phase;
        phase == Phase::Reverting
            || (phase == Phase::Running && sets_claimed(&self.plan, &self.state, task))
    }

    /// Gives up claims that tasks do not need any more.
    pub(super) fn drop_claims(&mut self, now: Time) {
        let (plan, state) = (&self.plan, &self.state);
        self.claims.granted.retain(|task, granted| {
            let own = state.task(*task);
            // A fence that was left closed is nobody else's before it is open.
            let is_used = is_under_way(plan, state, *task)
                || own.in_flight.is_some()
                || is_left_closed(state, *task);
            granted.was_used |= is_used;
            // A clock that was set back must not make it longer.
            let is_new = granted.since <= now && now - granted.since < IDLE_MAX;
            is_used || (!granted.was_used && is_new)
        });
    }
}
