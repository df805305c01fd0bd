//! What one step of a run leaves behind, in one transaction: its records, and
//! whatever else follows from them. Either all of it is there, or the step was
//! never taken.

use sqlx::sqlite::SqliteConnection;

use crate::audit::{Audit, put_audit};
use crate::error::{Error, Result};
use crate::fences::put_fences;
use crate::history::{Performance, put_performance};
use crate::key::{AuditKey, SentHead};
use crate::lease::{Lease, hold, put_lease};
use crate::open::Store;
use crate::originals::{forget_original, put_originals, put_share};
use crate::records::{Entry, put_entries};
use crate::runs::{NewRun, Run, put_outcome, put_run};

/// Everything that a step leaves behind. What is empty changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub entries: Vec<Entry>,
    pub deeds: Vec<Deed>,
    /// Where knobs stood, as name and JSON, before the run turned them.
    pub originals: Vec<(String, String)>,
    /// How much of the datacenter is drained, and since when.
    pub drained: Option<(f64, u64)>,
    /// How tasks went, by their names.
    pub performances: Vec<(String, Performance)>,
    /// Knobs whose values before the drain are not needed any more.
    pub forgets_originals: Vec<String>,
    /// Fences that the run leaves closed: their knobs, JSON, and since when.
    pub fences: Vec<(String, String, u64)>,
    /// How the run ended, and when.
    pub ended: Option<(String, u64)>,
}

/// Something that somebody did to the run, for the audit log.
#[derive(Clone, Debug)]
pub struct Deed {
    pub at: u64,
    pub actor: String,
    pub action: String,
    pub reason: String,
    pub json: String,
}

impl Store {
    /// Begins a run that `holder` holds until then, with its first step. The time
    /// of a lease is not that of a run, whose clock may be ahead.
    pub async fn begin_run(
        &self,
        new: NewRun<'_>,
        holder: &str,
        held_until: u64,
        first: &Step,
    ) -> Result<Lease> {
        let failed = |error| Error::from_database("beginning a run", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let run = put_run(&mut transaction, new).await?;
        let lease = put_lease(&mut transaction, run, holder, held_until).await?;
        let run = hold(&mut transaction, &lease).await?;
        let heads = put_step(&mut transaction, &run, first, self.key.get()).await?;
        transaction.commit().await.map_err(failed)?;
        self.send(heads);
        Ok(lease)
    }

    /// Keeps a step of the run of the lease, durable when this returns.
    pub async fn keep(&self, lease: &Lease, step: &Step) -> Result<()> {
        let failed = |error| Error::from_database("keeping a step", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let run = hold(&mut transaction, lease).await?;
        let heads = put_step(&mut transaction, &run, step, self.key.get()).await?;
        transaction.commit().await.map_err(failed)?;
        self.send(heads);
        Ok(())
    }
}

/// Returns the heads of the audit log, one for each entry.
async fn put_step(
    connection: &mut SqliteConnection,
    run: &Run,
    step: &Step,
    key: Option<&AuditKey>,
) -> Result<Vec<SentHead>> {
    let mut heads = Vec::new();
    put_entries(connection, run, &step.entries).await?;
    for deed in &step.deeds {
        let audit = Audit {
            at: deed.at,
            actor: &deed.actor,
            action: &deed.action,
            reason: &deed.reason,
            run: Some(run.id),
            json: &deed.json,
        };
        heads.push(put_audit(connection, audit, key).await?);
    }
    put_originals(connection, run, &step.originals).await?;
    if let Some((share, at)) = step.drained {
        put_share(connection, run, share, at).await?;
    }
    for (task, performance) in &step.performances {
        if performance.run != run.id {
            let why = format!("run {} under a lease on run {}", performance.run, run.id);
            return Err(Error::Invalid { what: "keeping the history of a task", why });
        }
        put_performance(connection, task, &run.direction, performance).await?;
    }
    put_fences(connection, run, &step.fences).await?;
    for knob in &step.forgets_originals {
        forget_original(connection, run, knob).await?;
    }
    if let Some((outcome, at)) = &step.ended {
        put_outcome(connection, run.id, outcome, *at).await?;
    }
    Ok(heads)
}
