//! A cluster whose members a ZooKeeper lists.
//!
//! A node looks at the list when it starts, whenever the watch on it fires,
//! after every hiccup of the connection, and from time to time in any case;
//! what it finds it publishes. Whatever fails is tried again, with a new
//! session if the old one is over, and until that works the last membership
//! stays: a ZooKeeper that is stopped, gone, or back without its memory throws
//! nobody out (see [`roster`]).

mod roster;
#[cfg(test)]
mod tests;
mod znodes;

use std::future::{pending, ready};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_client::{Client, OneshotWatcher, StateWatcher};

use super::backoff::Backoff;
use super::epoch::{Epochs, Rotation};
use super::record::Agreement;
use super::{Coordination, Post};
use crate::random;
use roster::Roster;
use znodes::{Failure, Registration, Stored, Znodes};

/// How long, beyond the time of a session, members that were lost with the
/// service have to register again.
pub const RETURN_GRACE: Duration = Duration::from_secs(10);
/// How long a change of the list is let settle: nodes often start together.
const SETTLE: Duration = Duration::from_millis(20);
/// How often the list is looked at though nothing seems to have changed.
const LOOK: Duration = Duration::from_secs(30);
/// How often it is looked at while something is wrong with it.
const LOOK_IN_TROUBLE: Duration = Duration::from_secs(3);

/// A cluster in a ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeper {
    /// As HOST:PORT.
    pub servers: Vec<String>,
    /// The path under which everything is kept.
    pub root: String,
    pub session_timeout: Duration,
    /// How long members that were lost with the service are kept after it came
    /// back.
    pub return_grace: Duration,
    pub key_rotation: Duration,
}

impl Coordination for ZooKeeper {
    async fn run(self, post: Post) {
        let mut follower = Follower {
            znodes: Znodes::new(&self.root),
            roster: Roster::new(self.return_grace),
            rotation: Rotation::new(self.key_rotation),
            agreement: Agreement { epochs: Epochs::unagreed(), views_from: 0 },
            link: Link::Unknown,
            trouble: None,
            backoff: Backoff::default(),
            post,
        };
        while !follower.post.is_leaving() {
            let connector = Client::connector().with_session_timeout(self.session_timeout);
            let servers = self.servers.join(",");
            tokio::select! {
                connected = connector.connect(&servers) => match connected {
                    Ok(client) => follower.follow(&client).await,
                    Err(error) => follower.lose(&format!("cannot connect to {servers}: {error}")),
                },
                () = follower.post.changed() => continue,
            }
            follower.pause().await;
        }
    }
}

/// Whether the service is there, as was logged last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Unknown,
    Reached,
    Lost,
}

/// What a node knows of its cluster, from session to session.
struct Follower {
    post: Post,
    znodes: Znodes,
    roster: Roster,
    agreement: Agreement,
    rotation: Rotation,
    link: Link,
    /// What is wrong though the service is there, as was logged last.
    trouble: Option<String>,
    backoff: Backoff,
}

/// What tells that something changed.
struct Watches {
    members: OneshotWatcher,
    epoch: Option<OneshotWatcher>,
}

impl Follower {
    /// Follows the members for the time of one session.
    async fn follow(&mut self, client: &Client) {
        let mut states = client.state_watcher();
        let mut is_registered = false;
        // Longer than the client takes to find that its session is over.
        let answer_max = client.session_timeout() * 2;
        loop {
            let look = self.look(client, &mut states, &mut is_registered);
            match timeout(answer_max, look).await {
                Ok(Ok(watches)) => {
                    self.reach();
                    self.wait(watches, &mut states).await;
                }
                Ok(Err(Failure::Overtaken)) => self.pause().await,
                Ok(Err(Failure::Lost(why) | Failure::Refused(why))) => {
                    self.lose(&why);
                    self.pause().await;
                }
                // A late answer could confuse the watches of the next look.
                Err(_) => return self.lose("it does not answer"),
            }
            if self.post.is_leaving() {
                return self.leave(client, is_registered).await;
            }
            if client.state().is_terminated() {
                return self.lose(&format!("the session is over: {}", client.state()));
            }
        }
    }

    /// Registers if need be, looks at everything, and publishes it.
    async fn look(
        &mut self,
        client: &Client,
        states: &mut StateWatcher,
        is_registered: &mut bool,
    ) -> Result<Watches, Failure> {
        self.znodes.prepare(client).await?;
        let own_trouble = self.register(client, is_registered).await?;
        let (listing, members) = self.znodes.list(client).await?;
        self.notice_gap(states).await;
        let zxid = u64::try_from(listing.zxid).unwrap_or_default();
        let (epoch, trouble) = self.agree(client, zxid).await?;
        self.roster.update(Instant::now(), listing);
        let Agreement { epochs, views_from } = self.agreement;
        let number = views_from.saturating_add(zxid).max(self.post.number());
        self.post.publish(number, self.roster.members(), epochs);
        self.set_trouble(own_trouble.or(trouble));
        Ok(Watches { members, epoch })
    }

