//! Who may write to a run.
//!
//! An executor takes a lease before it does anything. Every lease has an epoch,
//! newer than all before it, of any run: it is the first half of the fence that
//! goes with everything the executor does. Whoever takes a run over makes the
//! epoch before worthless; its holder finds out at its next write, and must stop.
//! A lease that ran out but was not taken by anybody still serves: clocks of
//! different machines never decide who may write, only who may take over.

use sqlx::sqlite::SqliteConnection;

use crate::error::{Error, Result, bounded, signed};
use crate::open::Store;
use crate::records::JSON_LEN_MAX;
use crate::runs::{Run, RunId, find, reading};

/// How far the clocks of hosts that share a store may differ. A lease that ends
/// later than one can last by that much is no lease: its holder's clock was wrong,
/// or somebody wrote it who is no holder. Believed, it would keep its run for ever.
pub const CLOCKS_DIFFER_MAX_MS: u64 = 60_000;

/// Whether a lease that lasts until then keeps others out now.
pub fn is_live(until: u64, now: u64, ttl_ms: u64) -> bool {
    let believed = now.saturating_add(ttl_ms).saturating_add(CLOCKS_DIFFER_MAX_MS);
    until > now && until <= believed
}

/// The right to write to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub run: RunId,
    /// Newer than that of every lease before, of any run.
    pub epoch: u64,
    pub holder: String,
}

impl Store {
    /// Takes the run, if nobody holds it, whoever held it did not renew in time,
    /// or the lease ends later than one can. The same holder gets it at once, with a newer epoch. A holder is
    /// one process: its name must never be that of another, and not of the same
    /// one started again.
    pub async fn lease(&self, run: RunId, holder: &str, now: u64, ttl_ms: u64) -> Result<Lease> {
        let is_kept = |held_by: &str, until| held_by != holder && is_live(until, now, ttl_ms);
        self.take(run, holder, now, ttl_ms, is_kept).await
    }

    /// Takes the run from whoever holds it. For a person who knows that the
    /// holder is gone for good.
    pub async fn seize(&self, run: RunId, holder: &str, now: u64, ttl_ms: u64) -> Result<Lease> {
        self.take(run, holder, now, ttl_ms, |_, _| false).await
    }

    /// Takes the run from `former`, which is known to be gone, if it is the one
    /// that holds it.
    pub async fn succeed(
        &self,
        run: RunId,
        former: &str,
        holder: &str,
        now: u64,
        ttl_ms: u64,
    ) -> Result<Lease> {
        let is_other = |held_by: &str| held_by != former && held_by != holder;
        let is_kept = |held_by: &str, until| is_other(held_by) && is_live(until, now, ttl_ms);
        self.take(run, holder, now, ttl_ms, is_kept).await
    }

    /// Whether the lease is still the one that counts, without a change.
    pub async fn check_lease(&self, lease: &Lease) -> Result<()> {
        let mut reader = self.readers.acquire().await.map_err(reading)?;
        hold(&mut reader, lease).await.map(|_| ())
    }

    async fn take(
        &self,
        run: RunId,
        holder: &str,
        now: u64,
        ttl_ms: u64,
        is_kept: impl Fn(&str, u64) -> bool,
    ) -> Result<Lease> {
        const LEASE: &str = "taking a run";
        let failed = |error| Error::from_database(LEASE, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let found = find(&mut transaction, run).await?;
        if let Some(outcome) = found.outcome {
            return Err(Error::Ended { run, outcome });
        }
        if let (Some(holder), Some(until)) = (found.holder, found.held_until)
            && is_kept(&holder, until)
        {
            return Err(Error::Held { run, holder, until });
        }
        let lease = put_lease(&mut transaction, run, holder, now.saturating_add(ttl_ms)).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(lease)
    }

    /// Says that the holder is alive.
    pub async fn renew(&self, lease: &Lease, now: u64, ttl_ms: u64) -> Result<()> {
        const RENEW: &str = "renewing a lease";
        let failed = |error| Error::from_database(RENEW, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        hold(&mut transaction, lease).await?;
        sqlx::query("UPDATE runs SET held_until = ? WHERE id = ?")
            .bind(signed("a time", now.saturating_add(ttl_ms))?)
            .bind(signed("a run", lease.run.0)?)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Gives the run back, so that others need not wait. Nothing happens if it
    /// was taken already.
    pub async fn release(&self, lease: Lease) -> Result<()> {
        const RELEASE: &str = "giving a lease back";
        let failed = |error| Error::from_database(RELEASE, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        sqlx::query("UPDATE runs SET holder = NULL, held_until = NULL WHERE id = ? AND epoch = ?")
            .bind(signed("a run", lease.run.0)?)
            .bind(signed("an epoch", lease.epoch)?)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }
}

/// Gives a run to a holder, under a newer epoch than any before.
pub(crate) async fn put_lease(
    connection: &mut SqliteConnection,
    run: RunId,
    holder: &str,
    until: u64,
) -> Result<Lease> {
    let failed = |error| Error::from_database("taking a run", error);
    bounded("the name of a holder", holder, JSON_LEN_MAX)?;
    let epoch = next_epoch(connection).await?;
    sqlx::query("UPDATE runs SET epoch = ?, holder = ?, held_until = ? WHERE id = ?")
        .bind(signed("an epoch", epoch)?)
        .bind(holder)
        .bind(signed("a time", until)?)
        .bind(signed("a run", run.0)?)
        .execute(connection)
        .await
        .map_err(failed)?;
    Ok(Lease { run, epoch, holder: holder.to_owned() })
}

/// A number that is newer than every epoch before.
pub(crate) async fn next_epoch(connection: &mut SqliteConnection) -> Result<u64> {
    let epoch: i64 = sqlx::query_scalar("UPDATE epochs SET newest = newest + 1 RETURNING newest")
        .fetch_one(connection)
        .await
        .map_err(|error| Error::from_database("taking a run", error))?;
    Ok(epoch as u64)
}

/// The run, if the lease is the one that counts. Inside a transaction that
/// writes: nobody can take the run until it ends.
pub(crate) async fn hold(connection: &mut SqliteConnection, lease: &Lease) -> Result<Run> {
    let found = find(connection, lease.run).await?;
    if found.epoch != lease.epoch || (found.holder.is_none() && found.outcome.is_none()) {
        return Err(Error::Deposed {
            run: lease.run,
            epoch: lease.epoch,
            newest: found.epoch,
            holder: found.holder,
        });
    }
    if let Some(outcome) = found.outcome {
        return Err(Error::Ended { run: lease.run, outcome });
    }
    Ok(found)
}
