//! Looks at knobs: before a task turns one, while it is to stay where it was
//! left, and a last time before the run is closed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{
    ATTEMPTS_MAX, Abort, DRIFTS_MAX, Effect, Fact, Hold, InUse, Left, Phase, Run, Shifted,
};
use crate::fleet::LimitReached;
use crate::plan::{Direction, KnobId, StageId, StageKind, TakesOut, TaskId};
use crate::time::{Millis, Time};
use crate::value::Value;

/// How long to wait before looking again at a knob that could not be read.
const LOOK_AGAIN: Millis = Millis(1000);

/// How long it counts that a knob was seen where it was left, from the answer on: a
/// driver may be slow.
const IN_PLACE_FOR: Millis = Millis::from_secs(1);

/// Looks that are asked for at a time: more at once would be a burden for
/// whoever is looked at.
const LOOKS_MAX: usize = 256;

/// Who wants to know where a knob stands, and when the last look failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    by: BTreeSet<TaskId>,
    /// When a task last asked: a look that began before says nothing about what
    /// has happened since.
    since: Time,
    failed: Option<Time>,
}

/// The last look at everything that was turned: without it a run would be
/// closed by what was true a while ago.
#[derive(Clone, Debug)]
pub(super) struct LastLook {
    /// Earlier looks do not count.
    since: Time,
    /// Knobs that are still to be looked at.
    left: BTreeMap<KnobId, Unread>,
}

/// How often a knob could not be read, and when it was last looked at in vain.
#[derive(Clone, Copy, Debug, Default)]
struct Unread {
    times: u32,
    in_vain: Option<Time>,
}

impl Run {
    /// Knobs to look at now: a task cannot go on without, or the run cannot be
    /// closed. At most a few hundred; to be asked after every event, and every
    /// second or so while there are none.
    pub fn wanted(&self, now: Time) -> impl Iterator<Item = KnobId> {
        let is_due =
            move |failed: &Option<Time>| failed.is_none_or(|at| now < at || now - at >= LOOK_AGAIN);
        let of_tasks = self.wanted.iter().map(|(knob, wanted)| (*knob, wanted.failed));
        let last = self.last_look.iter().flat_map(|look| &look.left);
        let last = last.map(|(knob, unread)| (*knob, unread.in_vain));
        let due = of_tasks.chain(last).filter(move |(_, failed)| is_due(failed));
        due.map(|(knob, _)| knob).take(LOOKS_MAX)
    }

    /// Knobs to look at now and then: those that were turned, and are to stay
    /// where they were left, and fences that were left closed: something else may
    /// open them.
    pub fn kept(&self) -> impl Iterator<Item = KnobId> {
        let is_open = self.state.closed.is_none();
        let kept = self.state.knobs.iter().enumerate().filter_map(move |(at, left)| {
            let (knob, left) = (KnobId(at as u32), left.as_ref()?);
            (is_open && self.keeps(knob, left)).then_some(knob)
        });
        let fences = self.state.left_closed(&self.plan).map(|(_, fence)| fence.knob);
        kept.chain(fences.filter(move |_| is_open))
    }

    /// Whether a knob is put back if it is found elsewhere.
    fn keeps(&self, knob: KnobId, left: &Left) -> bool {
        let owner = self.state.task(left.task);
        owner.in_flight.is_none()
            && owner.phase.keeps_knobs()
            && left.drifts < DRIFTS_MAX
            && !self.state.is_written(knob)
            // A fence stays, whatever else is in the way.
            && (self.limit_reached(left.task).is_none() || !self.is_interruptible(left.task))
    }

