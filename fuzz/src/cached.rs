//! What a cache keeps of an answer, and what clients get of it, beside what
//! the message says when it is read without the cache's code.

use cache::answer::{Answer, Asked, Kind, ReplyTo, TtlLimits, Unjoined};
use cache::{Bits, Moment, Question};
use wire::query::HEADER_LEN;
use wire::reply::MESSAGE_LEN_MAX;
use wire::{Flags, Name, OptReply, Rcode, rtype};

use crate::packet::{self, Record, hex};

/// When answers come; any later time will do.
pub const START: Moment = Moment(3_000_000_000);
/// Octets of an encoded answer before its message.
const ENCODED_HEAD_LEN: usize = 19;
/// Times to live as the limits that are set by default leave them.
const TTL_SECS_MAX: u32 = 86_400;
const NEGATIVE_SECS_MAX: u32 = 3_600;
const STALE_SECS: u32 = 30;
/// A name that leads to others, and for how long.
const FIRST: &[u8] = b"\x05first\0";
const FIRST_TTL_SECS: u32 = 100;
/// Types whose data has names without pointers (RFC 3597, 4), which a cache has
/// to read with pointers all the same and writes anew without: RP, AFSDB, RT,
/// SIG, PX, SRV, NAPTR, KX, DNAME, RRSIG, NSEC, SVCB, HTTPS.
const LATE_NAMES: [u16; 13] = [17, 18, 21, 24, 26, 33, 35, 36, 39, 46, 47, 64, 65];
/// An OPT record with an extended error.
const OPT_LEN_MAX: usize = packet::OPT_LEN + 6;

/// How an answer is asked for and replied to, from one octet.
#[derive(Clone, Copy, Debug)]
pub struct Setup(pub u8);

impl Setup {
    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// Reads `message` as the answer to the question in it; `None` if there is
    /// none, or the answer is refused.
    pub fn read(self, message: &[u8]) -> Option<Answer> {
        let sent = Name::parse(message.get(HEADER_LEN..)?).ok()?.as_bytes();
        let tail: &[u8; 4] = message.get(HEADER_LEN + sent.len()..)?.first_chunk()?;
        let name = sent.to_ascii_lowercase();
        let bits = if self.has(1) { Bits::DO } else { Bits::default() };
        let question = Question {
            name: &name,
            qtype: u16::from_be_bytes([tail[0], tail[1]]),
            qclass: u16::from_be_bytes([tail[2], tail[3]]),
            bits,
        };
        let name_as_sent = if self.has(2) { sent } else { &name };
        let id = u16::from_be_bytes([message[0], message[1]]);
        let asked = Asked { id, name_as_sent, question, exact_case: self.has(4) };
        let answer = Answer::from_upstream(message, &asked, &TtlLimits::default(), START).ok()?;
        assert!(answer.is_for(&question), "an answer to another question");
        assert!(!self.has(4) || name_as_sent == sent, "letters that were not sent");
        Some(answer)
    }

    /// Writes the reply to a client that sent `question`.
    fn reply(self, answer: &Answer, now: Moment, question: &[u8], limit: usize) -> Vec<u8> {
        let opt = OptReply {
            payload: 1232,
            dnssec_ok: self.has(1),
            rcode: Rcode::BadVers,
            nsid: None,
            cookie: None,
            keepalive: None,
            error: None,
        };
        let to = ReplyTo {
            id: 0x4321,
            flags: Flags(u16::from(self.0) << 4),
            question,
            limit,
            opt: self.has(8).then_some(opt),
            stale_ttl_secs: self.has(16).then_some(STALE_SECS),
        };
        let mut out = vec![0xee; limit + 16];
        let written = answer.write(now, &to, &mut out);
        assert!(written.len <= limit && out[limit..] == [0xee; 16], "past the limit");
        out.truncate(written.len);
        out
    }
}

/// The message that an answer keeps.
pub fn kept(answer: &Answer) -> Vec<u8> {
    let mut octets = Vec::new();
    answer.encode(START, &mut octets);
    octets.split_off(ENCODED_HEAD_LEN)
}

