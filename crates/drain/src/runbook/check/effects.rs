//! What drains change, and whether something changes it back. Barriers that
//! nobody else comes to.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Runbooks;
use super::super::expand::{Aim, ExpandedStage, Work, expand};
use super::super::problem::Problems;
use super::super::spec::{Service, Task};
use super::super::words::{self, Piece, nearest};
use super::{DIRECTIONS, Scope};
use crate::plan::Direction;

/// A knob that a stage writes, and where it leaves it if that is known. Not
/// what comes back by itself.
fn writes(stage: &ExpandedStage) -> Vec<(&str, Option<&Aim>)> {
    match &stage.work {
        Work::Shift { knob, to, returns: false } | Work::Set { knob, to, returns: false } => {
            vec![(knob, Some(to))]
        }
        Work::Act { changes, .. } => changes.iter().map(|knob| (knob.as_str(), None)).collect(),
        _ => Vec::new(),
    }
}

/// Coverage of effects, not of tasks: one restore may undo what three drains
/// did, and a service may restore what another one drained.
pub(super) fn check_undone(runbooks: &Runbooks, problems: &mut Problems) {
    // What cannot be expanded was noted, and might undo anything.
    let Some(restores) = expanded(runbooks, Direction::Restore) else { return };
    let mut undone: BTreeMap<&str, Vec<Option<&Aim>>> = BTreeMap::new();
    for (knob, aim) in restores.iter().flat_map(|(_, _, stages)| stages).flat_map(writes) {
        undone.entry(knob).or_default().push(aim);
    }
    let mut said = BTreeSet::new();
    for service in &runbooks.services {
        for task in &service.drain {
            let Some(stages) = expand_task(runbooks, service, task) else { continue };
            for (knob, aim) in stages.iter().flat_map(writes) {
                let name = format!("{}.{}", service.name.value, task.name.value);
                match undone.get(knob) {
                    _ if said.contains(knob) || has_unknown_variable(knob) => continue,
                    Some(restores) => {
                        let moved_on = |other: &Option<&Aim>| other.is_none() || *other != aim;
                        if !matches!(aim, Some(Aim::Value(_))) || restores.iter().any(moved_on) {
                            continue;
                        }
                        problems.error(
                            task.name.at,
                            format!("the restore of `{knob}` leaves it where `{name}` put it"),
                            "restore it to another value, or to `original`",
                        );
                    }
                    None => {
                        let near = nearest(knob, undone.keys().copied());
                        let near =
                            near.map_or(String::new(), |near| format!("; one writes `{near}`"));
                        problems.error(
                            task.name.at,
                            format!("`{name}` changes `{knob}`, and no restore puts it back"),
                            format!("add a restore task that writes it, `to: original`{near}"),
                        );
                    }
                }
                said.insert(knob.to_owned());
            }
        }
    }
}

/// Such a knob is nobody's: its variable was noted.
fn has_unknown_variable(knob: &str) -> bool {
    let mut pieces = words::pieces(knob).into_iter();
    pieces.any(|(_, _, piece)| matches!(piece, Piece::Variable(name) if name != "dc"))
}

type Expanded<'a> = (&'a Service, &'a Task, Vec<ExpandedStage>);

/// All tasks of a direction. `None` if one of them cannot be expanded.
fn expanded(runbooks: &Runbooks, direction: Direction) -> Option<Vec<Expanded<'_>>> {
    let mut all = Vec::new();
    for service in &runbooks.services {
        for task in service.tasks(direction) {
            all.push((service, task, expand_task(runbooks, service, task)?));
        }
    }
    Some(all)
}

pub(super) fn expand_task(
    runbooks: &Runbooks,
    service: &Service,
    task: &Task,
) -> Option<Vec<ExpandedStage>> {
    let template = runbooks.template(&task.template.as_ref()?.value)?;
    expand(template, task, &service.name.value, "$dc")
}

/// A barrier is for several tasks.
pub(super) fn check_barriers(runbooks: &Runbooks, scope: &Scope<'_>, problems: &mut Problems) {
    for direction in DIRECTIONS {
        let mut barriers: BTreeMap<String, Vec<(&Service, &Task)>> = BTreeMap::new();
        for service in &scope.services {
            for task in service.tasks(direction) {
                // Whether others come to it is not known then.
                let Some(stages) = expand_task(runbooks, service, task) else { return };
                for stage in stages {
                    if let Work::Barrier(name) = stage.work {
                        barriers.entry(name).or_default().push((service, task));
                    }
                }
            }
        }
        for (barrier, tasks) in barriers {
            if let [(service, task)] = tasks.as_slice() {
                problems.error(
                    task.name.at,
                    format!(
                        "only `{}.{}` comes to the barrier `{barrier}`",
                        service.name.value, task.name.value
                    ),
                    "give the barrier to the tasks it should wait for, or drop it",
                );
            }
        }
    }
}
