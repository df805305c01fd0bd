//! Axes: where times and values are in a picture, and the round numbers beside
//! them.

use jiff::tz::TimeZone;
use maud::{Markup, html};

use crate::date::{hour, zone_name};
use crate::number::number;
use crate::time::{Millis, Time};

/// The size of all pictures, in their own units.
pub const WIDTH: f64 = 1060.0;
/// Where curves begin and end; names and scales are on the left.
pub const LEFT: f64 = 236.0;
pub const RIGHT: f64 = WIDTH - 14.0;
/// What an axis takes below a picture.
pub const AXIS: f64 = 34.0;

/// The axis of time, the same in all pictures.
pub struct Hours<'a> {
    from: Time,
    span: f64,
    zone: &'a TimeZone,
}

impl<'a> Hours<'a> {
    pub fn new(from: Time, to: Time, zone: &'a TimeZone) -> Self {
        Hours { from, span: ((to - from).0 as f64).max(1.0), zone }
    }

    pub fn x(&self, at: Time) -> f64 {
        let share = ((at - self.from).0 as f64 / self.span).clamp(0.0, 1.0);
        tenth(LEFT + share * (RIGHT - LEFT))
    }

    /// Round spans from the start, a few of them.
    fn ticks(&self) -> Vec<Millis> {
        const TICKS_MAX: f64 = 9.0;
        const ROUND: [u64; 22] = [
            10, 100, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
            600_000, 900_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 21_600_000,
            43_200_000, 86_400_000,
        ];
        let is_few = |every: &&u64| self.span / **every as f64 <= TICKS_MAX;
        let every = ROUND.iter().find(is_few).map_or(self.span / TICKS_MAX, |every| *every as f64);
        (0..=(self.span / every) as u64).map(|tick| Millis((every * tick as f64) as u64)).collect()
    }

    /// Lines through a picture of some height, with the time of the day and what
    /// has passed below.
    pub fn grid(&self, height: f64) -> Markup {
        let ticks = self.ticks();
        let is_whole = |millis: u64| millis.is_multiple_of(60_000);
        let has_seconds = !is_whole(self.from.0) || ticks.iter().any(|span| !is_whole(span.0));
        html! {
            @for span in &ticks {
                @let at = self.from + *span;
                @let x = self.x(at);
                line .grid x1=(x) y1="0" x2=(x) y2=(height) {}
                text .tick x=(x) y=(height + 14.0) text-anchor="middle" {
                    (hour(at, self.zone, has_seconds))
                }
                text .sub x=(x) y=(height + 27.0) text-anchor="middle" { "+" (span) }
            }
            text .sub x=(LEFT - 34.0) y=(height + 14.0) text-anchor="end" {
                "time of day, " (zone_name(self.from, self.zone))
            }
            text .sub x=(LEFT - 34.0) y=(height + 27.0) text-anchor="end" { "since the start" }
        }
    }
}

/// An axis of values.
pub struct Values {
    low: f64,
    high: f64,
    top: f64,
    bottom: f64,
}

impl Values {
    /// From zero, or what is below it, to a round number above the largest.
    pub fn new(values: impl Iterator<Item = f64>, top: f64, bottom: f64) -> Self {
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high <= low {
            high = low + 1.0;
        }
        let step = round_step(high - low);
        let high = (high / step).ceil() * step;
        Values { low: (low / step).floor() * step, high, top, bottom }
    }

    pub fn y(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        tenth(self.bottom - share * (self.bottom - self.top))
    }

    /// Round numbers, with lines through the picture.
    pub fn grid(&self, ticks: usize) -> Markup {
        let every = round_step((self.high - self.low) * 4.0 / ticks.max(1) as f64);
        let count = ((self.high - self.low) / every + 1e-9) as usize;
        html! {
            @for tick in 0..=count {
                @let value = self.low + every * tick as f64;
                @let y = self.y(value);
                line .grid x1=(LEFT) y1=(y) x2=(RIGHT) y2=(y) {}
                text .tick x=(LEFT - 6.0) y=(y + 3.5) text-anchor="end" { (number(value)) }
            }
        }
    }

    /// The ends alone, for a small picture.
    pub fn ends(&self) -> Markup {
        html! {
            @for value in [self.low, self.high] {
                @let y = self.y(value);
                line .grid x1=(LEFT) y1=(y) x2=(RIGHT) y2=(y) {}
                text .tick x=(LEFT - 6.0) y=(y + 3.5) text-anchor="end" { (number(value)) }
            }
        }
    }
}

/// A quarter of a range or so, rounded to 1, 2 or 5 of its size.
fn round_step(range: f64) -> f64 {
    let rough = (range / 4.0).max(f64::MIN_POSITIVE);
    let size = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|own| own * size >= rough * 0.999);
    factor.unwrap_or(10.0) * size
}

/// Pictures need no more.
pub fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let axis = Values::new([0.3, 7.3].into_iter(), 0.0, 100.0);
        assert_eq!((axis.low, axis.high), (0.0, 8.0));
        assert_eq!((axis.y(0.0), axis.y(4.0), axis.y(99.0)), (100.0, 50.0, 0.0));
        let negative = Values::new([-3.0, 1.0, f64::NAN].into_iter(), 0.0, 100.0);
        assert_eq!((negative.low, negative.high), (-3.0, 1.0));
        let nothing = Values::new(std::iter::empty(), 0.0, 100.0);
        assert_eq!((nothing.low, nothing.high), (0.0, 1.0));
    }

    #[test]
    fn ticks_are_few_and_round() {
        let ticks = |secs: u64| {
            let zone = TimeZone::UTC;
            let ticks = Hours::new(Time(0), Time(secs * 1000), &zone).ticks();
            (ticks.len(), ticks.get(1).map_or(0, |own| own.0 / 1000))
        };
        assert_eq!(ticks(46), (5, 10));
        assert_eq!(ticks(6445), (8, 900));
    }
}
