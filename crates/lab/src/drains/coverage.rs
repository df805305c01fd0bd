//! What a run came through: how its stages ended, and which templates it was
//! made of. What no run ever comes to is tested by none.

use std::collections::BTreeMap;

use drain::engine::{Fact, Record, Trigger};
use drain::{Outcome, Plan, StageId, StageKind};

/// Counts of what runs came through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Stages that ended, by `Kind outcome`, such as `Barrier late`.
    pub stages: BTreeMap<String, u32>,
    /// Tasks that were done, by their template.
    pub templates: BTreeMap<String, u32>,
}

impl Coverage {
    pub fn of(plan: &Plan, log: &[Record]) -> Self {
        let mut coverage = Coverage::default();
        let mut is_running = vec![false; plan.tasks.len()];
        for record in log {
            match record.fact {
                Fact::Moved { task, trigger } => {
                    is_running[task.index()] = trigger == Trigger::Start;
                    if trigger == Trigger::Settle {
                        let template = plan.task(task).template.clone();
                        *coverage.templates.entry(template).or_default() += 1;
                    }
                }
                // On its way back a task leaves the same stage once for each knob.
                Fact::Left { task, stage, outcome } if is_running[task.index()] => {
                    let kind = kind(&plan.task(task).stages[stage.index()].kind);
                    let ended = match outcome {
                        Outcome::Done => "done",
                        Outcome::Failed => "failed",
                        Outcome::Late => "late",
                    };
                    *coverage.stages.entry(format!("{kind} {ended}")).or_default() += 1;
                }
                _ => {}
            }
        }
        coverage
    }

    /// What each record is: what it says, why if a task moves, what a person said,
    /// and in which kind of stage the task is that it is about.
    pub fn labels(plan: &Plan, log: &[Record]) -> Vec<String> {
        let mut at = vec![StageId(0); plan.tasks.len()];
        let mut effects = BTreeMap::new();
        let mut labels = Vec::with_capacity(log.len());
        for Record { fact, .. } in log {
            let task = match fact {
                Fact::Entered { task, stage } => {
                    at[task.index()] = *stage;
                    Some(*task)
                }
                Fact::Issued { effect, task, .. } => {
                    effects.insert(*effect, *task);
                    Some(*task)
                }
                Fact::Ended { effect, .. } => effects.get(effect).copied(),
                Fact::Moved { task, .. }
                | Fact::Left { task, .. }
                | Fact::Failed { task, .. }
                | Fact::Found { task, .. }
                | Fact::Held { task, .. }
                | Fact::Released { task }
                | Fact::Stuck { task } => Some(*task),
                _ => None,
            };
            let stage = task.map(|task| &plan.task(task).stages[at[task.index()].index()].kind);
            labels.push(format!("{} {}", word(fact), stage.map_or("", kind)).trim_end().to_owned());
        }
        labels
    }

    pub fn add(&mut self, other: &Coverage) {
        for (own, other) in
            [(&mut self.stages, &other.stages), (&mut self.templates, &other.templates)]
        {
            for (name, count) in other {
                *own.entry(name.clone()).or_default() += count;
            }
        }
    }
}

/// As runbooks call it. Another kind of stage has to be given a name here, and
/// then to be drawn.
fn kind(of: &StageKind) -> &'static str {
    match of {
        StageKind::Shift { .. } => "Shift",
        StageKind::Set { .. } => "Set",
        StageKind::PutBack { .. } => "PutBack",
        StageKind::Verify { .. } => "Verify",
        StageKind::Govern { .. } => "Govern",
        StageKind::Act(_) => "Act",
        StageKind::Await { .. } => "Await",
        StageKind::Check { .. } => "Check",
        StageKind::TimedWait { .. } => "TimedWait",
        StageKind::Barrier { .. } => "Barrier",
        StageKind::Approve { .. } => "Approve",
        StageKind::Say(saying) if saying.channel.is_some() => "Notify",
        StageKind::Say(_) => "ChangeLog",
    }
}

/// What a record says, in a word or two, as it is kept.
fn word(fact: &Fact) -> String {
    let of = |value: serde_json::Value| match value {
        serde_json::Value::String(word) => word,
        serde_json::Value::Object(map) => map.keys().next().cloned().unwrap_or_default(),
        other => other.to_string(),
    };
    let word = |value: Result<serde_json::Value, _>| value.map(of).unwrap_or_default();
    match fact {
        Fact::Moved { trigger, .. } => word(serde_json::to_value(trigger)),
        Fact::Left { outcome, .. } => format!("left {}", word(serde_json::to_value(outcome))),
        Fact::Ended { result, .. } => format!("ended {}", word(serde_json::to_value(result))),
        Fact::Held { why, .. } => format!("held {}", word(serde_json::to_value(why))),
        Fact::Commanded { command, .. } => word(serde_json::to_value(command)),
        other => word(serde_json::to_value(other)),
    }
}
