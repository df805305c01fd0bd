//! Who is at the other end of the control socket: what the kernel recorded when
//! it connected (`SO_PEERCRED`). Nothing that the client says is part of it.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use drain::engine::{Actor, User};
use nix::unistd::Uid;
use tokio::net::UnixStream;

use super::error;

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
        let name = tokio::task::spawn_blocking(move || name_of(self.uid)).await.ok().flatten();
        Actor::user(User { uid: self.uid, gid: self.gid, pid: self.pid, name })
    }
}

/// The name of an account in the passwd database.
fn name_of(uid: u32) -> Option<String> {
    let user = nix::unistd::User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    (user.name.len() <= NAME_LEN_MAX).then_some(user.name)
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.get::<Peer>().copied().ok_or_else(|| {
            let text = "the kernel does not say who is connected; accepted: a connection to the \
                        control socket";
            error(StatusCode::FORBIDDEN, text)
        })
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
}
