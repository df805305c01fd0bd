//! The thread of one cell: sockets around the engine.
//!
//! It waits for any of its sockets, takes what came in batches, lets the
//! engine work, and sends what the engine wants sent. Hits are answered within
//! the batch they came in; nothing on that way allocates, locks or logs.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use authority::Settings;
use cache::cell::{Asker, Flushed, StreamQuestion};
use cache::upstream::Address;
use cache::{Cell, Counts, Moment};
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use tokio::sync::{mpsc, oneshot};
use wire::DropReason;
use wire::reply::MESSAGE_LEN_MAX;

use super::admit::Doorkeeper;
use super::clerk::{Clerk, Client, Clock, Outcome, Rules};
use super::peering::Outside;
use super::ports::{PORTS, Ports};
use super::report::{self, CellReport};
use super::{Command, Routed, SentFrames};
use crate::config::PeerTransport;
use crate::counters::Counters;
use crate::peers::{NodeTag, Opener, Recipient, RefusalCounters, Sealer};
use crate::publish::{Publisher, Snapshot, View};
use crate::udp::{Batch, Listener, Outbox};

/// Datagrams that one system call brings or takes.
const BATCH_LEN: usize = 64;
/// Octets of a client's question, or of a frame, at the most.
const QUESTION_LEN_MAX: usize = 1500;
/// Octets of an upstream answer at the most: over UDP we ask for 1232.
const UPSTREAM_LEN_MAX: usize = 4096;
/// How often an idle thread looks for a stop.
const IDLE: Duration = Duration::from_millis(200);
/// Sockets that are looked after at once when many are ready.
const EVENTS_MAX: usize = 128;
/// Commands before the sockets get their turn.
const COMMANDS_AT_ONCE: usize = 256;
/// Batches of one socket before the others get their turn.
const ROUNDS_MAX: usize = 4;
/// A thread that wakes later than this was away.
const ABSENCE_MIN: Duration = Duration::from_millis(5);
/// For how long others may be silent after it, at the most.
const ABSENCE_MAX: Duration = Duration::from_millis(50);
/// Timers are looked after this often however much comes.
const TICK_MAX: Duration = Duration::from_millis(60);
/// Where a node's clock starts: ages of entries reach back before it.
const CLOCK_START: u64 = 1 << 50;

/// Numbers that the sockets are known by to the kernel.
mod token {
    pub const BELL: u64 = 1 << 32;
    pub const PEERS: u64 = 2 << 32;
    /// And the place of the socket, and whether it is for IPv6.
    pub const UPSTREAM: u64 = 3 << 32;
}

/// What a cell's thread starts with.
#[derive(Debug)]
pub struct Start {
    pub cell: cache::Config,
    /// Empty until the node knows its cluster; then they come here.
    pub listeners: Vec<Listener>,
    pub opening: Receiver<Vec<Listener>>,
    pub peers: UdpSocket,
    pub sealer: Sealer,
    pub opener: Opener,
    pub refusals: Arc<RefusalCounters>,
    pub doorkeeper: Doorkeeper,
    pub publisher: Arc<Publisher>,
    pub routed: Arc<ArcSwap<Routed>>,
    pub commands: Receiver<Command>,
    pub bell: Arc<OwnedFd>,
    pub counts: Arc<Counts>,
    pub sent: Arc<SentFrames>,
    pub counters: Arc<Counters>,
    /// The same for questions over connections.
    pub stream_counters: Arc<Counters>,
    pub outside: Outside,
    pub transport: PeerTransport,
    pub stop: Arc<AtomicBool>,
}

/// The thread of a cell.
#[derive(Debug)]
pub struct Worker {
    start: Start,
    started: Instant,
    /// Counts starts of the engine: after a bug it begins anew.
    lives: u8,
}

impl Worker {
    pub fn new(start: Start) -> Self {
        Worker { start, started: Instant::now(), lives: 0 }
    }

    /// Works until told to stop. A panic is our bug; it costs the cell what it
    /// holds, and nobody else anything.
    pub fn run(mut self) {
        while !self.start.stop.load(Ordering::Relaxed) {
            let work = AssertUnwindSafe(|| Desk::new(&mut self).and_then(|mut desk| desk.work()));
            match catch_unwind(work) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!("a cache cell cannot go on: {error}; trying again");
                    std::thread::sleep(IDLE);
                }
                Err(_) => {
                    self.start.counters.panics.add(1);
                    tracing::error!("a cache cell failed and begins anew; this is a bug");
                }
            }
        }
    }
}

