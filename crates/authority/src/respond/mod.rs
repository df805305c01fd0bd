//! A question to the octets of its answer.
//!
//! The steps follow RFC 1034, 4.3.2: find the zone, look the name up, follow
//! aliases through the zones of this server, then fill answer, authority and
//! additional section in this order. Nothing is allocated, nothing waits, and
//! nothing outside the arguments is read: the same question at the same time
//! gets the same answer.

mod answer;
mod trail;

use std::net::IpAddr;

use wire::cookie::{CookieSecrets, ReplyCookie};
use wire::edns::PAYLOAD_MIN;
use wire::name::NAME_LEN_MAX;
use wire::reply::MESSAGE_LEN_MAX;
use wire::{DropReason, OptReply, Query, QueryName, Rcode, Reply, Verdict};

use crate::catalog::Catalog;
use crate::hash::{NameHasher, SuffixHashes};
use answer::Answer;

/// Links of a chain of aliases that are followed; then the answer ends.
pub const CHAIN_LEN_MAX: usize = 16;

/// What a server says of itself, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest UDP answer, whatever the asker would take.
    pub udp_payload: u16,
    /// Answer to NSID, `id.server` and `hostname.bind`; `None` says nothing.
    pub identity: Option<String>,
    /// Answer to `version.bind` and `version.server`; `None` says nothing.
    pub version: Option<String>,
    /// Secrets for DNS cookies; without them cookies are ignored.
    pub cookies: Option<CookieSecrets>,
}

impl Default for Settings {
    fn default() -> Self {
        // 1232 fits any path without fragments (DNS flag day 2020).
        Settings { udp_payload: 1232, identity: None, version: None, cookies: None }
    }
}

/// Where a question came from, where to, and how.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The asker's address.
    pub from: IpAddr,
    /// The virtual name server that was asked; `None` if the address asked is
    /// none. Of a batch each question may be for another.
    pub server: Option<u16>,
    /// What carried it.
    pub transport: Transport,
}

impl Arrival {
    /// A question to an address that is no virtual name server.
    pub fn new(from: IpAddr, transport: Transport) -> Self {
        Arrival { from, server: None, transport }
    }
}

/// What carried a question.
#[derive(Clone, Copy, Debug)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// Over a connection that is kept this long when idle, in units of 100 ms.
    Tcp { idle_100ms: u16 },
}

/// What happened to one message, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The code sent, or why nothing was.
    pub result: Result<Rcode, DropReason>,
    /// Hash of the zone's name, 0 if there was none.
    pub zone: u64,
    /// Octets written.
    pub len: usize,
    /// The answer said that it is not all.
    pub truncated: bool,
}

/// Everything an answer depends on besides the question.
#[derive(Clone, Copy, Debug)]
pub struct Context<'c> {
    /// The zones.
    pub catalog: &'c Catalog,
    /// The keys that the catalogue's names are hashed with.
    pub hasher: &'c NameHasher,
    /// What the server says of itself.
    pub settings: &'c Settings,
    /// Unix time, for cookies.
    pub now_secs: u32,
}

/// One question, from its reading to its answer. Used again for the next.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// The question being answered.
    pub query: Query,
    verdict: Verdict,
    hashes: SuffixHashes,
    alias: QueryName,
    target: Target,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            query: Query::default(),
            verdict: Verdict::Drop(DropReason::Short),
            hashes: SuffixHashes::default(),
            alias: QueryName::default(),
            target: Target::default(),
        }
    }
}

impl Scratch {
    /// Reads `request`, so that [`Scratch::answer`] can answer it.
    #[inline]
    pub fn read(&mut self, hasher: &NameHasher, request: &[u8]) {
        self.verdict = self.query.read(request);
        if self.verdict == Verdict::Answer {
            hasher.suffixes(self.query.name(), &mut self.hashes);
        }
    }

