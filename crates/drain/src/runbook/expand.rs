//! A task and its template, put together: stages with every input in place.
//!
//! The check looks at what comes out, with `$dc` left as it is, to see which
//! knobs a task turns; a plan is made from the same, with a datacenter for it.

use std::collections::BTreeMap;

use super::arguments::{Argument, parse};
use super::problem::Placed;
use super::spec::{ConditionUse, Parameter, Stage, Target, Task, Template, Timeout};
use super::stages::{ArgumentKind, Input};
use super::tree::{Node, Tree};
use super::words::{self, Piece};
use crate::plan::{Act, Exit, Next, StageId};
use crate::time::Millis;
use crate::value::Value;

#[derive(Clone, Debug)]
pub(crate) struct ExpandedStage {
    pub name: String,
    pub work: Work,
    pub timeout: Option<Millis>,
    pub done: Next,
    pub failed: Next,
    pub late: Next,
    pub retry: StageId,
    pub is_interruptible: bool,
    /// The condition that it names has no tolerance.
    pub is_exact: bool,
}

/// How a task is undone, if that takes more than putting its knobs back.
#[derive(Clone, Debug)]
pub(crate) struct ExpandedUndo {
    /// Its place among the stages of the task.
    pub after: StageId,
    /// Parameters that it needs and the task does not give.
    pub missing: Vec<String>,
    pub stages: Vec<ExpandedStage>,
}

/// What a stage does, with names for what a plan numbers.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Shift {
        knob: String,
        to: Aim,
        returns: bool,
    },
    Set {
        knob: String,
        to: Aim,
        /// If it closes a fence: the primary that this keeps from taking writes.
        of: Option<Aim>,
        returns: bool,
    },
    PutBack {
        knob: String,
    },
    Verify {
        knob: String,
        to: Value,
    },
    Govern {
        knob: String,
        budget: String,
    },
    Act {
        act: Act,
        changes: Vec<String>,
    },
    Await(ConditionUse),
    /// A condition of which only the source counts: nothing may be missing.
    AwaitExactly(ConditionUse),
    Check(ConditionUse),
    TimedWait(Millis),
    Barrier(String),
    Approve {
        people: u32,
        question: String,
    },
    Say {
        channel: Option<String>,
        text: String,
    },
}

/// Where a knob is to go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Aim {
    Value(Value),
    Original,
}

/// The stages of a task. `None` if something of it does not fit, which the
/// check says.
pub(crate) fn expand(
    template: &Template,
    task: &Task,
    service: &str,
    datacenter: &str,
) -> Option<Vec<ExpandedStage>> {
    if template.is_too_large() {
        return None;
    }
    let outer = |name: &str| match name {
        "dc" => Some(datacenter.to_owned()),
        "service" => Some(service.to_owned()),
        _ => None,
    };
    let mut arguments = BTreeMap::new();
    for parameter in &template.parameters {
        if let Some(argument) = argument(parameter, task, &outer)? {
            arguments.insert(parameter.name.value.as_str(), argument);
        }
    }
    let filler = Filler { template, arguments: &arguments, outer: &outer };
    if template.stages.is_empty() {
        return None;
    }
    let mut works = Vec::new();
    for stage in &template.stages {
        works.push(filler.work(stage)?);
    }
    connect(&filler, works)
}

/// How a task is undone; `Some(None)` if it is by putting its knobs back.
pub(crate) fn expand_undo(
    template: &Template,
    task: &Task,
    service: &str,
    datacenter: &str,
) -> Option<Option<ExpandedUndo>> {
    let is_given = |name: &str| {
        let is_named = |(own, _): &(Placed<String>, Node)| own.value == name;
        let has_default = || template.parameter(name).is_some_and(|own| own.default.is_some());
        task.with.iter().any(is_named) || has_default()
    };
    let Some(undo) = &template.undo else { return Some(None) };
    if undo.if_given.as_ref().is_some_and(|name| !is_given(&name.value)) {
        return Some(None);
    }
    let forward = expand(template, task, service, datacenter)?;
    let after = forward.iter().position(|stage| stage.name == undo.after.value);
    // A stage that is passed over needs no undoing.
    let Some(after) = after else { return Some(None) };
    let needs = undo.needs.iter().map(|name| name.value.clone());
    let missing: Vec<String> = needs.filter(|name| !is_given(name)).collect();
    let stages = match missing.is_empty() {
        true => expand(&undo.template, task, service, datacenter)?,
        false => Vec::new(),
    };
    Some(Some(ExpandedUndo { after: StageId(after as u32), missing, stages }))
}

