//! From the hosts that a fleet has to those that it should have, in steps each
//! of which keeps the promise.
//!
//! First it is decided which host serves which slot in the end: replacements
//! as wished, dark slots by spare hosts, the rest by growing into the room of
//! the design. Then the moves are put in an order in which no host ever serves
//! two slots, and no slot goes dark that need not. No shard is touched by any
//! of it, except where a slot stays without a host: its tenants get other
//! shards of the same design, or live with one slot less.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::admission::Admission;
use crate::allocator::Allocator;
use crate::bound;
use crate::design::Design;
use crate::hosts::{Host, HostChange, HostId, Move, SlotMap, Step};
use crate::shard::{DesignIndex, Shard, Slot};

mod check;
mod route;

pub use check::{Replay, Violation};

/// What should become of the hosts of a fleet, all at once.
///
/// ```
/// use shuffle::{Host, Resize};
/// let wish = Resize::new()
///     .join(Host::in_column("ns-17", 0))
///     .spare(Host::anywhere("ns-18"))
///     .remove("ns-3")
///     .replace("ns-4", "ns-18");
/// # let _ = wish;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resize {
    join: Vec<Host>,
    spare: Vec<Host>,
    remove: Vec<HostId>,
    replace: Vec<(HostId, HostId)>,
}

/// The steps from one map to another.
///
/// ```
/// use shuffle::{Design, Fleet, Host, Key, STRIPE, Slot, SlotMap, Resize, plan_resize};
/// let fleet = Fleet::numbered(16, Some(4))?;
/// let design = Design::striped(fleet.columns(4, &[STRIPE])?, 2, None, &Key::PUBLIC);
/// let shards: Vec<_> = design.shards(0).map(|(_, shard)| shard).take(40).collect();
/// let mut map = SlotMap::of_fleet(&design, &fleet);
///
/// let wish = Resize::new().join(Host::in_column("new", 0)).replace("3", "new");
/// let plan = plan_resize(&map, &wish, shards.iter().copied())?;
/// assert_eq!(plan.moves().count(), 1);
/// assert!(plan.check(&design, &shards).is_ok());
/// for step in plan.steps() {
///     map.apply(step)?;
/// }
/// assert_eq!(map.host(Slot(3)), Some(&"new".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizePlan {
    start: SlotMap,
    steps: Vec<Step>,
    dark: Vec<Dark>,
    left_dark: Vec<Slot>,
    tenants_short: u64,
    beyond: Option<Beyond>,
}

/// A slot that a plan leaves without a host, for some steps or for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dark {
    pub slot: Slot,
    /// The number of the step that takes its host away.
    pub from: usize,
    /// The number of the step that gives it another one.
    pub until: Option<usize>,
    /// Tenants that lose one of their slots meanwhile.
    pub tenants: u64,
}

/// Hosts for which the design has no room. They stay spare.
///
/// A design with more room is another one: every tenant would move. A second
/// fleet of these hosts beside the first moves nobody, and no tenant of one
/// shares a host with a tenant of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    pub hosts: Vec<HostId>,
    /// Tenants that a new design over all hosts would move: all.
    pub tenants_moved: u64,
    /// Shards that a second fleet of these hosts has at the most; 0 if they
    /// are too few for one.
    pub second_fleet: u128,
}

/// New shards for the tenants of slots that stay dark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocations {
    /// The number that a tenant has and the one that it gets. The old one is
    /// released when the tenant has moved, not before.
    pub moved: Vec<(DesignIndex, DesignIndex)>,
    /// Those for whom no shard is left. They live with fewer slots.
    pub stranded: Vec<DesignIndex>,
}

/// Why a wish cannot be fulfilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeRefusal {
    UnknownHost(HostId),
    /// A host that is to join is there already, or joins twice.
    KnownHost(HostId),
    /// A host is named in two wishes that exclude each other.
    Contradiction(HostId),
    /// A host that is to be replaced serves nothing.
    Idle(HostId),
    /// The host cannot take the slot of another column.
    Column {
        host: HostId,
        slot: Slot,
    },
    /// The design has no such column.
    UnknownColumn {
        host: HostId,
        column: usize,
        columns: usize,
    },
    /// No host would be left for the slots of a column.
    NoHosts {
        column: usize,
    },
}

