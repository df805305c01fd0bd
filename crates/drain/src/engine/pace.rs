//! How large the next step of a shift is, and how long to look at the last.

use crate::plan::{Expected, Pace};
use crate::time::Millis;

use super::Shifted;

/// From here on to the bound a condition is close: steps get smaller, waits
/// longer.
pub const CLOSE: f64 = 0.8;
/// The smallest step, as a share of the way: less is not worth the wait.
const STEP_MIN: f64 = 0.005;
/// Less than that is noise.
const RISE_MIN: f64 = 0.005;
/// Each time that somebody asks for haste doubles steps and halves waits, so
/// many times at the most.
pub const HASTE_MAX: u32 = 3;

/// What the next step depends on.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// How near the nearest condition is to its bound: 1 is at it.
    pub nearness: f64,
    /// The share of its full speed that budgets allow.
    pub speed: f64,
    pub haste: u32,
}

/// The share of the way at which the next step ends. `rise` is how much nearer
/// the nearest condition came to its bound with the last step, if that is known.
pub fn next_stop(
    pace: &Pace,
    expected: &Expected,
    shift: &Shifted,
    now: Circumstances,
    rise: Option<f64>,
) -> f64 {
    let step = if pace.adaptive { adapted(pace, expected, shift, now, rise) } else { pace.first };
    stop_after(shift.at, (step * now.speed).clamp(STEP_MIN, 1.0))
}

/// The share of the way at which a step from `at` ends. A rest that is no step
/// of its own goes with it.
pub fn stop_after(at: f64, step: f64) -> f64 {
    let next = at + step;
    if next > 1.0 - STEP_MIN { 1.0 } else { next }
}

fn adapted(
    pace: &Pace,
    expected: &Expected,
    shift: &Shifted,
    now: Circumstances,
    rise: Option<f64>,
) -> f64 {
    let faster = f64::from(1 << now.haste.min(HASTE_MAX));
    let most = (pace.step_max * faster).min(1.0);
    let step = match shift.steps {
        // Small on purpose, whatever was borne before.
        0 => return pace.first.min(most),
        // It was borne before, and the first step did not say otherwise.
        1 if now.nearness < CLOSE => expected.step.unwrap_or(0.0).max(shift.step * 2.0),
        // Back from where it was too much: half of that.
        _ if shift.step < 0.0 => -shift.step / 2.0,
        _ if now.nearness < CLOSE => shift.step * 2.0,
        // As far as half of what is left, if the next step does what the last one did. What is
        // close may be so for other reasons: then small steps would only take longer.
        _ => {
            let half = (1.0 - now.nearness) / 2.0;
            let factor = rise.map_or(0.5, |rise| half / rise.max(RISE_MIN));
            shift.step * factor.clamp(0.5, 2.0)
        }
    };
    step.clamp(pace.first.min(most) / 2.0, most)
}

