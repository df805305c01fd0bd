//! When the samples behind a query were taken, as far as their stamps prove it.
//!
//! A Prometheus stamps what it scrapes with the time of the scrape, unless the
//! exporter gives stamps of its own, which are as right as the exporter's clock.
//! Of an exporter that is 30 s ahead, the sample that is stamped "now" was taken
//! 30 s ago. So samples that are stamped in the future make a value no data, and
//! no sample counts as newer than the last scrape of its target.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use drain::Millis;

use super::answer::Row;
use crate::freshness::{self, AHEAD_MAX, Basis, DISTRUST};
use crate::{NoValue, whole_secs};

/// The label by which the parts of a response are told from each other.
pub const LABEL: &str = "pharos_selector";
/// Its value for the series of the query itself.
const VALUE: &str = "value";
/// Selectors that are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// Changes of the number of series of one selector that are.
const COUNTS_MAX: usize = 1000;

/// Asks for the series of a query and for the stamps of each of its selectors, in
/// one evaluation: of several replicas behind one address, which scrape at
/// different moments, the stamps of one say nothing about the value of another.
pub fn query(query: &str, basis: &Basis, ended: Option<Millis>) -> String {
    // A query may end with a comment.
    let value = match basis.is_number() {
        true => format!("vector({query}\n)"),
        false => format!("{query}\n"),
    };
    let parts = basis.selectors().enumerate().flat_map(|(at, selector)| {
        let doubts = [
            (format!("{at} ended"), freshness::ended(selector, ended.unwrap_or_default())),
            (format!("{at} undefined"), freshness::undefined(selector)),
            (format!("{at} negative"), freshness::negative(selector)),
            (format!("{at} count"), format!("count({selector})")),
        ];
        let doubts = doubts.into_iter().filter(|_| ended.is_some());
        let stamps = [
            (format!("{at}"), format!("min(timestamp({selector}))")),
            // What scraped a target is known by these two labels.
            (
                format!("{at} scraped"),
                format!("min(timestamp(up) and on(job,instance) {selector})"),
            ),
            // An instant selector sees five minutes of the future at the most; a
            // range costs nothing where there is nothing. The second is AHEAD_MAX.
            (
                format!("{at} ahead"),
                format!("count(present_over_time({selector}[1h] offset -1h1s))"),
            ),
            (format!("{at} lead"), format!("max(timestamp({selector} offset -5m))")),
        ];
        stamps.into_iter().chain(doubts)
    });
    let named = |(name, part)| format!(r#"label_replace({part},"{LABEL}","{name}","","")"#);
    let value = (VALUE.to_owned(), value);
    std::iter::once(value).chain(parts).map(named).collect::<Vec<_>>().join(" or ")
}

/// Whether a row is one of the query itself.
pub fn is_value(row: &Row) -> bool {
    row.label(LABEL) == Some(VALUE)
}

/// What is known about the stamps of one selector, in seconds since 1970 by the
/// clock of the Prometheus.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stamps {
    evaluated: f64,
    /// The newest sample of the series that is furthest behind.
    stamped: Option<f64>,
    /// The last scrape of the target that is furthest behind.
    scraped: Option<f64>,
    /// The newest sample of all, if it is in the future.
    newest: Option<f64>,
    /// Samples are in the future by more than a clock may be ahead.
    is_ahead: bool,
    /// Series ended a short while ago. Asked for exact conditions alone.
    pub has_ended: bool,
    /// A series is not a number. The same.
    pub is_undefined: bool,
    /// The labels, if there are any, and the value of a series that is negative. The same.
    pub negative: Option<(Option<String>, f64)>,
    /// How many series there are. The same.
    count: Option<f64>,
}

