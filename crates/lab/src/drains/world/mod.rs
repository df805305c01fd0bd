//! The world that is drained: traffic, sessions, stores and links between
//! datacenters, second by second.
//!
//! Nothing in here is random: what is left to chance is how well it is seen,
//! and what goes wrong between it and a run. A world is changed by turning its
//! knobs ([`World::write`]), seen through its gauges ([`World::measure`]), and
//! otherwise takes its course ([`World::pass_until`]).

mod errors;
mod file;
mod knobs;
mod metrics;
mod series;
mod site;
mod stores;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::{Millis, Time, Value};
use serde::Serialize;

pub use file::BadWorld;
pub use knobs::{Dial, Fence, Written};
pub use metrics::Gauge;
use series::Counted;
pub use series::{Measure, Metric, Scraped};
pub use site::{Cache, Link, Place, Service, Sessions, Site, Store};
pub use site::{KnobName, KnobOf};
use stores::Replica;
use traffic::Flow;

/// One step of the world.
const STEP: Millis = Millis(1000);

/// For how long counters have counted when a world begins.
const COUNTED_BEFORE: Millis = Millis::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub struct World {
    pub site: Arc<Site>,
    /// What has passed.
    now: Time,
    /// For each service, in each datacenter.
    flows: Vec<Vec<Flow>>,
    /// For each store, in each datacenter that has a replica.
    replicas: Vec<Vec<Option<Replica>>>,
    /// Load of each datacenter.
    load: Vec<f64>,
    /// What is wanted of each link, and the share of that which comes through.
    links: Vec<Flooded>,
    /// Sessions of each service that nobody could set up.
    homeless: Vec<f64>,
    /// Requests of each service so far.
    counted: Vec<Counted>,
    /// Knobs without a meaning here: configuration files.
    settings: BTreeMap<String, Value>,
    /// The last fence of each knob.
    fences: BTreeMap<Dial, Fence>,
    acts: BTreeSet<Fence>,
    pub tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flooded {
    wanted: f64,
    /// The part of it that stores want.
    of_stores: f64,
    through: f64,
}

/// What users got so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    pub requests: f64,
    pub failed: f64,
    /// For each datacenter.
    pub peak_utilisation: Vec<f64>,
}

impl World {
    /// A world at rest.
    pub fn new(site: Arc<Site>, now: Time) -> Self {
        let flows = site.services.iter().map(|service| Flow::all(service, now)).collect();
        let replicas = site.stores.iter().map(Replica::all).collect();
        let places = site.datacenters.len();
        let mut world = World {
            now,
            flows,
            replicas,
            load: vec![0.0; places],
            links: vec![Flooded { through: 1.0, ..Flooded::default() }; site.links.len()],
            homeless: vec![0.0; site.services.len()],
            counted: vec![Counted::new(places); site.services.len()],
            settings: BTreeMap::new(),
            fences: BTreeMap::new(),
            acts: BTreeSet::new(),
            tally: Tally { peak_utilisation: vec![0.0; places], ..Tally::default() },
            site,
        };
        world.settle();
        // As if it had been so for a while: counters do not begin at 0.
        world.count_requests(COUNTED_BEFORE.as_secs_f64());
        world
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Lets the world take its course.
    pub fn pass_until(&mut self, now: Time) {
        while self.now + STEP <= now {
            self.now = self.now + STEP;
            self.step();
        }
    }

    fn step(&mut self) {
        let secs = STEP.as_secs_f64();
        self.spread_traffic(secs);
        self.move_primaries(secs);
        self.fill_links();
        self.replicate(secs);
        self.sum_load();
        self.warm_caches(secs);
        self.judge_requests();
        self.count(secs);
    }

    /// Lets everything that is under way arrive at once: what a world is like
    /// a good while later, but for what piles up.
    pub fn settle(&mut self) {
        for flow in self.flows.iter_mut().flatten() {
            flow.weight.finish();
        }
        self.spread_traffic(0.0);
        for flow in self.flows.iter_mut().flatten() {
            (flow.warm, flow.setting_up) = (flow.traffic, 0.0);
        }
        self.settle_stores();
        self.fill_links();
        self.sum_load();
        self.judge_requests();
    }

    fn sum_load(&mut self) {
        for place in 0..self.site.datacenters.len() {
            let of_services: f64 = self
                .site
                .services
                .iter()
                .zip(&self.flows)
                .fold(0.0, |sum, (service, flows)| sum + flows[place].load(service));
            let of_stores: f64 =
                self.site.stores.iter().zip(&self.replicas).fold(0.0, |sum, (store, replicas)| {
                    let share = replicas[place].as_ref().map_or(0.0, |replica| replica.primaries);
                    sum + store.load * share
                });
            self.load[place] = of_services + of_stores;
        }
    }

    pub fn utilisation(&self, place: usize) -> f64 {
        self.load[place] / self.site.datacenters[place].capacity
    }

    fn count(&mut self, secs: f64) {
        self.count_requests(secs);
        for place in 0..self.site.datacenters.len() {
            let peak = self.utilisation(place).max(self.tally.peak_utilisation[place]);
            self.tally.peak_utilisation[place] = peak;
        }
        for (at, service) in self.site.services.iter().enumerate() {
            if !service.user_facing {
                continue;
            }
            let (requests, failed) = self.requests(at);
            self.tally.requests += requests * secs;
            self.tally.failed += failed * secs;
        }
    }
}
