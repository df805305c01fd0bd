//! One store, three servers, and what one seed does to them.

use drain::engine::Phase;
use lab::Chance;
use store::Lease;
use tempfile::TempDir;

use super::super::*;
use super::checkers::audit::{Answer, Said};
use super::checkers::{Violation, audit, driven, takeover, violation, writes};
use super::server::{Server, is_quiet};
use super::site::write_site;
use super::{PATIENCE, POLL};

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    Begin(Direction),
    Say,
    StopBeforeEffect,
    StopNow,
    Continue,
    TakeOver,
    Panic,
    Kill,
    Start,
    StartTwice,
    Drift,
    Wait,
}

/// A place for a server.
pub struct Place {
    name: &'static str,
    /// It has the name of another, on another host: their locks do not meet.
    is_twin: bool,
    pub server: Option<Server>,
    /// Another took its run over while it was stopped.
    has_lost: bool,
    /// The instance that was killed there last.
    former: Option<String>,
    /// What it had to panic since it was started.
    panics: u32,
}

pub struct Scenario {
    pub home: TempDir,
    pub chance: Chance,
    mutation: Option<Mutation>,
    pub places: Vec<Place>,
    store: Store,
    pub said: Vec<Said>,
    /// How many writes there were when a run was taken over, and under which epoch it
    /// was driven before.
    taken_over: Vec<(usize, u64)>,
    /// How often knobs were changed since the last run that a person began.
    pub drifts: u32,
    /// For the one who looks for the cause.
    pub trace: Vec<String>,
}

const HAPPENINGS: usize = 14;
/// More make a run wait for longer than a scenario lasts.
const PANICS_MAX: u32 = 2;

impl Scenario {
    pub async fn new(seed: u64, mutation: Option<Mutation>) -> Scenario {
        let home = TempDir::new().unwrap();
        let mut chance = Chance::new(seed);
        write_site(home.path(), chance.happens(500));
        let has_twin = chance.happens(300);
        let third = if has_twin { "one" } else { "three" };
        let places = [("one", has_twin), ("two", false), (third, has_twin)];
        let place = |(name, is_twin)| Place {
            name,
            is_twin,
            server: None,
            has_lost: false,
            former: None,
            panics: 0,
        };
        let store = Store::open(home.path().join("drain.db")).await.unwrap();
        Scenario {
            home,
            chance,
            mutation,
            places: places.into_iter().map(place).collect(),
            store,
            said: Vec::new(),
            taken_over: Vec::new(),
            drifts: 0,
            trace: Vec::new(),
        }
    }

    pub async fn run(&mut self) -> Result<(), Violation> {
        for place in 0..self.places.len() {
            self.start(place).await?;
        }
        for _ in 0..HAPPENINGS {
            self.happens().await?;
        }
        self.end().await?;
        takeover::check(self.home.path(), &self.store, &self.taken_over).await?;
        self.is_audited().await
    }

    async fn happens(&mut self) -> Result<(), Violation> {
        let happening = self.draw().await;
        self.note(format!("{happening:?}"));
        match happening {
            Happening::Begin(direction) => self.begin(direction).await,
            Happening::Say => self.say_something().await,
            Happening::StopBeforeEffect => self.stop_before_effect(),
            Happening::StopNow => self.stop_now().await,
            Happening::Continue => self.go_on(),
            Happening::TakeOver => return self.take_over().await,
            Happening::Panic => return self.panic().await,
            Happening::Kill => self.kill_one().await,
            Happening::Start => return self.start_one().await,
            Happening::StartTwice => return self.start_twice().await,
            Happening::Drift => return self.drift().await,
            Happening::Wait => self.wait().await,
        }
        Ok(())
    }

    /// What happens next, of what makes a difference now.
    async fn draw(&mut self) -> Happening {
        use Happening::*;
        let faults = [
            (1, StopNow),
            (2, StopBeforeEffect),
            (1, Kill),
            (2, Start),
            (1, StartTwice),
            (2, Continue),
        ];
        let more: &[_] = match self.open_run().await {
            Some(_) => {
                &[(6, Wait), (3, Say), (4, TakeOver), (2, Panic), (1, Begin(Direction::Drain))]
            }
            None if self.is_drained().await => &[(8, Drift), (3, Begin(Direction::Restore))],
            None => &[(8, Begin(Direction::Drain)), (2, Begin(Direction::Restore))],
        };
        self.chance.weigh(&[&faults[..], more].concat())
    }

