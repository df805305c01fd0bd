//! Carries a run out in a world, as whoever drives the engine has to: records
//! are made durable, then effects are done, and what came of them is told. On
//! the way, [`Faults`] happen.

mod effects;
mod trouble;

use std::collections::BTreeMap;
use std::sync::Arc;

use drain::engine::{
    Abort, Actor, Effect, EffectId, Ended, Event as Happening, Fact, Mode, Record, Run, State,
};
use drain::{
    ConditionId, Direction, KnobId, Measurement, Millis, Plan, Source, TaskId, Time, Value,
};

use super::checkers::{Checkers, Event};
use super::faults::{Crashes, Fate, Fault, Faults, Lie, Moment};
use super::sabotage::Sabotage;
use super::world::{Dial, Gauge, Scraped, World};
use crate::Violation;
use crate::chance::Chance;
use crate::queue::Queue;

/// Between two looks at knobs that were turned.
const SWEEP: Millis = Millis(10_000);
/// Between two looks of somebody who tidies up.
const TIDY: Millis = Millis(20_000);
/// How long a crash takes that happens at a record.
const BACK_AFTER: Millis = Millis(3000);

/// What is going to happen.
#[derive(Clone, Debug)]
enum Item {
    Scrape,
    /// Look at what was turned, and is to stay.
    Sweep,
    Tidy,
    Perform {
        life: u32,
        effect: EffectId,
        occasion: EffectId,
        what: Effect,
        /// What must be so when it is done.
        required: Required,
    },
    Hear {
        life: u32,
        effect: EffectId,
        result: Ended,
    },
    Look {
        life: u32,
        knob: KnobId,
        asked: Time,
    },
    Return,
    Fault(Fault),
}

/// Knobs, and what each may be.
type Required = Vec<(KnobId, Vec<Value>)>;

/// A run in a world.
#[derive(Debug)]
pub struct Driver {
    pub world: World,
    pub log: Vec<Record>,
    pub tally: Tally,
    pub violation: Option<Violation>,
    plan: Arc<Plan>,
    /// The plan that is carried out: another one only if that is a sabotage.
    executed: Arc<Plan>,
    dials: Vec<Dial>,
    sources: Vec<Measured>,
    /// What is scraped for queries that are more than a name of the world.
    scraped: Scraped,
    /// Which run of its world this is.
    number: u64,
    /// What it is begun as, and again if not even that was written.
    mode: Mode,
    /// `None` while it is down.
    run: Option<Run>,
    /// Counts crashes: what is heard for an earlier life is not heard.
    life: u32,
    queue: Queue<Item>,
    now: Time,
    /// How far the clock of the run is off.
    skew: i64,
    lies: BTreeMap<ConditionId, (Lie, Time)>,
    /// The last sample of each condition.
    samples: Vec<Option<Measurement>>,
    /// Knobs that cannot be turned, whether that is refused, and until when.
    broken: BTreeMap<KnobId, (bool, Time)>,
    /// How much of each datacenter other runs have drained.
    fleet: Vec<f64>,
    /// Which tasks have which knobs, and until when another run uses which.
    claims: BTreeMap<KnobId, TaskId>,
    used: BTreeMap<KnobId, Time>,
    /// What knobs are said to be at and are not.
    feigned: BTreeMap<KnobId, Value>,
    looking: Vec<KnobId>,
    /// What was not done, since what it required was not so.
    undone: BTreeMap<EffectId, String>,
    /// How often each task was retried by whoever tidies up.
    retried: BTreeMap<TaskId, u32>,
    chance: Chance,
    faults: Faults,
    checkers: Checkers,
    sabotage: Option<Sabotage>,
}

/// What a condition looks at.
#[derive(Clone, Debug)]
enum Measured {
    Gauge(Gauge),
    /// Which of the queries that are evaluated.
    Query(usize),
    Dial(Dial),
}

/// What happened, to see that something did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub crashes: u32,
    pub repeated: u32,
    pub fenced: u32,
    pub lost: u32,
    pub drifts: u32,
    pub lies: u32,
    pub obeyed: u32,
    pub refused: u32,
    pub jumps: u32,
    pub broken: u32,
    /// Effects that were not done, since what they required was not so.
    pub undone: u32,
    pub outages: u32,
    /// Measurements that divided 0 by 0.
    pub without_traffic: u32,
}

