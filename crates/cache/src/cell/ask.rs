//! Questions of clients.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip::SipHasher13;
use wire::cookie::COOKIE_LEN_MAX;
use wire::query::HEADER_LEN;
use wire::{ExtendedError, OptReply, Query};

use super::effects::{Asker, Effects};
use super::pending::{Client, Pending, Step, WAITERS_MAX, Waiter};
use super::reply::{CACHED_FAILURE, OVERLOADED};
use super::{ANSWER_WITHIN, Cell, Config, RENEWALS, SOURCES, STALE_AFTER, STALE_TTL_SECS};
use crate::answer::{Answer, ReplyTo};
use crate::question::Question;
use crate::slab::Id;
use crate::store::Store;
use crate::time::Moment;

/// What is asked for more often than this, as the sketch estimates it, is
/// renewed before its time is over.
const POPULAR: u8 = 3;
/// Only what lives at least this long is: the rest is renewed by being asked.
const PREFETCH_TTL_MIN_SECS: u32 = 10;
/// The same is renewed this often at the most.
const RENEW_EVERY: Duration = Duration::from_millis(500);

/// A client's question, well formed and admitted.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub query: &'a Query,
    /// As [`Cell::hash_of`] says.
    pub hash: u64,
    /// The message that the query was read from.
    pub request: &'a [u8],
    pub asker: Asker,
    pub from: IpAddr,
    /// Octets that the reply may have.
    pub limit: usize,
    pub opt: Option<Opt>,
}

/// What the OPT record of the reply will say.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    pub dnssec_ok: bool,
    pub wants_nsid: bool,
    pub cookie: Option<[u8; COOKIE_LEN_MAX]>,
    pub keepalive: Option<u16>,
}

/// A reply that was written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub len: usize,
    pub rcode: u16,
    pub truncated: bool,
}

impl Cell {
    /// The place of a question in the tables.
    #[inline]
    pub fn hash_of(&self, query: &Query) -> u64 {
        Question::of(query).hash(&self.table_key)
    }

    /// Looks at what is in the place of a question, and returns something that
    /// depends on it. Of questions that came together all are looked at first:
    /// then their ways through the memory are gone at the same time, and not
    /// one after the other.
    #[inline]
    pub fn look_ahead(&self, hash: u64) -> u8 {
        let first = |table: &Store<Arc<Answer>>| table.peek(hash, |_| true).map(|own| own.look());
        first(&self.l1).or_else(|| first(&self.l2)).unwrap_or(0)
    }

    /// Answers a client's question into `out`, or, if it has to wait, later
    /// among the effects.
    #[inline]
    pub fn ask(
        &mut self,
        now: Moment,
        ask: &Ask<'_>,
        out: &mut [u8],
        effects: &mut Effects,
    ) -> Option<Answered> {
        self.counts.questions.add(1);
        let question = Question::of(ask.query);
        let hash = ask.hash;
        if let Some(answer) = self.l1.get(hash, |answer| answer.is_for(&question))
            && answer.is_fresh(now)
            && !self.flushes.covers(answer)
        {
            self.counts.l1_hits.add(1);
            let written = write(&self.config, now, ask, answer, None, out);
            if self.config.prefetch && is_old(answer, now) {
                self.refresh_for_l1(now, hash, &question, effects);
            }
            return Some(written);
        }
        self.ask_beyond_l1(now, ask, hash, out, effects)
    }

    #[inline(never)]
    fn ask_beyond_l1(
        &mut self,
        now: Moment,
        ask: &Ask<'_>,
        hash: u64,
        out: &mut [u8],
        effects: &mut Effects,
    ) -> Option<Answered> {
        let question = Question::of(ask.query);
        let known = self.known(hash, &question);
        if let Some(answer) = known.as_ref().filter(|answer| answer.is_fresh(now)) {
            self.counts.l2_hits.add(1);
            let written = write(&self.config, now, ask, answer, None, out);
            self.keep_in_l1(hash, answer);
            if self.config.prefetch && is_old(answer, now) {
                self.refresh_for_l1(now, hash, &question, effects);
            }
            return Some(written);
        }
        let stale = self.usable_stale(now, hash, &question, known);
        if self.failed_lately(now, hash, &question) {
            self.counts.cached_failures.add(1);
            return Some(self.answer_poorly(now, ask, stale, CACHED_FAILURE, out));
        }
        let source = self.source_of(ask.from);
        let pending = self.pendings.find(hash, &question);
        let waits = pending.and_then(|id| self.pendings.get(id)).map_or(0, |own| own.waiters.len());
        let is_full = pending.is_none() && self.pendings.len() >= self.config.pending_max;
        if is_full
            || waits >= WAITERS_MAX
            || self.busy[source as usize] >= self.config.pending_per_source_max
        {
            self.counts.overloaded.add(1);
            return Some(self.answer_poorly(now, ask, stale, OVERLOADED, out));
        }
        self.busy[source as usize] += 1;
        let client = Waiter::Client(client(ask, source));
        match pending {
            Some(id) => {
                self.counts.coalesced.add(1);
                self.join(now, id, client, stale);
            }
            None => {
                let id = self.add_pending(now, hash, &question, Some(client), stale);
                self.start(now, id, effects);
            }
        }
        None
    }

