//! What can be measured in a world: names with labels, as PromQL selects them.

use super::World;

/// One thing that is measured. The numbers are places in
/// [`Site`](super::Site); `None` is all datacenters together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// `errors{service,dc}`: the share of requests that fail.
    Errors(usize, Option<usize>),
    /// `traffic{service,dc}`: requests a second, or sessions.
    Traffic(usize, usize),
    /// `sessions{service,dc}`.
    Sessions(usize, usize),
    /// `utilisation{dc}`.
    Utilisation(usize),
    /// `backlog{store,dc}`; without `dc`, the longest.
    Backlog(usize, Option<usize>),
    /// `lag{store,dc}`: the backlog in seconds.
    Lag(usize, Option<usize>),
    /// `primaries{store,dc}`: the share of shards that it leads.
    Primaries(usize, usize),
    /// `link{link}`: what is wanted of it, as a share of what it bears.
    Link(usize),
}

const NAMES: &str = "errors, traffic, sessions, utilisation, backlog, lag, primaries, link";

impl World {
    /// The gauge that a query of a plan means: `errors{service="web",dc="a"}`.
    pub fn gauge(&self, query: &str) -> Result<Gauge, String> {
        let wrong = |what: &str| format!("query {query}: {what}");
        let (name, labels) = parse(query).ok_or_else(|| {
            wrong("a world knows selectors alone; accepted: name{label=\"value\"}")
        })?;
        let label = |key: &str| labels.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        let find = |key: &str, find: &dyn Fn(&str) -> Option<usize>| {
            let value =
                label(key).ok_or_else(|| wrong(&format!("the label `{key}` is missing")))?;
            find(value).ok_or_else(|| wrong(&format!("the world has no {key} `{value}`")))
        };
        let service = || find("service", &|name| self.site.service(name));
        let store = || find("store", &|name| self.site.store(name));
        let place = || find("dc", &|name| self.site.datacenter(name));
        let any_place = || label("dc").map(|_| place()).transpose();
        let known: &[&str] = match name {
            "errors" | "traffic" | "sessions" => &["service", "dc"],
            "utilisation" => &["dc"],
            "backlog" | "lag" | "primaries" => &["store", "dc"],
            "link" => &["link"],
            _ => return Err(wrong(&format!("the world has no such metric; accepted: {NAMES}"))),
        };
        if let Some((other, _)) = labels.iter().find(|(own, _)| !known.contains(own)) {
            return Err(wrong(&format!("no label `{other}`; accepted: {}", known.join(", "))));
        }
        Ok(match name {
            "errors" => Gauge::Errors(service()?, any_place()?),
            "traffic" => Gauge::Traffic(service()?, place()?),
            "sessions" => Gauge::Sessions(service()?, place()?),
            "utilisation" => Gauge::Utilisation(place()?),
            "backlog" => Gauge::Backlog(store()?, any_place()?),
            "lag" => Gauge::Lag(store()?, any_place()?),
            "primaries" => Gauge::Primaries(store()?, place()?),
            _ => Gauge::Link(find("link", &|name| self.site.link(name))?),
        })
    }

    /// What is so, without noise.
    pub fn measure(&self, gauge: &Gauge) -> f64 {
        match gauge {
            Gauge::Errors(service, Some(place)) => self.flows[*service][*place].errors,
            Gauge::Errors(service, None) => {
                let (all, failed) = self.requests(*service);
                if all > 0.0 { failed / all } else { 0.0 }
            }
            Gauge::Traffic(service, place) | Gauge::Sessions(service, place) => {
                self.flows[*service][*place].traffic
            }
            Gauge::Utilisation(place) => self.utilisation(*place),
            Gauge::Backlog(store, place) => self.worst(*store, *place, |own| own.backlog),
            Gauge::Lag(store, place) => {
                self.worst(*store, *place, |own| own.lag_secs(&self.site.stores[*store]))
            }
            Gauge::Primaries(store, place) => {
                self.replicas[*store][*place].as_ref().map_or(0.0, |own| own.primaries)
            }
            Gauge::Link(link) => self.links[*link].wanted / self.site.links[*link].capacity,
        }
    }

    fn worst(
        &self,
        store: usize,
        place: Option<usize>,
        of: impl Fn(&super::Replica) -> f64,
    ) -> f64 {
        let replicas = self.replicas[store].iter().enumerate();
        let asked = replicas.filter(|(at, _)| place.is_none_or(|place| place == *at));
        asked.filter_map(|(_, replica)| replica.as_ref().map(&of)).fold(0.0, f64::max)
    }
}

/// Takes `name{label="value",…}` apart.
fn parse(query: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let (name, rest) = query.trim().split_once('{')?;
    let labels = rest.strip_suffix('}')?.split(',').map(str::trim).filter(|part| !part.is_empty());
    Some((name.trim(), labels.map(pair).collect::<Option<_>>()?))
}

fn pair(part: &str) -> Option<(&str, &str)> {
    let (key, value) = part.split_once('=')?;
    Some((key.trim(), value.trim().strip_prefix('"')?.strip_suffix('"')?))
}
