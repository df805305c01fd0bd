//! What other cells say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Cell;
use super::ask::is_old;
use super::effects::Effects;
use super::pending::{PeerWaiter, Step, WAITERS_MAX, Waiter};
use super::reply::{OWNER_FAILED, Source};
use crate::answer::{Answer, Kind};
use crate::peer::{CellAddress, FrameHead, Manner, Message};
use crate::question::Question;
use crate::slab::Id;
use crate::time::Moment;

/// How often a cell that waits is told that its question is being worked on.
const WORKING_EVERY: Duration = Duration::from_millis(40);

impl Cell {
    /// Takes a frame that came from `source`, from that node's cell `cell`.
    /// False if it was not well formed to its end.
    pub fn take_frame(
        &mut self,
        now: Moment,
        (source, cell): (SocketAddr, u8),
        frame: &[u8],
        effects: &mut Effects,
    ) -> bool {
        let Some((head, messages)) = FrameHead::read(frame) else {
            self.counts.peer_malformed.add(1);
            return false;
        };
        if head.tag != self.head.tag {
            self.counts.peer_disagreed.add(1);
        }
        if let Some(peer) = self.peers.by_hash(head.from) {
            peer.note_life(now);
        }
        let from = CellAddress { node: head.from, address: source, cell };
        let agrees = head.tag == self.head.tag;
        for message in messages {
            let is_good = match message {
                Ok(message) => self.take_message(now, from, agrees, message, effects),
                Err(_) => false,
            };
            if !is_good {
                self.counts.peer_malformed.add(1);
                return false;
            }
        }
        true
    }

    fn take_message(
        &mut self,
        now: Moment,
        from: CellAddress,
        agrees: bool,
        message: Message<'_>,
        effects: &mut Effects,
    ) -> bool {
        match message {
            Message::Lookup { request, manner, question } => {
                let peer = PeerWaiter { to: from, request };
                self.serve(now, peer, agrees, manner, &question, effects);
            }
            Message::Answer { request, is_stale, answer } => {
                return self.take_answer(now, Id::from_token(request), is_stale, answer, effects);
            }
            Message::Working { request } => {
                let request = Id::from_token(request);
                self.note_word(now, request);
                self.note_working(now, request);
            }
            Message::Miss { request } | Message::Refused { request } => {
                self.pass_by(now, Id::from_token(request), effects);
            }
            Message::Put { is_hot, answer } => return self.take_put(now, is_hot, answer),
            Message::Ping { request } => {
                effects.say(self.head, from, &Message::Pong { request });
            }
            // Its frame has told everything.
            Message::Pong { .. } => {}
        }
        true
    }

    /// Answers another cell's question, or takes it on. `agrees` if both route
    /// alike.
    fn serve(
        &mut self,
        now: Moment,
        peer: PeerWaiter,
        agrees: bool,
        manner: Manner,
        question: &Question<'_>,
        effects: &mut Effects,
    ) {
        self.counts.peer_served.add(1);
        let hash = question.hash(&self.table_key);
        let known = self.l2.get(hash, |answer| answer.is_for(question)).cloned();
        let known = known.filter(|answer| !self.flushes.covers(answer));
        if let Some(answer) = known.as_ref().filter(|answer| answer.is_fresh(now))
            && !(manner == Manner::Refresh && is_old(answer, now))
        {
            self.counts.peer_hits.add(1);
            self.answer_peer(now, peer, answer, effects);
            if manner != Manner::Peek {
                self.note_heat(now, hash, answer, effects);
                self.refresh_for_peers(now, hash, answer, effects);
            }
            return;
        }
        if manner == Manner::Peek {
            return effects.say(self.head, peer.to, &Message::Miss { request: peer.request });
        }
        let stale = self.usable_stale(now, hash, question, known);
        if self.failed_lately(now, hash, question) {
            let failure = Answer::failure(*question, self.config.ttl.failure_secs, now);
            return self.answer_peer(now, peer, stale.as_deref().unwrap_or(&failure), effects);
        }
        let pending = self.pendings.find(hash, question);
        let waits = pending.and_then(|id| self.pendings.get(id)).map_or(0, |own| own.waiters.len());
        // While this cell still learns who is there, whoever asks knows better
        // whom else to ask.
        let is_learning =
            self.peers.by_hash(peer.to.node).is_none() || !agrees && now < self.learns_until;
        if pending.is_none() && is_learning
            || waits >= WAITERS_MAX
            || pending.is_none() && self.pendings.len() >= self.config.pending_max
        {
            self.counts.peer_refused.add(1);
            return effects.say(self.head, peer.to, &Message::Refused { request: peer.request });
        }
        effects.say(self.head, peer.to, &Message::Working { request: peer.request });
        let id = match pending {
            Some(id) => {
                self.join(now, id, Waiter::Peer(peer), stale);
                self.take_over(now, id, effects);
                id
            }
            None => {
                let id = self.add_pending(now, hash, question, Some(Waiter::Peer(peer)), stale);
                if let Some(pending) = self.pendings.get_mut(id) {
                    // What a former owner has would be what is to be renewed.
                    pending.is_refresh = manner == Manner::Refresh;
                }
                self.start_as_owner(now, id, effects);
                id
            }
        };
        if let Some(pending) = self.pendings.get_mut(id)
            && pending.working_at.is_none()
        {
            pending.working_at = Some(now + WORKING_EVERY);
        }
        self.schedule(id);
    }

