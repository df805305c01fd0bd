//! Drains, as a server runs them: plans made from its runbooks, runs kept in
//! its store, each driven by a task of its own. Runs that were open when the
//! server stopped go on when it starts.

pub mod api;
mod clock;
pub mod command;
mod driving;
mod executor;
mod fleet;
mod ledger;
mod metrics;
mod outlook;
mod planning;
mod runbooks;
mod status;
mod survey;
#[cfg(test)]
mod tests;
mod verbs;
mod vigil;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drain::engine::{Command, Mode, Record, Run, check_said};
use drain::report::Report;
use drain::{Direction, Knob, Plan, Time};
use drivers::Drivers;
use health::{Credentials, Endpoint, Health, Prometheus, Scraper, ScraperSettings, Target};
use store::{Filter, NewRun, RunId, Store};
use tokio::sync::{oneshot, watch as watching};
use tokio::time::{Instant, sleep};

pub use executor::Handle;
pub use metrics::write as write_metrics;
pub use outlook::write_plan;
pub use runbooks::{read_file, read_files};
pub use status::Status;
pub use survey::Survey;

use clock::Clock;
use executor::{LEASE_MS, Message, World};
use ledger::direction_name;
use status::Unseen;
use verbs::Verb;

/// How long a measurement may take.
const MEASURE_TIME_MAX: Duration = Duration::from_secs(5);
/// How long runs may take to stop.
const PARTING_MAX: Duration = Duration::from_secs(3);
const PARTING_POLL: Duration = Duration::from_millis(10);

/// What `[drain]` says, ready to be used.
#[derive(Clone, Debug)]
pub struct DrainConfig {
    /// Who this is among those who could drive the same runs.
    pub name: String,
    pub store: PathBuf,
    pub runbooks: PathBuf,
    pub drivers: BTreeMap<String, drivers::Config>,
    pub health: HealthConfig,
}

/// Where values of conditions come from.
#[derive(Clone, Debug)]
pub enum HealthConfig {
    Prometheus { endpoint: Endpoint, credentials: Option<Credentials> },
    Scrape { targets: Vec<Target>, interval: Duration },
}

impl HealthConfig {
    fn start(self) -> Result<Arc<dyn Health>, String> {
        Ok(match self {
            HealthConfig::Prometheus { endpoint, credentials } => {
                Arc::new(Prometheus::new(endpoint, credentials, MEASURE_TIME_MAX)?)
            }
            HealthConfig::Scrape { targets, interval } => {
                let settings = ScraperSettings { interval, ..ScraperSettings::new(targets) };
                Arc::new(Scraper::start(settings))
            }
        })
    }
}

/// All drains of a server.
#[derive(Debug)]
pub struct Drains {
    name: String,
    runbooks: PathBuf,
    world: World,
    /// There is no Prometheus: queries are answered here.
    is_alone: bool,
    /// Runs that are driven here.
    driven: Mutex<BTreeMap<RunId, Handle>>,
    /// Runs that somebody else took, while this server was alive.
    lost: Mutex<BTreeSet<RunId>>,
    /// One look between runs at a time.
    looks: tokio::sync::Mutex<()>,
    /// Runs are begun one after the other: each counts for the limits of the
    /// next.
    begins: tokio::sync::Mutex<()>,
    /// What the last look between runs found, by datacenter.
    strays: Mutex<BTreeMap<String, vigil::Strays>>,
    /// When each knob was last found where a drain left it.
    settled: Mutex<BTreeMap<Knob, Time>>,
    stop: watching::Sender<bool>,
}

/// Why something was not done.
#[derive(Debug)]
pub enum Refused {
    /// There is nothing like that.
    Unknown(String),
    /// It cannot be done as things are.
    Conflict(String),
    /// It did not work.
    Failed(String),
}

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Self {
        Refused::Failed(error.to_string())
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Refused::Unknown(text) | Refused::Conflict(text) | Refused::Failed(text)) = self;
        f.write_str(text)
    }
}

/// What somebody wants to begin.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub datacenter: String,
    pub direction: Direction,
    pub mode: Mode,
    pub by: String,
    pub reason: String,
    /// Go on although the rest cannot carry the load below its lines.
    pub overload: bool,
}

