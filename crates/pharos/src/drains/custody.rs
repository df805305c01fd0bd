//! Whether a run may be driven on from what the store says of it, and the way
//! out where it may not.
//!
//! A record can be lost or changed: by a disk, by a downgrade, or by somebody who
//! can write the store. What people said is also in the audit log, which is
//! signed; where the two differ, nobody knows what was said. So is the digest of the
//! plan: another plan may ask fewer people. Such a run stands
//! still and waits for a person. It also keeps its datacenter, so a person can
//! close it: that is recorded in the audit log, no knob is touched, and the values
//! from before the drain are kept for a restore.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use drain::engine::{Abort, Actor, Fact, Mode, Record, Run, RunOutcome, check_said};
use drain::{Direction, Eta, Time};
use serde::{Deserialize, Serialize};
use store::{Deed, Meaning, RunId, Step, Unmatched, plan_misfit, row_misfit, unmatched, unopened};

use super::fleet::Written;
use super::ledger::{direction_name, outcome_name, plan_digest};
use super::status::{NeedKind, NeedsPerson, Status};
use super::{Drains, Refused, fleet};

/// How a run ends that is closed without being read.
const OUTCOME: RunOutcome = RunOutcome::Held;

/// An open run that cannot be driven on from what the store says of it.
#[derive(Clone, Debug)]
pub struct Unreadable {
    pub datacenter: String,
    pub direction: String,
    since: Time,
    why: String,
}

/// What the audit log keeps of the end of a run that was not read.
#[derive(Debug, Serialize, Deserialize)]
struct Closing {
    by: Actor,
    closed: RunOutcome,
    because: String,
}

/// What the JSON of a record or of an audit entry says of its run.
pub fn meaning_of(json: &str) -> Meaning {
    let Ok(record) = serde_json::from_str::<Record>(json) else {
        return match serde_json::from_str::<Closing>(json) {
            Ok(closing) => Meaning::Closed { outcome: outcome_name(closing.closed) },
            Err(_) => Meaning::Other,
        };
    };
    match record.fact {
        Fact::Opened { .. } => Meaning::Opened { plan: plan_digest(json) },
        Fact::Closed { outcome } => Meaning::Closed { outcome: outcome_name(outcome) },
        fact if fact.by().is_some() => Meaning::Said,
        _ => Meaning::Other,
    }
}

/// Who did what an audit entry is about.
pub fn actor_of(json: &str) -> Option<Actor> {
    let record = serde_json::from_str::<Record>(json).ok();
    let actor = record.and_then(|record| record.fact.by().cloned());
    actor.or_else(|| Some(serde_json::from_str::<Closing>(json).ok()?.by))
}

fn way_out(run: RunId) -> String {
    format!("`pharos abort --run {run} --reason …`")
}

impl Unreadable {
    /// Why nothing can be said to the run, or begun beside it.
    pub fn refusal(&self, run: RunId) -> String {
        format!(
            "run {run} on {} stands still and is driven by nobody: {}; accepted: {}, which closes \
             it as held and leaves every knob where it is",
            self.datacenter,
            self.why,
            way_out(run)
        )
    }

    fn need(&self, run: RunId) -> NeedsPerson {
        NeedsPerson {
            kind: NeedKind::StandsStill,
            task: None,
            knob: None,
            since: self.since,
            why: format!("nothing is done: {}", self.why),
            todo: format!(
                "repair the store, or close the run with {} and then drain or restore {}",
                way_out(run),
                self.datacenter
            ),
        }
    }

    /// Says in a status that the run stands still.
    pub fn tell(&self, status: &mut Status) {
        status.needs_person = vec![self.need(RunId(status.run))];
        status.eta = Eta::Unknown { why: "what the store says of it cannot be used".into() };
        status.stands_still = Some(self.why.clone());
    }
}

