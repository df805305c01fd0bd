//! Zones from a seed: every corner of RFC 1034, 4592 and 6672 that a server can get wrong.

mod features;
mod rrsets;
mod tree;

use std::fmt::Write as _;

use crate::name::{NAME_OCTETS_MAX, Name};
use crate::random::Random;
pub use rrsets::Builder;

/// How a zone proves that something does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    Unsigned,
    Nsec,
    Nsec3 { opt_out: bool, salt: &'static str, iterations: u16 },
}

/// A zone before it is signed.
#[derive(Debug, Clone)]
pub struct Zone {
    pub origin: Name,
    pub denial: Denial,
    pub text: String,
}

/// What a zone knows of the others while it is made.
#[derive(Debug)]
pub struct World {
    pub origins: Vec<Name>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Every feature, then a random tree on top.
    Garden,
    /// Only the random tree: few labels, so everything meets everything.
    Tree,
    /// A DNAME at the apex: nothing below.
    ApexDname,
}

struct Plot {
    origin: Name,
    shape: Shape,
    denial: Denial,
    /// Hosted zones below, and whether they are signed.
    children: Vec<(Name, bool)>,
}

/// Zones come in families of eight: parents and children, each kind of denial, an apex DNAME.
pub fn generate(seed: u64, count: usize) -> Vec<Zone> {
    let plots = plan(count);
    let world = World { origins: plots.iter().map(|plot| plot.origin.clone()).collect() };
    plots.iter().enumerate().map(|(index, plot)| grow(seed, index, plot, &world)).collect()
}

fn plan(count: usize) -> Vec<Plot> {
    let salted = Denial::Nsec3 { opt_out: false, salt: "ab12cd34", iterations: 5 };
    let bare = Denial::Nsec3 { opt_out: false, salt: "-", iterations: 0 };
    let opt_out = Denial::Nsec3 { opt_out: true, salt: "-", iterations: 0 };
    let kinds = [
        ("f#.test", Shape::Garden, Denial::Unsigned),
        ("kid.f#.test", Shape::Garden, Denial::Nsec),
        ("s#.test", Shape::Garden, Denial::Nsec),
        ("kid.s#.test", Shape::Tree, bare.clone()),
        ("h#.test", Shape::Garden, salted),
        // Its parent a.h#.test is delegated by h#.test and not hosted.
        ("b.a.h#.test", Shape::Tree, Denial::Unsigned),
        ("o#.test", Shape::Garden, opt_out),
        ("d#.test", Shape::ApexDname, Denial::Unsigned),
    ];
    let mut plots: Vec<Plot> = (0..count)
        .map(|index| {
            let (pattern, shape, denial) = kinds[index % kinds.len()].clone();
            let family = index / kinds.len();
            let denial = match (shape, family % 3) {
                (Shape::ApexDname, 1) => Denial::Nsec,
                (Shape::ApexDname, 2) => bare.clone(),
                _ => denial,
            };
            let origin = Name::plain(&pattern.replace('#', &family.to_string()));
            Plot { origin, shape, denial, children: Vec::new() }
        })
        .collect();
    let children: Vec<_> =
        plots.iter().map(|plot| (plot.origin.clone(), plot.denial != Denial::Unsigned)).collect();
    for plot in &mut plots {
        let below = children.iter().filter(|(name, _)| name.is_below(&plot.origin));
        plot.children = below.cloned().collect();
    }
    plots
}

fn grow(seed: u64, index: usize, plot: &Plot, world: &World) -> Zone {
    let random = Random::stream(seed, 1000 + index as u64);
    let owner_octets_max = match plot.denial {
        Denial::Nsec3 { .. } => NAME_OCTETS_MAX - 2,
        _ => NAME_OCTETS_MAX,
    };
    let mut builder = Builder::new(plot.origin.clone(), random, owner_octets_max);
    features::apex(&mut builder, plot.shape != Shape::ApexDname);
    match plot.shape {
        Shape::Garden => {
            features::garden(&mut builder, world);
            tree::grow(&mut builder, world, 60);
        }
        Shape::Tree => tree::grow(&mut builder, world, 160),
        Shape::ApexDname => features::apex_dname(&mut builder, world),
    }
    if plot.shape != Shape::ApexDname {
        for (child, signed) in &plot.children {
            features::hosted_child(&mut builder, child, *signed);
        }
    }
    builder.settle(plot.denial != Denial::Unsigned);
    Zone { origin: plot.origin.clone(), denial: plot.denial.clone(), text: builder.text() }
}

/// The zone with another address for `www`: a planted bug.
pub fn planted(text: &str) -> Option<String> {
    let mut changed = String::new();
    let mut planted = false;
    for line in text.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_address = fields.len() == 5 && fields[3] == "A" && fields[4].starts_with("192.0.2.");
        if !planted && is_address && fields[0].to_lowercase().starts_with("www.") {
            planted = true;
            let _ = writeln!(changed, "{} {} IN A 198.51.100.66", fields[0], fields[1]);
        } else {
            let _ = writeln!(changed, "{line}");
        }
    }
    planted.then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::generate;

    #[test]
    fn a_seed_decides_every_octet() {
        let texts = |seed| generate(seed, 8).into_iter().map(|zone| zone.text).collect::<Vec<_>>();
        assert_eq!(texts(7), texts(7));
        assert_ne!(texts(7), texts(8));
    }
}
