//! DNS messages of the world outside the cache: questions of clients and
//! answers of upstream servers are put together here by hand, and replies are
//! taken apart, so that no mistake of the engine's own reader is made twice.

use wire::query::HEADER_LEN;
use wire::{Flags, rtype};

/// A pointer to the name of the question.
const QUESTION_NAME: [u8; 2] = [0xc0, HEADER_LEN as u8];
const OPTION_EXTENDED_ERROR: u16 = 15;
/// Pointers that are followed within one name.
const POINTERS_MAX: usize = 16;

/// A record as it is compared: names lowered and written out, except in its
/// data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub owner: Vec<u8>,
    pub rtype: u16,
    pub ttl_secs: u32,
    pub data: Vec<u8>,
}

/// What an OPT record says that clients look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    pub payload: u16,
    pub dnssec_ok: bool,
    pub error: Option<u16>,
}

/// A message taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: u16,
    pub flags: Flags,
    /// Name, type and class as they stand in it.
    pub question: Vec<u8>,
    /// Answer, authority and additional section, but for the OPT record.
    pub sections: [Vec<Record>; 3],
    pub opt: Option<Opt>,
}

impl Message {
    /// Reads a message with one question; `None` if it is not one, to its last
    /// octet.
    pub fn read(octets: &[u8]) -> Option<Message> {
        let word = |at: usize| Some(u16::from_be_bytes([*octets.get(at)?, *octets.get(at + 1)?]));
        let counts = [word(6)?, word(8)?, word(10)?];
        if word(4)? != 1 {
            return None;
        }
        let (_, name_end) = read_name(octets, HEADER_LEN)?;
        let mut at = name_end + 4;
        let mut message = Message {
            id: word(0)?,
            flags: Flags(word(2)?),
            question: octets.get(HEADER_LEN..at)?.to_vec(),
            sections: Default::default(),
            opt: None,
        };
        for (section, count) in counts.into_iter().enumerate() {
            for _ in 0..count {
                let (record, class, end) = read_record(octets, at)?;
                at = end;
                match record.rtype {
                    rtype::OPT if message.opt.is_some() => return None,
                    rtype::OPT => message.opt = Some(read_opt(&record, class)?),
                    _ => message.sections[section].push(record),
                }
            }
        }
        (at == octets.len()).then_some(message)
    }

    pub fn rcode(&self) -> u16 {
        self.flags.0 & 0xf
    }

    /// The lowered name of the question, and its type.
    pub fn asked(&self) -> (Vec<u8>, u16) {
        let (name, tail) = self.question.split_at(self.question.len() - 4);
        (name.to_ascii_lowercase(), u16::from_be_bytes([tail[0], tail[1]]))
    }

    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.sections.iter().flatten()
    }
}

/// A name that may be compressed, written out and lowered, and where it ends.
fn read_name(octets: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let (mut name, mut end, mut pointers) = (Vec::new(), None, 0);
    loop {
        let len = *octets.get(at)?;
        match len {
            0 => {
                name.push(0);
                return Some((name, end.unwrap_or(at + 1)));
            }
            1..=63 => {
                let label = octets.get(at..at + 1 + len as usize)?;
                name.extend(label.to_ascii_lowercase());
                at += label.len();
            }
            0xc0.. => {
                end = end.or(Some(at + 2));
                at = usize::from(len & 0x3f) << 8 | usize::from(*octets.get(at + 1)?);
                pointers += 1;
            }
            _ => return None,
        }
        if name.len() > 254 || pointers > POINTERS_MAX {
            return None;
        }
    }
}

/// The record at `at`, its class, and where it ends.
fn read_record(octets: &[u8], at: usize) -> Option<(Record, u16, usize)> {
    let (owner, at) = read_name(octets, at)?;
    let head = octets.get(at..at + 10)?;
    let end = at + 10 + usize::from(u16::from_be_bytes([head[8], head[9]]));
    let record = Record {
        owner,
        rtype: u16::from_be_bytes([head[0], head[1]]),
        ttl_secs: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        data: octets.get(at + 10..end)?.to_vec(),
    };
    Some((record, u16::from_be_bytes([head[2], head[3]]), end))
}

fn read_opt(record: &Record, class: u16) -> Option<Opt> {
    let mut error = None;
    let mut options = &record.data[..];
    while let Some((head, rest)) = options.split_first_chunk::<4>() {
        let (value, rest) =
            rest.split_at_checked(u16::from_be_bytes([head[2], head[3]]) as usize)?;
        if u16::from_be_bytes([head[0], head[1]]) == OPTION_EXTENDED_ERROR {
            error = Some(u16::from_be_bytes(*value.first_chunk()?));
        }
        options = rest;
    }
    let dnssec_ok = record.ttl_secs & 0x8000 != 0;
    options.is_empty().then_some(Opt { payload: class, dnssec_ok, error })
}

/// A message being put together.
#[derive(Clone, Debug)]
pub struct Builder(Vec<u8>);

impl Builder {
    /// A message with one question: name, type and class in `question`.
    pub fn new(id: u16, flags: u16, question: &[u8]) -> Self {
        let mut octets = Vec::with_capacity(128);
        for word in [id, flags, 1, 0, 0, 0] {
            octets.extend(word.to_be_bytes());
        }
        octets.extend_from_slice(question);
        Builder(octets)
    }

    /// With one more record in section 0, 1 or 2; sections come in their
    /// order. An owner of `None` is the name asked for.
    pub fn record(
        self,
        section: usize,
        owner: Option<&[u8]>,
        rtype: u16,
        ttl_secs: u32,
        data: &[u8],
    ) -> Self {
        self.any_record(section, owner.unwrap_or(&QUESTION_NAME), [rtype, 1], ttl_secs, data)
    }

    fn any_record(
        mut self,
        section: usize,
        owner: &[u8],
        type_and_class: [u16; 2],
        ttl_secs: u32,
        data: &[u8],
    ) -> Self {
        let count_at = 6 + 2 * section;
        let count = u16::from_be_bytes([self.0[count_at], self.0[count_at + 1]]) + 1;
        self.0[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        self.0.extend_from_slice(owner);
        self.0.extend(type_and_class.iter().flat_map(|word| word.to_be_bytes()));
        self.0.extend(ttl_secs.to_be_bytes());
        self.0.extend((data.len() as u16).to_be_bytes());
        self.0.extend_from_slice(data);
        self
    }

    /// With an OPT record.
    pub fn opt(self, payload: u16, dnssec_ok: bool) -> Self {
        let ttl = if dnssec_ok { 0x8000 } else { 0 };
        self.any_record(2, &[0], [rtype::OPT, payload], ttl, &[])
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read_back() {
        let question = b"\x03WwW\x04test\0\0\x01\0\x01";
        let octets = Builder::new(7, Flags::QR | 3, question)
            .record(0, None, rtype::A, 60, &[1, 2, 3, 4])
            .record(1, Some(b"\x04test\0"), rtype::NS, 30, b"\0")
            .opt(1232, true)
            .finish();
        let message = Message::read(&octets).unwrap();
        assert_eq!((message.id, message.rcode(), &message.question[..]), (7, 3, &question[..]));
        assert_eq!(message.asked(), (b"\x03www\x04test\0".to_vec(), rtype::A));
        assert_eq!(message.sections[0][0].owner, b"\x03www\x04test\0");
        assert_eq!(message.sections[1][0].ttl_secs, 30);
        assert_eq!(message.opt, Some(Opt { payload: 1232, dnssec_ok: true, error: None }));
        for len in 0..octets.len() {
            assert_eq!(Message::read(&octets[..len]), None, "{len}");
        }
    }
}
