//! The bounded table of both layers of the cache: what is asked for often
//! stays, what is asked for once goes, and neither a scan nor a flood of new
//! names empties it.
//!
//! The policy is W-TinyLFU (Einziger, Friedman and Manes, "TinyLFU", 2017). A
//! new value goes into the *window*, a hundredth of the table, the last used
//! first. What falls out of the window is a candidate for the rest of the
//! table: if that is full, it must have been asked for more often lately
//! ([`Sketch`]) than all the values together that would have to make room for
//! it, or it goes. The rest is *probation* and, for values that were asked for
//! while on it, *protected*, four fifths of the rest.
//!
//! A table belongs to one thread. It knows no keys: whoever asks brings a hash,
//! keyed with a secret of the process, and says which value it is. A hit
//! allocates nothing, and no call does work that grows with the table, but for
//! [`Store::retain`] and the iterators: slab, index and sketch grow in place,
//! a little with each insert, so nobody waits for a table that doubles.

mod index;
pub(crate) mod linear;
pub(crate) mod pieces;
mod slab;

#[cfg(test)]
mod consistency;
#[cfg(test)]
mod ratio;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod trace;

use std::fmt;

use crate::sketch::Sketch;
use index::Index;
use slab::{List, NIL, Part, Slab};

/// The window is one part in this many.
const WINDOW_SHARE: usize = 100;
/// Protected values are at most four fifths of what is not the window.
const PROTECTED_FIFTHS: usize = 4;
/// A value may weigh one part in this many of what the whole table may: one
/// answer must not push out the answers of everybody else.
const VALUE_SHARE: usize = 8;
/// Entries at most, so that their numbers fit the links between them.
const ENTRIES_MAX: usize = NIL as usize - 1;
/// Octets at most, so that sums of them fit.
const BYTES_MAX: usize = usize::MAX / 2;
/// Entries that the sketch is made for at first; it grows with the table.
const SKETCH_ENTRIES: usize = 1024;
/// Values that may have to make room for a single candidate. One that needs
/// more has no chance, because looking at them all would take too long.
const VICTIMS_MAX: usize = 128;
/// A value in the window that was asked for this often lately is as valued as
/// a protected one. The most asked for never leave the window.
const HOT: u8 = 8;

/// What a [`Store`] may hold. It may hold nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub entries: usize,
    /// Of the values, as they were weighed when they were inserted.
    pub bytes: usize,
}

/// What came of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// It took the place of another.
    Replaced,
    /// It is new.
    Added,
    /// It weighs more than an eighth of what the table may hold, or more than
    /// 4 GiB, or the table may hold nothing. The one it would have replaced is
    /// gone: it is no longer what was inserted last.
    Refused,
}

/// A table of values, bounded in number and weight.
pub struct Store<V> {
    limits: Limits,
    window_limits: Limits,
    protected_limits: Limits,
    slab: Slab<V>,
    index: Index,
    window: List,
    probation: List,
    protected: List,
    sketch: Sketch,
    evicted: u64,
}

impl<V> Store<V> {
    /// An empty table. It takes memory as values come.
    pub fn new(limits: Limits) -> Self {
        let limits =
            Limits { entries: limits.entries.min(ENTRIES_MAX), bytes: limits.bytes.min(BYTES_MAX) };
        let window_limits = Limits {
            entries: (limits.entries / WINDOW_SHARE).max(1),
            bytes: limits.bytes / WINDOW_SHARE,
        };
        let protected =
            |all: usize, window: usize| all.saturating_sub(window) / 5 * PROTECTED_FIFTHS;
        Store {
            limits,
            window_limits,
            protected_limits: Limits {
                entries: protected(limits.entries, window_limits.entries),
                bytes: protected(limits.bytes, window_limits.bytes),
            },
            slab: Slab::new(),
            index: Index::new(),
            window: List::EMPTY,
            probation: List::EMPTY,
            protected: List::EMPTY,
            sketch: Sketch::new(limits.entries.min(SKETCH_ENTRIES)),
            evicted: 0,
        }
    }

    /// The value with `hash` that `is_it` says it is. Counts the question,
    /// whether or not there is a value for it.
    #[inline]
    pub fn get(&mut self, hash: u64, is_it: impl FnMut(&V) -> bool) -> Option<&V> {
        self.sketch.increment(hash);
        let at = self.index.find(&self.slab, hash, is_it)?;
        self.touch(at);
        self.slab.node(at).value.as_ref()
    }

    /// As [`Store::get`], but leaves no trace.
    #[inline]
    pub fn peek(&self, hash: u64, is_it: impl FnMut(&V) -> bool) -> Option<&V> {
        let at = self.index.find(&self.slab, hash, is_it)?;
        self.slab.node(at).value.as_ref()
    }

