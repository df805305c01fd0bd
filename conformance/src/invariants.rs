//! What must hold of every answer of Pharos, whatever the peers say. Each problem begins with its
//! kind and a colon.

use std::collections::BTreeSet;

use crate::answer::{
    Answer, FLAG_AD, FLAG_DO, FLAG_QR, FLAG_RA, FLAG_RD, FLAG_TC, Reply, Rr, Section,
};
use crate::denial;
use crate::model::{self, End, Walk};
use crate::name::Name;
use crate::queries::Query;
use crate::rtype;
use crate::truth::{Truth, ZoneTruth};
use crate::wire;

pub fn check(query: &Query, ours: &Reply, truth: &Truth) -> Vec<String> {
    let answer = match ours {
        Reply::Answer(answer) => answer,
        Reply::Unparsable(problem) => return vec![format!("unparsable: {problem}")],
        Reply::Silence => return vec!["silence: no answer to a well-formed query".to_owned()],
    };
    let mut problems = Vec::new();
    message(query, answer, &mut problems);
    if query.qclass == rtype::CLASS_IN {
        let walk = model::walk(&query.name, query.qtype, truth);
        let mut broken = content(query, &walk, answer);
        if !broken.is_empty() && model::is_signing_type(query.qtype) {
            let other = model::walk_not_following(&query.name, query.qtype, truth);
            let by_other = content(query, &other, answer);
            broken = if by_other.is_empty() { by_other } else { broken };
        }
        problems.extend(broken);
    } else if answer.rcode != 5 || answer.aa() || answer.sections.iter().any(|all| !all.is_empty())
    {
        // No zone here has another class, and `*` cannot be answered with authority (RFC 1035 6.2).
        problems.push("class: not simply refused".to_owned());
    }
    problems
}

fn content(query: &Query, walk: &Walk<'_>, answer: &Answer) -> Vec<String> {
    let mut problems = Vec::new();
    header(walk, answer, &mut problems);
    if !answer.tc() {
        answer_section(query, walk, answer, &mut problems);
        authority_section(query, walk, answer, &mut problems);
        additional_section(query, walk, answer, &mut problems);
    }
    problems
}

fn message(query: &Query, answer: &Answer, problems: &mut Vec<String>) {
    if answer.question != query.question_octets() {
        problems.push("question: not echoed octet for octet".to_owned());
    }
    let limit = query.answer_octets_max();
    if answer.size > limit {
        problems.push(format!("size: {} octets where {limit} are allowed", answer.size));
    }
    if let Some(rr) = answer.duplicates.first() {
        problems.push(format!("duplicate: {rr}"));
    }
    // One OPT if and only if one was sent (RFC 6891 7).
    if answer.opts.len() != usize::from(query.edns.is_some()) {
        problems.push(format!("opt: {} OPT records", answer.opts.len()));
    }
    if let (Some(edns), Some(opt)) = (query.edns, answer.opts.first()) {
        if opt.version != 0 {
            problems.push(format!("opt: version {}", opt.version));
        }
        // RFC 3225 3: DO is copied.
        if (opt.flags & FLAG_DO != 0) != edns.dnssec_ok {
            problems.push("opt: DO is not copied".to_owned());
        }
    }
    let fixed = answer.flags & (FLAG_QR | FLAG_RD | FLAG_RA | FLAG_AD | 0x7840);
    if fixed != FLAG_QR | (query.flags & FLAG_RD) {
        problems.push(format!("flags: {fixed:04x} of QR, opcode, RD, RA, Z, AD"));
    }
    if query.tcp && answer.tc() {
        problems.push("tc: over TCP".to_owned());
    }
}

fn header(walk: &Walk<'_>, answer: &Answer, problems: &mut Vec<String>) {
    // A truncated chain has not been followed to the end that the RCODE speaks of (RFC 6604 2.1),
    // and nobody may use it (RFC 2181 9).
    let is_alias = !walk.links.is_empty() || matches!(walk.end, End::YxDomain { .. });
    let is_cut_chain = answer.tc() && is_alias;
    if answer.rcode != walk.rcode() && !is_cut_chain {
        let (is, must) = (rtype::rcode_mnemonic(answer.rcode), rtype::rcode_mnemonic(walk.rcode()));
        problems.push(format!("rcode: {is} where the zones say {must} ({:?})", kind(&walk.end)));
    }
    if answer.aa() != walk.is_authoritative() {
        problems.push(format!("aa: {} for {}", answer.aa(), kind(&walk.end)));
    }
}

