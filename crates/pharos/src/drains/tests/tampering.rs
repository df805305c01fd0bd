//! What somebody does who can write the store and has no key, or a disk that
//! loses bits.

use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::*;
use drain::engine::RunOutcome;
use status::NeedKind;

pub(super) async fn tamper(home: &Path, sql: String) {
    let options = SqliteConnectOptions::new().filename(home.join("drain.db"));
    let mut connection = options.foreign_keys(false).connect().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
}

/// A server that drives one run, which waits for an approval; then it stops.
async fn run_that_waits(home: &Path) -> RunId {
    let first = start_as("one", home).await;
    let run = begin(&first).await;
    say(&first, run, Verb::Pause { task: None }).await.unwrap();
    waive(&first, run, 1000).await.unwrap();
    first.stop().await;
    run
}

async fn waive(drains: &Drains, run: RunId, uid: u32) -> Result<(), Refused> {
    drains.say(run, user(uid), "both burn".into(), &Verb::Waive {}).await
}

/// Adds a record that nobody wrote: the last one, by another user.
async fn forge_waive(home: &Path, run: RunId) -> u64 {
    let store = Store::open(home.join("drain.db")).await.unwrap();
    let records = store.records(run, 0).all().await.unwrap();
    let waive = records.iter().rev().find(|record| record.json.contains("waive_limits")).unwrap();
    let seq = records.len() as u64;
    let forged = waive
        .json
        .replace("1000", "4242")
        .replace(&format!("\"seq\":{}", waive.seq), &format!("\"seq\":{seq}"));
    store.close().await.unwrap();
    let sql = format!(
        "INSERT INTO records VALUES ({run}, {seq}, {}, '{forged}'); \
         UPDATE runs SET next_seq = next_seq + 1 WHERE id = {run}",
        waive.at
    );
    tamper(home, sql).await;
    seq
}

async fn metrics(drains: &Drains) -> String {
    let mut page = crate::metrics::Page::default();
    write_metrics(drains, &mut page).await;
    page.text().to_owned()
}

/// Where records and the audit log differ.
async fn mismatches(drains: &Drains) -> Vec<String> {
    let trust = store::Trust { keys: vec![drains.audit_key().clone()], heads: Vec::new() };
    match drains.store().verify_audit(&trust, custody::meaning_of).await.unwrap() {
        store::Verdict::Mismatched { why, .. } => why,
        store::Verdict::Verified(_) => Vec::new(),
        store::Verdict::Broken { at, why } => panic!("broken at {at}: {why}"),
    }
}

/// A run that is not driven says why, holds no lease, and can be closed.
async fn stands_still_and_can_be_closed(drains: &Arc<Drains>, run: RunId, why: &str) {
    assert!(!drains.driven().contains_key(&run));
    let status = drains.status(run).await.unwrap();
    let told = status.stands_still.as_deref().unwrap_or_default();
    assert!(told.contains(why), "{told}");
    assert_eq!(status.elsewhere, None);
    let need = &status.needs_person[0];
    assert_eq!(need.kind, NeedKind::StandsStill);
    assert!(need.todo.contains(&format!("`pharos abort --run {run} --reason …`")), "{need:?}");
    assert_eq!(drains.find(run).await.unwrap().holder, None, "the lease was given back");
    let page = metrics(drains).await;
    assert!(page.contains("pharos_drain_runs_unreadable 1\n"), "{page}");
    let needs = "pharos_drain_needs_person{datacenter=\"east\",direction=\"drain\"} 1\n";
    assert!(page.contains(needs), "{page}");
    assert_eq!(drains.unwritable(), None, "the store can be written");

    let refused = say(drains, run, Verb::Resume { task: None }).await.unwrap_err().to_string();
    assert!(refused.contains(why) && refused.contains("accepted: `pharos abort"), "{refused}");
    let wanted = |direction| Wanted {
        datacenter: "east".into(),
        direction,
        mode: Mode::Disaster,
        by: user(1000),
        reason: String::new(),
        overload: false,
        give_up: Vec::new(),
    };
    let refused = drains.begin(wanted(Direction::Drain)).await.unwrap_err().to_string();
    assert!(refused.contains(why) && refused.contains("pharos abort --run"), "{refused}");

    let abort = Verb::Abort { how: Abort::Hold };
    let refused = drains.say(run, user(1000), " ".into(), &abort).await.unwrap_err().to_string();
    assert!(refused.contains("no reason is given"), "{refused}");
    let revert = Verb::Abort { how: Abort::Revert };
    let refused = say(drains, run, revert).await.unwrap_err().to_string();
    assert!(refused.contains("accepted: `pharos abort"), "{refused}");
    let server = Actor::automatic("keep_drained");
    let refused = drains.say(run, server, "x".into(), &abort).await.unwrap_err().to_string();
    assert!(refused.contains("is no person"), "{refused}");

    say(drains, run, abort).await.unwrap();
    let closed = drains.find(run).await.unwrap();
    assert_eq!(closed.outcome.as_deref(), Some("held"));
    let last = drains.store().audit(1, 100).await.unwrap().pop().unwrap();
    assert_eq!((last.run, last.actor.as_str()), (Some(run), "user-1000 (uid 1000)"));
    assert!(last.action.starts_with("abort") && last.json.contains(why), "{last:?}");
    assert_eq!(drains.status(run).await.unwrap().outcome, Some(RunOutcome::Held));
    assert!(metrics(drains).await.contains("pharos_drain_runs_unreadable 0\n"));
    drains.look_between_runs().await.unwrap();
    let next = begin(drains).await;
    say(drains, next, Verb::Abort { how: Abort::Hold }).await.unwrap();
}

