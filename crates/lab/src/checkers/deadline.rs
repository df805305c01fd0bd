//! Every question gets one reply, in time.

use std::collections::BTreeMap;

use cache::cell::ANSWER_WITHIN;

use super::{Checker, Event};
use crate::queue::Micros;
use crate::settings::MILLI;

/// What threads may be late by.
const SLACK: Micros = 10 * MILLI;
const WITHIN: Micros = ANSWER_WITHIN.as_micros() as u64 + SLACK;

/// Every question gets exactly one reply, and within the time that is said to
/// be the longest, unless its node crashed.
#[derive(Debug, Default)]
pub struct Deadline {
    /// When each was asked, and of which node; numbers grow with time.
    open: BTreeMap<u64, (Micros, usize)>,
}

impl Checker for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn see(&mut self, now: Micros, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Asked(inquiry) => {
                self.open.insert(inquiry.number, (now, inquiry.to.node));
            }
            Event::Replied { number, .. } if self.open.remove(&number).is_none() => {
                return Err(format!("inquiry {number} got a second reply"));
            }
            Event::Crashed { node } => self.open.retain(|_, (_, asked)| *asked != node),
            _ => {}
        }
        match self.open.first_key_value() {
            Some((number, (at, _))) if now > at + WITHIN => {
                Err(format!("inquiry {number} has no reply after {} µs", now - at))
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        match self.open.first_key_value() {
            Some((number, _)) => Err(format!("inquiry {number} never got a reply")),
            None => Ok(()),
        }
    }
}
