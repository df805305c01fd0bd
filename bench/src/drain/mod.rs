//! `bench drain`: drains and restores of a simulated world with the paper's shape.
//!
//! Times of the world are virtual and follow from the seed alone. What is measured on this machine
//! is the engine's CPU time, and how long a start takes after a crash.

mod ablations;
mod alarms;
mod chart;
mod curves;
mod engine_cost;
mod figures;
mod makespan;
mod plots;
mod report;
mod resume;
mod sample;
mod tables;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::against_peers::write_file;
use crate::machine::{Machine, date};

pub use report::FORMAT;
use report::{CAVEAT, Curves, DrainReport, FORMAT_VERSION, targets};
use sample::Sample;

/// What the figures are drawn from, beside drain.json.
const CURVES: &str = "drain-curves.json";

#[derive(Debug, Args)]
pub struct DrainArgs {
    #[arg(long, default_value = "worlds/paper.yaml")]
    world: PathBuf,
    /// The directory of the runbooks for it.
    #[arg(long, default_value = "runbooks/paper")]
    runbooks: PathBuf,
    /// How often the drain and the restore are tried, in parallel and one task at a time.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// How often with each part left out.
    #[arg(long, default_value_t = 3)]
    ablation_seeds: u64,
    /// How often the engine and the store are timed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where drain.json, drain-curves.json and drain-*.svg go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// Measures everything, prints the tables and writes the results.
pub fn run(args: &DrainArgs) -> Result<()> {
    ensure!(args.seeds > 0 && args.ablation_seeds > 0 && args.rounds > 0, "nothing to measure");
    let sample = Sample::read(&args.world, &args.runbooks)?;
    let plan = sample.drain_plan()?;
    let engine = engine_cost::measure(&plan, args.rounds)?;
    let resumes = resume::measure(&plan, args.rounds)?;
    let measured = makespan::measure(&sample, args.seeds)?;
    let ablations = ablations::measure(&sample, args.ablation_seeds)?;
    let paces = ablations::paces(&sample, 1)?;
    let curves = curves::watch(&sample, 1)?;
    let report = DrainReport {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        date: date(),
        machine: Machine::describe(),
        caveat: CAVEAT.to_owned(),
        targets: targets(&measured.makespans, &engine, &resumes),
        makespans: measured.makespans,
        services: measured.services,
        phases: measured.phases,
        ablations,
        paces,
        engine,
        resumes,
        alarms: alarms::measure(),
    };
    print!("{}", tables::render(&report));
    write_file(&args.results, "drain.json", &serde_json::to_string_pretty(&report)?)?;
    write_file(&args.results, CURVES, &serde_json::to_string(&curves)?)?;
    draw(&report, &curves, &args.results)
}

/// Draws all figures again from drain.json and what lies beside it.
pub fn draw_again(json: &Path, report: serde_json::Value, directory: &Path) -> Result<()> {
    let beside = json.with_file_name(CURVES);
    let curves = std::fs::read(&beside).with_context(|| {
        format!("cannot read {}, from which figures are drawn", beside.display())
    })?;
    draw(&serde_json::from_value(report)?, &serde_json::from_slice(&curves)?, directory)
}

fn draw(report: &DrainReport, curves: &Curves, directory: &Path) -> Result<()> {
    for (name, svg) in figures::all(curves).into_iter().chain(plots::all(report)) {
        write_file(directory, &format!("drain-{name}.svg"), &svg)?;
    }
    Ok(())
}
