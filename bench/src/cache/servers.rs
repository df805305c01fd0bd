//! The caches: how each is configured and started, alone or as a cluster, and the stub behind
//! them.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::names;
use crate::interrupt;
use crate::machine::version_of;
use crate::measure::{self, CpuReading};
use crate::process::{LOAD_CORE, Missing, Probe, Process, SERVER_CORE, Scratch, free_address};
use crate::queries::{EdnsMode, address_query};

const DNSDIST: &str = "/usr/bin/dnsdist";
const UNBOUND: &str = "/usr/sbin/unbound";
const READY_LIMIT: Duration = Duration::from_secs(20);
/// Entries that every cache has room for: more than any set of names that is asked twice.
const ENTRIES: usize = 400_000;
/// Room of the sockets of dnsdist and Unbound: a window of misses must not overflow it.
const BUFFER_BYTES: usize = 4 << 20;
/// Entries of Pharos's small cache on every node: more than the hot set, far fewer than the
/// large one.
const L1_ENTRIES: usize = 4096;

/// A kind of cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Dnsdist,
    Unbound,
    Pharos,
    /// The stub itself, without latency: what sockets and one hash cost.
    Floor,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Dnsdist => "dnsdist",
            Kind::Unbound => "unbound",
            Kind::Pharos => "pharos",
            Kind::Floor => "floor",
        }
    }
}

/// What is measured: a cache with so many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Setup {
    pub kind: Kind,
    pub nodes: usize,
    #[serde(default)]
    pub variant: Variant,
}

/// How the nodes of Pharos are told to work, where there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Datagrams between nodes, rendezvous hashing.
    #[default]
    Standard,
    /// Nodes ask one another over gRPC.
    Grpc,
    /// Consistent hashing with bounded loads.
    BoundedRing,
}

impl Variant {
    pub fn name(self) -> &'static str {
        match self {
            Variant::Standard => "standard",
            Variant::Grpc => "gRPC",
            Variant::BoundedRing => "ring",
        }
    }
}

impl Setup {
    pub fn alone(kind: Kind) -> Setup {
        Setup { kind, nodes: 1, variant: Variant::Standard }
    }

    pub fn pharos(nodes: usize) -> Setup {
        Setup { nodes, ..Setup::alone(Kind::Pharos) }
    }

    pub fn is_standard_pharos(&self) -> bool {
        self.kind == Kind::Pharos && self.variant == Variant::Standard
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.nodes, self.variant) {
            (Kind::Pharos, 1, Variant::Standard) => f.pad("pharos, 1 node"),
            (Kind::Pharos, nodes, Variant::Standard) => f.pad(&format!("pharos, {nodes} nodes")),
            (Kind::Pharos, nodes, variant) => {
                f.pad(&format!("pharos, {nodes}, {}", variant.name()))
            }
            (kind, _, _) => f.pad(kind.name()),
        }
    }
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    pub pharos: PathBuf,
}

impl Programs {
    /// Fails with [`Missing`] if `kind` cannot be started.
    pub fn require(&self, kind: Kind) -> Result<()> {
        let (program, way_out) = match kind {
            Kind::Dnsdist => (Path::new(DNSDIST), "apt-get install dnsdist"),
            Kind::Unbound => (Path::new(UNBOUND), "apt-get install unbound"),
            Kind::Pharos => (self.pharos.as_path(), "build it first, or give --pharos PATH"),
            Kind::Floor => return Ok(()),
        };
        if program.is_file() {
            return Ok(());
        }
        let (program, name) = (program.display(), kind.name());
        Err(Missing(format!("no {program}: {way_out}, or leave {name} out of --only")).into())
    }

