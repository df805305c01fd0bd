//! Which host serves which slot.
//!
//! Shards are made of slots, and what a design promises it promises of slots.
//! Hosts come and go. The promise holds for hosts as well as long as no host
//! serves two slots: otherwise two shards that share nothing could meet on one
//! host. So the map keeps slots and hosts one to one, whatever it is told.
//!
//! A map changes in numbered steps. Whoever follows it applies the next step,
//! takes one that it has for done, and refuses an older one: a step that comes
//! late or twice changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::design::{Design, Family};
use crate::fleet::{Columns, Fleet};
use crate::shard::Slot;

/// The name of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(Arc<str>);

/// A host, and the column of the design that its failure domains belong to:
/// it may serve slots of that column only. Without one it may serve any slot.
///
/// ```
/// use shuffle::Host;
/// let (bound, free) = (Host::in_column("ns-7.eu", 2), Host::anywhere("ns-8.eu"));
/// assert_eq!((bound.column, free.column), (Some(2), None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub id: HostId,
    pub column: Option<usize>,
}

/// The hosts that serve the slots of a design, one each, and spare ones.
///
/// ```
/// use shuffle::{Design, Fleet, Key, STRIPE, Slot, SlotMap};
/// let fleet = Fleet::numbered(16, Some(4))?;
/// let design = Design::striped(fleet.columns(4, &[STRIPE])?, 2, None, &Key::PUBLIC);
/// let map = SlotMap::of_fleet(&design, &fleet);
/// assert_eq!(map.host(Slot(5)).map(|host| host.as_str()), Some("5"));
/// assert_eq!(map.slot(&"5".into()), Some(Slot(5)));
/// # Ok::<(), shuffle::FleetError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    fingerprint: u64,
    size: usize,
    overlap: usize,
    /// Slots that a column can have; 0 if none can grow.
    room: u32,
    columns: Vec<Vec<Slot>>,
    /// The column of each slot, and its host.
    slots: Vec<(usize, Option<HostId>)>,
    /// The column that each host is bound to, and its slot.
    hosts: BTreeMap<HostId, (Option<usize>, Option<Slot>)>,
    generation: u64,
}

/// One change of a map, and the generation that the map has after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub generation: u64,
    pub change: HostChange,
}

/// What a step changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// A host joins as a spare.
    Join(Host),
    /// A slot gets another host.
    Move(Move),
    /// A host that serves nothing leaves.
    Leave(HostId),
}

/// A slot goes from one host to another, goes dark, or is lit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub slot: Slot,
    /// The column of the slot, which a new slot makes longer.
    pub column: usize,
    pub from: Option<HostId>,
    pub to: Option<HostId>,
    /// Tenants that have the slot.
    pub tenants: u64,
}

/// What became of a step or a map that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    Now,
    Already,
}

/// Why a map did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The map is further than that.
    Older {
        has: u64,
        given: u64,
    },
    /// Steps before this one are missing.
    TooSoon {
        has: u64,
        given: u64,
    },
    /// The map has this generation, and something else happened in it.
    Conflict {
        generation: u64,
    },
    /// A map of another design, or of one with another key.
    OtherDesign,
    UnknownHost(HostId),
    /// The host is there already.
    KnownHost(HostId),
    /// The design has no such slot, and it is not the next one either.
    UnknownSlot(Slot),
    /// The host serves another slot.
    Busy {
        host: HostId,
        slot: Slot,
    },
    /// The slot is not served by the host that the step says.
    NotServing {
        slot: Slot,
        host: Option<HostId>,
    },
    /// The host is bound to another column than that of the slot.
    Column {
        host: HostId,
        slot: Slot,
    },
    /// The column cannot be longer.
    Full {
        column: usize,
    },
}

impl HostId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for HostId {
    fn from(id: &str) -> Self {
        HostId(id.into())
    }
}

