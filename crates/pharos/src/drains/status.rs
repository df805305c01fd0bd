//! The state of a run, for people and for machines that watch it. The same types
//! are what the server sends and what the command line reads.

use std::collections::{BTreeMap, BTreeSet};

use drain::engine::{
    ATTEMPTS_MAX, Abort, Astray, DRIFTS_MAX, Effect, Hold, Left, Mode, Phase, Run, RunOutcome,
};
use drain::report::describe;
use drain::{
    Away, Budget, ConditionId, Direction, Eta, Fence, IdleTask, Knob, KnobId, LeftBehind, Millis,
    Plan, StageKind, TakesOut, TaskId, Time, Value, Verdict, forecast, number,
};
use serde::{Deserialize, Serialize};
use store::RunId;

use super::vigil::Strayed;

/// A hold that may end by itself needs a person after that long.
const PATIENCE: Millis = Millis::from_secs(60);
/// Writes that are refused for longer than that need a person.
pub const FENCED_FOR_LONG: Millis = Millis::from_secs(15);
/// How long a drift is shown after the knob was put back.
const DRIFT_SHOWN_FOR: Millis = Millis::from_secs(600);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub run: u64,
    pub datacenter: String,
    pub direction: Direction,
    pub mode: Mode,
    pub opened: Time,
    /// Who started it, and why.
    pub by: String,
    pub reason: String,
    pub now: Time,
    pub outcome: Option<RunOutcome>,
    pub paused: bool,
    pub abort: Option<Abort>,
    /// When it ends, predicted anew from what has happened so far.
    pub eta: Eta,
    /// Why nothing can be done at all: what is not on the disk is not done.
    pub stands_still: Option<String>,
    /// Who drives it, if not this server, which knows no more than is written.
    pub elsewhere: Option<String>,
    /// Everything that waits for a person, the most urgent first.
    pub needs_person: Vec<NeedsPerson>,
    pub tasks: Vec<TaskStatus>,
    /// The tasks that decide when it ends, predicted anew; complete ones too.
    pub critical_path: Vec<String>,
    /// Conditions that decide something now.
    pub conditions: Vec<ConditionStatus>,
    /// Knobs that were found at another value than the run left them at, the
    /// latest first.
    pub drifts: Vec<DriftStatus>,
    /// The number of the next record: a status with a higher one is newer.
    pub next_seq: u64,
    /// How many of the records are measured values, which decide nothing.
    #[serde(default)]
    pub samples: u64,
    /// Knobs that are not where a drain left them any more: of a run that is over, or that
    /// has not come to them yet.
    pub strayed: Vec<Strayed>,
    /// Knobs that the run has looked at to set them, or has set.
    #[serde(skip)]
    pub touched: BTreeSet<Knob>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    pub name: String,
    pub service: String,
    pub phase: Phase,
    pub stage: String,
    pub started: Option<Time>,
    pub ended: Option<Time>,
    /// How long it takes as a rule.
    pub usual: Option<Millis>,
    /// How much of the shift it is in is done, 0 to 1.
    pub progress: Option<f64>,
    pub steps: u32,
    pub next_step_at: Option<Time>,
    pub hold: Option<HoldStatus>,
    /// Tasks that it waits for.
    pub waits_for: Vec<String>,
    /// What it asks people, or whom it meets, while it does that.
    pub asks: Option<String>,
    pub is_stuck: bool,
    /// What failed last; never absent where the task failed.
    pub failure: Option<String>,
    /// Why it does not go on, whatever keeps it: with the object and the value.
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HoldStatus {
    pub since: Time,
    pub kind: HoldKind,
    /// The condition that decides, if one does.
    #[serde(default)]
    pub condition: Option<String>,
    pub why: String,
    /// The commands that help, before it waits for a person.
    #[serde(default)]
    pub todo: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    Awaits,
    Breach,
    NoData,
    Paused,
    Limit,
    Budget,
    Contested,
    Unreadable,
    InUse,
    Unanswered,
}

impl HoldKind {
    fn of(hold: &Hold) -> HoldKind {
        match hold {
            Hold::Awaits { .. } => HoldKind::Awaits,
            Hold::Breach { .. } => HoldKind::Breach,
            Hold::NoData { .. } => HoldKind::NoData,
            Hold::Paused => HoldKind::Paused,
            Hold::Limit { .. } => HoldKind::Limit,
            Hold::Budget => HoldKind::Budget,
            Hold::Contested { .. } => HoldKind::Contested,
            Hold::Unreadable { .. } => HoldKind::Unreadable,
            Hold::InUse { .. } => HoldKind::InUse,
            Hold::Unanswered { .. } => HoldKind::Unanswered,
        }
    }

