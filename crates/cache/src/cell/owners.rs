//! Asking the owners of a question.

use std::time::Duration;

use cluster::{LoadBound, Slot};

use super::effects::Effects;
use super::peers::PROBE_EVERY;
use super::pending::{ASKED_MAX, Pending, Step};
use super::{Cell, Due};
use crate::peer::{CellAddress, Manner, Message};
use crate::slab::Id;
use crate::time::Moment;

/// How long a cell that is at work on a question may be silent about it.
const SILENCE_MAX: Duration = Duration::from_millis(120);
/// How often one that has not said a word about a question is asked again.
const REPEAT_EVERY: Duration = Duration::from_millis(25);
/// Of the questions asked of owners, the part that may be asked of another one
/// because the first is slow: hedging must not double the load of a cluster
/// that is slow because it is loaded.
const HEDGE_PART: f32 = 0.05;
/// Hedges that may be saved up.
pub(super) const HEDGES_MAX: f32 = 64.0;

/// A question that another cell was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub pending: Id,
    /// Whom.
    pub to: CellAddress,
    pub asked: Moment,
    /// It said that it is at work.
    pub is_working: bool,
    pub is_peek: bool,
}

/// The cell that a question belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub member: u16,
    pub cell: u8,
}

impl Cell {
    /// Begins the work on a pending question.
    pub(super) fn start(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get(id) else { return };
        let slot = self.routing.slot(&pending.question);
        let owner = self.routing.owners(slot).first().map(|&member| self.target(member, slot));
        match owner {
            Some(owner) if !self.is_here(owner) => self.step(now, id, effects),
            // Nobody else is there, or it is ours.
            _ => self.start_as_owner(now, id, effects),
        }
        self.schedule(id);
    }

    /// Begins the work on a question that this cell answers for the others.
    pub(super) fn start_as_owner(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        pending.is_owner = true;
        if self.ask_former(now, id, effects) {
            return;
        }
        self.go_upstream(now, id, effects);
    }

    /// Takes the next step with a question whose last step brought nothing in
    /// time.
    pub(super) fn step(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        self.note_silence(now, id);
        let Some(pending) = self.pendings.get(id) else { return };
        match pending.step {
            Step::Owners { asked } => self.ask_next_owner(now, id, asked, effects),
            Step::Previous => {
                self.counts.former_given_up.add(u64::from(self.is_owed(id)));
                self.go_upstream(now, id, effects);
            }
            Step::Turn => self.go_upstream(now, id, effects),
            Step::Upstream { .. } => self.ask_upstream(now, id, effects),
        }
    }

    fn ask_next_owner(&mut self, now: Moment, id: Id, asked: u32, effects: &mut Effects) {
        let Some(pending) = self.pendings.get(id) else { return };
        let slot = self.routing.slot(&pending.question);
        let manner = pending.manner();
        if asked != 0 && now < pending.started + SILENCE_MAX && self.is_somebody_at_it(id) {
            return self.remind(now, id, asked, effects);
        }
        let Some((rank, target)) = self.next_owner(slot, asked) else {
            self.counts.peer_given_up.add(u64::from(self.is_owed(id)));
            return self.go_upstream(now, id, effects);
        };
        if asked != 0 {
            if !self.may_hedge(id) {
                return self.wait_longer(now, id);
            }
            self.counts.peer_given_up.add(u64::from(self.is_owed(id)));
            self.counts.peer_hedged.add(1);
        } else {
            self.hedges = (self.hedges + HEDGE_PART).min(HEDGES_MAX);
        }
        if let Some(pending) = self.pendings.get_mut(id) {
            pending.step = Step::Owners { asked: asked | 1 << rank };
        }
        if self.is_here(target) {
            // It is this heir's turn.
            return self.start_as_owner(now, id, effects);
        }
        self.ask_cell(now, id, target, manner, effects);
    }

