//! What a hit and an insert of the store cost:
//! `cargo run --release -p cache --example store_speed`.
//!
//! Hits are of a few names that stay in the processor's cache, then of all
//! names in random order. Inserts are of new names: first while the store
//! fills, then while each pushes out another, with the question that missed.
//! Times are the processor's, so that others on the machine count little; but
//! the longest insert, which tells whether growing makes anybody wait, is by
//! the wall clock.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cache::store::{Limits, Store};

const HOT: u64 = 200;
const ROUNDS: u64 = 2_000_000;

fn main() {
    println!("entries     hit, hot  hit, any    filling  evicting    longest insert");
    for entries in [1_000, 100_000, 1_000_000, 8_000_000] {
        measure(entries);
    }
}

fn measure(entries: u64) {
    let mut store = Store::new(Limits { entries: entries as usize, bytes: usize::MAX });
    let mut longest = Duration::ZERO;
    // Small stores are filled again and again: the kernel's clock is coarse.
    let filling = nanos(entries.max(ROUNDS / entries * entries), |round| {
        let name = round % entries;
        if name == 0 {
            store = Store::new(Limits { entries: entries as usize, bytes: usize::MAX });
        }
        let started = Instant::now();
        insert(&mut store, name);
        longest = longest.max(started.elapsed());
    });
    let hot = nanos(ROUNDS, |round| ask(&mut store, round % HOT));
    let any = nanos(ROUNDS, |round| ask(&mut store, mix(round) % entries));
    let evicting = nanos(ROUNDS, |round| {
        let name = entries + round;
        // As in a cache: what is inserted was asked for before.
        ask(&mut store, name);
        insert(&mut store, name);
    });
    println!(
        "{entries:>9} {hot:>8.0} ns {any:>6.0} ns {filling:>7.0} ns {evicting:>6.0} ns {:>12.1} µs",
        longest.as_nanos() as f64 / 1000.0
    );
}

fn insert(store: &mut Store<Box<u64>>, name: u64) {
    store.insert(mix(name), Box::new(name), 100, |value| **value == name);
}

fn ask(store: &mut Store<Box<u64>>, name: u64) {
    black_box(store.get(mix(name), |value| **value == name));
}

fn nanos(rounds: u64, mut work: impl FnMut(u64)) -> f64 {
    let started = processor_nanos();
    for round in 0..rounds {
        work(black_box(round));
    }
    (processor_nanos() - started) as f64 / rounds as f64
}

/// Time this process spent on a processor, from the kernel's scheduler.
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux says");
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    nanos.expect("the first word is a number")
}

/// SplitMix64, in place of a keyed hash.
fn mix(name: u64) -> u64 {
    let mut hash = name.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
