//! The rate at which a cell may ask upstream: its share of the one budget that
//! the whole cluster has.
//!
//! Questions beyond the rate wait for their turn, in the order in which they
//! came, but not longer than a bound; then they are refused.

use std::time::Duration;

use crate::time::Moment;

/// How long a question waits for its turn at the most.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// What may be asked at once after a quiet time, in time: this long's worth.
const BURST: Duration = Duration::from_millis(250);

/// Turns to ask, handed out at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Between two turns; `None`: no bound.
    interval: Option<Duration>,
    /// When the next turn is.
    next: Moment,
}

/// When a question may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Now,
    At(Moment),
    Refused,
}

impl Budget {
    /// Turns at `per_sec`; without it any number of them.
    pub fn new(per_sec: Option<f64>) -> Self {
        Budget { interval: interval(per_sec), next: Moment(0) }
    }

    /// Another rate from now on.
    pub fn set(&mut self, per_sec: Option<f64>) {
        self.interval = interval(per_sec);
    }

    /// Takes the next turn.
    pub fn take(&mut self, now: Moment) -> Turn {
        let Some(interval) = self.interval else { return Turn::Now };
        let earliest = Moment(now.0.saturating_sub(BURST.as_micros() as u64));
        let turn = self.next.max(earliest);
        if turn.since(now) > WAIT_MAX {
            return Turn::Refused;
        }
        self.next = turn + interval;
        if turn <= now { Turn::Now } else { Turn::At(turn) }
    }
}

fn interval(per_sec: Option<f64>) -> Option<Duration> {
    per_sec.map(|per_sec| Duration::from_secs_f64(1.0 / per_sec.max(0.001)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_time_and_waits_are_bounded() {
        let mut budget = Budget::new(Some(100.0));
        let (mut asked, mut refused) = (0, 0);
        // Ten seconds of 1000 questions each.
        for tick in 0..10_000u64 {
            let now = Moment(10_000_000 + tick * 1000);
            match budget.take(now) {
                Turn::Refused => refused += 1,
                Turn::Now => asked += 1,
                Turn::At(turn) => {
                    assert!(turn.since(now) <= WAIT_MAX && turn > now);
                    asked += 1;
                }
            }
        }
        assert!((1000..=1080).contains(&asked), "{asked}");
        assert_eq!(asked + refused, 10_000);
    }

    #[test]
    fn without_a_rate_everything_is_asked_at_once() {
        let mut budget = Budget::new(None);
        assert!((0..1000).all(|_| budget.take(Moment(5)) == Turn::Now));
        budget.set(Some(1.0));
        let turns: Vec<_> = (0..3).map(|_| budget.take(Moment(5))).collect();
        assert_eq!(turns[2], Turn::Refused);
    }
}