/// What a run is driven with, beside its world and plan.
#[derive(Debug)]
pub struct Setting {
    pub number: u64,
    pub mode: Mode,
    pub faults: Faults,
    pub checkers: Checkers,
    pub sabotage: Option<Sabotage>,
    pub chance: Chance,
}

impl Driver {
    /// Begins a run. Fails if the plan names what the world does not have.
    pub fn open(world: World, plan: &Arc<Plan>, setting: Setting) -> Result<Self, Vec<String>> {
        let (dials, sources, scraped) = bind(&world, plan)?;
        let executed = match setting.sabotage {
            Some(sabotage) => Arc::new(sabotage.alter(plan)),
            None => plan.clone(),
        };
        let now = world.now();
        let (run, records) =
            Run::open(executed.clone(), Actor::automatic("lab"), "a simulation", setting.mode, now);
        let mut driver = Driver {
            world,
            log: Vec::new(),
            tally: Tally::default(),
            violation: None,
            plan: plan.clone(),
            executed,
            dials,
            sources,
            scraped,
            number: setting.number,
            mode: setting.mode,
            run: Some(run),
            life: 0,
            queue: Queue::default(),
            now,
            skew: 0,
            lies: BTreeMap::new(),
            samples: vec![None; plan.conditions.len()],
            broken: BTreeMap::new(),
            fleet: vec![0.0; plan.datacenters.len()],
            claims: BTreeMap::new(),
            used: BTreeMap::new(),
            feigned: BTreeMap::new(),
            looking: Vec::new(),
            undone: BTreeMap::new(),
            retried: BTreeMap::new(),
            chance: setting.chance,
            faults: setting.faults,
            checkers: setting.checkers,
            sabotage: setting.sabotage,
        };
        driver.see(&Event::Fleet { drained: &driver.fleet.clone() });
        // What is wrong from the beginning is seen by the first look.
        for (at, fault) in std::mem::take(&mut driver.faults.script) {
            driver.add(at - now, Item::Fault(fault));
        }
        driver.add(Millis::ZERO, Item::Scrape);
        driver.add(SWEEP, Item::Sweep);
        let tidy_at = driver.faults.until - now;
        driver.add(tidy_at.max(TIDY), Item::Tidy);
        driver.take(records);
        Ok(driver)
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The state of the run; while it is down, what its log makes of it.
    pub fn state(&self) -> State {
        match &self.run {
            Some(run) => run.state().clone(),
            None => {
                let mut state = State::new(&self.executed);
                self.log.iter().for_each(|record| {
                    let _ = state.apply(&self.executed, record);
                });
                state
            }
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.log.last(), Some(Record { fact: Fact::Closed { .. }, .. }))
    }

    /// Goes on until the run is over, something is wrong, or it is `until`.
    /// `watch` is shown the world after every look at its metrics.
    pub fn drive(&mut self, until: Time, mut watch: impl FnMut(&World)) {
        while self.now < until && self.violation.is_none() && !self.is_over() {
            let wake = self.wakes_at();
            let due = self.queue.next_at().map(Time).unwrap_or(until);
            if wake.is_some_and(|wake| wake < due) {
                self.pass_until(wake.unwrap_or(due).min(until));
                self.tell(Happening::Tick);
                continue;
            }
            let Some((at, item)) = self.queue.next() else { break };
            self.pass_until(Time(at).min(until));
            let is_scrape = matches!(item, Item::Scrape);
            self.happen(item);
            if is_scrape {
                watch(&self.world);
            }
        }
        self.pass_until(until.min(self.now));
    }

    /// Shows checkers how it ended.
    pub fn finish(&mut self) {
        let state = self.state();
        let now = self.clock();
        let event = Event::Finished { state: &state, world: &self.world };
        if self.violation.is_none() {
            self.violation = self.checkers.see(now, &event);
        }
    }

    fn pass_until(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.world.pass_until(self.now);
    }

    /// The time as the run sees it.
    fn clock(&self) -> Time {
        Time(self.now.0.saturating_add_signed(self.skew))
    }

    fn wakes_at(&self) -> Option<Time> {
        let at = self.run.as_ref()?.wakes_at()?;
        Some(Time(at.0.saturating_add_signed(-self.skew)).max(self.now))
    }

    fn add(&mut self, after: Millis, item: Item) {
        self.queue.add((self.now + after).0, item);
    }

    fn see(&mut self, event: &Event<'_>) {
        let now = self.clock();
        if self.violation.is_none() {
            self.violation = self.checkers.see(now, event);
        }
    }

    fn happen(&mut self, item: Item) {
        match item {
            Item::Scrape => {
                self.scrape();
                self.observe();
                self.add(self.world.site.scrape, Item::Scrape);
            }
            Item::Sweep => {
                let kept: Vec<KnobId> = self.run.iter().flat_map(Run::kept).collect();
                kept.into_iter().for_each(|knob| self.look(knob));
                self.add(SWEEP, Item::Sweep);
            }
            Item::Tidy => {
                self.tidy();
                self.add(TIDY, Item::Tidy);
            }
            Item::Perform { life, effect, occasion, what, required } => {
                // What was sent before a crash still arrives, now and then.
                if life == self.life || self.chance.happens(500) {
                    self.perform_seen(effect, occasion, &what, &required);
                }
            }
            Item::Hear { life, effect, result } if life == self.life => {
                self.hear(effect, result);
            }
            Item::Hear { .. } => {}
            Item::Look { life, knob, asked } => {
                self.looking.retain(|own| *own != knob);
                if life == self.life {
                    let found = match self.faults.fate(self.now, &mut self.chance) {
                        Fate::Failed | Fate::LostAnswer => Err("no answer".into()),
                        _ => Ok(self.find(knob)),
                    };
                    if found.is_ok() && self.run.is_some() {
                        self.see(&Event::Looked { knob });
                    }
                    self.tell(Happening::Looked { knob, asked, found });
                }
            }
            Item::Return => self.come_back(),
            Item::Fault(fault) => self.suffer(fault),
        }
    }

    /// Tells the run something, and takes what it makes of it.
    fn tell(&mut self, event: Happening) {
        let now = self.clock();
        let Some(run) = &mut self.run else { return };
        match run.handle(now, event) {
            Ok(records) => self.take(records),
            Err(_) => self.tally.refused += 1,
        }
    }

    /// Measures what the run watches.
    fn observe(&mut self) {
        let Some(run) = &self.run else { return };
        let watched = run.watched();
        for condition in watched {
            self.observe_one(condition);
        }
    }

    fn observe_one(&mut self, condition: ConditionId) {
        let (asked, is_frozen) = (self.clock(), self.is_frozen(condition));
        let found = match is_frozen {
            true => self.samples[condition.index()],
            false => self.measure(condition).map(|value| {
                let from = Time(asked.0.saturating_sub(self.window(condition).0));
                Measurement { value, from, to: asked }
            }),
        };
        self.samples[condition.index()] = found;
        self.tally.without_traffic += u32::from(found.is_some_and(|found| found.value.is_nan()));
        if self.run.is_some() {
            self.see(&Event::Told { condition, asked, found });
            let found = match self.sabotage {
                Some(Sabotage::BlindReturns) if self.returns_from_restore() => {
                    Some(Measurement::at(asked, 0.0))
                }
                Some(sabotage) => found.map(|found| sabotage.distort(asked, found)),
                None => found,
            };
            self.tell(Happening::Observed { condition, asked, found });
        }
    }

    /// Whether a restore is put back.
    fn returns_from_restore(&self) -> bool {
        let abort = self.run.as_ref().and_then(|run| run.state().abort);
        self.plan.direction == Direction::Restore && abort == Some(Abort::Revert)
    }

    /// Whether the exporter is dead, and the last sample is given again.
    fn is_frozen(&self, condition: ConditionId) -> bool {
        let lie = self.lies.get(&condition).filter(|(_, until)| self.now < *until);
        matches!(lie, Some((Lie::Frozen, _)))
    }

    /// How far back the data of a condition reaches.
    fn window(&self, condition: ConditionId) -> Millis {
        match &self.sources[condition.index()] {
            Measured::Query(at) => self.scraped.window(*at),
            Measured::Gauge(_) | Measured::Dial(_) => Millis::ZERO,
        }
    }

    /// Takes samples, each off by as much as the world's metrics may be.
    fn scrape(&mut self) {
        let (noise, chance) = (self.world.site.noise, &mut self.chance);
        self.scraped.scrape(&self.world, self.now, || off(noise, chance));
    }

    fn measure(&mut self, condition: ConditionId) -> Option<f64> {
        let value = match &self.sources[condition.index()] {
            Measured::Gauge(gauge) => {
                let off = off(self.world.site.noise, &mut self.chance);
                self.world.measure(gauge) * (1.0 + off)
            }
            Measured::Query(at) => {
                let judged = self.plan.condition(condition);
                self.scraped.measure(*at, judged.comparison, judged.bound, self.now)?
            }
            Measured::Dial(dial) => self.world.read(dial).number()?,
        };
        match self.lies.get(&condition) {
            Some((lie, until)) if self.now < *until => match lie {
                Lie::Stuck(at) => Some(*at),
                Lie::Wrong(by) => Some(value * by),
                Lie::Missing => None,
                Lie::NoTraffic => Some(f64::NAN),
                // Nobody asks the world then.
                Lie::Frozen => Some(value),
            },
            _ => Some(value),
        }
    }

    /// Makes records durable, and begins what they ask for.
    fn take(&mut self, records: Vec<Record>) {
        let mut begun = Vec::new();
        for record in records {
            if self.dies_at(record.seq, Moment::BeforeItIsDurable) {
                if self.sabotage == Some(Sabotage::EffectFirst) {
                    self.do_too_early(&record);
                }
                return self.crash(BACK_AFTER);
            }
            let is_lost = self.sabotage.is_some_and(|sabotage| sabotage.loses(&record));
            let record = match self.sabotage {
                Some(sabotage) => sabotage.rewrite(record),
                None => record,
            };
            self.see(&Event::Recorded(&record));
            let (seq, issued) = (record.seq, issued(&record));
            self.log.push(record);
            if is_lost {
                self.run = Run::resume(self.executed.clone(), &self.log).ok();
                break;
            }
            if self.dies_at(seq, Moment::BeforeItsEffect) {
                return self.crash(BACK_AFTER);
            }
            begun.extend(issued.map(|(effect, what)| (seq, effect, what)));
            if self.dies_at(seq, Moment::AfterItsEffect) {
                for (_, effect, what) in begun {
                    let required = self.required_by(effect);
                    self.perform_seen(effect, self.occasion(effect), &what, &required);
                }
                return self.crash(BACK_AFTER);
            }
        }
        for (_, effect, what) in begun {
            self.begin(effect, what);
        }
        if let Some(run) = self.run.take() {
            self.see(&Event::Rested { state: run.state() });
            self.run = Some(run);
        }
        self.grant_claims();
        self.look_at_wanted();
    }

    fn do_too_early(&mut self, record: &Record) {
        if let Some((effect, what)) = issued(record) {
            let required = self.required_by(effect);
            self.perform_seen(effect, self.occasion(effect), &what, &required);
        }
    }

    /// Does what is asked for, if what that requires is so: as a server, that is looked at
    /// right before.
    fn perform_seen(
        &mut self,
        effect: EffectId,
        occasion: EffectId,
        what: &Effect,
        required: &Required,
    ) {
        if let Some(why) = self.unmet(required) {
            self.tally.undone += 1;
            self.undone.insert(effect, why);
            return;
        }
        let knobs: Vec<Value> = self.dials.iter().map(|dial| self.world.read(dial)).collect();
        self.see(&Event::Performing { effect, what, knobs: &knobs });
        let written = self.perform(effect, occasion, what);
        self.see(&Event::Performed { effect, what, written: &written });
    }

    fn dies_at(&mut self, seq: u64, moment: Moment) -> bool {
        match self.faults.crashes {
            Crashes::Never => false,
            Crashes::At(at, when) => {
                let dies = at == seq && when == moment;
                if dies {
                    self.faults.crashes = Crashes::Never;
                }
                dies
            }
            // Who always dies at once never learns how healthy the world is.
            Crashes::Often(when) => when == moment && self.chance.happens(250),
        }
    }

    fn look(&mut self, knob: KnobId) {
        if !self.looking.contains(&knob) {
            self.looking.push(knob);
            let (life, asked) = (self.life, self.clock());
            self.add(self.world.site.latency * 0.5, Item::Look { life, knob, asked });
        }
    }

    fn look_at_wanted(&mut self) {
        let now = self.clock();
        let wanted: Vec<KnobId> = self.run.iter().flat_map(|run| run.wanted(now)).collect();
        wanted.into_iter().for_each(|knob| self.look(knob));
    }

    fn crash(&mut self, back_after: Millis) {
        if self.run.take().is_some() {
            self.tally.crashes += 1;
            self.life += 1;
            self.looking.clear();
            self.add(back_after, Item::Return);
        }
    }

    /// Takes the run up where its log ends; what was in flight is decided anew.
    fn come_back(&mut self) {
        if self.run.is_some() {
            return;
        }
        // Not even its beginning was written.
        if self.log.is_empty() {
            let (run, records) = Run::open(
                self.executed.clone(),
                Actor::automatic("lab"),
                "again",
                self.mode,
                self.clock(),
            );
            self.run = Some(run);
            return self.take(records);
        }
        match Run::resume(self.executed.clone(), &self.log) {
            Ok(run) => {
                self.see(&Event::Resumed { state: run.state() });
                self.run = Some(run);
                // Before anything else: what was known of others may not have been written.
                self.announce(self.fleet.clone());
                self.take_up();
                self.observe();
                self.tell(Happening::Tick);
            }
            Err(corrupt) => {
                let what = corrupt.to_string();
                self.violation = Some(Violation { checker: "replay", what });
            }
        }
    }
}

impl Driver {
    /// Goes on with what was in flight, as whoever drives the engine has to.
    fn take_up(&mut self) {
        let now = self.clock();
        // The first record may have been the last.
        let Some(run) = &mut self.run else { return };
        let (records, messages) = run.take_up(now);
        for (effect, what) in messages {
            match self.sabotage {
                Some(Sabotage::TakenAsSaid) => self.hear_of(effect, self.world.site.latency),
                _ => self.begin(effect, what),
            }
        }
        self.take(records);
    }
}

fn issued(record: &Record) -> Option<(EffectId, Effect)> {
    match &record.fact {
        Fact::Issued { effect, what, .. } => Some((*effect, what.clone())),
        _ => None,
    }
}

/// By how much a metric is off, as a share of it.
fn off(noise: f64, chance: &mut Chance) -> f64 {
    noise * (chance.among(0..2001) as f64 / 1000.0 - 1.0)
}

type Bound = (Vec<Dial>, Vec<Measured>, Scraped);

/// Finds everything that a plan names in a world; all that is missing is
/// reported.
fn bind(world: &World, plan: &Plan) -> Result<Bound, Vec<String>> {
    let (mut dials, mut sources, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let mut queries = Vec::new();
    for knob in &plan.knobs {
        match world.dial(knob) {
            Ok(dial) => dials.push(dial),
            Err(why) => missing.push(why),
        }
    }
    for condition in &plan.conditions {
        let source = match &condition.source {
            Source::Query(query) => Ok(match world.gauge(query) {
                Ok(gauge) => Measured::Gauge(gauge),
                Err(_) => {
                    queries.push(query.as_str());
                    Measured::Query(queries.len() - 1)
                }
            }),
            Source::Gauge(knob) => world.dial(plan.knob(*knob)).map(Measured::Dial),
        };
        match source {
            Ok(source) => sources.push(source),
            Err(why) => missing.push(format!("condition {}: {why}", condition.name)),
        }
    }
    let scraped = match Scraped::open(world, &queries) {
        Ok(scraped) => Some(scraped),
        Err(wrong) => {
            missing.extend(wrong);
            None
        }
    };
    scraped.filter(|_| missing.is_empty()).map(|scraped| (dials, sources, scraped)).ok_or(missing)
}
