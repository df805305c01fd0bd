//! Nothing grows without end.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use cache::cell::{ANSWER_WITHIN, Sizes};
use cache::peer::{FrameHead, Manner, Message};

use super::{Checker, Event};
use crate::names::{Behaviour, Names, text_form};
use crate::node::CellId;
use crate::queue::Micros;
use crate::settings::SECOND;

/// Upstream questions of one cell for one question within the time that
/// anybody waits: six in datagrams, as many over connections for what was cut
/// off, and as many again for whoever asks right after.
const CONSULTED_MAX: usize = 24;
/// Probes of one cell to one node within a second: one in 100 ms.
const PROBES_MAX: usize = 12;

/// Questions of one cell to the others to renew the same, within a second: one
/// brings a new answer, or a failure that is remembered. Some get lost.
const RENEWALS_MAX: usize = 4;

/// Work that is under way ends: when a cell rests, nothing waits, nothing is
/// on its way and no timer is set. And no loop feeds itself: neither upstream
/// servers nor other nodes are asked the same again and again.
#[derive(Debug)]
pub struct Bounds {
    has_room: bool,
    names: Rc<Names>,
    consulted: BTreeMap<(CellId, Vec<u8>), VecDeque<Micros>>,
    probed: BTreeMap<(CellId, CellId), VecDeque<Micros>>,
    renewed: BTreeMap<(CellId, Vec<u8>), VecDeque<Micros>>,
}

impl Bounds {
    /// `has_room` if nothing is ever pushed out of the tables.
    pub fn new(has_room: bool, names: Rc<Names>) -> Self {
        Bounds {
            has_room,
            names,
            consulted: BTreeMap::new(),
            probed: BTreeMap::new(),
            renewed: BTreeMap::new(),
        }
    }

    fn see_message(
        &mut self,
        now: Micros,
        from: CellId,
        to: CellId,
        message: &Message<'_>,
    ) -> Result<(), String> {
        match message {
            Message::Ping { .. } => {
                let count = count_within(self.probed.entry((from, to)).or_default(), now, SECOND);
                if count > PROBES_MAX {
                    return Err(format!("cell {from} probed {to} {count} times in a second"));
                }
            }
            Message::Lookup { manner: Manner::Refresh, question, .. } => {
                let mut key = Vec::new();
                question.encode(&mut key);
                let count = count_within(self.renewed.entry((from, key)).or_default(), now, SECOND);
                if count > RENEWALS_MAX {
                    let name = text_form(question.name);
                    return Err(format!(
                        "cell {from} had {name} renewed {count} times in a second"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Adds a moment; returns how many there are within `window`.
fn count_within(moments: &mut VecDeque<Micros>, now: Micros, window: Micros) -> usize {
    moments.push_back(now);
    while moments.front().is_some_and(|first| first + window < now) {
        moments.pop_front();
    }
    moments.len()
}

impl Checker for Bounds {
    fn name(&self) -> &'static str {
        "bounds"
    }

    fn see(&mut self, now: Micros, event: &Event<'_>) -> Result<(), String> {
        match *event {
            Event::Consulted { cell, heard, .. } => {
                let name = self.names.find(&heard.name).ok_or("nobody asks for this name")?;
                // What is nobody's to keep, or was pushed out, is asked for each
                // client.
                let may_be_gone = name.behaviour.is_kept() && !self.has_room;
                if may_be_gone || matches!(name.behaviour, Behaviour::Fleeting | Behaviour::Bare) {
                    return Ok(());
                }
                let moments = self.consulted.entry((cell, heard.key.clone())).or_default();
                let count = count_within(moments, now, ANSWER_WITHIN.as_micros() as u64);
                if count > CONSULTED_MAX {
                    let name = text_form(&heard.name);
                    return Err(format!("cell {cell} asked upstream for {name} {count} times"));
                }
            }
            Event::Framed { from, to, octets } => {
                let messages = FrameHead::read(octets).map(|(_, messages)| messages);
                for message in messages.into_iter().flatten().flatten() {
                    self.see_message(now, from, to, &message)?;
                }
            }
            Event::Rested { cell, sizes, due, .. } => {
                let Sizes { pending, requests, flights, timers, handover_left, .. } = *sizes;
                let is_idle = [pending, requests, flights, timers, handover_left] == [0; 5];
                if !is_idle || due.is_some() {
                    return Err(format!("cell {cell} rests, but has work: {sizes:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
