//! The pictures of a report. All have the same axis of time, so that what
//! happened together stands below each other.

use jiff::tz::TimeZone;
use maud::{Markup, html};

use super::scale::{AXIS, Hours, LEFT, RIGHT, Values, WIDTH, tenth};
use super::{brief, phase, share, value};
use crate::date::time_of_day;
use crate::number::number;
use crate::report::{ConditionReport, HoldReport, KnobReport, Report, TaskReport};
use crate::time::Time;

/// Curves and knobs that are drawn; more pictures than that say nothing.
const CURVES_MAX: usize = 16;
const KNOBS_MAX: usize = 24;
/// Conditions that never came that near to their bounds are named, not drawn;
/// but a few always are.
const NEWS: f64 = 0.25;
const CURVES_MIN: usize = 4;
const ROW: f64 = 17.0;
/// Colours of datacenters, told apart also by those who do not see all.
const COLOURS: [&str; 8] =
    ["#2563a8", "#d97706", "#2e7d4f", "#b0457b", "#0e8a9a", "#7c5cbf", "#8a6d3b", "#5f6f80"];

fn hours<'a>(report: &Report, zone: &'a TimeZone) -> Hours<'a> {
    Hours::new(report.opened, report.ended, zone)
}

fn picture(height: f64, label: &str, content: Markup) -> Markup {
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", height + AXIS)) role="img" aria-label=(label) {
            (content)
        }
    }
}

/// Holds that are no part of how tasks go.
pub fn bad_holds(report: &Report) -> impl Iterator<Item = &HoldReport> {
    report.holds.iter().filter(|hold| !matches!(hold.kind, "awaits" | "budget"))
}

/// What happened to the run as a whole: people, holds, breaches, outages, drift.
pub fn timeline(report: &Report, zone: &TimeZone) -> Markup {
    const BAND: f64 = 24.0;
    let hours = hours(report, zone);
    let spans = |of: fn(&ConditionReport) -> &Vec<crate::report::Span>| {
        let own = report.conditions.iter().filter(|own| own.is_health);
        own.flat_map(move |own| of(own).iter().map(move |span| (span.from, span.to, &own.name)))
    };
    let holds = |kinds: &'static [&'static str]| {
        report.holds.iter().filter(move |hold| kinds.contains(&hold.kind))
    };
    let bar = |band: usize, class: &str, from: Time, to: Time, title: String| {
        let (x, end) = (hours.x(from), hours.x(to));
        html! {
            rect .(class) x=(x) y=(band as f64 * BAND + 6.0) width=(tenth((end - x).max(2.0)))
                 height=(BAND - 12.0) rx="2" { title { (title) } }
        }
    };
    let of_hold = |band: usize, hold: &HoldReport| {
        let title = format!(
            "{}: {}, {} from {}",
            hold.task,
            hold.why,
            brief(hold.to - hold.from),
            time_of_day(hold.from, zone)
        );
        bar(band, hold.kind, hold.from, hold.to, title)
    };
    let of_span = |band: usize, class: &str, (from, to, name): (Time, Time, &String)| {
        let title = format!("{name}: {} from {}", brief(to - from), time_of_day(from, zone));
        bar(band, class, from, to, title)
    };
    let names = [
        "people",
        "failed",
        "paused",
        "held by bad health",
        "held without data",
        "held otherwise",
        "bound breached",
        "no data",
        "drift",
    ];
    let height = names.len() as f64 * BAND;
    let middle = |band: usize| band as f64 * BAND + BAND / 2.0;
    html! {
        h2 { "What happened" }
        (picture(height, "People, holds, breaches, outages of data and drift over time", html! {
            (hours.grid(height))
            @for (band, name) in names.iter().enumerate() {
                line .grid x1="0" y1=(band as f64 * BAND) x2=(RIGHT) y2=(band as f64 * BAND) {}
                text x=(LEFT - 12.0) y=(middle(band) + 4.0) text-anchor="end" { (name) }
            }
            @for hold in holds(&["paused"]) { (of_hold(2, hold)) }
            @for hold in holds(&["breach"]) { (of_hold(3, hold)) }
            @for hold in holds(&["no_data"]) { (of_hold(4, hold)) }
            @for hold in holds(&["limit", "contested", "unreadable", "unanswered"]) {
                (of_hold(5, hold))
            }
            @for span in spans(|own| &own.breaches) { (of_span(6, "breach", span)) }
            @for span in spans(|own| &own.outages) { (of_span(7, "no_data", span)) }
            @for failed in &report.failures {
                text .failmark x=(hours.x(failed.at)) y=(middle(1) + 5.0) text-anchor="middle" {
                    "✗" title { (failed.task) " at " (time_of_day(failed.at, zone)) ": " (failed.why) }
                }
            }
            @for drift in &report.drifts {
                @let (x, y) = (hours.x(drift.at), middle(8));
                path .drift d=(format!("M{} {y}l5 -6l5 6l-5 6z", x - 5.0)) {
                    title {
                        (drift.knob) ": set to " (value(&drift.expected)) ", found at "
                        (value(&drift.found)) ", " (time_of_day(drift.at, zone))
                    }
                }
            }
            @for ((at, said), x) in report.commands.iter().enumerate().zip(apart(report, &hours)) {
                circle .person cx=(x) cy=(middle(0)) r="8" {
                    title { (time_of_day(said.at, zone)) " " (said.who()) ": " (said.what) }
                }
                text .mark x=(x) y=(middle(0) + 3.5) text-anchor="middle" { (at + 1) }
            }
        }))
    }
}

