//! `bench reload`: what clients notice while a running Pharos takes a changed zone file.
//!
//! The load is paced, not a closed loop: a server that pauses gets its queries all the same,
//! and the pause shows in the latencies.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::against_peers::{start_probes, write_file};
use crate::data::{self, ZoneSet};
use crate::interrupt;
use crate::machine::{Machine, date};
use crate::measure::dropped_at;
use crate::pace::{Pace, Sample, Watch};
use crate::peers::{Kind, Programs, Server};
use crate::process::{LOAD_CORE, on_core};
use crate::queries::{EdnsMode, QuerySet, address_query};
use crate::stats::{Random, Spread, percentile_sorted};

const FORMAT: &str = "pharos-bench-reload";
const FORMAT_VERSION: u32 = 2;
const START_LIMIT: Duration = Duration::from_secs(1800);
const QUERIES: usize = 200_000;
const VISIBLE_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct ReloadArgs {
    #[arg(long)]
    pharos: PathBuf,
    #[arg(long, default_value_t = 1_000_000)]
    zones: usize,
    /// Queries a second.
    #[arg(long, default_value_t = 20_000)]
    rate: u32,
    /// Quiet seconds before the first and after each change.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How often the zone is changed.
    #[arg(long, default_value_t = 5)]
    changes: usize,
    /// Have all zone files looked at, not only the changed one's.
    #[arg(long)]
    whole: bool,
    /// Where generated zones are kept.
    #[arg(long, default_value = "bench/work")]
    out: PathBuf,
    /// Where reload.json goes.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct ReloadReport {
    format: String,
    version: u32,
    date: String,
    machine: Machine,
    pharos: String,
    zones: usize,
    rate: u32,
    changes: usize,
    /// From just before the file changed to the first answer with the new address.
    visible_ms: Spread,
    /// How long `pharos zone reload` ran.
    command_ms: Spread,
    phases: Vec<Phase>,
    wrong: u64,
    /// Old answers to queries sent after the new address was seen.
    old_after_new: u64,
    /// How far the load itself fell behind its pace at worst.
    load_late_us_max: f64,
    /// Of the lost ones: questions that the server's socket had no room for.
    dropped_by_server: u64,
    /// Of the lost ones: answers that the load's own socket had no room for.
    dropped_by_load: u64,
}

/// Latencies of the queries sent in one part of the run.
#[derive(Debug, Serialize, Deserialize)]
struct Phase {
    name: String,
    answers: usize,
    lost: usize,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

/// One change: when it began, when the new address was seen, when the command returned.
#[derive(Clone, Copy, Debug)]
struct Change {
    began: Instant,
    seen: Instant,
    command: Duration,
}

impl Change {
    fn contains(&self, sent: Instant) -> bool {
        (self.began..self.seen.max(self.began + self.command)).contains(&sent)
    }
}

pub fn run(args: &ReloadArgs) -> Result<()> {
    ensure!(args.zones > 0 && args.changes > 0 && args.rate > 0, "nothing to measure");
    let programs = Programs { pharos: Some(args.pharos.clone()) };
    programs.require(Kind::Pharos)?;
    let zones = data::many_zones(&args.out, args.zones)?;
    zones.warm()?;
    eprintln!("starting pharos with {} zones", args.zones);
    let mut server = Server::start(Kind::Pharos, &programs, &zones)?;
    let ready = server.wait_ready(&start_probes(&zones), START_LIMIT)?;
    eprintln!("pharos answers after {ready:.1?}");

    let zone = ChangedZone::new(&zones, args.zones / 2)?;
    let load = start_load(&zones, &zone, server.address, args.rate)?;
    let changes = change_all(args, &server, &zone, &load.watch);
    load.watch.stop();
    let pace = load.thread.join().map_err(|_| anyhow::anyhow!("the load thread panicked"))?;
    let (changes, pace) = (changes?, pace?);
    let dropped_by_server = dropped_at(server.address.port())?;
    let report = summarise(args, &programs, &changes, &pace, dropped_by_server)?;
    print!("{}", render(&report));
    write_file(&args.results, "reload.json", &(serde_json::to_string_pretty(&report)? + "\n"))?;
    match pace.first_wrong {
        Some(wrong) => bail!("{} wrong answers; the first: {wrong}", pace.wrong),
        None => Ok(()),
    }
}

struct RunningLoad {
    watch: Watch,
    thread: JoinHandle<Result<Pace>>,
}

fn start_load(
    zones: &ZoneSet,
    zone: &ChangedZone,
    target: SocketAddr,
    rate: u32,
) -> Result<RunningLoad> {
    let queries = other_queries(zones, &zone.name);
    let watch = Watch::new(zone.address(0));
    let watched = watch.clone();
    let name = zone.name.clone();
    let mut pace = Pace::new(target, rate, &name)?;
    let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
        crate::load::pin_to(LOAD_CORE)?;
        pace.run(&queries, &watched)?;
        Ok(pace)
    })?;
    Ok(RunningLoad { watch, thread })
}

