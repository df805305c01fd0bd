//! One store, three servers, and what one seed does to them.

use drain::engine::Phase;
use lab::Chance;
use store::Lease;
use tempfile::TempDir;

use super::super::*;
use super::checkers::audit::{Answer, Said};
use super::checkers::{Violation, audit, driven, kept, takeover, violation, writes};
use super::server::{Server, is_quiet};
use super::{PATIENCE, POLL};

const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {east: 10, west: 10}
drain:
  shift:
    template: TrafficShift
    with: {knob: "files:web-$dc", to: 0%}
    pace: {first: 40%, step_max: 40%, wait: 1ms, wait_max: 1ms}
  ASK
  off: {template: ConfigChange, with: {knob: "files:switch-$dc", content: "off"}, after: [AFTER]}
restore:
  on: {template: ConfigChange, with: {knob: "files:switch-$dc", content: original}}
  shift:
    template: TrafficShift
    with: {knob: "files:web-$dc", to: original}
    pace: {first: 50%, step_max: 50%, wait: 1ms, wait_max: 1ms}
    after: [on]
"#;
/// An operator has to agree, or the run waits.
const ASK: &str =
    r#"ask: {template: Approval, with: {question: "May the switch go off?"}, after: [shift]}"#;
const DB: &str = r#"
pharos: service/v1
service: db
traffic: stateful
user_facing: false
drain:
  promote:
    template: Promote
    with:
      knob: "files:primary"
      to: west
      fence: "files:fence-$dc"
      nearly_caught_up: {name: lag, gauge: "files:lag", at_most: 0, no_data: block}
      back_fence: "files:fence-west"
      back_caught_up: {name: lag-back, gauge: "files:lag", equals: 0, no_data: block}
restore:
  promote: {template: Promote, with: {knob: "files:primary", to: original}}
  unfence:
    template: ConfigChange
    with: {knob: "files:fence-$dc", content: original}
    after: [promote]
"#;
const EAST: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 100}, west: {capacity: 100}}
services: [web, db]
keep_drained: disaster
";
const KNOBS: [(&str, &str); 8] = [
    ("web-east", "1"),
    ("web-west", "1"),
    ("switch-east", "on"),
    ("switch-west", "on"),
    ("primary", "east"),
    ("fence-east", "open"),
    ("fence-west", "open"),
    ("lag", "0"),
];

/// Runbooks of a service with traffic and of one with a primary, and the knobs
/// of both.
pub fn write_site(home: &Path, asks: bool) {
    let web = match asks {
        true => WEB.replace("ASK", ASK).replace("AFTER", "ask"),
        false => WEB.replace("ASK", "").replace("AFTER", "shift"),
    };
    write_runbooks(home, &[("web", &web), ("db", DB), ("east", EAST)]);
    KNOBS.iter().for_each(|(knob, value)| put(home, knob, value));
}

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
struct Place {
    name: &'static str,
    /// It has the name of another, on another host: their locks do not meet.
    is_twin: bool,
    server: Option<Server>,
    /// Another took its run over while it was stopped.
    has_lost: bool,
    /// The instance that was killed there last.
    former: Option<String>,
    /// What it had to panic since it was started.
    panics: u32,
}

pub struct Scenario {
    home: TempDir,
    chance: Chance,
    mutation: Option<Mutation>,
    places: Vec<Place>,
    store: Store,
    said: Vec<Said>,
    /// How often knobs were changed since the last run that a person began.
    drifts: u32,
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
        takeover::check(self.home.path(), &self.store).await?;
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

    fn draw_place(&mut self, is_meant: impl Fn(&Place) -> bool) -> Option<usize> {
        let meant: Vec<usize> =
            (0..self.places.len()).filter(|at| is_meant(&self.places[*at])).collect();
        (!meant.is_empty()).then(|| self.chance.pick(&meant))
    }

    fn note(&mut self, what: impl Into<String>) {
        self.trace.push(what.into());
    }

