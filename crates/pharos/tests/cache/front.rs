//! A front before real nodes: it follows the members of their cluster, and
//! whatever becomes of them, no client has to ask twice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use wire::rtype;

use crate::common::{PHAROS, Server, eventually, write_zones};
use crate::nodes::{Cluster, Recipe, check};
use crate::reply::{ask_many, ask_over_tcp, message};
use crate::upstream::Upstream;
use crate::zookeeper::{SESSION, SESSION_MS, ZooKeeper};

/// Names that are asked for in one go.
const NAMES: usize = 200;
/// Questions that wait at the same time.
const AT_A_TIME: usize = 32;

/// A front, and questions that no test asked before.
struct Front {
    server: Server,
    round: usize,
}

impl Front {
    /// Starts one that knows its nodes from a ZooKeeper alone.
    fn start(service: &ZooKeeper) -> Front {
        let home = write_zones(&[]);
        let config = home.path().join("front.toml");
        let text = format!(
            "[front]\nlisten = ['127.0.0.1:0']\nworkers = 2\nprobe_millis = 200\n\
             [coordination]\nkind = 'zookeeper'\nservers = ['{}']\n\
             session_timeout_ms = {SESSION_MS}\n\
             [admin]\nlisten = '127.0.0.1:0'\ncontrol = '{}'\n",
            service.address(),
            home.path().join("control.sock").display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(PHAROS);
        command
            .args(["front", "--config"])
            .arg(&config)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(home.path().join("log")).unwrap());
        let server = Server::wait_for(command, home).unwrap_or_else(|output| panic!("{output:?}"));
        Front { server, round: 0 }
    }

    fn status(&self) -> Value {
        let output = self.server.pharos(&["front", "status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A value of each node, by its name.
    fn of_nodes<T>(&self, value: impl Fn(&Value) -> T) -> BTreeMap<String, T> {
        let status = self.status();
        let nodes = status["nodes"].as_array().unwrap().iter();
        nodes.map(|node| (node["name"].as_str().unwrap().to_owned(), value(node))).collect()
    }

    fn names(&self) -> Vec<String> {
        self.of_nodes(|_| ()).into_keys().collect()
    }

    fn is_draining(&self, node: &str) -> bool {
        self.of_nodes(|node| node["draining"] == true)[node]
    }

    fn is_reached(&self) -> bool {
        self.status()["coordination_reached"] == true
    }

    /// Questions that went to a node, and connections.
    fn asked(&self, node: &str) -> (u64, u64) {
        let metric = |name: &str| self.metric(&format!("{name}{{node=\"{node}\"}}"));
        (metric("pharos_front_questions_total"), metric("pharos_front_node_connections_total"))
    }

    fn metric(&self, name: &str) -> u64 {
        let (_, page) = self.server.http("/metrics");
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
    }

    /// Asks for new names over UDP and over TCP, once each; all are answered.
    fn ask(&mut self) {
        self.round += 1;
        let round = self.round;
        let names = (0..NAMES).map(|number| format!("round{round}-{number}.test"));
        let mut seen = 0;
        ask_many(&[self.server.dns], names, AT_A_TIME, |name, reply| {
            check(name, reply);
            seen += 1;
        });
        assert_eq!(seen, NAMES);
        for number in 0..12 {
            let name = format!("round{round}-tcp{number}.test");
            check(&name, &ask_over_tcp(self.server.dns, &message(&name, rtype::A, None)));
        }
    }

    /// Expects that no question went without an answer.
    fn expect_nothing_lost(&self) {
        for reason in ["expired", "overwritten", "no_node", "node_gone", "unsent"] {
            let name = format!("pharos_front_dropped_total{{reason=\"{reason}\"}}");
            assert_eq!(self.metric(&name), 0, "{reason}");
        }
        assert_eq!(self.metric("pharos_front_tcp_untaken_total"), 0);
    }
}

#[test]
fn a_front_follows_the_members_of_a_cluster() {
    let Some(service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let mut cluster = Cluster::coordinated(3, Recipe::of(&upstream), &service);
    let mut front = Front::start(&service);
    assert!(front.server.ready.starts_with("ready: 3 nodes"), "{}", front.server.ready);
    let addresses = front.of_nodes(|node| node["address"].as_str().unwrap().parse().unwrap());
    let doors: Vec<SocketAddr> = addresses.into_values().collect();
    assert_eq!(doors, cluster.doors());
    // By chance: two nodes are drawn for each question, and for each connection.
    eventually("every node is asked", || {
        front.ask();
        ["n1", "n2", "n3"].into_iter().all(|name| {
            let (questions, connections) = front.asked(name);
            questions > 20 && connections > 0
        })
    });
    // It looks, and is not counted.
    cluster.agree(3);

    // One that is killed still counts as a member while its session lasts.
    cluster.kill("n2");
    front.ask();
    eventually("the front forgets who is gone", || front.names() == ["n1", "n3"]);
    front.ask();

    cluster.start("n4");
    eventually("the front knows who is new", || front.names() == ["n1", "n3", "n4"]);
    front.ask();
    assert!(front.asked("n4").0 > 0);
    front.expect_nothing_lost();
}

#[test]
fn a_node_that_is_drained_in_its_cluster_gets_nothing_new_from_a_front() {
    let Some(service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let mut cluster = Cluster::coordinated(3, Recipe::of(&upstream), &service);
    let mut front = Front::start(&service);
    front.ask();
    cluster.node("n1").tool(&["drain", "n3"]);
    eventually("the front knows of the drain", || front.is_draining("n3"));
    let (by_front, by_node) = (front.asked("n3"), cluster.node("n3").event("questions"));
    front.ask();
    assert_eq!(front.asked("n3"), by_front);
    assert_eq!(cluster.node("n3").event("questions"), by_node);

    // Who drained it can undo it, and nobody else.
    let refused = front.server.pharos(&["front", "undrain", "n3"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("`pharos cache undrain n3`"), "{said}");
    cluster.node("n1").tool(&["undrain", "n3"]);
    eventually("the front knows of the end of it", || !front.is_draining("n3"));
    front.ask();
    assert!(front.asked("n3").0 > by_front.0);

    // One that stops says so first, so that nothing has to be asked again.
    cluster.node("n2").signal("TERM");
    eventually("the front lets it go", || {
        front.ask();
        front.names() == ["n1", "n3"]
    });
    cluster.kill("n2");
    front.expect_nothing_lost();
}

#[test]
fn a_front_goes_on_without_zookeeper() {
    let Some(service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let mut cluster = Cluster::coordinated(3, Recipe::of(&upstream), &service);
    let mut front = Front::start(&service);
    front.ask();
    let started = Instant::now();
    service.freeze();
    eventually("the stall is noticed, and sessions are over", || {
        front.ask();
        assert_eq!(front.names(), ["n1", "n2", "n3"]);
        started.elapsed() > SESSION * 3 && !front.is_reached()
    });
    assert_eq!(front.metric("pharos_front_coordination_up"), 0);
    // Nobody tells that this one is gone; it is noticed all the same.
    cluster.kill("n2");
    front.ask();
    eventually("it is down", || front.of_nodes(|node| node["standing"] == "down")["n2"]);
    front.ask();
    service.thaw();
    eventually("the front comes back to it", || {
        front.ask();
        front.is_reached()
    });
    cluster.start("n4");
    eventually("the front knows who is new", || front.names().contains(&"n4".to_owned()));
    front.ask();
    front.expect_nothing_lost();
}
