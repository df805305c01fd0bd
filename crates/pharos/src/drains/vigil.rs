//! The drift monitor between runs. The knobs of a drained datacenter are read
//! every few seconds, until a restore has put them back. One that has another
//! value, since a load balancer was reloaded or somebody changed it, is logged,
//! shown in the status of the last run and counted in `/metrics`.
//!
//! Where the evacuation says so (`keep_drained`), it is put back at once by a
//! short run of its own: recorded, audited, fenced and within the limits like
//! any other. Whoever keeps changing it wins after a few times, and is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use drain::engine::{Abort, Actor, DRIFT_FORGOTTEN_AFTER, DRIFTS_MAX, Mode, Phase};
use drain::{
    Exit, Expected, Goal, KeepDrained, Knob, KnobId, Millis, Next, Plan, Stage, StageId, StageKind,
    Task, TaskId, Time, Value,
};
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use store::{Filter, RUNS_LIMIT_MAX, RunId};
use tokio::time::{Instant, sleep, timeout};

use super::executor::Handle;
use super::fleet::{self, Kept, Left, Recorded};
use super::ledger::LeftFence;
use super::status::{FENCED_FOR_LONG, NeedKind, NeedsPerson};
use super::survey::{self, LOOK_TIME_MAX, LOOKS_MAX};
use super::{Direction, Drains, Refused, Verb, Wanted};

const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Who puts knobs back, in the audit log.
pub const KEEPER: &str = "keep_drained";
/// How long a run that puts knobs back may take to end when somebody begins
/// another one.
const GIVES_WAY_WITHIN: Duration = Duration::from_secs(10);
const GIVES_WAY_POLL: Duration = Duration::from_millis(20);
/// A run that puts knobs back is stuck after that long.
const PUT_BACK_TIMEOUT: Millis = Millis::from_secs(60);

/// A knob that has not the value that the last run to write it left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Strayed {
    pub knob: String,
    pub left: Value,
    pub found: Value,
    /// The run that left it there.
    pub run: u64,
    /// Why it is not put back.
    pub why: String,
    /// Somebody else keeps changing it.
    pub contested: bool,
}

/// What drifted in a datacenter since its newest run.
#[derive(Clone, Debug, PartialEq)]
pub struct Strays {
    newest: RunId,
    knobs: Vec<Strayed>,
    /// The share that is drained now.
    share: f64,
}

/// A fence that a run left closed, and that still is, or cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedFence {
    run: RunId,
    datacenter: String,
    knob: String,
    found: String,
    since: Time,
    /// The knob whose value says that just the fenced server is the primary: then the fence
    /// was left closed on purpose, and refuses all writes all the same.
    primary: Option<String>,
    /// Whether that knob and the fence could be read.
    is_known: bool,
    /// The run that left it closed is open, and goes on with something else.
    is_run_open: bool,
    /// Not while a run may still open it by itself.
    is_told: bool,
}

impl ClosedFence {
    fn need(&self, now: Time) -> NeedsPerson {
        let ClosedFence { run, datacenter, knob, found, since, primary, is_known, .. } = self;
        let opens = match self.is_run_open {
            true => format!("open it by hand: run {run}, which is open, leaves it so"),
            false => format!("open it by hand, or `restore {datacenter}`"),
        };
        let (why, todo) = match primary {
            Some(primary) if !is_known => (
                format!(
                    "run {run} of {datacenter} left {knob} at {found}, and that or who is the \
                     primary cannot be read: if it is {primary}, writes are refused"
                ),
                format!("see who is the primary; if it is {primary}, open {knob} by hand"),
            ),
            Some(primary) => (
                format!(
                    "run {run} of {datacenter} left {knob} at {found}, and {primary}, which it \
                     fences, is the primary: writes are refused"
                ),
                opens,
            ),
            None => (
                format!("run {run} of {datacenter} left {knob} at {found}: writes are refused"),
                format!("`status {run}`, then `restore {datacenter}`, or open it by hand"),
            ),
        };
        NeedsPerson {
            kind: NeedKind::Fenced,
            task: None,
            knob: Some(knob.clone()),
            since: (*since).min(now),
            why,
            todo,
        }
    }
}

