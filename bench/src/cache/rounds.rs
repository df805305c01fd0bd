//! The scenarios: all caches side by side in interleaved rounds.
//!
//! A round has two halves. Saturated, a cache shows its throughput and what an answer costs;
//! paced, how long one takes when nobody waits in line.

use anyhow::{Context, Result, bail, ensure};

use super::names::Names;
use super::report::{Round, Scenario, ScenarioResult, SetupResult};
use super::servers::{Cluster, Setup, Stub, Variant};
use super::{Bench, fill, paced, quiet, seconds, sockets};
use crate::load::{Histogram, Idle, Load, Outcome, Pressure};
use crate::measure::{self, CpuReading};
use crate::process::{LOAD_CORE, SERVER_CORE};
use crate::progress::human;

const HOT_NAMES: usize = 1_000;
/// How often each node sees each hot name before the rounds, about.
const HOT_PASSES: usize = 4;
/// Copies of each entry; one in the scenario that is about the way to another node.
pub const REPLICAS: usize = 2;
/// Misses wait for the upstream, so it takes more of them at once to keep a cache busy.
const UNIQUE_WINDOW: usize = 1024;
/// More CPU than this share of a round used by the idle caches is worth a warning.
const IDLE_SHARE_MAX: f64 = 0.02;
/// The same for programs that are no part of the bench.
const FOREIGN_SHARE_MAX: f64 = 0.10;
/// Outside of the two halves a round takes about this long.
const ROUND_EXTRA_SECS: f64 = 0.7;

/// All scenarios, one after the other.
pub struct Rounds<'b> {
    bench: &'b Bench,
    stub: &'b Stub,
    done: usize,
}

