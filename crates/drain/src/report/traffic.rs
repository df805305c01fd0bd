//! The load of each datacenter over time: from the values of the traffic knobs,
//! as the run wrote and found them, and the loads of the services. Weights are
//! relative, so what leaves one datacenter is what the others get.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::fleet::Fleet;
use crate::plan::{Knob, Plan, Position, ServiceTraffic};
use crate::time::Time;
use crate::value::Value;

/// Points of a curve, at the most: a run of many steps has more than a picture
/// shows.
const POINTS_MAX: usize = 1000;

/// The load of one datacenter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficReport {
    pub datacenter: String,
    pub capacity: f64,
    /// What may be used of it.
    pub usable: f64,
    /// Each until the next.
    pub points: Vec<(Time, f64)>,
}

impl TrafficReport {
    /// The share of the capacity that is used at the end.
    pub fn after(&self) -> f64 {
        let last = self.points.last().map_or(0.0, |(_, load)| *load);
        if self.capacity > 0.0 { last / self.capacity } else { 0.0 }
    }
}

/// The curves of all datacenters; none where no service states a load. `moves`
/// are the values of each knob, in the order of time.
pub(super) fn of(plan: &Plan, moves: &[Vec<(Time, Value)>], opened: Time) -> Vec<TrafficReport> {
    if plan.traffic.iter().all(|own| own.load() <= 0.0) {
        return Vec::new();
    }
    let known = plan.traffic.iter().flat_map(|own| &own.datacenters).flat_map(|own| &own.knobs);
    let known: BTreeSet<&Knob> = known.map(|own| &own.knob).collect();
    let moved = plan.knobs.iter().zip(moves);
    let moves: Moves<'_> = moved
        .filter(|(knob, moves)| known.contains(knob) && !moves.is_empty())
        .map(|(knob, moves)| (knob, &moves[..]))
        .collect();
    let mut times: Vec<Time> = vec![opened];
    times.extend(moves.values().flat_map(|moves| moves.iter().map(|(at, _)| *at)));
    times.sort();
    times.dedup();
    let every = times.len().div_ceil(POINTS_MAX).max(1);
    let last = times.len() - 1;
    let times = times.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
    let mut reports: Vec<TrafficReport> = (plan.datacenters.iter())
        .map(|own| TrafficReport {
            datacenter: own.name.clone(),
            capacity: own.capacity,
            usable: own.capacity * own.line,
            points: Vec::new(),
        })
        .collect();
    for (_, time) in times {
        let loads = loads_at(plan, &moves, *time);
        for (report, load) in reports.iter_mut().zip(loads) {
            report.points.push((*time, load));
        }
    }
    reports
}

/// The values of each traffic knob that the run set, in the order of time.
type Moves<'a> = BTreeMap<&'a Knob, &'a [(Time, Value)]>;

/// The load of each datacenter at a time.
fn loads_at(plan: &Plan, moves: &Moves<'_>, time: Time) -> Vec<f64> {
    let before = match plan.fleet.is_of(plan) {
        true => plan.fleet.clone(),
        false => Fleet::unmoved(plan),
    };
    let mut loads = vec![0.0; plan.datacenters.len()];
    for (own, known) in plan.traffic.iter().zip(&before.multipliers) {
        let open: Vec<f64> = (0..loads.len())
            .map(|at| open_at(own, at, moves, time).or(known[at]).unwrap_or(1.0))
            .collect();
        let draws: Vec<f64> =
            own.datacenters.iter().zip(&open).map(|(own, open)| own.load * open).collect();
        let all: f64 = draws.iter().sum();
        if all > 0.0 {
            for (load, draw) in loads.iter_mut().zip(draws) {
                *load += own.load() * draw / all;
            }
        }
    }
    loads
}

/// What a datacenter is open to for a service, as far as the run set its knobs.
fn open_at(own: &ServiceTraffic, datacenter: usize, moves: &Moves<'_>, time: Time) -> Option<f64> {
    let knobs = &own.datacenters[datacenter].knobs;
    if !knobs.iter().any(|own| moves.contains_key(&own.knob)) {
        return None;
    }
    let position = |knob: &Knob| {
        let moves = moves.get(knob)?;
        let first = moves.first().map(|(_, value)| value.clone())?;
        let next = moves.partition_point(|(at, _)| *at <= time);
        let value = moves[..next].last().map_or_else(|| first.clone(), |(_, own)| own.clone());
        let recorded = knobs.iter().find(|own| own.knob == *knob)?.original.clone();
        Some(Position { value, original: recorded.or(Some(first)), is_out: false })
    };
    own.multiplier(datacenter, position, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Direction;
    use crate::runbook::Library;

    const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {east: 60, west: 30, south: 30}
health: {errors: {query: 'errors{service="web"}', below: 0.01, no_data: block}}
drain:
  shift: {template: TrafficShift, with: {knob: "edge:web/$dc", to: 0%}}
restore:
  shift: {template: TrafficShift, with: {knob: "edge:web/$dc", to: original}}
"#;
    const EAST: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 100}, west: {capacity: 100}, south: {capacity: 200}}
services: [web]
";

    #[test]
    fn what_leaves_one_datacenter_is_what_the_others_get() {
        let files = [("web.yaml", WEB), ("east.yaml", EAST)];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let library = Library::new(files.to_vec());
        let none = BTreeMap::new();
        let plan = library.plan("east", Direction::Drain, &none, &BTreeMap::new()).unwrap();
        let at = plan.knobs.iter().position(|knob| knob.name == "web/east").unwrap();
        let mut moves = vec![Vec::new(); plan.knobs.len()];
        let steps = [(0, 0.8), (10, 0.4), (20, 0.0)];
        moves[at] = steps.map(|(at, value)| (Time(at), Value::Number(value))).to_vec();
        let reports = of(&plan, &moves, Time(0));
        let loads: Vec<Vec<f64>> = reports
            .iter()
            .map(|own| own.points.iter().map(|(_, load)| load.round()).collect())
            .collect();
        assert_eq!(loads, [[60.0, 40.0, 0.0], [30.0, 40.0, 60.0], [30.0, 40.0, 60.0]]);
        let after: Vec<f64> = reports.iter().map(TrafficReport::after).collect();
        assert_eq!(after, [0.0, 0.6, 0.3]);
        // Without a move all is as declared.
        let still = of(&plan, &vec![Vec::new(); plan.knobs.len()], Time(0));
        assert_eq!(still[0].points, [(Time(0), 60.0)]);
    }
}