    /// Whether it is part of how a task goes: nothing is wrong.
    pub fn is_routine(self) -> bool {
        matches!(self, HoldKind::Awaits | HoldKind::Budget)
    }
}

/// Something that a person has to see to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeedsPerson {
    pub kind: NeedKind,
    /// What it is about; neither means the run.
    pub task: Option<String>,
    pub knob: Option<String>,
    pub since: Time,
    /// With the object and the value.
    pub why: String,
    /// The commands that help.
    pub todo: String,
}

/// In the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NeedKind {
    /// Nothing can be written to the disk.
    StandsStill,
    /// A fence was left closed: writes are refused.
    Fenced,
    Failed,
    /// Its knobs could not be put back.
    Unreverted,
    /// A breach put its knobs back, and it does not begin again by itself.
    Reverted,
    /// A restore does not bring it back: its runbooks do not know it.
    LeftBehind,
    /// A restore ended, and a knob has another value than it set.
    NotBack,
    /// Somebody else keeps setting a knob.
    Contested,
    /// A knob cannot be read, or an effect does not end.
    Unreadable,
    Unanswered,
    InUse,
    Limit,
    Breach,
    NoData,
    Stuck,
    Approval,
    Stopped,
    Paused,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConditionStatus {
    pub name: String,
    pub value: Option<f64>,
    pub comparison: String,
    pub bound: f64,
    pub verdict: Verdict,
    pub overridden: bool,
    /// Whether it must hold while tasks run. Others are waited for, and do not
    /// hold before their time.
    #[serde(default)]
    pub is_health: bool,
    /// The labels of the series that decides: which datacenter, which instance.
    #[serde(default)]
    pub series: Option<String>,
    /// How old the data of the value is.
    #[serde(default)]
    pub age_ms: Option<u64>,
    /// Why there is no value.
    pub silence: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriftStatus {
    pub knob: String,
    pub task: String,
    pub expected: Value,
    pub found: Option<Value>,
    /// How often in a row, and when last.
    pub times: u32,
    pub last: Time,
    /// It is not put back any more.
    pub contested: bool,
    /// It says which replica is the primary, and is never put back.
    #[serde(default)]
    pub is_promoted: bool,
    /// It is put back when its task is not paused any more.
    #[serde(default)]
    pub waits_for_resume: bool,
    /// Something else moved it out of the datacenter, or its task found it at its goal and
    /// never set it: no step brings it back.
    #[serde(default)]
    pub stays_out: bool,
    /// The same while its task moves it in steps: the next one begins there.
    #[serde(default)]
    pub steps_follow: bool,
    /// Why a fence that its promotion left closed is not closed again.
    #[serde(default)]
    pub left_open: Option<String>,
}

/// What was looked at in vain, and why.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    /// Conditions without a value.
    pub conditions: BTreeMap<ConditionId, String>,
    /// Which series each of the others has its value from.
    pub series: BTreeMap<ConditionId, String>,
    /// Knobs that could not be read.
    pub knobs: BTreeMap<KnobId, String>,
}

impl Status {
    pub fn of(run: &Run, id: RunId, now: Time, unseen: &Unseen) -> Status {
        let (plan, state) = (run.plan(), run.state());
        let forecast = forecast(plan, state, now);
        let path = forecast.critical_path.iter();
        let health = run.watched_health();
        let mut status = Status {
            run: id.0,
            datacenter: plan.datacenter.clone(),
            direction: plan.direction,
            mode: state.mode,
            opened: state.opened.unwrap_or(now),
            by: state.opened_by.clone(),
            reason: state.reason.clone(),
            now,
            outcome: state.closed.map(|(_, outcome)| outcome),
            paused: state.paused,
            abort: state.abort,
            eta: forecast.eta,
            stands_still: None,
            elsewhere: None,
            needs_person: Vec::new(),
            tasks: plan.task_ids().map(|task| TaskStatus::of(run, task, now, unseen)).collect(),
            critical_path: path.map(|task| plan.task(*task).name.clone()).collect(),
            conditions: run
                .watched()
                .into_iter()
                .map(|id| condition(run, id, now, unseen, health.contains(&id)))
                .collect(),
            drifts: drifts(run, now),
            next_seq: state.next_seq,
            samples: u64::from(state.samples) + u64::from(state.changes),
            strayed: Vec::new(),
            touched: touched(run),
        };
        if status.outcome.is_none() {
            status.needs_person = needs(run, &status);
        }
        let fences = state.left_closed(plan).map(|(task, fence)| fenced(run, task, fence, now));
        status.needs_person.extend(fences);
        let left = plan.left_behind.iter().filter(|own| !own.is_given_up);
        let left: Vec<NeedsPerson> = left.map(|own| left_behind(own, &status)).collect();
        status.needs_person.extend(left);
        status.needs_person.extend(not_back(run, now));
        status.tell_fences(run, FENCED_FOR_LONG);
        status
    }

