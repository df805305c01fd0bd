//! What a running task does in each kind of stage.

use super::gate::Gate;
use super::pace::{Circumstances, next_stop, stop_after, wait};
use super::{
    ATTEMPTS_MAX, CIRCLE_PAUSE, Effect, EffectId, Fact, Hold, Phase, RETRY_MAX, RETRY_MIN, Run,
    Shifted, Trigger,
};
use crate::plan::{
    ConditionId, Direction, Exit, Goal, KnobId, Next, OnBreach, Outcome, Pace, StageId, StageKind,
    TaskId,
};
use crate::report::describe;
use crate::time::{Millis, Time};
use crate::value::Value;

/// How long it counts that a fence was seen closed. It is read once more right before the
/// effect is done.
const VERIFIED_FOR: Millis = Millis::from_secs(5);

/// How long a task of a run that was aborted waits for a primary that cannot be read.
const UNREAD_MAX: Millis = Millis::from_secs(60);

/// How often a knob is read whose task a limit holds.
pub(super) const LIMITED_LOOK: Millis = Millis::from_secs(3);

impl Run {
    /// Does what is due in the stage that a task is in.
    pub(super) fn advance(&mut self, now: Time, task: TaskId) {
        if self.state.task(task).in_flight.is_some() || self.goes_in_circles(now, task) {
            return;
        }
        let plan = self.plan.clone();
        let stage = self.state.stage(&plan, task);
        if self.state.task(task).failures >= ATTEMPTS_MAX {
            return self.leave(now, task, Outcome::Failed);
        }
        if let Some(ends) = self.ends_late(task) {
            if now >= ends {
                return self.leave(now, task, Outcome::Late);
            }
            self.wake_at(task, ends);
        }
        if self.retries_later(now, task) || self.begins_again_at_fence(now, task) {
            return;
        }
        if self.state.task(task).phase == Phase::Running && self.govern(now, task) {
            return;
        }
        match &stage.kind {
            StageKind::Shift { knob, to } => self.shift(now, task, *knob, to),
            StageKind::Set { knob, to, .. } => self.set(now, task, *knob, to),
            StageKind::PutBack { knob } => self.put_back(now, task, *knob),
            StageKind::Verify { knob, .. } => match self.state.task(task).verified {
                Some(true) => self.leave(now, task, Outcome::Done),
                Some(false) => self.leave(now, task, Outcome::Failed),
                None => self.look_first(now, task, *knob),
            },
            StageKind::Govern { knob, budget } => self.begin_to_govern(now, task, *knob, *budget),
            StageKind::Act(act) => self.act(now, task, Effect::Act(act.clone())),
            StageKind::Say(saying) if !self.state.task(task).stage_done => {
                self.issue(now, task, Effect::Say(saying.clone()));
            }
            StageKind::Say(_) => self.leave(now, task, Outcome::Done),
            StageKind::Await { condition } => self.await_condition(now, task, *condition),
            StageKind::Check { condition } => self.check(now, task, *condition),
            StageKind::TimedWait { span } => {
                let ends = self.state.task(task).entered + *span;
                if now >= ends {
                    self.leave(now, task, Outcome::Done);
                } else {
                    self.wake_at(task, ends);
                }
            }
            StageKind::Barrier { name } => {
                if self.all_are_at(name) {
                    self.leave(now, task, Outcome::Done);
                }
            }
            StageKind::Approve { people, .. } => {
                if self.state.task(task).approved_by.len() as u32 >= *people {
                    self.leave(now, task, Outcome::Done);
                }
            }
        }
    }

    /// What a fence is there for is done only right after the fence was seen closed,
    /// and all that was waited for was seen behind it. After a try in vain, a crash or
    /// a fence that was open meanwhile nothing of that is known: it begins again with
    /// the fence. If the primary is neither what it was nor what it is to be, nothing
    /// measures what is missing: that takes a person.
    fn begins_again_at_fence(&mut self, now: Time, task: TaskId) -> bool {
        let plan = self.plan.clone();
        let (own, state) = (plan.task(task), self.state.task(task));
        let stage = state.stage;
        if state.stage_done || !own.is_guarded(stage) {
            return false;
        }
        let (fence, verify) = (own.fence_before(stage), own.verified_before(stage));
        let is_old = state.verified_at.is_none_or(|at| now < at || now - at > VERIFIED_FOR);
        // What was waited for behind the fence still is so: reading it may take its time.
        let waits = own.stages[fence.map_or(0, StageId::index)..stage.index()].iter();
        let waits = waits.filter_map(|own| match own.kind {
            StageKind::Await { condition } => Some(condition),
            _ => None,
        });
        let is_nothing_missing = matches!(self.judge(now, task, waits), Gate::Open { .. });
        let knob = match own.stages[stage.index()].kind {
            StageKind::Set { knob, .. } | StageKind::PutBack { knob } => Some(knob),
            _ => None,
        };
        let begins_with = match (state.failures, knob, &state.found_again) {
            (0, ..) if state.is_fence_disturbed || !is_nothing_missing => fence,
            (0, ..) if is_old && verify.is_none() => {
                let knob = fence.and_then(|fence| own.closed_in(fence));
                knob.into_iter().for_each(|knob| self.look_first(now, task, knob));
                return knob.is_some();
            }
            (0, ..) if is_old => verify,
            (0, ..) => None,
            _ if state.tries_in_vain >= ATTEMPTS_MAX || self.was_opened_unread(task) => {
                self.leave(now, task, Outcome::Failed);
                return true;
            }
            (_, Some(knob), None) => {
                self.look_first(now, task, knob);
                return true;
            }
            (_, Some(knob), Some(found)) if !self.is_unpromoted(task, knob, found) => {
                // Nothing measures what is missing any more, whoever changed it.
                self.leave(now, task, Outcome::Failed);
                return true;
            }
            _ => fence,
        };
        let Some(begins_with) = begins_with else { return false };
        if let Some(why) = self.state.task(task).last_failure.clone() {
            let why = format!("{}: {why}", own.stages[stage.index()].name);
            self.record(now, Fact::Failed { task, why });
        }
        self.release(now, task);
        self.record(now, Fact::Entered { task, stage: begins_with });
        self.stride(now, task);
        self.wake(task);
        true
    }