/// How long to look at a step before the next one. What was often too fast
/// before is looked at longer from the first step on.
pub fn wait(pace: &Pace, expected: &Expected, now: Circumstances) -> Millis {
    let close = ((now.nearness - CLOSE) / (1.0 - CLOSE)).max(expected.breached).clamp(0.0, 1.0);
    let longer = pace.wait_max.0.saturating_sub(pace.wait.0);
    let wait = if pace.adaptive { pace.wait + Millis(longer) * close } else { pace.wait };
    wait * (1.0 / f64::from(1 << now.haste.min(HASTE_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{KnobId, OnBreach};
    use crate::time::Time;

    fn pace() -> Pace {
        Pace {
            first: 0.02,
            step_max: 0.25,
            wait: Millis(1000),
            wait_max: Millis(5000),
            adaptive: true,
            on_breach: OnBreach::Hold,
            patience: Millis(1000),
        }
    }

    fn shift() -> Shifted {
        Shifted {
            knob: KnobId(0),
            from: 1.0,
            to: 0.0,
            at: 0.0,
            at_since: Time(0),
            next: 0.0,
            brought: 0.0,
            step: 0.0,
            steps: 0,
        }
    }

    const CALM: Circumstances = Circumstances { nearness: 0.1, speed: 1.0, haste: 0 };

    /// The stops of a whole way.
    fn stops(pace: &Pace, expected: &Expected, now: Circumstances) -> Vec<f64> {
        let (mut shift, mut stops) = (shift(), Vec::new());
        while shift.at < 1.0 {
            let next = next_stop(pace, expected, &shift, now, None);
            shift.step = next - shift.at;
            (shift.at, shift.steps) = (next, shift.steps + 1);
            stops.push((next * 1000.0).round() / 1000.0);
        }
        stops
    }

    #[test]
    fn steps_begin_small_and_double_up_to_the_largest() {
        let calm = stops(&pace(), &Expected::default(), CALM);
        assert_eq!(calm, [0.02, 0.06, 0.14, 0.3, 0.55, 0.8, 1.0]);
    }

    #[test]
    fn history_shortens_the_way_but_not_the_first_step() {
        let expected = Expected { step: Some(0.25), ..Expected::default() };
        assert_eq!(stops(&pace(), &expected, CALM), [0.02, 0.27, 0.52, 0.77, 1.0]);
    }

    #[test]
    fn haste_widens_the_bounds() {
        let hasty = Circumstances { haste: 9, ..CALM };
        assert!(stops(&pace(), &Expected::default(), hasty).len() < 7);
        assert_eq!(wait(&pace(), &Expected::default(), hasty), Millis(125));
    }

    #[test]
    fn a_condition_that_is_close_makes_steps_smaller_and_waits_longer() {
        let close = Circumstances { nearness: 0.9, ..CALM };
        let at = Shifted { at: 0.3, step: 0.16, steps: 4, ..shift() };
        let next = |rise| next_stop(&pace(), &Expected::default(), &at, close, rise);
        assert_eq!(next(None), 0.3 + 0.08);
        assert_eq!(next(Some(0.2)), 0.3 + 0.08, "the last step alone would breach it");
        assert_eq!(wait(&pace(), &Expected::default(), close), Millis(3000));
        assert_eq!(wait(&pace(), &Expected::default(), CALM), Millis(1000));
    }

    #[test]
    fn what_is_close_for_other_reasons_does_not_make_steps_smaller() {
        let close = Circumstances { nearness: 0.9, ..CALM };
        let at = Shifted { at: 0.3, step: 0.1, steps: 4, ..shift() };
        let next = |rise| next_stop(&pace(), &Expected::default(), &at, close, Some(rise)) - 0.3;
        assert!((next(0.05) - 0.1).abs() < 1e-9, "as far as half of what is left");
        assert!((next(0.001) - 0.2).abs() < 1e-9, "at most twice as large as before");
        assert!((next(-0.1) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn what_was_breached_before_is_waited_for_longer_within_bounds() {
        let wait_after =
            |breached| wait(&pace(), &Expected { breached, ..Expected::default() }, CALM);
        assert_eq!(wait_after(0.0), Millis(1000));
        assert_eq!(wait_after(0.5), Millis(3000));
        assert_eq!(wait_after(1.0), Millis(5000));
    }

    #[test]
    fn after_a_step_back_the_next_one_is_half_of_it() {
        let at = Shifted { at: 0.3, step: -0.2, steps: 4, ..shift() };
        assert!((next_stop(&pace(), &Expected::default(), &at, CALM, None) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_fixed_pace_is_fixed() {
        let fixed = Pace { adaptive: false, first: 0.25, ..pace() };
        assert_eq!(stops(&fixed, &Expected::default(), CALM), [0.25, 0.5, 0.75, 1.0]);
        let close = Circumstances { nearness: 0.95, ..CALM };
        assert_eq!(wait(&fixed, &Expected::default(), close), Millis(1000));
    }

    #[test]
    fn budgets_slow_down() {
        let half = Circumstances { speed: 0.5, ..CALM };
        let at = Shifted { at: 0.3, step: 0.1, steps: 4, ..shift() };
        assert!((next_stop(&pace(), &Expected::default(), &at, half, None) - 0.4).abs() < 1e-9);
    }
}
