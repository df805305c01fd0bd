//! Asking upstream.

use std::net::SocketAddr;

use rand_chacha::rand_core::RngCore;

use super::Cell;
use super::effects::{Datagram, Effects, StreamQuestion};
use super::pending::Step;
use super::reply::{NO_UPSTREAM, OVER_BUDGET, UPSTREAM_FAILED};
use crate::answer::{Answer, Asked, PAYLOAD, Refusal, build_plain_question, build_question};
use crate::question::Bits;
use crate::slab::Id;
use crate::time::Moment;
use crate::upstream::{Address, Flight, ServerId, Turn};

/// Times that a question is sent upstream at the most, to whichever servers.
const SENDS_MAX: u8 = 6;
/// How much longer than a datagram a connection takes: it has to be made first.
const STREAM_PATIENCE: u32 = 3;
/// Answers that came to the right port with the right id but were not the
/// answer: somebody guesses. The next question goes over a connection.
const STRANGERS_MAX: u32 = 4;

impl Cell {
    /// Asks upstream, as soon as it is this question's turn.
    pub(super) fn go_upstream(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        let had_turn = pending.step == Step::Turn;
        let tried = pending.head.as_ref().map_or(0, |head| head.passed);
        pending.step = Step::Upstream { tried, sends: 0 };
        if had_turn {
            return self.ask_upstream(now, id, effects);
        }
        match self.budget.take(now) {
            Turn::Now => self.ask_upstream(now, id, effects),
            Turn::At(moment) => {
                pending.step = Step::Turn;
                pending.step_at = moment;
            }
            Turn::Refused => {
                self.counts.upstream_over_budget.add(1);
                self.fail(now, id, OVER_BUDGET, effects);
            }
        }
    }

    /// Asks the next upstream server; those asked before may still answer.
    pub(super) fn ask_upstream(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get(id) else { return };
        let Step::Upstream { tried, sends } = pending.step else { return };
        let last = pending.flights.last().copied();
        let group = self.upstreams.group_of(pending.asked().name);
        if let Some(last) = last.and_then(|flight| self.flights.get(flight)) {
            let server = self.upstreams.server_mut(last.server);
            // Another may be asked because one refused; this one has its time.
            if now.since(last.sent) >= server.patience() {
                self.counts.upstream_silent.add(1);
                server.note_silence(now);
            }
        }
        let Some(group) = group else { return self.fail(now, id, NO_UPSTREAM, effects) };
        if sends >= SENDS_MAX {
            // All that can be done is to wait for one of them.
            let Some(pending) = self.pendings.get_mut(id) else { return };
            pending.step_at = pending.ends_at;
            return;
        }
        if last.is_some() {
            self.counts.upstream_hedged.add(1);
        }
        let server = self.upstreams.choose(group, tried, now, &mut self.random);
        if let Some(pending) = self.pendings.get_mut(id) {
            let tried = tried | 1u64.checked_shl(server.server.into()).unwrap_or(0);
            pending.step = Step::Upstream { tried, sends: sends + 1 };
        }
        match self.upstreams.server(server).address {
            Address::Socket(to) => self.send_datagram(now, id, server, to, effects),
            Address::Local => self.send_over_stream(now, id, server, effects),
        }
    }

    fn send_datagram(
        &mut self,
        now: Moment,
        id: Id,
        server: ServerId,
        to: SocketAddr,
        effects: &mut Effects,
    ) {
        let Some((port, message_id)) = self.flights.draw(&mut self.random) else {
            return self.send_over_stream(now, id, server, effects);
        };
        let mut octets = effects.buffer();
        self.add_flight(now, id, server, Some(port), message_id, &mut octets);
        effects.datagrams.push(Datagram { to, port, octets });
        self.counts.upstream_asked.add(1);
    }

    fn send_over_stream(&mut self, now: Moment, id: Id, server: ServerId, effects: &mut Effects) {
        let message_id = self.random.next_u32() as u16;
        let mut octets = Vec::new();
        let to = self.upstreams.server(server).address;
        if let Some(flight) = self.add_flight(now, id, server, None, message_id, &mut octets) {
            effects.streams.push(StreamQuestion { to, token: flight.token(), octets });
            self.counts.upstream_streams.add(1);
        }
    }

