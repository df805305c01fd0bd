//! Fences: what one task sets behind a fence no other sets without one.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Runbooks;
use super::super::expand::{Aim, ExpandedStage, Work};
use super::super::problem::Problems;
use super::super::spec::{Service, Task};
use super::effects::{SYMBOLIC, expand_task, writes};
use super::{DIRECTIONS, Scope};
use crate::plan::{Direction, Exit, Next};

/// A knob that takes a fence to be set without a loss takes it from whoever sets it, on
/// the way out and back, in this evacuation and in others.
pub(super) fn check_mixed(runbooks: &Runbooks, scopes: &[Scope<'_>], problems: &mut Problems) {
    let all: Vec<Setting<'_>> = scopes.iter().flat_map(|scope| settings(runbooks, scope)).collect();
    let mut fenced: BTreeMap<&str, &Setting<'_>> = BTreeMap::new();
    for setting in all.iter().filter(|setting| setting.is_fenced) {
        fenced.entry(&setting.knob).or_insert(setting);
    }
    for setting in all.iter().filter(|setting| !setting.is_fenced) {
        let Some(other) = fenced.get(setting.knob.as_str()) else { continue };
        problems.error(
            setting.task.name.at,
            format!(
                "{} sets `{}` without a fence, and {} behind one: writes that have not arrived \
                 are lost",
                setting.name(),
                setting.shown,
                other.name()
            ),
            "accepted: `Promote` with `fence` and `caught_up` in both; without a fence in both \
             only if the store fences by itself",
        );
    }
}

/// A knob that a task sets.
struct Setting<'a> {
    direction: Direction,
    service: &'a Service,
    task: &'a Task,
    knob: String,
    /// As people wrote it.
    shown: String,
    is_fenced: bool,
}

impl Setting<'_> {
    fn name(&self) -> String {
        let direction = match self.direction {
            Direction::Drain => "drain",
            Direction::Restore => "restore",
        };
        format!("`{}.{}` of the {direction}", self.service.name.value, self.task.name.value)
    }
}

fn settings<'a>(runbooks: &Runbooks, scope: &Scope<'a>) -> Vec<Setting<'a>> {
    let mut settings = Vec::new();
    for service in &scope.services {
        let tasks = DIRECTIONS.map(|direction| (direction, service.tasks(direction)));
        let tasks = tasks
            .iter()
            .flat_map(|(direction, tasks)| tasks.iter().map(move |task| (*direction, task)));
        for (direction, task) in tasks {
            // What cannot be expanded is said to be unchecked by `check_expansion`.
            let expanded =
                [scope.dc(), SYMBOLIC].map(|dc| expand_task(runbooks, service, task, dc));
            let [Some(stages), Some(shown)] = expanded else { continue };
            let fences = fences(&stages);
            let open = reached_open(&stages, &fences);
            for (at, (stage, shown)) in stages.iter().zip(&shown).enumerate() {
                for ((knob, _), (shown, _)) in writes(stage).into_iter().zip(writes(shown)) {
                    if fences.iter().any(|fence| fence.knob == knob) {
                        continue;
                    }
                    settings.push(Setting {
                        direction,
                        service,
                        task,
                        knob: knob.to_owned(),
                        shown: shown.to_owned(),
                        is_fenced: !open.contains(&at),
                    });
                }
            }
        }
    }
    settings
}

/// A switch that a task closes.
struct Fence<'s> {
    knob: &'s str,
    closed: &'s Aim,
}

/// The same that a plan takes for fences: what a task puts back when it gives up, and
/// what it sets one way and then another around what is not interrupted.
fn fences(stages: &[ExpandedStage]) -> Vec<Fence<'_>> {
    let mut fences: Vec<Fence<'_>> = Vec::new();
    let has_more = stages.iter().any(|stage| !stage.is_interruptible);
    for (knob, closed) in stages.iter().filter_map(set) {
        let is_opened = || {
            let mut values = stages.iter().filter_map(set).filter(|(own, _)| *own == knob);
            values.any(|(_, value)| value != closed)
        };
        let is_lifted = || {
            stages.iter().any(|stage| {
                matches!(&stage.work, Work::PutBack { knob: own } if own == knob)
                    && gives_up(stages, stage.done)
            })
        };
        let is_known = fences.iter().any(|fence| fence.knob == knob);
        if !is_known && (is_lifted() || has_more && is_opened()) {
            fences.push(Fence { knob, closed });
        }
    }
    fences
}

fn set(stage: &ExpandedStage) -> Option<(&str, &Aim)> {
    match &stage.work {
        Work::Set { knob, to, .. } => Some((knob, to)),
        _ => None,
    }
}

/// Whether a way that leads on there ends in failure.
fn gives_up(stages: &[ExpandedStage], mut next: Next) -> bool {
    for _ in stages {
        match next {
            Next::Exit(exit) => return exit == Exit::Failed,
            Next::Stage(stage) => next = stages[stage.index()].done,
        }
    }
    false
}

/// The stages that a task can come to with its fences open.
fn reached_open(stages: &[ExpandedStage], fences: &[Fence<'_>]) -> BTreeSet<usize> {
    // Of several fences one that is opened counts: it is the last one as a rule.
    let closes = |stage: &ExpandedStage, is_closed: bool| match &stage.work {
        Work::Set { knob, to, .. } => {
            let fence = fences.iter().find(|fence| fence.knob == knob);
            fence.map_or(is_closed, |fence| fence.closed == to)
        }
        Work::PutBack { knob } => is_closed && !fences.iter().any(|fence| fence.knob == knob),
        _ => is_closed,
    };
    let reached = walk(stages, closes);
    reached.into_iter().filter(|(_, is_closed)| !is_closed).map(|(at, _)| at).collect()
}

/// The stages that a task can come to, each with whether something is closed then, and
/// the number of stages for the end. `closes` says how it is after a stage that is done.
fn walk(
    stages: &[ExpandedStage],
    closes: impl Fn(&ExpandedStage, bool) -> bool,
) -> BTreeSet<(usize, bool)> {
    let place = |next: Next| match next {
        Next::Stage(stage) => Some(stage.index()),
        Next::Exit(Exit::Done) => Some(stages.len()),
        Next::Exit(Exit::Failed) => None,
    };
    let (mut reached, mut open) = (BTreeSet::new(), vec![(0, false)]);
    while let Some((at, is_closed)) = open.pop() {
        if !reached.insert((at, is_closed)) {
            continue;
        }
        let Some(stage) = stages.get(at) else { continue };
        // What has not been done may be done all the same: it counts as before.
        let ways = [
            (stage.done, closes(stage, is_closed)),
            (stage.failed, is_closed),
            (stage.late, is_closed),
        ];
        open.extend(ways.into_iter().filter_map(|(next, closed)| Some((place(next)?, closed))));
    }
    reached
}