impl<'b> Rounds<'b> {
    pub fn new(bench: &'b Bench, stub: &'b Stub) -> Rounds<'b> {
        Rounds { bench, stub, done: 0 }
    }

    pub fn measure(&mut self, scenario: Scenario) -> Result<ScenarioResult> {
        let args = &self.bench.args;
        let name = scenario.name();
        let mut clusters = Vec::new();
        let is_compared =
            |setup: &&Setup| setup.variant == Variant::Standard || scenario == Scenario::Large;
        for &setup in self.bench.setups.iter().filter(is_compared) {
            let cluster = self.bench.start(setup, self.stub, replicas(scenario))?;
            if let Some((names, passes)) = self.fills(scenario, setup.nodes) {
                fill(&cluster, name, names, passes)?;
            }
            clusters.push(cluster);
        }
        let repeated = self.names(scenario);
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); clusters.len()];
        let mut latencies = vec![(Histogram::default(), 0.0); clusters.len()];
        for number in 1..=args.rounds {
            for (index, cluster) in clusters.iter().enumerate() {
                let (setup, of, left) = (cluster.setup, args.rounds, human(self.seconds_left()));
                eprintln!("{name}, round {number} of {of}: {setup} (about {left} left)");
                let others = clusters.iter().filter(|other| other.setup != setup);
                let others: Vec<&Cluster> = others.collect();
                let names = |half: &str| match scenario {
                    Scenario::Unique => Names::unique(&format!("{half}{number}")),
                    _ => repeated.clone(),
                };
                let round = self.saturated(cluster, scenario, &names("s"), &others);
                rounds[index].push(round.with_context(|| format!("{name}: {setup}"))?);
                let paced = self.paced(cluster, &names("p"));
                let (found, quiet) = paced.with_context(|| format!("{name}, paced: {setup}"))?;
                latencies[index].0.merge(&found);
                latencies[index].1 += quiet / args.rounds as f64;
                self.done += 1;
            }
        }
        let results = clusters.iter().zip(rounds).zip(latencies);
        let setups = results.filter_map(|((cluster, rounds), (latencies, quiet))| {
            SetupResult::of(cluster.setup, rounds, latencies.latencies(), quiet)
        });
        Ok(ScenarioResult { scenario, setups: setups.collect() })
    }

    fn saturated(
        &self,
        cluster: &Cluster,
        scenario: Scenario,
        names: &Names,
        others: &[&Cluster],
    ) -> Result<Round> {
        let args = &self.bench.args;
        let mut load = Load::new(&cluster.addresses(), names, self.pressure(cluster, scenario))?;
        let warm_up = load.run(seconds(args.seconds.min(1.5) / 5.0))?;
        check(&warm_up, cluster)?;
        let (before, upstream) = (Clocks::read(cluster, self.stub, others)?, self.stub.total()?);
        let outcome = load.run(seconds(args.seconds))?;
        let (after, upstream) =
            (Clocks::read(cluster, self.stub, others)?, self.stub.total()? - upstream);
        check(&outcome, cluster)?;
        let cpu = after.cluster - before.cluster;
        let own = (after.own - before.own).total_secs() + (after.stub - before.stub).total_secs();
        let others_cpu_secs = after.others_secs - before.others_secs;
        let known = cpu.total_secs() + own + others_cpu_secs;
        let foreign_cpu_secs = (after.busy_secs - before.busy_secs - known).max(0.0);
        let (answers, lost, seconds) = (outcome.answers, outcome.lost, outcome.seconds);
        if others_cpu_secs > IDLE_SHARE_MAX * seconds {
            eprintln!("warning: the idle caches used {others_cpu_secs:.2} s of CPU meanwhile");
        }
        if foreign_cpu_secs > FOREIGN_SHARE_MAX * seconds {
            eprintln!("warning: other programs used {foreign_cpu_secs:.2} s of these cores");
        }
        Ok(Round { answers, lost, seconds, cpu, upstream, others_cpu_secs, foreign_cpu_secs })
    }

    fn pressure(&self, cluster: &Cluster, scenario: Scenario) -> Pressure {
        let nodes = cluster.setup.nodes;
        // The same to each node: with less, it takes fewer questions at once, and the system
        // calls cost more. The stub needs the load's core only where there are misses.
        let (window, idle) = match scenario {
            Scenario::Unique => (UNIQUE_WINDOW.max(self.bench.args.window), Idle::Wait),
            _ => (self.bench.args.window * nodes, Idle::Spin),
        };
        Pressure { sockets: sockets(nodes), window, idle, ..Pressure::default() }
    }

    /// Latencies at the pace of the parameters, and of what share of the time they are.
    fn paced(&self, cluster: &Cluster, names: &Names) -> Result<(Histogram, f64)> {
        let args = &self.bench.args;
        let pressure = Pressure { spans: true, ..paced(cluster.setup.nodes, args.rate) };
        let mut load = Load::new(&cluster.addresses(), names, pressure)?;
        let (outcome, stolen) = quiet::watch(|| load.run(seconds(args.seconds)))?;
        check(&outcome, cluster)?;
        Ok(quiet::latencies(&outcome.spans, &stolen))
    }

    /// Names to fill the caches with and how often to ask for each; none for misses.
    fn fills(&self, scenario: Scenario, nodes: usize) -> Option<(usize, usize)> {
        match scenario {
            Scenario::Hot => Some((HOT_NAMES, HOT_PASSES * nodes)),
            // Twice: a question lost the first time is asked again.
            Scenario::Zipf | Scenario::Large => Some((self.bench.names, 2)),
            Scenario::Unique => None,
        }
    }

    /// The names of a scenario. Those that are never asked twice are for one half of one round.
    fn names(&self, scenario: Scenario) -> Names {
        let name = scenario.name();
        match scenario {
            Scenario::Hot => Names::uniform(name, HOT_NAMES),
            Scenario::Zipf => Names::zipf(name, self.bench.names),
            Scenario::Large => Names::uniform(name, self.bench.names),
            Scenario::Unique => Names::unique(name),
        }
    }

    /// Rounds only: how long caches take to be filled is not known.
    fn seconds_left(&self) -> f64 {
        let args = &self.bench.args;
        let total = args.scenarios.len() * args.rounds * self.bench.setups.len();
        (total - self.done) as f64 * (2.1 * args.seconds + ROUND_EXTRA_SECS)
    }
}

fn check(outcome: &Outcome, cluster: &Cluster) -> Result<()> {
    if let Some(complaint) = outcome.complaint() {
        bail!("{complaint}{}", cluster.log_tail());
    }
    ensure!(outcome.answers > 0, "no answer at all{}", cluster.log_tail());
    Ok(())
}

fn replicas(scenario: Scenario) -> usize {
    if scenario == Scenario::Large { 1 } else { REPLICAS }
}

/// All clocks that a round reads before and after.
struct Clocks {
    cluster: CpuReading,
    own: CpuReading,
    stub: CpuReading,
    others_secs: f64,
    busy_secs: f64,
}

impl Clocks {
    fn read(cluster: &Cluster, stub: &Stub, others: &[&Cluster]) -> Result<Clocks> {
        let since_start = |other: &&Cluster| Ok((other.cpu()? - Default::default()).total_secs());
        Ok(Clocks {
            others_secs: others.iter().map(since_start).sum::<Result<f64>>()?,
            own: measure::read_cpu(&[std::process::id()])?,
            stub: stub.cpu()?,
            busy_secs: measure::read_busy_secs(&[SERVER_CORE, LOAD_CORE])?,
            cluster: cluster.cpu()?,
        })
    }
}
