//! Who is at the other end of the control socket: what the kernel recorded when
//! it connected (`SO_PEERCRED`). Nothing that the client says is part of it.

use std::sync::LazyLock;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use drain::engine::{Actor, User};
use nix::unistd::Uid;
use tokio::net::UnixStream;

use super::error;

/// Where the kernel says which uid stands for those without a mapping, and the one
/// that it is by default.
const OVERFLOW_UID_FILE: &str = "/proc/sys/kernel/overflowuid";
const OVERFLOW_UID: u32 = 65534;
/// The longest name of an account that is kept, in bytes.
const NAME_LEN_MAX: usize = 256;

/// The credentials of a connected process, as of the moment it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub pid: Option<i32>,
}

impl Peer {
    /// `None` if the kernel does not tell: then nothing may be changed.
    pub fn of(stream: &UnixStream) -> Option<Peer> {
        let known = stream.peer_cred().ok()?;
        Some(Peer { uid: known.uid(), gid: known.gid(), pid: known.pid() })
    }

    /// The same with the name that the account has now. The database may be on
    /// another machine: looking there may take a while.
    pub async fn actor(self) -> Actor {
        let name = match self.account().await {
            Account::Named(name) => Some(name),
            Account::None | Account::Unknown | Account::Unmapped => None,
        };
        Actor::user(User { uid: self.uid, gid: self.gid, pid: self.pid, name })
    }

    async fn account(self) -> Account {
        let looked = tokio::task::spawn_blocking(move || account_of(self.uid)).await;
        looked.unwrap_or(Account::Unknown)
    }

    /// Why this process may not change anything, if so. A uid without an account
    /// is one that a user took in a user namespace: it may look, as its user may,
    /// but nobody could say later who it was. When the database does not answer,
    /// the mode of the socket decides alone: a disaster may have taken it away.
    async fn refusal(self) -> Option<String> {
        if is_unmapped(self.uid) {
            return Some(format!(
                "uid {} has no mapping here: the kernel shows every user outside of the user \
                 namespace of the server as this one, and it may only look; accepted: an operator \
                 whose uid is mapped into the user namespace of the server",
                self.uid
            ));
        }
        let is_own = self.uid == 0 || self.uid == rustix::process::geteuid().as_raw();
        (!is_own && self.account().await == Account::None).then(|| {
            format!(
                "uid {} has no account on this host, and may only look; accepted: an operator \
                 whose uid the passwd database knows, root, or the user of the server",
                self.uid
            )
        })
    }
}

/// Lets only those change something who have an account on this host.
pub async fn require_account(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let refusal = match request.extensions().get::<Peer>().copied() {
        Some(peer) => peer.refusal().await,
        None => Some(UNKNOWN_PEER.to_owned()),
    };
    match refusal {
        None => next.run(request).await,
        Some(text) => error(StatusCode::FORBIDDEN, text),
    }
}

const UNKNOWN_PEER: &str = "the kernel does not say who is connected; accepted: a connection to \
                            the control socket";

/// What the passwd database says of a uid.
#[derive(Debug, PartialEq, Eq)]
enum Account {
    Named(String),
    None,
    /// It does not answer.
    Unknown,
    /// It is the uid of everybody who has none here, whatever name the database has.
    Unmapped,
}

/// Whether the kernel says that it is the uid of whoever has none in the user
/// namespace of this process.
fn is_unmapped(uid: u32) -> bool {
    static OVERFLOW: LazyLock<u32> = LazyLock::new(|| {
        let text = std::fs::read_to_string(OVERFLOW_UID_FILE).unwrap_or_default();
        text.trim().parse().unwrap_or(OVERFLOW_UID)
    });
    uid == *OVERFLOW
}

fn account_of(uid: u32) -> Account {
    if is_unmapped(uid) {
        return Account::Unmapped;
    }
    match nix::unistd::User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) if user.name.len() <= NAME_LEN_MAX => Account::Named(user.name),
        Ok(_) => Account::None,
        Err(_) => Account::Unknown,
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts
            .extensions
            .get::<Peer>()
            .copied()
            .ok_or_else(|| error(StatusCode::FORBIDDEN, UNKNOWN_PEER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_tells_who_is_connected() {
        let (own, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&own).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.pid, Some(std::process::id() as i32));
        let actor = peer.actor().await;
        assert_eq!(actor.uid(), Some(peer.uid));
        assert!(actor.to_string().contains(&format!("uid {}", peer.uid)), "{actor}");
    }

    #[tokio::test]
    async fn a_uid_without_an_account_may_change_nothing() {
        let of = |uid| Peer { uid, gid: 1, pid: None };
        let refusal = of(2_000_100_000).refusal().await.unwrap();
        assert!(refusal.starts_with("uid 2000100000 has no account on this host"), "{refusal}");
        assert_eq!(of(2_000_100_000).actor().await.to_string(), "uid 2000100000");
        // The user of the server may be one that a container image does not name.
        for uid in [0, rustix::process::geteuid().as_raw()] {
            assert_eq!(of(uid).refusal().await, None);
        }
    }

    /// In a user namespace it is every user of the host without a mapping.
    #[tokio::test]
    async fn the_overflow_uid_is_nobody() {
        let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap();
        let peer = Peer { uid: text.trim().parse().unwrap(), gid: 1, pid: None };
        let refusal = peer.refusal().await.expect("a refusal");
        assert!(refusal.contains("has no mapping here"), "{refusal}");
        let actor = peer.actor().await;
        assert!(!actor.is_person(), "{actor}");
    }
}
