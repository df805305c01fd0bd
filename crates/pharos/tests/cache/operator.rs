//! What operators do: flush, drain, bound, and get their files wrong.

use std::process::Command;

use crate::common::{PHAROS, eventually};
use crate::nodes::{Cluster, Recipe, check};
use crate::owners::expect_asked_once;
use crate::reply::ask_many;
use crate::upstream::Upstream;

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
    let counts = || all.map(|name| upstream.count(name));
    ask_all();
    assert_eq!(counts(), [1, 1, 1, 1]);

    let check_told = |told: &serde_json::Value| {
        assert_eq!(told["done"], true, "{told}");
        let nodes = told["nodes"].as_object().unwrap();
        assert_eq!(nodes.keys().collect::<Vec<_>>(), ["n1", "n2", "n3", "n4"]);
        let removed = nodes.values().map(|own| own["removed"].as_u64().unwrap());
        assert!(removed.sum::<u64>() >= 2, "owner and heir had it: {told}");
    };
    check_told(&cluster.nodes[2].tool(&["flush", "Shop.test"]));
    ask_all();
    assert_eq!(counts(), [2, 1, 1, 1], "the name alone");
    check_told(&cluster.nodes[1].tool(&["flush", "shop.test", "--subtree"]));
    ask_all();
    assert_eq!(counts(), [3, 2, 2, 1], "and all below it, but no other");
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
