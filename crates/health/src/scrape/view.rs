//! What was read, as of one moment, and the values of conditions in it.

use std::sync::Arc;

use drain::{Condition, Millis, Time};

use super::book::{Book, Standing};
use crate::freshness::{self, Basis, DISTRUST};
use crate::query::{Fault, Outcome, Query};
use crate::secrets::Secrets;
use crate::series::Store;
use crate::{NoValue, Reading, counted, query_of};

/// Nothing changes in it while a query is evaluated, and nobody waits for that.
#[derive(Debug)]
pub struct View {
    store: Arc<Store>,
    standings: Vec<Standing>,
    now: Time,
}

/// A selector of a query, as text for people.
struct Selected<'a> {
    text: &'a str,
    query: Query,
}

impl View {
    pub fn of(book: &Book, now: Time) -> View {
        View { store: book.store().clone(), standings: book.standings().to_vec(), now }
    }

    /// The value of a condition. What is shown of series has no `secrets` in it.
    pub fn measure(
        &self,
        condition: &Condition,
        ended: Millis,
        secrets: &Secrets,
    ) -> Result<Reading, NoValue> {
        let text = query_of(condition)?;
        let (query, basis) = (parse(text)?, Basis::of(text)?);
        let selected = basis.selectors().map(|text| Ok(Selected { text, query: parse(text)? }));
        let selected = selected.collect::<Result<Vec<_>, NoValue>>()?;
        let doubt = match condition.is_exact {
            true => self.doubt(&selected, ended.min(DISTRUST), secrets)?,
            false => None,
        };
        let age = |own: &Selected| Some(self.now - own.query.newest(&self.store, self.now)?);
        let age = basis.age(&selected.iter().map(age).collect::<Vec<_>>());
        let outcome = self.evaluate(&query);
        let outcome = outcome.map_err(|why| NoValue::Unanswerable(secrets.redact(&why)))?;
        let values = outcome.values();
        let (at, value) = counted(condition, &values);
        match age {
            Ok(age) if !values.is_empty() && doubt.is_none() => {
                let series = at.and_then(|at| outcome.series(at));
                let series = series.map(|series| secrets.redact(&series));
                Ok(Reading { value, series, age, window: basis.window() })
            }
            // That a target is away is the likelier reason, and the more useful one.
            age => {
                let why = age.err().or(doubt).unwrap_or(NoValue::NoSeries);
                let down = self.standings.iter().cloned().find_map(Standing::into_trouble);
                Err(down.unwrap_or(why))
            }
        }
    }

    /// Why an exact condition has no value, whatever its query gives.
    fn doubt(
        &self,
        selected: &[Selected<'_>],
        ended: Millis,
        secrets: &Secrets,
    ) -> Result<Option<NoValue>, NoValue> {
        for Selected { text, .. } in selected {
            let selector = (*text).to_owned();
            if self.has_some(&freshness::ended(text, ended))? {
                return Ok(Some(NoValue::Vanished { selector, within: ended }));
            }
            if self.has_some(&freshness::undefined(text))? {
                return Ok(Some(NoValue::Undefined { selector }));
            }
        }
        let negative = selected.iter().find_map(|own| self.negative(own, secrets));
        // A target that is away, or was not read yet, may have the last word.
        let early = || self.standings.iter().cloned().find_map(Standing::into_doubt);
        let dropped = || {
            let at = self.store.dropped_end().filter(|at| self.now - *at < ended);
            at.map(|_| NoValue::Dropped { within: ended })
        };
        Ok(negative.or_else(early).or_else(dropped))
    }

    fn has_some(&self, query: &str) -> Result<bool, NoValue> {
        let outcome = self.evaluate(&parse(query)?);
        Ok(outcome.is_ok_and(|outcome| !outcome.values().is_empty()))
    }

    /// What is wrong if series of a selector are negative: of the least of them.
    fn negative(&self, selected: &Selected<'_>, secrets: &Secrets) -> Option<NoValue> {
        let Outcome::Vector(elements) = self.evaluate(&selected.query).ok()? else { return None };
        let negative = elements.iter().filter(|element| element.value < 0.0);
        let least = negative.min_by(|a, b| a.value.total_cmp(&b.value))?;
        let series = secrets.excerpt(&least.labels.to_string());
        Some(NoValue::Negative { selector: selected.text.to_owned(), series, value: least.value })
    }

    fn evaluate(&self, query: &Query) -> Result<Outcome, String> {
        query.evaluate(&self.store, self.now)
    }
}

fn parse(query: &str) -> Result<Query, NoValue> {
    Query::parse(query).map_err(|fault: Fault| NoValue::Unanswerable(fault.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Format, PageBounds, read};
    use crate::scrape::book::Scrape;
    use crate::series::Bounds;

    #[test]
    fn a_page_that_is_read_meanwhile_does_not_change_a_view() {
        let mut book = Book::new(Bounds::default(), vec![Vec::new()]);
        let mut read = |secs: u64, page: &str| {
            let now = Time(secs * 1000);
            let scrape = Scrape { began: now, ended: now, ended_of_day: now };
            let lines = read(page.as_bytes(), Format::Text, PageBounds::default()).unwrap();
            book.read(0, scrape, &lines);
            View::of(&book, now)
        };
        let (before, after) = (read(1, "m 1\nn 1\n"), read(2, "m 2\n"));
        let values = |view: &View, query: &str| {
            let outcome = view.evaluate(&Query::parse(query).unwrap()).unwrap();
            outcome.values()
        };
        assert_eq!((values(&before, "m"), values(&before, "count(n)")), (vec![1.0], vec![1.0]));
        assert_eq!((values(&after, "m"), values(&after, "n")), (vec![2.0], Vec::new()));
    }
}
