//! A report as one HTML file: no script, nothing to load, to be read in any
//! browser and kept with the post-mortem. Every text is escaped where it is put
//! into the page, by construction, and characters that nobody sees are shown as
//! question marks.

mod charts;
mod scale;

use base::text::many_lines;
use jiff::tz::TimeZone;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Report;
use crate::date::{date, time_of_day, zone_name};
use crate::engine::{Mode, Phase, RunOutcome};
use crate::number::{number, percent};
use crate::plan::Direction;
use crate::time::{Millis, Time};
use crate::value::Value;

const STYLE: &str = include_str!("style.css");

/// The page, with dates in a time zone.
pub fn render(report: &Report, zone: &TimeZone) -> String {
    let title = title(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(report, zone, &title))
                (charts::timeline(report, zone))
                (people(report, zone))
                (charts::traffic(report, zone))
                (charts::health(report, zone))
                (charts::gantt(report, zone))
                (path(report))
                (charts::knobs(report, zone))
                (events(report, zone))
                (tasks(report))
                (close(report, zone))
            }
        }
    };
    // Escaped is not enough: a reason could still turn round what stands beside it.
    many_lines(&page.into_string()).into_owned() + "\n"
}

fn title(report: &Report) -> String {
    let verb = match report.direction {
        Direction::Drain => "drain",
        Direction::Restore => "restore",
    };
    match report.run {
        Some(run) => format!("Run {run}: {verb} of {}", report.datacenter),
        None => format!("{}{} of {}", verb[..1].to_uppercase(), &verb[1..], report.datacenter),
    }
}

fn outcome(outcome: Option<RunOutcome>) -> (&'static str, &'static str) {
    match outcome {
        None => ("running", "open"),
        Some(RunOutcome::Completed) => ("completed", "good"),
        Some(RunOutcome::CompletedWithSkips) => ("completed, with tasks skipped", "fair"),
        Some(RunOutcome::Held) => ("aborted, held where it was", "fair"),
        Some(RunOutcome::Reverted) => ("aborted, reverted", "fair"),
        Some(RunOutcome::PartlyReverted) => ("aborted, not all could be reverted", "bad"),
    }
}

fn head(report: &Report, zone: &TimeZone, title: &str) -> Markup {
    let (word, class) = outcome(report.outcome);
    let steps: u32 = report.tasks.iter().map(|task| task.steps).sum();
    let done = report.tasks.iter().filter(|task| task.phase.is_complete()).count();
    let held = held_for(report);
    let health = report.conditions.iter().filter(|own| own.is_health);
    let breaches: usize = health.map(|own| own.breaches.len()).sum();
    let outages: usize = report.conditions.iter().map(|own| own.outages.len()).sum();
    let mode = match report.mode {
        Mode::Drill => "drill",
        Mode::Disaster => "disaster",
    };
    html! {
        header {
            h1 { (title) " " span .badge .(class) { (word) } }
            p .lead {
                "Started " b { (date(report.opened, zone)) } " by " b { (report.by) }
                @if !report.reason.is_empty() { ": " q { (report.reason) } }
                br;
                @if report.outcome.is_some() { "Ended " } @else { "Last record " }
                b { (date(report.ended, zone)) } ", after " b { (brief(report.makespan)) } "."
            }
            div .facts {
                (fact("mode", mode))
                (fact("took", &brief(report.makespan)))
                (fact("tasks complete", &format!("{done} of {}", report.tasks.len())))
                (fact("steps", &steps.to_string()))
                (fact("failures", &report.failures.len().to_string()))
                (fact("held for", &brief(held)))
                (fact("breaches", &breaches.to_string()))
                (fact("outages of data", &outages.to_string()))
                (fact("drift", &report.drifts.len().to_string()))
                @if !report.astray.is_empty() {
                    (fact("knobs not at their values", &report.astray.len().to_string()))
                }
            }
        }
    }
}

fn fact(name: &str, value: &str) -> Markup {
    html! { div { span .muted { (name) } b { (value) } } }
}

/// How long something was held that is no part of how tasks go.
fn held_for(report: &Report) -> Millis {
    let mut spans: Vec<(Time, Time)> =
        charts::bad_holds(report).map(|hold| (hold.from, hold.to)).collect();
    spans.sort();
    let (mut sum, mut reached) = (Millis::ZERO, Time(0));
    for (from, to) in spans {
        let from = from.max(reached);
        sum = sum + (to - from);
        reached = reached.max(to);
    }
    sum
}

fn path(report: &Report) -> Markup {
    html! {
        p .path {
            b .critical { "Critical path: " } (report.critical_path.join(" → ")) "."
            @if let Some(edge) = &report.costliest {
                " Without " b { (edge.task) " after " (edge.after) }
                @if edge.is_weak { " (weak)" }
                " the run would have been " (brief(edge.saves)) " shorter."
            }
        }
    }
}

