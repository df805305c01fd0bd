//! Which runs this server drives: those it began, those that were open when it
//! started, and those whose server is gone.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use drain::engine::{Actor, Run};
use store::{Filter, Lease, RunId};
use tokio::time::sleep;

use super::executor::{Executor, Handle, Stopped};
use super::instance::node_of;
use super::supervision::caught;
use super::tenure::LEASE_MS;
#[cfg(test)]
use super::tests::Mutation;
use super::vigil::KEEPER;
use super::{Drains, Refused};

/// How often runs are looked for that nobody drives.
const TAKE_UP_EVERY: Duration = Duration::from_secs(5);

impl Drains {
    pub(super) fn driven(&self) -> MutexGuard<'_, BTreeMap<RunId, Handle>> {
        self.driven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock is put right between runs: within one it would jump.
    pub(super) fn set_idle_clock(&self) {
        let driven = self.driven();
        if driven.is_empty() {
            self.world.clock.follow_the_wall();
        }
    }

    fn is_held(&self, run: &store::Run) -> bool {
        let now = self.world.lease_clock.now();
        run.held_until.is_some_and(|until| store::is_live(until, now, LEASE_MS))
    }

    fn is_held_by_another(&self, run: &store::Run) -> bool {
        let is_other =
            |holder: &str| holder != self.instance.holder() && !self.instance.is_gone(holder);
        self.is_held(run) && run.holder.as_deref().is_some_and(is_other)
    }

    /// Who drives a run that is open, and is not driven here.
    pub(super) fn driver(&self, run: &store::Run) -> String {
        match &run.holder {
            Some(holder) if holder == self.instance.holder() => {
                "driven by nobody; this server takes it up again".into()
            }
            Some(holder) if self.is_held(run) => {
                let other = match node_of(holder) == node_of(self.instance.holder()) {
                    true => ", another server of this name",
                    false => "",
                };
                format!("driven by {}{other}", node_of(holder))
            }
            Some(holder) => format!("driven by nobody; {} was the last", node_of(holder)),
            None => "driven by nobody; start its server".into(),
        }
    }

    /// Where an open run takes commands, as the end of a sentence.
    pub(super) fn place_to_ask(&self, run: &store::Run) -> String {
        match &run.holder {
            _ if self.driven().contains_key(&run.id) => String::new(),
            Some(holder) if holder != self.instance.holder() && self.is_held(run) => {
                format!(" on the control socket of {}", node_of(holder))
            }
            _ => " once a server drives it".to_owned(),
        }
    }