    /// Whether a value of a knob that a task promotes, or promotes back, is the one
    /// from before that.
    fn is_unpromoted(&self, task: TaskId, knob: KnobId, value: &Value) -> bool {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let before = match state.is_undoing {
            true => own.goal_of(knob),
            false => self.fenced_primary(task).or(state.origin(knob)),
        };
        before.is_some_and(|before| before.is_met_by(value))
    }

    /// The primary that the fence of a task on its way there keeps from taking writes. On the
    /// way back that is what was promoted, or what was promoted back since.
    fn fenced_primary(&self, task: TaskId) -> Option<&Value> {
        let state = self.state.task(task);
        let is_on_way = state.phase == Phase::Running;
        self.plan.task(task).fenced_primary(state.stage).filter(|_| is_on_way)
    }

    /// Who may be the primary where a task changes that: the one that its fence keeps from
    /// taking writes, and the one that is promoted. Nothing tells what any other has.
    fn known_primaries(&self, task: TaskId) -> Vec<Value> {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let origin = own.undone_knob().and_then(|primary| state.origin(primary));
        let known = match self.fenced_primary(task) {
            Some(fenced) => [Some(fenced), own.undone_goal()],
            None => [origin, own.undone_goal()],
        };
        known.into_iter().flatten().cloned().collect()
    }

    /// When the stage that a task is in is late: so long after it was entered. A task
    /// that waits for its claim is not late: what another one has counts from the
    /// moment in which it changes something.
    fn ends_late(&self, task: TaskId) -> Option<Time> {
        let (stage, state) = (self.state.stage(&self.plan, task), self.state.task(task));
        let sets = matches!(stage.kind, StageKind::Set { .. } | StageKind::PutBack { .. });
        let since = match sets && self.has_claims_of(task) {
            // Writes are refused already.
            true if self.fences_again(task) => state.begun.unwrap_or(state.entered),
            true => state.begun?,
            false => state.entered,
        };
        // A fence that was set waits until the primary was read, but not for ever.
        let is_through = sets && state.stage_done && self.unread_primary(task).is_none();
        stage.timeout.filter(|_| !is_through).map(|timeout| since + timeout)
    }

    /// Whether an effect that failed is to be tried again, but not yet.
    pub(super) fn retries_later(&mut self, now: Time, task: TaskId) -> bool {
        let state = self.state.task(task);
        if state.failures == 0 || state.failures >= ATTEMPTS_MAX {
            return false;
        }
        let pause = Millis(RETRY_MIN.0 << (state.failures - 1).min(16)).min(RETRY_MAX);
        let at = state.failed_at + pause;
        if now < at {
            self.wake_at(task, at);
        }
        now < at
    }

    pub(super) fn leave(&mut self, now: Time, task: TaskId, outcome: Outcome) {
        let plan = self.plan.clone();
        let (stage, id) = (self.state.stage(&plan, task), self.state.task(task).stage);
        let is_undo = self.state.task(task).phase == Phase::Reverting;
        let why = (outcome != Outcome::Done).then(|| self.why_ended(task, outcome));
        self.release(now, task);
        self.record(now, Fact::Left { task, stage: id, outcome });
        if let Some(why) = why {
            self.record(now, Fact::Failed { task, why });
        }
        match stage.next(outcome) {
            Next::Stage(stage) => {
                self.record(now, Fact::Entered { task, stage });
                self.stride(now, task);
                self.wake(task);
                self.wake_barriers(task);
            }
            // What an undo has done is written down with its last stage.
            Next::Exit(Exit::Done) if is_undo => self.wake(task),
            Next::Exit(Exit::Failed) if is_undo => {
                self.move_task(now, task, Trigger::RevertFailed);
            }
            Next::Exit(Exit::Done) => self.move_task(now, task, Trigger::StagesDone),
            Next::Exit(Exit::Failed) => self.move_task(now, task, Trigger::StagesFailed),
        }
    }

