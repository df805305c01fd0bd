//! Carries a plan out.
//!
//! A [`Run`] is given events and the time, and answers with records. Whoever
//! drives it writes them down, then does what they ask for ([`Fact::Issued`]),
//! and reports back. Between two events nothing happens, so everything that a
//! run decides follows from its records, what was observed, and the time.
//!
//! ```text
//!             ┌─────────┐ records ┌───────┐ effects ┌─────────┐
//!  events ──▶ │   Run   │ ──────▶ │ store │ ──────▶ │ drivers │ ─┐
//!    ▲        └─────────┘         └───────┘         └─────────┘  │
//!    └────────────────────────────────────────────────────────────┘
//! ```
//!
//! What was observed is not written down, but for what decides something. After
//! a crash everything is observed anew.

mod actor;
mod budget;
mod claim;
mod command;
mod gate;
mod govern;
mod look;
mod pace;
mod phase;
mod record;
mod retreat;
mod sample;
mod schedule;
mod stages;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod verb;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use actor::{Actor, Identity, People, User};
pub use claim::InUse;
pub use command::{COMMANDS_MAX, COMMENT_LEN_MAX, REASON_LEN_MAX, Refusal, check_said};
pub use phase::{Census, Phase, Trigger};
pub use record::{Effect, EffectId, Ended, Fact, Hold, Mode, Record, RunOutcome, Seen};
pub use state::{Astray, Corrupt, InFlight, Left, Pause, State};
pub use task::{Shifted, TaskState};
pub use verb::{Abort, Command};

use self::claim::Claims;
use self::look::{LastLook, Wanted};
use crate::condition::{Measurement, Observed, Verdict};
use crate::fleet::Fleet;
use crate::plan::{ConditionId, KnobId, Plan, StageKind, TaskId};
use crate::time::{Millis, Time};
use crate::value::Value;

/// How often a failing effect is tried, and how long to wait between: the first
/// doubles up to the last.
pub const ATTEMPTS_MAX: u32 = 8;
const RETRY_MIN: Millis = Millis(500);
const RETRY_MAX: Millis = Millis(30_000);
/// How often in a row a knob may be found elsewhere before somebody else is
/// taken to be turning it; and how long it must have stayed where it was put
/// for that to begin anew: a load balancer may be loaded anew now and then.
pub const DRIFTS_MAX: u32 = 5;
pub const DRIFT_FORGOTTEN_AFTER: Millis = Millis::from_secs(600);
/// How long a task that came round to where it was without anything taking time
/// is left alone.
const CIRCLE_PAUSE: Millis = Millis::from_secs(5);
/// How many times nearer to its bound a condition must come to be written down
/// again.
const CLOSER: f64 = 1.1;
/// How long an effect may take before its task says that it waits for it.
///
/// An effect is never given up here: it may still be done, and who knows when.
/// Drivers bound every call; what a crash cuts off is decided anew ([`Run::take_up`]).
const UNANSWERED_AFTER: Millis = Millis::from_secs(120);

/// What happens to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A condition was measured, or could not be; `asked` is when that began.
    Observed { condition: ConditionId, asked: Time, found: Option<Measurement> },
    /// A knob was looked at; `asked` is when that began.
    Looked { knob: KnobId, asked: Time, found: Result<Value, String> },
    /// An effect ended.
    Ended { effect: EffectId, result: Ended },
    /// The position of the fleet was read.
    Fleet { fleet: Fleet },
    /// The claim of a task was granted, or another task has it.
    Claimed { task: TaskId, answer: Result<(), InUse> },
    /// Somebody says something.
    Said { by: Actor, reason: String, command: Command },
}

