//! Who is in the cluster, and which hash key it uses.
//!
//! A node asks nobody for this while it answers a question: it holds the last
//! [`Membership`] it was told and goes on with it, however long whoever tells
//! it is away. There are three ways to be told, each a [`Coordination`]:
//! a node that is [`alone`], [`gossip`] among the nodes, and [`zookeeper`].
//! Whichever it is, the rest of the server holds a [`Coordinator`].
//!
//! Who is no member but wants to know them holds an [`Observer`].

mod alone;
mod backoff;
mod config;
mod epoch;
mod gossip;
mod record;
mod zookeeper;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::{Member, Standing, View};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use config::{CoordinationConfig, FileCoordination, Kind, ZooKeeperPlace};
pub use epoch::{Epoch, Epochs};
pub use gossip::GossipSocket;

use alone::Alone;
use gossip::Gossip;
use zookeeper::{Observation, ZooKeeper};

/// How long a node waits, when it leaves, for the others to be told.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// The cluster as this node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The members; this node is always among them. Numbers only grow. Equal
    /// numbers with different digests are possible for a while: a node keeps
    /// members whose absence it does not believe yet.
    pub view: View,
    /// What the hash key is made from, now and before.
    pub epochs: Epochs,
}

/// A way to be told who is in the cluster.
pub trait Coordination: Send + 'static {
    /// Announces the node of `post` to the others, follows the members and
    /// publishes every change, until the node leaves. Never gives up: whatever
    /// fails is tried again, and what was published last stays until then.
    fn run(self, post: Post) -> impl Future<Output = ()> + Send;
}

