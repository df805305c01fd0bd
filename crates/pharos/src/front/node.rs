//! One node behind the front: where it is, and how it stands.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

use super::counters::NodeCounters;
use crate::counters::LATENCY_BUCKETS;

/// Probes in a row that must fail before a node counts as down, and succeed
/// before it counts as up again.
pub const PROBES_TO_TURN: u8 = 2;
/// Octets of the longest name of a node.
const NAME_LEN_MAX: usize = 63;

/// A node as it is told: `NAME=ADDR:PORT[,HEALTH_URL]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    pub name: String,
    pub address: SocketAddr,
    pub health: Option<HealthUrl>,
}

/// A page that says with its status whether a node is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthUrl {
    pub address: SocketAddr,
    pub path: String,
}

impl NodeSpec {
    pub fn parse(text: &str) -> Result<Self, String> {
        let failed = |what: &str| {
            format!(
                "`{text}`: {what}; accepted: NAME=ADDR:PORT or NAME=ADDR:PORT,http://ADDR:PORT/PATH"
            )
        };
        let (name, rest) = text.split_once('=').ok_or_else(|| failed("it has no name"))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_plain) {
            return Err(failed(
                "its name must be 1 to 63 letters, digits, hyphens, dots and underscores",
            ));
        }
        let (address, health) = match rest.split_once(',') {
            Some((address, url)) => (address, Some(url)),
            None => (rest, None),
        };
        let mut address: SocketAddr =
            address.parse().map_err(|_| failed("it has no address and port"))?;
        if address.ip() != address.ip().to_canonical() {
            address.set_ip(address.ip().to_canonical());
        }
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(failed("nobody can be reached there"));
        }
        let health = health.map(HealthUrl::parse).transpose().map_err(failed)?;
        Ok(NodeSpec { name: name.to_owned(), address, health })
    }
}

impl HealthUrl {
    /// An address, not a name: whoever resolves it may depend on this front.
    fn parse(url: &str) -> Result<Self, &'static str> {
        let rest = url.strip_prefix("http://").ok_or("its URL must start with http://")?;
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address = address.parse().map_err(|_| "its URL needs an address and a port")?;
        if !path.chars().all(|c| c.is_ascii_graphic()) {
            return Err("its URL has characters that belong in none");
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(HealthUrl { address, path: path.to_owned() })
    }
}

impl fmt::Display for HealthUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.address, self.path)
    }
}

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Up,
    /// Questions went unanswered; a probe is on its way.
    Suspect,
    Down,
}

impl Standing {
    /// The name used in metrics and on pages.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Up => "up",
            Standing::Suspect => "suspect",
            Standing::Down => "down",
        }
    }
}

/// What probes found lately, and what that makes of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Probes in a row against how it stands.
    against: u8,
}

impl Health {
    pub fn new() -> Self {
        Health { against: 0 }
    }

    /// How a node that stands so stands after a probe.
    pub fn after(&mut self, standing: Standing, is_good: bool) -> Standing {
        let (turned, same) = match (standing, is_good) {
            // One answer clears it: it is the suspicion that needs proof.
            (Standing::Up | Standing::Suspect, true) => (None, Standing::Up),
            (Standing::Up | Standing::Suspect, false) => (Some(Standing::Down), standing),
            (Standing::Down, true) => (Some(Standing::Up), Standing::Down),
            (Standing::Down, false) => (None, Standing::Down),
        };
        match turned {
            None => {
                self.against = 0;
                same
            }
            Some(turned) => {
                self.against += 1;
                if self.against < PROBES_TO_TURN {
                    return same;
                }
                self.against = 0;
                turned
            }
        }
    }
}

/// A node that is used.
#[derive(Debug)]
pub struct Node {
    pub spec: NodeSpec,
    standing: AtomicU8,
    /// Drained at this front.
    drained: AtomicBool,
    /// Drained in its own cluster, or about to stop.
    parting: AtomicBool,
    /// Wakes whoever probes it.
    pub wake: Notify,
    /// Of each thread.
    pub udp: Box<[NodeCounters]>,
    pub tcp: Connections,
    pub probes_failed: AtomicU64,
}

/// Connections to a node. They are made by many tasks.
#[derive(Debug, Default)]
pub struct Connections {
    pub open: AtomicU64,
    pub made: AtomicU64,
    pub failed: AtomicU64,
}

impl Node {
    /// A node that is taken to be up until probes say otherwise.
    pub fn new(spec: NodeSpec, threads: usize) -> Self {
        Node {
            spec,
            standing: AtomicU8::new(Standing::Up as u8),
            drained: AtomicBool::new(false),
            parting: AtomicBool::new(false),
            wake: Notify::new(),
            udp: (0..threads).map(|_| NodeCounters::default()).collect(),
            tcp: Connections::default(),
            probes_failed: AtomicU64::new(0),
        }
    }

