//! Laws that hold for all octets, whoever sent them. Replies are read back with
//! `domain`.

use domain::base::Message as Parsed;
use domain::base::name::ParsedName;
use domain::rdata::{AllRecordData, Cname, Dname, Mx, Ns, Soa};
use proptest::prelude::*;
use wire::rtype::{A, CNAME, DNAME, MX, NS, SOA};
use wire::{Flags, Section};

use super::testing::{
    EDE, FIRST, FIRST_DATA, FIRST_PARENT, Message, OWNER, PARENT, SENT, START, TARGET, asked,
    client, head, opt, question_of, reply, see, seen_after, send,
};
use super::{Answer, Asked, Kind, ReplyTo, TtlLimits};
use crate::time::Moment;

/// Parts of messages that come together in many ways.
fn any_message() -> impl Strategy<Value = Message> {
    let owners = prop_oneof![
        4 => Just(OWNER.to_vec()),
        2 => Just(TARGET.to_vec()),
        1 => Just(PARENT.to_vec()),
        1 => Just(FIRST_DATA.to_vec()),
        1 => Just(vec![0]),
    ];
    let data = prop_oneof![
        4 => Just((A, vec![192, 0, 2, 1])),
        2 => Just((CNAME, TARGET.to_vec())),
        1 => Just((NS, OWNER.to_vec())),
        1 => Just((MX, [&[0, 5], OWNER].concat())),
        1 => Just((SOA, [PARENT, OWNER, &[0, 0, 0, 60].repeat(5)].concat())),
        1 => Just((DNAME, TARGET.to_vec())),
        1 => proptest::collection::vec(any::<u8>(), 0..12).prop_map(|data| (65_280, data)),
    ];
    let ttls_secs = prop_oneof![any::<u32>(), 0..1_000u32];
    let records = proptest::collection::vec((0..3usize, owners, data, ttls_secs), 0..8);
    let options = prop_oneof![Just(None), Just(Some(vec![])), Just(Some(EDE.to_vec()))];
    let codes = prop_oneof![6 => Just(0u16), 3 => Just(3u16), 1 => Just(6u16)];
    (records, options, codes, any::<bool>()).prop_map(|(mut records, options, code, vouched)| {
        records.sort_by_key(|record| record.0);
        let mut message = Message::about(A).code(code).flags(u16::from(vouched) * Flags::AD);
        for (section, owner, (rtype, data), ttl_secs) in records {
            let sections = [Section::Answer, Section::Authority, Section::Additional];
            message = message.record(sections[section], &owner, rtype, ttl_secs, &data);
        }
        match options {
            Some(options) => message.opt(0, &options),
            None => message,
        }
    })
}

/// Octets of messages, some of them changed or cut.
fn hostile_octets() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let cut = prop::option::weighted(0.1, any::<prop::sample::Index>());
    (any_message(), changes, cut).prop_map(|(message, changes, cut)| {
        let mut octets = message.0;
        for (place, octet) in changes {
            let at = place.index(octets.len());
            octets[at] = octet;
        }
        if let Some(cut) = cut {
            octets.truncate(cut.index(octets.len()));
        }
        octets
    })
}

/// What holds for the reply from any answer, to any client, at any time.
fn check_reply(answer: &Answer, now: Moment, to: &ReplyTo<'_>) {
    let octets = reply(answer, now, to);
    if octets.is_empty() {
        assert!(to.limit < 12 + to.question.len());
        return;
    }
    let seen = see(&octets);
    assert_eq!(octets[12..12 + to.question.len()], *to.question);
    assert_eq!(seen.flags & 0xf, answer.rcode());
    if seen.flags & Flags::TC != 0 {
        assert_eq!(seen.ttls_secs, []);
        return;
    }
    assert_eq!(seen.has_opt, to.opt.is_some());
    if let Some(stale_ttl_secs) = to.stale_ttl_secs {
        assert!(seen.ttls_secs.iter().all(|&ttl_secs| ttl_secs == stale_ttl_secs));
    } else if answer.is_cacheable() && answer.kind() != Kind::Failure {
        let least = seen.ttls_secs.iter().min().copied();
        assert!(least.is_some_and(|least| least >= answer.remaining_secs(now)));
    }
    check_data(&octets);
}

/// The data of records with names is readable.
fn check_data(octets: &[u8]) {
    let parsed = Parsed::from_octets(octets).unwrap();
    let (_, answer, authority, additional) = parsed.sections().unwrap();
    for section in [answer, authority, additional] {
        assert!(section.limit_to_in::<domain::rdata::A>().all(|record| record.is_ok()));
        assert!(section.limit_to::<Cname<_>>().all(|record| record.is_ok()));
        assert!(section.limit_to::<Dname<_>>().all(|record| record.is_ok()));
        assert!(section.limit_to::<Mx<_>>().all(|record| record.is_ok()));
        assert!(section.limit_to::<Ns<_>>().all(|record| record.is_ok()));
        assert!(section.limit_to::<Soa<_>>().all(|record| record.is_ok()));
    }
}

/// First parts of chains that lead to the name that the others are about.
fn any_head() -> impl Strategy<Value = Message> {
    let ttls_secs = prop_oneof![any::<u32>(), 0..1_000u32];
    (0..4, ttls_secs, any::<bool>()).prop_map(|(form, ttl_secs, vouched)| {
        let start = Message::about_name(FIRST, A);
        let message = match form {
            0 => head(ttl_secs),
            1 => head(ttl_secs).authority(FIRST_PARENT, NS, 7, OWNER),
            2 => start.answer(OWNER, CNAME, ttl_secs, &[b"\x01b", OWNER].concat()).answer(
                &[b"\x01B", OWNER].concat(),
                CNAME,
                700,
                SENT,
            ),
            _ => start
                .answer(FIRST_PARENT, DNAME, 600, TARGET)
                .answer(OWNER, CNAME, ttl_secs, b"\x05first\x01t\0")
                .answer(b"\x05first\x01t\0", CNAME, 900, SENT)
                .additional(TARGET, A, 7, &[192, 0, 2, 7]),
        };
        message.flags(u16::from(vouched) * Flags::AD)
    })
}

