//! The records of one zone on their way from text to a compiled zone.
//!
//! One arena of octets and one flat list, cleared and used again for the next
//! zone: a loader that reads a million small zones allocates a few times in
//! all.

use crate::problem::Position;

/// Octets of record data held for one zone at the most, so that offsets fit.
pub const ARENA_LEN_MAX: usize = u32::MAX as usize;

/// One record, borrowed from a [`RecordSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Owner in uncompressed wire form, case as written.
    pub owner: &'a [u8],
    /// Record type.
    pub rtype: u16,
    /// Time to live in seconds.
    pub ttl_secs: u32,
    /// Record data in uncompressed wire form, case as written.
    pub rdata: &'a [u8],
    /// Where the record stands.
    pub at: Position,
}

/// Records in the order they were read. See the module's text.
#[derive(Debug, Default)]
pub struct RecordSet {
    arena: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    ttl_secs: u32,
    line: u32,
    column: u32,
    file: u16,
    rtype: u16,
    rdata_len: u16,
    owner_len: u8,
}

impl Entry {
    fn view<'a>(&self, arena: &'a [u8]) -> Record<'a> {
        let start = self.start as usize;
        let middle = start + self.owner_len as usize;
        Record {
            owner: &arena[start..middle],
            rtype: self.rtype,
            ttl_secs: self.ttl_secs,
            rdata: &arena[middle..middle + self.rdata_len as usize],
            at: Position { file: self.file, line: self.line, column: self.column },
        }
    }
}

/// The records of the zone need more than 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl RecordSet {
    /// Forgets the records but keeps the room they had.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.entries.clear();
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no record.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a record. `owner` is a wire name, `rdata` at most 65535 octets.
    pub fn push(&mut self, record: Record<'_>) -> Result<(), TooLarge> {
        let start = self.arena.len();
        if start + record.owner.len() + record.rdata.len() > ARENA_LEN_MAX {
            return Err(TooLarge);
        }
        self.arena.extend_from_slice(record.owner);
        self.arena.extend_from_slice(record.rdata);
        self.entries.push(Entry {
            start: start as u32,
            ttl_secs: record.ttl_secs,
            line: record.at.line,
            column: record.at.column,
            file: record.at.file,
            rtype: record.rtype,
            rdata_len: record.rdata.len() as u16,
            owner_len: record.owner.len() as u8,
        });
        Ok(())
    }

    /// The record at `index`, counted in the order of [`RecordSet::push`].
    pub fn get(&self, index: usize) -> Record<'_> {
        self.entries[index].view(&self.arena)
    }

    /// Forgets the records that are not wanted; the order stays.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&Record<'_>) -> bool) {
        let arena = &self.arena;
        self.entries.retain(|entry| is_wanted(&entry.view(arena)));
    }

    /// All records in order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }
}
