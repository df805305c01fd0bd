//! What other runs have drained: no run may take more than the limits of its
//! evacuation leave, and none knows of the others but through the store.

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
