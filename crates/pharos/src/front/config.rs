//! What a front is told: a TOML file, flags, or both; flags win.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use shuffle::Key;

use super::choice::{NODES_MAX, Sharding};
use super::node::NodeSpec;
use super::probe::{ProbeQuestion, Probing};
use crate::config::{self, Checks, FileAdmin, FileTcp, Said, TcpLimits};
use crate::coordination::{FileCoordination, ZooKeeperPlace};

/// Where the admin HTTP server listens unless told otherwise.
const ADMIN: &str = "127.0.0.1:8054";
/// What nodes are asked unless told otherwise.
const PROBE: &str = "id.server CH TXT";
const PROBE_MILLIS: u64 = 1000;
/// Addresses that a front listens on at the most.
const LISTEN_MAX: usize = 64;

/// Everything a front is told.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Vec<SocketAddr>,
    /// Beside a coordination those that are asked until it has listed some.
    pub nodes: Vec<NodeSpec>,
    /// Who lists the nodes, if anybody does.
    pub coordination: Option<ZooKeeperPlace>,
    pub admin: SocketAddr,
    /// What clients of admin HTTP may call this server, beside its address.
    pub admin_hosts: Vec<String>,
    pub control: PathBuf,
    pub control_group: Option<crate::admin::socket::Group>,
    pub workers: usize,
    pub sharding: Option<Sharding>,
    pub probing: Probing,
    pub tcp: TcpLimits,
}

/// What may be said on the command line; `None` leaves it to the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Configuration file (TOML); flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port to take questions on; may be given several times
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<String>,
    /// A node: its name, its address and port, and a page that says whether it
    /// is well; may be given several times
    #[arg(long = "node", value_name = "NAME=ADDR:PORT[,HEALTH_URL]")]
    pub nodes: Vec<String>,
    /// Address and port of the admin HTTP server (health, metrics, nodes)
    #[arg(long, value_name = "ADDR:PORT")]
    pub admin: Option<String>,
    /// Socket through which `pharos front drain` reaches this front
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Threads that pass on UDP; one per core unless told
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Give each client network its shuffle shard of N nodes
    #[arg(long, value_name = "N")]
    pub shard: Option<usize>,
    /// Never leave a shard, not even if all of its nodes are down
    #[arg(long)]
    pub shard_strict: bool,
    /// File with the key of the shards, 32 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub shard_key_file: Option<PathBuf>,
}

/// The file's form. Unknown keys are refused: a misspelt limit is no limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    front: FileFront,
    coordination: Option<FileCoordination>,
    tcp: FileTcp,
    admin: FileAdmin,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileFront {
    listen: Option<Vec<String>>,
    nodes: Option<Vec<String>>,
    workers: Option<usize>,
    shard: Option<usize>,
    shard_strict: Option<bool>,
    shard_key_file: Option<PathBuf>,
    probe: Option<String>,
    probe_millis: Option<u64>,
}

/// Reads the file, lays the flags over it and checks the whole.
pub fn read(flags: &Flags) -> Result<Config, String> {
    let file = flags.config.as_deref();
    let spec: File = config::read_file(file)?;
    let mut checks = Checks::of(file);
    let config = convert(&mut checks, spec, flags);
    checks.end(config)
}

/// The control socket unless told otherwise: beside that of `pharos serve`.
pub fn default_control() -> PathBuf {
    config::control_directory().join("front.sock")
}

fn convert(checks: &mut Checks, spec: File, flags: &Flags) -> Config {
    let File { front, coordination, tcp, admin } = spec;
    let is_told = coordination.is_some();
    let listen = listen(checks, flags, front.listen);
    let admin_said = checks.pick("--admin", flags.admin.clone(), "admin.listen", admin.listen);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = checks.pick("--workers", flags.workers, "front.workers", front.workers);
    let millis = front.probe_millis.unwrap_or(PROBE_MILLIS);
    let strict = flags.shard_strict || front.shard_strict.unwrap_or(false);
    let shard = checks.pick("--shard", flags.shard, "front.shard", front.shard);
    let key_file = flags.shard_key_file.clone().or(front.shard_key_file);
    Config {
        nodes: nodes(checks, flags, front.nodes, &listen, is_told),
        coordination: coordination.and_then(|said| place(checks, &said)),
        admin: checks.admin(admin_said, ADMIN, &listen),
        admin_hosts: checks.admin_hosts(admin.hosts),
        listen: listen.into_iter().map(|said| said.value).collect(),
        control: flags.control.clone().or(admin.control).unwrap_or_else(default_control),
        control_group: checks.control_group(admin.control_group),
        workers: checks.within_said(workers, cores, 1..=1024),
        sharding: sharding(checks, shard, strict, key_file.as_deref()),
        probing: Probing {
            interval: Duration::from_millis(checks.within(
                "front.probe_millis",
                millis,
                100..=60_000,
            )),
            question: probe_question(checks, front.probe),
        },
        tcp: checks.tcp(&tcp),
    }
}