    /// Takes where a knob stands, or why that is not known.
    pub(super) fn look(
        &mut self,
        now: Time,
        knob: KnobId,
        asked: Time,
        found: Result<Value, String>,
    ) {
        let found = match found {
            // A restore sets what was recorded before the drain, whatever is there now.
            Ok(found)
                if self.plan.direction == Direction::Drain
                    && self.plan.is_nothing(self.plan.knob(knob), &found) =>
            {
                return self.miss(
                    now,
                    knob,
                    format!("{found} is no value of what carries traffic"),
                );
            }
            Ok(found) if self.index.switches.contains(&knob) => found.into_name(),
            Ok(found) if found.is_real() => found,
            Ok(found) => return self.miss(now, knob, format!("{found} is no position")),
            Err(why) => return self.miss(now, knob, why),
        };
        self.away.remove(&knob);
        self.note_disproved(knob, asked, &found);
        // A clock that was set back cannot tell which was first.
        let counts = |wanted: &Wanted| asked >= wanted.since || wanted.since > now;
        if self.wanted.get(&knob).is_some_and(|wanted| !counts(wanted)) {
            return;
        }
        // The next read may tell one value: this one is none that could be put back, or that a
        // fence is closed for.
        let is_no_place = |task: &TaskId| {
            let (own, state) = (self.plan.task(*task), self.state.task(*task));
            let closes = match &self.state.stage(&self.plan, *task).kind {
                StageKind::Set { knob, to, .. } => own.is_closed_by(*knob, to.value()),
                _ => false,
            };
            own.is_half_promoted(knob, &found)
                && (state.origin(knob).is_none() || (closes && state.phase == Phase::Running))
        };
        // No fence of another task is opened over two primaries.
        let is_of_several = |task: &TaskId| {
            let opening = self.state.opening(&self.plan, *task);
            opening.is_some_and(|opening| opening.primary == knob)
                && matches!(&found, Value::Text(text) if text.contains('+'))
        };
        let is_no_place = |task: &TaskId| is_no_place(task) || is_of_several(task);
        if self.wanted.get(&knob).is_some_and(|wanted| wanted.by.iter().any(is_no_place)) {
            return self.miss(now, knob, format!("{found}: its servers differ"));
        }
        if let Some(wanted) = self.wanted.remove(&knob) {
            for task in wanted.by {
                if wanted.failed.is_some() && self.begins_again_unseen(now, task, knob) {
                    continue;
                }
                if self.look_before_step(now, task, knob, asked, &found) {
                    continue;
                }
                let state = self.state.task(task);
                let left = self.state.knobs[knob.index()].as_ref().map(|left| &left.value);
                let known = match state.phase {
                    Phase::Running if self.state.sets_openly(&self.plan, task, knob) => {
                        state.origin(knob)
                    }
                    // What goes back at once.
                    Phase::Reverting if !state.is_undoing && found.number().is_none() => {
                        left.filter(|_| self.plan.carrier(self.plan.knob(knob)).is_some())
                    }
                    _ => None,
                };
                if known == Some(&found) {
                    // Nothing new: it is written down once.
                    self.in_place.insert(knob, (now, found.clone()));
                    self.wake(task);
                    continue;
                }
                self.record(now, Fact::Found { task, knob, value: found.clone() });
                self.in_place.insert(knob, (now, found.clone()));
                self.wake(task);
            }
            return;
        }
        if self.note_open_fence(now, knob, asked, &found) {
            return;
        }
        let Some(left) = self.state.knobs.get(knob.index()).and_then(Option::as_ref) else {
            return;
        };
        if self.is_place(knob, left, &found) {
            if self.is_last_look(knob, asked) && !self.state.is_written(knob) {
                self.end_last_look(knob);
            }
            return;
        }
        // A clock that was set back cannot tell which was first. To write again
        // what is there already does no harm.
        let is_later = asked > left.since || left.since > now;
        let is_free = self.state.task(left.task).in_flight.is_none();
        if is_later && is_free && !self.state.is_written(knob) {
            self.note_drift(now, knob, asked, found);
        }
        // Whoever asks again at once is told the same again.
        if let Some(unread) = self.last_look.as_mut().and_then(|look| look.left.get_mut(&knob)) {
            unread.in_vain = Some(now);
        }
    }

