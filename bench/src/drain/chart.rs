//! Lines over an axis in the middle of an SVG: ticks, labels, legends.

use crate::draw::{
    Frame, GRID, INK, MUTED, PAPER, dark_page, line, muted, polyline, rectangle, short, text,
    tick_step,
};

pub const CENTRED: &str = "text-anchor=\"middle\"";
pub const DOTTED: &str = "2 4";
pub const DASHED: &str = "7 5";
pub const SOLID: &str = "none";

/// A picture with a title, and a line that says how it came about.
pub fn picture(width: f64, height: f64, what: &str, how: &str, body: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\" fill=\"{INK}\">\n"
    );
    dark_page(&mut svg);
    rectangle(&mut svg, (0.0, 0.0), (width, height), PAPER, 1.0);
    text(&mut svg, 30.0, 36.0, 20.0, "font-weight=\"600\"", what);
    text(&mut svg, 30.0, 58.0, 13.0, &muted(""), how);
    svg += body;
    svg.push_str("</svg>\n");
    svg
}

/// A diagram with two scales that begin at zero, or are logarithmic.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'c> {
    pub frame: Frame,
    pub x: Scale<'c>,
    pub y: Scale<'c>,
}

/// One scale.
#[derive(Clone, Copy, Debug)]
pub struct Scale<'c> {
    pub label: &'c str,
    pub high: f64,
    pub kind: Kind,
    /// What stands behind the figure of a tick.
    pub unit: &'c str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    FromZero,
    /// From the given value on; both ends are powers of ten.
    Logarithmic(f64),
}

impl Scale<'_> {
    pub fn from_zero<'c>(label: &'c str, high: f64, unit: &'c str) -> Scale<'c> {
        Scale { label, high: if high > 0.0 { high } else { 1.0 }, kind: Kind::FromZero, unit }
    }

    fn share(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::FromZero => value / self.high,
            Kind::Logarithmic(low) => {
                (value.max(low).log10() - low.log10()) / (self.high.log10() - low.log10())
            }
        };
        share.clamp(0.0, 1.0)
    }

    pub fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::FromZero => {
                let step = tick_step(self.high);
                (0..=(self.high / step + 1e-9) as usize).map(|tick| tick as f64 * step).collect()
            }
            Kind::Logarithmic(low) => {
                let powers = low.log10().round() as i32..=self.high.log10().round() as i32;
                powers.map(|power| 10f64.powi(power)).collect()
            }
        }
    }

    pub fn figure(&self, value: f64) -> String {
        let digits = match value {
            value if value > 0.0 && value < 0.01 => format!("{value}"),
            value => short(value),
        };
        format!("{digits}{}", self.unit)
    }
}

impl Chart<'_> {
    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let Frame { left, top, right, bottom } = self.frame;
        (left + (right - left) * self.x.share(x), bottom - (bottom - top) * self.y.share(y))
    }

    /// Ticks, figures and labels.
    pub fn draw(&self, svg: &mut String) {
        let Frame { left, top, right, bottom } = self.frame;
        for value in self.y.ticks() {
            let (_, y) = self.at(0.0, value);
            line(svg, (left, y), (right, y), GRID);
            let end = muted("text-anchor=\"end\"");
            text(svg, left - 8.0, y + 4.0, 12.0, &end, &self.y.figure(value));
        }
        for value in self.x.ticks() {
            let (x, _) = self.at(value, 0.0);
            line(svg, (x, bottom), (x, bottom + 5.0), MUTED);
            text(svg, x, bottom + 20.0, 12.0, &muted(CENTRED), &self.x.figure(value));
        }
        line(svg, (left, bottom), (right, bottom), MUTED);
        let middle = (left + right) / 2.0;
        text(svg, middle, bottom + 40.0, 13.0, &muted(CENTRED), self.x.label);
        let (x, y) = (left - 62.0, (top + bottom) / 2.0);
        let turned = muted(&format!("{CENTRED} transform=\"rotate(-90 {x:.1} {y:.1})\""));
        text(svg, x, y, 13.0, &turned, self.y.label);
    }

    /// A line through points; what is outside the scales is left out.
    pub fn line(&self, svg: &mut String, xs: &[f64], ys: &[f64], color: &str, dashes: &str) {
        let seen = xs.iter().zip(ys).filter(|(x, _)| **x <= self.x.high);
        let points: Vec<(f64, f64)> = seen.map(|(x, y)| self.at(*x, *y)).collect();
        polyline(svg, &points, color, dashes);
    }

    /// A level that something should stay below, with its name at one end.
    pub fn level(&self, svg: &mut String, y: f64, name: &str, is_named_left: bool) {
        let Frame { left, right, .. } = self.frame;
        let (_, at) = self.at(0.0, y);
        polyline(svg, &[(left, at), (right, at)], MUTED, DASHED);
        let (x, anchor) = if is_named_left { (left + 6.0, "start") } else { (right - 4.0, "end") };
        let anchor = muted(&format!("text-anchor=\"{anchor}\""));
        text(svg, x, at - 6.0, 12.0, &anchor, name);
    }

    /// A title above the diagram.
    pub fn title(&self, svg: &mut String, name: &str) {
        let bold = "font-weight=\"600\"";
        text(svg, self.frame.left, self.frame.top - 14.0, 14.0, bold, name);
    }
}

/// Names of lines in one row, each behind a piece of its line.
pub fn legend(svg: &mut String, mut x: f64, y: f64, entries: &[(&str, &str, &str)]) {
    for (name, color, dashes) in entries {
        polyline(svg, &[(x, y), (x + 30.0, y)], color, dashes);
        text(svg, x + 38.0, y + 4.0, 13.0, "", name);
        x += 38.0 + 7.0 * name.chars().count() as f64 + 26.0;
    }
}

/// A round value that is not below this one, for the end of a scale.
pub fn round_up(value: f64) -> f64 {
    let value = value.max(1e-6);
    let step = tick_step(value);
    (value / step - 1e-9).ceil() * step
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame { left: 100.0, top: 50.0, right: 300.0, bottom: 150.0 };

    #[test]
    fn scales_end_at_their_frame() {
        let x = Scale::from_zero("x", 10.0, "");
        let y = Scale { label: "y", high: 1.0, kind: Kind::Logarithmic(0.01), unit: " s" };
        let chart = Chart { frame: FRAME, x, y };
        assert_eq!(chart.at(0.0, 0.01), (100.0, 150.0));
        assert_eq!(chart.at(10.0, 1.0), (300.0, 50.0));
        assert_eq!(chart.at(20.0, 0.0001), (300.0, 150.0), "what is outside stays at the edge");
        assert_eq!(y.ticks(), [0.01, 0.1, 1.0]);
        assert_eq!(y.figure(0.001), "0.001 s");
    }

    #[test]
    fn ends_of_scales_are_round() {
        assert_eq!(round_up(107.4), 120.0);
        assert_eq!(round_up(1.0), 1.0);
        assert!(round_up(0.0) > 0.0);
    }
}
