//! `bench cache` as one SVG: CPU for hits and misses, latency by popularity, CPU by the number
//! of nodes, and throughput over time while nodes fail. What was not measured is left out.

use super::report::{
    CacheReport, Failures, JoinPoint, Joining, Phase, PopularityPoint, Scenario, ScenarioResult,
    SetupResult, SpanResult,
};
use super::servers::{Kind, Setup, Variant};
use crate::draw::{
    BLUE, Frame, GREEN, GRID, INK, MUTED, ORANGE, PAPER, PURPLE, dark_page, line, muted, polyline,
    rectangle, short, text, tick_step, title,
};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 1170.0;
const HEAD: f64 = 80.0;
/// Above a diagram, for its title; below it, for what stands under its axis.
const ABOVE: f64 = 70.0;
const BELOW: f64 = 70.0;
const DIAGRAM: f64 = 270.0;
const STRIP: f64 = 110.0;
const CENTRED: &str = "text-anchor=\"middle\"";
/// Height of a line of text.
const LABEL: f64 = 16.0;
/// Kernel time, beside user time.
const LIGHT: f64 = 0.45;

pub fn render(report: &CacheReport) -> String {
    let mut body = String::new();
    let mut y = HEAD;
    if !report.scenarios.is_empty() {
        y = costs(&mut body, y, &report.scenarios);
    }
    let scaling = Scaling::of(&report.scenarios);
    if !report.popularity.is_empty() || scaling.is_some() {
        let bottom = y + ABOVE + DIAGRAM;
        let left = Frame { left: LEFT, top: y + ABOVE, right: 520.0, bottom };
        let right = Frame { left: 730.0, right: 1060.0, ..left };
        if !report.popularity.is_empty() {
            popularity(&mut body, left, &report.popularity);
        }
        if let Some(scaling) = scaling {
            scaling.draw(&mut body, if report.popularity.is_empty() { left } else { right });
        }
        y = bottom + BELOW;
    }
    if let Some(it) = &report.failures {
        y = failures(&mut body, y, it);
    }
    if let Some(it) = &report.joining {
        y = joining(&mut body, y, it);
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" \
         width=\"{WIDTH}\" height=\"{y}\" \
         font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\" fill=\"{INK}\">\n"
    );
    dark_page(&mut svg);
    rectangle(&mut svg, (0.0, 0.0), (WIDTH, y), PAPER, 1.0);
    head(&mut svg, report);
    svg += &body;
    svg.push_str("</svg>\n");
    svg
}

fn head(svg: &mut String, report: &CacheReport) {
    let (machine, parameters) = (&report.machine, &report.parameters);
    text(
        svg,
        40.0,
        40.0,
        22.0,
        "font-weight=\"600\"",
        "Caches side by side, all nodes on one core",
    );
    let about = format!(
        "{}, {} cores, Linux {}; medians of {} rounds of {} s, lines from least to most; upstream \
         {} ± {} ms; {}",
        machine.cpu,
        machine.cores,
        machine.kernel,
        parameters.rounds,
        parameters.seconds,
        parameters.upstream_latency_ms,
        parameters.upstream_jitter_ms,
        report.date.get(..10).unwrap_or(&report.date)
    );
    text(svg, 40.0, 64.0, 13.0, &muted(""), &about);
}

