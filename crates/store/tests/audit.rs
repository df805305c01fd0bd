//! An audit log shows when it was changed.

mod common;

use common::*;
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use store::{Audit, Head, Store, Verdict};
use tempfile::TempDir;

async fn keep(store: &Store, count: u64) -> Head {
    let mut head = store.audit_head().await.unwrap();
    for at in 0..count {
        let json = format!("{{\"n\":{at}}}");
        let audit =
            Audit { at, actor: "ada", action: "pause", reason: "a drill", run: None, json: &json };
        head = store.append_audit(audit).await.unwrap();
    }
    head
}

async fn direct(folder: &TempDir) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path(folder)).connect().await.unwrap()
}

/// What a log of ten entries looks like after somebody who can write to the
/// file ran some SQL on it.
async fn verdict_after(sql: &'static str, is_head_remembered: bool) -> Verdict {
    let (folder, store) = new_store().await;
    let head = keep(&store, 10).await;
    let mut connection = direct(&folder).await;
    let script = "DROP TRIGGER audit_keeps; DROP TRIGGER audit_never_forgets; \
                  DROP TRIGGER audit_grows;";
    sqlx::raw_sql(script).execute(&mut connection).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    store.verify_audit(is_head_remembered.then_some(head)).await.unwrap()
}

#[tokio::test]
async fn a_log_that_nobody_touched_is_verified() {
    let (folder, store) = new_store().await;
    let empty = store.audit_head().await.unwrap();
    assert_eq!(store.verify_audit(None).await.unwrap(), Verdict::Verified(empty));
    let early = keep(&store, 3).await;
    let head = keep(&store, 1200).await;
    assert_eq!(head.entries, 1203);
    for remembered in [None, Some(empty), Some(early), Some(head)] {
        assert_eq!(store.verify_audit(remembered).await.unwrap(), Verdict::Verified(head));
    }
    let page = store.audit(1200, 10).await.unwrap();
    assert_eq!(page.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1200, 1201, 1202, 1203]);
    assert_eq!(page[3].digest, head.digest);
    store.close().await.unwrap();
    let store = Store::open(path(&folder)).await.unwrap();
    assert_eq!(store.audit_head().await.unwrap(), head);
}

#[tokio::test]
async fn accidents_are_refused() {
    let (folder, store) = new_store().await;
    keep(&store, 3).await;
    let mut connection = direct(&folder).await;
    for sql in [
        "UPDATE audit SET reason = 'none' WHERE seq = 2",
        "DELETE FROM audit WHERE seq = 3",
        "INSERT INTO audit SELECT 9, at, actor, action, reason, run, json, digest FROM audit LIMIT 1",
        "INSERT OR REPLACE INTO audit \
         SELECT 2, at, actor, action, reason, run, json, digest FROM audit LIMIT 1",
    ] {
        let error = sqlx::raw_sql(sql).execute(&mut connection).await.unwrap_err();
        assert!(error.to_string().contains("only grows"), "{sql}: {error}");
    }
    assert!(matches!(store.verify_audit(None).await.unwrap(), Verdict::Verified(_)));
}

#[tokio::test]
async fn every_change_is_noticed_where_it_was_made() {
    let broken_at = |verdict| match verdict {
        Verdict::Broken { at, .. } => at,
        Verdict::Verified(head) => panic!("verified up to {head:?}"),
    };
    let changes = [
        ("DELETE FROM audit WHERE seq = 4", 4),
        ("DELETE FROM audit WHERE seq = 1", 1),
        ("UPDATE audit SET reason = 'another' WHERE seq = 5", 5),
        ("UPDATE audit SET at = at + 1 WHERE seq = 10", 10),
        ("UPDATE audit SET run = NULL, actor = 'eve' WHERE seq = 2", 2),
        // Two entries change places.
        (
            "UPDATE audit SET seq = 99 WHERE seq = 6; UPDATE audit SET seq = 6 WHERE seq = 7; \
             UPDATE audit SET seq = 7 WHERE seq = 99",
            6,
        ),
        // One is taken out and the rest moves up.
        ("DELETE FROM audit WHERE seq = 8; UPDATE audit SET seq = seq - 1 WHERE seq > 8", 8),
        // What nobody could have written.
        ("UPDATE audit SET actor = CAST(x'ff' AS TEXT) WHERE seq = 3", 3),
        ("PRAGMA ignore_check_constraints = 1; UPDATE audit SET digest = x'00' WHERE seq = 9", 9),
        // One is put before the first.
        (
            "INSERT INTO audit SELECT 0, at, 'eve', action, reason, run, json, digest FROM audit WHERE seq = 1",
            0,
        ),
    ];
    for (sql, at) in changes {
        assert_eq!(broken_at(verdict_after(sql, false).await), at, "{sql}");
    }
    // The end cut off: whole in itself, but not what is remembered.
    let cut = "DELETE FROM audit WHERE seq > 7";
    assert!(
        matches!(verdict_after(cut, false).await, Verdict::Verified(head) if head.entries == 7)
    );
    assert_eq!(broken_at(verdict_after(cut, true).await), 8);
}

#[tokio::test]
async fn a_log_made_anew_is_noticed_by_who_remembers() {
    let (_folder, store) = new_store().await;
    let head = keep(&store, 5).await;
    let (_other_folder, other) = new_store().await;
    keep(&other, 4).await;
    let audit = Audit { at: 4, actor: "eve", action: "pause", reason: "", run: None, json: "{}" };
    other.append_audit(audit).await.unwrap();
    let verdict = other.verify_audit(Some(head)).await.unwrap();
    assert!(matches!(verdict, Verdict::Broken { at: 5, .. }), "{verdict:?}");
}
