//! Answering one client: whether it may ask, what is no question for a cache,
//! and the cache itself. The same for datagrams and connections.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use authority::respond::{Arrival, Context, Scratch, Transport, respond};
use authority::{Catalog, NameHasher, Settings};
use cache::cell::{Answered, Ask, Asker, Effects, Opt};
use cache::{Cell, Counts, Moment};
use wire::edns::PAYLOAD_MIN;
use wire::reply::MESSAGE_LEN_MAX;
use wire::{DropReason, ExtendedError, Flags, OptReply, Query, Rcode, Reply, Verdict};

use super::admit::{Doorkeeper, Refused};
use crate::counters::Counters;

const NOT_ALLOWED: ExtendedError =
    ExtendedError { code: 18, text: "this cache does not answer clients from there" };
const TOO_OFTEN: ExtendedError =
    ExtendedError { code: 0, text: "too many questions a second from there" };
const NOT_RECURSIVE: ExtendedError =
    ExtendedError { code: 18, text: "this cache answers only with recursion desired" };

/// The clocks of a batch.
#[derive(Clone, Copy)]
pub struct Clock {
    pub now: Moment,
    pub unix_secs: u32,
    millis: u32,
}

impl Clock {
    pub fn at(now: Moment) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { now, unix_secs: since.as_secs() as u32, millis: since.as_millis() as u32 }
    }
}

/// What clients are answered by, beside the cell.
pub struct Rules<'a> {
    pub doorkeeper: &'a mut Doorkeeper,
    pub settings: &'a Settings,
    pub counts: &'a Counts,
    /// Of the transport that the question came by.
    pub counters: &'a Counters,
}

/// A message of a client.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    pub request: &'a [u8],
    pub from: IpAddr,
    pub asker: Asker,
    /// Over a connection: how long it may be idle.
    pub idle_100ms: Option<u16>,
}

/// What comes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A reply of this length was written.
    Reply(usize),
    /// The reply comes later, among the effects.
    Waits,
    /// It is for nobody.
    Dropped,
}

/// A cell and what it takes to read questions for it.
pub struct Clerk {
    pub cell: Cell,
    pub effects: Effects,
    pub hasher: NameHasher,
    /// Questions that came together, as they were read.
    read: Box<[Read]>,
    scratch: Scratch,
    no_zones: Catalog,
}

/// A question that was read.
struct Read {
    query: Query,
    verdict: Verdict,
    hash: u64,
}

impl Clerk {
    /// A clerk who takes up to `together` questions at once, at least one.
    pub fn new(cell: Cell, hasher: NameHasher, together: usize) -> Self {
        let empty =
            || Read { query: Query::default(), verdict: Verdict::Drop(DropReason::Short), hash: 0 };
        Clerk {
            cell,
            effects: Effects::default(),
            hasher,
            read: (0..together.max(1)).map(|_| empty()).collect(),
            scratch: Scratch::default(),
            no_zones: Catalog::default(),
        }
    }

    /// Reads the `at`th of several questions.
    #[inline]
    pub fn read(&mut self, at: usize, request: &[u8]) {
        let read = &mut self.read[at];
        read.verdict = read.query.read(request);
        if read.verdict == Verdict::Answer {
            read.hash = self.cell.hash_of(&read.query);
        }
    }

    /// Looks ahead for the first `count` questions that were read.
    #[inline]
    pub fn look_ahead(&self, count: usize) {
        let read = self.read.iter().take(count).filter(|read| read.verdict == Verdict::Answer);
        let seen = read.fold(0, |seen, read| seen ^ self.cell.look_ahead(read.hash));
        std::hint::black_box(seen);
    }

