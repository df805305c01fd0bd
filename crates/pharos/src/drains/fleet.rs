//! The position of the fleet: the values of the traffic knobs of all
//! datacenters, read through the drivers. What cannot be read is as it was when
//! it was read or written a moment ago; from older records follows only what is
//! closed. A datacenter that is lost since would serve for ever otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drain::engine::{Actor, Command, Effect, Fact, Mode, Phase, Record, Run, RunOutcome};
use drain::fleet::{Fleet, OtherRun};
use drain::{
    Away, Comparison, Condition, Direction, Knob, Millis, NoData, Plan, Position, ServiceTraffic,
    Source, StageKind, Task, Time, TrafficKnob, Value,
};
use futures_util::{StreamExt, stream};
use store::chain::Digest;
use store::{Entry, Filter, RUNS_LIMIT_MAX, RunId, Store};
use tokio::time::{Instant, timeout_at};

use super::Refused;
use super::executor::World;
use super::ledger::{Fenced, LeftFence, direction_name};
use super::survey::LOOKS_MAX;
use super::vigil::KEEPER;

/// How long all knobs together may take.
const READ_TIME_MAX: Duration = Duration::from_secs(5);
/// How long what was read or written last counts while a knob cannot be read.
const SEEN_COUNTS_FOR: Millis = Millis::from_secs(15);
/// Runs of a datacenter, begun by people, that moved something and are looked through
/// for what they left.
const RUNS_MAX: usize = 50;
/// Runs before the last complete restore whose plans are read in vain.
const PASSED_OVER_MAX: usize = 500;
const PAGE: u32 = 50;
/// How old the samples of a measured load may be.
const LOAD_AGE_MAX: Millis = Millis::from_secs(60);

/// What was known last.
#[derive(Debug, Default)]
pub struct Known {
    /// What was read last, and when.
    seen: Mutex<BTreeMap<Knob, (Time, Seen)>>,
    /// What runs recorded, by datacenter.
    recorded: tokio::sync::Mutex<BTreeMap<String, Arc<Recorded>>>,
}

