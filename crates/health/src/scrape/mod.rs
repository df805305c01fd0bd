//! Where there is no Prometheus: services are asked for their metrics by
//! ourselves, and queries are answered from what they said.
//!
//! A query may take seconds: it is evaluated on a thread of its own, over what was
//! known when it began, so that neither pages nor anybody else wait for it.

mod book;
mod page;
#[cfg(test)]
mod tests;
mod view;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use drain::{Condition, Millis, Time};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::exposition::{self, Format, PageBounds};
use crate::http::{Client, Credentials, Endpoint, Failure};
use crate::query::{Outcome, Query};
use crate::secrets::Secrets;
use crate::series::{Bounds, Counts};
use crate::{Health, Measuring, NoValue, Reading};
use book::{Book, Scrape};
use view::View;

pub use book::Standing;

/// Octets of a page.
const PAGE_LEN_MAX: usize = 4 << 20;
/// The plain format alone is asked for; who sends another is read as well as
/// can be.
const ACCEPT: &str = "text/plain;version=0.0.4, */*;q=0.1";
/// Queries that are evaluated at once; others wait their turn. Each keeps a processor
/// busy, and may keep a copy of all samples.
const EVALUATIONS_MAX: usize = 2;

/// A service that shows its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// With the path of the page: `http://web-1:9100/metrics`.
    pub endpoint: Endpoint,
    /// The label `job` of all its series; `instance` is host and port.
    pub job: String,
    pub credentials: Option<Credentials>,
}

/// What is read, how often, and how much of it is kept.
#[derive(Clone, Debug)]
pub struct ScraperSettings {
    pub targets: Vec<Target>,
    pub interval: Duration,
    /// For one measurement, from its request to its value.
    pub time_max: Duration,
    pub store: Bounds,
    pub page: PageBounds,
}

impl ScraperSettings {
    /// Every 10 seconds, with 5 seconds for a measurement, within the usual bounds.
    pub fn new(targets: Vec<Target>) -> Self {
        let (store, page) = Default::default();
        let (interval, time_max) = (Duration::from_secs(10), Duration::from_secs(5));
        ScraperSettings { targets, interval, time_max, store, page }
    }
}

/// Reads metrics until it is dropped, and answers queries from them.
pub struct Scraper {
    book: Arc<Mutex<Book>>,
    clock: Clock,
    secrets: Arc<Secrets>,
    time_max: Duration,
    /// Of evaluations.
    turns: Arc<Semaphore>,
    /// One for each target; they end with this.
    _tasks: JoinSet<()>,
}

impl fmt::Debug for Scraper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraper").field("standings", &self.standings()).finish_non_exhaustive()
    }
}

/// The time of day at the start, and from then on only forward: samples that
/// seem older than the last would be lost.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: Instant,
    time: Time,
}

impl Clock {
    fn new() -> Self {
        Clock { start: Instant::now(), time: time_of_day() }
    }

    fn now(&self) -> Time {
        let millis = self.start.elapsed().as_millis();
        self.time + Millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}

fn time_of_day() -> Time {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Time(u64::try_from(since_1970.unwrap_or_default().as_millis()).unwrap_or(0))
}

impl Scraper {
    /// Starts to read; needs a tokio runtime around it.
    pub fn start(settings: ScraperSettings) -> Scraper {
        let labels: Vec<_> = settings.targets.iter().map(labels).collect();
        let book = Arc::new(Mutex::new(Book::new(settings.store, labels.clone())));
        let secrets = Arc::<Secrets>::default();
        let (clock, mut tasks) = (Clock::new(), JoinSet::new());
        for (index, (target, labels)) in settings.targets.into_iter().zip(labels).enumerate() {
            let (name, path) = (target.endpoint.to_string(), target.endpoint.path().to_owned());
            let Target { endpoint, credentials, .. } = target;
            let reader = Reader {
                index,
                name,
                path,
                labels,
                client: Client::new(endpoint, credentials, PAGE_LEN_MAX, secrets.clone()),
                secrets: secrets.clone(),
                book: book.clone(),
                clock,
                page: settings.page,
                interval: settings.interval.max(Duration::from_millis(10)),
            };
            tasks.spawn(reader.run());
        }
        let turns = Arc::new(Semaphore::new(EVALUATIONS_MAX));
        Scraper { book, clock, secrets, time_max: settings.time_max, turns, _tasks: tasks }
    }

    /// What a query gives now. Evaluates it on the thread of the caller.
    pub fn evaluate(&self, query: &str) -> Result<Outcome, NoValue> {
        let query =
            Query::parse(query).map_err(|fault| NoValue::Unanswerable(fault.to_string()))?;
        let store = lock(&self.book).store().clone();
        query.evaluate(&store, self.clock.now()).map_err(NoValue::Unanswerable)
    }

