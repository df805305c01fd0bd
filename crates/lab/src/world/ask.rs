//! Clients.

use std::net::{Ipv6Addr, SocketAddr};
use std::rc::Rc;

use cache::cell::{Ask, Asker, Opt};
use wire::{Flags, Verdict};

use super::{Happening, Phase, World};
use crate::checkers::Event;
use crate::inquiry::{Inquiry, Wish};
use crate::message::Message;
use crate::names::text_form;
use crate::node::{CellId, Node};
use crate::sabotage::Sabotage;
use crate::settings::{MILLI, SECOND};

/// Clients that ask the same at about the same time.
const BURST: std::ops::Range<u64> = 10..60;
/// And now and then far more.
const GREAT_BURST: u64 = 300;
const GREAT_PER_MILLE: u32 = 60;
const BURST_EVERY: std::ops::Range<u64> = SECOND..4 * SECOND;
/// Clients that ask again over a connection when a reply is cut off.
const RETRY_PER_MILLE: u32 = 700;
/// By how much a reply is held back that is to be too late.
const LATE: u64 = 5 * SECOND;

impl World {
    /// A client asks for a name as popular as it is, and the next one follows.
    pub(super) fn take_turn(&mut self) {
        let pause = self.chance.among(self.settings.pause_us.clone());
        self.queue.add(self.now + pause, Happening::Turn);
        if let (Some(name), Some(to)) = (self.draw_name(), self.draw_cell()) {
            let wish = Wish::draw(name, &mut self.chance);
            let over_stream = self.chance.happens(50);
            self.ask(to, wish, over_stream);
        }
    }

    /// Many clients ask the same of everybody.
    pub(super) fn burst(&mut self) {
        let pause = self.chance.among(BURST_EVERY);
        self.queue.add(self.now + pause, Happening::Burst);
        let Some(name) = self.draw_name() else { return };
        let wish = Wish::draw(name, &mut self.chance);
        let count = match self.chance.happens(GREAT_PER_MILLE) {
            true => GREAT_BURST,
            false => self.chance.among(BURST),
        };
        for _ in 0..count {
            if let Some(to) = self.draw_cell() {
                let at = self.now + self.chance.among(0..5 * MILLI);
                self.queue.add(at, Happening::Ask { to, wish, over_stream: false });
            }
        }
    }

    fn draw_name(&mut self) -> Option<usize> {
        match self.phase {
            Phase::Known => Some(self.known.draw(&mut self.chance)),
            Phase::New => Some(self.settings.names + self.new.draw(&mut self.chance)),
            Phase::Nothing => None,
        }
    }

    fn draw_cell(&mut self) -> Option<CellId> {
        let open = self.nodes.iter().enumerate().filter(|(_, node)| node.is_open && node.is_up());
        let open: Vec<usize> = open.map(|(at, _)| at).collect();
        if open.is_empty() {
            return None;
        }
        let node = self.chance.pick(&open);
        Some(CellId { node, cell: self.chance.index(self.nodes[node].cells.len()) })
    }

    /// A client asks.
    pub(super) fn ask(&mut self, to: CellId, wish: Wish, over_stream: bool) {
        if !self.nodes[to.node].is_open || self.phase == Phase::Nothing {
            return;
        }
        let number = self.inquiries.len() as u64;
        let name = self.names.get(wish.name);
        let inquiry =
            Inquiry::draw((number, self.now), to, wish, name, over_stream, &mut self.chance);
        let inquiry = Rc::new(inquiry);
        self.inquiries.push(inquiry.clone());
        self.wishes.push(wish);
        self.tally.asked += 1;
        let text = text_form(&inquiry.question);
        let (qtype, bits) = (wish.qtype, wish.bits.octet());
        self.trace.note(
            self.now,
            format_args!("{to} is asked #{number} {text} type {qtype} bits {bits}"),
        );
        self.show(&Event::Asked(&inquiry));
        self.put(&inquiry);
    }

