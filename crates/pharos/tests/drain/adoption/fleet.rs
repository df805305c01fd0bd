//! Three datacenters behind one edge, with everything around them that a
//! drain needs, each a real program: HAProxy, Prometheus, a pair of Redis, and
//! the Pharos that drains.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::delay::delayed;
use super::exporter::Exporter;
use super::redis::Redis;
use crate::common::{eventually, http};
use crate::load::Load;
use crate::prometheus::{Prometheus, nobody};
use crate::proxy::Proxy;
use crate::server::{Pharos, Status, configure, write_runbooks};

pub const DATACENTERS: [&str; 3] = ["dc1", "dc2", "dc3"];
const SCRAPE_INTERVAL: &str = "500ms";
const REPLICATION_DELAY: Duration = Duration::from_secs(1);
/// How long a run may take on a machine that does much else.
const RUN_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// What is dropped first is stopped first.
pub struct Fleet {
    pub pharos: Pharos,
    pub load: Load,
    pub databases: Option<Databases>,
    pub edge: Proxy,
    down: BTreeMap<&'static str, Arc<AtomicBool>>,
    pub prometheus: Prometheus,
    folder: TempDir,
}

/// A Redis in dc1 that is replicated to dc2 over a slow line, and the exporter
/// that shows how far behind the replica is.
pub struct Databases {
    pub exporter: Exporter,
    nodes: [Redis; 2],
}

