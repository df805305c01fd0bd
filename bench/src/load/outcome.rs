//! What came of a load.

use std::time::{Duration, Instant};

use super::histogram::Histogram;

/// Throughput over time is counted in spans of this length.
pub const SPAN: Duration = Duration::from_millis(100);
/// Spans kept; what comes later is counted in the last one.
const SPANS_MAX: usize = 6000;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub answers: u64,
    pub lost: u64,
    /// Answers that say that there is none: SERVFAIL or REFUSED where an address was expected.
    pub failed: u64,
    pub wrong: u64,
    /// Questions that a node refused and another one was asked.
    pub refused: u64,
    pub seconds: f64,
    /// What was wrong with the first wrong or failed answer.
    pub first_wrong: Option<String>,
    pub latencies: Histogram,
    /// How far behind its pace a question was sent at worst.
    pub late_max: Duration,
    /// The longest time without any answer.
    pub silence_max: Duration,
    /// By the time of the answers; only of runs that ask for it.
    pub spans: Vec<Span>,
}

/// The answers that came within one [`SPAN`].
#[derive(Clone, Debug, Default)]
pub struct Span {
    pub failed: u64,
    pub lost: u64,
    pub latencies: Histogram,
}

impl Outcome {
    pub fn answers_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.answers as f64 / self.seconds } else { 0.0 }
    }

    /// The first thing that should not have been, if anything was wrong.
    pub fn complaint(&self) -> Option<String> {
        let wrong = self.wrong + self.failed;
        let first = self.first_wrong.as_ref()?;
        Some(format!("{wrong} of {} answers are wrong; the first: {first}", self.answers))
    }

    /// The span that `now` lies in.
    pub(super) fn span(&mut self, started: Instant, now: Instant) -> &mut Span {
        let index = (now.duration_since(started).as_nanos() / SPAN.as_nanos()) as usize;
        let index = index.min(SPANS_MAX - 1);
        if self.spans.len() <= index {
            self.spans.resize_with(index + 1, Span::default);
        }
        &mut self.spans[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_there_when_needed() {
        let mut outcome = Outcome::default();
        let started = Instant::now();
        outcome.span(started, started + 3 * SPAN).failed += 1;
        outcome.span(started, started + SPAN).lost += 1;
        outcome.span(started, started + SPAN * SPANS_MAX as u32).lost += 1;
        assert_eq!(outcome.spans.len(), SPANS_MAX);
        let found: Vec<_> = outcome.spans.iter().take(4).map(|it| (it.failed, it.lost)).collect();
        assert_eq!(found, [(0, 0), (0, 1), (0, 0), (1, 0)]);
    }
}
