//! What a world consists of before anything happens: datacenters, services,
//! stores and links.

use drain::Millis;

use super::series::Metric;

/// A world as its file describes it. Places in these lists are what everything
/// else refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    pub name: String,
    /// Between two looks at a metric, and how far off each may be, as a share.
    pub scrape: Millis,
    pub noise: f64,
    /// How long it takes to turn a knob and to read it back.
    pub latency: Millis,
    /// How long a datacenter stays drained before it is restored.
    pub downtime: Millis,
    pub datacenters: Vec<Place>,
    pub services: Vec<Service>,
    pub stores: Vec<Store>,
    pub links: Vec<Link>,
    /// Names of production, for knobs and for metrics.
    pub knobs: Vec<KnobName>,
    pub metrics: Vec<Metric>,
}

/// What production calls the knobs of a kind: `edge:weight/$service/$dc`.
#[derive(Clone, Debug, PartialEq)]
pub struct KnobName {
    pub pattern: String,
    pub of: KnobOf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobOf {
    Weight,
    Sessions,
    /// How many sessions there are; it can only be read.
    Count,
    Job,
    Replication,
    Rate,
    Primary,
}

impl KnobOf {
    pub const NAMES: [(&str, KnobOf); 7] = [
        ("weight", KnobOf::Weight),
        ("sessions", KnobOf::Sessions),
        ("count", KnobOf::Count),
        ("job", KnobOf::Job),
        ("replication", KnobOf::Replication),
        ("rate", KnobOf::Rate),
        ("primary", KnobOf::Primary),
    ];

    /// The variable for whose knob it is.
    pub fn owner(self) -> &'static str {
        match self {
            KnobOf::Weight | KnobOf::Sessions | KnobOf::Count | KnobOf::Job => "service",
            KnobOf::Replication | KnobOf::Rate | KnobOf::Primary => "store",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub name: String,
    /// Units of load that it can bear.
    pub capacity: f64,
    /// The share of it that may be used.
    pub line: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub name: String,
    /// Whether its failures are what users see.
    pub user_facing: bool,
    /// Requests a second over all datacenters, and units of load for each.
    pub demand: f64,
    pub cost: f64,
    /// For each datacenter, before anything is drained.
    pub weights: Vec<f64>,
    /// How long a written weight takes until all of it is felt.
    pub propagation: Millis,
    pub cache: Option<Cache>,
    pub sessions: Option<Sessions>,
    /// Services that it calls in the same datacenter.
    pub calls: Vec<usize>,
    /// Stores that it reads in the same datacenter.
    pub reads: Vec<usize>,
    /// What it needs of links.
    pub uses: Vec<(usize, f64)>,
}

/// Requests to a place that recently had fewer of them cost more for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cache {
    /// How much a request costs that no cache knows, beside one that it does.
    pub cold_cost: f64,
    /// How long caches take to get warm, and to get cold again.
    pub warms_in: Millis,
    pub cools_in: Millis,
}

/// Sessions stay where they are until they end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sessions {
    pub count: f64,
    pub half_life: Millis,
    /// Units of load that a session costs, and one that is being set up.
    pub cost: f64,
    pub setup_cost: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    pub name: String,
    /// The share of primary shards in each datacenter that has a replica.
    pub primaries: Vec<Option<f64>>,
    /// Units of load that all primaries cost.
    pub load: f64,
    /// How fast primaries can move, as a share of all a second.
    pub promotes: f64,
    /// What each replica receives, a second; and what it could at the most when
    /// it catches up.
    pub writes: f64,
    pub catch_up: f64,
    pub link: Option<usize>,
    /// Whoever reads a replica that is further behind fails.
    pub stale_after: Millis,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub name: String,
    pub capacity: f64,
    /// What others use of it.
    pub load: f64,
}

impl Site {
    pub fn datacenter(&self, name: &str) -> Option<usize> {
        self.datacenters.iter().position(|own| own.name == name)
    }

    pub fn service(&self, name: &str) -> Option<usize> {
        self.services.iter().position(|own| own.name == name)
    }

    pub fn store(&self, name: &str) -> Option<usize> {
        self.stores.iter().position(|own| own.name == name)
    }

    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|own| own.name == name)
    }
}
