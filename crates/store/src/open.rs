//! The file: opened and checked.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, MutexGuard};

use crate::error::{Error, Result, SQLITE_CORRUPT, SQLITE_NOTADB, primary_code, signed};
use crate::key::{AuditKey, SentHead};
use crate::schema;
use crate::writer::Writer;

/// How long a call waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that read beside the one that writes. Whoever makes pages from the
/// store has to leave some of them to the runs.
pub const READERS_MAX: u32 = 10;
/// Rows that are read ahead.
const ROWS_BUFFERED: usize = 512;
/// Lines of what is wrong with a damaged file that are told.
const DAMAGES_TOLD_MAX: usize = 5;

/// The file and the connections to it. Cheap to share by reference; every
/// method may be called from any task.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// SQLite has one writer at a time; waiting for it here is fair and costs no
    /// thread.
    writer: Mutex<Writer>,
    pub(crate) readers: SqlitePool,
    /// Signs the audit log, if there is one.
    pub(crate) key: OnceLock<AuditKey>,
    /// Where heads of the audit log go.
    pub(crate) sink: OnceLock<UnboundedSender<SentHead>>,
}

impl Store {
    /// Opens the file, or makes it, readable by its owner alone.
    ///
    /// Refused are files that are not ours, that a newer Pharos wrote, whose schema
    /// something else changed, or that are damaged.
    pub async fn open(path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        make_private(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            // Without it `INSERT OR REPLACE` would get past the triggers of the audit log.
            .pragma("recursive_triggers", "ON")
            // Rows that wait between SQLite's thread and ours: fewer cost a wake-up per few rows.
            .row_buffer_size(ROWS_BUFFERED)
            .disable_statement_logging();
        let located = |error| classify(path, error);
        // What the file is decides before anything is written to it.
        let mut writer =
            options.clone().connect().await.map_err(|error| classify_open(path, error))?;
        let version = schema::check(path, &mut writer).await.map_err(located)?;
        check_integrity(path, &mut writer).await.map_err(located)?;
        check_references(path, &mut writer).await.map_err(located)?;
        writer.close().await.map_err(|error| classify_open(path, error))?;

        let durable =
            options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let mut writer =
            durable.clone().connect().await.map_err(|error| classify_open(path, error))?;
        schema::migrate(&mut writer, version).await.map_err(located)?;
        let readers = PoolOptions::new()
            .max_connections(READERS_MAX)
            .connect_with(durable.clone().pragma("query_only", "ON"))
            .await
            .map_err(|error| classify_open(path, error))?;
        Ok(Store {
            path: path.to_owned(),
            writer: Mutex::new(Writer::new(path.to_owned(), durable, writer)),
            readers,
            key: OnceLock::new(),
            sink: OnceLock::new(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends all connections and folds the write-ahead log into the file, which
    /// then holds everything and can be taken elsewhere.
    pub async fn close(self) -> Result<()> {
        self.readers.close().await;
        let writer = self.writer.into_inner();
        writer.close().await.map_err(|error| Error::from_database("closing the store", error))
    }

    /// Writes something that says nothing, to see whether the store can be
    /// written: a disk may be full or read-only by now.
    pub async fn probe(&self, now: u64) -> Result<()> {
        let failed = |error| Error::from_database("writing to the store", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let mut transaction = writer.begin(failed).await?;
        let probe = sqlx::query("UPDATE probes SET at = ?").bind(signed("a time", now)?);
        probe.execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)
    }

    /// Folds the write-ahead log into the file, which then holds everything.
    pub async fn fold(&self) -> Result<()> {
        let failed = |error| Error::from_database("folding the store", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let fold = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)");
        fold.execute(writer.connection()).await.map(|_| ()).map_err(failed)
    }

    /// Writes a copy of everything that is kept, as of now, to a file that does
    /// not exist yet, while others go on writing.
    pub async fn copy_to(&self, path: impl AsRef<Path>) -> Result<()> {
        const COPY: &str = "copying the store";
        let failed = |error| Error::from_database(COPY, error);
        let path = path.as_ref();
        let unreachable = |why: String| Error::Unreachable { path: path.to_owned(), why };
        let Some(text) = path.to_str() else {
            return Err(unreachable("its name is not UTF-8".into()));
        };
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| unreachable(error.to_string()))?;
        // An empty file is what `VACUUM INTO` takes besides none.
        sqlx::query("VACUUM INTO ?")
            .bind(text)
            .execute(self.writer().await.map_err(failed)?.connection())
            .await
            .map_err(failed)?;
        Ok(())
    }

    /// The connection that writes, as soon as nobody else does.
    pub(crate) async fn writer(&self) -> sqlx::Result<MutexGuard<'_, Writer>> {
        let mut writer = self.writer.lock().await;
        writer.repair().await?;
        Ok(writer)
    }
}

/// A connection that changes nothing.
pub(crate) async fn connect_to_read(path: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .row_buffer_size(ROWS_BUFFERED)
        .disable_statement_logging();
    options.connect().await.map_err(|error| classify_open(path, error))
}

/// Makes the file if there is none, and takes it away from other users if they
/// could read it: plans and reasons are nobody else's. The files that SQLite
/// puts beside it get the same mode.
fn make_private(path: &Path) -> Result<()> {
    let unreachable = |error: std::io::Error| Error::Unreachable {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let is_new = !path.exists();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(unreachable)?;
    if is_new {
        // The name must survive a power cut as what is under it does.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::File::open(folder.unwrap_or(Path::new("."))).map_err(unreachable)?;
        folder.sync_all().map_err(unreachable)?;
    }
    let mode = file.metadata().map_err(unreachable)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(unreachable)?;
    }
    Ok(())
}

/// Looks through all pages, and whether indexes say the same as their tables. A
/// damaged file must not decide what a run does next.
pub(crate) async fn check_integrity(path: &Path, connection: &mut SqliteConnection) -> Result<()> {
    let found = sqlx::query_scalar("PRAGMA integrity_check(100)").fetch_all(connection).await;
    let found: Vec<String> = found.map_err(checking)?;
    refuse_damages(path, found.into_iter().filter(|line| line != "ok").collect())
}

/// Looks whether every row that refers to another has it.
async fn check_references(path: &Path, connection: &mut SqliteConnection) -> Result<()> {
    let found = sqlx::query("PRAGMA foreign_key_check").fetch_all(connection).await;
    let tell = |row: &SqliteRow| {
        let (table, parent): (String, String) = (row.try_get(0)?, row.try_get(2)?);
        Ok(format!("a row of {table} refers to {parent} that are not there"))
    };
    let damages = found.and_then(|rows| rows.iter().map(tell).collect());
    refuse_damages(path, damages.map_err(checking)?)
}

fn checking(error: sqlx::Error) -> Error {
    Error::from_database("checking the store", error)
}

fn refuse_damages(path: &Path, mut damages: Vec<String>) -> Result<()> {
    if damages.is_empty() {
        return Ok(());
    }
    let all = damages.len();
    damages.truncate(DAMAGES_TOLD_MAX);
    let mut why = damages.join("; ");
    if all > DAMAGES_TOLD_MAX {
        why += &format!("; and {} more", all - DAMAGES_TOLD_MAX);
    }
    Err(Error::Damaged { path: path.to_owned(), why })
}

/// Adds the path where only the database was known.
pub(crate) fn classify(path: &Path, error: Error) -> Error {
    match error {
        Error::Database { source, .. } => classify_open(path, source),
        other => other,
    }
}

fn classify_open(path: &Path, error: sqlx::Error) -> Error {
    let path = path.to_owned();
    match primary_code(&error) {
        Some(SQLITE_NOTADB) => Error::Foreign { path, why: "is no SQLite database".into() },
        Some(SQLITE_CORRUPT) => Error::Damaged { path, why: error.to_string() },
        Some(_) => match Error::from_database("opening the store", error) {
            Error::Database { source, .. } => Error::Unreachable { path, why: source.to_string() },
            known => known,
        },
        None => Error::Unreachable { path, why: error.to_string() },
    }
}
