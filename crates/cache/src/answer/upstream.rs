//! What upstream said, checked against what it was asked, and brought into the
//! form that is kept.

use wire::query::HEADER_LEN;
use wire::reply::MESSAGE_LEN_MAX;
use wire::{Flags, Name, Rcode, opcode};

use super::survey::Survey;
use super::{Answer, Kind, QUESTION_TAIL_LEN, TTL_LEN, code_of, keep, kind_of, micros, ttl_at};
use crate::question::Question;
use crate::time::Moment;

/// Between which bounds answers live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlLimits {
    /// Shorter times to live are raised to this.
    pub min_secs: u32,
    /// Longer ones are lowered to this.
    pub max_secs: u32,
    /// The same for answers that say that something is not there. RFC 2308, 5
    /// advises at most three hours.
    pub negative_max_secs: u32,
    /// How long a failure is kept (RFC 9520, 3.2: 1 to 300).
    pub failure_secs: u32,
}

impl Default for TtlLimits {
    fn default() -> Self {
        TtlLimits { min_secs: 0, max_secs: 86_400, negative_max_secs: 3_600, failure_secs: 5 }
    }
}

/// What was asked upstream.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub id: u16,
    /// The name in the letters it was sent in.
    pub name_as_sent: &'a [u8],
    pub question: Question<'a>,
    /// The name must come back letter by letter. False for an upstream that
    /// is known to change their case.
    pub exact_case: bool,
}

/// Why a message is not taken for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Shorter than a header.
    Short,
    /// A question.
    NotAnAnswer,
    /// The id of another question, or a guess.
    WrongId,
    /// Of an operation that was not asked for.
    Opcode,
    /// The answer to another question, or a guess.
    WrongQuestion,
    /// The question came back in other letters: a guess, or an upstream that
    /// changes them.
    WrongCase,
    /// Cut off: ask over TCP. Never taken for the whole.
    Truncated,
    /// Its form is wrong.
    Malformed,
    /// An error or a code that nothing is known about. Another upstream may
    /// know better.
    Rcode(u16),
    /// An error in the way of servers that do not know EDNS (RFC 6891, 7): ask
    /// without. To a question that had none it is a plain error.
    FormErrNoEdns,
    /// The answer section begins with a name that was not asked for.
    Unrelated,
    /// The aliases lead back to each other.
    Loop,
    /// It only says who else may know: upstream does not recurse.
    Referral,
}

impl Refusal {
    /// The name used in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Short => "short",
            Refusal::NotAnAnswer => "not_an_answer",
            Refusal::WrongId => "wrong_id",
            Refusal::Opcode => "opcode",
            Refusal::WrongQuestion => "wrong_question",
            Refusal::WrongCase => "wrong_case",
            Refusal::Truncated => "truncated",
            Refusal::Malformed => "malformed",
            Refusal::Rcode(_) => "rcode",
            Refusal::FormErrNoEdns => "no_edns",
            Refusal::Unrelated => "unrelated",
            Refusal::Loop => "loop",
            Refusal::Referral => "referral",
        }
    }
}

impl Answer {
    /// Takes `message`, from whoever sent it, for the answer to what was
    /// asked, or says why not.
    ///
    /// Nothing is removed from its answer and authority sections. Records are
    /// only ever used to answer the question they came for, so it does not
    /// matter whether upstream may speak for their names.
    pub fn from_upstream(
        message: &[u8],
        asked: &Asked<'_>,
        limits: &TtlLimits,
        now: Moment,
    ) -> Result<Answer, Refusal> {
        let flags = check_header(message, asked)?;
        check_question(message, asked)?;
        if flags.has(Flags::TC) {
            return Err(Refusal::Truncated);
        }
        let survey = match message.len() {
            ..=MESSAGE_LEN_MAX => Survey::of(message).ok_or(Refusal::Malformed)?,
            _ => return Err(Refusal::Malformed),
        };
        let code = check_code(flags, &survey)?;
        let kind = kind_of(code, &survey).ok_or(Refusal::Rcode(code as u16))?;
        check_records(flags, kind, &survey)?;
        let name_len = asked.question.name.len();
        let kept_flags = Flags::QR | Flags::RA | flags.0 & Flags::AD | code as u16;
        let mut answer = Answer {
            octets: keep(message, name_len, &survey, kept_flags),
            born_micros: micros(now),
            ttl_secs: 0,
            body_len: survey.end as u16,
            name_len: name_len as u8,
            kind,
            bits: asked.question.bits,
            error: survey.opt.and_then(|opt| opt.error),
        };
        answer.limit_ttls(&survey, limits);
        Ok(answer)
    }