    pub fn version(&self, kind: Kind) -> String {
        match kind {
            Kind::Dnsdist => version_of(DNSDIST, "--version"),
            Kind::Unbound => version_of(UNBOUND, "-V"),
            Kind::Pharos => version_of(&self.pharos.to_string_lossy(), "--version"),
            Kind::Floor => format!("bench {}", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// `bench stub` on the core of the load.
#[derive(Debug)]
pub struct Stub {
    process: Process,
    pub listen: SocketAddr,
    counts: SocketAddr,
    _scratch: Scratch,
}

impl Stub {
    pub fn start(latency_ms: f64, jitter_ms: f64) -> Result<Stub> {
        let scratch = Scratch::new("stub")?;
        let counts = free_address()?;
        let (listen, mut command) = floor()?;
        command.args(["--counts", &counts.to_string()]);
        command.args(["--latency-ms", &latency_ms.to_string()]);
        command.args(["--jitter-ms", &jitter_ms.to_string()]);
        let mut process = Process::start("stub", LOAD_CORE, &command, scratch.path("log"))?;
        process.wait_ready(listen, &[probe()], READY_LIMIT)?;
        Ok(Stub { process, listen, counts, _scratch: scratch })
    }

    pub fn cpu(&self) -> Result<CpuReading> {
        self.process.cpu()
    }

    /// Questions that reached it so far.
    pub fn total(&self) -> Result<u64> {
        let text = http_get(self.counts, "/counts").context("the stub does not tell its counts")?;
        let counts: serde_json::Value = serde_json::from_str(&text)?;
        counts["total"].as_u64().context("the stub's counts have no total")
    }
}

fn http_get(from: SocketAddr, path: &str) -> Result<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(from)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {from}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, body) = text.split_once("\r\n\r\n").context("no HTTP answer")?;
    Ok(body.to_owned())
}

/// A running cache of one or several nodes, all on [`SERVER_CORE`].
#[derive(Debug)]
pub struct Cluster {
    pub setup: Setup,
    nodes: Vec<Node>,
    scratch: Scratch,
    program: PathBuf,
}

#[derive(Debug)]
struct Node {
    name: String,
    address: SocketAddr,
    command: Command,
    log: PathBuf,
    /// None while it is down.
    process: Option<Process>,
}

impl Node {
    fn start(&mut self) -> Result<()> {
        let log = self.log.clone();
        let mut process = Process::start(&self.name, SERVER_CORE, &self.command, log)?;
        process.wait_ready(self.address, &[probe()], READY_LIMIT)?;
        self.process = Some(process);
        Ok(())
    }
}

impl Cluster {
    /// Starts all nodes and waits until they answer and know one another.
    pub fn start(
        setup: Setup,
        programs: &Programs,
        upstream: SocketAddr,
        replicas: usize,
    ) -> Result<Cluster> {
        Cluster::start_some(setup, programs, upstream, replicas, setup.nodes)
    }

    /// Starts the first `running` nodes; [`Cluster::restart`] starts the others.
    pub fn start_some(
        setup: Setup,
        programs: &Programs,
        upstream: SocketAddr,
        replicas: usize,
        running: usize,
    ) -> Result<Cluster> {
        programs.require(setup.kind)?;
        let scratch = Scratch::new(setup.kind.name())?;
        let commands = match setup.kind {
            Kind::Dnsdist => vec![dnsdist(&scratch, upstream)?],
            Kind::Unbound => vec![unbound(&scratch, upstream)?],
            Kind::Floor => vec![floor()?],
            Kind::Pharos => pharos(&programs.pharos, &scratch, setup, upstream, replicas)?,
        };
        let nodes = commands.into_iter().enumerate().map(|(index, (address, command))| Node {
            name: node_name(index),
            address,
            command,
            log: scratch.path(&format!("log{index}")),
            process: None,
        });
        let nodes = nodes.collect();
        let program = programs.pharos.clone();
        let mut cluster = Cluster { setup, nodes, scratch, program };
        for node in cluster.nodes.iter_mut().take(running) {
            node.start().with_context(|| format!("cannot start {setup}"))?;
        }
        cluster.wait_joined(Instant::now())?;
        Ok(cluster)
    }

    /// Of the nodes that are up.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.up().map(|node| node.address).collect()
    }

    /// Of all nodes, up or not.
    pub fn all_addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    fn up(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.process.is_some())
    }

    /// All nodes together.
    pub fn cpu(&self) -> Result<CpuReading> {
        measure::read_cpu(&self.running().flat_map(Process::pids).collect::<Vec<_>>())
    }

    fn running(&self) -> impl Iterator<Item = &Process> {
        self.nodes.iter().filter_map(|node| node.process.as_ref())
    }

