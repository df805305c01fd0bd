//! A store is a list of records and one right to write, whatever is tried on it.

mod common;

use common::*;
use proptest::prelude::*;
use store::{Entry, Lease, Store};

#[derive(Clone, Debug)]
enum Attempt {
    /// Records from a distance off the next one on.
    Append {
        holder: usize,
        off: i64,
        len: u64,
        hole: bool,
    },
    Lease {
        holder: usize,
        later: u64,
    },
    Renew {
        holder: usize,
    },
    Release {
        holder: usize,
    },
    /// Closed and opened again.
    Reopen,
    Read {
        from: u64,
    },
}

const HOLDERS: usize = 3;

fn attempt() -> impl Strategy<Value = Attempt> {
    let holder = 0..HOLDERS;
    prop_oneof![
        8 => (holder.clone(), prop_oneof![8 => Just(0), 1 => -2i64..3], 0u64..6, prop::bool::weighted(0.1))
            .prop_map(|(holder, off, len, hole)| Attempt::Append { holder, off, len, hole }),
        3 => (holder.clone(), prop_oneof![Just(1), Just(TTL_MS)])
            .prop_map(|(holder, later)| Attempt::Lease { holder, later }),
        1 => holder.clone().prop_map(|holder| Attempt::Renew { holder }),
        1 => holder.prop_map(|holder| Attempt::Release { holder }),
        1 => Just(Attempt::Reopen),
        2 => (0u64..20).prop_map(|from| Attempt::Read { from }),
    ]
}

/// What must be so, without a database.
#[derive(Default)]
struct Model {
    records: Vec<Entry>,
    /// Who holds the run under which epoch, and until when.
    held: Option<(usize, u64, u64)>,
    now: u64,
    newest: u64,
}

impl Model {
    fn is_holder(&self, lease: &Lease) -> bool {
        self.held.is_some_and(|(_, epoch, _)| epoch == lease.epoch)
    }
}

async fn check(attempts: Vec<Attempt>) {
    let (folder, mut store) = new_store().await;
    let run = new_run(&store, "dc1").await;
    let mut model = Model::default();
    let mut leases: [Option<Lease>; HOLDERS] = [const { None }; HOLDERS];
    for attempt in attempts {
        match attempt {
            Attempt::Append { holder, off, len, hole } => {
                let Some(lease) = &leases[holder] else { continue };
                let next = model.records.len() as u64;
                let first = next.saturating_add_signed(off);
                let mut batch = entries(first..first + len);
                if hole && len > 1 {
                    batch.remove(0);
                }
                // What is left of one that begins too early may be the next.
                let is_right = (next..).zip(&batch).all(|(seq, entry)| entry.seq == seq);
                let is_kept = store.append(lease, &batch).await.is_ok();
                assert_eq!(is_kept, is_right && model.is_holder(lease), "{batch:?}");
                if is_kept {
                    model.records.extend(batch);
                }
            }
            Attempt::Lease { holder, later } => {
                model.now += later;
                let is_free =
                    model.held.is_none_or(|(by, _, until)| by == holder || until <= model.now);
                let name = holder.to_string();
                let taken = store.lease(run, &name, model.now, TTL_MS).await;
                assert_eq!(taken.is_ok(), is_free);
                if let Ok(lease) = taken {
                    assert!(lease.epoch > model.newest);
                    model.newest = lease.epoch;
                    model.held = Some((holder, lease.epoch, model.now + TTL_MS));
                    leases[holder] = Some(lease);
                }
            }
            Attempt::Renew { holder } => {
                let Some(lease) = &leases[holder] else { continue };
                let renewed = store.renew(lease, model.now, TTL_MS).await;
                assert_eq!(renewed.is_ok(), model.is_holder(lease));
                if renewed.is_ok() {
                    model.held = Some((holder, lease.epoch, model.now + TTL_MS));
                }
            }
            Attempt::Release { holder } => {
                let Some(lease) = &leases[holder] else { continue };
                store.release(lease.clone()).await.unwrap();
                if model.is_holder(lease) {
                    model.held = None;
                }
            }
            Attempt::Reopen => {
                store.close().await.unwrap();
                store = Store::open(path(&folder)).await.unwrap();
            }
            Attempt::Read { from } => {
                let read = store.records(run, from).all().await.unwrap();
                assert_eq!(read, model.records[model.records.len().min(from as usize)..]);
            }
        }
    }
    assert_eq!(store.records(run, 0).all().await.unwrap(), model.records);
    assert_eq!(store.run(run).await.unwrap().records, model.records.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn appends_and_reads_are_those_of_a_list(attempts in prop::collection::vec(attempt(), 1..40)) {
        tokio::runtime::Runtime::new().unwrap().block_on(check(attempts));
    }
}
