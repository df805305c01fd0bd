//! The durable state of one task.

use super::actor::People;
use super::phase::Phase;
use super::record::{Effect, EffectId, Hold};
use crate::plan::{BudgetId, ConditionId, KnobId, StageId};
use crate::time::Time;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct TaskState {
    pub phase: Phase,
    pub stage: StageId,
    /// Where a retry begins, by the stage that last ended otherwise than well.
    pub stumbled: Option<StageId>,
    /// Barriers that it has left since it began anew.
    pub met: Vec<StageId>,
    pub started: Option<Time>,
    pub ended: Option<Time>,
    pub entered: Time,
    /// When the stage it is in first had an effect begun: what it waits for before
    /// that, such as a claim, does not make it late.
    pub begun: Option<Time>,
    /// Where its knobs stood, in the order in which it first touched them.
    pub origins: Vec<(KnobId, Value)>,
    /// What a write may have turned a knob to although it was said to have
    /// failed.
    pub doubted: Vec<(KnobId, Value)>,
    /// How far the shift it is in has come.
    pub shift: Option<Shifted>,
    /// Whether the effect of the stage it is in was done.
    pub stage_done: bool,
    /// Whether the knob that the stage it is in verifies has its value.
    pub verified: Option<bool>,
    /// When that was seen; nothing since that the fence was ever open.
    pub verified_at: Option<Time>,
    /// Whether its fence was found open since it was closed: what was seen behind it
    /// says nothing any more.
    pub is_fence_disturbed: bool,
    /// When it first began to close a fence: a series that has ended since a little before
    /// that is missed by exact conditions, whatever was lifted and retried meanwhile.
    pub fenced_since: Option<Time>,
    /// What the knob behind its fence was found at since the stage was entered, or
    /// since the last try.
    pub found_again: Option<Value>,
    /// Who was primary when it was read last for a fence that the stage it is in opens.
    pub seen_primary: Option<Value>,
    /// How often what its fence is there for was tried in vain since it began.
    pub tries_in_vain: u32,
    /// How often it began again with its fence since it began.
    pub begun_again: u32,
    /// What the stage it is in found, and cannot begin from: a fence that was
    /// closed before, where nothing says what opens it, or no number to make
    /// steps from.
    pub unfit: Option<Value>,
    /// A knob that it keeps at its share of a budget.
    pub governs: Option<(KnobId, BudgetId)>,
    pub in_flight: Option<EffectId>,
    /// When the last effect was confirmed that changed something. Conditions
    /// judge it by samples that were taken later.
    pub effect_at: Option<Time>,
    /// When that was of the tasks before it, when it last began or ended: one that
    /// changes nothing passes it on.
    pub inherited: Option<Time>,
    /// The first try of what stages do once that were not done yet: what tells a
    /// repetition from a second act.
    pub occasions: Vec<(StageId, EffectId)>,
    /// How often the effect that is due has failed, and when it did last.
    pub failures: u32,
    pub failed_at: Time,
    pub last_failure: Option<String>,
    /// Why a stage did not end well, whatever was done about it since.
    pub failure: Option<String>,
    /// Who approved the stage it is in.
    pub approved_by: People,
    /// The stages that asked people and are through.
    pub approved: Vec<StageId>,
    pub overridden: Vec<ConditionId>,
    pub paused: bool,
    /// How often somebody asked for more speed.
    pub haste: u32,
    pub hold: Option<(Time, Hold)>,
    pub is_stuck: bool,
    /// Whether somebody retried it or overrode something for it: how long it
    /// took is not how long it takes.
    pub was_helped: bool,
    /// Whether it did something that writing knobs back does not undo.
    pub has_acted: bool,
    /// Whether it had the effect that the undo of its template is about.
    pub needs_undo: bool,
    /// Whether it is in the stages that undo it, and whether it was looked
    /// whether there is something to undo: what failed may have worked or not.
    pub is_undoing: bool,
    pub undo_seen: bool,
    /// Steps of all its shifts, and times that a breach held it.
    pub steps: u32,
    pub breaches: u32,
    /// The largest step that its health bore, as a share of the way.
    pub borne: f64,
}

/// A shift on its way: from 0, where the knob stood, to 1, where it is to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shifted {
    pub knob: KnobId,
    pub from: f64,
    pub to: f64,
    /// Where the knob is, since when, and what is wanted next.
    pub at: f64,
    pub at_since: Time,
    pub next: f64,
    /// Where this task brought it: something else may have moved it on since.
    pub brought: f64,
    /// The step that led here.
    pub step: f64,
    pub steps: u32,
}

