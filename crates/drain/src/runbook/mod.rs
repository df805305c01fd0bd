//! From files to a plan.
//!
//! Files are read together, because they name each other: services with their
//! tasks, evacuations that join them, and templates that tasks are made from.
//! Whatever is wrong with any of them is found at once. A plan comes only out
//! of files without errors.

mod arguments;
mod check;
mod expand;
mod lift;
mod problem;
pub mod promql;
mod schema;
mod shape;
mod spec;
mod stages;
mod tree;
mod walk;
mod words;

use std::collections::{BTreeMap, BTreeSet};

pub use problem::{PROBLEMS_PER_FILE_MAX, Problem, Severity};

pub(crate) use arguments::ORIGINAL_MARK;
pub(crate) use check::closed_fences;
pub(crate) use expand::{Aim, ExpandedStage, ExpandedUndo, Work, expand, expand_undo};
pub(crate) use problem::{Place, Problems};
pub(crate) use spec::{
    Condition, ConditionUse, Evacuation, NoTraffic, Service, Source, Task, Traffic,
};
pub(crate) use words::{did_you_mean, knob, substitute};

use crate::plan::{self, Direction, Expected, Plan};
use crate::value::Value;
use shape::FORMATS;
use spec::Template;
use tree::{Node, Tree};
use walk::Walk;

/// Templates that everybody has.
static BUILT_IN: [(&str, &str); 13] = [
    ("TrafficShift", include_str!("templates/traffic_shift.yaml")),
    ("ShardShift", include_str!("templates/shard_shift.yaml")),
    ("JobUpdate", include_str!("templates/job_update.yaml")),
    ("ConfigChange", include_str!("templates/config_change.yaml")),
    ("SessionDrain", include_str!("templates/session_drain.yaml")),
    ("ReplicationControl", include_str!("templates/replication_control.yaml")),
    ("Promote", include_str!("templates/promote.yaml")),
    ("Exec", include_str!("templates/exec.yaml")),
    ("Approval", include_str!("templates/approval.yaml")),
    ("Notify", include_str!("templates/notify.yaml")),
    ("Wait", include_str!("templates/wait.yaml")),
    ("Check", include_str!("templates/check.yaml")),
    ("Isolate", include_str!("templates/isolate.yaml")),
];

/// Runbooks that were read together.
#[derive(Debug)]
pub struct Library {
    runbooks: Runbooks,
    files: Vec<String>,
    problems: Vec<Problem>,
    left_out: Vec<Problem>,
}

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct Runbooks {
    pub services: Vec<Service>,
    pub evacuations: Vec<Evacuation>,
    pub templates: Vec<Template>,
    /// A file could not be read at all: nobody knows which names it defines.
    pub incomplete: bool,
}

impl Runbooks {
    /// Whether everybody has a template. Those are read before all others.
    fn is_built_in(&self, template: &Template) -> bool {
        (template.name.at.file as usize) < BUILT_IN.len()
    }
}

impl Library {
    /// Reads and checks files, each given as its name and its text.
    pub fn new(files: Vec<(String, String)>) -> Library {
        let mut problems = Problems::default();
        let mut runbooks = Runbooks::default();
        for (name, text) in BUILT_IN {
            runbooks.read(&format!("built-in {name}"), text, &mut problems);
        }
        for (name, text) in &files {
            runbooks.read(name, text, &mut problems);
        }
        check::check(&runbooks, &mut problems);
        let names = problems.files().to_vec();
        Library { runbooks, files: names, problems: problems.into_sorted(), left_out: Vec::new() }
    }

    /// The same for a restore of one datacenter: files with errors that have nothing
    /// to do with it are left out. What is wrong with the runbooks of others must not
    /// stand in the way back.
    pub fn for_restore(mut files: Vec<(String, String)>, datacenter: &str) -> Library {
        let mut left_out = Vec::new();
        loop {
            let mut library = Library::new(files.clone());
            let needed = library.files_of(datacenter);
            let is_foreign = |problem: &&Problem| {
                problem.severity == Severity::Error && !needed.contains(problem.file.as_str())
            };
            let foreign: Vec<Problem> =
                library.problems.iter().filter(is_foreign).cloned().collect();
            let count = files.len();
            files.retain(|(name, _)| !foreign.iter().any(|problem| problem.file == *name));
            if needed.is_empty() || files.len() == count {
                library.left_out = left_out;
                return library.without_others(files, datacenter);
            }
            left_out.extend(foreign);
        }
    }

    /// The same without the evacuations of other datacenters, if they alone make errors of
    /// what a restore needs: an evacuation that forgot this datacenter is no reason to leave
    /// it drained.
    fn without_others(self, mut files: Vec<(String, String)>, datacenter: &str) -> Library {
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        if !self.problems.iter().any(|problem| is_error(&problem)) {
            return self;
        }
        let needed = self.files_of(datacenter);
        if needed.is_empty() {
            return self;
        }
        let others = self.runbooks.evacuations.iter();
        let others = others.filter(|own| own.datacenter.value != datacenter);
        let others = others.filter_map(|own| self.files.get(own.datacenter.at.file as usize));
        let others: BTreeSet<&String> = others.collect();
        files.retain(|(name, _)| needed.contains(name.as_str()) || !others.contains(name));
        let mut alone = Library::new(files);
        if alone.problems.iter().any(|problem| is_error(&problem)) {
            return self;
        }
        let errors = self.problems.iter().filter(is_error).cloned();
        alone.left_out = self.left_out.iter().cloned().chain(errors).collect();
        alone
    }

