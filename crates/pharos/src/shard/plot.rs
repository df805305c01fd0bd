//! The blast radius of three schemes as a picture.

use std::fmt::Write;

use shuffle::Design;
use shuffle::compare::{self, Point, Population};

use super::told::grouped;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 56.0;
/// Tenants that are counted if all shards cannot be.
const TENANTS: u64 = 1_000_000;

/// An SVG of the share of tenants that lose all workers when 1 to `floods`
/// tenants are flooded, for no shards, plain shards and shuffle shards.
pub fn blast_radius(design: &Design, floods: u32) -> String {
    let curve = compare::flood(design, floods.max(1), TENANTS);
    let guarantee = design.guarantee();
    let whom = match curve.population {
        Population::Everyone => format!("all {} shards", grouped(design.capacity())),
        Population::First(count) => format!("the first {} tenants", grouped(count.into())),
    };
    let title = format!(
        "{} workers, shards of {}, overlap {}; counted over {whom}",
        grouped(design.columns().slot_count() as u128),
        guarantee.size,
        guarantee.overlap
    );
    let axes = Axes::new(&curve.points);
    let mut svg = head(&title);
    axes.draw(&mut svg);
    let schemes: [(&str, &str, Share); 3] = [
        ("none", "no shards", |point| point.none.lost_all),
        ("plain", "plain shards", |point| point.plain.lost_all),
        ("shuffle", "shuffle shards", |point| point.shuffled.lost_all),
    ];
    for (class, name, share) in schemes {
        axes.draw_curve(&mut svg, class, name, &curve.points, share);
    }
    svg.push_str("</svg>\n");
    svg
}

type Share = fn(&Point) -> f64;

fn head(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Blast radius of floods</title>\n\
         <style>text {{ fill: #24292f }} .back {{ fill: #ffffff }} .grid {{ stroke: #d0d7de }} \
         .axis {{ stroke: #57606a }} .note {{ fill: #57606a }} path {{ fill: none; stroke-width: 2.5 }} \
         .none {{ stroke: #cf222e }} .plain {{ stroke: #bf8700 }} .shuffle {{ stroke: #1a7f37 }} \
         text.none {{ fill: #cf222e; stroke: none }} text.plain {{ fill: #9a6700; stroke: none }} \
         text.shuffle {{ fill: #1a7f37; stroke: none }} \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .back {{ fill: #0d1117 }} \
         .grid {{ stroke: #30363d }} .axis {{ stroke: #8b949e }} .note {{ fill: #8b949e }} \
         text.none {{ fill: #ff7b72 }} text.plain {{ fill: #d29922 }} text.shuffle {{ fill: #3fb950 }} }}\
         </style>\n\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"600\">Tenants that lose all \
         their workers</text>\n\
         <text class=\"note\" x=\"{LEFT}\" y=\"46\">{title}</text>\n"
    )
}

/// Both logarithmic: from 1 to the most floods, and from the least share that
/// is drawn to all tenants.
struct Axes {
    count_most: f64,
    /// Powers of ten below 1 that are drawn.
    decades: i32,
}

impl Axes {
    fn new(points: &[Point]) -> Self {
        let least = points.iter().map(|point| point.shuffled.lost_all).filter(|share| *share > 0.0);
        let least = least.fold(0.1, f64::min);
        let count_most = points.last().map_or(2, |point| point.count.max(2));
        Axes { count_most: count_most.into(), decades: (-least.log10()).ceil() as i32 }
    }

    fn x(&self, count: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * count.ln() / self.count_most.ln()
    }

    fn y(&self, share: f64) -> f64 {
        let depth = (-share.log10() / f64::from(self.decades)).min(1.0);
        TOP + (HEIGHT - TOP - BOTTOM) * depth
    }

    fn draw(&self, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for decade in (0..=self.decades).step_by(if self.decades > 6 { 2 } else { 1 }) {
            let y = self.y(10f64.powi(-decade));
            let label = match decade {
                0 => "100 %".to_owned(),
                1 => "10 %".to_owned(),
                2 => "1 %".to_owned(),
                _ => format!("10<tspan font-size=\"9\" dy=\"-5\">−{decade}</tspan>"),
            };
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 10.0,
                y + 4.0
            );
        }
        let ticks =
            (0..).map(|power| 2f64.powi(power)).take_while(|count| *count <= self.count_most);
        for count in ticks {
            let x = self.x(count);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{count}</text>",
                bottom + 5.0,
                bottom + 20.0
            );
        }
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">tenants flooded at once</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 14.0
        );
    }

    fn draw_curve(
        &self,
        svg: &mut String,
        class: &str,
        name: &str,
        points: &[Point],
        share: Share,
    ) {
        let drawn = points.iter().filter(|point| share(point) > 0.0);
        let places: Vec<(f64, f64)> =
            drawn.map(|point| (self.x(point.count.into()), self.y(share(point)))).collect();
        let Some(&(x, y)) = places.last() else { return };
        let mut path = String::new();
        for (at, (x, y)) in places.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { " L" });
        }
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"{path}\"/>\
             <text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" font-weight=\"600\">{name}</text>",
            x + 8.0,
            y + 4.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuffle::{Fleet, Key, STRIPE};

    #[test]
    fn all_three_schemes_are_drawn() {
        let columns = Fleet::numbered(2048, Some(4)).unwrap().columns(4, &[STRIPE]).unwrap();
        let svg = blast_radius(&Design::striped(columns, 2, None, &Key::PUBLIC), 8);
        for part in ["no shards", "plain shards", "shuffle shards", "all 134,217,728 shards"] {
            assert!(svg.contains(part), "{part}");
        }
        assert_eq!(svg.matches("<path").count(), 3);
        assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
    }
}
