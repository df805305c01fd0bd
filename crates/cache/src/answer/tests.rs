//! The rules of answers, each with a message built for it.

use wire::rtype::{A, AAAA, ANY, CNAME, DNAME, MX, NS, NSEC, OPT, RRSIG, SOA, TSIG, TXT};
use wire::{ExtendedError, Flags, OptReply, Section};

use super::testing::{
    EDE, FIRST_DATA, Message, NAME, OWNER, PARENT, SENT, START, TARGET, after_secs, alias, asked,
    client, opt, question, question_of, reply, see, seen_after,
};
use super::*;

#[track_caller]
fn check_refused(message: Message, refusal: Refusal) {
    assert_eq!(message.read(A), Err(refusal));
}

#[track_caller]
fn check_lives(message: Message, kind: Kind, ttl_secs: u32) -> Answer {
    let answer = message.read(A).unwrap();
    assert_eq!((answer.kind(), answer.ttl_secs()), (kind, ttl_secs));
    assert_eq!(answer.is_cacheable(), ttl_secs > 0);
    answer
}

#[test]
fn an_answer_becomes_a_reply() {
    let answer = check_lives(Message::about(A).address(300).opt(0, b""), Kind::Positive, 300);
    assert_eq!((answer.rcode(), answer.error()), (0, None));
    assert_eq!(answer.question(), question(A));
    assert!(answer.is_for(&question(A)));
    assert!(!answer.is_for(&question(AAAA)));
    assert!(!answer.is_for(&Question { bits: Bits::DO, ..question(A) }));
    assert!(!answer.is_for(&Question { name: b"\x03wwx\x07example\0", ..question(A) }));
    let sent = [b"\x03WWW\x07EXAMPLE\0", &[0, 1, 0, 1][..]].concat();
    let octets = reply(&answer, after_secs(7), &client(&sent));
    let flags = Flags::QR | Flags::RD | Flags::RA;
    let mut expected = vec![0xab, 0xcd, (flags >> 8) as u8, flags as u8];
    expected.extend([0, 1, 0, 1, 0, 0, 0, 0]);
    expected.extend(sent);
    expected.extend(b"\xc0\x0c\0\x01\0\x01\0\0\x01\x25\0\x04\xc0\0\x02\x01");
    assert_eq!(octets, expected);
    assert_eq!(answer.body_len(), expected.len());
    assert_eq!(answer.len(), size_of::<Answer>() + expected.len() + 2);
}

#[test]
fn only_the_answer_to_what_was_asked_is_taken() {
    let good = Message::about(A).address(300);
    let read = |octets: &[u8]| {
        Answer::from_upstream(octets, &asked(A), &TtlLimits::default(), START).map(|_| ())
    };
    let changed = |at: usize, octet: u8| {
        let mut octets = good.0.clone();
        octets[at] = octet;
        read(&octets)
    };
    assert_eq!(read(&good.0), Ok(()));
    assert_eq!(read(&good.0[..11]), Err(Refusal::Short));
    assert_eq!(changed(2, 0x01), Err(Refusal::NotAnAnswer));
    assert_eq!(changed(1, 0x35), Err(Refusal::WrongId));
    assert_eq!(changed(2, 0xa9), Err(Refusal::Opcode));
    assert_eq!(changed(5, 2), Err(Refusal::WrongQuestion), "two questions");
    assert_eq!(changed(5, 0), Err(Refusal::WrongQuestion), "none");
    assert_eq!(changed(12, 0xc0), Err(Refusal::WrongQuestion), "a compressed question");
    assert_eq!(changed(13, b'v'), Err(Refusal::WrongQuestion));
    assert_eq!(changed(13, b'W'), Err(Refusal::WrongCase));
    assert_eq!(changed(26, 28), Err(Refusal::WrongQuestion), "another type");
    assert_eq!(changed(28, 3), Err(Refusal::WrongQuestion), "another class");
    assert_eq!(read(&good.0[..27]), Err(Refusal::WrongQuestion));
    assert_eq!(changed(2, 0x83), Err(Refusal::Truncated));
    let mut lowered = good.0.clone();
    lowered[12..25].copy_from_slice(NAME);
    assert_eq!(read(&lowered), Err(Refusal::WrongCase));
    let tolerant = Asked { exact_case: false, ..asked(A) };
    assert!(Answer::from_upstream(&lowered, &tolerant, &TtlLimits::default(), START).is_ok());
}

