//! What the zones really hold, read back by AXFR from a peer, in the same normal form as answers.
//! A small model of RFC 1034 4.3.2 stands on it: enough to say which names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

use crate::answer::{Answer, Reply, Rr, Section};
use crate::ask;
use crate::name::Name;
use crate::queries::Query;
use crate::rtype;
use crate::wire;
use crate::zones::Denial;

#[derive(Debug)]
pub struct ZoneTruth {
    pub origin: Name,
    pub denial: Denial,
    /// RRsets without RRSIGs, by lowered owner and type.
    pub sets: BTreeMap<Name, BTreeMap<u16, BTreeSet<Rr>>>,
    /// RRSIGs by lowered owner and covered type.
    pub signatures: BTreeMap<Name, BTreeMap<u16, BTreeSet<Rr>>>,
    /// Owners and the empty names between them, NSEC3's hashed owners apart.
    pub names: BTreeSet<Name>,
    pub cuts: BTreeSet<Name>,
    pub dnames: BTreeMap<Name, Name>,
}

#[derive(Debug)]
pub struct Truth {
    pub zones: Vec<ZoneTruth>,
}

/// Where a name ends up in a zone (RFC 1034 4.3.2 step 3).
#[derive(Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// At or below a cut.
    Cut(&'a Name),
    /// Below a DNAME.
    Dname(&'a Name),
    Exists,
    /// Answered from this wildcard.
    Wild(Name),
    Missing,
}

impl Truth {
    pub fn read(address: SocketAddr, zones: &[(Name, Denial)]) -> Result<Truth> {
        let read = |(origin, denial): &(Name, Denial)| {
            let records = transfer(address, origin).with_context(|| format!("AXFR of {origin}"))?;
            Ok(ZoneTruth::new(origin.clone(), denial.clone(), records))
        };
        Ok(Truth { zones: zones.iter().map(read).collect::<Result<_>>()? })
    }

    /// The closest enclosing zone.
    pub fn zone_of(&self, name: &Name) -> Option<&ZoneTruth> {
        let enclosing = self.zones.iter().filter(|zone| name.is_at_or_below(&zone.origin));
        enclosing.max_by_key(|zone| zone.origin.label_count())
    }

    /// The zone that answers: DS lives on the parent's side of a cut (RFC 4035 3.1.4.1). A zone
    /// above that delegates the parent itself is not the parent.
    pub fn zone_for(&self, name: &Name, qtype: u16) -> Option<&ZoneTruth> {
        let closest = self.zone_of(name)?;
        if qtype == rtype::DS && closest.origin.eq_ignore_case(name) {
            let above = name.parent().and_then(|parent| self.zone_of(&parent));
            let is_parent = |zone: &&ZoneTruth| match zone.place(name) {
                Place::Cut(cut) => cut.eq_ignore_case(name),
                _ => true,
            };
            return above.filter(is_parent).or(Some(closest));
        }
        Some(closest)
    }
}

impl ZoneTruth {
    fn new(origin: Name, denial: Denial, records: Vec<Rr>) -> Self {
        let mut sets: BTreeMap<Name, BTreeMap<u16, BTreeSet<Rr>>> = BTreeMap::new();
        let mut signatures = sets.clone();
        for rr in records {
            let (of_all, key) = match rr.covered() {
                Some(covered) => (&mut signatures, covered),
                None => (&mut sets, rr.rtype),
            };
            of_all.entry(rr.owner.clone()).or_default().entry(key).or_default().insert(rr);
        }
        let mut names = BTreeSet::new();
        let mut cuts = BTreeSet::new();
        let mut dnames = BTreeMap::new();
        for (owner, types) in &sets {
            if !types.contains_key(&rtype::NSEC3) {
                let inside = owner.ancestry().into_iter();
                names.extend(inside.take_while(|name| name.is_at_or_below(&origin)));
            }
            if types.contains_key(&rtype::NS) && *owner != origin {
                cuts.insert(owner.clone());
            }
            let target = types.get(&rtype::DNAME).and_then(|set| set.first());
            if let Some((target, _)) = target.and_then(|rr| wire::name_in(&rr.rdata, 0)) {
                dnames.insert(owner.clone(), target);
            }
        }
        ZoneTruth { origin, denial, sets, signatures, names, cuts, dnames }
    }

    pub fn is_signed(&self) -> bool {
        self.denial != Denial::Unsigned
    }

    /// The uppermost cut at or above `name`.
    pub fn cut_of(&self, name: &Name) -> Option<&Name> {
        let above = name.lower().ancestry();
        above.iter().rev().find_map(|above| self.cuts.get(above))
    }

    pub fn place(&self, name: &Name) -> Place<'_> {
        let name = name.lower();
        // From the apex down: whichever of cut and DNAME comes first decides.
        let path: Vec<Name> =
            name.ancestry().into_iter().take_while(|n| n.is_at_or_below(&self.origin)).collect();
        for above in path.iter().rev() {
            if let Some(cut) = self.cuts.get(above) {
                return Place::Cut(cut);
            }
            if *above != name
                && let Some((owner, _)) = self.dnames.get_key_value(above)
            {
                return Place::Dname(owner);
            }
        }
        if self.names.contains(&name) {
            return Place::Exists;
        }
        self.wildcard_of(&name).map_or(Place::Missing, Place::Wild)
    }

    /// The wildcard at the closest encloser of a name that does not exist, if there is one.
    pub fn wildcard_of(&self, name: &Name) -> Option<Name> {
        let path = name.lower().ancestry();
        let encloser = path.iter().skip(1).find(|above| self.names.contains(above))?;
        encloser.child(b"*").filter(|wildcard| self.names.contains(wildcard))
    }

    pub fn set(&self, owner: &Name, rtype: u16) -> Option<&BTreeSet<Rr>> {
        self.sets.get(&owner.lower())?.get(&rtype)
    }

    pub fn signatures(&self, owner: &Name, covered: u16) -> Option<&BTreeSet<Rr>> {
        self.signatures.get(&owner.lower())?.get(&covered)
    }

    /// SOA as negative answers must carry it: TTL = min(TTL, MINIMUM) (RFC 2308 3, 5).
    pub fn negative_ttl(&self) -> Option<u32> {
        let soa = self.set(&self.origin, rtype::SOA)?.first()?;
        let minimum = soa.rdata.last_chunk::<4>().map(|octets| u32::from_be_bytes(*octets))?;
        Some(soa.ttl.min(minimum))
    }
}

fn transfer(address: SocketAddr, origin: &Name) -> Result<Vec<Rr>> {
    let query = Query::simple(origin.clone(), rtype::AXFR);
    let mut stream = ask::connect(address)?;
    ask::write_framed(&mut stream, &query.encode(1))?;
    let mut records: Vec<Rr> = Vec::new();
    let mut soas = 0;
    // Every record comes once, the SOA at both ends (RFC 5936 2.2).
    while soas < 2 {
        let octets = ask::read_framed(&mut stream)?;
        let answer: Answer = match Reply::read(&octets) {
            Reply::Answer(answer) if answer.rcode == 0 => answer,
            other => bail!("refused: {other}"),
        };
        let records_here = answer.section(Section::Answer).iter().cloned();
        let duplicated = answer.duplicates.iter().filter(|rr| rr.rtype == rtype::SOA).count();
        let before = records.len();
        records.extend(records_here);
        soas += duplicated + records[before..].iter().filter(|rr| rr.rtype == rtype::SOA).count();
    }
    Ok(records)
}
