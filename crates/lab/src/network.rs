//! The network between nodes: it delays, loses, doubles and reorders frames,
//! and may be cut. Streams keep their order and lose nothing while both ends
//! reach each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::Chance;
use crate::queue::Micros;
use crate::settings::MILLI;

/// How long a frame usually takes between two nodes.
const DELAY_US: std::ops::Range<u64> = 50..2_000;
/// And between two cells of one node.
const DELAY_INSIDE_US: std::ops::Range<u64> = 5..50;
/// And if something is in its way.
const DELAY_SPIKE_US: std::ops::Range<u64> = 2_000..100_000;
const STREAM_DELAY: Micros = MILLI;

/// What is wrong with the network just now.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub loss_per_mille: u32,
    pub double_per_mille: u32,
    pub spike_per_mille: u32,
    /// From whom nothing comes to whom.
    pub cuts: BTreeSet<(usize, usize)>,
    /// When the last piece of each stream arrives.
    streams: BTreeMap<(usize, usize), Micros>,
}

impl Network {
    /// Nothing is wrong any more.
    pub fn heal(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        *self = Network { streams, ..Network::default() };
    }

    /// When a frame arrives: not at all, once, or twice.
    pub fn carry(
        &self,
        now: Micros,
        from: usize,
        to: usize,
        chance: &mut Chance,
    ) -> [Option<Micros>; 2] {
        if from == to {
            return [Some(now + chance.among(DELAY_INSIDE_US)), None];
        }
        if self.cuts.contains(&(from, to)) {
            return [None, None];
        }
        let copies = if chance.happens(self.double_per_mille) { 2 } else { 1 };
        [0, 1].map(|copy| {
            let arrives = copy < copies && !chance.happens(self.loss_per_mille);
            let delay = match chance.happens(self.spike_per_mille) {
                true => chance.among(DELAY_SPIKE_US),
                false => chance.among(DELAY_US),
            };
            arrives.then_some(now + delay)
        })
    }

    /// When a piece of a stream arrives; `None` if the two do not reach each
    /// other.
    pub fn stream(&mut self, now: Micros, from: usize, to: usize) -> Option<Micros> {
        if self.cuts.contains(&(from, to)) || self.cuts.contains(&(to, from)) {
            return None;
        }
        let last = self.streams.entry((from, to)).or_default();
        *last = (now + STREAM_DELAY).max(*last + 1);
        Some(*last)
    }
}
