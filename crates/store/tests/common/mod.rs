//! Stores in folders of their own.
#![allow(dead_code)]

use std::path::PathBuf;

use store::{Entry, Lease, NewRun, RunId, Store};
use tempfile::TempDir;

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
        plan: r#"{"tasks":[]}"#,
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

/// No record is anything that somebody did.
pub fn no_author(_: &str) -> bool {
    false
}