    /// The best owner that was not asked yet.
    fn next_owner(&self, slot: Slot, asked: u32) -> Option<(usize, Target)> {
        let owners = self.routing.owners(slot);
        let is_free = |rank: usize| rank < 32 && asked & (1 << rank) == 0;
        let rank = match asked {
            0 => {
                let serving = self.routing.table().serving();
                let bound = LoadBound::new(self.peers.outstanding(), serving);
                let outstanding = |member| self.peers.get(member).outstanding;
                let is_up = |member| !self.peers.get(member).is_suspect;
                cluster::pick(owners, bound, outstanding, is_up)
            }
            _ => {
                let is_up = |rank: &usize| !self.peers.get(owners[*rank]).is_suspect;
                (0..owners.len()).filter(|rank| is_free(*rank)).find(is_up)
            }
        };
        rank.map(|rank| (rank, self.target(owners[rank], slot)))
    }

    /// Bears with an owner that has not said a word yet, but is there as far as
    /// anybody knows. It may not have got its core for a while, and will ask
    /// upstream when it has: nobody else may do so meanwhile. What can be done
    /// is to ask it again, since the question may be lost, and to look whether
    /// the next owner knows the answer.
    fn remind(&mut self, now: Moment, id: Id, asked: u32, effects: &mut Effects) {
        let Some(pending) = self.pendings.get(id) else { return };
        let next_step = (now + REPEAT_EVERY).min(pending.started + SILENCE_MAX);
        // Nobody waits for what is only renewed.
        if !pending.is_refresh && self.may_hedge(id) {
            self.counts.peer_hedged.add(1);
            self.repeat(id, effects);
            self.peek_at_next_owner(now, id, asked, effects);
        }
        if let Some(pending) = self.pendings.get_mut(id) {
            pending.step_at = next_step;
        }
    }

    /// Asks those who were asked to resolve a question once more.
    fn repeat(&mut self, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get(id) else { return };
        for request in pending.requests.into_iter().flatten() {
            let Some(own) = self.requests.get(request).filter(|own| !own.is_peek) else { continue };
            let message = Message::Lookup {
                request: request.token(),
                manner: pending.manner(),
                question: pending.question(),
            };
            effects.say(self.head, own.to, &message);
        }
    }

    /// Asks the next owner what it knows, unless it owes that answer already.
    fn peek_at_next_owner(&mut self, now: Moment, id: Id, asked: u32, effects: &mut Effects) {
        let Some(pending) = self.pendings.get(id) else { return };
        let mut open = pending.requests.iter().flatten().filter_map(|id| self.requests.get(*id));
        if open.any(|own| own.is_peek) {
            return;
        }
        let slot = self.routing.slot(&pending.question);
        // What is known here was looked at first of all.
        let next = self.next_owner(slot, asked).filter(|(_, target)| !self.is_here(*target));
        if let Some((_, target)) = next {
            self.ask_cell(now, id, target, Manner::Peek, effects);
        }
    }

    /// True if a cell that was asked to resolve a question has not answered
    /// yet, but its node is there as far as anybody knows.
    fn is_somebody_at_it(&mut self, id: Id) -> bool {
        let requests = self.pendings.get(id).map_or([None; ASKED_MAX], |own| own.requests);
        let resolvers = requests.map(|id| {
            let own = id.and_then(|id| self.requests.get(id));
            own.filter(|own| !own.is_peek).map(|own| own.to.node)
        });
        let is_there = |hash: u64| self.peers.by_hash(hash).is_some_and(|peer| !peer.is_suspect);
        resolvers.into_iter().flatten().any(is_there)
    }

    /// True if a question may be asked once more although the first owner may
    /// still answer. One whose owner is not there may always.
    fn may_hedge(&mut self, id: Id) -> bool {
        if !self.is_somebody_at_it(id) {
            return true;
        }
        let may = self.hedges >= 1.0;
        if may {
            self.hedges -= 1.0;
        }
        may
    }

    fn wait_longer(&mut self, now: Moment, id: Id) {
        if let Some(pending) = self.pendings.get_mut(id) {
            // Not for ever: next time its owner is silent too long.
            let is_last = now.since(pending.started) >= SILENCE_MAX;
            pending.step_at = now + SILENCE_MAX;
            if is_last {
                self.hedges += 1.0;
            }
        }
    }