fn listen(
    checks: &mut Checks,
    flags: &Flags,
    by_file: Option<Vec<String>>,
) -> Vec<Said<SocketAddr>> {
    let by_flags = Some(flags.listen.clone()).filter(|list| !list.is_empty());
    let Some(said) = checks.pick("--listen", by_flags, "front.listen", by_file) else {
        checks.problems.push(
            "no address to take questions on; accepted: --listen ADDR:PORT, or `listen = \
             [\"ADDR:PORT\"]` under [front]"
                .into(),
        );
        return Vec::new();
    };
    if said.value.len() > LISTEN_MAX {
        let (place, count) = (&said.place, said.value.len());
        checks
            .problems
            .push(format!("{place}: {count} addresses are too many; accepted: {LISTEN_MAX}"));
    }
    checks.addresses(said)
}

fn place(checks: &mut Checks, said: &FileCoordination) -> Option<ZooKeeperPlace> {
    let problems = match ZooKeeperPlace::parse(said) {
        Ok(place) => return Some(place),
        Err(problems) => problems,
    };
    let problems: Vec<String> =
        problems.into_iter().map(|problem| checks.place(&problem)).collect();
    checks.problems.extend(problems);
    None
}

/// The nodes by name; there must be some unless a coordination lists them.
fn nodes(
    checks: &mut Checks,
    flags: &Flags,
    by_file: Option<Vec<String>>,
    listen: &[Said<SocketAddr>],
    are_listed: bool,
) -> Vec<NodeSpec> {
    let by_flags = Some(flags.nodes.clone()).filter(|list| !list.is_empty());
    let said = checks.pick("--node", by_flags, "front.nodes", by_file);
    let Some(Said { place, value: texts }) = said.filter(|said| !said.value.is_empty()) else {
        if !are_listed {
            checks.problems.push(
                "no nodes; accepted: --node NAME=ADDR:PORT, or `nodes = [\"NAME=ADDR:PORT\"]` \
                 under [front], or a [coordination] that lists them"
                    .into(),
            );
        }
        return Vec::new();
    };
    if texts.len() > NODES_MAX {
        let count = texts.len();
        checks
            .problems
            .push(format!("{place}: {count} nodes are too many; accepted: at most {NODES_MAX}"));
    }
    let mut nodes: Vec<NodeSpec> = Vec::new();
    for text in texts {
        let node = match NodeSpec::parse(&text) {
            Ok(node) => node,
            Err(problem) => {
                checks.problems.push(format!("{place}: {problem}"));
                continue;
            }
        };
        let (name, address) = (&node.name, node.address);
        let twin = nodes.iter().find(|other| other.name == *name || other.address == address);
        if let Some(twin) = twin {
            checks.problems.push(format!(
                "{place}: {name}={address} and {}={} have the same name or address; accepted: each \
                 once",
                twin.name, twin.address
            ));
        }
        if listen.iter().any(|own| config::overlap(own.value, address) && is_own(own.value)) {
            checks.problems.push(format!(
                "{place}: {name}={address} is where this front listens; accepted: another address \
                 or port"
            ));
        }
        nodes.push(node);
    }
    nodes
}

/// Whether an address cannot be that of another host as well.
fn is_own(listen: SocketAddr) -> bool {
    !listen.ip().is_unspecified()
}

fn sharding(
    checks: &mut Checks,
    size: Option<Said<usize>>,
    strict: bool,
    key_file: Option<&Path>,
) -> Option<Sharding> {
    let key = match key_file.map(read_key).transpose() {
        Ok(key) => key.unwrap_or(Key::PUBLIC),
        Err(problem) => {
            checks.problems.push(problem);
            Key::PUBLIC
        }
    };
    if size.is_none() && (strict || key_file.is_some()) {
        checks.problems.push(
            "shards are described but not wanted; accepted: --shard N or `shard = N` under [front] \
             beside shard_strict and shard_key_file"
                .into(),
        );
    }
    let is_wanted = size.is_some();
    let size = checks.within_said(size, 1, 1..=shuffle::SIZE_MAX);
    is_wanted.then_some(Sharding { size, strict, key })
}

