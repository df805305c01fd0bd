//! Whatever somebody without the key does to the audit log, verification fails
//! and says where. Only an end that was cut off needs the heads that were sent. What
//! they do to the schema is refused wherever something is proven or written.

mod common;

use common::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use store::chain::{Digest, Link};
use store::{Audit, AuditKey, Error, Head, KnownHead, Store, Trust, Verdict, verify_audit_file};
use tempfile::TempDir;

/// An entry as it is in the file.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    seq: i64,
    at: i64,
    actor: String,
    action: String,
    reason: String,
    run: Option<i64>,
    json: String,
    digest: Vec<u8>,
    key: Option<Vec<u8>>,
    signature: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
enum Column {
    At,
    Actor,
    Action,
    Reason,
    Run,
    Json,
    Digest,
    Signature,
}

/// What is done to the entries themselves.
#[derive(Clone, Debug)]
enum Change {
    Edit(Index, Column),
    Delete(Index),
    /// The rest moves up.
    TakeOut(Index),
    Swap(Index, Index),
    /// A copy of an entry is put in there, and the rest moves down.
    PutIn(Index, Index),
    CutOff(Index),
}

/// What is done so that it does not show.
#[derive(Clone, Copy, Debug)]
enum Cover {
    Nothing,
    /// All digests are made anew.
    Digests,
    /// All digests are made anew, and signatures are taken away.
    NoSignatures,
    /// The whole log is written anew, and signed with a key of one's own.
    OwnKey,
}

const COLUMNS: [Column; 8] = [
    Column::At,
    Column::Actor,
    Column::Action,
    Column::Reason,
    Column::Run,
    Column::Json,
    Column::Digest,
    Column::Signature,
];
const COVERS: [Cover; 4] = [Cover::Nothing, Cover::Digests, Cover::NoSignatures, Cover::OwnKey];

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), select(&COLUMNS[..])).prop_map(|(at, column)| Change::Edit(at, column)),
        1 => at().prop_map(Change::Delete),
        1 => at().prop_map(Change::TakeOut),
        1 => (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        1 => (at(), at()).prop_map(|(of, to)| Change::PutIn(of, to)),
        1 => at().prop_map(Change::CutOff),
    ]
}

fn edit(row: &mut Row, column: Column) {
    match column {
        Column::At => row.at += 1,
        Column::Actor => row.actor = "eve".into(),
        Column::Action => row.action.push('x'),
        Column::Reason => row.reason.clear(),
        Column::Run => row.run = Some(7),
        Column::Json => row.json = "{}".into(),
        Column::Digest => row.digest[0] ^= 1,
        Column::Signature => match &mut row.signature {
            Some(signature) => signature[0] ^= 1,
            None => (row.key, row.signature) = (Some(vec![1; 32]), Some(vec![1; 64])),
        },
    }
}

fn renumber(rows: &mut [Row]) {
    (1..).zip(rows).for_each(|(seq, row)| row.seq = seq);
}

impl Change {
    fn apply(&self, rows: &mut Vec<Row>) {
        let len = rows.len();
        match self {
            Change::Edit(at, column) => edit(&mut rows[at.index(len)], *column),
            Change::Delete(at) => _ = rows.remove(at.index(len)),
            Change::TakeOut(at) => {
                rows.remove(at.index(len));
                renumber(rows);
            }
            Change::Swap(a, b) => {
                rows.swap(a.index(len), b.index(len));
                renumber(rows);
            }
            Change::PutIn(of, to) => {
                rows.insert(to.index(len + 1), rows[of.index(len)].clone());
                renumber(rows);
            }
            Change::CutOff(from) => rows.truncate(from.index(len)),
        }
    }
}

impl Cover {
    async fn apply(self, rows: &mut Vec<Row>) {
        match self {
            Cover::Nothing => {}
            Cover::Digests => digest_anew(rows),
            Cover::NoSignatures => {
                rows.iter_mut().for_each(|row| (row.key, row.signature) = (None, None));
                digest_anew(rows);
            }
            Cover::OwnKey => *rows = written_anew(rows).await,
        }
    }
}

fn digest_anew(rows: &mut [Row]) {
    let mut digest = Digest::genesis();
    for row in rows {
        digest = digest.followed_by(&Link {
            seq: row.seq as u64,
            at: row.at as u64,
            actor: &row.actor,
            action: &row.action,
            reason: &row.reason,
            run: row.run.map(|run| run as u64),
            json: &row.json,
        });
        row.digest = digest.0.to_vec();
    }
}

/// The same entries as Pharos itself writes them, with another key.
async fn written_anew(rows: &[Row]) -> Vec<Row> {
    let (folder, store) = new_store().await;
    store.sign_with(AuditKey::from_seed(&[2; 32], Head::genesis()));
    for Row { at, actor, action, reason, json, .. } in rows {
        let audit = Audit { at: *at as u64, actor, action, reason, run: None, json };
        store.append_audit(audit).await.unwrap();
    }
    read(&folder).await
}

