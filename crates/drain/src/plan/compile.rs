//! Makes a plan of runbooks that were checked: every name becomes a number,
//! every variable a value, and tasks stand in an order in which parents come
//! first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::*;
use crate::condition::{Comparison, NoData, Source};
use crate::runbook::promql::QUERY_LEN_MAX;
use crate::runbook::{
    self, Aim, ConditionUse, Evacuation, NoTraffic, Place, Problems, Runbooks, Service, Work,
};

/// What a plan depends on besides the runbooks.
pub(crate) struct Given<'a> {
    pub datacenter: &'a str,
    pub direction: Direction,
    /// By the names of tasks.
    pub expectations: &'a BTreeMap<String, Expected>,
    /// By the names of knobs.
    pub originals: &'a BTreeMap<String, Value>,
}

/// The priority of tasks that state none: what people wait for goes first, then
/// what holds state.
const PRIORITY_USER_FACING: i32 = 100;
const PRIORITY_STATEFUL: i32 = 50;
/// How old samples may be, in scrape intervals: one may be missed.
const MAX_AGE_SCRAPES: f64 = 3.0;

/// The plan, if nothing is in its way; what is gets noted.
pub(crate) fn compile(
    runbooks: &Runbooks,
    given: &Given<'_>,
    problems: &mut Problems,
) -> Option<Plan> {
    let of = |evacuation: &&Evacuation| evacuation.datacenter.value == given.datacenter;
    let Some(evacuation) = runbooks.evacuations.iter().find(of) else {
        let known = runbooks.evacuations.iter().map(|other| other.datacenter.value.as_str());
        let file = problems.open("runbooks");
        problems.error(
            Place { file, line: 0, column: 0 },
            format!("there is no evacuation of `{}`", given.datacenter),
            runbook::did_you_mean(given.datacenter, known),
        );
        return None;
    };
    let mut compiler = Compiler::new(runbooks, evacuation, given, problems);
    let plan = compiler.plan();
    (!compiler.failed).then_some(plan)?
}

struct Compiler<'a, 'p> {
    runbooks: &'a Runbooks,
    evacuation: &'a Evacuation,
    given: &'a Given<'a>,
    problems: &'p mut Problems,
    failed: bool,
    knobs: Vec<Knob>,
    knob_ids: HashMap<String, KnobId>,
    conditions: Vec<Condition>,
    condition_ids: HashMap<String, ConditionId>,
    /// How many have each name.
    condition_names: HashMap<String, u32>,
    idle: Vec<IdleTask>,
    /// What promotions fence, for a restore that opens it.
    fenced: Vec<Fenced>,
}

/// A fence of a promotion, and the knob that says who is the primary.
#[derive(Clone, Debug)]
struct Fenced {
    fence: String,
    closed: Value,
    primary: String,
}

impl Fenced {
    fn of(stages: &[runbook::ExpandedStage]) -> Vec<Fenced> {
        let fences = runbook::closed_fences(stages);
        let is_fence = |knob: &str| fences.iter().any(|fence| fence.knob == knob);
        let promoted = stages.iter().find_map(|stage| match &stage.work {
            Work::Set { knob, .. } if !stage.is_interruptible && !is_fence(knob) => Some(knob),
            _ => None,
        });
        let Some(primary) = promoted else { return Vec::new() };
        let known = fences.iter().filter_map(|own| match own.closed {
            Aim::Value(closed) => Some((own.knob.to_owned(), closed.clone())),
            Aim::Original => None,
        });
        known.map(|(fence, closed)| Fenced { fence, closed, primary: primary.clone() }).collect()
    }
}

/// The only stage of a task.
fn alone(name: &str, work: Work) -> runbook::ExpandedStage {
    runbook::ExpandedStage {
        name: name.into(),
        work,
        timeout: None,
        done: Next::Exit(Exit::Done),
        failed: Next::Exit(Exit::Failed),
        late: Next::Exit(Exit::Failed),
        retry: StageId(0),
        is_interruptible: true,
        is_exact: false,
    }
}

/// A knob that a drain writes.
struct Written {
    knob: String,
    goal: Value,
    /// It is promoted, or a fence around that: a procedure alone sets it.
    is_promoted: bool,
}

/// A task before it has its number.
struct Draft<'a> {
    service: &'a Service,
    task: &'a runbook::Task,
    name: String,
    priority: i32,
    after: BTreeSet<usize>,
    after_weak: BTreeSet<usize>,
}

