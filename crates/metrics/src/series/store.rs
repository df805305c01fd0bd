//! The store: a ring of samples for each series.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use drain::{Millis, Time};

use super::Labels;

/// The bits of the one NaN that says that a series ended. No text can be parsed
/// to it, so no service can say it.
const END_BITS: u64 = 0x7ff0_0000_0000_0002;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub series_max: usize,
    /// Of each series.
    pub samples_max: usize,
    /// How long a sample is kept, and a series behind its end.
    pub keep: Millis,
}

impl Default for Bounds {
    /// An hour at a sample each 10 seconds; 60 MB if all of it is used.
    fn default() -> Self {
        Bounds { series_max: 10_000, samples_max: 360, keep: Millis::from_secs(3600) }
    }
}

/// A value and when it was so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at: Time,
    pub value: f64,
}

impl Sample {
    fn end(at: Time) -> Self {
        Sample { at, value: f64::from_bits(END_BITS) }
    }

    /// Whether this is no value but the end of its series.
    pub fn is_end(&self) -> bool {
        self.value.to_bits() == END_BITS
    }
}

/// What was not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Series that had ended, dropped early to make room for others.
    pub series_dropped: u64,
    /// New series for which there was no room.
    pub series_refused: u64,
    /// Samples that were not newer than the last of their series.
    pub samples_late: u64,
}

/// Series and their newest samples.
///
/// When it is full, a new series takes the place of the one that ended the
/// longest ago. If none has ended it is refused: were a live one dropped for
/// it, the two would push each other out at every scrape, and neither would
/// ever have two samples in a row.
///
/// A clone shares the samples of every series that does not change after it, so a
/// query can be evaluated over one while the other is written to.
#[derive(Clone, Debug)]
pub struct Store {
    bounds: Bounds,
    series: BTreeMap<u64, Series>,
    ids: HashMap<Arc<Labels>, u64>,
    names: HashMap<String, BTreeSet<u64>>,
    /// Series that ended, by when.
    ended: BTreeSet<(Time, u64)>,
    next: u64,
    counts: Counts,
    /// When the last one ended of those that were dropped early.
    dropped_end: Option<Time>,
}

#[derive(Clone, Debug)]
struct Series {
    labels: Arc<Labels>,
    samples: Arc<VecDeque<Sample>>,
}

