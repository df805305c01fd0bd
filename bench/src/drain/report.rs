//! The result of `bench drain`: its file format, and the targets to hold.

use std::collections::{BTreeMap, BTreeSet};

use drain::Direction;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::stats::Spread;

pub const FORMAT: &str = "pharos-bench-drain";
pub const FORMAT_VERSION: u32 = 1;
/// Printed with everything that stands beside the paper's figures.
pub const CAVEAT: &str = "Ours come from a simulated world whose services, paces and sizes were \
                          chosen to resemble the paper's: that they are alike proves nothing. The \
                          ablations and the bound do.";

/// Makespan against the longest chain of tasks.
const TO_BOUND_MAX: f64 = 1.05;
/// The sequential run against the parallel one: the target for the drain, and what the paper
/// says of its restore.
const AGAINST_SEQUENTIAL_MIN: f64 = 6.6;
const AGAINST_SEQUENTIAL_RESTORE: f64 = 5.6;
const ENGINE_SECS_MAX: f64 = 1.0;
const RESUME_SECS_MAX: f64 = 1.0;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainReport {
    pub format: String,
    pub version: u32,
    pub date: String,
    pub machine: Machine,
    pub caveat: String,
    pub targets: Vec<Target>,
    /// The drain, and the restore.
    pub makespans: Vec<Makespan>,
    pub services: Vec<ServiceTime>,
    pub phases: Vec<Phase>,
    pub ablations: Vec<AblationRow>,
    pub paces: Vec<PacePoint>,
    pub engine: Vec<EngineCost>,
    pub resumes: Vec<Resume>,
    #[serde(default)]
    pub alarms: Vec<AlarmRate>,
}

/// One number to hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub name: String,
    pub value: f64,
    pub bound: f64,
    /// Whether the value must be at least the bound; if not, at the most.
    pub is_least: bool,
    pub held: bool,
}

impl Target {
    fn at_most(name: impl Into<String>, value: f64, bound: f64) -> Target {
        Target { name: name.into(), value, bound, is_least: false, held: value <= bound }
    }

    fn at_least(name: impl Into<String>, value: f64, bound: f64) -> Target {
        Target { name: name.into(), value, bound, is_least: true, held: value >= bound }
    }
}

/// How long runs in one direction take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Makespan {
    pub direction: Direction,
    pub tasks: usize,
    pub dependencies: usize,
    /// Of the first seed.
    pub critical_path: Vec<String>,
    pub makespan_secs: Spread,
    pub bound_secs: Spread,
    pub to_bound: Spread,
    /// One task at a time, carried out.
    pub sequential_secs: Spread,
    pub against_sequential: Spread,
    /// The sum of all tasks, each alone: what the paper calls sequential.
    pub against_sum: Spread,
    pub runs: Vec<SeedRun>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SeedRun {
    pub seed: u64,
    pub makespan_secs: f64,
    pub bound_secs: f64,
    pub sequential_secs: f64,
    pub summed_secs: f64,
    pub failed_requests: f64,
    pub peak_utilisation: f64,
}

/// A row of the paper's Table 3; one value for each task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceTime {
    pub name: String,
    pub tasks: usize,
    pub steps: Vec<f64>,
    pub minutes: Vec<f64>,
    /// Tasks, steps and minutes, as the paper prints them.
    pub paper: [String; 3],
}

/// A row of the paper's Table 5.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    pub direction: Direction,
    pub name: String,
    pub paper_minutes: f64,
    pub paper_times: f64,
    pub minutes: Spread,
    pub sequential_minutes: Spread,
    pub times: Spread,
}

/// Runs with something left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AblationRow {
    pub direction: Direction,
    pub without: Option<String>,
    /// How many of the seeds came to an end.
    pub ended: usize,
    pub seeds: usize,
    pub makespan_secs: Spread,
    pub failed_share: Spread,
    pub failed_requests: Spread,
    /// Of the fullest datacenter.
    pub peak_utilisation: Spread,
    /// What was wanted of the fullest link, as a share of what it bears.
    pub peak_link: Spread,
    pub steps: Spread,
    pub breaches: Spread,
}

