//! A host's view of its fleet: the shards of its zones, the servers that the
//! map gives it, and those that are switched off.
//!
//! A server can be switched off for a while only: whoever does so may die before
//! it switches it on again, and the zones there must not pay for that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use authority::{Image, NameHasher, Placement};
use serde::Serialize;
use wire::Name;

use super::assignments::{Assignments, Shape, Usage};
use super::map::HostMap;
use super::names::ServerNames;
use super::{Fleet, Placements, Served, Unkept, own_zones};

/// Servers are switched off for this long at the most, if not until they are
/// switched on.
pub const OFF_SECS_MAX: u64 = 3600;

/// How zones are placed on the servers of a fleet.
#[derive(Clone, Debug)]
pub struct Placing {
    pub shape: Shape,
    /// One for each stripe.
    pub domains: Vec<String>,
    /// Where the shards of the zones are kept.
    pub state: PathBuf,
    /// Which host has which servers; without it this one has all.
    pub map: Option<PathBuf>,
    /// What this host is called there.
    pub host: String,
    /// How long the shard of a zone that went is kept for it.
    pub grace: Duration,
}

/// See the module's text.
#[derive(Debug)]
pub struct FleetState {
    pub assignments: Assignments,
    pub fleet: Fleet,
    placing: Placing,
    servers: Mutex<Servers>,
}

#[derive(Debug, Default)]
struct Servers {
    map: Option<HostMap>,
    /// Switched off, and until when; without an end until they are switched
    /// on. Not kept: a restart switches them on.
    off: BTreeMap<u16, Option<Instant>>,
}

/// What `pharos fleet show` tells.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    #[serde(flatten)]
    pub shape: Shape,
    pub pool: String,
    pub port: u16,
    pub host: String,
    pub generation: Option<u64>,
    /// Servers that this host answers on.
    pub serving: usize,
    pub off: Vec<u16>,
    /// Servers that get no new zones.
    pub closed: Vec<u16>,
    #[serde(flatten)]
    pub usage: Usage,
}

impl FleetState {
    /// Opens what is kept, and reads the map.
    pub fn open(placing: &Placing, fleet: Fleet, hasher: NameHasher) -> Result<Self, String> {
        let stripe_of = stripes(&placing.shape);
        let names = ServerNames::new(&placing.domains, stripe_of)?;
        let assignments =
            Assignments::open(&placing.state, placing.shape, names, placing.grace, hasher)?;
        let servers = Mutex::default();
        let state = FleetState { assignments, fleet, placing: placing.clone(), servers };
        match state.refresh_map()? {
            Some(path) => Err(explain_absence(&path, &placing.host)),
            None => Ok(state),
        }
    }

    /// What this host is called.
    pub fn host(&self) -> &str {
        &self.placing.host
    }

    /// The zones of the fleet's own names.
    pub fn own_zones(&self, hasher: NameHasher) -> Result<Vec<Image>, String> {
        let servers = self.assignments.own_servers();
        own_zones::compile(self.assignments.names(), &servers, &self.fleet.pool, hasher)
    }

    /// Reads the map again. Newer is applied, equal is already done, older is
    /// refused; on an error the servers stay as they are. Returns the map's
    /// path if it does not know this host, which then serves nothing.
    pub fn refresh_map(&self) -> Result<Option<PathBuf>, String> {
        let Some(path) = &self.placing.map else { return Ok(None) };
        let map = HostMap::read(path, self.placing.shape.servers)?;
        let text = map.to_string();
        let mut servers = self.servers();
        let (known, known_text) = self.assignments.map()?;
        let is_other = map.generation == known && text.as_bytes() != known_text;
        if map.generation < known || is_other {
            let kind = if is_other { "another" } else { "an older" };
            return Err(format!(
                "{}: {kind} map of generation {}, and generation {known} was taken already; \
                 nothing was changed: give the new map a higher generation",
                path.display(),
                map.generation
            ));
        }
        if map.generation > known {
            self.assignments.keep_map(map.generation, text.as_bytes())?;
        }
        let is_known = map.servers_of(&self.placing.host).is_some();
        servers.map = Some(map);
        Ok((!is_known).then(|| path.clone()))
    }

