//! Many slots on few hosts.
//!
//! A design over thousands of virtual workers has far more shards than one
//! over the forty hosts there are. It pays for that with its promise, which is
//! then one about slots: a flood of one slot that is stopped at the slot hurts
//! nobody else, but a host that dies takes all of its slots with it. How much
//! two tenants share of the hosts is measured here, not promised.
//!
//! One thing can be had by construction: if the hosts of different columns
//! are different ones, a tenant's slots are all on different hosts.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::fleet::Columns;
use crate::hosts::{Applied, Host, HostChange, HostId, MapError, Move, Step, is_next};
use crate::resize::{Resize, ResizeRefusal, Usage};
use crate::search::subsets;
use crate::shard::{Shard, Slot};

/// The hosts that serve slots, each of them many.
///
/// ```
/// use shuffle::{Design, Fleet, Host, Key, PackedMap, STRIPE, Resize};
/// let fleet = Fleet::numbered(2048, Some(4))?;
/// let design = Design::striped(fleet.columns(4, &[STRIPE])?, 2, None, &Key::PUBLIC);
/// let hosts = (0..40).map(|n| Host::anywhere(format!("host-{n}")));
/// let map = PackedMap::striped(design.columns(), hosts)?;
///
/// let shards = || design.shards(0).map(|(_, shard)| shard).take(1000);
/// let sharing = map.sharing(shards());
/// assert_eq!(sharing.tenants_by_hosts, [0, 0, 0, 0, 1000]);
///
/// // One of ten hosts of its column more: it takes an eleventh of the slots.
/// let steps = map.plan(&Resize::new().join(Host::in_column("host-40", 1)), shards())?;
/// assert_eq!(steps.len(), 1 + 512 / 11);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedMap {
    /// Slots that are served by hosts of their own.
    groups: Vec<Vec<Slot>>,
    group_of: Vec<usize>,
    hosts: BTreeMap<HostId, Member>,
    serving: Vec<HostId>,
    generation: u64,
}

/// A host of a group. It was bound to it, or put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    column: Option<usize>,
    group: usize,
}

/// What tenants have of the hosts, and what they share of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Hosts that two tenants share at the most. With few hosts and many
    /// tenants it is all of them.
    pub overlap: usize,
    /// Pairs of tenants that have exactly the same hosts.
    pub twins: u64,
    /// How many tenants have how many different hosts: the first number is of
    /// those with none.
    pub tenants_by_hosts: Vec<u64>,
}

impl PackedMap {
    /// Every column has hosts of its own. Those that are bound to no column
    /// are put where there are the most slots for each.
    pub fn striped(
        columns: &Columns,
        hosts: impl IntoIterator<Item = Host>,
    ) -> Result<Self, ResizeRefusal> {
        let groups = (0..columns.count()).map(|number| columns.column(number).to_vec());
        PackedMap::place(groups.collect(), hosts)
    }

    /// Any host serves any slot, so that a tenant may have two slots on one:
    /// for designs without stripes, and for fewer hosts than columns.
    pub fn mixed(
        columns: &Columns,
        hosts: impl IntoIterator<Item = Host>,
    ) -> Result<Self, ResizeRefusal> {
        let slots = (0..columns.slot_count() as u32).map(Slot).collect();
        let hosts = hosts.into_iter().map(|host| Host::anywhere(host.id));
        PackedMap::place(vec![slots], hosts)
    }

    fn place(
        groups: Vec<Vec<Slot>>,
        hosts: impl IntoIterator<Item = Host>,
    ) -> Result<Self, ResizeRefusal> {
        let mut group_of = vec![0; groups.iter().map(Vec::len).sum()];
        for (number, group) in groups.iter().enumerate() {
            group.iter().for_each(|slot| group_of[slot.0 as usize] = number);
        }
        let nobody = vec![HostId::from(""); group_of.len()];
        let hosts_none = BTreeMap::new();
        let mut map =
            PackedMap { groups, group_of, hosts: hosts_none, serving: nobody, generation: 0 };
        let wish = hosts.into_iter().fold(Resize::new(), Resize::join);
        (map.hosts, map.serving) = map.draft(&wish)?;
        Ok(map)
    }

