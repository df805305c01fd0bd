//! The list of members as somebody sees it who is none of them.
//!
//! Nothing is written, not even the parents of members: a cluster that is not
//! there yet is looked for until it is.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cluster::Member;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use zookeeper_client::{Client, OneshotWatcher, StateWatcher};

use super::super::config::ZooKeeperPlace;
use super::SETTLE;
use super::contact::Contact;
use super::znodes::{Failure, Znodes};

/// Follows the members, from session to session.
#[derive(Debug)]
pub struct Observation {
    place: ZooKeeperPlace,
    znodes: Znodes,
    contact: Contact,
    changes: watch::Sender<Arc<[Member]>>,
}

impl Observation {
    pub fn new(
        place: ZooKeeperPlace,
        return_grace: Duration,
        changes: watch::Sender<Arc<[Member]>>,
        reached: Arc<AtomicBool>,
    ) -> Self {
        let znodes = Znodes::new(&place.root);
        Observation { place, znodes, contact: Contact::new(return_grace, reached), changes }
    }

    /// Publishes every change. Never gives up: whatever fails is tried again,
    /// and what was published last stays until then.
    pub async fn run(mut self) {
        loop {
            if let Some(client) = self.contact.connect(&self.place).await {
                self.follow(&client).await;
            }
            self.contact.pause().await;
        }
    }

    /// Follows the members for the time of one session.
    async fn follow(&mut self, client: &Client) {
        let mut states = client.state_watcher();
        // Longer than the client takes to find that its session is over.
        let answer_max = client.session_timeout() * 2;
        while !client.state().is_terminated() {
            match timeout(answer_max, self.look(client, &mut states)).await {
                Ok(Ok(watch)) => {
                    self.contact.reach();
                    self.wait(watch, &mut states).await;
                }
                Ok(Err(Failure::Overtaken)) => self.contact.pause().await,
                Ok(Err(Failure::Lost(why) | Failure::Refused(why))) => {
                    self.contact.lose(&why);
                    self.contact.pause().await;
                }
                // A late answer could confuse the watch of the next look.
                Err(_) => return self.contact.lose("it does not answer"),
            }
        }
        self.contact.lose(&format!("the session is over: {}", client.state()));
    }

    /// Looks at the list and publishes it; a watch for changes if there is a
    /// list.
    async fn look(
        &mut self,
        client: &Client,
        states: &mut StateWatcher,
    ) -> Result<Option<OneshotWatcher>, Failure> {
        if !self.znodes.find(client).await? {
            // It may have had a list before, and lost it with its memory.
            self.contact.roster.lose();
            self.contact.set_trouble(Some(format!(
                "there is no {}: no node has registered there yet, or `root` is another",
                self.znodes.members()
            )));
            return Ok(None);
        }
        let (listing, watch) = self.znodes.list(client).await?;
        self.contact.notice_gap(states).await;
        self.contact.roster.update(Instant::now(), listing);
        self.publish();
        Ok(Some(watch))
    }

    /// Publishes the members, unless nobody is left: then whoever was there
    /// last is as good a guess as any.
    fn publish(&mut self) {
        let members: Arc<[Member]> = self.contact.roster.members().into();
        if members.is_empty() {
            let path = self.znodes.members();
            self.contact.set_trouble(Some(format!("{path} is empty; the last members stay")));
            return;
        }
        self.contact.set_trouble(None);
        self.changes.send_if_modified(|last| {
            let changes = **last != *members;
            *last = members;
            changes
        });
    }

    /// Waits for something to look at.
    async fn wait(&mut self, watch: Option<OneshotWatcher>, states: &mut StateWatcher) {
        let next = self.contact.next_look();
        let changed = async {
            match watch {
                Some(watch) => drop(watch.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // First: who is missing after a gap may not have gone.
            biased;
            state = states.changed() => {
                return self.contact.lose(&format!("the session is {state}"));
            }
            () = changed => {}
            () = sleep_until(next) => {}
        }
        sleep(SETTLE).await;
    }
}
