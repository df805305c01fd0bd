//! `$GENERATE range lhs [ttl] [class] type rhs`, as BIND has it.
//!
//! Each round writes the entry it stands for and reads it like any other, so
//! every type and every check works in generated records too.

use super::fault::{Outcome, fault, show};
use super::session::{Entry, Session, is_class};
use super::token::Lexer;
use super::{GENERATED_MAX, GENERATED_TOTAL_MAX, text};
use std::io::Write;

/// Widest field of `${offset,width,radix}`: no name holds more digits.
const WIDTH_MAX: u64 = 255;

const SYNTAX: &str = "$GENERATE start-stop[/step] owner [TTL] [class] type data";

impl Session<'_> {
    /// Reads the directive and adds its records. The first problem ends it:
    /// the other rounds would only repeat it.
    pub fn generate(&mut self, entry: Entry<'_>) -> Outcome<()> {
        let Entry { text, tokens, .. } = entry;
        let last = tokens[tokens.len() - 1];
        let short = || {
            let what = format!("$GENERATE ends after {}", show(last.raw(text)));
            fault(what, SYNTAX).at(last.line, last.column)
        };
        let [_, range_token, lhs, rest @ ..] = tokens else { return Err(short()) };
        let range = parse_range(range_token.raw(text))
            .map_err(|fault| fault.at(range_token.line, range_token.column))?;
        let is_head = |raw: &[u8]| {
            raw.first().is_some_and(u8::is_ascii_digit) || is_class(raw).unwrap_or(true)
        };
        let head_len = rest.iter().position(|token| !is_head(token.raw(text))).ok_or_else(short)?;
        let (head, data) = rest.split_at(head_len + 1);
        if data.is_empty() {
            return Err(short());
        }
        self.generated_count += range.count();
        if self.generated_count > GENERATED_TOTAL_MAX {
            let what = "too many generated records in this zone";
            let accepted = format!("at most {GENERATED_TOTAL_MAX} in a zone");
            return Err(fault(what, accepted).at(range_token.line, range_token.column));
        }

        let mut middle = Vec::new();
        for token in head {
            middle.push(b' ');
            middle.extend_from_slice(token.raw(text));
        }
        middle.push(b' ');
        let data = join_data(text, data);
        let template = Template { lhs: lhs.raw(text), middle: &middle, rhs: &data };
        // An owner left out after the directive is the one before it.
        let outer = (self.room.owner.clone(), self.last_owner, self.pinned);
        let directive = tokens[0];
        self.pinned = Some((directive.line, directive.column));
        let outcome = self.generate_all(&range, &template);
        (self.room.owner, self.last_owner, self.pinned) = outer;
        outcome.map_err(|mut fault| {
            (fault.line, fault.column) = (directive.line, directive.column);
            fault
        })
    }

    fn generate_all(&mut self, range: &Range, template: &Template<'_>) -> Outcome<()> {
        let mut line = std::mem::take(&mut self.room.generated);
        let mut tokens = self.room.token_lists.pop().unwrap_or_default();
        let mut outcome = Ok(());
        let mut value = range.start;
        while value <= range.stop && outcome.is_ok() {
            line.clear();
            outcome = template.write(value, &mut line).and_then(|()| {
                let mut lexer = Lexer::new(&line);
                let entry = lexer.next_entry(&mut tokens);
                match (lexer.fault.take(), entry) {
                    (Some(fault), _) => Err(fault),
                    (None, Some(false)) => {
                        let entry = Entry { text: &line, tokens: &tokens, starts_blank: false };
                        self.read_record(entry)
                    }
                    _ => Err(fault("$GENERATE without an owner", SYNTAX)),
                }
            });
            if let Err(fault) = &mut outcome {
                fault.what = format!("{} (in the round for {value})", fault.what);
            }
            value += range.step;
        }
        tokens.clear();
        self.room.token_lists.push(tokens);
        self.room.generated = line;
        outcome
    }
}

/// The data as it was written. One quoted string stands for its content, as
/// BIND reads it: several words, or `\"` for quotes of their own.
fn join_data(text: &[u8], tokens: &[super::token::Token]) -> Vec<u8> {
    let mut data = Vec::new();
    if let [token] = tokens
        && token.quoted
    {
        let mut rest = token.raw(text);
        while let Some((&octet, tail)) = rest.split_first() {
            (rest, _) = match (octet, tail.first()) {
                (b'\\', Some(b'"')) => (&tail[1..], data.push(b'"')),
                (b'\\', Some(&other)) => (&tail[1..], data.extend_from_slice(&[b'\\', other])),
                // A line end in the string only separates words.
                (b'\n', _) => (tail, data.push(b' ')),
                _ => (tail, data.push(octet)),
            };
        }
        return data;
    }
    for token in tokens {
        let quote: &[u8] = if token.quoted { b"\"" } else { b"" };
        data.extend_from_slice(quote);
        data.extend_from_slice(token.raw(text));
        data.extend_from_slice(quote);
        data.push(b' ');
    }
    data
}

struct Range {
    start: u64,
    stop: u64,
    step: u64,
}

