//! What a server is told: a TOML file, flags, or both; flags win.
//!
//! The file's form ([`File`]) is not what the server works with ([`Config`]):
//! the file is checked as a whole, all problems at once, and then never looked
//! at again.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// Where a server listens unless told otherwise.
pub const LISTEN: &str = "127.0.0.1:5300";
/// Where the admin HTTP server listens unless told otherwise.
pub const ADMIN: &str = "127.0.0.1:8053";

/// Everything a server is told.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Vec<SocketAddr>,
    pub zones: PathBuf,
    pub admin: SocketAddr,
    pub control: PathBuf,
    pub workers: usize,
    pub strict: bool,
    pub udp_payload: u16,
    pub identity: Option<String>,
    pub version: Option<String>,
    pub tcp: TcpLimits,
    pub cookies: Cookies,
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileNode {
    name: Option<String>,
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
struct FileTcp {
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
struct FileAdmin {
    listen: Option<String>,
    control: Option<PathBuf>,
}

/// Reads `file`, lays `flags` over it and checks the whole.
pub fn read(file: Option<&Path>, flags: &Flags) -> Result<Config, String> {
    let spec = match file {
        None => File::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?
        }
    };
    let mut checks = Checks::default();
    let config = checks.convert(spec, flags);
    match checks.problems {
        problems if problems.is_empty() => Ok(config),
        problems => {
            let place = file.map_or("flags".to_owned(), |path| path.display().to_string());
            Err(problems.iter().fold(String::new(), |mut text, problem| {
                let _ = writeln!(text, "{place}: {problem}");
                text
            }))
        }
    }
}

/// Collects every problem of a configuration.
#[derive(Default)]
struct Checks {
    problems: Vec<String>,
}

impl Checks {
    fn convert(&mut self, spec: File, flags: &Flags) -> Config {
        let listen = match (flags.listen.is_empty(), spec.authority.listen) {
            (false, _) => flags.listen.clone(),
            (true, Some(list)) => list,
            (true, None) => vec![LISTEN.to_owned()],
        };
        if listen.is_empty() {
            self.problems
                .push("authority.listen is empty; accepted: at least one ADDR:PORT".into());
        }
        let listen = listen.iter().filter_map(|text| self.address("authority.listen", text));
        let listen: Vec<_> = listen.collect();
        let zones = flags.zones.clone().or(spec.authority.zones).unwrap_or_else(|| {
            self.problems.push(
                "no zone directory; accepted: --zones DIR, or `zones = \"DIR\"` under [authority]"
                    .into(),
            );
            PathBuf::new()
        });
        let admin = flags.admin.clone().or(spec.admin.listen).unwrap_or_else(|| ADMIN.to_owned());
        let admin = self.address("admin.listen", &admin);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            listen,
            zones,
            admin: admin.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))),
            control: flags.control.clone().or(spec.admin.control).unwrap_or_else(default_control),
            workers: self.within(
                "workers",
                flags.workers.or(spec.authority.workers).unwrap_or(cores),
                1..=1024,
            ),
            strict: flags.strict || spec.authority.strict.unwrap_or(false),
            udp_payload: self.within(
                "authority.udp_payload",
                spec.authority.udp_payload.unwrap_or(1232),
                512..=4096,
            ),
            identity: self.text("node.name", flags.identity.clone().or(spec.node.name)),
            version: self.text("authority.version", spec.authority.version),
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
        }
    }

    fn tcp(&mut self, spec: &FileTcp) -> TcpLimits {
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

    fn address(&mut self, key: &str, text: &str) -> Option<SocketAddr> {
        text.parse()
            .inspect_err(|_| {
                self.problems.push(format!(
                    "{key}: `{text}` is no address; accepted: 192.0.2.1:53, [2001:db8::1]:53, \
                     0.0.0.0:53 or [::]:53"
                ));
            })
            .ok()
    }

    fn within<T: PartialOrd + std::fmt::Display + Copy>(
        &mut self,
        key: &str,
        value: T,
        range: std::ops::RangeInclusive<T>,
    ) -> T {
        if !range.contains(&value) {
            let (low, high) = (range.start(), range.end());
            self.problems
                .push(format!("{key}: {value} is out of range; accepted: {low} to {high}"));
        }
        value
    }

    fn text(&mut self, key: &str, value: Option<String>) -> Option<String> {
        let value = value.filter(|text| !text.is_empty())?;
        if value.len() > 255 {
            self.problems
                .push(format!("{key}: {} octets are too long; accepted: at most 255", value.len()));
        }
        Some(value)
    }
}

/// A socket that only the user who runs the server can reach.
pub fn default_control() -> PathBuf {
    let base = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) => PathBuf::from(directory).join("pharos"),
        None => {
            use std::os::unix::fs::MetadataExt;
            let uid = std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid());
            match uid {
                0 => PathBuf::from("/run/pharos"),
                uid => std::env::temp_dir().join(format!("pharos-{uid}")),
            }
        }
    };
    base.join("control.sock")
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
    fn unknown_keys_are_refused_with_their_place() {
        check("[authority]\nlissten = []\n", Flags::default(), Err(&["lissten", "line 2"]));
    }
}
