//! The state that answers come from, handed to the threads that answer.
//!
//! A [`Snapshot`] never changes. A change makes a new one and swaps it in;
//! every answering thread looks for a newer one before each batch and keeps
//! the one it has until then, so no answer waits for a change and no change
//! waits for an answer. Old snapshots are freed here, on the side of the
//! writer: freeing a large zone must not happen between two answers.

use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::{ArcSwap, Cache};
use authority::{Catalog, NameHasher, Settings};
use base::Generation;

use crate::fleet::Served;

/// Everything an answer depends on besides the question.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub generation: Generation,
    pub catalog: Catalog,
    pub settings: Settings,
    /// The virtual name servers that this host serves; to others it is silent.
    pub served: Served,
}

/// The current snapshot, and those that may still be in use.
#[derive(Debug)]
pub struct Publisher {
    current: Arc<ArcSwap<Snapshot>>,
    retired: Mutex<Vec<Arc<Snapshot>>>,
    hasher: NameHasher,
    /// Held by whoever changes the snapshot, from reading to publishing.
    writing: Mutex<()>,
}

/// A thread's own view of the current snapshot.
pub type View = Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>;

impl Publisher {
    /// Starts without zones; names will be hashed by `hasher`.
    pub fn new(hasher: NameHasher, settings: Settings, served: Served) -> Self {
        let snapshot = Snapshot {
            generation: Generation::default(),
            catalog: Catalog::default(),
            settings,
            served,
        };
        Publisher {
            current: Arc::new(ArcSwap::from_pointee(snapshot)),
            retired: Mutex::default(),
            hasher,
            writing: Mutex::default(),
        }
    }

    /// The keys of the names in every snapshot.
    pub fn hasher(&self) -> &NameHasher {
        &self.hasher
    }

    /// The snapshot that answers come from now.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// A thread's own view, which finds newer snapshots by one look.
    pub fn view(&self) -> View {
        Cache::new(self.current.clone())
    }

    /// Makes the next snapshot from the current one. Writers take turns.
    pub fn update(&self, change: impl FnOnce(&Snapshot) -> Snapshot) {
        let _turn = lock(&self.writing);
        let old = self.current();
        let mut next = change(&old);
        next.generation = old.generation.next();
        self.current.store(Arc::new(next));
        lock(&self.retired).push(old);
        self.sweep();
    }

    /// Frees the snapshots that no thread holds any more.
    pub fn sweep(&self) {
        let mut retired = lock(&self.retired);
        let (unused, used) =
            retired.drain(..).partition::<Vec<_>, _>(|old| Arc::strong_count(old) == 1);
        *retired = used;
        drop(retired);
        drop(unused);
    }
}

/// What a poisoned lock guards here is whole: nothing panics half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
