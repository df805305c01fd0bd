//! Which shards new tenants may get: weights, drains and quarantine.
//!
//! Taking some shards of a design out leaves a design with the same promise.
//! So a worker gets fewer tenants, or none, by passing shards over, and never
//! by putting a second worker into its place: a poisonous tenant would follow
//! there, and two shards that differed would not any more.

use std::collections::HashMap;

use crate::design::Design;
use crate::fleet::Fleet;
use crate::key::{Key, mix};
use crate::shard::{DesignIndex, Shard, Slot};

/// Passes shards over, so that every slot gets its share of new tenants.
///
/// A shard is taken with a chance that is the product of the shares of its
/// slots, decided by its number: the same shards are passed over every time.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Slots that take less than a full share.
    shares: HashMap<Slot, f64>,
    keys: [u64; 2],
}

impl Admission {
    /// Takes every shard.
    pub fn everyone() -> Self {
        Admission { shares: HashMap::new(), keys: [0; 2] }
    }

    /// Gives each worker tenants in proportion to its weight, compared with
    /// the heaviest of its column.
    pub fn by_weight(fleet: &Fleet, design: &Design, key: &Key) -> Self {
        let mut admission = Admission::everyone();
        admission.keys = [key.draw("admission", 0), key.draw("admission", 1)];
        let weight = |slot: &Slot| fleet.worker(*slot).map_or(1.0, |worker| worker.weight);
        for number in 0..design.columns().count() {
            let column = design.columns().column(number);
            let heaviest = column.iter().map(weight).fold(0.0, f64::max);
            for slot in column {
                admission.set_share(*slot, weight(slot) / heaviest);
            }
        }
        admission
    }

    /// No new tenants for this slot: it is being drained, or in quarantine.
    /// Those it has stay until they are moved.
    pub fn close(&mut self, slot: Slot) {
        self.set_share(slot, 0.0);
    }

    /// The slot takes its full share again.
    pub fn open(&mut self, slot: Slot) {
        self.shares.remove(&slot);
    }

    /// The share of new tenants that a slot takes, from 0 to 1.
    pub fn set_share(&mut self, slot: Slot, share: f64) {
        match share < 1.0 {
            true => drop(self.shares.insert(slot, share.max(0.0))),
            false => self.open(slot),
        }
    }

    /// The share of new tenants that a slot takes.
    pub fn share(&self, slot: Slot) -> f64 {
        self.shares.get(&slot).copied().unwrap_or(1.0)
    }

    /// Whether a new tenant may get this shard.
    pub fn admits(&self, index: DesignIndex, shard: &Shard) -> bool {
        self.shares.is_empty() || {
            let chance: f64 = shard.iter().map(|slot| self.share(*slot)).product();
            let draw = mix(mix(index.0, self.keys), [self.keys[1], self.keys[0]]);
            ((draw >> 11) as f64) < chance * (1u64 << 53) as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{STRIPE, Worker};

    #[test]
    fn loads_follow_weights() {
        let worker = |n: usize| Worker {
            id: n.to_string(),
            domains: vec![(n / 16).to_string()],
            weight: if n.is_multiple_of(2) { 1.0 } else { 0.5 },
        };
        let fleet = Fleet::new(vec![STRIPE.into()], (0..64).map(worker).collect()).unwrap();
        let columns = fleet.columns(4, &[STRIPE]).unwrap();
        let design = Design::striped(columns, 2, None, &Key::PUBLIC);
        let admission = Admission::by_weight(&fleet, &design, &Key::PUBLIC);
        let mut loads = [0u32; 64];
        let taken = design.shards(0).filter(|(index, shard)| admission.admits(*index, shard));
        taken.for_each(|(_, shard)| shard.iter().for_each(|slot| loads[slot.0 as usize] += 1));
        let sum = |odd: usize| loads.iter().skip(odd).step_by(2).sum::<u32>();
        let ratio = f64::from(sum(1)) / f64::from(sum(0));
        assert!((0.45..0.55).contains(&ratio), "{ratio}");
    }

    #[test]
    fn closed_slots_get_nobody_until_they_are_opened() {
        let columns = Fleet::numbered(16, Some(4)).unwrap().columns(4, &[STRIPE]).unwrap();
        let design = Design::striped(columns, 2, None, &Key::PUBLIC);
        let mut admission = Admission::everyone();
        admission.close(Slot(5));
        let count = |admission: &Admission| {
            design.shards(0).filter(|(index, shard)| admission.admits(*index, shard)).count()
        };
        assert_eq!(count(&admission), 48);
        admission.open(Slot(5));
        assert_eq!(count(&admission), 64);
    }
}
