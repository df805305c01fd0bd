//! Everything an answer has to be, whatever the question was.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use authority::{Outcome, Settings, Transport};
use wire::rtype;

use crate::model::{CHAIN_LEN_SURE, Model, NOERROR, REFUSED, SERVFAIL};
use crate::packet::{self, Answer, Record, hex};
use crate::server::{IDLE_100MS, Server};

const QR: u16 = 0x8000;
const AA: u16 = 0x0400;
const TC: u16 = 0x0200;
/// Opcode and RD are copied from the question; CD is for resolvers (RFC 4035, 3.1.6).
const COPIED: u16 = 0x7800 | 0x0100;
/// What every client takes over UDP.
const PAYLOAD_MIN: u16 = 512;
const NSID: u16 = 3;
const COOKIE: u16 = 10;
const KEEPALIVE: u16 = 11;
const EXTENDED_ERROR: u16 = 15;
const FORMERR: u16 = 1;
const NOTIMP: u16 = 4;
const BADVERS: u16 = 16;

/// Past this even an answer over TCP may lack something: a set that needs
/// pointers is not written where they do not reach, a chain ends there, and the
/// glue of thousands of name servers fits no message.
const TCP_LEN_SURE: usize = 6 * 1024;

/// Asks over both transports and panics if anything is wrong with an answer.
pub fn judge(server: &Server, model: &Model, settings: &Settings, from: IpAddr, packet: &[u8]) {
    let whole_len = judge_once(server, model, settings, from, packet);
    // Where an answer just fits and just does not is where limits go wrong.
    let Some(place) = Sent::read(packet).and_then(|sent| sent.opt).map(|opt| opt.payload_at) else {
        return;
    };
    if whole_len <= usize::from(PAYLOAD_MIN) {
        return;
    }
    let settings = Settings { udp_payload: u16::MAX, ..settings.clone() };
    let mut packet = packet.to_vec();
    for payload in [whole_len - 1, whole_len, whole_len + 1] {
        let Ok(payload) = u16::try_from(payload) else { continue };
        packet[place..place + 2].copy_from_slice(&payload.to_be_bytes());
        judge_once(server, model, &settings, from, &packet);
    }
}

/// Judges both answers to one message; returns the length of the whole one
/// without what only TCP adds.
fn judge_once(
    server: &Server,
    model: &Model,
    settings: &Settings,
    from: IpAddr,
    packet: &[u8],
) -> usize {
    let sent = Sent::read(packet);
    let (udp_outcome, udp) = server.ask(settings, from, Transport::Udp, packet);
    let tcp_transport = Transport::Tcp { idle_100ms: IDLE_100MS };
    let (tcp_outcome, tcp) = server.ask(settings, from, tcp_transport, packet);
    let is_dropped = sent.as_ref().is_none_or(|sent| sent.flags & QR != 0);
    for outcome in [udp_outcome, tcp_outcome] {
        assert_eq!(outcome.result.is_err(), is_dropped, "dropped or not: {}", hex(packet));
    }
    let Some(sent) = sent.filter(|_| !is_dropped) else {
        assert!(udp.is_empty() && tcp.is_empty(), "octets of an answer that was dropped");
        return 0;
    };
    let mut case = Case { packet, sent: &sent, model, settings, octets: &udp };
    case.that(udp.len() <= case.udp_len_max(), "longer than UDP allows");
    let udp_answer = case.parse();
    case.check(&udp_answer, udp_outcome);
    case.octets = &tcp;
    let tcp_answer = case.parse();
    case.check(&tcp_answer, tcp_outcome);
    let may_truncate = tcp.len() > TCP_LEN_SURE;
    case.that(may_truncate || tcp_answer.flags & TC == 0, "truncated over TCP");
    if tcp_answer.flags & TC == 0 {
        case.check_model(&tcp_answer);
        case.compare(&udp_answer, &tcp_answer);
    }
    let has_keepalive = tcp_answer.opt.is_some_and(|opt| opt.has(KEEPALIVE));
    tcp.len() - if has_keepalive { 6 } else { 0 }
}

