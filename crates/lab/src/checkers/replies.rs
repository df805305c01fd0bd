//! Every reply is right.

use std::collections::BTreeMap;
use std::rc::Rc;

use cache::cell::ANSWER_WITHIN;
use wire::{Flags, Rcode};

use super::{Checker, Event};
use crate::inquiry::Inquiry;
use crate::message::{Message, Record};
use crate::names::{Behaviour, Names, text_form};
use crate::node::CellId;
use crate::queue::Micros;
use crate::settings::SECOND;
use crate::upstream::{Said, number_of};

/// How much older than it knows an answer may be: ages travel, and what they
/// grow by on the way is not counted.
const WAY: Micros = SECOND;
/// How long upstream trouble is felt: until nobody waits any more, and what
/// failed is forgotten by whoever heard of it from whoever saw it.
const AFTERMATH: Micros = ANSWER_WITHIN.as_micros() as u64 + 20 * SECOND;
/// Octets that an OPT record of ours may add to what upstream said.
const OPT_LEN_MAX: usize = 100;
/// TTL of data past its time, and the extended errors that mark it.
const STALE_TTL_SECS: u32 = 30;
const STALE_ERRORS: [u16; 2] = [3, 19];

/// A reply is for its question, id and case; its records are, all of them,
/// what an upstream server said to this very question, not longer ago than
/// their time to live, which is what is left of it; or they are past their time
/// but not too far, marked, and upstream is in trouble. That something is not
/// there is only said if upstream said so, and SERVFAIL only for names that
/// fail, or in trouble, and not by a cell that gave data to somebody else which
/// may still be used.
#[derive(Debug)]
pub struct Replies {
    stale_secs: u32,
    names: Rc<Names>,
    open: BTreeMap<u64, Rc<Inquiry>>,
    said: BTreeMap<u32, Rc<Said>>,
    /// When the last trouble upstream is over, with all that follows.
    trouble_until: Micros,
    /// Until when each cell may use the data that it gave for a question; not
    /// kept if data may be pushed out.
    given: Option<BTreeMap<(CellId, Vec<u8>), Micros>>,
}

impl Replies {
    /// `has_room` if nothing is ever pushed out of the tables.
    pub fn new(stale_secs: u32, has_room: bool, names: Rc<Names>) -> Self {
        Replies {
            given: has_room.then(BTreeMap::new),
            stale_secs,
            names,
            open: BTreeMap::new(),
            said: BTreeMap::new(),
            trouble_until: 0,
        }
    }

    fn check(&mut self, now: Micros, inquiry: &Inquiry, octets: &[u8]) -> Result<(), String> {
        let message = Message::read(octets).ok_or("it is not well formed")?;
        check_frame(inquiry, &message, octets.len())?;
        let (name, _) = message.asked();
        let behaviour = self.names.find(&name).ok_or("nobody asks for this name")?.behaviour;
        let is_trouble = now < self.trouble_until;
        if message.flags.has(Flags::TC) {
            let is_long = |said: &&Rc<Said>| said.len + OPT_LEN_MAX > inquiry.limit;
            let mut longs = self.said.values().filter(|said| said.key == inquiry.key);
            return expect(longs.any(|said| is_long(&said)), "cut off, but upstream's was short");
        }
        let is_bare = message.records().next().is_none();
        if message.rcode() == Rcode::ServFail as u16 {
            expect(is_bare, "a failure with records")?;
            let error = message.opt.map(|opt| opt.error);
            expect(error != Some(None), "a failure without an extended error")?;
            let may_fail = is_trouble || !behaviour.is_answered();
            expect(may_fail, "a failure, but upstream answers")?;
            let key = (inquiry.to, inquiry.key.clone());
            let given = self.given.as_ref().and_then(|given| given.get(&key));
            let has_data = given.is_some_and(|until| inquiry.at < *until);
            return expect(!has_data, "a failure, but it gave data that may still be used");
        }
        if is_bare {
            let said_so = message.rcode() == 0 && behaviour == Behaviour::Bare;
            return expect(said_so, "no records, which upstream did not say");
        }
        let number = number_of(&message).ok_or("its records are nobody's")?;
        let said = self.said.get(&number).ok_or(format!("nobody said number {number}"))?;
        if said.is_forged {
            // Another checker's affair.
            return Ok(());
        }
        check_content(inquiry, &message, said)?;
        self.check_age(now, &message, said, is_trouble)
            .map_err(|what| format!("{what}; upstream said it {} µs ago", now - said.at))?;
        if let Some(given) = &mut self.given
            && said.ttl_secs > 0
            && self.stale_secs > 0
        {
            let until = said.at + u64::from(said.ttl_secs + self.stale_secs) * SECOND;
            let last = given.entry((inquiry.to, inquiry.key.clone())).or_default();
            *last = until.max(*last);
        }
        Ok(())
    }

