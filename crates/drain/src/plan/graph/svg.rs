//! The picture itself.

use std::collections::HashSet;
use std::fmt::Write;

use super::super::{Foresight, Plan, TaskId};
use super::layout::{BOX_HEIGHT, COLUMN_GAP, Layout, layout};
use super::{Arrow, fill};

const MARGIN: f64 = 24.0;
const HEAD: f64 = 64.0;
const LEGEND_ROW: f64 = 20.0;
/// Letters of a name before it is cut. The whole name is in the tooltip.
const NAME_SHOWN_MAX: usize = 32;
/// Roughly, of the font below.
const LETTER_WIDTH: f64 = 7.4;
const SMALL_LETTER_WIDTH: f64 = 6.4;
const SERVICES_LISTED_MAX: usize = 24;
const LINE: &str = "#5b6472";
const CRITICAL: &str = "#b3261e";

pub(super) fn draw(plan: &Plan, foresight: &Foresight) -> String {
    let arrows = plan.arrows(foresight);
    let layout = layout(foresight, &arrows);
    let letters = |text: &str| text.chars().count().clamp(12, NAME_SHOWN_MAX) as f64;
    let widths = plan.task_ids().map(|id| {
        let below = letters(&second_line(plan, foresight, id)) * SMALL_LETTER_WIDTH;
        below.max(letters(&plan.task(id).name) * LETTER_WIDTH)
    });
    let box_width = widths.fold(0.0, f64::max) + 26.0;
    let sheet = Sheet { layout: &layout, box_width };
    let services = plan.service_names();
    let title = plan.title(foresight);
    let least = title.chars().count() as f64 * 9.0 + 2.0 * MARGIN;
    let width = sheet.left(layout.columns) - COLUMN_GAP + MARGIN;
    let width = width.max(least).max(680.0);
    let (legend, legend_height) = legend(&services, width, HEAD + layout.height + 24.0);
    let height = HEAD + layout.height + 24.0 + legend_height + MARGIN;

    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui, 'DejaVu Sans', \
         sans-serif\" font-size=\"12\" fill=\"#1c2430\">\n<title>{}</title>\n{MARKERS}\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"30\" font-size=\"17\" font-weight=\"600\">{}</text>\n",
        escaped(&title),
        escaped(&title),
    );
    for (wave, tasks) in foresight.waves.iter().enumerate() {
        let starts = tasks.iter().map(|id| foresight.tasks[id.index()].starts).min();
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"52\" fill=\"{LINE}\">wave {}, from {}</text>",
            sheet.left(wave),
            wave + 1,
            starts.unwrap_or_default()
        );
    }
    // Critical ones last, so that they lie on top.
    for critical in [false, true] {
        for (at, arrow) in arrows.iter().enumerate().filter(|(_, a)| a.critical == critical) {
            svg.push_str(&sheet.arrow(at, arrow));
        }
    }
    let critical: HashSet<_> = foresight.critical_path.iter().copied().collect();
    for id in plan.task_ids() {
        let colour = fill(&services, &plan.task(id).service);
        svg.push_str(&sheet.task(plan, foresight, id, &colour, critical.contains(&id)));
    }
    svg.push_str(&legend);
    svg.push_str("</svg>\n");
    svg
}

const MARKERS: &str = "<defs>\
    <marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
    markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
    <path d=\"M0 0L8 4L0 8z\" fill=\"#5b6472\"/></marker>\
    <marker id=\"critical-tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"11\" \
    markerHeight=\"11\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
    <path d=\"M0 0L8 4L0 8z\" fill=\"#b3261e\"/></marker></defs>\n";

struct Sheet<'a> {
    layout: &'a Layout,
    box_width: f64,
}