impl From<String> for HostId {
    fn from(id: String) -> Self {
        HostId(id.into())
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Host {
    /// A host that may serve any slot.
    pub fn anywhere(id: impl Into<HostId>) -> Self {
        Host { id: id.into(), column: None }
    }

    /// A host that may serve the slots of one column.
    pub fn in_column(id: impl Into<HostId>, column: usize) -> Self {
        Host { id: id.into(), column: Some(column) }
    }

    pub(crate) fn fits(&self, column: usize) -> bool {
        self.column.is_none_or(|own| own == column)
    }
}

impl SlotMap {
    /// The slots of a design without any host.
    pub fn dark(design: &Design) -> Self {
        let columns: Vec<Vec<Slot>> = (0..design.columns().count())
            .map(|number| design.columns().column(number).to_vec())
            .collect();
        let mut slots = vec![(0, None); design.columns().slot_count()];
        for (number, column) in columns.iter().enumerate() {
            column.iter().for_each(|slot| slots[slot.0 as usize].0 = number);
        }
        let room = match design.family() {
            Family::Words(_) | Family::Quadruples(_) => design.room(),
            // One slot more is another design.
            Family::Pairs(_) | Family::Found(_) => 0,
        };
        let guarantee = design.guarantee();
        SlotMap {
            fingerprint: design.fingerprint(),
            size: guarantee.size,
            overlap: guarantee.overlap,
            room,
            columns,
            slots,
            hosts: BTreeMap::new(),
            generation: 0,
        }
    }

    /// Every worker of a fleet serves its own slot, and is bound to its column.
    pub fn of_fleet(design: &Design, fleet: &Fleet) -> Self {
        let mut map = SlotMap::dark(design);
        for (number, (worker, place)) in fleet.workers().iter().zip(&mut map.slots).enumerate() {
            let (id, slot) = (HostId::from(worker.id.as_str()), Slot(number as u32));
            place.1 = Some(id.clone());
            map.hosts.insert(id, (Some(place.0), Some(slot)));
        }
        map
    }

    /// The host that serves a slot; `None` if the slot is dark.
    pub fn host(&self, slot: Slot) -> Option<&HostId> {
        self.slots.get(slot.0 as usize)?.1.as_ref()
    }

    /// The slot that a host serves; `None` if it is a spare or unknown.
    pub fn slot(&self, host: &HostId) -> Option<Slot> {
        self.hosts.get(host)?.1
    }

    /// All hosts, spare ones too, in the order of their names.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        self.hosts.iter().map(|(id, (column, _))| Host { id: id.clone(), column: *column })
    }

    /// Hosts that serve nothing.
    pub fn spares(&self) -> impl Iterator<Item = &HostId> {
        self.hosts.iter().filter(|(_, (_, slot))| slot.is_none()).map(|(id, _)| id)
    }

    /// Slots without a host.
    pub fn dark_slots(&self) -> impl Iterator<Item = Slot> {
        let dark = self.slots.iter().enumerate().filter(|(_, (_, host))| host.is_none());
        dark.map(|(number, _)| Slot(number as u32))
    }

    /// Grows with every step.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The columns with the slots that they have grown by: a design with the
    /// same room and key over them has all shards of the one before.
    pub fn columns(&self) -> Columns {
        Columns::new(self.columns.clone())
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn overlap(&self) -> usize {
        self.overlap
    }

    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn column_of(&self, slot: Slot) -> Option<usize> {
        self.slots.get(slot.0 as usize).map(|(column, _)| *column)
    }

    pub(crate) fn column_sizes(&self) -> Vec<usize> {
        self.columns.iter().map(Vec::len).collect()
    }

    /// Takes the next step.
    pub fn apply(&mut self, step: &Step) -> Result<Applied, MapError> {
        if !is_next(self.generation, step.generation)? {
            return match self.has_happened(&step.change) {
                true => Ok(Applied::Already),
                false => Err(MapError::Conflict { generation: step.generation }),
            };
        }
        match &step.change {
            HostChange::Join(host) => self.join(host)?,
            HostChange::Move(one) => self.shift(one)?,
            HostChange::Leave(id) => self.leave(id)?,
        }
        self.generation = step.generation;
        Ok(Applied::Now)
    }

    /// Takes over a whole map of the same design, if it is a later one.
    pub fn adopt(&mut self, other: &SlotMap) -> Result<Applied, MapError> {
        let (has, given) = (self.generation, other.generation);
        match given.cmp(&has) {
            _ if other.fingerprint != self.fingerprint => Err(MapError::OtherDesign),
            std::cmp::Ordering::Less => Err(MapError::Older { has, given }),
            std::cmp::Ordering::Equal if self == other => Ok(Applied::Already),
            std::cmp::Ordering::Equal => Err(MapError::Conflict { generation: has }),
            std::cmp::Ordering::Greater => {
                self.clone_from(other);
                Ok(Applied::Now)
            }
        }
    }

    fn has_happened(&self, change: &HostChange) -> bool {
        match change {
            HostChange::Join(host) => self.hosts.contains_key(&host.id),
            HostChange::Move(one) => self.host(one.slot) == one.to.as_ref(),
            HostChange::Leave(id) => !self.hosts.contains_key(id),
        }
    }

    fn join(&mut self, host: &Host) -> Result<(), MapError> {
        if self.hosts.contains_key(&host.id) {
            return Err(MapError::KnownHost(host.id.clone()));
        }
        self.hosts.insert(host.id.clone(), (host.column, None));
        Ok(())
    }

    fn leave(&mut self, id: &HostId) -> Result<(), MapError> {
        match self.hosts.get(id) {
            None => Err(MapError::UnknownHost(id.clone())),
            Some((_, Some(slot))) => Err(MapError::Busy { host: id.clone(), slot: *slot }),
            Some((_, None)) => {
                self.hosts.remove(id);
                Ok(())
            }
        }
    }

    /// Everything is looked at before anything changes.
    fn shift(&mut self, one: &Move) -> Result<(), MapError> {
        let at = one.slot.0 as usize;
        let is_new = at == self.slots.len() && one.column < self.columns.len();
        if is_new && self.columns[one.column].len() >= self.room as usize {
            return Err(MapError::Full { column: one.column });
        }
        if !is_new && self.column_of(one.slot) != Some(one.column) {
            return Err(MapError::UnknownSlot(one.slot));
        }
        if self.host(one.slot) != one.from.as_ref() {
            return Err(MapError::NotServing { slot: one.slot, host: one.from.clone() });
        }
        if let Some(to) = &one.to {
            let known = self.hosts.get(to).ok_or_else(|| MapError::UnknownHost(to.clone()))?;
            if let Some(slot) = known.1 {
                return Err(MapError::Busy { host: to.clone(), slot });
            }
            if known.0.is_some_and(|column| column != one.column) {
                return Err(MapError::Column { host: to.clone(), slot: one.slot });
            }
        }
        if is_new {
            self.columns[one.column].push(one.slot);
            self.slots.push((one.column, None));
        }
        for (id, slot) in [(&one.from, None), (&one.to, Some(one.slot))] {
            if let Some(host) = id.as_ref().and_then(|id| self.hosts.get_mut(id)) {
                host.1 = slot;
            }
        }
        self.slots[at].1 = one.to.clone();
        Ok(())
    }
}

/// Whether a step is the next one; false if it is the last that was taken.
pub(crate) fn is_next(has: u64, given: u64) -> Result<bool, MapError> {
    match given {
        _ if given == has => Ok(false),
        _ if given < has => Err(MapError::Older { has, given }),
        _ if given - has > 1 => Err(MapError::TooSoon { has, given }),
        _ => Ok(true),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.change {
            HostChange::Join(host) => write!(f, "host {} joins", host.id),
            HostChange::Leave(id) => write!(f, "host {id} leaves"),
            HostChange::Move(one) => one.fmt(f),
        }
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |host: &Option<HostId>| match host {
            Some(id) => id.to_string(),
            None => "nobody".to_owned(),
        };
        let Move { slot, tenants, .. } = self;
        write!(f, "slot {slot}: {} -> {} ({tenants} tenants)", name(&self.from), name(&self.to))
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Older { has, given } => {
                write!(f, "generation {given} is past; the map is at {has}")
            }
            MapError::TooSoon { has, given } => write!(
                f,
                "generation {given} comes too soon; the map is at {has} and needs {} first",
                has + 1
            ),
            MapError::Conflict { generation } => write!(
                f,
                "the map is at generation {generation}, and another change made it; two plans \
                 were carried out at once"
            ),
            MapError::OtherDesign => f.write_str("the map is that of another design or key"),
            MapError::UnknownHost(id) => write!(f, "there is no host `{id}`; it must join first"),
            MapError::KnownHost(id) => write!(f, "there is a host `{id}` already"),
            MapError::UnknownSlot(slot) => write!(f, "there is no slot {slot} in that column"),
            MapError::Busy { host, slot } => write!(
                f,
                "host `{host}` serves slot {slot}; it must give that up first, or two shards \
                 could share more hosts than the design allows"
            ),
            MapError::NotServing { slot, host: Some(id) } => {
                write!(f, "slot {slot} is not served by host `{id}`")
            }
            MapError::NotServing { slot, host: None } => write!(f, "slot {slot} is not dark"),
            MapError::Column { host, slot } => {
                write!(f, "host `{host}` belongs to another column than slot {slot}")
            }
            MapError::Full { column } => {
                write!(f, "column {column} has all slots that the design has room for")
            }
        }
    }
}

impl std::error::Error for MapError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::STRIPE;
    use crate::key::Key;

