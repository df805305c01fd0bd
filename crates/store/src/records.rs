//! Records of a run: numbered texts that only grow at the end.

use futures_util::TryStreamExt;
use sqlx::sqlite::SqliteConnection;
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::error::{Error, Result, bounded, signed};
use crate::lease::{Lease, hold};
use crate::open::Store;
use crate::runs::{Run, RunId, reading};

/// The longest record, and the longest of any other text.
pub const JSON_LEN_MAX: usize = 1 << 20;
/// Records of one call: more than one event makes in a run of ten thousand
/// tasks, all of which may begin at once.
pub const ENTRIES_MAX: usize = 100_000;
/// Records that one statement writes: four parameters each, of 32,766.
const ENTRIES_PER_STATEMENT: usize = 1000;
/// A page of records ends with whichever comes first.
const PAGE_ENTRIES_MAX: u32 = 4096;
const PAGE_OCTETS_MAX: usize = 4 << 20;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 0, without a gap.
    pub seq: u64,
    pub at: u64,
    pub json: String,
}

impl Store {
    /// Adds records: all of them, durable when this returns, or none. The first
    /// must be the next of the run, and each the one after.
    pub async fn append(&self, lease: &Lease, entries: &[Entry]) -> Result<()> {
        const APPEND: &str = "keeping records";
        let failed = |error| Error::from_database(APPEND, error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let run = hold(&mut transaction, lease).await?;
        put_entries(&mut transaction, &run, entries).await?;
        transaction.commit().await.map_err(failed)
    }

    /// The records of a run from a number on, page by page.
    pub fn records(&self, run: RunId, from: u64) -> Records<'_> {
        Records { store: self, run, next: from, is_done: false }
    }
}

/// Adds records to a run that is held.
pub(crate) async fn put_entries(
    connection: &mut SqliteConnection,
    run: &Run,
    entries: &[Entry],
) -> Result<()> {
    let failed = |error| Error::from_database("keeping records", error);
    if entries.len() > ENTRIES_MAX {
        let (len, max) = (entries.len() as u64, ENTRIES_MAX as u64);
        return Err(Error::TooLarge { what: "the list of records", len, max });
    }
    for (expected, entry) in (run.records..).zip(entries) {
        bounded("a record", &entry.json, JSON_LEN_MAX)?;
        if entry.seq != expected {
            return Err(Error::OutOfOrder { run: run.id, expected, found: entry.seq });
        }
    }
    let run = signed("a run", run.id.0)?;
    for some in entries.chunks(ENTRIES_PER_STATEMENT) {
        let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO records (run, seq, at, json) ");
        let mut times = Vec::with_capacity(some.len());
        for entry in some {
            times.push((signed("a record", entry.seq)?, signed("a time", entry.at)?));
        }
        insert.push_values(some.iter().zip(times), |mut row, (entry, (seq, at))| {
            row.push_bind(run).push_bind(seq).push_bind(at).push_bind(&entry.json);
        });
        insert.build().execute(&mut *connection).await.map_err(failed)?;
    }
    sqlx::query("UPDATE runs SET next_seq = next_seq + ? WHERE id = ?")
        .bind(entries.len() as i64)
        .bind(run)
        .execute(connection)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Records that are read as they are asked for.
#[derive(Debug)]
pub struct Records<'a> {
    store: &'a Store,
    run: RunId,
    next: u64,
    is_done: bool,
}

impl Records<'_> {
    /// The next records, at most a few megabytes of them; `None` after the last.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Entry>>> {
        if self.is_done {
            return Ok(None);
        }
        let mut rows = sqlx::query(
            "SELECT seq, at, json FROM records WHERE run = ? AND seq >= ? ORDER BY seq LIMIT ?",
        )
        .bind(signed("a run", self.run.0)?)
        .bind(signed("a record", self.next)?)
        .bind(PAGE_ENTRIES_MAX)
        .fetch(&self.store.readers);
        let mut page = Vec::new();
        let mut octets = 0;
        while octets < PAGE_OCTETS_MAX {
            let Some(row) = rows.try_next().await.map_err(reading)? else { break };
            let number = |column| row.try_get::<i64, _>(column).map_err(reading);
            let json: String = row.try_get("json").map_err(reading)?;
            octets += json.len();
            page.push(Entry { seq: number("seq")? as u64, at: number("at")? as u64, json });
        }
        drop(rows);
        let Some(last) = page.last() else {
            self.is_done = true;
            // An empty run and none are not the same.
            self.store.run(self.run).await?;
            return Ok(None);
        };
        self.next = last.seq + 1;
        Ok(Some(page))
    }

    /// All that is left. For runs whose length is known to be bearable.
    pub async fn all(mut self) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        while let Some(page) = self.next_page().await? {
            all.extend(page);
        }
        Ok(all)
    }
}