    /// Kills a node without any warning.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        let process = self.nodes[index].process.take();
        process.with_context(|| format!("node {index} of {} is not up", self.setup))?.kill();
        Ok(())
    }

    /// Starts a killed node again; does not wait for it.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        ensure!(node.process.is_none(), "{} is up already", node.name);
        let process = Process::start(&node.name, SERVER_CORE, &node.command, node.log.clone())?;
        node.process = Some(process);
        Ok(())
    }

    pub fn log_tail(&self) -> String {
        self.running().map(Process::log_tail).collect()
    }

    /// Waits until each node lists all of them as members.
    fn wait_joined(&mut self, started: Instant) -> Result<()> {
        if self.setup.kind != Kind::Pharos || self.setup.nodes == 1 {
            return Ok(());
        }
        for index in 0..self.up().count() {
            let mut command = Command::new(&self.program);
            command.args(["cache", "members", "--control"]).arg(control(&self.scratch, index));
            loop {
                let output = command.output().context("cannot run pharos cache members")?;
                let text = String::from_utf8_lossy(&output.stdout);
                if output.status.success() && self.up().all(|node| text.contains(&node.name)) {
                    break;
                }
                interrupt::check()?;
                if started.elapsed() > READY_LIMIT {
                    let error = String::from_utf8_lossy(&output.stderr);
                    let (node, log) = (&self.nodes[index].name, self.log_tail());
                    bail!("{node} does not list all members: {}{log}", error.trim());
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

fn probe() -> Probe {
    let mut query = address_query("probe.cache.example", EdnsMode::None);
    // Recursion desired.
    query[2] = 1;
    Probe { query, expect: names::expect(b"\x05probe\x05cache\x07example\0") }
}

fn node_name(index: usize) -> String {
    format!("node{}", index + 1)
}

fn control(scratch: &Scratch, index: usize) -> PathBuf {
    scratch.path(&format!("control{index}"))
}

/// `bench stub` as it is without options.
fn floor() -> Result<(SocketAddr, Command)> {
    let listen = free_address()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["stub", "--listen", &listen.to_string()]);
    Ok((listen, command))
}

/// The packet cache before one upstream. Batches of datagrams are off by default; with them it
/// needs less CPU, and it is its best that counts.
fn dnsdist(scratch: &Scratch, upstream: SocketAddr) -> Result<(SocketAddr, Command)> {
    let (address, config) = (free_address()?, scratch.path("dnsdist.conf"));
    let text = format!(
        "setLocal(\"{address}\")\n\
         setACL({{\"127.0.0.0/8\"}})\n\
         setSecurityPollSuffix(\"\")\n\
         setUDPMultipleMessagesVectorSize(64)\n\
         setUDPSocketBufferSizes({BUFFER_BYTES}, {BUFFER_BYTES})\n\
         setMaxUDPOutstanding(65535)\n\
         upstream = newServer({{address=\"{upstream}\", sockets=16}})\n\
         upstream:setUp()\n\
         getPool(\"\"):setCache(newPacketCache({ENTRIES}, {{maxTTL=86400}}))\n"
    );
    fs::write(&config, text)?;
    let mut command = Command::new(DNSDIST);
    command.args(["--supervised", "--disable-syslog", "--config"]).arg(config);
    Ok((address, command))
}

/// One thread that forwards everything and does not validate.
fn unbound(scratch: &Scratch, upstream: SocketAddr) -> Result<(SocketAddr, Command)> {
    let (address, config) = (free_address()?, scratch.path("unbound.conf"));
    let text = format!(
        "server:\n  \
           num-threads: 1\n  \
           interface: {ip}@{port}\n  \
           access-control: 127.0.0.0/8 allow\n  \
           do-not-query-localhost: no\n  \
           module-config: \"iterator\"\n  \
           prefetch: no\n  \
           minimal-responses: yes\n  \
           username: \"\"\n  chroot: \"\"\n  directory: \"{dir}\"\n  pidfile: \"\"\n  \
           use-syslog: no\n  verbosity: 0\n  do-daemonize: no\n  \
           msg-cache-size: 256m\n  rrset-cache-size: 512m\n  \
           msg-cache-slabs: 1\n  rrset-cache-slabs: 1\n  infra-cache-slabs: 1\n  \
           outgoing-range: 8192\n  num-queries-per-thread: 4096\n  \
           so-rcvbuf: {BUFFER_BYTES}\n  so-sndbuf: {BUFFER_BYTES}\n\
         remote-control:\n  control-enable: no\n\
         forward-zone:\n  name: \".\"\n  forward-addr: {up_ip}@{up_port}\n",
        ip = address.ip(),
        port = address.port(),
        dir = scratch.dir().display(),
        up_ip = upstream.ip(),
        up_port = upstream.port(),
    );
    fs::write(&config, text)?;
    let mut command = Command::new(UNBOUND);
    command.arg("-d").arg("-c").arg(config);
    Ok((address, command))
}

/// So many nodes that know one another's peer addresses and share one key.
fn pharos(
    program: &Path,
    scratch: &Scratch,
    setup: Setup,
    upstream: SocketAddr,
    replicas: usize,
) -> Result<Vec<(SocketAddr, Command)>> {
    let key = scratch.path("key");
    let made = Command::new(program).args(["cache", "keygen"]).arg(&key).output();
    let made = made.context("cannot run pharos cache keygen")?;
    let error = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "pharos cache keygen failed: {}", error.trim());
    let peers = (0..setup.nodes).map(|_| free_address()).collect::<Result<Vec<_>>>()?;
    let mut commands = Vec::new();
    for index in 0..setup.nodes {
        let (listen, admin) = (free_address()?, free_address()?);
        let file = NodeFile {
            index,
            listen,
            admin,
            control: &control(scratch, index),
            key: &key,
            peers: &peers,
            upstream,
            replicas,
            variant: setup.variant,
        };
        let config = scratch.path(&format!("node{index}.toml"));
        fs::write(&config, file.to_string())?;
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(config);
        commands.push((listen, command));
    }
    Ok(commands)
}

/// The configuration of one node of Pharos.
struct NodeFile<'a> {
    index: usize,
    listen: SocketAddr,
    admin: SocketAddr,
    control: &'a Path,
    key: &'a Path,
    /// Peer addresses of all nodes, in order.
    peers: &'a [SocketAddr],
    upstream: SocketAddr,
    replicas: usize,
    variant: Variant,
}

impl fmt::Display for NodeFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placement = match self.variant {
            Variant::BoundedRing => "bounded-ring",
            Variant::Standard | Variant::Grpc => "rendezvous",
        };
        let transport = match self.variant {
            Variant::Grpc => "grpc",
            Variant::Standard | Variant::BoundedRing => "datagram",
        };
        let servers: Vec<String> = self.peers.iter().map(|peer| format!("\"{peer}\"")).collect();
        write!(
            f,
            "[node]\n\
             name = \"{name}\"\n\
             datacenter = \"bench\"\n\n\
             [cache]\n\
             listen = [\"{listen}\"]\n\
             peer_listen = \"{peer}\"\n\
             upstreams = [\"{upstream}\"]\n\
             replicas = {replicas}\n\
             l1_entries = {L1_ENTRIES}\n\
             l2_entries = {ENTRIES}\n\
             placement = \"{placement}\"\n\
             peer_transport = \"{transport}\"\n\
             stale = false\n\
             prefetch = false\n\
             workers = 1\n\n\
             [cluster]\n\
             key_file = \"{key}\"\n\n\
             [coordination]\n\
             kind = \"embedded\"\n\
             servers = [{servers}]\n\n\
             [admin]\n\
             listen = \"{admin}\"\n\
             control = \"{control}\"\n",
            name = node_name(self.index),
            listen = self.listen,
            peer = self.peers[self.index],
            upstream = self.upstream,
            replicas = self.replicas,
            key = self.key.display(),
            servers = servers.join(", "),
            admin = self.admin,
            control = self.control.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_own_address_and_knows_all_peers() {
        let peers = ["127.0.0.1:1001", "127.0.0.1:1002"].map(|it| it.parse().unwrap());
        let file = NodeFile {
            index: 1,
            listen: "127.0.0.1:53".parse().unwrap(),
            admin: "127.0.0.1:80".parse().unwrap(),
            control: Path::new("/tmp/control1"),
            key: Path::new("/tmp/key"),
            peers: &peers,
            upstream: "127.0.0.1:5353".parse().unwrap(),
            replicas: 2,
            variant: Variant::Grpc,
        };
        let text = file.to_string();
        for line in [
            "name = \"node2\"",
            "listen = [\"127.0.0.1:53\"]",
            "peer_listen = \"127.0.0.1:1002\"",
            "upstreams = [\"127.0.0.1:5353\"]",
            "replicas = 2",
            "placement = \"rendezvous\"",
            "peer_transport = \"grpc\"",
            "workers = 1",
            "key_file = \"/tmp/key\"",
            "servers = [\"127.0.0.1:1001\", \"127.0.0.1:1002\"]",
            "control = \"/tmp/control1\"",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn setups_are_named_by_their_nodes() {
        let names = [1, 4].map(|nodes| Setup::pharos(nodes).to_string());
        assert_eq!(names, ["pharos, 1 node", "pharos, 4 nodes"]);
        assert_eq!(Setup::alone(Kind::Unbound).to_string(), "unbound");
        let ring = Setup { variant: Variant::BoundedRing, ..Setup::pharos(4) };
        assert_eq!(ring.to_string(), "pharos, 4, ring");
    }

    #[test]
    fn a_missing_program_says_what_to_do() {
        let programs = Programs { pharos: "/nowhere/pharos".into() };
        let error = programs.require(Kind::Pharos).unwrap_err();
        assert!(error.is::<Missing>() && error.to_string().contains("--only"), "{error}");
    }
}