impl Known {
    fn seen(&self) -> MutexGuard<'_, BTreeMap<Knob, (Time, Seen)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was read of a knob.
#[derive(Clone, Debug)]
struct Seen {
    value: Value,
    /// See [`drivers::Driver::is_out`].
    is_out: bool,
}

/// What the runs of a datacenter left, from its last complete restore on.
#[derive(Debug)]
pub struct Recorded {
    /// The newest run that has ended.
    pub newest: RunId,
    /// Where knobs were left, by which run.
    pub knobs: Vec<Left>,
    /// Services, as the newest run that had each of them left them.
    services: BTreeMap<String, ServiceLeft>,
    /// The newest plan, for what it says about traffic.
    pub plan: Arc<Plan>,
    /// The plans of all drains since the last complete restore, the newest first.
    pub drain_plans: Vec<Arc<Plan>>,
    /// The drains whose knobs are to be kept, the newest first: each with those that
    /// no newer run of a person set.
    pub drains: Vec<Kept>,
    /// Knobs that a newer run than the next to be added set, or whose task somebody
    /// skipped.
    touched: BTreeSet<Knob>,
    /// The newest run that put knobs back and that somebody ended: what older drains
    /// left is not kept.
    pub given_up: Option<RunId>,
    /// Fences that runs left closed.
    pub fences: Vec<Knob>,
    /// A drain did what no knob shows, such as stopping jobs.
    pub has_acted: bool,
    /// When knobs were put back, the newest first.
    pub put_back: Vec<(u64, BTreeSet<Knob>)>,
    /// There are older runs that were not looked at.
    is_cut_off: bool,
    /// Knobs that a complete restore did not have: what older runs left of them counts.
    left_behind: BTreeSet<String>,
}

/// A knob as a run left it.
#[derive(Clone, Debug)]
pub struct Left {
    pub knob: Knob,
    pub value: Value,
    pub run: RunId,
    pub since: Time,
}

/// A service as a run left it.
#[derive(Clone, Debug)]
struct ServiceLeft {
    /// The share that is open.
    share: f64,
    /// No traffic knob carries it, so only runs tell whether it is there.
    is_knobless: bool,
    /// The run that moved it, or the newest that had it.
    run: RunId,
    has_moved: bool,
    /// Nobody expects it back. It does not serve all the same.
    is_given_up: bool,
}

/// What a drain left that is to stay.
#[derive(Debug)]
pub struct Kept {
    pub run: RunId,
    pub plan: Arc<Plan>,
    pub mode: Mode,
    /// In the order in which its tasks wrote them, with their services.
    pub knobs: Vec<(Knob, Value, String)>,
}

/// The plan and all records of a run that is known to exist.
pub async fn records(store: &Store, id: RunId) -> Result<(Plan, Vec<Record>), Refused> {
    let Written { plan, entries, .. } = written(store, id).await?;
    Ok((plan, entries.into_iter().map(|(_, record)| record).collect()))
}

/// A run as it is written.
#[derive(Debug)]
pub struct Written {
    pub plan: Plan,
    /// Of the plan's JSON.
    pub plan_digest: Digest,
    pub entries: Vec<(Entry, Record)>,
}

/// The same, with what is written of each record.
pub async fn written(store: &Store, id: RunId) -> Result<Written, Refused> {
    let (plan, plan_digest) = plan_of(store, id).await?;
    let all = store.records(id, 0).all().await;
    let mut entries = Vec::new();
    for entry in all.map_err(|error| unread("the records", id, error))? {
        let record = serde_json::from_str(&entry.json)
            .map_err(|error| unreadable(&format!("record {}", entry.seq), id, &error))?;
        entries.push((entry, record));
    }
    Ok(Written { plan, plan_digest, entries })
}

/// The plan of a run that is known to exist, and the digest of its JSON.
pub async fn plan_of(store: &Store, id: RunId) -> Result<(Plan, Digest), Refused> {
    let json = store.plan(id).await.map_err(|error| match error {
        store::Error::NoSuchRun(_) => unreadable("the plan", id, &"it is missing"),
        other => unread("the plan", id, other),
    })?;
    let plan = serde_json::from_str(&json);
    let plan = plan.map_err(|error| unreadable("the plan", id, &error))?;
    Ok((plan, Digest::of(json.as_bytes())))
}

fn unreadable(what: &str, id: RunId, why: &dyn std::fmt::Display) -> Refused {
    Refused::Unreadable(format!("{what} of run {id}: {why}"))
}

/// What another process keeps busy can be read later.
fn unread(what: &str, id: RunId, error: store::Error) -> Refused {
    match error.is_transient() {
        true => error.into(),
        false => Refused::Unreadable(format!("{what} of run {id}: {error}")),
    }
}

/// Where the fleet of a plan stands now. `own` is the run that asks, if it has
/// begun.
pub async fn position(world: &World, plan: &Plan, own: Option<RunId>) -> Result<Fleet, Refused> {
    let originals = originals(&world.store, plan).await?;
    let knobs = plan.traffic.iter().flat_map(|own| &own.datacenters).flat_map(|at| &at.knobs);
    let knobs: BTreeMap<Knob, &TrafficKnob> = knobs.map(|own| (own.knob.clone(), own)).collect();
    let is_legible = |knob: &Knob, value: &Value| {
        let original = originals.get(&knob.to_string());
        knobs.get(knob).is_some_and(|own| own.is_legible(value, original))
    };
    let read = read(world, &knobs.keys().cloned().collect(), is_legible).await;
    let has_knobless =
        |at: usize| plan.traffic.iter().any(|own| own.datacenters[at].knobs.is_empty());
    let mut recorded: BTreeMap<&str, Arc<Recorded>> = BTreeMap::new();
    let (mut runs, mut unread) = (Vec::new(), BTreeSet::new());
    for (at, datacenter) in plan.datacenters.iter().enumerate() {
        let name = datacenter.name.as_str();
        let of = Filter { datacenter: Some(name), ..Filter::default() };
        runs.extend(world.store.runs(of, 1).await?);
        let mut here = plan.traffic.iter().flat_map(|own| &own.datacenters[at].knobs);
        if here.any(|own| !read.contains_key(&own.knob)) || has_knobless(at) {
            match self::recorded(world, name).await {
                Ok(found) => recorded.extend(found.map(|found| (name, found))),
                // Then it is unknown.
                Err(why) => {
                    tracing::warn!(datacenter = name, "what its runs left: {why}");
                    unread.insert(name);
                }
            }
        }
    }
    // What an open run has written since the last look is not known; it says so itself.
    let is_open =
        |name: &str| runs.iter().any(|run| run.datacenter == name && run.outcome.is_none());
    let of_open_runs: BTreeSet<&Knob> = plan
        .datacenters
        .iter()
        .enumerate()
        .filter(|(_, datacenter)| is_open(&datacenter.name))
        .flat_map(|(at, _)| plan.traffic.iter().flat_map(move |own| &own.datacenters[at].knobs))
        .map(|own| &own.knob)
        .collect();
    let (last, now) = (world.known.seen().clone(), world.clock.now());
    // A time that is still to come is that of a clock which was put back since.
    let is_recent = |at: Time| at <= now && now - at <= SEEN_COUNTS_FOR;
    let is_closed = |knob: &Knob, value: &Value| {
        let original = originals.get(&knob.to_string());
        knobs.get(knob).is_some_and(|own| own.is_closed_at(value, original))
    };
    let known = |knob: &Knob| {
        if let Some(seen) = read.get(knob) {
            return Some(seen.clone());
        }
        if of_open_runs.contains(knob) {
            return None;
        }
        let left = recorded.values().flat_map(|own| &own.knobs).filter(|own| own.knob == *knob);
        let left = left.map(|own| (own.since, Seen { value: own.value.clone(), is_out: false }));
        let seen = last.get(knob).filter(|(at, _)| is_recent(*at)).cloned();
        let (at, newest) = left.chain(seen).max_by_key(|(at, _)| *at)?;
        (is_recent(at) || is_closed(knob, &newest.value)).then_some(newest)
    };
    let position = |knob: &Knob| {
        let original = originals.get(&knob.to_string()).cloned();
        let Seen { value, is_out } = known(knob)?;
        Some(Position { value, original, is_out })
    };
    let of_service = |service: &str, datacenter: &str| match recorded.get(datacenter) {
        Some(own) => own.share_of(service, plan),
        None => (!unread.contains(datacenter)).then_some(1.0),
    };
    let others: Vec<OtherRun<'_>> = runs
        .iter()
        .map(|run| OtherRun {
            run: run.id.0,
            datacenter: &run.datacenter,
            direction: match run.direction == direction_name(Direction::Drain) {
                true => Direction::Drain,
                false => Direction::Restore,
            },
            is_open: run.outcome.is_none(),
        })
        .collect();
    Ok(Fleet::of(plan, own.map(|own| own.0), position, of_service, &others))
}

/// Reads knobs, as many as answer in time. What is no value of a knob was not
/// read: what was known of it before is nearer to the truth. Nor was one of which
/// the driver does not say whether it can serve.
async fn read(
    world: &World,
    knobs: &BTreeSet<Knob>,
    is_legible: impl Fn(&Knob, &Value) -> bool,
) -> BTreeMap<Knob, Seen> {
    let deadline = Instant::now() + READ_TIME_MAX;
    let look = async |knob: &Knob| {
        let found = async {
            let value = world.drivers.read(knob).await?;
            // What cannot serve carries nothing, whatever its value is.
            let is_out = world.drivers.is_out(knob).await?;
            drivers::Result::Ok(Seen { value, is_out })
        };
        (knob.clone(), found.await)
    };
    let mut looks = std::pin::pin!(stream::iter(knobs).map(look).buffer_unordered(LOOKS_MAX));
    let mut read = BTreeMap::new();
    while let Ok(Some((knob, found))) = timeout_at(deadline, looks.next()).await {
        if let Ok(found) = found
            && found.value.is_real()
            && (found.is_out || is_legible(&knob, &found.value))
        {
            read.insert(knob, found);
        }
    }
    let now = world.clock.now();
    let seen = read.iter().map(|(knob, seen)| (knob.clone(), (now, seen.clone())));
    world.known.seen().extend(seen);
    read
}

/// The values of knobs before their drains, of all datacenters of a plan. One
/// that cannot be read is not known; a plan warns of it.
pub async fn originals(store: &Store, plan: &Plan) -> Result<BTreeMap<String, Value>, Refused> {
    let mut originals = BTreeMap::new();
    for datacenter in &plan.datacenters {
        for original in store.originals(&datacenter.name).await? {
            if let Ok(value) = serde_json::from_str(&original.json) {
                originals.insert(original.knob, value);
            }
        }
    }
    Ok(originals)
}

/// What the runs of a datacenter left, if there were any.
pub async fn recorded(world: &World, datacenter: &str) -> Result<Option<Arc<Recorded>>, Refused> {
    let mut known = world.known.recorded.lock().await;
    let of = Filter { datacenter: Some(datacenter), ended: Some(true), ..Filter::default() };
    let Some(newest) = world.store.runs(of, 1).await?.pop() else {
        known.remove(datacenter);
        return Ok(None);
    };
    if let Some(known) = known.get(datacenter).filter(|known| known.newest == newest.id) {
        return Ok(Some(known.clone()));
    }
    let learnt = learn(world, of).await?.map(Arc::new);
    match &learnt {
        Some(learnt) => _ = known.insert(datacenter.to_owned(), learnt.clone()),
        None => _ = known.remove(datacenter),
    }
    Ok(learnt)
}

async fn learn(world: &World, of: Filter<'_>) -> Result<Option<Recorded>, Refused> {
    let mut before = None;
    let (mut learnt, mut by_people, mut passed_over): (Option<Recorded>, usize, usize) =
        (None, 0, 0);
    // A restore has brought back all that it had. What it did not have is as older runs left it.
    let mut is_past = false;
    for _ in 0..RUNS_LIMIT_MAX / PAGE {
        let page = world.store.runs(Filter { before, ..of }, PAGE).await?;
        let Some(oldest) = page.last() else { return Ok(learnt) };
        before = Some(oldest.id);
        for run in page {
            if by_people >= RUNS_MAX || passed_over >= PASSED_OVER_MAX {
                // What older ones moved is not known.
                return Ok(cut_off(learnt));
            }
            if let Some(own) = learnt.as_ref().filter(|_| is_past) {
                match plan_of(&world.store, run.id).await {
                    Ok((plan, _))
                        if own.knows_services_of(&plan) && !own.misses_knobs_of(&plan) =>
                    {
                        passed_over += 1;
                        continue;
                    }
                    Ok(_) => {}
                    Err(Refused::Unreadable(_)) => return Ok(cut_off(learnt)),
                    Err(refused) => return Err(refused),
                }
            }
            let ended = match records(&world.store, run.id).await {
                Ok((plan, records)) => Run::resume(plan.into(), &records)
                    .map(|ended| (ended, records))
                    .map_err(|corrupt| Refused::Unreadable(corrupt.to_string())),
                Err(refused) => Err(refused),
            };
            let (ended, records) = match ended {
                Ok(ended) => ended,
                // Nobody knows what it left, nor which of what older ones left it changed.
                Err(Refused::Unreadable(why)) => {
                    tracing::debug!(run = %run.id, "what it left is not known: {why}");
                    return match learnt {
                        Some(_) => Ok(cut_off(learnt)),
                        // Nothing is known at all, and not that nothing was moved.
                        None => Err(Refused::Unreadable(why)),
                    };
                }
                Err(refused) => return Err(refused),
            };
            let own = learnt.get_or_insert_with(|| Recorded::new(run.id, &ended));
            match is_past {
                true => {
                    own.add_services(run.id, &ended);
                    own.add_left_behind(&run, &ended, &records);
                }
                false => own.add(&run, &ended, &records),
            }
            // One that moved nothing says nothing, however many there are.
            let has_moved = has_moved(&ended, &records) && ended.plan().puts_back.is_none();
            by_people += usize::from(has_moved);
            let is_restored = ended.plan().direction == Direction::Restore
                && matches!(ended.state().closed, Some((_, RunOutcome::Completed)));
            if is_restored && !is_past {
                is_past = true;
                own.look_for_left_behind(ended.plan());
            }
        }
    }
    // There may be more.
    Ok(cut_off(learnt))
}

/// Whether a run changed anything.
fn has_moved(run: &Run, records: &[Record]) -> bool {
    let has_begun = |task: &drain::engine::TaskState| task.started.is_some() && task.has_acted;
    !touched(run, records).is_empty() || run.state().tasks.iter().any(has_begun)
}

/// What is known of runs, and that there are others before them.
fn cut_off(learnt: Option<Recorded>) -> Option<Recorded> {
    learnt.map(|own| Recorded { is_cut_off: true, ..own })
}

impl Recorded {
    fn new(newest: RunId, run: &Run) -> Recorded {
        Recorded {
            newest,
            knobs: Vec::new(),
            services: BTreeMap::new(),
            plan: run.plan().clone(),
            drain_plans: Vec::new(),
            drains: Vec::new(),
            touched: BTreeSet::new(),
            given_up: None,
            fences: Vec::new(),
            has_acted: false,
            put_back: Vec::new(),
            is_cut_off: false,
            left_behind: BTreeSet::new(),
        }
    }

