//! Replays a plan and believes nothing: not the planner, not the map.
//!
//! Two shards share more than `overlap` hosts if some `overlap + 1` hosts are
//! those of both. So after each step all such groups of hosts of all shards
//! are written down, and none may be written twice.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::design::Design;
use crate::hosts::{HostChange, HostId, Move, SlotMap, Step};
use crate::search::subsets;
use crate::shard::{Shard, Slot};

/// What a plan that keeps its promise did on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Steps that were looked at.
    pub steps: usize,
    /// The most slots of one shard that were dark at once; 0 if none ever was.
    pub dark_at_once: usize,
}

/// What is wrong with a plan, and after which step; step 0 is the first, and
/// the map that it starts from is looked at as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The plan is one for another design.
    OtherDesign,
    /// Not a shard of the design.
    ForeignShard(Shard),
    /// Two shards share more hosts than the design allows.
    Overlap { step: usize, shards: Box<[Shard; 2]>, hosts: Vec<HostId> },
    /// A host serves two slots.
    TwoSlots { step: usize, host: HostId, slots: [Slot; 2] },
    /// A host serves a slot of a column that is not its own.
    Column { step: usize, host: HostId, slot: Slot },
    /// A step that does not follow from what was before it.
    Broken { step: usize, why: &'static str },
}

pub(super) fn replay(
    start: &SlotMap,
    steps: &[Step],
    design: &Design,
    shards: &[Shard],
) -> Result<Replay, Violation> {
    if start.fingerprint() != design.fingerprint() {
        return Err(Violation::OtherDesign);
    }
    if let Some(foreign) = shards.iter().find(|shard| design.index(shard).is_none()) {
        return Err(Violation::ForeignShard(*foreign));
    }
    let groups = subsets(design.guarantee().size as u32, design.guarantee().overlap + 1);
    let groups = groups.unwrap_or_default();
    let mut state = State::new(start);
    let mut replay = Replay { steps: steps.len(), dark_at_once: state.dark_at_once(shards) };
    state.check(0, shards, &groups)?;
    for (number, step) in steps.iter().enumerate() {
        state.take(step).map_err(|why| Violation::Broken { step: number, why })?;
        state.check(number, shards, &groups)?;
        replay.dark_at_once = replay.dark_at_once.max(state.dark_at_once(shards));
    }
    Ok(replay)
}

/// A map that lets anything happen.
struct State {
    generation: u64,
    hosts: BTreeMap<HostId, Option<usize>>,
    slots: BTreeMap<Slot, (usize, Option<HostId>)>,
}

impl State {
    fn new(map: &SlotMap) -> Self {
        let columns = map.columns();
        let mut slots = BTreeMap::new();
        for number in 0..columns.count() {
            let own = columns.column(number).iter();
            slots.extend(own.map(|slot| (*slot, (number, map.host(*slot).cloned()))));
        }
        let hosts = map.hosts().map(|host| (host.id, host.column)).collect();
        State { generation: map.generation(), hosts, slots }
    }

    fn take(&mut self, step: &Step) -> Result<(), &'static str> {
        if step.generation != self.generation + 1 {
            return Err("it does not have the next generation");
        }
        self.generation = step.generation;
        match &step.change {
            HostChange::Join(host) => {
                self.hosts.insert(host.id.clone(), host.column);
            }
            HostChange::Leave(id) => {
                self.hosts.remove(id).ok_or("a host leaves that is not there")?;
                let serves = |(_, host): &(usize, Option<HostId>)| host.as_ref() == Some(id);
                if self.slots.values().any(serves) {
                    return Err("a host leaves that serves a slot");
                }
            }
            HostChange::Move(one) => self.shift(one)?,
        }
        Ok(())
    }

    fn shift(&mut self, one: &Move) -> Result<(), &'static str> {
        if one.to.as_ref().is_some_and(|to| !self.hosts.contains_key(to)) {
            return Err("a slot goes to a host that is not there");
        }
        let place = self.slots.entry(one.slot).or_insert((one.column, None));
        if place.1 != one.from {
            return Err("a slot comes from a host that does not serve it");
        }
        if one.from == one.to {
            return Err("a slot stays where it is");
        }
        place.1.clone_from(&one.to);
        Ok(())
    }

    fn host(&self, slot: Slot) -> Option<&HostId> {
        self.slots.get(&slot)?.1.as_ref()
    }

    fn check(&self, step: usize, shards: &[Shard], groups: &[Vec<u32>]) -> Result<(), Violation> {
        self.check_overlap(step, shards, groups)?;
        let mut serves: HashMap<&HostId, Slot> = HashMap::new();
        for (&slot, (column, host)) in &self.slots {
            let Some(id) = host else { continue };
            if let Some(first) = serves.insert(id, slot) {
                let (host, slots) = (id.clone(), [first, slot]);
                return Err(Violation::TwoSlots { step, host, slots });
            }
            if self.hosts.get(id).copied().flatten().is_some_and(|own| own != *column) {
                return Err(Violation::Column { step, host: id.clone(), slot });
            }
        }
        Ok(())
    }

    fn check_overlap(
        &self,
        step: usize,
        shards: &[Shard],
        groups: &[Vec<u32>],
    ) -> Result<(), Violation> {
        let mut holders: HashMap<Vec<&HostId>, usize> = HashMap::new();
        for (number, shard) in shards.iter().enumerate() {
            let mut hosts: Vec<&HostId> = shard.iter().filter_map(|s| self.host(*s)).collect();
            hosts.sort_unstable();
            hosts.dedup();
            for group in groups {
                let at = |place: &u32| hosts.get(*place as usize).copied();
                let Some(group) = group.iter().map(at).collect::<Option<Vec<_>>>() else {
                    continue;
                };
                if let Some(first) = holders.insert(group.clone(), number) {
                    let shards = Box::new([shards[first], *shard]);
                    let hosts = group.into_iter().cloned().collect();
                    return Err(Violation::Overlap { step, shards, hosts });
                }
            }
        }
        Ok(())
    }

    fn dark_at_once(&self, shards: &[Shard]) -> usize {
        let dark = |shard: &Shard| shard.iter().filter(|slot| self.host(**slot).is_none()).count();
        shards.iter().map(dark).max().unwrap_or(0)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::OtherDesign => f.write_str("the plan is one for another design or key"),
            Violation::ForeignShard(shard) => write!(f, "{shard:?} is no shard of the design"),
            Violation::Overlap { step, shards, hosts } => {
                let [one, other] = &**shards;
                let hosts: Vec<&str> = hosts.iter().map(HostId::as_str).collect();
                let hosts = hosts.join(", ");
                write!(f, "after step {step} shards {one:?} and {other:?} share hosts {hosts}")
            }
            Violation::TwoSlots { step, host, slots: [one, other] } => {
                write!(f, "after step {step} host `{host}` serves slots {one} and {other}")
            }
            Violation::Column { step, host, slot } => {
                write!(f, "after step {step} host `{host}` serves slot {slot} of a foreign column")
            }
            Violation::Broken { step, why } => write!(f, "step {step}: {why}"),
        }
    }
}

impl std::error::Error for Violation {}
