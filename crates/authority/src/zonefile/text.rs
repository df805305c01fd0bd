//! Single values from their written form: escapes, names, numbers, periods,
//! addresses, and the base 16, 32 and 64 encodings.

use super::fault::{Outcome, fault, show};
use std::net::Ipv6Addr;
use wire::name::{LABEL_LEN_MAX, NAME_LEN_MAX};

/// Reads the escape after a backslash; `at` is the place after the backslash
/// and is moved past the escape (RFC 1035, 5.1).
pub(super) fn unescape(raw: &[u8], at: &mut usize) -> Outcome<u8> {
    let accepted = "`\\` and three digits from 000 to 255, or `\\` and another character";
    let rest = &raw[(*at).min(raw.len())..];
    match rest {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            *at += 3;
            let [a, b, c] = [a, b, c].map(|digit| u16::from(digit - b'0'));
            u8::try_from(a * 100 + b * 10 + c)
                .map_err(|_| fault(format!("the escape `\\{a}{b}{c}` is above 255"), accepted))
        }
        [b'0'..=b'9', ..] | [] => {
            let shown = show(&raw[at.saturating_sub(1)..raw.len().min(*at + 3)]);
            Err(fault(format!("the escape {shown} is not complete"), accepted))
        }
        [other, ..] => {
            *at += 1;
            Ok(*other)
        }
    }
}

/// Appends the octets of a word or string.
pub(super) fn push_octets(raw: &[u8], escaped: bool, out: &mut Vec<u8>) -> Outcome<()> {
    if !escaped {
        out.extend_from_slice(raw);
        return Ok(());
    }
    let mut at = 0;
    while let Some(&octet) = raw.get(at) {
        at += 1;
        out.push(if octet == b'\\' { unescape(raw, &mut at)? } else { octet });
    }
    Ok(())
}

/// Appends a character string: a length octet and at most 255 octets.
pub(super) fn push_string(raw: &[u8], escaped: bool, out: &mut Vec<u8>) -> Outcome<()> {
    let start = out.len();
    out.push(0);
    push_octets(raw, escaped, out)?;
    let len = out.len() - start - 1;
    out[start] = u8::try_from(len).map_err(|_| {
        let what = format!("the string {} has {len} octets", show(raw));
        fault(what, "at most 255 octets in one string; split it into several strings")
    })?;
    Ok(())
}

/// Appends a name in wire form. A relative name is completed with `origin`.
pub(super) fn push_name(
    raw: &[u8],
    quoted: bool,
    escaped: bool,
    origin: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Outcome<()> {
    let start = out.len();
    match raw {
        b"@" if !quoted => out.extend_from_slice(origin.ok_or_else(|| no_origin(raw))?),
        b"." => out.push(0),
        b"" => return Err(fault("an empty name", "a name; `@` for the origin, `.` for the root")),
        _ if escaped => push_escaped_labels(raw, origin, out)?,
        _ => push_labels(raw, origin, out)?,
    }
    if out.len() - start > NAME_LEN_MAX {
        let what = format!("the name {} has {} octets", show(raw), out.len() - start);
        return Err(fault(what, "at most 255 octets, the origin and length octets included"));
    }
    Ok(())
}

#[cold]
fn no_origin(raw: &[u8]) -> Box<super::fault::Fault> {
    fault(
        format!("no $ORIGIN yet for the relative name {}", show(raw)),
        "an absolute name ending in a dot, or $ORIGIN before it",
    )
}

fn check_label(raw: &[u8], len: usize) -> Outcome<u8> {
    match len {
        0 => Err(fault(format!("an empty label in {}", show(raw)), "one dot between labels")),
        1..=LABEL_LEN_MAX => Ok(len as u8),
        _ => {
            let what = format!("a label of {len} octets in {}", show(raw));
            Err(fault(what, "at most 63 octets between two dots"))
        }
    }
}

fn push_labels(raw: &[u8], origin: Option<&[u8]>, out: &mut Vec<u8>) -> Outcome<()> {
    let (labels, absolute) = match raw {
        [labels @ .., b'.'] => (labels, true),
        _ => (raw, false),
    };
    // The octets as written, then each dot turned into the length of what
    // follows it: one copy, one pass.
    let mut length_at = out.len();
    out.push(0);
    let first = out.len();
    out.extend_from_slice(labels);
    for at in first..out.len() {
        if out[at] == b'.' {
            out[length_at] = check_label(raw, at - length_at - 1)?;
            length_at = at;
        }
    }
    out[length_at] = check_label(raw, out.len() - length_at - 1)?;
    let end = if absolute { &[0] } else { origin.ok_or_else(|| no_origin(raw))? };
    out.extend_from_slice(end);
    Ok(())
}

fn push_escaped_labels(raw: &[u8], origin: Option<&[u8]>, out: &mut Vec<u8>) -> Outcome<()> {
    let mut length_at = out.len();
    out.push(0);
    let mut at = 0;
    while let Some(&octet) = raw.get(at) {
        at += 1;
        match octet {
            b'.' => {
                out[length_at] = check_label(raw, out.len() - length_at - 1)?;
                length_at = out.len();
                out.push(0);
                if at == raw.len() {
                    return Ok(());
                }
            }
            b'\\' => out.push(unescape(raw, &mut at)?),
            _ => out.push(octet),
        }
    }
    out[length_at] = check_label(raw, out.len() - length_at - 1)?;
    out.extend_from_slice(origin.ok_or_else(|| no_origin(raw))?);
    Ok(())
}

/// A number of decimal digits only, if it fits 64 bits.
#[inline]
pub(super) fn parse_digits(raw: &[u8]) -> Option<u64> {
    if raw.is_empty() || raw.len() > 19 {
        return None;
    }
    raw.iter().try_fold(0u64, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
    })
}

