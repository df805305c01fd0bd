//! What a cache node is told: `[cache]`, `[cluster]` and `[coordination]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ::cache::answer::TtlLimits;
use ::cache::store::Limits;
use ::cache::upstream::Address;
use cluster::Placement;
use serde::Deserialize;

use super::{Checks, Said, overlap};
use crate::coordination::{CoordinationConfig, FileCoordination, Kind};
use crate::node::admit::{ALLOWED, Network};

/// Where a cache answers unless told otherwise.
pub const LISTEN: &str = "127.0.0.1:5301";
/// The port of upstream servers that are given without one.
const DNS_PORT: u16 = 53;
/// What an upstream server is called that is this process's own authority.
const OWN_ZONES: &str = "local";
/// Cells of a node at the most: a datagram names its cell in one octet, and
/// the last number is for gossip.
const WORKERS_MAX: usize = 254;

/// Everything a cache node is told.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    pub name: Arc<str>,
    pub datacenter: Arc<str>,
    pub listen: Vec<SocketAddr>,
    /// Where other nodes reach this one; a node that is alone has none.
    pub peer_listen: Option<SocketAddr>,
    /// The address that others are told, if it is another.
    pub peer_advertise: Option<SocketAddr>,
    pub transport: Transport,
    pub key_file: Option<PathBuf>,
    pub coordination: CoordinationConfig,
    /// By domain, in wire form; the root is for all others.
    pub upstreams: Vec<(Box<[u8]>, Vec<Address>)>,
    pub upstream_per_sec: Option<f64>,
    pub replicas: usize,
    pub placement: Placement,
    pub workers: usize,
    /// Of the whole node.
    pub l1: Limits,
    pub l2: Limits,
    pub ttl: TtlLimits,
    pub stale_secs: u32,
    pub prefetch: bool,
    pub pending_max: usize,
    pub allow: Vec<Network>,
    pub client_per_sec: Option<u32>,
}

/// How cells ask cells of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Sealed datagrams, connections only for what does not fit.
    Datagram,
    /// Always over connections.
    Grpc,
}

/// The form of `[cache]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileCache {
    listen: Option<Vec<String>>,
    peer_listen: Option<String>,
    peer_advertise: Option<String>,
    peer_transport: Option<String>,
    upstreams: Option<Vec<String>>,
    forward: Vec<FileForward>,
    upstream_rate: Option<f64>,
    replicas: Option<usize>,
    placement: Option<String>,
    workers: Option<usize>,
    l1_entries: Option<usize>,
    l2_entries: Option<usize>,
    l1_bytes: Option<usize>,
    l2_bytes: Option<usize>,
    stale: Option<Stale>,
    prefetch: Option<bool>,
    ttl_min: Option<u32>,
    ttl_max: Option<u32>,
    negative_ttl_max: Option<u32>,
    failure_ttl: Option<u32>,
    pending_max: Option<usize>,
    allow: Option<Vec<String>>,
    client_rate: Option<u32>,
}

/// How long data past its time may be served: seconds, or whether at all.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "`stale` is seconds, or true or false")]
enum Stale {
    Secs(u32),
    Whether(bool),
}

/// One `[[cache.forward]]`: a domain that others know.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileForward {
    domain: String,
    upstreams: Vec<String>,
}

/// The form of `[cluster]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileCluster {
    key_file: Option<PathBuf>,
}

/// What the file says about the node and its cluster.
#[derive(Debug)]
pub struct FileNodeParts {
    pub name: Option<String>,
    pub datacenter: Option<String>,
    pub cluster: FileCluster,
    pub coordination: FileCoordination,
}