impl<'a, 'p> Compiler<'a, 'p> {
    fn new(
        runbooks: &'a Runbooks,
        evacuation: &'a Evacuation,
        given: &'a Given<'a>,
        problems: &'p mut Problems,
    ) -> Self {
        Compiler {
            runbooks,
            evacuation,
            given,
            problems,
            failed: false,
            knobs: Vec::new(),
            knob_ids: HashMap::new(),
            conditions: Vec::new(),
            condition_ids: HashMap::new(),
            condition_names: HashMap::new(),
            idle: Vec::new(),
            fenced: Vec::new(),
        }
    }

    fn plan(&mut self) -> Option<Plan> {
        if self.given.direction == Direction::Restore {
            self.fenced = self.fenced();
        }
        let drafts = self.drafts(self.given.direction);
        let order = order(&drafts);
        let mut ids = vec![TaskId(0); drafts.len()];
        for (number, draft) in order.iter().enumerate() {
            ids[*draft] = TaskId(number as u32);
        }
        // Each is made even if an earlier one cannot be: all that is wrong is said.
        let tasks: Vec<Option<Task>> =
            order.iter().map(|draft| self.task(&drafts[*draft], &ids)).collect();
        let tasks: Option<Vec<Task>> = tasks.into_iter().collect();
        if tasks.is_none() && !self.failed {
            self.fail(self.evacuation.datacenter.at, "no plan can be made", "check the runbooks");
        }
        let health = self.uses(&self.evacuation.health, None, &format!("{}.health", self.dc()));
        let ranks = self.drain_ranks();
        let mut plan = Plan {
            datacenter: self.given.datacenter.to_owned(),
            direction: self.given.direction,
            tasks: tasks?,
            health,
            budgets: (self.evacuation.budgets.iter())
                .map(|(name, size)| Budget { name: name.value.clone(), size: *size })
                .collect(),
            datacenters: self.datacenters(),
            limits: self.evacuation.limits,
            traffic: self.services().map(|service| self.traffic(service, &ranks)).collect(),
            fleet: Fleet::default(),
            keep_drained: self.evacuation.keep_drained,
            puts_back: None,
            changed: None,
            services: (self.runbooks.services.iter())
                .map(|service| service.name.value.clone())
                .collect(),
            left_behind: Vec::new(),
            idle: std::mem::take(&mut self.idle),
            knobs: std::mem::take(&mut self.knobs),
            conditions: std::mem::take(&mut self.conditions),
        };
        plan.name_switches();
        plan.fleet = Fleet::unmoved(&plan);
        Some(plan)
    }

    /// The traffic of a service in every datacenter: what its drain would write
    /// there, whichever datacenter this plan is about.
    fn traffic(&self, service: &Service, ranks: &HashMap<String, usize>) -> ServiceTraffic {
        let name = &service.name.value;
        // Which of the knobs are of a datacenter shows where none is named.
        let of_any = self.drained_knobs(service, ranks, "$dc");
        let of_one = |at: &usize| of_any.get(*at).is_some_and(|own| own.knob.contains("$dc"));
        // A switch that keeps traffic away counts as a weight does; a fence is none.
        let is_traffic = |at: &usize| of_one(at) && !of_any[*at].is_promoted;
        let chosen: Vec<usize> = (0..of_any.len()).filter(is_traffic).collect();
        let datacenters = self.evacuation.datacenters.iter().map(|datacenter| {
            let dc = &datacenter.name.value;
            let written = self.drained_knobs(service, ranks, dc);
            let mut knobs: Vec<TrafficKnob> = Vec::new();
            for own in chosen.iter().filter_map(|at| written.get(*at)) {
                let Some((driver, name)) = runbook::knob(&own.knob) else { continue };
                let knob = Knob { driver: driver.to_owned(), name: name.to_owned() };
                // Where it is left in the end counts.
                knobs.retain(|other| other.knob != knob);
                let original = self.given.originals.get(&own.knob).cloned();
                knobs.push(TrafficKnob { knob, goal: own.goal.clone(), original });
            }
            let load = service.load.iter().find(|(at, _)| at.value == *dc);
            let measured_load = service.measured_load.as_ref().map(|query| {
                runbook::substitute(&query.value, |variable| match variable {
                    "dc" => Some(dc.clone()),
                    "service" => Some(name.clone()),
                    _ => None,
                })
            });
            let load = load.map_or(0.0, |(_, load)| *load);
            TrafficAt { load, measured_load, measured: None, knobs }
        });
        ServiceTraffic { service: name.clone(), datacenters: datacenters.collect() }
    }

