//! Where a zone is answered: on every virtual name server, or on the few of
//! its shard.
//!
//! A host has many virtual name servers, each with an address of its own, and
//! a zone lives on a handful of them. Which handful is decided elsewhere; here
//! is only what a compiled zone must know of it: the numbers, to answer there
//! and nowhere else, and the names, because these are the zone's NS records.
//! A file that listed them itself would be wrong as soon as the zone moves.

use std::fmt;
use std::sync::Arc;

use wire::{Name, rtype};

use crate::compile::origin_of;
use crate::problem::{Position, Problems};
use crate::records::{Record, RecordSet, TooLarge};

/// Virtual name servers of one zone at the most: more NS records would not
/// help a resolver, and their addresses would not fit a referral.
pub const SHARD_SIZE_MAX: usize = 16;
/// Time to live of a shard's NS records if the file has none to take it from:
/// two days, as delegations commonly have.
pub const SHARD_TTL_SECS: u32 = 172_800;

/// Where a zone is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On every virtual name server.
    #[default]
    Everywhere,
    /// On these alone.
    Shard(Shard),
}

impl Placement {
    /// Numbers of the virtual name servers, in their order; none: everywhere.
    pub fn servers(&self) -> impl Iterator<Item = u16> {
        let shard = match self {
            Placement::Everywhere => &[][..],
            Placement::Shard(shard) => shard.servers(),
        };
        shard.iter().map(|server| server.number)
    }
}

/// The virtual name servers of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard(Vec<ShardServer>);

/// One virtual name server of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardServer {
    /// Its number in the fleet.
    pub number: u16,
    /// Its name in wire form. Shared, because a million zones name the same
    /// few thousand servers.
    pub name: Arc<[u8]>,
}

/// Why some servers are no shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardError {
    /// There is none.
    Empty,
    /// There are this many.
    Large(usize),
    /// The one of this number is there twice.
    Twice(u16),
    /// The name of this one is no name in wire form.
    BadName(u16),
}

impl Shard {
    /// The shard of these servers, given in any order.
    pub fn new(mut servers: Vec<ShardServer>) -> Result<Self, ShardError> {
        match servers.len() {
            0 => return Err(ShardError::Empty),
            1..=SHARD_SIZE_MAX => {}
            len => return Err(ShardError::Large(len)),
        }
        servers.sort_unstable_by_key(|server| server.number);
        if let Some(pair) = servers.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(ShardError::Twice(pair[0].number));
        }
        let is_name =
            |octets: &[u8]| Name::parse(octets).is_ok_and(|name| name.as_bytes() == octets);
        match servers.iter().find(|server| !is_name(&server.name)) {
            Some(server) => Err(ShardError::BadName(server.number)),
            None => Ok(Shard(servers)),
        }
    }

    /// The servers, in order of their numbers.
    pub fn servers(&self) -> &[ShardServer] {
        &self.0
    }

    /// Makes the shard's names the NS records of the zone in `records`. Signed
    /// ones stay: a signature would not hold for others.
    pub(crate) fn take_over(&self, records: &mut RecordSet, problems: &mut Problems) {
        // Without an origin there is no zone; the compiler says so.
        let Some(origin) = origin_of(records) else { return };
        let at_apex = |record: &Record<'_>| record.owner.eq_ignore_ascii_case(&origin);
        let is_own = |record: &Record<'_>| record.rtype == rtype::NS && at_apex(record);
        let signs_own = |record: &Record<'_>| {
            record.rtype == rtype::RRSIG
                && record.rdata.starts_with(&rtype::NS.to_be_bytes())
                && at_apex(record)
        };
        let own: Vec<Record<'_>> = records.iter().filter(is_own).collect();
        if !own.is_empty() && records.iter().any(|record| signs_own(&record)) {
            return self.compare_signed(&own, problems);
        }
        let ttl_secs = own.iter().map(|record| record.ttl_secs).min().unwrap_or(SHARD_TTL_SECS);
        let soa = records.iter().find(|record| record.rtype == rtype::SOA);
        let at = own.first().copied().or(soa).map_or(Position::default(), |record| record.at);
        records.retain(|record| !is_own(record));
        for ShardServer { name, .. } in &self.0 {
            let record = Record { owner: &origin, rtype: rtype::NS, ttl_secs, rdata: name, at };
            if let Err(TooLarge) = records.push(record) {
                problems.error(
                    at,
                    "no room for the NS records of the zone's shard",
                    "a zone whose records have less than 4 GiB",
                );
            }
        }
    }

    /// Says so if signed NS records do not name the servers of the shard.
    fn compare_signed(&self, own: &[Record<'_>], problems: &mut Problems) {
        let is_listed =
            |name: &[u8]| own.iter().any(|record| record.rdata.eq_ignore_ascii_case(name));
        let is_member =
            |name: &[u8]| self.0.iter().any(|server| server.name.eq_ignore_ascii_case(name));
        if self.0.iter().all(|server| is_listed(&server.name))
            && own.iter().all(|record| is_member(record.rdata))
        {
            return;
        }
        problems.warning(
            own[0].at,
            "the zone's NS records are signed and stay as they are, but its shard has other name \
             servers",
            format!("signed NS records for {self}"),
        );
    }
}

/// The names, as in `ns1.example., ns2.example.`
impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, server) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}", Name::from_trusted(&server.name))?;
        }
        Ok(())
    }
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardError::Empty => f.write_str("a shard without a server"),
            ShardError::Large(len) => write!(f, "a shard of {len} servers"),
            ShardError::Twice(number) => write!(f, "server {number} is twice in a shard"),
            ShardError::BadName(number) => write!(f, "the name of server {number} is no name"),
        }?;
        write!(
            f,
            "; accepted: 1 to {SHARD_SIZE_MAX} different servers, each with a name in wire form"
        )
    }
}

