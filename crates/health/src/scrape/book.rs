//! What targets said: their series in the store, and which of them are alive.

use std::collections::HashSet;

use drain::{Millis, Time};

use crate::NoValue;
use crate::exposition::Line;
use crate::series::{Bounds, Labels, NAME, Store};

/// How far a target's clock may be ahead of ours.
const AHEAD_MAX: Millis = Millis::from_secs(10);

/// How a target is doing.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It was not asked yet.
    Unknown,
    Up {
        samples: usize,
    },
    Down {
        name: String,
        why: String,
    },
}

impl Standing {
    /// Why it has no values, if it is down.
    pub(super) fn into_trouble(self) -> Option<NoValue> {
        match self {
            Standing::Down { name, why } => Some(NoValue::Unread { page: name, why }),
            Standing::Unknown | Standing::Up { .. } => None,
        }
    }
}

#[derive(Debug)]
pub struct Book {
    store: Store,
    targets: Vec<Pages>,
    standings: Vec<Standing>,
}

/// What one target shows.
#[derive(Debug)]
struct Pages {
    /// `job` and `instance`.
    labels: Vec<(String, String)>,
    /// The series of its last page.
    alive: HashSet<Labels>,
}

impl Book {
    pub fn new(bounds: Bounds, targets: Vec<Vec<(String, String)>>) -> Self {
        let standings = vec![Standing::Unknown; targets.len()];
        let pages = |labels| Pages { labels, alive: HashSet::new() };
        let targets = targets.into_iter().map(pages).collect();
        Book { store: Store::new(bounds), targets, standings }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn standings(&self) -> &[Standing] {
        &self.standings
    }

    /// Takes a page of a target. Series that are not on it any more end.
    pub fn read(&mut self, target: usize, now: Time, lines: &[Line]) {
        let pages = &mut self.targets[target];
        let own = up(&pages.labels);
        self.store.append(&own, now, 1.0);
        let mut alive = HashSet::with_capacity(lines.len());
        for line in lines {
            let labels = line.labels.under(&pages.labels);
            let at = line.at_millis.map_or(now, |at| Time(u64::try_from(at).unwrap_or(0)));
            if at > now + AHEAD_MAX || labels == own {
                continue;
            }
            if self.store.append(&labels, at, line.value) {
                alive.insert(labels);
            }
        }
        for ended in pages.alive.difference(&alive) {
            self.store.end(ended, now);
        }
        pages.alive = alive;
        self.store.forget(now);
        self.standings[target] = Standing::Up { samples: lines.len() };
    }

    /// A target did not answer: all of its series end.
    pub fn lost(&mut self, target: usize, now: Time, name: &str, why: String) {
        let pages = &mut self.targets[target];
        for ended in pages.alive.drain() {
            self.store.end(&ended, now);
        }
        self.store.append(&up(&pages.labels), now, 0.0);
        self.store.forget(now);
        self.standings[target] = Standing::Down { name: name.to_owned(), why };
    }
}

/// The series that says whether a target answers, as Prometheus has it.
fn up(target: &[(String, String)]) -> Labels {
    let name = Labels::new(vec![(NAME.to_owned(), "up".to_owned())]);
    name.unwrap_or_default().under(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Format, PageBounds, read};
    use crate::query::Query;

    fn lines(page: &str) -> Vec<Line> {
        read(page.as_bytes(), Format::Text, PageBounds::default()).unwrap()
    }

    fn book() -> Book {
        let target = |name: &str| vec![("instance".to_owned(), name.to_owned())];
        Book::new(Bounds::default(), vec![target("a"), target("b")])
    }

    #[track_caller]
    fn check(book: &Book, now: u64, query: &str, expected: &[f64]) {
        let outcome = Query::parse(query).unwrap().evaluate(&book.store, Time(now)).unwrap();
        let mut values = outcome.values();
        values.sort_by(f64::total_cmp);
        assert_eq!(values, expected, "{query}");
    }

    #[test]
    fn series_end_with_their_page_and_their_target() {
        let mut book = book();
        book.read(0, Time(1000), &lines("m{x=\"1\"} 1\nm{x=\"2\"} 2\n"));
        book.read(1, Time(1000), &lines("m 3\n"));
        check(&book, 1500, "m", &[1.0, 2.0, 3.0]);
        check(&book, 1500, "up", &[1.0, 1.0]);
        book.read(0, Time(2000), &lines("m{x=\"2\"} 4\n"));
        check(&book, 2500, "m", &[3.0, 4.0]);
        book.lost(1, Time(3000), "b", "gone".into());
        check(&book, 3500, "m", &[4.0]);
        check(&book, 3500, "up", &[0.0, 1.0]);
        check(&book, 3500, "m offset 1s", &[3.0, 4.0]);
        assert_eq!(book.standings()[0], Standing::Up { samples: 1 });
        assert!(matches!(&book.standings()[1], Standing::Down { why, .. } if why == "gone"));
        book.read(1, Time(4000), &lines("m 5\n"));
        check(&book, 4500, "m", &[4.0, 5.0]);
    }

    #[test]
    fn two_targets_cannot_speak_for_each_other() {
        let mut book = book();
        book.read(0, Time(1000), &lines("m{instance=\"b\"} 1\nup{instance=\"b\"} 7\nup 7\n"));
        check(&book, 1500, "m{instance=\"b\"}", &[]);
        check(&book, 1500, "m{exported_instance=\"b\"}", &[1.0]);
        check(&book, 1500, "up{instance=\"b\"}", &[]);
        check(&book, 1500, "up{exported_instance=\"\"}", &[1.0]);
    }

    #[test]
    fn stamps_from_the_future_are_not_believed() {
        let mut book = book();
        book.read(0, Time(100_000), &lines("m 1 110000\nn 1 110001\no 1 90000\np 1 -5\n"));
        check(&book, 111_000, "m", &[1.0]);
        check(&book, 111_000, "n", &[]);
        check(&book, 100_000, "o", &[1.0]);
    }

    #[test]
    fn a_query_finds_nothing_that_is_too_old() {
        let mut book = book();
        book.read(0, Time(1000), &lines("m 1\n"));
        check(&book, 300_999, "m", &[1.0]);
        check(&book, 301_000, "m", &[]);
        check(&book, 301_000, "absent(m)", &[1.0]);
    }
}
