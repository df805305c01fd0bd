//! What people did to a run stands in its records and in the audit log, or
//! somebody else wrote one of them.

mod common;

use common::*;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use store::{
    AuditKey, Deed, Entry, Head, Lease, PublicKey, Step, Store, Trust, Verdict, verify_audit_file,
};
use tempfile::TempDir;

fn is_said(json: &str) -> bool {
    json.starts_with("said")
}

/// What somebody says, as a record and as an audit entry.
async fn say(store: &Store, lease: &Lease, text: &str) {
    let seq = store.run(lease.run).await.unwrap().records;
    let (at, json) = (seq, format!("said {text}"));
    let deed = Deed {
        at,
        actor: "ada".into(),
        action: "pause".into(),
        reason: "a drill".into(),
        json: json.clone(),
    };
    let entries = vec![Entry { seq, at, json }];
    let step = Step { entries, deeds: vec![deed], ..Step::default() };
    store.keep(lease, &step).await.unwrap();
}

fn sign(store: &Store, since: Head) -> PublicKey {
    let key = AuditKey::from_seed(&[7; 32], since);
    let public = key.public().clone();
    store.sign_with(key);
    public
}

async fn tamper(folder: &TempDir, sql: &str) {
    let mut connection =
        SqliteConnectOptions::new().filename(path(folder)).connect().await.unwrap();
    let sql =
        format!("DROP TRIGGER IF EXISTS audit_keeps; DROP TRIGGER IF EXISTS audit_grows; {sql}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
}

/// A run to which three things were said, with a key that signs from `unsigned`
/// entries on.
async fn said(unsigned: u64) -> (TempDir, Store, Lease, PublicKey) {
    let (folder, store) = new_store().await;
    let lease = held_run(&store).await;
    let mut key = None;
    for (at, text) in (0..).zip(["one", "two", "three"]) {
        if at == unsigned {
            key = Some(sign(&store, store.audit_head().await.unwrap()));
        }
        say(&store, &lease, text).await;
    }
    let key = match key {
        Some(key) => key,
        None => sign(&store, store.audit_head().await.unwrap()),
    };
    (folder, store, lease, key)
}

#[tokio::test]
async fn entries_of_a_run_are_attested_by_the_key_or_by_the_chain_before_it() {
    for unsigned in [0, 2, 3] {
        let (_folder, store, lease, key) = said(unsigned).await;
        let attested = store.attested(lease.run, &key).await.unwrap();
        let texts: Vec<&str> = attested.iter().map(|entry| entry.json.as_str()).collect();
        assert_eq!(texts, ["said one", "said two", "said three"], "{unsigned}");
    }
}

#[tokio::test]
async fn an_entry_that_was_written_without_the_key_is_not_attested() {
    let forged = "UPDATE audit SET json = 'said four' WHERE seq = 2";
    for unsigned in [0, 2, 3] {
        let (folder, store, lease, key) = said(unsigned).await;
        tamper(&folder, forged).await;
        let error = store.attested(lease.run, &key).await.unwrap_err().to_string();
        assert!(error.starts_with("the audit log: entry 2: "), "{unsigned}: {error}");
    }
    // With its digest made anew, which everybody can.
    for unsigned in [0, 3] {
        let (folder, store, lease, key) = said(unsigned).await;
        let entries = store.audit(1, 3).await.unwrap();
        let link = store::chain::Link {
            seq: 2,
            at: entries[1].at,
            actor: &entries[1].actor,
            action: &entries[1].action,
            reason: &entries[1].reason,
            run: Some(lease.run.0),
            json: "said four",
        };
        let digest = entries[0].digest.followed_by(&link);
        tamper(&folder, &format!("{forged}; UPDATE audit SET digest = x'{digest}' WHERE seq = 2"))
            .await;
        let error = store.attested(lease.run, &key).await.unwrap_err().to_string();
        assert!(error.starts_with("the audit log: entry "), "{unsigned}: {error}");
    }
}

#[tokio::test]
async fn an_unsigned_entry_behind_the_key_is_not_attested() {
    let (folder, store, lease, key) = said(1).await;
    tamper(&folder, "UPDATE audit SET key = NULL, signature = NULL WHERE seq = 3").await;
    let error = store.attested(lease.run, &key).await.unwrap_err().to_string();
    assert!(error.contains("entry 3: it is not signed by key"), "{error}");
}

#[tokio::test]
async fn a_record_without_an_entry_and_an_entry_without_a_record_are_reported() {
    let changes = [
        ("", vec![]),
        ("INSERT INTO records VALUES (1, 3, 1, 'said four')", vec!["record 3 of run 1 has no"]),
        ("INSERT INTO records VALUES (1, 3, 1, 'noted four')", vec![]),
        ("DELETE FROM records WHERE seq = 1", vec!["audit entry 2 has no record in run 1"]),
        (
            "UPDATE records SET json = 'said four' WHERE seq = 1",
            vec!["record 1 of run 1 has no", "audit entry 2 has no record in run 1"],
        ),
        ("UPDATE records SET json = CAST(x'ff' AS TEXT) WHERE seq = 0", vec!["audit entry 1 has"]),
    ];
    for (sql, expected) in changes {
        let (folder, store, _, key) = said(0).await;
        tamper(&folder, sql).await;
        let trust = Trust { keys: vec![key], heads: Vec::new() };
        let verdict = store.verify_audit(&trust, is_said).await.unwrap();
        let alone = verify_audit_file(&path(&folder), &trust, is_said).await.unwrap();
        assert_eq!(verdict, alone);
        let why = match verdict {
            Verdict::Verified(_) => Vec::new(),
            Verdict::Mismatched { why, .. } => why,
            Verdict::Broken { at, why } => panic!("{sql}: broken at {at}: {why}"),
        };
        assert_eq!(why.len(), expected.len(), "{sql}: {why:?}");
        for (why, expected) in why.iter().zip(expected) {
            assert!(why.starts_with(expected), "{sql}: {why}");
        }
    }
}
