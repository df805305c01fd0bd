//! The result of `bench cache`: its file format, the tables, and the bars to hold.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::servers::{Kind, Setup};
use crate::draw::thousands;
use crate::load::Latencies;
use crate::machine::Machine;
use crate::measure::Cpu;
use crate::report::{Bar, render_bars};
use crate::stats::Spread;

pub const FORMAT: &str = "pharos-bench-cache";
pub const FORMAT_VERSION: u32 = 1;

/// CPU per hit of one node against the better of dnsdist and Unbound.
const CPU_PEER_RATIO_MAX: f64 = 0.80;
/// CPU per hot hit with the most nodes against one node: each node answers from its own memory.
const CPU_FLAT_RATIO_MAX: f64 = 1.10;
/// CPU-seconds of all nodes for a million mostly remote hits on [`REMOTE_NODES`].
const CPU_REMOTE_MAX: f64 = 12.0;
pub const REMOTE_NODES: usize = 4;
/// What the way to another node adds to the 99th percentile.
const HOP_P99_US_MAX: f64 = 300.0;
/// 99.9th percentile after a node was killed.
const KILLED_P999_MS_MAX: f64 = 200.0;

/// Points of the hit ratio that the worst tenth of a second may lose while a node joins.
const JOIN_MISSED_PERCENT_MAX: f64 = 2.0;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// 1,000 names, all cached on every node.
    Hot,
    /// Many names by Zipf's law.
    Zipf,
    /// Many names at random, each cached on one node only: mostly remote hits.
    Large,
    /// No name twice: all are asked upstream.
    Unique,
}

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Hot => "hot",
            Scenario::Zipf => "zipf",
            Scenario::Large => "large",
            Scenario::Unique => "unique",
        }
    }

    /// In words, if the large sets have so many names.
    fn about(self, names: usize) -> String {
        let names = thousands(names);
        match self {
            Scenario::Hot => "1,000 names, all hits".to_owned(),
            Scenario::Zipf => format!("{names} names by Zipf's law, all hits"),
            Scenario::Large => {
                format!("{names} names at random, one owner each: mostly remote hits")
            }
            Scenario::Unique => "no name twice: all misses".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheReport {
    pub format: String,
    pub version: u32,
    pub date: String,
    pub machine: Machine,
    pub parameters: Parameters,
    pub versions: Vec<Version>,
    pub scenarios: Vec<ScenarioResult>,
    /// What the way to another node adds.
    #[serde(default)]
    pub hop: Option<Hop>,
    /// Latency by how much of the load the popular names have.
    pub popularity: Vec<PopularityPoint>,
    /// Throughput over time while nodes are killed and come back.
    pub failures: Option<Failures>,
    /// What is asked upstream while a node joins.
    #[serde(default)]
    pub joining: Option<Joining>,
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    pub rounds: usize,
    /// Of each round: once saturated, once paced.
    pub seconds: f64,
    /// Questions a second of the paced half, from which the latencies come.
    pub rate: u32,
    pub window: usize,
    /// Of the large sets.
    pub names: usize,
    pub upstream_latency_ms: f64,
    pub upstream_jitter_ms: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    pub server: Kind,
    pub text: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioResult {
    pub scenario: Scenario,
    pub setups: Vec<SetupResult>,
}

impl ScenarioResult {
    pub fn of(&self, kind: Kind, nodes: usize) -> Option<&SetupResult> {
        self.setups.iter().find(|result| result.setup == Setup { nodes, ..Setup::alone(kind) })
    }
}

/// All rounds of one cache in one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetupResult {
    pub setup: Setup,
    pub answers_per_second: Spread,
    /// Of all nodes together.
    pub cpu_secs_per_million: Spread,
    pub user_secs_per_million: Spread,
    /// Share of their core that the nodes used; well below 1 means that the load or the
    /// upstream was the limit.
    pub busy: Spread,
    pub lost: u64,
    /// Questions upstream for each answer.
    pub upstream_share: f64,
    /// At the pace of the parameters, not saturated, while the host stole no time.
    pub latencies: Latencies,
    /// The share of the paced time that was so quiet.
    #[serde(default = "all")]
    pub quiet: f64,
    pub rounds: Vec<Round>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Round {
    pub answers: u64,
    pub lost: u64,
    pub seconds: f64,
    pub cpu: Cpu,
    /// Questions that reached the stub meanwhile.
    pub upstream: u64,
    /// CPU that the other caches, which should be idle, used meanwhile.
    pub others_cpu_secs: f64,
    /// CPU used on the two cores by anything that is no part of the bench.
    pub foreign_cpu_secs: f64,
}

impl Round {
    fn per_million(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.answers as f64
    }

    fn cpu_secs_per_million(&self) -> f64 {
        self.per_million(self.cpu.total_secs())
    }
}

/// The whole time, in reports from before it was told apart.
fn all() -> f64 {
    1.0
}

impl SetupResult {
    /// `None` without a round.
    pub fn of(
        setup: Setup,
        rounds: Vec<Round>,
        latencies: Latencies,
        quiet: f64,
    ) -> Option<SetupResult> {
        let spread = |value: fn(&Round) -> f64| Spread::of(rounds.iter().map(value));
        let sum = |value: fn(&Round) -> u64| rounds.iter().map(value).sum::<u64>();
        Some(SetupResult {
            setup,
            answers_per_second: spread(|round| round.answers as f64 / round.seconds)?,
            cpu_secs_per_million: spread(Round::cpu_secs_per_million)?,
            user_secs_per_million: spread(|round| round.per_million(round.cpu.user_secs))?,
            busy: spread(|round| round.cpu.total_secs() / round.seconds)?,
            lost: sum(|round| round.lost),
            upstream_share: sum(|round| round.upstream) as f64 / sum(|round| round.answers) as f64,
            latencies,
            quiet,
            rounds,
        })
    }

    /// CPU per answer in units of `other`'s: the median over the rounds, each compared with the
    /// other's round next to it, so that a machine that slows down for a while slows both.
    fn cpu_ratio(&self, other: &SetupResult) -> Option<f64> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratio = |(own, other): (&Round, &Round)| {
            own.cpu_secs_per_million() / other.cpu_secs_per_million()
        };
        Spread::of(pairs.map(ratio)).map(|spread| spread.median)
    }
}

/// One node of a cluster, asked for what it has and for what mostly another node has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hop {
    pub setup: Setup,
    pub rate: u32,
    pub near: Latencies,
    pub far: Latencies,
}

impl Hop {
    fn added_p99_us(&self) -> f64 {
        self.far.p99_us - self.near.p99_us
    }
}

/// One run of the paper's 10,000 requests for 2,000 names that no cache has seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PopularityPoint {
    pub setup: Setup,
    /// Share of the requests that goes to the popular names, in percent.
    pub percent: u8,
    pub latencies: Latencies,
    pub lost: u64,
    /// Questions that reached the stub, over all rounds.
    pub upstream: u64,
}