/// Where verification must find the change: at the first entry that differs; in
/// what is older than the key also at its end, which the file of the key knows.
fn place(before: &[Row], after: &[Row], unsigned: u64, knows_heads: bool) -> Option<Vec<u64>> {
    let len = before.len().max(after.len());
    let is_same = |at: &usize| before.get(*at) == after.get(*at);
    let first = (0..len).find(|at| !is_same(at))? as u64 + 1;
    let is_cut_off = after.len() < first as usize;
    if is_cut_off && first > unsigned && !knows_heads {
        return None;
    }
    Some(if first <= unsigned { vec![first, unsigned] } else { vec![first] })
}

async fn read(folder: &TempDir) -> Vec<Row> {
    let sql = "SELECT * FROM audit ORDER BY seq";
    let rows = sqlx::query(sql).fetch_all(&mut direct(folder).await).await.unwrap();
    let row = |row: &SqliteRow| Row {
        seq: row.get("seq"),
        at: row.get("at"),
        actor: row.get("actor"),
        action: row.get("action"),
        reason: row.get("reason"),
        run: row.get("run"),
        json: row.get("json"),
        digest: row.get("digest"),
        key: row.get("key"),
        signature: row.get("signature"),
    };
    rows.iter().map(row).collect()
}

async fn replace(folder: &TempDir, rows: &[Row]) {
    let mut connection = direct(folder).await;
    let guards = take_guards(&mut connection).await;
    let script = "PRAGMA foreign_keys = 0; DELETE FROM audit;";
    sqlx::raw_sql(script).execute(&mut connection).await.unwrap();
    for row in rows {
        sqlx::query("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
            .bind(row.seq)
            .bind(row.at)
            .bind(&row.actor)
            .bind(&row.action)
            .bind(&row.reason)
            .bind(row.run)
            .bind(&row.json)
            .bind(&row.digest)
            .bind(&row.key)
            .bind(&row.signature)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    put_guards(&mut connection, guards).await;
}

async fn check(unsigned: u64, signed: u64, change: Change, cover: Cover, knows_heads: bool) {
    let (folder, store, mut trust, sent) = signed_log(unsigned, signed).await;
    if knows_heads {
        let known = |head| KnownHead { head, from: "the sink".into() };
        trust.heads = sent.iter().map(|sent| known(sent.head)).collect();
    }
    let before = read(&folder).await;
    assert!(matches!(store.verify_audit(&trust, no_author).await.unwrap(), Verdict::Verified(_)));
    store.close().await.unwrap();
    let mut after = before.clone();
    change.apply(&mut after);
    cover.apply(&mut after).await;
    replace(&folder, &after).await;
    let verdict = verify_audit_file(&path(&folder), &trust, no_author).await.unwrap();
    match place(&before, &after, unsigned, knows_heads) {
        None => assert!(matches!(verdict, Verdict::Verified(_)), "{verdict:?}"),
        Some(places) => {
            let Verdict::Broken { at, why } = verdict else { panic!("not found: {after:#?}") };
            assert!(places.contains(&at) && !why.is_empty(), "at {at}, not {places:?}: {why}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn tampering_without_the_key_is_found_and_placed(
        unsigned in 0u64..4,
        signed in 1u64..5,
        change in change(),
        cover in select(&COVERS[..]),
        knows_heads: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(unsigned, signed, change, cover, knows_heads));
    }
}

async fn run_sql(folder: &TempDir, sql: &str) {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(&mut direct(folder).await).await.unwrap();
}

/// Changes a schema and expects that every way to the store names what was changed.
async fn check_schema(sql: &str, expected: &str) {
    let (folder, store) = new_store().await;
    keep(&store, 3).await;
    run_sql(&folder, sql).await;
    let trust = Trust::default();
    let audit = Audit { at: 4, actor: "ada", action: "pause", reason: "", run: None, json: "{}" };
    let refusals = [
        store.append_audit(audit).await.map(|_| ()),
        store.probe(5).await,
        store.verify_audit(&trust, no_author).await.map(|_| ()),
        verify_audit_file(&path(&folder), &trust, no_author).await.map(|_| ()),
        Store::open(path(&folder)).await.map(|_| ()),
    ];
    for (at, refused) in refusals.into_iter().enumerate() {
        let Err(refused) = refused else { panic!("{sql}: {at} is not refused") };
        assert!(matches!(refused, Error::Altered { .. }), "{sql}: {at}: {refused}");
        let refused = refused.to_string();
        assert!(refused.contains(expected), "{sql}: {at}: {refused}");
        assert!(refused.contains("accepted: exactly the tables"), "{sql}: {at}: {refused}");
    }
}

#[tokio::test]
async fn a_schema_that_is_not_ours_is_refused_with_what_is_wrong() {
    check_schema(
        "CREATE TRIGGER hide BEFORE INSERT ON audit WHEN NEW.actor = 'eve' \
         BEGIN SELECT raise(IGNORE); END",
        "trigger `hide` on `audit` was put there by something else than Pharos",
    )
    .await;
    check_schema("CREATE INDEX seen ON audit (seq) WHERE seq != 2", "index `seen` on `audit`")
        .await;
    check_schema("CREATE TABLE copy AS SELECT * FROM audit", "table `copy` was put there").await;
    check_schema("CREATE VIEW log AS SELECT * FROM audit", "view `log` was put there").await;
    check_schema("ANALYZE", "table `sqlite_stat1` was put there").await;
    check_schema("DROP TRIGGER audit_keeps", "trigger `audit_keeps` on `audit` is missing").await;
    check_schema("DROP INDEX runs_open", "index `runs_open` on `runs` is missing").await;
    check_schema(
        "ALTER TABLE claims ADD COLUMN by TEXT",
        "table `claims` is not as Pharos makes it",
    )
    .await;
    check_schema(
        "CREATE TABLE copy (seq, at, actor, action, reason, run, json, digest, key, signature); \
         INSERT INTO copy SELECT * FROM audit; DROP TABLE audit; ALTER TABLE copy RENAME TO audit",
        "table `audit` is not as Pharos makes it",
    )
    .await;
}

/// SQLite answers from the index, whatever the table says.
#[tokio::test]
async fn an_index_that_says_something_else_than_its_table_is_found() {
    let (folder, store) = new_store().await;
    held_run(&store).await;
    let of = |condition: &str| {
        format!(
            "UPDATE sqlite_schema SET sql = 'CREATE UNIQUE INDEX runs_open ON runs (datacenter) \
             WHERE ended_at IS {condition}' WHERE name = 'runs_open'; \
             PRAGMA writable_schema = RESET;"
        )
    };
    let (other, ours) = (of("NOT NULL"), of("NULL"));
    let sql = "PRAGMA writable_schema = ON;";
    run_sql(&folder, &format!("{sql}{other} REINDEX runs_open; {sql}{ours}")).await;
    let trust = Trust::default();
    let found = [
        store.verify_audit(&trust, no_author).await.map(|_| ()),
        verify_audit_file(&path(&folder), &trust, no_author).await.map(|_| ()),
        Store::open(path(&folder)).await.map(|_| ()),
    ];
    for (at, found) in found.into_iter().enumerate() {
        let Err(Error::Damaged { why, .. }) = found else { panic!("{at}: {found:?}") };
        assert!(why.contains("index runs_open"), "{at}: {why}");
    }
}

const HIDE: &str = "CREATE TRIGGER hide BEFORE UPDATE ON probes BEGIN SELECT raise(IGNORE); END;";
const UNHIDE: &str = "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'hide';";

/// What a connection has parsed and what the file says can be made to differ.
#[tokio::test]
async fn a_trigger_that_came_while_the_store_is_open_never_runs() {
    let (folder, store) = new_store().await;
    store.probe(1).await.unwrap();
    let mut other = direct(&folder).await;
    let version: i64 =
        sqlx::query_scalar("PRAGMA schema_version").fetch_one(&mut other).await.unwrap();
    let with_version = |sql: &str| format!("{sql} PRAGMA schema_version = {version};");
    let probed = async |at: u64| {
        let done = store.probe(at).await;
        let kept: i64 = sqlx::query_scalar("SELECT at FROM probes")
            .fetch_one(&mut direct(&folder).await)
            .await
            .unwrap();
        assert_eq!(done.is_ok(), kept == at as i64, "{done:?}, {kept} is kept");
        done.map_err(|error| error.to_string())
    };
    // Its number is put back before the store has seen it, and after.
    run_sql(&folder, &with_version(HIDE)).await;
    let _ = probed(2).await;
    run_sql(&folder, "PRAGMA schema_version = 900").await;
    assert!(probed(3).await.unwrap_err().contains("trigger `hide`"));
    run_sql(&folder, &with_version("")).await;
    assert!(probed(4).await.unwrap_err().contains("trigger `hide`"));
    // It is gone from the file, and the number is one at which it was there.
    run_sql(&folder, UNHIDE).await;
    probed(5).await.unwrap();
    // A copy makes SQLite read the schema again, whatever its number is.
    run_sql(&folder, &with_version(HIDE)).await;
    store.copy_to(folder.path().join("copy.db")).await.unwrap();
    assert!(probed(6).await.unwrap_err().contains("trigger `hide`"));
}

#[tokio::test]
async fn a_schema_that_was_written_anew_as_it_was_is_ours() {
    let (folder, store) = new_store().await;
    keep(&store, 2).await;
    run_sql(&folder, "VACUUM; DROP INDEX runs_open;").await;
    let ours = "CREATE UNIQUE INDEX runs_open ON runs (datacenter) WHERE ended_at IS NULL";
    run_sql(&folder, ours).await;
    keep(&store, 2).await;
    store.close().await.unwrap();
    assert_eq!(Store::open(path(&folder)).await.unwrap().audit_head().await.unwrap().entries, 4);
}
