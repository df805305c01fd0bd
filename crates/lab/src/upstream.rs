//! The upstream servers, and somebody who forges their answers.
//!
//! Every answer carries a number of its own in its records, so that a reply
//! tells which answer it was made from, and so when that was true.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use cache::{Bits, Question};
use wire::{Flags, Rcode, rtype};

use crate::chance::Chance;
use crate::message::{Builder, Message, Record};
use crate::names::{Behaviour, Name, Names};
use crate::queue::Micros;

/// Records of an answer that fits no datagram.
const BIG: u32 = 120;
/// Octets that a server puts into a datagram.
const DATAGRAM_LEN_MAX: usize = 1232;
/// Time to live of what is forged: worth the effort.
const FORGED_TTL_SECS: u32 = 3600;
/// How much longer than the answer each of its later records lives.
const LONGER_SECS: u32 = 3;

/// One server.
#[derive(Clone, Debug)]
pub struct Server {
    pub address: SocketAddr,
    pub latency_us: Range<u64>,
    /// It gives names back in lower case.
    pub lowers_case: bool,
}

/// What is wrong upstream just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Datagrams lost on either way.
    pub loss_per_mille: u32,
    /// Answers that take a second longer.
    pub slow_per_mille: u32,
    /// No server says a word.
    pub is_silent: bool,
    /// All servers say SERVFAIL.
    pub is_failing: bool,
}

/// A question as a server reads it.
#[derive(Clone, Debug)]
pub struct Heard {
    pub id: u16,
    /// Name, type and class as sent.
    pub question: Vec<u8>,
    pub name: Vec<u8>,
    pub qtype: u16,
    pub bits: Bits,
    /// The question in the form in which nodes know it.
    pub key: Vec<u8>,
}

/// What a server said, or what somebody forged.
#[derive(Clone, Debug)]
pub struct Said {
    pub number: u32,
    pub key: Vec<u8>,
    pub at: Micros,
    pub rcode: u16,
    pub is_vouched: bool,
    /// As they should be in a reply that is given at once.
    pub sections: [Vec<Record>; 3],
    /// The least of the times to live.
    pub ttl_secs: u32,
    /// Octets of the message.
    pub len: usize,
    pub is_forged: bool,
}

/// An answer on its way; `said` if it is one that may be kept or served.
#[derive(Clone, Debug)]
pub struct Saying {
    pub octets: Vec<u8>,
    pub said: Option<Rc<Said>>,
}

/// What is wrong with a forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    Id,
    Port,
    Source,
    Name,
    Case,
    /// Nothing: no such forgery could be told from the truth.
    None,
}

impl Flaw {
    pub const ALL: [Flaw; 5] = [Flaw::Id, Flaw::Port, Flaw::Source, Flaw::Name, Flaw::Case];
}

#[derive(Clone, Debug, Default)]
pub struct Upstream {
    pub servers: Vec<Server>,
    pub weather: Weather,
    /// Answers that were numbered.
    count: u32,
}

impl Heard {
    /// Reads a question of a node; `None` if it is none.
    pub fn read(octets: &[u8]) -> Option<Heard> {
        let message = Message::read(octets)?;
        let (name, qtype) = message.asked();
        let mut bits = Bits::default();
        if message.opt.is_some_and(|opt| opt.dnssec_ok) {
            bits = bits.with(Bits::DO);
        }
        if message.flags.has(Flags::CD) {
            bits = bits.with(Bits::CD);
        }
        let mut key = Vec::new();
        Question { name: &name, qtype, qclass: 1, bits }.encode(&mut key);
        Some(Heard { id: message.id, question: message.question, name, qtype, bits, key })
    }
}

impl Upstream {
    pub fn new(servers: Vec<Server>) -> Self {
        Upstream { servers, ..Upstream::default() }
    }

