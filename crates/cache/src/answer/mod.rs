//! An answer as the cache keeps it: the upstream's message, made ready so that
//! a hit is one copy and a few stores.
//!
//! What upstream said is read once ([`Answer::from_upstream`]): every name is
//! walked, the OPT record is cut off, times to live are brought within their
//! limits, and the places where they stand are noted. After that nothing needs
//! to be parsed: a reply to a client ([`Answer::write`]) is the message with
//! the client's id, flags and question, and with younger times to live.
//!
//! An answer lives and dies as a whole: it expires with the first of its
//! records, so half a chain of aliases is never served. Where upstream servers
//! know half a chain each, the halves become one answer ([`Answer::join`]).

mod ask;
mod chain;
mod join;
mod names;
mod peer;
#[cfg(test)]
mod properties;
mod records;
mod reply;
mod survey;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upstream;

use wire::query::HEADER_LEN;
use wire::{Flags, Rcode};

use crate::question::{Bits, Question};
use crate::time::Moment;
use survey::Survey;

pub use ask::{PAYLOAD, build_plain_question, build_question};
pub use join::Unjoined;
pub use reply::{ReplyTo, Written};
pub use upstream::{Asked, Refusal, TtlLimits, extended_error};

/// Octets of type and class behind the name of a question.
const QUESTION_TAIL_LEN: usize = 4;
/// Octets of the note where one time to live stands.
const PLACE_LEN: usize = 2;
/// Octets of a time to live.
const TTL_LEN: usize = 4;
/// Largest time to live (RFC 2181, 8).
const TTL_SECS_MAX: u32 = i32::MAX as u32;
/// How long a failure may be kept (RFC 9520, 3.2).
const FAILURE_SECS: std::ops::RangeInclusive<u32> = 1..=300;
/// Octets of a line of memory.
const LINE_LEN: usize = 64;
/// Lines of an answer that are looked at ahead; the processor goes on by itself.
const LINES_MAX: usize = 4;
const MICROS_PER_SEC: i64 = 1_000_000;

/// What an answer says about its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Records of the type asked for, or (with YXDOMAIN) why there are none.
    Positive,
    /// The name is there, the type is not.
    NoData,
    /// The name is not there.
    NxDomain,
    /// Nobody knew; an answer of ours.
    Failure,
}

/// One answer, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The message without its OPT record, then the places of its times to
    /// live as little-endian `u16`: one allocation, and what a hit reads lies
    /// together. The id is 0, AA and TC are clear, RA is set, the name asked
    /// for is lowered, and times to live are those at birth.
    octets: Box<[u8]>,
    /// When upstream answered, on this node's clock: before its start, and
    /// negative, for what a peer knew longer than this node runs.
    born_micros: i64,
    ttl_secs: u32,
    body_len: u16,
    name_len: u8,
    kind: Kind,
    bits: Bits,
    /// INFO-CODE of the extended error that came with it (RFC 8914).
    error: Option<u16>,
}

impl Answer {
    /// An answer of ours: nobody could answer this question, which is not
    /// asked again for `ttl_secs`, at least 1 and at most 300 (RFC 9520, 3.2).
    pub fn failure(question: Question<'_>, ttl_secs: u32, now: Moment) -> Answer {
        let flags = Flags::QR | Flags::RA | Rcode::ServFail as u16;
        let body_len = HEADER_LEN + question.name.len() + QUESTION_TAIL_LEN;
        let mut octets = Vec::with_capacity(body_len);
        octets.extend([0, 0]);
        octets.extend(flags.to_be_bytes());
        octets.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        octets.extend_from_slice(question.name);
        octets.extend(question.qtype.to_be_bytes());
        octets.extend(question.qclass.to_be_bytes());
        Answer {
            octets: octets.into_boxed_slice(),
            born_micros: micros(now),
            ttl_secs: ttl_secs.clamp(*FAILURE_SECS.start(), *FAILURE_SECS.end()),
            body_len: body_len as u16,
            name_len: question.name.len() as u8,
            kind: Kind::Failure,
            bits: question.bits,
            error: None,
        }
    }

    /// The same answer with the INFO-CODE of an extended error (RFC 8914), for
    /// clients that speak EDNS.
    pub fn with_error(self, code: u16) -> Answer {
        Answer { error: Some(code), ..self }
    }

