//! `$ORIGIN`, `$TTL` and `$INCLUDE`.

use super::fault::{Fault, Outcome, fault, show};
use super::session::{Entry, LastOwner, Session};
use super::token::Token;
use super::{INCLUDE_DEPTH_MAX, INCLUDED_LEN_MAX, INCLUDES_MAX, TTL_SECS_MAX, text};

impl Session<'_> {
    /// Reads an entry that starts with `$`.
    pub fn read_directive(&mut self, entry: Entry<'_>) -> Outcome<()> {
        let directive = entry.tokens[0];
        let raw = directive.raw(entry.text);
        let is = |name: &str| raw.eq_ignore_ascii_case(name.as_bytes());
        if is("$ORIGIN") {
            let [_, name] = entry.arguments("$ORIGIN and a name")?;
            let mut origin = Vec::new();
            self.read_name(entry.text, name, &mut origin)?;
            self.room.origin = origin;
            Ok(())
        } else if is("$TTL") {
            let secs = entry.arguments("$TTL and a period").and_then(|[_, period]| {
                text::parse_period(period.raw(entry.text), TTL_SECS_MAX, "default TTL")
                    .map_err(|fault| fault.at(period.line, period.column))
            });
            // An unreadable default is one problem, not one for each record.
            self.ttl_default = Some(*secs.as_ref().unwrap_or(&0));
            secs.map(drop)
        } else if is("$INCLUDE") {
            self.include(entry)
        } else if is("$GENERATE") {
            self.generate(entry)
        } else {
            let what = format!("unknown directive {}", show(raw));
            let accepted =
                "$ORIGIN, $TTL, $INCLUDE, $GENERATE; `\\$` for an owner that starts with $";
            Err(fault(what, accepted).at(directive.line, directive.column))
        }
    }

    /// `$INCLUDE file [origin]`. Origin and last owner are those of the outer
    /// file afterwards (RFC 1035, 5.1); a default TTL stays, as in BIND.
    fn include(&mut self, entry: Entry<'_>) -> Outcome<()> {
        let accepted = "$INCLUDE, a file and, if wanted, an origin";
        let with_origin = entry.tokens.len() > 2;
        let path = match with_origin {
            true => entry.arguments::<3>(accepted)?[1],
            false => entry.arguments::<2>(accepted)?[1],
        };
        let place = |fault: Box<Fault>| fault.at(path.line, path.column);
        let mut octets = Vec::new();
        text::push_octets(path.raw(entry.text), path.escaped, &mut octets).map_err(place)?;
        let mut origin = self.room.origin.clone();
        if with_origin {
            origin.clear();
            self.read_name(entry.text, entry.tokens[2], &mut origin)?;
        }
        let (name, text) = self.open(&octets).map_err(place)?;
        self.problems.files.push(name);
        let file = (self.problems.files.len() - 1) as u16;

        let outer_file = std::mem::replace(&mut self.file, file);
        let outer_origin = std::mem::replace(&mut self.room.origin, origin);
        let outer_owner = std::mem::take(&mut self.room.owner);
        let outer_last = std::mem::replace(&mut self.last_owner, LastOwner::None);
        self.include_depth += 1;
        self.read(&text);
        self.include_depth -= 1;
        self.file = outer_file;
        self.room.origin = outer_origin;
        self.room.owner = outer_owner;
        self.last_owner = outer_last;
        Ok(())
    }

    fn open(&mut self, path: &[u8]) -> Outcome<(String, Vec<u8>)> {
        let shown = show(path);
        if self.include_depth == INCLUDE_DEPTH_MAX {
            let what =
                format!("$INCLUDE of {shown} is nested too deep; does a file include itself?");
            return Err(fault(
                what,
                format!("at most {INCLUDE_DEPTH_MAX} files inside each other"),
            ));
        }
        let room_in_files = self.problems.files.len() <= usize::from(u16::MAX);
        if self.includes_count == INCLUDES_MAX || !room_in_files {
            let what = format!("$INCLUDE of {shown} is one too many");
            return Err(fault(what, format!("at most {INCLUDES_MAX} in a zone")));
        }
        self.includes_count += 1;
        let from = &self.problems.files[usize::from(self.file)];
        let path = str::from_utf8(path)
            .map_err(|_| fault(format!("the file name {shown}"), "a file name in UTF-8"))?;
        let len_max = INCLUDED_LEN_MAX - self.included_len;
        let (name, text) = self.includes.open(path, from, len_max).map_err(|why| {
            let accepted = "a file that the server may read; of all together at most 1 GiB";
            fault(format!("cannot include {shown}: {why}"), accepted)
        })?;
        if text.len() > len_max {
            let what = format!("{shown} has {} octets too many", text.len() - len_max);
            return Err(fault(what, "at most 1 GiB of included text"));
        }
        self.included_len += text.len();
        Ok((name, text))
    }
}

impl Entry<'_> {
    /// The directive and its arguments, exactly as many as wanted.
    fn arguments<const N: usize>(&self, accepted: &str) -> Outcome<[Token; N]> {
        <[Token; N]>::try_from(self.tokens).map_err(|_| {
            let token = self.tokens[self.tokens.len().min(N + 1) - 1];
            let shown = show(token.raw(self.text));
            let what = match self.tokens.len() < N {
                true => format!("nothing after {shown}"),
                false => format!("{shown} after the end of the directive"),
            };
            fault(what, accepted).at(token.line, token.column)
        })
    }
}
