//! Answers between nodes. Ages travel, never clocks: the receiver's copy is as
//! old as the sender's, whenever either of them was started.
//!
//! What comes from a peer is read as carefully as what comes from upstream.
//! Only what [`Answer::from_upstream`] or [`Answer::failure`] could have made
//! is taken, so what a reply relies on holds for every answer there is.

use wire::query::HEADER_LEN;
use wire::{Flags, Name, Rcode};

use super::survey::Survey;
use super::{
    Answer, FAILURE_SECS, Kind, QUESTION_TAIL_LEN, TTL_SECS_MAX, code_of, keep, kind_of, micros,
};
use crate::question::Bits;
use crate::time::Moment;

/// Octets before the message: bits of the question 1, extended error 4 (0:
/// none, else its code and 1), age in microseconds 8, time to live 4, length
/// of the message 2; numbers in network order.
const HEAD_LEN: usize = 19;

impl Answer {
    /// Appends the form that peers read.
    pub fn encode(&self, now: Moment, out: &mut Vec<u8>) {
        let age_micros = micros(now).saturating_sub(self.born_micros).max(0) as u64;
        out.reserve(HEAD_LEN + self.body_len());
        out.push(self.bits.octet());
        out.extend(self.error.map_or(0, |code| u32::from(code) + 1).to_be_bytes());
        out.extend(age_micros.to_be_bytes());
        out.extend(self.ttl_secs.to_be_bytes());
        out.extend(self.body_len.to_be_bytes());
        out.extend_from_slice(self.body());
    }

    /// Octets that [`Answer::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        HEAD_LEN + self.body_len()
    }

    /// Reads an encoded answer from the start of `octets`; returns the rest.
    /// `None` if there is none that a node could have sent.
    pub fn decode(octets: &[u8], now: Moment) -> Option<(Answer, &[u8])> {
        let (&bits, rest) = octets.split_first()?;
        let (error, rest) = rest.split_first_chunk()?;
        let (age_micros, rest) = rest.split_first_chunk()?;
        let (ttl_secs, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let error = match u32::from_be_bytes(*error) {
            0 => None,
            number => Some(u16::try_from(number - 1).ok()?),
        };
        let age_micros = i64::try_from(u64::from_be_bytes(*age_micros)).ok()?;
        let ttl_secs = u32::from_be_bytes(*ttl_secs);
        let len = u16::from_be_bytes(*len) as usize;
        let (message, rest) = rest.split_at_checked(len)?;
        let answer = Answer {
            bits: bits_of(bits)?,
            error,
            born_micros: micros(now).saturating_sub(age_micros),
            ..Answer::from_kept(message, ttl_secs)?
        };
        Some((answer, rest))
    }

    /// An answer from a message in the form that is kept.
    fn from_kept(message: &[u8], ttl_secs: u32) -> Option<Answer> {
        let header = message.first_chunk::<HEADER_LEN>()?;
        let flags = u16::from_be_bytes([header[2], header[3]]);
        let is_kept_form = header[0..2] == [0, 0]
            && flags & !(Flags::AD | 0xf) == Flags::QR | Flags::RA
            && header[4..6] == [0, 1];
        let name = Name::parse(&message[HEADER_LEN..]).ok()?.as_bytes();
        if !is_kept_form || name.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        let survey = Survey::of(message)?;
        let is_whole = survey.end == message.len() && survey.opt.is_none();
        if !is_whole || survey.chain.is_unrelated() || survey.chain.is_loop() {
            return None;
        }
        let code = code_of(flags & 0xf)?;
        let is_bare = message.len() == HEADER_LEN + name.len() + QUESTION_TAIL_LEN;
        let kind = match code {
            Rcode::ServFail if is_bare => Kind::Failure,
            _ => kind_of(code, &survey)?,
        };
        let least_secs = least_ttl_secs(message, &survey)?;
        let may_live = match kind {
            Kind::Failure => FAILURE_SECS.contains(&ttl_secs),
            Kind::NoData | Kind::NxDomain if survey.soa_secs.is_none() => ttl_secs == 0,
            _ => ttl_secs <= least_secs,
        };
        may_live.then(|| Answer {
            octets: keep(message, name.len(), &survey, flags),
            born_micros: 0,
            ttl_secs,
            body_len: message.len() as u16,
            name_len: name.len() as u8,
            kind,
            bits: Bits::default(),
            error: None,
        })
    }
}

/// The least time to live of a message, 0 if it has no records; `None` if one
/// is larger than any may be.
fn least_ttl_secs(message: &[u8], survey: &Survey) -> Option<u32> {
    let mut least_secs = None;
    for &place in &survey.ttl_places {
        let ttl_secs = u32::from_be_bytes(*message[place as usize..].first_chunk()?);
        if ttl_secs > TTL_SECS_MAX {
            return None;
        }
        least_secs = Some(least_secs.map_or(ttl_secs, |least: u32| least.min(ttl_secs)));
    }
    Some(least_secs.unwrap_or(0))
}

