//! What goes wrong in a server under test, and what is wrong with it.

use std::cell::Cell;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use store::Store;

/// What goes wrong in a server, when a test says so.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// So many times the task that drives a run panics.
    pub panics: Arc<AtomicU32>,
    pub gate: Arc<Gate>,
}

impl Faults {
    pub fn panic_if_told(&self) {
        let took_one = |left: u32| left.checked_sub(1);
        if self.panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, took_one).is_ok() {
            panic!("an injected panic");
        }
    }

    /// Between an effect that is on the disk and what its driver does.
    pub async fn stop_before_effect(&self, store: &Store) {
        if self.gate.is_armed() {
            self.stop(store).await;
        }
    }

    /// Stops the server outside of a transaction. A process that is stopped within
    /// one keeps the store locked, and nobody can take its runs over.
    pub async fn stop(&self, store: &Store) {
        // When this returns nobody else writes, and nobody can before this yields.
        let _ = store.probe(0).await;
        if self.gate.pass() == Passage::Killed {
            pending::<()>().await;
        }
    }
}

/// Where a server stands still with all of its threads, as a process does after
/// SIGSTOP. The server must have one thread: that one is blocked.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GateState {
    #[default]
    Open,
    /// Whoever comes next stops.
    Armed,
    Stopped,
    Killed,
}

/// How somebody got through a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Continued,
    /// The process ends without doing anything more.
    Killed,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: GateState) {
        *self.state() = state;
        self.changed.notify_all();
    }

    /// Stops the server at its next effect.
    pub fn arm(&self) {
        let mut state = self.state();
        if *state == GateState::Open {
            *state = GateState::Armed;
        }
    }

    /// Lets the server continue, or not be stopped.
    pub fn open(&self) {
        self.set(GateState::Open);
    }

    pub fn kill(&self) {
        self.set(GateState::Killed);
    }

    pub fn is_stopped(&self) -> bool {
        *self.state() == GateState::Stopped
    }

    pub fn is_armed(&self) -> bool {
        *self.state() == GateState::Armed
    }

    /// Goes through, at once unless it is armed.
    pub fn pass(&self) -> Passage {
        let mut state = self.state();
        if *state == GateState::Armed {
            *state = GateState::Stopped;
            self.changed.notify_all();
        }
        while *state == GateState::Stopped {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match *state {
            GateState::Killed => Passage::Killed,
            _ => Passage::Continued,
        }
    }
}

/// A bug that is planted in a server, for a checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The lease is not looked up before an effect.
    LeaseUnchecked,
    /// The lock of a name is not looked at.
    LockUnchecked,
    /// A server that was started again does not know that its former self is gone.
    FormerUnknown,
    /// Two looks for open runs at once take the same run up.
    TakenUpTwice,
    /// A panic ends the task that drives a run, and nothing else happens.
    PanicUncaught,
    /// A run whose task panicked is not taken up again.
    PanickedLeftAlone,
    /// Audit entries are not signed.
    Unsigned,
    /// Heads of the audit log are not sent.
    HeadsUnsent,
    /// An audit entry of each step is not written.
    AuditEntryDropped,
    /// All knobs of a drain are put back, a primary and its fence as well.
    EverythingKept,
    /// No knob is put back.
    NothingKept,
}

thread_local! {
    static PLANTED: Cell<Option<Mutation>> = const { Cell::new(None) };
}

impl Mutation {
    /// Plants it in the server whose only thread this is.
    pub fn plant(self) {
        PLANTED.set(Some(self));
    }

    pub fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }
}
