//! Secrets that were sent, kept out of what is shown.
//!
//! A server, or a proxy before it, may repeat the credentials of a request in an error
//! or a label, and reasons are shown to everybody who may see the status of a run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands in place of a secret.
const HIDDEN: &str = "[redacted]";
/// Secrets that are remembered: those of all targets, and a file may be replaced while
/// requests are under way.
const REMEMBERED_MAX: usize = 256;

/// The secrets that were sent, the newest last.
#[derive(Default)]
pub struct Secrets {
    sent: Mutex<VecDeque<String>>,
}

/// Nothing of them.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl Secrets {
    /// Remembers a secret that is about to be sent.
    pub fn remember(&self, secret: &str) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if secret.is_empty() || sent.iter().any(|known| known == secret) {
            return;
        }
        if sent.len() == REMEMBERED_MAX {
            sent.pop_front();
        }
        sent.push_back(secret.to_owned());
    }

    /// The text without any of them. To be called before a text is cut short: a part of
    /// a secret is not found.
    pub fn redact(&self, text: &str) -> String {
        let forms = self.forms();
        let mut shown = String::with_capacity(text.len());
        let mut hidden_until = 0;
        for (at, letter) in text.char_indices() {
            let found = forms.iter().filter(|form| text[at..].starts_with(form.as_str()));
            let longest = found.map(String::len).max();
            if at >= hidden_until {
                match longest {
                    Some(_) => shown.push_str(HIDDEN),
                    None => shown.push(letter),
                }
            }
            // Two that overlap are hidden as one.
            hidden_until = hidden_until.max(at + longest.unwrap_or(0));
        }
        shown
    }

    /// The start of a text without any of them, in one line, to be shown to people.
    pub fn excerpt(&self, text: &str) -> String {
        crate::excerpt(&self.redact(text))
    }

    pub fn are_in(&self, text: &[u8]) -> bool {
        let text = String::from_utf8_lossy(text);
        self.forms().iter().any(|form| text.contains(form))
    }

    /// As they may come back: as they are, or escaped in JSON or in a URL.
    fn forms(&self) -> Vec<String> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let forms = sent.iter().flat_map(|secret| {
            let json = secret.replace('\\', "\\\\").replace('"', "\\\"");
            let slashes = json.replace('/', "\\/");
            let url = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
            [secret.clone(), json, slashes, url]
        });
        forms.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sent: &[&str], text: &str, expected: &str) {
        let secrets = Secrets::default();
        sent.iter().for_each(|secret| secrets.remember(secret));
        assert_eq!(secrets.redact(text), expected);
    }

    #[test]
    fn every_occurrence_is_hidden() {
        check(&["s3cret"], "bad s3cret, s3crets3cret", "bad [redacted], [redacted][redacted]");
        check(&["s3cret", "bWU6"], "Basic bWU6 is s3cret", "Basic [redacted] is [redacted]");
        check(&["s3cret"], "s3cre t", "s3cre t");
        check(&[], "all of it", "all of it");
        check(&[""], "all of it", "all of it");
    }

    #[test]
    fn nothing_is_left_of_secrets_that_overlap() {
        check(&["abc", "cde"], "xabcdex", "x[redacted]x");
        check(&["abc", "abcde"], "abcde", "[redacted]");
        check(&["aa"], "xaaax", "x[redacted]x");
    }

    #[test]
    fn what_is_escaped_is_found() {
        let secret = "a/b\"é+=";
        for escaped in ["a/b\\\"é+=", "a\\/b\\\"é+=", "a%2Fb%22%C3%A9%2B%3D"] {
            check(&[secret], &format!("<{escaped}>"), "<[redacted]>");
        }
    }

    #[test]
    fn the_secret_before_the_last_is_still_hidden() {
        let secrets = Secrets::default();
        let secret = |at: usize| format!("secret-{at};");
        (0..=REMEMBERED_MAX).for_each(|at| secrets.remember(&secret(at)));
        assert_eq!(secrets.redact(&secret(REMEMBERED_MAX)), HIDDEN);
        assert_eq!(secrets.redact(&secret(1)), HIDDEN);
        assert_eq!(secrets.redact(&secret(0)), secret(0));
    }
}
