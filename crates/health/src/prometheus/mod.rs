//! Values from a Prometheus, over its HTTP interface.
//!
//! A query is asked over the last minute in fine steps. Where that is too much
//! (it takes too long, loads too many samples, the server is overloaded) it is
//! asked in coarser ones: health that is less exact is better than none, in the
//! very moments in which a drain is needed (Maelstrom, section 4.8). Which step
//! works is remembered for each query, and finer ones are tried again later.

mod answer;
mod resolution;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use drain::{Condition, Millis};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use crate::http::{Answer, Client, Credentials, Endpoint, Failure};
use crate::{Health, Measuring, NoValue, excerpt, query_of, worst};
use resolution::Resolutions;

pub use resolution::STEPS;

/// Octets of an answer.
const ANSWER_LEN_MAX: usize = 1 << 20;
/// What is looked at.
const WINDOW: Millis = Millis::from_secs(60);

/// A Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    client: Client,
    path: String,
    /// For all attempts of one measurement.
    time_max: Duration,
    resolutions: Mutex<Resolutions>,
}

/// Why an attempt gave nothing.
enum Trouble {
    /// Less might be possible.
    TooMuch(NoValue),
    /// It would be the same with any step.
    Certain(NoValue),
}

impl Prometheus {
    /// `endpoint` has the prefix of its paths, if there is one; a measurement
    /// takes at most `time_max`.
    pub fn new(
        endpoint: Endpoint,
        credentials: Option<Credentials>,
        time_max: Duration,
    ) -> Result<Self, String> {
        if endpoint.path().contains('?') {
            return Err(format!("{endpoint}: the URL of a Prometheus ends before the `?`"));
        }
        let path = format!("{}/api/v1/query_range", endpoint.path().trim_end_matches('/'));
        let client = Client::new(endpoint, credentials, ANSWER_LEN_MAX);
        Ok(Prometheus { client, path, time_max, resolutions: Mutex::default() })
    }

    /// The values of all series of a query that have one now.
    async fn values(&self, query: &str) -> Result<Vec<f64>, NoValue> {
        let deadline = Instant::now() + self.time_max;
        let first = self.resolutions().first(query, Instant::now());
        let mut last_words = self.late();
        for (index, step) in STEPS.iter().enumerate().skip(first) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // Coarser steps get their share of the time too.
            let limit = if index + 1 == STEPS.len() { left } else { left / 2 };
            match timeout(limit, self.attempt(query, *step)).await {
                Ok(Ok(values)) => {
                    self.resolutions().worked(query, index, Instant::now());
                    return Ok(values);
                }
                Ok(Err(Trouble::Certain(why))) => return Err(why),
                Ok(Err(Trouble::TooMuch(why))) => last_words = why,
                Err(_) => last_words = self.late(),
            }
        }
        Err(last_words)
    }

    async fn attempt(&self, query: &str, step: Millis) -> Result<Vec<f64>, Trouble> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let end_secs = now.unwrap_or_default().as_millis() as f64 / 1000.0;
        let answer = self.client.post(&self.path, form(query, end_secs, step)).await;
        let answer = answer.map_err(|failure| self.trouble(failure))?;
        if answer.status != 200 {
            return Err(self.refusal(&answer));
        }
        answer::values(&answer.body, end_secs, step).map_err(|why| {
            Trouble::Certain(match why {
                answer::Nothing::Garbled(why) => NoValue::Garbled { whom: self.name(), why },
                answer::Nothing::NoSeries => NoValue::NoSeries,
                answer::Nothing::Stale { age } => NoValue::Stale { age },
                answer::Nothing::NotANumber => NoValue::NotANumber,
            })
        })
    }

    fn trouble(&self, failure: Failure) -> Trouble {
        let whom = self.name();
        match failure {
            Failure::TooLong => {
                let why = format!("its answer has more than {ANSWER_LEN_MAX} octets");
                Trouble::TooMuch(NoValue::Garbled { whom, why })
            }
            Failure::Broken(why) | Failure::Credentials(why) => {
                Trouble::Certain(NoValue::Unreachable { whom, why })
            }
        }
    }

    /// What a status other than 200 says about smaller requests.
    fn refusal(&self, answer: &Answer) -> Trouble {
        let why = answer::complaint(&answer.body);
        // Of its own, Prometheus says 503 for a timeout, 422 for too many
        // samples, and 400 for too many points; proxies before it, the others.
        let is_too_much = match answer.status {
            413 | 422 | 429 | 500..=599 => true,
            400 => why.contains("maximum resolution"),
            _ => false,
        };
        let why = excerpt(&why);
        let refused = NoValue::Refused { whom: self.name(), status: answer.status, why };
        if is_too_much { Trouble::TooMuch(refused) } else { Trouble::Certain(refused) }
    }

    fn late(&self) -> NoValue {
        let limit = Millis(u64::try_from(self.time_max.as_millis()).unwrap_or(u64::MAX));
        NoValue::Late { whom: self.name(), limit }
    }

    fn name(&self) -> String {
        format!("prometheus at {}", self.client.endpoint())
    }

    fn resolutions(&self) -> std::sync::MutexGuard<'_, Resolutions> {
        self.resolutions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Health for Prometheus {
    fn measure<'a>(&'a self, condition: &'a Condition) -> Measuring<'a> {
        Box::pin(async move {
            let values = self.values(query_of(condition)?).await?;
            worst(condition.comparison, condition.bound, values).ok_or(NoValue::NotANumber)
        })
    }
}

/// A query over the last minute, or over one step if that is longer: the last
/// point is at the end in any case.
fn form(query: &str, end_secs: f64, step: Millis) -> String {
    let span = step.max(WINDOW);
    let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
    let start_secs = end_secs - span.as_secs_f64();
    // Prometheus would take values of up to 5 minutes ago for those of now.
    // Where this argument is not known yet it is passed over.
    format!(
        "query={query}&start={start_secs:.3}&end={end_secs:.3}&step={}&lookback_delta={}",
        step.as_secs_f64(),
        span.as_secs_f64()
    )
}
