//! What a run writes down: everything that decides how it goes on, before it
//! takes effect.

use serde::{Deserialize, Serialize};

use super::actor::Actor;
use super::phase::Trigger;
use super::verb::Command;
use crate::fleet::{Fleet, LimitReached};
use crate::plan::{Act, ConditionId, KnobId, Outcome, Saying, StageId, TaskId};
use crate::time::Time;
use crate::value::Value;

/// One line of the log of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// From 0, without a gap.
    pub seq: u64,
    pub at: Time,
    pub fact: Fact,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The run begins.
    Opened {
        by: Actor,
        reason: String,
        mode: Mode,
    },
    /// A task enters another phase.
    Moved {
        task: TaskId,
        trigger: Trigger,
    },
    /// A task enters a stage.
    Entered {
        task: TaskId,
        stage: StageId,
    },
    /// A stage ends.
    Left {
        task: TaskId,
        stage: StageId,
        outcome: Outcome,
    },
    /// Why a stage did not end well, or why a task cannot go back.
    Failed {
        task: TaskId,
        why: String,
    },
    /// Where a knob stood before a task first touched it, or when it was looked at
    /// again.
    Found {
        task: TaskId,
        knob: KnobId,
        value: Value,
    },
    /// Something is about to be done. Whoever reads this does it, once or again.
    Issued {
        effect: EffectId,
        task: TaskId,
        what: Effect,
    },
    /// It was done, or not.
    Ended {
        effect: EffectId,
        result: Ended,
    },
    /// A knob is not where it was left; it is put back.
    Drifted {
        knob: KnobId,
        expected: Value,
        found: Value,
    },
    /// Something else moved a knob further out of the datacenter than the last step left it,
    /// or back from there, or a step did of which nobody heard: the knob stays there, and
    /// the next step is judged from there.
    MovedOut {
        task: TaskId,
        knob: KnobId,
        expected: Value,
        found: Value,
    },
    /// The last look before the run is closed did not find a knob where it was
    /// left, and nobody puts it back. `found` is nothing if it could not be read.
    Astray {
        knob: KnobId,
        expected: Value,
        found: Option<Value>,
        why: String,
    },
    /// A task cannot go on, or can again.
    Held {
        task: TaskId,
        why: Hold,
    },
    Released {
        task: TaskId,
    },
    /// A condition came closer to its bound than ever before.
    Close {
        condition: ConditionId,
        value: f64,
    },
    /// What conditions measured, now and then: nothing follows from it but the
    /// curves of a report.
    Measured {
        values: Vec<Seen>,
    },
    /// A condition began or ceased to hold, or to have a value. Also for reports
    /// alone.
    Changed {
        condition: ConditionId,
        value: Option<f64>,
    },
    /// A task takes longer than it should.
    Stuck {
        task: TaskId,
    },
    /// Somebody said something.
    Commanded {
        by: Actor,
        reason: String,
        command: Command,
        observed: Vec<Seen>,
    },
    /// The position of the fleet changed, as the limits count it.
    Fleet {
        fleet: Fleet,
    },
    /// The run is over.
    Closed {
        outcome: RunOutcome,
    },
}

impl Fact {
    /// Who did it, of what somebody did.
    pub fn by(&self) -> Option<&Actor> {
        match self {
            Fact::Opened { by, .. } | Fact::Commanded { by, .. } => Some(by),
            _ => None,
        }
    }
}

/// The number of an effect in its run. It only grows, so it fences off what
/// came before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EffectId(pub u64);

/// What is done to the world. Each may be done again with the same number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Write, then read back.
    Write {
        knob: KnobId,
        value: Value,
    },
    Act(Act),
    Say(Saying),
}

/// How an effect ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Done; for a write, what was read back.
    Done { found: Option<Value> },
    /// It may work later.
    Failed { why: String },
    /// It will not work.
    Refused { why: String },
}

/// Why a task does not go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// It waits for a condition: to begin, to end, or in a stage.
    Awaits { condition: ConditionId, value: Option<f64> },
    /// A condition that must hold while it goes on is breached.
    Breach { condition: ConditionId, value: Option<f64> },
    /// A condition has no value, and that blocks.
    NoData { condition: ConditionId },
    /// The run or the task is paused.
    Paused,
    /// Datacenters that must serve would not, or too much would be drained.
    Limit(LimitReached),
    /// Others use the whole budget.
    Budget,
    /// Somebody else keeps turning its knob.
    Contested { knob: KnobId },
    /// Its knob cannot be read.
    Unreadable { knob: KnobId },
    /// Another task, of this run or of another, sets a knob that it claims.
    InUse { knob: KnobId, by: String },
    /// What it does has not ended for long. Nothing else is begun until it has:
    /// it may still be done.
    Unanswered { effect: EffectId },
}

impl Hold {
    /// What it is in a word, as its record says it.
    pub fn kind(&self) -> &'static str {
        match self {
            Hold::Awaits { .. } => "awaits",
            Hold::Breach { .. } => "breach",
            Hold::NoData { .. } => "no_data",
            Hold::Paused => "paused",
            Hold::Limit { .. } => "limit",
            Hold::Budget => "budget",
            Hold::Contested { .. } => "contested",
            Hold::Unreadable { .. } => "unreadable",
            Hold::InUse { .. } => "in_use",
            Hold::Unanswered { .. } => "unanswered",
        }
    }

    /// The condition that decides, if one does.
    pub fn condition(&self) -> Option<ConditionId> {
        match self {
            Hold::Awaits { condition, .. }
            | Hold::Breach { condition, .. }
            | Hold::NoData { condition } => Some(*condition),
            _ => None,
        }
    }
}

/// A condition and the value it had.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub condition: ConditionId,
    pub value: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All dependencies hold.
    Drill,
    /// Weak dependencies are not waited for.
    Disaster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Every task is done.
    Completed,
    /// Every task is done or was skipped.
    CompletedWithSkips,
    /// Aborted; everything stays as it was then.
    Held,
    /// Aborted; everything is back where it was.
    Reverted,
    /// Aborted; not everything could be put back, or is still there.
    PartlyReverted,
}
