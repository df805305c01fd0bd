//! Why a run took as long as it did: the chain of tasks of which each waited
//! for the one before, and what would have been without one of its links.

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
    let course = Course::of(plan, state);
    let whole = course.makespan(None);
    let links = critical.windows(2).map(|link| (link[0], link[1]));
    let (saves, (parent, task)) = links
        .map(|link| (Millis(whole.0.saturating_sub(course.makespan(Some(link)).0)), link))
        .max_by_key(|(saves, _)| *saves)?;
    (saves > Millis::ZERO).then(|| CostlyEdge {
        task: plan.task(task).name.clone(),
        after: plan.task(parent).name.clone(),
        is_weak: plan.task(task).after_weak.contains(&parent),
        saves,
    })
}

/// What a run would have been if one link were missing, and every task took as
/// long, and started as long after its parents, as it did. Asked once for each
/// link of the critical path, which may have as many as there are tasks.
struct Course {
    /// Tasks that ran, parents first.
    tasks: Vec<Ran>,
    /// How many tasks the plan has.
    planned: usize,
}

struct Ran {
    id: TaskId,
    parents: Vec<TaskId>,
    /// From the end of its last parent to its own, or longer if it began before that.
    took: Millis,
}

impl Course {
    fn of(plan: &Plan, state: &State) -> Self {
        let ran = |id: TaskId| {
            let (started, ended) = state.task(id).started.zip(state.task(id).ended)?;
            let parents: Vec<TaskId> = waited_for(plan, state, id).collect();
            let real = parents.iter().filter_map(|parent| state.task(*parent).ended);
            let ready = real.max().or(state.opened).unwrap_or(Time(0));
            Some(Ran { id, parents, took: (started - ready) + (ended - started) })
        };
        // Parents come first in a plan.
        Course { tasks: plan.task_ids().filter_map(ran).collect(), planned: plan.tasks.len() }
    }

    fn makespan(&self, without: Option<(TaskId, TaskId)>) -> Millis {
        let mut ends = vec![Millis::ZERO; self.planned];
        for ran in &self.tasks {
            let parents = ran.parents.iter().filter(|from| without != Some((**from, ran.id)));
            let begins = parents.map(|parent| ends[parent.index()]).max();
            ends[ran.id.index()] = begins.unwrap_or_default() + ran.took;
        }
        ends.into_iter().max().unwrap_or_default()
    }
}