    /// Adds what an older run left that no newer one changed.
    fn add(&mut self, of: &store::Run, run: &Run, records: &[Record]) {
        let (plan, state) = (run.plan(), run.state());
        for (_, fence) in state.left_closed(plan) {
            self.fences.push(plan.knob(fence.knob).clone());
        }
        self.add_knobs(of.id, run, |_| true);
        if plan.puts_back.is_some() {
            self.put_back.push((of.created_at, plan.knobs.iter().cloned().collect()));
            // Whoever ends a run that puts knobs back wants them where they are.
            if ended_by_a_person(records) {
                self.given_up.get_or_insert(of.id);
            }
            return;
        }
        if plan.direction == Direction::Drain {
            self.drain_plans.push(plan.clone());
            self.has_acted |= state.tasks.iter().any(|task| task.has_acted);
        }
        self.add_services(of.id, run);
        self.add_kept(of.id, run, |_| true);
        self.touched.extend(touched(run, records));
    }

    /// Adds what an older run left of the knobs that the last complete restore did not
    /// have: no restore has brought those back.
    fn add_left_behind(&mut self, of: &store::Run, run: &Run, records: &[Record]) {
        let names = std::mem::take(&mut self.left_behind);
        let is_left = |knob: &Knob| names.contains(&knob.to_string());
        self.add_knobs(of.id, run, is_left);
        if run.plan().puts_back.is_none() {
            self.add_kept(of.id, run, is_left);
            self.touched.extend(touched(run, records));
        }
        self.left_behind = names;
    }