/// Names of random zones whose addresses stay as they are.
fn other_queries(zones: &ZoneSet, changed: &str) -> QuerySet {
    let mut random = Random::new(1);
    let mut queries = QuerySet::default();
    while queries.len() < QUERIES {
        let (name, expect) = zones.random_name(&mut random);
        if name != changed {
            queries.push(&address_query(&name, EdnsMode::None), expect);
        }
    }
    queries
}

fn change_all(
    args: &ReloadArgs,
    server: &Server,
    zone: &ChangedZone,
    watch: &Watch,
) -> Result<Vec<Change>> {
    let quiet = Duration::from_secs_f64(args.seconds);
    let mut changes = Vec::new();
    rest(quiet)?;
    for number in 1..=args.changes {
        eprintln!("change {number} of {}", args.changes);
        watch.expect(zone.address(number));
        let began = Instant::now();
        zone.write(number)?;
        let command = ask_reload(args, zone, &server.control())?;
        while watch.seen().is_none() {
            interrupt::check()?;
            ensure!(
                began.elapsed() < VISIBLE_LIMIT,
                "the change is not visible after {VISIBLE_LIMIT:?}{}",
                server.log_tail()
            );
            thread::sleep(Duration::from_millis(1));
        }
        let seen = watch.seen().unwrap_or(began);
        changes.push(Change { began, seen, command });
        rest(quiet)?;
    }
    Ok(changes)
}

/// Runs `pharos zone reload`, out of the way of the load on the same core.
fn ask_reload(args: &ReloadArgs, zone: &ChangedZone, control: &Path) -> Result<Duration> {
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(&args.pharos).args(["zone", "reload", "--control"]).arg(control);
    if !args.whole {
        command.arg(zone.name.trim_start_matches("www."));
    }
    let started = Instant::now();
    let output = on_core(LOAD_CORE, &command).output().context("cannot run pharos zone reload")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("pharos zone reload failed with {}: {}", output.status, stderr.trim());
    }
    Ok(started.elapsed())
}

fn rest(duration: Duration) -> Result<()> {
    let started = Instant::now();
    while let Some(left) = duration.checked_sub(started.elapsed()) {
        interrupt::check()?;
        thread::sleep(left.min(Duration::from_millis(50)));
    }
    Ok(())
}

/// A zone whose file is changed during the run and put back at its end. Meanwhile the
/// parameters of the directory are away, so that a run that is killed leaves no directory
/// that looks unchanged.
struct ChangedZone {
    index: usize,
    /// The name whose address changes.
    name: String,
    file: PathBuf,
    original: Vec<u8>,
    parameters_file: PathBuf,
    parameters: Vec<u8>,
}

impl ChangedZone {
    fn new(zones: &ZoneSet, index: usize) -> Result<ChangedZone> {
        let file = zones.file(&zones.names[index]);
        let parameters_file = data::parameters_file(&zones.dir);
        let (original, parameters) = (fs::read(&file)?, fs::read(&parameters_file)?);
        fs::remove_file(&parameters_file)?;
        let (name, _) = zones.www(index);
        Ok(ChangedZone { index, name, file, original, parameters_file, parameters })
    }

    /// The address after `number` changes.
    fn address(&self, number: usize) -> Ipv4Addr {
        match number {
            0 => data::www_address(self.index),
            _ => Ipv4Addr::from(0xc612_0000 + number as u32),
        }
    }

    /// Replaces the file at once, as a careful editor does.
    fn write(&self, number: usize) -> Result<()> {
        let text = data::zone_text(self.index, 1 + number as u32, self.address(number));
        let new = self.file.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &self.file))
            .with_context(|| format!("cannot change {}", self.file.display()))
    }
}

