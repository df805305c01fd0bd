//! One zone file: read, compiled, and remembered by a stamp.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use authority::compile::origin_of;
use authority::zonefile::{Includes, Reader};
use authority::{Catalog, Compiler, Image, Placement, Position, Problems, RecordSet};
use wire::Name;

use super::problems::Room;
use super::{ENDING, FileState, ZoneDirectory};

/// Octets of one zone file at the most.
pub(super) const FILE_LEN_MAX: u64 = 4 << 30;

/// What became of one file.
pub(super) struct FileResult {
    pub order: usize,
    /// Without an origin if the file is bad: what it stands for then depends
    /// on other files and on what is served.
    pub state: FileState,
    pub outcome: FileOutcome,
    pub problems: Option<Box<Problems>>,
    pub includes: Vec<(PathBuf, u64)>,
}

impl FileResult {
    /// Makes a good file bad, for a reason that is not in it.
    pub fn refuse(&mut self, path: &Path, what: &str, accepted: &str) {
        self.outcome = FileOutcome::Bad { named: None, guessed: None };
        self.state.is_bad = true;
        self.state.problems += 1;
        self.problems
            .get_or_insert_with(|| Box::new(Problems::new(path.display().to_string())))
            .error(Position::default(), what, accepted);
    }
}

pub(super) enum FileOutcome {
    Unchanged,
    Good {
        image: Image,
    },
    /// Images that answer SERVFAIL: of the zone that the file names by its SOA
    /// record, and of the one that it is called after.
    Bad {
        named: Option<Image>,
        guessed: Option<Image>,
    },
    /// It holds a zone that another file holds too, which goes before it.
    Doubled,
}

/// One thread's buffers.
pub(super) struct Workbench<'d> {
    directory: &'d ZoneDirectory,
    serving: &'d Catalog,
    room: &'d Room,
    text: Vec<u8>,
    reader: Reader,
    records: RecordSet,
    compiler: Compiler,
}

impl<'d> Workbench<'d> {
    /// `room` is for the problems of all files that are read together.
    pub fn new(directory: &'d ZoneDirectory, serving: &'d Catalog, room: &'d Room) -> Self {
        Workbench {
            directory,
            serving,
            room,
            text: Vec::new(),
            reader: Reader::new(),
            records: RecordSet::default(),
            compiler: Compiler::new(directory.hasher),
        }
    }

    /// Reads and compiles the `order`th file, if it is not as it was.
    pub fn read_file(&mut self, order: usize, name: &OsString) -> FileResult {
        let directory = self.directory;
        let path = directory.path.join(name);
        let hash = directory.names.hash_one(name);
        let mut state = FileState { name: hash, ..FileState::default() };
        if let Some(known) = directory.known(hash) {
            state.stamp = stamp_of(&path);
            // A bad file is read again every time: what is wrong with it may
            // lie elsewhere, and every reload shall say what is still bad.
            if state.stamp == known.stamp
                && !known.is_bad
                && directory.includes_are_unchanged(hash)
                && directory.is_in_place(known, self.serving)
            {
                return FileResult {
                    order,
                    state: *known,
                    outcome: FileOutcome::Unchanged,
                    problems: None,
                    includes: Vec::new(),
                };
            }
        }
        let mut problems = Problems::new(path.display().to_string());
        let mut includes = DirectoryIncludes::new(&directory.path);
        let mut image = None;
        self.records.clear();
        let fallback = origin_from_name(name);
        match read_whole(&path, FILE_LEN_MAX, &mut self.text) {
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
                image = self.compile(&mut problems);
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
                let broken = |origin: Vec<u8>| {
                    let origin = Name::from_trusted(&origin);
                    let placement = directory.placement_of(origin).ok()?;
                    Some(Image::broken(origin, &placement, &directory.hasher))
                };
                let named = origin_of(&self.records);
                // Of a zone that the file does not name, it needs no shard.
                let guessed = fallback.filter(|_| named.is_none());
                FileOutcome::Bad {
                    named: named.and_then(broken),
                    guessed: guessed.and_then(broken),
                }
            }
        };
        state.problems = u32::try_from(problems.count()).unwrap_or(u32::MAX);
        self.room.fit(&mut problems);
        FileResult {
            order,
            state,
            outcome,
            problems: (!problems.is_empty()).then(|| Box::new(problems)),
            includes: includes.read,
        }
    }

    /// Compiles the records, for where their zone lives.
    fn compile(&mut self, problems: &mut Problems) -> Option<Image> {
        let placement = match (&self.directory.placements, origin_of(&self.records)) {
            (Some(placements), Some(origin)) => {
                placements.placement_of(Name::from_trusted(&origin))
            }
            _ => Ok(Placement::Everywhere),
        };
        let placement = placement.unwrap_or_else(|problem| {
            problems.error(Position::default(), problem, "a fleet with room for the zone");
            Placement::Everywhere
        });
        self.compiler.compile(&mut self.records, &placement, problems)
    }
}

/// Reads a file of at most `len_max` octets into `text`; returns its stamp.
pub(super) fn read_whole(path: &Path, len_max: u64, text: &mut Vec<u8>) -> io::Result<u64> {
    let (mut file, metadata) = open_regular(path)?;
    let too_large = |len: u64| {
        io::Error::other(format!("it has {len} octets, and there is room for {len_max}"))
    };
    if metadata.len() > len_max {
        return Err(too_large(metadata.len()));
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
        if len as u64 > len_max {
            return Err(too_large(len as u64));
        }
        if len < text.len() {
            text.truncate(len);
            return Ok(stamp(&metadata));
        }
        // It grew while it was read.
        text.resize(2 * len, 0);
    }
}

/// Opens a regular file. Anything else could keep its reader waiting for ever,
/// as a FIFO without a writer does already when it is opened.
fn open_regular(path: &Path) -> io::Result<(File, fs::Metadata)> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    // A socket cannot even be opened; that is said in the same words.
    let kind = match &opened {
        Ok((_, metadata)) => metadata.file_type(),
        Err(error) => match fs::metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(_) => return Err(io::Error::new(error.kind(), error.to_string())),
        },
    };
    if kind.is_file() {
        return opened;
    }
    let what = match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("it is not a regular file but {what}")))
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

/// The stamp of the file at `path`; 0 if there is none.
pub(super) fn stamp_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| stamp(&metadata))
}

/// The zone name that a file is called after: `example.com.zone` holds
/// `example.com.`, unless its records say otherwise.
pub(super) fn origin_from_name(name: &OsStr) -> Option<Vec<u8>> {
    let stem = name.as_bytes().strip_suffix(ENDING.as_bytes())?;
    let stem = stem.strip_suffix(b".").unwrap_or(stem);
    let mut wire = Vec::with_capacity(stem.len() + 2);
    for label in stem.split(|octet| *octet == b'.') {
        let is_plain = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_');
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
pub(super) struct DirectoryIncludes<'d> {
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
    fn open(
        &mut self,
        path: &str,
        _from_file: &str,
        len_max: usize,
    ) -> Result<(String, Vec<u8>), String> {
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
        let stamp = read_whole(&full, len_max as u64, &mut text)
            .map_err(|error| format!("`{path}` cannot be read: {error}"))?;
        self.read.push((full.clone(), stamp));
        Ok((full.display().to_string(), text))
    }
}
