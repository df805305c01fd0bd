//! What a node is told about its coordination.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;

/// Where znodes live unless told otherwise.
const ROOT: &str = "/pharos";
/// How long ZooKeeper waits for a silent node unless told otherwise.
const SESSION_TIMEOUT_MS: u64 = 6_000;
/// How long a hash key is used unless told otherwise.
const ROTATE_HOURS: u64 = 24;
/// Servers that may be named.
const SERVERS_MAX: usize = 64;
/// Octets of a root path at the most.
const ROOT_LEN_MAX: usize = 255;

/// Everything a node is told about its coordination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinationConfig {
    pub kind: Kind,
    /// How long a hash key is used.
    pub key_rotation: Duration,
}

/// The way to be told who is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By the nodes themselves: a few of them to ask first, as HOST:PORT. Alone
    /// if there are none.
    Embedded { seeds: Vec<String> },
    /// By a ZooKeeper.
    ZooKeeper(ZooKeeperPlace),
}

/// Where a cluster is kept in a ZooKeeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperPlace {
    /// As HOST:PORT, at least one.
    pub servers: Vec<String>,
    /// The path under which everything is kept.
    pub root: String,
    pub session_timeout: Duration,
}

impl ZooKeeperPlace {
    /// Checks what a file says to somebody who follows a cluster and is none of
    /// its members; every problem is a line that begins with the key it is
    /// about.
    pub fn parse(said: &FileCoordination) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if said.rotate_hours.is_some() {
            problems.push(
                "coordination.rotate_hours: only members have hash keys; accepted: leave it out"
                    .into(),
            );
        }
        // Gossip has no place for somebody who listens and is not counted.
        if said.kind.as_deref() != Some("zookeeper") {
            problems.push(format!(
                "coordination.kind: {:?} cannot be followed from outside; accepted: \"zookeeper\", \
                 or no [coordination] and the nodes by name",
                said.kind.as_deref().unwrap_or("embedded")
            ));
        }
        let servers = said.servers.clone().unwrap_or_default();
        check_servers(&servers, &mut problems);
        let place = zookeeper(said, servers, &mut problems);
        if problems.is_empty() { Ok(place) } else { Err(problems) }
    }
}

/// The form of `[coordination]` in a configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileCoordination {
    pub kind: Option<String>,
    pub servers: Option<Vec<String>>,
    pub root: Option<String>,
    pub session_timeout_ms: Option<u64>,
    pub rotate_hours: Option<u64>,
}

impl CoordinationConfig {
    /// True if there is nobody to ask for other nodes.
    pub fn is_alone(&self) -> bool {
        matches!(&self.kind, Kind::Embedded { seeds } if seeds.is_empty())
    }

    /// Checks what a file says; every problem is a line that begins with the
    /// key it is about.
    pub fn parse(said: &FileCoordination) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let servers = said.servers.clone().unwrap_or_default();
        check_servers(&servers, &mut problems);
        let kind = match said.kind.as_deref() {
            None | Some("embedded") => {
                refuse_for_embedded("root", said.root.is_some(), &mut problems);
                let timeout = said.session_timeout_ms.is_some();
                refuse_for_embedded("session_timeout_ms", timeout, &mut problems);
                Kind::Embedded { seeds: servers }
            }
            Some("zookeeper") => Kind::ZooKeeper(zookeeper(said, servers, &mut problems)),
            Some(other) => {
                problems.push(format!(
                    "coordination.kind: {other:?} is unknown; accepted: \"embedded\", \"zookeeper\""
                ));
                Kind::Embedded { seeds: servers }
            }
        };
        let rotate_hours = said.rotate_hours.unwrap_or(ROTATE_HOURS);
        check_within("rotate_hours", rotate_hours, 1..=366 * 24, &mut problems);
        match problems.is_empty() {
            true => {
                let key_rotation = Duration::from_secs(rotate_hours * 3600);
                Ok(CoordinationConfig { kind, key_rotation })
            }
            false => Err(problems),
        }
    }
}

fn zookeeper(
    said: &FileCoordination,
    servers: Vec<String>,
    problems: &mut Vec<String>,
) -> ZooKeeperPlace {
    if servers.is_empty() {
        problems.push(
            "coordination.servers: a ZooKeeper needs an address; accepted: at least one HOST:PORT"
                .into(),
        );
    }
    let root = said.root.clone().unwrap_or_else(|| ROOT.to_owned());
    if !is_root(&root) {
        problems.push(format!(
            "coordination.root: {root:?} is no path; accepted: as in {ROOT}, of letters, digits, \
             `-`, `_`, `.` and single `/`, at most {ROOT_LEN_MAX} octets"
        ));
    }
    let timeout_ms = said.session_timeout_ms.unwrap_or(SESSION_TIMEOUT_MS);
    check_within("session_timeout_ms", timeout_ms, 1_000..=60_000, problems);
    ZooKeeperPlace { servers, root, session_timeout: Duration::from_millis(timeout_ms) }
}

fn check_servers(servers: &[String], problems: &mut Vec<String>) {
    if servers.len() > SERVERS_MAX {
        let count = servers.len();
        problems.push(format!("coordination.servers: {count} servers; accepted: {SERVERS_MAX}"));
    }
    for (place, server) in servers.iter().enumerate() {
        if !is_server(server) {
            problems.push(format!(
                "coordination.servers: {server:?} is no server; accepted: HOST:PORT, as in \
                 192.0.2.1:2181 or [2001:db8::1]:2181"
            ));
        } else if servers[..place].contains(server) {
            problems.push(format!(
                "coordination.servers: {server} is listed twice; accepted: each server once"
            ));
        }
    }
}

