//! How long a drain and its restore take, beside how long they must take, and beside one task
//! at a time, which is carried out too.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use drain::engine::RunOutcome;
use drain::{Direction, Plan, TaskId};
use lab::drains::{Ablation, Report, World};

use super::report::{Makespan, Phase, SeedRun, ServiceTime};
use super::sample::{Drained, Sample, WEB, carry_out, dependencies, with_bound, without};
use crate::interrupt;
use crate::progress::Progress;
use crate::stats::Spread;

/// What came of all seeds.
#[derive(Debug)]
pub struct Measured {
    pub makespans: Vec<Makespan>,
    pub services: Vec<ServiceTime>,
    pub phases: Vec<Phase>,
}

/// A row of the paper's Table 3, and the tasks of ours that it stands for.
struct ServiceRow {
    name: &'static str,
    tasks: &'static [&'static str],
    paper: [&'static str; 3],
}

const SERVICES: [ServiceRow; 4] = [
    ServiceRow { name: "Web service (stateless)", tasks: &["web.shift"], paper: ["1", "10", "10"] },
    ServiceRow {
        name: "Messaging (sticky)",
        tasks: &["messaging.weight", "messaging.sessions"],
        paper: ["2", "1 → 5", "3 → 61"],
    },
    ServiceRow {
        name: "KV store, replica (replication)",
        tasks: &["kv.replication"],
        paper: ["1", "1", "3"],
    },
    ServiceRow {
        name: "KV store, master (stateful)",
        tasks: &["kv.primaries"],
        paper: ["1", "24", "18"],
    },
];

/// A row of the paper's Table 5, and the tasks of ours that it stands for.
struct PhaseRow {
    direction: Direction,
    part: Part,
    name: &'static str,
    minutes: f64,
    times: f64,
}

impl PhaseRow {
    const fn drain(part: Part, name: &'static str, minutes: f64, times: f64) -> PhaseRow {
        PhaseRow { direction: Direction::Drain, part, name, minutes, times }
    }

    const fn restore(part: Part, name: &'static str, minutes: f64, times: f64) -> PhaseRow {
        PhaseRow { direction: Direction::Restore, part, name, minutes, times }
    }
}

const PHASES: [PhaseRow; 6] = [
    PhaseRow::drain(Part::Web, "drain web traffic", 10.0, 1.0),
    PhaseRow::drain(Part::UserFacing, "drain all user-facing traffic", 40.0, 6.6),
    PhaseRow::drain(Part::All, "drain all service traffic", 110.0, 6.3),
    PhaseRow::restore(Part::Web, "restore web traffic", 50.0, 1.0),
    PhaseRow::restore(Part::Internal, "restore internal service traffic", 90.0, 4.3),
    PhaseRow::restore(Part::All, "restore all service traffic", 120.0, 5.6),
];

/// Some tasks of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Web,
    UserFacing,
    Internal,
    All,
}

impl Part {
    fn has(self, sample: &Sample, service: &str) -> bool {
        match self {
            Part::Web => service == WEB,
            Part::UserFacing => sample.is_user_facing(service),
            Part::Internal => !sample.is_user_facing(service),
            Part::All => true,
        }
    }
}

/// Carries out a drain and its restore for each seed, in parallel and one task at a time.
pub fn measure(sample: &Sample, seeds: u64) -> Result<Measured> {
    let mut progress = Progress::new("seeds, in parallel and sequentially", seeds as usize);
    let mut directions = [Runs::default(), Runs::default()];
    let mut phases = vec![Vec::new(); PHASES.len()];
    let mut services = Vec::new();
    for seed in 1..=seeds {
        interrupt::check()?;
        let drained = sample.drain(seed, &with_bound(without(&[])))?;
        let Drained { plan, simulation, waiting, restore } = &drained;
        let restored = carry_out(waiting.clone(), restore, seed, &with_bound(without(&[])))?;
        for (runs, world, plan, report) in [
            (0, sample.world(), plan, &simulation.report),
            (1, waiting.clone(), restore, &restored.report),
        ] {
            let sequential = sequential(&world, plan, seed)?;
            directions[runs].add(plan, report, &sequential)?;
            for (phase, found) in PHASES.iter().zip(&mut phases) {
                if phase.direction == plan.direction {
                    found.push(phase_times(sample, phase.part, &world, plan, seed, report)?);
                }
            }
        }
        services.push(service_times(&simulation.report));
        progress.show(seed as usize);
    }
    progress.finish();
    let makespans = directions.into_iter().map(Runs::sum).collect::<Result<_>>()?;
    Ok(Measured { makespans, services: sum_services(services), phases: sum_phases(phases)? })
}

