//! The comparison as one SVG: CPU per answer, and below it start time and memory.

use crate::draw::{line, rectangle, short, swatch, text, thousands, tick_step};
use crate::peers::Kind;
use crate::report::{Report, ScenarioResult, ServerResult, StartResult};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 1170.0;
const TOP: f64 = 150.0;
const BOTTOM: f64 = 500.0;
const ROW: f64 = 34.0;
const LIGHT: f64 = 0.45;

pub fn render(report: &Report) -> String {
    let rows = report.starts.len() as f64;
    let height = if rows > 0.0 { BOTTOM + 120.0 + rows * ROW } else { BOTTOM + 60.0 };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\" fill=\"#1f2933\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    head(&mut svg, report);
    scenarios(&mut svg, &report.scenarios);
    if rows > 0.0 {
        let seconds = |start: &StartResult| start.seconds.median;
        let mebibytes = |start: &StartResult| start.memory.pss_bytes as f64 / f64::from(1 << 20);
        let zones = thousands(report.parameters.zones);
        let title = format!("Start with {zones} zones, seconds");
        starts(&mut svg, LEFT, &title, &report.starts, seconds);
        let title = format!("Memory with {zones} zones, MiB");
        starts(&mut svg, LEFT + 570.0, &title, &report.starts, mebibytes);
    }
    svg.push_str("</svg>\n");
    svg
}

fn head(svg: &mut String, report: &Report) {
    let machine = &report.machine;
    text(svg, LEFT, 40.0, 22.0, "font-weight=\"600\"", "CPU time per answer over UDP, one core");
    let about = format!(
        "{}, {} cores, Linux {}; median of {} rounds of {} s, lines from least to most; {}",
        machine.cpu,
        machine.cores,
        machine.kernel,
        report.parameters.rounds,
        report.parameters.seconds,
        report.date.get(..10).unwrap_or(&report.date)
    );
    text(svg, LEFT, 64.0, 13.0, "fill=\"#52606d\"", &about);
    let mut x = LEFT;
    let servers = report.scenarios.first().map_or(&[][..], |scenario| &scenario.servers);
    for result in servers {
        swatch(svg, x, color(result.server), 1.0);
        text(svg, x + 20.0, 97.0, 14.0, "", label(result.server));
        x += 48.0 + 8.5 * label(result.server).len() as f64;
    }
    x += 30.0;
    for (name, opacity) in [("user", 1.0), ("kernel", LIGHT)] {
        swatch(svg, x, "#52606d", opacity);
        text(svg, x + 20.0, 97.0, 14.0, "", name);
        x += 95.0;
    }
}

fn scenarios(svg: &mut String, scenarios: &[ScenarioResult]) {
    let most = |result: &ServerResult| result.cpu_micros_per_answer.max;
    let largest = scenarios.iter().flat_map(|it| &it.servers).map(most).fold(0.1, f64::max);
    // Room for the figures above the highest bar.
    let step = tick_step(largest);
    let top = (largest * 1.08 / step).ceil() * step;
    let y_of = |value: f64| BOTTOM - (BOTTOM - TOP) * value / top;
    text(svg, LEFT, TOP - 16.0, 13.0, "fill=\"#52606d\"", "µs per answer");
    for tick in 0..=(top / step).round() as usize {
        let (value, y) = (tick as f64 * step, y_of(tick as f64 * step));
        line(svg, (LEFT, y), (RIGHT, y), if tick == 0 { "#52606d" } else { "#e4e7eb" });
        let attributes = "text-anchor=\"end\" fill=\"#52606d\"";
        text(svg, LEFT - 10.0, y + 4.0, 13.0, attributes, &short(value));
    }
    let group = (RIGHT - LEFT) / scenarios.len().max(1) as f64;
    for (index, scenario) in scenarios.iter().enumerate() {
        let middle = LEFT + group * (index as f64 + 0.5);
        let name = scenario.scenario.name();
        text(svg, middle, BOTTOM + 24.0, 15.0, "text-anchor=\"middle\"", name);
        let count = scenario.servers.len() as f64;
        let pitch = (group * 0.86 / count).min(60.0);
        for (place, result) in scenario.servers.iter().enumerate() {
            let x = middle + pitch * (place as f64 - count / 2.0);
            stacked_bar(svg, x + pitch * 0.08, pitch * 0.84, result, y_of);
        }
    }
}

fn stacked_bar(
    svg: &mut String,
    x: f64,
    width: f64,
    result: &ServerResult,
    y_of: impl Fn(f64) -> f64,
) {
    let total = result.cpu_micros_per_answer;
    let user = result.user_micros_per_answer.median.min(total.median);
    let fill = color(result.server);
    rectangle(svg, (x, y_of(total.median)), (width, y_of(user) - y_of(total.median)), fill, LIGHT);
    rectangle(svg, (x, y_of(user)), (width, y_of(0.0) - y_of(user)), fill, 1.0);
    let middle = x + width / 2.0;
    line(svg, (middle, y_of(total.min)), (middle, y_of(total.max)), "#1f2933");
    let figure = format!("{:.2}", total.median);
    text(svg, middle, y_of(total.max) - 6.0, 12.0, "text-anchor=\"middle\"", &figure);
}

fn starts(
    svg: &mut String,
    x: f64,
    title: &str,
    starts: &[StartResult],
    value: impl Fn(&StartResult) -> f64,
) {
    let y = BOTTOM + 80.0;
    text(svg, x, y, 16.0, "font-weight=\"600\"", title);
    let largest = starts.iter().map(&value).fold(f64::MIN_POSITIVE, f64::max);
    for (row, start) in starts.iter().enumerate() {
        let y = y + 16.0 + ROW * row as f64;
        let value = value(start);
        let width = 360.0 * value / largest;
        text(svg, x, y + 17.0, 14.0, "", label(start.server));
        rectangle(svg, (x + 70.0, y), (width, ROW - 10.0), color(start.server), 1.0);
        text(svg, x + 78.0 + width, y + 17.0, 14.0, "", &short(value));
    }
}

fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Knot => "Knot",
        Kind::Nsd => "NSD",
        Kind::Pharos => "Pharos",
        Kind::Floor => "floor",
    }
}

fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::Knot => "#3e5c95",
        Kind::Nsd => "#b5651d",
        Kind::Pharos => "#0b7a5f",
        Kind::Floor => "#7b8794",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn every_server_is_drawn_and_text_is_escaped() {
        let svg = render(&sample());
        for kind in [Kind::Knot, Kind::Nsd, Kind::Pharos, Kind::Floor] {
            assert!(svg.contains(color(kind)) && svg.contains(label(kind)), "{kind}");
        }
        assert!(svg.contains("c&lt;&gt;"));
        assert!(svg.ends_with("</svg>\n"));
    }
}