/// Hits and misses beside each other, each with its own scale; returns where they end.
fn costs(svg: &mut String, y: f64, scenarios: &[ScenarioResult]) -> f64 {
    let (top, bottom) = (y + ABOVE, y + ABOVE + DIAGRAM);
    let is_miss = |it: &&ScenarioResult| it.scenario == Scenario::Unique;
    let misses: Vec<&ScenarioResult> = scenarios.iter().filter(is_miss).collect();
    let hits: Vec<&ScenarioResult> = scenarios.iter().filter(|it| !is_miss(it)).collect();
    let widths = (hits.len() as f64, misses.len() as f64);
    let gap = if hits.is_empty() || misses.is_empty() { 0.0 } else { 100.0 };
    let middle = LEFT + (RIGHT - LEFT - gap) * widths.0 / (widths.0 + widths.1);
    let how = "CPU-seconds of all nodes for a million answers; solid user, light kernel";
    if !hits.is_empty() {
        let frame = Frame { left: LEFT, top, right: middle, bottom };
        title(svg, frame, "Hits", how);
        cost_bars(svg, frame, &hits);
    }
    if !misses.is_empty() {
        let frame = Frame { left: middle + gap, top, right: RIGHT, bottom };
        title(svg, frame, "Misses", "the same, another scale");
        cost_bars(svg, frame, &misses);
    }
    legend(svg, bottom + 62.0, scenarios);
    bottom + BELOW + 20.0
}

fn cost_bars(svg: &mut String, frame: Frame, scenarios: &[&ScenarioResult]) {
    let largest = scenarios.iter().flat_map(|it| &it.setups).map(|it| it.cpu_secs_per_million.max);
    let axis = Axis::new(frame, largest.fold(0.1, f64::max) * 1.08);
    axis.draw(svg, &short);
    let group = (frame.right - frame.left) / scenarios.len() as f64;
    for (number, scenario) in scenarios.iter().enumerate() {
        let middle = frame.left + group * (number as f64 + 0.5);
        text(svg, middle, frame.bottom + 40.0, 14.0, CENTRED, scenario.scenario.name());
        let count = scenario.setups.len() as f64;
        let pitch = (group * 0.92 / count).min(56.0);
        for (place, result) in scenario.setups.iter().enumerate() {
            let x = middle + pitch * (place as f64 - count / 2.0);
            cost_bar(svg, x + pitch * 0.07, pitch * 0.86, result, &axis);
        }
    }
}

fn cost_bar(svg: &mut String, x: f64, width: f64, result: &SetupResult, axis: &Axis) {
    let total = result.cpu_secs_per_million;
    let user = result.user_secs_per_million.median.min(total.median);
    let (top, split, bottom) = (axis.y(total.median), axis.y(user), axis.y(0.0));
    let fill = color(result.setup.kind);
    rectangle(svg, (x, top), (width, split - top), fill, LIGHT);
    rectangle(svg, (x, split), (width, bottom - split), fill, 1.0);
    let middle = x + width / 2.0;
    line(svg, (middle, axis.y(total.min)), (middle, axis.y(total.max)), INK);
    text(svg, middle, axis.y(total.max) - 5.0, 11.0, CENTRED, &short(total.median));
    if result.setup.kind == Kind::Pharos {
        let words = match result.setup.variant {
            Variant::Standard => result.setup.nodes.to_string(),
            variant => variant.name().to_owned(),
        };
        text(svg, middle, bottom + 18.0, 12.0, &muted(CENTRED), &words);
    }
}

fn legend(svg: &mut String, y: f64, scenarios: &[ScenarioResult]) {
    let mut x = LEFT;
    for (kind, words) in [
        (Kind::Dnsdist, "dnsdist"),
        (Kind::Unbound, "Unbound"),
        (Kind::Pharos, "Pharos, by its number of nodes; gRPC and ring: four nodes"),
        (Kind::Floor, "sockets and one hash"),
    ] {
        if !scenarios.iter().any(|it| it.setups.iter().any(|it| it.setup.kind == kind)) {
            continue;
        }
        rectangle(svg, (x, y), (14.0, 14.0), color(kind), 1.0);
        text(svg, x + 20.0, y + 12.0, 13.0, "", words);
        x += 50.0 + 8.0 * words.len() as f64;
    }
}

/// A vertical axis from 0.
struct Axis {
    frame: Frame,
    step: f64,
    top: f64,
}

impl Axis {
    fn new(frame: Frame, largest: f64) -> Axis {
        let step = tick_step(largest);
        Axis { frame, step, top: (largest / step).ceil() * step }
    }

