//! What each answering thread counts. A thread owns its counters and writes
//! them without locks; whoever asks adds them up.

use std::sync::{Arc, Mutex};

use authority::Outcome;
use base::{Counter, Histogram, Top};
use wire::{DropReason, Rcode, rtype};

/// Buckets of the latency histogram: up to 2^23 µs, about 8 s.
pub const LATENCY_BUCKETS: usize = 24;
/// Zones that each thread keeps among its heaviest.
pub const TOP_ZONES: usize = 64;
/// One question in this many is counted towards the heaviest zones.
pub const TOP_SAMPLE: u64 = 64;

/// Types counted by name; all others together.
pub const QTYPES: [(u16, &str); 20] = [
    (rtype::A, "A"),
    (rtype::NS, "NS"),
    (rtype::CNAME, "CNAME"),
    (rtype::SOA, "SOA"),
    (rtype::PTR, "PTR"),
    (rtype::MX, "MX"),
    (rtype::TXT, "TXT"),
    (rtype::AAAA, "AAAA"),
    (rtype::SRV, "SRV"),
    (35, "NAPTR"),
    (rtype::DNAME, "DNAME"),
    (rtype::DS, "DS"),
    (rtype::RRSIG, "RRSIG"),
    (rtype::NSEC, "NSEC"),
    (rtype::DNSKEY, "DNSKEY"),
    (52, "TLSA"),
    (rtype::SVCB, "SVCB"),
    (rtype::HTTPS, "HTTPS"),
    (257, "CAA"),
    (rtype::ANY, "ANY"),
];

/// How questions come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Udp,
    Tcp,
}

impl Via {
    /// The name used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Via::Udp => "udp",
            Via::Tcp => "tcp",
        }
    }
}

/// The counters of one thread.
#[derive(Debug)]
pub struct Counters {
    pub via: Via,
    pub answers: [Counter; Rcode::ALL.len()],
    pub drops: [Counter; DropReason::ALL.len()],
    pub qtypes: [Counter; QTYPES.len() + 1],
    pub truncated: Counter,
    pub received_len: Counter,
    pub sent_len: Counter,
    /// Answers that the system did not take.
    pub send_errors: Counter,
    /// Batches lost to a bug.
    pub panics: Counter,
    /// Microseconds from a batch's arrival to its departure.
    pub latency_us: Histogram<LATENCY_BUCKETS>,
    pub top_zones: Top<TOP_ZONES>,
    sampled: Counter,
}

impl Counters {
    pub fn new(via: Via) -> Self {
        Counters {
            via,
            answers: Default::default(),
            drops: Default::default(),
            qtypes: std::array::from_fn(|_| Counter::default()),
            truncated: Counter::default(),
            received_len: Counter::default(),
            sent_len: Counter::default(),
            send_errors: Counter::default(),
            panics: Counter::default(),
            latency_us: Histogram::default(),
            top_zones: Top::default(),
            sampled: Counter::default(),
        }
    }

    /// Counts one message and what became of it.
    #[inline]
    pub fn count(&self, received_len: usize, qtype: u16, outcome: &Outcome) {
        self.received_len.add(received_len as u64);
        match outcome.result {
            Ok(rcode) => {
                self.answers[rcode.index()].add(1);
                self.qtypes[qtype_index(qtype)].add(1);
                self.sent_len.add(outcome.len as u64);
                if outcome.truncated {
                    self.truncated.add(1);
                }
            }
            Err(reason) => self.drops[reason as usize].add(1),
        }
        self.sampled.add(1);
        if outcome.zone != 0 && self.sampled.get().is_multiple_of(TOP_SAMPLE) {
            self.top_zones.add(outcome.zone, TOP_SAMPLE);
        }
    }
}

impl Counters {
    /// Counts a question that is answered at once, with a code that may be any.
    #[inline]
    pub fn count_answer(&self, qtype: u16, rcode: u16, len: usize, truncated: bool) {
        self.count_type(qtype);
        self.count_reply(rcode, len, truncated);
    }

    /// Counts a question.
    #[inline]
    pub fn count_type(&self, qtype: u16) {
        self.qtypes[qtype_index(qtype)].add(1);
    }

    /// Counts a reply.
    #[inline]
    pub fn count_reply(&self, rcode: u16, len: usize, truncated: bool) {
        // What nobody sends counts as the failure that it is.
        let known = Rcode::ALL.iter().find(|known| **known as u16 == rcode);
        self.answers[known.unwrap_or(&Rcode::ServFail).index()].add(1);
        self.sent_len.add(len as u64);
        if truncated {
            self.truncated.add(1);
        }
    }
}

/// Place of a type in [`QTYPES`]; behind the last for all others.
#[inline]
fn qtype_index(qtype: u16) -> usize {
    // The two that make up most traffic first.
    match qtype {
        rtype::A => 0,
        rtype::AAAA => 7,
        _ => QTYPES.iter().position(|(known, _)| *known == qtype).unwrap_or(QTYPES.len()),
    }
}

/// The counters of all threads.
#[derive(Clone, Debug, Default)]
pub struct AllCounters(Arc<Mutex<Vec<Arc<Counters>>>>);

impl AllCounters {
    /// Makes counters for one more thread.
    pub fn add(&self, via: Via) -> Arc<Counters> {
        let counters = Arc::new(Counters::new(via));
        self.lock().push(counters.clone());
        counters
    }

    /// The counters there are now.
    pub fn list(&self) -> Vec<Arc<Counters>> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Counters>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_type_has_its_place() {
        for (index, (rtype, name)) in QTYPES.iter().enumerate() {
            assert_eq!(qtype_index(*rtype), index, "{name}");
        }
        assert_eq!(qtype_index(65280), QTYPES.len());
    }
}
