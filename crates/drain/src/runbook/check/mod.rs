//! What can be wrong with runbooks whose form is right: names that nobody
//! defines, tasks that wait for each other, drains that nothing undoes.

mod conditions;
mod effects;
mod evacuations;
mod graph;
mod loads;
mod names;
mod tasks;
mod templates;

use super::Runbooks;
use super::problem::Problems;
use super::spec::{Evacuation, Join, Service};
use crate::plan::Direction;

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Drain, Direction::Restore];

/// Notes everything that is wrong with the runbooks as a whole.
pub(super) fn check(runbooks: &Runbooks, problems: &mut Problems) {
    names::check(runbooks, problems);
    for template in &runbooks.templates {
        templates::check(template, problems);
    }
    for service in &runbooks.services {
        conditions::check_service(runbooks, service, problems);
        tasks::check(runbooks, service, problems);
        loads::check(service, problems);
    }
    effects::check_undone(runbooks, problems);
    for evacuation in &runbooks.evacuations {
        evacuations::check(runbooks, evacuation, problems);
    }
    for scope in scopes(runbooks) {
        graph::check(runbooks, &scope, problems);
        if scope.evacuation.is_some() || runbooks.evacuations.is_empty() {
            effects::check_barriers(runbooks, &scope, problems);
        }
    }
}

/// Services whose tasks run together.
pub(super) struct Scope<'a> {
    pub services: Vec<&'a Service>,
    /// `None`: all services that there are, whoever evacuates them.
    pub evacuation: Option<&'a Evacuation>,
}

impl<'a> Scope<'a> {
    pub fn joins(&self, direction: Direction) -> &'a [Join] {
        self.evacuation.map_or(&[], |evacuation| evacuation.joins(direction))
    }
}

fn scopes(runbooks: &Runbooks) -> Vec<Scope<'_>> {
    let all = Scope { services: runbooks.services.iter().collect(), evacuation: None };
    let evacuations = runbooks.evacuations.iter().map(|evacuation| Scope {
        services: evacuation
            .services
            .iter()
            .filter_map(|name| runbooks.service(&name.value))
            .collect(),
        evacuation: Some(evacuation),
    });
    std::iter::once(all).chain(evacuations).collect()
}
