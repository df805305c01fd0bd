//! Conditions: whether those that are named exist, and whether they can hold.

use super::super::Runbooks;
use super::super::problem::{Placed, Problems};
use super::super::promql::{self, WhenZero};
use super::super::spec::{Condition, ConditionUse, NoTraffic, Service, Source, Task};
use super::super::words::{did_you_mean, mask};
use crate::condition::{Comparison, NoData};

pub(super) fn check_service(runbooks: &Runbooks, service: &Service, problems: &mut Problems) {
    if service.health.is_empty() {
        problems.warning(
            service.name.at,
            format!("nothing says when `{}` is well", service.name.value),
            "add `health:` with a condition, so that a step which hurts it is noticed",
        );
    }
    for (_, condition) in &service.health {
        if let Some(condition) = condition {
            check(condition, problems);
            check_sees(condition, problems);
        }
    }
    for task in service.drain.iter().chain(&service.restore) {
        task.health.iter().flatten().for_each(|used| check_health(used, problems));
        let uses = task.pre.iter().chain(&task.post).chain(task.health.iter().flatten());
        for used in uses {
            check_use(runbooks, Some(service), used, problems);
        }
    }
}

/// A condition where it is used, by a service or by an evacuation.
pub(super) fn check_use(
    runbooks: &Runbooks,
    by: Option<&Service>,
    used: &ConditionUse,
    problems: &mut Problems,
) {
    match used {
        ConditionUse::Named(name) => check_name(runbooks, by, name, problems),
        ConditionUse::InPlace { condition, .. } => check(condition, problems),
    }
}

/// The condition that a use means, if there is one.
fn find<'a>(
    runbooks: &'a Runbooks,
    service: &'a Service,
    used: &'a ConditionUse,
) -> Option<&'a Condition> {
    let name = match used {
        ConditionUse::InPlace { condition, .. } => return Some(condition),
        ConditionUse::Named(name) => name.value.as_str(),
    };
    let (service, name) = match name.split_once('.') {
        Some((other, name)) => (runbooks.service(other)?, name),
        None => (service, name),
    };
    service.health.iter().find(|(own, _)| own.value == name)?.1.as_ref()
}

/// A condition without tolerance that a task gives for a parameter, or that its
/// template has by default.
pub(super) fn check_exact(
    runbooks: &Runbooks,
    service: &Service,
    used: &ConditionUse,
    parameter: &Placed<String>,
    problems: &mut Problems,
) {
    if let Some(condition) = find(runbooks, service, used) {
        check_tolerance(condition, parameter, problems);
    }
}

/// A condition without tolerance: what it tolerates would be lost.
pub(super) fn check_tolerance(
    condition: &Condition,
    parameter: &Placed<String>,
    problems: &mut Problems,
) {
    let bound = condition.bound.value;
    let is_exact =
        matches!(condition.comparison, Comparison::AtMost | Comparison::Equals) && bound <= 0.0;
    let passes_unseen = condition.no_data == NoData::Pass
        || matches!(
            condition.no_traffic,
            Some(NoTraffic::As(NoData::Pass) | NoTraffic::PassOnRestore)
        );
    if passes_unseen {
        problems.error(
            parameter.at,
            format!("`{}` passes without a value: what is missing then is lost", parameter.value),
            "accepted: `block` or `fail` for `no_data` and `no_traffic`",
        );
    }
    check_query(condition, &format!("`{}`", parameter.value), problems);
    if !is_exact {
        problems.error(
            parameter.at,
            format!(
                "`{}` tolerates {} {bound}: what is missing by then is lost",
                parameter.value,
                condition.comparison.symbol()
            ),
            "accepted: `equals: 0`, or `at_most: 0`",
        );
    }
}

/// A query that is 0 only if nothing is missing, and that has a value only if its
/// metrics are there, from now.
fn check_query(condition: &Condition, name: &str, problems: &mut Problems) {
    let Source::Query(query) = &condition.source else { return };
    // What is no PromQL was noted.
    let Ok(analysis) = promql::analyse(&mask(query)) else { return };
    // A parameter of a template may stand for a part of it.
    let is_as_written = condition.written.text == *query;
    if !is_as_written && !promql::unquoted(query).is_empty() {
        let what = format!("{name} is not exact: {}", promql::UNQUOTED);
        problems.error(condition.written.place_of(0), what, promql::QUOTED_RULE);
    }
    for part in &analysis.inexact {
        let offset = if is_as_written { part.offset } else { 0 };
        problems.error(
            condition.written.place_of(offset),
            format!("{name} is not exact: {}", part.what),
            format!("accepted: {}", promql::EXACT_RULE),
        );
    }
}

/// A condition whose tolerance can be taken away: by a bound of 0.
pub(super) fn check_bounded_above(
    runbooks: &Runbooks,
    service: &Service,
    used: &ConditionUse,
    task: &Task,
    problems: &mut Problems,
) {
    let is_bounded = |condition: &Condition| {
        matches!(condition.comparison, Comparison::Below | Comparison::AtMost | Comparison::Equals)
    };
    if let Some(condition) = find(runbooks, service, used) {
        check_query(condition, "what must hold after the fence", problems);
    }
    if find(runbooks, service, used).is_some_and(|condition| !is_bounded(condition)) {
        problems.error(
            task.with_at,
            "what must hold after the fence cannot be told from what must hold before it",
            "add `caught_up:` with a condition that holds when nothing is missing",
        );
    }
}

