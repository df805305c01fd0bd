//! Runs: who started what, and how it ended.

use std::fmt;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::error::{Error, Result, bounded, signed};
use crate::lease::{Lease, hold};
use crate::open::Store;
use crate::records::JSON_LEN_MAX;

/// The longest plan that is kept: ten thousand tasks are a tenth of it.
pub const PLAN_LEN_MAX: usize = 64 << 20;
/// Runs in one list.
pub const RUNS_LIMIT_MAX: u32 = 1000;

/// The number of a run. It only grows, and is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'a> {
    pub datacenter: &'a str,
    pub direction: &'a str,
    /// What is to be done, as JSON. Kept as it is.
    pub plan: &'a str,
    pub actor: &'a str,
    pub reason: &'a str,
    pub at: u64,
}

/// A run, without its plan and its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: RunId,
    pub datacenter: String,
    pub direction: String,
    pub actor: String,
    pub reason: String,
    pub created_at: u64,
    pub ended_at: Option<u64>,
    pub outcome: Option<String>,
    /// How many records it has, which is the number of the next one.
    pub records: u64,
    /// The newest lease, and until when whom it belongs to.
    pub epoch: u64,
    pub holder: Option<String>,
    pub held_until: Option<u64>,
}

/// Which runs to list. Everything that is `None` is not looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    pub datacenter: Option<&'a str>,
    pub direction: Option<&'a str>,
    pub ended: Option<bool>,
    /// Runs older than this one: where the next page begins.
    pub before: Option<RunId>,
}

const COLUMNS: &str = "id, datacenter, direction, actor, reason, created_at, ended_at, outcome, \
                       next_seq, epoch, holder, held_until";

