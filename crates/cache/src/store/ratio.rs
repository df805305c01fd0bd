//! How often a store has what is asked for, beside others of the same size.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::trace::{Zipf, mix};
use super::{Limits, Store};

const NAMES: usize = 100_000;
const QUESTIONS: usize = 200_000;

/// The last used first, as simply as it can be said.
struct Lru {
    entries: usize,
    by_age: BTreeMap<u64, u64>,
    ages: HashMap<u64, u64>,
    now: u64,
}

impl Lru {
    fn new(entries: usize) -> Self {
        Lru { entries, by_age: BTreeMap::new(), ages: HashMap::new(), now: 0 }
    }

    fn ask(&mut self, name: u64) -> bool {
        self.now += 1;
        self.by_age.insert(self.now, name);
        let age = self.ages.insert(name, self.now);
        if let Some(age) = age {
            self.by_age.remove(&age);
        } else if self.ages.len() > self.entries {
            let oldest = self.by_age.pop_first().unwrap();
            self.ages.remove(&oldest.1);
        }
        age.is_some()
    }
}

/// Names are hashed the same way every time, so that ratios are the same too.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = mix(self.0 ^ u64::from(*octet));
        }
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = mix(name);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn moka(entries: usize) -> impl FnMut(u64) -> bool {
    let cache = moka::sync::Cache::<u64, (), _>::builder()
        .max_capacity(entries as u64)
        .build_with_hasher(BuildHasherDefault::<Mixer>::default());
    move |name| {
        let hit = cache.get(&name).is_some();
        if !hit {
            cache.insert(name, ());
        }
        // Whatever it does later or elsewhere is done now and here.
        cache.run_pending_tasks();
        hit
    }
}

fn ours(entries: usize) -> impl FnMut(u64) -> bool {
    let mut store = Store::new(Limits { entries, bytes: usize::MAX });
    move |name| {
        let hit = store.get(mix(name), |found| *found == name).is_some();
        if !hit {
            store.insert(mix(name), name, 1, |found| *found == name);
        }
        hit
    }
}

/// Hits in a hundred questions, once the cache is warm.
fn hits_percent(exponent: f64, ask: impl FnMut(u64) -> bool) -> f64 {
    let names = Zipf::new(NAMES, exponent, 1).take(QUESTIONS);
    let hits = names.map(ask).skip(QUESTIONS / 3).filter(|hit| *hit).count();
    hits as f64 * 100.0 / (QUESTIONS - QUESTIONS / 3) as f64
}

fn compare(exponent: f64, entries: usize) {
    let ours = hits_percent(exponent, ours(entries));
    let moka = hits_percent(exponent, moka(entries));
    let mut lru = Lru::new(entries);
    let lru = hits_percent(exponent, |name| lru.ask(name));
    println!("Zipf {exponent}, {entries} entries: ours {ours:.2}, moka {moka:.2}, LRU {lru:.2}");
    assert!(ours > moka - 1.5, "{ours:.2} against moka's {moka:.2}");
    assert!(ours > lru + 2.0, "{ours:.2} against LRU's {lru:.2}");
}

#[test]
fn small_caches_of_evenly_falling_names_are_as_good_as_others() {
    compare(0.9, 500);
}

#[test]
fn larger_caches_of_evenly_falling_names_are_as_good_as_others() {
    compare(0.9, 5000);
}

#[test]
fn small_caches_of_steeply_falling_names_are_as_good_as_others() {
    compare(1.0, 500);
}

#[test]
fn larger_caches_of_steeply_falling_names_are_as_good_as_others() {
    compare(1.0, 5000);
}
