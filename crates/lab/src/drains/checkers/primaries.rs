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
    /// Counts events, whatever the clock of the run does.
    seen: u64,
    /// When each task came to its stage, and somebody else last turned each knob.
    entered: BTreeMap<TaskId, u64>,
    turned: BTreeMap<KnobId, u64>,
}

/// What a promotion writes, and who may be primary then.
#[derive(Debug)]
struct Issued {
    task: TaskId,
    primary: KnobId,
    known: Vec<Value>,
    does: Does,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Close,
    Promote,
    Open,
}

impl Primaries {
    pub fn new(plan: &Arc<Plan>) -> Self {
        Primaries {
            progress: Progress::new(plan),
            issued: BTreeMap::new(),
            seen: 0,
            entered: BTreeMap::new(),
            turned: BTreeMap::new(),
        }
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

    fn take(&mut self, record: &Record) {
        match &record.fact {
            Fact::Issued { effect, task, what: Effect::Write { knob, value } } => {
                self.issue(*effect, *task, *knob, value);
            }
            Fact::Entered { task, .. } => {
                self.entered.insert(*task, self.seen);
            }
            _ => {}
        }
        self.progress.take(record);
    }

    fn issue(&mut self, effect: EffectId, task: TaskId, knob: KnobId, value: &Value) {
        let own = self.progress.plan.task(task);
        let Some(primary) = own.promoted_knob() else { return };
        let does = match () {
            () if knob == primary => Does::Promote,
            () if own.is_opened_by(knob, value) => Does::Open,
            // An undo closes its fence whoever is primary.
            () if own.is_closed_by(knob, value) && self.progress.task(task).is_running => {
                Does::Close
            }
            () => return,
        };
        let known = self.known(task);
        self.issued.insert(effect, Issued { task, primary, known, does });
    }

    /// The world is about to be changed.
    fn perform(&self, effect: EffectId, what: &Effect, knobs: &[Value]) -> Result<(), String> {
        let (Some(issued), Effect::Write { knob, value }) = (self.issued.get(&effect), what) else {
            return Ok(());
        };
        let Issued { task, primary, known, does } = issued;
        let (found, before) = (&knobs[primary.index()], &knobs[knob.index()]);
        let is_known = known.iter().any(|value| value.is_met_by(found));
        // Before a fence is closed the primary is read, but not right before.
        let is_news = *does == Does::Close && self.turned.get(primary) > self.entered.get(task);
        if is_known || is_news || value.is_met_by(before) {
            return Ok(());
        }
        let does = match does {
            Does::Close => "closes its fence over",
            Does::Promote => "promotes over",
            Does::Open => "opens its fence over",
        };
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
        self.seen += 1;
        match event {
            Event::Recorded(record) => {
                self.take(record);
                Ok(())
            }
            Event::Meddled { knob, .. } => {
                self.turned.insert(*knob, self.seen);
                Ok(())
            }
            Event::Performing { effect, what, knobs } => self.perform(*effect, what, knobs),
            _ => Ok(()),
        }
    }
}