/// Two of four nodes are killed, one after the other, and come back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failures {
    pub setup: Setup,
    pub rate: u32,
    pub events: Vec<Event>,
    pub spans: Vec<SpanResult>,
    pub phases: Vec<Phase>,
    pub wrong: u64,
    pub first_wrong: Option<String>,
    /// Questions that a dead node's port refused and another node answered.
    pub refused: u64,
    /// The longest time without any answer.
    pub silence_ms_max: f64,
    /// How far the load fell behind its pace at worst.
    pub load_late_ms_max: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    pub at_secs: f64,
    pub what: String,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SpanResult {
    pub at_secs: f64,
    pub answers_per_second: f64,
    pub failed: u64,
    pub lost: u64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// The answers that came in one part of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    /// It starts with a kill.
    pub killed: bool,
    pub failed: u64,
    pub lost: u64,
    pub latencies: Latencies,
}

/// A fifth node joins four that know everything that is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joining {
    pub setup: Setup,
    pub rate: u32,
    pub names: usize,
    /// When it was started.
    pub joined_secs: f64,
    pub points: Vec<JoinPoint>,
    /// Questions that reached the stub from then on.
    pub missed: u64,
    pub answers: u64,
    pub failed: u64,
    pub lost: u64,
    pub wrong: u64,
    pub first_wrong: Option<String>,
    pub latencies: Latencies,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct JoinPoint {
    pub at_secs: f64,
    /// Of the questions asked meanwhile, those that reached the stub: 100 less the hit ratio.
    pub missed_percent: f64,
}

