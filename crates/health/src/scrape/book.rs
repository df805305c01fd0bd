//! What targets said: their series in the store, and which of them are alive.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use drain::{Millis, Time};

use crate::exposition::Line;
use crate::freshness::{AHEAD_MAX, DISTRUST};
use crate::secrets::Secrets;
use crate::series::{Bounds, Labels, NAME, Store};
use crate::{NoValue, whole_secs};

/// When a page was read.
#[derive(Clone, Copy, Debug)]
pub struct Scrape {
    pub began: Time,
    pub ended: Time,
    /// The time of day at its end, which stamps are compared with. It may have
    /// been set since our own clock started.
    pub ended_of_day: Time,
}

impl Scrape {
    /// How far a stamp is ahead of the end of the scrape.
    fn lead(&self, stamp: Time) -> Millis {
        stamp - self.ended_of_day
    }

    /// When a sample was taken, by our own clock, and no later than is certain:
    /// never after the scrape began, and as much before its stamp as a clock may
    /// be ahead.
    fn taken(&self, stamp: Time) -> Time {
        let age = (self.ended_of_day + AHEAD_MAX) - stamp;
        Time(self.ended.0.saturating_sub(age.0)).min(self.began)
    }
}

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

impl Standing {
    /// Why what it would say is not known.
    pub(super) fn into_doubt(self) -> Option<NoValue> {
        let (page, why) = ("a page".into(), "it was not asked for yet".into());
        match self {
            Standing::Unknown => Some(NoValue::Unread { page, why }),
            other => other.into_trouble(),
        }
    }
}

#[derive(Debug)]
pub struct Book {
    /// Shared with the evaluations under way, which see what it was when they began.
    store: Arc<Store>,
    series_max: usize,
    targets: Vec<Pages>,
    standings: Vec<Standing>,
}

/// What one target shows.
#[derive(Debug)]
struct Pages {
    /// `job` and `instance`.
    labels: Vec<(String, String)>,
    /// The series of its last page, with the stamps there.
    alive: HashMap<Labels, Option<i64>>,
    /// When a stamp was in the future, for the last time.
    ahead: Option<Ahead>,
}

/// A stamp that was in the future.
#[derive(Debug)]
struct Ahead {
    seen: Time,
    series: String,
    lead: Millis,
}

