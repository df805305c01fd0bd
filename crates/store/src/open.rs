//! The file: opened, checked, brought to the newest schema.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, MutexGuard};

use crate::error::{Error, Result, SQLITE_CORRUPT, SQLITE_NOTADB, primary_code, signed};
use crate::key::{AuditKey, SentHead};

/// Marks a file as ours: `Phar`, in the header where SQLite keeps such marks.
const APPLICATION_ID: i64 = 0x5068_6172;
/// Scripts that make each schema from the one before. Never change one that was
/// released: add the next.
const MIGRATIONS: [&str; 4] = [
    include_str!("../migrations/0001_runs.sql"),
    include_str!("../migrations/0002_signatures.sql"),
    include_str!("../migrations/0003_claims.sql"),
    include_str!("../migrations/0004_fences.sql"),
];
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
    writer: Mutex<SqliteConnection>,
    /// How to connect again.
    options: SqliteConnectOptions,
    pub(crate) readers: SqlitePool,
    /// Signs the audit log, if there is one.
    pub(crate) key: OnceLock<AuditKey>,
    /// Where heads of the audit log go.
    pub(crate) sink: OnceLock<UnboundedSender<SentHead>>,
}

impl Store {
    /// Opens the file, or makes it, readable by its owner alone.
    ///
    /// Refused are files that are not ours, that a newer Pharos wrote, or that
    /// are damaged.
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
        // What the file is decides before anything is written to it.
        let mut writer =
            options.clone().connect().await.map_err(|error| classify_open(path, error))?;
        let version = recognise(path, &mut writer).await.map_err(|error| classify(path, error))?;
        check_integrity(path, &mut writer).await.map_err(|error| classify(path, error))?;
        writer.close().await.map_err(|error| classify_open(path, error))?;

        let durable =
            options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
        let mut writer =
            durable.clone().connect().await.map_err(|error| classify_open(path, error))?;
        migrate(&mut writer, version).await.map_err(|error| classify(path, error))?;
        let readers = PoolOptions::new()
            .max_connections(READERS_MAX)
            .connect_with(durable.clone().pragma("query_only", "ON"))
            .await
            .map_err(|error| classify_open(path, error))?;
        Ok(Store {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            options: durable,
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
        let probe = sqlx::query("UPDATE probes SET at = ?").bind(signed("a time", now)?);
        probe.execute(&mut *writer).await.map(|_| ()).map_err(failed)
    }

    /// Folds the write-ahead log into the file, which then holds everything.
    pub async fn fold(&self) -> Result<()> {
        let failed = |error| Error::from_database("folding the store", error);
        let mut writer = self.writer().await.map_err(failed)?;
        let folded = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *writer).await;
        folded.map(|_| ()).map_err(failed)
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
            .execute(&mut *self.writer().await.map_err(failed)?)
            .await
            .map_err(failed)?;
        Ok(())
    }

    /// The connection that writes, as soon as nobody else does.
    ///
    /// When SQLite ends a transaction by itself, which it does when the disk is
    /// full, sqlx goes on counting it and would never begin another on that
    /// connection. Such a one is replaced.
    pub(crate) async fn writer(&self) -> sqlx::Result<MutexGuard<'_, SqliteConnection>> {
        let mut writer = self.writer.lock().await;
        // True also if a transaction was dropped and its end is still in the queue: a ping waits
        // for what is before it.
        if writer.is_in_transaction()
            && (writer.ping().await.is_err() || writer.is_in_transaction())
        {
            *writer = self.options.connect().await?;
        }
        Ok(writer)
    }
}

/// A connection that changes nothing, to a file of the newest schema.
pub(crate) async fn connect_to_read(path: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .row_buffer_size(ROWS_BUFFERED)
        .disable_statement_logging();
    let mut reader = options.connect().await.map_err(|error| classify_open(path, error))?;
    let version = recognise(path, &mut reader).await.map_err(|error| classify(path, error))?;
    if version < MIGRATIONS.len() as i64 {
        let why =
            format!("written by an older Pharos (schema {version}); start this one on it once");
        return Err(Error::Foreign { path: path.to_owned(), why });
    }
    Ok(reader)
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

/// The schema of the file; 0 if it is empty.
async fn recognise(path: &Path, connection: &mut SqliteConnection) -> Result<i64> {
    let ours = pragma_number(connection, "PRAGMA application_id").await?;
    let version = pragma_number(connection, "PRAGMA user_version").await?;
    let tables = pragma_number(connection, "SELECT count(*) FROM sqlite_schema").await?;
    if ours == 0 && tables == 0 && version == 0 {
        return Ok(0);
    }
    if ours != APPLICATION_ID {
        let why = "is a database of another program".to_owned();
        return Err(Error::Foreign { path: path.to_owned(), why });
    }
    let known = MIGRATIONS.len() as i64;
    if version > known {
        return Err(Error::Newer { path: path.to_owned(), found: version, known });
    }
    Ok(version)
}

async fn pragma_number(connection: &mut SqliteConnection, sql: &'static str) -> Result<i64> {
    let number = sqlx::query_scalar(sql).fetch_one(connection).await;
    number.map_err(|error| Error::from_database("opening the store", error))
}

/// Looks through all pages and references. A damaged file must not decide what
/// a run does next.
async fn check_integrity(path: &Path, connection: &mut SqliteConnection) -> Result<()> {
    const CHECK: &str = "checking the store";
    let failed = |error| Error::from_database(CHECK, error);
    let found: Vec<String> = sqlx::query_scalar("PRAGMA quick_check(100)")
        .fetch_all(&mut *connection)
        .await
        .map_err(failed)?;
    let mut damages: Vec<String> = found.into_iter().filter(|line| line != "ok").collect();
    let dangling =
        sqlx::query("PRAGMA foreign_key_check").fetch_all(connection).await.map_err(failed)?;
    for row in dangling {
        let (table, parent) = (row.try_get::<String, _>(0), row.try_get::<String, _>(2));
        let (table, parent) = (table.map_err(failed)?, parent.map_err(failed)?);
        damages.push(format!("a row of {table} refers to {parent} that are not there"));
    }
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

/// Brings the file to the newest schema, whole or not at all.
async fn migrate(writer: &mut SqliteConnection, version: i64) -> Result<()> {
    const MIGRATE: &str = "bringing the store to the newest schema";
    let failed = |error| Error::from_database(MIGRATE, error);
    let newest = MIGRATIONS.len() as i64;
    if version == newest {
        return Ok(());
    }
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    // Another process may have been faster.
    let version = pragma_number(&mut transaction, "PRAGMA user_version").await?;
    for script in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(usize::MAX)) {
        sqlx::raw_sql(*script).execute(&mut *transaction).await.map_err(failed)?;
    }
    // Pragmas take no parameters; these are numbers of ours.
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {newest}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(marks)).execute(&mut *transaction).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// Adds the path where only the database was known.
fn classify(path: &Path, error: Error) -> Error {
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