impl Joining {
    /// Of the worst tenth of a second from the join on.
    pub fn missed_percent_max(&self) -> f64 {
        let since = self.points.iter().filter(|point| point.at_secs >= self.joined_secs);
        since.map(|point| point.missed_percent).fold(0.0, f64::max)
    }
}

/// Compares Pharos with what it is to hold; empty without Pharos.
pub fn bars(
    scenarios: &[ScenarioResult],
    hop: Option<&Hop>,
    failures: Option<&Failures>,
    joining: Option<&Joining>,
) -> Vec<Bar> {
    let mut bars = Vec::new();
    for scenario in scenarios {
        hit_bars(scenario, &mut bars);
    }
    if let Some(hop) = hop {
        let name = "hop: p99 µs added".to_owned();
        bars.push(Bar::new(name, hop.added_p99_us(), HOP_P99_US_MAX));
    }
    if let Some(failures) = failures {
        let slowest = failures.phases.iter().filter(|phase| phase.killed);
        let slowest = slowest.map(|phase| phase.latencies.p999_us / 1e3).fold(0.0, f64::max);
        let name = "killed: p99.9 ms of the worst phase".to_owned();
        bars.push(Bar::new(name, slowest, KILLED_P999_MS_MAX));
        bars.push(Bar::new("killed: wrong answers".to_owned(), failures.wrong as f64, 0.0));
    }
    if let Some(joining) = joining {
        let name = "joining: points of hits lost, worst 0.1 s".to_owned();
        bars.push(Bar::new(name, joining.missed_percent_max(), JOIN_MISSED_PERCENT_MAX));
        bars.push(Bar::new("joining: wrong answers".to_owned(), joining.wrong as f64, 0.0));
    }
    bars
}

fn hit_bars(scenario: &ScenarioResult, bars: &mut Vec<Bar>) {
    let name = scenario.scenario.name();
    let Some(one) = scenario.of(Kind::Pharos, 1) else { return };
    if scenario.scenario != Scenario::Unique {
        // The better peer is the one that Pharos compares worse with.
        let peers = [Kind::Dnsdist, Kind::Unbound].map(|kind| scenario.of(kind, 1));
        let ratios = peers.into_iter().flatten().filter_map(|peer| one.cpu_ratio(peer));
        if let Some(worst) = ratios.max_by(f64::total_cmp) {
            bars.push(Bar::new(format!("{name}: CPU / better peer"), worst, CPU_PEER_RATIO_MAX));
        }
    }
    let most = scenario.setups.iter().filter(|it| it.setup.is_standard_pharos());
    let most = most.max_by_key(|it| it.setup.nodes).filter(|it| it.setup.nodes > 1);
    if let (Scenario::Hot, Some(most)) = (scenario.scenario, most)
        && let Some(ratio) = most.cpu_ratio(one)
    {
        let name = format!("{name}: CPU, {} nodes / 1", most.setup.nodes);
        bars.push(Bar::new(name, ratio, CPU_FLAT_RATIO_MAX));
    }
    if let (Scenario::Large, Some(remote)) =
        (scenario.scenario, scenario.of(Kind::Pharos, REMOTE_NODES))
    {
        let cpu = remote.cpu_secs_per_million.median;
        bars.push(Bar::new(format!("{name}: CPU s/M, {REMOTE_NODES} nodes"), cpu, CPU_REMOTE_MAX));
    }
}

