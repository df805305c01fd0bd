//! A front before nodes that are sockets of the test: spread, silence, drains,
//! shards, and replies that nobody asked for.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

use common::node::{Node, answer, giver};
use common::{
    PATIENCE, PHAROS, Server, eventually, exchange_udp, frame, http, question, read_frame,
    write_zones,
};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

fn with_id(id: u16, name: &str) -> Vec<u8> {
    let mut message = question(name);
    message[..2].copy_from_slice(&id.to_be_bytes());
    message
}

fn id_of(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[0], message[1]])
}

fn front_command(home: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(PHAROS);
    command
        .args(["front", "--admin", "127.0.0.1:0", "--control"])
        .arg(home.path().join("control.sock"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(home.path().join("log")).unwrap());
    command
}

fn start_with(listen: &str, nodes: &[&Node], flags: &[&str]) -> Server {
    let home = write_zones(&[]);
    let specs: Vec<String> = nodes.iter().map(|node| node.spec()).collect();
    let mut args = vec!["--listen", listen];
    args.extend(specs.iter().flat_map(|spec| ["--node", spec.as_str()]));
    args.extend(flags);
    let command = front_command(&home, &args);
    Server::wait_for(command, home).unwrap_or_else(|output| panic!("{}", text_of(&output)))
}

fn start(nodes: &[&Node], flags: &[&str]) -> Server {
    start_with("127.0.0.1:0", nodes, flags)
}

/// A front that is told by a file, with so much time between probes.
fn start_by_file(nodes: &[String], probe_millis: u32) -> Server {
    let home = write_zones(&[]);
    write_config(&home, nodes, probe_millis);
    let config = home.path().join("front.toml");
    let command = front_command(&home, &["--config", config.to_str().unwrap()]);
    Server::wait_for(command, home).unwrap_or_else(|output| panic!("{}", text_of(&output)))
}

fn write_config(home: &TempDir, nodes: &[String], probe_millis: u32) {
    let text = format!(
        "[front]\nlisten = ['127.0.0.1:0']\nnodes = {nodes:?}\nprobe_millis = {probe_millis}\n"
    );
    std::fs::write(home.path().join("front.toml"), text).unwrap();
}

fn text_of(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// The value of a metric, named with its labels.
fn metric(front: &Server, name: &str) -> u64 {
    let (_, page) = front.http("/metrics");
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
}

fn dropped(front: &Server, reason: &str) -> u64 {
    metric(front, &format!("pharos_front_dropped_total{{reason=\"{reason}\"}}"))
}

/// How a node stands, as `pharos front status` says.
fn standing(front: &Server, name: &str) -> String {
    let output = front.pharos(&["front", "status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nodes = status["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["name"] == name).unwrap();
    node["standing"].as_str().unwrap().to_owned()
}

/// A client that asks many questions from one address.
struct Client(UdpSocket);

impl Client {
    fn new(front: &Server, from: [u8; 4]) -> Client {
        let socket = UdpSocket::bind((Ipv4Addr::from(from), 0)).unwrap();
        socket.connect(front.dns).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(socket)
    }

    fn send(&self, id: u16) {
        self.0.send(&with_id(id, "www.a.test")).unwrap();
    }

    fn receive(&self) -> Vec<u8> {
        let mut answer = vec![0; 65_535];
        let len = self.0.recv(&mut answer).expect("an answer");
        answer.truncate(len);
        answer
    }

    /// Asks `count` questions, one after the other; counts the answers of each
    /// node.
    fn ask(&self, count: u16) -> BTreeMap<u8, usize> {
        let mut givers = BTreeMap::new();
        for id in 0..count {
            self.send(id);
            let answer = self.receive();
            assert_eq!(id_of(&answer), id);
            *givers.entry(giver(&answer)).or_default() += 1;
        }
        givers
    }
}

fn ask_tcp(stream: &mut TcpStream) -> u8 {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&frame(&question("www.a.test"))).unwrap();
    giver(&read_frame(stream))
}

#[test]
fn questions_come_back_answered_over_both_protocols() {
    let node = Node::start(7);
    let front = start(&[&node], &[]);
    let asked = with_id(0x1234, "www.a.test");
    assert_eq!(exchange_udp(front.dns, &asked), answer(&asked, 7));
    // As large as it gets.
    let asked = question("long.test");
    assert_eq!(exchange_udp(front.dns, &asked), answer(&asked, 7));
    let mut stream = TcpStream::connect(front.dns).unwrap();
    assert_eq!((ask_tcp(&mut stream), ask_tcp(&mut stream)), (7, 7));
    stream.write_all(&frame(&asked)).unwrap();
    assert_eq!(read_frame(&mut stream), answer(&asked, 7));
    assert_eq!(metric(&front, "pharos_front_answers_total{node=\"n7\"}"), 2);
    assert_eq!(metric(&front, "pharos_front_node_connections_total{node=\"n7\"}"), 1);
    assert_eq!(front.http("/healthz").0, 200);
    assert_eq!(front.stop(), Some(0));
}

#[test]
fn an_answer_leaves_from_the_address_that_was_asked() {
    let node = Node::start(1);
    let front = start_with("0.0.0.0:0", &[&node], &["--workers", "1"]);
    let port = front.dns.port();
    for last in [1, 2, 77] {
        // The socket is connected: it takes nothing from elsewhere.
        let asked = SocketAddr::from(([127, 0, 0, last], port));
        assert_eq!(giver(&exchange_udp(asked, &question("www.a.test"))), 1);
    }
    if UdpSocket::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: no IPv6 here");
        return;
    }
    let front = start_with("[::]:0", &[&node], &["--workers", "1"]);
    let asked = SocketAddr::new("::1".parse().unwrap(), front.dns.port());
    assert_eq!(giver(&exchange_udp(asked, &question("www.a.test"))), 1);
}

#[test]
fn questions_are_spread_over_the_nodes() {
    let nodes = [1, 2, 3].map(Node::start);
    let front = start(&[&nodes[0], &nodes[1], &nodes[2]], &[]);
    let givers = Client::new(&front, [127, 0, 0, 1]).ask(300);
    assert_eq!(givers.len(), 3);
    assert!(givers.values().all(|count| *count > 50), "{givers:?}");
    let connections = (0..60).map(|_| ask_tcp(&mut TcpStream::connect(front.dns).unwrap()));
    assert_eq!(connections.collect::<BTreeSet<u8>>().len(), 3);
}

#[test]
fn no_question_is_lost_when_a_node_dies() {
    let mut nodes = [1, 2].map(Node::start);
    let front = start(&[&nodes[0], &nodes[1]], &["--workers", "1"]);
    let client = Client::new(&front, [127, 0, 0, 1]);
    assert_eq!(client.ask(40).len(), 2);
    nodes[0].kill();
    // Asked once each; the client never repeats itself.
    let ids: BTreeSet<u16> = (1000..1200).collect();
    ids.iter().for_each(|id| client.send(*id));
    let answers: Vec<Vec<u8>> = ids.iter().map(|_| client.receive()).collect();
    assert!(answers.iter().all(|answer| giver(answer) == 2));
    assert_eq!(answers.iter().map(|answer| id_of(answer)).collect::<BTreeSet<u16>>(), ids);
    let retries = metric(&front, "pharos_front_retries_total{node=\"n1\"}");
    assert!((1..=200).contains(&retries), "{retries} were asked again");
    eventually("down", || standing(&front, "n1") == "down");
    assert_eq!(client.ask(20), BTreeMap::from([(2, 20)]));
    let tcp = (0..10).map(|_| ask_tcp(&mut TcpStream::connect(front.dns).unwrap()));
    assert_eq!(tcp.collect::<BTreeSet<u8>>(), BTreeSet::from([2]));
    assert_eq!(dropped(&front, "expired"), 0);
}

#[test]
fn a_node_that_owes_many_answers_is_probed_at_once() {
    let node = Node::start(1);
    let front = start_by_file(&[node.spec()], 60_000);
    eventually("the first probe", || node.state.probed.load(SeqCst) == 1);
    node.state.is_deaf.store(true, SeqCst);
    let client = Client::new(&front, [127, 0, 0, 1]);
    (0..20).for_each(|id| client.send(id));
    eventually("a probe before its time", || node.state.probed.load(SeqCst) > 1);
    node.state.is_deaf.store(false, SeqCst);
    eventually("trust again", || standing(&front, "n1") == "up");
    client.send(77);
    assert_eq!(id_of(&client.receive()), 77);
}

#[test]
fn a_node_that_answers_again_is_asked_again() {
    let nodes = [1, 2].map(Node::start);
    let front = start_by_file(&[nodes[0].spec(), nodes[1].spec()], 100);
    nodes[0].mute(true);
    eventually("down", || standing(&front, "n1") == "down");
    let client = Client::new(&front, [127, 0, 0, 1]);
    assert_eq!(client.ask(20), BTreeMap::from([(2, 20)]));
    nodes[0].mute(false);
    eventually("up", || standing(&front, "n1") == "up");
    assert_eq!(client.ask(60).len(), 2);
}

#[test]
fn with_all_nodes_down_all_are_tried() {
    let nodes = [1, 2].map(Node::start);
    let front = start_by_file(&[nodes[0].spec(), nodes[1].spec()], 100);
    nodes.iter().for_each(|node| node.mute(true));
    eventually("no node is up", || front.http("/healthz").0 == 503);
    assert!(front.log().contains("NO NODE IS UP"), "{}", front.log());
    let client = Client::new(&front, [127, 0, 0, 1]);
    let before: usize = nodes.iter().map(Node::asked).sum();
    client.send(1);
    eventually("a node is asked", || nodes.iter().map(Node::asked).sum::<usize>() > before);
    assert!(metric(&front, "pharos_front_failed_open_total{transport=\"udp\"}") >= 1);
    nodes.iter().for_each(|node| node.mute(false));
    eventually("a node is up", || front.http("/healthz").0 == 200);
    assert_eq!(client.ask(10).values().sum::<usize>(), 10);
}

#[test]
fn a_page_can_say_that_a_node_is_not_well() {
    let nodes = [1, 2].map(Node::start);
    let status = Arc::new(AtomicU16::new(200));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/healthz", listener.local_addr().unwrap());
    std::thread::spawn({
        let status = status.clone();
        move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 1024]);
                let status = status.load(SeqCst);
                let _ = write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    let front = start_by_file(&[format!("{},{url}", nodes[0].spec()), nodes[1].spec()], 100);
    let client = Client::new(&front, [127, 0, 0, 1]);
    assert_eq!(client.ask(60).len(), 2);
    status.store(503, SeqCst);
    eventually("down", || standing(&front, "n1") == "down");
    assert_eq!(client.ask(20), BTreeMap::from([(2, 20)]));
    status.store(204, SeqCst);
    eventually("up", || standing(&front, "n1") == "up");
}

#[test]
fn a_draining_node_gets_nothing_new() {
    let nodes = [1, 2].map(Node::start);
    let front = start(&[&nodes[0], &nodes[1]], &[]);
    let client = Client::new(&front, [127, 0, 0, 1]);
    // A connection to each of them.
    let mut streams = BTreeMap::new();
    eventually("connections to both", || {
        let mut stream = TcpStream::connect(front.dns).unwrap();
        let number = ask_tcp(&mut stream);
        streams.insert(number, stream);
        streams.len() == 2
    });
    let drain = front.pharos(&["front", "drain", "n1"]);
    assert!(drain.status.success(), "{}", text_of(&drain));
    assert!(text_of(&drain).contains("draining"), "{}", text_of(&drain));
    // The threads look before every batch.
    assert_eq!(client.ask(40), BTreeMap::from([(2, 40)]));
    let new = (0..10).map(|_| ask_tcp(&mut TcpStream::connect(front.dns).unwrap()));
    assert_eq!(new.collect::<BTreeSet<u8>>(), BTreeSet::from([2]));
    // What was there before goes on until it ends.
    assert_eq!(ask_tcp(streams.get_mut(&1).unwrap()), 1);
    assert_eq!(metric(&front, "pharos_front_node_draining{node=\"n1\"}"), 1);
    for (node, said) in [("n2", "no node would be left"), ("n9", "accepted: n1, n2")] {
        let refused = front.pharos(&["front", "drain", node]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text_of(&refused).contains(said), "{}", text_of(&refused));
    }
    assert!(front.pharos(&["front", "undrain", "n1"]).status.success());
    assert_eq!(client.ask(60).len(), 2);
    // Nobody drains through the pages that everybody can read.
    assert_eq!(http(front.admin, "POST", "/v1/front/drain").0, 404);
}

fn connect_from(from: [u8; 4], front: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&front.into()).unwrap();
    socket.into()
}

