//! World files: strict YAML, `pharos: world/v1`. docs/worlds.md has every key.

use std::collections::BTreeMap;
use std::fmt;

use drain::Millis;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use serde_saphyr::{Location, Spanned};

use super::series::{Measure, Metric};
use super::site::{Cache, KnobName, KnobOf, Link, Place, Service, Sessions, Site, Store};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldFile {
    pharos: Format,
    world: String,
    #[serde(default = "default_scrape")]
    scrape: Period,
    #[serde(default)]
    noise: Share,
    #[serde(default = "default_latency")]
    latency: Span,
    #[serde(default = "default_downtime")]
    downtime: Span,
    datacenters: BTreeMap<String, PlaceFile>,
    services: BTreeMap<String, Spanned<ServiceFile>>,
    #[serde(default)]
    stores: BTreeMap<String, Spanned<StoreFile>>,
    #[serde(default)]
    links: BTreeMap<String, LinkFile>,
    #[serde(default)]
    knobs: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    metrics: BTreeMap<String, Spanned<MetricFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricFile {
    of: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
enum Format {
    #[serde(rename = "world/v1")]
    V1,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceFile {
    capacity: Capacity,
    #[serde(default = "default_line")]
    line: Share,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceFile {
    #[serde(default)]
    user_facing: bool,
    #[serde(default)]
    demand: Amount,
    #[serde(default = "one")]
    cost: Amount,
    #[serde(default)]
    weights: BTreeMap<String, Spanned<Amount>>,
    #[serde(default = "default_propagation")]
    propagation: Span,
    cache: Option<CacheFile>,
    sessions: Option<SessionsFile>,
    #[serde(default)]
    calls: Vec<Spanned<String>>,
    #[serde(default)]
    reads: Vec<Spanned<String>>,
    #[serde(default)]
    uses: BTreeMap<String, Spanned<Amount>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheFile {
    cold_cost: Amount,
    warms_in: Period,
    cools_in: Period,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionsFile {
    count: Amount,
    half_life: Period,
    cost: Amount,
    setup_cost: Amount,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreFile {
    primaries: BTreeMap<String, Spanned<Share>>,
    load: Amount,
    /// How long it takes to move all primaries.
    promotes_in: Period,
    writes: Amount,
    catch_up: Amount,
    link: Option<Spanned<String>>,
    #[serde(default = "default_stale")]
    stale_after: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    capacity: Capacity,
    #[serde(default)]
    load: Amount,
}

#[derive(Clone, Copy, Debug)]
struct Span(Millis);

/// A span that is not nothing.
#[derive(Clone, Copy, Debug)]
struct Period(Millis);

/// A number from 0 on.
#[derive(Clone, Copy, Debug, Default)]
struct Amount(f64);

/// A number above 0: it is divided by.
#[derive(Clone, Copy, Debug)]
struct Capacity(f64);

#[derive(Clone, Copy, Debug, Default)]
struct Share(f64);

/// The largest number, and the smallest that may be divided by: sums and
/// products of them stay numbers.
const AMOUNT_MAX: f64 = 1e12;
const CAPACITY_MIN: f64 = 1e-6;
/// The longest span: a simulated world is stepped through all of it.
const SPAN_MAX: Millis = Millis::from_secs(365 * 24 * 3600);

fn one() -> Amount {
    Amount(1.0)
}

fn default_scrape() -> Period {
    Period(Millis::from_secs(5))
}

fn default_latency() -> Span {
    Span(Millis(400))
}

fn default_downtime() -> Span {
    Span(Millis::from_secs(3600))
}

fn default_propagation() -> Span {
    Span(Millis::from_secs(20))
}

fn default_stale() -> Span {
    Span(Millis::from_secs(60))
}

fn default_line() -> Share {
    Share(0.75)
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        read_span(&text).map(Span).ok_or_else(|| {
            de::Error::custom(format!(
                "`{text}` is no span of time; accepted: 250ms, 30s, 5m, 2h, up to 8760h"
            ))
        })
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Span(span) = Span::deserialize(deserializer)?;
        let is_period = span > Millis::ZERO;
        is_period.then_some(Period(span)).ok_or_else(|| {
            de::Error::custom("it cannot happen all the time; accepted: spans above 0s")
        })
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        read_share(&text)
            .map(Share)
            .ok_or_else(|| de::Error::custom(format!("`{text}` is no share; accepted: 0.25, 25%")))
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        let is_amount = (0.0..=AMOUNT_MAX).contains(&number);
        is_amount.then_some(Amount(number)).ok_or_else(|| {
            de::Error::custom(format!("`{number}` is no amount; accepted: numbers from 0 to 1e12"))
        })
    }
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        let is_capacity = (CAPACITY_MIN..=AMOUNT_MAX).contains(&number);
        is_capacity.then_some(Capacity(number)).ok_or_else(|| {
            de::Error::custom(format!("`{number}` is no capacity; accepted: from 1e-6 to 1e12"))
        })
    }
}

fn read_span(text: &str) -> Option<Millis> {
    let at = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = (text[..at].parse::<u64>().ok()?, &text[at..]);
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Millis).filter(|span| *span <= SPAN_MAX)
}

fn read_share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

/// What is wrong with a world file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadWorld(Vec<String>);

impl fmt::Display for BadWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for BadWorld {}

impl Site {
    /// Reads a world file; `file` is what messages call it.
    pub fn read(file: &str, text: &str) -> Result<Site, BadWorld> {
        let parsed: Result<WorldFile, _> = serde_saphyr::from_str(text);
        let world = parsed.map_err(|error| {
            BadWorld(vec![format!("{}: {}", place(file, error.location()), describe(&error))])
        })?;
        let Format::V1 = world.pharos;
        let mut reading = Reading { file, problems: Vec::new(), world: &world };
        let site = reading.site();
        if reading.problems.is_empty() { Ok(site) } else { Err(BadWorld(reading.problems)) }
    }
}

/// `world.yaml:5:3`, or the file alone where nothing more is known.
fn place(file: &str, at: Option<Location>) -> String {
    match at {
        Some(at) if at != Location::UNKNOWN => format!("{file}:{}:{}", at.line(), at.column()),
        _ => file.to_owned(),
    }
}

/// What is wrong with the form of a file, in one line.
fn describe(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    let accepted = |expected: &[&str]| match expected {
        [] => "accepted: none".to_owned(),
        some => format!("accepted: {}", some.join(", ")),
    };
    match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("there is no key `{field}`; {}", accepted(expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("`{variant}` is not known; {}", accepted(expected))
        }
        Error::SerdeMissingField { field, .. } => {
            format!("the key `{field}` is missing; accepted: `{field}` with a value")
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            format!("the key `{key}` is there twice; accepted: each key once")
        }
        Error::Message { msg, .. } => msg.to_string(),
        other => other.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

fn has_variable(text: &str, name: &str) -> bool {
    text.contains(&format!("${name}"))
}

/// Makes a site of a file; everything that is wrong is collected.
struct Reading<'f> {
    file: &'f str,
    problems: Vec<String>,
    world: &'f WorldFile,
}

impl Reading<'_> {
    fn site(&mut self) -> Site {
        let world = self.world;
        let places = world.datacenters.iter().map(|(name, place)| {
            let (Capacity(capacity), Share(line)) = (place.capacity, place.line);
            Place { name: name.clone(), capacity, line }
        });
        let links = world.links.iter().map(|(name, link)| {
            let (Capacity(capacity), Amount(load)) = (link.capacity, link.load);
            Link { name: name.clone(), capacity, load }
        });
        Site {
            name: world.world.clone(),
            scrape: world.scrape.0,
            noise: world.noise.0,
            latency: world.latency.0,
            downtime: world.downtime.0,
            datacenters: places.collect(),
            services: world.services.iter().map(|(name, own)| self.service(name, own)).collect(),
            stores: world.stores.iter().map(|(name, own)| self.store(name, own)).collect(),
            links: links.collect(),
            knobs: world.knobs.iter().filter_map(|(name, of)| self.knob(name, of)).collect(),
            metrics: world
                .metrics
                .iter()
                .filter_map(|(name, own)| self.metric(name, own))
                .collect(),
        }
    }

    fn knob(&mut self, pattern: &str, of: &Spanned<String>) -> Option<KnobName> {
        let (at, path) = (of.referenced, format!("knobs.{pattern}"));
        let of = self.one_of(&path, &of.value, at, &KnobOf::NAMES)?;
        let pattern = pattern.to_owned();
        self.check_variables(&path, at, &[&pattern], &[of.owner(), "dc"], &[]);
        if !pattern.contains(':') {
            self.problem(at, format!("{path} has no driver; accepted: `driver:name`"));
        }
        Some(KnobName { pattern, of })
    }

    fn metric(&mut self, name: &str, own: &Spanned<MetricFile>) -> Option<Metric> {
        let (at, path, own) = (own.referenced, format!("metrics.{name}"), &own.value);
        let of = self.one_of(&format!("{path}.of"), &own.of, at, &Measure::NAMES)?;
        let texts: Vec<&String> = own.labels.values().collect();
        let (must, may) = of.variables();
        self.check_variables(&format!("{path}.labels"), at, &texts, must, may);
        let labels = own.labels.iter().map(|(label, value)| (label.clone(), value.clone()));
        Some(Metric { name: name.to_owned(), of, labels: labels.collect() })
    }

    fn one_of<T: Copy>(
        &mut self,
        path: &str,
        name: &str,
        at: Location,
        known: &[(&str, T)],
    ) -> Option<T> {
        let found = known.iter().find(|(own, _)| *own == name).map(|(_, of)| *of);
        if found.is_none() {
            let names: Vec<&str> = known.iter().map(|(own, _)| *own).collect();
            self.problem(at, format!("{path} is `{name}`; accepted: {}", names.join(", ")));
        }
        found
    }

    /// Whether texts have the variables that they must, and no others.
    fn check_variables(
        &mut self,
        path: &str,
        at: Location,
        texts: &[&String],
        must: &[&str],
        may: &[&str],
    ) {
        for name in must.iter().filter(|name| !texts.iter().any(|text| has_variable(text, name))) {
            self.problem(at, format!("{path} lacks `${name}`; accepted: texts with `${name}`"));
        }
        for text in texts {
            for found in text.split('$').skip(1) {
                let name = found.split(|letter: char| !letter.is_ascii_lowercase()).next();
                let name = name.unwrap_or_default();
                if !must.contains(&name) && !may.contains(&name) {
                    let known: Vec<String> =
                        must.iter().chain(may).map(|name| format!("`${name}`")).collect();
                    let known = known.join(", ");
                    self.problem(at, format!("{path} has no `${name}`; accepted: {known}"));
                }
            }
        }
    }

    fn service(&mut self, name: &str, own: &Spanned<ServiceFile>) -> Service {
        let (world, at, own) = (self.world, own.referenced, &own.value);
        let path = format!("services.{name}");
        let weights = self.by_datacenter(&format!("{path}.weights"), &own.weights);
        if own.sessions.is_some() == (own.demand.0 > 0.0) {
            self.problem(at, format!("{path} needs `demand` or `sessions`; accepted: one of them"));
        }
        let cache = own.cache.as_ref().map(|cache| Cache {
            cold_cost: cache.cold_cost.0,
            warms_in: cache.warms_in.0,
            cools_in: cache.cools_in.0,
        });
        let sessions = own.sessions.as_ref().map(|sessions| Sessions {
            count: sessions.count.0,
            half_life: sessions.half_life.0,
            cost: sessions.cost.0,
            setup_cost: sessions.setup_cost.0,
        });
        Service {
            name: name.to_owned(),
            user_facing: own.user_facing,
            demand: own.demand.0,
            cost: own.cost.0,
            weights: weights.into_iter().map(|weight| weight.map_or(0.0, |own| own.0)).collect(),
            propagation: own.propagation.0,
            cache,
            sessions,
            calls: self.find_all(&format!("{path}.calls"), &own.calls, &world.services),
            reads: self.find_all(&format!("{path}.reads"), &own.reads, &world.stores),
            uses: self.uses(&path, own),
        }
    }

    fn uses(&mut self, path: &str, own: &ServiceFile) -> Vec<(usize, f64)> {
        let path = format!("{path}.uses");
        let used = own.uses.iter().filter_map(|(name, amount)| {
            let link = self.find(&path, name, amount.referenced, &self.world.links)?;
            Some((link, amount.value.0))
        });
        used.collect()
    }

    fn store(&mut self, name: &str, own: &Spanned<StoreFile>) -> Store {
        let (at, own) = (own.referenced, &own.value);
        let path = format!("stores.{name}");
        let all: f64 = own.primaries.values().map(|share| share.value.0).sum();
        if (all - 1.0).abs() > 0.011 {
            self.problem(
                at,
                format!(
                    "{path}.primaries are {all} together; accepted: shares that are 1 together"
                ),
            );
        }
        let primaries = self.by_datacenter(&format!("{path}.primaries"), &own.primaries);
        let link = own.link.as_ref();
        Store {
            name: name.to_owned(),
            primaries: primaries.into_iter().map(|share| share.map(|own| own.0)).collect(),
            load: own.load.0,
            promotes: 1.0 / own.promotes_in.0.as_secs_f64().max(1.0),
            writes: own.writes.0,
            catch_up: own.catch_up.0,
            link: link.and_then(|link| {
                let path = format!("{path}.link");
                self.find(&path, &link.value, link.referenced, &self.world.links)
            }),
            stale_after: own.stale_after.0,
        }
    }

    fn by_datacenter<T: Copy>(
        &mut self,
        path: &str,
        of: &BTreeMap<String, Spanned<T>>,
    ) -> Vec<Option<T>> {
        for (name, own) in of {
            self.find(path, name, own.referenced, &self.world.datacenters);
        }
        self.world.datacenters.keys().map(|name| of.get(name).map(|own| own.value)).collect()
    }

    fn find_all<T>(
        &mut self,
        path: &str,
        names: &[Spanned<String>],
        known: &BTreeMap<String, T>,
    ) -> Vec<usize> {
        names
            .iter()
            .filter_map(|name| self.find(path, &name.value, name.referenced, known))
            .collect()
    }

    /// Where a name stands among those that there are.
    fn find<T>(
        &mut self,
        path: &str,
        name: &str,
        at: Location,
        known: &BTreeMap<String, T>,
    ) -> Option<usize> {
        let found = known.keys().position(|own| own == name);
        if found.is_none() {
            let accepted = match known.is_empty() {
                true => "none, as there is none".to_owned(),
                false => known.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            };
            let what = format!("{path} names `{name}`, which there is not; accepted: {accepted}");
            self.problem(at, what);
        }
        found
    }

    fn problem(&mut self, at: Location, what: String) {
        self.problems.push(format!("{}: {what}", place(self.file, Some(at))));
    }
}

#[cfg(test)]
mod tests;
