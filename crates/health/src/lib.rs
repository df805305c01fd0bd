//! How services are doing: what the conditions of a drain are compared with.
//!
//! A [`Health`] is asked for the value of a condition, and gives it within a
//! bounded time or says why there is none. There are two: [`Prometheus`], over
//! its HTTP interface, and [`Scraper`], which reads the metrics of services by
//! itself where there is no Prometheus.
//!
//! ```text
//!              ┌ prometheus   evaluated there at one instant ─── answer ────┐
//!  condition ──┤                                                            ├─▶ worst ─▶ reading
//!              └ query        parsed here, evaluated over ─ series ─────────┘
//!                                                             ▲
//!                        scrape ── page ──▶ exposition ───────┘
//! ```
//!
//! [`exposition`], [`series`], [`query`] (from the crate `metrics`) and the reading
//! of answers are plain functions of their arguments: they know no socket and no clock. What comes
//! from outside is taken for hostile: every length, count and wait is bounded.
#![forbid(unsafe_code)]

pub mod exposition;
mod freshness;
mod http;
mod prometheus;
mod scrape;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use drain::{Condition, Measurement, Millis, Source, Time};

pub use http::{Credentials, Endpoint};
pub use metrics::{query, series, worst};
pub use prometheus::Prometheus;
pub use scrape::{Scraper, ScraperSettings, Standing, Target};

/// Somebody who can be asked how services are doing.
pub trait Health: fmt::Debug + Send + Sync {
    /// The value that counts for a condition now: the worst of all that its
    /// query gives. Ends within a bounded time.
    fn measure<'a>(&'a self, condition: &'a Condition) -> Measuring<'a>;
}

/// A measurement under way.
pub type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Reading, NoValue>> + Send + 'a>>;

/// A value, and what it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Not a number if the query divides 0 by 0: there is no traffic.
    pub value: f64,
    /// The labels of the series that it is the value of, in PromQL.
    pub series: Option<String>,
    /// How old the newest sample is of the selector that is furthest behind.
    pub age: Millis,
    /// How far back from that sample data may lie that contributed.
    pub window: Millis,
}

impl Reading {
    /// The same in the time of whoever began to ask at `asked`: the value was
    /// computed later, so its data is not older than this says.
    pub fn measurement(&self, asked: Time) -> Measurement {
        let back = |time: Time, span: Millis| Time(time.0.saturating_sub(span.0));
        let to = back(asked, self.age);
        Measurement { value: self.value, from: back(to, self.window), to }
    }
}

/// Why there is no value, for people to read.
#[derive(Clone, Debug, PartialEq)]
pub enum NoValue {
    /// It cannot be reached, or hangs up.
    Unreachable { whom: String, why: String },
    /// A page of metrics that is not there, or is none.
    Unread { page: String, why: String },
    /// It took longer than it may.
    Late { whom: String, limit: Millis },
    /// It answers, but not with values.
    Refused { whom: String, status: u16, why: String },
    /// What it answers makes no sense.
    Garbled { whom: String, why: String },
    /// The query selects nothing.
    NoSeries,
    /// The series that a selector matches have ended: a value would be made of
    /// what was.
    Ended { selector: String },
    /// Samples are stamped in the future, or were a while ago: nobody knows when
    /// they were taken.
    Ahead { selector: String, lead: Option<Millis>, is_past: bool },
    /// A text.
    NotANumber,
    /// The query cannot be evaluated.
    Unanswerable(String),
    /// The condition reads a knob, which is not measured here.
    NotAQuery,
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoValue::Unreachable { whom, why } => write!(f, "{whom} does not answer: {why}"),
            NoValue::Unread { page, why } => write!(f, "{page} cannot be read: {why}"),
            NoValue::Late { whom, limit } => write!(f, "{whom} does not answer within {limit}"),
            NoValue::Refused { whom, status, why } => {
                write!(f, "{whom} refuses with status {status}: {why}")
            }
            NoValue::Garbled { whom, why } => write!(f, "{whom} answers nonsense: {why}"),
            NoValue::NoSeries => f.write_str("no series match"),
            NoValue::Ended { selector } => write!(f, "no live series match {selector}"),
            NoValue::Ahead { selector, lead, is_past } => {
                let lead = lead.map_or_else(String::new, |lead| format!("up to {lead} "));
                let (verb, ago) = match is_past {
                    true => ("were", format!(" less than {} ago", freshness::DISTRUST)),
                    false => ("are", String::new()),
                };
                write!(
                    f,
                    "samples of {selector} {verb} stamped {lead}in the future{ago}; accepted: \
                     exporters whose clock is right, or `honor_timestamps: false` in Prometheus"
                )
            }
            NoValue::NotANumber => f.write_str("what matches is not a number"),
            NoValue::Unanswerable(why) => write!(f, "the query cannot be evaluated: {why}"),
            NoValue::NotAQuery => f.write_str("the condition reads a knob and has no query"),
        }
    }
}

impl std::error::Error for NoValue {}

/// The query of a condition.
fn query_of(condition: &Condition) -> Result<&str, NoValue> {
    match &condition.source {
        Source::Query(query) => Ok(query),
        Source::Gauge(_) => Err(NoValue::NotAQuery),
    }
}

/// Whole seconds, not less, for people to read.
fn whole_secs(span: Millis) -> Millis {
    Millis::from_secs(span.0.div_ceil(1000))
}

/// What others wrote, cut short and in one line, to be shown to people.
fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    let printable = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut line: String = text.trim().chars().map(printable).take(CHARS_MAX).collect();
    if text.trim().chars().nth(CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}
