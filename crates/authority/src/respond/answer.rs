//! The steps of an answer, section by section.

use wire::query::HEADER_LEN;
use wire::reply::{POINTER_MAX, RECORD_HEAD_LEN};
use wire::{ExtendedError, Name, Owner, Query, QueryName, Rcode, Reply, Section, class, rtype};

use super::trail::Trail;
use super::{CHAIN_LEN_MAX, Context, Target};
use crate::denial::Absence;
use crate::hash::SuffixHashes;
use crate::image::{Image, Node, Set, Why};
use crate::lookup::{From, Lookup, lookup};

/// A chain of aliases also ends where its answer has grown past this, so that
/// every name in it can still be pointed at.
const CHAIN_OCTETS_MAX: usize = 6 * 1024;

/// An answer on its way.
pub(super) struct Answer<'a, 'b> {
    context: &'a Context<'a>,
    query: &'a Query,
    /// The virtual name server asked: zones that others serve are not there.
    server: Option<u16>,
    hashes: &'a mut SuffixHashes,
    target: &'a mut Target,
    pub reply: Reply<'b>,
    pub rcode: Rcode,
    pub authoritative: bool,
    pub error: Option<ExtendedError>,
    /// Hash of the name of the zone that answers, 0 if none does.
    pub zone: u64,
    /// Only made for answers that need it: it is larger than most answers.
    trail: Option<Trail<'a>>,
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

impl<'a, 'b> Answer<'a, 'b> {
    pub fn new(
        context: &'a Context<'a>,
        query: &'a Query,
        server: Option<u16>,
        hashes: &'a mut SuffixHashes,
        target: &'a mut Target,
        reply: Reply<'b>,
    ) -> Self {
        Answer {
            context,
            query,
            server,
            hashes,
            target,
            reply,
            rcode: Rcode::NoError,
            authoritative: false,
            error: None,
            zone: 0,
            trail: None,
        }
    }

    /// Where the name at `place` stands from its octet `skip` on.
    #[inline]
    fn locate(&self, place: Place, skip: usize) -> usize {
        match place {
            Place::Question => HEADER_LEN + skip,
            Place::Alias { at } => self.reply.locate(at, skip),
        }
    }

    /// Answers with a code alone.
    pub fn refuse(&mut self, rcode: Rcode, error: Option<ExtendedError>) {
        self.rcode = rcode;
        self.error = error;
    }

    /// Answers a question of the Internet class.
    pub fn resolve(&mut self, alias: &mut QueryName) {
        let query = self.query;
        match self.look(query.name(), Place::Question) {
            Step::Done => {}
            Step::NotOurs => self.refuse_name(query.name()),
            Step::Follow { place } => self.follow(place, alias),
        }
        self.put_pending();
    }

    /// No zone that is served here holds `name`.
    #[cold]
    fn refuse_name(&mut self, name: &QueryName) {
        let elsewhere = self.context.catalog.find(name, self.hashes, 0, None);
        let error = match elsewhere {
            Some(_) => ExtendedError::NOT_SERVED_HERE,
            None => ExtendedError::NOT_AUTHORITATIVE,
        };
        self.refuse(Rcode::Refused, Some(error));
    }

    /// Follows a chain of aliases through the zones of this server.
    #[cold]
    fn follow(&mut self, mut place: Place, alias: &mut QueryName) {
        let mut seen = [0; CHAIN_LEN_MAX + 1];
        seen[0] = self.hashes.get(0);
        for link in 1..=CHAIN_LEN_MAX {
            // Before the first step too: one set may be that large.
            if self.reply.position() > CHAIN_OCTETS_MAX {
                break;
            }
            alias.set(Name::from_trusted(self.target.as_bytes()));
            match self.step_alias(alias, place, &seen[..link]) {
                Step::Follow { place: next } => {
                    seen[link] = self.hashes.get(0);
                    place = next;
                }
                // The rest of the chain is somebody else's.
                Step::NotOurs | Step::Done => return,
            }
        }
        self.error = Some(ExtendedError::CHAIN_TOO_LONG);
    }

    /// One link of a chain; ends it when it meets itself. That is an error of
    /// the zone (RFC 1034, 3.6.2), but its links are data all the same.
    fn step_alias(&mut self, name: &QueryName, place: Place, seen: &[u64]) -> Step {
        self.context.hasher.suffixes(name, self.hashes);
        if seen.contains(&self.hashes.get(0)) {
            self.error = Some(ExtendedError::CHAIN_LOOPS);
            return Step::Done;
        }
        self.look(name, place)
    }