/// The rest of the server's end of a [`Coordination`]. Dropping it stops the
/// coordination without a word to the others.
#[derive(Debug)]
pub struct Coordinator {
    membership: watch::Receiver<Arc<Membership>>,
    own: watch::Sender<Announcement>,
    reached: Arc<AtomicBool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Coordinator {
    /// Starts what `config` asks for, on the tokio runtime this is called on.
    /// `gossip` gives the socket on which nodes gossip; it is only called for
    /// that kind.
    pub fn start<S: GossipSocket>(
        config: &CoordinationConfig,
        own: Member,
        gossip: impl FnOnce() -> Result<S, String>,
    ) -> Result<Self, String> {
        if !matches!(&config.kind, Kind::Embedded { seeds } if seeds.is_empty()) {
            check_own(&own)?;
        }
        Ok(match &config.kind {
            Kind::Embedded { seeds } if seeds.is_empty() => {
                Coordinator::run(Alone { key_rotation: config.key_rotation }, own)
            }
            Kind::Embedded { seeds } => {
                let gossip = Gossip {
                    seeds: seeds.clone(),
                    key_rotation: config.key_rotation,
                    socket: Arc::new(gossip()?),
                };
                Coordinator::run(gossip, own)
            }
            Kind::ZooKeeper(place) => {
                let zookeeper = ZooKeeper {
                    return_grace: zookeeper::return_grace(place),
                    place: place.clone(),
                    key_rotation: config.key_rotation,
                };
                Coordinator::run(zookeeper, own)
            }
        })
    }

    fn run(coordination: impl Coordination, own: Member) -> Self {
        let view = View::new(0, vec![own.clone()]).expect("one member with cells is a view");
        let first = Membership { view, epochs: Epochs::unagreed() };
        let (changes, membership) = watch::channel(Arc::new(first));
        let (own, announced) = watch::channel(Announcement { member: own, leaving: false });
        let reached = Arc::new(AtomicBool::new(false));
        let post = Post { own: announced, changes, reached: reached.clone() };
        let task = tokio::spawn(coordination.run(post));
        Coordinator { membership, own, reached, task: Mutex::new(Some(task)) }
    }

    /// What is known now, and every change of it.
    pub fn membership(&self) -> watch::Receiver<Arc<Membership>> {
        self.membership.clone()
    }

    /// Changes what the others know of this node. They are told as soon as
    /// they can be reached.
    pub fn set_standing(&self, standing: Standing) {
        self.own.send_if_modified(|own| {
            let changes = own.member.standing != standing;
            own.member.standing = standing;
            changes
        });
    }

    /// Whether the source of memberships answers; for metrics.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the others that this node goes, if they can be told soon.
    pub async fn leave(&self) {
        self.own.send_modify(|own| own.leaving = true);
        let Some(task) = self.task().take() else { return };
        if timeout(LEAVE_MAX, task).await.is_err() {
            tracing::warn!("coordination: the others could not be told that this node leaves");
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }
}

/// The members of a cluster, for somebody who is none of them. Dropping it ends
/// it.
#[derive(Debug)]
pub struct Observer {
    members: watch::Receiver<Arc<[Member]>>,
    reached: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Observer {
    /// Follows the cluster at `place`, on the tokio runtime this is called on.
    /// Nothing is ever written there.
    pub fn start(place: &ZooKeeperPlace) -> Self {
        Observer::with_grace(place, zookeeper::return_grace(place))
    }

    fn with_grace(place: &ZooKeeperPlace, return_grace: Duration) -> Self {
        let (changes, members) = watch::channel(Arc::default());
        let reached = Arc::new(AtomicBool::new(false));
        let observation = Observation::new(place.clone(), return_grace, changes, reached.clone());
        Observer { members, reached, task: tokio::spawn(observation.run()) }
    }

    /// The members that were listed last, and every change; nobody before the
    /// first list, never nobody after it.
    pub fn members(&self) -> watch::Receiver<Arc<[Member]>> {
        self.members.clone()
    }

    /// Whether the source of members answers.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A [`Coordination`]'s end: whom to announce, and where to publish.
#[derive(Debug)]
pub struct Post {
    own: watch::Receiver<Announcement>,
    changes: watch::Sender<Arc<Membership>>,
    reached: Arc<AtomicBool>,
}

/// What the others are to be told of this node.
#[derive(Clone, Debug)]
struct Announcement {
    member: Member,
    leaving: bool,
}

impl Post {
    /// This node as the others are to know it now.
    fn own(&self) -> Member {
        self.own.borrow().member.clone()
    }

    /// True once this node is on its way out.
    fn is_leaving(&self) -> bool {
        self.own.borrow().leaving
    }

    /// Waits until [`Post::own`] or [`Post::is_leaving`] says something else.
    async fn changed(&mut self) {
        if self.own.changed().await.is_err() {
            // Nobody is left who could change it; the task is about to end.
            std::future::pending().await
        }
    }

    /// The number of the view that was published last.
    fn number(&self) -> u64 {
        self.changes.borrow().view.number()
    }

    /// Publishes `others` and this node, unless that is what was published
    /// last.
    fn publish(&self, number: u64, mut others: Vec<Member>, epochs: Epochs) {
        let own = self.own();
        others.retain(|other| other.name != own.name);
        others.push(own);
        let view = match View::new(number, others) {
            Ok(view) => view,
            Err(error) => return tracing::error!("coordination: the members are kept: {error}"),
        };
        let next = Membership { view, epochs };
        self.changes.send_if_modified(|last| {
            let changes = **last != next;
            if changes {
                log_change(&last.view, &next.view);
                *last = Arc::new(next);
            }
            changes
        });
    }

    fn set_reached(&self, reached: bool) {
        self.reached.store(reached, Ordering::Relaxed);
    }
}

/// One line for those who came and went.
fn log_change(last: &View, next: &View) {
    let names = |members: &[Member], others: &View| {
        let is_new = |member: &&Member| {
            let other = others.find(&member.name).map(|place| &others.members()[place]);
            other.is_none_or(|other| other.incarnation != member.incarnation)
        };
        let names: Vec<&str> = members.iter().filter(is_new).map(|member| &*member.name).collect();
        names.join(" ")
    };
    if last.digest() != next.digest() {
        tracing::info!(
            came = names(next.members(), last),
            went = names(last.members(), next),
            "coordination: view {} with {} members",
            next.number(),
            next.members().len(),
        );
    }
}

/// An incarnation for a node that starts now: above those of all its former
/// selves as long as the clock does not go back.
pub fn incarnation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Seconds since 1970.
fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Says whether the others can know and reach this node.
fn check_own(own: &Member) -> Result<(), String> {
    record::check_name(&own.name)?;
    if own.peer.ip().is_unspecified() || own.peer.port() == 0 {
        return Err(format!(
            "cache.peer_listen: other nodes cannot send to {}; accepted: an address and port of \
             this host",
            own.peer
        ));
    }
    Ok(())
}
