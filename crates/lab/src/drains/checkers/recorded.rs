//! Nothing is done to the world that was not written down before.

use std::collections::BTreeMap;

use drain::Time;
use drain::engine::{Effect, EffectId, Fact};

use super::{Checker, Event};

#[derive(Debug, Default)]
pub struct Recorded(BTreeMap<EffectId, Effect>);

impl Checker for Recorded {
    fn name(&self) -> &'static str {
        "recorded"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => {
                if let Fact::Issued { effect, what, .. } = &record.fact {
                    self.0.insert(*effect, what.clone());
                }
                Ok(())
            }
            Event::Performed { effect, what, .. } => match self.0.get(effect) {
                Some(known) if known == *what => Ok(()),
                Some(known) => {
                    Err(format!("effect {} is {known:?} in the log, {what:?} was done", effect.0))
                }
                None => {
                    Err(format!("effect {} was done and is not in the log: {what:?}", effect.0))
                }
            },
            _ => Ok(()),
        }
    }
}