    /// What it answers.
    pub fn question(&self) -> Question<'_> {
        let (name, tail) = self.octets[HEADER_LEN..].split_at(self.name_len as usize);
        Question {
            name,
            qtype: u16::from_be_bytes([tail[0], tail[1]]),
            qclass: u16::from_be_bytes([tail[2], tail[3]]),
            bits: self.bits,
        }
    }

    /// Reads an octet of each line of memory that a hit needs, up to four.
    #[inline]
    pub fn look(&self) -> u8 {
        self.octets.iter().step_by(LINE_LEN).take(LINES_MAX).fold(0, |seen, octet| seen ^ octet)
    }

    /// True if it answers `question`. Every hit asks.
    #[inline]
    pub fn is_for(&self, question: &Question<'_>) -> bool {
        self.question() == *question
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its response code.
    pub fn rcode(&self) -> u16 {
        self.code() as u16
    }

    /// INFO-CODE of the extended error that it carries.
    pub fn error(&self) -> Option<u16> {
        self.error
    }

    /// When it was true for certain: when upstream sent it.
    pub fn born(&self) -> Moment {
        Moment(u64::try_from(self.born_micros).unwrap_or(0))
    }

    /// How long it lives from its birth on.
    pub fn ttl_secs(&self) -> u32 {
        self.ttl_secs
    }

    /// Octets of memory that it takes, for bounds.
    pub fn len(&self) -> usize {
        size_of::<Answer>() + self.octets.len()
    }

    /// An answer always takes memory.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// False if it is for whoever waits, and never kept: it lives for no time,
    /// or says that something is not there without saying for how long (RFC
    /// 2308, 5).
    pub fn is_cacheable(&self) -> bool {
        self.ttl_secs > 0
    }

    /// When it is too old; the start of the clock if that was before it.
    pub fn expires(&self) -> Moment {
        Moment(self.expires_micros().max(0) as u64)
    }

    #[inline]
    pub fn is_fresh(&self, now: Moment) -> bool {
        micros(now) < self.expires_micros()
    }

    /// What is left of its life, begun seconds counted as whole ones: at least
    /// 1 as long as it is fresh.
    pub fn remaining_secs(&self, now: Moment) -> u32 {
        self.ttl_secs.saturating_sub(self.age_secs(now))
    }

    /// Whole seconds since it expired.
    pub fn stale_secs(&self, now: Moment) -> u32 {
        secs(micros(now).saturating_sub(self.expires_micros()))
    }

    /// Octets of its message, OPT record not counted.
    pub fn body_len(&self) -> usize {
        self.body_len as usize
    }

    fn body(&self) -> &[u8] {
        &self.octets[..self.body_len()]
    }

    /// Where header and question end.
    fn question_end(&self) -> usize {
        HEADER_LEN + self.name_len as usize + QUESTION_TAIL_LEN
    }

    /// The flags of the message as kept: QR, RA, AD and the code.
    fn flags(&self) -> Flags {
        Flags(u16::from_be_bytes([self.octets[2], self.octets[3]]))
    }

    fn code(&self) -> Rcode {
        code_of(self.flags().0 & 0xf).unwrap_or(Rcode::ServFail)
    }

    /// Places of the times to live in the message.
    #[inline]
    fn ttl_places(&self) -> impl Iterator<Item = usize> {
        let places = self.octets[self.body_len()..].chunks_exact(PLACE_LEN);
        places.map(|place| u16::from_le_bytes([place[0], place[1]]) as usize)
    }

    fn expires_micros(&self) -> i64 {
        self.born_micros.saturating_add(i64::from(self.ttl_secs) * MICROS_PER_SEC)
    }

    /// Whole seconds since its birth.
    fn age_secs(&self, now: Moment) -> u32 {
        secs(micros(now).saturating_sub(self.born_micros))
    }
}

/// Codes of answers that are kept. All others say that this upstream cannot
/// help, and fit no header without EDNS if they are above 15.
fn code_of(number: u16) -> Option<Rcode> {
    [Rcode::NoError, Rcode::ServFail, Rcode::NxDomain, Rcode::YxDomain]
        .into_iter()
        .find(|code| *code as u16 == number)
}

/// What an answer with this code and these records says; `None` if it has no
/// business in a cache.
fn kind_of(code: Rcode, survey: &Survey) -> Option<Kind> {
    match code {
        Rcode::NoError if survey.chain.has_data() => Some(Kind::Positive),
        Rcode::NoError => Some(Kind::NoData),
        Rcode::NxDomain => Some(Kind::NxDomain),
        // RFC 6672, 2.2: the DNAME that says why is in the answer section.
        Rcode::YxDomain => Some(Kind::Positive),
        _ => None,
    }
}

/// A message in the form that is kept, from one that was surveyed.
fn keep(message: &[u8], name_len: usize, survey: &Survey, flags: u16) -> Box<[u8]> {
    let places = &survey.ttl_places;
    let mut octets = Vec::with_capacity(survey.end + PLACE_LEN * places.len());
    octets.extend_from_slice(&message[..survey.end]);
    octets[0..2].fill(0);
    octets[2..4].copy_from_slice(&flags.to_be_bytes());
    for (section, count) in survey.counts.iter().enumerate() {
        let at = 6 + 2 * section;
        octets[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
    octets[HEADER_LEN..HEADER_LEN + name_len].make_ascii_lowercase();
    octets.extend(places.iter().flat_map(|place| place.to_le_bytes()));
    octets.into_boxed_slice()
}

/// A moment as a signed number, so that there are moments before the start.
fn micros(now: Moment) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

/// Whole seconds in `micros`; none if it is negative.
fn secs(micros: i64) -> u32 {
    u32::try_from((micros / MICROS_PER_SEC).max(0)).unwrap_or(u32::MAX)
}

/// A time to live as the wire has it; one with the top bit set is none (RFC
/// 2181, 8).
fn ttl_at(message: &[u8], at: usize) -> u32 {
    let ttl_secs =
        u32::from_be_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]]);
    if ttl_secs > TTL_SECS_MAX { 0 } else { ttl_secs }
}
