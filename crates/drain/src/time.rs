//! Points in time and spans of it, in milliseconds: what the store keeps and
//! what a person reads in a runbook. Nothing in this crate asks a clock.

use std::fmt;
use std::ops::{Add, Mul, Sub};

use serde::{Deserialize, Serialize};

/// Milliseconds since the beginning of 1970, as the driver of a run sees them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A span of time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    pub const ZERO: Millis = Millis(0);

    pub const fn from_secs(secs: u64) -> Self {
        Millis(secs * 1000)
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl Add<Millis> for Time {
    type Output = Time;

    fn add(self, span: Millis) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

/// The span between two points; none if they are the other way round, which a
/// clock that was set back makes them.
impl Sub for Time {
    type Output = Millis;

    fn sub(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Millis {
    type Output = Millis;

    fn add(self, other: Millis) -> Millis {
        Millis(self.0.saturating_add(other.0))
    }
}

impl Mul<f64> for Millis {
    type Output = Millis;

    fn mul(self, factor: f64) -> Millis {
        Millis((self.0 as f64 * factor).round() as u64)
    }
}

/// As people write it: `1h 5m`, `90s` as `1m 30s`, `250ms`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, millis) = (self.0 / 1000, self.0 % 1000);
        let parts = [(secs / 3600, "h"), (secs / 60 % 60, "m"), (secs % 60, "s"), (millis, "ms")];
        let mut parts = parts.into_iter().filter(|(count, _)| *count > 0).peekable();
        if parts.peek().is_none() {
            return f.write_str("0s");
        }
        let mut gap = "";
        for (count, unit) in parts {
            write!(f, "{gap}{count}{unit}")?;
            gap = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_people_write_them() {
        let cases = [(0, "0s"), (250, "250ms"), (90_000, "1m 30s"), (3_900_000, "1h 5m")];
        for (millis, text) in cases {
            assert_eq!(Millis(millis).to_string(), text);
        }
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_span() {
        assert_eq!(Time(5) - Time(9), Millis::ZERO);
        assert_eq!(Time(9) - Time(5), Millis(4));
    }
}
