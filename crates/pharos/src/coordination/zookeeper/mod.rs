//! A cluster whose members a ZooKeeper lists.
//!
//! A node looks at the list when it starts, whenever the watch on it fires,
//! after every hiccup of the connection, and from time to time in any case;
//! what it finds it publishes. Whatever fails is tried again, with a new
//! session if the old one is over, and until that works the last membership
//! stays: a ZooKeeper that is stopped, gone, or back without its memory throws
//! nobody out (see [`roster`]). Who is no member looks in the same way
//! ([`observation`]), but leaves no trace.

mod contact;
mod observation;
mod roster;
#[cfg(test)]
mod tests;
mod znodes;

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_client::{Client, OneshotWatcher, StateWatcher};

use super::config::ZooKeeperPlace;
use super::epoch::{Epochs, Rotation};
use super::record::Agreement;
use super::{Coordination, Post};
use contact::Contact;
pub use observation::Observation;
use znodes::{Failure, Registration, Stored, Znodes};

/// How long, beyond the time of a session, members that were lost with the
/// service have to register again.
const RETURN_GRACE: Duration = Duration::from_secs(10);
/// How long a change of the list is let settle: nodes often start together.
const SETTLE: Duration = Duration::from_millis(20);

/// A cluster in a ZooKeeper.
#[derive(Debug)]
pub struct ZooKeeper {
    pub place: ZooKeeperPlace,
    /// How long members that were lost with the service are kept after it came
    /// back.
    pub return_grace: Duration,
    pub key_rotation: Duration,
}

/// How long members that were lost with the service are kept after it came
/// back, unless told otherwise.
pub fn return_grace(place: &ZooKeeperPlace) -> Duration {
    place.session_timeout + RETURN_GRACE
}

impl Coordination for ZooKeeper {
    async fn run(self, post: Post) {
        let place = self.place;
        let mut follower = Follower {
            znodes: Znodes::new(&place.root),
            contact: Contact::new(self.return_grace, post.reached.clone()),
            rotation: Rotation::new(self.key_rotation),
            agreement: Agreement { epochs: Epochs::unagreed(), views_from: 0 },
            post,
        };
        while !follower.post.is_leaving() {
            tokio::select! {
                connected = follower.contact.connect(&place) => {
                    if let Some(client) = connected {
                        follower.follow(&client).await;
                    }
                }
                () = follower.post.changed() => continue,
            }
            follower.pause().await;
        }
    }
}

/// What a node knows of its cluster, from session to session.
struct Follower {
    post: Post,
    znodes: Znodes,
    contact: Contact,
    agreement: Agreement,
    rotation: Rotation,
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
                    self.contact.reach();
                    self.wait(watches, &mut states).await;
                }
                Ok(Err(Failure::Overtaken)) => self.pause().await,
                Ok(Err(Failure::Lost(why) | Failure::Refused(why))) => {
                    self.contact.lose(&why);
                    self.pause().await;
                }
                // A late answer could confuse the watches of the next look.
                Err(_) => return self.contact.lose("it does not answer"),
            }
            if self.post.is_leaving() {
                return self.leave(client, is_registered).await;
            }
            if client.state().is_terminated() {
                return self.contact.lose(&format!("the session is over: {}", client.state()));
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
        self.contact.notice_gap(states).await;
        let zxid = u64::try_from(listing.zxid).unwrap_or_default();
        let (epoch, trouble) = self.agree(client, zxid).await?;
        self.contact.roster.update(Instant::now(), listing);
        let Agreement { epochs, views_from } = self.agreement;
        let number = views_from.saturating_add(zxid).max(self.post.number());
        self.post.publish(number, self.contact.roster.members(), epochs);
        self.contact.set_trouble(own_trouble.or(trouble));
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
                    self.contact.roster.lose();
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
        let due = self.rotation.due(&self.agreement.epochs);
        let next = self.contact.next_look().min(due);
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
                return self.contact.lose(&format!("the session is {state}"));
            }
            _ = members.changed() => {}
            _ = epoch => {}
            () = self.post.changed() => return,
            () = sleep_until(next) => {}
        }
        sleep(SETTLE).await;
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
        tokio::select! {
            () = self.contact.pause() => {}
            () = self.post.changed() => {}
        }
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
