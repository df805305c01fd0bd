//! Two parts of a chain of aliases, from servers that know one part each, put
//! together to the one answer that is kept.
//!
//! The first part stays where it is, so its pointers do too. The records of the
//! second are written anew behind it: a pointer of theirs becomes one to where
//! the same label stands now.

use wire::query::HEADER_LEN;
use wire::reply::{MESSAGE_LEN_MAX, POINTER_MAX};
use wire::{Flags, Section};

use super::names::{self, NameAt, Names};
use super::records::{self, Record};
use super::survey::Survey;
use super::{Answer, Kind, TTL_LEN, TtlLimits, keep, micros, ttl_at};
use crate::time::Moment;

/// Octets of type and class, before the time to live of a record.
const TYPE_AND_CLASS_LEN: usize = 4;
/// What makes a pointer of a place (RFC 1035, 4.1.4).
const POINTER: u16 = 0xc000;
/// Octets of the length of a record's data.
const DATA_LEN_LEN: usize = 2;

/// Why two parts are no answer together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjoined {
    /// The second leads back into the first, or there are too many aliases to
    /// tell.
    Loop,
    /// No message can hold them both.
    Oversized,
}

impl Answer {
    /// The name, lowered, to which its aliases lead, if it says nothing about
    /// that name: neither data, nor an SOA to prove that there is none. Whoever
    /// sent it may know no more; another server may.
    pub fn open_end(&self) -> Option<Box<[u8]>> {
        // YXDOMAIN is the end of a chain, though it comes without data.
        let is_denial = matches!(self.kind, Kind::NoData | Kind::NxDomain);
        if !is_denial || self.answer_count() == 0 {
            return None;
        }
        let survey = Survey::of(self.body())?;
        let end = survey.chain.open_end().filter(|_| survey.soa_secs.is_none())?;
        Some(names::lowered(self.body(), end))
    }

    /// The answer to this answer's question whose aliases end at another name,
    /// and `tail` answers for that name: the answer section of both, everything
    /// else as the tail has it (the code by RFC 6604, 3), without the
    /// additional section, which clients can do without. It is vouched for if
    /// both are.
    pub fn join(&self, tail: &Answer, limits: &TtlLimits, now: Moment) -> Result<Answer, Unjoined> {
        debug_assert_eq!(self.open_end().as_deref(), Some(tail.question().name));
        let (octets, counts) = self.write_joined(tail, now).ok_or(Unjoined::Oversized)?;
        let vouched = self.flags().0 & tail.flags().0 & Flags::AD;
        let flags = Flags::QR | Flags::RA | vouched | tail.rcode();
        let message = with_counts(octets, counts);
        // A pointer may have moved out of reach, or too many be in a row.
        let survey = Survey::of(&message).ok_or(Unjoined::Oversized)?;
        if survey.chain.is_loop() {
            return Err(Unjoined::Loop);
        }
        let name_len = self.question().name.len();
        let mut answer = Answer {
            octets: keep(&message, name_len, &survey, flags),
            born_micros: micros(now),
            ttl_secs: 0,
            body_len: survey.end as u16,
            name_len: self.name_len,
            kind: tail.kind,
            bits: self.bits,
            error: tail.error.or(self.error),
        };
        answer.limit_ttls(&survey, limits);
        Ok(answer)
    }

    /// Header, question and the records of both, and how many records there
    /// are in the first two sections.
    fn write_joined(&self, tail: &Answer, now: Moment) -> Option<(Vec<u8>, [u16; 2])> {
        let end = Survey::of(self.body())?.chain.open_end()?;
        let mut joint = Joint::new(self.answers_as_of(now), tail.body(), end);
        let mut names = Names::new(tail.body());
        names.read(HEADER_LEN)?;
        let mut at = tail.question_end();
        let counts = [tail.answer_count(), tail.count(Section::Authority)];
        for _ in 0..counts.iter().map(|&count| usize::from(count)).sum() {
            let record = records::read(&mut names, at)?;
            joint.copy(&mut names, &record)?;
            at = record.end;
        }
        // As many records as fit a message are counted in 16 bits.
        Some((joint.out, [self.answer_count() + counts[0], counts[1]]))
    }