    /// When each task of a drain runs, by its name: files may list them in another order.
    fn drain_ranks(&self) -> HashMap<String, usize> {
        let drafts = self.drafts(Direction::Drain);
        let order = order(&drafts).into_iter().enumerate();
        order.map(|(rank, at)| (drafts[at].name.clone(), rank)).collect()
    }

    /// The knobs that the drain of a service writes and a restore must put back, in the order
    /// in which its tasks run.
    fn drained_knobs(
        &self,
        service: &Service,
        ranks: &HashMap<String, usize>,
        dc: &str,
    ) -> Vec<Written> {
        let rank = |task: &&runbook::Task| {
            ranks.get(&format!("{}.{}", service.name.value, task.name.value)).copied()
        };
        let mut tasks: Vec<&runbook::Task> = service.drain.iter().collect();
        tasks.sort_by_key(rank);
        let mut written = Vec::new();
        for task in tasks {
            let template =
                task.template.as_ref().and_then(|own| self.runbooks.template(&own.value));
            let stages = template
                .and_then(|template| runbook::expand(template, task, &service.name.value, dc));
            let stages = stages.unwrap_or_default();
            // Of all templates `Promote` alone has what must not be interrupted. That one says
            // how it is undone does not tell what it sets from traffic.
            let promotes = stages.iter().any(|stage| !stage.is_interruptible);
            for stage in stages {
                let is_promoted = promotes && matches!(stage.work, Work::Set { .. });
                let (Work::Shift { knob, to: Aim::Value(goal), returns: false }
                | Work::Set { knob, to: Aim::Value(goal), returns: false, .. }) = stage.work
                else {
                    continue;
                };
                written.push(Written { knob, goal, is_promoted });
            }
        }
        written
    }