impl Range {
    fn count(&self) -> u64 {
        (self.stop - self.start) / self.step + 1
    }
}

fn parse_range(raw: &[u8]) -> Outcome<Range> {
    let wrong = |reason: &str| {
        let accepted = format!(
            "start-stop or start-stop/step with numbers up to {}, at most {GENERATED_MAX} records",
            i32::MAX
        );
        fault(format!("the range {} {reason}", show(raw)), accepted)
    };
    let mut halves = raw.splitn(2, |&octet| octet == b'/');
    let bounds = halves.next().unwrap_or(&[]);
    let step = halves.next().unwrap_or(b"1");
    let dash = bounds.iter().position(|&octet| octet == b'-');
    let (start, stop) = bounds.split_at(dash.ok_or_else(|| wrong("has no `-`"))?);
    let number = |digits: &[u8]| {
        let number = text::parse_digits(digits).filter(|&number| number <= i32::MAX as u64);
        number.ok_or_else(|| wrong("has a part that is no number in range"))
    };
    let range = Range { start: number(start)?, stop: number(&stop[1..])?, step: number(step)? };
    if range.step == 0 || range.start > range.stop {
        return Err(wrong("goes nowhere"));
    }
    if range.count() > GENERATED_MAX {
        return Err(wrong(&format!("makes {} records", range.count())));
    }
    Ok(range)
}

/// What every round writes, with `$` for its number in `lhs` and `rhs`.
struct Template<'a> {
    lhs: &'a [u8],
    middle: &'a [u8],
    rhs: &'a [u8],
}

impl Template<'_> {
    fn write(&self, value: u64, out: &mut Vec<u8>) -> Outcome<()> {
        substitute(self.lhs, value, out)?;
        out.extend_from_slice(self.middle);
        substitute(self.rhs, value, out)
    }
}

/// Replaces `$` and `${offset,width,radix}`. `\$` and `$$` are a dollar.
fn substitute(template: &[u8], value: u64, out: &mut Vec<u8>) -> Outcome<()> {
    let mut rest = template;
    while let Some((&octet, tail)) = rest.split_first() {
        rest = tail;
        match (octet, tail.first()) {
            (b'\\', Some(&escaped)) => {
                out.extend_from_slice(&[b'\\', escaped]);
                rest = &tail[1..];
            }
            (b'$', Some(b'$')) => {
                out.extend_from_slice(b"\\$");
                rest = &tail[1..];
            }
            (b'$', Some(b'{')) => {
                let end = tail.iter().position(|&octet| octet == b'}').ok_or_else(|| {
                    fault(
                        format!(
                            "{} is never closed",
                            show(&template[template.len() - tail.len() - 1..])
                        ),
                        "`}` after `${`",
                    )
                })?;
                write_number(&tail[1..end], value, out)?;
                rest = &tail[end + 1..];
            }
            (b'$', _) => drop(write!(out, "{value}")),
            _ => out.push(octet),
        }
    }
    Ok(())
}

/// `modifier` is what stands inside the braces.
fn write_number(modifier: &[u8], value: u64, out: &mut Vec<u8>) -> Outcome<()> {
    let wrong = || {
        let what = format!("the modifier `${{{}}}`", show(modifier).trim_matches('`'));
        fault(
            what,
            "${offset[,width[,radix]]} with a width up to 255 and a radix of d, o, x, X, n, N",
        )
    };
    let mut parts = modifier.split(|&octet| octet == b',');
    let (sign, digits) = match parts.next().unwrap_or(&[]) {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    let offset = text::parse_digits(digits).filter(|&offset| offset <= i32::MAX as u64);
    let width = parts.next().map_or(Some(0), text::parse_digits);
    let width = width.filter(|&width| width <= WIDTH_MAX).ok_or_else(wrong)? as usize;
    let radix = parts.next().unwrap_or(b"d");
    if parts.next().is_some() {
        return Err(wrong());
    }
    let number = value as i64 + sign * offset.ok_or_else(wrong)? as i64;
    if number < 0 && radix != b"d" {
        let what = format!("{number} is below 0");
        return Err(fault(what, "an offset that keeps the number at 0 or above"));
    }
    match radix {
        b"d" => drop(write!(out, "{number:0width$}")),
        b"o" => drop(write!(out, "{number:0width$o}")),
        b"x" => drop(write!(out, "{number:0width$x}")),
        b"X" => drop(write!(out, "{number:0width$X}")),
        b"n" => write_nibbles(number as u64, width, b"0123456789abcdef", out),
        b"N" => write_nibbles(number as u64, width, b"0123456789ABCDEF", out),
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Hexadecimal digits from the lowest with dots between, as `ip6.arpa` has
/// them; the width counts the dots.
fn write_nibbles(mut number: u64, width: usize, digits: &[u8; 16], out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(digits[(number & 0xf) as usize]);
        number >>= 4;
        if number == 0 && out.len() - start >= width {
            return;
        }
        out.push(b'.');
        if number == 0 && out.len() - start >= width {
            return;
        }
    }
}
