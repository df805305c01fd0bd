//! Pending questions that come to their end: an answer, or none.

use std::sync::Arc;

use wire::ExtendedError;

use super::Cell;
use super::ask::{opt_reply, stale_ttl};
use super::effects::{Effects, Reply};
use super::pending::{Client, PeerWaiter, Pending, Waiter};
use crate::answer::{Answer, ReplyTo};
use crate::peer::Message;
use crate::slab::Id;
use crate::time::Moment;

/// Nobody answered in time.
pub(super) const TOO_LATE: ExtendedError =
    ExtendedError { code: 22, text: "no upstream server answered in time" };
/// All upstream servers said that they cannot.
pub(super) const UPSTREAM_FAILED: ExtendedError =
    ExtendedError { code: 22, text: "the upstream servers failed on this question" };
/// No server is set for the name.
pub(super) const NO_UPSTREAM: ExtendedError =
    ExtendedError { code: 22, text: "no upstream server is set for this name" };
/// It failed a moment ago (RFC 9520).
pub(super) const CACHED_FAILURE: ExtendedError =
    ExtendedError { code: 13, text: "this question failed a moment ago" };
/// Too much is pending.
pub(super) const OVERLOADED: ExtendedError =
    ExtendedError { code: 14, text: "too many questions are pending" };
/// The cluster may not ask upstream as often as it is asked.
pub(super) const OVER_BUDGET: ExtendedError =
    ExtendedError { code: 14, text: "the budget of upstream questions is used up" };
/// Aliases lead from server to server and to no end.
pub(super) const ALIASES_ENDLESS: ExtendedError =
    ExtendedError { code: 0, text: "the chain of aliases is too long or leads back to itself" };
/// What several servers said does not fit one message.
pub(super) const ALIASES_OVERSIZED: ExtendedError =
    ExtendedError { code: 0, text: "the chain of aliases does not fit a message" };
/// Another cell could not answer it.
pub(super) const OWNER_FAILED: ExtendedError =
    ExtendedError { code: 22, text: "the node that owns this name could not resolve it" };

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Upstream,
    /// The cell that owns the question; `was_pending` if it had to ask first.
    Owner {
        was_pending: bool,
    },
    /// The cell that owned it before.
    Former,
}

impl Cell {
    /// Ends a pending question with `answer`: keeps it where it belongs and
    /// tells everybody who waits.
    pub(super) fn complete(
        &mut self,
        now: Moment,
        id: Id,
        answer: Arc<Answer>,
        source: Source,
        effects: &mut Effects,
    ) {
        let Some(pending) = self.take_pending(id, effects) else { return };
        let has_client = pending.waiters.iter().any(|waiter| matches!(waiter, Waiter::Client(_)));
        // What was asked before a flush may be what was to be flushed.
        let is_good = answer.is_cacheable()
            && answer.is_fresh(now)
            && !self.flushes.covers_since(&answer, pending.started);
        if is_good {
            if pending.is_owner || self.is_heir(&pending) {
                self.keep_in_l2(pending.hash, &answer);
            }
            if pending.is_owner && source == Source::Upstream {
                self.tell_heirs(now, &pending, &answer, effects);
            }
            if has_client || pending.for_l1 {
                self.keep_in_l1(pending.hash, &answer);
            }
        }
        let clients = pending.waiters.iter().filter(|waiter| matches!(waiter, Waiter::Client(_)));
        match source {
            Source::Owner { was_pending: false } => {
                self.counts.remote_hits.add(clients.count() as u64)
            }
            _ => self.counts.misses.add(clients.count() as u64),
        }
        self.release(now, pending.waiters, &answer, None, effects);
    }

    /// Ends a pending question for which there is no answer: those who wait
    /// get data past its time, or else a failure, which is remembered.
    pub(super) fn fail(
        &mut self,
        now: Moment,
        id: Id,
        error: ExtendedError,
        effects: &mut Effects,
    ) {
        if let Some(answer) = self.came_meanwhile(now, id) {
            return self.complete(now, id, answer, Source::Owner { was_pending: true }, effects);
        }
        let Some(mut pending) = self.take_pending(id, effects) else { return };
        let failure =
            Arc::new(Answer::failure(pending.question(), self.config.ttl.failure_secs, now));
        // Being short of something ourselves says nothing about the question.
        let is_ours = error == OVER_BUDGET;
        if !is_ours {
            let question = pending.question();
            let len = failure.len();
            self.failures.insert(pending.hash, failure.clone(), len, |own| own.is_for(&question));
        }
        let mut waiters = std::mem::take(&mut pending.waiters);
        if is_ours {
            self.refuse_peers(&mut waiters, effects);
        }
        // What came meanwhile and is past its time by now is still better.
        let stale = pending.stale.take().or_else(|| {
            let question = pending.question();
            let in_l2 = self.l2.peek(pending.hash, |own| own.is_for(&question)).cloned();
            self.usable_stale(now, pending.hash, &question, in_l2)
        });
        let stale = stale.filter(|stale| self.may_serve_stale(stale));
        match stale {
            Some(stale) => self.release(now, waiters, &stale, None, effects),
            None => self.release(now, waiters, &failure, Some(error), effects),
        }
    }

