//! HAProxy, through its runtime socket.
//!
//! Knobs are named `KIND/BACKEND/SERVER`, or `KIND/BACKEND/@PATTERN` for all
//! servers whose names match, such as `weight/web/@dc1-*`. Which kinds there are
//! stands in [`knob::FORMS`].
//!
//! # What HAProxy forgets
//!
//! Weights and states live in the process. A reload starts another one, with
//! what the configuration says: a knob then reads as if somebody had turned it,
//! and the run puts it back. The process from before stays until its last
//! session ends; nobody can reach those sessions through the socket any more.
//!
//! # What the driver forgets
//!
//! HAProxy has no place for fences, so they are in memory ([`Fences`]): they
//! hold off late writes of this process, not those of another one. So is what
//! `sessions` knobs are measured against. A Pharos that was started again reads
//! such a knob as 1, and the next write begins with the sessions there are then.

pub mod answer;
mod gauge;
pub mod knob;
mod sessions;
mod socket;
mod weight;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use drain::Value;
use serde::Deserialize;

use crate::config::Notes;
use crate::driver::{Accepts, Action, Description, Driver, Gauged, Shape};
use crate::error::{Error, Result, listed};
use crate::fence::{Fence, Fences};
use answer::{Server, State};
use knob::{FORMS, Kind, KnobName};
use socket::{Address, Socket};

/// How to reach HAProxy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The path of its `stats socket`, or an address of this host.
    pub socket: String,
    /// For one question to it.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

fn default_timeout_ms() -> u64 {
    5000
}

impl Config {
    pub(crate) fn check(&self, notes: &mut Notes<'_>) {
        if let Err(what) = self.address() {
            let accepted = "the path of HAProxy's `stats socket`, such as /run/haproxy/admin.sock, \
                            or an address of this host, such as 127.0.0.1:9999";
            notes.note("socket", what, accepted);
        }
        notes.check_timeout(self.timeout_ms);
    }

    fn address(&self) -> std::result::Result<Address, String> {
        if self.socket.starts_with('/') {
            return Ok(Address::Unix(PathBuf::from(&self.socket)));
        }
        match self.socket.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Address::Tcp(address)),
            // Whoever reaches that socket can do anything to HAProxy: it asks nobody who they are.
            Ok(address) => Err(format!("{address} can be reached by others")),
            Err(_) => Err(format!("{:?} is neither a path nor an address", self.socket)),
        }
    }
}

/// One HAProxy.
#[derive(Debug)]
pub struct Haproxy {
    socket: Socket,
    fences: Fences,
    memory: Mutex<Memory>,
}

/// What is remembered about knobs. Losing it costs what the module says.
#[derive(Debug, Default)]
struct Memory {
    /// The last share written to a `weight` knob.
    weights: BTreeMap<String, f64>,
    sessions: BTreeMap<String, sessions::Allowance>,
    errors: BTreeMap<String, gauge::Sample>,
}

