//! Zone files on disk to changes of the catalogue.
//!
//! A [`ZoneDirectory`] knows which files it has read and in which state, so a
//! reload reads only what changed. Files are read and compiled on all cores,
//! each with buffers of its own. Nothing here touches what is being served:
//! the result is a [`Load`], which says what to change and what was wrong.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use authority::zonefile::{Includes, Reader};
use authority::{Catalog, Change, Compiler, Image, NameHasher, Position, Problems, RecordSet};
use wire::Name;

/// Only files with this ending are zones; others may be included by them.
const ENDING: &str = ".zone";
/// Octets of one zone file at the most.
pub const FILE_LEN_MAX: u64 = 4 << 30;

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
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
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

/// What became of one file.
struct FileResult {
    order: usize,
    state: FileState,
    outcome: FileOutcome,
    problems: Option<Box<Problems>>,
    includes: Option<Vec<(PathBuf, u64)>>,
}

enum FileOutcome {
    Unchanged,
    Good {
        image: Image,
    },
    /// The image answers SERVFAIL; there is none if not even the zone's name
    /// is known.
    Bad {
        image: Option<Image>,
    },
}

/// One thread's buffers.
struct Workbench<'d> {
    directory: &'d ZoneDirectory,
    text: Vec<u8>,
    reader: Reader,
    records: RecordSet,
    compiler: Compiler,
}

impl<'d> Workbench<'d> {
    fn new(directory: &'d ZoneDirectory) -> Self {
        Workbench {
            directory,
            text: Vec::new(),
            reader: Reader::new(),
            records: RecordSet::default(),
            compiler: Compiler::new(directory.hasher),
        }
    }

    fn read_file(&mut self, order: usize, name: &OsString) -> FileResult {
        let directory = self.directory;
        let path = directory.path.join(name);
        let hash = directory.names.hash_one(name);
        let mut state = FileState { name: hash, stamp: 0, origin: 0, is_bad: false };
        let known = directory.known(hash);
        if let Some(known) = known {
            state.stamp = stamp_of(&path);
            // A bad file is read again every time: what is wrong with it may
            // lie elsewhere, and every reload shall say what is still bad.
            if state.stamp == known.stamp && !known.is_bad && directory.includes_are_unchanged(hash)
            {
                return FileResult {
                    order,
                    state: *known,
                    outcome: FileOutcome::Unchanged,
                    problems: None,
                    includes: None,
                };
            }
        }
        let mut problems = Problems::new(path.display().to_string());
        let mut includes = DirectoryIncludes { root: &directory.path, read: Vec::new() };
        let mut image = None;
        self.records.clear();
        let fallback = origin_from_name(name);
        match read_whole(&path, &mut self.text) {
            Ok(stamp) => {
                state.stamp = stamp;
                let origin = fallback.as_deref().map(Name::from_trusted);
                self.reader.read(
                    &self.text,
                    origin,
                    &mut includes,
                    &mut self.records,
                    &mut problems,
                );
                image = self.compiler.compile(&self.records, &mut problems);
            }
            Err(error) => problems.error(
                Position::default(),
                format!("the file cannot be read: {error}"),
                "a readable file",
            ),
        }
        let outcome = match image {
            Some(image) => {
                state.origin = image.origin_hash();
                FileOutcome::Good { image }
            }
            None => {
                state.is_bad = true;
                let origin = authority::compile::origin_of(&self.records).or(fallback);
                let image = origin
                    .map(|origin| Image::broken(Name::from_trusted(&origin), &directory.hasher));
                state.origin = image.as_ref().map_or(0, Image::origin_hash);
                FileOutcome::Bad { image }
            }
        };
        FileResult {
            order,
            state,
            outcome,
            problems: (!problems.is_empty()).then(|| Box::new(problems)),
            includes: (!includes.read.is_empty()).then_some(includes.read),
        }
    }
}

impl ZoneDirectory {
    fn includes_are_unchanged(&self, name: u64) -> bool {
        self.includes
            .get(&name)
            .is_none_or(|files| files.iter().all(|(path, stamp)| stamp_of(path) == *stamp))
    }
}

