//! Drains, as a server runs them: plans made from its runbooks, runs kept in
//! its store, each driven by a task of its own. Runs that were open when the
//! server stopped go on when it starts.

pub mod api;
mod clock;
pub mod command;
mod custody;
mod driving;
mod executor;
mod fleet;
mod instance;
mod ledger;
mod metrics;
mod notify;
mod originals;
mod outlook;
mod planning;
mod probing;
mod runbooks;
mod sink;
mod status;
mod supervision;
mod survey;
mod tenure;
#[cfg(test)]
mod tests;
mod verbs;
mod verify;
mod vigil;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drain::engine::{Actor, Command, Mode, Record, Run, check_said};
use drain::report::Report;
use drain::{Direction, Knob, Plan, Time};
use drivers::Drivers;
use health::{Credentials, Endpoint, Health, Prometheus, Scraper, ScraperSettings, Target};
use jiff::tz::TimeZone;
use store::{AuditKey, Filter, NewRun, PublicKey, RunId, Store};
use tokio::sync::{oneshot, watch as watching};
use tokio::time::{Instant, sleep};

pub use executor::Handle;
pub use metrics::write as write_metrics;
pub use notify::Channel;
pub use outlook::write_plan;
pub use runbooks::{read_file, read_files};
pub use sink::Sink;
pub use status::Status;
pub use survey::Survey;

use clock::{Clock, LeaseClock};
use custody::Unreadable;
use executor::{Message, World};
use instance::Instance;
use ledger::direction_name;
use notify::Channels;
use planning::{Readings, Turn};
use status::{NeedKind, Unseen};
use supervision::{Panicked, keep_going};
use tenure::LEASE_MS;
use verbs::Verb;

/// How long a measurement may take.
/// What starts a command of an `exec` driver: this program, even if its file was replaced since.
const SUPERVISOR: [&str; 3] = ["/proc/self/exe", "supervise", "--"];
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
    /// Commands that tell people, by the name of their channel.
    pub notify: BTreeMap<String, Channel>,
    /// The channel that is told what waits for a person.
    pub alert: Option<String>,
    /// The file of the key that signs the audit log; made if there is none.
    pub audit_key: PathBuf,
    /// Where heads of the audit log go.
    pub audit_sink: Sink,
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
    instance: Instance,
    runbooks: PathBuf,
    readings: Readings,
    world: World,
    /// There is no Prometheus: queries are answered here.
    is_alone: bool,
    /// Runs that are driven here.
    driven: Mutex<BTreeMap<RunId, Handle>>,
    /// Runs whose task panicked, and how often that happened in all.
    panicked: Mutex<BTreeMap<RunId, Panicked>>,
    panics: AtomicU64,
    /// Open runs that cannot be driven on from what the store says of them.
    unreadable: Mutex<BTreeMap<RunId, Unreadable>>,
    /// Why the store cannot be written, as of the last probe.
    unwritable: Mutex<Option<String>>,
    /// Verifies what this server signs.
    audit_key: PublicKey,
    sink_failures: Arc<AtomicU64>,
    /// One look between runs at a time.
    looks: tokio::sync::Mutex<()>,
    /// Runs are begun one after the other: each counts for the limits of the
    /// next.
    begins: tokio::sync::Mutex<()>,
    /// Runs become this server's one after the other: two tasks that drive the
    /// same run would depose each other.
    takes: tokio::sync::Mutex<()>,
    /// What the last look between runs found, by datacenter.
    strays: Mutex<BTreeMap<String, vigil::Strays>>,
    closed_fences: Mutex<Vec<vigil::ClosedFence>>,
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
    /// What the store says of a run cannot be read, or is not what was written.
    Unreadable(String),
}

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Self {
        Refused::Failed(error.to_string())
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Unknown(text)
            | Refused::Conflict(text)
            | Refused::Failed(text)
            | Refused::Unreadable(text) => f.write_str(text),
        }
    }
}

