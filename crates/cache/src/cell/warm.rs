//! Keeping entries warm while owners change: another routing, heirs, and the
//! handover to new owners.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Moves, Routing, Standing};

use super::ask::is_old;
use super::effects::Effects;
use super::owners::Target;
use super::pending::{Pending, Step};
use super::{Cell, Due};
use crate::answer::Answer;
use crate::peer::{FrameHead, Manner, Message};
use crate::slab::Id;
use crate::time::Moment;

/// How long former owners are asked after members changed: the handover is
/// long done by then.
const WARM_VIEW: Duration = Duration::from_secs(60);
/// How long a newcomer may still learn of others after it learned of one.
const LEARNING: Duration = Duration::from_secs(1);
/// How long they are asked after the key changed: nothing is handed over then,
/// entries move when they are asked for.
const WARM_KEY: Duration = Duration::from_secs(3600);
/// Former routings that are kept.
const PREVIOUS_MAX: usize = 3;
/// Entries that are looked at in one step of a handover.
const STEP_LEN: usize = 512;
/// Between two steps clients are answered.
const STEP_EVERY: Duration = Duration::from_millis(2);
/// Entries that are asked for as often as this are handed over first.
const VALUED: u8 = 3;
/// Entries that are handed over at the most: the hottest of them all.
const HANDOVER_MAX: usize = 500_000;

/// A routing from before.
#[derive(Clone, Debug)]
pub(super) struct Previous {
    routing: Arc<Routing>,
    until: Moment,
}

/// Entries on their way to new owners.
#[derive(Clone, Debug)]
pub(super) struct HandoverJob {
    before: Arc<Routing>,
    cursor: usize,
    /// First those that are valued, then the others.
    is_second_pass: bool,
    sent: usize,
}

impl Cell {
    /// Routes as `routing` says from now on.
    pub fn set_routing(&mut self, now: Moment, routing: Arc<Routing>) {
        if routing.tag() == self.routing.tag() {
            return;
        }
        let before = self.take_routing(now, routing);
        let is_same_key = before.epoch().number == self.routing.epoch().number;
        let warm = if is_same_key { WARM_VIEW } else { WARM_KEY };
        self.previous.retain(|previous| previous.until > now);
        self.previous.insert(0, Previous { routing: before.clone(), until: now + warm });
        if self.previous.len() > PREVIOUS_MAX {
            self.forget_one_previous();
        }
        if is_same_key && !self.l2.is_empty() {
            // One that was under way begins again, from what was before it: its
            // newcomers may not have got everything.
            let unfinished = self.handover.take();
            let is_new = unfinished.is_none();
            let before = unfinished.map_or(before, |job| job.before);
            self.handover = Some(HandoverJob { before, cursor: 0, is_second_pass: false, sent: 0 });
            if is_new {
                self.set_timer(now, Due::Handover);
            }
        }
    }

    /// Tells a cell that is new in its cluster how the others route without
    /// it, and did under the key before: until it was handed what it owns now,
    /// they are asked. A newcomer may learn of them one by one, so that its own
    /// former routings say little.
    pub fn set_routing_without_us(
        &mut self,
        now: Moment,
        routing: Arc<Routing>,
        under_former_key: Option<Arc<Routing>>,
    ) {
        let current = Previous { routing, until: now + WARM_VIEW };
        let former = under_former_key.map(|routing| Previous { routing, until: now + WARM_KEY });
        self.without_us = std::iter::once(current).chain(former).collect();
        self.learns_until = now + LEARNING;
    }

    /// Forgets the oldest of the former routings that share their key with
    /// another. The last one under a key leads to what no other leads to.
    fn forget_one_previous(&mut self) {
        let key_of = |previous: &Previous| previous.routing.epoch().number;
        let is_newer_there = |at: usize| {
            let key = key_of(&self.previous[at]);
            self.previous[..at].iter().any(|newer| key_of(newer) == key)
        };
        let oldest = (0..self.previous.len()).rfind(|at| is_newer_there(*at));
        self.previous.remove(oldest.unwrap_or(self.previous.len() - 1));
    }

