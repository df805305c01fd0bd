//! A server as a process: started on one core, asked whether it is up, measured, stopped.

use std::fmt;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt;
use crate::measure::{self, CpuReading};
use crate::queries::{Expect, check_answer};

/// All servers run here.
pub const SERVER_CORE: usize = 0;
/// The load, and everything else of this process.
pub const LOAD_CORE: usize = 1;
/// How long a server may take to end by itself before it is killed. Nothing it would still
/// write is needed.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Ports that servers are given, and how many there are.
const PORT_MIN: u16 = 15_000;
const PORTS: u16 = 17_000;

const _: () = assert!(LOAD_CORE != SERVER_CORE);

/// A server's program is not there.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// A directory for one server's configuration and logs, gone with the value.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(server: &str) -> Result<Scratch> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Short, because control sockets live here and their paths are limited to 107 bytes.
        let name = format!("bench-{}-{number}-{server}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Scratch(dir))
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A question that a server which is up answers rightly.
#[derive(Clone, Debug)]
pub struct Probe {
    pub query: Vec<u8>,
    pub expect: Expect,
}

/// A running server. Dropping it stops it and its children.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    started: Instant,
    log: PathBuf,
}

impl Process {
    /// Starts `command` on `core`; what it prints is added to `log`.
    pub fn start(name: &str, core: usize, command: &Command, log: PathBuf) -> Result<Process> {
        let mut command = on_core(core, command);
        let file = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Process { name: name.to_owned(), child, started, log })
    }

    /// Asks `address` until all `probes` are answered rightly; returns the time since the start.
    pub fn wait_ready(
        &mut self,
        address: SocketAddr,
        probes: &[Probe],
        limit: Duration,
    ) -> Result<Duration> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        for Probe { query, expect } in probes {
            let mut last = String::from("no answer");
            while let Err(problem) = probe(&socket, query, expect) {
                last = problem.unwrap_or(last);
                self.wait_longer(limit, &last)?;
            }
        }
        Ok(self.started.elapsed())
    }

    /// Fails if there is no use in waiting: the server has ended, or its time has. `last` is
    /// what was seen of it.
    pub fn wait_longer(&mut self, limit: Duration, last: &str) -> Result<()> {
        interrupt::check()?;
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}{}", self.name, self.log_tail());
        }
        if self.started.elapsed() > limit {
            bail!("{} is not ready in {limit:?}: {last}{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// The server and its children.
    pub fn pids(&self) -> Vec<u32> {
        measure::family(self.child.id())
    }

    pub fn cpu(&self) -> Result<CpuReading> {
        measure::read_cpu(&self.pids())
    }

    /// The end of what the server printed, for error messages.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(10)..].join("\n");
        if tail.is_empty() { tail } else { format!("\nits log ends with:\n{tail}") }
    }

    /// Ends it without any warning, as a power cut would.
    pub fn kill(mut self) {
        signal(self.child.id(), Signal::KILL);
        let _ = self.child.wait();
    }

    fn stop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
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

impl Drop for Process {
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
pub fn free_address() -> Result<SocketAddr> {
    // Never the same twice: those asked for first may not be bound yet. From below the ports
    // that the kernel gives to connections: one of those could be taken by then.
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU16::new(std::process::id() as u16 % PORTS));
    for _ in 0..PORTS {
        let port = PORT_MIN + next.fetch_add(1, Ordering::Relaxed) % PORTS;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    let port_max = PORT_MIN + (PORTS - 1);
    Err(anyhow!("no port from {PORT_MIN} to {port_max} is free for both UDP and TCP"))
}

/// The command on one core, ended when this process ends. Both programs become the command,
/// so the process id is the server's.
pub fn on_core(core: usize, command: &Command) -> Command {
    let mut pinned = Command::new("setpriv");
    pinned.args(["--pdeathsig", "TERM", "taskset", "-c", &core.to_string()]);
    pinned.arg(command.get_program()).args(command.get_args());
    pinned
}