/// A question and one of its answers.
struct Case<'c> {
    packet: &'c [u8],
    sent: &'c Sent,
    model: &'c Model,
    settings: &'c Settings,
    octets: &'c [u8],
}

impl Case<'_> {
    #[track_caller]
    fn that(&self, holds: bool, complaint: &str) {
        if !holds {
            self.fail(complaint);
        }
    }

    #[track_caller]
    fn fail(&self, complaint: &str) -> ! {
        let (asked, answered) = (hex(self.packet), hex(self.octets));
        let parsed = packet::parse(self.octets);
        panic!("{complaint}\nquestion {asked}\nanswer {answered}\nwhich is {parsed:#?}");
    }

    fn parse(&self) -> Answer {
        packet::parse(self.octets).unwrap_or_else(|error| self.fail(&error))
    }

    /// Octets that an answer over UDP may have.
    fn udp_len_max(&self) -> usize {
        let most = self.settings.udp_payload.max(PAYLOAD_MIN);
        let taken = self.sent.opt.as_ref().map_or(PAYLOAD_MIN, |opt| opt.payload.max(PAYLOAD_MIN));
        usize::from(taken.min(most))
    }

    /// What holds for every answer by itself.
    fn check(&self, answer: &Answer, outcome: Outcome) {
        // Without EDNS only the lower bits of a code can be sent.
        let mask = if answer.opt.is_some() { 0xfff } else { 0xf };
        let code = outcome.result.map(|rcode| rcode as u16 & mask);
        self.that(code == Ok(answer.rcode), "a code unlike the outcome");
        self.that(outcome.truncated == (answer.flags & TC != 0), "TC unlike the outcome");
        let Sent { id, flags, question, .. } = self.sent;
        self.that(answer.id == *id, "another id");
        self.that(answer.flags & QR != 0, "no QR");
        self.that(answer.flags & !(QR | AA | TC | 0xf) == flags & COPIED, "flags");
        match question {
            Some(question) => self.that(answer.question == question.octets, "another question"),
            None => self.that(answer.question.is_empty(), "a question that was none"),
        }
        self.check_code(answer);
        self.check_opt(answer);
        self.check_records(answer);
    }

    fn check_code(&self, answer: &Answer) {
        let is_error = matches!(answer.rcode, FORMERR | NOTIMP | REFUSED | BADVERS);
        if is_error {
            let is_empty = answer.sections.iter().all(Vec::is_empty);
            self.that(is_empty && answer.flags & (AA | TC) == 0, "records with an error");
        }
        let is_query = self.sent.flags & 0x7800 == 0;
        self.that(is_query == (answer.rcode != NOTIMP) || self.sent.is_mail(), "NOTIMP");
        if is_query && self.sent.form == Form::Bad {
            self.that(answer.rcode == FORMERR, "a malformed message was answered");
        }
    }

    fn check_opt(&self, answer: &Answer) {
        let Some(opt) = &answer.opt else {
            let due = self.sent.opt.is_some() && self.sent.form == Form::Good;
            return self.that(!due, "no OPT record");
        };
        let Some(sent) = &self.sent.opt else { self.fail("an OPT record nobody asked for") };
        self.that(opt.payload == self.settings.udp_payload, "another payload");
        self.that(opt.version == 0, "another version");
        self.that(opt.flags == sent.flags & 0x8000, "flags of the OPT record");
        let codes: Vec<u16> = opt.options.iter().map(|option| option.0).collect();
        let distinct: HashSet<u16> = codes.iter().copied().collect();
        self.that(distinct.len() == codes.len(), "an option twice");
        for (code, value) in &opt.options {
            // All but the last only on request.
            let is_known = matches!(*code, NSID | COOKIE | KEEPALIVE | EXTENDED_ERROR);
            self.that(is_known, "an unknown option");
            let is_due = *code == EXTENDED_ERROR || sent.has(*code);
            self.that(is_due, "an option nobody asked for");
            if *code == COOKIE {
                self.that(value.len() == 24, "a cookie of another length");
            }
        }
    }

    fn check_records(&self, answer: &Answer) {
        for records in &answer.sections {
            let mut seen = HashSet::new();
            let mut ttls = HashMap::new();
            for record in records {
                let Record { owner, rtype, class, ttl_secs, data } = record;
                self.that(seen.insert((owner, rtype, data)), "a record twice in a section");
                if *rtype != rtype::RRSIG {
                    let first = ttls.entry((owner, rtype)).or_insert(ttl_secs);
                    self.that(*first == ttl_secs, "different TTLs in a set");
                }
                // A CNAME may be made from a DNAME; CHAOS knows no zone.
                let is_made = *rtype == rtype::CNAME || *class == 3;
                self.that(is_made || self.model.knows(*rtype, data), "a record of no zone");
                self.that(*class == 1 || self.sent.qclass() == Some(3), "another class");
            }
        }
        let wants_dnssec = self.sent.opt.as_ref().is_some_and(|opt| opt.flags & 0x8000 != 0);
        let [_, authority, additional] = &answer.sections;
        let is_dnssec = |record: &Record| matches!(record.rtype, 46 | 47 | 50);
        let has_dnssec = authority.iter().chain(additional).any(is_dnssec);
        self.that(wants_dnssec || !has_dnssec, "signatures or proofs nobody asked for");
        self.check_additional(answer);
    }

    /// Additional records are addresses of names in the other sections, and
    /// what a service leads to (RFC 9460, 4.1).
    fn check_additional(&self, answer: &Answer) {
        let [first, second, additional] = &answer.sections;
        let mut named = HashSet::new();
        for record in first.iter().chain(second) {
            named.insert(record.owner.clone());
            let at = match record.rtype {
                rtype::NS => 0,
                rtype::MX | rtype::SVCB | rtype::HTTPS => 2,
                rtype::SRV => 6,
                _ => continue,
            };
            named.insert(packet::canonical_name(&record.data[at..]));
        }
        for record in additional {
            let is_address = matches!(record.rtype, rtype::A | rtype::AAAA | rtype::RRSIG);
            let is_service = matches!(record.rtype, rtype::SVCB | rtype::HTTPS)
                && self.sent.question.as_ref().is_some_and(|sent| sent.qtype == record.rtype);
            let is_help = is_address || is_service;
            self.that(is_help, "something else than an address among the additional records");
            self.that(named.contains(&record.owner), "an address of a name that nobody named");
        }
    }

    /// Compares with what the zones say.
    fn check_model(&self, answer: &Answer) {
        let Some(question) = self.sent.plain_question() else { return };
        match question.qtype {
            0 | rtype::OPT | rtype::TSIG => return self.that(answer.rcode == FORMERR, "FORMERR"),
            rtype::IXFR | rtype::AXFR => return self.that(answer.rcode == REFUSED, "REFUSED"),
            rtype::MAILA | rtype::MAILB => return self.that(answer.rcode == NOTIMP, "NOTIMP"),
            // Any subset will do (RFC 8482).
            rtype::ANY | rtype::RRSIG => return,
            _ => {}
        }
        let expected = self.model.resolve(&question.name, question.qtype);
        if expected.links > CHAIN_LEN_SURE {
            return;
        }
        let keys = |records: &[Record]| -> BTreeSet<_> {
            let plain = records.iter().filter(|record| record.rtype != rtype::RRSIG);
            plain.map(|r| (r.owner.clone(), r.rtype, r.data.clone())).collect()
        };
        let [first, second, _] = &answer.sections;
        let ends_early = expected.links > 0 && self.octets.len() > TCP_LEN_SURE;
        if ends_early && answer.rcode == NOERROR && keys(first).is_subset(&expected.answer) {
            return;
        }
        if expected.rcode != answer.rcode {
            self.fail(&format!("code {}; expected {expected:#?}", answer.rcode));
        }
        if keys(first) != expected.answer {
            self.fail(&format!("another answer section; expected {expected:#?}"));
        }
        let authority = keys(second);
        self.that(expected.authority.is_subset(&authority), "a referral without its servers");
        if let Some(origin) = &expected.absent_in {
            let is_soa = |key: &&(Vec<u8>, u16, _)| key.1 == rtype::SOA && key.0 == *origin;
            self.that(authority.iter().any(|key| is_soa(&key)), "absence without a SOA record");
        }
        let is_referral = expected.answer.is_empty() && !expected.authority.is_empty();
        let is_authoritative = !is_referral && !matches!(expected.rcode, REFUSED | SERVFAIL);
        if expected.answer.is_empty() {
            self.that((answer.flags & AA != 0) == is_authoritative, "AA");
        }
    }

    /// An answer over UDP is the one over TCP, or says that it is not.
    fn compare(&self, udp: &Answer, tcp: &Answer) {
        let len = |answer: &Answer| answer.sections.iter().map(Vec::len).sum::<usize>();
        if udp.flags & TC != 0 {
            self.that(len(udp) < len(tcp), "truncated with nothing left out");
            for (short, long) in udp.sections.iter().zip(&tcp.sections).take(2) {
                self.that(long.starts_with(short), "not the start of the whole answer");
            }
            return;
        }
        self.that(udp.flags == tcp.flags && udp.rcode == tcp.rcode, "other flags over UDP");
        self.that(udp.sections[..2] == tcp.sections[..2], "another answer over UDP");
        let mut rest = tcp.sections[2].iter();
        let is_part = udp.sections[2].iter().all(|record| rest.any(|other| other == record));
        self.that(is_part, "other additional records over UDP");
    }
}

