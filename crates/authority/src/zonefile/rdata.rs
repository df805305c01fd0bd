//! Record data from its presentation form, field by field as
//! [`super::types`] lists them.

use super::fault::{Fault, Outcome, fault, show};
use super::text::{self, Base, Digits};
use super::token::Token;
use super::types::{self, Field, Spec};
use super::{rdata_rare, svcb, wirecheck};

/// Octets of record data at the most: RDLENGTH has 16 bits (RFC 1035, 3.2.1).
pub(super) const RDATA_LEN_MAX: usize = u16::MAX as usize;

/// The tokens of an entry after its type, taken one by one.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub text: &'a [u8],
    pub tokens: &'a [Token],
    pub origin: Option<&'a [u8]>,
    /// The token taken last, at first the type: a missing field is reported
    /// there.
    pub last: Token,
    pub spec: &'static Spec,
}

impl<'a> Fields<'a> {
    /// Takes the next token.
    #[inline]
    pub fn next(&mut self, label: &str) -> Outcome<Token> {
        match self.tokens.split_first() {
            Some((&token, rest)) => {
                self.tokens = rest;
                self.last = token;
                Ok(token)
            }
            None => Err(self.missing(label)),
        }
    }

    /// The next token, left in place.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.tokens.first().map(|token| token.raw(self.text))
    }

    /// Takes the next token and turns it into a value.
    #[inline]
    pub fn parse<T>(&mut self, label: &str, f: impl FnOnce(&'a [u8]) -> Outcome<T>) -> Outcome<T> {
        let token = self.next(label)?;
        f(token.raw(self.text)).map_err(|fault| fault.at(token.line, token.column))
    }

    /// A fault at the token taken last.
    #[cold]
    pub fn wrong(&self, what: impl Into<String>, accepted: impl Into<String>) -> Box<Fault> {
        fault(what, accepted).at(self.last.line, self.last.column)
    }

    #[cold]
    fn missing(&self, label: &str) -> Box<Fault> {
        self.wrong(format!("{} without its {label}", self.spec.name), self.needs())
    }

    /// "MX needs preference, host name".
    fn needs(&self) -> String {
        let labels: Vec<_> = self.spec.fields.iter().map(|&(_, label)| label).collect();
        format!("{} needs {}", self.spec.name, labels.join(", "))
    }

    pub fn number(&mut self, max: u32, label: &str) -> Outcome<u32> {
        self.parse(label, |raw| text::parse_number(raw, max, label))
    }

    pub fn name(&mut self, label: &str, out: &mut Vec<u8>) -> Outcome<()> {
        let (token, origin) = (self.next(label)?, self.origin);
        text::push_name(token.raw(self.text), token.quoted, token.escaped, origin, out)
            .map_err(|fault| fault.at(token.line, token.column))
    }

    /// Decodes all tokens left.
    pub fn digits(&mut self, base: Base, label: &str, out: &mut Vec<u8>) -> Outcome<()> {
        let mut digits = Digits::new(base);
        self.parse(label, |raw| digits.push(raw, out))?;
        while !self.tokens.is_empty() {
            self.parse(label, |raw| digits.push(raw, out))?;
        }
        digits.finish().map_err(|fault| fault.at(self.last.line, self.last.column))
    }

    /// Decodes one token.
    pub fn digits_once(&mut self, base: Base, label: &str, out: &mut Vec<u8>) -> Outcome<()> {
        self.parse(label, |raw| {
            let mut digits = Digits::new(base);
            digits.push(raw, out)?;
            digits.finish()
        })
    }

    fn string(&mut self, label: &str, out: &mut Vec<u8>) -> Outcome<()> {
        let token = self.next(label)?;
        text::push_string(token.raw(self.text), token.escaped, out)
            .map_err(|fault| fault.at(token.line, token.column))
    }
}

