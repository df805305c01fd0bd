//! A paced load that records each answer's latency and watches one name for a new address.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use crate::load::hex;
use crate::measure::dropped_at;
use crate::mmsg::{Batch, Wait};
use crate::queries::{EdnsMode, Expect, QuerySet, Wrong, address_query, check_answer};

/// After this long a query counts as lost.
const TIMEOUT: Duration = Duration::from_secs(1);
/// One query in so many asks for the watched name.
const WATCH_EVERY: u64 = 10;
const IDS: usize = 1 << 16;
/// Holds the answers of some tenths of a second: a load that is kept from its core must not
/// lose what the server said in time. The system's usual size holds 14 ms of 20,000 a second.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// What the load is told and tells while it runs.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    /// Taken by the load only for one query in [`WATCH_EVERY`].
    addresses: Mutex<Addresses>,
}

#[derive(Clone, Copy, Debug)]
struct Addresses {
    old: Ipv4Addr,
    new: Ipv4Addr,
    /// When an answer first held `new`.
    seen: Option<Instant>,
}

impl Watch {
    pub fn new(address: Ipv4Addr) -> Watch {
        let addresses = Addresses { old: address, new: address, seen: None };
        Watch(Arc::new(Shared { stop: AtomicBool::new(false), addresses: Mutex::new(addresses) }))
    }

    /// The watched name will change to `address`.
    pub fn expect(&self, address: Ipv4Addr) {
        let mut addresses = self.addresses();
        *addresses = Addresses { old: addresses.new, new: address, seen: None };
    }

    pub fn seen(&self) -> Option<Instant> {
        self.addresses().seen
    }

    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Addresses> {
        self.0.addresses.lock().expect("no holder panics")
    }
}

/// One query.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub sent: Instant,
    /// None if it was lost.
    pub latency: Option<Duration>,
}

#[derive(Debug)]
pub struct Pace {
    pub samples: Vec<Sample>,
    pub wrong: u64,
    pub first_wrong: Option<String>,
    /// Old addresses in answers to queries sent after the new one was seen.
    pub old_after_new: u64,
    /// How far behind the pace a query was sent at worst.
    pub late_max: Duration,
    socket: UdpSocket,
    interval: Duration,
    watched: Vec<u8>,
    sent: u64,
    /// By id.
    outstanding: Vec<Option<Asked>>,
    inbox: Batch,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    sample: usize,
    /// None for the watched name.
    query: Option<usize>,
}

impl Pace {
    pub fn new(target: SocketAddr, rate: u32, watched: &str) -> Result<Pace> {
        let socket = UdpSocket::bind("127.0.0.1:0").context("cannot bind a socket for the load")?;
        SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        socket.connect(target).with_context(|| format!("cannot ask {target}"))?;
        Ok(Pace {
            samples: Vec::new(),
            wrong: 0,
            first_wrong: None,
            old_after_new: 0,
            late_max: Duration::ZERO,
            socket,
            interval: Duration::from_secs(1) / rate,
            watched: address_query(watched, EdnsMode::None),
            sent: 0,
            outstanding: vec![None; IDS],
            inbox: Batch::new(),
        })
    }

    /// Answers that reached this machine's socket of the load and found it full.
    pub fn dropped(&self) -> Result<u64> {
        dropped_at(self.socket.local_addr()?.port())
    }

    /// Asks until the watch says stop, then waits for what is outstanding.
    pub fn run(&mut self, queries: &QuerySet, watch: &Watch) -> Result<()> {
        let mut due = Instant::now();
        let mut stopped = None;
        loop {
            let now = Instant::now();
            if stopped.is_none() && watch.0.stop.load(Ordering::Relaxed) {
                stopped = Some(now);
            }
            match stopped {
                Some(since) if now.duration_since(since) > TIMEOUT => return Ok(()),
                Some(_) => due = now + Duration::from_millis(10),
                None => {
                    while due <= now {
                        self.ask(queries, due)?;
                        due += self.interval;
                    }
                }
            }
            if self.receive(queries, watch)? == 0 {
                self.wait_until(due)?;
            }
        }
    }

