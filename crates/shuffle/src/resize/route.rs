//! The order of moves.
//!
//! A slot that gets a host from another slot waits for it. Since a host has
//! one slot and a slot one host, those who wait stand in lines and in rings. A
//! line is served from its end, where the host is free. A ring is opened by a
//! spare host that stands in for one of its slots; without a spare, that slot
//! goes dark until the ring is through.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Draft, Usage};
use crate::hosts::{Host, HostId, Move, SlotMap};
use crate::shard::{Shard, Slot};

/// The moves from a map to a draft.
pub(super) fn route(
    map: &SlotMap,
    draft: &Draft,
    usage: &Usage,
    shards: impl Iterator<Item = Shard> + Clone,
) -> Vec<Move> {
    let mut route = Route::new(map, draft, usage);
    let rings = route.rings();
    // While hosts that wait for their slots are still free to stand in.
    let closed: Vec<Vec<Slot>> = rings.into_iter().filter(|ring| !route.relieve(ring)).collect();
    // Slots that are dark are lit before others go dark.
    route.settle();
    for ring in closed {
        let at = route.weakest(&ring, shards.clone());
        route.turn(&ring, at, None);
    }
    for slot in route.open().filter(|slot| route.target(*slot).is_none()).collect::<Vec<_>>() {
        route.shift(slot, None);
        route.settle();
    }
    route.moves
}

struct Route<'d> {
    draft: &'d Draft,
    usage: &'d Usage,
    now: Vec<Option<HostId>>,
    /// The slots of the hosts that have one now, and of those that will.
    places: BTreeMap<HostId, Slot>,
    wanted_by: HashMap<&'d HostId, Slot>,
    moves: Vec<Move>,
}

impl<'d> Route<'d> {
    fn new(map: &SlotMap, draft: &'d Draft, usage: &'d Usage) -> Self {
        let slots = || (0..draft.slots.len() as u32).map(Slot);
        let now: Vec<Option<HostId>> = slots().map(|slot| map.host(slot).cloned()).collect();
        let place = |slot: Slot| Some((map.host(slot)?.clone(), slot));
        let wish = |slot: Slot| Some((draft.slots[slot.0 as usize].1.as_ref()?, slot));
        let places = slots().filter_map(place).collect();
        let wanted_by = slots().filter_map(wish).collect();
        Route { draft, usage, now, places, wanted_by, moves: Vec::new() }
    }

    fn target(&self, slot: Slot) -> Option<&'d HostId> {
        self.draft.slots[slot.0 as usize].1.as_ref()
    }

    fn column(&self, slot: Slot) -> usize {
        self.draft.slots[slot.0 as usize].0
    }

    fn now(&self, slot: Slot) -> Option<&HostId> {
        self.now[slot.0 as usize].as_ref()
    }

    /// Slots that do not have the host that they should have.
    fn open(&self) -> impl Iterator<Item = Slot> {
        let slots = (0..self.now.len() as u32).map(Slot);
        slots.filter(|slot| self.now(*slot) != self.target(*slot))
    }

    /// The slot whose host a slot waits for.
    fn waits_for(&self, slot: Slot) -> Option<Slot> {
        self.places.get(self.target(slot)?).copied()
    }

    fn shift(&mut self, slot: Slot, to: Option<HostId>) {
        let from = std::mem::replace(&mut self.now[slot.0 as usize], to.clone());
        if let Some(id) = &from {
            self.places.remove(id);
        }
        if let Some(id) = &to {
            self.places.insert(id.clone(), slot);
        }
        let (column, tenants) = (self.column(slot), self.usage.of(slot));
        self.moves.push(Move { slot, column, from, to, tenants });
    }

    /// Gives every slot its host whose host is free, or becomes free by that.
    fn settle(&mut self) {
        let is_free = |slot: &Slot| self.target(*slot).is_some() && self.waits_for(*slot).is_none();
        let mut ready: Vec<Slot> = self.open().filter(is_free).collect();
        let tenants = |slot: Slot| std::cmp::Reverse(self.usage.of(slot));
        ready.sort_by_key(|slot| (self.now(*slot).is_some(), tenants(*slot), *slot));
        let mut ready = VecDeque::from(ready);
        while let Some(slot) = ready.pop_front() {
            let freed = self.now(slot).cloned();
            self.shift(slot, self.target(slot).cloned());
            ready.extend(freed.and_then(|id| self.wanted_by.get(&id).copied()));
        }
    }

    /// Slots that wait for each other in a ring, each for the one after it.
    fn rings(&self) -> Vec<Vec<Slot>> {
        let mut is_seen = vec![false; self.now.len()];
        let mut rings = Vec::new();
        for first in self.open() {
            let mut ring = vec![first];
            let mut next = self.waits_for(first);
            while let Some(slot) = next.filter(|slot| !is_seen[slot.0 as usize]) {
                is_seen[slot.0 as usize] = true;
                if slot == first {
                    rings.push(std::mem::take(&mut ring));
                    break;
                }
                ring.push(slot);
                next = self.waits_for(slot);
            }
        }
        rings
    }

    /// Turns a ring with the help of a spare host, if there is one for it.
    fn relieve(&mut self, ring: &[Slot]) -> bool {
        let fits = |host: &Host| ring.iter().position(|slot| host.fits(self.column(*slot)));
        let free = self.draft.hosts.values().filter(|host| !self.places.contains_key(&host.id));
        // Those that are spare in the end, before those that a slot waits for.
        let found = free
            .filter_map(|host| Some((self.wanted_by.contains_key(&host.id), &host.id, fits(host)?)))
            .min();
        let Some((_, id, at)) = found else { return false };
        self.turn(ring, at, Some(id.clone()));
        true
    }

    /// Every slot of a ring gets the host of the next one, while another host,
    /// or none, stands in for the slot at `at`.
    fn turn(&mut self, ring: &[Slot], at: usize, stand_in: Option<HostId>) {
        let slot = |after: usize| ring[(at + after) % ring.len()];
        self.shift(slot(0), stand_in);
        for after in (0..ring.len()).rev() {
            self.shift(slot(after), self.target(slot(after)).cloned());
        }
    }

    /// The slot of a ring that may best go dark: the fewest tenants lose a
    /// second slot by it, then the fewest one.
    fn weakest(&self, ring: &[Slot], shards: impl Iterator<Item = Shard>) -> usize {
        let is_dark = |slot: &Slot| {
            !ring.contains(slot) && self.now.get(slot.0 as usize).is_some_and(Option::is_none)
        };
        let mut doubly = vec![0u64; ring.len()];
        if self.now.iter().any(Option::is_none) {
            for shard in shards.filter(|shard| shard.iter().any(is_dark)) {
                for (count, slot) in doubly.iter_mut().zip(ring) {
                    *count += u64::from(shard.contains(slot));
                }
            }
        }
        let cost = |at: &usize| (doubly[*at], self.usage.of(ring[*at]));
        (0..ring.len()).min_by_key(cost).unwrap_or(0)
    }
}
