//! Who keeps what, and what happens when it is gone.

use crate::common::eventually;
use crate::nodes::{Cluster, Recipe, check};
use crate::reply::ask_many;
use crate::upstream::Upstream;

/// Names of the test that counts what is asked for each.
const UNIQUE_NAMES: usize = 100_000;

fn names(of: &str, count: usize) -> impl Iterator<Item = String> + Clone {
    (0..count).map(move |number| format!("{of}{number}.test"))
}

/// Waits until the heirs have what the owners told them.
pub fn settle(cluster: &Cluster) {
    eventually("heirs have what they were sent", || {
        cluster.event("puts_taken") == cluster.event("puts_sent")
    });
}

/// Expects that `count` names, new to the cluster, were asked for upstream, each
/// of them once. Once more only if its owner was given up, or the server.
pub fn expect_asked_once(cluster: &Cluster, upstream: &Upstream, count: usize) {
    let (names, questions) = upstream.totals();
    let [hedged, late, given_up] =
        ["upstream_hedged", "peer_silent", "peer_given_up"].map(|event| cluster.event(event));
    println!(
        "{questions} questions for {names} names; {hedged} hedged upstream, {late} late answers \
         of owners, {given_up} owners given up"
    );
    assert_eq!(names, count);
    let again = (hedged + given_up) as usize;
    assert!((count..=count + again).contains(&questions), "{questions} questions for {count}");
}

/// Expects that what a dead node owned was answered by its heirs.
///
/// Without heirs, upstream is asked for every one of these names again. With
/// them it is asked for none, unless a busy machine keeps an heir from its core
/// for so long that it seems dead too: so for most of them.
fn expect_heirs_answered(upstream: &Upstream, names: &[String]) {
    assert!(!names.is_empty());
    let again = names.iter().filter(|name| upstream.count(name) > 1).count();
    assert!(again * 2 < names.len(), "{again} of {} were asked for again", names.len());
}

#[test]
fn concurrent_identical_questions_become_one_upstream() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    let mut seen = 0;
    let names = (0..200).map(|_| "delay150-hot.test".to_owned());
    ask_many(&cluster.doors(), names, 200, |name, reply| {
        check(name, reply);
        seen += 1;
    });
    assert_eq!(seen, 200);
    expect_asked_once(&cluster, &upstream, 1);
    assert!(cluster.event("coalesced") >= 190, "at most the first of each cell is not");
}

#[test]
fn unique_questions_are_asked_upstream_once_each() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    let mut seen = 0;
    ask_many(&cluster.doors(), names("unique", UNIQUE_NAMES), 64, |name, reply| {
        check(name, reply);
        seen += 1;
    });
    assert_eq!(seen, UNIQUE_NAMES);
    expect_asked_once(&cluster, &upstream, UNIQUE_NAMES);
}

#[test]
fn heirs_get_new_entries_at_once() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    for name in names("heir", 8) {
        let owners = cluster.owners(&name);
        assert_eq!(owners.len(), 2);
        cluster.outsiders(&name)[0].expect(&name);
        // Nobody asks again.
        for owner in &owners {
            let node = cluster.node(owner);
            eventually("the entry is there", || node.holds(&name));
        }
        for node in cluster.outsiders(&name) {
            assert!(!node.holds(&name), "{} is none of {owners:?}", node.name);
        }
    }
    expect_asked_once(&cluster, &upstream, 8);
}

#[test]
fn the_next_owner_answers_for_one_that_is_gone_without_asking_upstream() {
    let upstream = Upstream::start();
    let mut cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    for name in names("next", 40) {
        cluster.outsiders(&name)[0].expect(&name);
    }
    settle(&cluster);
    let owned: Vec<String> =
        names("next", 40).filter(|name| cluster.owners(name)[0] == "n2").collect();
    assert!(!owned.is_empty());
    // Those who never asked for them have them in no L1.
    let askers: Vec<(String, String)> = owned
        .iter()
        .map(|name| {
            let asker = cluster.outsiders(name).pop().unwrap();
            (name.clone(), asker.name.clone())
        })
        .collect();
    cluster.kill("n2");
    for (name, asker) in &askers {
        cluster.node(asker).expect(name);
    }
    expect_heirs_answered(&upstream, &owned);
}

#[test]
fn a_killed_node_costs_no_wrong_answer() {
    let upstream = Upstream::start();
    let mut cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    let known = names("known", 200);
    ask_many(&cluster.doors(), known.clone(), 32, check);
    settle(&cluster);
    let owned_by_n3: Vec<String> =
        known.clone().filter(|name| cluster.owners(name)[0] == "n3").collect();
    cluster.kill("n3");
    // Right after it, while the others still count on it.
    let mut seen = 0;
    ask_many(&cluster.doors(), known.clone().chain(names("new", 200)), 32, |name, reply| {
        check(name, reply);
        seen += 1;
    });
    assert_eq!(seen, 400);
    cluster.agree(3);
    expect_heirs_answered(&upstream, &owned_by_n3);
}

#[test]
fn a_node_that_comes_back_is_a_member_again() {
    let upstream = Upstream::start();
    let mut cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    for _ in 0..2 {
        cluster.kill("n2");
        cluster.agree(3);
        cluster.start("n2");
        cluster.agree(4);
    }
    // It owns its share, and all know that it does.
    let members = cluster.node("n1").members();
    let own = members["members"].as_array().unwrap().iter().find(|own| own["name"] == "n2");
    assert!(own.unwrap()["slots"].as_u64().unwrap() > 3000, "{members}");
    ask_many(&cluster.doors(), names("back", 100), 32, check);
    let owned = names("back", 100).filter(|name| cluster.owners(name)[0] == "n2").count();
    let asked = cluster.node("n2").event("upstream_asked");
    assert!(owned > 0 && asked >= owned as u64, "{owned} owned, {asked} asked");
}

#[test]
fn a_node_that_joins_is_handed_what_it_owns() {
    let upstream = Upstream::start();
    let mut cluster = Cluster::gossiping(3, Recipe::of(&upstream));
    ask_many(&cluster.doors(), names("warm", 300), 32, check);
    settle(&cluster);
    cluster.start("n4");
    cluster.agree(4);
    let owned: Vec<String> =
        names("warm", 300).filter(|name| cluster.owners(name).contains(&"n4".to_owned())).collect();
    assert!(owned.len() > 50, "{}", owned.len());
    // While it is handed over, and after.
    ask_many(&[cluster.node("n4").dns], names("warm", 300), 32, check);
    expect_asked_once(&cluster, &upstream, 300);
    eventually("everything is handed over", || {
        let entries = cluster.node("n4").entries();
        let has = |name: &String| entries.iter().any(|(own, _)| own.trim_end_matches('.') == name);
        owned.iter().all(has)
    });
}
