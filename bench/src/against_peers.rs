//! `bench authority`: Pharos, the peers and the floor, side by side, in interleaved rounds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::data::{self, Scenario, ZoneSet};
use crate::load::{self, Load, Pressure, Until};
use crate::machine::{Machine, date};
use crate::measure::{self, CpuReading};
use crate::peers::{Kind, Programs, Server};
use crate::plot;
use crate::process::{LOAD_CORE, SERVER_CORE};
use crate::progress::human;
use crate::queries::{Expect, QuerySet};
use crate::report::{
    self, FORMAT, FORMAT_VERSION, Parameters, Report, Round, ScenarioResult, ServerResult,
    StartResult, Version,
};
use crate::stats::{Random, Spread};

const READY_LIMIT: Duration = Duration::from_secs(60);
const START_LIMIT: Duration = Duration::from_secs(1800);
/// Zones asked, beside the last one, before a server counts as started.
const START_SAMPLES: usize = 20;
const QUERIES: usize = 1_000_000;
/// More than this share lost means that the figures say little.
const LOST_SHARE_MAX: f64 = 0.01;
/// More CPU than this share of a round used by the idle servers is worth a warning.
const IDLE_SHARE_MAX: f64 = 0.02;
/// The same for programs that are no part of the bench.
const FOREIGN_SHARE_MAX: f64 = 0.10;

#[derive(Debug, Args)]
pub struct AuthorityArgs {
    /// Interleaved rounds of each scenario; ratios are medians over them.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of each server in each round. Many short rounds beat few long ones: a noisy machine
    /// is then noisy for all servers alike.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Zones of the scenario `million`.
    #[arg(long, default_value_t = 1_000_000)]
    zones: usize,
    /// How often each server is started with those zones.
    #[arg(long, default_value_t = 1)]
    starts: usize,
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "positive,million,nxdomain,wildcard,delegation,signed"
    )]
    scenarios: Vec<Scenario>,
    #[arg(long, value_delimiter = ',', default_value = "knot,nsd")]
    peers: Vec<Kind>,
    /// The Pharos binary; without it only the peers and the floor are measured.
    #[arg(long)]
    pharos: Option<PathBuf>,
    /// Where generated zones are kept.
    #[arg(long, default_value = "bench/work")]
    out: PathBuf,
    /// Where authority.json and authority.svg go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
    /// Outstanding queries.
    #[arg(long, default_value_t = Pressure::default().window)]
    window: usize,
    /// Tiny sizes, to see that the harness works; the results go to OUT/smoke.
    #[arg(long)]
    smoke: bool,
}

/// What all rounds share.
#[derive(Debug)]
struct Bench {
    args: AuthorityArgs,
    programs: Programs,
    kinds: Vec<Kind>,
    queries: usize,
    pressure: Pressure,
    rounds_done: usize,
}

pub fn run(mut args: AuthorityArgs) -> Result<()> {
    let mut queries = QUERIES;
    if args.smoke {
        (args.rounds, args.seconds, args.zones, queries) = (1, 0.3, 50, 10_000);
        args.results = args.out.join("smoke");
    }
    ensure!(args.rounds > 0 && args.starts > 0 && args.zones > 0, "nothing to measure");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(cores > LOAD_CORE, "two cores are needed: one for the server, one for the load");
    let programs = Programs { pharos: args.pharos.clone() };
    let mut kinds = args.peers.clone();
    kinds.extend(args.pharos.is_some().then_some(Kind::Pharos));
    kinds.push(Kind::Floor);
    for &kind in &kinds {
        programs.require(kind)?;
    }
    load::pin_to(LOAD_CORE)?;
    let pressure = Pressure { window: args.window, ..Pressure::default() };
    let mut bench = Bench { args, programs, kinds, queries, pressure, rounds_done: 0 };
    let report = bench.measure()?;
    print!("{}", report::render(&report));
    bench.write(&report)?;
    lost_too_many(&report)
}