    /// Why nothing can be begun beside an open run.
    pub(super) fn beside(&self, open: &store::Run) -> String {
        let store::Run { id, datacenter, .. } = open;
        let place = self.place_to_ask(open);
        let driven = match place.is_empty() {
            true => "driven here".to_owned(),
            false => self.driver(open),
        };
        let accepted = match open.actor == Actor::automatic(KEEPER).to_string() {
            true => format!(
                "the same{place}, where that run, which puts knobs back (keep_drained), gives way \
                 to one that a person begins"
            ),
            false => format!(
                "`pharos abort --run {id} --reason …`{place}, or the same when the run has ended"
            ),
        };
        format!("run {id} on {datacenter} has not ended, and is {driven}; accepted: {accepted}")
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Takes up all open runs that nobody drives. `told` is what was said about
    /// those that could not be.
    pub(super) async fn take_up(
        self: &Arc<Self>,
        told: &mut BTreeMap<RunId, String>,
    ) -> Result<(), Refused> {
        let open = Filter { ended: Some(false), ..Filter::default() };
        let open = self.world.store.runs(open, store::RUNS_LIMIT_MAX).await?;
        self.unreadable().retain(|known, _| open.iter().any(|run| run.id == *known));
        for run in open {
            let takes = self.takes.lock().await;
            #[cfg(test)]
            let takes = (!Mutation::TakenUpTwice.is_planted()).then_some(takes);
            let _takes = takes;
            if self.driven().contains_key(&run.id) || self.panic_of(run.id).is_some() {
                continue;
            }
            #[cfg(test)]
            if Mutation::PanickedLeftAlone.is_planted() && self.panicked().contains_key(&run.id) {
                continue;
            }
            // As it should be, for as long as that one renews its lease.
            if self.is_held_by_another(&run) {
                self.unreadable().remove(&run.id);
                let driver = self.driver(&run);
                if told.get(&run.id) != Some(&driver) {
                    tracing::info!(run = %run.id, "not taken up: it is {driver}");
                    told.insert(run.id, driver);
                }
                continue;
            }
            let resumed = match caught(self.resume(run.id)).await {
                Ok(resumed) => resumed,
                // Its records are what makes it panic.
                Err(panic) => {
                    let wait = self.note_panic(run.id, &panic);
                    self.take_up_later(wait);
                    continue;
                }
            };
            match resumed {
                Ok(()) => tracing::info!(run = %run.id, "resumed"),
                // Others must be able to go on.
                Err(Refused::Unreadable(why)) => self.note_unreadable(&run, why),
                Err(refused) => {
                    let why = refused.to_string();
                    if told.get(&run.id) != Some(&why) {
                        tracing::warn!(run = %run.id, "not resumed: {why}");
                        told.insert(run.id, why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks now and then for runs whose server is gone.
    pub(super) async fn keep_taking_up(self: Arc<Self>) {
        let (mut stop, mut told) = (self.stop.subscribe(), BTreeMap::new());
        loop {
            tokio::select! {
                _ = stop.changed() => return,
                () = sleep(TAKE_UP_EVERY) => {}
            }
            if let Err(refused) = self.take_up(&mut told).await {
                tracing::warn!("open runs cannot be listed: {refused}");
            }
        }
    }

    /// Takes the lease of a run that nobody drives.
    pub(super) async fn take(&self, id: RunId) -> Result<Lease, Refused> {
        let now = self.world.lease_clock.now();
        let (store, holder) = (&self.world.store, self.instance.holder());
        Ok(match store.lease(id, holder, now, LEASE_MS).await {
            // Its former self: the lock that it held is ours now.
            Err(store::Error::Held { holder: former, .. }) if self.instance.is_gone(&former) => {
                store.succeed(id, &former, holder, now, LEASE_MS).await?
            }
            lease => lease?,
        })
    }

    /// Gives a lease back, so that nobody has to wait until it runs out.
    pub(super) async fn give_back(&self, lease: Lease) {
        let run = lease.run;
        if let Err(error) = self.world.store.release(lease).await {
            tracing::warn!(%run, "{error}");
        }
    }

    async fn resume(self: &Arc<Self>, id: RunId) -> Result<(), Refused> {
        // As long as it cannot be read, nothing is written either.
        if self.unreadable().contains_key(&id) {
            self.read_run(id).await?;
        }
        let lease = self.take(id).await?;
        match self.read_run(id).await {
            Ok((run, left)) => {
                self.unreadable().remove(&id);
                left.into_iter().for_each(|left| self.world.clock.resume_at(left));
                self.drive(run, lease);
                Ok(())
            }
            Err(refused) => {
                self.give_back(lease).await;
                Err(refused)
            }
        }
    }

    pub(super) fn drive(self: &Arc<Self>, run: Run, lease: Lease) {
        let id = lease.run;
        let executor = Executor::new(run, lease.clone(), self.world.clone());
        self.driven().insert(id, executor.handle());
        let (drains, stop) = (self.clone(), self.stop.subscribe());
        tokio::spawn(async move {
            match caught(executor.drive(stop)).await {
                Ok(Stopped::Closed(outcome)) => tracing::info!(run = %id, "over: {outcome:?}"),
                Ok(Stopped::Deposed) => {
                    tracing::error!(
                        run = %id,
                        "taken by another server, which drives it on; this one was stopped or \
                         could not renew its lease for longer than {} s",
                        LEASE_MS / 1000
                    );
                }
                Ok(Stopped::Told) => drains.give_back(lease).await,
                Err(panic) => {
                    let wait = drains.note_panic(id, &panic);
                    drains.take_up_later(wait);
                }
            }
            drains.driven().remove(&id);
        });
    }
}
