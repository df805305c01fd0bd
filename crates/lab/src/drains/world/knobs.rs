//! What can be turned in a world, by whom, and once only.

use drain::engine::EffectId;
use drain::{Act, Knob, Value};

use super::{KnobOf, World};

/// A knob of a world. The numbers are places in [`Site`](super::Site): of a
/// service or store, and of a datacenter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dial {
    /// `weight:service/dc`: the weight of a datacenter for new requests.
    Weight(usize, usize),
    /// `sessions:service/dc`: the share of its sessions that may stay.
    Sessions(usize, usize),
    /// `count:service/dc`: how many sessions there are; read only.
    Count(usize, usize),
    /// `job:service/dc`: `running` or `stopped`.
    Job(usize, usize),
    /// `replication:store/dc`: 1 or `on`, 0 or `off`.
    Replication(usize, usize),
    /// `rate:store/dc`: how fast a replica may catch up.
    Rate(usize, usize),
    /// `primary:store/dc`: the share of shards that it leads.
    Primary(usize, usize),
    /// `config:anything`.
    Setting(String),
}

/// Which effect of which run turns a knob. Older ones come too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    pub run: u64,
    pub effect: EffectId,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Applied,
    /// The same effect was there before.
    Repeated,
    /// A newer effect was there before.
    Fenced,
    Refused(String),
}

const KINDS: &str = "weight:, sessions:, count:, job:, replication:, rate:, primary:, config:";

impl World {
    /// The dial that a plan calls so.
    pub fn dial(&self, knob: &Knob) -> Result<Dial, String> {
        if knob.driver == "config" {
            return Ok(Dial::Setting(knob.name.clone()));
        }
        let renamed = self.renamed(knob);
        let knob = renamed.as_ref().unwrap_or(knob);
        let unknown = |what: &str| format!("{knob}: {what}");
        if !KnobOf::NAMES.iter().any(|(name, _)| *name == knob.driver) {
            let own = self.site.knobs.iter().map(|name| format!(", {}", name.pattern));
            let accepted = format!("{KINDS}{}", own.collect::<String>());
            return Err(unknown(&format!("no such kind of knob; accepted: {accepted}")));
        }
        let (owner, place) = knob
            .name
            .split_once('/')
            .ok_or_else(|| unknown("no `/`; accepted: owner/datacenter"))?;
        let place = self
            .site
            .datacenter(place)
            .ok_or_else(|| unknown("the world has no such datacenter"))?;
        let service =
            || self.site.service(owner).ok_or_else(|| unknown("the world has no such service"));
        let store = || {
            let at =
                self.site.store(owner).ok_or_else(|| unknown("the world has no such store"))?;
            let has_replica = self.replicas[at][place].is_some();
            has_replica.then_some(at).ok_or_else(|| unknown("the store has no replica there"))
        };
        Ok(match knob.driver.as_str() {
            "weight" => Dial::Weight(service()?, place),
            "sessions" => Dial::Sessions(service()?, place),
            "count" => Dial::Count(service()?, place),
            "job" => Dial::Job(service()?, place),
            "replication" => Dial::Replication(store()?, place),
            "rate" => Dial::Rate(store()?, place),
            _ => Dial::Primary(store()?, place),
        })
    }

    /// The world's own name of a knob that production calls so.
    fn renamed(&self, knob: &Knob) -> Option<Knob> {
        let text = knob.to_string();
        for name in &self.site.knobs {
            let owners: Vec<&str> = match name.of.owner() {
                "store" => self.site.stores.iter().map(|own| own.name.as_str()).collect(),
                _ => self.site.services.iter().map(|own| own.name.as_str()).collect(),
            };
            for owner in owners {
                for place in &self.site.datacenters {
                    let variable = format!("${}", name.of.owner());
                    let filled = name.pattern.replace(&variable, owner).replace("$dc", &place.name);
                    if filled == text {
                        let kind = KnobOf::NAMES.iter().find(|(_, of)| *of == name.of)?.0;
                        let own = format!("{owner}/{}", place.name);
                        return Some(Knob { driver: kind.to_owned(), name: own });
                    }
                }
            }
        }
        None
    }

    /// Where a knob stands.
    pub fn read(&self, dial: &Dial) -> Value {
        let replica = |store: usize, place: usize| self.replicas[store][place].as_ref();
        match dial {
            Dial::Weight(service, place) => Value::Number(self.flows[*service][*place].weight.to),
            Dial::Sessions(service, place) => Value::Number(self.flows[*service][*place].allowance),
            Dial::Count(service, place) => {
                Value::Number(self.flows[*service][*place].traffic.round())
            }
            Dial::Job(service, place) => {
                let is_running = self.flows[*service][*place].is_running;
                Value::Text(if is_running { "running" } else { "stopped" }.into())
            }
            Dial::Replication(store, place) => Value::Text(
                if replica(*store, *place).is_some_and(|own| own.is_on) { "on" } else { "off" }
                    .into(),
            ),
            Dial::Rate(store, place) => {
                Value::Number(replica(*store, *place).map_or(0.0, |own| own.rate))
            }
            Dial::Primary(store, place) => {
                let own = replica(*store, *place);
                Value::Number(own.map_or(0.0, |own| own.wanted.unwrap_or(own.primaries)))
            }
            Dial::Setting(name) => {
                self.settings.get(name).cloned().unwrap_or_else(|| Value::Text(String::new()))
            }
        }
    }

