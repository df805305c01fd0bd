//! Records of a zone in the making: RRsets keep one TTL, and what no server would load goes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::name::Name;
use crate::random::Random;

#[derive(Debug)]
struct RrSet {
    /// As written in the file: case may differ between the RRsets of a name.
    owner: Name,
    ttl: u32,
    rdatas: Vec<String>,
}

#[derive(Debug)]
pub struct Builder {
    pub origin: Name,
    pub random: Random,
    /// The longest owner: 255, but the NSEC3 signer wants room for `*.` in front.
    pub owner_octets_max: usize,
    sets: BTreeMap<Name, BTreeMap<String, RrSet>>,
}

const TTLS: [u32; 6] = [0, 30, 300, 3600, 86400, 604800];

impl Builder {
    pub fn new(origin: Name, random: Random, owner_octets_max: usize) -> Self {
        Builder { origin, random, owner_octets_max, sets: BTreeMap::new() }
    }

    /// A name below the apex from dotted plain text; the empty text is the apex.
    pub fn name(&self, relative: &str) -> Name {
        let labels = relative.split('.').filter(|label| !label.is_empty()).map(str::as_bytes);
        Name::from_labels(labels.chain(self.origin.labels())).expect("a short name")
    }

    /// The text of a name below the apex, in random case.
    pub fn text_of(&mut self, relative: &str) -> String {
        let name = self.name(relative);
        self.cased(&name).to_string()
    }

    /// Mostly as it is, sometimes in random case.
    pub fn cased(&mut self, name: &Name) -> Name {
        match self.random.chance(25) {
            true => name.recase(|| self.random.chance(50)),
            false => name.clone(),
        }
    }

    pub fn add(&mut self, relative: &str, rtype: &str, rdata: impl Into<String>) {
        self.add_at(&self.name(relative), rtype, rdata);
    }

    pub fn add_at(&mut self, name: &Name, rtype: &str, rdata: impl Into<String>) {
        assert!(name.is_at_or_below(&self.origin), "{name} is outside {}", self.origin);
        let owner = self.cased(name);
        let ttl = *self.random.pick(&TTLS);
        let sets = self.sets.entry(name.lower()).or_default();
        let set = sets.entry(rtype.to_owned()).or_insert_with(|| RrSet {
            owner,
            ttl,
            rdatas: Vec::new(),
        });
        let rdata = rdata.into();
        // Equal without case would be a duplicate to a server (RFC 2181 5).
        if !set.rdatas.iter().any(|known| known.eq_ignore_ascii_case(&rdata)) {
            set.rdatas.push(rdata);
        }
    }

    pub fn add_addresses(&mut self, relative: &str) {
        let name = self.name(relative);
        self.add_addresses_at(&name);
    }

    pub fn add_addresses_at(&mut self, name: &Name) {
        let (a, b) = (self.random.below(250) + 1, self.random.below(65535));
        self.add_at(name, "A", format!("192.0.2.{a}"));
        if self.random.chance(60) {
            self.add_at(name, "AAAA", format!("2001:db8::{b:x}"));
        }
    }

    pub fn has(&self, name: &Name, rtype: &str) -> bool {
        self.sets.get(&name.lower()).is_some_and(|sets| sets.contains_key(rtype))
    }

    /// NSD keeps the names of all zones in one tree and refuses a child's DNAME when its parent
    /// zone has (occluded) data below it. Called before the glue of hosted children is added.
    pub fn clear_below(&mut self, child: &Name) {
        self.sets.retain(|name, _| !name.is_below(child));
    }

    /// Removes what the peers refuse to load, whatever the features and the tree have drawn:
    /// data beside CNAME (RFC 2181 10.1), below DNAME (RFC 6672 2.4), DNAME or CNAME at a cut,
    /// NS and DNAME at a wildcard (RFC 4592 4.2, 4.4: undefined or discouraged).
    /// The signer refuses DS without NS, so only unsigned zones keep that.
    pub fn settle(&mut self, signed: bool) {
        let origin = self.origin.lower();
        for (name, sets) in &mut self.sets {
            if name.is_wildcard() {
                for rtype in ["NS", "DNAME", "DS"] {
                    sets.remove(rtype);
                }
            }
            if signed && !sets.contains_key("NS") {
                sets.remove("DS");
            }
            if sets.contains_key("NS") && *name != origin {
                for rtype in ["DNAME", "CNAME"] {
                    sets.remove(rtype);
                }
            }
            if sets.contains_key("CNAME") {
                match sets.len() {
                    1 => sets.get_mut("CNAME").expect("present").rdatas.truncate(1),
                    _ => drop(sets.remove("CNAME")),
                }
            }
            if let Some(dname) = sets.get_mut("DNAME") {
                dname.rdatas.truncate(1);
            }
        }
        // Sorted by wire form a parent may come after its child, hence two passes.
        let dnames: Vec<Name> = self
            .sets
            .iter()
            .filter(|(_, sets)| sets.contains_key("DNAME"))
            .map(|(name, _)| name.clone())
            .collect();
        self.sets.retain(|name, sets| {
            !sets.is_empty() && !dnames.iter().any(|dname| name.is_below(dname))
        });
    }

    /// One record a line, absolute names, SOA first.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let apex = &self.sets[&self.origin.lower()];
        let mut line = |rtype: &str, set: &RrSet| {
            for rdata in &set.rdatas {
                let _ = writeln!(text, "{} {} IN {rtype} {rdata}", set.owner, set.ttl);
            }
        };
        line("SOA", &apex["SOA"]);
        for sets in self.sets.values() {
            for (rtype, set) in sets.iter().filter(|(rtype, _)| *rtype != "SOA") {
                line(rtype, set);
            }
        }
        text
    }
}