    /// Writes the question into `octets` and notes that it is on its way.
    fn add_flight(
        &mut self,
        now: Moment,
        id: Id,
        server: ServerId,
        port: Option<u16>,
        message_id: u16,
        octets: &mut Vec<u8>,
    ) -> Option<Id> {
        let pending = self.pendings.get_mut(id)?;
        let own = self.upstreams.server_mut(server);
        own.asked += 1;
        let trips = if port.is_some() { 1 } else { STREAM_PATIENCE };
        // Twice as long with each try: they must not all be used up before
        // servers that say nothing for a second are back.
        let before = match pending.step {
            Step::Upstream { sends, .. } => u32::from(sends.min(SENDS_MAX)).saturating_sub(1),
            _ => 0,
        };
        pending.step_at = now + own.patience() * trips * 2u32.pow(before);
        let question = pending.asked();
        let with_edns = own.knows_edns(now) || question.bits.has(Bits::DO);
        let random = &mut self.random;
        let (mut bits, mut left) = (0u64, 0);
        let case = || {
            if left == 0 {
                (bits, left) = (random.next_u64(), 64);
            }
            left -= 1;
            bits >> left & 1 == 1
        };
        match with_edns {
            true => build_question(question, case, message_id, PAYLOAD, octets),
            false => build_plain_question(question, case, message_id, octets),
        }
        let name = octets[wire::query::HEADER_LEN..][..question.name.len()].into();
        let flight = self.flights.add(Flight {
            pending: id,
            server,
            id: message_id,
            port,
            name,
            with_edns,
            sent: now,
            strangers: 0,
        });
        pending.flights.push(flight);
        Some(flight)
    }

    /// Takes a datagram that came from `from` to the `port`th upstream socket.
    pub fn take_datagram(
        &mut self,
        now: Moment,
        from: SocketAddr,
        port: u16,
        octets: &[u8],
        effects: &mut Effects,
    ) {
        let id = octets.first_chunk::<2>().map(|id| u16::from_be_bytes(*id));
        let flight = id.and_then(|id| self.flights.find(port, id));
        let Some((flight, server)) =
            flight.and_then(|id| self.flights.get(id).map(|own| (id, own.server)))
        else {
            return self.counts.upstream_strange.add(1);
        };
        if self.upstreams.server(server).address != Address::Socket(from) {
            return self.counts.upstream_strange.add(1);
        }
        self.take_upstream(now, flight, octets, effects);
    }

    /// Takes what came over a connection, or the news that nothing will.
    pub fn take_stream(
        &mut self,
        now: Moment,
        token: u64,
        octets: Option<&[u8]>,
        effects: &mut Effects,
    ) {
        let flight = Id::from_token(token);
        match octets {
            Some(octets) => self.take_upstream(now, flight, octets, effects),
            None => {
                let Some(id) = self.lose_flight(flight, effects).map(|own| own.pending) else {
                    return;
                };
                self.fail_or_ask_next(now, id, effects);
                self.schedule(id);
            }
        }
    }

    fn take_upstream(&mut self, now: Moment, flight: Id, octets: &[u8], effects: &mut Effects) {
        let Some(own) = self.flights.get_mut(flight) else { return };
        let (id, server) = (own.pending, own.server);
        let Some(pending) = self.pendings.get(id) else { return };
        let asked = Asked {
            id: own.id,
            name_as_sent: &own.name,
            question: pending.asked(),
            // Nobody can guess his way into a connection.
            exact_case: own.port.is_some(),
        };
        match Answer::from_upstream(octets, &asked, &self.config.ttl, now) {
            Ok(answer) => {
                let took = now.since(own.sent);
                self.counts.upstream_us.observe(took.as_micros() as u64, 1);
                self.upstreams.server_mut(server).note_answer(took);
                self.take_part(now, id, server, answer, effects);
            }
            Err(refusal) => {
                self.take_refusal(now, flight, refusal, effects);
                self.schedule(id);
            }
        }
    }

