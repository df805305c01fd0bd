//! Whether conditions can see what they judge: samples come once in a scrape
//! interval and reach back as far as the range of the query, so a step shows in
//! them only after both.

use std::collections::BTreeMap;

use super::super::Runbooks;
use super::super::expand::{ExpandedStage, Work, expand_undo};
use super::super::problem::Problems;
use super::super::promql;
use super::super::shape::{self, Need};
use super::super::spec::{Condition, ConditionUse, Service, Source, Task, Template, Timeout};
use super::super::words::{self, mask};
use super::effects::{SYMBOLIC, expand_task};
use super::{DIRECTIONS, Scope};
use crate::time::Millis;

pub(super) fn check(runbooks: &Runbooks, scope: &Scope<'_>, problems: &mut Problems) {
    let scrape_interval = scope
        .evacuation
        .map_or_else(default_scrape_interval, |evacuation| evacuation.scrape_interval);
    let everywhere = scope.evacuation.map_or(&[][..], |evacuation| &evacuation.health);
    for service in &scope.services {
        let own = service.health.iter().filter_map(|(_, condition)| condition.as_ref());
        for condition in own {
            check_age(condition, scrape_interval, problems);
        }
        for task in DIRECTIONS.iter().flat_map(|direction| service.tasks(*direction)) {
            let uses = task.pre.iter().chain(&task.post).chain(task.health.iter().flatten());
            for condition in uses.filter_map(in_place) {
                check_age(condition, scrape_interval, problems);
            }
            check_wait(runbooks, service, task, everywhere, scrape_interval, problems);
            check_fence(runbooks, service, task, scrape_interval, problems);
        }
    }
    for condition in everywhere.iter().filter_map(in_place) {
        check_age(condition, scrape_interval, problems);
    }
}

fn default_scrape_interval() -> Millis {
    let field = shape::EVACUATION.fields.iter().find(|field| field.name == "scrape_interval");
    match field.map(|field| field.need) {
        Some(Need::Default(text)) => words::duration(text).unwrap_or_default(),
        _ => Millis::ZERO,
    }
}

fn in_place(used: &ConditionUse) -> Option<&Condition> {
    match used {
        ConditionUse::InPlace { condition, .. } => Some(condition),
        ConditionUse::Named(_) => None,
    }
}

/// Between two samples the newest one is up to an interval old.
fn check_age(condition: &Condition, scrape_interval: Millis, problems: &mut Problems) {
    let Some(max_age) = condition.max_age else { return };
    let is_measured = matches!(condition.source, Source::Query(_));
    if !is_measured || max_age >= scrape_interval {
        return;
    }
    let (max_age, interval) = (written(max_age), written(scrape_interval));
    let consequence = match condition.hold_for > Millis::ZERO {
        true => "there is no data between two scrapes, and it never holds for its `for`",
        false => "there is no data between two scrapes",
    };
    problems.warning(
        condition.at,
        format!(
            "`max_age: {max_age}` is shorter than the scrape interval, {interval}: {consequence}"
        ),
        format!("accepted: `max_age: {interval}` or more; by default three scrape intervals"),
    );
}

/// A step must not be followed by another one before it can show.
fn check_wait(
    runbooks: &Runbooks,
    service: &Service,
    task: &Task,
    everywhere: &[ConditionUse],
    scrape_interval: Millis,
    problems: &mut Problems,
) {
    // What cannot be expanded is said to be unchecked by `check_expansion`.
    let stages = expand_task(runbooks, service, task, SYMBOLIC).into_iter().flatten();
    if !stages.into_iter().any(|stage| matches!(stage.work, Work::Shift { .. })) {
        return;
    }
    let of_service =
        || service.health.iter().map(|(name, found)| (name.value.clone(), found.as_ref()));
    let mut judges: Vec<(String, Option<&Condition>)> = match &task.health {
        Some(uses) => uses.iter().map(|used| judge(runbooks, Some(service), used)).collect(),
        None => of_service().collect(),
    };
    judges.extend(everywhere.iter().map(|used| judge(runbooks, None, used)));
    let windows =
        judges.iter().filter_map(|(name, condition)| Some((window(condition.as_ref()?)?, name)));
    let Some((window, name)) = windows.max_by_key(|(window, _)| *window) else { return };
    let needed = scrape_interval + window;
    if task.pace.value.wait >= needed {
        return;
    }
    let range = match window {
        Millis::ZERO => String::new(),
        _ => format!(" plus its range of {}", written(window)),
    };
    problems.warning(
        task.pace.at,
        format!(
            "`{}.{}` waits {} after a step, and `{name}` sees the step only after the scrape \
             interval of {}{range}",
            service.name.value,
            task.name.value,
            written(task.pace.value.wait),
            written(scrape_interval),
        ),
        format!(
            "each step is judged only on samples taken after it; accepted: `wait: {}` or more{}",
            written(needed),
            if window > Millis::ZERO { ", or a shorter range" } else { "" }
        ),
    );
}

