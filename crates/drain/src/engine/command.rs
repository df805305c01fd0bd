//! What people say to a run: checked, written down with what was observed
//! then, and obeyed.

use std::fmt;

use super::pace::HASTE_MAX;
use super::{Abort, Actor, Command, Fact, People, Phase, Run, Seen, Trigger};
use crate::plan::{ConditionId, StageId, StageKind, Task, TaskId, Undo, UndoBy};
use crate::time::Time;

/// The longest comment of an actor and the longest reason, in bytes: both are
/// kept for ever, in every record that they are part of.
pub const COMMENT_LEN_MAX: usize = 256;
pub const REASON_LEN_MAX: usize = 4096;
/// The most commands that one user may give to one run, and four more for each task:
/// every one is kept for ever. Aborts have a reserve, so that there is always a way out.
pub const COMMANDS_MAX: usize = 1000;
const COMMANDS_PER_TASK_MAX: usize = 4;
const ABORTS_RESERVED: usize = 100;

/// Whether a comment and a reason can be kept. Whoever opens a run asks this first.
pub fn check_said(by: &Actor, reason: &str) -> Result<(), Refusal> {
    let bounded = |what: &str, text: &str, max: usize| match text.len() {
        len if len <= max => Ok(()),
        len => Err(Refusal(format!("{what} has {len} octets; accepted: at most {max}"))),
    };
    bounded("the comment", by.comment.as_deref().unwrap_or_default(), COMMENT_LEN_MAX)?;
    bounded("the reason", reason, REASON_LEN_MAX)
}

/// Why a run does not do what somebody said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    pub(super) fn closed() -> Self {
        Refusal("the run is over; accepted: a new run".into())
    }
}

impl Run {
    pub(super) fn obey(
        &mut self,
        now: Time,
        by: Actor,
        reason: String,
        command: Command,
    ) -> Result<(), Refusal> {
        check_said(&by, &reason)?;
        self.permit_another(&by, &command).map_err(Refusal)?;
        self.permit(&by, &reason, &command).map_err(Refusal)?;
        let observed = self.observed(now, &command);
        self.record(now, Fact::Commanded { by, reason, command: command.clone(), observed });
        let moves = match command {
            Command::Skip { task } => Some((task, Trigger::Skip)),
            Command::Stop { task } => Some((task, Trigger::Stop)),
            Command::Retry { task } => Some((task, Trigger::Retry)),
            _ => None,
        };
        match (moves, command) {
            (Some((task, trigger)), _) => self.move_task(now, task, trigger),
            // Nobody else waits for it, and large plans have many to be given.
            (None, Command::Approve { task }) => self.wake(task),
            (None, _) => self.wake_all(),
        }
        Ok(())
    }

    /// Whether a user has not given too many commands already.
    fn permit_another(&self, by: &Actor, command: &Command) -> Result<(), String> {
        let given = by.uid().and_then(|uid| self.state.commands.get(&uid)).copied().unwrap_or(0);
        let max = COMMANDS_MAX + COMMANDS_PER_TASK_MAX * self.plan.tasks.len();
        let reserved = match command {
            Command::Abort { .. } => ABORTS_RESERVED,
            _ => 0,
        };
        if (given as usize) < max + reserved {
            return Ok(());
        }
        Err(format!(
            "{by} has given {given} commands to this run; accepted: at most {max} by one user \
             (then `abort` alone), or commands by another user"
        ))
    }