    /// The host that serves a slot.
    pub fn host(&self, slot: Slot) -> Option<&HostId> {
        self.serving.get(slot.0 as usize)
    }

    /// The slots that a host serves.
    pub fn slots(&self, host: &HostId) -> impl Iterator<Item = Slot> {
        let own = self.serving.iter().enumerate().filter(move |(_, id)| *id == host);
        own.map(|(number, _)| Slot(number as u32))
    }

    /// All hosts, and how many slots each of them serves.
    pub fn loads(&self) -> BTreeMap<&HostId, usize> {
        let mut loads: BTreeMap<&HostId, usize> = self.hosts.keys().map(|id| (id, 0)).collect();
        self.serving.iter().for_each(|id| *loads.entry(id).or_default() += 1);
        loads
    }

    /// Grows with every step.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The steps to what is wished for, with the fewest slots moved that leave
    /// the loads of the hosts of a column within one of each other. A host
    /// that replaces another takes over its slots.
    pub fn plan(
        &self,
        wish: &Resize,
        shards: impl Iterator<Item = Shard>,
    ) -> Result<Vec<Step>, ResizeRefusal> {
        let usage = Usage::count(shards);
        let (members, serving) = self.draft(wish)?;
        let join = |host: &Host| {
            let id = host.id.clone();
            let group = members.get(&id).map_or(0, |member| member.group);
            // What was decided for a host without a column goes with it.
            HostChange::Join(Host::in_column(id, group))
        };
        let mut changes: Vec<HostChange> = wish.joining().map(join).collect();
        for (number, (from, to)) in self.serving.iter().zip(&serving).enumerate() {
            if from != to {
                let (slot, column) = (Slot(number as u32), self.group_of[number]);
                let (from, to) = (Some(from.clone()), Some(to.clone()));
                changes.push(HostChange::Move(Move {
                    slot,
                    column,
                    from,
                    to,
                    tenants: usage.of(slot),
                }));
            }
        }
        changes.extend(wish.leaving().into_iter().map(HostChange::Leave));
        let step = |(generation, change)| Step { generation, change };
        Ok((self.generation + 1..).zip(changes).map(step).collect())
    }

    /// Takes the next step.
    pub fn apply(&mut self, step: &Step) -> Result<Applied, MapError> {
        if !is_next(self.generation, step.generation)? {
            let has_happened = match &step.change {
                HostChange::Join(host) => self.hosts.contains_key(&host.id),
                HostChange::Move(one) => self.host(one.slot) == one.to.as_ref(),
                HostChange::Leave(id) => !self.hosts.contains_key(id),
            };
            return match has_happened {
                true => Ok(Applied::Already),
                false => Err(MapError::Conflict { generation: step.generation }),
            };
        }
        match &step.change {
            HostChange::Join(host) if self.hosts.contains_key(&host.id) => {
                return Err(MapError::KnownHost(host.id.clone()));
            }
            HostChange::Join(host) => {
                let member = Member { column: host.column, group: host.column.unwrap_or(0) };
                self.hosts.insert(host.id.clone(), member);
            }
            HostChange::Leave(id) => self.leave(id)?,
            HostChange::Move(one) => self.shift(one)?,
        }
        self.generation = step.generation;
        Ok(Applied::Now)
    }

    fn leave(&mut self, id: &HostId) -> Result<(), MapError> {
        if let Some(slot) = self.slots(id).next() {
            return Err(MapError::Busy { host: id.clone(), slot });
        }
        match self.hosts.remove(id) {
            Some(_) => Ok(()),
            None => Err(MapError::UnknownHost(id.clone())),
        }
    }