    /// Why the stage that a task is in does not end well.
    fn why_ended(&self, task: TaskId, outcome: Outcome) -> String {
        let (stage, state) = (self.state.stage(&self.plan, task), self.state.task(task));
        let name = &stage.name;
        let condition = match stage.kind {
            StageKind::Check { condition } | StageKind::Await { condition } => Some(condition),
            _ => None,
        };
        if let Some(primary) = self.unread_primary(task).filter(|_| self.was_opened_unread(task)) {
            let primary = self.plan.knob(primary);
            return format!("{name}: {primary} cannot be read, and the fence was opened meanwhile");
        }
        let judged = condition.map(|id| {
            let value = self.value(id, self.last);
            describe(&self.plan, &Hold::Awaits { condition: id, value })
        });
        match (outcome, &stage.kind) {
            (_, StageKind::PutBack { .. } | StageKind::Set { .. })
                if state.found_again.is_none()
                    && self.state.abort.is_some()
                    && let Some(primary) = self.unread_primary(task) =>
            {
                format!("{name}: {}", self.why_unread(task, primary))
            }
            (Outcome::Late, _) => {
                let span = stage.timeout.unwrap_or_default();
                let held = state.hold.as_ref().map(|(_, why)| describe(&self.plan, why));
                match judged.or(held).or_else(|| state.last_failure.clone()) {
                    Some(why) => format!("{name} was not through within {span}: {why}"),
                    None => format!("{name} was not through within {span}"),
                }
            }
            (_, StageKind::Verify { knob, to }) => {
                let knob = self.plan.knob(*knob);
                format!("{name}: {knob} is not {to} any more")
            }
            (_, StageKind::PutBack { knob } | StageKind::Set { knob, .. })
                if self.plan.task(task).closed_in(state.stage).is_none()
                    && let Some(why) = self.why_kept_closed(task, *knob) =>
            {
                format!("{name}: {why}; accepted: see to it that one does, then `retry`")
            }
            (_, StageKind::Set { knob, .. })
                if state.stage_done
                    && self.is_changed_back(task, *knob)
                    && let Some(primary) = self.plan.task(task).undone_knob()
                    && let Some(seen) = &state.seen_primary =>
            {
                format!(
                    "{name}: {} is {seen} again: something else changed it back after it was \
                     promoted; accepted: `abort`, or promote it by hand and `retry`",
                    self.plan.knob(primary)
                )
            }
            (_, StageKind::Set { knob, .. } | StageKind::PutBack { knob })
                if let Some(found) = state.found_again.as_ref().filter(|_| state.failures > 0) =>
            {
                let why = state.last_failure.as_deref().unwrap_or("it failed");
                format!(
                    "{name}: {why}; {} is {found}, and nothing tells what is missing: accepted: \
                     see to it that one server takes writes, then `retry`",
                    self.plan.knob(*knob)
                )
            }
            (_, StageKind::Set { knob, to, .. })
                if self.begins_in_vain(task, *knob, to.value()) =>
            {
                let why = state.failure.as_ref().map_or(String::new(), |why| format!(", {why}"));
                format!(
                    "{name}: {} was closed {} times in vain: it could not be read, was opened, or \
                     what had arrived behind it had not any more{why}",
                    self.plan.knob(*knob),
                    state.begun_again
                )
            }
            (_, StageKind::Set { knob, .. })
                if let Some(found) = &state.found_again
                    && let Some(primary) = self.plan.task(task).undone_knob()
                    && self.plan.task(task).is_fence(*knob) =>
            {
                let primary = self.plan.knob(primary);
                match self.plan.task(task).fenced_primary(state.stage) {
                    Some(fenced) => format!(
                        "{name}: {primary} is {found}, and {} keeps {fenced} from taking writes: \
                         what {found} has taken would be lost; accepted: {fenced} again and \
                         `retry`, or `skip`, which leaves {found} the primary",
                        self.plan.knob(*knob)
                    ),
                    None => format!(
                        "{name}: {primary} is {found}: something else changed it, and nothing \
                         tells what is missing; accepted: `abort` and a run of its own"
                    ),
                }
            }
            (_, StageKind::Set { knob, to, .. }) if state.unfit.is_some() => format!(
                "{name}: {} was {} already, and nothing says what opens it; accepted: open it, \
                 then `retry`",
                self.plan.knob(*knob),
                to.value()
            ),
            (_, StageKind::Shift { knob, to }) if state.last_failure.is_none() => {
                let at = state.unfit.as_ref().unwrap_or(to.value());
                format!("{name}: {} is {at}, and steps need a number", self.plan.knob(*knob))
            }
            _ => match (judged, &state.last_failure) {
                (Some(why), _) => format!("{name}: {why}"),
                (None, Some(why)) => format!("{name}: {why}"),
                (None, None) => format!("{name} failed"),
            },
        }
    }