    /// Says which fences have been closed for so long by tasks that are under way.
    fn tell_fences(&mut self, run: &Run, patience: Millis) {
        let waiting =
            run.plan().task_ids().filter_map(|task| fenced_for(run, task, self, patience));
        let is_new = |need: &NeedsPerson| {
            let known = self.needs_person.iter().filter(|own| own.kind == NeedKind::Fenced);
            !known.into_iter().any(|own| own.task == need.task && own.knob == need.knob)
        };
        let waiting: Vec<NeedsPerson> = waiting.filter(is_new).collect();
        self.needs_person.extend(waiting);
        self.needs_person.sort_by_key(|need| (need.kind, need.since));
    }

    /// Nothing can be written since a moment, so nothing is done: what is closed
    /// stays closed.
    pub fn stand_still(&mut self, run: &Run, since: Time, why: String) {
        self.tell_fences(run, Millis::ZERO);
        let need = NeedsPerson {
            kind: NeedKind::StandsStill,
            task: None,
            knob: None,
            since,
            why: format!("nothing is done until it can be written: {why}"),
            todo: "make room for the store, or repair it, as the reason says".into(),
        };
        self.needs_person.insert(0, need);
        self.eta = Eta::Unknown { why: "nothing can be written".into() };
        self.stands_still = Some(why);
    }
}

fn touched(run: &Run) -> BTreeSet<Knob> {
    let (plan, state) = (run.plan(), run.state());
    let found = state.tasks.iter().flat_map(|task| task.origins.iter().map(|(knob, _)| *knob));
    let left = state.knobs.iter().enumerate().filter(|(_, left)| left.is_some());
    let left = left.map(|(at, _)| KnobId(at as u32));
    found.chain(left).map(|knob| plan.knob(knob).clone()).collect()
}

impl TaskStatus {
    fn of(run: &Run, id: TaskId, now: Time, unseen: &Unseen) -> TaskStatus {
        let (task, state) = (run.plan().task(id), run.state().task(id));
        let waits = state.phase == Phase::Waiting;
        let is_open = |parent: &TaskId| waits && !run.state().task(*parent).phase.is_complete();
        let name = |parent: TaskId| run.plan().task(parent).name.clone();
        let mut status = TaskStatus {
            name: task.name.clone(),
            service: task.service.clone(),
            phase: state.phase,
            stage: task.stages[state.stage.index()].name.clone(),
            started: state.started,
            ended: state.ended.filter(|_| !state.phase.is_active()),
            usual: task.expected.usual,
            progress: state.shift.map(|shift| shift.at.clamp(0.0, 1.0) + 0.0),
            steps: state.steps,
            // Nobody knows when, while it is held.
            next_step_at: run.next_step_at(now, id).filter(|_| state.hold.is_none()),
            hold: state.hold.as_ref().map(|(since, hold)| HoldStatus {
                since: *since,
                kind: HoldKind::of(hold),
                condition: hold.condition().map(|id| run.plan().condition(id).name.clone()),
                why: why_held(run, id, hold, now, unseen),
                // Data may never come back.
                todo: matches!(hold, Hold::NoData { .. }).then(|| overrides(run, id, hold)),
            }),
            waits_for: task.parents().filter(is_open).map(name).collect(),
            asks: asks(run, id),
            is_stuck: state.is_stuck,
            failure: failure(run, id),
            reason: None,
        };
        status.reason = status.why(run, id, now);
        status
    }

    /// What keeps it, the gravest first.
    fn why(&self, run: &Run, id: TaskId, now: Time) -> Option<String> {
        let state = run.state().task(id);
        let again = || {
            let failed = self.failure.as_ref().filter(|_| state.failures > 0)?;
            Some(format!("attempt {} of {ATTEMPTS_MAX} failed: {failed}", state.failures))
        };
        match self.phase {
            Phase::Failed | Phase::Unreverted => self.failure.clone(),
            // A breach put it back, and a person has to retry it.
            Phase::Reverted if run.state().abort.is_none() => self.failure.clone(),
            Phase::Done => {
                let idle = run.plan().idle.iter().find(|own| own.task == self.name);
                idle.map(IdleTask::describe)
            }
            Phase::Stopped => Some(format!("a person stopped it in stage `{}`", self.stage)),
            phase if phase.is_active() || phase == Phase::Waiting => {
                let held = || self.hold.as_ref().map(|hold| hold.why.clone());
                let stuck = || self.is_stuck.then(|| stuck(run, id, now));
                let sample = || {
                    let condition = run.awaits_sample(now, id)?;
                    let name = &run.plan().condition(condition).name;
                    Some(format!("waits for a sample of {name} that is newer than the last change"))
                };
                self.asks.clone().or_else(again).or_else(held).or_else(stuck).or_else(sample)
            }
            _ => None,
        }
    }
}

