//! Knobs that only one task of one run may set at a time, whichever process
//! drives it: a fence must not be lifted by another task than the one that
//! closed it. A claim belongs to the run, so it outlives the process.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::error::{Error, Result, bounded, signed};
use crate::lease::{Lease, hold, next_epoch};
use crate::open::Store;
use crate::records::JSON_LEN_MAX;
use crate::runs::{RunId, reading};

/// What came of asking for knobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The task has them. What it writes is to be fenced with this epoch, newer
    /// than that of every lease and every claim before: a target that compares
    /// fences must not take it for a write of a process that was deposed.
    Granted { epoch: u64 },
    /// Another task has one of them.
    InUse(Claim),
}

/// A claim of another task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub knob: String,
    pub run: RunId,
    pub task: String,
}

impl Store {
    /// Gives all of these knobs to a task, or none if another has one of them.
    /// What the task has already it keeps.
    pub async fn claim(&self, lease: &Lease, task: &str, knobs: &[String]) -> Result<Claimed> {
        let failed = |error| Error::from_database("claiming knobs", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        hold(&mut transaction, lease).await?;
        bounded("the name of a task", task, JSON_LEN_MAX)?;
        for knob in knobs {
            bounded("the name of a knob", knob, JSON_LEN_MAX)?;
            let found = find(&mut transaction, knob).await?;
            let is_own = |own: &Claim| own.run == lease.run && own.task == task;
            if let Some(other) = found.filter(|found| !is_own(found)) {
                return Ok(Claimed::InUse(other));
            }
            sqlx::query("INSERT OR REPLACE INTO claims (knob, run, task) VALUES (?, ?, ?)")
                .bind(knob)
                .bind(signed("a run", lease.run.0)?)
                .bind(task)
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
        }
        let epoch = next_epoch(&mut transaction).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(Claimed::Granted { epoch })
    }

    /// Who has a knob, if an open run does.
    pub async fn claim_of(&self, knob: &str) -> Result<Option<Claim>> {
        let mut reader = self.readers.acquire().await.map_err(reading)?;
        find(&mut reader, knob).await
    }

    /// Gives back the claims of all tasks of the run but these.
    pub async fn keep_claims(&self, lease: &Lease, tasks: &[String]) -> Result<()> {
        let failed = |error| Error::from_database("giving claims back", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        hold(&mut transaction, lease).await?;
        let mut query = sqlx::QueryBuilder::new("DELETE FROM claims WHERE run = ");
        query.push_bind(signed("a run", lease.run.0)?);
        for task in tasks {
            query.push(" AND task != ").push_bind(task);
        }
        query.build().execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }
}

/// Who has a knob. A run that is over has none.
async fn find(connection: &mut SqliteConnection, knob: &str) -> Result<Option<Claim>> {
    const FIND: &str = "SELECT run, task FROM claims JOIN runs ON runs.id = claims.run \
                        WHERE knob = ? AND ended_at IS NULL";
    let row = sqlx::query(FIND).bind(knob).fetch_optional(connection).await.map_err(reading)?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Claim {
        knob: knob.to_owned(),
        run: RunId(row.try_get::<i64, _>("run").map_err(reading)? as u64),
        task: row.try_get("task").map_err(reading)?,
    }))
}
