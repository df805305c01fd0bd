//! `bench shuffle` as one SVG: time for each shard by construction and by
//! search, how much of the bound each reaches, what a design takes both ways,
//! and what flooded tenants take with them.

use crate::draw::{
    BLUE, Frame, GREEN, GRID, INK, MUTED, ORANGE, PAPER, dark_page, line, muted, polyline,
    rectangle, short, text, thousands, tick_step, title,
};
use crate::shards_report::{
    Curve, DesignTimes, FloodPoint, NANOS_MAX, Saturation, Scheme, ShuffleReport,
};
use crate::stats::Spread;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 960.0;
const TIME: Frame = Frame { left: 90.0, top: 150.0, right: 540.0, bottom: 450.0 };
const SHARE: Frame = Frame { left: 690.0, top: 150.0, right: 1170.0, bottom: 450.0 };
const BOTH_WAYS: Frame = Frame { left: 90.0, top: 580.0, right: 600.0, bottom: 870.0 };
const BLAST: Frame = Frame { left: 730.0, top: 580.0, right: 1050.0, bottom: 870.0 };

pub fn render(report: &ShuffleReport) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\" fill=\"{INK}\">\n"
    );
    dark_page(&mut svg);
    rectangle(&mut svg, (0.0, 0.0), (WIDTH, HEIGHT), PAPER, 1.0);
    head(&mut svg, report);
    time(&mut svg, &report.curves);
    share(&mut svg, &report.saturation);
    both_ways(&mut svg, &report.designs);
    blast(&mut svg, &report.flood);
    svg.push_str("</svg>\n");
    svg
}

fn head(svg: &mut String, report: &ShuffleReport) {
    let machine = &report.machine;
    text(
        svg,
        40.0,
        40.0,
        22.0,
        "font-weight=\"600\"",
        "Shuffle shards by construction and by search",
    );
    let about = format!(
        "{}, {} cores, Linux {}; shards of 4 workers that share at most 2; CPU time of one thread, \
         medians; {}",
        machine.cpu,
        machine.cores,
        machine.kernel,
        report.date.get(..10).unwrap_or(&report.date)
    );
    text(svg, 40.0, 64.0, 13.0, &muted(""), &about);
}

/// Powers of ten both ways.
struct LogScale {
    frame: Frame,
    x: (i32, i32),
    y: (i32, i32),
}

impl LogScale {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let share = |value: f64, (low, high): (i32, i32)| {
            (value.log10() - f64::from(low)) / f64::from(high - low)
        };
        let Frame { left, top, right, bottom } = self.frame;
        (left + (right - left) * share(x, self.x), bottom - (bottom - top) * share(y, self.y))
    }

    fn draw(&self, svg: &mut String, x_label: fn(i32) -> String, y_label: fn(i32) -> String) {
        for power in self.y.0..=self.y.1 {
            let (_, y) = self.at(1.0, 10f64.powi(power));
            let stroke = if power == self.y.0 { MUTED } else { GRID };
            line(svg, (self.frame.left, y), (self.frame.right, y), stroke);
            let attributes = muted("text-anchor=\"end\"");
            text(svg, self.frame.left - 10.0, y + 4.0, 13.0, &attributes, &y_label(power));
        }
        for power in self.x.0..=self.x.1 {
            let (x, _) = self.at(10f64.powi(power), 1.0);
            let attributes = muted("text-anchor=\"middle\"");
            text(svg, x, self.frame.bottom + 22.0, 13.0, &attributes, &x_label(power));
        }
    }
}

fn scheme_color(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Search => ORANGE,
        Scheme::Construction => GREEN,
    }
}

fn time(svg: &mut String, curves: &[Curve]) {
    title(svg, TIME, "Time for the next shard", "by how many are placed already");
    let scale = LogScale { frame: TIME, x: (3, 6), y: (1, 6) };
    scale.draw(svg, |power| thousands(10usize.pow(power as u32)), nanos_label);
    for curve in curves {
        let at = |placed: u64, nanos: f64| scale.at(placed as f64, nanos.clamp(10.0, 1e6));
        let points: Vec<(f64, f64)> =
            curve.points.iter().map(|it| at(it.placed, it.nanos_lately.median)).collect();
        let dashes = if curve.stripe_len == 512 { "none" } else { "2 5" };
        polyline(svg, &points, scheme_color(curve.scheme), dashes);
    }
    let mut y = TIME.top + 14.0;
    for curve in curves {
        let dashes = if curve.stripe_len == 512 { "none" } else { "2 5" };
        polyline(
            svg,
            &[(TIME.left + 16.0, y), (TIME.left + 46.0, y)],
            scheme_color(curve.scheme),
            dashes,
        );
        let label = format!("{}, 4 × {}", curve.scheme.name(), curve.stripe_len);
        text(svg, TIME.left + 56.0, y + 4.0, 13.0, "", &label);
        y += 20.0;
    }
}

