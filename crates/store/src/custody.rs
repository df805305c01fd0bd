//! Whether the records of runs and the audit log say the same.
//!
//! What people do to a run is written twice, in one transaction: as a record,
//! from which the run goes on, and as an entry of the audit log, which is signed.
//! Whoever can write the file, and has no key, can put a record there, and no
//! entry. So a record with an author counts only beside its entry. The entry that
//! opens a run has the digest of its plan, and who began what and why: the plan and
//! the row of the run must be those.

use std::collections::BTreeMap;
use std::fmt;

use futures_util::TryStreamExt;
use sha2::{Digest as _, Sha256};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::audit::{AUDIT_LIMIT_MAX, AuditEntry, Head, check, read, rows, sized};
use crate::chain::Digest;
use crate::error::{Error, Result, signed};
use crate::key::PublicKey;
use crate::open::Store;
use crate::runs::{Run, RunId, all_runs, reading};
use crate::schema;

/// What the JSON of a record or of an audit entry says of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Somebody began the run, of a plan with this digest. Older Pharos wrote none.
    Opened { plan: Option<Digest> },
    /// Somebody did something to it.
    Said,
    /// It ended.
    Closed { outcome: String },
    /// Something else, or nothing that can be read.
    Other,
}

impl Meaning {
    /// Whether it is something that somebody did.
    pub fn is_authored(&self) -> bool {
        matches!(self, Meaning::Opened { .. } | Meaning::Said)
    }
}

/// Reads the JSON of a record or of an audit entry. This crate does not know what
/// it means.
pub type Interpret = fn(&str) -> Meaning;

/// Differences that are told.
const TOLD_MAX: usize = 20;
const LOG: &str = "the audit log";

/// What is on one side only, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// A record without an audit entry.
    Record(u64),
    /// An audit entry without a record.
    Entry(u64),
}

/// Compares the entries and the authored records of one run, each with its
/// number, in their order.
pub fn unmatched<T: PartialEq>(entries: &[(u64, T)], records: &[(u64, T)]) -> Vec<Unmatched> {
    let mut unmatched = Vec::new();
    let mut rest = entries;
    for (seq, record) in records {
        match rest.iter().position(|(_, entry)| entry == record) {
            Some(at) => {
                unmatched.extend(rest[..at].iter().map(|(seq, _)| Unmatched::Entry(*seq)));
                rest = &rest[at + 1..];
            }
            None => unmatched.push(Unmatched::Record(*seq)),
        }
    }
    unmatched.extend(rest.iter().map(|(seq, _)| Unmatched::Entry(*seq)));
    unmatched
}

impl Store {
    /// The audit entries of a run, each as its digest and signature say. Entries
    /// that are older than the key have no signature by it: of them the chain up
    /// to where the key began is proven.
    pub async fn attested(&self, run: RunId, key: &PublicKey) -> Result<Vec<AuditEntry>> {
        let mut reader = self.readers.begin().await.map_err(reading)?;
        schema::check_newest(self.path(), &mut reader).await?;
        let found = sqlx::query(
            "SELECT own.*, before.digest AS digest_before FROM audit own \
             LEFT JOIN audit before ON before.seq = own.seq - 1 WHERE own.run = ? ORDER BY own.seq",
        )
        .bind(signed("a run", run.0)?)
        .fetch_all(&mut *reader)
        .await
        .map_err(reading)?;
        let (mut entries, mut oldest) = (Vec::with_capacity(found.len()), None);
        for row in &found {
            let entry = read(row)?;
            let before: Option<Vec<u8>> = row.try_get("digest_before").map_err(reading)?;
            let before = match before {
                Some(digest) => Digest(sized("the digest of an audit entry", digest)?),
                None => Digest::genesis(),
            };
            check(&entry, entry.seq, before).map_err(|why| broken(entry.seq, why))?;
            if !is_signed(&entry, key) {
                if entry.seq > key.since.entries {
                    let why = format!(
                        "it is not signed by key {}, the one of this server, which signs every \
                         entry from {} on",
                        key.id(),
                        key.since.entries + 1
                    );
                    return Err(broken(entry.seq, why));
                }
                oldest.get_or_insert(Head { entries: entry.seq - 1, digest: before });
            }
            entries.push(entry);
        }
        if let Some(oldest) = oldest {
            walk(&mut reader, oldest, key.since).await?;
        }
        Ok(entries)
    }
}

fn broken(seq: u64, why: String) -> Error {
    Error::Invalid { what: LOG, why: format!("entry {seq}: {why}") }
}

fn is_signed(entry: &AuditEntry, key: &PublicKey) -> bool {
    let head = Head { entries: entry.seq, digest: entry.digest };
    entry.signature.is_some_and(|own| own.key == key.bytes && own.is_of(&head))
}

