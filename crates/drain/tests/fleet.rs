//! Several drains and restores of several datacenters, in any order, skipped,
//! aborted, reverted and cut off at any moment: no service is ever left with
//! too few datacenters, and never is too much drained, unless two people said
//! so.
//!
//! What counts as served is computed here from the knobs alone, by another way
//! than the engine's. The test is worth something only because each
//! [`Mutation`] makes it fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::engine::{
    Abort, Actor, Command, Effect, EffectId, Ended, Event, Fact, Mode, Phase, Record, Run,
    RunOutcome, User,
};
use drain::fleet::{Fleet, OtherRun};
use drain::{
    Datacenter, Direction, Exit, Expected, Goal, KeepDrained, Knob, KnobId, Limits, Millis, Next,
    OnBreach, Pace, Plan, Position, ServiceTraffic, Stage, StageId, StageKind, Task, TaskId, Time,
    TrafficAt, TrafficKnob, Value,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// What a run drained is the share of its tasks that are complete.
    CountsTasks,
    /// Open runs count by what they have moved so far.
    IgnoresOpenRuns,
    /// A restore that is put back knows of no other run.
    RestoresAreDeaf,
    /// What a run left is what its plan wanted.
    BelievesPlans,
}

#[derive(Clone, Debug)]
enum Op {
    Begin {
        datacenter: usize,
        is_restore: bool,
        is_disaster: bool,
    },
    /// Lets a run work for a while. `sees`: it is told the position first.
    Work {
        run: usize,
        times: u8,
        sees: bool,
    },
    Say {
        run: usize,
        what: u8,
        task: usize,
        by: bool,
    },
    Crash {
        run: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..4usize, any::<bool>(), any::<bool>()).prop_map(
            |(datacenter, is_restore, is_disaster)| Op::Begin { datacenter, is_restore, is_disaster }
        ),
        10 => (0..4usize, 1..12u8, any::<bool>())
            .prop_map(|(run, times, sees)| Op::Work { run, times, sees }),
        4 => (0..4usize, 0..10u8, 0..3usize, any::<bool>())
            .prop_map(|(run, what, task, by)| Op::Say { run, what, task, by }),
        1 => (0..4usize).prop_map(|run| Op::Crash { run }),
    ]
}

#[derive(Clone, Debug)]
struct Script {
    /// Capacity of each datacenter.
    capacities: Vec<u8>,
    /// Loads of each service in each datacenter, and whether its knob is a text.
    services: Vec<(Vec<u8>, bool)>,
    serving_min: u32,
    drained_max: f64,
    /// Whether people set limits aside; then every run is always told at once.
    has_waivers: bool,
    ops: Vec<Op>,
}

fn script() -> impl Strategy<Value = Script> {
    (2..5usize, 1..4usize).prop_flat_map(|(datacenters, services)| {
        let capacities = prop::collection::vec(50..150u8, datacenters);
        let loads = (prop::collection::vec(1..50u8, datacenters), any::<bool>());
        let services = prop::collection::vec(loads, services);
        let ops = prop::collection::vec(op(), 10..80);
        (capacities, services, 1..3u32, 3..10u32, any::<bool>(), ops).prop_map(
            |(capacities, services, serving_min, drained_max, has_waivers, ops)| Script {
                capacities,
                services,
                serving_min,
                drained_max: f64::from(drained_max) / 10.0,
                has_waivers,
                ops,
            },
        )
    })
}

fn person(uid: u32) -> Actor {
    Actor::user(User { uid, gid: uid, pid: None, name: Some(format!("user-{uid}")) })
}

/// A run and everything that a server keeps of it.
struct Driven {
    id: u64,
    run: Run,
    log: Vec<Record>,
    /// Issued and not yet done.
    pending: Vec<(EffectId, Effect)>,
    waived_by: BTreeSet<u32>,
}