impl Store {
    /// Begins a run. Refused while another run on the datacenter has not ended.
    pub async fn create_run(&self, new: NewRun<'_>) -> Result<RunId> {
        const CREATE: &str = "creating a run";
        let failed = |error| Error::from_database(CREATE, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let id = put_run(&mut transaction, new).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(id)
    }

    /// Ends a run and gives its lease back. Saying the same again changes
    /// nothing; saying something else is refused.
    pub async fn end_run(&self, lease: &Lease, outcome: &str, at: u64) -> Result<()> {
        const END: &str = "ending a run";
        let failed = |error| Error::from_database(END, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        match hold(&mut transaction, lease).await {
            Err(Error::Ended { outcome: ended, .. }) if ended == outcome => return Ok(()),
            held => held?,
        };
        put_outcome(&mut transaction, lease.run, outcome, at).await?;
        transaction.commit().await.map_err(failed)
    }

    pub async fn run(&self, id: RunId) -> Result<Run> {
        let mut reader = self.readers.acquire().await.map_err(reading)?;
        find(&mut reader, id).await
    }

    /// The plan of a run, as it was when it began.
    pub async fn plan(&self, id: RunId) -> Result<String> {
        let plan = sqlx::query_scalar("SELECT json FROM plans WHERE run = ?")
            .bind(signed("a run", id.0)?)
            .fetch_optional(&self.readers)
            .await
            .map_err(reading)?;
        plan.ok_or(Error::NoSuchRun(id))
    }

    /// When a run ended last, of all that have.
    pub async fn last_end(&self) -> Result<Option<u64>> {
        let at: Option<i64> = sqlx::query_scalar("SELECT max(ended_at) FROM runs")
            .fetch_one(&self.readers)
            .await
            .map_err(reading)?;
        Ok(at.map(|at| at as u64))
    }

    /// Runs, the newest first; at most [`RUNS_LIMIT_MAX`] of them.
    pub async fn runs(&self, filter: Filter<'_>, limit: u32) -> Result<Vec<Run>> {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT ");
        query.push(COLUMNS).push(" FROM runs WHERE 1");
        if let Some(datacenter) = filter.datacenter {
            query.push(" AND datacenter = ").push_bind(datacenter.to_owned());
        }
        if let Some(direction) = filter.direction {
            query.push(" AND direction = ").push_bind(direction.to_owned());
        }
        match filter.ended {
            Some(true) => _ = query.push(" AND ended_at IS NOT NULL"),
            Some(false) => _ = query.push(" AND ended_at IS NULL"),
            None => {}
        }
        if let Some(before) = filter.before {
            query.push(" AND id < ").push_bind(signed("a run", before.0)?);
        }
        query.push(" ORDER BY id DESC LIMIT ").push_bind(limit.min(RUNS_LIMIT_MAX));
        let rows = query.build().fetch_all(&self.readers).await.map_err(reading)?;
        rows.iter().map(read).collect()
    }
}

/// Begins a run, if none is open on its datacenter.
pub(crate) async fn put_run(connection: &mut SqliteConnection, new: NewRun<'_>) -> Result<RunId> {
    let failed = |error| Error::from_database("creating a run", error);
    bounded("the plan of a run", new.plan, PLAN_LEN_MAX)?;
    for text in [new.datacenter, new.direction, new.actor, new.reason] {
        bounded("a text about a run", text, JSON_LEN_MAX)?;
    }
    let open: Option<i64> =
        sqlx::query_scalar("SELECT id FROM runs WHERE datacenter = ? AND ended_at IS NULL")
            .bind(new.datacenter)
            .fetch_optional(&mut *connection)
            .await
            .map_err(failed)?;
    if let Some(open) = open {
        let run = RunId(open as u64);
        return Err(Error::Open { datacenter: new.datacenter.to_owned(), run });
    }
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO runs (datacenter, direction, actor, reason, created_at) \
         VALUES (?, ?, ?, ?, ?) RETURNING id",
    )
    .bind(new.datacenter)
    .bind(new.direction)
    .bind(new.actor)
    .bind(new.reason)
    .bind(signed("a time", new.at)?)
    .fetch_one(&mut *connection)
    .await
    .map_err(failed)?;
    sqlx::query("INSERT INTO plans (run, json) VALUES (?, ?)")
        .bind(id)
        .bind(new.plan)
        .execute(connection)
        .await
        .map_err(failed)?;
    Ok(RunId(id as u64))
}

/// Ends a run that is held.
pub(crate) async fn put_outcome(
    connection: &mut SqliteConnection,
    run: RunId,
    outcome: &str,
    at: u64,
) -> Result<()> {
    bounded("the outcome of a run", outcome, JSON_LEN_MAX)?;
    sqlx::query(
        "UPDATE runs SET ended_at = ?, outcome = ?, holder = NULL, held_until = NULL WHERE id = ?",
    )
    .bind(signed("a time", at)?)
    .bind(outcome)
    .bind(signed("a run", run.0)?)
    .execute(&mut *connection)
    .await
    .map_err(|error| Error::from_database("ending a run", error))?;
    sqlx::query("DELETE FROM claims WHERE run = ?")
        .bind(signed("a run", run.0)?)
        .execute(connection)
        .await
        .map_err(|error| Error::from_database("ending a run", error))?;
    Ok(())
}

pub(crate) fn reading(error: sqlx::Error) -> Error {
    Error::from_database("reading the store", error)
}

pub(crate) async fn find(connection: &mut SqliteConnection, id: RunId) -> Result<Run> {
    let mut query = QueryBuilder::<Sqlite>::new("SELECT ");
    query.push(COLUMNS).push(" FROM runs WHERE id = ").push_bind(signed("a run", id.0)?);
    let row = query.build().fetch_optional(connection).await.map_err(reading)?;
    row.as_ref().map_or(Err(Error::NoSuchRun(id)), read)
}

/// All runs there are, for a verification.
pub(crate) async fn all_runs(connection: &mut SqliteConnection) -> Result<Vec<Run>> {
    let mut query = QueryBuilder::<Sqlite>::new("SELECT ");
    query.push(COLUMNS).push(" FROM runs ORDER BY id");
    let rows = query.build().fetch_all(connection).await.map_err(reading)?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<Run> {
    let number = |column| row.try_get::<i64, _>(column).map(|n| n as u64).map_err(reading);
    let maybe_number = |column| {
        row.try_get::<Option<i64>, _>(column).map(|n| n.map(|n| n as u64)).map_err(reading)
    };
    Ok(Run {
        id: RunId(number("id")?),
        datacenter: row.try_get("datacenter").map_err(reading)?,
        direction: row.try_get("direction").map_err(reading)?,
        actor: row.try_get("actor").map_err(reading)?,
        reason: row.try_get("reason").map_err(reading)?,
        created_at: number("created_at")?,
        ended_at: maybe_number("ended_at")?,
        outcome: row.try_get("outcome").map_err(reading)?,
        records: number("next_seq")?,
        epoch: number("epoch")?,
        holder: row.try_get("holder").map_err(reading)?,
        held_until: maybe_number("held_until")?,
    })
}
