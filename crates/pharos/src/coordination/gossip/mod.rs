//! A cluster whose nodes tell each other who is in it.
//!
//! Every node is asked about everybody by a few others, several times a second
//! (the `chitchat` crate: scuttlebutt reconciliation and a failure detector).
//! There is nothing to install and nobody to lose: after a partition each side
//! goes on with the members it can reach, and when it heals they agree again.

mod line;
mod numbering;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chitchat::{
    ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, NodeState, spawn_chitchat,
};
use cluster::{Member, View};
use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::epoch::{Epochs, Rotation};
use super::record::{self, Agreement};
use super::{Coordination, Post};
pub use line::GossipSocket;
use line::Line;
use numbering::{Numbered, number};

/// How often a node gossips.
const INTERVAL: Duration = Duration::from_millis(200);
/// How long a node that went is remembered, and tried from time to time.
const DEAD_KEPT: Duration = Duration::from_secs(3600);
/// How long a node listens for the others' epoch before it begins one: a node
/// that starts must not change the key of a cluster that runs.
const LISTEN: Duration = Duration::from_secs(2);
/// How long a leaving node stays to say so.
const FAREWELL: Duration = Duration::from_millis(600);
/// Gossip of other software that uses the same crate is refused.
const CLUSTER: &str = "pharos";

/// What nodes say of themselves.
const KEY_MEMBER: &str = "member";
const KEY_VIEW: &str = "view";
const KEY_EPOCH: &str = "epoch";
const KEY_LEFT: &str = "left";

/// Nodes that gossip.
#[derive(Debug)]
pub struct Gossip<S> {
    pub seeds: Vec<String>,
    pub key_rotation: Duration,
    pub socket: Arc<S>,
}

impl<S: GossipSocket> Coordination for Gossip<S> {
    async fn run(self, post: Post) {
        let own = post.own();
        let mut talk = Talk {
            post,
            last: None,
            epochs: Epochs::unagreed(),
            listened: Instant::now() + LISTEN,
            rotation: Rotation::new(self.key_rotation),
            has_namesake: false,
        };
        let mut backoff = Backoff::default();
        // A former self's words are older than this one's: if gossip has to
        // begin anew, it does so as somebody newer.
        for generation in own.incarnation.. {
            match self.join(&own, generation).await {
                Ok(handle) => talk.follow(&handle).await,
                Err(error) => tracing::error!("coordination: gossip cannot begin: {error:#}"),
            }
            if talk.post.is_leaving() {
                return;
            }
            tracing::error!("coordination: gossip stopped and begins anew; this is a bug");
            talk.post.set_reached(false);
            sleep(backoff.next()).await;
        }
    }
}

impl<S: GossipSocket> Gossip<S> {
    async fn join(&self, own: &Member, generation: u64) -> anyhow::Result<ChitchatHandle> {
        let config = ChitchatConfig {
            chitchat_id: ChitchatId::new(own.name.clone(), generation, own.peer),
            cluster_id: CLUSTER.to_owned(),
            gossip_interval: INTERVAL,
            listen_addr: own.peer,
            seed_nodes: self.seeds.clone(),
            failure_detector_config: failure_detector(),
            marked_for_deletion_grace_period: DEAD_KEPT,
            catchup_callback: None,
            extra_liveness_predicate: None,
        };
        let first = vec![(KEY_MEMBER.to_owned(), record::write_member(own))];
        spawn_chitchat(config, first, &Line { socket: self.socket.clone() }).await
    }
}

/// A node is missed after 10 of the mean pauses between its signs of life.
/// In a small cluster those come every few milliseconds, and a node would be
/// missed as soon as it is busy; but the mean counts the initial interval five
/// times (a constant of the crate), so over a window of one it stays near that
/// interval: between 2.1 and 3.3 seconds, whatever the size of the cluster.
fn failure_detector() -> FailureDetectorConfig {
    FailureDetectorConfig {
        phi_threshold: 10.0,
        sampling_window_size: 1,
        max_interval: Duration::from_millis(750),
        initial_interval: Duration::from_millis(250),
        dead_node_grace_period: DEAD_KEPT,
    }
}

/// What a node heard, and says.
struct Talk {
    post: Post,
    /// The view that was published last.
    last: Option<Numbered>,
    epochs: Epochs,
    /// When an epoch begins if nobody told of one.
    listened: Instant,
    rotation: Rotation,
    /// Somebody newer has this node's name.
    has_namesake: bool,
}