#[test]
fn clients_of_one_network_see_only_their_shard() {
    let mut nodes: Vec<Node> = (1..=6).map(Node::start).collect();
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("key");
    std::fs::write(&key, "000102030405060708090a0b0c0d0e0f\n").unwrap();
    let flags = ["--shard", "2", "--shard-key-file", key.to_str().unwrap()];
    let all: Vec<&Node> = nodes.iter().collect();
    let front = start(&all, &flags);
    // The same nodes in another order are the same to another front.
    let twin = start(&all.iter().rev().copied().collect::<Vec<_>>(), &flags);
    let mut shards = BTreeSet::new();
    for network in 0..12 {
        let mut seen = BTreeSet::new();
        for (front, host) in [(&front, 1), (&front, 200), (&twin, 77)] {
            let from = [127, 0, network, host];
            seen.extend(Client::new(front, from).ask(15).into_keys());
            seen.insert(ask_tcp(&mut connect_from(from, front.dns)));
        }
        assert_eq!(seen.len(), 2, "network {network} sees {seen:?}");
        shards.insert(seen);
    }
    assert!(shards.len() > 3, "{shards:?}");
    // Who has lost its shard is served by others, and that is counted.
    let lost = Client::new(&front, [127, 0, 3, 1]);
    let own: BTreeSet<u8> = lost.ask(15).into_keys().collect();
    nodes.iter_mut().filter(|node| own.contains(&node.number)).for_each(Node::kill);
    own.iter().for_each(|number| {
        eventually("down", || standing(&front, &format!("n{number}")) == "down");
    });
    let others = lost.ask(10);
    assert!(others.keys().all(|number| !own.contains(number)), "{others:?}");
    assert!(metric(&front, "pharos_front_out_of_shard_total{transport=\"udp\"}") >= 10);
}

