//! A question to the octets of its answer.
//!
//! The steps follow RFC 1034, 4.3.2: find the zone, look the name up, follow
//! aliases through the zones of this server, then fill answer, authority and
//! additional section in this order. Nothing is allocated, nothing waits, and
//! nothing outside the arguments is read: the same question at the same time
//! gets the same answer.

use std::net::IpAddr;

use wire::cookie::{CookieSecrets, ReplyCookie};
use wire::edns::PAYLOAD_MIN;
use wire::name::NAME_LEN_MAX;
use wire::query::HEADER_LEN;
use wire::reply::{MESSAGE_LEN_MAX, POINTER_MAX, RECORD_HEAD_LEN};
use wire::{
    DropReason, ExtendedError, Name, OptReply, Owner, Query, QueryName, Rcode, Reply, Section,
    Verdict, class, rtype,
};

use crate::catalog::Catalog;
use crate::denial::{Absence, PROOF_LEN_MAX, proof_type, prove};
use crate::hash::{NameHasher, SuffixHashes};
use crate::image::{Image, Node, Set, Why};
use crate::lookup::{From, Lookup, lookup};

/// Links of a chain of aliases that are followed; then the answer ends.
pub const CHAIN_LEN_MAX: usize = 16;
/// A chain also ends where its answer has grown past this, so that every name
/// in it can still be pointed at.
const CHAIN_OCTETS_MAX: usize = 6 * 1024;
/// Records of proofs that one answer carries: one for each wildcard on the
/// way, and those of the end.
const PROOFS_MAX: usize = CHAIN_LEN_MAX + PROOF_LEN_MAX;

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

/// How a question came.
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

/// Buffers for one question, used again for the next.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// The question being answered.
    pub query: Query,
    hashes: SuffixHashes,
    alias: QueryName,
    target: Target,
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

/// Reads `request` and writes its answer into `out`, which has room for the
/// largest answer of the transport.
#[inline]
pub fn respond(
    context: &Context<'_>,
    scratch: &mut Scratch,
    request: &[u8],
    from: IpAddr,
    transport: Transport,
    out: &mut [u8],
) -> Outcome {
    let verdict = scratch.query.read(request);
    answer(context, scratch, verdict, request, from, transport, out)
}

/// Writes the answer to the question in `scratch`, which `verdict` was passed
/// on.
pub fn answer(
    context: &Context<'_>,
    scratch: &mut Scratch,
    verdict: Verdict,
    request: &[u8],
    from: IpAddr,
    transport: Transport,
    out: &mut [u8],
) -> Outcome {
    if let Verdict::Drop(reason) = verdict {
        return Outcome { result: Err(reason), zone: 0, len: 0, truncated: false };
    }
    let Scratch { query, hashes, alias, target } = scratch;
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
    let mut answer = Answer {
        context,
        query,
        hashes,
        target,
        reply: Reply::start(out, request, query, room),
        rcode: Rcode::NoError,
        authoritative: false,
        error: None,
        zone: 0,
        trail: None,
    };
    match verdict {
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

/// An answer on its way.
struct Answer<'a, 'b> {
    context: &'a Context<'a>,
    query: &'a Query,
    hashes: &'a mut SuffixHashes,
    target: &'a mut Target,
    reply: Reply<'b>,
    rcode: Rcode,
    authoritative: bool,
    error: Option<ExtendedError>,
    zone: u64,
    /// Only made for answers that need it: it is larger than most answers.
    trail: Option<Trail<'a>>,
}

/// What an answer must remember on its way.
struct Trail<'z> {
    /// Proofs, kept until the answer section is complete.
    proofs: [Option<ProofRecord<'z>>; PROOFS_MAX],
    /// DNAME sets sent already.
    redirects: [Option<Set<'z>>; CHAIN_LEN_MAX + 1],
}

/// An NSEC or NSEC3 set, the labels of its owner, and where the zone's own
/// name stands in the message.
#[derive(Clone, Copy)]
struct ProofRecord<'z> {
    set: Set<'z>,
    labels: &'z [u8],
    apex_at: usize,
    /// In the message already; kept so that it is not sent again.
    is_sent: bool,
}

/// Where the name that is being looked up stands in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the question, in full.
    Question,
    /// In the data of an alias, its tail perhaps as a pointer.
    Alias { at: usize },
}

/// A zone that a name was found in, and where their names stand.
#[derive(Clone, Copy)]
struct Found<'a> {
    image: &'a Image,
    /// The label of the looked-up name where the zone's own name starts.
    apex: usize,
    /// Where the zone's own name stands in the message.
    apex_at: usize,
    place: Place,
}