impl Fleet {
    /// Starts everything, with Redis if the runbooks need it.
    pub fn start(files: &[(&str, &str)]) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        let needs_redis = files.iter().any(|(_, text)| text.contains("redis:"));
        let databases = needs_redis.then(|| Databases::start(folder.path()));
        let down: BTreeMap<_, _> =
            DATACENTERS.map(|name| (name, Arc::new(AtomicBool::new(false)))).into();
        let metrics = nobody();
        let edge = Proxy::start(folder.path(), "edge", &edge(folder.path(), metrics, &down));
        let mut jobs = vec![("edge", metrics)];
        jobs.extend(databases.iter().map(|own| ("redis", own.exporter.address)));
        let prometheus = Prometheus::start_with(folder.path(), SCRAPE_INTERVAL, &jobs);
        let load = Load::start_on(|service| folder.path().join(format!("{service}.sock")));
        write_runbooks(folder.path(), files);
        let mut drain = format!(
            "prometheus = \"http://{}\"\n[drain.drivers.edge]\nkind = \"haproxy\"\nsocket = \"{}\"\n",
            prometheus.address,
            edge.admin.display()
        );
        if let Some(databases) = &databases {
            drain += &databases.driver(folder.path());
        }
        configure(folder.path(), "one", &drain);
        let pharos = Pharos::start(folder.path());
        load.pass("web");
        load.pass("chat");
        Fleet { pharos, load, databases, edge, down, prometheus, folder }
    }

    /// Whether a datacenter responds to nothing.
    pub fn set_down(&self, datacenter: &str, is_down: bool) {
        self.down[datacenter].store(is_down, SeqCst);
    }

    /// The weights of `web` and `chat` in a datacenter, as HAProxy has them.
    pub fn weights(&self, datacenter: &str) -> [u32; 2] {
        ["web", "chat"].map(|service| self.edge.weight(&format!("{service}/{datacenter}")))
    }

    /// The newest run, as the server shows it.
    pub fn status(&self) -> Status {
        let get = |path: &str| -> Value {
            let (status, body) = http(self.pharos.admin, "GET", path);
            assert_eq!(status, 200, "{path}: {body}");
            serde_json::from_str(&body).unwrap()
        };
        let run = get("/v1/drains?limit=1")["runs"][0]["run"].as_u64().expect("a run");
        Status(get(&format!("/v1/drains/{run}")))
    }

    /// Waits until the newest run is as it should be.
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Status) -> bool) -> Status {
        let started = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            let elapsed = started.elapsed();
            assert!(elapsed < RUN_MAX, "{what} did not happen: {:#}\n{}", status.0, self.logs());
            std::thread::sleep(POLL);
        }
    }

    /// Waits until the newest run has ended, which must be as planned.
    pub fn completes(&self) -> Status {
        let status = self.until("the run ends", |status| status.outcome().is_some());
        let complaint = || format!("{:#}\n{}", status.0, self.logs());
        assert_eq!(status.outcome(), Some("completed"), "{}", complaint());
        status
    }

    /// Looks for a while whether something stays as it is.
    pub fn stays(&self, what: &str, span: Duration, mut is_so: impl FnMut() -> bool) {
        let started = Instant::now();
        while started.elapsed() < span {
            assert!(is_so(), "{what} changed after {:?}\n{}", started.elapsed(), self.logs());
            std::thread::sleep(POLL);
        }
    }

    /// Every request that failed so far: when, and why.
    pub fn failures(&self) -> Vec<(Instant, String)> {
        let of = |service: &str| {
            self.load.of(service, |counts| {
                let both = counts.failed_at.iter().copied().zip(counts.failed.iter().cloned());
                both.collect::<Vec<_>>()
            })
        };
        [of("web"), of("chat")].concat()
    }

    pub fn redis(&self) -> &Databases {
        self.databases.as_ref().expect("its runbooks name Redis")
    }

    /// What the commands of the Redis driver did: when, and what.
    pub fn commands(&self) -> Vec<(Duration, String)> {
        let log = std::fs::read_to_string(self.folder.path().join("commands")).unwrap_or_default();
        let parse = |line: &str| {
            let (at, what) = line.split_once(' ')?;
            Some((Duration::from_nanos(at.parse().ok()?), what.to_owned()))
        };
        log.lines().filter_map(parse).collect()
    }

    /// When a command of the Redis driver began or ended, if it did.
    pub fn command_at(&self, what: &str) -> Option<Duration> {
        self.commands().into_iter().find(|own| own.1 == what).map(|own| own.0)
    }

    /// Drains dc1 with a fence that, once its write has begun, waits until `then` has
    /// run. The gate is closed before the drain begins: a fence that was set
    /// earlier would prove nothing.
    pub fn drain_and_before_the_fence(&self, then: impl FnOnce()) {
        let gate = self.folder.path().join("gate");
        std::fs::write(&gate, "").unwrap();
        self.pharos.say(&["drain", "dc1", "--by", "ann", "--reason", "power works"]);
        let begins = "begin write writes fenced";
        self.until("the fence is about to be set", |_| self.command_at(begins).is_some());
        then();
        assert_eq!(self.command_at("end write writes fenced"), None, "{}", self.logs());
        std::fs::remove_file(&gate).unwrap();
    }

    /// The value of a line of `/metrics`.
    pub fn metric(&self, line: &str) -> Option<String> {
        let (status, body) = http(self.pharos.admin, "GET", "/metrics");
        assert_eq!(status, 200, "{body}");
        let found = body.lines().find_map(|own| own.strip_prefix(line));
        found.map(|value| value.trim().to_owned())
    }

    /// Has the script of the Redis driver do something, as a person would.
    pub fn by_hand(folder: &Path, arguments: &[&str]) {
        let mut command = std::process::Command::new("sh");
        let status = command.arg(folder.join("redis")).args(arguments).status().unwrap();
        assert!(status.success(), "{arguments:?}: {status}");
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Closes or opens a gate of the Redis driver: `promotion-gate`, `no-quorum`, `not-now`.
    pub fn set_gate(&self, name: &str, is_closed: bool) {
        let gate = self.folder.path().join(name);
        match is_closed {
            true => std::fs::write(&gate, "").unwrap(),
            false => std::fs::remove_file(&gate).unwrap(),
        }
    }

    /// The same fleet with a server that was started again.
    pub fn restarted(self) -> Fleet {
        self.replaced(|pharos, _| pharos.stop())
    }

    /// The same fleet with a server that is started after the other one was ended.
    pub fn replaced(self, end: impl FnOnce(Pharos, &Path)) -> Fleet {
        let Fleet { pharos, load, databases, edge, down, prometheus, folder } = self;
        end(pharos, folder.path());
        let pharos = Pharos::start(folder.path());
        Fleet { pharos, load, databases, edge, down, prometheus, folder }
    }

    pub fn logs(&self) -> String {
        let commands: Vec<String> =
            self.commands().into_iter().map(|(at, what)| format!("{at:?} {what}")).collect();
        format!("{}\n{}", self.pharos.log(), commands.join("\n"))
    }
}

