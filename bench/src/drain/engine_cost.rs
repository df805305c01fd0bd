//! What the engine itself costs: CPU time of whole runs of 100, 1,000 and 10,000 tasks.
//!
//! The world does as it is told and everything is healthy, so that hardly anything but the engine
//! takes time; what does is counted as its own. It is told of measurements, looks and answers as
//! often as in a real run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use drain::engine::{
    Actor, Command, Effect, EffectId, Ended, Event, Fact, Mode, Record, Run, User,
};
use drain::{
    Comparison, Condition, ConditionId, KnobId, Measurement, Millis, Plan, Source, StageKind,
    TaskId, Time, Value,
};

use super::report::EngineCost;
use super::sample::START;
use crate::interrupt;
use crate::measure::thread_nanos;
use crate::progress::Progress;
use crate::stats::Spread;

pub const TASKS: [usize; 3] = [100, 1_000, 10_000];
/// As often as the world is measured, and turned knobs are looked at.
const MEASURE_EVERY: Millis = Millis::from_secs(5);
const LOOK_EVERY: Millis = Millis::from_secs(10);
/// How long drivers take.
const LATENCY: Millis = Millis(400);

/// Runs that end, and what they cost.
pub fn measure(plan: &Plan, rounds: usize) -> Result<Vec<EngineCost>> {
    let mut progress = Progress::new("engine", TASKS.len() * rounds);
    let mut costs = Vec::new();
    for (at, tasks) in TASKS.into_iter().enumerate() {
        let many = Arc::new(multiply(plan, tasks));
        let mut rounds_of = Vec::new();
        for round in 0..rounds {
            interrupt::check()?;
            rounds_of.push(Bare::run(many.clone())?);
            progress.show(at * rounds + round + 1);
        }
        let over = |of: fn(&Bare) -> u64| {
            let secs = rounds_of.iter().map(|round| of(round) as f64 / 1e9);
            Spread::of(secs).unwrap_or_default()
        };
        let Some(one) = rounds_of.first() else { continue };
        costs.push(EngineCost {
            tasks,
            dependencies: super::sample::dependencies(&many),
            records: one.log.len(),
            events: one.events,
            virtual_secs: (one.now - START).as_secs_f64(),
            cpu_secs: over(|round| round.cpu),
            observing_secs: over(|round| round.observing),
            looking_secs: over(|round| round.looking),
        });
    }
    progress.finish();
    Ok(costs)
}

/// The records of a run with so many tasks, from beginning to end.
pub fn records(plan: &Plan, tasks: usize) -> Result<(Arc<Plan>, Vec<Record>)> {
    let many = Arc::new(multiply(plan, tasks));
    Ok((many.clone(), Bare::run(many)?.log))
}

/// A plan side by side with itself until it has so many tasks. The health of datacenters is the
/// same for all; everything else is another copy's own.
pub fn multiply(plan: &Plan, tasks: usize) -> Plan {
    let mut many = Plan {
        tasks: Vec::with_capacity(tasks),
        knobs: Vec::new(),
        conditions: Vec::new(),
        ..plan.clone()
    };
    while many.tasks.len() < tasks {
        let copy = Offsets {
            number: many.tasks.len() / plan.tasks.len(),
            tasks: many.tasks.len() as u32,
            knobs: many.knobs.len() as u32,
            conditions: many.conditions.len() as u32,
        };
        let knobs = plan.knobs.iter().cloned();
        many.knobs.extend(knobs.map(|mut knob| {
            knob.name = format!("{}-{}", knob.name, copy.number);
            knob
        }));
        many.conditions.extend(plan.conditions.iter().cloned().map(|own| copy.condition(own)));
        // Tasks follow their parents, so the first ones of a copy are whole by themselves.
        let left = tasks - many.tasks.len();
        many.tasks.extend(plan.tasks.iter().take(left).cloned().map(|own| copy.task(own)));
    }
    many
}

/// Where the parts of one copy begin.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    number: usize,
    tasks: u32,
    knobs: u32,
    conditions: u32,
}

impl Offsets {
    fn condition(&self, mut own: Condition) -> Condition {
        own.name = format!("{}-{}", own.name, self.number);
        if let Source::Gauge(knob) = &mut own.source {
            knob.0 += self.knobs;
        }
        own
    }

