//! What RFC 1034 4.3.2, 4592 and 6672 say a server must answer, written as plainly as possible
//! over [`Truth`]. It judges Pharos apart from the peers, and the peers where they disagree.

use std::collections::BTreeSet;

use crate::answer::Rr;
use crate::differ::CHAIN_LINKS_FOLLOWED_MAX;
use crate::name::Name;
use crate::queries::Query;
use crate::rtype;
use crate::truth::{Place, Truth, ZoneTruth};
use crate::wire;

#[derive(Debug)]
pub enum Alias {
    /// From this owner: the name itself, or a wildcard.
    Cname {
        source: Name,
    },
    Dname {
        owner: Name,
    },
}

#[derive(Debug)]
pub struct Link<'a> {
    pub zone: &'a ZoneTruth,
    pub from: Name,
    pub to: Name,
    pub alias: Alias,
}

#[derive(Debug)]
pub enum End<'a> {
    /// No hosted zone encloses the name asked for.
    Refused,
    Data {
        zone: &'a ZoneTruth,
        name: Name,
        source: Name,
    },
    NoData {
        zone: &'a ZoneTruth,
        name: Name,
        source: Name,
    },
    NxDomain {
        zone: &'a ZoneTruth,
        name: Name,
    },
    Referral {
        zone: &'a ZoneTruth,
        cut: Name,
    },
    /// An alias led to a name that nobody here is responsible for.
    Outside,
    /// A substitution passed 255 octets (RFC 6672 2.2).
    YxDomain {
        zone: &'a ZoneTruth,
        owner: Name,
    },
    Loop,
    /// The last link is one more than are followed.
    Cap,
}

#[derive(Debug)]
pub struct Walk<'a> {
    pub links: Vec<Link<'a>>,
    pub end: End<'a>,
}

/// Types made by signing. Where one is absent beside an alias, servers either follow the alias
/// (RFC 1034 4.3.2 step 3a) or say that the type is absent (RFC 4035 2.5: they are not aliased).
pub fn is_signing_type(qtype: u16) -> bool {
    matches!(qtype, rtype::NSEC | rtype::NSEC3 | rtype::RRSIG)
}

pub fn walk<'a>(qname: &Name, qtype: u16, truth: &'a Truth) -> Walk<'a> {
    walk_by(qname, qtype, truth, true)
}

/// The walk of a server that does not follow aliases for [`is_signing_type`].
pub fn walk_not_following<'a>(qname: &Name, qtype: u16, truth: &'a Truth) -> Walk<'a> {
    walk_by(qname, qtype, truth, !is_signing_type(qtype))
}

fn walk_by<'a>(qname: &Name, qtype: u16, truth: &'a Truth, follows: bool) -> Walk<'a> {
    let mut links: Vec<Link<'a>> = Vec::new();
    let mut name = qname.lower();
    let end = loop {
        let Some(zone) = truth.zone_for(&name, qtype) else {
            break if links.is_empty() { End::Refused } else { End::Outside };
        };
        let step = match zone.place(&name) {
            Place::Cut(cut) if *cut == name && qtype == rtype::DS => {
                at_owner(zone, &name, &name, qtype, follows)
            }
            Place::Cut(cut) => Err(End::Referral { zone, cut: cut.clone() }),
            Place::Dname(owner) => below_dname(zone, &name, owner),
            Place::Exists => at_owner(zone, &name, &name, qtype, follows),
            Place::Wild(wildcard) => at_owner(zone, &name, &wildcard, qtype, follows),
            Place::Missing => Err(End::NxDomain { zone, name: name.clone() }),
        };
        let link = match step {
            Ok(link) => link,
            Err(end) => break end,
        };
        name = link.to.clone();
        links.push(link);
        if links.iter().any(|link| link.from == name) {
            break End::Loop;
        }
        if links.len() > CHAIN_LINKS_FOLLOWED_MAX {
            break End::Cap;
        }
    };
    Walk { links, end }
}

fn at_owner<'a>(
    zone: &'a ZoneTruth,
    name: &Name,
    source: &Name,
    qtype: u16,
    follows: bool,
) -> Result<Link<'a>, End<'a>> {
    let present = match qtype {
        rtype::ANY => zone.sets.contains_key(source),
        rtype::RRSIG => zone.signatures.contains_key(source),
        _ => zone.set(source, qtype).is_some(),
    };
    let alias = zone.set(source, rtype::CNAME).and_then(|set| set.first());
    // RRSIG and NSEC stand beside an alias and are answered there (RFC 4034 3, 4); where a type
    // is absent the alias leads on (RFC 1034 4.3.2 step 3a).
    if let Some(rr) = alias.filter(|_| !present && follows) {
        let (to, _) = wire::name_in(&rr.rdata, 0).expect("an alias has a target");
        let alias = Alias::Cname { source: source.clone() };
        return Ok(Link { zone, from: name.clone(), to: to.lower(), alias });
    }
    let (name, source) = (name.clone(), source.clone());
    Err(match present {
        true => End::Data { zone, name, source },
        false => End::NoData { zone, name, source },
    })
}