#[test]
fn replies_that_nobody_waits_for_go_no_further() {
    /// All that is wrong comes before the answer, so that it would be taken
    /// first.
    fn mischief(question: &[u8], own: &UdpSocket, other: &UdpSocket, front: SocketAddr) {
        let wrong = answer(question, 99);
        let changed = |change: fn(&mut Vec<u8>)| {
            let mut reply = wrong.clone();
            change(&mut reply);
            own.send_to(&reply, front).unwrap();
        };
        changed(|reply| reply[0] ^= 0xff);
        changed(|reply| reply[13] = b'x');
        changed(|reply| reply[2] ^= 0x01);
        changed(|reply| reply[2] &= 0x7f);
        changed(|reply| reply[12] = 0xc0);
        changed(|reply| reply.truncate(11));
        changed(|reply| reply.truncate(20));
        changed(|reply| reply.clear());
        other.send_to(&wrong, front).unwrap();
    }
    let node = Node::start_with(5, mischief);
    let front = start(&[&node], &["--workers", "1"]);
    let client = Client::new(&front, [127, 0, 0, 1]);
    assert_eq!(client.ask(20), BTreeMap::from([(5, 20)]));
    for (reason, count) in [
        ("reply_unknown", 20),
        ("reply_question", 40),
        ("reply_malformed", 100),
        ("reply_source", 20),
    ] {
        assert_eq!(dropped(&front, reason), count, "{reason}");
    }
}

