//! `pharos lab`: drains in a simulated world, before they happen in a real one.

mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use drain::runbook::Library;
use drain::{Direction, Plan, Time, Value};
use jiff::tz::TimeZone;
use lab::drains::{
    Ablation, Options, Report, Simulation, Site, World, originals, pass_downtime, simulate,
};

use crate::drains::{read_file, read_files};
use crate::output::{self, Output};

/// When simulated worlds begin: any time will do, but not none.
const START: Time = Time(1_000_000_000_000);

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Drain a datacenter of a simulated world, or restore it
    Run(RunArgs),
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// World file (YAML, `pharos: world/v1`)
    #[arg(value_name = "WORLD")]
    world: PathBuf,
    /// Runbooks, or directories of them
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    runbook: Vec<PathBuf>,
    /// The datacenter; needed if there are evacuations for several
    #[arg(long, value_name = "DC")]
    datacenter: Option<String>,
    /// What is left to chance follows from it
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Drain first, wait for the downtime of the world, and report the restore
    #[arg(long)]
    restore: bool,
    /// Leave something out, to see what it is good for: dependencies, pacing,
    /// adaptive-pace, budgets, parallelism
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = read_ablation)]
    ablate: Vec<Ablation>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Write the page that `pharos report --html` writes of a real run
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// With --json: what the world was like all the time
    #[arg(long, requires = "json")]
    series: bool,
}

pub fn run(command: LabCommand) -> Result<u8, String> {
    let LabCommand::Run(args) = command;
    let report = match report(&args) {
        Ok(report) => report,
        Err(why) => return output::failed(args.json, why),
    };
    let mut out = Output::default();
    let written = match args.json {
        true => writeln!(out, "{}", output::json(&serde_json::json!(report))),
        false => told::tell(&mut out, &report),
    };
    written.map_err(output::explain)?;
    Ok(if report.outcome.is_some() { 0 } else { crate::EXIT_FAILED })
}

fn report(args: &RunArgs) -> Result<Report, String> {
    let (name, text) = read_file(&args.world)?;
    let site = Site::read(&name, &text).map_err(|bad| bad.to_string())?;
    let world = World::new(Arc::new(site), START);
    let library = read_library(&args.runbook)?;
    let datacenter = choose(&library, args.datacenter.as_deref())?;
    let drain = plan(&library, &datacenter, Direction::Drain, &BTreeMap::new())?;
    let options = Options {
        ablations: args.ablate.iter().copied().collect::<BTreeSet<_>>(),
        has_series: args.series,
        has_bound: true,
    };
    if !args.restore {
        let simulation = carry_out(world, &drain, args.seed, &options)?;
        write_page(args, &drain, &simulation)?;
        return Ok(simulation.report);
    }
    let drained = carry_out(world, &drain, args.seed, &Options::default())?;
    let found: BTreeMap<String, Value> = originals(&drain, &drained.log)
        .into_iter()
        .map(|(knob, value)| (knob.to_string(), value))
        .collect();
    let restore = plan(&library, &datacenter, Direction::Restore, &found)?;
    let simulation = carry_out(pass_downtime(drained.world), &restore, args.seed, &options)?;
    write_page(args, &restore, &simulation)?;
    Ok(simulation.report)
}

/// Writes the page about a run, if one is wanted.
fn write_page(args: &RunArgs, plan: &Plan, simulation: &Simulation) -> Result<(), String> {
    let Some(path) = &args.html else { return Ok(()) };
    let report = drain::report::Report::of(plan, &simulation.log);
    let report = report.map_err(|error| error.to_string())?;
    let page = drain::report::render(&report, &TimeZone::system());
    std::fs::write(path, page)
        .map_err(|error| format!("{}: cannot be written: {error}", path.display()))
}

fn carry_out(
    world: World,
    plan: &Plan,
    seed: u64,
    options: &Options,
) -> Result<Simulation, String> {
    simulate(world, plan, seed, options).map_err(|missing| missing.join("\n"))
}

fn read_library(paths: &[PathBuf]) -> Result<Library, String> {
    let library = Library::new(read_files(paths)?);
    if !library.is_sound() {
        return Err(crate::runbook::lines(library.problems()));
    }
    Ok(library)
}

fn choose(library: &Library, wanted: Option<&str>) -> Result<String, String> {
    let known: Vec<&str> = library.evacuations().collect();
    match (wanted, known.as_slice()) {
        (Some(wanted), _) if known.contains(&wanted) => Ok(wanted.to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (_, []) => {
            Err("no file is an evacuation; accepted: one with `pharos: evacuation/v1`".into())
        }
        (None, _) => Err(format!(
            "there are several evacuations; accepted: --datacenter {}",
            known.join(" | ")
        )),
        (Some(wanted), _) => {
            Err(format!("no evacuation of {wanted}; accepted: {}", known.join(", ")))
        }
    }
}

fn plan(
    library: &Library,
    datacenter: &str,
    direction: Direction,
    originals: &BTreeMap<String, Value>,
) -> Result<Plan, String> {
    library
        .plan(datacenter, direction, &BTreeMap::new(), originals)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn read_ablation(name: &str) -> Result<Ablation, String> {
    Ablation::named(name).ok_or_else(|| {
        format!("no such part; accepted: {}", Ablation::ALL.map(Ablation::name).join(", "))
    })
}
