//! What there is to say about a run, made from its plan and its records alone:
//! how long each task took and why, what the run had to wait for, and which
//! dependency cost it most. As a value; showing it is in [`html`].

mod curves;
mod html;
mod path;
mod traffic;

use jiff::tz::TimeZone;
use serde::Serialize;

pub use curves::{ConditionReport, Span};
pub use html::render;
pub use path::CostlyEdge;
pub use traffic::TrafficReport;

use self::curves::Curves;
use crate::condition::Condition;
use crate::date::rfc3339;
use crate::engine::{Corrupt, Effect, Fact, Hold, Mode, Phase, Record, RunOutcome, State, Trigger};
use crate::history::Sample;
use crate::number::number;
use crate::plan::{ConditionId, Direction, KnobId, Plan, TaskId};
use crate::time::{Millis, Time};
use crate::value::Value;

/// The account of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The number of the run, and its dates as texts, where they are known.
    pub run: Option<u64>,
    pub opened_at: Option<String>,
    pub ended_at: Option<String>,
    /// Who started it, and why.
    pub by: String,
    pub reason: String,
    pub datacenter: String,
    pub direction: Direction,
    pub mode: Mode,
    pub opened: Time,
    /// When it closed, or the last thing that happened.
    pub ended: Time,
    /// `None`: it goes on.
    pub outcome: Option<RunOutcome>,
    pub makespan: Millis,
    pub tasks: Vec<TaskReport>,
    /// The chain of tasks that the run took as long as it did for, first first.
    pub critical_path: Vec<String>,
    /// The dependency whose absence would have shortened the run most.
    pub costliest: Option<CostlyEdge>,
    /// Conditions that came close to their bounds, nearest first.
    pub close: Vec<CloseCall>,
    /// What conditions measured, with their bounds; those that came nearest to
    /// them first.
    pub conditions: Vec<ConditionReport>,
    /// The load of each datacenter over time.
    pub traffic: Vec<TrafficReport>,
    /// When tasks were held, and why.
    pub holds: Vec<HoldReport>,
    /// When tasks failed, and why, also those that were retried.
    pub failures: Vec<FailureReport>,
    pub knobs: Vec<KnobReport>,
    pub drifts: Vec<Drift>,
    /// Knobs that were not where they were left when the run was closed.
    pub astray: Vec<Astray>,
    /// Fences that were closed when the run was: writes were refused.
    pub fences: Vec<FenceReport>,
    /// Of a restore: what it did not bring back, and which tasks had nothing to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
    pub commands: Vec<Said>,
    pub effects: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskReport {
    pub name: String,
    pub service: String,
    pub phase: Phase,
    pub started: Option<Time>,
    pub ended: Option<Time>,
    pub took: Option<Millis>,
    /// What it takes as a rule.
    pub usual: Option<Millis>,
    pub steps: u32,
    pub breaches: u32,
    /// How long it was held, for each reason.
    pub held: Vec<(String, Millis)>,
    pub was_stuck: bool,
    pub is_critical: bool,
    pub failure: Option<String>,
    /// What the next plan may know of it.
    pub sample: Option<Sample>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CloseCall {
    pub condition: String,
    /// 1 is at the bound, more is past it.
    pub nearness: f64,
    pub value: f64,
    pub at: Time,
}

/// A fence that a task left closed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FenceReport {
    pub task: String,
    pub knob: String,
    pub value: Value,
}

/// A task that failed, or could not be put back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureReport {
    pub task: String,
    pub at: Time,
    pub why: String,
}

/// A task that was held for a while.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HoldReport {
    pub task: String,
    pub kind: &'static str,
    pub why: String,
    pub from: Time,
    pub to: Time,
}

