//! From members to routing: whatever the coordination says becomes a table of
//! owners, made here, away from the threads that answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cluster::{Epoch, HashKey, Member, Placement, Routing, View};
use tokio::sync::watch;

use crate::coordination::{self, Epochs, Membership};
use crate::peers::PeerClients;

/// How long a node is new among the others: until then it may have been handed
/// only a part of what it owns.
const NEW_FOR: Duration = Duration::from_secs(60);

/// What cells route by.
#[derive(Clone, Debug)]
pub struct Routed {
    pub now: Arc<Routing>,
    /// The same members under the key before, for a cell that was not there
    /// then: entries that nobody asked for since are still where they were.
    pub before: Option<Arc<Routing>>,
    /// How the others route without this node, while it is new among them.
    pub without_us: Option<WithoutUs>,
}

/// The others alone, under the key and under the one before.
#[derive(Clone, Debug)]
pub struct WithoutUs {
    pub now: Arc<Routing>,
    pub before: Option<Arc<Routing>>,
}

/// How routings are made.
#[derive(Clone, Debug)]
pub struct Routings {
    pub placement: Placement,
    pub replicas: usize,
    /// What hash keys are derived from.
    pub secret: [u8; 32],
    /// This node, and when it started.
    pub own: Arc<str>,
    pub started: Instant,
}

impl Routings {
    pub fn make(&self, membership: &Membership) -> Routed {
        let Epochs { current, previous } = membership.epochs;
        let view = Arc::new(membership.view.clone());
        let others = (self.started.elapsed() < NEW_FOR).then(|| self.others(&view)).flatten();
        Routed {
            now: Arc::new(self.under(view.clone(), current)),
            before: previous.map(|epoch| Arc::new(self.under(view, epoch))),
            without_us: others.map(|view| WithoutUs {
                now: Arc::new(self.under(view.clone(), current)),
                before: previous.map(|epoch| Arc::new(self.under(view, epoch))),
            }),
        }
    }

    /// The view without this node, if there is anybody else in it.
    fn others(&self, view: &View) -> Option<Arc<View>> {
        let is_other = |member: &&Member| member.name != self.own;
        let others: Vec<Member> = view.members().iter().filter(is_other).cloned().collect();
        // A part of a view is one.
        (!others.is_empty()).then(|| View::new(view.number(), others).ok().map(Arc::new)).flatten()
    }

    fn under(&self, view: Arc<View>, epoch: coordination::Epoch) -> Routing {
        let key = HashKey::derive(&self.secret, epoch.number, &epoch.salt);
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
