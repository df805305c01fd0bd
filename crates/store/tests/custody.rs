//! What people did to a run stands in its records and in the audit log, or
//! somebody else wrote one of them.

mod common;

use common::*;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use store::chain::Digest;
use store::{
    AuditKey, Deed, Entry, Head, Lease, Meaning, PublicKey, Step, Store, Trust, Verdict,
    verify_audit_file,
};
use tempfile::TempDir;

fn interpret(json: &str) -> Meaning {
    match json.split_once(' ').unwrap_or((json, "")) {
        ("opened", digest) => Meaning::Opened { plan: Digest::parse(digest) },
        ("said", _) => Meaning::Said,
        ("closed", outcome) => Meaning::Closed { outcome: outcome.to_owned() },
        _ => Meaning::Other,
    }
}

/// What somebody says, as a record and as an audit entry.
async fn say(store: &Store, lease: &Lease, text: &str) {
    let seq = store.run(lease.run).await.unwrap().records;
    let action = if seq == 0 { "drain dc1" } else { "pause" };
    let (at, json) = (seq + 1, text.to_owned());
    let deed = Deed {
        at,
        actor: "ada".into(),
        action: action.into(),
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
    let sql = sql.to_owned();
    let connection = SqliteConnectOptions::new().filename(path(folder)).foreign_keys(false);
    let mut connection = connection.connect().await.unwrap();
    let guards = take_guards(&mut connection).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    put_guards(&mut connection, guards).await;
}

/// A run that was opened and to which two things were said, with a key that signs
/// from `unsigned` entries on.
async fn said(unsigned: u64) -> (TempDir, Store, Lease, PublicKey) {
    said_behind(unsigned, &opening()).await
}

/// What opens a run of the plan that is there.
fn opening() -> String {
    format!("opened {}", Digest::of(PLAN.as_bytes()))
}

async fn said_behind(unsigned: u64, opening: &str) -> (TempDir, Store, Lease, PublicKey) {
    let (folder, store) = new_store().await;
    let lease = held_run(&store).await;
    let mut key = None;
    for (at, text) in (0..).zip([opening, "said two", "said three"]) {
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
        assert_eq!(texts, [&opening(), "said two", "said three"], "{unsigned}");
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

/// With an index of its own, SQLite may show other entries than those of the table.
#[tokio::test]
async fn entries_are_attested_only_where_the_schema_is_ours() {
    let (folder, store, lease, key) = said(0).await;
    tamper(&folder, "CREATE INDEX seen ON audit (run) WHERE seq != 2").await;
    let error = store.attested(lease.run, &key).await.unwrap_err().to_string();
    assert!(error.contains("index `seen` on `audit`"), "{error}");
    tamper(&folder, "DROP INDEX seen").await;
    assert_eq!(store.attested(lease.run, &key).await.unwrap().len(), 3);
}

/// Changes a store, and compares what is reported with how it begins.
async fn check(sql: &str, expected: &[&str]) {
    let (folder, store, _, key) = said(0).await;
    tamper(&folder, sql).await;
    let trust = Trust { keys: vec![key], heads: Vec::new() };
    let verdict = store.verify_audit(&trust, interpret).await.unwrap();
    let alone = verify_audit_file(&path(&folder), &trust, interpret).await.unwrap();
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

#[tokio::test]
async fn a_record_without_an_entry_and_an_entry_without_a_record_are_reported() {
    check("", &[]).await;
    check("INSERT INTO records VALUES (1, 3, 1, 'said four')", &["record 3 of run 1 has no"]).await;
    check("INSERT INTO records VALUES (1, 3, 1, 'noted four')", &[]).await;
    check("DELETE FROM records WHERE seq = 1", &["audit entry 2 has no record in run 1"]).await;
    check(
        "UPDATE records SET json = 'said four' WHERE seq = 1",
        &["record 1 of run 1 has no", "audit entry 2 has no record in run 1"],
    )
    .await;
    check(
        "UPDATE records SET json = CAST(x'ff' AS TEXT) WHERE seq = 0",
        &["audit entry 1 has no record in run 1"],
    )
    .await;
}

#[tokio::test]
async fn a_plan_that_is_not_the_one_of_the_entry_is_reported() {
    let why = "the plan of run 1 is not the one that audit entry 1 opens it with: ";
    check("UPDATE plans SET json = replace(json, 'tasks', 'jobs')", &[why]).await;
    check("UPDATE plans SET json = CAST(x'ff' AS TEXT)", &[why]).await;
    let missing = format!("{why}it is missing, not {}", Digest::of(PLAN.as_bytes()));
    check("DELETE FROM plans", &[&missing]).await;
}

#[tokio::test]
async fn runs_that_were_opened_without_a_digest_are_counted() {
    for (opening, expected) in [(opening(), 0), ("opened".to_owned(), 1)] {
        let (_folder, store, _, key) = said_behind(0, &opening).await;
        let trust = Trust { keys: vec![key], heads: Vec::new() };
        match store.verify_audit(&trust, interpret).await.unwrap() {
            Verdict::Verified(proof) => assert_eq!(proof.runs_without_plan, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_row_that_is_not_what_the_log_and_the_records_say_is_reported() {
    check("UPDATE runs SET actor = 'eve'", &["run 1 was begun by `eve` by the table"]).await;
    check("UPDATE runs SET reason = 'x'", &["run 1 was begun for `x` by the table"]).await;
    check("UPDATE runs SET datacenter = 'dc2'", &["run 1 was begun as `drain dc2` by"]).await;
    check("UPDATE runs SET direction = 'restore'", &["run 1 was begun as `restore dc1` by"]).await;
    check("UPDATE runs SET created_at = 7", &["run 1 was begun at `7` by the table"]).await;
    check("DELETE FROM runs", &["audit entry 1 opens run 1, which is not in the table"]).await;
    check(
        "INSERT INTO runs (id, datacenter, direction, actor, reason, created_at) \
         VALUES (9, 'dc9', 'drain', 'ada', 'a drill', 1)",
        &["run 9 is in the table of runs, and no audit entry opens it"],
    )
    .await;
    let ended = "UPDATE runs SET outcome = 'completed', ended_at = 9";
    check(ended, &["run 1 ended as `completed` by the table of runs, and no record says"]).await;
    let record = |outcome| format!("INSERT INTO records VALUES (1, 3, 9, 'closed {outcome}')");
    check(&format!("{ended}; {}", record("completed")), &[]).await;
    check(
        &format!("{ended}; {}", record("held")),
        &["run 1 ended as `completed` by the table of runs, and as `held` by what was written"],
    )
    .await;
    check(&record("held"), &[]).await;
    let later = "UPDATE runs SET outcome = 'held', ended_at = 10";
    check(
        &format!("{later}; {}", record("held")),
        &["run 1 ended at 10 by the table of runs, and at 9 by what was written when it ended"],
    )
    .await;
}
