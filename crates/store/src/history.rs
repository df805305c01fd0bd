//! How tasks went in earlier runs: what paces and deadlines of later ones are
//! made from.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::error::{Error, Result, bounded, signed};
use crate::lease::{Lease, hold};
use crate::open::Store;
use crate::records::JSON_LEN_MAX;
use crate::runs::{RunId, reading};

/// Performances in one list.
pub const HISTORY_LIMIT_MAX: u32 = 1000;

/// How a task went in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Performance {
    pub run: RunId,
    pub at: u64,
    pub duration_ms: u64,
    pub steps: u32,
    /// The largest step that its health bore, if it had steps.
    pub step: Option<f64>,
    pub outcome: String,
}

impl Store {
    /// Keeps how a task went in the run of the lease; `performance.run` must be
    /// that run. Saying it again replaces what was said before, so that a run
    /// that goes on after a crash counts once.
    pub async fn put_history(
        &self,
        lease: &Lease,
        task: &str,
        direction: &str,
        performance: &Performance,
    ) -> Result<()> {
        const PUT: &str = "keeping the history of a task";
        let failed = |error| Error::from_database(PUT, error);
        if performance.run != lease.run {
            let why = format!("run {} under a lease on run {}", performance.run, lease.run);
            return Err(Error::Invalid { what: PUT, why });
        }
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        hold(&mut transaction, lease).await?;
        put_performance(&mut transaction, task, direction, performance).await?;
        transaction.commit().await.map_err(failed)
    }

    /// How a task went in one direction, the newest first; at most
    /// [`HISTORY_LIMIT_MAX`] runs.
    pub async fn history(
        &self,
        task: &str,
        direction: &str,
        limit: u32,
    ) -> Result<Vec<Performance>> {
        let rows = sqlx::query(
            "SELECT run, at, duration_ms, steps, step, outcome FROM history \
             WHERE task = ? AND direction = ? ORDER BY run DESC LIMIT ?",
        )
        .bind(task)
        .bind(direction)
        .bind(limit.min(HISTORY_LIMIT_MAX))
        .fetch_all(&self.readers)
        .await
        .map_err(reading)?;
        let read = |row: sqlx::sqlite::SqliteRow| -> sqlx::Result<Performance> {
            Ok(Performance {
                run: RunId(row.try_get::<i64, _>("run")? as u64),
                at: row.try_get::<i64, _>("at")? as u64,
                duration_ms: row.try_get::<i64, _>("duration_ms")? as u64,
                steps: row.try_get("steps")?,
                step: row.try_get("step")?,
                outcome: row.try_get("outcome")?,
            })
        };
        rows.into_iter().map(|row| read(row).map_err(reading)).collect()
    }
}

/// Keeps how a task went in a run that is held.
pub(crate) async fn put_performance(
    connection: &mut SqliteConnection,
    task: &str,
    direction: &str,
    performance: &Performance,
) -> Result<()> {
    const PUT: &str = "keeping the history of a task";
    if performance.step.is_some_and(|step| !step.is_finite()) {
        return Err(Error::Invalid { what: PUT, why: "its step is not finite".into() });
    }
    for text in [task, direction, &performance.outcome] {
        bounded("a text about a task", text, JSON_LEN_MAX)?;
    }
    sqlx::query(
        "INSERT OR REPLACE INTO history \
         (task, direction, run, at, duration_ms, steps, step, outcome) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(task)
    .bind(direction)
    .bind(signed("a run", performance.run.0)?)
    .bind(signed("a time", performance.at)?)
    .bind(signed("a duration", performance.duration_ms)?)
    .bind(performance.steps)
    .bind(performance.step)
    .bind(&performance.outcome)
    .execute(connection)
    .await
    .map_err(|error| Error::from_database(PUT, error))?;
    Ok(())
}
