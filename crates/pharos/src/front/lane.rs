//! What one thread knows of one node: how quickly it answers, and since when
//! it does not.

use std::net::SocketAddr;
use std::sync::Arc;

use super::counters::percentile;
use super::node::Node;
use crate::counters::LATENCY_BUCKETS;

/// How long a silent node is waited for before another is asked: a few times
/// what it usually takes, within bounds.
const PATIENCE_US: std::ops::RangeInclusive<u64> = 40_000..=300_000;
/// The same while too little is known of it.
const PATIENCE_FIRST_US: u64 = 150_000;
/// Times what nearly all of its answers take.
const PATIENCE_FACTOR: u64 = 3;
/// Answers that tell how quick a node is.
const SAMPLES_MIN: u64 = 100;
/// How often that is found out anew.
const LOOK_US: u64 = 1_000_000;

/// One node as one thread knows it.
#[derive(Debug)]
pub struct Lane {
    node: Option<(Arc<Node>, usize)>,
    patience_us: u64,
    answered_us: Option<u64>,
    /// Questions in a row that it owed while it was silent.
    silent: u32,
    /// Latencies when they were last looked at, and when that was.
    known: [u64; LATENCY_BUCKETS],
    looked_us: u64,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            node: None,
            patience_us: PATIENCE_FIRST_US,
            answered_us: None,
            silent: 0,
            known: [0; LATENCY_BUCKETS],
            looked_us: 0,
        }
    }
}

impl Lane {
    /// A node that the thread `number` knows nothing about.
    pub fn new(node: Arc<Node>, number: usize) -> Self {
        Lane { node: Some((node, number)), ..Lane::default() }
    }

    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref().map(|(node, _)| node)
    }

    pub fn is_of(&self, node: &Arc<Node>) -> bool {
        self.node().is_some_and(|own| Arc::ptr_eq(own, node))
    }

    #[inline]
    pub fn address(&self) -> Option<SocketAddr> {
        self.node().map(|node| node.spec.address)
    }

    /// How long it is waited for while it is silent.
    pub fn patience_us(&self) -> u64 {
        self.patience_us
    }

    /// True if it answered anything at `asked_us` or later.
    pub fn answered_since(&self, asked_us: u64) -> bool {
        self.answered_us.is_some_and(|answered_us| answered_us >= asked_us)
    }

    #[inline]
    pub fn count_question(&self) {
        if let Some((node, number)) = &self.node {
            node.udp[*number].questions.add(1);
        }
    }

    #[inline]
    pub fn count_answer(&mut self, now_us: u64, latency_us: u64) {
        self.answered_us = Some(now_us);
        self.silent = 0;
        if let Some((node, number)) = &self.node {
            let counters = &node.udp[*number];
            counters.answers.add(1);
            counters.latency_us.observe(latency_us, 1);
        }
    }

    /// Counts a question that it owes while it is silent; returns how many
    /// those are in a row.
    pub fn count_silence(&mut self) -> u32 {
        self.silent += 1;
        self.silent
    }

    pub fn count_retry(&self) {
        if let Some((node, number)) = &self.node {
            node.udp[*number].retries.add(1);
        }
    }

    /// Tells how many questions wait for it, and from time to time finds out
    /// how quick it is.
    pub fn keep_time(&mut self, now_us: u64, waiting: u32) {
        let Some((node, number)) = &self.node else { return };
        let counters = &node.udp[*number];
        counters.outstanding.set(u64::from(waiting));
        if now_us - self.looked_us < LOOK_US {
            return;
        }
        self.looked_us = now_us;
        let counts = counters.latency_us.counts();
        let recent = std::array::from_fn(|bucket| counts[bucket] - self.known[bucket]);
        if recent.iter().sum::<u64>() >= SAMPLES_MIN {
            self.known = counts;
            self.patience_us = patience(&recent).unwrap_or(self.patience_us);
        }
    }
}

fn patience(recent: &[u64; LATENCY_BUCKETS]) -> Option<u64> {
    let usual_us = percentile(recent, 99)?;
    Some((PATIENCE_FACTOR * usual_us).clamp(*PATIENCE_US.start(), *PATIENCE_US.end()))
}

/// Bounds how often questions are asked again, so that slow nodes do not get
/// more to do for being slow: one for every few that clients ask, and a store
/// of them for the moment when a node dies.
#[derive(Debug)]
pub struct RetryBudget {
    earned: u32,
}

impl RetryBudget {
    /// Questions that pay for asking one again.
    const PRICE: u32 = 4;
    const STORE_MAX: u32 = 16_384 * RetryBudget::PRICE;

    #[inline]
    pub fn earn(&mut self) {
        self.earned = (self.earned + 1).min(RetryBudget::STORE_MAX);
    }

    /// Pays for one, if it can.
    pub fn spend(&mut self) -> bool {
        match self.earned.checked_sub(RetryBudget::PRICE) {
            Some(left) => {
                self.earned = left;
                true
            }
            None => false,
        }
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget { earned: RetryBudget::STORE_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::NodeSpec;
    use super::*;

    fn lane() -> Lane {
        let spec = NodeSpec::parse("a=192.0.2.1:53").unwrap();
        Lane::new(Arc::new(Node::new(spec, 1)), 0)
    }

    #[test]
    fn patience_follows_the_node_within_bounds() {
        let mut lane = lane();
        assert_eq!(lane.patience_us(), PATIENCE_FIRST_US);
        let mut learn = |latency_us, count, now_us| {
            (0..count).for_each(|_| lane.count_answer(now_us, latency_us));
            lane.keep_time(now_us, 0);
            lane.patience_us()
        };
        assert_eq!(learn(20_000, 99, LOOK_US), PATIENCE_FIRST_US, "too few to tell");
        assert_eq!(learn(20_000, 1, 2 * LOOK_US), 3 * 32_768);
        assert_eq!(learn(20, 500, 2 * LOOK_US), 3 * 32_768, "it is too early to look");
        assert_eq!(learn(20, 500, 3 * LOOK_US), 40_000);
        assert_eq!(learn(2_000_000, 100, 4 * LOOK_US), 300_000);
    }

    #[test]
    fn silence_ends_with_any_answer() {
        let mut lane = lane();
        assert!(!lane.answered_since(0));
        assert_eq!((lane.count_silence(), lane.count_silence()), (1, 2));
        lane.count_answer(50, 10);
        assert!(lane.answered_since(50) && !lane.answered_since(51));
        assert_eq!(lane.count_silence(), 1);
    }

    #[test]
    fn asking_again_is_bounded_by_what_clients_ask() {
        let mut budget = RetryBudget::default();
        assert_eq!((0..100_000).filter(|_| budget.spend()).count(), 16_384);
        (0..40).for_each(|_| budget.earn());
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 10);
    }
}