/// The tables and bars as text.
pub fn render(report: &CacheReport) -> String {
    let mut text = String::new();
    for scenario in &report.scenarios {
        render_scenario(&mut text, scenario, &report.parameters);
    }
    if let Some(hop) = &report.hop {
        render_hop(&mut text, hop);
    }
    if !report.popularity.is_empty() {
        render_popularity(&mut text, &report.popularity);
    }
    if let Some(failures) = &report.failures {
        render_failures(&mut text, failures);
    }
    if let Some(joining) = &report.joining {
        render_joining(&mut text, joining);
    }
    if report.bars.is_empty() {
        text += "no bars: Pharos was not measured\n";
    }
    render_bars(&mut text, &report.bars);
    text
}

fn render_scenario(text: &mut String, scenario: &ScenarioResult, parameters: &Parameters) {
    let _ = writeln!(
        text,
        "{}: {}; latencies at {} a second\n  {:<16}{:>11}  {:>20}{:>8}{:>6}{:>7}{:>10}{:>9}{:>9}{:>10}{:>11}",
        scenario.scenario.name(),
        scenario.scenario.about(parameters.names),
        parameters.rate,
        "cache",
        "answers/s",
        "CPU s/M (min–max)",
        "user",
        "busy",
        "lost",
        "upstream",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "pharos/it"
    );
    let pharos = scenario.of(Kind::Pharos, 1);
    for result in &scenario.setups {
        let ratio = pharos
            .filter(|own| result.setup != own.setup)
            .and_then(|own| own.cpu_ratio(result))
            .map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let Spread { median, min, max } = result.cpu_secs_per_million;
        let _ = writeln!(
            text,
            "  {:<16}{:>11.0}  {:>20}{:>8.2}{:>5.0}%{:>7}{:>10.3}{:>9.0}{:>9.0}{:>10.0}{:>11}",
            result.setup,
            result.answers_per_second.median,
            format!("{median:.2} ({min:.2}–{max:.2})"),
            result.user_secs_per_million.median,
            100.0 * result.busy.median,
            result.lost,
            result.upstream_share,
            result.latencies.p50_us,
            result.latencies.p99_us,
            result.latencies.p999_us,
            ratio
        );
    }
    let quiet = scenario.setups.iter().map(|it| 100.0 * it.quiet);
    let quiet = quiet.fold((100.0, 0.0), |(min, max): (f64, f64), it| (min.min(it), max.max(it)));
    let _ = writeln!(
        text,
        "  latencies are of the tenths of a second in which the host stole no time: {:.0}–{:.0} %\n",
        quiet.0, quiet.1
    );
}

fn render_hop(text: &mut String, hop: &Hop) {
    let _ = writeln!(
        text,
        "hop: one of {} asked {} times a second, names by where they are\n  {:<24}{:>9}{:>9}{:>10}{:>10}",
        hop.setup, hop.rate, "", "p50 µs", "p99 µs", "p99.9 µs", "answers"
    );
    for (name, it) in [("here", &hop.near), ("mostly at another node", &hop.far)] {
        let _ = writeln!(
            text,
            "  {name:<24}{:>9.0}{:>9.0}{:>10.0}{:>10}",
            it.p50_us, it.p99_us, it.p999_us, it.answers
        );
    }
    text.push('\n');
}

fn render_popularity(text: &mut String, points: &[PopularityPoint]) {
    let _ = writeln!(
        text,
        "popularity: 10,000 requests for 2,000 new names\n  {:<16}{:>9}{:>10}{:>9}{:>9}{:>7}{:>10}",
        "cache", "popular", "mean µs", "p50 µs", "p99 µs", "lost", "upstream"
    );
    for point in points {
        let Latencies { mean_us, p50_us, p99_us, .. } = point.latencies;
        let _ = writeln!(
            text,
            "  {:<16}{:>8}%{mean_us:>10.0}{p50_us:>9.0}{p99_us:>9.0}{:>7}{:>10}",
            point.setup, point.percent, point.lost, point.upstream
        );
    }
    text.push('\n');
}

