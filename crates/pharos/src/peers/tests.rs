//! Nodes that talk over loopback.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cluster::{Member, Standing};
use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::clients::CONNECT_TIME_MAX;
use super::grpc::{FRAME_LEN_MAX, MESSAGE_LEN_MAX, PeerService, Receiver};
use super::outbox::Unsent;
use super::outbox::{OUTBOX_FRAMES_MAX, UnsentCounters};
use super::server::{HANDSHAKES_MAX, PeerServer, ServerCounters};
use super::*;

/// A node that notes what it is told, and answers every message with the same
/// turned round.
struct Node {
    heard: mpsc::UnboundedSender<Heard>,
    answers: bool,
}

#[derive(Debug, PartialEq)]
enum Heard {
    Frames(String, Vec<Frame>),
    Flush(Flush),
    Entries(String, Vec<Bytes>),
    Drain { undo: bool },
}

impl Node {
    fn note(&self, heard: Heard) {
        self.heard.send(heard).expect("the test listens");
    }
}

impl Receiver for Node {
    fn receive(&self, from: &str, frames: Vec<Frame>, back: &Outbox) {
        if self.answers {
            for Frame { from_cell, to_cell, message } in frames.clone() {
                back.push(Frame { from_cell: to_cell, to_cell: from_cell, message }).unwrap();
            }
        }
        self.note(Heard::Frames(from.to_owned(), frames));
    }
}

impl PeerService for Node {
    async fn flush(&self, flush: Flush) -> Result<u64, String> {
        self.note(Heard::Flush(flush));
        Ok(7)
    }

    async fn take(&self, from: &str, entries: Vec<Bytes>) -> Result<u64, String> {
        let taken = entries.len() as u64;
        self.note(Heard::Entries(from.to_owned(), entries));
        Ok(taken)
    }

    async fn drain(&self, undo: bool) -> Result<u64, String> {
        self.note(Heard::Drain { undo });
        Err("it drains already".into())
    }

    async fn status(&self) -> Result<String, String> {
        Ok("{}".into())
    }
}

/// The server of node b.
struct Running {
    address: SocketAddr,
    heard: mpsc::UnboundedReceiver<Heard>,
    counters: Arc<ServerCounters>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), String>>,
}

