//! One cell before servers that say what a table has, each about the names of
//! its own domain.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Epoch, HashKey, Placement, Routing, View};
use domain::base::Message as Parsed;
use domain::base::opt::ExtendedError as ParsedError;
use wire::query::HEADER_LEN;
use wire::{Flags, rtype};

use super::super::scene::{START, ask_for, config, octets};
use super::super::{ANSWER_WITHIN, Datagram, StreamQuestion};
use super::*;
use crate::counts::Counts;

const TTL_SECS: u32 = 60;
const NO_ERROR: u16 = 0;
const SERVFAIL: u16 = 2;
const NX_DOMAIN: u16 = 3;
const REFUSED: u16 = 5;
/// A type that nobody knows (RFC 6895, 3.1).
const PRIVATE: u16 = 65_280;
/// Extended errors of RFC 8914.
const OTHER: u16 = 0;
const STALE_ANSWER: u16 = 3;
const NO_REACHABLE_AUTHORITY: u16 = 22;

/// What a server says about a name.
#[derive(Clone, Debug)]
enum Says {
    Alias(String),
    /// With another record, as large as a head may be.
    LargeAlias(String),
    Address,
    NxDomain,
    Refused,
    Nothing,
}

/// What a client got.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    code: u16,
    types: Vec<u16>,
    error: Option<u16>,
}

fn seen(code: u16, types: &[u16], error: Option<u16>) -> Seen {
    Seen { code, types: types.to_vec(), error }
}

struct Setting {
    cell: Cell,
    effects: Effects,
    now: Moment,
    /// By server and name; what is not there is refused.
    table: HashMap<(Address, String), Says>,
    /// Who was asked for what.
    asked: Vec<(Address, String)>,
}

/// The server with this number.
fn server(number: u8) -> Address {
    Address::Socket(SocketAddr::from(([192, 0, 2, number], 53)))
}

/// The text of a name in wire form, lowered.
fn text(name: &[u8]) -> String {
    let labels = wire::Name::parse(name).unwrap().labels();
    let labels = labels.map(|label| String::from_utf8_lossy(label).to_lowercase() + ".");
    labels.collect()
}

impl Setting {
    fn new(groups: &[(&str, &[Address])]) -> Setting {
        let view = Arc::new(View::new(0, Vec::new()).unwrap());
        let epoch = Epoch { number: 1, key: HashKey([7; 16]) };
        let routing = Arc::new(Routing::new(view, Placement::Rendezvous, 2, epoch));
        Setting {
            cell: Cell::new(config(groups), routing, Arc::new(Counts::default())),
            effects: Effects::default(),
            now: START,
            table: HashMap::new(),
            asked: Vec::new(),
        }
    }

    fn say(&mut self, server: Address, name: &str, says: Says) {
        self.table.insert((server, name.to_owned()), says);
    }

    fn alias(&mut self, server: Address, name: &str, target: &str) {
        self.say(server, name, Says::Alias(target.to_owned()));
    }

    /// Asks for the address of `name`, and lets everything happen that has to
    /// until there is a reply.
    fn ask(&mut self, name: &str) -> Seen {
        self.asked.clear();
        self.effects.clear();
        if let Some(reply) = ask_for(&mut self.cell, self.now, name, &mut self.effects) {
            return see(&reply);
        }
        loop {
            if let Some(reply) = self.effects.replies.first() {
                assert_eq!((self.effects.replies.len(), self.cell.sizes().pending), (1, 0));
                assert_eq!(self.cell.sizes().flights, 0);
                return see(&self.effects.octets[reply.octets.clone()]);
            }
            if !self.deliver() {
                self.now = self.cell.next_due().expect("it goes on").max(self.now);
                self.cell.tick(self.now, &mut self.effects);
            }
        }
    }

    /// Answers everything that is on its way; false if that is nothing.
    fn deliver(&mut self) -> bool {
        let datagrams = std::mem::take(&mut self.effects.datagrams);
        let streams = std::mem::take(&mut self.effects.streams);
        self.now = self.now + Duration::from_millis(1);
        for Datagram { to, port, octets } in &datagrams {
            if let Some(answer) = self.answer(Address::Socket(*to), octets) {
                // A copy comes later, as copies of datagrams do.
                for _ in 0..2 {
                    self.cell.take_datagram(self.now, *to, *port, &answer, &mut self.effects);
                }
            }
        }
        for StreamQuestion { to, token, octets } in &streams {
            let answer = self.answer(*to, octets);
            self.cell.take_stream(self.now, *token, answer.as_deref(), &mut self.effects);
        }
        !datagrams.is_empty() || !streams.is_empty()
    }

