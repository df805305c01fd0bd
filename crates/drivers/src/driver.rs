//! What a driver is.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use drain::Value;
use tokio::time::Instant;

use crate::error::Result;
use crate::fence::Fence;

/// Turns the knobs of one thing: a load balancer, a database, a job system.
///
/// What every driver promises, because runs are built on it:
///
/// - *Every call ends*, in a time and with an answer that are both bounded. What
///   takes longer is [`Error::Transient`]: it is tried again.
/// - *Every call may be dropped* half-way, and may be made again: a write says
///   where a knob is to stand, not by how much it is to be moved.
/// - *A write reads back.* What it returns was read from the thing after the
///   write, not copied from the argument. If it is not what was asked for, that
///   is no error of the driver: the run decides.
/// - *Older fences are refused.* A write or an act with an older fence than the
///   newest one seen for that knob fails with [`Error::Refused`] and changes
///   nothing. Where the thing itself can compare fences, it does, in the same
///   step as the write; where it cannot, [`Fences`] keeps them in memory, and
///   the driver says in its docs what that does not protect from.
/// - *Changes ask first.* Right before anything is changed, and not earlier, a
///   driver awaits [`ask_permit`]: the process may have been stopped meanwhile,
///   and another have taken over.
/// - *Rounding is the driver's business.* A thing that cannot stand exactly
///   where it was asked to, but stands as near as it can, reads as what it was
///   asked for: otherwise every such knob would look as if somebody else had
///   turned it.
/// - *Nothing that is read is trusted*: not in length, not in form.
///
/// [`Error::Transient`]: crate::Error::Transient
/// [`Error::Refused`]: crate::Error::Refused
/// [`Fences`]: crate::Fences
/// [`ask_permit`]: crate::ask_permit
#[async_trait]
pub trait Driver: Send + Sync + fmt::Debug {
    /// Where a knob stands.
    async fn read(&self, knob: &str) -> Result<Value>;

    /// The same of a gauge, with the time that it is about.
    async fn gauge(&self, knob: &str) -> Result<Gauged> {
        self.read(knob).await.map(Gauged::now)
    }

    /// Whether nothing that a knob sends traffic to can serve, whatever its value is:
    /// every server is down, in maintenance or without weight. False if there is no
    /// telling.
    async fn is_out(&self, knob: &str) -> Result<bool> {
        let _ = knob;
        Ok(false)
    }

    /// What a knob sends traffic to, by names that are the same for all knobs of the
    /// driver. Empty if there is no telling.
    async fn targets(&self, knob: &str) -> Result<Vec<String>> {
        let _ = knob;
        Ok(Vec::new())
    }

    /// Puts a knob somewhere; returns where it stands then.
    async fn write(&self, knob: &str, value: &Value, fence: Fence) -> Result<Value>;

    /// Does something once; returns what there is to say about it. The same
    /// [`Action::once`] again does nothing again, as far as the driver can
    /// tell, and returns the same.
    async fn act(&self, action: Action<'_>, fence: Fence) -> Result<String>;

    /// Whether a knob is there, and what it takes. For plans, before anything
    /// is turned.
    async fn check(&self, knob: &str) -> Result<Shape>;

    /// What this is, for people.
    fn describe(&self) -> Description;
}

/// What a gauge says.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauged {
    pub value: Value,
    /// From when to when it was counted; `None`: the value is that of the moment.
    pub span: Option<(Instant, Instant)>,
}

impl Gauged {
    pub fn now(value: Value) -> Gauged {
        Gauged { value, span: None }
    }
}

/// Something to be done once.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    pub name: &'a str,
    pub arguments: &'a BTreeMap<String, String>,
    /// Names the occasion: the run and the number of its effect. Unlike the
    /// fence it is the same when another executor does it again, so it is what
    /// tells a repetition from a second act.
    pub once: &'a str,
}

/// What a knob takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub accepts: Accepts,
    /// False for gauges: they can be read alone.
    pub is_writable: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Accepts {
    /// Numbers in a range. What is nearer to each other than the step may be
    /// the same; 0 if there is no telling.
    Number { min: f64, max: f64, step: f64 },
    /// One of these words.
    Word(Vec<&'static str>),
    /// The driver cannot tell.
    Anything,
    /// The same, but what looks like a number is read as one: as the name of a server
    /// `7.10` would be `7.1`.
    AnythingButFractions,
}

/// What a driver is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// As in the configuration: `haproxy`.
    pub kind: &'static str,
    /// What it reaches: the path of a socket.
    pub target: String,
    pub knobs: Vec<KnobForm>,
}

/// A kind of knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobForm {
    /// `weight/BACKEND/SERVER`
    pub form: &'static str,
    pub meaning: &'static str,
}