    /// What the `server`th server says to a question; `None` if nothing.
    pub fn answer(
        &mut self,
        now: Micros,
        server: usize,
        heard: &Heard,
        over_stream: bool,
        names: &Names,
    ) -> Option<Saying> {
        let name = names.find(&heard.name)?;
        if self.weather.is_silent || name.behaviour == Behaviour::Silent {
            return None;
        }
        let mut heard = heard.clone();
        if self.servers[server].lowers_case {
            heard.question[..heard.name.len()].make_ascii_lowercase();
        }
        let plain = |code: Rcode| {
            let octets = builder(&heard, code as u16).opt(DATAGRAM_LEN_MAX as u16, false).finish();
            Some(Saying { octets, said: None })
        };
        match name.behaviour {
            _ if self.weather.is_failing => plain(Rcode::ServFail),
            Behaviour::Fails => plain(Rcode::ServFail),
            Behaviour::Refuses => plain(Rcode::Refused),
            Behaviour::Bare => plain(Rcode::NoError),
            Behaviour::CutOff => Some(Saying { octets: cut_off(&heard), said: None }),
            Behaviour::Broken => {
                self.count += 1;
                Some(Saying { octets: broken(&heard, self.count), said: None })
            }
            _ => {
                let (octets, said) = self.compose(now, &heard, name);
                match octets.len() > DATAGRAM_LEN_MAX && !over_stream {
                    true => Some(Saying { octets: cut_off(&heard), said: None }),
                    false => Some(Saying { octets, said: Some(Rc::new(said)) }),
                }
            }
        }
    }

    /// An answer to `heard` that no server gave, and what is wrong with it is
    /// for whoever delivers it, unless it is in the message.
    pub fn forge(&mut self, now: Micros, heard: &Heard, flaw: Flaw, chance: &mut Chance) -> Saying {
        let mut heard = heard.clone();
        match flaw {
            Flaw::Id => heard.id ^= chance.among(1..0x10000) as u16,
            // The last letter of the first label.
            Flaw::Case => heard.question[1] ^= 0x20,
            Flaw::Name => heard.question[1] ^= 0x01,
            Flaw::Port | Flaw::Source | Flaw::None => {}
        }
        let bait = Name {
            octets: heard.name.clone(),
            behaviour: chance.pick(&[Behaviour::Plain, Behaviour::NxDomain, Behaviour::NoData]),
            ttl_secs: FORGED_TTL_SECS,
            is_vouched: false,
        };
        let (octets, said) = self.compose(now, &heard, &bait);
        Saying { octets, said: Some(Rc::new(Said { is_forged: true, ..said })) }
    }

    /// The answer to a question for `name`, with a number of its own.
    fn compose(&mut self, now: Micros, heard: &Heard, name: &Name) -> (Vec<u8>, Said) {
        self.count += 1;
        let number = self.count;
        let is_negative = matches!(name.behaviour, Behaviour::NoData | Behaviour::NxDomain);
        let rcode = match name.behaviour {
            Behaviour::NxDomain => Rcode::NxDomain,
            _ => Rcode::NoError,
        };
        let mut message = builder(heard, rcode as u16);
        if name.is_vouched {
            message = builder(heard, rcode as u16 | Flags::AD);
        }
        message = match is_negative {
            true => with_denial(message, number, name.ttl_secs),
            false => with_data(message, heard, name, number),
        };
        let octets = message.opt(DATAGRAM_LEN_MAX as u16, heard.bits.has(Bits::DO)).finish();
        let mut sections = Message::read(&octets).expect("it was put together here").sections;
        for denial in sections[1].iter_mut().filter(|record| record.rtype == rtype::SOA) {
            // RFC 2308, 5.
            denial.ttl_secs = denial.ttl_secs.min(name.ttl_secs);
        }
        let said = Said {
            number,
            key: heard.key.clone(),
            at: now,
            rcode: rcode as u16,
            is_vouched: name.is_vouched,
            sections,
            ttl_secs: name.ttl_secs,
            len: octets.len(),
            is_forged: false,
        };
        (octets, said)
    }
}

/// The number of the answer that a message was made from.
pub fn number_of(message: &Message) -> Option<u32> {
    let number = |record: &Record| {
        let at = match record.rtype {
            rtype::A | rtype::AAAA => 0,
            rtype::TXT => 1,
            rtype::SOA => record.data.len().checked_sub(20)?,
            _ => return None,
        };
        Some(u32::from_be_bytes(*record.data.get(at..)?.first_chunk()?))
    };
    message.records().find_map(number)
}

