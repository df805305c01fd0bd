//! What a cell counts. The cell is the only writer; whoever reports adds up
//! the cells of a node.

use base::{Counter, Histogram};

/// Buckets of latency histograms: up to 2^23 µs, about 8 s.
pub const LATENCY_BUCKETS: usize = 24;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one cell.
        #[derive(Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: Counter,)*
            /// Microseconds from asking another cell to its first word.
            pub peer_us: Histogram<LATENCY_BUCKETS>,
            /// Microseconds from asking an upstream server to its answer.
            pub upstream_us: Histogram<LATENCY_BUCKETS>,
        }

        impl Counts {
            /// Every plain counter with its name.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counts! {
    /// Questions of clients.
    questions,
    /// Answered from L1.
    l1_hits,
    /// Answered from this cell's own part of L2.
    l2_hits,
    /// Answered by another cell from its L2, without asking upstream.
    remote_hits,
    /// Answered after an upstream server was asked, by whichever cell.
    misses,
    /// Joined a question that was pending already.
    coalesced,
    /// Answered with data past its time.
    stale,
    /// Answered SERVFAIL.
    failures,
    /// Answered from a failure that is remembered (RFC 9520).
    cached_failures,
    /// Refused because they came from where nobody may ask.
    not_allowed,
    /// Refused because their source asked too often.
    too_often,
    /// Refused because too much was pending.
    overloaded,
    /// Renewed before their time was over.
    prefetches,
    /// Questions asked of other cells.
    peer_asked,
    /// How often one was asked again, and the next owner with it, because it
    /// was slow.
    peer_hedged,
    /// Those that got no answer in time.
    peer_silent,
    /// Questions that went on without the owner that was asked.
    peer_given_up,
    /// Questions that were asked upstream before a former owner had said a word.
    former_given_up,
    /// Questions of other cells.
    peer_served,
    /// Questions of other cells answered from L2.
    peer_hits,
    /// Questions of other cells refused because too much was pending.
    peer_refused,
    /// Frames of members with another routing.
    peer_disagreed,
    /// Frames or messages of peers that were not well formed.
    peer_malformed,
    /// Found at the owner that a slot had before.
    warmed,
    /// Entries received for keeping.
    puts_taken,
    /// Entries sent to heirs.
    puts_sent,
    /// Entries sent to all nodes because they are hot.
    hot_sent,
    /// Entries handed over to new owners.
    handover_sent,
    /// Entries taken from former owners.
    handover_taken,
    /// Questions asked upstream in datagrams.
    upstream_asked,
    /// Those asked of another server because the first was slow.
    upstream_hedged,
    /// Questions asked upstream over connections.
    upstream_streams,
    /// Upstream questions without an answer in time.
    upstream_silent,
    /// Answers that nobody asked for, or from the wrong server.
    upstream_strange,
    /// Answers with another id, name or case than asked.
    upstream_mismatched,
    /// Answers that were not well formed.
    upstream_malformed,
    /// Answers that said they were cut off.
    upstream_truncated,
    /// Answers that were refusals or failures.
    upstream_failed,
    /// Aliases that led from some upstream servers to others.
    upstream_followed,
    /// Questions that found the cluster's upstream budget used up.
    upstream_over_budget,
}