    /// A fence that could not be read may have been open meanwhile: what was seen behind it
    /// does not count, and its task begins again with it.
    fn begins_again_unseen(&mut self, now: Time, task: TaskId, knob: KnobId) -> bool {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let is_verify = matches!(
            own.stages[state.stage.index()].kind,
            StageKind::Verify { knob: verified, .. } if verified == knob
        );
        let is_on_way = state.phase == Phase::Running || state.is_undoing;
        let fence = own.fence_before(state.stage).filter(|_| is_verify && is_on_way);
        let Some(fence) = fence else { return false };
        self.release(now, task);
        self.record(now, Fact::Entered { task, stage: fence });
        self.wake(task);
        true
    }

    /// Writes down that a fence is open which a task left closed, or may have.
    fn note_open_fence(&mut self, now: Time, knob: KnobId, asked: Time, found: &Value) -> bool {
        let fence = self.state.left_closed(&self.plan).find(|(_, own)| own.knob == knob);
        let Some((task, _)) = fence else { return false };
        let is_free = self.state.task(task).in_flight.is_none() && !self.state.is_written(knob);
        let left = self.state.knobs[knob.index()].as_ref();
        let is_later = left.is_none_or(|left| asked > left.since || left.since > now);
        let is_open = self.state.is_open(&self.plan, task, knob, found) && is_free && is_later;
        let is_last = self.is_last_look(knob, asked);
        if is_open && !is_last {
            self.record(now, Fact::Found { task, knob, value: found.clone() });
        }
        is_open && !is_last
    }

    /// A knob is not where it was left: it is put back. What nobody puts back
    /// is said at the end.
    fn note_drift(&mut self, now: Time, knob: KnobId, asked: Time, found: Value) {
        let Some(left) = self.state.knobs[knob.index()].clone() else { return };
        let Left { value: expected, task, .. } = left.clone();
        if self.is_in_doubt(task, knob, &found) {
            return;
        }
        if self.leaves_open(task, knob) {
            if self.state.is_open(&self.plan, task, knob, &found) {
                self.record(now, Fact::Found { task, knob, value: found });
                self.wake(task);
            }
            return;
        }
        if self.has_only_read(task, knob) {
            self.record(now, Fact::Found { task, knob, value: found });
            return self.wake(task);
        }
        // To put back what was moved out would bring traffic in that nobody has asked health
        // for. What was moved in is put back: a load balancer that is reloaded does that.
        let stays_out = self.stays_out(knob, &found);
        if (stays_out || expected.is_met_by(&found))
            && self.shift_of(task, knob).is_some()
            && !self.is_contested(knob)
        {
            self.near_before[task.index()] = None;
            self.record(now, Fact::MovedOut { task, knob, expected, found });
            return self.wake(task);
        }
        self.look_again(knob);
        // What a task of a restore, or a way back, left out may be what serves last by now.
        let is_limited = self.limit_to_taking_out(task, knob, &found, &expected).is_some();
        let keeps = self.keeps(knob, &left) && !is_limited;
        let is_paused = self.is_paused(task);
        let own = self.plan.task(task);
        let is_overtaken =
            own.is_closed_by(knob, &expected) && self.state.overtaken(&self.plan, knob).is_some();
        if keeps && (own.is_final(knob, &expected) || is_overtaken) {
            // Whoever promoted another one may have writes by now, and whoever closed a fence
            // may be behind it: either takes a person. So does a fence that something opened
            // after something else changed the primary.
            self.record(now, Fact::Drifted { knob, expected, found });
        } else if keeps && !is_paused && !stays_out {
            // A fence that another task has set since is that task's.
            let is_free = !self.is_claimed(task, knob) || self.has_claim(task);
            if let (false, Some(InUse { by, .. })) = (is_free, self.claim_refused(task)) {
                if self.is_last_look(knob, asked) {
                    let why = format!("{by} uses it");
                    self.record(now, Fact::Astray { knob, expected, found: Some(found), why });
                    self.end_last_look(knob);
                }
                return;
            }
            if !is_free || self.retries_later(now, task) {
                return;
            }
            let value = expected.clone();
            self.record(now, Fact::Drifted { knob, expected, found });
            self.issue(now, task, Effect::Write { knob, value });
        } else if keeps && !stays_out && self.state.abort != Some(Abort::Hold) {
            // It is put back when the pause is over.
            self.away.insert(knob, found);
        } else if !self.is_last_look(knob, asked) {
            self.away.insert(knob, found);
        } else {
            let why = self.why_astray(knob, &left, &found);
            self.record(now, Fact::Astray { knob, expected, found: Some(found), why });
            self.end_last_look(knob);
        }
    }

