//! How often something was asked for lately, in a few bits for each of it.
//!
//! A count-min sketch with counters of four bits: a hash has four counters, one
//! in each row, and the smallest is the estimate, never less than the truth up
//! to [`COUNT_MAX`]. After [`SAMPLE`] counts for each entry that the sketch is
//! made for, all counters are halved, so that yesterday's names give way
//! (Einziger, Friedman and Manes, "TinyLFU", 2017).
//!
//! The four counters of a hash share one block, which is one line of the
//! processor's cache. Nothing here stops the thread: the sketch grows by one
//! block at a time, and halving goes on in steps beside the counting.
//!
//! Hashes are taken as they are: they must be keyed and even in all their bits.

use crate::store::linear::{parent, place};
use crate::store::pieces::Pieces;

/// As far as a counter counts.
pub const COUNT_MAX: u8 = 15;
/// Counts, for each entry, from one halving to the next but one: a halving
/// leaves half of them.
const SAMPLE: usize = 10;
/// Entries that share a block: 16 counters for each.
const BLOCK_ENTRIES: usize = 8;
/// Blocks that a count halves while a halving goes on.
const HALVED_AT_ONCE: usize = 8;

const ROWS: u32 = 4;
/// Bits that choose among the 32 counters of a row.
const ROW_BITS: u32 = 5;
/// The bits of a hash that choose its counters; those below choose its block.
const ROWS_SHIFT: u32 = u64::BITS - ROWS * ROW_BITS;
/// What is left of the sixteen counters of a word after a shift by one.
const HALF_MASK: u64 = 0x7777_7777_7777_7777;

/// Estimates how often hashes were counted lately.
#[derive(Clone, Debug)]
pub struct Sketch {
    blocks: Pieces<Block>,
    /// Counts since the last halving, and half of those before.
    counted: usize,
    /// The next block to halve; behind the last if no halving goes on.
    halving: usize,
}

/// Four rows of two words, of sixteen counters each.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Block([u64; 2 * ROWS as usize]);

impl Sketch {
    /// A sketch for `entries` entries with nothing counted.
    pub fn new(entries: usize) -> Self {
        let blocks = Pieces::of(Block::default(), entries.div_ceil(BLOCK_ENTRIES).max(1));
        Sketch { halving: blocks.len(), blocks, counted: 0 }
    }

    /// Goes a step towards being fit for `entries` entries, if it is for fewer:
    /// one block, so for eight more. All estimates stay as they are, or are
    /// halved as they would have been anyway.
    #[inline]
    pub fn grow(&mut self, entries: usize) {
        if self.blocks.len() * BLOCK_ENTRIES < entries {
            self.add_block();
        }
    }

    /// Counts `hash` once.
    #[inline]
    pub fn increment(&mut self, hash: u64) {
        let at = place(hash, self.blocks.len());
        if self.blocks[at].increment(hash) {
            self.counted += 1;
        }
        if self.halving < self.blocks.len() {
            self.halve_some();
        } else if self.counted >= SAMPLE * BLOCK_ENTRIES * self.blocks.len() {
            self.counted /= 2;
            self.halving = 0;
        }
    }

    /// How often `hash` was counted lately: not less than it was, up to
    /// [`COUNT_MAX`].
    #[inline]
    pub fn estimate(&self, hash: u64) -> u8 {
        self.blocks[place(hash, self.blocks.len())].estimate(hash)
    }

    /// Adds a block. It starts as a copy of the one whose hashes it shares, so
    /// both must be on the same side of a halving: that is finished first.
    #[cold]
    fn add_block(&mut self) {
        if self.halving < self.blocks.len() {
            return self.halve_some();
        }
        let origin = parent(self.blocks.len());
        self.blocks.push(self.blocks[origin]);
        self.halving = self.blocks.len();
    }

    #[cold]
    fn halve_some(&mut self) {
        let end = self.blocks.len().min(self.halving + HALVED_AT_ONCE);
        for at in self.halving..end {
            self.blocks[at].halve();
        }
        self.halving = end;
    }
}

