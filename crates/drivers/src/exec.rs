//! Anything that a command can reach.
//!
//! Commands are lists of arguments, started without a shell. `{knob}`,
//! `{value}`, `{fence}` and `{action}` in them are replaced, and the same is in
//! the environment. What a command means stands in [`Config`].
//!
//! A command ends with the server that started it, however that ends
//! ([`supervise`]). Fences are kept in memory ([`Fences`]): a command that can
//! compare `PHAROS_FENCE` with what it saw before should, since nothing else holds
//! off another process, or what a command started on another machine.

mod command;
mod supervisor;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use drain::Value;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::config::Notes;
use crate::driver::{Accepts, Action, Description, Driver, KnobForm, Shape};
use crate::error::{Error, Result};
use crate::fence::{Fence, Fences};
use crate::permit::ask_permit;
use command::Invocation;
pub use supervisor::{run_tied, supervise};

/// The commands of a driver. Each is a program and its arguments.
///
/// They end with 0 if all is well; with 75 if it may work later, 77 if it is
/// not allowed, 66 if there is no such knob; with anything else if they are
/// broken. What they say on standard error is in the message then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Prints where the knob stands: a number, or a text.
    #[serde(default)]
    pub read: Vec<String>,
    /// Puts the knob where `{value}` says. Without it knobs can be read alone.
    #[serde(default)]
    pub write: Vec<String>,
    /// Whether a write has taken effect: asked again while it says 75.
    #[serde(default)]
    pub verify: Vec<String>,
    /// Does `{action}`, once for each `PHAROS_ONCE`. Its arguments are in
    /// `PHAROS_ARG_NAME`.
    #[serde(default)]
    pub act: Vec<String>,
    /// What `read` prints: a number if it looks like one, or always a text, such as a
    /// version `1.10`.
    #[serde(default)]
    pub values: Values,
    /// For one command; for `verify`, until it is satisfied.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

/// How what a command prints is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// As a number, if it looks like one.
    #[default]
    Auto,
    Text,
}

fn default_timeout_ms() -> u64 {
    30_000
}

impl Config {
    pub(crate) fn check(&self, notes: &mut Notes<'_>) {
        let commands = [
            ("read", &self.read),
            ("write", &self.write),
            ("verify", &self.verify),
            ("act", &self.act),
        ];
        for (field, command) in commands {
            if command.first().is_some_and(String::is_empty) {
                notes.note(field, "the program has no name", "a program, then its arguments");
            }
            if command.iter().any(|argument| argument.contains('\0')) {
                notes.note(field, "an argument has an octet 0 in it", "any other character");
            }
        }
        if self.read.is_empty() && self.act.is_empty() {
            notes.note(
                "",
                "it has neither `read` nor `act`",
                "`read`, to see what it turns, or `act`",
            );
        }
        if self.read.is_empty() && !(self.write.is_empty() && self.verify.is_empty()) {
            notes.note("read", "it is missing", "a command: what is written must be read back");
        }
        if self.write.is_empty() && !self.verify.is_empty() {
            notes.note("verify", "there is no `write` that it could verify", "`write` beside it");
        }
        notes.check_timeout(self.timeout_ms);
    }
}

/// Longest name of a knob or an action, and longest text written to one: the kernel has
/// bounds on arguments, and a command that meets them is hard to understand.
const NAME_LEN_MAX: usize = 1024;
/// Digits of a whole number that a double has without rounding.
const WHOLE_DIGITS_MAX: usize = 15;
const VALUE_LEN_MAX: usize = 64 * 1024;
/// Outcomes of acts that are remembered, so that repeating one starts nothing.
const OUTCOMES_MAX: usize = 1000;
/// How long to wait before `verify` is asked again.
const VERIFY_POLL: Duration = Duration::from_millis(200);

/// Commands that read and write knobs.
#[derive(Debug)]
pub struct Exec {
    config: Config,
    timeout: Duration,
    fences: Fences,
    outcomes: Mutex<VecDeque<(String, String)>>,
    /// The command that starts [`supervise`], if there is one.
    supervisor: Vec<String>,
}

