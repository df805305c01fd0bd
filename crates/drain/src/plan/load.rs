//! Where the load of services is now, and where it will be: from the weights of
//! all datacenters, which are relative to each other. No load appears or
//! disappears; what no datacenter serves is a line of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Direction, Plan, ServiceTraffic, StageKind};
use crate::value::Value;

/// The largest load of a service in a datacenter. A larger one is no load that was
/// declared or measured right, and sums of it would not add up.
pub const LOAD_MAX: f64 = 1e15;

/// Sums of fractions are never exact.
const ROUNDING: f64 = 1e-9;

/// A service that no datacenter serves, and how much load that is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unserved {
    pub service: String,
    pub before: f64,
    pub after: f64,
}

/// The load of all services, before a plan and after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    /// One for each datacenter of the plan.
    pub before: Vec<f64>,
    pub after: Vec<f64>,
    /// Services that are served nowhere, before or after.
    pub unserved: Vec<Unserved>,
}

impl Loads {
    pub fn of(plan: &Plan) -> Loads {
        let count = plan.datacenters.len();
        let mut loads =
            Loads { before: vec![0.0; count], after: vec![0.0; count], unserved: Vec::new() };
        let fleet = match plan.fleet.is_of(plan) {
            true => plan.fleet.clone(),
            false => crate::fleet::Fleet::unmoved(plan),
        };
        let goals = goals(plan);
        for (own, row) in plan.traffic.iter().zip(&fleet.multipliers) {
            // What is unknown is taken to serve: plans show it, limits do not go by it.
            let now: Vec<f64> = row.iter().map(|share| share.unwrap_or(1.0)).collect();
            let then = after(plan, own, &now, &goals);
            let (total, measured) = present(own, &now);
            let weights = weights(own, &now, total, measured.as_deref());
            let before = measured.or_else(|| spread(total, &weights, &now));
            let after = spread(total, &weights, &then);
            loads.add(own, total, before, after);
        }
        loads.check();
        loads
    }

    fn add(
        &mut self,
        own: &ServiceTraffic,
        total: f64,
        before: Option<Vec<f64>>,
        after: Option<Vec<f64>>,
    ) {
        if total > 0.0 && (before.is_none() || after.is_none()) {
            self.unserved.push(Unserved {
                service: own.service.clone(),
                before: if before.is_none() { total } else { 0.0 },
                after: if after.is_none() { total } else { 0.0 },
            });
        }
        let add = |sums: &mut Vec<f64>, loads: Option<Vec<f64>>| {
            let loads = loads.into_iter().flatten();
            sums.iter_mut().zip(loads).for_each(|(sum, load)| *sum += load);
        };
        add(&mut self.before, before);
        add(&mut self.after, after);
    }

    /// No load appears or disappears. A plan in which it does would be believed
    /// at 3 a.m.
    fn check(&self) {
        let sum = |loads: &[f64], unserved: fn(&Unserved) -> f64| {
            loads.iter().sum::<f64>() + self.unserved.iter().map(unserved).sum::<f64>()
        };
        let before = sum(&self.before, |own| own.before);
        let after = sum(&self.after, |own| own.after);
        assert!(
            (before - after).abs() <= before.abs().max(1.0) * 1e-6,
            "the load is {before} before and {after} after: {self:?}"
        );
    }
}

/// The values that a plan leaves knobs at.
fn goals(plan: &Plan) -> BTreeMap<&super::Knob, &Value> {
    let stages = plan.tasks.iter().flat_map(|task| &task.stages);
    let written = stages.filter_map(|stage| match &stage.kind {
        StageKind::Shift { knob, to } | StageKind::Set { knob, to, .. } => {
            Some((plan.knob(*knob), to.value()))
        }
        _ => None,
    });
    written.collect()
}

/// What each datacenter is open to after a plan.
fn after(
    plan: &Plan,
    own: &ServiceTraffic,
    now: &[f64],
    goals: &BTreeMap<&super::Knob, &Value>,
) -> Vec<f64> {
    let mut then = now.to_vec();
    let Some(at) = plan.own_index() else { return then };
    let knobs = &own.datacenters[at].knobs;
    then[at] = match plan.direction {
        Direction::Drain => 0.0,
        Direction::Restore if knobs.is_empty() => f64::from(own.is_in(at)),
        Direction::Restore => {
            let shares = knobs.iter().map(|own| match goals.get(&own.knob) {
                Some(goal) => own.multiplier(goal),
                None => now[at],
            });
            shares.fold(1.0, f64::min)
        }
    };
    then
}

/// The whole load of a service, and where it was measured to be: if that is
/// known of every datacenter that serves it.
fn present(own: &ServiceTraffic, now: &[f64]) -> (f64, Option<Vec<f64>>) {
    let measured = own.datacenters.iter().zip(now).map(|(own, share)| match own.measured {
        Some(load) if load.is_finite() && load >= 0.0 => Some(load),
        // Who serves nothing has no series.
        _ if *share <= 0.0 => Some(0.0),
        _ => None,
    });
    let measured: Option<Vec<f64>> = if own.datacenters.iter().any(|own| own.measured.is_some()) {
        measured.collect()
    } else {
        None
    };
    let total = measured.as_ref().map(|loads| loads.iter().sum::<f64>());
    match total {
        // Nothing measured is no traffic, or a total outage: then what is declared will be back.
        Some(total) if total > ROUNDING => (total, measured),
        _ => (own.load(), None),
    }
}

/// What each datacenter would draw if all were fully open, relative to each
/// other: what is declared, put right by what was measured.
fn weights(own: &ServiceTraffic, now: &[f64], total: f64, measured: Option<&[f64]>) -> Vec<f64> {
    let declared: Vec<f64> = match own.load() > 0.0 {
        true => own.datacenters.iter().map(|own| own.load).collect(),
        false => vec![1.0; own.datacenters.len()],
    };
    let Some(measured) = measured else { return declared };
    let is_seen = |at: usize| now[at] > 0.0 && measured[at] > total * 1e-6;
    let seen =
        |of: &dyn Fn(usize) -> f64| (0..now.len()).filter(|at| is_seen(*at)).map(of).sum::<f64>();
    let scale = seen(&|at| measured[at] / now[at]) / seen(&|at| declared[at]).max(ROUNDING);
    let weight = |at: usize| match is_seen(at) {
        true => measured[at] / now[at],
        false => declared[at] * scale,
    };
    (0..now.len()).map(weight).collect()
}

/// Divides a load by weights and what is open. `None` if nothing is open.
fn spread(total: f64, weights: &[f64], open: &[f64]) -> Option<Vec<f64>> {
    let draws: Vec<f64> = weights.iter().zip(open).map(|(weight, open)| weight * open).collect();
    let all: f64 = draws.iter().sum();
    if all > 0.0 {
        return Some(draws.iter().map(|own| total * own / all).collect());
    }
    // Only those are left that usually serve none of it.
    let all: f64 = open.iter().sum();
    (all > 0.0).then(|| open.iter().map(|own| total * own / all).collect())
}
