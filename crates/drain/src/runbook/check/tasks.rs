//! Tasks: whether they give their templates what those need.

use super::super::arguments;
use super::super::expand::{Aim, Work, expand};
use super::super::problem::{Place, Placed, Problems};
use super::super::spec::{Parameter, Service, Task, Template};
use super::super::stages::ArgumentKind;
use super::super::words::{did_you_mean, nearest};
use super::super::{Runbooks, lift};
use super::effects::{SYMBOLIC, expand_task};
use super::templates::{OUTER, check_value};
use super::{DIRECTIONS, Scope, conditions, fences};
use crate::plan::{Direction, OnBreach};

pub(super) fn check(runbooks: &Runbooks, service: &Service, problems: &mut Problems) {
    for direction in DIRECTIONS {
        for task in service.tasks(direction) {
            check_pace(task, problems);
            check_breach(task, direction, problems);
            let Some(name) = &task.template else { continue };
            match runbooks.template(&name.value) {
                // A template that is too large is not looked at any further.
                Some(template) if template.is_too_large() => {}
                Some(template) => {
                    check_parameters(runbooks, service, task, template, problems);
                    check_stages(runbooks, service, task, template, direction, problems);
                }
                None if runbooks.incomplete => {
                    let (what, remedy) = super::unread(&format!("the template `{}`", name.value));
                    problems.warning(name.at, what, remedy);
                }
                None => {
                    let known = runbooks.templates.iter().map(|other| other.name.value.as_str());
                    problems.error(
                        name.at,
                        format!("there is no template `{}`", name.value),
                        did_you_mean(&name.value, known),
                    );
                }
            }
        }
    }
}

fn check_pace(task: &Task, problems: &mut Problems) {
    let pace = task.pace.value;
    if pace.first > pace.step_max {
        problems.error(
            task.pace.at,
            format!(
                "the first step, {}, is larger than the largest, {}",
                percent(pace.first),
                percent(pace.step_max)
            ),
            "accepted: `first` up to `step_max`",
        );
    }
    if pace.wait > pace.wait_max {
        problems.error(
            task.pace.at,
            format!("`wait`, {}, is longer than `wait_max`, {}", pace.wait, pace.wait_max),
            "accepted: `wait` up to `wait_max`",
        );
    }
}

/// What a drain moves back goes to where it was served before. In a restore that is the
/// other way round: what is bad may be all the others, and bad already before the step.
fn check_breach(task: &Task, direction: Direction, problems: &mut Problems) {
    let on_breach = match task.pace.value.on_breach {
        OnBreach::BackOff => "back_off",
        OnBreach::Revert => "revert",
        OnBreach::Hold => return,
    };
    if direction == Direction::Restore {
        problems.error(
            task.pace.at,
            format!(
                "`on_breach: {on_breach}` in a restore: it would move traffic out of what may be \
                 the only healthy datacenter"
            ),
            "a restore never moves traffic out by itself; accepted: `hold`",
        );
    }
}

fn percent(share: f64) -> String {
    format!("{}%", (share * 1e6).round() / 1e4)
}

fn check_parameters(
    runbooks: &Runbooks,
    service: &Service,
    task: &Task,
    template: &Template,
    problems: &mut Problems,
) {
    for (name, node) in &task.with {
        let Some(parameter) = template.parameter(&name.value) else {
            let known = template.parameters.iter().map(|parameter| parameter.name.value.as_str());
            let known: Vec<_> = known.collect();
            problems.error(
                name.at,
                format!("`{}` has no parameter `{}`", template.name.value, name.value),
                did_you_mean(&name.value, known),
            );
            continue;
        };
        check_company(task, parameter, name, problems);
        let Some(kind) = parameter.kind else { continue };
        check_value(kind, &parameter.choices, node, &name.value, OUTER.to_vec(), problems);
        if kind == ArgumentKind::Condition
            && let Some(used) = lift::condition_use(node)
        {
            conditions::check_use(runbooks, Some(service), &used, problems);
            if parameter.exact {
                conditions::check_exact(runbooks, service, &used, name, problems);
            }
        }
    }
    for parameter in template.parameters.iter().filter(|parameter| parameter.required) {
        let name = &parameter.name.value;
        let known = || template.parameters.iter().map(|known| known.name.value.as_str());
        // One that was misspelt is there.
        if !task.with.iter().any(|(given, _)| nearest(&given.value, known()) == Some(name)) {
            let accepted = parameter
                .kind
                .map_or(String::new(), |kind| arguments::accepted(kind, &parameter.choices));
            problems.error(
                task.with_at,
                format!("`{}` needs the parameter `{name}`", template.name.value),
                format!("add it under `with:`; {accepted}"),
            );
        }
    }
}

