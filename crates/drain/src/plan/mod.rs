//! What a run carries out, without any choice left: tasks in a graph, each a
//! small machine of stages, and the knobs, conditions, budgets and limits they
//! name. Plans are made from runbooks that were checked, and kept with the run,
//! so that a run never depends on files that changed since.

mod compile;
mod foresight;
mod graph;
mod load;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::fleet::Fleet;
use crate::time::{Millis, Time};
use crate::value::Value;

pub(crate) use compile::{Given, compile};
pub use foresight::{Basis, Capacity, Foresight, Move, Predicted};
pub use load::{LOAD_MAX, Unserved};
pub use traffic::{Position, ServiceTraffic, TakesOut, TrafficAt, TrafficKnob};

/// Everything that one run does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub datacenter: String,
    pub direction: Direction,
    /// In an order in which every task follows its parents.
    pub tasks: Vec<Task>,
    pub knobs: Vec<Knob>,
    pub conditions: Vec<Condition>,
    /// Conditions that hold for every step of every task: the health of all
    /// datacenters.
    pub health: Vec<ConditionId>,
    pub budgets: Vec<Budget>,
    pub datacenters: Vec<Datacenter>,
    pub limits: Limits,
    /// The traffic of each service that leaves or comes back.
    #[serde(default)]
    pub traffic: Vec<ServiceTraffic>,
    /// The position of the fleet when the plan was made.
    #[serde(default)]
    pub fleet: Fleet,
    #[serde(default)]
    pub keep_drained: KeepDrained,
    /// The run whose drained knobs this one puts back, if it was not begun by a
    /// person.
    #[serde(default)]
    pub puts_back: Option<u64>,
    /// When another run last changed something: the first step is judged by
    /// samples that were taken later.
    #[serde(default)]
    pub changed: Option<Time>,
    /// Every service that the runbooks know, also those of other evacuations.
    #[serde(default)]
    pub services: BTreeSet<String>,
    /// Of a restore: what earlier drains moved and this run does not bring back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehind>,
    /// Of a restore: tasks that have nothing to bring back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleTask>,
}

/// What a drain moved and a restore does not bring back, since its runbooks do not
/// know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftBehind {
    pub what: Away,
    /// The run that moved it.
    pub run: u64,
    /// The operator has given it up: nobody expects it back.
    pub is_given_up: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Away {
    Knob {
        name: String,
        /// Its value before the drain, as JSON.
        original: String,
    },
    /// A service without traffic knobs.
    Service { name: String },
}

/// A task of a restore that has nothing to bring back: no drain recorded a value of
/// its knobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleTask {
    pub task: String,
    pub knobs: Vec<String>,
}

impl LeftBehind {
    /// The knob or the service, as the operator names it.
    pub fn name(&self) -> &str {
        match &self.what {
            Away::Knob { name, .. } | Away::Service { name } => name,
        }
    }

    /// What happened to it, and what does not.
    pub fn describe(&self, datacenter: &str) -> String {
        let Self { run, .. } = self;
        match &self.what {
            Away::Knob { name, original } => format!(
                "{name}: run {run} set it, it was {original} before, and this restore does not \
                 bring it back: the runbooks do not know it"
            ),
            Away::Service { name } => format!(
                "service {name}: run {run} moved it out of {datacenter}, and this restore does not \
                 bring it back: the runbooks do not have it there"
            ),
        }
    }
}

impl IdleTask {
    pub fn describe(&self) -> String {
        let knobs = self.knobs.join(", ");
        format!("nothing to bring back: no drain recorded a value of {knobs}, left as it is")
    }
}

