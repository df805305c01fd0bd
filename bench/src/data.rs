//! The zones every server loads and the queries each scenario asks.
//!
//! Everything follows from [`SEED`], except the signatures. Files are kept in a work
//! directory and used again when the parameters beside them are the same.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use authority::NameHasher;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::interrupt;
use crate::progress::Progress;
use crate::queries::{EdnsMode, Expect, QuerySet, address_query};
use crate::stats::Random;

const SEED: u64 = 0x7068_6172_6f73;
/// Raise it when the generated zones change, so that old files are not used again.
const DATA_FORMAT: u32 = 1;

/// Keys as the system could draw them, the same in every run: keys with a pattern
/// spread names worse than any server would.
pub fn hasher() -> NameHasher {
    let mut random = Random::new(SEED);
    let words = [random.next(), random.next()].map(u64::to_le_bytes);
    NameHasher::new(words.as_flattened().try_into().expect("16 octets"))
}

const HOSTS: usize = 1000;
const SMALL: &str = "small.test";
const CHILDREN: &str = "children.test";
const SIGNED: &str = "signed.test";
const WILDCARD_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// Existing names of one zone with 1,000 names.
    Positive,
    /// Existing names spread over many small zones.
    Million,
    /// Names that do not exist.
    Nxdomain,
    /// Names that a wildcard answers.
    Wildcard,
    /// Names below 1,000 delegated children with glue.
    Delegation,
    /// A signed zone asked with DO; one in four names does not exist.
    Signed,
}

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Positive => "positive",
            Scenario::Million => "million",
            Scenario::Nxdomain => "nxdomain",
            Scenario::Wildcard => "wildcard",
            Scenario::Delegation => "delegation",
            Scenario::Signed => "signed",
        }
    }

    /// `count` queries to the zones of `small_zones`, or for [`Scenario::Million`] to the
    /// zones of `many_zones`.
    pub fn queries(self, zones: &ZoneSet, count: usize) -> QuerySet {
        let mut random = Random::new(SEED ^ self as u64);
        let mut set = QuerySet::default();
        for _ in 0..count {
            let (name, edns, expect) = self.query(zones, &mut random);
            set.push(&address_query(&name, edns), expect);
        }
        set
    }

    fn query(self, zones: &ZoneSet, random: &mut Random) -> (String, EdnsMode, Expect) {
        let host = random.below(HOSTS);
        match self {
            Scenario::Positive => {
                (host_name(host, SMALL), EdnsMode::None, Expect::address(host_address(host)))
            }
            Scenario::Million => {
                let (name, expect) = zones.random_name(random);
                (name, EdnsMode::None, expect)
            }
            Scenario::Nxdomain => {
                (format!("{}.{SMALL}", random.label(12)), EdnsMode::None, Expect::nxdomain())
            }
            Scenario::Wildcard => {
                let name = format!("{}.w.{SMALL}", random.label(12));
                (name, EdnsMode::None, Expect::address(WILDCARD_ADDRESS))
            }
            Scenario::Delegation => {
                let name = format!("{}.c{host:04}.{CHILDREN}", random.label(8));
                (name, EdnsMode::None, Expect::referral(2, 4))
            }
            Scenario::Signed if random.below(4) == 0 => {
                let name = format!("{}.{SIGNED}", random.label(12));
                (name, EdnsMode::Dnssec, Expect::signed_nxdomain())
            }
            Scenario::Signed => {
                let expect = Expect::signed_address(host_address(host));
                (host_name(host, SIGNED), EdnsMode::Dnssec, expect)
            }
        }
    }
}

/// A directory with one `NAME.zone` for each name.
#[derive(Debug)]
pub struct ZoneSet {
    pub dir: PathBuf,
    pub names: Vec<String>,
}

