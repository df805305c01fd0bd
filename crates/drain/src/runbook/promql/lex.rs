//! The words and signs of PromQL.

use std::fmt;

use super::Fault;
use crate::time::Millis;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    /// A number or a duration.
    Number(&'a str),
    /// With its quotes.
    Text(&'a str),
    Sign(&'a str),
}

impl<'a> Token<'a> {
    /// As it is written.
    pub(super) fn text(self) -> &'a str {
        let (Token::Word(text) | Token::Number(text) | Token::Text(text) | Token::Sign(text)) =
            self;
        text
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

const TWO_LETTER_SIGNS: [&str; 6] = ["==", "!=", "<=", ">=", "=~", "!~"];
const SIGNS: &str = "+-*/%^<>=(){}[],:@";

/// Takes a query apart, with the byte each token begins at.
pub(super) fn lex(query: &str) -> Result<Vec<(usize, Token<'_>)>, Fault> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(first) = query[at..].chars().next() {
        let rest = &query[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        if first == '#' {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        // In brackets `[5m:1m]` a colon stands for itself, elsewhere it begins
        // the name of a recording rule.
        let in_span = matches!(tokens.last(), Some((_, Token::Number(_))));
        let length = if first.is_ascii_digit() || is_fraction(rest) {
            number_length(rest)
        } else if first.is_ascii_alphabetic() || first == '_' || (first == ':' && !in_span) {
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')))
                .unwrap_or(rest.len())
        } else if matches!(first, '"' | '\'' | '`') {
            text_length(rest, first).ok_or_else(|| Fault {
                offset: at,
                what: "a text has no end".into(),
                remedy: format!("add `{first}` at its end"),
            })?
        } else if TWO_LETTER_SIGNS.iter().any(|sign| rest.starts_with(sign)) {
            2
        } else if SIGNS.contains(first) {
            1
        } else {
            return Err(Fault {
                offset: at,
                what: format!("`{first}` is no sign of PromQL"),
                remedy: "accepted: letters, digits, quotes, and one of `+-*/%^<>=(){}[],:@`".into(),
            });
        };
        let text = &rest[..length];
        tokens.push((
            at,
            match first {
                '"' | '\'' | '`' => Token::Text(text),
                _ if first.is_ascii_digit() || is_fraction(rest) => Token::Number(text),
                _ if first.is_ascii_alphabetic() || first == '_' => Token::Word(text),
                ':' if !in_span => Token::Word(text),
                _ => Token::Sign(text),
            },
        ));
        at += length;
    }
    Ok(tokens)
}

fn is_fraction(rest: &str) -> bool {
    let mut octets = rest.bytes();
    octets.next() == Some(b'.') && octets.next().is_some_and(|octet| octet.is_ascii_digit())
}

/// Digits, letters of units and of hexadecimals, and a sign behind an exponent.
fn number_length(rest: &str) -> usize {
    let octets = rest.as_bytes();
    let mut length = 1;
    while let Some(octet) = octets.get(length) {
        let exponent = matches!(octets[length - 1], b'e' | b'E') && !rest.starts_with("0x");
        let signed = matches!(octet, b'+' | b'-') && exponent;
        if !(octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'_') || signed) {
            break;
        }
        length += 1;
    }
    length
}

/// How long a text is, both quotes included.
fn text_length(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            '\n' if quote != '`' => return None,
            _ if letter == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// A number, or a duration as its seconds.
pub(super) fn number(text: &str) -> Option<f64> {
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as f64),
        None => digits.parse().ok().or_else(|| duration(text).map(Millis::as_secs_f64)),
    }
}

/// A duration, or a number of seconds.
pub(super) fn millis(text: &str) -> Option<Millis> {
    duration(text).or_else(|| number(text).map(|secs| Millis((secs * 1000.0) as u64)))
}

/// `1h30m`: units of PromQL, the largest first, each once.
fn duration(text: &str) -> Option<Millis> {
    const UNITS: [(&str, u64); 7] = [
        ("y", 365 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    let (mut rest, mut next, mut total) = (text, 0, Millis::ZERO);
    while !rest.is_empty() {
        let unit_at = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (digits, behind) = rest.split_at(unit_at);
        let unit_length = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let unit = UNITS.iter().position(|(unit, _)| *unit == &behind[..unit_length])?;
        if unit < next {
            return None;
        }
        let count: u64 = digits.parse().ok()?;
        total = total + Millis(count.saturating_mul(UNITS[unit].1));
        (rest, next) = (&behind[unit_length..], unit + 1);
    }
    (next > 0).then_some(total)
}
