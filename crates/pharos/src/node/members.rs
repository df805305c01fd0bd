//! From members to routing: whatever the coordination says becomes a table of
//! owners, made here, away from the threads that answer.

use std::sync::Arc;

use arc_swap::ArcSwap;
use cluster::{Epoch, HashKey, Placement, Routing};
use tokio::sync::watch;

use crate::coordination::Membership;
use crate::peers::PeerClients;

/// How routings are made.
#[derive(Clone, Debug)]
pub struct Routings {
    pub placement: Placement,
    pub replicas: usize,
    /// What hash keys are derived from.
    pub secret: [u8; 32],
}

impl Routings {
    pub fn make(&self, membership: &Membership) -> Routing {
        let epoch = membership.epochs.current;
        let key = HashKey::derive(&self.secret, epoch.number, &epoch.salt);
        let view = Arc::new(membership.view.clone());
        Routing::new(view, self.placement, self.replicas, Epoch { number: epoch.number, key })
    }

    /// Follows the members for as long as the coordination lasts.
    pub async fn follow(
        self,
        mut memberships: watch::Receiver<Arc<Membership>>,
        routing: Arc<ArcSwap<Routing>>,
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
                && next.tag() != routing.load().tag()
            {
                let names: Vec<&str> =
                    next.view().members().iter().map(|member| &*member.name).collect();
                tracing::info!(
                    view = next.view().number(),
                    key = next.epoch().number,
                    "members: {}",
                    names.join(", ")
                );
                routing.store(Arc::new(next));
            }
            if memberships.changed().await.is_err() {
                return;
            }
        }
    }
}
