//! Zone files (RFC 1035, section 5) to records.
//!
//! The reader never stops at a problem: it notes what was found and what would
//! be accepted, leaves out the entry, and goes on with the next one. Nothing
//! here opens a file; `$INCLUDE` asks the caller through [`Includes`].
//!
//! The way of a record: `token` cuts an entry out of the text, `session` reads
//! its owner, TTL, class and type and keeps what one entry leaves for the next,
//! `rdata` reads the fields that the table in `types` lists. `directive` and
//! `generate` are the lines that start with `$`.

mod directive;
mod fault;
mod generate;
mod rdata;
mod rdata_rare;
mod session;
mod svcb;
mod text;
mod token;
mod types;
mod wirecheck;

#[cfg(test)]
mod tests;

use crate::problem::Problems;
use crate::records::RecordSet;
use wire::name::Name;

/// Octets of the longest word or quoted string: 65535 octets of record data,
/// each written as `\DDD`, and nothing useful is longer.
pub const TOKEN_LEN_MAX: usize = 4 * 65_536;

/// Words in one entry: record data of 65535 octets in hexadecimal, each octet
/// a word of its own, and room for the rest of the entry. Past this a
/// parenthesis that is still open counts as never closed.
pub const ENTRY_TOKENS_MAX: usize = 65_536 + 64;

/// Octets of a quoted string that runs over lines: 255 octets, each written as
/// `\DDD`. A longer one is a missing quote, not a string.
pub const QUOTED_LINES_LEN_MAX: usize = 4 * 255;

/// Files that include one another at a time. Deeper than any zone needs, and
/// what ends a file that includes itself.
pub const INCLUDE_DEPTH_MAX: usize = 8;

/// Times that one zone may say `$INCLUDE`, so that files which include each
/// other over and over end, and the number of each fits a position.
pub const INCLUDES_MAX: usize = 10_000;

/// Octets of all included text of one zone: some ten million records.
pub const INCLUDED_LEN_MAX: usize = 1 << 30;

/// Records one `$GENERATE` makes: a reverse zone of a /16.
pub const GENERATED_MAX: u64 = 65_536;

/// Records that all `$GENERATE` of one zone make, so that a small file cannot
/// fill the memory.
pub const GENERATED_TOTAL_MAX: u64 = 1 << 24;

/// Seconds of the longest TTL (RFC 2181, 8).
pub const TTL_SECS_MAX: u32 = i32::MAX as u32;

/// Where `$INCLUDE` gets its text. The caller decides what may be read.
pub trait Includes {
    /// The text of `path` as written in `from_file`, with the name to show in
    /// problems; or why it cannot be had, in words for the operator. A text of
    /// more than `len_max` octets will be refused, so it need not be read.
    fn open(
        &mut self,
        path: &str,
        from_file: &str,
        len_max: usize,
    ) -> Result<(String, Vec<u8>), String>;
}

/// Refuses every `$INCLUDE`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoIncludes;

impl Includes for NoIncludes {
    fn open(
        &mut self,
        _path: &str,
        _from_file: &str,
        _len_max: usize,
    ) -> Result<(String, Vec<u8>), String> {
        Err("$INCLUDE is not allowed here".into())
    }
}

/// Reads zone files one after the other with the same working room.
#[derive(Debug, Default)]
pub struct Reader {
    room: session::Room,
}

impl Reader {
    /// A reader without any room yet.
    pub fn new() -> Self {
        Reader::default()
    }

    /// Reads one zone file. Its records are added to `records`, what is wrong
    /// with it to `problems`, whose first file is this one and which receives
    /// the names of included files. `origin` completes relative names before
    /// the first `$ORIGIN`.
    pub fn read(
        &mut self,
        text: &[u8],
        origin: Option<Name<'_>>,
        includes: &mut dyn Includes,
        records: &mut RecordSet,
        problems: &mut Problems,
    ) {
        session::Session::new(&mut self.room, origin, includes, records, problems).read(text);
    }
}

/// Reads one zone file with a [`Reader`] of its own; see [`Reader::read`].
pub fn read(
    text: &[u8],
    origin: Option<Name<'_>>,
    includes: &mut dyn Includes,
    records: &mut RecordSet,
    problems: &mut Problems,
) {
    Reader::new().read(text, origin, includes, records, problems);
}
