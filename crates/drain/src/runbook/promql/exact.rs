//! Whether a query that is 0 says that nothing is missing.
//!
//! A list of what keeps that, not of what does not: a query that counts what is behind
//! is 0 only if each of its series is, as long as it takes the largest of them, adds
//! them up, subtracts one sum from another or scales them. Whatever else there is in
//! PromQL, now or later, may make 0 of something. An operator between series is of that
//! kind: it passes over those that have no partner on the other side.

use super::Inexact;
use super::meaning::{Kind, Meaning, Operation};

/// What [`Inexact`] does not speak of, for people.
pub const EXACT_RULE: &str = "metrics, `max`, `sum`, `abs` and `max_over_time` of them, `+` and \
    `-` between sums of all series, and `*` and `/` by a number above 0";

/// Between these a product of something and of a number is not rounded to 0.
const FACTOR_MIN: f64 = 1e-12;
const FACTOR_MAX: f64 = 1e12;

/// What is known of a part of a query.
#[derive(Debug, Default)]
pub(super) struct Exactness {
    pub faults: Vec<Inexact>,
    /// Has a selector that counts as it is, not with the opposite sign.
    adds: bool,
    /// Has one that counts with the opposite sign.
    subtracts: bool,
    /// The byte and the name of a maximum, which is the least with the opposite sign.
    largest: Option<(usize, String)>,
    /// One value of all series, and whether it adds all of them up.
    total: Option<Total>,
    /// What it was multiplied by, all in all.
    scale: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Total {
    Sum,
    Largest,
}

impl Exactness {
    pub fn of_selector() -> Exactness {
        Exactness { adds: true, ..Exactness::default() }
    }

    pub fn fault(&mut self, offset: usize, what: impl Into<String>) {
        self.faults.push(Inexact { offset, what: what.into() });
    }

    /// What an aggregation or a function makes of its arguments; whether it makes one
    /// value of all series.
    pub fn called(
        name: &str,
        offset: usize,
        is_total: bool,
        arguments: impl Iterator<Item = Exactness>,
    ) -> Exactness {
        let mut all = arguments.fold(Exactness::default(), Exactness::and);
        all.total = match (is_total, name) {
            (true, "sum") => Some(Total::Sum),
            (true, _) => Some(Total::Largest),
            (false, "abs") => all.total,
            (false, _) => None,
        };
        match name {
            "max" | "max_over_time" => {
                if all.subtracts && !all.adds {
                    all.fault(offset, format!("`{name}` of what has a `-` before it is the least"));
                }
                all.largest.get_or_insert((offset, name.to_owned()));
            }
            "sum" => {}
            "abs" => (all.adds, all.subtracts) = (all.adds || all.subtracts, false),
            _ => all.fault(offset, format!("`{name}` can hide what is missing")),
        }
        all
    }

    /// With the opposite sign.
    pub fn negated(mut self) -> Exactness {
        if let Some((offset, name)) = self.largest.take() {
            self.fault(offset, format!("`{name}` behind a `-` is the least that is missing"));
        }
        (self.adds, self.subtracts) = (self.subtracts, self.adds);
        self
    }

    fn and(mut self, mut other: Exactness) -> Exactness {
        // The first ones become the list, as in `meaning`.
        match self.faults.is_empty() {
            true => self.faults = other.faults,
            false => self.faults.append(&mut other.faults),
        }
        self.adds |= other.adds;
        self.subtracts |= other.subtracts;
        self.largest = self.largest.or(other.largest);
        let extreme = |scale: Option<f64>| scale.map_or(0.0, |scale| scale.ln().abs());
        if extreme(other.scale) > extreme(self.scale) {
            self.scale = other.scale;
        }
        self.total = match (self.total, other.total) {
            (Some(Total::Sum), Some(Total::Largest)) => Some(Total::Largest),
            (own, other) => own.or(other),
        };
        self
    }
}

/// What an operator makes of its sides.
pub(super) fn joined(
    operation: &Operation,
    query: &str,
    left: &mut Meaning,
    right: &mut Meaning,
) -> Exactness {
    let operator = operation.operator.as_str();
    let [mut first, mut second] =
        [&mut *left, &mut *right].map(|side| std::mem::take(&mut side.exactness));
    let is_number = |side: &Meaning| side.kind == Kind::Number && side.selected.is_empty();
    match operator {
        // A number by itself is no metric, which is said where it is used as one.
        _ if is_number(left) && is_number(right) => {}
        "+" | "-" => {
            for (side, exactness) in [(&*left, &mut first), (&*right, &mut second)] {
                if side.selected.is_empty() && exactness.faults.is_empty() {
                    let text = &query[side.at.clone()];
                    exactness.fault(
                        side.at.start,
                        format!("`{text}` is no metric: so much may be missing"),
                    );
                }
            }
            let mut of_left = left.selected.iter();
            let same = of_left.find(|own| right.selected.iter().any(|it| it.text == own.text));
            if let Some(same) = same {
                first.fault(
                    operation.offset,
                    format!("`{}` is on both sides of `{operator}`", same.text),
                );
            }
            let is_one = match operator {
                "-" => |total| total == Some(Total::Sum),
                _ => |total: Option<Total>| total.is_some(),
            };
            // The least is said by itself.
            let is_least = operator == "-" && second.largest.is_some();
            let is_sound = first.faults.is_empty() && second.faults.is_empty() && !is_least;
            if is_sound && !(is_one(first.total) && is_one(second.total)) {
                let sums = if operator == "-" { "`sum`" } else { "`sum` or `max`" };
                first.fault(
                    operation.offset,
                    format!(
                        "`{operator}` passes over a series without a partner on the other side, \
                         unless it is between {sums} of all"
                    ),
                );
            }
            if operator == "-" {
                second = second.negated();
            }
        }
        "*" | "/" => {
            let factor = match (is_number(left), is_number(right)) {
                (false, true) => Some(&*right),
                (true, false) if operator == "*" => Some(&*left),
                _ => None,
            };
            match factor {
                None => first.fault(operation.offset, by_what(operator)),
                Some(factor) => {
                    // Each factor may be within bounds, and what they make together is 0.
                    let before = first.scale.or(second.scale).unwrap_or(1.0);
                    let scaled = |value: f64| match operator {
                        "*" => before * value,
                        _ => before / value,
                    };
                    first.scale = factor.values.only().map(scaled);
                    let is_within = |value| (FACTOR_MIN..=FACTOR_MAX).contains(&value);
                    let text = &query[factor.at.clone()];
                    let range = format!("from {FACTOR_MIN:e} to {FACTOR_MAX:e}");
                    if !factor.values.only().is_some_and(is_within) {
                        first.fault(factor.at.start, format!("`{text}` is no number {range}"));
                    } else if !first.scale.is_some_and(is_within) {
                        let what = format!("all factors together, with `{text}`, are not {range}");
                        first.fault(factor.at.start, what);
                    }
                }
            }
        }
        _ => first.fault(operation.offset, format!("`{operator}` can hide what is missing")),
    }
    first.and(second)
}

fn by_what(operator: &str) -> String {
    format!("`{operator}` is not by a number, and can hide what is missing")
}
