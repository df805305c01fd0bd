//! What commands print.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};

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
    /// For a picture with colours, all whose texts are [`tame`].
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
        let speaks = |octet: &u8| octet.is_ascii_control() && !b"\n\t".contains(octet);
        if self.is_painted || !octets.iter().any(speaks) {
            return self.attempt(octets.len(), |out| out.write(octets));
        }
        let tamed: Vec<u8> =
            octets.iter().map(|octet| if speaks(octet) { b'?' } else { *octet }).collect();
        self.attempt(octets.len(), |out| out.write(&tamed))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), |out| out.flush())
    }
}

/// A text of several lines without what would speak to a terminal.
pub fn tame(text: &str) -> Cow<'_, str> {
    let speaks = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    match text.contains(speaks) {
        true => text.replace(speaks, "?").into(),
        false => text.into(),
    }
}

/// The same for everything in a value that is shown to people, where each text
/// is part of one line.
pub fn tame_value(value: &Value) -> Value {
    match value {
        Value::String(text) => tame(text).replace(['\n', '\t'], " ").into(),
        Value::Array(values) => values.iter().map(tame_value).collect(),
        Value::Object(pairs) => {
            let pairs =
                pairs.iter().map(|(key, value)| (tame(key).into_owned(), tame_value(value)));
            Value::Object(pairs.collect())
        }
        other => other.clone(),
    }
}

/// What did not work, where it is looked for: machines that read JSON find it
/// there, as the API says it.
pub fn failed(is_json: bool, why: String) -> Result<u8, String> {
    if !is_json {
        return Err(why);
    }
    writeln!(Output::default(), "{}", json!({ "error": why.trim_end() })).map_err(explain)?;
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
    fn what_is_shown_cannot_speak_to_a_terminal() {
        assert_eq!(tame("a\u{1b}[2Jb\u{9b}c\r\n\td"), "a?[2Jb?c?\n\td");
        assert!(matches!(tame("plain · ✓"), Cow::Borrowed(_)));
        let value = json!({ "a\u{1b}": ["x\ny", 1, { "b": "\u{7}" }] });
        assert_eq!(tame_value(&value), json!({ "a?": ["x y", 1, { "b": "?" }] }));
    }
}
