//! One answer of the stub, octet by octet.
//!
//! It looks like a resolver's: recursion available, not authoritative. The question is echoed
//! as it came, letter case included, and every owner is a pointer to it.

use std::time::Duration;

use wire::{Query, Rcode, Verdict, rtype};

use super::rule::{self, CHAIN_TTL_SECS, LINKS, Manner, Rule};

/// The largest answer over UDP, whatever the asker takes.
const UDP_BYTES_MAX: usize = 1232;
const UDP_BYTES_MIN: usize = 512;
/// What an `oversized-…` answer has over UDP.
const OVERSIZED_BYTES: usize = 1400;
/// Text of a `large-…` name.
const LARGE_BYTES: usize = 3000;
const TEXT_BYTES_MAX: usize = 255;
const HEADER_BYTES: usize = 12;
const OPT_BYTES: usize = 11;
const CUT_BYTES: usize = 3;

/// QR.
const ANSWER: u8 = 0x80;
const TRUNCATED: u8 = 0x02;
/// Kept of what was asked: RD, and CD in the second octet.
const KEPT: (u8, u8) = (0x01, 0x10);
const RECURSION_AVAILABLE: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
}

/// A message that came, and what was read in it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'m> {
    pub query: &'m Query,
    pub message: &'m [u8],
    pub verdict: Verdict,
}

/// How an answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Instead of the usual latency.
    pub delay: Option<Duration>,
    pub fault: Option<Fault>,
}

/// What is wrong with an answer on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Id,
    Name,
    /// It must leave from another port.
    Port,
    Cut,
}

impl Fault {
    fn of(manner: Manner) -> Option<Fault> {
        match manner {
            Manner::WrongId => Some(Fault::Id),
            Manner::WrongName => Some(Fault::Name),
            Manner::WrongPort => Some(Fault::Port),
            Manner::Cut => Some(Fault::Cut),
            _ => None,
        }
    }
}

/// Makes `out` the answer; `None` if there is to be none.
pub fn write(
    asked: &Asked<'_>,
    transport: Transport,
    ttl_secs: u32,
    out: &mut Vec<u8>,
) -> Option<Said> {
    let code = match asked.verdict {
        Verdict::Drop(_) => return None,
        Verdict::Reply(code) => Some(code),
        Verdict::Answer if !asked.query.is_internet() => Some(Rcode::Refused),
        Verdict::Answer => None,
    };
    let mut draft = Draft::new(asked, out);
    if let Some(code) = code {
        draft.finish(code);
        return Some(Said { delay: Some(Duration::ZERO), fault: None });
    }
    let rule = Rule::of(asked.query.name().as_bytes());
    let code = draft.write_sections(&rule, rule.ttl_secs.unwrap_or(ttl_secs));
    let fault = Fault::of(rule.manner);
    match rule.manner {
        Manner::Silent => return None,
        Manner::Truncated if transport == Transport::Udp => draft.truncate(),
        Manner::Oversized if transport == Transport::Udp => draft.pad_to(OVERSIZED_BYTES),
        _ if transport == Transport::Udp && !draft.fits(asked.query) => draft.truncate(),
        _ => {}
    }
    draft.finish(code);
    match fault {
        Some(Fault::Id) => out[1] = out[1].wrapping_add(1),
        // No behaviour starts with an `x`.
        Some(Fault::Name) => out[HEADER_BYTES + 1] = b'x',
        Some(Fault::Cut) => out.truncate(out.len() - CUT_BYTES),
        Some(Fault::Port) | None => {}
    }
    Some(Said { delay: rule.delay, fault })
}

/// An answer that grows record by record.
struct Draft<'a> {
    asked: &'a Asked<'a>,
    out: &'a mut Vec<u8>,
    question_end: usize,
    answers: u16,
    authority: u16,
    additional: u16,
}

