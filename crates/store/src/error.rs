//! What can go wrong with a store, and the way out of it.

use std::fmt;
use std::path::PathBuf;

use crate::runs::RunId;

pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done. Nothing of it was done then.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be opened or made.
    Unreachable { path: PathBuf, why: String },
    /// The file is no SQLite database, or another program's.
    Foreign { path: PathBuf, why: String },
    /// The file was written by a newer Pharos.
    Newer { path: PathBuf, found: i64, known: i64 },
    /// Something else than Pharos changed the tables, indexes or triggers.
    Altered { path: PathBuf, what: String },
    /// The file is damaged.
    Damaged { path: PathBuf, why: String },
    /// The disk takes nothing more.
    NoRoom { operation: &'static str, why: String },
    /// Another process writes to the file and does not come to an end.
    Busy { operation: &'static str },
    /// There is no such run.
    NoSuchRun(RunId),
    /// A run on this datacenter has not ended yet.
    Open { datacenter: String, run: RunId },
    /// Somebody else holds the run.
    Held { run: RunId, holder: String, until: u64 },
    /// Somebody took the run over, or the lease was given back.
    Deposed { run: RunId, epoch: u64, newest: u64, holder: Option<String> },
    /// The run is over.
    Ended { run: RunId, outcome: String },
    /// Records must follow each other without a gap.
    OutOfOrder { run: RunId, expected: u64, found: u64 },
    /// Something is too large to be kept.
    TooLarge { what: &'static str, len: u64, max: u64 },
    /// Something is not what it should be.
    Invalid { what: &'static str, why: String },
    /// Whatever else the database says.
    Database { operation: &'static str, source: sqlx::Error },
}

impl Error {
    /// Whether the same call can succeed later without anybody doing anything
    /// about it.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Busy { .. })
    }

    /// Whether the caller has lost the run and must stop at once.
    pub fn is_deposed(&self) -> bool {
        matches!(self, Error::Deposed { .. })
    }

    /// Puts what the database says into one of the cases above.
    pub(crate) fn from_database(operation: &'static str, source: sqlx::Error) -> Error {
        match (primary_code(&source), code(&source)) {
            (Some(SQLITE_BUSY | SQLITE_LOCKED), _) => Error::Busy { operation },
            (Some(SQLITE_FULL), _) | (_, Some(SQLITE_IOERR_WRITE | SQLITE_IOERR_SHMSIZE)) => {
                Error::NoRoom { operation, why: source.to_string() }
            }
            _ => Error::Database { operation, source },
        }
    }
}

// Result codes of SQLite, the low octet of the extended ones.
pub(crate) const SQLITE_BUSY: i32 = 5;
pub(crate) const SQLITE_LOCKED: i32 = 6;
pub(crate) const SQLITE_CORRUPT: i32 = 11;
pub(crate) const SQLITE_FULL: i32 = 13;
pub(crate) const SQLITE_NOTADB: i32 = 26;
// Whole ones. What is over a quota or a limit of a file's size is not "full" to SQLite.
const SQLITE_IOERR_WRITE: i32 = 778;
const SQLITE_IOERR_SHMSIZE: i32 = 4874;

/// The result code of SQLite behind an error, without its extension.
pub(crate) fn primary_code(error: &sqlx::Error) -> Option<i32> {
    code(error).map(|code| code & 0xff)
}

fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable { path, why } => write!(
                f,
                "store {}: cannot be opened: {why}; the directory must exist and the file must \
                 belong to the user Pharos runs as",
                path.display()
            ),
            Error::Foreign { path, why } => write!(
                f,
                "store {}: {why}; name a file that Pharos made, or one that does not exist yet",
                path.display()
            ),
            Error::Newer { path, found, known } => write!(
                f,
                "store {}: written by a newer Pharos (schema {found}, this one knows up to \
                 {known}); use that Pharos, or another file",
                path.display()
            ),
            Error::Altered { path, what } => write!(
                f,
                "store {}: its schema was changed: {what}; accepted: exactly the tables, indexes \
                 and triggers that Pharos makes; find out who changed it, stop Pharos, and use a \
                 copy from before",
                path.display()
            ),
            Error::Damaged { path, why } => write!(
                f,
                "store {}: damaged: {why}; stop Pharos, keep the file and its -wal as they are, \
                 and use a copy from before, or save what can be read with \
                 `sqlite3 FILE .recover | sqlite3 NEW`",
                path.display()
            ),
            Error::NoRoom { operation, why } => write!(
                f,
                "{operation}: the disk takes nothing more ({why}); nothing of it was kept: make \
                 room, then try again"
            ),
            Error::Busy { operation } => write!(
                f,
                "{operation}: another process is writing to the store; try again, or look who has \
                 the file open"
            ),
            _ => self.fmt_refusal(f),
        }
    }
}

impl Error {
    /// The errors that are about a call, not about the file.
    fn fmt_refusal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoSuchRun(run) => write!(f, "there is no run {run} in this store"),
            Error::Open { datacenter, run } => write!(
                f,
                "run {run} on datacenter {datacenter:?} has not ended; end or abort it first"
            ),
            Error::Held { run, holder, until } => write!(
                f,
                "run {run} is held by {holder:?} until {until}; wait, or take it over if that one \
                 is gone for certain"
            ),
            Error::Deposed { run, epoch, newest, holder } => {
                write!(f, "run {run} is no longer held under epoch {epoch}: ")?;
                match holder {
                    Some(holder) => write!(f, "{holder:?} holds it under epoch {newest}; stop")?,
                    None => write!(f, "epoch {newest} was given back; take a new lease")?,
                }
                Ok(())
            }
            Error::Ended { run, outcome } => write!(f, "run {run} is over: {outcome}"),
            Error::OutOfOrder { run, expected, found } => {
                write!(f, "run {run}: record {found} was to be kept, {expected} is the next")
            }
            Error::TooLarge { what, len, max } => {
                write!(f, "{what} is {len} long; at most {max} is kept")
            }
            Error::Invalid { what, why } => write!(f, "{what}: {why}"),
            Error::Database { operation, source } => write!(f, "{operation}: {source}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Database { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Numbers go into the database as signed 64 bits.
pub(crate) fn signed(what: &'static str, number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| Error::TooLarge { what, len: number, max: i64::MAX as u64 })
}

/// The length of a text, bounded.
pub(crate) fn bounded(what: &'static str, text: &str, max: usize) -> Result<()> {
    if text.len() > max {
        return Err(Error::TooLarge { what, len: text.len() as u64, max: max as u64 });
    }
    Ok(())
}