/// A host or a bracketed address, and a port.
fn is_server(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = |host: &str| {
        (1..=253).contains(&host.len())
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let is_literal = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
    };
    let is_port =
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0);
    is_port && (is_host(host) || is_literal(host))
}

fn is_root(text: &str) -> bool {
    let is_part = |part: &str| {
        part.bytes().any(|b| b != b'.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    // ZooKeeper keeps /zookeeper for itself.
    text.len() <= ROOT_LEN_MAX
        && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part))
        && text.split('/').nth(1) != Some("zookeeper")
}

fn refuse_for_embedded(key: &str, is_said: bool, problems: &mut Vec<String>) {
    if is_said {
        problems.push(format!(
            "coordination.{key}: only a ZooKeeper has one; accepted: leave it out, or kind = \
             \"zookeeper\""
        ));
    }
}

fn check_within<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
    problems: &mut Vec<String>,
) {
    if !range.contains(&value) {
        problems.push(format!(
            "coordination.{key}: {value} is out of range; accepted: {} to {}",
            range.start(),
            range.end()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CoordinationConfig, Vec<String>> {
        CoordinationConfig::parse(&toml::from_str(text).unwrap())
    }

    #[test]
    fn a_node_that_is_told_nothing_is_alone() {
        let config = parse("").unwrap();
        assert_eq!(config.kind, Kind::Embedded { seeds: Vec::new() });
        assert_eq!(config.key_rotation, Duration::from_secs(24 * 3600));
    }

    #[test]
    fn both_kinds_are_read() {
        let config =
            parse("kind = \"embedded\"\nservers = [\"192.0.2.1:5400\", \"[2001:db8::1]:5400\"]");
        let seeds = vec!["192.0.2.1:5400".to_owned(), "[2001:db8::1]:5400".to_owned()];
        assert_eq!(config.unwrap().kind, Kind::Embedded { seeds });

        let config = parse(
            "kind = \"zookeeper\"\nservers = [\"zk.example:2181\"]\nroot = \"/dns/cache\"\n\
             session_timeout_ms = 2000\nrotate_hours = 1",
        );
        let kind = Kind::ZooKeeper(ZooKeeperPlace {
            servers: vec!["zk.example:2181".into()],
            root: "/dns/cache".into(),
            session_timeout: Duration::from_secs(2),
        });
        let key_rotation = Duration::from_secs(3600);
        assert_eq!(config.unwrap(), CoordinationConfig { kind, key_rotation });
    }

    #[test]
    fn all_problems_are_said_at_once() {
        let problems = parse(
            "kind = \"zookeeper\"\nroot = \"pharos\"\nsession_timeout_ms = 5\nrotate_hours = 0",
        )
        .unwrap_err();
        let keys: Vec<&str> =
            problems.iter().filter_map(|line| line.split_once(": ").map(|(key, _)| key)).collect();
        assert_eq!(
            keys,
            [
                "coordination.servers",
                "coordination.root",
                "coordination.session_timeout_ms",
                "coordination.rotate_hours"
            ]
        );
        assert!(problems.iter().all(|line| line.contains("accepted: ")), "{problems:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, reason) in [
            ("kind = \"etcd\"", "\"etcd\" is unknown"),
            ("root = \"/pharos\"", "only a ZooKeeper has one"),
            ("session_timeout_ms = 6000", "only a ZooKeeper has one"),
            ("servers = [\"192.0.2.1:1\", \"192.0.2.1:1\"]", "listed twice"),
        ] {
            let problems = parse(text).unwrap_err();
            assert!(problems[0].contains(reason), "{problems:?}");
        }
    }

    #[test]
    fn a_cluster_in_a_zookeeper_can_be_followed_from_outside() {
        let parse = |text: &str| ZooKeeperPlace::parse(&toml::from_str(text).unwrap());
        let place = parse("kind = \"zookeeper\"\nservers = [\"192.0.2.1:2181\"]").unwrap();
        assert_eq!((&*place.root, place.session_timeout), ("/pharos", Duration::from_secs(6)));
        let problems = parse("servers = [\"x\"]\nroot = \"x\"\nrotate_hours = 1").unwrap_err();
        for (problem, key) in problems.iter().zip(["rotate_hours", "kind", "servers", "root"]) {
            assert!(problem.starts_with(&format!("coordination.{key}: ")), "{problem}");
            assert!(problem.contains("accepted: "), "{problem}");
        }
        assert_eq!(problems.len(), 4);
    }

    #[test]
    fn servers_have_a_host_and_a_port() {
        for server in ["192.0.2.1:2181", "zk-1.example:2181", "[2001:db8::1]:1"] {
            assert!(is_server(server), "{server}");
        }
        for server in [
            "",
            "host",
            ":2181",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "2001:db8::1:2181",
            "[host]:1",
            "a b:1",
            "host/x:1",
            "tcp://host:1",
        ] {
            assert!(!is_server(server), "{server}");
        }
    }

    #[test]
    fn roots_are_absolute_paths() {
        for root in ["/pharos", "/dns/cache.v1", "/a_b/c-d"] {
            assert!(is_root(root), "{root}");
        }
        for root in ["", "/", "pharos", "/pharos/", "//pharos", "/a/../b", "/a b", "/zookeeper/x"] {
            assert!(!is_root(root), "{root}");
        }
    }
}
