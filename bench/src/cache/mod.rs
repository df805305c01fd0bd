//! `bench cache`: Pharos as one node and as a cluster, dnsdist and Unbound, all before the same
//! stub upstream.
//!
//! Nodes share one core whatever their number, the load and the stub have the other. So a
//! cluster gets no faster with more nodes here; what counts is that the CPU for an answer, over
//! all nodes, stays what it was.

mod failures;
mod hop;
mod joining;
mod names;
mod plot;
mod popularity;
mod quiet;
mod report;
mod rounds;
mod servers;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::against_peers::write_file;
use crate::load::{self, Idle, Load, Pressure, Until};
use crate::machine::{Machine, date};
use crate::process::LOAD_CORE;
use names::Names;
pub use plot::render as render_plot;
pub use report::FORMAT;
use report::{CacheReport, FORMAT_VERSION, Parameters, REMOTE_NODES, Scenario, Version};
use rounds::Rounds;
use servers::{Cluster, Kind, Programs, Setup, Stub, Variant};

/// More than this share lost means that the figures say little.
const LOST_SHARE_MAX: f64 = 0.01;
const NODES_MAX: usize = 16;
/// Sockets of the load in all, and for each node at least.
const SOCKETS: usize = 16;
const SOCKETS_PER_NODE_MIN: usize = 4;
/// Places of each socket when the load is paced: enough to go on asking while a node is silent.
const PACED_SLOTS: usize = 256;
/// Outstanding while caches are filled.
const FILL_WINDOW: usize = 192;
/// Names of the large sets, and how many are enough to see that the harness works.
const LARGE_NAMES: usize = 100_000;
const SMOKE_NAMES: usize = 5_000;

#[derive(Debug, Args)]
pub struct CacheArgs {
    /// Interleaved rounds of each scenario; ratios are medians over them.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each cache in each round, once saturated and once paced.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Questions a second of the paced half, from which the latencies come.
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// Outstanding questions of the saturated half, at each node.
    #[arg(long, default_value_t = Pressure::default().window)]
    window: usize,
    /// Sizes of the Pharos clusters.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5")]
    nodes: Vec<usize>,
    /// The caches to measure.
    #[arg(long, value_delimiter = ',', default_value = "dnsdist,unbound,pharos,floor")]
    only: Vec<Kind>,
    /// What is measured.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "scenarios,hop,popularity,failures,joining"
    )]
    parts: Vec<Part>,
    #[arg(long, value_delimiter = ',', default_value = "hot,zipf,large,unique")]
    scenarios: Vec<Scenario>,
    /// Latency of the stub upstream.
    #[arg(long, default_value_t = 5.0)]
    latency_ms: f64,
    #[arg(long, default_value_t = 1.0)]
    jitter_ms: f64,
    /// Other ways for the nodes to work, beside the default, where hits are mostly remote.
    #[arg(long, value_delimiter = ',', default_value = "grpc,bounded-ring")]
    variants: Vec<Variant>,
    /// Seconds between two events of the parts `failures` and `joining`.
    #[arg(long, default_value_t = 10.0)]
    event_seconds: f64,
    /// The Pharos binary.
    #[arg(long, default_value = "target/release/pharos")]
    pharos: PathBuf,
    /// Where cache.json and cache.svg go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
    /// Tiny sizes, to see that the harness works; the results go to bench/work/smoke.
    #[arg(long)]
    smoke: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput, CPU and latency: hot, zipf, large, unique.
    Scenarios,
    /// What the way to another node adds to the time of an answer.
    Hop,
    /// Latency against the share of popular names.
    Popularity,
    /// Throughput over time while 2 of 4 nodes are killed and come back.
    Failures,
    /// What is asked upstream while a fifth node joins four.
    Joining,
}

/// What all parts share.
#[derive(Debug)]
struct Bench {
    args: CacheArgs,
    programs: Programs,
    setups: Vec<Setup>,
    /// Names of the large sets.
    names: usize,
}

pub fn run(mut args: CacheArgs) -> Result<()> {
    if args.smoke {
        (args.rounds, args.seconds, args.event_seconds) = (1, 0.3, 1.0);
        args.results = PathBuf::from("bench/work/smoke");
    }
    let nodes_possible = args.nodes.iter().all(|nodes| (1..=NODES_MAX).contains(nodes));
    ensure!(nodes_possible, "--nodes: from 1 to {NODES_MAX} are possible");
    ensure!(args.rounds > 0 && args.seconds > 0.0 && args.rate > 0, "nothing to measure");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(cores > LOAD_CORE, "two cores are needed: one for the caches, one for the load");
    let programs = Programs { pharos: args.pharos.clone() };
    for kind in &args.only {
        programs.require(*kind)?;
    }
    load::pin_to(LOAD_CORE)?;
    let setups = setups(&args);
    let names = if args.smoke { SMOKE_NAMES } else { LARGE_NAMES };
    let bench = Bench { args, programs, setups, names };
    let report = bench.measure()?;
    print!("{}", report::render(&report));
    let dir = &bench.args.results;
    write_file(dir, "cache.json", &(serde_json::to_string_pretty(&report)? + "\n"))?;
    write_file(dir, "cache.svg", &plot::render(&report))?;
    lost_too_many(&report)
}