/// In which mode a drain must have been for its knobs to be put back after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepDrained {
    Always,
    #[default]
    Disaster,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Drain,
    Restore,
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index!(
    /// A place in [`Plan::tasks`].
    TaskId
);
index!(
    /// A place in [`Plan::knobs`].
    KnobId
);
index!(
    /// A place in [`Plan::conditions`].
    ConditionId
);
index!(
    /// A place in [`Plan::budgets`].
    BudgetId
);
index!(
    /// A place in [`Plan::datacenters`].
    DatacenterId
);
index!(
    /// A place in [`Task::stages`].
    StageId
);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// As people know it: `web.shift`.
    pub name: String,
    pub service: String,
    pub template: String,
    /// Higher goes first where tasks compete.
    pub priority: i32,
    /// Tasks that must be complete before this one starts.
    pub after: Vec<TaskId>,
    /// The same, but in a disaster they are not waited for.
    pub after_weak: Vec<TaskId>,
    /// What must hold before it starts, while it goes on, and before it counts
    /// as complete.
    pub pre: Vec<ConditionId>,
    pub health: Vec<ConditionId>,
    pub post: Vec<ConditionId>,
    /// The first one is where it begins. Those that undo it come last.
    pub stages: Vec<Stage>,
    /// How a revert undoes what it is not enough to put knobs back for.
    pub undo: Option<Undo>,
    /// Switches that it closes, so that nothing is written behind its back.
    #[serde(default)]
    pub fences: Vec<Fence>,
    /// Fences of other tasks that it opens.
    #[serde(default)]
    pub opens: Vec<Opening>,
    pub pace: Pace,
    /// After that long it is stuck, if its history does not say so before.
    pub timeout: Millis,
    /// What it would use of each budget at full speed.
    pub budgets: Vec<(BudgetId, f64)>,
    /// What earlier runs say of it.
    pub expected: Expected,
}

/// A switch that refuses writes while it has one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fence {
    pub knob: KnobId,
    pub closed: Value,
    /// Its value when writes are accepted, if the runbook or an earlier drain
    /// says so. What a task finds there may be a fence that was left closed.
    pub open: Option<Value>,
}

/// A fence that a task opens and another one closed: it stays closed while more than one
/// server is the primary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    pub fence: KnobId,
    pub closed: Value,
    /// Who is the primary that the fence kept from taking writes.
    pub primary: KnobId,
}

impl Fence {
    /// Whether a value closes it, or that of one of several servers, joined by `+`.
    pub fn is_closed_in_part(&self, value: &Value) -> bool {
        let closed = match &self.closed {
            Value::Text(closed) => closed.clone(),
            number => number.to_string(),
        };
        match value {
            Value::Text(text) if text.split('+').any(|part| part == closed) => true,
            _ => self.closed.is_met_by(value),
        }
    }

    /// Whether a value opens it: none but those that are known to, if any is. A
    /// fence of several servers may be closed in part.
    pub fn is_open_at(&self, value: &Value, known: Option<&Value>) -> bool {
        let known = known.filter(|known| !self.closed.is_met_by(known));
        let mut opens = self.open.iter().chain(known).peekable();
        match opens.peek() {
            Some(_) => opens.any(|own| own.is_met_by(value)),
            None => !self.closed.is_met_by(value),
        }
    }
}

/// What is known about a task before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// How long it took before: the median and the 75th percentile, if it ran
    /// often enough to say.
    pub usual: Option<Millis>,
    pub stuck_after: Option<Millis>,
    /// The step that its health has borne before.
    pub step: Option<f64>,
    /// The share of earlier runs in which bad health held it.
    #[serde(default)]
    pub breached: f64,
}

/// What a revert does once a stage has had its effect: to set knobs back in
/// reverse order is no undo for a promotion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undo {
    /// The stage whose effect it is about.
    pub after: StageId,
    pub how: UndoBy,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoBy {
    /// These stages run, from this one to the last of the task. Then knobs are
    /// put back.
    Stages { first: StageId },
    /// The task does not give what they need: a revert is refused.
    Nothing { missing: Vec<String> },
}