/// Whether a message can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Good,
    /// Nobody could say for sure, such as with a name that is too long.
    Unsure,
    Bad,
}

/// A message as it was sent, read independently of the server.
#[derive(Debug)]
struct Sent {
    id: u16,
    flags: u16,
    counts: [u16; 4],
    form: Form,
    question: Option<SentQuestion>,
    opt: Option<SentOpt>,
}

#[derive(Debug)]
struct SentQuestion {
    octets: Vec<u8>,
    name: Vec<u8>,
    qtype: u16,
    qclass: u16,
}

#[derive(Debug)]
struct SentOpt {
    payload: u16,
    /// Where the payload stands in the message.
    payload_at: usize,
    version: u8,
    flags: u16,
    /// `None` if they are not options.
    options: Option<Vec<(u16, Vec<u8>)>>,
}

impl SentOpt {
    fn has(&self, code: u16) -> bool {
        self.options.as_ref().is_none_or(|options| options.iter().any(|option| option.0 == code))
    }

    fn is_plain(&self) -> bool {
        let is_good =
            |option: &(u16, Vec<u8>)| option.0 != COOKIE || matches!(option.1.len(), 8 | 16..=40);
        self.version == 0 && self.options.as_ref().is_some_and(|all| all.iter().all(is_good))
    }
}