    /// The message up to the end of its answer section, with times to live as
    /// they are at `now`: what it is joined with was born later.
    fn answers_as_of(&self, now: Moment) -> Vec<u8> {
        let age_secs = self.age_secs(now);
        let mut octets = self.body().to_vec();
        let mut end = self.question_end();
        for place in self.ttl_places().take(self.answer_count().into()) {
            let ttl_secs = ttl_at(&octets, place).saturating_sub(age_secs);
            octets[place..place + TTL_LEN].copy_from_slice(&ttl_secs.to_be_bytes());
            let len_at = place + TTL_LEN;
            let data_len = u16::from_be_bytes([octets[len_at], octets[len_at + 1]]);
            end = len_at + DATA_LEN_LEN + usize::from(data_len);
        }
        octets.truncate(end);
        octets
    }

    fn answer_count(&self) -> u16 {
        self.count(Section::Answer)
    }

    /// Records of a section.
    fn count(&self, section: Section) -> u16 {
        let at = 6 + 2 * section as usize;
        u16::from_be_bytes([self.octets[at], self.octets[at + 1]])
    }
}

/// The message with so many records in its first two sections and none in the
/// third.
fn with_counts(mut message: Vec<u8>, [answers, authorities]: [u16; 2]) -> Vec<u8> {
    message[6..8].copy_from_slice(&answers.to_be_bytes());
    message[8..10].copy_from_slice(&authorities.to_be_bytes());
    message[10..12].fill(0);
    message
}

/// A message that gets the records of another.
struct Joint<'t> {
    out: Vec<u8>,
    tail: &'t [u8],
    /// Where the label at a place of the tail stands in `out`; 0 if nowhere
    /// that a pointer reaches. For the places that pointers of the tail reach.
    moved: Vec<u16>,
}

impl<'t> Joint<'t> {
    /// `out`, in which the name that the tail is about stands at `end`.
    fn new(out: Vec<u8>, tail: &'t [u8], end: NameAt) -> Self {
        let moved = vec![0; tail.len().min(POINTER_MAX + 1)];
        let mut joint = Joint { out, tail, moved };
        let asked = names::labels(tail, NameAt::again(HEADER_LEN));
        let places: Vec<(usize, usize)> =
            asked.zip(names::labels(&joint.out, end)).map(|(from, to)| (from.0, to.0)).collect();
        for (from, to) in places {
            joint.note(from, to);
        }
        joint
    }

    /// Copies a record of the tail. `None` if it has no room.
    fn copy(&mut self, names: &mut Names<'_>, record: &Record) -> Option<()> {
        self.write_name(record.owner);
        let fields = record.ttl_at - TYPE_AND_CLASS_LEN..record.ttl_at + TTL_LEN;
        self.out.extend_from_slice(&self.tail[fields]);
        let len_at = self.out.len();
        self.out.extend([0; DATA_LEN_LEN]);
        self.copy_data(names, record)?;
        let data_at = len_at + DATA_LEN_LEN;
        let data_len = u16::try_from(self.out.len() - data_at).ok()?;
        self.out[len_at..data_at].copy_from_slice(&data_len.to_be_bytes());
        (self.out.len() <= MESSAGE_LEN_MAX).then_some(())
    }

    fn copy_data(&mut self, names: &mut Names<'_>, record: &Record) -> Option<()> {
        let (before, count) = records::names_in_data(self.tail, record);
        let mut at = record.data_at + before;
        self.out.extend_from_slice(&self.tail[record.data_at..at]);
        for _ in 0..count {
            let (name, end) = names.read(at)?;
            match records::may_have_pointers(record.rtype) {
                true => self.write_name(name),
                false => names::write_whole(self.tail, name, &mut self.out),
            }
            at = end;
        }
        self.out.extend_from_slice(&self.tail[at..record.end]);
        Some(())
    }

    /// Writes a name of the tail, as short as can be without a search.
    fn write_name(&mut self, name: NameAt) {
        for (place, label) in names::labels(self.tail, name) {
            if let Some(&at) = self.moved.get(place).filter(|at| **at != 0) {
                return self.out.extend((POINTER | at).to_be_bytes());
            }
            self.note(place, self.out.len());
            self.out.push(label.len() as u8);
            self.out.extend_from_slice(label);
        }
        self.out.push(0);
    }