    /// How often [`Store::get`] was called with `hash` lately, at least, up to
    /// [`COUNT_MAX`](crate::sketch::COUNT_MAX).
    #[inline]
    pub fn frequency(&self, hash: u64) -> u8 {
        self.sketch.estimate(hash)
    }

    /// Puts `value` in place of the one `is_it` finds, or as a new one; `bytes`
    /// is what it weighs. Unless refused, it is there until the next insert at
    /// least. It is not counted as asked for.
    pub fn insert(
        &mut self,
        hash: u64,
        value: V,
        bytes: usize,
        is_it: impl FnMut(&V) -> bool,
    ) -> Insert {
        let known = self.index.find(&self.slab, hash, is_it);
        let weight = u32::try_from(bytes).ok().filter(|_| self.has_room_for(bytes));
        match (known, weight) {
            (Some(at), Some(bytes)) => {
                self.replace(at, value, bytes);
                Insert::Replaced
            }
            (None, Some(bytes)) => {
                self.add(hash, value, bytes);
                Insert::Added
            }
            (known, None) => {
                known.map(|at| self.take(at));
                Insert::Refused
            }
        }
    }

    /// Takes out the value with `hash` that `is_it` says it is.
    pub fn remove(&mut self, hash: u64, is_it: impl FnMut(&V) -> bool) -> Option<V> {
        let at = self.index.find(&self.slab, hash, is_it)?;
        self.take(at)
    }

    /// Removes what `keep` does not want kept; returns how many went. Looks at
    /// everything at once: [`Store::sweep`] does it in steps.
    pub fn retain(&mut self, keep: impl FnMut(&V) -> bool) -> usize {
        self.sweep(0, usize::MAX, keep).0
    }

    /// A step through the table for work that must not stop the thread: visits
    /// up to `count` places from `cursor` on, removes what `keep` does not want
    /// kept, and returns how many went and where to go on, `None` at the end.
    /// Values that come between two steps may be missed.
    pub fn sweep(
        &mut self,
        cursor: usize,
        count: usize,
        mut keep: impl FnMut(&V) -> bool,
    ) -> (usize, Option<usize>) {
        let end = cursor.saturating_add(count).min(self.slab.len());
        let mut removed = 0;
        for at in cursor..end {
            let at = at as u32;
            if self.slab.node(at).value.as_ref().is_some_and(|value| !keep(value)) {
                self.take(at);
                removed += 1;
            }
        }
        (removed, (end < self.slab.len()).then_some(end))
    }

    /// All values with their hashes, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.slab.iter()
    }

    /// All values with their hashes, from the most to the least valued:
    /// protected ones and hot ones of the window first, then those on
    /// probation, then what just came; each by how lately they were asked for.
    pub fn hottest(&self) -> impl Iterator<Item = (u64, &V)> {
        let is_hot = |hash: u64| self.frequency(hash) >= HOT;
        let window = || self.slab.newest_first(&self.window);
        window()
            .filter(move |(_, node)| is_hot(node.hash))
            .chain(self.slab.newest_first(&self.protected))
            .chain(self.slab.newest_first(&self.probation))
            .chain(window().filter(move |(_, node)| !is_hot(node.hash)))
            .filter_map(|(_, node)| Some((node.hash, node.value.as_ref()?)))
    }

    /// Values there are.
    pub fn len(&self) -> usize {
        self.window.len + self.probation.len + self.protected.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What all values weigh.
    pub fn bytes(&self) -> usize {
        self.window.bytes + self.probation.bytes + self.protected.bytes
    }

    /// Values that had to make room for others, or got none, so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// Changes of one value.
impl<V> Store<V> {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.limits.entries > 0 && bytes <= self.limits.bytes / VALUE_SHARE
    }

    fn add(&mut self, hash: u64, value: V, bytes: u32) {
        let at = self.slab.add(hash, value, bytes);
        self.index.add(&mut self.slab, at);
        self.sketch.grow(self.slab.len());
        self.window.push_front(&mut self.slab, at);
        self.settle(at);
    }

    /// The new value is the newest of its part, so that it is not the next to
    /// go if it weighs more than the old one.
    fn replace(&mut self, at: u32, value: V, bytes: u32) {
        let part = self.slab.node(at).part;
        self.list(part).0.bytes -= self.slab.node(at).bytes as usize;
        self.list(part).0.bytes += bytes as usize;
        let node = self.slab.node_mut(at);
        node.bytes = bytes;
        node.value = Some(value);
        let (list, slab) = self.list(part);
        list.refresh(slab, at);
        self.settle(at);
    }

    /// Takes a value out of the table.
    fn take(&mut self, at: u32) -> Option<V> {
        let (list, slab) = self.list(self.slab.node(at).part);
        list.unlink(slab, at);
        self.index.remove(&mut self.slab, at);
        self.slab.free(at)
    }

    /// Notes that a value was asked for.
    #[inline]
    fn touch(&mut self, at: u32) {
        match self.slab.node(at).part {
            Part::Window => self.window.refresh(&mut self.slab, at),
            Part::Protected => self.protected.refresh(&mut self.slab, at),
            Part::Probation => {
                self.shift(at, Part::Protected);
                self.demote();
            }
        }
    }

    /// Moves a value to the front of another part.
    fn shift(&mut self, at: u32, to: Part) {
        let (list, slab) = self.list(self.slab.node(at).part);
        list.unlink(slab, at);
        self.slab.node_mut(at).part = to;
        let (list, slab) = self.list(to);
        list.push_front(slab, at);
    }

    fn list(&mut self, part: Part) -> (&mut List, &mut Slab<V>) {
        let list = match part {
            Part::Window => &mut self.window,
            Part::Probation => &mut self.probation,
            Part::Protected => &mut self.protected,
        };
        (list, &mut self.slab)
    }
}