/// The value of a parameter: what the task gives, or the default.
fn argument(
    parameter: &Parameter,
    task: &Task,
    outer: &dyn Fn(&str) -> Option<String>,
) -> Option<Option<Argument>> {
    let given = task.with.iter().find(|(name, _)| name.value == parameter.name.value);
    let Some(node) = given.map(|(_, node)| node).or(parameter.default.as_ref()) else {
        return (!parameter.required).then_some(None);
    };
    parse(parameter.kind?, &parameter.choices, node, outer).ok().map(Some)
}

struct Filler<'a> {
    template: &'a Template,
    arguments: &'a BTreeMap<&'a str, Argument>,
    outer: &'a dyn Fn(&str) -> Option<String>,
}

/// What became of an input.
enum Filled {
    With(Argument),
    /// It names a parameter that was not given.
    Absent,
}

type Inputs = BTreeMap<&'static str, Argument>;

impl Filler<'_> {
    /// What the stage does; `Some(None)` if it is passed over, because an input
    /// that it needs is a parameter that the task does not give.
    fn work(&self, stage: &Stage) -> Option<Option<Work>> {
        let shape = stage.shape?;
        let mut inputs = Inputs::new();
        let has_instead = |input: &Input| input.name == "condition" && self.has_exactly(stage);
        for input in shape.inputs {
            let given = stage.with.iter().find(|(name, _)| name.value == input.name);
            match given.map(|(_, node)| self.fill(input, node)) {
                Some(filled) => match filled? {
                    Filled::With(argument) => {
                        inputs.insert(input.name, argument);
                    }
                    Filled::Absent if input.required && !has_instead(input) => return Some(None),
                    Filled::Absent => {}
                },
                None if input.required => return None,
                None => {}
            }
        }
        work_of(shape.name, inputs).map(Some)
    }

    /// Whether what a stage names is to hold without tolerance: by its parameter, or
    /// because the task cannot be interrupted there.
    fn is_exact(&self, stage: &Stage) -> bool {
        let used = stage.with.iter().find(|(name, _)| name.value == "condition");
        let variable = used.and_then(|(_, node)| words::whole_variable(&node.scalar()?.text));
        let parameter = variable.and_then(|name| self.template.parameter(name));
        !stage.interruptible || parameter.is_some_and(|parameter| parameter.exact)
    }

    /// Whether what a stage waits for is what another condition is about, exactly.
    fn has_exactly(&self, stage: &Stage) -> bool {
        let exactly = stage.with.iter().find(|(name, _)| name.value == "or_exactly");
        exactly.is_some_and(|(_, node)| {
            node.scalar().is_none_or(|scalar| !self.is_absent(&scalar.text))
        })
    }

    /// After which time a stage is late; `None` if what it names is no duration.
    fn timeout(&self, stage: &Stage) -> Option<Option<Millis>> {
        match &stage.timeout {
            None => Some(None),
            Some(Timeout::Fixed(span)) => Some(Some(*span)),
            Some(Timeout::Parameter(name)) => match self.arguments.get(name.value.as_str()) {
                Some(Argument::Duration(span)) => Some(Some(*span)),
                Some(_) => None,
                None => Some(None),
            },
        }
    }

    fn fill(&self, input: &Input, node: &Node) -> Option<Filled> {
        if let Some(text) = node.scalar().map(|scalar| scalar.text.as_str()) {
            if let Some(name) = words::whole_variable(text)
                && self.template.parameter(name).is_some()
            {
                return Some(match self.arguments.get(name) {
                    Some(argument) => Filled::With(coerce(argument, input.kind)?),
                    None => Filled::Absent,
                });
            }
            if self.is_absent(text) {
                return Some(Filled::Absent);
            }
        }
        let node = self.without_absent(node);
        let variables = |name: &str| {
            self.arguments.get(name).map_or_else(|| (self.outer)(name), Argument::text)
        };
        let choices: Vec<_> = input.choices.iter().map(|choice| (*choice).to_owned()).collect();
        parse(input.kind, &choices, &node, &variables).ok().map(Filled::With)
    }

    /// Whether a text names a parameter that was not given.
    fn is_absent(&self, text: &str) -> bool {
        words::pieces(text).into_iter().any(|(_, _, piece)| match piece {
            Piece::Variable(name) => {
                self.template.parameter(name).is_some() && !self.arguments.contains_key(name)
            }
            _ => false,
        })
    }

    /// A map without the entries whose parameters were not given.
    fn without_absent(&self, node: &Node) -> Node {
        let mut node = node.clone();
        if let Tree::Map(entries) = &mut node.tree {
            entries.retain(|(_, value)| {
                !value.scalar().is_some_and(|scalar| self.is_absent(&scalar.text))
            });
        }
        node
    }
}

