//! A report as one HTML file: no script, nothing to load, to be read in any
//! browser and kept with the post-mortem.

use std::fmt::{self, Write};

use super::{KnobReport, Report, TaskReport};
use crate::engine::{Phase, RunOutcome};
use crate::plan::Direction;
use crate::time::{Millis, Time};
use crate::value::Value;

const WIDTH: f64 = 1000.0;
const NAME_WIDTH: f64 = 220.0;
const ROW: f64 = 18.0;
/// Knobs that are drawn; more lines than that say nothing.
const KNOBS_DRAWN_MAX: usize = 24;

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1040px;padding:0 1rem;\
color:#1c2733;background:#fff}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .6rem;\
border-bottom:1px solid #e3e8ee;vertical-align:top}th{font-weight:600;color:#5a6b7d}\
th.n,td.n{text-align:right;font-variant-numeric:tabular-nums}svg{width:100%;height:auto}\
svg text{font:11px system-ui,sans-serif;fill:#1c2733}.facts{display:flex;flex-wrap:wrap;gap:2rem}\
.facts b{display:block;font-size:1.3rem}.muted{color:#5a6b7d}.critical{color:#c2410c}";

/// The page.
pub fn render(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write(report, &mut page);
    page
}

fn write(report: &Report, page: &mut String) -> fmt::Result {
    let (verb, place) = (verb(report.direction), escape(&report.datacenter));
    write!(
        page,
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{verb} of {place}</title>\
         <style>{STYLE}</style><h1>{verb} of {place}</h1>"
    )?;
    write_facts(report, page)?;
    write!(page, "<h2>Tasks</h2>")?;
    write_gantt(report, page)?;
    write_path(report, page)?;
    write!(page, "<h2>Knobs</h2>")?;
    write_knobs(report, page)?;
    write_tasks(report, page)?;
    write_close(report, page)?;
    write_events(report, page)?;
    page.push_str("</html>\n");
    Ok(())
}

fn verb(direction: Direction) -> &'static str {
    match direction {
        Direction::Drain => "Drain",
        Direction::Restore => "Restore",
    }
}

fn outcome(outcome: Option<RunOutcome>) -> &'static str {
    match outcome {
        None => "goes on",
        Some(RunOutcome::Completed) => "completed",
        Some(RunOutcome::CompletedWithSkips) => "completed, with tasks skipped",
        Some(RunOutcome::Held) => "aborted, held where it was",
        Some(RunOutcome::Reverted) => "aborted, reverted",
        Some(RunOutcome::PartlyReverted) => "aborted, not all could be reverted",
    }
}

fn write_facts(report: &Report, page: &mut String) -> fmt::Result {
    let steps: u32 = report.tasks.iter().map(|task| task.steps).sum();
    let done = report.tasks.iter().filter(|task| task.phase.is_complete()).count();
    let facts = [
        ("outcome", outcome(report.outcome).to_owned()),
        ("took", brief(report.makespan)),
        ("tasks complete", format!("{done} of {}", report.tasks.len())),
        ("steps", steps.to_string()),
        ("mode", format!("{:?}", report.mode).to_lowercase()),
    ];
    page.push_str("<div class=facts>");
    for (name, value) in facts {
        write!(page, "<div><span class=muted>{name}</span><b>{}</b></div>", escape(&value))?;
    }
    page.push_str("</div>");
    Ok(())
}

/// Places times on the x axis.
struct Axis {
    from: Time,
    span: f64,
}

impl Axis {
    fn of(report: &Report) -> Self {
        Axis { from: report.opened, span: (report.makespan.0 as f64).max(1.0) }
    }

    fn x(&self, at: Time) -> f64 {
        let share = (at - self.from).0 as f64 / self.span;
        NAME_WIDTH + share.min(1.0) * (WIDTH - NAME_WIDTH - 10.0)
    }

    /// Lines and labels at round times, a few of them.
    fn write(&self, page: &mut String, height: f64) -> fmt::Result {
        const TICKS_MAX: f64 = 8.0;
        const ROUND: [u64; 18] = [
            10, 100, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
            600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000,
        ];
        let is_few = |every: &&u64| self.span / **every as f64 <= TICKS_MAX;
        let every = ROUND.iter().find(is_few).map_or(self.span / TICKS_MAX, |every| *every as f64);
        for tick in 0..=(self.span / every) as u64 {
            let span = Millis((every * tick as f64) as u64);
            let x = self.x(self.from + span);
            write!(
                page,
                "<line x1={x:.1} y1=0 x2={x:.1} y2={height} stroke='#e3e8ee'/>\
                 <text x={x:.1} y={} text-anchor=middle fill='#5a6b7d'>{span}</text>",
                height + 13.0
            )?;
        }
        Ok(())
    }
}

