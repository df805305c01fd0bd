//! What a run leaves behind with its records: what people did, where knobs
//! stood, how much is drained, and how long tasks took.

use std::collections::BTreeSet;

use drain::engine::{Actor, Effect, Fact, Record, Run, RunOutcome};
use drain::fleet::Fleet;
use drain::report::Report;
use drain::{Away, Direction, Knob, Plan, Time, Value};
use serde::{Deserialize, Serialize};
use store::chain::Digest;
use store::{Deed, Entry, Performance, Result, RunId, Step, Store, opening_action};

/// The outcome of a task that is done, but was held by bad health on the way.
pub const BREACHED: &str = "breached";

pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Drain => "drain",
        Direction::Restore => "restore",
    }
}

pub fn outcome_name(outcome: RunOutcome) -> String {
    serde_json::json!(outcome).as_str().unwrap_or_default().to_owned()
}

/// The record that opens a run, as it is kept: with the digest of the plan, which
/// the audit entry then signs.
#[derive(Debug, Serialize)]
struct Opening<'a> {
    #[serde(flatten)]
    record: &'a Record,
    plan_sha256: String,
}

/// The digest of the plan of a run, by the JSON of what opens it. Older Pharos kept
/// none.
pub fn plan_digest(opening: &str) -> Option<Digest> {
    #[derive(Deserialize)]
    struct Kept {
        plan_sha256: Option<String>,
    }
    let kept = serde_json::from_str::<Kept>(opening).ok()?;
    Digest::parse(&kept.plan_sha256?)
}

/// The first step of a run of a plan, which is kept as this JSON.
pub fn first_step(run: &Run, records: &[Record], plan: &str) -> Step {
    let mut step = step(run, records);
    for (entry, record) in step.entries.iter_mut().zip(records) {
        if !matches!(record.fact, Fact::Opened { .. }) {
            continue;
        }
        let plan_sha256 = Digest::of(plan.as_bytes()).to_string();
        let opening = Opening { record, plan_sha256 };
        let opening = serde_json::to_string(&opening).expect("records are JSON");
        let before = std::mem::replace(&mut entry.json, opening.clone());
        for deed in step.deeds.iter_mut().filter(|deed| deed.json == before) {
            deed.json.clone_from(&opening);
        }
    }
    step
}

/// Records, and everything that follows from them for others.
pub fn step(run: &Run, records: &[Record]) -> Step {
    let plan = run.plan();
    let mut step = Step::default();
    for record in records {
        let json = serde_json::to_string(record).expect("records are JSON");
        let at = record.at.0;
        let deed = |actor: &Actor, action: String, reason: &str| Deed {
            at,
            actor: actor.to_string(),
            action,
            reason: reason.to_owned(),
            json: json.clone(),
        };
        match &record.fact {
            Fact::Opened { by, reason, .. } => {
                let given_up = plan.left_behind.iter().filter(|own| own.is_given_up);
                let given_up: String =
                    given_up.map(|own| format!(", give up {}", own.name())).collect();
                let action = opening_action(direction_name(plan.direction), &plan.datacenter);
                let action = format!("{action}{given_up}");
                step.deeds.push(deed(by, action, reason));
            }
            Fact::Commanded { by, reason, command, .. } => {
                step.deeds.push(deed(by, command.describe(plan), reason));
            }
            // What is changed now, with the value before it: one that was only read may have
            // been read badly.
            Fact::Issued { task, what: Effect::Write { knob, .. }, .. }
                if plan.direction == Direction::Drain =>
            {
                if let Some(value) = run.state().task(*task).origin(*knob) {
                    let value = serde_json::json!(value).to_string();
                    step.originals.push((plan.knob(*knob).to_string(), value));
                }
            }
            // Somebody moved it before its first step: where it stood before that is where it
            // goes back to, also if nothing is left to be written.
            Fact::Found { task, knob, value, .. } if plan.direction == Direction::Drain => {
                let origin = run.state().task(*task).origin(*knob);
                if let Some(origin) = origin.filter(|own| moved_by_hand(own, value)) {
                    let origin = serde_json::json!(origin).to_string();
                    step.originals.push((plan.knob(*knob).to_string(), origin));
                }
            }
            _ => {}
        }
        if matches!(record.fact, Fact::Moved { .. } | Fact::Ended { .. } | Fact::Closed { .. }) {
            step.drained = Some((0.0, at));
        }
        step.entries.push(Entry { seq: record.seq, at, json });
    }
    #[cfg(test)]
    if super::tests::Mutation::AuditEntryDropped.is_planted() {
        step.deeds.pop();
    }
    if let Some((share, _)) = &mut step.drained {
        *share = drained(plan, run);
    }
    step
}

/// Whether a knob that was found at a number is found at another one: something else
/// moved it meanwhile.
pub fn moved_by_hand(before: &Value, now: &Value) -> bool {
    before.number().is_some() && now.number().is_some() && !before.is_met_by(now)
}