    pub fn draw_place(&mut self, is_meant: impl Fn(&Place) -> bool) -> Option<usize> {
        let meant: Vec<usize> =
            (0..self.places.len()).filter(|at| is_meant(&self.places[*at])).collect();
        (!meant.is_empty()).then(|| self.chance.pick(&meant))
    }

    pub fn note(&mut self, what: impl Into<String>) {
        self.trace.push(what.into());
    }

    pub fn server(&self, at: usize) -> &Server {
        self.places[at].server.as_ref().expect("a server is there")
    }

    /// Servers that answer.
    pub fn up(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|at| self.places[*at].is_up()).collect()
    }

    pub async fn open_run(&self) -> Option<store::Run> {
        let open = Filter { ended: Some(false), ..Filter::default() };
        self.store.runs(open, 1).await.unwrap().pop()
    }

    pub async fn run_of(&self, id: RunId) -> store::Run {
        self.store.run(id).await.unwrap()
    }

    /// The server that has the lease of a run.
    fn driver(&self, run: &store::Run) -> Option<usize> {
        let holder = run.holder.as_deref()?;
        let is_driver = |at: &usize| {
            let server = self.places[*at].server.as_ref();
            server.is_some_and(|server| server.holder() == holder)
        };
        (0..self.places.len()).find(is_driver)
    }

    /// Whether the last run that a person began is a drain that was completed,
    /// and all since then put back what it left.
    pub async fn is_drained(&self) -> bool {
        for run in self.store.runs(Filter::default(), 100).await.unwrap() {
            if run.outcome.as_deref() != Some("completed") {
                return false;
            }
            if run.actor.contains("(uid ") {
                return run.direction == "drain";
            }
        }
        false
    }
}

impl Place {
    pub fn is_up(&self) -> bool {
        self.server.as_ref().is_some_and(|server| !server.is_stopped())
    }

    fn is_stopped(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_stopped)
    }
}

/// Servers.
impl Scenario {
    fn config(&self, at: usize) -> DrainConfig {
        let home = self.home.path();
        // Servers of one store have one key: entries by another would not be attested.
        config(self.places[at].name, home)
    }

    async fn start(&mut self, at: usize) -> Result<(), Violation> {
        let (home, name) = (self.home.path().to_owned(), self.places[at].name);
        if self.places[at].is_twin {
            let lock = home.join(format!("drain.db.{name}.lock"));
            // The first one finds none.
            let _ = std::fs::rename(lock, home.join("a lock of another host"));
        }
        self.note(format!("{at} ({name}) starts"));
        let before = self.open_run().await.and_then(|run| run.holder);
        match Server::start(self.config(at), &home, self.mutation).await {
            Ok(server) => self.places[at].server = Some(server),
            Err(why) => return violation(driven::NAME, format!("{name} does not start: {why}")),
        }
        (self.places[at].panics, self.places[at].has_lost) = (0, false);
        let former = self.places[at].former.take().filter(|_| !self.places[at].is_twin);
        match self.open_run().await {
            // It need not wait for the lease of its former self.
            Some(run) if former.is_some() && before == former => {
                self.note(format!("{at} goes on with the run of its former self"));
                self.is_driven(run.id).await
            }
            _ => Ok(()),
        }
    }

    /// Another server of the same name, on the same host.
    async fn start_twice(&mut self) -> Result<(), Violation> {
        let Some(at) = self.draw_place(|own| own.server.is_some() && !own.is_twin) else {
            return Ok(());
        };
        match Server::start(self.config(at), self.home.path(), self.mutation).await {
            Ok(_) => violation(driven::NAME, "two servers have one name"),
            Err(why) if why.contains("another server named") => Ok(()),
            Err(why) => violation(driven::NAME, why),
        }
    }

