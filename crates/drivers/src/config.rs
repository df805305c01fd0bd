//! Which drivers there are, as a file says it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::{exec, haproxy};

/// The longest timeout that a driver may be given.
pub(crate) const TIMEOUT_MAX_MS: u64 = 3_600_000;

/// One driver of a configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Config {
    Haproxy(haproxy::Config),
    Exec(exec::Config),
}

/// What is wrong with a configuration. There may be several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// `edge.socket`
    pub place: String,
    pub what: String,
    pub accepted: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "drivers.{}: {}; accepted: {}", self.place, self.what, self.accepted)
    }
}

/// Notes problems under the name of a driver.
#[derive(Debug)]
pub(crate) struct Notes<'a> {
    pub driver: &'a str,
    pub problems: &'a mut Vec<ConfigProblem>,
}

impl Notes<'_> {
    pub fn note(&mut self, field: &str, what: impl Into<String>, accepted: impl Into<String>) {
        let place = match field {
            "" => self.driver.to_owned(),
            field => format!("{}.{field}", self.driver),
        };
        self.problems.push(ConfigProblem { place, what: what.into(), accepted: accepted.into() });
    }

    /// A time that a call may take.
    pub fn check_timeout(&mut self, timeout_ms: u64) {
        if !(1..=TIMEOUT_MAX_MS).contains(&timeout_ms) {
            self.note(
                "timeout_ms",
                format!("it is {timeout_ms}"),
                format!("1 to {TIMEOUT_MAX_MS}"),
            );
        }
    }
}

/// All drivers of a configuration, or everything that is wrong with it.
pub(crate) fn check(configs: &BTreeMap<String, Config>) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (name, config) in configs {
        let mut notes = Notes { driver: name, problems: &mut problems };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            let accepted = "a name of 1 to 64 letters, digits, `-`, `_` and `.`";
            notes.note("", format!("{name:?} is no name of a driver"), accepted);
        }
        match config {
            Config::Haproxy(config) => config.check(&mut notes),
            Config::Exec(config) => config.check(&mut notes),
        }
    }
    check_targets(configs, &mut problems);
    problems
}

/// A knob that has two names has two claims: two tasks would change it at once.
fn check_targets(configs: &BTreeMap<String, Config>, problems: &mut Vec<ConfigProblem>) {
    let mut seen: Vec<(&str, Target<'_>)> = Vec::new();
    for (name, config) in configs {
        let target = match config {
            Config::Haproxy(own) => Target::Socket(&own.socket),
            Config::Exec(own) if !own.write.is_empty() => Target::Command(&own.write),
            Config::Exec(_) => continue,
        };
        match seen.iter().find(|(_, other)| *other == target) {
            Some((other, _)) => {
                let mut notes = Notes { driver: name, problems };
                notes.note(
                    target.field(),
                    format!("it is that of `{other}`, and one target has one name"),
                    format!("`{other}` in runbooks, instead of `{name}`"),
                );
            }
            None => seen.push((name, target)),
        }
    }
}

/// What a driver changes, as far as its configuration says.
#[derive(PartialEq)]
enum Target<'a> {
    Socket(&'a str),
    Command(&'a [String]),
}

impl Target<'_> {
    fn field(&self) -> &'static str {
        match self {
            Target::Socket(_) => "socket",
            Target::Command(_) => "write",
        }
    }
}