fn colour(task: &TaskReport) -> &'static str {
    match task.phase {
        Phase::Done if task.is_critical => "#c2410c",
        Phase::Done => "#2f6f9f",
        Phase::Skipped | Phase::Abandoned => "#9aa7b4",
        Phase::Reverted | Phase::Reverting => "#7c5cbf",
        Phase::Failed | Phase::Stopped | Phase::Unreverted => "#b91c1c",
        Phase::Waiting | Phase::Running | Phase::Settling => "#4d9f6f",
    }
}

fn write_gantt(report: &Report, page: &mut String) -> fmt::Result {
    let mut tasks: Vec<&TaskReport> =
        report.tasks.iter().filter(|task| task.started.is_some()).collect();
    tasks.sort_by_key(|task| (task.started, task.ended));
    let (axis, height) = (Axis::of(report), ROW * tasks.len() as f64);
    write!(
        page,
        "<svg viewBox='0 0 {WIDTH} {}' role=img aria-label='When each task ran'>",
        height + 20.0
    )?;
    axis.write(page, height)?;
    for (row, task) in tasks.iter().enumerate() {
        let Some(started) = task.started else { continue };
        let (y, from) = (row as f64 * ROW, axis.x(started));
        let to = axis.x(task.ended.unwrap_or(report.ended));
        let took = task.took.map_or("goes on".to_owned(), brief);
        let name = escape(&task.name);
        let weight = if task.is_critical { 700 } else { 400 };
        write!(
            page,
            "<text x={} y={} text-anchor=end font-weight={weight}>{name}</text>\
             <rect x={from:.1} y={} width={:.1} height={} rx=2 fill='{}'>\
             <title>{name}: {took}, {} steps</title></rect>",
            NAME_WIDTH - 8.0,
            y + 13.0,
            y + 3.0,
            (to - from).max(2.0),
            ROW - 6.0,
            colour(task),
            task.steps,
        )?;
    }
    page.push_str("</svg>");
    Ok(())
}

fn write_path(report: &Report, page: &mut String) -> fmt::Result {
    let names: Vec<String> = report.critical_path.iter().map(|name| escape(name)).collect();
    write!(page, "<p><b class=critical>Critical path:</b> {}.", names.join(" → "))?;
    if let Some(edge) = &report.costliest {
        let kind = if edge.is_weak { " (weak)" } else { "" };
        write!(
            page,
            " Without <b>{} after {}</b>{kind} the run would have been {} shorter.",
            escape(&edge.task),
            escape(&edge.after),
            brief(edge.saves)
        )?;
    }
    page.push_str("</p>");
    Ok(())
}

/// Knobs that are numbers, each as a staircase in a band of its own.
fn write_knobs(report: &Report, page: &mut String) -> fmt::Result {
    const BAND: f64 = 34.0;
    let is_number =
        |knob: &&KnobReport| knob.moves.iter().all(|(_, value)| value.number().is_some());
    let drawn: Vec<&KnobReport> =
        report.knobs.iter().filter(is_number).take(KNOBS_DRAWN_MAX).collect();
    let (axis, height) = (Axis::of(report), BAND * drawn.len() as f64);
    write!(
        page,
        "<svg viewBox='0 0 {WIDTH} {}' role=img aria-label='Where each knob went'>",
        height + 20.0
    )?;
    axis.write(page, height)?;
    for (band, knob) in drawn.iter().enumerate() {
        let numbers = || knob.moves.iter().filter_map(|(at, value)| Some((*at, value.number()?)));
        let most = numbers().map(|(_, value)| value).fold(1e-9, f64::max);
        let bottom = (band as f64 + 1.0) * BAND - 6.0;
        let y = |value: f64| bottom - value / most * (BAND - 12.0);
        let mut points = String::new();
        let mut last = None;
        for (at, value) in numbers() {
            if let Some(last) = last {
                write!(points, "{:.1},{:.1} ", axis.x(at), y(last))?;
            }
            write!(points, "{:.1},{:.1} ", axis.x(at), y(value))?;
            last = Some(value);
        }
        if let Some(last) = last {
            write!(points, "{:.1},{:.1}", axis.x(report.ended), y(last))?;
        }
        write!(
            page,
            "<text x={} y={} text-anchor=end>{}</text>\
             <polyline points='{points}' fill=none stroke='#2f6f9f' stroke-width=1.6 />",
            NAME_WIDTH - 8.0,
            bottom - 6.0,
            escape(&knob.name)
        )?;
    }
    page.push_str("</svg>");
    let left_out = report.knobs.len() - drawn.len();
    if left_out > 0 {
        write!(page, "<p class=muted>{left_out} more are in the JSON report.</p>")?;
    }
    Ok(())
}