impl Sent {
    /// Reads a message; `None` if there is not even a header.
    fn read(packet: &[u8]) -> Option<Sent> {
        let word = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        packet.get(..12)?;
        let counts = [word(4)?, word(6)?, word(8)?, word(10)?];
        let form = Form::Unsure;
        let (id, flags) = (word(0)?, word(2)?);
        let mut sent = Sent { id, flags, counts, form, question: None, opt: None };
        if sent.flags & QR == 0 {
            let is_query = sent.flags & 0x7800 == 0;
            sent.form = if is_query { sent.read_body(packet) } else { sent.read_other(packet) };
        }
        Some(sent)
    }

    /// Another operation: only its OPT record counts.
    fn read_other(&mut self, packet: &[u8]) -> Form {
        let mut at = 12;
        for _ in 0..self.counts[0] {
            let Some((end, _)) = skip_labels(packet, at) else { return Form::Bad };
            if end - at > 255 {
                return Form::Unsure;
            }
            at = end + 4;
        }
        let others = usize::from(self.counts[1]) + usize::from(self.counts[2]);
        let Some((end, others_form)) = self.read_records(packet, at, others) else {
            return Form::Bad;
        };
        if self.opt.take().is_some() {
            return Form::Bad;
        }
        let additionals = usize::from(self.counts[3]);
        match self.read_records(packet, end, additionals) {
            Some((end, form)) if end == packet.len() => {
                if others_form == Form::Good {
                    form
                } else {
                    others_form
                }
            }
            _ => Form::Bad,
        }
    }