fn below_dname<'a>(zone: &'a ZoneTruth, name: &Name, owner: &Name) -> Result<Link<'a>, End<'a>> {
    let alias = Alias::Dname { owner: owner.clone() };
    match name.replace_suffix(owner, &zone.dnames[owner].lower()) {
        Some(to) => Ok(Link { zone, from: name.clone(), to, alias }),
        None => Err(End::YxDomain { zone, owner: owner.clone() }),
    }
}

impl Walk<'_> {
    pub fn rcode(&self) -> u16 {
        match self.end {
            End::Refused => 5,
            End::NxDomain { .. } => 3,
            End::YxDomain { .. } => 6,
            _ => 0,
        }
    }

    /// AA speaks of the first owner in the answer (RFC 1035 4.1.1).
    pub fn is_authoritative(&self) -> bool {
        match self.end {
            End::Refused => false,
            End::Referral { .. } => !self.links.is_empty(),
            _ => true,
        }
    }

    /// Records of the answer section. For ANY and RRSIG the final name's are left to the server's
    /// choice (RFC 8482 4.1, 4.3), see [`Walk::choices`].
    pub fn answer_section(&self, query: &Query) -> BTreeSet<Rr> {
        let mut section = BTreeSet::new();
        let dnssec = query.dnssec_ok();
        for link in &self.links {
            match &link.alias {
                Alias::Cname { source } => {
                    add_set(&mut section, link.zone, source, &link.from, rtype::CNAME, dnssec);
                }
                Alias::Dname { owner } => {
                    add_set(&mut section, link.zone, owner, owner, rtype::DNAME, dnssec);
                    section.insert(synthesised(link, owner));
                }
            }
        }
        match &self.end {
            End::YxDomain { zone, owner } => {
                add_set(&mut section, zone, owner, owner, rtype::DNAME, dnssec);
            }
            End::Data { zone, name, source }
                if !matches!(query.qtype, rtype::ANY | rtype::RRSIG) =>
            {
                add_set(&mut section, zone, source, name, query.qtype, dnssec);
            }
            _ => {}
        }
        section
    }

    /// The RRsets (with signatures) of which ANY may show any, and RRSIG some signatures.
    pub fn choices(&self, query: &Query) -> Vec<BTreeSet<Rr>> {
        let End::Data { zone, name, source } = &self.end else { return Vec::new() };
        let mut choices = Vec::new();
        if query.qtype == rtype::ANY {
            for rtype in zone.sets.get(source).into_iter().flat_map(|types| types.keys()) {
                let mut set = BTreeSet::new();
                add_set(&mut set, zone, source, name, *rtype, query.dnssec_ok());
                choices.push(set);
            }
        }
        if query.qtype == rtype::RRSIG {
            for set in zone.signatures.get(source).into_iter().flat_map(|types| types.values()) {
                choices.push(set.iter().map(|rr| renamed(rr, name)).collect());
            }
        }
        choices
    }

    /// Wildcards used on the way: (zone, the name expanded, the wildcard). Each needs a proof
    /// that nothing closer exists (RFC 4035 3.1.3.3).
    pub fn expansions(&self) -> Vec<(&ZoneTruth, &Name, &Name)> {
        let mut expansions = Vec::new();
        for link in &self.links {
            if let Alias::Cname { source } = &link.alias
                && *source != link.from
            {
                expansions.push((link.zone, &link.from, source));
            }
        }
        if let End::Data { zone, name, source } = &self.end
            && source != name
        {
            expansions.push((zone, name, source));
        }
        expansions
    }
}

fn renamed(rr: &Rr, owner: &Name) -> Rr {
    Rr { owner: owner.clone(), ..rr.clone() }
}

fn add_set(
    section: &mut BTreeSet<Rr>,
    zone: &ZoneTruth,
    source: &Name,
    owner: &Name,
    rtype: u16,
    dnssec: bool,
) {
    section.extend(zone.set(source, rtype).into_iter().flatten().map(|rr| renamed(rr, owner)));
    if dnssec {
        let signatures = zone.signatures(source, rtype).into_iter().flatten();
        section.extend(signatures.map(|rr| renamed(rr, owner)));
    }
}

/// The CNAME that goes with a DNAME, with the DNAME's TTL (RFC 6672 3.1).
fn synthesised(link: &Link<'_>, owner: &Name) -> Rr {
    let dname = link.zone.set(owner, rtype::DNAME).and_then(|set| set.first());
    Rr {
        owner: link.from.clone(),
        rtype: rtype::CNAME,
        class: rtype::CLASS_IN,
        ttl: dname.map_or(0, |rr| rr.ttl),
        rdata: link.to.wire().to_vec(),
    }
}
