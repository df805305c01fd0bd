//! What the paper has no figure for: bounds, ablations, paces, and what the engine costs.

use super::chart::{CENTRED, Chart, DASHED, Kind, SOLID, Scale, legend, picture, round_up};
use super::report::{AblationRow, DrainReport, Makespan, PacePoint, direction_name};
use super::tables::percent;
use crate::draw::{
    BLUE, Frame, GREEN, GRID, INK, MUTED, ORANGE, PAPER, PURPLE, line, muted, polyline, rectangle,
    text, thousands,
};
use crate::stats::Spread;

const WIDTH: f64 = 1000.0;
const ROW: f64 = 26.0;
const END: &str = "text-anchor=\"end\"";

/// Names and pictures.
pub fn all(report: &DrainReport) -> Vec<(&'static str, String)> {
    vec![
        ("makespan", makespan(&report.makespans)),
        ("ablations", ablations(&report.ablations)),
        ("pace", pace(&report.paces)),
        ("engine", engine(report)),
    ]
}

fn makespan(rows: &[Makespan]) -> String {
    let (left, right, top) = (250.0, 900.0, 85.0);
    let longest = rows.iter().map(|row| row.sequential_secs.max).fold(60.0, f64::max) / 60.0;
    let bottom = top + rows.len() as f64 * (3.0 * ROW + 34.0);
    let chart = Chart {
        frame: Frame { left, top, right, bottom },
        x: Scale::from_zero("minutes of the world", round_up(longest), ""),
        y: Scale::from_zero("", 1.0, ""),
    };
    let mut body = String::new();
    let mut y = top + 22.0;
    for row in rows {
        let name = direction_name(row.direction);
        text(&mut body, 40.0, y + ROW * 1.6, 15.0, "font-weight=\"600\"", name);
        for (name, color, secs, figure) in [
            ("lower bound", MUTED, row.bound_secs, String::new()),
            ("makespan", GREEN, row.makespan_secs, times(row.to_bound, 3, "of the bound")),
            (
                "one by one",
                ORANGE,
                row.sequential_secs,
                times(row.against_sequential, 2, "of the makespan"),
            ),
        ] {
            let end = |secs: f64| chart.at(secs / 60.0, 0.0).0;
            rectangle(&mut body, (left, y), (end(secs.median) - left, ROW - 8.0), color, 0.9);
            let middle = y + (ROW - 8.0) / 2.0;
            line(&mut body, (end(secs.min), middle), (end(secs.max), middle), INK);
            text(&mut body, left - 10.0, middle + 4.0, 13.0, &muted(END), name);
            let figure = format!("{:.1} min  {figure}", secs.median / 60.0);
            // Long bars have room for it themselves.
            let (x, how) = match end(secs.max) > right - 300.0 {
                true => (left + 10.0, format!("fill=\"{PAPER}\" font-weight=\"600\"")),
                false => (end(secs.max) + 10.0, String::new()),
            };
            text(&mut body, x, middle + 4.0, 12.0, &how, figure.trim());
            y += ROW;
        }
        y += 34.0;
    }
    let mut axis = String::new();
    horizontal_axis(&mut axis, &chart);
    let seeds = rows.first().map_or(0, |row| row.runs.len());
    let how = format!(
        "medians of {seeds} seeds, lines from least to most; the bound is the longest chain, each \
         task as long as it takes alone"
    );
    let what = "Makespan against its lower bound, and against one task at a time";
    picture(WIDTH, bottom + 60.0, what, &how, &(axis + &body))
}

fn times(value: Spread, digits: usize, of: &str) -> String {
    let Spread { median, min, max } = value;
    format!("×{median:.digits$} {of} ({min:.digits$}–{max:.digits$})")
}