    fn stride(&mut self, now: Time, task: TaskId) {
        let (at, count) = &mut self.strides[task.index()];
        *count = if *at == now { *count + 1 } else { 1 };
        *at = now;
    }

    /// Whether a task has entered more stages than it has, all at this moment: a
    /// template may lead back without anything in between that takes time, and
    /// would do so for ever. It goes on a bit later.
    fn goes_in_circles(&mut self, now: Time, task: TaskId) -> bool {
        let (at, count) = self.strides[task.index()];
        let until = at + CIRCLE_PAUSE;
        // A clock that was set back must not make it longer.
        let is_now = now < until && until - now <= CIRCLE_PAUSE;
        let does = is_now && count > self.plan.task(task).stages.len();
        if does {
            self.wake_at(task, until);
        }
        does
    }

    /// Moves a knob in steps.
    fn shift(&mut self, now: Time, task: TaskId, knob: KnobId, to: &Goal) {
        let Some(shift) = self.state.task(task).shift.filter(|shift| shift.knob == knob) else {
            // A knob that is no number cannot be moved in steps.
            let is_text = self.state.task(task).unfit.is_some();
            return match (is_text, to.value()) {
                (false, Value::Number(_)) => self.look_first(now, task, knob),
                _ => self.leave(now, task, Outcome::Failed),
            };
        };
        if self.is_contested(knob) {
            return self.hold(now, task, Hold::Contested { knob });
        }
        let pace = self.plan.task(task).pace;
        match self.gate(now, task) {
            Gate::Closed(why @ Hold::Breach { .. })
                if self.plan.direction == Direction::Restore
                    && shift.steps == 0
                    && !self.is_further_out(task, knob, to.value(), &shift.place()) =>
            {
                self.begin_restore(now, task, shift, &pace, why);
            }
            Gate::Closed(why @ Hold::Breach { .. }) => {
                self.bear_breach(now, task, shift, &pace, why)
            }
            Gate::Closed(why) => self.hold(now, task, why),
            Gate::Rising { until } => self.rise(task, until),
            Gate::Open { nearness } => {
                if self.needs_share(task) && !self.uses_budgets(task) {
                    // It was held for something else: its share is divided first.
                    self.release(now, task);
                    return self.wake(task);
                }
                let speed = self.speed(task);
                if speed <= 0.0 {
                    return self.hold(now, task, Hold::Budget);
                }
                self.release(now, task);
                let haste = self.state.task(task).haste;
                self.step(now, task, shift, Circumstances { nearness, speed, haste });
            }
        }
    }

    /// When the shift that a task is in takes its next step, if health allows.
    pub fn next_step_at(&self, now: Time, task: TaskId) -> Option<Time> {
        let state = self.state.task(task);
        let shift = state.shift.filter(|shift| state.phase.is_active() && !shift.is_there())?;
        let nearness = match self.gate(now, task) {
            Gate::Open { nearness } => nearness,
            Gate::Rising { until } => {
                // As soon as somebody has looked, whenever that is.
                let mut health = self.plan.task(task).health.iter().chain(&self.plan.health);
                let is_unseen = health.any(|id| self.is_unseen_until(now, task, *id).is_some());
                return until.filter(|_| !is_unseen);
            }
            Gate::Closed(_) => return None,
        };
        let circumstances = Circumstances { nearness, speed: 1.0, haste: state.haste };
        let own = self.plan.task(task);
        Some(shift.at_since + wait(&own.pace, &own.expected, circumstances))
    }

    /// Takes the next step of a shift that nothing stands in the way of.
    fn step(&mut self, now: Time, task: TaskId, shift: Shifted, circumstances: Circumstances) {
        let own = self.plan.task(task);
        let is_first = shift.steps == 0 && !shift.is_there();
        if !is_first {
            let looked_enough = shift.at_since + wait(&own.pace, &own.expected, circumstances);
            if now < looked_enough {
                return self.wake_at(task, looked_enough);
            }
        }
        if shift.is_there() || shift.from == shift.to {
            if self.is_confirmed(now, task, &shift) {
                self.leave(now, task, Outcome::Done);
            }
            return;
        }
        let nearness = circumstances.nearness;
        if !self.is_in_place(now, task, shift.knob) {
            return;
        }
        let own = self.plan.task(task);
        let before = self.near_before[task.index()].filter(|_| shift.steps > 0);
        let rise = before.map(|before| nearness - before);
        let next = self
            .step_to_repeat(task, &shift)
            .unwrap_or_else(|| next_stop(&own.pace, &own.expected, &shift, circumstances, rise));
        self.near_before[task.index()] = Some(nearness);
        self.turn(now, task, shift, next);
    }

    /// Writes where a shift is to be next.
    pub(super) fn turn(&mut self, now: Time, task: TaskId, shift: Shifted, next: f64) {
        let value = Value::Number(shift.value_at(next));
        self.issue(now, task, Effect::Write { knob: shift.knob, value });
    }