impl Sheet<'_> {
    fn left(&self, column: usize) -> f64 {
        MARGIN + column as f64 * (self.box_width + COLUMN_GAP)
    }

    fn task(
        &self,
        plan: &Plan,
        foresight: &Foresight,
        id: TaskId,
        colour: &str,
        critical: bool,
    ) -> String {
        let task = plan.task(id);
        let predicted = &foresight.tasks[id.index()];
        let (column, middle) = self.layout.boxes[id.index()];
        let (left, top) = (self.left(column), HEAD + middle - BOX_HEIGHT / 2.0);
        let (stroke, width) = if critical { (CRITICAL, 2.5) } else { (LINE, 1.0) };
        let detail = format!(
            "{}\n{}, lasts {}, {} to {}, slack {}",
            task.name,
            task.template,
            predicted.lasts,
            predicted.starts,
            predicted.ends,
            predicted.slack
        );
        format!(
            "<g><title>{}</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
             height=\"{BOX_HEIGHT}\" rx=\"7\" fill=\"{colour}\" stroke=\"{stroke}\" \
             stroke-width=\"{width}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"600\">{}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#414a57\">{}</text></g>\n",
            escaped(&detail),
            self.box_width,
            left + 12.0,
            top + 18.0,
            escaped(&cut(&task.name, NAME_SHOWN_MAX)),
            left + 12.0,
            top + 33.0,
            escaped(&cut(&second_line(plan, foresight, id), NAME_SHOWN_MAX)),
        )
    }

    /// From the right of one box to the left of another, level where it passes
    /// a column.
    fn arrow(&self, at: usize, arrow: &Arrow) -> String {
        let (from_column, from) = self.layout.boxes[arrow.from.index()];
        let (to_column, to) = self.layout.boxes[arrow.to.index()];
        let (mut x, mut y) = (self.left(from_column) + self.box_width, HEAD + from);
        let mut path = format!("M{x:.1} {y:.1}");
        let mut bend = |path: &mut String, to_x: f64, to_y: f64| {
            let half = (to_x - x) / 2.0;
            let _ = write!(
                path,
                "C{:.1} {y:.1} {:.1} {to_y:.1} {to_x:.1} {to_y:.1}",
                x + half,
                to_x - half
            );
            (x, y) = (to_x, to_y);
        };
        for (column, middle) in &self.layout.lanes[at] {
            let left = self.left(*column);
            bend(&mut path, left, HEAD + middle);
            bend(&mut path, left + self.box_width, HEAD + middle);
        }
        bend(&mut path, self.left(to_column) - 1.0, HEAD + to);
        let (stroke, width, tip) = match arrow.critical {
            true => (CRITICAL, 2.5, "critical-tip"),
            false => (LINE, 1.2, "tip"),
        };
        let dashes = if arrow.weak { " stroke-dasharray=\"6 4\"" } else { "" };
        format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"{dashes} \
             marker-end=\"url(#{tip})\"/>\n"
        )
    }
}

/// What lines and colours mean, in as many rows as it takes. Its height, too.
fn legend(services: &[&str], width: f64, top: f64) -> (String, f64) {
    let mut legend = String::new();
    let (mut x, mut y) = (MARGIN, top + 14.0);
    let mut place = |letters: usize| {
        let needed = 34.0 + letters as f64 * LETTER_WIDTH + 18.0;
        if x + needed > width - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + LEGEND_ROW);
        }
        let at = (x, y);
        x += needed;
        at
    };
    for (name, stroke, line, dashes) in [
        ("waits for", LINE, 1.2, ""),
        ("waits weakly for", LINE, 1.2, " stroke-dasharray=\"6 4\""),
        ("critical path", CRITICAL, 2.5, ""),
    ] {
        let (x, y) = place(name.len());
        let _ = writeln!(
            legend,
            "<path d=\"M{x:.1} {:.1}h26\" stroke=\"{stroke}\" stroke-width=\"{line}\"{dashes}/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>",
            y - 4.0,
            x + 34.0
        );
    }
    for service in services.iter().take(SERVICES_LISTED_MAX) {
        let (x, y) = place(service.chars().count());
        let _ = writeln!(
            legend,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"26\" height=\"14\" rx=\"4\" fill=\"{}\" \
             stroke=\"{LINE}\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 11.0,
            fill(services, service),
            x + 34.0,
            escaped(service)
        );
    }
    if services.len() > SERVICES_LISTED_MAX {
        let more = format!("and {} more services", services.len() - SERVICES_LISTED_MAX);
        let (x, y) = place(more.len());
        let _ = writeln!(legend, "<text x=\"{x:.1}\" y=\"{y:.1}\">{more}</text>");
    }
    let height = y - top + 6.0;
    (legend, height)
}

/// What is said below the name of a task.
fn second_line(plan: &Plan, foresight: &Foresight, id: TaskId) -> String {
    format!("{}, {}", plan.task(id).template, foresight.tasks[id.index()].lasts)
}

fn cut(text: &str, letters_max: usize) -> String {
    if text.chars().count() <= letters_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters_max - 1).collect();
    format!("{kept}…")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