/// One task at a time, really carried out.
fn sequential(world: &World, plan: &Plan, seed: u64) -> Result<Report> {
    let run = carry_out(world.clone(), plan, seed, &without(&[Ablation::Parallelism]))?;
    ensure!(run.report.outcome == Some(RunOutcome::Completed), "a sequential run did not end");
    Ok(run.report)
}

/// What came of the seeds in one direction.
#[derive(Debug, Default)]
struct Runs {
    direction: Option<Direction>,
    tasks: usize,
    dependencies: usize,
    critical_path: Vec<String>,
    runs: Vec<SeedRun>,
}

impl Runs {
    fn add(&mut self, plan: &Plan, report: &Report, sequential: &Report) -> Result<()> {
        ensure!(report.outcome == Some(RunOutcome::Completed), "a run did not end");
        self.direction = Some(plan.direction);
        (self.tasks, self.dependencies) = (plan.tasks.len(), dependencies(plan));
        if self.critical_path.is_empty() {
            self.critical_path.clone_from(&report.critical_path);
        }
        self.runs.push(SeedRun {
            seed: report.seed,
            makespan_secs: report.makespan_secs,
            bound_secs: report.lower_bound_secs,
            sequential_secs: sequential.makespan_secs,
            summed_secs: report.tasks.iter().filter_map(|task| task.alone_secs).sum(),
            failed_requests: report.user_errors.failed,
            peak_utilisation: report.peak_utilisation.values().copied().fold(0.0, f64::max),
        });
        Ok(())
    }

    fn sum(self) -> Result<Makespan> {
        let over =
            |of: fn(&SeedRun) -> f64| Spread::of(self.runs.iter().map(of)).context("no seeds");
        Ok(Makespan {
            direction: self.direction.context("no seeds")?,
            tasks: self.tasks,
            dependencies: self.dependencies,
            makespan_secs: over(|run| run.makespan_secs)?,
            bound_secs: over(|run| run.bound_secs)?,
            to_bound: over(|run| run.makespan_secs / run.bound_secs)?,
            sequential_secs: over(|run| run.sequential_secs)?,
            against_sequential: over(|run| run.sequential_secs / run.makespan_secs)?,
            against_sum: over(|run| run.summed_secs / run.makespan_secs)?,
            critical_path: self.critical_path,
            runs: self.runs,
        })
    }
}

/// When the last task of a part ended in the whole run, and how long the part takes one task at
/// a time; in minutes.
fn phase_times(
    sample: &Sample,
    part: Part,
    world: &World,
    plan: &Plan,
    seed: u64,
    report: &Report,
) -> Result<(f64, f64)> {
    let belongs = |id: &TaskId| part.has(sample, &plan.task(*id).service);
    let own: Vec<TaskId> = plan.task_ids().filter(belongs).collect();
    let times = own.iter().map(|id| &report.tasks[id.index()]);
    let ends = times.clone().filter_map(|task| task.ended_secs).fold(0.0, f64::max);
    let begins = match part {
        // The paper's web rows are how long the one service takes.
        Part::Web => times.filter_map(|task| task.started_secs).fold(f64::INFINITY, f64::min),
        _ => 0.0,
    };
    let one_by_one = match part {
        Part::Web => ends - begins,
        _ => sequential(world, &part_of(plan, &own), seed)?.makespan_secs,
    };
    Ok(((ends - begins) / 60.0, one_by_one / 60.0))
}