    /// Takes the first step of a restore although health is bad, once it was so
    /// for long: it was bad before anything moved, and where nothing is served a
    /// restore is what cures it. The steps after it are judged as any.
    fn begin_restore(&mut self, now: Time, task: TaskId, shift: Shifted, pace: &Pace, why: Hold) {
        if !self.bears_bad_start(now, task, why) {
            return;
        }
        if shift.is_there() || shift.from == shift.to {
            if self.is_confirmed(now, task, &shift) {
                self.leave(now, task, Outcome::Done);
            }
            return;
        }
        if !self.is_in_place(now, task, shift.knob) {
            return;
        }
        self.release(now, task);
        self.turn(now, task, shift, stop_after(shift.at, pace.first));
    }

    /// Whether a restore begins although health is bad, once it was so for long. Of what
    /// cannot be seen, nobody knows how bad it is.
    fn bears_bad_start(&mut self, now: Time, task: TaskId, why: Hold) -> bool {
        let unknown = self.unknown_health(now, task);
        let unseen_until = unknown.and_then(|id| self.is_unseen_until(now, task, id));
        if let Some(condition) = unknown.filter(|_| unseen_until.is_none()) {
            // `no_data: fail` makes it bad.
            self.hold(now, task, Hold::NoData { condition });
            return false;
        }
        self.hold(now, task, why);
        let Some((since, _)) = self.state.task(task).hold else { return false };
        let patience = self.plan.task(task).pace.patience;
        let patient_until = (since + patience).max(unseen_until.unwrap_or(since));
        if now < patient_until {
            self.wake_at(task, patient_until);
        }
        now >= patient_until
    }

    /// Holds while health is bad; does what the pace says if it stays bad.
    fn bear_breach(&mut self, now: Time, task: TaskId, shift: Shifted, pace: &Pace, why: Hold) {
        self.hold(now, task, why);
        let Some((since, _)) = self.state.task(task).hold else { return };
        let patient_until = since.max(shift.at_since) + pace.patience;
        // For a restore the way back leads out of its datacenter, to others that may be
        // what is bad: a person decides.
        let is_barred = self.plan.direction == Direction::Restore;
        // Where something else moved it on to, the way back leads to where nobody asked health.
        let is_barred = is_barred || shift.is_moved_on();
        // A step that was done although it failed is to be taken back, too.
        let at = self.step_to_repeat(task, &shift).unwrap_or(shift.at);
        if pace.on_breach == OnBreach::Hold || at <= 0.0 || is_barred {
            return;
        }
        if now < patient_until {
            return self.wake_at(task, patient_until);
        }
        if let Some((_, Hold::Breach { condition, .. })) = self.state.task(task).hold
            && shift.step < 0.0
            && !self.is_seen_since(condition, Some(shift.at_since))
        {
            // Whether the last step back was enough is not known yet.
            return self.await_look.put(task, true);
        }
        match pace.on_breach {
            OnBreach::Hold => {}
            OnBreach::BackOff => {
                if !self.is_in_place(now, task, shift.knob) {
                    return;
                }
                let back = shift.step.abs().max(pace.first);
                let at = self.step_to_repeat(task, &shift).unwrap_or(shift.at);
                // Of a group only some may have taken that step: for them it is no step out.
                self.turn(now, task, shift, (at - back).min(shift.at).max(0.0));
            }
            OnBreach::Revert => {
                let held = self.state.task(task).hold.as_ref();
                let held = held.map(|(_, why)| describe(&self.plan, why)).unwrap_or_default();
                // A person retries it: what it was put back for outlives the hold.
                let why = format!("{}: {held}", self.state.stage(&self.plan, task).name);
                self.record(now, Fact::Failed { task, why });
                self.move_task(now, task, Trigger::Revert);
            }
        }
    }

    /// Writes a knob once.
    fn set(&mut self, now: Time, task: TaskId, knob: KnobId, to: &Goal) {
        // An undo closes its fence whoever is primary: what is fenced loses no write.
        let closes = self.plan.task(task).is_closed_by(knob, to.value())
            && self.state.task(task).phase == Phase::Running;
        if self.state.task(task).stage_done {
            if closes && self.was_opened_unread(task) {
                return self.leave(now, task, Outcome::Failed);
            }
            // Before a try again something else may have promoted another server.
            return match closes && self.waits_for_primary(now, task) {
                true => {}
                false if self.is_changed_back(task, knob) => {
                    self.leave(now, task, Outcome::Failed);
                }
                false => self.leave(now, task, Outcome::Done),
            };
        }
        if self.state.task(task).unfit.is_some() || self.begins_in_vain(task, knob, to.value()) {
            return self.leave(now, task, Outcome::Failed);
        }
        if self.state.task(task).origin(knob).is_none() {
            return self.look_first(now, task, knob);
        }
        if let Some(opening) = self.state.opening(&self.plan, task)
            && self.state.task(task).seen_primary.is_none()
        {
            return self.look_first(now, task, opening.primary);
        }
        // Who is primary decides whether the fence is to be closed, and may be opened again. What
        // was begun is not waited with: it may be closed in part.
        if closes && self.state.task(task).begun.is_none() && self.waits_for_primary(now, task) {
            return;
        }
        let has_closed = self.state.closed_fences.contains_key(&(task, knob));
        let is_first = self.state.task(task).begun.is_none() && !has_closed;
        if let Some(condition) = self.unseen_behind(now, task).filter(|_| is_first) {
            self.hold(now, task, Hold::NoData { condition });
            // A query may have no value until nothing is missing: it is not waited for longer.
            let Some((since, _)) = self.state.task(task).hold else { return };
            let until = since + self.plan.task(task).pace.patience;
            if now < until {
                return self.wake_at(task, until);
            }
            self.release(now, task);
        }
        let opens = self.plan.task(task).is_opened_by(knob, to.value());
        if opens && self.was_opened_unread(task) {
            return self.leave(now, task, Outcome::Done);
        }
        if opens && self.keeps_closed(now, task, knob) {
            return;
        }
        self.act(now, task, Effect::Write { knob, value: to.value().clone() });
    }

