//! One node as the others know it.

use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::Arc;

use siphasher::sip::SipHasher24;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its name, which no other member has.
    pub name: Arc<str>,
    /// The datacenter it stands in; a label.
    pub datacenter: Arc<str>,
    /// Drawn at every start: tells a node from its former self.
    pub incarnation: u64,
    /// Where it listens for other members: datagrams and gRPC.
    pub peer: SocketAddr,
    /// Where it answers clients, for balancers in front of it.
    pub listen: Vec<SocketAddr>,
    /// Threads among which it divides its slots, at least one.
    pub cells: u8,
    /// Whether it may own slots.
    pub standing: Standing,
}

/// Whether a member may own slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It takes its share.
    Serving,
    /// It is on its way out: it owns nothing, answers what it is asked, and
    /// hands over what it has.
    Draining,
}

/// Stands for a member's name where that would be too long. No secret: the
/// same everywhere.
pub fn name_tag(name: &str) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(0x6e6f_6465, 0);
    hasher.write(name.as_bytes());
    hasher.finish()
}