    /// Answers the client whose question was read as the `at`th into `out`, or
    /// lets it wait.
    #[inline]
    pub fn answer(
        &mut self,
        at: usize,
        rules: &mut Rules<'_>,
        clock: Clock,
        client: &Client<'_>,
        out: &mut [u8],
    ) -> Outcome {
        let Client { request, from, asker, idle_100ms } = *client;
        let Read { query, verdict, hash } = &self.read[at];
        let (verdict, hash) = (*verdict, *hash);
        if let Verdict::Drop(reason) = verdict {
            return drop_it(rules.counters, reason);
        }
        rules.counters.received_len.add(request.len() as u64);
        let settings = rules.settings;
        let opt = opt_of(query, settings, from, clock.unix_secs, idle_100ms);
        let refused = match rules.doorkeeper.admit(from, clock.millis) {
            Err(refused) => Some(error_of(refused, rules.counts)),
            Ok(()) if verdict == Verdict::Answer && !query.flags.has(Flags::RD) => {
                query.is_internet().then_some(NOT_RECURSIVE)
            }
            Ok(()) => None,
        };
        let answered = if let Some(error) = refused {
            Some(refuse(query, request, opt, settings, error, out))
        } else if verdict != Verdict::Answer || !query.is_internet() {
            let transport = match idle_100ms {
                Some(idle_100ms) => Transport::Tcp { idle_100ms },
                None => Transport::Udp,
            };
            let arrival = Arrival::new(from, transport);
            let context = Context {
                catalog: &self.no_zones,
                hasher: &self.hasher,
                settings,
                now_secs: clock.unix_secs,
            };
            let outcome = respond(&context, &mut self.scratch, request, arrival, out);
            match outcome.result {
                Ok(rcode) => Some(Answered {
                    len: outcome.len,
                    rcode: rcode as u16,
                    truncated: outcome.truncated,
                }),
                Err(reason) => return drop_it(rules.counters, reason),
            }
        } else {
            let limit = match (idle_100ms, &query.edns) {
                (Some(_), _) => MESSAGE_LEN_MAX,
                (None, None) => PAYLOAD_MIN as usize,
                (None, Some(edns)) => {
                    edns.payload.clamp(PAYLOAD_MIN, settings.udp_payload.max(PAYLOAD_MIN)) as usize
                }
            };
            let ask = Ask { query, hash, request, asker, from, limit, opt };
            self.cell.ask(clock.now, &ask, out, &mut self.effects)
        };
        match answered {
            Some(Answered { len, rcode, truncated }) => {
                rules.counters.count_answer(query.qtype, rcode, len, truncated);
                Outcome::Reply(len)
            }
            None => {
                rules.counters.count_type(query.qtype);
                Outcome::Waits
            }
        }
    }

    /// Answers a question of our own from the zones of this process; returns
    /// the length of the answer.
    pub fn ask_own_zones(
        &mut self,
        catalog: &Catalog,
        settings: &Settings,
        clock: Clock,
        question: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let mut settings = settings.clone();
        settings.cookies = None;
        let context = Context {
            catalog,
            hasher: &self.hasher,
            settings: &settings,
            now_secs: clock.unix_secs,
        };
        let arrival = Arrival::new(IpAddr::from([127, 0, 0, 1]), Transport::Tcp { idle_100ms: 0 });
        let outcome = respond(&context, &mut self.scratch, question, arrival, out);
        (outcome.len > 0).then_some(outcome.len)
    }
}

fn drop_it(counters: &Counters, reason: DropReason) -> Outcome {
    counters.drops[reason as usize].add(1);
    Outcome::Dropped
}

/// What the OPT record of a reply will say.
#[inline]
fn opt_of(
    query: &Query,
    settings: &Settings,
    from: IpAddr,
    unix_secs: u32,
    idle_100ms: Option<u16>,
) -> Option<Opt> {
    query.edns.as_ref().map(|edns| Opt {
        dnssec_ok: edns.dnssec_ok,
        wants_nsid: edns.nsid,
        cookie: edns.cookie.and_then(|cookie| {
            let secrets = settings.cookies.as_ref()?;
            Some(secrets.answer(&cookie, from, unix_secs).value)
        }),
        keepalive: idle_100ms.filter(|_| edns.keepalive),
    })
}

/// What to say to who may not ask; counts it.
#[cold]
fn error_of(refused: Refused, counts: &Counts) -> ExtendedError {
    match refused {
        Refused::Network => {
            counts.not_allowed.add(1);
            NOT_ALLOWED
        }
        Refused::Rate => {
            counts.too_often.add(1);
            TOO_OFTEN
        }
    }
}

/// Writes a refusal.
#[cold]
fn refuse(
    query: &Query,
    request: &[u8],
    opt: Option<Opt>,
    settings: &Settings,
    error: ExtendedError,
    out: &mut [u8],
) -> Answered {
    let opt = opt.as_ref().map(|opt| OptReply {
        payload: settings.udp_payload,
        dnssec_ok: opt.dnssec_ok,
        rcode: Rcode::Refused,
        nsid: None,
        cookie: opt.cookie.as_ref(),
        keepalive: opt.keepalive,
        error: Some(error),
    });
    let room = out.len();
    let reply = Reply::start(out, request, query, room);
    let len = reply.finish(query, Rcode::Refused, false, opt);
    Answered { len, rcode: Rcode::Refused as u16, truncated: false }
}
