//! One upstream question for each question and time to live.

use std::rc::Rc;

use super::ledger::Ledger;
use super::{Checker, Event};
use crate::names::{Names, text_form};
use crate::queue::Micros;

/// While nothing goes wrong, a question is asked upstream once in the whole
/// cluster for each time to live of its answer, however many clients ask it of
/// however many nodes; with prefetch, once more as that time comes to its end.
#[derive(Debug)]
pub struct Once {
    /// Nothing goes wrong; the names are new to the cluster.
    is_calm: bool,
    ledger: Ledger,
}

impl Once {
    /// `from_start` if nothing goes wrong from the start.
    pub fn new(from_start: bool, prefetch: bool, names: Rc<Names>) -> Self {
        Once { is_calm: from_start, ledger: Ledger::new(prefetch, names) }
    }
}

impl Checker for Once {
    fn name(&self) -> &'static str {
        "once"
    }

    fn see(&mut self, now: Micros, event: &Event<'_>) -> Result<(), String> {
        if let Event::Calm = event {
            self.is_calm = true;
        }
        if !self.is_calm {
            return Ok(());
        }
        let Some(early) = self.ledger.see(now, event) else { return Ok(()) };
        let Event::Consulted { cell, heard, .. } = event else { return Ok(()) };
        let name = text_form(&heard.name);
        Err(format!("cell {cell} asks upstream for {name} type {} early: {early:?}", heard.qtype))
    }
}
