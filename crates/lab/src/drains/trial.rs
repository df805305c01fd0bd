//! One seed, one world, one drain and perhaps one restore, with everything that
//! goes wrong on the way.

use std::sync::Arc;

use drain::engine::{Fact, Mode, Record, RunOutcome};
use drain::{Direction, Millis, Plan, Time};

use super::checkers::Checkers;
use super::driver::{Driver, Setting, Tally};
use super::faults::{Crashes, Fault, Faults, Manner, Outage};
use super::sabotage::Sabotage;
use super::scenario::Scenario;
use super::world::World;
use crate::Violation;
use crate::chance::Chance;

/// When worlds begin.
pub const START: Time = Time(1_000_000_000_000);
/// How long things go wrong at the most, and how long all may take then.
const TROUBLE: Millis = Millis::from_secs(1200);
const CALM: Millis = Millis::from_secs(4 * 3600);
/// How long an outage takes in a calm world.
pub const OUTAGE: Millis = Millis::from_secs(900);
/// How long who never answers is waited for.
const IGNORED: Millis = Millis::from_secs(2 * 3600);

/// What is asked of a seed.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub seed: u64,
    /// Nothing goes wrong but what is asked for here.
    pub is_calm: bool,
    /// Crashes at records of the drain, and of the restore.
    pub crashes: Crashes,
    pub restore_crashes: Crashes,
    /// What a restore of a calm world begins in.
    pub outage: Option<Outage>,
    pub sabotage: Option<Sabotage>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub seed: u64,
    /// What was to be done.
    pub drain_plan: Arc<Plan>,
    pub restore_plan: Arc<Plan>,
    /// Records of the drain, and of the restore if there was one.
    pub drain: Vec<Record>,
    pub restore: Vec<Record>,
    pub tally: Tally,
    pub violation: Option<Violation>,
}

impl Outcome {
    pub fn drained(&self) -> Option<RunOutcome> {
        ended(&self.drain)
    }

    pub fn restored(&self) -> Option<RunOutcome> {
        ended(&self.restore)
    }
}

fn ended(log: &[Record]) -> Option<RunOutcome> {
    match log.last()?.fact {
        Fact::Closed { outcome } => Some(outcome),
        _ => None,
    }
}

/// Runs the world of one seed.
pub fn run(trial: &Trial) -> Outcome {
    let mut chance = Chance::new(trial.seed);
    let scenario = Scenario::draw(&mut chance);
    let world = World::new(scenario.site.clone(), START);
    let (drain_plan, restore_plan) = (Arc::new(scenario.drain), Arc::new(scenario.restore));
    let mut driver = drive(world, &drain_plan, 1, trial, trial.crashes.clone(), &mut chance);
    let mut outcome = Outcome {
        seed: trial.seed,
        drain_plan,
        restore_plan,
        drain: std::mem::take(&mut driver.log),
        restore: Vec::new(),
        tally: driver.tally,
        violation: driver.violation,
    };
    let is_drained = outcome.drained() == Some(RunOutcome::Completed);
    if is_drained && outcome.violation.is_none() {
        let mut world = driver.world;
        world.pass_until(world.now() + scenario.site.downtime);
        let crashes = trial.restore_crashes.clone();
        let restore = drive(world, &outcome.restore_plan, 2, trial, crashes, &mut chance);
        (outcome.restore, outcome.violation) = (restore.log, restore.violation);
        outcome.tally.add(&restore.tally);
    }
    outcome
}

fn drive(
    world: World,
    plan: &Arc<Plan>,
    number: u64,
    trial: &Trial,
    crashes: Crashes,
    chance: &mut Chance,
) -> Driver {
    let start = world.now();
    let outage = trial.outage.filter(|_| plan.direction == Direction::Restore);
    let faults = match (trial.is_calm, outage) {
        (true, None) => Faults { until: start, ..Faults::default() },
        (true, Some(how)) => {
            let until = start + OUTAGE;
            let script = vec![(start, Fault::Outage { how, until })];
            Faults { until, script, ..Faults::default() }
        }
        (false, _) => Faults::draw(plan, start, TROUBLE, chance),
    };
    let end = faults.until + if faults.manner == Manner::Ignore { IGNORED } else { CALM };
    let executed = match trial.sabotage {
        Some(sabotage) => Arc::new(sabotage.alter(plan)),
        None => plan.clone(),
    };
    let setting = Setting {
        number,
        mode: if trial.is_calm || chance.happens(800) { Mode::Drill } else { Mode::Disaster },
        faults: Faults { crashes, ..faults },
        checkers: Checkers::all(plan, &executed),
        sabotage: trial.sabotage,
        chance: Chance::new(chance.among(0..u64::MAX)),
    };
    let mut driver = Driver::open(world, plan, setting)
        .unwrap_or_else(|missing| panic!("scenarios name what there is: {missing:#?}"));
    driver.drive(end, |_| {});
    driver.finish();
    driver
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        let pairs = [
            (&mut self.crashes, other.crashes),
            (&mut self.repeated, other.repeated),
            (&mut self.fenced, other.fenced),
            (&mut self.lost, other.lost),
            (&mut self.drifts, other.drifts),
            (&mut self.lies, other.lies),
            (&mut self.obeyed, other.obeyed),
            (&mut self.refused, other.refused),
            (&mut self.jumps, other.jumps),
            (&mut self.broken, other.broken),
            (&mut self.outages, other.outages),
            (&mut self.without_traffic, other.without_traffic),
        ];
        pairs.into_iter().for_each(|(own, other)| *own += other);
    }
}