impl Haproxy {
    pub fn new(config: &Config) -> Result<Haproxy> {
        let address = config.address().map_err(Error::Refused)?;
        Ok(Haproxy {
            socket: Socket::new(address, Duration::from_millis(config.timeout_ms)),
            fences: Fences::default(),
            memory: Mutex::default(),
        })
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The servers that a knob is about: at least one.
    async fn servers(&self, knob: &KnobName) -> Result<Vec<Server>> {
        let text = self.socket.ask(&format!("show servers state {}", knob.backend)).await?;
        if text.starts_with("Can't find backend") {
            return Err(self.no_backend(knob).await);
        }
        let all = answer::servers(&text, &knob.backend).map_err(|why| self.broken(why))?;
        let covered: Vec<_> =
            all.iter().filter(|server| knob.covers(&server.name)).cloned().collect();
        if covered.is_empty() {
            let there = listed(all.iter().map(|server| server.name.as_str()));
            return Err(Error::Unknown(format!(
                "backend {:?} has no {}; it has: {there}",
                knob.backend, knob.servers
            )));
        }
        Ok(covered)
    }

    async fn no_backend(&self, knob: &KnobName) -> Error {
        let there = match self.socket.ask("show backend").await {
            Ok(text) => listed(answer::backends(&text)),
            Err(error) => return error,
        };
        Error::Unknown(format!("HAProxy has no backend {:?}; it has: {there}", knob.backend))
    }

    /// Sends something that HAProxy says nothing to when it does it.
    async fn command(&self, line: &str) -> Result<()> {
        crate::permit::ask_permit().await?;
        let said = self.socket.ask(line).await?;
        let said = said.trim();
        if said.is_empty() {
            return Ok(());
        }
        let place = format!("HAProxy at {}: `{line}`", self.socket.address);
        Err(if said.starts_with("No such") {
            Error::Unknown(format!("{place}: {}", answer::start(said)))
        } else if said.contains("static LB algorithm") {
            Error::Refused(format!(
                "{place}: its `balance` algorithm is static and takes all of the weight or none; \
                 accepted: 0 or 1, or an algorithm such as roundrobin, leastconn or `hash-type \
                 consistent`"
            ))
        } else {
            Error::Broken(format!("{place}: {}", answer::start(said)))
        })
    }

    /// Whether the socket lets anything be turned. An HAProxy that cannot tell
    /// is taken at its word when something is.
    async fn check_level(&self) -> Result<()> {
        let level = self.socket.ask("show cli level").await?;
        match level.trim() {
            level @ ("user" | "operator") => Err(Error::Refused(format!(
                "HAProxy at {}: this socket is of `level {level}`, which may only look; its \
                 `stats socket` needs `level admin`",
                self.socket.address
            ))),
            _ => Ok(()),
        }
    }

    fn broken(&self, why: answer::Malformed) -> Error {
        Error::Broken(format!("HAProxy at {}: {why}", self.socket.address))
    }

    async fn read_state(&self, knob: &KnobName) -> Result<Value> {
        let servers = self.servers(knob).await?;
        let mut states = servers.iter().map(|server| server.state);
        if let Some(first) = states.next().filter(|first| states.all(|state| state == *first)) {
            return Ok(Value::Text(first.name().to_owned()));
        }
        // Of each, so that each can be put back: one may have been set aside before.
        let each = servers.iter().map(|server| format!("{}={}", server.name, server.state.name()));
        Ok(Value::Text(each.collect::<Vec<_>>().join(",")))
    }

    async fn write_state(&self, knob: &KnobName, value: &Value) -> Result<()> {
        let servers = self.servers(knob).await?;
        let Some(states) = States::parse(value) else {
            return Err(Error::Refused(format!(
                "{value} is no state; accepted: ready, drain, maint, or one for each server as in \
                 `a=ready,b=maint`"
            )));
        };
        for server in servers {
            // A server that came since has the state that it was given.
            let Some(state) = states.of(&server.name) else { continue };
            if server.state != state {
                let (backend, name, state) = (&knob.backend, &server.name, state.name());
                self.command(&format!("set server {backend}/{name} state {state}")).await?;
            }
        }
        Ok(())
    }

    /// What a state that was written is found as: that of each server, without those
    /// that are gone or came since.
    async fn state_after(&self, knob: &KnobName, value: &Value) -> Result<Value> {
        let (servers, states) = (self.servers(knob).await?, States::parse(value));
        let differs = |server: &Server| {
            let state = states.as_ref().and_then(|states| states.of(&server.name));
            state.is_some_and(|state| state != server.state)
        };
        match servers.iter().any(differs) {
            false => Ok(value.clone()),
            true => self.read_state(knob).await,
        }
    }

    async fn read_knob(&self, text: &str, knob: &KnobName) -> Result<Value> {
        match knob.kind {
            Kind::Weight => self.read_weight(text, knob).await.map(Value::Number),
            Kind::Sessions => self.read_sessions(text, knob).await.map(Value::Number),
            Kind::State => self.read_state(knob).await,
            Kind::Count | Kind::Rate | Kind::Errors => {
                self.read_gauge(text, knob).await.map(|gauged| gauged.value)
            }
        }
    }
}

#[async_trait]
impl Driver for Haproxy {
    async fn read(&self, knob: &str) -> Result<Value> {
        self.read_knob(knob, &KnobName::parse(knob)?).await
    }

