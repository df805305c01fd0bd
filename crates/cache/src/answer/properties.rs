//! Laws that hold for all octets, whoever sent them. Replies are read back with
//! `domain`.

use domain::base::Message as Parsed;
use domain::rdata::{Cname, Dname, Mx, Ns, Soa};
use proptest::prelude::*;
use wire::rtype::{A, CNAME, DNAME, MX, NS, SOA};
use wire::{Flags, Section};

use super::testing::{
    EDE, FIRST_DATA, Message, OWNER, PARENT, START, TARGET, asked, client, opt, question_of, reply,
    see, seen_after, send,
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

proptest! {
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
