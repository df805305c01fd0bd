//! Fences: what one task sets behind a fence no other sets without one, what a restore
//! closes it opens again, and what looks like a fence is said not to be one.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Runbooks;
use super::super::expand::{Aim, ExpandedStage, Work};
use super::super::problem::Problems;
use super::super::spec::{Service, Task};
use super::effects::{SYMBOLIC, Written, expand_task, restoring, writes, written};
use super::graph::Order;
use super::{DIRECTIONS, Scope};
use crate::plan::{Direction, Exit, Next};
use crate::value::Value;

/// A knob that takes a fence to be set without a loss takes it from whoever sets it, on
/// the way out and back, in this evacuation and in others.
pub(super) fn check_mixed(runbooks: &Runbooks, scopes: &[Scope<'_>], problems: &mut Problems) {
    let all: Vec<Setting<'_>> = scopes.iter().flat_map(|scope| settings(runbooks, scope)).collect();
    let mut fenced: BTreeMap<&str, &Setting<'_>> = BTreeMap::new();
    for setting in all.iter().filter(|setting| setting.is_fenced) {
        fenced.entry(&setting.knob).or_insert(setting);
    }
    check_others(runbooks, scopes, &all, problems);
    for setting in all.iter().filter(|setting| !setting.is_fenced) {
        let Some(other) = fenced.get(setting.knob.as_str()) else { continue };
        problems.error(
            setting.task.name.at,
            format!(
                "{} sets `{}` without a fence, and {} behind one: writes that have not arrived \
                 are lost",
                setting.name(),
                setting.shown,
                other.name()
            ),
            "accepted: `Promote` with `fence` and `caught_up` in both; without a fence in both \
             only if the store fences by itself",
        );
    }
}

/// Who promotes claims its fence; a task of another service that sets it has no claim, and
/// opens it in the middle. Of a drain, what a `Promote` closes is opened by that alone: a
/// task behind it may be skipped, and nothing would say that the fence stays closed.
fn check_others(
    runbooks: &Runbooks,
    scopes: &[Scope<'_>],
    settings: &[Setting<'_>],
    problems: &mut Problems,
) {
    let of_scope = |scope| fencing(runbooks, scope);
    let fencing: Vec<Fencing<'_>> = scopes.iter().flat_map(of_scope).collect();
    for setting in settings {
        let mut owners = fencing.iter().filter(|own| own.fence == setting.knob);
        let Some(owner) = owners.next() else { continue };
        let is_own = |own: &&Fencing<'_>| {
            std::ptr::eq(own.service, setting.service) && own.direction == Direction::Restore
        };
        let claims =
            setting.direction == Direction::Restore && fencing.iter().any(|own| is_own(&own));
        if claims {
            continue;
        }
        problems.error(
            setting.task.name.at,
            format!(
                "{} sets `{}`, which is the fence of `{}`: it may open it while that promotes",
                setting.name(),
                setting.shown,
                full_name(owner.service, owner.task)
            ),
            "accepted: `unfence_to` in the `Promote`; in a restore also a task of a service whose \
             restore promotes behind a fence",
        );
    }
}

/// A task that closes a fence.
struct Fencing<'a> {
    direction: Direction,
    service: &'a Service,
    task: &'a Task,
    fence: String,
}

fn fencing<'a>(runbooks: &Runbooks, scope: &Scope<'a>) -> Vec<Fencing<'a>> {
    let mut found = Vec::new();
    for service in &scope.services {
        for direction in DIRECTIONS {
            for task in service.tasks(direction) {
                // What cannot be expanded is said to be unchecked by `check_expansion`.
                let Some(stages) = expand_task(runbooks, service, task, scope.dc()) else {
                    continue;
                };
                found.extend(closed_fences(&stages).into_iter().map(|fence| Fencing {
                    direction,
                    service,
                    task,
                    fence: fence.knob.to_owned(),
                }));
            }
        }
    }
    found
}

/// What is wrong with the primary that a fence keeps from taking writes, and what helps.
pub(super) fn wrong_primary(
    of: &Aim,
    fence: &str,
    stages: &[ExpandedStage],
    direction: Direction,
) -> Option<(String, &'static str)> {
    let is_promoted = |stage: &ExpandedStage| matches!(&stage.work, Work::Set { knob, to, .. } if to == of && knob != fence);
    match of {
        Aim::Original if direction == Direction::Drain => Some((
            format!("the primary that `{fence}` fences cannot be `original` in a drain"),
            "give `from` the server that is the primary before the drain",
        )),
        Aim::Value(Value::Text(name)) if name.is_empty() || name.contains('+') => Some((
            format!(
                "the primary that `{fence}` fences is {}: `+` joins servers that differ",
                named(of)
            ),
            "give `from` the name of one server, without `+`",
        )),
        of if stages.iter().any(is_promoted) => Some((
            format!("the primary that `{fence}` fences is {}, which is promoted", named(of)),
            "give `from` the server that is the primary before, and `to` another one",
        )),
        _ => None,
    }
}

