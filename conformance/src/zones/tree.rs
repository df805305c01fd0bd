//! A random tree over very few labels: combinations nobody would think of writing down.

use super::{Builder, World};
use crate::name::Name;

const LABELS: [&str; 6] = ["a", "b", "c", "x", "*", "y"];

pub fn grow(builder: &mut Builder, world: &World, records: usize) {
    // Deep enough that a zone-wide wildcard is an exception.
    for _ in 0..records {
        let name = place(builder, 4);
        if !has_room(builder, &name) {
            continue;
        }
        match builder.random.below(20) {
            0..=5 => builder.add_addresses_at(&name),
            6..=8 => {
                let number = builder.random.below(1000);
                builder.add_at(&name, "TXT", format!("\"tree {number}\""));
            }
            9..=10 => {
                let target = target(builder, world);
                builder.add_at(&name, "MX", format!("10 {target}"));
            }
            11..=14 => {
                let target = target(builder, world);
                builder.add_at(&name, "CNAME", target);
            }
            15..=16 => delegate(builder, world, &name),
            17 => {
                let target = target(builder, world);
                builder.add_at(&name, "DNAME", target);
            }
            18 => {
                let target = target(builder, world);
                builder.add_at(&name, "SRV", format!("1 2 443 {target}"));
            }
            _ => builder.add_at(&name, "TYPE65280", "\\# 3 010203"),
        }
    }
}

/// Conflicts would be settled by dropping records; refusing them early keeps more of the tree.
fn has_room(builder: &Builder, name: &Name) -> bool {
    !builder.has(name, "CNAME")
        && !name.ancestry().iter().skip(1).any(|above| builder.has(above, "DNAME"))
}

fn place(builder: &mut Builder, depth_max: usize) -> Name {
    let depth = 1 + builder.random.below(depth_max);
    let mut name = builder.origin.clone();
    for level in 0..depth {
        let label = *builder.random.pick(&LABELS);
        // A wildcard right below the apex hides most denials of the zone: seldom.
        let label =
            if label == "*" && level == 0 && !builder.random.chance(8) { "b" } else { label };
        name = name.child(label.as_bytes()).expect("four short labels");
    }
    name
}

/// Where aliases and exchanges point: mostly inside, sometimes another hosted zone or outside.
pub fn target(builder: &mut Builder, world: &World) -> String {
    let name = match builder.random.below(10) {
        0..=5 => place(builder, 4),
        6..=8 => {
            let origin = builder.random.pick(&world.origins).clone();
            let inside = ["www", "a.wild", "a", "b.a", "x.dn", "ent", "cname-chain-0", "x", "kid"];
            let label = *builder.random.pick(&inside);
            Name::from_labels(label.split('.').map(str::as_bytes).chain(origin.labels()))
                .expect("a short name")
        }
        _ => Name::plain("elsewhere.example."),
    };
    builder.cased(&name).to_string()
}

fn delegate(builder: &mut Builder, world: &World, name: &Name) {
    if name.is_wildcard() {
        return;
    }
    let inside = name.child(b"ns").expect("a short name");
    builder.add_at(name, "NS", inside.to_string());
    if builder.random.chance(70) {
        builder.add_addresses_at(&inside);
    }
    if builder.random.chance(40) {
        let target = target(builder, world);
        builder.add_at(name, "NS", target);
    }
    if builder.random.chance(40) {
        let digest = format!("{:064x}", u128::from(builder.random.next()));
        builder.add_at(name, "DS", format!("1234 13 2 {digest}"));
    }
}
