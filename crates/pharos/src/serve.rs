//! A running server: its sockets, threads and loads, from start to stop.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use authority::{Change, NameHasher, Problems, Settings};
use serde::{Serialize, Serializer};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use wire::{CookieSecrets, Secret};

use crate::config::{Config, Cookies};
use crate::counters::{AllCounters, Via};
use crate::drains::Drains;
use crate::fleet::state::explain_absence;
use crate::fleet::{FleetState, Placements};
use crate::load::{KnownProblems, Load, Summary, ZoneDirectory};
use crate::node::{self, Node};
use crate::publish::{Publisher, Snapshot};
use crate::reload::{Reloads, ask_whole};
use crate::sockets::Sockets;
use crate::tcp::{TcpServer, ZoneAnswerer};
use crate::{admin, descriptors, random, tcp, udp};

/// Problems written to the log after one load; the rest is only counted.
const LOGGED_PROBLEMS_MAX: usize = 200;
/// How often old snapshots are looked for.
const SWEEP: Duration = Duration::from_millis(200);

/// Everything the parts of a running server share.
#[derive(Debug)]
pub struct Server {
    pub publisher: Arc<Publisher>,
    pub counters: AllCounters,
    pub tcp: Arc<TcpServer<ZoneAnswerer>>,
    pub reloads: Reloads,
    /// The zone files, if this server is an authority.
    directory: Option<Mutex<ZoneDirectory>>,
    loads: Mutex<Loads>,
    /// Shards and servers, if zones are placed on a fleet.
    pub fleet: Option<Arc<FleetState>>,
    cookies: Cookies,
    ready: AtomicBool,
    node: OnceLock<Arc<Node>>,
}

/// How loads of the zone directory went.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    pub succeeded: u64,
    pub failed: u64,
    pub last: Summary,
    /// What is wrong with the zone files, whenever it was found.
    pub problems: ProblemLines,
}

/// One line for each problem. Cloning shares them, so that whoever only wants
/// the counters beside them does not pay for them.
#[derive(Clone, Debug, Default)]
pub struct ProblemLines(Arc<[String]>);

impl Serialize for ProblemLines {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

/// What a load did, for whoever asked for it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub summary: Summary,
    pub zones: usize,
    pub records: usize,
    pub millis: u64,
    /// One line for each problem: of the files that were read, and of others
    /// that are still bad.
    pub problems: Vec<String>,
}

impl Server {
    /// A server with nothing loaded. Zones live where `placements` says, or
    /// else everywhere.
    pub fn new(
        config: &Config,
        placements: Option<Arc<dyn Placements>>,
    ) -> Result<Arc<Self>, String> {
        let hasher = NameHasher::new(random::octets());
        let settings = Settings {
            udp_payload: config.udp_payload,
            identity: config.identity.clone(),
            version: config.version.clone(),
            cookies: first_cookies(&config.cookies)?,
        };
        let fleet = match (&config.placing, config.fleet) {
            (Some(placing), Some(fleet)) => {
                Some(Arc::new(FleetState::open(placing, fleet, hasher)?))
            }
            _ => None,
        };
        let servers = config.fleet.map_or(0, |fleet| fleet.pool.servers() as usize);
        let all = || (0..=u16::MAX).take(servers).collect();
        let served = fleet.as_ref().map_or_else(all, |fleet| fleet.served());
        let publisher = Arc::new(Publisher::new(hasher, settings, served));
        if let Some(fleet) = &fleet {
            let own = fleet.own_zones(hasher)?.into_iter().map(Change::Put).collect();
            publisher.update(|old| Snapshot { catalog: old.catalog.with(own), ..old.clone() });
        }
        let placements = placements.or_else(|| fleet.clone().map(|fleet| fleet as _));
        let counters = AllCounters::default();
        Ok(Arc::new(Server {
            tcp: Arc::new(TcpServer::new(
                ZoneAnswerer::new(publisher.clone(), &counters),
                config.tcp,
            )),
            publisher,
            counters,
            reloads: Reloads::default(),
            directory: config
                .zones
                .clone()
                .map(|zones| Mutex::new(ZoneDirectory::new(zones, hasher, placements))),
            loads: Mutex::default(),
            fleet,
            cookies: config.cookies.clone(),
            ready: AtomicBool::new(false),
            node: OnceLock::new(),
        }))
    }

