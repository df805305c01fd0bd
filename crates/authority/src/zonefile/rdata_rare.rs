//! Record data whose presentation form follows rules of its own: LOC, APL,
//! IPSECKEY, AMTRELAY, HIP and NSAP.

use super::fault::{Outcome, fault, show};
use super::rdata::{Fields, push_u32};
use super::text::{self, Base, Digits};
use super::types::Field;

/// Reads one of the fields named in the module's text.
pub(super) fn read(
    fields: &mut Fields<'_>,
    field: Field,
    label: &str,
    out: &mut Vec<u8>,
) -> Outcome<()> {
    match field {
        Field::Location => read_location(fields, out),
        Field::Prefixes => read_prefixes(fields, out),
        Field::IpsecGateway => read_ipsec_gateway(fields, out),
        Field::RelayTail => read_relay_tail(fields, out),
        Field::HostIdentity => read_host_identity(fields, out),
        Field::Nsap => fields.parse(label, |raw| push_nsap(raw, out)),
        _ => unreachable!("{field:?} is read in rdata"),
    }
}

/// `0x` and pairs of digits, with dots anywhere between (RFC 1706, 7).
fn push_nsap(raw: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
    let accepted = "0x and pairs of hexadecimal digits";
    let [b'0', b'x' | b'X', digits @ ..] = raw else {
        return Err(fault(format!("{} is not an NSAP address", show(raw)), accepted));
    };
    let mut decoder = Digits::new(Base::Hex);
    for part in digits.split(|&octet| octet == b'.') {
        decoder.push(part, out)?;
    }
    if out.is_empty() {
        return Err(fault("an NSAP address without digits", accepted));
    }
    decoder.finish()
}

/// Gateway type, algorithm, gateway, and a key unless the algorithm is 0 (RFC
/// 4025, 3.1).
fn read_ipsec_gateway(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    let kind = fields.number(3, "gateway type")?;
    let algorithm = fields.number(255, "algorithm")?;
    out.extend_from_slice(&[kind as u8, algorithm as u8]);
    read_gateway(fields, kind, "gateway", out)?;
    if algorithm != 0 || !fields.tokens.is_empty() {
        fields.digits(Base::Base64, "public key", out)?;
    }
    Ok(())
}

/// Nothing, an IPv4 address, an IPv6 address or a name, by `kind`.
fn read_gateway(fields: &mut Fields<'_>, kind: u32, label: &str, out: &mut Vec<u8>) -> Outcome<()> {
    match kind {
        0 => fields.parse(label, |raw| match raw {
            b"." => Ok(()),
            _ => Err(fault(format!("the {label} {} for type 0", show(raw)), "`.`")),
        })?,
        1 => out.extend_from_slice(&fields.parse(label, text::parse_ipv4)?),
        2 => out.extend_from_slice(&fields.parse(label, text::parse_ipv6)?),
        _ => fields.name(label, out)?,
    }
    Ok(())
}

/// Discovery bit, relay type, relay (RFC 8777, 4.3).
fn read_relay_tail(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    let discovery = fields.number(1, "discovery bit")?;
    let kind = fields.number(3, "relay type")?;
    out.push((discovery << 7 | kind) as u8);
    read_gateway(fields, kind, "relay", out)
}

/// Algorithm, host identity tag, public key, rendezvous servers (RFC 8005, 6).
fn read_host_identity(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    let algorithm = fields.number(255, "algorithm")?;
    out.extend_from_slice(&[0, algorithm as u8, 0, 0]);
    fields.digits_once(Base::Hex, "host identity tag", out)?;
    let tag_len = out.len() - 4;
    out[0] = u8::try_from(tag_len)
        .map_err(|_| fields.wrong("a host identity tag over 255 octets", "at most 255 octets"))?;
    fields.digits_once(Base::Base64, "public key", out)?;
    let key_len = u16::try_from(out.len() - 4 - tag_len)
        .map_err(|_| fields.wrong("a public key over 65535 octets", "at most 65535 octets"))?;
    out[2..4].copy_from_slice(&key_len.to_be_bytes());
    while !fields.tokens.is_empty() {
        fields.name("rendezvous server", out)?;
    }
    Ok(())
}

/// Any number of `[!]family:address/prefix` (RFC 3123, 5).
fn read_prefixes(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    while !fields.tokens.is_empty() {
        fields.parse("prefix", |raw| push_prefix(raw, out))?;
    }
    Ok(())
}

fn push_prefix(raw: &[u8], out: &mut Vec<u8>) -> Outcome<()> {
    let wrong = || {
        let what = format!("{} is not an address prefix", show(raw));
        fault(what, "[!]family:address/length, as in 1:192.0.2.0/24 or !2:2001:db8::/32")
    };
    let (negated, rest) = match raw {
        [b'!', rest @ ..] => (0x80, rest),
        _ => (0, raw),
    };
    let slash = rest.iter().position(|&octet| octet == b'/').ok_or_else(wrong)?;
    let (address, length) = (&rest[..slash], &rest[slash + 1..]);
    let (v4, v6);
    let (family, octets): (u8, &[u8]) = match address {
        [b'1', b':', address @ ..] => {
            v4 = text::parse_ipv4(address)?;
            (1, &v4)
        }
        [b'2', b':', address @ ..] => {
            v6 = text::parse_ipv6(address)?;
            (2, &v6)
        }
        _ => return Err(wrong()),
    };
    let length = text::parse_number(length, octets.len() as u32 * 8, "prefix length")?;
    // Trailing zero octets are not sent (RFC 3123, 4).
    let sent = octets.len() - octets.iter().rev().take_while(|&&octet| octet == 0).count();
    out.extend_from_slice(&[0, family, length as u8, negated | sent as u8]);
    out.extend_from_slice(&octets[..sent]);
    Ok(())
}