    /// Whether a task does not close a fence again that something else has opened: before it
    /// has begun to close it in this try, for which it sees first who is primary, where it
    /// opens it, and while the primary cannot be read. A person sees who it is.
    fn leaves_open(&self, task: TaskId, knob: KnobId) -> bool {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        if state.phase == Phase::Reverting {
            // Either it goes back to open, or whether there is more to undo is not known yet.
            return own.promoted_knob().is_some()
                && own.is_fence(knob)
                && !(state.is_undoing && state.undo_seen);
        }
        let mut stages = (0..own.forward().len()).map(|at| StageId(at as u32));
        let Some(closes) = stages.find(|at| own.closed_in(*at) == Some(knob)) else {
            return false;
        };
        let has_begun = state.begun.is_some() || state.stage_done;
        let opens = matches!(
            &own.stages[state.stage.index()].kind,
            StageKind::PutBack { knob: opened } if *opened == knob
        );
        let is_before = state.stage < closes || (state.stage == closes && !has_begun);
        let is_unread = self.unread_primary(task).is_some();
        state.phase == Phase::Running && (is_before || opens || is_unread)
    }

    /// The limit that keeps a knob from being put back to where it lets nothing in. A fence
    /// stays, whatever else is in the way.
    fn limit_to_taking_out(
        &self,
        task: TaskId,
        knob: KnobId,
        found: &Value,
        expected: &Value,
    ) -> Option<LimitReached> {
        // Somebody moved it after whatever mode was asked for.
        let takes_out = self.takes_out(knob, found, expected) != TakesOut::No;
        let may_wait = takes_out && self.is_interruptible(task);
        if may_wait { self.limit_to_taking_back_out() } else { None }
    }

    /// Whether a knob is where a write was to bring it of which nobody knows whether it
    /// was done: the task tries that again, and nothing undoes it before.
    fn is_in_doubt(&self, task: TaskId, knob: KnobId, found: &Value) -> bool {
        let (own, state) = (self.plan.task(task), self.state.task(task));
        let may_be = |(doubted, value): &(KnobId, Value)| {
            *doubted == knob && value.is_met_by(found) && !own.is_closed_by(knob, value)
        };
        state.phase.is_active()
            && state.failures > 0
            && self.shift_of(task, knob).is_none()
            && state.doubted.iter().any(may_be)
    }

    /// Whether a knob lets less into this datacenter at one value than at another.
    pub(super) fn is_further_out(
        &self,
        task: TaskId,
        knob: KnobId,
        value: &Value,
        than: &Value,
    ) -> bool {
        let origin = self.state.task(task).origin(knob);
        if let Some(carrier) = self.plan.carrier(self.plan.knob(knob)) {
            let original = origin.filter(|_| self.plan.direction == Direction::Drain);
            return carrier.is_further_out(value, than, original);
        }
        // It carries no traffic of a service, but follows its own way in steps.
        let mut goals =
            self.plan.task(task).forward().iter().filter_map(|stage| match stage.kind {
                StageKind::Shift { knob: own, ref to } if own == knob => to.value().number(),
                _ => None,
            });
        let numbers =
            (origin.and_then(Value::number), goals.next_back(), value.number(), than.number());
        let (Some(from), Some(to), Some(value), Some(than)) = numbers else { return false };
        let way_out = if self.plan.direction == Direction::Drain { to - from } else { from - to };
        (value - than) * way_out > 0.0
    }