    /// Whether somebody may say this now; if not, why, and what would do.
    fn permit(&self, by: &Actor, reason: &str, command: &Command) -> Result<(), String> {
        let needs_reason = matches!(
            command,
            Command::Override { .. }
                | Command::Skip { .. }
                | Command::WaiveLimits
                | Command::Abort { .. }
                | Command::SetMode { .. }
        );
        if needs_reason && reason.trim().is_empty() {
            return Err("no reason is given; accepted: one that a post-mortem can use".into());
        }
        match command {
            Command::Skip { task } => self.permit_move(*task, Trigger::Skip, "skipped"),
            Command::Stop { task } => self.permit_move(*task, Trigger::Stop, "stopped"),
            Command::Retry { task } => self.permit_move(*task, Trigger::Retry, "retried"),
            Command::Approve { task } => self.permit_approval(*task, by),
            Command::Override { condition, task } => self.permit_override(*condition, *task, by),
            Command::Accelerate { task } => self.permit_haste(*task),
            Command::Pause { task } | Command::Resume { task } => {
                task.map_or(Ok(()), |task| self.known(task))
            }
            Command::WaiveLimits => {
                self.state.waived_by.refusal(by, "set the limits aside").map_or(Ok(()), Err)
            }
            Command::SetMode { .. } => Ok(()),
            Command::Abort { how } if self.state.abort == Some(*how) => {
                Err("the run is aborted already, in this way; accepted: the other one".into())
            }
            Command::Abort { how: Abort::Revert } => self.permit_revert(),
            Command::Abort { how: Abort::Hold } => Ok(()),
        }
    }

    /// Whether everything that was done can be undone. What cannot is better
    /// left to a restore than to half of a way back.
    fn permit_revert(&self) -> Result<(), String> {
        let stands_in_the_way = |task: &TaskId| match &self.plan.task(*task).undo {
            Some(Undo { how: UndoBy::Nothing { missing }, .. }) => {
                self.state.task(*task).needs_undo.then(|| missing.join("` and `"))
            }
            _ => None,
        };
        let mut ids = self.plan.task_ids();
        let Some((task, missing)) = ids.find_map(|id| Some((id, stands_in_the_way(&id)?))) else {
            return Ok(());
        };
        let Task { name, template, .. } = self.plan.task(task);
        Err(format!(
            "{name} is done, and a revert would lose what was written since: `{missing}` of its \
             {template} is not given; accepted: `abort`, which leaves everything as it is, and then \
             `restore {}`",
            self.plan.datacenter
        ))
    }

    fn known(&self, task: TaskId) -> Result<(), String> {
        let is_known = task.index() < self.plan.tasks.len();
        is_known.then_some(()).ok_or_else(|| format!("no task {}", task.0))
    }

    fn permit_move(&self, task: TaskId, trigger: Trigger, done: &str) -> Result<(), String> {
        self.known(task)?;
        let phase = self.state.task(task).phase;
        let goes_back_again = self.state.abort == Some(Abort::Revert)
            && (trigger, phase) == (Trigger::Retry, Phase::Unreverted);
        if self.state.abort.is_some() && !goes_back_again {
            return Err("the run is aborted, and ends its tasks itself".into());
        }
        if matches!(trigger, Trigger::Skip | Trigger::Stop) && !self.is_interruptible(task) {
            let stage = &self.state.stage(&self.plan, task).name;
            return Err(format!(
                "{} is in {stage}, between a fence and what lifts it, and cannot be {done}; \
                 accepted: once that is through, or `abort --revert`",
                self.plan.task(task).name
            ));
        }
        let is_skip = trigger == Trigger::Skip && phase.after(trigger).is_some();
        if is_skip && self.people_missing(task) > 0 {
            return Err(format!(
                "{} asks more than one person, and one cannot skip it; accepted: `approve` by {} \
                 more, or `abort`",
                self.plan.task(task).name,
                self.people_missing(task)
            ));
        }
        if phase.after(trigger).is_some() {
            return Ok(());
        }
        let accepted: Vec<String> = Phase::ALL
            .into_iter()
            .filter(|phase| phase.after(trigger).is_some())
            .map(|phase| format!("{phase:?}").to_lowercase())
            .collect();
        Err(format!(
            "{} is {} and cannot be {done}; accepted: a task that is {}",
            self.plan.task(task).name,
            format!("{phase:?}").to_lowercase(),
            accepted.join(", ")
        ))
    }

    /// Whether one person may skip a task now.
    pub fn may_skip(&self, task: TaskId) -> bool {
        self.permit_move(task, Trigger::Skip, "skipped").is_ok()
    }

    /// Whether a person may stop a task now.
    pub fn may_stop(&self, task: TaskId) -> bool {
        self.permit_move(task, Trigger::Stop, "stopped").is_ok()
    }