/// A cell at work.
struct Desk<'w> {
    start: &'w mut Start,
    started: Instant,
    clerk: Clerk,
    routed: arc_swap::Cache<Arc<ArcSwap<Routed>>, Arc<Routed>>,
    view: View,
    epoll: OwnedFd,
    questions: Batch,
    frames: Batch,
    upstream: Box<[u8]>,
    ports: Ports,
    /// Until then nobody is taken for silent.
    not_before: Moment,
    /// When that was last looked at.
    ticked: Moment,
    outboxes: Vec<Outbox>,
    peer_outbox: Outbox,
    sealed: Vec<u8>,
    streams: HashMap<u64, mpsc::Sender<Vec<u8>>>,
    flushes: HashMap<u64, oneshot::Sender<usize>>,
    next_token: u64,
    large: Vec<u8>,
}

impl<'w> Desk<'w> {
    fn new(worker: &'w mut Worker) -> std::io::Result<Self> {
        let started = worker.started;
        // Another seed each time: a bug must not be met again the same way.
        worker.lives = worker.lives.wrapping_add(1);
        let mut config = worker.start.cell.clone();
        config.seed[0] ^= worker.lives;
        let start = &mut worker.start;
        let routed = start.routed.load_full();
        start.outside.set_members(routed.now.view());
        let first = routed.before.as_ref().unwrap_or(&routed.now).clone();
        let mut cell = Cell::new(config, first, start.counts.clone());
        if let Some(others) = &routed.without_us {
            let (now, before) = (others.now.clone(), others.before.clone());
            cell.set_routing_without_us(moment(started), now, before);
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |socket: &dyn AsFd, token: u64| {
            let data = epoll::EventData::new_u64(token);
            epoll::add(&epoll, socket.as_fd(), data, epoll::EventFlags::IN)
        };
        watch(&start.peers, token::PEERS)?;
        watch(&*start.bell, token::BELL)?;
        let payload = start.cell.udp_payload as usize;
        let publisher = start.publisher.clone();
        Ok(Desk {
            routed: arc_swap::Cache::new(start.routed.clone()),
            view: publisher.view(),
            outboxes: Vec::new(),
            start,
            started,
            clerk: Clerk::new(cell, *publisher.hasher(), BATCH_LEN),
            epoll,
            questions: Batch::new(BATCH_LEN, QUESTION_LEN_MAX, payload.max(512)),
            frames: Batch::new(BATCH_LEN, QUESTION_LEN_MAX, 1),
            upstream: vec![0; UPSTREAM_LEN_MAX].into(),
            ports: Ports::new(),
            not_before: Moment(0),
            ticked: Moment(0),
            peer_outbox: Outbox::default(),
            sealed: Vec::new(),
            streams: HashMap::new(),
            flushes: HashMap::new(),
            next_token: 0,
            large: Vec::new(),
        })
    }

    fn now(&self) -> Moment {
        moment(self.started)
    }

    fn work(&mut self) -> std::io::Result<()> {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        while !self.start.stop.load(Ordering::Relaxed) {
            self.open_when_told()?;
            let (asleep, timeout) = (self.now(), self.timeout());
            let timespec = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
            let ready = match epoll::wait(&self.epoll, &mut events, Some(&timespec)) {
                Ok((ready, _)) => ready,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.note_absence(asleep + timeout);
            // Before what came is looked at: a cell that was idle must not route
            // it as things were.
            self.take_routing();
            let mut has_more = false;
            for event in ready {
                match event.data.u64() {
                    token::BELL => self.take_commands(),
                    token::PEERS => has_more |= self.take_frames(),
                    port if port >= token::UPSTREAM => {
                        has_more |= self.take_upstream(port - token::UPSTREAM);
                    }
                    listener => self.serve_clients(listener as usize),
                }
            }
            let now = self.now();
            // What came is read before anybody is taken for silent.
            let is_due = now >= self.not_before && !has_more || now.since(self.ticked) >= TICK_MAX;
            if is_due {
                self.ticked = now;
                self.clerk.cell.tick(now, &mut self.clerk.effects);
            }
            self.perform();
        }
        Ok(())
    }

    /// Listens to clients once the node knows its cluster.
    fn open_when_told(&mut self) -> std::io::Result<()> {
        if let Ok(listeners) = self.start.opening.try_recv() {
            self.start.listeners = listeners;
        }
        for index in self.outboxes.len()..self.start.listeners.len() {
            self.outboxes.push(Outbox::default());
            let listener = &self.start.listeners[index];
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &listener.socket, data, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// If this thread wakes long after it wanted to, it did not get its core, or
    /// was stopped; so were others, perhaps. The time is not held against them.
    fn note_absence(&mut self, wanted: Moment) {
        let now = self.now();
        let late = now.since(wanted);
        if late >= ABSENCE_MIN {
            self.not_before = now + late.min(ABSENCE_MAX);
        }
    }

    /// Routes as the node does.
    fn take_routing(&mut self) {
        if self.routed.load().now.tag() == self.clerk.cell.routing().tag() {
            return;
        }
        let now = self.now();
        let routed = self.routed.load().clone();
        self.start.outside.set_members(routed.now.view());
        // Whoever was not there under the key before hears of it first.
        if let Some(before) = &routed.before
            && before.epoch().number > self.clerk.cell.routing().epoch().number
        {
            self.clerk.cell.set_routing(now, before.clone());
        }
        self.clerk.cell.set_routing(now, routed.now.clone());
        if let Some(others) = &routed.without_us {
            let (routing, before) = (others.now.clone(), others.before.clone());
            self.clerk.cell.set_routing_without_us(now, routing, before);
        }
    }

    /// Until the engine wants to do something, or the thread to look around.
    fn timeout(&self) -> Duration {
        let now = self.now();
        let due = self.clerk.cell.next_due().map(|due| due.max(self.not_before));
        due.map_or(IDLE, |due| due.since(now).min(IDLE))
    }

    /// Answers what clients ask at one socket.
    fn serve_clients(&mut self, index: usize) {
        for _ in 0..ROUNDS_MAX {
            let listener = &self.start.listeners[index];
            let with_destination = listener.with_destination;
            let received = self.questions.receive(listener.socket.as_fd(), false, with_destination);
            let Ok(count) = received else { return };
            let arrived = Instant::now();
            let now = Moment(CLOCK_START + (arrived - self.started).as_micros() as u64);
            let snapshot = self.view.load().clone();
            let clock = Clock::at(now);
            for at in 0..count {
                if let Some((request, _, _)) = self.questions.message(at) {
                    self.clerk.read(at, request);
                }
            }
            self.clerk.look_ahead(count);
            for at in 0..count {
                self.serve_client(index, at, clock, &snapshot.settings);
            }
            let listener = &self.start.listeners[index];
            let failed = self.questions.send(listener.socket.as_fd());
            let counters = &self.start.counters;
            counters.send_errors.add(failed as u64);
            counters.latency_us.observe(arrived.elapsed().as_micros() as u64, count as u64);
            // What waits for others leaves before the next batch is taken.
            self.perform();
            if count < BATCH_LEN {
                return;
            }
        }
    }

    #[inline]
    fn serve_client(&mut self, listener: usize, at: usize, clock: Clock, settings: &Settings) {
        let to = self.questions.destination(at);
        let counters = &self.start.counters;
        let Some((request, from, out)) = self.questions.message(at) else {
            return counters.drops[DropReason::Long as usize].add(1);
        };
        if from.port() == 0 {
            return counters.drops[DropReason::NoPort as usize].add(1);
        }
        let mut rules = Rules {
            doorkeeper: &mut self.start.doorkeeper,
            settings,
            counts: &self.start.counts,
            counters,
        };
        let asker = Asker::Datagram { listener: listener as u16, from, to };
        let client = Client { request, from: from.ip(), asker, idle_100ms: None };
        if let Outcome::Reply(len) = self.clerk.answer(at, &mut rules, clock, &client, out) {
            self.questions.push_answer(at, len);
        }
    }

    /// Takes what other cells say; true if there may be more.
    fn take_frames(&mut self) -> bool {
        for _ in 0..ROUNDS_MAX {
            let Ok(count) = self.frames.receive(self.start.peers.as_fd(), false, false) else {
                return false;
            };
            let now = self.now();
            let unix_secs = Clock::at(now).unix_secs;
            for at in 0..count {
                let Some((datagram, from)) = self.frames.message_mut(at) else { continue };
                match self.start.opener.open(unix_secs, datagram) {
                    Ok(opened) => {
                        let source = (from, opened.from_cell);
                        self.clerk.cell.take_frame(
                            now,
                            source,
                            opened.payload,
                            &mut self.clerk.effects,
                        );
                    }
                    Err(refusal) => self.start.refusals.add(refusal, from),
                }
            }
            self.perform();
            if count < BATCH_LEN {
                return false;
            }
        }
        true
    }

    /// Takes what came to one of the upstream sockets; true if there may be
    /// more.
    fn take_upstream(&mut self, number: u64) -> bool {
        let place = (number / 2) as u16;
        if place >= PORTS {
            return false;
        }
        let now = self.now();
        for _ in 0..BATCH_LEN {
            let mut received = None;
            for socket in self.ports.sockets(place) {
                if let Ok(found) = socket.recv_from(&mut self.upstream) {
                    received = Some(found);
                    break;
                }
            }
            let Some((len, from)) = received else { return false };
            let octets = &self.upstream[..len];
            self.clerk.cell.take_datagram(now, from, place, octets, &mut self.clerk.effects);
        }
        true
    }

    fn take_commands(&mut self) {
        let mut rung = [0; 8];
        let _ = rustix::io::read(&*self.start.bell, &mut rung);
        for _ in 0..COMMANDS_AT_ONCE {
            match self.start.commands.try_recv() {
                Ok(command) => self.take_command(command),
                Err(_) => return,
            }
        }
        // There may be more; the sockets have their turn first.
        let _ = rustix::io::write(&*self.start.bell, &1u64.to_ne_bytes());
    }

    fn take_command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Ask { request, from, idle_100ms, reply } => {
                self.ask_over_stream(now, &request, from, idle_100ms, reply);
            }
            Command::Stream { token, octets } => {
                self.clerk.cell.take_stream(now, token, octets.as_deref(), &mut self.clerk.effects);
            }
            Command::Frame { address, cell, octets } => {
                self.clerk.cell.take_frame(now, (address, cell), &octets, &mut self.clerk.effects);
            }
            Command::Handover { waited, octets, done } => {
                let _ = done.send(self.clerk.cell.take_handover(now, waited, &octets));
            }
            Command::Flush { mut flush, done } => {
                flush.token = self.token();
                let token = flush.token;
                if self.clerk.cell.flush(now, flush) {
                    self.flushes.insert(token, done);
                }
            }
            Command::Report { done } => {
                let _ = done.send(CellReport::of(&self.clerk.cell, now));
            }
            Command::Dump { cursor, count, done } => {
                let _ = done.send(report::dump(&mut self.clerk.cell, now, cursor, count));
            }
        }
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Answers a question that came over a connection.
    fn ask_over_stream(
        &mut self,
        now: Moment,
        request: &[u8],
        from: IpAddr,
        idle_100ms: u16,
        reply: mpsc::Sender<Vec<u8>>,
    ) {
        let snapshot = self.view.load().clone();
        let token = self.token();
        self.large.resize(MESSAGE_LEN_MAX, 0);
        let mut rules = Rules {
            doorkeeper: &mut self.start.doorkeeper,
            settings: &snapshot.settings,
            counts: &self.start.counts,
            counters: &self.start.stream_counters,
        };
        let asker = Asker::Stream(token);
        let client = Client { request, from, asker, idle_100ms: Some(idle_100ms) };
        self.clerk.read(0, request);
        match self.clerk.answer(0, &mut rules, Clock::at(now), &client, &mut self.large) {
            Outcome::Reply(len) => {
                let _ = reply.try_send(self.large[..len].to_vec());
            }
            Outcome::Waits => {
                self.streams.insert(token, reply);
            }
            Outcome::Dropped => {
                let _ = reply.try_send(Vec::new());
            }
        }
    }

    /// Does what the engine wants done.
    fn perform(&mut self) {
        if self.clerk.effects.is_empty() {
            return;
        }
        // Answers from our own zones may want something done in turn.
        while !self.clerk.effects.streams.is_empty() {
            for question in std::mem::take(&mut self.clerk.effects.streams) {
                self.ask_upstream_over_stream(question);
            }
        }
        // Before anything leaves from these ports again.
        for place in std::mem::take(&mut self.clerk.effects.worn_ports) {
            let epoll = &self.epoll;
            self.ports.renew(place, |socket| {
                let _ = epoll::delete(epoll, socket.as_fd());
            });
        }
        self.send_replies();
        self.send_parcels();
        self.send_upstream();
        for handover in self.clerk.effects.handovers.drain(..) {
            self.start.outside.hand_over(handover);
        }
        for Flushed { token, removed } in self.clerk.effects.flushed.drain(..) {
            if let Some(done) = self.flushes.remove(&token) {
                let _ = done.send(removed);
            }
        }
        self.clerk.effects.clear();
    }

    fn send_replies(&mut self) {
        let counters = &self.start.counters;
        for reply in &self.clerk.effects.replies {
            let octets = &self.clerk.effects.octets[reply.octets.clone()];
            let [_, _, high, low, ..] = *octets else { continue };
            let by_transport = match reply.asker {
                Asker::Datagram { .. } => counters,
                Asker::Stream(_) => &self.start.stream_counters,
            };
            by_transport.count_reply(u16::from(low & 0xf), octets.len(), high & 2 != 0);
            match reply.asker {
                Asker::Datagram { listener, from, to } => {
                    self.outboxes[listener as usize].push(from, to, octets);
                }
                Asker::Stream(token) => {
                    if let Some(stream) = self.streams.remove(&token) {
                        let _ = stream.try_send(octets.to_vec());
                    }
                }
            }
        }
        for (listener, outbox) in self.start.listeners.iter().zip(&mut self.outboxes) {
            if !outbox.is_empty() {
                counters.send_errors.add(outbox.send(listener.socket.as_fd()) as u64);
            }
        }
    }

    fn send_parcels(&mut self) {
        let unix_secs = Clock::at(self.now()).unix_secs;
        let is_streamed = self.start.transport == PeerTransport::Grpc;
        let (outside, sent) = (&self.start.outside, &self.start.sent);
        for parcel in &self.clerk.effects.parcels {
            let is_own = outside.is_own(parcel);
            if is_own && outside.send(parcel) {
                continue;
            }
            if is_streamed && !is_own {
                // What a connection does not take is noticed by the silence:
                // whoever wants no datagrams gets none.
                sent.over_connections.add(u64::from(outside.send(parcel)));
                continue;
            }
            sent.in_datagrams.add(u64::from(!is_own));
            let to = Recipient::cell(NodeTag::from_tag(parcel.to.node), parcel.to.cell);
            self.start.sealer.seal(to, unix_secs, &mut self.sealed, |out| {
                out.extend_from_slice(&parcel.octets);
            });
            self.peer_outbox.push(parcel.to.address, None, &self.sealed);
        }
        if !self.peer_outbox.is_empty() {
            // Who cannot be reached is noticed by its silence.
            let _ = self.peer_outbox.send(self.start.peers.as_fd());
        }
        for parcel in &self.clerk.effects.bulky {
            sent.over_connections.add(u64::from(outside.send(parcel) && !outside.is_own(parcel)));
        }
    }

    fn send_upstream(&mut self) {
        for datagram in &self.clerk.effects.datagrams {
            // Who cannot be reached is noticed by its silence.
            let Ok((socket, is_new)) = self.ports.get(datagram.port, datagram.to) else { continue };
            let _ = socket.send_to(&datagram.octets, datagram.to);
            if is_new {
                let number = 2 * u64::from(datagram.port) + u64::from(datagram.to.is_ipv6());
                let data = epoll::EventData::new_u64(token::UPSTREAM + number);
                let _ = epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN);
            }
        }
    }

    fn ask_upstream_over_stream(&mut self, question: StreamQuestion) {
        match question.to {
            Address::Socket(to) => {
                self.start.outside.ask(to, question.token, question.octets);
            }
            Address::Local => {
                let now = self.now();
                let snapshot = self.view.load().clone();
                let Snapshot { catalog, settings, .. } = &*snapshot;
                self.large.resize(MESSAGE_LEN_MAX, 0);
                let (clerk, clock, large) = (&mut self.clerk, Clock::at(now), &mut self.large);
                let len = clerk.ask_own_zones(catalog, settings, clock, &question.octets, large);
                let octets = len.map(|len| &large[..len]);
                clerk.cell.take_stream(now, question.token, octets, &mut clerk.effects);
            }
        }
    }
}

/// The moment it is now at a node that began at `started`.
fn moment(started: Instant) -> Moment {
    Moment(CLOCK_START + started.elapsed().as_micros() as u64)
}
