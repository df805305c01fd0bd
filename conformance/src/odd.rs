//! Messages no client should send: malformed, unusual or out of date. Peers disagree a lot here,
//! so each message carries the outcomes that Pharos may choose from and the clause behind them;
//! the peers' outcomes are shown beside.

use std::fmt::Write as _;

use anyhow::Result;

use crate::answer::{Answer, Reply};
use crate::ask;
use crate::name::Name;
use crate::peers::Server;
use crate::queries::{Edns, Query};
use crate::report::{Example, Report};
use crate::rtype;
use crate::truth::Truth;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// As if nothing odd had been there: NOERROR with AA.
    Ordinary,
    Rcode(u16),
    /// The code, and an OPT record beside it.
    WithOpt(u16),
    Silence,
}
use Want::{Ordinary, Rcode, Silence, WithOpt};

const FORMERR: Want = Rcode(1);
const NOTIMP: Want = Rcode(4);
const REFUSED: Want = Rcode(5);
const NOTAUTH: Want = Rcode(9);
const BADVERS: Want = Rcode(16);

struct Odd {
    name: String,
    octets: Vec<u8>,
    allowed: &'static [Want],
    clause: &'static str,
}

pub fn run(subject: &Server, peers: &[Server], truth: &Truth, report: &mut Report) -> Result<()> {
    let mut head = format!("| message | allowed | clause | {} |", subject.kind.label());
    for peer in peers {
        let _ = write!(head, " {} |", peer.kind.label());
    }
    let rule = format!("|{}", "---|".repeat(4 + peers.len()));
    report.odd.extend([head, rule]);
    for odd in messages(&truth.zones[0].origin) {
        let mut replies = ask_all(subject, peers, &odd.octets)?.into_iter();
        let reply = replies.next().expect("the subject's comes first");
        let mut line =
            format!("| {} | {:?} | {} | {} |", odd.name, odd.allowed, odd.clause, outcome(&reply));
        for reply in replies {
            let _ = write!(line, " {} |", outcome(&reply));
        }
        report.odd.push(line);
        if !odd.allowed.iter().any(|want| is_wanted(*want, &reply)) {
            report.finding(format!("odd message: {}", odd.name), || Example {
                index: None,
                dig: format!("octets {}", crate::answer::hex(&odd.octets)),
                detail: format!("! allowed {:?} by {}\n{reply}", odd.allowed, odd.clause),
            });
        }
    }
    Ok(())
}

/// All at once: silence is only known after waiting.
fn ask_all(subject: &Server, peers: &[Server], octets: &[u8]) -> Result<Vec<Reply>> {
    std::thread::scope(|scope| {
        let servers = std::iter::once(subject).chain(peers);
        let threads: Vec<_> = servers
            .map(|server| scope.spawn(move || ask::ask_raw(server.address, octets)))
            .collect();
        let replies = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        replies.collect()
    })
}

fn is_wanted(want: Want, reply: &Reply) -> bool {
    match (want, reply) {
        (Silence, Reply::Silence) => true,
        (Rcode(rcode), Reply::Answer(answer)) => answer.rcode == rcode,
        (WithOpt(rcode), Reply::Answer(answer)) => answer.rcode == rcode && !answer.opts.is_empty(),
        (Ordinary, Reply::Answer(answer)) => answer.rcode == 0 && answer.aa(),
        _ => false,
    }
}

fn outcome(reply: &Reply) -> String {
    let shown = |answer: &Answer| match answer.rcode == 0 && answer.aa() {
        true => "ordinary".to_owned(),
        false => rtype::rcode_mnemonic(answer.rcode),
    };
    match reply {
        Reply::Answer(answer) => shown(answer),
        Reply::Unparsable(problem) => format!("unparsable: {problem}"),
        Reply::Silence => "silence".to_owned(),
    }
}

/// A query for the SOA of `origin`, to be bent.
fn plain(origin: &Name) -> Vec<u8> {
    let query = Query { tcp: false, ..Query::simple(origin.clone(), rtype::SOA) };
    query.encode(0x1234)
}

fn with_edns(origin: &Name) -> Vec<u8> {
    let edns = Some(Edns { size: 1232, dnssec_ok: false });
    let query = Query { tcp: false, edns, ..Query::simple(origin.clone(), rtype::SOA) };
    query.encode(0x1234)
}