/// Why a task failed, or what failed last of one that tries again. A task that
/// failed has a reason, whatever its records say.
fn failure(run: &Run, id: TaskId) -> Option<String> {
    let state = run.state().task(id);
    let must_say = matches!(state.phase, Phase::Failed | Phase::Unreverted);
    let stage = || &run.plan().task(id).stages[state.stage.index()].name;
    let unsaid = || must_say.then(|| format!("{} failed", stage()));
    state.trouble().map(str::to_owned).or_else(unsaid)
}

fn stuck(run: &Run, id: TaskId, now: Time) -> String {
    let (task, state) = (run.plan().task(id), run.state().task(id));
    let runs = state.started.map(|at| whole_secs(now - at)).unwrap_or_default();
    let stage = &task.stages[state.stage.index()].name;
    match task.expected.usual {
        Some(usual) => format!("runs for {runs}, usually {usual}; in stage `{stage}`"),
        None => {
            format!("runs for {runs}, longer than its timeout {}; in stage `{stage}`", task.timeout)
        }
    }
}

fn whole_secs(span: Millis) -> Millis {
    Millis(span.0 / 1000 * 1000)
}

/// Why a task is held, with the object and the value, and what to do about it.
fn why_held(run: &Run, id: TaskId, hold: &Hold, now: Time, unseen: &Unseen) -> String {
    let (plan, why) = (run.plan(), describe(run.plan(), hold));
    let measured = |condition: &ConditionId, seen: &Option<f64>| {
        let value = run.value(*condition, now).or(*seen);
        value.map_or("has no value".into(), |value| format!("is {}", number(value)))
    };
    let wanted = |condition: &ConditionId| {
        let own = plan.condition(*condition);
        (&own.name, own.comparison.symbol(), number(own.bound))
    };
    match hold {
        Hold::Awaits { condition, value } => {
            let (name, symbol, bound) = wanted(condition);
            let by = |task| run.state().exact_overridden_by.get(&(*condition, task));
            let one = by(Some(id)).or_else(|| by(None));
            let one = one.and_then(|people| people.iter().next());
            let one = one.map_or(String::new(), |one| {
                format!("; {one} overrode it, a second person must too: what is missing is lost")
            });
            format!("waits for {name} {symbol} {bound}; it {}{one}", measured(condition, value))
        }
        Hold::Breach { condition, value } => {
            let (name, symbol, bound) = wanted(condition);
            format!("{name} {}, must be {symbol} {bound}", measured(condition, value))
        }
        Hold::NoData { condition } => match unseen.conditions.get(condition) {
            Some(because) => format!("{why}: {because}"),
            None => why,
        },
        Hold::Unreadable { knob } => match unseen.knobs.get(knob) {
            Some(because) => format!("{why}: {because}"),
            None => why,
        },
        Hold::Contested { .. } => {
            format!("{why}; `resume {}` goes on once nobody does", plan.task(id).name)
        }
        Hold::Limit(_) => match run.state().waived_by.iter().next() {
            None => why,
            Some(one) => format!("{why}; {one} waived it, a second person must too"),
        },
        Hold::Unanswered { effect } => match run.state().in_flight.get(effect) {
            Some(own) => {
                let since = whole_secs(now - own.since);
                format!("no answer for {since} to: {}", doing(plan, &own.what))
            }
            None => why,
        },
        Hold::Paused => match &run.state().pause {
            Some(pause) => format!("paused by {}", pause.by),
            None => format!("{why}: `resume {}`", plan.task(id).name),
        },
        Hold::InUse { .. } => why,
        Hold::Budget => match run.state().task(id).governs {
            Some((knob, budget)) => {
                let Budget { name, size } = &plan.budgets[budget.index()];
                format!(
                    "nothing left of the budget {name} ({}) for {}",
                    number(*size),
                    plan.knob(knob)
                )
            }
            None => why,
        },
    }
}

/// What is being done, as people read it.
fn doing(plan: &Plan, what: &Effect) -> String {
    match what {
        Effect::Write { knob, value } => format!("set {} to {value}", plan.knob(*knob)),
        Effect::Act(act) => format!("{} of {}", act.action, act.driver),
        Effect::Say(saying) => match &saying.channel {
            Some(channel) => format!("a message to {channel}"),
            None => "an entry of the change log".into(),
        },
    }
}

fn asks(run: &Run, id: TaskId) -> Option<String> {
    let (task, state) = (run.plan().task(id), run.state().task(id));
    match &task.stages[state.stage.index()].kind {
        _ if state.phase != Phase::Running => None,
        StageKind::Approve { question, people } => {
            let yes = state.approved_by.len();
            Some(format!("{question} ({yes} of {people} said yes: `approve {}`)", task.name))
        }
        StageKind::Barrier { name } => Some(format!("until all are at `{name}`")),
        _ => None,
    }
}

