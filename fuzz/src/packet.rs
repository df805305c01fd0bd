//! A strict parser of answers, and a maker of questions, written from the RFCs
//! and not from the server's code.

use std::fmt::Write;

/// Octets of the OPT record that [`question`] ends with.
pub const OPT_LEN: usize = 11;
const OPT: u16 = 41;
const NAME_LEN_MAX: usize = 255;

/// An answer, taken apart.
#[derive(Debug)]
pub struct Answer {
    pub id: u16,
    pub flags: u16,
    /// The code, with the upper bits that EDNS carries.
    pub rcode: u16,
    /// Octets of the question as they stand in the message; empty without one.
    pub question: Vec<u8>,
    /// Answer, authority and additional section, the last without OPT.
    pub sections: [Vec<Record>; 3],
    /// The OPT record.
    pub opt: Option<Opt>,
}

/// The OPT record of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Opt {
    pub payload: u16,
    pub version: u8,
    pub flags: u16,
    pub options: Vec<(u16, Vec<u8>)>,
}

impl Opt {
    /// True if there is an option of this code.
    pub fn has(&self, code: u16) -> bool {
        self.options.iter().any(|option| option.0 == code)
    }
}

/// A record in a form that compares: names expanded and lowered.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    pub owner: Vec<u8>,
    pub rtype: u16,
    pub class: u16,
    pub ttl_secs: u32,
    pub data: Vec<u8>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Record { owner, rtype, class, ttl_secs, data } = self;
        write!(f, "{} {ttl_secs} CLASS{class} TYPE{rtype} {}", show(owner), show(data))
    }
}

/// Octets for people.
pub fn show(octets: &[u8]) -> String {
    octets.escape_ascii().to_string()
}

/// Octets as `xxd -r -p` reads them.
pub fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// Types in whose data names may be compressed (RFC 3597, 4): the octets
/// before the names, and how many names there are.
fn compressible(rtype: u16) -> Option<(usize, usize)> {
    match rtype {
        // NS, MD, MF, CNAME, MB, MG, MR, PTR.
        2 | 3 | 4 | 5 | 7 | 8 | 9 | 12 => Some((0, 1)),
        // SOA, MINFO.
        6 | 14 => Some((0, 2)),
        // MX.
        15 => Some((2, 1)),
        _ => None,
    }
}

/// Types in whose data a name stands that is never compressed, and where.
fn plain_name(rtype: u16) -> Option<usize> {
    match rtype {
        // DNAME, NSEC.
        39 | 47 => Some(0),
        // SVCB, HTTPS.
        64 | 65 => Some(2),
        // SRV.
        33 => Some(6),
        // RRSIG.
        46 => Some(18),
        _ => None,
    }
}

/// Record data without compression, as records that are compared hold it.
pub fn canonical_data(rtype: u16, data: &[u8]) -> Result<Vec<u8>, String> {
    let mut parser = Parser { octets: data, at: 0, starts: vec![false; data.len()] };
    parser.data(rtype, data.len())
}

/// Takes an answer apart; everything must be exactly as the counts say.
pub fn parse(octets: &[u8]) -> Result<Answer, String> {
    let mut parser = Parser { octets, at: 0, starts: vec![false; octets.len()] };
    let id = parser.u16()?;
    let flags = parser.u16()?;
    let mut counts = [0; 4];
    for count in &mut counts {
        *count = parser.u16()?;
    }
    if counts[0] > 1 {
        return Err(format!("{} questions", counts[0]));
    }
    let start = parser.at;
    if counts[0] == 1 {
        parser.name()?;
        parser.skip(4)?;
    }
    let question = octets[start..parser.at].to_vec();
    let mut sections = [const { Vec::new() }; 3];
    let (mut opt, mut rcode) = (None, flags & 0xf);
    for (section, records) in sections.iter_mut().enumerate() {
        for _ in 0..counts[1 + section] {
            let record = parser.record()?;
            if record.rtype != OPT {
                records.push(record);
                continue;
            }
            if section != 2 || opt.is_some() || record.owner != [0] {
                return Err("an OPT record where none may be".into());
            }
            rcode |= (record.ttl_secs >> 20) as u16 & 0xff0;
            opt = Some(Opt {
                payload: record.class,
                version: (record.ttl_secs >> 16) as u8,
                flags: record.ttl_secs as u16,
                options: options(&record.data)?,
            });
        }
    }
    match parser.at == octets.len() {
        true => Ok(Answer { id, flags, rcode, question, sections, opt }),
        false => Err(format!("octets from {} on belong to no record", parser.at)),
    }
}