    /// What this cell's L2 has, however old.
    fn known(&mut self, hash: u64, question: &Question<'_>) -> Option<Arc<Answer>> {
        let found = self.l2.get(hash, |answer| answer.is_for(question)).cloned();
        found.filter(|answer| !self.flushes.covers(answer))
    }

    /// The newest data past its time that may still be used.
    pub(super) fn usable_stale(
        &self,
        now: Moment,
        hash: u64,
        question: &Question<'_>,
        in_l2: Option<Arc<Answer>>,
    ) -> Option<Arc<Answer>> {
        let in_l1 = self.l1.peek(hash, |answer| answer.is_for(question)).cloned();
        let newest = in_l1.into_iter().chain(in_l2).max_by_key(|answer| answer.expires());
        let stale_secs = self.config.stale_secs;
        newest.filter(|answer| {
            stale_secs > 0 && answer.stale_secs(now) <= stale_secs && !self.flushes.covers(answer)
        })
    }

    pub(super) fn failed_lately(&self, now: Moment, hash: u64, question: &Question<'_>) -> bool {
        let failure = self.failures.peek(hash, |answer| answer.is_for(question));
        failure.is_some_and(|failure| failure.is_fresh(now) && !self.flushes.covers(failure))
    }

    /// Answers with data past its time, or else with a failure.
    fn answer_poorly(
        &self,
        now: Moment,
        ask: &Ask<'_>,
        stale: Option<Arc<Answer>>,
        error: ExtendedError,
        out: &mut [u8],
    ) -> Answered {
        match stale {
            Some(answer) => {
                self.counts.stale.add(1);
                write(&self.config, now, ask, &answer, None, out)
            }
            None => {
                self.counts.failures.add(1);
                let failure = Answer::failure(Question::of(ask.query), 0, now);
                write(&self.config, now, ask, &failure, Some(error), out)
            }
        }
    }

