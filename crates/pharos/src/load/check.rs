//! `pharos zone check`: files read and compiled without a server.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use authority::zonefile::Reader;
use authority::{
    Compiler, Image, NameHasher, Placement, Position, Problems, RecordSet, Shard, ShardServer,
};
use wire::Name;

use super::file::{DirectoryIncludes, FILE_LEN_MAX, origin_from_name, read_whole};

/// Checks files one after the other, and remembers which zones they held.
#[derive(Debug, Default)]
pub struct Checker {
    /// The file that each zone of a directory was first seen in.
    seen: HashMap<(PathBuf, Vec<u8>), PathBuf>,
    /// The zones will live on a fleet, which gives them their NS records.
    is_for_fleet: bool,
}

impl Checker {
    /// Checks files for a server with a fleet, or for one without.
    pub fn new(is_for_fleet: bool) -> Self {
        Checker { is_for_fleet, ..Checker::default() }
    }

    /// Reads and compiles one file. No image if it has errors.
    pub fn check(&mut self, path: &Path) -> (Option<Image>, Problems) {
        let mut problems = Problems::new(path.display().to_string());
        let mut records = RecordSet::default();
        let image = self.compile(path, &mut records, &mut problems);
        if let Some(origin) = authority::compile::origin_of(&records) {
            self.note_double(path, origin, &mut problems);
        }
        (image.filter(|_| problems.errors() == 0), problems)
    }

    /// A server takes a zone from one file of its directory. Files of other
    /// directories are no rivals: they may be for other servers.
    fn note_double(&mut self, path: &Path, origin: Vec<u8>, problems: &mut Problems) {
        let Ok(full) = std::path::absolute(path) else { return };
        let directory = full.parent().unwrap_or(Path::new("/"));
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let full = directory.join(full.file_name().unwrap_or(OsStr::new("")));
        let shown = Name::from_trusted(&origin).to_string();
        match self.seen.entry((directory, origin)) {
            Entry::Vacant(place) => drop(place.insert(full)),
            Entry::Occupied(place) if *place.get() == full => {}
            Entry::Occupied(place) => problems.error(
                Position::default(),
                format!("{} already holds the zone {shown}", place.get().display()),
                "one file for each zone; of two the server takes the one whose name sorts first",
            ),
        }
    }

    fn compile(
        &self,
        path: &Path,
        records: &mut RecordSet,
        problems: &mut Problems,
    ) -> Option<Image> {
        let mut text = Vec::new();
        if let Err(error) = read_whole(path, FILE_LEN_MAX, &mut text) {
            let what = format!("the file cannot be read: {error}");
            problems.error(Position::default(), what, "a readable file");
            return None;
        }
        let fallback = path.file_name().and_then(origin_from_name);
        let root = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut includes = DirectoryIncludes::new(root.unwrap_or(Path::new(".")));
        let origin = fallback.as_deref().map(Name::from_trusted);
        Reader::new().read(&text, origin, &mut includes, records, problems);
        let placement = match self.is_for_fleet && !has_servers(records) {
            true => stand_in(),
            false => Placement::Everywhere,
        };
        Compiler::new(NameHasher::new([7; 16])).compile(records, &placement, problems)
    }
}

/// Whether a zone names its own name servers.
fn has_servers(records: &RecordSet) -> bool {
    let origin = authority::compile::origin_of(records).unwrap_or_default();
    let is_own = |record: authority::Record<'_>| {
        record.rtype == wire::rtype::NS && record.owner.eq_ignore_ascii_case(&origin)
    };
    records.iter().any(is_own)
}

/// A shard with a name that lies in no zone.
fn stand_in() -> Placement {
    let server = ShardServer { number: 0, name: Arc::from(&b"\x02ns\x07invalid\0"[..]) };
    Shard::new(vec![server]).map_or(Placement::Everywhere, Placement::Shard)
}