fn opt(owner: &[u8], version: u8, z: u16, data: &[u8]) -> Vec<u8> {
    let mut octets = owner.to_vec();
    octets.extend_from_slice(&[0, 41, 0x04, 0xd0, 0, version]);
    octets.extend_from_slice(&z.to_be_bytes());
    octets.extend_from_slice(&(data.len() as u16).to_be_bytes());
    octets.extend_from_slice(data);
    octets
}

/// `plain` with records appended and the counts of question, answer, authority, additional set.
fn bent(origin: &Name, counts: [u8; 4], tail: &[u8]) -> Vec<u8> {
    let mut octets = plain(origin);
    for (index, count) in counts.iter().enumerate() {
        octets[5 + 2 * index] = *count;
    }
    octets.extend_from_slice(tail);
    octets
}

fn with_question(name: &[u8], qtype: u16, class: u16) -> Vec<u8> {
    let mut octets = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    octets.extend_from_slice(name);
    octets.extend_from_slice(&qtype.to_be_bytes());
    octets.extend_from_slice(&class.to_be_bytes());
    octets
}

fn messages(origin: &Name) -> Vec<Odd> {
    let mut odds = counts(origin);
    odds.extend(headers(origin));
    odds.extend(edns(origin));
    odds.extend(names(origin));
    odds.extend(types(origin));
    odds.extend(cut_short(origin));
    odds
}

fn odd(
    name: impl Into<String>,
    octets: Vec<u8>,
    allowed: &'static [Want],
    clause: &'static str,
) -> Odd {
    Odd { name: name.into(), octets, allowed, clause }
}

fn counts(origin: &Name) -> Vec<Odd> {
    let question = with_question(origin.wire(), rtype::A, 1)[12..].to_vec();
    let a_record = b"\x01x\0\0\x01\0\x01\0\0\0\0\0\x04\xc0\0\x02\x01";
    let mut tsig = b"\x03key\0\0\xfa\0\xff\0\0\0\0\0\x1d\x0bhmac-sha256\0".to_vec();
    tsig.extend_from_slice(&[0; 16]);
    vec![
        odd(
            "QDCOUNT 0",
            vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[FORMERR],
            "RFC 7873 5.4: only a cookie comes without a question",
        ),
        odd(
            "QDCOUNT 0, a question follows",
            bent(origin, [0, 0, 0, 0], b""),
            &[FORMERR],
            "RFC 7873 5.4: only a cookie comes without a question",
        ),
        odd("QDCOUNT 2", bent(origin, [2, 0, 0, 0], &question), &[FORMERR], "RFC 9619 4"),
        odd(
            "QDCOUNT 2, one question",
            bent(origin, [2, 0, 0, 0], b""),
            &[FORMERR],
            "RFC 1035 4.1.1",
        ),
        odd("ANCOUNT 1", bent(origin, [1, 1, 0, 0], a_record), &[FORMERR], "RFC 1035 4.1.1"),
        odd("ANCOUNT 1, no record", bent(origin, [1, 1, 0, 0], b""), &[FORMERR], "RFC 1035 4.1.1"),
        odd("NSCOUNT 1", bent(origin, [1, 0, 1, 0], a_record), &[FORMERR], "RFC 1035 4.1.1"),
        odd(
            "an address in the additional section",
            bent(origin, [1, 0, 0, 1], a_record),
            &[FORMERR, Ordinary],
            "RFC 1035 4.1.1",
        ),
        odd("ARCOUNT 1, no record", bent(origin, [1, 0, 0, 1], b""), &[FORMERR], "RFC 1035 4.1.1"),
        odd(
            "a malformed TSIG",
            bent(origin, [1, 0, 0, 1], &tsig),
            &[FORMERR, NOTAUTH, Ordinary],
            "RFC 8945 5.2",
        ),
        odd(
            "octets after the message",
            bent(origin, [1, 0, 0, 0], b"garbage"),
            &[FORMERR, Ordinary],
            "RFC 1035 4.1",
        ),
    ]
}

