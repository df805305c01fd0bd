//! What files say, as types: with names still to be found and variables still
//! to be replaced, but nothing left of YAML. Everything keeps its place.

use super::problem::{Place, Placed};
use super::stages::{ArgumentKind, PARAMETERS_MAX, STAGES_MAX, StageShape};
use super::tree::{Node, Scalar};
use crate::condition::{Comparison, NoData};
use crate::plan::{Direction, Exit, KeepDrained, Limits, Pace};
use crate::time::Millis;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    Stateless,
    Sticky,
    Replication,
    Stateful,
}

#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub name: Placed<String>,
    pub traffic: Traffic,
    pub user_facing: bool,
    /// For each datacenter.
    pub load: Vec<(Placed<String>, f64)>,
    /// The query for the present load, with variables.
    pub measured_load: Option<Placed<String>>,
    /// `None`: what is there is no condition.
    pub health: Vec<(Placed<String>, Option<Condition>)>,
    pub drain: Vec<Task>,
    pub restore: Vec<Task>,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub name: Placed<String>,
    /// What did not fit its shape is `None` here and below, so that the rest can
    /// still be checked.
    pub template: Option<Placed<String>>,
    /// Where `with` stands, or the task if there is none.
    pub with_at: Place,
    pub with: Vec<(Placed<String>, Node)>,
    pub after: Vec<Placed<String>>,
    pub after_weak: Vec<Placed<String>>,
    pub pre: Vec<ConditionUse>,
    pub post: Vec<ConditionUse>,
    /// `None`: all health of the service.
    pub health: Option<Vec<ConditionUse>>,
    pub pace: Placed<Pace>,
    pub timeout: Millis,
    pub priority: Option<i32>,
    pub budgets: Vec<(Placed<String>, Placed<f64>)>,
}

/// A condition that is named, or one in place.
#[derive(Clone, Debug)]
pub(crate) enum ConditionUse {
    Named(Placed<String>),
    InPlace { name: Option<String>, condition: Condition },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub at: Place,
    pub source: Source,
    /// The query or the gauge as it stands in the file.
    pub written: Scalar,
    pub comparison: Comparison,
    pub bound: Placed<f64>,
    pub hold_for: Millis,
    /// `None`: a few scrape intervals of the evacuation.
    pub max_age: Option<Millis>,
    pub no_data: NoData,
    /// `None`: as no data.
    pub no_traffic: Option<NoTraffic>,
}

/// What it means that a query divides nothing by nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTraffic {
    As(NoData),
    /// Passes in a restore, blocks in a drain: where nothing is served, a
    /// restore is what brings traffic back.
    PassOnRestore,
}

/// With variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Query(String),
    Gauge(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Evacuation {
    pub datacenter: Placed<String>,
    pub datacenters: Vec<Datacenter>,
    pub limits: Limits,
    /// Where each limit stands; the datacenter's name if nobody wrote it.
    pub serving_min_at: Place,
    pub drained_max_at: Place,
    pub budgets: Vec<(Placed<String>, f64)>,
    pub services: Vec<Placed<String>>,
    pub scrape_interval: Millis,
    pub health: Vec<ConditionUse>,
    pub drain: Vec<Join>,
    pub restore: Vec<Join>,
    pub keep_drained: KeepDrained,
}

#[derive(Clone, Debug)]
pub(crate) struct Datacenter {
    pub name: Placed<String>,
    pub capacity: Option<f64>,
    pub line: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub task: Placed<String>,
    pub after: Vec<Placed<String>>,
    pub after_weak: Vec<Placed<String>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub name: Placed<String>,
    pub about: String,
    pub parameters: Vec<Parameter>,
    pub stages: Vec<Stage>,
    pub undo: Option<Box<Undo>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub after: Placed<String>,
    pub if_given: Option<Placed<String>>,
    pub needs: Vec<Placed<String>>,
    /// Its stages, as a template with the parameters of the one that they undo.
    pub template: Template,
}

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub name: Placed<String>,
    pub kind: Option<ArgumentKind>,
    pub choices: Vec<String>,
    pub choices_at: Option<Place>,
    pub required: bool,
    /// A condition that has no tolerance.
    pub exact: bool,
    /// Other parameters, one of which must be given with it.
    pub together_with: Vec<Placed<String>>,
    /// Other parameters, all of which must be given with it.
    pub needs: Vec<Placed<String>>,
    pub default: Option<Node>,
    pub about: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub name: Placed<String>,
    pub shape: Option<&'static StageShape>,
    pub with: Vec<(Placed<String>, Node)>,
    pub timeout: Option<Timeout>,
    pub interruptible: bool,
    pub retry: Option<Placed<String>>,
    pub done: Option<Placed<Target>>,
    pub failed: Option<Placed<Target>>,
    pub late: Option<Placed<Target>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Timeout {
    Fixed(Millis),
    /// The name of a parameter.
    Parameter(Placed<String>),
}

/// Where an outcome leads, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Stage(String),
    Exit(Exit),
}

impl Service {
    pub fn tasks(&self, direction: Direction) -> &[Task] {
        match direction {
            Direction::Drain => &self.drain,
            Direction::Restore => &self.restore,
        }
    }
}

impl Evacuation {
    pub fn joins(&self, direction: Direction) -> &[Join] {
        match direction {
            Direction::Drain => &self.drain,
            Direction::Restore => &self.restore,
        }
    }
}

impl Template {
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name.value == name)
    }

    /// Has more than is looked at.
    pub fn is_too_large(&self) -> bool {
        let undo = self.undo.as_ref().map_or(0, |undo| undo.template.stages.len());
        self.stages.len().max(undo) > STAGES_MAX || self.parameters.len() > PARAMETERS_MAX
    }
}