/// A drain at one pace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PacePoint {
    pub world: String,
    /// `None`: as large as health allows.
    pub step: Option<f64>,
    pub has_ended: bool,
    pub makespan_secs: f64,
    pub peak_utilisation: f64,
    pub failed_share: f64,
    pub failed_requests: f64,
    pub breaches: f64,
}

/// What the engine needs for a whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineCost {
    pub tasks: usize,
    pub dependencies: usize,
    pub records: usize,
    pub events: usize,
    pub virtual_secs: f64,
    pub cpu_secs: Spread,
    /// Of it, for what is measured, and for looks at knobs that are to stay.
    pub observing_secs: Spread,
    pub looking_secs: Spread,
}

/// How long a start takes after a crash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resume {
    pub tasks: usize,
    pub records: usize,
    /// Of the files that the crash left.
    pub octets: u64,
    pub secs: Spread,
    pub open_secs: Spread,
    pub read_secs: Spread,
    pub replay_secs: Spread,
}

/// The share of runs as usual that are called stuck.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlarmRate {
    /// The deviation of the logarithm of how long runs take.
    pub spread: f64,
    pub earlier_runs: usize,
    /// Past the 75th percentile, and past that times the margin.
    pub bare: f64,
    pub with_margin: f64,
}

/// What the figures show; kept apart from the results, which people read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Curves {
    pub unknown_dependency: Vec<(String, Curve)>,
    pub stateless: Curve,
    pub sticky: Curve,
    pub bounded: Curve,
    pub unbounded: Curve,
    pub stateful: Curve,
    pub drain: Curve,
    pub restore: Curve,
    pub downtime_minutes: f64,
    /// Of any datacenter at any second, between the points of the lines too.
    pub peak_utilisation: f64,
    pub user_facing: BTreeSet<String>,
}

/// Lines over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    pub minutes: Vec<f64>,
    pub lines: BTreeMap<String, Vec<f64>>,
}

pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Drain => "drain",
        Direction::Restore => "restore",
    }
}

