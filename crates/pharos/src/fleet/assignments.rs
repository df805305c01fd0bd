//! Which zone lives on which shard, kept on disk.
//!
//! A zone gets its shard when it is first read and keeps it across reloads and
//! restarts: the delegation at the registrar names it. A shard is on disk
//! before the zone is served from it ([`Assignments::commit`]), so after a
//! crash nobody else can get it. When a zone goes, its shard waits for a grace
//! period before another zone may have it: resolvers remember the delegation,
//! and a file that was removed by mistake finds its shard again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use authority::{NameHasher, Placement, Shard, ShardServer};
use redb::{
    Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction,
};
use serde::{Deserialize, Serialize};
use shuffle::{Admission, Allocator, Design, DesignIndex, Fleet, Key, Plan, Slot, Wish};
use wire::Name;

use super::names::ServerNames;
use crate::random;

/// By the zone's name, lowered, in wire form: the number of its shard, and
/// when the zone went, in seconds since 1970, or 0.
const ZONES: TableDefinition<'_, &[u8], (u64, u64)> = TableDefinition::new("zones");
/// A row of it as it shall be; `None` removes it.
type Row = Option<(u64, u64)>;
/// One value for each of the keys below.
const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");
const SHAPE_KEY: &str = "shape";
const SECRET_KEY: &str = "key";
const ALLOCATOR_KEY: &str = "allocator";
const MAP_KEY: &str = "map";
const CLOSED_KEY: &str = "closed";

/// Memory for parts of the file.
const CACHE_LEN: usize = 16 << 20;

/// What decides the shards, besides the secret key. It cannot change while
/// zones have shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub servers: u32,
    pub stripes: u32,
    pub size: u32,
    pub overlap: u32,
}

impl Shape {
    /// The design of such a fleet; an error says what is impossible, and what
    /// is possible instead.
    pub fn design(&self, key: &Key) -> Result<Design, String> {
        let fleet = Fleet::numbered(self.servers as usize, Some(self.stripes as usize))
            .map_err(|error| error.to_string())?;
        let wish = Wish {
            size: self.size as usize,
            overlap: Some(self.overlap as usize),
            apart: vec![shuffle::STRIPE.to_owned()],
            ..Wish::default()
        };
        Plan::new(&fleet, &wish, key).map(|plan| plan.design).map_err(|error| error.to_string())
    }
}

/// The shards of all zones.
#[derive(Debug)]
pub struct Assignments {
    path: PathBuf,
    /// `None` after an error, until it could be opened again.
    database: RwLock<Option<Database>>,
    shape: Shape,
    /// The shard of the fleet's own zones, which no tenant gets.
    own: DesignIndex,
    hasher: NameHasher,
    names: ServerNames,
    grace: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    allocator: Allocator,
    /// Passes shards of closed servers over.
    admission: Admission,
    /// Servers that get no new zones.
    closed: BTreeSet<u16>,
    /// By the hash of the zone's name.
    zones: HashMap<u64, Held>,
    /// Not on disk yet.
    new: Vec<(Vec<u8>, DesignIndex)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    index: DesignIndex,
    /// When the zone went, in seconds since 1970; 0 while it is there.
    gone_secs: u64,
}

/// Zones whose new shards could not be written to disk, by the hashes of their
/// names, and why. They must not be served.
#[derive(Debug)]
pub struct Unkept {
    pub zones: HashSet<u64>,
    pub reason: String,
}

/// How the shards are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Zones that have a shard.
    pub zones: usize,
    /// Shards of zones that are gone, in their grace period.
    pub waiting: usize,
    /// Shards that nobody has.
    pub left: u128,
}

impl Assignments {
    /// Opens the file at `path`, or makes it.
    pub fn open(
        path: &Path,
        shape: Shape,
        names: ServerNames,
        grace: Duration,
        hasher: NameHasher,
    ) -> Result<Self, String> {
        let (database, state) = open(path, shape, &hasher)?;
        let own = last_shard(state.allocator.design()).ok_or("the fleet has no shard")?;
        Ok(Assignments {
            path: path.to_owned(),
            database: RwLock::new(Some(database)),
            shape,
            own,
            hasher,
            names,
            grace,
            state: Mutex::new(state),
        })
    }

    /// The servers that the fleet's own zones are delegated to. No tenant
    /// shares more of them than of any other shard.
    pub fn own_servers(&self) -> Vec<u16> {
        let state = self.state();
        let shard = state.allocator.design().shard(self.own);
        shard.iter().flat_map(|shard| shard.iter()).map(|slot| slot.0 as u16).collect()
    }

