//! An audit log shows when it was changed.

mod common;

use common::*;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use store::chain::{Digest, Link};
use store::{Audit, AuditKey, Head, KnownHead, Store, Trust, Verdict, verify_audit_file};
use tempfile::TempDir;

fn remembering(head: Option<Head>) -> Trust {
    let heads = head.into_iter().map(|head| KnownHead { head, from: "a note".into() });
    Trust { heads: heads.collect(), ..Trust::default() }
}

fn end_of(verdict: Verdict) -> Head {
    match verdict {
        Verdict::Verified(proof) => proof.head,
        other => panic!("{other:?}"),
    }
}

/// What a log of ten entries looks like after somebody who can write to the
/// file ran some SQL on it.
async fn verdict_after(sql: &'static str, is_head_remembered: bool) -> Verdict {
    let (folder, store) = new_store().await;
    let head = keep(&store, 10).await;
    let mut connection = direct(&folder).await;
    let guards = take_guards(&mut connection).await;
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    put_guards(&mut connection, guards).await;
    store.verify_audit(&remembering(is_head_remembered.then_some(head)), no_author).await.unwrap()
}

#[tokio::test]
async fn a_log_that_nobody_touched_is_verified() {
    let (folder, store) = new_store().await;
    let empty = store.audit_head().await.unwrap();
    assert_eq!(end_of(store.verify_audit(&Trust::default(), no_author).await.unwrap()), empty);
    let early = keep(&store, 3).await;
    let head = keep(&store, 1200).await;
    assert_eq!(head.entries, 1203);
    for remembered in [None, Some(empty), Some(early), Some(head)] {
        let verdict = store.verify_audit(&remembering(remembered), no_author).await.unwrap();
        assert_eq!(end_of(verdict), head);
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
        "INSERT INTO audit SELECT 9, at, actor, action, reason, run, json, digest, NULL, NULL \
         FROM audit LIMIT 1",
        "INSERT OR REPLACE INTO audit \
         SELECT 2, at, actor, action, reason, run, json, digest, NULL, NULL FROM audit LIMIT 1",
    ] {
        let error = sqlx::raw_sql(sql).execute(&mut connection).await.unwrap_err();
        assert!(error.to_string().contains("only grows"), "{sql}: {error}");
    }
    end_of(store.verify_audit(&Trust::default(), no_author).await.unwrap());
}

#[tokio::test]
async fn every_change_is_noticed_where_it_was_made() {
    let broken_at = |verdict| match verdict {
        Verdict::Broken { at, .. } => at,
        other => panic!("{other:?}"),
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
            "INSERT INTO audit SELECT 0, at, 'eve', action, reason, run, json, digest, NULL, NULL \
             FROM audit WHERE seq = 1",
            0,
        ),
    ];
    for (sql, at) in changes {
        assert_eq!(broken_at(verdict_after(sql, false).await), at, "{sql}");
    }
    // The end cut off: whole in itself, but not what is remembered.
    let cut = "DELETE FROM audit WHERE seq > 7";
    assert_eq!(end_of(verdict_after(cut, false).await).entries, 7);
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
    let verdict = other.verify_audit(&remembering(Some(head)), no_author).await.unwrap();
    assert!(matches!(verdict, Verdict::Broken { at: 5, .. }), "{verdict:?}");
}