impl Checks {
    pub(super) fn cache(
        &mut self,
        spec: FileCache,
        parts: FileNodeParts,
        taken: &[Said<SocketAddr>],
        has_zones: bool,
    ) -> CacheConfig {
        let listen = spec.listen.clone();
        let said = self.in_file("cache.listen", listen);
        let default = || Said { place: String::new(), value: vec![LISTEN.to_owned()] };
        let listen = self.addresses(said.unwrap_or_else(default));
        for Said { place, value } in &listen {
            if let Some(other) = taken.iter().find(|other| overlap(other.value, *value)) {
                self.problems.push(format!(
                    "{place}: {value} is also where {} listens; accepted: another port for one of \
                     them",
                    if other.place.is_empty() { "the authority" } else { &other.place }
                ));
            }
        }
        let coordination = self.coordination(&parts.coordination);
        let peer_listen = self.optional_address("cache.peer_listen", spec.peer_listen.as_deref());
        let peer_advertise =
            self.optional_address("cache.peer_advertise", spec.peer_advertise.as_deref());
        self.check_peers(&parts, &coordination, peer_listen, peer_advertise);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = self.in_file("cache.workers", spec.workers);
        let range = 1..=1usize << 32;
        let limits = |checks: &mut Self,
                      what: &str,
                      entries: Option<usize>,
                      default: usize,
                      bytes: Option<usize>| {
            let entries = checks.within(
                &format!("cache.{what}_entries"),
                entries.unwrap_or(default),
                range.clone(),
            );
            let bytes = bytes.unwrap_or(entries.saturating_mul(ENTRY_LEN).max(BYTES_MIN));
            Limits {
                entries,
                bytes: checks.within(&format!("cache.{what}_bytes"), bytes, BYTES_MIN..=1 << 42),
            }
        };
        let l1 = limits(self, "l1", spec.l1_entries, 10_000, spec.l1_bytes);
        let l2 = limits(self, "l2", spec.l2_entries, 1_000_000, spec.l2_bytes);
        CacheConfig {
            name: parts.name.as_deref().unwrap_or("pharos").into(),
            datacenter: parts.datacenter.as_deref().unwrap_or_default().into(),
            listen: listen.into_iter().map(|said| said.value).collect(),
            peer_listen,
            peer_advertise,
            transport: self.transport(spec.peer_transport.as_deref()),
            key_file: parts.cluster.key_file,
            coordination,
            upstreams: self.upstreams(spec.upstreams.clone(), &spec.forward, has_zones),
            upstream_per_sec: spec
                .upstream_rate
                .map(|rate| self.within("cache.upstream_rate", rate, 1.0..=1e9)),
            replicas: self.within("cache.replicas", spec.replicas.unwrap_or(2), 1..=16),
            placement: self.placement(spec.placement.as_deref()),
            workers: self.within_said(workers, cores.min(WORKERS_MAX), 1..=WORKERS_MAX),
            l1,
            l2,
            ttl: self.ttl_limits(&spec),
            stale_secs: self.within("cache.stale", stale_secs(spec.stale), 0..=604_800),
            prefetch: spec.prefetch.unwrap_or(true),
            pending_max: self.within(
                "cache.pending_max",
                spec.pending_max.unwrap_or(20_000),
                16..=10_000_000,
            ),
            allow: self.networks(spec.allow.clone()),
            client_per_sec: spec
                .client_rate
                .map(|rate| self.within("cache.client_rate", rate, 1..=4_000_000)),
        }
    }

    fn coordination(&mut self, said: &FileCoordination) -> CoordinationConfig {
        CoordinationConfig::parse(said).unwrap_or_else(|problems| {
            let problems = problems.into_iter().map(|problem| self.place(&problem));
            let problems: Vec<String> = problems.collect();
            self.problems.extend(problems);
            CoordinationConfig::parse(&FileCoordination::default())
                .expect("a node that is alone needs nothing")
        })
    }

    /// A node that has peers needs a name, an address that they reach, and
    /// their key.
    fn check_peers(
        &mut self,
        parts: &FileNodeParts,
        coordination: &CoordinationConfig,
        listen: Option<SocketAddr>,
        advertise: Option<SocketAddr>,
    ) {
        if matches!(&coordination.kind, Kind::Embedded { seeds } if seeds.is_empty()) {
            return;
        }
        let mut missing = |key: &str, what: &str| {
            let place = self.place(key);
            self.problems.push(format!("{place}: missing; a node of a cluster needs {what}"));
        };
        if parts.name.is_none() {
            missing("node.name", "a name that no other has, as in `name = \"n1\"`");
        }
        if parts.cluster.key_file.is_none() {
            missing(
                "cluster.key_file",
                "the key that its nodes share: `pharos cache keygen FILE` makes one",
            );
        }
        match (listen, advertise) {
            (None, _) => missing(
                "cache.peer_listen",
                "an address for the others, as in `peer_listen = \"192.0.2.1:5310\"`",
            ),
            (Some(listen), None) if listen.ip().is_unspecified() => missing(
                "cache.peer_advertise",
                "an address that the others can reach, as peer_listen is for all of the host",
            ),
            _ => {}
        }
    }

    fn optional_address(&mut self, key: &str, text: Option<&str>) -> Option<SocketAddr> {
        let place = self.place(key);
        text.and_then(|text| self.address(&place, text))
    }

    fn transport(&mut self, text: Option<&str>) -> Transport {
        match text {
            None | Some("datagram") => Transport::Datagram,
            Some("grpc") => Transport::Grpc,
            Some(other) => {
                let place = self.place("cache.peer_transport");
                self.problems.push(format!(
                    "{place}: `{other}` is unknown; accepted: \"datagram\", \"grpc\""
                ));
                Transport::Datagram
            }
        }
    }

    fn placement(&mut self, text: Option<&str>) -> Placement {
        text.map_or(Ok(Placement::Rendezvous), str::parse).unwrap_or_else(|problem| {
            let place = self.place("cache.placement");
            self.problems.push(format!("{place}: {problem}"));
            Placement::Rendezvous
        })
    }

