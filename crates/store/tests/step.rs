//! A step of a run is kept whole or not at all.

mod common;

use common::*;
use store::{Deed, Error, NewRun, Performance, RunId, Step, Store, Verdict};

fn new(datacenter: &str) -> NewRun<'_> {
    NewRun { datacenter, direction: "drain", plan: "{}", actor: "ada", reason: "a drill", at: 1 }
}

fn deed(action: &str) -> Deed {
    Deed {
        at: 1,
        actor: "ada".into(),
        action: action.into(),
        reason: "why not".into(),
        json: "{}".into(),
    }
}

/// Everything that a step can leave behind.
fn whole(run: RunId, first_seq: u64) -> Step {
    let performance = Performance {
        run,
        at: 5,
        duration_ms: 700,
        steps: 3,
        step: Some(0.5),
        outcome: "done".into(),
    };
    Step {
        entries: entries(first_seq..first_seq + 2),
        deeds: vec![deed("pause all")],
        originals: vec![("edge:web".into(), "0.8".into())],
        drained: Some((0.5, 5)),
        performances: vec![("web.shift".into(), performance)],
        forgets_originals: Vec::new(),
        fences: Vec::new(),
        ended: Some(("completed".into(), 6)),
    }
}

/// How much of everything there is: records, audit entries, originals, shares,
/// performances; and whether the run has ended.
async fn found(store: &Store, run: RunId) -> (u64, u64, usize, usize, usize, bool) {
    // Nobody opened the run, as far as can be told here.
    let (Verdict::Verified(head) | Verdict::Mismatched { proof: head, .. }) =
        store.verify_audit(&store::Trust::default(), no_author).await.unwrap()
    else {
        panic!("the audit log is broken")
    };
    (
        store.run(run).await.unwrap().records,
        head.head.entries,
        store.originals("dc1").await.unwrap().len(),
        store.drained().await.unwrap().len(),
        store.history("web.shift", "drain", 10).await.unwrap().len(),
        store.run(run).await.unwrap().outcome.is_some(),
    )
}

#[tokio::test]
async fn a_run_begins_with_its_first_step() {
    let (_folder, store) = new_store().await;
    let first = Step { entries: entries(0..3), deeds: vec![deed("drain dc1")], ..Step::default() };
    let lease = store.begin_run(new("dc1"), "one", TTL_MS, &first).await.unwrap();
    assert_eq!(found(&store, lease.run).await, (3, 1, 0, 0, 0, false));
    let run = store.run(lease.run).await.unwrap();
    assert_eq!((run.holder.as_deref(), run.epoch), (Some("one"), lease.epoch));
    assert_eq!(store.audit(0, 10).await.unwrap()[0].run, Some(lease.run));
    // Nothing of a run that may not begin is left.
    let error = store.begin_run(new("dc1"), "one", TTL_MS, &first).await.unwrap_err();
    assert!(matches!(error, Error::Open { .. }), "{error}");
    let wrong = Step { entries: entries(7..8), ..first };
    let error = store.begin_run(new("dc2"), "one", TTL_MS, &wrong).await.unwrap_err();
    assert!(matches!(error, Error::OutOfOrder { .. }), "{error}");
    assert_eq!(store.audit_head().await.unwrap().entries, 1);
    assert_eq!(store.runs(store::Filter::default(), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_step_is_kept_whole() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    store.keep(&lease, &whole(lease.run, 0)).await.unwrap();
    assert_eq!(found(&store, lease.run).await, (2, 1, 1, 1, 1, true));
    let error = store.keep(&lease, &Step::default()).await.unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error}");
}

#[tokio::test]
async fn of_a_step_that_is_refused_nothing_is_kept() {
    let (_folder, store) = new_store().await;
    let lease = held_run(&store).await;
    let refused = [
        whole(lease.run, 1),
        whole(RunId(lease.run.0 + 1), 0),
        Step { drained: Some((1.5, 0)), ..whole(lease.run, 0) },
        Step { ended: Some(("x".repeat(2 << 20), 0)), ..whole(lease.run, 0) },
    ];
    for step in &refused {
        store.keep(&lease, step).await.unwrap_err();
        assert_eq!(found(&store, lease.run).await, (0, 0, 0, 0, 0, false));
    }
    let newer = store.seize(lease.run, "two", 0, TTL_MS).await.unwrap();
    let error = store.keep(&lease, &whole(lease.run, 0)).await.unwrap_err();
    assert!(error.is_deposed(), "{error}");
    assert_eq!(found(&store, lease.run).await, (0, 0, 0, 0, 0, false));
    store.keep(&newer, &whole(lease.run, 0)).await.unwrap();
}