    fn shift(&mut self, one: &Move) -> Result<(), MapError> {
        let Move { slot, from, to, .. } = one;
        let current = self.host(*slot).ok_or(MapError::UnknownSlot(*slot))?;
        let Some(to) = to.as_ref().filter(|_| from.as_ref() == Some(current)) else {
            return Err(MapError::NotServing { slot: *slot, host: from.clone() });
        };
        let member = self.hosts.get(to).ok_or_else(|| MapError::UnknownHost(to.clone()))?;
        if member.group != self.group_of[slot.0 as usize] {
            return Err(MapError::Column { host: to.clone(), slot: *slot });
        }
        self.serving[slot.0 as usize] = to.clone();
        Ok(())
    }

    /// The hosts and the host of every slot after a wish.
    fn draft(
        &self,
        wish: &Resize,
    ) -> Result<(BTreeMap<HostId, Member>, Vec<HostId>), ResizeRefusal> {
        let known =
            |(id, member): (&HostId, &Member)| Host { id: id.clone(), column: member.column };
        let after = wish.hosts_after(self.hosts.iter().map(known), self.groups.len())?;
        let heirs = self.heirs(wish, &after)?;
        let members = self.members(after.into_values(), &heirs)?;
        let heir = |id: &HostId| wish.replacements().iter().find(|(old, _)| old == id);
        let inherit = |id: &HostId| heir(id).map_or(id, |(_, new)| new).clone();
        let renamed: HashMap<&HostId, HostId> =
            self.hosts.keys().map(|id| (id, inherit(id))).collect();
        let mut serving: Vec<HostId> =
            self.serving.iter().map(|id| renamed.get(id).unwrap_or(id).clone()).collect();
        for (number, group) in self.groups.iter().enumerate() {
            let own = members.iter().filter(|(_, member)| member.group == number);
            even_out(group, own.map(|(id, _)| id).collect(), &mut serving);
        }
        Ok((members, serving))
    }

    /// The groups of the hosts that replace others.
    fn heirs(
        &self,
        wish: &Resize,
        after: &BTreeMap<HostId, Host>,
    ) -> Result<BTreeMap<HostId, usize>, ResizeRefusal> {
        let mut heirs = BTreeMap::new();
        for (old, new) in wish.replacements() {
            let Some(member) = self.hosts.get(old) else {
                return Err(ResizeRefusal::Idle(old.clone()));
            };
            // A host that serves other columns would have to leave them first.
            let own = self.hosts.get(new).map_or(member.group, |member| member.group);
            if let Some(slot) = self.slots(old).next()
                && !(after[new].fits(member.group) && own == member.group)
            {
                return Err(ResizeRefusal::Column { host: new.clone(), slot });
            }
            heirs.insert(new.clone(), member.group);
        }
        Ok(heirs)
    }

    /// Puts every host into a group.
    fn members(
        &self,
        hosts: impl Iterator<Item = Host>,
        heirs: &BTreeMap<HostId, usize>,
    ) -> Result<BTreeMap<HostId, Member>, ResizeRefusal> {
        let mut sizes = vec![0; self.groups.len()];
        let mut members = BTreeMap::new();
        let mut free = Vec::new();
        for host in hosts {
            let before = self.hosts.get(&host.id).map(|member| member.group);
            match heirs.get(&host.id).copied().or(before).or(host.column) {
                Some(group) => {
                    sizes[group] += 1;
                    members.insert(host.id, Member { column: host.column, group });
                }
                None => free.push(host.id),
            }
        }
        for id in free {
            let load = |group: &usize| self.groups[*group].len() as f64 / f64::from(sizes[*group]);
            let group = (0..sizes.len()).rev().max_by(|a, b| load(a).total_cmp(&load(b)));
            let group = group.unwrap_or(0);
            sizes[group] += 1;
            members.insert(id, Member { column: None, group });
        }
        match (0..sizes.len()).find(|&group| sizes[group] == 0 && !self.groups[group].is_empty()) {
            Some(column) => Err(ResizeRefusal::NoHosts { column }),
            None => Ok(members),
        }
    }

