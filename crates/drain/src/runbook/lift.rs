//! Makes types of trees that were held against their shape.
//!
//! What did not fit was noted by then, so here nothing is said again: a value
//! that cannot be taken is left out, or is what it would be by default, and the
//! rest is still checked.

use std::collections::HashSet;

use super::problem::Placed;
use super::shape::{self, Need, Shape};
use super::spec::*;
use super::stages::{ArgumentKind, stage_shape};
use super::tree::{Node, Scalar};
use super::words;
use crate::condition::{Comparison, NoData};
use crate::plan::{Exit, KeepDrained, Limits, OnBreach, Pace};
use crate::time::Millis;

pub(crate) fn service(node: &Node) -> Option<Service> {
    let traffic = match text(node, "traffic") {
        Some("sticky") => Traffic::Sticky,
        Some("replication") => Traffic::Replication,
        Some("stateful") => Traffic::Stateful,
        _ => Traffic::Stateless,
    };
    Some(Service {
        name: placed_name(node.get("service")?)?,
        traffic,
        user_facing: node.get("user_facing").and_then(truth).unwrap_or(false),
        load: numbers(node, "load").map(|(name, load)| (name, load.value)).collect(),
        measured_load: node
            .get("measured_load")
            .and_then(|node| Some(Placed::new(node.at, scalar(node)?.text.clone()))),
        health: named(node, "health").map(|(name, node)| (name, condition(node))).collect(),
        drain: named(node, "drain").map(task).collect(),
        restore: named(node, "restore").map(task).collect(),
    })
}

fn task((name, node): (Placed<String>, &Node)) -> Task {
    let with = node.get("with");
    let pace_node = node.get("pace");
    Task {
        template: node.get("template").and_then(placed_name),
        with_at: with.map_or(name.at, |with| with.at),
        with: named(node, "with").map(|(name, node)| (name, node.clone())).collect(),
        after: references(node, "after"),
        after_weak: references(node, "after_weak"),
        pre: conditions(node, "pre"),
        post: conditions(node, "post"),
        health: node.get("health").map(|_| conditions(node, "health")),
        pace: Placed::new(pace_node.map_or(name.at, |pace| pace.at), pace(pace_node)),
        timeout: field(&shape::TASK, Some(node), "timeout", duration).unwrap_or_default(),
        priority: node.get("priority").and_then(scalar).and_then(|text| text.text.parse().ok()),
        budgets: numbers(node, "budgets").collect(),
        name,
    }
}

fn pace(node: Option<&Node>) -> Pace {
    let share = |name| field(&shape::PACE, node, name, words::share).unwrap_or(1.0);
    let by_default = |name| field(&shape::PACE, None, name, duration).unwrap_or_default();
    let span = |name| field(&shape::PACE, node, name, duration).unwrap_or_else(|| by_default(name));
    let on_breach = field(&shape::PACE, node, "on_breach", |scalar| Some(scalar.text.clone()));
    Pace {
        first: share("first"),
        step_max: share("step_max"),
        wait: span("wait"),
        wait_max: span("wait_max"),
        adaptive: field(&shape::PACE, node, "adaptive", words::truth).unwrap_or(true),
        on_breach: match on_breach.as_deref() {
            Some("back_off") => OnBreach::BackOff,
            Some("revert") => OnBreach::Revert,
            _ => OnBreach::Hold,
        },
        patience: span("patience"),
    }
}

fn conditions(node: &Node, key: &str) -> Vec<ConditionUse> {
    node.get(key).map_or(&[][..], Node::items).iter().filter_map(condition_use).collect()
}

pub(crate) fn condition_use(node: &Node) -> Option<ConditionUse> {
    if let Some(scalar) = node.scalar() {
        let name = Placed::new(node.at, scalar.text.clone());
        return words::is_reference(&name.value).then_some(ConditionUse::Named(name));
    }
    let name = text(node, "name").filter(|name| words::is_name(name)).map(str::to_owned);
    Some(ConditionUse::InPlace { name, condition: condition(node)? })
}

