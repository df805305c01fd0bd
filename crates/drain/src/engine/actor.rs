//! Who does something to a run.
//!
//! An identity is what the kernel says of a process, never what somebody typed:
//! a typed name is a comment, kept beside it. Where two people are needed, two
//! uids are, and both have an account: one person can use thousands of uids that
//! have none. A server that acts by itself is never one of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Who did something, and the comment that came with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    #[serde(flatten)]
    pub identity: Identity,
    /// A name or a note that the client typed. It is shown and never counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// A user of the host, as the kernel told when it connected.
    User(User),
    /// A program that acts by itself, such as the server.
    Automatic { name: String },
    /// A typed name, from a record that is older than identities. It counts as
    /// nobody.
    Typed { name: String },
}

/// A user of the host. Only the uid is who it is: the rest is what was known
/// about the account and the process at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid: Option<i32>,
    /// The account's name in the passwd database, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
}

impl Actor {
    pub fn user(user: User) -> Actor {
        Actor { identity: Identity::User(user), comment: None }
    }

    pub fn automatic(name: &str) -> Actor {
        Actor { identity: Identity::Automatic { name: name.to_owned() }, comment: None }
    }

    /// The same with a comment; blanks alone are none.
    #[must_use]
    pub fn commented(self, comment: Option<&str>) -> Actor {
        let comment = comment.map(str::trim).filter(|comment| !comment.is_empty());
        Actor { comment: comment.map(str::to_owned), ..self }
    }

    /// Whether it is somebody with an account on the host. A process in a user
    /// namespace can take any subordinate uid of its user, and none of them has
    /// one. Root exists on every host, also where there is no passwd database.
    pub fn is_person(&self) -> bool {
        match &self.identity {
            Identity::User(user) => user.uid == 0 || user.name.is_some(),
            Identity::Automatic { .. } | Identity::Typed { .. } => false,
        }
    }

    /// The uid, of a user of the host.
    pub fn uid(&self) -> Option<u32> {
        match &self.identity {
            Identity::User(user) => Some(user.uid),
            Identity::Automatic { .. } | Identity::Typed { .. } => None,
        }
    }
}

/// `ann (uid 1000)`: the identity, without the comment.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Identity::User(User { uid, name: Some(name), .. }) => write!(f, "{name} (uid {uid})"),
            Identity::User(User { uid, name: None, .. }) => write!(f, "uid {uid}"),
            Identity::Automatic { name } => write!(f, "{name} (automatic)"),
            Identity::Typed { name } => write!(f, "{name} (typed)"),
        }
    }
}

/// Records that are older than identities have a name in the place of an actor.
impl<'de> Deserialize<'de> for Actor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Typed(String),
            Known {
                #[serde(flatten)]
                identity: Identity,
                #[serde(default)]
                comment: Option<String>,
            },
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Typed(name) => Actor { identity: Identity::Typed { name }, comment: None },
            Form::Known { identity, comment } => Actor { identity, comment },
        })
    }
}

/// Different people, each counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct People(BTreeMap<u32, Actor>);

impl People {
    /// Counts a person; who is none, or was counted already, changes nothing.
    pub fn count(&mut self, actor: &Actor) {
        if let Some(uid) = actor.uid().filter(|_| actor.is_person()) {
            self.0.entry(uid).or_insert_with(|| actor.clone());
        }
    }

