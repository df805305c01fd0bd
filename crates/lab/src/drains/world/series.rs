//! What a Prometheus would have scraped from a world: series with the names and
//! labels that production has, and the queries of a plan over them.
//!
//! A query that is a bare selector of the world's own names is measured at once
//! ([`World::measure`]); others are evaluated over a store of samples, by the code
//! that evaluates them over real ones. Only series that a query selects are kept,
//! so a plan without such queries costs nothing.

use std::collections::BTreeSet;

use drain::{Comparison, Millis, Time, promql};
use metrics::query::{Outcome, Query};
use metrics::series::{Bounds, Labels, NAME, Store};

use super::{Gauge, World};

/// A metric with the names of production, and what it is here.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub name: String,
    pub of: Measure,
    /// Values may have variables: `$service`, `$dc`, `$store`, `$link`, `$code` (200
    /// and 500) and `$class` (2xx and 5xx).
    pub labels: Vec<(String, String)>,
}

/// What a metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Counters of a service: all requests, those that fail, and both by their
    /// status code.
    Requests,
    Failures,
    Responses,
    /// 1 while the service runs in a datacenter, else 0.
    Up,
    /// The world's own.
    Errors,
    Traffic,
    Sessions,
    Utilisation,
    Backlog,
    Lag,
    Primaries,
    Link,
}

impl Measure {
    pub const NAMES: [(&str, Measure); 12] = [
        ("requests", Measure::Requests),
        ("failures", Measure::Failures),
        ("responses", Measure::Responses),
        ("up", Measure::Up),
        ("errors", Measure::Errors),
        ("traffic", Measure::Traffic),
        ("sessions", Measure::Sessions),
        ("utilisation", Measure::Utilisation),
        ("backlog", Measure::Backlog),
        ("lag", Measure::Lag),
        ("primaries", Measure::Primaries),
        ("link", Measure::Link),
    ];

    /// Variables that labels must have, one for each series, and may have.
    pub fn variables(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Measure::Requests | Measure::Failures | Measure::Errors => (&["service"], &["dc"]),
            Measure::Responses => (&["service"], &["dc", "code", "class"]),
            Measure::Traffic | Measure::Sessions | Measure::Up => (&["service", "dc"], &[]),
            Measure::Utilisation => (&["dc"], &[]),
            Measure::Backlog | Measure::Lag => (&["store"], &["dc"]),
            Measure::Primaries => (&["store", "dc"], &[]),
            Measure::Link => (&["link"], &[]),
        }
    }
}

/// Metrics that every world has, under its own names.
fn own_metrics() -> Vec<Metric> {
    let metric = |name: &str, of: Measure| {
        let (must, may) = of.variables();
        let names = must.iter().chain(may).filter(|name| !["code", "class"].contains(name));
        let labels = names.map(|name| (name.to_string(), format!("${name}")));
        Metric { name: name.to_owned(), of, labels: labels.collect() }
    };
    let counters = [("requests_total", Measure::Requests), ("failures_total", Measure::Failures)];
    let gauges = Measure::NAMES.into_iter().skip(3);
    counters.into_iter().chain(gauges).map(|(name, of)| metric(name, of)).collect()
}

/// What the samples of one series are.
#[derive(Clone, Debug)]
enum Reading {
    /// Requests of a service so far, in one place or in all: those that fail, or
    /// those that do not; `None` for both.
    Count {
        service: usize,
        place: Option<usize>,
        failed: Option<bool>,
    },
    Up(usize, usize),
    Gauge(Gauge),
}

/// The queries of a plan, and the samples that they are evaluated over.
#[derive(Debug)]
pub struct Scraped {
    store: Store,
    series: Vec<(Labels, Reading)>,
    queries: Vec<(Query, Millis)>,
}