    fn y(&self, value: f64) -> f64 {
        self.frame.bottom - (self.frame.bottom - self.frame.top) * value / self.top
    }

    fn draw(&self, svg: &mut String, label: &dyn Fn(f64) -> String) {
        for tick in 0..=(self.top / self.step).round() as usize {
            let (value, y) = (tick as f64 * self.step, self.y(tick as f64 * self.step));
            let stroke = if tick == 0 { MUTED } else { GRID };
            line(svg, (self.frame.left, y), (self.frame.right, y), stroke);
            let attributes = muted("text-anchor=\"end\"");
            text(svg, self.frame.left - 10.0, y + 4.0, 13.0, &attributes, &label(value));
        }
    }
}

fn popularity(svg: &mut String, frame: Frame, points: &[PopularityPoint]) {
    let how = "ms, by the share of requests for popular names; solid mean, dashed p99";
    title(svg, frame, "Latency of 10,000 requests for 2,000 new names", how);
    let largest = points.iter().map(|point| point.latencies.p99_us / 1e3).fold(0.1, f64::max);
    let axis = Axis::new(frame, largest * 1.05);
    axis.draw(svg, &short);
    let percents = || points.iter().map(|point| f64::from(point.percent));
    let (low, high) = (percents().fold(100.0, f64::min), percents().fold(0.0, f64::max).max(1.0));
    let span = (high - low).max(1.0);
    let x_of =
        |percent: u8| frame.left + (frame.right - frame.left) * (f64::from(percent) - low) / span;
    for point in points.iter().filter(|point| point.setup == points[0].setup) {
        let words = format!("{} %", point.percent);
        // 95 and 99 are too near to each other.
        if point.percent != 95 {
            text(svg, x_of(point.percent), frame.bottom + 22.0, 12.0, &muted(CENTRED), &words);
        }
    }
    let mut setups: Vec<Setup> = points.iter().map(|point| point.setup).collect();
    setups.dedup();
    for (row, setup) in setups.into_iter().enumerate() {
        let own: Vec<&PopularityPoint> = points.iter().filter(|it| it.setup == setup).collect();
        let curve = |value: fn(&PopularityPoint) -> f64| {
            let at = |it: &&PopularityPoint| (x_of(it.percent), axis.y(value(it) / 1e3));
            own.iter().map(at).collect::<Vec<_>>()
        };
        let stroke = setup_color(setup);
        polyline(svg, &curve(|it| it.latencies.mean_us), stroke, "none");
        polyline(svg, &curve(|it| it.latencies.p99_us), stroke, "6 4");
        let y = frame.top + 14.0 + 20.0 * row as f64;
        polyline(svg, &[(frame.right + 16.0, y), (frame.right + 40.0, y)], stroke, "none");
        text(svg, frame.right + 46.0, y + 4.0, 12.0, "", &setup.to_string());
    }
}

/// CPU of Pharos by its number of nodes, a curve for each scenario of hits.
struct Scaling<'r> {
    curves: Vec<(Scenario, Vec<&'r SetupResult>)>,
}

