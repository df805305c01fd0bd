//! Why something could not be turned, in the four ways that matter to a run.

use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Each text says what was tried, on what, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It may work in a moment: nobody answers, or not in time. Whether a write
    /// arrived is not known.
    Transient(String),
    /// It will not be done as long as nobody changes something: fenced off, not
    /// allowed, or nothing that the knob takes.
    Refused(String),
    /// There is no such knob, driver or action.
    Unknown(String),
    /// The other side says what nobody understands, or a command failed.
    Broken(String),
}

impl Error {
    /// Whether the same call can succeed without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Transient(_))
    }

    pub fn message(&self) -> &str {
        match self {
            Error::Transient(text)
            | Error::Refused(text)
            | Error::Unknown(text)
            | Error::Broken(text) => text,
        }
    }

    /// The same, with words before the message.
    pub(crate) fn within(self, place: &str) -> Error {
        let text = format!("{place}: {}", self.message());
        self.with_message(text)
    }

    /// The same without what would break or reorder the line that it is shown in.
    pub(crate) fn in_one_line(self) -> Error {
        let text = base::text::one_line(self.message()).into_owned();
        self.with_message(text)
    }

    fn with_message(self, text: String) -> Error {
        match self {
            Error::Transient(_) => Error::Transient(text),
            Error::Refused(_) => Error::Refused(text),
            Error::Unknown(_) => Error::Unknown(text),
            Error::Broken(_) => Error::Broken(text),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

/// Names in a message, the first few of them.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const LISTED_MAX: usize = 20;
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return "none".into();
    }
    let more = names.len().saturating_sub(LISTED_MAX);
    names.truncate(LISTED_MAX);
    let mut text = names.join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}
