//! No effect has its consequence twice, however often it is tried.

use std::collections::BTreeSet;

use drain::engine::{Effect, EffectId};
use drain::{Act, Time};

use super::{Checker, Event};
use crate::drains::world::Written;

#[derive(Debug, Default)]
pub struct Once {
    done: BTreeSet<EffectId>,
    /// Another number does not make a second act right: nobody asked for it.
    acts: Vec<Act>,
}

impl Checker for Once {
    fn name(&self) -> &'static str {
        "once"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        let Event::Performed { effect, what, written: Written::Applied } = event else {
            return Ok(());
        };
        let mut is_first = self.done.insert(*effect);
        if let Effect::Act(act) = what {
            is_first &= !self.acts.contains(act);
            self.acts.push(act.clone());
        }
        match is_first {
            true => Ok(()),
            false => Err(format!("effect {} was done twice: {what:?}", effect.0)),
        }
    }
}
