//! Starts the servers on loopback with the same zones, waits until each answers for each zone,
//! and stops them by process id.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::answer::{Reply, Section};
use crate::ask;
use crate::name::Name;
use crate::queries::Query;
use crate::rtype;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pharos,
    Knot,
    Nsd,
    Bind,
}

pub const PEERS: [Kind; 3] = [Kind::Knot, Kind::Nsd, Kind::Bind];

impl Kind {
    pub fn label(self) -> &'static str {
        match self {
            Kind::Pharos => "pharos",
            Kind::Knot => "knot",
            Kind::Nsd => "nsd",
            Kind::Bind => "bind",
        }
    }

    pub fn parse(text: &str) -> Result<Kind> {
        let known = PEERS.iter().find(|kind| kind.label() == text);
        known.copied().with_context(|| format!("no peer `{text}`; there are knot, nsd and bind"))
    }

    fn program(self) -> &'static str {
        match self {
            Kind::Pharos => "pharos",
            Kind::Knot => "/usr/sbin/knotd",
            Kind::Nsd => "/usr/sbin/nsd",
            Kind::Bind => "/usr/sbin/named",
        }
    }

    /// What to type when the peer is missing.
    pub fn missing(self) -> Option<String> {
        let package = match self {
            Kind::Pharos => return None,
            Kind::Knot => "knot",
            Kind::Nsd => "nsd",
            Kind::Bind => "bind9",
        };
        let program = self.program();
        (!Path::new(program).exists())
            .then(|| format!("{program} is missing: apt-get install {package}"))
    }
}

/// Who is judged: Pharos, or a peer in its place to learn how the peers differ.
#[derive(Debug, Clone)]
pub enum Program {
    Pharos(PathBuf),
    Peer(Kind),
}

impl Program {
    pub fn kind(&self) -> Kind {
        match self {
            Program::Pharos(_) => Kind::Pharos,
            Program::Peer(kind) => *kind,
        }
    }

    /// Writes what the server needs into `dir` and gives its command line. Every file of `zones`
    /// lies in one directory and ends in `.zone`, which is how Pharos finds them.
    pub fn command_line(
        &self,
        dir: &Path,
        address: SocketAddr,
        zones: &[ZoneFile],
    ) -> Result<Vec<String>> {
        fs::create_dir_all(dir)?;
        let kind = match self {
            Program::Peer(kind) => *kind,
            Program::Pharos(program) => {
                let zone_dir = zones.first().and_then(|zone| zone.path.parent());
                let zone_dir = zone_dir.context("Pharos needs a zone")?.display().to_string();
                let admin = SocketAddr::from((address.ip(), free_port()?));
                let program = program.display().to_string();
                let (listen, admin) = (address.to_string(), admin.to_string());
                // Several run at once, and no two servers share a control socket.
                let control = dir.join("control.sock").display().to_string();
                let line = [
                    "serve",
                    "--listen",
                    &listen,
                    "--zones",
                    &zone_dir,
                    "--admin",
                    &admin,
                    "--control",
                    &control,
                ];
                let line = line.into_iter().map(str::to_owned);
                return Ok(std::iter::once(program).chain(line).collect());
            }
        };
        let config = dir.join("server.conf");
        let text = match kind {
            Kind::Knot => knot_config(dir, address, zones),
            Kind::Nsd => nsd_config(dir, address, zones),
            _ => bind_config(dir, address, zones),
        };
        fs::write(&config, text)?;
        let config = config.display().to_string();
        let line: &[&str] = match kind {
            Kind::Knot => &[kind.program(), "-c", &config],
            Kind::Nsd => &[kind.program(), "-d", "-c", &config],
            _ => &[kind.program(), "-g", "-n", "1", "-c", &config],
        };
        Ok(line.iter().map(|part| (*part).to_owned()).collect())
    }
}

/// A zone as the servers get it.
#[derive(Debug, Clone)]
pub struct ZoneFile {
    pub origin: Name,
    pub path: PathBuf,
}

#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    pub address: SocketAddr,
    log: PathBuf,
    child: Child,
}

const START_TIMEOUT: Duration = Duration::from_secs(60);

impl Server {
    /// Starts it with `zones` and waits until it answers for all of them.
    pub fn start(program: &Program, dir: &Path, zones: &[ZoneFile]) -> Result<Server> {
        let kind = program.kind();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let line = program.command_line(dir, address, zones)?;
        let log = dir.join("log");
        let file = File::create(&log)?;
        let mut command = with_death_signal(&line[0]);
        command.args(&line[1..]).current_dir(dir);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {}", kind.label()))?;
        let mut server = Server { kind, address, log, child };
        server.wait_until_ready(zones)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, zones: &[ZoneFile]) -> Result<()> {
        let start = Instant::now();
        let mut pending: Vec<&Name> = zones.iter().map(|zone| &zone.origin).collect();
        while !pending.is_empty() {
            let label = self.kind.label();
            if let Some(status) = self.child.try_wait()? {
                bail!("{label} ended with {status}:\n{}", self.log_tail());
            }
            if start.elapsed() > START_TIMEOUT {
                bail!("{label} does not serve {:?} after a minute:\n{}", pending, self.log_tail());
            }
            // The queries themselves pace the loop: silence or refusal takes a moment.
            pending.retain(|origin| !self.serves(origin));
        }
        Ok(())
    }

