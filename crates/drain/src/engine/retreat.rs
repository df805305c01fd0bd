//! The way back of a task: first what its template says that undoes it, then its
//! knobs in reverse order, in steps, to where they stood before. Nothing is
//! slammed back: what was drained is cold by now.

use super::gate::Gate;
use super::pace::{Circumstances, next_stop, stop_after, wait};
use super::stages::LIMITED_LOOK;
use super::{ATTEMPTS_MAX, Effect, Hold, Run, Shifted, Trigger};
use crate::plan::{Direction, Expected, KnobId, StageKind, TaskId, UndoBy};
use crate::time::Time;
use crate::value::Value;

impl Run {
    pub(super) fn retreat(&mut self, now: Time, task: TaskId) {
        if self.state.task(task).in_flight.is_some() || self.retries_later(now, task) {
            return;
        }
        if self.state.task(task).is_undoing {
            let undone = self.plan.task(task).undone_knob();
            return match undone.filter(|_| !self.state.task(task).undo_seen) {
                Some(knob) if self.gives_up_unread(now, task, knob) => {
                    let why = self.why_unread(task, knob);
                    self.give_up(now, task, why);
                }
                Some(knob) => self.look_first(now, task, knob),
                None => self.advance(now, task),
            };
        }
        let state = self.state.task(task);
        if state.failures >= ATTEMPTS_MAX {
            return self.give_up(now, task, self.why_not_back(task));
        }
        if state.needs_undo {
            return self.give_up(now, task, self.why_not_undone(task));
        }
        let has_acted = state.has_acted;
        let Some((knob, origin)) = self.next_to_put_back(task) else {
            if has_acted {
                let acts = self.plan.task(task).forward().iter();
                let acts = acts.filter(|stage| matches!(stage.kind, StageKind::Act(_)));
                let acts: Vec<&str> = acts.map(|stage| stage.name.as_str()).collect();
                let why = "its knobs are put back, but not what its driver did in";
                return self.give_up(now, task, format!("{why} {}", acts.join(", ")));
            }
            return self.move_task(now, task, Trigger::RevertDone);
        };
        if self.is_paused(task) {
            return self.hold(now, task, super::Hold::Paused);
        }
        let own = self.plan.task(task);
        if let Some(primary) = own.promoted_knob()
            && (primary == knob || own.is_opened_by(knob, &origin))
        {
            // It was where it was, or was promoted back: whatever it is now, it is not set
            // without a fence, and no fence is opened over it.
            if self.state.task(task).found_again.is_none() {
                if self.gives_up_unread(now, task, primary) {
                    let why = self.why_unread(task, primary);
                    return self.give_up(now, task, why);
                }
                return self.look_first(now, task, primary);
            }
            if let Some(why) = self.why_not_reverted(task, knob) {
                return self.give_up(now, task, why);
            }
            self.release(now, task);
        }
        let is_switch = self.index.switches.contains(&knob);
        if is_switch || origin.number().is_none() || self.stands_at_a_text(knob) {
            // There are no steps on that way.
            let carries = self.plan.carrier(self.plan.knob(knob)).is_some();
            if let Some(reached) = self.limit_reached(task) {
                // Whether it would take out what serves last depends on where it is now.
                if carries && !self.is_in_place(now, task, knob) {
                    self.wake_at(task, now + LIMITED_LOOK);
                }
                return self.hold(now, task, super::Hold::Limit(reached));
            }
            if self.is_kept_by_health(now, task) || carries && !self.is_in_place(now, task, knob) {
                return;
            }
            return self.issue(now, task, Effect::Write { knob, value: origin });
        }
        match self.state.task(task).shift.filter(|shift| shift.knob == knob) {
            Some(shift) => self.step_back(now, task, shift),
            None => self.look_first(now, task, knob),
        }
    }

    /// Which knob cannot be put back where, and what its driver says.
    fn why_not_back(&self, task: TaskId) -> String {
        let said = self.state.task(task).last_failure.as_deref();
        let said = said.unwrap_or("its driver does not say why");
        match self.next_to_put_back(task) {
            Some((knob, origin)) => {
                format!("{} cannot be put back to {origin}: {said}", self.plan.knob(knob))
            }
            None => format!("{}: {said}", self.state.stage(&self.plan, task).name),
        }
    }

