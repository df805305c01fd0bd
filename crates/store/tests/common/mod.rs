//! Stores in folders of their own.
#![allow(dead_code)]

use std::path::PathBuf;

use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use store::{Audit, AuditKey, Entry, Head, Lease, Meaning, NewRun, RunId, SentHead, Store, Trust};
use tempfile::TempDir;

pub const PLAN: &str = r#"{"tasks":[]}"#;
pub const TTL_MS: u64 = 10_000;

/// A new store and the folder that it is in.
pub async fn new_store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("drain.db")).await.unwrap();
    (folder, store)
}

pub fn path(folder: &TempDir) -> PathBuf {
    folder.path().join("drain.db")
}

pub async fn new_run(store: &Store, datacenter: &str) -> RunId {
    let new = NewRun {
        datacenter,
        direction: "drain",
        plan: PLAN,
        actor: "ada",
        reason: "a drill",
        at: 1,
    };
    store.create_run(new).await.unwrap()
}

/// A run on `dc1`, and the lease on it.
pub async fn held_run(store: &Store) -> Lease {
    let run = new_run(store, "dc1").await;
    store.lease(run, "one", 0, TTL_MS).await.unwrap()
}

pub fn entries(seqs: std::ops::Range<u64>) -> Vec<Entry> {
    seqs.map(entry).collect()
}

pub fn entry(seq: u64) -> Entry {
    Entry { seq, at: 1000 + seq, json: format!("{{\"fact\":{seq}}}") }
}

/// Adds so many entries to the audit log.
pub async fn keep(store: &Store, count: u64) -> Head {
    let mut head = store.audit_head().await.unwrap();
    for at in 0..count {
        let json = format!("{{\"n\":{at}}}");
        let audit =
            Audit { at, actor: "ada", action: "pause", reason: "a drill", run: None, json: &json };
        head = store.append_audit(audit).await.unwrap();
    }
    head
}

/// A connection beside the store, as somebody has who can write to the file.
pub async fn direct(folder: &TempDir) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path(folder)).connect().await.unwrap()
}

/// A log with unsigned entries, then signed ones, and the heads that were sent.
pub async fn signed_log(unsigned: u64, signed: u64) -> (TempDir, Store, Trust, Vec<SentHead>) {
    let (folder, store) = new_store().await;
    let since = keep(&store, unsigned).await;
    let key = AuditKey::from_seed(&[1; 32], since);
    let trust = Trust { keys: vec![key.public().clone()], heads: Vec::new() };
    store.sign_with(key);
    let (sink, mut heads) = tokio::sync::mpsc::unbounded_channel();
    store.send_heads_to(sink);
    keep(&store, signed).await;
    let mut sent = Vec::new();
    while let Ok(head) = heads.try_recv() {
        sent.push(head);
    }
    (folder, store, trust, sent)
}

/// No record is anything that somebody did.
pub fn no_author(_: &str) -> Meaning {
    Meaning::Other
}

/// Takes the triggers of the audit log away, as whoever means to change it does, and
/// gives what makes them.
pub async fn take_guards(connection: &mut SqliteConnection) -> Vec<String> {
    const GUARDS: &str = "SELECT sql FROM sqlite_schema WHERE type = 'trigger'";
    let guards = sqlx::query_scalar(GUARDS).fetch_all(&mut *connection).await.unwrap();
    let script = "DROP TRIGGER audit_keeps; DROP TRIGGER audit_never_forgets; \
                  DROP TRIGGER audit_grows;";
    sqlx::raw_sql(script).execute(connection).await.unwrap();
    guards
}

/// Puts them back, so that the schema is as it was.
pub async fn put_guards(connection: &mut SqliteConnection, guards: Vec<String>) {
    for guard in guards {
        sqlx::raw_sql(sqlx::AssertSqlSafe(guard)).execute(&mut *connection).await.unwrap();
    }
}