    fn dc(&self) -> &'a str {
        &self.evacuation.datacenter.value
    }

    fn fail(&mut self, at: Place, what: impl Into<String>, remedy: impl Into<String>) {
        self.failed = true;
        self.problems.error(at, what, remedy);
    }

    fn services(&self) -> impl Iterator<Item = &'a Service> + use<'a> {
        let (runbooks, evacuation) = (self.runbooks, self.evacuation);
        evacuation.services.iter().filter_map(|name| runbooks.service(&name.value))
    }

    fn datacenters(&self) -> Vec<Datacenter> {
        let load = |name: &str| {
            let loads = self.services().flat_map(|service| &service.load);
            // Not a sum: that of nothing is -0, which people wonder about.
            loads.filter(|(at, _)| at.value == name).fold(0.0, |all, (_, load)| all + load)
        };
        let datacenters = self.evacuation.datacenters.iter().map(|datacenter| Datacenter {
            name: datacenter.name.value.clone(),
            capacity: datacenter.capacity.unwrap_or(0.0),
            load: load(&datacenter.name.value),
            line: datacenter.line,
        });
        datacenters.collect()
    }

    /// All tasks with what they wait for, in the order of the files.
    fn drafts(&self, direction: Direction) -> Vec<Draft<'a>> {
        let mut drafts = Vec::new();
        for service in self.services() {
            for task in service.tasks(direction) {
                drafts.push(Draft {
                    service,
                    task,
                    name: format!("{}.{}", service.name.value, task.name.value),
                    priority: task.priority.unwrap_or_else(|| default_priority(service)),
                    after: BTreeSet::new(),
                    after_weak: BTreeSet::new(),
                });
            }
        }
        let index: HashMap<String, usize> =
            drafts.iter().enumerate().map(|(at, draft)| (draft.name.clone(), at)).collect();
        let find = |service: &str, reference: &str| match reference.contains('.') {
            true => index.get(reference).copied(),
            false => index.get(&format!("{service}.{reference}")).copied(),
        };
        for draft in &mut drafts {
            let home = draft.service.name.value.as_str();
            let strong = draft.task.after.iter().filter_map(|name| find(home, &name.value));
            draft.after.extend(strong);
            let weak = draft.task.after_weak.iter().filter_map(|name| find(home, &name.value));
            draft.after_weak.extend(weak);
        }
        for join in self.evacuation.joins(direction) {
            let Some(at) = find("", &join.task.value) else { continue };
            let strong = join.after.iter().filter_map(|name| find("", &name.value));
            drafts[at].after.extend(strong);
            let weak = join.after_weak.iter().filter_map(|name| find("", &name.value));
            drafts[at].after_weak.extend(weak);
        }
        drafts
    }

    fn task(&mut self, draft: &Draft<'_>, ids: &[TaskId]) -> Option<Task> {
        let Draft { service, task, name, priority, after, after_weak } = draft;
        let template = self.runbooks.template(&task.template.as_ref()?.value)?;
        let mut expanded = runbook::expand(template, task, &service.name.value, self.dc())?;
        self.name_originals(&mut expanded);
        self.note_idle(name, &expanded);
        let instead =
            self.untouched_behind_fences(&expanded).or_else(|| self.only_opens(&expanded));
        let is_idle = instead.is_some();
        expanded = instead.unwrap_or(expanded);
        let mut stages = Vec::new();
        for stage in &expanded {
            stages.push(self.stage(draft, stage, 0)?);
        }
        let undo = runbook::expand_undo(template, task, &service.name.value, self.dc())?;
        let undo = match undo.filter(|_| !is_idle) {
            Some(undo) => Some(self.undo(draft, undo, &mut stages)?),
            None => None,
        };
        let fences = self.fences(&stages);
        let opens = self.openings(&stages, &fences);
        let uses = |this: &mut Self, list: &[ConditionUse], kind: &str| match is_idle {
            true => Vec::new(),
            false => this.uses(list, Some(service), &format!("{name}.{kind}")),
        };
        let health = match &task.health {
            Some(list) => uses(self, list, "health"),
            None if is_idle => Vec::new(),
            None => self.health_of(service),
        };
        let sorted = |set: &BTreeSet<usize>| {
            let mut sorted: Vec<_> = set.iter().map(|at| ids[*at]).collect();
            sorted.sort();
            sorted
        };
        Some(Task {
            name: name.clone(),
            service: service.name.value.clone(),
            template: template.name.value.clone(),
            priority: *priority,
            after: sorted(after),
            after_weak: sorted(after_weak),
            pre: uses(self, &task.pre, "pre"),
            health,
            post: uses(self, &task.post, "post"),
            stages,
            undo,
            fences,
            opens,
            pace: task.pace.value,
            timeout: task.timeout,
            budgets: (task.budgets.iter())
                .map(|(name, amount)| Some((self.budget(&name.value)?, amount.value)))
                .collect::<Option<_>>()?,
            expected: self.given.expectations.get(name).copied().unwrap_or_default(),
        })
    }

    /// A stage whose number is higher by `offset` in the task than in its template.
    fn stage(
        &mut self,
        draft: &Draft<'_>,
        stage: &runbook::ExpandedStage,
        offset: u32,
    ) -> Option<Stage> {
        let moved = |next: Next| match next {
            Next::Stage(stage) => Next::Stage(StageId(stage.0 + offset)),
            exit => exit,
        };
        Some(Stage {
            name: stage.name.clone(),
            kind: self.kind(draft, stage)?,
            timeout: stage.timeout,
            done: moved(stage.done),
            failed: moved(stage.failed),
            late: moved(stage.late),
            retry: StageId(stage.retry.0 + offset),
            is_interruptible: stage.is_interruptible,
        })
    }

    /// How a task is undone; adds the stages for it.
    fn undo(
        &mut self,
        draft: &Draft<'_>,
        undo: runbook::ExpandedUndo,
        stages: &mut Vec<Stage>,
    ) -> Option<Undo> {
        let runbook::ExpandedUndo { after, missing, stages: own } = undo;
        if !missing.is_empty() {
            return Some(Undo { after, how: UndoBy::Nothing { missing } });
        }
        let first = StageId(stages.len() as u32);
        for stage in &own {
            let stage = self.stage(draft, stage, first.0)?;
            stages.push(stage);
        }
        Some(Undo { after, how: UndoBy::Stages { first } })
    }

    /// Puts values where texts name that of a knob before the drain.
    fn name_originals(&self, stages: &mut [runbook::ExpandedStage]) {
        let mut values: Vec<String> = Vec::new();
        for stage in stages.iter() {
            if let Work::Shift { knob, to: Aim::Original, .. }
            | Work::Set { knob, to: Aim::Original, .. } = &stage.work
                && let Some(value) = self.given.originals.get(knob).map(ToString::to_string)
                && !values.contains(&value)
            {
                values.push(value);
            }
        }
        let value = match values.is_empty() {
            true => "its original value".to_owned(),
            false => values.join(", "),
        };
        let name = |text: &mut String| *text = text.replace(runbook::ORIGINAL_MARK, &value);
        for stage in stages {
            match &mut stage.work {
                Work::Say { channel, text } => {
                    channel.iter_mut().for_each(name);
                    name(text);
                }
                Work::Approve { question, .. } => name(question),
                Work::Act { act, .. } => act.arguments.values_mut().for_each(name),
                Work::Set { to: Aim::Value(Value::Text(text)), .. } => name(text),
                Work::Barrier(text) => name(text),
                _ => {}
            }
        }
    }

    fn kind(&mut self, draft: &Draft<'_>, stage: &runbook::ExpandedStage) -> Option<StageKind> {
        Some(match &stage.work {
            Work::Shift { knob, to: Aim::Original, .. }
            | Work::Set { knob, to: Aim::Original, .. }
                if self.is_untouched(knob) =>
            {
                // Nothing has to be read for this: it cannot stand in the way of a restore.
                let text = format!("{knob} was not changed by the drain, and is left as it is");
                StageKind::Say(Saying { channel: None, text })
            }
            Work::Shift { knob, to, .. } => {
                let to = self.goal(draft, knob, to)?;
                if to.value().number().is_none() {
                    self.fail(
                        draft.task.name.at,
                        format!("`{knob}` stood at {}, and steps need a number", to.value()),
                        "give a number instead of `original`, or use a template that sets it",
                    );
                }
                StageKind::Shift { knob: self.knob(knob)?, to }
            }
            Work::Set { knob, to, of, .. } => {
                let of = match of {
                    Some(of) => Some(self.primary(draft, of)?),
                    None => None,
                };
                StageKind::Set { to: self.goal(draft, knob, to)?, knob: self.knob(knob)?, of }
            }
            Work::PutBack { knob } => StageKind::PutBack { knob: self.knob(knob)? },
            Work::Verify { knob, to } => {
                StageKind::Verify { knob: self.knob(knob)?, to: to.clone() }
            }
            Work::Govern { knob, budget } => {
                StageKind::Govern { knob: self.knob(knob)?, budget: self.budget(budget)? }
            }
            Work::Act { act, .. } => StageKind::Act(act.clone()),
            Work::Await(used) => {
                let condition = self.filled(draft, stage, used)?;
                self.conditions[condition.index()].is_exact |= stage.is_exact;
                StageKind::Await { condition }
            }
            Work::AwaitExactly(used) => {
                let tolerant = self.filled(draft, stage, used)?;
                StageKind::Await { condition: self.exactly(tolerant) }
            }
            Work::Check(used) => {
                let condition = self.filled(draft, stage, used)?;
                self.conditions[condition.index()].is_exact |= stage.is_exact;
                StageKind::Check { condition }
            }
            Work::TimedWait(span) => StageKind::TimedWait { span: *span },
            Work::Barrier(name) => StageKind::Barrier { name: name.clone() },
            Work::Approve { people, question } => {
                StageKind::Approve { people: *people, question: question.clone() }
            }
            Work::Say { channel, text } => {
                StageKind::Say(Saying { channel: channel.clone(), text: text.clone() })
            }
        })
    }

    /// What a restore does instead of a task with a fence, if the drain did not
    /// come to any of its knobs: writes are not refused for nothing.
    fn untouched_behind_fences(
        &self,
        stages: &[runbook::ExpandedStage],
    ) -> Option<Vec<runbook::ExpandedStage>> {
        let set = |stage: &runbook::ExpandedStage| match &stage.work {
            Work::Shift { knob, .. } | Work::Set { knob, .. } => Some(knob.clone()),
            _ => None,
        };
        let is_restored = |stage: &runbook::ExpandedStage| {
            matches!(
                stage.work,
                Work::Shift { to: Aim::Original, .. } | Work::Set { to: Aim::Original, .. }
            )
        };
        let knobs: BTreeSet<String> = stages.iter().filter_map(set).collect();
        let has_fence = stages.iter().any(|stage| !stage.is_interruptible);
        let is_idle = has_fence
            && stages.iter().any(is_restored)
            && knobs.iter().all(|knob| self.is_untouched(knob));
        let names = || knobs.iter().cloned().collect::<Vec<_>>().join(", ");
        let text = || format!("{} as before the drain", names());
        is_idle.then(|| vec![alone("left-alone", Work::Say { channel: None, text: text() })])
    }

    /// What a restore does instead of a promotion behind a fence, if the drain closed the fence
    /// and did not come to the primary: it opens the fence.
    fn only_opens(&self, stages: &[runbook::ExpandedStage]) -> Option<Vec<runbook::ExpandedStage>> {
        let fences = runbook::closed_fences(stages);
        let is_fence = |knob: &str| fences.iter().any(|fence| fence.knob == knob);
        let is_left = |stage: &runbook::ExpandedStage| match &stage.work {
            Work::Set { knob, to: Aim::Original, .. } => {
                !stage.is_interruptible && !is_fence(knob) && self.is_untouched(knob)
            }
            _ => false,
        };
        let mut closed = fences.iter().filter(|fence| !self.is_untouched(fence.knob));
        let fence = closed.next().filter(|_| stages.iter().any(is_left))?;
        let opens = |stage: &runbook::ExpandedStage| match &stage.work {
            Work::Set { knob, to, .. } => knob == fence.knob && to != fence.closed,
            _ => false,
        };
        let work = match stages.iter().find(|stage| opens(stage)) {
            Some(stage) => stage.work.clone(),
            None => {
                let knob = fence.knob.to_owned();
                Work::Set { knob, to: Aim::Original, of: None, returns: false }
            }
        };
        Some(vec![alone("open", work)])
    }

    /// The fences of others that stages of a restore open.
    fn openings(&mut self, stages: &[Stage], own: &[Fence]) -> Vec<Opening> {
        let mut opens: Vec<Opening> = Vec::new();
        for stage in stages {
            let StageKind::Set { knob, to, .. } = &stage.kind else { continue };
            let name = self.knobs[knob.index()].to_string();
            let fenced = self.fenced.iter().find(|fenced| fenced.fence == name).cloned();
            let is_own = own.iter().any(|fence| fence.knob == *knob);
            let is_known = opens.iter().any(|known| known.fence == *knob);
            let Some(Fenced { closed, primary, .. }) = fenced.filter(|_| !is_own && !is_known)
            else {
                continue;
            };
            if closed.is_met_by(to.value()) {
                continue;
            }
            opens.extend(self.knob(&primary).map(|primary| Opening {
                fence: *knob,
                closed,
                primary,
            }));
        }
        opens
    }

    /// What the promotions of a datacenter fence, out and back.
    fn fenced(&self) -> Vec<Fenced> {
        let mut fenced = Vec::new();
        for service in self.services() {
            for task in service.drain.iter().chain(&service.restore) {
                let template =
                    task.template.as_ref().and_then(|own| self.runbooks.template(&own.value));
                let stages = template.and_then(|template| {
                    runbook::expand(template, task, &service.name.value, self.dc())
                });
                fenced.extend(stages.iter().flat_map(|stages| Fenced::of(stages)));
            }
        }
        fenced
    }

    /// The switches that a task closes: those that it puts back when it gives up, and
    /// those that it sets one way and then another around what is not interrupted. The
    /// first value that it sets is the closed one.
    fn fences(&self, stages: &[Stage]) -> Vec<Fence> {
        let set = |stage: &Stage, knob: KnobId| match &stage.kind {
            StageKind::Set { knob: own, to, .. } if *own == knob => Some(to.value().clone()),
            _ => None,
        };
        let mut fences: Vec<Fence> = Vec::new();
        for stage in stages {
            let (StageKind::PutBack { knob } | StageKind::Set { knob, .. }) = stage.kind else {
                continue;
            };
            let is_known = fences.iter().any(|own| own.knob == knob);
            let mut values = stages.iter().filter_map(|stage| set(stage, knob));
            let Some(closed) = values.next().filter(|_| !is_known) else { continue };
            let opened = values.find(|value| *value != closed);
            let is_lifted = stages.iter().any(|stage| {
                stage.kind == StageKind::PutBack { knob } && gives_up(stages, stage.done)
            });
            let has_more = stages.iter().any(|stage| !stage.is_interruptible);
            if !(is_lifted || opened.is_some() && has_more) {
                continue;
            }
            let name = self.knobs[knob.index()].to_string();
            let recorded = self.given.originals.get(&name).filter(|value| **value != closed);
            let open = opened.or(recorded.cloned());
            fences.push(Fence { knob, closed, open });
        }
        fences
    }

    /// Notes that a task has nothing to bring back, if so.
    fn note_idle(&mut self, task: &str, stages: &[runbook::ExpandedStage]) {
        let set = stages.iter().filter_map(|stage| match &stage.work {
            Work::Shift { knob, to, .. } | Work::Set { knob, to, .. } => {
                Some((knob, matches!(to, Aim::Original) && self.is_untouched(knob)))
            }
            _ => None,
        });
        let (knobs, is_untouched): (BTreeSet<&String>, Vec<bool>) = set.unzip();
        if !knobs.is_empty() && is_untouched.iter().all(|own| *own) {
            let knobs = knobs.into_iter().cloned().collect();
            self.idle.push(IdleTask { task: task.to_owned(), knobs });
        }
    }

    /// Whether the drain that is undone did not come to a knob. What it changes is
    /// recorded before it is changed.
    fn is_untouched(&self, knob: &str) -> bool {
        !self.given.originals.is_empty() && !self.given.originals.contains_key(knob)
    }

    /// The primary that a fence is for; the original is that of the knob which is promoted.
    fn primary(&mut self, draft: &Draft<'_>, of: &Aim) -> Option<Value> {
        if let Aim::Value(value) = of {
            return Some(value.clone());
        }
        let template = self.runbooks.template(&draft.task.template.as_ref()?.value)?;
        let stages = runbook::expand(template, draft.task, &draft.service.name.value, self.dc())?;
        let promoted = stages.iter().find_map(|stage| match &stage.work {
            Work::Set { knob, to, .. } if to == of => Some(knob),
            _ => None,
        });
        Some(self.goal(draft, promoted?, of)?.value().clone())
    }

    fn goal(&mut self, draft: &Draft<'_>, knob: &str, to: &Aim) -> Option<Goal> {
        match to {
            Aim::Value(value) => Some(Goal::Value(value.clone())),
            Aim::Original => match self.given.originals.get(knob) {
                Some(value) => Some(Goal::Original(value.clone())),
                None => {
                    self.fail(
                        draft.task.name.at,
                        format!("nothing says where `{knob}` stood before the drain"),
                        "restore what a drain has recorded, or give a value instead of `original`",
                    );
                    None
                }
            },
        }
    }

    fn knob(&mut self, text: &str) -> Option<KnobId> {
        if let Some(id) = self.knob_ids.get(text) {
            return Some(*id);
        }
        let (driver, name) = runbook::knob(text)?;
        let id = KnobId(self.knobs.len() as u32);
        self.knobs.push(Knob { driver: driver.to_owned(), name: name.to_owned() });
        self.knob_ids.insert(text.to_owned(), id);
        Some(id)
    }

    fn budget(&self, name: &str) -> Option<BudgetId> {
        let at = self.evacuation.budgets.iter().position(|(other, _)| other.value == name)?;
        Some(BudgetId(at as u32))
    }

    fn health_of(&mut self, service: &Service) -> Vec<ConditionId> {
        let conditions = service.health.iter().filter_map(|(name, condition)| {
            Some((format!("{}.{}", service.name.value, name.value), condition.as_ref()?))
        });
        conditions
            .filter_map(|(name, condition)| self.condition(name, condition, Some(service)))
            .collect()
    }

    fn uses(
        &mut self,
        uses: &[ConditionUse],
        by: Option<&Service>,
        label: &str,
    ) -> Vec<ConditionId> {
        let numbered = uses.iter().enumerate();
        numbered
            .filter_map(|(at, used)| match used {
                ConditionUse::Named(name) => self.named(&name.value, by),
                ConditionUse::InPlace { name, condition } => {
                    let name = match name {
                        Some(name) => format!("{label}.{name}"),
                        None => format!("{label}.{}", at + 1),
                    };
                    self.condition(name, condition, by)
                }
            })
            .collect()
    }

    /// A condition that is an input of a stage: its variables were replaced with
    /// those of the template.
    fn filled(
        &mut self,
        draft: &Draft<'_>,
        stage: &runbook::ExpandedStage,
        used: &ConditionUse,
    ) -> Option<ConditionId> {
        match used {
            ConditionUse::Named(name) => self.named(&name.value, Some(draft.service)),
            ConditionUse::InPlace { name, condition } => {
                let own = name.as_deref().unwrap_or("condition");
                let name = format!("{}.{}.{own}", draft.name, stage.name);
                self.intern(name, condition, |text| text.to_owned())
            }
        }
    }

    /// The same condition without tolerance: nothing at all may be missing.
    fn exactly(&mut self, tolerant: ConditionId) -> ConditionId {
        let known = self.conditions[tolerant.index()].clone();
        let name = format!("{} (exactly)", known.name);
        let exact = Condition {
            name,
            comparison: Comparison::AtMost,
            bound: 0.0,
            // What the tolerant one lets pass unseen would be lost.
            no_data: known.no_data.unless_passes(),
            no_traffic: known.no_traffic.unless_passes(),
            no_traffic_back: known.no_traffic_back.unless_passes(),
            is_exact: true,
            ..known
        };
        self.keep(exact)
    }

    fn named(&mut self, name: &str, by: Option<&Service>) -> Option<ConditionId> {
        let (service, condition) = match name.split_once('.') {
            Some((service, condition)) => (self.runbooks.service(service)?, condition),
            None => (by?, name),
        };
        let (_, found) = service.health.iter().find(|(other, _)| other.value == condition)?;
        let full = format!("{}.{condition}", service.name.value);
        self.condition(full, found.as_ref()?, Some(service))
    }

    fn condition(
        &mut self,
        name: String,
        condition: &runbook::Condition,
        by: Option<&Service>,
    ) -> Option<ConditionId> {
        let dc = self.dc();
        self.intern(name, condition, |text| {
            runbook::substitute(text, |variable| match variable {
                "dc" => Some(dc.to_owned()),
                "service" => by.map(|service| service.name.value.clone()),
                _ => None,
            })
        })
    }

    fn intern(
        &mut self,
        name: String,
        condition: &runbook::Condition,
        replace: impl Fn(&str) -> String,
    ) -> Option<ConditionId> {
        let source = match &condition.source {
            runbook::Source::Query(query) => {
                Source::Query(self.bounded_query(condition.at, replace(query))?)
            }
            runbook::Source::Gauge(knob) => Source::Gauge(self.knob(&replace(knob))?),
        };
        let no_traffic = |is_inward: bool| match condition.no_traffic {
            None => condition.no_data,
            Some(NoTraffic::As(policy)) => policy,
            Some(NoTraffic::PassOnRestore) if is_inward => NoData::Pass,
            Some(NoTraffic::PassOnRestore) => NoData::Block,
        };
        let is_restore = self.given.direction == Direction::Restore;
        let condition = Condition {
            name,
            source,
            comparison: condition.comparison,
            bound: condition.bound.value,
            hold_for: condition.hold_for,
            max_age: condition.max_age.unwrap_or(self.evacuation.scrape_interval * MAX_AGE_SCRAPES),
            no_data: condition.no_data,
            no_traffic: no_traffic(is_restore),
            no_traffic_back: no_traffic(!is_restore),
            is_exact: false,
        };
        Some(self.keep(condition))
    }

    /// A query was checked with its variables in it, and may be longer without:
    /// better now than in the middle of a run.
    fn bounded_query(&mut self, at: Place, query: String) -> Option<String> {
        if query.len() <= QUERY_LEN_MAX {
            return Some(query);
        }
        let what = format!("the query has {} bytes with its variables replaced", query.len());
        self.fail(at, what, format!("accepted: up to {QUERY_LEN_MAX}"));
        None
    }

    fn keep(&mut self, condition: Condition) -> ConditionId {
        let key = format!("{condition:?}");
        *self.condition_ids.entry(key).or_insert_with(|| {
            // People override a condition by its name: no two have the same.
            let same = self.condition_names.entry(condition.name.clone()).or_default();
            *same += 1;
            let name = match *same {
                1 => condition.name.clone(),
                count => format!("{} ({count})", condition.name),
            };
            self.conditions.push(Condition { name, ..condition });
            ConditionId(self.conditions.len() as u32 - 1)
        })
    }
}

