//! What is wrong with the files of the directory, as of their last reading.
//!
//! A reload of one zone reads one file, so what is wrong with the others is
//! remembered here, within bounds: ten thousand bad files must not fill the
//! memory with complaints.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use authority::Problems;

/// Problems kept of all files together.
const KEPT_MAX: usize = 10_000;
/// Of these, places for one problem of each bad file, so that a few files with
/// many problems do not hide that others are bad too.
const BAD_FILES_MAX: usize = KEPT_MAX / 2;

/// Room for the problems of many files. Threads share it.
#[derive(Debug)]
pub(super) struct Room {
    bad_files: AtomicUsize,
    rest: AtomicUsize,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            bad_files: AtomicUsize::new(BAD_FILES_MAX),
            rest: AtomicUsize::new(KEPT_MAX - BAD_FILES_MAX),
        }
    }
}

impl Room {
    /// Drops from `problems` what there is no room for, warnings first.
    pub fn fit(&self, problems: &mut Problems) {
        let granted = self.take(problems);
        problems.keep_worst(granted);
    }

    /// How many of `problems` there was room for.
    fn take(&self, problems: &Problems) -> usize {
        let is_bad = problems.errors() > 0 && !problems.is_empty();
        let first = take(&self.bad_files, usize::from(is_bad));
        first + take(&self.rest, problems.len() - first)
    }
}

/// Takes up to `wanted` from `room`; returns how many.
fn take(room: &AtomicUsize, wanted: usize) -> usize {
    let left = |left: usize| Some(left.saturating_sub(wanted));
    let before = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    wanted.min(before.unwrap_or_else(|before| before))
}

/// The problems of one file.
#[derive(Clone, Debug)]
pub struct KnownProblems {
    pub problems: Arc<Problems>,
    /// They were found by the load that reports them, not by an earlier one.
    pub is_new: bool,
}

/// The problems of all files that have any, by the file's name.
#[derive(Debug, Default)]
pub(super) struct ProblemStore {
    by_file: BTreeMap<OsString, KnownProblems>,
}

impl ProblemStore {
    /// Forgets what `is_past`, and that anything is new.
    pub fn start(&mut self, mut is_past: impl FnMut(&OsStr) -> bool) {
        self.by_file.retain(|file, _| !is_past(file));
        self.by_file.values_mut().for_each(|known| known.is_new = false);
    }

    /// The room beside what is kept.
    pub fn room(&self) -> Room {
        let room = Room::default();
        for known in self.by_file.values() {
            room.take(&known.problems);
        }
        room
    }

    /// Keeps the problems of a file, if there is room.
    pub fn keep(&mut self, file: OsString, mut problems: Problems, room: &Room) {
        room.fit(&mut problems);
        if !problems.is_empty() {
            let known = KnownProblems { problems: Arc::new(problems), is_new: true };
            self.by_file.insert(file, known);
        }
    }

    /// Everything kept, in the order of the files' names.
    pub fn list(&self) -> Vec<KnownProblems> {
        self.by_file.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use authority::Position;

    fn problems(errors: usize, warnings: usize) -> Problems {
        let mut problems = Problems::new("file");
        (0..warnings).for_each(|_| problems.warning(Position::default(), "odd", "even"));
        (0..errors).for_each(|_| problems.error(Position::default(), "bad", "good"));
        problems
    }

    #[test]
    fn many_problems_leave_room_to_name_other_bad_files() {
        let mut store = ProblemStore::default();
        let room = store.room();
        for file in 0..2 * BAD_FILES_MAX {
            store.keep(format!("{file:05}").into(), problems(500, 500), &room);
        }
        let list = store.list();
        assert_eq!(list.len(), BAD_FILES_MAX, "one of each, and no more files than that");
        assert_eq!(list.iter().map(|known| known.problems.len()).sum::<usize>(), KEPT_MAX);
        let last = list[BAD_FILES_MAX - 1].problems.to_string();
        assert_eq!(
            last,
            "file: error: bad; accepted: good\nfile: and 999 more problems, not listed\n"
        );
    }

    #[test]
    fn room_is_free_again_when_problems_are_gone() {
        let mut store = ProblemStore::default();
        let room = store.room();
        for file in 0..10 {
            store.keep(format!("{file}").into(), problems(0, 900), &room);
        }
        assert!(store.list().len() < 10, "warnings do not take the room of errors");
        store.start(|file| file != "0");
        assert_eq!(store.list().iter().filter(|known| known.is_new).count(), 0);
        let room = store.room();
        store.keep("new".into(), problems(1000, 0), &room);
        assert_eq!(store.list()[1].problems.len(), 1000);
    }
}