fn condition(
    run: &Run,
    id: ConditionId,
    now: Time,
    unseen: &Unseen,
    is_health: bool,
) -> ConditionStatus {
    let own = run.plan().condition(id);
    let found = run.measurement(id);
    let age = found.map(|found| now - found.to);
    let silence = unseen.conditions.get(&id).cloned().or_else(|| match found {
        Some(_) if age > Some(own.max_age) => {
            let age = whole_secs(age.unwrap_or_default());
            Some(format!("its newest sample is {age} old; accepted: at most {}", own.max_age))
        }
        Some(found) if found.value.is_nan() => Some("no traffic: the query is 0/0".into()),
        _ => None,
    });
    ConditionStatus {
        name: own.name.clone(),
        value: run.value(id, now),
        comparison: own.comparison.symbol().into(),
        bound: own.bound,
        verdict: run.verdict(id, now),
        overridden: run.state().overridden.contains(&id),
        is_health,
        series: unseen.series.get(&id).cloned(),
        age_ms: age.map(|age| age.0),
        silence,
    }
}

/// Knobs that were found elsewhere lately, the latest first.
fn drifts(run: &Run, now: Time) -> Vec<DriftStatus> {
    let knobs = run.plan().knobs.iter().zip(&run.state().knobs).enumerate();
    let mut drifts: Vec<DriftStatus> = knobs
        .filter_map(|(at, (knob, left))| {
            let left = left.as_ref().filter(|left| left.drifts > 0)?;
            let promoted = run.plan().task(left.task).undone_knob();
            let contested = left.drifts >= DRIFTS_MAX;
            (contested || now - left.drifted <= DRIFT_SHOWN_FOR).then(|| DriftStatus {
                knob: knob.to_string(),
                task: run.plan().task(left.task).name.clone(),
                expected: left.value.clone(),
                found: left.drifted_to.clone(),
                times: left.drifts,
                last: left.drifted,
                contested,
                is_promoted: promoted.is_some_and(|own| run.plan().knob(own) == knob),
                waits_for_resume: false,
                stays_out: false,
                steps_follow: run.has_moved_out(KnobId(at as u32)),
                left_open: run.why_left_open(KnobId(at as u32)).filter(|_| contested),
            })
        })
        .collect();
    for (knob, found) in run.away() {
        let Some(left) = run.state().knobs[knob.index()].as_ref() else { continue };
        let name = run.plan().knob(knob).to_string();
        drifts.retain(|own| own.knob != name);
        // What is further out, or was never set, stays, whatever becomes of the pause.
        let stays_out = run.stays_out(knob, found);
        drifts.push(DriftStatus {
            knob: name,
            task: run.plan().task(left.task).name.clone(),
            expected: left.value.clone(),
            found: Some(found.clone()),
            times: left.drifts + 1,
            last: now,
            contested: false,
            is_promoted: false,
            waits_for_resume: !stays_out && run.is_paused(left.task),
            stays_out,
            steps_follow: false,
            left_open: None,
        });
    }
    drifts.sort_by_key(|drift| std::cmp::Reverse((drift.contested, drift.last)));
    drifts
}

/// Everything that waits for a person, the most urgent first.
fn needs(run: &Run, status: &Status) -> Vec<NeedsPerson> {
    let mut needs: Vec<NeedsPerson> = run
        .plan()
        .task_ids()
        .zip(&status.tasks)
        .filter_map(|(id, task)| need(run, id, task, status))
        .collect();
    // A drained datacenter whose knob somebody else sets, whatever its task does.
    for drift in status.drifts.iter().filter(|drift| drift.contested) {
        if needs
            .iter()
            .any(|need| need.kind == NeedKind::Contested && need.task.as_ref() == Some(&drift.task))
        {
            continue;
        }
        let found = drift.found.as_ref().map_or("another value".into(), ToString::to_string);
        needs.push(NeedsPerson {
            kind: NeedKind::Contested,
            task: Some(drift.task.clone()),
            knob: Some(drift.knob.clone()),
            since: drift.last,
            why: match &drift.left_open {
                Some(why) => format!(
                    "something else set {} to {found}; the run had set it to {}, and leaves it: \
                     {why}",
                    drift.knob, drift.expected
                ),
                None if drift.is_promoted => format!(
                    "something else set {} to {found}; the run had set it to {}, and leaves it: \
                     to promote again takes a fence",
                    drift.knob, drift.expected
                ),
                None => format!(
                    "something else sets {} to {found}; the run set it to {} {} times",
                    drift.knob, drift.expected, drift.times
                ),
            },
            todo: match (&drift.left_open, drift.is_promoted) {
                (Some(_), _) => format!(
                    "if its server is to take writes, nothing; else find what opened it, then \
                     `resume {}`",
                    drift.task
                ),
                (None, true) => "if that is right, nothing; else restore, and drain again".into(),
                (None, false) => format!("find what sets it, then `resume {}`", drift.task),
            },
        });
    }
    if let Some(pause) = &run.state().pause {
        let why = match pause.reason.is_empty() {
            true => format!("{} paused the run", pause.by),
            false => format!("{} paused the run: {}", pause.by, pause.reason),
        };
        let todo = "`resume` goes on".into();
        needs.push(NeedsPerson {
            kind: NeedKind::Paused,
            task: None,
            knob: None,
            since: pause.since,
            why,
            todo,
        });
    }
    needs.sort_by_key(|need| (need.kind, need.since));
    needs
}