/// Whether a stage that leads on there ends in failure, whatever is said on the
/// way.
fn gives_up(stages: &[Stage], mut next: Next) -> bool {
    for _ in stages {
        match next {
            Next::Exit(exit) => return exit == Exit::Failed,
            Next::Stage(stage) => next = stages[stage.index()].done,
        }
    }
    false
}

fn default_priority(service: &Service) -> i32 {
    match service.traffic {
        _ if service.user_facing => PRIORITY_USER_FACING,
        runbook::Traffic::Stateful => PRIORITY_STATEFUL,
        _ => 0,
    }
}

/// Parents first; among equals the higher priority, then the order of the
/// files.
fn order(drafts: &[Draft<'_>]) -> Vec<usize> {
    let mut waits_for = vec![0usize; drafts.len()];
    let mut children = vec![Vec::new(); drafts.len()];
    for (at, draft) in drafts.iter().enumerate() {
        let parents: BTreeSet<_> = draft.after.union(&draft.after_weak).collect();
        waits_for[at] = parents.len();
        for parent in parents {
            children[*parent].push(at);
        }
    }
    let rank = |at: usize| (Reverse(drafts[at].priority), at);
    let mut ready: BTreeSet<_> =
        (0..drafts.len()).filter(|at| waits_for[*at] == 0).map(rank).collect();
    let mut order = Vec::new();
    while let Some((_, at)) = ready.pop_first() {
        order.push(at);
        for child in &children[at] {
            waits_for[*child] -= 1;
            if waits_for[*child] == 0 {
                ready.insert(rank(*child));
            }
        }
    }
    order
}
