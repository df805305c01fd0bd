//! The reading of one zone: what entries leave for those after them, and the
//! owner, TTL, class and type of each record.

use super::fault::{Fault, Outcome, fault, show};
use super::rdata::{self, Fields};
use super::token::{Lexer, Token};
use super::types::{self, Spec};
use super::{Includes, TTL_SECS_MAX, text};
use crate::problem::{Position, Problems};
use crate::records::{Record, RecordSet};
use wire::name::Name;

const SOA: u16 = 6;

/// Working room that outlives a zone.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Token lists not in use; each nested text takes one.
    pub token_lists: Vec<Vec<Token>>,
    pub owner: Vec<u8>,
    /// Empty until an origin is known.
    pub origin: Vec<u8>,
    pub generated: Vec<u8>,
    rdata: Vec<u8>,
}

/// Whether [`Room::owner`] can stand in for an owner left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastOwner {
    /// No entry yet had an owner.
    None,
    /// The last owner was noted as a problem: the records under it are checked
    /// but not kept, and not complained of again.
    Unreadable,
    Known,
}

/// One entry as the lexer cut it out.
#[derive(Clone, Copy)]
pub(super) struct Entry<'t> {
    pub text: &'t [u8],
    pub tokens: &'t [Token],
    /// The owner is left out.
    pub starts_blank: bool,
}

/// What is known while one zone is read.
pub(super) struct Session<'s> {
    pub room: &'s mut Room,
    pub includes: &'s mut dyn Includes,
    pub problems: &'s mut Problems,
    records: &'s mut RecordSet,
    /// The file being read, as positions count them.
    pub file: u16,
    pub last_owner: LastOwner,
    /// By `$TTL`, or the SOA's minimum (RFC 2308, 4).
    pub ttl_default: Option<u32>,
    /// The last one written in an entry (RFC 1035, 5.1).
    pub ttl_last: Option<u32>,
    /// Place of the `$GENERATE` whose records are being made.
    pub pinned: Option<(u32, u32)>,
    pub include_depth: usize,
    pub includes_count: usize,
    pub included_len: usize,
    pub generated_count: u64,
    /// The record set is full; noted once.
    full: bool,
}

impl<'s> Session<'s> {
    pub fn new(
        room: &'s mut Room,
        origin: Option<Name<'_>>,
        includes: &'s mut dyn Includes,
        records: &'s mut RecordSet,
        problems: &'s mut Problems,
    ) -> Self {
        room.origin.clear();
        room.origin.extend_from_slice(origin.map_or(&[], Name::as_bytes));
        room.owner.clear();
        Session {
            room,
            includes,
            problems,
            records,
            file: 0,
            last_owner: LastOwner::None,
            ttl_default: None,
            ttl_last: None,
            pinned: None,
            include_depth: 0,
            includes_count: 0,
            included_len: 0,
            generated_count: 0,
            full: false,
        }
    }

    /// Reads one text to its end.
    pub fn read(&mut self, text: &[u8]) {
        if u32::try_from(text.len()).is_err() {
            let at = Position { file: self.file, ..Position::default() };
            self.problems.error(at, format!("{} octets of text", text.len()), "less than 4 GiB");
            return;
        }
        let mut tokens = self.room.token_lists.pop().unwrap_or_default();
        let mut lexer = Lexer::new(text);
        while let Some(starts_blank) = lexer.next_entry(&mut tokens) {
            let entry = Entry { text, tokens: &tokens, starts_blank };
            if let Some(fault) = lexer.fault.take() {
                self.note(*fault);
                self.keep_owner_of(entry);
                continue;
            }
            let first = tokens[0];
            let is_directive = !starts_blank && !first.quoted && text[first.start as usize] == b'$';
            let outcome = match is_directive {
                true => self.read_directive(entry),
                false => self.read_record(entry),
            };
            if let Err(fault) = outcome {
                self.note(*fault);
            }
        }
        tokens.clear();
        self.room.token_lists.push(tokens);
    }

    /// Takes over the owner of an entry that is otherwise not readable.
    #[cold]
    fn keep_owner_of(&mut self, entry: Entry<'_>) {
        // The entry may have held the TTL that those after it go by.
        self.ttl_last.get_or_insert(0);
        match entry.tokens.first() {
            Some(token) if token.raw(entry.text).starts_with(b"$") => {}
            Some(&token) if !entry.starts_blank => drop(self.read_owner(entry.text, token)),
            _ if !entry.starts_blank => self.last_owner = LastOwner::Unreadable,
            _ => {}
        }
    }

