//! Names of HAProxy's knobs: what, of which backend, of which servers.

use std::fmt;

use crate::driver::KnobForm;
use crate::error::{Error, Result};
use crate::pattern::Pattern;

/// What can be read of a server, and what can be turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Weight,
    Sessions,
    State,
    Count,
    Rate,
    Errors,
}

/// All of them, with the words for people.
pub const FORMS: [(Kind, &str, KnobForm); 6] = [
    (
        Kind::Weight,
        "weight",
        KnobForm {
            form: "weight/BACKEND/SERVER",
            meaning: "share of the configured weight, 0 to 1",
        },
    ),
    (
        Kind::Sessions,
        "sessions",
        KnobForm {
            form: "sessions/BACKEND/SERVER",
            meaning: "share of the sessions at the first write that may remain, 0 to 1",
        },
    ),
    (
        Kind::State,
        "state",
        KnobForm { form: "state/BACKEND/SERVER", meaning: "ready, drain or maint" },
    ),
    (
        Kind::Count,
        "count",
        KnobForm { form: "count/BACKEND/SERVER", meaning: "sessions now; read only" },
    ),
    (
        Kind::Rate,
        "rate",
        KnobForm { form: "rate/BACKEND/SERVER", meaning: "new sessions per second; read only" },
    ),
    (
        Kind::Errors,
        "errors",
        KnobForm {
            form: "errors/BACKEND/SERVER",
            meaning: "failed connections, responses and 5xx per second since it was read last; \
                      read only",
        },
    ),
];

/// One server, or all whose names match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    One(String),
    Group(Pattern),
}

/// The name of a knob, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobName {
    pub kind: Kind,
    pub backend: String,
    pub servers: Servers,
}

/// Longest name of a backend or a server. HAProxy has no bound of its own.
const NAME_LEN_MAX: usize = 256;

impl KnobName {
    pub fn parse(text: &str) -> Result<KnobName> {
        let unknown = |why: String| {
            let forms: Vec<_> = FORMS.iter().map(|form| form.2.form).collect();
            Error::Unknown(format!(
                "knob {text:?}: {why}; accepted: {}, with @PATTERN (such as @dc1-*) for several \
                 servers",
                forms.join(", ")
            ))
        };
        let parts: Vec<&str> = text.splitn(4, '/').collect();
        let [kind, backend, server] = parts[..] else {
            return Err(unknown("it has not three parts".into()));
        };
        let Some((kind, _, _)) = FORMS.iter().find(|form| form.1 == kind) else {
            return Err(unknown(format!("there is no {kind:?}")));
        };
        if !is_name(backend, "") {
            return Err(unknown(format!("{backend:?} is no name of a backend")));
        }
        let servers = match server.strip_prefix('@') {
            Some(pattern) if is_name(pattern, "*?") => Servers::Group(Pattern::new(pattern)),
            None if is_name(server, "") => Servers::One(server.to_owned()),
            _ => return Err(unknown(format!("{server:?} is no name of a server"))),
        };
        Ok(KnobName { kind: *kind, backend: backend.to_owned(), servers })
    }

    pub fn is_writable(&self) -> bool {
        matches!(self.kind, Kind::Weight | Kind::Sessions | Kind::State)
    }

    /// Whether the knob is about this server.
    pub fn covers(&self, server: &str) -> bool {
        match &self.servers {
            Servers::One(name) => name == server,
            Servers::Group(pattern) => pattern.matches(server),
        }
    }
}

/// What HAProxy takes for a name. Nothing else gets into a command, in which a
/// space, a semicolon or the end of a line would begin something new.
fn is_name(text: &str, also: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c) || also.contains(c);
    (1..=NAME_LEN_MAX).contains(&text.len()) && text.chars().all(is_allowed)
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Servers::One(name) => write!(f, "server {name:?}"),
            Servers::Group(pattern) => write!(f, "server that matches {pattern}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let knob = KnobName::parse("weight/web/dc1-a").unwrap();
        assert_eq!((knob.kind, knob.backend.as_str()), (Kind::Weight, "web"));
        assert!(knob.covers("dc1-a") && !knob.covers("dc1-b"));
        let group = KnobName::parse("sessions/web/@dc1-*").unwrap();
        assert!(group.covers("dc1-b") && !group.covers("dc2-b"));
    }

    #[test]
    fn what_is_no_knob_is_told_which_there_are() {
        for wrong in [
            "",
            "weight",
            "weight/web",
            "weight/web/a/b",
            "height/web/a",
            "weight//a",
            "weight/web/",
            "weight/web/@",
            "weight/web/a;shutdown frontend x",
            "weight/web\n/a",
            "weight/web/a b",
            "weight/web*/a",
            "weight/web/a*",
        ] {
            let error = KnobName::parse(wrong).unwrap_err();
            assert!(matches!(error, Error::Unknown(_)));
            assert!(error.to_string().contains("weight/BACKEND/SERVER"), "{error}");
        }
    }
}