/// What goes when there is too much.
impl<V> Store<V> {
    /// Brings all parts back into their bounds after `newest` came or changed,
    /// which stays itself: the window keeps its newest value even if that alone
    /// weighs more than a window should.
    fn settle(&mut self, newest: u32) {
        while self.window.len > 1 && self.window_limits.are_exceeded(&self.window) {
            let candidate = self.window.back;
            self.shift(candidate, Part::Probation);
            self.contest(candidate);
        }
        self.demote();
        while let Some(at) = self.coldest(newest).filter(|_| self.excess().is_some()) {
            self.evict(at);
        }
    }

    /// Lets a candidate take the room of colder values, or go.
    fn contest(&mut self, candidate: u32) {
        if self.excess().is_some() && !self.deserves_room(candidate) {
            return self.evict(candidate);
        }
        while let Some(at) = self.coldest(candidate).filter(|_| self.excess().is_some()) {
            self.evict(at);
        }
    }

    /// True if a candidate was asked for more often lately than all values
    /// together that would have to go for it. Nobody can push out many light
    /// answers by asking for a heavy one.
    fn deserves_room(&self, candidate: u32) -> bool {
        let worth = u32::from(self.frequency(self.slab.node(candidate).hash));
        let mut missing = self.excess().unwrap_or(Limits { entries: 0, bytes: 0 });
        let mut price = 0;
        let victims = self.slab.oldest_first(&self.probation);
        let victims = victims.chain(self.slab.oldest_first(&self.protected));
        for (_, victim) in victims.filter(|(at, _)| *at != candidate).take(VICTIMS_MAX) {
            price += u32::from(self.frequency(victim.hash));
            if price >= worth {
                return false;
            }
            missing.entries = missing.entries.saturating_sub(1);
            missing.bytes = missing.bytes.saturating_sub(victim.bytes as usize);
            if missing.entries == 0 && missing.bytes == 0 {
                return true;
            }
        }
        false
    }

    /// Puts the oldest protected values back on probation until the others are
    /// no more than they should be.
    fn demote(&mut self) {
        while self.protected_limits.are_exceeded(&self.protected) {
            self.shift(self.protected.back, Part::Probation);
        }
    }

    fn evict(&mut self, at: u32) {
        self.take(at);
        self.evicted += 1;
    }

    /// The first to go, but for `spared`, which is the front of its part.
    fn coldest(&self, spared: u32) -> Option<u32> {
        let backs = [self.probation.back, self.protected.back, self.window.back];
        backs.into_iter().find(|at| *at != NIL && *at != spared)
    }

    /// By how much the table is too full, if it is.
    fn excess(&self) -> Option<Limits> {
        let excess = Limits {
            entries: self.len().saturating_sub(self.limits.entries),
            bytes: self.bytes().saturating_sub(self.limits.bytes),
        };
        (excess.entries > 0 || excess.bytes > 0).then_some(excess)
    }
}

impl Limits {
    fn are_exceeded(&self, list: &List) -> bool {
        list.len > self.entries || list.bytes > self.bytes
    }
}

/// Without the values: they are many, and what clients asked is theirs.
impl<V> fmt::Debug for Store<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("limits", &self.limits)
            .field("len", &self.len())
            .field("bytes", &self.bytes())
            .field("evicted", &self.evicted)
            .finish_non_exhaustive()
    }
}
