//! How effects are done, what they meet, and what is heard of them.

use drain::engine::{Effect, EffectId, Ended, Event as Happening, InUse, Left, Phase, Run};
use drain::{KnobId, Millis, Value};

use super::{Driver, Item, Required};
use crate::drains::faults::{Fate, Fault};
use crate::drains::sabotage::Sabotage;
use crate::drains::world::{Fence, Written};

impl Driver {
    /// Begins an effect. What it meets decides when it is done and what is
    /// heard of it.
    pub(super) fn begin(&mut self, effect: EffectId, what: Effect) {
        let fate = self.faults.fate(self.now, &mut self.chance);
        let latency = self.world.site.latency;
        let (takes, long) = (latency * 0.5, Millis(self.chance.among(30_000..120_000)));
        let life = self.life;
        let occasion = self.occasion(effect);
        let required = self.required_by(effect);
        self.fail_over(effect);
        let perform = Item::Perform { life, effect, occasion, what: what.clone(), required };
        let failed = Ended::Failed { why: "no answer".into() };
        if self.sabotage == Some(Sabotage::Mute) && matches!(what, Effect::Say(_)) {
            return self.hear_of(effect, latency);
        }
        if let Some(result) = self.broken(&what) {
            self.tally.broken += 1;
            return self.add(takes, Item::Hear { life, effect, result });
        }
        self.tally.lost += u32::from(matches!(fate, Fate::LostAnswer | Fate::LostRequest));
        match fate {
            Fate::Normal => {
                self.add(takes, perform);
                self.hear_of(effect, latency);
            }
            Fate::Slow => {
                self.add(takes * 20.0, perform);
                self.hear_of(effect, latency * 20.0);
            }
            Fate::LostAnswer => {
                self.add(takes, perform);
                self.add(long, Item::Hear { life, effect, result: failed });
            }
            Fate::LostRequest => self.add(long, Item::Hear { life, effect, result: failed }),
            Fate::Failed => self.add(takes, Item::Hear { life, effect, result: failed }),
            Fate::Doubled => {
                self.add(takes, perform.clone());
                self.add(takes, perform);
                self.hear_of(effect, latency);
            }
        }
    }

    /// What is heard of a write to a knob that cannot be turned.
    fn broken(&self, what: &Effect) -> Option<Ended> {
        let Effect::Write { knob, .. } = what else { return None };
        let (is_refused, until) = self.broken.get(knob)?;
        (self.now < *until).then(|| match is_refused {
            true => Ended::Refused { why: "it is broken".into() },
            false => Ended::Failed { why: "it is broken".into() },
        })
    }

    /// Has the end of an effect heard; what was read back is found out then.
    pub(super) fn hear_of(&mut self, effect: EffectId, after: Millis) {
        if self.sabotage == Some(Sabotage::LostEnd) && effect.0 == 3 {
            return;
        }
        let result = Ended::Done { found: None };
        self.add(after, Item::Hear { life: self.life, effect, result });
    }

    pub(super) fn hear(&mut self, effect: EffectId, result: Ended) {
        let what = self.run.as_ref().and_then(|run| run.state().in_flight.get(&effect));
        let result = match (result, self.undone.remove(&effect)) {
            (Ended::Done { .. }, Some(why)) => Ended::Failed { why },
            (result, _) => result,
        };
        let result = match (result, what.map(|in_flight| in_flight.what.clone())) {
            (Ended::Done { .. }, Some(Effect::Write { knob, .. })) => {
                Ended::Done { found: Some(self.read(knob)) }
            }
            (result, _) => result,
        };
        self.tell(Happening::Ended { effect, result });
    }

    /// Something else promotes another server, now and then, right before a promotion is done.
    fn fail_over(&mut self, effect: EffectId) {
        let in_flight = self.run.as_ref().and_then(|run| run.state().in_flight.get(&effect));
        let promoted = in_flight.and_then(|own| self.plan.task(own.task).promoted_knob());
        let (Some(primary), Some(own)) = (promoted, in_flight) else { return };
        let is_promotion = matches!(own.what, Effect::Write { knob, .. } if knob == primary);
        let is_troubled = self.faults.effects > 0 && self.now < self.faults.until;
        if is_promotion && is_troubled && self.chance.happens(300) {
            self.suffer(Fault::Drift { knob: primary, value: Value::Number(0.6) });
        }
    }

    /// What must be so when an effect is done, and not only when it was decided.
    pub(super) fn required_by(&self, effect: EffectId) -> Required {
        match (&self.run, self.sabotage) {
            (_, Some(Sabotage::NothingRequired)) | (None, _) => Required::new(),
            (Some(run), _) => run.required_by(effect),
        }
    }

