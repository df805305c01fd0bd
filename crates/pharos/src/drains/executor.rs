//! Drives one run: what the engine decides is written down, then done, and
//! what came of it is told to the engine.
//!
//! One task owns the run, so everything about it happens in one order. Drivers
//! and measurements work beside it, each for a bounded time, and report back;
//! none of them is waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use drain::engine::{
    Actor, Command, Effect, EffectId, Ended, Event, Fact, InUse, Record, Refusal, Run, RunOutcome,
};
use drain::report::describe;
use drain::{ConditionId, KnobId, Measurement, Plan, Saying, Source, TaskId, Time, Value};
use drivers::{Drivers, Fence, Gauged};
use futures_util::FutureExt;
use store::{Claim, Claimed, Lease, RunId, Step, Store};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::clock::{Clock, LeaseClock};
use super::status::{NeedsPerson, Status, Unseen};
use super::tenure::{self, Tenure, boot_ms};
use super::{fleet, ledger, notify};
use health::Health;

/// How often conditions are measured: twice in the shortest wait of the plan,
/// within these bounds.
const MEASURE_MIN: Duration = Duration::from_millis(250);
const MEASURE_MAX: Duration = Duration::from_secs(2);
/// How often knobs that were turned are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often the lease is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How long to wait before writing again what could not be written.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
/// How often others are told how it stands.
const STATUS_EVERY: Duration = Duration::from_millis(250);

/// What people say to a run, and where its answer goes.
#[derive(Debug)]
pub struct Message {
    pub by: Actor,
    pub reason: String,
    pub command: Command,
    pub answer: oneshot::Sender<Result<(), Refusal>>,
}

/// What others hold of a run that goes on.
#[derive(Clone, Debug)]
pub struct Handle {
    pub plan: Arc<Plan>,
    pub inbox: mpsc::Sender<Message>,
    pub status: watch::Receiver<Arc<Status>>,
    pub events: broadcast::Sender<Arc<Record>>,
}

/// What a run needs of the world.
#[derive(Clone, Debug)]
pub struct World {
    pub store: Arc<Store>,
    pub drivers: Arc<Drivers>,
    pub health: Arc<dyn Health>,
    pub clock: Clock,
    /// Only for who holds a run until when.
    pub lease_clock: LeaseClock,
    pub channels: Arc<notify::Channels>,
    #[cfg(test)]
    pub faults: super::tests::Faults,
    /// What is known of the fleet.
    pub known: Arc<fleet::Known>,
}

/// What came of something that was done beside the run.
#[derive(Debug)]
struct Done {
    event: Event,
    /// What else a measurement gave.
    aside: Option<Aside>,
}

/// What people want to know of a measurement, and the engine does not.
#[derive(Debug)]
enum Aside {
    /// The labels of the series that decides, in PromQL.
    Series(String),
    /// Why there is no value.
    Silence(String),
}

/// Why an executor stopped.
#[derive(Debug)]
pub enum Stopped {
    /// The run is over.
    Closed(RunOutcome),
    /// Somebody else has taken the run.
    Deposed,
    /// It was told to.
    Told,
}

pub struct Executor {
    run: Run,
    lease: Lease,
    tenure: Tenure,
    world: World,
    handle: Handle,
    status: watch::Sender<Arc<Status>>,
    inbox: mpsc::Receiver<Message>,
    /// What drivers and measurements are at, and what of it must not be begun
    /// twice.
    at_work: JoinSet<Done>,
    looked_at: BTreeSet<KnobId>,
    measured: BTreeSet<ConditionId>,
    looks_at_fleet: bool,
    /// Tasks that keep claims, as of when the store was last written to for it.
    claims: Option<BTreeSet<TaskId>>,
    /// The epochs that their claims came with.
    epochs: BTreeMap<TaskId, u64>,
    unseen: Unseen,
    /// What waits for a person, as far as people were told. Whoever takes a run up
    /// tells them all of it.
    told: Vec<NeedsPerson>,
    /// Who waits to hear that what they said is on the disk.
    unanswered: Vec<oneshot::Sender<Result<(), Refusal>>>,
    shown: Instant,
}

