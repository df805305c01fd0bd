//! What was asked upstream and what was said to it, to tell who asks again too
//! early.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Event;
use crate::names::Names;
use crate::queue::Micros;
use crate::settings::SECOND;

/// Upstream questions by their key. Only those count whose answers may be kept.
#[derive(Debug)]
pub(super) struct Ledger {
    names: Rc<Names>,
    prefetch: bool,
    last: BTreeMap<Vec<u8>, Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    asked: Micros,
    /// When it was answered, and until when nobody needs to ask again.
    answered: Option<(Micros, Micros)>,
}

/// An upstream question that nobody needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    /// The same was asked before and not answered yet.
    Twin { after: Micros },
    /// What was said before has still to live.
    Again { age: Micros, left: Micros },
}

impl Ledger {
    pub fn new(prefetch: bool, names: Rc<Names>) -> Self {
        Ledger { names, prefetch, last: BTreeMap::new() }
    }

    /// Sees one event; says if it is a question that nobody needed.
    pub fn see(&mut self, now: Micros, event: &Event<'_>) -> Option<Early> {
        match event {
            // Over a connection goes what was asked in a datagram before.
            Event::Consulted { heard, over_stream: false, .. } => {
                let name = self.names.find(&heard.name)?;
                if !name.behaviour.is_kept() {
                    return None;
                }
                let last = Last { asked: now, answered: None };
                match self.last.insert(heard.key.clone(), last)? {
                    Last { asked, answered: None } => Some(Early::Twin { after: now - asked }),
                    Last { answered: Some((said, until)), .. } => {
                        let left = until.checked_sub(now).filter(|left| *left > 0)?;
                        Some(Early::Again { age: now - said, left })
                    }
                }
            }
            Event::Said(said) if !said.is_forged => {
                let lives = u64::from(match self.prefetch {
                    // A tenth before its end it may be renewed.
                    true => said.ttl_secs - said.ttl_secs / 10,
                    false => said.ttl_secs,
                });
                let last = self.last.get_mut(&said.key)?;
                last.answered = Some((now, now + lives * SECOND));
                None
            }
            _ => None,
        }
    }
}