/// Peers first, then Pharos with more and more nodes, then the floor.
fn setups(args: &CacheArgs) -> Vec<Setup> {
    let mut setups = Vec::new();
    for kind in [Kind::Dnsdist, Kind::Unbound] {
        if args.only.contains(&kind) {
            setups.push(Setup::alone(kind));
        }
    }
    if args.only.contains(&Kind::Pharos) {
        let mut nodes = args.nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        let compared = nodes.contains(&REMOTE_NODES).then_some(args.variants.iter());
        setups.extend(nodes.into_iter().map(Setup::pharos));
        let variant =
            |variant: &Variant| Setup { variant: *variant, ..Setup::pharos(REMOTE_NODES) };
        let others = compared.into_iter().flatten().map(variant);
        setups.extend(others.filter(|setup| setup.variant != Variant::Standard));
    }
    if args.only.contains(&Kind::Floor) {
        setups.push(Setup::alone(Kind::Floor));
    }
    setups
}

impl Bench {
    fn measure(&self) -> Result<CacheReport> {
        let args = &self.args;
        let stub = Stub::start(args.latency_ms, args.jitter_ms)?;
        let wants = |part| args.parts.contains(&part);
        let mut scenarios = Vec::new();
        if wants(Part::Scenarios) {
            let mut rounds = Rounds::new(self, &stub);
            for scenario in &args.scenarios {
                scenarios.push(rounds.measure(*scenario)?);
            }
        }
        let hop = match wants(Part::Hop) && args.only.contains(&Kind::Pharos) {
            true => Some(hop::measure(self, &stub)?),
            false => None,
        };
        let popularity = match wants(Part::Popularity) {
            true => popularity::measure(self, &stub)?,
            false => Vec::new(),
        };
        let failures = match wants(Part::Failures) && args.only.contains(&Kind::Pharos) {
            true => Some(failures::measure(self, &stub)?),
            false => None,
        };
        let joining = match wants(Part::Joining) && args.only.contains(&Kind::Pharos) {
            true => Some(joining::measure(self, &stub)?),
            false => None,
        };
        let versions = args.only.iter().map(|&server| {
            let text = self.programs.version(server);
            Version { server, text }
        });
        Ok(CacheReport {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            date: date(),
            machine: Machine::describe(),
            parameters: Parameters {
                rounds: args.rounds,
                seconds: args.seconds,
                rate: args.rate,
                window: args.window,
                names: self.names,
                upstream_latency_ms: args.latency_ms,
                upstream_jitter_ms: args.jitter_ms,
            },
            versions: versions.collect(),
            bars: report::bars(&scenarios, hop.as_ref(), failures.as_ref(), joining.as_ref()),
            scenarios,
            hop,
            popularity,
            failures,
            joining,
        })
    }

    /// Starts a cache before the stub.
    fn start(&self, setup: Setup, stub: &Stub, replicas: usize) -> Result<Cluster> {
        eprintln!("starting {setup}");
        Cluster::start(setup, &self.programs, stub.listen, replicas)
    }
}

/// Sockets for a cluster: the same number to each node.
fn sockets(nodes: usize) -> usize {
    nodes * (SOCKETS / nodes).max(SOCKETS_PER_NODE_MIN)
}

/// So many questions a second, without a window that could hold them back.
fn paced(nodes: usize, rate: u32) -> Pressure {
    let sockets = sockets(nodes);
    let window = sockets * PACED_SLOTS;
    Pressure { sockets, window, rate: Some(rate), idle: Idle::Wait, ..Pressure::default() }
}

/// Asks for every name so often that the caches know all of them.
fn fill(cluster: &Cluster, tag: &str, names: usize, passes: usize) -> Result<()> {
    let setup = cluster.setup;
    let each = Names::each(tag, names);
    let sockets = sockets(setup.nodes);
    let window = FILL_WINDOW.max(sockets);
    let pressure = Pressure { sockets, window, idle: Idle::Wait, ..Pressure::default() };
    let mut load = Load::new(&cluster.addresses(), &each, pressure)?;
    let started = Instant::now();
    let outcome = load.run(Until::Asked((names * passes) as u64))?;
    if let Some(complaint) = outcome.complaint() {
        bail!("{setup}, while it is filled: {complaint}{}", cluster.log_tail());
    }
    ensure!(outcome.answers > 0, "{setup} does not answer{}", cluster.log_tail());
    eprintln!("{setup} is filled with {names} names after {:.1?}", started.elapsed());
    Ok(())
}

fn seconds(seconds: f64) -> Until {
    Until::Elapsed(Duration::from_secs_f64(seconds))
}

fn lost_too_many(report: &CacheReport) -> Result<()> {
    for scenario in &report.scenarios {
        for result in &scenario.setups {
            let answers: u64 = result.rounds.iter().map(|round| round.answers).sum();
            if result.lost as f64 > LOST_SHARE_MAX * answers as f64 {
                let (name, setup, lost) = (scenario.scenario.name(), result.setup, result.lost);
                bail!("{name}: {setup} lost {lost} of {} questions", answers + lost);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_gets_as_many_sockets() {
        let counts: Vec<usize> = (1..=5).map(sockets).collect();
        assert_eq!(counts, [16, 16, 15, 16, 20]);
        assert!((1..=NODES_MAX).all(|nodes| sockets(nodes).is_multiple_of(nodes)));
    }
}