impl Book {
    pub fn new(bounds: Bounds, targets: Vec<Vec<(String, String)>>) -> Self {
        let standings = vec![Standing::Unknown; targets.len()];
        let pages = |labels| Pages { labels, alive: HashMap::new(), ahead: None };
        let targets = targets.into_iter().map(pages).collect();
        let series_max = bounds.series_max;
        Book { store: Arc::new(Store::new(bounds)), series_max, targets, standings }
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    pub fn standings(&self) -> &[Standing] {
        &self.standings
    }

    /// Whether a page can be taken, whole, and proves anything.
    pub fn admit(
        &mut self,
        target: usize,
        scrape: Scrape,
        lines: &[Line],
        secrets: &Secrets,
    ) -> Result<(), String> {
        self.check_room(target, lines)?;
        self.check_stamps(target, scrape, lines, secrets)
    }

    /// Whether all series of a page have room, besides what tells of every target
    /// whether it is up. Without one of them the others would speak for it.
    fn check_room(&self, target: usize, lines: &[Line]) -> Result<(), String> {
        let own = &self.targets[target].labels;
        let page = lines.iter().map(|line| line.labels.under(own));
        let ups = self.targets.iter().map(|pages| up(&pages.labels));
        let series: HashSet<Labels> = page.chain(ups).collect();
        let live = self.store.live_with(&series);
        if live <= self.series_max {
            return Ok(());
        }
        Err(format!(
            "no room for its page: all targets would have {live} series with it; accepted: at \
             most {}; let exporters show fewer, or use a Prometheus",
            self.series_max
        ))
    }

    /// Whether the stamps of a page prove anything. An exporter that is ahead can
    /// show what is old for new, also a while after: it may keep what it stamped.
    fn check_stamps(
        &mut self,
        target: usize,
        scrape: Scrape,
        lines: &[Line],
        secrets: &Secrets,
    ) -> Result<(), String> {
        let pages = &mut self.targets[target];
        let stamped = lines.iter().filter_map(|line| Some((scrape.lead(stamp(line)?), line)));
        let Some((lead, line)) = stamped.max_by_key(|(lead, _)| *lead) else { return Ok(()) };
        if lead > AHEAD_MAX {
            let (seen, lead) = (scrape.ended, whole_secs(lead));
            let series = secrets.excerpt(&line.labels.to_string());
            let ahead = pages.ahead.insert(Ahead { seen, series, lead });
            return Err(ahead.complaint("is", ""));
        }
        match &pages.ahead {
            Some(ahead) if scrape.ended - ahead.seen < DISTRUST => {
                Err(ahead.complaint("was", &format!(" less than {DISTRUST} ago")))
            }
            _ => Ok(()),
        }
    }

    /// Takes a page of a target that was admitted. Series that are not on it any more end.
    pub fn read(&mut self, target: usize, scrape: Scrape, lines: &[Line]) {
        let (pages, now) = (&mut self.targets[target], scrape.began);
        let store = Arc::make_mut(&mut self.store);
        let own = up(&pages.labels);
        store.append(&own, now, 1.0);
        let mut alive = HashMap::with_capacity(lines.len());
        for line in lines {
            let labels = line.labels.under(&pages.labels);
            if labels == own {
                continue;
            }
            // With the same stamp it is the same sample.
            let known = pages.alive.get(&labels);
            let is_known = line.at_millis.is_some() && known == Some(&line.at_millis);
            let at = stamp(line).map_or(now, |stamp| scrape.taken(stamp));
            if is_known || store.append(&labels, at, line.value) {
                alive.insert(labels, line.at_millis);
            }
        }
        for ended in pages.alive.keys().filter(|labels| !alive.contains_key(labels)) {
            store.end(ended, now);
        }
        pages.alive = alive;
        store.forget(now);
        self.standings[target] = Standing::Up { samples: lines.len() };
    }

    /// A target did not answer: all of its series end.
    pub fn lost(&mut self, target: usize, now: Time, name: &str, why: String) {
        let pages = &mut self.targets[target];
        let store = Arc::make_mut(&mut self.store);
        for (ended, _) in pages.alive.drain() {
            store.end(&ended, now);
        }
        store.append(&up(&pages.labels), now, 0.0);
        store.forget(now);
        self.standings[target] = Standing::Down { name: name.to_owned(), why };
    }
}

impl Ahead {
    fn complaint(&self, verb: &str, ago: &str) -> String {
        let Ahead { series, lead, .. } = self;
        format!(
            "{series} {verb} stamped {lead} in the future by its exporter{ago}; accepted: at most \
             {AHEAD_MAX}, or no stamp"
        )
    }
}

/// The stamp of a line, if it has one. There was nothing before 1970.
fn stamp(line: &Line) -> Option<Time> {
    line.at_millis.map(|millis| Time(u64::try_from(millis).unwrap_or(0)))
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

    /// A scrape that took no time.
    fn at(millis: u64) -> Scrape {
        let now = Time(millis);
        Scrape { began: now, ended: now, ended_of_day: now }
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
        book.read(0, at(1000), &lines("m{x=\"1\"} 1\nm{x=\"2\"} 2\n"));
        book.read(1, at(1000), &lines("m 3\n"));
        check(&book, 1500, "m", &[1.0, 2.0, 3.0]);
        check(&book, 1500, "up", &[1.0, 1.0]);
        book.read(0, at(2000), &lines("m{x=\"2\"} 4\n"));
        check(&book, 2500, "m", &[3.0, 4.0]);
        book.lost(1, Time(3000), "b", "gone".into());
        check(&book, 3500, "m", &[4.0]);
        check(&book, 3500, "up", &[0.0, 1.0]);
        check(&book, 3500, "m offset 1s", &[3.0, 4.0]);
        assert_eq!(book.standings()[0], Standing::Up { samples: 1 });
        assert!(matches!(&book.standings()[1], Standing::Down { why, .. } if why == "gone"));
        book.read(1, at(4000), &lines("m 5\n"));
        check(&book, 4500, "m", &[4.0, 5.0]);
    }

    /// The largest lag of those that have room is not the largest lag.
    #[test]
    fn a_page_without_room_for_all_of_its_series_is_refused() {
        let target = |name: &str| vec![("instance".to_owned(), name.to_owned())];
        let bounds = Bounds { series_max: 5, ..Bounds::default() };
        let mut book = Book::new(bounds, vec![target("a"), target("b")]);
        let (small, large) = (lines("m{x=\"1\"} 1\nm{x=\"2\"} 2\n"), lines("m 3\nn 4\n"));
        // What tells of the other target whether it is up has room already.
        assert!(
            book.admit(0, at(1000), &lines("m 1\nn 1\no 1\np 1\n"), &Secrets::default()).is_err()
        );
        assert_eq!(book.admit(0, at(1000), &small, &Secrets::default()), Ok(()));
        book.read(0, at(1000), &small);
        assert_eq!(
            book.admit(1, at(1000), &large, &Secrets::default()),
            Err(
                "no room for its page: all targets would have 6 series with it; accepted: at most \
                 5; let exporters show fewer, or use a Prometheus"
                    .into()
            )
        );
        book.lost(1, Time(1000), "b", "no room".into());
        check(&book, 1500, "up", &[0.0, 1.0]);
        // A page that was admitted is admitted again, and what has ended takes no room.
        assert_eq!(book.admit(0, at(2000), &small, &Secrets::default()), Ok(()));
        book.read(0, at(2000), &lines("m{x=\"2\"} 2\n"));
        assert_eq!(book.admit(1, at(2000), &large, &Secrets::default()), Ok(()));
        book.read(1, at(2000), &large);
        check(&book, 2500, "m", &[2.0, 3.0]);
    }

    #[test]
    fn two_targets_cannot_speak_for_each_other() {
        let mut book = book();
        book.read(0, at(1000), &lines("m{instance=\"b\"} 1\nup{instance=\"b\"} 7\nup 7\n"));
        check(&book, 1500, "m{instance=\"b\"}", &[]);
        check(&book, 1500, "m{exported_instance=\"b\"}", &[1.0]);
        check(&book, 1500, "up{instance=\"b\"}", &[]);
        check(&book, 1500, "up{exported_instance=\"\"}", &[1.0]);
    }

    #[test]
    fn a_page_with_a_stamp_in_the_future_is_refused_for_as_long_as_it_could_be_seen() {
        let mut book = book();
        let mut admit =
            |millis: u64, page: &str| book.admit(0, at(millis), &lines(page), &Secrets::default());
        assert_eq!(admit(100_000, "m 1 101000\no 1 90000\np 1 -5\nq 1\n"), Ok(()));
        let accepted = "accepted: at most 1s, or no stamp";
        assert_eq!(
            admit(100_000, "m 1 101000\nn{x=\"1\"} 1 101001\n"),
            Err(format!("n{{x=\"1\"}} is stamped 2s in the future by its exporter; {accepted}"))
        );
        let was = "n{x=\"1\"} was stamped 2s in the future by its exporter less than 5m ago";
        assert_eq!(admit(399_999, "m 1 300000\n"), Err(format!("{was}; {accepted}")));
        assert_eq!(admit(399_999, "m 1\n"), Ok(()), "what has no stamp was taken now");
        assert_eq!(admit(400_000, "m 1 300000\n"), Ok(()));
    }

    /// When the newest sample of a metric was taken.
    fn newest(book: &Book, now: u64, metric: &str) -> Option<Time> {
        Query::parse(metric).unwrap().newest(&book.store, Time(now))
    }

    #[test]
    fn a_sample_is_never_newer_than_its_scrape_or_than_its_stamp_proves() {
        let mut book = book();
        let scrape = Scrape { ended: Time(100_400), ended_of_day: Time(100_400), ..at(100_000) };
        book.read(0, scrape, &lines("plain 1\nahead 1 101300\nduring 1 100300\nold 1 70000\n"));
        let taken = |metric| newest(&book, 101_000, metric);
        assert_eq!(taken("plain"), Some(Time(100_000)));
        assert_eq!(taken("ahead"), Some(Time(100_000)));
        assert_eq!(taken("during"), Some(Time(99_300)));
        assert_eq!(taken("old"), Some(Time(69_000)));
    }

    /// As when a machine starts with a wrong clock, or was asleep.
    #[test]
    fn a_time_of_day_that_was_set_changes_no_age() {
        let mut book = book();
        let set = |millis: u64| Scrape { ended_of_day: Time(millis + 50_000), ..at(millis) };
        let page = lines("m 1 145000\n");
        assert_eq!(book.admit(0, set(100_000), &page, &Secrets::default()), Ok(()));
        book.read(0, set(100_000), &page);
        assert_eq!(newest(&book, 100_000, "m"), Some(Time(94_000)));
        let page = lines("m 1 151500\n");
        assert!(book.admit(0, set(100_000), &page, &Secrets::default()).is_err());
    }

    #[test]
    fn a_sample_that_is_shown_again_is_no_new_sample() {
        let mut book = book();
        book.read(0, at(100_000), &lines("m 1 90000\n"));
        // The two clocks are not read at the same millisecond.
        let scrape = Scrape { ended_of_day: Time(104_999), ..at(105_000) };
        book.read(0, scrape, &lines("m 1 90000\n"));
        check(&book, 105_000, "count_over_time(m[1m])", &[1.0]);
        check(&book, 105_000, "m", &[1.0]);
    }

    #[test]
    fn a_query_finds_nothing_that_is_too_old() {
        let mut book = book();
        book.read(0, at(1000), &lines("m 1\n"));
        check(&book, 300_999, "m", &[1.0]);
        check(&book, 301_000, "m", &[]);
        check(&book, 301_000, "absent(m)", &[1.0]);
    }
}
