//! Octets of those who mean no good, or are broken: refused, counted, and
//! nothing is kept of them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, OnceLock};

use wire::rtype;

use crate::common::{PATIENCE, eventually};
use crate::nodes::{Cluster, Recipe, check, make_key};
use crate::owners::settle;
use crate::reply::{Reply, ask_many, message};
use crate::upstream::{FORGED, Upstream};

const SERVFAIL: u16 = 2;
const REFUSED: u16 = 5;
/// The extended error "prohibited" of RFC 8914.
const PROHIBITED: u16 = 18;

#[test]
fn answers_that_are_not_answers_are_refused_counted_and_forgotten() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    let bad = ["wrongid-a.test", "wrongname-a.test", "wrongport-a.test", "cut-a.test"];
    let bad = bad.into_iter().chain(["oversized-a.test"]).map(String::from);
    let mut seen = 0;
    // All at once: most end only when nobody waits any longer.
    ask_many(&cluster.doors(), bad.clone(), 8, |name, reply| {
        assert_eq!((reply.code(), reply.answers.len()), (SERVFAIL, 0), "{name}");
        assert!(reply.error().is_some(), "{name}: {reply:?}");
        seen += 1;
    });
    assert_eq!(seen, 5);
    for (event, at_least) in
        [("upstream_strange", 2), ("upstream_mismatched", 1), ("upstream_malformed", 2)]
    {
        assert!(cluster.event(event) >= at_least, "{event}: {}", cluster.event(event));
    }
    for node in &cluster.nodes {
        assert_eq!(node.entries(), []);
    }
}

#[test]
fn forgers_that_are_faster_than_the_server_change_nothing() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    let names = (0..50).map(|number| format!("forged-{number}.test"));
    for _ in 0..2 {
        ask_many(&cluster.doors(), names.clone(), 8, |name, reply| {
            assert_ne!(reply.addresses(), [FORGED]);
            check(name, reply);
        });
    }
    assert!(cluster.event("upstream_strange") >= 100);
    assert!(cluster.event("upstream_mismatched") >= 50);
}

#[test]
fn clients_from_elsewhere_are_refused() {
    let upstream = Upstream::start();
    let cluster = Cluster::alone(Recipe::of(&upstream).with("allow = ['127.0.0.2/32']"));
    let node = &cluster.nodes[0];
    let ask_from = |from: [u8; 4]| {
        let socket = UdpSocket::bind((Ipv4Addr::from(from), 0)).unwrap();
        socket.connect(node.dns).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send(&message("www.test", rtype::A, Some(1232))).unwrap();
        let mut octets = [0; 4096];
        let len = socket.recv(&mut octets).unwrap();
        Reply::read(&octets[..len])
    };
    let is_refused = |reply: &Reply| {
        assert_eq!((reply.code(), reply.answers.len()), (REFUSED, 0));
        assert_eq!(reply.error(), Some(PROHIBITED));
    };
    is_refused(&ask_from([127, 0, 0, 1]));
    assert_eq!(upstream.totals(), (0, 0), "nobody is asked for them");
    check("www.test", &ask_from([127, 0, 0, 2]));
    // Nor is what is known told to them, and over connections nothing at all.
    is_refused(&ask_from([127, 0, 0, 3]));
    assert_eq!(node.event("not_allowed"), 2);
    let mut stream = TcpStream::connect(node.dns).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "it is closed");
    let labels = "transport=\"tcp\",reason=\"not_served\"";
    eventually("it is counted", || node.metric(&format!("pharos_dropped_total{{{labels}}}")) == 1);
}

/// All datagrams that were refused at a node's peer port.
fn refused(cluster: &Cluster) -> u64 {
    let reasons = ["short", "form", "astray", "old", "reflected", "replayed", "bad_seal"];
    reasons.iter().map(|reason| cluster.nodes[0].refused(reason)).sum()
}

#[test]
fn noise_at_the_peer_port_is_refused_and_counted() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    let peer = cluster.nodes[0].peer.unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let before = refused(&cluster);
    let mut sent = 0;
    let mut random = 1u64;
    for len in (1..=1400).step_by(7) {
        // The first octet says whom it is for: both cells, and gossip.
        for first in [0, 1, 2, 255] {
            let mut noise: Vec<u8> = std::iter::repeat_with(|| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            })
            .take(len)
            .collect();
            noise[0] = first;
            socket.send_to(&noise, peer).unwrap();
            sent += 1;
        }
        // Not faster than it reads: what the kernel drops nobody counts.
        eventually("noise is refused", || refused(&cluster) >= before + sent);
    }
    strangers_connect(peer);
    assert!(cluster.nodes[0].refused("stranger") > 0);
    cluster.nodes.iter().for_each(|node| node.expect("www.test"));
    assert_eq!(cluster.event("peer_malformed"), 0, "nothing of it was opened");
    cluster.agree(2);
}

/// Connections that speak no TLS, or nothing.
fn strangers_connect(peer: SocketAddr) {
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0x16, 3, 1]]
    {
        let mut stream = TcpStream::connect(peer).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(said).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It is closed, with an alert or without.
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

#[test]
fn a_node_with_the_key_of_another_cluster_stays_outside() {
    let upstream = Upstream::start();
    let cluster = Cluster::gossiping(2, Recipe::of(&upstream));
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("another.key");
    make_key(&key);
    let stranger = cluster.start_stranger("n3", &key);
    eventually("its gossip is refused", || cluster.nodes[0].refused("bad_seal") >= 5);
    stranger.expect("alone.test");
    cluster.agree(2);
    assert_eq!(stranger.members()["members"].as_array().unwrap().len(), 1);
    assert!(cluster.nodes.iter().all(|node| !node.holds("alone.test")));
}

/// Carries datagrams to a node, each of them twice.
fn echo(to: Arc<OnceLock<SocketAddr>>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 65_535];
        // It ends with the test's process.
        while let Ok(len) = socket.recv(&mut datagram) {
            for _ in 0..2 {
                let _ = to.get().map(|to| socket.send_to(&datagram[..len], to));
            }
        }
    });
    address
}

#[test]
fn what_is_sent_to_a_node_again_is_refused_and_counted() {
    let upstream = Upstream::start();
    let mut cluster = Cluster::gossiping(1, Recipe::of(&upstream));
    let to = Arc::new(OnceLock::new());
    let way = echo(to.clone());
    cluster.start_with("n2", &format!("peer_advertise = '{way}'"));
    to.set(cluster.node("n2").peer.unwrap()).unwrap();
    cluster.agree(2);
    let names = (0..50).map(|number| format!("again{number}.test"));
    ask_many(&[cluster.node("n1").dns], names.clone(), 8, check);
    settle(&cluster);
    assert!(cluster.node("n2").refused("replayed") > 0);
    assert_eq!(cluster.event("peer_malformed"), 0);
    // What it says goes back on a way that leads to itself: it is as good as
    // silent, and still nobody gets a wrong answer.
    ask_many(&cluster.doors(), names, 8, check);
}
