//! The servers: how each is configured, started on one core, asked whether it is up, stopped.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::data::ZoneSet;
use crate::interrupt;
use crate::machine::version_of;
use crate::measure::{self, CpuReading, Memory};
use crate::queries::{EdnsMode, Expect, address_query, check_answer};

const KNOT: &str = "/usr/sbin/knotd";
const NSD: &str = "/usr/sbin/nsd";
/// All servers run here; the load runs on another core.
pub const SERVER_CORE: usize = 0;
/// How long a server may take to end by itself before it is killed. Nothing it would still
/// write is needed.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Knot,
    Nsd,
    #[value(skip)]
    Pharos,
    /// `bench floor`.
    #[value(skip)]
    Floor,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Knot => "knot",
            Kind::Nsd => "nsd",
            Kind::Pharos => "pharos",
            Kind::Floor => "floor",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A server's program is not there.
#[derive(Debug)]
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    pub pharos: Option<PathBuf>,
}

impl Programs {
    /// Fails with [`Missing`] if `kind` cannot be started.
    pub fn require(&self, kind: Kind) -> Result<()> {
        let (program, package) = match kind {
            Kind::Knot => (Path::new(KNOT), "knot"),
            Kind::Nsd => (Path::new(NSD), "nsd"),
            Kind::Pharos => {
                let program = self.pharos()?;
                if program.is_file() {
                    return Ok(());
                }
                let message = format!("no pharos at {}: build it first", program.display());
                return Err(Missing(message).into());
            }
            Kind::Floor => return Ok(()),
        };
        if program.is_file() {
            return Ok(());
        }
        Err(Missing(format!(
            "{} is missing: apt-get install {package}, or leave {kind} out of --peers",
            program.display()
        ))
        .into())
    }

    pub fn version(&self, kind: Kind) -> String {
        match kind {
            Kind::Knot => version_of(KNOT, "--version"),
            Kind::Nsd => version_of(NSD, "-v"),
            Kind::Pharos => match self.pharos() {
                Ok(program) => version_of(&program.to_string_lossy(), "--version"),
                Err(_) => "unknown".to_owned(),
            },
            Kind::Floor => format!("bench {}", env!("CARGO_PKG_VERSION")),
        }
    }

    pub fn pharos(&self) -> Result<&Path> {
        self.pharos
            .as_deref()
            .ok_or_else(|| Missing("give the path of the server: --pharos PATH".to_owned()).into())
    }
}

/// A directory for one server's configuration and logs, gone with the value.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(kind: Kind) -> Result<Scratch> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Short, because control sockets live here and their paths are limited to 107 bytes.
        let name = format!("bench-{}-{number}-{kind}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Scratch(dir))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server. Dropping it stops it and its children.
#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    pub address: SocketAddr,
    child: Child,
    started: Instant,
    scratch: Scratch,
}

impl Server {
    /// Starts `kind` on [`SERVER_CORE`] with one worker. It need not be ready yet.
    pub fn start(kind: Kind, programs: &Programs, zones: &ZoneSet) -> Result<Server> {
        programs.require(kind)?;
        let scratch = Scratch::new(kind)?;
        let address = free_address()?;
        let command = match kind {
            Kind::Knot => knot(&scratch, address, zones),
            Kind::Nsd => nsd(&scratch, address, zones),
            Kind::Pharos => pharos(programs.pharos()?, &scratch, address, zones),
            Kind::Floor => floor(address),
        };
        let command = command.with_context(|| format!("cannot configure {kind}"))?;
        let mut command = on_core(SERVER_CORE, &command);
        let log = File::create(scratch.path("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {kind}"))?;
        Ok(Server { kind, address, child, started, scratch })
    }