/// Reads a key. Neither it nor what is in its place is ever shown.
fn read_key(path: &Path) -> Result<Key, String> {
    let failed = |what: String| {
        format!("{}: {what}; accepted: one line of 32 hexadecimal digits", path.display())
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let text = text.trim();
    if text.len() != 2 * Key::LEN {
        return Err(failed(format!("{} characters", text.len())));
    }
    Key::from_hex(text).map_err(|error| failed(error.to_string()))
}

fn probe_question(checks: &mut Checks, by_file: Option<String>) -> ProbeQuestion {
    let said = checks.in_file("front.probe", by_file);
    let said = said.unwrap_or_else(|| Said { place: String::new(), value: PROBE.to_owned() });
    ProbeQuestion::parse(&said.value).unwrap_or_else(|problem| {
        checks.problems.push(format!("{}: {problem}", said.place));
        ProbeQuestion::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` and `flags`; the configuration, or the problems.
    fn read_text(text: &str, flags: Flags) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("front.toml");
        std::fs::write(&file, text).unwrap();
        read(&Flags { config: Some(file), ..flags })
    }

    fn check(text: &str, parts: &[&str]) {
        let problems = read_text(text, Flags::default()).unwrap_err();
        parts.iter().for_each(|part| assert!(problems.contains(part), "{part} in {problems}"));
    }

    const GOOD: &str = "[front]\nlisten = ['127.0.0.1:1']\nnodes = ['a=192.0.2.1:53']\n";

    #[test]
    fn flags_win_over_the_file() {
        let config = read_text(GOOD, Flags::default()).unwrap();
        assert_eq!(config.listen, ["127.0.0.1:1".parse().unwrap()]);
        assert_eq!(config.nodes[0].name, "a");
        assert!(config.sharding.is_none());
        let flags = Flags {
            listen: vec!["127.0.0.1:2".into()],
            nodes: vec!["b=192.0.2.2:53".into()],
            shard: Some(2),
            ..Flags::default()
        };
        let config = read_text(GOOD, flags).unwrap();
        assert_eq!(config.listen, ["127.0.0.1:2".parse().unwrap()]);
        assert_eq!((config.nodes.len(), config.nodes[0].name.as_str()), (1, "b"));
        assert_eq!(config.sharding.unwrap().size, 2);
    }

    #[test]
    fn all_problems_are_said_at_once() {
        check(
            "[front]\nlisten = ['nowhere']\nnodes = ['x', 'a=192.0.2.1:53', 'a=192.0.2.2:53']\n\
             shard = 17\nprobe = 'x'\nprobe_millis = 99\nshard_key_file = '/nonexistent'\n\
             workers = 0\n[tcp]\nidle_secs = 0\n[admin]\nlisten = 'there'\n",
            &[
                "`nowhere` is no address",
                "front.nodes: `x`: it has no name",
                "a=192.0.2.2:53 and a=192.0.2.1:53 have the same name or address",
                "front.shard: 17 is out of range; accepted: 1 to 16",
                "front.probe: `x`: three words are needed",
                "front.probe_millis: 99 is out of range; accepted: 100 to 60000",
                "/nonexistent: ",
                "front.workers: 0",
                "tcp.idle_secs: 0",
                "`there` is no address",
            ],
        );
    }

    #[test]
    fn what_is_missing_is_said_with_what_is_accepted() {
        check(
            "",
            &["no address to take questions on; accepted: --listen", "no nodes; accepted: --node"],
        );
        check("[front]\nshard_strict = true\n", &["shards are described but not wanted"]);
        check("[front]\nlissten = []\n", &["front.toml:2:1: unknown field `lissten`"]);
        let own = "[front]\nlisten = ['127.0.0.1:1']\nnodes = ['a=127.0.0.1:1']\n";
        check(own, &["a=127.0.0.1:1 is where this front listens"]);
    }

    #[test]
    fn a_coordination_may_list_the_nodes() {
        let zookeeper = "[coordination]\nkind = 'zookeeper'\nservers = ['zk.example:2181']\n";
        let alone = format!("[front]\nlisten = ['127.0.0.1:1']\n{zookeeper}");
        let config = read_text(&alone, Flags::default()).unwrap();
        assert_eq!((config.nodes.len(), &*config.coordination.unwrap().root), (0, "/pharos"));
        let config = read_text(&format!("{GOOD}{zookeeper}"), Flags::default()).unwrap();
        assert_eq!((config.nodes.len(), config.coordination.is_some()), (1, true));
        check(
            "[front]\nnodes = ['x']\n[coordination]\nservers = ['x', 'a:1']\nroot = 'x'\n\
             session_timeout_ms = 1\nrotate_hours = 1\n",
            &[
                "no address to take questions on",
                "front.nodes: `x`: it has no name",
                "coordination.kind: \"embedded\" cannot be followed from outside; accepted: \
                 \"zookeeper\"",
                "coordination.servers: \"x\" is no server",
                "coordination.root: \"x\" is no path",
                "coordination.session_timeout_ms: 1 is out of range",
                "coordination.rotate_hours: only members have hash keys",
            ],
        );
        check("[coordination]\nkind = 'etcd'\n", &["\"etcd\" cannot be followed"]);
        check("[coordination]\nserver = []\n", &["front.toml:2:1: unknown field `server`"]);
    }

    #[test]
    fn keys_of_shards_are_read_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let digits = "0123456789abcdef0123456789abcdef";
        std::fs::write(&file, format!("{digits}\n")).unwrap();
        assert_eq!(read_key(&file).unwrap(), Key::from_hex(digits).unwrap());
        let flags =
            Flags { shard: Some(1), shard_key_file: Some(file.clone()), ..Flags::default() };
        assert!(!format!("{:?}", read_text(GOOD, flags).unwrap()).contains("0123456789"));
        for bad in ["0123456789abcdef", "x123456789abcdef0123456789abcdef"] {
            std::fs::write(&file, bad).unwrap();
            let problem = read_key(&file).unwrap_err();
            assert!(problem.contains("accepted: one line of 32"), "{problem}");
            assert!(!problem.contains("123456789"), "{problem}");
        }
    }
}