    /// Whether something else moved a knob out of the datacenter that a task is moving in
    /// steps, and none has followed.
    pub fn has_moved_out(&self, knob: KnobId) -> bool {
        let Some(left) = &self.state.knobs[knob.index()] else { return false };
        let shift = self.shift_of(left.task, knob);
        shift.is_some_and(|shift| !left.value.is_met_by(&shift.place()))
    }

    /// Whether a knob that was found at a value is left there, since no step brings it back,
    /// or since its task never set it.
    pub fn stays_out(&self, knob: KnobId, found: &Value) -> bool {
        let left = self.state.knobs[knob.index()].as_ref();
        left.is_some_and(|left| {
            left.is_found || self.is_further_out(left.task, knob, found, &left.value)
        })
    }

    /// Whether a task that moves a knob in steps found it at the end of its way, and has not
    /// set it: if it is elsewhere, its way begins there.
    fn has_only_read(&self, task: TaskId, knob: KnobId) -> bool {
        let left = self.state.knobs[knob.index()].as_ref();
        let is_found = left.is_some_and(|left| left.is_found_by(task));
        self.shift_of(task, knob).is_some_and(|shift| is_found || shift.is_only_read())
    }

    /// Whether a shift may end. One that found its knob where it is to bring it looks again,
    /// a moment later: one wrong read must not end it.
    pub(super) fn is_confirmed(&mut self, now: Time, task: TaskId, shift: &Shifted) -> bool {
        if !shift.is_only_read() {
            return true;
        }
        // A clock that was set back cannot tell which was first.
        if shift.at_since > now {
            return self.is_in_place(now, task, shift.knob);
        }
        let seen = self.in_place.get(&shift.knob).map(|(at, _)| *at);
        if seen.is_some_and(|at| at > shift.at_since && at <= now && now - at <= IN_PLACE_FOR) {
            return true;
        }
        let again = shift.at_since + LOOK_AGAIN;
        if now < again {
            self.wake_at(task, again);
        } else {
            self.look_first(now, task, shift.knob);
        }
        false
    }

    /// How far a task has moved a knob, if it is moving it in steps.
    fn shift_of(&self, task: TaskId, knob: KnobId) -> Option<Shifted> {
        let state = self.state.task(task);
        let is_moved = match state.phase {
            Phase::Running => matches!(
                self.state.stage(&self.plan, task).kind,
                StageKind::Shift { knob: own, .. } if own == knob
            ),
            phase => phase == Phase::Reverting && !state.is_undoing,
        };
        state.shift.filter(|shift| shift.knob == knob && is_moved)
    }

    /// Whether a knob is where it is expected: where its shift has come to, or where it was
    /// left.
    fn is_place(&self, knob: KnobId, left: &Left, found: &Value) -> bool {
        match self.shift_of(left.task, knob) {
            Some(shift) => self.is_place_of(left.task, &shift, found),
            None => left.value.is_met_by(found),
        }
    }

    /// Whether a value is where a shift has come to. Past the goal, where something else
    /// moved it, counts as there; so does where a step was to bring it of which nobody knows
    /// whether it was done: it is done again.
    fn is_place_of(&self, task: TaskId, shift: &Shifted, found: &Value) -> bool {
        let was_found = || {
            let left = self.state.knobs[shift.knob.index()].as_ref();
            left.and_then(|left| left.drifted_to.as_ref()).is_some_and(|own| own.is_met_by(found))
        };
        let is_past = || {
            (shift.is_moved_on() || was_found())
                && shift.at >= 1.0
                && self.is_further_out(task, shift.knob, found, &shift.place())
        };
        shift.place().is_met_by(found) || is_past() || self.is_doubted(task, shift.knob, found)
    }

