//! Flushes: names whose entries must not be used any more.
//!
//! From the moment of a flush nothing that is older counts as known, wherever
//! it is: in a table, on its way from a peer, in a handover. The tables are
//! then cleaned in steps, so that no client waits for it; when that is done the
//! flush is acknowledged, and it is remembered a while longer for what may
//! still be on its way.

use std::time::Duration;

use wire::Name;

use super::effects::{Effects, Flushed};
use super::{Cell, Due};
use crate::answer::Answer;
use crate::time::Moment;

/// How long a flush is remembered after the tables are clean: longer than
/// anything is on its way.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Places of a table that are cleaned in one step.
const STEP_LEN: usize = 4096;
/// Between two steps clients are answered.
const STEP_EVERY: Duration = Duration::from_micros(500);
/// Flushes that are remembered; more at once are refused. Each is looked at
/// for every hit meanwhile.
const FLUSHES_MAX: usize = 256;

/// What is to be flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Lowered, in wire form.
    pub name: Box<[u8]>,
    /// With all names below it.
    pub with_subtree: bool,
    /// Comes back when it is done.
    pub token: u64,
}

#[derive(Clone, Debug)]
struct Known {
    flush: Flush,
    at: Moment,
    removed: usize,
    /// It was there when the round that goes on began.
    is_in_round: bool,
    /// When it may be forgotten; `None` while tables are being cleaned.
    forget_at: Option<Moment>,
}

impl Known {
    fn names(&self, name: &[u8]) -> bool {
        match self.flush.with_subtree {
            true => Name::from_trusted(name).is_at_or_below(Name::from_trusted(&self.flush.name)),
            false => *self.flush.name == *name,
        }
    }
}

/// The flushes that still matter.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    known: Vec<Known>,
    /// The tables are being cleaned: which, and from where on.
    cleaning: Option<(Table, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    L1,
    L2,
    Failures,
}

impl Flushes {
    /// True if `answer` is older than a flush of its name.
    #[inline]
    pub fn covers(&self, answer: &Answer) -> bool {
        !self.known.is_empty() && self.covers_born(answer, answer.born())
    }

    /// The same for an answer that was asked for at `asked`.
    pub fn covers_since(&self, answer: &Answer, asked: Moment) -> bool {
        !self.known.is_empty() && self.covers_born(answer, answer.born().min(asked))
    }

    #[cold]
    fn covers_born(&self, answer: &Answer, born: Moment) -> bool {
        let name = answer.question().name;
        self.known.iter().any(|known| born <= known.at && known.names(name))
    }
}

impl Cell {
    /// Flushes; done when an effect says so. False if too many flushes are
    /// remembered already.
    #[must_use]
    pub fn flush(&mut self, now: Moment, flush: Flush) -> bool {
        self.forget_flushes(now);
        if self.flushes.known.len() >= FLUSHES_MAX {
            return false;
        }
        let known = Known { flush, at: now, removed: 0, is_in_round: false, forget_at: None };
        self.flushes.known.push(known);
        if self.flushes.cleaning.is_none() {
            self.start_round(now);
        }
        true
    }

    /// Begins to go through the tables, for all flushes there are.
    fn start_round(&mut self, now: Moment) {
        self.flushes.known.iter_mut().for_each(|known| known.is_in_round = true);
        self.flushes.cleaning = Some((Table::L1, 0));
        self.set_timer(now, Due::Flush);
    }

    /// Cleans some places of the tables.
    pub(super) fn flush_some(&mut self, now: Moment, effects: &mut Effects) {
        let Some((table, cursor)) = self.flushes.cleaning else { return self.forget_flushes(now) };
        let store = match table {
            Table::L1 => &mut self.l1,
            Table::L2 => &mut self.l2,
            Table::Failures => &mut self.failures,
        };
        let known = &mut self.flushes.known;
        let (_, next) = store.sweep(cursor, STEP_LEN, |answer| {
            let name = answer.question().name;
            let born = answer.born();
            let hit = known.iter_mut().find(|known| born <= known.at && known.names(name));
            match hit {
                Some(known) => {
                    // L1 and L2 may both have it; people count entries once.
                    known.removed += usize::from(table != Table::L1);
                    false
                }
                None => true,
            }
        });
        let next = match (next, table) {
            (Some(cursor), table) => Some((table, cursor)),
            (None, Table::L1) => Some((Table::L2, 0)),
            (None, Table::L2) => Some((Table::Failures, 0)),
            (None, Table::Failures) => None,
        };
        self.flushes.cleaning = next;
        match next {
            Some(_) => self.set_timer(now + STEP_EVERY, Due::Flush),
            None => self.end_round(now, effects),
        }
    }

    /// The tables were gone through once: what was there from the beginning of
    /// the round is done.
    fn end_round(&mut self, now: Moment, effects: &mut Effects) {
        let is_done = |known: &&mut Known| known.is_in_round && known.forget_at.is_none();
        for known in self.flushes.known.iter_mut().filter(is_done) {
            known.forget_at = Some(now + REMEMBERED);
            effects.flushed.push(Flushed { token: known.flush.token, removed: known.removed });
        }
        if self.flushes.known.iter().any(|known| known.forget_at.is_none()) {
            self.start_round(now);
        }
        self.set_timer(now + REMEMBERED, Due::Flush);
    }

    fn forget_flushes(&mut self, now: Moment) {
        self.flushes.known.retain(|known| known.forget_at.is_none_or(|at| at > now));
    }
}
