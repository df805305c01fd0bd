//! Questions that wait for their answer: one entry for each, however many ask.

use std::sync::Arc;

use hashbrown::HashTable;
use wire::Flags;

use super::ask::Opt;
use super::effects::Asker;
use super::follow::Head;
use crate::answer::Answer;
use crate::peer::{CellAddress, Manner};
use crate::question::Question;
use crate::slab::{Id, Slab};
use crate::time::Moment;

/// Whoever waits for one question at the most.
pub const WAITERS_MAX: usize = 4096;
/// Other cells that one question is asked of at the same time at the most.
pub const ASKED_MAX: usize = 4;

/// Who waits.
#[derive(Clone, Debug)]
pub enum Waiter {
    Client(Client),
    Peer(PeerWaiter),
}

/// A client that waits, with what its reply needs.
#[derive(Clone, Debug)]
pub struct Client {
    pub asker: Asker,
    /// The place of its counter among those of busy sources.
    pub source: u16,
    pub id: u16,
    pub flags: Flags,
    /// Name, type and class as it sent them.
    pub question: Box<[u8]>,
    pub limit: usize,
    pub opt: Option<Opt>,
}

/// A cell that waits.
#[derive(Clone, Copy, Debug)]
pub struct PeerWaiter {
    pub to: CellAddress,
    pub request: u64,
}

/// What is being done about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its owners are asked; a bit for each rank that was.
    Owners { asked: u32 },
    /// The owner it had before is asked what it still knows.
    Previous,
    /// It waits for its turn within the upstream budget.
    Turn,
    /// Upstream servers are asked; a bit for each that was, and how often in
    /// all.
    Upstream { tried: u64, sends: u8 },
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Pending {
    pub hash: u64,
    /// Encoded.
    pub question: Box<[u8]>,
    pub waiters: Vec<Waiter>,
    pub step: Step,
    /// This cell answers for the cluster: it keeps the answer in L2, and tells
    /// the heirs.
    pub is_owner: bool,
    /// What is about to expire is not good enough.
    pub is_refresh: bool,
    /// The answer is renewed for clients to come: it goes to L1 although no
    /// client waits.
    pub for_l1: bool,
    /// What is known of the answer while an alias is followed.
    pub head: Option<Box<Head>>,
    /// What can be said if nothing better comes.
    pub stale: Option<Arc<Answer>>,
    /// What other cells were asked.
    pub requests: [Option<Id>; ASKED_MAX],
    pub flights: Vec<Id>,
    pub started: Moment,
    /// When the next step is due.
    pub step_at: Moment,
    /// When those who wait get stale data, if there is any.
    pub stale_at: Option<Moment>,
    /// When the cells that wait are told that it goes on.
    pub working_at: Option<Moment>,
    /// When nobody waits any more.
    pub ends_at: Moment,
    /// When it is looked at next.
    pub wakes_at: Moment,
}

impl Pending {
    pub fn question(&self) -> Question<'_> {
        let decoded = Question::decode(&self.question);
        decoded.expect("it was encoded by this process").0
    }

    /// How its owners are asked.
    pub fn manner(&self) -> Manner {
        if self.is_refresh { Manner::Refresh } else { Manner::Resolve }
    }

    /// What upstream is asked: the question, or what its answer's aliases lead
    /// to.
    pub fn asked(&self) -> Question<'_> {
        self.head.as_ref().map_or_else(|| self.question(), |head| head.question())
    }

    /// The earliest of its times.
    pub fn next_time(&self) -> Moment {
        let times = [self.stale_at, self.working_at, Some(self.ends_at)];
        times.into_iter().flatten().fold(self.step_at, Moment::min)
    }
}

/// All pending questions.
#[derive(Debug, Default)]
pub struct Pendings {
    pendings: Slab<Pending>,
    /// Places.
    by_hash: HashTable<u32>,
}

impl Pendings {
    pub fn len(&self) -> usize {
        self.pendings.len()
    }

    /// The pending question that asks the same.
    pub fn find(&self, hash: u64, question: &Question<'_>) -> Option<Id> {
        let is_it = |place: &u32| {
            let pending = self.pendings.at(*place).map(|(_, pending)| pending);
            pending.is_some_and(|own| own.hash == hash && own.question() == *question)
        };
        let place = *self.by_hash.find(hash, is_it)?;
        self.pendings.at(place).map(|(id, _)| id)
    }

    pub fn add(&mut self, pending: Pending) -> Id {
        let hash = pending.hash;
        let id = self.pendings.add(pending);
        let pendings = &self.pendings;
        let rehash = |place: &u32| pendings.at(*place).map_or(0, |(_, pending)| pending.hash);
        self.by_hash.insert_unique(hash, id.place(), rehash);
        id
    }

    pub fn get(&self, id: Id) -> Option<&Pending> {
        self.pendings.get(id)
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut Pending> {
        self.pendings.get_mut(id)
    }

    pub fn remove(&mut self, id: Id) -> Option<Pending> {
        let pending = self.pendings.remove(id)?;
        if let Ok(found) = self.by_hash.find_entry(pending.hash, |place| *place == id.place()) {
            found.remove();
        }
        Some(pending)
    }
}