    fn map(room: Option<u32>) -> SlotMap {
        let fleet = Fleet::numbered(8, Some(4)).unwrap();
        let columns = fleet.columns(4, &[STRIPE]).unwrap();
        SlotMap::of_fleet(&Design::striped(columns, 2, room, &Key::PUBLIC), &fleet)
    }

    fn shift(slot: u32, column: usize, from: Option<&str>, to: Option<&str>) -> HostChange {
        let (from, to) = (from.map(HostId::from), to.map(HostId::from));
        HostChange::Move(Move { slot: Slot(slot), column, from, to, tenants: 0 })
    }

    fn apply(map: &mut SlotMap, generation: u64, change: HostChange) -> Result<Applied, MapError> {
        map.apply(&Step { generation, change })
    }

    #[test]
    fn generations_only_go_forward() {
        let mut map = map(None);
        let join = HostChange::Join(Host::anywhere("x"));
        assert_eq!(apply(&mut map, 1, join.clone()), Ok(Applied::Now));
        assert_eq!(apply(&mut map, 1, join.clone()), Ok(Applied::Already));
        let conflict = Err(MapError::Conflict { generation: 1 });
        assert_eq!(apply(&mut map, 1, HostChange::Leave("x".into())), conflict);
        assert_eq!(apply(&mut map, 3, join.clone()), Err(MapError::TooSoon { has: 1, given: 3 }));
        assert_eq!(apply(&mut map, 2, shift(0, 0, Some("0"), Some("x"))), Ok(Applied::Now));
        assert_eq!(apply(&mut map, 1, join), Err(MapError::Older { has: 2, given: 1 }));
    }