    /// Registers; says why it could not.
    async fn register(
        &mut self,
        client: &Client,
        is_registered: &mut bool,
    ) -> Result<Option<String>, Failure> {
        match self.znodes.register(client, &self.post.own()).await {
            Ok(Registration::Taken(other)) => {
                *is_registered = false;
                Ok(Some(format!(
                    "another node, at {}, is also called {} and started later; this one is not in \
                     the cluster until that one goes",
                    other.peer, other.name
                )))
            }
            Ok(registration) => {
                if registration == Registration::Created && *is_registered {
                    // Whoever deleted this one did not ask for the session, so
                    // all others may have been deleted too.
                    self.roster.lose();
                }
                *is_registered = true;
                Ok(None)
            }
            Err(Failure::Refused(why)) => Ok(Some(why)),
            Err(failure) => Err(failure),
        }
    }

    /// Agrees with the others on all besides the members. A watch for changes
    /// of it, or what is wrong with it.
    async fn agree(
        &mut self,
        client: &Client,
        zxid: u64,
    ) -> Result<(Option<OneshotWatcher>, Option<String>), Failure> {
        let known = self.agreement.epochs;
        let published = self.post.number();
        let rotation = &mut self.rotation;
        let wanted = |stored| want(stored, known, zxid, published, rotation);
        Ok(match self.znodes.agree(client, wanted).await? {
            Stored::Agreement(agreement, watch) => {
                self.agreement = agreement;
                (Some(watch), None)
            }
            Stored::Nonsense(why) => (None, Some(why)),
        })
    }

    /// Waits for something to look at.
    async fn wait(&mut self, watches: Watches, states: &mut StateWatcher) {
        let next = self.next_look();
        let Watches { members, epoch } = watches;
        let epoch = async {
            match epoch {
                Some(epoch) => epoch.changed().await,
                None => pending().await,
            }
        };
        tokio::select! {
            // First: who is missing after a gap may not have gone.
            biased;
            state = states.changed() => {
                return self.lose(&format!("the session is {state}"));
            }
            _ = members.changed() => {}
            _ = epoch => {}
            () = self.post.changed() => return,
            () = sleep_until(next) => {}
        }
        sleep(SETTLE).await;
    }

    fn next_look(&mut self) -> Instant {
        let [luck] = random::octets();
        let usual = if self.trouble.is_some() { LOOK_IN_TROUBLE } else { LOOK };
        let usual = Instant::now() + usual * (128 + u32::from(luck)) / 256;
        let due = self.rotation.due(&self.agreement.epochs);
        self.roster.deadline().into_iter().fold(usual.min(due), Instant::min)
    }

    /// Notices that the connection was lost for a moment.
    async fn notice_gap(&mut self, states: &mut StateWatcher) {
        tokio::select! {
            biased;
            state = states.changed() => self.lose(&format!("the session is {state}")),
            () = ready(()) => {}
        }
    }

    async fn leave(&mut self, client: &Client, is_registered: bool) {
        if is_registered
            && let Err(failure) = self.znodes.unregister(client, &self.post.own().name).await
        {
            tracing::warn!("coordination: this node leaves without a word: {failure:?}");
        }
    }

    /// Waits between two tries, unless this node changes.
    async fn pause(&mut self) {
        let pause = self.backoff.next();
        tokio::select! {
            () = sleep(pause) => {}
            () = self.post.changed() => {}
        }
    }

    fn reach(&mut self) {
        self.backoff.reset();
        self.post.set_reached(true);
        if self.link != Link::Reached {
            tracing::info!("coordination: ZooKeeper is reached");
        }
        self.link = Link::Reached;
    }

    fn lose(&mut self, why: &str) {
        self.roster.lose();
        self.post.set_reached(false);
        if self.link != Link::Lost {
            tracing::warn!("coordination: ZooKeeper is lost, the members stay as they are: {why}");
        }
        self.link = Link::Lost;
    }

    fn set_trouble(&mut self, trouble: Option<String>) {
        if trouble != self.trouble {
            match &trouble {
                Some(trouble) => tracing::error!("coordination: {trouble}"),
                None => tracing::info!("coordination: all is well again"),
            }
        }
        self.trouble = trouble;
    }
}

/// What all are to agree on, by what is stored and what this node knows.
fn want(
    stored: Option<Agreement>,
    known: Epochs,
    zxid: u64,
    published: u64,
    rotation: &mut Rotation,
) -> Agreement {
    // A service that lost its memory is told again, also if a newcomer was the
    // first to tell it something.
    let epochs = stored.map_or(known.agreed(), |stored| stored.epochs.prevailing(known));
    let is_due = stored.is_some() && Instant::now() >= rotation.due(&epochs);
    let views_from = stored.map_or(0, |stored| stored.views_from);
    Agreement {
        epochs: if is_due { epochs.next() } else { epochs },
        // If it counts from the beginning again, views go on from here.
        views_from: match views_from.saturating_add(zxid) < published {
            true => published,
            false => views_from,
        },
    }
}
