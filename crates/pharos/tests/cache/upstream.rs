//! An upstream server inside the test: what it says, and how badly, is decided
//! by the first label of the name, and it counts what it was asked.
//!
//! | first label | what happens |
//! |---|---|
//! | `nx-…` | NXDOMAIN with the SOA of the name above |
//! | `nodata-…` | no record, with that SOA |
//! | `servfail-…` | that code |
//! | `timeout-…` | no answer at all |
//! | `tc-…` | three addresses over TCP; over UDP one of them, marked as cut |
//! | `chain-…` | two aliases, then the address; the second alias lives [`LINK_TTL_SECS`] at the most |
//! | `out-<label>` | an alias of `<label>` below [`OUTSIDE`] and nothing more, as of a server that does not resolve |
//! | `oversized-…` | more octets over UDP than anybody asks for |
//! | `wrongid-…`, `wrongname-…`, `wrongport-…` | [`FORGED`], which is to nobody's question |
//! | `forged-…` | all three of these, then the answer |
//! | `cut-…` | an answer whose last octets are missing |
//! | `ttl<N>-…` | TTLs of N seconds |
//! | `delay<N>-…` | the answer waits N milliseconds |
//!
//! The last two stand before any other: `ttl5-nx-a.example`. All other names
//! have one A, one AAAA and one TXT record of 3,000 octets and nothing else.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wire::rtype;

use crate::common::frame;

pub const TTL_SECS: u32 = 300;
/// The domain that aliases lead out to.
pub const OUTSIDE: &str = "example.net";
pub const LINK_TTL_SECS: u32 = 2;
/// What forgers say: no name has this address.
pub const FORGED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);
/// Octets of a TXT record.
pub const TEXT_LEN: usize = 3000;
const OVERSIZED_LEN: usize = 6000;
/// How long a thread waits before it looks whether it shall end.
const LOOK: Duration = Duration::from_millis(20);

/// An upstream server that lives as long as its test.
pub struct Upstream {
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    asked: Mutex<HashMap<String, Asked>>,
    is_mute: AtomicBool,
    ends: AtomicBool,
}

/// How often a name was asked for, whatever the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub over_udp: usize,
    pub over_tcp: usize,
}

impl Upstream {
    pub fn start() -> Upstream {
        let (udp, tcp) = bind_both();
        let address = udp.local_addr().unwrap();
        let state = Arc::new(State::default());
        let own = state.clone();
        std::thread::spawn(move || own.answer_udp(&udp));
        let own = state.clone();
        std::thread::spawn(move || own.answer_tcp(&tcp));
        Upstream { address, state }
    }

    /// Says nothing any more, or speaks again; what it is asked still counts.
    pub fn mute(&self, is_mute: bool) {
        self.state.is_mute.store(is_mute, SeqCst);
    }

    pub fn asked(&self, name: &str) -> Asked {
        self.state.asked.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    /// Questions for a name over either transport.
    pub fn count(&self, name: &str) -> usize {
        let Asked { over_udp, over_tcp } = self.asked(name);
        over_udp + over_tcp
    }

    /// Names that it was asked for, and questions.
    pub fn totals(&self) -> (usize, usize) {
        let asked = self.state.asked.lock().unwrap();
        (asked.len(), asked.values().map(|own| own.over_udp + own.over_tcp).sum())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.ends.store(true, SeqCst);
    }
}

/// A port that UDP and TCP both have.
pub fn bind_both() -> (UdpSocket, TcpListener) {
    for _ in 0..50 {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (udp, tcp);
        }
    }
    panic!("no port is free for UDP and TCP");
}

impl State {
    fn answer_udp(self: Arc<Self>, socket: &UdpSocket) {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let mut message = [0; 4096];
        while !self.ends.load(SeqCst) {
            let Ok((len, from)) = socket.recv_from(&mut message) else { continue };
            let question = Question::read(&message[..len]);
            self.asked.lock().unwrap().entry(question.name.clone()).or_default().over_udp += 1;
            if self.is_mute.load(SeqCst) {
                continue;
            }
            let (said, delay) = (question.say(false), question.rule.delay);
            let (socket, other) = (socket.try_clone().unwrap(), other.try_clone().unwrap());
            let send = move || {
                for Datagram { octets, is_stray } in said {
                    // A node that was killed takes nothing.
                    let _ = if is_stray { &other } else { &socket }.send_to(&octets, from);
                }
            };
            match delay {
                Duration::ZERO => send(),
                _ => {
                    std::thread::spawn(move || {
                        std::thread::sleep(delay);
                        send();
                    });
                }
            }
        }
    }

