//! What a store keeps, and whom it refuses.

mod common;

use std::os::unix::fs::PermissionsExt;

use common::*;
use store::{Entry, Error, Filter, Lease, NewRun, Performance, RunId, Store};

#[tokio::test]
async fn records_come_back_as_they_were_kept() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.append(&lease, &entries(0..3)).await.unwrap();
    store.append(&lease, &[]).await.unwrap();
    store.append(&lease, &entries(3..2500)).await.unwrap();
    assert_eq!(store.records(lease.run, 0).all().await.unwrap(), entries(0..2500));
    assert_eq!(store.records(lease.run, 2498).all().await.unwrap(), entries(2498..2500));
    assert_eq!(store.records(lease.run, 2500).all().await.unwrap(), []);
    assert_eq!(store.run(lease.run).await.unwrap().records, 2500);
    assert_eq!(store.plan(lease.run).await.unwrap(), r#"{"tasks":[]}"#);
}

#[tokio::test]
async fn pages_are_bounded_in_size() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    let large: Vec<_> =
        (0..10).map(|seq| Entry { seq, at: 0, json: "x".repeat(1_000_000) }).collect();
    store.append(&lease, &large).await.unwrap();
    let mut pages = store.records(lease.run, 0);
    let mut read = Vec::new();
    while let Some(page) = pages.next_page().await.unwrap() {
        assert!(page.len() <= 5, "{}", page.len());
        read.extend(page);
    }
    assert!(pages.next_page().await.unwrap().is_none());
    assert!(read == large);
}

#[tokio::test]
async fn a_gap_or_a_repetition_is_refused_whole() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.append(&lease, &entries(0..5)).await.unwrap();
    for wrong in [entries(6..8), entries(4..6), entries(0..1), vec![entry(5), entry(7)]] {
        let error = store.append(&lease, &wrong).await.unwrap_err();
        assert!(matches!(error, Error::OutOfOrder { .. }), "{error}");
    }
    assert_eq!(store.records(lease.run, 0).all().await.unwrap(), entries(0..5));
    store.append(&lease, &entries(5..6)).await.unwrap();
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    let long = Entry { json: "x".repeat(store::JSON_LEN_MAX + 1), ..entry(0) };
    let error = store.append(&lease, &[long]).await.unwrap_err();
    assert_eq!(error.to_string(), "a record is 1048577 long; at most 1048576 is kept");
    let late = Entry { at: u64::MAX, ..entry(0) };
    assert!(matches!(store.append(&lease, &[late]).await, Err(Error::TooLarge { .. })));
    let many = entries(0..store::ENTRIES_MAX as u64 + 1);
    assert!(matches!(store.append(&lease, &many).await, Err(Error::TooLarge { .. })));
    assert_eq!(store.run(lease.run).await.unwrap().records, 0);
}

/// A call that is dropped half-way did everything or nothing, and leaves the
/// connection as good as before.
#[tokio::test]
async fn a_call_that_is_given_up_does_no_harm() {
    use futures_util::FutureExt;
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    for polls in 0..60 {
        let next = store.run(lease.run).await.unwrap().records;
        let batch = entries(next..next + 3);
        let mut append = Box::pin(store.append(&lease, &batch));
        for _ in 0..polls {
            if append.as_mut().now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(append);
        // Whatever was under way is over when the next one is.
        store.renew(&lease, 0, TTL_MS).await.unwrap();
        let kept = store.run(lease.run).await.unwrap().records;
        assert!(kept == next || kept == next + 3, "{next} to {kept}");
        store.append(&lease, &entries(kept..kept + 1)).await.unwrap();
    }
    let all = store.records(lease.run, 0).all().await.unwrap();
    assert_eq!(all, entries(0..all.len() as u64));
}

#[tokio::test]
async fn a_second_holder_deposes_the_first() {
    let (folder, store) = new_store().await;
    let first = held_run(&store).await;
    store.append(&first, &entries(0..1)).await.unwrap();

    // Another process, so another set of connections.
    let other = Store::open(path(&folder)).await.unwrap();
    let error = other.lease(first.run, "two", TTL_MS - 1, TTL_MS).await.unwrap_err();
    assert!(matches!(&error, Error::Held { holder, .. } if holder == "one"), "{error}");
    let second = other.lease(first.run, "two", TTL_MS, TTL_MS).await.unwrap();
    assert!(second.epoch > first.epoch);

    let refused = |error: Error| assert!(error.is_deposed(), "{error}");
    refused(store.append(&first, &entries(1..2)).await.unwrap_err());
    refused(store.renew(&first, TTL_MS, TTL_MS).await.unwrap_err());
    refused(store.end_run(&first, "completed", 9).await.unwrap_err());
    refused(store.keep_originals(&first, &[("lb:a", "1")]).await.unwrap_err());
    refused(store.put_drained(&first, 1.0, 9).await.unwrap_err());
    store.release(first).await.unwrap();

    other.append(&second, &entries(1..2)).await.unwrap();
    assert_eq!(store.records(second.run, 0).all().await.unwrap(), entries(0..2));
}

#[tokio::test]
async fn a_lease_that_ends_later_than_one_can_is_taken_over() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    let now = 1_000_000;
    // A clock that is a little ahead is believed.
    store.renew(&lease, now + store::CLOCKS_DIFFER_MAX_MS, TTL_MS).await.unwrap();
    let error = store.lease(lease.run, "two", now, TTL_MS).await.unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error}");
    store.renew(&lease, now + store::CLOCKS_DIFFER_MAX_MS + 1, TTL_MS).await.unwrap();
    store.lease(lease.run, "two", now, TTL_MS).await.unwrap();
    assert!(store.append(&lease, &entries(0..1)).await.unwrap_err().is_deposed());
}

