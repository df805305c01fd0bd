//! How often a task that is as usual is called stuck: by how many earlier runs of it there are, and
//! by how much its times differ.
//!
//! Times are lognormal, as those of tasks roughly are: never below nothing, and now and then far
//! longer than as a rule. They are drawn anew for every try, so this follows from the seed alone.

use drain::Millis;
use drain::history::{STUCK_MARGIN, Sample, expect};

use super::report::AlarmRate;
use crate::stats::Random;

/// The deviation of the logarithm of times: with 0.5, one of six takes 1.65 times the median.
const SPREADS: [f64; 4] = [0.1, 0.25, 0.5, 1.0];
const EARLIER_RUNS: [usize; 4] = [4, 8, 16, 50];
const TRIES: usize = 20_000;
/// Long enough that the least time before a task is called stuck does not count.
const MEDIAN_MILLIS: f64 = 600_000.0;

pub fn measure() -> Vec<AlarmRate> {
    let mut random = Random::new(1);
    let mut rates = Vec::new();
    for spread in SPREADS {
        for earlier_runs in EARLIER_RUNS {
            let mut rate = AlarmRate { spread, earlier_runs, bare: 0.0, with_margin: 0.0 };
            for _ in 0..TRIES {
                let samples: Vec<Sample> =
                    (0..earlier_runs).map(|_| lognormal(&mut random, spread)).collect();
                let next = lognormal(&mut random, spread).took;
                let is_flagged = |margin: f64| {
                    expect(&samples, margin).stuck_after.is_some_and(|after| next > after)
                };
                rate.bare += f64::from(u8::from(is_flagged(1.0)));
                rate.with_margin += f64::from(u8::from(is_flagged(STUCK_MARGIN)));
            }
            rate.bare /= TRIES as f64;
            rate.with_margin /= TRIES as f64;
            rates.push(rate);
        }
    }
    rates
}

/// A run of a task, by Box and Muller's way to the normal distribution.
fn lognormal(random: &mut Random, spread: f64) -> Sample {
    // Of nothing there is no logarithm.
    let (one, two) = (1.0 - random.share(), random.share());
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos();
    let took = Millis((MEDIAN_MILLIS * (spread * normal).exp()).round() as u64);
    Sample { took, step: 0.0, was_breached: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_makes_alarms_rare_where_times_differ_little() {
        let rates = measure();
        println!("{}", serde_json::to_string_pretty(&rates).unwrap());
        for rate in &rates {
            assert!((0.2..0.4).contains(&rate.bare), "{rate:?}: a quarter, by what it is");
            assert!(rate.with_margin < rate.bare, "{rate:?}");
        }
        let of = |spread: f64, runs: usize| {
            rates.iter().find(|rate| (rate.spread, rate.earlier_runs) == (spread, runs)).unwrap()
        };
        assert!(of(0.1, 4).with_margin < 0.01 && of(0.25, 50).with_margin < 0.02);
    }
}
