//! Questions that other cells ask so often that everybody should have the
//! answer.
//!
//! A small table counts how often each question was asked within a second.
//! Each place holds one question; another that falls into it wears it down
//! first, so that a question that is really hot stays.

use std::sync::Arc;
use std::time::Duration;

use super::Cell;
use super::effects::Effects;
use crate::answer::Answer;
use crate::peer::Message;
use crate::time::Moment;

/// Places of the table; a power of two.
const PLACES: usize = 256;
/// Asked by other cells as often as this within a second, a question is hot.
const HOT_PER_SEC: u32 = 64;
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    hash: u64,
    count: u32,
    since: Moment,
    /// The answer that was sent to everybody, by when it was born.
    sent: Option<Moment>,
}

/// The table of what may be hot.
#[derive(Debug)]
pub(super) struct HotKeys(Box<[Place]>);

impl Default for HotKeys {
    fn default() -> Self {
        HotKeys(vec![Place::default(); PLACES].into())
    }
}

impl HotKeys {
    /// Counts one question; true if everybody should be sent its answer now.
    fn count(&mut self, now: Moment, hash: u64, born: Moment) -> bool {
        let place = &mut self.0[(hash >> 32) as usize % PLACES];
        if place.hash != hash {
            if place.count > 0 && now.since(place.since) < WINDOW {
                place.count -= 1;
                return false;
            }
            *place = Place { hash, count: 0, since: now, sent: None };
        }
        if now.since(place.since) >= WINDOW {
            place.count = 0;
            place.since = now;
        }
        place.count += 1;
        let is_due = place.count >= HOT_PER_SEC && place.sent != Some(born);
        if is_due {
            place.sent = Some(born);
        }
        is_due
    }
}

impl Cell {
    /// Notes that another cell asked for `answer`; if many do, everybody gets
    /// it into L1.
    pub(super) fn note_heat(
        &mut self,
        now: Moment,
        hash: u64,
        answer: &Arc<Answer>,
        effects: &mut Effects,
    ) {
        if !self.hot.count(now, hash, answer.born()) {
            return;
        }
        self.scratch.clear();
        answer.encode(now, &mut self.scratch);
        let message = Message::Put { is_hot: true, answer: &self.scratch };
        for peer in self.peers.iter() {
            for cell in 0..peer.cells {
                if peer.hash == self.head.from && cell == self.config.cell {
                    continue;
                }
                effects.say(self.head, peer.cell(cell), &message);
                self.counts.hot_sent.add(1);
            }
        }
        self.keep_in_l1(hash, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORN: Moment = Moment(1);

    #[test]
    fn only_what_is_asked_often_is_hot_and_once_for_each_answer() {
        let mut hot = HotKeys::default();
        let count = |hot: &mut HotKeys, times: u32, from: u64, every_us: u64, born| {
            (0..times)
                .filter(|&n| hot.count(Moment(from + u64::from(n) * every_us), 7, born))
                .count()
        };
        assert_eq!(count(&mut hot, 1000, 0, 20_000, BORN), 0, "50 a second");
        assert_eq!(count(&mut hot, 1000, 50_000_000, 1000, BORN), 1, "1000 a second");
        assert_eq!(count(&mut hot, 1000, 60_000_000, 1000, Moment(2)), 1, "a new answer");
    }

    #[test]
    fn a_hot_question_keeps_its_place_against_single_ones() {
        let mut hot = HotKeys::default();
        let mut found = 0;
        for n in 0..1000u64 {
            let now = Moment(n * 1000);
            found += usize::from(hot.count(now, 7, BORN));
            if n % 3 == 0 {
                // Another question at the same place.
                hot.count(now, 7 + (n << 44), BORN);
            }
        }
        assert_eq!(found, 1);
    }
}