impl Talk {
    /// Follows the gossip until this node leaves or the gossip ends.
    async fn follow(&mut self, handle: &ChitchatHandle) {
        let mut live = handle.with_chitchat(|chitchat| chitchat.live_nodes_watcher()).await;
        let mut ended = pin!(handle.termination_watcher());
        while !self.post.is_leaving() {
            let is_first = {
                let heard = Heard::new(&live.borrow_and_update(), handle.chitchat_id());
                self.take_in(heard)
            };
            self.say(handle).await;
            let due = self.rotation.due(&self.epochs);
            let has_epoch = self.epochs.current.number > 0;
            tokio::select! {
                changed = live.changed() => if changed.is_err() { return },
                _ = &mut ended => return,
                () = self.post.changed() => {}
                // One is enough, and all know who: the first by name.
                () = sleep_until(due), if has_epoch && is_first => {
                    self.epochs = self.epochs.next();
                }
                () = sleep_until(self.listened), if !has_epoch => {
                    self.epochs = self.epochs.agreed();
                }
            }
        }
        handle.with_chitchat(|chitchat| chitchat.self_node_state().set(KEY_LEFT, "")).await;
        sleep(FAREWELL).await;
    }

    /// Publishes what was heard. True if this node is the first of all.
    fn take_in(&mut self, heard: Heard) -> bool {
        if heard.has_namesake && !self.has_namesake {
            tracing::error!(
                "coordination: another node is also called {} and started later; this one is not \
                 in the cluster until that one goes",
                self.post.own().name
            );
        }
        self.has_namesake = heard.has_namesake;
        self.epochs = heard.epochs.into_iter().fold(self.epochs, Epochs::prevailing);
        let own = self.post.own();
        let is_first = heard.members.keys().all(|name| **name > *own.name);
        let others: Vec<Member> = heard.members.into_values().collect();
        self.post.set_reached(!others.is_empty());
        let Some(digest) = digest(&own, &others) else { return false };
        let last = self.last.unwrap_or(Numbered { number: 0, digest: !digest });
        let number = number(last, digest, &heard.views);
        self.last = Some(Numbered { number, digest });
        self.post.publish(number, others, self.epochs);
        is_first
    }

    /// Says what this node has to say; what did not change is not repeated.
    async fn say(&self, handle: &ChitchatHandle) {
        let member = record::write_member(&self.post.own());
        let agreement = Agreement { epochs: self.epochs, views_from: 0 };
        let epoch = (self.epochs.current.number > 0).then(|| record::write_agreement(&agreement));
        handle
            .with_chitchat(|chitchat| {
                let state = chitchat.self_node_state();
                state.set(KEY_MEMBER, &member);
                if let Some(epoch) = &epoch {
                    state.set(KEY_EPOCH, epoch);
                }
                if let Some(view) = self.last {
                    state.set(KEY_VIEW, view);
                }
            })
            .await;
    }
}

/// What the others that live say.
#[derive(Default)]
struct Heard {
    members: BTreeMap<Arc<str>, Member>,
    views: Vec<Numbered>,
    epochs: Vec<Epochs>,
    has_namesake: bool,
}

impl Heard {
    fn new(live: &BTreeMap<ChitchatId, NodeState>, own: &ChitchatId) -> Self {
        let mut heard = Heard::default();
        // By name and generation: a node's newest self comes last and stays.
        for (id, state) in live.iter().filter(|(id, _)| *id != own) {
            heard.views.extend(state.get(KEY_VIEW).and_then(|view| view.parse::<Numbered>().ok()));
            let agreement =
                state.get(KEY_EPOCH).map(|epoch| record::read_agreement(epoch.as_bytes()));
            heard.epochs.extend(agreement.and_then(Result::ok).map(|agreement| agreement.epochs));
            if id.node_id == own.node_id {
                heard.has_namesake |= id > own;
                continue;
            }
            let member =
                state.get(KEY_MEMBER).map(|text| record::read_member(&id.node_id, text.as_bytes()));
            match member {
                _ if state.contains_key(KEY_LEFT) => drop(heard.members.remove(&id.node_id)),
                Some(Ok(member)) => drop(heard.members.insert(id.node_id.clone(), member)),
                Some(Err(error)) => {
                    tracing::debug!("coordination: gossip of {}: {error}", id.node_id)
                }
                // It has only been heard of.
                None => {}
            }
        }
        heard
    }
}

/// The digest of a view of `own` and `others`; `None` if they make none.
fn digest(own: &Member, others: &[Member]) -> Option<u64> {
    let all = others.iter().chain([own]).cloned().collect();
    View::new(0, all).ok().map(|view| view.digest())
}
