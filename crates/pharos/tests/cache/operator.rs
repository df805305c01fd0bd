//! What operators do: flush, drain, bound, and get their files wrong.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::Instant;

use wire::rtype;

use crate::common::{PATIENCE, PHAROS, eventually};
use crate::nodes::{Cluster, Node, Recipe, check};
use crate::owners::expect_asked_once;
use crate::reply::{Reply, ask_many, ask_over_tcp, message};
use crate::upstream::Upstream;

/// The code of a refusal.
const REFUSED: u16 = 5;

fn names(of: &str, count: usize) -> impl Iterator<Item = String> + Clone {
    (0..count).map(move |number| format!("{of}{number}.test"))
}

#[test]
fn a_flush_is_acknowledged_by_every_node_and_holds_at_once() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    let all = ["shop.test", "www.shop.test", "a.b.shop.test", "workshop.test"];
    let ask_all = || {
        for node in &cluster.nodes {
            all.iter().for_each(|name| node.expect(name));
        }
    };
    let expect_counts = |expected: [usize; 4], what: &str| {
        for (name, expected) in all.iter().zip(expected) {
            cluster.expect_asked(upstream.count(name), expected, &format!("{name}, {what}"));
        }
    };
    ask_all();
    expect_counts([1, 1, 1, 1], "first");

    let check_told = |told: &serde_json::Value| {
        assert_eq!(told["done"], true, "{told}");
        let nodes = told["nodes"].as_object().unwrap();
        assert_eq!(nodes.keys().collect::<Vec<_>>(), ["n1", "n2", "n3", "n4"]);
        let removed = nodes.values().map(|own| own["removed"].as_u64().unwrap());
        assert!(removed.sum::<u64>() >= 2, "owner and heir had it: {told}");
    };
    check_told(&cluster.nodes[2].tool(&["flush", "Shop.test"]));
    ask_all();
    expect_counts([2, 1, 1, 1], "the name alone flushed");
    check_told(&cluster.nodes[1].tool(&["flush", "shop.test", "--subtree"]));
    ask_all();
    expect_counts([3, 2, 2, 1], "and all below it, but no other");
}

#[test]
fn a_flush_that_a_node_does_not_acknowledge_says_so() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    cluster.node("n2").signal("STOP");
    let control = cluster.node("n1").control();
    let output = Command::new(PHAROS)
        .args(["cache", "flush", "www.test", "--control"])
        .arg(control)
        .output()
        .unwrap();
    cluster.node("n2").signal("CONT");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("n1: flushed") && said.contains("n2: NOT flushed: "), "{output:?}");
}

#[test]
fn a_drained_node_owns_nothing_and_leaves_what_it_knew() {
    let upstream = Upstream::start();
    let mut cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    ask_many(&cluster.doors(), names("kept", 200), 32, check);
    expect_asked_once(&cluster, &upstream, 200);
    cluster.node("n1").tool(&["drain", "n3"]);
    eventually("all know that it owns nothing", || {
        cluster.nodes.iter().all(|node| {
            let members = node.members();
            let mut all = members["members"].as_array().unwrap().iter();
            let drained = all.find(|own| own["name"] == "n3").unwrap();
            drained["standing"] == "draining" && drained["slots"] == 0
        })
    });
    cluster.agree(4);
    for name in names("kept", 20) {
        assert!(!cluster.owners(&name).contains(&"n3".to_owned()), "{name}");
    }
    // Those who own its share now have what it had.
    eventually("everything is handed over", || {
        let held: Vec<String> = ["n1", "n2", "n4"]
            .iter()
            .flat_map(|name| cluster.node(name).entries())
            .map(|(name, _)| name.trim_end_matches('.').to_owned())
            .collect();
        names("kept", 200).all(|name| held.iter().filter(|own| **own == name).count() >= 2)
    });
    cluster.kill("n3");
    ask_many(&cluster.doors(), names("kept", 200), 32, check);
    expect_asked_once(&cluster, &upstream, 200);
}