/// One stage of a task, and where each of its outcomes leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub name: String,
    pub kind: StageKind,
    /// A stage that takes longer ends with [`Outcome::Late`].
    pub timeout: Option<Millis>,
    pub done: Next,
    pub failed: Next,
    pub late: Next,
    /// Where a retry begins if this stage ended badly.
    pub retry: StageId,
    /// Whether health, limits, a pause, or an abort that holds may keep it from
    /// going on. What follows a fence must not be kept: nothing is served until
    /// it is through.
    pub is_interruptible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    Stage(StageId),
    Exit(Exit),
}

/// How the stages of a task end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Done,
    Failed,
}

/// How a stage ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    Failed,
    Late,
}

/// The library that templates are made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// Moves a knob in steps, as fast as health allows.
    Shift {
        knob: KnobId,
        to: Goal,
    },
    /// Writes a knob once.
    Set {
        knob: KnobId,
        to: Goal,
        /// If it closes a fence: the primary that this keeps from taking writes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<Value>,
    },
    /// Writes a knob back to where this task found it.
    PutBack {
        knob: KnobId,
    },
    /// Done if a knob still has a value, failed if it has another.
    Verify {
        knob: KnobId,
        to: Value,
    },
    /// Keeps a knob at this task's share of a budget until the task ends.
    Govern {
        knob: KnobId,
        budget: BudgetId,
    },
    /// Has a driver do something once.
    Act(Act),
    /// Goes on when the condition holds.
    Await {
        condition: ConditionId,
    },
    /// Done if the condition holds now, failed if it does not.
    Check {
        condition: ConditionId,
    },
    TimedWait {
        span: Millis,
    },
    /// Goes on when all tasks of the plan that have this barrier are at it, or
    /// past it.
    Barrier {
        name: String,
    },
    /// Goes on when so many people have approved.
    Approve {
        people: u32,
        question: String,
    },
    /// Writes a line where others look for changes, or tells somebody.
    Say(Saying),
}

/// Where a knob is to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    Value(Value),
    /// Where it stood before the drain that is undone.
    Original(Value),
}