    /// Takes a routing; returns the one before.
    pub(super) fn take_routing(&mut self, now: Moment, routing: Arc<Routing>) -> Arc<Routing> {
        self.own = routing.index_of(&self.config.name);
        self.head = FrameHead { tag: routing.tag(), ..self.head };
        self.peers.take(routing.view());
        let nodes = routing.table().serving().max(1) as f64;
        let share = 1.0 / (nodes * f64::from(self.config.cells.max(1)));
        self.budget.set(self.config.upstream_per_sec.map(|all| all * share));
        if self.peers.iter().any(|peer| peer.is_suspect) {
            self.start_probing(now);
        }
        std::mem::replace(&mut self.routing, routing)
    }

    /// Asks the cells that owned a question before what they still know, and the
    /// one that owns it if that is not this one; false if there is none to ask.
    pub(super) fn ask_former(&mut self, now: Moment, id: Id, effects: &mut Effects) -> bool {
        let Some(pending) = self.pendings.get(id) else { return false };
        // What is to be renewed is known here.
        if pending.is_refresh {
            return false;
        }
        let mut formers = self.former_owners(now, &pending.question);
        let Some(pending) = self.pendings.get_mut(id) else { return false };
        formers.truncate(pending.requests.iter().filter(|place| place.is_none()).count());
        if formers.is_empty() {
            return false;
        }
        pending.step = Step::Previous;
        for former in formers {
            self.ask_cell(now, id, former, Manner::Peek, effects);
        }
        true
    }

    /// Of each former routing the cell to ask. One of them alone would not do:
    /// what nobody asked for between two changes is where it was before both.
    ///
    /// Who asks a cell that does not own the question routes as another view
    /// says; whoever owns it may know it.
    fn former_owners(&self, now: Moment, question: &[u8]) -> Vec<Target> {
        let mut formers = Vec::with_capacity(PREVIOUS_MAX);
        let slot = self.routing.slot(question);
        let mut owners = self.routing.owners(slot).iter().map(|&member| self.target(member, slot));
        if !owners.clone().any(|owner| self.is_here(owner)) {
            formers.extend(owners.find(|owner| !self.peers.get(owner.member).is_suspect));
        }
        for Previous { routing, until } in self.without_us.iter().chain(&self.previous) {
            let slot = routing.slot(question);
            let mut owners = routing.owners(slot).iter().filter_map(|&member| {
                let former = &routing.view().members()[member as usize];
                let member = self.routing.index_of(&former.name)?;
                let peer = self.peers.get(member);
                // Its next self has nothing.
                let is_there = peer.incarnation == former.incarnation && !peer.is_suspect;
                is_there.then(|| self.target(member, slot))
            });
            let owner = owners.find(|target| !self.is_here(*target));
            formers.extend(owner.filter(|owner| *until > now && !formers.contains(owner)));
        }
        formers
    }

    /// Sends a new entry to the others that keep it.
    pub(super) fn tell_heirs(
        &mut self,
        now: Moment,
        pending: &Pending,
        answer: &Answer,
        effects: &mut Effects,
    ) {
        let slot = self.routing.slot(&pending.question);
        let owners = self.routing.owners(slot).iter();
        let heirs: Vec<Target> = owners
            .map(|&member| self.target(member, slot))
            .filter(|target| !self.is_here(*target))
            .filter(|target| !self.peers.get(target.member).is_suspect)
            .collect();
        if heirs.is_empty() {
            return;
        }
        self.scratch.clear();
        answer.encode(now, &mut self.scratch);
        let message = Message::Put { is_hot: false, answer: &self.scratch };
        for heir in heirs {
            let to = self.peers.get(heir.member).cell(heir.cell);
            effects.say(self.head, to, &message);
            self.counts.puts_sent.add(1);
        }
    }

    /// Renews an entry of L2 whose time is nearly over and that others ask for.
    pub(super) fn refresh_for_peers(
        &mut self,
        now: Moment,
        hash: u64,
        answer: &Arc<Answer>,
        effects: &mut Effects,
    ) {
        let question = answer.question();
        let is_wanted = self.config.prefetch
            && is_old(answer, now)
            && self.pendings.len() < self.config.pending_max
            && self.pendings.find(hash, &question).is_none()
            && !self.failed_lately(now, hash, &question);
        if !is_wanted || !self.may_renew(now, hash) {
            return;
        }
        self.counts.prefetches.add(1);
        let id = self.add_pending(now, hash, &question, None, None);
        if let Some(pending) = self.pendings.get_mut(id) {
            pending.is_refresh = true;
        }
        self.start_as_owner(now, id, effects);
        self.schedule(id);
    }

