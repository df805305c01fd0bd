//! The load of each datacenter over time, from the values of knobs and the loads
//! that runbooks declare.

use serde::Serialize;

use crate::plan::Plan;
use crate::time::Time;
use crate::value::Value;

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

pub(super) fn of(_plan: &Plan, _moves: &[Vec<(Time, Value)>], _opened: Time) -> Vec<TrafficReport> {
    Vec::new()
}