/// Compares what is kept with what upstream sent. Nothing if the second reader
/// does not take the message, being strict about where pointers lead.
pub fn check_kept(message: &[u8], answer: &Answer) {
    let Ok(sent) = packet::parse(message) else { return };
    let octets = kept(answer);
    let kept = packet::parse(&octets).unwrap_or_else(|error| panic!("{error}: {}", hex(&octets)));
    let (name, tail) = sent.question.split_at(sent.question.len() - 4);
    assert_eq!(kept.question, [&name.to_ascii_lowercase(), tail].concat());
    assert!(kept.opt.is_none() && kept.rcode == sent.rcode);
    let (kind, denial_secs) = judge(&sent, answer.question());
    assert_eq!(answer.kind(), kind, "{sent:#?}");
    let mut least_secs = u32::MAX;
    for (section, (kept, sent)) in kept.sections.iter().zip(&sent.sections).enumerate() {
        assert!(kept.len() <= sent.len() && (section == 2 || kept.len() == sent.len()));
        for (kept, sent) in kept.iter().zip(sent) {
            let mut ttl_secs = ttl(sent.ttl_secs).min(TTL_SECS_MAX);
            if let (1, Some(denial_secs)) = (section, denial_secs) {
                ttl_secs = ttl_secs.min(denial_secs);
            }
            if section == 1 && kind != Kind::Positive {
                ttl_secs = ttl_secs.min(NEGATIVE_SECS_MAX);
            }
            assert_eq!(*kept, Record { ttl_secs, ..sent.clone() });
            least_secs = least_secs.min(ttl_secs);
        }
    }
    let is_kept = least_secs < u32::MAX && (kind == Kind::Positive || denial_secs.is_some());
    assert_eq!(answer.ttl_secs(), if is_kept { least_secs } else { 0 }, "{sent:#?}");
}

/// Puts an alias before an answer, as if another server had led to it, and
/// compares both with what becomes of them.
pub fn check_joined(tail: &Answer, setup: Setup) {
    let question = tail.question();
    if matches!(question.qtype, rtype::CNAME | rtype::ANY) || question.name == FIRST {
        return;
    }
    let head = setup.read(&alias_of(question)).expect("an alias is an answer");
    assert_eq!(head.open_end().as_deref(), Some(question.name));
    let joined = match head.join(tail, &TtlLimits::default(), START) {
        Ok(joined) => joined,
        Err(Unjoined::Loop | Unjoined::Oversized) => return,
    };
    let mut encoded = Vec::new();
    joined.encode(START, &mut encoded);
    let copy = Answer::decode(&encoded, START).expect("a peer takes what was joined");
    assert_eq!(copy, (joined.clone(), &[][..]));
    assert_eq!((joined.kind(), joined.rcode()), (tail.kind(), tail.rcode()));
    let [head, tail, joined] = [&head, tail, &joined].map(kept);
    let Ok(tail) = packet::parse(&tail) else { return };
    let head = packet::parse(&head).expect("an alias");
    let joined = packet::parse(&joined).unwrap_or_else(|error| panic!("{error}: {}", hex(&joined)));
    let answers = [&head.sections[0][..], &tail.sections[0]].concat();
    let expected = [answers, tail.sections[1].clone(), Vec::new()];
    assert_eq!(joined.sections.map(without_late_names), expected.map(without_late_names));
}

/// Records without the data in which names may have become longer.
fn without_late_names(mut records: Vec<Record>) -> Vec<Record> {
    for record in records.iter_mut().filter(|record| LATE_NAMES.contains(&record.rtype)) {
        record.data.clear();
    }
    records
}

