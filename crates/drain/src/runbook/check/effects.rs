//! What drains change, and whether something changes it back. Barriers that
//! nobody else comes to.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Runbooks;
use super::super::expand::{Aim, ExpandedStage, Work, expand};
use super::super::problem::{Place, Problems};
use super::super::spec::{Service, Task};
use super::super::words::{self, Piece, nearest};
use super::{DIRECTIONS, Scope};
use crate::plan::Direction;

/// A knob that a stage writes, and where it leaves it if that is known. Not
/// what comes back by itself.
pub(super) fn writes(stage: &ExpandedStage) -> Vec<(&str, Option<&Aim>)> {
    match &stage.work {
        Work::Shift { knob, to, returns: false } | Work::Set { knob, to, returns: false, .. } => {
            vec![(knob, Some(to))]
        }
        Work::Act { changes, .. } => changes.iter().map(|knob| (knob.as_str(), None)).collect(),
        _ => Vec::new(),
    }
}

/// Coverage of effects, not of tasks: one restore may undo what three drains
/// did, and a service may restore what another one drained, if the evacuation
/// has both. Each evacuation is looked at with its own datacenter in the place of
/// `$dc`, so that `edge:web/east` undoes `edge:web/$dc` where east is drained.
pub(super) fn check_undone(runbooks: &Runbooks, scopes: &[Scope<'_>], problems: &mut Problems) {
    let mut found: BTreeMap<(Place, String), Uncovered> = BTreeMap::new();
    for scope in scopes {
        for (at, shown, uncovered) in uncovered(runbooks, scope) {
            let known = found.entry((at, shown)).or_insert(uncovered);
            // A task may change it more than once.
            known
                .evacuations
                .extend(scope.datacenter().filter(|own| !known.evacuations.contains(own)));
        }
    }
    let mut said = BTreeSet::new();
    for ((at, knob), Uncovered { name, service, flaw, evacuations }) in found {
        if !said.insert(knob.clone()) {
            continue;
        }
        let of = evacuations_of(runbooks, &service, &evacuations);
        match flaw {
            Flaw::StaysThere => problems.error(
                at,
                format!("the restore of `{knob}` leaves it where `{name}` put it{of}"),
                "restore it to another value, or to `original`",
            ),
            Flaw::NotUndone { near } => {
                let near = near.map_or(String::new(), |near| format!("; one writes `{near}`"));
                problems.error(
                    at,
                    format!("`{name}` changes `{knob}`, and no restore puts it back{of}"),
                    format!("add a restore task that writes it, `to: original`{near}"),
                );
            }
            Flaw::Undecided { why } => problems.warning(
                at,
                format!(
                    "`{name}` changes `{knob}`, and whether a restore puts it back is not known: \
                     {why}{of}"
                ),
                "repair that first",
            ),
        }
    }
}

/// A knob that a drain changes and that no restore is known to put back.
struct Uncovered {
    /// Of the task.
    name: String,
    service: String,
    flaw: Flaw,
    /// The datacenters whose evacuations have it.
    evacuations: Vec<String>,
}

enum Flaw {
    /// A restore writes the value that the drain wrote.
    StaysThere,
    NotUndone {
        near: Option<String>,
    },
    Undecided {
        why: String,
    },
}

/// ` in the evacuation of …`, if others of the service do not have the flaw.
fn evacuations_of(runbooks: &Runbooks, service: &str, flawed: &[String]) -> String {
    let all = runbooks
        .evacuations
        .iter()
        .filter(|evacuation| evacuation.services.iter().any(|name| name.value == service));
    if flawed.len() == all.count() {
        return String::new();
    }
    let names: Vec<_> = flawed.iter().map(|name| format!("`{name}`")).collect();
    format!(", in the evacuation of {}", names.join(", "))
}

/// The services whose restores count: all of them where no evacuation says which run.
pub(super) fn restoring<'a>(runbooks: &'a Runbooks, scope: &Scope<'a>) -> Vec<&'a Service> {
    match scope.evacuation {
        Some(_) => scope.services.clone(),
        None => runbooks.services.iter().collect(),
    }
}

/// What one evacuation does not undo, by place and by the knob as it is written.
fn uncovered(runbooks: &Runbooks, scope: &Scope<'_>) -> Vec<(Place, String, Uncovered)> {
    let restoring = restoring(runbooks, scope);
    let (restores, unknown) = written(runbooks, &restoring, scope.dc(), Direction::Restore);
    let mut undone: BTreeMap<&str, Vec<&Option<Aim>>> = BTreeMap::new();
    for restore in &restores {
        undone.entry(&restore.knob).or_default().push(&restore.aim);
    }
    let (drains, _) = written(runbooks, &scope.services, scope.dc(), Direction::Drain);
    let mut uncovered = Vec::new();
    for drain in &drains {
        let flaw = match undone.get(drain.knob.as_str()) {
            Some(restores) => {
                let moved_on = |other: &&Option<Aim>| other.is_none() || **other != drain.aim;
                if !matches!(drain.aim, Some(Aim::Value(_))) || restores.iter().any(moved_on) {
                    continue;
                }
                Flaw::StaysThere
            }
            None if has_unknown_variable(&drain.knob) => {
                Flaw::Undecided { why: "the knob has an unknown variable".into() }
            }
            None => match unknown.first() {
                Some((service, task)) => Flaw::Undecided {
                    why: format!(
                        "the restore task `{}.{}` does not fit its template",
                        service.name.value, task.name.value
                    ),
                },
                None => Flaw::NotUndone {
                    near: nearest(&drain.shown, restores.iter().map(|other| other.shown.as_str()))
                        .map(str::to_owned),
                },
            },
        };
        let name = drain.name();
        let service = drain.service.name.value.clone();
        uncovered.push((
            drain.task.name.at,
            drain.shown.clone(),
            Uncovered { name, service, flaw, evacuations: Vec::new() },
        ));
    }
    uncovered
}

fn has_unknown_variable(knob: &str) -> bool {
    let mut pieces = words::pieces(knob).into_iter();
    pieces.any(|(_, _, piece)| matches!(piece, Piece::Variable(name) if name != "dc"))
}

/// A knob that a task writes.
pub(super) struct Written<'a> {
    service: &'a Service,
    pub task: &'a Task,
    /// With a datacenter in the place of `$dc`.
    pub knob: String,
    /// As people wrote it.
    shown: String,
    pub aim: Option<Aim>,
}