/// Only the lower axis of a diagram, with lines upwards.
fn horizontal_axis(svg: &mut String, chart: &Chart<'_>) {
    let Frame { left, top, right, bottom } = chart.frame;
    for value in chart.x.ticks() {
        let (x, _) = chart.at(value, 0.0);
        line(svg, (x, top), (x, bottom), GRID);
        text(svg, x, bottom + 18.0, 12.0, &muted(CENTRED), &chart.x.figure(value));
    }
    line(svg, (left, bottom), (right, bottom), MUTED);
    text(svg, (left + right) / 2.0, bottom + 38.0, 13.0, &muted(CENTRED), chart.x.label);
}

/// What is told of every ablation.
struct Column {
    name: &'static str,
    of: fn(&AblationRow) -> Spread,
    figure: fn(f64) -> String,
    /// More than that is bad.
    bound: Option<f64>,
}

const COLUMNS: [Column; 4] = [
    Column {
        name: "makespan",
        of: |row| row.makespan_secs,
        figure: |secs| format!("{:.0} min", secs / 60.0),
        bound: None,
    },
    Column {
        name: "failed user requests",
        of: |row| row.failed_share,
        figure: percent,
        bound: Some(0.0),
    },
    Column {
        name: "fullest datacenter",
        of: |row| row.peak_utilisation,
        figure: percent,
        bound: Some(1.0),
    },
    Column {
        name: "wanted of the backbone",
        of: |row| row.peak_link,
        figure: percent,
        bound: Some(1.0),
    },
];

fn ablations(rows: &[AblationRow]) -> String {
    let (left, width, top) = (215.0, 190.0, 125.0);
    let mut body = String::new();
    for (at, column) in COLUMNS.iter().enumerate() {
        let x = left + at as f64 * width;
        text(&mut body, x, top - 14.0, 13.0, "font-weight=\"600\"", column.name);
    }
    let mut y = top;
    let mut direction = None;
    for row in rows {
        if direction.replace(row.direction) != Some(row.direction) {
            y += if y > top { 16.0 } else { 0.0 };
            let name = direction_name(row.direction);
            text(&mut body, 30.0, y + 14.0, 14.0, "font-weight=\"600\"", name);
            line(&mut body, (30.0, y - 6.0), (WIDTH - 30.0, y - 6.0), GRID);
        }
        let name = match &row.without {
            Some(part) => format!("no {}", part.replace('-', " ")),
            None => "whole".to_owned(),
        };
        text(&mut body, left - 12.0, y + 14.0, 13.0, &muted(END), &name);
        for (at, column) in COLUMNS.iter().enumerate() {
            let x = left + at as f64 * width;
            ablation_bar(&mut body, x, y, row, column, rows);
        }
        y += ROW;
    }
    let seeds = rows.first().map_or(0, |row| row.seeds);
    let how = format!(
        "medians of {seeds} seeds; orange: users notice, or something is asked for more than it can \
         bear; makespans on a logarithmic scale"
    );
    picture(WIDTH, y + 24.0, "What each part is good for", &how, &body)
}

fn ablation_bar(
    svg: &mut String,
    x: f64,
    y: f64,
    row: &AblationRow,
    column: &Column,
    rows: &[AblationRow],
) {
    let value = (column.of)(row).median;
    let largest = rows.iter().map(|row| (column.of)(row).median).fold(1e-9, f64::max);
    let share = match column.bound {
        // Hours beside minutes.
        None => ((value / 60.0).max(1.0).log10() / (largest / 60.0).max(10.0).log10()).max(0.01),
        Some(_) => value / largest,
    };
    let is_bad = column.bound.is_some_and(|bound| value > bound + 1e-9);
    let gave_up = column.bound.is_none() && row.ended < row.seeds;
    let color = if is_bad || gave_up { ORANGE } else { GREEN };
    let length = 90.0 * share.clamp(0.0, 1.0);
    rectangle(svg, (x, y + 2.0), (length.max(1.5), ROW - 10.0), color, 0.9);
    let figure = if gave_up { "never ends".to_owned() } else { (column.figure)(value) };
    text(svg, x + length.max(1.5) + 6.0, y + 14.0, 12.0, "", &figure);
}