#[test]
fn a_truncated_answer_is_never_taken_for_the_whole() {
    check_refused(Message::about(A).address(300).flags(Flags::TC), Refusal::Truncated);
    let mut half = Message::about(A).address(300).flags(Flags::TC);
    half.0.truncate(40);
    check_refused(half, Refusal::Truncated);
}

#[test]
fn errors_are_for_another_upstream() {
    for code in [2, 5, 7, 9, 15] {
        check_refused(Message::about(A).code(code), Refusal::Rcode(code));
        check_refused(Message::about(A).code(code).opt(0, b""), Refusal::Rcode(code));
    }
    check_refused(Message::about(A).opt(1, b""), Refusal::Rcode(16));
    check_refused(Message::about(A).code(7).opt(1, b""), Refusal::Rcode(23));
    check_refused(Message::about(A).code(3).opt(0xff, b""), Refusal::Rcode(0xff3));
    let bogus = Message::about(A).code(2).opt(0, &EDE);
    assert_eq!(extended_error(&bogus.0), Some(6), "what a failure may say of it");
    assert_eq!(extended_error(&bogus.0[..bogus.0.len() - 1]), None);
    check_refused(Message::about(A).code(1).opt(0, b""), Refusal::Rcode(1));
    check_refused(Message::about(A).code(4).opt(0, b""), Refusal::Rcode(4));
}

#[test]
fn servers_without_edns_are_known_by_their_errors() {
    for code in [1, 4] {
        check_refused(Message::about(A).code(code), Refusal::FormErrNoEdns);
        let mut bare = Message::about(A).code(code);
        bare.0.truncate(12);
        bare.0[5] = 0;
        check_refused(bare, Refusal::FormErrNoEdns);
    }
    let mut refused = Message::about(A).code(5);
    refused.0.truncate(12);
    refused.0[5] = 0;
    check_refused(refused, Refusal::Rcode(5));
}

#[test]
fn an_answer_expires_with_the_first_of_its_records() {
    let chain = alias(50).answer(TARGET, A, 300, &[1, 2, 3, 4]);
    let chain = chain.authority(TARGET, NS, 40, OWNER).additional(TARGET, AAAA, 30, &[1; 16]);
    let answer = check_lives(chain, Kind::Positive, 30);
    assert_eq!(seen_after(&answer, 0).ttls_secs, [50, 300, 40, 30]);
    assert_eq!(seen_after(&answer, 29).ttls_secs, [21, 271, 11, 1]);
    assert!(answer.is_fresh(after_secs(29)) && !answer.is_fresh(after_secs(30)));
    assert_eq!(answer.expires(), after_secs(30));
    assert_eq!(answer.remaining_secs(Moment(after_secs(30).0 - 1)), 1);
    assert_eq!((answer.remaining_secs(after_secs(31)), answer.stale_secs(after_secs(31))), (0, 1));
    assert_eq!(answer.stale_secs(after_secs(30)), 0);
    // Late for whoever waited: never below zero.
    assert_eq!(seen_after(&answer, 60).ttls_secs, [0, 240, 0, 0]);
    // A clock that was read too early.
    assert_eq!(answer.remaining_secs(Moment(0)), 30);
}

#[test]
fn times_to_live_stay_within_their_limits() {
    let limits = TtlLimits { min_secs: 10, max_secs: 100, negative_max_secs: 40, failure_secs: 5 };
    let check = |message: Message, ttls_secs: &[u32]| {
        let answer = message.read_within(A, &limits).unwrap();
        assert_eq!(seen_after(&answer, 0).ttls_secs, ttls_secs);
        assert_eq!(answer.ttl_secs(), *ttls_secs.iter().min().unwrap());
    };
    check(Message::about(A).address(50), &[50]);
    check(Message::about(A).address(0), &[10]);
    check(Message::about(A).address(101), &[100]);
    check(Message::about(A).address(0x8000_0000), &[10]);
    check(alias(5).answer(TARGET, A, 500, &[1; 4]), &[10, 100]);
    check(Message::about(A).soa(500, 500), &[40]);
    check(Message::about(A).soa(500, 5), &[10]);
    // Limits that contradict each other: the lower one wins.
    let odd = TtlLimits { min_secs: 10, max_secs: 5, negative_max_secs: 3, failure_secs: 5 };
    let answer = Message::about(A).address(50).read_within(A, &odd).unwrap();
    assert_eq!(answer.ttl_secs(), 5);
    let endless = TtlLimits { min_secs: u32::MAX, max_secs: u32::MAX, ..limits };
    let answer = Message::about(A).address(50).read_within(A, &endless).unwrap();
    assert_eq!(answer.ttl_secs(), TTL_SECS_MAX);
}