    /// Where the zone `origin`, lowered, lives. One that is new gets a shard,
    /// which is not on disk before [`Assignments::commit`].
    pub fn place(&self, origin: Name<'_>) -> Result<Placement, String> {
        let mut state = self.state();
        let hash = self.hasher.name(origin);
        if !state.zones.contains_key(&hash) && self.is_closed() {
            // Before anything new is placed: it would be forgotten.
            self.reopen(&mut state)?;
        }
        let index = match state.zones.get(&hash) {
            Some(held) => held.index,
            None => {
                let index = self.allocate(&mut state, origin)?;
                state.zones.insert(hash, Held { index, gone_secs: 0 });
                state.new.push((origin.as_bytes().to_vec(), index));
                index
            }
        };
        self.placement(state.allocator.design(), index)
    }

    fn allocate(&self, state: &mut State, origin: Name<'_>) -> Result<DesignIndex, String> {
        let State { allocator, admission, closed, .. } = state;
        let mut next = allocator.allocate(admission);
        if next.is_some_and(|(index, _)| index == self.own) {
            // It stays handed out.
            next = allocator.allocate(admission);
        }
        next.map(|(index, _)| index).ok_or_else(|| {
            format!(
                "no shard is left for {origin}: all {} are in use, wait for {} hours after their \
                 zones went, or have one of {} closed servers",
                allocator.design().capacity(),
                self.grace.as_secs() / 3600,
                closed.len()
            )
        })
    }

    fn placement(&self, design: &Design, index: DesignIndex) -> Result<Placement, String> {
        let shard = design.shard(index).ok_or("a zone's shard is not of this fleet")?;
        let servers = shard.iter().map(|slot| {
            let number = slot.0 as u16;
            ShardServer { number, name: self.names.wire(number).clone() }
        });
        Shard::new(servers.collect()).map(Placement::Shard).map_err(|error| error.to_string())
    }

    /// Writes what is new to disk. On an error the zones that it names have no
    /// shard.
    pub fn commit(&self) -> Result<(), Unkept> {
        let mut state = self.state();
        let new = std::mem::take(&mut state.new);
        let rows: Vec<(&[u8], Row)> =
            new.iter().map(|(zone, index)| (&zone[..], Some((index.get(), 0)))).collect();
        let written = match new.is_empty() {
            true => Ok(()),
            false => self.write(&rows, &state.allocator),
        };
        let reopened = match self.is_closed() {
            true => self.reopen(&mut state),
            false => Ok(()),
        };
        if let Err(error) = &reopened {
            tracing::error!("{error}");
        }
        let Err(reason) = written else { return Ok(()) };
        let hash = |(zone, _): &(Vec<u8>, DesignIndex)| self.hasher.name(Name::from_trusted(zone));
        let mut zones: HashSet<u64> = new.iter().map(hash).collect();
        match reopened {
            // What is on disk after all is kept.
            Ok(()) => zones.retain(|zone| !state.zones.contains_key(zone)),
            Err(_) => {
                state.zones.retain(|zone, _| !zones.contains(zone));
                for (_, index) in new {
                    state.allocator.release(index);
                }
            }
        }
        Err(Unkept { zones, reason })
    }