/// Where the words of people stand: none on top of another, as far as there is
/// room.
fn apart(report: &Report, hours: &Hours<'_>) -> Vec<f64> {
    const WIDE: f64 = 18.0;
    let mut places: Vec<f64> = Vec::new();
    for said in &report.commands {
        let least = places.last().map_or(f64::MIN, |last| last + WIDE);
        places.push(hours.x(said.at).max(least).min(RIGHT));
    }
    places
}

/// The load of each datacenter, from the values of knobs and the declared loads.
pub fn traffic(report: &Report, zone: &TimeZone) -> Markup {
    const HEIGHT: f64 = 220.0;
    if report.traffic.is_empty() {
        return html! {};
    }
    let hours = hours(report, zone);
    let all = report.traffic.iter();
    let loads = all.flat_map(|own| own.points.iter().map(|(_, load)| *load).chain([own.usable]));
    let axis = Values::new(loads, 10.0, HEIGHT);
    html! {
        h2 { "Traffic per datacenter" }
        p .note {
            "From the values of the traffic knobs and the loads that the runbooks declare, in the "
            "unit of the capacity. Dashed: what may be used of a datacenter."
        }
        (picture(HEIGHT, "Load of each datacenter over time", html! {
            (hours.grid(HEIGHT)) (axis.grid(5))
            text .unit x=(LEFT - 46.0) y="16" text-anchor="end" { "load, in units" }
            text .unit x=(LEFT - 46.0) y="30" text-anchor="end" { "of the capacity" }
            @for (at, own) in report.traffic.iter().enumerate() {
                @let colour = COLOURS[at % COLOURS.len()];
                line x1=(LEFT) x2=(RIGHT) y1=(axis.y(own.usable)) y2=(axis.y(own.usable))
                     stroke=(colour) stroke-dasharray="2 5" opacity=".7" {
                    title { (own.datacenter) ": usable " (number(own.usable)) }
                }
                // Those that are on top of each other are seen all the same.
                @let wide = 1.8 + 1.3 * (report.traffic.len() - 1 - at) as f64;
                path .curve style=(format!("stroke:{colour};stroke-width:{wide}"))
                     d=(stairs(&hours, &axis, &own.points, report.ended)) {
                    title { (own.datacenter) }
                }
            }
        }))
        div .legend {
            @for (at, own) in report.traffic.iter().enumerate() {
                @let (first, last) = (own.points.first(), own.points.last());
                span {
                    i style=(format!("background:{}", COLOURS[at % COLOURS.len()])) {}
                    (own.datacenter) ": "
                    (number(first.map_or(0.0, |own| own.1))) " → " (number(last.map_or(0.0, |own| own.1)))
                    " of " (number(own.capacity)) " (" (share(own.after())) ")"
                }
            }
        }
    }
}

/// A line that keeps each value until the next.
fn stairs(hours: &Hours<'_>, axis: &Values, points: &[(Time, f64)], ended: Time) -> String {
    let mut path = String::new();
    for (at, (time, value)) in points.iter().enumerate() {
        let (x, y) = (hours.x(*time), axis.y(*value));
        path += &if at == 0 { format!("M{x} {y}") } else { format!("H{x}V{y}") };
    }
    path + &format!("H{}", hours.x(ended))
}

