//! What can be wrong with runbooks whose form is right: names that nobody
//! defines, tasks that wait for each other, drains that nothing undoes.

mod conditions;
mod effects;
mod evacuations;
mod fences;
mod freshness;
mod graph;
mod loads;
mod names;
mod tasks;
mod templates;

pub(crate) use fences::closed_fences;

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
        if !runbooks.is_built_in(template) {
            templates::check_unfenced(template, problems);
        }
    }
    for service in &runbooks.services {
        conditions::check_service(runbooks, service, problems);
        tasks::check(runbooks, service, problems);
        loads::check(service, problems);
    }
    for evacuation in &runbooks.evacuations {
        evacuations::check(runbooks, evacuation, problems);
    }
    let all = Scope { services: runbooks.services.iter().collect(), evacuation: None };
    graph::check(runbooks, &all, problems);
    let scopes = scopes(runbooks);
    for scope in scopes.iter().filter(|scope| scope.evacuation.is_some()) {
        graph::check(runbooks, scope, problems);
    }
    for scope in &scopes {
        freshness::check(runbooks, scope, problems);
        effects::check_barriers(runbooks, scope, problems);
        fences::check_opened(runbooks, scope, problems);
        fences::check_switches(runbooks, scope, problems);
    }
    effects::check_undone(runbooks, &scopes, problems);
    fences::check_mixed(runbooks, &scopes, problems);
    evacuations::check_shared(runbooks, &scopes, problems);
    tasks::check_expansion(runbooks, &scopes, problems);
}

/// What is said of a name that a file which could not be read may define.
fn unread(what: &str) -> (String, String) {
    (
        format!("no file that could be read has {what}, so nothing about it is checked"),
        "repair the files that could not be read first".into(),
    )
}

/// Services whose tasks run together.
pub(super) struct Scope<'a> {
    pub services: Vec<&'a Service>,
    /// `None`: no evacuation says that they do.
    pub evacuation: Option<&'a Evacuation>,
}

impl<'a> Scope<'a> {
    pub fn joins(&self, direction: Direction) -> &'a [Join] {
        self.evacuation.map_or(&[], |evacuation| evacuation.joins(direction))
    }

    /// What `$dc` stands for.
    pub fn dc(&self) -> &'a str {
        self.evacuation.map_or(effects::SYMBOLIC, |evacuation| &evacuation.datacenter.value)
    }

    pub fn datacenter(&self) -> Option<String> {
        self.evacuation.map(|evacuation| evacuation.datacenter.value.clone())
    }
}

/// The services of each evacuation, and those that are part of none.
fn scopes(runbooks: &Runbooks) -> Vec<Scope<'_>> {
    let evacuations = runbooks.evacuations.iter().map(|evacuation| Scope {
        services: evacuation
            .services
            .iter()
            .filter_map(|name| runbooks.service(&name.value))
            .collect(),
        evacuation: Some(evacuation),
    });
    let is_evacuated = |service: &Service| {
        let mut all = runbooks.evacuations.iter().flat_map(|evacuation| &evacuation.services);
        all.any(|name| name.value == service.name.value)
    };
    let rest = Scope {
        services: runbooks.services.iter().filter(|service| !is_evacuated(service)).collect(),
        evacuation: None,
    };
    evacuations.chain((!rest.services.is_empty()).then_some(rest)).collect()
}
