//! A ZooKeeper that fails in every way: questions are answered through all of
//! it, and nobody has to restart anything.

use std::time::Instant;

use crate::common::eventually;
use crate::nodes::{Cluster, Node, Recipe, check};
use crate::reply::ask_many;
use crate::upstream::Upstream;
use crate::zookeeper::{SESSION, ZooKeeper};

/// Asks known and unknown names of all nodes; all answers are right.
struct Questions {
    round: usize,
}

impl Questions {
    fn ask(&mut self, cluster: &Cluster) {
        self.round += 1;
        let known = (0..20).map(|number| format!("known{number}.test"));
        let new = (0..20).map(|number| format!("new{}-{number}.test", self.round));
        ask_many(&cluster.doors(), known.chain(new), 20, check);
    }
}

fn count_members(node: &Node) -> usize {
    node.members()["members"].as_array().unwrap().len()
}

fn are_reached(cluster: &Cluster, is_so: bool) -> bool {
    cluster.nodes.iter().all(|node| node.members()["coordination_reached"] == is_so)
}

#[test]
fn a_stalled_zookeeper_changes_nothing() {
    let Some(service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let cluster = Cluster::coordinated(4, Recipe::of(&upstream), &service);
    let mut questions = Questions { round: 0 };
    questions.ask(&cluster);
    let before = cluster.nodes[0].members();
    let started = Instant::now();
    service.freeze();
    // Until all have noticed, and for longer than their sessions last.
    eventually("the stall is noticed, and sessions are over", || {
        questions.ask(&cluster);
        assert!(cluster.nodes.iter().all(|node| count_members(node) == 4));
        started.elapsed() > SESSION * 3 && are_reached(&cluster, false)
    });
    service.thaw();
    eventually("the nodes come back to it", || {
        questions.ask(&cluster);
        assert!(cluster.nodes.iter().all(|node| count_members(node) == 4));
        are_reached(&cluster, true)
    });
    cluster.agree(4);
    assert_eq!(cluster.nodes[0].members()["key_epoch"], before["key_epoch"]);
}

#[test]
fn a_zookeeper_that_lost_everything_is_told_again() {
    let Some(mut service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let mut cluster = Cluster::coordinated(3, Recipe::of(&upstream), &service);
    let mut questions = Questions { round: 0 };
    questions.ask(&cluster);
    service.destroy();
    eventually("the loss is noticed", || {
        questions.ask(&cluster);
        are_reached(&cluster, false)
    });
    service.revive();
    eventually("the nodes come back to it", || {
        questions.ask(&cluster);
        assert!(cluster.nodes.iter().all(|node| count_members(node) == 3));
        are_reached(&cluster, true)
    });
    // Changes are seen again, by all.
    cluster.start("n4");
    cluster.agree(4);
    cluster.kill("n4");
    cluster.agree(3);
    questions.ask(&cluster);
}

#[test]
fn a_node_whose_session_expired_comes_back_by_itself() {
    let Some(service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let mut cluster = Cluster::coordinated(4, Recipe::of(&upstream), &service);
    let mut questions = Questions { round: 0 };
    questions.ask(&cluster);
    let stopped = cluster.nodes.pop().unwrap();
    stopped.signal("STOP");
    questions.ask(&cluster);
    cluster.agree(3);
    questions.ask(&cluster);
    stopped.signal("CONT");
    cluster.nodes.push(stopped);
    questions.ask(&cluster);
    cluster.agree(4);
    questions.ask(&cluster);
}

#[test]
fn a_node_that_is_killed_costs_no_wrong_answer_while_its_session_lasts() {
    let Some(service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let mut cluster = Cluster::coordinated(4, Recipe::of(&upstream), &service);
    // With it stands still who could tell that the node is gone.
    service.freeze();
    cluster.kill("n2");
    let mut seen = 0;
    let names = (0..400).map(|number| format!("name{number}.test"));
    ask_many(&cluster.doors(), names, 32, |name, reply| {
        check(name, reply);
        seen += 1;
    });
    assert_eq!(seen, 400);
    assert!(cluster.nodes.iter().all(|node| count_members(node) == 4));
    service.thaw();
    cluster.agree(3);
}

#[test]
fn a_node_may_restart_before_its_session_ends() {
    let Some(service) = ZooKeeper::start() else { return };
    let upstream = Upstream::start();
    let mut cluster = Cluster::coordinated(3, Recipe::of(&upstream), &service);
    let mut questions = Questions { round: 0 };
    for _ in 0..3 {
        let before = cluster.node("n1").members()["view"].as_u64();
        cluster.kill("n2");
        cluster.start("n2");
        // Its new self is known by its new address.
        let peer = cluster.node("n2").peer.unwrap().to_string();
        eventually("the new self is known", || {
            questions.ask(&cluster);
            cluster.nodes.iter().all(|node| {
                let members = node.members();
                members["members"].as_array().unwrap().iter().any(|own| own["peer"] == *peer)
            })
        });
        cluster.agree(3);
        assert!(cluster.node("n1").members()["view"].as_u64() > before);
    }
}