impl<'r> Scaling<'r> {
    /// `None` without two sizes to compare.
    fn of(scenarios: &'r [ScenarioResult]) -> Option<Scaling<'r>> {
        let hits = scenarios.iter().filter(|it| it.scenario != Scenario::Unique);
        let curves: Vec<_> = hits
            .map(|it| {
                let pharos = it.setups.iter().filter(|it| it.setup.is_standard_pharos());
                (it.scenario, pharos.collect::<Vec<_>>())
            })
            .filter(|(_, results)| results.len() > 1)
            .collect();
        (!curves.is_empty()).then_some(Scaling { curves })
    }

    fn draw(&self, svg: &mut String, frame: Frame) {
        let how = "CPU-seconds of all nodes for a million answers, by the number of nodes";
        title(svg, frame, "More nodes, the same work", how);
        let results = || self.curves.iter().flat_map(|(_, results)| results);
        let largest = results().map(|it| it.cpu_secs_per_million.median).fold(0.1, f64::max);
        let most = results().map(|it| it.setup.nodes).max().unwrap_or(2).max(2) as f64;
        let axis = Axis::new(frame, largest * 1.08);
        axis.draw(svg, &short);
        let x_of = |nodes: f64| frame.left + (frame.right - frame.left) * (nodes - 0.5) / most;
        for nodes in 1..=most as usize {
            let words = nodes.to_string();
            text(svg, x_of(nodes as f64), frame.bottom + 22.0, 13.0, &muted(CENTRED), &words);
        }
        let mut labels = Vec::new();
        for ((scenario, results), stroke) in self.curves.iter().zip([GREEN, BLUE, ORANGE]) {
            let at = |it: &&SetupResult| {
                (x_of(it.setup.nodes as f64), axis.y(it.cpu_secs_per_million.median))
            };
            let points: Vec<(f64, f64)> = results.iter().map(at).collect();
            polyline(svg, &points, stroke, "none");
            labels.push((points.last().copied().unwrap_or_default(), scenario.name()));
        }
        spread_out(&mut labels);
        for ((x, y), name) in labels {
            text(svg, x + 10.0, y + 4.0, 13.0, "", name);
        }
    }
}

/// Moves labels down until none lies on another.
fn spread_out(labels: &mut [((f64, f64), &str)]) {
    labels.sort_by(|((_, a), _), ((_, b), _)| a.total_cmp(b));
    let mut free = f64::NEG_INFINITY;
    for ((_, y), _) in labels {
        *y = y.max(free);
        free = *y + LABEL;
    }
}

/// Throughput over time, and below it the latency; returns where they end.
fn failures(svg: &mut String, y: f64, failures: &Failures) -> f64 {
    let (top, bottom) = (y + ABOVE, y + ABOVE + DIAGRAM * 0.8);
    let frame = Frame { left: LEFT, top, right: RIGHT, bottom };
    let what = format!("Two of {} nodes are killed and come back", failures.setup.nodes);
    let sum = |value: fn(&Phase) -> u64| failures.phases.iter().map(value).sum::<u64>();
    let how = format!(
        "answers a second, in tenths of a second; {} questions a second are asked; wrong {}, \
         failed {}, lost {}",
        short(f64::from(failures.rate)),
        failures.wrong,
        sum(|phase| phase.failed),
        sum(|phase| phase.lost)
    );
    title(svg, frame, &what, &how);
    let end = failures.spans.last().map_or(1.0, |it| it.at_secs).max(0.1);
    let x_of = |at: f64| LEFT + (RIGHT - LEFT) * at / end;
    let largest = failures.spans.iter().map(|it| it.answers_per_second).fold(1.0, f64::max);
    let rates = Axis::new(frame, largest * 1.02);
    rates.draw(svg, &short);
    let strip = Frame { top: bottom + 60.0, bottom: bottom + 60.0 + STRIP, ..frame };
    text(svg, LEFT - 50.0, strip.top - 14.0, 13.0, &muted(""), "p99 of each tenth, ms");
    let slowest = failures.spans.iter().map(|it| it.p99_us / 1e3).fold(0.1, f64::max);
    let delays = Axis::new(strip, slowest * 1.05);
    delays.draw(svg, &short);
    for event in &failures.events {
        let x = x_of(event.at_secs);
        line(svg, (x, frame.top), (x, strip.bottom), MUTED);
        text(svg, x + 5.0, bottom - 10.0, 12.0, &muted(""), &event.what);
    }
    let curve = |value: &dyn Fn(&SpanResult) -> f64| {
        failures.spans.iter().map(|it| (x_of(it.at_secs), value(it))).collect::<Vec<_>>()
    };
    polyline(svg, &curve(&|it| rates.y(it.answers_per_second)), GREEN, "none");
    polyline(svg, &curve(&|it| delays.y(it.p99_us / 1e3)), ORANGE, "none");
    seconds_below(svg, end, strip.bottom, &x_of);
    strip.bottom + BELOW
}

/// Questions upstream while a node joins; returns where it ends.
fn joining(svg: &mut String, y: f64, joining: &Joining) -> f64 {
    let (top, bottom) = (y + ABOVE, y + ABOVE + DIAGRAM * 0.6);
    let frame = Frame { left: LEFT, top, right: RIGHT, bottom };
    let how = format!(
        "% of the questions that were asked upstream, in tenths of a second: 100 less the hit \
         ratio; {} questions a second for {} names that the cluster knows",
        short(f64::from(joining.rate)),
        short(joining.names as f64)
    );
    title(svg, frame, &format!("node {} joins a warm cluster", joining.setup.nodes), &how);
    // What happens before the join is drawn too.
    let highest = joining.points.iter().map(|it| it.missed_percent).fold(2.0, f64::max);
    let axis = Axis::new(frame, highest * 1.05);
    axis.draw(svg, &short);
    let end = joining.points.last().map_or(1.0, |it| it.at_secs).max(0.1);
    let x_of = |at: f64| LEFT + (RIGHT - LEFT) * at / end;
    let x = x_of(joining.joined_secs);
    line(svg, (x, frame.top), (x, frame.bottom), MUTED);
    text(svg, x + 5.0, top + 14.0, 12.0, &muted(""), "it starts");
    let at = |it: &JoinPoint| (x_of(it.at_secs), axis.y(it.missed_percent));
    polyline(svg, &joining.points.iter().map(at).collect::<Vec<_>>(), GREEN, "none");
    seconds_below(svg, end, bottom, &x_of);
    bottom + BELOW
}

/// A time axis from 0 to `end` seconds under a diagram.
fn seconds_below(svg: &mut String, end: f64, bottom: f64, x_of: &dyn Fn(f64) -> f64) {
    let step = tick_step(end);
    for tick in 0..=(end / step) as usize {
        let at = tick as f64 * step;
        let words = format!("{} s", short(at));
        text(svg, x_of(at), bottom + 22.0, 13.0, &muted(CENTRED), &words);
    }
}

fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::Dnsdist => BLUE,
        Kind::Unbound => ORANGE,
        Kind::Pharos => GREEN,
        Kind::Floor => MUTED,
    }
}

