//! The result of a comparison: its file format, the tables, and the bars to hold.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::data::Scenario;
use crate::machine::Machine;
use crate::measure::{Cpu, Memory};
use crate::peers::Kind;
use crate::stats::Spread;

pub const FORMAT: &str = "pharos-bench-authority";
pub const FORMAT_VERSION: u32 = 1;

/// CPU per answer against the better of Knot and NSD.
const CPU_PEER_RATIO_MAX: f64 = 0.80;
/// CPU per answer against the floor responder.
const CPU_FLOOR_RATIO_MAX: f64 = 1.10;
const USER_MICROS_MAX: f64 = 0.30;
/// Start time and memory against the better peer.
const START_RATIO_MAX: f64 = 0.50;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub format: String,
    pub version: u32,
    pub date: String,
    pub machine: Machine,
    pub parameters: Parameters,
    pub versions: Vec<Version>,
    pub scenarios: Vec<ScenarioResult>,
    /// With the zones of the scenario `million`.
    pub starts: Vec<StartResult>,
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parameters {
    pub rounds: usize,
    pub seconds: f64,
    pub zones: usize,
    pub sockets: usize,
    pub window: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    pub server: Kind,
    pub text: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioResult {
    pub scenario: Scenario,
    pub servers: Vec<ServerResult>,
}

impl ScenarioResult {
    fn server(&self, kind: Kind) -> Option<&ServerResult> {
        self.servers.iter().find(|result| result.server == kind)
    }
}

/// All rounds of one server in one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerResult {
    pub server: Kind,
    pub answers_per_second: Spread,
    pub cpu_micros_per_answer: Spread,
    pub user_micros_per_answer: Spread,
    /// Share of its core that the server used; well below 1 means that the load was the limit.
    pub busy: Spread,
    pub lost: u64,
    pub rounds: Vec<Round>,
}

impl ServerResult {
    /// `None` without a round.
    pub fn of(server: Kind, rounds: Vec<Round>) -> Option<ServerResult> {
        let spread = |value: fn(&Round) -> f64| Spread::of(rounds.iter().map(value));
        Some(ServerResult {
            server,
            answers_per_second: spread(|round| round.answers as f64 / round.seconds)?,
            cpu_micros_per_answer: spread(|round| round.per_answer(round.cpu.total_secs()))?,
            user_micros_per_answer: spread(|round| round.per_answer(round.cpu.user_secs))?,
            busy: spread(|round| round.cpu.total_secs() / round.seconds)?,
            lost: rounds.iter().map(|round| round.lost).sum(),
            rounds,
        })
    }
}