    /// Asks one cell.
    pub(super) fn ask_cell(
        &mut self,
        now: Moment,
        id: Id,
        target: Target,
        manner: Manner,
        effects: &mut Effects,
    ) {
        let peer = self.peers.get(target.member);
        let (to, patience) = (peer.cell(target.cell), peer.patience());
        let is_peek = manner == Manner::Peek;
        let request = Request { pending: id, to, asked: now, is_working: false, is_peek };
        let request = self.requests.add(request);
        let Some(pending) = self.pendings.get_mut(id) else { return };
        let Some(free) = pending.requests.iter_mut().find(|own| own.is_none()) else {
            // All places are taken: enough were asked.
            self.requests.remove(request);
            return self.go_upstream(now, id, effects);
        };
        *free = Some(request);
        pending.step_at = now + patience;
        let message =
            Message::Lookup { request: request.token(), manner, question: pending.question() };
        effects.say(self.head, to, &message);
        self.peers.owe(to.node, true);
        self.counts.peer_asked.add(1);
    }

    /// Forgets a question that another cell was asked.
    pub(super) fn end_request(&mut self, request: Id) {
        if let Some(request) = self.requests.remove(request) {
            self.peers.owe(request.to.node, false);
        }
    }

    /// Another cell said that it is at work.
    pub(super) fn note_working(&mut self, now: Moment, request: Id) {
        let Some(own) = self.requests.get_mut(request) else { return };
        own.is_working = true;
        let id = own.pending;
        if let Some(pending) = self.pendings.get_mut(id)
            // Later on others are waited for.
            && matches!(pending.step, Step::Owners { .. })
        {
            pending.step_at = now + SILENCE_MAX;
            self.schedule(id);
        }
    }

    /// The cells that were asked about this question and said nothing.
    fn note_silence(&mut self, now: Moment, id: Id) {
        let Some(pending) = self.pendings.get(id) else { return };
        if !matches!(pending.step, Step::Owners { .. } | Step::Previous) {
            return;
        }
        for request in pending.requests.into_iter().flatten() {
            let Some(own) = self.requests.get(request).copied() else { continue };
            self.counts.peer_silent.add(1);
            // A cell of this very node is there, or the node is not.
            let is_own = own.to.node == self.head.from;
            if !is_own && self.peers.by_hash(own.to.node).is_some_and(|peer| peer.note_silence(now))
            {
                self.start_probing(now + PROBE_EVERY);
            }
        }
    }

    /// True if somebody who was asked owes a word about a question. One that
    /// goes on without it may be asked upstream twice.
    fn is_owed(&self, id: Id) -> bool {
        self.pendings.get(id).is_some_and(|own| own.requests.iter().any(Option::is_some))
    }

    /// Sees to it that those who are suspected are probed, from `moment` on.
    pub(super) fn start_probing(&mut self, moment: Moment) {
        if !std::mem::replace(&mut self.is_probing, true) {
            self.set_timer(moment, Due::Probes);
        }
    }

    /// Probes the members that are suspected.
    pub(super) fn probe(&mut self, now: Moment, effects: &mut Effects) {
        self.is_probing = false;
        let suspects = self.peers.iter().filter(|peer| peer.is_suspect);
        let addresses: Vec<CellAddress> = suspects.map(|peer| peer.cell(0)).collect();
        for &address in &addresses {
            effects.say(self.head, address, &Message::Ping { request: 0 });
        }
        if !addresses.is_empty() {
            self.start_probing(now + PROBE_EVERY);
        }
    }

    /// The cell of `member` that a slot belongs to.
    pub(super) fn target(&self, member: u16, slot: Slot) -> Target {
        let cells = self.peers.get(member).cells;
        Target { member, cell: (slot.number() % cells.max(1) as usize) as u8 }
    }

    pub(super) fn is_here(&self, target: Target) -> bool {
        Some(target.member) == self.own && target.cell == self.config.cell
    }

    /// True if this cell is one of those that keep the answer to a question.
    pub(super) fn is_heir(&self, pending: &Pending) -> bool {
        let slot = self.routing.slot(&pending.question);
        let owners = self.routing.owners(slot);
        owners.iter().any(|&member| self.is_here(self.target(member, slot)))
    }
}

#[cfg(test)]
mod tests;