/// Reads a file into `text`; returns its stamp.
fn read_whole(path: &Path, text: &mut Vec<u8>) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > FILE_LEN_MAX {
        return Err(io::Error::other("it is larger than 4 GiB"));
    }
    // One octet more than the file has: a read that does not fill the room has
    // met the end, so a small file takes one system call.
    text.resize(metadata.len() as usize + 1, 0);
    let mut len = 0;
    loop {
        match file.read(&mut text[len..]) {
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if len < text.len() {
            text.truncate(len);
            return Ok(stamp(&metadata));
        }
        // It grew while it was read.
        text.resize(2 * len, 0);
    }
}

/// A number that changes when the file does.
fn stamp(metadata: &fs::Metadata) -> u64 {
    let parts = [
        metadata.ino(),
        metadata.len(),
        metadata.mtime() as u64,
        metadata.mtime_nsec() as u64,
        metadata.ctime_nsec() as u64,
    ];
    // Never 0, which means that there is no file.
    parts.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, part| {
        (hash ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(29)
    }) | 1
}

fn stamp_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| stamp(&metadata))
}

/// The zone name that a file is called after: `example.com.zone` holds
/// `example.com.`, unless its records say otherwise.
fn origin_from_name(name: &OsString) -> Option<Vec<u8>> {
    let stem = name.as_bytes().strip_suffix(ENDING.as_bytes())?;
    let stem = stem.strip_suffix(b".").unwrap_or(stem);
    let mut wire = Vec::with_capacity(stem.len() + 2);
    for label in stem.split(|octet| *octet == b'.') {
        let is_plain =
            |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'/');
        if label.is_empty() || label.len() > 63 || !label.iter().all(is_plain) {
            return None;
        }
        wire.push(label.len() as u8);
        wire.extend(label.to_ascii_lowercase());
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}

/// `$INCLUDE` from inside the zone directory only.
pub struct DirectoryIncludes<'d> {
    root: &'d Path,
    read: Vec<(PathBuf, u64)>,
}

impl<'d> DirectoryIncludes<'d> {
    /// Includes from `root` and below.
    pub fn new(root: &'d Path) -> Self {
        DirectoryIncludes { root, read: Vec::new() }
    }
}

impl Includes for DirectoryIncludes<'_> {
    fn open(&mut self, path: &str, _from_file: &str) -> Result<(String, Vec<u8>), String> {
        let relative = Path::new(path);
        let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !relative.components().all(stays) {
            return Err(format!(
                "`{path}` leads out of the zone directory; accepted: a path relative to {}",
                self.root.display()
            ));
        }
        let full = self.root.join(relative);
        // A link must not lead out either.
        let inside =
            |real: PathBuf| -> io::Result<bool> { Ok(real.starts_with(self.root.canonicalize()?)) };
        match full.canonicalize().and_then(inside) {
            Ok(true) => {}
            Ok(false) => {
                return Err(format!(
                    "`{path}` is a link out of the zone directory; accepted: a file inside {}",
                    self.root.display()
                ));
            }
            Err(error) => return Err(format!("`{path}` cannot be read: {error}")),
        }
        let mut text = Vec::new();
        let stamp = read_whole(&full, &mut text)
            .map_err(|error| format!("`{path}` cannot be read: {error}"))?;
        self.read.push((full.clone(), stamp));
        Ok((full.display().to_string(), text))
    }
}

/// Reads and compiles one file on its own, for `pharos zone check`.
pub fn check_file(path: &Path) -> (Option<Image>, Problems) {
    let mut problems = Problems::new(path.display().to_string());
    let mut records = RecordSet::default();
    let mut text = Vec::new();
    let root = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Err(error) = read_whole(path, &mut text) {
        let what = format!("the file cannot be read: {error}");
        problems.error(Position::default(), what, "a readable file");
        return (None, problems);
    }
    let fallback = path.file_name().map(OsString::from).and_then(|name| origin_from_name(&name));
    let mut includes = DirectoryIncludes::new(root.unwrap_or(Path::new(".")));
    let origin = fallback.as_deref().map(Name::from_trusted);
    Reader::new().read(&text, origin, &mut includes, &mut records, &mut problems);
    let image = Compiler::new(NameHasher::new([7; 16])).compile(&records, &mut problems);
    (image, problems)
}
