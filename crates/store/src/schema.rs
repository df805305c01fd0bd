//! The schema: recognised, brought to the newest, and compared with the one that
//! the migrations make.
//!
//! A trigger can keep an entry out of the audit log, a view or an index can show
//! other entries than those of the table. So whatever proves something, and every
//! transaction that writes, does it on exactly the schema that Pharos makes.

use std::fmt;
use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Connection, Row};

use crate::error::{Error, Result};

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
const CHECK: &str = "checking the schema of the store";
/// Characters of a name that are told.
const NAME_TOLD_MAX: usize = 64;

/// A table, an index, a trigger or a view.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    kind: String,
    name: String,
    table: String,
    /// What makes it. Indexes that belong to a constraint have none.
    sql: Option<String>,
}

impl Object {
    fn read(row: &SqliteRow) -> sqlx::Result<Object> {
        Ok(Object {
            kind: row.try_get("type")?,
            name: row.try_get("name")?,
            table: row.try_get("tbl_name")?,
            sql: row.try_get("sql")?,
        })
    }

    fn is_named_as(&self, other: &Object) -> bool {
        (&self.kind, &self.name) == (&other.kind, &other.name)
    }
}

/// Whoever wrote the file chose the names.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = |name: &str| name.chars().take(NAME_TOLD_MAX).collect::<String>();
        write!(f, "{} `{}`", cut(&self.kind).escape_debug(), cut(&self.name).escape_debug())?;
        match self.table == self.name {
            true => Ok(()),
            false => write!(f, " on `{}`", cut(&self.table).escape_debug()),
        }
    }
}

/// Refuses a file whose schema is not exactly the one that the migrations make;
/// gives its version, 0 if the file is empty. Inside a transaction it says so of
/// what the rest of the transaction uses.
pub(crate) async fn check(path: &Path, connection: &mut SqliteConnection) -> Result<i64> {
    let failed = |error| Error::from_database(CHECK, error);
    // Reads, so the snapshot of a transaction is taken.
    let version = recognise(path, connection).await?;
    // A connection may have parsed what the file said at another time.
    let reset = sqlx::query("PRAGMA writable_schema = RESET").execute(&mut *connection).await;
    reset.map_err(failed)?;
    let found = objects(connection).await?;
    let scripts = usize::try_from(version).ok().and_then(|version| MIGRATIONS.get(..version));
    match difference(made_by(scripts.unwrap_or_default()).await?, &found) {
        Some(what) => Err(Error::Altered { path: path.to_owned(), what }),
        None => Ok(version),
    }
}

/// The same for a file that must have the newest schema.
pub(crate) async fn check_newest(path: &Path, connection: &mut SqliteConnection) -> Result<()> {
    let version = check(path, connection).await?;
    if version == MIGRATIONS.len() as i64 {
        return Ok(());
    }
    let why = format!("written by an older Pharos (schema {version}); start this one on it once");
    Err(Error::Foreign { path: path.to_owned(), why })
}

/// Grows with every change of the schema that does not hide itself.
pub(crate) async fn changes(connection: &mut SqliteConnection) -> Result<i64> {
    number(connection, "PRAGMA schema_version").await
}

/// Brings the file to the newest schema, whole or not at all.
pub(crate) async fn migrate(writer: &mut SqliteConnection, version: i64) -> Result<()> {
    const MIGRATE: &str = "bringing the store to the newest schema";
    let failed = |error| Error::from_database(MIGRATE, error);
    let newest = MIGRATIONS.len() as i64;
    if version == newest {
        return Ok(());
    }
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    // Another process may have been faster.
    let version = number(&mut transaction, "PRAGMA user_version").await?;
    for script in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(usize::MAX)) {
        sqlx::raw_sql(*script).execute(&mut *transaction).await.map_err(failed)?;
    }
    // Pragmas take no parameters; these are numbers of ours.
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {newest}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(marks)).execute(&mut *transaction).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// The version of the schema; 0 if the file is empty.
async fn recognise(path: &Path, connection: &mut SqliteConnection) -> Result<i64> {
    let ours = number(connection, "PRAGMA application_id").await?;
    let version = number(connection, "PRAGMA user_version").await?;
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema").await?;
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

async fn number(connection: &mut SqliteConnection, sql: &'static str) -> Result<i64> {
    let number = sqlx::query_scalar(sql).fetch_one(connection).await;
    number.map_err(|error| Error::from_database(CHECK, error))
}

/// What some of the migrations make, in this SQLite.
async fn made_by(scripts: &[&'static str]) -> Result<Vec<Object>> {
    let failed = |error| Error::from_database(CHECK, error);
    let mut connection = SqliteConnectOptions::new().connect().await.map_err(failed)?;
    for script in scripts {
        sqlx::raw_sql(*script).execute(&mut connection).await.map_err(failed)?;
    }
    objects(&mut connection).await
}

async fn objects(connection: &mut SqliteConnection) -> Result<Vec<Object>> {
    let failed = |error| Error::from_database(CHECK, error);
    const ALL: &str = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";
    let rows = sqlx::query(ALL).fetch_all(connection).await.map_err(failed)?;
    rows.iter().map(Object::read).collect::<sqlx::Result<_>>().map_err(failed)
}

/// The first object that is not as it must be, and what is wrong with it.
fn difference(mut ours: Vec<Object>, found: &[Object]) -> Option<String> {
    for object in found {
        match ours.iter().position(|own| own == object) {
            Some(at) => _ = ours.remove(at),
            None if ours.iter().any(|own| own.is_named_as(object)) => {
                return Some(format!("{object} is not as Pharos makes it"));
            }
            None => return Some(format!("{object} was put there by something else than Pharos")),
        }
    }
    ours.first().map(|own| format!("{own} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, sql: &str) -> Object {
        let (kind, name, table) = (kind.into(), name.into(), "audit".into());
        Object { kind, name, table, sql: Some(sql.into()) }
    }

    #[test]
    fn the_first_difference_names_its_object() {
        let ours = || vec![object("table", "audit", "a"), object("trigger", "keeps", "b")];
        let check = |found: &[Object], expected: Option<&str>| {
            assert_eq!(difference(ours(), found).as_deref(), expected);
        };
        check(&ours(), None);
        let extra = |extra: Object| [ours(), vec![extra]].concat();
        let by_other = "was put there by something else than Pharos";
        check(
            &extra(object("index", "x\u{1b}", "c")),
            Some(&format!("index `x\\u{{1b}}` on `audit` {by_other}")),
        );
        check(&extra(object("table", "audit", "a")), Some(&format!("table `audit` {by_other}")));
        check(&ours()[..1], Some("trigger `keeps` on `audit` is missing"));
        check(
            &[object("table", "audit", "a, z"), object("trigger", "keeps", "b")],
            Some("table `audit` is not as Pharos makes it"),
        );
    }
}
