//! The sample that has the shape of the paper's: as many tasks and
//! dependencies, the same kinds of traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drain::engine::RunOutcome;
use drain::runbook::Library;
use drain::{Direction, Plan, Time, Value};
use lab::drains::{Ablation, Options, Simulation, Site, World, originals, pass_downtime, simulate};

const START: Time = Time(1_000_000_000_000);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn world() -> World {
    let text = std::fs::read_to_string(root().join("worlds/paper.yaml")).expect("a world");
    let site = Site::read("paper.yaml", &text).unwrap_or_else(|bad| panic!("{bad}"));
    World::new(Arc::new(site), START)
}

fn library() -> Library {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join("runbooks/paper")).expect("runbooks") {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("text");
        files.push((path.file_name().unwrap().to_string_lossy().into_owned(), text));
    }
    files.sort();
    let library = Library::new(files);
    let problems: Vec<String> = library.problems().iter().map(ToString::to_string).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    library
}

fn plan(direction: Direction, originals: &BTreeMap<String, Value>) -> Plan {
    let plan = library().plan("east", direction, &BTreeMap::new(), originals);
    plan.unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn run(world: World, plan: &Plan, ablations: &[Ablation], has_bound: bool) -> Simulation {
    let ablations: BTreeSet<Ablation> = ablations.iter().copied().collect();
    let options = Options { ablations, has_series: false, has_bound };
    simulate(world, plan, 1, &options).unwrap_or_else(|missing| panic!("{missing:#?}"))
}

fn drain() -> (Plan, Simulation) {
    let plan = plan(Direction::Drain, &BTreeMap::new());
    let simulation = run(world(), &plan, &[], true);
    (plan, simulation)
}

fn restore_plan(drain: &Plan, drained: &Simulation) -> Plan {
    let found = originals(drain, &drained.log);
    let found = found.into_iter().map(|(knob, value)| (knob.to_string(), value)).collect();
    plan(Direction::Restore, &found)
}

fn dependencies(plan: &Plan) -> usize {
    plan.tasks.iter().map(|task| task.parents().count()).sum()
}

#[test]
fn a_drain_has_the_shape_of_the_papers_and_is_as_fast_as_it_can_be() {
    let (plan, drained) = drain();
    assert_eq!((plan.tasks.len(), dependencies(&plan)), (79, 109));
    let report = &drained.report;
    println!("{:#?}", report.critical_path);
    println!(
        "{} of {} secs, {:?} {:?}",
        report.makespan_secs, report.lower_bound_secs, report.user_errors, report.peak_utilisation
    );
    assert_eq!(report.outcome, Some(RunOutcome::Completed));
    assert_eq!(report.critical_path.len(), 8);
    assert!(report.user_errors.failed < 1e-6, "{:?}", report.user_errors);
    assert!(report.makespan_secs <= 1.05 * report.lower_bound_secs);
    assert!(report.makespan_secs >= report.lower_bound_secs, "a bound is a bound");
    let sequential = run(world(), &plan, &[Ablation::Parallelism], false).report;
    println!("sequential: {}", sequential.makespan_secs);
    assert_eq!(sequential.outcome, Some(RunOutcome::Completed));
    assert!(sequential.makespan_secs >= 6.6 * report.makespan_secs);
}

#[test]
fn a_restore_has_the_shape_of_the_papers() {
    let (drain, drained) = drain();
    let plan = restore_plan(&drain, &drained);
    assert_eq!((plan.tasks.len(), dependencies(&plan)), (68, 93));
    let restored = run(pass_downtime(drained.world), &plan, &[], true).report;
    println!("{:#?} {}", restored.critical_path, restored.makespan_secs);
    assert_eq!(restored.outcome, Some(RunOutcome::Completed));
    assert!(restored.user_errors.failed < 1e-6, "{:?}", restored.user_errors);
    assert_eq!(restored.critical_path.len(), 5);
    let (makespan, bound) = (restored.makespan_secs, restored.lower_bound_secs);
    assert!(bound <= makespan && makespan <= 1.05 * bound, "{makespan} of {bound}");
    assert!(restored.tasks.iter().all(|task| task.alone_secs.is_some() && task.breaches == 0));
}

/// What each part is good for: without it, users notice.
#[test]
fn ablations_show_what_each_part_is_good_for() {
    let (drain, drained) = drain();
    let restore = restore_plan(&drain, &drained);
    let waits = pass_downtime(drained.world.clone());
    let calm = run(waits.clone(), &restore, &[], false).report;
    assert!(calm.user_errors.failed < 1e-6);
    for ablation in [Ablation::Dependencies, Ablation::Budgets] {
        let report = run(waits.clone(), &restore, &[ablation], false).report;
        let errors = report.user_errors;
        println!("without {}: {} s, {errors:?}", ablation.name(), report.makespan_secs);
        assert_eq!(report.outcome, Some(RunOutcome::Completed), "{ablation:?}");
        assert!(errors.failed > 1000.0, "{ablation:?} {errors:?}");
    }
    let hasty = run(world(), &drain, &[Ablation::Pacing], false).report;
    println!("without pacing: {:?} {:?}", hasty.user_errors, hasty.peak_utilisation);
    assert!(hasty.peak_utilisation["west"] > 1.0 && hasty.user_errors.failed > 100.0);
    assert!(drained.report.peak_utilisation["west"] < 0.75);
    let fixed = run(world(), &drain, &[Ablation::AdaptivePace], false).report;
    println!("fixed pace: {}", fixed.makespan_secs);
    assert!(fixed.makespan_secs > drained.report.makespan_secs);
}