    /// The actor that was counted for the same person.
    pub fn find(&self, actor: &Actor) -> Option<&Actor> {
        self.0.get(&actor.uid()?)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many there are here and there.
    pub fn len_with(&self, others: &People) -> usize {
        self.0.len() + others.0.keys().filter(|uid| !self.0.contains_key(uid)).count()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Actor> {
        self.0.values()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Why `actor` is not counted as one more person who has `done` something.
    pub(super) fn refusal(&self, actor: &Actor, done: &str) -> Option<String> {
        if actor.uid().is_none() {
            return Some(format!(
                "{actor} is no person, and counts as none; accepted: an operator on the control \
                 socket"
            ));
        }
        if !actor.is_person() {
            return Some(format!(
                "{actor} has no account on this host, and counts as nobody; accepted: an operator \
                 whose uid the passwd database knows"
            ));
        }
        let counted = self.find(actor)?;
        Some(format!(
            "{counted} has {done} already, and one uid counts once whatever name is typed; \
             accepted: an operator with another uid"
        ))
    }
}

/// Tests name people and mean a uid: each name has its own.
#[cfg(test)]
impl From<&str> for Actor {
    fn from(name: &str) -> Actor {
        let sum = |sum: u32, byte: u8| sum.wrapping_mul(31).wrapping_add(u32::from(byte));
        let uid = 1000 + name.bytes().fold(0, sum) % 60_000;
        Actor::user(User { uid, gid: uid, pid: None, name: Some(name.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, name: Option<&str>) -> Actor {
        Actor::user(User { uid, gid: 100, pid: Some(7), name: name.map(str::to_owned) })
    }

    #[test]
    fn an_actor_is_shown_as_its_identity() {
        assert_eq!(user(1000, Some("ann")).commented(Some("bob")).to_string(), "ann (uid 1000)");
        assert_eq!(user(4711, None).to_string(), "uid 4711");
        assert_eq!(Actor::automatic("pharos").to_string(), "pharos (automatic)");
    }

    #[test]
    fn an_actor_is_read_as_it_is_written_and_an_old_name_as_nobody() {
        for actor in [
            user(1000, Some("ann")).commented(Some("for bob")),
            user(0, None),
            Actor::automatic("pharos"),
        ] {
            let json = serde_json::to_string(&actor).unwrap();
            assert_eq!(serde_json::from_str::<Actor>(&json).unwrap(), actor, "{json}");
        }
        let json = serde_json::to_value(user(1000, Some("ann")).commented(Some("x"))).unwrap();
        let expected = serde_json::json!({
            "user": {"uid": 1000, "gid": 100, "pid": 7, "name": "ann"}, "comment": "x",
        });
        assert_eq!(json, expected);
        let old: Actor = serde_json::from_str("\"ann\"").unwrap();
        assert_eq!((old.uid(), old.to_string().as_str()), (None, "ann (typed)"));
    }

    #[test]
    fn people_are_counted_by_uid_alone() {
        let mut people = People::default();
        people.count(&user(1000, Some("ann")).commented(Some("ann")));
        people.count(&user(1000, Some("mallory")).commented(Some("mallory")));
        people.count(&Actor::automatic("pharos"));
        people.count(&serde_json::from_str("\"bob\"").unwrap());
        assert_eq!(people.len(), 1);
        // One account name, two uids: two people to the kernel.
        people.count(&user(1001, Some("ann")));
        assert_eq!(people.len(), 2);
    }

    #[test]
    fn a_uid_without_an_account_counts_as_nobody() {
        // A subordinate uid of a user namespace: one person has 65,536 of them.
        let mut people = People::default();
        people.count(&user(100_000, None));
        assert!(people.is_empty());
        assert_eq!(
            people.refusal(&user(100_000, None), "waived").unwrap(),
            "uid 100000 has no account on this host, and counts as nobody; accepted: an operator \
             whose uid the passwd database knows"
        );
        // Root exists on every host, also where there is no passwd database.
        assert_eq!(people.refusal(&user(0, None), "waived"), None);
        people.count(&user(0, None));
        assert_eq!(people.len(), 1);
    }

    #[test]
    fn a_refusal_says_whose_identity_counted() {
        let mut people = People::default();
        let ann = user(1000, Some("ann"));
        assert_eq!(people.refusal(&ann, "waived"), None);
        people.count(&ann);
        let refusal = people.refusal(&ann.clone().commented(Some("mallory")), "approved it");
        assert_eq!(
            refusal.unwrap(),
            "ann (uid 1000) has approved it already, and one uid counts once whatever name is \
             typed; accepted: an operator with another uid"
        );
        assert!(people.refusal(&Actor::automatic("pharos"), "x").unwrap().contains("no person"));
    }
}
