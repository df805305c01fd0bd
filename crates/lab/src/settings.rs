//! What kind of world a seed makes.

use std::ops::Range;

use cache::store::Limits;
use cluster::Placement;

use crate::chance::Chance;
use crate::queue::Micros;

/// Seconds of a world's time.
pub const SECOND: Micros = 1_000_000;
pub const MILLI: Micros = 1_000;
/// When worlds begin: late enough that entries may be older than a node.
pub const START: Micros = 1 << 50;

/// What may happen in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing goes wrong and nobody comes or goes.
    Calm,
    /// Nodes join and leave in good order, and the key rotates; nothing is
    /// lost.
    Orderly,
    /// Anything.
    Chaos,
}

/// What a seed decides before a world begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub seed: u64,
    pub kind: Kind,
    /// Nodes at the start, and places for more.
    pub nodes: usize,
    pub nodes_max: usize,
    /// Cells of each node.
    pub cells: Vec<u8>,
    pub replicas: usize,
    pub placement: Placement,
    pub stale_secs: u32,
    pub prefetch: bool,
    /// Names that are asked for while things go wrong, and afterwards.
    pub names: usize,
    pub fresh_names: usize,
    /// All of them live for a second only.
    pub is_brief: bool,
    /// Between two questions of clients.
    pub pause_us: Range<u64>,
    /// How long things go wrong.
    pub trouble: Micros,
    pub tables: Limits,
    /// How long entries that are handed over are under way at the most, beyond
    /// what the network takes: what they belong to is large, or busy.
    pub handover_lag: Micros,
    /// Upstream servers may be silent, fail, lose and be slow.
    pub has_weather: bool,
    /// Somebody forges answers.
    pub has_forger: bool,
}

impl Settings {
    pub fn draw(seed: u64, chance: &mut Chance) -> Self {
        let kind = match seed % 4 {
            0 => Kind::Calm,
            1 => Kind::Orderly,
            _ => Kind::Chaos,
        };
        Settings::of_kind(seed, kind, chance)
    }

    pub fn of_kind(seed: u64, kind: Kind, chance: &mut Chance) -> Self {
        let is_chaos = kind == Kind::Chaos;
        let nodes = match kind {
            Kind::Orderly => chance.among(2..5) as usize,
            _ => chance.among(1..6) as usize,
        };
        let nodes_max = if kind == Kind::Calm { nodes } else { 6 };
        let is_tight = is_chaos && chance.happens(200);
        let entries = if is_tight { 40 } else { 100_000 };
        let is_brief = chance.happens(150);
        let (names, pause) = match is_brief {
            true => (4..8, 20..60),
            false => (10..60, 10..60),
        };
        Settings {
            seed,
            kind,
            nodes,
            nodes_max,
            cells: (0..nodes_max).map(|_| chance.among(1..4) as u8).collect(),
            replicas: chance.among(1..4) as usize,
            placement: chance.weigh(&[(3, Placement::Rendezvous), (1, Placement::BoundedRing)]),
            stale_secs: chance.pick(&[0, 5, 60, 86_400]),
            prefetch: chance.happens(500),
            names: chance.among(names) as usize,
            fresh_names: chance.among(5..30) as usize,
            is_brief,
            pause_us: 0..chance.among(pause) * MILLI,
            trouble: chance.among(10..25) * SECOND,
            tables: Limits { entries, bytes: entries * 10_000 },
            handover_lag: chance.pick(&[1, 200 * MILLI, 3 * SECOND]),
            has_weather: is_chaos && chance.happens(500),
            has_forger: is_chaos && chance.happens(500),
        }
    }

    /// True if nothing is ever pushed out of the tables.
    pub fn has_room(&self) -> bool {
        self.tables.entries > 1000
    }
}