#[test]
fn messages_that_are_no_questions_reach_no_node() {
    let node = Node::start(1);
    let front = start(&[&node], &["--workers", "1"]);
    let client = Client::new(&front, [127, 0, 0, 1]);
    let mut is_answer = question("www.a.test");
    is_answer[2] |= 0x80;
    for message in [&b"x"[..], &[], &is_answer, &[0; 1700]] {
        client.0.send(message).unwrap();
    }
    // Behind them on the same socket: when it is answered, they were read.
    assert_eq!(client.ask(1).len(), 1);
    assert_eq!(node.asked(), 1);
    assert_eq!((dropped(&front, "short"), dropped(&front, "is_answer")), (2, 1));
    assert_eq!(dropped(&front, "long"), 1);
}

#[test]
fn nodes_change_when_the_file_is_read_again() {
    let nodes = [1, 2, 3].map(Node::start);
    let front = start_by_file(&[nodes[0].spec(), nodes[1].spec()], 100);
    let client = Client::new(&front, [127, 0, 0, 1]);
    assert_eq!(client.ask(60).into_keys().collect::<Vec<_>>(), [1, 2]);
    write_config(&front.home, &[nodes[1].spec(), nodes[2].spec()], 100);
    front.signal("HUP");
    eventually("a reload", || front.log().contains("the nodes were read again"));
    assert_eq!(client.ask(60).into_keys().collect::<Vec<_>>(), [2, 3]);
    write_config(&front.home, &["nonsense".to_owned()], 100);
    front.signal("HUP");
    eventually("a refusal", || front.log().contains("the nodes stay as they are"));
    assert_eq!(client.ask(60).into_keys().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn all_problems_of_a_configuration_are_in_one_error() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("front.toml");
    let text = "[front]\nlisten = ['127.0.0.1:x']\nnodes = ['a']\nshard = 0\nprobe_millis = 1\n";
    std::fs::write(&config, text).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(PHAROS);
        command.arg("front").args(args).arg("--config").arg(&config).output().unwrap()
    };
    let output = run(&["--admin", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text_of(&output);
    for part in [
        "front.toml: front.listen: `127.0.0.1:x` is no address",
        "front.toml: front.nodes: `a`: it has no name; accepted: NAME=ADDR:PORT",
        "front.toml: front.shard: 0 is out of range; accepted: 1 to 16",
        "front.toml: front.probe_millis: 1 is out of range; accepted: 100 to 60000",
        "--admin: `nowhere` is no address",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    std::fs::write(&config, "[front]\nnode = []\n").unwrap();
    let said = text_of(&run(&[]));
    assert!(said.contains("front.toml:2:1: unknown field `node`"), "{said}");
}

#[test]
fn a_taken_port_and_a_front_that_is_not_there_are_said() {
    let node = Node::start(1);
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let home = write_zones(&[]);
    let listen = taken.local_addr().unwrap().to_string();
    let command = front_command(&home, &["--listen", &listen, "--node", &node.spec()]);
    let said = text_of(&Server::wait_for(command, home).err().expect("not started"));
    assert!(said.contains("another process listens there"), "{said}");
    let output = Command::new(PHAROS)
        .args(["front", "status", "--control", "/nonexistent/front.sock"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text_of(&output).contains("no server answers at the control socket"));
}