    /// Brings all times to live within their limits; the least of them is the
    /// answer's own.
    pub(super) fn limit_ttls(&mut self, survey: &Survey, limits: &TtlLimits) {
        let is_negative = matches!(self.kind, Kind::NoData | Kind::NxDomain);
        let [answers, authorities, _] = survey.counts.map(usize::from);
        let denial = answers..answers + authorities;
        let mut least_secs = None;
        for (index, &place) in survey.ttl_places.iter().enumerate() {
            let field = &mut self.octets[place as usize..place as usize + TTL_LEN];
            let mut ttl_secs = ttl_at(field, 0);
            let mut max_secs = limits.max_secs;
            if is_negative && denial.contains(&index) {
                // The SOA as RFC 2308, 5 says, NSEC and NSEC3 as RFC 9077, 3,
                // and signatures like what they sign (RFC 4034, 3).
                ttl_secs = ttl_secs.min(survey.soa_secs.unwrap_or(u32::MAX));
                max_secs = max_secs.min(limits.negative_max_secs);
            }
            ttl_secs = ttl_secs.max(limits.min_secs).min(max_secs).min(super::TTL_SECS_MAX);
            field.copy_from_slice(&ttl_secs.to_be_bytes());
            least_secs = Some(least_secs.map_or(ttl_secs, |least: u32| least.min(ttl_secs)));
        }
        self.ttl_secs = match is_negative && survey.soa_secs.is_none() {
            true => 0,
            false => least_secs.unwrap_or(0),
        };
    }
}

/// INFO-CODE of the extended error in a message (RFC 8914), so that a failure
/// can say why upstream refused. `None` also if the message is malformed.
pub fn extended_error(message: &[u8]) -> Option<u16> {
    Survey::of(message)?.opt?.error
}

/// Checks what comes before the question; returns the flags.
fn check_header(message: &[u8], asked: &Asked<'_>) -> Result<Flags, Refusal> {
    let header = message.first_chunk::<HEADER_LEN>().ok_or(Refusal::Short)?;
    let flags = Flags(u16::from_be_bytes([header[2], header[3]]));
    if !flags.has(Flags::QR) {
        return Err(Refusal::NotAnAnswer);
    }
    if header[0..2] != asked.id.to_be_bytes() {
        return Err(Refusal::WrongId);
    }
    if flags.opcode() != opcode::QUERY {
        return Err(Refusal::Opcode);
    }
    Ok(flags)
}

/// Checks that the question is the one that was asked.
fn check_question(message: &[u8], asked: &Asked<'_>) -> Result<(), Refusal> {
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    match word(4) {
        // Who cannot read a question does not repeat it.
        0 => return Err(refuse_bare(word(2) & 0xf, word(10) > 0)),
        1 => {}
        _ => return Err(Refusal::WrongQuestion),
    }
    let Question { name, qtype, qclass, .. } = asked.question;
    let sent = Name::parse(&message[HEADER_LEN..]).map_err(|_| Refusal::WrongQuestion)?.as_bytes();
    let tail_at = HEADER_LEN + sent.len();
    let tail = message.get(tail_at..tail_at + QUESTION_TAIL_LEN).ok_or(Refusal::WrongQuestion)?;
    if !sent.eq_ignore_ascii_case(name)
        || tail[..2] != qtype.to_be_bytes()
        || tail[2..] != qclass.to_be_bytes()
    {
        return Err(Refusal::WrongQuestion);
    }
    if asked.exact_case && sent != asked.name_as_sent {
        return Err(Refusal::WrongCase);
    }
    Ok(())
}

/// What a message without a question says: an error at most.
fn refuse_bare(code: u16, has_opt: bool) -> Refusal {
    match code_of(code) {
        Some(Rcode::NoError | Rcode::NxDomain | Rcode::YxDomain) => Refusal::WrongQuestion,
        _ => refuse_code(code, has_opt),
    }
}

fn refuse_code(code: u16, has_opt: bool) -> Refusal {
    let is_old = code == Rcode::FormErr as u16 || code == Rcode::NotImp as u16;
    if is_old && !has_opt { Refusal::FormErrNoEdns } else { Refusal::Rcode(code) }
}

/// The code, if it says something about the question.
fn check_code(flags: Flags, survey: &Survey) -> Result<Rcode, Refusal> {
    let high = survey.opt.map_or(0, |opt| u16::from(opt.code_high));
    let number = high << 4 | flags.0 & 0xf;
    code_of(number).ok_or_else(|| refuse_code(number, survey.opt.is_some()))
}

/// Checks that the records have to do with the question.
fn check_records(flags: Flags, kind: Kind, survey: &Survey) -> Result<(), Refusal> {
    if survey.chain.is_unrelated() {
        return Err(Refusal::Unrelated);
    }
    if survey.chain.is_loop() {
        return Err(Refusal::Loop);
    }
    let is_empty = survey.counts[0] == 0 && survey.soa_secs.is_none();
    if kind == Kind::NoData && is_empty && survey.has_servers && !flags.has(Flags::AA) {
        return Err(Refusal::Referral);
    }
    Ok(())
}
