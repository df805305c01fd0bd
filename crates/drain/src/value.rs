//! What a knob stands at.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The position of a knob: a share of traffic, a rate, a mode, the content of
/// a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(f64),
    Text(String),
}

/// Numbers that differ by less than this part of the larger are the same:
/// drivers round to what they drive, as HAProxy does to 256 weights.
const ROUNDING: f64 = 1.0 / 250.0;

impl Value {
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    /// Whether this can be where a knob stands. What is no number, or is
    /// without end, cannot be kept either: JSON has no word for it.
    pub fn is_real(&self) -> bool {
        self.number().is_none_or(f64::is_finite)
    }

    /// The same as the name of something, such as a server: names are not rounded.
    pub fn into_name(self) -> Value {
        match self {
            Value::Number(number) if number.fract() != 0.0 => Value::Text(self.to_string()),
            other => other,
        }
    }

    /// Whether a knob that stands at `found` is where `self` wanted it.
    pub fn is_met_by(&self, found: &Value) -> bool {
        match (self, found) {
            // Whole numbers are not rounded, and may be the numbers of servers.
            (Value::Number(wanted), Value::Number(found))
                if wanted.fract() == 0.0 && found.fract() == 0.0 =>
            {
                wanted == found
            }
            (Value::Number(wanted), Value::Number(found)) => {
                let scale = wanted.abs().max(found.abs()).max(1.0);
                // Next to infinity every difference is small.
                scale.is_finite() && (wanted - found).abs() <= scale * ROUNDING
            }
            (Value::Text(wanted), Value::Text(found)) => wanted == found,
            // What was written as a text may be read as the number that it looks like.
            (Value::Text(wanted), found @ Value::Number(_)) => *wanted == found.to_string(),
            (Value::Number(_), Value::Text(_)) => false,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // There is no negative zero for people.
            Value::Number(number) => write!(f, "{}", number + 0.0),
            Value::Text(text) => write!(f, "{text:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_met_up_to_rounding() {
        let number = Value::Number;
        assert!(number(0.5).is_met_by(&number(0.502)));
        assert!(!number(0.5).is_met_by(&number(0.51)));
        assert!(!number(0.0).is_met_by(&number(0.01)));
        assert!(number(1000.5).is_met_by(&number(1003.0)));
        assert!(!number(1002.0).is_met_by(&number(1001.0)), "which server is the primary");
        assert!(number(1002.0).is_met_by(&number(1002.0)));
        assert!(!number(1.0).is_met_by(&Value::Text("1".into())));
    }

    #[test]
    fn names_are_not_rounded() {
        let name = |number: f64| Value::Number(number).into_name();
        assert!(name(10.51).is_met_by(&Value::Number(10.51)));
        assert!(name(10.51).is_met_by(&name(10.51)));
        assert!(!name(10.51).is_met_by(&Value::Number(10.52)));
        assert!(!name(10.51).is_met_by(&name(10.52)));
        assert_eq!(name(1.0), Value::Number(1.0));
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(Value::Number(-0.0).to_string(), "0");
        assert_eq!(Value::Number(-0.5).to_string(), "-0.5");
    }

    #[test]
    fn what_is_no_number_meets_nothing() {
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Value::Number) {
            assert!(!odd.is_real());
            assert!(!Value::Number(0.0).is_met_by(&odd));
            assert!(!odd.is_met_by(&odd));
        }
    }
}
