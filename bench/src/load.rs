//! The load generator: one thread, several sockets, a bounded window of outstanding queries.
//!
//! A closed loop: an answer makes room for the next query, so the server is always busy and
//! never flooded. An answer that does not come in time is lost. Every answer is checked.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::interrupt;
use crate::mmsg::{BATCH_MAX, Batch, Wait};
use crate::queries::{Expect, QuerySet, check_answer};

/// After this long a query counts as lost.
const TIMEOUT: Duration = Duration::from_millis(500);
/// How often old queries are looked for.
const SWEEP: Duration = Duration::from_millis(50);

/// How hard to ask.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// Sockets, and so source ports.
    pub sockets: usize,
    /// Outstanding queries over all sockets. They must fit the server's receive buffer even
    /// when it has the system's default size of 208 KiB, as Knot's has: 212 small packets.
    pub window: usize,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure { sockets: 16, window: 192 }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub answers: u64,
    pub lost: u64,
    pub wrong: u64,
    pub seconds: f64,
    /// What was wrong with the first wrong answer.
    pub first_wrong: Option<String>,
}

impl Outcome {
    pub fn answers_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.answers as f64 / self.seconds } else { 0.0 }
    }
}

/// Binds the calling thread to `core`.
pub fn pin_to(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}"))
}

/// Asks one server.
#[derive(Debug)]
pub struct Load<'q> {
    queries: &'q QuerySet,
    /// Expected of every answer, whatever the queries say.
    expect_always: Option<Expect>,
    lanes: Vec<Lane>,
    next_query: usize,
    inbox: Batch,
    outbox: Batch,
}

/// One socket and the queries outstanding on it.
#[derive(Debug)]
struct Lane {
    socket: UdpSocket,
    slots: Vec<Slot>,
    free: Vec<u8>,
}

/// A place in the window. The query id is the slot's number and its turn, so that an answer
/// to an earlier query, already counted as lost, is not taken for one to the present query.
#[derive(Clone, Copy, Debug)]
struct Slot {
    turn: u8,
    /// The query and when it was sent; none if the slot is free.
    asked: Option<(usize, Instant)>,
}

impl<'q> Load<'q> {
    pub fn new(target: SocketAddr, queries: &'q QuerySet, pressure: Pressure) -> Result<Load<'q>> {
        ensure!(queries.len() > 0, "no queries to ask");
        let slots = pressure.window / pressure.sockets.max(1);
        ensure!(
            (1..=256).contains(&slots),
            "a window of {} over {} sockets is {slots} a socket; from 1 to 256 are possible",
            pressure.window,
            pressure.sockets
        );
        let lanes = (0..pressure.sockets).map(|_| Lane::new(target, slots));
        Ok(Load {
            queries,
            expect_always: None,
            lanes: lanes.collect::<Result<_>>()?,
            next_query: 0,
            inbox: Batch::new(),
            outbox: Batch::new(),
        })
    }

    /// The target is the floor responder, whose answer is always the same.
    pub fn expect_floor(&mut self) {
        self.expect_always = Some(Expect::floor());
    }

    /// Asks for `duration`, then waits for the answers outstanding.
    pub fn run(&mut self, duration: Duration) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let started = Instant::now();
        let mut last_answer = started;
        let mut swept = started;
        loop {
            let now = Instant::now();
            let asking = now.duration_since(started) < duration;
            let before = outcome.answers;
            for lane in 0..self.lanes.len() {
                self.receive(lane, &mut outcome)?;
                if asking {
                    self.send(lane, now)?;
                }
            }
            if outcome.answers > before {
                last_answer = now;
            }
            if now.duration_since(swept) >= SWEEP {
                swept = now;
                interrupt::check()?;
                outcome.lost += self.lanes.iter_mut().map(|lane| lane.expire(now)).sum::<u64>();
            }
            if !asking && self.lanes.iter().all(Lane::is_idle) {
                break;
            }
        }
        outcome.seconds = last_answer.duration_since(started).as_secs_f64();
        Ok(outcome)
    }

