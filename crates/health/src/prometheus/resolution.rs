//! In which steps each query is asked.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use drain::Millis;

/// From fine to coarse.
pub const STEPS: [Millis; 4] =
    [Millis::from_secs(1), Millis::from_secs(15), Millis::from_secs(60), Millis::from_secs(300)];
/// How long a coarse step is kept before a finer one is tried.
pub const FINER_AFTER: Duration = Duration::from_secs(300);
/// Queries that are remembered. More are asked in fine steps first, each time.
const QUERIES_MAX: usize = 1024;

/// The steps that work, by query, where they are not the finest.
#[derive(Debug, Default)]
pub struct Resolutions {
    coarse: HashMap<String, Coarse>,
}

#[derive(Debug)]
struct Coarse {
    index: usize,
    since: Instant,
}

impl Resolutions {
    /// The step to try first, as an index into [`STEPS`].
    pub fn first(&self, query: &str, now: Instant) -> usize {
        match self.coarse.get(query) {
            None => 0,
            Some(coarse) if now.saturating_duration_since(coarse.since) >= FINER_AFTER => {
                coarse.index - 1
            }
            Some(coarse) => coarse.index,
        }
    }

    /// Notes the step that gave an answer.
    pub fn worked(&mut self, query: &str, index: usize, now: Instant) {
        if index == 0 {
            self.coarse.remove(query);
            return;
        }
        let has_room = self.coarse.len() < QUERIES_MAX;
        match self.coarse.get_mut(query) {
            // Its time runs on, until a finer one is due.
            Some(coarse)
                if coarse.index == index
                    && now.saturating_duration_since(coarse.since) < FINER_AFTER => {}
            Some(coarse) => *coarse = Coarse { index, since: now },
            None if has_room => {
                self.coarse.insert(query.to_owned(), Coarse { index, since: now });
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_step_is_kept_and_then_tried_finer() {
        let (mut resolutions, start) = (Resolutions::default(), Instant::now());
        let later = |secs| start + Duration::from_secs(secs);
        assert_eq!(resolutions.first("a", start), 0);
        resolutions.worked("a", 2, start);
        assert_eq!(resolutions.first("b", start), 0);
        for secs in [0, 100, 299] {
            assert_eq!(resolutions.first("a", later(secs)), 2);
            resolutions.worked("a", 2, later(secs));
        }
        // A finer one is due, does not work, and is left alone for a while.
        assert_eq!(resolutions.first("a", later(300)), 1);
        resolutions.worked("a", 2, later(300));
        assert_eq!(resolutions.first("a", later(599)), 2);
        // It works: the next finer one in its turn.
        assert_eq!(resolutions.first("a", later(600)), 1);
        resolutions.worked("a", 1, later(600));
        assert_eq!(resolutions.first("a", later(601)), 1);
        assert_eq!(resolutions.first("a", later(900)), 0);
        resolutions.worked("a", 0, later(900));
        assert_eq!(resolutions.first("a", later(901)), 0);
        assert!(resolutions.coarse.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut resolutions, now) = (Resolutions::default(), Instant::now());
        for number in 0..2 * QUERIES_MAX {
            resolutions.worked(&number.to_string(), 1, now);
        }
        assert_eq!(resolutions.coarse.len(), QUERIES_MAX);
    }
}
