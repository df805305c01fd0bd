//! The paper's figures 6 to 12, from our world.

use super::chart::{Chart, DASHED, DOTTED, SOLID, Scale, legend, picture, round_up};
use super::curves::{STICKY, STORES};
use super::report::{Curve, Curves};
use super::sample::{DRAINED, WEB};
use crate::draw::{
    BLUE, Frame, GREEN, INK, MUTED, ORANGE, PURPLE, fine_polyline, muted, rectangle, text,
};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 100.0;
const RIGHT: f64 = 960.0;
const MINUTES: &str = "minutes since the beginning";

/// The share of a link, or of a datacenter, that is to be used at the most.
const PROTECTED: f64 = 0.75;

/// Names and pictures.
pub fn all(curves: &Curves) -> Vec<(&'static str, String)> {
    vec![
        ("fig6-dependency", unknown_dependency(&curves.unknown_dependency)),
        ("fig7-stateless", stateless(&curves.stateless)),
        ("fig8-sticky", sticky(&curves.sticky)),
        ("fig9-replication", replication(&curves.bounded, &curves.unbounded)),
        ("fig10-stateful", stateful(&curves.stateful)),
        ("fig11-services", services(curves)),
        ("fig12-utilisation", utilisation(curves)),
    ]
}

fn frame(top: f64, bottom: f64) -> Frame {
    Frame { left: LEFT, top, right: RIGHT, bottom }
}

fn percent(line: &[f64]) -> Vec<f64> {
    line.iter().map(|share| share * 100.0).collect()
}

/// A line as percents of what it usually is.
fn of_usual(line: &[f64], usual: f64) -> Vec<f64> {
    line.iter().map(|value| if usual > 0.0 { value / usual * 100.0 } else { 0.0 }).collect()
}

fn largest(lines: &[Vec<f64>]) -> f64 {
    lines.iter().flatten().copied().fold(0.0, f64::max)
}

fn last_minute<'c>(curves: impl Iterator<Item = &'c Curve>) -> f64 {
    curves.filter_map(|curve| curve.minutes.last()).copied().fold(0.0, f64::max)
}

fn unknown_dependency(variants: &[(String, Curve)]) -> String {
    let colors = [(ORANGE, SOLID), (PURPLE, SOLID), (GREEN, SOLID)];
    let minutes = round_up(last_minute(variants.iter().map(|(_, curve)| curve)));
    let usual = variants.iter().flat_map(|(_, curve)| curve.line("traffic/web"));
    let usual = usual.copied().fold(0.0, f64::max);
    let errors: Vec<Vec<f64>> =
        variants.iter().map(|(_, curve)| percent(curve.line("errors/web"))).collect();
    let x = Scale::from_zero(MINUTES, minutes, "");
    let (traffic_name, errors_name) = ("% of usual", "% of all web requests");
    let traffic = Chart {
        frame: frame(140.0, 330.0),
        x: Scale { label: "", ..x },
        y: Scale::from_zero(traffic_name, 100.0, " %"),
    };
    let failed = Chart {
        frame: frame(410.0, 600.0),
        x,
        y: Scale::from_zero(errors_name, round_up(largest(&errors)), " %"),
    };
    let mut body = String::new();
    traffic.draw(&mut body);
    traffic.title(&mut body, "Web traffic in the datacenter that is restored");
    failed.draw(&mut body);
    failed.title(&mut body, "Web requests that fail, anywhere");
    let mut names = Vec::new();
    for (((name, curve), errors), (color, dashes)) in variants.iter().zip(&errors).zip(colors) {
        let line = of_usual(curve.line("traffic/web"), usual);
        traffic.line(&mut body, &curve.minutes, &line, color, dashes);
        failed.line(&mut body, &curve.minutes, errors, color, dashes);
        names.push((name.as_str(), color, dashes));
    }
    legend(&mut body, LEFT, 90.0, &names);
    picture(
        WIDTH,
        660.0,
        "Restoring web before what it calls (the paper's Fig. 6)",
        "the dependency of web on its backends is missing from the runbook, or is there",
        &body,
    )
}

/// Traffic of one service in each datacenter, with what was done to its weight.
struct Followed<'c> {
    service: &'c str,
    curve: &'c Curve,
    /// What was told, and what that is called.
    told: &'c [(&'c str, &'c str, &'c str)],
    label: &'c str,
}