fn nanos_label(power: i32) -> String {
    match power {
        ..3 => format!("{} ns", 10u32.pow(power as u32)),
        3..6 => format!("{} µs", 10u32.pow(power as u32 - 3)),
        _ => format!("{} ms", 10u32.pow(power as u32 - 6)),
    }
}

fn share(svg: &mut String, results: &[Saturation]) {
    title(
        svg,
        SHARE,
        "Shards placed, of what is possible",
        "search: by the failed attempts after which it gives up; then Pharos",
    );
    percent_lines(svg, SHARE);
    let mut lens: Vec<usize> = results.iter().map(|result| result.stripe_len).collect();
    lens.dedup();
    let group = (SHARE.right - SHARE.left) / lens.len().max(1) as f64;
    for (number, len) in lens.iter().enumerate() {
        let middle = SHARE.left + group * (number as f64 + 0.5);
        let name = format!("4 × {len}");
        text(svg, middle, SHARE.bottom + 44.0, 14.0, "text-anchor=\"middle\"", &name);
        let bars: Vec<&Saturation> = results.iter().filter(|it| it.stripe_len == *len).collect();
        let pitch = group * 0.9 / bars.len() as f64;
        for (place, result) in bars.iter().enumerate() {
            let x = middle + pitch * (place as f64 - bars.len() as f64 / 2.0);
            share_bar(svg, x + pitch * 0.06, pitch * 0.88, result);
        }
    }
}

fn percent_lines(svg: &mut String, frame: Frame) {
    for percent in (0..=100).step_by(25) {
        let y = frame.bottom - (frame.bottom - frame.top) * f64::from(percent) / 100.0;
        line(svg, (frame.left, y), (frame.right, y), if percent == 0 { MUTED } else { GRID });
        let attributes = muted("text-anchor=\"end\"");
        text(svg, frame.left - 10.0, y + 4.0, 13.0, &attributes, &format!("{percent} %"));
    }
}

fn share_bar(svg: &mut String, x: f64, width: f64, result: &Saturation) {
    let y_of = |share: f64| SHARE.bottom - (SHARE.bottom - SHARE.top) * share;
    let Spread { median, min, max } = result.share;
    let size = (width, SHARE.bottom - y_of(median));
    rectangle(svg, (x, y_of(median)), size, scheme_color(result.scheme), 0.9);
    let middle = x + width / 2.0;
    line(svg, (middle, y_of(min)), (middle, y_of(max)), INK);
    let centred = "text-anchor=\"middle\"";
    let figure = format!("{:.0}", 100.0 * median);
    text(svg, middle, y_of(max) - 5.0, 12.0, centred, &figure);
    let attempts = match result.scheme {
        Scheme::Search => result.attempts.to_string(),
        Scheme::Construction => String::new(),
    };
    text(svg, middle, SHARE.bottom + 18.0, 11.0, &muted(centred), &attempts);
}