/// Makes digests again from one head on, up to one that is known.
async fn walk(reader: &mut SqliteConnection, from: Head, known: Head) -> Result<()> {
    let mut head = from;
    while head.entries < known.entries {
        let left = known.entries - head.entries;
        let limit = left.min(u64::from(AUDIT_LIMIT_MAX)) as u32;
        let page = rows(reader, head.entries + 1, limit).await?;
        if page.is_empty() {
            let why = format!("it is missing; the key is newer than entry {}", known.entries);
            return Err(broken(head.entries + 1, why));
        }
        for row in &page {
            let entry = read(row)?;
            let seq = head.entries + 1;
            check(&entry, seq, head.digest).map_err(|why| broken(seq, why))?;
            head = Head { entries: seq, digest: entry.digest };
        }
    }
    if head != known {
        let why = "its digest is not the one that the key began with: the log was made anew";
        return Err(broken(known.entries, why.into()));
    }
    Ok(())
}

/// The action of the audit entry that opens a run.
pub fn opening_action(direction: &str, datacenter: &str) -> String {
    format!("{direction} {datacenter}")
}

/// How the row of a run differs from the signed entry that opens it, if it does.
pub fn row_misfit(run: &Run, opening: &AuditEntry) -> Option<String> {
    let (id, seq) = (run.id, opening.seq);
    let differs = |what: &str, row: &dyn fmt::Display, signed: &dyn fmt::Display| {
        Some(format!(
            "run {id} was begun {what} `{row}` by the table of runs, and {what} `{signed}` by \
             audit entry {seq}: the table was changed by something else than Pharos"
        ))
    };
    let action = opening_action(&run.direction, &run.datacenter);
    if run.actor != opening.actor {
        differs("by", &run.actor, &opening.actor)
    } else if opening.action != action && !opening.action.starts_with(&format!("{action}, ")) {
        // What a restore gives up follows.
        differs("as", &action, &opening.action)
    } else if run.reason != opening.reason {
        differs("for", &run.reason, &opening.reason)
    } else if run.created_at != opening.at {
        differs("at", &run.created_at, &opening.at)
    } else {
        None
    }
}

/// That no entry of the audit log opens a run.
pub fn unopened(run: RunId) -> String {
    format!(
        "run {run} is in the table of runs, and no audit entry opens it: it was put there by \
         something else than Pharos"
    )
}

/// Why a plan is not the one that the entry `seq` opens its run with, if so.
/// `plan` is the digest of what the store has, if it has anything.
pub fn plan_misfit(run: RunId, seq: u64, signed: Digest, plan: Option<Digest>) -> Option<String> {
    if plan == Some(signed) {
        return None;
    }
    let found = plan.map_or("it is missing".to_owned(), |plan| format!("its digest is {plan}"));
    Some(format!(
        "the plan of run {run} is not the one that audit entry {seq} opens it with: {found}, not \
         {signed}; it was changed by something else than Pharos"
    ))
}

/// What there is of one run.
#[derive(Default)]
struct Sides {
    /// The texts that have an author, by their numbers.
    entries: Vec<(u64, [u8; 32])>,
    records: Vec<(u64, [u8; 32])>,
    /// The entry that opens the run, and the digest of its plan.
    opening: Option<(AuditEntry, Option<Digest>)>,
    /// How it ended, by an audit entry, and by a record.
    closed_in_log: Option<Ending>,
    closed: Option<Ending>,
    row: Option<Run>,
}

/// How a run ended, and when.
struct Ending {
    outcome: String,
    at: u64,
}

/// What was found between the log and the runs.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Differences, for people: the first ones.
    pub why: Vec<String>,
    /// Runs whose entry has no digest of their plan.
    pub without_plan: u64,
}

/// Compares the log with records, rows and plans of all runs. Inside one
/// transaction: all of them are written in one.
pub(crate) async fn compare_runs(
    reader: &mut SqliteConnection,
    interpret: Interpret,
) -> Result<Compared> {
    let runs = collect(reader, interpret).await?;
    let (mut compared, mut more) = (Compared::default(), 0);
    for (run, sides) in &runs {
        let mut why: Vec<String> = unmatched(&sides.entries, &sides.records)
            .into_iter()
            .map(|own| describe(*run, own))
            .collect();
        why.extend(row_differences(*run, sides));
        match &sides.opening {
            Some((entry, Some(signed))) => {
                let plan = plan_digest(reader, *run).await?;
                why.extend(plan_misfit(RunId(*run), entry.seq, *signed, plan));
            }
            Some((_, None)) => compared.without_plan += 1,
            None => {}
        }
        for own in why {
            match compared.why.len() < TOLD_MAX {
                true => compared.why.push(own),
                false => more += 1,
            }
        }
    }
    if more > 0 {
        compared.why.push(format!("and {more} more"));
    }
    Ok(compared)
}

