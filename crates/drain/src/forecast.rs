//! When a run will end, predicted anew from what has happened so far: tasks that
//! are complete ended when they did, those that run take what is left of them,
//! and those that wait take what is predicted of them.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::engine::{Abort, Hold, Mode, Phase, State};
use crate::plan::{Next, Plan, StageId, StageKind, Task, TaskId};
use crate::time::{Millis, Time};

/// How much longer than predicted a task may take before the forecast says that
/// it is a lower bound.
const TOLERANCE: Millis = Millis::from_secs(10);
/// What it takes to write a knob back that has no steps.
const PUT_BACK: Millis = Millis::from_secs(5);

/// A run looked at while it is carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    pub eta: Eta,
    /// The chain of tasks that decides when the run ends, first first; complete
    /// ones too.
    pub critical_path: Vec<TaskId>,
}

/// When a run ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Eta {
    /// It has.
    Ended {
        at: Time,
    },
    Expected {
        at: Time,
    },
    /// Not before, if what is in the way goes away now.
    AtLeast {
        at: Time,
        why: String,
    },
    Unknown {
        why: String,
    },
}

impl Eta {
    /// The time, if there is one.
    pub fn at(&self) -> Option<Time> {
        match self {
            Eta::Ended { at } | Eta::Expected { at } | Eta::AtLeast { at, .. } => Some(*at),
            Eta::Unknown { .. } => None,
        }
    }
}

/// Predicts the end of a run from its present state.
pub fn forecast(plan: &Plan, state: &State, now: Time) -> Forecast {
    let course = Course::of(plan, state, now);
    let critical_path = course.critical_path();
    let ends = course.ends.iter().copied().max().unwrap_or(now).max(now);
    let blocked: Vec<(TaskId, String)> =
        plan.task_ids().filter_map(|id| Some((id, blocks(plan, state, id)?))).collect();
    let moves = |id: TaskId| {
        let ready =
            || state.task(id).phase == Phase::Waiting && course.parents(id).next().is_none();
        state.task(id).phase.is_active() || ready()
    };
    let some_move =
        plan.task_ids().any(|id| moves(id) && blocked.iter().all(|(own, _)| *own != id));
    let why = |(id, why): &(TaskId, String)| format!("{} {why}", plan.task(*id).name);
    let eta = match (&state.closed, &blocked[..]) {
        (Some((at, _)), _) => Eta::Ended { at: *at },
        _ if state.paused => Eta::Unknown { why: "the run is paused".into() },
        (None, [first, ..]) if !some_move => Eta::Unknown { why: why(first) },
        (None, [first, ..]) => Eta::AtLeast { at: ends, why: why(first) },
        (None, []) => match critical_path.iter().find(|id| course.is_late(**id)) {
            Some(late) => Eta::AtLeast {
                at: ends,
                why: format!("{} takes longer than predicted", plan.task(*late).name),
            },
            None => Eta::Expected { at: ends },
        },
    };
    Forecast { eta, critical_path }
}

/// Why nobody can tell how long a task takes, if so.
fn blocks(plan: &Plan, state: &State, id: TaskId) -> Option<String> {
    let own = state.task(id);
    if state.abort == Some(Abort::Hold) {
        return None;
    }
    let is_asking = || {
        let stage = plan.task(id).stages.get(own.stage.index());
        stage.is_some_and(|stage| matches!(stage.kind, StageKind::Approve { .. }))
    };
    match (own.phase, &own.hold) {
        (Phase::Failed, _) if state.abort.is_none() => Some("failed".into()),
        (Phase::Stopped, _) if state.abort.is_none() => Some("is stopped".into()),
        // The end of a wait is part of what is predicted.
        (_, Some((_, Hold::Awaits { .. } | Hold::Budget))) => None,
        (phase, Some(_)) if phase.is_active() || phase == Phase::Waiting => Some("is held".into()),
        (Phase::Running, None) if is_asking() => Some("waits for approval".into()),
        _ => None,
    }
}

/// When each task ends, and which of its parents it waited for.
struct Course<'a> {
    plan: &'a Plan,
    state: &'a State,
    now: Time,
    ends: Vec<Time>,
}

impl<'a> Course<'a> {
    fn of(plan: &'a Plan, state: &'a State, now: Time) -> Self {
        let ends = vec![state.opened.unwrap_or(now); plan.tasks.len()];
        let mut course = Course { plan, state, now, ends };
        if state.abort == Some(Abort::Revert) {
            course.go_back();
        } else if state.abort.is_none() {
            course.go_on();
        }
        course
    }

    /// Parents come first in a plan.
    fn go_on(&mut self) {
        for id in self.plan.task_ids() {
            let (task, own) = (self.plan.task(id), self.state.task(id));
            let ready = self.waited_for(id).map(|parent| self.ends[parent.index()]).max();
            let ready = ready.unwrap_or(self.now).max(self.now);
            self.ends[id.index()] = match own.phase {
                Phase::Done | Phase::Skipped => own.ended.unwrap_or(self.now),
                Phase::Running | Phase::Settling => self.now + self.remaining(id),
                Phase::Reverting => self.now + self.way_back(id) + self.lasts(task),
                // As if it were retried now.
                _ => ready + self.lasts(task),
            };
        }
    }

