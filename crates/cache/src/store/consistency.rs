//! Says what is wrong with a store from the inside, for tests.

use super::slab::{List, Part};
use super::{Limits, Store};

impl<V> Store<V> {
    /// Panics if the bounds do not hold, or slab, index and lists disagree.
    pub(crate) fn assert_consistent(&self) {
        if let Err(problem) = self.check() {
            panic!("{problem}");
        }
    }

    /// The first problem found.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_list("window", Part::Window, &self.window)?;
        self.check_list("probation", Part::Probation, &self.probation)?;
        self.check_list("protected", Part::Protected, &self.protected)?;
        self.check_bounds()?;
        let (places, used) = (self.slab.len(), self.slab.iter().count());
        ensure(used == self.len(), || format!("{used} values, {} in lists", self.len()))?;
        let free = self.slab.free_places();
        ensure(free.len() + used == places, || format!("{} free of {places}", free.len()))?;
        let taken = free.iter().find(|at| self.slab.node(**at).value.is_some());
        ensure(taken.is_none(), || format!("{taken:?} is free and has a value"))?;
        self.index.check(&self.slab)
    }

    fn check_list(&self, name: &str, part: Part, list: &List) -> Result<(), String> {
        let places = self.slab.len();
        let forward: Vec<u32> =
            self.slab.newest_first(list).map(|(at, _)| at).take(places + 1).collect();
        let mut backward: Vec<u32> =
            self.slab.oldest_first(list).map(|(at, _)| at).take(places + 1).collect();
        backward.reverse();
        ensure(forward == backward, || format!("{name} differs by direction"))?;
        ensure(forward.len() == list.len, || format!("{name}: {} of {}", forward.len(), list.len))?;
        let nodes = || forward.iter().map(|at| self.slab.node(*at));
        let bytes: usize = nodes().map(|node| node.bytes as usize).sum();
        ensure(bytes == list.bytes, || format!("{name}: {bytes} octets, not {}", list.bytes))?;
        ensure(nodes().all(|node| node.part == part), || format!("a stranger in {name}"))?;
        ensure(nodes().all(|node| node.value.is_some()), || format!("nothing in {name}"))
    }

    fn check_bounds(&self) -> Result<(), String> {
        let within = |limits: &Limits, len, bytes| len <= limits.entries && bytes <= limits.bytes;
        ensure(within(&self.limits, self.len(), self.bytes()), || {
            format!("{} values of {} octets exceed {:?}", self.len(), self.bytes(), self.limits)
        })?;
        let List { len, bytes, .. } = self.window;
        ensure(len <= 1 || within(&self.window_limits, len, bytes), || {
            format!("a window of {len} values, {bytes} octets")
        })?;
        let List { len, bytes, .. } = self.protected;
        ensure(within(&self.protected_limits, len, bytes), || {
            format!("{len} values protected, {bytes} octets")
        })
    }
}

pub(super) fn ensure(is_so: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(problem()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plant = fn(&mut Store<u64>);

    fn filled() -> Store<u64> {
        let mut store = Store::new(Limits { entries: 1000, bytes: 100_000 });
        for name in 0..60 {
            store.insert(name, name, 10, |_| false);
            store.get(name / 2, |value| *value == name / 2);
        }
        store.remove(3, |_| true);
        store.assert_consistent();
        store
    }

    /// Checkers are trusted after each kind of damage was seen by them.
    #[test]
    fn planted_inconsistencies_are_caught() {
        let plants: [(&str, Plant); 10] = [
            ("differs by direction", |store| store.probation.back = store.probation.front),
            ("probation: ", |store| store.probation.len += 1),
            ("octets, not", |store| store.window.bytes -= 1),
            ("a stranger in", |store| {
                store.slab.node_mut(store.window.front).part = Part::Protected
            }),
            ("nothing in", |store| store.slab.node_mut(store.protected.front).value = None),
            ("exceed", |store| store.limits.entries = 20),
            ("protected, ", |store| store.protected_limits.bytes = 10),
            ("free of", |store| store.slab.forget_free_places()),
            ("index", |store| store.slab.node_mut(store.window.front).hash ^= 1),
            ("index", |store| store.index.remove(&mut store.slab, store.window.front)),
        ];
        for (expected, plant) in plants {
            let mut store = filled();
            plant(&mut store);
            let problem = store.check().unwrap_err();
            assert!(problem.contains(expected), "{expected}: {problem}");
        }
    }
}