async fn collect(
    reader: &mut SqliteConnection,
    interpret: Interpret,
) -> Result<BTreeMap<u64, Sides>> {
    let mut runs = BTreeMap::<u64, Sides>::new();
    let mut entries =
        sqlx::query("SELECT * FROM audit WHERE run IS NOT NULL ORDER BY seq").fetch(&mut *reader);
    while let Some(row) = entries.try_next().await.map_err(reading)? {
        let entry = read(&row)?;
        let sides = runs.entry(entry.run.map_or(0, |run| run.0)).or_default();
        let meaning = interpret(&entry.json);
        if meaning.is_authored() {
            sides.entries.push((entry.seq, Sha256::digest(&entry.json).into()));
        }
        match meaning {
            Meaning::Opened { plan } if sides.opening.is_none() => {
                sides.opening = Some((entry, plan));
            }
            Meaning::Closed { outcome } => {
                sides.closed_in_log = Some(Ending { outcome, at: entry.at });
            }
            _ => {}
        }
    }
    drop(entries);
    let mut records =
        sqlx::query("SELECT run, seq, at, json FROM records ORDER BY run, seq").fetch(&mut *reader);
    while let Some(row) = records.try_next().await.map_err(reading)? {
        let number = |column| row.try_get::<i64, _>(column).map_err(reading);
        // What is no text says nothing; the other side is then alone.
        let Ok(json) = row.try_get::<String, _>("json") else { continue };
        let meaning = interpret(&json);
        if meaning == Meaning::Other {
            continue;
        }
        let sides = runs.entry(number("run")? as u64).or_default();
        if meaning.is_authored() {
            sides.records.push((number("seq")? as u64, Sha256::digest(&json).into()));
        }
        if let Meaning::Closed { outcome } = meaning {
            sides.closed = Some(Ending { outcome, at: number("at")? as u64 });
        }
    }
    drop(records);
    for row in all_runs(reader).await? {
        let run = row.id.0;
        runs.entry(run).or_default().row = Some(row);
    }
    Ok(runs)
}

/// Where what `history` shows of a run is not what else is written of it. How a run
/// ended is in its last record, which nobody signs, or in the audit log if a person
/// closed it unread.
fn row_differences(run: u64, sides: &Sides) -> Vec<String> {
    let mut why = Vec::new();
    match (&sides.opening, &sides.row) {
        (Some((opening, _)), Some(row)) => why.extend(row_misfit(row, opening)),
        (Some((opening, _)), None) => why.push(format!(
            "audit entry {} opens run {run}, which is not in the table of runs: it was taken out \
             by something else than Pharos",
            opening.seq
        )),
        (None, Some(row)) => why.push(unopened(row.id)),
        (None, None) => {}
    }
    // One that was cut off at its very end is ended when it is taken up.
    let ended = sides.row.as_ref().and_then(|row| Some((row.outcome.as_deref()?, row.ended_at)));
    let Some((outcome, ended_at)) = ended else { return why };
    match sides.closed_in_log.as_ref().or(sides.closed.as_ref()) {
        Some(written) if written.outcome != outcome => why.push(format!(
            "run {run} ended as `{outcome}` by the table of runs, and as `{}` by what was written \
             when it ended",
            written.outcome
        )),
        Some(written) if ended_at != Some(written.at) => why.push(format!(
            "run {run} ended at {} by the table of runs, and at {} by what was written when it \
             ended (milliseconds since 1970 UTC)",
            ended_at.map_or("no time".to_owned(), |at| at.to_string()),
            written.at
        )),
        Some(_) => {}
        None => why.push(format!(
            "run {run} ended as `{outcome}` by the table of runs, and no record says that it ended"
        )),
    }
    why
}

async fn plan_digest(reader: &mut SqliteConnection, run: u64) -> Result<Option<Digest>> {
    let plan: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT CAST(json AS BLOB) FROM plans WHERE run = ?")
            .bind(signed("a run", run)?)
            .fetch_optional(reader)
            .await
            .map_err(reading)?;
    Ok(plan.map(|plan| Digest::of(&plan)))
}

fn describe(run: u64, own: Unmatched) -> String {
    match own {
        Unmatched::Record(seq) => format!(
            "record {seq} of run {run} has no audit entry: it was put there or changed by \
             something else than Pharos"
        ),
        Unmatched::Entry(seq) => format!(
            "audit entry {seq} has no record in run {run}: the record was taken out or changed by \
             something else than Pharos"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_one_side_only_is_found_in_its_place() {
        let texts = |texts: &'static str| (1..).zip(texts.chars()).collect::<Vec<_>>();
        let check = |entries, records, expected: &[Unmatched]| {
            assert_eq!(
                unmatched(&texts(entries), &texts(records)),
                expected,
                "{entries} {records}"
            );
        };
        use Unmatched::{Entry, Record};
        check("", "", &[]);
        check("abc", "abc", &[]);
        check("abc", "abxc", &[Record(3)]);
        check("abc", "abcx", &[Record(4)]);
        check("abc", "ac", &[Entry(2)]);
        check("abc", "ab", &[Entry(3)]);
        // Changed, and said twice.
        check("abc", "axc", &[Record(2), Entry(2)]);
        check("abc", "abbc", &[Record(3)]);
        // Another order is another story.
        check("abc", "acb", &[Entry(2), Record(3)]);
    }
}