    /// Puts a question to its cell.
    fn put(&mut self, inquiry: &Inquiry) {
        let (number, to) = (inquiry.number, inquiry.to);
        let verdict = self.query.read(&inquiry.octets);
        assert_eq!(verdict, Verdict::Answer, "clients ask well-formed questions");
        let (asker, from) = address(inquiry);
        let ask = Ask {
            hash: self.nodes[to.node].cells[to.cell].cell.hash_of(&self.query),
            query: &self.query,
            request: &inquiry.octets,
            asker,
            from: from.ip(),
            limit: inquiry.limit,
            opt: inquiry.dnssec_ok.map(|dnssec_ok| Opt {
                dnssec_ok,
                wants_nsid: false,
                cookie: None,
                keepalive: None,
            }),
        };
        let node = &mut self.nodes[to.node];
        let moment = node.moment(self.now);
        let running = &mut node.cells[to.cell];
        let mut out = std::mem::take(&mut self.out);
        let answered = running.cell.ask(moment, &ask, &mut out, &mut self.effects);
        if let Some(answered) = answered {
            self.reply(number, &out[..answered.len]);
        }
        self.out = out;
        self.take_effects(to);
    }

    /// Somebody asks whom no checker sees.
    pub(super) fn ask_unseen(&mut self) {
        let node = self.nodes.iter().position(Node::is_up).expect("one node is always up");
        let name = self.names.len() - 1;
        let wish = Wish { name, qtype: wire::rtype::TXT, bits: Default::default() };
        let (number, to) = (self.inquiries.len() as u64, CellId { node, cell: 0 });
        let name = self.names.get(name);
        let inquiry = Inquiry::draw((number, self.now), to, wish, name, false, &mut self.chance);
        self.put(&inquiry);
    }

    /// A reply leaves its node.
    pub(super) fn reply(&mut self, number: u64, octets: &[u8]) {
        let mut octets = octets.to_vec();
        let has_records = octets[7] > 0 && octets.len() > 40;
        let is_failure = octets[3] & 0xf == 2;
        if has_records && self.sabotages(Sabotage::AlteredReply) {
            let at = octets.len() / 2;
            octets[at] ^= 1;
        } else if has_records && self.sabotages(Sabotage::NeedlessFailure) {
            let inquiry = &self.inquiries[number as usize];
            octets.truncate(12 + inquiry.question.len());
            octets[3] |= 2;
            octets[6..12].fill(0);
        } else if is_failure && self.sabotages(Sabotage::EmptiedFailure) {
            octets[3] &= 0xf0;
        } else if self.sabotages(Sabotage::LostReply) {
            return;
        } else if self.sabotages(Sabotage::DoubledReply) {
            self.note_reply(number, &octets);
        } else if self.sabotages(Sabotage::LateReply) {
            return self.queue.add(self.now + LATE, Happening::Reply { number, octets });
        }
        self.note_reply(number, &octets);
    }

    /// A reply comes to its client.
    pub(super) fn note_reply(&mut self, number: u64, octets: &[u8]) {
        self.tally.replied += 1;
        self.trace.note(self.now, format_args!("reply to #{number}, {} octets", octets.len()));
        self.trace.note_octets(octets);
        self.show(&Event::Replied { number, octets });
        let Some(message) = Message::read(octets) else { return };
        self.tally.failed += u64::from(message.rcode() == 2);
        let error = message.opt.and_then(|opt| opt.error);
        self.tally.stale += u64::from(matches!(error, Some(3 | 19)));
        let inquiry = &self.inquiries[number as usize];
        if message.flags.has(Flags::TC) && !inquiry.over_stream {
            let (to, wish) = (inquiry.to, self.wishes[number as usize]);
            if self.chance.happens(RETRY_PER_MILLE) {
                self.queue.add(self.now + MILLI, Happening::Ask { to, wish, over_stream: true });
            }
        }
    }
}

/// Where a client is. The number of its inquiry is in the part of the address
/// that tells hosts of one network from each other.
fn address(inquiry: &Inquiry) -> (Asker, SocketAddr) {
    let network = 0x2001_0db8_u128 << 96 | u128::from(inquiry.client) << 64;
    let from = Ipv6Addr::from_bits(network | u128::from(inquiry.number));
    let from = SocketAddr::from((from, 53));
    let asker = match inquiry.over_stream {
        true => Asker::Stream(inquiry.number),
        false => Asker::Datagram { listener: 0, from, to: None },
    };
    (asker, from)
}

/// The number of the inquiry that a reply is for.
pub(super) fn number_of(asker: Asker) -> u64 {
    match asker {
        Asker::Stream(number) => number,
        Asker::Datagram { from, .. } => match from {
            SocketAddr::V6(from) => from.ip().to_bits() as u64,
            SocketAddr::V4(_) => panic!("clients have long addresses"),
        },
    }
}