/// A parameter where an input of another kind takes it.
fn coerce(argument: &Argument, kind: ArgumentKind) -> Option<Argument> {
    match kind {
        ArgumentKind::Text => argument.text().map(Argument::Text),
        _ => Some(argument.clone()),
    }
}

fn work_of(stage: &str, mut inputs: Inputs) -> Option<Work> {
    let text = |inputs: &Inputs, name: &str| inputs.get(name).and_then(Argument::text);
    let returns = text(&inputs, "returns").as_deref() == Some("by-itself");
    let knob = |inputs: &Inputs| text(inputs, "knob");
    let aim_of = |inputs: &Inputs, name: &str| match inputs.get(name)? {
        Argument::Original => Some(Aim::Original),
        other => other.value().map(Aim::Value),
    };
    let aim = |inputs: &Inputs| aim_of(inputs, "to");
    Some(match stage {
        "Shift" => Work::Shift { knob: knob(&inputs)?, to: aim(&inputs)?, returns },
        "Set" => {
            let (to, of) = (aim(&inputs)?, aim_of(&inputs, "of"));
            Work::Set { knob: knob(&inputs)?, to, of, returns }
        }
        "PutBack" => Work::PutBack { knob: knob(&inputs)? },
        "Verify" => match aim(&inputs)? {
            Aim::Value(to) => Work::Verify { knob: knob(&inputs)?, to },
            Aim::Original => return None,
        },
        "Govern" => Work::Govern { knob: knob(&inputs)?, budget: text(&inputs, "budget")? },
        "Act" => Work::Act {
            act: Act {
                driver: text(&inputs, "driver")?,
                action: text(&inputs, "action")?,
                arguments: match inputs.remove("arguments") {
                    Some(Argument::Map(map)) => map,
                    _ => BTreeMap::new(),
                },
            },
            changes: match inputs.remove("changes") {
                Some(Argument::Knobs(knobs)) => knobs,
                _ => Vec::new(),
            },
        },
        "Await" if !inputs.contains_key("condition") => match inputs.remove("or_exactly")? {
            Argument::Condition(condition) => Work::AwaitExactly(condition),
            _ => return None,
        },
        "Await" | "Check" => match inputs.remove("condition")? {
            Argument::Condition(condition) if stage == "Await" => Work::Await(condition),
            Argument::Condition(condition) => Work::Check(condition),
            _ => return None,
        },
        "TimedWait" => match inputs.remove("span")? {
            Argument::Duration(span) => Work::TimedWait(span),
            _ => return None,
        },
        "Barrier" => Work::Barrier(text(&inputs, "name")?),
        "Approve" => Work::Approve {
            people: match inputs.get("people") {
                Some(Argument::Number(people)) => *people as u32,
                _ => 1,
            },
            question: text(&inputs, "question")?,
        },
        "ChangeLog" => Work::Say { channel: None, text: text(&inputs, "text")? },
        "Notify" => {
            Work::Say { channel: Some(text(&inputs, "channel")?), text: text(&inputs, "text")? }
        }
        _ => return None,
    })
}

