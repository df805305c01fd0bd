//! The properties that hold in every world, one checker for each. Checkers see
//! what happens from outside: what clients, upstream servers and the network
//! see, and what cells say about themselves when they rest.

mod agreement;
mod bounds;
mod deadline;
mod forgery;
mod ledger;
mod once;
mod replies;
mod warmth;

use std::fmt;
use std::rc::Rc;

use cache::Moment;
use cache::cell::Sizes;

use crate::inquiry::Inquiry;
use crate::names::Names;
use crate::node::CellId;
use crate::queue::Micros;
use crate::settings::{Kind, Settings};
use crate::upstream::{Heard, Said};

pub use agreement::Agreement;
pub use bounds::Bounds;
pub use deadline::Deadline;
pub use forgery::Forgery;
pub use once::Once;
pub use replies::Replies;
pub use warmth::Warmth;

/// What a checker sees.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A client asked.
    Asked(&'a Rc<Inquiry>),
    /// The client that asked the inquiry with this number got a reply.
    Replied { number: u64, octets: &'a [u8] },
    /// A node lost everything, and nobody whom it owed a reply will get one.
    Crashed { node: usize },
    /// A node ended in good order: it owes nobody a reply.
    Stopped { node: usize },
    /// A cell asked upstream.
    Consulted { cell: CellId, heard: &'a Heard, over_stream: bool },
    /// An upstream server, or a forger, said something that could be kept.
    Said(&'a Rc<Said>),
    /// A cell sent a frame.
    Framed { from: CellId, to: CellId, octets: &'a [u8] },
    /// Upstream servers get into trouble, or out of it.
    Weather { is_bad: bool },
    /// The members or the key begin to change.
    Changing,
    /// From now on nothing goes wrong, and only new names are asked for.
    Calm,
    /// A cell after some time in which nothing was asked.
    Rested { cell: CellId, tag: u64, sizes: &'a Sizes, due: Option<Moment> },
}

/// A property.
pub trait Checker: fmt::Debug {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Sees one event; says what is wrong with it.
    fn see(&mut self, now: Micros, event: &Event<'_>) -> Result<(), String>;

    /// The world ends; says what is missing.
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub checker: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// The checkers of a world.
#[derive(Debug)]
pub struct Checkers(Vec<Box<dyn Checker>>);

impl Checkers {
    /// Those that can hold in a world with these settings.
    pub fn new(settings: &Settings, names: &Rc<Names>) -> Self {
        let mut all: Vec<Box<dyn Checker>> = vec![
            Box::new(Replies::new(settings.stale_secs, settings.has_room(), names.clone())),
            Box::new(Deadline::default()),
            Box::new(Agreement::default()),
            Box::new(Forgery::default()),
            Box::new(Bounds::new(settings.has_room(), names.clone())),
        ];
        if settings.has_room() {
            let from_start = settings.kind == Kind::Calm;
            all.push(Box::new(Once::new(from_start, settings.prefetch, names.clone())));
        }
        if settings.kind == Kind::Orderly {
            all.push(Box::new(Warmth::new(settings.prefetch, names.clone())));
        }
        Checkers(all)
    }

    /// Shows an event to all; returns the first violation.
    pub fn see(&mut self, now: Micros, event: &Event<'_>) -> Option<Violation> {
        self.first(|checker| checker.see(now, event))
    }

    pub fn finish(&mut self) -> Option<Violation> {
        self.first(|checker| checker.finish())
    }

    fn first(
        &mut self,
        mut check: impl FnMut(&mut dyn Checker) -> Result<(), String>,
    ) -> Option<Violation> {
        self.0.iter_mut().find_map(|checker| {
            let what = check(checker.as_mut()).err()?;
            Some(Violation { checker: checker.name(), what })
        })
    }
}