fn condition(node: &Node) -> Option<Condition> {
    let source = match (text(node, "query"), text(node, "gauge")) {
        (Some(query), None) => Source::Query(query.to_owned()),
        (None, Some(gauge)) => Source::Gauge(gauge.to_owned()),
        _ => return None,
    };
    let mut bounds = [
        ("below", Comparison::Below),
        ("at_most", Comparison::AtMost),
        ("above", Comparison::Above),
        ("at_least", Comparison::AtLeast),
        ("equals", Comparison::Equals),
    ]
    .into_iter()
    .filter_map(|(key, comparison)| Some((comparison, node.get(key)?)));
    let (comparison, bound) = bounds.next()?;
    Some(Condition {
        at: node.at,
        source,
        written: node.get("query").or(node.get("gauge")).and_then(scalar)?.clone(),
        comparison,
        bound: Placed::new(bound.at, scalar(bound).and_then(words::number)?),
        hold_for: field(&shape::CONDITION, Some(node), "for", duration).unwrap_or_default(),
        max_age: node.get("max_age").and_then(scalar).and_then(duration),
        no_data: text(node, "no_data").and_then(no_data).unwrap_or(NoData::Block),
        no_traffic: match text(node, "no_traffic") {
            Some("pass_on_restore") => Some(NoTraffic::PassOnRestore),
            Some(other) => no_data(other).map(NoTraffic::As),
            None => None,
        },
    })
}

fn no_data(text: &str) -> Option<NoData> {
    match text {
        "block" => Some(NoData::Block),
        "pass" => Some(NoData::Pass),
        "fail" => Some(NoData::Fail),
        _ => None,
    }
}

pub(crate) fn evacuation(node: &Node) -> Option<Evacuation> {
    let datacenter = placed_name(node.get("datacenter")?)?;
    let limits = node.get("limits");
    let limit_at =
        |key| limits.and_then(|limits| limits.get(key)).map_or(datacenter.at, |node| node.at);
    let whole = |scalar: &Scalar| scalar.text.parse().ok();
    Some(Evacuation {
        datacenters: named(node, "datacenters").map(a_datacenter).collect(),
        limits: Limits {
            serving_min: field(&shape::LIMITS, limits, "serving_min", whole).unwrap_or(1),
            drained_max: field(&shape::LIMITS, limits, "drained_max", words::share).unwrap_or(0.5),
        },
        serving_min_at: limit_at("serving_min"),
        drained_max_at: limit_at("drained_max"),
        budgets: numbers(node, "budgets").map(|(name, size)| (name, size.value)).collect(),
        services: names(node, "services"),
        scrape_interval: field(&shape::EVACUATION, Some(node), "scrape_interval", duration)
            .unwrap_or_default(),
        health: conditions(node, "health"),
        drain: joins(node, "drain"),
        restore: joins(node, "restore"),
        keep_drained: match text(node, "keep_drained") {
            Some("always") => KeepDrained::Always,
            Some("never") => KeepDrained::Never,
            _ => KeepDrained::Disaster,
        },
        datacenter,
    })
}

fn a_datacenter((name, node): (Placed<String>, &Node)) -> Datacenter {
    Datacenter {
        name,
        capacity: node.get("capacity").and_then(scalar).and_then(words::number),
        line: field(&shape::DATACENTER, Some(node), "line", words::share).unwrap_or(0.75),
    }
}

fn joins(node: &Node, key: &str) -> Vec<Join> {
    let items = node.get(key).map_or(&[][..], Node::items);
    items
        .iter()
        .filter_map(|item| {
            Some(Join {
                task: reference(item.get("task")?)?,
                after: references(item, "after"),
                after_weak: references(item, "after_weak"),
            })
        })
        .collect()
}

pub(crate) fn template(node: &Node) -> Option<Template> {
    let mut template = Template {
        name: placed_name(node.get("template")?)?,
        about: text(node, "about").unwrap_or_default().to_owned(),
        parameters: named(node, "parameters").map(parameter).collect(),
        stages: named(node, "stages").map(stage).collect(),
        undo: None,
    };
    template.undo = node.get("undo").and_then(|node| undo(&template, node)).map(Box::new);
    Some(template)
}

fn undo(of: &Template, node: &Node) -> Option<Undo> {
    Some(Undo {
        after: placed_text(node.get("after")?)?,
        if_given: node.get("if_given").and_then(placed_name),
        needs: names(node, "needs"),
        template: Template { stages: named(node, "stages").map(stage).collect(), ..of.clone() },
    })
}