    /// Why neither a primary nor a fence is put back, if the primary is not where it was.
    fn why_not_reverted(&self, task: TaskId, knob: KnobId) -> Option<String> {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let (primary, found) = (own.promoted_knob()?, state.found_again.as_ref()?);
        let is_back = state.origin(primary).is_some_and(|origin| origin.is_met_by(found));
        (!is_back).then(|| {
            let (primary, knob) = (self.plan.knob(primary), self.plan.knob(knob));
            let kept = if primary == knob { "it" } else { "its fence" };
            format!(
                "{primary} is {found}: something else changed it, and {kept} is left as it is; \
                 accepted: see to it that one server takes writes, then open {} by hand",
                own.fences
                    .iter()
                    .map(|own| self.plan.knob(own.knob).to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        })
    }

    fn why_not_undone(&self, task: TaskId) -> String {
        let own = self.plan.task(task);
        let stage = own.undo.as_ref().map_or(self.state.task(task).stage, |undo| undo.after);
        let missing = match own.undo.as_ref().map(|undo| &undo.how) {
            Some(UndoBy::Nothing { missing }) => format!(": `{}`", missing.join("`, `")),
            _ => String::new(),
        };
        format!(
            "{} cannot be undone: its template needs parameters for that which it was not \
             given{missing}",
            own.stages[stage.index()].name
        )
    }

    /// Ends a way back that leads nowhere.
    fn give_up(&mut self, now: Time, task: TaskId, why: String) {
        self.record(now, super::Fact::Failed { task, why });
        self.move_task(now, task, Trigger::RevertFailed);
    }

    fn stands_at_a_text(&self, knob: KnobId) -> bool {
        let left = self.state.knobs[knob.index()].as_ref();
        left.is_some_and(|left| left.value.number().is_none())
    }

    /// The last knob it touched that is not back yet, and where that is.
    pub(super) fn next_to_put_back(&self, task: TaskId) -> Option<(KnobId, Value)> {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let mut touched = state.origins.iter().rev();
        let is_away = |(knob, origin): &&(KnobId, Value)| {
            // Writes are accepted behind the fence that it opened, by whichever server: closed
            // again, it would refuse them for good.
            if own.opens.iter().any(|own| own.fence == *knob && own.closed.is_met_by(origin)) {
                return false;
            }
            // A shift that arrived is looked at for as long as any step.
            let is_on_its_way = state.shift.is_some_and(|shift| shift.knob == *knob);
            let left = self.state.knobs[knob.index()].as_ref();
            is_on_its_way
                || state.doubts(*knob)
                || left.is_some_and(|left| !left.value.is_met_by(origin))
        };
        touched.find(is_away).cloned()
    }

    /// Whether all that a task touched after a knob is back already.
    pub(super) fn puts_back_after(&self, task: TaskId, knob: KnobId) -> bool {
        let origins = &self.state.task(task).origins;
        let place = |knob: KnobId| origins.iter().position(|(own, _)| *own == knob);
        let next = self.next_to_put_back(task).and_then(|(next, _)| place(next));
        next.is_none_or(|next| place(knob).is_some_and(|own| next <= own))
    }

    /// Whether health keeps a task from its way back. What cannot be seen is not moved,
    /// and no patience ends that. The way back of a restore moves traffic out: bad health
    /// keeps it, too. A fence is not waited with.
    fn is_kept_by_health(&mut self, now: Time, task: TaskId) -> bool {
        if !self.is_interruptible(task) {
            return false;
        }
        let is_drain = self.plan.direction == Direction::Drain && !self.moves_out(task);
        match self.gate(now, task) {
            Gate::Open { .. } => return false,
            Gate::Closed(Hold::Breach { .. }) | Gate::Rising { until: None } if is_drain => {
                // What is bad may be cured by it, and how long it has been good does not matter;
                // what is not known may be made worse.
                if let Some(condition) = self.unknown_health(now, task) {
                    match self.is_unseen_until(now, task, condition) {
                        Some(until) => self.rise(task, Some(until)),
                        None => self.hold(now, task, Hold::NoData { condition }),
                    }
                } else if self.outdated_health(now, task).is_some() {
                    self.rise(task, None);
                } else {
                    return false;
                }
            }
            Gate::Rising { until } => self.rise(task, until),
            Gate::Closed(why) => self.hold(now, task, why),
        }
        true
    }

    /// Goes on with the way back. Bad health makes it wait, but not for ever:
    /// going back is what may cure it.
    fn step_back(&mut self, now: Time, task: TaskId, shift: Shifted) {
        let own = self.plan.task(task);
        let (pace, haste) = (own.pace, self.state.task(task).haste);
        if self.is_contested(shift.knob) {
            return self.hold(now, task, Hold::Contested { knob: shift.knob });
        }
        if self.is_kept_by_health(now, task) {
            return;
        }
        let speed = self.speed(task);
        let (nearness, until) = match self.gate(now, task) {
            Gate::Open { nearness } => {
                let circumstances = Circumstances { nearness, speed, haste };
                (nearness, shift.at_since + wait(&pace, &Expected::default(), circumstances))
            }
            Gate::Rising { .. } => (1.0, shift.at_since + pace.wait_max),
            // Of a drain: bad health.
            Gate::Closed(why) => {
                self.hold(now, task, why);
                // The first step may be what cures it, as that of a restore.
                let is_first = shift.steps == 0;
                let later = pace.wait_max.max(pace.patience);
                (1.0, shift.at_since + if is_first { pace.patience } else { later })
            }
        };
        if now < until && (shift.steps > 0 || nearness >= 1.0) {
            return self.wake_at(task, until);
        }
        let is_back = shift.is_there() || shift.from == shift.to;
        let is_known = match is_back {
            true => self.is_confirmed(now, task, &shift),
            false => self.is_in_place(now, task, shift.knob),
        };
        if !is_known {
            return;
        }
        self.release(now, task);
        if is_back {
            return self.arrive_back(now, task);
        }
        let circumstances = Circumstances { nearness, speed, haste };
        // Neither bad health nor a budget that is used up makes a step smaller than the first:
        // it would never be cured.
        let least = stop_after(shift.at, pace.first);
        let next = self.step_to_repeat(task, &shift).unwrap_or_else(|| {
            next_stop(&pace, &Expected::default(), &shift, circumstances, None).max(least)
        });
        self.turn(now, task, shift, next);
    }

    /// Ends the way of one knob; others may be left.
    fn arrive_back(&mut self, now: Time, task: TaskId) {
        let stage = self.state.task(task).stage;
        let outcome = crate::plan::Outcome::Done;
        self.record(now, super::Fact::Left { task, stage, outcome });
        self.wake(task);
    }
}