    fn add_knobs(&mut self, id: RunId, run: &Run, is_wanted: impl Fn(&Knob) -> bool) {
        for (knob, left) in run.plan().knobs.iter().zip(&run.state().knobs) {
            let Some(left) = left.as_ref().filter(|_| is_wanted(knob)) else { continue };
            if self.knobs.iter().all(|own| own.knob != *knob) {
                let (value, since) = (left.value.clone(), left.since);
                self.knobs.push(Left { knob: knob.clone(), value, run: id, since });
            }
        }
    }

    fn add_kept(&mut self, id: RunId, run: &Run, is_wanted: impl Fn(&Knob) -> bool) {
        let is_kept = matches!(
            run.state().closed,
            Some((_, RunOutcome::Completed | RunOutcome::CompletedWithSkips | RunOutcome::Held))
        );
        if !is_kept || run.plan().direction != Direction::Drain {
            return;
        }
        let mut kept = Kept::of(id, run);
        let is_kept = |knob: &Knob| {
            self.given_up.is_none() && !self.touched.contains(knob) && is_wanted(knob)
        };
        kept.knobs.retain(|(knob, ..)| is_kept(knob));
        self.drains.push(kept);
    }

    /// Whether anything that drains moved out is to stay so.
    pub fn keeps_any(&self) -> bool {
        self.drains.iter().any(|own| !own.knobs.is_empty())
    }