/// Where a knob went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KnobReport {
    pub name: String,
    pub moves: Vec<(Time, Value)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    pub at: Time,
    pub knob: String,
    pub expected: Value,
    pub found: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Astray {
    pub at: Time,
    pub knob: String,
    pub expected: Value,
    /// `None`: it could not be read.
    pub found: Option<Value>,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Said {
    pub at: Time,
    /// The identity: `ann (uid 1000)`.
    pub by: String,
    /// What was typed beside it.
    pub comment: Option<String>,
    pub reason: String,
    pub what: String,
}

impl Said {
    /// The identity, with what was typed beside it.
    pub fn who(&self) -> String {
        match &self.comment {
            Some(comment) => format!("{}, “{comment}”", self.by),
            None => self.by.clone(),
        }
    }
}

impl Report {
    /// Reads the records of a run.
    pub fn of(plan: &Plan, records: &[Record]) -> Result<Report, Corrupt> {
        let mut state = State::new(plan);
        let mut gathered = Gathered::new(plan);
        for record in records {
            state.apply(plan, record)?;
            gathered.take(plan, record);
            gathered.take_failure(plan, record, &state);
        }
        Ok(gathered.report(plan, &state, records))
    }

    /// The same with the number of the run, and with dates in a time zone.
    pub fn identified(mut self, run: u64, zone: &TimeZone) -> Report {
        self.run = Some(run);
        self.opened_at = Some(rfc3339(self.opened, zone));
        self.ended_at = Some(rfc3339(self.ended, zone));
        self
    }
}

/// Since when a task is held and why, and for how long it was before.
type Holds = (Option<(Time, Hold)>, Vec<(String, Millis)>);

/// Holds that are told one by one: more say nothing that the sums do not.
const HOLDS_MAX: usize = 5000;

/// What is gathered on the way through the records.
struct Gathered {
    /// Of each task.
    holds: Vec<Holds>,
    intervals: Vec<HoldReport>,
    failures: Vec<FailureReport>,
    curves: Curves,
    close: Vec<Option<CloseCall>>,
    moves: Vec<Vec<(Time, Value)>>,
    drifts: Vec<Drift>,
    astray: Vec<Astray>,
    said: Vec<Said>,
    effects: u64,
}

impl Gathered {
    fn new(plan: &Plan) -> Self {
        Gathered {
            holds: vec![(None, Vec::new()); plan.tasks.len()],
            intervals: Vec::new(),
            failures: Vec::new(),
            curves: Curves::new(plan),
            close: vec![None; plan.conditions.len()],
            moves: vec![Vec::new(); plan.knobs.len()],
            drifts: Vec::new(),
            astray: Vec::new(),
            said: Vec::new(),
            effects: 0,
        }
    }

    fn take(&mut self, plan: &Plan, record: &Record) {
        let at = record.at;
        self.curves.take(record);
        match &record.fact {
            Fact::Held { task, why } => {
                self.end_hold(plan, *task, at);
                self.holds[task.index()].0 = Some((at, why.clone()));
            }
            Fact::Released { task } | Fact::Moved { task, .. } => self.end_hold(plan, *task, at),
            Fact::Close { condition, value } => self.note_close(plan, *condition, *value, at),
            Fact::Found { knob, value, .. } => self.moves[knob.index()].push((at, value.clone())),
            Fact::Issued { what, .. } => {
                self.effects += 1;
                if let Effect::Write { knob, value } = what {
                    self.moves[knob.index()].push((at, value.clone()));
                }
            }
            Fact::Drifted { knob, expected, found }
            | Fact::MovedOut { knob, expected, found, .. } => {
                self.moves[knob.index()].push((at, found.clone()));
                self.drifts.push(Drift {
                    at,
                    knob: plan.knob(*knob).to_string(),
                    expected: expected.clone(),
                    found: found.clone(),
                });
            }
            Fact::Astray { knob, expected, found, why } => {
                let moved = found.iter().map(|found| (at, found.clone()));
                self.moves[knob.index()].extend(moved);
                self.astray.push(Astray {
                    at,
                    knob: plan.knob(*knob).to_string(),
                    expected: expected.clone(),
                    found: found.clone(),
                    why: why.clone(),
                });
            }
            Fact::Opened { by, reason, .. } => self.said.push(Said {
                at,
                by: by.to_string(),
                comment: by.comment.clone(),
                reason: reason.clone(),
                what: match plan.direction {
                    Direction::Drain => format!("drain {}", plan.datacenter),
                    Direction::Restore => format!("restore {}", plan.datacenter),
                },
            }),
            Fact::Commanded { by, reason, command, .. } => self.said.push(Said {
                at,
                by: by.to_string(),
                comment: by.comment.clone(),
                reason: reason.clone(),
                what: command.describe(plan),
            }),
            _ => {}
        }
    }

    /// Notes that a task failed; `state` is that after the record.
    fn take_failure(&mut self, plan: &Plan, record: &Record, state: &State) {
        let Fact::Moved { task, trigger: Trigger::StagesFailed | Trigger::RevertFailed } =
            record.fact
        else {
            return;
        };
        let why = state.task(task).trouble().unwrap_or("no reason was recorded").to_owned();
        let task = plan.task(task).name.clone();
        self.failures.push(FailureReport { task, at: record.at, why });
    }

    fn end_hold(&mut self, plan: &Plan, task: TaskId, at: Time) {
        let (open, sums) = &mut self.holds[task.index()];
        let Some((since, hold)) = open.take() else { return };
        if self.intervals.len() < HOLDS_MAX {
            let (task, why) = (plan.task(task).name.clone(), describe(plan, &hold));
            self.intervals.push(HoldReport { task, kind: hold.kind(), why, from: since, to: at });
        }
        let why = describe_kind(plan, &hold);
        match sums.iter_mut().find(|(known, _)| *known == why) {
            Some((_, sum)) => *sum = *sum + (at - since),
            None => sums.push((why, at - since)),
        }
    }

    fn note_close(&mut self, plan: &Plan, id: ConditionId, value: f64, at: Time) {
        // What is waited for begins far past its bound.
        let mut health = plan.tasks.iter().flat_map(|task| &task.health).chain(&plan.health);
        if !health.any(|own| *own == id) {
            return;
        }
        let condition = plan.condition(id);
        let Some(nearness) = condition.nearness(value) else { return };
        let known = &mut self.close[id.index()];
        if known.as_ref().is_none_or(|known| known.nearness < nearness) {
            *known = Some(CloseCall { condition: condition.name.clone(), nearness, value, at });
        }
    }

    fn report(mut self, plan: &Plan, state: &State, records: &[Record]) -> Report {
        let opened = state.opened.unwrap_or_default();
        let last = records.last().map_or(opened, |record| record.at);
        let ended = state.closed.map_or(last, |(at, _)| at);
        plan.task_ids().for_each(|task| self.end_hold(plan, task, ended));
        self.intervals.sort_by_key(|hold| hold.from);
        let critical = path::critical(plan, state);
        let mut close: Vec<CloseCall> = self.close.into_iter().flatten().collect();
        close.sort_by(|a, b| b.nearness.total_cmp(&a.nearness));
        let mut holds = self.holds.into_iter().map(|(_, sums)| sums);
        let tasks = plan
            .task_ids()
            .map(|id| {
                let held = holds.next().unwrap_or_default();
                task_report(plan, state, id, held, critical.contains(&id))
            })
            .collect();
        let moves = self.moves;
        Report {
            run: None,
            opened_at: None,
            ended_at: None,
            by: state.opened_by.clone(),
            reason: state.reason.clone(),
            datacenter: plan.datacenter.clone(),
            direction: plan.direction,
            mode: state.mode,
            opened,
            ended,
            outcome: state.closed.map(|(_, outcome)| outcome),
            makespan: ended - opened,
            tasks,
            costliest: path::costliest(plan, state, &critical),
            critical_path: critical.iter().map(|id| plan.task(*id).name.clone()).collect(),
            close,
            conditions: self.curves.report(plan, ended),
            traffic: traffic::of(plan, &moves, opened),
            holds: self.intervals,
            failures: self.failures,
            knobs: (moves.into_iter().enumerate())
                .filter(|(_, moves)| !moves.is_empty())
                .map(|(at, moves)| KnobReport {
                    name: plan.knob(KnobId(at as u32)).to_string(),
                    moves,
                })
                .collect(),
            drifts: self.drifts,
            astray: self.astray,
            fences: state
                .left_closed(plan)
                .map(|(task, fence)| FenceReport {
                    task: plan.task(task).name.clone(),
                    knob: plan.knob(fence.knob).to_string(),
                    value: fence.closed.clone(),
                })
                .collect(),
            left_behind: left_behind(plan),
            commands: self.said,
            effects: self.effects,
        }
    }
}

fn task_report(
    plan: &Plan,
    state: &State,
    id: TaskId,
    held: Vec<(String, Millis)>,
    is_critical: bool,
) -> TaskReport {
    let (task, own) = (plan.task(id), state.task(id));
    let took = own.started.zip(own.ended).map(|(started, ended)| ended - started);
    // What somebody skipped, stopped or set right says nothing about the next.
    let is_usual = own.phase == Phase::Done && !own.was_helped;
    TaskReport {
        name: task.name.clone(),
        service: task.service.clone(),
        phase: own.phase,
        started: own.started,
        ended: own.ended.filter(|_| !own.phase.is_active()),
        took,
        usual: task.expected.usual,
        steps: own.steps,
        breaches: own.breaches,
        held,
        was_stuck: own.is_stuck,
        is_critical,
        failure: own.trouble().map(str::to_owned),
        sample: took.filter(|_| is_usual).map(|took| Sample {
            took,
            step: own.borne,
            was_breached: own.breaches > 0,
        }),
    }
}

/// A hold without the value that it began with: all of one kind are one.
fn describe_kind(plan: &Plan, why: &Hold) -> String {
    let bound = |id: &ConditionId| {
        let Condition { name, comparison, bound, .. } = plan.condition(*id);
        format!("{name} {} {}", comparison.symbol(), number(*bound))
    };
    match why {
        Hold::Awaits { condition, .. } => format!("waits for {}", bound(condition)),
        Hold::Breach { condition, .. } => format!("breach of {}", bound(condition)),
        other => describe(plan, other),
    }
}

/// A hold as people read it.
pub fn describe(plan: &Plan, why: &Hold) -> String {
    let shown = |id: &ConditionId, value: &Option<f64>| {
        let Condition { name, comparison, bound, .. } = plan.condition(*id);
        let value =
            value.map_or("has no value".to_owned(), |value| format!("is {}", number(value)));
        format!("{name} {value}, must be {} {}", comparison.symbol(), number(*bound))
    };
    match why {
        Hold::Awaits { condition, value } => format!("waits: {}", shown(condition, value)),
        Hold::Breach { condition, value } => format!("breach: {}", shown(condition, value)),
        Hold::NoData { condition } => format!("no data for {}", plan.condition(*condition).name),
        Hold::Paused => "paused".into(),
        Hold::Limit(reached) => format!("limit: {reached}"),
        Hold::Budget => "no budget left".into(),
        Hold::Contested { knob } => format!("somebody else turns {}", plan.knob(*knob)),
        Hold::Unreadable { knob } => format!("{} cannot be read", plan.knob(*knob)),
        Hold::InUse { knob, by } => format!("{} is in use by {by}", plan.knob(*knob)),
        Hold::Unanswered { .. } => "no answer to what it does".into(),
    }
}

/// What a restore did not bring back, and which of its tasks had nothing to.
fn left_behind(plan: &Plan) -> Vec<String> {
    let left = plan.left_behind.iter().map(|own| {
        let given_up = if own.is_given_up { "; the operator gave it up" } else { "" };
        format!("{}{given_up}", own.describe(&plan.datacenter))
    });
    let idle = plan.idle.iter().map(|own| format!("{}: {}", own.task, own.describe()));
    left.chain(idle).collect()
}
