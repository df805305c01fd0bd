//! Answers in a form where equal means equal: sections as sets, names lowered, OPT apart.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::name::Name;
use crate::rtype::{self, Field};
use crate::wire::{self, Message};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rr {
    /// Lowered.
    pub owner: Name,
    pub rtype: u16,
    pub class: u16,
    pub ttl: u32,
    pub rdata: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Answer,
    Authority,
    Additional,
}

pub const SECTIONS: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opt {
    pub size: u16,
    pub version: u8,
    /// DO and the reserved bits.
    pub flags: u16,
    pub options: Vec<(u16, Vec<u8>)>,
}

#[derive(Debug, Clone)]
pub struct Answer {
    /// Header flags and opcode with the RCODE's four bits cleared.
    pub flags: u16,
    /// With the upper eight bits from OPT (RFC 6891 6.1.3).
    pub rcode: u16,
    pub question: Vec<u8>,
    pub sections: [BTreeSet<Rr>; 3],
    pub opts: Vec<Opt>,
    /// Records that stood twice in one section.
    pub duplicates: Vec<Rr>,
    pub size: usize,
    /// Octets up to the end of the authority section plus OPT: what may not be left out.
    pub size_without_additional: usize,
}

pub const FLAG_QR: u16 = 0x8000;
pub const FLAG_AA: u16 = 0x0400;
pub const FLAG_TC: u16 = 0x0200;
pub const FLAG_RD: u16 = 0x0100;
pub const FLAG_RA: u16 = 0x0080;
pub const FLAG_AD: u16 = 0x0020;
pub const FLAG_CD: u16 = 0x0010;
pub const FLAG_DO: u16 = 0x8000;

/// What came back for one query.
#[derive(Debug, Clone)]
pub enum Reply {
    Answer(Answer),
    /// Octets that no strict client would take.
    Unparsable(String),
    Silence,
}

impl Reply {
    pub fn read(octets: &[u8]) -> Reply {
        match wire::parse(octets).and_then(Answer::from_message) {
            Ok(answer) => Reply::Answer(answer),
            Err(problem) => Reply::Unparsable(problem),
        }
    }

    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Reply::Answer(answer) => Some(answer),
            _ => None,
        }
    }

    pub fn is_truncated(&self) -> bool {
        self.answer().is_some_and(Answer::tc)
    }
}

impl Answer {
    fn from_message(message: Message) -> Result<Answer, String> {
        let mut opts = Vec::new();
        let mut opt_octets = 0;
        let mut duplicates = Vec::new();
        let mut sections = [const { BTreeSet::new() }; 3];
        let head = 12 + message.question_octets.len();
        let body_end =
            message.sections[..2].iter().flatten().map(|record| record.end).max().unwrap_or(head);
        let mut rcode = message.flags & 0xf;
        for (index, section) in message.sections.iter().enumerate() {
            for record in section {
                if record.rtype == rtype::OPT {
                    let opt = read_opt(record)?;
                    rcode |= (record.ttl >> 20) as u16 & 0xff0;
                    opt_octets += 11 + record.rdata.len();
                    opts.push(opt);
                    continue;
                }
                let rr = Rr {
                    owner: record.owner.lower(),
                    rtype: record.rtype,
                    class: record.class,
                    ttl: record.ttl,
                    rdata: record.rdata.clone(),
                };
                if !sections[index].insert(rr.clone()) {
                    duplicates.push(rr);
                }
            }
        }
        Ok(Answer {
            flags: message.flags & 0xfff0,
            rcode,
            question: message.question_octets,
            sections,
            opts,
            duplicates,
            size: message.size,
            size_without_additional: body_end + opt_octets,
        })
    }

    pub fn aa(&self) -> bool {
        self.flags & FLAG_AA != 0
    }

    pub fn tc(&self) -> bool {
        self.flags & FLAG_TC != 0
    }

    pub fn section(&self, section: Section) -> &BTreeSet<Rr> {
        &self.sections[section as usize]
    }

    /// NS of a cut in the authority section and no answer for the name itself.
    pub fn is_referral(&self) -> bool {
        let authority = self.section(Section::Authority);
        authority.iter().any(|rr| rr.rtype == rtype::NS)
            && !authority.iter().any(|rr| rr.rtype == rtype::SOA)
    }

    /// Every link of the alias chain from `qname`, and the name where it ends. A name seen twice
    /// ends it too: a loop.
    pub fn chain(&self, qname: &Name, qtype: u16) -> (Vec<Name>, Name) {
        let answer = self.section(Section::Answer);
        let mut seen = vec![qname.lower()];
        let mut current = qname.lower();
        // CNAME and ANY stop at the first alias: the alias is the answer (RFC 1034 3.6.2).
        if matches!(qtype, rtype::CNAME | rtype::ANY) && !self.crosses_dname(&current) {
            return (seen, current);
        }
        loop {
            let alias = answer.iter().find(|rr| rr.owner == current && rr.rtype == rtype::CNAME);
            let Some((target, _)) = alias.and_then(|rr| wire::name_in(&rr.rdata, 0)) else { break };
            let target = target.lower();
            current = target.clone();
            if seen.contains(&target) {
                break;
            }
            seen.push(target);
            if matches!(qtype, rtype::CNAME | rtype::ANY) && !self.crosses_dname(&current) {
                break;
            }
        }
        (seen, current)
    }

