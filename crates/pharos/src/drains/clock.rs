//! The time as runs see it: that of the wall, but never back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use drain::Time;

/// Clones share what they have seen.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    pub fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = since.as_millis() as u64;
        Time(self.0.fetch_max(wall, Ordering::Relaxed).max(wall))
    }
}

/// A moment, in milliseconds since the beginning of 1970, as people write it.
pub fn date(at_ms: u64) -> String {
    let secs = at_ms / 1000;
    let (days, of_day) = (secs / 86_400, secs % 86_400);
    // Years begin in March here, so that the odd day comes last.
    let (mut year, mut left) = (1970 - 2, days + 671);
    let (mut month, lengths) = (0, [31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29]);
    // From 1 March 1968 on: four years are 1461 days, but for the ends of most centuries.
    while left >= 365 + leap_day(year + 1) {
        left -= 365 + leap_day(year + 1);
        year += 1;
    }
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", left + 1)
}

fn leap_day(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    u64::from(is_leap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_people_do() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(68_169_599_000), "1972-02-28 23:59:59");
        assert_eq!(date(68_169_600_000), "1972-02-29 00:00:00");
        assert_eq!(date(951_868_800_000), "2000-03-01 00:00:00");
        assert_eq!(date(1_794_842_096_000), "2026-11-16 15:14:56");
        assert_eq!(date(4_107_542_400_000), "2100-03-01 00:00:00");
    }
}