    #[test]
    fn whole_maps_are_adopted_if_they_are_later() {
        let (mut old, mut new) = (map(None), map(None));
        apply(&mut new, 1, HostChange::Join(Host::anywhere("x"))).unwrap();
        assert_eq!(new.adopt(&old), Err(MapError::Older { has: 1, given: 0 }));
        assert_eq!(old.adopt(&new), Ok(Applied::Now));
        assert_eq!(old.adopt(&new), Ok(Applied::Already));
        let mut other = map(None);
        apply(&mut other, 1, HostChange::Join(Host::anywhere("y"))).unwrap();
        assert_eq!(old.adopt(&other), Err(MapError::Conflict { generation: 1 }));
        assert_eq!(old.adopt(&map(Some(7))), Err(MapError::OtherDesign));
    }

    #[test]
    fn no_host_serves_two_slots_or_a_foreign_column() {
        let mut map = map(Some(3));
        let mut refused = |change, said: &str| {
            let before = map.clone();
            let error = apply(&mut map, 1, change).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert_eq!(map, before);
        };
        refused(shift(0, 0, Some("0"), Some("1")), "serves slot 1");
        refused(shift(0, 0, Some("7"), None), "not served by host `7`");
        refused(shift(0, 0, None, Some("7")), "slot 0 is not dark");
        refused(shift(0, 1, Some("0"), None), "no slot 0 in that column");
        refused(shift(9, 1, None, None), "no slot 9");
        refused(shift(0, 0, Some("0"), Some("x")), "must join first");
        refused(HostChange::Leave("0".into()), "serves slot 0");
        refused(HostChange::Join(Host::anywhere("0")), "already");
        apply(&mut map, 1, HostChange::Join(Host::in_column("x", 1))).unwrap();
        let foreign = apply(&mut map, 2, shift(0, 0, Some("0"), Some("x"))).unwrap_err();
        assert_eq!(foreign, MapError::Column { host: "x".into(), slot: Slot(0) });
    }

    #[test]
    fn columns_grow_into_their_room() {
        let mut map = map(Some(3));
        apply(&mut map, 1, HostChange::Join(Host::in_column("x", 1))).unwrap();
        apply(&mut map, 2, shift(8, 1, None, Some("x"))).unwrap();
        assert_eq!(map.columns().column(1), [Slot(2), Slot(3), Slot(8)]);
        assert_eq!(map.host(Slot(8)), Some(&"x".into()));
        let full = apply(&mut map, 3, shift(9, 1, None, None));
        assert_eq!(full, Err(MapError::Full { column: 1 }));
    }
}