    /// How many people have not approved yet what takes more than one.
    fn people_missing(&self, task: TaskId) -> usize {
        let state = self.state.task(task);
        if state.phase == Phase::Settling {
            return 0;
        }
        let stages = self.plan.task(task).stages.iter().enumerate();
        let missing = stages.filter_map(|(at, stage)| match (&stage.kind, StageId(at as u32)) {
            (StageKind::Approve { people, .. }, id)
                if *people > 1 && !state.approved.contains(&id) =>
            {
                // Each stage asks for itself.
                let said = if state.stage == id { state.approved_by.len() } else { 0 };
                Some((*people as usize).saturating_sub(said))
            }
            _ => None,
        });
        missing.max().unwrap_or(0)
    }

    fn permit_approval(&self, task: TaskId, by: &Actor) -> Result<(), String> {
        self.known(task)?;
        let (state, name) = (self.state.task(task), &self.plan.task(task).name);
        let stage = self.state.stage(&self.plan, task);
        let asks = state.phase == Phase::Running && matches!(stage.kind, StageKind::Approve { .. });
        if !asks {
            return Err(format!("{name} does not ask for approval now"));
        }
        state.approved_by.refusal(by, &format!("approved {name}")).map_or(Ok(()), Err)
    }

    fn permit_override(
        &self,
        id: ConditionId,
        task: Option<TaskId>,
        by: &Actor,
    ) -> Result<(), String> {
        let condition = self.plan.conditions.get(id.index());
        let condition = condition.ok_or_else(|| format!("no condition {}", id.0))?;
        if self.plan.condition(id).is_exact {
            let none = People::default();
            let people = self.state.exact_overridden_by.get(&(id, task)).unwrap_or(&none);
            people.refusal(by, &format!("overridden {}", condition.name)).map_or(Ok(()), Err)?;
        }
        let Some(task) = task else { return Ok(()) };
        self.permit_change(task, "a condition overridden")?;
        let own = self.plan.task(task);
        if self.plan.health.contains(&id) || own.conditions().any(|own| own == id) {
            return Ok(());
        }
        Err(format!(
            "{} does not look at {}; accepted: a condition of its own, or of all datacenters",
            own.name, condition.name
        ))
    }

    fn permit_haste(&self, task: Option<TaskId>) -> Result<(), String> {
        let Some(task) = task else { return Ok(()) };
        self.permit_change(task, "more speed")?;
        match self.state.task(task).haste < HASTE_MAX {
            true => Ok(()),
            false => Err(format!("{} goes as fast as it may already", self.plan.task(task).name)),
        }
    }

    /// Whether it makes a difference how a task goes on.
    fn permit_change(&self, task: TaskId, what: &str) -> Result<(), String> {
        self.known(task)?;
        let phase = self.state.task(task).phase;
        let goes_on = match phase {
            Phase::Done | Phase::Skipped => self.state.abort == Some(Abort::Revert),
            // It can be retried.
            Phase::Reverted | Phase::Unreverted => self.state.abort.is_none(),
            Phase::Abandoned => false,
            _ => true,
        };
        if goes_on {
            return Ok(());
        }
        let (name, phase) = (&self.plan.task(task).name, format!("{phase:?}").to_lowercase());
        Err(format!("{name} is {phase}, and {what} changes nothing; accepted: a task that goes on"))
    }

    /// What was known of the conditions that a command is about.
    fn observed(&self, now: Time, command: &Command) -> Vec<Seen> {
        let task = match command {
            Command::Skip { task }
            | Command::Stop { task }
            | Command::Retry { task }
            | Command::Approve { task }
            | Command::Override { task: Some(task), .. }
            | Command::Pause { task: Some(task) }
            | Command::Resume { task: Some(task) }
            | Command::Accelerate { task: Some(task) } => Some(*task),
            _ => None,
        };
        let mut conditions: Vec<ConditionId> = self.plan.health.clone();
        conditions.extend(task.into_iter().flat_map(|task| self.plan.task(task).conditions()));
        if let Command::Override { condition, .. } = command {
            conditions.push(*condition);
        }
        conditions.sort_unstable();
        conditions.dedup();
        let seen = |condition| Seen { condition, value: self.value(condition, now) };
        conditions.into_iter().map(seen).collect()
    }
}