    /// The answer to a pending question, if another cell sent it of its own
    /// accord. What is to be renewed has one, which is no news.
    fn came_meanwhile(&self, now: Moment, id: Id) -> Option<Arc<Answer>> {
        let pending = self.pendings.get(id).filter(|pending| !pending.is_refresh)?;
        let question = pending.question();
        let is_it = |own: &Arc<Answer>| own.is_for(&question);
        let known = [self.l2.peek(pending.hash, is_it), self.l1.peek(pending.hash, is_it)];
        let mut fresh = known.into_iter().flatten().filter(|answer| answer.is_fresh(now));
        fresh.find(|answer| !self.flushes.covers(answer)).cloned()
    }

    /// Lets the cells that wait ask somebody else.
    fn refuse_peers(&self, waiters: &mut Vec<Waiter>, effects: &mut Effects) {
        waiters.retain(|waiter| match waiter {
            Waiter::Peer(PeerWaiter { to, request }) => {
                effects.say(self.head, *to, &Message::Refused { request: *request });
                false
            }
            Waiter::Client(_) => true,
        });
    }

    /// Gives those who wait data past its time; the question goes on, for
    /// those who come later.
    pub(super) fn release_with_stale(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        pending.stale_at = None;
        let stale = pending.stale.clone();
        let Some(stale) = stale.filter(|stale| self.may_serve_stale(stale)) else { return };
        let Some(pending) = self.pendings.get_mut(id) else { return };
        let waiters = std::mem::take(&mut pending.waiters);
        pending.working_at = None;
        // The fresh answer is for the clients to come.
        pending.for_l1 |= waiters.iter().any(|waiter| matches!(waiter, Waiter::Client(_)));
        self.release(now, waiters, &stale, None, effects);
    }

    /// True if data past its time may be said: the node may not want any from
    /// others either, and it may have been flushed since somebody began to wait.
    fn may_serve_stale(&self, stale: &Answer) -> bool {
        self.config.stale_secs > 0 && !self.flushes.covers(stale)
    }

    /// Removes a pending question and everything on its way for it.
    fn take_pending(&mut self, id: Id, effects: &mut Effects) -> Option<Pending> {
        let pending = self.pendings.remove(id)?;
        for request in pending.requests.iter().flatten() {
            self.end_request(*request);
        }
        self.drop_flights(&pending.flights, effects);
        Some(pending)
    }

    /// Forgets what is on its way upstream: nobody waits for it any more.
    pub(super) fn drop_flights(&mut self, flights: &[Id], effects: &mut Effects) {
        for flight in flights {
            if let Some((_, Some(port))) = self.flights.remove(*flight) {
                effects.worn_ports.push(port);
            }
        }
    }

    /// Tells `answer` to everybody who waits.
    fn release(
        &mut self,
        now: Moment,
        waiters: Vec<Waiter>,
        answer: &Answer,
        error: Option<ExtendedError>,
        effects: &mut Effects,
    ) {
        for waiter in waiters {
            match waiter {
                Waiter::Client(client) => self.reply(now, &client, answer, error, effects),
                Waiter::Peer(peer) => self.answer_peer(now, peer, answer, effects),
            }
        }
    }

    fn reply(
        &mut self,
        now: Moment,
        client: &Client,
        answer: &Answer,
        error: Option<ExtendedError>,
        effects: &mut Effects,
    ) {
        let busy = &mut self.busy[client.source as usize];
        *busy = busy.saturating_sub(1);
        let stale_ttl_secs = stale_ttl(answer, now);
        if error.is_some() {
            self.counts.failures.add(1);
        } else if stale_ttl_secs.is_some() {
            self.counts.stale.add(1);
        }
        let to = ReplyTo {
            id: client.id,
            flags: client.flags,
            question: &client.question,
            limit: client.limit,
            opt: opt_reply(&self.config, client.opt.as_ref(), error),
            stale_ttl_secs,
        };
        let start = effects.octets.len();
        // The message, and the most that an OPT record of ours takes.
        let room = (answer.body_len() + 512).min(client.limit);
        effects.octets.resize(start + room, 0);
        let written = answer.write(now, &to, &mut effects.octets[start..]);
        effects.octets.truncate(start + written.len);
        let octets = start..start + written.len;
        effects.replies.push(Reply { asker: client.asker, octets });
    }

    /// Answers another cell.
    pub(super) fn answer_peer(
        &mut self,
        now: Moment,
        peer: PeerWaiter,
        answer: &Answer,
        effects: &mut Effects,
    ) {
        self.scratch.clear();
        answer.encode(now, &mut self.scratch);
        let is_stale = stale_ttl(answer, now).is_some();
        let message = Message::Answer { request: peer.request, is_stale, answer: &self.scratch };
        effects.say(self.head, peer.to, &message);
    }

    /// Keeps an answer in L2, unless a newer one is there.
    pub(super) fn keep_in_l2(&mut self, hash: u64, answer: &Arc<Answer>) -> bool {
        let question = answer.question();
        let is_it = |own: &Arc<Answer>| own.is_for(&question);
        if self.l2.peek(hash, is_it).is_some_and(|own| own.born() > answer.born()) {
            return false;
        }
        self.l2.insert(hash, answer.clone(), answer.len(), is_it);
        true
    }
}