fn pace(points: &[PacePoint]) -> String {
    let mut body = String::new();
    let mut worlds: Vec<&str> = points.iter().map(|point| point.world.as_str()).collect();
    worlds.dedup();
    let ended = || points.iter().filter(|point| point.has_ended);
    let longest = ended().map(|point| point.makespan_secs).fold(600.0, f64::max) / 60.0;
    let high = points.iter().map(|point| point.peak_utilisation * 100.0).fold(100.0, f64::max);
    for (at, world) in worlds.iter().enumerate() {
        let left = 100.0 + 460.0 * at as f64;
        let chart = Chart {
            frame: Frame { left, top: 150.0, right: left + 380.0, bottom: 450.0 },
            x: Scale {
                label: "makespan, minutes",
                high: 10f64.powi(longest.log10().ceil() as i32),
                kind: Kind::Logarithmic(10.0),
                unit: "",
            },
            y: Scale::from_zero("fullest datacenter at its peak", round_up(high), " %"),
        };
        let chart =
            if at == 0 { chart } else { Chart { y: Scale { label: "", ..chart.y }, ..chart } };
        chart.draw(&mut body);
        chart.title(&mut body, &format!("{world} world"));
        chart.level(&mut body, 100.0, "full", true);
        pace_points(&mut body, &chart, points.iter().filter(|point| point.world == *world));
    }
    let names = [
        ("adaptive", GREEN, SOLID),
        ("fixed steps", BLUE, SOLID),
        ("fixed, and requests failed", ORANGE, SOLID),
    ];
    legend(&mut body, 100.0, 92.0, &names);
    picture(
        WIDTH,
        510.0,
        "Fixed steps against adaptive ones",
        "drains; every shift in steps of one size (as labelled), or as large as health allows; to \
         the left is faster, below is safer",
        &body,
    )
}

fn pace_points<'p>(
    svg: &mut String,
    chart: &Chart<'_>,
    points: impl Iterator<Item = &'p PacePoint>,
) {
    let points: Vec<&PacePoint> = points.filter(|point| point.has_ended).collect();
    let at =
        |point: &PacePoint| chart.at(point.makespan_secs / 60.0, point.peak_utilisation * 100.0);
    let fixed = points.iter().filter(|point| point.step.is_some());
    let way: Vec<(f64, f64)> = fixed.map(|point| at(point)).collect();
    polyline(svg, &way, GRID, SOLID);
    for point in &points {
        let (x, y) = at(point);
        let color = match point.step {
            None => GREEN,
            Some(_) if point.failed_requests > 0.5 => ORANGE,
            Some(_) => BLUE,
        };
        let radius = if point.step.is_none() { 8.0 } else { 5.0 };
        dot(svg, (x, y), radius, color);
        // Where points are above each other, names stand beside them.
        let (dx, dy, anchor) = match point.step {
            None => (0.0, 24.0, CENTRED),
            Some(step) if step < 0.15 => (0.0, -10.0, CENTRED),
            Some(_) => (-9.0, 4.0, END),
        };
        let name =
            point.step.map_or("adaptive".to_owned(), |step| format!("{:.0} %", step * 100.0));
        text(svg, x + dx, y + dy, 12.0, &on_top(anchor), &name);
    }
}

/// What makes text readable above a line.
fn on_top(attributes: &str) -> String {
    format!("stroke=\"{PAPER}\" stroke-width=\"4\" paint-order=\"stroke\" {attributes}")
}

fn dot(svg: &mut String, (x, y): (f64, f64), radius: f64, color: &str) {
    use std::fmt::Write as _;
    let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{color}\"/>");
}