/// What a restore does not bring back.
fn left_behind(own: &LeftBehind, status: &Status) -> NeedsPerson {
    let (datacenter, name) = (&status.datacenter, own.name());
    let known = match own.what {
        Away::Knob { .. } => "runbooks that know it",
        Away::Service { .. } => "an evacuation that has it",
    };
    NeedsPerson {
        kind: NeedKind::LeftBehind,
        task: None,
        knob: Some(name.to_owned()),
        since: status.opened,
        why: own.describe(datacenter),
        todo: format!(
            "`restore {datacenter}` with {known}, or `restore {datacenter} --give-up {name}`, if \
             nobody expects it back"
        ),
    }
}

/// Knobs that a restore which is over did not leave at their values.
fn not_back(run: &Run, now: Time) -> Vec<NeedsPerson> {
    let (plan, state) = (run.plan(), run.state());
    let Some((ended, _)) = state.closed.filter(|_| plan.direction == Direction::Restore) else {
        return Vec::new();
    };
    let left = |knob: &KnobId| state.knobs[knob.index()].as_ref();
    let astray = state.astray.iter().filter_map(|(knob, own)| Some((left(knob)?, knob, own)));
    let need = |(left, knob, own): (&Left, &KnobId, &Astray)| {
        let knob = plan.knob(*knob).to_string();
        let found = own.found.as_ref().map_or("unreadable".to_owned(), ToString::to_string);
        NeedsPerson {
            kind: NeedKind::NotBack,
            task: None,
            since: ended.min(now),
            why: format!("{found} at the end, not {}: {}", left.value, own.why),
            todo: format!("`restore {}` once more, or set it by hand", plan.datacenter),
            knob: Some(knob),
        }
    };
    astray.map(need).collect()
}

/// A fence that a task left closed.
fn fenced(run: &Run, id: TaskId, fence: &Fence, now: Time) -> NeedsPerson {
    let (name, state) = (&run.plan().task(id).name, run.state());
    let knob = run.plan().knob(fence.knob);
    let left = state.knobs[fence.knob.index()].as_ref();
    let opens = fence.open.as_ref().map_or("what opens it".into(), ToString::to_string);
    // Two servers that take writes lose those of one of them.
    let by_hand = match run.plan().task(id).undone_knob() {
        Some(primary) => format!(
            "see that {} is one server alone, and set it to {opens} by hand",
            run.plan().knob(primary)
        ),
        None => format!("set it to {opens} by hand"),
    };
    let todo = match state.task(id).phase {
        Phase::Failed | Phase::Stopped if state.closed.is_none() => format!(
            "`retry {name}`, or `abort --revert`, which promotes back and sets it to {opens}; if \
             neither gets through: {by_hand}{}",
            if run.may_skip(id) { format!(", then `skip {name}`") } else { String::new() }
        ),
        Phase::Unreverted if state.closed.is_none() => format!("`retry {name}`, or {by_hand}"),
        _ => format!("{by_hand}, or `restore {}`", run.plan().datacenter),
    };
    NeedsPerson {
        kind: NeedKind::Fenced,
        task: Some(name.clone()),
        knob: Some(knob.to_string()),
        since: left.map_or(now, |left| left.since),
        why: format!("{name} left {knob} at {}: {}", fence.closed, refused(run, id, fence)),
        todo,
    }
}

/// What a fence that is closed refuses: all writes, or those to its server alone, where another
/// one was the primary when it was last read.
fn refused(run: &Run, id: TaskId, fence: &Fence) -> String {
    let (task, state) = (run.plan().task(id), run.state().task(id));
    let fenced = task.fenced_primaries().find(|(own, ..)| own.knob == fence.knob);
    let server = fenced.and_then(|(_, primary, server)| {
        let left = run.state().knobs[primary.index()].as_ref();
        let left = left.map(|left| left.drifted_to.as_ref().unwrap_or(&left.value));
        let last = state.found_again.as_ref().or(left).or(state.origin(primary))?;
        (!server.is_met_by(last)).then_some(server)
    });
    match server {
        Some(server) => format!("{server} takes no writes"),
        None => "writes are refused".into(),
    }
}

