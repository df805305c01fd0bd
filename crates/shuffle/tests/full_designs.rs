//! The promise of the two designs for 2048 workers, on every shard there is.
//!
//! Two shards share three slots if and only if some three slots are in both.
//! So one bit for each three slots of the fleet decides the promise for all
//! pairs of shards at once: no bit is set twice. There are 1,429,559,296 bits.
//!
//! They take a minute or two and 179 MB each, so they run when asked for:
//! `cargo test --release -p shuffle --test full_designs -- --ignored --nocapture`

use std::time::Instant;

use shuffle::{Columns, Design, Fleet, Key, STRIPE, Shard};

const WORKERS: usize = 2048;
const TRIPLES: u64 = 2048 * 2047 * 2046 / 6;

#[test]
#[ignore = "goes through 134 million shards: a minute, in release only"]
fn no_two_shards_of_four_stripes_share_three_slots() {
    let columns = columns(Some(4), 4);
    let design = Design::striped(columns, 2, None, &Key::PUBLIC);
    let seen = look_at_all(&design);
    assert_eq!(seen.shards, 134_217_728);
    assert_eq!(seen.triples, 4 * 134_217_728);
    assert!(seen.loads.iter().all(|&load| load == 262_144));
    seen.print("4 stripes of 512", "at most once");
}

#[test]
#[ignore = "goes through 357 million shards: two minutes, in release only"]
fn every_three_slots_are_in_exactly_one_quadruple() {
    let design = Design::quadruples(columns(None, 1), &Key::PUBLIC);
    let seen = look_at_all(&design);
    assert_eq!(seen.shards, 357_389_824);
    assert_eq!(seen.triples, TRIPLES, "all there are, each once");
    assert!(seen.loads.iter().all(|&load| load == 698_027));
    seen.print("quadruples of 2048", "exactly once");
}

fn columns(stripes: Option<usize>, count: usize) -> Columns {
    let fleet = Fleet::numbered(WORKERS, stripes).expect("a fleet");
    let apart: &[&str] = if stripes.is_some() { &[STRIPE] } else { &[] };
    fleet.columns(count, apart).expect("columns")
}

/// What was seen of a design whose every shard was looked at.
struct Seen {
    shards: u64,
    /// Different triples; a repeated one panics.
    triples: u64,
    loads: Vec<u32>,
    started: Instant,
}

impl Seen {
    fn print(&self, name: &str, how_often: &str) {
        let load = self.loads[0];
        println!(
            "{name}: {} shards, all different; {} of {TRIPLES} triples of slots seen, each \
             {how_often}, so no two shards share more than 2 slots; load {load} on each of \
             {} workers; {:.1} s",
            self.shards,
            self.triples,
            self.loads.len(),
            self.started.elapsed().as_secs_f64(),
        );
    }
}

fn look_at_all(design: &Design) -> Seen {
    let started = Instant::now();
    let mut bits = vec![0u64; TRIPLES.div_ceil(64) as usize];
    let (mut shards, mut triples) = (0, 0);
    let mut loads = vec![0; WORKERS];
    for (_, shard) in design.shards(0) {
        shards += 1;
        for slot in shard.iter() {
            loads[slot.0 as usize] += 1;
        }
        for rank in triple_ranks(&shard) {
            let (word, bit) = (&mut bits[(rank / 64) as usize], 1 << (rank % 64));
            assert_eq!(*word & bit, 0, "{shard:?} shares three slots with an earlier shard");
            *word |= bit;
            triples += 1;
        }
    }
    Seen { shards, triples, loads, started }
}

/// The numbers of the four triples of a shard, among all triples.
fn triple_ranks(shard: &Shard) -> [u64; 4] {
    assert_eq!(shard.len(), 4);
    let mut slots: [u64; 4] = std::array::from_fn(|at| shard[at].0.into());
    slots.sort_unstable();
    let [a, b, c, d] = slots;
    assert!(a < b && b < c && c < d && d < WORKERS as u64, "four different slots: {shard:?}");
    let rank = |a: u64, b: u64, c: u64| c * (c - 1) * c.saturating_sub(2) / 6 + b * (b - 1) / 2 + a;
    [rank(a, b, c), rank(a, b, d), rank(a, c, d), rank(b, c, d)]
}