    fn serves(&self, origin: &Name) -> bool {
        let query = Query { tcp: false, ..Query::simple(origin.clone(), rtype::SOA) };
        let served = |reply: Reply| {
            reply.answer().is_some_and(|answer| {
                answer.aa() && answer.rcode == 0 && !answer.section(Section::Answer).is_empty()
            })
        };
        let is_served = ask::ask_raw(self.address, &query.encode(7)).is_ok_and(served);
        if !is_served {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_served
    }

    /// The end of what the server said, which is where it says why it stopped.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // TERM first: NSD's first process ends its children only when asked politely.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// PR_SET_PDEATHSIG through setpriv: no unsafe code here, and no server outlives us. The signal
/// follows the thread that starts the server, so servers are started by the main thread.
pub fn with_death_signal(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// Free for UDP and TCP at this moment.
pub fn free_port() -> Result<u16> {
    for _ in 0..50 {
        let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
        let port = listener.local_addr()?.port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free for both UDP and TCP")
}

fn knot_config(dir: &Path, address: SocketAddr, zones: &[ZoneFile]) -> String {
    let (ip, port) = (address.ip(), address.port());
    let dir = dir.display();
    let mut text = format!(
        "server:\n    rundir: \"{dir}\"\n    listen: {ip}@{port}\n    udp-workers: 1\n    \
         tcp-workers: 1\n    background-workers: 1\n    udp-max-payload: 1232\n\
         log:\n  - target: stderr\n    any: info\n\
         database:\n    storage: \"{dir}/db\"\n\
         acl:\n  - id: all\n    address: 127.0.0.1\n    action: transfer\n\
         template:\n  - id: default\n    zonefile-sync: -1\n    zonefile-load: whole\n    \
         journal-content: none\n    semantic-checks: off\n    acl: all\nzone:\n"
    );
    for zone in zones {
        let _ = writeln!(
            text,
            "  - domain: \"{}\"\n    file: \"{}\"",
            zone.origin,
            zone.path.display()
        );
    }
    text
}

fn nsd_config(dir: &Path, address: SocketAddr, zones: &[ZoneFile]) -> String {
    let (ip, port) = (address.ip(), address.port());
    let dir = dir.display();
    let mut text = format!(
        "server:\n  ip-address: {ip}\n  port: {port}\n  server-count: 1\n  username: \"\"\n  \
         zonesdir: \"{dir}\"\n  database: \"\"\n  pidfile: \"\"\n  xfrdfile: \"\"\n  \
         xfrdir: \"{dir}\"\n  zonelistfile: \"{dir}/zone.list\"\n  minimal-responses: yes\n  \
         refuse-any: no\n  rrl-ratelimit: 0\n  ipv4-edns-size: 1232\n  tcp-query-count: 0\n  \
         do-ip6: no\nremote-control:\n  control-enable: no\n"
    );
    for zone in zones {
        let path = zone.path.display();
        let origin = &zone.origin;
        let _ = write!(text, "zone:\n  name: \"{origin}\"\n  zonefile: \"{path}\"\n  ");
        text.push_str("provide-xfr: 127.0.0.1 NOKEY\n");
    }
    text
}

fn bind_config(dir: &Path, address: SocketAddr, zones: &[ZoneFile]) -> String {
    let (ip, port) = (address.ip(), address.port());
    let dir = dir.display();
    let mut text = format!(
        "options {{\n  directory \"{dir}\";\n  listen-on port {port} {{ {ip}; }};\n  \
         listen-on-v6 {{ none; }};\n  pid-file none;\n  session-keyfile none;\n  lock-file none;\n  \
         recursion no;\n  minimal-responses yes;\n  minimal-any no;\n  dnssec-validation no;\n  \
         empty-zones-enable no;\n  zero-no-soa-ttl no;\n  notify no;\n  allow-query {{ any; }};\n  \
         allow-transfer {{ any; }};\n  max-udp-size 1232;\n  edns-udp-size 1232;\n  \
         check-names primary ignore;\n  check-integrity no;\n  check-sibling no;\n  \
         check-mx ignore;\n  check-mx-cname ignore;\n  check-srv-cname ignore;\n  \
         check-spf ignore;\n  check-wildcard no;\n  check-dup-records ignore;\n  \
         max-records-per-type 0;\n  max-types-per-name 0;\n  tcp-clients 100;\n}};\ncontrols {{ }};\n"
    );
    for zone in zones {
        let path = zone.path.display();
        let origin = &zone.origin;
        let _ = writeln!(text, "zone \"{origin}\" {{ type primary; file \"{path}\"; }};");
    }
    text
}