    /// The cache node of this server, if it is one.
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.get()
    }

    /// True once questions are answered.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// How loads went so far.
    pub fn loads(&self) -> Loads {
        lock(&self.loads).clone()
    }

    /// Reads the zone directory, or the files of `zones` alone, and serves
    /// what it found. On an error nothing has changed.
    pub fn load(&self, zones: &[String]) -> Result<Report, String> {
        if !self.is_ready() {
            return self.load_now(zones);
        }
        // Threads that a thread starts have its priority.
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                yield_to_answers();
                self.load_now(zones)
            });
            load.join().unwrap_or_else(|_| Err("the load failed; this is a bug".into()))
        })
    }

    fn load_now(&self, zones: &[String]) -> Result<Report, String> {
        let started = Instant::now();
        // First: moving servers off a sick host must not need healthy zones.
        let map_problem = match &self.fleet {
            Some(fleet) if zones.is_empty() => self.take_map(fleet),
            _ => None,
        };
        let Some(directory) = &self.directory else {
            return Ok(self.apply(Load::default(), started));
        };
        let mut directory = lock(directory);
        let serving = self.publisher.current();
        let progress = |done: usize, all: usize| tracing::info!(done, all, "reading zone files");
        let load = match zones {
            [] => directory.load(&serving.catalog, &progress),
            zones => directory.load_zones(zones, &serving.catalog),
        };
        let load = load.map_err(|error| {
            lock(&self.loads).failed += 1;
            error.to_string()
        })?;
        drop(serving);
        let touched = zones_of(&load, !zones.is_empty());
        let mut report = self.apply(load, started);
        if let Some(fleet) = &self.fleet {
            report.problems.extend(map_problem);
            report.problems.extend(self.settle(fleet, touched.as_deref()));
        }
        Ok(report)
    }

    /// Takes the map of hosts as it is now; returns what did not work.
    fn take_map(&self, fleet: &FleetState) -> Option<String> {
        let problem = match fleet.refresh_map() {
            Ok(None) => None,
            Ok(Some(path)) => Some(explain_absence(&path, fleet.host())),
            Err(error) => Some(error),
        };
        problem.iter().for_each(|problem| tracing::error!("{problem}"));
        self.publish_served(fleet);
        problem
    }

    /// Frees the shards of zones that are gone; returns what did not work. The
    /// zones are served all the same.
    fn settle(&self, fleet: &FleetState, zones: Option<&[Vec<u8>]>) -> Option<String> {
        let catalog = &self.publisher.current().catalog;
        let is_there = |hash| catalog.by_hash(hash).is_some();
        let problem = fleet.assignments.settle(zones, is_there, unix_secs()).err();
        problem.iter().for_each(|problem| tracing::error!("{problem}"));
        problem
    }

    /// Answers on the servers that the fleet gives this host now.
    pub fn publish_served(&self, fleet: &FleetState) {
        if self.publisher.current().served == fleet.served() {
            return;
        }
        // Asked again while nobody else can publish: an older set must not
        // overtake a newer one.
        self.publisher.update(|old| Snapshot { served: fleet.served(), ..old.clone() });
        let servers = self.publisher.current().served.len();
        tracing::info!(servers, "virtual name servers served here");
    }

    fn apply(&self, mut load: Load, started: Instant) -> Report {
        let changes = std::mem::take(&mut load.changes);
        if !changes.is_empty() {
            self.publisher
                .update(|old| Snapshot { catalog: old.catalog.with(changes), ..old.clone() });
        }
        log_problems(&load.problems, load.found);
        let totals = self.publisher.current().catalog.totals();
        let report = Report {
            summary: load.summary,
            zones: totals.zones,
            records: totals.records,
            millis: started.elapsed().as_millis() as u64,
            problems: problem_lines(&load, |known| known.is_new || known.problems.errors() > 0),
        };
        let mut loads = lock(&self.loads);
        loads.succeeded += 1;
        loads.last = load.summary;
        loads.problems = ProblemLines(problem_lines(&load, |_| true).into());
        report
    }

    /// Reads the file of secrets for cookies again, if there is one.
    pub fn reread_cookies(&self) {
        if self.cookies.secret_file.is_some() {
            self.renew_cookies();
        }
    }

    fn renew_cookies(&self) {
        if let Err(error) = self.rotate_cookies() {
            tracing::error!("the cookie secrets stay as they are: {error}");
        }
    }

    /// Draws or reads new secrets for cookies; the current one stays good.
    fn rotate_cookies(&self) -> Result<(), String> {
        if !self.cookies.enabled {
            return Ok(());
        }
        let from_file = match &self.cookies.secret_file {
            Some(path) => Some(read_secrets(path)?),
            None => None,
        };
        self.publisher.update(|old| {
            let mut next = old.clone();
            next.settings.cookies = Some(from_file.unwrap_or_else(|| CookieSecrets {
                current: Secret(random::octets()),
                previous: old.settings.cookies.map(|secrets| secrets.current),
            }));
            next
        });
        Ok(())
    }
}

