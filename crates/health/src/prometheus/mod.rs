//! Values from a Prometheus, over its HTTP interface.
//!
//! A query is evaluated at one instant, which is the least that a Prometheus can
//! be asked for: in the very moments in which a drain is needed it may be short
//! of everything. The same evaluation gives the time of the newest samples behind
//! the query, so that a value is never taken for newer than it is.

mod answer;
mod doubts;
mod stamps;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use drain::{Condition, Millis};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use crate::freshness::Basis;
use crate::http::{Client, Credentials, Endpoint, Failure};
use crate::secrets::Secrets;
use crate::{Health, Measuring, NoValue, Reading, counted, query_of};
use answer::{Answer, Nothing, Row};
use doubts::Doubts;
use stamps::{Memory, Stamps};

/// Bytes of a response.
const ANSWER_LEN_MAX: usize = 1 << 20;
/// How far back series are missed that have ended: a promotion that waits behind its fence
/// for longer is looked at by people.
const MISSED_MAX: Millis = Millis::from_secs(24 * 3600);

/// A Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    client: Client,
    path: String,
    /// For one measurement.
    time_max: Duration,
    /// Whose stamps were in the future.
    memory: Mutex<Memory>,
    /// What was logged against responses.
    doubts: Mutex<Doubts>,
    /// Not to be shown.
    secrets: Arc<Secrets>,
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
        let path = format!("{}/api/v1/query", endpoint.path().trim_end_matches('/'));
        let secrets = Arc::<Secrets>::default();
        let client = Client::new(endpoint, credentials, ANSWER_LEN_MAX, secrets.clone());
        let (memory, doubts) = Default::default();
        Ok(Prometheus { client, path, time_max, memory, doubts, secrets })
    }

    async fn read(&self, condition: &Condition, ended: Millis) -> Result<Reading, NoValue> {
        let ended = ended.min(MISSED_MAX);
        let query = query_of(condition)?;
        let basis = Basis::of(query)?;
        let start = Instant::now();
        let asked = stamps::query(query, &basis, condition.is_exact.then_some(ended));
        let Answer { mut rows, doubts } = self.evaluate(&asked).await?;
        self.weigh(condition, query, &doubts)?;
        let age = basis.age(&self.ages(&basis, &rows, ended)?)?;
        rows.retain(stamps::is_value);
        if rows.is_empty() {
            return Err(NoValue::NoSeries);
        }
        let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
        let (at, value) = counted(condition, &values);
        // What has become older since counts too.
        let waited = Millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
        let series = at.and_then(|at| rows[at].series(stamps::LABEL));
        let series = series.map(|series| self.secrets.excerpt(&series));
        Ok(Reading { value, series, age: age + waited, window: basis.window() })
    }

    /// What a response says against itself leaves an exact condition without a value, and
    /// is logged of another.
    fn weigh(&self, condition: &Condition, query: &str, doubts: &[String]) -> Result<(), NoValue> {
        let why = self.secrets.excerpt(&doubts.join("; "));
        if condition.is_exact && !doubts.is_empty() {
            return Err(NoValue::Partial { whom: self.name(), why });
        }
        let mut known = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_new(query, &why) {
            let (whom, condition) = (self.name(), condition.name.as_str());
            tracing::warn!(whom, condition, why, "the value of a condition may be incomplete");
        }
        Ok(())
    }

    /// How old the newest sample of each selector is, by the clock of the
    /// Prometheus itself. An error if its stamps prove nothing.
    fn ages(
        &self,
        basis: &Basis,
        rows: &[Row],
        ended: Millis,
    ) -> Result<Vec<Option<Millis>>, NoValue> {
        let all = Stamps::read(basis.selectors().count(), rows);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        for (selector, stamps) in basis.selectors().zip(&all) {
            memory.judge(selector, stamps, Instant::now())?;
            if stamps.has_ended && stamps.age().is_some() {
                return Err(NoValue::Vanished { selector: selector.to_owned(), within: ended });
            }
            memory.miss(selector, stamps, ended, Instant::now())?;
            if stamps.is_undefined {
                return Err(NoValue::Undefined { selector: selector.to_owned() });
            }
            if let Some((series, value)) = &stamps.negative {
                let selector = selector.to_owned();
                let series = series.as_deref().map(|series| self.secrets.excerpt(series));
                let series = series.unwrap_or_else(|| selector.clone());
                return Err(NoValue::Negative { selector, series, value: *value });
            }
        }
        Ok(all.iter().map(Stamps::age).collect())
    }

    /// The series of a query at this instant.
    async fn evaluate(&self, query: &str) -> Result<Answer, NoValue> {
        let form = format!("query={}", utf8_percent_encode(query, NON_ALPHANUMERIC));
        let answer = self.client.post(&self.path, form).await;
        let answer = answer.map_err(|failure| self.trouble(failure))?;
        let (whom, shown) = (self.name(), |text: &str| self.secrets.excerpt(text));
        if answer.status != 200 {
            let why = shown(&answer::complaint(&answer.body));
            return Err(NoValue::Refused { whom, status: answer.status, why });
        }
        answer::read(&answer.body, stamps::LABEL).map_err(|nothing| match nothing {
            Nothing::Garbled(why) => NoValue::Garbled { whom, why: shown(&why) },
            Nothing::Failed { status, why } => {
                NoValue::Failed { whom, status: shown(&status), why: shown(&why) }
            }
            Nothing::NotANumber => NoValue::NotANumber,
        })
    }

    fn trouble(&self, failure: Failure) -> NoValue {
        let whom = self.name();
        match failure {
            Failure::TooLong => {
                let why = format!("its response has more than {ANSWER_LEN_MAX} bytes");
                NoValue::Garbled { whom, why }
            }
            Failure::Broken(why) => NoValue::Unreachable { whom, why: self.secrets.excerpt(&why) },
            Failure::Credentials(why) => NoValue::Unreachable { whom, why },
        }
    }

    fn name(&self) -> String {
        format!("prometheus at {}", self.client.endpoint())
    }
}

impl Health for Prometheus {
    fn measure_within<'a>(&'a self, condition: &'a Condition, ended: Millis) -> Measuring<'a> {
        Box::pin(async move {
            timeout(self.time_max, self.read(condition, ended)).await.unwrap_or_else(|_| {
                let limit = Millis(u64::try_from(self.time_max.as_millis()).unwrap_or(u64::MAX));
                Err(NoValue::Late { whom: self.name(), limit })
            })
        })
    }
}