    /// Asks until all `probes` are answered rightly; returns the time since the start.
    pub fn wait_ready(&mut self, probes: &[(String, Expect)], limit: Duration) -> Result<Duration> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(self.address)?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        for (name, expect) in probes {
            let query = address_query(name, EdnsMode::None);
            let expect = if self.kind == Kind::Floor { Expect::floor() } else { *expect };
            let mut last = String::from("no answer");
            while let Err(problem) = probe(&socket, &query, &expect) {
                interrupt::check()?;
                last = problem.unwrap_or(last);
                if let Some(status) = self.child.try_wait()? {
                    bail!("{} ended with {status}{}", self.kind, self.log_tail());
                }
                if self.started.elapsed() > limit {
                    let (kind, log) = (self.kind, self.log_tail());
                    bail!("{kind} does not answer {name} rightly in {limit:?}: {last}{log}");
                }
            }
        }
        Ok(self.started.elapsed())
    }

    /// The server and its children.
    pub fn pids(&self) -> Vec<u32> {
        measure::family(self.child.id())
    }

    pub fn cpu(&self) -> Result<CpuReading> {
        measure::read_cpu(&self.pids())
    }

    pub fn memory(&self) -> Result<Memory> {
        measure::read_memory(&self.pids())
    }

    /// Where Pharos takes commands.
    pub fn control(&self) -> PathBuf {
        self.scratch.path("control")
    }

    /// The end of what the server printed, for error messages.
    pub fn log_tail(&self) -> String {
        let text = fs::read(self.scratch.path("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(10)..].join("\n");
        if tail.is_empty() { tail } else { format!("\nits log ends with:\n{tail}") }
    }

    fn stop(&mut self) {
        let members = self.pids().into_iter().map(|pid| (pid, measure::start_ticks(pid)));
        let members: Vec<(u32, Option<u64>)> = members.collect();
        signal(self.child.id(), Signal::TERM);
        let limit = Instant::now() + STOP_GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        for (pid, started) in members {
            // Only what is still the same process: numbers are used again.
            if started.is_some() && measure::start_ticks(pid) == started {
                signal(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// `Err(None)` if nothing came, `Err(Some(..))` with what was wrong.
fn probe(socket: &UdpSocket, query: &[u8], expect: &Expect) -> Result<(), Option<String>> {
    let mut answer = [0; 1536];
    // Fails while the server has not bound its port. An answer to an earlier probe will do.
    let received = socket.send(query).and_then(|_| socket.recv(&mut answer));
    match received {
        Ok(len) => check_answer(query, &answer[..len], expect).map_err(|wrong| {
            std::thread::sleep(Duration::from_millis(2));
            Some(wrong.to_string())
        }),
        Err(error) => {
            if error.kind() == std::io::ErrorKind::ConnectionRefused {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(None)
        }
    }
}

/// A port of 127.0.0.1 free for UDP and TCP at this moment.
fn free_address() -> Result<SocketAddr> {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").context("cannot bind any UDP port")?;
        let address = udp.local_addr()?;
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(anyhow!("no port is free for both UDP and TCP"))
}

/// The command on one core, ended when this process ends. Both programs become the command,
/// so the process id is the server's.
pub fn on_core(core: usize, command: &Command) -> Command {
    let mut pinned = Command::new("setpriv");
    pinned.args(["--pdeathsig", "TERM", "taskset", "-c", &core.to_string()]);
    pinned.arg(command.get_program()).args(command.get_args());
    pinned
}

fn floor(address: SocketAddr) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["floor", "--listen", &address.to_string()]);
    Ok(command)
}

fn pharos(
    program: &Path,
    scratch: &Scratch,
    address: SocketAddr,
    zones: &ZoneSet,
) -> Result<Command> {
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--listen", &address.to_string()]);
    command.args(["--admin", &free_address()?.to_string()]);
    command.arg("--control").arg(scratch.path("control"));
    command.arg("--zones").arg(absolute(&zones.dir)?);
    Ok(command)
}

fn knot(scratch: &Scratch, address: SocketAddr, zones: &ZoneSet) -> Result<Command> {
    let config = scratch.path("knot.conf");
    let mut text = BufWriter::new(File::create(&config)?);
    write!(
        text,
        "server:\n    \
             rundir: \"{dir}\"\n    \
             listen: {ip}@{port}\n    \
             udp-workers: 1\n    \
             tcp-workers: 1\n    \
             background-workers: 1\n    \
             udp-max-payload: 1232\n\
         log:\n  - target: stderr\n    any: error\n\
         database:\n    storage: \"{dir}\"\n\
         template:\n  - id: default\n    \
             storage: \"{zones}\"\n    \
             file: \"%s.zone\"\n    \
             zonefile-load: whole\n    \
             zonefile-sync: -1\n    \
             journal-content: none\n    \
             semantic-checks: off\n\
         zone:\n",
        dir = scratch.0.display(),
        ip = address.ip(),
        port = address.port(),
        zones = absolute(&zones.dir)?.display(),
    )?;
    for name in &zones.names {
        writeln!(text, "  - domain: {name}")?;
    }
    text.flush()?;
    let mut command = Command::new(KNOT);
    // A million zones need more than the default 500 MiB of configuration.
    command.args(["--max-conf-size", "4000", "--config"]).arg(config);
    Ok(command)
}

fn nsd(scratch: &Scratch, address: SocketAddr, zones: &ZoneSet) -> Result<Command> {
    let config = scratch.path("nsd.conf");
    let text = format!(
        "server:\n  \
           server-count: 1\n  \
           ip-address: {ip}@{port}\n  \
           reuseport: no\n  \
           username: \"\"\n  \
           chroot: \"\"\n  \
           database: \"\"\n  \
           zonesdir: \"{zones}\"\n  \
           zonelistfile: \"{dir}/zone.list\"\n  \
           pidfile: \"{dir}/nsd.pid\"\n  \
           xfrdfile: \"{dir}/xfrd.state\"\n  \
           xfrdir: \"{dir}\"\n  \
           zonefiles-write: 0\n  \
           verbosity: 0\n  \
           tcp-count: 10\n  \
           ipv4-edns-size: 1232\n  \
           minimal-responses: yes\n  \
           rrl-ratelimit: 0\n  \
           rrl-whitelist-ratelimit: 0\n\
         remote-control:\n  control-enable: no\n\
         pattern:\n  name: \"bench\"\n  zonefile: \"%s.zone\"\n",
        ip = address.ip(),
        port = address.port(),
        dir = scratch.0.display(),
        zones = absolute(&zones.dir)?.display(),
    );
    fs::write(&config, text)?;
    let mut list = BufWriter::new(File::create(scratch.path("zone.list"))?);
    writeln!(list, "# NSD zone list\n# name pattern")?;
    for name in &zones.names {
        writeln!(list, "add {name} bench")?;
    }
    list.flush()?;
    let mut command = Command::new(NSD);
    command.arg("-d").arg("-c").arg(config);
    Ok(command)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("no such directory: {}", path.display()))
}
