//! The watch between runs. Where a drain left its knobs is looked at now and
//! then, until a restore has brought them back. What is found elsewhere, since a
//! load balancer was reloaded or somebody turned it, is logged, shown in the
//! status of the last run and counted in `/metrics`. It is not put back: that
//! would move traffic without a plan, a pace and anybody who asked. Another
//! `drain` does that.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use drain::engine::Run;
use drain::{Knob, Value};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use store::{Filter, RunId};
use tokio::time::sleep;

use super::ledger::direction_name;
use super::survey::LOOKS_MAX;
use super::{Direction, Drains, Refused};

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Runs of a datacenter that are looked through for its last drain.
const RUNS_MAX: u32 = 50;

/// A knob that is not where the last run to turn it left it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Strayed {
    pub knob: String,
    pub left: Value,
    pub found: Value,
    /// The run that left it there.
    pub run: u64,
}

/// What strayed in a datacenter since its newest run.
#[derive(Clone, Debug, PartialEq)]
pub struct Strays {
    newest: RunId,
    knobs: Vec<Strayed>,
}

/// Where knobs of a datacenter were left.
#[derive(Debug)]
pub(super) struct Left {
    newest: RunId,
    knobs: Vec<(Knob, Value, RunId)>,
}

pub(super) type LeftBy = BTreeMap<String, Left>;

impl Drains {
    pub(super) async fn keep_vigil(self: Arc<Self>) {
        let mut stop = self.stop.subscribe();
        loop {
            if let Err(refused) = self.look_between_runs().await {
                tracing::warn!("what drains left cannot be looked at: {refused}");
            }
            tokio::select! {
                _ = stop.changed() => return,
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Looks once at every datacenter that is drained, or in part, and that no
    /// run is about.
    pub(super) async fn look_between_runs(&self) -> Result<(), Refused> {
        // One at a time: an older look must not replace what a newer one found.
        let mut left = self.left.lock().await;
        let mut found = BTreeMap::new();
        for drained in self.world.store.drained().await? {
            let datacenter = drained.datacenter;
            if drained.share <= 0.0 || !self.learn_left(&datacenter, &mut left).await? {
                left.remove(&datacenter);
                continue;
            }
            let Some(own) = left.get(&datacenter) else { continue };
            let knobs = self.strayed(own).await;
            // A run that began meanwhile turns them itself.
            if self.newest_closed(&datacenter).await? == Some(own.newest) {
                found.insert(datacenter, Strays { newest: own.newest, knobs });
            }
        }
        self.tell(&found);
        *self.strays() = found;
        Ok(())
    }

    /// The newest run about a datacenter, unless it goes on.
    async fn newest_closed(&self, datacenter: &str) -> Result<Option<RunId>, Refused> {
        let of = Filter { datacenter: Some(datacenter), ..Filter::default() };
        let newest = self.world.store.runs(of, 1).await?.pop();
        Ok(newest.filter(|run| run.outcome.is_some()).map(|run| run.id))
    }

    /// Finds out where the last drain and what came after it left knobs, if that
    /// is not known; false if a run goes on.
    async fn learn_left(&self, datacenter: &str, left: &mut LeftBy) -> Result<bool, Refused> {
        let Some(newest) = self.newest_closed(datacenter).await? else { return Ok(false) };
        if left.get(datacenter).is_some_and(|known| known.newest == newest) {
            return Ok(true);
        }
        let of = Filter { datacenter: Some(datacenter), ..Filter::default() };
        let mut known: BTreeMap<String, (Knob, Value, RunId)> = BTreeMap::new();
        for run in self.world.store.runs(of, RUNS_MAX).await? {
            let (plan, records) = self.records(run.id).await?;
            let ended = Run::resume(plan.into(), &records);
            let ended = ended.map_err(|error| Refused::Failed(error.to_string()))?;
            for (knob, left) in ended.plan().knobs.iter().zip(&ended.state().knobs) {
                let Some(left) = left else { continue };
                let own = || (knob.clone(), left.value.clone(), run.id);
                known.entry(knob.to_string()).or_insert_with(own);
            }
            if run.direction == direction_name(Direction::Drain) {
                break;
            }
        }
        left.insert(datacenter.into(), Left { newest, knobs: known.into_values().collect() });
        Ok(true)
    }

    /// What cannot be read now is not known to be elsewhere.
    async fn strayed(&self, left: &Left) -> Vec<Strayed> {
        let drivers = &self.world.drivers;
        let look = async |(knob, value, run): &(Knob, Value, RunId)| {
            let found = drivers.read(knob).await.ok().filter(|found| !value.is_met_by(found))?;
            Some(Strayed { knob: knob.to_string(), left: value.clone(), found, run: run.0 })
        };
        let looks = stream::iter(&left.knobs).map(look).buffered(LOOKS_MAX);
        looks.filter_map(async |strayed| strayed).collect().await
    }

    /// Logs what was not so before.
    fn tell(&self, found: &BTreeMap<String, Strays>) {
        let before = self.strays();
        for (datacenter, strays) in found {
            let known = before.get(datacenter).map_or(&[][..], |own| &own.knobs);
            for Strayed { knob, left, found, run } in
                strays.knobs.iter().filter(|own| !known.contains(own))
            {
                tracing::warn!(
                    datacenter,
                    "{knob} is at {found}, but run {run} left it at {left}: it was turned, or what \
                     it belongs to was restarted; `pharos drain {datacenter}` turns it again"
                );
            }
            let is_back = |own: &&Strayed| strays.knobs.iter().all(|still| still.knob != own.knob);
            for own in known.iter().filter(is_back) {
                tracing::info!(datacenter, "{} is where it was left again", own.knob);
            }
        }
    }

    fn strays(&self) -> MutexGuard<'_, BTreeMap<String, Strays>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What strayed since a run, if it is the newest of its datacenter.
    pub(super) fn strayed_since(&self, run: RunId, datacenter: &str) -> Vec<Strayed> {
        let strays = self.strays();
        let own = strays.get(datacenter).filter(|own| own.newest == run);
        own.map_or(Vec::new(), |own| own.knobs.clone())
    }

    /// How many knobs strayed, by datacenter.
    pub(super) fn strayed_counts(&self) -> Vec<(String, usize)> {
        let strays = self.strays();
        strays.iter().map(|(name, own)| (name.clone(), own.knobs.len())).collect()
    }
}