/// A knob that was found elsewhere.
#[derive(Clone, Debug)]
struct Drifted {
    knob: Knob,
    left: Value,
    found: Value,
    run: RunId,
}

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
    /// run is about; puts back what is to be kept.
    pub(super) async fn look_between_runs(self: &Arc<Self>) -> Result<(), Refused> {
        // One at a time: an older look must not replace what a newer one found.
        let _looks = self.looks.lock().await;
        let mut found = BTreeMap::new();
        let drained = self.world.store.drained().await?;
        // Together: one that does not answer must not keep the others waiting.
        let looks = drained.iter().map(|own| self.look_at(&own.datacenter, own.share));
        for (own, strays) in drained.iter().zip(join_all(looks).await) {
            let datacenter = own.datacenter.clone();
            match strays {
                Ok(strays) => found.extend(strays.map(|strays| (datacenter, strays))),
                // Others must be looked at all the same.
                Err(why) => tracing::warn!(datacenter, "what its runs left: {why}"),
            }
        }
        self.tell(&found);
        *self.strays() = found;
        let (unopened, mut fences): (Vec<_>, Vec<_>) =
            self.look_at_fences().await?.into_iter().partition(|own| own.primary.is_some());
        let of_open_runs = self.look_at_open_runs().await;
        let primaries = drained.iter().map(|own| self.look_at_primaries(&own.datacenter));
        let primaries = join_all(primaries).await.into_iter().flatten();
        let primaries = of_open_runs.into_iter().chain(unopened).chain(primaries);
        let mut told: BTreeSet<String> = fences.iter().map(|own| own.knob.clone()).collect();
        let primaries = primaries.filter(|own| told.insert(own.knob.clone()));
        fences.extend(self.told_after_a_while(primaries).await?);
        *self.closed_fences() = fences;
        Ok(())
    }

    /// Tells of fences once, when no run of their datacenter is left that may open them, or
    /// when one takes long to.
    async fn told_after_a_while(
        &self,
        found: impl Iterator<Item = ClosedFence>,
    ) -> Result<Vec<ClosedFence>, Refused> {
        let open = Filter { ended: Some(false), ..Filter::default() };
        let open = self.world.store.runs(open, RUNS_LIMIT_MAX).await?;
        let (now, known) = (self.world.clock.now(), self.closed_fences().clone());
        let mut fences = Vec::new();
        for mut fence in found {
            let is_same = |own: &&ClosedFence| own.knob == fence.knob && own.primary.is_some();
            let before = known.iter().find(is_same);
            fence.since = before.map_or(fence.since, |own| own.since);
            let leaves_it = |run: &store::Run| fence.is_run_open && run.id == fence.run;
            let may_open =
                open.iter().any(|run| run.datacenter == fence.datacenter && !leaves_it(run));
            let is_sure = fence.is_known && !may_open;
            fence.is_told = is_sure || now - fence.since >= FENCED_FOR_LONG;
            if fence.is_told && !before.is_some_and(|own| own.is_told) {
                let need = fence.need(now);
                let message = self.world.channels.alert(fence.run, &fence.datacenter, &need);
                self.world.channels.send(message.into_iter().collect());
            }
            fences.push(fence);
        }
        Ok(fences)
    }

    /// Looks once at the fences that a drain left closed, as it should: something else, or the
    /// drain of another datacenter, may have made just the fenced server the primary.
    async fn look_at_primaries(&self, datacenter: &str) -> Vec<ClosedFence> {
        let mut found = Vec::new();
        let Ok(Some(own)) = fleet::recorded(&self.world, datacenter).await else { return found };
        let mut seen = BTreeSet::new();
        for plan in &own.drain_plans {
            for (fence, primary, of) in plan.tasks.iter().flat_map(Task::fenced_primaries) {
                let (knob, primary) = (plan.knob(fence.knob), plan.knob(primary));
                if !seen.insert(knob) {
                    continue;
                }
                let Some((value, is_known)) = self.look_at_fenced(knob, primary, of).await else {
                    continue;
                };
                // What cannot be read is as runs left it.
                let left = own.knobs.iter().find(|left| left.knob == *knob);
                let value = value.or_else(|| Some(left?.value.clone()));
                let Some(value) = value.filter(|value| fence.is_closed_in_part(value)) else {
                    continue;
                };
                found.push(ClosedFence {
                    run: own.newest,
                    datacenter: datacenter.to_owned(),
                    knob: knob.to_string(),
                    found: value.to_string(),
                    since: self.world.clock.now(),
                    primary: Some(of.to_string()),
                    is_known,
                    is_run_open: false,
                    is_told: false,
                });
            }
        }
        found
    }

    /// The value of a fence, if it can be read, and whether that and who is primary is known.
    /// Nothing if another server is the primary than the one that is fenced.
    async fn look_at_fenced(
        &self,
        knob: &Knob,
        primary: &Knob,
        server: &Value,
    ) -> Option<(Option<Value>, bool)> {
        let now = self.read_soon(primary).await;
        if now.as_ref().is_some_and(|now| !server.is_met_by(now)) {
            return None;
        }
        let value = self.read_soon(knob).await;
        let is_known = now.is_some() && value.is_some();
        Some((value, is_known))
    }

    /// Looks once at the fences that promotions of open runs left closed which are through:
    /// their runs go on with something else, and say nothing of them.
    async fn look_at_open_runs(&self) -> Vec<ClosedFence> {
        let driven: Vec<_> = {
            let driven = self.driven();
            let own = |(id, handle): (&RunId, &Handle)| {
                (*id, handle.plan.clone(), handle.status.borrow().clone())
            };
            driven.iter().map(own).collect()
        };
        let mut found = Vec::new();
        for (run, plan, status) in &driven {
            let done = plan.tasks.iter().zip(&status.tasks);
            for (task, _) in done.filter(|(_, own)| own.phase == Phase::Done) {
                for (fence, primary, of) in task.fenced_primaries() {
                    if !task.leaves_closed(fence.knob) {
                        continue;
                    }
                    let (knob, primary) = (plan.knob(fence.knob), plan.knob(primary));
                    let look = self.look_at_fenced(knob, primary, of).await;
                    let Some((value, is_known)) = look else { continue };
                    // What cannot be read is as its task left it.
                    let value = value.unwrap_or_else(|| fence.closed.clone());
                    if fence.is_closed_in_part(&value) {
                        found.push(ClosedFence {
                            run: *run,
                            datacenter: plan.datacenter.clone(),
                            knob: knob.to_string(),
                            found: value.to_string(),
                            since: self.world.clock.now(),
                            primary: Some(of.to_string()),
                            is_known,
                            is_run_open: true,
                            is_told: false,
                        });
                    }
                }
            }
        }
        found
    }

    /// Looks once at the fences that runs left closed, whatever runs go on. What a
    /// task of an open run has is told by that run.
    async fn look_at_fences(&self) -> Result<Vec<ClosedFence>, Refused> {
        let mut closed = Vec::new();
        for left in self.world.store.fences().await? {
            if self.world.store.claim_of(&left.knob).await?.is_none() {
                closed.extend(self.look_at_left(left).await?);
            }
        }
        Ok(closed)
    }

    /// Looks once at a fence that a run left closed; forgets it once it is open. One that keeps
    /// its server from taking writes on purpose matters while that is the primary.
    async fn look_at_left(&self, left: store::ClosedFence) -> Result<Option<ClosedFence>, Refused> {
        let own = serde_json::from_str::<LeftFence>(&left.json).ok();
        let value = match &own {
            Some(own) => self.read_soon(&own.knob).await,
            None => None,
        };
        let is_open = |value: &Value| {
            own.as_ref().is_some_and(|LeftFence { fence, before, .. }| {
                fence.is_open_at(value, before.as_ref()) && !fence.is_closed_in_part(value)
            })
        };
        if value.as_ref().is_some_and(is_open) {
            self.world.store.forget_fence(&left).await?;
            return Ok(None);
        }
        let keeps = own.as_ref().and_then(|own| own.keeps.as_ref());
        let mut is_known = true;
        if let Some(keeps) = keeps {
            let primary = self.read_soon(&keeps.primary).await;
            if primary.as_ref().is_some_and(|own| !keeps.server.is_met_by(own)) {
                return Ok(None);
            }
            is_known = primary.is_some() && value.is_some();
        }
        let shut = own.as_ref().map(|own| own.fence.closed.to_string());
        let found = value.as_ref().map(Value::to_string).or(shut);
        let store::ClosedFence { knob, run, datacenter, at, .. } = left;
        Ok(Some(ClosedFence {
            run,
            datacenter,
            knob,
            found: found.unwrap_or_else(|| "a value that is not known".into()),
            since: if keeps.is_some() { self.world.clock.now() } else { Time(at) },
            primary: keeps.map(|own| own.server.to_string()),
            is_known,
            is_run_open: false,
            is_told: keeps.is_none(),
        }))
    }

    /// Looks once at a datacenter. Nothing if none of it is drained, or a run is
    /// about it.
    async fn look_at(
        self: &Arc<Self>,
        datacenter: &str,
        share: f64,
    ) -> Result<Option<Strays>, Refused> {
        let Some(newest) = self.newest(datacenter).await? else { return Ok(None) };
        let Some(own) = fleet::recorded(&self.world, datacenter).await? else { return Ok(None) };
        // The share is by the last run, which may have found everything open again.
        if share <= 0.0 && !own.keeps_any() {
            // Nothing of it is to stay as it is.
            return Ok(None);
        }
        let drifted = self.drifted(&own).await;
        if newest.outcome.is_none() {
            return self.not_touched_yet(newest.id, &own, drifted).await;
        }
        let newest = newest.id;
        let position = fleet::position(&self.world, &own.plan, None).await?;
        let share = own.plan.own_index();
        let share = share.map_or(0.0, |at| position.drained_share(&own.plan, at, 0.0));
        // A run that began meanwhile writes them itself.
        let still = self.newest(datacenter).await?.map(|run| run.id);
        if own.newest != newest || still != Some(newest) {
            return Ok(None);
        }
        let knobs = self.see_to(datacenter, &own, drifted).await?;
        Ok(Some(Strays { newest, knobs, share }))
    }

    /// The newest run about a datacenter.
    async fn newest(&self, datacenter: &str) -> Result<Option<store::Run>, Refused> {
        let of = Filter { datacenter: Some(datacenter), ..Filter::default() };
        Ok(self.world.store.runs(of, 1).await?.pop())
    }

    /// What drifted of a drained datacenter while a run about it is open that has not come
    /// to it, such as a restore that waits for an approval: nothing puts it back meanwhile,
    /// and people are told.
    async fn not_touched_yet(
        &self,
        open: RunId,
        own: &Recorded,
        drifted: Vec<Drifted>,
    ) -> Result<Option<Strays>, Refused> {
        // Another server that drives it tells what it left, and touches.
        let Some(handle) = self.driven().get(&open).cloned() else { return Ok(None) };
        let touched = handle.status.borrow().touched.clone();
        let position = fleet::position(&self.world, &own.plan, None).await?;
        let share = own.plan.own_index();
        let share = share.map_or(0.0, |at| position.drained_share(&own.plan, at, 0.0));
        let why = format!(
            "run {open} is open and has not come to it; accepted: `abort --run {open}`, after which \
             keep_drained applies, or what the run waits for"
        );
        let rest = drifted.into_iter().filter(|own| !touched.contains(&own.knob));
        let knobs = rest.map(|own| own.strayed(why.clone(), false)).collect();
        Ok(Some(Strays { newest: open, knobs, share }))
    }

    /// What cannot be read now is not known to be elsewhere.
    async fn drifted(&self, own: &Recorded) -> Vec<Drifted> {
        let look = async |Left { knob, value: left, run, .. }: &Left| {
            // A fence that was left closed is better open.
            if own.fences.contains(knob) {
                return None;
            }
            let found = self.read_soon(knob).await?;
            if left.is_met_by(&found) {
                self.settled().insert(knob.clone(), self.world.clock.now());
                return None;
            }
            Some(Drifted { knob: knob.clone(), left: left.clone(), found, run: *run })
        };
        let looks = stream::iter(&own.knobs).map(look).buffered(LOOKS_MAX);
        looks.filter_map(async |drifted| drifted).collect().await
    }

    /// The value of a knob, if it can be read in time.
    async fn read_soon(&self, knob: &Knob) -> Option<Value> {
        timeout(LOOK_TIME_MAX, self.world.drivers.read(knob)).await.ok()?.ok()
    }

    /// Puts back what is to be kept, and says of the rest why it is not.
    async fn see_to(
        self: &Arc<Self>,
        datacenter: &str,
        own: &Recorded,
        drifted: Vec<Drifted>,
    ) -> Result<Vec<Strayed>, Refused> {
        #[cfg(test)]
        if super::tests::Mutation::NothingKept.is_planted() {
            return Ok(Vec::new());
        }
        if drifted.is_empty() {
            return Ok(Vec::new());
        }
        let mut strayed = Vec::new();
        let mut to_put_back: Vec<(&Kept, Vec<Drifted>)> = Vec::new();
        for knob in drifted {
            let contested = self.is_contested(own, &knob.knob);
            match keeper_of(own, &knob) {
                Err(why) => strayed.push(knob.strayed(why, false)),
                Ok(_) if contested => {
                    let why = format!(
                        "somebody else keeps changing it: it was put back {DRIFTS_MAX} times in a \
                         row"
                    );
                    strayed.push(knob.strayed(why, true));
                }
                Ok(kept) => match to_put_back.iter_mut().find(|(own, _)| own.run == kept.run) {
                    Some((_, knobs)) => knobs.push(knob),
                    None => to_put_back.push((kept, vec![knob])),
                },
            }
        }
        for (kept, knobs) in to_put_back {
            match self.put_back(kept, &knobs).await {
                // What is put back is the matter of its run. One goes on at a time: what another
                // drain left is seen to after it.
                Ok(()) => break,
                Err(refused) => {
                    let why = refused.to_string();
                    tracing::warn!(datacenter, "what drifted is not put back: {why}");
                    let left = knobs.into_iter().map(|own| own.strayed(why.clone(), false));
                    strayed.extend(left);
                }
            }
        }
        Ok(strayed)
    }

    /// Whether a knob was put back so often in a row that somebody else is taken
    /// to be changing it. It begins anew once the knob has stayed for long.
    fn is_contested(&self, own: &Recorded, knob: &Knob) -> bool {
        let mut times = own.put_back.iter().filter(|(_, knobs)| knobs.contains(knob));
        let Some((newest, _)) = times.next() else { return false };
        let settled = self.settled().get(knob).copied().unwrap_or(Time(0));
        if settled - Time(*newest) >= DRIFT_FORGOTTEN_AFTER {
            return false;
        }
        let (mut count, mut last) = (1, *newest);
        for (at, _) in times {
            if Time(last) - Time(*at) >= DRIFT_FORGOTTEN_AFTER {
                break;
            }
            (count, last) = (count + 1, *at);
        }
        count >= DRIFTS_MAX
    }

    /// Begins a run that writes knobs as a drain left them.
    async fn put_back(self: &Arc<Self>, kept: &Kept, drifted: &[Drifted]) -> Result<(), Refused> {
        let _begins = self.begins.lock().await;
        let mut plan = plan_of(kept, drifted);
        self.place(&mut plan).await?;
        // No person began this, and none says that what cannot be read serves.
        plan.fleet
            .with_unknown_drained()
            .check_limits(&plan, kept.mode)
            .map_err(|reached| Refused::Conflict(format!("limit: {reached}")))?;
        // Servers come and go: what a knob moves may be another datacenter's by now.
        if let Some(why) = survey::overlaps(&plan, &self.world.drivers).await.into_iter().next() {
            return Err(Refused::Conflict(why));
        }
        let first = &drifted[0];
        let more = match drifted.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let reason = format!(
            "{} was {}, and run {} left it at {}{more}",
            first.knob, first.found, first.run, first.left
        );
        let run = self.open(plan, Actor::automatic(KEEPER), &reason, kept.mode).await?;
        tracing::warn!(%run, "put back: {reason}");
        Ok(())
    }

    /// Has a run that puts knobs back give way to one that a person begins.
    pub(super) async fn end_put_back(&self, wanted: &Wanted) {
        let driven: Vec<(RunId, Arc<Plan>)> = {
            let driven = self.driven();
            driven.iter().map(|(id, handle)| (*id, handle.plan.clone())).collect()
        };
        let of = |plan: &Plan| plan.datacenter == wanted.datacenter && plan.puts_back.is_some();
        for (id, _) in driven.iter().filter(|(_, plan)| of(plan)) {
            let reason = format!("{} begins another run: {}", wanted.by, wanted.reason);
            let abort = Verb::Abort { how: Abort::Hold };
            // It may have ended by then.
            let _ = self.say(*id, Actor::automatic(KEEPER), reason, &abort).await;
            let deadline = Instant::now() + GIVES_WAY_WITHIN;
            while self.driven().contains_key(id) && Instant::now() < deadline {
                sleep(GIVES_WAY_POLL).await;
            }
        }
    }

    /// Logs what was not so before.
    fn tell(&self, found: &BTreeMap<String, Strays>) {
        let before = self.strays();
        for (datacenter, strays) in found {
            let known = before.get(datacenter).map_or(&[][..], |own| &own.knobs);
            for Strayed { knob, left, found, run, why, .. } in
                strays.knobs.iter().filter(|own| !known.contains(own))
            {
                tracing::warn!(
                    datacenter,
                    "{knob} is {found}, but run {run} left it at {left}: it was changed, or its \
                     system was restarted; it is not put back: {why}; `pharos drain {datacenter}` \
                     does that"
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

    fn closed_fences(&self) -> MutexGuard<'_, Vec<ClosedFence>> {
        self.closed_fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self) -> MutexGuard<'_, BTreeMap<Knob, Time>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What drifted since a run, if it is the newest of its datacenter.
    pub(super) fn strayed_since(&self, run: RunId, datacenter: &str) -> Vec<Strayed> {
        let strays = self.strays();
        let own = strays.get(datacenter).filter(|own| own.newest == run);
        own.map_or(Vec::new(), |own| own.knobs.clone())
    }

    /// How many knobs drifted, and how many of them are contested, by datacenter.
    pub(super) fn strayed_counts(&self) -> Vec<(String, usize, usize)> {
        let strays = self.strays();
        let count = |own: &Strays| own.knobs.iter().filter(|own| own.contested).count();
        strays.iter().map(|(name, own)| (name.clone(), own.knobs.len(), count(own))).collect()
    }

    /// How many fences are closed, by datacenter: those that runs left so, and those
    /// that a task of an open run has left, or waits behind for long.
    pub(super) fn fences_left_closed(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for fence in self.closed_fences().iter().filter(|own| own.is_told) {
            *counts.entry(fence.datacenter.clone()).or_default() += 1;
        }
        for handle in self.driven().values() {
            let status = handle.status.borrow();
            let fenced = status.needs_person.iter().filter(|need| need.kind == NeedKind::Fenced);
            *counts.entry(status.datacenter.clone()).or_default() += fenced.count();
        }
        counts
    }

    /// Fences that other runs left closed: whoever looks at any run is to know
    /// that writes are refused.
    pub(super) fn fences_elsewhere(&self, run: RunId, now: Time) -> Vec<NeedsPerson> {
        let closed = self.closed_fences();
        // What a run left closed is told by itself, unless it was to stay closed.
        let others = closed.iter().filter(|own| own.is_told);
        let others = others.filter(|own| own.run != run || own.primary.is_some());
        let mut fences: Vec<NeedsPerson> = others.map(|own| own.need(now)).collect();
        drop(closed);
        for (id, handle) in self.driven().iter().filter(|(id, _)| **id != run) {
            let status = handle.status.borrow();
            let own = status.needs_person.iter().filter(|need| need.kind == NeedKind::Fenced);
            fences.extend(own.map(|need| NeedsPerson {
                task: None,
                since: need.since.min(now),
                why: format!("run {id} of {}: {}", status.datacenter, need.why),
                todo: format!("`status {id}`"),
                ..need.clone()
            }));
        }
        fences
    }

    /// The share of a datacenter that is drained, by the last look between runs.
    pub(super) fn share_now(&self, datacenter: &str) -> Option<f64> {
        self.strays().get(datacenter).map(|own| own.share)
    }
}

impl Drifted {
    fn strayed(self, why: String, contested: bool) -> Strayed {
        let Drifted { knob, left, found, run } = self;
        Strayed { knob: knob.to_string(), left, found, run: run.0, why, contested }
    }
}

/// The drain that keeps a knob; if none does, why.
fn keeper_of<'r>(own: &'r Recorded, drifted: &Drifted) -> Result<&'r Kept, String> {
    let has = |kept: &&Kept| kept.knobs.iter().any(|(knob, ..)| *knob == drifted.knob);
    let keeper = own.drains.iter().find(has);
    let wrote = || own.drains.iter().find(|kept| kept.run == drifted.run);
    let Some(kept) = keeper.or_else(wrote) else {
        return Err(match own.given_up.filter(|run| drifted.run <= *run) {
            Some(run) => format!("run {run}, which put knobs back, was aborted"),
            None => "the last run that set it is no drain that ended well".into(),
        });
    };
    match (kept.plan.keep_drained, kept.mode) {
        (KeepDrained::Always, _) | (KeepDrained::Disaster, Mode::Disaster) => {}
        (KeepDrained::Never, _) => return Err("keep_drained is `never`".into()),
        (KeepDrained::Disaster, Mode::Drill) => {
            return Err("keep_drained is `disaster`, and the drain was a drill".into());
        }
    }
    if !fleet::is_traffic(&kept.plan, &drifted.knob) {
        let why = "it carries no traffic: a primary or its fence is set by a procedure alone";
        return Err(why.into());
    }
    let carrier = kept.plan.carrier(&drifted.knob);
    if carrier.is_some_and(|own| own.is_further_out(&drifted.found, &drifted.left, None)) {
        return Err("it lets less in than the drain left, and nothing is brought in at once".into());
    }
    match (keeper, own.given_up.filter(|run| kept.run < *run)) {
        (Some(kept), _) => Ok(kept),
        (None, Some(run)) => Err(format!("run {run}, which put knobs back, was aborted")),
        (None, None) => Err("the task that wrote it was skipped".into()),
    }
}

