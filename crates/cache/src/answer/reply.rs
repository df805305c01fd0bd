//! The reply to a client, from an answer that is kept.

use wire::query::HEADER_LEN;
use wire::reply::MESSAGE_LEN_MAX;
use wire::{ExtendedError, Flags, OptReply};

use super::{Answer, Kind, TTL_LEN};
use crate::time::Moment;

/// Whom a reply is for.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo<'a> {
    pub id: u16,
    /// As asked: RD and CD are copied, AD says that the client knows AD.
    pub flags: Flags,
    /// Name, type and class as the client sent them: those of the answer's
    /// question, but for the case of letters.
    pub question: &'a [u8],
    /// Octets that the reply may have, OPT record included.
    pub limit: usize,
    /// The OPT record, if the client speaks EDNS. The code is filled in, and
    /// the extended error if there is none yet.
    pub opt: Option<OptReply<'a>>,
    /// The answer is past its time: all times to live are this (RFC 8767, 4
    /// advises 30), and the client is told.
    pub stale_ttl_secs: Option<u32>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Octets of the reply; 0 if there was not even room for the question.
    pub len: usize,
    /// The answer was too long, so there are no records in the reply.
    pub truncated: bool,
}

impl Answer {
    /// Writes the reply to a client into `out`.
    ///
    /// The header is a resolver's: RA is set, AA is clear, AD only if upstream
    /// vouched and the client asked for that (RFC 6840, 5.8), TC only if the
    /// answer is longer than the client takes. Then it has no records, so that
    /// nobody takes the part for the whole.
    #[inline]
    pub fn write(&self, now: Moment, to: &ReplyTo<'_>, out: &mut [u8]) -> Written {
        let limit = to.limit.min(out.len()).min(MESSAGE_LEN_MAX);
        let question_end = self.question_end();
        if question_end > limit {
            return Written { len: 0, truncated: true };
        }
        let opt = to.opt.map(|opt| self.complete(opt, to.stale_ttl_secs.is_some()));
        let truncated = self.body_len() + opt.map_or(0, |opt| opt.len()) > limit;
        let opt = opt.filter(|opt| question_end + opt.len() <= limit);
        let mut len = if truncated { question_end } else { self.body_len() };
        out[..len].copy_from_slice(&self.octets[..len]);
        if truncated {
            out[6..HEADER_LEN].fill(0);
        } else {
            self.write_ttls(now, to.stale_ttl_secs, out);
        }
        out[0..2].copy_from_slice(&to.id.to_be_bytes());
        out[2..4].copy_from_slice(&self.reply_flags(to, truncated).to_be_bytes());
        let question = &mut out[HEADER_LEN..question_end];
        debug_assert!(question.eq_ignore_ascii_case(to.question));
        if question.len() == to.question.len() {
            question.copy_from_slice(to.question);
        }
        if let Some(opt) = opt {
            len = opt.write(out, len);
            let additionals = u16::from_be_bytes([out[10], out[11]]) + 1;
            out[10..12].copy_from_slice(&additionals.to_be_bytes());
        }
        Written { len, truncated }
    }

    /// Writes the times to live that are left now.
    #[inline]
    fn write_ttls(&self, now: Moment, stale_ttl_secs: Option<u32>, out: &mut [u8]) {
        let age_secs = self.age_secs(now);
        for place in self.ttl_places() {
            let field = &mut out[place..place + TTL_LEN];
            let born_with = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
            let ttl_secs = stale_ttl_secs.unwrap_or(born_with.saturating_sub(age_secs));
            field.copy_from_slice(&ttl_secs.to_be_bytes());
        }
    }

    fn reply_flags(&self, to: &ReplyTo<'_>, truncated: bool) -> u16 {
        let mut flags = self.flags().0 | to.flags.0 & (Flags::RD | Flags::CD);
        let wants_dnssec = to.opt.is_some_and(|opt| opt.dnssec_ok);
        if truncated {
            flags |= Flags::TC;
        }
        if truncated || !(to.flags.has(Flags::AD) || wants_dnssec) {
            flags &= !Flags::AD;
        }
        flags
    }

    /// The OPT record with what this answer knows.
    fn complete<'a>(&self, opt: OptReply<'a>, is_stale: bool) -> OptReply<'a> {
        let own = match (is_stale, self.kind) {
            (true, Kind::NxDomain) => Some(ExtendedError::STALE_NXDOMAIN),
            (true, _) => Some(ExtendedError::STALE_ANSWER),
            (false, _) => self.error.map(|code| ExtendedError { code, text: "" }),
        };
        OptReply { rcode: self.code(), error: opt.error.or(own), ..opt }
    }
}