fn setup_color(setup: Setup) -> &'static str {
    if setup.nodes > 1 { PURPLE } else { color(setup.kind) }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn everything_measured_is_drawn_and_escaped() {
        let svg = render(&sample());
        for expected in [
            "c&lt;&gt;",
            "Hits",
            "dnsdist",
            "Unbound",
            "by its number of nodes",
            "node 5 joins",
            "for 2,000 new names",
            "More nodes",
            "node 3 &lt;killed&gt;",
        ] {
            assert!(svg.contains(expected), "{expected}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn labels_do_not_lie_on_one_another() {
        let mut labels = [((0.0, 11.0), "b"), ((0.0, 90.0), "c"), ((0.0, 10.0), "a")];
        spread_out(&mut labels);
        assert_eq!(labels, [((0.0, 10.0), "a"), ((0.0, 26.0), "b"), ((0.0, 90.0), "c")]);
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut report = sample();
        report.failures = None;
        for scenario in &mut report.scenarios {
            scenario.setups.truncate(2);
        }
        let svg = render(&report);
        assert!(!svg.contains("are killed") && !svg.contains("More nodes"));
        assert!(!svg.contains("by its number of nodes") && svg.contains("dnsdist"));
        (report.scenarios, report.popularity) = (Vec::new(), Vec::new());
        assert!(!render(&report).contains("NaN"));
    }
}
