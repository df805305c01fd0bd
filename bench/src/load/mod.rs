//! The load generator: one thread, several sockets, a bounded window of outstanding questions.
//!
//! In a closed loop an answer makes room for the next question, so the server is always busy and
//! never flooded. Paced, questions leave when they are due, whatever the server does, and a
//! pause of the server shows in the latencies. An answer that does not come in time is lost.
//! Every answer is checked.

mod histogram;
mod lane;
mod outcome;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use crate::interrupt;
use crate::mmsg::{BATCH_MAX, Batch, PACKET_BYTES_MAX, Wait};
use crate::queries::{Expect, QuerySet, Wrong, check_answer};
pub use histogram::{Histogram, Latencies};
use lane::{Asked, Lane, SLOTS_MAX};
pub use outcome::{Outcome, SPAN, Span};

/// After this long a question counts as lost.
pub const TIMEOUT: Duration = Duration::from_millis(500);
/// How often old questions are looked for.
const SWEEP: Duration = Duration::from_millis(50);
/// A paced question that leaves later than this was kept waiting by the window: its latency
/// counts from when it was due.
const LATE_MAX: Duration = Duration::from_millis(5);
/// A load that waits looks up at least so often.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// What a load asks, by number.
pub trait Questions {
    /// Writes the question with id 0 to the start of `packet`; returns its length and what a
    /// right answer looks like. The same number is always the same question.
    fn write(&self, number: u64, packet: &mut [u8; PACKET_BYTES_MAX]) -> (usize, Expect);
}

impl Questions for QuerySet {
    fn write(&self, number: u64, packet: &mut [u8; PACKET_BYTES_MAX]) -> (usize, Expect) {
        let (bytes, expect) = self.get((number % self.len() as u64) as usize);
        packet[..bytes.len()].copy_from_slice(bytes);
        (bytes.len(), *expect)
    }
}

/// How hard to ask.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// Sockets, and so source ports; over all targets.
    pub sockets: usize,
    /// Outstanding questions over all sockets. In a closed loop they must fit the server's
    /// receive buffer even when it has the system's default size of 208 KiB, as Knot's has: 212
    /// small packets.
    pub window: usize,
    /// Questions a second; none for a closed loop.
    pub rate: Option<u32>,
    pub idle: Idle,
    pub refusal: Refusal,
    /// Count throughput over time as well.
    pub spans: bool,
}

/// What the load does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Looks again at once. Nothing else may need its core.
    Spin,
    /// Leaves its core to others until an answer comes or a question is due.
    Wait,
}

/// What the load does when a target's port is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Fail,
    /// Asks another target at once, as clients with several servers do. The latency goes on.
    AskAnother,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure {
            sockets: 16,
            window: 192,
            rate: None,
            idle: Idle::Spin,
            refusal: Refusal::Fail,
            spans: false,
        }
    }
}

/// When a load has asked enough.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Elapsed(Duration),
    Asked(u64),
}

/// Binds the calling thread to `core`.
pub fn pin_to(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}"))
}

/// Asks one server, or several nodes in turn.
pub struct Load<'q> {
    questions: &'q dyn Questions,
    pressure: Pressure,
    /// Expected of every answer, whatever the questions say.
    expect_always: Option<Expect>,
    lanes: Vec<Lane>,
    first_lane: usize,
    next_number: u64,
    /// Questions that were refused and wait to be asked elsewhere.
    again: Vec<Asked>,
    inbox: Batch,
    outbox: Batch,
    question: Box<[u8; PACKET_BYTES_MAX]>,
}

/// The clock of one run.
#[derive(Clone, Copy, Debug)]
struct Pace {
    started: Instant,
    rate: Option<u32>,
    until: Until,
    asked: u64,
}

impl Pace {
    /// How many questions may be asked for the first time by `now`; `None` after the last.
    fn allowance(&self, now: Instant) -> Option<u64> {
        let elapsed = now.duration_since(self.started);
        let left = match self.until {
            Until::Elapsed(limit) if elapsed >= limit => return None,
            Until::Elapsed(_) => u64::MAX,
            Until::Asked(count) if self.asked >= count => return None,
            Until::Asked(count) => count - self.asked,
        };
        let due = match self.rate {
            None => u64::MAX,
            Some(rate) => {
                let due = elapsed.as_nanos() * u128::from(rate) / 1_000_000_000;
                (due as u64 + 1).saturating_sub(self.asked)
            }
        };
        Some(left.min(due))
    }

