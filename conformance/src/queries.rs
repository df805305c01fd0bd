//! Questions from a seed: at, beside, above and below everything the zones hold.

use std::fmt::Write as _;

use crate::name::{NAME_OCTETS_MAX, Name};
use crate::random::Random;
use crate::rtype;
use crate::truth::{Truth, ZoneTruth};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    pub size: u16,
    pub dnssec_ok: bool,
}

#[derive(Debug, Clone)]
pub struct Query {
    pub name: Name,
    pub qtype: u16,
    pub qclass: u16,
    /// RD, AD and CD as sent.
    pub flags: u16,
    pub edns: Option<Edns>,
    pub tcp: bool,
}

/// Pharos's own limit for UDP, as the peers are configured too (DNS flag day 2020).
pub const SERVER_UDP_OCTETS_MAX: usize = 1232;

impl Query {
    pub fn simple(name: Name, qtype: u16) -> Self {
        Query { name, qtype, qclass: rtype::CLASS_IN, flags: 0, edns: None, tcp: true }
    }

    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// The largest answer allowed: RFC 1035 4.2.1, RFC 6891 6.2.3 (less than 512 counts as 512).
    pub fn answer_octets_max(&self) -> usize {
        match (self.tcp, self.edns) {
            (true, _) => 65535,
            (false, None) => 512,
            (false, Some(edns)) => (edns.size as usize).clamp(512, SERVER_UDP_OCTETS_MAX),
        }
    }

    pub fn over_tcp(&self) -> Query {
        Query { tcp: true, ..self.clone() }
    }

    pub fn question_octets(&self) -> Vec<u8> {
        let mut octets = self.name.wire().to_vec();
        octets.extend_from_slice(&self.qtype.to_be_bytes());
        octets.extend_from_slice(&self.qclass.to_be_bytes());
        octets
    }

