//! Messages for tests, built record by record without compression unless the
//! octets say otherwise.

use domain::base::Message as Parsed;
use domain::base::opt::ExtendedError as ParsedError;
use wire::query::HEADER_LEN;
use wire::{Flags, OptReply, Rcode, Section, rtype};

use super::{Answer, Asked, Refusal, ReplyTo, TtlLimits};
use crate::question::{Bits, Question};
use crate::time::Moment;

/// The name that tests ask for, as sent and lowered.
pub const SENT: &[u8] = b"\x03wWw\x07eXample\0";
pub const NAME: &[u8] = b"\x03www\x07example\0";
/// A pointer to it.
pub const OWNER: &[u8] = b"\xc0\x0c";
/// A pointer to `example.`
pub const PARENT: &[u8] = b"\xc0\x10";
/// A target of aliases.
pub const TARGET: &[u8] = b"\x01t\0";
/// A pointer to the data of the first record, if its owner is a pointer.
pub const FIRST_DATA: &[u8] = b"\xc0\x29";
/// An option: the extended error 6, "no".
pub const EDE: [u8; 8] = [0, 15, 0, 4, 0, 6, b'n', b'o'];
pub const ID: u16 = 0x1234;
/// When tests get their answers.
pub const START: Moment = Moment(77_000_000);

/// A moment some seconds after [`START`].
pub fn after_secs(secs: u64) -> Moment {
    Moment(START.0 + secs * 1_000_000)
}

/// The question of tests for this type.
pub fn question(qtype: u16) -> Question<'static> {
    Question { name: NAME, qtype, qclass: 1, bits: Bits::default() }
}

/// What upstream was asked.
pub fn asked(qtype: u16) -> Asked<'static> {
    Asked { id: ID, name_as_sent: SENT, question: question(qtype), exact_case: true }
}

/// A message being built.
#[derive(Clone, Debug)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// A recursive server's answer about [`NAME`], without records yet.
    pub fn about(qtype: u16) -> Message {
        Message::about_name(SENT, qtype)
    }

    /// The same about another name.
    pub fn about_name(name: &[u8], qtype: u16) -> Message {
        let mut octets = ID.to_be_bytes().to_vec();
        octets.extend((Flags::QR | Flags::RD | Flags::RA).to_be_bytes());
        octets.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        octets.extend_from_slice(name);
        octets.extend(qtype.to_be_bytes());
        octets.extend([0, 1]);
        Message(octets)
    }

    /// With these flags as well.
    pub fn flags(mut self, flags: u16) -> Message {
        self.0[2] |= (flags >> 8) as u8;
        self.0[3] |= flags as u8;
        self
    }

    pub fn code(self, code: u16) -> Message {
        self.flags(code)
    }

    /// With one more record; sections come in their order.
    pub fn record(
        self,
        section: Section,
        owner: &[u8],
        rtype: u16,
        ttl_secs: u32,
        data: &[u8],
    ) -> Message {
        self.any_record(section, owner, [rtype, 1], ttl_secs, data)
    }

    /// The same with type and class.
    pub fn any_record(
        mut self,
        section: Section,
        owner: &[u8],
        type_and_class: [u16; 2],
        ttl_secs: u32,
        data: &[u8],
    ) -> Message {
        self.0[7 + 2 * section as usize] += 1;
        self.0.extend_from_slice(owner);
        self.0.extend(type_and_class.iter().flat_map(|word| word.to_be_bytes()));
        self.0.extend(ttl_secs.to_be_bytes());
        self.0.extend((data.len() as u16).to_be_bytes());
        self.0.extend_from_slice(data);
        self
    }

    pub fn answer(self, owner: &[u8], rtype: u16, ttl_secs: u32, data: &[u8]) -> Message {
        self.record(Section::Answer, owner, rtype, ttl_secs, data)
    }

    pub fn authority(self, owner: &[u8], rtype: u16, ttl_secs: u32, data: &[u8]) -> Message {
        self.record(Section::Authority, owner, rtype, ttl_secs, data)
    }

    pub fn additional(self, owner: &[u8], rtype: u16, ttl_secs: u32, data: &[u8]) -> Message {
        self.record(Section::Additional, owner, rtype, ttl_secs, data)
    }

    /// With an address of [`NAME`].
    pub fn address(self, ttl_secs: u32) -> Message {
        self.answer(OWNER, rtype::A, ttl_secs, &[192, 0, 2, 1])
    }

    /// With the SOA of `example.` in the authority section.
    pub fn soa(self, ttl_secs: u32, minimum_secs: u32) -> Message {
        let mut data = [PARENT, PARENT, &[0; 16]].concat();
        data.extend(minimum_secs.to_be_bytes());
        self.authority(PARENT, rtype::SOA, ttl_secs, &data)
    }

    /// With an OPT record.
    pub fn opt(self, code_high: u8, options: &[u8]) -> Message {
        let ttl = u32::from(code_high) << 24;
        self.any_record(Section::Additional, &[0], [rtype::OPT, 1232], ttl, options)
    }

    /// As the answer to a question for this type, with limits as they are.
    pub fn read(&self, qtype: u16) -> Result<Answer, Refusal> {
        self.read_within(qtype, &TtlLimits::default())
    }

    /// As the answer to the question that it repeats.
    pub fn read_as_asked(&self) -> Result<Answer, Refusal> {
        let sent = wire::Name::parse(&self.0[HEADER_LEN..]).expect("a name").as_bytes();
        let qtype = &self.0[HEADER_LEN + sent.len()..];
        let name = sent.to_ascii_lowercase();
        let qtype = u16::from_be_bytes([qtype[0], qtype[1]]);
        let question = Question { name: &name, ..question(qtype) };
        let asked = Asked { name_as_sent: sent, question, ..asked(qtype) };
        Answer::from_upstream(&self.0, &asked, &TtlLimits::default(), START)
    }

    pub fn read_within(&self, qtype: u16, limits: &TtlLimits) -> Result<Answer, Refusal> {
        Answer::from_upstream(&self.0, &asked(qtype), limits, START)
    }
}

