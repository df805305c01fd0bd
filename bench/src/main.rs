//! Side by side with peers: load generator, floor responder, tables and plots.
//!
//! Figures are ratios within one run on one machine; nothing here is a timed test.

mod against_peers;
mod answers;
mod cache;
mod data;
mod drain;
mod draw;
mod floor;
mod instructions;
mod interrupt;
mod load;
mod machine;
mod measure;
mod mmsg;
mod pace;
mod peers;
mod placing;
mod plot;
mod process;
mod progress;
mod queries;
mod reload;
mod report;
mod search_sharder;
mod shards;
mod shards_plot;
mod shards_report;
mod stats;
mod stub;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::data::Scenario;
use crate::load::{Load, Pressure, Until};

#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer every query with one fixed A record: what sockets alone cost.
    Floor {
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Answer as an upstream whose answers follow from the names, and count what is asked.
    Stub(stub::StubArgs),
    /// Ask one running server and check its answers.
    Load(LoadArgs),
    /// Compare Pharos with Knot, NSD and the floor.
    Authority(against_peers::AuthorityArgs),
    /// Compare Pharos as a cache with dnsdist and Unbound, and redo the paper's figures.
    Cache(cache::CacheArgs),
    /// Change a zone of a running Pharos under load and see what clients notice.
    Reload(reload::ReloadArgs),
    /// Answer from memory to memory and read the thread's clock.
    Answers(answers::AnswersArgs),
    /// Time shards by construction, and beside them a search.
    Shuffle(shards::ShuffleArgs),
    /// Drain and restore a simulated datacenter: bounds, ablations, the paper's tables and figures.
    Drain(drain::DrainArgs),
    /// Count the instructions of the answer path with callgrind.
    Instructions(instructions::InstructionsArgs),
    /// Answer one shape of query many times: what `instructions` watches.
    #[command(hide = true)]
    AnswerShape { shape: String, count: u64 },
    /// Draw authority.svg, cache.svg or shuffle.svg again from its JSON; for drain.json, all
    /// figures into a directory.
    Plot { json: PathBuf, svg: PathBuf },
}

#[derive(Debug, Args)]
struct LoadArgs {
    #[arg(long)]
    target: SocketAddr,
    #[arg(long, default_value = "positive")]
    scenario: Scenario,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Zones of the scenario `million`.
    #[arg(long, default_value_t = 1_000_000)]
    zones: usize,
    /// Where generated zones are kept; the server must have loaded them.
    #[arg(long, default_value = "bench/work")]
    out: PathBuf,
    #[arg(long, default_value_t = Pressure::default().sockets)]
    sockets: usize,
    #[arg(long, default_value_t = Pressure::default().window)]
    window: usize,
    #[arg(long, default_value_t = process::LOAD_CORE)]
    core: usize,
    /// The target is `bench floor`.
    #[arg(long)]
    floor: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(if error.is::<process::Missing>() { 2 } else { 1 })
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    if let Verb::AnswerShape { shape, count } = &verb {
        return instructions::answer(shape, *count);
    }
    if let Verb::Floor { listen } = verb {
        // No handler: a signal ends it at once.
        return floor::run(listen);
    }
    if let Verb::Stub(args) = &verb {
        return stub::run(args);
    }
    interrupt::install()?;
    match verb {
        Verb::Floor { .. } | Verb::Stub(_) | Verb::AnswerShape { .. } => Ok(()),
        Verb::Answers(args) => answers::run(&args),
        Verb::Shuffle(args) => shards::run(&args),
        Verb::Drain(args) => drain::run(&args),
        Verb::Instructions(args) => instructions::run(&args),
        Verb::Load(args) => load(&args),
        Verb::Authority(args) => against_peers::run(args),
        Verb::Cache(args) => cache::run(args),
        Verb::Reload(args) => reload::run(&args),
        Verb::Plot { json, svg } => plot_again(&json, &svg),
    }
}

fn plot_again(json: &Path, svg: &Path) -> Result<()> {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json)?)?;
    let drawn = match report["format"].as_str() {
        Some(drain::FORMAT) => return drain::draw_again(json, report, svg),
        Some(cache::FORMAT) => cache::render_plot(&serde_json::from_value(report)?),
        Some(shards_report::FORMAT) => shards_plot::render(&serde_json::from_value(report)?),
        _ => plot::render(&serde_json::from_value(report)?),
    };
    Ok(std::fs::write(svg, drawn)?)
}

fn load(args: &LoadArgs) -> Result<()> {
    let zones = match args.scenario {
        Scenario::Million => data::many_zones(&args.out, args.zones)?,
        _ => data::small_zones(&args.out)?,
    };
    let queries = args.scenario.queries(&zones, 1_000_000);
    load::pin_to(args.core)?;
    let pressure = Pressure { sockets: args.sockets, window: args.window, ..Pressure::default() };
    let mut load = Load::new(&[args.target], &queries, pressure)?;
    if args.floor {
        load.expect_floor();
    }
    let outcome = load.run(Until::Elapsed(Duration::from_secs_f64(args.seconds)))?;
    println!(
        "{:.0} answers/s, {} answers, {} lost, {} wrong",
        outcome.answers_per_second(),
        outcome.answers,
        outcome.lost,
        outcome.wrong + outcome.failed
    );
    match outcome.first_wrong {
        Some(wrong) => bail!("the first wrong answer: {wrong}"),
        None if outcome.answers == 0 => bail!("no answer at all from {}", args.target),
        None => Ok(()),
    }
}