#[tokio::test]
async fn a_lease_that_ran_out_serves_until_somebody_takes_it() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    // Nothing here asks a clock: long after its end, it is still the newest.
    store.append(&lease, &entries(0..1)).await.unwrap();
    store.renew(&lease, 50 * TTL_MS, TTL_MS).await.unwrap();
    assert!(store.lease(lease.run, "two", 50 * TTL_MS, TTL_MS).await.is_err());
    let seized = store.seize(lease.run, "two", 50 * TTL_MS, TTL_MS).await.unwrap();
    assert!(store.append(&lease, &entries(1..2)).await.unwrap_err().is_deposed());
    store.append(&seized, &entries(1..2)).await.unwrap();
}

#[tokio::test]
async fn a_lease_that_was_given_back_is_over() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.release(lease.clone()).await.unwrap();
    let error = store.append(&lease, &entries(0..1)).await.unwrap_err();
    assert!(error.to_string().ends_with("was given back; take a new lease"), "{error}");
    store.lease(lease.run, "two", 1, TTL_MS).await.unwrap();
}

#[tokio::test]
async fn the_same_holder_comes_back_with_a_newer_epoch() {
    let (_folder, store) = new_store().await;
    let before = held_run(&store).await;
    let after = store.lease(before.run, "one", 1, TTL_MS).await.unwrap();
    assert!(after.epoch > before.epoch);
    assert!(store.append(&before, &entries(0..1)).await.unwrap_err().is_deposed());
}

#[tokio::test]
async fn epochs_go_forward_over_all_runs() {
    let (_folder, store) = new_store().await;
    let first = held_run(&store).await;
    let again = store.seize(first.run, "one", 0, TTL_MS).await.unwrap();
    let other = new_run(&store, "dc2").await;
    let other = store.lease(other, "one", 0, TTL_MS).await.unwrap();
    assert!(first.epoch < again.epoch && again.epoch < other.epoch);
}

#[tokio::test]
async fn a_datacenter_has_one_run_at_a_time() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    let again = NewRun {
        datacenter: "dc1",
        direction: "restore",
        plan: "{}",
        actor: "ada",
        reason: "",
        at: 2,
    };
    let error = store.create_run(again).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "run 1 on datacenter \"dc1\" has not ended; end or abort it first"
    );
    store.end_run(&lease, "completed", 5).await.unwrap();
    let next = store.create_run(again).await.unwrap();

    let ids = |runs: Vec<store::Run>| runs.iter().map(|run| run.id).collect::<Vec<_>>();
    let open = Filter { ended: Some(false), ..Filter::default() };
    assert_eq!(ids(store.runs(open, 10).await.unwrap()), [next]);
    let ended = Filter { ended: Some(true), datacenter: Some("dc1"), ..Filter::default() };
    assert_eq!(ids(store.runs(ended, 10).await.unwrap()), [lease.run]);
    let older = Filter { before: Some(next), direction: Some("drain"), ..Filter::default() };
    assert_eq!(ids(store.runs(older, 10).await.unwrap()), [lease.run]);
    assert_eq!(ids(store.runs(Filter::default(), 1).await.unwrap()), [next]);
}

