//! Whether the records of runs and the audit log say the same.
//!
//! What people do to a run is written twice, in one transaction: as a record,
//! from which the run goes on, and as an entry of the audit log, which is signed.
//! Whoever can write the file, and has no key, can put a record there, and no
//! entry. So a record with an author counts only beside its entry.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use sha2::{Digest as _, Sha256};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::audit::{AUDIT_LIMIT_MAX, AuditEntry, Head, check, read, rows, sized};
use crate::chain::Digest;
use crate::error::{Error, Result, signed};
use crate::key::PublicKey;
use crate::open::Store;
use crate::runs::{RunId, reading};

/// Whether a record is something that somebody did. This crate does not know
/// what records mean.
pub type Authored = fn(&str) -> bool;

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

/// The texts of one run, by their numbers.
#[derive(Default)]
struct Sides {
    entries: Vec<(u64, [u8; 32])>,
    records: Vec<(u64, [u8; 32])>,
}

/// What is on one side only, of all runs, for people. Inside one transaction:
/// both sides are written in one.
pub(crate) async fn compare_records(
    reader: &mut SqliteConnection,
    authored: Authored,
) -> Result<Vec<String>> {
    const ENTRIES: &str = "SELECT run, seq, json FROM audit WHERE run IS NOT NULL ORDER BY seq";
    const RECORDS: &str = "SELECT run, seq, json FROM records ORDER BY run, seq";
    let mut runs = BTreeMap::<u64, Sides>::new();
    for (run, seq, digest) in authored_of(reader, ENTRIES, authored).await? {
        runs.entry(run).or_default().entries.push((seq, digest));
    }
    for (run, seq, digest) in authored_of(reader, RECORDS, authored).await? {
        runs.entry(run).or_default().records.push((seq, digest));
    }
    let mut told = Vec::new();
    let mut more = 0;
    for (run, Sides { entries, records }) in runs {
        for own in unmatched(&entries, &records) {
            match told.len() < TOLD_MAX {
                true => told.push(describe(run, own)),
                false => more += 1,
            }
        }
    }
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    Ok(told)
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

/// Run, number and digest of every text that somebody is the author of.
async fn authored_of(
    reader: &mut SqliteConnection,
    sql: &'static str,
    authored: Authored,
) -> Result<Vec<(u64, u64, [u8; 32])>> {
    let mut found = Vec::new();
    let mut all = sqlx::query(sql).fetch(reader);
    while let Some(row) = all.try_next().await.map_err(reading)? {
        let number = |column| row.try_get::<i64, _>(column).map_err(reading);
        // What is no text says nothing; the other side is then alone.
        let Ok(json) = row.try_get::<String, _>("json") else { continue };
        if authored(&json) {
            let digest = Sha256::digest(json.as_bytes()).into();
            found.push((number("run")? as u64, number("seq")? as u64, digest));
        }
    }
    Ok(found)
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