    /// When the next question is due; none in a closed loop.
    fn next_due(&self) -> Option<Instant> {
        let nanos = u128::from(self.asked) * 1_000_000_000 / u128::from(self.rate?);
        Some(self.started + Duration::from_nanos(nanos as u64))
    }
}

impl<'q> Load<'q> {
    pub fn new(
        targets: &[SocketAddr],
        questions: &'q dyn Questions,
        pressure: Pressure,
    ) -> Result<Load<'q>> {
        ensure!(!targets.is_empty() && pressure.rate != Some(0), "nothing to ask");
        let slots = pressure.window / pressure.sockets.max(1);
        ensure!(
            (1..=SLOTS_MAX).contains(&slots),
            "a window of {} over {} sockets is {slots} a socket; from 1 to {SLOTS_MAX} are possible",
            pressure.window,
            pressure.sockets
        );
        let lanes = targets.iter().cycle().take(pressure.sockets);
        if pressure.idle == Idle::Wait {
            // Or else the kernel adds 50 µs to every pause.
            set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer slack")?;
        }
        Ok(Load {
            questions,
            pressure,
            expect_always: None,
            lanes: lanes.map(|target| Lane::new(*target, slots)).collect::<Result<_>>()?,
            first_lane: 0,
            next_number: 0,
            again: Vec::new(),
            inbox: Batch::new(),
            outbox: Batch::new(),
            question: Box::new([0; PACKET_BYTES_MAX]),
        })
    }

    /// The target is the floor responder, whose answer is always the same.
    pub fn expect_floor(&mut self) {
        self.expect_always = Some(Expect::floor());
    }

    /// Asks, then waits for the answers outstanding.
    pub fn run(&mut self, until: Until) -> Result<Outcome> {
        let started = Instant::now();
        let mut pace = Pace { started, rate: self.pressure.rate, until, asked: 0 };
        let mut outcome = Outcome::default();
        let (mut last_answer, mut swept) = (started, started);
        loop {
            let now = Instant::now();
            let asked_before = pace.asked;
            let answers_before = outcome.answers;
            let asking = pace.allowance(now).is_some();
            for turn in 0..self.lanes.len() {
                let lane = (self.first_lane + turn) % self.lanes.len();
                self.receive(lane, started, &mut outcome)?;
                self.send(lane, &mut pace, &mut outcome)?;
            }
            self.first_lane = (self.first_lane + 1) % self.lanes.len();
            if outcome.answers > answers_before {
                outcome.silence_max = outcome.silence_max.max(now.duration_since(last_answer));
                last_answer = now;
            }
            if now.duration_since(swept) >= SWEEP {
                swept = now;
                interrupt::check()?;
                self.expire(started, now, &mut outcome);
            }
            if !asking && self.again.is_empty() && self.lanes.iter().all(Lane::is_idle) {
                break;
            }
            let idle = outcome.answers == answers_before && pace.asked == asked_before;
            if idle && self.pressure.idle == Idle::Wait {
                self.wait(pace.next_due().filter(|_| asking))?;
            }
        }
        outcome.seconds = last_answer.duration_since(started).as_secs_f64();
        Ok(outcome)
    }

    fn receive(&mut self, lane: usize, started: Instant, outcome: &mut Outcome) -> Result<()> {
        let lane = &mut self.lanes[lane];
        let count = match self.inbox.receive(lane.socket.as_fd(), Wait::Never) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if self.pressure.tolerates(&error) => {
                outcome.refused += retire(lane, &mut self.again);
                return Ok(());
            }
            Err(error) => return Err(error).context("the server does not take queries"),
        };
        let now = Instant::now();
        for index in 0..count {
            let answer = self.inbox.packet(index);
            let Some(asked) = lane.take(answer) else { continue };
            let latency = now.duration_since(asked.since);
            outcome.answers += 1;
            outcome.latencies.add(latency);
            if self.pressure.spans {
                outcome.span(started, now).latencies.add(latency);
            }
            let (len, expect) = self.questions.write(asked.number, &mut self.question);
            let expect = self.expect_always.unwrap_or(expect);
            if let Err(wrong) = check_answer(&self.question[..len], answer, &expect) {
                let failed = is_failure(wrong);
                outcome.failed += u64::from(failed);
                outcome.wrong += u64::from(!failed);
                if self.pressure.spans && failed {
                    outcome.span(started, now).failed += 1;
                }
                outcome.first_wrong.get_or_insert_with(|| {
                    let question = hex(&self.question[..len]);
                    format!("{wrong}; query {question}, answer {}", hex(answer))
                });
            }
        }
        Ok(())
    }

    /// Sends what is due. A closed loop waits until half of the lane is free, for the sake of
    /// the batch.
    fn send(&mut self, lane: usize, pace: &mut Pace, outcome: &mut Outcome) -> Result<()> {
        let lane = &mut self.lanes[lane];
        let now = Instant::now();
        let fresh = pace.allowance(now).unwrap_or(0);
        let wanted = fresh.saturating_add(self.again.len() as u64).min(BATCH_MAX as u64) as usize;
        let count = lane.room(now).min(wanted);
        if count == 0 || (pace.rate.is_none() && !lane.is_half_free()) {
            return Ok(());
        }
        let mut unsent = Vec::new();
        for index in 0..count {
            let asked = match self.again.pop() {
                Some(asked) => asked,
                None => {
                    let due = pace.next_due().unwrap_or(now);
                    let late = now.saturating_duration_since(due);
                    outcome.late_max = outcome.late_max.max(late);
                    let number = self.next_number;
                    self.next_number += 1;
                    pace.asked += 1;
                    Asked { number, since: if late > LATE_MAX { due } else { now } }
                }
            };
            let Some(id) = lane.ask(asked, now) else { break };
            let (len, _) = self.questions.write(asked.number, &mut self.question);
            self.outbox.set(index, &self.question[..len])[..2].copy_from_slice(&id);
        }
        match lane.send(&mut self.outbox, count) {
            Ok(sent) => {
                for index in sent..count {
                    unsent.extend(lane.take(&self.outbox.packet(index)[..2]));
                }
                self.again.append(&mut unsent);
                Ok(())
            }
            Err(error) if self.pressure.tolerates(&error) => {
                outcome.refused += retire(lane, &mut self.again);
                Ok(())
            }
            Err(error) => Err(error).context("cannot send queries"),
        }
    }

    fn expire(&mut self, started: Instant, now: Instant, outcome: &mut Outcome) {
        let waiting = self.again.len();
        self.again.retain(|asked| now.duration_since(asked.since) <= TIMEOUT);
        let nowhere = (waiting - self.again.len()) as u64;
        let lost = nowhere + self.lanes.iter_mut().map(|lane| lane.expire(now)).sum::<u64>();
        outcome.lost += lost;
        if self.pressure.spans && lost > 0 {
            outcome.span(started, now).lost += lost;
        }
    }

    /// Sleeps until an answer or the time of the next question.
    fn wait(&self, due: Option<Instant>) -> Result<()> {
        let left = due.map_or(WAIT_MAX, |due| due.saturating_duration_since(Instant::now()));
        let left = left.min(WAIT_MAX);
        if left.is_zero() {
            return Ok(());
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        let sockets = self.lanes.iter().map(|lane| PollFd::new(&lane.socket, PollFlags::IN));
        match poll(&mut sockets.collect::<Vec<_>>(), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("poll failed"),
        }
    }
}