    async fn gauge(&self, text: &str) -> Result<Gauged> {
        let knob = KnobName::parse(text)?;
        match knob.is_writable() {
            true => self.read_knob(text, &knob).await.map(Gauged::now),
            false => self.read_gauge(text, &knob).await,
        }
    }

    async fn is_out(&self, knob: &str) -> Result<bool> {
        // Of every kind: whichever knob is set, the same servers get the requests.
        let servers = self.servers(&KnobName::parse(knob)?).await?;
        Ok(!servers.iter().any(Server::serves))
    }

    async fn targets(&self, knob: &str) -> Result<Vec<String>> {
        let knob = KnobName::parse(knob)?;
        let servers = self.servers(&knob).await?;
        Ok(servers.iter().map(|server| format!("{}/{}", knob.backend, server.name)).collect())
    }

    async fn write(&self, text: &str, value: &Value, fence: Fence) -> Result<Value> {
        let knob = KnobName::parse(text)?;
        if !knob.is_writable() {
            return Err(Error::Refused(format!(
                "{text}: it can be read alone; accepted: weight/, sessions/ and state/"
            )));
        }
        let _passed = self.fences.pass(text, fence).await?;
        match knob.kind {
            Kind::Weight => self.write_weight(text, &knob, share(text, value)?).await?,
            Kind::Sessions => self.write_sessions(text, &knob, share(text, value)?).await?,
            _ => {
                self.write_state(&knob, value).await?;
                return self.state_after(&knob, value).await;
            }
        }
        self.read_knob(text, &knob).await
    }

    async fn act(&self, action: Action<'_>, _fence: Fence) -> Result<String> {
        Err(Error::Unknown(format!(
            "HAProxy has no action {:?}; everything it does is a knob",
            action.name
        )))
    }

    async fn check(&self, text: &str) -> Result<Shape> {
        let knob = KnobName::parse(text)?;
        let servers = self.servers(&knob).await?;
        if knob.is_writable() {
            self.check_level().await?;
        }
        let accepts = match knob.kind {
            Kind::Weight => weight::accepts(&servers),
            Kind::Sessions => Accepts::Number { min: 0.0, max: 1.0, step: 0.0 },
            Kind::State => Accepts::Word(State::ALL.map(State::name).to_vec()),
            _ => Accepts::Number { min: 0.0, max: f64::INFINITY, step: 0.0 },
        };
        Ok(Shape { accepts, is_writable: knob.is_writable() })
    }

    fn describe(&self) -> Description {
        Description {
            kind: "haproxy",
            target: self.socket.address.to_string(),
            knobs: FORMS.iter().map(|form| form.2).collect(),
        }
    }
}

/// States to be written.
enum States {
    All(State),
    Each(BTreeMap<String, State>),
}

impl States {
    fn parse(value: &Value) -> Option<States> {
        let Value::Text(text) = value else { return None };
        let named = |text: &str| State::ALL.into_iter().find(|state| state.name() == text);
        if let Some(state) = named(text) {
            return Some(States::All(state));
        }
        let each = text.split(',').map(|own| {
            let (server, state) = own.split_once('=')?;
            Some((server.to_owned(), named(state)?))
        });
        each.collect::<Option<_>>().map(States::Each)
    }

    fn of(&self, server: &str) -> Option<State> {
        match self {
            States::All(state) => Some(*state),
            States::Each(states) => states.get(server).copied(),
        }
    }
}

/// A share to be written.
fn share(knob: &str, value: &Value) -> Result<f64> {
    match value.number() {
        Some(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err(Error::Refused(format!("{knob}: {value} is no share; accepted: 0 to 1"))),
    }
}