/// Reads all record data of one entry into `out`, which is empty.
pub(super) fn read(fields: &mut Fields<'_>, code: u16, out: &mut Vec<u8>) -> Outcome<()> {
    let generic = fields.tokens.first().is_some_and(|token| !token.quoted);
    if generic && fields.peek() == Some(b"\\#") {
        read_generic(fields, code, out)?;
    } else {
        for &(field, label) in fields.spec.fields {
            read_field(fields, field, label, out)?;
        }
    }
    if let Some(extra) = fields.tokens.first() {
        let what =
            format!("{} after the {} record", show(extra.raw(fields.text)), fields.spec.name);
        return Err(fault(what, fields.needs()).at(extra.line, extra.column));
    }
    if out.len() > RDATA_LEN_MAX {
        let what = format!("record data of {} octets", out.len());
        return Err(fields.wrong(what, format!("at most {RDATA_LEN_MAX} octets")));
    }
    Ok(())
}

const GENERIC_ACCEPTED: &str = "`\\#`, the length, and the data in hexadecimal (RFC 3597, 5)";

/// `\# length hex…` (RFC 3597, 5). A known type must come out well-formed.
fn read_generic(fields: &mut Fields<'_>, code: u16, out: &mut Vec<u8>) -> Outcome<()> {
    let mark = fields.next("data")?;
    if fields.tokens.is_empty() {
        return Err(fields.wrong("`\\#` without a length", GENERIC_ACCEPTED));
    }
    let len = fields.number(RDATA_LEN_MAX as u32, "data length")? as usize;
    if !fields.tokens.is_empty() {
        fields.digits(Base::Hex, "data", out)?;
    }
    if out.len() != len {
        let what = format!("{} octets of data after `\\# {len}`", out.len());
        return Err(fault(what, format!("{len} octets in hexadecimal")).at(mark.line, mark.column));
    }
    match types::by_code(code) {
        Some(spec) => wirecheck::check(spec, out).map_err(|fault| fault.at(mark.line, mark.column)),
        None => Ok(()),
    }
}

fn read_field(
    fields: &mut Fields<'_>,
    field: Field,
    label: &'static str,
    out: &mut Vec<u8>,
) -> Outcome<()> {
    match field {
        Field::Ipv4 => out.extend_from_slice(&fields.parse(label, text::parse_ipv4)?),
        Field::Ipv6 => out.extend_from_slice(&fields.parse(label, text::parse_ipv6)?),
        Field::Name => fields.name(label, out)?,
        Field::U8 => out.push(fields.number(u8::MAX.into(), label)? as u8),
        Field::U16 => push_u16(out, fields.number(u16::MAX.into(), label)?),
        Field::U32 => push_u32(out, fields.number(u32::MAX, label)?),
        Field::Period => {
            let secs = fields.parse(label, |raw| text::parse_period(raw, u32::MAX, label))?;
            push_u32(out, secs);
        }
        Field::String | Field::Tag => {
            let start = out.len();
            fields.string(label, out)?;
            if field == Field::Tag {
                check_tag(&out[start + 1..])
                    .map_err(|fault| fault.at(fields.last.line, fields.last.column))?;
            }
        }
        Field::StringMaybe if fields.tokens.is_empty() => {}
        Field::StringMaybe => fields.string(label, out)?,
        Field::Strings => {
            fields.string(label, out)?;
            while !fields.tokens.is_empty() {
                fields.string(label, out)?;
            }
        }
        Field::Text => {
            let token = fields.next(label)?;
            text::push_octets(token.raw(fields.text), token.escaped, out)
                .map_err(|fault| fault.at(token.line, token.column))?;
        }
        Field::Hex => fields.digits(Base::Hex, label, out)?,
        Field::Base64 => fields.digits(Base::Base64, label, out)?,
        _ => return read_coded_field(fields, field, label, out),
    }
    Ok(())
}

