//! The time as runs see it: that of the wall when the server started, and from
//! then on what has passed. A wall clock that is set, by a person or by a time
//! server, would end waits at once or make them last for hours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use drain::Time;

/// Clones are one clock.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    /// The time at the start, in milliseconds since 1970.
    offset: Arc<AtomicU64>,
}

impl Clock {
    /// A clock that shows what the wall does.
    pub fn of_the_wall() -> Self {
        Clock::at(wall())
    }

    fn at(time: u64) -> Self {
        Clock { start: Instant::now(), offset: Arc::new(AtomicU64::new(time)) }
    }

    fn elapsed(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    pub fn now(&self) -> Time {
        Time(self.offset.load(Ordering::Relaxed) + self.elapsed())
    }

    /// Goes on where a run was left, if that is ahead: the wall may have been
    /// set back since, or the run was driven elsewhere.
    pub fn resume_at(&self, left: Time) {
        self.offset.fetch_max(left.0.saturating_sub(self.elapsed()), Ordering::Relaxed);
    }

    /// Shows again what the wall does, for when nothing depends on it.
    pub fn follow_the_wall(&self) {
        self.offset.store(wall().saturating_sub(self.elapsed()), Ordering::Relaxed);
    }
}

/// The time as leases see it: what the wall shows now. Other hosts compare it
/// with theirs, and nothing else is the same for all of them. A run whose records
/// are ahead moves the clock of runs, and must not move this one.
#[derive(Clone, Debug, Default)]
pub struct LeaseClock {
    #[cfg(test)]
    ahead_ms: Arc<AtomicU64>,
}

impl LeaseClock {
    pub fn now(&self) -> u64 {
        let now = wall();
        #[cfg(test)]
        let now = now + self.ahead_ms.load(Ordering::Relaxed);
        now
    }

    #[cfg(test)]
    pub fn advance(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_goes_on_where_a_run_was_left_and_never_back() {
        let clock = Clock::at(1_000);
        assert!(clock.now() >= Time(1_000));
        clock.clone().resume_at(Time(9_000_000));
        assert!(clock.now() >= Time(9_000_000));
        clock.resume_at(Time(2_000));
        assert!(clock.now() >= Time(9_000_000));
    }

    #[test]
    fn an_idle_clock_shows_what_the_wall_does() {
        // What somebody set before the start, and put right since.
        for wrong in [0, wall() + 7_200_000] {
            let (clock, before) = (Clock::at(wrong), wall());
            clock.follow_the_wall();
            let (shown, after) = (clock.now().0, wall());
            // It adds whole milliseconds of two clocks.
            assert!(before - 2 <= shown && shown <= after + 2, "{before} {shown} {after}");
        }
    }
}
