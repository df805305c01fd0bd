//! The znodes of a cluster, and the calls that read and write them.
//!
//! ```text
//! /pharos/members/NAME   ephemeral: the member; never changed, only replaced
//! /pharos/epoch          what all agree on; changed by compare and set
//! ```
//!
//! A member that changes replaces its znode, so every change is one of the
//! list of members: one watch sees all, and the number of the list's last
//! change (`pzxid`) numbers every state of it, the same for all nodes.

use std::sync::Arc;

use cluster::{MEMBERS_MAX, Member};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, OneshotWatcher};

use super::super::record::{self, Agreement};
use super::roster::{Listed, Listing};

/// Tries of a compare and set, against nodes that do the same.
const TRIES_MAX: usize = 10;

/// Anybody who reaches the service may do anything, as is usual for it; nodes
/// prove themselves to each other, not to it.
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// Why a call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The service cannot be reached, or does not say what it should.
    Lost(String),
    /// Somebody else was faster: look again.
    Overtaken,
    /// The service does not want to.
    Refused(String),
}

impl Failure {
    fn new(what: &str, path: &str, error: &Error) -> Self {
        let text = format!("cannot {what} {path}: {error}");
        match error {
            Error::NodeExists | Error::NoNode | Error::BadVersion => Failure::Overtaken,
            Error::NoAuth
            | Error::InvalidAcl
            | Error::NotEmpty
            | Error::NotReadOnly
            | Error::NoChildrenForEphemerals
            | Error::QuotaExceeded
            | Error::BadArguments(_) => Failure::Refused(text),
            _ => Failure::Lost(text),
        }
    }
}

/// What became of a node's own registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It was there.
    Kept,
    /// It was not there, and now is.
    Created,
    /// It was that of a former self, or of this one before a change.
    Replaced,
    /// This later node has the name.
    Taken(Box<Member>),
}

/// What the service stores of what all agree on.
#[derive(Debug)]
pub enum Stored {
    /// This, and a watch for changes.
    Agreement(Agreement, OneshotWatcher),
    /// Something that is no agreement.
    Nonsense(String),
}

/// Where the znodes are.
#[derive(Debug)]
pub struct Znodes {
    members: String,
    epoch: String,
}

impl Znodes {
    pub fn new(root: &str) -> Self {
        Znodes { members: format!("{root}/members"), epoch: format!("{root}/epoch") }
    }

    fn member(&self, name: &str) -> String {
        format!("{}/{name}", self.members)
    }

    /// Where members register.
    pub fn members(&self) -> &str {
        &self.members
    }

    /// Says whether there is a list of members, and makes sure that what is
    /// read next is not older than what other nodes have read already.
    pub async fn find(&self, client: &Client) -> Result<bool, Failure> {
        let failed = |error| Failure::new("look at", &self.members, &error);
        client.sync(&self.members).await.map_err(failed)?;
        Ok(client.check_stat(&self.members).await.map_err(failed)?.is_some())
    }

    /// Makes the parents of members if there are none; else as
    /// [`Znodes::find`].
    pub async fn prepare(&self, client: &Client) -> Result<(), Failure> {
        if !self.find(client).await? {
            let made = client.mkdir(&self.members, &PERSISTENT).await;
            made.map_err(|error| Failure::new("make", &self.members, &error))?;
        }
        Ok(())
    }

    /// Makes the service list `own`, unless a later node has its name.
    pub async fn register(&self, client: &Client, own: &Member) -> Result<Registration, Failure> {
        let path = self.member(&own.name);
        let failed = |error| Failure::new("register as", &path, &error);
        let data = record::write_member(own).into_bytes();
        let (found, stat) = match client.get_data(&path).await {
            Ok(found) => found,
            Err(Error::NoNode) => {
                client.create(&path, &data, &EPHEMERAL).await.map_err(failed)?;
                return Ok(Registration::Created);
            }
            Err(error) => return Err(failed(error)),
        };
        let is_ours = stat.ephemeral_owner == client.session_id().0;
        if is_ours && found == data {
            return Ok(Registration::Kept);
        }
        if !is_ours
            && let Ok(other) = record::read_member(&own.name, &found)
            && rank(&other) > rank(own)
        {
            return Ok(Registration::Taken(Box::new(other)));
        }
        // Both or neither, so that nobody sees the list without this node.
        let mut change = client.new_multi_writer();
        change.add_delete(&path, Some(stat.version)).map_err(failed)?;
        change.add_create(&path, &data, &EPHEMERAL).map_err(failed)?;
        change.commit().await.map_err(|error| failed(error.into()))?;
        Ok(Registration::Replaced)
    }