#[test]
fn a_drained_node_gets_its_share_back() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(3, Recipe::of(&upstream));
    let slots = |node: &str| {
        let members = cluster.node("n1").members();
        let all = members["members"].as_array().unwrap();
        all.iter().find(|own| own["name"] == node).unwrap()["slots"].as_u64().unwrap()
    };
    cluster.node("n1").tool(&["drain", "n2"]);
    eventually("it owns nothing", || slots("n2") == 0);
    let said = cluster.node("n3").tool(&["undrain", "n2"]);
    assert_eq!((&said["node"], &said["undo"]), (&"n2".into(), &true.into()));
    eventually("it owns its share", || slots("n2") > 3000);
    ask_many(&cluster.doors(), names("again", 50), 32, check);
    expect_asked_once(&cluster, &upstream, 50);
}

#[test]
fn the_last_node_cannot_be_drained() {
    let upstream = Upstream::start();
    let cluster = Cluster::alone(Recipe::of(&upstream));
    let output = Command::new(PHAROS)
        .args(["cache", "drain", "n1", "--control"])
        .arg(cluster.nodes[0].control())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the last node that serves"), "{said}");
}

#[test]
fn the_budget_of_upstream_questions_is_kept_by_the_whole_cluster() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream).with("upstream_rate = 20"));
    let started = std::time::Instant::now();
    let (mut answered, mut refused) = (0, 0);
    ask_many(&cluster.doors(), names("many", 150), 150, |name, reply| match reply.code() {
        0 => {
            check(name, reply);
            answered += 1;
        }
        code => {
            assert_eq!((code, reply.answers.len()), (2, 0));
            assert!(reply.error().is_some(), "{reply:?}");
            refused += 1;
        }
    });
    let (_, questions) = upstream.totals();
    // What a quiet time saved up, and what the time that it took allows, with
    // a turn of each cell to spare.
    let allowed = 20.0 * (0.25 + started.elapsed().as_secs_f64()) + 4.0;
    assert!(questions as f64 <= allowed, "{questions} questions, {allowed} allowed");
    assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
    // An heir may have tried what its owner could not.
    assert!(cluster.event("upstream_over_budget") >= refused);
}

/// Whether a node suspects another.
fn has_silent_peers(node: &Node) -> bool {
    let members = node.members();
    members["members"].as_array().unwrap().iter().any(|member| member["suspect"] == true)
}

#[test]
fn nodes_that_want_no_datagrams_send_none() {
    let upstream = Upstream::start();
    let recipe = Recipe::of(&upstream).with("peer_transport = 'grpc'");
    let cluster = Cluster::gossiping(3, recipe);
    let mut round = 0;
    // Connections are made as soon as members know each other, and nobody waits
    // for them longer than for an owner that is silent.
    eventually("nodes hear each other", || {
        let before = cluster.silences();
        round += 1;
        ask_many(&cluster.doors(), names(&format!("first{round}-"), 60), 32, check);
        cluster.silences() == before && cluster.nodes.iter().all(|node| !has_silent_peers(node))
    });
    let before = cluster.silences();
    ask_many(&cluster.doors(), names("streamed", 300), 32, check);
    // By other doors than the first time, so that others are asked.
    let doors: Vec<_> = cluster.doors().into_iter().rev().collect();
    ask_many(&doors, names("streamed", 300), 32, check);
    let asked: usize = names("streamed", 300).map(|name| upstream.count(&name)).sum();
    let again = cluster.silences() - before;
    assert!((300..=300 + again).contains(&asked), "{asked} questions, {again} silences");
    assert!(cluster.event("remote_hits") > 0 && cluster.event("puts_taken") > 0);
    for node in &cluster.nodes {
        let sent = |transport: &str| {
            node.metric(&format!("pharos_cache_peer_frames_total{{transport=\"{transport}\"}}"))
        };
        assert_eq!(sent("datagram"), 0, "{}", node.name);
        assert!(sent("connection") > 0, "{}", node.name);
    }
}

#[test]
fn a_bounded_ring_finds_the_same_owners_everywhere() {
    let upstream = Upstream::start();
    let recipe = Recipe::of(&upstream).with("placement = 'bounded-ring'");
    let cluster = Cluster::gossiping(4, recipe);
    let mut first = std::collections::BTreeSet::new();
    for name in names("ring", 20) {
        let owners = cluster.owners(&name);
        assert_eq!(owners.len(), 2);
        for node in &cluster.nodes {
            let said = node.tool(&["owner", &name]);
            let said: Vec<&str> = said["owners"]
                .as_array()
                .unwrap()
                .iter()
                .map(|owner| owner["name"].as_str().unwrap())
                .collect();
            assert_eq!(said, owners, "{name} at {}", node.name);
        }
        first.insert(owners[0].clone());
    }
    assert!(first.len() > 1, "all names have one owner: {first:?}");
    ask_many(&cluster.doors(), names("ring", 300), 32, check);
    let doors: Vec<_> = cluster.doors().into_iter().rev().collect();
    ask_many(&doors, names("ring", 300), 32, check);
    expect_asked_once(&cluster, &upstream, 300);
}