fn start(key: &ClusterKey) -> Running {
    let (heard, hears) = mpsc::unbounded_channel();
    let server = PeerServer::new(key, "b", Arc::new(Node { heard, answers: true }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counters = server.counters();
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(server.run(listener, async { stopped.await.unwrap_or_default() }));
    Running { address, heard: hears, counters, stop, ended }
}

fn member(name: &str, peer: SocketAddr) -> Member {
    Member {
        name: name.into(),
        datacenter: "dc".into(),
        incarnation: 1,
        peer,
        listen: vec![],
        cells: 1,
        standing: Standing::Serving,
    }
}

/// Node a, as a caller of node b, and what it hears back.
fn caller(
    key: &ClusterKey,
    b: SocketAddr,
) -> (PeerClients, mpsc::UnboundedReceiver<Heard>, Arc<UnsentCounters>) {
    let (heard, hears) = mpsc::unbounded_channel();
    let node = Arc::new(Node { heard, answers: false });
    let clients = PeerClients::new(key, "a", node, Handle::current());
    clients.set_members(&[member("a", "127.0.0.1:1".parse().unwrap()), member("b", b)]);
    let unsent = clients.unsent();
    (clients, hears, unsent)
}

fn frame(from_cell: u8, to_cell: u8, len: usize) -> Frame {
    Frame { from_cell, to_cell, message: Bytes::from(vec![from_cell; len]) }
}

fn flush() -> Flush {
    Flush { name: Bytes::from_static(b"\x07example\0"), subtree: true }
}

#[tokio::test]
async fn every_call_is_heard_and_answered() {
    let key = ClusterKey::draw();
    let mut b = start(&key);
    let (a, ..) = caller(&key, b.address);
    assert_eq!(a.flush("b", flush()).await.unwrap(), 7);
    assert_eq!(b.heard.recv().await, Some(Heard::Flush(flush())));
    let batches: Vec<Vec<Bytes>> = vec![vec!["one".into(), "two".into()], vec!["three".into()]];
    assert_eq!(a.hand_over("b", stream::iter(batches.clone())).await.unwrap(), 3);
    for entries in batches {
        assert_eq!(b.heard.recv().await, Some(Heard::Entries("a".into(), entries)));
    }
    assert_eq!(a.status("b").await.unwrap(), "{}");
    let error = a.drain("b", true).await.unwrap_err();
    assert_eq!(error.to_string(), "b: drain: it drains already (Internal)");
    assert_eq!(b.heard.recv().await, Some(Heard::Drain { undo: true }));
    let error = a.status("c").await.unwrap_err();
    assert_eq!(error.to_string(), "c: status: no member has that name");
    assert!(a.status("a").await.is_err(), "a node does not call itself");
}

#[tokio::test]
async fn messages_go_both_ways() {
    let key = ClusterKey::draw();
    let mut b = start(&key);
    let (a, mut back, _) = caller(&key, b.address);
    // More than one batch takes, and as long as one may be.
    let sent: Vec<_> = (0..5).map(|cell| frame(cell, 9, FRAME_LEN_MAX)).collect();
    sent.iter().for_each(|frame| a.send("b", frame.clone()).unwrap());
    let mut heard = Vec::new();
    while heard.len() < sent.len() {
        let Some(Heard::Frames(from, frames)) = b.heard.recv().await else { panic!("no frames") };
        assert_eq!(from, "a");
        heard.extend(frames);
    }
    assert_eq!(heard, sent);
    let mut answers = Vec::new();
    while answers.len() < sent.len() {
        let Some(Heard::Frames(from, frames)) = back.recv().await else { panic!("no frames") };
        assert_eq!(from, "b");
        answers.extend(frames);
    }
    let turned =
        sent.into_iter().map(|frame| Frame { from_cell: 9, to_cell: frame.from_cell, ..frame });
    assert_eq!(answers, turned.collect::<Vec<_>>());
    assert_eq!(a.send("c", frame(0, 0, 1)), Err(Unsent::Unknown));
}

#[tokio::test]
async fn strangers_are_refused_and_counted() {
    let mut b = start(&ClusterKey::draw());
    let (stranger, ..) = caller(&ClusterKey::draw(), b.address);
    stranger.flush("b", flush()).await.unwrap_err();
    b.stop.send(()).unwrap();
    b.ended.await.unwrap().unwrap();
    // It connects when it hears of a member, and again to call it.
    assert!((1..=2).contains(&b.counters.strangers.load(Ordering::Relaxed)));
    assert_eq!(b.heard.recv().await, None);
}

#[tokio::test]
async fn whoever_speaks_without_tls_is_hung_up_on_and_counted() {
    let mut b = start(&ClusterKey::draw());
    let mut plain = tokio::net::TcpStream::connect(b.address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(answer.len() < 16, "an alert at the most: {answer:?}");
    b.stop.send(()).unwrap();
    b.ended.await.unwrap().unwrap();
    assert_eq!(b.counters.strangers.load(Ordering::Relaxed), 1);
    assert_eq!(b.heard.recv().await, None);
}

#[tokio::test]
async fn a_node_under_another_name_is_refused() {
    let key = ClusterKey::draw();
    let b = start(&key);
    let (a, ..) = caller(&key, b.address);
    a.set_members(&[member("c", b.address)]);
    assert!(a.status("c").await.is_err());
    assert!(b.counters.strangers.load(Ordering::Relaxed) >= 1);
}

#[tokio::test]
async fn messages_that_are_too_long_are_refused() {
    let key = ClusterKey::draw();
    let mut b = start(&key);
    let (a, ..) = caller(&key, b.address);
    let long = vec![Bytes::from(vec![0; MESSAGE_LEN_MAX + 1])];
    // By the receiver,
    let error = a.hand_over_unbounded("b", long.clone()).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::OutOfRange, "{error}");
    assert_eq!(b.counters.messages.load(Ordering::Relaxed), 1);
    // and by a sender before.
    assert!(a.hand_over("b", stream::iter([long])).await.is_err());
    assert_eq!(a.send("b", frame(0, 0, FRAME_LEN_MAX + 1)), Err(Unsent::Long));
    assert!(b.heard.try_recv().is_err(), "nothing of it was taken");
    assert_eq!(a.status("b").await.unwrap(), "{}", "others are still heard");
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_and_comes_back() {
    let key = ClusterKey::draw();
    let b = start(&key);
    let (a, ..) = caller(&key, b.address);
    assert!(a.status("b").await.is_ok());
    a.send("b", frame(1, 2, 3)).unwrap();
    b.stop.send(()).unwrap();
    b.ended.await.unwrap().unwrap();
    a.status("b").await.unwrap_err();
    let again = start(&key);
    a.set_members(&[member("b", again.address)]);
    assert!(a.status("b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (a, ..) = caller(&ClusterKey::draw(), silent.local_addr().unwrap());
    a.status("b").await.unwrap_err();
}

#[tokio::test]
async fn strangers_who_say_nothing_do_not_keep_members_out() {
    let key = ClusterKey::draw();
    let b = start(&key);
    let mut silent = Vec::new();
    for _ in 0..HANDSHAKES_MAX - 1 {
        silent.push(tokio::net::TcpStream::connect(b.address).await.unwrap());
    }
    let (a, ..) = caller(&key, b.address);
    assert!(a.status("b").await.is_ok());
    assert_eq!(silent.len(), HANDSHAKES_MAX - 1);
}

#[tokio::test]
async fn messages_that_wait_are_bounded_and_given_up_with_the_member() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (a, _, unsent) = caller(&ClusterKey::draw(), silent.local_addr().unwrap());
    for _ in 0..OUTBOX_FRAMES_MAX {
        a.send("b", frame(0, 0, 1)).unwrap();
    }
    assert_eq!(a.send("b", frame(0, 0, 1)), Err(Unsent::Full));
    assert_eq!(unsent.refused.load(Ordering::Relaxed), 1);
    a.set_members(&[]);
    assert_eq!(unsent.lost.load(Ordering::Relaxed), OUTBOX_FRAMES_MAX as u64);
    assert_eq!(a.send("b", frame(0, 0, 1)), Err(Unsent::Unknown));
}

#[tokio::test(start_paused = true)]
async fn messages_to_a_member_that_is_not_there_are_given_up() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (a, _, unsent) = caller(&ClusterKey::draw(), address);
    a.send("b", frame(0, 0, 1)).unwrap();
    // The listener says nothing, so an attempt takes as long as it may.
    tokio::time::sleep(2 * CONNECT_TIME_MAX).await;
    assert_eq!(unsent.lost.load(Ordering::Relaxed), 1);
}