/// All targets: of seeds the worst counts, of rounds on this machine the median.
pub fn targets(makespans: &[Makespan], engine: &[EngineCost], resumes: &[Resume]) -> Vec<Target> {
    let mut targets = Vec::new();
    for own in makespans {
        let name = direction_name(own.direction);
        let to_bound = own.to_bound.max;
        targets.push(Target::at_most(format!("{name}: makespan / bound"), to_bound, TO_BOUND_MAX));
        let (label, least) = match own.direction {
            Direction::Drain => ("sequential / makespan", AGAINST_SEQUENTIAL_MIN),
            Direction::Restore => {
                ("sequential / makespan (the paper's)", AGAINST_SEQUENTIAL_RESTORE)
            }
        };
        let times = own.against_sequential.min;
        targets.push(Target::at_least(format!("{name}: {label}"), times, least));
        let failed = own.runs.iter().map(|run| run.failed_requests).fold(0.0, f64::max);
        // Requests are shares of a stream in the world: less than one is none.
        targets.push(Target::at_most(format!("{name}: failed requests"), failed, 0.5));
    }
    if let Some(largest) = engine.last() {
        let name = format!("engine: CPU s for {} tasks", crate::draw::thousands(largest.tasks));
        targets.push(Target::at_most(name, largest.cpu_secs.median, ENGINE_SECS_MAX));
    }
    if let Some(largest) = resumes.last() {
        let records = crate::draw::thousands(largest.records);
        let name = format!("resume: s with {records} records");
        targets.push(Target::at_most(name, largest.secs.median, RESUME_SECS_MAX));
    }
    targets
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample() -> DrainReport {
        let of = |value: f64| Spread { median: value, min: value, max: value };
        let makespan = |direction, tasks, dependencies, sequential: f64| Makespan {
            direction,
            tasks,
            dependencies,
            critical_path: vec!["web.shift".into(), "<&>".into()],
            makespan_secs: of(6000.0),
            bound_secs: of(5990.0),
            to_bound: of(6000.0 / 5990.0),
            sequential_secs: of(sequential),
            against_sequential: of(sequential / 6000.0),
            against_sum: of(6.5),
            runs: vec![SeedRun {
                seed: 1,
                makespan_secs: 6000.0,
                bound_secs: 5990.0,
                sequential_secs: sequential,
                summed_secs: 39_000.0,
                failed_requests: 0.0,
                peak_utilisation: 0.7,
            }],
        };
        let makespans = vec![
            makespan(Direction::Drain, 79, 109, 40_000.0),
            makespan(Direction::Restore, 68, 93, 31_000.0),
        ];
        let ablation = |without: Option<&str>, ended| AblationRow {
            direction: Direction::Drain,
            without: without.map(str::to_owned),
            ended,
            seeds: 1,
            makespan_secs: of(6000.0),
            failed_share: of(0.1),
            failed_requests: of(1000.0),
            peak_utilisation: of(1.3),
            peak_link: of(0.5),
            steps: of(434.0),
            breaches: of(0.0),
        };
        let pace = |step| PacePoint {
            world: "roomy".into(),
            step,
            has_ended: true,
            makespan_secs: 6000.0,
            peak_utilisation: 0.7,
            failed_share: 0.0,
            failed_requests: 0.0,
            breaches: 0.0,
        };
        let engine = vec![EngineCost {
            tasks: 10_000,
            dependencies: 13_000,
            records: 186_122,
            events: 5_655_930,
            virtual_secs: 6500.0,
            cpu_secs: of(0.5),
            observing_secs: of(0.2),
            looking_secs: of(0.1),
        }];
        let resumes = vec![Resume {
            tasks: 79,
            records: 1324,
            octets: 329_608,
            secs: of(0.04),
            open_secs: of(0.02),
            read_secs: of(0.01),
            replay_secs: of(0.01),
        }];
        DrainReport {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            date: "2026-01-02T03:04:05Z".to_owned(),
            machine: Machine {
                cpu: "cpu".to_owned(),
                cores: 2,
                kernel: "6".to_owned(),
                memory_bytes: 1 << 30,
            },
            caveat: CAVEAT.to_owned(),
            targets: targets(&makespans, &engine, &resumes),
            makespans,
            services: vec![ServiceTime {
                name: "Web service (stateless)".into(),
                tasks: 1,
                steps: vec![10.0],
                minutes: vec![9.9],
                paper: ["1", "10", "10"].map(str::to_owned),
            }],
            phases: vec![Phase {
                direction: Direction::Drain,
                name: "drain web traffic".into(),
                paper_minutes: 10.0,
                paper_times: 1.0,
                minutes: of(9.9),
                sequential_minutes: of(9.9),
                times: of(1.0),
            }],
            ablations: vec![ablation(None, 1), ablation(Some("dependencies"), 0)],
            paces: vec![pace(None), pace(Some(0.1)), pace(Some(1.0))],
            engine,
            resumes,
            alarms: vec![AlarmRate { spread: 0.5, earlier_runs: 8, bare: 0.3, with_margin: 0.125 }],
        }
    }

    #[test]
    fn targets_are_held_or_missed_by_the_worst() {
        let verdicts: Vec<bool> = sample().targets.iter().map(|target| target.held).collect();
        assert_eq!(verdicts, [true, true, true, true, false, true, true, true]);
    }

    #[test]
    fn reports_survive_the_file() {
        let text = serde_json::to_string(&sample()).unwrap();
        let back: DrainReport = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{back:?}"), format!("{:?}", sample()));
    }
}
