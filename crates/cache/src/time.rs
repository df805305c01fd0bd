//! Moments on a clock that only goes forward, in microseconds since whatever
//! the node took for its start. Nodes never compare their clocks: between them
//! travel ages and remaining times.

use std::ops::Add;
use std::time::Duration;

/// A moment of a node's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// Time from `earlier` to this moment; nothing if it is not earlier.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Whole seconds from `earlier` to this moment.
    pub fn secs_since(self, earlier: Moment) -> u32 {
        (self.0.saturating_sub(earlier.0) / 1_000_000).min(u64::from(u32::MAX)) as u32
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration.as_micros().min(u128::from(u64::MAX)) as u64))
    }
}
