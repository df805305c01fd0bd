//! Epochs of the hash key.
//!
//! The key is made from the cluster's secret and the epoch's salt, so a salt
//! may be seen by whoever sees the coordination service; it is kept out of the
//! log all the same.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::unix_secs;
use crate::random;

/// What one hash key is made from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// Grows by one with each rotation; 0 before anybody agreed on one.
    pub number: u64,
    pub salt: [u8; 16],
    /// When it began, in seconds since 1970.
    pub started_secs: u64,
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({}, since {})", self.number, self.started_secs)
    }
}

/// The epoch of now, and the one before, whose owners are asked while those of
/// the new one are still cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epochs {
    pub current: Epoch,
    pub previous: Option<Epoch>,
}

impl Epochs {
    /// What a node uses before it knows the others'.
    pub fn unagreed() -> Self {
        let current = Epoch { number: 0, salt: random::octets(), started_secs: unix_secs() };
        Epochs { current, previous: None }
    }

    /// The same as the first that nodes agree on.
    pub fn agreed(self) -> Self {
        let number = self.current.number.max(1);
        Epochs { current: Epoch { number, ..self.current }, ..self }
    }

    /// What follows.
    pub fn next(self) -> Self {
        let number = self.current.number.saturating_add(1);
        let current = Epoch { number, salt: random::octets(), started_secs: unix_secs() };
        // Nobody else ever used a key that was not agreed on.
        let previous = Some(self.current).filter(|epoch| epoch.number > 0);
        Epochs { current, previous }
    }

    /// The one of the two that all nodes choose: that with the higher number.
    /// Of two with the same number the one that began first, as more nodes use
    /// it already; then that with the smaller salt.
    pub fn prevailing(self, other: Self) -> Self {
        let rank = |epochs: &Epochs| {
            let Epoch { number, salt, started_secs } = epochs.current;
            (number, Reverse(started_secs), Reverse(salt))
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// When this node ends the current epoch, if nobody else does.
#[derive(Debug)]
pub struct Rotation {
    period: Duration,
    /// The epoch that is timed, by its number and salt, and its end.
    timed: Option<(u64, [u8; 16], Instant)>,
}

impl Rotation {
    pub fn new(period: Duration) -> Self {
        Rotation { period, timed: None }
    }

    /// When `epochs` are to be followed by the next.
    pub fn due(&mut self, epochs: &Epochs) -> Instant {
        let Epoch { number, salt, started_secs } = epochs.current;
        match self.timed {
            Some((timed, with, due)) if (timed, with) == (number, salt) => due,
            _ => {
                let age = Duration::from_secs(unix_secs().saturating_sub(started_secs));
                let due = Instant::now() + time_left(self.period, age);
                self.timed = Some((number, salt, due));
                due
            }
        }
    }
}

/// How long an epoch of this age lasts. At least a quarter of the period from
/// when it is first seen: with clocks that are years apart, nodes would
/// otherwise end each other's epochs at once.
fn time_left(period: Duration, age: Duration) -> Duration {
    period.saturating_sub(age).max(period / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(number: u64, salt: u8) -> Epochs {
        since(1000, number, salt)
    }

    fn since(started_secs: u64, number: u64, salt: u8) -> Epochs {
        Epochs { current: Epoch { number, salt: [salt; 16], started_secs }, previous: None }
    }

    #[test]
    fn the_highest_number_prevails_then_the_earliest_start_then_the_smallest_salt() {
        for (one, other, winner) in [
            (since(2000, 2, 9), since(1000, 1, 1), since(2000, 2, 9)),
            (since(1000, 2, 9), since(2000, 2, 1), since(1000, 2, 9)),
            (epochs(2, 9), epochs(1, 1), epochs(2, 9)),
            (epochs(2, 9), epochs(2, 1), epochs(2, 1)),
            (epochs(2, 1), epochs(2, 1), epochs(2, 1)),
        ] {
            assert_eq!(one.prevailing(other), winner);
            assert_eq!(other.prevailing(one), winner);
        }
    }

    #[test]
    fn the_next_epoch_remembers_the_one_before() {
        let next = epochs(7, 1).next();
        assert_eq!(next.current.number, 8);
        assert_ne!(next.current.salt, [1; 16]);
        assert_eq!(next.previous, Some(epochs(7, 1).current));
        assert_eq!(Epochs::unagreed().next().previous, None);
        assert_eq!(Epochs::unagreed().agreed().current.number, 1);
        assert_eq!(epochs(7, 1).agreed(), epochs(7, 1));
    }

    #[test]
    fn an_epoch_ends_after_the_period_whatever_the_clocks_say() {
        let hour = Duration::from_secs(3600);
        assert_eq!(time_left(hour * 8, hour), hour * 7);
        assert_eq!(time_left(hour * 8, Duration::ZERO), hour * 8);
        assert_eq!(time_left(hour * 8, hour * 9000), hour * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_epoch_is_timed_from_when_it_is_first_seen() {
        let mut rotation = Rotation::new(Duration::from_secs(60));
        let fresh = Epochs::unagreed().agreed();
        let due = rotation.due(&fresh);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(rotation.due(&fresh), due);
        assert!(rotation.due(&fresh.next()) > due);
    }

    #[test]
    fn salts_stay_out_of_the_log() {
        let text = format!("{:?}", epochs(3, 0xab));
        assert!(!text.contains("171") && !text.contains("ab"), "{text}");
    }
}
