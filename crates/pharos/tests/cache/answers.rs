//! What clients are told.

use std::net::Ipv4Addr;

use wire::rtype;

use crate::common::{eventually, exchange_udp};
use crate::nodes::{Cluster, Recipe, check};
use crate::reply::{Reply, ask, ask_for, ask_many, ask_over_tcp, message};
use crate::upstream::{Asked, TEXT_LEN, Upstream, address_of, address6_of};

const NO_ERROR: u16 = 0;
const SERVFAIL: u16 = 2;
const NXDOMAIN: u16 = 3;
const MX: u16 = 15;
/// Extended errors of RFC 8914.
const STALE_ANSWER: u16 = 3;
const CACHED_ERROR: u16 = 13;
const NO_REACHABLE_AUTHORITY: u16 = 22;

/// A cluster's nodes see an answer in four ways: as its owner, as its heir, and
/// as two that ask. Each must say the same.
fn everywhere(cluster: &Cluster, name: &str, qtype: u16, expect: impl Fn(&Reply)) {
    for node in &cluster.nodes {
        expect(&ask_for(node.dns, name, qtype));
    }
}

#[test]
fn absence_is_said_as_what_it_is_and_remembered() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(4, Recipe::of(&upstream));
    everywhere(&cluster, "nx-a.test", rtype::A, |reply| {
        assert_eq!((reply.code(), reply.answers.len()), (NXDOMAIN, 0));
        assert_eq!(reply.authority[0].rtype, rtype::SOA, "it says how long it holds");
    });
    everywhere(&cluster, "nodata-a.test", rtype::A, |reply| {
        assert_eq!((reply.code(), reply.answers.len()), (NO_ERROR, 0));
        assert_eq!(reply.authority[0].rtype, rtype::SOA);
    });
    // Of a name that has other types.
    everywhere(&cluster, "mail.test", MX, |reply| {
        assert_eq!((reply.code(), reply.answers.len()), (NO_ERROR, 0));
        assert_eq!(reply.authority[0].rtype, rtype::SOA);
    });
    for name in ["nx-a.test", "nodata-a.test", "mail.test"] {
        cluster.expect_asked(upstream.count(name), 1, name);
    }
}

#[test]
fn failures_stay_failures_and_are_remembered() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream).with("failure_ttl = 300"));
    for node in &cluster.nodes {
        for _ in 0..2 {
            let reply = node.ask("servfail-a.test");
            assert_eq!((reply.code(), reply.answers.len()), (SERVFAIL, 0));
            assert!(reply.error().is_some(), "it says why: {reply:?}");
        }
    }
    cluster.expect_asked(upstream.count("servfail-a.test"), 1, "a failure");
    let reply = cluster.nodes[0].ask("servfail-a.test");
    assert!([Some(CACHED_ERROR), Some(NO_REACHABLE_AUTHORITY)].contains(&reply.error()));
}

#[test]
fn silence_upstream_becomes_servfail_and_is_remembered() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream).with("failure_ttl = 300"));
    let mut seen = 0;
    let names = ["timeout-a.test", "timeout-b.test"].map(String::from);
    ask_many(&cluster.doors(), names, 2, |_, reply| {
        assert_eq!((reply.code(), reply.answers.len()), (SERVFAIL, 0));
        assert!(reply.error().is_some(), "it says why: {reply:?}");
        seen += 1;
    });
    assert_eq!(seen, 2);
    let asked = upstream.count("timeout-a.test");
    for node in &cluster.nodes {
        let reply = node.ask("timeout-a.test");
        assert_eq!(reply.code(), SERVFAIL);
        // From its own memory, or from that of the owner.
        assert!([Some(CACHED_ERROR), Some(NO_REACHABLE_AUTHORITY)].contains(&reply.error()));
    }
    assert_eq!(upstream.count("timeout-a.test"), asked);
}

#[test]
fn every_type_has_its_own_answer() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    for node in &cluster.nodes {
        node.expect("www.test");
        let reply = ask_for(node.dns, "www.test", rtype::AAAA);
        assert_eq!(reply.types(), [rtype::AAAA]);
        assert_eq!(reply.answers[0].data, address6_of("www.test").octets());
    }
    cluster.expect_asked(upstream.count("www.test"), 2, "two types");
}