/// A knob that is set one way before another knob is set and another way after it, as a
/// fence is around a promotion: only `Promote` looks at what is missing behind it.
pub(super) fn check_switches(runbooks: &Runbooks, scope: &Scope<'_>, problems: &mut Problems) {
    for direction in DIRECTIONS {
        let order = Order::new(runbooks, scope, direction, problems);
        for service in &scope.services {
            let switches = switches(runbooks, service, direction);
            let is_before = |first: &Switch<'_>, second: &Switch<'_>| match std::ptr::eq(
                first.task,
                second.task,
            ) {
                true => first.stage < second.stage,
                false => order
                    .is_after(&full_name(service, second.task), &full_name(service, first.task)),
            };
            let around = switches.iter().find_map(|closes| {
                let opens = |own: &&Switch<'_>| {
                    own.knob == closes.knob && own.to != closes.to && is_before(closes, own)
                };
                let opened = switches.iter().find(opens)?;
                let is_between = |own: &&Switch<'_>| {
                    own.knob != closes.knob && is_before(closes, own) && is_before(own, opened)
                };
                Some((closes, switches.iter().find(is_between)?))
            });
            let Some((closes, between)) = around else { continue };
            problems.warning(
                closes.task.name.at,
                format!(
                    "`{}` is set one way before `{}` is set and another way after it: if it is a \
                     fence, nothing waits behind it, and a revert loses writes",
                    closes.knob, between.knob
                ),
                "`Promote` with `fence` and `caught_up` does that without a loss; ignore this if \
                 it is no fence",
            );
        }
    }
}

/// What a task that does not fence by itself sets at once.
struct Switch<'a> {
    task: &'a Task,
    stage: usize,
    knob: String,
    to: Aim,
}

fn switches<'a>(
    runbooks: &Runbooks,
    service: &'a Service,
    direction: Direction,
) -> Vec<Switch<'a>> {
    let mut switches = Vec::new();
    for task in service.tasks(direction) {
        // What cannot be expanded is said to be unchecked by `check_expansion`.
        let Some(stages) = expand_task(runbooks, service, task, SYMBOLIC) else { continue };
        if stages.iter().any(|stage| !stage.is_interruptible) {
            continue;
        }
        for (stage, own) in stages.iter().enumerate() {
            if let Some((knob, to)) = set(own) {
                switches.push(Switch { task, stage, knob: knob.to_owned(), to: to.clone() });
            }
        }
    }
    switches
}

/// A fence that a restore leaves closed is one that nobody looks for: the run is
/// complete, and the next drain makes a primary of what refuses all writes.
pub(super) fn check_opened(runbooks: &Runbooks, scope: &Scope<'_>, problems: &mut Problems) {
    let services = restoring(runbooks, scope);
    let (drains, _) = written(runbooks, &services, scope.dc(), Direction::Drain);
    let (restores, unknown) = written(runbooks, &services, scope.dc(), Direction::Restore);
    let restoring = Scope { services, evacuation: scope.evacuation };
    let restore = Restore {
        order: Order::new(runbooks, &restoring, Direction::Restore, problems),
        recorded: drains.iter().map(|drain| drain.knob.as_str()).collect(),
        writes: &restores,
        unknown: unknown.first().map(|(service, task)| full_name(service, task)),
    };
    for service in &scope.services {
        for task in &service.restore {
            // What cannot be expanded is said to be unchecked by `check_expansion`.
            let expanded =
                [scope.dc(), SYMBOLIC].map(|dc| expand_task(runbooks, service, task, dc));
            let [Some(stages), Some(shown)] = expanded else { continue };
            for (fence, shown) in closed_fences(&stages).iter().zip(closed_fences(&shown)) {
                let opens = |to: &Aim| restore.opens(fence, to);
                if is_left_closed(&stages, fence, opens) {
                    let name = full_name(service, task);
                    restore.check_others(task, &name, fence, &stages, shown.knob, problems);
                }
            }
        }
    }
}

/// What the tasks of a restore set.
struct Restore<'a> {
    order: Order,
    /// Knobs that the drain sets, so that their values from before are known.
    recorded: BTreeSet<&'a str>,
    writes: &'a [Written<'a>],
    /// A task of which it is not known.
    unknown: Option<String>,
}