/// What leads out of where a task waits behind its fence for a primary that cannot be read: a
/// server may be dead that its driver asks, and the healthy one stays fenced.
fn way_out(run: &Run, id: TaskId) -> Option<String> {
    let (plan, task, state) = (run.plan(), run.plan().task(id), run.state().task(id));
    let primary = plan.knob(run.unread_primary(id)?);
    let is_closed = |own: &&Fence| run.state().closed_fences.contains_key(&(id, own.knob));
    let fence = task.fences.iter().find(is_closed)?;
    let opens = fence.open.as_ref().or(state.origin(fence.knob));
    let opens = opens.map_or("what opens it".into(), ToString::to_string);
    let fenced = task.fenced_primaries().find(|(own, ..)| own.knob == fence.knob);
    let server = fenced.map_or("its server".into(), |(_, _, server)| server.to_string());
    let then = match state.is_undoing {
        true => "then `abort`",
        false => "Pharos then goes on",
    };
    Some(format!(
        "make {primary} readable, or see that {server} alone is the primary, and set {} to {opens} \
         by hand: {then}",
        plan.knob(fence.knob)
    ))
}

/// A fence behind which a task has waited for as long as that may take.
fn fenced_for(run: &Run, id: TaskId, status: &Status, patience: Millis) -> Option<NeedsPerson> {
    let (task, state) = (run.plan().task(id), run.state().task(id));
    let is_behind = matches!(state.phase, Phase::Running | Phase::Reverting);
    // Also one that is being closed: it may be already.
    let since = |fence: &Fence| run.state().closed_fences.get(&(id, fence.knob)).copied();
    let (closed, since) = task.fences.iter().find_map(|own| Some((own, since(own)?)))?;
    if !is_behind || status.now - since < patience {
        return None;
    }
    let knob = run.plan().knob(closed.knob);
    let hold = status.tasks[id.index()].hold.as_ref().map(|hold| hold.why.as_str());
    let reason = hold.unwrap_or("it waits");
    let todo = match (way_out(run, id), state.phase) {
        (Some(todo), _) => todo,
        (None, Phase::Running) => "wait, or `abort --revert`, which opens it".into(),
        (None, _) => "wait".into(),
    };
    Some(NeedsPerson {
        kind: NeedKind::Fenced,
        task: Some(task.name.clone()),
        knob: Some(knob.to_string()),
        since,
        why: format!("{knob} is {}, {}: {reason}", closed.closed, refused(run, id, closed)),
        todo,
    })
}

/// What helps a task that a condition holds.
fn overrides(run: &Run, id: TaskId, hold: &Hold) -> String {
    let name = &run.plan().task(id).name;
    match hold.condition().map(|condition| run.plan().condition(condition)) {
        // Whoever overrides it loses what is missing.
        Some(condition) if condition.is_exact => match run.state().task(id).goes_back() {
            true => "bring its metric back".into(),
            false => "bring its metric back, or `abort --revert`, which opens the fence".into(),
        },
        Some(condition) if run.may_skip(id) => {
            format!("`override {}`, `skip {name}` or `abort`", condition.name)
        }
        Some(condition) => format!("`override {}` or `abort`", condition.name),
        None => String::new(),
    }
}

/// Since when a task waits for a sample that is newer than the last change, if that is
/// longer than it should take: a query over a range needs all of it.
fn unsampled_since(run: &Run, id: TaskId, now: Time) -> Option<Time> {
    let condition = run.awaits_sample(now, id)?;
    let range = run.measurement(condition).map_or(Millis::ZERO, |found| found.to - found.from);
    let state = run.state().task(id);
    let since = state.effect_at.max(Some(state.entered))?;
    (now - since >= PATIENCE + range).then_some(since)
}

/// What leads on where a limit keeps a task from bringing traffic back, since that takes out
/// what serves, or may.
fn way_out_of_limit(run: &Run, id: TaskId) -> String {
    let name = &run.plan().task(id).name;
    let mut ways = Vec::new();
    if run.may_skip(id) {
        ways.push(format!("`skip {name}`, which leaves in what serves now"));
    }
    if run.takes_back_out(id) == TakesOut::Maybe {
        ways.push("`mode disaster` if what is in now does not serve".to_owned());
    }
    ways.push("let another datacenter serve first".to_owned());
    ways.join(", or ")
}