impl TaskState {
    pub(super) fn new() -> Self {
        TaskState {
            phase: Phase::Waiting,
            stage: StageId(0),
            stumbled: None,
            met: Vec::new(),
            started: None,
            ended: None,
            entered: Time(0),
            begun: None,
            origins: Vec::new(),
            doubted: Vec::new(),
            shift: None,
            stage_done: false,
            verified: None,
            verified_at: None,
            is_fence_disturbed: false,
            fenced_since: None,
            found_again: None,
            seen_primary: None,
            tries_in_vain: 0,
            begun_again: 0,
            unfit: None,
            governs: None,
            in_flight: None,
            effect_at: None,
            inherited: None,
            occasions: Vec::new(),
            failures: 0,
            failed_at: Time(0),
            last_failure: None,
            failure: None,
            approved_by: People::default(),
            approved: Vec::new(),
            overridden: Vec::new(),
            paused: false,
            haste: 0,
            hold: None,
            is_stuck: false,
            was_helped: false,
            has_acted: false,
            needs_undo: false,
            is_undoing: false,
            undo_seen: false,
            steps: 0,
            breaches: 0,
            borne: 0.0,
        }
    }

    /// Why it failed, if it did, or what it has trouble with.
    pub fn trouble(&self) -> Option<&str> {
        self.failure.as_deref().or(self.last_failure.as_deref())
    }

    /// Where a knob stood before this task touched it.
    pub fn origin(&self, knob: KnobId) -> Option<&Value> {
        self.origins.iter().find(|(own, _)| *own == knob).map(|(_, value)| value)
    }

    /// The first try of what the stage it is in does once.
    pub fn occasion(&self) -> Option<EffectId> {
        self.occasions.iter().find(|(own, _)| *own == self.stage).map(|(_, effect)| *effect)
    }

    /// Whether it is on its way back: its traffic moves the other way.
    pub fn goes_back(&self) -> bool {
        matches!(self.phase, Phase::Reverting | Phase::Reverted | Phase::Unreverted)
    }

    /// Somebody asked for more speed.
    pub(super) fn hurry(&mut self) {
        self.haste = self.haste.saturating_add(1);
    }

    /// Something was not confirmed: nobody knows where it left a knob.
    pub(super) fn doubt(&mut self, what: &Effect) {
        let Effect::Write { knob, value } = what else { return };
        let doubted = (*knob, value.clone());
        if !self.doubted.contains(&doubted) {
            self.doubted.push(doubted);
        }
    }

    /// Whether nobody knows where a write left a knob.
    pub fn doubts(&self, knob: KnobId) -> bool {
        self.doubted.iter().any(|(own, _)| *own == knob)
    }
}

impl Shifted {
    /// Where the knob stands after a share of the way.
    pub fn value_at(&self, share: f64) -> f64 {
        if share >= 1.0 { self.to } else { self.from + (self.to - self.from) * share }
    }

    /// How much of the way a value is.
    pub(super) fn share_of(&self, value: f64) -> f64 {
        let way = self.to - self.from;
        // The sum makes a zero of a negative one, which people would see.
        if way == 0.0 { 1.0 } else { ((value - self.from) / way).clamp(0.0, 1.0) + 0.0 }
    }

    /// Whether this task brought the knob to its goal. That something else did is not
    /// enough: it may take that back.
    pub fn is_there(&self) -> bool {
        self.at.min(self.brought) >= 1.0 - 1e-9
    }

    /// Whether nothing was to be written: the knob was found where it is to go.
    pub(super) fn is_only_read(&self) -> bool {
        self.steps == 0 && self.from == self.to
    }

    /// Where the knob is.
    pub fn place(&self) -> Value {
        Value::Number(self.value_at(self.at))
    }

    /// Whether something else moved the knob on, and no step has followed it.
    pub(super) fn is_moved_on(&self) -> bool {
        self.at > self.brought + 1e-9
    }

    /// Something else moved the knob further on its way: steps begin there. It says nothing
    /// about how large the next may be.
    pub(super) fn move_on(&mut self, value: f64, at: Time) {
        self.next = self.share_of(value);
        (self.at, self.at_since, self.step) = (self.next, at, 0.0);
        // The first step of a task has rights of its own.
        self.steps = self.steps.max(2);
    }

    /// Something else moved the knob back: its way begins there.
    pub(super) fn begin_at(&mut self, value: f64, at: Time) {
        (self.from, self.at, self.next, self.brought) = (value, 0.0, 0.0, 0.0);
        (self.at_since, self.step) = (at, 0.0);
        self.steps = self.steps.max(2);
    }

    pub(super) fn arrive(&mut self, at: Time) {
        // A repair of what something else has moved on is no step.
        self.step = match self.is_moved_on() {
            true => (self.next - self.at).max(0.0),
            false => self.next - self.at,
        };
        (self.at, self.at_since, self.brought) = (self.next, at, self.next);
        self.steps += 1;
    }
}
