//! Cache nodes as their operators run them: a process each, told by a file,
//! looked after with `pharos cache`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{ADMIN_MARK, PHAROS, address_in, eventually, http, signal};
use crate::reply::{self, Reply};
use crate::upstream::{Upstream, address_of, bind_both};
use crate::zookeeper::{SESSION_MS, ZooKeeper};

/// What all nodes of a cluster are told.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// More lines of `[cache]`.
    pub cache: String,
    /// More tables.
    pub tables: String,
    coordination: Option<String>,
}

impl Recipe {
    pub fn of(upstream: &Upstream) -> Recipe {
        Recipe::default().with(&format!("upstreams = ['{}']", upstream.address))
    }

    /// With one more line of `[cache]`.
    pub fn with(mut self, line: &str) -> Recipe {
        self.cache.push_str(line);
        self.cache.push('\n');
        self
    }

    pub fn with_tables(mut self, tables: &str) -> Recipe {
        self.tables.push_str(tables);
        self
    }

    fn write(&self, home: &Path, name: &str, peer_port: u16) -> PathBuf {
        let place = |file: String| home.join(file).display().to_string();
        let mut text = format!(
            "[node]\nname = '{name}'\n[admin]\nlisten = '127.0.0.1:0'\ncontrol = '{}'\n",
            place(format!("{name}.sock"))
        );
        let mut peers = String::new();
        if let Some(coordination) = &self.coordination {
            let key = place("cluster.key".into());
            text += &format!("[cluster]\nkey_file = '{key}'\n[coordination]\n{coordination}\n");
            peers = format!("peer_listen = '127.0.0.1:{peer_port}'\n");
        }
        text += &format!("[cache]\nworkers = 2\nlisten = ['127.0.0.1:0']\n{peers}");
        text += &self.cache;
        text += &self.tables;
        let path = home.join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Some nodes, which all know each other.
pub struct Cluster {
    pub nodes: Vec<Node>,
    home: TempDir,
    recipe: Recipe,
}

impl Cluster {
    /// One node that has no others.
    pub fn alone(recipe: Recipe) -> Cluster {
        let home = tempfile::tempdir().unwrap();
        let node = Node::start(&recipe, home.path(), "n1", 0).unwrap_or_else(|log| panic!("{log}"));
        let cluster = Cluster { nodes: vec![node], home, recipe };
        cluster.agree(1);
        cluster
    }

    /// Nodes that learn of each other by gossip.
    pub fn gossiping(count: usize, recipe: Recipe) -> Cluster {
        let home = home_with_key();
        // The first is the one that the others ask, so its port must be known
        // before it is there. Somebody may be faster to take it.
        let (recipe, first) = (0..5)
            .find_map(|_| {
                let port = bind_both().0.local_addr().unwrap().port();
                let seeds = format!("servers = ['127.0.0.1:{port}']");
                let recipe = Recipe { coordination: Some(seeds), ..recipe.clone() };
                let first = Node::start(&recipe, home.path(), "n1", port).ok()?;
                Some((recipe, first))
            })
            .expect("the first node starts");
        Cluster { nodes: vec![first], home, recipe }.grown_to(count)
    }

    /// Nodes that learn of each other from a ZooKeeper.
    pub fn coordinated(count: usize, recipe: Recipe, service: &ZooKeeper) -> Cluster {
        let home = home_with_key();
        let coordination = format!(
            "kind = 'zookeeper'\nservers = ['{}']\nsession_timeout_ms = {SESSION_MS}",
            service.address()
        );
        let recipe = Recipe { coordination: Some(coordination), ..recipe };
        Cluster { nodes: Vec::new(), home, recipe }.grown_to(count)
    }

    fn grown_to(mut self, count: usize) -> Cluster {
        for number in self.nodes.len() + 1..=count {
            self.start(&format!("n{number}"));
        }
        self.agree(count);
        self
    }

    /// Starts one more node, or one that was before; nothing waits until the
    /// others know it.
    pub fn start(&mut self, name: &str) {
        self.start_with(name, "");
    }

    /// The same with one more line of `[cache]`.
    pub fn start_with(&mut self, name: &str, line: &str) {
        let recipe = self.recipe.clone().with(line);
        let node = Node::start(&recipe, self.home.path(), name, 0);
        self.nodes.push(node.unwrap_or_else(|log| panic!("{name} does not start: {log}")));
    }

    /// Starts a node that is told something else, not of this cluster.
    pub fn start_stranger(&self, name: &str, key: &Path) -> Node {
        let home = self.home.path().join("stranger");
        std::fs::create_dir(&home).unwrap();
        std::fs::copy(key, home.join("cluster.key")).unwrap();
        Node::start(&self.recipe, &home, name, 0).unwrap_or_else(|log| panic!("{log}"))
    }

    pub fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).expect("it runs")
    }