impl Resize {
    /// Nothing; a plan for it still fills dark slots with spare hosts.
    pub fn new() -> Self {
        Resize::default()
    }

    /// A host joins, fills a dark slot or makes a column longer.
    pub fn join(mut self, host: Host) -> Self {
        self.join.push(host);
        self
    }

    /// A host joins as a spare: it fills a dark slot, but makes no new one.
    pub fn spare(mut self, host: Host) -> Self {
        self.spare.push(host);
        self
    }

    /// A host leaves.
    pub fn remove(mut self, host: impl Into<HostId>) -> Self {
        self.remove.push(host.into());
        self
    }

    /// `new` serves the slot of `old`. `old` leaves, unless it replaces
    /// another one at the same time: two hosts may change places.
    pub fn replace(mut self, old: impl Into<HostId>, new: impl Into<HostId>) -> Self {
        self.replace.push((old.into(), new.into()));
        self
    }

    pub(crate) fn joining(&self) -> impl Iterator<Item = &Host> {
        self.join.iter().chain(&self.spare)
    }

    pub(crate) fn replacements(&self) -> &[(HostId, HostId)] {
        &self.replace
    }

    /// Hosts that leave, each once.
    pub(crate) fn leaving(&self) -> BTreeSet<HostId> {
        let replaces = |old: &HostId| self.replace.iter().any(|(_, new)| new == old);
        let replaced = self.replace.iter().map(|(old, _)| old).filter(|old| !replaces(old));
        self.remove.iter().chain(replaced).cloned().collect()
    }

    /// The hosts after the wish, if it can be understood at all.
    pub(crate) fn hosts_after(
        &self,
        before: impl Iterator<Item = Host>,
        columns: usize,
    ) -> Result<BTreeMap<HostId, Host>, ResizeRefusal> {
        let mut hosts: BTreeMap<HostId, Host> =
            before.map(|host| (host.id.clone(), host)).collect();
        for host in self.joining() {
            if hosts.insert(host.id.clone(), host.clone()).is_some() {
                return Err(ResizeRefusal::KnownHost(host.id.clone()));
            }
            if let Some(column) = host.column.filter(|column| *column >= columns) {
                return Err(ResizeRefusal::UnknownColumn {
                    host: host.id.clone(),
                    column,
                    columns,
                });
            }
        }
        let named = self.replace.iter().flat_map(|(old, new)| [old, new]).chain(&self.remove);
        if let Some(unknown) = named.into_iter().find(|id| !hosts.contains_key(id)) {
            return Err(ResizeRefusal::UnknownHost(unknown.clone()));
        }
        self.refuse_contradictions()?;
        self.leaving().iter().for_each(|id| drop(hosts.remove(id)));
        Ok(hosts)
    }

    fn refuse_contradictions(&self) -> Result<(), ResizeRefusal> {
        let olds = self.replace.iter().map(|(old, _)| old).chain(&self.remove);
        let news = self.replace.iter().map(|(_, new)| new).chain(&self.remove);
        twice(olds)
            .or_else(|| twice(news))
            .map_or(Ok(()), |id| Err(ResizeRefusal::Contradiction(id)))
    }
}

fn twice<'w>(ids: impl Iterator<Item = &'w HostId>) -> Option<HostId> {
    let mut seen = BTreeSet::new();
    ids.into_iter().find(|id| !seen.insert(*id)).cloned()
}

/// Plans the way from a map to the one that is wished for. `shards` are those
/// in use: they tell how many tenants each step touches.
pub fn plan_resize(
    map: &SlotMap,
    wish: &Resize,
    shards: impl Iterator<Item = Shard> + Clone,
) -> Result<ResizePlan, ResizeRefusal> {
    let usage = Usage::count(shards.clone());
    let mut draft = Draft::new(map, wish)?;
    draft.fill(&usage);
    draft.shift_for_dark();
    let beyond = draft.grow(wish);
    let moves = route::route(map, &draft, &usage, shards.clone());
    let mut plan = ResizePlan {
        start: map.clone(),
        steps: Vec::new(),
        dark: Vec::new(),
        left_dark: draft.dark_slots(),
        tenants_short: 0,
        beyond: draft.beyond(beyond, usage.tenants),
    };
    wish.joining().for_each(|host| plan.push(HostChange::Join(host.clone())));
    moves.into_iter().for_each(|one| plan.push(HostChange::Move(one)));
    wish.leaving().into_iter().for_each(|id| plan.push(HostChange::Leave(id)));
    if !plan.left_dark.is_empty() {
        plan.tenants_short = shards.filter(|shard| plan.is_short(shard)).count() as u64;
    }
    Ok(plan)
}