    fn answer(&mut self, server: Address, question: &[u8]) -> Option<Vec<u8>> {
        let name = wire::Name::parse(&question[HEADER_LEN..]).unwrap().as_bytes();
        let key = (server, text(name));
        let says = self.table.get(&key).cloned().unwrap_or(Says::Refused);
        self.asked.push(key);
        let mut message = question[..HEADER_LEN + name.len() + 4].to_vec();
        let alias = |target: &str| (rtype::CNAME, octets(target));
        let soa = [&[0, 0][..], &[0, 0, 0, 60].repeat(5)].concat();
        let (code, counts, records) = match says {
            Says::Nothing => return None,
            Says::Refused => (REFUSED, [0, 0], vec![]),
            Says::Alias(target) => (NO_ERROR, [1, 0], vec![alias(&target)]),
            Says::LargeAlias(target) => {
                (NO_ERROR, [2, 0], vec![alias(&target), (PRIVATE, vec![0; HEAD_LEN_MAX])])
            }
            Says::Address => (NO_ERROR, [1, 0], vec![(rtype::A, vec![192, 0, 2, 99])]),
            Says::NxDomain => (NX_DOMAIN, [0, 1], vec![(rtype::SOA, soa)]),
        };
        message[2..4].copy_from_slice(&(Flags::QR | Flags::RD | code).to_be_bytes());
        message[6..12].copy_from_slice(&[0, counts[0], 0, counts[1], 0, 0]);
        for (rtype, data) in records {
            message.extend([0xc0, 12]);
            message.extend([rtype, 1].iter().flat_map(|word| word.to_be_bytes()));
            message.extend(TTL_SECS.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        Some(message)
    }

    /// Who was asked for what, in order.
    fn asked(&self) -> Vec<(Address, &str)> {
        self.asked.iter().map(|(server, name)| (*server, &**name)).collect()
    }
}

fn see(reply: &[u8]) -> Seen {
    let parsed = Parsed::from_octets(reply).unwrap();
    let answers = parsed.answer().unwrap();
    let opt = parsed.opt().expect("the client speaks EDNS");
    let error = opt.opt().iter::<ParsedError<_>>().next();
    Seen {
        code: u16::from(reply[3] & 0xf),
        types: answers.map(|record| record.unwrap().rtype().to_int()).collect(),
        error: error.map(|error| error.unwrap().code().to_int()),
    }
}

/// `corp.test` at the second server, `own.test` here, all else at the first.
fn usual() -> Setting {
    let mut setting = Setting::new(&[
        (".", &[server(1)]),
        ("corp.test.", &[server(2)]),
        ("own.test.", &[Address::Local]),
    ]);
    setting.alias(server(2), "www.corp.test.", "cdn.example.");
    setting.alias(Address::Local, "www.own.test.", "cdn.example.");
    setting.say(server(1), "cdn.example.", Says::Address);
    setting
}

const WHOLE: [u16; 2] = [rtype::CNAME, rtype::A];

#[test]
fn an_alias_is_followed_to_those_who_know_its_target() {
    let mut setting = usual();
    for (name, first) in [("www.corp.test.", server(2)), ("www.own.test.", Address::Local)] {
        assert_eq!(setting.ask(name), seen(NO_ERROR, &WHOLE, None));
        assert_eq!(setting.asked(), [(first, name), (server(1), "cdn.example.")]);
        assert_eq!(setting.ask(name), seen(NO_ERROR, &WHOLE, None), "from cache");
        assert_eq!(setting.asked(), []);
    }
    assert_eq!(setting.cell.counts().upstream_followed.get(), 2);
    assert!(setting.cell.counts().upstream_strange.get() >= 2, "late copies are nobody's");
    // The chain is kept for the name that was asked for, and for no other.
    assert_eq!(setting.cell.sizes().l2_entries, 2);
    assert_eq!(setting.ask("cdn.example."), seen(NO_ERROR, &[rtype::A], None));
    assert_eq!(setting.asked(), [(server(1), "cdn.example.")]);
}

#[test]
fn the_end_of_a_chain_says_whether_the_name_is_there() {
    let mut setting = usual();
    setting.say(server(1), "cdn.example.", Says::NxDomain);
    for _ in 0..2 {
        assert_eq!(setting.ask("www.corp.test."), seen(NX_DOMAIN, &[rtype::CNAME], None));
    }
    assert_eq!(setting.asked(), [], "it is kept");
}

#[test]
fn an_alias_within_a_group_is_left_as_it_came() {
    let mut setting = usual();
    for (group, domain) in
        [(server(2), "corp.test."), (server(1), "test."), (Address::Local, "own.test.")]
    {
        let (name, target) = (format!("a.{domain}"), format!("b.{domain}"));
        setting.alias(group, &name, &target);
        setting.say(group, &target, Says::Address);
        assert_eq!(setting.ask(&name), seen(NO_ERROR, &[rtype::CNAME], None));
        assert_eq!(setting.asked(), [(group, &*name)]);
    }
}

#[test]
fn an_alias_to_what_nobody_knows_is_left_as_it_came() {
    let mut setting = Setting::new(&[("corp.test.", &[server(2)])]);
    setting.alias(server(2), "www.corp.test.", "cdn.example.");
    assert_eq!(setting.ask("www.corp.test."), seen(NO_ERROR, &[rtype::CNAME], None));
}

#[test]
fn own_zones_lead_on_to_the_other_servers_of_their_group() {
    let mut setting = Setting::new(&[(".", &[Address::Local, server(1)])]);
    setting.say(server(1), "cdn.example.", Says::Address);
    for number in 0..20 {
        let name = format!("www{number}.own.test.");
        setting.alias(Address::Local, &name, "cdn.example.");
        assert_eq!(setting.ask(&name), seen(NO_ERROR, &WHOLE, None));
        assert!(!setting.asked().contains(&(Address::Local, "cdn.example.")));
    }
}

/// Domains with a server each, in which each name is an alias of the one in the
/// next domain, so many times; then comes the address.
fn long_chain(hops: u8) -> Setting {
    let domains: Vec<(String, [Address; 1])> =
        (0..=hops).map(|number| (format!("d{number}."), [server(number + 1)])).collect();
    let groups: Vec<(&str, &[Address])> =
        domains.iter().map(|(domain, servers)| (&**domain, &servers[..])).collect();
    let mut setting = Setting::new(&groups);
    for number in 0..hops {
        let target = format!("a.d{}.", number + 1);
        setting.alias(server(number + 1), &format!("a.d{number}."), &target);
    }
    setting.say(server(hops + 1), &format!("a.d{hops}."), Says::Address);
    setting
}

#[test]
fn chains_lead_on_so_often_and_no_more() {
    let mut setting = long_chain(HOPS_MAX);
    let types = [&[rtype::CNAME; HOPS_MAX as usize][..], &[rtype::A]].concat();
    assert_eq!(setting.ask("a.d0."), seen(NO_ERROR, &types, None));
    let mut setting = long_chain(HOPS_MAX + 1);
    assert_eq!(setting.ask("a.d0."), seen(SERVFAIL, &[], Some(OTHER)));
    assert_eq!(setting.asked().len(), usize::from(HOPS_MAX) + 1);
}

#[test]
fn chains_that_lead_back_are_failures() {
    let mut setting = usual();
    setting.alias(server(1), "cdn.example.", "www.corp.test.");
    assert_eq!(setting.ask("www.corp.test."), seen(SERVFAIL, &[], Some(OTHER)));
    assert_eq!(setting.asked().len(), 2);
    setting.ask("www.corp.test.");
    assert_eq!(setting.asked(), [], "it is remembered");
}

#[test]
fn a_head_too_large_to_be_kept_waiting_is_a_failure() {
    let mut setting = usual();
    setting.say(server(2), "www.corp.test.", Says::LargeAlias("cdn.example.".to_owned()));
    assert_eq!(setting.ask("www.corp.test."), seen(SERVFAIL, &[], Some(OTHER)));
    assert_eq!(setting.asked(), [(server(2), "www.corp.test.")]);
}

#[test]
fn a_tail_that_fails_fails_the_question_within_its_time() {
    let mut setting = usual();
    setting.say(server(1), "cdn.example.", Says::Refused);
    let failure = seen(SERVFAIL, &[], Some(NO_REACHABLE_AUTHORITY));
    assert_eq!(setting.ask("www.corp.test."), failure);
    assert_eq!(setting.asked(), [(server(2), "www.corp.test."), (server(1), "cdn.example.")]);
    let mut setting = usual();
    setting.say(server(1), "cdn.example.", Says::Nothing);
    assert_eq!(setting.ask("www.corp.test."), failure);
    assert_eq!(setting.now, START + ANSWER_WITHIN);
    let tries = setting.asked().iter().filter(|asked| asked.1 == "cdn.example.").count();
    assert!(tries > 1, "asked again like any other question");
}

#[test]
fn data_past_its_time_is_better_than_a_tail_that_fails() {
    let mut setting = usual();
    setting.ask("www.corp.test.");
    setting.now = setting.now + Duration::from_secs(u64::from(TTL_SECS) + 1);
    setting.say(server(1), "cdn.example.", Says::Refused);
    assert_eq!(setting.ask("www.corp.test."), seen(NO_ERROR, &WHOLE, Some(STALE_ANSWER)));
    assert_eq!(setting.asked().len(), 2);
}
