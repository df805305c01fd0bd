//! The way from the name asked for, alias by alias, to the data.

use wire::rtype;

use super::names::{self, NameAt};
use super::records::Record;

/// Aliases that are followed: twice as many as resolvers follow.
const ALIASES_MAX: usize = 32;

/// Follows the records of an answer section in their order, as stub resolvers
/// do.
#[derive(Debug)]
pub(super) struct Chain {
    qtype: u16,
    /// The name asked for and the targets of aliases, the last one current.
    passed: [NameAt; ALIASES_MAX + 1],
    aliases: usize,
    has_data: bool,
    start: Start,
    is_loop: bool,
}

/// How an answer section begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// It is empty.
    Open,
    /// With the name asked for, or a DNAME above it.
    Related,
    /// With another name.
    Unrelated,
}

impl Chain {
    /// The way from `name` to data of `qtype`.
    pub fn new(name: NameAt, qtype: u16) -> Self {
        Chain {
            qtype,
            passed: [name; ALIASES_MAX + 1],
            aliases: 0,
            has_data: false,
            start: Start::Open,
            is_loop: false,
        }
    }

    /// Takes the next record of the answer section.
    pub fn follow(&mut self, message: &[u8], record: &Record) {
        let current = self.passed[self.aliases];
        let is_here = names::same(message, record.owner, current);
        if self.start == Start::Open {
            // RFC 6672, 3.1: a DNAME stands before the CNAME made from it.
            let is_above =
                record.rtype == rtype::DNAME && names::is_below(message, current, record.owner);
            self.start = if is_here || is_above { Start::Related } else { Start::Unrelated };
        }
        if self.has_data || !is_here {
            return;
        }
        if self.qtype == record.rtype || self.qtype == rtype::ANY {
            self.has_data = true;
        } else if record.rtype == rtype::CNAME {
            self.step(message, record);
        }
    }

    /// Goes on to the target of an alias.
    fn step(&mut self, message: &[u8], alias: &Record) {
        let target = NameAt::again(alias.data_at);
        let passed = &self.passed[..=self.aliases];
        if self.aliases == ALIASES_MAX || passed.iter().any(|&at| names::same(message, at, target))
        {
            self.is_loop = true;
        } else {
            self.aliases += 1;
            self.passed[self.aliases] = target;
        }
    }

    /// True if it leads to data of the type asked for.
    pub fn has_data(&self) -> bool {
        self.has_data
    }

    /// The target of the last alias, if the way ends there without data.
    pub fn open_end(&self) -> Option<NameAt> {
        (self.aliases > 0 && !self.has_data).then(|| self.passed[self.aliases])
    }

    /// True if the section does not begin at the name asked for.
    pub fn is_unrelated(&self) -> bool {
        self.start == Start::Unrelated
    }

    /// True if it comes back to a name that it passed, or has too many links
    /// to tell.
    pub fn is_loop(&self) -> bool {
        self.is_loop
    }
}
