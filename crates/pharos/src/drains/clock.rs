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

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
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