impl Store {
    pub fn new(bounds: Bounds) -> Self {
        assert!(bounds.samples_max >= 2, "a rate needs two samples");
        Store {
            bounds,
            series: BTreeMap::new(),
            ids: HashMap::new(),
            names: HashMap::new(),
            ended: BTreeSet::new(),
            next: 0,
            counts: Counts::default(),
            dropped_end: None,
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// When the last series ended of those that were dropped to make room for others:
    /// that any ended up to then may not be known any more.
    pub fn dropped_end(&self) -> Option<Time> {
        self.dropped_end
    }

    /// How many series there are.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// How many series there would be that have not ended, with all of these. Above
    /// `series_max` some of them would be refused.
    pub fn live_with<'a>(&self, series: impl IntoIterator<Item = &'a Labels>) -> usize {
        let live = self.series.len() - self.ended.len();
        live + series.into_iter().filter(|labels| !self.is_live(labels)).count()
    }

    fn is_live(&self, labels: &Labels) -> bool {
        let series = self.ids.get(labels).and_then(|id| self.series.get(id));
        let last = series.and_then(|series| series.samples.back());
        last.is_some_and(|last| !last.is_end())
    }

    /// Adds a value to a series, which may be new; false if there is no room.
    pub fn append(&mut self, labels: &Labels, at: Time, value: f64) -> bool {
        let id = match self.ids.get(labels) {
            Some(id) => *id,
            None => match self.admit(labels) {
                Some(id) => id,
                None => return false,
            },
        };
        self.push(id, Sample { at, value });
        true
    }

    /// Ends a series: from now on it has no value. Its samples stay for ranges.
    pub fn end(&mut self, labels: &Labels, at: Time) {
        if let Some(id) = self.ids.get(labels) {
            self.push(*id, Sample::end(at));
        }
    }

    /// Forgets series that ended before all that is kept.
    pub fn forget(&mut self, now: Time) {
        while let Some((at, id)) = self.ended.first().copied() {
            if now - at <= self.bounds.keep {
                return;
            }
            self.remove(id);
        }
    }

    /// All series, or those of one metric, each with its samples in order of time.
    pub fn select<'a>(
        &'a self,
        name: Option<&str>,
    ) -> Box<dyn Iterator<Item = (&'a Labels, &'a VecDeque<Sample>)> + 'a> {
        let entry = |series: &'a Series| (&*series.labels, &*series.samples);
        match name {
            None => Box::new(self.series.values().map(entry)),
            Some(name) => {
                let ids = self.names.get(name).into_iter().flatten();
                Box::new(ids.filter_map(|id| self.series.get(id)).map(entry))
            }
        }
    }

    fn push(&mut self, id: u64, sample: Sample) {
        let Some(series) = self.series.get_mut(&id) else { return };
        if let Some(last) = series.samples.back().copied() {
            if sample.at <= last.at {
                self.counts.samples_late += 1;
                return;
            }
            if last.is_end() {
                self.ended.remove(&(last.at, id));
            }
        }
        let samples = Arc::make_mut(&mut series.samples);
        let is_full = |samples: &VecDeque<Sample>| samples.len() >= self.bounds.samples_max;
        let is_old = |first: &Sample| sample.at - first.at > self.bounds.keep;
        while is_full(samples) || samples.front().is_some_and(is_old) {
            samples.pop_front();
        }
        samples.push_back(sample);
        if sample.is_end() {
            self.ended.insert((sample.at, id));
        }
    }

    /// Makes a series without samples, if there is room or room can be made.
    fn admit(&mut self, labels: &Labels) -> Option<u64> {
        if self.series.len() >= self.bounds.series_max {
            let Some((at, oldest)) = self.ended.first().copied() else {
                self.counts.series_refused += 1;
                return None;
            };
            self.remove(oldest);
            self.dropped_end = self.dropped_end.max(Some(at));
            self.counts.series_dropped += 1;
        }
        let id = self.next;
        self.next += 1;
        let labels = Arc::new(labels.clone());
        self.names.entry(labels.name().to_owned()).or_default().insert(id);
        self.ids.insert(labels.clone(), id);
        self.series.insert(id, Series { labels, samples: Arc::default() });
        Some(id)
    }

    fn remove(&mut self, id: u64) {
        let Some(series) = self.series.remove(&id) else { return };
        self.ids.remove(&series.labels);
        if let Some(last) = series.samples.back() {
            self.ended.remove(&(last.at, id));
        }
        let name = series.labels.name();
        if let Some(ids) = self.names.get_mut(name) {
            ids.remove(&id);
            if ids.is_empty() {
                self.names.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::NAME;
    use proptest::prelude::*;

    fn labels(name: &str) -> Labels {
        Labels::new(vec![(NAME.into(), name.into())]).unwrap()
    }

    fn small() -> Store {
        Store::new(Bounds { series_max: 2, samples_max: 3, keep: Millis(100) })
    }

    fn names(store: &Store) -> Vec<&str> {
        store.select(None).map(|(labels, _)| labels.name()).collect()
    }

    #[test]
    fn a_full_store_drops_what_ended_first_and_refuses_else() {
        let mut store = small();
        assert!(store.append(&labels("a"), Time(1), 1.0));
        assert!(store.append(&labels("b"), Time(1), 1.0));
        assert!(!store.append(&labels("c"), Time(2), 1.0));
        store.end(&labels("b"), Time(3));
        store.end(&labels("a"), Time(4));
        assert!(store.append(&labels("c"), Time(5), 1.0));
        assert_eq!(names(&store), ["a", "c"]);
        assert_eq!(store.dropped_end(), Some(Time(3)));
        assert!(store.append(&labels("d"), Time(5), 1.0));
        assert_eq!(names(&store), ["c", "d"]);
        let expected = Counts { series_dropped: 2, series_refused: 1, samples_late: 0 };
        assert_eq!(store.counts(), expected);
    }

    #[test]
    fn series_that_have_ended_take_no_room() {
        let mut store = small();
        store.append(&labels("a"), Time(1), 1.0);
        store.append(&labels("b"), Time(1), 1.0);
        let live = |store: &Store, names: &[&str]| {
            let names: Vec<Labels> = names.iter().map(|name| labels(name)).collect();
            store.live_with(&names)
        };
        assert_eq!(live(&store, &["a", "b"]), 2);
        assert_eq!(live(&store, &["a", "c"]), 3);
        store.end(&labels("b"), Time(2));
        assert_eq!(live(&store, &["a", "c"]), 2);
        assert_eq!(live(&store, &["b", "c"]), 3);
        assert!(store.append(&labels("c"), Time(3), 1.0));
    }

    #[test]
    fn a_series_that_comes_back_is_not_dropped() {
        let mut store = small();
        store.append(&labels("a"), Time(1), 1.0);
        store.end(&labels("a"), Time(2));
        store.append(&labels("a"), Time(3), 1.0);
        store.append(&labels("b"), Time(3), 1.0);
        assert!(!store.append(&labels("c"), Time(4), 1.0));
        store.forget(Time(1000));
        assert_eq!(store.len(), 2);
    }

    #[test]
    fn what_ended_long_ago_is_forgotten() {
        let mut store = small();
        store.append(&labels("a"), Time(1), 1.0);
        store.end(&labels("a"), Time(2));
        store.forget(Time(102));
        assert_eq!(store.len(), 1);
        store.forget(Time(103));
        assert!(store.is_empty());
        assert_eq!(store.select(Some("a")).count(), 0);
    }

    #[test]
    fn a_clone_does_not_change_with_its_original() {
        let mut store = small();
        store.append(&labels("a"), Time(1), 1.0);
        store.append(&labels("b"), Time(1), 1.0);
        let clone = store.clone();
        store.append(&labels("a"), Time(2), 2.0);
        store.end(&labels("b"), Time(2));
        store.append(&labels("c"), Time(3), 3.0);
        let values = |store: &Store, name| {
            let (_, samples) = store.select(Some(name)).next().unwrap();
            samples.iter().map(|sample| sample.value).collect::<Vec<_>>()
        };
        assert_eq!(values(&clone, "a"), [1.0]);
        assert_eq!((values(&store, "a"), names(&store)), (vec![1.0, 2.0], vec!["a", "c"]));
        assert_eq!(names(&clone), ["a", "b"]);
    }

    #[test]
    fn late_samples_are_counted_and_not_kept() {
        let mut store = small();
        for at in [5, 5, 4, 6] {
            store.append(&labels("a"), Time(at), at as f64);
        }
        let (_, samples) = store.select(Some("a")).next().unwrap();
        assert_eq!(samples.iter().map(|sample| sample.at.0).collect::<Vec<_>>(), [5, 6]);
        assert_eq!(store.counts().samples_late, 2);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(u8),
        End(u8),
        Forget,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u8..12).prop_map(Step::Append),
            (0u8..12).prop_map(Step::End),
            Just(Step::Forget),
        ]
    }

    proptest! {
        #[test]
        fn bounds_hold_whatever_comes(steps in prop::collection::vec((0u64..40, step()), 0..200)) {
            let bounds = Bounds { series_max: 5, samples_max: 4, keep: Millis(60) };
            let (mut store, mut now) = (Store::new(bounds), Time(0));
            for (pause, step) in steps {
                now = now + Millis(pause);
                match step {
                    Step::Append(which) => {
                        store.append(&labels(&format!("m{which}")), now, 1.0);
                    }
                    Step::End(which) => store.end(&labels(&format!("m{which}")), now),
                    Step::Forget => store.forget(now),
                }
                prop_assert!(store.len() <= bounds.series_max);
                prop_assert_eq!(store.ids.len(), store.len());
                prop_assert_eq!(store.names.values().map(BTreeSet::len).sum::<usize>(), store.len());
                let ended = store.series.iter().filter(|(_, series)| {
                    series.samples.back().is_some_and(Sample::is_end)
                });
                prop_assert_eq!(ended.count(), store.ended.len());
                for (_, samples) in store.select(None) {
                    prop_assert!(!samples.is_empty() && samples.len() <= bounds.samples_max);
                    prop_assert!(samples.iter().zip(samples.iter().skip(1)).all(|(a, b)| a.at < b.at));
                    let (first, last) = (samples.front().unwrap(), samples.back().unwrap());
                    prop_assert!(last.at - first.at <= bounds.keep);
                }
            }
        }
    }
}