impl Goal {
    pub fn value(&self) -> &Value {
        match self {
            Goal::Value(value) | Goal::Original(value) => value,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Act {
    pub driver: String,
    pub action: String,
    pub arguments: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saying {
    /// `None`: the change log of the run itself.
    pub channel: Option<String>,
    pub text: String,
}

/// Something that a driver can turn: `edge:web/dc1` is what the driver `edge`
/// calls `web/dc1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Knob {
    pub driver: String,
    pub name: String,
}

/// How fast a knob may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// The first step, small on purpose, as a share of the whole way.
    pub first: f64,
    /// The largest step.
    pub step_max: f64,
    /// How long to look at the effect of a step: never less than the first,
    /// never more than the second without a breach.
    pub wait: Millis,
    pub wait_max: Millis,
    /// Whether steps grow and shrink by what health says. If not, every step is
    /// `first`.
    pub adaptive: bool,
    pub on_breach: OnBreach,
    /// How long a breach may last before `on_breach` is done.
    pub patience: Millis,
}

impl Pace {
    /// All of the way in one step. For tasks that move nothing in steps.
    pub const AT_ONCE: Pace = Pace {
        first: 1.0,
        step_max: 1.0,
        wait: Millis::from_secs(1),
        wait_max: Millis::from_secs(1),
        adaptive: false,
        on_breach: OnBreach::Hold,
        patience: Millis::from_secs(1),
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBreach {
    /// Stays where it is until health is back.
    Hold,
    /// Goes back by what the last step was, again and again, until health is
    /// back.
    BackOff,
    /// Goes all the way back, in steps, and fails.
    Revert,
}

/// Something that tasks share: a link, a reserve of capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    pub name: String,
    pub size: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Datacenter {
    pub name: String,
    /// How much it can serve, and how much it serves while nothing is drained.
    pub capacity: f64,
    pub load: f64,
    /// The utilization limit: the share of its capacity that may be used,
    /// default 0.75.
    pub line: f64,
}

/// What no single person overrides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Datacenters that serve, at least.
    pub serving_min: u32,
    /// The share of all capacity that is drained, at the most.
    pub drained_max: f64,
}

impl Plan {
    /// The place of its own datacenter among all.
    pub fn own_index(&self) -> Option<usize> {
        self.datacenters.iter().position(|own| own.name == self.datacenter)
    }

    /// Knobs whose values are names: fences, and what is promoted behind them.
    pub fn switches(&self) -> BTreeSet<KnobId> {
        let of = |task: &Task| {
            let is_set = |knob: &KnobId| task.goal_of(*knob).is_some();
            let fences = task.fences.iter().map(|own| own.knob);
            let opened = task.opens.iter().flat_map(|own| [own.fence, own.primary]);
            fences.chain(opened).chain(task.promoted_knob().filter(is_set)).collect::<Vec<_>>()
        };
        self.tasks.iter().flat_map(of).collect()
    }

    /// Takes the values of switches as names.
    fn name_switches(&mut self) {
        let switches = self.switches();
        let name = |value: &mut Value| *value = value.clone().into_name();
        for task in &mut self.tasks {
            for stage in &mut task.stages {
                match &mut stage.kind {
                    StageKind::Set { knob, to, of } if switches.contains(knob) => {
                        let (Goal::Value(to) | Goal::Original(to)) = to;
                        name(to);
                        of.iter_mut().for_each(name);
                    }
                    StageKind::Verify { knob, to } if switches.contains(knob) => name(to),
                    _ => {}
                }
            }
            task.opens.iter_mut().for_each(|own| name(&mut own.closed));
            for fence in &mut task.fences {
                name(&mut fence.closed);
                fence.open.iter_mut().for_each(name);
            }
        }
    }

    /// How a knob carries traffic into the datacenter of this plan, if it does.
    pub fn carrier(&self, knob: &Knob) -> Option<&TrafficKnob> {
        let own = self.own_index()?;
        let mut knobs = self.traffic.iter().flat_map(|of| &of.datacenters[own].knobs);
        knobs.find(|carrier| carrier.knob == *knob)
    }

    /// Whether a knob has read as nothing that carries the traffic of its service: where texts
    /// alone do. Beside a weight an empty text is what a file may be, such as a switch.
    pub fn is_nothing(&self, knob: &Knob, value: &Value) -> bool {
        let Some(own) = self.own_index() else { return false };
        let knobs = self.traffic.iter().map(|of| &of.datacenters[own].knobs);
        let mut knobs = knobs.filter(|of| of.iter().all(|own| own.goal.number().is_none()));
        let carrier = knobs.find_map(|of| of.iter().find(|carrier| carrier.knob == *knob));
        carrier.is_some_and(|carrier| carrier.is_nothing(value))
    }

    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.index()]
    }

    pub fn find_task(&self, name: &str) -> Option<TaskId> {
        let at = self.tasks.iter().position(|task| task.name == name)?;
        Some(TaskId(at as u32))
    }

    pub fn knob(&self, id: KnobId) -> &Knob {
        &self.knobs[id.index()]
    }

    pub fn condition(&self, id: ConditionId) -> &Condition {
        &self.conditions[id.index()]
    }

    pub fn task_ids(&self) -> impl DoubleEndedIterator<Item = TaskId> + use<> {
        (0..self.tasks.len() as u32).map(TaskId)
    }
}

impl Task {
    /// Whether a value of a knob is never set again by itself: a primary may have taken
    /// writes since, and a fence that something else closed is not opened.
    pub fn is_final(&self, knob: KnobId, value: &Value) -> bool {
        let is_promoted = |at: usize| match self.stages[at].kind {
            StageKind::Set { knob: own, .. } if own == knob => {
                !self.stages[at].is_interruptible || self.is_guarded(StageId(at as u32))
            }
            _ => false,
        };
        match self.is_fence(knob) {
            true => self.is_opened_by(knob, value),
            false if self.opening(knob, value).is_some() => true,
            false => self.undone_knob() == Some(knob) || (0..self.forward().len()).any(is_promoted),
        }
    }