fn people(report: &Report, zone: &TimeZone) -> Markup {
    html! {
        table {
            tr {
                th .n { "" }
                th { "time of day, " (zone_name(report.opened, zone)) }
                th .n { "since the start" }
                th { "who" } th { "command" } th { "why" }
            }
            @for (at, said) in report.commands.iter().enumerate() {
                tr {
                    td .n { span .number { (at + 1) } }
                    td { (time_of_day(said.at, zone)) }
                    td .n { "+" (brief(said.at - report.opened)) }
                    td { (said.who()) } td { (said.what) } td { (said.reason) }
                }
            }
        }
    }
}

fn events(report: &Report, zone: &TimeZone) -> Markup {
    let at = |at: Time| html! { td { (time_of_day(at, zone)) } td .n { "+" (brief(at - report.opened)) } };
    html! {
        @if !report.failures.is_empty() {
            h2 { "Failures" }
            table {
                tr { th { "time of day" } th .n { "since the start" } th { "task" } th { "why" } }
                @for failure in &report.failures {
                    tr { (at(failure.at)) td { (failure.task) } td { (failure.why) } }
                }
            }
        }
        @if !report.drifts.is_empty() {
            h2 { "Drift" }
            table {
                tr { th { "time of day" } th .n { "since the start" } th { "knob" }
                     th .n { "was set to" } th .n { "was found at" } }
                @for drift in &report.drifts {
                    tr { (at(drift.at)) td { (drift.knob) }
                         td .n { (value(&drift.expected)) } td .n { (value(&drift.found)) } }
                }
            }
        }
        @if !report.fences.is_empty() {
            h2 { "Fences left closed: writes are refused" }
            table {
                tr { th { "knob" } th .n { "was left at" } th { "task" } }
                @for fence in &report.fences {
                    tr { td { (fence.knob) } td .n { (value(&fence.value)) } td { (fence.task) } }
                }
            }
        }
        @if !report.left_behind.is_empty() {
            h2 { "Not brought back" }
            ul { @for text in &report.left_behind { li { (text) } } }
        }
        @if !report.astray.is_empty() {
            h2 { "Not at the value that the run left, at the end" }
            table {
                tr { th { "time of day" } th .n { "since the start" } th { "knob" }
                     th .n { "was set to" } th .n { "was found at" } th { "why" } }
                @for astray in &report.astray {
                    tr { (at(astray.at)) td { (astray.knob) } td .n { (value(&astray.expected)) }
                         td .n { (astray.found.as_ref().map_or("unknown".to_owned(), value)) }
                         td { (astray.why) } }
                }
            }
        }
    }
}

fn tasks(report: &Report) -> Markup {
    let shown = |span: Option<Millis>| span.map_or("–".to_owned(), brief);
    html! {
        h2 { "Time per task" }
        table {
            tr { th { "task" } th { "phase" } th .n { "took" } th .n { "usual" } th .n { "steps" }
                 th { "held for" } }
            @for task in &report.tasks {
                tr {
                    td { @if task.is_critical { b .critical { (task.name) } } @else { (task.name) } }
                    td { (phase(task.phase)) @if task.was_stuck { " (stuck)" } }
                    td .n { (shown(task.took)) } td .n { (shown(task.usual)) } td .n { (task.steps) }
                    td {
                        @for (why, span) in &task.held { div { (why) ": " (brief(*span)) } }
                        @if let Some(failure) = &task.failure { div .failure { (failure) } }
                    }
                }
            }
        }
    }
}

fn close(report: &Report, zone: &TimeZone) -> Markup {
    html! {
        @if report.close.is_empty() {
            p .muted { "No condition came close to its bound." }
        } @else {
            h2 { "Conditions that came close to their bounds" }
            table {
                tr { th { "condition" } th .n { "value" } th .n { "of its bound" }
                     th { "time of day" } th .n { "since the start" } }
                @for call in &report.close {
                    tr { td { (call.condition) } td .n { (number(call.value)) }
                         td .n { (format!("{:.0} %", call.nearness * 100.0)) }
                         td { (time_of_day(call.at, zone)) }
                         td .n { "+" (brief(call.at - report.opened)) } }
                }
            }
        }
    }
}

fn phase(phase: Phase) -> String {
    format!("{phase:?}").to_lowercase()
}

fn value(value: &Value) -> String {
    value.number().map_or_else(|| value.to_string(), number)
}

/// As exact as it matters: seconds of a long span, tenths of a short one.
fn brief(span: Millis) -> String {
    let unit = if span.0 >= 10_000 { 1000 } else { 100 };
    Millis(span.0 / unit * unit).to_string()
}

/// A share of 1, as in tooltips.
fn share(share: f64) -> String {
    percent(share)
}