    /// Takes the node called `name` off the list.
    pub async fn unregister(&self, client: &Client, name: &str) -> Result<(), Failure> {
        let path = self.member(name);
        client.delete(&path, None).await.map_err(|error| Failure::new("delete", &path, &error))
    }

    /// The members, and a watch for changes of them.
    pub async fn list(&self, client: &Client) -> Result<(Listing, OneshotWatcher), Failure> {
        let failed = |error| Failure::new("list", &self.members, &error);
        let (names, stat, watch) =
            client.get_and_watch_children(&self.members).await.map_err(failed)?;
        if names.len() > MEMBERS_MAX {
            return Err(Failure::Lost(format!(
                "{} has {} members; accepted: at most {MEMBERS_MAX}",
                self.members,
                names.len()
            )));
        }
        let mut listing = Listing { zxid: stat.pzxid, ..Listing::default() };
        let paths: Vec<String> = names.iter().map(|name| self.member(name)).collect();
        // All are asked for before the first answer is waited for.
        let answers: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
        for ((name, path), answer) in names.iter().zip(&paths).zip(answers) {
            let (octets, stat) =
                answer.await.map_err(|error| Failure::new("read", path, &error))?;
            if stat.czxid > listing.zxid {
                return Err(Failure::Overtaken);
            }
            let listed = match record::read_member(name, &octets) {
                Ok(member) => Some(Listed { member, created: stat.czxid }),
                Err(error) => {
                    tracing::debug!("coordination: {path} is no member: {error}");
                    None
                }
            };
            listing.listed.insert(Arc::from(name.as_str()), listed);
        }
        Ok((listing, watch))
    }

    /// Makes the service store what `wanted` makes of what it stores.
    pub async fn agree(
        &self,
        client: &Client,
        mut wanted: impl FnMut(Option<Agreement>) -> Agreement,
    ) -> Result<Stored, Failure> {
        let failed = |what, error| Failure::new(what, &self.epoch, &error);
        for _ in 0..TRIES_MAX {
            let (octets, stat, watch) = match client.get_and_watch_data(&self.epoch).await {
                Ok(found) => found,
                Err(Error::NoNode) => {
                    let first = record::write_agreement(&wanted(None));
                    match client.create(&self.epoch, first.as_bytes(), &PERSISTENT).await {
                        Ok(_) | Err(Error::NodeExists) => continue,
                        Err(error) => return Err(failed("create", error)),
                    }
                }
                Err(error) => return Err(failed("read", error)),
            };
            let stored = match record::read_agreement(&octets) {
                Ok(stored) => stored,
                // It may be of a later version; it is not ours to change.
                Err(error) => return Ok(Stored::Nonsense(format!("{}: {error}", self.epoch))),
            };
            let next = wanted(Some(stored));
            if next == stored {
                return Ok(Stored::Agreement(stored, watch));
            }
            // What this node writes itself is no news to it.
            drop(watch);
            let text = record::write_agreement(&next);
            match client.set_data(&self.epoch, text.as_bytes(), Some(stat.version)).await {
                Ok(_) | Err(Error::BadVersion | Error::NoNode) => {}
                Err(error) => return Err(failed("write", error)),
            }
        }
        Err(Failure::Overtaken)
    }
}

/// Of nodes with one name, that with the highest rank is the member. The
/// address decides between nodes that started at the same moment, so that
/// they do not replace each other for ever.
fn rank(member: &Member) -> (u64, std::net::SocketAddr) {
    (member.incarnation, member.peer)
}