impl Followed<'_> {
    fn draw(&self, what: &str, how: &str) -> String {
        let own = format!("traffic/{}", self.service);
        let prefix = format!("elsewhere/{}/", self.service);
        let others: Vec<&String> =
            self.curve.lines.keys().filter(|name| name.starts_with(&prefix)).collect();
        let line = |name: &str| {
            let line = self.curve.line(name);
            of_usual(line, line.first().copied().unwrap_or(0.0))
        };
        let all: Vec<Vec<f64>> = others.iter().map(|name| line(name)).collect();
        let chart = Chart {
            frame: frame(125.0, 430.0),
            x: Scale::from_zero(MINUTES, self.curve.minutes.last().copied().unwrap_or(1.0), ""),
            y: Scale::from_zero(self.label, round_up(largest(&all).max(100.0)), " %"),
        };
        let mut body = String::new();
        chart.draw(&mut body);
        let mut names = vec![(format!("{DRAINED}, drained"), ORANGE, SOLID)];
        let colors = [(BLUE, SOLID), (GREEN, DASHED), (PURPLE, SOLID), (MUTED, SOLID)];
        for ((name, line), (color, dashes)) in others.iter().zip(&all).zip(colors) {
            chart.line(&mut body, &self.curve.minutes, line, color, dashes);
            names.push((name[prefix.len()..].to_owned(), color, dashes));
        }
        chart.line(&mut body, &self.curve.minutes, &line(&own), ORANGE, SOLID);
        for (prefix, name, color) in self.told {
            let told = percent(self.curve.line(&format!("{prefix}/{}", self.service)));
            let (xs, ys) = stairs(&self.curve.minutes, &told);
            chart.line(&mut body, &xs, &ys, color, DOTTED);
            names.push(((*name).to_owned(), color, DOTTED));
        }
        let names: Vec<(&str, &str, &str)> =
            names.iter().map(|(name, color, dashes)| (name.as_str(), *color, *dashes)).collect();
        legend(&mut body, LEFT, 90.0, &names);
        picture(WIDTH, 490.0, what, how, &body)
    }
}

/// What jumps from one value to the next does not pass those between.
fn stairs(xs: &[f64], ys: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut steps = (Vec::new(), Vec::new());
    for (at, (x, y)) in xs.iter().zip(ys).enumerate() {
        if at > 0 && ys[at - 1] != *y {
            steps.0.push(*x);
            steps.1.push(ys[at - 1]);
        }
        steps.0.push(*x);
        steps.1.push(*y);
    }
    steps
}

fn stateless(curve: &Curve) -> String {
    let followed = Followed {
        service: WEB,
        curve,
        told: &[("multiplier", "drain multiplier", INK)],
        label: "requests, % of usual in each datacenter",
    };
    followed.draw(
        "Draining stateless traffic (the paper's Fig. 7)",
        "web; each step waits for the health of all datacenters after the one before",
    )
}

fn sticky(curve: &Curve) -> String {
    let followed = Followed {
        service: STICKY,
        curve,
        told: &[
            ("multiplier", "weight of new sessions", INK),
            ("staying", "sessions that may stay", MUTED),
        ],
        label: "sessions, % of usual in each datacenter",
    };
    followed.draw(
        "Draining sticky traffic (the paper's Fig. 8)",
        "messaging; new sessions go elsewhere at once, those that are left are ended in paced steps",
    )
}

