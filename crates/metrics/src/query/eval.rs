//! Evaluates a query at a moment.

use std::collections::{BTreeMap, BTreeSet};

use drain::Time;

use super::expr::{Aggregation, Each, Expr, Grouping, Match, Over, Selector};
use super::range::{Span, over};
use super::{Element, LOOKBACK, Outcome, histogram, pair};
use crate::series::{Labels, NAME, Sample, Store};

pub fn evaluate(root: &Expr, store: &Store, now: Time) -> Result<Outcome, String> {
    // Times of our day are far from the end of i64.
    let now = i64::try_from(now.0).map_err(|_| "a time past all calendars".to_owned())?;
    Scene { store, now }.outcome(root)
}

/// When the last sample was taken of the series of a selector that is furthest
/// behind.
pub fn newest(root: &Expr, store: &Store, now: Time) -> Option<Time> {
    let Expr::Select(selector) = root else { return None };
    let now = i64::try_from(now.0).ok()?;
    let scene = Scene { store, now };
    scene.live(selector).into_iter().map(|(_, last)| last.at).min()
}

/// What a query is evaluated over.
struct Scene<'a> {
    store: &'a Store,
    /// Milliseconds since 1970.
    now: i64,
}

impl Scene<'_> {
    fn outcome(&self, expr: &Expr) -> Result<Outcome, String> {
        let vector = |elements| Ok(Outcome::Vector(elements));
        match expr {
            Expr::Number(value) => Ok(Outcome::Number(*value)),
            Expr::Select(selector) => vector(self.select(selector)),
            Expr::Over { function, of, span_millis } => {
                vector(distinct(self.over(*function, of, *span_millis))?)
            }
            Expr::Aggregate { how, grouping, of } => {
                vector(aggregate(*how, grouping, self.vector(of)?))
            }
            Expr::Negate(of) => match self.outcome(of)? {
                Outcome::Number(value) => Ok(Outcome::Number(-value)),
                Outcome::Vector(elements) => vector(distinct(unnamed(elements, |value| -value))?),
            },
            Expr::Each { function, of, arguments } => vector(self.each(*function, of, arguments)?),
            Expr::Vector(of) => {
                vector(vec![Element { labels: Labels::default(), value: self.number(of)? }])
            }
            Expr::Scalar(of) => Ok(Outcome::Number(match &self.vector(of)?[..] {
                [only] => only.value,
                _ => f64::NAN,
            })),
            Expr::Absent(of) => vector(match self.vector(of)?.is_empty() {
                true => vec![Element { labels: asked_for(of), value: 1.0 }],
                false => Vec::new(),
            }),
            Expr::Time => Ok(Outcome::Number(self.now as f64 / 1000.0)),
            Expr::Quantile { share, of } => {
                let share = self.number(share)?;
                vector(distinct(histogram::quantiles(share, self.vector(of)?))?)
            }
            Expr::Binary(binary) => {
                pair::join(binary, self.outcome(&binary.left)?, self.outcome(&binary.right)?)
            }
        }
    }

    /// The parser lets only vectors come here.
    fn vector(&self, expr: &Expr) -> Result<Vec<Element>, String> {
        match self.outcome(expr)? {
            Outcome::Vector(elements) => Ok(elements),
            Outcome::Number(_) => Err("a number where a vector is needed".into()),
        }
    }

    fn number(&self, expr: &Expr) -> Result<f64, String> {
        match self.outcome(expr)? {
            Outcome::Number(value) => Ok(value),
            Outcome::Vector(_) => Err("a vector where a number is needed".into()),
        }
    }

    /// The last value of each series, if it has not ended and is not too old.
    fn select(&self, selector: &Selector) -> Vec<Element> {
        let live = self.live(selector).into_iter();
        live.map(|(labels, last)| Element { labels: labels.clone(), value: last.value }).collect()
    }

    fn live(&self, selector: &Selector) -> Vec<(&Labels, Sample)> {
        let end = self.now.saturating_sub(selector.offset_millis);
        let start = end.saturating_sub(LOOKBACK.0 as i64);
        let mut live = Vec::new();
        for (labels, samples) in self.store.select(selector.name()) {
            if !selector.matches(labels) {
                continue;
            }
            let last = samples.iter().rev().find(|sample| millis(sample) <= end);
            let last = last.filter(|sample| millis(sample) > start && !sample.is_end());
            live.extend(last.map(|last| (labels, *last)));
        }
        live
    }

    fn over(&self, function: Over, selector: &Selector, span_millis: u64) -> Vec<Element> {
        let end = self.now.saturating_sub(selector.offset_millis);
        let span = Span { start: end.saturating_sub_unsigned(span_millis), end };
        let is_inside = |sample: &&Sample| {
            millis(sample) > span.start && millis(sample) <= span.end && !sample.is_end()
        };
        let mut elements = Vec::new();
        for (labels, samples) in self.store.select(selector.name()) {
            if !selector.matches(labels) {
                continue;
            }
            let inside: Vec<Sample> = samples.iter().filter(is_inside).copied().collect();
            if inside.is_empty() {
                continue;
            }
            let labels = if function == Over::Last { labels.clone() } else { labels.unnamed() };
            elements.extend(over(function, &inside, span).map(|value| Element { labels, value }));
        }
        elements
    }

    fn each(&self, function: Each, of: &Expr, arguments: &[Expr]) -> Result<Vec<Element>, String> {
        let elements = self.vector(of)?;
        let arguments = arguments.iter().map(|argument| self.number(argument));
        let arguments = arguments.collect::<Result<Vec<f64>, String>>()?;
        let elements = match (function, &arguments[..]) {
            (Each::Clamp, [min, max]) if min > max => Vec::new(),
            (Each::Clamp, [min, max]) => {
                unnamed(elements, |value| higher(*min, lower(*max, value)))
            }
            (Each::ClampMin, [min]) => unnamed(elements, |value| higher(*min, value)),
            (Each::ClampMax, [max]) => unnamed(elements, |value| lower(*max, value)),
            (Each::Abs, _) => unnamed(elements, f64::abs),
            (Each::Ceil, _) => unnamed(elements, f64::ceil),
            (Each::Floor, _) => unnamed(elements, f64::floor),
            _ => return Err("a function with a wrong number of arguments".into()),
        };
        distinct(elements)
    }
}