/// What somebody who can write to the file can do without the key: every digest
/// made anew over what an entry should have said.
async fn rewrite(folder: &TempDir, more: &'static str) {
    let mut connection = direct(folder).await;
    let guards = take_guards(&mut connection).await;
    let edit = "UPDATE audit SET actor = 'eve' WHERE seq = 2";
    sqlx::raw_sql(edit).execute(&mut connection).await.unwrap();
    sqlx::raw_sql(more).execute(&mut connection).await.unwrap();
    let rows: Vec<(i64, i64, String, String, String, String)> =
        sqlx::query_as("SELECT seq, at, actor, action, reason, json FROM audit ORDER BY seq")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    let mut digest = Digest::genesis();
    for (seq, at, actor, action, reason, json) in rows {
        let (seq, at) = (seq as u64, at as u64);
        let (actor, action, reason, json) = (&*actor, &*action, &*reason, &*json);
        digest = digest.followed_by(&Link { seq, at, actor, action, reason, run: None, json });
        sqlx::query("UPDATE audit SET digest = ? WHERE seq = ?")
            .bind(digest.0.as_slice())
            .bind(seq as i64)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    put_guards(&mut connection, guards).await;
}

fn broken(verdict: Verdict) -> (u64, String) {
    match verdict {
        Verdict::Broken { at, why } => (at, why),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_whole_log_made_anew_without_the_key_is_found() {
    for (unsigned, more, at, why) in [
        // Old signatures do not fit new digests.
        (0, "", 2, "its signature is not by key"),
        // Signatures that were taken away are missed.
        (0, "UPDATE audit SET key = NULL, signature = NULL", 1, "it is not signed"),
        (0, "UPDATE audit SET key = NULL, signature = NULL WHERE seq > 1", 2, "it is not signed"),
        // What was there before the key is part of what the key signs.
        (3, "", 3, "the file of key"),
        (3, "UPDATE audit SET key = NULL, signature = NULL", 3, "the file of key"),
        // One's own key is not the key.
        (0, "UPDATE audit SET key = zeroblob(32)", 1, "which is not known here"),
    ] {
        let (folder, store, trust, _) = signed_log(unsigned, 4).await;
        end_of(store.verify_audit(&trust, no_author).await.unwrap());
        rewrite(&folder, more).await;
        // The chain alone shows nothing.
        end_of(store.verify_audit(&Trust::default(), no_author).await.unwrap());
        let found = broken(store.verify_audit(&trust, no_author).await.unwrap());
        assert!(found.0 == at && found.1.contains(why), "{more}: {found:?}");
    }
}

#[tokio::test]
async fn an_end_that_was_cut_off_is_found_with_the_heads_that_were_sent() {
    let (folder, store, mut trust, sent) = signed_log(2, 5).await;
    assert_eq!(sent.iter().map(|sent| sent.head.entries).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    for head in &sent {
        assert!(head.signature.is_some_and(|own| own.is_of(&head.head)), "{head:?}");
    }
    let mut connection = direct(&folder).await;
    let guards = take_guards(&mut connection).await;
    let cut = "DELETE FROM audit WHERE seq > 5";
    sqlx::raw_sql(cut).execute(&mut connection).await.unwrap();
    put_guards(&mut connection, guards).await;
    assert_eq!(
        end_of(store.verify_audit(&trust, no_author).await.unwrap()).entries,
        5,
        "whole in itself"
    );
    let from = "the sink".to_owned();
    trust.heads = sent.iter().map(|own| KnownHead { head: own.head, from: from.clone() }).collect();
    let (at, why) = broken(store.verify_audit(&trust, no_author).await.unwrap());
    assert_eq!((at, why.as_str()), (6, "the log ends after 5 entries; 7 are in the sink"));
}

#[tokio::test]
async fn what_is_proven_names_the_unsigned_and_the_signed_part() {
    let (folder, store, trust, _) = signed_log(3, 4).await;
    for verdict in [
        store.verify_audit(&trust, no_author).await.unwrap(),
        // Without a server, from the file alone.
        verify_audit_file(&path(&folder), &trust, no_author).await.unwrap(),
    ] {
        let Verdict::Verified(proof) = verdict else { panic!("{verdict:?}") };
        assert_eq!((proof.head.entries, proof.unsigned), (7, 3));
        let parts: Vec<_> =
            proof.signed.iter().map(|part| (part.key, part.from, part.to)).collect();
        assert_eq!(parts, [(trust.keys[0].id(), 4, 7)]);
    }
}

#[tokio::test]
async fn an_older_file_gets_signatures_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(path(&folder)).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    let script = concat!(
        include_str!("../migrations/0001_runs.sql"),
        "PRAGMA application_id = 0x50686172; PRAGMA user_version = 1;"
    );
    sqlx::raw_sql(script).execute(&mut connection).await.unwrap();
    let link = Link { seq: 1, at: 1, actor: "ada", action: "a", reason: "", run: None, json: "{}" };
    sqlx::query("INSERT INTO audit VALUES (1, 1, 'ada', 'a', '', NULL, '{}', ?)")
        .bind(Digest::genesis().followed_by(&link).0.as_slice())
        .execute(&mut connection)
        .await
        .unwrap();
    drop(connection);
    let store = Store::open(path(&folder)).await.unwrap();
    let key = AuditKey::from_seed(&[1; 32], store.audit_head().await.unwrap());
    let trust = Trust { keys: vec![key.public().clone()], heads: Vec::new() };
    store.sign_with(key);
    keep(&store, 2).await;
    let verdict = store.verify_audit(&trust, no_author).await.unwrap();
    let Verdict::Verified(proof) = verdict else { panic!("{verdict:?}") };
    assert_eq!((proof.head.entries, proof.unsigned, proof.signed[0].from), (3, 1, 2));
}