/// Adds to the last step of a run how it ended, and how its tasks went.
pub async fn close(
    step: &mut Step,
    store: &Store,
    id: RunId,
    run: &Run,
    last: &[Record],
) -> Result<()> {
    let Some((at, outcome)) = run.state().closed else { return Ok(()) };
    let mut records = Vec::new();
    let mut is_whole = true;
    for entry in store.records(id, 0).all().await? {
        match serde_json::from_str::<Record>(&entry.json) {
            Ok(record) => records.push(record),
            // How tasks went cannot be told from a part of them.
            Err(error) => {
                tracing::error!(
                    run = %id, seq = entry.seq,
                    "a record cannot be read, and the run adds nothing to the history: {error}"
                );
                is_whole = false;
            }
        }
    }
    records.extend(last.iter().cloned());
    if is_whole {
        step.performances = performances(id, run.plan(), &records, at);
    }
    // Everything has its value from before; the next drain finds it there. What an earlier drain
    // moved is still away.
    let known = store.originals(&run.plan().datacenter).await?;
    let is_back = match run.plan().direction {
        Direction::Drain => {
            outcome == RunOutcome::Reverted && known.iter().all(|original| original.run == id)
        }
        Direction::Restore => outcome == RunOutcome::Completed,
    };
    // What the runbooks of a restore do not know is not back: one that does may come.
    let is_away = |knob: &String| {
        let mut away = run.plan().left_behind.iter().filter(|own| !own.is_given_up);
        away.any(|own| matches!(&own.what, Away::Knob { name, .. } if name == knob))
    };
    // What is elsewhere at the end is not back either, and another restore may bring it.
    let astray: BTreeSet<String> =
        run.state().astray.keys().map(|knob| run.plan().knob(*knob).to_string()).collect();
    let known = known.into_iter().map(|original| original.knob);
    let is_forgotten = |knob: &String| is_back && !is_away(knob) && !astray.contains(knob);
    step.forgets_originals = known.filter(is_forgotten).collect();
    step.fences = fences(run, at);
    step.ended = Some((outcome_name(outcome), at.0));
    Ok(())
}

/// A fence that a run left closed, with what opens it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeftFence {
    pub knob: Knob,
    pub fence: drain::Fence,
    /// Its value before it was closed, if a task found it.
    pub before: Option<Value>,
    /// It was left closed on purpose, and a restore did not open it: writes are refused while
    /// just its server is the primary.
    #[serde(default)]
    pub keeps: Option<Fenced>,
}

/// The server that a fence keeps from taking writes, and the knob that says who is primary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fenced {
    pub primary: Knob,
    pub server: Value,
}

/// Adds fences that a restore did not open to the last step of it.
pub fn keep_unopened(step: &mut Step, fences: &[(LeftFence, Time)]) {
    for (left, since) in fences {
        let knob = left.knob.to_string();
        if step.fences.iter().all(|(own, ..)| *own != knob) {
            step.fences.push((knob, serde_json::json!(left).to_string(), since.0));
        }
    }
}

fn fences(run: &Run, ended: Time) -> Vec<(String, String, u64)> {
    let (plan, state) = (run.plan(), run.state());
    let left = state.left_closed(plan).map(|(task, fence)| {
        let since = state.knobs[fence.knob.index()].as_ref().map_or(ended, |left| left.since);
        let left = LeftFence {
            knob: plan.knob(fence.knob).clone(),
            fence: fence.clone(),
            before: state.task(task).origin(fence.knob).cloned(),
            keeps: None,
        };
        (left.knob.to_string(), serde_json::json!(left).to_string(), since.0)
    });
    left.collect()
}

fn performances(
    run: RunId,
    plan: &Plan,
    records: &[Record],
    at: Time,
) -> Vec<(String, Performance)> {
    let report = match Report::of(plan, records) {
        Ok(report) => report,
        // The next plan knows less; the run has ended all the same.
        Err(corrupt) => {
            tracing::error!(%run, "the run adds nothing to the history: {corrupt}");
            return Vec::new();
        }
    };
    let mut performances = Vec::new();
    for task in report.tasks {
        let Some(sample) = task.sample else { continue };
        let performance = Performance {
            run,
            at: at.0,
            duration_ms: sample.took.0,
            steps: task.steps,
            step: (sample.step > 0.0).then_some(sample.step),
            outcome: if sample.was_breached { BREACHED } else { "done" }.into(),
        };
        performances.push((task.name, performance));
    }
    performances
}

/// How much of the datacenter is drained, by the values of its knobs.
fn drained(plan: &Plan, run: &Run) -> f64 {
    let fleet = Fleet::left_by(plan, run.state());
    plan.own_index().map_or(0.0, |own| fleet.drained_share(plan, own, 0.0))
}