fn kind(end: &End<'_>) -> &'static str {
    match end {
        End::Refused => "no zone",
        End::Data { .. } => "data",
        End::NoData { .. } => "no data",
        End::NxDomain { .. } => "no name",
        End::Referral { .. } => "a referral",
        End::Outside => "an alias to the outside",
        End::YxDomain { .. } => "an overflow",
        End::Loop => "a loop",
        End::Cap => "a chain over the cap",
    }
}

fn answer_section(query: &Query, walk: &Walk<'_>, answer: &Answer, problems: &mut Vec<String>) {
    let mut left = answer.section(Section::Answer).clone();
    for rr in walk.answer_section(query) {
        if !left.remove(&rr) {
            problems.push(format!("answer missing {}: {rr}", rtype::mnemonic(rr.rtype)));
        }
    }
    let choices = walk.choices(query);
    if !choices.is_empty() {
        let fits = match query.qtype {
            // RFC 8482 4.1: one RRset, whole, with its signatures when asked for.
            rtype::ANY => choices.contains(&left),
            _ => {
                !left.is_empty() && left.iter().all(|rr| choices.iter().any(|set| set.contains(rr)))
            }
        };
        if !fits {
            problems.push(format!("any: {} records are not one RRset of the name", left.len()));
        }
        left.clear();
    }
    if let Some(rr) = left.first() {
        problems.push(format!("answer extra {}: {rr}", rtype::mnemonic(rr.rtype)));
    }
}

fn authority_section(query: &Query, walk: &Walk<'_>, answer: &Answer, problems: &mut Vec<String>) {
    let authority = answer.section(Section::Authority);
    let mut expected = BTreeSet::new();
    match &walk.end {
        End::NoData { zone, .. } | End::NxDomain { zone, .. } => {
            let ttl = zone.negative_ttl().unwrap_or_default();
            for set in with_signatures(zone, &zone.origin, rtype::SOA, query.dnssec_ok()) {
                expected.insert(Rr { ttl, ..set });
            }
        }
        End::Referral { zone, cut } => {
            expected.extend(zone.set(cut, rtype::NS).into_iter().flatten().cloned());
            // Secure only if the zone itself is signed (RFC 4035 3.1.4).
            if query.dnssec_ok() && zone.is_signed() {
                expected.extend(with_signatures(zone, cut, rtype::DS, true));
            }
        }
        _ => {}
    }
    for rr in expected.difference(authority) {
        problems.push(format!("authority missing {}: {rr}", rtype::mnemonic(rr.rtype)));
    }
    let denies = |rr: &Rr| {
        matches!(rr.rtype, rtype::NSEC | rtype::NSEC3)
            || matches!(rr.covered(), Some(rtype::NSEC | rtype::NSEC3))
    };
    for rr in authority.difference(&expected) {
        if !denies(rr) || !query.dnssec_ok() {
            problems.push(format!("authority extra {}: {rr}", rtype::mnemonic(rr.rtype)));
        }
    }
    if query.dnssec_ok() {
        if let Err(problem) = denial::check(walk, query.qtype, answer) {
            problems.push(format!("denial: {problem}"));
        }
        unsigned_denial(authority, problems);
    }
}

fn unsigned_denial(authority: &BTreeSet<Rr>, problems: &mut Vec<String>) {
    for rr in authority.iter().filter(|rr| matches!(rr.rtype, rtype::NSEC | rtype::NSEC3)) {
        let signed =
            authority.iter().any(|sig| sig.owner == rr.owner && sig.covered() == Some(rr.rtype));
        if !signed {
            problems.push(format!("denial: unsigned {rr}"));
        }
    }
}

fn with_signatures(zone: &ZoneTruth, owner: &Name, rtype: u16, dnssec: bool) -> Vec<Rr> {
    let mut records: Vec<Rr> = zone.set(owner, rtype).into_iter().flatten().cloned().collect();
    if dnssec {
        records.extend(zone.signatures(owner, rtype).into_iter().flatten().cloned());
    }
    records
}

/// Addresses of servers below the cut must all be there (RFC 9471 3.1), what saves a question while
/// there is room; anything else must at least be what the answering zone holds: another zone's data
/// is not ours to add here.
fn additional_section(query: &Query, walk: &Walk<'_>, answer: &Answer, problems: &mut Vec<String>) {
    let additional = answer.section(Section::Additional);
    if let End::Referral { zone, cut } = &walk.end {
        for rr in glue(zone, cut) {
            if !additional.contains(&rr) {
                problems.push(format!("glue missing: {rr}"));
            }
        }
    }
    let zone = match &walk.end {
        End::Data { zone, .. } | End::Referral { zone, .. } => Some(zone),
        _ => None,
    };
    let mut room = query.answer_octets_max().saturating_sub(answer.size);
    for set in useful(query, walk) {
        let octets: usize = set.iter().map(|rr| rr.owner.wire().len() + 10 + rr.rdata.len()).sum();
        if octets <= room && !set.iter().all(|rr| additional.contains(rr)) {
            problems.push(format!("additional missing: {}", set[0]));
            room -= octets;
        }
    }
    for rr in additional {
        let known = |owner: &Name| {
            let set = zone.and_then(|zone| match rr.covered() {
                Some(covered) => zone.signatures(owner, covered),
                None => zone.set(owner, rr.rtype),
            });
            set.is_some_and(|set| set.contains(&Rr { owner: owner.clone(), ..rr.clone() }))
        };
        let is_expanded = || {
            let wildcard = zone.and_then(|zone| expanded_from(zone, &rr.owner, query, walk));
            wildcard.is_some_and(|wildcard| known(&wildcard))
        };
        if !known(&rr.owner) && !is_expanded() {
            problems.push(format!("additional unknown: {rr}"));
        }
    }
}

/// The wildcard that may give `owner` additional records. None does at or below a cut (RFC 4592
/// 4.2 makes records for the zone's own names only), nor in a signed answer without the proof that
/// RFC 9460 4.3 asks for: only the one for the answer itself is there.
fn expanded_from(zone: &ZoneTruth, owner: &Name, query: &Query, walk: &Walk<'_>) -> Option<Name> {
    let is_answer = matches!(&walk.end, End::Data { name, .. } if name == owner);
    if zone.cut_of(owner).is_some() || query.dnssec_ok() && zone.is_signed() && !is_answer {
        return None;
    }
    zone.wildcard_of(owner)
}

/// RRsets, with their signatures if asked for, that Pharos adds while there is room: addresses of
/// the targets that the zone holds under their own names, and for SVCB and HTTPS the RRset of the
/// same type there (RFC 1034 4.3.2 step 6, RFC 9460 4.1).
pub fn useful(query: &Query, walk: &Walk<'_>) -> Vec<Vec<Rr>> {
    let End::Data { zone, name, source } = &walk.end else { return Vec::new() };
    let (name_at, is_service) = match query.qtype {
        rtype::NS => (0, false),
        rtype::MX => (2, false),
        rtype::SRV => (6, false),
        rtype::SVCB | rtype::HTTPS => (2, true),
        _ => return Vec::new(),
    };
    let mut targets = BTreeSet::new();
    for rr in zone.set(source, query.qtype).into_iter().flatten() {
        let Some((target, _)) = wire::name_in(&rr.rdata, name_at) else { continue };
        match is_service && target.is_root() {
            // RFC 9460 2.5.1: not available; 2.5.2: the owner.
            true if rr.rdata.starts_with(&[0, 0]) => {}
            true => drop(targets.insert(name.clone())),
            false => drop(targets.insert(target.lower())),
        }
    }
    let is_ours =
        |target: &Name| target.is_at_or_below(&zone.origin) && zone.cut_of(target).is_none();
    let mut sets = Vec::new();
    for target in targets.iter().filter(|target| is_ours(target)) {
        for rtype in [rtype::A, rtype::AAAA, query.qtype] {
            let is_answer = rtype == query.qtype && (!is_service || target == source);
            let set = with_signatures(zone, target, rtype, query.dnssec_ok());
            if !is_answer && !set.is_empty() {
                sets.push(set);
            }
        }
    }
    sets
}

/// Address records of the cut's servers that live at or below the cut.
pub fn glue(zone: &ZoneTruth, cut: &Name) -> Vec<Rr> {
    let servers = zone.set(cut, rtype::NS).into_iter().flatten();
    let inside = servers
        .filter_map(|rr| wire::name_in(&rr.rdata, 0))
        .map(|(server, _)| server.lower())
        .filter(|server| server.is_at_or_below(cut));
    inside
        .flat_map(|server| {
            [rtype::A, rtype::AAAA].into_iter().flat_map(move |rtype| {
                zone.set(&server, rtype).into_iter().flatten().cloned().collect::<Vec<_>>()
            })
        })
        .collect()
}

/// TC exactly when something required did not fit (RFC 2181 9, RFC 9471 3.1).
pub fn truncation(query: &Query, udp: &Reply, tcp: &Reply) -> Vec<String> {
    let (Some(short), Some(whole)) = (udp.answer(), tcp.answer()) else { return Vec::new() };
    if query.tcp {
        return Vec::new();
    }
    let required = match whole.is_referral() {
        true => whole.size,
        false => whole.size_without_additional,
    };
    let limit = query.answer_octets_max();
    if short.flags & FLAG_TC != 0 && required <= limit {
        return vec![format!("tc needless: {required} octets fit in {limit}")];
    }
    let same = |section| short.section(section) == whole.section(section);
    let is_same = same(Section::Answer) && same(Section::Authority);
    if !short.tc() && !is_same {
        return vec!["tc missing: less than over TCP and no TC".to_owned()];
    }
    Vec::new()
}