    /// Tells the cells that wait for a question that it goes on.
    pub(super) fn say_working(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        if pending.working_at.is_none_or(|at| at > now) {
            return;
        }
        pending.working_at = Some(now + WORKING_EVERY);
        for waiter in &pending.waiters {
            if let Waiter::Peer(PeerWaiter { to, request }) = *waiter {
                effects.say(self.head, to, &Message::Working { request });
            }
        }
    }

    fn take_answer(
        &mut self,
        now: Moment,
        request: Id,
        is_stale: bool,
        octets: &[u8],
        effects: &mut Effects,
    ) -> bool {
        let Some((answer, [])) = Answer::decode(octets, now) else { return false };
        // Somebody else may have answered before.
        let Some(own) = self.requests.get(request).copied() else { return true };
        let Some(pending) = self.pendings.get_mut(own.pending) else { return true };
        if !answer.is_for(&pending.question()) {
            return false;
        }
        if answer.kind() == Kind::Failure {
            self.note_word(now, request);
            self.fail(now, own.pending, OWNER_FAILED, effects);
            return true;
        }
        if is_stale {
            // What the owner has is at least as new as what is here. It is kept
            // for those who ask while the failure is remembered.
            let (hash, answer) = (pending.hash, Arc::new(answer));
            pending.stale = Some(answer.clone());
            if !self.flushes.covers(&answer) {
                self.keep_in_l1(hash, &answer);
            }
            self.note_word(now, request);
            self.fail(now, own.pending, OWNER_FAILED, effects);
            return true;
        }
        // Only owners look at what others had before.
        let is_former = own.is_peek && pending.is_owner;
        self.note_word(now, request);
        let source = match is_former {
            true => Source::Former,
            false => Source::Owner { was_pending: own.is_working },
        };
        if is_former {
            self.counts.warmed.add(1);
        }
        self.complete(now, own.pending, Arc::new(answer), source, effects);
        true
    }

    /// A cell that was asked answered the first time.
    fn note_word(&mut self, now: Moment, request: Id) {
        let Some(own) = self.requests.get(request) else { return };
        if !own.is_working {
            let took = now.since(own.asked);
            self.counts.peer_us.observe(took.as_micros() as u64, 1);
            if let Some(peer) = self.peers.by_hash(own.to.node) {
                peer.note_word(took);
            }
        }
    }

    /// A cell that was asked cannot help: on to the next step at once.
    fn pass_by(&mut self, now: Moment, request: Id, effects: &mut Effects) {
        self.note_word(now, request);
        let Some(own) = self.requests.get(request).copied() else { return };
        self.end_request(request);
        let Some(pending) = self.pendings.get_mut(own.pending) else { return };
        for place in pending.requests.iter_mut().filter(|place| **place == Some(request)) {
            *place = None;
        }
        let mut open = pending.requests.iter().flatten().filter_map(|id| self.requests.get(*id));
        let is_over = match pending.step {
            // That the next owner does not know it says nothing about the
            // first one, which is still at it.
            Step::Owners { .. } => !own.is_peek,
            // Others who owned it may still know. Not those who were asked to
            // resolve it before: they may wait for this very cell.
            Step::Previous => !open.any(|request| request.is_peek),
            // It went on without this cell.
            Step::Turn | Step::Upstream { .. } => false,
        };
        if is_over {
            self.step(now, own.pending, effects);
            self.schedule(own.pending);
        }
    }

    /// An entry to keep.
    fn take_put(&mut self, now: Moment, is_hot: bool, octets: &[u8]) -> bool {
        let Some((answer, [])) = Answer::decode(octets, now) else { return false };
        self.counts.puts_taken.add(1);
        self.keep(now, answer, is_hot);
        true
    }

    /// Keeps an entry of another cell, unless it is of no use.
    pub(super) fn keep(&mut self, now: Moment, answer: Answer, is_hot: bool) -> bool {
        let is_good = answer.is_cacheable()
            && answer.kind() != Kind::Failure
            && answer.is_fresh(now)
            && !self.flushes.covers(&answer);
        if !is_good {
            return false;
        }
        let hash = answer.question().hash(&self.table_key);
        let answer = Arc::new(answer);
        if is_hot {
            self.keep_in_l1(hash, &answer);
            return true;
        }
        self.keep_in_l2(hash, &answer)
    }
}