impl ZoneSet {
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.zone"))
    }

    /// An existing name of a random zone of `many_zones`.
    pub fn random_name(&self, random: &mut Random) -> (String, Expect) {
        let index = random.below(self.names.len());
        let zone = &self.names[index];
        match random.below(2) {
            0 => (zone.clone(), Expect::address(apex_address(index))),
            _ => (format!("www.{zone}"), Expect::address(www_address(index))),
        }
    }

    /// `www` of zone `index` of `many_zones`.
    pub fn www(&self, index: usize) -> (String, Expect) {
        (format!("www.{}", self.names[index]), Expect::address(www_address(index)))
    }

    /// Reads every file once, so that no server is the one that waits for the disk.
    pub fn warm(&self) -> Result<()> {
        let mut progress = Progress::new("reading the zone files into memory", self.names.len());
        for (index, name) in self.names.iter().enumerate() {
            let file = self.file(name);
            fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            if index % 1000 == 0 {
                interrupt::check()?;
                progress.show(index);
            }
        }
        progress.finish();
        Ok(())
    }
}

/// One zone with 1,000 hosts and a wildcard, one with 1,000 delegations, one signed.
pub fn small_zones(work: &Path) -> Result<ZoneSet> {
    let names = [SMALL, CHILDREN, SIGNED].map(String::from).to_vec();
    let set = ZoneSet { dir: work.join("small"), names };
    let parameters = Parameters { format: DATA_FORMAT, seed: SEED, zones: set.names.len() };
    parameters.unless_made(&set.dir, || {
        eprintln!("writing and signing the small zones into {}", set.dir.display());
        fs::write(set.file(SMALL), hosts_zone(SMALL) + "*.w A 10.255.0.1\n")?;
        fs::write(set.file(CHILDREN), children_zone())?;
        sign(work, &hosts_zone(SIGNED), &set.file(SIGNED))
    })?;
    Ok(set)
}

/// `count` zones with six records each, without their files.
pub fn many_names(work: &Path, count: usize) -> ZoneSet {
    let names: Vec<String> = (0..count).map(zone_name).collect();
    ZoneSet { dir: work.join(format!("zones-{count}")), names }
}

/// `count` zones with six records each.
pub fn many_zones(work: &Path, count: usize) -> Result<ZoneSet> {
    let set = many_names(work, count);
    let parameters = Parameters { format: DATA_FORMAT, seed: SEED, zones: count };
    parameters.unless_made(&set.dir, || {
        let mut progress = Progress::new("writing zone files", count);
        for (index, name) in set.names.iter().enumerate() {
            fs::write(set.file(name), zone_text(index, 1, www_address(index)))?;
            if index % 1000 == 0 {
                interrupt::check()?;
                progress.show(index);
            }
        }
        progress.finish();
        Ok(())
    })?;
    Ok(set)
}

/// What decides the content of a zone directory; stored beside it as `DIR.json`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Parameters {
    format: u32,
    seed: u64,
    zones: usize,
}

impl Parameters {
    fn unless_made(&self, dir: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
        let file = parameters_file(dir);
        let made = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if made.as_ref() == Some(self) {
            return Ok(());
        }
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot clear {}", dir.display()))?;
        }
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        make().with_context(|| format!("cannot write zones into {}", dir.display()))?;
        fs::write(&file, serde_json::to_vec(self)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Whoever changes a zone of `dir` takes this file away first and puts it back with the zone.
pub fn parameters_file(dir: &Path) -> PathBuf {
    dir.with_extension("json")
}

fn zone_name(index: usize) -> String {
    const WORDS: [&str; 16] = [
        "blue", "harbor", "light", "stone", "river", "north", "apple", "cloud", "garden", "silver",
        "market", "paper", "forest", "bright", "castle", "lake",
    ];
    const TOPS: [&str; 5] = ["com", "net", "org", "de", "io"];
    let mut random = Random::new(SEED.wrapping_add(index as u64));
    let (one, two) = (WORDS[random.below(16)], WORDS[random.below(16)]);
    // The number keeps names apart; random words keep neighbours in the list apart in a tree.
    format!("{one}{two}{index}.{}", TOPS[random.below(5)])
}

fn apex_address(index: usize) -> Ipv4Addr {
    tenant_address(2 * index as u64)
}

pub fn www_address(index: usize) -> Ipv4Addr {
    tenant_address(2 * index as u64 + 1)
}

fn tenant_address(number: u64) -> Ipv4Addr {
    let [a, b, c, ..] = Random::new(SEED ^ number).next().to_be_bytes();
    Ipv4Addr::new(10, a, b, c)
}

/// Zone `index` of `many_zones`, with the serial and `www` as given.
pub fn zone_text(index: usize, serial: u32, www: Ipv4Addr) -> String {
    format!(
        "$ORIGIN {name}.\n\
         $TTL 3600\n\
         @ SOA ns1.hosting.test. hostmaster.hosting.test. {serial} 7200 3600 1209600 300\n\
         @ NS ns1.hosting.test.\n\
         @ NS ns2.hosting.test.\n\
         @ A {apex}\n\
         @ MX 10 mail.hosting.test.\n\
         www A {www}\n",
        name = zone_name(index),
        apex = apex_address(index),
    )
}

fn zone_head(name: &str) -> String {
    format!(
        "$ORIGIN {name}.\n\
         $TTL 3600\n\
         @ SOA ns1 hostmaster 1 7200 3600 1209600 300\n\
         @ NS ns1\n\
         @ NS ns2\n\
         ns1 A 192.0.2.53\n\
         ns2 A 198.51.100.53\n"
    )
}

fn host_name(host: usize, zone: &str) -> String {
    format!("h{host:04}.{zone}")
}

fn host_address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, (host >> 8) as u8, host as u8)
}