fn render_failures(text: &mut String, failures: &Failures) {
    let _ = writeln!(
        text,
        "killed: {} at {} questions a second\n  {:<28}{:>10}{:>8}{:>7}{:>9}{:>10}{:>11}{:>12}",
        failures.setup,
        failures.rate,
        "phase",
        "answers",
        "failed",
        "lost",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "slowest µs"
    );
    for Phase { name, failed, lost, latencies: it, .. } in &failures.phases {
        let _ = writeln!(
            text,
            "  {name:<28}{:>10}{failed:>8}{lost:>7}{:>9.0}{:>10.0}{:>11.0}{:>12.0}",
            it.answers, it.p50_us, it.p99_us, it.p999_us, it.max_us
        );
    }
    let _ = writeln!(
        text,
        "  wrong {}, refused and asked elsewhere {}, longest silence {:.1} ms; the load was late by \
         at most {:.1} ms\n",
        failures.wrong, failures.refused, failures.silence_ms_max, failures.load_late_ms_max
    );
}

fn render_joining(text: &mut String, joining: &Joining) {
    let Latencies { p50_us, p99_us, p999_us, .. } = joining.latencies;
    let _ = writeln!(
        text,
        "joining: node {} joins {} that know {} names, at {} questions a second\n  \
         of {} answers {} were asked upstream, in the worst tenth of a second {:.2} %; wrong {}, \
         failed {}, lost {}; p50 {p50_us:.0} µs, p99 {p99_us:.0} µs, p99.9 {p999_us:.0} µs\n",
        joining.setup.nodes,
        joining.setup.nodes - 1,
        thousands(joining.names),
        joining.rate,
        joining.answers,
        joining.missed,
        joining.missed_percent_max(),
        joining.wrong,
        joining.failed,
        joining.lost
    );
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn rounds(cpu_micros: f64) -> Vec<Round> {
        let cpu = Cpu { user_secs: cpu_micros, kernel_secs: cpu_micros };
        let round = Round {
            answers: 2_000_000,
            lost: 1,
            seconds: 10.0,
            cpu,
            upstream: 1000,
            others_cpu_secs: 0.0,
            foreign_cpu_secs: 0.0,
        };
        vec![round; 3]
    }

    fn latencies(p99_us: f64) -> Latencies {
        Latencies {
            answers: 10,
            p50_us: p99_us / 2.0,
            p99_us,
            p999_us: p99_us,
            ..Default::default()
        }
    }

    fn result(kind: Kind, nodes: usize, cpu: f64, p99_us: f64) -> SetupResult {
        let setup = Setup { nodes, ..Setup::alone(kind) };
        SetupResult::of(setup, rounds(cpu), latencies(p99_us), 0.6).unwrap()
    }

    fn failures() -> Failures {
        let phase = |name: &str, killed, p99_us| Phase {
            name: name.to_owned(),
            killed,
            failed: 0,
            lost: 1,
            latencies: latencies(p99_us),
        };
        let span = |at_secs| SpanResult {
            at_secs,
            answers_per_second: 1000.0 * at_secs,
            failed: 0,
            lost: 0,
            p99_us: 100.0,
            max_us: 200.0,
        };
        Failures {
            setup: Setup::pharos(4),
            rate: 20_000,
            events: vec![Event { at_secs: 1.0, what: "node 3 <killed>".to_owned() }],
            spans: vec![span(0.0), span(0.1), span(2.0)],
            phases: vec![phase("all up", false, 300_000.0), phase("one down", true, 250_000.0)],
            wrong: 0,
            first_wrong: None,
            refused: 12,
            silence_ms_max: 3.0,
            load_late_ms_max: 1.0,
        }
    }

    fn joining() -> Joining {
        let point = |at_secs, missed_percent| JoinPoint { at_secs, missed_percent };
        Joining {
            setup: Setup::pharos(5),
            rate: 20_000,
            names: 100_000,
            joined_secs: 0.1,
            points: vec![point(0.1, 0.0), point(0.2, 1.5), point(0.3, 0.5)],
            missed: 40,
            answers: 6000,
            failed: 0,
            lost: 0,
            wrong: 0,
            first_wrong: None,
            latencies: latencies(400.0),
        }
    }

    pub fn sample() -> CacheReport {
        let setups = vec![
            result(Kind::Dnsdist, 1, 4.0, 100.0),
            result(Kind::Unbound, 1, 5.0, 90.0),
            result(Kind::Pharos, 1, 3.0, 80.0),
            result(Kind::Pharos, 4, 6.0, 480.0),
        ];
        let scenarios = [Scenario::Hot, Scenario::Large]
            .map(|scenario| ScenarioResult { scenario, setups: setups.clone() });
        let point = |kind, percent| PopularityPoint {
            setup: Setup::alone(kind),
            percent,
            latencies: latencies(f64::from(percent) * 10.0),
            lost: 0,
            upstream: 2000,
        };
        let (near, far) = (latencies(80.0), latencies(480.0));
        let hop = Some(Hop { setup: Setup::pharos(4), rate: 5_000, near, far });
        let (failures, joining) = (Some(failures()), Some(joining()));
        CacheReport {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            date: "2026-11-16T00:00:00Z".to_owned(),
            machine: Machine {
                cpu: "c<>".into(),
                cores: 2,
                kernel: "k".into(),
                memory_bytes: 1 << 34,
            },
            parameters: Parameters {
                rounds: 3,
                seconds: 2.0,
                rate: 10_000,
                window: 192,
                names: 100_000,
                upstream_latency_ms: 5.0,
                upstream_jitter_ms: 1.0,
            },
            versions: Vec::new(),
            bars: bars(&scenarios, hop.as_ref(), failures.as_ref(), joining.as_ref()),
            scenarios: scenarios.to_vec(),
            hop,
            popularity: vec![point(Kind::Pharos, 50), point(Kind::Pharos, 90)],
            failures,
            joining,
        }
    }

    #[test]
    fn bars_say_what_pharos_is_to_hold() {
        let bars = sample().bars;
        let verdicts: Vec<_> = bars
            .iter()
            .map(|bar| (bar.name.as_str(), format!("{:.2}", bar.value), bar.passed))
            .collect();
        assert_eq!(
            verdicts,
            [
                ("hot: CPU / better peer", "0.75".into(), true),
                ("hot: CPU, 4 nodes / 1", "2.00".into(), false),
                ("large: CPU / better peer", "0.75".into(), true),
                ("large: CPU s/M, 4 nodes", "6.00".into(), true),
                ("hop: p99 µs added", "400.00".into(), false),
                ("killed: p99.9 ms of the worst phase", "250.00".into(), false),
                ("killed: wrong answers", "0.00".into(), true),
                ("joining: points of hits lost, worst 0.1 s", "1.50".into(), true),
                ("joining: wrong answers", "0.00".into(), true),
            ]
        );
        assert!(super::bars(&[], None, None, None).is_empty());
    }

    #[test]
    fn tables_have_every_part() {
        let text = render(&sample());
        for expected in [
            "hot: 1,000 names",
            "large: 100,000 names",
            "pharos, 4 nodes",
            "mostly at another node",
            "popular",
            "one down",
            "refused and asked",
            "stole no time: 60–60 %",
            "node 5 joins 4",
            "MISS",
        ] {
            assert!(text.contains(expected), "{expected} is not in:\n{text}");
        }
    }

    #[test]
    fn reports_survive_the_file() {
        let text = serde_json::to_string(&sample()).unwrap();
        let back: CacheReport = serde_json::from_str(&text).unwrap();
        assert_eq!(render(&back), render(&sample()));
    }
}