struct World {
    script: Script,
    mutation: Mutation,
    knobs: BTreeMap<Knob, Value>,
    /// As the store keeps them, by datacenter, with the run that found them.
    originals: Vec<BTreeMap<Knob, (Value, u64)>>,
    open: Vec<Driven>,
    /// Runs that are over, with what became of their tasks.
    closed: Vec<(u64, Run)>,
    now: Time,
    next: u64,
    moves: u32,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn is_on(value: &Value) -> f64 {
    match value {
        Value::Number(value) => *value,
        Value::Text(text) => f64::from(text == "on"),
    }
}

impl World {
    fn new(script: Script, mutation: Mutation) -> World {
        let mut world = World {
            knobs: BTreeMap::new(),
            originals: vec![BTreeMap::new(); script.capacities.len()],
            script,
            mutation,
            open: Vec::new(),
            closed: Vec::new(),
            now: Time(0),
            next: 1,
            moves: 0,
        };
        for service in 0..world.script.services.len() {
            for at in 0..world.script.capacities.len() {
                let on = world.value(service, true);
                world.knobs.insert(world.knob(service, at), on);
            }
        }
        world
    }

    fn knob(&self, service: usize, at: usize) -> Knob {
        Knob { driver: "edge".into(), name: format!("s{service}/{}", NAMES[at]) }
    }

    fn value(&self, service: usize, is_on: bool) -> Value {
        match self.script.services[service].1 {
            true => Value::Text(if is_on { "on" } else { "off" }.into()),
            false => Value::Number(f64::from(is_on)),
        }
    }

    fn original(&self, knob: &Knob) -> Option<Value> {
        self.originals.iter().find_map(|own| own.get(knob)).map(|(value, _)| value.clone())
    }