/// The uncompressed name that `octets` start with, lowered.
pub fn canonical_name(octets: &[u8]) -> Vec<u8> {
    let mut end = 0;
    while octets[end] != 0 {
        end += 1 + octets[end] as usize;
    }
    octets[..=end].to_ascii_lowercase()
}

/// The options in the data of an OPT record.
pub fn options(mut data: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, String> {
    let mut options = Vec::new();
    while !data.is_empty() {
        let head = data.first_chunk::<4>().ok_or("half an option")?;
        let end = 4 + u16::from_be_bytes([head[2], head[3]]) as usize;
        let value = data.get(4..end).ok_or("an option past the end of its record")?;
        options.push((u16::from_be_bytes([head[0], head[1]]), value.to_vec()));
        data = &data[end..];
    }
    Ok(options)
}

/// A message, and the places in it where a label stands: only these may be
/// pointed at.
struct Parser<'m> {
    octets: &'m [u8],
    at: usize,
    starts: Vec<bool>,
}

impl Parser<'_> {
    fn skip(&mut self, len: usize) -> Result<&[u8], String> {
        let part = self.octets.get(self.at..self.at + len);
        let part = part.ok_or_else(|| format!("{len} octets at {} are not there", self.at))?;
        self.at += len;
        Ok(part)
    }

    fn u16(&mut self) -> Result<u16, String> {
        self.skip(2).map(|octets| u16::from_be_bytes([octets[0], octets[1]]))
    }

    fn record(&mut self) -> Result<Record, String> {
        let owner = self.name()?;
        let (rtype, class) = (self.u16()?, self.u16()?);
        let ttl_secs = u32::from(self.u16()?) << 16 | u32::from(self.u16()?);
        let len = self.u16()? as usize;
        let data = self.data(rtype, len).map_err(|error| format!("TYPE{rtype}: {error}"))?;
        Ok(Record { owner, rtype, class, ttl_secs, data })
    }

    /// The next `len` octets as data of `rtype`, names expanded and lowered.
    fn data(&mut self, rtype: u16, len: usize) -> Result<Vec<u8>, String> {
        let end = self.at + len;
        let Some((before, names)) = compressible(rtype) else {
            if let Some(before) = plain_name(rtype) {
                self.note_labels(self.at + before, end);
            }
            return self.skip(len).map(<[u8]>::to_vec);
        };
        let mut data = self.skip(before)?.to_vec();
        for _ in 0..names {
            data.extend(self.name()?);
        }
        let tail = end.checked_sub(self.at).ok_or("a name past the end of its data")?;
        let numbers = if rtype == 6 { 20 } else { 0 };
        if tail != numbers {
            return Err(format!("{tail} octets behind the names"));
        }
        data.extend(self.skip(tail)?);
        Ok(data)
    }

    /// Notes the labels of an uncompressed name: it may be pointed at.
    fn note_labels(&mut self, mut at: usize, end: usize) {
        while let Some(&len @ 0..=63) = self.octets[..end.min(self.octets.len())].get(at) {
            self.starts[at] = true;
            at += 1 + len as usize;
            if len == 0 {
                break;
            }
        }
    }

    /// A name, lowered. Pointers only lead back, to labels or other pointers.
    fn name(&mut self) -> Result<Vec<u8>, String> {
        let mut name = Vec::new();
        let (mut at, mut jumped) = (self.at, false);
        loop {
            let len = *self.octets.get(at).ok_or("a name past the end")? as usize;
            match len {
                0..=63 => {
                    let label = self.octets.get(at..at + 1 + len).ok_or("a label past the end")?;
                    name.extend(label.to_ascii_lowercase());
                    if name.len() > NAME_LEN_MAX {
                        return Err(format!("a name of more than {NAME_LEN_MAX} octets"));
                    }
                    if !jumped {
                        self.starts[at] = true;
                        self.at = at + 1 + len;
                    }
                    at += 1 + len;
                    if len == 0 {
                        return Ok(name);
                    }
                }
                0xc0.. => {
                    let low = *self.octets.get(at + 1).ok_or("half a pointer")? as usize;
                    let target = (len & 0x3f) << 8 | low;
                    if !jumped {
                        self.starts[at] = true;
                        self.at = at + 2;
                        jumped = true;
                    }
                    if target >= at || !self.starts[target] {
                        return Err(format!("the pointer at {at} leads to {target}: no label"));
                    }
                    at = target;
                }
                _ => return Err(format!("the label type {len:#x} at {at}")),
            }
        }
    }
}

/// A question with EDNS.
pub fn question(name: &[u8], qtype: u16, dnssec: bool) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    packet.extend_from_slice(name);
    packet.extend(qtype.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend([0, 0, 41, 0x04, 0xd0, 0, 0, u8::from(dnssec) << 7, 0, 0, 0]);
    packet
}