impl Executor {
    /// An executor of a run that was just opened or resumed.
    pub fn new(run: Run, lease: Lease, world: World) -> Executor {
        let (send, inbox) = mpsc::channel(64);
        let now = world.clock.now();
        let status = Status::of(&run, lease.run, now, &Unseen::default());
        let (status, shown) = watch::channel(Arc::new(status));
        let plan = run.plan().clone();
        let handle =
            Handle { plan, inbox: send, status: shown, events: broadcast::channel(1024).0 };
        let tenure = Tenure::new(lease.clone(), world.store.clone(), world.lease_clock.clone());
        Executor {
            run,
            lease,
            tenure,
            world,
            handle,
            status,
            inbox,
            at_work: JoinSet::new(),
            looked_at: BTreeSet::new(),
            measured: BTreeSet::new(),
            looks_at_fleet: false,
            claims: None,
            epochs: BTreeMap::new(),
            unseen: Unseen::default(),
            told: Vec::new(),
            unanswered: Vec::new(),
            shown: Instant::now(),
        }
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Goes on until the run is over, or somebody else's.
    pub async fn drive(mut self, mut stop: watch::Receiver<bool>) -> Stopped {
        let mut records = self.look_at_fleet().await;
        // Whether what is in flight was done is not known, nor whether it should be now.
        let (ended, messages) = self.run.take_up(self.world.clock.now());
        records.extend(ended);
        messages.into_iter().for_each(|(effect, what)| self.begin(effect, what, boot_ms()));
        let mut measuring = interval(measure_every(self.run.plan()));
        let mut looking = interval(LOOK_EVERY);
        let mut renewing = interval(RENEW_EVERY);
        let mut showing = interval(STATUS_EVERY);
        loop {
            if let Some(stopped) = self.keep(std::mem::take(&mut records), &mut stop).await {
                return stopped;
            }
            #[cfg(test)]
            self.world.faults.panic_if_told();
            if let Some(claimed) = self.claim().await {
                records = claimed;
                continue;
            }
            self.look_at_wanted();
            self.show();
            if let Some((_, outcome)) = self.run.state().closed {
                return Stopped::Closed(outcome);
            }
            let woken = self.wakes_in();
            let event = tokio::select! {
                _ = stop.changed() => return Stopped::Told,
                Some(message) = self.inbox.recv() => {
                    records = self.obey(message);
                    continue;
                }
                Some(done) = self.at_work.join_next() => match done {
                    Ok(done) => self.note(done),
                    // Work that panics says so itself, and none is cancelled.
                    Err(_) => continue,
                },
                _ = measuring.tick() => {
                    self.measure();
                    continue;
                }
                _ = looking.tick() => {
                    let kept: Vec<KnobId> = self.run.kept().collect();
                    kept.into_iter().for_each(|knob| self.look(knob));
                    continue;
                }
                // Countdowns go on, and what came too soon after the last picture is seen.
                _ = showing.tick() => continue,
                _ = renewing.tick() => {
                    if self.is_deposed().await {
                        return Stopped::Deposed;
                    }
                    self.begin_to_look_at_fleet();
                    continue;
                }
                () = sleep_until(woken) => Event::Tick,
            };
            // Only commands are refused.
            records = self.run.handle(self.world.clock.now(), event).unwrap_or_default();
        }
    }

    /// When the engine wants to be woken, on the clock that can be waited for.
    fn wakes_in(&self) -> Instant {
        let now = self.world.clock.now();
        let wait = self.run.wakes_at().map_or(3_600_000, |at| (at - now).0);
        Instant::now() + Duration::from_millis(wait)
    }

    fn obey(&mut self, message: Message) -> Vec<Record> {
        let Message { by, reason, command, answer } = message;
        let said = Event::Said { by, reason, command };
        match self.run.handle(self.world.clock.now(), said) {
            Ok(records) => {
                self.unanswered.push(answer);
                records
            }
            Err(refusal) => {
                let _ = answer.send(Err(refusal));
                Vec::new()
            }
        }
    }

    /// Writes records down, then does what they ask for. Nothing is done that
    /// is not on the disk: while it cannot be written, the run stands still.
    async fn keep(
        &mut self,
        records: Vec<Record>,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<Stopped> {
        // A run that was cut off at its very end still has to be ended.
        if records.is_empty() && self.run.state().closed.is_none() {
            return None;
        }
        let decided = boot_ms();
        let mut step = ledger::step(&self.run, &records);
        let mut told = None;
        while let Err(error) = self.write(&mut step, &records).await {
            if error.is_deposed() {
                tracing::error!(run = %self.lease.run, "somebody else drives this run now: {error}");
                return Some(Stopped::Deposed);
            }
            self.stand_still(error.to_string(), &mut told);
            tokio::select! {
                _ = stop.changed() => return Some(Stopped::Told),
                () = sleep(WRITE_AGAIN) => {}
            }
        }
        if told.is_some() {
            tracing::info!(run = %self.lease.run, "the run goes on");
        }
        for answer in self.unanswered.drain(..) {
            // Whoever asked may have gone.
            let _ = answer.send(Ok(()));
        }
        for record in records {
            if let Fact::Issued { effect, what, .. } = &record.fact {
                self.begin(*effect, what.clone(), decided);
            }
            self.log(&record);
            // Nobody may be listening.
            let _ = self.handle.events.send(Arc::new(record));
        }
        None
    }

    /// Logs what went wrong with a run, or else the record itself for those who
    /// look closely. What waits for a person is logged with its status.
    fn log(&self, record: &Record) {
        let (run, plan) = (self.lease.run, self.run.plan());
        let name = |task: &TaskId| plan.task(*task).name.as_str();
        match &record.fact {
            Fact::Failed { task, why } => {
                tracing::warn!(%run, task = name(task), "{why}");
            }
            Fact::Held { task, why } => {
                tracing::info!(%run, task = name(task), "held: {}", describe(plan, why));
            }
            Fact::Stuck { task } => {
                tracing::warn!(%run, task = name(task), "takes longer than usual");
            }
            Fact::Drifted { knob, expected, found } => {
                let is_final = |task: TaskId| plan.task(task).is_final(*knob, expected);
                let is_final = plan.task_ids().any(is_final);
                let then = match self.run.why_left_open(*knob).filter(|_| !is_final) {
                    Some(why) => format!("is not closed while that may be wrong: {why}"),
                    None if is_final => {
                        "is left as it is: a primary or its fence takes a person".to_owned()
                    }
                    None => format!("is set to {expected} again"),
                };
                let knob = plan.knob(*knob);
                tracing::warn!(%run, "drift: {knob} is {found}, was {expected}, and {then}");
            }
            Fact::MovedOut { knob, expected, found, .. } => {
                let knob = plan.knob(*knob);
                tracing::warn!(
                    %run,
                    "drift: {knob} is {found}, was {expected}, and stays: steps begin there"
                );
            }
            Fact::Astray { knob, expected, found, why } => {
                let found = found.as_ref().map_or("unreadable".to_owned(), ToString::to_string);
                let knob = plan.knob(*knob);
                tracing::warn!(%run, "{knob} is {found} at the end, not {expected}: {why}");
            }
            fact => tracing::debug!(%run, seq = record.seq, ?fact),
        }
    }

    /// Lets everybody know that nothing can be done, and why; the log once, which
    /// may be on the same disk.
    fn stand_still(&self, why: String, told: &mut Option<(String, Time)>) {
        let now = self.world.clock.now();
        if told.as_ref().is_none_or(|(before, _)| *before != why) {
            tracing::error!(run = %self.lease.run, "the run stands still: {why}");
        }
        let since = told.as_ref().map_or(now, |(_, since)| *since);
        *told = Some((why.clone(), since));
        let mut status = Status::of(&self.run, self.lease.run, now, &self.unseen);
        status.stand_still(&self.run, since, why);
        self.status.send_replace(Arc::new(status));
    }

    async fn write(&self, step: &mut Step, records: &[Record]) -> store::Result<()> {
        let store = &self.world.store;
        ledger::close(step, store, self.lease.run, &self.run, records).await?;
        if step.ended.is_some() {
            ledger::keep_unopened(step, &fleet::unopened(&self.world, &self.run).await);
        }
        store.keep(&self.lease, step).await
    }

    /// Begins to do something that was decided at `decided`.
    fn begin(&mut self, effect: EffectId, what: Effect, decided: u64) {
        let task = self.run.state().in_flight.get(&effect).map(|own| own.task);
        let claimed = task.and_then(|task| self.epochs.get(&task)).copied().unwrap_or(0);
        let Some(fence) = Fence::new(self.lease.epoch.max(claimed), effect.0) else {
            tracing::error!(run = %self.lease.run, "no fences are left for this run");
            return;
        };
        let (drivers, plan) = (self.world.drivers.clone(), self.run.plan().clone());
        let (tenure, channels) = (self.tenure.clone(), self.world.channels.clone());
        #[cfg(test)]
        let (faults, store) = (self.world.faults.clone(), self.world.store.clone());
        let run = self.lease.run;
        let required = self.run.required_by(effect);
        let once = format!("{run}.{}", self.run.state().occasion(effect).0);
        let broke = Ended::Failed { why: "the driver broke off".into() };
        self.spawn(Event::Ended { effect, result: broke }, async move {
            #[cfg(test)]
            faults.stop_before_effect(&store).await;
            let done = match &what {
                Effect::Write { knob, value } => {
                    match still_holds(&drivers, &plan, &required, decided).await {
                        Ok(decided) => {
                            let write = drivers.write(plan.knob(*knob), value, fence);
                            tenure.permit(decided).within(write).await.map(Some)
                        }
                        Err(error) => Err(error),
                    }
                }
                Effect::Act(act) => match still_holds(&drivers, &plan, &required, decided).await {
                    Ok(decided) => {
                        let act = drivers.act(act, &once, fence);
                        tenure.permit(decided).within(act).await.map(|_| None)
                    }
                    Err(error) => Err(error),
                },
                Effect::Say(Saying { channel: Some(channel), text }) => {
                    let (channel, text) = (channel.clone(), text.clone());
                    let datacenter = plan.datacenter.clone();
                    let message =
                        notify::Message { channel, run: run.0, datacenter, text, needs: None };
                    channels.deliver(&message).await;
                    Ok(None)
                }
                Effect::Say(saying) => {
                    tracing::info!(%run, "{}", saying.text);
                    Ok(None)
                }
            };
            let result = match done {
                Ok(found) => Ended::Done { found },
                Err(error) if error.is_transient() => Ended::Failed { why: error.to_string() },
                Err(error) => Ended::Refused { why: error.to_string() },
            };
            (Event::Ended { effect, result }, None)
        });
    }

    /// Has something done beside the run; if it panics, `broke` is what came of
    /// it.
    fn spawn(
        &mut self,
        broke: Event,
        work: impl Future<Output = (Event, Option<Aside>)> + Send + 'static,
    ) {
        let run = self.lease.run;
        self.at_work.spawn(async move {
            let done = AssertUnwindSafe(work).catch_unwind().await;
            let (event, aside) = done.unwrap_or_else(|_| {
                tracing::error!(%run, "something broke off: {broke:?}");
                (broke, None)
            });
            Done { event, aside }
        });
    }

    /// Asks for the next claim that a task wants, and gives back what none needs
    /// any more. The store decides for all runs and all processes.
    async fn claim(&mut self) -> Option<Vec<Record>> {
        if !self.run.has_claims() || self.run.state().closed.is_some() {
            return None;
        }
        let (now, plan) = (self.world.clock.now(), self.run.plan().clone());
        let Some((task, knobs)) = self.run.wanted_claims(now).next() else {
            self.give_claims_back().await;
            return None;
        };
        let names: Vec<String> = knobs.iter().map(|knob| plan.knob(*knob).to_string()).collect();
        let first = knobs[0];
        let claimed = self.world.store.claim(&self.lease, &plan.task(task).name, &names).await;
        let answer = match claimed {
            Ok(Claimed::Granted { epoch }) => {
                self.epochs.insert(task, epoch);
                Ok(())
            }
            Ok(Claimed::InUse(Claim { knob, run, task })) => {
                let at = names.iter().position(|name| *name == knob);
                let knob = at.map_or(first, |at| knobs[at]);
                Err(InUse { knob, by: format!("{task} of run {run}") })
            }
            Err(error) => Err(InUse { knob: first, by: format!("nobody knows whom: {error}") }),
        };
        // Only commands are refused.
        Some(self.run.handle(now, Event::Claimed { task, answer }).unwrap_or_default())
    }

    async fn give_claims_back(&mut self) {
        let kept = self.run.claims();
        if self.claims.as_ref() == Some(&kept) {
            return;
        }
        let names: Vec<String> =
            kept.iter().map(|task| self.run.plan().task(*task).name.clone()).collect();
        match self.world.store.keep_claims(&self.lease, &names).await {
            Ok(()) => self.claims = Some(kept),
            // The next turn of the loop tries again.
            Err(error) => tracing::debug!(run = %self.lease.run, "claims stay: {error}"),
        }
    }

    fn look_at_wanted(&mut self) {
        let wanted: Vec<KnobId> = self.run.wanted(self.world.clock.now()).collect();
        wanted.into_iter().for_each(|knob| self.look(knob));
    }

    fn look(&mut self, knob: KnobId) {
        if !self.looked_at.insert(knob) {
            return;
        }
        let (drivers, plan) = (self.world.drivers.clone(), self.run.plan().clone());
        let asked = self.world.clock.now();
        let broke = Err("the driver broke off".into());
        self.spawn(Event::Looked { knob, asked, found: broke }, async move {
            let found = drivers.read(plan.knob(knob)).await.map_err(|error| error.to_string());
            (Event::Looked { knob, asked, found }, None)
        });
    }

    fn measure(&mut self) {
        for condition in self.run.watched() {
            if !self.measured.insert(condition) {
                continue;
            }
            let (plan, health) = (self.run.plan().clone(), self.world.health.clone());
            let (drivers, clock) = (self.world.drivers.clone(), self.world.clock.clone());
            // The data is not newer than the question: the answer may take a while.
            let asked = self.world.clock.now();
            let ended = self.run.misses_within(asked, condition);
            self.spawn(Event::Observed { condition, asked, found: None }, async move {
                let own = plan.condition(condition);
                let measured = match &own.source {
                    Source::Query(_) => match health.measure_within(own, ended).await {
                        Ok(reading) => Ok((reading.measurement(asked), reading.series)),
                        Err(silence) => Err(silence.to_string()),
                    },
                    Source::Gauge(knob) => match drivers.gauge(plan.knob(*knob)).await {
                        Ok(read) => measurement(&clock, asked, &read).map(|found| (found, None)),
                        Err(error) => Err(error.to_string()),
                    },
                };
                let (found, aside) = match measured {
                    Ok((found, series)) => (Some(found), series.map(Aside::Series)),
                    Err(silence) => (None, Some(Aside::Silence(silence))),
                };
                (Event::Observed { condition, asked, found }, aside)
            });
        }
    }

    /// What was at work is not any more.
    fn note(&mut self, done: Done) -> Event {
        match &done.event {
            Event::Looked { knob, found, .. } => {
                self.looked_at.remove(knob);
                match found {
                    Ok(_) => _ = self.unseen.knobs.remove(knob),
                    Err(why) => _ = self.unseen.knobs.insert(*knob, why.clone()),
                }
            }
            Event::Observed { condition, .. } => {
                self.measured.remove(condition);
                self.unseen.conditions.remove(condition);
                self.unseen.series.remove(condition);
                match done.aside {
                    Some(Aside::Silence(why)) => {
                        self.unseen.conditions.insert(*condition, why);
                    }
                    Some(Aside::Series(series)) => {
                        self.unseen.series.insert(*condition, series);
                    }
                    None => {}
                }
            }
            // Nothing else that is done beside the run ends with a tick.
            Event::Fleet { .. } | Event::Tick => self.looks_at_fleet = false,
            _ => {}
        }
        done.event
    }

    /// Takes the position of the fleet before anything is decided.
    async fn look_at_fleet(&mut self) -> Vec<Record> {
        let event = see_fleet(self.world.clone(), self.run.plan().clone(), self.lease.run).await;
        // Only commands are refused.
        self.run.handle(self.world.clock.now(), event).unwrap_or_default()
    }

    /// The same beside the run: drivers may take their time.
    fn begin_to_look_at_fleet(&mut self) {
        if std::mem::replace(&mut self.looks_at_fleet, true) {
            return;
        }
        let (world, plan, run) = (self.world.clone(), self.run.plan().clone(), self.lease.run);
        self.spawn(Event::Tick, async move { (see_fleet(world, plan, run).await, None) });
    }

    async fn is_deposed(&self) -> bool {
        match self.tenure.renew().await {
            Ok(()) => false,
            Err(error) if error.is_deposed() => true,
            Err(error) => {
                tracing::warn!(run = %self.lease.run, "the lease could not be renewed: {error}");
                false
            }
        }
    }

    /// Lets others see how it stands, not too often.
    fn show(&mut self) {
        let is_over = self.run.state().closed.is_some();
        if is_over || self.shown.elapsed() >= STATUS_EVERY / 2 {
            let now = self.world.clock.now();
            let status = Status::of(&self.run, self.lease.run, now, &self.unseen);
            let messages = self.world.channels.compare(self.lease.run, &self.told, &status);
            self.world.channels.send(messages);
            self.told.clone_from(&status.needs_person);
            self.status.send_replace(Arc::new(status));
            self.shown = Instant::now();
        }
    }
}

/// What a gauge said, with the time that it is about: a rate may have been counted
/// from before the step that it is to judge.
fn measurement(clock: &Clock, asked: Time, read: &Gauged) -> Result<Measurement, String> {
    let Some(value) = read.value.number() else {
        return Err(format!("{} is no number", read.value));
    };
    let Some((from, to)) = read.span else { return Ok(Measurement::at(asked, value)) };
    let (now, shown) = (Instant::now(), clock.now());
    let ago = |at: Instant| now.saturating_duration_since(at).as_millis() as u64;
    // Rounded to the past: it is not newer than it says.
    let time = |at: Instant| Time(shown.0.saturating_sub(ago(at) + 1));
    Ok(Measurement { value, from: time(from), to: time(to) })
}

/// The position of the fleet, as an event; only time has passed if it is unknown.
async fn see_fleet(world: World, plan: Arc<Plan>, run: RunId) -> Event {
    match fleet::position(&world, &plan, Some(run)).await {
        Ok(fleet) => Event::Fleet { fleet },
        Err(why) => {
            tracing::warn!(%run, "the position of the fleet is not known: {why}");
            Event::Tick
        }
    }
}

/// Often enough that a step is not held up by the wait for a fresh value.
fn measure_every(plan: &Plan) -> Duration {
    let waits = plan.tasks.iter().map(|task| Duration::from_millis(task.pace.wait.0 / 2));
    waits.min().unwrap_or(MEASURE_MAX).clamp(MEASURE_MIN, MEASURE_MAX)
}

/// How long the last read of a fence, or of a primary, may take before something is done that
/// requires it: as old as it is, what was read may have changed.
pub const REQUIRED_READ_MAX: Duration = Duration::from_secs(2);

/// Whether what an effect was decided on is still so, right before it is done: the
/// record of it may have taken seconds to reach the disk. Says since when it is known.
async fn still_holds(
    drivers: &Drivers,
    plan: &Plan,
    required: &[(KnobId, Vec<Value>)],
    decided: u64,
) -> drivers::Result<u64> {
    let mut known = None;
    for (knob, accepted) in required {
        tenure::is_recent(decided)?;
        let asked = is_still(drivers, plan, *knob, accepted).await?;
        known.get_or_insert(asked);
    }
    Ok(known.unwrap_or(decided))
}

/// Whether a knob still has one of the values that it may have. Says when it was asked.
async fn is_still(
    drivers: &Drivers,
    plan: &Plan,
    knob: KnobId,
    accepted: &[Value],
) -> drivers::Result<u64> {
    let knob = plan.knob(knob);
    let not_done = |why: String| drivers::Error::Transient(format!("not done: {knob} {why}"));
    let asked = boot_ms();
    let found = drivers.read(knob).await;
    let found = found.map_err(|error| not_done(format!("cannot be read: {error}")))?;
    if !accepted.iter().any(|value| value.is_met_by(&found)) {
        return Err(not_done(format!("is {found} by now")));
    }
    let took = Duration::from_millis(boot_ms().saturating_sub(asked));
    if took > REQUIRED_READ_MAX {
        // Of several servers the first may have changed since it was asked.
        return Err(not_done(format!(
            "took {:.1} s to be read, and may have changed meanwhile; accepted: at most {} s",
            took.as_secs_f64(),
            REQUIRED_READ_MAX.as_secs()
        )));
    }
    // What was read is as old as the question.
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rate_from_before_a_step_is_as_old_as_its_count() {
        let clock = Clock::of_the_wall();
        let (asked, now) = (clock.now(), Instant::now());
        let ago = |ms: u64| now.checked_sub(Duration::from_millis(ms)).unwrap();
        let gauged = |span| Gauged { value: drain::Value::Number(7.0), span };
        let found = measurement(&clock, asked, &gauged(Some((ago(1500), ago(500))))).unwrap();
        let is_about = |time: Time, ago: u64| (asked.0 - ago).abs_diff(time.0) < 100;
        assert!(is_about(found.from, 1500) && is_about(found.to, 500), "{found:?} {asked:?}");
        let found = measurement(&clock, asked, &gauged(None)).unwrap();
        assert_eq!(found, Measurement::at(asked, 7.0));
    }
}
