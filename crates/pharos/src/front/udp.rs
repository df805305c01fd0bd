//! Datagrams: one thread per core, each with its own sockets, its own table of
//! what waits, and its own opinion of how busy each node is.
//!
//! A thread receives a batch of questions, gives each an id of its own, and
//! sends it to a node; it receives a batch of answers, checks that each comes
//! from the node that was asked and repeats the question, and sends it to the
//! client from the address that was asked. Between the system calls nothing
//! allocates, locks or waits.
//!
//! A node that falls silent is not waited for: what it owes is asked once more,
//! elsewhere. The first answer counts, whoever sends it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::board::{Board, Table};
use super::choice::{Dice, NODES_MAX, Reach, Seats, Standings};
use super::counters::{Counters, Loss};
use super::lane::{Lane, RetryBudget};
use super::message;
use super::outstanding::{Client, Entry, Outstanding, Stage};
use crate::random;
use crate::udp::mmsg::{Batch, Waiter};
use crate::udp::{BATCH_LEN, IDLE, Listener, QUESTION_LEN_MAX, RECEIVE_BUFFER_LEN};

/// Octets of the longest reply: what a datagram can carry.
const REPLY_LEN_MAX: usize = 65_535;
/// How often the questions that wait are looked after.
const TICK: Duration = Duration::from_millis(2);
/// A question that its node owes while it answers others is asked elsewhere
/// after this time: it may have been lost on the way.
const SLOW_US: u64 = 1_000_000;
/// How long a question waits when nobody else will be asked.
const LAST_US: u64 = 4_000_000;
/// Questions in a row that a silent node owes before it is suspected.
const SILENT_MAX: u32 = 10;
/// Questions that are asked again in one tick, so that others have their turn.
const RETRIES_PER_TICK: usize = 1024;

/// A socket to the nodes of one family of addresses.
#[derive(Debug)]
pub struct Exit {
    socket: UdpSocket,
    is_ipv6: bool,
}

impl Exit {
    /// Sockets to IPv4 and IPv6 nodes, as far as the system has both.
    ///
    /// They are not connected: one call takes the questions of a batch to all
    /// nodes, and brings the answers of all.
    pub fn bind_all() -> io::Result<Vec<Self>> {
        let families: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let (mut exits, mut failed) = (Vec::new(), None);
        for address in families {
            match Exit::bind(address) {
                Ok(exit) => exits.push(exit),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if exits.is_empty() => Err(error),
            _ => Ok(exits),
        }
    }

    fn bind(address: IpAddr) -> io::Result<Self> {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Best effort: the system may allow less.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_LEN);
        let _ = socket.set_send_buffer_size(RECEIVE_BUFFER_LEN);
        socket.bind(&address.into())?;
        Ok(Exit { socket: socket.into(), is_ipv6: address.is_ipv6() })
    }
}

/// A thread that passes questions on.
#[derive(Debug)]
pub struct Worker {
    /// Its place among the threads.
    pub number: usize,
    pub listeners: Vec<Listener>,
    pub exits: Vec<Exit>,
    pub board: Arc<Board>,
    pub counters: Arc<Counters>,
    pub stop: Arc<AtomicBool>,
}

impl Worker {
    /// Passes on until told to stop. A panic is our bug, and costs what waits;
    /// the thread goes on, because everybody else still asks.
    pub fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            if catch_unwind(AssertUnwindSafe(|| self.pass_all())).is_err() {
                self.counters.panics.add(1);
                tracing::error!("a thread of the front failed and goes on; this is a bug");
            }
        }
    }

    fn pass_all(&self) {
        let listeners = self.listeners.iter().map(|listener| listener.socket.as_raw_fd());
        let exits = self.exits.iter().map(|exit| exit.socket.as_raw_fd());
        let sockets: Vec<RawFd> = listeners.chain(exits).collect();
        let mut waiter = Waiter::new(&sockets);
        let mut desk = Desk::new(self);
        while !self.stop.load(Ordering::Relaxed) {
            waiter.wait(if desk.is_idle() { IDLE } else { TICK });
            desk.look_around();
            for index in (0..sockets.len()).filter(|index| waiter.is_ready(*index)) {
                match index.checked_sub(self.listeners.len()) {
                    None => desk.pass_questions(index),
                    Some(exit) => desk.pass_answers(exit),
                }
            }
            desk.keep_time();
        }
    }
}