/// An answer that [`FIRST`] is an alias of the name in `question`.
fn alias_of(question: Question<'_>) -> Vec<u8> {
    let class = question.qclass.to_be_bytes();
    let mut message = vec![0, 0, 0x80, 0, 0, 1, 0, 1, 0, 0, 0, 0];
    message.extend(FIRST);
    message.extend(question.qtype.to_be_bytes());
    message.extend(class);
    message.extend([0xc0, HEADER_LEN as u8]);
    message.extend(rtype::CNAME.to_be_bytes());
    message.extend(class);
    message.extend(FIRST_TTL_SECS.to_be_bytes());
    message.extend((question.name.len() as u16).to_be_bytes());
    message.extend(question.name);
    message
}

/// What a message says of its question, and for how long it denies it.
fn judge(sent: &packet::Answer, question: Question<'_>) -> (Kind, Option<u32>) {
    let [answers, authorities, _] = &sent.sections;
    let (mut current, mut has_data) = (question.name, false);
    for record in answers.iter().filter(|_| sent.rcode == 0) {
        if has_data || record.owner != current {
            continue;
        }
        has_data = record.rtype == question.qtype || question.qtype == rtype::ANY;
        if record.rtype == rtype::CNAME {
            current = &record.data;
        }
    }
    let kind = match sent.rcode {
        0 if !has_data => Kind::NoData,
        3 => Kind::NxDomain,
        _ => return (Kind::Positive, None),
    };
    let soa = authorities.iter().find(|record| record.rtype == rtype::SOA);
    let denial_secs = soa.map(|soa| {
        let minimum = soa.data.last_chunk().expect("an SOA has numbers");
        ttl(soa.ttl_secs).min(ttl(u32::from_be_bytes(*minimum)))
    });
    (kind, denial_secs)
}

/// RFC 2181, 8: the top bit makes it none.
fn ttl(secs: u32) -> u32 {
    if secs >> 31 == 1 { 0 } else { secs }
}

/// Compares replies to clients with what is kept, some seconds later.
pub fn check_replies(answer: &Answer, setup: Setup, age_secs: u32) {
    let octets = kept(answer);
    let name_end = HEADER_LEN + answer.question().name.len();
    let mut question = octets[HEADER_LEN..name_end + 4].to_vec();
    question[..name_end - HEADER_LEN].make_ascii_uppercase();
    let now = Moment(START.0 + u64::from(age_secs) * 1_000_000);
    let whole = setup.reply(answer, now, &question, MESSAGE_LEN_MAX);
    assert_eq!(whole[HEADER_LEN..name_end + 4], question);
    assert!(setup.reply(answer, now, &question, name_end + 3).is_empty(), "half a question");
    // With less room it could not even say that there is none.
    let least = name_end + 4 + OPT_LEN_MAX;
    for limit in [least, 512, whole.len() - 1, whole.len()].map(|limit| limit.max(least)) {
        let reply = setup.reply(answer, now, &question, limit);
        if limit >= whole.len() {
            assert_eq!(reply, whole);
            continue;
        }
        let parsed = packet::parse(&reply).expect("a question and no more");
        assert!(parsed.flags & Flags::TC != 0 && parsed.sections.iter().all(Vec::is_empty));
        assert_eq!((parsed.question, parsed.rcode), (question.clone(), answer.rcode()));
        assert_eq!(parsed.opt.is_some(), setup.has(8));
    }
    if let Ok(kept) = packet::parse(&octets) {
        check_whole(&kept, &whole, setup, age_secs);
    }
}

/// Compares a reply that is not truncated with what is kept.
fn check_whole(kept: &packet::Answer, whole: &[u8], setup: Setup, age_secs: u32) {
    let reply = packet::parse(whole).unwrap_or_else(|error| panic!("{error}: {}", hex(whole)));
    assert_eq!((reply.id, reply.rcode), (0x4321, kept.rcode));
    assert_eq!(reply.opt.is_some(), setup.has(8));
    for (reply, kept) in reply.sections.iter().zip(&kept.sections) {
        let left = |record: &Record| {
            let left_secs = record.ttl_secs.saturating_sub(age_secs);
            let ttl_secs = if setup.has(16) { STALE_SECS } else { left_secs };
            Record { ttl_secs, ..record.clone() }
        };
        assert_eq!(*reply, kept.iter().map(left).collect::<Vec<_>>());
    }
}