    pub fn standing(&self) -> Standing {
        match self.standing.load(Relaxed) {
            0 => Standing::Up,
            1 => Standing::Suspect,
            _ => Standing::Down,
        }
    }

    /// Changes how it stands, if it still stands as `from`; says whether.
    pub fn turn(&self, from: Standing, to: Standing) -> bool {
        from != to && self.standing.compare_exchange(from as u8, to as u8, Relaxed, Relaxed).is_ok()
    }

    /// True if it is drained, wherever that was said.
    pub fn is_draining(&self) -> bool {
        self.is_drained() || self.is_parting()
    }

    pub fn is_drained(&self) -> bool {
        self.drained.load(Relaxed)
    }

    pub fn set_drained(&self, drained: bool) {
        self.drained.store(drained, Relaxed);
    }

    pub fn is_parting(&self) -> bool {
        self.parting.load(Relaxed)
    }

    pub fn set_parting(&self, parting: bool) {
        self.parting.store(parting, Relaxed);
    }

    /// True if new questions may go to it.
    pub fn is_ready(&self) -> bool {
        self.standing() != Standing::Down && !self.is_draining()
    }

    /// The sum of what the threads counted.
    pub fn sum(&self, of: impl Fn(&NodeCounters) -> u64) -> u64 {
        self.udp.iter().map(of).sum()
    }

    /// Latencies of all threads, by bucket.
    pub fn latencies(&self) -> [u64; LATENCY_BUCKETS] {
        let mut sum = [0; LATENCY_BUCKETS];
        for counters in &self.udp {
            for (sum, count) in sum.iter_mut().zip(counters.latency_us.counts()) {
                *sum += count;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(&str, &str, Option<&str>), &str>) {
        match (NodeSpec::parse(text), expected) {
            (Ok(spec), Ok((name, address, health))) => {
                assert_eq!(
                    (spec.name.as_str(), spec.address.to_string().as_str()),
                    (name, address)
                );
                assert_eq!(spec.health.map(|url| url.to_string()).as_deref(), health);
            }
            (Err(text), Err(part)) => {
                assert!(text.contains(part) && text.contains("accepted: NAME=ADDR:PORT"), "{text}");
            }
            (other, _) => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn nodes_are_read() {
        check("a=192.0.2.1:53", Ok(("a", "192.0.2.1:53", None)));
        check(
            "dns-1.eu=[2001:db8::1]:53,http://192.0.2.1:8053/healthz?x=1",
            Ok(("dns-1.eu", "[2001:db8::1]:53", Some("http://192.0.2.1:8053/healthz?x=1"))),
        );
        check(
            "a=192.0.2.1:53,http://192.0.2.1:80",
            Ok(("a", "192.0.2.1:53", Some("http://192.0.2.1:80/"))),
        );
        check("192.0.2.1:53", Err("it has no name"));
        check("=192.0.2.1:53", Err("its name must be"));
        check("a b=192.0.2.1:53", Err("its name must be"));
        check("a=ns.example:53", Err("it has no address and port"));
        check("a=192.0.2.1:0", Err("nobody can be reached there"));
        check("a=0.0.0.0:53", Err("nobody can be reached there"));
        check("a=192.0.2.1:53,https://192.0.2.1:80/", Err("must start with http://"));
        check("a=192.0.2.1:53,http://example/", Err("needs an address and a port"));
        check("a=192.0.2.1:53,http://192.0.2.1:80/\r\nx", Err("characters that belong in none"));
    }

    /// Every standing and every probe, with none and with one against it.
    #[test]
    fn two_probes_turn_a_node_and_one_clears_it() {
        use Standing::{Down, Suspect, Up};
        let check = |standing, against, is_good, expected: (Standing, u8)| {
            let mut health = Health { against };
            let after = health.after(standing, is_good);
            assert_eq!((after, health.against), expected, "{standing:?} {against} {is_good}");
        };
        check(Up, 0, true, (Up, 0));
        check(Up, 1, true, (Up, 0));
        check(Up, 0, false, (Up, 1));
        check(Up, 1, false, (Down, 0));
        check(Suspect, 0, true, (Up, 0));
        check(Suspect, 1, true, (Up, 0));
        check(Suspect, 0, false, (Suspect, 1));
        check(Suspect, 1, false, (Down, 0));
        check(Down, 0, true, (Down, 1));
        check(Down, 1, true, (Up, 0));
        check(Down, 0, false, (Down, 0));
        check(Down, 1, false, (Down, 0));
    }

    #[test]
    fn a_turn_that_comes_too_late_changes_nothing() {
        let node = Node::new(NodeSpec::parse("a=192.0.2.1:53").unwrap(), 1);
        assert!(node.turn(Standing::Up, Standing::Down));
        assert!(!node.turn(Standing::Up, Standing::Suspect));
        assert_eq!(node.standing(), Standing::Down);
        assert!(!node.is_ready());
    }
}