/// What a thread works with.
struct Desk<'w> {
    worker: &'w Worker,
    questions: Batch,
    answers: Batch,
    /// For each message of a batch: whom it goes to.
    targets: [Option<Target>; BATCH_LEN],
    outstanding: Outstanding,
    lanes: Vec<Lane>,
    table: Arc<Table>,
    standings: Standings,
    version: u64,
    dice: Dice,
    budget: RetryBudget,
    started: Instant,
    ticked_us: u64,
    /// Questions that waited at the last tick, as the counters tell.
    told: usize,
}

/// Whom a message goes to, and through which socket.
#[derive(Clone, Copy)]
struct Target {
    socket: usize,
    address: SocketAddr,
    source: Option<IpAddr>,
}

impl<'w> Desk<'w> {
    fn new(worker: &'w Worker) -> Self {
        let mut dice = Dice(u64::from_le_bytes(random::octets()));
        Desk {
            worker,
            questions: Batch::new(BATCH_LEN, QUESTION_LEN_MAX, 0),
            answers: Batch::new(BATCH_LEN, REPLY_LEN_MAX, 0),
            targets: [None; BATCH_LEN],
            outstanding: Outstanding::new(|| dice.roll()),
            lanes: (0..NODES_MAX).map(|_| Lane::default()).collect(),
            table: Arc::default(),
            standings: Standings::default(),
            version: 0,
            dice,
            budget: RetryBudget::default(),
            started: Instant::now(),
            ticked_us: 0,
            told: 0,
        }
    }