    /// What the tenants with these shards have and share of the hosts.
    pub fn sharing(&self, shards: impl Iterator<Item = Shard>) -> Sharing {
        let numbers: HashMap<&HostId, u32> = self.hosts.keys().zip(0..).collect();
        let mut tenants: HashMap<Vec<u32>, u64> = HashMap::new();
        for shard in shards {
            let hosts = shard.iter().filter_map(|slot| self.host(*slot));
            let mut hosts: Vec<u32> = hosts.filter_map(|id| numbers.get(id).copied()).collect();
            hosts.sort_unstable();
            hosts.dedup();
            *tenants.entry(hosts).or_default() += 1;
        }
        let mut tenants_by_hosts = Vec::new();
        for (hosts, count) in &tenants {
            tenants_by_hosts.resize(tenants_by_hosts.len().max(hosts.len() + 1), 0);
            tenants_by_hosts[hosts.len()] += count;
        }
        let twins = tenants.values().map(|count| count * (count - 1) / 2).sum();
        let twin_hosts = tenants.iter().filter(|(_, count)| **count > 1).map(|(set, _)| set.len());
        let overlap = twin_hosts.max().unwrap_or(0).max(largest_common(tenants.keys()));
        Sharing { overlap, twins, tenants_by_hosts }
    }
}

/// How many numbers two different sets have in common at the most: so many as
/// the largest group that is part of two.
fn largest_common<'s>(sets: impl Iterator<Item = &'s Vec<u32>> + Clone) -> usize {
    let longest = sets.clone().map(Vec::len).max().unwrap_or(0);
    let is_common = |size: &usize| {
        let mut seen = HashSet::new();
        let groups: Vec<Vec<Vec<u32>>> =
            (0..=longest as u32).map(|len| subsets(len, *size).unwrap_or_default()).collect();
        sets.clone().any(|set| {
            let group = |places: &Vec<u32>| -> Vec<u32> {
                places.iter().map(|at| set[*at as usize]).collect()
            };
            groups[set.len()].iter().any(|places| !seen.insert(group(places)))
        })
    };
    (1..=longest).rev().find(is_common).unwrap_or(0)
}