fn engine(report: &DrainReport) -> String {
    let mut body = String::new();
    let seconds = |low: f64, high: f64, label| Scale {
        label,
        high,
        kind: Kind::Logarithmic(low),
        unit: " s",
    };
    let count =
        |low: f64, high: f64, label| Scale { label, high, kind: Kind::Logarithmic(low), unit: "" };
    let cost = Chart {
        frame: Frame { left: 100.0, top: 150.0, right: 470.0, bottom: 430.0 },
        x: count(100.0, 10_000.0, "tasks"),
        y: seconds(0.001, 10.0, "CPU seconds of a whole run"),
    };
    cost.draw(&mut body);
    cost.title(&mut body, "The engine, from the first record to the last");
    cost.level(&mut body, 1.0, "target for 10,000 tasks", true);
    let tasks: Vec<f64> = report.engine.iter().map(|row| row.tasks as f64).collect();
    let of: Vec<Spread> = report.engine.iter().map(|row| row.cpu_secs).collect();
    marked_line(&mut body, &cost, &tasks, &of, GREEN, SOLID);
    let resume = Chart {
        frame: Frame { left: 590.0, top: 150.0, right: 960.0, bottom: 430.0 },
        x: count(1000.0, 1_000_000.0, "records in the store"),
        y: seconds(0.0001, 10.0, "seconds until a run goes on"),
    };
    resume.draw(&mut body);
    resume.title(&mut body, "A start after a crash");
    resume.level(&mut body, 1.0, "target", true);
    let records: Vec<f64> = report.resumes.iter().map(|row| row.records as f64).collect();
    type Part = fn(&super::report::Resume) -> Spread;
    let parts: [(&str, Part, &str, &str); 4] = [
        ("all", |row| row.secs, GREEN, SOLID),
        ("open and check the file", |row| row.open_secs, BLUE, DASHED),
        ("read the records", |row| row.read_secs, ORANGE, DASHED),
        ("replay them", |row| row.replay_secs, PURPLE, DASHED),
    ];
    for (_, part, color, dashes) in parts.iter().rev() {
        let of: Vec<Spread> = report.resumes.iter().map(part).collect();
        marked_line(&mut body, &resume, &records, &of, color, dashes);
    }
    let names = parts.map(|(name, _, color, dashes)| (name, color, dashes));
    legend(&mut body, 300.0, 92.0, &names);
    let largest = report.engine.last().map_or(0, |row| row.events);
    let how = format!(
        "medians; a run of 10,000 tasks is {} events; {}",
        thousands(largest),
        report.machine.cpu
    );
    picture(WIDTH, 490.0, "What the engine costs, and how soon it is back", &how, &body)
}

fn marked_line(
    svg: &mut String,
    chart: &Chart<'_>,
    xs: &[f64],
    values: &[Spread],
    color: &str,
    dashes: &str,
) {
    let medians: Vec<f64> = values.iter().map(|value| value.median).collect();
    chart.line(svg, xs, &medians, color, dashes);
    for (x, value) in xs.iter().zip(values) {
        dot(svg, chart.at(*x, value.median), 4.0, color);
        line(svg, chart.at(*x, value.min), chart.at(*x, value.max), INK);
    }
    if dashes == SOLID {
        for (x, value) in xs.iter().zip(values) {
            let (x, y) = chart.at(*x, value.median);
            let figure = format!("{:.2} s", value.median);
            // The first one would stand among the figures of the axis.
            match x < chart.frame.left + 40.0 {
                true => text(svg, x + 2.0, y - 14.0, 12.0, &on_top(""), &figure),
                false => text(svg, x - 8.0, y - 8.0, 12.0, &on_top(END), &figure),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::report::tests::sample;

    #[test]
    fn everything_is_drawn() {
        let drawn = all(&sample());
        let has = |name: &str, words: &str| {
            let svg = &drawn.iter().find(|(own, _)| *own == name).unwrap().1;
            assert!(svg.contains(words), "{words} in {name}");
            assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"), "{name}");
        };
        has("makespan", "×6.67 of the makespan");
        has("ablations", "never ends");
        has("pace", "adaptive");
        has("engine", "5,655,930 events");
    }
}