fn builder(heard: &Heard, flags: u16) -> Builder {
    Builder::new(heard.id, Flags::QR | Flags::RD | Flags::RA | flags, &heard.question)
}

fn cut_off(heard: &Heard) -> Vec<u8> {
    builder(heard, Flags::TC).opt(DATAGRAM_LEN_MAX as u16, false).finish()
}

fn with_denial(message: Builder, number: u32, ttl_secs: u32) -> Builder {
    let words = [number, 7200, 900, 86_400, ttl_secs];
    let data: Vec<u8> =
        [0, 0].into_iter().chain(words.iter().flat_map(|word| word.to_be_bytes())).collect();
    message.record(1, Some(b"\x04test\0"), rtype::SOA, ttl_secs + LONGER_SECS, &data)
}

fn with_data(mut message: Builder, heard: &Heard, name: &Name, number: u32) -> Builder {
    let links = if let Behaviour::Alias(links) = name.behaviour { links } else { 0 };
    let mut owner: Option<Vec<u8>> = None;
    let mut ttl_secs = name.ttl_secs;
    for link in 0..links {
        let label = format!("a{link}x{number}");
        let mut target = vec![label.len() as u8];
        target.extend_from_slice(label.as_bytes());
        target.extend_from_slice(b"\x05alias\x04test\0");
        message = message.record(0, owner.as_deref(), rtype::CNAME, ttl_secs, &target);
        ttl_secs += LONGER_SECS;
        owner = Some(target);
    }
    let count = if name.behaviour == Behaviour::Big { BIG } else { 1 + number % 3 };
    for index in 0..count {
        let data = data_of(heard.qtype, number, index);
        message = message.record(0, owner.as_deref(), heard.qtype, ttl_secs, &data);
    }
    if heard.bits.has(Bits::DO) {
        let signature = signature_of(heard.qtype, number);
        message = message.record(0, owner.as_deref(), rtype::RRSIG, ttl_secs, &signature);
    }
    message
}

/// Data of a record: the answer's number in the first, and after it whatever
/// tells one record from the other.
fn data_of(qtype: u16, number: u32, index: u32) -> Vec<u8> {
    let both = [number.to_be_bytes(), index.to_be_bytes()].concat();
    match qtype {
        rtype::A if index == 0 => number.to_be_bytes().to_vec(),
        rtype::A => (0xf000_0000 | index << 16 | number & 0xffff).to_be_bytes().to_vec(),
        rtype::AAAA => [&both[..], &[0; 8]].concat(),
        _ => [&[8], &both[..]].concat(),
    }
}

/// What has the form of a signature (RFC 4034, 3.1).
fn signature_of(qtype: u16, number: u32) -> Vec<u8> {
    let mut data = qtype.to_be_bytes().to_vec();
    data.extend([13, 3]);
    data.extend([0; 14]);
    data.extend(b"\x04test\0");
    data.extend(number.to_be_bytes().repeat(16));
    data
}

/// A message that no cache may take, of a kind that the number decides.
fn broken(heard: &Heard, number: u32) -> Vec<u8> {
    let message = builder(heard, 0);
    let data = data_of(heard.qtype, number, 0);
    let elsewhere = b"\x09elsewhere\x04test\0";
    match number % 5 {
        // Aliases that lead back to each other.
        0 => message
            .record(0, None, rtype::CNAME, 60, elsewhere)
            .record(0, Some(elsewhere), rtype::CNAME, 60, &heard.name)
            .finish(),
        1 => message.record(0, Some(elsewhere), heard.qtype, 60, &data).finish(),
        2 => [message.record(0, None, heard.qtype, 60, &data).finish(), vec![0; 3]].concat(),
        3 => {
            let mut octets = message.record(0, None, heard.qtype, 60, &data).finish();
            octets.pop();
            octets
        }
        // A referral.
        _ => message.record(1, Some(b"\x04test\0"), rtype::NS, 60, elsewhere).finish(),
    }
}
