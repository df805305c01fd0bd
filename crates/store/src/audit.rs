//! The audit log: what people did and why, in a chain that shows any change.

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row};

use crate::chain::{Digest, Link};
use crate::error::{Error, Result, bounded, signed};
use crate::open::Store;
use crate::records::JSON_LEN_MAX;
use crate::runs::{RunId, reading};

/// Entries in one page.
pub const AUDIT_LIMIT_MAX: u32 = 1000;

/// Something that somebody did, to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Audit<'a> {
    pub at: u64,
    pub actor: &'a str,
    /// The verb: `pause`, `override`.
    pub action: &'a str,
    pub reason: &'a str,
    pub run: Option<RunId>,
    /// What else belongs to it, such as values observed at that moment.
    pub json: &'a str,
}

/// Something that somebody did, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// From 1, without a gap.
    pub seq: u64,
    pub at: u64,
    pub actor: String,
    pub action: String,
    pub reason: String,
    pub run: Option<RunId>,
    pub json: String,
    pub digest: Digest,
}

/// The end of the log at some moment. Kept elsewhere, it proves later that
/// nothing up to there was changed or cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub entries: u64,
    pub digest: Digest,
}

/// What looking through the whole log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was changed; with a remembered head, nothing was cut off either.
    Verified(Head),
    /// The first entry that is not as it was.
    Broken { at: u64, why: String },
}

impl Store {
    /// Adds an entry to the log and returns its new end.
    pub async fn append_audit(&self, audit: Audit<'_>) -> Result<Head> {
        const APPEND: &str = "keeping an audit entry";
        let failed = |error| Error::from_database(APPEND, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        let head = put_audit(&mut transaction, audit).await?;
        transaction.commit().await.map_err(failed)?;
        Ok(head)
    }

    /// The end of the log, to be remembered elsewhere.
    pub async fn audit_head(&self) -> Result<Head> {
        let mut reader = self.readers.acquire().await.map_err(reading)?;
        head(&mut reader).await
    }

    /// Entries from a number on; at most 1000 of them.
    pub async fn audit(&self, from: u64, limit: u32) -> Result<Vec<AuditEntry>> {
        let mut reader = self.readers.acquire().await.map_err(reading)?;
        page(&mut reader, from, limit).await
    }

    /// Makes every digest again. A log whose end was cut off is whole in
    /// itself: only a head that was remembered elsewhere shows it.
    pub async fn verify_audit(&self, remembered: Option<Head>) -> Result<Verdict> {
        // One transaction: what is added meanwhile is not looked at.
        let mut reader = self.readers.begin().await.map_err(reading)?;
        let mut digest = Digest::genesis();
        let mut seen = 0;
        let is_other = |seen, digest| {
            remembered.is_some_and(|head| head.entries == seen && head.digest != digest)
        };
        if is_other(seen, digest) {
            let why = "the remembered head is not that of an empty log".into();
            return Ok(Verdict::Broken { at: 0, why });
        }
        if let Some(first) = first(&mut reader).await?.filter(|first| *first < 1) {
            let why = format!("an entry {first} stands before the first; it was put there");
            return Ok(Verdict::Broken { at: 0, why });
        }
        loop {
            let rows = rows(&mut reader, seen + 1, AUDIT_LIMIT_MAX).await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let entry = match read(row) {
                    Ok(entry) => entry,
                    // Nothing of that form was ever written.
                    Err(error) => {
                        let why = format!("it cannot be read: {error}");
                        return Ok(Verdict::Broken { at: seen + 1, why });
                    }
                };
                if let Err(why) = check(&entry, seen + 1, digest) {
                    return Ok(Verdict::Broken { at: seen + 1, why });
                }
                (seen, digest) = (entry.seq, entry.digest);
                if is_other(seen, digest) {
                    let why = "its digest is not the remembered one: the log was made anew".into();
                    return Ok(Verdict::Broken { at: seen, why });
                }
            }
        }
        match remembered {
            Some(head) if head.entries > seen => {
                let why =
                    format!("the log ends after {seen} entries; {} are remembered", head.entries);
                Ok(Verdict::Broken { at: seen + 1, why })
            }
            _ => Ok(Verdict::Verified(Head { entries: seen, digest })),
        }
    }
}