    async fn start_one(&mut self) -> Result<(), Violation> {
        match self.draw_place(|own| own.server.is_none()) {
            Some(at) => self.start(at).await,
            None => Ok(()),
        }
    }

    fn stop_before_effect(&mut self) {
        let Some(at) = self.draw_place(Place::is_up) else { return };
        self.note(format!("{at} stops before its next effect"));
        self.server(at).stop_before_effect();
    }

    async fn stop_now(&mut self) {
        let Some(at) = self.draw_place(Place::is_up) else { return };
        self.note(format!("{at} stops"));
        self.server(at).stop_now().await;
    }

    fn go_on(&mut self) {
        let Some(at) = self.draw_place(Place::is_stopped) else { return };
        let has_lost = std::mem::take(&mut self.places[at].has_lost);
        let more = if has_lost { " was taken over from, and" } else { "" };
        self.note(format!("{at}{more} continues"));
        self.server(at).go_on();
    }

    async fn kill_one(&mut self) {
        let Some(at) = self.draw_place(|own| own.server.is_some()) else { return };
        let run = self.open_run().await;
        let more = match run.is_some_and(|run| self.driver(&run) == Some(at)) {
            true => " while it drives",
            false => "",
        };
        self.note(format!("{at} is killed{more}"));
        let server = self.places[at].server.take().expect("a server is there");
        self.places[at].former = Some(server.holder().to_owned());
        server.kill().await;
    }

    /// A server that answers takes the run of one that does not.
    async fn take_over(&mut self) -> Result<(), Violation> {
        let Some(run) = self.open_run().await else { return Ok(()) };
        if self.driver(&run).is_some_and(|at| self.places[at].is_up()) {
            return Ok(());
        }
        let Some(at) = self.draw_place(Place::is_up) else { return Ok(()) };
        is_quiet(self.home.path()).await;
        self.note(format!("{at} takes run {} over", run.id));
        if let Some(lost) = self.driver(&run) {
            self.places[lost].has_lost = true;
        }
        self.expire(&run).await;
        let before = writes(self.home.path()).len();
        if !self.take_up(at).await {
            return Ok(());
        }
        self.taken_over.push((before, run.epoch));
        self.is_driven(run.id).await
    }

    /// Has a server look for open runs, twice at once: as it does by itself now
    /// and then, and after a panic. Whether both looks came to an end.
    async fn take_up(&self, at: usize) -> bool {
        let taken = self.server(at).call(async |drains| {
            let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
            let taken = tokio::join!(drains.take_up(&mut one), drains.take_up(&mut other));
            taken.0.is_ok() && taken.1.is_ok()
        });
        taken.await == Some(true)
    }

    /// The lease of a run runs out: so much time has passed.
    async fn expire(&self, run: &store::Run) {
        let Some(holder) = run.holder.clone() else { return };
        let lease = Lease { run: run.id, epoch: run.epoch, holder };
        // Unless somebody took it.
        let _ = self.store.renew(&lease, 0, 0).await;
    }

    /// The task that drives the run panics.
    async fn panic(&mut self) -> Result<(), Violation> {
        let Some(run) = self.open_run().await else { return Ok(()) };
        let Some(at) = self.driver(&run).filter(|at| self.places[*at].is_up()) else {
            return Ok(());
        };
        if self.server(at).is_to_stop() || self.places[at].panics >= PANICS_MAX {
            return Ok(());
        }
        self.note(format!("the task of run {} panics at {at}", run.id));
        self.server(at).panics_next();
        let deadline = Instant::now() + PATIENCE;
        while self.server(at).is_to_panic() && Instant::now() < deadline {
            if self.run_of(run.id).await.outcome.is_some() {
                // It may have panicked after the last record, or drive another run.
                self.places[at].panics += u32::from(self.server(at).call_panic_off());
                return Ok(());
            }
            sleep(POLL).await;
        }
        self.places[at].panics += 1;
        self.panic_is_shown(at, run.id).await?;
        self.is_driven(run.id).await
    }