fn both_ways(svg: &mut String, designs: &[DesignTimes]) {
    let how = "ns; left from number to shard, right back; the line is the bar to hold";
    title(svg, BOTH_WAYS, "A number to its shard, and back", how);
    let largest = designs.iter().map(|it| it.shard_ns.max.max(it.index_ns.max));
    let top = (largest.fold(NANOS_MAX, f64::max) * 1.08 / 10.0).ceil() * 10.0;
    let Frame { left, right, bottom, .. } = BOTH_WAYS;
    let y_of = |nanos: f64| bottom - (bottom - BOTH_WAYS.top) * nanos / top;
    let step = tick_step(top);
    for tick in 0..=(top / step) as usize {
        let (value, y) = (tick as f64 * step, y_of(tick as f64 * step));
        line(svg, (left, y), (right, y), if tick == 0 { MUTED } else { GRID });
        text(svg, left - 10.0, y + 4.0, 13.0, &muted("text-anchor=\"end\""), &short(value));
    }
    let group = (right - left) / designs.len().max(1) as f64;
    for (number, design) in designs.iter().enumerate() {
        let middle = left + group * (number as f64 + 0.5);
        let width = group * 0.36;
        for (side, color, nanos) in [(-1.0, GREEN, design.shard_ns), (0.0, BLUE, design.index_ns)] {
            time_bar(svg, middle + side * (width + 2.0) + 1.0, width, color, nanos, y_of);
        }
        let (first, second) = design.name.split_once(", ").unwrap_or((&design.name, ""));
        let kind = design.construction.rsplit('-').next().unwrap_or("");
        for (row, words) in [first, second, kind].into_iter().enumerate() {
            let y = bottom + 20.0 + 16.0 * row as f64;
            text(svg, middle, y, 11.0, &muted("text-anchor=\"middle\""), words);
        }
    }
    let held = designs.iter().filter(|it| it.has_bar).count() as f64;
    polyline(svg, &[(left, y_of(NANOS_MAX)), (left + group * held, y_of(NANOS_MAX))], INK, "6 4");
}

fn time_bar(
    svg: &mut String,
    x: f64,
    width: f64,
    color: &str,
    nanos: Spread,
    y_of: impl Fn(f64) -> f64,
) {
    rectangle(svg, (x, y_of(nanos.median)), (width, y_of(0.0) - y_of(nanos.median)), color, 0.9);
    let middle = x + width / 2.0;
    line(svg, (middle, y_of(nanos.min)), (middle, y_of(nanos.max)), INK);
    let figure = short(nanos.median);
    text(svg, middle, y_of(nanos.max) - 5.0, 12.0, "text-anchor=\"middle\"", &figure);
}

fn blast(svg: &mut String, points: &[FloodPoint]) {
    let how = "by flooded tenants, each alone on its shard; 2048 workers, all shards in use";
    title(svg, BLAST, "Tenants that lose all their workers", how);
    let scale = LogScale { frame: BLAST, x: (0, 2), y: (-8, 0) };
    scale.draw(svg, |power| 10u32.pow(power as u32).to_string(), share_label);
    type Measure = fn(&FloodPoint) -> f64;
    let schemes: [(&str, &str, Measure); 3] = [
        ("no sharding", ORANGE, |it| it.none),
        ("disjoint shards", BLUE, |it| it.plain),
        ("shuffle shards", GREEN, |it| it.shuffled),
    ];
    for (name, color, measure) in schemes {
        let at = |point: &FloodPoint| scale.at(point.flooded.into(), measure(point).max(1e-8));
        let points: Vec<(f64, f64)> = points.iter().map(at).collect();
        polyline(svg, &points, color, "none");
        let (x, y) = points.last().copied().unwrap_or_default();
        text(svg, x + 8.0, y + 4.0, 13.0, "", name);
    }
}

fn share_label(power: i32) -> String {
    match power {
        -2..=0 => format!("{} %", 10u32.pow((power + 2) as u32)),
        _ => format!("1 in {}", in_words(-power)),
    }
}

/// A power of ten, from a thousand on.
fn in_words(power: i32) -> String {
    let (digits, word) = if power < 6 { (power - 3, "k") } else { (power - 6, "M") };
    format!("{}{word}", 10u32.pow(digits as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards_report::tests::sample;

    #[test]
    fn labels_are_for_people() {
        assert_eq!([1, 3, 5, 6].map(nanos_label), ["10 ns", "1 µs", "100 µs", "1 ms"]);
        assert_eq!([0, -2, -3, -8].map(share_label), ["100 %", "1 %", "1 in 1k", "1 in 100M"]);
    }

    #[test]
    fn log_scales_end_at_their_frame() {
        let scale = LogScale { frame: TIME, x: (3, 6), y: (1, 6) };
        assert_eq!(scale.at(1e3, 1e1), (TIME.left, TIME.bottom));
        assert_eq!(scale.at(1e6, 1e6), (TIME.right, TIME.top));
    }

    #[test]
    fn everything_is_drawn_and_escaped() {
        let svg = render(&sample());
        for expected in
            ["search, 4 × 512", "Pharos, 4 × 512", "4 × 512 &lt;&amp;&gt;", "shuffle shards"]
        {
            assert!(svg.contains(expected), "{expected}");
        }
        assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"));
    }
}