impl<'a> Draft<'a> {
    fn new(asked: &'a Asked<'a>, out: &'a mut Vec<u8>) -> Draft<'a> {
        let question_end = asked.query.question_end();
        out.clear();
        out.extend_from_slice(&asked.message[..question_end]);
        out[2] = ANSWER | (asked.message[2] & (KEPT.0 | 0x78));
        out[3] = RECURSION_AVAILABLE | (asked.message[3] & KEPT.1);
        Draft { asked, out, question_end, answers: 0, authority: 0, additional: 0 }
    }

    /// The records that the rule has for the type asked for.
    fn write_sections(&mut self, rule: &Rule, ttl_secs: u32) -> Rcode {
        match rule.manner {
            Manner::NxDomain => {
                self.soa(ttl_secs);
                Rcode::NxDomain
            }
            Manner::NoData => {
                self.soa(ttl_secs);
                Rcode::NoError
            }
            Manner::ServFail => Rcode::ServFail,
            Manner::Refused => Rcode::Refused,
            Manner::Chain => self.chain(ttl_secs),
            manner => {
                self.data(HEADER_BYTES, manner, ttl_secs);
                Rcode::NoError
            }
        }
    }

    /// The record asked for, whose owner stands at `owner`; the SOA if there is none.
    fn data(&mut self, owner: usize, manner: Manner, ttl_secs: u32) {
        let hash = rule::hash(self.asked.query.name().as_bytes());
        let qtype = self.asked.query.qtype;
        match qtype {
            rtype::A => self.answer(owner, qtype, ttl_secs, &rule::address(hash).octets()),
            rtype::AAAA => self.answer(owner, qtype, ttl_secs, &rule::address6(hash).octets()),
            rtype::TXT if manner == Manner::Large => {
                self.answer(owner, qtype, ttl_secs, &text(LARGE_BYTES));
            }
            rtype::TXT => {
                let words = format!("\x10{hash:016x}");
                self.answer(owner, qtype, ttl_secs, words.as_bytes());
            }
            _ => self.soa(ttl_secs),
        }
    }

    fn chain(&mut self, ttl_secs: u32) -> Rcode {
        // A link is the name with one label more, which must be a name still.
        let name_bytes = self.question_end - HEADER_BYTES - 4;
        if name_bytes + LINKS[0].len() > wire::name::NAME_LEN_MAX {
            return Rcode::ServFail;
        }
        let mut owner = HEADER_BYTES;
        for (link, ttl) in LINKS.into_iter().zip([ttl_secs, ttl_secs.min(CHAIN_TTL_SECS)]) {
            let target = [link, &pointer(HEADER_BYTES)].concat();
            self.answer(owner, rtype::CNAME, ttl, &target);
            owner = self.out.len() - target.len();
        }
        self.data(owner, Manner::Ordinary, ttl_secs);
        Rcode::NoError
    }

    fn answer(&mut self, owner: usize, rtype: u16, ttl_secs: u32, data: &[u8]) {
        self.answers += 1;
        self.record(owner, rtype, ttl_secs, data);
    }

    /// Of the name above the one asked for.
    fn soa(&mut self, ttl_secs: u32) {
        let first_label = usize::from(self.out[HEADER_BYTES]);
        // The root has no name above.
        let zone = if first_label == 0 { HEADER_BYTES } else { HEADER_BYTES + 1 + first_label };
        let mut data = [pointer(zone), pointer(zone)].concat();
        for number in [1, 3600, 600, 86_400, ttl_secs] {
            data.extend(u32::to_be_bytes(number));
        }
        self.authority += 1;
        self.record(zone, rtype::SOA, ttl_secs, &data);
    }

    fn record(&mut self, owner: usize, rtype: u16, ttl_secs: u32, data: &[u8]) {
        self.out.extend(pointer(owner));
        self.out.extend(rtype.to_be_bytes());
        self.out.extend(wire::class::IN.to_be_bytes());
        self.out.extend(ttl_secs.to_be_bytes());
        self.out.extend((data.len() as u16).to_be_bytes());
        self.out.extend(data);
    }

    fn opt_bytes(&self) -> usize {
        if self.asked.query.edns.is_some() { OPT_BYTES } else { 0 }
    }

    fn fits(&self, query: &Query) -> bool {
        let taken = query.edns.map_or(0, |edns| usize::from(edns.payload));
        self.out.len() + self.opt_bytes() <= taken.clamp(UDP_BYTES_MIN, UDP_BYTES_MAX)
    }

    fn truncate(&mut self) {
        self.out.truncate(self.question_end);
        self.out[2] |= TRUNCATED;
        (self.answers, self.authority, self.additional) = (0, 0, 0);
    }

    /// Adds text until the whole answer has so many octets.
    fn pad_to(&mut self, bytes: usize) {
        const RECORD_BYTES: usize = 12;
        let missing = bytes.saturating_sub(self.out.len() + self.opt_bytes() + RECORD_BYTES);
        self.additional += 1;
        self.record(HEADER_BYTES, rtype::TXT, 0, &text(missing));
    }

    fn finish(mut self, code: Rcode) {
        let code = code as u16;
        if let Some(edns) = &self.asked.query.edns {
            self.additional += 1;
            self.out.push(0);
            self.out.extend(rtype::OPT.to_be_bytes());
            self.out.extend((UDP_BYTES_MAX as u16).to_be_bytes());
            self.out.extend([(code >> 4) as u8, 0]);
            self.out.extend([u8::from(edns.dnssec_ok) << 7, 0, 0, 0]);
        }
        self.out[3] |= code as u8 & 0x0f;
        let questions = u16::from(self.question_end > HEADER_BYTES);
        let counts = [questions, self.answers, self.authority, self.additional];
        for (count, at) in counts.into_iter().zip((4..).step_by(2)) {
            self.out[at..at + 2].copy_from_slice(&count.to_be_bytes());
        }
    }
}

/// Character strings of `bytes` octets in all, their lengths included.
fn text(bytes: usize) -> Vec<u8> {
    let mut data = vec![b'.'; bytes];
    for string in data.chunks_mut(TEXT_BYTES_MAX + 1) {
        string[0] = (string.len() - 1) as u8;
    }
    data
}

/// Compression: the name at `at`.
fn pointer(at: usize) -> [u8; 2] {
    (0xc000 | at as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::{EdnsMode, query_packet};

    fn answer(name: &str, qtype: u16, edns: EdnsMode, transport: Transport) -> Option<Vec<u8>> {
        let mut message = query_packet(name, qtype, edns);
        message[0..3].copy_from_slice(&[0xab, 0xcd, 1]);
        let mut query = Query::default();
        let verdict = query.read(&message);
        let mut out = Vec::new();
        write(&Asked { query: &query, message: &message, verdict }, transport, 60, &mut out)?;
        Some(out)
    }

    fn plain(name: &str) -> Vec<u8> {
        answer(name, rtype::A, EdnsMode::None, Transport::Udp).unwrap()
    }

    /// Code and the four counts.
    fn shape(answer: &[u8]) -> (u8, [u8; 4]) {
        (answer[3] & 15, [answer[5], answer[7], answer[9], answer[11]])
    }

    #[test]
    fn an_ordinary_name_has_its_address_in_its_own_letters() {
        let answer = plain("WwW.example");
        assert_eq!(answer[..4], [0xab, 0xcd, 0x81, 0x80]);
        assert_eq!(shape(&answer), (0, [1, 1, 0, 0]));
        assert_eq!(answer[12..25], *b"\x03WwW\x07example\0");
        let expected = rule::address(rule::hash(b"\x03www\x07example\0")).octets();
        assert_eq!(answer[answer.len() - 4..], expected);
        assert_eq!(answer[answer.len() - 10..answer.len() - 4], [0, 0, 0, 60, 0, 4]);
    }

    #[test]
    fn codes_and_counts_by_name() {
        assert_eq!(shape(&plain("nx-a.example")), (3, [1, 0, 1, 0]));
        assert_eq!(shape(&plain("nodata-a.example")), (0, [1, 0, 1, 0]));
        assert_eq!(shape(&plain("servfail-a.example")), (2, [1, 0, 0, 0]));
        assert_eq!(shape(&plain("refused-a.example")), (5, [1, 0, 0, 0]));
        assert_eq!(shape(&plain("chain-a.example")), (0, [1, 3, 0, 0]));
        let mx = answer("a.example", 15, EdnsMode::None, Transport::Udp).unwrap();
        assert_eq!(shape(&mx), (0, [1, 0, 1, 0]));
        assert_eq!(answer("timeout-a.example", 1, EdnsMode::None, Transport::Tcp), None);
    }

    #[test]
    fn edns_is_answered_with_edns() {
        let answer = answer("a.example", rtype::A, EdnsMode::Dnssec, Transport::Udp).unwrap();
        assert_eq!(shape(&answer), (0, [1, 1, 0, 1]));
        assert_eq!(answer[answer.len() - 11..], *b"\0\0\x29\x04\xd0\0\0\x80\0\0\0");
    }

    #[test]
    fn truncation_is_for_datagrams() {
        for name in ["tc-a.example", "large-a.example"] {
            let udp = answer(name, rtype::TXT, EdnsMode::Dnssec, Transport::Udp).unwrap();
            assert_eq!((udp[2] & TRUNCATED, shape(&udp)), (TRUNCATED, (0, [1, 0, 0, 1])));
            let tcp = answer(name, rtype::TXT, EdnsMode::Dnssec, Transport::Tcp).unwrap();
            assert_eq!((tcp[2] & TRUNCATED, shape(&tcp)), (0, (0, [1, 1, 0, 1])));
            assert_eq!(tcp.len() > LARGE_BYTES, name.starts_with("large"));
        }
        let oversized = plain("oversized-a.example");
        assert_eq!(oversized.len(), OVERSIZED_BYTES);
        assert_eq!(shape(&oversized), (0, [1, 1, 0, 1]));
    }

    #[test]
    fn faults_are_where_they_are_said_to_be() {
        assert_eq!(plain("wrongid-a.example")[..2], [0xab, 0xce]);
        assert_eq!(plain("wrongname-a.example")[12..15], *b"\x0bxr");
        let (whole, cut) = (plain("abc-a.example"), plain("cut-a.example"));
        assert_eq!(whole.len() - cut.len(), CUT_BYTES);
    }

    #[test]
    fn the_second_alias_ends_first() {
        let answer = plain("chain-a.example");
        let records = &answer[12 + 17 + 4..];
        assert_eq!(records[..20], *b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x08\x05link1\xc0\x0c");
        assert_eq!(records[22..40], *b"\0\x05\0\x01\0\0\0\x02\0\x08\x05link2\xc0\x0c");
        let expected = rule::address(rule::hash(b"\x07chain-a\x07example\0")).octets();
        assert_eq!(answer[answer.len() - 4..], expected);
    }

    #[test]
    fn no_message_makes_it_panic() {
        let mut random = crate::stats::Random::new(3);
        let seed = query_packet("chain-a.example", rtype::A, EdnsMode::Dnssec);
        let mut out = Vec::new();
        for _ in 0..20_000 {
            let mut message = seed.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(message.len());
                message[at] = random.next() as u8;
            }
            message.truncate(random.below(seed.len() + 1));
            let mut query = Query::default();
            let verdict = query.read(&message);
            let asked = Asked { query: &query, message: &message, verdict };
            if write(&asked, Transport::Udp, 60, &mut out).is_some() {
                assert!(out.len() >= HEADER_BYTES && out.len() <= OVERSIZED_BYTES);
            }
        }
    }
}