fn replication(bounded: &Curve, unbounded: &Curve) -> String {
    let minutes = 70.0;
    let wanted = [bounded, unbounded].map(|curve| percent(line_of(curve, "link/")));
    let high = round_up(largest(&wanted).max(110.0));
    let x = Scale::from_zero("minutes since the beginning of the restore", minutes, "");
    let y = Scale::from_zero("% of the backbone", high, " %");
    let mut body = String::new();
    for (name, curve, top) in [
        ("Without a shared budget: everybody catches up as fast as it can", unbounded, 140.0),
        ("With a shared budget for all that catch up", bounded, 420.0),
    ] {
        let x = if top < 200.0 { Scale { label: "", ..x } } else { x };
        let chart = Chart { frame: frame(top, top + 200.0), x, y };
        chart.draw(&mut body);
        chart.title(&mut body, name);
        let (wanted, got) = (line_of(curve, "link/"), line_of(curve, "replication/"));
        // What others get: the rest of what comes through.
        let others: Vec<f64> =
            wanted.iter().zip(got).map(|(wanted, got)| wanted.min(1.0) - got).collect();
        chart.level(&mut body, PROTECTED * 100.0, "protected: 75 %", false);
        chart.line(&mut body, &curve.minutes, &percent(wanted), MUTED, DOTTED);
        chart.line(&mut body, &curve.minutes, &percent(got), ORANGE, SOLID);
        chart.line(&mut body, &curve.minutes, &percent(&others), BLUE, SOLID);
    }
    let names = [
        ("all that is wanted of the link", MUTED, DOTTED),
        ("what replication gets", ORANGE, SOLID),
        ("what all others get", BLUE, SOLID),
    ];
    legend(&mut body, LEFT, 90.0, &names);
    picture(
        WIDTH,
        680.0,
        "Replication comes back (the paper's Fig. 9)",
        "seven stores catch up with what was written while they were drained",
        &body,
    )
}

/// The only line whose name begins so.
fn line_of<'c>(curve: &'c Curve, prefix: &str) -> &'c [f64] {
    let mut lines = curve.lines.iter().filter(|(name, _)| name.starts_with(prefix));
    lines.next().map_or(&[], |(_, line)| line.as_slice())
}

fn stateful(curve: &Curve) -> String {
    let lines = STORES.map(|store| percent(curve.line(&format!("primaries/{store}"))));
    // Where the last of them is done, and a bit.
    let ends = lines.iter().filter_map(|line| line.iter().rposition(|share| *share > 0.0));
    let ends = ends.max().and_then(|at| curve.minutes.get(at + 1)).copied().unwrap_or(1.0);
    let chart = Chart {
        frame: frame(125.0, 430.0),
        x: Scale::from_zero(MINUTES, round_up(ends), ""),
        y: Scale::from_zero("% of all primary shards", round_up(largest(&lines)), " %"),
    };
    let mut body = String::new();
    chart.draw(&mut body);
    let styles = [(BLUE, SOLID), (GREEN, DASHED), (ORANGE, SOLID)];
    let names = ["ads", "aggregator-leaf", "classification"];
    let mut entries = Vec::new();
    for ((line, (color, dashes)), name) in lines.iter().zip(styles).zip(names) {
        chart.line(&mut body, &curve.minutes, line, color, dashes);
        entries.push((name, color, dashes));
    }
    legend(&mut body, LEFT, 90.0, &entries);
    picture(
        WIDTH,
        490.0,
        "Draining stateful traffic (the paper's Fig. 10)",
        "primary shards of three services in the datacenter that is drained: replicas elsewhere are \
         promoted, in steps",
        &body,
    )
}

/// A drain, the downtime after it, and the restore, on one scale.
struct Whole<'c> {
    curves: &'c Curves,
    minutes: Vec<f64>,
}

impl<'c> Whole<'c> {
    fn new(curves: &'c Curves) -> Self {
        let offset = Whole::restore_begins(curves);
        let restore = curves.restore.minutes.iter().map(|minute| minute + offset);
        let minutes = curves.drain.minutes.iter().copied().chain(restore).collect();
        Whole { curves, minutes }
    }

    fn restore_begins(curves: &Curves) -> f64 {
        curves.drain.minutes.last().copied().unwrap_or(0.0) + curves.downtime_minutes
    }

    fn line(&self, name: &str) -> Vec<f64> {
        [self.curves.drain.line(name), self.curves.restore.line(name)].concat()
    }

