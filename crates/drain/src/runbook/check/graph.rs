//! What waits for what: tasks that nobody defines, that wait for each other, or
//! that can never start.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::Runbooks;
use super::super::expand::Work;
use super::super::problem::{Place, Placed, Problems, Severity};
use super::super::spec::{Service, Task};
use super::super::words::did_you_mean;
use super::effects::{SYMBOLIC, expand_task};
use super::{DIRECTIONS, Scope};
use crate::plan::Direction;

/// Cycles said of one graph. After so many the rest is hardly read.
const CYCLES_MAX: usize = 20;

pub(super) fn check(runbooks: &Runbooks, scope: &Scope<'_>, problems: &mut Problems) {
    let [drain, restore] = DIRECTIONS.map(|direction| {
        let mut graph = Graph::new(runbooks, scope, direction);
        graph.join(problems);
        graph.check_strength(problems);
        graph
    });
    check_turn(&drain, &restore, problems);
    for mut graph in [drain, restore] {
        let blocked = graph.check_cycles(problems);
        graph.check_reach(blocked, problems);
        graph.check_meetings(problems);
    }
}

/// Which tasks begin only after others are complete.
pub(super) struct Order {
    index: HashMap<String, usize>,
    parents: Vec<Vec<usize>>,
}

impl Order {
    pub fn new(
        runbooks: &Runbooks,
        scope: &Scope<'_>,
        direction: Direction,
        problems: &Problems,
    ) -> Order {
        let mut graph = Graph::new(runbooks, scope, direction);
        // What is wrong with dependencies is noted by `check`.
        graph.join(&mut Problems::of_files(problems.files()));
        Order { parents: graph.parents(), index: graph.index }
    }

    /// Whether a task begins after another one; both as `service.task`.
    pub fn is_after(&self, task: &str, other: &str) -> bool {
        let [Some(task), Some(other)] = [task, other].map(|name| self.index.get(name)) else {
            return false;
        };
        ancestors(*task, &self.parents).contains(other)
    }
}

struct Graph<'a> {
    runbooks: &'a Runbooks,
    scope: &'a Scope<'a>,
    direction: Direction,
    nodes: Vec<(&'a Service, &'a Task)>,
    index: HashMap<String, usize>,
    edges: Vec<Edge>,
    /// Tasks that wait for something that is not there.
    lost: Vec<usize>,
}

/// Why a task that is named was not found.
struct Lost {
    severity: Severity,
    what: String,
    remedy: String,
}

impl Lost {
    fn error(what: String, remedy: impl Into<String>) -> Lost {
        Lost { severity: Severity::Error, what, remedy: remedy.into() }
    }

    fn note(self, at: Place, problems: &mut Problems) {
        match self.severity {
            Severity::Error => problems.error(at, self.what, self.remedy),
            Severity::Warning => problems.warning(at, self.what, self.remedy),
        }
    }
}

/// One task waits for another.
#[derive(Clone, Copy)]
struct Edge {
    waits: usize,
    for_: usize,
    weak: bool,
    at: Place,
}