/// An answer about [`NAME`] that starts with an alias of [`TARGET`].
pub fn alias(ttl_secs: u32) -> Message {
    Message::about(rtype::A).answer(OWNER, rtype::CNAME, ttl_secs, TARGET)
}

/// The first name of a chain that leads to [`NAME`].
pub const FIRST: &[u8] = b"\x05First\x04corp\0";
/// A pointer to `corp.` there.
pub const FIRST_PARENT: &[u8] = b"\xc0\x12";

/// An answer about [`FIRST`] that is an alias of [`NAME`] and nothing more.
pub fn head(ttl_secs: u32) -> Message {
    Message::about_name(FIRST, rtype::A).answer(OWNER, rtype::CNAME, ttl_secs, SENT)
}

/// A client's OPT record.
pub fn opt() -> OptReply<'static> {
    OptReply {
        payload: 1232,
        dnssec_ok: false,
        rcode: Rcode::NoError,
        nsid: None,
        cookie: None,
        keepalive: None,
        error: None,
    }
}

/// A client that sent `question` with RD and without EDNS.
pub fn client(question: &[u8]) -> ReplyTo<'_> {
    ReplyTo {
        id: 0xabcd,
        flags: Flags(Flags::RD),
        question,
        limit: 512,
        opt: None,
        stale_ttl_secs: None,
    }
}

/// Octets of the question in a message that has one.
pub fn question_of(answer: &Answer) -> Vec<u8> {
    let name_len = answer.question().name.len();
    answer.body()[HEADER_LEN..HEADER_LEN + name_len + 4].to_vec()
}

/// The reply to a client.
pub fn reply(answer: &Answer, now: Moment, to: &ReplyTo<'_>) -> Vec<u8> {
    let mut out = vec![0xaa; 65_535];
    let written = answer.write(now, to, &mut out);
    assert!(written.len <= to.limit);
    assert!(written.len == 0 || written.truncated == (out[2] & 2 != 0));
    out.truncate(written.len);
    out
}

/// What a client sees of a reply.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub flags: u16,
    pub ttls_secs: Vec<u32>,
    pub error: Option<u16>,
    pub has_opt: bool,
}

/// Reads a reply with `domain`; everything must be in order.
pub fn see(reply: &[u8]) -> Seen {
    let parsed = Parsed::from_octets(reply).expect("a header");
    assert_eq!(parsed.question().count(), 1);
    let mut ttls_secs = Vec::new();
    let (_, answer, authority, additional) = parsed.sections().expect("sections");
    for section in [answer, authority, additional] {
        for record in section {
            let record = record.expect("a record");
            assert!(record.owner().iter().count() <= 128);
            if record.rtype().to_int() != rtype::OPT {
                ttls_secs.push(record.ttl().as_secs());
            }
        }
    }
    let opt = parsed.opt();
    let error = opt.as_ref().and_then(|opt| {
        let error = opt.opt().iter::<ParsedError<_>>().next();
        error.map(|error| error.expect("an error").code().to_int())
    });
    let flags = u16::from_be_bytes([reply[2], reply[3]]);
    Seen { flags, ttls_secs, error, has_opt: opt.is_some() }
}

/// What a client without EDNS sees after some seconds.
pub fn seen_after(answer: &Answer, secs: u64) -> Seen {
    see(&reply(answer, after_secs(secs), &client(&question_of(answer))))
}

/// Sends an answer to a peer whose clock shows `there`.
pub fn send(answer: &Answer, here: Moment, there: Moment) -> Option<Answer> {
    let mut octets = b"before".to_vec();
    answer.encode(here, &mut octets);
    assert_eq!(octets.len(), 6 + answer.encoded_len());
    octets.extend(b"behind");
    let (answer, rest) = Answer::decode(&octets[6..], there)?;
    assert_eq!(rest, b"behind");
    Some(answer)
}