    /// Whether the server that panicked says so, counted and with the reason, for
    /// as long as the run stands still.
    async fn panic_is_shown(&self, at: usize, run: RunId) -> Result<(), Violation> {
        let panics = self.places[at].panics;
        let mut shown = driven::Shown::new(panics);
        // A run whose task panicked after the last record is over, and does not stand still.
        while !shown.is_over() && self.run_of(run).await.outcome.is_none() {
            let seen = self.server(at).call(async move |drains| {
                let mut page = crate::metrics::Page::default();
                write_metrics(&drains, &mut page).await;
                let status = drains.status(run).await.ok();
                (status.and_then(|status| status.stands_still.clone()), page.text().to_owned())
            });
            let Some((reason, metrics)) = seen.await else { return Ok(()) };
            shown.take(reason.as_deref(), &metrics);
            sleep(POLL).await;
        }
        if self.run_of(run).await.outcome.is_some() { Ok(()) } else { shown.check() }
    }

    /// Whether exactly one server drives a run, within a bounded time, and stays
    /// the one: it alone does what an operator says.
    async fn is_driven(&mut self, run: RunId) -> Result<(), Violation> {
        let mut sole = driven::Sole::default();
        while !sole.is_over() {
            let up = self.up();
            let mut drivers = Vec::new();
            for at in up.iter().copied() {
                let said = self.say(at, run, &Verb::Resume { task: None }, "resume all").await;
                drivers.extend(matches!(said, Answer::Acknowledged(_)).then_some(at));
            }
            let found = self.run_of(run).await;
            // One that has just stopped may have been the driver.
            if found.outcome.is_some() || up.is_empty() || up != self.up() {
                return Ok(());
            }
            sole.take(drivers, &found)?;
            sleep(POLL).await;
        }
        Ok(())
    }
}

/// The end: no more faults.
impl Scenario {
    async fn end(&mut self) -> Result<(), Violation> {
        self.note("no more faults");
        for at in 0..self.places.len() {
            match &self.places[at].server {
                Some(server) => server.go_on(),
                None => self.start(at).await?,
            }
        }
        let deadline = Instant::now() + 3 * PATIENCE;
        while let Some(run) = self.open_run().await {
            if Instant::now() > deadline {
                let status = self.server(0).drains.status(run.id).await;
                return violation(driven::NAME, format!("it does not end: {run:?} {status:#?}"));
            }
            self.help(&run).await?;
        }
        Ok(())
    }

    /// Does what operators do so that a run ends.
    async fn help(&mut self, run: &store::Run) -> Result<(), Violation> {
        match self.driver(run) {
            None => {
                self.expire(run).await;
                self.take_up(0).await;
            }
            Some(at) => {
                self.is_driven(run.id).await?;
                let id = run.id;
                let status = self.server(at).call(async move |drains| drains.status(id).await.ok());
                let Some(Some(status)) = status.await else { return Ok(()) };
                for task in &status.tasks {
                    self.help_task(at, id, task).await;
                }
            }
        }
        sleep(POLL).await;
        Ok(())
    }

    async fn help_task(&mut self, at: usize, run: RunId, task: &status::TaskStatus) {
        let name = task.name.clone();
        match task.phase {
            Phase::Failed => {
                let action = format!("retry {name}");
                self.say(at, run, &Verb::Retry { task: name }, &action).await;
            }
            Phase::Running if task.asks.is_some() => {
                let action = format!("approve {name}");
                self.say(at, run, &Verb::Approve { task: name }, &action).await;
            }
            _ => {}
        }
    }

    async fn is_audited(&mut self) -> Result<(), Violation> {
        let servers = self.places.iter().filter_map(|own| own.server.as_ref());
        let keys: Vec<PublicKey> = servers.map(|own| own.drains.audit_key().clone()).collect();
        let deadline = Instant::now() + PATIENCE;
        // Heads are sent after their entries are on the disk.
        loop {
            let checked = audit::check(self.home.path(), &self.store, &keys, &self.said).await;
            if checked.is_ok() || Instant::now() > deadline {
                return checked;
            }
            sleep(POLL).await;
        }
    }

    /// Ends all servers.
    pub async fn close(&mut self) {
        for place in &mut self.places {
            if let Some(server) = place.server.take() {
                server.kill().await;
            }
        }
    }
}