    /// The errors of files that were left out.
    pub fn left_out(&self) -> &[Problem] {
        &self.left_out
    }

    /// The files with the evacuation of a datacenter and with its services.
    fn files_of(&self, datacenter: &str) -> BTreeSet<&str> {
        let runbooks = &self.runbooks;
        let evacuations =
            runbooks.evacuations.iter().filter(|own| own.datacenter.value == datacenter);
        let of = |own: &Evacuation| {
            let services = own.services.iter();
            let named = services.flat_map(|name| {
                runbooks.services.iter().filter(|service| service.name.value == name.value)
            });
            let places = named.map(|service| service.name.at);
            places.chain([own.datacenter.at]).collect::<Vec<_>>()
        };
        let places = evacuations.flat_map(of);
        places.filter_map(|at| self.files.get(at.file as usize)).map(String::as_str).collect()
    }

    /// Everything that is wrong, in the order of the files and of the places in
    /// them.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether a plan can be made: warnings do not prevent it.
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity < Severity::Error)
    }

    /// The datacenters that there is an evacuation for.
    pub fn evacuations(&self) -> impl Iterator<Item = &str> {
        self.runbooks.evacuations.iter().map(|evacuation| evacuation.datacenter.value.as_str())
    }

    /// The JSON Schema of runbooks, for editors.
    pub fn schema() -> serde_json::Value {
        let built_in = Library::new(Vec::new());
        let templates: Vec<_> = built_in.runbooks.templates.iter().collect();
        schema::schema(&templates)
    }

    /// What is to be done to drain or to restore a datacenter. `expectations`
    /// say what earlier runs knew of tasks, by their names; `originals` where
    /// knobs stood before the drain, by theirs.
    pub fn plan(
        &self,
        datacenter: &str,
        direction: Direction,
        expectations: &BTreeMap<String, Expected>,
        originals: &BTreeMap<String, Value>,
    ) -> Result<Plan, Vec<Problem>> {
        if !self.is_sound() {
            return Err(self.problems.clone());
        }
        let mut problems = Problems::of_files(&self.files);
        let given = plan::Given { datacenter, direction, expectations, originals };
        plan::compile(&self.runbooks, &given, &mut problems).ok_or_else(|| problems.into_sorted())
    }
}

impl Runbooks {
    fn read(&mut self, name: &str, text: &str, problems: &mut Problems) {
        let file = problems.open(name);
        let Some(node) = tree::read(text, file, problems) else {
            self.incomplete = true;
            return;
        };
        let Some(format) = format_of(&node, problems) else {
            self.incomplete = true;
            return;
        };
        let (_, shape) = FORMATS[format];
        let variables = variables_of(format, &node);
        Walk { problems, variables }.record(shape, &node);
        let known = match format {
            0 => lift::service(&node).map(|service| self.services.push(service)),
            1 => lift::evacuation(&node).map(|evacuation| self.evacuations.push(evacuation)),
            _ => lift::template(&node).map(|template| self.templates.push(template)),
        };
        if known.is_none() {
            self.incomplete = true;
            problems.warning(
                node.at,
                "the file has no name that can be used, so it is not checked with the others",
                "repair the name first",
            );
        }
    }

    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name.value == name)
    }

    pub fn template(&self, name: &str) -> Option<&Template> {
        self.templates.iter().find(|template| template.name.value == name)
    }
}

/// Which of the formats a file is in.
fn format_of(node: &Node, problems: &mut Problems) -> Option<usize> {
    let names = FORMATS.map(|(name, _)| name);
    let Tree::Map(_) = &node.tree else {
        problems.error(
            node.at,
            format!("the file is {}", node.describe()),
            "accepted: a map that begins with `pharos:`",
        );
        return None;
    };
    let Some(value) = node.get("pharos") else {
        problems.error(
            node.at,
            "the file does not say what it is",
            "begin it with one of `pharos: service/v1`, `pharos: evacuation/v1`, \
             `pharos: template/v1`",
        );
        return None;
    };
    let written = value.scalar().map_or("", |scalar| scalar.text.as_str());
    let format = names.iter().position(|name| *name == written);
    if format.is_none() {
        problems.error(
            value.at,
            format!("`pharos` is {}", value.describe()),
            words::did_you_mean(written, names),
        );
    }
    format
}

/// What texts of such a file can refer to.
fn variables_of(format: usize, node: &Node) -> Vec<String> {
    let mut variables = vec!["dc".to_owned()];
    if format != 1 {
        variables.push("service".into());
    }
    if format == 2
        && let Some(parameters) = node.get("parameters")
    {
        variables.extend(parameters.entries().iter().map(|(key, _)| key.name.clone()));
    }
    variables
}
