//! One run of a plan in a world in which nothing goes wrong, measured.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::engine::{EffectId, Fact, Mode, Record};
use drain::{Exit, Knob, Millis, Next, Plan, Stage, StageId, StageKind, Task, TaskId, Time, Value};

use super::ablation::Ablation;
use super::checkers::Checkers;
use super::driver::{Driver, Setting};
use super::faults::Faults;
use super::report::{Report, Series, TaskReport, UserErrors, critical_path, ended, longest_chain};
use super::world::{Fence, World};
use crate::chance::Chance;

/// A run that takes longer is not waited for.
const PATIENCE: Millis = Millis::from_secs(48 * 3600);

/// How long a run has been watching when a task begins that runs alone.
const WATCHED_FOR: Millis = Millis::from_secs(60);

/// What a simulation is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub ablations: BTreeSet<Ablation>,
    /// Whether to keep what the world was like all the time.
    pub has_series: bool,
    /// Whether to find out how fast the plan could be: each task is run alone.
    pub has_bound: bool,
}

/// A run, and the world as it left it.
#[derive(Debug)]
pub struct Simulation {
    pub report: Report,
    pub world: World,
    pub log: Vec<Record>,
}

/// Carries a plan out. Fails if it names what the world does not have.
pub fn simulate(
    world: World,
    plan: &Plan,
    seed: u64,
    options: &Options,
) -> Result<Simulation, Vec<String>> {
    let mut executed = plan.clone();
    options.ablations.iter().for_each(|ablation| ablation.apply(&mut executed));
    let executed = Arc::new(executed);
    let (start, before) = (world.clone(), world.tally.clone());
    let drained = world.site.datacenter(&plan.datacenter).ok_or_else(|| {
        vec![format!("the world has no datacenter {}, which the plan is for", plan.datacenter)]
    })?;
    let mut driver = open(world, &executed, seed)?;
    driver.world.tally.peak_utilisation.fill(0.0);
    let mut series = Series::default();
    driver.drive(start.now() + PATIENCE, |world| {
        if options.has_series {
            series.take(world, start.now(), drained);
        }
    });
    let alone_secs = match options.has_bound {
        true => alone(&start, plan, seed)?,
        false => vec![None; plan.tasks.len()],
    };
    let (state, tally) = (driver.state(), &driver.world.tally);
    let (outcome, makespan_secs) = ended(&driver.log);
    let (requests, failed) = (tally.requests - before.requests, tally.failed - before.failed);
    let since = |at: Option<Time>| at.map(|at| (at - start.now()).as_secs_f64());
    let tasks = plan.task_ids().map(|id| TaskReport {
        name: plan.task(id).name.clone(),
        template: plan.task(id).template.clone(),
        started_secs: since(state.task(id).started),
        ended_secs: since(state.task(id).ended),
        alone_secs: alone_secs[id.index()],
        steps: state.task(id).steps,
        breaches: state.task(id).breaches,
    });
    let names = start.site.datacenters.iter().map(|place| place.name.clone());
    let path = critical_path(&executed, &state);
    let report = Report {
        world: start.site.name.clone(),
        datacenter: plan.datacenter.clone(),
        direction: plan.direction,
        seed,
        ablations: options.ablations.iter().map(|ablation| ablation.name()).collect(),
        outcome,
        makespan_secs,
        lower_bound_secs: longest_chain(plan, &alone_secs),
        critical_path: path.into_iter().map(|task| plan.task(task).name.clone()).collect(),
        peak_utilisation: names.zip(tally.peak_utilisation.iter().copied()).collect(),
        user_errors: UserErrors {
            requests,
            failed,
            share: if requests > 0.0 { failed / requests } else { 0.0 },
        },
        steps: state.tasks.iter().map(|task| task.steps).sum(),
        tasks: tasks.collect(),
        series,
    };
    Ok(Simulation { report, log: std::mem::take(&mut driver.log), world: driver.world })
}

fn open(world: World, plan: &Arc<Plan>, seed: u64) -> Result<Driver, Vec<String>> {
    let setting = Setting {
        number: world.now().0,
        mode: Mode::Drill,
        faults: Faults { until: world.now(), ..Faults::default() },
        checkers: Checkers::none(),
        sabotage: None,
        chance: Chance::new(seed),
    };
    Driver::open(world, plan, setting)
}

/// How long each task takes when nobody else does anything, and all that it
/// waits for was done long ago.
fn alone(start: &World, plan: &Plan, seed: u64) -> Result<Vec<Option<f64>>, Vec<String>> {
    let mut ancestors: Vec<BTreeSet<TaskId>> = Vec::with_capacity(plan.tasks.len());
    let mut secs = Vec::with_capacity(plan.tasks.len());
    for id in plan.task_ids() {
        let task = plan.task(id);
        let mut own: BTreeSet<TaskId> = task.parents().collect();
        task.parents().for_each(|parent| own.extend(ancestors[parent.index()].iter().copied()));
        let mut world = start.clone();
        for ancestor in &own {
            do_at_once(&mut world, plan, *ancestor).map_err(|why| vec![why])?;
        }
        world.settle();
        ancestors.push(own);
        let mut driver = open(world, &Arc::new(after_a_wait(plan, task)), seed)?;
        driver.drive(start.now() + PATIENCE, |_| {});
        // Without the last look: it is one for all.
        let task = driver.state().task(TaskId(1)).clone();
        let ended = task.ended.filter(|_| task.phase.is_complete());
        secs.push(ended.zip(task.started).map(|(ended, began)| (ended - began).as_secs_f64()));
    }
    Ok(secs)
}

/// A plan of one task, in a run that has been watching for as long as conditions ask for:
/// tasks that follow others do not wait for that again.
fn after_a_wait(plan: &Plan, task: &Task) -> Plan {
    let exit = Next::Exit(Exit::Done);
    let wait = Task {
        stages: vec![Stage {
            name: "wait".into(),
            kind: StageKind::TimedWait { span: WATCHED_FOR },
            timeout: None,
            done: exit,
            failed: exit,
            late: exit,
            retry: StageId(0),
            is_interruptible: true,
        }],
        after: Vec::new(),
        after_weak: Vec::new(),
        undo: None,
        fences: Vec::new(),
        opens: Vec::new(),
        budgets: Vec::new(),
        ..task.clone()
    };
    let task = Task { after: vec![TaskId(0)], after_weak: Vec::new(), ..task.clone() };
    Plan { tasks: vec![wait, task], ..plan.clone() }
}

/// Brings everything that a task turns to where it is to go.
fn do_at_once(world: &mut World, plan: &Plan, task: TaskId) -> Result<(), String> {
    for stage in plan.task(task).forward() {
        match &stage.kind {
            StageKind::Shift { knob, to } | StageKind::Set { knob, to, .. } => {
                let dial = world.dial(plan.knob(*knob))?;
                world.turn(&dial, to.value())?;
            }
            StageKind::Act(act) => {
                let fence = Fence { run: 0, effect: EffectId(u64::from(task.0)) };
                world.act(act, fence);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where knobs stood before a run first touched them: what its restore goes
/// back to.
pub fn originals(plan: &Plan, log: &[Record]) -> BTreeMap<Knob, Value> {
    let mut found = BTreeMap::new();
    for record in log {
        if let Fact::Found { knob, value, .. } = &record.fact {
            found.entry(plan.knob(*knob).clone()).or_insert_with(|| value.clone());
        }
    }
    found
}

/// Lets a drained world wait for its restore.
pub fn pass_downtime(mut world: World) -> World {
    let until = world.now() + world.site.downtime;
    world.pass_until(until);
    world
}