/// What conditions measured, each with its bound.
pub fn health(report: &Report, zone: &TimeZone) -> Markup {
    let (health, awaited): (Vec<&ConditionReport>, Vec<&ConditionReport>) =
        report.conditions.iter().partition(|own| own.is_health);
    let has_news = |own: &&ConditionReport| {
        own.nearness >= NEWS || !own.breaches.is_empty() || !own.outages.is_empty()
    };
    // Those that say something, or a few that do not.
    let news = health.iter().filter(|own| has_news(own)).count();
    let (drawn, calm) = health.split_at(news.clamp(health.len().min(CURVES_MIN), CURVES_MAX));
    let drawn_awaited = &awaited[..awaited.len().min(CURVES_MAX / 2)];
    html! {
        @if !drawn.is_empty() {
            h2 { "Health" }
            p .note {
                "What conditions measured, those that came nearest to their bounds first. Red: the "
                "bound and what breached it; grey: no data. A curve ends where its condition "
                "decides nothing any more."
            }
            (curves(drawn, report, zone, "What each condition measured, and its bound"))
            @if !calm.is_empty() {
                p .note {
                    (calm.len()) " more never came nearer than "
                    (format!("{:.0} %", calm.iter().map(|own| own.nearness).fold(0.0, f64::max) * 100.0))
                    " of their bounds: "
                    (calm.iter().map(|own| own.name.as_str()).collect::<Vec<_>>().join(", ")) "."
                }
            }
        }
        @if !drawn_awaited.is_empty() {
            h2 { "What was waited for" }
            p .note { "Conditions that tasks wait for. Blue: where they are to be, and when they were not yet." }
            (curves(drawn_awaited, report, zone, "What tasks waited for"))
            @if awaited.len() > drawn_awaited.len() {
                p .note { (awaited.len() - drawn_awaited.len()) " more are in the JSON report." }
            }
        }
    }
}

fn curves(drawn: &[&ConditionReport], report: &Report, zone: &TimeZone, label: &str) -> Markup {
    const BAND: f64 = 78.0;
    let (hours, height) = (hours(report, zone), BAND * drawn.len() as f64);
    picture(
        height,
        label,
        html! {
            (hours.grid(height))
            @for (band, own) in drawn.iter().enumerate() {
                (curve(own, &hours, band as f64 * BAND, BAND, zone))
            }
        },
    )
}

fn curve(own: &ConditionReport, hours: &Hours<'_>, top: f64, band: f64, zone: &TimeZone) -> Markup {
    let (high, low) = (top + 12.0, top + band - 8.0);
    let values = own.points.iter().filter_map(|(_, value)| *value);
    // What has no end would make a line of all the rest.
    let most = own.bound.abs().max(f64::MIN_POSITIVE) * 1000.0;
    let axis =
        Values::new(values.filter(|value| value.abs() <= most).chain([own.bound]), high, low);
    let bound = axis.y(own.bound);
    let bound_class = if own.is_health { "bound" } else { "bound aim" };
    let bands = |spans: &[crate::report::Span], class: &str, what: &str| {
        html! {
            @for span in spans {
                @let (x, end) = (hours.x(span.from), hours.x(span.to));
                rect .(class) x=(x) y=(top + 4.0) width=(tenth((end - x).max(2.0))) height=(band - 8.0) {
                    title { (what) " for " (brief(span.to - span.from)) " from " (time_of_day(span.from, zone)) }
                }
            }
        }
    };
    html! {
        line .grid x1="0" y1=(top) x2=(RIGHT) y2=(top) {}
        text .strong x="0" y=(top + 28.0) { (cut(&own.name, 27)) title { (own.name) } }
        text class=(bound_class) x="0" y=(top + 44.0) {
            @if own.is_health { "must be " } @else { "waits for " }
            (own.comparison) " " (number(own.bound))
        }
        @if own.is_health && own.nearness > 0.0 {
            text .sub x="0" y=(top + 58.0) { "nearest: " (format!("{:.0} %", own.nearness * 100.0)) " of the bound" }
        }
        (axis.ends())
        (bands(&own.outages, "outage", "no data"))
        @if own.is_health { (bands(&own.breaches, "breachband", "breached")) }
        @else { (bands(&own.breaches, "unmet", "not yet")) }
        line class=(bound_class) x1=(LEFT) x2=(RIGHT) y1=(bound) y2=(bound) {}
        path .curve d=(line_of(own, hours, &axis)) {}
    }
}

/// A line through the points, with gaps where there was no value.
fn line_of(own: &ConditionReport, hours: &Hours<'_>, axis: &Values) -> String {
    let (mut path, mut is_down) = (String::new(), false);
    for (at, value) in &own.points {
        is_down &= own.gaps.iter().all(|gap| gap.to != *at);
        let Some(value) = value else {
            is_down = false;
            continue;
        };
        let (x, y) = (hours.x(*at), axis.y(*value));
        // A point alone is a dot.
        path += &if is_down { format!("L{x} {y}") } else { format!("M{x} {y}h.1") };
        is_down = true;
    }
    path
}