impl Found<'_> {
    /// Where the looked-up name stands in the message.
    #[inline]
    fn name_at(&self) -> usize {
        match self.place {
            Place::Question => HEADER_LEN,
            Place::Alias { at } => at,
        }
    }
}

impl<'a> Answer<'a, '_> {
    /// Where the name at `place` stands from its octet `skip` on.
    #[inline]
    fn locate(&self, place: Place, skip: usize) -> usize {
        match place {
            Place::Question => HEADER_LEN + skip,
            Place::Alias { at } => self.reply.locate(at, skip),
        }
    }

    fn refuse(&mut self, rcode: Rcode, error: Option<ExtendedError>) {
        self.rcode = rcode;
        self.error = error;
    }

    /// Answers a question of the Internet class.
    fn resolve(&mut self, alias: &mut QueryName) {
        let query = self.query;
        match self.step(query.name(), Place::Question) {
            Step::Done => {}
            Step::NotOurs => self.refuse(Rcode::Refused, Some(ExtendedError::NOT_AUTHORITATIVE)),
            Step::Follow { place } => self.follow(place, alias),
        }
        self.put_pending();
    }

    /// Follows a chain of aliases through the zones of this server.
    #[cold]
    fn follow(&mut self, mut place: Place, alias: &mut QueryName) {
        let mut seen = [0; CHAIN_LEN_MAX + 1];
        seen[0] = self.hashes.get(0);
        for link in 1..=CHAIN_LEN_MAX {
            alias.set(Name::from_trusted(self.target.as_bytes()));
            match self.step_alias(alias, place, &seen[..link]) {
                Step::Follow { place: next } => {
                    seen[link] = self.hashes.get(0);
                    place = next;
                }
                // The rest of the chain is somebody else's.
                Step::NotOurs | Step::Done => return,
            }
            if self.reply.position() > CHAIN_OCTETS_MAX {
                break;
            }
        }
        self.error = Some(ExtendedError::CHAIN_TOO_LONG);
    }

    /// One link of a chain; ends it when it meets itself.
    fn step_alias(&mut self, name: &QueryName, place: Place, seen: &[u64]) -> Step {
        self.context.hasher.suffixes(name, self.hashes);
        if seen.contains(&self.hashes.get(0)) || self.reply.is_truncated() {
            return Step::Done;
        }
        self.look(name, place)
    }

    /// The first look: the name of the question.
    #[inline]
    fn step(&mut self, name: &QueryName, place: Place) -> Step {
        self.context.hasher.suffixes(name, self.hashes);
        self.look(name, place)
    }

    /// Finds the zone of `name`, and in it what the question asks for.
    #[inline]
    fn look(&mut self, name: &QueryName, place: Place) -> Step {
        let Some((image, apex)) = self.find_zone(name) else { return Step::NotOurs };
        if self.zone == 0 {
            self.zone = image.origin_hash();
        }
        if image.is_broken() {
            self.refuse(Rcode::ServFail, Some(ExtendedError::INVALID_ZONE));
            return Step::Done;
        }
        let apex_at = self.locate(place, name.label_start(apex));
        let found = Found { image, apex, apex_at, place };
        let qtype = self.query.qtype;
        match lookup(image, self.context.hasher, name, self.hashes, apex, qtype) {
            Lookup::Found { set, from } => {
                self.authoritative = true;
                self.put_answer(name, &found, set, from);
            }
            Lookup::NoData { from } => self.no_data(name, &found, from),
            Lookup::NoName { label } => self.no_name(name, &found, label),
            Lookup::Delegated { node, label } => self.refer(name, &found, node, label),
            Lookup::Several { node, from } => self.put_several(name, &found, node, from),
            Lookup::Alias { set, from } => return self.put_alias(name, &found, set, from),
            Lookup::Redirect { set, label } => {
                return self.put_redirect(name, &found, set, label);
            }
        }
        Step::Done
    }

    /// The zone that answers for `name`. DS records stand in the parent's
    /// zone, if this server has it (RFC 4035, 3.1.4.1).
    #[inline]
    fn find_zone(&self, name: &QueryName) -> Option<(&'a Image, usize)> {
        let catalog = self.context.catalog;
        let found = catalog.find(name, self.hashes, 0)?;
        if self.query.qtype == rtype::DS && found.1 == 0 && name.label_count() > 0 {
            return catalog.find(name, self.hashes, 1).or(Some(found));
        }
        Some(found)
    }

    /// Records with their signatures, if wanted; a proof if from a wildcard.
    #[inline]
    fn put_answer(&mut self, name: &QueryName, found: &Found<'a>, set: Set<'a>, from: From) {
        // The chain may end at a DNAME that it passed.
        if let Some(trail) = &self.trail
            && trail.is_redirect(set)
        {
            return;
        }
        let start = self.put_set(name, found, set, from);
        if let Some(start) = start {
            self.put_pending();
            self.put_additionals(found, set, start);
        }
    }

    /// Puts a set into the answer section; what does not fit truncates.
    #[inline]
    fn put_set(
        &mut self,
        name: &QueryName,
        found: &Found<'a>,
        set: Set<'a>,
        from: From,
    ) -> Option<usize> {
        let signed = self.query.wants_dnssec();
        let owner = Owner::At(found.name_at());
        let start = self.reply.put(Section::Answer, &set.block(signed), owner, found.apex_at, None);
        if start.is_none() {
            self.reply.truncate();
        }
        if let From::Wildcard { label } = from
            && signed
        {
            self.prove(name, found, |name, closest| Absence::Expanded { name, closest }, label);
        }
        start
    }

    /// ANY gets one set (RFC 8482, 4.1), RRSIG all signatures.
    #[cold]
    fn put_several(&mut self, name: &QueryName, found: &Found<'a>, node: Node<'a>, from: From) {
        self.authoritative = true;
        if self.query.qtype == rtype::ANY {
            let (_, set) = node.set(rtype::CNAME).map_or_else(|| node.set_at(0), |s| (0, s));
            self.put_set(name, found, set, from);
            return;
        }
        if let From::Wildcard { label } = from
            && self.query.wants_dnssec()
        {
            self.prove(name, found, |name, closest| Absence::Expanded { name, closest }, label);
        }
        let owner = Owner::At(found.name_at());
        let mut count = 0;
        for (_, set) in node.sets() {
            let Some(block) = set.signatures() else { continue };
            count += 1;
            if self.query.wants_dnssec()
                && let Some(trail) = &self.trail
                && trail.is_redirect(set)
            {
                continue;
            }
            if self.reply.put(Section::Answer, &block, owner, found.apex_at, None).is_none() {
                self.reply.truncate();
            }
        }
        if count == 0 {
            self.no_data(name, found, from);
        }
    }

    fn put_alias(&mut self, name: &QueryName, found: &Found<'a>, set: Set<'a>, from: From) -> Step {
        self.authoritative = true;
        let Some(start) = self.put_set(name, found, set, from) else { return Step::Done };
        let block = set.block(false);
        let data = &block.octets[2 + RECORD_HEAD_LEN..];
        // A CNAME set has one record; its only pointer stands for the zone's
        // own name.
        let (labels, tail) = match block.fixups {
            [low, high] => {
                let end = u16::from_le_bytes([*low, *high]) as usize - 2 - RECORD_HEAD_LEN;
                (&data[..end], found.image.origin().as_bytes())
            }
            _ => (data, &[][..]),
        };
        self.target.set([labels, tail]);
        Step::Follow { place: Place::Alias { at: start + 2 + RECORD_HEAD_LEN } }
    }

    /// The name lies below a DNAME: that record, and a CNAME made from it
    /// (RFC 6672, 3.1).
    #[cold]
    fn put_redirect(
        &mut self,
        name: &QueryName,
        found: &Found<'a>,
        set: Set<'a>,
        label: usize,
    ) -> Step {
        self.authoritative = true;
        let signed = self.query.wants_dnssec();
        let skip = name.label_start(label);
        let block = set.block(signed);
        let owner = Owner::At(self.locate(found.place, skip));
        // A chain may pass the same DNAME again; it is sent once.
        if self.trail().note_redirect(set)
            && self.reply.put(Section::Answer, &block, owner, found.apex_at, None).is_none()
        {
            self.reply.truncate();
            return Step::Done;
        }
        let data = set.block(false).octets;
        let to = &data[2 + RECORD_HEAD_LEN..];
        if !self.target.set([&name.as_bytes()[..skip], to]) {
            // RFC 6672, 2.2: the new name would be too long.
            self.rcode = Rcode::YxDomain;
            return Step::Done;
        }
        let made = self.reply.put_record(
            found.name_at(),
            rtype::CNAME,
            class::IN,
            set.ttl_secs(),
            self.target.as_bytes(),
        );
        let Some(at) = made else {
            self.reply.truncate();
            return Step::Done;
        };
        Step::Follow { place: Place::Alias { at } }
    }

    /// The name exists without records of the type (RFC 2308, 2.2).
    fn no_data(&mut self, name: &QueryName, found: &Found<'a>, from: From) {
        self.authoritative = true;
        if self.query.wants_dnssec() {
            match from {
                From::Name => self.prove(name, found, |name, _| Absence::Type { name }, found.apex),
                From::Wildcard { label } => self.prove(
                    name,
                    found,
                    |name, closest| Absence::WildcardType { name, closest },
                    label,
                ),
            }
        }
        self.put_soa(found);
    }

    /// The name does not exist (RFC 2308, 2.1).
    #[inline]
    fn no_name(&mut self, name: &QueryName, found: &Found<'a>, label: usize) {
        self.authoritative = true;
        self.rcode = Rcode::NxDomain;
        if self.query.wants_dnssec() {
            self.prove(name, found, |name, closest| Absence::Name { name, closest }, label);
        }
        self.put_soa(found);
    }

    /// The SOA record with the time to live of an absence (RFC 2308, 3).
    #[inline]
    fn put_soa(&mut self, found: &Found<'a>) {
        let Some(set) = found.image.apex().set(rtype::SOA) else { return };
        let block = set.block(self.query.wants_dnssec());
        let ttl_secs = Some(found.image.negative_ttl_secs());
        let owner = Owner::At(found.apex_at);
        if self.reply.put(Section::Authority, &block, owner, found.apex_at, ttl_secs).is_none() {
            self.reply.truncate();
        }
    }

    /// A referral to the zone that starts at `label` (RFC 1034, 4.3.2, 3b).
    fn refer(&mut self, name: &QueryName, found: &Found<'a>, node: Node<'a>, label: usize) {
        let Some(set) = node.set(rtype::NS) else { return };
        // Proofs of wildcards on the way come first: they hold the answer.
        self.put_pending();
        let owner = Owner::At(self.locate(found.place, name.label_start(label)));
        let block = set.block(false);
        let start = self.reply.put(Section::Authority, &block, owner, found.apex_at, None);
        let Some(start) = start else { return self.reply.truncate() };
        if self.query.wants_dnssec() && found.image.is_signed() {
            match node.set(rtype::DS) {
                Some(ds) => {
                    let block = ds.block(true);
                    let put =
                        self.reply.put(Section::Authority, &block, owner, found.apex_at, None);
                    if put.is_none() {
                        self.reply.truncate();
                    }
                }
                None => self.prove_unsigned(name, found, label),
            }
        }
        self.put_glue(found, set, start);
    }

    /// The delegation is not signed (RFC 4035, 3.1.4; RFC 5155, 7.2.7).
    fn prove_unsigned(&mut self, name: &QueryName, found: &Found<'a>, label: usize) {
        let end = name.label_start(found.apex);
        let cut = &name.as_bytes()[name.label_start(label)..end];
        self.trail().add_proof(found, Absence::Type { name: cut });
        self.put_pending();
    }

    /// Addresses of a delegation's name servers. Those below it must all fit
    /// (RFC 9471, 3); the others are added while there is room.
    fn put_glue(&mut self, found: &Found<'a>, set: Set<'a>, start: usize) {
        for wanted in [true, false] {
            for additional in set.additionals() {
                if (additional.why == Why::Glue) != wanted {
                    continue;
                }
                let node = found.image.node(additional.node);
                let Some(owner) = owner_of(start + additional.target_at, node) else {
                    if wanted {
                        return self.reply.truncate();
                    }
                    continue;
                };
                for addresses in node.addresses() {
                    let block = addresses.block(false);
                    let put =
                        self.reply.put(Section::Additional, &block, owner, found.apex_at, None);
                    if put.is_none() && wanted {
                        return self.reply.truncate();
                    }
                }
            }
        }
    }

    /// Addresses that save the asker a question, while there is room.
    #[inline]
    fn put_additionals(&mut self, found: &Found<'a>, set: Set<'a>, start: usize) {
        let signed = self.query.wants_dnssec();
        for additional in set.additionals() {
            let node = found.image.node(additional.node);
            let owner = match additional.target_at {
                0 => Some(Owner::At(found.name_at())),
                at => owner_of(start + at, node),
            };
            let Some(owner) = owner else { continue };
            for addresses in node.addresses() {
                let block = addresses.block(signed);
                self.reply.put(Section::Additional, &block, owner, found.apex_at, None);
            }
        }
    }

    /// Notes the records that prove an absence around the label `closest`.
    fn prove(
        &mut self,
        name: &QueryName,
        found: &Found<'a>,
        absence: for<'n> fn(&'n [u8], &'n [u8]) -> Absence<'n>,
        closest: usize,
    ) {
        if !found.image.is_signed() {
            return;
        }
        let end = name.label_start(found.apex);
        let octets = name.as_bytes();
        let absence = absence(&octets[..end], &octets[name.label_start(closest)..end]);
        self.trail().add_proof(found, absence);
    }

    /// Puts the proofs noted so far into the authority section.
    #[inline]
    fn put_pending(&mut self) {
        let Some(trail) = &mut self.trail else { return };
        for proof in trail.proofs.iter_mut().map_while(Option::as_mut) {
            if std::mem::replace(&mut proof.is_sent, true) {
                continue;
            }
            let block = proof.set.block(true);
            let owner = Owner::Below(proof.labels);
            if self.reply.put(Section::Authority, &block, owner, proof.apex_at, None).is_none() {
                self.reply.truncate();
            }
        }
    }

    fn trail(&mut self) -> &mut Trail<'a> {
        self.trail.get_or_insert(Trail {
            proofs: [None; PROOFS_MAX],
            redirects: [None; CHAIN_LEN_MAX + 1],
        })
    }

    /// Questions of the CHAOS class about the server itself (RFC 4892).
    #[cold]
    fn resolve_chaos(&mut self) {
        let name = self.query.name().as_bytes();
        let settings = self.context.settings;
        let text = match (self.query.qclass, name) {
            (class::CH, b"\x07version\x04bind\0" | b"\x07version\x06server\0") => {
                settings.version.as_deref()
            }
            (class::CH, b"\x02id\x06server\0" | b"\x08hostname\x04bind\0") => {
                settings.identity.as_deref()
            }
            _ => None,
        };
        let Some(text) = text else {
            return self.refuse(Rcode::Refused, Some(ExtendedError::NOT_SUPPORTED));
        };
        self.authoritative = true;
        if !matches!(self.query.qtype, rtype::TXT | rtype::ANY) {
            return;
        }
        let mut data = [0; 256];
        let len = text.len().min(255);
        data[0] = len as u8;
        data[1..=len].copy_from_slice(&text.as_bytes()[..len]);
        let put = self.reply.put_record(HEADER_LEN, rtype::TXT, class::CH, 0, &data[..=len]);
        if put.is_none() {
            self.reply.truncate();
        }
    }
}