/// A plan that is being carried out.
#[derive(Clone, Debug)]
pub struct Run {
    plan: Arc<Plan>,
    state: State,
    index: Index,
    /// What was seen of each condition.
    seen: Vec<Observed>,
    /// Which tasks want to know where a knob stands, and when the last look
    /// failed.
    wanted: BTreeMap<KnobId, Wanted>,
    /// Knobs to look at before the run is closed, once all tasks have ended.
    last_look: Option<LastLook>,
    /// What tasks claim that must not be under way together.
    claims: Claims,
    /// When it was opened or resumed, and when something happened last.
    began: Option<Time>,
    last: Time,
    /// When to look at which task again; one entry a task.
    agenda: BTreeSet<(Time, TaskId)>,
    wakes: Vec<Option<Time>>,
    /// Tasks to look at now.
    dirty: BTreeSet<Turn>,
    /// Tasks that run, or could: those for which it matters what is observed.
    in_play: Few,
    /// Of them those that wait until somebody has looked, whatever is seen.
    await_look: Few,
    /// Conditions that held when they were last observed, far from their bounds.
    are_calm: Vec<bool>,
    /// How near the nearest condition was to its bound when each task took its
    /// last step. Nobody knows any more after a crash, and steps are careful.
    near_before: Vec<Option<f64>>,
    /// When a knob that is moved in steps was last seen where it was left, and at what value.
    in_place: BTreeMap<KnobId, (Time, Value)>,
    /// Knobs that were read where they were before a write that failed.
    disproved: BTreeSet<KnobId>,
    /// Knobs that are not where they were left, and are not put back at once.
    away: BTreeMap<KnobId, Value>,
    /// When each task last entered a stage, and how many since then in no time.
    strides: Vec<(Time, usize)>,
    /// What each task gets of its budgets, as a share of what it wants.
    speeds: Vec<f64>,
    /// What is let through of each budget beyond the shares of tasks, as long
    /// as knobs are not where they are to be.
    overdrawn: Vec<f64>,
    /// Whether claims or governed knobs changed.
    are_budgets_stale: bool,
    records: Vec<Record>,
    #[cfg(test)]
    toil: Toil,
}

/// How often was done what takes its time with many tasks.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
struct Toil {
    examined: usize,
    divided: usize,
}

/// Whose turn it is among tasks: the higher priority, then the earlier one.
type Turn = (std::cmp::Reverse<i32>, TaskId);

/// Some of many tasks: quick to ask and to go through.
#[derive(Clone, Debug, Default)]
struct Few {
    has: Vec<bool>,
    tasks: BTreeSet<TaskId>,
}

impl Few {
    fn none(of: usize) -> Self {
        Few { has: vec![false; of], tasks: BTreeSet::new() }
    }

    fn put(&mut self, task: TaskId, is_in: bool) {
        if std::mem::replace(&mut self.has[task.index()], is_in) != is_in {
            match is_in {
                true => self.tasks.insert(task),
                false => self.tasks.remove(&task),
            };
        }
    }
}

/// What follows from the plan alone.
#[derive(Clone, Debug)]
struct Index {
    children: Vec<Vec<TaskId>>,
    watchers: Vec<Vec<TaskId>>,
    barriers: BTreeMap<String, Vec<TaskId>>,
    /// Tasks that want something of a budget.
    claimants: Vec<TaskId>,
    /// Knobs whose values are names.
    switches: BTreeSet<KnobId>,
}

impl Index {
    fn new(plan: &Plan) -> Self {
        let mut children = vec![Vec::new(); plan.tasks.len()];
        let mut watchers = vec![Vec::new(); plan.conditions.len()];
        let mut barriers: BTreeMap<String, Vec<TaskId>> = BTreeMap::new();
        for id in plan.task_ids() {
            let task = plan.task(id);
            task.parents().for_each(|parent| children[parent.index()].push(id));
            let watched: BTreeSet<ConditionId> = task.conditions().collect();
            watched.iter().for_each(|condition| watchers[condition.index()].push(id));
            for stage in &task.stages {
                if let StageKind::Barrier { name } = &stage.kind {
                    barriers.entry(name.clone()).or_default().push(id);
                }
            }
        }
        let claimants = plan.task_ids().filter(|id| !plan.task(*id).budgets.is_empty()).collect();
        Index { children, watchers, barriers, claimants, switches: plan.switches() }
    }
}

impl Run {
    /// Begins a run.
    pub fn open(
        plan: Arc<Plan>,
        by: impl Into<Actor>,
        reason: &str,
        mode: Mode,
        now: Time,
    ) -> (Run, Vec<Record>) {
        let mut run = Run::blank(plan);
        (run.began, run.last) = (Some(now), now);
        run.record(now, Fact::Opened { by: by.into(), reason: reason.to_owned(), mode });
        run.wake_all();
        run.settle(now);
        let records = std::mem::take(&mut run.records);
        (run, records)
    }

