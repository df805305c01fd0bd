//! The stub as caches see it: over sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::*;
use crate::queries::{EdnsMode, Expect, check_answer, query_packet};

struct Stub {
    listen: SocketAddr,
    counts: SocketAddr,
}

/// Runs until the test process ends.
fn start(latency_ms: f64) -> Stub {
    let any = "127.0.0.1:0".parse().unwrap();
    let args = StubArgs { listen: any, counts: any, latency_ms, jitter_ms: 0.0, ttl: 60 };
    let latency = Latency::of(&args).unwrap();
    let counts = Mutex::new(Counts::default());
    let shared = Arc::new(Shared { latency, ttl_secs: args.ttl, counts });
    let (udp, tcp) = bind(any).unwrap();
    let http = TcpListener::bind(any).unwrap();
    let stub = Stub { listen: udp.local_addr().unwrap(), counts: http.local_addr().unwrap() };
    let responder = Responder::new(udp, shared.clone()).unwrap();
    let for_tcp = shared.clone();
    thread::spawn(move || responder.run());
    thread::spawn(move || tcp::serve(&tcp, &for_tcp));
    thread::spawn(move || http::serve(&http, &shared));
    stub
}

fn client(stub: &Stub) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(stub.listen).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn ask(socket: &UdpSocket, query: &[u8]) -> Vec<u8> {
    socket.send(query).unwrap();
    let mut answer = [0; 1536];
    let len = socket.recv(&mut answer).unwrap();
    answer[..len].to_vec()
}

fn http(stub: &Stub, line: &str) -> serde_json::Value {
    let mut stream = TcpStream::connect(stub.counts).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nhost: stub\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn expected(name: &[u8]) -> Expect {
    Expect { authoritative: false, ..Expect::address(rule::address(rule::hash(name))) }
}

#[test]
fn datagrams_are_answered_and_counted() {
    let stub = start(0.0);
    let socket = client(&stub);
    let query = query_packet("Www.example", 1, EdnsMode::None);
    for _ in 0..3 {
        let answer = ask(&socket, &query);
        assert_eq!(check_answer(&query, &answer, &expected(b"\x03www\x07example\0")), Ok(()));
    }
    ask(&socket, &query_packet("nx-a.example", 1, EdnsMode::None));
    let counts = http(&stub, "GET /counts");
    assert_eq!((&counts["total"], &counts["unique"]), (&4.into(), &2.into()));
    assert_eq!(counts["duplicates"][0]["name"], "www.example.");
    assert_eq!(counts["duplicates"][0]["count"], 3);
    assert_eq!(counts["duplicates"][0]["type"], 1);
    assert_eq!(http(&stub, "GET /counts/WWW.example/A")["count"], 3);
    assert_eq!(http(&stub, "GET /counts/www.example/AAAA")["count"], 0);
    http(&stub, "POST /reset");
    assert_eq!(http(&stub, "GET /counts")["total"], 0);
    assert!(http(&stub, "GET /else")["error"].is_string());
}

#[test]
fn a_late_answer_keeps_no_other_waiting() {
    let stub = start(30.0);
    let socket = client(&stub);
    let (late, usual) = ("delay200-a.example", "b.example");
    let queries =
        [late, usual, "delay0-c.example"].map(|name| query_packet(name, 1, EdnsMode::None));
    for (id, mut query) in queries.into_iter().enumerate() {
        query[1] = id as u8;
        socket.send(&query).unwrap();
    }
    let mut answer = [0; 1536];
    let mut order = Vec::new();
    for _ in 0..3 {
        socket.recv(&mut answer).unwrap();
        order.push(answer[1]);
    }
    assert_eq!(order, [2, 1, 0]);
}

#[test]
fn truncated_answers_are_whole_over_tcp() {
    let stub = start(1.0);
    let query = query_packet("large-a.example", 16, EdnsMode::Dnssec);
    assert_eq!(ask(&client(&stub), &query)[2] & 2, 2);
    let mut stream = TcpStream::connect(stub.listen).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..2 {
        stream.write_all(&(query.len() as u16).to_be_bytes()).unwrap();
        stream.write_all(&query).unwrap();
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((answer[2] & 2, answer[7]), (0, 1));
        assert!(answer.len() > 3000);
    }
    assert_eq!(http(&stub, "GET /counts")["over_tcp"], 2);
}

#[test]
fn stray_answers_come_from_another_port() {
    let stub = start(0.0);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let query = query_packet("wrongport-a.example", 1, EdnsMode::None);
    socket.send_to(&query, stub.listen).unwrap();
    let (_, from) = socket.recv_from(&mut [0; 512]).unwrap();
    assert_ne!(from, stub.listen);
    assert_eq!(from.ip(), stub.listen.ip());
}

#[test]
fn latencies_have_bounds() {
    let any = "127.0.0.1:0".parse().unwrap();
    let latency = |latency_ms, jitter_ms| {
        let args = StubArgs { listen: any, counts: any, latency_ms, jitter_ms, ttl: 60 };
        Latency::of(&args)
    };
    assert!(latency(4000.0, 0.0).is_err() && latency(-1.0, 0.0).is_err());
    assert!(latency(1.0, 2.0).is_err() && latency(f64::NAN, 0.0).is_err());
    let drawn = latency(5.0, 1.0).unwrap();
    let mut random = Random::new(2);
    let millis = Duration::from_millis(4)..Duration::from_millis(6);
    assert!((0..1000).all(|_| millis.contains(&drawn.draw(&mut random))));
}