    /// Whether a write may have brought a knob to a value although it was said to have failed.
    fn is_doubted(&self, task: TaskId, knob: KnobId, found: &Value) -> bool {
        let mut doubted = self.state.task(task).doubted.iter();
        !self.disproved.contains(&knob)
            && doubted.any(|(own, value)| *own == knob && value.is_met_by(found))
    }

    /// A knob that was read where it was before a write that failed: the write was not done,
    /// and what brings the knob there later is something else.
    fn note_disproved(&mut self, knob: KnobId, asked: Time, found: &Value) {
        let Some(left) = &self.state.knobs[knob.index()] else { return };
        let (task, state) = (left.task, self.state.task(left.task));
        let place = self.shift_of(task, knob).map(|shift| shift.place());
        let is_later = asked > state.failed_at && !self.state.is_written(knob);
        if is_later && place.is_some_and(|place| place.is_met_by(found)) {
            self.disproved.insert(knob);
        }
    }

    /// The step of a shift that is to be done again: the knob was seen where it was to lead.
    /// Of a group only some may be there.
    pub(super) fn step_to_repeat(&self, task: TaskId, shift: &Shifted) -> Option<f64> {
        let (_, found) = self.in_place.get(&shift.knob)?;
        let is_step = self.is_doubted(task, shift.knob, found) && !shift.place().is_met_by(found);
        is_step.then(|| found.number().map(|value| shift.share_of(value)))?
    }

    /// Knobs that are not where they were left, and are not put back while their task
    /// is paused, as they were last read.
    pub fn away(&self) -> impl Iterator<Item = (KnobId, &Value)> {
        let is_kept = |knob: KnobId| {
            let left = self.state.knobs[knob.index()].as_ref();
            left.is_some_and(|left| self.keeps(knob, left))
        };
        let away = self.away.iter().filter(move |(knob, _)| is_kept(**knob));
        away.map(|(knob, found)| (*knob, found))
    }

    /// Why nobody puts a knob back.
    fn why_astray(&self, knob: KnobId, left: &Left, found: &Value) -> String {
        if left.is_found {
            let name = &self.plan.task(left.task).name;
            return format!("{name} found it there and never set it: it is not its own");
        }
        let taking_out = || self.limit_to_taking_out(left.task, knob, found, &left.value);
        if let Some(reached) = self.limit_reached(left.task).or_else(taking_out) {
            return format!("limit: {reached}");
        }
        if let Some(why) = self.why_left_open(knob) {
            return why;
        }
        let (name, owner) = (&self.plan.task(left.task).name, self.state.task(left.task));
        match &owner.last_failure {
            Some(why) if owner.failures > 0 => format!("it could not be put back: {why}"),
            _ if left.drifts >= DRIFTS_MAX => "somebody else keeps turning it".to_owned(),
            _ if self.is_paused(left.task) => format!("{name}, which turned it, is paused"),
            _ if owner.phase.keeps_knobs() => {
                "something else moved it out, and no step brings it back".to_owned()
            }
            _ => {
                let phase = format!("{:?}", owner.phase).to_lowercase();
                format!("{name}, which turned it, is {phase}")
            }
        }
    }

    /// Takes a look that a task took before a step. `false`: it never moved the knob,
    /// which is not where it was found any more, and is found anew.
    fn look_before_step(
        &mut self,
        now: Time,
        task: TaskId,
        knob: KnobId,
        asked: Time,
        found: &Value,
    ) -> bool {
        let shift = self.state.task(task).shift.filter(|shift| shift.knob == knob);
        let Some(shift) = shift else { return false };
        if self.is_place_of(task, &shift, found) {
            self.in_place.insert(knob, (now, found.clone()));
            self.wake(task);
            return true;
        }
        let left = self.state.knobs[knob.index()].as_ref();
        if left.is_none_or(|left| left.task != task) || self.has_only_read(task, knob) {
            return false;
        }
        if !self.state.is_written(knob) && self.state.task(task).in_flight.is_none() {
            self.note_drift(now, knob, asked, found.clone());
        }
        self.wake_at(task, now + LOOK_AGAIN);
        true
    }

