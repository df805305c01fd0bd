//! Names that are given twice.

use std::collections::HashMap;

use super::super::Runbooks;
use super::super::problem::{Placed, Problems};

pub(super) fn check(runbooks: &Runbooks, problems: &mut Problems) {
    let services = runbooks.services.iter().map(|service| &service.name);
    check_unique("a service", services, problems);
    let templates = runbooks.templates.iter().map(|template| &template.name);
    check_unique("a template", templates, problems);
    let evacuations = runbooks.evacuations.iter().map(|evacuation| &evacuation.datacenter);
    check_unique("an evacuation of", evacuations, problems);
}

fn check_unique<'a>(
    what: &str,
    names: impl Iterator<Item = &'a Placed<String>>,
    problems: &mut Problems,
) {
    let mut seen = HashMap::new();
    for name in names {
        if let Some(first) = seen.insert(name.value.as_str(), name.at) {
            let shown = problems.show(first);
            problems.error(
                name.at,
                format!("there is {what} `{}` already, at {shown}", name.value),
                "give this one another name, or keep one of them",
            );
            seen.insert(name.value.as_str(), first);
        }
    }
}