    /// Opens the file again after an error, and takes everything as it is
    /// there: the database does nothing more after one, and what was written
    /// of the last transaction is not known.
    fn reopen(&self, state: &mut State) -> Result<(), String> {
        let (opened, read) = open(&self.path, self.shape, &self.hasher)?;
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        *state = read;
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.database.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Notes which of `zones`, or of all, there are now: those that went begin
    /// to wait, those that came back wait no more, and shards that waited long
    /// enough are free.
    pub fn settle(
        &self,
        zones: Option<&[Vec<u8>]>,
        is_there: impl Fn(u64) -> bool,
        now_secs: u64,
    ) -> Result<(), String> {
        let mut state = self.state();
        let mut changed: Vec<(Vec<u8>, Held, Option<Held>)> = Vec::new();
        let mut look = |zone: &[u8]| {
            let hash = self.hasher.name(Name::from_trusted(zone));
            if let Some(&held) = state.zones.get(&hash) {
                let next = self.next(held, is_there(hash), now_secs);
                if next != Some(held) {
                    changed.push((zone.to_vec(), held, next));
                }
            }
        };
        match zones {
            Some(zones) => zones.iter().for_each(|zone| look(zone)),
            None => self.each_zone(|zone, _| look(zone))?,
        }
        if changed.is_empty() {
            return Ok(());
        }
        let mut allocator = state.allocator.clone();
        for (_, held, _) in changed.iter().filter(|(.., next)| next.is_none()) {
            allocator.release(held.index);
        }
        let row = |held: Held| (held.index.get(), held.gone_secs);
        let rows: Vec<_> =
            changed.iter().map(|(zone, _, next)| (&zone[..], next.map(row))).collect();
        self.write(&rows, &allocator)?;
        state.allocator = allocator;
        for (zone, _, next) in changed {
            let hash = self.hasher.name(Name::from_trusted(&zone));
            match next {
                Some(held) => drop(state.zones.insert(hash, held)),
                None => drop(state.zones.remove(&hash)),
            }
        }
        Ok(())
    }

    /// What becomes of a zone's shard; `None`: it is free.
    fn next(&self, held: Held, is_there: bool, now_secs: u64) -> Option<Held> {
        let gone_secs = match (is_there, held.gone_secs) {
            (true, _) => 0,
            (false, 0) => now_secs.max(1),
            // From a clock that was ahead of this one.
            (false, since) => since.min(now_secs.max(1)),
        };
        let is_over = !is_there && now_secs.saturating_sub(gone_secs) >= self.grace.as_secs();
        (!is_over).then_some(Held { gone_secs, ..held })
    }

    /// Closes servers to new zones, or opens them again; on disk when it
    /// returns. Zones that they have stay: a sick server is not replaced, so
    /// that what made it sick does not follow.
    pub fn close(&self, close: &[u16], open: &[u16]) -> Result<(), String> {
        let mut state = self.state();
        let mut closed = state.closed.clone();
        closed.extend(close);
        closed.retain(|server| !open.contains(server));
        let mut allocator = state.allocator.clone();
        if !state.closed.is_subset(&closed) {
            allocator.reconsider();
        }
        let octets: Vec<u8> = closed.iter().flat_map(|server| server.to_le_bytes()).collect();
        // What is new is not on disk yet, and neither is its number.
        if !state.new.is_empty() {
            return Err("zones are being placed; try again when the reload is done".into());
        }
        self.transact(|transaction| {
            let mut table = transaction.open_table(STATE)?;
            table.insert(CLOSED_KEY, &octets[..])?;
            table.insert(ALLOCATOR_KEY, &allocator.to_bytes()[..])?;
            Ok(())
        })?;
        state.allocator = allocator;
        state.admission = admission_of(&closed);
        state.closed = closed;
        Ok(())
    }

    /// The servers that get no new zones.
    pub fn closed(&self) -> Vec<u16> {
        self.state().closed.iter().copied().collect()
    }

    /// The servers of the shard with this number.
    pub fn servers_of(&self, number: u64) -> Vec<u16> {
        let state = self.state();
        let index = state.allocator.confirm(number);
        let shard = index.and_then(|index| state.allocator.design().shard(index));
        shard.iter().flat_map(|shard| shard.iter()).map(|slot| slot.0 as u16).collect()
    }

    /// The number of a zone's shard.
    pub fn index_of(&self, origin: Name<'_>) -> Option<u64> {
        self.state().zones.get(&self.hasher.name(origin)).map(|held| held.index.get())
    }

    pub fn usage(&self) -> Usage {
        let state = self.state();
        let waiting = state.zones.values().filter(|held| held.gone_secs != 0).count();
        Usage { zones: state.zones.len() - waiting, waiting, left: state.allocator.left() }
    }

    pub fn names(&self) -> &ServerNames {
        &self.names
    }

    /// The newest map of servers to hosts that was taken: its generation, and
    /// what it says.
    pub fn map(&self) -> Result<(u64, Vec<u8>), String> {
        let octets = self.read(|database| {
            let table = database.begin_read()?.open_table(STATE)?;
            Ok(table.get(MAP_KEY)?.map(|value| value.value().to_vec()).unwrap_or_default())
        })?;
        Ok(match octets.split_first_chunk() {
            Some((generation, text)) => (u64::from_le_bytes(*generation), text.to_vec()),
            None => (0, Vec::new()),
        })
    }

    /// Remembers the map that is taken.
    pub fn keep_map(&self, generation: u64, text: &[u8]) -> Result<(), String> {
        let octets = [&generation.to_le_bytes()[..], text].concat();
        self.transact(|transaction| {
            transaction.open_table(STATE)?.insert(MAP_KEY, &octets[..])?;
            Ok(())
        })
    }

    /// Reads from the database.
    fn read<T>(&self, read: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, String> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        match &*database {
            Some(database) => read(database).map_err(|error| self.explain(&error)),
            None => Err(format!(
                "{}: it was closed after an error; the next reload tries to open it again",
                self.path.display()
            )),
        }
    }

    /// Writes to the database, all or nothing. After an error it is closed.
    fn transact(
        &self,
        write: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), String> {
        let written = self.read(|database| {
            let transaction = database.begin_write()?;
            write(&transaction)?;
            Ok(transaction.commit()?)
        });
        if written.is_err() {
            // It also holds a lock on the file.
            *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        written
    }

    /// Writes rows, or removes those without a value, together with the state
    /// of the allocator.
    fn write(&self, rows: &[(&[u8], Row)], allocator: &Allocator) -> Result<(), String> {
        self.transact(|transaction| {
            let mut zones = transaction.open_table(ZONES)?;
            for (zone, row) in rows {
                match row {
                    Some(row) => drop(zones.insert(*zone, *row)?),
                    None => drop(zones.remove(*zone)?),
                }
            }
            transaction.open_table(STATE)?.insert(ALLOCATOR_KEY, &allocator.to_bytes()[..])?;
            Ok(())
        })
    }

    /// Calls `visit` with every zone that has a shard, its number, and when the
    /// zone went.
    pub fn each_zone(&self, mut visit: impl FnMut(&[u8], (u64, u64))) -> Result<(), String> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(ZONES)?;
            for row in table.iter()? {
                let (zone, value) = row?;
                visit(zone.value(), value.value());
            }
            Ok(())
        })
    }

    fn explain(&self, error: &redb::Error) -> String {
        format!("{}: the shards of the zones cannot be kept: {error}", self.path.display())
    }

    /// What a poisoned lock guards here is whole: nothing panics half-way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a file and reads what it holds.