    /// Where clients ask.
    pub fn doors(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.dns).collect()
    }

    /// Ends a node without a word, as a crash would.
    pub fn kill(&mut self, name: &str) {
        let place = self.nodes.iter().position(|node| node.name == name).expect("it runs");
        drop(self.nodes.remove(place));
    }

    /// Waits until all nodes know the same so many members, and find the same
    /// owners among them.
    pub fn agree(&self, count: usize) {
        eventually(&format!("agreement on {count} members"), || {
            let known: Vec<Value> = self.nodes.iter().map(|node| node.tool(&["stats"])).collect();
            known.iter().all(|own| {
                // Before the first key everybody has one of their own.
                own["members"] == count
                    && own["key_epoch"].as_u64() > Some(0)
                    && own["view_digest"] == known[0]["view_digest"]
                    && own["routing"] == known[0]["routing"]
            })
        });
    }

    /// The owners of the address of `name`, in their order.
    pub fn owners(&self, name: &str) -> Vec<String> {
        let owners = self.nodes[0].tool(&["owner", name]);
        let names = owners["owners"].as_array().unwrap().iter();
        names.map(|owner| owner["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Nodes that do not own the address of `name`.
    pub fn outsiders(&self, name: &str) -> Vec<&Node> {
        let owners = self.owners(name);
        self.nodes.iter().filter(|node| !owners.contains(&node.name)).collect()
    }

    /// The sum of a counter over all nodes.
    pub fn event(&self, event: &str) -> u64 {
        self.nodes.iter().map(|node| node.event(event)).sum()
    }

    /// How often an owner, a former owner or a server upstream was silent for so
    /// long that another was asked. On a machine that is busy enough it happens,
    /// and then upstream may be asked once more.
    pub fn silences(&self) -> usize {
        let events = ["upstream_hedged", "peer_given_up", "former_given_up"];
        events.iter().map(|event| self.event(event)).sum::<u64>() as usize
    }

    /// Expects that upstream was asked so many questions, silences aside.
    #[track_caller]
    pub fn expect_asked(&self, asked: usize, expected: usize, what: &str) {
        let again = self.silences();
        assert!(
            (expected..=expected + again).contains(&asked),
            "{what}: {asked} questions where {expected} were expected, {again} silences"
        );
    }
}

fn home_with_key() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    make_key(&home.path().join("cluster.key"));
    home
}

pub fn make_key(path: &Path) {
    let made = Command::new(PHAROS).args(["cache", "keygen"]).arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// One node.
pub struct Node {
    pub name: String,
    pub child: Child,
    pub dns: SocketAddr,
    /// Where other nodes reach it; nowhere if it has none.
    pub peer: Option<SocketAddr>,
    admin: SocketAddr,
    home: PathBuf,
}

impl Node {
    /// Starts one; what it said if it did not.
    fn start(recipe: &Recipe, home: &Path, name: &str, peer_port: u16) -> Result<Node, String> {
        let config = recipe.write(home, name, peer_port);
        let log = home.join(format!("{name}.log"));
        let mut child = Command::new(PHAROS)
            .args(["serve", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        let log = std::fs::read_to_string(log).unwrap();
        if !ready.starts_with("ready:") {
            child.wait().unwrap();
            return Err(log);
        }
        Ok(Node {
            name: name.to_owned(),
            child,
            dns: address_in(&log, "cache on ").unwrap(),
            peer: address_in(&log, "peers on "),
            admin: address_in(&log, ADMIN_MARK).unwrap(),
            home: home.to_owned(),
        })
    }

    pub fn ask(&self, name: &str) -> Reply {
        reply::ask(self.dns, name)
    }

    /// Asks for a name that has an address, and checks it.
    pub fn expect(&self, name: &str) {
        check(name, &self.ask(name));
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(PHAROS)
            .arg("cache")
            .args(args)
            .arg("--json")
            .arg("--control")
            .arg(self.control())
            .output()
            .unwrap()
    }

    /// Its control socket.
    pub fn control(&self) -> PathBuf {
        self.home.join(format!("{}.sock", self.name))
    }

    /// What a tool of the operator prints.
    pub fn tool(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn members(&self) -> Value {
        self.tool(&["members"])
    }

    /// Names of entries in its part of the L2, with their kinds.
    pub fn entries(&self) -> Vec<(String, String)> {
        let output = self.run(&["dump"]);
        assert!(output.status.success(), "{output:?}");
        let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
        lines
            .map(|entry| entry.unwrap())
            .map(|own| (text(&own, "name"), text(&own, "kind")))
            .collect()
    }

    /// Whether its part of the L2 has a name.
    pub fn holds(&self, name: &str) -> bool {
        self.entries().iter().any(|(own, _)| own.trim_end_matches('.') == name)
    }

    /// The value of a metric, named with its labels.
    pub fn metric(&self, name: &str) -> u64 {
        let (_, page) = http(self.admin, "GET", "/metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
    }

    /// How often the cache did something.
    pub fn event(&self, event: &str) -> u64 {
        self.metric(&format!("pharos_cache_events_total{{event=\"{event}\"}}"))
    }

    /// How often something at the peer port was refused.
    pub fn refused(&self, reason: &str) -> u64 {
        self.metric(&format!("pharos_cache_peer_refused_total{{reason=\"{reason}\"}}"))
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks the reply to a question for a name that has an address.
pub fn check(name: &str, reply: &Reply) {
    assert_eq!(reply.code(), 0, "{name}: {reply:?}");
    assert_eq!(reply.addresses(), [address_of(&name.to_lowercase())], "{name}: {reply:?}");
}
