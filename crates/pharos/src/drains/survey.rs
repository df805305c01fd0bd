//! A look at everything a plan would touch, before it is begun: where knobs
//! stand, whether they are there and can be turned as it wants, and whether its
//! queries can be answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drain::engine::Mode;
use drain::fleet::Limit;
use drain::{Direction, Foresight, Knob, KnobId, Plan, Source, StageKind, Task, Value};
use drivers::{Drivers, Error, Shape};
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::executor::REQUIRED_READ_MAX;

/// Knobs that are looked at at once.
pub const LOOKS_MAX: usize = 16;
/// How long one may take. Whoever begins a run waits for this, and so does
/// whoever begins one elsewhere.
pub const LOOK_TIME_MAX: Duration = Duration::from_secs(5);

/// What a plan would find.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    pub foresight: Foresight,
    /// What it cannot be carried out with.
    pub problems: Vec<String>,
    /// What it may have to wait for, or does worse with.
    pub warnings: Vec<String>,
    /// Of the problems those that no disaster bears: it would empty another datacenter.
    #[serde(skip)]
    pub overlaps: Vec<String>,
}

/// Knobs of a drain that also move the traffic of another datacenter, such as `@fra-*`
/// where there is a `fra-2`: both would be taken out, and no limit would see it in time.
pub async fn overlaps(plan: &Plan, drivers: &Arc<Drivers>) -> Vec<String> {
    let Some(own) = plan.own_index() else { return Vec::new() };
    let traffic = |at: usize| {
        let knobs = plan.traffic.iter().flat_map(move |own| &own.datacenters[at].knobs);
        knobs.map(|own| own.knob.clone())
    };
    let stages = plan.tasks.iter().flat_map(|task| task.forward());
    let written = stages.filter_map(|stage| match stage.kind {
        StageKind::Shift { knob, .. } | StageKind::Set { knob, .. } => {
            Some(plan.knob(knob).clone())
        }
        _ => None,
    });
    let ours: BTreeSet<Knob> = written.chain(traffic(own)).collect();
    let others = (0..plan.datacenters.len()).filter(|at| *at != own);
    let theirs: BTreeSet<(Knob, usize)> =
        others.flat_map(|at| traffic(at).map(move |knob| (knob, at))).collect();
    let wanted: BTreeSet<&Knob> = ours.iter().chain(theirs.iter().map(|(knob, _)| knob)).collect();
    // Who does not answer is warned of elsewhere, and nobody waits longer for all than for one.
    let end = Instant::now() + LOOK_TIME_MAX;
    let ask = async |knob: &Knob| {
        let asked = tokio::time::timeout_at(end, drivers.targets(knob)).await;
        (knob.clone(), asked.ok().and_then(Result::ok).unwrap_or_default())
    };
    let targets: Vec<_> = stream::iter(wanted).map(ask).buffered(LOOKS_MAX).collect().await;
    let targets: BTreeMap<Knob, Vec<String>> = targets.into_iter().collect();
    let mut found = Vec::new();
    for (other, at) in &theirs {
        for own in ours.iter().filter(|own| own.driver == other.driver) {
            let shared = targets[own].iter().find(|target| targets[other].contains(target));
            if let Some(shared) = shared {
                found.push(format!(
                    "{own} and {other} both move {shared}: what leaves {} would leave {} too; \
                     accepted: knobs that share no server",
                    plan.datacenter, plan.datacenters[*at].name
                ));
            }
        }
    }
    found
}

/// What looking at a knob gave.
#[derive(Debug)]
struct Look {
    knob: KnobId,
    shape: Result<Shape, Error>,
    value: Option<Value>,
    /// How long it took to be read.
    took: Duration,
}

impl Survey {
    /// `is_alone`: queries are answered here, since there is no Prometheus.
    pub async fn of(plan: &Plan, drivers: &Arc<Drivers>, is_alone: bool) -> Survey {
        let looks = look(plan, drivers).await;
        let known = looks.iter().filter_map(|look| Some((look.knob, look.value.clone()?)));
        let positions: BTreeMap<KnobId, Value> = known.collect();
        let mut survey = Survey {
            foresight: plan.foresee(&positions),
            problems: Vec::new(),
            warnings: Vec::new(),
            overlaps: Vec::new(),
        };
        for look in &looks {
            survey.judge(plan, look);
            survey.judge_slow_read(plan, look);
        }
        // A restore is not asked for what it may share: it brings traffic back.
        if plan.direction == Direction::Drain {
            let found = overlaps(plan, drivers).await;
            survey.problems.extend(found.iter().cloned());
            survey.overlaps = found;
        }
        survey.judge_acts(plan, drivers);
        survey.judge_fences(plan, &positions);
        for condition in plan.conditions.iter().filter(|_| is_alone) {
            if let Source::Query(query) = &condition.source
                && let Err(why) = health::query::check(query)
            {
                survey.problems.push(format!(
                    "condition {}: without a Prometheus it cannot be asked: {why}; accepted: what \
                     docs/health.md lists, or `prometheus` in [drain]",
                    condition.name
                ));
            }
        }
        survey
    }