#[test]
fn a_chain_of_aliases_expires_as_one() {
    let upstream = Upstream::start();
    let cluster = Cluster::alone(Recipe::of(&upstream).with("stale = false"));
    let whole = [rtype::CNAME, rtype::CNAME, rtype::A];
    // Asked over and over while its parts live on and on: never a half of it.
    eventually("the chain is asked for anew", || {
        let reply = cluster.nodes[0].ask("chain-a.test");
        assert_eq!((reply.code(), reply.types()), (NO_ERROR, whole.to_vec()));
        assert_eq!(reply.addresses(), [address_of("chain-a.test")]);
        upstream.count("chain-a.test") > 1
    });
}

#[test]
fn a_cut_answer_is_fetched_whole_over_tcp() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    for node in &cluster.nodes {
        let reply = node.ask("tc-a.test");
        assert_eq!((reply.is_cut(), reply.addresses().len()), (false, 3), "{reply:?}");
    }
    let Asked { over_udp, over_tcp } = upstream.asked("tc-a.test");
    cluster.expect_asked(over_udp, 1, "over UDP");
    cluster.expect_asked(over_tcp, 1, "over TCP");
    let cut = cluster.event("upstream_truncated") as usize;
    assert!((1..=over_udp).contains(&cut), "{cut} were cut");
}

#[test]
fn large_answers_are_cut_for_datagrams_and_whole_over_connections() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    for node in &cluster.nodes {
        let cut = ask_for(node.dns, "text.test", rtype::TXT);
        assert_eq!((cut.code(), cut.is_cut()), (NO_ERROR, true));
        assert!(cut.len <= 1232, "{cut:?}");
        for _ in 0..2 {
            let whole = ask_over_tcp(node.dns, &message("text.test", rtype::TXT, Some(1232)));
            assert_eq!((whole.code(), whole.is_cut()), (NO_ERROR, false));
            assert_eq!(whole.answers[0].data.len(), TEXT_LEN);
        }
    }
    cluster.expect_asked(upstream.count("text.test"), 1, "what is cut for one is whole for all");
}

#[test]
fn clients_speak_edns_or_do_not() {
    let upstream = Upstream::start();
    let cluster = Cluster::alone(Recipe::of(&upstream));
    let dns = cluster.nodes[0].dns;
    for _ in 0..2 {
        let with = ask(dns, "edns.test");
        check("edns.test", &with);
        assert!(with.edns.is_some_and(|edns| edns.payload >= 512));
        let without = Reply::read(&exchange_udp(dns, &message("edns.test", rtype::A, None)));
        check("edns.test", &without);
        assert_eq!(without.edns, None);
    }
    // Without it a datagram has 512 octets.
    let cut = Reply::read(&exchange_udp(dns, &message("text.test", rtype::TXT, None)));
    assert!(cut.is_cut() && cut.len <= 512, "{cut:?}");
}

#[test]
fn names_are_the_same_in_any_case() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    for name in ["www.Case.test", "WWW.CASE.TEST", "www.case.test"] {
        for node in &cluster.nodes {
            let asked = message(name, rtype::A, None);
            let answer = exchange_udp(node.dns, &asked);
            check(name, &Reply::read(&answer));
            assert_eq!(answer[12..asked.len()], asked[12..], "the client's own letters");
        }
    }
    cluster.expect_asked(upstream.count("www.case.test"), 1, "one name");
}

#[test]
fn data_past_its_time_is_served_and_marked_while_upstream_is_silent() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    let name = "ttl1-old.test";
    cluster.nodes.iter().for_each(|node| node.expect(name));
    upstream.mute(true);
    for node in &cluster.nodes {
        eventually("data past its time", || {
            let reply = node.ask(name);
            check(name, &reply);
            match reply.error() {
                Some(STALE_ANSWER) => {
                    assert!(reply.answers[0].ttl_secs <= 30, "RFC 8767, 4: {reply:?}");
                    true
                }
                other => {
                    assert_eq!((other, reply.answers[0].ttl_secs <= 1), (None, true));
                    false
                }
            }
        });
        assert!(node.event("stale") > 0);
    }
    upstream.mute(false);
    eventually("fresh data again", || {
        let reply = cluster.nodes[0].ask(name);
        check(name, &reply);
        reply.error().is_none()
    });
}

#[test]
fn data_past_its_time_is_not_served_where_that_is_not_wanted() {
    let upstream = Upstream::start();
    let cluster = Cluster::alone(Recipe::of(&upstream).with("stale = false"));
    let node = &cluster.nodes[0];
    node.expect("ttl1-old.test");
    upstream.mute(true);
    eventually("the end of its time", || {
        let reply = node.ask("ttl1-old.test");
        match reply.code() {
            SERVFAIL => {
                assert_eq!(reply.error(), Some(NO_REACHABLE_AUTHORITY));
                true
            }
            _ => {
                check("ttl1-old.test", &reply);
                false
            }
        }
    });
    assert_eq!(node.event("stale"), 0);
}