impl ResizePlan {
    fn push(&mut self, change: HostChange) {
        let number = self.steps.len();
        if let HostChange::Move(Move { slot, from, to, tenants, .. }) = &change {
            let is_it = |dark: &&mut Dark| dark.slot == *slot && dark.until.is_none();
            match (from, to, self.dark.iter_mut().find(is_it)) {
                (_, Some(_), Some(dark)) => dark.until = Some(number),
                (Some(_), None, None) => {
                    let (slot, tenants) = (*slot, *tenants);
                    self.dark.push(Dark { slot, from: number, until: None, tenants });
                }
                _ => {}
            }
        }
        let generation = self.start.generation() + number as u64 + 1;
        self.steps.push(Step { generation, change });
    }

    /// All steps, in their order; [`SlotMap::apply`] takes them.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The steps that give a slot another host.
    pub fn moves(&self) -> impl Iterator<Item = &Move> {
        self.steps.iter().filter_map(|step| match &step.change {
            HostChange::Move(one) => Some(one),
            _ => None,
        })
    }

    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Slots that the plan takes the host from without giving another at once.
    pub fn dark(&self) -> &[Dark] {
        &self.dark
    }

    /// Slots that have no host in the end.
    pub fn left_dark(&self) -> &[Slot] {
        &self.left_dark
    }

    /// Tenants that have one of those slots.
    pub fn tenants_short(&self) -> u64 {
        self.tenants_short
    }

    /// Hosts that are more than the design has room for.
    pub fn beyond(&self) -> Option<&Beyond> {
        self.beyond.as_ref()
    }

    fn is_short(&self, shard: &Shard) -> bool {
        shard.iter().any(|slot| self.left_dark.binary_search(slot).is_ok())
    }

    /// No new tenants for the slots that have no host in the end.
    pub fn close_dark(&self, admission: &mut Admission) {
        self.left_dark.iter().for_each(|slot| admission.close(*slot));
    }

    /// Finds new shards, without dark slots, for those tenants that have one.
    /// They come from the same allocator, so they share as little with all
    /// others as any.
    pub fn relocate(
        &self,
        allocator: &mut Allocator,
        admission: &Admission,
        tenants: impl Iterator<Item = DesignIndex>,
    ) -> Relocations {
        let mut admission = admission.clone();
        self.close_dark(&mut admission);
        let mut relocations = Relocations::default();
        for old in tenants {
            let is_short = allocator.design().shard(old).is_some_and(|shard| self.is_short(&shard));
            match is_short.then(|| allocator.allocate(&admission)) {
                None => {}
                Some(Some((new, _))) => relocations.moved.push((old, new)),
                Some(None) => relocations.stranded.push(old),
            }
        }
        relocations
    }

    /// Goes through the plan step by step, without trusting it or the map, and
    /// looks whether the promise holds after each: no two of `shards` share
    /// more hosts than the design lets them share slots.
    pub fn check(&self, design: &Design, shards: &[Shard]) -> Result<Replay, Violation> {
        check::replay(&self.start, &self.steps, design, shards)
    }
}

/// How many tenants the slots have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    slots: HashMap<Slot, u64>,
    tenants: u64,
}

impl Usage {
    pub fn count(shards: impl Iterator<Item = Shard>) -> Self {
        let mut usage = Usage::default();
        for shard in shards {
            shard.iter().for_each(|slot| *usage.slots.entry(*slot).or_default() += 1);
            usage.tenants += 1;
        }
        usage
    }

    pub fn of(&self, slot: Slot) -> u64 {
        self.slots.get(&slot).copied().unwrap_or(0)
    }
}

