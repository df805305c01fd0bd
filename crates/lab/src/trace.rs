//! What happened in a world: its last lines for people, and a hash of all of
//! them, which is the same whenever the world is.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::queue::Micros;

/// Lines that are kept.
const LINES_MAX: usize = 120;

#[derive(Debug)]
pub struct Trace {
    start: Micros,
    hasher: SipHasher13,
    lines: VecDeque<String>,
}

impl Trace {
    pub fn new(start: Micros) -> Self {
        Trace { start, hasher: SipHasher13::new_with_keys(0, 0), lines: VecDeque::new() }
    }

    pub fn note(&mut self, at: Micros, what: fmt::Arguments<'_>) {
        let since = at - self.start;
        let line = format!("{:>4}.{:06} {what}", since / 1_000_000, since % 1_000_000);
        self.hasher.write(line.as_bytes());
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Octets that went somewhere; not shown, but part of what happened.
    pub fn note_octets(&mut self, octets: &[u8]) {
        self.hasher.write(octets);
    }

    /// Equal for worlds in which the same happened.
    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        self.lines.iter().fold(String::new(), |tail, line| tail + line + "\n")
    }
}
