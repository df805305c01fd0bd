//! Runbooks as production has them, with functions of PromQL and the names of
//! real drivers, in simulated worlds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drain::engine::RunOutcome;
use drain::runbook::Library;
use drain::{Direction, Plan, Time, Value};
use lab::drains::{Options, Simulation, Site, World, originals, pass_downtime, simulate};

const START: Time = Time(1_000_000_000_000);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(world: &str) -> String {
    std::fs::read_to_string(root().join("worlds").join(world)).expect("a world")
}

fn world_of(text: &str) -> World {
    let site = Site::read("world.yaml", text).unwrap_or_else(|bad| panic!("{bad}"));
    World::new(Arc::new(site), START)
}

fn files(folder: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join(folder)).expect("runbooks");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a file").path();
            let text = std::fs::read_to_string(&path).expect("text");
            (path.file_name().unwrap().to_string_lossy().into_owned(), text)
        })
        .collect();
    files.sort();
    files
}

fn plan(
    files: Vec<(String, String)>,
    direction: Direction,
    originals: &BTreeMap<String, Value>,
) -> Plan {
    let plan = Library::new(files).plan("east", direction, &BTreeMap::new(), originals);
    plan.unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn run(world: World, plan: &Plan, seed: u64) -> Simulation {
    let simulation = simulate(world, plan, seed, &Options::default());
    simulation.unwrap_or_else(|missing| panic!("{missing:#?}"))
}

/// The same runbooks, with every occurrence of a text replaced.
fn altered(folder: &str, from: &str, to: &str) -> Vec<(String, String)> {
    let altered = |(name, text): (String, String)| (name, text.replace(from, to));
    let files: Vec<_> = files(folder).into_iter().map(altered).collect();
    assert!(files.iter().any(|(_, text)| text.contains(to)));
    files
}

#[test]
fn runbooks_of_production_drain_and_restore_a_simulated_datacenter() {
    for (folder, world) in
        [("samples/drain/runbooks", "haproxy.yaml"), ("runbooks/shop", "shop.yaml")]
    {
        let drain = plan(files(folder), Direction::Drain, &BTreeMap::new());
        let drained = run(world_of(&text(world)), &drain, 1);
        assert_eq!(drained.report.outcome, Some(RunOutcome::Completed), "{folder}");
        assert_eq!(drained.report.user_errors.failed, 0.0, "{folder}");
        let found = originals(&drain, &drained.log);
        let found = found.into_iter().map(|(knob, value)| (knob.to_string(), value)).collect();
        let restore = plan(files(folder), Direction::Restore, &found);
        let restored = run(pass_downtime(drained.world), &restore, 1);
        assert_eq!(restored.report.outcome, Some(RunOutcome::Completed), "{folder}");
    }
}

#[test]
fn one_seed_decides_what_queries_give() {
    let drain = plan(files("runbooks/shop"), Direction::Drain, &BTreeMap::new());
    let log = |seed| run(world_of(&text("shop.yaml")), &drain, seed).log;
    assert_eq!(log(7), log(7));
}

/// Rates see that a datacenter is overloaded: half of the web does not fit there.
#[test]
fn a_rate_that_shows_errors_holds_the_drain() {
    let small = text("haproxy.yaml").replace("west: {capacity: 120}", "west: {capacity: 62}");
    let drain = plan(files("samples/drain/runbooks"), Direction::Drain, &BTreeMap::new());
    let drained = run(world_of(&small), &drain, 1);
    let breaches: u32 = drained.report.tasks.iter().map(|task| task.breaches).sum();
    assert!(breaches > 0, "{:?}", drained.report);
    assert_ne!(drained.report.outcome, Some(RunOutcome::Completed));
}

#[test]
fn functions_work_on_the_names_of_the_world() {
    let query = "sum(rate(haproxy_backend_connection_errors_total{proxy=\"chat\"}[3s]))";
    for (own, holds) in [
        ("max(utilisation)", true),
        ("avg_over_time(errors{service=\"chat\",dc=\"west\"}[10s])", true),
        ("rate(requests_total{service=\"web\"}[10s]) > 1000 or vector(0)", true),
        ("sum(rate(failures_total[10s])) / clamp_min(sum(rate(requests_total[10s])), 0.001)", true),
        ("count(up == 1)", false),
    ] {
        let files =
            altered("samples/drain/runbooks", query, &format!("'{}'", own.replace('\'', "''")));
        let drain = plan(files, Direction::Drain, &BTreeMap::new());
        let outcome = run(world_of(&text("haproxy.yaml")), &drain, 1).report.outcome;
        assert_eq!(outcome == Some(RunOutcome::Completed), holds, "{own}: {outcome:?}");
    }
}

#[test]
fn what_a_world_does_not_have_is_said_before_the_run() {
    let cases = [
        ("[3s])) / sum", "[3s])) / sum(rate(nothing_total[3s])) / sum", "no series of the world"),
        ("code=\"5xx\"}[3s]))", "code=\"5xx\"}[3s:1s]))", "a subquery needs a Prometheus"),
        ("edge:count/", "edge:total/", "no such kind of knob"),
    ];
    for (from, to, expected) in cases {
        let files = altered("samples/drain/runbooks", from, to);
        let drain = plan(files, Direction::Drain, &BTreeMap::new());
        let refused = simulate(world_of(&text("haproxy.yaml")), &drain, 1, &Options::default());
        let missing = refused.map(|_| ()).expect_err(to).join("\n");
        assert!(missing.contains(expected), "{missing}");
    }
}

#[test]
fn names_of_production_are_checked() {
    for (from, to, expected) in [
        ("count/$service/$dc: count", "count/$service: count", "lacks `$dc`"),
        (
            "count/$service/$dc: count",
            "count/$service/$dc: number",
            "is `number`; accepted: weight",
        ),
        ("of: failures", "of: faults", "is `faults`; accepted: requests"),
        ("proxy: $service, code: $class", "proxy: $servce, code: $class", "lacks `$service`"),
        ("server: $dc", "server: $store-$dc", "has no `$store`; accepted: `$service`, `$dc`"),
    ] {
        let bad = text("haproxy.yaml").replace(from, to);
        let problems = Site::read("world.yaml", &bad).expect_err(to).to_string();
        assert!(problems.contains(expected) && problems.contains("world.yaml:"), "{problems}");
    }
}
