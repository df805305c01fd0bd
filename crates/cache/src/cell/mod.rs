//! One cell: a thread's whole share of a node, without the thread.
//!
//! A cell answers clients from its L1, keeps its part of the L2, asks the
//! cells that own what it does not know, resolves upstream what it owns, and
//! answers the cells that ask it. Events come in with the time, what is to be
//! done goes out as [`Effects`]; between two calls nothing happens. Cells
//! share nothing: two cells of one node talk as two nodes do.
//!
//! The way of a question (`ask`): L1, then this cell's L2, then whoever waits
//! for the same already; then its owners in their order (`owners`), each given
//! a moment before the next is asked too; then upstream (`resolve`), where
//! aliases may lead from some servers to others (`follow`); then data past its
//! time; then SERVFAIL with its reason. A cell that is asked by
//! another (`serve`) answers from L2 or resolves: it never passes a question
//! on, so that nodes which disagree about owners still answer.

mod ask;
mod effects;
mod flush;
mod follow;
mod hot;
mod owners;
mod peers;
mod pending;
mod reply;
mod resolve;
#[cfg(test)]
mod scene;
mod serve;
mod warm;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Routing;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::answer::{Answer, TtlLimits};
use crate::counts::Counts;
use crate::peer::FrameHead;
use crate::slab::{Id, Slab};
use crate::store::{Limits, Store};
use crate::time::Moment;
use crate::upstream::{Address, Budget, Flights, Upstreams};

pub use ask::{Answered, Ask, Opt};
pub use effects::{Asker, Datagram, Effects, Flushed, Handover, Parcel, Reply, StreamQuestion};
pub use flush::Flush;
use flush::Flushes;
use hot::HotKeys;
use owners::{HEDGES_MAX, Request};
pub use peers::PeerReport;
use peers::Peers;
use pending::Pendings;
use warm::{HandoverJob, Previous};

/// How long anybody waits for an answer; then it is SERVFAIL.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(4000);
/// How long clients wait before they get data past its time (RFC 8767, 5).
const STALE_AFTER: Duration = Duration::from_millis(1800);
/// TTL of data past its time (RFC 8767, 4).
const STALE_TTL_SECS: u32 = 30;
/// Places of the counters of busy sources; a power of two. Sources that share
/// one are counted together.
const SOURCES: usize = 4096;
/// Renewals that are remembered; a power of two. Of two that share a place the
/// later one is.
const RENEWALS: usize = 1024;

/// What a cell is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name.
    pub name: Arc<str>,
    /// Which of the node's cells this is, and how many there are.
    pub cell: u8,
    pub cells: u8,
    pub l1: Limits,
    pub l2: Limits,
    pub ttl: TtlLimits,
    /// How long data past its time is kept for when nothing better can be had;
    /// 0: it is not.
    pub stale_secs: u32,
    /// Whether what is asked for often is renewed before its time is over.
    pub prefetch: bool,
    /// Questions that may be pending.
    pub pending_max: usize,
    /// Questions that may be pending for clients of one source.
    pub pending_per_source_max: u16,
    /// Largest UDP message this server takes, as its OPT records say.
    pub udp_payload: u16,
    /// Answer to NSID.
    pub identity: Option<Box<[u8]>>,
    /// Servers by the domains they are for; the root is for all others.
    pub upstreams: Vec<(Box<[u8]>, Vec<Address>)>,
    /// Sockets that questions go upstream from.
    pub upstream_ports: u16,
    /// Upstream questions per second of the whole cluster.
    pub upstream_per_sec: Option<f64>,
    /// All randomness of the cell comes from here.
    pub seed: [u8; 32],
}

/// A cell.
#[derive(Debug)]
pub struct Cell {
    config: Config,
    counts: Arc<Counts>,
    random: ChaCha12Rng,
    /// Tables are indexed by hashes under this key, which nobody else knows.
    table_key: [u8; 16],
    l1: Store<Arc<Answer>>,
    l2: Store<Arc<Answer>>,
    /// What failed lately. Apart from L2: a failure must not push out the data
    /// that could be served in its place.
    failures: Store<Arc<Answer>>,
    pendings: Pendings,
    requests: Slab<Request>,
    flights: Flights,
    upstreams: Upstreams,
    budget: Budget,
    routing: Arc<Routing>,
    /// This node's place in the routing; `None` while it is no member.
    own: Option<u16>,
    /// How this cell's frames start.
    head: FrameHead,
    peers: Peers,
    /// A timer is set to probe those that are suspected.
    is_probing: bool,
    previous: Vec<Previous>,
    /// How the others routed before this node joined them.
    without_us: Vec<Previous>,
    /// Until then a newcomer may not have heard of all the others.
    learns_until: Moment,
    handover: Option<HandoverJob>,
    timers: BinaryHeap<Reverse<(Moment, Due)>>,
    flushes: Flushes,
    hot: HotKeys,
    /// Pending questions of clients, by the hash of their source.
    busy: Box<[u16]>,
    /// What was renewed lately and when, by hash.
    renewals: Box<[(u64, Moment)]>,
    /// Questions that may still be hedged.
    hedges: f32,
    /// For messages being put together.
    scratch: Vec<u8>,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Pending(Id),
    Probes,
    Handover,
    Flush,
}