/// The bits of a question that are sent as this octet.
fn bits_of(octet: u8) -> Option<Bits> {
    [Bits::default(), Bits::DO, Bits::CD, Bits::DO.with(Bits::CD)]
        .into_iter()
        .find(|bits| bits.octet() == octet)
}

#[cfg(test)]
mod tests {
    use wire::rtype::{A, DNAME};

    use super::super::testing::{
        EDE, Message, NAME, PARENT, START, TARGET, after_secs, alias, asked, question, seen_after,
        send,
    };
    use super::super::{Asked, TtlLimits};
    use super::*;
    use crate::question::Question;

    #[test]
    fn peers_get_all_of_an_answer_and_its_age() {
        let bits = Bits::DO.with(Bits::CD);
        let asked = Asked { question: Question { bits, ..question(A) }, ..asked(A) };
        let message = alias(50).answer(TARGET, A, 300, &[1; 4]).flags(Flags::AD).opt(0, &EDE);
        let read = |message: &Message| {
            Answer::from_upstream(&message.0, &asked, &TtlLimits::default(), START).unwrap()
        };
        let answer = read(&message);
        assert_eq!(send(&answer, after_secs(20), after_secs(20)).as_ref(), Some(&answer));
        // A node that was just started: the age is longer than its clock.
        let copy = send(&answer, after_secs(20), Moment(5)).unwrap();
        assert_eq!(copy.remaining_secs(Moment(5)), 30);
        assert_eq!(copy.expires(), Moment(30_000_005));
        assert_eq!(seen_after(&copy, 0).ttls_secs, [0, 204]);
        let copy = send(&answer, after_secs(90), Moment(5)).unwrap();
        assert!(!copy.is_fresh(Moment(5)) && copy.expires() == Moment(0));
        assert_eq!(copy.stale_secs(Moment(5)), 40);
        for other in [
            Message::about(A).code(3).soa(60, 60),
            Message::about(A),
            Message::about(A).code(6).answer(PARENT, DNAME, 50, TARGET),
        ] {
            let answer = read(&other);
            assert_eq!(send(&answer, START, START), Some(answer));
        }
        let failure = Answer::failure(question(A), 5, START).with_error(0);
        assert_eq!(send(&failure, START, START), Some(failure));
    }

    #[test]
    fn peers_cannot_send_what_upstream_could_not_have_said() {
        let answer = Message::about(A).address(300).read(A).unwrap();
        let mut good = Vec::new();
        answer.encode(START, &mut good);
        for len in 0..good.len() {
            assert_eq!(Answer::decode(&good[..len], START), None, "{len}");
        }
        let message_at = good.len() - answer.body_len();
        let changed = |at: usize, octet: u8| {
            let mut octets = good.clone();
            octets[at] = octet;
            Answer::decode(&octets, START).is_some()
        };
        assert!(changed(0, 1) && !changed(0, 4), "bits that there are not");
        assert!(!changed(1, 1), "a code of more than 16 bits");
        assert!(!changed(5, 0x80), "an age past all clocks");
        assert!(changed(15, 0) && !changed(15, 2), "longer than its records live");
        for (at, octet, what) in [
            (1, 1, "an id"),
            (2, 0x04, "no QR"),
            (2, 0x84, "AA"),
            (2, 0x82, "TC"),
            (3, 0x85, "REFUSED"),
            (3, 0x82, "SERVFAIL with records"),
            (3, 0x00, "no RA"),
            (5, 2, "two questions"),
            (11, 1, "a record that is not there"),
            (13, b'W', "a name that is not lowered"),
            (30, 0x1d, "a pointer to itself"),
            (35, 0x80, "a time to live that is none"),
        ] {
            assert!(!changed(message_at + at, octet), "{what}");
        }
        let denial = Message::about(A).read(A).unwrap();
        let mut octets = Vec::new();
        denial.encode(START, &mut octets);
        octets[16] = 1;
        assert_eq!(Answer::decode(&octets, START), None, "a denial without SOA that is kept");
        let with_opt = Message::about(A).address(300).opt(0, b"");
        let mut octets = good[..17].to_vec();
        octets.extend((with_opt.0.len() as u16).to_be_bytes());
        octets.extend(&with_opt.0);
        octets[19..23].copy_from_slice(&good[19..23]);
        octets[31..44].copy_from_slice(NAME);
        assert_eq!(Answer::decode(&octets, START), None, "an OPT record");
    }
}
