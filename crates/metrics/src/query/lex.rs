//! Words of a query, with their places.

use super::Fault;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name or a keyword.
    Word(String),
    Number(f64),
    /// `5m`, `1h30m`.
    Millis(u64),
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    pub offset: usize,
    pub token: Token,
}

/// Longer ones before their beginnings.
const SIGNS: [&str; 24] = [
    "=~", "==", "=", "!~", "!=", "<=", "<", ">=", ">", "+", "-", "*", "/", "%", "^", "(", ")", "{",
    "}", "[", "]", ",", ":", "@",
];

pub fn lex(query: &str) -> Result<Vec<Placed>, Fault> {
    let mut tokens = Vec::new();
    let mut rest = query;
    loop {
        rest = rest.trim_start();
        if rest.starts_with('#') {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        let offset = query.len() - rest.len();
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let (token, len) = match first {
            '"' | '\'' | '`' => text(rest, first).map_err(|what| Fault { offset, what })?,
            _ if starts_number(rest) => number(rest).map_err(|what| Fault { offset, what })?,
            _ if first.is_ascii_alphabetic()
                || first == '_'
                || first == ':' && is_name(&rest[1..]) =>
            {
                word(rest)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => return Err(Fault { offset, what: format!("`{first}` is not PromQL") }),
            },
        };
        tokens.push(Placed { offset, token });
        rest = &rest[len..];
    }
}

fn is_name(rest: &str) -> bool {
    rest.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
}

fn word(rest: &str) -> (Token, usize) {
    let is_inside = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let end = rest.find(|letter| !is_inside(letter)).unwrap_or(rest.len());
    let word = &rest[..end];
    let token = match word.to_ascii_lowercase().as_str() {
        "inf" => Token::Number(f64::INFINITY),
        "nan" => Token::Number(f64::NAN),
        _ => Token::Word(word.to_owned()),
    };
    (token, end)
}

fn starts_number(rest: &str) -> bool {
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    rest.starts_with(|letter: char| letter.is_ascii_digit())
}

/// A number or a duration.
fn number(rest: &str) -> Result<(Token, usize), String> {
    let bytes = rest.as_bytes();
    let is_hex = bytes.len() > 1 && bytes[0] == b'0' && bytes[1].eq_ignore_ascii_case(&b'x');
    let mut end = 0;
    while let Some(octet) = bytes.get(end) {
        let is_sign = matches!(octet, b'+' | b'-')
            && !is_hex
            && bytes[end - 1].eq_ignore_ascii_case(&b'e')
            && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        if !octet.is_ascii_alphanumeric() && *octet != b'.' && !is_sign {
            break;
        }
        end += 1;
    }
    let text = &rest[..end];
    if let Some(millis) = duration(text) {
        return Ok((Token::Millis(millis?), end));
    }
    let value = match is_hex {
        true => u64::from_str_radix(&text[2..], 16).ok().map(|value| value as f64),
        false => text.parse().ok(),
    };
    let value = value.ok_or_else(|| format!("`{text}` is neither a number nor a duration"))?;
    Ok((Token::Number(value), end))
}

/// Milliseconds of a duration; `None` if it is none.
fn duration(text: &str) -> Option<Result<u64, String>> {
    const UNITS: [(&str, u64); 7] = [
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
        ("w", 7 * 86_400_000),
        ("y", 365 * 86_400_000),
    ];
    let (mut rest, mut sum) = (text, Some(0u64));
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).filter(|end| *end > 0)?;
        let behind = &rest[digits..];
        let (unit, millis) = UNITS.iter().find(|(unit, _)| {
            // `ms` before `m`; else what follows is the next number.
            behind.strip_prefix(unit).is_some_and(|next| {
                next.is_empty() || next.starts_with(|letter: char| letter.is_ascii_digit())
            })
        })?;
        // Larger units stand first, each once.
        if *millis >= last {
            return None;
        }
        last = *millis;
        let part = rest[..digits].parse::<u64>().ok().and_then(|count| count.checked_mul(*millis));
        sum = sum.zip(part).and_then(|(sum, part)| sum.checked_add(part));
        rest = &behind[unit.len()..];
    }
    // What could not be subtracted from any time is no duration either.
    let sum = sum.filter(|sum| *sum <= i64::MAX as u64 / 4);
    Some(sum.ok_or_else(|| format!("`{text}` is too long")))
}

fn text(rest: &str, quote: char) -> Result<(Token, usize), String> {
    let mut value = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((index, letter)) = letters.next() {
        match letter {
            _ if letter == quote => return Ok((Token::Text(value), index + 1)),
            '\n' if quote != '`' => break,
            '\\' if quote != '`' => {
                let Some((_, escaped)) = letters.next() else { break };
                value.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    '\\' | '"' | '\'' => escaped,
                    _ => return Err(format!("`\\{escaped}` is not supported in a text")),
                });
            }
            _ => value.push(letter),
        }
    }
    Err("a text does not end".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn one(text: &str) -> Result<Token, String> {
        let tokens = lex(text).map_err(|fault| fault.to_string())?;
        assert_eq!(tokens.len(), 1, "{tokens:?}");
        Ok(tokens[0].token.clone())
    }

    #[test]
    fn numbers_and_durations() {
        for (text, value) in
            [("1", 1.0), ("1.5e-3", 0.0015), (".5", 0.5), ("0x1F", 31.0), ("2e2", 200.0)]
        {
            assert_eq!(one(text), Ok(Token::Number(value)), "{text}");
        }
        for (text, millis) in
            [("5m", 300_000), ("1h30m", 5_400_000), ("250ms", 250), ("1m1ms", 60_001)]
        {
            assert_eq!(one(text), Ok(Token::Millis(millis)), "{text}");
        }
        for text in ["5x", "1m1h", "1m1m", "1..2", "0x", "99999999999999y"] {
            assert!(one(text).is_err(), "{text}");
        }
    }

    #[test]
    fn texts_and_words() {
        assert_eq!(one(r#""a\"b\\\n""#), Ok(Token::Text("a\"b\\\n".into())));
        assert_eq!(one(r"`a\d`"), Ok(Token::Text(r"a\d".into())));
        assert_eq!(one("job:errors"), Ok(Token::Word("job:errors".into())));
        assert_eq!(one("a # comment"), Ok(Token::Word("a".into())));
        assert!(one("\"a").is_err() && one("§").is_err());
    }
}