impl Scraped {
    /// Finds what the queries select. Samples from before the world began are made
    /// up as if it had always been as it is now.
    pub fn open(world: &World, queries: &[&str]) -> Result<Scraped, Vec<String>> {
        let all = all_series(world);
        let mut probe = Store::new(Bounds { samples_max: 2, ..Bounds::default() });
        for (labels, _) in &all {
            probe.append(labels, world.now(), 1.0);
        }
        let (mut parsed, mut selected, mut wrong) = (Vec::new(), BTreeSet::new(), Vec::new());
        for query in queries {
            match read(query, &probe, world) {
                Ok((own, window, labels)) => {
                    parsed.push((own, window));
                    selected.extend(labels);
                }
                Err(why) => wrong.push(format!("query {query}: {why}")),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let scrape = world.site.scrape;
        let window = parsed.iter().map(|(_, window)| *window).max().unwrap_or_default();
        let past = window.0 / scrape.0.max(1) + 2;
        let bounds = Bounds {
            series_max: selected.len().max(1),
            samples_max: usize::try_from(past).unwrap_or(usize::MAX).saturating_add(8),
            keep: window + scrape * 4.0,
        };
        let series = all.into_iter().filter(|(labels, _)| selected.contains(labels)).collect();
        let mut scraped = Scraped { store: Store::new(bounds), series, queries: parsed };
        for before in (1..=past).rev() {
            let ago = Millis(before.saturating_mul(scrape.0));
            if ago.0 < world.now().0 {
                scraped.take_ago(world, ago);
            }
        }
        Ok(scraped)
    }

    fn take_ago(&mut self, world: &World, ago: Millis) {
        let at = Time(world.now().0 - ago.0);
        for (labels, reading) in &self.series {
            let (value, slope) = world.sample(reading);
            self.store.append(labels, at, (value - slope * ago.as_secs_f64()).max(0.0));
        }
    }

    /// Takes a sample of every series. `off` says by which share each gauge is off.
    pub fn scrape(&mut self, world: &World, now: Time, mut off: impl FnMut() -> f64) {
        for (labels, reading) in &self.series {
            let (value, _) = world.sample(reading);
            let value = match reading {
                Reading::Gauge(_) => value * (1.0 + off()),
                Reading::Count { .. } | Reading::Up(..) => value,
            };
            self.store.append(labels, now, value);
        }
    }

    /// What counts of a query: the worst value for its condition. Not a number if
    /// there is no other, as where 0 is divided by 0; `None` without any.
    pub fn measure(&self, query: usize, how: Comparison, bound: f64, now: Time) -> Option<f64> {
        let outcome = self.queries[query].0.evaluate(&self.store, now).ok()?;
        let values = outcome.values();
        let (_, worst) = metrics::worst(how, bound, values.iter().copied());
        (!values.is_empty()).then_some(worst)
    }

    /// How far back the samples of a query reach.
    pub fn window(&self, query: usize) -> Millis {
        self.queries[query].1
    }
}

/// A query, how far back it reaches, and the series that it selects.
fn read(text: &str, probe: &Store, world: &World) -> Result<(Query, Millis, Vec<Labels>), String> {
    let query = Query::parse(text).map_err(|fault| fault.to_string())?;
    let analysis = promql::analyse(text).map_err(|fault| fault.to_string())?;
    let window = analysis.selectors.iter().map(|selector| selector.window).max();
    let mut all = Vec::new();
    for selector in &analysis.selectors {
        let select = Query::parse(&selector.text).map_err(|fault| fault.to_string())?;
        let selected = match select.evaluate(probe, world.now())? {
            Outcome::Vector(elements) => elements,
            Outcome::Number(_) => Vec::new(),
        };
        if selected.is_empty() && !selector.optional {
            return Err(format!(
                "no series of the world match `{}`; accepted: {}",
                selector.text,
                names(world)
            ));
        }
        all.extend(selected.into_iter().map(|element| element.labels));
    }
    Ok((query, window.unwrap_or_default(), all))
}

/// The metrics of a world, for people.
fn names(world: &World) -> String {
    let own = own_metrics();
    let names: BTreeSet<&str> =
        world.site.metrics.iter().chain(&own).map(|metric| metric.name.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Every series that can be scraped. A name of the file comes before the same name
/// of the world.
fn all_series(world: &World) -> Vec<(Labels, Reading)> {
    let named = |name: &str| world.site.metrics.iter().any(|metric| metric.name == name);
    let own = own_metrics().into_iter().filter(|metric| !named(&metric.name));
    let mut series = Vec::new();
    let mut seen = BTreeSet::new();
    for metric in world.site.metrics.iter().cloned().chain(own) {
        for (variables, reading) in world.readings(&metric) {
            let labels = metric.labels.iter().map(|(label, value)| {
                let value = variables.iter().fold(value.clone(), |text, (name, value)| {
                    text.replace(&format!("${name}"), value)
                });
                (label.clone(), value)
            });
            let labels = labels.chain([(NAME.to_owned(), metric.name.clone())]).collect();
            if let Some(labels) = Labels::new(labels)
                && seen.insert(labels.clone())
            {
                series.push((labels, reading));
            }
        }
    }
    series
}

type Variables = Vec<(&'static str, String)>;

impl World {
    /// The readings of a metric, each with what its variables stand for.
    fn readings(&self, metric: &Metric) -> Vec<(Variables, Reading)> {
        let has =
            |name: &str| metric.labels.iter().any(|(_, value)| value.contains(&format!("${name}")));
        let site = &self.site;
        let count = |list: usize| 0..list;
        let places: Vec<Option<usize>> = match has("dc") {
            true => count(site.datacenters.len()).map(Some).collect(),
            false => vec![None],
        };
        let owners = match metric.of {
            Measure::Utilisation => 1,
            Measure::Link => site.links.len(),
            Measure::Backlog | Measure::Lag | Measure::Primaries => site.stores.len(),
            _ => site.services.len(),
        };
        let codes: &[(Option<bool>, &str, &str)] = match has("code") || has("class") {
            true => &[(Some(false), "200", "2xx"), (Some(true), "500", "5xx")],
            false => &[(None, "", "")],
        };
        let mut readings = Vec::new();
        for owner in 0..owners {
            for place in &places {
                for (failed, code, class) in codes {
                    let Some(reading) = self.reading(metric.of, owner, *place, *failed) else {
                        continue;
                    };
                    let mut variables: Variables =
                        vec![("code", (*code).into()), ("class", (*class).into())];
                    variables.extend(place.map(|at| ("dc", site.datacenters[at].name.clone())));
                    variables.extend(match metric.of {
                        Measure::Utilisation => None,
                        Measure::Link => Some(("link", site.links[owner].name.clone())),
                        Measure::Backlog | Measure::Lag | Measure::Primaries => {
                            Some(("store", site.stores[owner].name.clone()))
                        }
                        _ => Some(("service", site.services[owner].name.clone())),
                    });
                    readings.push((variables, reading));
                }
            }
        }
        readings
    }

    fn reading(
        &self,
        of: Measure,
        owner: usize,
        place: Option<usize>,
        failed: Option<bool>,
    ) -> Option<Reading> {
        let counter = |failed| Reading::Count { service: owner, place, failed };
        Some(match of {
            Measure::Requests => counter(None),
            Measure::Failures => counter(Some(true)),
            Measure::Responses => counter(failed),
            Measure::Up => Reading::Up(owner, place?),
            Measure::Errors => Reading::Gauge(Gauge::Errors(owner, place)),
            Measure::Traffic => Reading::Gauge(Gauge::Traffic(owner, place?)),
            Measure::Sessions => Reading::Gauge(Gauge::Sessions(owner, place?)),
            Measure::Utilisation => Reading::Gauge(Gauge::Utilisation(place?)),
            Measure::Backlog => Reading::Gauge(Gauge::Backlog(owner, place)),
            Measure::Lag => Reading::Gauge(Gauge::Lag(owner, place)),
            Measure::Primaries => Reading::Gauge(Gauge::Primaries(owner, place?)),
            Measure::Link => Reading::Gauge(Gauge::Link(owner)),
        })
    }

    /// The value of a reading, and by how much it grows a second.
    fn sample(&self, reading: &Reading) -> (f64, f64) {
        match reading {
            Reading::Gauge(gauge) => (self.measure(gauge), 0.0),
            Reading::Up(service, place) => {
                (f64::from(u8::from(self.flows[*service][*place].is_running)), 0.0)
            }
            Reading::Count { service, place, failed } => {
                let (all, bad) = self.counted[*service].of(*place);
                let (all_rate, bad_rate) = match place {
                    Some(place) => self.requests_at(*service, *place),
                    None => self.requests(*service),
                };
                match failed {
                    None => (all, all_rate),
                    Some(true) => (bad, bad_rate),
                    Some(false) => (all - bad, all_rate - bad_rate),
                }
            }
        }
    }
}

/// Requests of a service so far, and how many of them failed.
#[derive(Clone, Debug)]
pub struct Counted {
    /// In each datacenter.
    places: Vec<(f64, f64)>,
    /// Those that no datacenter took.
    nowhere: f64,
}

impl Counted {
    pub fn new(places: usize) -> Counted {
        Counted { places: vec![(0.0, 0.0); places], nowhere: 0.0 }
    }

    fn of(&self, place: Option<usize>) -> (f64, f64) {
        match place {
            Some(place) => self.places[place],
            None => self
                .places
                .iter()
                .fold((self.nowhere, self.nowhere), |sum, own| (sum.0 + own.0, sum.1 + own.1)),
        }
    }
}

impl World {
    /// Counts the requests of a while.
    pub(super) fn count_requests(&mut self, secs: f64) {
        for service in 0..self.site.services.len() {
            let nowhere = self.requests_nowhere(service);
            self.counted[service].nowhere += nowhere * secs;
            for place in 0..self.site.datacenters.len() {
                let (all, failed) = self.requests_at(service, place);
                let own = &mut self.counted[service].places[place];
                (own.0, own.1) = (own.0 + all * secs, own.1 + failed * secs);
            }
        }
    }
}