#[test]
fn what_lives_for_no_time_is_not_kept() {
    check_lives(Message::about(A).address(0), Kind::Positive, 0);
    check_lives(Message::about(A).address(u32::MAX), Kind::Positive, 0);
    check_lives(Message::about(A).soa(300, 0), Kind::NoData, 0);
}

#[test]
fn denials_live_as_long_as_their_soa_says() {
    check_lives(Message::about(A).soa(300, 60), Kind::NoData, 60);
    check_lives(Message::about(A).soa(60, 300), Kind::NoData, 60);
    check_lives(Message::about(A).soa(90_000, 90_000), Kind::NoData, 3_600);
    check_lives(Message::about(A).soa(300, 0xffff_ffff), Kind::NoData, 0);
    let answer = check_lives(Message::about(A).code(3).soa(300, 60), Kind::NxDomain, 60);
    assert_eq!(answer.rcode(), 3);
    assert_eq!(seen_after(&answer, 0).ttls_secs, [60], "the SOA counts down from it");
    assert_eq!(seen_after(&answer, 59).ttls_secs, [1]);
    // Proofs and signatures go with the SOA.
    let signature = [&[0; 18][..], PARENT, b"sig"].concat();
    let signed = Message::about(A).soa(300, 60).authority(PARENT, RRSIG, 300, &signature);
    let signed = signed.authority(OWNER, NSEC, 7_200, b"\0\0\x01\x40");
    let answer = check_lives(signed, Kind::NoData, 60);
    assert_eq!(seen_after(&answer, 0).ttls_secs, [60, 60, 60]);
}

#[test]
fn denials_without_soa_are_passed_on_and_not_kept() {
    let limits = TtlLimits { min_secs: 10, ..TtlLimits::default() };
    for message in [Message::about(A), Message::about(A).code(3), alias(300), alias(300).code(3)] {
        let answer = message.read_within(A, &limits).unwrap();
        assert!(!answer.is_cacheable());
        assert_eq!(answer.rcode(), u16::from(message.0[3] & 0xf));
    }
    // An SOA in another section says nothing.
    let soa = [PARENT, PARENT, &[0; 20]].concat();
    check_lives(Message::about(A).additional(PARENT, SOA, 300, &soa), Kind::NoData, 0);
}

#[test]
fn a_chain_may_end_in_nothing() {
    check_lives(alias(50).soa(300, 60), Kind::NoData, 50);
    check_lives(alias(50).soa(300, 20), Kind::NoData, 20);
    let answer = check_lives(alias(7_200).code(3).soa(300, 60), Kind::NxDomain, 60);
    assert_eq!(seen_after(&answer, 10).ttls_secs, [7_190, 50]);
    // Data of another name is none.
    check_lives(alias(50).answer(b"\x01u\0", A, 9, &[1; 4]).soa(30, 30), Kind::NoData, 9);
    check_lives(alias(50).answer(TARGET, AAAA, 9, &[1; 16]).soa(30, 30), Kind::NoData, 9);
}

#[test]
fn aliases_lead_from_the_question_to_the_data() {
    let far =
        alias(50).answer(FIRST_DATA, CNAME, 60, b"\x01u\0").answer(b"\x01U\0", A, 70, &[1; 4]);
    check_lives(far, Kind::Positive, 50);
    let made = Message::about(A)
        .answer(PARENT, DNAME, 50, b"\x01t\0")
        .answer(OWNER, CNAME, 0, b"\x03www\x01t\0")
        .answer(b"\x03www\x01t\0", A, 60, &[1; 4]);
    check_lives(made, Kind::Positive, 0);
    let other = Message::about(A).answer(TARGET, A, 60, &[1; 4]);
    check_refused(other, Refusal::Unrelated);
    let other = Message::about(A).answer(b"\x01t\0", DNAME, 60, b"\x01u\0");
    check_refused(other, Refusal::Unrelated);
    let late = Message::about(A).answer(TARGET, A, 60, &[1; 4]).answer(OWNER, CNAME, 60, TARGET);
    check_refused(late, Refusal::Unrelated);
}