/// A number from 0 to `max`; `label` says what it is for.
#[inline]
pub(super) fn parse_number(raw: &[u8], max: u32, label: &str) -> Outcome<u32> {
    match parse_digits(raw) {
        Some(number) if number <= u64::from(max) => Ok(number as u32),
        _ => Err(bad_number(raw, max, label)),
    }
}

#[cold]
fn bad_number(raw: &[u8], max: u32, label: &str) -> Box<super::fault::Fault> {
    let digits = !raw.is_empty() && raw.iter().all(u8::is_ascii_digit);
    let reason = if digits { "is out of range for" } else { "is not a number for" };
    let what = format!("{} {reason} the {label}", show(raw));
    fault(what, format!("a number from 0 to {max}"))
}

/// Seconds, written plainly or as `1w2d3h4m5s` in that or another order. A
/// bare number after a unit, as in `1h30`, could be minutes or seconds: no.
pub(super) fn parse_period(raw: &[u8], max: u32, label: &str) -> Outcome<u32> {
    let mut total = 0u64;
    let mut rest = raw;
    while !rest.is_empty() {
        let len = rest.iter().position(|octet| !octet.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(len);
        let secs = match tail.first().map(u8::to_ascii_lowercase) {
            None if len == raw.len() => 1,
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => 86_400,
            Some(b'w') => 604_800,
            _ => return Err(bad_period(raw, max, label)),
        };
        let Some(number) = parse_digits(digits).filter(|&number| number <= u64::from(u32::MAX))
        else {
            return Err(bad_period(raw, max, label));
        };
        total = total.saturating_add(number * secs);
        rest = tail.get(1..).unwrap_or(&[]);
    }
    match u32::try_from(total) {
        Ok(total) if total <= max && !raw.is_empty() => Ok(total),
        _ => Err(bad_period(raw, max, label)),
    }
}

#[cold]
fn bad_period(raw: &[u8], max: u32, label: &str) -> Box<super::fault::Fault> {
    let known = |octet: &u8| octet.is_ascii_digit() || b"smhdwSMHDW".contains(octet);
    let whole = raw.first().is_some_and(u8::is_ascii_digit) && raw.iter().all(known);
    let ends = raw.iter().all(u8::is_ascii_digit) || !raw.last().is_some_and(u8::is_ascii_digit);
    let reason = if whole && ends { "is out of range for" } else { "is not a period for" };
    let what = format!("{} {reason} the {label}", show(raw));
    fault(what, format!("0 to {max} seconds, plain or with units as in 1h30m, 2w"))
}

/// Four parts from 0 to 255 without leading zeros, which some read as octal.
pub(super) fn parse_ipv4(raw: &[u8]) -> Outcome<[u8; 4]> {
    let mut address = [0; 4];
    let mut count = 0;
    for part in raw.split(|&octet| octet == b'.') {
        let number = parse_digits(part).filter(|&number| number <= 255);
        let plain = part.len() <= 1 || part[0] != b'0';
        match (number, address.get_mut(count)) {
            (Some(number), Some(place)) if plain => *place = number as u8,
            (_, None) => {}
            _ => {
                let shown = if part.is_empty() { "nothing".into() } else { show(part) };
                let zero = if number.is_some() { ", with a leading zero" } else { "" };
                let part = count + 1;
                let what =
                    format!("part {part} of the IPv4 address {} is {shown}{zero}", show(raw));
                let dotted =
                    raw.contains(&b'.') && raw.iter().all(|o| *o == b'.' || o.is_ascii_digit());
                let what = match dotted {
                    true => what,
                    false if raw.contains(&b':') => {
                        format!("{} is not an IPv4 address; type AAAA takes IPv6", show(raw))
                    }
                    false => format!("{} is not an IPv4 address", show(raw)),
                };
                return Err(fault(what, IPV4_ACCEPTED));
            }
        }
        count += 1;
    }
    if count != 4 {
        let what = format!("the IPv4 address {} has {count} parts", show(raw));
        return Err(fault(what, IPV4_ACCEPTED));
    }
    Ok(address)
}

const IPV4_ACCEPTED: &str = "four numbers from 0 to 255 with dots between, as in 192.0.2.1";

/// An IPv6 address in any of the forms of RFC 4291, 2.2.
pub(super) fn parse_ipv6(raw: &[u8]) -> Outcome<[u8; 16]> {
    let parsed = std::str::from_utf8(raw).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
    parsed.map(|address| address.octets()).ok_or_else(|| {
        let hint = match parse_ipv4(raw) {
            Ok(_) => "; type A takes IPv4",
            Err(_) => "",
        };
        let what = format!("{} is not an IPv6 address{hint}", show(raw));
        fault(what, "groups of hexadecimal digits with colons between, as in 2001:db8::1")
    })
}

/// Which digits an encoding has, and how many bits each stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Hex,
    /// The alphabet of NSEC3 owners (RFC 5155, 3.3), without padding.
    Base32Hex,
    Base64,
}

