//! Which values an expression can have, as far as its text says: between which
//! bounds they lie, and whether one of them can be 0.
//!
//! Samples that are infinite or not a number are left out of account: what makes
//! them is a division, and each division is looked at by itself.

use super::functions::{KEEPS_SIGN, NEVER_NEGATIVE, has};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Values {
    pub min: f64,
    pub max: f64,
    /// Certainly not 0.
    pub nonzero: bool,
    /// 0 is left out by a filter such as `> 0`: where it would be, the vector
    /// has no element.
    pub filtered: bool,
    /// Something in it makes negative values of positive ones. Metrics whose
    /// sign is unknown mostly count or measure something, so `sessions + 1` is
    /// taken for what is meant; `a - b + 1` is not.
    pub subtracts: bool,
}

impl Values {
    pub const ANY: Values = Values {
        min: f64::NEG_INFINITY,
        max: f64::INFINITY,
        nonzero: false,
        filtered: false,
        subtracts: false,
    };
    pub const NEVER_NEGATIVE: Values = Values { min: 0.0, ..Values::ANY };

    pub fn constant(value: f64) -> Values {
        if value.is_nan() {
            return Values::ANY;
        }
        Values::between(value, value)
    }

    pub fn between(min: f64, max: f64) -> Values {
        Values { min, max, nonzero: min > 0.0 || max < 0.0, subtracts: min < 0.0, ..Values::ANY }
    }

    pub fn never_negative(&self) -> bool {
        self.min >= 0.0
    }

    /// The value, if there is only one.
    pub fn only(&self) -> Option<f64> {
        (self.min == self.max).then_some(self.min)
    }

    fn is_positive(&self) -> bool {
        self.min > 0.0 || self.min == 0.0 && self.nonzero
    }

    /// With other bounds, which also say whether it can be 0.
    fn bounded(self, min: f64, max: f64) -> Values {
        let (min, max) = match (min.is_nan(), max.is_nan()) {
            (false, false) => (min, max),
            (true, false) => (f64::NEG_INFINITY, max),
            (false, true) => (min, f64::INFINITY),
            (true, true) => (f64::NEG_INFINITY, f64::INFINITY),
        };
        Values { min, max, nonzero: self.nonzero || min > 0.0 || max < 0.0, ..self }
    }

    pub fn negated(self) -> Values {
        let subtracts = self.only().is_none_or(|only| only > 0.0);
        Values { min: -self.max, max: -self.min, subtracts, ..self }
    }

    /// What an arithmetic operator makes of two sides.
    pub fn combined(operator: &str, left: Values, right: Values) -> Values {
        let both = Values {
            nonzero: false,
            filtered: left.filtered || right.filtered,
            subtracts: left.subtracts || right.subtracts,
            ..Values::ANY
        };
        match operator {
            "+" => both.sum(left, right),
            "-" => {
                // The difference of two constants is a constant.
                let subtracts = left.only().is_none() || right.only().is_none();
                let sum = both.sum(left, right.negated());
                Values { subtracts: subtracts || sum.min < 0.0, ..sum }
            }
            "*" => both.product(left, right),
            "/" | "%" => {
                let min = if left.min >= 0.0 && (operator == "%" || right.min >= 0.0) {
                    0.0
                } else {
                    both.min
                };
                let nonzero = operator == "/" && left.nonzero;
                Values { min, nonzero, ..both }
            }
            "^" => {
                let even = right.only().is_some_and(|power| power % 2.0 == 0.0);
                let min = if left.min >= 0.0 || even { 0.0 } else { both.min };
                Values { min, nonzero: left.is_positive(), ..both }
            }
            _ => Values { subtracts: true, ..both },
        }
    }

    fn sum(self, left: Values, right: Values) -> Values {
        let one_is_positive =
            left.is_positive() && right.min >= 0.0 || right.is_positive() && left.min >= 0.0;
        let guards = |guard: Values, other: Values| {
            guard.only().is_some_and(|value| value > 0.0) && !other.subtracts
        };
        let nonzero = one_is_positive || guards(left, right) || guards(right, left);
        Values { nonzero, ..self }.bounded(left.min + right.min, left.max + right.max)
    }

    fn product(self, left: Values, right: Values) -> Values {
        let ends = [
            left.min * right.min,
            left.min * right.max,
            left.max * right.min,
            left.max * right.max,
        ]
        // 0 times infinity: the bound is never reached, so it is 0.
        .map(|end| if end.is_nan() { 0.0 } else { end });
        let min = ends.into_iter().fold(f64::INFINITY, f64::min);
        let max = ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
        Values { nonzero: left.nonzero && right.nonzero, ..self }.bounded(min, max)
    }

