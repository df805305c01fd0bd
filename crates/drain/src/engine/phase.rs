//! The life of a task, as one table.

use serde::{Deserialize, Serialize};

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// For its parents, its conditions, or its turn.
    Waiting,
    Running,
    /// Its stages are through; its post-conditions do not hold yet.
    Settling,
    Done,
    /// Somebody said to go on without it. Counts as complete.
    Skipped,
    /// It needs somebody: to retry it, skip it, or abort the run.
    Failed,
    /// Somebody stopped it. It can be retried, or skipped.
    Stopped,
    /// Its knobs go back to where they were, in steps.
    Reverting,
    Reverted,
    /// Its knobs could not be put back, or it did what cannot be undone.
    Unreverted,
    /// The run was aborted; it stays as it was then.
    Abandoned,
}

/// What happens to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Parents are complete, pre-conditions hold.
    Start,
    /// The stages ended well.
    StagesDone,
    StagesFailed,
    /// The post-conditions hold.
    Settle,
    Skip,
    Stop,
    Retry,
    /// The run is aborted and stays as it is.
    Abandon,
    /// The run is aborted and put back.
    Revert,
    RevertDone,
    RevertFailed,
}

impl Phase {
    pub const ALL: [Phase; 11] = [
        Phase::Waiting,
        Phase::Running,
        Phase::Settling,
        Phase::Done,
        Phase::Skipped,
        Phase::Failed,
        Phase::Stopped,
        Phase::Reverting,
        Phase::Reverted,
        Phase::Unreverted,
        Phase::Abandoned,
    ];

    /// The phase after `trigger`; `None` if it does not apply.
    ///
    /// What is retried waits first: its pre-conditions must hold again. What was
    /// abandoned never starts again.
    pub fn after(self, trigger: Trigger) -> Option<Phase> {
        use {Phase as P, Trigger as T};
        let next = match (self, trigger) {
            (P::Waiting, T::Start) => P::Running,
            (P::Running, T::StagesDone) => P::Settling,
            (P::Running, T::StagesFailed) => P::Failed,
            (P::Settling, T::Settle) => P::Done,
            (P::Failed | P::Stopped | P::Reverted, T::Retry) => P::Waiting,
            (P::Unreverted, T::Retry) => P::Reverting,
            (
                P::Waiting
                | P::Running
                | P::Settling
                | P::Failed
                | P::Stopped
                | P::Reverted
                | P::Unreverted,
                T::Skip,
            ) => P::Skipped,
            (P::Waiting | P::Running | P::Settling, T::Stop) => P::Stopped,
            (
                P::Waiting | P::Running | P::Settling | P::Failed | P::Stopped | P::Reverting,
                T::Abandon,
            ) => P::Abandoned,
            (
                P::Waiting
                | P::Running
                | P::Settling
                | P::Done
                | P::Skipped
                | P::Failed
                | P::Stopped,
                T::Revert,
            ) => P::Reverting,
            (P::Reverting, T::RevertDone) => P::Reverted,
            (P::Reverting, T::RevertFailed) => P::Unreverted,
            _ => return None,
        };
        Some(next)
    }

    /// Whether tasks that wait for it need not wait any longer.
    pub fn is_complete(self) -> bool {
        matches!(self, Phase::Done | Phase::Skipped)
    }

    /// Whether its knobs are to stay where it left them. What failed, or was
    /// stopped or skipped, is in somebody's hands.
    pub fn keeps_knobs(self) -> bool {
        self.is_active() || matches!(self, Phase::Done | Phase::Reverted)
    }

    /// Whether nothing will happen to it any more, unless the run is aborted.
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            Phase::Done | Phase::Skipped | Phase::Reverted | Phase::Unreverted | Phase::Abandoned
        )
    }

    /// Whether something is done for it, or waited for.
    pub fn is_active(self) -> bool {
        matches!(self, Phase::Running | Phase::Settling | Phase::Reverting)
    }
}

impl Trigger {
    pub const ALL: [Trigger; 11] = [
        Trigger::Start,
        Trigger::StagesDone,
        Trigger::StagesFailed,
        Trigger::Settle,
        Trigger::Skip,
        Trigger::Stop,
        Trigger::Retry,
        Trigger::Abandon,
        Trigger::Revert,
        Trigger::RevertDone,
        Trigger::RevertFailed,
    ];
}

/// How many tasks are in each phase: to ask all of them takes as long as there
/// are tasks, and it is asked after each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census([usize; Phase::ALL.len()]);

impl Census {
    pub fn has(&self, is: impl Fn(Phase) -> bool) -> bool {
        Phase::ALL.into_iter().any(|phase| is(phase) && self.0[phase as usize] > 0)
    }

    pub(super) fn move_one(&mut self, from: Phase, to: Phase) {
        self.0[from as usize] -= 1;
        self.0[to as usize] += 1;
    }
}

impl FromIterator<Phase> for Census {
    fn from_iter<P: IntoIterator<Item = Phase>>(phases: P) -> Self {
        let mut census = Census::default();
        phases.into_iter().for_each(|phase| census.0[phase as usize] += 1);
        census
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn every_pair_of_phase_and_trigger() {
        let mut table = String::new();
        for phase in Phase::ALL {
            for trigger in Trigger::ALL {
                let next = phase.after(trigger);
                let next = next.map_or("-".to_owned(), |next| format!("{next:?}"));
                writeln!(
                    table,
                    "{:<11} {:<13} {next}",
                    format!("{phase:?}"),
                    format!("{trigger:?}")
                )
                .unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn what_every_phase_means() {
        let mut table = String::from("            complete active keeps-knobs ended\n");
        for phase in Phase::ALL {
            let shown = |is: bool| if is { "yes" } else { "-" };
            writeln!(
                table,
                "{:<11} {:<8} {:<6} {:<11} {}",
                format!("{phase:?}"),
                shown(phase.is_complete()),
                shown(phase.is_active()),
                shown(phase.keeps_knobs()),
                shown(phase.has_ended())
            )
            .unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn an_abort_ends_every_phase_in_one_that_is_stated() {
        let stated = |phase: Phase| {
            matches!(phase, Phase::Abandoned | Phase::Reverted | Phase::Unreverted | Phase::Done)
                || phase == Phase::Skipped
        };
        for phase in Phase::ALL {
            let held = phase.after(Trigger::Abandon).unwrap_or(phase);
            assert!(stated(held), "{phase:?} stays {held:?}");
            let reverted = match phase.after(Trigger::Revert).unwrap_or(phase) {
                Phase::Reverting => Phase::Reverting.after(Trigger::RevertDone).unwrap(),
                other => other,
            };
            assert!(stated(reverted), "{phase:?} becomes {reverted:?}");
        }
    }
}
