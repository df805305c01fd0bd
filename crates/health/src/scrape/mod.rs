//! Where there is no Prometheus: services are asked for their metrics by
//! ourselves, and queries are answered from what they said.

mod book;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use drain::{Condition, Millis, Time};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::exposition::{self, Format, PageBounds};
use crate::freshness::{self, Basis, DISTRUST};
use crate::http::{Client, Credentials, Endpoint, Failure};
use crate::query::{Fault, Outcome, Query};
use crate::series::{Bounds, Counts};
use crate::{Health, Measuring, NoValue, Reading, counted, excerpt, query_of};
use book::{Book, Scrape};

pub use book::Standing;

/// Octets of a page.
const PAGE_LEN_MAX: usize = 4 << 20;
/// The plain format alone is asked for; who sends another is read as well as
/// can be.
const ACCEPT: &str = "text/plain;version=0.0.4, */*;q=0.1";

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
    pub store: Bounds,
    pub page: PageBounds,
}

impl ScraperSettings {
    /// Every 10 seconds, within the usual bounds.
    pub fn new(targets: Vec<Target>) -> Self {
        let (store, page) = Default::default();
        ScraperSettings { targets, interval: Duration::from_secs(10), store, page }
    }
}

/// Reads metrics until it is dropped, and answers queries from them.
pub struct Scraper {
    book: Arc<Mutex<Book>>,
    clock: Clock,
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
        let labels = settings.targets.iter().map(|target| {
            let pair = |name: &str, value: String| (name.to_owned(), value);
            let job = Some(target.job.clone()).filter(|job| !job.is_empty());
            let job = job.map(|job| pair("job", job));
            job.into_iter().chain([pair("instance", target.endpoint.authority())]).collect()
        });
        let book = Arc::new(Mutex::new(Book::new(settings.store, labels.collect())));
        let (clock, mut tasks) = (Clock::new(), JoinSet::new());
        for (index, target) in settings.targets.into_iter().enumerate() {
            let reader = Reader {
                index,
                name: target.endpoint.to_string(),
                path: target.endpoint.path().to_owned(),
                client: Client::new(target.endpoint, target.credentials, PAGE_LEN_MAX),
                book: book.clone(),
                clock,
                page: settings.page,
                interval: settings.interval.max(Duration::from_millis(10)),
            };
            tasks.spawn(reader.run());
        }
        Scraper { book, clock, _tasks: tasks }
    }

    /// What a query gives now.
    pub fn evaluate(&self, query: &str) -> Result<Outcome, NoValue> {
        let query =
            Query::parse(query).map_err(|fault| NoValue::Unanswerable(fault.to_string()))?;
        let outcome = query.evaluate(self.book().store(), self.clock.now());
        outcome.map_err(NoValue::Unanswerable)
    }

    /// How each target is doing, in the order of the settings.
    pub fn standings(&self) -> Vec<Standing> {
        self.book().standings().to_vec()
    }

    /// What there was no room for.
    pub fn counts(&self) -> Counts {
        self.book().store().counts()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, condition: &Condition, ended: Millis) -> Result<Reading, NoValue> {
        let ended = ended.min(DISTRUST);
        let text = query_of(condition)?;
        let unanswerable = |fault: Fault| NoValue::Unanswerable(fault.to_string());
        let query = Query::parse(text).map_err(unanswerable)?;
        let basis = Basis::of(text)?;
        let selectors = basis.selectors().map(Query::parse);
        let selectors = selectors.collect::<Result<Vec<_>, _>>().map_err(unanswerable)?;
        let doubts = basis.selectors().filter(|_| condition.is_exact).flat_map(|selector| {
            let vanished = NoValue::Vanished { selector: selector.to_owned(), within: ended };
            let undefined = NoValue::Undefined { selector: selector.to_owned() };
            [
                (freshness::ended(selector, ended), vanished),
                (freshness::undefined(selector), undefined),
            ]
        });
        let doubts =
            doubts.map(|(query, why)| Ok((Query::parse(&query).map_err(unanswerable)?, why)));
        let doubts = doubts.collect::<Result<Vec<_>, NoValue>>()?;
        let now = self.clock.now();
        let (ages, doubt, outcome) = {
            let book = self.book();
            let has_some = |query: &Query| {
                let outcome = query.evaluate(book.store(), now);
                outcome.is_ok_and(|outcome| !outcome.values().is_empty())
            };
            let doubt = doubts.iter().find(|(query, _)| has_some(query));
            // A target that is away, or was not read yet, may have the last word.
            let early = book.standings().iter().filter(|_| condition.is_exact);
            let early = early.cloned().find_map(Standing::into_doubt);
            let mut pairs = basis.selectors().zip(&selectors).filter(|_| condition.is_exact);
            let negative = pairs.find_map(|(text, selector)| {
                negative(text, &selector.evaluate(book.store(), now).ok()?)
            });
            let dropped = book.store().dropped_end().filter(|_| condition.is_exact);
            let dropped = dropped.filter(|at| now - *at < ended);
            let dropped = dropped.map(|_| NoValue::Dropped { within: ended });
            let doubt = doubt.map(|(_, why)| why.clone()).or(negative).or(early).or(dropped);
            let age = |selector: &Query| Some(now - selector.newest(book.store(), now)?);
            let ages: Vec<Option<Millis>> = selectors.iter().map(age).collect();
            (ages, doubt, query.evaluate(book.store(), now).map_err(NoValue::Unanswerable)?)
        };
        let age = basis.age(&ages);
        let values = outcome.values();
        let (at, value) = counted(condition, &values);
        match age {
            Ok(age) if !values.is_empty() && doubt.is_none() => {
                let series = at.and_then(|at| outcome.series(at));
                Ok(Reading { value, series, age, window: basis.window() })
            }
            // That a target is away is the likelier reason, and the more useful one.
            age => {
                let why = age.err().or(doubt).unwrap_or(NoValue::NoSeries);
                let down = self.standings().into_iter().find_map(Standing::into_trouble);
                Err(down.unwrap_or(why))
            }
        }
    }
}

/// What is wrong if series of a selector are negative: of the least of them.
fn negative(selector: &str, outcome: &Outcome) -> Option<NoValue> {
    let Outcome::Vector(elements) = outcome else { return None };
    let negative = elements.iter().filter(|element| element.value < 0.0);
    let least = negative.min_by(|a, b| a.value.total_cmp(&b.value))?;
    let series = excerpt(&least.labels.to_string());
    Some(NoValue::Negative { selector: selector.to_owned(), series, value: least.value })
}

impl Health for Scraper {
    fn measure_within<'a>(&'a self, condition: &'a Condition, ended: Millis) -> Measuring<'a> {
        Box::pin(async move { self.read(condition, ended) })
    }
}

/// Reads the page of one target, again and again.
struct Reader {
    index: usize,
    name: String,
    path: String,
    client: Client,
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
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines.and_then(|lines| {
            book.admit(self.index, scrape, &lines)?;
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
        exposition::read(&answer.body, format, self.page).map_err(|fault| fault.to_string())
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