impl Exec {
    /// `supervisor` is a command that calls [`supervise`] with the arguments that
    /// follow it. Without one, commands outlive a server that is killed.
    pub fn new(config: &Config, supervisor: &[String]) -> Exec {
        Exec {
            supervisor: supervisor.to_vec(),
            timeout: Duration::from_millis(config.timeout_ms),
            config: config.clone(),
            fences: Fences::default(),
            outcomes: Mutex::default(),
        }
    }

    async fn run(&self, what: &str, invocation: Invocation<'_>) -> Result<String> {
        invocation.run(self.timeout).await.map_err(|error| error.within(what))
    }

    async fn read_knob(&self, knob: &str) -> Result<Value> {
        if self.config.read.is_empty() {
            return Err(Error::Unknown(format!("{knob}: this driver has no `read` command")));
        }
        let mut invocation = Invocation::new(&self.supervisor, &self.config.read);
        invocation.set("knob", knob);
        let text = self.run(&format!("reading {knob}"), invocation).await?;
        Ok(match self.config.values {
            Values::Auto => parse(&text),
            Values::Text => Value::Text(text),
        })
    }

    /// Why a value would not be read back as what it is.
    fn mistaken(&self, value: &Value) -> Option<String> {
        match value {
            Value::Text(text) if self.config.values == Values::Auto => mistaken_for_number(text),
            _ => None,
        }
    }

    /// Asks until the write has taken effect, or time is up.
    async fn verify(&self, what: &str, invocation: &Invocation<'_>) -> Result<()> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.run(what, invocation.clone()).await {
                Err(Error::Transient(_)) if Instant::now() + VERIFY_POLL < deadline => {
                    sleep(VERIFY_POLL).await;
                }
                result => return result.map(drop),
            }
        }
    }

    fn outcome(&self, once: &str) -> Option<String> {
        let outcomes = self.outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        outcomes.iter().find(|outcome| outcome.0 == once).map(|outcome| outcome.1.clone())
    }

    fn remember(&self, once: &str, outcome: &str) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if outcomes.len() == OUTCOMES_MAX {
            outcomes.pop_front();
        }
        outcomes.push_back((once.to_owned(), outcome.to_owned()));
    }
}

#[async_trait]
impl Driver for Exec {
    async fn read(&self, knob: &str) -> Result<Value> {
        check_name("knob", knob)?;
        self.read_knob(knob).await
    }

    async fn write(&self, knob: &str, value: &Value, fence: Fence) -> Result<Value> {
        check_name("knob", knob)?;
        if self.config.write.is_empty() {
            return Err(Error::Refused(format!(
                "{knob}: it can be read alone: no `write` command"
            )));
        }
        let text = match value {
            Value::Number(number) if self.config.values == Values::Text => {
                return Err(Error::Refused(format!(
                    "{knob}: the number {number}, and this driver has `values = \"text\"`; \
                     accepted: a text, in quotes in a runbook"
                )));
            }
            Value::Number(number) => number.to_string(),
            Value::Text(text) => text.clone(),
        };
        if text.len() > VALUE_LEN_MAX || text.contains('\0') {
            return Err(Error::Refused(format!(
                "{knob}: a value of {} octets; accepted: up to {VALUE_LEN_MAX}, none of them 0",
                text.len()
            )));
        }
        if let Some(why) = self.mistaken(value) {
            return Err(Error::Refused(format!("{knob}: {why}")));
        }
        let _passed = self.fences.pass(knob, fence).await?;
        let filled = |command| {
            let mut invocation = Invocation::new(&self.supervisor, command);
            invocation.set("knob", knob);
            invocation.set("value", &text);
            invocation.set("fence", &fence.get().to_string());
            invocation
        };
        ask_permit().await?;
        self.run(&format!("writing {knob}"), filled(&self.config.write)).await?;
        if !self.config.verify.is_empty() {
            self.verify(&format!("verifying {knob}"), &filled(&self.config.verify)).await?;
        }
        self.read_knob(knob).await
    }