impl<'a> Graph<'a> {
    fn new(runbooks: &'a Runbooks, scope: &'a Scope<'a>, direction: Direction) -> Graph<'a> {
        let nodes: Vec<_> = scope
            .services
            .iter()
            .flat_map(|service| service.tasks(direction).iter().map(|task| (*service, task)))
            .collect();
        let mut index = HashMap::new();
        for (at, (service, task)) in nodes.iter().enumerate() {
            index.entry(format!("{}.{}", service.name.value, task.name.value)).or_insert(at);
        }
        Graph { runbooks, scope, direction, nodes, index, edges: Vec::new(), lost: Vec::new() }
    }

    fn name(&self, node: usize) -> String {
        let (service, task) = self.nodes[node];
        format!("{}.{}", service.name.value, task.name.value)
    }

    /// Takes every dependency that the files state.
    fn join(&mut self, problems: &mut Problems) {
        for node in 0..self.nodes.len() {
            let (service, task) = self.nodes[node];
            let home = Some(service.name.value.as_str());
            for (list, weak) in [(&task.after, false), (&task.after_weak, true)] {
                self.wait(node, home, list, weak, problems);
            }
        }
        for join in self.scope.joins(self.direction) {
            match self.find(None, &join.task) {
                Ok(node) => {
                    for (list, weak) in [(&join.after, false), (&join.after_weak, true)] {
                        self.wait(node, None, list, weak, problems);
                    }
                }
                Err(fault) => {
                    let others = join.after.iter().chain(&join.after_weak);
                    let others = others.map(|name| (name, self.find(None, name)));
                    let all = std::iter::once((&join.task, Err(fault))).chain(others);
                    for (name, found) in all {
                        if let Err(lost) = found {
                            lost.note(name.at, problems);
                        }
                    }
                }
            }
        }
    }

    fn wait(
        &mut self,
        waits: usize,
        home: Option<&str>,
        list: &[Placed<String>],
        weak: bool,
        problems: &mut Problems,
    ) {
        for (at, reference) in list.iter().enumerate() {
            if list[..at].iter().any(|earlier| earlier.value == reference.value) {
                problems.error(
                    reference.at,
                    format!("`{}` is listed twice", reference.value),
                    "keep one of them",
                );
                continue;
            }
            match self.find(home, reference) {
                Ok(for_) => self.edges.push(Edge { waits, for_, weak, at: reference.at }),
                Err(lost) => {
                    // What may be in a file that could not be read may complete.
                    if lost.severity == Severity::Error {
                        self.lost.push(waits);
                    }
                    lost.note(reference.at, problems);
                }
            }
        }
    }

    /// The task that is meant.
    fn find(&self, home: Option<&str>, reference: &Placed<String>) -> Result<usize, Lost> {
        let (service, task) = match (reference.value.split_once('.'), home) {
            (Some((service, task)), _) => (service, task),
            (None, Some(home)) => (home, reference.value.as_str()),
            (None, None) => {
                return Err(Lost::error(
                    format!("`{}` does not say whose task it is", reference.value),
                    "accepted: `service.task`",
                ));
            }
        };
        if let Some(node) = self.index.get(&format!("{service}.{task}")) {
            return Ok(*node);
        }
        if self.scope.services.iter().any(|known| known.name.value == service) {
            let own = self.nodes.iter().filter(|(known, _)| known.name.value == service);
            let known: Vec<_> = own.map(|(_, task)| task.name.value.as_str()).collect();
            let direction = match self.direction {
                Direction::Drain => "drain",
                Direction::Restore => "restore",
            };
            return Err(Lost::error(
                format!("`{service}` has no {direction} task `{task}`"),
                did_you_mean(task, known),
            ));
        }
        match (self.runbooks.service(service), self.scope.evacuation) {
            (Some(_), Some(evacuation)) => Err(Lost::error(
                format!(
                    "`{service}` is not part of the evacuation of `{}`",
                    evacuation.datacenter.value
                ),
                format!("add `{service}` to its `services`, or drop the dependency"),
            )),
            _ if self.runbooks.incomplete => {
                let (what, remedy) = super::unread(&format!("the service `{service}`"));
                Err(Lost { severity: Severity::Warning, what, remedy })
            }
            _ => {
                let known: Vec<_> =
                    self.runbooks.services.iter().map(|known| known.name.value.as_str()).collect();
                Err(Lost::error(
                    format!("there is no service `{service}`"),
                    did_you_mean(service, known),
                ))
            }
        }
    }

    /// A dependency is strong or weak, not both.
    fn check_strength(&self, problems: &mut Problems) {
        let mut first: BTreeMap<(usize, usize), Edge> = BTreeMap::new();
        for edge in &self.edges {
            let earlier = *first.entry((edge.waits, edge.for_)).or_insert(*edge);
            if earlier.weak != edge.weak {
                let shown = problems.show(earlier.at);
                problems.error(
                    edge.at,
                    format!(
                        "`{}` waits for `{}` both strongly and weakly, first at {shown}",
                        self.name(edge.waits),
                        self.name(edge.for_)
                    ),
                    "keep it under `after` or under `after_weak`, not both",
                );
            }
        }
    }

    /// Says every cycle, and takes it apart at the place where it is said.
    /// Returns the tasks that are part of one.
    fn check_cycles(&mut self, problems: &mut Problems) -> Vec<usize> {
        let mut cyclic = Vec::new();
        for _ in 0..CYCLES_MAX {
            let left = self.never_ready();
            let Some(cycle) = self.cycle(&left) else { break };
            let Some(start) = (0..cycle.len()).min_by_key(|at| self.edges[cycle[*at]].at) else {
                break;
            };
            let mut path: Vec<_> = (0..cycle.len())
                .map(|step| self.edges[cycle[(start + step) % cycle.len()]].waits)
                .collect();
            path.push(path[0]);
            let names: Vec<_> = path.iter().map(|node| self.name(*node)).collect();
            problems.error(
                self.edges[cycle[start]].at,
                format!("these tasks wait for each other: {}", names.join(" → ")),
                "take one of these dependencies out",
            );
            cyclic.extend(path);
            self.edges.remove(cycle[start]);
        }
        let left = self.never_ready();
        if let Some(edge) = self.cycle(&left).and_then(|cycle| cycle.first().copied()) {
            problems.error(
                self.edges[edge].at,
                format!("more than {CYCLES_MAX} rounds of tasks wait for each other"),
                "repair those that are listed, then check again for the rest",
            );
        }
        cyclic
    }

    /// Tasks that are part of a cycle, or behind one.
    fn never_ready(&self) -> Vec<bool> {
        let mut waits_for = vec![0usize; self.nodes.len()];
        let mut children = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            waits_for[edge.waits] += 1;
            children[edge.for_].push(edge.waits);
        }
        let mut ready: Vec<_> = (0..self.nodes.len()).filter(|at| waits_for[*at] == 0).collect();
        while let Some(node) = ready.pop() {
            for child in &children[node] {
                waits_for[*child] -= 1;
                if waits_for[*child] == 0 {
                    ready.push(*child);
                }
            }
        }
        waits_for.into_iter().map(|waits_for| waits_for > 0).collect()
    }