    fn server(&self, at: usize) -> &Server {
        self.places[at].server.as_ref().expect("a server is there")
    }

    /// Servers that answer.
    fn up(&self) -> Vec<usize> {
        (0..self.places.len()).filter(|at| self.places[*at].is_up()).collect()
    }

    async fn open_run(&self) -> Option<store::Run> {
        let open = Filter { ended: Some(false), ..Filter::default() };
        self.store.runs(open, 1).await.unwrap().pop()
    }

    async fn run_of(&self, id: RunId) -> store::Run {
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
    async fn is_drained(&self) -> bool {
        for run in self.store.runs(Filter::default(), 100).await.unwrap() {
            if run.outcome.as_deref() != Some("completed") {
                return false;
            }
            if run.actor.starts_with("uid ") {
                return run.direction == "drain";
            }
        }
        false
    }
}

impl Place {
    fn is_up(&self) -> bool {
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
        let audit_key = home.join(format!("audit-{at}.key"));
        DrainConfig { audit_key, ..config(self.places[at].name, home) }
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
        if self.take_up(at).await { self.is_driven(run.id).await } else { Ok(()) }
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
                self.server(at).does_not_panic();
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
        while !shown.is_over() {
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
        shown.check()
    }

    /// Whether exactly one server drives a run, within a bounded time: exactly
    /// one does what an operator says.
    async fn is_driven(&mut self, run: RunId) -> Result<(), Violation> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let up = self.up();
            let mut drivers = Vec::new();
            for at in up.iter().copied() {
                let said = self.say(at, run, &Verb::Resume { task: None }, "resume all").await;
                drivers.extend(matches!(said, Answer::Acknowledged(_)).then_some(at));
            }
            let found = self.run_of(run).await;
            // One that has just stopped may have been the driver.
            let is_known = found.outcome.is_none() && !up.is_empty() && up == self.up();
            if !is_known || drivers.len() == 1 {
                return Ok(());
            }
            if drivers.len() > 1 || Instant::now() > deadline {
                let why = format!("run {run} is driven by {drivers:?} of {up:?}: {found:?}");
                return violation(driven::NAME, why);
            }
            sleep(POLL).await;
        }
    }
}

/// Operators.
impl Scenario {
    async fn begin(&mut self, direction: Direction) {
        let Some(at) = self.draw_place(Place::is_up) else { return };
        let (uid, reason) = self.someone();
        let wanted = Wanted {
            datacenter: "east".into(),
            direction,
            mode: Mode::Disaster,
            by: user(uid),
            reason: reason.clone(),
            overload: false,
        };
        let begun = self.server(at).call(async move |drains| {
            drains.begin(wanted).await.map(|(run, _)| run).map_err(|refused| refused.to_string())
        });
        let begun = begun.await;
        self.note(format!("{at} begins: {begun:?}"));
        let answer = match begun {
            Some(Ok(run)) => Answer::Acknowledged(run),
            Some(Err(_)) => Answer::Refused,
            None => Answer::None,
        };
        if answer != Answer::Refused {
            self.drifts = 0;
        }
        let action = format!("{} east", ledger::direction_name(direction));
        self.said.push(Said { uid, reason, action, answer });
    }

    /// Who says something, and a reason that nobody else gives.
    fn someone(&mut self) -> (u32, String) {
        let uid = self.chance.pick(&[1000, 1001, 1002]);
        (uid, format!("reason {}", self.said.len()))
    }

    async fn say(&mut self, at: usize, run: RunId, verb: &Verb, action: &str) -> Answer {
        let (uid, reason) = self.someone();
        let (why, verb) = (reason.clone(), verb.clone());
        let said =
            self.server(at).call(async move |drains| drains.say(run, user(uid), why, &verb).await);
        let answer = match said.await {
            Some(Ok(())) => Answer::Acknowledged(run),
            Some(Err(Refused::Failed(why))) if why.contains("counts when it goes on") => {
                Answer::None
            }
            Some(Err(_)) => Answer::Refused,
            None => Answer::None,
        };
        self.said.push(Said { uid, reason, action: action.to_owned(), answer });
        answer
    }