    /// A DNAME in the answer lies above `name`.
    fn crosses_dname(&self, name: &Name) -> bool {
        let answer = self.section(Section::Answer);
        answer.iter().any(|rr| rr.rtype == rtype::DNAME && name.is_below(&rr.owner))
    }
}

fn read_opt(record: &wire::Record) -> Result<Opt, String> {
    if !record.owner.is_root() {
        return Err(format!("OPT owned by {}", record.owner));
    }
    let mut options = Vec::new();
    let mut rest = record.rdata.as_slice();
    while !rest.is_empty() {
        let header = rest.get(..4).ok_or("an EDNS option cut short")?;
        let code = u16::from_be_bytes([header[0], header[1]]);
        let length = u16::from_be_bytes([header[2], header[3]]) as usize;
        let value = rest.get(4..4 + length).ok_or("an EDNS option cut short")?;
        options.push((code, value.to_vec()));
        rest = &rest[4 + length..];
    }
    let version = (record.ttl >> 16) as u8;
    Ok(Opt { size: record.class, version, flags: record.ttl as u16, options })
}

impl Rr {
    /// The type an RRSIG covers.
    pub fn covered(&self) -> Option<u16> {
        (self.rtype == rtype::RRSIG && self.rdata.len() > 2)
            .then(|| u16::from_be_bytes([self.rdata[0], self.rdata[1]]))
    }
}

impl fmt::Display for Rr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = rtype::class_mnemonic(self.class);
        let mnemonic = rtype::mnemonic(self.rtype);
        write!(f, "{} {} {class} {mnemonic} ", self.owner, self.ttl)?;
        f.write_str(&rdata_text(self.rtype, &self.rdata))
    }
}

/// Readable where reading helps, `\#` (RFC 3597 5) elsewhere; RRSIGs without their signature.
fn rdata_text(rtype: u16, rdata: &[u8]) -> String {
    let mut text = String::new();
    match (rtype, rdata.len()) {
        (rtype::A, 4) => {
            let octets: [u8; 4] = rdata.try_into().expect("four octets");
            return Ipv4Addr::from(octets).to_string();
        }
        (rtype::AAAA, 16) => {
            let octets: [u8; 16] = rdata.try_into().expect("sixteen octets");
            return Ipv6Addr::from(octets).to_string();
        }
        (rtype::RRSIG, 19..) => {
            let covered = u16::from_be_bytes([rdata[0], rdata[1]]);
            let tag = u16::from_be_bytes([rdata[16], rdata[17]]);
            return format!("{} labels={} tag={tag} …", rtype::mnemonic(covered), rdata[3]);
        }
        (rtype::TXT, _) => return format!("\"{}\"", rdata.escape_ascii()),
        _ if rtype::layout(rtype) == [Field::Rest] => {
            let _ = write!(text, "\\# {} {}", rdata.len(), hex(rdata));
            return text;
        }
        _ => {}
    }
    let mut at = 0;
    for field in rtype::layout(rtype) {
        match field {
            Field::Compressible | Field::Plain | Field::Cased => {
                let Some((name, next)) = wire::name_in(rdata, at) else { break };
                let _ = write!(text, "{name} ");
                at = next;
            }
            Field::Octets(count) => {
                for pair in rdata[at..at + count].chunks(2) {
                    let _ = write!(text, "{} ", u16::from_be_bytes([pair[0], pair[1]]));
                }
                at += count;
            }
            Field::CharString => {
                let end = at + 1 + rdata[at] as usize;
                let _ = write!(text, "\"{}\" ", rdata[at + 1..end].escape_ascii());
                at = end;
            }
            Field::Rest => text.push_str(&hex(&rdata[at..])),
        }
    }
    text.trim_end().to_owned()
}

pub fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

pub fn flags_text(flags: u16) -> String {
    let bits = [
        (FLAG_QR, "qr"),
        (FLAG_AA, "aa"),
        (FLAG_TC, "tc"),
        (FLAG_RD, "rd"),
        (FLAG_RA, "ra"),
        (0x40, "z"),
        (FLAG_AD, "ad"),
        (FLAG_CD, "cd"),
    ];
    let set: Vec<_> = bits.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, n)| *n).collect();
    set.join(" ")
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self {
            Reply::Answer(answer) => answer,
            Reply::Unparsable(problem) => return writeln!(f, ";; UNPARSABLE: {problem}"),
            Reply::Silence => return writeln!(f, ";; NO ANSWER"),
        };
        let rcode = rtype::rcode_mnemonic(answer.rcode);
        let opcode = answer.flags >> 11 & 0xf;
        let flags = flags_text(answer.flags);
        let size = answer.size;
        writeln!(f, ";; {rcode} opcode={opcode} flags=[{flags}] size={size}")?;
        for opt in &answer.opts {
            let dnssec = if opt.flags & FLAG_DO != 0 { " do" } else { "" };
            let codes: Vec<_> = opt.options.iter().map(|(code, _)| code.to_string()).collect();
            let codes = codes.join(",");
            writeln!(
                f,
                ";; OPT version={} size={}{dnssec} options=[{codes}]",
                opt.version, opt.size
            )?;
        }
        for section in SECTIONS {
            let records = answer.section(section);
            if !records.is_empty() {
                writeln!(f, ";; {section:?}")?;
            }
            // Enough to see what happened; RRsets made to overflow are long.
            for rr in records.iter().take(24) {
                writeln!(f, "{rr}")?;
            }
            if records.len() > 24 {
                writeln!(f, "; … {} more", records.len() - 24)?;
            }
        }
        Ok(())
    }
}