impl Databases {
    fn start(folder: &Path) -> Databases {
        let lines = [delayed(REPLICATION_DELAY), delayed(REPLICATION_DELAY)];
        let sources = [lines[0].address, lines[1].address];
        let nodes =
            [Redis::start(folder, "dc1", None), Redis::start(folder, "dc2", Some(sources[0]))];
        let addresses = [nodes[0].address, nodes[1].address];
        lines.into_iter().zip(addresses).for_each(|(line, node)| line.serve(node));
        eventually("the replica follows", || nodes[1].follows());
        let name =
            |addresses: [SocketAddr; 2]| format!("dc1={} dc2={}", addresses[0], addresses[1]);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/promote/redis.sh");
        let text = WRAPPER
            .replace("NODES=", &format!("NODES='{}'", name(addresses)))
            .replace("SOURCES=", &format!("SOURCES='{}'", name(sources)))
            .replace("SCRIPT", script)
            .replace("FOLDER", folder.to_str().unwrap());
        std::fs::write(folder.join("redis"), text).unwrap();
        Databases { exporter: Exporter::start(addresses), nodes }
    }

    /// The exec driver of `pharos.toml`.
    fn driver(&self, folder: &Path) -> String {
        let script = folder.join("redis");
        let script = script.display();
        format!(
            "[drain.drivers.redis]\nkind = \"exec\"\n\
             read = [\"sh\", \"{script}\", \"read\", \"{{knob}}\"]\n\
             write = [\"sh\", \"{script}\", \"write\", \"{{knob}}\", \"{{value}}\"]\n"
        )
    }

    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.nodes[0].address, self.nodes[1].address]
    }

    /// The name and the address of the one primary there must be.
    pub fn primary(&self) -> (&'static str, SocketAddr) {
        let primaries: Vec<_> = DATACENTERS
            .into_iter()
            .zip(&self.nodes)
            .filter(|(_, node)| node.is_primary())
            .map(|(name, node)| (name, node.address))
            .collect();
        assert_eq!(primaries.len(), 1, "one primary: {primaries:?}");
        primaries[0]
    }
}

/// The sample's script for Redis, with a log of what it did, gates before the fence
/// and before the promotion at which a test can make it wait, and a promotion that
/// is refused.
const WRAPPER: &str = r#"
export NODES= SOURCES=
note() { echo "$(date +%s%N) $*" >> FOLDER/commands; }
[ "$1" = read ] || note begin "$@"
while [ "$3" = fenced ] && [ -e FOLDER/gate ]; do sleep 0.01; done
while [ "$1 $2" = 'write primary' ] && [ -e FOLDER/promotion-gate ]; do sleep 0.01; done
[ "$1 $2" = 'write primary' ] && [ -e FOLDER/no-quorum ] && { echo no quorum >&2; exit 1; }
[ "$1 $2" = 'write primary' ] && [ -e FOLDER/not-now ] && { echo not now >&2; exit 75; }
SCRIPT "$@" || exit $?
[ "$1" = read ] || note end "$@"
"#;

/// Every service has a server in each datacenter. The sockets are files, so that
/// no port is taken.
fn edge(
    folder: &Path,
    metrics: SocketAddr,
    down: &BTreeMap<&'static str, Arc<AtomicBool>>,
) -> String {
    let folder = folder.display();
    let service = |name: &str, mode: &str| {
        let servers = down.iter().map(|(datacenter, is_down)| {
            let address = serve(datacenter, is_down.clone());
            format!("  server {datacenter} {address} weight 100\n")
        });
        let servers: String = servers.collect();
        format!(
            "listen {name}\n  mode {mode}\n  bind unix@{folder}/{name}.sock\n  \
             balance roundrobin\n{servers}"
        )
    };
    // Each scrape has a connection of its own, so that a frontend that is disabled is seen.
    format!(
        "{}{}frontend metrics\n  mode http\n  option httpclose\n  bind {metrics}\n  \
         http-request use-service prometheus-exporter\n",
        service("web", "http"),
        service("chat", "tcp")
    )
}

/// A server that responds to every request with the name of its datacenter,
/// unless that is down.
fn serve(datacenter: &'static str, is_down: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let is_down = is_down.clone();
            // A client that hangs up is served no longer.
            std::thread::spawn(move || _ = respond(stream, datacenter, &is_down));
        }
    });
    address
}

fn respond(mut stream: TcpStream, name: &str, is_down: &AtomicBool) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if is_down.load(SeqCst) {
            return Ok(());
        }
        // In one piece: a response that is cut off cannot be asked for again.
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        stream.write_all(response.as_bytes())?;
    }
}
