//! What people may say to a run, at any moment.

use serde::{Deserialize, Serialize};

use super::record::Mode;
use crate::plan::{ConditionId, Plan, TaskId};

/// One thing that somebody wants of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// No further step: of one task, or of all.
    Pause {
        task: Option<TaskId>,
    },
    Resume {
        task: Option<TaskId>,
    },
    /// Goes on as if the task were done.
    Skip {
        task: TaskId,
    },
    /// Ends a task where it is.
    Stop {
        task: TaskId,
    },
    Retry {
        task: TaskId,
    },
    /// Goes on as if a condition held, for one task, or for all.
    Override {
        condition: ConditionId,
        task: Option<TaskId>,
    },
    /// Larger steps and shorter waits, as far as health allows.
    Accelerate {
        task: Option<TaskId>,
    },
    Approve {
        task: TaskId,
    },
    SetMode {
        mode: Mode,
    },
    /// Sets the limits of the evacuation aside. Takes two people.
    WaiveLimits,
    Abort {
        how: Abort,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Abort {
    /// Everything stays where it is.
    Hold,
    /// Everything goes back, in steps.
    Revert,
}

impl Command {
    /// As people read it: `skip web.shift`.
    pub fn describe(&self, plan: &Plan) -> String {
        let name = |task: &TaskId| plan.task(*task).name.as_str();
        let all = |task: &Option<TaskId>| task.as_ref().map_or("all", name);
        match self {
            Command::Pause { task } => format!("pause {}", all(task)),
            Command::Resume { task } => format!("resume {}", all(task)),
            Command::Skip { task } => format!("skip {}", name(task)),
            Command::Stop { task } => format!("stop {}", name(task)),
            Command::Retry { task } => format!("retry {}", name(task)),
            Command::Override { condition, task } => {
                format!("override {} for {}", plan.condition(*condition).name, all(task))
            }
            Command::Accelerate { task } => format!("accelerate {}", all(task)),
            Command::Approve { task } => format!("approve {}", name(task)),
            Command::SetMode { mode: Mode::Drill } => "go on as a drill".into(),
            Command::SetMode { mode: Mode::Disaster } => "go on as a disaster".into(),
            Command::WaiveLimits => "set the limits aside".into(),
            Command::Abort { how: Abort::Hold } => "abort, hold".into(),
            Command::Abort { how: Abort::Revert } => "abort, revert".into(),
        }
    }
}