#[test]
fn forwarded_domains_go_to_their_own_servers() {
    let (upstream, inside) = (Upstream::start(), Upstream::start());
    let forward =
        format!("[[cache.forward]]\ndomain = 'corp.test'\nupstreams = ['{}']\n", inside.address);
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream).with_tables(&forward));
    for node in &cluster.nodes {
        for name in ["www.test", "corp.test", "a.b.CORP.test", "xcorp.test"] {
            node.expect(name);
        }
    }
    assert_eq!(upstream.totals(), (2, 2));
    assert_eq!((inside.count("corp.test"), inside.count("a.b.corp.test")), (1, 1));
}

#[test]
fn zones_of_the_same_process_are_upstream_without_a_socket() {
    let home = crate::common::write_zones(&[(
        "own.test.zone",
        &crate::common::zone("own.test.", 1, "192.0.2.9"),
    )]);
    let zones = home.path().join("zones");
    let tables = format!("[authority]\nlisten = ['127.0.0.1:0']\nzones = '{}'\n", zones.display());
    let recipe = Recipe::default().with("upstreams = ['local']").with_tables(&tables);
    let cluster = Cluster::alone(recipe);
    let node = &cluster.nodes[0];
    for _ in 0..2 {
        let reply = node.ask("www.own.test");
        assert_eq!(
            (reply.code(), reply.addresses()),
            (NO_ERROR, vec![Ipv4Addr::new(192, 0, 2, 9)])
        );
        assert_eq!(node.ask("no.own.test").code(), NXDOMAIN);
    }
    assert_eq!((node.event("upstream_asked"), node.event("upstream_streams")), (0, 2));
}

#[test]
fn aliases_are_followed_out_of_forwarded_domains_and_own_zones() {
    let (upstream, inside) = (Upstream::start(), Upstream::start());
    let aliases = "good CNAME own-good.example.net.\nbad CNAME servfail-own.example.net.\n";
    let zone = crate::common::zone("own.test.", 1, "192.0.2.9") + aliases;
    let home = crate::common::write_zones(&[("own.test.zone", &zone)]);
    let tables = format!(
        "[[cache.forward]]\ndomain = 'corp.test'\nupstreams = ['{}']\n\
         [[cache.forward]]\ndomain = 'own.test'\nupstreams = ['local']\n\
         [authority]\nlisten = ['127.0.0.1:0']\nzones = '{}'\n",
        inside.address,
        home.path().join("zones").display()
    );
    let recipe = Recipe::of(&upstream).with("failure_ttl = 300").with_tables(&tables);
    let cluster = Cluster::gossiping(2, recipe);
    let whole = [rtype::CNAME, rtype::A];
    // Each node twice: from upstream, from its owner, and from what is kept.
    for node in cluster.nodes.iter().chain(&cluster.nodes) {
        for (name, target) in
            [("out-good.corp.test", "good.example.net"), ("good.own.test", "own-good.example.net")]
        {
            let reply = node.ask(name);
            assert_eq!((reply.code(), reply.types()), (NO_ERROR, whole.to_vec()), "{name}");
            assert_eq!(reply.addresses(), [address_of(target)]);
        }
        let reply = node.ask("out-nx-gone.corp.test");
        assert_eq!((reply.code(), reply.types()), (NXDOMAIN, vec![rtype::CNAME]));
        assert_eq!(reply.authority.len(), 1, "the SOA says for how long: {reply:?}");
        for name in ["out-servfail-tail.corp.test", "bad.own.test"] {
            let reply = node.ask(name);
            assert_eq!((reply.code(), reply.answers.len()), (SERVFAIL, 0), "{name}");
            assert!(reply.error().is_some(), "it says why: {reply:?}");
        }
    }
    let ((targets, asked), (aliases, asked_inside)) = (upstream.totals(), inside.totals());
    assert_eq!((targets, aliases), (5, 3), "the targets, the aliases, and nothing else");
    cluster.expect_asked(asked, 5, "each target once");
    cluster.expect_asked(asked_inside, 3, "each alias once");
    assert!(cluster.event("upstream_followed") >= 5 && cluster.event("upstream_streams") >= 2);
    // What an alias led to is kept for the alias alone.
    let before = upstream.count("good.example.net");
    cluster.nodes[0].expect("good.example.net");
    cluster.expect_asked(upstream.count("good.example.net") - before, 1, "the target itself");
}
