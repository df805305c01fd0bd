//! The words and signs of PromQL.

use std::fmt;

use super::Fault;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    /// A number or a duration.
    Number(&'a str),
    /// With its quotes.
    Text(&'a str),
    Sign(&'a str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Token::Word(text) | Token::Number(text) | Token::Text(text) | Token::Sign(text)) =
            self;
        f.write_str(text)
    }
}

const TWO_LETTER_SIGNS: [&str; 6] = ["==", "!=", "<=", ">=", "=~", "!~"];
const SIGNS: &str = "+-*/%^<>=(){}[],:@";

/// Takes a query apart, with the octet each token begins at.
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

pub(super) fn is_number(text: &str) -> bool {
    let text = text.replace('_', "");
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => text.parse::<f64>().is_ok(),
    }
}

/// `1h30m`: units of PromQL, the largest first, each once.
pub(super) fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 7] = ["y", "w", "d", "h", "m", "s", "ms"];
    let (mut rest, mut next) = (text, 0);
    while !rest.is_empty() {
        let unit_at = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let behind = &rest[unit_at..];
        let unit_length = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let unit = UNITS.iter().position(|unit| *unit == &behind[..unit_length]);
        match unit {
            Some(unit) if unit_at > 0 && unit >= next => next = unit + 1,
            _ => return false,
        }
        rest = &behind[unit_length..];
    }
    next > 0
}
