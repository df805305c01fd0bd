//! A knob is claimed by one task of one run at a time.

mod common;

use common::*;
use store::{Claim, Claimed, Error, Lease, Store};

fn knobs(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn claim(store: &Store, lease: &Lease, task: &str, names: &[&str]) -> Option<Claim> {
    match store.claim(lease, task, &knobs(names)).await.unwrap() {
        Claimed::Granted { .. } => None,
        Claimed::InUse(claim) => Some(claim),
    }
}

async fn two_runs(store: &Store) -> (Lease, Lease) {
    let first = held_run(store).await;
    let second = new_run(store, "dc2").await;
    (first, store.lease(second, "one", 0, TTL_MS).await.unwrap())
}

#[tokio::test]
async fn a_knob_is_given_to_one_task_of_one_run() {
    let (_folder, store) = new_store().await;
    let (first, second) = two_runs(&store).await;
    assert_eq!(claim(&store, &first, "orders", &["db:writes", "db:a"]).await, None);
    assert_eq!(claim(&store, &first, "orders", &["db:writes"]).await, None, "it has it");
    let knob = "db:writes".to_owned();
    let in_the_way = Some(Claim { knob, run: first.run, task: "orders".into() });
    assert_eq!(claim(&store, &first, "users", &["db:b", "db:writes"]).await, in_the_way);
    assert_eq!(claim(&store, &second, "orders", &["db:writes"]).await, in_the_way);
    assert_eq!(claim(&store, &second, "orders", &["db:b"]).await, None, "all or nothing");
}

#[tokio::test]
async fn claims_are_given_back_by_name_and_with_the_run() {
    let (_folder, store) = new_store().await;
    let (first, second) = two_runs(&store).await;
    assert_eq!(claim(&store, &first, "orders", &["db:a"]).await, None);
    assert_eq!(claim(&store, &first, "users", &["db:b"]).await, None);
    store.keep_claims(&first, &knobs(&["users"])).await.unwrap();
    assert_eq!(claim(&store, &second, "x", &["db:a"]).await, None);
    assert!(claim(&store, &second, "x", &["db:b"]).await.is_some());
    store.end_run(&first, "held", 9).await.unwrap();
    assert_eq!(claim(&store, &second, "x", &["db:b"]).await, None);
}

#[tokio::test]
async fn a_claim_outlives_its_process_and_a_deposed_one_claims_nothing() {
    let (_folder, store) = new_store().await;
    let (first, second) = two_runs(&store).await;
    assert_eq!(claim(&store, &first, "orders", &["db:a"]).await, None);
    let next = store.lease(first.run, "two", TTL_MS + 1, TTL_MS).await.unwrap();
    assert!(claim(&store, &second, "x", &["db:a"]).await.is_some(), "the run still has it");
    assert_eq!(claim(&store, &next, "orders", &["db:a"]).await, None);
    let deposed = store.claim(&first, "orders", &knobs(&["db:c"])).await.unwrap_err();
    assert!(matches!(deposed, Error::Deposed { .. }), "{deposed}");
    assert!(store.keep_claims(&first, &[]).await.is_err());
}

#[tokio::test]
async fn the_epoch_of_a_claim_is_newer_than_all_before() {
    let (_folder, store) = new_store().await;
    let (first, second) = two_runs(&store).await;
    let mut newest = second.epoch;
    for (lease, knob) in [(&second, "db:a"), (&first, "db:b"), (&first, "db:b")] {
        let claimed = store.claim(lease, "x", &knobs(&[knob])).await.unwrap();
        let Claimed::Granted { epoch } = claimed else { panic!("{claimed:?}") };
        assert!(epoch > newest);
        newest = epoch;
    }
    assert!(store.lease(first.run, "one", 1, TTL_MS).await.unwrap().epoch > newest);
}
