//! Whether this process may still write for a run: asked before every effect.
//!
//! Between the moment when an effect is on the disk and the moment when its
//! driver writes, the process may be stopped (SIGSTOP, a paused or moved virtual
//! machine, a suspended host), and another may have taken the run over when it
//! goes on. So right before every change that a driver makes ([`drivers::Permit`])
//! the lease is looked up in the store, and renewed first if that was not done
//! lately. If the answer took longer than `GAP_MAX_MS`, nobody knows what happened
//! meanwhile, and it is asked again.
//!
//! Time is that of `CLOCK_BOOTTIME`: unlike the clocks of programs it counts a
//! suspended host. What is left is a stop between the last look at that clock
//! and the driver's own system call: there the fences of the target decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drivers::{Error, Permit};
use rustix::time::{ClockId, clock_gettime};
use store::{Lease, Store};
use tokio::time::sleep;

use super::clock::LeaseClock;
#[cfg(test)]
use super::tests::Mutation;

/// How long a lease lasts, in milliseconds.
pub const LEASE_MS: u64 = 15_000;
/// How long after it was renewed a lease is good for an effect. The rest of its
/// time is for the driver, and for clocks of other hosts that are ahead.
const GOOD_FOR_MS: u64 = 7_000;
/// How long a look at the store may take. Longer ones say nothing about now.
const GAP_MAX_MS: u64 = 2_000;
/// How old a decision may be when its effect begins.
const DECISION_AGE_MAX_MS: u64 = 5_000;
/// How long to wait before a store is asked again that does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Somebody else has the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// The time that a run is this process's. Clones are one.
#[derive(Clone, Debug)]
pub struct Tenure {
    pub lease: Lease,
    store: Arc<Store>,
    clock: LeaseClock,
    /// When it was last renewed, on the clock that never stops.
    renewed: Arc<AtomicU64>,
}

impl Tenure {
    /// Of a lease that was just taken.
    pub fn new(lease: Lease, store: Arc<Store>, clock: LeaseClock) -> Tenure {
        // Not known how just: the first effect renews it.
        Tenure { lease, store, clock, renewed: Arc::default() }
    }

    /// Says to the store that the holder is alive.
    pub async fn renew(&self) -> store::Result<()> {
        // Before: it counts from when it was asked for.
        let asked = boot_ms();
        self.store.renew(&self.lease, self.clock.now(), LEASE_MS).await?;
        self.renewed.fetch_max(asked, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the run is known to be this process's, just now; or until it
    /// is known not to be. As long as the store cannot be asked, nothing is done.
    pub async fn assure(&self) -> Result<(), Lost> {
        #[cfg(test)]
        if Mutation::LeaseUnchecked.is_planted() {
            return Ok(());
        }
        let mut is_told = false;
        loop {
            let asked = boot_ms();
            let age = asked.saturating_sub(self.renewed.load(Ordering::Relaxed));
            let held = match age <= GOOD_FOR_MS {
                true => self.store.check_lease(&self.lease).await,
                false => self.renew().await,
            };
            match held {
                Ok(()) if boot_ms().saturating_sub(asked) <= GAP_MAX_MS => return Ok(()),
                // Asked too long ago to mean anything: the process may have been stopped.
                Ok(()) => {}
                Err(error) if error.is_deposed() => return Err(Lost),
                // Over: whoever ended it was not this process.
                Err(store::Error::Ended { .. }) => return Err(Lost),
                Err(error) => {
                    if !is_told {
                        tracing::warn!(run = %self.lease.run, "an effect waits for its lease: {error}");
                        is_told = true;
                    }
                    sleep(ASK_AGAIN).await;
                }
            }
        }
    }
}

impl Tenure {
    /// What drivers ask before they change something that was decided at `decided`, or
    /// before they go on with it. A full disk, a store that does not answer or a process
    /// that was stopped may come between: what was seen before that says nothing any
    /// more, and the run decides anew.
    ///
    /// What was read again since (`still_holds`) is as good as decided then.
    pub fn permit(&self, decided: u64) -> Permit {
        let (own, last) = (self.clone(), Arc::new(AtomicU64::new(decided)));
        Permit::new(move || {
            let (own, last) = (own.clone(), last.clone());
            async move {
                own.assure().await.map_err(|Lost| {
                    let run = own.lease.run;
                    Error::Refused(format!("run {run} is driven by another process now"))
                })?;
                #[cfg(test)]
                if Mutation::LeaseUnchecked.is_planted() {
                    return Ok(());
                }
                let now = boot_ms();
                let gap = now.saturating_sub(last.swap(now, Ordering::Relaxed));
                if gap <= DECISION_AGE_MAX_MS {
                    return Ok(());
                }
                Err(too_late(gap))
            }
        })
    }
}

/// Whether what was decided then may still be done.
pub fn is_recent(decided: u64) -> Result<(), Error> {
    let gap = boot_ms().saturating_sub(decided);
    if gap <= DECISION_AGE_MAX_MS { Ok(()) } else { Err(too_late(gap)) }
}

fn too_late(gap_ms: u64) -> Error {
    let secs = gap_ms as f64 / 1000.0;
    Error::Transient(format!(
        "not done: {secs:.1} s passed since it was decided, and much may have changed; it is \
         decided anew"
    ))
}

/// Milliseconds since the host was started, suspended or not.
pub fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
