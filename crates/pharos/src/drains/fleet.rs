//! What other runs have drained: no run may take more than the limits of its
//! evacuation leave, and none knows of the others but through the store.

use std::collections::BTreeMap;

use drain::{Direction, Plan};
use store::{Filter, RUNS_LIMIT_MAX, Result, RunId, Store};

use super::ledger::direction_name;

/// How much of each datacenter of a plan others have drained. A drain that goes
/// on counts as if it were through; of two that began together the earlier one
/// counts for the later, so that one of them goes on.
pub async fn drained(store: &Store, plan: &Plan, own: Option<RunId>) -> Result<Vec<f64>> {
    let shares = store.drained().await?;
    let drains = Filter {
        ended: Some(false),
        direction: Some(direction_name(Direction::Drain)),
        before: own,
        ..Filter::default()
    };
    let under_way = store.runs(drains, RUNS_LIMIT_MAX).await?;
    let share_of = |name: &str| {
        // Its own is this run's to say.
        if name == plan.datacenter {
            return 0.0;
        }
        if under_way.iter().any(|run| run.datacenter == name) {
            return 1.0;
        }
        shares.iter().find(|share| share.datacenter == name).map_or(0.0, |share| share.share)
    };
    Ok(plan.datacenters.iter().map(|own| share_of(&own.name)).collect())
}

/// The newest run of each other datacenter of a plan: whoever is held by a limit
/// is told which run used it up.
pub async fn newest_runs(store: &Store, plan: &Plan) -> Result<BTreeMap<String, RunId>> {
    let mut newest = BTreeMap::new();
    for own in plan.datacenters.iter().filter(|own| own.name != plan.datacenter) {
        let of = Filter { datacenter: Some(&own.name), ..Filter::default() };
        if let Some(run) = store.runs(of, 1).await?.pop() {
            newest.insert(own.name.clone(), run.id);
        }
    }
    Ok(newest)
}
