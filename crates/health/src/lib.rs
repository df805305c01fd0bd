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
mod secrets;

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
    fn measure<'a>(&'a self, condition: &'a Condition) -> Measuring<'a> {
        self.measure_within(condition, freshness::DISTRUST)
    }

    /// The same. An exact condition has no value if one of its series ended within
    /// so long, which is at most as long as ended series can be seen.
    fn measure_within<'a>(&'a self, condition: &'a Condition, ended: Millis) -> Measuring<'a>;
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
    /// Its query is not evaluated within the time it may take.
    Slow { limit: Millis },
    /// It answers, but not with values.
    Refused { whom: String, status: u16, why: String },
    /// Its response does not call itself a success.
    Failed { whom: String, status: String, why: String },
    /// Of an exact condition: the response may not be all there is.
    Partial { whom: String, why: String },
    /// What it answers makes no sense.
    Garbled { whom: String, why: String },
    /// The query selects nothing.
    NoSeries,
    /// The series that a selector matches have ended: a value would be made of
    /// what was.
    Ended { selector: String },
    /// Series that a selector of an exact condition matched have ended a short
    /// while ago: what they would say is not known.
    Vanished { selector: String, within: Millis },
    /// Series have ended a short while ago and were dropped to make room for others:
    /// an exact condition may miss one of them.
    Dropped { within: Millis },
    /// A series that a selector of an exact condition matches is not a number.
    Undefined { selector: String },
    /// A series that a selector of an exact condition matches is negative: many
    /// exporters say -1 of what they do not know.
    Negative { selector: String, series: String, value: f64 },
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

impl NoValue {
    fn text(&self) -> String {
        match self {
            NoValue::Unreachable { whom, why } => format!("{whom} does not answer: {why}"),
            NoValue::Unread { page, why } => format!("{page} cannot be read: {why}"),
            NoValue::Late { whom, limit } => format!("{whom} does not answer within {limit}"),
            NoValue::Slow { limit } => format!(
                "the built-in scraper does not evaluate the query within {limit}; accepted: fewer \
                 conditions, or shorter queries over fewer series"
            ),
            NoValue::Refused { whom, status, why } => {
                format!("{whom} refuses with status {status}: {why}")
            }
            NoValue::Failed { whom, status, why } => {
                format!("{whom} responds with status `{status}`: {why}; accepted: `success`")
            }
            NoValue::Partial { whom, why } => format!(
                "the response of {whom} may be incomplete: {why}; accepted by an exact condition: \
                 no warnings, and a number for every series"
            ),
            NoValue::Garbled { whom, why } => format!("{whom} answers nonsense: {why}"),
            NoValue::NoSeries => "no series match".into(),
            NoValue::Ended { selector } => format!("no live series match {selector}"),
            NoValue::Vanished { selector, within } => format!(
                "series of {selector} ended less than {} ago, and may have had the last word; \
                 accepted: a query that selects none but the series that count",
                whole_secs(*within)
            ),
            NoValue::Dropped { within } => format!(
                "series that ended less than {} ago were dropped for want of room, and may have \
                 had the last word; accepted: exporters that show fewer series, or a Prometheus",
                whole_secs(*within)
            ),
            NoValue::Undefined { selector } => {
                format!("a series of {selector} is NaN: what it would say is not known")
            }
            NoValue::Negative { selector, series, value } => format!(
                "{series} is {value}: a negative value means unknown; accepted: 0 or more in every \
                 series of {selector}, or a query that selects none but the series that count"
            ),
            NoValue::Ahead { selector, lead, is_past } => {
                let lead = lead.map_or_else(String::new, |lead| format!("up to {lead} "));
                let (verb, ago) = match is_past {
                    true => ("were", format!(" less than {} ago", freshness::DISTRUST)),
                    false => ("are", String::new()),
                };
                format!(
                    "samples of {selector} {verb} stamped {lead}in the future{ago}; accepted: \
                     exporters whose clock is right, or `honor_timestamps: false` in Prometheus"
                )
            }
            NoValue::NotANumber => "what matches is not a number".into(),
            NoValue::Unanswerable(why) => format!("the query cannot be evaluated: {why}"),
            NoValue::NotAQuery => "the condition reads a knob and has no query".into(),
        }
    }
}

/// One line, whatever others wrote into it.
impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base::text::one_line(&self.text()))
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

/// The value that counts for a condition, and which one of all it is. An exact
/// condition says nothing while one of them is not a number.
fn counted(condition: &Condition, values: &[f64]) -> (Option<usize>, f64) {
    match values.iter().position(|value| value.is_nan()) {
        Some(at) if condition.is_exact => (Some(at), f64::NAN),
        _ => worst(condition.comparison, condition.bound, values.iter().copied()),
    }
}

/// Whole seconds, not less, for people to read.
fn whole_secs(span: Millis) -> Millis {
    Millis::from_secs(span.0.div_ceil(1000))
}

/// What others wrote, cut short and in one line, to be shown to people.
fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    base::text::excerpt(text, CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_forge_a_line_of_the_log() {
        let why = "bad\n2026-11-18 INFO over\u{2028}x\u{202e}y";
        assert_eq!(excerpt(why), "bad 2026-11-18 INFO over x?y");
        let whom = "prometheus".to_owned();
        let refused = NoValue::Refused { whom: whom.clone(), status: 422, why: why.into() };
        let unreachable = NoValue::Unreachable { whom, why: why.into() };
        let ended = NoValue::Ended { selector: "up{a=\"\u{202e}\"}".into() };
        for reason in [refused, unreachable, ended, NoValue::Unanswerable(why.into())] {
            let shown = reason.to_string();
            assert!(!shown.contains(['\n', '\u{2028}', '\u{202e}']), "{shown:?}");
        }
    }
}
