//! Values for parameters of templates and for inputs of stages.

use std::collections::BTreeMap;

use super::lift;
use super::spec::{ConditionUse, Source};
use super::stages::ArgumentKind;
use super::tree::{Node, Scalar, Tree};
use super::words;
use crate::time::Millis;
use crate::value::Value;

/// A value of some kind, with its variables replaced.
#[derive(Clone, Debug)]
pub(crate) enum Argument {
    Text(String),
    Number(f64),
    /// Where a knob stood before the drain.
    Original,
    Knobs(Vec<String>),
    Duration(Millis),
    Condition(ConditionUse),
    Map(BTreeMap<String, String>),
}

/// What variables stand for.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The word for where a knob stood before the drain.
const ORIGINAL: &str = "original";

/// Stands for that value within a text until the plan knows it: no text that a
/// person writes has it.
pub(crate) const ORIGINAL_MARK: &str = "\u{f8ff}original\u{f8ff}";

/// More people than that are not asked.
pub(crate) const COUNT_MAX: f64 = 100.0;

/// Takes a value of this kind; if it does not fit, says what would.
pub(crate) fn parse(
    kind: ArgumentKind,
    choices: &[String],
    node: &Node,
    variables: Variables<'_>,
) -> Result<Argument, String> {
    let fits = match &node.tree {
        Tree::Scalar(scalar) if scalar.is_null() => None,
        Tree::Scalar(scalar) => parse_scalar(kind, choices, scalar, node, variables),
        Tree::List(items) if kind == ArgumentKind::Knobs => items
            .iter()
            .map(|item| knob(item.scalar()?, variables))
            .collect::<Option<Vec<_>>>()
            .map(Argument::Knobs),
        Tree::Map(_) if kind == ArgumentKind::Arguments => {
            let texts = node.entries().iter().map(|(key, value)| {
                let text = value.scalar().filter(|scalar| !scalar.is_null())?;
                Some((key.name.clone(), words::substitute(&text.text, variables)))
            });
            texts.collect::<Option<_>>().map(Argument::Map)
        }
        Tree::Map(_) if kind == ArgumentKind::Condition => condition(node, variables),
        _ => None,
    };
    fits.ok_or_else(|| accepted(kind, choices))
}

fn parse_scalar(
    kind: ArgumentKind,
    choices: &[String],
    scalar: &Scalar,
    node: &Node,
    variables: Variables<'_>,
) -> Option<Argument> {
    let text = || words::substitute(&scalar.text, variables);
    let number = || words::number(scalar).map(Argument::Number);
    let share = || words::share(scalar).map(Argument::Number);
    let original = || (scalar.text == ORIGINAL).then_some(Argument::Original);
    match kind {
        ArgumentKind::Knob | ArgumentKind::Knobs => {
            knob(scalar, variables).map(|knob| Argument::Knobs(vec![knob]))
        }
        ArgumentKind::Share => share(),
        ArgumentKind::Number => number(),
        ArgumentKind::Count => {
            let count: f64 = scalar.text.parse::<u32>().ok()?.into();
            (scalar.plain && (1.0..=COUNT_MAX).contains(&count)).then_some(Argument::Number(count))
        }
        ArgumentKind::Text => Some(Argument::Text(text())),
        ArgumentKind::Duration => words::duration(&scalar.text).map(Argument::Duration),
        ArgumentKind::Condition => condition(node, variables),
        ArgumentKind::Budget => {
            words::is_name(&scalar.text).then(|| Argument::Text(scalar.text.clone()))
        }
        ArgumentKind::Choice => {
            let text = text();
            choices.contains(&text).then_some(Argument::Text(text))
        }
        ArgumentKind::Goal => original().or_else(share).or_else(number),
        ArgumentKind::Setting => {
            original().or_else(share).or_else(number).or_else(|| Some(Argument::Text(text())))
        }
        ArgumentKind::Arguments => None,
    }
}

fn knob(scalar: &Scalar, variables: Variables<'_>) -> Option<String> {
    let text = words::substitute(&scalar.text, variables);
    words::knob(&text).is_some().then_some(text)
}

fn condition(node: &Node, variables: Variables<'_>) -> Option<Argument> {
    let mut given = lift::condition_use(node)?;
    if let ConditionUse::InPlace { condition, .. } = &mut given {
        condition.source = match &condition.source {
            Source::Query(query) => Source::Query(words::substitute(query, variables)),
            Source::Gauge(gauge) => Source::Gauge(words::substitute(gauge, variables)),
        };
    }
    Some(Argument::Condition(given))
}

/// What a kind accepts, for people.
pub(crate) fn accepted(kind: ArgumentKind, choices: &[String]) -> String {
    let accepted = match kind {
        ArgumentKind::Knob => words::KNOB_RULE,
        ArgumentKind::Knobs => "a knob such as `edge:web/$dc`, or a list of them",
        ArgumentKind::Share => words::SHARE_RULE,
        ArgumentKind::Number => "a number",
        ArgumentKind::Count => "a whole number from 1 to 100",
        ArgumentKind::Text => "a text",
        ArgumentKind::Duration => words::DURATION_RULE,
        ArgumentKind::Condition => "the name of a condition, or a condition in place",
        ArgumentKind::Budget => "the name of a budget",
        ArgumentKind::Choice => {
            let choices: Vec<_> = choices.iter().map(|choice| format!("`{choice}`")).collect();
            return format!("accepted: {}", choices.join(", "));
        }
        ArgumentKind::Goal => "a share such as `5%`, a number, or `original`",
        ArgumentKind::Setting => "a share such as `5%`, a number, a text, or `original`",
        ArgumentKind::Arguments => "a map of names, each with a text",
    };
    format!("accepted: {accepted}")
}

impl Argument {
    /// As it stands within a text.
    pub fn text(&self) -> Option<String> {
        match self {
            Argument::Text(text) => Some(text.clone()),
            Argument::Number(number) => Some(number.to_string()),
            Argument::Original => Some(ORIGINAL_MARK.to_owned()),
            Argument::Knobs(knobs) => Some(knobs.join(",")),
            Argument::Duration(span) => Some(span.to_string()),
            Argument::Condition(_) | Argument::Map(_) => None,
        }
    }

    pub fn value(&self) -> Option<Value> {
        match self {
            Argument::Text(text) => Some(Value::Text(text.clone())),
            Argument::Number(number) => Some(Value::Number(*number)),
            _ => None,
        }
    }
}
