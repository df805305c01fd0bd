//! Nodes behind a front: sockets of the test that answer as DNS servers do, or
//! as they should not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use super::frame;

/// How long a node's thread waits before it looks whether it shall end.
const LOOK: Duration = Duration::from_millis(20);

/// What a node does with a question before it answers: whatever it likes to
/// send, from its own socket or from another one.
pub type Mischief = fn(question: &[u8], own: &UdpSocket, other: &UdpSocket, front: SocketAddr);

/// A node: answers every question with an address that ends in its number.
pub struct Node {
    pub number: u8,
    address: SocketAddr,
    pub state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
pub struct State {
    /// Questions over UDP, probes not counted.
    pub asked: AtomicUsize,
    pub probed: AtomicUsize,
    is_mute: AtomicBool,
    /// Mute, but not to probes.
    pub is_deaf: AtomicBool,
    ends: AtomicBool,
}

impl Node {
    pub fn start(number: u8) -> Node {
        Node::start_with(number, |_, _, _, _| {})
    }

    pub fn start_with(number: u8, mischief: Mischief) -> Node {
        let (udp, tcp) = bind_both();
        let address = udp.local_addr().unwrap();
        let state = Arc::new(State::default());
        let threads = vec![
            std::thread::spawn({
                let state = state.clone();
                move || answer_udp(&udp, number, &state, mischief)
            }),
            std::thread::spawn({
                let state = state.clone();
                move || answer_tcp(&tcp, number, &state)
            }),
        ];
        Node { number, address, state, threads }
    }

    pub fn spec(&self) -> String {
        format!("n{}={}", self.number, self.address)
    }

    pub fn asked(&self) -> usize {
        self.state.asked.load(SeqCst)
    }

    pub fn mute(&self, is_mute: bool) {
        self.state.is_mute.store(is_mute, SeqCst);
    }

    /// Closes its sockets, as the end of its process would.
    pub fn kill(&mut self) {
        self.state.ends.store(true, SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.state.ends.store(true, SeqCst);
    }
}

/// A port that UDP and TCP both have.
fn bind_both() -> (UdpSocket, TcpListener) {
    for _ in 0..50 {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (udp, tcp);
        }
    }
    panic!("no port is free for UDP and TCP");
}

fn answer_udp(socket: &UdpSocket, number: u8, state: &State, mischief: Mischief) {
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LOOK)).unwrap();
    let mut message = [0; 2048];
    while !state.ends.load(SeqCst) {
        let Ok((len, from)) = socket.recv_from(&mut message) else { continue };
        let message = &message[..len];
        let is_probe = message.ends_with(&[0, 16, 0, 3]);
        let count = if is_probe { &state.probed } else { &state.asked };
        count.fetch_add(1, SeqCst);
        if state.is_mute.load(SeqCst) || !is_probe && state.is_deaf.load(SeqCst) {
            continue;
        }
        if !is_probe {
            mischief(message, socket, &other, from);
        }
        socket.send_to(&answer(message, number), from).unwrap();
    }
}

fn answer_tcp(listener: &TcpListener, number: u8, state: &Arc<State>) {
    listener.set_nonblocking(true).unwrap();
    while !state.ends.load(SeqCst) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            let mut len = [0; 2];
            while stream.read_exact(&mut len).is_ok() {
                let mut message = vec![0; u16::from_be_bytes(len) as usize];
                stream.read_exact(&mut message).unwrap();
                stream.write_all(&frame(&answer(&message, number))).unwrap();
            }
        });
    }
}

/// The answer of a node: an address that ends in its number. Whoever asks for
/// `long.test` gets as much as a datagram can carry before it.
pub fn answer(question: &[u8], number: u8) -> Vec<u8> {
    let mut reply = question.to_vec();
    (reply[2], reply[3], reply[7]) = (reply[2] | 0x80, 0x80, 1);
    if question[12..].starts_with(b"\x04long") {
        reply[7] = 2;
        reply.extend([0xc0, 12, 0, 10, 0, 1, 0, 0, 0, 60]);
        reply.extend(60_000u16.to_be_bytes());
        reply.extend([7; 60_000]);
    }
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, number]);
    reply
}

/// Which node gave this answer.
pub fn giver(answer: &[u8]) -> u8 {
    assert_eq!(answer[3] & 0xf, 0, "{answer:02x?}");
    *answer.last().unwrap()
}