    /// Remembers which knobs a complete restore did not have.
    fn look_for_left_behind(&mut self, plan: &Plan) {
        let left = plan.left_behind.iter().filter(|own| !own.is_given_up);
        self.left_behind.extend(left.filter_map(|own| match &own.what {
            Away::Knob { name, .. } => Some(name.clone()),
            Away::Service { .. } => None,
        }));
    }

    /// Whether an older run may have left a knob that no newer one did, and that the
    /// last complete restore did not have.
    fn misses_knobs_of(&self, plan: &Plan) -> bool {
        let is_known = |knob: &Knob| {
            let mut kept = self.drains.iter().flat_map(|own| &own.knobs);
            self.touched.contains(knob) || kept.any(|(own, ..)| own == knob)
        };
        let is_missed =
            |knob: &Knob| self.left_behind.contains(&knob.to_string()) && !is_known(knob);
        plan.knobs.iter().any(is_missed)
    }
}

impl Recorded {
    /// Adds how an older run left services that no newer one had.
    fn add_services(&mut self, id: RunId, run: &Run) {
        let (plan, state) = (run.plan(), run.state());
        let Some(own) = plan.own_index().filter(|_| plan.puts_back.is_none()) else { return };
        let has_begun = |service: &str| {
            let mut of = plan.task_ids().filter(|id| plan.task(*id).service == service);
            plan.direction == Direction::Drain && of.any(|id| state.task(id).started.is_some())
        };
        let fleet = Fleet::left_by(plan, state);
        for (traffic, row) in plan.traffic.iter().zip(&fleet.multipliers) {
            let Some(share) = row[own] else { continue };
            let is_knobless = traffic.datacenters[own].knobs.is_empty() && traffic.is_in(own);
            let new =
                ServiceLeft { share, is_knobless, run: id, has_moved: false, is_given_up: false };
            let left = self.services.entry(traffic.service.clone()).or_insert(new);
            if !left.has_moved && has_begun(&traffic.service) {
                (left.run, left.has_moved) = (id, true);
            }
        }
        if matches!(state.closed, Some((_, RunOutcome::Completed))) {
            for own in plan.left_behind.iter().filter(|own| own.is_given_up) {
                let new = ServiceLeft {
                    share: 0.0,
                    is_knobless: true,
                    run: id,
                    has_moved: true,
                    is_given_up: true,
                };
                self.services.entry(own.name().to_owned()).or_insert(new);
            }
        }
    }

