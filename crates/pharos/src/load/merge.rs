//! What was read of zone files, to changes of the catalogue.
//!
//! One rule stands over all others: a bad file never removes or replaces a
//! zone that is served. Which file a zone is taken from is decided the same
//! way whether all files were read or a few:
//!
//! - Of two good files that hold it, the one whose name sorts first.
//! - A file that became bad still holds the zone that is served from it,
//!   unless its text names another zone and a good file has taken this one.
//! - Any other bad file gives way to the two kinds above.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::BuildHasher;

use authority::{Catalog, Change, Image, Position, Problems};

use super::file::{FileOutcome, FileResult};
use super::problems::Room;
use super::{FileState, Load, Sums, ZoneDirectory};

/// Which files were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of the whole directory: a file that is not among them is gone.
    All,
    /// Some files, and every other that holds one of their zones.
    Some,
}

/// What was read, on its way to changes.
pub(super) struct Merge<'m> {
    directory: &'m mut ZoneDirectory,
    names: &'m [OsString],
    serving: &'m Catalog,
    scope: Scope,
    /// The file that each zone is taken from, by the hash of the zone's name.
    owners: HashMap<u64, Claim>,
    load: Load,
}

/// A file that holds a zone.
#[derive(Clone, Copy, Debug)]
struct Claim {
    order: usize,
    /// It gives way to others, whatever its name.
    is_weak: bool,
}

impl<'m> Merge<'m> {
    /// `names` are those of the files that were read.
    pub fn new(
        directory: &'m mut ZoneDirectory,
        names: &'m [OsString],
        serving: &'m Catalog,
        scope: Scope,
    ) -> Self {
        let owners = HashMap::with_capacity(names.len());
        if scope == Scope::All {
            directory.contested.clear();
        }
        Merge { directory, names, serving, scope, owners, load: Load::default() }
    }

    /// Decides what to change, and remembers the files as they are now.
    pub fn run(mut self, mut results: Vec<FileResult>) -> Load {
        self.claim_by_good(&results);
        self.claim_by_bad(&mut results);
        self.refuse_doubled(&mut results);
        self.remove_unowned(&results);
        let room = self.start_problems(&results);
        let states = results.into_iter().map(|result| self.take(result, &room)).collect();
        self.remember(states);
        self.finish()
    }

    fn claim_by_good(&mut self, results: &[FileResult]) {
        for result in results {
            let is_read = !matches!(result.outcome, FileOutcome::Unchanged);
            self.load.summary.read += usize::from(is_read);
            if !matches!(result.outcome, FileOutcome::Bad { .. }) {
                self.claim(result.state.origin, Claim { order: result.order, is_weak: false });
            }
        }
    }

    fn claim_by_bad(&mut self, results: &mut [FileResult]) {
        for result in results {
            if let FileOutcome::Bad { named, guessed } = &result.outcome {
                let file = result.state.name;
                let (origin, is_weak) = self.zone_of_bad(file, named.as_ref(), guessed.as_ref());
                result.state.origin = origin;
                self.claim(origin, Claim { order: result.order, is_weak });
            }
        }
    }

    /// Which zone a bad file stands for, and whether it gives way to others.
    fn zone_of_bad(
        &self,
        file: u64,
        named: Option<&Image>,
        guessed: Option<&Image>,
    ) -> (u64, bool) {
        let named = named.map(Image::origin_hash);
        match (named, self.held(file)) {
            (None, Some(held)) => (held, false),
            (Some(named), Some(held)) if named == held => (held, false),
            // It names another zone than before, but such as it is the zone
            // from before must not go for it.
            (Some(_), Some(held)) if !self.is_held_well(held) => (held, true),
            (Some(named), _) => (named, true),
            // The file's name says less than what the file once held.
            (None, None) => {
                let known = self.directory.known(file).map(|known| known.origin);
                let guessed = || guessed.map_or(0, Image::origin_hash);
                (known.filter(|origin| *origin != 0).unwrap_or_else(guessed), true)
            }
        }
    }

    /// Of two files that hold a zone it is taken from the same one every time.
    fn claim(&mut self, origin: u64, claim: Claim) {
        if origin == 0 {
            return;
        }
        let rank = |claim: Claim| (claim.is_weak, &self.names[claim.order]);
        match self.owners.entry(origin) {
            Entry::Vacant(place) => drop(place.insert(claim)),
            Entry::Occupied(mut place) => {
                self.directory.contested.insert(origin);
                if rank(claim) < rank(*place.get()) {
                    place.insert(claim);
                }
            }
        }
    }

    /// Turns away the files whose zone is taken from another. What was served
    /// from such a file before stays: a file copied over the wrong one must
    /// not remove a zone.
    fn refuse_doubled(&mut self, results: &mut [FileResult]) {
        for result in results {
            let says_so = match &result.outcome {
                FileOutcome::Bad { named, .. } => {
                    named.as_ref().is_some_and(|i| i.origin_hash() == result.state.origin)
                }
                _ => true,
            };
            if !says_so || self.is_owner(result) {
                continue;
            }
            if matches!(result.outcome, FileOutcome::Unchanged) {
                // Warnings from before are not repeated beside the refusal.
                result.state.problems = 0;
            }
            result.outcome = FileOutcome::Doubled;
            result.state.is_bad = true;
            if let Some(held) = self.held(result.state.name)
                && !self.owners.contains_key(&held)
            {
                result.state.origin = held;
                self.claim(held, Claim { order: result.order, is_weak: true });
            }
        }
    }