    fn plan(&self, at: usize, direction: Direction) -> Plan {
        let pace = Pace {
            first: 0.3,
            step_max: 0.4,
            wait: Millis(1000),
            wait_max: Millis(1000),
            adaptive: false,
            on_breach: OnBreach::Hold,
            patience: Millis(1000),
        };
        let task = |service: usize| {
            let knob = self.knob(service, at);
            let to = match direction {
                Direction::Drain => Goal::Value(self.value(service, false)),
                Direction::Restore => {
                    let known = self.original(&knob).unwrap_or(self.knobs[&knob].clone());
                    Goal::Original(known)
                }
            };
            let knob = KnobId(service as u32);
            let kind = match to.value() {
                Value::Number(_) => StageKind::Shift { knob, to },
                Value::Text(_) => StageKind::Set { knob, to, of: None },
            };
            let failed = Next::Exit(Exit::Failed);
            Task {
                name: format!("s{service}"),
                service: format!("s{service}"),
                template: "Test".into(),
                priority: 0,
                after: Vec::new(),
                after_weak: Vec::new(),
                pre: Vec::new(),
                health: Vec::new(),
                post: Vec::new(),
                stages: vec![Stage {
                    name: "move".into(),
                    kind,
                    timeout: None,
                    done: Next::Exit(Exit::Done),
                    failed,
                    late: failed,
                    retry: StageId(0),
                    is_interruptible: true,
                }],
                undo: None,
                fences: vec![],
                opens: vec![],
                pace,
                timeout: Millis::from_secs(3600),
                budgets: Vec::new(),
                expected: Expected::default(),
            }
        };
        let services = 0..self.script.services.len();
        let traffic = services.clone().map(|service| ServiceTraffic {
            service: format!("s{service}"),
            datacenters: (0..self.script.capacities.len())
                .map(|at| {
                    let knob = self.knob(service, at);
                    let original = self.original(&knob);
                    let goal = self.value(service, false);
                    TrafficAt {
                        load: f64::from(self.script.services[service].0[at]),
                        knobs: vec![TrafficKnob { knob, goal, original }],
                        ..TrafficAt::default()
                    }
                })
                .collect(),
        });
        Plan {
            datacenter: NAMES[at].into(),
            direction,
            tasks: services.clone().map(task).collect(),
            knobs: services.map(|service| self.knob(service, at)).collect(),
            conditions: Vec::new(),
            health: Vec::new(),
            budgets: Vec::new(),
            datacenters: (self.script.capacities.iter().zip(NAMES))
                .map(|(capacity, name)| Datacenter {
                    name: name.into(),
                    capacity: f64::from(*capacity),
                    load: 0.0,
                    line: 0.75,
                })
                .collect(),
            limits: Limits {
                serving_min: self.script.serving_min,
                drained_max: self.script.drained_max,
            },
            traffic: traffic.collect(),
            fleet: Fleet::default(),
            keep_drained: KeepDrained::default(),
            puts_back: None,
            changed: None,
            services: Default::default(),
            left_behind: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// What a server tells a run of the others.
    fn fleet(&self, plan: &Plan, own: Option<u64>) -> Fleet {
        let name_of = |run: &Run| run.plan().datacenter.clone();
        let open = self.open.iter().map(|own| (own.id, &own.run, true));
        let closed = self.closed.iter().map(|(id, run)| (*id, run, false));
        let all: Vec<(u64, &Run, bool)> = open.chain(closed).collect();
        let names: Vec<String> = all.iter().map(|(_, run, _)| name_of(run)).collect();
        let mut runs: Vec<OtherRun<'_>> = all
            .iter()
            .zip(&names)
            .map(|((run, own, is_open), datacenter)| OtherRun {
                run: *run,
                datacenter,
                direction: own.plan().direction,
                is_open: *is_open,
            })
            .collect();
        match self.mutation {
            Mutation::IgnoresOpenRuns => runs.iter_mut().for_each(|run| run.is_open = false),
            Mutation::RestoresAreDeaf if plan.direction == Direction::Restore => {
                return Fleet::unmoved(plan);
            }
            _ => {}
        }
        let position = |knob: &Knob| {
            let value = self.knobs.get(knob)?.clone();
            Some(Position { value, original: self.original(knob), is_out: false })
        };
        let mut fleet = Fleet::of(plan, own, position, |_, _| Some(1.0), &runs);
        if !matches!(self.mutation, Mutation::CountsTasks | Mutation::BelievesPlans) {
            return fleet;
        }
        for (at, datacenter) in plan.datacenters.iter().enumerate() {
            let there = all.iter().zip(&names).filter(|(_, name)| **name == datacenter.name);
            let newest = there.map(|(run, _)| run).max_by_key(|(id, ..)| *id);
            let Some((_, run, _)) = newest else { continue };
            let tasks = &run.state().tasks;
            let complete = tasks.iter().filter(|task| task.phase.is_complete()).count();
            let share = match self.mutation {
                Mutation::CountsTasks => complete as f64 / tasks.len() as f64,
                _ => f64::from(matches!(
                    run.state().closed,
                    Some((_, RunOutcome::Completed | RunOutcome::CompletedWithSkips))
                )),
            };
            let open = match run.plan().direction {
                Direction::Drain => 1.0 - share,
                Direction::Restore => share,
            };
            fleet.multipliers.iter_mut().for_each(|row| row[at] = Some(open));
        }
        fleet
    }

    fn begin(&mut self, at: usize, direction: Direction, mode: Mode) -> Result<(), String> {
        let at = at % self.script.capacities.len();
        let is_taken = self.open.iter().any(|own| own.run.plan().datacenter == NAMES[at]);
        let is_blank = direction == Direction::Restore && self.originals[at].is_empty();
        if is_taken || is_blank {
            return Ok(());
        }
        let mut plan = self.plan(at, direction);
        plan.fleet = self.fleet(&plan, None);
        let is_out = direction == Direction::Drain;
        if is_out && mode == Mode::Drill && plan.fleet.check_limits(&plan, mode).is_err() {
            return Ok(());
        }
        let (run, records) = Run::open(Arc::new(plan), person(1), "a test", mode, self.now);
        let id = self.next;
        self.next += 1;
        let (pending, waived_by) = (Vec::new(), BTreeSet::new());
        self.open.push(Driven { id, run, log: Vec::new(), pending, waived_by });
        let last = self.open.len() - 1;
        self.see(last)?;
        self.take(last, records)
    }

    fn see(&mut self, at: usize) -> Result<(), String> {
        let fleet = self.fleet(&self.open[at].run.plan().clone(), Some(self.open[at].id));
        self.tell(at, Event::Fleet { fleet })
    }

    fn tell(&mut self, at: usize, event: Event) -> Result<(), String> {
        let records = self.open[at].run.handle(self.now, event).unwrap_or_default();
        self.take(at, records)
    }

    /// Keeps what a run decided; what it asks for is done when it works next, or
    /// at once where people set limits aside: nobody can know of it before.
    fn take(&mut self, at: usize, records: Vec<Record>) -> Result<(), String> {
        let (own, id) = (self.open[at].run.plan().clone(), self.open[at].id);
        let datacenter = NAMES.iter().position(|name| *name == own.datacenter).unwrap();
        for record in &records {
            match &record.fact {
                Fact::Issued { effect, what, .. } => {
                    self.open[at].pending.push((*effect, what.clone()));
                }
                Fact::Found { knob, value, .. } if own.direction == Direction::Drain => {
                    let known = self.originals[datacenter].entry(own.knob(*knob).clone());
                    known.or_insert_with(|| (value.clone(), id));
                }
                Fact::Closed { outcome } => {
                    let is_back = match own.direction {
                        // What an earlier drain moved is still away.
                        Direction::Drain => {
                            let mut known = self.originals[datacenter].values();
                            *outcome == RunOutcome::Reverted && known.all(|(_, by)| *by == id)
                        }
                        Direction::Restore => *outcome == RunOutcome::Completed,
                    };
                    if is_back {
                        self.originals[datacenter].clear();
                    }
                }
                _ => {}
            }
        }
        self.open[at].log.extend(records);
        if self.script.has_waivers { self.perform(at) } else { Ok(()) }
    }

    fn perform(&mut self, at: usize) -> Result<(), String> {
        for (effect, what) in std::mem::take(&mut self.open[at].pending) {
            let Effect::Write { knob, value } = what else { continue };
            let knob = self.open[at].run.plan().knob(knob).clone();
            let before = self.knobs.insert(knob.clone(), value.clone()).unwrap();
            if is_on(&value) < is_on(&before) - 1e-9 {
                self.moves += 1;
                self.check(at, &format!("run {} set {knob} to {value}", self.open[at].id))?;
            }
            let result = Ended::Done { found: Some(value) };
            self.tell(at, Event::Ended { effect, result })?;
        }
        Ok(())
    }

    /// Whether what is left serves.
    fn check(&self, at: usize, what: &str) -> Result<(), String> {
        if self.open[at].waived_by.len() >= 2 {
            return Ok(());
        }
        let (services, datacenters) = (self.script.services.len(), self.script.capacities.len());
        let on = |service: usize, at: usize| is_on(&self.knobs[&self.knob(service, at)]);
        for service in 0..services {
            let serving = (0..datacenters).filter(|at| on(service, *at) > 0.0).count();
            let needed = (self.script.serving_min as usize).min(datacenters - 1);
            if serving < needed {
                return Err(format!("{what}: s{service} is served by {serving}: {:?}", self.knobs));
            }
        }
        let share = |at: usize| {
            let load = |service: usize| f64::from(self.script.services[service].0[at]);
            let gone: f64 = (0..services).map(|own| load(own) * (1.0 - on(own, at))).sum();
            gone / (0..services).map(load).sum::<f64>()
        };
        let capacity = |at: usize| f64::from(self.script.capacities[at]);
        let gone: f64 = (0..datacenters).map(|at| capacity(at) * share(at)).sum();
        let all: f64 = (0..datacenters).map(capacity).sum();
        if gone / all > self.script.drained_max + 1e-6 {
            return Err(format!("{what}: {:.2} is drained: {:?}", gone / all, self.knobs));
        }
        Ok(())
    }

    fn work(&mut self, at: usize, sees: bool) -> Result<(), String> {
        self.now = self.now + Millis(1500);
        if sees || self.script.has_waivers {
            self.see(at)?;
        }
        self.perform(at)?;
        let wanted: Vec<KnobId> = self.open[at].run.wanted(self.now).collect();
        for knob in wanted {
            let found = Ok(self.knobs[self.open[at].run.plan().knob(knob)].clone());
            self.tell(at, Event::Looked { knob, asked: self.now, found })?;
        }
        self.tell(at, Event::Tick)
    }

    fn say(&mut self, at: usize, what: u8, task: usize, by: bool) -> Result<(), String> {
        let task = TaskId((task % self.script.services.len()) as u32);
        let command = match what {
            0 | 1 => Command::Skip { task },
            2 => Command::Stop { task },
            3 => Command::Retry { task },
            4 | 5 => Command::Abort { how: Abort::Hold },
            6 | 7 => Command::Abort { how: Abort::Revert },
            8 if self.script.has_waivers => Command::WaiveLimits,
            8 => Command::SetMode { mode: Mode::Disaster },
            _ => Command::Accelerate { task: None },
        };
        let by = person(if by { 1 } else { 2 });
        if self.script.has_waivers {
            self.see(at)?;
        }
        let waives = command == Command::WaiveLimits;
        let said = Event::Said { by: by.clone(), reason: "a test".into(), command };
        if waives {
            self.open[at].waived_by.extend(by.uid());
        }
        self.tell(at, said)
    }

    /// The process dies; what was asked for may have been done or not, and is
    /// done again.
    fn crash(&mut self, at: usize) -> Result<(), String> {
        let own = &mut self.open[at];
        let run = Run::resume(own.run.plan().clone(), &own.log).map_err(|why| why.to_string())?;
        let state = run.state();
        assert_eq!(state, own.run.state(), "the state is a fold of the records");
        own.pending = state.in_flight.iter().map(|(id, own)| (*id, own.what.clone())).collect();
        own.run = run;
        self.see(at)
    }

    fn go(&mut self) -> Result<(), String> {
        for op in self.script.ops.clone() {
            if let Op::Begin { datacenter, is_restore, is_disaster } = op {
                let direction = if is_restore { Direction::Restore } else { Direction::Drain };
                let mode = if is_disaster { Mode::Disaster } else { Mode::Drill };
                self.begin(datacenter, direction, mode)?;
            } else if !self.open.is_empty() {
                match op {
                    Op::Work { run, times, sees } => {
                        let at = run % self.open.len();
                        for _ in 0..times {
                            self.work(at, sees)?;
                        }
                    }
                    Op::Say { run, what, task, by } => {
                        self.say(run % self.open.len(), what, task, by)?;
                    }
                    Op::Crash { run } => self.crash(run % self.open.len())?,
                    Op::Begin { .. } => {}
                }
            }
            let (over, open) = std::mem::take(&mut self.open)
                .into_iter()
                .partition(|own: &Driven| own.run.state().closed.is_some());
            self.open = open;
            self.closed.extend(over.into_iter().map(|own: Driven| (own.id, own.run)));
        }
        Ok(())
    }
}

fn try_out(cases: u32, mutation: Mutation) -> Result<u32, String> {
    let mut moves = 0;
    let mut runner = TestRunner::new_with_rng(
        Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let moved = std::cell::Cell::new(0);
    let tried = runner.run(&script(), |script| {
        let mut world = World::new(script, mutation);
        let went = world.go();
        moved.set(moved.get() + world.moves);
        went.map_err(TestCaseError::fail)
    });
    moves += moved.get();
    match tried {
        Ok(()) => Ok(moves),
        Err(TestError::Fail(why, script)) => Err(format!("{why}\n{script:#?}")),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn no_sequence_of_runs_leaves_too_little_unless_two_people_say_so() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let moves =
        try_out(cases.unwrap_or(1500), Mutation::None).unwrap_or_else(|why| panic!("{why}"));
    assert!(moves > 5000, "little was moved: {moves}");
}

#[test]
fn what_counts_tasks_instead_of_knobs_is_found() {
    assert!(try_out(1500, Mutation::CountsTasks).is_err());
}

#[test]
fn open_runs_that_count_by_what_they_moved_so_far_are_found() {
    assert!(try_out(1500, Mutation::IgnoresOpenRuns).is_err());
}

/// Two people drain the other datacenter while one is being restored; then the
/// restore is put back. Rare among random sequences.
#[test]
fn the_way_back_of_a_restore_respects_limits() {
    let work = |run, times| Op::Work { run, times, sees: true };
    let begin = |datacenter, is_restore| Op::Begin { datacenter, is_restore, is_disaster: true };
    let say = |run, what, by| Op::Say { run, what, task: 0, by };
    let ops = vec![
        begin(0, false),
        work(0, 11),
        begin(0, true),
        work(0, 3),
        begin(1, false),
        say(1, 8, true),
        say(1, 8, false),
        work(1, 11),
        say(0, 6, true),
        work(0, 11),
    ];
    for is_text in [false, true] {
        let script = Script {
            capacities: vec![100, 100],
            services: vec![(vec![10, 10], is_text), (vec![10, 10], false)],
            serving_min: 1,
            drained_max: 1.0,
            has_waivers: true,
            ops: ops.clone(),
        };
        let mut world = World::new(script.clone(), Mutation::None);
        world.go().unwrap();
        let values: Vec<f64> = (0..2).map(|at| is_on(&world.knobs[&world.knob(0, at)])).collect();
        assert!(values[0] > 0.0 && values[1] == 0.0, "{values:?}");
        let held = &world.open[0].run.state().tasks[0];
        assert_eq!(held.phase, Phase::Reverting);
        assert!(format!("{:?}", held.hold).contains("ServingMin"), "{:?}", held.hold);
        let found = World::new(script, Mutation::RestoresAreDeaf).go().unwrap_err();
        assert!(found.contains("run 2 set edge:s") && found.contains("/a to"), "{found}");
    }
}

#[test]
fn what_takes_plans_for_positions_is_found() {
    assert!(try_out(1500, Mutation::BelievesPlans).is_err());
}

/// The case of the issue: drain one, abort when its weight is 0 but its task is
/// not complete, drain the other.
#[test]
fn what_an_aborted_drain_has_emptied_does_not_serve() {
    let work = |run, times| Op::Work { run, times, sees: true };
    let begin = |datacenter, is_disaster| Op::Begin { datacenter, is_restore: false, is_disaster };
    let script = Script {
        capacities: vec![100, 100],
        services: vec![(vec![10, 10], false)],
        serving_min: 1,
        drained_max: 1.0,
        has_waivers: false,
        ops: Vec::new(),
    };
    let mut world = World::new(script, Mutation::None);
    let mut go = |ops: Vec<Op>| {
        world.script.ops = ops;
        world.go().unwrap();
        let values: Vec<f64> = (0..2).map(|at| is_on(&world.knobs[&world.knob(0, at)])).collect();
        let hold = world.open.first().and_then(|own| own.run.state().tasks[0].hold.clone());
        let phase = world.open.first().map(|own| own.run.state().tasks[0].phase);
        (values, phase, hold.map(|(_, hold)| format!("{hold:?}")))
    };
    let (values, phase, _) = go(vec![begin(0, false), work(0, 8)]);
    assert_eq!((values, phase), (vec![0.0, 1.0], Some(Phase::Running)), "empty, but not complete");
    let abort = Op::Say { run: 0, what: 4, task: 0, by: true };
    let (values, phase, _) = go(vec![abort, work(0, 2), begin(1, false), work(0, 9)]);
    assert_eq!((values, phase), (vec![0.0, 1.0], None), "a drill is refused");
    let (values, phase, hold) = go(vec![begin(1, true), work(0, 9)]);
    assert_eq!((values, phase), (vec![0.0, 1.0], Some(Phase::Waiting)), "a disaster is held");
    assert!(hold.unwrap().contains("ServingMin"));
}

proptest! {
    /// Whatever is open, whatever was measured: no load appears or disappears.
    #[test]
    fn the_load_before_a_plan_is_the_load_after_it(
        script in script(),
        at in 0..4usize,
        is_restore in any::<bool>(),
        open in prop::collection::vec(prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64], 12),
        measured in prop::collection::vec(prop::option::of(0.0..500.0f64), 12),
    ) {
        let world = World::new(script, Mutation::None);
        let count = world.script.capacities.len();
        let direction = if is_restore { Direction::Restore } else { Direction::Drain };
        let mut plan = world.plan(at % count, direction);
        plan.fleet = Fleet::unmoved(&plan);
        let row = |row: &mut Vec<Option<f64>>, from: usize| {
            row.iter_mut().enumerate().for_each(|(at, own)| *own = Some(open[from * 4 + at]));
        };
        plan.fleet.multipliers.iter_mut().enumerate().for_each(|(at, own)| row(own, at));
        for (service, traffic) in plan.traffic.iter_mut().enumerate() {
            let own = traffic.datacenters.iter_mut().enumerate();
            own.for_each(|(at, own)| own.measured = measured[service * 4 + at]);
        }
        let seen = plan.foresee(&BTreeMap::new());
        let sum = |of: fn(&drain::Capacity) -> f64, lost: fn(&drain::Unserved) -> f64| {
            seen.capacity.iter().map(of).sum::<f64>() + seen.unserved.iter().map(lost).sum::<f64>()
        };
        let before = sum(|own| own.before, |own| own.before);
        let after = sum(|own| own.after, |own| own.after);
        prop_assert!((before - after).abs() < 1e-6 * before.max(1.0), "{} {}", before, after);
        prop_assert!(seen.capacity.iter().all(|own| own.before >= 0.0 && own.after >= 0.0));
        let own = &seen.capacity[at % count];
        prop_assert!(is_restore || own.after == 0.0, "{:?}", own);
        prop_assert!(!is_restore || seen.fits);
    }
}
