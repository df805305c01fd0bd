//! The authority and its peers: how each is configured and started.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::data::ZoneSet;
use crate::machine::version_of;
use crate::measure::{self, CpuReading, Memory};
use crate::process::{Missing, Probe, Process, SERVER_CORE, Scratch, free_address};
use crate::queries::{EdnsMode, Expect, address_query};

const KNOT: &str = "/usr/sbin/knotd";
const NSD: &str = "/usr/sbin/nsd";

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

/// A running server.
#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    pub address: SocketAddr,
    process: Process,
    scratch: Scratch,
}

impl Server {
    /// Starts `kind` on [`SERVER_CORE`] with one worker. It need not be ready yet.
    pub fn start(kind: Kind, programs: &Programs, zones: &ZoneSet) -> Result<Server> {
        programs.require(kind)?;
        let scratch = Scratch::new(kind.name())?;
        let address = free_address()?;
        let command = match kind {
            Kind::Knot => knot(&scratch, address, zones),
            Kind::Nsd => nsd(&scratch, address, zones),
            Kind::Pharos => pharos(programs.pharos()?, &scratch, address, zones),
            Kind::Floor => floor(address),
        };
        let command = command.with_context(|| format!("cannot configure {kind}"))?;
        let process = Process::start(kind.name(), SERVER_CORE, &command, scratch.path("log"))?;
        Ok(Server { kind, address, process, scratch })
    }

    /// Asks until all `probes` are answered rightly; returns the time since the start.
    pub fn wait_ready(&mut self, probes: &[(String, Expect)], limit: Duration) -> Result<Duration> {
        let expect = |expect: &Expect| match self.kind {
            Kind::Floor => Expect::floor(),
            _ => *expect,
        };
        let probes: Vec<Probe> = probes
            .iter()
            .map(|(name, right)| Probe {
                query: address_query(name, EdnsMode::None),
                expect: expect(right),
            })
            .collect();
        self.process.wait_ready(self.address, &probes, limit)
    }

    pub fn cpu(&self) -> Result<CpuReading> {
        self.process.cpu()
    }

    pub fn memory(&self) -> Result<Memory> {
        measure::read_memory(&self.process.pids())
    }

    /// Where Pharos takes commands.
    pub fn control(&self) -> PathBuf {
        self.scratch.path("control")
    }

    /// The end of what the server printed, for error messages.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
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
        dir = scratch.dir().display(),
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
        dir = scratch.dir().display(),
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
