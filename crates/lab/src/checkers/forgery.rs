//! Nothing forged is believed.

use std::collections::BTreeSet;

use super::{Checker, Event};
use crate::message::Message;
use crate::queue::Micros;
use crate::upstream::number_of;

/// Nothing is ever served that only a forger said. Who was the aim of a
/// forgery is asked for the same again later, so that what was kept shows.
#[derive(Debug, Default)]
pub struct Forgery {
    forged: BTreeSet<u32>,
}

impl Checker for Forgery {
    fn name(&self) -> &'static str {
        "forgery"
    }

    fn see(&mut self, _: Micros, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Said(said) if said.is_forged => {
                self.forged.insert(said.number);
            }
            Event::Replied { number, octets } => {
                let source = Message::read(octets).as_ref().and_then(number_of);
                if source.is_some_and(|source| self.forged.contains(&source)) {
                    return Err(format!("inquiry {number} got what somebody forged"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
