//! What is to be said is said, whatever dies on the way: nobody goes on before
//! it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::engine::{Effect, EffectId, Fact, Record};
use drain::{Outcome, Plan, Saying, StageKind, TaskId, Time};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Said {
    progress: Progress,
    /// Who says what.
    sayings: BTreeMap<EffectId, (TaskId, Saying)>,
    /// Tasks of which somebody heard what the stage they are in says.
    heard: BTreeSet<TaskId>,
}

impl Said {
    pub fn new(plan: &Arc<Plan>) -> Self {
        let progress = Progress::new(plan);
        Said { progress, sayings: BTreeMap::new(), heard: BTreeSet::new() }
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        match &record.fact {
            Fact::Issued { effect, task, what: Effect::Say(saying) } => {
                self.sayings.insert(*effect, (*task, saying.clone()));
            }
            Fact::Entered { task, .. } => _ = self.heard.remove(task),
            Fact::Left { task, outcome: Outcome::Done, .. }
                if self.progress.task(*task).is_running =>
            {
                if let Some(StageKind::Say(saying)) = self.progress.stage(*task)
                    && !self.heard.contains(task)
                {
                    let name = self.progress.name(*task);
                    return Err(format!("{name} goes on, and nobody heard {:?}", saying.text));
                }
            }
            _ => {}
        }
        self.progress.take(record);
        Ok(())
    }

    fn hear(&mut self, effect: EffectId) {
        let Some((task, saying)) = self.sayings.get(&effect) else { return };
        if matches!(self.progress.stage(*task), Some(StageKind::Say(own)) if own == saying) {
            self.heard.insert(*task);
        }
    }
}

impl Checker for Said {
    fn name(&self) -> &'static str {
        "said"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => return self.take(record),
            Event::Performed { effect, what: Effect::Say(_), .. } => self.hear(*effect),
            _ => {}
        }
        Ok(())
    }
}