impl Cell {
    /// An empty cell, routing as `routing` says.
    pub fn new(config: Config, routing: Arc<Routing>, counts: Arc<Counts>) -> Self {
        let mut random = ChaCha12Rng::from_seed(config.seed);
        let mut table_key = [0; 16];
        random.fill_bytes(&mut table_key);
        let failures = Limits { entries: config.l1.entries.max(1024), bytes: config.l1.bytes };
        let mut cell = Cell {
            counts,
            random,
            table_key,
            l1: Store::new(config.l1),
            l2: Store::new(config.l2),
            failures: Store::new(failures),
            pendings: Pendings::default(),
            requests: Slab::default(),
            flights: Flights::new(config.upstream_ports),
            upstreams: Upstreams::new(config.upstreams.clone()),
            budget: Budget::new(None),
            own: None,
            head: FrameHead { tag: 0, from: cluster::name_tag(&config.name) },
            peers: Peers::default(),
            is_probing: false,
            previous: Vec::new(),
            without_us: Vec::new(),
            learns_until: Moment(0),
            handover: None,
            timers: BinaryHeap::new(),
            flushes: Flushes::default(),
            hot: HotKeys::default(),
            busy: vec![0; SOURCES].into(),
            renewals: vec![(0, Moment(0)); RENEWALS].into(),
            hedges: HEDGES_MAX,
            scratch: Vec::new(),
            routing: routing.clone(),
            config,
        };
        cell.take_routing(Moment(0), routing);
        cell
    }

    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    pub fn upstreams(&self) -> &Upstreams {
        &self.upstreams
    }

    /// What it routes by.
    pub fn routing(&self) -> &Arc<Routing> {
        &self.routing
    }

    /// Entries and their octets in L1 and L2, and the work under way.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            l1_entries: self.l1.len(),
            l1_bytes: self.l1.bytes(),
            l1_evicted: self.l1.evicted(),
            l2_entries: self.l2.len(),
            l2_bytes: self.l2.bytes(),
            l2_evicted: self.l2.evicted(),
            pending: self.pendings.len(),
            requests: self.requests.len(),
            flights: self.flights.len(),
            timers: self.timers.len(),
            handover_left: self.handover_left(),
        }
    }

    /// Some entries of L2, from `cursor` on, and where to go on.
    pub fn entries(&mut self, cursor: usize, count: usize) -> (Vec<Arc<Answer>>, Option<usize>) {
        let mut entries = Vec::new();
        let (_, next) = self.l2.sweep(cursor, count, |answer| {
            entries.push(answer.clone());
            true
        });
        (entries, next)
    }

    /// How the other members do, as seen from here.
    pub fn peers(&self) -> Vec<PeerReport> {
        self.peers.reports()
    }

    /// When [`Cell::tick`] wants to be called next.
    pub fn next_due(&self) -> Option<Moment> {
        self.timers.peek().map(|Reverse((moment, _))| *moment)
    }

    /// Does what is due by now.
    pub fn tick(&mut self, now: Moment, effects: &mut Effects) {
        while let Some(Reverse((moment, due))) = self.timers.peek().copied()
            && moment <= now
        {
            self.timers.pop();
            match due {
                Due::Pending(id) => self.wake(now, id, moment, effects),
                Due::Probes => self.probe(now, effects),
                Due::Handover => self.hand_over_some(now, effects),
                Due::Flush => self.flush_some(now, effects),
            }
        }
    }

    fn set_timer(&mut self, moment: Moment, due: Due) {
        self.timers.push(Reverse((moment, due)));
    }

    /// Sets the timer of a pending question to the earliest of its times.
    fn schedule(&mut self, id: Id) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        let next = pending.next_time();
        // An earlier timer that is still set will find that nothing is due.
        if pending.wakes_at != next {
            pending.wakes_at = next;
            self.set_timer(next, Due::Pending(id));
        }
    }

    /// Looks after a pending question whose timer rang.
    fn wake(&mut self, now: Moment, id: Id, moment: Moment, effects: &mut Effects) {
        let Some(pending) = self.pendings.get_mut(id) else { return };
        if pending.wakes_at != moment {
            return;
        }
        // So that it is set again whatever happens.
        pending.wakes_at = Moment(u64::MAX);
        if pending.ends_at <= now {
            return self.fail(now, id, reply::TOO_LATE, effects);
        }
        if pending.stale_at.is_some_and(|at| at <= now) {
            self.release_with_stale(now, id, effects);
        }
        self.say_working(now, id, effects);
        let is_due = self.pendings.get(id).is_some_and(|pending| pending.step_at <= now);
        if is_due {
            self.step(now, id, effects);
        }
        self.schedule(id);
    }
}

/// How much a cell holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub l1_entries: usize,
    pub l1_bytes: usize,
    pub l1_evicted: u64,
    pub l2_entries: usize,
    pub l2_bytes: usize,
    pub l2_evicted: u64,
    pub pending: usize,
    /// Questions that other cells were asked and have not answered.
    pub requests: usize,
    /// Questions on their way upstream.
    pub flights: usize,
    pub timers: usize,
    /// Places of L2 still to be looked at for new owners.
    pub handover_left: usize,
}
