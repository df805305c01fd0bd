//! What people may say to a run, by the names they know.

use drain::engine::{Abort, Command, Mode};
use drain::{ConditionId, Plan, TaskId};
use serde::{Deserialize, Serialize};

/// As in the API: `{"verb": "skip", "task": "web.shift"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verb {
    Pause { task: Option<String> },
    Resume { task: Option<String> },
    Skip { task: String },
    Stop { task: String },
    Retry { task: String },
    Override { condition: String, task: Option<String> },
    Accelerate { task: Option<String> },
    Approve { task: String },
    Mode { mode: Mode },
    // With braces: of one without, serde takes any field.
    Waive {},
    Abort { how: Abort },
}

impl Verb {
    /// The same in the numbers of a plan.
    pub fn command(&self, plan: &Plan) -> Result<Command, String> {
        let some = |name: &Option<String>| name.as_deref().map(|name| task(plan, name)).transpose();
        Ok(match self {
            Verb::Pause { task } => Command::Pause { task: some(task)? },
            Verb::Resume { task } => Command::Resume { task: some(task)? },
            Verb::Accelerate { task } => Command::Accelerate { task: some(task)? },
            Verb::Skip { task: name } => Command::Skip { task: task(plan, name)? },
            Verb::Stop { task: name } => Command::Stop { task: task(plan, name)? },
            Verb::Retry { task: name } => Command::Retry { task: task(plan, name)? },
            Verb::Approve { task: name } => Command::Approve { task: task(plan, name)? },
            Verb::Override { condition: name, task } => {
                Command::Override { condition: condition(plan, name)?, task: some(task)? }
            }
            Verb::Mode { mode } => Command::SetMode { mode: *mode },
            Verb::Waive {} => Command::WaiveLimits,
            Verb::Abort { how } => Command::Abort { how: *how },
        })
    }
}

fn task(plan: &Plan, name: &str) -> Result<TaskId, String> {
    let names = plan.tasks.iter().map(|task| task.name.as_str());
    plan.find_task(name).ok_or_else(|| unknown("task", name, names))
}

fn condition(plan: &Plan, name: &str) -> Result<ConditionId, String> {
    let at = plan.conditions.iter().position(|condition| condition.name == name);
    let names = plan.conditions.iter().map(|condition| condition.name.as_str());
    at.map(|at| ConditionId(at as u32)).ok_or_else(|| unknown("condition", name, names))
}

/// Says that there is no such name, and which there are.
fn unknown<'n>(what: &str, name: &str, names: impl Iterator<Item = &'n str>) -> String {
    const NAMED_MAX: usize = 20;
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("no {what} `{name}` in this run; accepted: {}{more}", names.join(", "))
}