impl Pressure {
    fn tolerates(&self, error: &std::io::Error) -> bool {
        self.refusal == Refusal::AskAnother && error.kind() == ErrorKind::ConnectionRefused
    }
}

/// Lets the lane rest and its questions be asked elsewhere; returns how many those are.
fn retire(lane: &mut Lane, again: &mut Vec<Asked>) -> u64 {
    let before = again.len();
    lane.rest(Instant::now(), again);
    (again.len() - before) as u64
}

/// A cache may say that it has no answer; an answer that it has must be right.
fn is_failure(wrong: Wrong) -> bool {
    const SERVFAIL: u8 = 2;
    const REFUSED: u8 = 5;
    matches!(wrong, Wrong::Rcode { got: SERVFAIL | REFUSED, expected: 0 })
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    use crate::queries::{EdnsMode, address_query};

    fn queries() -> QuerySet {
        let mut set = QuerySet::default();
        set.push(&address_query("a.test", EdnsMode::None), Expect::floor());
        set
    }

    /// Answers everything with the floor's address until the test process ends.
    fn responder() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let mut answer = bytes[..len].to_vec();
                answer[2..12].copy_from_slice(&[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1]);
                let _ = socket.send_to(&answer, from);
            }
        });
        address
    }

    fn gentle(rate: Option<u32>) -> Pressure {
        Pressure { sockets: 4, window: 64, rate, idle: Idle::Wait, ..Pressure::default() }
    }

    #[test]
    fn so_many_are_asked_and_all_are_answered() {
        let (queries, targets) = (queries(), [responder(), responder()]);
        for rate in [None, Some(10_000)] {
            let pressure = Pressure { spans: true, ..gentle(rate) };
            let mut load = Load::new(&targets, &queries, pressure).unwrap();
            let outcome = load.run(Until::Asked(500)).unwrap();
            assert_eq!((outcome.answers, outcome.lost, outcome.wrong), (500, 0, 0));
            assert_eq!(outcome.latencies.count(), 500);
            assert_eq!(outcome.spans.iter().map(|it| it.latencies.count()).sum::<u64>(), 500);
            assert_eq!(outcome.complaint(), None);
        }
    }

    #[test]
    fn a_closed_port_is_fatal_or_another_is_asked() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (queries, targets) = (queries(), [closed, responder()]);
        let mut load = Load::new(&targets, &queries, gentle(None)).unwrap();
        assert!(load.run(Until::Asked(200)).is_err());
        let pressure = Pressure { refusal: Refusal::AskAnother, ..gentle(None) };
        let outcome = Load::new(&targets, &queries, pressure).unwrap().run(Until::Asked(200));
        let outcome = outcome.unwrap();
        assert_eq!((outcome.answers, outcome.lost), (200, 0));
        assert!(outcome.refused > 0);
    }

    #[test]
    fn wrong_answers_are_told_from_failures() {
        let mut queries = QuerySet::default();
        let other = Expect::address([10, 0, 0, 1].into());
        queries.push(&address_query("a.test", EdnsMode::None), other);
        let mut load = Load::new(&[responder()], &queries, gentle(None)).unwrap();
        let outcome = load.run(Until::Asked(9)).unwrap();
        assert_eq!((outcome.answers, outcome.wrong, outcome.failed), (9, 9, 0));
        assert!(outcome.complaint().unwrap().contains("9 of 9"));
        assert!(is_failure(Wrong::Rcode { got: 2, expected: 0 }));
        assert!(!is_failure(Wrong::Rcode { got: 2, expected: 3 }));
        assert!(!is_failure(Wrong::Answers { got: 0, expected: 1 }));
    }

    #[test]
    fn a_pace_is_kept_and_ends() {
        let started = Instant::now();
        let at = |ms| started + Duration::from_millis(ms);
        let mut pace =
            Pace { started, rate: Some(1000), until: Until::Elapsed(at(50) - started), asked: 0 };
        assert_eq!((pace.allowance(at(0)), pace.allowance(at(10))), (Some(1), Some(11)));
        pace.asked = 11;
        assert_eq!((pace.allowance(at(10)), pace.next_due()), (Some(0), Some(at(11))));
        assert_eq!(pace.allowance(at(50)), None);
        let closed = Pace { rate: None, until: Until::Asked(20), ..pace };
        assert_eq!((closed.allowance(at(99)), closed.next_due()), (Some(9), None));
        assert_eq!(Pace { asked: 20, ..closed }.allowance(at(1)), None);
    }
}
