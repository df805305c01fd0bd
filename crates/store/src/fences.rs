//! Fences that runs left closed when they ended. They are kept for as long as
//! nobody has read that they are open, whatever runs come later.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::error::{Error, Result, bounded, signed};
use crate::open::Store;
use crate::records::JSON_LEN_MAX;
use crate::runs::{Run, RunId, reading};

/// A fence that a run left closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedFence {
    pub knob: String,
    pub run: RunId,
    pub datacenter: String,
    /// What is to be known of it besides.
    pub json: String,
    /// Since when it is closed.
    pub at: u64,
}

impl Store {
    /// All of them, by their knobs.
    pub async fn fences(&self) -> Result<Vec<ClosedFence>> {
        const ALL: &str = "SELECT knob, run, datacenter, json, at FROM fences \
                           JOIN runs ON runs.id = fences.run ORDER BY knob";
        let rows = sqlx::query(ALL).fetch_all(&self.readers).await.map_err(reading)?;
        let read = |row: sqlx::sqlite::SqliteRow| -> sqlx::Result<ClosedFence> {
            Ok(ClosedFence {
                knob: row.try_get("knob")?,
                run: RunId(row.try_get::<i64, _>("run")? as u64),
                datacenter: row.try_get("datacenter")?,
                json: row.try_get("json")?,
                at: row.try_get::<i64, _>("at")? as u64,
            })
        };
        rows.into_iter().map(|row| read(row).map_err(reading)).collect()
    }

    /// Forgets a fence that is open, unless another run has left it closed since.
    pub async fn forget_fence(&self, fence: &ClosedFence) -> Result<()> {
        let failed = |error| Error::from_database("forgetting a fence", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let forget = sqlx::query("DELETE FROM fences WHERE knob = ? AND run = ?");
        let forget = forget.bind(&fence.knob).bind(signed("a run", fence.run.0)?);
        forget.execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }
}

/// Keeps fences that a run leaves closed: knob, JSON, and since when.
pub(crate) async fn put_fences(
    connection: &mut SqliteConnection,
    run: &Run,
    fences: &[(String, String, u64)],
) -> Result<()> {
    let failed = |error| Error::from_database("keeping fences", error);
    for (knob, json, at) in fences {
        bounded("the name of a knob", knob, JSON_LEN_MAX)?;
        bounded("what a fence is", json, JSON_LEN_MAX)?;
        sqlx::query("INSERT OR REPLACE INTO fences (knob, run, json, at) VALUES (?, ?, ?, ?)")
            .bind(knob)
            .bind(signed("a run", run.id.0)?)
            .bind(json)
            .bind(signed("a time", *at)?)
            .execute(&mut *connection)
            .await
            .map_err(failed)?;
    }
    Ok(())
}
