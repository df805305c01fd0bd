//! `bench stub`: an upstream whose every answer follows from the name asked for.
//!
//! Caches are measured and tested in front of it: what a right answer is can be computed, what
//! reached it is counted, and names that start in a certain way make it misbehave. One thread
//! answers datagrams in batches; what has to wait lies in a wheel, so that a late answer keeps
//! no other one waiting. TCP has a thread for each connection, the counts a port of their own.

mod answer;
mod counts;
mod delay;
mod http;
pub mod rule;
mod tcp;

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use wire::{Query, Verdict};

use crate::mmsg::{BATCH_MAX, Batch, Wait};
use crate::stats::Random;
use answer::{Fault, Transport};
use counts::Counts;
use delay::{DELAY_MAX, Wheel};

/// Holds a burst of some thousand small questions.
const BUFFER_BYTES: usize = 8 << 20;
/// Tries to find a port that is free for both UDP and TCP.
const PORT_TRIES: usize = 100;

#[derive(Debug, Args)]
pub struct StubArgs {
    /// Where questions are taken, over UDP and TCP; port 0 finds a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Where HTTP tells the counts; port 0 finds a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub counts: SocketAddr,
    /// Every answer waits this long.
    #[arg(long, default_value_t = 0.0)]
    pub latency_ms: f64,
    /// And up to so much longer or shorter.
    #[arg(long, default_value_t = 0.0)]
    pub jitter_ms: f64,
    /// TTL of all records, in seconds.
    #[arg(long, default_value_t = 3600)]
    pub ttl: u32,
}

/// What all threads know.
#[derive(Debug)]
struct Shared {
    latency: Latency,
    ttl_secs: u32,
    counts: Mutex<Counts>,
}

impl Shared {
    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }
}

/// How long answers wait.
#[derive(Clone, Copy, Debug)]
struct Latency {
    base: Duration,
    jitter: Duration,
}

impl Latency {
    fn of(args: &StubArgs) -> Result<Latency> {
        let millis = |option: &str, value: f64| {
            let range = 0.0..=DELAY_MAX.as_secs_f64() * 1e3;
            ensure!(
                range.contains(&value),
                "{option} {value}: from 0 to {} are possible",
                range.end()
            );
            Ok(Duration::from_secs_f64(value / 1e3))
        };
        let latency = Latency {
            base: millis("--latency-ms", args.latency_ms)?,
            jitter: millis("--jitter-ms", args.jitter_ms)?,
        };
        ensure!(
            latency.jitter <= latency.base && latency.base + latency.jitter <= DELAY_MAX,
            "--jitter-ms {} must be at most --latency-ms, and both together at most {DELAY_MAX:?}",
            args.jitter_ms
        );
        Ok(latency)
    }

    fn draw(&self, random: &mut Random) -> Duration {
        if self.jitter.is_zero() {
            return self.base;
        }
        let span = 2 * self.jitter.as_nanos() as usize;
        self.base - self.jitter + Duration::from_nanos(random.below(span) as u64)
    }
}

/// Answers until the process is stopped.
pub fn run(args: &StubArgs) -> Result<()> {
    let latency = Latency::of(args)?;
    let (udp, tcp) = bind(args.listen)?;
    let http = TcpListener::bind(args.counts)
        .with_context(|| format!("stub: cannot listen on {}", args.counts))?;
    let counts = Mutex::new(Counts::default());
    let shared = Arc::new(Shared { latency, ttl_secs: args.ttl, counts });
    let (listen, http_address) = (udp.local_addr()?, http.local_addr()?);
    let responder = Responder::new(udp, shared.clone())?;
    let for_tcp = shared.clone();
    thread::Builder::new().name("tcp".into()).spawn(move || tcp::serve(&tcp, &for_tcp))?;
    thread::Builder::new().name("counts".into()).spawn(move || http::serve(&http, &shared))?;
    println!("ready listen={listen} counts={http_address}");
    std::io::stdout().flush()?;
    responder.run()
}

/// UDP and TCP at the same port.
fn bind(listen: SocketAddr) -> Result<(UdpSocket, TcpListener)> {
    for _ in 0..PORT_TRIES {
        let udp = UdpSocket::bind(listen)
            .with_context(|| format!("stub: cannot listen on {listen} over UDP"))?;
        match TcpListener::bind(udp.local_addr()?) {
            Ok(tcp) => return Ok((udp, tcp)),
            Err(error) if listen.port() != 0 => {
                return Err(error)
                    .with_context(|| format!("stub: cannot listen on {listen} over TCP"));
            }
            Err(_) => {}
        }
    }
    bail!("stub: no port of {} is free for both UDP and TCP", listen.ip())
}