impl Drains {
    /// Opens the store and takes up the runs that are open in it.
    pub async fn start(config: DrainConfig) -> Result<Arc<Drains>, String> {
        let store = Store::open(&config.store).await.map_err(|error| error.to_string())?;
        let drivers = Drivers::from_config(&config.drivers).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        // They may be mended before they are needed, but should be known to be wrong before.
        if let Some(why) = runbooks::complaint(&config.runbooks) {
            tracing::warn!("{why}");
        }
        let is_alone = matches!(config.health, HealthConfig::Scrape { .. });
        let health = config.health.start()?;
        let drains = Arc::new(Drains {
            name: config.name,
            runbooks: config.runbooks,
            world: World {
                store: Arc::new(store),
                drivers: Arc::new(drivers),
                health,
                clock: Clock::of_the_wall(),
                known: Arc::default(),
            },
            is_alone,
            driven: Mutex::default(),
            lost: Mutex::default(),
            looks: tokio::sync::Mutex::default(),
            begins: tokio::sync::Mutex::default(),
            strays: Mutex::default(),
            settled: Mutex::default(),
            stop: watching::Sender::new(false),
        });
        drains.take_up(&mut BTreeMap::new()).await.map_err(|refused| refused.to_string())?;
        tokio::spawn(drains.clone().keep_taking_up());
        tokio::spawn(drains.clone().keep_vigil());
        Ok(drains)
    }