/// A plan that writes knobs as a drain left them: those of a service one after
/// the other, in the order of the drain.
fn plan_of(kept: &Kept, drifted: &[Drifted]) -> Plan {
    let wanted: BTreeSet<&Knob> = drifted.iter().map(|own| &own.knob).collect();
    let mut plan = Plan {
        direction: Direction::Drain,
        tasks: Vec::new(),
        knobs: Vec::new(),
        conditions: Vec::new(),
        health: Vec::new(),
        budgets: Vec::new(),
        puts_back: Some(kept.run.0),
        ..(*kept.plan).clone()
    };
    let mut last: BTreeMap<&str, TaskId> = BTreeMap::new();
    for (knob, left, service) in kept.knobs.iter().filter(|(knob, ..)| wanted.contains(knob)) {
        let at = plan.tasks.len() as u32;
        plan.knobs.push(knob.clone());
        let to = Goal::Value(left.clone());
        let failed = Next::Exit(Exit::Failed);
        plan.tasks.push(Task {
            name: format!("{service}.put-back-{}", at + 1),
            service: service.clone(),
            template: "PutBack".into(),
            priority: 0,
            after: last.insert(service, TaskId(at)).into_iter().collect(),
            after_weak: Vec::new(),
            pre: Vec::new(),
            health: Vec::new(),
            post: Vec::new(),
            stages: vec![Stage {
                name: "set".into(),
                kind: StageKind::Set { knob: KnobId(at), to, of: None },
                timeout: None,
                done: Next::Exit(Exit::Done),
                failed,
                late: failed,
                retry: StageId(0),
                is_interruptible: true,
            }],
            undo: None,
            fences: vec![],
            opens: vec![],
            pace: drain::Pace::AT_ONCE,
            timeout: PUT_BACK_TIMEOUT,
            budgets: Vec::new(),
            expected: Expected::default(),
        });
    }
    plan
}