impl Drop for ChangedZone {
    fn drop(&mut self) {
        if fs::write(&self.file, &self.original).is_ok() {
            let _ = fs::write(&self.parameters_file, &self.parameters);
        }
    }
}

fn summarise(
    args: &ReloadArgs,
    programs: &Programs,
    changes: &[Change],
    pace: &Pace,
    dropped_by_server: u64,
) -> Result<ReloadReport> {
    let first = changes.first().context("no change was made")?.began;
    let during = |sample: &Sample| changes.iter().any(|change| change.contains(sample.sent));
    let phase = |name: &str, belongs: &dyn Fn(&Sample) -> bool| {
        Phase::of(name, pace.samples.iter().filter(|sample| belongs(sample)))
    };
    let millis = |value: &dyn Fn(&Change) -> Duration| {
        let values = changes.iter().map(|change| value(change).as_secs_f64() * 1e3);
        Spread::of(values).context("no change was made")
    };
    Ok(ReloadReport {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        date: date(),
        machine: Machine::describe(),
        pharos: programs.version(Kind::Pharos),
        zones: args.zones,
        rate: args.rate,
        changes: changes.len(),
        visible_ms: millis(&|change| change.seen - change.began)?,
        command_ms: millis(&|change| change.command)?,
        phases: vec![
            phase("before", &|sample| sample.sent < first),
            phase("during", &during),
            phase("after", &|sample| sample.sent >= first && !during(sample)),
        ],
        wrong: pace.wrong,
        old_after_new: pace.old_after_new,
        load_late_us_max: pace.late_max.as_secs_f64() * 1e6,
        dropped_by_server,
        dropped_by_load: pace.dropped()?,
    })
}

impl Phase {
    fn of<'s>(name: &str, samples: impl Iterator<Item = &'s Sample>) -> Phase {
        let (mut nanos, mut lost) = (Vec::new(), 0);
        for sample in samples {
            match sample.latency {
                Some(latency) => nanos.push(latency.as_nanos() as u64),
                None => lost += 1,
            }
        }
        nanos.sort_unstable();
        let at = |share| match nanos.is_empty() {
            true => 0.0,
            false => percentile_sorted(&nanos, share) as f64 / 1e3,
        };
        Phase {
            name: name.to_owned(),
            answers: nanos.len(),
            lost,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        }
    }
}

fn render(report: &ReloadReport) -> String {
    let Spread { median, min, max } = report.visible_ms;
    let mut text = format!(
        "{} changes of one zone among {} under {} queries/s\n\
         visible after {median:.1} ms ({min:.1}–{max:.1}); the command took {:.1} ms\n\
         {:<8}{:>10}{:>7}{:>11}{:>11}{:>11}{:>12}\n",
        report.changes,
        report.zones,
        report.rate,
        report.command_ms.median,
        "phase",
        "answers",
        "lost",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "slowest µs"
    );
    for phase in &report.phases {
        text += &format!(
            "{:<8}{:>10}{:>7}{:>11.1}{:>11.1}{:>11.1}{:>12.1}\n",
            phase.name,
            phase.answers,
            phase.lost,
            phase.p50_us,
            phase.p99_us,
            phase.p999_us,
            phase.max_us
        );
    }
    text += &format!(
        "wrong {}, old after new {}; no room in the server's socket for {} questions, in the \
         load's for {} answers; the load was late by at most {:.0} µs\n",
        report.wrong,
        report.old_after_new,
        report.dropped_by_server,
        report.dropped_by_load,
        report.load_late_us_max
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_count_lost_and_rank_latencies() {
        let sent = Instant::now();
        let answered = (1..=1000).map(|us| Some(Duration::from_micros(us)));
        let samples: Vec<Sample> =
            answered.chain([None, None]).map(|latency| Sample { sent, latency }).collect();
        let phase = Phase::of("before", samples.iter());
        assert_eq!((phase.answers, phase.lost), (1000, 2));
        assert_eq!((phase.p50_us, phase.p99_us, phase.max_us), (500.0, 990.0, 1000.0));
        let empty = Phase::of("during", [].iter());
        assert_eq!((empty.answers, empty.max_us), (0, 0.0));
    }

    #[test]
    fn a_change_lasts_until_seen_and_acknowledged() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let change = Change { began, seen: at(10), command: Duration::from_millis(30) };
        assert!(change.contains(began) && change.contains(at(29)));
        assert!(!change.contains(at(30)));
    }
}
