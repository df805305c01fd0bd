//! Fences: numbers that only go forward, so that who was deposed changes
//! nothing any more.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;

use crate::error::{Error, Result};

/// What goes with everything that a run does to the world: the epoch of the
/// executor's lease, and the number of the effect under it. One number, so that
/// a database can keep and compare it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// `None` if the epoch or the number does not fit: there are four thousand
    /// million of each.
    pub fn new(epoch: u64, number: u64) -> Option<Fence> {
        let (epoch, number) = (u32::try_from(epoch).ok()?, u32::try_from(number).ok()?);
        Some(Fence(u64::from(epoch) << 32 | u64::from(number)))
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

/// Knobs whose fence is remembered. More than any plan has.
const KNOBS_MAX: usize = 100_000;

/// The newest fence of every knob, for drivers whose other side cannot keep it.
///
/// It holds off a late write of this process, such as one that a task of a run
/// before the last takeover still had in its hands. It does not hold off another
/// process, and forgets everything when this one ends: there the lease in the
/// store is what counts, which every executor renews before it writes.
#[derive(Debug, Default)]
pub struct Fences {
    newest: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Fence>>>>,
}

/// As long as it lives, nobody else writes to the knob.
#[derive(Debug)]
pub struct Passed {
    _turn: OwnedMutexGuard<Fence>,
}

impl Fences {
    /// Lets a write pass, if its fence is the newest seen or newer, when those
    /// before it are done.
    pub async fn pass(&self, knob: &str, fence: Fence) -> Result<Passed> {
        let turn = {
            let mut newest = self.newest.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if newest.len() >= KNOBS_MAX && !newest.contains_key(knob) {
                let text = format!("more than {KNOBS_MAX} knobs were written; this is not one run");
                return Err(Error::Refused(text));
            }
            newest.entry(knob.to_owned()).or_default().clone()
        };
        let mut turn = turn.lock_owned().await;
        if fence < *turn {
            return Err(Error::Refused(format!(
                "{knob}: fenced off: a write with fence {} was seen, this one has {fence}; \
                 another executor has taken over",
                *turn
            )));
        }
        // Before the write: even one that fails makes older ones worthless.
        *turn = fence;
        Ok(Passed { _turn: turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(epoch: u64, number: u64) -> Fence {
        Fence::new(epoch, number).unwrap()
    }

    #[test]
    fn the_epoch_counts_before_the_number() {
        assert!(fence(1, 9) < fence(2, 0));
        assert!(fence(2, 0) < fence(2, 1));
        assert_eq!(fence(3, 7).to_string(), "3.7");
        assert_eq!(fence(3, 7).get(), (3 << 32) + 7);
        assert_eq!(Fence::new(1 << 32, 0), None);
        assert_eq!(Fence::new(0, 1 << 32), None);
    }

    #[tokio::test]
    async fn older_is_refused_and_equal_passes_again() {
        let fences = Fences::default();
        fences.pass("a", fence(1, 5)).await.unwrap();
        fences.pass("a", fence(1, 5)).await.unwrap();
        fences.pass("b", fence(1, 1)).await.unwrap();
        let refused = fences.pass("a", fence(1, 4)).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a: fenced off: a write with fence 1.5 was seen, this one has 1.4; another executor \
             has taken over"
        );
        fences.pass("a", fence(2, 0)).await.unwrap();
        assert!(fences.pass("a", fence(1, 9)).await.is_err());
    }

    #[tokio::test]
    async fn a_write_waits_for_the_one_before() {
        let fences = Arc::new(Fences::default());
        let first = fences.pass("a", fence(1, 1)).await.unwrap();
        let second = tokio::spawn({
            let fences = Arc::clone(&fences);
            async move { fences.pass("a", fence(1, 0)).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        assert!(matches!(second.await.unwrap(), Err(Error::Refused(_))));
    }
}
