//! Questions as clients send them, and replies as they read them.

use std::collections::HashMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use wire::rtype;

use crate::common::{PATIENCE, exchange_udp, frame, question, read_frame};

/// A question for `name`; with EDNS if there is a size to offer.
pub fn message(name: &str, qtype: u16, payload: Option<u16>) -> Vec<u8> {
    let mut message = question(name);
    let end = message.len();
    message[end - 4..end - 2].copy_from_slice(&qtype.to_be_bytes());
    if let Some(payload) = payload {
        message[11] = 1;
        message.extend([0, 0, 41]);
        message.extend(payload.to_be_bytes());
        message.extend([0; 6]);
    }
    message
}

/// Asks for the address of `name`, with EDNS, so that a failure says why.
pub fn ask(server: SocketAddr, name: &str) -> Reply {
    ask_for(server, name, rtype::A)
}

pub fn ask_for(server: SocketAddr, name: &str, qtype: u16) -> Reply {
    Reply::read(&exchange_udp(server, &message(name, qtype, Some(1232))))
}

pub fn ask_over_tcp(server: SocketAddr, message: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&frame(message)).unwrap();
    Reply::read(&read_frame(&mut stream))
}

/// Asks for the addresses of many names, of all `servers` in turn, so many at
/// a time; gives each reply to `check`.
pub fn ask_many(
    servers: &[SocketAddr],
    names: impl IntoIterator<Item = String>,
    at_a_time: usize,
    mut check: impl FnMut(&str, &Reply),
) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut names = names.into_iter().zip(servers.iter().cycle()).zip((0..=u16::MAX).cycle());
    let mut waiting: HashMap<u16, String> = HashMap::new();
    let mut octets = [0; 4096];
    loop {
        while waiting.len() < at_a_time
            && let Some(((name, server), id)) = names.next()
        {
            let mut message = message(&name, rtype::A, Some(1232));
            message[..2].copy_from_slice(&id.to_be_bytes());
            socket.send_to(&message, server).unwrap();
            assert_eq!(waiting.insert(id, name), None);
        }
        if waiting.is_empty() {
            return;
        }
        let Ok(len) = socket.recv(&mut octets) else { panic!("no answer for {waiting:?}") };
        let reply = Reply::read(&octets[..len]);
        let name = waiting.remove(&reply.id).expect("an answer to a question");
        check(&name, &reply);
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub id: u16,
    pub flags: u16,
    pub answers: Vec<Record>,
    pub authority: Vec<Record>,
    pub edns: Option<Edns>,
    pub len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub rtype: u16,
    pub ttl_secs: u32,
    pub data: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edns {
    pub payload: u16,
    /// The code of its extended error (RFC 8914).
    pub error: Option<u16>,
}

impl Reply {
    pub fn read(octets: &[u8]) -> Reply {
        let number = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let mut at = 12;
        for _ in 0..number(4) {
            at = name_end(octets, at) + 4;
        }
        let mut sections = [6, 8, 10].map(|count| {
            let records = (0..number(count)).map(|_| {
                let start = name_end(octets, at);
                let data = &octets[start + 10..][..number(start + 8) as usize];
                at = start + 10 + data.len();
                let ttl_secs = u32::from_be_bytes(*octets[start + 4..].first_chunk().unwrap());
                // Where the class stands, OPT has its size.
                (number(start + 2), Record { rtype: number(start), ttl_secs, data: data.to_vec() })
            });
            records.collect::<Vec<_>>()
        });
        assert_eq!(at, octets.len(), "nothing behind the last record");
        let opt = sections[2].iter().find(|(_, record)| record.rtype == rtype::OPT);
        let edns = opt.map(|(payload, record)| Edns {
            payload: *payload,
            error: extended_error(&record.data),
        });
        let mut section = |place: usize| {
            std::mem::take(&mut sections[place]).into_iter().map(|(_, record)| record).collect()
        };
        Reply {
            id: number(0),
            flags: number(2),
            answers: section(0),
            authority: section(1),
            edns,
            len: octets.len(),
        }
    }

    pub fn code(&self) -> u16 {
        self.flags & 0xf
    }

    /// It says that it is not whole.
    pub fn is_cut(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// The code of its extended error.
    pub fn error(&self) -> Option<u16> {
        self.edns.as_ref()?.error
    }

    pub fn types(&self) -> Vec<u16> {
        self.answers.iter().map(|record| record.rtype).collect()
    }

    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        let addresses = self.answers.iter().filter(|record| record.rtype == rtype::A);
        addresses.map(|own| Ipv4Addr::from(*own.data.first_chunk::<4>().unwrap())).collect()
    }
}

fn name_end(octets: &[u8], mut at: usize) -> usize {
    loop {
        match octets[at] {
            0 => return at + 1,
            0xc0.. => return at + 2,
            len => at += 1 + len as usize,
        }
    }
}

fn extended_error(mut options: &[u8]) -> Option<u16> {
    while let [code_high, code_low, len_high, len_low, rest @ ..] = options {
        let len = u16::from_be_bytes([*len_high, *len_low]) as usize;
        if [*code_high, *code_low] == [0, 15] {
            return Some(u16::from_be_bytes([rest[0], rest[1]]));
        }
        options = &rest[len..];
    }
    None
}