/// The records of a section as text.
fn texts(answer: &Answer, section: Section) -> Vec<String> {
    let parsed = Parsed::from_octets(answer.body()).unwrap();
    let (_, answers, authorities, additional) = parsed.sections().unwrap();
    let records = [answers, authorities, additional][section as usize];
    let text = |record: domain::base::ParsedRecord<'_, &[u8]>| {
        let record = record.into_record::<AllRecordData<_, ParsedName<_>>>().unwrap();
        format!("{:?}", record.unwrap()).to_lowercase()
    };
    records.map(|record| text(record.unwrap())).collect()
}

proptest! {
    #[test]
    fn chains_that_are_joined_have_all_records_in_order(
        first in any_head(),
        second in any_message(),
    ) {
        let first = first.read_as_asked().unwrap();
        let Ok(second) = second.read(A) else { return Ok(()) };
        let joined = first.join(&second, &TtlLimits::default(), START).unwrap();
        let answers = [texts(&first, Section::Answer), texts(&second, Section::Answer)].concat();
        prop_assert_eq!(texts(&joined, Section::Answer), answers);
        prop_assert_eq!(
            texts(&joined, Section::Authority),
            texts(&second, Section::Authority)
        );
        prop_assert!(texts(&joined, Section::Additional).is_empty());
        prop_assert_eq!((joined.kind(), joined.rcode()), (second.kind(), second.rcode()));
        prop_assert!(joined.body_len() <= first.body_len() + second.body_len());
        let least = seen_after(&joined, 0).ttls_secs.into_iter().min();
        if joined.is_cacheable() {
            prop_assert_eq!(least, Some(joined.ttl_secs()));
        }
        let copy = send(&joined, START, START);
        prop_assert_eq!(copy.as_ref(), Some(&joined));
    }

    #[test]
    fn whatever_is_taken_can_be_joined_and_sent(first in any_head(), octets in hostile_octets()) {
        let asked = Asked { exact_case: false, ..asked(A) };
        let limits = TtlLimits::default();
        let first = first.read_as_asked().unwrap();
        if let Ok(second) = Answer::from_upstream(&octets, &asked, &limits, START)
            && let Ok(joined) = first.join(&second, &limits, START)
        {
            check_reply(&joined, START, &client(&question_of(&joined)));
            let copy = send(&joined, START, START);
            prop_assert_eq!(copy, Some(joined));
        }
    }

    #[test]
    fn whatever_is_taken_can_be_sent(
        octets in hostile_octets(),
        age_micros in 0..2_000_000_000u64,
        limit in 20..700usize,
        flags: u16,
        edns: bool,
        stale: bool,
    ) {
        let limits = TtlLimits::default();
        let asked = Asked { exact_case: false, ..asked(A) };
        if let Ok(answer) = Answer::from_upstream(&octets, &asked, &limits, START) {
            prop_assert!(answer.ttl_secs() <= limits.max_secs);
            prop_assert!(answer.is_for(&asked.question));
            let copy = send(&answer, START, START);
            prop_assert_eq!(copy.as_ref(), Some(&answer));
            let sent = question_of(&answer).to_ascii_uppercase();
            let to = ReplyTo {
                flags: Flags(flags),
                limit,
                opt: edns.then(opt),
                stale_ttl_secs: stale.then_some(30),
                ..client(&sent)
            };
            check_reply(&answer, Moment(START.0 + age_micros), &to);
        }
    }

    #[test]
    fn times_to_live_count_down_together(message in any_message(), age_secs in 0..1_000u64) {
        let Ok(answer) = message.read(A) else { return Ok(()) };
        let (born, now) = (seen_after(&answer, 0), seen_after(&answer, age_secs));
        let older = born.ttls_secs.iter().map(|ttl_secs| ttl_secs.saturating_sub(age_secs as u32));
        prop_assert_eq!(now.ttls_secs, older.collect::<Vec<_>>());
    }

    #[test]
    fn peers_may_send_anything(
        octets in hostile_octets(),
        head in any::<[u8; 17]>(),
        is_likely: bool,
        now: u64,
    ) {
        let mut sent = if is_likely { vec![0; 16] } else { head[..16].to_vec() };
        sent.push(head[16]);
        sent.extend((octets.len() as u16).to_be_bytes());
        sent.extend(&octets);
        if is_likely && octets.len() >= 25 {
            sent[19..23].copy_from_slice(&[0, 0, 0x80, 0x80]);
            sent[31..44].make_ascii_lowercase();
        }
        if let Some((answer, rest)) = Answer::decode(&sent, Moment(now)) {
            prop_assert!(rest.is_empty());
            let mut again = Vec::new();
            answer.encode(Moment(now), &mut again);
            prop_assert_eq!(again, sent);
            let question = question_of(&answer);
            check_reply(&answer, Moment(now), &client(&question));
        }
    }

    #[test]
    fn any_octets_are_read_without_harm(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
        let taken = Answer::from_upstream(&octets, &asked(A), &TtlLimits::default(), START);
        prop_assert!(taken.is_err(), "the question is nowhere in them");
        if let Some((answer, _)) = Answer::decode(&octets, START) {
            check_reply(&answer, START, &client(&question_of(&answer)));
        }
    }
}
