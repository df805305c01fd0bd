//! Operators between numbers and vectors.

use std::collections::{BTreeMap, BTreeSet};

use super::eval::{distinct, grouped};
use super::expr::{Binary, Grouping, Operator};
use super::{Element, Outcome};
use crate::series::{Labels, NAME};

pub fn join(binary: &Binary, left: Outcome, right: Outcome) -> Result<Outcome, String> {
    let apply = |left, right| binary.operator.apply(left, right);
    Ok(match (left, right) {
        (Outcome::Number(left), Outcome::Number(right)) => Outcome::Number(apply(left, right)),
        (Outcome::Vector(left), Outcome::Number(right)) => {
            Outcome::Vector(against(binary, left, |value| (value, right))?)
        }
        (Outcome::Number(left), Outcome::Vector(right)) => {
            Outcome::Vector(against(binary, right, |value| (left, value))?)
        }
        (Outcome::Vector(left), Outcome::Vector(right)) => {
            Outcome::Vector(between(binary, left, right)?)
        }
    })
}

/// Whether the result is of another metric than its operands.
fn is_renamed(binary: &Binary) -> bool {
    !binary.operator.is_comparison() || binary.is_bool
}

/// A vector against a number; `sides` puts them on their sides.
fn against(
    binary: &Binary,
    elements: Vec<Element>,
    sides: impl Fn(f64) -> (f64, f64),
) -> Result<Vec<Element>, String> {
    let operator = binary.operator;
    if !is_renamed(binary) {
        let holds = |element: &Element| {
            let (left, right) = sides(element.value);
            operator.holds(left, right)
        };
        return Ok(elements.into_iter().filter(holds).collect());
    }
    let compute = |value| {
        let (left, right) = sides(value);
        operator.apply(left, right)
    };
    distinct(super::eval::unnamed(elements, compute))
}

/// Two vectors, element by element with the same labels.
fn between(
    binary: &Binary,
    left: Vec<Element>,
    right: Vec<Element>,
) -> Result<Vec<Element>, String> {
    if binary.operator.is_set() {
        return distinct(set(binary, left, right));
    }
    if left.is_empty() || right.is_empty() {
        return Ok(Vec::new());
    }
    let mut others: BTreeMap<Labels, f64> = BTreeMap::new();
    for element in right {
        let key = grouped(&element.labels, &binary.matching);
        if others.contains_key(&key) {
            return Err(format!("several series on the right side match {key}"));
        }
        others.insert(key, element.value);
    }
    let (mut seen, mut result) = (BTreeSet::new(), Vec::new());
    for element in left {
        let key = grouped(&element.labels, &binary.matching);
        let Some(other) = others.get(&key) else { continue };
        let value = match filtered(binary, element.value, *other) {
            Some(value) => value,
            None => continue,
        };
        let labels = labels_of_pair(binary, &element.labels);
        if !seen.insert(key.clone()) {
            return Err(format!("several series on the left side match {key}"));
        }
        result.push(Element { labels, value });
    }
    distinct(result)
}

/// Which elements of two vectors there are; several may match one.
fn set(binary: &Binary, mut left: Vec<Element>, mut right: Vec<Element>) -> Vec<Element> {
    let key = |element: &Element| grouped(&element.labels, &binary.matching);
    let keys = |elements: &[Element]| elements.iter().map(key).collect::<BTreeSet<Labels>>();
    match binary.operator {
        Operator::Or => {
            let known = keys(&left);
            right.retain(|element| !known.contains(&key(element)));
            left.append(&mut right);
        }
        operator => {
            let known = keys(&right);
            left.retain(|element| known.contains(&key(element)) == (operator == Operator::And));
        }
    }
    left
}

/// The value of a pair; `None` if a comparison filters it out.
fn filtered(binary: &Binary, left: f64, right: f64) -> Option<f64> {
    let operator: Operator = binary.operator;
    if is_renamed(binary) {
        return Some(operator.apply(left, right));
    }
    operator.holds(left, right).then_some(left)
}

/// What Prometheus leaves of the labels of the left side.
fn labels_of_pair(binary: &Binary, left: &Labels) -> Labels {
    let labels = if is_renamed(binary) { left.unnamed() } else { left.clone() };
    match &binary.matching {
        Grouping::By(names) => labels.filtered(|name| names.iter().any(|on| on == name)),
        Grouping::Without(names) => {
            labels.filtered(|name| name == NAME || !names.iter().any(|other| other == name))
        }
    }
}
