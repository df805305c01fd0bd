//! Whether the store can be written: found out now and then, so that `/healthz`
//! says so before a run stands still.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use super::Drains;

const PROBE_EVERY: Duration = Duration::from_secs(5);
/// While it cannot be written: a server is ready again as soon as it is.
const PROBE_AGAIN: Duration = Duration::from_secs(1);

impl Drains {
    /// Why nothing can be kept just now, if so: the last probe failed, or a run
    /// could not write a step.
    pub fn unwritable(&self) -> Option<String> {
        let probed = self.unwritable.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stalled = || {
            let driven = self.driven();
            driven.values().find_map(|handle| handle.status.borrow().stands_still.clone())
        };
        probed.or_else(stalled)
    }

    /// Writes to the store; notes whether that worked.
    pub(super) async fn probe(&self) -> bool {
        let probed = self.world.store.probe(self.world.clock.now().0).await;
        let why = probed.err().map(|error| error.to_string());
        let before = std::mem::replace(
            &mut *self.unwritable.lock().unwrap_or_else(PoisonError::into_inner),
            why.clone(),
        );
        match (&before, &why) {
            (None, Some(why)) => {
                tracing::error!(
                    "the store of drains cannot be written, and /healthz says so: {why}"
                );
            }
            (Some(_), None) => tracing::info!("the store of drains can be written again"),
            _ => {}
        }
        why.is_none()
    }

    pub(super) async fn keep_probing(self: Arc<Self>) {
        let mut stop = self.stop.subscribe();
        loop {
            let wait = if self.probe().await { PROBE_EVERY } else { PROBE_AGAIN };
            tokio::select! {
                _ = stop.changed() => return,
                () = sleep(wait) => {}
            }
        }
    }
}
