//! The values of knobs before a drain: what the store says of them, compared
//! with what the drain recorded when it found them. The store has both, but a
//! restore must not believe a value that nothing confirms without a word.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use drain::engine::{Effect, Fact};
use drain::{Direction, Goal, KnobId, Plan, StageKind, Task, Value};
use store::RunId;

use super::survey::Survey;
use super::{Drains, Refused, fleet, ledger};

/// The values of the knobs of a datacenter before its drain.
#[derive(Debug, Default)]
pub struct Originals {
    pub values: BTreeMap<String, Value>,
    /// What is wrong with some of them, for people.
    doubts: Vec<String>,
    /// Knobs of which no value is known any more.
    lost: Vec<String>,
    /// Knobs that the drain set to the value that they had, with a text about it.
    vain: Vec<(String, String)>,
}

/// What a drain recorded of its knobs.
#[derive(Debug, Default)]
struct Recorded {
    found: BTreeMap<String, Value>,
    /// The value that was written last.
    set: BTreeMap<String, Value>,
    /// Switches that it closes and opens again: they end as they began.
    fences: BTreeSet<String>,
}

impl Originals {
    /// As a plan takes them. Where the only values cannot be read, their knobs are
    /// left as they are, like those that the drain did not come to. So are all knobs
    /// where only services without knobs are to come back (`is_knobless`).
    pub fn for_plan(self, is_knobless: bool) -> BTreeMap<String, Value> {
        let mut values = self.values;
        if values.is_empty() && (is_knobless || !self.lost.is_empty()) {
            // No knob has this name.
            values.insert(String::new(), Value::Number(0.0));
        }
        values
    }

    fn add(&mut self, original: &store::Original, recorded: &Result<Recorded, String>) {
        let (knob, run) = (&original.knob, original.run);
        let kept = serde_json::from_str::<Value>(&original.json);
        let found = recorded.as_ref().ok().and_then(|own| own.found.get(knob));
        let unconfirmed = match recorded {
            Ok(_) => format!("run {run} has no record of it"),
            Err(why) => why.clone(),
        };
        let value = match (kept, found) {
            (Ok(kept), Some(found)) if kept == *found => kept,
            (Ok(kept), Some(found)) => {
                self.doubts.push(format!(
                    "{knob}: the store says that it was {kept} before the drain, and run {run} \
                     recorded that it was {found}; the record is used"
                ));
                found.clone()
            }
            (Ok(kept), None) => {
                self.doubts.push(format!(
                    "{knob}: the store says that it was {kept} before the drain, and nothing \
                     confirms that: {unconfirmed}"
                ));
                kept
            }
            (Err(error), Some(found)) => {
                self.doubts.push(format!(
                    "{knob}: its value before the drain cannot be read in the store ({error}); run \
                     {run} recorded that it was {found}, which is used"
                ));
                found.clone()
            }
            (Err(error), None) => {
                self.lost.push(format!(
                    "{knob}: its value before the drain cannot be read in the store ({error}), and \
                     {unconfirmed}; accepted: that row repaired, or --disaster, which leaves the \
                     knob as it is and forgets the row"
                ));
                return;
            }
        };
        let set = recorded.as_ref().ok().filter(|own| !own.fences.contains(knob));
        let set = set.and_then(|own| own.set.get(knob));
        if set == Some(&value) {
            let text = format!(
                "{knob}: it was {value} before the drain, and run {run} set it to the same: the \
                 restore sets it to that, and brings nothing back there"
            );
            self.vain.push((knob.clone(), text));
        }
        self.values.insert(knob.clone(), value);
    }
}

/// Whether a task moves a knob to a value in steps.
fn shifts_to(task: Option<&Task>, knob: KnobId, value: &Value) -> bool {
    let mut stages = task.into_iter().flat_map(Task::forward);
    stages.any(|stage| match &stage.kind {
        StageKind::Shift { knob: own, to } => *own == knob && to.value().is_met_by(value),
        _ => false,
    })
}