    /// The servers that this host answers on now.
    pub fn served(&self) -> Served {
        let servers = self.servers();
        let is_on = |server: &u16| !servers.off.contains_key(server);
        match &servers.map {
            Some(map) => {
                let own = map.servers_of(&self.placing.host).unwrap_or_default();
                own.iter().copied().filter(is_on).collect()
            }
            None => {
                (0..=u16::MAX).take(self.placing.shape.servers as usize).filter(is_on).collect()
            }
        }
    }

    /// Says which of these servers the fleet does not have.
    fn check(&self, servers: &[u16]) -> Result<(), String> {
        let count = self.placing.shape.servers;
        match servers.iter().find(|server| u32::from(**server) >= count) {
            Some(server) => Err(format!(
                "no server {server} in a fleet of {count}; accepted: 0 to {}",
                count - 1
            )),
            None => Ok(()),
        }
    }

    /// Closes servers to new zones, and opens them again.
    pub fn close(&self, close: &[u16], open: &[u16]) -> Result<(), String> {
        self.check(close)?;
        self.check(open)?;
        self.assignments.close(close, open)
    }

    /// Switches servers off and on again; all on if both are empty. Those
    /// switched off come back at `until`, or stay off without it. One that is
    /// off for longer already stays so.
    pub fn switch(&self, off: &[u16], on: &[u16], until: Option<Instant>) -> Result<(), String> {
        self.check(off)?;
        self.check(on)?;
        let mut servers = self.servers();
        if off.is_empty() && on.is_empty() {
            servers.off.clear();
        }
        for server in off {
            let end = servers.off.entry(*server).or_insert(until);
            *end = end.zip(until).map(|(old, new)| old.max(new));
        }
        servers.off.retain(|server, _| !on.contains(server));
        Ok(())
    }

    /// Switches those on whose time off is over; true if there was one.
    pub fn expire(&self, now: Instant) -> bool {
        let off = &mut self.servers().off;
        let before = off.len();
        off.retain(|_, until| until.is_none_or(|until| until > now));
        off.len() < before
    }

    pub fn status(&self) -> Status {
        let serving = self.served().len();
        let servers = self.servers();
        Status {
            shape: self.placing.shape,
            pool: self.fleet.pool.to_string(),
            port: self.fleet.port,
            host: self.placing.host.clone(),
            generation: servers.map.as_ref().map(|map| map.generation),
            serving,
            off: servers.off.keys().copied().collect(),
            closed: self.assignments.closed(),
            usage: self.assignments.usage(),
        }
    }

    /// What a poisoned lock guards here is whole: nothing panics half-way.
    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stripe of each server, as the design divides them.
fn stripes(shape: &Shape) -> Vec<u8> {
    let fleet = shuffle::Fleet::numbered(shape.servers as usize, Some(shape.stripes as usize));
    let groups = fleet.and_then(|fleet| fleet.groups(&[shuffle::STRIPE])).unwrap_or_default();
    (0..).zip(groups).flat_map(|(stripe, group)| group.into_iter().map(move |_| stripe)).collect()
}

/// Says that a map does not know a host.
pub fn explain_absence(path: &Path, host: &str) -> String {
    format!(
        "{}: no servers for the host `{host}`, which answers on none; `name` under [node] says who \
         this is",
        path.display()
    )
}

impl Placements for FleetState {
    fn placement_of(&self, origin: Name<'_>) -> Result<Placement, String> {
        match self.assignments.names().domain_above(origin.as_bytes()) {
            // A tenant would have the names of everybody's name servers.
            Some(domain) => Err(format!("{origin} is the fleet's own: {domain} names its servers")),
            None => self.assignments.place(origin),
        }
    }

    fn commit(&self) -> Result<(), Unkept> {
        self.assignments.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Family, Pool};

    fn open(home: &Path, map: Option<&str>) -> Result<FleetState, String> {
        let placing = Placing {
            shape: Shape { servers: 16, stripes: 4, size: 4, overlap: 2 },
            domains: ["a", "b", "c", "d"].map(|name| format!("{name}.test")).to_vec(),
            state: home.join("state"),
            map: map.map(|text| {
                std::fs::write(home.join("map"), text).unwrap();
                home.join("map")
            }),
            host: "here".into(),
            grace: Duration::ZERO,
        };
        let pool = Pool::new(16).with_network(Family::V4, "127.53.0.0/28").unwrap();
        FleetState::open(&placing, Fleet { pool, port: 53 }, NameHasher::new([7; 16]))
    }