/// What a parameter makes no sense without.
fn check_company(
    task: &Task,
    parameter: &Parameter,
    name: &Placed<String>,
    problems: &mut Problems,
) {
    let others = || parameter.together_with.iter().map(|other| other.value.as_str());
    let is_given = |other: &str| task.with.iter().any(|(given, _)| given.value == other);
    for other in parameter.needs.iter().filter(|other| !is_given(&other.value)) {
        problems.error(
            name.at,
            format!("`{}` needs `{}` beside it", name.value, other.value),
            "add it under `with:`",
        );
    }
    if others().next().is_some() && !others().any(is_given) {
        let others: Vec<String> = others().map(|other| format!("`{other}`")).collect();
        problems.error(
            name.at,
            format!("`{}` needs {} beside it", name.value, others.join(" or ")),
            "add it under `with:`",
        );
    }
}

/// Says of every task that could not be put together with its template that what
/// it does is not checked. Why not was noted by then; if it was not, this is an
/// error by itself: no plan may be made of what nobody has looked at.
pub(super) fn check_expansion(runbooks: &Runbooks, scopes: &[Scope<'_>], problems: &mut Problems) {
    for scope in scopes {
        for service in &scope.services {
            for task in DIRECTIONS.iter().flat_map(|direction| service.tasks(*direction)) {
                let expands = |dc| expand_task(runbooks, service, task, dc).is_some();
                if expands(SYMBOLIC) && expands(scope.dc()) {
                    continue;
                }
                let name = format!("{}.{}", service.name.value, task.name.value);
                let what = format!(
                    "`{name}` does not fit its template, so which knobs it changes and which \
                     barriers it comes to is not checked"
                );
                let remedy = "repair the task and its template first";
                match problems.has_errors() {
                    true => problems.warning(task.name.at, what, remedy),
                    false => problems.error(task.name.at, what, remedy),
                }
            }
        }
    }
}

/// What only shows when a task and its template are put together.
fn check_stages(
    runbooks: &Runbooks,
    service: &Service,
    task: &Task,
    template: &Template,
    direction: Direction,
    problems: &mut Problems,
) {
    // What cannot be expanded is said to be unchecked by `check_expansion`.
    let Some(stages) = expand(template, task, &service.name.value, SYMBOLIC) else { return };
    if stages.is_empty() {
        problems.error(
            task.name.at,
            format!("`{}` does nothing: all its stages are passed over", task.name.value),
            format!("give `{}` more of its parameters under `with:`", template.name.value),
        );
    }
    for stage in &stages {
        match &stage.work {
            Work::Shift { to: Aim::Original, .. } | Work::Set { to: Aim::Original, .. }
                if direction == Direction::Drain =>
            {
                problems.error(
                    place_of_original(task),
                    "a drain cannot go to `original`",
                    "accepted: a value; only a restore goes back to where a drain began",
                );
            }
            Work::Shift { knob, to: Aim::Value(_), returns: false, .. }
                if direction == Direction::Drain
                    && template.undo.is_none()
                    && !knob.contains('$') =>
            {
                problems.warning(
                    task.name.at,
                    format!(
                        "`{}` moves `{knob}`, which names no datacenter: limits and capacity do \
                         not count what it lets in",
                        task.name.value
                    ),
                    "accepted: a knob of each datacenter, with `$dc` in its name",
                );
            }
            Work::Set { knob, of: Some(of), .. } => {
                let wrong = fences::wrong_primary(of, knob, &stages, direction);
                if let Some((what, remedy)) = wrong {
                    problems.error(task.name.at, what, remedy);
                }
            }
            Work::Govern { budget, .. } => {
                let takes = task.budgets.iter().any(|(name, _)| name.value == *budget);
                if !takes {
                    problems.error(
                        task.name.at,
                        format!(
                            "`{}` is governed by the budget `{budget}`, and takes nothing of it",
                            task.name.value
                        ),
                        format!("add `budgets: {{{budget}: …}}` to the task: what it would use"),
                    );
                }
            }
            // One that the template names must be one of this service.
            Work::Await(used) | Work::Check(used) => {
                conditions::check_use(runbooks, Some(service), used, problems);
            }
            Work::AwaitExactly(used) => {
                conditions::check_use(runbooks, Some(service), used, problems);
                conditions::check_bounded_above(runbooks, service, used, task, problems);
            }
            _ => {}
        }
    }
}

fn place_of_original(task: &Task) -> Place {
    let original = task
        .with
        .iter()
        .find(|(_, node)| node.scalar().is_some_and(|scalar| scalar.text == "original"));
    original.map_or(task.name.at, |(_, node)| node.at)
}