#[test]
fn aliases_that_lead_back_are_refused() {
    check_refused(Message::about(A).answer(OWNER, CNAME, 60, OWNER), Refusal::Loop);
    check_refused(alias(50).answer(TARGET, CNAME, 50, b"\x03WWW\x07Example\0"), Refusal::Loop);
    let chain = |links: u8| {
        let name = |link: u8| [1, b'0' + link, 0];
        let first = Message::about(A).answer(OWNER, CNAME, 9, &name(0));
        let all = (1..links)
            .fold(first, |message, link| message.answer(&name(link - 1), CNAME, 9, &name(link)));
        all.answer(&name(links - 1), A, 9, &[1; 4])
    };
    check_lives(chain(32), Kind::Positive, 9);
    check_refused(chain(33), Refusal::Loop);
}

#[test]
fn some_types_are_asked_for_by_themselves() {
    let any = Message::about(ANY).answer(OWNER, CNAME, 50, OWNER);
    assert_eq!(any.read(ANY).unwrap().kind(), Kind::Positive);
    let alias = Message::about(CNAME).answer(OWNER, CNAME, 50, OWNER);
    assert_eq!(alias.read(CNAME).unwrap().kind(), Kind::Positive);
    let signature = [&[0; 18][..], PARENT, b"sig"].concat();
    let signatures = Message::about(RRSIG).answer(OWNER, RRSIG, 50, &signature);
    assert_eq!(signatures.read(RRSIG).unwrap().kind(), Kind::Positive);
}

#[test]
fn a_dname_that_grows_too_long_is_an_answer() {
    let message = Message::about(A).code(6).answer(PARENT, DNAME, 50, TARGET);
    let answer = check_lives(message, Kind::Positive, 50);
    assert_eq!(answer.rcode(), 6);
    check_lives(Message::about(A).code(6), Kind::Positive, 0);
}

#[test]
fn referrals_are_lame() {
    let referral = || Message::about(A).authority(PARENT, NS, 300, OWNER);
    check_refused(referral(), Refusal::Referral);
    check_refused(referral().additional(OWNER, A, 300, &[1; 4]), Refusal::Referral);
    check_lives(referral().flags(Flags::AA), Kind::NoData, 0);
    check_lives(referral().soa(60, 60), Kind::NoData, 60);
    check_lives(
        Message::about(A).address(60).authority(PARENT, NS, 300, OWNER),
        Kind::Positive,
        60,
    );
}

#[test]
fn the_form_is_checked_to_the_last_octet() {
    let good = Message::about(A).address(300).soa(60, 60).opt(0, &EDE);
    assert!(good.read(A).is_ok());
    for len in 29..good.0.len() {
        check_refused(Message(good.0[..len].to_vec()), Refusal::Malformed);
    }
    let mut more = good.clone();
    more.0.push(0);
    check_refused(more, Refusal::Malformed);
    let other_class =
        |section| Message::about(A).any_record(section, OWNER, [A, 3], 300, &[1, 2, 3, 4]);
    for section in [Section::Answer, Section::Authority, Section::Additional] {
        check_refused(other_class(section), Refusal::Malformed);
    }
    // Pointers into the header, to themselves, ahead; a label type that is none.
    for name in [&b"\xc0\x00"[..], b"\xc0\x0b", b"\xc0\xff", b"\x40"] {
        check_refused(Message::about(A).answer(name, A, 9, &[1; 4]), Refusal::Malformed);
        check_refused(Message::about(A).answer(OWNER, CNAME, 9, name), Refusal::Malformed);
    }
    for owner in [&b"\xc0\x1d"[..], b"\x01a\xc0\x1d"] {
        check_refused(Message::about(A).answer(owner, A, 9, &[1; 4]), Refusal::Malformed);
    }
    for target in [FIRST_DATA, &[b"\x01a", FIRST_DATA].concat()] {
        check_refused(Message::about(A).answer(OWNER, CNAME, 9, target), Refusal::Malformed);
    }
    let mut long = Message::about(TXT);
    while long.0.len() <= 65_535 {
        long = long.any_record(Section::Additional, OWNER, [TXT, 1], 9, &[b'x'; 1_000]);
    }
    assert_eq!(long.read(TXT), Err(Refusal::Malformed));
}