/// Which host serves which slot in the end.
struct Draft {
    size: usize,
    overlap: usize,
    room: u32,
    hosts: BTreeMap<HostId, Host>,
    /// The column and the host of every slot.
    slots: Vec<(usize, Option<HostId>)>,
    column_sizes: Vec<usize>,
    /// Hosts whose slots were wished for.
    pinned: BTreeSet<HostId>,
}

impl Draft {
    /// Those who stay, and replacements.
    fn new(map: &SlotMap, wish: &Resize) -> Result<Self, ResizeRefusal> {
        let column_sizes = map.column_sizes();
        let hosts = wish.hosts_after(map.hosts(), column_sizes.len())?;
        let pinned: BTreeSet<HostId> = wish.replace.iter().map(|(_, new)| new.clone()).collect();
        let stays = |id: &&HostId| hosts.contains_key(*id) && !pinned.contains(*id);
        let slot = |number: usize| {
            let slot = Slot(number as u32);
            (map.column_of(slot).unwrap_or(0), map.host(slot).filter(stays).cloned())
        };
        let mut slots: Vec<_> = (0..map.slot_count()).map(slot).collect();
        for (old, new) in &wish.replace {
            let slot = map.slot(old).ok_or_else(|| ResizeRefusal::Idle(old.clone()))?;
            let place = &mut slots[slot.0 as usize];
            if !hosts[new].fits(place.0) {
                return Err(ResizeRefusal::Column { host: new.clone(), slot });
            }
            place.1 = Some(new.clone());
        }
        let (size, overlap, room) = (map.size(), map.overlap(), map.room());
        Ok(Draft { size, overlap, room, hosts, slots, column_sizes, pinned })
    }

    fn dark_slots(&self) -> Vec<Slot> {
        let dark = self.slots.iter().enumerate().filter(|(_, (_, host))| host.is_none());
        dark.map(|(number, _)| Slot(number as u32)).collect()
    }

    fn spares(&self) -> Vec<&Host> {
        let busy: BTreeSet<&HostId> = self.slots.iter().filter_map(|s| s.1.as_ref()).collect();
        self.hosts.values().filter(|host| !busy.contains(&host.id)).collect()
    }

    fn put(&mut self, slot: Slot, host: HostId) {
        self.slots[slot.0 as usize].1 = Some(host);
    }

    /// Spare hosts light dark slots, those with the most tenants first. Hosts
    /// bound to a column go first: the others can go anywhere.
    fn fill(&mut self, usage: &Usage) {
        let mut dark = self.dark_slots();
        dark.sort_by_key(|slot| (std::cmp::Reverse(usage.of(*slot)), *slot));
        let columns = self.column_sizes.len();
        let mut bound = vec![Vec::new(); columns + 1];
        for host in self.spares() {
            bound[host.column.unwrap_or(columns)].push(host.id.clone());
        }
        bound.iter_mut().for_each(|ids| ids.reverse());
        let mut rest = Vec::new();
        for slot in dark {
            match bound[self.slots[slot.0 as usize].0].pop() {
                Some(id) => self.put(slot, id),
                None => rest.push(slot),
            }
        }
        for (slot, id) in rest.into_iter().zip(bound[columns].drain(..).rev()) {
            self.put(slot, id);
        }
    }

    /// A spare host that is bound to one column takes over from a host that is
    /// not, which then lights a dark slot of another column.
    fn shift_for_dark(&mut self) {
        let mut spares: Vec<Host> = self.spares().into_iter().cloned().collect();
        for dark in self.dark_slots() {
            let can_go = |id: &HostId| self.hosts[id].column.is_none() && !self.pinned.contains(id);
            let relief = spares.iter().enumerate().find_map(|(at, spare)| {
                let is_it = |(column, host): &(usize, Option<HostId>)| {
                    spare.fits(*column) && host.as_ref().is_some_and(can_go)
                };
                Some((at, self.slots.iter().position(is_it)?))
            });
            // Nor for any other: it does not depend on the slot.
            let Some((at, place)) = relief else { break };
            let relieved = self.slots[place].1.replace(spares.remove(at).id);
            self.slots[dark.0 as usize].1 = relieved;
        }
    }