/// Gives every host of a group its share of the slots, and leaves as many as
/// possible where they are. The larger shares go to those that have most.
fn even_out(group: &[Slot], hosts: Vec<&HostId>, serving: &mut [HostId]) {
    let mut loads: BTreeMap<HostId, usize> = hosts.into_iter().map(|id| (id.clone(), 0)).collect();
    for slot in group {
        if let Some(load) = loads.get_mut(&serving[slot.0 as usize]) {
            *load += 1;
        }
    }
    let mut order: Vec<(&HostId, usize)> = loads.iter().map(|(id, load)| (id, *load)).collect();
    order.sort_by_key(|(_, load)| std::cmp::Reverse(*load));
    let (share, rest) = (group.len() / order.len().max(1), group.len() % order.len().max(1));
    let quotas =
        order.iter().enumerate().map(|(at, (id, _))| (*id, share + usize::from(at < rest)));
    let mut quotas: BTreeMap<&HostId, usize> = quotas.collect();
    let mut homeless = Vec::new();
    for slot in group {
        match quotas.get_mut(&serving[slot.0 as usize]) {
            Some(quota) if *quota > 0 => *quota -= 1,
            _ => homeless.push(*slot),
        }
    }
    let places = quotas.into_iter().flat_map(|(id, quota)| std::iter::repeat_n(id, quota));
    for (slot, id) in homeless.into_iter().zip(places) {
        serving[slot.0 as usize] = id.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::Design;
    use crate::fleet::{Fleet, STRIPE};
    use crate::key::Key;
    use proptest::prelude::*;

    fn design(workers: usize) -> Design {
        let columns = Fleet::numbered(workers, Some(4)).unwrap().columns(4, &[STRIPE]).unwrap();
        Design::striped(columns, 2, None, &Key::PUBLIC)
    }

    fn hosts(count: usize) -> impl Iterator<Item = Host> {
        (0..count).map(|n| Host::anywhere(format!("h{n:02}")))
    }

    fn carry_out(map: &mut PackedMap, wish: &Resize) -> usize {
        let before = map.serving.clone();
        let steps = map.plan(wish, [].into_iter()).unwrap();
        for step in &steps {
            assert_eq!(map.apply(step), Ok(Applied::Now));
            assert_eq!(map.apply(step), Ok(Applied::Already));
        }
        before.iter().zip(&map.serving).filter(|(a, b)| a != b).count()
    }

    #[test]
    fn stripes_on_their_own_hosts_never_meet() {
        let design = design(256);
        let map = PackedMap::striped(design.columns(), hosts(20)).unwrap();
        assert!(map.loads().values().all(|load| (12..=13).contains(load)));
        let sharing = map.sharing(design.shards(0).map(|(_, shard)| shard).take(3000));
        assert_eq!(sharing.tenants_by_hosts, [0, 0, 0, 0, 3000]);
        // 625 sets of hosts for 3,000 tenants.
        assert_eq!(sharing.overlap, 4);
        assert!(sharing.twins > 3000);
    }

    #[test]
    fn mixed_hosts_are_measured_not_promised() {
        let design = design(64);
        let map = PackedMap::mixed(design.columns(), hosts(3)).unwrap();
        let sharing = map.sharing(design.shards(0).map(|(_, shard)| shard));
        assert_eq!(sharing.tenants_by_hosts.iter().sum::<u64>() as u128, design.capacity());
        assert!(sharing.tenants_by_hosts.len() <= 4);
        assert_eq!(sharing.overlap, 3);
    }

    #[test]
    fn measured_overlap_is_that_of_all_pairs() {
        let design = design(40);
        for (count, take) in [(40, 100), (20, 9), (12, 5), (8, 3), (40, 1)] {
            let map = PackedMap::striped(design.columns(), hosts(count)).unwrap();
            let shards: Vec<Shard> = design.shards(0).map(|(_, shard)| shard).take(take).collect();
            let set = |shard: &Shard| -> HashSet<&HostId> {
                shard.iter().filter_map(|slot| map.host(*slot)).collect()
            };
            let pairs = shards
                .iter()
                .enumerate()
                .flat_map(|(at, one)| shards[..at].iter().map(move |other| (set(one), set(other))));
            let most = pairs.map(|(one, other)| one.intersection(&other).count()).max();
            assert_eq!(map.sharing(shards.iter().copied()).overlap, most.unwrap_or(0));
        }
    }

    #[test]
    fn a_replacement_takes_over_everything() {
        let mut map = PackedMap::striped(design(64).columns(), hosts(8)).unwrap();
        let own: Vec<Slot> = map.slots(&"h03".into()).collect();
        let wish = Resize::new().join(Host::anywhere("x")).replace("h03", "x");
        assert_eq!(carry_out(&mut map, &wish), own.len());
        assert_eq!(map.slots(&"x".into()).collect::<Vec<_>>(), own);
        let other = map.hosts.iter().find(|(id, member)| {
            id.as_str() != "x" && member.group == map.hosts[&HostId::from("x")].group
        });
        let other = other.unwrap().0.clone();
        let swap = Resize::new().replace(other.clone(), "x").replace("x", other.clone());
        assert_eq!(carry_out(&mut map, &swap), 2 * own.len());
        assert_eq!(map.slots(&other).collect::<Vec<_>>(), own);
    }

    #[test]
    fn the_last_host_of_a_column_cannot_leave() {
        let columns = design(16).columns().clone();
        let refused = PackedMap::striped(&columns, hosts(3)).unwrap_err();
        assert_eq!(refused, ResizeRefusal::NoHosts { column: 3 });
        let map = PackedMap::striped(&columns, hosts(4)).unwrap();
        assert!(map.plan(&Resize::new().remove("h00"), [].into_iter()).is_err());
        let wish = Resize::new().remove("h00").join(Host::anywhere("x"));
        assert!(map.plan(&wish, [].into_iter()).is_ok());
    }

    #[test]
    fn steps_that_make_no_sense_are_refused() {
        let mut map = PackedMap::striped(design(16).columns(), hosts(4)).unwrap();
        let mut refused = |change| map.apply(&Step { generation: 1, change }).unwrap_err();
        let shift = |from: &str, to: Option<&str>| {
            let (from, to) = (Some(HostId::from(from)), to.map(HostId::from));
            HostChange::Move(Move { slot: Slot(0), column: 0, from, to, tenants: 0 })
        };
        assert!(matches!(refused(shift("h00", Some("h01"))), MapError::Column { .. }));
        assert!(matches!(refused(shift("h01", Some("h00"))), MapError::NotServing { .. }));
        assert!(matches!(refused(shift("h00", None)), MapError::NotServing { .. }));
        assert!(matches!(refused(shift("h00", Some("x"))), MapError::UnknownHost(_)));
        assert!(matches!(refused(HostChange::Leave("h00".into())), MapError::Busy { .. }));
        assert!(matches!(refused(HostChange::Leave("x".into())), MapError::UnknownHost(_)));
        assert!(matches!(refused(HostChange::Join(Host::anywhere("h00"))), MapError::KnownHost(_)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_fewest_slots_move_and_loads_stay_even(
            workers in 16usize..120, start in 4usize..16,
            rounds in proptest::collection::vec((0usize..4, 0usize..3, any::<usize>()), 1..4),
            is_mixed: bool,
        ) {
            let design = design(workers);
            let mut map = match is_mixed {
                true => PackedMap::mixed(design.columns(), hosts(start)).unwrap(),
                false => PackedMap::striped(design.columns(), hosts(start)).unwrap(),
            };
            for (round, (add, remove, pick)) in rounds.into_iter().enumerate() {
                let mut wish = Resize::new();
                for n in 0..add {
                    wish = wish.join(Host::anywhere(format!("r{round}-{n}")));
                }
                for n in 0..remove {
                    let ids: Vec<&HostId> = map.hosts.keys().collect();
                    wish = wish.remove(ids[(pick % ids.len() + n) % ids.len()].clone());
                }
                if map.plan(&wish, [].into_iter()).is_err() {
                    prop_assert!(!is_mixed || map.hosts.len() <= 2);
                    continue;
                }
                let before = map.clone();
                let moved = carry_out(&mut map, &wish);
                let mut fewest = 0;
                for number in 0..map.groups.len() {
                    let of = |map: &PackedMap| -> BTreeMap<HostId, usize> {
                        let loads = map.loads().into_iter();
                        let own = loads.filter(|(id, _)| map.hosts[*id].group == number);
                        own.map(|(id, load)| (id.clone(), load)).collect()
                    };
                    let (old, new) = (of(&before), of(&map));
                    let (least, most) = (new.values().min().unwrap(), new.values().max().unwrap());
                    prop_assert!(most - least <= 1);
                    // No more come than must.
                    let came = |(id, load): (&HostId, &usize)| {
                        load.saturating_sub(old.get(id).copied().unwrap_or(0))
                    };
                    fewest += new.iter().map(came).sum::<usize>();
                }
                prop_assert_eq!(moved, fewest);
                if !is_mixed {
                    let sharing = map.sharing(design.shards(0).map(|(_, shard)| shard).take(50));
                    prop_assert_eq!(sharing.tenants_by_hosts.len(), 5);
                    prop_assert_eq!(sharing.tenants_by_hosts[..4].iter().sum::<u64>(), 0);
                }
            }
        }
    }
}