/// What somebody wants to begin.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub datacenter: String,
    pub direction: Direction,
    pub mode: Mode,
    pub by: Actor,
    pub reason: String,
    /// Go on although the rest cannot carry the load below its lines.
    pub overload: bool,
    /// Of a restore: knobs and services that it does not bring back, and that nobody
    /// expects back.
    pub give_up: Vec<String>,
}

impl Drains {
    /// Opens the store and takes up the runs that are open in it.
    pub async fn start(config: DrainConfig) -> Result<Arc<Drains>, String> {
        // First: a store that another server of this name has is left as it is.
        let instance = Instance::claim(&config.store, &config.name)?;
        let store = Store::open(&config.store).await.map_err(|error| error.to_string())?;
        let audit_key = sign(&store, &config.audit_key).await?;
        config.audit_sink.check()?;
        // The program of a unit test is not this one.
        let supervisor =
            if cfg!(test) { Vec::new() } else { SUPERVISOR.map(String::from).to_vec() };
        let drivers = Drivers::from_config(&config.drivers, &supervisor).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })?;
        // They may be mended before they are needed, but should be known to be wrong before.
        if let Some(why) = runbooks::complaint(&config.runbooks) {
            tracing::warn!("{why}");
        }
        let is_alone = matches!(config.health, HealthConfig::Scrape { .. });
        let health = config.health.start()?;
        let store = Arc::new(store);
        let drains = Arc::new(Drains {
            instance,
            runbooks: config.runbooks,
            readings: Readings::default(),
            world: World {
                store: store.clone(),
                drivers: Arc::new(drivers),
                health,
                channels: Arc::new(Channels::new(config.notify, config.alert)),
                clock: Clock::of_the_wall(),
                lease_clock: LeaseClock::default(),
                known: Arc::default(),
                #[cfg(test)]
                faults: tests::Faults::default(),
            },
            is_alone,
            driven: Mutex::default(),
            panicked: Mutex::default(),
            panics: AtomicU64::new(0),
            unreadable: Mutex::default(),
            unwritable: Mutex::default(),
            audit_key,
            sink_failures: Arc::default(),
            looks: tokio::sync::Mutex::default(),
            begins: tokio::sync::Mutex::default(),
            takes: tokio::sync::Mutex::default(),
            strays: Mutex::default(),
            closed_fences: Mutex::default(),
            settled: Mutex::default(),
            stop: watching::Sender::new(false),
        });
        drains.send_heads(config.audit_sink).await?;
        drains.take_up(&mut BTreeMap::new()).await.map_err(|refused| refused.to_string())?;
        let own = drains.clone();
        drains.spawn("looking for open runs", move || own.clone().keep_taking_up());
        let own = drains.clone();
        drains.spawn("looking at knobs between runs", move || own.clone().keep_vigil());
        let own = drains.clone();
        drains.spawn("probing the store", move || own.clone().keep_probing());
        Ok(drains)
    }

    /// Has something done for as long as the server runs, whatever it panics at.
    fn spawn<F>(&self, what: &'static str, work: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.subscribe();
        tokio::spawn(async move { keep_going(what, stop, work).await });
    }

    /// Sends heads of the audit log away, from the present one on: it may not
    /// have been sent when the server was killed.
    async fn send_heads(&self, sink: Sink) -> Result<(), String> {
        let (send, heads) = tokio::sync::mpsc::unbounded_channel();
        let head = self.world.store.sent_head().await.map_err(|error| error.to_string())?;
        if head.head.entries > 0 {
            // Nobody has hung up yet.
            let _ = send.send(head);
        }
        #[cfg(test)]
        if tests::Mutation::HeadsUnsent.is_planted() {
            return Ok(());
        }
        self.world.store.send_heads_to(send);
        tokio::spawn(sink::keep_sending(sink, heads, self.sink_failures.clone()));
        Ok(())
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
    pub async fn begin(self: &Arc<Self>, wanted: Wanted) -> Result<(RunId, Vec<String>), Refused> {
        check_said(&wanted.by, &wanted.reason)
            .map_err(|refusal| Refused::Conflict(refusal.to_string()))?;
        self.end_put_back(&wanted).await;
        self.refuse_beside_open(&wanted.datacenter).await?;
        let turn = Turn::of(wanted.direction);
        let mut plan = self.plan(&wanted.datacenter, wanted.direction, turn).await?;
        give_up(&mut plan, &wanted.give_up)?;
        let survey = self.survey(&plan, turn).await;
        // Better half of a drain than none when a datacenter burns: what cannot be done is then
        // seen at its task.
        if !survey.problems.is_empty() && wanted.mode == Mode::Drill {
            return Err(Refused::Conflict(survey.problems.join("\n")));
        }
        if !survey.overlaps.is_empty() {
            return Err(Refused::Conflict(survey.overlaps.join("\n")));
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
        // No limit refuses a restore: it waits neither for drains that are begun nor for the
        // knobs that they read.
        let mut _begins = None;
        if wanted.direction == Direction::Drain {
            // Drivers may have taken their time: runs that began meanwhile count for the limits.
            _begins = Some(self.begins.lock().await);
            self.place(&mut plan).await?;
            if wanted.mode == Mode::Drill {
                let limits = plan.fleet.check_limits(&plan, Mode::Drill);
                limits.map_err(|reached| Refused::Conflict(format!("limit: {reached}")))?;
            }
        }
        let id = self.open(plan, wanted.by, &wanted.reason, wanted.mode).await?;
        // In a disaster what is a problem else is borne.
        Ok((id, [survey.problems, survey.warnings].concat()))
    }

    /// Refuses what the store would refuse, before anything is asked.
    async fn refuse_beside_open(&self, datacenter: &str) -> Result<(), Refused> {
        let of = Filter { datacenter: Some(datacenter), ended: Some(false), ..Filter::default() };
        let Some(open) = self.world.store.runs(of, 1).await?.pop() else { return Ok(()) };
        if let Some(own) = self.unreadable().get(&open.id) {
            return Err(Refused::Conflict(own.refusal(open.id)));
        }
        Err(Refused::Conflict(self.beside(&open)))
    }

    /// Opens a run of a plan and drives it.
    async fn open(
        self: &Arc<Self>,
        plan: Plan,
        by: Actor,
        reason: &str,
        mode: Mode,
    ) -> Result<RunId, Refused> {
        self.set_idle_clock();
        let now = self.world.clock.now();
        let plan = Plan { changed: self.last_change(now).await?, ..plan };
        let (datacenter, direction) = (plan.datacenter.clone(), direction_name(plan.direction));
        let json = serde_json::to_string(&plan).expect("plans are JSON");
        let actor = by.to_string();
        let new = NewRun {
            datacenter: &datacenter,
            direction,
            plan: &json,
            actor: &actor,
            reason,
            at: now.0,
        };
        let (run, first) = Run::open(plan.into(), by, reason, mode, now);
        let first = ledger::first_step(&run, &first, &json);
        let holder = self.instance.holder();
        // Until it is driven: it is in the store before, for all to take up.
        let _takes = self.takes.lock().await;
        let until = self.world.lease_clock.now() + LEASE_MS;
        let begun = self.world.store.begin_run(new, holder, until, &first).await;
        let lease = match begun {
            Ok(lease) => lease,
            Err(store::Error::Open { run, .. }) => {
                self.refuse_beside_open(&datacenter).await?;
                // It has ended since.
                let why =
                    format!("run {run} on {datacenter} had not ended; accepted: the same now");
                return Err(Refused::Conflict(why));
            }
            Err(other) => return Err(other.into()),
        };
        let id = lease.run;
        tracing::info!(run = %id, datacenter, by = actor, reason, "begun: {direction}");
        self.drive(run, lease);
        Ok(id)
    }

    /// When a run last changed something: now, if one is open.
    async fn last_change(&self, now: Time) -> Result<Option<Time>, Refused> {
        // However many were begun since: it may be older than all of them.
        let open = Filter { ended: Some(false), ..Filter::default() };
        if !self.world.store.runs(open, 1).await?.is_empty() {
            return Ok(Some(now));
        }
        // A clock that was ahead then must not hold this run up.
        Ok(self.world.store.last_end().await?.map(|at| Time(at).min(now)))
    }

    /// Says something to a run; returns when it is on the disk.
    pub async fn say(
        &self,
        id: RunId,
        by: Actor,
        reason: String,
        verb: &Verb,
    ) -> Result<(), Refused> {
        if let Verb::Abort { how } = verb
            && let Some(why) = self.undriven(id)
        {
            return self.close_undriven(id, by, reason, *how, &why).await;
        }
        let handle = self.handle(id).await?;
        let command: Command = verb.command(&handle.plan).map_err(Refused::Unknown)?;
        let (answer, answered) = oneshot::channel();
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

    /// Of the fences that a run left closed, those count that still are, or
    /// cannot be read.
    async fn drop_open_fences(&self, run: &Run, status: &mut Status) {
        let (plan, state) = (run.plan(), run.state());
        for (task, fence) in state.left_closed(plan) {
            let knob = plan.knob(fence.knob);
            let found = self.world.drivers.read(knob).await;
            if found.is_ok_and(|found| state.is_open(plan, task, fence.knob, &found)) {
                let name = knob.to_string();
                status.needs_person.retain(|need| {
                    need.kind != NeedKind::Fenced || need.knob.as_ref() != Some(&name)
                });
            }
        }
    }

    /// Of what a restore left behind, or did not leave at its value, that counts which
    /// nothing has brought back since.
    async fn drop_brought_back(&self, status: &mut Status) {
        let is_away_kind = |kind| matches!(kind, NeedKind::LeftBehind | NeedKind::NotBack);
        if !status.needs_person.iter().any(|need| is_away_kind(need.kind)) {
            return;
        }
        // What cannot be read is not known to be back.
        let Ok(originals) = self.world.store.originals(&status.datacenter).await else { return };
        let Ok(recorded) = fleet::recorded(&self.world, &status.datacenter).await else { return };
        let is_away = |name: &String| {
            originals.iter().any(|own| own.knob == *name)
                || recorded.iter().any(|own| own.services_away().any(|(own, _)| own == name))
        };
        status
            .needs_person
            .retain(|need| !is_away_kind(need.kind) || need.knob.as_ref().is_none_or(is_away));
    }

    /// A run that is driven here.
    pub async fn handle(&self, id: RunId) -> Result<Handle, Refused> {
        if let Some(handle) = self.driven().get(&id) {
            return Ok(handle.clone());
        }
        let run = self.find(id).await?;
        if let Some(own) = self.unreadable().get(&id) {
            return Err(Refused::Conflict(own.refusal(id)));
        }
        Err(Refused::Conflict(match (&run.outcome, self.panic_of(id)) {
            (Some(outcome), _) => format!("run {id} is over: {outcome}"),
            (None, Some(why)) => format!("run {id} stands still: {why}"),
            (None, None) => {
                let (driver, place) = (self.driver(&run), self.place_to_ask(&run));
                format!("run {id} is {driver}; accepted: the same{place}")
            }
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
        let driven = self.driven().get(&id).map(|handle| handle.status.borrow().clone());
        if let Some(mut status) = driven {
            let elsewhere = self.fences_elsewhere(id, status.now);
            if !elsewhere.is_empty() {
                Arc::make_mut(&mut status).needs_person.splice(0..0, elsewhere);
            }
            let strayed = self.strayed_since(id, &status.datacenter);
            if !strayed.is_empty() {
                Arc::make_mut(&mut status).strayed = strayed;
            }
            return Ok(status);
        }
        let found = self.find(id).await?;
        let mut status = match self.recorded_status(id).await {
            Err(Refused::Unreadable(why)) => {
                custody::bare_status(&found, self.world.clock.now(), why)
            }
            read => read?,
        };
        if let Some(outcome) = &found.outcome {
            custody::end(&mut status, outcome, found.ended_at);
        } else if let Some(own) = self.unreadable().get(&id) {
            own.tell(&mut status);
        } else if status.stands_still.is_none() {
            status.stands_still = self.panic_of(id);
            let is_here = status.stands_still.is_some();
            status.elsewhere = (!is_here).then(|| self.driver(&found));
        }
        status.strayed = self.strayed_since(id, &status.datacenter);
        self.drop_brought_back(&mut status).await;
        let elsewhere = self.fences_elsewhere(id, status.now);
        status.needs_person.splice(0..0, elsewhere);
        Ok(Arc::new(status))
    }

    /// How a run stands by its records alone.
    async fn recorded_status(&self, id: RunId) -> Result<Status, Refused> {
        let (plan, records) = self.records(id).await?;
        let last = records.last().map_or(Time(0), |record| record.at);
        let now = self.world.clock.now().max(last);
        let run = Run::resume(plan.into(), &records);
        let run = run.map_err(|error| Refused::Unreadable(error.to_string()))?;
        let mut status = Status::of(&run, id, now, &Unseen::default());
        if run.state().closed.is_some() {
            self.drop_open_fences(&run, &mut status).await;
        } else if let Some(why) = self.unwritable() {
            // Nobody can take it up.
            status.stand_still(&run, last, why);
        }
        Ok(status)
    }

    /// What there is to say about a run.
    pub async fn report(&self, id: RunId) -> Result<Report, Refused> {
        self.find(id).await?;
        let (plan, records) = self.records(id).await?;
        let report = Report::of(&plan, &records);
        let report = report.map_err(|error| Refused::Failed(error.to_string()))?;
        Ok(report.identified(id.0, &TimeZone::system()))
    }

    /// Runs, the newest first.
    pub async fn runs(&self, filter: Filter<'_>, limit: u32) -> Result<Vec<store::Run>, Refused> {
        Ok(self.world.store.runs(filter, limit).await?)
    }

    pub fn store(&self) -> &Store {
        &self.world.store
    }

    /// The key that signs the audit log here.
    pub fn audit_key(&self) -> &PublicKey {
        &self.audit_key
    }
}

/// Marks what the operator does not expect back from a restore.
fn give_up(plan: &mut Plan, names: &[String]) -> Result<(), Refused> {
    for name in names {
        let Some(own) = plan.left_behind.iter_mut().find(|own| own.name() == name) else {
            let known: Vec<&str> = plan.left_behind.iter().map(drain::LeftBehind::name).collect();
            return Err(Refused::Conflict(format!(
                "nothing named `{name}` is left behind by this run, so it cannot be given up; \
                 accepted: {}",
                if known.is_empty() { "nothing".into() } else { known.join(", ") }
            )));
        };
        own.is_given_up = true;
    }
    Ok(())
}

/// Has a store sign its audit log with the key in a file.
async fn sign(store: &Store, path: &std::path::Path) -> Result<PublicKey, String> {
    let head = store.audit_head().await.map_err(|error| error.to_string())?;
    let is_new = !path.exists();
    let key = AuditKey::open(path, &crate::random::octets(), head)?;
    let public = key.public().clone();
    if is_new {
        tracing::info!(
            key = %public.id(), "a key for the audit log was made: {}; keep {} elsewhere, it \
             verifies what is signed from entry {} on",
            path.display(), store::public_path(path).display(), head.entries + 1
        );
    }
    #[cfg(test)]
    if tests::Mutation::Unsigned.is_planted() {
        return Ok(public);
    }
    store.sign_with(key);
    Ok(public)
}
