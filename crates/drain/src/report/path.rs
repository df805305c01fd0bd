//! Why a run took as long as it did: the chain of tasks of which each waited
//! for the one before, and what would have been without one of its links.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::engine::{Mode, State};
use crate::plan::{Plan, TaskId};
use crate::time::{Millis, Time};

/// A dependency, and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostlyEdge {
    pub task: String,
    pub after: String,
    pub is_weak: bool,
    /// How much shorter the run would have been without it.
    pub saves: Millis,
}

/// The critical path of a run, first task first: from the task that ended last
/// back through whichever parent each had to wait for.
pub fn critical(plan: &Plan, state: &State) -> Vec<TaskId> {
    let end = |id: &TaskId| {
        let own = state.task(*id);
        own.started.and(own.ended)
    };
    let mut at = plan.task_ids().filter(|id| end(id).is_some()).max_by_key(|id| end(id));
    let mut path = Vec::new();
    while let Some(task) = at {
        path.push(task);
        at = waited_for(plan, state, task).filter(|id| end(id).is_some()).max_by_key(end);
    }
    path.reverse();
    path
}

/// Parents that a task waited for.
fn waited_for(plan: &Plan, state: &State, task: TaskId) -> impl Iterator<Item = TaskId> {
    let own = plan.task(task);
    let weak = if state.mode == Mode::Drill { &own.after_weak[..] } else { &[] };
    own.after.iter().chain(weak).copied()
}

/// The link of the critical path without which the run would have been
/// shortest, if any.
pub fn costliest(plan: &Plan, state: &State, critical: &[TaskId]) -> Option<CostlyEdge> {
    let whole = makespan(plan, state, None);
    let links = critical.windows(2).map(|link| (link[0], link[1]));
    let (saves, (parent, task)) = links
        .map(|link| (Millis(whole.0.saturating_sub(makespan(plan, state, Some(link)).0)), link))
        .max_by_key(|(saves, _)| *saves)?;
    (saves > Millis::ZERO).then(|| CostlyEdge {
        task: plan.task(task).name.clone(),
        after: plan.task(parent).name.clone(),
        is_weak: plan.task(task).after_weak.contains(&parent),
        saves,
    })
}

/// How long the run takes if every task takes as long as it did, and starts as
/// long after its parents as it did, without one link.
fn makespan(plan: &Plan, state: &State, without: Option<(TaskId, TaskId)>) -> Millis {
    let mut ends: BTreeMap<TaskId, Millis> = BTreeMap::new();
    // Parents come first in a plan.
    for id in plan.task_ids() {
        let own = state.task(id);
        let Some((started, ended)) = own.started.zip(own.ended) else { continue };
        let real = waited_for(plan, state, id).filter_map(|parent| state.task(parent).ended);
        let ready = real.max().or(state.opened).unwrap_or(Time(0));
        let parents = waited_for(plan, state, id).filter(|parent| without != Some((*parent, id)));
        let begins = parents.filter_map(|parent| ends.get(&parent)).max().copied();
        let end = begins.unwrap_or_default() + (started - ready) + (ended - started);
        ends.insert(id, end);
    }
    ends.into_values().max().unwrap_or_default()
}