    /// Those of the left side for which a comparison with the right side holds.
    pub fn filtered(self, operator: &str, right: Values) -> Values {
        let (min, max) = match operator {
            ">" | ">=" => (self.min.max(right.min), self.max),
            "<" | "<=" => (self.min, self.max.min(right.max)),
            "==" => (self.min.max(right.min), self.max.min(right.max)),
            _ => (self.min, self.max),
        };
        let nonzero = match operator {
            ">" => right.min >= 0.0,
            "<" => right.max <= 0.0,
            "!=" => right.only() == Some(0.0),
            "==" => right.nonzero,
            _ => false,
        };
        let kept = Values { nonzero: self.nonzero || nonzero, ..self }.bounded(min, max);
        Values { filtered: self.filtered || (kept.nonzero && !self.nonzero), ..kept }
    }

    /// Those of either side.
    pub fn either(self, other: Values) -> Values {
        Values {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            nonzero: self.nonzero && other.nonzero,
            // Where a filter leaves nothing, the other side has a value.
            filtered: other.filtered,
            subtracts: self.subtracts || other.subtracts,
        }
    }

    pub fn aggregated(self, how: &str) -> Values {
        let of = |values: Values| Values { filtered: self.filtered, ..values };
        match how {
            "count" | "count_values" => of(Values::between(1.0, f64::INFINITY)),
            "group" => of(Values::constant(1.0)),
            "stddev" | "stdvar" => of(Values::NEVER_NEGATIVE),
            "sum" => self.summed(),
            "avg" => self.averaged(),
            "quantile" => Values { max: f64::INFINITY, ..self.averaged() },
            _ => self,
        }
    }

    /// Of one or more values.
    fn summed(self) -> Values {
        let min = if self.min >= 0.0 { self.min } else { f64::NEG_INFINITY };
        let max = if self.max <= 0.0 { self.max } else { f64::INFINITY };
        Values { nonzero: self.averaged().nonzero, min, max, ..self }
    }

    fn averaged(self) -> Values {
        Values { nonzero: self.is_positive() || self.negated().is_positive(), ..self }
    }

    /// What a function makes of its arguments.
    pub fn called(function: &str, arguments: &[Values]) -> Values {
        let first = arguments.first().copied().unwrap_or(Values::ANY);
        let second = arguments.get(1).copied().unwrap_or(Values::ANY);
        let of = |values: Values| Values { filtered: first.filtered, ..values };
        match function {
            "clamp_min" => first.bounded(first.min.max(second.min), first.max.max(second.max)),
            "clamp_max" => first.bounded(first.min.min(second.min), first.max.min(second.max)),
            "clamp" => {
                let upper = arguments.get(2).copied().unwrap_or(Values::ANY);
                let (min, max) = (first.min.max(second.min), first.max.min(upper.max));
                first.bounded(min.min(upper.min), max)
            }
            "abs" => of(Values { nonzero: first.nonzero, ..Values::NEVER_NEGATIVE })
                .bounded(if first.min > 0.0 { first.min } else { 0.0 }, f64::INFINITY),
            "sqrt" => of(Values { nonzero: first.nonzero, ..Values::NEVER_NEGATIVE }),
            "exp" => of(Values { nonzero: true, ..Values::NEVER_NEGATIVE }),
            "absent" | "absent_over_time" | "present_over_time" => Values::constant(1.0),
            "count_over_time" | "day_of_month" | "day_of_year" | "days_in_month" | "month"
            | "year" | "time" | "timestamp" | "pi" => of(Values::between(1.0, f64::INFINITY)),
            "hour" | "minute" | "day_of_week" => of(Values::NEVER_NEGATIVE),
            "sum_over_time" => first.summed(),
            "avg_over_time" => first.averaged(),
            "ceil" => first.bounded(first.min.ceil(), first.max.ceil()),
            "floor" | "round" => {
                Values { nonzero: false, ..first }.bounded(first.min.floor(), first.max.ceil())
            }
            _ if has(NEVER_NEGATIVE, function) => of(Values::NEVER_NEGATIVE),
            _ if has(KEEPS_SIGN, function) => first,
            _ => of(Values { subtracts: true, ..Values::ANY }),
        }
    }
}
