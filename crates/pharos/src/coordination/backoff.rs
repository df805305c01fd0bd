//! Pauses between tries of what failed.

use std::time::Duration;

use crate::random;

/// The first pause.
const FIRST: Duration = Duration::from_millis(100);
/// Doublings of it at the most: 6.4 seconds.
const DOUBLINGS_MAX: u32 = 6;

/// Grows with every failure, up to a bound. Random, so that nodes that lost
/// the same service do not come back to it at the same moment.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure.
    pub fn next(&mut self) -> Duration {
        let [luck] = random::octets();
        let pause = pause(self.failures, luck);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Between half of the pause and the whole, as `luck` has it.
fn pause(failures: u32, luck: u8) -> Duration {
    let whole = FIRST * (1 << failures.min(DOUBLINGS_MAX));
    whole / 2 + whole / 2 * u32::from(luck) / u32::from(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        assert_eq!(pause(0, 0), Duration::from_millis(50));
        assert_eq!(pause(0, 255), Duration::from_millis(100));
        assert_eq!(pause(3, 255), Duration::from_millis(800));
        assert_eq!(pause(u32::MAX, 255), Duration::from_millis(6400));
        let mut backoff = Backoff::default();
        (0..20).for_each(|_| assert!(backoff.next() <= Duration::from_millis(6400)));
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
