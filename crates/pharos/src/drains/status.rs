//! How a run stands, for people and for machines that watch it.

use std::collections::BTreeMap;

use drain::engine::{Abort, Hold, Mode, Phase, Run, RunOutcome};
use drain::report::describe;
use drain::{ConditionId, Direction, KnobId, Millis, StageKind, TaskId, Time, Verdict};
use serde::Serialize;
use store::RunId;

use super::vigil::Strayed;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    pub run: u64,
    pub datacenter: String,
    pub direction: Direction,
    pub mode: Mode,
    pub opened: Time,
    pub now: Time,
    pub outcome: Option<RunOutcome>,
    pub paused: bool,
    pub abort: Option<Abort>,
    /// Why nothing can be done at all: what is not on the disk is not done.
    pub stands_still: Option<String>,
    /// Who drives it, if not this server, which knows no more than is written.
    pub elsewhere: Option<String>,
    pub tasks: Vec<TaskStatus>,
    /// The tasks that decide how long it takes, as it was planned.
    pub critical_path: Vec<String>,
    /// Conditions that decide something now.
    pub conditions: Vec<ConditionStatus>,
    /// The number of the next record: a status with a higher one is newer.
    pub next_seq: u64,
    /// Of a run that is over: knobs that are not where it left them any more.
    pub strayed: Vec<Strayed>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskStatus {
    pub name: String,
    pub service: String,
    pub phase: Phase,
    pub stage: String,
    pub started: Option<Time>,
    pub ended: Option<Time>,
    /// How long it takes as a rule.
    pub usual: Option<Millis>,
    /// How much of the shift it is in is done, 0 to 1.
    pub progress: Option<f64>,
    pub steps: u32,
    pub next_step_at: Option<Time>,
    pub hold: Option<HoldStatus>,
    /// Tasks that it waits for.
    pub waits_for: Vec<String>,
    /// What it asks people, or whom it meets, while it does that.
    pub asks: Option<String>,
    pub is_stuck: bool,
    pub failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HoldStatus {
    pub since: Time,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConditionStatus {
    pub name: String,
    pub value: Option<f64>,
    pub comparison: &'static str,
    pub bound: f64,
    pub verdict: Verdict,
    pub overridden: bool,
    /// Why there is no value.
    pub silence: Option<String>,
}

/// What was looked at in vain, and why.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    /// Conditions without a value.
    pub conditions: BTreeMap<ConditionId, String>,
    /// Which series each of the others has its value from.
    pub series: BTreeMap<ConditionId, String>,
    /// Knobs that could not be read.
    pub knobs: BTreeMap<KnobId, String>,
}

impl Status {
    /// `path` are the tasks that decide how long it takes.
    pub fn of(run: &Run, id: RunId, now: Time, unseen: &Unseen, path: &[TaskId]) -> Status {
        let (plan, state) = (run.plan(), run.state());
        Status {
            run: id.0,
            datacenter: plan.datacenter.clone(),
            direction: plan.direction,
            mode: state.mode,
            opened: state.opened.unwrap_or(now),
            now,
            outcome: state.closed.map(|(_, outcome)| outcome),
            paused: state.paused,
            abort: state.abort,
            stands_still: None,
            elsewhere: None,
            tasks: plan.task_ids().map(|task| TaskStatus::of(run, task, now, unseen)).collect(),
            critical_path: path.iter().map(|task| plan.task(*task).name.clone()).collect(),
            conditions: run
                .watched()
                .into_iter()
                .map(|id| condition(run, id, now, unseen.conditions.get(&id).cloned()))
                .collect(),
            next_seq: state.next_seq,
            strayed: Vec::new(),
        }
    }
}

impl TaskStatus {
    fn of(run: &Run, id: TaskId, now: Time, unseen: &Unseen) -> TaskStatus {
        let (task, state) = (run.plan().task(id), run.state().task(id));
        let waits = state.phase == Phase::Waiting;
        let is_open = |parent: &TaskId| waits && !run.state().task(*parent).phase.is_complete();
        let name = |parent: TaskId| run.plan().task(parent).name.clone();
        TaskStatus {
            name: task.name.clone(),
            service: task.service.clone(),
            phase: state.phase,
            stage: task.stages[state.stage.index()].name.clone(),
            started: state.started,
            ended: state.ended.filter(|_| !state.phase.is_active()),
            usual: task.expected.usual,
            progress: state.shift.map(|shift| shift.at),
            steps: state.steps,
            // Nobody knows when, while it is held.
            next_step_at: run.next_step_at(now, id).filter(|_| state.hold.is_none()),
            hold: state.hold.as_ref().map(|(since, hold)| HoldStatus {
                since: *since,
                why: why_held(run, id, hold, unseen),
            }),
            waits_for: task.parents().filter(is_open).map(name).collect(),
            asks: asks(run, id),
            is_stuck: state.is_stuck,
            failure: state.trouble().map(str::to_owned),
        }
    }
}

/// Why a task is held, and what to do about it.
fn why_held(run: &Run, id: TaskId, hold: &Hold, unseen: &Unseen) -> String {
    let (plan, why) = (run.plan(), describe(run.plan(), hold));
    match hold {
        Hold::Unreadable { knob } => match unseen.knobs.get(knob) {
            Some(because) => format!("{why}: {because}"),
            None => why,
        },
        Hold::Contested { .. } => {
            format!("{why}; `resume {}` goes on once nobody does", plan.task(id).name)
        }
        _ => why,
    }
}

fn asks(run: &Run, id: TaskId) -> Option<String> {
    let (task, state) = (run.plan().task(id), run.state().task(id));
    match &task.stages[state.stage.index()].kind {
        _ if state.phase != Phase::Running => None,
        StageKind::Approve { question, people } => {
            let yes = state.approved_by.len();
            Some(format!("{question} ({yes} of {people} said yes: `approve {}`)", task.name))
        }
        StageKind::Barrier { name } => Some(format!("until all are at `{name}`")),
        _ => None,
    }
}

fn condition(run: &Run, id: ConditionId, now: Time, silence: Option<String>) -> ConditionStatus {
    let own = run.plan().condition(id);
    ConditionStatus {
        name: own.name.clone(),
        value: run.value(id, now),
        comparison: own.comparison.symbol(),
        bound: own.bound,
        verdict: run.verdict(id, now),
        overridden: run.state().overridden.contains(&id),
        silence,
    }
}