impl Bench {
    fn measure(&mut self) -> Result<Report> {
        let mut scenarios = self.small()?;
        let mut starts = Vec::new();
        if self.args.scenarios.contains(&Scenario::Million) {
            let (result, measured) = self.million()?;
            // Where it was asked for, not where it was measured.
            let place = self.args.scenarios.iter().position(|&it| it == Scenario::Million);
            scenarios.insert(place.unwrap_or(0).min(scenarios.len()), result);
            starts = measured;
        }
        let versions = self.kinds.iter().map(|&server| {
            let text = self.programs.version(server);
            Version { server, text }
        });
        Ok(Report {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            date: date(),
            machine: Machine::describe(),
            parameters: Parameters {
                rounds: self.args.rounds,
                seconds: self.args.seconds,
                zones: self.args.zones,
                sockets: self.pressure.sockets,
                window: self.pressure.window,
            },
            versions: versions.collect(),
            bars: report::bars(&scenarios, &starts),
            scenarios,
            starts,
        })
    }

    /// The scenarios with few zones: all servers run from the beginning.
    fn small(&mut self) -> Result<Vec<ScenarioResult>> {
        let wanted = self.args.scenarios.iter().copied();
        let scenarios: Vec<Scenario> = wanted.filter(|&it| it != Scenario::Million).collect();
        if scenarios.is_empty() {
            return Ok(Vec::new());
        }
        let zones = data::small_zones(&self.args.out)?;
        let probe = ("ns1.small.test".to_owned(), Expect::address([192, 0, 2, 53].into()));
        let mut servers = Vec::new();
        for &kind in &self.kinds {
            let mut server = Server::start(kind, &self.programs, &zones)?;
            server.wait_ready(std::slice::from_ref(&probe), READY_LIMIT)?;
            servers.push(server);
        }
        let mut results = Vec::new();
        for scenario in scenarios {
            results.push(self.rounds(scenario, &zones, &servers)?);
        }
        Ok(results)
    }

    /// Many zones: each server starts while the others, if any, are idle.
    fn million(&mut self) -> Result<(ScenarioResult, Vec<StartResult>)> {
        let zones = data::many_zones(&self.args.out, self.args.zones)?;
        let probes = start_probes(&zones);
        let mut servers = Vec::new();
        let mut starts = Vec::new();
        for &kind in &self.kinds.clone() {
            if kind == Kind::Floor {
                let mut server = Server::start(kind, &self.programs, &zones)?;
                server.wait_ready(&probes, READY_LIMIT)?;
                servers.push(server);
                continue;
            }
            let (server, result) = self.measure_start(kind, &zones, &probes)?;
            servers.push(server);
            starts.push(result);
        }
        Ok((self.rounds(Scenario::Million, &zones, &servers)?, starts))
    }

    fn measure_start(
        &self,
        kind: Kind,
        zones: &ZoneSet,
        probes: &[(String, Expect)],
    ) -> Result<(Server, StartResult)> {
        let (mut seconds, mut cpu_seconds) = (Vec::new(), Vec::new());
        loop {
            zones.warm()?;
            let (number, of) = (seconds.len() + 1, self.args.starts);
            eprintln!("start {number} of {of} of {kind} with {} zones", zones.names.len());
            let mut server = Server::start(kind, &self.programs, zones)?;
            let took = server.wait_ready(probes, START_LIMIT)?.as_secs_f64();
            let cpu = server.cpu()?.since_start_secs();
            let memory = server.memory()?;
            eprintln!("{kind} answers after {}", human(took));
            seconds.push(took);
            cpu_seconds.push(cpu);
            if seconds.len() < self.args.starts {
                continue;
            }
            let spread = |values| Spread::of(values).context("no start was measured");
            let (seconds, cpu_seconds) = (spread(seconds)?, spread(cpu_seconds)?);
            return Ok((server, StartResult { server: kind, seconds, cpu_seconds, memory }));
        }
    }