    /// A question that this cell passed to another, which now others ask it
    /// for: it resolves it itself, or both would wait for each other.
    pub(super) fn take_over(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let is_passed_on = self
            .pendings
            .get(id)
            .is_some_and(|own| !own.is_owner && matches!(own.step, Step::Owners { .. }));
        if is_passed_on {
            self.start_as_owner(now, id, effects);
        }
    }

    /// Places of L2 that the handover has still to look at.
    pub(super) fn handover_left(&self) -> usize {
        let Some(job) = &self.handover else { return 0 };
        let len = self.l2.len();
        match job.is_second_pass {
            true => len.saturating_sub(job.cursor),
            false => 2 * len - job.cursor.min(len),
        }
    }

    /// Hands some entries over to their new owners.
    pub(super) fn hand_over_some(&mut self, now: Moment, effects: &mut Effects) {
        let Some(mut job) = self.handover.take() else { return };
        let mut seen: Vec<Arc<Answer>> = Vec::with_capacity(STEP_LEN);
        let (_, next) = self.l2.sweep(job.cursor, STEP_LEN, |answer| {
            seen.push(answer.clone());
            true
        });
        self.hand_over(now, &mut job, &seen, effects);
        let is_over = match next {
            Some(cursor) => {
                job.cursor = cursor;
                false
            }
            None => {
                job.cursor = 0;
                std::mem::replace(&mut job.is_second_pass, true)
            }
        };
        if !is_over && job.sent < HANDOVER_MAX {
            self.handover = Some(job);
            self.set_timer(now + STEP_EVERY, Due::Handover);
        }
    }

    fn hand_over(
        &mut self,
        now: Moment,
        job: &mut HandoverJob,
        entries: &[Arc<Answer>],
        effects: &mut Effects,
    ) {
        let before = job.before.clone();
        let routing = self.routing.clone();
        // With another key meanwhile entries move when they are asked for.
        let Some(moves) = Moves::between(&before, &routing) else { return };
        let members = routing.view().members();
        let is_leaving =
            self.own.is_some_and(|own| members[own as usize].standing == Standing::Draining);
        for answer in entries {
            let question = answer.question();
            let is_valued = self.l2.frequency(question.hash(&self.table_key)) >= VALUED;
            if is_valued == job.is_second_pass || !answer.is_fresh(now) {
                continue;
            }
            self.scratch.clear();
            question.encode(&mut self.scratch);
            let slot = routing.slot(&self.scratch);
            // Of those who have it only the first hands it over. What is here
            // although it belongs elsewhere, since before the last rotation of
            // the key, nobody else may have: it must not leave with this node.
            let heirs: Vec<u16> = match moves.former(slot).any(|former| Some(former) == self.own) {
                true if moves.former(slot).next() == self.own => moves.gained(slot).collect(),
                false if is_leaving => routing.owners(slot).to_vec(),
                _ => continue,
            };
            self.scratch.clear();
            answer.encode(now, &mut self.scratch);
            for member in heirs {
                let Target { member, cell } = self.target(member, slot);
                let name = &self.peers.get(member).name;
                effects.hand_over(name, cell, &self.scratch);
                self.counts.handover_sent.add(1);
                job.sent += 1;
            }
        }
    }

    /// Takes entries that a former owner hands over; returns how many are
    /// kept, nothing if they are not well formed.
    ///
    /// They `waited` since they were written, and are older by that.
    pub fn take_handover(
        &mut self,
        now: Moment,
        waited: Duration,
        mut octets: &[u8],
    ) -> Option<usize> {
        let written = Moment(now.0.saturating_sub(waited.as_micros() as u64));
        let mut kept = 0;
        while !octets.is_empty() {
            let Some((answer, rest)) = Answer::decode(octets, written) else {
                self.counts.peer_malformed.add(1);
                return None;
            };
            octets = rest;
            self.counts.handover_taken.add(1);
            kept += usize::from(self.keep(now, answer, false));
        }
        Some(kept)
    }
}