fn millis(sample: &Sample) -> i64 {
    i64::try_from(sample.at.0).unwrap_or(i64::MAX)
}

/// The larger one; what is not a number stays what it is, unlike `f64::max`.
fn higher(bound: f64, value: f64) -> f64 {
    if bound.is_nan() || value.is_nan() { f64::NAN } else { value.max(bound) }
}

fn lower(bound: f64, value: f64) -> f64 {
    if bound.is_nan() || value.is_nan() { f64::NAN } else { value.min(bound) }
}

pub fn unnamed(elements: Vec<Element>, compute: impl Fn(f64) -> f64) -> Vec<Element> {
    let computed = |element: Element| Element {
        labels: element.labels.unnamed(),
        value: compute(element.value),
    };
    elements.into_iter().map(computed).collect()
}

/// Without its name a series may be like another: then nobody knows which is
/// meant.
pub fn distinct(elements: Vec<Element>) -> Result<Vec<Element>, String> {
    let labels: BTreeSet<&Labels> = elements.iter().map(|element| &element.labels).collect();
    if labels.len() == elements.len() {
        return Ok(elements);
    }
    Err("two series of the result have the same labels".into())
}

/// The labels that a selector without a match is known to ask for: those of its
/// equalities, if no other matcher is about the same label.
fn asked_for(of: &Expr) -> Labels {
    let Expr::Select(selector) = of else { return Labels::default() };
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for matcher in &selector.matchers {
        *times.entry(&matcher.label).or_default() += 1;
    }
    let equal = selector.matchers.iter().filter_map(|matcher| match &matcher.how {
        Match::Equal(value) if matcher.label != NAME && times[matcher.label.as_str()] == 1 => {
            Some((matcher.label.clone(), value.clone()))
        }
        _ => None,
    });
    Labels::new(equal.collect()).unwrap_or_default()
}

/// What is left of labels in a group.
pub fn grouped(labels: &Labels, grouping: &Grouping) -> Labels {
    match grouping {
        Grouping::By(names) => labels.filtered(|name| names.iter().any(|by| by == name)),
        Grouping::Without(names) => {
            labels.filtered(|name| name != NAME && !names.iter().any(|without| without == name))
        }
    }
}

fn aggregate(how: Aggregation, grouping: &Grouping, elements: Vec<Element>) -> Vec<Element> {
    let mut groups: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
    for element in elements {
        groups.entry(grouped(&element.labels, grouping)).or_default().push(element.value);
    }
    let value = |values: &[f64]| {
        let sum = || values.iter().sum::<f64>();
        let extreme = |is_further: fn(f64, f64) -> bool| {
            let further = |so_far: f64, value: f64| {
                if so_far.is_nan() || is_further(value, so_far) { value } else { so_far }
            };
            values.iter().copied().reduce(further).unwrap_or(f64::NAN)
        };
        match how {
            Aggregation::Sum => sum(),
            Aggregation::Avg => sum() / values.len() as f64,
            Aggregation::Min => extreme(|value, so_far| value < so_far),
            Aggregation::Max => extreme(|value, so_far| value > so_far),
            Aggregation::Count => values.len() as f64,
        }
    };
    let element = |(labels, values): (Labels, Vec<f64>)| Element { labels, value: value(&values) };
    groups.into_iter().map(element).collect()
}
