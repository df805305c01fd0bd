//! Conditions: whether those that are named exist, and whether they can hold.

use super::super::Runbooks;
use super::super::problem::{Placed, Problems};
use super::super::promql;
use super::super::spec::{Condition, ConditionUse, Service, Source, Task};
use super::super::words::{did_you_mean, mask};
use crate::condition::Comparison;

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
            check_can_hold(condition, problems);
        }
    }
    for task in service.drain.iter().chain(&service.restore) {
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
        ConditionUse::InPlace { condition, .. } => check_can_hold(condition, problems),
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

/// A condition without tolerance: what it tolerates would be lost.
pub(super) fn check_exact(
    runbooks: &Runbooks,
    service: &Service,
    used: &ConditionUse,
    parameter: &Placed<String>,
    problems: &mut Problems,
) {
    let Some(condition) = find(runbooks, service, used) else { return };
    let bound = condition.bound.value;
    let is_exact = match condition.comparison {
        Comparison::Equals => true,
        Comparison::AtMost => bound <= 0.0,
        // Of whole numbers; of fractions it tolerates some.
        Comparison::Below => bound <= 1.0,
        Comparison::Above | Comparison::AtLeast => false,
    };
    if !is_exact {
        problems.error(
            parameter.at,
            format!(
                "`{}` tolerates {} {bound}: what is missing by then is lost",
                parameter.value,
                condition.comparison.symbol()
            ),
            "accepted: `equals`, or `at_most: 0`",
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
    if find(runbooks, service, used).is_some_and(|condition| !is_bounded(condition)) {
        problems.error(
            task.with_at,
            "what must hold after the fence cannot be told from what must hold before it",
            "add `caught_up:` with a condition that holds when nothing is missing",
        );
    }
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
            None if runbooks.incomplete => return,
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
