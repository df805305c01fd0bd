//! Zone files on disk to changes of the catalogue.
//!
//! A [`ZoneDirectory`] knows which files it has read and in which state, so a
//! reload reads only what changed. Files are read and compiled on all cores,
//! each with buffers of its own. Nothing here touches what is being served:
//! the result is a [`Load`], which says what to change and what was wrong.

mod check;
mod file;
mod merge;
mod problems;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use authority::{Catalog, Change, Image, NameHasher, Placement};
use wire::Name;

pub use check::Checker;
use file::{FileOutcome, FileResult, Workbench, stamp_of};
use merge::{Merge, Scope};
pub use problems::KnownProblems;
use problems::{ProblemStore, Room};

use crate::fleet::{Placements, Unkept};

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
    /// Where zones live; without it they are answered everywhere.
    placements: Option<Arc<dyn Placements>>,
    names: RandomState,
    /// What is known of each file, in order of the hash of its name.
    files: Vec<FileState>,
    /// Sums over `files`.
    sums: Sums,
    /// Zones that more than one file holds or held, by the hash of their names.
    contested: HashSet<u64>,
    /// Files that zones include, and their stamps, by the hash of the zone
    /// file's name.
    includes: HashMap<u64, Vec<(PathBuf, u64)>>,
    /// What is wrong with which file.
    problems: ProblemStore,
}

/// What is known of a zone file. A million of them must stay small.
#[derive(Clone, Copy, Debug, Default)]
struct FileState {
    name: u64,
    /// Changes when the file does.
    stamp: u64,
    /// Hash of the name of the zone that the file holds; 0 if it gave none.
    origin: u64,
    /// Number of problems it had when it was read last.
    problems: u32,
    is_bad: bool,
    /// Its zone is taken from it, and not from another file that holds it too.
    is_source: bool,
}

/// Sums over files, kept as they change: a reload of one zone must not look at
/// a million files.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    problems: usize,
    bad: usize,
}

impl Sums {
    fn add(&mut self, file: &FileState) {
        self.problems += file.problems as usize;
        self.bad += usize::from(file.is_bad);
    }

    fn subtract(&mut self, file: &FileState) {
        self.problems -= file.problems as usize;
        self.bad -= usize::from(file.is_bad);
    }
}