/// A plan of some tasks and all that they wait for.
fn part_of(plan: &Plan, tasks: &[TaskId]) -> Plan {
    let mut kept: BTreeSet<TaskId> = tasks.iter().copied().collect();
    // Tasks follow their parents, so one way back finds them all.
    for id in plan.task_ids().rev() {
        if kept.contains(&id) {
            kept.extend(plan.task(id).parents());
        }
    }
    let kept: Vec<TaskId> = kept.into_iter().collect();
    let renumber = |ids: &mut Vec<TaskId>| {
        for id in ids {
            let at = kept.binary_search(id).expect("parents are kept");
            *id = TaskId(at as u32);
        }
    };
    let mut part = plan.clone();
    part.tasks = kept.iter().map(|id| plan.task(*id).clone()).collect();
    for task in &mut part.tasks {
        renumber(&mut task.after);
        renumber(&mut task.after_weak);
    }
    part
}

fn sum_phases(found: Vec<Vec<(f64, f64)>>) -> Result<Vec<Phase>> {
    let phase = |(row, found): (&PhaseRow, Vec<(f64, f64)>)| {
        let over =
            |of: fn(&(f64, f64)) -> f64| Spread::of(found.iter().map(of)).context("no seeds");
        Ok(Phase {
            direction: row.direction,
            name: row.name.to_owned(),
            paper_minutes: row.minutes,
            paper_times: row.times,
            minutes: over(|(own, _)| *own)?,
            sequential_minutes: over(|(_, one_by_one)| *one_by_one)?,
            times: over(|(own, one_by_one)| one_by_one / own)?,
        })
    };
    PHASES.iter().zip(found).map(phase).collect()
}

/// Steps and minutes of the tasks of each row of Table 3.
type ServiceRun = Vec<Vec<(u32, f64)>>;

fn service_times(report: &Report) -> ServiceRun {
    let row = |names: &[&str]| {
        let tasks = names.iter().filter_map(|name| report.tasks.iter().find(|t| t.name == *name));
        tasks
            .map(|task| {
                let took = task.ended_secs.unwrap_or(0.0) - task.started_secs.unwrap_or(0.0);
                // What is done at once is one step.
                (task.steps.max(1), took / 60.0)
            })
            .collect()
    };
    SERVICES.iter().map(|service| row(service.tasks)).collect()
}

fn sum_services(runs: Vec<ServiceRun>) -> Vec<ServiceTime> {
    let row = |(at, row): (usize, &ServiceRow)| {
        let over = |of: fn(&(u32, f64)) -> f64| -> Vec<f64> {
            let medians = (0..row.tasks.len()).map(|task| {
                let values = runs.iter().filter_map(|run| run[at].get(task).map(of));
                Spread::of(values).unwrap_or_default().median
            });
            medians.collect()
        };
        ServiceTime {
            name: row.name.to_owned(),
            tasks: row.tasks.len(),
            steps: over(|(steps, _)| f64::from(*steps)),
            minutes: over(|(_, minutes)| *minutes),
            paper: row.paper.map(str::to_owned),
        }
    };
    SERVICES.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::sample::tests::sample;

    #[test]
    fn a_part_has_all_that_its_tasks_wait_for() {
        let sample = sample();
        let plan = sample.drain_plan().unwrap();
        let last = TaskId(plan.tasks.len() as u32 - 1);
        let part = part_of(&plan, &[last]);
        assert!(part.tasks.len() < plan.tasks.len());
        assert_eq!(part.tasks.last().unwrap().name, plan.tasks.last().unwrap().name);
        for (at, task) in part.tasks.iter().enumerate() {
            assert!(task.parents().all(|parent| parent.index() < at));
            let whole = plan.tasks.iter().find(|own| own.name == task.name).unwrap();
            assert_eq!(task.parents().count(), whole.parents().count());
        }
    }
}