impl Recorded {
    fn of(plan: &Plan, facts: impl Iterator<Item = Fact>) -> Recorded {
        let fences = plan.tasks.iter().flat_map(|task| &task.fences);
        let fences = fences.map(|fence| plan.knob(fence.knob).to_string()).collect();
        let mut recorded = Recorded { fences, ..Recorded::default() };
        // What was found last before the first write: what was only read may have been read badly.
        // Of numbers the first counts: those after it are what somebody moved it to.
        let mut read = BTreeMap::new();
        for fact in facts {
            match fact {
                Fact::Found { task, knob, value, .. } if knob.index() < plan.knobs.len() => {
                    let task = plan.tasks.get(task.index());
                    let origin = task.and_then(|task| task.origin_of(knob, &value));
                    let name = plan.knob(knob).to_string();
                    let is_new = !recorded.set.contains_key(&name);
                    // What was found at its goal, and is elsewhere before anything was set, was
                    // read badly.
                    let is_wrong = |before: &Value| is_new && shifts_to(task, knob, before);
                    match (read.get(&knob), origin) {
                        (Some(before), Some(now))
                            if ledger::moved_by_hand(before, &now) && !is_wrong(before) =>
                        {
                            if is_new {
                                recorded.found.insert(name.clone(), before.clone());
                                recorded.set.insert(name, value);
                            }
                        }
                        (_, Some(origin)) => _ = read.insert(knob, origin),
                        (_, None) => {}
                    }
                }
                Fact::Issued { what: Effect::Write { knob, value }, .. }
                    if knob.index() < plan.knobs.len() =>
                {
                    let name = plan.knob(knob).to_string();
                    if let Some(origin) =
                        read.get(&knob).filter(|_| !recorded.set.contains_key(&name))
                    {
                        recorded.found.insert(name.clone(), origin.clone());
                    }
                    recorded.set.insert(name, value);
                }
                _ => {}
            }
        }
        recorded
    }
}

impl Drains {
    /// The values of the knobs of a datacenter before its drain.
    pub(super) async fn originals(&self, datacenter: &str) -> Result<Originals, Refused> {
        let mut originals = Originals::default();
        let mut runs = BTreeMap::<RunId, Result<Recorded, String>>::new();
        for original in self.world.store.originals(datacenter).await? {
            let run = original.run;
            let recorded = match runs.entry(run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.recorded_by(run, datacenter).await),
            };
            originals.add(&original, recorded);
        }
        Ok(originals)
    }

    /// What a drain of a datacenter recorded; if that is not known, why.
    async fn recorded_by(&self, run: RunId, datacenter: &str) -> Result<Recorded, String> {
        let records = fleet::records(&self.world.store, run).await;
        let (plan, records) = records.map_err(|refused| refused.to_string())?;
        match plan.datacenter == datacenter && plan.direction == Direction::Drain {
            true => Ok(Recorded::of(&plan, records.into_iter().map(|record| record.fact))),
            false => Err(format!("run {run} is no drain of {datacenter}")),
        }
    }

    /// Says what is wrong with the values that a plan uses. Only the restore of
    /// the datacenter itself depends on them.
    pub(super) async fn judge_originals(&self, plan: &Plan, survey: &mut Survey) {
        for datacenter in &plan.datacenters {
            // Who cannot be asked here was asked a moment ago, for the plan.
            let Ok(own) = self.originals(&datacenter.name).await else { continue };
            survey.warnings.extend(own.doubts);
            let is_restored =
                plan.direction == Direction::Restore && datacenter.name == plan.datacenter;
            if is_restored {
                survey.problems.extend(own.lost);
                let brought_back = brought_back(plan);
                let vain = own.vain.into_iter().filter(|(knob, _)| brought_back.contains(knob));
                survey.warnings.extend(vain.map(|(_, text)| text));
            } else {
                survey.warnings.extend(own.lost);
            }
        }
    }
}

/// Knobs that a plan sets to their values before the drain.
fn brought_back(plan: &Plan) -> BTreeSet<String> {
    let stages = plan.tasks.iter().flat_map(|task| &task.stages);
    let goals = stages.filter_map(|stage| match &stage.kind {
        StageKind::Shift { knob, to: Goal::Original(_) }
        | StageKind::Set { knob, to: Goal::Original(_), .. } => Some(plan.knob(*knob).to_string()),
        _ => None,
    });
    goals.collect()
}
