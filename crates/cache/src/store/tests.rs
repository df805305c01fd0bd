//! What a store promises, against a model that forgets nothing.

use std::collections::HashMap;

use proptest::prelude::*;

use super::trace::{Zipf, mix};
use super::*;

/// A value that knows its key; of two with the same key one is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    name: u64,
    version: u64,
}

fn is(name: u64) -> impl Fn(&Answer) -> bool {
    move |answer| answer.name == name
}

fn insert(store: &mut Store<Answer>, name: u64, bytes: usize) -> Insert {
    store.insert(mix(name), Answer { name, version: 0 }, bytes, is(name))
}

/// Asks, and inserts on a miss, as a cache does.
fn ask(store: &mut Store<Answer>, name: u64) -> bool {
    let hit = store.get(mix(name), is(name)).is_some();
    if !hit {
        insert(store, name, 1);
    }
    hit
}

fn holds(store: &Store<Answer>, name: u64) -> bool {
    store.peek(mix(name), is(name)).is_some()
}

fn of_entries(entries: usize) -> Store<Answer> {
    Store::new(Limits { entries, bytes: usize::MAX })
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u64),
    Insert(u64, usize),
    Remove(u64),
    Retain(u64),
    Sweep(usize, usize, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let name = 0..60_u64;
    prop_oneof![
        8 => name.clone().prop_map(Step::Get),
        8 => (name.clone(), 0..40_usize).prop_map(|(name, bytes)| Step::Insert(name, bytes)),
        2 => name.clone().prop_map(Step::Remove),
        1 => (2..9_u64).prop_map(Step::Retain),
        1 => (0..60_usize, 0..20_usize, 2..9_u64).prop_map(|(from, count, n)| Step::Sweep(from, count, n)),
    ]
}

/// A store beside a model that says what each name's last value is.
struct Pair {
    store: Store<Answer>,
    model: HashMap<u64, Answer>,
    /// Names share hashes, this many of them each.
    sharing: u64,
    version: u64,
}

impl Pair {
    fn hash(&self, name: u64) -> u64 {
        mix(name / self.sharing)
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Get(name) => {
                let found = self.store.get(self.hash(name), is(name)).copied();
                assert_eq!(found, self.model.get(&name).copied());
            }
            Step::Insert(name, bytes) => self.insert(name, bytes),
            Step::Remove(name) => {
                let removed = self.store.remove(self.hash(name), is(name));
                assert_eq!(removed, self.model.remove(&name));
            }
            Step::Retain(n) => {
                let before = self.model.len();
                self.model.retain(|name, _| name % n != 0);
                let removed = self.store.retain(|answer| answer.name % n != 0);
                assert_eq!(removed, before - self.model.len());
            }
            Step::Sweep(from, count, n) => {
                let (removed, next) = self.store.sweep(from, count, |answer| answer.name % n != 0);
                assert!(removed <= count && next.is_none_or(|next| next == from + count));
                let before = self.model.len();
                self.forget_the_missing();
                assert_eq!(removed, before - self.model.len());
            }
        }
        self.store.assert_consistent();
        assert_eq!(self.store.len(), self.model.len());
        assert!(self.store.iter().all(|(_, answer)| self.model[&answer.name] == *answer));
        assert_eq!(self.store.hottest().count(), self.store.len());
    }

    fn insert(&mut self, name: u64, bytes: usize) {
        self.version += 1;
        let answer = Answer { name, version: self.version };
        let evicted = self.store.evicted();
        let outcome = self.store.insert(self.hash(name), answer, bytes, is(name));
        let known = self.model.insert(name, answer).is_some();
        let is_heavy = bytes > self.store.limits.bytes / VALUE_SHARE;
        match outcome {
            Insert::Refused => {
                assert!(is_heavy);
                self.model.remove(&name);
            }
            Insert::Replaced => assert!(known && !is_heavy),
            Insert::Added => assert!(!known && !is_heavy),
        }
        let found = self.store.peek(self.hash(name), is(name)).copied();
        assert_eq!(found, self.model.get(&name).copied(), "what just came is there");
        let before = self.model.len();
        self.forget_the_missing();
        assert_eq!((before - self.model.len()) as u64, self.store.evicted() - evicted);
    }

    /// Forgets what the store evicted or swept: that is its right.
    fn forget_the_missing(&mut self) {
        let (store, sharing) = (&self.store, self.sharing);
        self.model.retain(|name, _| store.peek(mix(name / sharing), is(*name)).is_some());
    }
}

proptest! {
    #[test]
    fn every_value_found_is_the_last_inserted_and_bounds_hold(
        entries in 1..50_usize,
        bytes in 0..1000_usize,
        sharing in 1..9_u64,
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        let store = Store::new(Limits { entries, bytes });
        let mut pair = Pair { store, model: HashMap::new(), sharing, version: 0 };
        for step in steps {
            pair.apply(step);
        }
    }
}

#[test]
fn nothing_is_evicted_while_there_is_room() {
    let mut store = of_entries(5000);
    for name in 0..5000 {
        assert_eq!(insert(&mut store, name, 1), Insert::Added);
    }
    assert_eq!((store.len(), store.bytes(), store.evicted()), (5000, 5000, 0));
    assert!((0..5000).all(|name| holds(&store, name)));
    store.assert_consistent();
}