    /// Whether a fence that is opened after a promotion found the primary where it was before:
    /// its writes are accepted again, and the promotion is not done.
    fn is_changed_back(&self, task: TaskId, knob: KnobId) -> bool {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let is_after = own.undo.as_ref().is_some_and(|undo| undo.after < state.stage);
        let is_goal = |seen: &Value| own.undone_goal().is_some_and(|goal| goal.is_met_by(seen));
        let is_back = state.seen_primary.as_ref().is_some_and(|seen| !is_goal(seen));
        own.is_fence(knob) && is_after && state.phase == Phase::Running && is_back
    }

    /// Whether a fence was begun with again too often: writes are refused meanwhile.
    fn begins_in_vain(&self, task: TaskId, knob: KnobId, to: &Value) -> bool {
        self.plan.task(task).is_closed_by(knob, to)
            && self.state.task(task).begun_again > ATTEMPTS_MAX
    }

    /// Whether a fence is not to be closed, or gone on behind: until its primary was read,
    /// and for good if that is neither what it was nor what it is to be.
    fn waits_for_primary(&mut self, now: Time, task: TaskId) -> bool {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let Some(primary) = own.undone_knob() else { return false };
        let Some(found) = &state.found_again else {
            self.look_first(now, task, primary);
            return true;
        };
        let is_known = self.known_primaries(task).iter().any(|value| value.is_met_by(found));
        if !is_known {
            self.leave(now, task, Outcome::Failed);
        }
        !is_known
    }

    /// Writes a knob back to where this task found it.
    fn put_back(&mut self, now: Time, task: TaskId, knob: KnobId) {
        let state = self.state.task(task);
        let is_due = !state.stage_done && state.origin(knob).is_some();
        let is_fence = self.plan.task(task).is_fence(knob);
        if is_fence && is_due && !self.state.closed_fences.contains_key(&(task, knob)) {
            // It gave up before it closed it.
            return self.leave(now, task, Outcome::Done);
        }
        if is_due && is_fence && self.keeps_closed(now, task, knob) {
            return;
        }
        match self.state.task(task).origin(knob).cloned() {
            Some(value) => self.act(now, task, Effect::Write { knob, value }),
            // It was never written.
            None => self.leave(now, task, Outcome::Done),
        }
    }

    /// Whether a fence stays closed: until its primary was read, and for good if that
    /// is not what it is to be.
    fn keeps_closed(&mut self, now: Time, task: TaskId, fence: KnobId) -> bool {
        let Some(primary) = self.plan.task(task).undone_knob() else { return false };
        if self.state.task(task).found_again.is_none() {
            match self.gives_up_unread(now, task, primary) {
                true => self.leave(now, task, Outcome::Failed),
                false => self.look_first(now, task, primary),
            }
            return true;
        }
        let is_kept = self.why_kept_closed(task, fence).is_some();
        if is_kept {
            self.leave(now, task, Outcome::Failed);
        }
        is_kept
    }

    /// Why a fence must not be opened, if its primary was read: whoever gives up does
    /// so where it was before the fence, and who is through where it was promoted to.
    fn why_kept_closed(&self, task: TaskId, fence: KnobId) -> Option<String> {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let primary = own.undone_knob().filter(|_| own.is_fence(fence))?;
        let found = state.found_again.as_ref()?;
        let is_set = matches!(self.state.stage(&self.plan, task).kind, StageKind::Set { .. });
        let is_as_it_should_be = match is_set {
            true => self.known_primaries(task).iter().any(|known| known.is_met_by(found)),
            false => self.is_unpromoted(task, primary, found),
        };
        (!is_as_it_should_be).then(|| {
            format!(
                "{} is {found}, so {} stays closed: more than one server may take writes",
                self.plan.knob(primary),
                self.plan.knob(fence)
            )
        })
    }

