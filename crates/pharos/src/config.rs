//! What a server is told: a TOML file, flags, or both; flags win.
//!
//! The file's form ([`File`]) is not what the server works with ([`Config`]):
//! the file is checked as a whole, all problems at once, and then never looked
//! at again.

mod cache;
mod drain;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use cache::{CacheConfig, Transport as PeerTransport};
use cache::{FileCache, FileCluster, FileNodeParts};
use drain::FileDrain;

use crate::admin::host::is_host;
use crate::admin::socket::Group;
use crate::coordination::FileCoordination;
use crate::drains::DrainConfig;
use crate::fleet::assignments::Shape;
use crate::fleet::{Family, Fleet, Placing, Pool, pool};

/// Where a server listens unless told otherwise.
pub const LISTEN: &str = "127.0.0.1:5300";
/// Where the admin HTTP server listens unless told otherwise.
pub const ADMIN: &str = "127.0.0.1:8053";
/// The port of virtual name servers unless told otherwise.
pub const FLEET_PORT: u16 = 5300;
/// Stripes of a fleet, servers of a shard, and servers that two shards share
/// at the most, unless told otherwise.
pub const FLEET_SHAPE: [u32; 3] = [4, 4, 2];
/// How long the shard of a zone that went is kept for it unless told
/// otherwise: longer than resolvers remember the delegation.
pub const GRACE_HOURS: u64 = 7 * 24;

/// Everything a server is told.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Vec<SocketAddr>,
    /// Without them this server is no authority.
    pub zones: Option<PathBuf>,
    pub admin: SocketAddr,
    /// What clients of admin HTTP may call this server, beside its address.
    pub admin_hosts: Vec<String>,
    pub control: PathBuf,
    /// Whose members may use the control socket, beside the server's own user.
    pub control_group: Option<Group>,
    pub workers: usize,
    pub strict: bool,
    pub udp_payload: u16,
    pub identity: Option<String>,
    pub version: Option<String>,
    pub tcp: TcpLimits,
    pub cookies: Cookies,
    pub fleet: Option<Fleet>,
    /// Where zones live on the fleet; without it each is answered on all of it.
    pub placing: Option<Placing>,
    pub cache: Option<CacheConfig>,
    pub drain: Option<DrainConfig>,
}

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub struct TcpLimits {
    pub connections_max: usize,
    pub per_source_max: usize,
    pub idle: Duration,
    pub total: Duration,
}

/// How DNS cookies are made.
#[derive(Clone, Debug)]
pub struct Cookies {
    pub enabled: bool,
    /// Secrets shared with other servers of the same name; read on reload.
    pub secret_file: Option<PathBuf>,
    /// How often a server without such a file draws a new secret.
    pub rotate: Duration,
}

/// What may be said on the command line; `None` leaves it to the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Address and port to answer DNS on; may be given several times
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// Directory of *.zone files
    #[arg(long, value_name = "DIR")]
    pub zones: Option<PathBuf>,
    /// Address and port of the admin HTTP server (health, metrics, zones)
    #[arg(long, value_name = "ADDR:PORT")]
    pub admin: Option<String>,
    /// Socket through which `pharos zone reload` reaches this server
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Threads that answer UDP; one per core unless told
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Refuse to start if any zone has errors
    #[arg(long)]
    pub strict: bool,
    /// Answer to NSID and id.server
    #[arg(long, value_name = "TEXT")]
    pub identity: Option<String>,
}