/// What is kept grows older: a name that is made of a time to live would be
/// another one every second, or none.
#[test]
fn names_are_not_made_of_times_to_live() {
    let message = Message::about(A).answer(OWNER, A, 0x0161_0000, &[1; 4]);
    check_refused(message.answer(b"\xc0\x23", A, 60, &[1; 4]), Refusal::Malformed);
}

#[test]
fn the_opt_record_is_cut_off_wherever_it_stands() {
    let glue = |message: Message| message.additional(b"\x01g\0", A, 60, &[1; 4]);
    let last = glue(Message::about(A).address(300)).opt(0, &EDE);
    let answer = last.read(A).unwrap();
    assert_eq!(seen_after(&answer, 0).ttls_secs, [300, 60]);
    assert_eq!(answer.error(), Some(6));
    // Behind it stands nothing that a reply needs.
    let first = glue(Message::about(A).address(300).opt(0, &EDE));
    let answer = first.read(A).unwrap();
    assert_eq!((seen_after(&answer, 0).ttls_secs, answer.ttl_secs()), (vec![300], 300));
    assert_eq!(answer.error(), Some(6));
    let signed = |message: Message| {
        message.any_record(Section::Additional, &[0], [TSIG, 255], 0, b"\x01h\0signature")
    };
    for message in [signed(last.clone()), signed(first), signed(last).opt(0, b"")] {
        let is_doubled = message.0.ends_with(&[0; 6]);
        match message.read(A) {
            Ok(answer) => assert_eq!(answer.error(), Some(6)),
            Err(refusal) => assert!(is_doubled && refusal == Refusal::Malformed),
        }
    }
    let signed = signed(Message::about(A).address(300)).read(A).unwrap();
    assert_eq!(seen_after(&signed, 0).ttls_secs, [300]);
}

#[test]
fn an_opt_record_is_the_only_one_and_stands_in_its_section() {
    check_refused(Message::about(A).address(9).opt(0, b"").opt(0, b""), Refusal::Malformed);
    let misplaced = |section, owner: &[u8]| {
        Message::about(A).address(9).any_record(section, owner, [OPT, 1232], 0, b"")
    };
    check_refused(misplaced(Section::Answer, &[0]), Refusal::Malformed);
    check_refused(misplaced(Section::Authority, &[0]), Refusal::Malformed);
    check_refused(misplaced(Section::Additional, b"\x01a\0"), Refusal::Malformed);
    for options in [&b"\0"[..], b"\0\x0f\0\x02\0", b"\0\x0f\0\x01\0", b"\0\x0f\0\0"] {
        check_refused(Message::about(A).address(9).opt(0, options), Refusal::Malformed);
    }
}

#[test]
fn only_the_first_extended_error_outlives_the_opt_record() {
    let cookie = [&[0, 10, 0, 8][..], &[7; 8], &[0, 8, 0, 4, 0, 1, 0, 0]].concat();
    let second = [0, 15, 0, 2, 0, 9];
    let options = [&cookie[..], &EDE, &second].concat();
    let answer = Message::about(A).code(3).soa(9, 9).opt(0, &options).read(A).unwrap();
    let sent = question_of(&answer);
    let with_edns = ReplyTo { opt: Some(opt()), ..client(&sent) };
    let octets = reply(&answer, START, &with_edns);
    assert_eq!(see(&octets).error, Some(6));
    assert_eq!(octets.len(), answer.body_len() + 11 + 6, "neither cookie nor subnet");
    let told = Some(ExtendedError::NOT_SUPPORTED);
    let with_own = ReplyTo { opt: Some(OptReply { error: told, ..opt() }), ..with_edns };
    assert_eq!(see(&reply(&answer, START, &with_own)).error, Some(21));
    assert_eq!(see(&reply(&answer, START, &client(&sent))).error, None);
}