fn headers(origin: &Name) -> Vec<Odd> {
    let flagged = |flags: u16| {
        let mut octets = plain(origin);
        octets[2..4].copy_from_slice(&flags.to_be_bytes());
        octets
    };
    let mut odds = vec![
        odd("QR set", flagged(0x8000), &[Silence], "RFC 1035 4.1.1: an answer is not answered"),
        odd("AA set", flagged(0x0400), &[Ordinary], "RFC 1035 4.1.1: AA has meaning in responses"),
        odd("TC set", flagged(0x0200), &[Ordinary, FORMERR], "RFC 1035 4.1.1"),
        odd("RA set", flagged(0x0080), &[Ordinary], "RFC 1035 4.1.1: RA has meaning in responses"),
        odd("Z set", flagged(0x0040), &[Ordinary], "RFC 6895 2.1: known servers ignore Z"),
        odd("RCODE 5 in the query", flagged(0x0005), &[Ordinary, FORMERR], "RFC 6895 2.3"),
    ];
    let opcodes: [(u16, &str, &str); 7] = [
        (1, "IQUERY", "RFC 3425 3"),
        (2, "STATUS", "RFC 1035 4.1.1"),
        (3, "opcode 3", "RFC 6895 2.2"),
        (4, "NOTIFY", "RFC 1996 3: not offered yet"),
        (5, "UPDATE", "RFC 2136 2.2: not offered yet"),
        (6, "DSO", "RFC 8490 5.1"),
        (15, "opcode 15", "RFC 6895 2.2"),
    ];
    for (opcode, name, clause) in opcodes {
        odds.push(odd(name, flagged(opcode << 11), &[NOTIMP], clause));
        let mut octets = with_edns(origin);
        octets[2..4].copy_from_slice(&(opcode << 11).to_be_bytes());
        let name = format!("{name} with EDNS");
        odds.push(odd(name, octets, &[WithOpt(4)], "RFC 6891 6.1.1: OPT for OPT"));
    }
    let mut empty = flagged(0x2800);
    empty.truncate(12);
    empty[5] = 0;
    odds.push(odd("UPDATE without a zone", empty, &[NOTIMP, FORMERR], "RFC 2136 2.2"));
    odds
}

fn edns(origin: &Name) -> Vec<Odd> {
    let one = |record: Vec<u8>| bent(origin, [1, 0, 0, 1], &record);
    let two = [opt(b"\0", 0, 0, b""), opt(b"\0", 0, 0, b"")].concat();
    let mut cut = with_edns(origin);
    cut.truncate(cut.len() - 3);
    vec![
        odd("two OPT", bent(origin, [1, 0, 0, 2], &two), &[FORMERR], "RFC 6891 6.1.1"),
        odd("OPT owned by a name", one(opt(b"\x01x\0", 0, 0, b"")), &[FORMERR], "RFC 6891 6.1.2"),
        odd(
            "OPT in the answer section",
            bent(origin, [1, 1, 0, 0], &opt(b"\0", 0, 0, b"")),
            &[FORMERR],
            "RFC 6891 6.1.1",
        ),
        odd("OPT cut short", cut, &[FORMERR], "RFC 1035 4.1.1"),
        odd("EDNS version 1", one(opt(b"\0", 1, 0, b"")), &[BADVERS], "RFC 6891 6.1.3"),
        odd(
            "EDNS version 255, DO",
            one(opt(b"\0", 255, 0x8000, b"")),
            &[BADVERS],
            "RFC 6891 6.1.3",
        ),
        odd("EDNS Z bits", one(opt(b"\0", 0, 0x7fff, b"")), &[Ordinary], "RFC 6891 6.1.4"),
        odd(
            "an unknown option",
            one(opt(b"\0", 0, 0, b"\xfd\xe9\0\x02hi")),
            &[Ordinary],
            "RFC 6891 6.1.2",
        ),
        odd(
            "an option longer than OPT",
            one(opt(b"\0", 0, 0, b"\xfd\xe9\0\x09hi")),
            &[FORMERR],
            "RFC 6891 6.1.2",
        ),
        odd(
            "a cookie of 7 octets",
            one(opt(b"\0", 0, 0, b"\0\x0a\0\x071234567")),
            &[FORMERR],
            "RFC 7873 5.2.2",
        ),
        odd(
            "a client cookie",
            one(opt(b"\0", 0, 0, b"\0\x0a\0\x0812345678")),
            &[Ordinary],
            "RFC 7873 5.2.3",
        ),
        odd("NSID", one(opt(b"\0", 0, 0, b"\0\x03\0\0")), &[Ordinary], "RFC 5001 2.2"),
        odd("padding", one(opt(b"\0", 0, 0, b"\0\x0c\0\x04\0\0\0\0")), &[Ordinary], "RFC 7830 3"),
    ]
}

