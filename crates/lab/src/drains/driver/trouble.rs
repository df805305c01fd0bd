//! What happens to a run from outside: faults, people, and somebody who tidies
//! up after both.

use drain::engine::{Command, Event as Happening, Hold, Phase, State};
use drain::fleet::Fleet;
use drain::{KnobId, Millis, StageKind, TaskId};

use super::Driver;
use crate::drains::checkers::Event;
use crate::drains::faults::{ANN, BOB, Fault, Manner, Person};
use crate::drains::sabotage::Sabotage;
use crate::drains::world::Dial;

/// How often somebody tries again what does not work, and how long what may
/// never hold is waited for.
const RETRIES_MAX: u32 = 6;
const AWAITED_MAX: Millis = Millis::from_secs(1800);

impl Driver {
    pub(super) fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { back_after } => self.crash(back_after),
            Fault::Lie { condition, lie, until } => {
                self.tally.lies += 1;
                self.lies.insert(condition, (lie, until.min(self.faults.until)));
            }
            Fault::Drift { knob, value } => {
                self.tally.drifts += 1;
                let dial = self.dials[knob.index()].clone();
                // Some knobs take no number.
                if self.world.turn(&dial, &value).is_ok() {
                    self.see(&Event::Meddled { knob, value: Some(&value) });
                }
                // Who lets new sessions in lets them stay.
                if let Dial::Weight(service, place) = dial {
                    let sessions = Dial::Sessions(service, place);
                    let also = self.dials.iter().position(|own| *own == sessions);
                    also.into_iter().for_each(|at| {
                        self.see(&Event::Meddled { knob: KnobId(at as u32), value: None });
                    });
                }
            }
            Fault::Break { knob, is_refused, until } => {
                self.broken.insert(knob, (is_refused, until.min(self.faults.until)));
            }
            Fault::Use { knob, until } => {
                // By the clock of the run, and not beyond the trouble.
                let until = until.min(self.faults.until);
                let until = drain::Time(until.0.saturating_add_signed(self.skew));
                if !self.claims.contains_key(&knob) {
                    self.used.insert(knob, until);
                    self.see(&Event::Used { knob, until });
                }
            }
            Fault::Say { by, command } => self.say(by, command),
            Fault::Fleet { drained } => self.announce(drained),
            Fault::Outage { how, until } => {
                self.tally.outages += 1;
                let until = until.min(self.faults.until);
                let lies = how.lies(&self.plan).into_iter();
                self.lies.extend(lies.map(|(condition, lie)| (condition, (lie, until))));
            }
            Fault::Jump { by } => {
                self.tally.jumps += 1;
                self.skew += by;
                self.tell(Happening::Tick);
            }
        }
    }

    pub(super) fn announce(&mut self, drained: Vec<f64>) {
        self.fleet.clone_from(&drained);
        if self.run.is_some() {
            self.see(&Event::Fleet { drained: &drained });
            if self.sabotage != Some(Sabotage::DeafToOthers) {
                let fleet = self.position(&drained);
                self.tell(Happening::Fleet { fleet });
            }
        }
    }

    /// The fleet with so much of each datacenter drained, of whatever service.
    fn position(&self, drained: &[f64]) -> Fleet {
        let row: Vec<Option<f64>> = drained.iter().map(|own| Some(1.0 - own)).collect();
        Fleet {
            multipliers: vec![row; self.plan.traffic.len()],
            runs: vec![None; self.plan.datacenters.len()],
        }
    }

    pub(super) fn say(&mut self, by: Person, command: Command) {
        if self.run.is_some() {
            self.tally.obeyed += 1;
            self.see(&Event::Said { uid: by.uid });
            let by = match self.sabotage {
                // The name decides who it is.
                Some(Sabotage::TypedNames) => {
                    Person { uid: u32::from(by.typed.as_bytes()[0]), ..by }
                }
                _ => by,
            };
            let (by, reason) = (by.actor(), "a simulation".to_owned());
            self.tell(Happening::Said { by, reason, command });
        }
    }

    /// Once nothing goes wrong any more, somebody sees to what waits for people.
    pub(super) fn tidy(&mut self) {
        if self.now < self.faults.until || self.run.is_none() {
            return;
        }
        self.announce(vec![0.0; self.plan.datacenters.len()]);
        let state = self.state();
        if state.paused {
            self.say(ANN, Command::Resume { task: None });
        }
        for task in self.plan.task_ids() {
            let has_approved = !state.task(task).approved_by.is_empty();
            let by = if has_approved { BOB } else { ANN };
            if let Some(command) = self.wants(&state, task) {
                if let Command::Retry { task } = command {
                    *self.retried.entry(task).or_default() += 1;
                }
                self.say(by, command);
            }
        }
    }

    /// What a task needs of a person, if anything.
    pub(super) fn wants(&self, state: &State, task: TaskId) -> Option<Command> {
        let own = state.task(task);
        let stage = &self.plan.task(task).stages[own.stage.index()];
        let is_contested = state
            .knobs
            .iter()
            .flatten()
            .any(|left| left.task == task && left.drifts >= drain::engine::DRIFTS_MAX);
        let asks = matches!(stage.kind, StageKind::Approve { .. });
        let gives_up = self.faults.gives_up;
        let has_tried =
            gives_up && self.retried.get(&task).is_some_and(|times| *times >= RETRIES_MAX);
        match own.phase {
            _ if own.paused || is_contested => Some(Command::Resume { task: Some(task) }),
            Phase::Failed | Phase::Stopped | Phase::Reverted if state.abort.is_none() => {
                // What was skipped elsewhere may never be found as it should be.
                Some(if has_tried { Command::Skip { task } } else { Command::Retry { task } })
            }
            Phase::Unreverted if state.abort.is_none() => Some(Command::Skip { task }),
            Phase::Running if asks => match self.faults.manner {
                Manner::Approve => Some(Command::Approve { task }),
                Manner::Skip => Some(Command::Skip { task }),
                Manner::Ignore => None,
            },
            // Who looks again and again at what never comes is gone on without.
            Phase::Running
                if gives_up
                    && own.is_stuck
                    && matches!(
                        stage.kind,
                        StageKind::TimedWait { .. } | StageKind::Check { .. }
                    ) =>
            {
                Some(Command::Skip { task })
            }
            _ => match own.hold {
                Some((since, Hold::Awaits { condition, .. }))
                    if gives_up && self.clock() - since > AWAITED_MAX =>
                {
                    Some(Command::Override { condition, task: Some(task) })
                }
                _ => None,
            },
        }
    }
}