    fn receive(&mut self, lane: usize, outcome: &mut Outcome) -> Result<()> {
        let lane = &mut self.lanes[lane];
        let count = match self.inbox.receive(lane.socket.as_fd(), Wait::Never) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("the server does not take queries"),
        };
        for index in 0..count {
            let answer = self.inbox.packet(index);
            let Some(query) = lane.take(answer) else { continue };
            let (packet, expect) = self.queries.get(query);
            let expect = self.expect_always.as_ref().unwrap_or(expect);
            outcome.answers += 1;
            if let Err(wrong) = check_answer(packet, answer, expect) {
                outcome.wrong += 1;
                outcome.first_wrong.get_or_insert_with(|| {
                    format!("{wrong}; query {}, answer {}", hex(packet), hex(answer))
                });
            }
        }
        Ok(())
    }

    /// Sends when half of the lane is free, in one batch.
    fn send(&mut self, lane: usize, now: Instant) -> Result<()> {
        let lane = &mut self.lanes[lane];
        if lane.free.len() * 2 < lane.slots.len() {
            return Ok(());
        }
        let count = lane.free.len().min(BATCH_MAX);
        let free_after = lane.free.len() - count;
        for index in 0..count {
            let query = (self.next_query + index) % self.queries.len();
            let (packet, _) = self.queries.get(query);
            let id = lane.ask(lane.free[free_after + index], query, now);
            self.outbox.set(index, packet)[..2].copy_from_slice(&id);
        }
        let sent = match self.outbox.send(lane.socket.as_fd(), count) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error).context("cannot send queries"),
        };
        for index in sent..count {
            lane.slots[usize::from(lane.free[free_after + index])].asked = None;
        }
        lane.free.drain(free_after..free_after + sent);
        self.next_query = (self.next_query + sent) % self.queries.len();
        Ok(())
    }
}

impl Lane {
    fn new(target: SocketAddr, slots: usize) -> Result<Lane> {
        let unspecified =
            if target.is_ipv4() { IpAddr::from([0u8; 4]) } else { IpAddr::from([0u16; 8]) };
        let socket =
            UdpSocket::bind((unspecified, 0)).context("cannot bind a socket for the load")?;
        socket.connect(target).with_context(|| format!("cannot ask {target}"))?;
        let free = (0..slots).rev().map(|slot| slot as u8).collect();
        Ok(Lane { socket, slots: vec![Slot { turn: 0, asked: None }; slots], free })
    }

    fn ask(&mut self, slot: u8, query: usize, now: Instant) -> [u8; 2] {
        let place = &mut self.slots[usize::from(slot)];
        place.turn = place.turn.wrapping_add(1);
        place.asked = Some((query, now));
        [place.turn, slot]
    }

    /// The query that `answer` belongs to, whose slot is free again.
    fn take(&mut self, answer: &[u8]) -> Option<usize> {
        let &[turn, slot, ..] = answer else { return None };
        let place = self.slots.get_mut(usize::from(slot))?;
        if place.turn != turn {
            return None;
        }
        let (query, _) = place.asked.take()?;
        self.free.push(slot);
        Some(query)
    }

    /// Frees the slots that waited too long; returns how many.
    fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        for (index, place) in self.slots.iter_mut().enumerate() {
            if place.asked.is_some_and(|(_, sent)| now.duration_since(sent) > TIMEOUT) {
                place.asked = None;
                self.free.push(index as u8);
                expired += 1;
            }
        }
        expired
    }

    fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(slots: usize) -> Lane {
        let target = UdpSocket::bind("127.0.0.1:0").unwrap();
        Lane::new(target.local_addr().unwrap(), slots).unwrap()
    }

    #[test]
    fn an_answer_is_taken_once_and_only_in_its_turn() {
        let mut lane = lane(2);
        let slot = lane.free.pop().unwrap();
        let id = lane.ask(slot, 7, Instant::now());
        assert!(!lane.is_idle());
        assert_eq!(lane.take(&[id[0].wrapping_sub(1), id[1], 0]), None);
        assert_eq!(lane.take(&[id[0], 200]), None);
        assert_eq!(lane.take(&[id[0]]), None);
        assert_eq!(lane.take(&id), Some(7));
        assert_eq!(lane.take(&id), None);
        assert!(lane.is_idle());
    }

    #[test]
    fn a_late_answer_is_lost() {
        let mut lane = lane(1);
        let now = Instant::now();
        let slot = lane.free.pop().unwrap();
        let id = lane.ask(slot, 7, now);
        assert_eq!(lane.expire(now + TIMEOUT), 0);
        assert_eq!(lane.expire(now + TIMEOUT + SWEEP), 1);
        assert_eq!(lane.take(&id), None);
        assert!(lane.is_idle());
    }
}