impl Written<'_> {
    /// Of the task.
    pub fn name(&self) -> String {
        format!("{}.{}", self.service.name.value, self.task.name.value)
    }
}

/// What the tasks of a direction write, and the tasks of which that is not known.
pub(super) fn written<'a>(
    runbooks: &Runbooks,
    services: &[&'a Service],
    dc: &str,
    direction: Direction,
) -> (Vec<Written<'a>>, Vec<(&'a Service, &'a Task)>) {
    let (mut all, mut unknown) = (Vec::new(), Vec::new());
    for service in services {
        for task in service.tasks(direction) {
            let expanded = [dc, SYMBOLIC].map(|dc| expand_task(runbooks, service, task, dc));
            let [Some(stages), Some(shown)] = expanded else {
                unknown.push((*service, task));
                continue;
            };
            let pairs = stages.iter().flat_map(writes).zip(shown.iter().flat_map(writes));
            all.extend(pairs.map(|((knob, aim), (shown, _))| Written {
                service,
                task,
                knob: knob.to_owned(),
                shown: shown.to_owned(),
                aim: aim.cloned(),
            }));
        }
    }
    (all, unknown)
}

/// In the place of a datacenter where it does not matter which.
pub(super) const SYMBOLIC: &str = "$dc";

pub(super) fn expand_task(
    runbooks: &Runbooks,
    service: &Service,
    task: &Task,
    dc: &str,
) -> Option<Vec<ExpandedStage>> {
    let template = runbooks.template(&task.template.as_ref()?.value)?;
    expand(template, task, &service.name.value, dc)
}

/// A barrier is for several tasks.
pub(super) fn check_barriers(runbooks: &Runbooks, scope: &Scope<'_>, problems: &mut Problems) {
    for direction in DIRECTIONS {
        let mut barriers: BTreeMap<String, Vec<(&Service, &Task)>> = BTreeMap::new();
        let mut unknown = None;
        for service in &scope.services {
            for task in service.tasks(direction) {
                let stages = expand_task(runbooks, service, task, SYMBOLIC);
                if stages.is_none() {
                    unknown = Some(format!("{}.{}", service.name.value, task.name.value));
                }
                for stage in stages.into_iter().flatten() {
                    if let Work::Barrier(name) = stage.work {
                        barriers.entry(name).or_default().push((service, task));
                    }
                }
            }
        }
        for (barrier, tasks) in barriers {
            let [(service, task)] = tasks.as_slice() else { continue };
            let what = format!(
                "only `{}.{}` comes to the barrier `{barrier}`",
                service.name.value, task.name.value
            );
            match &unknown {
                None => problems.error(
                    task.name.at,
                    what,
                    "give the barrier to the tasks it should wait for, or drop it",
                ),
                Some(unknown) => problems.warning(
                    task.name.at,
                    format!("{what}, unless `{unknown}` does, which does not fit its template"),
                    format!("repair `{unknown}` first"),
                ),
            }
        }
    }
}
