//! Small plans against a world of knobs that do what they are told.

mod breaches;
mod budgets;
mod claims;
mod effects;
mod fences;
mod forecasts;
mod knobs;
mod moved_out;
mod openings;
mod promotion;
mod reports;
mod tasks;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::condition::{Comparison, Condition, NoData, Source};
use crate::plan::*;

/// A position in which so much of each datacenter is drained.
fn fleet(shares: [f64; 3]) -> Fleet {
    Fleet { multipliers: vec![shares.map(|own| Some(1.0 - own)).to_vec()], runs: vec![None; 3] }
}

/// Makes plans of few lines.
struct Sketch {
    plan: Plan,
}

const PACE: Pace = Pace {
    first: 0.1,
    step_max: 0.5,
    wait: Millis(1000),
    wait_max: Millis(4000),
    adaptive: true,
    on_breach: OnBreach::Hold,
    patience: Millis(5000),
};

fn stage(name: &str, kind: StageKind, done: Next) -> Stage {
    let failed = Next::Exit(Exit::Failed);
    let (timeout, retry) = (None, StageId(0));
    let name = name.into();
    Stage { name, kind, timeout, done, failed, late: failed, retry, is_interruptible: true }
}

impl Sketch {
    fn new() -> Self {
        let datacenter =
            |name: &str| Datacenter { name: name.into(), capacity: 100.0, load: 30.0, line: 0.75 };
        let at = TrafficAt { load: 30.0, ..TrafficAt::default() };
        let web = ServiceTraffic { service: "web".into(), datacenters: vec![at; 3] };
        Sketch {
            plan: Plan {
                datacenter: "a".into(),
                direction: Direction::Drain,
                tasks: vec![],
                knobs: vec![],
                conditions: vec![],
                health: vec![],
                budgets: vec![],
                datacenters: ["a", "b", "c"].map(datacenter).to_vec(),
                limits: Limits { serving_min: 1, drained_max: 0.5 },
                traffic: vec![web],
                fleet: Fleet::default(),
                keep_drained: KeepDrained::default(),
                puts_back: None,
                changed: None,
                services: Default::default(),
                left_behind: Vec::new(),
                idle: Vec::new(),
            },
        }
    }

    /// Others have drained so much of each datacenter.
    fn drained_by_others(&mut self, shares: [f64; 3]) {
        self.plan.fleet = fleet(shares);
    }

    fn knob(&mut self, name: &str) -> KnobId {
        self.plan.knobs.push(Knob { driver: "edge".into(), name: name.into() });
        KnobId(self.plan.knobs.len() as u32 - 1)
    }

    fn below(&mut self, name: &str, bound: f64) -> ConditionId {
        self.plan.conditions.push(Condition {
            name: name.into(),
            source: Source::Query(name.into()),
            comparison: Comparison::Below,
            bound,
            hold_for: Millis::ZERO,
            max_age: Millis::from_secs(30),
            no_data: NoData::Block,
            no_traffic: NoData::Block,
            no_traffic_back: NoData::Block,
            is_exact: false,
        });
        ConditionId(self.plan.conditions.len() as u32 - 1)
    }

    fn task(&mut self, name: &str, after: &[TaskId], mut stages: Vec<Stage>) -> TaskId {
        for (at, stage) in stages.iter_mut().enumerate() {
            stage.retry = StageId(at as u32);
        }
        self.plan.tasks.push(Task {
            name: name.into(),
            service: name.into(),
            template: "Test".into(),
            priority: 0,
            after: after.to_vec(),
            after_weak: vec![],
            pre: vec![],
            health: vec![],
            post: vec![],
            stages,
            undo: None,
            fences: vec![],
            opens: Vec::new(),
            pace: PACE,
            timeout: Millis::from_secs(600),
            budgets: vec![],
            expected: Expected::default(),
        });
        TaskId(self.plan.tasks.len() as u32 - 1)
    }

    /// A task that moves a knob of its own from 1 to 0.
    fn shift(&mut self, name: &str, after: &[TaskId]) -> TaskId {
        let knob = self.knob(name);
        let to = Goal::Value(Value::Number(0.0));
        let stages = vec![stage("shift", StageKind::Shift { knob, to }, Next::Exit(Exit::Done))];
        self.task(name, after, stages)
    }

    fn last(&mut self) -> &mut Task {
        self.plan.tasks.last_mut().unwrap()
    }
}