    #[cold]
    fn note(&mut self, fault: Fault) {
        let (line, column) = self.pinned.unwrap_or((fault.line, fault.column));
        let at = Position { file: self.file, line, column };
        self.problems.error(at, fault.what, fault.accepted);
    }

    /// Reads a name against the current origin.
    pub fn read_name(&self, text: &[u8], token: Token, out: &mut Vec<u8>) -> Outcome<()> {
        let origin = (!self.room.origin.is_empty()).then_some(&self.room.origin[..]);
        text::push_name(token.raw(text), token.quoted, token.escaped, origin, out)
            .map_err(|fault| fault.at(token.line, token.column))
    }

    fn read_owner(&mut self, text: &[u8], token: Token) -> Outcome<()> {
        let mut owner = std::mem::take(&mut self.room.owner);
        owner.clear();
        let outcome = self.read_name(text, token, &mut owner);
        self.room.owner = owner;
        self.last_owner = if outcome.is_ok() { LastOwner::Known } else { LastOwner::Unreadable };
        outcome
    }

    /// Reads a record and adds it to the set.
    pub fn read_record(&mut self, entry: Entry<'_>) -> Outcome<()> {
        let Entry { text, mut tokens, starts_blank } = entry;
        let first = tokens[0];
        if !starts_blank {
            tokens = &tokens[1..];
            self.read_owner(text, first)?;
        } else if self.last_owner == LastOwner::None {
            let what = "a blank at the start of the line, but no owner before it";
            let accepted = "an owner name in the first column, `@` for the origin";
            return Err(fault(what, accepted).at(first.line, first.column));
        }
        let head = self.read_head(text, &mut tokens, entry)?;
        let mut rdata = std::mem::take(&mut self.room.rdata);
        rdata.clear();
        let origin = (!self.room.origin.is_empty()).then_some(&self.room.origin[..]);
        let mut fields = Fields { text, tokens, origin, last: head.token, spec: head.spec };
        let outcome = rdata::read(&mut fields, head.code, &mut rdata);
        let outcome = match outcome {
            Ok(()) => self.keep(&head, &rdata, first),
            Err(fault) => {
                // Its minimum would have been the TTL of what follows.
                if head.code == SOA && self.ttl_default.is_none() {
                    self.ttl_last.get_or_insert(0);
                }
                Err(fault)
            }
        };
        self.room.rdata = rdata;
        outcome
    }

    /// TTL and class in either order, then the type.
    fn read_head(&mut self, text: &[u8], tokens: &mut &[Token], entry: Entry<'_>) -> Outcome<Head> {
        let (mut ttl, mut class) = (None, false);
        loop {
            let Some((&token, rest)) = tokens.split_first() else {
                let last = entry.tokens[entry.tokens.len() - 1];
                let what = format!("the entry ends after {}", show(last.raw(text)));
                let accepted = "owner, TTL and class if wanted, record type and data";
                return Err(fault(what, accepted).at(last.line, last.column));
            };
            *tokens = rest;
            let raw = token.raw(text);
            let placed = |fault: Box<Fault>| fault.at(token.line, token.column);
            if ttl.is_none() && raw.first().is_some_and(u8::is_ascii_digit) && !token.quoted {
                let secs = text::parse_period(raw, TTL_SECS_MAX, "TTL").map_err(placed)?;
                (ttl, self.ttl_last) = (Some(secs), Some(secs));
            } else if !class && !token.quoted && is_class(raw).map_err(placed)? {
                class = true;
            } else {
                let (spec, code) = find_type(raw, token.quoted).map_err(|fault| {
                    explain_type(fault, entry, token, tokens).at(token.line, token.column)
                })?;
                return Ok(Head { ttl, token, spec, code });
            }
        }
    }

    fn keep(&mut self, head: &Head, rdata: &[u8], first: Token) -> Outcome<()> {
        let ttl_secs = match head.ttl.or(self.ttl_default).or(self.ttl_last) {
            Some(secs) => secs,
            None => self.find_ttl(head, rdata)?,
        };
        if self.last_owner == LastOwner::Unreadable || self.full {
            return Ok(());
        }
        let (line, column) = self.pinned.unwrap_or((first.line, first.column));
        let at = Position { file: self.file, line, column };
        let record = Record { owner: &self.room.owner, rtype: head.code, ttl_secs, rdata, at };
        self.records.push(record).map_err(|_| {
            self.full = true;
            fault("more than 4 GiB of records", "a smaller zone").at(line, column)
        })
    }