#[tokio::test]
async fn an_ended_run_stays_as_it_is() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.end_run(&lease, "completed", 5).await.unwrap();
    store.end_run(&lease, "completed", 6).await.unwrap();
    let ended = |error: Error| assert!(matches!(error, Error::Ended { .. }), "{error}");
    ended(store.end_run(&lease, "held", 6).await.unwrap_err());
    ended(store.append(&lease, &entries(0..1)).await.unwrap_err());
    ended(store.lease(lease.run, "two", 0, TTL_MS).await.unwrap_err());
    let run = store.run(lease.run).await.unwrap();
    assert_eq!((run.ended_at, run.outcome.as_deref()), (Some(5), Some("completed")));
}

#[tokio::test]
async fn a_run_that_is_not_there_is_said_so() {
    let (_folder, store) = new_store().await;
    let run = RunId(7);
    let lease = Lease { run, epoch: 1, holder: "one".into() };
    let missing = |error: Error| assert!(matches!(error, Error::NoSuchRun(_)), "{error}");
    missing(store.run(run).await.unwrap_err());
    missing(store.plan(run).await.unwrap_err());
    missing(store.records(run, 0).all().await.unwrap_err());
    missing(store.lease(run, "one", 0, TTL_MS).await.unwrap_err());
    missing(store.append(&lease, &entries(0..1)).await.unwrap_err());
}

#[tokio::test]
async fn history_is_kept_once_per_run() {
    let (_folder, store) = new_store().await;
    let mut kept = Vec::new();
    for (datacenter, duration_ms) in [("dc1", 600_000), ("dc2", 61_000), ("dc3", 5)] {
        let run = new_run(&store, datacenter).await;
        let lease = store.lease(run, "one", 0, TTL_MS).await.unwrap();
        let (steps, step, outcome) = (10, Some(0.25), "done".to_owned());
        let went = Performance { run, at: 9, duration_ms, steps, step, outcome };
        let earlier = Performance { duration_ms: 1, step: None, ..went.clone() };
        store.put_history(&lease, "web.shift", "drain", &earlier).await.unwrap();
        store.put_history(&lease, "web.shift", "drain", &went).await.unwrap();
        kept.insert(0, went);
    }
    assert_eq!(store.history("web.shift", "drain", 10).await.unwrap(), kept);
    assert_eq!(store.history("web.shift", "drain", 1).await.unwrap(), kept[..1]);
    assert_eq!(store.history("web.shift", "restore", 10).await.unwrap(), []);
}

#[tokio::test]
async fn the_first_original_stays_until_it_is_dropped() {
    let (_folder, store) = new_store().await;
    let drain = held_run(&store).await;
    store.keep_originals(&drain, &[("lb:web/dc1", "1.0"), ("lb:api/dc1", "0.5")]).await.unwrap();
    store.put_drained(&drain, 0.6, 3).await.unwrap();
    store.end_run(&drain, "held", 4).await.unwrap();

    let again = new_run(&store, "dc1").await;
    let again = store.lease(again, "one", 0, TTL_MS).await.unwrap();
    store.keep_originals(&again, &[("lb:web/dc1", "0.0"), ("lb:db/dc1", "\"rw\"")]).await.unwrap();
    let originals = store.originals("dc1").await.unwrap();
    let found: Vec<_> =
        originals.iter().map(|o| (o.knob.as_str(), o.json.as_str(), o.run.0)).collect();
    assert_eq!(
        found,
        [("lb:api/dc1", "0.5", 1), ("lb:db/dc1", "\"rw\"", 2), ("lb:web/dc1", "1.0", 1)]
    );
    let drained = store.drained().await.unwrap();
    assert_eq!((drained[0].datacenter.as_str(), drained[0].share), ("dc1", 0.6));

    store.drop_originals(&again).await.unwrap();
    store.put_drained(&again, 0.0, 9).await.unwrap();
    assert_eq!(store.originals("dc1").await.unwrap(), []);
    assert_eq!(store.drained().await.unwrap()[0].share, 0.0);
    for wrong in [-0.1, 1.1, f64::NAN] {
        assert!(store.put_drained(&again, wrong, 9).await.is_err());
    }
}