/// When each task ran, with what held it.
pub fn gantt(report: &Report, zone: &TimeZone) -> Markup {
    let mut tasks: Vec<&TaskReport> =
        report.tasks.iter().filter(|task| task.started.is_some()).collect();
    tasks.sort_by_key(|task| (task.started, task.ended));
    let (hours, height) = (hours(report, zone), ROW * tasks.len() as f64);
    html! {
        h2 { "Tasks" }
        div .legend {
            (key("var(--orange)", "done, on the critical path")) (key("#7fa8cf", "done"))
            (key("var(--red)", "failed, or held by bad health")) (key("var(--grey)", "held without data"))
            (key("var(--violet)", "paused, or reverted")) (key("var(--yellow)", "held otherwise"))
            (key("#bcd3ea", "waits for a condition or a budget"))
        }
        (picture(height, "When each task ran, and what held it", html! {
            (hours.grid(height))
            @for (row, task) in tasks.iter().enumerate() {
                @if let Some(started) = task.started {
                    (task_bar(task, report, started, row as f64 * ROW, &hours, zone))
                }
            }
        }))
    }
}

fn key(colour: &str, text: &str) -> Markup {
    html! { span { i style=(format!("background:{colour}")) {} (text) } }
}

fn task_bar(
    task: &TaskReport,
    report: &Report,
    started: Time,
    y: f64,
    hours: &Hours<'_>,
    zone: &TimeZone,
) -> Markup {
    let (from, to) = (hours.x(started), hours.x(task.ended.unwrap_or(report.ended)));
    let class = format!("{}{}", phase(task.phase), if task.is_critical { " crit" } else { "" });
    let took = task.took.map_or("open".to_owned(), brief);
    let weight = if task.is_critical { "strong" } else { "" };
    html! {
        text class=(weight) x=(LEFT - 10.0) y=(y + 12.5) text-anchor="end" { (cut(&task.name, 34)) title { (task.name) } }
        rect class=(class) x=(from) y=(y + 3.0) width=(tenth((to - from).max(2.0))) height=(ROW - 6.0) rx="2" {
            title { (task.name) ": " (phase(task.phase)) ", " (took) " from " (time_of_day(started, zone)) ", " (task.steps) " steps" }
        }
        @for hold in report.holds.iter().filter(|hold| hold.task == task.name && hold.to > started) {
            @let (x, end) = (hours.x(hold.from.max(started)), hours.x(hold.to));
            rect class=(hold.kind) x=(x) y=(y + 6.0) width=(tenth((end - x).max(1.5))) height=(ROW - 12.0) {
                title { (hold.why) ": " (brief(hold.to - hold.from)) }
            }
        }
        @if let Some(failure) = &task.failure {
            text .bound x=(to + 4.0) y=(y + 12.5) { "✗" title { (failure) } }
        }
    }
}

/// A name that fits beside a picture.
fn cut(name: &str, letters_max: usize) -> String {
    match name.chars().count() {
        count if count <= letters_max => name.to_owned(),
        _ => name.chars().take(letters_max - 1).chain(['…']).collect(),
    }
}

/// Knobs that are numbers, each as stairs in a band of its own.
pub fn knobs(report: &Report, zone: &TimeZone) -> Markup {
    const BAND: f64 = 44.0;
    let is_number =
        |knob: &&KnobReport| knob.moves.iter().all(|(_, value)| value.number().is_some());
    let drawn: Vec<&KnobReport> = report.knobs.iter().filter(is_number).take(KNOBS_MAX).collect();
    let (hours, height) = (hours(report, zone), BAND * drawn.len() as f64);
    html! {
        h2 { "Knobs" }
        p .note { "The values that were written and found, from the first look on." }
        (picture(height, "The value of each knob over time", html! {
            (hours.grid(height))
            @for (band, knob) in drawn.iter().enumerate() {
                @let top = band as f64 * BAND;
                @let points: Vec<(Time, f64)> =
                    knob.moves.iter().filter_map(|(at, own)| Some((*at, own.number()?))).collect();
                @let axis = Values::new(points.iter().map(|own| own.1), top + 8.0, top + BAND - 8.0);
                line .grid x1="0" y1=(top) x2=(RIGHT) y2=(top) {}
                text x="0" y=(top + 26.0) { (cut(&knob.name, 30)) title { (knob.name) } }
                (axis.ends())
                path .curve d=(stairs(&hours, &axis, &points, report.ended)) {}
            }
        }))
        @if report.knobs.len() > drawn.len() {
            p .note { (report.knobs.len() - drawn.len()) " more knobs are in the JSON report." }
        }
    }
}
