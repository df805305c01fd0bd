//! Parameters of SVCB and HTTPS records (RFC 9460).

use super::fault::{Fault, Outcome, fault, show};
use super::rdata::Fields;
use super::text::{self, Base, Digits};

/// The keys with a name (RFC 9460, 14.3.2, and the registry since then).
const KEYS: &[(&str, u16)] = &[
    ("mandatory", MANDATORY),
    ("alpn", ALPN),
    ("no-default-alpn", NO_DEFAULT_ALPN),
    ("port", PORT),
    ("ipv4hint", IPV4HINT),
    ("ech", ECH),
    ("ipv6hint", IPV6HINT),
    ("dohpath", 7),
    ("ohttp", OHTTP),
    ("tls-supported-groups", TLS_GROUPS),
    ("docpath", 10),
];
const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6HINT: u16 = 6;
const OHTTP: u16 = 8;
const TLS_GROUPS: u16 = 9;

/// Key and value in wire form.
type Parameter = (u16, Vec<u8>);

/// Reads all parameters and appends them in the order of their keys, as RFC
/// 9460, 2.2 wants them.
pub(super) fn read(fields: &mut Fields<'_>, out: &mut Vec<u8>) -> Outcome<()> {
    let first = fields.tokens.first().copied();
    let mut parameters: Vec<Parameter> = Vec::with_capacity(fields.tokens.len().min(16));
    while !fields.tokens.is_empty() {
        parameters.push(fields.parse("parameter", parse_parameter)?);
    }
    parameters.sort_by_key(|&(key, _)| key);
    let start = out.len();
    for (key, value) in &parameters {
        let len = u16::try_from(value.len())
            .map_err(|_| fields.wrong("a parameter over 65535 octets", "at most 65535 octets"))?;
        out.extend_from_slice(&key.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(value);
    }
    check(&out[start..]).map_err(|fault| match first {
        Some(token) => fault.at(token.line, token.column),
        None => fault,
    })
}

fn parse_parameter(raw: &[u8]) -> Outcome<Parameter> {
    let (name, written) = match raw.iter().position(|&octet| octet == b'=') {
        Some(at) => (&raw[..at], Some(&raw[at + 1..])),
        None => (raw, None),
    };
    let key = parse_key(name)?;
    let mut octets = Vec::new();
    if let Some(written) = written {
        let bare = written.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        text::push_octets(bare.unwrap_or(written), true, &mut octets)?;
    }
    // RFC 9460, 2.1: a key written by number has its value in wire form.
    let by_number = !KEYS.iter().any(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    if by_number {
        return Ok((key, octets));
    }
    let value = encode(key, &octets).map_err(|mut fault| {
        fault.what = format!("{} in the parameter {}", fault.what, show(raw));
        fault
    })?;
    Ok((key, value))
}

fn parse_key(name: &[u8]) -> Outcome<u16> {
    let known = KEYS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    if let Some(&(_, key)) = known {
        return Ok(key);
    }
    let digits =
        name.strip_prefix(b"key").filter(|digits| digits.len() == 1 || !digits.starts_with(b"0"));
    // RFC 9460, 14.3.2: 65535 is reserved as the invalid key.
    let key = digits.and_then(text::parse_digits).filter(|&number| number < 65_535);
    key.map(|key| key as u16).ok_or_else(|| {
        let names: Vec<_> = KEYS.iter().map(|&(known, _)| known).collect();
        let what = format!("{} is not a parameter key", show(name));
        fault(what, format!("{}, or key and a number up to 65534", names.join(", ")))
    })
}

/// The wire form of a value whose key is known by name.
fn encode(key: u16, octets: &[u8]) -> Outcome<Vec<u8>> {
    let mut value = Vec::new();
    if octets.is_empty() && matches!(key, MANDATORY | ALPN | PORT..=IPV6HINT | TLS_GROUPS) {
        return Err(fault("no value", bad_value(key).accepted));
    }
    match key {
        MANDATORY => {
            let mut keys = Vec::new();
            for item in split_list(octets)? {
                keys.push(parse_key(&item)?);
            }
            keys.sort_unstable();
            value.extend(keys.iter().flat_map(|key| key.to_be_bytes()));
        }
        ALPN => {
            for item in split_list(octets)? {
                text::push_string(&item, false, &mut value)?;
            }
        }
        PORT => {
            let port = text::parse_number(octets, u16::MAX.into(), "port")?;
            value.extend_from_slice(&(port as u16).to_be_bytes());
        }
        IPV4HINT => {
            for item in octets.split(|&octet| octet == b',') {
                value.extend_from_slice(&text::parse_ipv4(item)?);
            }
        }
        IPV6HINT => {
            for item in octets.split(|&octet| octet == b',') {
                value.extend_from_slice(&text::parse_ipv6(item)?);
            }
        }
        ECH => {
            let mut digits = Digits::new(Base::Base64);
            digits.push(octets, &mut value)?;
            digits.finish()?;
        }
        TLS_GROUPS => {
            for item in octets.split(|&octet| octet == b',') {
                let group = text::parse_number(item, u16::MAX.into(), "group")?;
                value.extend_from_slice(&(group as u16).to_be_bytes());
            }
        }
        _ => value.extend_from_slice(octets),
    }
    Ok(value)
}

/// A list with commas; `\,` and `\\` stand for themselves (RFC 9460, A.1).
fn split_list(octets: &[u8]) -> Outcome<Vec<Vec<u8>>> {
    let mut items = vec![Vec::new()];
    let mut rest = octets.iter();
    while let Some(&octet) = rest.next() {
        let last = items.len() - 1;
        match octet {
            b',' => items.push(Vec::new()),
            b'\\' => match rest.next() {
                Some(&escaped @ (b',' | b'\\')) => items[last].push(escaped),
                _ => {
                    return Err(fault(
                        "a lone `\\`",
                        "`\\\\,` for a comma, `\\\\\\\\` for a backslash",
                    ));
                }
            },
            _ => items[last].push(octet),
        }
    }
    if items.iter().any(Vec::is_empty) {
        return Err(fault("an empty value", "one or more values with commas between"));
    }
    Ok(items)
}

/// Checks parameters in wire form: ascending keys, values that fit their
/// keys, and all mandatory ones present.
pub(super) fn check(mut rest: &[u8]) -> Outcome<()> {
    let cut = || fault("a parameter that is cut short", "key, length and value for each parameter");
    let mut mandatory: &[u8] = &[];
    let mut last: Option<u16> = None;
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let Some((&[k0, k1, l0, l1], tail)) = rest.split_first_chunk() else { return Err(cut()) };
        let (key, len) = (u16::from_be_bytes([k0, k1]), u16::from_be_bytes([l0, l1]));
        let (value, tail) = tail.split_at_checked(usize::from(len)).ok_or_else(cut)?;
        if last == Some(key) {
            let what = format!("the parameter {} twice", key_name(key));
            return Err(fault(what, "each parameter once (RFC 9460, 2.1)"));
        }
        if last > Some(key) {
            return Err(fault("parameters out of order", "ascending keys (RFC 9460, 2.2)"));
        }
        check_value(key, value)?;
        if key == MANDATORY {
            mandatory = value;
        }
        keys.push(key);
        last = Some(key);
        rest = tail;
    }
    for pair in mandatory.chunks_exact(2) {
        let key = u16::from_be_bytes([pair[0], pair[1]]);
        if keys.binary_search(&key).is_err() {
            let what = format!("the mandatory parameter {} is not there", key_name(key));
            return Err(fault(what, "a parameter for each key of `mandatory` (RFC 9460, 8)"));
        }
    }
    if keys.binary_search(&NO_DEFAULT_ALPN).is_ok() && keys.binary_search(&ALPN).is_err() {
        return Err(fault(
            "`no-default-alpn` without `alpn`",
            "`alpn` beside it (RFC 9460, 7.1.1)",
        ));
    }
    Ok(())
}

fn check_value(key: u16, value: &[u8]) -> Outcome<()> {
    let pairs: Vec<u16> =
        value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let good = match key {
        MANDATORY => {
            let ascending = pairs.windows(2).all(|pair| pair[0] < pair[1]);
            ascending
                && value.len().is_multiple_of(2)
                && pairs.first().is_some_and(|&key| key != MANDATORY)
        }
        ALPN => !value.is_empty() && are_strings(value),
        NO_DEFAULT_ALPN | OHTTP => value.is_empty(),
        PORT => value.len() == 2,
        IPV4HINT => !value.is_empty() && value.len().is_multiple_of(4),
        IPV6HINT => !value.is_empty() && value.len().is_multiple_of(16),
        TLS_GROUPS => !value.is_empty() && value.len().is_multiple_of(2),
        ECH => !value.is_empty(),
        _ => true,
    };
    if good { Ok(()) } else { Err(bad_value(key)) }
}

#[cold]
fn bad_value(key: u16) -> Box<Fault> {
    let accepted = match key {
        MANDATORY => "other keys, each once",
        ALPN => "protocol names of 1 to 255 octets",
        NO_DEFAULT_ALPN | OHTTP => "no value",
        PORT => "a number from 0 to 65535",
        IPV4HINT => "IPv4 addresses with commas between",
        IPV6HINT => "IPv6 addresses with commas between",
        ECH => "base 64 digits",
        TLS_GROUPS => "numbers from 0 to 65535 with commas between",
        _ => "a value",
    };
    fault(format!("a wrong value for the parameter {}", key_name(key)), accepted)
}

fn are_strings(mut rest: &[u8]) -> bool {
    while let Some((&len, tail)) = rest.split_first() {
        match tail.split_at_checked(usize::from(len)) {
            Some((_, tail)) if len > 0 => rest = tail,
            _ => return false,
        }
    }
    true
}

fn key_name(key: u16) -> String {
    match KEYS.iter().find(|&&(_, known)| known == key) {
        Some((name, _)) => format!("`{name}`"),
        None => format!("`key{key}`"),
    }
}