/// What is known of a run without its plan and its records.
pub fn bare_status(run: &store::Run, now: Time, why: String) -> Status {
    let direction = match run.direction == direction_name(Direction::Drain) {
        true => Direction::Drain,
        false => Direction::Restore,
    };
    let mut status = Status {
        run: run.id.0,
        datacenter: run.datacenter.clone(),
        direction,
        mode: Mode::Drill,
        opened: Time(run.created_at),
        by: run.actor.clone(),
        reason: run.reason.clone(),
        now,
        outcome: None,
        paused: false,
        abort: None,
        eta: Eta::Unknown { why: String::new() },
        stands_still: None,
        elsewhere: None,
        needs_person: Vec::new(),
        tasks: Vec::new(),
        critical_path: Vec::new(),
        conditions: Vec::new(),
        drifts: Vec::new(),
        next_seq: run.records,
        samples: 0,
        strayed: Vec::new(),
        touched: Default::default(),
    };
    let (datacenter, direction) = (run.datacenter.clone(), run.direction.clone());
    Unreadable { datacenter, direction, since: now, why }.tell(&mut status);
    status
}

/// Says in a status how the run ended, where its records do not.
pub fn end(status: &mut Status, outcome: &str, at: Option<u64>) {
    if status.outcome.is_some() {
        return;
    }
    status.outcome = serde_json::from_value(outcome.into()).ok();
    status.eta = Eta::Ended { at: at.map_or(status.now, Time) };
    status.needs_person.clear();
}

impl Drains {
    pub(super) fn unreadable(&self) -> MutexGuard<'_, BTreeMap<RunId, Unreadable>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run from its plan and records, if they are what was written, and the
    /// time of the last record.
    pub(super) async fn read_run(&self, id: RunId) -> Result<(Run, Option<Time>), Refused> {
        let written = fleet::written(&self.world.store, id).await?;
        self.check(id, &written).await?;
        let Written { plan, entries, .. } = written;
        let left = entries.last().map(|(_, record)| record.at);
        let run = Run::resume(plan.into(), entries.iter().map(|(_, record)| record));
        let run = run.map_err(|corrupt| Refused::Unreadable(corrupt.to_string()))?;
        Ok((run, left))
    }

    /// Whether all records are there, everything that people said is in the audit
    /// log as well, and the other way round, and the run and its plan are those that
    /// the log opens it with.
    async fn check(&self, id: RunId, written: &Written) -> Result<(), Refused> {
        let (row, entries) = (self.find(id).await?, &written.entries);
        let (kept, found) = (row.records, entries.len());
        if kept != found as u64 {
            let why = format!("run {id} has {found} records, and {kept} were written");
            return Err(Refused::Unreadable(why));
        }
        let attested = self.world.store.attested(id, &self.audit_key).await;
        let attested = attested.map_err(|error| match error.is_transient() {
            true => error.into(),
            false => Refused::Unreadable(error.to_string()),
        })?;
        let opening = attested.iter().find_map(|entry| match meaning_of(&entry.json) {
            Meaning::Opened { plan } => Some((entry, plan)),
            _ => None,
        });
        // The row, the plan, the first records and the entry are written in one transaction.
        let Some((entry, plan)) = opening else { return Err(Refused::Unreadable(unopened(id))) };
        // Older Pharos opened runs without the digest of their plan.
        let found = Some(written.plan_digest);
        let misfit = plan.and_then(|plan| plan_misfit(id, entry.seq, plan, found));
        if let Some(why) = misfit.or_else(|| row_misfit(&row, entry)) {
            return Err(Refused::Unreadable(why));
        }
        let said: Vec<(u64, &str)> = attested
            .iter()
            .filter(|entry| meaning_of(&entry.json).is_authored())
            .map(|entry| (entry.seq, entry.json.as_str()))
            .collect();
        let authored = entries.iter().filter(|(_, record)| record.fact.by().is_some());
        let authored: Vec<(u64, &str)> =
            authored.map(|(entry, _)| (entry.seq, entry.json.as_str())).collect();
        let Some(first) = unmatched(&said, &authored).into_iter().next() else { return Ok(()) };
        let by = |texts: &[(u64, &str)], seq: u64| {
            let text = texts.iter().find(|(own, _)| *own == seq);
            let actor = text.and_then(|(_, json)| actor_of(json));
            actor.map_or(String::new(), |actor| format!(", by {actor},"))
        };
        Err(Refused::Unreadable(match first {
            Unmatched::Record(seq) => format!(
                "record {seq} of run {id}{} has no audit entry: it was put there or changed by \
                 something else than Pharos",
                by(&authored, seq)
            ),
            Unmatched::Entry(seq) => format!(
                "audit entry {seq}{} has no record in run {id}: the record was taken out or \
                 changed by something else than Pharos",
                by(&said, seq)
            ),
        }))
    }