fn open(path: &Path, shape: Shape, hasher: &NameHasher) -> Result<(Database, State), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("{}: the shards of the zones cannot be read: {error}", path.display())
    };
    // It holds the key, so nobody else may read it.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| failed(&error))?;
    let database = Database::builder()
        .set_cache_size(CACHE_LEN)
        .create_file(file)
        .map_err(|error| failed(&error))?;
    let kept = Kept::read(&database).map_err(|error| failed(&error))?;
    let (key, octets) = match kept {
        Some(kept) if kept.shape != shape => return Err(explain_shape(path, kept.shape, shape)),
        Some(kept) => (kept.key, Some(kept.allocator)),
        None => (Key::from_bytes(random::octets()), None),
    };
    let design = Arc::new(shape.design(&key)?);
    let allocator = match &octets {
        Some(octets) => Allocator::from_bytes(design, octets).map_err(|error| failed(&error))?,
        None => Allocator::new(design),
    };
    if octets.is_none() {
        write_first(&database, shape, &key, &allocator).map_err(|error| failed(&error))?;
    }
    let zones = read_zones(&database, &allocator, hasher).map_err(|error| failed(&error))?;
    let closed = read_closed(&database).map_err(|error| failed(&error))?;
    let admission = admission_of(&closed);
    Ok((database, State { allocator, admission, closed, zones, new: Vec::new() }))
}

/// The shard with the highest number: tenants get it last.
fn last_shard(design: &Design) -> Option<DesignIndex> {
    (0..design.index_end()).rev().find_map(|number| design.at(number)).map(|(index, _)| index)
}

/// What a file says of its fleet.
struct Kept {
    shape: Shape,
    key: Key,
    allocator: Vec<u8>,
}

impl Kept {
    /// `None` if the file is new.
    fn read(database: &Database) -> Result<Option<Self>, redb::Error> {
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(STATE) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            table => table?,
        };
        let value = |key| table.get(key).map(|value| value.map(|value| value.value().to_vec()));
        let damaged = || redb::Error::Corrupted("the state of the fleet is incomplete".into());
        let shape = value(SHAPE_KEY)?.and_then(|text| serde_json::from_slice(&text).ok());
        let key = value(SECRET_KEY)?.and_then(|octets| octets.try_into().ok());
        Ok(Some(Kept {
            shape: shape.ok_or_else(damaged)?,
            key: Key::from_bytes(key.ok_or_else(damaged)?),
            allocator: value(ALLOCATOR_KEY)?.ok_or_else(damaged)?,
        }))
    }
}