#[test]
fn flags_are_those_of_a_resolver() {
    let plain = Message::about(A).address(9).flags(Flags::AA).read(A).unwrap();
    let vouched = Message::about(A).address(9).flags(Flags::AD).read(A).unwrap();
    let sent = question_of(&plain);
    let check = |answer: &Answer, asked: u16, dnssec_ok: bool, expected: u16| {
        let opt = dnssec_ok.then(|| OptReply { dnssec_ok, ..opt() });
        let to = ReplyTo { flags: Flags(asked), opt, ..client(&sent) };
        let flags = see(&reply(answer, START, &to)).flags;
        assert_eq!(flags, Flags::QR | Flags::RA | expected, "{asked:#x} {dnssec_ok}");
    };
    check(&plain, 0, false, 0);
    check(&plain, Flags::RD | Flags::CD, false, Flags::RD | Flags::CD);
    check(&plain, Flags::AD, true, 0);
    check(&vouched, 0, false, 0);
    check(&vouched, Flags::AD, false, Flags::AD);
    check(&vouched, 0, true, Flags::AD);
    // Nothing else of a question is copied.
    check(&vouched, Flags::AA | Flags::TC | Flags::OPCODE | 0x40 | 0xf, false, 0);
}

#[test]
fn an_answer_that_is_too_long_leaves_only_the_question() {
    let message = (0..40).fold(Message::about(A), |message, _| message.address(60));
    let answer = message.flags(Flags::AD).opt(0, &EDE).read(A).unwrap();
    let sent = question_of(&answer);
    let len = answer.body_len();
    let opt = Some(OptReply { dnssec_ok: true, ..opt() });
    let at_limit = |limit, opt| {
        let mut out = vec![0; limit];
        let to = ReplyTo { limit, opt, ..client(&sent) };
        let written = answer.write(START, &to, &mut out);
        out.truncate(written.len);
        (written, out)
    };
    assert_eq!(at_limit(len, None).0, Written { len, truncated: false });
    assert_eq!(at_limit(len + 17, opt).0, Written { len: len + 17, truncated: false });
    for (limit, opt, end) in
        [(len - 1, None, 29), (len + 16, opt, 46), (46, opt, 46), (45, opt, 29)]
    {
        let (written, out) = at_limit(limit, opt);
        assert_eq!(written, Written { len: end, truncated: true });
        let seen = see(&out);
        assert_eq!(seen.flags, Flags::QR | Flags::RA | Flags::RD | Flags::TC);
        assert_eq!((seen.ttls_secs, seen.has_opt), (vec![], end == 46));
        assert_eq!(out[12..29], sent);
    }
    assert_eq!(at_limit(28, None).0, Written { len: 0, truncated: true });
    // Without the OPT record something is missing, even if no record is.
    let failure = Answer::failure(question(A), 5, START);
    let to = ReplyTo { limit: 39, opt, ..client(&sent) };
    let written = failure.write(START, &to, &mut [0; 512]);
    assert_eq!(written, Written { len: 29, truncated: true });
    // The buffer is a limit as well.
    let to = ReplyTo { limit: 4_096, ..client(&sent) };
    assert!(answer.write(START, &to, &mut [0; 100]).truncated);
}

#[test]
fn stale_answers_say_so() {
    let positive = alias(50).answer(TARGET, A, 300, &[1; 4]).read(A).unwrap();
    let negative = Message::about(A).code(3).soa(60, 60).opt(0, &EDE).read(A).unwrap();
    for (answer, error, count) in [(positive, 3, 2), (negative, 19, 1)] {
        let sent = question_of(&answer);
        let to = ReplyTo { opt: Some(opt()), stale_ttl_secs: Some(30), ..client(&sent) };
        let seen = see(&reply(&answer, after_secs(4_000), &to));
        assert_eq!((seen.ttls_secs, seen.error), (vec![30; count], Some(error)));
    }
}

#[test]
fn failures_are_answers_of_ours() {
    for (asked_for, ttl_secs) in [(0, 1), (5, 5), (1_000, 300)] {
        let answer = Answer::failure(question(MX), asked_for, START);
        assert_eq!(
            (answer.kind(), answer.rcode(), answer.ttl_secs()),
            (Kind::Failure, 2, ttl_secs)
        );
        assert!(answer.is_cacheable() && answer.is_for(&question(MX)));
    }
    let answer = Answer::failure(question(MX), 5, START).with_error(22);
    let sent = [SENT, &[0, 15, 0, 1]].concat();
    let to = ReplyTo { opt: Some(opt()), ..client(&sent) };
    let octets = reply(&answer, START, &to);
    let seen = see(&octets);
    assert_eq!(seen.flags, Flags::QR | Flags::RD | Flags::RA | 2);
    assert_eq!((seen.ttls_secs, seen.error), (vec![], Some(22)));
    assert_eq!(octets[12..29], sent);
}