    /// Lets one more wait for a pending question.
    pub(super) fn join(&mut self, now: Moment, id: Id, waiter: Waiter, stale: Option<Arc<Answer>>) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        // It ends when it would have ended: who came first must not wait longer
        // because others came, and what has used up its tries must give way to
        // a new beginning.
        pending.waiters.push(waiter);
        if pending.stale.is_none() {
            pending.stale = stale;
        }
        if pending.stale.is_some() && pending.stale_at.is_none() {
            pending.stale_at = Some(now + STALE_AFTER);
        }
        self.schedule(id);
    }

    /// A new pending question, about which nothing is done yet.
    pub(super) fn add_pending(
        &mut self,
        now: Moment,
        hash: u64,
        question: &Question<'_>,
        waiter: Option<Waiter>,
        stale: Option<Arc<Answer>>,
    ) -> Id {
        let mut encoded = Vec::with_capacity(5 + question.name.len());
        question.encode(&mut encoded);
        self.pendings.add(Pending {
            hash,
            question: encoded.into(),
            stale_at: stale.is_some().then(|| now + STALE_AFTER),
            waiters: waiter.into_iter().collect(),
            step: Step::Owners { asked: 0 },
            is_owner: false,
            is_refresh: false,
            for_l1: false,
            head: None,
            stale,
            requests: Default::default(),
            flights: Vec::new(),
            started: now,
            step_at: now,
            working_at: None,
            ends_at: now + ANSWER_WITHIN,
            wakes_at: Moment(u64::MAX),
        })
    }

    /// Renews an entry of L1 whose time is nearly over, if many ask for it and
    /// nobody renews it yet.
    fn refresh_for_l1(
        &mut self,
        now: Moment,
        hash: u64,
        question: &Question<'_>,
        effects: &mut Effects,
    ) {
        let is_wanted = self.l1.frequency(hash) >= POPULAR
            && self.pendings.len() < self.config.pending_max
            && self.pendings.find(hash, question).is_none()
            && !self.failed_lately(now, hash, question);
        if !is_wanted {
            return;
        }
        // Others may have made this cell renew it before.
        let renewed = self.l2.peek(hash, |answer| answer.is_for(question)).cloned();
        let renewed = renewed
            .filter(|own| own.is_fresh(now) && !is_old(own, now) && !self.flushes.covers(own));
        if let Some(answer) = renewed {
            return self.keep_in_l1(hash, &answer);
        }
        if !self.may_renew(now, hash) {
            return;
        }
        self.counts.prefetches.add(1);
        let id = self.add_pending(now, hash, question, None, None);
        if let Some(pending) = self.pendings.get_mut(id) {
            pending.is_refresh = true;
            pending.for_l1 = true;
        }
        self.start(now, id, effects);
    }

    /// True if a renewal may begin. The one before may have brought nothing
    /// newer, because upstream fails; then clients must not start another one
    /// with every question.
    pub(super) fn may_renew(&mut self, now: Moment, hash: u64) -> bool {
        let last = &mut self.renewals[hash as usize % RENEWALS];
        let may = last.0 != hash || now.since(last.1) >= RENEW_EVERY;
        if may {
            *last = (hash, now);
        }
        may
    }

    /// Keeps an answer in L1, unless a newer one is there.
    pub(super) fn keep_in_l1(&mut self, hash: u64, answer: &Arc<Answer>) {
        let question = answer.question();
        let is_it = |own: &Arc<Answer>| own.is_for(&question);
        if self.l1.peek(hash, is_it).is_none_or(|own| own.born() <= answer.born()) {
            self.l1.insert(hash, answer.clone(), answer.len(), is_it);
        }
    }

    /// The place of the counter for a client's source: its address, or the
    /// network that gave it out.
    fn source_of(&self, from: IpAddr) -> u16 {
        let octets = match from.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).octets()
            }
        };
        let mut hasher = SipHasher13::new_with_key(&self.table_key);
        hasher.write(&octets);
        (hasher.finish() as usize % SOURCES) as u16
    }
}

/// True if most of the answer's time is over: a tenth is left, or less.
pub(super) fn is_old(answer: &Answer, now: Moment) -> bool {
    let ttl_secs = answer.ttl_secs();
    ttl_secs >= PREFETCH_TTL_MIN_SECS && answer.remaining_secs(now) <= ttl_secs / 10
}

/// What a reply needs of a client that waits.
fn client(ask: &Ask<'_>, source: u16) -> Client {
    Client {
        asker: ask.asker,
        source,
        id: ask.query.id,
        flags: ask.query.flags,
        question: ask.request[HEADER_LEN..ask.query.question_end()].into(),
        limit: ask.limit,
        opt: ask.opt,
    }
}

/// Writes `answer` as the reply to `ask`.
#[inline]
fn write(
    config: &Config,
    now: Moment,
    ask: &Ask<'_>,
    answer: &Answer,
    error: Option<ExtendedError>,
    out: &mut [u8],
) -> Answered {
    let to = ReplyTo {
        id: ask.query.id,
        flags: ask.query.flags,
        question: &ask.request[HEADER_LEN..ask.query.question_end()],
        limit: ask.limit.min(out.len()),
        opt: opt_reply(config, ask.opt.as_ref(), error),
        stale_ttl_secs: stale_ttl(answer, now),
    };
    let written = answer.write(now, &to, out);
    Answered { len: written.len, rcode: answer.rcode(), truncated: written.truncated }
}

/// The TTL to say if an answer is past its time. A failure has no data whose
/// time could be over.
#[inline]
pub(super) fn stale_ttl(answer: &Answer, now: Moment) -> Option<u32> {
    let is_stale = !answer.is_fresh(now) && answer.is_cacheable();
    is_stale.then_some(STALE_TTL_SECS)
}

#[inline]
pub(super) fn opt_reply<'a>(
    config: &'a Config,
    opt: Option<&'a Opt>,
    error: Option<ExtendedError>,
) -> Option<OptReply<'a>> {
    opt.map(|opt| OptReply {
        payload: config.udp_payload,
        dnssec_ok: opt.dnssec_ok,
        rcode: wire::Rcode::NoError,
        nsid: config.identity.as_deref().filter(|_| opt.wants_nsid),
        cookie: opt.cookie.as_ref(),
        keepalive: opt.keepalive,
        error,
    })
}