    async fn act(&self, action: Action<'_>, fence: Fence) -> Result<String> {
        if self.config.act.is_empty() {
            let text = format!("{}: this driver has no `act` command", action.name);
            return Err(Error::Unknown(text));
        }
        check_name("action", action.name)?;
        let _passed = self.fences.pass(&format!("act {}", action.name), fence).await?;
        if let Some(outcome) = self.outcome(action.once) {
            return Ok(outcome);
        }
        let mut invocation = Invocation::new(&self.supervisor, &self.config.act);
        invocation.set("action", action.name);
        invocation.set("once", action.once);
        invocation.set("fence", &fence.get().to_string());
        set_arguments(&mut invocation, action.arguments)?;
        ask_permit().await?;
        let outcome = self.run(&format!("doing {}", action.name), invocation).await?;
        self.remember(action.once, &outcome);
        Ok(outcome)
    }

    async fn check(&self, knob: &str) -> Result<Shape> {
        check_name("knob", knob)?;
        self.read_knob(knob).await?;
        let accepts = match self.config.values {
            Values::Auto => Accepts::AnythingButFractions,
            Values::Text => Accepts::Anything,
        };
        Ok(Shape { accepts, is_writable: !self.config.write.is_empty() })
    }

    fn describe(&self) -> Description {
        let commands = [&self.config.read, &self.config.write, &self.config.act];
        let program = commands.into_iter().find_map(|command| command.first());
        let form = KnobForm { form: "ANYTHING", meaning: "whatever its commands take it for" };
        Description {
            kind: "exec",
            target: program.cloned().unwrap_or_default(),
            knobs: if self.config.read.is_empty() { Vec::new() } else { vec![form] },
        }
    }
}

/// What a command printed: a number if it is one, and not a name that looks like one,
/// such as `01`, `12e4` or twenty digits. Those would be written back as another.
fn parse(text: &str) -> Value {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_digit = |at: usize| digits.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let has_sign = |(_, exponent): (&str, &str)| exponent.starts_with(['-', '+']);
    let is_name = !is_digit(0)
        || (digits.starts_with('0') && is_digit(1))
        || !digits.split_once(['e', 'E']).is_none_or(has_sign)
        || (digits.len() > WHOLE_DIGITS_MAX && digits.bytes().all(|octet| octet.is_ascii_digit()));
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && !is_name => Value::Number(number),
        _ => Value::Text(text.to_owned()),
    }
}

/// Why a text is no name for a knob whose values are numbers where they look like one:
/// `7.10` and `7.1` are read as the same.
pub(crate) fn mistaken_for_number(text: &str) -> Option<String> {
    let number = parse(text).number()?;
    (number.fract() != 0.0 || number.to_string() != text).then(|| {
        format!(
            "{text:?} is read as the number {number}, as are other names; accepted: a name with \
             a letter, or `values = \"text\"` for this driver"
        )
    })
}

/// Names go into arguments: one that begins with a dash would be an option to
/// most programs.
fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty()
        || name.len() > NAME_LEN_MAX
        || name.starts_with('-')
        || name.contains(base::text::is_hidden)
    {
        return Err(Error::Unknown(format!(
            "{what} {name:?}; accepted: 1 to {NAME_LEN_MAX} octets without control or \
             format characters that do not begin with `-`"
        )));
    }
    Ok(())
}

/// Arguments of an act go into the environment alone: there they cannot be
/// taken for options.
fn set_arguments(
    invocation: &mut Invocation<'_>,
    arguments: &BTreeMap<String, String>,
) -> Result<()> {
    let mut seen = BTreeMap::new();
    for (name, value) in arguments {
        let plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        if value.len() > VALUE_LEN_MAX || value.contains('\0') {
            return Err(Error::Refused(format!(
                "argument {name:?} has {} octets; accepted: up to {VALUE_LEN_MAX}, none of them 0",
                value.len()
            )));
        }
        if let Some(other) = seen.insert(plain.clone(), name) {
            return Err(Error::Refused(format!(
                "arguments {other:?} and {name:?} are both PHAROS_ARG_{plain}; rename one"
            )));
        }
        invocation.set_environment(format!("PHAROS_ARG_{plain}"), value);
    }
    Ok(())
}