/// How far back a query about the present looks. `None`: it is no query, or no
/// PromQL, which was noted.
fn window(condition: &Condition) -> Option<Millis> {
    let Source::Query(query) = &condition.source else { return None };
    let analysis = promql::analyse(&mask(query)).ok()?;
    let present = analysis.selectors.iter().filter(|selector| !selector.past);
    present.map(|selector| selector.window).max()
}

/// What waits behind a fence must have time to see that nothing is missing; else
/// the fence is lifted again every time.
fn check_fence(
    runbooks: &Runbooks,
    service: &Service,
    task: &Task,
    scrape_interval: Millis,
    problems: &mut Problems,
) {
    let template = task.template.as_ref().and_then(|name| runbooks.template(&name.value));
    let Some(template) = template else { return };
    let name = &service.name.value;
    let stages = expand_task(runbooks, service, task, SYMBOLIC).unwrap_or_default();
    let back = expand_undo(template, task, name, SYMBOLIC).flatten().map(|undo| undo.stages);
    let undo = template.undo.as_ref().map(|undo| &undo.template);
    let of = |template, stages: Vec<ExpandedStage>| stages.into_iter().map(move |s| (template, s));
    let forth = of(Some(template), stages);
    // By the name of the limit: of several conditions the one that takes longest.
    let mut short: BTreeMap<String, (Millis, Millis, String)> = BTreeMap::new();
    for (template, stage) in forth.chain(of(undo, back.unwrap_or_default())) {
        let (Work::Await(used) | Work::AwaitExactly(used)) = &stage.work else { continue };
        let (name, Some(condition)) = judge(runbooks, Some(service), used) else { continue };
        let (Some(limit), Some(template)) = (stage.timeout, template) else { continue };
        let (needed, parts) = time_to_judge(condition, scrape_interval);
        if stage.is_interruptible || limit >= needed {
            continue;
        }
        let why = format!("`{name}` can be judged: that takes {parts}");
        let known = short.entry(limit_name(template, &stage)).or_default();
        if known.0 < needed {
            *known = (needed, limit, why);
        }
    }
    for (key, (needed, limit, why)) in short {
        let given = task.with.iter().find(|(own, _)| own.value == key);
        problems.warning(
            given.map_or(task.name.at, |(own, _)| own.at),
            format!(
                "`{key}: {}` of `{name}.{}` ends before {why}",
                written(limit),
                task.name.value
            ),
            format!("it is given up every time; accepted: `{key}: {}` or more", written(needed)),
        );
    }
}

/// How long it takes at most until a condition can hold by samples that were all
/// taken after an effect, and of what that is the sum.
fn time_to_judge(condition: &Condition, scrape_interval: Millis) -> (Millis, String) {
    let (mut needed, mut parts) = (Millis::ZERO, Vec::new());
    if let Some(window) = window(condition) {
        // One until the next scrape, and one more since scrapes may fail.
        needed = needed + scrape_interval + scrape_interval;
        parts.push(format!("2 scrape intervals of {}", written(scrape_interval)));
        if window > Millis::ZERO {
            needed = needed + window;
            parts.push(format!("its range of {}", written(window)));
        }
    }
    if condition.hold_for > Millis::ZERO {
        needed = needed + condition.hold_for;
        parts.push(format!("its `for` of {}", written(condition.hold_for)));
    }
    (needed, parts.join(", "))
}

/// What people know the timeout of a stage by.
fn limit_name(template: &Template, stage: &ExpandedStage) -> String {
    let own = template.stages.iter().find(|own| own.name.value == stage.name);
    match own.and_then(|own| own.timeout.as_ref()) {
        Some(Timeout::Parameter(name)) => name.value.clone(),
        Some(Timeout::Fixed(_)) | None => "timeout".to_owned(),
    }
}

/// The condition that is meant, and its name for people. `None`: it was noted that
/// there is none.
fn judge<'a>(
    runbooks: &'a Runbooks,
    by: Option<&'a Service>,
    used: &'a ConditionUse,
) -> (String, Option<&'a Condition>) {
    let name = match used {
        ConditionUse::InPlace { name, condition } => {
            let name = name.clone().unwrap_or_else(|| "the condition in place".into());
            return (name, Some(condition));
        }
        ConditionUse::Named(name) => &name.value,
    };
    let (service, condition) = match name.split_once('.') {
        Some((service, condition)) => (runbooks.service(service), condition),
        None => (by, name.as_str()),
    };
    let health = service.map_or(&[][..], |service| &service.health);
    let found = health.iter().find(|(other, _)| other.value == condition);
    (name.clone(), found.and_then(|(_, condition)| condition.as_ref()))
}

/// As runbooks write it.
fn written(span: Millis) -> String {
    span.to_string().replace(' ', "")
}