/// Knobs, values of conditions, and a run that turns them.
struct World {
    run: Run,
    now: Time,
    knobs: Vec<Value>,
    values: Vec<Option<f64>>,
    log: Vec<Record>,
    /// What each write is answered with, if not with what was written.
    broken: BTreeMap<KnobId, Ended>,
    broken_acts: Option<Ended>,
    /// Steps of the clock.
    tick: Millis,
    /// Effects that are answered when somebody says so.
    held_back: Option<Vec<EffectId>>,
    /// Knobs that cannot be read.
    unreadable: BTreeSet<KnobId>,
    /// What all knobs together may stand at, at any moment.
    sum_max: f64,
    /// From then on there are no new samples, and the last one is given again.
    exporter_died: Option<Time>,
    /// How far back the data of every condition reaches.
    window: Millis,
    /// Which tasks have which knobs, and which are used by another run.
    claims: BTreeMap<KnobId, TaskId>,
    used_elsewhere: BTreeSet<KnobId>,
}

impl World {
    fn open(sketch: Sketch) -> Self {
        let knobs = vec![Value::Number(1.0); sketch.plan.knobs.len()];
        World::open_at(sketch, knobs)
    }

    /// With knobs that stand elsewhere from the first look on.
    fn open_at(sketch: Sketch, knobs: Vec<Value>) -> Self {
        let plan = Arc::new(sketch.plan);
        let (run, records) = Run::open(plan.clone(), "ann", "a drill", Mode::Drill, Time(0));
        let mut world = World {
            run,
            now: Time(0),
            knobs,
            values: vec![Some(0.0); plan.conditions.len()],
            log: vec![],
            broken: BTreeMap::new(),
            broken_acts: None,
            tick: Millis(500),
            held_back: None,
            unreadable: BTreeSet::new(),
            sum_max: f64::INFINITY,
            exporter_died: None,
            window: Millis::ZERO,
            claims: BTreeMap::new(),
            used_elsewhere: BTreeSet::new(),
        };
        world.take(records);
        world
    }

    fn take(&mut self, records: Vec<Record>) {
        self.log.extend(records.iter().cloned());
        for record in records {
            let Fact::Issued { effect, what, .. } = record.fact else { continue };
            if let Some(held_back) = &mut self.held_back {
                held_back.push(effect);
                continue;
            }
            if let Some(ended) = self.not_done(effect) {
                self.event(Event::Ended { effect, result: ended });
                continue;
            }
            let result = match what {
                Effect::Write { knob, value } => match self.broken.get(&knob) {
                    Some(ended) => ended.clone(),
                    None => {
                        self.knobs[knob.index()] = value.clone();
                        let sum: f64 = self.knobs.iter().filter_map(Value::number).sum();
                        assert!(sum <= self.sum_max + 1e-6, "{:?}", self.knobs);
                        Ended::Done { found: Some(value) }
                    }
                },
                Effect::Act(_) | Effect::Say(_) => {
                    self.broken_acts.clone().unwrap_or(Ended::Done { found: None })
                }
            };
            self.event(Event::Ended { effect, result });
        }
    }

    /// What must be so when an effect is done, as a server looks at it right before.
    fn not_done(&self, effect: EffectId) -> Option<Ended> {
        let required = self.run.required_by(effect);
        let name = |knob: KnobId| self.run.plan().knob(knob);
        if let Some((knob, _)) = required.iter().find(|(knob, _)| self.unreadable.contains(knob)) {
            let why = format!("not done: {} cannot be read: no answer", name(*knob));
            return Some(Ended::Failed { why });
        }
        let is_kept = |(knob, accepted): &&(KnobId, Vec<Value>)| {
            accepted.iter().any(|value| value.is_met_by(&self.knobs[knob.index()]))
        };
        let (knob, _) = required.iter().find(|own| !is_kept(own))?;
        let why = format!("not done: {} is {}", name(*knob), self.knobs[knob.index()]);
        Some(Ended::Failed { why })
    }

    fn event(&mut self, event: Event) {
        let records = self.run.handle(self.now, event).expect("not refused");
        self.take(records);
        self.claim();
        self.look();
    }

