//! Which counters of a sender were seen: the newest ones, one by one, and all
//! older ones as a whole (as in RFC 4303, 3.4.3).

/// How far a datagram may come behind the newest of its sender.
pub const WINDOW_LEN: u64 = 1024;
/// Bits of the ring. Twice the window, so that whole words can be emptied
/// ahead of it without touching what it still covers.
const RING_LEN: u64 = 2 * WINDOW_LEN;
const WORDS: usize = (RING_LEN / WORD_LEN) as usize;
const WORD_LEN: u64 = u64::BITS as u64;

/// The counters that one sender used.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    /// One bit for each of the last counters; word and bit by its number.
    ring: [u64; WORDS],
    /// Behind the newest that was seen.
    end: u64,
}

impl ReplayWindow {
    /// True if `counter` was not seen, as far as anybody can tell: one that is
    /// too old for the window counts as seen.
    pub fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return true;
        }
        self.end - counter <= WINDOW_LEN && self.ring[word(counter)] & bit(counter) == 0
    }

    /// Remembers `counter`, which [`is_new`](Self::is_new).
    pub fn insert(&mut self, counter: u64) {
        if counter >= self.end {
            self.advance(counter);
        }
        self.ring[word(counter)] |= bit(counter);
    }

    /// Moves the end behind `counter`, and empties the words it moves into.
    fn advance(&mut self, counter: u64) {
        let first = self.end.div_ceil(WORD_LEN);
        let last = counter / WORD_LEN;
        for number in (first..=last).take(WORDS) {
            self.ring[(number % WORDS as u64) as usize] = 0;
        }
        // Counters stop before the last number there is.
        self.end = counter.saturating_add(1);
    }
}

fn word(counter: u64) -> usize {
    (counter / WORD_LEN % WORDS as u64) as usize
}

fn bit(counter: u64) -> u64 {
    1 << (counter % WORD_LEN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of all counters that were ever seen.
        #[test]
        fn nothing_is_new_twice(steps in prop::collection::vec((0u64..4, 0u64..3000), 1..400)) {
            let mut window = ReplayWindow::default();
            let mut seen = BTreeSet::new();
            let mut newest = 0;
            for (kind, distance) in steps {
                let counter = match kind {
                    0 => newest + distance,
                    1 => newest + distance % 3,
                    _ => newest.saturating_sub(distance),
                };
                let end = seen.last().map_or(0, |last| last + 1);
                let is_covered = counter >= end || end - counter <= WINDOW_LEN;
                prop_assert_eq!(window.is_new(counter), is_covered && !seen.contains(&counter));
                if window.is_new(counter) {
                    window.insert(counter);
                    seen.insert(counter);
                    newest = newest.max(counter);
                }
            }
        }
    }

    #[test]
    fn a_leap_forgets_everything_before_it() {
        let mut window = ReplayWindow::default();
        (0..100).for_each(|counter| window.insert(counter));
        window.insert(1 << 40);
        assert!(!window.is_new(99) && !window.is_new(1 << 40));
        assert!(window.is_new((1 << 40) - 1) && window.is_new((1 << 40) + 1));
        assert!(window.is_new((1 << 40) - WINDOW_LEN + 1));
        assert!(!window.is_new((1 << 40) - WINDOW_LEN));
    }
}