fn hosts_zone(name: &str) -> String {
    let mut text = zone_head(name);
    for host in 0..HOSTS {
        writeln!(text, "h{host:04} A {}", host_address(host)).expect("strings take any text");
    }
    text
}

fn children_zone() -> String {
    let mut text = zone_head(CHILDREN);
    for child in 0..HOSTS {
        for server in 1..=2 {
            let octet = 10 * server + (child >> 8);
            write!(
                text,
                "c{child:04} NS ns{server}.c{child:04}\n\
                 ns{server}.c{child:04} A 10.1.{octet}.{low}\n\
                 ns{server}.c{child:04} AAAA 2001:db8:{server}::{child:x}\n",
                low = child & 255,
            )
            .expect("strings take any text");
        }
    }
    text
}

/// Signs with one ECDSAP256SHA256 key and NSEC.
fn sign(work: &Path, text: &str, signed: &Path) -> Result<()> {
    let dir = work.join("signing");
    fs::create_dir_all(&dir)?;
    let plain = dir.join("plain.zone");
    fs::write(&plain, text)?;
    let mut keygen = Command::new("ldns-keygen");
    keygen.current_dir(&dir).args(["-a", "ECDSAP256SHA256", SIGNED]);
    let key = output_of(&mut keygen)?;
    let mut signzone = Command::new("ldns-signzone");
    // Valid until 2036, so that cached zones stay good.
    signzone.current_dir(&dir).args(["-e", "20360101000000", "-f", "signed.zone", "plain.zone"]);
    output_of(signzone.arg(key.trim()))?;
    fs::copy(dir.join("signed.zone"), signed)?;
    Ok(())
}

fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}: install Debian's package ldnsutils"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn zone_names_differ() {
        let names: HashSet<String> = (0..10_000).map(zone_name).collect();
        assert_eq!(names.len(), 10_000);
    }

    #[test]
    fn zones_have_six_records() {
        let text = zone_text(3, 1, www_address(3));
        assert_eq!(text.lines().filter(|line| !line.starts_with('$')).count(), 6);
        assert!(text.contains(&format!("www A {}", www_address(3))));
        assert_ne!(www_address(3), apex_address(3));
    }

    #[test]
    fn children_have_two_servers_with_two_addresses() {
        let text = children_zone();
        let of_child = text.lines().filter(|line| line.contains("c0999")).count();
        assert_eq!(of_child, 6);
    }

    #[test]
    fn queries_are_repeatable_and_a_quarter_of_signed_ones_is_negative() {
        let zones = ZoneSet { dir: PathBuf::new(), names: vec![zone_name(0), zone_name(1)] };
        for scenario in Scenario::value_variants() {
            let (a, b) = (scenario.queries(&zones, 100), scenario.queries(&zones, 100));
            assert!((0..100).all(|index| a.get(index) == b.get(index)));
        }
        let signed = Scenario::Signed.queries(&zones, 4000);
        let negative = (0..4000).filter(|&index| signed.get(index).1.rcode == 3).count();
        assert!((900..1100).contains(&negative), "{negative}");
    }
}
