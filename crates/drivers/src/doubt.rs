//! What a knob that was checked says about a plan before anything is turned:
//! values that it does not take, and steps that it cannot.

use std::fmt;

use drain::{Knob, KnobId, Pace, Plan, StageKind, Value};

use crate::driver::{Accepts, Shape};
use crate::exec::mistaken_for_number;
use crate::registry::Drivers;

/// Something that will not go as a plan says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The task that will notice.
    pub task: String,
    pub knob: Knob,
    pub what: String,
    /// Whether the task can end well all the same.
    pub is_bearable: bool,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.task, self.knob, self.what)
    }
}

/// What will not go as a plan says with a knob of this shape, for every task
/// that turns it.
pub fn doubts(plan: &Plan, knob: KnobId, shape: &Shape) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    for task in &plan.tasks {
        let turns = task.stages.iter().filter_map(|stage| Turn::of(&stage.kind, &task.pace));
        // Whom a fence is of is never set, but read.
        let fenced = task.fenced_primaries().map(|(_, primary, to)| (primary, Turn::Once { to }));
        for (_, turn) in turns.chain(fenced).filter(|(own, _)| *own == knob) {
            doubts.extend(shape.doubt(turn).map(|(what, is_bearable)| Doubt {
                task: task.name.clone(),
                knob: plan.knob(knob).clone(),
                what,
                is_bearable,
            }));
        }
    }
    doubts
}

impl Drivers {
    /// Asks about every knob that a plan turns. Who does not answer is no doubt
    /// about the plan, but is said as well.
    pub async fn survey(&self, plan: &Plan) -> Vec<Doubt> {
        let mut found = Vec::new();
        for (at, knob) in plan.knobs.iter().enumerate() {
            let id = KnobId(at as u32);
            let turned_by = plan.tasks.iter().find(|task| {
                let mut turns =
                    task.stages.iter().filter_map(|stage| Turn::of(&stage.kind, &task.pace));
                turns.any(|(own, _)| own == id)
            });
            let Some(task) = turned_by else { continue };
            match self.check(knob).await {
                Ok(shape) => found.extend(doubts(plan, id, &shape)),
                Err(error) => found.push(Doubt {
                    task: task.name.clone(),
                    knob: knob.clone(),
                    what: error.to_string(),
                    is_bearable: error.is_transient(),
                }),
            }
        }
        found
    }
}

/// How a stage turns a knob.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn<'p> {
    /// In steps; the first is this share of the way.
    Steps {
        to: &'p Value,
        first: f64,
    },
    Once {
        to: &'p Value,
    },
    /// To whatever its share of a budget is.
    Rate,
}

impl<'p> Turn<'p> {
    fn of(kind: &'p StageKind, pace: &Pace) -> Option<(KnobId, Turn<'p>)> {
        match kind {
            StageKind::Shift { knob, to } => {
                Some((*knob, Turn::Steps { to: to.value(), first: pace.first }))
            }
            StageKind::Set { knob, to, .. } => Some((*knob, Turn::Once { to: to.value() })),
            StageKind::Govern { knob, .. } => Some((*knob, Turn::Rate)),
            _ => None,
        }
    }
}

/// Whether a text has a word for each of several servers, as in `a=ready,b=maint`.
fn is_of_each(words: &[&str], text: &str) -> bool {
    text.split(',').all(|own| own.split_once('=').is_some_and(|(_, word)| words.contains(&word)))
}