/// What a task needs a person for, if it does.
fn need(run: &Run, id: TaskId, task: &TaskStatus, status: &Status) -> Option<NeedsPerson> {
    let (state, name) = (run.state().task(id), &task.name);
    let is_asking =
        matches!(run.plan().task(id).stages[state.stage.index()].kind, StageKind::Approve { .. });
    let ended = state.ended.unwrap_or(status.now);
    let is_fenced = run.state().left_closed(run.plan()).any(|(task, _)| task == id);
    let retry = || match is_fenced {
        true => format!("`retry {name}`, or `abort --revert`"),
        false if run.may_skip(id) => format!("`retry {name}` or `skip {name}`, or `abort`"),
        false => format!("`retry {name}`, or `abort`"),
    };
    let or_skip = |todo: &str| match run.may_skip(id) {
        true => format!("{todo}, or `skip {name}`"),
        false => todo.to_owned(),
    };
    let wait = || match (run.may_stop(id), run.may_skip(id)) {
        (true, true) => format!("`stop {name}` or `skip {name}`, or wait"),
        (true, false) => format!("`stop {name}`, or wait"),
        (false, _) => "wait, or `abort --revert`".to_owned(),
    };
    let knob = |knob: &KnobId| Some(run.plan().knob(*knob).to_string());
    let (kind, knob, since, todo) = match (state.phase, &state.hold) {
        (Phase::Failed, _) => (NeedKind::Failed, None, ended, retry()),
        (Phase::Unreverted, _) if status.abort.is_some() => {
            (NeedKind::Unreverted, None, ended, format!("`retry {name}`, or set it back by hand"))
        }
        (Phase::Unreverted, _) => (NeedKind::Unreverted, None, ended, retry()),
        (Phase::Stopped, _) => (NeedKind::Stopped, None, ended, retry()),
        (Phase::Reverted, _) if status.abort.is_none() => {
            (NeedKind::Reverted, None, ended, retry())
        }
        (phase, _) if !phase.is_active() && phase != Phase::Waiting => return None,
        (Phase::Running, _) if is_asking => {
            (NeedKind::Approval, None, state.entered, format!("`approve {name}`, or `stop {name}`"))
        }
        (_, Some((since, Hold::Contested { knob: own }))) => {
            let todo = format!("find what sets it, then `resume {name}`");
            (NeedKind::Contested, knob(own), *since, todo)
        }
        (_, Some((since, Hold::Unreadable { knob: own }))) => {
            let todo = way_out(run, id).unwrap_or_else(|| or_skip("repair it"));
            (NeedKind::Unreadable, knob(own), *since, todo)
        }
        (_, Some((since, Hold::Unanswered { .. }))) => {
            (NeedKind::Unanswered, None, *since, "look at what the driver talks to".into())
        }
        (_, Some((since, Hold::InUse { knob: own, .. }))) if status.now - *since >= PATIENCE => {
            let todo = "let that task end, or `abort` its run, named with `--run`".into();
            (NeedKind::InUse, knob(own), *since, todo)
        }
        (_, Some((since, Hold::Limit { .. }))) if run.takes_back_out(id) != TakesOut::No => {
            (NeedKind::Limit, None, *since, way_out_of_limit(run, id))
        }
        (_, Some((since, Hold::Limit { .. }))) => {
            let todo = "restore the other datacenter, or `waive` by two people".into();
            (NeedKind::Limit, None, *since, todo)
        }
        (_, Some((since, hold @ Hold::Breach { .. }))) if status.now - *since >= PATIENCE => {
            (NeedKind::Breach, None, *since, overrides(run, id, hold))
        }
        (_, Some((since, hold @ Hold::NoData { .. }))) if status.now - *since >= PATIENCE => {
            (NeedKind::NoData, None, *since, overrides(run, id, hold))
        }
        // Somebody paused this task alone.
        (_, Some((since, Hold::Paused))) if !status.paused => {
            (NeedKind::Paused, None, *since, format!("`resume {name}`"))
        }
        (Phase::Running, None) if let Some(since) = unsampled_since(run, id, status.now) => {
            (NeedKind::NoData, None, since, wait())
        }
        _ if task.is_stuck && state.phase.is_active() => {
            let own = run.plan().task(id);
            let after = own.expected.stuck_after.unwrap_or(own.timeout);
            let since = state.started.unwrap_or(status.now) + after;
            (NeedKind::Stuck, None, since, wait())
        }
        _ => return None,
    };
    let why = match kind {
        NeedKind::Stuck => {
            let stuck = stuck(run, id, status.now);
            match &task.hold {
                Some(hold) => format!("{stuck}; {}", hold.why),
                None => stuck,
            }
        }
        _ => task.reason.clone().unwrap_or_else(|| format!("{name} does not go on")),
    };
    Some(NeedsPerson { kind, task: Some(name.clone()), knob, since, why, todo })
}