    /// The fence of another task that a value of a knob opens.
    pub fn opening(&self, knob: KnobId, value: &Value) -> Option<&Opening> {
        let mut own = self.opens.iter();
        own.find(|own| own.fence == knob && !own.closed.is_met_by(value))
    }

    /// Every parent, strong or weak.
    pub fn parents(&self) -> impl Iterator<Item = TaskId> {
        self.after.iter().chain(&self.after_weak).copied()
    }

    /// The stages that do what the task is there for.
    pub fn forward(&self) -> &[Stage] {
        match self.undo {
            Some(Undo { how: UndoBy::Stages { first }, .. }) => &self.stages[..first.index()],
            _ => &self.stages,
        }
    }

    /// The knob that the effect which an undo is about writes, if it writes one.
    pub fn undone_knob(&self) -> Option<KnobId> {
        match self.stages.get(self.undo.as_ref()?.after.index())?.kind {
            StageKind::Shift { knob, .. } | StageKind::Set { knob, .. } => Some(knob),
            _ => None,
        }
    }

    /// The knob that this task promotes behind a fence.
    pub fn promoted_knob(&self) -> Option<KnobId> {
        self.undone_knob().filter(|_| !self.fences.is_empty())
    }

    /// The stages of the same way as one: those that do what the task is there for,
    /// or those that undo it.
    fn way_of(&self, stage: StageId) -> std::ops::Range<usize> {
        let first = self.forward().len();
        if stage.index() < first { 0..first } else { first..self.stages.len() }
    }

    /// The stage that closes a fence before a stage.
    pub fn fence_before(&self, stage: StageId) -> Option<StageId> {
        let closes = |at: &usize| self.closed_in(StageId(*at as u32)).is_some();
        let found = (self.way_of(stage).start..stage.index()).find(closes);
        found.map(|at| StageId(at as u32))
    }

    /// The fence that a stage closes.
    pub fn closed_in(&self, stage: StageId) -> Option<KnobId> {
        match &self.stages[stage.index()].kind {
            StageKind::Set { knob, to, .. } => {
                self.is_closed_by(*knob, to.value()).then_some(*knob)
            }
            _ => None,
        }
    }

    /// The primary that the fence of a stage, or the one before it, keeps from taking writes.
    pub fn fenced_primary(&self, stage: StageId) -> Option<&Value> {
        let closes = self.closed_in(stage).map(|_| stage);
        match &self.stages[closes.or_else(|| self.fence_before(stage))?.index()].kind {
            StageKind::Set { of, .. } => of.as_ref(),
            _ => None,
        }
    }

    /// The fences that what the task is there for closes, each with the primary that it keeps
    /// from taking writes, and the knob that says who is primary.
    pub fn fenced_primaries(&self) -> impl Iterator<Item = (&Fence, KnobId, &Value)> {
        let stages = (0..self.forward().len()).map(|at| StageId(at as u32));
        stages.filter_map(|stage| {
            let fence = self.fence(self.closed_in(stage)?)?;
            Some((fence, self.undone_knob()?, self.fenced_primary(stage)?))
        })
    }

    /// Whether what the task is there for ends with a fence closed.
    pub fn leaves_closed(&self, fence: KnobId) -> bool {
        !self.forward().iter().any(|stage| match &stage.kind {
            StageKind::Set { knob, to, .. } => {
                *knob == fence && self.is_opened_by(*knob, to.value())
            }
            _ => false,
        })
    }

    /// The stage right before another that reads whether a fence is still closed.
    pub fn verified_before(&self, stage: StageId) -> Option<StageId> {
        let verifies = |at: &usize| match self.stages[*at].kind {
            StageKind::Verify { knob, .. } => {
                self.is_fence(knob) && self.stages[*at].done == Next::Stage(stage)
            }
            _ => false,
        };
        self.way_of(stage).find(verifies).map(|at| StageId(at as u32))
    }