#[tokio::test]
async fn a_forged_waive_keeps_its_run_from_being_driven() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    let seq = forge_waive(home.path(), run).await;
    let second = start_as("two", home.path()).await;
    let why = format!("record {seq}");
    stands_still_and_can_be_closed(&second, run, &why).await;
    let mismatches = mismatches(&second).await;
    assert_eq!(mismatches.len(), 1, "{mismatches:?}");
    assert!(mismatches[0].starts_with(&format!("record {seq} of run {run} has no audit entry")));
}

#[tokio::test]
async fn a_command_that_was_taken_out_keeps_its_run_from_being_driven() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    // The last one, so that no gap shows it.
    let sql = format!(
        "DELETE FROM records WHERE run = {run} AND seq = (SELECT max(seq) FROM records WHERE run = \
         {run}); UPDATE runs SET next_seq = (SELECT count(*) FROM records WHERE run = {run}) WHERE \
         id = {run}"
    );
    let store = Store::open(home.path().join("drain.db")).await.unwrap();
    let last = store.records(run, 0).all().await.unwrap().pop().unwrap();
    store.close().await.unwrap();
    assert!(last.json.contains("waive_limits"), "{last:?}");
    tamper(home.path(), sql).await;
    let second = start_as("two", home.path()).await;
    stands_still_and_can_be_closed(&second, run, "audit entry 3").await;
    let mismatches = mismatches(&second).await;
    assert_eq!(mismatches.len(), 1, "{mismatches:?}");
    assert!(mismatches[0].starts_with("audit entry 3 has no record in run 1"), "{mismatches:?}");
}

#[tokio::test]
async fn a_run_of_which_a_record_cannot_be_read_can_be_closed() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    tamper(home.path(), "UPDATE records SET json = '{}' WHERE seq = 2".into()).await;
    let second = start_as("two", home.path()).await;
    stands_still_and_can_be_closed(&second, run, "record 2 of run 1").await;
}

#[tokio::test]
async fn a_run_whose_plan_cannot_be_read_can_be_closed() {
    for sql in ["UPDATE plans SET json = '{}'", "DELETE FROM plans"] {
        let home = tempfile::tempdir().unwrap();
        let run = run_that_waits(home.path()).await;
        tamper(home.path(), sql.into()).await;
        let second = start_as("two", home.path()).await;
        stands_still_and_can_be_closed(&second, run, "the plan of run 1").await;
    }
}

/// With the file and without the key, an approval that asks two people was made to
/// ask one.
#[tokio::test]
async fn a_run_whose_plan_was_changed_is_not_driven() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    let sql = "UPDATE plans SET json = replace(json, 'May web leave?', 'Shall web stay?')";
    tamper(home.path(), sql.into()).await;
    let second = start_as("two", home.path()).await;
    let why = "the plan of run 1 is not the one that audit entry 1 opens it with";
    stands_still_and_can_be_closed(&second, run, why).await;
    let mismatches = mismatches(&second).await;
    assert_eq!(mismatches.len(), 1, "{mismatches:?}");
    assert!(mismatches[0].starts_with(why), "{mismatches:?}");
}