    async fn say_something(&mut self) {
        let Some(run) = self.open_run().await else { return };
        let Some(at) = self.draw_place(Place::is_up) else { return };
        let ask = || "web.ask".to_owned();
        let words = [
            (3, 0, Verb::Pause { task: None }, "pause all"),
            (3, 1, Verb::Resume { task: None }, "resume all"),
            (4, 2, Verb::Approve { task: ask() }, "approve web.ask"),
            (1, 3, Verb::Skip { task: ask() }, "skip web.ask"),
            (1, 4, Verb::Waive, "set the limits aside"),
            (1, 5, Verb::Abort { how: Abort::Hold }, "abort, hold"),
            (1, 6, Verb::Abort { how: Abort::Revert }, "abort, revert"),
        ];
        let weights: Vec<(u64, usize)> = words.iter().map(|own| (own.0, own.1)).collect();
        let (_, _, verb, action) = &words[self.chance.weigh(&weights)];
        let answer = self.say(at, run.id, verb, action).await;
        self.note(format!("{at} is told `{action}`: {answer:?}"));
    }

    /// Lets the open run go on for a while.
    async fn wait(&mut self) {
        let Some(run) = self.open_run().await else { return };
        let until = Instant::now() + Duration::from_millis(self.chance.among(50..600));
        while self.run_of(run.id).await.outcome.is_none() && Instant::now() < until {
            sleep(POLL).await;
        }
        let outcome = self.run_of(run.id).await.outcome;
        self.note(format!("run {}: {outcome:?}", run.id));
    }

    /// Somebody changes knobs of a drained datacenter, or a load balancer is
    /// reloaded.
    async fn drift(&mut self) -> Result<(), Violation> {
        self.places.iter().filter_map(|own| own.server.as_ref()).for_each(|server| {
            if server.is_to_stop() {
                server.go_on();
            }
        });
        if self.drifts >= drain::engine::DRIFTS_MAX || !self.is_drained().await {
            return Ok(());
        }
        let Some(at) = self.draw_place(Place::is_up) else { return Ok(()) };
        let home = self.home.path().to_owned();
        let changed: Vec<kept::Left> =
            kept::LEFT.into_iter().filter(|_| self.chance.happens(500)).collect();
        self.drifts += 1;
        self.note(format!("{changed:?} change, and {at} looks"));
        let before = writes(&home).len();
        changed.iter().for_each(|own| put(&home, own.knob, "1"));
        self.stays_drained(at, &changed, before).await?;
        // Whoever changed a primary puts it right.
        changed.iter().for_each(|own| put(&home, own.knob, own.value));
        Ok(())
    }

    async fn stays_drained(
        &mut self,
        at: usize,
        changed: &[kept::Left],
        before: usize,
    ) -> Result<(), Violation> {
        let home = self.home.path().to_owned();
        let deadline = Instant::now() + PATIENCE;
        let mut looked = false;
        while !looked || self.open_run().await.is_some() || !kept::is_back(&home, changed) {
            if Instant::now() > deadline {
                let values = changed.iter().map(|own| kept::value(&home, own.knob));
                let values: Vec<String> = values.collect();
                return violation(kept::NAME, format!("not put back: {changed:?}: {values:?}"));
            }
            let look = self.server(at).call(async |drains| {
                drains.look_between_runs().await.map_err(|refused| refused.to_string())
            });
            looked |= look.await.is_some_and(|look| look.is_ok());
            sleep(POLL).await;
        }
        kept::left_alone(&writes(&home)[before..])
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

/// Sets a knob at once, as others do it.
pub fn put(home: &Path, knob: &str, value: &str) {
    let new = home.join(format!("{knob}.new"));
    std::fs::write(&new, value).unwrap();
    std::fs::rename(new, home.join(knob)).unwrap();
}