    /// Added hosts that are still spare make columns longer, the shortest
    /// first. Returns those for whom there is no room.
    fn grow(&mut self, wish: &Resize) -> Vec<Host> {
        let spares: BTreeSet<HostId> = self.spares().iter().map(|host| host.id.clone()).collect();
        let mut beyond = Vec::new();
        for host in wish.join.iter().filter(|host| spares.contains(&host.id)) {
            let room = (0..self.column_sizes.len())
                .filter(|&column| host.fits(column))
                .filter(|&column| self.column_sizes[column] < self.room as usize)
                .min_by_key(|&column| self.column_sizes[column]);
            match room {
                Some(column) => {
                    self.column_sizes[column] += 1;
                    self.slots.push((column, Some(host.id.clone())));
                }
                None => beyond.push(host.clone()),
            }
        }
        beyond
    }

    fn beyond(&self, hosts: Vec<Host>, tenants_moved: u64) -> Option<Beyond> {
        if hosts.is_empty() {
            return None;
        }
        let second_fleet = self.second_fleet(&hosts);
        let hosts = hosts.into_iter().map(|host| host.id).collect();
        Some(Beyond { hosts, tenants_moved, second_fleet })
    }

    /// Shards that hosts alone have at the most.
    fn second_fleet(&self, hosts: &[Host]) -> u128 {
        if self.column_sizes.len() == 1 {
            return bound::packing(hosts.len() as u64, self.size, self.overlap);
        }
        let mut sizes = vec![0u128; self.column_sizes.len()];
        hosts.iter().filter_map(|host| host.column).for_each(|column| sizes[column] += 1);
        for _ in hosts.iter().filter(|host| host.column.is_none()) {
            if let Some(least) = sizes.iter_mut().min() {
                *least += 1;
            }
        }
        sizes.sort_unstable();
        sizes[..=self.overlap].iter().product()
    }
}

impl fmt::Display for ResizePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{number}. {step}")?;
        }
        for Dark { slot, from, until, tenants } in &self.dark {
            if let Some(until) = until {
                writeln!(
                    f,
                    "slot {slot} is dark from step {from} to step {until}: {tenants} tenants lose one \
                     of {} slots meanwhile",
                    self.start.size()
                )?;
            }
        }
        for slot in &self.left_dark {
            writeln!(f, "slot {slot} stays dark")?;
        }
        if self.tenants_short > 0 {
            writeln!(
                f,
                "{} tenants move to other shards of the design, or live with fewer slots",
                self.tenants_short
            )?;
        }
        self.beyond.as_ref().map_or(Ok(()), |beyond| writeln!(f, "{beyond}"))
    }
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Beyond { hosts, tenants_moved, second_fleet } = self;
        write!(
            f,
            "the design has no room for {} hosts, which stay spare; a design with more room moves \
             all {tenants_moved} tenants, ",
            hosts.len()
        )?;
        match second_fleet {
            0 => f.write_str("and they are too few for a second fleet beside this one"),
            n => write!(f, "a second fleet of them beside this one, of up to {n} shards, nobody"),
        }
    }
}

impl fmt::Display for ResizeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResizeRefusal::UnknownHost(id) => write!(f, "there is no host `{id}`; add it, too"),
            ResizeRefusal::KnownHost(id) => {
                write!(f, "host `{id}` is to join and is there already")
            }
            ResizeRefusal::Contradiction(id) => {
                write!(f, "host `{id}` is named in two wishes that exclude each other")
            }
            ResizeRefusal::Idle(id) => {
                write!(f, "host `{id}` is to be replaced and serves nothing; remove it instead")
            }
            ResizeRefusal::Column { host, slot } => write!(
                f,
                "host `{host}` cannot take slot {slot}: its failure domains are those of another \
                 column"
            ),
            ResizeRefusal::UnknownColumn { host, column, columns } => write!(
                f,
                "host `{host}` belongs to column {column}; the design has columns 0 to {}",
                columns.saturating_sub(1)
            ),
            ResizeRefusal::NoHosts { column } => {
                write!(f, "no host is left for the slots of column {column}; add one")
            }
        }
    }
}

impl std::error::Error for ResizeRefusal {}

#[cfg(test)]
mod tests;
