//! What the diagrams are drawn with: figures for people, and SVG in the colours of the project.

use std::fmt::Write as _;

pub const INK: &str = "#1f2933";
pub const MUTED: &str = "#52606d";
pub const GRID: &str = "#e4e7eb";
pub const PAPER: &str = "#ffffff";
pub const GREEN: &str = "#0b7a5f";
pub const ORANGE: &str = "#b5651d";
pub const BLUE: &str = "#3e5c95";
pub const PURPLE: &str = "#7b4fa0";
/// Each colour and what it is on a dark page.
const DARK: [(&str, &str); 8] = [
    (INK, "#e4e7eb"),
    (MUTED, "#9fb0bf"),
    (GRID, "#2c3640"),
    (PAPER, "#12171c"),
    (GREEN, "#35c49d"),
    (ORANGE, "#e8964a"),
    (BLUE, "#8cabe6"),
    (PURPLE, "#c39be8"),
];

/// Where a diagram is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// Rules that count only where a reader prefers dark pages.
pub fn dark_page(svg: &mut String) {
    svg.push_str("<style>@media (prefers-color-scheme: dark) {\n");
    for (light, dark) in DARK {
        let _ = writeln!(svg, "[fill=\"{light}\"] {{ fill: {dark} }}");
        let _ = writeln!(svg, "[stroke=\"{light}\"] {{ stroke: {dark} }}");
    }
    svg.push_str("}</style>\n");
}

pub fn muted(attributes: &str) -> String {
    format!("fill=\"{MUTED}\" {attributes}")
}

pub fn title(svg: &mut String, frame: Frame, what: &str, how: &str) {
    text(svg, frame.left - 50.0, frame.top - 38.0, 16.0, "font-weight=\"600\"", what);
    text(svg, frame.left - 50.0, frame.top - 18.0, 13.0, &muted(""), how);
}

pub fn polyline(svg: &mut String, points: &[(f64, f64)], stroke: &str, dashes: &str) {
    let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2.5\" \
         stroke-dasharray=\"{dashes}\"/>",
        list.join(" ")
    );
}

/// One of so many lines that each must be fine.
pub fn fine_polyline(svg: &mut String, points: &[(f64, f64)], stroke: &str) {
    let list: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.2\" \
         stroke-opacity=\"0.6\"/>",
        list.join(" ")
    );
}

/// 1, 2 or 5 times a power of ten, for at most about eight ticks.
pub fn tick_step(largest: f64) -> f64 {
    let rough = largest / 7.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|&step| step >= rough)
        .unwrap_or(rough)
}

/// Three significant digits or so.
pub fn short(value: f64) -> String {
    match value {
        value if value >= 1000.0 => thousands(value.round() as usize),
        value if value >= 100.0 || value.fract().abs() < 1e-9 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

pub fn thousands(value: usize) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

pub fn text(svg: &mut String, x: f64, y: f64, size: f64, attributes: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" {attributes}>{content}</text>"
    );
}

pub fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), stroke: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\"/>"
    );
}

pub fn rectangle(svg: &mut String, at: (f64, f64), size: (f64, f64), fill: &str, opacity: f64) {
    let ((x, y), (width, height)) = (at, size);
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{fill}\" fill-opacity=\"{opacity}\"/>"
    );
}

pub fn swatch(svg: &mut String, x: f64, fill: &str, opacity: f64) {
    rectangle(svg, (x, 85.0), (14.0, 14.0), fill, opacity);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_figures() {
        assert_eq!(tick_step(5.0), 1.0);
        assert_eq!(tick_step(9.0), 2.0);
        assert_eq!(tick_step(0.9), 0.2);
        assert_eq!(short(0.25), "0.25");
        assert_eq!(short(2.0), "2");
        assert_eq!(short(12.34), "12.3");
        assert_eq!(short(2431.4), "2,431");
        assert_eq!(thousands(1_000_000), "1,000,000");
        assert_eq!(thousands(999), "999");
    }

    #[test]
    fn every_colour_has_one_for_dark_pages() {
        let mut svg = String::new();
        dark_page(&mut svg);
        for (light, dark) in DARK {
            assert!(svg.contains(&format!("=\"{light}\"] {{ fill: {dark} }}")));
        }
    }
}
