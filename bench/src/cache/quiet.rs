//! Which parts of a run the machine was left alone in.
//!
//! On a shared host the hypervisor takes the cores away now and then, for milliseconds. Such
//! pauses say nothing about a cache, and at the 99th percentile they are all that is seen. So
//! latencies are taken from the spans in which no time was stolen.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::load::{Histogram, SPAN, Span};
use crate::measure::read_stolen_ticks;
use crate::process::{LOAD_CORE, SERVER_CORE};

/// Fewer quiet spans than this share say too little: then all of them count.
const SHARE_MIN: f64 = 0.10;

/// Runs `work` and counts the stolen time at the end of each of its spans.
pub fn watch<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<u64>)> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| count(&ended));
        let done = work();
        ended.store(true, Ordering::Relaxed);
        let counts = watcher.join().expect("reading a file does not panic")?;
        Ok((done?, counts))
    })
}

fn count(ended: &AtomicBool) -> Result<Vec<u64>> {
    let read = || read_stolen_ticks(&[SERVER_CORE, LOAD_CORE]);
    let started = Instant::now();
    let mut counts = vec![read()?];
    while !ended.load(Ordering::Relaxed) {
        let due = started + SPAN * counts.len() as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        if Instant::now() >= due {
            counts.push(read()?);
        }
    }
    Ok(counts)
}

/// The latencies of quiet spans, and what share of all spans these are.
///
/// An answer may come after a pause that began in the span before, so that one must have been
/// quiet too.
pub fn latencies(spans: &[Span], counts: &[u64]) -> (Histogram, f64) {
    let is_quiet = |index: usize| {
        let (from, to) = (counts.get(index.saturating_sub(1)), counts.get(index + 1));
        matches!((from, to), (Some(from), Some(to)) if from == to)
    };
    let quiet: Vec<&Span> =
        spans.iter().enumerate().filter(|(index, _)| is_quiet(*index)).map(|(_, it)| it).collect();
    let share = quiet.len() as f64 / spans.len().max(1) as f64;
    let mut histogram = Histogram::default();
    if share < SHARE_MIN {
        spans.iter().for_each(|span| histogram.merge(&span.latencies));
        return (histogram, 1.0);
    }
    quiet.iter().for_each(|span| histogram.merge(&span.latencies));
    (histogram, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(latency_us: u64) -> Span {
        let mut span = Span::default();
        span.latencies.add(Duration::from_micros(latency_us));
        span
    }

    #[test]
    fn spans_with_stolen_time_and_those_after_them_do_not_count() {
        let spans: Vec<Span> = [10, 5000, 4000, 20, 30].map(span).into();
        // Time was stolen in the second span.
        let (found, share) = latencies(&spans, &[7, 7, 9, 9, 9, 9]);
        assert_eq!((found.count(), share), (3, 0.6));
        assert!(found.latencies().max_us < 40.0);
    }

    #[test]
    fn all_count_if_hardly_any_is_quiet() {
        let spans: Vec<Span> = [10, 5000].map(span).into();
        let (found, share) = latencies(&spans, &[1, 2, 3]);
        assert_eq!((found.count(), share), (2, 1.0));
    }

    #[test]
    fn what_is_watched_is_done_and_counted() {
        let (done, counts) = watch(|| Ok(7)).unwrap();
        assert_eq!(done, 7);
        assert!(!counts.is_empty());
        assert!(watch(|| -> Result<()> { anyhow::bail!("no") }).is_err());
    }
}
