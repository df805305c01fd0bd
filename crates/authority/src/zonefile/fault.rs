//! One thing wrong with an entry, before it becomes a noted problem.

use std::fmt::Write;

/// Characters of a token that a message quotes at the most.
const SHOWN_MAX: usize = 40;

/// What is wrong and what would be accepted. `line` is 0 until the code that
/// knows the token fills in the place.
#[derive(Debug)]
pub(super) struct Fault {
    pub line: u32,
    pub column: u32,
    pub what: String,
    pub accepted: String,
}

/// Boxed, so that the way without problems moves one word.
pub(super) type Outcome<T> = Result<T, Box<Fault>>;

/// A fault whose place is not known yet.
#[cold]
pub(super) fn fault(what: impl Into<String>, accepted: impl Into<String>) -> Box<Fault> {
    Box::new(Fault { line: 0, column: 0, what: what.into(), accepted: accepted.into() })
}

impl Fault {
    /// Fills in the place unless a closer one is known.
    pub fn at(mut self: Box<Self>, line: u32, column: u32) -> Box<Self> {
        if self.line == 0 {
            (self.line, self.column) = (line, column);
        }
        self
    }
}

/// A token as messages quote it: in backquotes, on one line, shortened.
#[cold]
pub(super) fn show(raw: &[u8]) -> String {
    let mut shown = String::from("`");
    let text = String::from_utf8_lossy(&raw[..raw.len().min(4 * SHOWN_MAX)]);
    for (count, character) in text.chars().enumerate() {
        if count == SHOWN_MAX {
            shown.push('…');
            break;
        }
        if character.is_control() {
            let _ = write!(shown, "\\{:03}", character as u32);
        } else if base::text::is_hidden(character) {
            shown.push('?');
        } else {
            shown.push(character);
        }
    }
    shown.push('`');
    shown
}