impl ServerResult {
    /// CPU per answer in units of `other`'s: the median over the rounds, each compared with the
    /// other's round next to it, so that a machine that slows down for a while slows both.
    fn cpu_ratio(&self, other: &ServerResult) -> Option<f64> {
        let cpu = |round: &Round| round.per_answer(round.cpu.total_secs());
        let pairs = self.rounds.iter().zip(&other.rounds);
        Spread::of(pairs.map(|(own, other)| cpu(own) / cpu(other))).map(|spread| spread.median)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Round {
    pub answers: u64,
    pub lost: u64,
    pub seconds: f64,
    pub cpu: Cpu,
    /// CPU that the other servers, which should be idle, used meanwhile.
    pub others_cpu_secs: f64,
    /// CPU used on the two cores by anything that is no part of the bench.
    pub foreign_cpu_secs: f64,
}

impl Round {
    /// Seconds over all answers as microseconds for each.
    fn per_answer(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.answers as f64
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartResult {
    pub server: Kind,
    /// From the start of the process to right answers from the last and 20 random zones.
    pub seconds: Spread,
    pub cpu_seconds: Spread,
    pub memory: Memory,
}

/// One of the numbers to hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    pub name: String,
    pub value: f64,
    pub limit: f64,
    pub passed: bool,
}

impl Bar {
    pub fn new(name: String, value: f64, limit: f64) -> Bar {
        Bar { name, value, limit, passed: value <= limit }
    }
}

/// Compares Pharos with the peers and the floor; empty without Pharos.
pub fn bars(scenarios: &[ScenarioResult], starts: &[StartResult]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for scenario in scenarios {
        let Some(pharos) = scenario.server(Kind::Pharos) else { continue };
        let name = scenario.scenario.name();
        let ratio = |kind| scenario.server(kind).and_then(|other| pharos.cpu_ratio(other));
        // The better peer is the one that Pharos compares worse with.
        let peers = ratio(Kind::Knot).into_iter().chain(ratio(Kind::Nsd));
        if let Some(worst) = peers.max_by(f64::total_cmp) {
            bars.push(Bar::new(format!("{name}: CPU / better peer"), worst, CPU_PEER_RATIO_MAX));
        }
        if let Some(floor) = ratio(Kind::Floor) {
            bars.push(Bar::new(format!("{name}: CPU / floor"), floor, CPU_FLOOR_RATIO_MAX));
        }
        let user = pharos.user_micros_per_answer.median;
        bars.push(Bar::new(format!("{name}: user µs"), user, USER_MICROS_MAX));
    }
    let start = |kind| starts.iter().find(|result| result.server == kind);
    if let Some(pharos) = start(Kind::Pharos) {
        type Measure = fn(&StartResult) -> f64;
        let measures: [(&str, Measure); 2] = [
            ("start time", |result| result.seconds.median),
            ("memory", |result| result.memory.pss_bytes as f64),
        ];
        for (name, measure) in measures {
            let peers = (start(Kind::Knot).map(measure), start(Kind::Nsd).map(measure));
            if let Some(best) = better(peers.0, peers.1) {
                let name = format!("zones: {name} / better peer");
                bars.push(Bar::new(name, measure(pharos) / best, START_RATIO_MAX));
            }
        }
    }
    bars
}

fn better(one: Option<f64>, two: Option<f64>) -> Option<f64> {
    one.into_iter().chain(two).min_by(f64::total_cmp)
}

/// The tables and bars as text.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    for scenario in &report.scenarios {
        render_scenario(&mut text, scenario);
    }
    if !report.starts.is_empty() {
        render_starts(&mut text, report);
    }
    if report.bars.is_empty() {
        text += "no bars: Pharos was not measured (--pharos PATH)\n";
    }
    render_bars(&mut text, &report.bars);
    text
}

pub fn render_bars(text: &mut String, bars: &[Bar]) {
    for bar in bars {
        let verdict = if bar.passed { "pass" } else { "MISS" };
        let Bar { name, value, limit, .. } = bar;
        let _ = writeln!(text, "{verdict}  {name:<34} {value:>6.2}  (at most {limit:.2})");
    }
}

fn render_scenario(text: &mut String, scenario: &ScenarioResult) {
    let _ = writeln!(
        text,
        "{}\n  {:<8}{:>11}  {:>22}  {:>22}{:>7}{:>8}{:>11}",
        scenario.scenario.name(),
        "server",
        "answers/s",
        "CPU s/M (min–max)",
        "user s/M (min–max)",
        "busy",
        "lost",
        "pharos/it"
    );
    let pharos = scenario.server(Kind::Pharos);
    for result in &scenario.servers {
        let ratio = pharos
            .filter(|_| result.server != Kind::Pharos)
            .and_then(|own| own.cpu_ratio(result))
            .map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(
            text,
            "  {:<8}{:>11.0}  {:>22}  {:>22}{:>6.0}%{:>8}{:>11}",
            result.server,
            result.answers_per_second.median,
            spread(result.cpu_micros_per_answer),
            spread(result.user_micros_per_answer),
            100.0 * result.busy.median,
            result.lost,
            ratio
        );
    }
    text.push('\n');
}

fn render_starts(text: &mut String, report: &Report) {
    let _ = writeln!(
        text,
        "start with {} zones\n  {:<8}{:>22}{:>12}{:>14}{:>14}",
        report.parameters.zones, "server", "seconds (min–max)", "CPU s", "Pss MiB", "Rss MiB"
    );
    for start in &report.starts {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let _ = writeln!(
            text,
            "  {:<8}{:>22}{:>12.2}{:>14.1}{:>14.1}",
            start.server,
            spread(start.seconds),
            start.cpu_seconds.median,
            mib(start.memory.pss_bytes),
            mib(start.memory.rss_bytes)
        );
    }
    text.push('\n');
}

fn spread(spread: Spread) -> String {
    format!("{:.3} ({:.3}–{:.3})", spread.median, spread.min, spread.max)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn rounds(cpu_micros: f64, user_micros: f64) -> Vec<Round> {
        let user_secs = user_micros * 3.0;
        let cpu = Cpu { user_secs, kernel_secs: cpu_micros * 3.0 - user_secs };
        vec![
            Round {
                answers: 3_000_000,
                lost: 2,
                seconds: 10.0,
                cpu,
                others_cpu_secs: 0.0,
                foreign_cpu_secs: 0.0
            };
            3
        ]
    }

    pub fn sample() -> Report {
        let servers = [
            (Kind::Knot, 4.0, 0.8),
            (Kind::Nsd, 5.0, 0.7),
            (Kind::Pharos, 3.0, 0.2),
            (Kind::Floor, 2.5, 0.1),
        ];
        let servers =
            servers.map(|(kind, cpu, user)| ServerResult::of(kind, rounds(cpu, user)).unwrap());
        let scenarios =
            vec![ScenarioResult { scenario: Scenario::Positive, servers: servers.to_vec() }];
        let starts = [(Kind::Knot, 100.0, 400), (Kind::Nsd, 40.0, 500), (Kind::Pharos, 30.0, 100)];
        let starts = starts.map(|(server, seconds, bytes)| StartResult {
            server,
            seconds: Spread::of([seconds]).unwrap(),
            cpu_seconds: Spread::of([seconds]).unwrap(),
            memory: Memory { pss_bytes: bytes, rss_bytes: bytes },
        });
        Report {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            date: "2026-11-15T00:00:00Z".to_owned(),
            machine: Machine {
                cpu: "c<>".into(),
                cores: 2,
                kernel: "k".into(),
                memory_bytes: 1 << 34,
            },
            parameters: Parameters {
                rounds: 3,
                seconds: 10.0,
                zones: 10,
                sockets: 16,
                window: 512,
            },
            versions: Vec::new(),
            bars: bars(&scenarios, &starts),
            scenarios,
            starts: starts.to_vec(),
        }
    }

    #[test]
    fn bars_compare_with_the_better_peer() {
        let bars = sample().bars;
        let verdicts: Vec<_> = bars
            .iter()
            .map(|bar| (bar.name.as_str(), format!("{:.2}", bar.value), bar.passed))
            .collect();
        assert_eq!(
            verdicts,
            [
                ("positive: CPU / better peer", "0.75".into(), true),
                ("positive: CPU / floor", "1.20".into(), false),
                ("positive: user µs", "0.20".into(), true),
                ("zones: start time / better peer", "0.75".into(), false),
                ("zones: memory / better peer", "0.25".into(), true),
            ]
        );
    }

    #[test]
    fn tables_name_misses_and_ratios() {
        let text = render(&sample());
        assert!(text.contains("MISS  positive: CPU / floor"), "{text}");
        assert!(text.contains("0.75"), "{text}");
    }

    #[test]
    fn reports_survive_the_file() {
        let text = serde_json::to_string(&sample()).unwrap();
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(render(&back), render(&sample()));
    }
}