impl Stamps {
    /// What a response says about so many selectors.
    pub fn read(selectors: usize, rows: &[Row]) -> Vec<Stamps> {
        let mut all = vec![Stamps::default(); selectors];
        for row in rows.iter().filter(|row| !row.value.is_nan()) {
            let label = row.label(LABEL).unwrap_or_default();
            let (place, part) = label.split_once(' ').unwrap_or((label, ""));
            let place = place.parse::<usize>().ok();
            let Some(stamps) = place.and_then(|at| all.get_mut(at)) else { continue };
            stamps.evaluated = row.at_secs;
            match part {
                "negative" => stamps.negative = Some((row.named(LABEL), row.value)),
                _ if row.value.is_infinite() => {}
                "" => stamps.stamped = Some(row.value),
                "scraped" => stamps.scraped = Some(row.value),
                "ended" => stamps.has_ended = true,
                "undefined" => stamps.is_undefined = true,
                "count" => stamps.count = Some(row.value),
                "ahead" => stamps.is_ahead = true,
                "lead" if row.value > row.at_secs => stamps.newest = Some(row.value),
                _ => {}
            }
        }
        all
    }

    /// How old the newest samples are at the most; `None`: no series lives.
    pub fn age(&self) -> Option<Millis> {
        let stamped = self.stamped?;
        let scraped = self.scraped.unwrap_or(stamped);
        let age = (self.evaluated - stamped.min(scraped)).max(0.0);
        Some(Millis(((age + self.doubt()) * 1000.0) as u64))
    }

    /// How much older samples may be than their stamps say.
    fn doubt(&self) -> f64 {
        let tolerated = AHEAD_MAX.as_secs_f64();
        match (self.newest, self.scraped) {
            // The sample that is in the future was taken before the last scrape
            // ended, and the one before it has a stamp by the same clock.
            (Some(newest), Some(scraped)) => tolerated.max(newest - scraped),
            (Some(_), None) => tolerated,
            // Stamped by the Prometheus itself.
            (None, _) if self.scraped == self.stamped => 0.0,
            (None, _) => tolerated,
        }
    }

    /// How far samples are in the future, if that is known.
    fn lead(&self) -> Option<Millis> {
        let secs = self.newest? - self.evaluated;
        Some(whole_secs(Millis((secs * 1000.0) as u64)))
    }
}

/// Which selectors had samples in the future a while ago. An exporter that ends
/// leaves such samples behind, and each of them is "now" at some time.
#[derive(Debug, Default)]
pub struct Memory {
    seen: HashMap<String, (Instant, Option<Millis>)>,
    /// How many series selectors of exact conditions had since when, the newest last.
    counts: HashMap<String, VecDeque<(Instant, f64)>>,
}

impl Memory {
    /// An error if this selector had more series within so long. A Prometheus that was
    /// started anew has not scraped all of them yet, and knows of none before.
    pub fn miss(
        &mut self,
        selector: &str,
        stamps: &Stamps,
        within: Millis,
        now: Instant,
    ) -> Result<(), NoValue> {
        let Some(count) = stamps.count else { return Ok(()) };
        let is_within =
            |at: Instant, span: Millis| now.duration_since(at).as_millis() <= u128::from(span.0);
        if !self.counts.contains_key(selector) && self.counts.len() >= REMEMBERED_MAX {
            self.counts.retain(|_, own| own.back().is_some_and(|(at, _)| is_within(*at, DISTRUST)));
        }
        let own = self.counts.entry(selector.to_owned()).or_default();
        // Each was so until the next.
        while own.get(1).is_some_and(|(at, _)| !is_within(*at, DISTRUST)) {
            own.pop_front();
        }
        let until = own.iter().skip(1).map(|(at, _)| *at).chain([now]);
        let seen = own.iter().zip(until).filter(|(_, until)| is_within(*until, within));
        let most = seen.map(|((_, count), _)| *count).fold(0.0, f64::max);
        if own.back().is_none_or(|(_, last)| *last != count) && own.len() < COUNTS_MAX {
            own.push_back((now, count));
        }
        match count < most {
            true => Err(NoValue::Vanished { selector: selector.to_owned(), within }),
            false => Ok(()),
        }
    }

