//! Stores: who leads their shards, and how far replicas are behind.

use super::site::Store;
use super::{Flooded, World};

/// The replica of a store in one datacenter.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Whether it receives what is written.
    pub is_on: bool,
    /// How fast it may catch up.
    pub rate: f64,
    /// What it has not received yet.
    pub backlog: f64,
    /// The share of shards that it leads, and that it is told to.
    pub primaries: f64,
    pub wanted: Option<f64>,
}

impl Replica {
    pub fn all(store: &Store) -> Vec<Option<Replica>> {
        let replica = |share: &Option<f64>| {
            let primaries = (*share)?;
            let rate = store.catch_up;
            Some(Replica { is_on: true, rate, backlog: 0.0, primaries, wanted: None })
        };
        store.primaries.iter().map(replica).collect()
    }

    /// How many seconds it is behind.
    pub fn lag_secs(&self, store: &Store) -> f64 {
        if store.writes > 0.0 { self.backlog / store.writes } else { 0.0 }
    }

    /// Whether it could lead: nothing that was written is missing.
    fn can_lead(&self, store: &Store) -> bool {
        self.is_on && self.lag_secs(store) <= 5.0
    }

    /// What it would take of its link: what is written now, and what it missed.
    fn wants(&self, store: &Store) -> f64 {
        let missed = self.rate.min(store.catch_up).min(self.backlog);
        if self.is_on { store.writes + missed } else { 0.0 }
    }
}

impl World {
    pub(super) fn move_primaries(&mut self, secs: f64) {
        for at in 0..self.site.stores.len() {
            for place in 0..self.site.datacenters.len() {
                let most = self.site.stores[at].promotes * secs;
                self.move_primaries_of(at, place, most);
            }
        }
    }

    /// Brings the primaries of one replica nearer to what it is told to lead.
    fn move_primaries_of(&mut self, at: usize, place: usize, most: f64) {
        let store = &self.site.stores[at];
        let replicas = &mut self.replicas[at];
        let Some(own) = &replicas[place] else { return };
        let Some(wanted) = own.wanted else { return };
        let away = (wanted - own.primaries).clamp(-most, most);
        if away == 0.0 || (away > 0.0 && !own.can_lead(store)) {
            return;
        }
        // Whoever is told what to lead neither gives nor takes.
        let is_other = |other: &Replica| other.wanted.is_none() && other.can_lead(store);
        let others: Vec<usize> = (0..replicas.len())
            .filter(|other| *other != place && replicas[*other].as_ref().is_some_and(is_other))
            .collect();
        let held: f64 =
            others.iter().flat_map(|other| &replicas[*other]).map(|r| r.primaries).sum();
        if others.is_empty() {
            return;
        }
        let moved = if away > 0.0 { away.min(held) } else { away };
        for other in &others {
            let Some(replica) = &mut replicas[*other] else { continue };
            let even = 1.0 / others.len() as f64;
            let share = if moved > 0.0 { replica.primaries / held } else { even };
            replica.primaries -= moved * share;
        }
        if let Some(own) = &mut replicas[place] {
            own.primaries += moved;
        }
    }

    pub(super) fn settle_stores(&mut self) {
        for at in 0..self.site.stores.len() {
            for replica in self.replicas[at].iter_mut().flatten().filter(|replica| replica.is_on) {
                replica.backlog = 0.0;
            }
            (0..self.site.datacenters.len())
                .for_each(|place| self.move_primaries_of(at, place, 1.0));
        }
    }

    /// Adds up what is wanted of each link. One that is asked for too much
    /// gives everybody the same share of it.
    pub(super) fn fill_links(&mut self) {
        for (at, link) in self.site.links.iter().enumerate() {
            let of_services: f64 = self
                .site
                .services
                .iter()
                .flat_map(|service| &service.uses)
                .filter(|(own, _)| *own == at)
                .map(|(_, wants)| wants)
                .sum();
            let stores = self.site.stores.iter().zip(&self.replicas);
            let of_stores: f64 = stores
                .filter(|(store, _)| store.link == Some(at))
                .flat_map(|(store, replicas)| replicas.iter().flatten().map(|own| own.wants(store)))
                .sum();
            let wanted = link.load + of_services + of_stores;
            let through = if wanted > link.capacity { link.capacity / wanted } else { 1.0 };
            self.links[at] = Flooded { wanted, of_stores, through };
        }
    }

    /// What replicas get of a link, as a share of what it bears.
    pub fn replication(&self, link: usize) -> f64 {
        let Flooded { of_stores, through, .. } = self.links[link];
        of_stores * through / self.site.links[link].capacity
    }

    pub(super) fn replicate(&mut self, secs: f64) {
        for (store, replicas) in self.site.stores.iter().zip(&mut self.replicas) {
            let through = store.link.map_or(1.0, |link| self.links[link].through);
            for replica in replicas.iter_mut().flatten() {
                let received = replica.wants(store) * through;
                replica.backlog = (replica.backlog + (store.writes - received) * secs).max(0.0);
            }
        }
    }
}
