//! How it stands with the service, from session to session: whether it is
//! there, whom it listed, and when to look again.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zookeeper_client::{Client, StateWatcher};

use super::super::backoff::Backoff;
use super::super::config::ZooKeeperPlace;
use super::roster::Roster;
use crate::random;

/// How often the list is looked at though nothing seems to have changed.
const LOOK: Duration = Duration::from_secs(30);
/// How often it is looked at while something is wrong with it.
const LOOK_IN_TROUBLE: Duration = Duration::from_secs(3);

/// What is known of the service.
#[derive(Debug)]
pub struct Contact {
    pub roster: Roster,
    link: Link,
    /// What is wrong though the service is there, as was logged last.
    trouble: Option<String>,
    backoff: Backoff,
    /// Told to the rest of the server.
    reached: Arc<AtomicBool>,
}

/// Whether the service is there, as was logged last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Unknown,
    Reached,
    Lost,
}

impl Contact {
    pub fn new(return_grace: Duration, reached: Arc<AtomicBool>) -> Self {
        Contact {
            roster: Roster::new(return_grace),
            link: Link::Unknown,
            trouble: None,
            backoff: Backoff::default(),
            reached,
        }
    }

    /// A new session, if there is one to be had.
    pub async fn connect(&mut self, place: &ZooKeeperPlace) -> Option<Client> {
        let connector = Client::connector().with_session_timeout(place.session_timeout);
        let servers = place.servers.join(",");
        let connected = connector.connect(&servers).await;
        connected.map_err(|error| self.lose(&format!("cannot connect to {servers}: {error}"))).ok()
    }

    pub fn reach(&mut self) {
        self.backoff.reset();
        self.reached.store(true, Ordering::Relaxed);
        if self.link != Link::Reached {
            tracing::info!("coordination: ZooKeeper is reached");
        }
        self.link = Link::Reached;
    }

    pub fn lose(&mut self, why: &str) {
        self.roster.lose();
        self.reached.store(false, Ordering::Relaxed);
        if self.link != Link::Lost {
            tracing::warn!("coordination: ZooKeeper is lost, the members stay as they are: {why}");
        }
        self.link = Link::Lost;
    }

    pub fn set_trouble(&mut self, trouble: Option<String>) {
        if trouble != self.trouble {
            match &trouble {
                Some(trouble) => tracing::error!("coordination: {trouble}"),
                None => tracing::info!("coordination: all is well again"),
            }
        }
        self.trouble = trouble;
    }

    /// Notices that the connection was lost for a moment.
    pub async fn notice_gap(&mut self, states: &mut StateWatcher) {
        tokio::select! {
            biased;
            state = states.changed() => self.lose(&format!("the session is {state}")),
            () = ready(()) => {}
        }
    }

    /// When to look though nothing seems to have changed.
    pub fn next_look(&self) -> Instant {
        let [luck] = random::octets();
        let usual = if self.trouble.is_some() { LOOK_IN_TROUBLE } else { LOOK };
        let usual = Instant::now() + usual * (128 + u32::from(luck)) / 256;
        self.roster.deadline().map_or(usual, |deadline| deadline.min(usual))
    }

    /// Waits between two tries.
    pub async fn pause(&mut self) {
        sleep(self.backoff.next()).await;
    }
}