#[tokio::test]
async fn a_run_that_was_opened_without_the_digest_of_its_plan_is_driven_and_counted() {
    let home = tempfile::tempdir().unwrap();
    let first = start_as("one", home.path()).await;
    let plan = first.plan("east", Direction::Drain, Turn::Run).await.unwrap();
    let (json, now) = (serde_json::to_string(&plan).unwrap(), first.world.clock.now());
    let actor = user(1000).to_string();
    let new = NewRun {
        datacenter: "east",
        direction: "drain",
        plan: &json,
        actor: &actor,
        reason: "",
        at: now.0,
    };
    let (run, records) = Run::open(plan.into(), user(1000), "", Mode::Drill, now);
    let step = ledger::step(&run, &records);
    let run = first.store().begin_run(new, "gone/00", 1, &step).await.unwrap().run;
    first.stop().await;
    let second = start_as("two", home.path()).await;
    assert!(second.driven().contains_key(&run));
    let trust = store::Trust { keys: vec![second.audit_key().clone()], heads: Vec::new() };
    match second.store().verify_audit(&trust, custody::meaning_of).await.unwrap() {
        store::Verdict::Verified(proof) => assert_eq!(proof.runs_without_plan, 1),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_run_whose_row_was_changed_is_not_driven() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    tamper(home.path(), "UPDATE runs SET actor = 'eve'".into()).await;
    let second = start_as("two", home.path()).await;
    let why = "run 1 was begun by `eve` by the table of runs, and by `user-1000 (uid 1000)` by \
               audit entry 1";
    stands_still_and_can_be_closed(&second, run, why).await;
}

/// With the file and without the key, a run can be put there, and no entry that opens it.
#[tokio::test]
async fn a_run_that_no_audit_entry_opens_is_not_driven() {
    let home = tempfile::tempdir().unwrap();
    let drains = start_as("one", home.path()).await;
    let run = begin(&drains).await;
    say(&drains, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
    until(async || !drains.driven().contains_key(&run)).await;
    let forged = RunId(run.0 + 1);
    let sql = format!(
        "INSERT INTO runs (id, datacenter, direction, actor, reason, created_at) VALUES \
         ({forged}, 'east', 'drain', 'carol (uid 4242)', 'forged', {now}); INSERT INTO plans \
         SELECT {forged}, json FROM plans WHERE run = {run}",
        now = drains.world.clock.now().0
    );
    tamper(home.path(), sql).await;
    drains.take_up(&mut BTreeMap::new()).await.unwrap();
    let why = "run 2 is in the table of runs, and no audit entry opens it";
    stands_still_and_can_be_closed(&drains, forged, why).await;
    let mismatches = mismatches(&drains).await;
    assert_eq!(mismatches.len(), 1, "{mismatches:?}");
    assert!(mismatches[0].starts_with(why), "{mismatches:?}");
}

#[tokio::test]
async fn nothing_is_kept_while_the_schema_is_not_ours() {
    let home = tempfile::tempdir().unwrap();
    let drains = start_as("one", home.path()).await;
    let run = begin(&drains).await;
    let sql = "CREATE TRIGGER hide BEFORE INSERT ON audit WHEN NEW.actor LIKE 'user-1001%' BEGIN \
               SELECT raise(IGNORE); END";
    tamper(home.path(), sql.into()).await;
    let refused = waive(&drains, run, 1001).await.unwrap_err().to_string();
    assert!(refused.contains("trigger `hide` on `audit`"), "{refused}");
    let status = drains.status(run).await.unwrap();
    assert!(status.stands_still.as_ref().is_some_and(|why| why.contains("trigger `hide`")));
    drains.probe().await;
    assert!(drains.unwritable().is_some_and(|why| why.contains("trigger `hide`")));
    tamper(home.path(), "DROP TRIGGER hide".into()).await;
    until(async || drains.status(run).await.unwrap().stands_still.is_none()).await;
    say(&drains, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
    assert_eq!(mismatches(&drains).await, [""; 0]);
    let last = drains.store().audit(1, 10).await.unwrap();
    assert!(last.iter().any(|entry| entry.actor == "user-1001 (uid 1001)"), "{last:?}");
}

#[tokio::test]
async fn a_run_that_lost_its_last_records_can_be_closed() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    tamper(home.path(), "UPDATE runs SET next_seq = next_seq + 1".into()).await;
    let second = start_as("two", home.path()).await;
    stands_still_and_can_be_closed(&second, run, "records").await;
}

#[tokio::test]
async fn a_run_that_nobody_tampered_with_is_driven_on() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    let second = start_as("two", home.path()).await;
    assert!(second.driven().contains_key(&run));
    assert!(metrics(&second).await.contains("pharos_drain_runs_unreadable 0\n"));
    waive(&second, run, 1001).await.unwrap();
    assert_eq!(mismatches(&second).await, [""; 0]);
}

#[tokio::test]
async fn a_lease_that_no_holder_could_have_is_taken_over() {
    let home = tempfile::tempdir().unwrap();
    let run = run_that_waits(home.path()).await;
    let sql = "UPDATE runs SET holder = 'ghost/00', held_until = 9000000000000000";
    tamper(home.path(), sql.into()).await;
    let second = start_as("two", home.path()).await;
    assert!(second.driven().contains_key(&run));
    say(&second, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
}

#[tokio::test]
async fn a_run_whose_records_are_ahead_moves_no_lease() {
    let home = tempfile::tempdir().unwrap();
    let first = start_as("one", home.path()).await;
    let now = first.world.clock.now();
    first.world.clock.resume_at(drain::Time(now.0 + 3_600_000));
    // As if a run were driven: the clock of idle servers follows the wall.
    let run = {
        let run = begin(&first).await;
        first.world.clock.resume_at(drain::Time(now.0 + 3_600_000));
        say(&first, run, Verb::Pause { task: None }).await.unwrap();
        first.stop().await;
        run
    };
    let second = start_as("two", home.path()).await;
    assert!(second.world.clock.now().0 > now.0 + 3_500_000, "it goes on where the run was left");
    // Meanwhile the lease is renewed.
    for _ in 0..10 {
        say(&second, run, Verb::Pause { task: None }).await.unwrap();
        say(&second, run, Verb::Resume { task: None }).await.unwrap();
    }
    let until = second.find(run).await.unwrap().held_until.unwrap();
    assert!(until < now.0 + 600_000, "{until} {now:?}");
    say(&second, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
    let next = begin(&second).await;
    let until = second.find(next).await.unwrap().held_until.unwrap();
    assert!(until < now.0 + 600_000, "{until} {now:?}");
}

/// A drained switch, and the server that drained it.
async fn drained(home: &Path, before: &str) -> Arc<Drains> {
    std::fs::write(home.join("switch"), before).unwrap();
    let drains = start_with("one", home, SWITCH).await;
    let run = begin(&drains).await;
    is_over(&drains, run).await;
    assert_eq!(std::fs::read_to_string(home.join("switch")).unwrap(), "off");
    drains
}

async fn restore(drains: &Arc<Drains>, mode: Mode) -> Result<(RunId, Vec<String>), String> {
    let wanted = Wanted {
        datacenter: "east".into(),
        direction: Direction::Restore,
        mode,
        by: user(1000),
        reason: String::new(),
        overload: false,
        give_up: Vec::new(),
    };
    drains.begin(wanted).await.map_err(|refused| refused.to_string())
}

fn mentions(warnings: &[String], knob: &str, what: &str) {
    let is_it = |line: &&String| line.starts_with(knob) && line.contains(what);
    assert_eq!(warnings.iter().filter(is_it).count(), 1, "{warnings:#?}");
}

#[tokio::test]
async fn an_original_that_cannot_be_read_is_the_matter_of_its_knob_alone() {
    let home = tempfile::tempdir().unwrap();
    let drains = drained(home.path(), "on").await;
    let sql = "INSERT INTO originals VALUES ('west', 'files:west', 'garbage', 1)";
    tamper(home.path(), sql.into()).await;
    drains.plan("east", Direction::Drain, Turn::Run).await.unwrap();
    let (run, warnings) = restore(&drains, Mode::Drill).await.unwrap();
    is_over(&drains, run).await;
    assert_eq!(std::fs::read_to_string(home.path().join("switch")).unwrap(), "on");
    mentions(&warnings, "files:west", "cannot be read");
}

#[tokio::test]
async fn a_tampered_original_gives_way_to_the_record_of_the_drain() {
    let off = serde_json::json!(Value::Text("off".into())).to_string();
    for (json, why) in [(off.as_str(), "recorded that it was"), ("garbage", "cannot be read")] {
        let home = tempfile::tempdir().unwrap();
        let drains = drained(home.path(), "on").await;
        tamper(home.path(), format!("UPDATE originals SET json = '{json}'")).await;
        let (run, warnings) = restore(&drains, Mode::Drill).await.unwrap();
        is_over(&drains, run).await;
        assert_eq!(std::fs::read_to_string(home.path().join("switch")).unwrap(), "on", "{json}");
        mentions(&warnings, "files:switch", why);
    }
}

#[tokio::test]
async fn a_restore_that_brings_nothing_back_says_so() {
    let home = tempfile::tempdir().unwrap();
    let drains = drained(home.path(), "off").await;
    let (run, warnings) = restore(&drains, Mode::Drill).await.unwrap();
    is_over(&drains, run).await;
    mentions(&warnings, "files:switch", "brings nothing back");
}

#[tokio::test]
async fn an_original_that_nothing_says_refuses_a_drill_and_no_disaster() {
    let home = tempfile::tempdir().unwrap();
    let drains = drained(home.path(), "on").await;
    tamper(home.path(), "UPDATE originals SET json = 'garbage'".into()).await;
    tamper(home.path(), "DELETE FROM records WHERE run = 1 AND json LIKE '%found%'".into()).await;
    let refused = restore(&drains, Mode::Drill).await.unwrap_err();
    assert!(refused.contains("files:switch") && refused.contains("cannot be read"), "{refused}");
    let (_, warnings) = restore(&drains, Mode::Disaster).await.unwrap();
    mentions(&warnings, "files:switch", "cannot be read");
}
