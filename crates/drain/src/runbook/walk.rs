//! Holds a tree against its shape, and notes everything that does not fit.

use std::collections::{HashMap, HashSet};

use super::problem::{Place, Problems};
use super::promql;
use super::shape::{self, Kind, Need, Shape};
use super::tree::{Node, Scalar, Tree, shorten};
use super::words::{self, Piece, did_you_mean};

/// What texts may refer to where the tree stands.
pub(crate) struct Walk<'a> {
    pub problems: &'a mut Problems,
    /// The variables that have a value.
    pub variables: Vec<String>,
}

impl Walk<'_> {
    /// Notes what is wrong with the node. `label` is what problems call it.
    pub fn check(&mut self, kind: &Kind, node: &Node, label: &str) {
        match (kind, &node.tree) {
            (Kind::Value, _) => self.any_value(node),
            (Kind::List(of), Tree::List(items)) => {
                for item in items {
                    self.check(of, item, label);
                }
            }
            (Kind::Map(of), Tree::Map(_)) => {
                self.duplicates(node);
                for (key, value) in node.entries() {
                    if !words::is_name(&key.name) {
                        self.problems.error(
                            key.at,
                            format!("`{}` is not a name", shorten(&key.name)),
                            format!("accepted: {}", words::NAME_RULE),
                        );
                    }
                    self.check(of, value, &key.name);
                }
            }
            (Kind::Record(shape), Tree::Map(_)) => self.record(shape, node),
            (Kind::Condition, Tree::Map(_)) => self.record(&shape::CONDITION_IN_PLACE, node),
            (Kind::Condition, Tree::Scalar(scalar)) if words::is_reference(&scalar.text) => {}
            (_, Tree::Scalar(scalar)) if !scalar.is_null() && fits(kind, scalar) => {
                self.inside(kind, scalar);
            }
            _ => self.problems.error(
                node.at,
                format!("`{label}` is {}", node.describe()),
                remedy(kind, node),
            ),
        }
    }

    /// Checks a map against a shape.
    pub fn record(&mut self, shape: &Shape, node: &Node) {
        self.duplicates(node);
        for (key, value) in node.entries() {
            match shape.fields.iter().find(|field| field.name == key.name) {
                Some(field) => self.check(&field.kind, value, field.name),
                None => {
                    let names: Vec<_> = shape.fields.iter().map(|field| field.name).collect();
                    self.problems.error(
                        key.at,
                        format!("{} has no key `{}`", shape.name, shorten(&key.name)),
                        did_you_mean(&key.name, names),
                    );
                }
            }
        }
        // One that was misspelt is there.
        let names = || shape.fields.iter().map(|field| field.name);
        let given: HashSet<_> = node
            .entries()
            .iter()
            .filter_map(|(key, _)| words::nearest(&key.name, names()))
            .collect();
        for field in shape.fields.iter().filter(|field| field.need == Need::Required) {
            if !given.contains(field.name) {
                self.problems.error(
                    node.at,
                    format!("{} needs `{}`", shape.name, field.name),
                    format!("add it; accepted: {}", accepted(&field.kind)),
                );
            }
        }
        for group in shape.one_of {
            self.exactly_one(shape, group, node);
        }
    }

    fn exactly_one(&mut self, shape: &Shape, group: &[&str], node: &Node) {
        let given: Vec<_> =
            node.entries().iter().filter(|(key, _)| group.contains(&key.name.as_str())).collect();
        let names: Vec<_> = group.iter().map(|name| format!("`{name}`")).collect();
        let one_of = format!("accepted: exactly one of {}", names.join(", "));
        match given.as_slice() {
            [] => self.problems.error(
                node.at,
                format!("{} has none of {}", shape.name, names.join(", ")),
                format!("add one; {one_of}"),
            ),
            [(first, _), (second, _), ..] if first.name != second.name => self.problems.error(
                second.at,
                format!("{} has both `{}` and `{}`", shape.name, first.name, second.name),
                one_of,
            ),
            _ => {}
        }
    }

    /// Two equal keys: which one was meant is not for us to guess.
    fn duplicates(&mut self, node: &Node) {
        let mut first_at: HashMap<&str, Place> = HashMap::new();
        for (key, _) in node.entries() {
            if let Some(first) = first_at.get(key.name.as_str()) {
                let first = self.problems.show(*first);
                self.problems.error(
                    key.at,
                    format!("`{}` is given twice, first at {first}", shorten(&key.name)),
                    "keep one of them",
                );
            } else {
                first_at.insert(&key.name, key.at);
            }
        }
    }

    /// What a scalar of the right form can still have wrong inside.
    fn inside(&mut self, kind: &Kind, scalar: &Scalar) {
        match kind {
            Kind::Text | Kind::Knob => self.variables(scalar),
            Kind::Query => {
                self.variables(scalar);
                for offset in promql::unquoted(&scalar.text) {
                    let at = scalar.place_of(offset);
                    self.problems.error(at, promql::UNQUOTED, promql::QUOTED_RULE);
                }
                if let Err(fault) = promql::analyse(&words::mask(&scalar.text)) {
                    self.problems.error(
                        scalar.place_of(fault.offset),
                        format!("the query is not PromQL: {}", fault.what),
                        fault.remedy,
                    );
                }
            }
            _ => {}
        }
    }

    /// Every text within a value whose form is decided elsewhere.
    fn any_value(&mut self, node: &Node) {
        self.duplicates(node);
        if let Some(scalar) = node.scalar() {
            self.variables(scalar);
        }
        for item in node.items() {
            self.any_value(item);
        }
        for (_, value) in node.entries() {
            self.any_value(value);
        }
    }

    pub fn variables(&mut self, scalar: &Scalar) {
        for (offset, _, piece) in words::pieces(&scalar.text) {
            let at: Place = scalar.place_of(offset);
            match piece {
                Piece::Variable(name) if !self.variables.iter().any(|known| known == name) => {
                    let name = format!("${name}");
                    let known: Vec<_> =
                        self.variables.iter().map(|name| format!("${name}")).collect();
                    let known = known.iter().map(String::as_str);
                    self.problems.error(
                        at,
                        format!("there is no variable `{name}`"),
                        format!("{}; write `$$` for a dollar", did_you_mean(&name, known)),
                    );
                }
                Piece::Lone => self.problems.error(
                    at,
                    "a `$` begins no variable",
                    "accepted: `$name` or `${name}`; write `$$` for a dollar",
                ),
                _ => {}
            }
        }
    }
}

