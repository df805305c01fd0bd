//! Pictures of a plan: what waits for what, wave by wave, with the way that
//! decides how long it takes.

mod layout;
mod svg;

use std::collections::HashSet;
use std::fmt::Write;

use super::*;

/// A dependency as it is drawn.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    from: TaskId,
    to: TaskId,
    weak: bool,
    critical: bool,
}

impl Plan {
    /// The plan for Graphviz.
    pub fn to_dot(&self, foresight: &Foresight) -> String {
        let critical: HashSet<_> = foresight.critical_path.iter().collect();
        let services = self.service_names();
        let mut dot = String::from("digraph plan {\n  rankdir=LR;\n");
        let _ = writeln!(dot, "  label={};\n  labelloc=t;", quoted(&self.title(foresight)));
        dot.push_str("  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n");
        for (id, predicted) in self.task_ids().zip(&foresight.tasks) {
            let task = self.task(id);
            let label = format!("{}\n{}, {}", task.name, task.template, predicted.lasts);
            let _ = writeln!(
                dot,
                "  t{} [label={}, fillcolor=\"{}\", penwidth={}];",
                id.0,
                quoted(&label),
                fill(&services, &task.service),
                if critical.contains(&id) { 3 } else { 1 },
            );
        }
        for arrow in self.arrows(foresight) {
            let style = if arrow.weak { "dashed" } else { "solid" };
            let width = if arrow.critical { 3 } else { 1 };
            let (from, to) = (arrow.from.0, arrow.to.0);
            let _ = writeln!(dot, "  t{from} -> t{to} [style={style}, penwidth={width}];");
        }
        dot.push_str("}\n");
        dot
    }

    /// The plan as a picture of its own: waves are columns.
    pub fn to_svg(&self, foresight: &Foresight) -> String {
        svg::draw(self, foresight)
    }

    fn title(&self, foresight: &Foresight) -> String {
        let direction = match self.direction {
            Direction::Drain => "Drain",
            Direction::Restore => "Restore",
        };
        let count = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        format!(
            "{direction} of {}: {}, {}, about {}",
            self.datacenter,
            count(self.tasks.len(), "task"),
            count(foresight.waves.len(), "wave"),
            foresight.total
        )
    }

    fn arrows(&self, foresight: &Foresight) -> Vec<Arrow> {
        let path = &foresight.critical_path;
        let critical: HashSet<_> = path.iter().zip(path.iter().skip(1)).collect();
        let mut arrows = Vec::new();
        for to in self.task_ids() {
            let task = self.task(to);
            let strong = task.after.iter().map(|from| (*from, false));
            for (from, weak) in strong.chain(task.after_weak.iter().map(|from| (*from, true))) {
                arrows.push(Arrow { from, to, weak, critical: critical.contains(&(&from, &to)) });
            }
        }
        arrows
    }

    /// In the order of their first tasks.
    fn service_names(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let names = self.tasks.iter().map(|task| task.service.as_str());
        names.filter(|name| seen.insert(*name)).collect()
    }
}

/// A light colour for each service. Neighbours in the list are far apart in hue.
fn fill(services: &[&str], service: &str) -> String {
    const PALETTE: [&str; 10] = [
        "#cfe2ff", "#ffe3b3", "#d3f2d6", "#f9d2e0", "#e2d6fb", "#cdf1f1", "#fbe0d2", "#e7ecb5",
        "#dfe3e8", "#f3d9b8",
    ];
    let at = services.iter().position(|name| *name == service).unwrap_or(0);
    match PALETTE.get(at) {
        Some(colour) => (*colour).to_owned(),
        None => hue_to_rgb((at as f64 * 137.508) % 360.0),
    }
}

/// A light colour of this hue, as `#rrggbb`: not everything reads `hsl()`.
fn hue_to_rgb(hue: f64) -> String {
    let channel = |offset: f64| {
        let k = (offset + hue / 30.0) % 12.0;
        let value: f64 = 0.87 - 0.09 * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
