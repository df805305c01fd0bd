//! What a drain leaves behind: where knobs stood before, and how much of a
//! datacenter is drained. Both outlive the run, since another one restores it.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::error::{Error, Result, bounded, signed};
use crate::lease::{Lease, hold};
use crate::open::Store;
use crate::records::{ENTRIES_MAX, JSON_LEN_MAX};
use crate::runs::{Run, RunId, reading};

/// Where a knob stood before its datacenter was drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    pub knob: String,
    /// The value, as JSON.
    pub json: String,
    /// The run that found it there.
    pub run: RunId,
}

/// How much of a datacenter is drained, and who said so.
#[derive(Clone, Debug, PartialEq)]
pub struct Drained {
    pub datacenter: String,
    /// Of its traffic, 0 to 1.
    pub share: f64,
    pub run: RunId,
    pub at: u64,
}

impl Store {
    /// Keeps where knobs stand, as name and JSON, before the run of the lease
    /// turns them for the first time. What is kept of a knob already stays: a
    /// second drain finds it where the first one put it, and that is not where
    /// it belongs.
    pub async fn keep_originals(&self, lease: &Lease, found: &[(&str, &str)]) -> Result<()> {
        const KEEP: &str = "keeping where knobs stood";
        let failed = |error| Error::from_database(KEEP, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let run = hold(&mut transaction, lease).await?;
        put_originals(&mut transaction, &run, found).await?;
        transaction.commit().await.map_err(failed)
    }

    /// Where the knobs of a datacenter stood before it was drained.
    pub async fn originals(&self, datacenter: &str) -> Result<Vec<Original>> {
        let rows =
            sqlx::query("SELECT knob, json, run FROM originals WHERE datacenter = ? ORDER BY knob")
                .bind(datacenter)
                .fetch_all(&self.readers)
                .await
                .map_err(reading)?;
        let read = |row: sqlx::sqlite::SqliteRow| -> sqlx::Result<Original> {
            Ok(Original {
                knob: row.try_get("knob")?,
                json: row.try_get("json")?,
                run: RunId(row.try_get::<i64, _>("run")? as u64),
            })
        };
        rows.into_iter().map(|row| read(row).map_err(reading)).collect()
    }

    /// Forgets where the knobs of the run's datacenter stood, because they are
    /// back there. The next drain finds them anew.
    pub async fn drop_originals(&self, lease: &Lease) -> Result<()> {
        const DROP: &str = "forgetting where knobs stood";
        let failed = |error| Error::from_database(DROP, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let run = hold(&mut transaction, lease).await?;
        sqlx::query("DELETE FROM originals WHERE datacenter = ?")
            .bind(&run.datacenter)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Says how much of the run's datacenter is drained now.
    pub async fn put_drained(&self, lease: &Lease, share: f64, at: u64) -> Result<()> {
        const PUT: &str = "keeping how much is drained";
        let failed = |error| Error::from_database(PUT, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let run = hold(&mut transaction, lease).await?;
        put_share(&mut transaction, &run, share, at).await?;
        transaction.commit().await.map_err(failed)
    }

    /// Every datacenter that a run ever said something about.
    pub async fn drained(&self) -> Result<Vec<Drained>> {
        let rows =
            sqlx::query("SELECT datacenter, share, run, at FROM drained ORDER BY datacenter")
                .fetch_all(&self.readers)
                .await
                .map_err(reading)?;
        let read = |row: sqlx::sqlite::SqliteRow| -> sqlx::Result<Drained> {
            Ok(Drained {
                datacenter: row.try_get("datacenter")?,
                share: row.try_get("share")?,
                run: RunId(row.try_get::<i64, _>("run")? as u64),
                at: row.try_get::<i64, _>("at")? as u64,
            })
        };
        rows.into_iter().map(|row| read(row).map_err(reading)).collect()
    }
}

/// Keeps where knobs stand, unless it is known already.
pub(crate) async fn put_originals<S: AsRef<str>>(
    connection: &mut SqliteConnection,
    run: &Run,
    found: &[(S, S)],
) -> Result<()> {
    let failed = |error| Error::from_database("keeping where knobs stood", error);
    if found.len() > ENTRIES_MAX {
        let (len, max) = (found.len() as u64, ENTRIES_MAX as u64);
        return Err(Error::TooLarge { what: "the list of knobs", len, max });
    }
    for (knob, json) in found {
        bounded("the name of a knob", knob.as_ref(), JSON_LEN_MAX)?;
        bounded("the value of a knob", json.as_ref(), JSON_LEN_MAX)?;
        sqlx::query(
            "INSERT INTO originals (datacenter, knob, json, run) VALUES (?, ?, ?, ?) \
             ON CONFLICT DO NOTHING",
        )
        .bind(&run.datacenter)
        .bind(knob.as_ref())
        .bind(json.as_ref())
        .bind(signed("a run", run.id.0)?)
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    }
    Ok(())
}

/// Forgets the value that a knob of a datacenter had before its drain.
pub(crate) async fn forget_original(
    connection: &mut SqliteConnection,
    run: &Run,
    knob: &str,
) -> Result<()> {
    sqlx::query("DELETE FROM originals WHERE datacenter = ? AND knob = ?")
        .bind(&run.datacenter)
        .bind(knob)
        .execute(connection)
        .await
        .map_err(|error| Error::from_database("forgetting where knobs stood", error))?;
    Ok(())
}

/// Says how much of a run's datacenter is drained.
pub(crate) async fn put_share(
    connection: &mut SqliteConnection,
    run: &Run,
    share: f64,
    at: u64,
) -> Result<()> {
    const PUT: &str = "keeping how much is drained";
    if !(0.0..=1.0).contains(&share) {
        let why = format!("the share is {share}; accepted: 0 to 1");
        return Err(Error::Invalid { what: PUT, why });
    }
    sqlx::query("INSERT OR REPLACE INTO drained (datacenter, share, run, at) VALUES (?, ?, ?, ?)")
        .bind(&run.datacenter)
        .bind(share)
        .bind(signed("a run", run.id.0)?)
        .bind(signed("a time", at)?)
        .execute(connection)
        .await
        .map_err(|error| Error::from_database(PUT, error))?;
    Ok(())
}