    fn rounds(
        &mut self,
        scenario: Scenario,
        zones: &ZoneSet,
        servers: &[Server],
    ) -> Result<ScenarioResult> {
        let queries = scenario.queries(zones, self.queries);
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); servers.len()];
        for number in 1..=self.args.rounds {
            for (index, server) in servers.iter().enumerate() {
                let (name, of) = (scenario.name(), self.args.rounds);
                let left = human(self.seconds_left(servers.len()));
                eprintln!("{name}, round {number} of {of}: {} (about {left} left)", server.kind);
                let others = servers.iter().filter(|other| other.kind != server.kind);
                let round = self.round(server, &queries, &others.collect::<Vec<_>>());
                let round = round.with_context(|| format!("{name}: {}", server.kind))?;
                rounds[index].push(round);
                self.rounds_done += 1;
            }
        }
        let results = servers.iter().zip(rounds);
        let results = results.filter_map(|(server, rounds)| ServerResult::of(server.kind, rounds));
        Ok(ScenarioResult { scenario, servers: results.collect() })
    }

    fn round(&self, server: &Server, queries: &QuerySet, others: &[&Server]) -> Result<Round> {
        let mut load = Load::new(&[server.address], queries, self.pressure)?;
        if server.kind == Kind::Floor {
            load.expect_floor();
        }
        let seconds = |seconds: f64| Until::Elapsed(Duration::from_secs_f64(seconds));
        let warm_up = load.run(seconds(self.args.seconds.min(1.5) / 5.0))?;
        if let Some(complaint) = warm_up.complaint() {
            bail!("{complaint}");
        }
        let before = Clocks::read(server, others)?;
        let outcome = load.run(seconds(self.args.seconds))?;
        let after = Clocks::read(server, others)?;
        if let Some(complaint) = outcome.complaint() {
            bail!("{complaint}");
        }
        ensure!(outcome.answers > 0, "no answer at all{}", server.log_tail());
        let cpu = after.server - before.server;
        let own = (after.own - before.own).total_secs();
        let others_cpu_secs = after.others_secs - before.others_secs;
        let known = cpu.total_secs() + own + others_cpu_secs;
        let foreign_cpu_secs = (after.busy_secs - before.busy_secs - known).max(0.0);
        let (answers, lost, seconds) = (outcome.answers, outcome.lost, outcome.seconds);
        if others_cpu_secs > IDLE_SHARE_MAX * seconds {
            eprintln!("warning: the idle servers used {others_cpu_secs:.2} s of CPU meanwhile");
        }
        if foreign_cpu_secs > FOREIGN_SHARE_MAX * seconds {
            eprintln!("warning: other programs used {foreign_cpu_secs:.2} s of these cores");
        }
        Ok(Round { answers, lost, seconds, cpu, others_cpu_secs, foreign_cpu_secs })
    }

    /// Rounds only: how long the servers need to start is not known.
    fn seconds_left(&self, servers: usize) -> f64 {
        let total = self.args.scenarios.len() * self.args.rounds * servers;
        (total - self.rounds_done) as f64 * (self.args.seconds * 1.1 + 0.2)
    }

    fn write(&self, report: &Report) -> Result<()> {
        let dir = &self.args.results;
        write_file(dir, "authority.json", &(serde_json::to_string_pretty(report)? + "\n"))?;
        write_file(dir, "authority.svg", &plot::render(report))
    }
}

/// All clocks that a round reads before and after.
struct Clocks {
    server: CpuReading,
    own: CpuReading,
    others_secs: f64,
    busy_secs: f64,
}

impl Clocks {
    fn read(server: &Server, others: &[&Server]) -> Result<Clocks> {
        let since_start = |other: &&Server| Ok((other.cpu()? - Default::default()).total_secs());
        Ok(Clocks {
            others_secs: others.iter().map(since_start).sum::<Result<f64>>()?,
            own: measure::read_cpu(&[std::process::id()])?,
            busy_secs: measure::read_busy_secs(&[SERVER_CORE, LOAD_CORE])?,
            server: server.cpu()?,
        })
    }
}

/// The last zone of the list, then random ones.
pub fn start_probes(zones: &ZoneSet) -> Vec<(String, Expect)> {
    let mut random = Random::new(zones.names.len() as u64);
    let mut probes = vec![zones.www(zones.names.len() - 1)];
    probes.extend((0..START_SAMPLES).map(|_| zones.random_name(&mut random)));
    probes
}

pub fn write_file(dir: &Path, name: &str, text: &str) -> Result<()> {
    let file = dir.join(name);
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&file, text))
        .with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

fn lost_too_many(report: &Report) -> Result<()> {
    for scenario in &report.scenarios {
        for result in &scenario.servers {
            let answers: u64 = result.rounds.iter().map(|round| round.answers).sum();
            if result.lost as f64 > LOST_SHARE_MAX * answers as f64 {
                let (name, server, lost) = (scenario.scenario.name(), result.server, result.lost);
                bail!("{name}: {server} lost {lost} of {} queries", answers + lost);
            }
        }
    }
    Ok(())
}