/// The zones that a load changed, if it was one of some zones alone.
fn zones_of(load: &Load, is_partial: bool) -> Option<Vec<Vec<u8>>> {
    is_partial.then(|| load.changes.iter().map(|change| change.origin().to_vec()).collect())
}

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Gives the calling thread the lowest priority: a reload must not take the
/// cores from the threads that answer. Best effort.
fn yield_to_answers() {
    const LOWEST: i32 = 19;
    let _ = rustix::process::setpriority_process(None, LOWEST);
}

/// The lines of a file's problems.
fn lines(problems: &Problems) -> Vec<String> {
    problems.to_string().lines().map(str::to_owned).collect()
}

/// The lines of what `is_wanted`, and how much more there is.
fn problem_lines(load: &Load, is_wanted: impl Fn(&KnownProblems) -> bool) -> Vec<String> {
    let wanted = load.problems.iter().filter(|known| is_wanted(known));
    let mut all: Vec<String> = wanted.flat_map(|known| lines(&known.problems)).collect();
    if load.untold > 0 {
        let untold = load.untold;
        all.push(format!("and {untold} more problems in other files; `pharos zone check` has all"));
    }
    all
}

/// Logs what a load found: `found` problems, not all of which may be known.
fn log_problems(known: &[KnownProblems], found: usize) {
    let mut logged = 0;
    for KnownProblems { problems, .. } in known.iter().filter(|known| known.is_new) {
        for line in lines(problems) {
            if logged == LOGGED_PROBLEMS_MAX {
                break;
            }
            logged += 1;
            match problems.errors() {
                0 => tracing::warn!("{line}"),
                _ => tracing::error!("{line}"),
            }
        }
    }
    if found > logged {
        let more = found - logged;
        tracing::error!("and {more} more problems; `pharos zone check DIR/*.zone` lists them all");
    }
}

fn first_cookies(cookies: &Cookies) -> Result<Option<CookieSecrets>, String> {
    match (cookies.enabled, &cookies.secret_file) {
        (false, _) => Ok(None),
        (true, Some(path)) => read_secrets(path).map(Some),
        (true, None) => {
            Ok(Some(CookieSecrets { current: Secret(random::octets()), previous: None }))
        }
    }
}