/// The owner of addresses whose name stands at `at`: a pointer, if one gets
/// there, or the labels of the node; `None` if these are a wildcard's.
fn owner_of(at: usize, node: Node<'_>) -> Option<Owner<'_>> {
    if at <= POINTER_MAX {
        return Some(Owner::At(at));
    }
    (!node.relative().starts_with(b"\x01*")).then(|| Owner::Below(node.relative()))
}

impl<'z> Trail<'z> {
    /// Notes the records that prove `absence`, none twice.
    fn add_proof(&mut self, found: &Found<'z>, absence: Absence<'_>) {
        for node in prove(found.image, absence).nodes() {
            let Some(set) = node.set(proof_type(found.image)) else { continue };
            let proof = ProofRecord {
                set,
                labels: node.relative(),
                apex_at: found.apex_at,
                is_sent: false,
            };
            for place in &mut self.proofs {
                match place {
                    Some(known) if known.set.is_same(set) => break,
                    Some(_) => {}
                    None => {
                        *place = Some(proof);
                        break;
                    }
                }
            }
        }
    }

    /// True if `set` is a DNAME set sent already.
    fn is_redirect(&self, set: Set<'_>) -> bool {
        self.redirects.iter().flatten().any(|known| known.is_same(set))
    }

    /// Notes that a DNAME set is sent; false if it was already.
    fn note_redirect(&mut self, set: Set<'z>) -> bool {
        for place in &mut self.redirects {
            match place {
                Some(known) if known.is_same(set) => return false,
                Some(_) => {}
                None => {
                    *place = Some(set);
                    return true;
                }
            }
        }
        true
    }
}

/// What comes after a look at a name.
enum Step {
    /// The answer is complete.
    Done,
    /// No zone here holds the name.
    NotOurs,
    /// The name leads to another one, which is in `Answer::target` and stands
    /// at `place`.
    Follow { place: Place },
}