impl Restore<'_> {
    /// Where the value from before the drain is not known, nothing is written.
    fn opens(&self, fence: &Fence<'_>, to: &Aim) -> bool {
        to != fence.closed && (*to != Aim::Original || self.recorded.contains(fence.knob))
    }

    /// Says so of a fence that a task leaves closed, unless another one opens it.
    fn check_others(
        &self,
        task: &Task,
        name: &str,
        fence: &Fence<'_>,
        stages: &[ExpandedStage],
        shown: &str,
        problems: &mut Problems,
    ) {
        let of_fence = self.writes.iter().filter(|write| write.knob == fence.knob);
        let others: Vec<_> = of_fence.filter(|write| !std::ptr::eq(write.task, task)).collect();
        let is_opener =
            |write: &&&Written<'_>| write.aim.as_ref().is_none_or(|to| self.opens(fence, to));
        let openers: Vec<String> =
            others.iter().filter(is_opener).map(|write| write.name()).collect();
        if openers.iter().any(|opener| self.order.is_after(opener, name)) {
            return;
        }
        let what = format!("`{name}` leaves the fence `{shown}` closed");
        if let Some(unknown) = &self.unknown {
            return problems.warning(
                task.name.at,
                format!(
                    "{what}, and whether a task of the restore opens it is not known: \
                     `{unknown}` does not fit its template"
                ),
                "repair that first",
            );
        }
        let mut remedy = format!(
            "accepted: `unfence_to` with the value that lets writes pass, or a task of the \
             restore `after` it that sets `{shown}` to another value than {}",
            named(fence.closed)
        );
        let is_restored = || restores_original(stages, fence, &others);
        if let Some(opener) = openers.first() {
            remedy += &format!("; `{opener}` sets it, but not `after` `{name}`");
        } else if !self.recorded.contains(fence.knob) && is_restored() {
            remedy += &format!("; `original` is not known: the drain does not set `{shown}`");
        }
        problems.error(
            task.name.at,
            format!(
                "{what}, and no task of the restore opens it: the next drain makes a primary of \
                 what refuses writes"
            ),
            remedy,
        );
    }
}

fn full_name(service: &Service, task: &Task) -> String {
    format!("{}.{}", service.name.value, task.name.value)
}

fn named(aim: &Aim) -> String {
    match aim {
        Aim::Value(Value::Text(text)) => format!("`{text}`"),
        Aim::Value(value) => format!("`{value}`"),
        Aim::Original => "`original`".into(),
    }
}

/// Whether a fence is set to the value that it had before the drain.
fn restores_original(stages: &[ExpandedStage], fence: &Fence<'_>, others: &[&Written<'_>]) -> bool {
    let own = stages.iter().filter_map(set).filter(|(knob, _)| *knob == fence.knob);
    let others = others.iter().filter_map(|other| other.aim.as_ref());
    own.map(|(_, to)| to).chain(others).any(|to| *to == Aim::Original)
}

/// Whether a task can be done with a fence still closed.
fn is_left_closed(
    stages: &[ExpandedStage],
    fence: &Fence<'_>,
    opens: impl Fn(&Aim) -> bool,
) -> bool {
    let closes = |stage: &ExpandedStage, is_closed: bool| match &stage.work {
        Work::Set { knob, to, .. } | Work::Shift { knob, to, .. } if knob == fence.knob => {
            to == fence.closed || is_closed && !opens(to)
        }
        Work::PutBack { knob } => is_closed && knob != fence.knob,
        Work::Act { changes, .. } => is_closed && !changes.iter().any(|own| own == fence.knob),
        _ => is_closed,
    };
    walk(stages, closes).contains(&(stages.len(), true))
}

/// A knob that a task sets.
struct Setting<'a> {
    direction: Direction,
    service: &'a Service,
    task: &'a Task,
    knob: String,
    /// As people wrote it.
    shown: String,
    is_fenced: bool,
}

impl Setting<'_> {
    fn name(&self) -> String {
        let direction = match self.direction {
            Direction::Drain => "drain",
            Direction::Restore => "restore",
        };
        format!("`{}` of the {direction}", full_name(self.service, self.task))
    }
}

