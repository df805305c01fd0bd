//! What came of one simulated run, for people and for plots.

use std::collections::BTreeMap;

use drain::engine::{Fact, Record, RunOutcome, State};
use drain::{Direction, Plan, TaskId, Time};
use serde::Serialize;

use super::world::{Gauge, World};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub world: String,
    pub datacenter: String,
    pub direction: Direction,
    pub seed: u64,
    pub ablations: Vec<&'static str>,
    /// `None`: it was not over when the simulation gave up on it.
    pub outcome: Option<RunOutcome>,
    pub makespan_secs: f64,
    /// No plan with these dependencies can be faster in this world: the longest
    /// chain, each task as long as it takes alone.
    pub lower_bound_secs: f64,
    /// The tasks that the end of the run had to wait for.
    pub critical_path: Vec<String>,
    pub peak_utilisation: BTreeMap<String, f64>,
    #[serde(flatten)]
    pub user_errors: UserErrors,
    /// Steps of all shifts.
    pub steps: u32,
    pub tasks: Vec<TaskReport>,
    #[serde(skip_serializing_if = "Series::is_empty")]
    pub series: Series,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct UserErrors {
    #[serde(rename = "user_requests")]
    pub requests: f64,
    #[serde(rename = "user_errors")]
    pub failed: f64,
    #[serde(rename = "user_error_share")]
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskReport {
    pub name: String,
    pub template: String,
    pub started_secs: Option<f64>,
    pub ended_secs: Option<f64>,
    /// How long it takes when nobody else does anything; `None` if it does not
    /// end then, or nobody tried.
    pub alone_secs: Option<f64>,
    pub steps: u32,
    pub breaches: u32,
}

/// Lines over time, by name: `utilisation/a`, `traffic/web`, and for datacenters
/// that stay `elsewhere/web/b`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    pub secs: Vec<f64>,
    pub lines: BTreeMap<String, Vec<f64>>,
}

impl Series {
    pub fn is_empty(&self) -> bool {
        self.secs.is_empty()
    }

    fn add(&mut self, name: String, value: f64) {
        self.lines.entry(name).or_default().push(value);
    }

    /// Takes what a world is like. Traffic and primaries are those of the
    /// datacenter that is drained.
    pub fn take(&mut self, world: &World, start: Time, drained: usize) {
        self.secs.push((world.now() - start).as_secs_f64());
        let site = world.site.clone();
        for (at, place) in site.datacenters.iter().enumerate() {
            self.add(format!("utilisation/{}", place.name), world.utilisation(at));
        }
        for (at, service) in site.services.iter().enumerate() {
            let traffic = world.measure(&Gauge::Traffic(at, drained));
            self.add(format!("traffic/{}", service.name), traffic);
            self.add(format!("errors/{}", service.name), world.measure(&Gauge::Errors(at, None)));
            self.add(format!("multiplier/{}", service.name), world.multiplier(at, drained));
            if service.sessions.is_some() {
                self.add(format!("staying/{}", service.name), world.staying(at, drained));
            }
            for (other, place) in site.datacenters.iter().enumerate() {
                if other != drained {
                    let traffic = world.measure(&Gauge::Traffic(at, other));
                    self.add(format!("elsewhere/{}/{}", service.name, place.name), traffic);
                }
            }
        }
        for (at, store) in site.stores.iter().enumerate() {
            let primaries = world.measure(&Gauge::Primaries(at, drained));
            self.add(format!("primaries/{}", store.name), primaries);
            self.add(format!("backlog/{}", store.name), world.measure(&Gauge::Backlog(at, None)));
        }
        for (at, link) in site.links.iter().enumerate() {
            self.add(format!("link/{}", link.name), world.measure(&Gauge::Link(at)));
            self.add(format!("replication/{}", link.name), world.replication(at));
        }
    }
}

/// How a run ended and when, in seconds from its beginning.
pub fn ended(log: &[Record]) -> (Option<RunOutcome>, f64) {
    let (Some(first), Some(last)) = (log.first(), log.last()) else { return (None, 0.0) };
    let outcome = match last.fact {
        Fact::Closed { outcome } => Some(outcome),
        _ => None,
    };
    (outcome, (last.at - first.at).as_secs_f64())
}

/// The tasks that the last one had to wait for, one after the other: of the
/// parents of each, the one that ended last.
pub fn critical_path(plan: &Plan, state: &State) -> Vec<TaskId> {
    let ended = |task: &TaskId| state.task(*task).ended;
    let mut path = Vec::new();
    let mut next = plan.task_ids().max_by_key(ended);
    while let Some(task) = next {
        path.push(task);
        next = plan.task(task).parents().max_by_key(ended);
    }
    path.reverse();
    path
}

/// The length of the longest chain of tasks, each as long as it is said to be.
/// One of which nothing is known counts as no time at all: a bound must be one.
pub fn longest_chain(plan: &Plan, secs: &[Option<f64>]) -> f64 {
    let mut ends: Vec<f64> = Vec::with_capacity(plan.tasks.len());
    for (task, own) in plan.tasks.iter().zip(secs) {
        let begins = task.parents().map(|parent| ends[parent.index()]).fold(0.0, f64::max);
        ends.push(begins + own.unwrap_or(0.0));
    }
    ends.into_iter().fold(0.0, f64::max)
}
