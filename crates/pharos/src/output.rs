//! What commands print.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};

use base::text::{is_hidden, many_lines, one_line};
use serde_json::{Value, json};

/// Standard output, whose reader may leave early, as in `| head`. What is
/// written after that goes nowhere: the exit code is still worth having.
///
/// Nothing that is printed speaks to the terminal: a name or a reason could
/// otherwise hide lines, or make others up.
#[derive(Debug, Default)]
pub struct Output {
    is_closed: bool,
    is_painted: bool,
}

impl Output {
    /// For a picture with colours, all whose texts are fit to be shown.
    pub fn painted() -> Output {
        Output { is_painted: true, ..Output::default() }
    }

    /// Does `write` unless nobody reads any more, which is no error.
    fn attempt<T>(
        &mut self,
        otherwise: T,
        write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_closed {
            return Ok(otherwise);
        }
        match write(&mut io::stdout().lock()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(otherwise)
            }
            result => result,
        }
    }
}

impl Write for Output {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let shown = match self.is_painted {
            true => Cow::Borrowed(octets),
            false => shown(octets),
        };
        // All of it: a rest could begin within a character.
        self.attempt(octets.len(), |out| out.write_all(&shown).map(|()| octets.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), |out| out.flush())
    }
}

/// Lines as they are printed, without what would speak to a terminal or reorder
/// what stands beside it.
fn shown(octets: &[u8]) -> Cow<'_, [u8]> {
    match String::from_utf8_lossy(octets) {
        Cow::Borrowed(text) => match many_lines(text) {
            Cow::Borrowed(text) => text.as_bytes().into(),
            Cow::Owned(text) => text.into_bytes().into(),
        },
        Cow::Owned(text) => many_lines(&text).into_owned().into_bytes().into(),
    }
}

/// A value that is shown to people, where each text is part of one line.
pub fn tame_value(value: &Value) -> Value {
    match value {
        Value::String(text) => one_line(text).into(),
        Value::Array(values) => values.iter().map(tame_value).collect(),
        Value::Object(pairs) => {
            let pairs =
                pairs.iter().map(|(key, value)| (one_line(key).into_owned(), tame_value(value)));
            Value::Object(pairs.collect())
        }
        other => other.clone(),
    }
}

/// A value as JSON for machines, which may be read on a terminal: what is hidden
/// is written as `\u202e`, so it is the same value.
pub fn json(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        match is_hidden(letter) {
            true => {
                let units = &mut [0; 2];
                for unit in letter.encode_utf16(units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => text.push(letter),
        }
    }
    text
}

/// Standard error as the log has it: each record is one line, whatever others
/// wrote into it.
#[derive(Debug)]
pub struct Log {
    /// Colours are sequences of control characters. The subscriber escapes those
    /// in what is logged.
    pub is_painted: bool,
}

impl Write for Log {
    /// A record comes whole, with the end of its line.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let line = log_line(&String::from_utf8_lossy(record), self.is_painted);
        io::stderr().lock().write_all(line.as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

fn log_line(record: &str, is_painted: bool) -> String {
    let record = record.strip_suffix('\n').unwrap_or(record);
    let line = match is_painted {
        true => record.split('\u{1b}').map(one_line).collect::<Vec<_>>().join("\u{1b}"),
        false => one_line(record).into_owned(),
    };
    line + "\n"
}

/// What did not work, where it is looked for: machines that read JSON find it
/// there, as the API says it.
pub fn failed(is_json: bool, why: String) -> Result<u8, String> {
    if !is_json {
        return Err(why);
    }
    let said = json(&json!({ "error": why.trim_end() }));
    writeln!(Output::default(), "{said}").map_err(explain)?;
    Ok(crate::EXIT_FAILED)
}

/// Why something could not be printed.
pub fn explain(error: io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_cannot_reorder_or_break_the_line_it_stands_in() {
        let entry = json!({ "reason": "ok\u{202e}\u{2028}forged", "by": ["a\u{2066}b"] });
        assert_eq!(tame_value(&entry), json!({ "reason": "ok? forged", "by": ["a?b"] }));
        assert_eq!(&*shown("file\u{202e}\n\tname".as_bytes()), b"file?\n\tname");
    }

    #[test]
    fn json_for_machines_keeps_what_was_typed() {
        let entry = json!({ "reason": "ok\u{202e}\u{e0041}\n" });
        let text = json(&entry);
        assert_eq!(text, r#"{"reason":"ok\u202e\udb40\udc41\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), entry);
    }

    #[test]
    fn a_record_of_the_log_is_one_line() {
        let forged = "12:00 WARN bad\n12:01 INFO over\u{2028}\u{202e}x\u{1b}[2J\n";
        assert_eq!(log_line(forged, false), "12:00 WARN bad 12:01 INFO over ?x?[2J\n");
        let painted = "\u{1b}[33m WARN\u{1b}[0m bad\nforged\n";
        assert_eq!(log_line(painted, true), "\u{1b}[33m WARN\u{1b}[0m bad forged\n");
    }

    #[test]
    fn what_is_shown_cannot_speak_to_a_terminal() {
        assert_eq!(&*shown("a\u{1b}[2Jb\u{9b}c\r\n\td".as_bytes()), b"a?[2Jb?c?\n\td");
        assert!(matches!(shown("plain · ✓".as_bytes()), Cow::Borrowed(_)));
        let value = json!({ "a\u{1b}": ["x\ny", 1, { "b": "\u{7}" }] });
        assert_eq!(tame_value(&value), json!({ "a?": ["x y", 1, { "b": "?" }] }));
    }
}