/// Leads every outcome to a stage that is there. A stage that is passed over
/// is as if it were done at once.
fn connect(filler: &Filler<'_>, works: Vec<Option<Work>>) -> Option<Vec<ExpandedStage>> {
    let template = filler.template;
    let mut order: Vec<usize> = (0..works.len()).filter(|at| works[*at].is_some()).collect();
    // The first stage that is there comes first, wherever it stands.
    let Ok(first) = land(template, &works, 0) else { return Some(Vec::new()) };
    order.retain(|at| *at != first);
    order.insert(0, first);
    let number = |at: usize| order.iter().position(|other| *other == at).map(|at| at as u32);
    let lead = |target: &Target| {
        Some(match target {
            Target::Exit(exit) => Next::Exit(*exit),
            Target::Stage(name) => match land(template, &works, position(template, name)?) {
                Ok(at) => Next::Stage(StageId(number(at)?)),
                Err(exit) => Next::Exit(exit),
            },
        })
    };
    let mut stages = Vec::new();
    for at in &order {
        let stage = &template.stages[*at];
        let failed = Target::Exit(Exit::Failed);
        stages.push(ExpandedStage {
            name: stage.name.value.clone(),
            work: works[*at].clone()?,
            timeout: filler.timeout(stage)?,
            is_interruptible: stage.interruptible,
            is_exact: filler.is_exact(stage),
            retry: match &stage.retry {
                Some(name) => match lead(&Target::Stage(name.value.clone()))? {
                    Next::Stage(stage) => stage,
                    Next::Exit(_) => StageId(number(*at)?),
                },
                None => StageId(number(*at)?),
            },
            done: lead(&done_of(template, *at))?,
            failed: lead(stage.failed.as_ref().map_or(&failed, |next| &next.value))?,
            late: lead(stage.late.as_ref().map_or(&failed, |next| &next.value))?,
        });
    }
    Some(stages)
}

/// Where a stage leads when it is done: the next one unless told.
pub(crate) fn done_of(template: &Template, at: usize) -> Target {
    match (&template.stages[at].done, template.stages.get(at + 1)) {
        (Some(done), _) => done.value.clone(),
        (None, Some(next)) => Target::Stage(next.name.value.clone()),
        (None, None) => Target::Exit(Exit::Done),
    }
}

/// The stage where a way that leads to this one ends, past those that are
/// passed over; or how it leaves the template.
fn land(template: &Template, works: &[Option<Work>], mut at: usize) -> Result<usize, Exit> {
    // A way that only passes over stages cannot be longer than all of them.
    for _ in 0..works.len() {
        if works[at].is_some() {
            return Ok(at);
        }
        match done_of(template, at) {
            Target::Exit(exit) => return Err(exit),
            Target::Stage(name) => at = position(template, &name).ok_or(Exit::Failed)?,
        }
    }
    Err(Exit::Failed)
}

pub(crate) fn position(template: &Template, stage: &str) -> Option<usize> {
    template.stages.iter().position(|other| other.name.value == stage)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::super::Library;
    use super::super::problem::Placed;
    use super::*;

    fn shown(target: &Target) -> String {
        match target {
            Target::Stage(name) => name.clone(),
            Target::Exit(exit) => format!("exit {}", format!("{exit:?}").to_lowercase()),
        }
    }

    /// Every machine that comes with Pharos, with every outcome of every stage.
    #[test]
    fn every_stage_and_outcome_of_every_built_in_template() {
        let library = Library::new(Vec::new());
        let mut table = String::new();
        let templates = library.runbooks.templates.iter().flat_map(|template| {
            let undo = template.undo.iter().map(|undo| {
                (format!("{}, undo of {}", template.name.value, undo.after.value), &undo.template)
            });
            std::iter::once((template.name.value.clone(), template)).chain(undo)
        });
        for (name, template) in templates {
            writeln!(table, "{name}").unwrap();
            for (at, stage) in template.stages.iter().enumerate() {
                let failed = Target::Exit(Exit::Failed);
                let otherwise = |next: &Option<Placed<Target>>| {
                    shown(next.as_ref().map_or(&failed, |next| &next.value))
                };
                let late = match stage.timeout {
                    Some(_) => otherwise(&stage.late),
                    None => "-".to_owned(),
                };
                let fenced = if stage.interruptible { "" } else { "  not interruptible" };
                writeln!(
                    table,
                    "  {:<16} {:<10} done: {:<16} failed: {:<12} late: {late}{fenced}",
                    stage.name.value,
                    stage.shape.map_or("", |shape| shape.name),
                    shown(&done_of(template, at)),
                    otherwise(&stage.failed),
                )
                .unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }
}