/// The file's form. Unknown keys are refused: a misspelt limit is no limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    node: FileNode,
    authority: FileAuthority,
    tcp: FileTcp,
    cookies: FileCookies,
    admin: FileAdmin,
    fleet: Option<FileFleet>,
    cache: Option<FileCache>,
    cluster: FileCluster,
    coordination: FileCoordination,
    drain: Option<FileDrain>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileNode {
    name: Option<String>,
    datacenter: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileAuthority {
    listen: Option<Vec<String>>,
    zones: Option<PathBuf>,
    workers: Option<usize>,
    strict: Option<bool>,
    udp_payload: Option<u16>,
    version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileTcp {
    connections_max: Option<usize>,
    per_source_max: Option<usize>,
    idle_secs: Option<u64>,
    total_secs: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileCookies {
    enabled: Option<bool>,
    secret_file: Option<PathBuf>,
    rotate_secs: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileAdmin {
    pub listen: Option<String>,
    pub hosts: Vec<String>,
    pub control: Option<PathBuf>,
    pub control_group: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileFleet {
    pool: Option<String>,
    pool6: Option<String>,
    servers: Option<u32>,
    port: Option<u16>,
    stripes: Option<u32>,
    size: Option<u32>,
    overlap: Option<u32>,
    domains: Option<Vec<String>>,
    state: Option<PathBuf>,
    map: Option<PathBuf>,
    grace_hours: Option<u64>,
}

/// Reads `file`, lays `flags` over it and checks the whole.
pub fn read(file: Option<&Path>, flags: &Flags) -> Result<Config, String> {
    let spec = read_file(file)?;
    let mut checks = Checks::of(file);
    let config = checks.convert(spec, flags);
    checks.end(config)
}

/// What `file` says, before anything is checked; nothing without a file.
pub fn read_file<F: Default + DeserializeOwned>(file: Option<&Path>) -> Result<F, String> {
    let Some(path) = file else { return Ok(F::default()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| explain_toml(path, &text, &error))
}

/// What the reader of TOML found, with its place.
fn explain_toml(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{}:{line}:{column}: {}", path.display(), error.message())
}

/// A value and the place where it was said, as problems name it.
pub struct Said<T> {
    pub place: String,
    pub value: T,
}

/// Collects every problem of a configuration.
pub struct Checks {
    pub problems: Vec<String>,
    file: Option<PathBuf>,
}

impl Checks {
    /// Checks of what `file` and flags say.
    pub fn of(file: Option<&Path>) -> Self {
        Checks { problems: Vec::new(), file: file.map(Path::to_owned) }
    }

    /// What came out, or all problems.
    pub fn end<T>(self, result: T) -> Result<T, String> {
        match self.problems {
            problems if problems.is_empty() => Ok(result),
            problems => Err(problems.join("\n")),
        }
    }

    fn convert(&mut self, spec: File, flags: &Flags) -> Config {
        let zones = flags.zones.clone().or(spec.authority.zones);
        let needs_zones = spec.cache.is_none() && spec.drain.is_none();
        if zones.is_none() && (needs_zones || spec.fleet.is_some()) {
            self.problems.push(
                "no zone directory; accepted: --zones DIR, or `zones = \"DIR\"` under \
                 [authority]; or a [cache] or a [drain], which need none"
                    .into(),
            );
        }
        let listen = match (&spec.fleet, &spec.authority.listen) {
            // A fleet has its own addresses, and a cache too.
            (Some(_), None) if flags.listen.is_empty() => Vec::new(),
            (None, None) if flags.listen.is_empty() && zones.is_none() => Vec::new(),
            _ => self.listen(flags, spec.authority.listen),
        };
        let admin = self.pick("--admin", flags.admin.clone(), "admin.listen", spec.admin.listen);
        let admin = self.admin(admin, ADMIN, &listen);
        let drain_name = spec.node.name.clone();
        let parts = FileNodeParts {
            name: spec.node.name.clone(),
            datacenter: spec.node.datacenter,
            cluster: spec.cluster,
            coordination: spec.coordination,
        };
        let cache = spec.cache.map(|spec| self.cache(spec, parts, &listen, zones.is_some()));
        let name = self.pick("--identity", flags.identity.clone(), "node.name", spec.node.name);
        let identity = self.text(name);
        let drain = spec.drain.map(|spec| self.drain(spec, drain_name.as_deref()));
        let (fleet, placing) = match spec.fleet {
            Some(spec) => {
                (self.fleet(&spec, &listen, admin), Some(self.placing(&spec, identity.as_deref())))
            }
            None => (None, None),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers =
            self.pick("--workers", flags.workers, "authority.workers", spec.authority.workers);
        Config {
            listen: listen.into_iter().map(|said| said.value).collect(),
            zones,
            admin,
            admin_hosts: self.admin_hosts(spec.admin.hosts),
            control: flags.control.clone().or(spec.admin.control).unwrap_or_else(default_control),
            control_group: self.control_group(spec.admin.control_group),
            workers: self.within_said(workers, cores, 1..=1024),
            strict: flags.strict || spec.authority.strict.unwrap_or(false),
            udp_payload: self.within(
                "authority.udp_payload",
                spec.authority.udp_payload.unwrap_or(1232),
                512..=4096,
            ),
            identity,
            version: self.text(self.in_file("authority.version", spec.authority.version)),
            tcp: self.tcp(&spec.tcp),
            cookies: Cookies {
                enabled: spec.cookies.enabled.unwrap_or(true),
                secret_file: spec.cookies.secret_file,
                rotate: Duration::from_secs(self.within(
                    "cookies.rotate_secs",
                    spec.cookies.rotate_secs.unwrap_or(24 * 3600),
                    3600..=31 * 24 * 3600,
                )),
            },
            fleet,
            placing,
            cache,
            drain,
        }
    }

    /// The place of a key in the file.
    pub fn place(&self, key: &str) -> String {
        match &self.file {
            Some(file) => format!("{}: {key}", file.display()),
            None => key.to_owned(),
        }
    }

    /// What clients may call the admin HTTP server.
    pub fn admin_hosts(&mut self, hosts: Vec<String>) -> Vec<String> {
        let place = self.place("admin.hosts");
        for host in hosts.iter().filter(|host| !is_host(host)) {
            let host = base::text::excerpt(host, 100);
            self.problems.push(format!(
                "{place}: `{host}` is no host; accepted: a name such as `pharos.example` or an \
                 address, without a port"
            ));
        }
        hosts
    }

    /// The group whose members may use the control socket.
    pub fn control_group(&mut self, name: Option<String>) -> Option<Group> {
        let name = name?;
        let accepted = "a group of this host, as `getent group` lists them";
        match nix::unistd::Group::from_name(&name) {
            Ok(Some(group)) => return Some(Group { name, gid: group.gid.as_raw() }),
            Ok(None) => {
                let place = self.place("admin.control_group");
                self.problems.push(format!("{place}: no group `{name}`; accepted: {accepted}"));
            }
            Err(error) => {
                let place = self.place("admin.control_group");
                self.problems.push(format!("{place}: `{name}`: {error}; accepted: {accepted}"));
            }
        }
        None
    }

    pub fn in_file<T>(&self, key: &str, value: Option<T>) -> Option<Said<T>> {
        value.map(|value| Said { place: self.place(key), value })
    }

    /// What the flag says, else what the file says.
    pub fn pick<T>(
        &self,
        flag: &str,
        by_flag: Option<T>,
        key: &str,
        by_file: Option<T>,
    ) -> Option<Said<T>> {
        let by_flag = by_flag.map(|value| Said { place: flag.to_owned(), value });
        by_flag.or_else(|| self.in_file(key, by_file))
    }

    fn listen(&mut self, flags: &Flags, by_file: Option<Vec<String>>) -> Vec<Said<SocketAddr>> {
        let by_flags = Some(flags.listen.clone()).filter(|list| !list.is_empty());
        let said = self.pick("--listen", by_flags, "authority.listen", by_file);
        let default = || Said { place: String::new(), value: vec![LISTEN.to_owned()] };
        self.addresses(said.unwrap_or_else(default))
    }

    /// Addresses to listen on, each once.
    pub fn addresses(&mut self, said: Said<Vec<String>>) -> Vec<Said<SocketAddr>> {
        let Said { place, value: texts } = said;
        if texts.is_empty() {
            self.problems.push(format!("{place} is empty; accepted: at least one ADDR:PORT"));
        }
        let mut listen: Vec<Said<SocketAddr>> = Vec::new();
        for text in texts {
            let Some(value) = self.address(&place, &text) else { continue };
            match listen.iter().find(|other| overlap(other.value, value)) {
                Some(other) if other.value == value => self
                    .problems
                    .push(format!("{place}: {value} is listed twice; accepted: each address once")),
                Some(other) => self.problems.push(format!(
                    "{place}: {value} and {} overlap; accepted: on one port either single \
                     addresses or all of the host",
                    other.value
                )),
                None => listen.push(Said { place: place.clone(), value }),
            }
        }
        listen
    }

    /// Where admin HTTP listens, apart from DNS.
    pub fn admin(
        &mut self,
        said: Option<Said<String>>,
        default: &str,
        listen: &[Said<SocketAddr>],
    ) -> SocketAddr {
        let Said { place, value: text } =
            said.unwrap_or_else(|| Said { place: String::new(), value: default.to_owned() });
        let address = self.address(&place, &text);
        if let Some(address) = address
            && let Some(dns) = listen.iter().find(|dns| overlap(dns.value, address))
        {
            let what = match place.is_empty() {
                true => format!("{}: {} is also where admin HTTP listens", dns.place, dns.value),
                false => format!("{place}: {address} is also where DNS listens ({})", dns.value),
            };
            self.problems.push(format!("{what}; accepted: another port for one of them"));
        }
        address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn fleet(
        &mut self,
        spec: &FileFleet,
        listen: &[Said<SocketAddr>],
        admin: SocketAddr,
    ) -> Option<Fleet> {
        let range = 1..=pool::SERVERS_MAX;
        let servers =
            self.within("fleet.servers", spec.servers.unwrap_or(pool::SERVERS), range.clone());
        let mut pool = Pool::new(servers.clamp(*range.start(), *range.end()));
        let networks = [
            (Family::V4, self.in_file("fleet.pool", spec.pool.as_ref())),
            (Family::V6, self.in_file("fleet.pool6", spec.pool6.as_ref())),
        ];
        if networks.iter().all(|(_, said)| said.is_none()) {
            let place = self.place("fleet");
            self.problems.push(format!(
                "{place}: no addresses; accepted: `pool = \"127.53.0.0/21\"`, an IPv6 network as \
                 `pool6`, or both"
            ));
        }
        for (family, said) in networks {
            let Some(Said { place, value }) = said else { continue };
            match pool.with_network(family, value) {
                Ok(next) => pool = next,
                Err(problem) => self.problems.push(format!("{place}: {problem}")),
            }
        }
        let fleet = Fleet { pool, port: spec.port.unwrap_or(FLEET_PORT) };
        self.check_fleet(fleet, listen, admin);
        Some(fleet)
    }

    fn placing(&mut self, spec: &FileFleet, identity: Option<&str>) -> Placing {
        let [stripes, size, overlap] = FLEET_SHAPE;
        let shape = Shape {
            servers: spec.servers.unwrap_or(pool::SERVERS),
            stripes: self.within("fleet.stripes", spec.stripes.unwrap_or(stripes), 1..=128),
            size: spec.size.unwrap_or(size),
            overlap: spec.overlap.unwrap_or(overlap),
        };
        if let Err(problem) = shape.design(&shuffle::Key::PUBLIC) {
            self.problems.push(format!("{}: {problem}", self.place("fleet")));
        }
        let domains = spec.domains.clone().unwrap_or_default();
        if domains.len() != shape.stripes as usize {
            self.problems.push(format!(
                "{}: {} domains for {} stripes; accepted: one for each, as in `domains = \
                 [\"ns-a.example\", …]`: the name servers of a stripe are called ns-0, ns-1 and \
                 so on there",
                self.place("fleet.domains"),
                domains.len(),
                shape.stripes
            ));
        }
        self.check_domains(&domains);
        let state = spec.state.clone().unwrap_or_else(|| {
            self.problems.push(format!(
                "{}: missing; accepted: a file that this server alone writes, where it keeps \
                 which zone lives on which shard, as in `state = \"/var/lib/pharos/fleet\"`",
                self.place("fleet.state")
            ));
            PathBuf::new()
        });
        if spec.map.is_some() && identity.is_none() {
            self.problems.push(format!(
                "{}: a map of hosts needs the name of this one; accepted: `name = \"…\"` under \
                 [node]",
                self.place("fleet.map")
            ));
        }
        let hours = spec.grace_hours.unwrap_or(GRACE_HOURS);
        let hours = self.within("fleet.grace_hours", hours, 0..=24 * 365);
        Placing {
            shape,
            domains,
            state,
            map: spec.map.clone(),
            host: identity.unwrap_or("this host").to_owned(),
            grace: Duration::from_secs(3600 * hours),
        }
    }

    /// Every stripe needs a domain of its own: within another one its names
    /// would be the other's.
    fn check_domains(&mut self, domains: &[String]) {
        let plain = |domain: &String| domain.trim_end_matches('.').to_ascii_lowercase();
        for (at, domain) in domains.iter().enumerate() {
            let own = plain(domain);
            let is_above = |other: &&String| {
                let other = plain(other);
                own == other || own.ends_with(&format!(".{other}"))
            };
            let others = domains.iter().enumerate().filter(|(n, _)| *n != at);
            if let Some(other) = others.map(|(_, other)| other).find(is_above) {
                self.problems.push(format!(
                    "{}: `{domain}` lies in `{other}`; accepted: domains apart from each other",
                    self.place("fleet.domains")
                ));
            }
        }
    }

    /// The fleet's sockets are for all addresses of the host. Beside them on
    /// one port there may be single addresses, but not those of the pool.
    fn check_fleet(&mut self, fleet: Fleet, listen: &[Said<SocketAddr>], admin: SocketAddr) {
        let place = self.place("fleet");
        for family in fleet.pool.families() {
            let all = family.any(fleet.port);
            for Said { value, .. } in listen.iter().filter(|said| overlap(said.value, all)) {
                if value.ip().is_unspecified() || fleet.pool.server_of(value.ip()).is_some() {
                    self.problems.push(format!(
                        "{place}: {value}, where DNS listens for the host, takes addresses of the \
                         pool; accepted: another `port`, or single addresses outside of the pool"
                    ));
                }
            }
            if overlap(admin, all) {
                self.problems.push(format!(
                    "{place}: port {} is also where admin HTTP listens ({admin}); accepted: \
                     another port for one of them",
                    fleet.port
                ));
            }
        }
    }

    pub fn tcp(&mut self, spec: &FileTcp) -> TcpLimits {
        TcpLimits {
            connections_max: self.within(
                "tcp.connections_max",
                spec.connections_max.unwrap_or(2000),
                1..=1_000_000,
            ),
            per_source_max: self.within(
                "tcp.per_source_max",
                spec.per_source_max.unwrap_or(100),
                1..=1_000_000,
            ),
            idle: Duration::from_secs(self.within(
                "tcp.idle_secs",
                spec.idle_secs.unwrap_or(10),
                1..=6553,
            )),
            total: Duration::from_secs(self.within(
                "tcp.total_secs",
                spec.total_secs.unwrap_or(600),
                1..=86_400,
            )),
        }
    }

    pub fn address(&mut self, place: &str, text: &str) -> Option<SocketAddr> {
        text.parse()
            .inspect_err(|_| {
                self.problems.push(format!(
                    "{place}: `{text}` is no address; accepted: 192.0.2.1:53, [2001:db8::1]:53, \
                     0.0.0.0:53 or [::]:53"
                ));
            })
            .ok()
    }

    pub fn within<T: PartialOrd + std::fmt::Display + Copy>(
        &mut self,
        key: &str,
        value: T,
        range: RangeInclusive<T>,
    ) -> T {
        self.within_said(self.in_file(key, Some(value)), value, range)
    }

    pub fn within_said<T: PartialOrd + std::fmt::Display + Copy>(
        &mut self,
        said: Option<Said<T>>,
        default: T,
        range: RangeInclusive<T>,
    ) -> T {
        let Some(Said { place, value }) = said else { return default };
        if !range.contains(&value) {
            let (low, high) = (range.start(), range.end());
            self.problems
                .push(format!("{place}: {value} is out of range; accepted: {low} to {high}"));
        }
        value
    }

    fn text(&mut self, said: Option<Said<String>>) -> Option<String> {
        let Said { place, value } = said.filter(|said| !said.value.is_empty())?;
        if value.len() > 255 {
            let len = value.len();
            self.problems
                .push(format!("{place}: {len} octets are too long; accepted: at most 255"));
        }
        Some(value)
    }
}

/// Whether a datagram or a connection could be meant for both.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    // Port 0 is a free one, each time another.
    one.port() == other.port()
        && one.port() != 0
        && one.is_ipv4() == other.is_ipv4()
        && (is_all || one.ip() == other.ip())
}

/// A socket that only the user who runs the server can reach.
pub fn default_control() -> PathBuf {
    control_directory().join("control.sock")
}

/// Where control sockets lie unless told otherwise.
pub fn control_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) => PathBuf::from(directory).join("pharos"),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/run/pharos"),
        None => shared_base(),
    }
}

/// Our directory in a place where everybody may make directories.
fn shared_base() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    std::env::temp_dir().join(format!("pharos-{user}"))
}

/// Says whether the directory of a control socket can be trusted. Its default
/// name is known to all, so another user may have made it first.
pub fn check_control_directory(control: &Path) -> Result<(), String> {
    match control.parent() {
        Some(directory) if directory == shared_base() => check_private(directory),
        _ => Ok(()),
    }
}

/// Says whether `directory` is ours alone, if it is there.
fn check_private(directory: &Path) -> Result<(), String> {
    let Ok(metadata) = std::fs::symlink_metadata(directory) else { return Ok(()) };
    let user = rustix::process::geteuid().as_raw();
    let what = match metadata.mode() & 0o7777 {
        _ if !metadata.is_dir() => "is no directory".to_owned(),
        _ if metadata.uid() != user => format!("belongs to user {}", metadata.uid()),
        0o700 => return Ok(()),
        mode => format!("has mode {mode:04o}"),
    };
    Err(format!(
        "{} {what}; accepted: a directory of user {user} with mode 0700, or --control PATH",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, flags: Flags, expected: Result<&[&str], &[&str]>) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pharos.toml");
        std::fs::write(&file, text).unwrap();
        match (read(Some(&file), &flags), expected) {
            (Ok(config), Ok(parts)) => {
                let text = format!("{config:?}");
                parts.iter().for_each(|part| assert!(text.contains(part), "{part} in {text}"));
            }
            (Err(text), Err(parts)) => {
                parts.iter().for_each(|part| assert!(text.contains(part), "{part} in {text}"));
            }
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_that_is_wrong_with_a_drain_is_told_at_once() {
        let text = "[drain]\ntoken_file = '/t'\n[drain.drivers.'a b']\nkind = 'haproxy'\n\
                    socket = '0.0.0.0:9'\n";
        let expected = [
            "drain.runbooks is missing",
            "drain.token_file is given and nobody",
            "pharos.toml: drain.drivers.a b: \"a b\" is no name of a driver; accepted: ",
            "drain.drivers.a b.socket: 0.0.0.0:9 can be reached by others",
        ];
        check(text, Flags::default(), Err(&expected));
    }

    #[test]
    fn flags_win_over_the_file() {
        let text = "[authority]\nlisten = ['127.0.0.1:1', '[::1]:2']\nzones = '/a'\n";
        check(text, Flags::default(), Ok(&["127.0.0.1:1, [::1]:2", "\"/a\""]));
        let flags = Flags {
            listen: vec!["127.0.0.1:3".into()],
            zones: Some("/b".into()),
            ..Flags::default()
        };
        check(text, flags, Ok(&["[127.0.0.1:3]", "\"/b\""]));
    }

    #[test]
    fn all_problems_are_said_at_once() {
        let text = "[authority]\nlisten = ['nowhere']\nudp_payload = 100\n[tcp]\nidle_secs = 0\n";
        check(
            text,
            Flags::default(),
            Err(&[
                "`nowhere` is no address; accepted: ",
                "no zone directory",
                "udp_payload: 100 is out of range; accepted: 512 to 4096",
                "tcp.idle_secs: 0",
            ]),
        );
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_refused_with_their_place() {
        let check = |text, place| check(text, Flags::default(), Err(&[place]));
        check("[authority]\nlissten = []\n", "pharos.toml:2:1: unknown field `lissten`");
        check("[tcp]\n\nidle_secs = 'x'\n", "pharos.toml:3:13: ");
        check("[authority]\nzones = 'ä' 1\n", "pharos.toml:2:13: ");
    }

    #[test]
    fn problems_name_who_said_it() {
        let text = "[authority]\nzones = '/a'\nworkers = 0\nlisten = ['x']\n";
        check(text, Flags::default(), Err(&["pharos.toml: authority.listen: `x` is no address"]));
        check(text, Flags::default(), Err(&["pharos.toml: authority.workers: 0 is out of range"]));
        let flags = Flags { listen: vec!["y".into()], ..Flags::default() };
        let said = read(None, &flags).unwrap_err();
        assert!(said.contains("\n--listen: `y` is no address"), "{said}");
    }

    #[test]
    fn addresses_that_overlap_are_refused() {
        let check = |listen: &[&str], admin: Option<&str>, expected: Option<&str>| {
            let flags = Flags {
                listen: listen.iter().map(|text| text.to_string()).collect(),
                admin: admin.map(str::to_owned),
                zones: Some("/a".into()),
                ..Flags::default()
            };
            let problem = read(None, &flags).err();
            match expected {
                Some(part) => assert!(problem.as_ref().unwrap().contains(part), "{problem:?}"),
                None => assert_eq!(problem, None),
            }
        };
        check(&["127.0.0.1:5", "127.0.0.1:5"], None, Some("127.0.0.1:5 is listed twice"));
        check(&["0.0.0.0:5", "127.0.0.1:5"], None, Some("127.0.0.1:5 and 0.0.0.0:5 overlap"));
        check(&["[::1]:5", "[::]:5"], None, Some("[::]:5 and [::1]:5 overlap"));
        check(&["[::]:5", "0.0.0.0:5", "127.0.0.1:6"], None, None);
        check(&["127.0.0.1:0", "127.0.0.1:0"], Some("127.0.0.1:0"), None);
        check(&["127.0.0.1:5"], Some("0.0.0.0:5"), Some("--admin: 0.0.0.0:5 is also where DNS"));
        check(&[ADMIN], None, Some("--listen: 127.0.0.1:8053 is also where admin HTTP listens"));
    }

    /// What a fleet needs besides its addresses.
    const ONE_STRIPE: &str =
        "stripes = 1\nsize = 1\noverlap = 0\ndomains = ['ns.test']\nstate = '/state'\n";

    #[test]
    fn a_fleet_is_told_how_zones_are_placed() {
        let check = |fleet: &str, expected: Result<&[&str], &[&str]>| {
            let flags = Flags { zones: Some("/a".into()), ..Flags::default() };
            check(&format!("[fleet]\npool = '127.53.0.0/21'\n{fleet}"), flags, expected);
        };
        let good = "state = '/s'\ndomains = ['a.test', 'b.test', 'c.test', 'd.test']\n";
        check(good, Ok(&["stripes: 4, size: 4, overlap: 2", "grace: 604800s", "listen: []"]));
        check("", Err(&["fleet.domains: 0 domains for 4 stripes", "fleet.state: missing"]));
        let five = "fleet: shards of 5 workers that have no stripe in common need 5 groups";
        check(&format!("{good}size = 5"), Err(&[five]));
        check(&format!("{good}overlap = 4"), Err(&["nearest possible: an overlap of 3"]));
        check(&format!("{good}map = '/m'"), Err(&["fleet.map: a map of hosts needs the name"]));
        let twice = "state = '/s'\ndomains = ['a.test', 'b.test', 'c.test', 'x.A.test.']\n";
        check(twice, Err(&["`x.A.test.` lies in `a.test`"]));
        check(&format!("{good}stripes = 200"), Err(&["200 is out of range"]));
        check(&format!("{good}grace_hours = 9000"), Err(&["9000 is out of range"]));
    }

    #[test]
    fn a_fleet_has_a_pool_that_is_its_own() {
        let check = |fleet: &str, expected: Result<&[&str], &[&str]>| {
            let flags = Flags { zones: Some("/a".into()), ..Flags::default() };
            let rest = format!("{ONE_STRIPE}[authority]\nlisten = ['127.0.0.1:5300']\n");
            check(&format!("{fleet}\n{rest}"), flags, expected);
        };
        check("[fleet]\npool = '127.53.0.0/21'", Ok(&["servers: 2048", "port: 5300"]));
        check("[fleet]\npool6 = '::1/128'\nservers = 1\nport = 53", Ok(&["v4: None", "port: 53"]));
        check(
            "[fleet]\npool = '127.53.0.0/24'\npool6 = '::1/64'",
            Err(&[
                "pharos.toml: fleet.pool: `127.53.0.0/24` has 256 addresses for 2048",
                "pharos.toml: fleet.pool6: `::1/64` is an address inside of a network",
            ]),
        );
        check("[fleet]\nservers = 65537", Err(&["65537 is out of range", "fleet: no addresses"]));
    }

    #[test]
    fn a_fleet_shares_its_port_with_single_addresses_at_the_most() {
        let check = |listen: &str, pool: &str, expected: Result<&[&str], &[&str]>| {
            let flags = Flags { zones: Some("/a".into()), ..Flags::default() };
            let authority = format!("[authority]\nlisten = ['{listen}']\n");
            let fleet = format!("[fleet]\nservers = 1\npool = {pool}\n{ONE_STRIPE}");
            check(&format!("{authority}{fleet}"), flags, expected);
        };
        let taken = |listen: &str| format!("{listen}, where DNS listens for the host, takes");
        check("127.0.0.1:5300", "'127.53.0.0/21'", Ok(&["port: 5300"]));
        check("127.0.0.1:5300", "'127.0.0.1/32'", Err(&[&taken("127.0.0.1:5300")]));
        check("127.0.0.1:5300", "'127.0.0.1/32'\nport = 53", Ok(&["port: 53"]));
        check("0.0.0.0:5300", "'127.53.0.0/21'", Err(&[&taken("0.0.0.0:5300")]));
        check("[::]:5300", "'127.53.0.0/21'", Ok(&["port: 5300"]));
        let admin = "fleet: port 8053 is also where admin HTTP listens (127.0.0.1:8053)";
        check("127.0.0.1:5300", "'127.53.0.0/21'\nport = 8053", Err(&[admin]));
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("pharos");
        assert_eq!(check_private(&directory), Ok(()), "it is not there yet");
        std::fs::create_dir(&directory).unwrap();
        for (mode, is_private) in [(0o700, true), (0o755, false), (0o770, false), (0o1700, false)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&directory, permissions).unwrap();
            assert_eq!(check_private(&directory).is_ok(), is_private, "{mode:o}");
        }
        let link = home.path().join("link");
        symlink(home.path(), &link).unwrap();
        assert!(check_private(&link).unwrap_err().contains("is no directory"));
    }
}