    /// The edges of one cycle. Every task that is never ready waits for another
    /// such task, so going from one to the next must come back to itself.
    fn cycle(&self, left: &[bool]) -> Option<Vec<usize>> {
        let mut next: HashMap<usize, usize> = HashMap::new();
        for (at, edge) in self.edges.iter().enumerate() {
            if left[edge.waits] && left[edge.for_] {
                next.entry(edge.waits).or_insert(at);
            }
        }
        let mut node = left.iter().position(|left| *left)?;
        let (mut path, mut seen) = (Vec::new(), HashMap::new());
        while let Some(edge) = next.get(&node) {
            if let Some(start) = seen.insert(node, path.len()) {
                return Some(path.split_off(start));
            }
            path.push(*edge);
            node = self.edges[*edge].for_;
        }
        None
    }

    /// Tasks behind those that never complete.
    fn check_reach(&self, cyclic: Vec<usize>, problems: &mut Problems) {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            children[edge.for_].push(edge);
        }
        let mut blocked = vec![false; self.nodes.len()];
        let mut open: Vec<_> = cyclic.into_iter().chain(self.lost.iter().copied()).collect();
        for node in &open {
            blocked[*node] = true;
        }
        while let Some(node) = open.pop() {
            for edge in &children[node] {
                if std::mem::replace(&mut blocked[edge.waits], true) {
                    continue;
                }
                open.push(edge.waits);
                problems.error(
                    edge.at,
                    format!(
                        "`{}` can never start: it waits for `{}`, which never completes",
                        self.name(edge.waits),
                        self.name(node)
                    ),
                    format!("repair what `{}` waits for", self.name(node)),
                );
            }
        }
    }

    /// What each task waits for.
    fn parents(&self) -> Vec<Vec<usize>> {
        let mut parents = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            parents[edge.waits].push(edge.for_);
        }
        parents
    }

    /// Whoever waits at a barrier for a task that begins after it waits for ever,
    /// unless it gives up at some time.
    fn check_meetings(&self, problems: &mut Problems) {
        let parents = self.parents();
        let mut barriers: BTreeMap<String, Vec<(usize, bool)>> = BTreeMap::new();
        for (at, (service, task)) in self.nodes.iter().enumerate() {
            // A task that could not be read is said to be unchecked where it stands.
            let stages = expand_task(self.runbooks, service, task, SYMBOLIC);
            for stage in stages.into_iter().flatten() {
                if let Work::Barrier(name) = stage.work {
                    barriers.entry(name).or_default().push((at, stage.timeout.is_some()));
                }
            }
        }
        for (barrier, parties) in &barriers {
            for (party, _) in parties {
                let before = ancestors(*party, &parents);
                let stays =
                    |(other, gives_up): &&(usize, bool)| !gives_up && before.contains(other);
                let Some((other, _)) = parties.iter().find(stays) else { continue };
                let (own, other) = (self.name(*party), self.name(*other));
                problems.error(
                    self.nodes[*party].1.name.at,
                    format!(
                        "`{own}` begins after `{other}`, which waits for it at the barrier \
                         `{barrier}`"
                    ),
                    "take one of them from the barrier, or drop the dependency",
                );
            }
        }
    }

    /// Whether a task moves traffic step by step.
    fn shifts(&self, node: usize) -> bool {
        let (_, task) = self.nodes[node];
        let template = task.template.as_ref().and_then(|name| self.runbooks.template(&name.value));
        template.is_some_and(|template| {
            let mut shapes = template.stages.iter().filter_map(|stage| stage.shape);
            shapes.any(|shape| shape.name == "Shift")
        })
    }
}

/// All that must be complete before a task begins.
fn ancestors(node: usize, parents: &[Vec<usize>]) -> HashSet<usize> {
    let (mut found, mut open) = (HashSet::new(), vec![node]);
    while let Some(node) = open.pop() {
        open.extend(parents[node].iter().filter(|parent| found.insert(**parent)));
    }
    found
}

/// Dependents leave before what they depend on, and come back after it: traffic
/// that waits in the same order both ways is wrong one way.
fn check_turn(drain: &Graph<'_>, restore: &Graph<'_>, problems: &mut Problems) {
    let pairs = |graph: &Graph<'_>| -> Vec<(String, String, Place)> {
        let across =
            graph.edges.iter().filter(|edge| graph.shifts(edge.waits) && graph.shifts(edge.for_));
        let services = across.map(|edge| {
            let service = |node: usize| graph.nodes[node].0.name.value.clone();
            (service(edge.waits), service(edge.for_), edge.at)
        });
        services.filter(|(waits, for_, _)| waits != for_).collect()
    };
    let out: HashSet<_> = pairs(drain).into_iter().map(|(waits, for_, _)| (waits, for_)).collect();
    for (waits, for_, at) in pairs(restore) {
        if out.contains(&(waits.clone(), for_.clone())) {
            problems.warning(
                at,
                format!("`{waits}` follows `{for_}` on the way out and on the way back"),
                "turn one of them round: what leaves first comes back last",
            );
        }
    }
}