    /// Removes the zones that were taken from these files, or from files that
    /// are gone, and that no file holds any more.
    fn remove_unowned(&mut self, results: &[FileResult]) {
        let mut removed = HashSet::new();
        let mut remove = |old: &FileState| {
            if old.is_source
                && !self.owners.contains_key(&old.origin)
                && removed.insert(old.origin)
                && let Some(image) = self.serving.by_hash(old.origin)
            {
                let change = Change::remove(image.origin(), &self.directory.hasher);
                self.load.changes.push(change);
                self.load.summary.removed += 1;
            }
        };
        match self.scope {
            Scope::All => self.directory.files.iter().for_each(remove),
            Scope::Some => results
                .iter()
                .filter_map(|result| self.directory.known(result.state.name))
                .for_each(&mut remove),
        }
    }

    /// Forgets the problems of files that were read or are gone; returns the
    /// room for new ones.
    fn start_problems(&mut self, results: &[FileResult]) -> Room {
        let unchanged: HashSet<u64> = results
            .iter()
            .filter(|result| matches!(result.outcome, FileOutcome::Unchanged))
            .filter(|result| result.state.problems > 0)
            .map(|result| result.state.name)
            .collect();
        let read: HashSet<&OsStr> = match self.scope {
            Scope::All => HashSet::new(),
            Scope::Some => self.names.iter().map(OsString::as_os_str).collect(),
        };
        let (scope, hashes) = (self.scope, &self.directory.names);
        self.directory.problems.start(|file| {
            let is_concerned = scope == Scope::All || read.contains(file);
            is_concerned && !unchanged.contains(&hashes.hash_one(file))
        });
        self.directory.problems.room()
    }

    /// Takes one file's result; returns what to remember of the file.
    fn take(&mut self, result: FileResult, room: &Room) -> FileState {
        let is_owner = self.is_owner(&result);
        let mut state = result.state;
        state.is_source = is_owner;
        if matches!(result.outcome, FileOutcome::Unchanged) {
            return state;
        }
        let file = &self.names[result.order];
        let mut problems = result.problems;
        if matches!(result.outcome, FileOutcome::Doubled) {
            let shown = self.directory.path.join(file).display().to_string();
            problems.get_or_insert_with(|| Box::new(Problems::new(shown))).error(
                Position::default(),
                "another file of the directory already holds this zone",
                "one file for each zone",
            );
            state.problems += 1;
        }
        self.load.found += state.problems as usize;
        if let Some(problems) = problems {
            self.directory.problems.keep(file.clone(), *problems, room);
        }
        match result.includes.is_empty() {
            true => drop(self.directory.includes.remove(&state.name)),
            false => drop(self.directory.includes.insert(state.name, result.includes)),
        }
        if is_owner {
            self.change(state.origin, result.outcome);
        }
        state
    }

    /// Changes the zone `origin` as the file that it is taken from demands.
    fn change(&mut self, origin: u64, outcome: FileOutcome) {
        let old = self.serving.by_hash(origin);
        match outcome {
            FileOutcome::Good { image } => {
                if !old.is_some_and(|old| old.has_same_content(&image)) {
                    self.load.summary.updated += 1;
                    self.load.changes.push(Change::Put(image));
                }
            }
            FileOutcome::Bad { named, guessed } => match old {
                Some(old) if !old.is_broken() => self.load.summary.kept += 1,
                // One that is broken already may have moved.
                old => {
                    let is_own = |image: &Image| image.origin_hash() == origin;
                    let is_new = |image: &Image| !old.is_some_and(|o| o.has_same_content(image));
                    let image = named.filter(is_own).or(guessed.filter(is_own)).filter(is_new);
                    self.load.changes.extend(image.map(Change::Put));
                }
            },
            FileOutcome::Doubled => self.load.summary.kept += 1,
            FileOutcome::Unchanged => {}
        }
    }

    fn remember(&mut self, mut states: Vec<FileState>) {
        let directory = &mut *self.directory;
        match self.scope {
            Scope::All => {
                states.sort_unstable_by_key(|state| state.name);
                directory.sums = Sums::default();
                states.iter().for_each(|state| directory.sums.add(state));
                directory.files = states;
                let files = &directory.files;
                directory
                    .includes
                    .retain(|name, _| files.binary_search_by_key(name, |file| file.name).is_ok());
            }
            Scope::Some => {
                for state in states {
                    directory.sums.add(&state);
                    match directory.files.binary_search_by_key(&state.name, |file| file.name) {
                        Ok(at) => {
                            directory.sums.subtract(&directory.files[at]);
                            directory.files[at] = state;
                        }
                        Err(at) => directory.files.insert(at, state),
                    }
                }
            }
        }
    }

    fn finish(self) -> Load {
        let Merge { directory, mut load, .. } = self;
        load.summary.files = directory.files.len();
        load.summary.bad = directory.sums.bad;
        load.problems = directory.problems.list();
        let told: usize = load.problems.iter().map(|known| known.problems.count()).sum();
        load.untold = directory.sums.problems.saturating_sub(told);
        load
    }

    /// The zone that is served, well, from this file.
    fn held(&self, file: u64) -> Option<u64> {
        let known = self.directory.known(file).filter(|known| known.is_source)?;
        let image = self.serving.by_hash(known.origin)?;
        (!image.is_broken()).then_some(known.origin)
    }

    /// A file that gives way to none holds this zone.
    fn is_held_well(&self, origin: u64) -> bool {
        self.owners.get(&origin).is_some_and(|owner| !owner.is_weak)
    }

    fn is_owner(&self, result: &FileResult) -> bool {
        self.owners.get(&result.state.origin).is_some_and(|owner| owner.order == result.order)
    }
}
