//! From members to routing: whatever the coordination says becomes a table of
//! owners, made here, away from the threads that answer.

use std::sync::Arc;

use arc_swap::ArcSwap;
use cluster::{Epoch, HashKey, Placement, Routing};
use tokio::sync::watch;

use crate::coordination::{self, Epochs, Membership};
use crate::peers::PeerClients;

/// What cells route by.
#[derive(Clone, Debug)]
pub struct Routed {
    pub now: Arc<Routing>,
    /// The same members under the key before, for a cell that was not there
    /// then: entries that nobody asked for since are still where they were.
    pub before: Option<Arc<Routing>>,
}

/// How routings are made.
#[derive(Clone, Debug)]
pub struct Routings {
    pub placement: Placement,
    pub replicas: usize,
    /// What hash keys are derived from.
    pub secret: [u8; 32],
}

impl Routings {
    pub fn make(&self, membership: &Membership) -> Routed {
        let Epochs { current, previous } = membership.epochs;
        Routed {
            now: Arc::new(self.under(membership, current)),
            before: previous.map(|epoch| Arc::new(self.under(membership, epoch))),
        }
    }

    fn under(&self, membership: &Membership, epoch: coordination::Epoch) -> Routing {
        let key = HashKey::derive(&self.secret, epoch.number, &epoch.salt);
        let view = Arc::new(membership.view.clone());
        Routing::new(view, self.placement, self.replicas, Epoch { number: epoch.number, key })
    }

    /// Follows the members for as long as the coordination lasts.
    pub async fn follow(
        self,
        mut memberships: watch::Receiver<Arc<Membership>>,
        routed: Arc<ArcSwap<Routed>>,
        clients: Option<Arc<PeerClients>>,
    ) {
        loop {
            let membership = memberships.borrow_and_update().clone();
            if let Some(clients) = &clients {
                clients.set_members(membership.view.members());
            }
            let own = self.clone();
            let make = move || own.make(&membership);
            if let Ok(next) = tokio::task::spawn_blocking(make).await
                && next.now.tag() != routed.load().now.tag()
            {
                let members = next.now.view().members().iter();
                let names: Vec<&str> = members.map(|member| &*member.name).collect();
                tracing::info!(
                    view = next.now.view().number(),
                    key = next.now.epoch().number,
                    "members: {}",
                    names.join(", ")
                );
                routed.store(Arc::new(next));
            }
            if memberships.changed().await.is_err() {
                return;
            }
        }
    }
}