    /// Stops driving; what is written stays, and is taken up at the next start,
    /// here or by whoever gets the file.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let deadline = Instant::now() + PARTING_MAX;
        while !self.driven().is_empty() && Instant::now() < deadline {
            sleep(PARTING_POLL).await;
        }
        if let Err(error) = self.world.store.fold().await {
            tracing::warn!("{error}");
        }
    }

    /// The plan and all records of a run.
    async fn records(&self, id: RunId) -> Result<(Plan, Vec<Record>), Refused> {
        fleet::records(&self.world.store, id).await
    }

    /// Begins a run; says what it may have to wait for, or does worse with.
    pub async fn begin(
        self: &Arc<Self>,
        mut wanted: Wanted,
    ) -> Result<(RunId, Vec<String>), Refused> {
        wanted.by = wanted.by.trim().to_owned();
        check_said(&wanted.by, &wanted.reason)
            .map_err(|refusal| Refused::Conflict(refusal.to_string()))?;
        self.end_put_back(&wanted).await;
        let _begins = self.begins.lock().await;
        let plan = self.plan(&wanted.datacenter, wanted.direction).await?;
        let survey = self.survey(&plan).await;
        // Better half of a drain than none when a datacenter burns: what cannot be done is then
        // seen at its task.
        if !survey.problems.is_empty() && wanted.mode == Mode::Drill {
            return Err(Refused::Conflict(survey.problems.join("\n")));
        }
        // What nobody would serve is the limits' matter in a disaster: it is held there.
        let foresight = survey.foresight;
        let fits = foresight.fits || (wanted.mode == Mode::Disaster && foresight.too_much <= 0.0);
        if !fits && !wanted.overload {
            return Err(Refused::Conflict(format!(
                "it does not fit: {}; `pharos plan {}` shows where; accepted: --overload, if that \
                 is better than the present state",
                outlook::misfit(&foresight),
                wanted.datacenter
            )));
        }
        let id = self.open(plan, &wanted.by, &wanted.reason, wanted.mode).await?;
        // In a disaster what is a problem else is borne.
        Ok((id, [survey.problems, survey.warnings].concat()))
    }

    /// Opens a run of a plan and drives it.
    async fn open(
        self: &Arc<Self>,
        plan: Plan,
        by: &str,
        reason: &str,
        mode: Mode,
    ) -> Result<RunId, Refused> {
        self.set_idle_clock();
        let now = self.world.clock.now();
        let (datacenter, direction) = (plan.datacenter.clone(), direction_name(plan.direction));
        let json = serde_json::to_string(&plan).expect("plans are JSON");
        let new = NewRun {
            datacenter: &datacenter,
            direction,
            plan: &json,
            actor: by,
            reason,
            at: now.0,
        };
        let (run, first) = Run::open(plan.into(), by, reason, mode, now);
        let first = ledger::step(&run, &first);
        let begun = self.world.store.begin_run(new, &self.name, LEASE_MS, &first).await;
        let lease = begun.map_err(|error| match error {
            store::Error::Open { .. } => Refused::Conflict(error.to_string()),
            other => other.into(),
        })?;
        let id = lease.run;
        tracing::info!(run = %id, datacenter, by, reason, "begun: {direction}");
        self.drive(run, lease);
        Ok(id)
    }

    /// Says something to a run; returns when it is on the disk.
    pub async fn say(
        &self,
        id: RunId,
        by: String,
        reason: String,
        verb: &Verb,
    ) -> Result<(), Refused> {
        let handle = self.handle(id).await?;
        let command: Command = verb.command(&handle.plan).map_err(Refused::Unknown)?;
        let (answer, answered) = oneshot::channel();
        // Blanks make no second person of the first.
        let by = by.trim().to_owned();
        let message = Message { by, reason, command, answer };
        let gone = || Refused::Conflict(format!("run {id} is not driven any more"));
        let mut status = handle.status.clone();
        if let Some(why) = &status.borrow().stands_still {
            return Err(Refused::Failed(format!(
                "run {id} stands still, and nothing was said to it: {why}"
            )));
        }
        handle.inbox.send(message).await.map_err(|_| gone())?;
        // Whoever says something is not left waiting for a disk that is full.
        let stalled = status.wait_for(|status| status.stands_still.is_some());
        tokio::select! {
            biased;
            said = answered => {
                said.map_err(|_| gone())?.map_err(|refusal| Refused::Conflict(refusal.to_string()))
            }
            Ok(status) = stalled => Err(Refused::Failed(format!(
                "run {id} stands still, and what was said counts when it goes on: {}",
                status.stands_still.as_deref().unwrap_or_default()
            ))),
        }
    }

    /// A run that is driven here.
    pub async fn handle(&self, id: RunId) -> Result<Handle, Refused> {
        if let Some(handle) = self.driven().get(&id) {
            return Ok(handle.clone());
        }
        let run = self.find(id).await?;
        Err(Refused::Conflict(match &run.outcome {
            Some(outcome) => format!("run {id} is over: {outcome}"),
            None => format!("run {id} is {}", self.driver(&run)),
        }))
    }

    pub async fn find(&self, id: RunId) -> Result<store::Run, Refused> {
        self.world.store.run(id).await.map_err(|error| match error {
            store::Error::NoSuchRun(_) => Refused::Unknown(error.to_string()),
            other => other.into(),
        })
    }

    /// How a run stands, or stood when it ended.
    pub async fn status(&self, id: RunId) -> Result<Arc<Status>, Refused> {
        if let Some(handle) = self.driven().get(&id) {
            return Ok(handle.status.borrow().clone());
        }
        let found = self.find(id).await?;
        let (plan, records) = self.records(id).await?;
        let now = records.last().map_or(self.world.clock.now(), |record| record.at);
        let run = Run::resume(plan.into(), &records);
        let run = run.map_err(|error| Refused::Failed(error.to_string()))?;
        let path = run.plan().foresee(&BTreeMap::new()).critical_path;
        let mut status = Status::of(&run, id, now, &Unseen::default(), &path);
        status.elsewhere = found.outcome.is_none().then(|| self.driver(&found));
        status.strayed = self.strayed_since(id, &status.datacenter);
        Ok(Arc::new(status))
    }

    /// What there is to say about a run.
    pub async fn report(&self, id: RunId) -> Result<Report, Refused> {
        self.find(id).await?;
        let (plan, records) = self.records(id).await?;
        Report::of(&plan, &records).map_err(|error| Refused::Failed(error.to_string()))
    }

    /// Runs, the newest first.
    pub async fn runs(&self, filter: Filter<'_>, limit: u32) -> Result<Vec<store::Run>, Refused> {
        Ok(self.world.store.runs(filter, limit).await?)
    }

    pub fn store(&self) -> &Store {
        &self.world.store
    }
}