/// Degrees, minutes and seconds are in thousandths of a second of arc, and 0
/// is 2^31 (RFC 1876, 2).
const MERIDIAN: u32 = 1 << 31;
/// Centimetres from the lowest altitude to the reference (RFC 1876, 2).
const ALTITUDE_BASE_CM: i64 = 10_000_000;

/// `d [m [s]] N|S d [m [s]] E|W alt[m] [size[m] [hp[m] [vp[m]]]]` (RFC 1876, 3).
fn read_location(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    let latitude = read_angle(fields, 90, *b"NS", "latitude")?;
    let longitude = read_angle(fields, 180, *b"EW", "longitude")?;
    let altitude = fields.parse("altitude", |raw| {
        parse_centimetres(raw, -ALTITUDE_BASE_CM, i64::from(u32::MAX) - ALTITUDE_BASE_CM)
    })?;
    // Defaults: 1 m, 10 km, 10 m, each a digit and a power of ten of
    // centimetres (RFC 1876, 3).
    let mut precisions = [0x12u8, 0x16, 0x13];
    for precision in &mut precisions {
        if fields.tokens.is_empty() {
            break;
        }
        let mut value =
            fields.parse("precision", |raw| parse_centimetres(raw, 0, 9_000_000_000))?;
        let mut power = 0;
        while value > 9 {
            value /= 10;
            power += 1;
        }
        *precision = (value as u8) << 4 | power;
    }
    out.push(0);
    out.extend_from_slice(&precisions);
    push_u32(out, latitude);
    push_u32(out, longitude);
    push_u32(out, (altitude + ALTITUDE_BASE_CM) as u32);
    Ok(())
}

fn read_angle(
    fields: &mut Fields<'_>,
    degrees_max: u32,
    [plus, minus]: [u8; 2],
    label: &str,
) -> Outcome<u32> {
    let mut angle = 3_600_000 * fields.number(degrees_max, label)?;
    for part in 0..3 {
        let letter = match fields.peek() {
            Some([letter]) => letter.to_ascii_uppercase(),
            _ => 0,
        };
        if letter == plus || letter == minus {
            fields.next(label)?;
            if angle > degrees_max * 3_600_000 {
                let what = format!("a {label} beyond {degrees_max} degrees");
                return Err(fields.wrong(what, format!("at most {degrees_max} degrees")));
            }
            return Ok(if letter == plus { MERIDIAN + angle } else { MERIDIAN - angle });
        }
        angle += match part {
            0 => 60_000 * fields.number(59, "minutes")?,
            1 => fields.parse("seconds", |raw| parse_thousandths(raw, 59))?,
            _ => break,
        };
    }
    let found = fields.peek().map_or_else(|| "nothing".into(), show);
    let (plus, minus) = (plus as char, minus as char);
    Err(fields.wrong(format!("{found} after the {label}"), format!("`{plus}` or `{minus}`")))
}

/// Seconds of arc with at most three decimals.
fn parse_thousandths(raw: &[u8], max: u32) -> Outcome<u32> {
    let decimal = parse_decimal(raw, 3).filter(|&value| value < (u64::from(max) + 1) * 1000);
    decimal.map(|value| value as u32).ok_or_else(|| {
        let what = format!("{} is not a number of seconds", show(raw));
        fault(what, format!("0 to {max}.999"))
    })
}

/// Metres with at most two decimals and perhaps an `m`.
fn parse_centimetres(raw: &[u8], min: i64, max: i64) -> Outcome<i64> {
    let digits = raw.strip_suffix(b"m").or(raw.strip_suffix(b"M")).unwrap_or(raw);
    let (sign, digits) = match digits {
        [b'-', digits @ ..] => (-1, digits),
        _ => (1, digits),
    };
    let value = parse_decimal(digits, 2).and_then(|value| i64::try_from(value).ok());
    value.map(|value| sign * value).filter(|value| (min..=max).contains(value)).ok_or_else(|| {
        let what = format!("{} is not a length", show(raw));
        fault(what, format!("{}m to {}m, with at most two decimals", min / 100, max / 100))
    })
}

/// A decimal fraction as a whole number of units of 10^-`places`.
fn parse_decimal(raw: &[u8], places: usize) -> Option<u64> {
    let dot = raw.iter().position(|&octet| octet == b'.').unwrap_or(raw.len());
    let fraction = raw.get(dot + 1..).unwrap_or(&[]);
    if fraction.len() > places || dot > 12 {
        return None;
    }
    let mut value = text::parse_digits(&raw[..dot])?;
    for place in 0..places {
        let digit = fraction.get(place).copied().unwrap_or(b'0');
        value = value * 10 + text::parse_digits(&[digit])?;
    }
    Some(value)
}

/// Wire form of the address or name that `kind` says, for the check of `\#`
/// data: the octets it takes, or `None` for a name.
pub(super) fn gateway_len(kind: u8) -> Option<usize> {
    match kind {
        0 => Some(0),
        1 => Some(4),
        2 => Some(16),
        _ => None,
    }
}
