//! One seed decides everything.

use std::collections::BTreeSet;

use lab::{Kind, run_kind};

const KINDS: [Kind; 3] = [Kind::Calm, Kind::Orderly, Kind::Chaos];

#[test]
fn the_same_seed_makes_the_same_world() {
    for seed in 1000..1003 {
        for kind in KINDS {
            assert_eq!(run_kind(seed, kind, None), run_kind(seed, kind, None), "{kind:?} {seed}");
        }
    }
}

#[test]
fn other_seeds_make_other_worlds() {
    let traces: BTreeSet<u64> = (0..5).map(|seed| run_kind(seed, Kind::Calm, None).trace).collect();
    assert_eq!(traces.len(), 5);
}

/// Checkers that have nothing to see prove nothing.
#[test]
fn everything_happens_in_some_world() {
    let tallies: Vec<_> = (0..12).map(|seed| run_kind(seed, Kind::Chaos, None).tally).collect();
    assert!(tallies.iter().all(|tally| tally.asked > 100 && tally.replied > 100), "{tallies:#?}");
    assert!(tallies.iter().any(|tally| tally.forged > 20), "{tallies:#?}");
    assert!(tallies.iter().any(|tally| tally.stale > 5), "{tallies:#?}");
    assert!(tallies.iter().any(|tally| tally.failed > 20), "{tallies:#?}");
    assert!(tallies.iter().any(|tally| tally.changes > 15), "{tallies:#?}");
}