impl Block {
    /// False if all counters of `hash` are at their end.
    #[inline]
    fn increment(&mut self, hash: u64) -> bool {
        let mut counted = false;
        for row in 0..ROWS {
            let (word, shift) = spot(hash, row);
            if (self.0[word] >> shift) as u8 & COUNT_MAX < COUNT_MAX {
                self.0[word] += 1 << shift;
                counted = true;
            }
        }
        counted
    }

    #[inline]
    fn estimate(&self, hash: u64) -> u8 {
        let mut least = COUNT_MAX;
        for row in 0..ROWS {
            let (word, shift) = spot(hash, row);
            least = least.min((self.0[word] >> shift) as u8 & COUNT_MAX);
        }
        least
    }

    fn halve(&mut self) {
        for word in &mut self.0 {
            *word = (*word >> 1) & HALF_MASK;
        }
    }
}

/// The counter of `hash` in a row: its word in the block, its first bit there.
#[inline]
fn spot(hash: u64, row: u32) -> (usize, u32) {
    let counter = (hash >> (ROWS_SHIFT + row * ROW_BITS)) as u32 & ((1 << ROW_BITS) - 1);
    ((row * 2 + (counter >> 4)) as usize, (counter & 15) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::trace::mix;

    #[test]
    fn estimates_are_never_below_the_truth_and_mostly_are_the_truth() {
        let mut sketch = Sketch::new(1000);
        for name in 0..1000 {
            for _ in 0..name % 8 {
                sketch.increment(mix(name));
            }
        }
        let mut exact = 0;
        for name in 0..1000 {
            let estimate = u64::from(sketch.estimate(mix(name)));
            assert!(estimate >= name % 8, "{name}: {estimate}");
            exact += u32::from(estimate == name % 8);
        }
        assert!(exact > 900, "{exact}");
    }

    #[test]
    fn counters_stop_at_their_end_and_do_not_spill() {
        let mut sketch = Sketch::new(8);
        for _ in 0..40 {
            sketch.increment(0);
        }
        assert_eq!(sketch.estimate(0), COUNT_MAX);
        assert_eq!(sketch.estimate(u64::MAX), 0);
    }

    #[test]
    fn counts_are_halved_once_a_sample_is_full() {
        let mut sketch = Sketch::new(1000);
        for _ in 0..12 {
            sketch.increment(mix(0));
        }
        let names = 1..=2 * SAMPLE as u64 * 1000;
        let last = names.clone().find(|name| {
            sketch.increment(mix(*name));
            sketch.halving == 0
        });
        let before = sketch.estimate(mix(0));
        assert!(last.is_some() && before >= 12, "{last:?}, {before}");
        for _ in 0..sketch.blocks.len().div_ceil(HALVED_AT_ONCE) {
            sketch.increment(mix(*names.end()));
        }
        assert_eq!(sketch.halving, sketch.blocks.len());
        assert_eq!(sketch.estimate(mix(0)), before / 2);
    }

    #[test]
    fn growing_keeps_estimates() {
        let mut sketch = Sketch::new(8);
        for name in 0..10 {
            for _ in 0..name {
                sketch.increment(mix(name));
            }
        }
        let before: Vec<u8> = (0..1000).map(|name| sketch.estimate(mix(name))).collect();
        for _ in 0..100 {
            sketch.grow(500);
        }
        assert_eq!(sketch.blocks.len() * BLOCK_ENTRIES, 504);
        let after: Vec<u8> = (0..1000).map(|name| sketch.estimate(mix(name))).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn growing_in_the_middle_of_a_halving_finishes_it_first() {
        let mut sketch = Sketch::new(1000);
        for name in 0..2000 {
            sketch.increment(mix(name));
            sketch.increment(mix(name));
        }
        let before: Vec<u8> = (0..2000).map(|name| sketch.estimate(mix(name))).collect();
        sketch.halving = 3;
        (0..3).for_each(|at| sketch.blocks[at].halve());
        for _ in 0..200 {
            sketch.grow(2000);
        }
        assert_eq!(sketch.blocks.len() * BLOCK_ENTRIES, 2000);
        for (name, before) in before.iter().enumerate() {
            assert_eq!(sketch.estimate(mix(name as u64)), before / 2, "{name}");
        }
    }
}