    fn names(&self, prefix: &str) -> Vec<&'c str> {
        let names = self.curves.drain.lines.keys().map(String::as_str);
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    fn chart(&self, label: &'c str, high: f64) -> Chart<'c> {
        let end = self.minutes.last().copied().unwrap_or(1.0);
        Chart {
            frame: frame(150.0, 480.0),
            x: Scale::from_zero(MINUTES, round_up(end), ""),
            y: Scale::from_zero(label, high, " %"),
        }
    }

    /// Shades the time in which nothing is done, and names all three.
    fn draw_spans(&self, svg: &mut String, chart: &Chart<'_>) {
        let drained = self.curves.drain.minutes.last().copied().unwrap_or(0.0);
        let restore = Whole::restore_begins(self.curves);
        let end = self.minutes.last().copied().unwrap_or(1.0);
        let Frame { top, bottom, .. } = chart.frame;
        let (from, to) = (chart.at(drained, 0.0).0, chart.at(restore, 0.0).0);
        rectangle(svg, (from, top), (to - from, bottom - top), MUTED, 0.10);
        for (name, from, to) in
            [("drain", 0.0, drained), ("drained", drained, restore), ("restore", restore, end)]
        {
            let middle = chart.at((from + to) / 2.0, 0.0).0;
            text(svg, middle, top - 12.0, 13.0, &muted(super::chart::CENTRED), name);
        }
    }
}

fn services(curves: &Curves) -> String {
    let whole = Whole::new(curves);
    let lines: Vec<(&str, Vec<f64>)> = whole
        .names("traffic/")
        .into_iter()
        .map(|name| {
            let line = whole.line(name);
            let usual = line.first().copied().unwrap_or(0.0);
            (&name["traffic/".len()..], of_usual(&line, usual))
        })
        .collect();
    let chart = whole.chart("traffic, % of usual", 100.0);
    let mut body = String::new();
    chart.draw(&mut body);
    whole.draw_spans(&mut body, &chart);
    // Internal services first, so that those that users see are on top.
    for is_user_facing in [false, true] {
        let color = if is_user_facing { BLUE } else { GREEN };
        for (name, line) in &lines {
            if *name != WEB && curves.user_facing.contains(*name) == is_user_facing {
                let points = whole.minutes.iter().zip(line).map(|(x, y)| chart.at(*x, *y));
                fine_polyline(&mut body, &points.collect::<Vec<_>>(), color);
            }
        }
    }
    if let Some((_, line)) = lines.iter().find(|(name, _)| *name == WEB) {
        chart.line(&mut body, &whole.minutes, line, ORANGE, SOLID);
    }
    let names = [
        ("web", ORANGE, SOLID),
        ("user-facing services", BLUE, SOLID),
        ("internal services", GREEN, SOLID),
    ];
    legend(&mut body, LEFT, 90.0, &names);
    let how = format!("{} services in the datacenter that is drained, one line each", lines.len());
    picture(
        WIDTH,
        540.0,
        "All services leave a datacenter and come back (the paper's Fig. 11)",
        &how,
        &body,
    )
}

fn utilisation(curves: &Curves) -> String {
    let whole = Whole::new(curves);
    let chart = whole.chart("utilisation of all capacity", 100.0);
    let mut body = String::new();
    chart.draw(&mut body);
    whole.draw_spans(&mut body, &chart);
    chart.level(&mut body, PROTECTED * 100.0, "line: 75 %", false);
    let mut names = Vec::new();
    let mut others = [(BLUE, SOLID), (GREEN, DASHED), (PURPLE, SOLID)].into_iter().cycle();
    for name in whole.names("utilisation/") {
        let place = &name["utilisation/".len()..];
        let (color, dashes) = match place {
            DRAINED => (ORANGE, SOLID),
            _ => others.next().unwrap_or((MUTED, SOLID)),
        };
        chart.line(&mut body, &whole.minutes, &percent(&whole.line(name)), color, dashes);
        names.push((place, color, dashes));
    }
    legend(&mut body, LEFT, 90.0, &names);
    picture(
        WIDTH,
        540.0,
        "Utilisation of all datacenters (the paper's Fig. 12)",
        &format!(
            "the load of one moves to the others and back; {:.0} % at its highest second",
            curves.peak_utilisation * 100.0
        ),
        &body,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stairs_do_not_climb() {
        let (xs, ys) = stairs(&[0.0, 1.0, 2.0], &[1.0, 1.0, 0.5]);
        assert_eq!((xs, ys), (vec![0.0, 1.0, 2.0, 2.0], vec![1.0, 1.0, 1.0, 0.5]));
    }

    #[test]
    fn nothing_at_all_can_be_drawn() {
        for (name, svg) in all(&Curves::default()) {
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{name}");
        }
    }
}
