//! Evacuations: services, datacenters, budgets and limits.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Runbooks;
use super::super::expand::Work;
use super::super::problem::Problems;
use super::super::spec::{Evacuation, Service, Traffic};
use super::super::words::did_you_mean;
use super::effects::expand_task;
use super::{DIRECTIONS, Scope, conditions};

pub(super) fn check(runbooks: &Runbooks, evacuation: &Evacuation, problems: &mut Problems) {
    check_services(runbooks, evacuation, problems);
    check_datacenters(runbooks, evacuation, problems);
    check_limits(evacuation, problems);
    check_budgets(runbooks, evacuation, problems);
    for used in &evacuation.health {
        conditions::check_use(runbooks, None, used, problems);
        conditions::check_health(used, problems);
    }
}

/// A knob that the drains of two datacenters move: neither limits nor plans can tell whose
/// traffic leaves with it.
pub(super) fn check_shared(runbooks: &Runbooks, scopes: &[Scope<'_>], problems: &mut Problems) {
    let is_moved =
        |service: &&Service| matches!(service.traffic, Traffic::Stateless | Traffic::Sticky);
    for service in runbooks.services.iter().filter(is_moved) {
        let has = |scope: &&Scope<'_>| {
            scope.evacuation.is_some()
                && scope.services.iter().any(|own| std::ptr::eq(*own, service))
        };
        let datacenters: BTreeSet<&str> = scopes.iter().filter(has).map(Scope::dc).collect();
        for task in &service.drain {
            let mut moved: BTreeMap<String, &str> = BTreeMap::new();
            let mut shared: BTreeMap<String, [&str; 2]> = BTreeMap::new();
            for dc in &datacenters {
                // What cannot be expanded is said to be unchecked by `check_expansion`.
                let stages = expand_task(runbooks, service, task, dc).unwrap_or_default();
                for stage in stages {
                    let Work::Shift { knob, .. } = stage.work else { continue };
                    match moved.get(&knob) {
                        Some(other) if other != dc => _ = shared.insert(knob, [other, dc]),
                        _ => _ = moved.insert(knob, dc),
                    }
                }
            }
            for (knob, [first, second]) in shared {
                problems.error(
                    task.name.at,
                    format!(
                        "`{}.{}` moves `{knob}` in the drain of `{first}` and in that of \
                         `{second}`: what leaves one would leave the other too",
                        service.name.value, task.name.value
                    ),
                    "accepted: a knob of each datacenter, with `$dc` in its name",
                );
            }
        }
    }
}

fn check_services(runbooks: &Runbooks, evacuation: &Evacuation, problems: &mut Problems) {
    for (at, name) in evacuation.services.iter().enumerate() {
        if evacuation.services[..at].iter().any(|earlier| earlier.value == name.value) {
            problems.error(
                name.at,
                format!("the service `{}` is listed twice", name.value),
                "keep one of them",
            );
        }
        if runbooks.service(&name.value).is_none() && runbooks.incomplete {
            let (what, remedy) = super::unread(&format!("the service `{}`", name.value));
            problems.warning(name.at, what, remedy);
        } else if runbooks.service(&name.value).is_none() {
            let known = runbooks.services.iter().map(|service| service.name.value.as_str());
            problems.error(
                name.at,
                format!("there is no service `{}`", name.value),
                did_you_mean(&name.value, known),
            );
        }
    }
}

fn check_datacenters(runbooks: &Runbooks, evacuation: &Evacuation, problems: &mut Problems) {
    let known: Vec<_> = evacuation.datacenters.iter().map(|dc| dc.name.value.as_str()).collect();
    let drained = &evacuation.datacenter;
    if !known.contains(&drained.value.as_str()) {
        problems.error(
            drained.at,
            format!("`datacenters` does not have `{}`", drained.value),
            did_you_mean(&drained.value, known.iter().copied()),
        );
    }
    for name in &evacuation.services {
        let Some(service) = runbooks.service(&name.value) else { continue };
        for (datacenter, _) in &service.load {
            if !known.contains(&datacenter.value.as_str()) {
                problems.error(
                    datacenter.at,
                    format!(
                        "the evacuation of `{}` has no datacenter `{}`",
                        drained.value, datacenter.value
                    ),
                    did_you_mean(&datacenter.value, known.iter().copied()),
                );
            }
        }
    }
}

/// Limits that the evacuation would break by itself.
fn check_limits(evacuation: &Evacuation, problems: &mut Problems) {
    let drained = &evacuation.datacenter.value;
    let left = evacuation.datacenters.iter().filter(|dc| dc.name.value != *drained).count();
    if left < evacuation.limits.serving_min as usize {
        problems.error(
            evacuation.serving_min_at,
            format!(
                "without `{drained}` {left} datacenters serve, and `serving_min` is {}",
                evacuation.limits.serving_min
            ),
            format!("accepted: `serving_min` up to {left}, or more `datacenters`"),
        );
    }
    let capacities: Option<Vec<_>> = evacuation
        .datacenters
        .iter()
        .map(|dc| Some((dc.name.value == *drained, dc.capacity?)))
        .collect();
    let Some(capacities) = capacities else {
        return problems.warning(
            evacuation.drained_max_at,
            format!("whether `{drained}` has more than `drained_max` of the capacity is not known"),
            "repair the `capacity` of every datacenter first",
        );
    };
    let total: f64 = capacities.iter().map(|(_, capacity)| capacity).sum();
    if total <= 0.0 {
        problems.warning(
            evacuation.drained_max_at,
            "no datacenter has a capacity above 0, so `drained_max` limits nothing",
            "state the `capacity` of each datacenter, in the unit of the services' `load`",
        );
    }
    let gone: f64 = capacities.iter().filter(|(gone, _)| *gone).map(|(_, size)| size).sum();
    // Capacities are numbers that people round.
    const ROUNDING: f64 = 1e-9;
    if total > 0.0 && gone / total > evacuation.limits.drained_max + ROUNDING {
        problems.error(
            evacuation.drained_max_at,
            format!(
                "`{drained}` has {:.0}% of all capacity, and `drained_max` is {:.0}%",
                100.0 * gone / total,
                100.0 * evacuation.limits.drained_max
            ),
            "accepted: a larger `drained_max`, stated under `limits:`",
        );
    }
}

fn check_budgets(runbooks: &Runbooks, evacuation: &Evacuation, problems: &mut Problems) {
    let services = evacuation.services.iter().filter_map(|name| runbooks.service(&name.value));
    for service in services {
        for task in DIRECTIONS.iter().flat_map(|direction| service.tasks(*direction)) {
            for (name, amount) in &task.budgets {
                let budget = evacuation.budgets.iter().find(|(other, _)| other.value == name.value);
                match budget {
                    None => {
                        let known: Vec<_> = evacuation
                            .budgets
                            .iter()
                            .map(|(name, _)| name.value.as_str())
                            .collect();
                        problems.error(
                            name.at,
                            format!(
                                "the evacuation of `{}` has no budget `{}`",
                                evacuation.datacenter.value, name.value
                            ),
                            did_you_mean(&name.value, known),
                        );
                    }
                    Some((_, size)) if amount.value > *size => problems.error(
                        amount.at,
                        format!(
                            "`{}.{}` wants {} of the budget `{}`, and the evacuation of `{}` has \
                             {size}",
                            service.name.value,
                            task.name.value,
                            amount.value,
                            name.value,
                            evacuation.datacenter.value
                        ),
                        format!("accepted: up to {size}, or a larger budget"),
                    ),
                    Some(_) => {}
                }
            }
        }
    }
}