    /// What came is no answer that can be used.
    fn take_refusal(&mut self, now: Moment, flight: Id, refusal: Refusal, effects: &mut Effects) {
        match refusal {
            Refusal::Truncated => {
                self.counts.upstream_truncated.add(1);
                let is_stream = self.flights.get(flight).is_some_and(|own| own.port.is_none());
                match is_stream {
                    // It has no room for more: asking again brings the same.
                    true => self.pass_server(now, flight, effects),
                    false => self.ask_again_over_stream(now, flight, effects),
                }
            }
            Refusal::WrongCase | Refusal::WrongId | Refusal::WrongQuestion => {
                self.counts.upstream_mismatched.add(1);
                let Some(own) = self.flights.get_mut(flight) else { return };
                own.strangers += 1;
                let is_stream = own.port.is_none();
                // The right letters in the wrong case: a server that lowers
                // names, or a lucky guess. A connection tells.
                let is_decided = refusal == Refusal::WrongCase || own.strangers >= STRANGERS_MAX;
                if is_stream {
                    self.pass_server(now, flight, effects);
                } else if is_decided {
                    self.ask_again_over_stream(now, flight, effects);
                }
            }
            Refusal::FormErrNoEdns => {
                self.counts.upstream_failed.add(1);
                let Some(own) = self.end_flight(now, flight, effects) else { return };
                let question = self.pendings.get(own.pending).map(|pending| pending.question());
                // Without EDNS there are no signatures, and they are wanted.
                let needs_edns = question.is_none_or(|question| question.bits.has(Bits::DO));
                match own.with_edns && !needs_edns {
                    true => {
                        self.upstreams.server_mut(own.server).note_no_edns(now);
                        self.ask_server_again(now, own.pending, own.server, effects);
                    }
                    false => self.fail_or_ask_next(now, own.pending, effects),
                }
            }
            Refusal::Rcode(_) => {
                self.counts.upstream_failed.add(1);
                self.pass_server(now, flight, effects);
            }
            _ => {
                self.counts.upstream_malformed.add(1);
                self.pass_server(now, flight, effects);
            }
        }
    }

    /// The server said something, but nothing of use: on to the next.
    fn pass_server(&mut self, now: Moment, flight: Id, effects: &mut Effects) {
        if let Some(own) = self.end_flight(now, flight, effects) {
            self.fail_or_ask_next(now, own.pending, effects);
        }
    }

    fn fail_or_ask_next(&mut self, now: Moment, id: Id, effects: &mut Effects) {
        let Some(pending) = self.pendings.get(id) else { return };
        let Step::Upstream { tried, sends } = pending.step else { return };
        let group = self.upstreams.group_of(pending.asked().name);
        let servers = group.map_or(0, |group| self.upstreams.count(group));
        let is_all = tried.count_ones() as usize >= servers || sends >= SENDS_MAX;
        if !is_all {
            return self.ask_upstream(now, id, effects);
        }
        // Others that were asked may still answer.
        if pending.flights.is_empty() {
            self.fail(now, id, UPSTREAM_FAILED, effects);
        }
    }

    fn ask_again_over_stream(&mut self, now: Moment, flight: Id, effects: &mut Effects) {
        if let Some(own) = self.end_flight(now, flight, effects) {
            self.send_over_stream(now, own.pending, own.server, effects);
        }
    }

    fn ask_server_again(&mut self, now: Moment, id: Id, server: ServerId, effects: &mut Effects) {
        match self.upstreams.server(server).address {
            Address::Socket(to) => self.send_datagram(now, id, server, to, effects),
            Address::Local => self.send_over_stream(now, id, server, effects),
        }
    }

    /// Ends one flight of a pending question, which says nothing about its
    /// server.
    fn lose_flight(&mut self, flight: Id, effects: &mut Effects) -> Option<Flight> {
        let (own, worn) = self.flights.remove(flight)?;
        effects.worn_ports.extend(worn);
        if let Some(pending) = self.pendings.get_mut(own.pending) {
            pending.flights.retain(|id| *id != flight);
        }
        Some(own)
    }

    /// Ends one flight of a pending question; its server answered, somehow.
    fn end_flight(&mut self, now: Moment, flight: Id, effects: &mut Effects) -> Option<Flight> {
        let own = self.lose_flight(flight, effects)?;
        self.upstreams.server_mut(own.server).note_answer(now.since(own.sent));
        Some(own)
    }
}
