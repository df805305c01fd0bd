//! Zone files on disk to changes of the catalogue.
//!
//! A [`ZoneDirectory`] knows which files it has read and in which state, so a
//! reload reads only what changed. Files are read and compiled on all cores,
//! each with buffers of its own. Nothing here touches what is being served:
//! the result is a [`Load`], which says what to change and what was wrong.

mod check;
mod file;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::hash::RandomState;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use authority::{Catalog, Change, NameHasher, Position, Problems};

pub use check::Checker;
use file::{FileOutcome, FileResult, Workbench, stamp_of};

/// Only files with this ending are zones; others may be included by them.
const ENDING: &str = ".zone";
/// Threads that read zone files, however few cores there are: while one waits
/// for the disk, another compiles.
const THREADS_MIN: usize = 4;

/// The directory that zones come from.
#[derive(Debug)]
pub struct ZoneDirectory {
    path: PathBuf,
    hasher: NameHasher,
    names: RandomState,
    /// What is known of each file, in order of the hash of its name.
    files: Vec<FileState>,
    /// Files that zones include, and their stamps, by the hash of the zone
    /// file's name.
    includes: HashMap<u64, Vec<(PathBuf, u64)>>,
}

/// What is known of a zone file. A million of them must stay small.
#[derive(Clone, Copy, Debug)]
struct FileState {
    name: u64,
    /// Changes when the file does.
    stamp: u64,
    /// Hash of the zone's name; 0 if the file gave none.
    origin: u64,
    is_bad: bool,
}

/// What a load found.
#[derive(Debug, Default)]
pub struct Load {
    /// What to change in the catalogue.
    pub changes: Vec<Change>,
    /// Everything wrong with the files that were read, worst files first.
    pub problems: Vec<Problems>,
    /// What happened, in numbers.
    pub summary: Summary,
}

/// What a load did, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Zone files in the directory.
    pub files: usize,
    /// Files that were read because they are new or changed.
    pub read: usize,
    /// Zones that are new or have new data.
    pub updated: usize,
    /// Zones whose file is gone.
    pub removed: usize,
    /// Files with errors.
    pub bad: usize,
    /// Zones whose file has errors and whose last good data is served on.
    pub kept: usize,
}

impl ZoneDirectory {
    /// Nothing read yet.
    pub fn new(path: PathBuf, hasher: NameHasher) -> Self {
        ZoneDirectory {
            path,
            hasher,
            names: RandomState::new(),
            files: Vec::new(),
            includes: HashMap::new(),
        }
    }

