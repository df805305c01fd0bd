//! A million tenants, verified: those of a design, and those that got four
//! random workers each.
//!
//! A matter of seconds in release and of minutes without, so they run when
//! asked for:
//! `cargo test --release -p shuffle --test verify_million -- --ignored --nocapture`

use std::time::Instant;

use shuffle::verify::{Report, verify};
use shuffle::{Assignment, Design, Fleet, Key, STRIPE, Slot, blast};

const TENANTS: usize = 1_000_000;

fn design(size: usize) -> Design {
    let fleet = Fleet::numbered(2048, Some(size)).expect("a fleet");
    Design::striped(fleet.columns(size, &[STRIPE]).expect("columns"), 2, None, &Key::PUBLIC)
}

fn report(name: &str, shards: impl Iterator<Item = Vec<Slot>>) -> Report {
    let started = Instant::now();
    let tenant = |(number, slots): (usize, Vec<Slot>)| {
        (number.to_string(), slots.iter().map(Slot::to_string).collect())
    };
    let assignment = Assignment::new(shards.enumerate().map(tenant)).expect("no problems");
    let built = started.elapsed();
    let report = verify(&assignment);
    println!(
        "{name}: overlap {} ({} pairs), load {} to {}, identical {}, worst flood {:?}; {:.1} s to \
         take, {:.1} s to verify",
        report.overlap.most,
        report.overlap.pairs,
        report.balance.least,
        report.balance.most,
        report.identical.tenants,
        report.worst_flood.as_ref().map(|flood| &flood.others.by_lost),
        built.as_secs_f64(),
        (started.elapsed() - built).as_secs_f64(),
    );
    report
}

#[test]
#[ignore = "verifies a million tenants three times: half a minute, in release only"]
fn a_million_tenants_are_verified() {
    for size in [4, 8] {
        let design = design(size);
        let shards = design.shards(0).take(TENANTS).map(|(_, shard)| shard.to_vec());
        let report = report(&format!("design of {size}"), shards);
        assert_eq!(report.holds(2), Some(true));
        let started = Instant::now();
        let shards = design.shards(0).take(TENANTS).map(|(_, shard)| shard);
        let blast = blast::of_shards(shards, &[Slot(1), Slot(2000), Slot(700), Slot(1500)]);
        assert_eq!(blast.tenants(), TENANTS as u128);
        println!("blast radius over them: {:.3} s", started.elapsed().as_secs_f64());
    }
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as u32 % 2048
    };
    let shards = (0..TENANTS).map(|_| {
        let mut slots = Vec::new();
        while slots.len() < 4 {
            let slot = Slot(draw());
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        slots
    });
    assert_eq!(report("random", shards).holds(2), Some(false));
}
