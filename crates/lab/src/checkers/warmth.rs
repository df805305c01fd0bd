//! What the cluster knows survives a change of its members and of its key.

use std::rc::Rc;

use super::ledger::{Early, Ledger};
use super::{Checker, Event};
use crate::names::{Names, text_form};
use crate::queue::Micros;

/// Of a thousand questions of clients, those that may go upstream although the
/// cluster knows the answer.
const REASKED_PER_MILLE: u64 = 2;
/// And as many in any case: single ones between the views of two nodes.
const REASKED_MIN: u64 = 3;

/// Of these that are shown.
const EXAMPLES_MAX: usize = 20;

/// While members come and go in good order, and while the key rotates, next to
/// nothing is asked upstream that some node still knows.
#[derive(Debug)]
pub struct Warmth {
    ledger: Ledger,
    is_changing: bool,
    is_calm: bool,
    asked: u64,
    reasked: u64,
    /// The first of them.
    examples: Vec<String>,
}

impl Warmth {
    pub fn new(prefetch: bool, names: Rc<Names>) -> Self {
        Warmth {
            ledger: Ledger::new(prefetch, names),
            is_changing: false,
            is_calm: false,
            asked: 0,
            reasked: 0,
            examples: Vec::new(),
        }
    }
}

impl Checker for Warmth {
    fn name(&self) -> &'static str {
        "warmth"
    }

    fn see(&mut self, now: Micros, event: &Event<'_>) -> Result<(), String> {
        let early = self.ledger.see(now, event);
        match event {
            Event::Changing => self.is_changing = true,
            Event::Calm => self.is_calm = true,
            Event::Asked(_) if self.is_changing && !self.is_calm => self.asked += 1,
            _ => {}
        }
        if let Some(early @ Early::Again { .. }) = early
            && self.is_changing
            && !self.is_calm
        {
            self.reasked += 1;
            if let Event::Consulted { cell, heard, .. } = event
                && self.examples.len() < EXAMPLES_MAX
            {
                let name = text_form(&heard.name);
                self.examples.push(format!("{name} type {} by {cell}, {early:?}", heard.qtype));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        let Warmth { asked, reasked, examples, .. } = self;
        let may = (*asked * REASKED_PER_MILLE / 1000).max(REASKED_MIN);
        if *reasked <= may {
            return Ok(());
        }
        Err(format!("of {asked} questions {reasked} went upstream that were known: {examples:#?}"))
    }
}