fn settings<'a>(runbooks: &Runbooks, scope: &Scope<'a>) -> Vec<Setting<'a>> {
    let mut settings = Vec::new();
    for service in &scope.services {
        let tasks = DIRECTIONS.map(|direction| (direction, service.tasks(direction)));
        let tasks = tasks
            .iter()
            .flat_map(|(direction, tasks)| tasks.iter().map(move |task| (*direction, task)));
        for (direction, task) in tasks {
            // What cannot be expanded is said to be unchecked by `check_expansion`.
            let expanded =
                [scope.dc(), SYMBOLIC].map(|dc| expand_task(runbooks, service, task, dc));
            let [Some(stages), Some(shown)] = expanded else { continue };
            let fences = closed_fences(&stages);
            let open = reached_open(&stages, &fences);
            for (at, (stage, shown)) in stages.iter().zip(&shown).enumerate() {
                for ((knob, _), (shown, _)) in writes(stage).into_iter().zip(writes(shown)) {
                    if fences.iter().any(|fence| fence.knob == knob) {
                        continue;
                    }
                    settings.push(Setting {
                        direction,
                        service,
                        task,
                        knob: knob.to_owned(),
                        shown: shown.to_owned(),
                        is_fenced: !open.contains(&at),
                    });
                }
            }
        }
    }
    settings
}

/// A switch that a task closes.
pub(crate) struct Fence<'s> {
    pub knob: &'s str,
    pub closed: &'s Aim,
}

/// The same that a plan takes for fences: what a task puts back when it gives up, and
/// what it sets one way and then another around what is not interrupted.
pub(crate) fn closed_fences(stages: &[ExpandedStage]) -> Vec<Fence<'_>> {
    let mut fences: Vec<Fence<'_>> = Vec::new();
    let has_more = stages.iter().any(|stage| !stage.is_interruptible);
    for (knob, closed) in stages.iter().filter_map(set) {
        let is_opened = || {
            let mut values = stages.iter().filter_map(set).filter(|(own, _)| *own == knob);
            values.any(|(_, value)| value != closed)
        };
        let is_lifted = || {
            stages.iter().any(|stage| {
                matches!(&stage.work, Work::PutBack { knob: own } if own == knob)
                    && gives_up(stages, stage.done)
            })
        };
        let is_known = fences.iter().any(|fence| fence.knob == knob);
        if !is_known && (is_lifted() || has_more && is_opened()) {
            fences.push(Fence { knob, closed });
        }
    }
    fences
}

fn set(stage: &ExpandedStage) -> Option<(&str, &Aim)> {
    match &stage.work {
        Work::Set { knob, to, .. } => Some((knob, to)),
        _ => None,
    }
}

/// Whether a way that leads on there ends in failure.
fn gives_up(stages: &[ExpandedStage], mut next: Next) -> bool {
    for _ in stages {
        match next {
            Next::Exit(exit) => return exit == Exit::Failed,
            Next::Stage(stage) => next = stages[stage.index()].done,
        }
    }
    false
}

/// The stages that a task can come to with its fences open.
fn reached_open(stages: &[ExpandedStage], fences: &[Fence<'_>]) -> BTreeSet<usize> {
    // Of several fences one that is opened counts: it is the last one as a rule.
    let closes = |stage: &ExpandedStage, is_closed: bool| match &stage.work {
        Work::Set { knob, to, .. } => {
            let fence = fences.iter().find(|fence| fence.knob == knob);
            fence.map_or(is_closed, |fence| fence.closed == to)
        }
        Work::PutBack { knob } => is_closed && !fences.iter().any(|fence| fence.knob == knob),
        _ => is_closed,
    };
    let reached = walk(stages, closes);
    reached.into_iter().filter(|(_, is_closed)| !is_closed).map(|(at, _)| at).collect()
}

/// The stages that a task can come to, each with whether something is closed then, and
/// the number of stages for the end. `closes` says how it is after a stage that is done.
fn walk(
    stages: &[ExpandedStage],
    closes: impl Fn(&ExpandedStage, bool) -> bool,
) -> BTreeSet<(usize, bool)> {
    let place = |next: Next| match next {
        Next::Stage(stage) => Some(stage.index()),
        Next::Exit(Exit::Done) => Some(stages.len()),
        Next::Exit(Exit::Failed) => None,
    };
    let (mut reached, mut open) = (BTreeSet::new(), vec![(0, false)]);
    while let Some((at, is_closed)) = open.pop() {
        if !reached.insert((at, is_closed)) {
            continue;
        }
        let Some(stage) = stages.get(at) else { continue };
        // What has not been done may be done all the same: it counts as before.
        let ways = [
            (stage.done, closes(stage, is_closed)),
            (stage.failed, is_closed),
            (stage.late, is_closed),
        ];
        open.extend(ways.into_iter().filter_map(|(next, closed)| Some((place(next)?, closed))));
    }
    reached
}