/// The fields of DNSSEC and of rarer types.
fn read_coded_field(
    fields: &mut Fields<'_>,
    field: Field,
    label: &'static str,
    out: &mut Vec<u8>,
) -> Outcome<()> {
    match field {
        Field::Time => push_u32(out, fields.parse(label, parse_time)?),
        Field::Type => {
            let code = fields.parse(label, |raw| types::code(raw).ok_or_else(|| no_type(raw)))?;
            push_u16(out, code.into());
        }
        Field::Types => read_types(fields, label, out)?,
        Field::Algorithm => {
            out.push(read_mnemonic(fields, ALGORITHMS, u8::MAX.into(), label)? as u8)
        }
        Field::CertType => push_u16(out, read_mnemonic(fields, CERTS, u16::MAX.into(), label)?),
        Field::Scheme => out.push(read_mnemonic(fields, SCHEMES, u8::MAX.into(), label)? as u8),
        Field::Salt if fields.peek() == Some(b"-") => {
            fields.next(label)?;
            out.push(0);
        }
        Field::Salt => read_counted(fields, Base::Hex, label, out)?,
        Field::Hash => read_counted(fields, Base::Base32Hex, label, out)?,
        Field::Eui48 => read_groups(fields, (6, 2, b'-'), label, out)?,
        Field::Eui64 => read_groups(fields, (8, 2, b'-'), label, out)?,
        Field::Locator64 => read_groups(fields, (4, 4, b':'), label, out)?,
        Field::SvcParams => svcb::read(fields, out)?,
        Field::Opaque => {
            let what = format!("{} without `\\#`", fields.spec.name);
            return Err(fields.wrong(what, GENERIC_ACCEPTED));
        }
        _ => rdata_rare::read(fields, field, label, out)?,
    }
    Ok(())
}

pub(super) fn push_u16(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&(number as u16).to_be_bytes());
}

pub(super) fn push_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// RFC 8659, 4.1: a tag is not empty and has only letters and digits.
pub(super) fn check_tag(tag: &[u8]) -> Outcome<()> {
    if !tag.is_empty() && tag.iter().all(u8::is_ascii_alphanumeric) {
        return Ok(());
    }
    Err(fault(
        format!("the tag {}", show(tag)),
        "letters and digits, as in issue, issuewild, iodef",
    ))
}

#[cold]
fn no_type(raw: &[u8]) -> Box<Fault> {
    fault(format!("{} is not a record type", show(raw)), "a type name, or TYPE and its number")
}

fn read_types(fields: &mut Fields<'_>, label: &str, out: &mut Vec<u8>) -> Outcome<()> {
    let mut codes = Vec::with_capacity(fields.tokens.len());
    while !fields.tokens.is_empty() {
        codes.push(fields.parse(label, |raw| types::code(raw).ok_or_else(|| no_type(raw)))?);
    }
    codes.sort_unstable();
    for window in codes.chunk_by(|a, b| a >> 8 == b >> 8) {
        let len = (window[window.len() - 1] & 0xff) / 8 + 1;
        out.extend_from_slice(&[(window[0] >> 8) as u8, len as u8]);
        let start = out.len();
        out.resize(start + usize::from(len), 0);
        for code in window {
            out[start + usize::from(code & 0xff) / 8] |= 0x80 >> (code & 7);
        }
    }
    Ok(())
}

/// DNSSEC algorithms (IANA registry; the mnemonics of RFC 4034, A.1 on).
const ALGORITHMS: &[(&str, u32)] = &[
    ("RSAMD5", 1),
    ("DH", 2),
    ("DSA", 3),
    ("RSASHA1", 5),
    ("NSEC3DSA", 6),
    ("DSA-NSEC3-SHA1", 6),
    ("NSEC3RSASHA1", 7),
    ("RSASHA1-NSEC3-SHA1", 7),
    ("RSASHA256", 8),
    ("RSASHA512", 10),
    ("ECCGOST", 12),
    ("ECC-GOST", 12),
    ("ECDSAP256SHA256", 13),
    ("ECDSAP384SHA384", 14),
    ("ED25519", 15),
    ("ED448", 16),
    ("INDIRECT", 252),
    ("PRIVATEDNS", 253),
    ("PRIVATEOID", 254),
];