    fn task(&self, mut own: drain::Task) -> drain::Task {
        own.name = format!("{}-{}", own.name, self.number);
        let parents = own.after.iter_mut().chain(&mut own.after_weak);
        parents.for_each(|TaskId(id)| *id += self.tasks);
        let conditions = own.pre.iter_mut().chain(&mut own.health).chain(&mut own.post);
        conditions.for_each(|ConditionId(id)| *id += self.conditions);
        own.fences.iter_mut().for_each(|fence| fence.knob.0 += self.knobs);
        for stage in &mut own.stages {
            match &mut stage.kind {
                StageKind::Shift { knob, .. }
                | StageKind::Set { knob, .. }
                | StageKind::PutBack { knob }
                | StageKind::Verify { knob, .. }
                | StageKind::Govern { knob, .. } => knob.0 += self.knobs,
                StageKind::Await { condition } | StageKind::Check { condition } => {
                    condition.0 += self.conditions;
                }
                _ => {}
            }
        }
        own
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Measure,
    LookAtAll,
    Look(KnobId, Time),
    End(EffectId),
}

/// A run in a world that does as it is told, and its CPU time in nanoseconds.
struct Bare {
    run: Run,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, Item)>>,
    knobs: Vec<Value>,
    healthy: Vec<f64>,
    looked_at: Vec<bool>,
    log: Vec<Record>,
    events: usize,
    cpu: u64,
    observing: u64,
    looking: u64,
}

impl Bare {
    fn run(plan: Arc<Plan>) -> Result<Bare> {
        let began = thread_nanos();
        let (run, records) =
            Run::open(plan.clone(), Actor::automatic("bench"), "cost", Mode::Drill, START);
        let mut bare = Bare {
            run,
            now: START,
            queue: BinaryHeap::new(),
            knobs: plan.knobs.iter().map(|knob| origin(&knob.driver)).collect(),
            healthy: plan.conditions.iter().map(healthy).collect(),
            looked_at: vec![false; plan.knobs.len()],
            log: Vec::new(),
            events: 0,
            cpu: 0,
            observing: 0,
            looking: 0,
        };
        bare.take(records);
        bare.add(Millis::ZERO, Item::Measure);
        bare.add(LOOK_EVERY, Item::LookAtAll);
        while bare.run.state().closed.is_none() {
            bare.step()?;
        }
        bare.cpu = thread_nanos() - began;
        Ok(bare)
    }

    fn add(&mut self, after: Millis, item: Item) {
        self.queue.push(Reverse((self.now + after, item)));
    }

    fn step(&mut self) -> Result<()> {
        ensure!(
            self.now - START < Millis::from_secs(48 * 3600),
            "the run does not end: {}",
            self.waits()
        );
        // Before time passes; not after every event of a moment.
        if self.queue.peek().is_none_or(|Reverse((at, _))| *at > self.now) {
            self.look_at_wanted();
        }
        let due = self.queue.peek().map(|Reverse((at, _))| *at);
        let wake = self.run.wakes_at();
        if wake.is_some_and(|wake| due.is_none_or(|due| wake < due)) {
            self.now = self.now.max(wake.unwrap_or(self.now));
            self.decide(Event::Tick);
            return Ok(());
        }
        let Some(Reverse((at, item))) = self.queue.pop() else { return Ok(()) };
        self.now = self.now.max(at);
        match item {
            Item::Measure => self.observe(),
            Item::LookAtAll => self.look_at_all(),
            Item::Look(knob, asked) => {
                self.looked_at[knob.index()] = false;
                let found = Ok(self.knobs[knob.index()].clone());
                self.decide(Event::Looked { knob, asked, found });
            }
            Item::End(effect) => {
                let found = match self.run.state().in_flight.get(&effect).map(|own| &own.what) {
                    Some(Effect::Write { knob, .. }) => Some(self.knobs[knob.index()].clone()),
                    _ => None,
                };
                self.decide(Event::Ended { effect, result: Ended::Done { found } });
            }
        }
        Ok(())
    }

    /// The first task that has not ended, and why.
    fn waits(&self) -> String {
        let plan = self.run.plan();
        let open = plan.task_ids().find(|id| !self.run.state().task(*id).phase.has_ended());
        open.map_or("every task has".into(), |id| {
            let own = self.run.state().task(id);
            format!(
                "{} is {:?} in stage {}: {:?}",
                plan.task(id).name,
                own.phase,
                own.stage.0,
                own.hold
            )
        })
    }