    fn note(&mut self, from: usize, to: usize) {
        if let Some(moved) = self.moved.get_mut(from).filter(|_| to <= POINTER_MAX) {
            *moved = to as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::rtype::{A, CNAME, DNAME, MX, NS, RRSIG, SOA, SRV, TXT};

    use super::super::testing::{
        EDE, FIRST, FIRST_PARENT, Message, NAME, OWNER, PARENT, START, TARGET, after_secs, alias,
        head, seen_after, send,
    };
    use super::*;

    const NX_DOMAIN: u16 = 3;
    /// In place of a name in data that has none.
    const NONE: &[u8] = b"";

    /// Both parts together, `secs` after the head came.
    fn join_after(head: &Message, tail: &Message, secs: u64) -> Result<Answer, Unjoined> {
        let head = head.read_as_asked().unwrap();
        let mut tail = tail.read_as_asked().unwrap();
        tail.born_micros = micros(after_secs(secs));
        head.join(&tail, &TtlLimits::default(), after_secs(secs))
    }

    fn join(head: &Message, tail: &Message) -> Answer {
        let joined = join_after(head, tail, 0).unwrap();
        assert_eq!(send(&joined, START, START).as_ref(), Some(&joined), "peers take it");
        assert_eq!(joined.question().name, FIRST.to_ascii_lowercase());
        joined
    }

    fn end_of(message: &Message) -> Option<Box<[u8]>> {
        message.read_as_asked().unwrap().open_end()
    }

    #[test]
    fn an_end_is_open_if_nothing_is_said_about_it() {
        assert_eq!(end_of(&head(60)).as_deref(), Some(NAME), "lowered");
        assert_eq!(end_of(&head(60).code(NX_DOMAIN)).as_deref(), Some(NAME), "not proven");
        let servers = head(60).authority(FIRST_PARENT, NS, 60, TARGET);
        assert_eq!(end_of(&servers).as_deref(), Some(NAME));
        assert_eq!(end_of(&alias(60).soa(60, 60)), None, "a denial");
        assert_eq!(end_of(&alias(60).soa(60, 60).code(NX_DOMAIN)), None);
        assert_eq!(end_of(&alias(60).answer(TARGET, A, 60, &[1; 4])), None, "data");
        assert_eq!(end_of(&Message::about(A)), None, "no alias");
        let too_long = Message::about(A).code(6).answer(PARENT, DNAME, 60, TARGET);
        assert_eq!(end_of(&too_long), None, "YXDOMAIN");
        for qtype in [CNAME, wire::rtype::ANY] {
            let message = Message::about(qtype).answer(OWNER, CNAME, 60, TARGET);
            assert_eq!(end_of(&message), None, "the alias is what was asked for");
        }
    }

    #[test]
    fn a_chain_is_one_answer_with_the_least_of_all_times() {
        let tail = Message::about(A).address(50).answer(OWNER, A, 40, &[192, 0, 2, 2]);
        let joined = join(&head(300), &tail.authority(PARENT, NS, 70, OWNER));
        assert_eq!((joined.kind(), joined.ttl_secs()), (Kind::Positive, 40));
        assert_eq!(seen_after(&joined, 0).ttls_secs, [300, 50, 40, 70]);
        let body = joined.body();
        let owner_at = head(300).0.len();
        // `First.corp.` takes 12 octets and the question 4 more; then come a
        // pointer, 10 octets, and the target.
        let target_at: u16 = 12 + 12 + 4 + 12;
        assert_eq!(body[owner_at..owner_at + 2], (POINTER | target_at).to_be_bytes());
    }

    #[test]
    fn times_of_the_first_part_go_on_while_the_second_is_asked_for() {
        let joined = join_after(&head(10), &Message::about(A).address(300), 3).unwrap();
        assert_eq!((joined.ttl_secs(), joined.born()), (7, after_secs(3)));
        let joined = join_after(&head(2), &Message::about(A).address(300), 3).unwrap();
        assert!(!joined.is_cacheable(), "for whoever waits, and no longer");
    }

    #[test]
    fn the_second_part_says_how_it_ends() {
        let denial = Message::about(A).soa(60, 30);
        let joined = join(&head(300), &denial.clone().code(NX_DOMAIN));
        assert_eq!((joined.kind(), joined.ttl_secs()), (Kind::NxDomain, 30));
        let joined = join(&head(300).code(NX_DOMAIN), &denial);
        assert_eq!((joined.kind(), joined.rcode()), (Kind::NoData, 0));
        let joined = join(&head(300), &Message::about(A).code(NX_DOMAIN));
        assert!(!joined.is_cacheable(), "nobody says for how long");
        let tail = Message::about(A).address(50);
        let vouched = |head_too: u16, tail_too: u16| {
            let head = head(300).flags(head_too * Flags::AD);
            join(&head, &tail.clone().flags(tail_too * Flags::AD)).flags().has(Flags::AD)
        };
        assert!(vouched(1, 1) && !vouched(1, 0) && !vouched(0, 1));
        assert_eq!(join(&head(300).opt(0, &EDE), &tail).error(), Some(6));
        assert_eq!(join(&head(300), &tail.opt(0, &EDE)).error(), Some(6));
    }

    #[test]
    fn what_is_behind_the_answers_of_the_first_part_goes() {
        let head = head(300)
            .authority(FIRST_PARENT, NS, 5, TARGET)
            .additional(TARGET, A, 5, &[192, 0, 2, 7])
            .opt(0, b"");
        let tail = Message::about(A).address(50).additional(TARGET, A, 5, &[192, 0, 2, 8]);
        assert_eq!(seen_after(&join(&head, &tail), 0).ttls_secs, [300, 50]);
    }

    #[test]
    fn names_in_data_lead_where_they_led() {
        let soa = [PARENT, OWNER, &[0, 0, 0, 60].repeat(5)].concat();
        let signature = [&[1; 18][..], PARENT, b"signature"].concat();
        let tail = Message::about(A)
            .address(50)
            .answer(OWNER, MX, 50, &[&[0, 5], PARENT].concat())
            .answer(OWNER, SRV, 50, &[&[0; 6], PARENT].concat())
            .answer(OWNER, RRSIG, 50, &signature)
            .answer(OWNER, TXT, 50, b"\x02\xc0\x0c")
            .authority(PARENT, SOA, 50, &soa);
        let joined = join(&head(300), &tail);
        let mut names = Names::new(joined.body());
        names.read(HEADER_LEN).unwrap();
        let mut at = joined.question_end();
        let mut seen = Vec::new();
        while at < joined.body_len() {
            let record = records::read(&mut names, at).unwrap();
            let (before, count) = records::names_in_data(joined.body(), &record);
            let name = NameAt::again(record.data_at + before);
            let first = if count > 0 { names::lowered(joined.body(), name) } else { NONE.into() };
            seen.push((record.rtype, first, record.end - record.data_at));
            at = record.end;
        }
        let parent = &b"\x07example\0"[..];
        let expected = [
            (CNAME, NAME, NAME.len()),
            (A, NONE, 4),
            (MX, parent, 4),
            (SRV, parent, 6 + 9),
            (RRSIG, parent, 18 + 9 + 9),
            (TXT, NONE, 3),
            (SOA, parent, 24),
        ];
        let expected = expected.map(|(rtype, name, len)| (rtype, name.into(), len));
        assert_eq!(seen, expected, "pointers in data of old types alone");
    }

    #[test]
    fn parts_that_lead_back_or_do_not_fit_are_no_answer() {
        let back = Message::about(A).answer(OWNER, CNAME, 60, FIRST);
        assert_eq!(join_after(&head(60), &back, 0), Err(Unjoined::Loop));
        let large = vec![0; 65_000];
        let tail = Message::about(A).address(60).answer(OWNER, 65_280, 60, &large);
        assert!(join(&head(60), &tail).body_len() > large.len());
        let many = head(60).answer(OWNER, 65_280, 60, &large[..600]);
        assert_eq!(join_after(&many, &tail, 0), Err(Unjoined::Oversized));
    }

    #[test]
    fn three_parts_are_joined_one_after_the_other() {
        let middle = Message::about(A).answer(OWNER, CNAME, 60, TARGET);
        let joined = join(&head(300), &middle);
        assert_eq!(joined.open_end().as_deref(), Some(TARGET));
        let last = Message::about_name(TARGET, A).address(20).read_as_asked().unwrap();
        let whole = joined.join(&last, &TtlLimits::default(), START).unwrap();
        assert_eq!((whole.open_end(), whole.ttl_secs()), (None, 20));
        assert_eq!(seen_after(&whole, 0).ttls_secs, [300, 60, 20]);
    }
}
