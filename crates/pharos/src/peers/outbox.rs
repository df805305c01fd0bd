//! Messages that wait for a connection to take them: bounded, and refused
//! rather than waited for when there are too many.
//!
//! Cells put them in from their own threads, one after the other; the
//! connection takes all there are at once.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::Stream;
use tokio::sync::Notify;

use super::grpc::{BATCH_LEN_MAX, FRAME_LEN_MAX, FRAMES_MAX, Frame};

/// Octets that wait in one outbox at the most.
pub const OUTBOX_LEN_MAX: usize = 4 << 20;
/// Messages that wait in one outbox at the most.
pub const OUTBOX_FRAMES_MAX: usize = 4096;

/// Why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// No member has that name.
    Unknown,
    /// Too many messages wait already.
    Full,
    /// Longer than any message may be.
    Long,
    /// The connection it was for is no more.
    Closed,
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsent::Unknown => f.write_str("no member has that name"),
            Unsent::Full => write!(
                f,
                "too many messages wait; accepted: at most {OUTBOX_FRAMES_MAX}, of \
                 {OUTBOX_LEN_MAX} octets together"
            ),
            Unsent::Long => {
                write!(f, "the message is too long; accepted: at most {FRAME_LEN_MAX} octets")
            }
            Unsent::Closed => f.write_str("the connection it was for is no more"),
        }
    }
}

impl std::error::Error for Unsent {}

/// How many messages were not sent, over all outboxes that share it.
#[derive(Debug, Default)]
pub struct UnsentCounters {
    /// Never taken, because the outbox was full or they were too long.
    pub refused: AtomicU64,
    /// Taken, and given up with their connection.
    pub lost: AtomicU64,
}

/// Messages for one connection. Clones share them.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Notify,
    counters: Arc<UnsentCounters>,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Frame>,
    len: usize,
    closed: bool,
}

impl Outbox {
    pub fn new(counters: Arc<UnsentCounters>) -> Self {
        let shared = Shared { waiting: Mutex::default(), changed: Notify::new(), counters };
        Outbox(Arc::new(shared))
    }

    /// Puts a message in. Never waits.
    pub fn push(&self, frame: Frame) -> Result<(), Unsent> {
        let pushed = self.lock().push(frame);
        match pushed {
            Ok(()) => self.0.changed.notify_one(),
            Err(_) => count(&self.0.counters.refused, 1),
        }
        pushed
    }

    /// Gives up what waits.
    pub fn clear(&self) {
        let given_up = self.lock().clear();
        count(&self.0.counters.lost, given_up);
    }

    /// Gives up what waits, and all that would come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.clear();
        self.0.changed.notify_one();
    }

    /// Waits until there is something to take; false if nothing will be.
    pub async fn wait(&self) -> bool {
        loop {
            {
                let waiting = self.lock();
                if waiting.closed || !waiting.frames.is_empty() {
                    return !waiting.closed;
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// What is to be sent, for the one connection that does: all that waits, in
    /// messages of bounded size, until the outbox is closed.
    pub fn batches(&self) -> impl Stream<Item = Vec<Frame>> + Send + use<> {
        futures_util::stream::unfold(self.clone(), async |outbox| {
            let batch = outbox.wait().await.then(|| outbox.lock().take());
            batch.map(|batch| (batch, outbox))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn push(&mut self, frame: Frame) -> Result<(), Unsent> {
        let len = frame.message.len();
        if self.closed {
            return Err(Unsent::Closed);
        }
        if len > FRAME_LEN_MAX {
            return Err(Unsent::Long);
        }
        if self.frames.len() >= OUTBOX_FRAMES_MAX || self.len + len > OUTBOX_LEN_MAX {
            return Err(Unsent::Full);
        }
        self.len += len;
        self.frames.push_back(frame);
        Ok(())
    }

    /// As many as one batch takes, at least one if there is one.
    fn take(&mut self) -> Vec<Frame> {
        let mut len = 0;
        let fits = |frame: &&Frame| {
            len += frame.message.len();
            len <= BATCH_LEN_MAX
        };
        let count = self.frames.iter().take(FRAMES_MAX).take_while(fits).count();
        let batch: Vec<Frame> = self.frames.drain(..count).collect();
        self.len -= batch.iter().map(|frame| frame.message.len()).sum::<usize>();
        batch
    }

    /// Empties it; returns how many there were.
    fn clear(&mut self) -> u64 {
        self.len = 0;
        let given_up = self.frames.len() as u64;
        self.frames.clear();
        given_up
    }
}

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

// The first of a batch always fits.
const _: () = assert!(FRAME_LEN_MAX <= BATCH_LEN_MAX);

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use bytes::Bytes;
    use futures_util::StreamExt;

    use super::*;

    fn frame(len: usize) -> Frame {
        Frame { from_cell: 1, to_cell: 2, message: Bytes::from(vec![7; len]) }
    }

    fn outbox() -> (Outbox, Arc<UnsentCounters>) {
        let counters = Arc::<UnsentCounters>::default();
        (Outbox::new(counters.clone()), counters)
    }

    fn refused(counters: &UnsentCounters) -> u64 {
        counters.refused.load(Ordering::Relaxed)
    }

    #[test]
    fn messages_are_bounded_in_number_and_in_octets() {
        let (small, counters) = outbox();
        (0..OUTBOX_FRAMES_MAX).for_each(|_| small.push(frame(1)).unwrap());
        assert_eq!(small.push(frame(1)), Err(Unsent::Full));
        let large = Outbox::new(counters.clone());
        let most = OUTBOX_LEN_MAX / FRAME_LEN_MAX;
        (0..most).for_each(|_| large.push(frame(FRAME_LEN_MAX)).unwrap());
        assert_eq!(large.push(frame(1)), Err(Unsent::Full));
        assert_eq!(large.push(frame(FRAME_LEN_MAX + 1)), Err(Unsent::Long));
        assert_eq!(refused(&counters), 3);
        large.clear();
        assert_eq!(counters.lost.load(Ordering::Relaxed), most as u64);
        large.push(frame(1)).unwrap();
    }

    #[tokio::test]
    async fn what_waits_is_taken_together_and_within_bounds() {
        let (outbox, _) = outbox();
        (0..3).for_each(|len| outbox.push(frame(len)).unwrap());
        let mut batches = pin!(outbox.batches());
        assert_eq!(batches.next().await.unwrap(), [frame(0), frame(1), frame(2)]);
        let most = BATCH_LEN_MAX / FRAME_LEN_MAX;
        (0..=most).for_each(|_| outbox.push(frame(FRAME_LEN_MAX)).unwrap());
        assert_eq!(batches.next().await.unwrap().len(), most);
        assert_eq!(batches.next().await.unwrap().len(), 1);
        assert_eq!(outbox.lock().len, 0);
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let (outbox, counters) = outbox();
        let mut batches = pin!(outbox.batches());
        let (batch, ()) = tokio::join!(batches.next(), async {
            tokio::task::yield_now().await;
            outbox.push(frame(5)).unwrap();
        });
        assert_eq!(batch.unwrap(), [frame(5)]);
        let (batch, ()) = tokio::join!(batches.next(), async {
            tokio::task::yield_now().await;
            outbox.close();
        });
        assert!(batch.is_none());
        assert_eq!(outbox.push(frame(5)), Err(Unsent::Closed));
        assert_eq!(refused(&counters), 1);
    }
}