    fn decide(&mut self, event: Event) {
        let records = self.run.handle(self.now, event).unwrap_or_default();
        self.events += 1;
        self.take(records);
    }

    fn look_at_wanted(&mut self) {
        // There is no other run, so every claim is granted.
        let claimed: Vec<_> = self.run.wanted_claims(self.now).map(|(task, _)| task).collect();
        for task in claimed {
            self.decide(Event::Claimed { task, answer: Ok(()) });
        }
        let wanted: Vec<KnobId> = self.run.wanted(self.now).collect();
        for knob in wanted {
            if !std::mem::replace(&mut self.looked_at[knob.index()], true) {
                self.add(LATENCY, Item::Look(knob, self.now));
            }
        }
    }

    fn observe(&mut self) {
        let mut taken = Vec::new();
        let began = thread_nanos();
        for condition in self.run.watched() {
            let found = Some(Measurement::at(self.now, self.healthy[condition.index()]));
            let observed = Event::Observed { condition, asked: self.now, found };
            taken.extend(self.run.handle(self.now, observed).unwrap_or_default());
            self.events += 1;
        }
        self.observing += thread_nanos() - began;
        self.take(taken);
        self.decide(Event::Tick);
        self.add(MEASURE_EVERY, Item::Measure);
    }

    /// Looks at all knobs that are to stay where they are.
    fn look_at_all(&mut self) {
        let mut taken = Vec::new();
        let began = thread_nanos();
        let kept: Vec<KnobId> = self.run.kept().collect();
        for knob in kept {
            let found = Ok(self.knobs[knob.index()].clone());
            let looked = Event::Looked { knob, asked: self.now, found };
            taken.extend(self.run.handle(self.now, looked).unwrap_or_default());
            self.events += 1;
        }
        self.looking += thread_nanos() - began;
        self.take(taken);
        self.add(LOOK_EVERY, Item::LookAtAll);
    }

    /// Does what records ask for.
    fn take(&mut self, records: Vec<Record>) {
        let first = self.log.len();
        self.log.extend(records);
        for at in first..self.log.len() {
            match &self.log[at].fact {
                Fact::Issued { effect, what, .. } => {
                    if let Effect::Write { knob, value } = what {
                        self.knobs[knob.index()] = value.clone();
                    }
                    let effect = *effect;
                    self.add(LATENCY, Item::End(effect));
                }
                Fact::Entered { task, stage } => {
                    let task = *task;
                    let stage = &self.run.plan().task(task).stages[stage.index()];
                    if matches!(stage.kind, StageKind::Approve { .. }) {
                        let command = Command::Approve { task };
                        let user =
                            User { uid: 1000, gid: 1000, pid: None, name: Some("ann".into()) };
                        let (by, reason) = (Actor::user(user), "cost".to_owned());
                        self.decide(Event::Said { by, reason, command });
                    }
                }
                _ => {}
            }
        }
    }
}

/// Where knobs of a kind stand before a drain.
fn origin(driver: &str) -> Value {
    match driver {
        "replication" => Value::Text("on".into()),
        "job" => Value::Text("running".into()),
        _ => Value::Number(1.0),
    }
}

/// A value with which a condition holds, not close to its bound.
fn healthy(condition: &Condition) -> f64 {
    match condition.comparison {
        Comparison::Below | Comparison::AtMost => condition.bound / 2.0,
        Comparison::Above | Comparison::AtLeast => condition.bound * 2.0 + 1.0,
        Comparison::Equals => condition.bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::sample::tests::sample;

    #[test]
    fn a_plan_beside_itself_ends_as_it_does_alone() {
        let plan = sample().drain_plan().unwrap();
        let (many, log) = records(&plan, 200).unwrap();
        assert_eq!(many.tasks.len(), 200);
        for (at, task) in many.tasks.iter().enumerate() {
            assert!(task.parents().all(|parent| parent.index() < at), "{}", task.name);
            assert!(task.conditions().all(|own| own.index() < many.conditions.len()));
        }
        assert!(matches!(log.last().unwrap().fact, Fact::Closed { .. }));
        assert!(log.iter().enumerate().all(|(at, record)| record.seq == at as u64));
        assert!(Run::resume(many, &log).is_ok());
    }
}