    fn ask(&mut self, queries: &QuerySet, due: Instant) -> Result<()> {
        let id = (self.sent % IDS as u64) as u16;
        let watched = self.sent.is_multiple_of(WATCH_EVERY);
        let query = (!watched).then(|| self.sent as usize % queries.len());
        let mut packet = match query {
            Some(query) => queries.get(query).0.to_vec(),
            None => self.watched.clone(),
        };
        packet[..2].copy_from_slice(&id.to_be_bytes());
        self.sent += 1;
        let sent = Instant::now();
        self.late_max = self.late_max.max(sent.duration_since(due));
        self.outstanding[usize::from(id)] = Some(Asked { sample: self.samples.len(), query });
        self.samples.push(Sample { sent, latency: None });
        // What the socket does not take is lost, and counted so.
        match self.socket.send(&packet) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                Err(error).context("the server does not take queries")
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self, queries: &QuerySet, watch: &Watch) -> Result<usize> {
        let count = match self.inbox.receive(self.socket.as_fd(), Wait::Never) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error).context("the server does not take queries"),
        };
        let now = Instant::now();
        for index in 0..count {
            let answer = self.inbox.packet(index);
            let &[high, low, ..] = answer else { continue };
            let id = usize::from(u16::from_be_bytes([high, low]));
            let Some(asked) = self.outstanding[id].take() else { continue };
            let sample = &mut self.samples[asked.sample];
            let latency = now.duration_since(sample.sent);
            if latency > TIMEOUT {
                continue;
            }
            sample.latency = Some(latency);
            let sent = sample.sent;
            let checked = match asked.query {
                Some(query) => {
                    let (packet, expect) = queries.get(query);
                    check_answer(packet, answer, expect)
                }
                None => {
                    check_watched(&self.watched, answer, sent, now, watch).map(|old_after_new| {
                        self.old_after_new += u64::from(old_after_new);
                    })
                }
            };
            if let Err(wrong) = checked {
                self.wrong += 1;
                self.first_wrong.get_or_insert_with(|| format!("{wrong}; answer {}", hex(answer)));
            }
        }
        Ok(count)
    }

    /// Sleeps until an answer or the time of the next query.
    fn wait_until(&self, due: Instant) -> Result<()> {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("poll failed"),
        }
    }
}

/// Whether the answer, sent for after the new address was seen, still holds the old one.
fn check_watched(
    query: &[u8],
    answer: &[u8],
    sent: Instant,
    now: Instant,
    watch: &Watch,
) -> Result<bool, Wrong> {
    let mut addresses = watch.addresses();
    if check_answer(query, answer, &Expect::address(addresses.new)).is_ok() {
        addresses.seen.get_or_insert(now);
        return Ok(false);
    }
    check_answer(query, answer, &Expect::address(addresses.old))?;
    Ok(addresses.seen.is_some_and(|seen| sent > seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_address_is_seen_once_and_the_old_one_is_late_after_it() {
        let (old, new) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let query = address_query("www.a.test", EdnsMode::None);
        let answer = |address: Ipv4Addr| {
            let mut answer = query.clone();
            answer[2..12].copy_from_slice(&[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend(address.octets());
            answer
        };
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let watch = Watch::new(old);
        watch.expect(new);
        let check =
            |address, sent, now| check_watched(&query, &answer(address), at(sent), at(now), &watch);
        assert_eq!(check(old, 0, 1), Ok(false));
        assert_eq!(watch.seen(), None);
        assert_eq!(check(new, 2, 3), Ok(false));
        assert_eq!(check(new, 4, 5), Ok(false));
        assert_eq!(watch.seen(), Some(at(3)));
        assert_eq!(check(old, 2, 6), Ok(false));
        assert_eq!(check(old, 4, 6), Ok(true));
        assert!(check(Ipv4Addr::LOCALHOST, 7, 8).is_err());
    }
}