impl Shape {
    /// Why a knob of this shape is not turned as a stage means to, and whether
    /// that can be borne.
    fn doubt(&self, turn: Turn<'_>) -> Option<(String, bool)> {
        let refuses = |why: String| Some((why, false));
        if !self.is_writable {
            return refuses("it can be read alone; accepted: another knob".into());
        }
        match (&self.accepts, turn) {
            (Accepts::AnythingButFractions, Turn::Once { to: Value::Text(to) }) => {
                mistaken_for_number(to).and_then(refuses)
            }
            (Accepts::Anything | Accepts::AnythingButFractions, _) => None,
            (Accepts::Word(words), Turn::Once { to: Value::Text(to) })
                if words.contains(&to.as_str()) || is_of_each(words, to) =>
            {
                None
            }
            (Accepts::Word(words), Turn::Once { to }) => {
                refuses(format!("it takes no {to}; accepted: {}", words.join(", ")))
            }
            (Accepts::Word(words), _) => {
                refuses(format!("it takes words, not numbers; accepted: {}", words.join(", ")))
            }
            (Accepts::Number { .. }, Turn::Rate) => None,
            (Accepts::Number { min, max, .. }, Turn::Once { to } | Turn::Steps { to, .. })
                if !to.number().is_some_and(|to| (*min..=*max).contains(&to)) =>
            {
                refuses(format!("it cannot be put to {to}; accepted: {min} to {max}"))
            }
            (Accepts::Number { step, .. }, Turn::Steps { first, .. }) if *step > first + 1e-9 => {
                let (step, first) = (step * 100.0, first * 100.0);
                let why = format!(
                    "it moves by {step:.1} % at the least, and the first step is {first:.1} %: \
                     steps are rounded, or refused where that is too far off; give servers a \
                     larger weight, or the task a larger `first`"
                );
                Some((why, true))
            }
            (Accepts::Number { .. }, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(step: f64) -> Shape {
        Shape { accepts: Accepts::Number { min: 0.0, max: 1.0, step }, is_writable: true }
    }

    #[test]
    fn steps_that_are_too_small_for_a_knob_are_doubted() {
        let to = Value::Number(0.0);
        let steps = |first| Turn::Steps { to: &to, first };
        // A server of weight 1 has no half, one of weight 100 has a hundredth.
        let (doubt, is_bearable) = numbers(1.0).doubt(steps(0.05)).unwrap();
        assert!(is_bearable);
        assert!(doubt.starts_with("it moves by 100.0 % at the least, and the first step is 5.0 %"));
        assert_eq!(numbers(0.01).doubt(steps(0.05)), None);
        assert_eq!(numbers(0.05).doubt(steps(0.05)), None);
        assert_eq!(numbers(1.0).doubt(steps(1.0)), None, "all at one go");
        assert_eq!(numbers(1.0).doubt(Turn::Once { to: &to }), None);
    }

    #[test]
    fn values_that_a_knob_does_not_take_are_doubted() {
        let (two, off) = (Value::Number(2.0), Value::Text("off".into()));
        let maint = Value::Text("maint".into());
        fn once(to: &Value) -> Turn<'_> {
            Turn::Once { to }
        }
        let why = |shape: &Shape, turn: Turn<'_>| {
            let (why, is_bearable) = shape.doubt(turn)?;
            assert!(!is_bearable);
            Some(why)
        };
        assert_eq!(
            why(&numbers(0.0), once(&two)).as_deref(),
            Some("it cannot be put to 2; accepted: 0 to 1")
        );
        assert!(why(&numbers(0.0), once(&off)).is_some());
        let words = Shape { accepts: Accepts::Word(vec!["ready", "maint"]), is_writable: true };
        assert_eq!(
            why(&words, once(&off)).as_deref(),
            Some("it takes no \"off\"; accepted: ready, maint")
        );
        assert_eq!(why(&words, once(&maint)), None);
        assert!(why(&words, Turn::Steps { to: &two, first: 0.1 }).is_some());
        let parsed = Shape { accepts: Accepts::AnythingButFractions, is_writable: true };
        for (name, is_doubted) in [("7.1", true), ("7.10", true), ("7.0", true), ("7", false)] {
            let name = Value::Text(name.into());
            assert_eq!(why(&parsed, once(&name)).is_some(), is_doubted, "{name}");
            let anything = Shape { accepts: Accepts::Anything, ..parsed.clone() };
            assert_eq!(why(&anything, once(&name)), None);
        }
        assert_eq!(why(&parsed, once(&Value::Number(0.5))), None, "a weight");
        let gauge = Shape { is_writable: false, ..numbers(0.0) };
        assert!(why(&gauge, Turn::Rate).is_some());
    }
}