    /// Whether an older run could say nothing about services that is not known.
    fn knows_services_of(&self, plan: &Plan) -> bool {
        let is_known = |own: &ServiceLeft| own.has_moved || own.share > 0.0 || !own.is_knobless;
        let mut services = plan.traffic.iter().map(|own| &own.service);
        services.all(|own| self.services.get(own).is_some_and(is_known))
    }

    /// The share of a service that is open, by what runs did; `None` if that is
    /// unknown.
    fn share_of(&self, service: &str, plan: &Plan) -> Option<f64> {
        match self.services.get(service) {
            Some(left) => Some(left.share),
            // It may be one that was moved away under another name.
            None => {
                let is_known = !self.is_cut_off && self.services_lost(plan).next().is_none();
                is_known.then_some(1.0)
            }
        }
    }

    /// Services without traffic knobs that were moved away and that no restore has
    /// brought back, with the runs that moved them.
    pub fn services_away(&self) -> impl Iterator<Item = (&String, RunId)> {
        let is_away = |own: &ServiceLeft| own.is_knobless && own.share <= 0.0 && !own.is_given_up;
        let away = self.services.iter().filter(move |(_, own)| is_away(own));
        away.map(|(name, own)| (name, own.run))
    }

    /// Those of them that runbooks do not know any more.
    fn services_lost(&self, plan: &Plan) -> impl Iterator<Item = (&String, RunId)> {
        let is_known = |name: &String| {
            plan.services.contains(name) || plan.traffic.iter().any(|own| own.service == *name)
        };
        self.services_away().filter(move |(name, _)| !is_known(name))
    }
}

/// Fences that drains left closed on purpose and that a restore which is complete did not open,
/// since its runbooks do not know them or its task was idle: with since when they are closed.
pub async fn unopened(world: &World, run: &Run) -> Vec<(LeftFence, Time)> {
    let (plan, state) = (run.plan(), run.state());
    let is_complete = matches!(state.closed, Some((_, RunOutcome::Completed)));
    if plan.direction != Direction::Restore || !is_complete {
        return Vec::new();
    }
    let own = match recorded(world, &plan.datacenter).await {
        Ok(Some(own)) => own,
        Ok(None) => return Vec::new(),
        Err(why) => {
            tracing::warn!(datacenter = plan.datacenter, "which fences drains left: {why}");
            return Vec::new();
        }
    };
    let now = |knob: &Knob| {
        let at = plan.knobs.iter().position(|own| own == knob)?;
        state.knobs[at].as_ref().map(|left| left.value.clone())
    };
    let mut unopened: Vec<(LeftFence, Time)> = Vec::new();
    for drained in &own.drain_plans {
        let fences = drained.tasks.iter().flat_map(Task::fenced_primaries);
        for (fence, primary, server) in fences {
            let knob = drained.knob(fence.knob);
            let Some(left) = own.knobs.iter().find(|left| left.knob == *knob) else { continue };
            let value = now(knob).unwrap_or_else(|| left.value.clone());
            let is_known = unopened.iter().any(|(own, _)| own.knob == *knob);
            if is_known || !fence.is_closed_in_part(&value) {
                continue;
            }
            let (primary, server) = (drained.knob(primary).clone(), server.clone());
            let keeps = Some(Fenced { primary, server });
            let own = LeftFence { knob: knob.clone(), fence: fence.clone(), before: None, keeps };
            unopened.push((own, left.since));
        }
    }
    unopened
}

/// Services of a plan of which it is unknown whether a datacenter serves them: no
/// run had them there, and others that were moved away are in no runbook.
pub async fn unknown_services(world: &World, plan: &Plan) -> Vec<String> {
    let mut unknown = Vec::new();
    for (at, datacenter) in plan.datacenters.iter().enumerate() {
        let at_this = |own: &&ServiceTraffic| own.datacenters[at].knobs.is_empty() && own.is_in(at);
        let mut knobless = plan.traffic.iter().filter(at_this).peekable();
        if knobless.peek().is_none() || datacenter.name == plan.datacenter {
            continue;
        }
        let own = match recorded(world, &datacenter.name).await {
            Ok(Some(own)) => own,
            Ok(None) => continue,
            Err(why) => {
                unknown.extend(knobless.map(|service| {
                    format!(
                        "whether {} serves {} is unknown: {why}; accepted: a restore of {0} that \
                         has it",
                        datacenter.name, service.service
                    )
                }));
                continue;
            }
        };
        let lost = own.services_lost(plan).map(|(name, run)| {
            format!("{name}, which run {run} moved out of {} and no runbook has", datacenter.name)
        });
        let mut lost: Vec<String> = lost.collect();
        if lost.is_empty() {
            lost.push(format!(
                "one that a run moved which cannot be read, or is not among the last {RUNS_MAX}"
            ));
        }
        for service in knobless.filter(|service| own.share_of(&service.service, plan).is_none()) {
            unknown.push(format!(
                "whether {} serves {} is unknown: no run had it there, and it may be {}; accepted: \
                 a restore of {0} that has it",
                datacenter.name,
                service.service,
                lost.join(", or ")
            ));
        }
    }
    unknown
}

impl Kept {
    fn of(id: RunId, run: &Run) -> Kept {
        let (plan, state) = (run.plan(), run.state());
        let mut knobs: Vec<(u64, Knob, Value, String)> = Vec::new();
        for (knob, left) in plan.knobs.iter().zip(&state.knobs) {
            let Some(left) = left.as_ref().filter(|_| is_traffic(plan, knob)) else { continue };
            // What was skipped is in somebody's hands.
            if matches!(state.task(left.task).phase, Phase::Done | Phase::Abandoned) {
                let service = plan.task(left.task).service.clone();
                knobs.push((left.since.0, knob.clone(), left.value.clone(), service));
            }
        }
        knobs.sort_by_key(|(since, ..)| *since);
        let knobs = knobs.into_iter().map(|(_, knob, value, service)| (knob, value, service));
        Kept { run: id, plan: plan.clone(), mode: state.mode, knobs: knobs.collect() }
    }
}

/// Knobs that a run set, or whose task somebody skipped.
fn touched(run: &Run, records: &[Record]) -> BTreeSet<Knob> {
    let (plan, state) = (run.plan(), run.state());
    let written = records.iter().filter_map(|record| match &record.fact {
        Fact::Issued { what: Effect::Write { knob, .. }, .. } => Some(*knob),
        _ => None,
    });
    let skipped = plan.task_ids().filter(|id| state.task(*id).phase == Phase::Skipped);
    let skipped =
        skipped.flat_map(|id| &plan.task(id).stages).filter_map(|stage| match stage.kind {
            StageKind::Shift { knob, .. } | StageKind::Set { knob, .. } => Some(knob),
            _ => None,
        });
    let known = written.chain(skipped).filter(|knob| knob.index() < plan.knobs.len());
    known.map(|knob| plan.knob(knob).clone()).collect()
}

/// Whether somebody said to end a run, or to go on without a task of it.
fn ended_by_a_person(records: &[Record]) -> bool {
    records.iter().any(|record| match &record.fact {
        Fact::Commanded { by, command: Command::Abort { .. } | Command::Skip { .. }, .. } => {
            *by != Actor::automatic(KEEPER)
        }
        _ => false,
    })
}

/// Whether a knob carries traffic of the plan's datacenter. A primary or its
/// fence does not, and is not set again without a procedure.
pub fn is_traffic(plan: &Plan, knob: &Knob) -> bool {
    #[cfg(test)]
    if super::tests::Mutation::EverythingKept.is_planted() {
        return true;
    }
    let own = plan.own_index();
    plan.traffic.iter().any(|service| {
        let at = own.and_then(|own| service.datacenters.get(own));
        at.is_some_and(|at| at.knobs.iter().any(|own| own.knob == *knob))
    })
}

/// Asks for the present load of services, where runbooks say how.
pub async fn measure(world: &World, plan: &mut Plan) {
    let mut asked = Vec::new();
    for (service, traffic) in plan.traffic.iter().enumerate() {
        for (at, own) in traffic.datacenters.iter().enumerate() {
            asked.extend(own.measured_load.clone().map(|query| (service, at, query)));
        }
    }
    let ask = async |(service, at, query): (usize, usize, String)| {
        let condition = Condition {
            name: "measured_load".into(),
            source: Source::Query(query),
            comparison: Comparison::AtMost,
            bound: f64::MAX,
            hold_for: Millis::ZERO,
            max_age: LOAD_AGE_MAX,
            no_data: NoData::Block,
            no_traffic: NoData::Block,
            no_traffic_back: NoData::Block,
            is_exact: false,
        };
        let reading = world.health.measure(&condition).await.ok();
        // What was measured a while ago is not the present load.
        let reading = reading.filter(|reading| reading.age <= LOAD_AGE_MAX);
        (service, at, reading.map(|reading| reading.value))
    };
    let mut answers = std::pin::pin!(stream::iter(asked).map(ask).buffer_unordered(LOOKS_MAX));
    while let Some((service, at, load)) = answers.next().await {
        let load = load.filter(|load| (0.0..=drain::LOAD_MAX).contains(load));
        plan.traffic[service].datacenters[at].measured = load;
    }
}