    /// Finds the zone of `name`, whose hashes are in `self.hashes`, and in it
    /// what the question asks for.
    #[inline]
    fn look(&mut self, name: &QueryName, place: Place) -> Step {
        let Some((image, apex)) = self.find_zone(name) else { return Step::NotOurs };
        if self.zone == 0 {
            self.zone = image.origin_hash();
        }
        if image.is_broken() {
            return self.meet_broken(place);
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

    /// The zone could not be loaded. To an alias it is as good as somebody
    /// else's: the alias stands in a zone that answers.
    #[cold]
    fn meet_broken(&mut self, place: Place) -> Step {
        if place != Place::Question {
            return Step::NotOurs;
        }
        self.refuse(Rcode::ServFail, Some(ExtendedError::INVALID_ZONE));
        Step::Done
    }

    /// The zone that answers for `name`. DS records stand in the parent's
    /// zone, if this server has it (RFC 4035, 3.1.4.1).
    #[inline]
    fn find_zone(&self, name: &QueryName) -> Option<(&'a Image, usize)> {
        let catalog = self.context.catalog;
        let found = catalog.find(name, self.hashes, 0, self.server)?;
        if self.query.qtype == rtype::DS && found.1 == 0 && name.label_count() > 0 {
            return self.find_parent(name).or(Some(found));
        }
        Some(found)
    }

    /// The zone that the zone `name` is delegated from. One further above is
    /// not: it delegates the parent itself, and is no authority for it.
    #[cold]
    fn find_parent(&self, name: &QueryName) -> Option<(&'a Image, usize)> {
        let Context { catalog, hasher, .. } = *self.context;
        let (image, apex) = catalog.find(name, self.hashes, 1, self.server)?;
        let is_elsewhere = !image.is_broken()
            && matches!(
                lookup(image, hasher, name, self.hashes, apex, rtype::DS),
                Lookup::Delegated { label, .. } if label > 0
            );
        (!is_elsewhere).then_some((image, apex))
    }

    /// True if the chain passed `set`, a DNAME: it is in the answer. What a
    /// wildcard makes of it is not: that has another owner.
    #[inline]
    fn is_sent(&self, set: Set<'a>, from: From) -> bool {
        match &self.trail {
            Some(trail) => from == From::Name && trail.is_redirect(set),
            None => false,
        }
    }

    /// Records with their signatures, if wanted; a proof if from a wildcard.
    #[inline]
    fn put_answer(&mut self, name: &QueryName, found: &Found<'a>, set: Set<'a>, from: From) {
        if self.is_sent(set, from) {
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
            if !self.is_sent(set, from) {
                self.put_set(name, found, set, from);
            }
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
            if self.query.wants_dnssec() && self.is_sent(set, from) {
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
        self.trail().add_proof(found.image, found.apex_at, Absence::Type { name: cut });
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
        let is_service = matches!(self.query.qtype, rtype::SVCB | rtype::HTTPS);
        for additional in set.additionals() {
            let node = found.image.node(additional.node);
            let owner = match additional.target_at {
                0 => Some(Owner::At(found.name_at())),
                // A proof would have to go with them (RFC 9460, 4.3).
                _ if signed && is_wildcard(node) && found.image.is_signed() => None,
                at => owner_of(start + at, node),
            };
            let Some(owner) = owner else { continue };
            for addresses in node.addresses() {
                let block = addresses.block(signed);
                self.reply.put(Section::Additional, &block, owner, found.apex_at, None);
            }
            if is_service {
                self.put_service(found, set, node, owner);
            }
        }
    }

    /// The records of a service that another one leads to (RFC 9460, 4.1),
    /// unless they are the answer.
    #[cold]
    fn put_service(&mut self, found: &Found<'a>, set: Set<'a>, node: Node<'a>, owner: Owner<'a>) {
        if let Some(service) = node.set(self.query.qtype)
            && !service.is_same(set)
        {
            let block = service.block(self.query.wants_dnssec());
            self.reply.put(Section::Additional, &block, owner, found.apex_at, None);
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
        self.trail().add_proof(found.image, found.apex_at, absence);
    }

    /// Puts the proofs noted so far into the authority section.
    #[inline]
    fn put_pending(&mut self) {
        let Some(trail) = &mut self.trail else { return };
        for proof in trail.unsent_proofs() {
            let Some((set, labels)) = proof.set() else { continue };
            let (block, owner) = (set.block(true), Owner::Below(labels));
            if self.reply.put(Section::Authority, &block, owner, proof.apex_at(), None).is_none() {
                self.reply.truncate();
            }
        }
    }

    fn trail(&mut self) -> &mut Trail<'a> {
        self.trail.get_or_insert(Trail::NEW)
    }

    /// Questions of the CHAOS class about the server itself (RFC 4892).
    #[cold]
    pub fn resolve_chaos(&mut self) {
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
    (!is_wildcard(node)).then(|| Owner::Below(node.relative()))
}

fn is_wildcard(node: Node<'_>) -> bool {
    node.relative().starts_with(b"\x01*")
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