/// Whether an entry is the one that follows.
fn check(entry: &AuditEntry, seq: u64, before: Digest) -> std::result::Result<(), String> {
    if entry.seq != seq {
        return Err(format!("it is missing; the next one there is {}", entry.seq));
    }
    let link = Link {
        seq,
        at: entry.at,
        actor: &entry.actor,
        action: &entry.action,
        reason: &entry.reason,
        run: entry.run.map(|run| run.0),
        json: &entry.json,
    };
    if before.followed_by(&link) != entry.digest {
        return Err("it does not match its digest: it, or what was before it, was changed".into());
    }
    Ok(())
}

/// Adds an entry to the end of the log.
pub(crate) async fn put_audit(connection: &mut SqliteConnection, audit: Audit<'_>) -> Result<Head> {
    let failed = |error| Error::from_database("keeping an audit entry", error);
    for text in [audit.actor, audit.action, audit.reason, audit.json] {
        bounded("a text of an audit entry", text, JSON_LEN_MAX)?;
    }
    let head = head(connection).await?;
    let seq = head.entries + 1;
    let link = Link {
        seq,
        at: audit.at,
        actor: audit.actor,
        action: audit.action,
        reason: audit.reason,
        run: audit.run.map(|run| run.0),
        json: audit.json,
    };
    let digest = head.digest.followed_by(&link);
    sqlx::query(
        "INSERT INTO audit (seq, at, actor, action, reason, run, json, digest) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(signed("an audit entry", seq)?)
    .bind(signed("a time", audit.at)?)
    .bind(audit.actor)
    .bind(audit.action)
    .bind(audit.reason)
    .bind(audit.run.map(|run| signed("a run", run.0)).transpose()?)
    .bind(audit.json)
    .bind(digest.0.as_slice())
    .execute(connection)
    .await
    .map_err(failed)?;
    Ok(Head { entries: seq, digest })
}

async fn head(connection: &mut SqliteConnection) -> Result<Head> {
    let row = sqlx::query("SELECT seq, digest FROM audit ORDER BY seq DESC LIMIT 1")
        .fetch_optional(connection)
        .await
        .map_err(reading)?;
    let Some(row) = row else { return Ok(Head { entries: 0, digest: Digest::genesis() }) };
    let entries = row.try_get::<i64, _>("seq").map_err(reading)? as u64;
    Ok(Head { entries, digest: digest(&row)? })
}

/// The number of the first entry there is.
async fn first(connection: &mut SqliteConnection) -> Result<Option<i64>> {
    sqlx::query_scalar("SELECT min(seq) FROM audit").fetch_one(connection).await.map_err(reading)
}

async fn page(connection: &mut SqliteConnection, from: u64, limit: u32) -> Result<Vec<AuditEntry>> {
    rows(connection, from, limit).await?.iter().map(read).collect()
}

async fn rows(connection: &mut SqliteConnection, from: u64, limit: u32) -> Result<Vec<SqliteRow>> {
    sqlx::query(
        "SELECT seq, at, actor, action, reason, run, json, digest FROM audit \
         WHERE seq >= ? ORDER BY seq LIMIT ?",
    )
    .bind(signed("an audit entry", from)?)
    .bind(limit.min(AUDIT_LIMIT_MAX))
    .fetch_all(connection)
    .await
    .map_err(reading)
}

fn read(row: &SqliteRow) -> Result<AuditEntry> {
    Ok(AuditEntry {
        seq: row.try_get::<i64, _>("seq").map_err(reading)? as u64,
        at: row.try_get::<i64, _>("at").map_err(reading)? as u64,
        actor: row.try_get("actor").map_err(reading)?,
        action: row.try_get("action").map_err(reading)?,
        reason: row.try_get("reason").map_err(reading)?,
        run: row.try_get::<Option<i64>, _>("run").map_err(reading)?.map(|run| RunId(run as u64)),
        json: row.try_get("json").map_err(reading)?,
        digest: digest(row)?,
    })
}

fn digest(row: &SqliteRow) -> Result<Digest> {
    let octets: Vec<u8> = row.try_get("digest").map_err(reading)?;
    let octets = octets.try_into().map_err(|octets: Vec<u8>| Error::Invalid {
        what: "the digest of an audit entry",
        why: format!("{} octets; accepted: 32", octets.len()),
    })?;
    Ok(Digest(octets))
}
