//! What the threads of a front count. As with all counters here, each thread
//! writes its own and whoever asks adds them up.

use base::{Counter, Histogram};

use crate::counters::LATENCY_BUCKETS;

/// Why a message went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A client's message shorter than a header.
    Short,
    /// A client's message that is an answer.
    IsAnswer,
    /// The client's port is 0.
    NoPort,
    /// A client's message longer than any question.
    Long,
    /// There is no node at all.
    NoNode,
    /// Given up for a newer one: too many wait.
    Overwritten,
    /// Given up: no node answered in time.
    Expired,
    /// Its node was replaced by another while it waited.
    NodeGone,
    /// The system did not take it.
    Unsent,
    /// A reply that is none.
    ReplyMalformed,
    /// A reply from an address of no node.
    ReplySource,
    /// A reply to nothing that this node was asked and still owes.
    ReplyUnknown,
    /// A reply to another question than the one with its id.
    ReplyQuestion,
    /// A reply longer than a datagram can be.
    ReplyLong,
}

impl Loss {
    pub const ALL: [Loss; 14] = [
        Loss::Short,
        Loss::IsAnswer,
        Loss::NoPort,
        Loss::Long,
        Loss::NoNode,
        Loss::Overwritten,
        Loss::Expired,
        Loss::NodeGone,
        Loss::Unsent,
        Loss::ReplyMalformed,
        Loss::ReplySource,
        Loss::ReplyUnknown,
        Loss::ReplyQuestion,
        Loss::ReplyLong,
    ];

    /// The name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Loss::Short => "short",
            Loss::IsAnswer => "is_answer",
            Loss::NoPort => "no_port",
            Loss::Long => "long",
            Loss::NoNode => "no_node",
            Loss::Overwritten => "overwritten",
            Loss::Expired => "expired",
            Loss::NodeGone => "node_gone",
            Loss::Unsent => "unsent",
            Loss::ReplyMalformed => "reply_malformed",
            Loss::ReplySource => "reply_source",
            Loss::ReplyUnknown => "reply_unknown",
            Loss::ReplyQuestion => "reply_question",
            Loss::ReplyLong => "reply_long",
        }
    }
}

/// The counters of one thread.
#[derive(Debug)]
pub struct Counters {
    pub losses: [Counter; Loss::ALL.len()],
    /// Questions placed while no node was ready.
    pub open: Counter,
    /// Questions placed outside of their client's shard.
    pub out_of_shard: Counter,
    /// Questions that were not asked again because too many were.
    pub retries_denied: Counter,
    /// Batches lost to a bug.
    pub panics: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            losses: std::array::from_fn(|_| Counter::default()),
            open: Counter::default(),
            out_of_shard: Counter::default(),
            retries_denied: Counter::default(),
            panics: Counter::default(),
        }
    }
}

impl Counters {
    #[inline]
    pub fn lose(&self, loss: Loss) {
        self.lose_many(loss, 1);
    }

    #[inline]
    pub fn lose_many(&self, loss: Loss, count: usize) {
        self.losses[loss as usize].add(count as u64);
    }
}

/// What one thread counts of one node.
#[derive(Debug, Default)]
pub struct NodeCounters {
    pub questions: Counter,
    pub answers: Counter,
    /// Questions that another node was asked because this one was silent.
    pub retries: Counter,
    /// Questions that wait for it now.
    pub outstanding: Counter,
    /// From asking it to its answer.
    pub latency_us: Histogram<LATENCY_BUCKETS>,
}

/// The value that `percent` of the observations do not pass, as far as powers
/// of two tell; `None` of nothing.
pub fn percentile(counts: &[u64; LATENCY_BUCKETS], percent: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let wanted = (total * percent).div_ceil(100);
    let mut sum = 0;
    let bucket = counts.iter().position(|count| {
        sum += count;
        sum >= wanted
    });
    bucket.filter(|_| total > 0).map(|bucket| 1 << bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_has_its_place_and_name() {
        for (index, loss) in Loss::ALL.into_iter().enumerate() {
            assert_eq!(loss as usize, index);
            assert_eq!(Loss::ALL.iter().filter(|other| other.name() == loss.name()).count(), 1);
        }
    }

    #[test]
    fn percentiles_are_the_bounds_of_their_buckets() {
        let histogram = Histogram::<LATENCY_BUCKETS>::default();
        assert_eq!(percentile(&histogram.counts(), 99), None);
        histogram.observe(100, 98);
        histogram.observe(5000, 2);
        assert_eq!(percentile(&histogram.counts(), 50), Some(128));
        assert_eq!(percentile(&histogram.counts(), 98), Some(128));
        assert_eq!(percentile(&histogram.counts(), 99), Some(8192));
    }
}