fn write_tasks(report: &Report, page: &mut String) -> fmt::Result {
    page.push_str(
        "<h2>Time per task</h2><table><tr><th>task<th>phase<th class=n>took<th class=n>usual<th class=n>steps<th>held for",
    );
    for task in &report.tasks {
        let shown = |span: Option<Millis>| span.map_or("–".to_owned(), brief);
        let held: Vec<String> = task
            .held
            .iter()
            .map(|(why, span)| format!("{}: {}", escape(why), brief(*span)))
            .collect();
        let stuck = if task.was_stuck { " (stuck)" } else { "" };
        write!(
            page,
            "<tr><td>{}<td>{}{stuck}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}",
            escape(&task.name),
            format!("{:?}", task.phase).to_lowercase(),
            shown(task.took),
            shown(task.usual),
            task.steps,
            held.join("<br>")
        )?;
        if let Some(failure) = &task.failure {
            write!(page, "<br>{}", escape(failure))?;
        }
    }
    page.push_str("</table>");
    Ok(())
}

fn write_close(report: &Report, page: &mut String) -> fmt::Result {
    if report.close.is_empty() {
        return page.write_str("<p>No condition came close to its bound.</p>");
    }
    page.push_str("<h2>Conditions that were close</h2><table><tr><th>condition<th class=n>value<th class=n>of its bound<th class=n>after");
    for call in &report.close {
        write!(
            page,
            "<tr><td>{}<td class=n>{:.4}<td class=n>{:.0} %<td class=n>{}",
            escape(&call.condition),
            call.value,
            call.nearness * 100.0,
            brief(call.at - report.opened)
        )?;
    }
    page.push_str("</table>");
    Ok(())
}

fn write_events(report: &Report, page: &mut String) -> fmt::Result {
    let shown = |value: &Value| escape(&value.to_string());
    if !report.drifts.is_empty() {
        page.push_str("<h2>Drift</h2><table><tr><th class=n>after<th>knob<th class=n>was left at<th class=n>was found at");
        for drift in &report.drifts {
            write!(
                page,
                "<tr><td class=n>{}<td>{}<td class=n>{}<td class=n>{}",
                brief(drift.at - report.opened),
                escape(&drift.knob),
                shown(&drift.expected),
                shown(&drift.found)
            )?;
        }
        page.push_str("</table>");
    }
    if !report.astray.is_empty() {
        page.push_str(
            "<h2>Not where it was left at the end</h2>\
             <table><tr><th class=n>after<th>knob<th class=n>was left at<th class=n>was found at<th>why",
        );
        for astray in &report.astray {
            write!(
                page,
                "<tr><td class=n>{}<td>{}<td class=n>{}<td class=n>{}<td>{}",
                brief(astray.at - report.opened),
                escape(&astray.knob),
                shown(&astray.expected),
                astray.found.as_ref().map_or("unknown".to_owned(), shown),
                escape(&astray.why)
            )?;
        }
        page.push_str("</table>");
    }
    if !report.commands.is_empty() {
        page.push_str(
            "<h2>What people said</h2><table><tr><th class=n>after<th>who<th>what<th>why",
        );
        for said in &report.commands {
            write!(
                page,
                "<tr><td class=n>{}<td>{}<td>{}<td>{}",
                brief(said.at - report.opened),
                escape(&said.who()),
                escape(&said.what),
                escape(&said.reason)
            )?;
        }
        page.push_str("</table>");
    }
    Ok(())
}

/// As exact as anybody cares for: seconds of a long span, tenths of a short one.
fn brief(span: Millis) -> String {
    let unit = if span.0 >= 10_000 { 1000 } else { 100 };
    Millis(span.0.div_ceil(unit) * unit).to_string()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}