/// RFC 4398, 2.1.
const CERTS: &[(&str, u32)] = &[
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];

const SCHEMES: &[(&str, u32)] = &[("NOTIFY", 1)];

fn read_mnemonic(
    fields: &mut Fields<'_>,
    mnemonics: &[(&str, u32)],
    max: u32,
    label: &str,
) -> Outcome<u32> {
    fields.parse(label, |raw| {
        if raw.first().is_some_and(u8::is_ascii_digit) {
            return text::parse_number(raw, max, label);
        }
        let found = mnemonics.iter().find(|(name, _)| raw.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|&(_, number)| number).ok_or_else(|| {
            let names: Vec<_> = mnemonics.iter().map(|&(name, _)| name).collect();
            let what = format!("{} is not a known {label}", show(raw));
            fault(what, format!("a number from 0 to {max}, or {}", names.join(", ")))
        })
    })
}

/// One word of digits behind a length octet. The digits make 1 to 255 octets.
fn read_counted(
    fields: &mut Fields<'_>,
    base: Base,
    label: &str,
    out: &mut Vec<u8>,
) -> Outcome<()> {
    let start = out.len();
    out.push(0);
    fields.digits_once(base, label, out)?;
    match out.len() - start - 1 {
        len @ 1..=255 => out[start] = len as u8,
        len => return Err(fields.wrong(format!("{len} octets for the {label}"), "1 to 255 octets")),
    }
    Ok(())
}

/// `shape` is the number of groups, the digits in each, and what separates them.
fn read_groups(
    fields: &mut Fields<'_>,
    (groups, digits, separator): (usize, usize, u8),
    label: &str,
    out: &mut Vec<u8>,
) -> Outcome<()> {
    let bits = 4 * groups * digits;
    fields.parse(label, |raw| {
        let wrong = || {
            let what = format!("{} does not fit the {label} of {bits} bits", show(raw));
            let separator = separator as char;
            fault(
                what,
                format!(
                    "{groups} groups of {digits} hexadecimal digits with `{separator}` between"
                ),
            )
        };
        let mut count = 0;
        for group in raw.split(|&octet| octet == separator) {
            // Locators may leave out leading zeros (RFC 6742, 2.1.2).
            let short = if separator == b':' { 1 } else { digits };
            if !(short..=digits).contains(&group.len()) || count == groups {
                return Err(wrong());
            }
            let mut padded = [b'0'; 4];
            padded[4 - group.len()..].copy_from_slice(group);
            Digits::new(Base::Hex).push(&padded[4 - digits..], out).map_err(|_| wrong())?;
            count += 1;
        }
        if count == groups { Ok(()) } else { Err(wrong()) }
    })
}

/// `YYYYMMDDHHmmSS`, or seconds since 1970 (RFC 4034, 3.2). Both stand for a
/// point on the circle of 32 bits (RFC 1982), so later years wrap around.
fn parse_time(raw: &[u8]) -> Outcome<u32> {
    let wrong = || {
        let what = format!("{} is not a time", show(raw));
        fault(what, "YYYYMMDDHHmmSS, or seconds since 1970 up to 4294967295")
    };
    let number = parse_time_digits(raw).ok_or_else(wrong)?;
    Ok(number)
}

fn parse_time_digits(raw: &[u8]) -> Option<u32> {
    let number = text::parse_digits(raw)?;
    if raw.len() != 14 {
        return u32::try_from(number).ok();
    }
    let part = |divisor: u64, modulus: u64| (number / divisor % modulus) as i64;
    let (year, month, day) =
        (part(10_000_000_000, 10_000), part(100_000_000, 100), part(1_000_000, 100));
    let (hour, minute, second) = (part(10_000, 100), part(100, 100), part(1, 100));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 60
    {
        return None;
    }
    // Days since 1970-01-01, by counting years from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + hour * 3600 + minute * 60 + second) as u32)
}
