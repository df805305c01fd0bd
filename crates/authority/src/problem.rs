//! What is wrong with a zone, and where.
//!
//! A reader or a compiler never stops at the first problem: it notes it and
//! goes on, so that an operator sees everything at once. Each problem says
//! what was found and what would be accepted.

use std::fmt;

/// Problems of one zone that are kept; past that only their number grows. A
/// file of garbage must not fill the memory with its own complaints.
pub const PROBLEMS_KEPT_MAX: usize = 1000;

/// A place in one of the files a zone is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Index into [`Problems::files`]: 0 is the zone's own file, the others
    /// came by `$INCLUDE`.
    pub file: u16,
    /// From 1. 0 means the file as a whole.
    pub line: u32,
    /// From 1, in octets. 0 means the line as a whole.
    pub column: u32,
}

/// Whether a zone with such a problem can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The zone is served; the problem is worth a look.
    Warning,
    /// The zone is not served.
    Error,
}

/// One thing wrong with a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether it keeps the zone from being served.
    pub severity: Severity,
    /// Where it was seen.
    pub at: Position,
    /// What was found.
    pub what: String,
    /// What would have been accepted instead.
    pub accepted: String,
}

/// Everything noted while one zone was read and compiled.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    /// Names of the files that positions refer to.
    pub files: Vec<String>,
    list: Vec<Problem>,
    errors: usize,
    dropped: usize,
}

impl Problems {
    /// Nothing noted yet about the zone in `file`.
    pub fn new(file: impl Into<String>) -> Self {
        Problems { files: vec![file.into()], ..Problems::default() }
    }

    /// Notes a problem that keeps the zone from being served.
    pub fn error(&mut self, at: Position, what: impl Into<String>, accepted: impl Into<String>) {
        self.errors += 1;
        self.note(Severity::Error, at, what.into(), accepted.into());
    }

    /// Notes a problem that does not keep the zone from being served.
    pub fn warning(&mut self, at: Position, what: impl Into<String>, accepted: impl Into<String>) {
        self.note(Severity::Warning, at, what.into(), accepted.into());
    }

    fn note(&mut self, severity: Severity, at: Position, what: String, accepted: String) {
        if self.list.len() == PROBLEMS_KEPT_MAX {
            self.dropped += 1;
            return;
        }
        self.list.push(Problem { severity, at, what, accepted });
    }

    /// Drops all but `max` problems: warnings first, then what was noted last.
    /// What is dropped still counts.
    pub fn keep_worst(&mut self, max: usize) {
        if self.list.len() > max {
            self.list.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
            self.dropped += self.list.len() - max;
            self.list.truncate(max);
            self.list.shrink_to_fit();
        }
    }

    /// True if no problem is kept.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of problems kept.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Number of problems, those past the bound included.
    pub fn count(&self) -> usize {
        self.list.len() + self.dropped
    }

    /// Number of errors, those past the bound included.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Number of problems that were counted but not kept.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The problems kept, in the order of their places.
    pub fn sorted(&self) -> Vec<&Problem> {
        let mut list: Vec<_> = self.list.iter().collect();
        list.sort_by_key(|problem| problem.at);
        list
    }

    /// `file:line:column` of a position.
    pub fn place(&self, at: Position) -> Place<'_> {
        Place { file: self.files.get(at.file as usize).map_or("?", String::as_str), at }
    }
}

/// A position with the name of its file, printed as editors read it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    file: &'a str,
    at: Position,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        if self.at.line > 0 {
            write!(f, ":{}", self.at.line)?;
            if self.at.column > 0 {
                write!(f, ":{}", self.at.column)?;
            }
        }
        Ok(())
    }
}

/// One line per problem: `file:line:column: error: what; accepted: …`.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.sorted() {
            let severity = match problem.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            writeln!(
                f,
                "{}: {severity}: {}; accepted: {}",
                self.place(problem.at),
                problem.what,
                problem.accepted
            )?;
        }
        if self.dropped > 0 {
            let file = self.files.first().map_or("?", String::as_str);
            writeln!(f, "{file}: and {} more problems, not listed", self.dropped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_are_kept_and_the_rest_is_counted() {
        let mut problems = Problems::new("zone");
        let at = |line| Position { line, ..Position::default() };
        problems.warning(at(1), "odd", "even");
        problems.error(at(3), "bad", "good");
        problems.error(at(2), "bad", "good");
        problems.keep_worst(3);
        assert_eq!((problems.len(), problems.dropped()), (3, 0));
        problems.keep_worst(1);
        assert_eq!((problems.errors(), problems.count()), (2, 3));
        assert_eq!(
            problems.to_string(),
            "zone:3: error: bad; accepted: good\nzone: and 2 more problems, not listed\n"
        );
        problems.keep_worst(0);
        assert!(problems.is_empty() && problems.count() == 3);
    }
}