/// What a load found.
#[derive(Debug, Default)]
pub struct Load {
    /// What to change in the catalogue.
    pub changes: Vec<Change>,
    /// What is wrong with the files of the directory, whenever it was found,
    /// by the names of the files; bounded.
    pub problems: Vec<KnownProblems>,
    /// Problems beyond that bound, in files that are not among these.
    pub untold: usize,
    /// Problems of the files that were read this time, all of them.
    pub found: usize,
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
    /// Nothing read yet. Without `placements` zones are answered everywhere.
    pub fn new(path: PathBuf, hasher: NameHasher, placements: Option<Arc<dyn Placements>>) -> Self {
        ZoneDirectory {
            path,
            hasher,
            placements,
            names: RandomState::new(),
            files: Vec::new(),
            sums: Sums::default(),
            contested: HashSet::new(),
            includes: HashMap::new(),
            problems: ProblemStore::default(),
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
        let mut results = self.read_all(&names, serving, progress);
        self.keep_placements(&names, &mut results);
        Ok(Merge::new(self, &names, serving, Scope::All).run(results))
    }

    /// Reads the files of these zones alone, and those that hold the same
    /// zones; the rest of the directory is not looked at, however large it is.
    pub fn load_zones(&mut self, zones: &[String], serving: &Catalog) -> io::Result<Load> {
        let mut names = self.files_of(zones)?;
        let mut results = self.read_all(&names, serving, &|_, _| {});
        loop {
            let rivals = self.rivals_of(&results)?;
            if rivals.is_empty() {
                break;
            }
            let mut more = self.read_all(&rivals, serving, &|_, _| {});
            more.iter_mut().for_each(|result| result.order += names.len());
            results.append(&mut more);
            names.extend(rivals);
        }
        self.keep_placements(&names, &mut results);
        Ok(Merge::new(self, &names, serving, Scope::Some).run(results))
    }

    /// The files of `zones`: those called after them, and those that they are
    /// served from if these have other names.
    fn files_of(&self, zones: &[String]) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        // Zones that are not known to be in a file called after them.
        let mut elsewhere = Vec::new();
        for zone in zones {
            let origin = self.origin_of(zone);
            let called = self.files_called(zone);
            let is_source = |name: &OsString| {
                let known = self.known(self.names.hash_one(name));
                known.is_some_and(|file| file.is_source && file.origin == origin)
            };
            if !called.iter().any(is_source) {
                elsewhere.push((origin, zone, called.is_empty()));
            }
            names.extend(called);
        }
        let sources = self.sources_of(elsewhere.iter().map(|(origin, ..)| *origin).collect())?;
        let is_missing = |(origin, _, is_uncalled): &&(u64, &String, bool)| {
            *is_uncalled && !sources.iter().any(|(_, source)| source == origin)
        };
        if let Some((_, zone, _)) = elsewhere.iter().find(is_missing) {
            return Err(io::Error::other(format!(
                "no file {}{ENDING} for the zone {zone} in {}, and none that was read before \
                 holds it; nothing was changed: a reload of all zones finds new files with other \
                 names",
                zone.trim_end_matches('.'),
                self.path.display()
            )));
        }
        names.extend(sources.into_iter().map(|(name, _)| name));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Hash of the name of a zone; 0 if it is no domain name.
    fn origin_of(&self, zone: &str) -> u64 {
        match wire::name::from_text(zone) {
            Ok(name) if !zone.is_empty() => {
                self.hasher.name(Name::from_trusted(&name.to_ascii_lowercase()))
            }
            _ => 0,
        }
    }

    /// The files that are called after `zone`: by custom in lower case.
    fn files_called(&self, zone: &str) -> Vec<OsString> {
        let stem = zone.trim_end_matches('.');
        let mut names = vec![format!("{}{ENDING}", stem.to_ascii_lowercase())];
        if names[0].strip_suffix(ENDING) != Some(stem) {
            names.push(format!("{stem}{ENDING}"));
        }
        let is_there = |name: &String| {
            !name.starts_with('.')
                && Path::new(name).components().count() == 1
                && self.path.join(name).symlink_metadata().is_ok()
        };
        names.into_iter().filter(is_there).map(OsString::from).collect()
    }

    /// The files that these zones are served from, each with its zone.
    fn sources_of(&self, mut origins: Vec<u64>) -> io::Result<Vec<(OsString, u64)>> {
        origins.sort_unstable();
        let sources: HashMap<u64, u64> = self
            .files
            .iter()
            .filter(|file| file.is_source && origins.binary_search(&file.origin).is_ok())
            .map(|file| (file.name, file.origin))
            .collect();
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        let with_zone = |name: OsString| {
            let origin = *sources.get(&self.names.hash_one(&name))?;
            Some((name, origin))
        };
        Ok(self.list()?.into_iter().filter_map(with_zone).collect())
    }

    /// Other files that hold, or held, a zone that one of `results` holds or
    /// held. Who gets it can only be decided among all of them.
    fn rivals_of(&self, results: &[FileResult]) -> io::Result<Vec<OsString>> {
        let mut origins: Vec<u64> =
            results.iter().flat_map(|result| self.zones_in_doubt(result)).collect();
        if origins.is_empty() {
            return Ok(Vec::new());
        }
        origins.sort_unstable();
        let mut read: Vec<u64> = results.iter().map(|result| result.state.name).collect();
        read.sort_unstable();
        let rivals: HashSet<u64> = self
            .files
            .iter()
            .filter(|file| file.origin != 0 && origins.binary_search(&file.origin).is_ok())
            .map(|file| file.name)
            .filter(|name| read.binary_search(name).is_err())
            .collect();
        if rivals.is_empty() {
            return Ok(Vec::new());
        }
        let is_rival = |name: &OsString| rivals.contains(&self.names.hash_one(name));
        Ok(self.list()?.into_iter().filter(is_rival).collect())
    }

    /// The zones that a file holds or held and that another one may hold too:
    /// not the one it held alone.
    fn zones_in_doubt(&self, result: &FileResult) -> impl Iterator<Item = u64> {
        let before = self.known(result.state.name).map_or(0, |known| known.origin);
        let hash = |image: &Option<Image>| image.as_ref().map_or(0, Image::origin_hash);
        let zones = match &result.outcome {
            FileOutcome::Bad { named, guessed } => [before, hash(named), hash(guessed)],
            _ => [before, result.state.origin, 0],
        };
        let is_in_doubt =
            move |zone: &u64| *zone != 0 && (*zone != before || self.contested.contains(zone));
        zones.into_iter().filter(is_in_doubt)
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
        serving: &Catalog,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Vec<FileResult> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.max(THREADS_MIN);
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let shown = Mutex::new(Instant::now());
        let room = Room::default();
        std::thread::scope(|scope| {
            for _ in 0..threads.min(names.len().max(1)) {
                scope.spawn(|| {
                    let mut bench = Workbench::new(self, serving, &room);
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

    /// Where the zone `origin`, lowered, is answered.
    fn placement_of(&self, origin: Name<'_>) -> Result<Placement, String> {
        match &self.placements {
            Some(placements) => placements.placement_of(origin),
            None => Ok(Placement::Everywhere),
        }
    }

    /// Has the placements of new zones kept. Zones for which that fails are bad.
    fn keep_placements(&self, names: &[OsString], results: &mut [FileResult]) {
        let Some(placements) = &self.placements else { return };
        let Err(Unkept { zones, reason }) = placements.commit() else { return };
        let is_unkept = |image: &Image| zones.contains(&image.origin_hash());
        for result in results {
            let is_bad = match &mut result.outcome {
                FileOutcome::Good { image } => is_unkept(image),
                FileOutcome::Bad { named, guessed } => {
                    named.take_if(|image| is_unkept(image));
                    guessed.take_if(|image| is_unkept(image));
                    false
                }
                _ => false,
            };
            if is_bad {
                let path = self.path.join(&names[result.order]);
                result.refuse(&path, &reason, "a disk that the zone's shard can be kept on");
            }
        }
    }

    /// True if the zone that is served from `file` is served where it shall be.
    fn is_in_place(&self, file: &FileState, serving: &Catalog) -> bool {
        if self.placements.is_none() || !file.is_source {
            return true;
        }
        let is_there = |image: &Image| {
            let placement = self.placement_of(image.origin());
            placement.is_ok_and(|placement| image.servers().eq(placement.servers()))
        };
        serving.by_hash(file.origin).is_none_or(is_there)
    }

    fn known(&self, name: u64) -> Option<&FileState> {
        self.files.binary_search_by_key(&name, |file| file.name).ok().map(|at| &self.files[at])
    }
}