    fn answer_tcp(self: Arc<Self>, listener: &TcpListener) {
        listener.set_nonblocking(true).unwrap();
        while !self.ends.load(SeqCst) {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            stream.set_nonblocking(false).unwrap();
            let own = self.clone();
            // It ends with the client, whose end is an error here.
            std::thread::spawn(move || drop(own.converse(stream)));
        }
    }

    fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut len = [0; 2];
        loop {
            stream.read_exact(&mut len)?;
            let mut message = vec![0; u16::from_be_bytes(len) as usize];
            stream.read_exact(&mut message)?;
            let question = Question::read(&message);
            self.asked.lock().unwrap().entry(question.name.clone()).or_default().over_tcp += 1;
            if self.is_mute.load(SeqCst) {
                continue;
            }
            std::thread::sleep(question.rule.delay);
            for Datagram { octets, .. } in question.say(true) {
                stream.write_all(&frame(&octets))?;
            }
        }
    }
}

/// What goes out.
struct Datagram {
    octets: Vec<u8>,
    /// From a port that nobody asked.
    is_stray: bool,
}

/// What a name asks for besides its records.
struct Rule {
    manner: String,
    ttl_secs: u32,
    delay: Duration,
}

impl Rule {
    fn of(name: &str) -> Rule {
        let mut words = name.split('.').next().unwrap().split('-').peekable();
        let mut rule = Rule { manner: String::new(), ttl_secs: TTL_SECS, delay: Duration::ZERO };
        let number = |word: &str, of: &str| word.strip_prefix(of)?.parse::<u32>().ok();
        while let Some(word) = words.peek() {
            if let Some(secs) = number(word, "ttl") {
                rule.ttl_secs = secs;
            } else if let Some(millis) = number(word, "delay") {
                rule.delay = Duration::from_millis(millis.into());
            } else {
                break;
            }
            words.next();
        }
        let manner = words.next().unwrap_or_default();
        if words.next().is_some() {
            manner.clone_into(&mut rule.manner);
        }
        rule
    }
}

struct Question<'m> {
    /// Header and question as they came.
    start: &'m [u8],
    name: String,
    qtype: u16,
    has_edns: bool,
    rule: Rule,
}

impl<'m> Question<'m> {
    fn read(message: &'m [u8]) -> Question<'m> {
        let (mut at, mut labels) = (12, Vec::new());
        while message[at] != 0 {
            let label = &message[at + 1..][..message[at] as usize];
            labels.push(String::from_utf8_lossy(label).to_lowercase());
            at += 1 + label.len();
        }
        let name = labels.join(".");
        let qtype = u16::from_be_bytes([message[at + 1], message[at + 2]]);
        let rule = Rule::of(&name);
        Question { start: &message[..at + 5], name, qtype, has_edns: message[11] > 0, rule }
    }

    fn say(&self, over_tcp: bool) -> Vec<Datagram> {
        let usual = |octets| vec![Datagram { octets, is_stray: false }];
        match &*self.rule.manner {
            "timeout" => Vec::new(),
            "wrongid" | "wrongname" | "wrongport" => vec![self.forge(&self.rule.manner)],
            "forged" if !over_tcp => {
                let forged = ["wrongid", "wrongname", "wrongport"].map(|how| self.forge(how));
                forged.into_iter().chain(usual(self.answer(over_tcp))).collect()
            }
            "cut" => {
                let mut octets = self.answer(over_tcp);
                octets.truncate(octets.len() - 15);
                usual(octets)
            }
            _ => usual(self.answer(over_tcp)),
        }
    }

    /// An answer that must not be taken for one.
    fn forge(&self, how: &str) -> Datagram {
        let mut draft = Draft::new(self);
        draft.answer(POINTER, rtype::A, TTL_SECS, &FORGED.octets());
        let mut octets = draft.finish(0);
        match how {
            "wrongid" => octets[1] = octets[1].wrapping_add(1),
            "wrongname" => octets[13] = b'0',
            _ => {}
        }
        Datagram { octets, is_stray: how == "wrongport" }
    }

    fn answer(&self, over_tcp: bool) -> Vec<u8> {
        let ttl = self.rule.ttl_secs;
        let mut draft = Draft::new(self);
        match &*self.rule.manner {
            "nx" => {
                draft.soa(ttl);
                return draft.finish(3);
            }
            "servfail" => return draft.finish(2),
            "nodata" => draft.soa(ttl),
            "tc" => {
                let [a, b, c, d] = address_of(&self.name).octets();
                for number in if over_tcp { 0..3 } else { 0..1 } {
                    draft.answer(POINTER, rtype::A, ttl, &[a, b, c, d.wrapping_add(number)]);
                }
                if !over_tcp {
                    draft.octets[2] |= 0x02;
                }
            }
            "chain" => {
                let mut owner = POINTER;
                for (link, ttl) in [(b"\x05link1", ttl), (b"\x05link2", ttl.min(LINK_TTL_SECS))] {
                    draft.answer(owner, rtype::CNAME, ttl, &[&link[..], &POINTER].concat());
                    let at = draft.octets.len() - link.len() - POINTER.len();
                    owner = (0xc000 | at as u16).to_be_bytes();
                }
                draft.data(owner);
            }
            "out" => {
                let label = self.name.split('.').next().unwrap().split_once("out-").unwrap().1;
                let target = encode(&format!("{label}.{OUTSIDE}"));
                draft.answer(POINTER, rtype::CNAME, ttl, &target);
            }
            "oversized" if !over_tcp => {
                draft.data(POINTER);
                draft.answer(POINTER, rtype::TXT, ttl, &text(OVERSIZED_LEN));
            }
            _ => draft.data(POINTER),
        }
        draft.finish(0)
    }
}

/// The name that was asked for.
const POINTER: [u8; 2] = [0xc0, 12];

struct Draft<'a> {
    question: &'a Question<'a>,
    octets: Vec<u8>,
    answers: u8,
    authority: u8,
}

