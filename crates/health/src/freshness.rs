//! How old the data behind a value is.
//!
//! A query says when it is evaluated, not when its samples were taken: a rate
//! has a value for as long as its range reaches back to the last samples of an
//! exporter that died. So every selector of a query is asked for the time of its
//! newest sample, and the one that is furthest behind counts.

use drain::Millis;
use drain::promql::{Selector, analyse};

use crate::NoValue;
use crate::query::LOOKBACK;

/// How far the clock of an exporter may be ahead unnoticed. What it stamps counts
/// as that much older than it says.
pub const AHEAD_MAX: Millis = Millis::from_secs(1);
/// How long an exporter is distrusted after it stamped a sample in the future:
/// for as long as that sample could be seen.
pub const DISTRUST: Millis = LOOKBACK;

/// The series that a query is computed from.
#[derive(Debug)]
pub struct Basis {
    selectors: Vec<Selector>,
    is_number: bool,
}

impl Basis {
    pub fn of(query: &str) -> Result<Basis, NoValue> {
        let analysis = analyse(query).map_err(|fault| NoValue::Unanswerable(fault.to_string()))?;
        let mut selectors = analysis.selectors;
        // What is compared with the past says nothing about the present, unless
        // there is nothing else.
        if selectors.iter().any(|selector| !selector.past) {
            selectors.retain(|selector| !selector.past);
        }
        Ok(Basis { selectors, is_number: analysis.is_number })
    }

    /// Whether the query gives a number, not a vector.
    pub fn is_number(&self) -> bool {
        self.is_number
    }

    pub fn selectors(&self) -> impl Iterator<Item = &str> {
        self.selectors.iter().map(|selector| selector.text.as_str())
    }

    /// How far back the data may lie that a value is computed from.
    pub fn window(&self) -> Millis {
        self.selectors.iter().map(|selector| selector.window).max().unwrap_or_default()
    }

    /// How old the newest sample is of the selector that is furthest behind.
    /// `ages` has one for each; `None`: none of its series lives.
    pub fn age(&self, ages: &[Option<Millis>]) -> Result<Millis, NoValue> {
        let mut oldest = Millis::ZERO;
        for (selector, age) in self.selectors.iter().zip(ages) {
            match age {
                Some(age) => oldest = oldest.max(*age),
                None if selector.optional => {}
                None => return Err(NoValue::Ended { selector: selector.text.clone() }),
            }
        }
        Ok(oldest)
    }
}

/// Has a value if series of a selector ended within so long. Of several metrics with
/// the same labels some may be left: they are counted.
pub fn ended(selector: &str, within: Millis) -> String {
    let seen = format!("last_over_time({selector}[{}ms])", within.0.max(1));
    format!("count({seen} unless {selector}) or count({seen}) > (count({selector}) or vector(0))")
}

/// Has a value if one of the series of a selector is not a number: aggregations such
/// as `max` pass over it.
pub fn undefined(selector: &str) -> String {
    format!("count({selector}) > (count({selector} >= -Inf) or vector(0))")
}

/// Has a value if one of the series of a selector is negative, which aggregations such
/// as `max` pass over: the least of them, with its labels.
pub fn negative(selector: &str) -> String {
    format!("bottomk(1,{selector} < 0)")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIO: &str = r#"sum(rate(errors[1m])) / sum(rate(requests{dc="a"}[30s]))"#;

    #[test]
    fn the_selector_that_is_furthest_behind_counts() {
        let basis = Basis::of(RATIO).unwrap();
        assert_eq!(basis.selectors().collect::<Vec<_>>(), ["errors", r#"requests{dc="a"}"#]);
        assert_eq!(basis.window(), Millis::from_secs(60));
        assert_eq!(basis.age(&[Some(Millis(7)), Some(Millis(3))]), Ok(Millis(7)));
        let ended = basis.age(&[Some(Millis(7)), None]).unwrap_err();
        assert_eq!(ended.to_string(), r#"no live series match requests{dc="a"}"#);
    }

    #[test]
    fn what_may_be_missing_is_not_missed() {
        let basis = Basis::of("sum(rate(errors[1m])) or vector(0)").unwrap();
        assert_eq!(basis.age(&[None]), Ok(Millis::ZERO));
        assert_eq!(basis.age(&[Some(Millis(9))]), Ok(Millis(9)));
        assert_eq!(Basis::of("6 * 7").unwrap().age(&[]), Ok(Millis::ZERO));
    }

    #[test]
    fn the_past_counts_only_by_itself() {
        let now = Basis::of("load / (load offset 1w)").unwrap();
        assert_eq!(now.selectors().collect::<Vec<_>>(), ["load"]);
        let then = Basis::of("load / (old offset 1w)").unwrap();
        assert_eq!(then.selectors().collect::<Vec<_>>(), ["load"]);
        let past = Basis::of("old offset 1w").unwrap();
        assert_eq!(past.age(&[None]), Err(NoValue::Ended { selector: "old".into() }));
    }
}