/// A condition that judges steps, in place; those with a name are judged where
/// they are defined.
pub(super) fn check_health(used: &ConditionUse, problems: &mut Problems) {
    if let ConditionUse::InPlace { condition, .. } = used {
        check_sees(condition, problems);
    }
}

/// What judges steps must see them.
fn check_sees(condition: &Condition, problems: &mut Problems) {
    if condition.no_data == NoData::Pass {
        problems.warning(
            condition.at,
            "`no_data: pass` on health: steps go on when nothing is measured",
            "accepted: `no_data: block`, or `fail`; what is not seen is not moved",
        );
    }
    let Source::Query(query) = &condition.source else { return };
    // What is no PromQL was noted.
    let Ok(analysis) = promql::analyse(&mask(query)) else { return };
    if !analysis.selectors.is_empty() && analysis.selectors.iter().all(|selector| selector.past) {
        problems.warning(
            condition.at,
            "all that the query reads has `offset` or `@`: it never sees the step that it judges",
            "drop `offset` and `@` from at least one of its metrics",
        );
    }
}

fn check(condition: &Condition, problems: &mut Problems) {
    check_can_hold(condition, problems);
    check_divisions(condition, problems);
}

/// A ratio has no value where there is no traffic, which is when a restore is
/// needed most.
fn check_divisions(condition: &Condition, problems: &mut Problems) {
    // `no_data: pass` and `fail` say what that means, too.
    let is_stated = condition.no_traffic.is_some() || condition.no_data != NoData::Block;
    let Source::Query(_) = &condition.source else { return };
    let query = condition.written.text.as_str();
    // What is no PromQL was noted.
    let Ok(analysis) = promql::analyse(&mask(query)) else { return };
    for division in &analysis.divisions {
        let denominator = &query[division.denominator_at.clone()];
        let at = condition.written.place_of(division.offset);
        match division.when_zero {
            WhenZero::Value | WhenZero::Infinite => {}
            WhenZero::NotANumber if is_stated => {}
            WhenZero::NotANumber => {
                let inner = unbracketed(denominator);
                let safe = match division.is_number {
                    true => String::new(),
                    false => format!("divide by `clamp_min({inner}, 0.001)`, or "),
                };
                problems.warning(
                    at,
                    format!(
                        "without traffic the query is 0/0 and blocks, also a restore: \
                         `{denominator}` can be 0"
                    ),
                    format!(
                        "{safe}state what that means, such as `no_traffic: pass_on_restore` or \
                         `no_traffic: block`"
                    ),
                );
            }
            WhenZero::Nothing if condition.no_data != NoData::Block => {}
            WhenZero::Nothing => problems.warning(
                at,
                format!(
                    "without traffic the query has no value and blocks, also a restore: \
                     with `{denominator}` a filter leaves nothing"
                ),
                "add a value for that, such as `or vector(0)` at the end of the query",
            ),
        }
    }
}

/// Without the brackets around all of it.
fn unbracketed(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) else {
        return text;
    };
    // `(a) + (b)` has none.
    if promql::analyse(&mask(inner)).is_ok() { inner.trim() } else { text }
}

fn check_name(
    runbooks: &Runbooks,
    by: Option<&Service>,
    name: &Placed<String>,
    problems: &mut Problems,
) {
    let (service, condition) = match name.value.split_once('.') {
        Some((service, condition)) => match runbooks.service(service) {
            Some(service) => (service, condition),
            None if runbooks.incomplete => {
                let (what, remedy) = super::unread(&format!("the service `{service}`"));
                return problems.warning(name.at, what, remedy);
            }
            None => {
                let known = runbooks.services.iter().map(|service| service.name.value.as_str());
                return problems.error(
                    name.at,
                    format!("there is no service `{service}`"),
                    did_you_mean(service, known),
                );
            }
        },
        None => match by {
            Some(service) => (service, name.value.as_str()),
            None => {
                return problems.error(
                    name.at,
                    format!("`{}` does not say whose condition it is", name.value),
                    "accepted: `service.condition`, or a condition in place",
                );
            }
        },
    };
    let known: Vec<_> = service.health.iter().map(|(name, _)| name.value.as_str()).collect();
    if !known.contains(&condition) {
        problems.error(
            name.at,
            format!("`{}` has no condition `{condition}`", service.name.value),
            did_you_mean(condition, known),
        );
    }
}

/// Says so only where it is certain: a value that cannot be negative is never
/// below zero.
fn check_can_hold(condition: &Condition, problems: &mut Problems) {
    let never_negative = match &condition.source {
        Source::Query(query) => {
            promql::analyse(&mask(query)).is_ok_and(|analysis| analysis.never_negative)
        }
        Source::Gauge(_) => true,
    };
    let bound = condition.bound.value;
    let never = match condition.comparison {
        Comparison::Below => bound <= 0.0,
        Comparison::AtMost | Comparison::Equals => bound < 0.0,
        Comparison::Above | Comparison::AtLeast => false,
    };
    if never_negative && never {
        problems.error(
            condition.bound.at,
            "the condition can never hold: what it measures is never below 0",
            "accepted: a bound above 0, or `equals: 0`",
        );
    }
}