    /// Gives claims to whoever asks first, and takes back what is not needed.
    fn claim(&mut self) {
        let kept = self.run.claims();
        self.claims.retain(|_, task| kept.contains(task));
        let wanted = self.run.wanted_claims(self.now).map(|(task, knobs)| (task, knobs.to_vec()));
        for (task, knobs) in wanted.collect::<Vec<_>>() {
            let in_use = |knob: &KnobId| {
                let other = self.claims.get(knob).is_some_and(|other| *other != task);
                other || self.used_elsewhere.contains(knob)
            };
            let answer = match knobs.iter().copied().find(in_use) {
                Some(knob) => Err(InUse { knob, by: "another".into() }),
                None => {
                    self.claims.extend(knobs.iter().map(|knob| (*knob, task)));
                    Ok(())
                }
            };
            self.event(Event::Claimed { task, answer });
        }
    }

    fn look(&mut self) {
        let wanted: Vec<KnobId> = self.run.wanted(self.now).collect();
        for knob in wanted {
            let found = match self.unreadable.contains(&knob) {
                true => Err("no answer".into()),
                false => Ok(self.knobs[knob.index()].clone()),
            };
            self.event(Event::Looked { knob, asked: self.now, found });
        }
    }

    /// Looks at what is to stay where it was left.
    fn sweep(&mut self) {
        let kept: Vec<KnobId> = self.run.kept().collect();
        for knob in kept {
            let found = match self.unreadable.contains(&knob) {
                true => Err("no answer".into()),
                false => Ok(self.knobs[knob.index()].clone()),
            };
            self.event(Event::Looked { knob, asked: self.now, found });
        }
    }

    /// Answers what was held back.
    fn answer(&mut self) {
        let held_back = self.held_back.take().unwrap_or_default();
        self.perform(held_back);
    }

    /// Does effects, and answers them.
    fn perform(&mut self, effects: Vec<EffectId>) {
        for effect in effects {
            if let Some(ended) = self.not_done(effect) {
                self.event(Event::Ended { effect, result: ended });
                continue;
            }
            let Some(in_flight) = self.run.state().in_flight.get(&effect) else { continue };
            let found = match in_flight.what.clone() {
                Effect::Write { knob, value } => {
                    self.knobs[knob.index()] = value.clone();
                    Some(value)
                }
                Effect::Act(_) | Effect::Say(_) => None,
            };
            self.event(Event::Ended { effect, result: Ended::Done { found } });
        }
    }

    fn say(&mut self, command: Command) {
        let said = Event::Said { by: "ann".into(), reason: "a test".into(), command };
        self.event(said);
    }

    /// Lets time pass until something is so; fails if it never is.
    #[track_caller]
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&World) -> bool) {
        for _ in 0..2000 {
            if is_so(self) {
                return;
            }
            self.pass();
        }
        panic!("{what}: never; {:#?}", self.log.iter().rev().take(5).collect::<Vec<_>>());
    }

    fn pass(&mut self) {
        self.now = self.now + self.tick;
        for at in 0..self.values.len() {
            let (condition, asked) = (ConditionId(at as u32), self.now);
            let (from, to) = (Time(self.taken().0.saturating_sub(self.window.0)), self.taken());
            let found = self.values[at].map(|value| Measurement { value, from, to });
            self.event(Event::Observed { condition, asked, found });
        }
        self.event(Event::Tick);
    }

    /// When the newest sample was taken.
    fn taken(&self) -> Time {
        self.exporter_died.unwrap_or(self.now)
    }

    fn passes(&mut self, span: Millis) {
        let until = self.now + span;
        while self.now < until {
            self.pass();
        }
    }

    fn phase(&self, task: TaskId) -> Phase {
        self.run.state().task(task).phase
    }

    fn outcome(&self) -> Option<RunOutcome> {
        self.run.state().closed.map(|(_, outcome)| outcome)
    }

    /// The values that a knob was given, in order.
    fn writes(&self, of: KnobId) -> Vec<f64> {
        let written = self.log.iter().filter_map(|record| match &record.fact {
            Fact::Issued { what: Effect::Write { knob, value }, .. } if *knob == of => {
                value.number()
            }
            _ => None,
        });
        written.map(|value| (value * 1000.0).round() / 1000.0).collect()
    }

    /// Replays everything, and compares.
    fn check_replay(&self) {
        let again = Run::resume(self.run.plan().clone(), &self.log).unwrap();
        assert_eq!(again.state(), self.run.state());
    }
}

/// A plan of one task that a condition watches, with what it does on a breach.
fn watched(on_breach: OnBreach) -> (World, TaskId, ConditionId) {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    let web = sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    sketch.last().pace.on_breach = on_breach;
    (World::open(sketch), web, errors)
}