    pub fn is_fence(&self, knob: KnobId) -> bool {
        self.fence(knob).is_some()
    }

    /// The fence that a knob is, if it is one.
    pub fn fence(&self, knob: KnobId) -> Option<&Fence> {
        self.fences.iter().find(|own| own.knob == knob)
    }

    /// Whether a stage does what a fence is closed for: it changes something behind
    /// the fence, and loses writes if that is open.
    pub fn is_guarded(&self, stage: StageId) -> bool {
        let does = match self.stages[stage.index()].kind {
            StageKind::Set { knob, .. } | StageKind::PutBack { knob } => !self.is_fence(knob),
            StageKind::Act(_) => true,
            _ => false,
        };
        let Some(fence) = self.fence_before(stage).filter(|_| does) else { return false };
        let between = &self.stages[fence.index()..stage.index()];
        let opens = |own: &Stage| match &own.kind {
            StageKind::Set { knob, to, .. } => self.is_opened_by(*knob, to.value()),
            _ => false,
        };
        // A switch that is put back on the way is no fence if all may be interrupted.
        let is_held = between.iter().chain([&self.stages[stage.index()]]);
        is_held.into_iter().any(|own| !own.is_interruptible) && !between.iter().any(opens)
    }

    /// What the undone knob is set to.
    pub fn undone_goal(&self) -> Option<&Value> {
        self.goal_of(self.undone_knob()?)
    }

    /// What a knob is set to last by what the task is there for.
    pub fn goal_of(&self, knob: KnobId) -> Option<&Value> {
        let mut goals = self.forward().iter().filter_map(|stage| match &stage.kind {
            StageKind::Set { knob: own, to, .. } if *own == knob => Some(to.value()),
            _ => None,
        });
        goals.next_back()
    }

    /// Whether a value of the knob that this task promotes says that its servers differ:
    /// their values, joined by `+`.
    pub fn is_half_promoted(&self, knob: KnobId, value: &Value) -> bool {
        let (Some(goal), Value::Text(text)) = (self.undone_goal(), value) else { return false };
        // A name that has a plus sign of its own.
        let is_goal = goal.is_met_by(value);
        self.undone_knob() == Some(knob) && !is_goal && text.contains('+')
    }

    /// Whether a value closes a fence of this task.
    pub fn is_closed_by(&self, knob: KnobId, value: &Value) -> bool {
        self.fences.iter().any(|own| own.knob == knob && own.closed.is_met_by(value))
    }

    /// Whether a value opens a fence of this task.
    pub fn is_opened_by(&self, knob: KnobId, value: &Value) -> bool {
        self.is_fence(knob) && !self.is_closed_by(knob, value)
    }

    /// What a knob goes back to that was found at a value: a fence goes back to
    /// open, whoever left it closed. `None`: what that is is not known.
    pub fn origin_of(&self, knob: KnobId, found: &Value) -> Option<Value> {
        let mut fences = self.fences.iter();
        match fences.find(|own| own.knob == knob && own.is_closed_in_part(found)) {
            Some(closed) => closed.open.clone(),
            None => Some(found.clone()),
        }
    }

    /// Every condition that it names.
    pub fn conditions(&self) -> impl Iterator<Item = ConditionId> {
        let of_stages = self.stages.iter().filter_map(Stage::condition);
        self.pre.iter().chain(&self.health).chain(&self.post).copied().chain(of_stages)
    }
}

impl Stage {
    /// The condition that it waits for, or checks.
    pub fn condition(&self) -> Option<ConditionId> {
        match self.kind {
            StageKind::Await { condition } | StageKind::Check { condition } => Some(condition),
            _ => None,
        }
    }

    pub fn next(&self, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Done => self.done,
            Outcome::Failed => self.failed,
            Outcome::Late => self.late,
        }
    }
}

impl std::fmt::Display for Knob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.driver, self.name)
    }
}