    pub fn encode(&self, id: u16) -> Vec<u8> {
        let additional = u16::from(self.edns.is_some());
        let mut octets = Vec::with_capacity(64);
        for word in [id, self.flags, 1, 0, 0, additional] {
            octets.extend_from_slice(&word.to_be_bytes());
        }
        octets.extend_from_slice(&self.question_octets());
        if let Some(edns) = self.edns {
            octets.push(0);
            octets.extend_from_slice(&rtype::OPT.to_be_bytes());
            octets.extend_from_slice(&edns.size.to_be_bytes());
            octets.extend_from_slice(&[0, 0, if edns.dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
        }
        octets
    }

    /// A line to paste into a shell. Flags are spelled out: dig's defaults add AD and a cookie.
    pub fn dig(&self, port: u16) -> String {
        let mut line = format!("dig @127.0.0.1 -p {port} +nocookie +norecurse");
        let switch = |bit: u16, name: &str| match self.flags & bit {
            0 => format!(" +no{name}"),
            _ => format!(" +{name}"),
        };
        line.push_str(&switch(0x0020, "adflag"));
        line.push_str(&switch(0x0010, "cdflag"));
        if self.flags & 0x0100 != 0 {
            line.push_str(" +recurse");
        }
        match self.edns {
            None => line.push_str(" +noedns"),
            Some(edns) => {
                let _ = write!(line, " +bufsize={}", edns.size);
                line.push_str(if edns.dnssec_ok { " +dnssec" } else { " +nodnssec" });
            }
        }
        line.push_str(if self.tcp { " +tcp" } else { " +notcp +ignore" });
        let (class, qtype) = (rtype::class_mnemonic(self.qclass), rtype::mnemonic(self.qtype));
        let _ = write!(line, " -q '{}' -c {class} -t {qtype}", self.name);
        line
    }
}

const TYPES: [u16; 24] = [
    rtype::A,
    rtype::AAAA,
    rtype::NS,
    rtype::SOA,
    rtype::MX,
    rtype::TXT,
    rtype::CNAME,
    rtype::DNAME,
    rtype::DS,
    rtype::DNSKEY,
    rtype::RRSIG,
    rtype::NSEC,
    rtype::NSEC3,
    rtype::NSEC3PARAM,
    rtype::SRV,
    rtype::SVCB,
    rtype::HTTPS,
    rtype::ANY,
    rtype::NAPTR,
    rtype::PTR,
    rtype::CAA,
    rtype::PRIVATE,
    65281,
    65399,
];

/// One question; the index alone decides it, so that `--only` can ask it again.
pub fn query(seed: u64, index: usize, truth: &Truth) -> Query {
    let mut random = Random::stream(seed, 1_000_000 + index as u64);
    let zone = &truth.zones[random.below(truth.zones.len())];
    let name = name(&mut random, zone, truth);
    let name = match random.chance(20) {
        true => name.recase(|| random.chance(50)),
        false => name,
    };
    let qtype = qtype(&mut random, zone, &name);
    let qclass = match random.below(400) {
        0 => rtype::CLASS_CH,
        1 => rtype::CLASS_ANY,
        2 => 4,
        _ => rtype::CLASS_IN,
    };
    let flags = [(0x0100, 15), (0x0020, 10), (0x0010, 10)]
        .iter()
        .fold(0, |flags, (bit, percent)| if random.chance(*percent) { flags | bit } else { flags });
    let sizes = [512, 1232, 4096, 1232, 0, 700, 65535];
    let edns = random
        .chance(70)
        .then(|| Edns { size: *random.pick(&sizes), dnssec_ok: random.chance(65) });
    Query { name, qtype, qclass, flags, edns, tcp: random.chance(5) }
}

fn name(random: &mut Random, zone: &ZoneTruth, truth: &Truth) -> Name {
    let known: Vec<&Name> = zone.names.iter().collect();
    let base = (*random.pick(&known)).clone();
    match random.below(100) {
        // As it stands.
        0..=39 => base,
        // One or two below; the asterisk asked literally among them.
        40..=64 => {
            let below = prepend(random, &base);
            if random.chance(25) { prepend(random, &below) } else { below }
        }
        // Beside.
        65..=74 => match base.parent() {
            Some(parent) if base != zone.origin => prepend(random, &parent),
            _ => prepend(random, &base),
        },
        // Below a cut, a DNAME or in a wildcard's reach, which chance alone meets too seldom.
        75..=87 => special(random, zone).unwrap_or(base),
        // Above, out of the zone at times.
        88..=90 => base.parent().unwrap_or(base),
        91..=93 => stretch(random, &base),
        94..=95 => outside(random),
        96 => hashed_owner(random, zone).unwrap_or(base),
        // A child of one zone's name under another zone.
        _ => {
            let other = &truth.zones[random.below(truth.zones.len())];
            let first = base.first_label().unwrap_or(b"x").to_vec();
            other.origin.child(&first).unwrap_or(base)
        }
    }
}

fn prepend(random: &mut Random, base: &Name) -> Name {
    let labels: [&[u8]; 16] = [
        b"a",
        b"b",
        b"x",
        b"*",
        b"www",
        b"host",
        b"ns",
        b"zzz",
        b"0",
        b"_tcp",
        b"\x00",
        b"\xff\xfe",
        b"ent",
        b"kid",
        b"*",
        b"q-nothing",
    ];
    let label = *random.pick(&labels);
    base.child(label).unwrap_or_else(|| base.clone())
}

fn special(random: &mut Random, zone: &ZoneTruth) -> Option<Name> {
    let cuts = zone.cuts.iter();
    let dnames = zone.dnames.keys();
    let wild = zone.names.iter().filter(|name| name.is_wildcard());
    let tops: Vec<Name> = match random.below(3) {
        0 => cuts.cloned().collect(),
        1 => dnames.cloned().collect(),
        _ => wild.filter_map(Name::parent).collect(),
    };
    let top = (!tops.is_empty()).then(|| random.pick(&tops).clone())?;
    match random.below(10) {
        0 => Some(top),
        1..=3 => Some(stretch(random, &top)),
        4 => {
            let below = prepend(random, &top);
            Some(prepend(random, &below))
        }
        _ => Some(prepend(random, &top)),
    }
}

/// Grows a name by long labels, up to exactly 255 octets at times.
fn stretch(random: &mut Random, base: &Name) -> Name {
    let mut name = base.clone();
    let goal = match random.below(3) {
        0 => NAME_OCTETS_MAX,
        _ => name.wire().len() + random.below(NAME_OCTETS_MAX + 1 - name.wire().len()),
    };
    while name.wire().len() + 2 <= goal {
        let room = goal - name.wire().len() - 1;
        let size = if room == 64 { 62 } else { room.min(63) };
        match name.child(&vec![b'L'; size]) {
            Some(longer) => name = longer,
            None => break,
        }
    }
    name
}

fn outside(random: &mut Random) -> Name {
    let names =
        [".", "test.", "example.", "www.elsewhere.example.", "com.", "f999.test.", "xtest."];
    let name = *random.pick(&names);
    Name::plain(name)
}

/// Hashed owners exist only as proofs (RFC 5155 7.2.8), which servers get wrong.
fn hashed_owner(random: &mut Random, zone: &ZoneTruth) -> Option<Name> {
    let hashed: Vec<_> =
        zone.sets.iter().filter(|(_, types)| types.contains_key(&rtype::NSEC3)).collect();
    (!hashed.is_empty()).then(|| random.pick(&hashed).0.clone())
}

fn qtype(random: &mut Random, zone: &ZoneTruth, name: &Name) -> u16 {
    let present = zone.sets.get(&name.lower());
    match (random.below(100), present) {
        (0..=34, Some(types)) => {
            let types: Vec<_> = types.keys().copied().collect();
            *random.pick(&types)
        }
        (35..=54, _) => rtype::A,
        (55..=62, _) => rtype::TXT,
        (63..=67, _) => rtype::DS,
        _ => *random.pick(&TYPES),
    }
}
