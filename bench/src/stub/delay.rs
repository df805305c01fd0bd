//! What waits for its time, in a wheel: to put something in and to take it out costs the same
//! however much waits.

use std::time::{Duration, Instant};

/// Things due within the same tick leave together, at its end.
const TICK: Duration = Duration::from_micros(100);
const TICKS: usize = 1 << 15;
/// Nothing waits longer: the wheel must not come round before it is taken.
pub const DELAY_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(DELAY_MAX.as_micros() < TICK.as_micros() * TICKS as u128);

#[derive(Debug)]
pub struct Wheel<T> {
    started: Instant,
    slots: Vec<Vec<T>>,
    /// The first tick whose slot has not been emptied, counted from the start.
    next: u64,
    len: usize,
}

impl<T> Wheel<T> {
    pub fn new(now: Instant) -> Wheel<T> {
        Wheel { started: now, slots: (0..TICKS).map(|_| Vec::new()).collect(), next: 0, len: 0 }
    }

    /// Keeps `item` until `due`, which is at most [`DELAY_MAX`] from now.
    pub fn hold(&mut self, due: Instant, item: T) {
        let nanos = due.saturating_duration_since(self.started).as_nanos();
        let tick = nanos.div_ceil(TICK.as_nanos()) as u64;
        // What is late already leaves next.
        let tick = tick.max(self.next);
        self.slots[tick as usize % TICKS].push(item);
        self.len += 1;
    }

    /// When to look again; `None` if nothing waits.
    pub fn next_due(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let ticks = self.next..self.next + TICKS as u64;
        let tick = ticks.into_iter().find(|tick| !self.slots[*tick as usize % TICKS].is_empty())?;
        Some(self.started + Duration::from_nanos(TICK.as_nanos() as u64 * tick))
    }

    /// Moves everything that is due at `now` to the end of `out`, in order of its tick.
    pub fn take_due(&mut self, now: Instant, out: &mut Vec<T>) {
        let elapsed = now.saturating_duration_since(self.started);
        let last = (elapsed.as_nanos() / TICK.as_nanos()) as u64;
        while self.next <= last && self.len > 0 {
            let slot = &mut self.slots[self.next as usize % TICKS];
            self.len -= slot.len();
            out.append(slot);
            self.next += 1;
        }
        if self.len == 0 {
            self.next = self.next.max(last + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_leave_when_due_and_not_before() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut wheel = Wheel::new(start);
        let mut out = Vec::new();
        assert_eq!(wheel.next_due(), None);
        wheel.hold(at(5_050), "late");
        wheel.hold(at(1_000), "early");
        assert_eq!(wheel.next_due(), Some(at(1_000)));
        wheel.take_due(at(999), &mut out);
        assert!(out.is_empty());
        wheel.take_due(at(1_000), &mut out);
        assert_eq!(out, ["early"]);
        assert_eq!(wheel.next_due(), Some(at(5_100)));
        wheel.take_due(at(9_000), &mut out);
        assert_eq!(out, ["early", "late"]);
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn a_wheel_that_rested_goes_on_and_comes_round() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let mut out = Vec::new();
        let mut now = start;
        for round in 0..10 {
            now += Duration::from_secs(7);
            wheel.take_due(now, &mut out);
            wheel.hold(now + DELAY_MAX, round);
            wheel.take_due(now + DELAY_MAX - 2 * TICK, &mut out);
            assert!(out.is_empty());
            wheel.take_due(now + DELAY_MAX + TICK, &mut out);
            assert_eq!(std::mem::take(&mut out), [round]);
        }
    }

    #[test]
    fn what_is_late_already_leaves_next() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let mut out = Vec::new();
        wheel.take_due(start + Duration::from_secs(1), &mut out);
        wheel.hold(start, 1);
        wheel.take_due(start + Duration::from_secs(1) + TICK, &mut out);
        assert_eq!(out, [1]);
    }
}
