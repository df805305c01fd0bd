//! The result of `bench shuffle`: its file format, the tables, and the bars.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::draw::thousands;
use crate::machine::Machine;
use crate::report::{Bar, render_bars};
use crate::stats::Spread;

pub const FORMAT: &str = "pharos-bench-shuffle";
pub const FORMAT_VERSION: u32 = 1;
/// From a number to its shard, and back.
pub const NANOS_MAX: f64 = 30.0;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShuffleReport {
    pub format: String,
    pub version: u32,
    pub date: String,
    pub machine: Machine,
    pub rounds: usize,
    pub tenants: u64,
    pub designs: Vec<DesignTimes>,
    pub allocation: Allocation,
    pub blast: Vec<BlastTime>,
    pub curves: Vec<Curve>,
    pub saturation: Vec<Saturation>,
    pub flood: Vec<FloodPoint>,
    pub bars: Vec<Bar>,
}

/// What a design takes to turn a number into a shard and back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DesignTimes {
    pub name: String,
    pub construction: String,
    pub capacity: u64,
    pub has_bar: bool,
    pub shard_ns: Spread,
    pub index_ns: Spread,
    /// When the next one can be asked for only after the answer.
    pub shard_in_turn_ns: Spread,
    pub index_in_turn_ns: Spread,
}

/// The allocator of the default design.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Allocation {
    pub allocate_ns: Spread,
    pub release_ns: Spread,
    /// Allocating while there are shards that came back.
    pub reuse_ns: Spread,
    /// Of the state to be kept, with all tenants.
    pub fresh_octets: usize,
    /// The same after every tenth has left.
    pub released_octets: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlastTime {
    pub name: String,
    pub shards: u64,
    pub failed: usize,
    pub millis: Spread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    Search,
    Construction,
}

impl Scheme {
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Search => "search",
            Scheme::Construction => "Pharos",
        }
    }
}

/// Shards placed one after the other on four stripes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    pub scheme: Scheme,
    pub stripe_len: usize,
    pub points: Vec<CurvePoint>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CurvePoint {
    pub placed: u64,
    /// For a shard since the point before.
    pub nanos_lately: Spread,
    /// For a shard since the first.
    pub nanos_so_far: Spread,
    pub state_octets: usize,
    pub fragments: usize,
}

/// How much of what is possible was placed on four small stripes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saturation {
    pub scheme: Scheme,
    pub stripe_len: usize,
    pub bound: u64,
    /// Failed attempts in a row after which the search gave up.
    pub attempts: u32,
    pub share: Spread,
    pub seeds: u64,
    /// Runs in which not one shard was left that would have fitted.
    pub exhausted: u64,
}

/// Shares of the tenants that lose all workers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloodPoint {
    pub flooded: u32,
    pub none: f64,
    pub plain: f64,
    pub shuffled: f64,
}

/// The times to hold.
pub fn bars(designs: &[DesignTimes]) -> Vec<Bar> {
    let with_bar = designs.iter().filter(|design| design.has_bar);
    let both = |design: &DesignTimes| {
        [("index → shard", design.shard_ns), ("shard → index", design.index_ns)].map(
            |(way, nanos)| Bar::new(format!("{}: {way} ns", design.name), nanos.median, NANOS_MAX),
        )
    };
    with_bar.flat_map(both).collect()
}

/// The tables and bars as text.
pub fn render(report: &ShuffleReport) -> String {
    let mut text = String::new();
    render_designs(&mut text, &report.designs);
    render_allocation(&mut text, report);
    render_blast(&mut text, &report.blast);
    render_curves(&mut text, &report.curves);
    render_saturation(&mut text, &report.saturation);
    render_bars(&mut text, &report.bars);
    text
}

fn render_designs(text: &mut String, designs: &[DesignTimes]) {
    let _ = writeln!(
        text,
        "{:<28}{:<20}{:>20}{:>20}{:>10}{:>10}",
        "ns (min–max)", "", "index → shard", "shard → index", "in turn", "in turn"
    );
    for design in designs {
        let _ = writeln!(
            text,
            "{:<28}{:<20}{:>20}{:>20}{:>10.1}{:>10.1}",
            design.name,
            design.construction,
            spread(design.shard_ns),
            spread(design.index_ns),
            design.shard_in_turn_ns.median,
            design.index_in_turn_ns.median
        );
    }
    text.push('\n');
}

fn render_allocation(text: &mut String, report: &ShuffleReport) {
    let Allocation { allocate_ns, release_ns, reuse_ns, fresh_octets, released_octets } =
        &report.allocation;
    let _ = writeln!(text, "allocator with {} tenants", thousands(report.tenants as usize));
    for (what, nanos) in [
        ("allocate, ns", allocate_ns),
        ("release, ns", release_ns),
        ("allocate a released one, ns", reuse_ns),
    ] {
        let _ = writeln!(text, "  {what:<40}{:>20}", spread(*nanos));
    }
    for (what, octets) in [
        ("kept state, octets", fresh_octets),
        ("after every tenth has left, octets", released_octets),
    ] {
        let _ = writeln!(text, "  {what:<40}{:>20}", thousands(*octets));
    }
    text.push('\n');
}

fn render_blast(text: &mut String, times: &[BlastTime]) {
    let _ = writeln!(text, "blast radius{:>30}{:>14}{:>22}", "shards", "failed", "ms (min–max)");
    for BlastTime { name, shards, failed, millis } in times {
        let shards = thousands(*shards as usize);
        let _ = writeln!(text, "  {name:<26}{shards:>14}{failed:>14}{:>22}", spread(*millis));
    }
    text.push('\n');
}