#[test]
fn a_store_without_room_refuses_everything() {
    let mut store = Store::new(Limits { entries: 0, bytes: 100 });
    assert_eq!(insert(&mut store, 1, 1), Insert::Refused);
    let mut store = Store::new(Limits { entries: 100, bytes: 0 });
    assert_eq!(insert(&mut store, 1, 1), Insert::Refused);
    assert!(store.is_empty());
}

#[test]
fn a_value_above_an_eighth_is_refused_and_takes_its_forerunner_along() {
    let mut store = Store::new(Limits { entries: 100, bytes: 800 });
    assert_eq!(insert(&mut store, 1, 100), Insert::Added);
    assert_eq!(insert(&mut store, 2, 101), Insert::Refused);
    assert!(holds(&store, 1));
    assert_eq!(insert(&mut store, 1, 101), Insert::Refused);
    assert!(!holds(&store, 1), "it was outdated");
    assert_eq!((store.len(), store.bytes(), store.evicted()), (0, 0, 0));
}

#[test]
fn heavy_values_asked_for_often_do_not_push_out_many_light_ones() {
    let mut store = Store::new(Limits { entries: 10_000, bytes: 1000 });
    for _ in 0..3 {
        for name in 0..880 {
            ask(&mut store, name);
        }
    }
    for round in 0..10 {
        for heavy in 0..40 {
            let name = 10_000 + heavy;
            if store.get(mix(name), is(name)).is_none() {
                insert(&mut store, name, 100);
            }
        }
        let light = (0..880).filter(|name| holds(&store, *name)).count();
        assert!(light >= 800, "{light} in round {round}");
        store.assert_consistent();
    }
}

#[test]
fn a_scan_leaves_protected_values_alone() {
    let mut store = of_entries(1000);
    for _ in 0..3 {
        for name in 0..600 {
            ask(&mut store, name);
        }
    }
    assert!(store.protected.len > 500, "{}", store.protected.len);
    for name in 1000..101_000 {
        assert!(!ask(&mut store, name));
    }
    let left = (0..600).filter(|name| holds(&store, *name)).count();
    assert!(left >= 590, "{left}");
    store.assert_consistent();
}

#[test]
fn names_of_yesterday_make_way_for_those_of_today() {
    let mut store = of_entries(1000);
    let hits_of_day = |store: &mut Store<Answer>, day: u64| {
        let names = Zipf::new(10_000, 1.0, day).take(100_000);
        let hits = names.map(|name| ask(store, day * 1_000_000 + name));
        hits.skip(50_000).filter(|hit| *hit).count()
    };
    let yesterday = hits_of_day(&mut store, 1);
    let today = hits_of_day(&mut store, 2);
    assert!(today.abs_diff(yesterday) < 500, "{yesterday}, then {today} of 50,000");
}

#[test]
fn peeking_neither_counts_nor_touches() {
    let mut store = of_entries(10);
    insert(&mut store, 1, 1);
    insert(&mut store, 2, 1);
    for _ in 0..5 {
        assert!(holds(&store, 1));
    }
    assert_eq!(store.frequency(mix(1)), 0);
    assert_eq!(store.protected.len, 0);
    store.get(mix(1), is(1));
    assert_eq!((store.frequency(mix(1)), store.protected.len), (1, 1));
}

#[test]
fn the_hottest_come_first() {
    let mut store = of_entries(1000);
    let mut names = Zipf::new(10_000, 1.0, 3);
    for _ in 0..100_000 {
        let name = names.next().unwrap();
        ask(&mut store, name);
    }
    let hottest: Vec<u64> = store.hottest().map(|(_, answer)| answer.name).collect();
    assert_eq!(hottest.len(), store.len());
    let found = (0..10).filter(|name| hottest[..100].contains(name)).count();
    assert_eq!(found, 10, "{:?}", &hottest[..100]);
}

#[test]
fn a_sweep_in_steps_sees_everything_once() {
    let mut store = of_entries(1000);
    for name in 0..1000 {
        insert(&mut store, name, 1);
    }
    for name in 0..100 {
        store.remove(mix(name), is(name));
    }
    let (mut visited, mut removed, mut cursor) = (0, 0, Some(0));
    while let Some(from) = cursor {
        let step = store.sweep(from, 64, |answer| {
            visited += 1;
            answer.name % 2 == 0
        });
        removed += step.0;
        cursor = step.1;
    }
    assert_eq!((visited, removed, store.len()), (900, 450, 450));
    assert_eq!(store.sweep(5000, 64, |_| true), (0, None), "behind the end");
    store.assert_consistent();
}

#[test]
fn a_store_for_millions_starts_small() {
    let store = Store::<Answer>::new(Limits { entries: usize::MAX, bytes: usize::MAX });
    assert_eq!(store.slab.len(), 0);
    assert_eq!(store.limits.entries, ENTRIES_MAX);
}

#[test]
fn what_is_printed_of_a_store_has_no_values() {
    let mut store = of_entries(10);
    insert(&mut store, 4711, 5);
    let text = format!("{store:?}");
    assert!(
        text.contains("len: 1") && text.contains("bytes: 5") && !text.contains("4711"),
        "{text}"
    );
}
