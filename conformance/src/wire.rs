//! A strict parser of answers: whatever a careful client could stumble over is an error.

use crate::name::{LABEL_OCTETS_MAX, NAME_OCTETS_MAX, Name};
use crate::rtype::{self, Field};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub name: Name,
    pub qtype: u16,
    pub qclass: u16,
}

#[derive(Debug, Clone)]
pub struct Record {
    pub owner: Name,
    pub rtype: u16,
    pub class: u16,
    pub ttl: u32,
    /// Uncompressed, names lowered where DNS compares without case.
    pub rdata: Vec<u8>,
    /// Offset just after this record, to know what would have fitted.
    pub end: usize,
}

#[derive(Debug, Clone)]
pub struct Message {
    pub id: u16,
    pub flags: u16,
    /// The question section as sent, to compare octet for octet.
    pub question_octets: Vec<u8>,
    pub questions: Vec<Question>,
    pub sections: [Vec<Record>; 3],
    pub size: usize,
}

type Parsed<T> = Result<T, String>;

pub fn parse(octets: &[u8]) -> Parsed<Message> {
    let mut reader = Reader { octets, at: 0 };
    let id = reader.u16()?;
    let flags = reader.u16()?;
    let counts = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
    let mut questions = Vec::new();
    for _ in 0..counts[0] {
        let name = reader.name(true)?;
        questions.push(Question { name, qtype: reader.u16()?, qclass: reader.u16()? });
    }
    let question_octets = octets[12..reader.at].to_vec();
    let mut sections = [const { Vec::new() }; 3];
    for (section, count) in sections.iter_mut().zip(&counts[1..]) {
        for _ in 0..*count {
            section.push(reader.record()?);
        }
    }
    if reader.at != octets.len() {
        return Err(format!("{} octets after the last record", octets.len() - reader.at));
    }
    Ok(Message { id, flags, question_octets, questions, sections, size: octets.len() })
}

struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Parsed<&[u8]> {
        let end = self.at + count;
        let taken = self.octets.get(self.at..end);
        let taken = taken.ok_or_else(|| format!("ends at {} inside a field", self.at))?;
        self.at = end;
        Ok(taken)
    }

    fn u16(&mut self) -> Parsed<u16> {
        let octets = self.take(2)?;
        Ok(u16::from_be_bytes([octets[0], octets[1]]))
    }

    fn u32(&mut self) -> Parsed<u32> {
        Ok(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    /// Pointers must point before the part of the name they continue (RFC 1035 4.1.4: "a prior
    /// occurrence"), which also ends every chain.
    fn name(&mut self, may_compress: bool) -> Parsed<Name> {
        let start = self.at;
        let mut labels: Vec<Vec<u8>> = Vec::new();
        let mut length = 1;
        let mut resume = None;
        let mut part_start = start;
        loop {
            let octet = self.take(1)?[0];
            match octet {
                0 => break,
                1..=63 => {
                    debug_assert!(octet as usize <= LABEL_OCTETS_MAX);
                    labels.push(self.take(octet as usize)?.to_vec());
                    length += 1 + octet as usize;
                    if length > NAME_OCTETS_MAX {
                        return Err(format!("a name over 255 octets at {start}"));
                    }
                }
                0xc0..=0xff if may_compress => {
                    let low = self.take(1)?[0];
                    let target = (usize::from(octet & 0x3f) << 8) | usize::from(low);
                    if target >= part_start {
                        return Err(format!("a pointer to {target} at {start}, not backwards"));
                    }
                    if target < 12 {
                        return Err(format!("a pointer into the header at {start}"));
                    }
                    resume.get_or_insert(self.at);
                    self.at = target;
                    part_start = target;
                }
                0xc0..=0xff => return Err(format!("compression at {start} where none is allowed")),
                _ => return Err(format!("a label of unknown kind at {start}")),
            }
        }
        self.at = resume.unwrap_or(self.at);
        Name::from_labels(labels.iter().map(Vec::as_slice)).ok_or_else(|| "a bad name".to_owned())
    }

    fn record(&mut self) -> Parsed<Record> {
        let owner = self.name(true)?;
        let (rtype, class) = (self.u16()?, self.u16()?);
        let ttl = self.u32()?;
        let length = self.u16()? as usize;
        let end = self.at + length;
        if end > self.octets.len() {
            return Err(format!("data of {owner} {} passes the end", rtype::mnemonic(rtype)));
        }
        let whole = self.octets;
        // Fields may not read past the record's own data.
        let mut inner = Reader { octets: &whole[..end], at: self.at };
        let rdata = inner
            .rdata(rtype, end)
            .map_err(|problem| format!("{owner} {}: {problem}", rtype::mnemonic(rtype)))?;
        self.at = end;
        Ok(Record { owner, rtype, class, ttl, rdata, end })
    }

    fn rdata(&mut self, rtype: u16, end: usize) -> Parsed<Vec<u8>> {
        let mut rdata = Vec::new();
        for field in rtype::layout(rtype) {
            match field {
                Field::Compressible => rdata.extend_from_slice(self.name(true)?.lower().wire()),
                Field::Plain => rdata.extend_from_slice(self.name(false)?.lower().wire()),
                Field::Cased => rdata.extend_from_slice(self.name(false)?.wire()),
                Field::Octets(count) => rdata.extend_from_slice(self.take(*count)?),
                Field::CharString => {
                    let length = self.take(1)?[0];
                    rdata.push(length);
                    rdata.extend_from_slice(self.take(length as usize)?);
                }
                Field::Rest => rdata.extend_from_slice(self.take(end - self.at)?),
            }
        }
        match self.at == end {
            true => Ok(rdata),
            false => Err("record data longer than its fields".to_owned()),
        }
    }
}

/// The name at `at` in uncompressed data, and the offset after it.
pub fn name_in(rdata: &[u8], at: usize) -> Option<(Name, usize)> {
    let mut reader = Reader { octets: rdata, at };
    let name = reader.name(false).ok()?;
    Some((name, reader.at))
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn message(body: &[u8], answers: u8) -> Vec<u8> {
        let mut octets = vec![0, 1, 0x84, 0, 0, 1, 0, answers, 0, 0, 0, 0];
        octets.extend_from_slice(body);
        octets
    }

    #[test]
    fn pointers_must_go_backwards() {
        let looping = message(b"\xc0\x0c\0\x01\0\x01", 0);
        assert!(parse(&looping).unwrap_err().contains("not backwards"));
    }

    #[test]
    fn srv_targets_are_not_compressed() {
        let mut body = b"\x01a\0\0\x21\0\x01".to_vec();
        body.extend_from_slice(b"\xc0\x0c\0\x21\0\x01\0\0\0\0\0\x08\0\x01\0\x01\0\x01\xc0\x0c");
        assert!(parse(&message(&body, 1)).unwrap_err().contains("compression"));
    }

    #[test]
    fn octets_left_over_are_an_error() {
        assert!(
            parse(&message(b"\x01a\0\0\x01\0\x01!", 0)).unwrap_err().contains("after the last")
        );
    }
}
