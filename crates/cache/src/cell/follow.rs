//! Aliases that lead from the names of some upstream servers to those of others.
//!
//! A server that speaks for some domains and does not resolve ends its answer
//! with the alias that leaves them. What it said is the head of the answer, and
//! those who know the target are asked for the rest, within the time of the
//! question that waits. Nobody gets half a chain where somebody knows more.

use std::sync::Arc;

use wire::ExtendedError;

use super::Cell;
use super::effects::Effects;
use super::reply::{ALIASES_ENDLESS, ALIASES_OVERSIZED, Source};
use crate::answer::{Answer, Unjoined};
use crate::question::Question;
use crate::slab::Id;
use crate::time::Moment;
use crate::upstream::{Address, ServerId};

/// Times that the answer to one question may lead on to other servers.
const HOPS_MAX: u8 = 8;
/// Octets of a head that is kept while the rest is asked for: more than honest
/// chains have, and so little that many can wait.
const HEAD_LEN_MAX: usize = 16 * 1024;

/// The first part of an answer, whose aliases lead on.
#[derive(Debug)]
pub(super) struct Head {
    answer: Answer,
    /// What is asked for next, encoded.
    question: Box<[u8]>,
    /// How often it led on.
    hops: u8,
    /// Servers that need not be asked for the rest, a bit each.
    pub passed: u64,
}

/// Where the rest of an answer is to be had.
struct Hop {
    target: Box<[u8]>,
    passed: u64,
}

impl Head {
    pub fn question(&self) -> Question<'_> {
        let decoded = Question::decode(&self.question);
        decoded.expect("it was encoded by this process").0
    }
}

impl Cell {
    /// Takes what `server` said: the answer to a pending question, the rest of
    /// one, or a part that leads on.
    pub(super) fn take_part(
        &mut self,
        now: Moment,
        id: Id,
        server: ServerId,
        part: Answer,
        effects: &mut Effects,
    ) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        let head = pending.head.take();
        let hops = head.as_ref().map_or(0, |head| head.hops);
        let joined = match head {
            Some(head) => head.answer.join(&part, &self.config.ttl, now),
            None => Ok(part),
        };
        let answer = match joined {
            Ok(answer) => answer,
            Err(reason) => return self.fail(now, id, error_of(reason), effects),
        };
        match self.next_hop(&answer, server) {
            None => self.complete(now, id, Arc::new(answer), Source::Upstream, effects),
            Some(_) if hops == HOPS_MAX || answer.body_len() > HEAD_LEN_MAX => {
                self.fail(now, id, ALIASES_ENDLESS, effects);
            }
            Some(hop) => self.follow(now, id, answer, hops + 1, hop, effects),
        }
    }

    /// Who may know more than `server`, which gave the last part of `answer`.
    ///
    /// If the target is another group's, that group. A server of the same group
    /// is asked for all of its names, so if it says no more, it has its reasons
    /// and would say the same again; but our own zones never ask anybody, and
    /// so say nothing about what others know: the other servers of their group
    /// may. If there is nobody else, what came is all there is.
    fn next_hop(&self, answer: &Answer, server: ServerId) -> Option<Hop> {
        let target = answer.open_end()?;
        let group = self.upstreams.group_of(&target)?;
        if group != server.group {
            return Some(Hop { target, passed: 0 });
        }
        let is_local = self.upstreams.server(server).address == Address::Local;
        let passed = self.upstreams.local_ones(group);
        let has_others = (passed.count_ones() as usize) < self.upstreams.count(group);
        (is_local && has_others).then_some(Hop { target, passed })
    }

    /// Asks for the rest of an answer.
    fn follow(
        &mut self,
        now: Moment,
        id: Id,
        answer: Answer,
        hops: u8,
        hop: Hop,
        effects: &mut Effects,
    ) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        let mut question = Vec::with_capacity(pending.question.len() + hop.target.len());
        Question { name: &hop.target, ..pending.question() }.encode(&mut question);
        let question = question.into_boxed_slice();
        pending.head = Some(Box::new(Head { answer, question, hops, passed: hop.passed }));
        // Others that were asked could only say the same once more.
        let flights = std::mem::take(&mut pending.flights);
        self.drop_flights(&flights, effects);
        self.counts.upstream_followed.add(1);
        // It is one more question, so it waits for its turn like any other.
        self.go_upstream(now, id, effects);
        self.schedule(id);
    }
}

fn error_of(reason: Unjoined) -> ExtendedError {
    match reason {
        Unjoined::Loop => ALIASES_ENDLESS,
        Unjoined::Oversized => ALIASES_OVERSIZED,
    }
}

#[cfg(test)]
mod tests;