/// An answer over UDP, made and not yet sent.
#[derive(Debug)]
struct Held {
    to: SocketAddr,
    packet: Box<[u8]>,
    stray: bool,
}

/// The thread that answers datagrams.
#[derive(Debug)]
struct Responder {
    shared: Arc<Shared>,
    random: Random,
    wheel: Wheel<Held>,
    due: Vec<Held>,
    inbox: Batch,
    outbox: Outbox,
    query: Query,
    answer: Vec<u8>,
}

impl Responder {
    fn new(socket: UdpSocket, shared: Arc<Shared>) -> Result<Responder> {
        SockRef::from(&socket).set_recv_buffer_size(BUFFER_BYTES)?;
        SockRef::from(&socket).set_send_buffer_size(BUFFER_BYTES)?;
        let stray = UdpSocket::bind((socket.local_addr()?.ip(), 0))
            .context("stub: cannot bind a second port")?;
        Ok(Responder {
            shared,
            random: Random::new(1),
            wheel: Wheel::new(Instant::now()),
            due: Vec::new(),
            inbox: Batch::new(),
            outbox: Outbox { socket, stray, batch: Batch::new(), count: 0, unsent: 0 },
            query: Query::default(),
            answer: Vec::new(),
        })
    }

    fn run(mut self) -> Result<()> {
        loop {
            let count = self.receive()?;
            self.answer_all(count);
            self.send_due();
            self.outbox.flush();
            let unsent = std::mem::take(&mut self.outbox.unsent);
            if unsent > 0 {
                self.shared.counts().unsent += unsent;
            }
        }
    }

    /// Waits for questions, but no longer than until an answer is due.
    fn receive(&mut self) -> Result<usize> {
        let socket = self.outbox.socket.as_fd();
        let wait = match self.wheel.next_due() {
            None => Wait::ForOne,
            Some(due) => {
                let left = due.saturating_duration_since(Instant::now());
                let timeout = Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                };
                match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => Wait::Never,
                    Err(error) => return Err(error).context("stub: poll failed"),
                }
            }
        };
        match self.inbox.receive(socket, wait) {
            Ok(count) => Ok(count),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) =>
            {
                Ok(0)
            }
            Err(error) => Err(error).context("stub: recvmmsg failed"),
        }
    }

    fn answer_all(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let now = Instant::now();
        let shared = self.shared.clone();
        let mut counts = shared.counts();
        for index in 0..count {
            let message = self.inbox.packet(index);
            let Some(from) = self.inbox.sender(index) else { continue };
            let verdict = self.query.read(message);
            if verdict == Verdict::Answer {
                counts.add(&self.query, message, from.port(), Transport::Udp);
            }
            let asked = answer::Asked { query: &self.query, message, verdict };
            let Some(said) =
                answer::write(&asked, Transport::Udp, shared.ttl_secs, &mut self.answer)
            else {
                continue;
            };
            let delay = said.delay.unwrap_or_else(|| shared.latency.draw(&mut self.random));
            let stray = said.fault == Some(Fault::Port);
            if delay.is_zero() {
                self.outbox.push(&self.answer, from, stray);
            } else {
                let packet = self.answer.as_slice().into();
                self.wheel.hold(now + delay, Held { to: from, packet, stray });
            }
        }
    }

    fn send_due(&mut self) {
        self.wheel.take_due(Instant::now(), &mut self.due);
        for held in self.due.drain(..) {
            self.outbox.push(&held.packet, held.to, held.stray);
        }
    }
}

/// Answers on their way out, in batches.
#[derive(Debug)]
struct Outbox {
    socket: UdpSocket,
    /// Another port, which nobody asked.
    stray: UdpSocket,
    batch: Batch,
    count: usize,
    unsent: u64,
}

impl Outbox {
    fn push(&mut self, packet: &[u8], to: SocketAddr, stray: bool) {
        if stray {
            self.unsent += u64::from(self.stray.send_to(packet, to).is_err());
            return;
        }
        self.batch.set_to(self.count, packet, to);
        self.count += 1;
        if self.count == BATCH_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.count > 0 {
            let sent = self.batch.reply(self.socket.as_fd(), self.count).unwrap_or(0);
            self.unsent += (self.count - sent) as u64;
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests;