/// Reads one or two secrets, 32 hexadecimal digits each, one a line: the
/// current one and the one before it.
fn read_secrets(path: &Path) -> Result<CookieSecrets, String> {
    let failed = |what: String| {
        format!(
            "{}: {what}; accepted: one or two lines of 32 hexadecimal digits, the current secret \
             first",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let mut secrets = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate().filter(|(_, l)| !l.is_empty()) {
        let octets: Option<Vec<u8>> = (0..line.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(line.get(at..at + 2)?, 16).ok())
            .collect();
        // The line itself is never shown: it is a secret.
        let secret = octets.and_then(|octets| <[u8; 16]>::try_from(octets).ok());
        secrets.push(Secret(secret.ok_or_else(|| failed(format!("line {}", index + 1)))?));
    }
    match secrets[..] {
        [current] => Ok(CookieSecrets { current, previous: None }),
        [current, previous] => Ok(CookieSecrets { current, previous: Some(previous) }),
        _ => Err(failed(format!("{} secrets", secrets.len()))),
    }
}

/// Serves until told to stop; returns the exit code.
pub fn run(config: &Config, announce: impl FnOnce(&Sockets)) -> Result<u8, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("pharos-io")
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    // First of all: a signal that nobody watches kills the process.
    let mut signals = runtime.block_on(async { Signals::watch() })?;
    descriptors::provide(config);
    let sockets = Sockets::bind(config)?;
    // Its port is known now, also if the system chose it.
    let config = &Config { fleet: sockets.fleet, ..config.clone() };
    let server = Server::new(config, None)?;
    announce(&sockets);
    sockets.log_surprises();
    let Sockets { workers, tcp, admin, admin_address, cache, .. } = sockets;
    // Before runs are taken up: a server that does not start must not have driven any.
    let opened = || admin::socket::open(&config.control, config.control_group.as_ref());
    let control = runtime.block_on(async { opened() })?;
    let drains = match &config.drain {
        Some(own) => Some(runtime.block_on(Drains::start(own.clone()))?),
        None => None,
    };
    let hosts = admin::host::Hosts::new(config.admin, &config.admin_hosts);
    let started = admin::start(&server, drains.clone(), admin, admin_address, hosts, control);
    let _control = runtime.block_on(started)?;
    let started = Instant::now();
    let load = load_first(&server, config, &mut signals);
    let Some(report) = runtime.block_on(load)? else {
        // The load goes on until the process is gone, which is now.
        runtime.shutdown_background();
        return Ok(0);
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = start_workers(&server, workers, &stop)?;
    start_connections(&server, &runtime, tcp)?;
    if let (Some(own), Some(sockets)) = (&config.cache, cache) {
        let running = node::start(&server, config, own, sockets, &runtime, &stop)?;
        let _ = server.node.set(running.node);
        threads.extend(running.threads);
    }
    server.ready.store(true, Ordering::Release);
    say_ready(&report, started);
    runtime.block_on(async {
        wait(&server, &mut signals).await;
        if let Some(node) = server.node() {
            // Who cannot wait says so a second time.
            tokio::select! {
                () = node.part() => {}
                () = signals.stop() => {}
            }
        }
    });
    if let Some(drains) = drains {
        runtime.block_on(drains.stop());
    }
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let _ = thread.join();
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    let broken = server.loads().last.bad;
    if broken > 0 {
        tracing::warn!("stopped while {broken} zone files had errors");
    }
    Ok(if broken > 0 { crate::EXIT_BAD_ZONES } else { 0 })
}

/// Loads for the first time; nothing if told to stop meanwhile.
async fn load_first(
    server: &Arc<Server>,
    config: &Config,
    signals: &mut Signals,
) -> Result<Option<Report>, String> {
    let own = server.clone();
    let load = tokio::task::spawn_blocking(move || own.load(&[]));
    let loaded = tokio::select! {
        () = signals.stop() => {
            tracing::warn!("stopped before the zones were loaded");
            return Ok(None);
        }
        loaded = load => loaded.map_err(|_| "the load failed; this is a bug".to_owned())?,
    };
    let report = loaded.map_err(|error| {
        let zones = config.zones.as_deref().unwrap_or(Path::new(""));
        format!("the zone directory {} cannot be read: {error}", zones.display())
    })?;
    if config.strict && report.summary.bad > 0 {
        return Err(format!(
            "{} of {} zone files have errors and --strict was given; not started",
            report.summary.bad, report.summary.files
        ));
    }
    Ok(Some(report))
}

fn say_ready(report: &Report, started: Instant) {
    let bad = match report.summary.bad {
        0 => String::new(),
        bad => format!(", {bad} bad zone files (see the log)"),
    };
    crate::say(format_args!(
        "ready: {} zones, {} records, {} ms{bad}",
        report.zones,
        report.records,
        started.elapsed().as_millis()
    ));
}

pub fn start_workers(
    server: &Arc<Server>,
    workers: Vec<Vec<udp::Listener>>,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<std::thread::JoinHandle<()>>, String> {
    let mut threads = Vec::new();
    for (index, listeners) in workers.into_iter().enumerate() {
        let worker = udp::Worker {
            listeners,
            publisher: server.publisher.clone(),
            counters: server.counters.add(Via::Udp),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("pharos-udp-{index}"))
            .spawn(move || worker.run())
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        threads.push(thread);
    }
    Ok(threads)
}

pub fn start_connections(
    server: &Arc<Server>,
    runtime: &Runtime,
    listeners: Vec<tcp::Listener>,
) -> Result<(), String> {
    let _inside = runtime.enter();
    for tcp::Listener { socket, door } in listeners {
        let socket = tokio::net::TcpListener::from_std(socket)
            .map_err(|error| format!("cannot start: {error}"))?;
        runtime.spawn(server.tcp.clone().run(socket, door));
    }
    Ok(())
}

/// What the process is told by signals. One that comes while nobody asks is
/// not lost.
pub struct Signals {
    pub hangup: Signal,
    pub terminate: Signal,
    pub interrupt: Signal,
}

impl Signals {
    pub fn watch() -> Result<Self, String> {
        let open = |kind| signal(kind).map_err(|error| format!("cannot watch signals: {error}"));
        Ok(Signals {
            hangup: open(SignalKind::hangup())?,
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    /// Waits until the process is told to stop.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for the signal to stop; meanwhile reloads, rotates, and answers again
/// on servers whose time off is over.
async fn wait(server: &Arc<Server>, signals: &mut Signals) {
    let mut sweep = tokio::time::interval(SWEEP);
    let rotate = server.cookies.rotate;
    let mut rotate = tokio::time::interval_at(tokio::time::Instant::now() + rotate, rotate);
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.hangup.recv() => drop(ask_whole(server)),
            _ = sweep.tick() => {
                server.publisher.sweep();
                if let Some(fleet) = &server.fleet
                    && fleet.expire(Instant::now())
                {
                    server.publish_served(fleet);
                }
            }
            _ = rotate.tick() => server.renew_cookies(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Flags};

    #[test]
    fn a_load_alone_makes_no_server_ready() {
        let home = tempfile::tempdir().unwrap();
        let flags = Flags { zones: Some(home.path().into()), ..Flags::default() };
        let server = Server::new(&config::read(None, &flags).unwrap(), None).unwrap();
        server.load(&[]).unwrap();
        assert!(!server.is_ready(), "nobody answers yet");
    }
}