    /// Notes that a run waits for a person; says so once.
    pub(super) fn note_unreadable(&self, run: &store::Run, why: String) {
        let mut unreadable = self.unreadable();
        if unreadable.get(&run.id).is_some_and(|known| known.why == why) {
            return;
        }
        let (datacenter, direction) = (run.datacenter.clone(), run.direction.clone());
        let own = Unreadable { datacenter, direction, since: self.world.clock.now(), why };
        let message = self.world.channels.alert(run.id, &run.datacenter, &own.need(run.id));
        self.world.channels.send(message.into_iter().collect());
        unreadable.insert(run.id, own);
    }

    /// Why a run that is not driven here cannot be, if it cannot.
    pub(super) fn undriven(&self, id: RunId) -> Option<String> {
        if self.driven().contains_key(&id) {
            return None;
        }
        let unreadable = self.unreadable().get(&id).map(|own| own.why.clone());
        unreadable.or_else(|| self.panic_of(id))
    }

    /// Ends a run that cannot be driven, for a person. Nothing is read of it, no
    /// knob is touched, and the values from before the drain are kept.
    pub(super) async fn close_undriven(
        &self,
        id: RunId,
        by: Actor,
        reason: String,
        how: Abort,
        why: &str,
    ) -> Result<(), Refused> {
        permit_closing(id, &by, &reason, how)?;
        let lease = self.take(id).await?;
        let at = self.world.clock.now().0;
        let actor = by.to_string();
        let closing = Closing { by, closed: OUTCOME, because: why.to_owned() };
        let deed = Deed {
            at,
            actor: actor.clone(),
            action: "abort, hold, without reading its records".into(),
            reason,
            json: serde_json::to_string(&closing).expect("closings are JSON"),
        };
        let step =
            Step { deeds: vec![deed], ended: Some((outcome_name(OUTCOME), at)), ..Step::default() };
        if let Err(error) = self.world.store.keep(&lease, &step).await {
            self.give_back(lease).await;
            return Err(error.into());
        }
        self.unreadable().remove(&id);
        self.panicked().remove(&id);
        tracing::warn!(
            run = %id, by = actor, "closed as held without being read ({why}); its knobs are where \
             they were, and are not watched before the next drain or restore"
        );
        Ok(())
    }
}

fn permit_closing(id: RunId, by: &Actor, reason: &str, how: Abort) -> Result<(), Refused> {
    check_said(by, reason).map_err(|refusal| Refused::Conflict(refusal.to_string()))?;
    let refusal = if by.uid().is_none() {
        format!("{by} is no person; accepted: an operator on the control socket")
    } else if reason.trim().is_empty() {
        "no reason is given; accepted: one that a post-mortem can use".to_owned()
    } else if how == Abort::Revert {
        format!(
            "run {id} cannot be reverted, since its records cannot be used; accepted: {}, which \
             leaves every knob where it is, and then a restore",
            way_out(id)
        )
    } else {
        return Ok(());
    };
    Err(Refused::Conflict(refusal))
}