fn render_curves(text: &mut String, curves: &[Curve]) {
    let _ = writeln!(
        text,
        "placing{:>22}{:>12}{:>26}{:>14}{:>14}{:>14}",
        "stripes", "placed", "ns each (min–max)", "each second", "fragments", "octets kept"
    );
    for curve in curves {
        let last = curve.points.last().map_or(0, |point| point.placed);
        let is_told = |point: &&CurvePoint| [100_000, last].contains(&point.placed);
        for point in curve.points.iter().filter(is_told) {
            let _ = writeln!(
                text,
                "  {:<18}{:>9}{:>12}{:>26}{:>14}{:>14}{:>14}",
                curve.scheme.name(),
                format!("4 × {}", curve.stripe_len),
                thousands(point.placed as usize),
                spread(point.nanos_so_far),
                thousands((1e9 / point.nanos_so_far.median) as usize),
                thousands(point.fragments),
                thousands(point.state_octets)
            );
        }
    }
    text.push('\n');
}

fn render_saturation(text: &mut String, results: &[Saturation]) {
    let _ = writeln!(
        text,
        "share of what is possible{:>14}{:>22}{:>18}",
        "attempts", "% (min–max)", "nothing left in"
    );
    for result in results {
        let percent = |share: f64| 100.0 * share;
        let Spread { median, min, max } = result.share;
        let share = Spread { median: percent(median), min: percent(min), max: percent(max) };
        let attempts = match result.scheme {
            Scheme::Search => thousands(result.attempts as usize),
            Scheme::Construction => String::new(),
        };
        let name = format!("{}, 4 × {}", result.scheme.name(), result.stripe_len);
        let left = format!("{} of {}", result.exhausted, result.seeds);
        let _ = writeln!(text, "  {name:<23}{attempts:>14}{:>22}{left:>18}", spread(share));
    }
    text.push('\n');
}

fn spread(value: Spread) -> String {
    format!("{:.1} ({:.1}–{:.1})", value.median, value.min, value.max)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample() -> ShuffleReport {
        let of = |value: f64| Spread { median: value, min: value / 2.0, max: value * 2.0 };
        let design = |name: &str, nanos: f64| DesignTimes {
            name: name.to_owned(),
            construction: "striped-sum".to_owned(),
            capacity: 512,
            has_bar: name.starts_with('4'),
            shard_ns: of(nanos),
            index_ns: of(2.0 * nanos),
            shard_in_turn_ns: of(3.0 * nanos),
            index_in_turn_ns: of(4.0 * nanos),
        };
        let point = |placed: u64| CurvePoint {
            placed,
            nanos_lately: of(900.0),
            nanos_so_far: of(800.0),
            state_octets: 9 * placed as usize,
            fragments: 4 * placed as usize,
        };
        let curve = |scheme| Curve {
            scheme,
            stripe_len: 512,
            points: [1_000, 100_000, 1_000_000].map(point).to_vec(),
        };
        let saturation = |scheme, attempts, share: f64| Saturation {
            scheme,
            stripe_len: 8,
            bound: 512,
            attempts,
            share: Spread { median: share, min: share, max: share },
            seeds: 3,
            exhausted: 2,
        };
        let designs = vec![design("4 × 512 <&>", 20.0), design("8 × 256", 25.0)];
        ShuffleReport {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            date: "2026-01-02T03:04:05Z".to_owned(),
            machine: Machine {
                cpu: "cpu".to_owned(),
                cores: 2,
                kernel: "6".to_owned(),
                memory_bytes: 1 << 30,
            },
            rounds: 9,
            tenants: 1_000_000,
            bars: bars(&designs),
            designs,
            allocation: Allocation {
                allocate_ns: of(30.0),
                release_ns: of(90.0),
                reuse_ns: of(60.0),
                fresh_octets: 30,
                released_octets: 200_000,
            },
            blast: vec![BlastTime {
                name: "given shards".to_owned(),
                shards: 1_000_000,
                failed: 4,
                millis: of(5.0),
            }],
            curves: [Scheme::Search, Scheme::Construction].map(curve).to_vec(),
            saturation: vec![
                saturation(Scheme::Search, 1, 0.4),
                saturation(Scheme::Search, 1000, 0.75),
                saturation(Scheme::Construction, 0, 1.0),
            ],
            flood: vec![
                FloodPoint { flooded: 1, none: 1.0, plain: 1.0 / 512.0, shuffled: 1e-8 },
                FloodPoint { flooded: 100, none: 1.0, plain: 100.0 / 512.0, shuffled: 1e-4 },
            ],
        }
    }

    #[test]
    fn bars_hold_or_miss_both_ways() {
        let bars = bars(&sample().designs);
        let verdicts: Vec<_> = bars.iter().map(|bar| (bar.value, bar.passed)).collect();
        assert_eq!(verdicts, [(20.0, true), (40.0, false)]);
    }

    #[test]
    fn tables_say_what_was_measured() {
        let text = render(&sample());
        for expected in [
            "MISS  4 × 512 <&>: shard → index ns",
            "20.0 (10.0–40.0)",
            "1,250,000",
            "75.0 (75.0–75.0)",
            "2 of 3",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn reports_survive_the_file() {
        let text = serde_json::to_string(&sample()).unwrap();
        let back: ShuffleReport = serde_json::from_str(&text).unwrap();
        assert_eq!(render(&back), render(&sample()));
    }
}