impl<'a> Draft<'a> {
    fn new(question: &'a Question<'a>) -> Draft<'a> {
        let mut octets = question.start.to_vec();
        // Recursion is available.
        (octets[2], octets[3]) = (0x80 | octets[2] & 1, 0x80);
        Draft { question, octets, answers: 0, authority: 0 }
    }

    /// What an ordinary name has.
    fn data(&mut self, owner: [u8; 2]) {
        let Question { name, qtype, rule, .. } = self.question;
        match *qtype {
            rtype::A => self.answer(owner, *qtype, rule.ttl_secs, &address_of(name).octets()),
            rtype::AAAA => self.answer(owner, *qtype, rule.ttl_secs, &address6_of(name).octets()),
            rtype::TXT => self.answer(owner, *qtype, rule.ttl_secs, &text(TEXT_LEN)),
            _ => self.soa(rule.ttl_secs),
        }
    }

    fn answer(&mut self, owner: [u8; 2], rtype: u16, ttl_secs: u32, data: &[u8]) {
        self.answers += 1;
        self.record(owner, rtype, ttl_secs, data);
    }

    /// Of the name above the one asked for.
    fn soa(&mut self, ttl_secs: u32) {
        let zone = [0xc0, 13 + self.octets[12]];
        let mut data = [zone, zone].concat();
        for number in [1, 3600, 600, 86_400, ttl_secs] {
            data.extend(u32::to_be_bytes(number));
        }
        self.authority += 1;
        self.record(zone, rtype::SOA, ttl_secs, &data);
    }

    fn record(&mut self, owner: [u8; 2], rtype: u16, ttl_secs: u32, data: &[u8]) {
        self.octets.extend(owner);
        self.octets.extend([rtype, 1].map(u16::to_be_bytes).concat());
        self.octets.extend(ttl_secs.to_be_bytes());
        self.octets.extend((data.len() as u16).to_be_bytes());
        self.octets.extend(data);
    }

    fn finish(mut self, code: u8) -> Vec<u8> {
        self.octets[3] |= code;
        let additional = u8::from(self.question.has_edns);
        self.octets[6..12].copy_from_slice(&[0, self.answers, 0, self.authority, 0, additional]);
        if self.question.has_edns {
            self.octets.extend(*b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
        }
        self.octets
    }
}

/// A name in wire form.
fn encode(name: &str) -> Vec<u8> {
    let labels =
        name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

fn text(len: usize) -> Vec<u8> {
    let mut data = vec![b'.'; len];
    for string in data.chunks_mut(256) {
        string[0] = (string.len() - 1) as u8;
    }
    data
}

/// FNV-1a.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The address of a name: no two of a test have the same.
pub fn address_of(name: &str) -> Ipv4Addr {
    Ipv4Addr::from(10 << 24 | (hash(name) as u32 & 0x00ff_ffff))
}

pub fn address6_of(name: &str) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(hash(name)))
}