    /// Reads what is new or changed since the last time. `serving` is what is
    /// served now.
    pub fn load(
        &mut self,
        serving: &Catalog,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> io::Result<Load> {
        let names = self.list()?;
        if names.is_empty() && self.files.iter().any(|file| file.origin != 0) {
            return Err(io::Error::other(format!(
                "no *{ENDING} file in {} any more, but {} zones are served from it; nothing was \
                 changed: if the zones are to go, stop the server",
                self.path.display(),
                serving.totals().zones
            )));
        }
        let results = self.read_all(&names, progress);
        Ok(self.merge_all(&names, results, serving))
    }

    /// Reads the files of these zones alone, which are called after them; the
    /// rest of the directory is not looked at, however large it is.
    pub fn load_zones(&mut self, zones: &[String], serving: &Catalog) -> io::Result<Load> {
        let names: Vec<OsString> = zones
            .iter()
            .map(|zone| format!("{}{ENDING}", zone.trim_end_matches('.').to_lowercase()).into())
            .collect();
        for (name, zone) in names.iter().zip(zones) {
            if Path::new(name).components().count() != 1 || !self.path.join(name).is_file() {
                return Err(io::Error::other(format!(
                    "no file {} for the zone {zone} in {}; nothing was changed: a reload of all \
                     zones finds files with other names",
                    name.display(),
                    self.path.display()
                )));
            }
        }
        let results = self.read_all(&names, &|_, _| {});
        Ok(self.merge_some(&names, results, serving))
    }

    /// Names of all zone files, in the order in which a disk reads them best.
    fn list(&self) -> io::Result<Vec<OsString>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let octets = name.as_bytes();
            // Names that start with a dot are editors' and tools' own.
            if octets.ends_with(ENDING.as_bytes()) && !octets.starts_with(b".") {
                files.push((entry.ino(), name));
            }
        }
        files.sort_unstable_by_key(|(inode, _)| *inode);
        Ok(files.into_iter().map(|(_, name)| name).collect())
    }

    fn read_all(
        &self,
        names: &[OsString],
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Vec<FileResult> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.max(THREADS_MIN);
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let shown = Mutex::new(Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..threads.min(names.len().max(1)) {
                scope.spawn(|| {
                    let mut bench = Workbench::new(self);
                    let mut own = Vec::new();
                    // Files are taken in runs, to keep the threads apart.
                    const RUN: usize = 64;
                    loop {
                        let start = next.fetch_add(RUN, Ordering::Relaxed);
                        if start >= names.len() {
                            break;
                        }
                        let end = (start + RUN).min(names.len());
                        for (index, name) in names[start..end].iter().enumerate() {
                            own.push(bench.read_file(start + index, name));
                        }
                        if let Ok(mut shown) = shown.try_lock()
                            && shown.elapsed() >= Duration::from_secs(1)
                        {
                            *shown = Instant::now();
                            progress(end, names.len());
                        }
                    }
                    let mut all = results.lock().unwrap_or_else(|e| e.into_inner());
                    all.append(&mut own);
                });
            }
        });
        results.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    fn includes_are_unchanged(&self, name: u64) -> bool {
        self.includes
            .get(&name)
            .is_none_or(|files| files.iter().all(|(path, stamp)| stamp_of(path) == *stamp))
    }

    fn known(&self, name: u64) -> Option<&FileState> {
        self.files.binary_search_by_key(&name, |file| file.name).ok().map(|at| &self.files[at])
    }

    /// Turns what was read of the whole directory into changes.
    fn merge_all(
        &mut self,
        names: &[OsString],
        results: Vec<FileResult>,
        serving: &Catalog,
    ) -> Load {
        let mut load = Load::default();
        let mut states = Vec::with_capacity(results.len());
        let owners = owners(names, &results);
        for result in results {
            let owner = owners.get(&result.state.origin);
            let is_taken = owner.is_some_and(|owner| *owner != result.order);
            states.push(self.take(&mut load, result, is_taken, names, serving));
        }
        for old in &self.files {
            if old.origin != 0
                && !owners.contains_key(&old.origin)
                && let Some(image) = serving.by_hash(old.origin)
            {
                load.changes.push(Change::remove(image.origin(), &self.hasher));
                load.summary.removed += 1;
            }
        }
        states.sort_unstable_by_key(|state| state.name);
        self.files = states;
        self.finish(load)
    }

    /// Turns what was read of a few files into changes.
    fn merge_some(
        &mut self,
        names: &[OsString],
        results: Vec<FileResult>,
        serving: &Catalog,
    ) -> Load {
        let mut load = Load::default();
        for result in results {
            let FileState { name, origin, .. } = result.state;
            let is_taken = origin != 0
                && self.files.iter().any(|file| file.origin == origin && file.name != name);
            let state = self.take(&mut load, result, is_taken, names, serving);
            match self.files.binary_search_by_key(&name, |file| file.name) {
                Ok(at) => self.files[at] = state,
                Err(at) => self.files.insert(at, state),
            }
        }
        self.finish(load)
    }

    fn finish(&self, mut load: Load) -> Load {
        load.summary.files = self.files.len();
        load.summary.bad = self.files.iter().filter(|file| file.is_bad).count();
        load
    }

    /// Takes one file's result into `load`; returns what to remember of it.
    fn take(
        &mut self,
        load: &mut Load,
        result: FileResult,
        is_taken: bool,
        names: &[OsString],
        serving: &Catalog,
    ) -> FileState {
        let mut state = result.state;
        let mut problems = result.problems;
        if !matches!(result.outcome, FileOutcome::Unchanged) {
            load.summary.read += 1;
        }
        if is_taken {
            let file = self.path.join(&names[result.order]).display().to_string();
            problems.get_or_insert_with(|| Box::new(Problems::new(file))).error(
                Position::default(),
                "another file of the directory already holds this zone",
                "one file for each zone",
            );
            state.origin = 0;
            state.is_bad = true;
        } else {
            load.take(result.outcome, &state, serving);
        }
        if let Some(includes) = result.includes {
            self.includes.insert(state.name, includes);
        }
        load.problems.extend(problems.map(|problems| *problems));
        state
    }
}

impl Load {
    fn take(&mut self, outcome: FileOutcome, state: &FileState, serving: &Catalog) {
        match outcome {
            FileOutcome::Unchanged => {}
            FileOutcome::Good { image } => {
                let same =
                    serving.by_hash(state.origin).is_some_and(|old| old.has_same_content(&image));
                if !same {
                    self.summary.updated += 1;
                    self.changes.push(Change::Put(image));
                }
            }
            FileOutcome::Bad { image: Some(image) } => match serving.by_hash(state.origin) {
                Some(old) if !old.is_broken() => self.summary.kept += 1,
                _ => self.changes.push(Change::Put(image)),
            },
            FileOutcome::Bad { image: None } => {}
        }
    }
}

/// Which file each zone is taken from. Of two files with the same zone it is
/// the one whose name sorts first, every time.
fn owners(names: &[OsString], results: &[FileResult]) -> HashMap<u64, usize> {
    let mut owners = HashMap::with_capacity(results.len());
    for result in results.iter().filter(|result| result.state.origin != 0) {
        let owner = owners.entry(result.state.origin).or_insert(result.order);
        if names[result.order] < names[*owner] {
            *owner = result.order;
        }
    }
    owners
}
