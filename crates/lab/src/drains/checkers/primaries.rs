//! A promotion knows two primaries: the one that its fence keeps from taking writes, and
//! the one that it promotes. While another server is the primary nothing is fenced or
//! promoted, and no fence is opened: what that server has, nobody looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use drain::engine::{Effect, EffectId, Fact, Record};
use drain::{KnobId, Plan, TaskId, Time, Value};

use super::progress::Progress;
use super::{Checker, Event};

#[derive(Debug)]
pub struct Primaries {
    progress: Progress,
    /// Writes of promotions, by the effects that they are.
    issued: BTreeMap<EffectId, Issued>,
}

/// What a promotion writes, and who may be primary then.
#[derive(Debug)]
struct Issued {
    task: TaskId,
    primary: KnobId,
    known: Vec<Value>,
    opens: bool,
}

impl Primaries {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Primaries { progress: Progress::new(plan), issued: BTreeMap::new() }
    }

    /// Whom a task may find as the primary: on the way there the one that its fence is of,
    /// on the way back the one from before, and the promoted one on both.
    fn known(&self, task: TaskId) -> Vec<Value> {
        let (own, at) = (self.progress.plan.task(task), self.progress.task(task));
        let fenced = at.stage.and_then(|stage| own.fenced_primary(stage));
        let before = match fenced.filter(|_| at.is_running) {
            Some(fenced) => Some(fenced),
            None => own.undone_knob().and_then(|primary| self.progress.origin(task, primary)),
        };
        before.into_iter().chain(own.undone_goal()).cloned().collect()
    }

    fn take(&mut self, record: &Record) -> Result<(), String> {
        let issued = match &record.fact {
            Fact::Issued { effect, task, what: Effect::Write { knob, value } } => {
                self.issue(*effect, *task, *knob, value)
            }
            _ => Ok(()),
        };
        self.progress.take(record);
        issued
    }

    fn issue(
        &mut self,
        effect: EffectId,
        task: TaskId,
        knob: KnobId,
        value: &Value,
    ) -> Result<(), String> {
        let own = self.progress.plan.task(task);
        let Some(primary) = own.promoted_knob() else { return Ok(()) };
        let known = self.known(task);
        let is_known = |found: &Value| known.iter().any(|value| value.is_met_by(found));
        let at = self.progress.task(task);
        let closes = own.is_closed_by(knob, value);
        if closes && at.is_running {
            let found = at.at.iter().find(|(own, _)| *own == primary).map(|(_, at)| at);
            let wrong = match found {
                None => Some("that nobody looked for".to_owned()),
                Some(found) => (!is_known(found)).then(|| found.to_string()),
            };
            if let Some(found) = wrong {
                let (name, known) = (self.progress.name(task), list(&known));
                return Err(format!("{name} closes its fence over a primary {found}, not {known}"));
            }
        }
        let opens = own.is_opened_by(knob, value);
        if knob == primary || opens {
            self.issued.insert(effect, Issued { task, primary, known, opens });
        }
        Ok(())
    }

    /// The world is about to be changed.
    fn perform(&self, effect: EffectId, what: &Effect, knobs: &[Value]) -> Result<(), String> {
        let (Some(issued), Effect::Write { knob, value }) = (self.issued.get(&effect), what) else {
            return Ok(());
        };
        let Issued { task, primary, known, opens } = issued;
        let (found, before) = (&knobs[primary.index()], &knobs[knob.index()]);
        let is_known = known.iter().any(|value| value.is_met_by(found));
        if is_known || value.is_met_by(before) {
            return Ok(());
        }
        let does = if *opens { "opens its fence over" } else { "promotes over" };
        let (name, known) = (self.progress.name(*task), list(known));
        Err(format!("{name} {does} the primary {found}, not {known}"))
    }
}

fn list(values: &[Value]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(" or ")
}

impl Checker for Primaries {
    fn name(&self) -> &'static str {
        "primaries"
    }

    fn see(&mut self, _now: Time, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Recorded(record) => self.take(record),
            Event::Performing { effect, what, knobs } => self.perform(*effect, what, knobs),
            _ => Ok(()),
        }
    }
}
