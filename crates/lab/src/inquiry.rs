//! A question of a client, and all that its reply depends on.

use cache::{Bits, Question};
use wire::{Flags, rtype};

use crate::chance::Chance;
use crate::message::Builder;
use crate::names::Name;
use crate::node::CellId;
use crate::queue::Micros;

/// Octets of a reply in a datagram to whoever does not speak EDNS.
const PLAIN_LIMIT: usize = 512;
/// Octets of a reply in a datagram that this server sends at the most.
const PAYLOAD: u16 = 1232;
const STREAM_LIMIT: usize = 65_535;

/// What a client asked.
#[derive(Clone, Debug)]
pub struct Inquiry {
    pub number: u64,
    pub at: Micros,
    pub to: CellId,
    /// The client, of which there are some.
    pub client: u8,
    pub over_stream: bool,
    pub id: u16,
    pub flags: Flags,
    /// Name, type and class, in the letters that were sent.
    pub question: Vec<u8>,
    /// The question in the form in which nodes know it.
    pub key: Vec<u8>,
    pub limit: usize,
    /// DO of the client's OPT record, if it sent one.
    pub dnssec_ok: Option<bool>,
    pub octets: Vec<u8>,
}

/// The part of a question that decides its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The place of the name.
    pub name: usize,
    pub qtype: u16,
    pub bits: Bits,
}

impl Wish {
    /// A question about a name; most ask for the same.
    pub fn draw(name: usize, chance: &mut Chance) -> Self {
        let plain = Bits::default();
        Wish {
            name,
            qtype: chance.weigh(&[(8, rtype::A), (3, rtype::AAAA), (1, rtype::TXT)]),
            bits: chance.weigh(&[
                (8, plain),
                (3, Bits::DO),
                (1, Bits::CD),
                (1, Bits::DO.with(Bits::CD)),
            ]),
        }
    }
}

impl Inquiry {
    /// The question of one client for `wish`, with everything else drawn.
    pub fn draw(
        (number, at): (u64, Micros),
        to: CellId,
        wish: Wish,
        name: &Name,
        over_stream: bool,
        chance: &mut Chance,
    ) -> Self {
        let mut question: Vec<u8> = name.octets.clone();
        let is_mixed = chance.happens(500);
        for octet in question.iter_mut().filter(|octet| octet.is_ascii_lowercase()) {
            if is_mixed && chance.happens(500) {
                octet.make_ascii_uppercase();
            }
        }
        question.extend([wish.qtype.to_be_bytes(), [0, 1]].concat());
        let mut key = Vec::new();
        Question { name: &name.octets, qtype: wish.qtype, qclass: 1, bits: wish.bits }
            .encode(&mut key);
        let mut flags = Flags::RD;
        if wish.bits.has(Bits::CD) {
            flags |= Flags::CD;
        }
        if chance.happens(300) {
            flags |= Flags::AD;
        }
        let has_opt = wish.bits.has(Bits::DO) || chance.happens(600);
        let dnssec_ok = has_opt.then_some(wish.bits.has(Bits::DO));
        let payload = chance.pick(&[512, 1232, 4096]);
        let limit = match (over_stream, has_opt) {
            (true, _) => STREAM_LIMIT,
            (false, true) => payload.min(PAYLOAD) as usize,
            (false, false) => PLAIN_LIMIT,
        };
        let id = chance.among(0..0x10000) as u16;
        let mut message = Builder::new(id, flags, &question);
        if let Some(dnssec_ok) = dnssec_ok {
            message = message.opt(payload, dnssec_ok);
        }
        let client = chance.among(0..40) as u8;
        let octets = message.finish();
        let flags = Flags(flags);
        Inquiry {
            number,
            at,
            to,
            client,
            over_stream,
            id,
            flags,
            question,
            key,
            limit,
            dnssec_ok,
            octets,
        }
    }
}