    /// Without any TTL so far, the SOA's minimum is the default, for the SOA
    /// record too.
    #[cold]
    fn find_ttl(&mut self, head: &Head, rdata: &[u8]) -> Outcome<u32> {
        let place = |fault: Box<Fault>| fault.at(head.token.line, head.token.column);
        let Some((_, minimum)) = rdata.split_last_chunk().filter(|_| head.code == SOA) else {
            // Once: every record until the next TTL has the same problem.
            self.ttl_last = Some(0);
            let what = "no TTL for this record, and none before it";
            return Err(place(fault(
                what,
                "a TTL before the type, or $TTL or the SOA before the record",
            )));
        };
        let secs = u32::from_be_bytes(*minimum);
        self.ttl_default = Some(secs.min(TTL_SECS_MAX));
        if secs > TTL_SECS_MAX {
            let what = format!("the SOA's minimum {secs} is out of range for the TTL");
            return Err(place(fault(what, format!("0 to {TTL_SECS_MAX} seconds"))));
        }
        Ok(secs)
    }
}

/// What stands between the owner and the data of a record.
struct Head {
    ttl: Option<u32>,
    token: Token,
    spec: &'static Spec,
    code: u16,
}

/// True for the class IN; other classes are refused.
pub(super) fn is_class(raw: &[u8]) -> Outcome<bool> {
    if raw.eq_ignore_ascii_case(b"IN") || raw.eq_ignore_ascii_case(b"CLASS1") {
        return Ok(true);
    }
    let is_other = |name: &&[u8]| raw.eq_ignore_ascii_case(name);
    let numbered = raw.len() > 5
        && raw[..5].eq_ignore_ascii_case(b"CLASS")
        && raw[5..].iter().all(u8::is_ascii_digit);
    if numbered || [&b"CH"[..], b"HS", b"CS", b"NONE"].iter().any(is_other) {
        return Err(fault(format!("the class {} is not served", show(raw)), "IN, or no class"));
    }
    Ok(false)
}

#[inline]
fn find_type(raw: &[u8], quoted: bool) -> Outcome<(&'static Spec, u16)> {
    if let Some(spec) = types::by_name(raw).filter(|_| !quoted) {
        return Ok((spec, spec.code));
    }
    let Some(code) = types::code(raw).filter(|_| !quoted) else {
        let (quote, shown) = (if quoted { "quoted" } else { "unknown" }, show(raw));
        let what = format!("{quote} record type {shown}");
        return Err(fault(what, "a record type, or TYPE and its number"));
    };
    if types::is_meta(code) {
        let what = format!("the type {} cannot stand in a zone", show(raw));
        return Err(fault(what, "a type for data, not one for questions and messages"));
    }
    Ok((types::by_code(code).unwrap_or(&types::UNKNOWN), code))
}

/// Adds what was likely meant to an unknown type.
#[cold]
fn explain_type(
    mut fault: Box<Fault>,
    entry: Entry<'_>,
    token: Token,
    after: &[Token],
) -> Box<Fault> {
    let raw = token.raw(entry.text);
    let is_type = |token: &Token| types::by_name(token.raw(entry.text)).is_some();
    if types::code(raw).is_some() {
        return fault;
    }
    let is_second = is_class(raw).unwrap_or(true) || raw.first().is_some_and(u8::is_ascii_digit);
    if is_second {
        fault.what = format!("{} where the record type should be", show(raw));
        fault.accepted = "at most one TTL and one class, then the record type".into();
    } else if raw.starts_with(b"$") {
        fault.what = format!("{} after a blank", show(raw));
        fault.accepted = "a directive starts in the first column".into();
    } else if entry.starts_blank && after.iter().take(3).any(is_type) {
        fault.what.push_str("; the line starts with a blank, so this is not read as the owner");
        fault.accepted.push_str("; an owner starts in the first column");
    } else if let Some(nearest) = types::nearest(raw) {
        fault.what.push_str(&format!("; did you mean `{nearest}`?"));
    }
    fault
}