impl std::error::Error for ShardError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zonefile::{self, NoIncludes};
    use crate::{Compiler, Image, NameHasher};

    const HEAD: &str = "$ORIGIN e.\n@ 60 SOA a b 1 2 3 4 5\nx 9 NS y\n";
    const SIGNED: &str =
        "@ 60 NS n.\n@ 60 RRSIG NS 13 1 60 20501231235959 20260101000000 1 e. AA==\n";

    /// A zone of `text` on the servers 7 and 1000: its NS records and what the
    /// compiler says.
    fn compile(text: &str) -> (Option<Image>, Vec<String>, String) {
        let (mut records, mut problems) = (RecordSet::default(), Problems::new("zone"));
        zonefile::read(text.as_bytes(), None, &mut NoIncludes, &mut records, &mut problems);
        let servers = vec![server(1000, b"\x02n2\0"), server(7, b"\x02N1\x01e\0")];
        let placement = Placement::Shard(Shard::new(servers).unwrap());
        let mut compiler = Compiler::new(NameHasher::new([7; 16]));
        let image = compiler.compile(&mut records, &placement, &mut problems);
        let line = |record: Record<'_>| {
            let [owner, data] = [record.owner, record.rdata].map(Name::from_trusted);
            format!("{owner} {} {data}", record.ttl_secs)
        };
        let is_ns = |record: &Record<'_>| record.rtype == rtype::NS;
        (image, records.iter().filter(is_ns).map(line).collect(), problems.to_string())
    }

    #[test]
    fn the_names_of_the_shard_are_the_ns_records() {
        let glue = "n1 60 A 192.0.2.1\n";
        let check = |text: &str, ttl: &str| {
            let (image, servers, problems) = compile(&format!("{HEAD}{text}{glue}"));
            let expected =
                ["x.e. 9 y.e.".into(), format!("e. {ttl} N1.e."), format!("e. {ttl} n2.")];
            assert_eq!((&servers[..], &problems[..]), (&expected[..], ""), "{text}");
            assert_eq!(image.unwrap().servers().collect::<Vec<_>>(), [7, 1000]);
        };
        check("", "172800");
        check("@ 30 NS old.\n", "30");
        check("@ 50 NS old.\nE. 40 NS n1\n", "40");
        // A name server in the zone needs its address there, as ever.
        let (image, _, problems) = compile(HEAD);
        assert!(image.is_some() && problems.contains("n1.e. has no address"), "{problems}");
    }

    #[test]
    fn signed_ns_records_stay() {
        let (image, servers, problems) = compile(&format!("{HEAD}{SIGNED}"));
        assert_eq!(servers, ["x.e. 9 y.e.", "e. 60 n."]);
        assert_eq!(image.unwrap().servers().count(), 2);
        assert!(problems.contains("zone:4:1: warning: "), "{problems}");
        assert!(problems.contains("accepted: signed NS records for N1.e., n2.\n"), "{problems}");
        // Those that are right already are no problem.
        let right = SIGNED.replace("NS n.\n", "NS n1\n@ 60 NS N2.\nn1 60 A 192.0.2.1\n");
        let (_, servers, problems) = compile(&format!("{HEAD}{right}"));
        assert_eq!((servers.len(), &problems[..]), (3, ""));
        // A signature over nothing keeps nothing.
        let lone = SIGNED.replace("@ 60 NS n.\n", "");
        assert_eq!(compile(&format!("{HEAD}{lone}")).1.len(), 3);
    }

    #[test]
    fn a_zone_is_served_on_its_servers_and_on_ordinary_addresses() {
        let name = Name::from_trusted(b"\x01e\0");
        let hasher = NameHasher::new([7; 16]);
        let servers = vec![server(0, b"\0"), server(65535, b"\0")];
        let shard = Placement::Shard(Shard::new(servers).unwrap());
        let image = Image::broken(name, &shard, &hasher);
        let asked = [None, Some(0), Some(65535), Some(1), Some(256)];
        assert_eq!(asked.map(|at| image.is_served_at(at)), [true, true, true, false, false]);
        let image = Image::broken(name, &Placement::Everywhere, &hasher);
        assert_eq!(asked.map(|at| image.is_served_at(at)), [true; 5]);
    }

    fn server(number: u16, name: &[u8]) -> ShardServer {
        ShardServer { number, name: Arc::from(name) }
    }

    #[test]
    fn servers_are_in_order_and_different() {
        let shard = Shard::new(vec![server(9, b"\x01b\0"), server(2, b"\x01a\0")]).unwrap();
        assert_eq!(shard.to_string(), "a., b.");
        assert_eq!(Placement::Shard(shard).servers().collect::<Vec<_>>(), [2, 9]);
        assert_eq!(Placement::Everywhere.servers().count(), 0);
        let check = |servers: Vec<ShardServer>, expected| {
            assert_eq!(Shard::new(servers).unwrap_err(), expected);
        };
        check(vec![], ShardError::Empty);
        check((0..17).map(|number| server(number, b"\0")).collect(), ShardError::Large(17));
        check(vec![server(2, b"\0"), server(3, b"\0"), server(2, b"\0")], ShardError::Twice(2));
        check(vec![server(1, b"\0"), server(2, b"\x01")], ShardError::BadName(2));
        check(vec![server(3, b"\x01a\0\0")], ShardError::BadName(3));
        let said = ShardError::Large(17).to_string();
        assert!(said.contains("17 servers; accepted: 1 to 16 different"), "{said}");
    }
}