fn write_first(
    database: &Database,
    shape: Shape,
    key: &Key,
    allocator: &Allocator,
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        transaction.open_table(ZONES)?;
        let mut state = transaction.open_table(STATE)?;
        let text = serde_json::to_vec(&shape).unwrap_or_default();
        state.insert(SHAPE_KEY, &text[..])?;
        state.insert(SECRET_KEY, &key.to_bytes()[..])?;
        state.insert(ALLOCATOR_KEY, &allocator.to_bytes()[..])?;
    }
    Ok(transaction.commit()?)
}

fn read_zones(
    database: &Database,
    allocator: &Allocator,
    hasher: &NameHasher,
) -> Result<HashMap<u64, Held>, redb::Error> {
    let table = database.begin_read()?.open_table(ZONES)?;
    let mut zones = HashMap::new();
    for row in table.iter()? {
        let (zone, value) = row?;
        let (number, gone_secs) = value.value();
        let index = allocator.confirm(number).ok_or_else(|| {
            let name = Name::from_trusted(zone.value());
            redb::Error::Corrupted(format!("{name} has the shard {number}, which is not in use"))
        })?;
        zones.insert(hasher.name(Name::from_trusted(zone.value())), Held { index, gone_secs });
    }
    Ok(zones)
}

fn admission_of(closed: &BTreeSet<u16>) -> Admission {
    let mut admission = Admission::everyone();
    closed.iter().for_each(|server| admission.close(Slot((*server).into())));
    admission
}

fn read_closed(database: &Database) -> Result<BTreeSet<u16>, redb::Error> {
    let table = database.begin_read()?.open_table(STATE)?;
    let octets = table.get(CLOSED_KEY)?.map(|value| value.value().to_vec()).unwrap_or_default();
    Ok(octets.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect())
}