#[tokio::test]
async fn the_file_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(path(&folder), "").unwrap();
    std::fs::set_permissions(path(&folder), std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = Store::open(path(&folder)).await.unwrap();
    held_run(&store).await;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.path());
    }
}

#[tokio::test]
async fn a_file_taken_elsewhere_goes_on_there() {
    let (folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.append(&lease, &entries(0..100)).await.unwrap();
    // Under the writer's feet.
    let live = folder.path().join("live.db");
    store.copy_to(&live).await.unwrap();
    assert!(matches!(store.copy_to(&live).await, Err(Error::Unreachable { .. })));
    assert_eq!(std::fs::metadata(&live).unwrap().permissions().mode() & 0o777, 0o600);
    // And the plain file, after a close.
    store.append(&lease, &entries(100..200)).await.unwrap();
    store.close().await.unwrap();
    assert!(!folder.path().join("drain.db-wal").exists());
    let closed = tempfile::tempdir().unwrap();
    std::fs::copy(path(&folder), path(&closed)).unwrap();

    for (copy, len) in [(live, 100), (path(&closed), 200)] {
        let store = Store::open(&copy).await.unwrap();
        assert_eq!(store.records(lease.run, 0).all().await.unwrap(), entries(0..len));
        let laptop = store.seize(lease.run, "laptop", 0, TTL_MS).await.unwrap();
        store.append(&laptop, &entries(len..len + 1)).await.unwrap();
    }
}

/// Opens the file after some SQL was run on it; what that says.
async fn open_after(sql: &'static str) -> Error {
    use sqlx::ConnectOptions;
    let (folder, store) = new_store().await;
    store.close().await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path(&folder));
    let mut connection = options.foreign_keys(false).connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    drop(connection);
    Store::open(path(&folder)).await.unwrap_err()
}

#[tokio::test]
async fn files_that_are_not_for_us_are_refused() {
    let error = open_after("PRAGMA user_version = 99").await;
    assert!(matches!(error, Error::Newer { found: 99, .. }), "{error}");
    let error = open_after("PRAGMA application_id = 1").await;
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    let error = open_after("INSERT INTO plans VALUES (77, '{}')").await;
    assert!(matches!(error, Error::Damaged { .. }), "{error}");

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(path(&folder), "no database ".repeat(500)).unwrap();
    let error = Store::open(path(&folder)).await.unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    let error = Store::open(folder.path().join("no/such/folder.db")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn damage_is_noticed_and_the_way_out_is_said() {
    let (folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.append(&lease, &entries(0..5000)).await.unwrap();
    store.close().await.unwrap();
    let mut octets = std::fs::read(path(&folder)).unwrap();
    let middle = octets.len() / 2;
    octets[middle..middle + 9000].fill(0xa5);
    std::fs::write(path(&folder), octets).unwrap();
    let error = Store::open(path(&folder)).await.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(".recover"), "{error}");
}

#[tokio::test]
async fn a_run_is_taken_at_once_from_a_holder_that_is_gone_and_from_no_other() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.check_lease(&lease).await.unwrap();
    let refused = store.succeed(lease.run, "gone", "two", 1, TTL_MS).await.unwrap_err();
    assert!(matches!(&refused, Error::Held { holder, .. } if holder == "one"), "{refused}");
    let next = store.succeed(lease.run, "one", "two", 1, TTL_MS).await.unwrap();
    assert!(next.epoch > lease.epoch);
    assert!(store.check_lease(&lease).await.unwrap_err().is_deposed());
    store.check_lease(&next).await.unwrap();
}

#[tokio::test]
async fn a_probe_says_when_nothing_can_be_written_and_when_it_can_again() {
    let (folder, store) = new_store().await;
    store.probe(1).await.unwrap();
    let mut connection = direct(&folder).await;
    sqlx::raw_sql("CREATE TABLE extra (x)").execute(&mut connection).await.unwrap();
    let refused = store.probe(2).await.unwrap_err().to_string();
    assert!(refused.contains("table `extra` was put there"), "{refused}");
    sqlx::raw_sql("DROP TABLE extra").execute(&mut connection).await.unwrap();
    store.probe(3).await.unwrap();
}