    /// What depends on a task goes back first.
    fn go_back(&mut self) {
        let mut ready = vec![self.now; self.plan.tasks.len()];
        for id in self.plan.task_ids().rev() {
            let own = self.state.task(id);
            let end = match own.phase {
                Phase::Reverted | Phase::Unreverted | Phase::Abandoned => {
                    own.ended.unwrap_or(self.now)
                }
                _ => ready[id.index()] + self.way_back(id),
            };
            self.ends[id.index()] = end;
            for parent in self.plan.task(id).parents() {
                let limit = &mut ready[parent.index()];
                *limit = (*limit).max(end);
            }
        }
    }

    fn lasts(&self, task: &Task) -> Millis {
        self.plan.predict(task).0
    }

    /// What is left of a task that runs: of the stage that it is in, and of those
    /// after it.
    fn remaining(&self, id: TaskId) -> Millis {
        let (task, own) = (self.plan.task(id), self.state.task(id));
        let settles = self.plan.longest_hold(&task.post);
        let in_it = self.now - own.entered;
        let left = |of: Millis, spent: Millis| Millis(of.0.saturating_sub(spent.0));
        if own.phase == Phase::Settling {
            return settles;
        }
        let mut all = self.plan.longest_hold(&task.pre) + settles;
        let mut ahead = settles;
        let (mut seen, mut is_ahead) = (vec![false; task.stages.len()], false);
        let mut next = Next::Stage(StageId(0));
        while let Next::Stage(at) = next
            && let Some(stage) = task.stages.get(at.index())
            && !std::mem::replace(&mut seen[at.index()], true)
        {
            let lasts = self.plan.predict_stage(task, stage);
            all = all + lasts;
            if at == own.stage {
                is_ahead = true;
                ahead = ahead
                    + match own.shift {
                        Some(shift) => {
                            let step = if shift.steps == 0 {
                                task.pace.first
                            } else {
                                shift.step.abs() * 2.0
                            };
                            let step = step
                                .clamp(task.pace.first.min(task.pace.step_max), task.pace.step_max);
                            let steps = task.pace.steps_from(shift.at, step);
                            let wait = task.pace.wait.0.saturating_mul(u64::from(steps));
                            let looks = left(task.pace.wait, self.now - shift.at_since);
                            Millis(wait) + if shift.steps > 0 { looks } else { Millis::ZERO }
                        }
                        None => left(lasts, in_it),
                    };
            } else if is_ahead {
                ahead = ahead + lasts;
            }
            next = stage.done;
        }
        // Off the way on which everything goes well: nobody knows, the whole of it.
        if !is_ahead {
            ahead = all;
        }
        match task.expected.usual {
            // What its pace says, at the speed that it usually has.
            Some(usual) if all > Millis::ZERO => {
                Millis((ahead.0 as f64 * (usual.0 as f64 / all.0 as f64)).round() as u64)
            }
            _ => ahead,
        }
    }

    /// How long it takes until the knobs of a task are back.
    fn way_back(&self, id: TaskId) -> Millis {
        let (task, own) = (self.plan.task(id), self.state.task(id));
        let whole = Millis(task.pace.wait.0.saturating_mul(u64::from(task.pace.steps())));
        let mut span = Millis::ZERO;
        for (knob, origin) in &own.origins {
            let left = self.state.knobs[knob.index()].as_ref();
            let Some(left) = left.filter(|left| !origin.is_met_by(&left.value)) else { continue };
            let shift =
                own.shift.filter(|shift| own.phase == Phase::Reverting && shift.knob == *knob);
            span = span
                + match (origin.number().and(left.value.number()), shift) {
                    (None, _) => PUT_BACK,
                    (Some(_), Some(shift)) => whole * (1.0 - shift.at).clamp(0.0, 1.0),
                    (Some(_), None) => whole,
                };
        }
        span
    }

    /// Parents that a task has to wait for, or had to.
    fn waited_for(&self, id: TaskId) -> impl Iterator<Item = TaskId> + 'a {
        let task = self.plan.task(id);
        let weak = if self.state.mode == Mode::Drill { &task.after_weak[..] } else { &[] };
        task.after.iter().chain(weak).copied()
    }

    /// Parents that it still waits for.
    fn parents(&self, id: TaskId) -> impl Iterator<Item = TaskId> {
        self.waited_for(id).filter(|parent| !self.state.task(*parent).phase.is_complete())
    }

    /// Whether a task has taken longer than was predicted of it.
    fn is_late(&self, id: TaskId) -> bool {
        let own = self.state.task(id);
        let runs = matches!(own.phase, Phase::Running | Phase::Settling);
        let lasts = self.lasts(self.plan.task(id));
        runs && own.started.is_some_and(|at| self.now > at + lasts + TOLERANCE)
            && (own.phase == Phase::Settling || self.remaining(id) == Millis::ZERO)
    }

    fn critical_path(&self) -> Vec<TaskId> {
        // Among equals the earlier task, so that the same run has the same path.
        let rank = |id: &TaskId| (self.ends[id.index()], Reverse(*id));
        let mut path = Vec::new();
        let goes_back = self.state.abort == Some(Abort::Revert);
        let mut children = vec![Vec::new(); if goes_back { self.plan.tasks.len() } else { 0 }];
        if goes_back {
            for id in self.plan.task_ids() {
                self.plan.task(id).parents().for_each(|parent| children[parent.index()].push(id));
            }
        }
        let mut next = self.plan.task_ids().max_by_key(rank);
        while let Some(id) = next {
            path.push(id);
            next = match goes_back {
                true => children[id.index()].iter().copied().max_by_key(rank),
                false => self.waited_for(id).max_by_key(rank),
            };
        }
        path.reverse();
        path
    }
}