    /// Writes the answer to `request`, which was read last, into `out`, which
    /// has room for the largest answer of the transport.
    // Always: a call would pass all of this through memory.
    #[inline(always)]
    pub fn answer(
        &mut self,
        context: &Context<'_>,
        request: &[u8],
        arrival: Arrival,
        out: &mut [u8],
    ) -> Outcome {
        if let Verdict::Drop(reason) = self.verdict {
            return Outcome { result: Err(reason), zone: 0, len: 0, truncated: false };
        }
        let Scratch { query, verdict, hashes, alias, target } = self;
        let Arrival { from, server, transport } = arrival;
        let settings = context.settings;
        let cookie = match (&query.edns, &settings.cookies) {
            (Some(edns), Some(secrets)) => {
                edns.cookie.map(|cookie| secrets.answer(&cookie, from, context.now_secs))
            }
            _ => None,
        };
        let mut opt = opt_reply(query, settings, transport, cookie.as_ref());
        let limit = limit(query, settings, transport).min(out.len());
        // A long identity beside a long name and a cookie does not fit 512 octets.
        if let Some(opt) = &mut opt
            && query.question_end() + opt.len() > limit
        {
            opt.nsid = None;
        }
        let room = limit.saturating_sub(opt.as_ref().map_or(0, OptReply::len));
        let reply = Reply::start(out, request, query, room);
        let mut answer = Answer::new(context, query, server, hashes, target, reply);
        match *verdict {
            Verdict::Reply(rcode) => answer.refuse(rcode, None),
            _ if query.is_internet() => answer.resolve(alias),
            _ => answer.resolve_chaos(),
        }
        let Answer { reply, rcode, authoritative, error, zone, .. } = answer;
        if let Some(opt) = &mut opt {
            opt.rcode = rcode;
            opt.error = error;
            // The reason is a courtesy: it may not push the answer past its limit.
            if reply.position() + opt.len() > limit {
                opt.error = None;
            }
        }
        let truncated = reply.is_truncated();
        let len = reply.finish(query, rcode, authoritative, opt);
        Outcome { result: Ok(rcode), zone, len, truncated }
    }
}

/// The name that an alias leads to, in wire form.
#[derive(Clone, Debug)]
struct Target {
    octets: [u8; NAME_LEN_MAX],
    len: usize,
}

impl Default for Target {
    fn default() -> Self {
        Target { octets: [0; NAME_LEN_MAX], len: 0 }
    }
}

impl Target {
    /// Puts the parts of a name together; false if they are too long for one.
    fn set(&mut self, parts: [&[u8]; 2]) -> bool {
        self.len = parts[0].len() + parts[1].len();
        if self.len > NAME_LEN_MAX {
            return false;
        }
        self.octets[..parts[0].len()].copy_from_slice(parts[0]);
        self.octets[parts[0].len()..self.len].copy_from_slice(parts[1]);
        true
    }

    fn as_bytes(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

/// Brings what the answers to these questions need near the core, without
/// waiting for it. Among many zones every question leads to memory that nobody
/// looked at lately: reading a group of questions first lets the waits for all
/// of them overlap.
#[inline]
pub fn approach(catalog: &Catalog, group: &[Scratch]) {
    if !catalog.is_large() {
        return;
    }
    let questions = || group.iter().filter(|scratch| scratch.verdict == Verdict::Answer);
    for Scratch { query, hashes, .. } in questions() {
        catalog.approach_slots(query.name(), hashes);
    }
    for Scratch { query, hashes, .. } in questions() {
        catalog.approach_zones(query.name(), hashes);
    }
}

/// Reads `request` and writes its answer into `out`, which has room for the
/// largest answer of the transport.
#[inline]
pub fn respond(
    context: &Context<'_>,
    scratch: &mut Scratch,
    request: &[u8],
    arrival: Arrival,
    out: &mut [u8],
) -> Outcome {
    scratch.read(context.hasher, request);
    scratch.answer(context, request, arrival, out)
}

/// Octets that the answer may have.
fn limit(query: &Query, settings: &Settings, transport: Transport) -> usize {
    match (transport, &query.edns) {
        (Transport::Tcp { .. }, _) => MESSAGE_LEN_MAX,
        (Transport::Udp, None) => PAYLOAD_MIN as usize,
        (Transport::Udp, Some(edns)) => {
            edns.payload.clamp(PAYLOAD_MIN, settings.udp_payload.max(PAYLOAD_MIN)) as usize
        }
    }
}

fn opt_reply<'a>(
    query: &Query,
    settings: &'a Settings,
    transport: Transport,
    cookie: Option<&'a ReplyCookie>,
) -> Option<OptReply<'a>> {
    let edns = query.edns.as_ref()?;
    Some(OptReply {
        payload: settings.udp_payload,
        dnssec_ok: edns.dnssec_ok,
        rcode: Rcode::NoError,
        nsid: settings.identity.as_deref().filter(|_| edns.nsid).map(str::as_bytes),
        cookie: cookie.map(|cookie| &cookie.value),
        keepalive: match transport {
            Transport::Tcp { idle_100ms } if edns.keepalive => Some(idle_100ms),
            _ => None,
        },
        error: None,
    })
}