    /// Turns a knob, unless the same or a newer effect did so before.
    pub fn write(&mut self, dial: &Dial, value: &Value, fence: Fence) -> Written {
        if let Some(last) = self.fences.get(dial) {
            match fence.cmp(last) {
                std::cmp::Ordering::Less => return Written::Fenced,
                std::cmp::Ordering::Equal => return Written::Repeated,
                std::cmp::Ordering::Greater => {}
            }
        }
        match self.turn(dial, value) {
            Ok(()) => {
                self.fences.insert(dial.clone(), fence);
                Written::Applied
            }
            Err(why) => Written::Refused(why),
        }
    }

    /// Turns a knob, whoever says so.
    pub fn turn(&mut self, dial: &Dial, value: &Value) -> Result<(), String> {
        let now = self.now;
        match dial {
            Dial::Weight(service, place) => {
                let to = number(value, 0.0)?;
                let takes = self.site.services[*service].propagation;
                let flow = &mut self.flows[*service][*place];
                // Who is let in again may stay.
                if to > flow.weight.to {
                    flow.allowance = 1.0;
                }
                flow.weight.go(now, to, takes);
            }
            Dial::Sessions(service, place) => {
                let to = number(value, 0.0)?.min(1.0);
                let flow = &mut self.flows[*service][*place];
                if flow.allowance >= 1.0 {
                    flow.allowance_of = flow.traffic;
                }
                flow.allowance = to;
            }
            Dial::Count(..) => return Err("it can be read, not set".into()),
            Dial::Job(service, place) => {
                self.flows[*service][*place].is_running = switch(value, "running", "stopped")?;
            }
            Dial::Replication(store, place) => {
                let is_on = switch(value, "on", "off")?;
                if let Some(replica) = &mut self.replicas[*store][*place] {
                    replica.is_on = is_on;
                }
            }
            Dial::Rate(store, place) => {
                let rate = number(value, 0.0)?;
                if let Some(replica) = &mut self.replicas[*store][*place] {
                    replica.rate = rate;
                }
            }
            Dial::Primary(store, place) => {
                let share = named_number(value)?.min(1.0);
                if let Some(replica) = &mut self.replicas[*store][*place] {
                    replica.wanted = Some(share);
                }
            }
            Dial::Setting(name) => {
                self.settings.insert(name.clone(), value.clone());
            }
        }
        Ok(())
    }

    /// Does something once: `job` starts, stops and restarts jobs; what others
    /// do has no consequence here.
    pub fn act(&mut self, act: &Act, fence: Fence) -> Written {
        if self.acts.contains(&fence) {
            return Written::Repeated;
        }
        if act.driver == "job" {
            let to = if act.action == "stop" { "stopped" } else { "running" };
            let jobs = act.arguments.get("jobs").map_or("", String::as_str);
            for job in jobs.split(',').map(str::trim).filter(|job| !job.is_empty()) {
                let knob = Knob { driver: "job".into(), name: job.into() };
                let turned =
                    self.dial(&knob).and_then(|dial| self.turn(&dial, &Value::Text(to.into())));
                if let Err(why) = turned {
                    return Written::Refused(why);
                }
            }
        }
        self.acts.insert(fence);
        Written::Applied
    }
}

/// A number, or one that is the name of what is promoted.
fn named_number(value: &Value) -> Result<f64, String> {
    let named = match value {
        Value::Text(text) => text.parse().ok().map(Value::Number),
        Value::Number(_) => None,
    };
    number(named.as_ref().unwrap_or(value), 0.0)
}

fn number(value: &Value, least: f64) -> Result<f64, String> {
    let number = value.number().filter(|number| number.is_finite() && *number >= least);
    number.ok_or_else(|| format!("{value} is no value for it; accepted: numbers from {least} on"))
}

fn switch(value: &Value, on: &str, off: &str) -> Result<bool, String> {
    match value {
        Value::Text(text) if text == on => Ok(true),
        Value::Text(text) if text == off => Ok(false),
        Value::Number(1.0) => Ok(true),
        Value::Number(0.0) => Ok(false),
        _ => Err(format!("{value} is no value for it; accepted: {on}, {off}")),
    }
}