    fn check_age(
        &self,
        now: Micros,
        message: &Message,
        said: &Said,
        is_trouble: bool,
    ) -> Result<(), String> {
        let age = now - said.at;
        let lived = u64::from(said.ttl_secs) * SECOND;
        let pairs = || message.records().zip(said.sections.iter().flatten());
        let is_left = |(got, had): (&Record, &Record)| {
            let left = |age: Micros| had.ttl_secs.saturating_sub((age / SECOND) as u32);
            (left(age)..=left(age.saturating_sub(WAY))).contains(&got.ttl_secs)
        };
        // What lives for no time is for whoever waits.
        let wait = if said.ttl_secs == 0 { ANSWER_WITHIN.as_micros() as u64 } else { 0 };
        let is_fresh = age <= lived + WAY + wait && pairs().all(is_left);
        if is_fresh {
            let error = message.opt.and_then(|opt| opt.error);
            return expect(
                !error.is_some_and(|error| STALE_ERRORS.contains(&error)),
                "fresh, but marked as stale",
            );
        }
        expect(age + WAY >= lived, "its times to live are not what is left of them")?;
        // How far past its time it is counts when somebody begins to wait.
        let stale_max = u64::from(self.stale_secs) * SECOND + ANSWER_WITHIN.as_micros() as u64;
        expect(self.stale_secs > 0, "past its time, which nobody allowed")?;
        expect(age <= lived + stale_max + SECOND + WAY, "too far past its time")?;
        let ttls_are_right = pairs().all(|(got, _)| got.ttl_secs == STALE_TTL_SECS);
        expect(ttls_are_right, "past its time, with a time to live that does not say so")?;
        let is_marked = message
            .opt
            .is_none_or(|opt| opt.error.is_some_and(|error| STALE_ERRORS.contains(&error)));
        expect(is_marked, "past its time, and not marked")?;
        expect(is_trouble, "past its time, but upstream answers")
    }
}

impl Checker for Replies {
    fn name(&self) -> &'static str {
        "replies"
    }

    fn see(&mut self, now: Micros, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Asked(inquiry) => {
                self.open.insert(inquiry.number, inquiry.clone());
            }
            Event::Said(said) => {
                self.said.insert(said.number, said.clone());
            }
            Event::Crashed { node } | Event::Stopped { node } => {
                if let Some(given) = &mut self.given {
                    given.retain(|(cell, _), _| cell.node != node);
                }
            }
            Event::Weather { is_bad } => {
                self.trouble_until = if is_bad { Micros::MAX } else { now + AFTERMATH };
            }
            Event::Replied { number, octets } => {
                let Some(inquiry) = self.open.remove(&number) else { return Ok(()) };
                let named = |what| {
                    let name = text_form(&inquiry.question);
                    format!("reply to inquiry {number} for {name}: {what}; got {octets:02x?}")
                };
                self.check(now, &inquiry, octets).map_err(named)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn expect(is_so: bool, what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

/// What every reply has in common.
fn check_frame(inquiry: &Inquiry, message: &Message, len: usize) -> Result<(), String> {
    expect(len <= inquiry.limit, "it is longer than the client takes")?;
    expect(message.id == inquiry.id, "another id")?;
    expect(message.question == inquiry.question, "another question, or in other letters")?;
    let copied = Flags::RD | Flags::CD | Flags::OPCODE;
    expect(message.flags.0 & copied == inquiry.flags.0 & copied, "flags that were not sent")?;
    expect(message.flags.has(Flags::QR) && message.flags.has(Flags::RA), "no resolver's reply")?;
    expect(!message.flags.has(Flags::AA), "authority that nobody has here")?;
    let dnssec_ok = message.opt.map(|opt| opt.dnssec_ok);
    expect(dnssec_ok == inquiry.dnssec_ok, "another OPT record than the question's")
}

/// The reply says what upstream said, but for times to live.
fn check_content(inquiry: &Inquiry, message: &Message, said: &Said) -> Result<(), String> {
    expect(said.key == inquiry.key, "what upstream said to another question")?;
    expect(said.rcode == message.rcode(), "another code than upstream's")?;
    let knows_ad = inquiry.flags.has(Flags::AD) || inquiry.dnssec_ok == Some(true);
    let is_vouched = message.flags.has(Flags::AD);
    expect(is_vouched == (said.is_vouched && knows_ad), "AD is not what upstream said")?;
    let bare = |record: &Record| Record { ttl_secs: 0, ..record.clone() };
    for (got, had) in message.sections.iter().zip(&said.sections) {
        let is_same = got.iter().map(bare).eq(had.iter().map(bare));
        expect(is_same, "other records than upstream's")?;
    }
    Ok(())
}