/// Decodes digits that may come in several words.
#[derive(Debug)]
pub(super) struct Digits {
    base: Base,
    bits: u32,
    count: u32,
    pads: u32,
    digits: usize,
}

impl Digits {
    pub fn new(base: Base) -> Self {
        Digits { base, bits: 0, count: 0, pads: 0, digits: 0 }
    }

    /// Appends the octets that `raw` completes.
    pub fn push(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
        for &octet in raw {
            if octet == b'=' && self.base == Base::Base64 && self.pads < 2 && self.digits % 4 >= 2 {
                self.pads += 1;
                continue;
            }
            let value = self.value(octet).filter(|_| self.pads == 0);
            let Some(value) = value else {
                let bad = show(&[octet]);
                return Err(fault(format!("{bad} in {}", show(raw)), self.accepted()));
            };
            let width = self.width();
            self.bits = self.bits << width | u32::from(value);
            self.count += width;
            self.digits += 1;
            if self.count >= 8 {
                self.count -= 8;
                out.push((self.bits >> self.count) as u8);
                self.bits &= (1 << self.count) - 1;
            }
        }
        Ok(())
    }

    /// Checks that the digits make whole octets.
    pub fn finish(self) -> Outcome<()> {
        let whole = match self.base {
            Base::Hex => self.count == 0,
            Base::Base32Hex => matches!(self.digits % 8, 0 | 2 | 4 | 5 | 7),
            Base::Base64 => (self.digits + self.pads as usize).is_multiple_of(4),
        };
        let what = match self.base {
            Base::Hex => "an odd number of hexadecimal digits",
            Base::Base32Hex => "base 32 digits that make no whole octets",
            Base::Base64 => "base 64 digits that end early",
        };
        if whole { Ok(()) } else { Err(fault(what, self.accepted())) }
    }

    fn width(&self) -> u32 {
        match self.base {
            Base::Hex => 4,
            Base::Base32Hex => 5,
            Base::Base64 => 6,
        }
    }

    #[inline]
    fn value(&self, octet: u8) -> Option<u8> {
        Some(match (self.base, octet) {
            (_, b'0'..=b'9') if self.base != Base::Base64 => octet - b'0',
            (Base::Hex, b'a'..=b'f') => octet - b'a' + 10,
            (Base::Hex, b'A'..=b'F') => octet - b'A' + 10,
            (Base::Base32Hex, b'a'..=b'v') => octet - b'a' + 10,
            (Base::Base32Hex, b'A'..=b'V') => octet - b'A' + 10,
            (Base::Base64, b'A'..=b'Z') => octet - b'A',
            (Base::Base64, b'a'..=b'z') => octet - b'a' + 26,
            (Base::Base64, b'0'..=b'9') => octet - b'0' + 52,
            (Base::Base64, b'+') => 62,
            (Base::Base64, b'/') => 63,
            _ => return None,
        })
    }

    fn accepted(&self) -> &'static str {
        match self.base {
            Base::Hex => "pairs of hexadecimal digits 0-9, a-f",
            Base::Base32Hex => "base 32 digits 0-9, a-v (RFC 4648, 7)",
            Base::Base64 => "base 64 digits A-Z, a-z, 0-9, +, /, padded with = to groups of four",
        }
    }
}