    fn ttl_limits(&mut self, spec: &FileCache) -> TtlLimits {
        let default = TtlLimits::default();
        let day = 86_400;
        let limits = TtlLimits {
            min_secs: self.within(
                "cache.ttl_min",
                spec.ttl_min.unwrap_or(default.min_secs),
                0..=3600,
            ),
            max_secs: self.within(
                "cache.ttl_max",
                spec.ttl_max.unwrap_or(default.max_secs),
                1..=7 * day,
            ),
            negative_max_secs: self.within(
                "cache.negative_ttl_max",
                spec.negative_ttl_max.unwrap_or(default.negative_max_secs),
                1..=3 * 3600,
            ),
            failure_secs: self.within(
                "cache.failure_ttl",
                spec.failure_ttl.unwrap_or(default.failure_secs),
                1..=300,
            ),
        };
        if limits.min_secs > limits.max_secs {
            let place = self.place("cache.ttl_min");
            self.problems.push(format!(
                "{place}: {} is above ttl_max, {}; accepted: at most that",
                limits.min_secs, limits.max_secs
            ));
        }
        limits
    }

    fn networks(&mut self, texts: Option<Vec<String>>) -> Vec<Network> {
        let texts = texts.unwrap_or_else(|| ALLOWED.map(String::from).to_vec());
        let place = self.place("cache.allow");
        let parse = |text: &String| match text.parse() {
            Ok(network) => Some(network),
            Err(problem) => {
                self.problems.push(format!("{place}: {problem}"));
                None
            }
        };
        texts.iter().filter_map(parse).collect()
    }

    fn upstreams(
        &mut self,
        texts: Option<Vec<String>>,
        forwards: &[FileForward],
        has_zones: bool,
    ) -> Vec<(Box<[u8]>, Vec<Address>)> {
        let mut groups: Vec<(Box<[u8]>, Vec<Address>)> = Vec::new();
        let place = self.place("cache.upstreams");
        match texts.filter(|texts| !texts.is_empty()) {
            Some(texts) => {
                let servers = self.servers(&place, &texts, has_zones);
                groups.push((Box::from(&b"\0"[..]), servers));
            }
            None if forwards.is_empty() => self.problems.push(format!(
                "{place}: missing; a cache needs servers that know: accepted: addresses, as in \
                 `upstreams = [\"192.0.2.53\", \"[2001:db8::53]:53\"]`, or \"{OWN_ZONES}\" for the \
                 zones of this server"
            )),
            None => {}
        }
        for FileForward { domain, upstreams } in forwards {
            let place = self.place(&format!("cache.forward `{domain}`"));
            let name = match wire::name::from_text(domain) {
                Ok(name) => name.to_ascii_lowercase().into_boxed_slice(),
                Err(error) => {
                    self.problems.push(format!(
                        "{place}: no domain name: {error}; accepted: as in corp.example"
                    ));
                    continue;
                }
            };
            if upstreams.is_empty() {
                self.problems.push(format!("{place}: no upstreams; accepted: at least one"));
            }
            if groups.iter().any(|(other, _)| *other == name) {
                self.problems.push(format!("{place}: said twice; accepted: each domain once"));
            }
            let servers = self.servers(&place, upstreams, has_zones);
            groups.push((name, servers));
        }
        groups
    }

    fn servers(&mut self, place: &str, texts: &[String], has_zones: bool) -> Vec<Address> {
        let mut servers = Vec::new();
        for text in texts {
            if text == OWN_ZONES {
                if !has_zones {
                    self.problems.push(format!(
                        "{place}: `{OWN_ZONES}` stands for the zones of this server, which has \
                         none; accepted: `zones = \"DIR\"` under [authority]"
                    ));
                }
                servers.push(Address::Local);
                continue;
            }
            let with_port = text.parse::<SocketAddr>();
            let alone = text.parse().map(|ip| SocketAddr::new(ip, DNS_PORT));
            match with_port.or(alone) {
                Ok(address) if address.port() != 0 && !address.ip().is_unspecified() => {
                    servers.push(Address::Socket(address));
                }
                _ => self.problems.push(format!(
                    "{place}: `{text}` is no server; accepted: 192.0.2.53, 192.0.2.53:5300, \
                     2001:db8::53, [2001:db8::53]:5300, or \"{OWN_ZONES}\""
                )),
            }
        }
        servers
    }
}

fn stale_secs(said: Option<Stale>) -> u32 {
    match said {
        // RFC 8767, 5 advises one to three days.
        None | Some(Stale::Whether(true)) => 86_400,
        Some(Stale::Whether(false)) => 0,
        Some(Stale::Secs(secs)) => secs,
    }
}

/// Octets of a layer at the least: one large answer must fit.
const BYTES_MIN: usize = 1 << 20;
/// Octets that an entry is reckoned with where only entries are said: most
/// answers are smaller.
const ENTRY_LEN: usize = 512;
