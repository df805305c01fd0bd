//! Worlds of many seeds: in none may a property fail.
//!
//! `LAB_SEEDS=5000` runs more of them, `LAB_SEED=7` one, with its trace.

use lab::Outcome;

/// Seeds that are run unless told otherwise.
const SEEDS: u64 = 200;
/// Tests among which they are divided, so that they run side by side.
const PARTS: u64 = 4;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is no number; accepted: 0, 1, 2 …")))
}

fn check(outcome: &Outcome) -> Result<(), String> {
    let Some(violation) = &outcome.violation else { return Ok(()) };
    let Outcome { settings, tail, tally, .. } = outcome;
    let (seed, kind) = (settings.seed, settings.kind);
    Err(format!(
        "{tail}\n{settings:?}\n{tally:?}\nseed {seed} ({kind:?}): {violation}\nagain: LAB_SEED={seed}\n"
    ))
}

fn run_part(part: u64) {
    if let Some(seed) = number("LAB_SEED") {
        if seed % PARTS == part {
            let outcome = lab::run(seed, None);
            println!("{}\n{:?}\n{:?}", outcome.tail, outcome.settings, outcome.tally);
            check(&outcome).unwrap_or_else(|what| panic!("{what}"));
        }
        return;
    }
    let seeds = (0..number("LAB_SEEDS").unwrap_or(SEEDS)).filter(|seed| seed % PARTS == part);
    let mut failed = Vec::new();
    for seed in seeds {
        if let Err(what) = check(&lab::run(seed, None)) {
            eprintln!("{what}");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{} worlds failed; their seeds: {failed:?}", failed.len());
}

#[test]
fn calm_worlds() {
    run_part(0);
}

#[test]
fn orderly_worlds() {
    run_part(1);
}

#[test]
fn chaotic_worlds() {
    run_part(2);
}

#[test]
fn more_chaotic_worlds() {
    run_part(3);
}
