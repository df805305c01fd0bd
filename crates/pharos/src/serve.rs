//! A running server: its sockets, threads and loads, from start to stop.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use authority::{NameHasher, Problems, Settings};
use serde::{Serialize, Serializer};
use tokio::signal::unix::{SignalKind, signal};
use wire::{CookieSecrets, Secret};

use crate::config::{Config, Cookies};
use crate::counters::{AllCounters, Via};
use crate::load::{KnownProblems, Load, Summary, ZoneDirectory};
use crate::publish::{Publisher, Snapshot};
use crate::tcp::{self, TcpServer};
use crate::udp;
use crate::{admin, random};

/// Problems written to the log after one load; the rest is only counted.
const LOGGED_PROBLEMS_MAX: usize = 200;
/// How often old snapshots are looked for.
const SWEEP: Duration = Duration::from_millis(200);

/// Everything the parts of a running server share.
#[derive(Debug)]
pub struct Server {
    pub publisher: Arc<Publisher>,
    pub counters: AllCounters,
    pub tcp: Arc<TcpServer>,
    directory: Mutex<ZoneDirectory>,
    loads: Mutex<Loads>,
    cookies: Cookies,
    ready: AtomicBool,
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

/// The sockets of a server, bound before anything is loaded: a busy port is
/// known at once, not after a million zones.
#[derive(Debug)]
pub struct Sockets {
    workers: Vec<Vec<udp::Listener>>,
    tcp: Vec<std::net::TcpListener>,
    admin: std::net::TcpListener,
    pub addresses: Vec<SocketAddr>,
    pub admin_address: SocketAddr,
}

impl Sockets {
    /// Binds everything that `config` names.
    pub fn bind(config: &Config) -> Result<Self, String> {
        let mut workers: Vec<Vec<udp::Listener>> = (0..config.workers).map(|_| vec![]).collect();
        let mut tcp = Vec::new();
        let mut addresses = Vec::new();
        for &wanted in &config.listen {
            let failed = |what: &str, error: io::Error| explain_bind(what, wanted, &error);
            let listener = tcp::bind(wanted).map_err(|error| failed("TCP", error))?;
            // Port 0: UDP takes the port that TCP was given.
            let address = listener.local_addr().map_err(|error| failed("TCP", error))?;
            // Without this a second server would silently share the port.
            udp::check_free(address).map_err(|error| failed("UDP", error))?;
            for own in &mut workers {
                own.push(udp::Listener::bind(address).map_err(|error| failed("UDP", error))?);
            }
            tcp.push(listener);
            addresses.push(address);
        }
        let admin = tcp::bind(config.admin)
            .map_err(|error| explain_bind("admin HTTP", config.admin, &error))?;
        let admin_address = admin.local_addr().unwrap_or(config.admin);
        Ok(Sockets { workers, tcp, admin, addresses, admin_address })
    }
}

fn explain_bind(what: &str, address: SocketAddr, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there; stop it or choose another port",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; or choose a higher one"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this host has that address",
        _ => "check the address and the port",
    };
    format!("cannot listen on {address} ({what}): {error}; {hint}")
}

impl Server {
    /// A server with nothing loaded.
    pub fn new(config: &Config) -> Result<Arc<Self>, String> {
        let hasher = NameHasher::new(random::octets());
        let settings = Settings {
            udp_payload: config.udp_payload,
            identity: config.identity.clone(),
            version: config.version.clone(),
            cookies: first_cookies(&config.cookies)?,
        };
        let publisher = Arc::new(Publisher::new(hasher, settings));
        let counters = AllCounters::default();
        Ok(Arc::new(Server {
            tcp: Arc::new(TcpServer::new(publisher.clone(), config.tcp, &counters)),
            publisher,
            counters,
            directory: Mutex::new(ZoneDirectory::new(config.zones.clone(), hasher)),
            loads: Mutex::default(),
            cookies: config.cookies.clone(),
            ready: AtomicBool::new(false),
        }))
    }

    /// True once the first load is done.
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
        let mut directory = lock(&self.directory);
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
        Ok(self.apply(load, started))
    }

    fn apply(&self, mut load: Load, started: Instant) -> Report {
        let changes = std::mem::take(&mut load.changes);
        if !changes.is_empty() {
            self.publisher.update(|old| Snapshot {
                catalog: old.catalog.with(changes),
                settings: old.settings.clone(),
                generation: old.generation,
            });
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
        self.ready.store(true, Ordering::Release);
        report
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
    let sockets = Sockets::bind(config)?;
    let server = Server::new(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("pharos-io")
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    announce(&sockets);
    let Sockets { workers, tcp, admin, .. } = sockets;
    let control = runtime.block_on(async { admin::open_control(&config.control) });
    let owns_control = control.is_some();
    runtime.spawn(admin::serve_http(server.clone(), admin));
    if let Some(listener) = control {
        runtime.spawn(admin::serve_control(server.clone(), listener));
    }
    let started = Instant::now();
    let report = server.load(&[]).map_err(|error| {
        format!("the zone directory {} cannot be read: {error}", config.zones.display())
    })?;
    if config.strict && report.summary.bad > 0 {
        return Err(format!(
            "{} of {} zone files have errors and --strict was given; not started",
            report.summary.bad, report.summary.files
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let threads = start_workers(&server, workers, &stop)?;
    for listener in tcp {
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|error| format!("cannot start: {error}"))?;
        runtime.spawn(server.tcp.clone().run(listener));
    }
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
    runtime.block_on(wait(&server))?;
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let _ = thread.join();
    }
    if owns_control {
        let _ = std::fs::remove_file(&config.control);
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    let broken = server.loads().last.bad;
    if broken > 0 {
        tracing::warn!("stopped while {broken} zone files had errors");
    }
    Ok(if broken > 0 { crate::EXIT_BAD_ZONES } else { 0 })
}

fn start_workers(
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

/// Waits for the signal to stop; reloads and rotates meanwhile.
async fn wait(server: &Arc<Server>) -> Result<(), String> {
    let open = |kind| signal(kind).map_err(|error| format!("cannot watch signals: {error}"));
    let mut hangup = open(SignalKind::hangup())?;
    let mut terminate = open(SignalKind::terminate())?;
    let mut interrupt = open(SignalKind::interrupt())?;
    let mut sweep = tokio::time::interval(SWEEP);
    let rotate = server.cookies.rotate;
    let mut rotate = tokio::time::interval_at(tokio::time::Instant::now() + rotate, rotate);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = sweep.tick() => server.publisher.sweep(),
            _ = rotate.tick() => {
                if let Err(error) = server.rotate_cookies() {
                    tracing::error!("the cookie secrets stay as they are: {error}");
                }
            }
            _ = hangup.recv() => {
                let server = server.clone();
                tokio::task::spawn_blocking(move || reload(&server, &[]));
            }
        }
    }
}

/// Reloads and says in the log how it went.
pub fn reload(server: &Server, zones: &[String]) -> Result<Report, String> {
    if server.cookies.secret_file.is_some()
        && let Err(error) = server.rotate_cookies()
    {
        tracing::error!("the cookie secrets stay as they are: {error}");
    }
    let result = server.load(zones);
    match &result {
        Ok(report) => {
            let Summary { read, updated, removed, bad, kept, .. } = report.summary;
            tracing::info!(read, updated, removed, bad, kept, millis = report.millis, "reloaded");
        }
        Err(error) => tracing::error!("not reloaded, everything is served as before: {error}"),
    }
    result
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