    /// True if nothing waits, and everybody can see that.
    fn is_idle(&self) -> bool {
        self.outstanding.len() == 0 && self.told == 0
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn count(&self, loss: Loss) {
        self.worker.counters.lose(loss);
    }

    /// Takes over what changed about the nodes.
    #[inline]
    fn look_around(&mut self) {
        let version = self.worker.board.version();
        if version != self.version {
            self.version = version;
            self.take_table();
        }
    }

    #[cold]
    fn take_table(&mut self) {
        self.table = self.worker.board.table();
        self.standings = self.table.standings();
        for seat in 0..NODES_MAX {
            let Some(node) = self.table.node(seat) else { continue };
            if self.lanes[seat].is_of(node) {
                continue;
            }
            // Whoever sat here before is not asked any more.
            while let Some(id) = self.outstanding.any_of(seat) {
                self.outstanding.remove(id);
                self.worker.counters.lose(Loss::NodeGone);
            }
            self.lanes[seat] = Lane::new(node.clone(), self.worker.number);
        }
    }

    /// Receives questions of clients and sends them to nodes.
    fn pass_questions(&mut self, listener: usize) {
        let Listener { socket, with_destination, .. } = &self.worker.listeners[listener];
        let received = self.questions.receive(socket.as_fd(), false, *with_destination);
        // An error is left over from an earlier answer to somebody who cannot
        // be reached: there is always a next batch.
        let Ok(count) = received else { return };
        let now_us = self.now_us();
        for index in 0..count {
            let target = self.place(index, listener, now_us);
            self.targets[index] = target.map_err(|loss| self.count(loss)).ok();
        }
        for (number, exit) in self.worker.exits.iter().enumerate() {
            let targets = &self.targets[..count];
            let failed = send_through(&exit.socket, number, &mut self.questions, targets);
            self.worker.counters.lose_many(Loss::Unsent, failed);
        }
    }

    /// Finds a node for a question and lets the question wait for it.
    #[inline]
    fn place(&mut self, index: usize, listener: usize, now_us: u64) -> Result<Target, Loss> {
        let source = self.questions.destination(index);
        let (message, address) = self.questions.message_mut(index).ok_or(Loss::Long)?;
        if address.port() == 0 {
            return Err(Loss::NoPort);
        }
        message::check_question(message)?;
        let shard = self.table.shard_of(address.ip());
        let strict = self.worker.board.sharding.is_some_and(|sharding| sharding.strict);
        let (candidates, reach) = self.standings.candidates(shard, strict);
        match reach {
            Reach::Ready => {}
            Reach::OutOfShard => self.worker.counters.out_of_shard.add(1),
            Reach::Open => self.worker.counters.open.add(1),
        }
        let outstanding = &mut self.outstanding;
        let load = |seat| u64::from(outstanding.count(seat));
        let seat = candidates.pick(self.dice.roll(), load).ok_or(Loss::NoNode)?;
        let client = Client { address, id: message::id(message), listener: listener as u8, source };
        if outstanding.insert(client, message, seat as u8, now_us).is_some() {
            self.worker.counters.lose(Loss::Overwritten);
        }
        self.budget.earn();
        let lane = &self.lanes[seat];
        lane.count_question();
        self.target_of(seat).ok_or(Loss::Unsent)
    }

    /// Where the node in a seat is reached.
    #[inline]
    fn target_of(&self, seat: usize) -> Option<Target> {
        let address = self.lanes[seat].address()?;
        let is_for = |exit: &Exit| exit.is_ipv6 == address.is_ipv6();
        let socket = self.worker.exits.iter().position(is_for)?;
        Some(Target { socket, address, source: None })
    }

    /// Receives answers of nodes and sends them to clients.
    fn pass_answers(&mut self, exit: usize) {
        let socket = self.worker.exits[exit].socket.as_fd();
        let Ok(count) = self.answers.receive(socket, false, false) else { return };
        let now_us = self.now_us();
        for index in 0..count {
            let client = self.accept(index, now_us);
            let client = client.map_err(|loss| self.count(loss)).ok();
            self.targets[index] = client.map(|client| Target {
                socket: client.listener as usize,
                address: client.address,
                source: client.source,
            });
        }
        for (number, listener) in self.worker.listeners.iter().enumerate() {
            let targets = &self.targets[..count];
            let failed = send_through(&listener.socket, number, &mut self.answers, targets);
            self.worker.counters.lose_many(Loss::Unsent, failed);
        }
    }

    /// Checks a reply; if it is what somebody waits for, says who, and gives
    /// it the id that he knows.
    #[inline]
    fn accept(&mut self, index: usize, now_us: u64) -> Result<Client, Loss> {
        let (reply, from) = self.answers.message_mut(index).ok_or(Loss::ReplyLong)?;
        message::flags(reply).ok_or(Loss::ReplyMalformed)?;
        let id = message::id(reply);
        let asked = self.outstanding.get(id).and_then(|entry| asked_of(entry, from, &self.lanes));
        let Some((seat, asked_us)) = asked else {
            let is_node = self.lanes.iter().any(|lane| lane.address() == Some(from));
            return Err(if is_node { Loss::ReplyUnknown } else { Loss::ReplySource });
        };
        message::check_reply(reply, self.outstanding.kept(id))?;
        let entry = self.outstanding.remove(id).ok_or(Loss::ReplyUnknown)?;
        message::set_id(reply, entry.client.id);
        self.lanes[seat].count_answer(now_us, now_us - asked_us);
        Ok(entry.client)
    }

    /// Looks after what waits for too long.
    fn keep_time(&mut self) {
        let now_us = self.now_us();
        if now_us - self.ticked_us < TICK.as_micros() as u64 {
            return;
        }
        self.ticked_us = now_us;
        self.told = self.outstanding.len();
        let mut retries_left = RETRIES_PER_TICK;
        for seat in 0..NODES_MAX {
            let waiting = self.outstanding.count(seat);
            self.lanes[seat].keep_time(now_us, waiting);
            if waiting > 0 {
                self.keep_time_of(seat, now_us, &mut retries_left);
            }
        }
    }

    fn keep_time_of(&mut self, seat: usize, now_us: u64, retries_left: &mut usize) {
        let fresh_until = now_us.checked_sub(self.lanes[seat].patience_us());
        while let Some(id) = fresh_until.and_then(|at| self.outstanding.due(seat, Stage::Fresh, at))
        {
            let asked_us = self.outstanding.get(id).map_or(0, |entry| entry.asked_us);
            if self.lanes[seat].answered_since(asked_us) {
                self.outstanding.advance(id, Stage::Slow, now_us);
            } else if *retries_left > 0 {
                *retries_left -= 1;
                if self.lanes[seat].count_silence().is_multiple_of(SILENT_MAX) {
                    self.suspect(seat);
                }
                self.ask_again(id, seat, now_us);
            } else {
                break;
            }
        }
        let slow_until = now_us.checked_sub(SLOW_US);
        while let Some(id) = slow_until.and_then(|at| self.outstanding.due(seat, Stage::Slow, at))
            && *retries_left > 0
        {
            *retries_left -= 1;
            self.ask_again(id, seat, now_us);
        }
        let last_until = now_us.checked_sub(LAST_US);
        while let Some(id) = last_until.and_then(|at| self.outstanding.due(seat, Stage::Last, at)) {
            self.outstanding.remove(id);
            self.count(Loss::Expired);
        }
    }

    fn suspect(&mut self, seat: usize) {
        if let Some(node) = self.lanes[seat].node() {
            self.worker.board.suspect(node);
        }
        self.look_around();
    }

    /// Asks another node what the one in `seat` owes, if there is one and the
    /// question may be asked again; else lets it wait.
    fn ask_again(&mut self, id: u16, seat: usize, now_us: u64) {
        match self.second_node(id, seat) {
            Some((second, target)) => {
                self.outstanding.ask_again(id, second as u8, now_us);
                self.lanes[seat].count_retry();
                self.lanes[second].count_question();
                let socket = &self.worker.exits[target.socket].socket;
                if socket.send_to(self.outstanding.kept(id), target.address).is_err() {
                    self.count(Loss::Unsent);
                }
            }
            None => self.outstanding.advance(id, Stage::Last, now_us),
        }
    }

    /// A node that can be asked instead of the one in `seat`.
    fn second_node(&mut self, id: u16, seat: usize) -> Option<(usize, Target)> {
        self.outstanding.whole(id)?;
        let client = self.outstanding.get(id)?.client.address.ip();
        let own = self.table.shard_of(client).unwrap_or(self.standings.all);
        let strict = self.worker.board.sharding.is_some_and(|sharding| sharding.strict);
        let others = self.standings.trusted.without(Seats::one(seat));
        let candidates = match others.within(own) {
            near if strict || !near.is_empty() => near,
            _ => others,
        };
        let load = |seat| u64::from(self.outstanding.count(seat));
        let second = candidates.pick(self.dice.roll(), load)?;
        let target = self.target_of(second)?;
        if !self.budget.spend() {
            self.worker.counters.retries_denied.add(1);
            return None;
        }
        Some((second, target))
    }
}

/// Which of the nodes that were asked has the address `from`, and when it was
/// asked.
#[inline]
fn asked_of(entry: &Entry, from: SocketAddr, lanes: &[Lane]) -> Option<(usize, u64)> {
    let seats = [Some(entry.seat), entry.before.map(|(seat, _)| seat)];
    let is_there = |seat: &u8| lanes[*seat as usize].address() == Some(from);
    let seat = seats.into_iter().flatten().find(is_there)?;
    entry.asked_at(seat).map(|asked_us| (seat as usize, asked_us))
}

/// Sends those messages of a batch that go through the socket `number`;
/// returns how many the system did not take.
#[inline]
fn send_through(
    socket: &UdpSocket,
    number: usize,
    batch: &mut Batch,
    targets: &[Option<Target>],
) -> usize {
    for (index, target) in targets.iter().enumerate() {
        if let Some(target) = target.filter(|target| target.socket == number) {
            batch.push_onward(index, target.address, target.source);
        }
    }
    batch.send(socket.as_fd())
}