fn parameter((name, node): (Placed<String>, &Node)) -> Parameter {
    let choices = node.get("choices");
    Parameter {
        name,
        kind: text(node, "type").and_then(ArgumentKind::parse),
        choices: choices
            .map_or(&[][..], Node::items)
            .iter()
            .filter_map(|item| Some(scalar(item)?.text.clone()))
            .collect(),
        choices_at: choices.map(|choices| choices.at),
        required: node.get("required").and_then(truth).unwrap_or(false),
        exact: node.get("exact").and_then(truth).unwrap_or(false),
        together_with: names(node, "together_with"),
        needs: names(node, "needs"),
        default: node.get("default").cloned(),
        about: text(node, "about").unwrap_or_default().to_owned(),
    }
}

fn stage((name, node): (Placed<String>, &Node)) -> Stage {
    let target = |key| {
        let scalar = scalar(node.get(key)?)?;
        let target = match scalar.text.as_str() {
            "exit done" => Target::Exit(Exit::Done),
            "exit failed" => Target::Exit(Exit::Failed),
            stage => Target::Stage(stage.to_owned()),
        };
        Some(Placed::new(node.get(key)?.at, target))
    };
    Stage {
        name,
        shape: text(node, "stage").and_then(stage_shape),
        with: named(node, "with").map(|(name, node)| (name, node.clone())).collect(),
        timeout: node.get("timeout").and_then(timeout),
        interruptible: node.get("interruptible").and_then(truth).unwrap_or(true),
        retry: node.get("retry").and_then(placed_text),
        done: target("done"),
        failed: target("failed"),
        late: target("late"),
    }
}

fn timeout(node: &Node) -> Option<Timeout> {
    let text = scalar(node)?.text.as_str();
    match words::whole_variable(text) {
        Some(name) => Some(Timeout::Parameter(Placed::new(node.at, name.to_owned()))),
        None => words::duration(text).map(Timeout::Fixed),
    }
}

fn names(node: &Node, key: &str) -> Vec<Placed<String>> {
    node.get(key).map_or(&[][..], Node::items).iter().filter_map(placed_name).collect()
}

fn placed_text(node: &Node) -> Option<Placed<String>> {
    Some(Placed::new(node.at, scalar(node)?.text.clone()))
}

/// A value, or what the shape says it is by default. `None` only if there is no
/// default, or what is there does not fit.
fn field<T>(
    shape: &Shape,
    node: Option<&Node>,
    name: &str,
    parse: impl Fn(&Scalar) -> Option<T>,
) -> Option<T> {
    if let Some(given) = node.and_then(|node| node.get(name)) {
        return scalar(given).and_then(parse);
    }
    let field = shape.fields.iter().find(|field| field.name == name)?;
    match field.need {
        Need::Default(default) => parse(&Scalar::of(default)),
        _ => None,
    }
}

/// The entries of a map behind a key, the first of equal ones.
fn named<'a>(node: &'a Node, key: &str) -> impl Iterator<Item = (Placed<String>, &'a Node)> {
    let entries = node.get(key).map_or(&[][..], Node::entries);
    let mut seen = HashSet::new();
    entries
        .iter()
        .filter(move |(key, _)| seen.insert(key.name.as_str()) && words::is_name(&key.name))
        .map(|(key, value)| (Placed::new(key.at, key.name.clone()), value))
}

fn numbers(node: &Node, key: &str) -> impl Iterator<Item = (Placed<String>, Placed<f64>)> {
    named(node, key).filter_map(|(name, value)| {
        let number = words::number(scalar(value)?)?;
        (number >= 0.0).then_some((name, Placed::new(value.at, number)))
    })
}

fn scalar(node: &Node) -> Option<&Scalar> {
    node.scalar().filter(|scalar| !scalar.is_null())
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key).and_then(scalar).map(|scalar| scalar.text.as_str())
}

fn truth(node: &Node) -> Option<bool> {
    scalar(node).and_then(words::truth)
}

fn duration(scalar: &Scalar) -> Option<Millis> {
    words::duration(&scalar.text)
}

fn placed_name(node: &Node) -> Option<Placed<String>> {
    let name = &scalar(node)?.text;
    words::is_name(name).then(|| Placed::new(node.at, name.clone()))
}

fn reference(node: &Node) -> Option<Placed<String>> {
    let name = &scalar(node)?.text;
    words::is_reference(name).then(|| Placed::new(node.at, name.clone()))
}

fn references(node: &Node, key: &str) -> Vec<Placed<String>> {
    node.get(key).map_or(&[][..], Node::items).iter().filter_map(reference).collect()
}