    /// What must be so when an effect is done, and not only when it was decided: the fence
    /// that it is done behind is closed, and the primary is the one that the fence is for or
    /// the one that is promoted. The knobs, and what they may be.
    pub fn required_by(&self, effect: EffectId) -> Vec<(KnobId, Vec<Value>)> {
        let Some(in_flight) = self.state.in_flight.get(&effect) else { return Vec::new() };
        let (own, state) = (self.plan.task(in_flight.task), self.state.task(in_flight.task));
        let is_on_way = state.phase == Phase::Running || state.is_undoing;
        let primary = || Some((own.undone_knob()?, self.known_primaries(in_flight.task)));
        match &in_flight.what {
            // What closes a fence asks nobody, unless what was promoted is to keep it closed:
            // something else may have made the fenced server the primary since.
            Effect::Write { knob, value } if own.is_closed_by(*knob, value) => {
                let promoted = own.promoted_knob().zip(own.undone_goal());
                let promoted =
                    promoted.filter(|_| self.state.closes_again(&self.plan, in_flight.task, *knob));
                promoted.map(|(primary, goal)| (primary, vec![goal.clone()])).into_iter().collect()
            }
            Effect::Write { knob, value } if let Some(opening) = own.opening(*knob, value) => {
                let seen = state.seen_primary.iter().cloned().collect();
                vec![(opening.primary, seen)]
            }
            Effect::Write { knob, value } if own.is_opened_by(*knob, value) => {
                primary().into_iter().collect()
            }
            Effect::Write { .. } | Effect::Act(_) if is_on_way && own.is_guarded(state.stage) => {
                let closed = own.fence_before(state.stage).and_then(|at| own.closed_in(at));
                let closed = own.fences.iter().find(|own| Some(own.knob) == closed);
                let closed = closed.map(|fence| (fence.knob, vec![fence.closed.clone()]));
                // The fence last: it is the one that may change unseen.
                primary().into_iter().chain(closed).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Does something once, when health allows. Neither a way back nor what
    /// follows a fence waits for that.
    pub(super) fn act(&mut self, now: Time, task: TaskId, what: Effect) {
        if self.state.task(task).stage_done {
            return self.leave(now, task, Outcome::Done);
        }
        let gate = match self.state.task(task).phase {
            _ if !self.is_interruptible(task) => Gate::Open { nearness: 0.0 },
            Phase::Reverting if self.is_paused(task) => Gate::Closed(Hold::Paused),
            Phase::Reverting => Gate::Open { nearness: 0.0 },
            _ => self.gate(now, task),
        };
        match gate {
            Gate::Open { .. } if !self.is_read_before(now, task, &what) => {}
            Gate::Open { .. } => {
                self.release(now, task);
                self.issue(now, task, what);
            }
            Gate::Rising { until } => self.rise(task, until),
            Gate::Closed(why @ Hold::Breach { .. })
                if self.plan.direction == Direction::Restore
                    && self.state.task(task).effect_at.is_none()
                    && !self.moves_out(task) =>
            {
                // As for the first step of a shift: it was bad before anything moved.
                if self.bears_bad_start(now, task, why) && self.is_read_before(now, task, &what) {
                    self.release(now, task);
                    self.issue(now, task, what);
                }
            }
            Gate::Closed(why) => {
                // Whether it would take out what serves last depends on where the knob is now.
                if matches!(why, Hold::Limit(_)) && !self.is_read_before(now, task, &what) {
                    self.wake_at(task, now + LIMITED_LOOK);
                }
                self.hold(now, task, why);
            }
        }
    }

    /// Whether a knob that is set at once was read just now; if not, it is. A task may have
    /// waited since it read it first.
    fn is_read_before(&mut self, now: Time, task: TaskId, what: &Effect) -> bool {
        match what {
            Effect::Write { knob, .. } if self.state.sets_openly(&self.plan, task, *knob) => {
                self.is_in_place(now, task, *knob)
            }
            _ => true,
        }
    }

    fn await_condition(&mut self, now: Time, task: TaskId, condition: ConditionId) {
        match self.judge(now, task, [condition].into_iter()) {
            Gate::Open { .. } => self.leave(now, task, Outcome::Done),
            Gate::Rising { until } => self.rise(task, until),
            Gate::Closed(why) => self.await_gate(now, task, why),
        }
    }

    fn check(&mut self, now: Time, task: TaskId, condition: ConditionId) {
        match self.judge(now, task, [condition].into_iter()) {
            Gate::Open { .. } => self.leave(now, task, Outcome::Done),
            Gate::Rising { until } => self.rise(task, until),
            Gate::Closed(Hold::Breach { .. })
                if !self.is_seen_since(condition, self.judged_since(task)) =>
            {
                self.rise(task, None);
            }
            Gate::Closed(Hold::Breach { .. }) => self.leave(now, task, Outcome::Failed),
            Gate::Closed(why) => self.hold(now, task, why),
        }
    }

    /// Whether all tasks that have a barrier are at it, or past it. Which stages
    /// stand before it says nothing: ways lead back and forth.
    pub(super) fn all_are_at(&self, name: &str) -> bool {
        let tasks = self.index.barriers.get(name).into_iter().flatten();
        tasks.copied().all(|task| {
            let state = self.state.task(task);
            let stages = self.plan.task(task).stages.iter().enumerate();
            let has_come = || {
                stages.clone().any(|(at, stage)| {
                    let own = StageId(at as u32);
                    matches!(&stage.kind, StageKind::Barrier { name: own } if own == name)
                        && (state.stage == own || state.met.contains(&own))
                })
            };
            state.phase.is_complete()
                || state.phase == Phase::Settling
                || (state.phase == Phase::Running && has_come())
        })
    }

    /// Whether a task may be kept from going on: not between a fence and what
    /// lifts it.
    pub(super) fn is_interruptible(&self, task: TaskId) -> bool {
        let state = self.state.task(task);
        if state.phase == Phase::Reverting && self.has_closed(task) {
            return false;
        }
        if state.phase != Phase::Running && !state.is_undoing {
            return true;
        }
        if state.is_undoing && !state.undo_seen {
            // It has not begun: who is primary is not known.
            return true;
        }
        let stage = self.state.stage(&self.plan, task);
        // A fence that is being set, or was, belongs to what follows it.
        let has_begun = state.in_flight.is_some() || state.stage_done || self.fences_again(task);
        let leads_on = match stage.done {
            Next::Stage(next) => !self.plan.task(task).stages[next.index()].is_interruptible,
            Next::Exit(_) => false,
        };
        stage.is_interruptible && !(has_begun && leads_on)
    }

    /// Whether a task is in the stage that closes a fence, and has closed it in an earlier try.
    fn fences_again(&self, task: TaskId) -> bool {
        let closes = self.plan.task(task).closed_in(self.state.task(task).stage);
        closes.is_some_and(|fence| self.state.closed_fences.contains_key(&(task, fence)))
    }

    /// Whether a fence is closed that a task has closed.
    fn has_closed(&self, task: TaskId) -> bool {
        self.plan.task(task).fences.iter().any(|fence| {
            let left = self.state.knobs[fence.knob.index()].as_ref();
            left.is_some_and(|left| left.task == task && fence.closed.is_met_by(&left.value))
        })
    }

    /// Why a fence that a promotion left closed is not closed again, once it was found open.
    pub fn why_left_open(&self, fence: KnobId) -> Option<String> {
        let left = self.state.knobs[fence.index()].as_ref()?;
        let (own, state) = (self.plan.task(left.task), self.state.task(left.task));
        if !own.is_closed_by(fence, &left.value)
            || !self.state.closes_again(&self.plan, left.task, fence)
        {
            return None;
        }
        match self.state.overtaken(&self.plan, fence) {
            Some((primary, found)) => Some(format!("{} is {found}", self.plan.knob(primary))),
            None => {
                let why = state.last_failure.as_ref().filter(|_| state.failures > 0)?;
                Some(format!("it could not be closed again: {why}"))
            }
        }
    }

    /// The primary that a task waits for behind its fence, if it cannot be read.
    pub fn unread_primary(&self, task: TaskId) -> Option<KnobId> {
        let state = self.state.task(task);
        let primary = self.plan.task(task).promoted_knob()?;
        let is_unread =
            matches!(&state.hold, Some((_, Hold::Unreadable { knob })) if *knob == primary);
        (is_unread && state.found_again.is_none()).then_some(primary)
    }

    /// Whether a task of a run that was aborted waits no longer for a primary that cannot be
    /// read: its fence stays as it is, which is told, and other runs may begin.
    pub(super) fn gives_up_unread(&mut self, now: Time, task: TaskId, primary: KnobId) -> bool {
        let Some((since, Hold::Unreadable { knob })) = self.state.task(task).hold else {
            return false;
        };
        if knob != primary || self.state.abort.is_none() {
            return false;
        }
        let until = since + UNREAD_MAX;
        if now < until {
            self.wake_at(task, until);
        }
        now >= until
    }

    pub(super) fn why_unread(&self, task: TaskId, primary: KnobId) -> String {
        let fences = self.plan.task(task).fences.iter();
        let fences: Vec<String> = fences.map(|own| self.plan.knob(own.knob).to_string()).collect();
        format!(
            "{} cannot be read, so {} is left as it is; accepted: see to it that one server takes \
             writes, and open its fence by hand",
            self.plan.knob(primary),
            fences.join(" or ")
        )
    }

    /// Whether a person opened the fence behind which a task waits for a primary that cannot be
    /// read: there is nothing to wait for any more.
    fn was_opened_unread(&self, task: TaskId) -> bool {
        self.unread_primary(task).is_some() && !self.state.has_closed_fence(task)
    }

    pub(super) fn is_contested(&self, knob: KnobId) -> bool {
        let left = self.state.knobs[knob.index()].as_ref();
        left.is_some_and(|left| left.drifts >= super::DRIFTS_MAX)
    }
}