fn explain_shape(path: &Path, kept: Shape, wished: Shape) -> String {
    let tell = |shape: Shape| {
        let Shape { servers, stripes, size, overlap } = shape;
        format!("{servers} servers, {stripes} stripes, size {size}, overlap {overlap}")
    };
    format!(
        "{}: the zones have their shards in a fleet of {}, and the configuration says {}; a fleet \
         cannot change its shape without moving every zone: set it back, or name another file for \
         a new fleet",
        path.display(),
        tell(kept),
        tell(wished)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { servers: 64, stripes: 4, size: 4, overlap: 2 };
    const GRACE: Duration = Duration::from_secs(100);

    fn start(path: &Path, shape: Shape) -> Result<Assignments, String> {
        let domains: Vec<String> = ["a", "b", "c", "d"].map(|d| format!("{d}.test")).to_vec();
        let stripes = (0..shape.servers).map(|n| (n * 4 / shape.servers) as u8).collect();
        let names = ServerNames::new(&domains, stripes).unwrap();
        Assignments::open(path, shape, names, GRACE, NameHasher::new([7; 16]))
    }

    fn zone(number: usize) -> Vec<u8> {
        wire::name::from_text(&format!("z{number}.test.")).unwrap()
    }

    fn servers(assignments: &Assignments, number: usize) -> Vec<u16> {
        assignments.place(Name::from_trusted(&zone(number))).unwrap().servers().collect()
    }

    fn settle(assignments: &Assignments, there: &[usize], now_secs: u64) {
        let hasher = NameHasher::new([7; 16]);
        let there: Vec<u64> =
            there.iter().map(|&n| hasher.name(Name::from_trusted(&zone(n)))).collect();
        assignments.settle(None, |hash| there.contains(&hash), now_secs).unwrap();
    }

    #[test]
    fn zones_keep_their_shards_across_restarts() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fleet");
        let first = start(&path, SHAPE).unwrap();
        let before: Vec<Vec<u16>> = (0..50).map(|n| servers(&first, n)).collect();
        first.commit().unwrap();
        // Placed, but never on disk: as if it had not been.
        servers(&first, 50);
        drop(first);
        let second = start(&path, SHAPE).unwrap();
        assert_eq!(second.usage().zones, 50);
        let after: Vec<Vec<u16>> = (0..50).map(|n| servers(&second, n)).collect();
        assert_eq!(before, after);
        let shared = |a: &Vec<u16>, b: &Vec<u16>| a.iter().filter(|n| b.contains(n)).count();
        for (at, one) in before.iter().enumerate() {
            assert_eq!(one.len(), 4);
            assert!(before[..at].iter().all(|other| shared(one, other) <= 2));
        }
    }

    #[test]
    fn shards_of_gone_zones_wait_and_are_free_then() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fleet");
        let assignments = start(&path, SHAPE).unwrap();
        let before = (servers(&assignments, 0), servers(&assignments, 1));
        assignments.commit().unwrap();
        let usage =
            |zones, waiting| Usage { zones, waiting, left: 4096 - zones as u128 - waiting as u128 };
        settle(&assignments, &[0], 1000);
        assert_eq!(assignments.usage(), usage(1, 1));
        // Back in time: the same shard.
        settle(&assignments, &[0, 1], 1050);
        assert_eq!(assignments.usage(), usage(2, 0));
        settle(&assignments, &[0], 1060);
        drop(assignments);
        let assignments = start(&path, SHAPE).unwrap();
        settle(&assignments, &[0], 1159);
        assert_eq!(assignments.usage(), usage(1, 1));
        settle(&assignments, &[0], 1160);
        assert_eq!(assignments.usage(), usage(1, 0));
        // The next zone gets it.
        assert_eq!(servers(&assignments, 2), before.1);
        assert_eq!(servers(&assignments, 0), before.0);
    }

    #[test]
    fn closed_servers_get_no_new_zones() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fleet");
        let assignments = start(&path, SHAPE).unwrap();
        let before = servers(&assignments, 0);
        assignments.commit().unwrap();
        assignments.close(&before, &[]).unwrap();
        drop(assignments);
        let assignments = start(&path, SHAPE).unwrap();
        assert_eq!(assignments.closed(), before);
        let is_apart =
            |number| servers(&assignments, number).iter().all(|server| !before.contains(server));
        assert!((1..500).all(is_apart));
        assert_eq!(servers(&assignments, 0), before, "who has them keeps them");
        assert!(assignments.close(&[], &before).unwrap_err().contains("being placed"));
        assignments.commit().unwrap();
        assignments.close(&[], &before).unwrap();
        // What was passed over comes first.
        assert!((500..510).any(|number| !is_apart(number)));
    }

    #[test]
    fn an_error_brings_back_what_is_on_disk() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fleet");
        let mut assignments = start(&path, SHAPE).unwrap();
        let before = servers(&assignments, 0);
        assignments.commit().unwrap();
        // The file cannot be opened any more: new zones have no shard, others keep theirs.
        servers(&assignments, 1);
        let path = std::mem::replace(&mut assignments.path, home.path().join("nowhere/fleet"));
        assignments.database = RwLock::new(None);
        let unkept = assignments.commit().unwrap_err();
        assert_eq!(unkept.zones.len(), 1);
        assert!(unkept.reason.contains("closed after an error"), "{}", unkept.reason);
        assert!(assignments.place(Name::from_trusted(&zone(1))).is_err(), "it would be forgotten");
        assert_eq!((assignments.usage().zones, servers(&assignments, 0)), (1, before.clone()));
        assert!(assignments.map().is_err());
        // It can be opened again: what is placed from then on is kept.
        assignments.path = path.clone();
        let after = servers(&assignments, 1);
        assignments.commit().unwrap();
        drop(assignments);
        let assignments = start(&path, SHAPE).unwrap();
        assert_eq!(assignments.usage().zones, 2);
        assert_eq!([servers(&assignments, 0), servers(&assignments, 1)], [before, after]);
    }

    #[test]
    fn another_shape_is_refused_and_a_foreign_file_too() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fleet");
        drop(start(&path, SHAPE).unwrap());
        let error = start(&path, Shape { servers: 128, ..SHAPE }).unwrap_err();
        assert!(error.contains("set it back, or name another file"), "{error}");
        let _held = start(&path, SHAPE).unwrap();
        let error = start(&path, SHAPE).unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
        let other = home.path().join("other");
        std::fs::write(&other, "no fleet").unwrap();
        assert!(start(&other, SHAPE).unwrap_err().contains("cannot be read"));
        assert!(start(&home.path().join("a/b"), SHAPE).unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_fleet_that_is_full_says_so() {
        let home = tempfile::tempdir().unwrap();
        let shape = Shape { servers: 8, ..SHAPE };
        let assignments = start(&home.path().join("fleet"), shape).unwrap();
        // One is the fleet's own.
        let own = assignments.own_servers();
        for number in 0..7 {
            assert_ne!(servers(&assignments, number), own);
        }
        let error = assignments.place(Name::from_trusted(&zone(7))).unwrap_err();
        assert!(error.contains("no shard is left for z7.test.: all 8 are in use,"), "{error}");
    }

    #[test]
    fn the_secret_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("fleet");
        let _assignments = start(&path, SHAPE).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