    fn read_body(&mut self, packet: &[u8]) -> Form {
        let mut at = 12;
        if self.counts[0] > 1 {
            return Form::Bad;
        }
        if self.counts[0] == 1 {
            let name = match skip_labels(packet, at) {
                Some((end, Ends::Root)) if end - at <= 255 => packet[at..end].to_vec(),
                _ => return Form::Bad,
            };
            let end = at + name.len() + 4;
            let Some(tail) = packet.get(end - 4..end) else { return Form::Bad };
            self.question = Some(SentQuestion {
                octets: packet[at..end].to_vec(),
                name: name.to_ascii_lowercase(),
                qtype: u16::from_be_bytes([tail[0], tail[1]]),
                qclass: u16::from_be_bytes([tail[2], tail[3]]),
            });
            at = end;
        }
        let is_ixfr = self.question.as_ref().is_some_and(|q| q.qtype == rtype::IXFR);
        if self.counts[1] > 0 || self.counts[2] > 0 && !is_ixfr {
            return Form::Bad;
        }
        let records = usize::from(self.counts[2]) + usize::from(self.counts[3]);
        match self.read_records(packet, at, records) {
            Some((end, form)) if end == packet.len() => form,
            _ => Form::Bad,
        }
    }

    /// Reads records from `at` on and takes the OPT record among them; where
    /// they end and how sure that is, or `None` if it is certain that they are
    /// none.
    fn read_records(
        &mut self,
        packet: &[u8],
        mut at: usize,
        count: usize,
    ) -> Option<(usize, Form)> {
        let mut form = Form::Good;
        for _ in 0..count {
            let start = at;
            let (fixed, ends) = skip_labels(packet, at)?;
            if fixed - start > 255 {
                form = Form::Unsure;
            }
            let head = packet.get(fixed..fixed + 10)?;
            let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let end = fixed + 10 + usize::from(word(8));
            let data = packet.get(fixed + 10..end)?;
            if word(0) == rtype::OPT {
                if self.opt.is_some() || fixed != start + 1 || ends != Ends::Root {
                    return None;
                }
                let options = packet::options(data).ok();
                let (payload, payload_at) = (word(2), fixed + 2);
                let (version, flags) = (head[5], word(6));
                self.opt = Some(SentOpt { payload, payload_at, version, flags, options });
            }
            at = end;
        }
        Some((at, form))
    }

    fn qclass(&self) -> Option<u16> {
        self.question.as_ref().map(|question| question.qclass)
    }

    fn is_mail(&self) -> bool {
        let is_mail =
            |question: &SentQuestion| matches!(question.qtype, rtype::MAILA | rtype::MAILB);
        self.question.as_ref().is_some_and(is_mail)
    }

    /// The question, if it is one that zones answer.
    fn plain_question(&self) -> Option<&SentQuestion> {
        let question = self.question.as_ref()?;
        let is_plain = self.form == Form::Good
            && question.qclass == 1
            && self.opt.as_ref().is_none_or(SentOpt::is_plain);
        is_plain.then_some(question)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Root,
    Pointer,
}

/// Where the labels that start at `at` end, and how.
fn skip_labels(packet: &[u8], mut at: usize) -> Option<(usize, Ends)> {
    loop {
        match *packet.get(at)? {
            0 => return Some((at + 1, Ends::Root)),
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0.. => return packet.get(at + 1).map(|_| (at + 2, Ends::Pointer)),
            _ => return None,
        }
    }
}