/// Asks for a name from an address, `count` times, one after the other; counts
/// the answers and the refusals.
fn ask_from(from: [u8; 4], node: &Node, count: usize) -> (usize, usize) {
    let socket = UdpSocket::bind((Ipv4Addr::from(from), 0)).unwrap();
    socket.connect(node.dns).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..count {
        socket.send(&message("often.test", rtype::A, Some(1232))).unwrap();
        let mut octets = [0; 512];
        let len = socket.recv(&mut octets).expect("a reply");
        let reply = Reply::read(&octets[..len]);
        match reply.code() {
            0 => answered += 1,
            code => {
                assert_eq!((code, reply.error(), reply.answers.len()), (REFUSED, Some(0), 0));
                refused += 1;
            }
        }
    }
    (answered, refused)
}

#[test]
fn a_client_that_asks_too_often_is_refused_and_no_other_pays_for_it() {
    const RATE: usize = 50;
    let upstream = Upstream::start();
    let cluster = Cluster::alone(Recipe::of(&upstream).with(&format!("client_rate = {RATE}")));
    let node = &cluster.nodes[0];
    let started = Instant::now();
    let (answered, refused) = ask_from([127, 0, 0, 1], node, 1000);
    // What a second saved up, and what the time that it took allows, at both
    // cells.
    let allowed = RATE as f64 * (1.0 + started.elapsed().as_secs_f64()) + 2.0;
    assert!(answered > 0 && answered as f64 <= allowed, "{answered} answered, {allowed} allowed");
    assert!(refused > 0);
    assert_eq!(cluster.event("too_often"), refused as u64);
    assert_eq!(ask_from([127, 0, 0, 2], node, 10), (10, 0));
    assert_eq!(cluster.event("too_often"), refused as u64);
    // Connections have no other rate.
    let mut over_tcp = 0;
    while over_tcp < 1000 {
        let reply = ask_over_tcp(node.dns, &message("often.test", rtype::A, Some(1232)));
        over_tcp += 1;
        if reply.code() == REFUSED {
            break;
        }
        assert_eq!(reply.code(), 0);
    }
    assert_eq!(cluster.event("too_often"), refused as u64 + 1, "after {over_tcp} connections");
}

#[test]
fn all_problems_of_a_file_are_said_at_once_with_their_places() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("bad.toml");
    std::fs::write(
        &config,
        "[cache]\nlisten = ['nowhere']\nupstreams = ['192.0.2.1', 'dns.example', 'local']\n\
         replicas = 99\nplacement = 'random'\npeer_transport = 'pigeon'\nttl_min = 60\n\
         ttl_max = 30\nallow = ['10.0.0.0/40']\nl1_entries = 0\nstale = 9999999\n\
         [[cache.forward]]\ndomain = 'a..b'\nupstreams = ['192.0.2.1']\n\
         [[cache.forward]]\ndomain = 'corp.test'\n\
         [coordination]\nkind = 'zookeeper'\nroot = 'relative'\n",
    )
    .unwrap();
    let output = Command::new(PHAROS).args(["serve", "--config"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let file = config.display().to_string();
    for key in [
        "cache.listen",
        "cache.upstreams: `dns.example`",
        "cache.upstreams: `local`",
        "cache.replicas",
        "cache.placement",
        "cache.peer_transport",
        "cache.ttl_min",
        "cache.allow",
        "cache.l1_entries",
        "cache.stale",
        "cache.forward `a..b`",
        "cache.forward `corp.test`",
        "coordination.servers",
        "coordination.root",
    ] {
        let line = said.lines().find(|line| line.contains(key));
        let line = line.unwrap_or_else(|| panic!("{key} in {said}"));
        assert!(line.contains(&file) && line.contains("accepted"), "{line}");
    }
}