fn names(origin: &Name) -> Vec<Odd> {
    let refused: &[Want] = &[FORMERR, Silence];
    let mut long = Vec::new();
    for _ in 0..4 {
        long.push(63);
        long.extend_from_slice(&[b'n'; 63]);
    }
    long.push(0);
    let mut prefixed = b"\x01a".to_vec();
    prefixed.extend_from_slice(&[0xc0, 12]);
    let mut extended = vec![0x41, 0x08, 0xff];
    extended.extend_from_slice(origin.wire());
    vec![
        odd("a pointer to itself", with_question(&[0xc0, 12], 1, 1), refused, "RFC 1035 4.1.4"),
        odd(
            "a pointer into the header",
            with_question(&[0xc0, 4], 1, 1),
            refused,
            "RFC 1035 4.1.4",
        ),
        odd("a pointer forwards", with_question(&[0xc0, 14], 1, 1), refused, "RFC 1035 4.1.4"),
        odd(
            "a pointer past the end",
            with_question(&[0xff, 0xff], 1, 1),
            refused,
            "RFC 1035 4.1.4",
        ),
        odd("a label and a loop", with_question(&prefixed, 1, 1), refused, "RFC 1035 4.1.4"),
        odd("a label of kind 01", with_question(&extended, 1, 1), refused, "RFC 6891 5"),
        odd("a label of kind 10", with_question(&[0x81, b'a', 0], 1, 1), refused, "RFC 1035 4.1.4"),
        odd("a name of 257 octets", with_question(&long, 1, 1), refused, "RFC 1035 2.3.4"),
    ]
}

/// Types that are not data (RFC 6895 3.1) and classes that are not zones.
fn types(origin: &Name) -> Vec<Odd> {
    let asked = |qtype, class| with_question(origin.wire(), qtype, class);
    let chaos = |name: &[u8]| with_question(name, rtype::TXT, rtype::CLASS_CH);
    let meta: &[Want] = &[FORMERR, NOTIMP, REFUSED, Ordinary];
    let transfer: &[Want] = &[FORMERR, NOTIMP, REFUSED];
    vec![
        odd("type 0", asked(0, 1), meta, "RFC 6895 3.1"),
        odd("type OPT", asked(41, 1), meta, "RFC 6891 6.1.1"),
        odd("type TKEY", asked(249, 1), meta, "RFC 2930 2"),
        odd("type TSIG", asked(250, 1), meta, "RFC 8945 4.1"),
        odd("IXFR over UDP", asked(251, 1), meta, "RFC 1995 2"),
        odd("AXFR over UDP", asked(252, 1), transfer, "RFC 5936 4.2"),
        odd("type MAILB", asked(253, 1), meta, "RFC 1035 3.2.3"),
        odd("type MAILA", asked(254, 1), meta, "RFC 1035 3.2.3"),
        odd("type 65535", asked(65535, 1), meta, "RFC 6895 3.1"),
        odd("class 0", asked(6, 0), &[FORMERR, REFUSED], "RFC 6895 3.2"),
        odd("class NONE", asked(6, 254), &[FORMERR, REFUSED], "RFC 2136 1.3"),
        odd(
            "version.bind CH TXT",
            chaos(b"\x07version\x04bind\0"),
            &[Rcode(0), REFUSED],
            "RFC 4892",
        ),
        odd("id.server CH TXT", chaos(b"\x02id\x06server\0"), &[Rcode(0), REFUSED], "RFC 4892"),
        odd("www CH A", with_question(b"\x03www\0", 1, 3), &[REFUSED], "RFC 4892"),
        odd("class ANY", asked(6, 255), &[FORMERR, REFUSED, Rcode(0)], "RFC 1035 3.2.5"),
    ]
}

/// Every length of a plain query up to its last octet. Less than a header has no id to answer to.
fn cut_short(origin: &Name) -> Vec<Odd> {
    let whole = plain(origin);
    (0..whole.len())
        .map(|length| {
            let allowed: &[Want] = if length < 12 { &[Silence] } else { &[FORMERR, Silence] };
            let name = format!("cut to {length} octets");
            odd(name, whole[..length].to_vec(), allowed, "RFC 1035 4.1.1")
        })
        .collect()
}