    /// A drain that a limit keeps from its first step is known before it begins.
    pub(super) fn judge_limits(&mut self, plan: &Plan) {
        if plan.direction == Direction::Restore {
            return;
        }
        if let Err(reached) = plan.fleet.check_limits(plan, Mode::Drill) {
            let accepted = match reached.limit {
                Limit::Unknown => {
                    "traffic knobs that can be read in every datacenter where the service has \
                     `load`, or --disaster, which takes them to serve"
                }
                _ => {
                    "a restore of what is drained, or --disaster, which waits until two people \
                     `waive` the limits"
                }
            };
            self.problems.push(format!("limit: {reached}; accepted: {accepted}"));
        }
    }

    /// A load that should have been measured and was not is the declared one.
    pub(super) fn judge_load(&mut self, plan: &Plan) {
        for (own, row) in plan.traffic.iter().zip(&plan.fleet.multipliers) {
            let at = plan.datacenters.iter().zip(&own.datacenters).zip(row);
            let unmeasured = at.filter(|((_, at), open)| {
                at.measured_load.is_some() && at.measured.is_none() && **open != Some(0.0)
            });
            let names: Vec<&str> = unmeasured.map(|((dc, _), _)| dc.name.as_str()).collect();
            if !names.is_empty() {
                self.warnings.push(format!(
                    "the load of {} in {} could not be measured; the declared `load` is used",
                    own.service,
                    names.join(", ")
                ));
            }
        }
    }

    /// What opens a fence is mostly what it is before it is closed.
    fn judge_fences(&mut self, plan: &Plan, positions: &BTreeMap<KnobId, Value>) {
        for (task, fence) in plan.tasks.iter().flat_map(|task| {
            task.fences.iter().map(|fence| (&task.name, fence)).collect::<Vec<_>>()
        }) {
            let (Some(open), Some(found)) = (&fence.open, positions.get(&fence.knob)) else {
                continue;
            };
            if !fence.closed.is_met_by(found) && !open.is_met_by(found) {
                let knob = plan.knob(fence.knob);
                self.warnings.push(format!(
                    "{knob} is {found}, and {task} opens it with {open}: if that does not open it, \
                     writes stay refused"
                ));
            }
        }
    }

    /// Who is to act must be there; what it can do, only it can tell.
    fn judge_acts(&mut self, plan: &Plan, drivers: &Drivers) {
        let known: BTreeSet<&str> = drivers.describe().map(|(name, _)| name).collect();
        for task in &plan.tasks {
            for stage in &task.stages {
                if let StageKind::Act(act) = &stage.kind
                    && !known.contains(act.driver.as_str())
                {
                    let known: Vec<&str> = known.iter().copied().collect();
                    self.problems.push(format!(
                        "{}: there is no driver {:?}; configured: {}",
                        task.name,
                        act.driver,
                        known.join(", ")
                    ));
                }
            }
        }
    }

    /// Both are read right before a promotion, which is not sent after a read that took long.
    fn judge_slow_read(&mut self, plan: &Plan, look: &Look) {
        let is_required =
            |task: &Task| task.is_fence(look.knob) || task.promoted_knob() == Some(look.knob);
        if look.took <= REQUIRED_READ_MAX || look.value.is_none() {
            return;
        }
        if let Some(task) = plan.tasks.iter().find(|task| is_required(task)) {
            self.warnings.push(format!(
                "{} took {:.1} s to be read: {} is not sent after reads like that; accepted: at \
                 most {} s",
                plan.knob(look.knob),
                look.took.as_secs_f64(),
                task.name,
                REQUIRED_READ_MAX.as_secs()
            ));
        }
    }

    fn judge(&mut self, plan: &Plan, look: &Look) {
        let knob = plan.knob(look.knob);
        match &look.shape {
            // It may be back when its turn comes.
            Err(error) if error.is_transient() => self.warnings.push(format!("{knob}: {error}")),
            Err(error) => self.problems.push(format!("{knob}: {error}")),
            Ok(shape) => {
                for doubt in drivers::doubts(plan, look.knob, shape) {
                    let told =
                        if doubt.is_bearable { &mut self.warnings } else { &mut self.problems };
                    told.push(doubt.to_string());
                }
            }
        }
    }
}

async fn look(plan: &Plan, drivers: &Arc<Drivers>) -> Vec<Look> {
    let mut under_way = JoinSet::new();
    let mut looks = Vec::new();
    let mut knobs = plan.knobs.iter().cloned().enumerate();
    loop {
        while under_way.len() < LOOKS_MAX
            && let Some((at, knob)) = knobs.next()
        {
            let drivers = drivers.clone();
            under_way.spawn(async move {
                let looked = async {
                    let shape = drivers.check(&knob).await;
                    let began = Instant::now();
                    (shape, drivers.read(&knob).await.ok(), began.elapsed())
                };
                let late = || {
                    let limit = LOOK_TIME_MAX.as_secs();
                    let late = Error::Transient(format!("no answer within {limit} s"));
                    (Err(late), None, LOOK_TIME_MAX)
                };
                let looked = timeout(LOOK_TIME_MAX, looked).await;
                let (shape, value, took) = looked.unwrap_or_else(|_| late());
                Look { knob: KnobId(at as u32), shape, value, took }
            });
        }
        match under_way.join_next().await {
            Some(Ok(look)) => looks.push(look),
            // A driver that panics says so itself.
            Some(Err(_)) => {}
            None => break,
        }
    }
    looks.sort_by_key(|look| look.knob);
    looks
}
