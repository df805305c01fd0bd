//! A part of PromQL, over the store of series.
//!
//! What is here means what it means to Prometheus; what is not is refused by
//! name when the query is parsed, so that a runbook is refused before its run
//! and not in the middle of it. The parser is our own: those that exist bring
//! some twenty crates, say that a query is wrong but not where, and accept all
//! that could not be evaluated here.

mod eval;
mod expr;
mod histogram;
mod lex;
mod pair;
mod parse;
mod range;
#[cfg(test)]
mod tests;

use std::fmt;

pub use drain::runbook::promql::QUERY_LEN_MAX;
use drain::{Millis, Time};

use crate::series::{Labels, Store};

/// How old the last sample of a series may be to be its value.
pub const LOOKBACK: Millis = Millis::from_secs(300);

/// A query that can be evaluated.
#[derive(Clone, Debug)]
pub struct Query {
    root: expr::Expr,
}

/// What a query gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Number(f64),
    /// No two with the same labels.
    Vector(Vec<Element>),
}

/// One series of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    pub labels: Labels,
    pub value: f64,
}

/// What is wrong with a query, and at which octet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub offset: usize,
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.offset + 1, self.what)
    }
}

impl Query {
    pub fn parse(text: &str) -> Result<Query, Fault> {
        parse::parse(text).map(|root| Query { root })
    }

    /// The newest sample of the series that is furthest behind, of those that a
    /// selector matches and that have not ended; `None` if there are none.
    pub fn newest(&self, store: &Store, now: Time) -> Option<Time> {
        eval::newest(&self.root, store, now)
    }

    /// What it gives at a moment; an error if series do not match one to one.
    pub fn evaluate(&self, store: &Store, now: Time) -> Result<Outcome, String> {
        eval::evaluate(&self.root, store, now)
    }
}

/// Whether a query can be evaluated without a Prometheus; if not, why and where.
pub fn check(text: &str) -> Result<(), String> {
    Query::parse(text).map(|_| ()).map_err(|fault| fault.to_string())
}

impl Outcome {
    /// The labels of one of them, in PromQL; `None` if it has none.
    pub fn series(&self, at: usize) -> Option<String> {
        let Outcome::Vector(elements) = self else { return None };
        let labels = elements.get(at)?.labels.unnamed();
        labels.iter().next().is_some().then(|| labels.to_string())
    }

    /// The values alone.
    pub fn values(&self) -> Vec<f64> {
        match self {
            Outcome::Number(value) => vec![*value],
            Outcome::Vector(elements) => elements.iter().map(|element| element.value).collect(),
        }
    }
}
