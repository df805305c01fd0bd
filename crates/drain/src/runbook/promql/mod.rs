//! What a query of PromQL is about: whether it is one, and if not, where it
//! stops to be; which series decide its value and how far back; and where it
//! divides by what may be 0.
//!
//! A check of syntax and of the types that decide whether a query has one value
//! at an instant. It is not the evaluator: what Prometheus may have learnt since,
//! such as new functions, passes. The parsers that exist say that a query is
//! wrong, but not where; here the place is the point.

mod exact;
mod functions;
mod lex;
mod meaning;
mod read;
mod values;

use std::fmt;
use std::ops::Range;

use super::words::{self, Piece};
use crate::time::Millis;

pub use exact::EXACT_RULE;

/// Bytes of a query. Who reads it, here or in the built-in scraper, takes a time
/// that is bounded by this and by [`PARTS_MAX`].
pub const QUERY_LEN_MAX: usize = 8192;
/// Numbers, selectors, functions and operators of a query.
pub const PARTS_MAX: u32 = 256;

const COMPARISONS: &[&str] = &["==", "!=", "<=", "<", ">=", ">"];

/// What a query consists of, as far as a drain needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// Each selector once.
    pub selectors: Vec<Selector>,
    /// It is a number, not a vector.
    pub is_number: bool,
    /// Every `/` and `%` whose denominator is not a constant other than 0, in
    /// the order of the query.
    pub divisions: Vec<Division>,
    /// The value is certainly not below 0.
    pub never_negative: bool,
    /// What can make 0 of something, in the order of the query.
    pub inexact: Vec<Inexact>,
}

/// A part of a query that can be 0, or have no value, where what it measures is not 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inexact {
    /// The byte of it.
    pub offset: usize,
    pub what: String,
}

/// Series that the value of a query is computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The instant selector in PromQL, without range, `offset` and `@`, so that
    /// `timestamp(…)` around it is a query.
    pub text: String,
    /// How far back from the evaluation its samples count: the sum of its range
    /// and of the ranges of the subqueries around it. Of several uses, the
    /// longest one that is about the present.
    pub window: Millis,
    /// Every use of it has `offset` or `@`: it says nothing about the present.
    pub past: bool,
    /// A use of it has.
    pub also_past: bool,
    /// A use of it is in a subquery, which may pass over its newest samples.
    pub sampled: bool,
    /// The query may have a value without it: it stands in `absent(…)`, or on a
    /// side of `or`, or behind `unless`.
    pub optional: bool,
}

/// A `/` or `%` of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Division {
    /// The byte of the operator.
    pub offset: usize,
    pub denominator: String,
    /// The bytes of the denominator.
    pub denominator_at: Range<usize>,
    /// The denominator is a number, not a vector.
    pub is_number: bool,
    pub when_zero: WhenZero,
}

/// What a query has where the denominator of a division is 0, which is mostly
/// where there is no traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenZero {
    /// A value: the denominator is never 0, or an `or` has a value for that.
    Value,
    /// NaN, as 0/0 is.
    NotANumber,
    /// An infinite value, as 1/0 is: it is a value, and breaches a bound.
    Infinite,
    /// Nothing: a filter such as `> 0` takes the element away.
    Nothing,
}

impl Division {
    /// The denominator can be 0, and nothing stands in for the value then.
    pub fn can_be_zero(&self) -> bool {
        self.when_zero != WhenZero::Value
    }
}

/// What is wrong with a query, and at which byte of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub offset: usize,
    pub what: String,
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}; {}", self.offset, self.what, self.remedy)
    }
}

impl std::error::Error for Fault {}

/// What a query consists of, or what is wrong with it.
pub fn analyse(query: &str) -> Result<Analysis, Fault> {
    read::read(query)
}

/// The bytes at which variables begin that stand for the name of a datacenter or of a
/// service, and are in no text: `lag_$dc` of `eu-1` would be a subtraction.
pub fn unquoted(query: &str) -> Vec<usize> {
    let masked = words::mask(query);
    // What is no PromQL is said elsewhere.
    let tokens = lex::lex(&masked).unwrap_or_default();
    let is_in_text = |at: usize| {
        tokens.iter().any(|(start, token)| {
            matches!(token, lex::Token::Text(text) if (*start..start + text.len()).contains(&at))
        })
    };
    let pieces = words::pieces(query).into_iter().filter_map(|(at, _, piece)| match piece {
        Piece::Variable("dc" | "service") if !is_in_text(at) => Some(at),
        _ => None,
    });
    pieces.collect()
}

/// For people: where such a variable stands.
pub const UNQUOTED: &str = "a variable stands outside of quotes: `lag_$dc` of `eu-1` would be \
    `lag_eu - 1`";
/// What is accepted instead.
pub const QUOTED_RULE: &str = "accepted: variables in quotes, such as `lag{dc=\"$dc\"}` or \
    `{__name__=\"lag_$dc\"}`";

#[cfg(test)]
mod tests;
