//! Panics in what drives runs: caught, told, and taken up again. A run whose
//! task is gone would stand still without a word until the server is restarted.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use store::RunId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Drains;
#[cfg(test)]
use super::tests::Mutation;

/// How long to wait before a run is taken up again whose task panicked: the
/// first doubles up to the last. There is no last try: an operator may have
/// mended what made it panic.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long a run must have been driven for its earlier panics to be forgotten.
const CALM: Duration = Duration::from_secs(600);

/// A run whose task panicked.
#[derive(Clone, Debug)]
pub struct Panicked {
    /// In a row.
    pub times: u32,
    pub why: String,
    /// When it is taken up again.
    pub again: Instant,
}

impl Panicked {
    /// Why the run is not driven just now.
    pub fn reason(&self) -> String {
        let secs = self.again.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
        format!(
            "the task that drives it panicked ({} in a row): {}; it is taken up again in {secs} s",
            self.times, self.why
        )
    }
}

impl Drains {
    pub(super) fn panicked(&self) -> MutexGuard<'_, BTreeMap<RunId, Panicked>> {
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a run is not driven, if it is because its task panicked.
    pub(super) fn panic_of(&self, run: RunId) -> Option<String> {
        let panicked = self.panicked().get(&run).cloned()?;
        (panicked.again > Instant::now()).then(|| panicked.reason())
    }

    /// Notes a panic; says how long to wait before the run is taken up again.
    pub(super) fn note_panic(&self, run: RunId, why: &str) -> Duration {
        let now = Instant::now();
        let mut panicked = self.panicked();
        let before = panicked.get(&run).filter(|last| now.duration_since(last.again) < CALM);
        let times = before.map_or(1, |last| last.times.saturating_add(1));
        let wait = AGAIN_MAX.min(AGAIN_MIN * 2_u32.saturating_pow(times - 1));
        tracing::error!(
            %run, times, "the task that drives the run panicked: {why}; it is taken up again from \
             its records in {} s", wait.as_secs()
        );
        self.panics.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        panicked.insert(run, Panicked { times, why: why.to_owned(), again: now + wait });
        wait
    }

    /// Takes a run up again after a while, if it was not ended or taken by then.
    pub(super) fn take_up_later(self: &Arc<Self>, wait: Duration) {
        let (own, mut stop) = (self.clone(), self.stop.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                _ = stop.changed() => return,
                () = sleep(wait) => {}
            }
            if let Err(refused) = own.take_up(&mut BTreeMap::new()).await {
                tracing::warn!("open runs cannot be listed: {refused}");
            }
        });
    }
}

/// Runs something that goes on for ever, again whenever it panics.
pub async fn keep_going<F: Future<Output = ()>>(
    what: &str,
    mut stop: watch::Receiver<bool>,
    work: impl Fn() -> F,
) {
    let mut wait = AGAIN_MIN;
    while let Err(panic) = caught(work()).await {
        tracing::error!("{what} panicked: {panic}; it begins again in {} s", wait.as_secs());
        tokio::select! {
            _ = stop.changed() => return,
            () = sleep(wait) => {}
        }
        wait = AGAIN_MAX.min(wait * 2);
    }
}

/// What comes of something, or what it said when it panicked.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    #[cfg(test)]
    if Mutation::PanicUncaught.is_planted() {
        return Ok(work.await);
    }
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| text_of(&*panic))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a word").to_owned()
}