/// Whether a scalar has the form of its kind. Keys that hold maps and lists
/// never do.
fn fits(kind: &Kind, scalar: &Scalar) -> bool {
    let text = &scalar.text;
    match kind {
        Kind::Text | Kind::Query | Kind::Value => true,
        Kind::Knob => words::knob(text).is_some(),
        Kind::Name => words::is_name(text),
        Kind::Reference => words::is_reference(text),
        Kind::Choice(choices) => choices.contains(&text.as_str()),
        Kind::Truth => words::truth(scalar).is_some(),
        Kind::Number { min, max } => {
            words::number(scalar).is_some_and(|number| (*min..=*max).contains(&number))
        }
        Kind::Integer { min, max } => {
            scalar.plain && text.parse::<i64>().is_ok_and(|number| (*min..=*max).contains(&number))
        }
        Kind::Share { above_zero } => {
            words::share(scalar).is_some_and(|share| share > 0.0 || !above_zero)
        }
        Kind::Duration => words::duration(text).is_some(),
        Kind::Timeout => words::duration(text).is_some() || words::whole_variable(text).is_some(),
        Kind::Condition | Kind::List(_) | Kind::Map(_) | Kind::Record(_) => false,
    }
}

fn remedy(kind: &Kind, node: &Node) -> String {
    if let (Kind::Choice(choices), Some(scalar)) = (kind, node.scalar())
        && !scalar.is_null()
    {
        return did_you_mean(&scalar.text, choices.iter().copied());
    }
    format!("accepted: {}", accepted(kind))
}

/// What a kind accepts, for people.
pub(crate) fn accepted(kind: &Kind) -> String {
    match kind {
        Kind::Text => "a text".into(),
        Kind::Query => "a query in PromQL".into(),
        Kind::Knob => words::KNOB_RULE.into(),
        Kind::Name => format!("a name: {}", words::NAME_RULE),
        Kind::Reference => "a task such as `shift`, or one of a service such as `web.shift`".into(),
        Kind::Choice(choices) => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Truth => "`true` or `false`".into(),
        Kind::Number { min, max } => match (min.is_finite(), max.is_finite()) {
            (true, true) => format!("a number from {min} to {max}"),
            (true, false) => format!("a number, at least {min}"),
            _ => "a number".into(),
        },
        Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Share { above_zero: true } => format!("{}, but not 0", words::SHARE_RULE),
        Kind::Share { above_zero: false } => words::SHARE_RULE.into(),
        Kind::Duration => words::DURATION_RULE.into(),
        Kind::Timeout => format!("{}, or a parameter such as `$patience`", words::DURATION_RULE),
        Kind::Value => "a value".into(),
        Kind::Condition => {
            "the name of a condition such as `errors` or `web.errors`, or a condition in place"
                .into()
        }
        Kind::List(_) => "a list".into(),
        Kind::Map(_) => "a map of names, each with a value".into(),
        Kind::Record(shape) => {
            let keys: Vec<_> =
                shape.fields.iter().map(|field| format!("`{}`", field.name)).collect();
            format!("{} with the keys {}", shape.name, keys.join(", "))
        }
    }
}
