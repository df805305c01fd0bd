//! What is known of a part of a query, and what follows from it for the whole.

use std::ops::Range;

use super::exact::{self, Exactness};
use super::values::Values;
use super::{Analysis, COMPARISONS, Division, Inexact, Selector, WhenZero};
use crate::time::Millis;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Number,
    Vector,
    /// Samples over a span: `up[5m]`.
    Range,
    Text,
}

/// What is known of a part of a query.
#[derive(Debug)]
pub(super) struct Meaning {
    pub kind: Kind,
    /// A metric or matchers and nothing else, not even brackets.
    pub is_selector: bool,
    pub values: Values,
    pub selected: Vec<Selected>,
    pub exactness: Exactness,
    divisions: Vec<Divided>,
    /// The bytes of it.
    pub at: Range<usize>,
}

/// One use of a selector.
#[derive(Debug)]
pub(super) struct Selected {
    pub text: String,
    pub window: Millis,
    /// How far back, by `offset`; negative if forward.
    pub offset_millis: i64,
    /// Has `@`.
    pub fixed: bool,
    pub optional: bool,
    /// Is in a subquery.
    pub sampled: bool,
}

#[derive(Debug)]
struct Divided {
    offset: usize,
    denominator: Range<usize>,
    is_number: bool,
    when_zero: WhenZero,
}

impl Meaning {
    pub fn new(kind: Kind, values: Values, at: Range<usize>) -> Meaning {
        Meaning {
            kind,
            is_selector: false,
            values,
            selected: Vec::new(),
            exactness: Exactness::default(),
            divisions: Vec::new(),
            at,
        }
    }

    /// Takes over what other parts are about.
    pub fn with(mut self, parts: impl IntoIterator<Item = Meaning>) -> Meaning {
        for part in parts {
            append(&mut self.selected, part.selected);
            append(&mut self.divisions, part.divisions);
        }
        self
    }

    pub fn made_optional(mut self) -> Meaning {
        self.selected.iter_mut().for_each(|selected| selected.optional = true);
        self
    }

    /// Its divisions, with what a filter or an `or` makes of their outcome.
    fn map_divisions(&mut self, outcome: impl Fn(WhenZero) -> WhenZero) {
        for division in &mut self.divisions {
            division.when_zero = outcome(division.when_zero);
        }
    }

    pub fn into_analysis(self, query: &str) -> Analysis {
        let mut selectors: Vec<Selector> = Vec::new();
        for selected in self.selected {
            let past = selected.fixed || selected.offset_millis > 0;
            let known = selectors.iter_mut().find(|known| known.text == selected.text);
            let Some(known) = known else {
                let Selected { text, window, optional, sampled, .. } = selected;
                selectors.push(Selector { text, window, past, also_past: past, optional, sampled });
                continue;
            };
            known.window = match (known.past, past) {
                (true, false) => selected.window,
                (false, true) => known.window,
                _ => known.window.max(selected.window),
            };
            known.past &= past;
            known.also_past |= past;
            known.sampled |= selected.sampled;
            known.optional &= selected.optional;
        }
        let mut divisions: Vec<Division> = self
            .divisions
            .into_iter()
            .map(|divided| Division {
                offset: divided.offset,
                denominator: query[divided.denominator.clone()].to_owned(),
                denominator_at: divided.denominator,
                is_number: divided.is_number,
                when_zero: divided.when_zero,
            })
            .collect();
        divisions.sort_by_key(|division| division.offset);
        let mut inexact = self.exactness.faults;
        if selectors.is_empty() && inexact.is_empty() {
            inexact.push(Inexact { offset: self.at.start, what: "it reads no metric".into() });
        }
        inexact.sort_by_key(|fault| fault.offset);
        Analysis {
            selectors,
            is_number: self.kind == Kind::Number,
            divisions,
            never_negative: self.values.never_negative(),
            inexact,
        }
    }
}

/// Adds items to a list. The first ones become the list: a chain of operators
/// would copy all that is on its left for each of them.
fn append<T>(list: &mut Vec<T>, mut more: Vec<T>) {
    match list.is_empty() {
        true => *list = more,
        false => list.append(&mut more),
    }
}

/// What follows an operator.
pub(super) struct Operation {
    /// Of the operator.
    pub offset: usize,
    pub operator: String,
    pub truth: bool,
}

/// Two parts with an operator between them.
pub(super) fn joined(
    operation: &Operation,
    query: &str,
    mut left: Meaning,
    mut right: Meaning,
) -> Meaning {
    let operator = operation.operator.as_str();
    let exactness = exact::joined(operation, query, &mut left, &mut right);
    let at = left.at.start..right.at.end;
    let kind = match (left.kind, right.kind) {
        (Kind::Number, Kind::Number) => Kind::Number,
        _ => Kind::Vector,
    };
    let compares = COMPARISONS.contains(&operator);
    let mut divided = None;
    let values = match operator {
        "or" => {
            // What is no longer there has a value from the right side; what is
            // not a number is a value.
            left.map_divisions(|outcome| match outcome {
                WhenZero::Nothing => WhenZero::Value,
                other => other,
            });
            (left, right) = (left.made_optional(), right.made_optional());
            left.values.either(right.values)
        }
        "and" => left.values,
        "unless" => {
            right = right.made_optional();
            left.values
        }
        _ if compares && operation.truth => Values::between(0.0, 1.0),
        _ if compares => {
            // No comparison with what is not a number holds, except `!=`.
            if operator != "!=" {
                for side in [&mut left, &mut right] {
                    side.map_divisions(|outcome| match outcome {
                        WhenZero::NotANumber => WhenZero::Nothing,
                        other => other,
                    });
                }
            }
            match (left.kind, right.kind) {
                // The values are always those of the vector.
                (Kind::Number, Kind::Vector) => {
                    right.values.filtered(mirrored(operator), left.values)
                }
                _ => left.values.filtered(operator, right.values),
            }
        }
        _ => {
            if matches!(operator, "/" | "%") {
                divided = divide(operation, &left, &right);
            }
            Values::combined(operator, left.values, right.values)
        }
    };
    let mut whole = Meaning::new(kind, values, at).with([left, right]);
    whole.divisions.extend(divided);
    whole.exactness = exactness;
    whole
}

/// The comparison with its sides exchanged.
fn mirrored(comparison: &str) -> &str {
    match comparison {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        same => same,
    }
}

/// `None`: the denominator is a constant other than 0.
fn divide(operation: &Operation, numerator: &Meaning, denominator: &Meaning) -> Option<Divided> {
    let values = denominator.values;
    if values.only().is_some_and(|only| only != 0.0) {
        return None;
    }
    let when_zero = match (values.nonzero, values.filtered) {
        (true, true) => WhenZero::Nothing,
        (true, false) => WhenZero::Value,
        (false, _) if operation.operator == "/" && numerator.values.nonzero => WhenZero::Infinite,
        (false, _) => WhenZero::NotANumber,
    };
    Some(Divided {
        offset: operation.offset,
        denominator: denominator.at.clone(),
        is_number: denominator.kind == Kind::Number,
        when_zero,
    })
}