    fn served(state: &FleetState) -> Vec<u16> {
        let served = state.served();
        (0..16).filter(|server| served.contains(*server)).collect()
    }

    fn write(home: &Path, generation: u64, servers: &str) {
        let text = format!("generation = {generation}\n[hosts]\nhere = ['{servers}']\n");
        std::fs::write(home.join("map"), text).unwrap();
    }

    #[test]
    fn servers_move_by_newer_maps_alone() {
        let home = tempfile::tempdir().unwrap();
        let state = open(home.path(), Some("generation = 5\n[hosts]\nhere = ['0-3']\n")).unwrap();
        assert_eq!(served(&state), [0, 1, 2, 3]);
        write(home.path(), 6, "2-4");
        state.refresh_map().unwrap();
        assert_eq!(served(&state), [2, 3, 4]);
        for (generation, said) in [(5, "an older map of generation 5"), (6, "another map")] {
            write(home.path(), generation, "9");
            let error = state.refresh_map().unwrap_err();
            assert!(error.contains(said), "{error}");
            assert_eq!(served(&state), [2, 3, 4]);
        }
        drop(state);
        // The generation is remembered across restarts.
        let error = open(home.path(), Some("generation = 5\n[hosts]\nhere = ['0-3']\n"));
        assert!(error.unwrap_err().contains("generation 6 was taken already"));
        // So is what it said.
        let error = open(home.path(), Some("generation = 6\n[hosts]\nhere = ['9']\n"));
        assert!(error.unwrap_err().contains("another map of generation 6"));
        let same = "generation = 6\n[hosts]\nhere = ['2-4']\n";
        let state = open(home.path(), Some(same)).unwrap();
        // A host that is not in a newer map serves nothing any more.
        let newer = "generation = 7\n[hosts]\nthere = ['2-4']\n";
        std::fs::write(home.path().join("map"), newer).unwrap();
        assert!(state.refresh_map().unwrap().is_some());
        assert_eq!(served(&state), [0u16; 0]);
        drop(state);
        let error = open(home.path(), Some(newer)).unwrap_err();
        assert!(error.contains("no servers for the host `here`"), "{error}");
    }

    #[test]
    fn servers_are_switched_off_and_on() {
        let home = tempfile::tempdir().unwrap();
        let state = open(home.path(), None).unwrap();
        assert_eq!(state.status().serving, 16);
        state.switch(&[0, 15], &[], None).unwrap();
        assert_eq!(served(&state), (1..15).collect::<Vec<u16>>());
        state.switch(&[], &[15], None).unwrap();
        assert_eq!(state.status().off, [0]);
        state.switch(&[], &[], None).unwrap();
        assert_eq!(state.status().serving, 16);
        assert!(state.switch(&[16], &[], None).unwrap_err().contains("accepted: 0 to 15"));
    }

    #[test]
    fn servers_come_back_when_their_time_off_is_over() {
        let home = tempfile::tempdir().unwrap();
        let state = open(home.path(), None).unwrap();
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        state.switch(&[1, 2, 3], &[], Some(at(30))).unwrap();
        assert!(!state.expire(at(29)));
        // Neither a shorter time nor a renewal ends what was to last longer.
        state.switch(&[2], &[], Some(at(60))).unwrap();
        state.switch(&[2], &[], Some(at(10))).unwrap();
        state.switch(&[3], &[], None).unwrap();
        state.switch(&[3], &[], Some(at(10))).unwrap();
        assert!(state.expire(at(30)));
        assert_eq!(state.status().off, [2, 3]);
        assert!(served(&state).contains(&1));
        assert!(!state.expire(at(59)) && state.expire(at(60)) && !state.expire(at(4000)));
        assert_eq!(state.status().off, [3]);
        state.switch(&[], &[3], None).unwrap();
        assert_eq!(state.status().serving, 16);
    }
}