    /// Takes up a run where its records end. What is in flight
    /// ([`State::in_flight`]) may or may not have been done: see [`Run::take_up`].
    pub fn resume<'r>(
        plan: Arc<Plan>,
        records: impl IntoIterator<Item = &'r Record>,
    ) -> Result<Run, Corrupt> {
        let mut run = Run::blank(plan);
        for record in records {
            run.state.apply(&run.plan, record)?;
        }
        run.wake_all();
        Ok(run)
    }

    /// Ends what was in flight when the run was resumed, as if it had failed: it was
    /// decided on what was seen then, and is decided anew. Messages are sent again:
    /// they are given back.
    pub fn take_up(&mut self, now: Time) -> (Vec<Record>, Vec<(EffectId, Effect)>) {
        let in_flight = self.state.in_flight.iter();
        let all: Vec<(EffectId, Effect)> =
            in_flight.map(|(id, own)| (*id, own.what.clone())).collect();
        let (said, done): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, what)| matches!(what, Effect::Say(_)));
        let why = "the server ended before the driver answered";
        let mut records = Vec::new();
        for (effect, _) in done {
            let result = Ended::Failed { why: why.into() };
            // Only commands are refused.
            records.extend(self.handle(now, Event::Ended { effect, result }).unwrap_or_default());
        }
        (records, said)
    }

    fn blank(plan: Arc<Plan>) -> Run {
        Run {
            state: State::new(&plan),
            index: Index::new(&plan),
            seen: vec![Observed::default(); plan.conditions.len()],
            wanted: BTreeMap::new(),
            last_look: None,
            claims: Claims::new(&plan),
            began: None,
            last: Time(0),
            agenda: BTreeSet::new(),
            wakes: vec![None; plan.tasks.len()],
            dirty: BTreeSet::new(),
            in_play: Few::none(plan.tasks.len()),
            await_look: Few::none(plan.tasks.len()),
            are_calm: vec![false; plan.conditions.len()],
            near_before: vec![None; plan.tasks.len()],
            in_place: BTreeMap::new(),
            disproved: BTreeSet::new(),
            away: BTreeMap::new(),
            strides: vec![(Time(0), 0); plan.tasks.len()],
            speeds: vec![1.0; plan.tasks.len()],
            overdrawn: vec![0.0; plan.budgets.len()],
            are_budgets_stale: true,
            records: Vec::new(),
            #[cfg(test)]
            toil: Toil::default(),
            plan,
        }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The last value of a condition, if it is fresh.
    pub fn value(&self, condition: ConditionId, now: Time) -> Option<f64> {
        self.seen[condition.index()].value(now, self.plan.condition(condition).max_age)
    }

    /// The last measurement of a condition, however old its data is.
    pub fn measurement(&self, condition: ConditionId) -> Option<Measurement> {
        self.seen[condition.index()].measurement()
    }

    /// What a condition says now.
    pub fn verdict(&self, condition: ConditionId, now: Time) -> Verdict {
        self.plan.condition(condition).verdict(&self.seen[condition.index()], now)
    }

    /// Of the conditions that decide something now, those that must hold while
    /// tasks run; others are waited for.
    pub fn watched_health(&self) -> BTreeSet<ConditionId> {
        let own = self.in_play.tasks.iter().flat_map(|id| &self.plan.task(*id).health);
        self.plan.health.iter().chain(own).copied().collect()
    }

    /// When something is to be done if nothing happens before.
    pub fn wakes_at(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Conditions that decide something now: those of tasks that run, or could.
    pub fn watched(&self) -> BTreeSet<ConditionId> {
        let own = self.in_play.tasks.iter().flat_map(|id| self.plan.task(*id).conditions());
        self.plan.health.iter().copied().chain(own).collect()
    }

    /// Takes what happened. The records are to be made durable before anything
    /// that they ask for is done, in their order.
    pub fn handle(&mut self, now: Time, event: Event) -> Result<Vec<Record>, Refusal> {
        if self.state.closed.is_some() {
            return match event {
                Event::Said { .. } => Err(Refusal::closed()),
                _ => Ok(Vec::new()),
            };
        }
        self.began.get_or_insert(now);
        if now < self.last {
            // The clock was set back: what was looked at when cannot be told.
            self.last_look = None;
        }
        self.last = now;
        match event {
            Event::Tick => {}
            Event::Observed { condition, asked, found } => {
                self.observe(now, condition, asked, found);
            }
            Event::Looked { knob, asked, found } => self.look(now, knob, asked, found),
            Event::Ended { effect, result } => self.end(now, effect, result),
            Event::Fleet { fleet } => self.take_fleet(now, fleet),
            Event::Claimed { task, answer } => self.take_claim(now, task, answer),
            Event::Said { by, reason, command } => self.obey(now, by, reason, command)?,
        }
        while let Some((at, task)) = self.agenda.first().copied().filter(|(at, _)| *at <= now) {
            self.agenda.remove(&(at, task));
            self.wakes[task.index()] = None;
            self.wake(task);
        }
        self.settle(now);
        self.drop_claims(now);
        #[cfg(test)]
        for task in self.plan.task_ids() {
            assert!(self.in_play.has[task.index()] || !self.is_in_play(task), "{task:?}");
        }
        Ok(std::mem::take(&mut self.records))
    }

    /// Looks at tasks until there is nothing left to decide.
    fn settle(&mut self, now: Time) {
        loop {
            let mut without_share = BTreeSet::new();
            while let Some(turn) = self.dirty.pop_first() {
                // Whoever has begun since has no share yet, and must not take all. Budgets are
                // divided once for all of them: that takes as long as there are tasks.
                if self.are_budgets_stale && self.needs_share(turn.1) {
                    without_share.insert(turn);
                } else {
                    self.examine(now, turn.1);
                }
            }
            self.divide_budgets();
            self.dirty.append(&mut without_share);
            if self.dirty.is_empty() {
                break;
            }
        }
        self.close(now);
    }

    fn record(&mut self, at: Time, fact: Fact) {
        let record = Record { seq: self.state.next_seq, at, fact };
        let applied = self.state.apply(&self.plan, &record);
        // What does not follow must not reach the disk: no run could be resumed from it.
        assert_eq!(applied, Ok(()), "{record:?}");
        self.records.push(record);
    }

    /// Whether it matters to a task what is observed.
    fn is_in_play(&self, task: TaskId) -> bool {
        let phase = self.state.task(task).phase;
        phase.is_active() || (phase == Phase::Waiting && self.parents_are_complete(task))
    }

    /// Has a task looked at now. Whatever changes for a task wakes it, so this is
    /// where it comes into play.
    fn wake(&mut self, task: TaskId) {
        self.in_play.put(task, self.is_in_play(task));
        self.dirty.insert((std::cmp::Reverse(self.plan.task(task).priority), task));
    }

    fn wake_all(&mut self) {
        self.plan.task_ids().for_each(|task| self.wake(task));
        self.are_budgets_stale = true;
    }

    /// Has a task looked at again, not later than at `at`.
    fn wake_at(&mut self, task: TaskId, at: Time) {
        let known = &mut self.wakes[task.index()];
        if known.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(later) = known.replace(at) {
            self.agenda.remove(&(later, task));
        }
        self.agenda.insert((at, task));
    }

    fn observe(&mut self, now: Time, id: ConditionId, asked: Time, found: Option<Measurement>) {
        let Some(seen) = self.seen.get_mut(id.index()) else { return };
        let condition = self.plan.condition(id);
        let was_fresh = seen.value(now, condition.max_age).is_some();
        let before = seen.at().map(|_| condition.verdict(seen, now));
        condition.observe(seen, asked, found);
        let after = condition.verdict(seen, now);
        // Written down each time it comes nearer by a bit: a few times at most.
        let value = seen.value(now, condition.max_age);
        let nearness = value.and_then(|value| condition.nearness(value)).unwrap_or(0.0);
        let is_calm = nearness < pace::CLOSE && condition.verdict(seen, now) == Verdict::Holds;
        let was_calm = std::mem::replace(&mut self.are_calm[id.index()], is_calm) && was_fresh;
        let known = self.state.nearest[id.index()];
        if let Some(value) = value.filter(|_| nearness >= (known * CLOSER).max(pace::CLOSE)) {
            self.record(now, Fact::Close { condition: id, value });
        }
        self.sample_change(now, id, before, after);
        self.sample(now);
        self.tell_watchers(id, is_calm && was_calm);
    }

    /// Wakes whom an observation concerns. One that says nothing new concerns
    /// only those who wait until somebody has looked: with ten thousand tasks,
    /// nothing else costs as much.
    fn tell_watchers(&mut self, id: ConditionId, is_old_news: bool) {
        let concerned = if is_old_news { &self.await_look } else { &self.in_play };
        let turn = |task: &TaskId| (std::cmp::Reverse(self.plan.task(*task).priority), *task);
        // The health of all is everybody's.
        if self.plan.health.contains(&id) {
            self.dirty.extend(concerned.tasks.iter().map(turn));
        } else {
            let watchers = self.index.watchers[id.index()].iter();
            self.dirty.extend(watchers.filter(|task| concerned.has[task.index()]).map(turn));
        }
    }

    /// Takes the end of an effect. One that ended before is heard again after
    /// a crash; it is not news.
    fn end(&mut self, now: Time, effect: EffectId, result: Ended) {
        let Some(in_flight) = self.state.in_flight.get(&effect) else { return };
        let task = in_flight.task;
        let written = match in_flight.what {
            Effect::Write { knob, .. } => Some(knob),
            Effect::Act(_) | Effect::Say(_) => None,
        };
        let result = match (&in_flight.what, result) {
            (Effect::Write { value, .. }, Ended::Done { found: Some(found) })
                if !value.is_met_by(&found) =>
            {
                Ended::Failed { why: format!("wrote {value}, read back {found}") }
            }
            // Acts are not read back: what they found decides nothing.
            (Effect::Act(_) | Effect::Say(_), Ended::Done { .. }) => Ended::Done { found: None },
            (_, result) => result,
        };
        let is_done = matches!(result, Ended::Done { .. });
        self.record(now, Fact::Ended { effect, result });
        if let Some(knob) = written.filter(|_| is_done) {
            // It was read back.
            self.end_last_look(knob);
        }
        if matches!(self.state.task(task).hold, Some((_, Hold::Unanswered { .. }))) {
            self.release(now, task);
        }
        self.are_budgets_stale |= self.state.task(task).governs.is_some();
        self.wake(task);
    }

    fn issue(&mut self, now: Time, task: TaskId, what: Effect) {
        let effect = self.state.next_effect;
        if let Effect::Write { knob, .. } = &what {
            self.disproved.remove(knob);
        }
        self.record(now, Fact::Issued { effect, task, what });
        self.are_budgets_stale |= self.state.task(task).governs.is_some();
        self.wake_at(task, now + UNANSWERED_AFTER);
    }

    fn move_task(&mut self, now: Time, task: TaskId, trigger: Trigger) {
        self.record(now, Fact::Moved { task, trigger });
        self.claims.forget_wish(task);
        self.are_budgets_stale |= !self.plan.task(task).budgets.is_empty();
        self.look_no_more(task);
        self.wake(task);
        let phase = self.state.task(task).phase;
        if !phase.is_active() {
            let plan = self.plan.clone();
            let children = self.index.children[task.index()].clone();
            children.into_iter().for_each(|child| self.wake(child));
            plan.task(task).parents().for_each(|parent| self.wake(parent));
        }
        self.wake_barriers(task);
    }

    /// Wakes those at a barrier of a task, if that was whom they waited for.
    fn wake_barriers(&mut self, task: TaskId) {
        let plan = self.plan.clone();
        for stage in &plan.task(task).stages {
            let StageKind::Barrier { name } = &stage.kind else { continue };
            let is_at = |run: &Run, task| match &run.state.stage(&plan, task).kind {
                StageKind::Barrier { name: own } => own == name,
                _ => false,
            };
            if !self.all_are_at(name) {
                continue;
            }
            let others = self.index.barriers.get(name).cloned().unwrap_or_default();
            for other in others {
                if self.state.task(other).phase.is_active() && is_at(self, other) {
                    self.wake(other);
                }
            }
        }
    }
}