    /// How each target is doing, in the order of the settings.
    pub fn standings(&self) -> Vec<Standing> {
        lock(&self.book).standings().to_vec()
    }

    /// What there was no room for.
    pub fn counts(&self) -> Counts {
        lock(&self.book).store().counts()
    }

    /// Measures on another thread, when it is its turn.
    async fn read(&self, condition: &Condition, ended: Millis) -> Result<Reading, NoValue> {
        let broke = |why: String| NoValue::Unanswerable(why);
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|closed| broke(closed.to_string()))?;
        let (book, clock) = (self.book.clone(), self.clock);
        let (secrets, condition) = (self.secrets.clone(), condition.clone());
        let measured = spawn_blocking(move || {
            // An evaluation that nobody waits for any more keeps its turn to its end.
            let _turn = turn;
            let view = View::of(&lock(&book), clock.now());
            view.measure(&condition, ended, &secrets)
        });
        measured.await.unwrap_or_else(|error| Err(broke(error.to_string())))
    }
}

/// `job` and `instance`.
fn labels(target: &Target) -> Vec<(String, String)> {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let job = Some(target.job.clone()).filter(|job| !job.is_empty());
    let job = job.map(|job| pair("job", job));
    job.into_iter().chain([pair("instance", target.endpoint.authority())]).collect()
}

/// Held for as long as it takes to copy something, and never while a query is evaluated.
fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health for Scraper {
    fn measure_within<'a>(&'a self, condition: &'a Condition, ended: Millis) -> Measuring<'a> {
        Box::pin(async move {
            let measured = timeout(self.time_max, self.read(condition, ended)).await;
            measured.unwrap_or_else(|_| Err(NoValue::Slow { limit: millis(self.time_max) }))
        })
    }
}

/// Reads the page of one target, again and again.
struct Reader {
    index: usize,
    name: String,
    path: String,
    /// What all its series get.
    labels: Vec<(String, String)>,
    client: Client,
    /// Not to be shown.
    secrets: Arc<Secrets>,
    book: Arc<Mutex<Book>>,
    clock: Clock,
    page: PageBounds,
    interval: Duration,
}

impl Reader {
    async fn run(self) {
        let mut ticks = interval(self.interval);
        // After a pause of this process, one look and not all that were missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_up = None;
        loop {
            ticks.tick().await;
            // Samples are as old as the question, not as the answer.
            let began = self.clock.now();
            let lines = match timeout(self.interval, self.read()).await {
                Ok(lines) => lines,
                Err(_) => Err(format!("no answer within {}", millis(self.interval))),
            };
            let scrape = Scrape { began, ended: self.clock.now(), ended_of_day: time_of_day() };
            let taken = self.take(scrape, lines);
            if was_up != Some(taken.is_ok()) {
                was_up = Some(taken.is_ok());
                match taken {
                    Ok(samples) => {
                        tracing::info!(page = self.name, samples, "reading metrics of a target")
                    }
                    Err(why) => {
                        tracing::warn!(page = self.name, why, "cannot read metrics of a target");
                    }
                }
            }
        }
    }

    /// Enters a page in the book; gives the number of its samples.
    fn take(
        &self,
        scrape: Scrape,
        lines: Result<Vec<exposition::Line>, String>,
    ) -> Result<usize, String> {
        let mut book = lock(&self.book);
        let lines = lines.and_then(|lines| {
            book.admit(self.index, scrape, &lines, &self.secrets)?;
            Ok(lines)
        });
        match lines {
            Ok(lines) => {
                book.read(self.index, scrape, &lines);
                Ok(lines.len())
            }
            Err(why) => {
                book.lost(self.index, scrape.began, &self.name, why.clone());
                Err(why)
            }
        }
    }

    async fn read(&self) -> Result<Vec<exposition::Line>, String> {
        let answer =
            self.client.get(&self.path, ACCEPT).await.map_err(|failure| match failure {
                Failure::TooLong => format!("its page has more than {PAGE_LEN_MAX} octets"),
                Failure::Broken(why) | Failure::Credentials(why) => why,
            })?;
        if answer.status != 200 {
            return Err(format!("status {}", answer.status));
        }
        let format = Format::of(answer.content_type.as_deref());
        let lines = exposition::read(&answer.body, format, self.page);
        let lines = lines.map_err(|fault| self.shown(&fault, &answer.body))?;
        match page::contradiction(&answer.body, &lines, &self.labels, &self.secrets) {
            Some(why) => Err(why),
            None => Ok(lines),
        }
    }

    /// A fault quotes the start of what is wrong, where the start of a secret would not
    /// be found.
    fn shown(&self, fault: &exposition::Fault, page: &[u8]) -> String {
        match self.secrets.are_in(page) {
            true => format!(
                "line {}: not shown, because the page repeats the credentials of the request",
                fault.line
            ),
            false => fault.to_string(),
        }
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