    /// Whether a knob was seen where it was left just now: a step from elsewhere would
    /// be larger than any that health has judged. If not, it is looked at.
    pub(super) fn is_in_place(&mut self, now: Time, task: TaskId, knob: KnobId) -> bool {
        let seen = self.in_place.get(&knob).map(|(at, _)| *at);
        let is_new = seen.is_some_and(|at| at <= now && now - at <= IN_PLACE_FOR);
        if !is_new {
            self.look_first(now, task, knob);
        }
        is_new
    }

    /// A knob could not be read.
    fn miss(&mut self, now: Time, knob: KnobId, why: String) {
        if let Some(wanted) = self.wanted.get_mut(&knob) {
            wanted.failed = Some(now);
            let by: Vec<TaskId> = wanted.by.iter().copied().collect();
            by.into_iter().for_each(|task| self.wake(task));
        }
        let unread = self.last_look.as_mut().and_then(|look| look.left.get_mut(&knob));
        let Some(unread) = unread else { return };
        (unread.times, unread.in_vain) = (unread.times + 1, Some(now));
        if unread.times < ATTEMPTS_MAX || self.state.is_written(knob) {
            return;
        }
        if let Some(left) = &self.state.knobs[knob.index()] {
            let expected = left.value.clone();
            self.record(now, Fact::Astray { knob, expected, found: None, why });
        }
        self.end_last_look(knob);
    }

    /// Has a knob looked at before it is first turned: where it stood is where
    /// it goes back to.
    pub(super) fn look_first(&mut self, now: Time, task: TaskId, knob: KnobId) {
        let wanted = self.wanted.entry(knob).or_default();
        if wanted.by.insert(task) {
            wanted.since = now;
        }
        if wanted.failed.is_some() {
            self.hold(now, task, Hold::Unreadable { knob });
        }
    }

    /// A task that does something else does not want to know any more. It only
    /// ever asked for knobs of its own stages.
    pub(super) fn look_no_more(&mut self, task: TaskId) {
        for stage in &self.plan.task(task).stages {
            let (StageKind::Shift { knob, .. }
            | StageKind::Set { knob, .. }
            | StageKind::PutBack { knob }
            | StageKind::Verify { knob, .. }
            | StageKind::Govern { knob, .. }) = &stage.kind
            else {
                continue;
            };
            if let Entry::Occupied(mut wanted) = self.wanted.entry(*knob) {
                wanted.get_mut().by.remove(&task);
                if wanted.get().by.is_empty() {
                    wanted.remove();
                }
            }
        }
    }

    /// Whether everything that was turned was looked at since all tasks ended.
    pub(super) fn has_looked_at_all(&mut self, now: Time) -> bool {
        let state = &self.state;
        let turned = || {
            let knobs = state.knobs.iter().enumerate().filter(|(_, left)| left.is_some());
            let knobs = knobs.map(|(at, _)| KnobId(at as u32));
            knobs.filter(|knob| !state.astray.contains_key(knob))
        };
        let look = self.last_look.get_or_insert_with(|| LastLook {
            since: now,
            left: turned().map(|knob| (knob, Unread::default())).collect(),
        });
        look.left.is_empty()
    }

    fn is_last_look(&self, knob: KnobId, asked: Time) -> bool {
        let look = self.last_look.as_ref();
        look.is_some_and(|look| asked >= look.since && look.left.contains_key(&knob))
    }

    /// A knob moved after its last look, and before the run was closed: it is
    /// looked at again, once it was put back or nobody could.
    fn look_again(&mut self, knob: KnobId) {
        let is_said = self.state.astray.contains_key(&knob);
        if let Some(look) = self.last_look.as_mut().filter(|_| !is_said) {
            look.left.entry(knob).or_default();
        }
    }

    pub(super) fn end_last_look(&mut self, knob: KnobId) {
        if let Some(look) = &mut self.last_look {
            look.left.remove(&knob);
        }
    }
}
