//! What is wrong with runbooks, and where.
//!
//! Nothing here stops at the first problem: each is noted, and reading goes on,
//! so that whoever wrote the files sees everything at once. Every problem says
//! what to do about it.

use std::collections::BTreeSet;
use std::fmt;

use base::text::one_line;
use serde::Serialize;

/// Problems kept of one file; past that only their number grows. A file of
/// garbage must not fill the memory with its own complaints.
pub const PROBLEMS_PER_FILE_MAX: usize = 200;

/// Whether a plan can be made of runbooks with such a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// They can be used; it is worth a look.
    Warning,
    Error,
}

/// One thing wrong with a runbook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    pub file: String,
    /// From 1. 0 means the file as a whole.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// A place in one of the files that were read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// An index into the files of the library.
    pub file: u32,
    pub line: u32,
    pub column: u32,
}

/// Something that was written at a place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed<T> {
    pub at: Place,
    pub value: T,
}

/// Everything noted so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    files: Vec<String>,
    /// For each file.
    noted: Vec<Vec<Noted>>,
    dropped: Vec<usize>,
    /// The same thing can be seen from several evacuations; it is said once.
    said: BTreeSet<(Place, String)>,
}

#[derive(Debug)]
struct Noted {
    at: Place,
    severity: Severity,
    what: String,
    remedy: String,
}

impl<T> Placed<T> {
    pub fn new(at: Place, value: T) -> Self {
        Placed { at, value }
    }
}

impl Problems {
    /// Takes the name of the next file. Its places have the number it returns.
    pub fn open(&mut self, name: &str) -> u32 {
        self.files.push(name.to_owned());
        self.noted.push(Vec::new());
        self.dropped.push(0);
        (self.files.len() - 1) as u32
    }

    /// Nothing noted yet about files whose places are known.
    pub fn of_files(names: &[String]) -> Problems {
        let mut problems = Problems::default();
        for name in names {
            problems.open(name);
        }
        problems
    }

    pub fn files(&self) -> &[String] {
        &self.files
    }

    pub fn error(&mut self, at: Place, what: impl Into<String>, remedy: impl Into<String>) {
        self.note(Severity::Error, at, what.into(), remedy.into());
    }

    pub fn warning(&mut self, at: Place, what: impl Into<String>, remedy: impl Into<String>) {
        self.note(Severity::Warning, at, what.into(), remedy.into());
    }

    fn note(&mut self, severity: Severity, at: Place, what: String, remedy: String) {
        debug_assert!(!remedy.is_empty(), "a problem without a remedy: {what}");
        if self.said.contains(&(at, what.clone())) {
            return;
        }
        let file = at.file as usize;
        if self.noted[file].len() == PROBLEMS_PER_FILE_MAX {
            self.dropped[file] += 1;
            return;
        }
        self.said.insert((at, what.clone()));
        self.noted[file].push(Noted { at, severity, what, remedy });
    }

    /// Whether no plan can be made, by what was noted so far.
    pub fn has_errors(&self) -> bool {
        let mut noted = self.noted.iter().flatten();
        noted.any(|noted| noted.severity == Severity::Error)
            || self.dropped.iter().any(|dropped| *dropped > 0)
    }

    /// `file:line:column` of a place, for problems that speak of a second one.
    pub fn show(&self, at: Place) -> String {
        format!("{}:{}:{}", self.files[at.file as usize], at.line, at.column)
    }

    /// All that was noted, in the order of the files and of the places in them.
    pub fn into_sorted(self) -> Vec<Problem> {
        let mut sorted = Vec::new();
        for ((file, mut noted), dropped) in self.files.into_iter().zip(self.noted).zip(self.dropped)
        {
            noted.sort_by_key(|noted| noted.at);
            sorted.extend(noted.into_iter().map(|noted| Problem {
                severity: noted.severity,
                file: file.clone(),
                line: noted.at.line,
                column: noted.at.column,
                what: noted.what,
                remedy: noted.remedy,
            }));
            if dropped > 0 {
                sorted.push(Problem {
                    severity: Severity::Error,
                    file,
                    line: 0,
                    column: 0,
                    what: format!("{dropped} more problems, not listed"),
                    remedy: "repair those that are listed, then check again".into(),
                });
            }
        }
        sorted
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// `file:line:column: error: what; remedy`, as editors read it: one line, also
/// where a file's name or what it quotes has several.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.file))?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}: {}; {}", self.severity, one_line(&self.what), one_line(&self.remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_whatever_the_file_is_called() {
        let mut problems = Problems::default();
        let file = problems.open("a\nb.yaml: error: forged; x\u{202e}.yaml");
        let at = Place { file, line: 1, column: 1 };
        problems.error(at, "unknown key `a\u{2028}b`", "accepted: c");
        assert_eq!(
            problems.into_sorted()[0].to_string(),
            "a b.yaml: error: forged; x?.yaml:1:1: error: unknown key `a b`; accepted: c"
        );
    }

    #[test]
    fn problems_are_sorted_said_once_and_bounded() {
        let mut problems = Problems::default();
        let (first, second) = (problems.open("a.yaml"), problems.open("b.yaml"));
        let at = |file, line| Place { file, line, column: 1 };
        problems.warning(at(second, 1), "odd", "accepted: even");
        for line in (0..PROBLEMS_PER_FILE_MAX as u32 + 3).rev() {
            problems.error(at(first, line + 1), "bad", "accepted: good");
        }
        problems.warning(at(second, 1), "odd", "accepted: even");
        let sorted = problems.into_sorted();
        assert_eq!(sorted.len(), PROBLEMS_PER_FILE_MAX + 2);
        assert!(sorted.is_sorted_by_key(|problem| {
            (problem.line == 0, problem.line).max((problem.file == "b.yaml", 0))
        }));
        assert_eq!(
            sorted[PROBLEMS_PER_FILE_MAX].to_string(),
            "a.yaml: error: 3 more problems, not listed; repair those that are listed, then check \
             again"
        );
        assert_eq!(
            sorted.last().map(Problem::to_string).as_deref(),
            Some("b.yaml:1:1: warning: odd; accepted: even")
        );
    }
}