    /// What is not as an effect requires it.
    pub(super) fn unmet(&self, required: &Required) -> Option<String> {
        required.iter().find_map(|(knob, accepted)| {
            let found = self.read(*knob);
            let is_met = accepted.iter().any(|value| value.is_met_by(&found));
            (!is_met).then(|| format!("not done: {} is {found}", self.plan.knob(*knob)))
        })
    }

    /// Gives claims to tasks that ask, as the store does for all runs, and takes
    /// back what none needs any more.
    pub(super) fn grant_claims(&mut self) {
        let now = self.clock();
        let Some(run) = &self.run else { return };
        let kept = run.claims();
        self.claims.retain(|_, task| kept.contains(task));
        let Some((task, knobs)) = run.wanted_claims(now).next() else { return };
        let knobs = knobs.to_vec();
        let is_used = |knob: &KnobId| {
            let is_rival = self.claims.get(knob).is_some_and(|other| *other != task);
            is_rival || self.used.get(knob).is_some_and(|until| now < *until)
        };
        let refused = knobs.iter().copied().find(is_used);
        let answer = match refused.filter(|_| self.sabotage != Some(Sabotage::SharedClaims)) {
            Some(knob) => Err(InUse { knob, by: "another task".into() }),
            None => {
                self.claims.extend(knobs.iter().map(|knob| (*knob, task)));
                Ok(())
            }
        };
        // What it makes of it ends here again.
        self.tell(Happening::Claimed { task, answer });
    }

    /// What tells the repetition of an act from a second one.
    pub(super) fn occasion(&self, effect: EffectId) -> EffectId {
        let is_known = self.sabotage != Some(Sabotage::NoOccasions);
        let run = self.run.as_ref().filter(|_| is_known);
        run.map_or(effect, |run| run.state().occasion(effect))
    }

    /// Does to the world what an effect asks for.
    pub(super) fn perform(
        &mut self,
        effect: EffectId,
        occasion: EffectId,
        what: &Effect,
    ) -> Written {
        let fence = Fence { run: self.number, effect };
        let written = match what {
            Effect::Write { knob, value } => {
                let dial = self.dials[knob.index()].clone();
                if self.feigns(*knob, value) {
                    return match self.feigned.insert(*knob, value.clone()) {
                        Some(before) if before == *value => Written::Repeated,
                        _ => Written::Applied,
                    };
                }
                self.feigned.remove(knob);
                match self.sabotage {
                    Some(Sabotage::NoFences) => match self.world.turn(&dial, value) {
                        Ok(()) => Written::Applied,
                        Err(why) => Written::Refused(why),
                    },
                    _ => self.world.write(&dial, value, fence),
                }
            }
            Effect::Act(act) => self.world.act(act, Fence { effect: occasion, ..fence }),
            Effect::Say(_) => Written::Repeated,
        };
        self.tally.repeated += u32::from(written == Written::Repeated);
        self.tally.fenced += u32::from(written == Written::Fenced);
        written
    }

    /// Whether a write is one that is only said to be done.
    pub(super) fn feigns(&self, knob: KnobId, value: &Value) -> bool {
        let is_reverting = || {
            let state = self.run.as_ref().map(Run::state);
            let mut tasks = state.into_iter().flat_map(|state| &state.tasks);
            tasks.any(|task| task.phase == Phase::Reverting && task.origin(knob) == Some(value))
        };
        self.sabotage == Some(Sabotage::FeignedRevert) && is_reverting()
    }

    /// What a look at a knob finds.
    pub(super) fn find(&self, knob: KnobId) -> Value {
        let left = self.run.as_ref().and_then(|run| run.state().knobs[knob.index()].as_ref());
        let is_blind = |left: &&Left| match (self.sabotage, &self.run) {
            (Some(Sabotage::BlindLooks), _) => true,
            (Some(Sabotage::BlindSteps), Some(run)) => {
                run.state().task(left.task).phase.is_active()
            }
            _ => false,
        };
        let found = match left.filter(is_blind) {
            Some(left) => left.value.clone(),
            None => self.read(knob),
        };
        let is_elsewhere = |left: &&Left| !left.value.is_met_by(&found);
        match (self.sabotage, &self.run, left.filter(is_elsewhere)) {
            (Some(Sabotage::TurnedLooks), Some(run), Some(left)) => {
                let task = run.state().task(left.task);
                let is_moved = task.shift.is_some_and(|shift| shift.knob == knob);
                task.origin(knob).filter(|_| is_moved).cloned().unwrap_or(found)
            }
            _ => found,
        }
    }

    /// Where a knob stands, as far as the run can see.
    pub(super) fn read(&self, knob: KnobId) -> Value {
        let feigned = self.feigned.get(&knob).cloned();
        feigned.unwrap_or_else(|| self.world.read(&self.dials[knob.index()]))
    }
}