    /// An error if samples of this selector are, or were, in the future.
    pub fn judge(&mut self, selector: &str, stamps: &Stamps, now: Instant) -> Result<(), NoValue> {
        let ahead =
            |lead, is_past| Err(NoValue::Ahead { selector: selector.to_owned(), lead, is_past });
        if stamps.is_ahead {
            let distrust = Duration::from_millis(DISTRUST.0);
            self.seen.retain(|_, (at, _)| now.duration_since(*at) < distrust);
            if self.seen.len() < REMEMBERED_MAX {
                self.seen.insert(selector.to_owned(), (now, stamps.lead()));
            }
            return ahead(stamps.lead(), false);
        }
        match self.seen.get(selector) {
            Some((at, lead)) if now.duration_since(*at).as_millis() < u128::from(DISTRUST.0) => {
                ahead(*lead, true)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(stamped: f64, scraped: Option<f64>, newest: Option<f64>) -> Stamps {
        Stamps { evaluated: 1000.0, stamped: Some(stamped), scraped, newest, ..Stamps::default() }
    }

    #[track_caller]
    fn check(stamps: &Stamps, age: u64) {
        assert_eq!(stamps.age(), Some(Millis(age)), "{stamps:?}");
    }

    #[test]
    fn what_prometheus_stamped_is_as_old_as_it_says() {
        check(&stamps(990.0, Some(990.0), None), 10_000);
        assert_eq!(Stamps::default().age(), None);
    }

    #[test]
    fn what_another_clock_stamped_may_be_older_than_it_says() {
        check(&stamps(990.0, None, None), 11_000);
        check(&stamps(990.0, Some(995.0), None), 11_000);
        check(&stamps(995.0, Some(990.0), None), 11_000);
        check(&stamps(1003.0, None, None), 1000);
    }

    /// Scraped every 4 s, the last time at 998, by a clock that is 2.5 s ahead: the
    /// sample that is seen is stamped 996.5 and was taken at 994.
    #[test]
    fn a_sample_before_one_in_the_future_is_as_much_ahead() {
        check(&stamps(996.5, Some(998.0), Some(1000.5)), 6000);
        check(&stamps(999.9, Some(999.9), Some(1000.5)), 1100);
        check(&stamps(999.5, None, Some(1000.5)), 1500);
    }

    #[test]
    fn fewer_series_than_a_short_while_ago_are_not_all() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let of = |count| Stamps { count: Some(count), ..Stamps::default() };
        let mut miss = |count, secs| {
            let now = start + Duration::from_secs(secs);
            memory.miss("lag", &of(count), Millis::from_secs(30), now).is_err()
        };
        assert_eq!([miss(2.0, 0), miss(2.0, 50), miss(1.0, 51)], [false, false, true]);
        assert_eq!([miss(1.0, 81), miss(1.0, 82)], [true, false], "so it was until 51");
        assert_eq!([miss(3.0, 90), miss(2.0, 91), miss(3.0, 92)], [false, true, false]);
        let within = Millis::from_secs(30);
        assert!(memory.miss("other", &of(1.0), within, start).is_ok());
        assert!(memory.miss("lag", &Stamps::default(), within, start).is_ok(), "nobody asked");
    }

    #[test]
    fn samples_that_were_in_the_future_are_remembered_as_long_as_they_can_be_seen() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let ahead = Stamps { is_ahead: true, ..stamps(999.0, None, Some(1030.0)) };
        let honest = stamps(999.0, None, None);
        let later = |secs: u64| start + Duration::from_secs(secs);
        assert_eq!(memory.judge("a", &honest, later(0)), Ok(()));
        let lead = Some(Millis::from_secs(30));
        let refused = |is_past| Err(NoValue::Ahead { selector: "a".into(), lead, is_past });
        assert_eq!(memory.judge("a", &ahead, later(0)), refused(false));
        assert_eq!(memory.judge("b", &honest, later(1)), Ok(()), "another exporter");
        assert_eq!(memory.judge("a", &honest, later(299)), refused(true));
        assert_eq!(memory.judge("a", &honest, later(300)), Ok(()));
    }
}
