//! How the nodes of a cluster talk: with whom, and safely.
//!
//! All nodes of a cluster hold one secret ([`key`]), and whoever does not hold
//! it is nobody: there is no way to talk to a node in the open. A node has one
//! peer port. What is asked per question goes in datagrams, each sealed by
//! itself ([`seal`]), straight from a cell to a cell ([`socket`]). What is too
//! long for a datagram, or must be acknowledged, goes over connections with
//! TLS ([`tls`]) on the TCP port with the same number: gRPC ([`grpc`]), with a
//! server ([`server`]) and a client for every other member ([`clients`]).
//!
//! The cluster is one domain of trust. Its key keeps strangers out; it does
//! not keep a node that holds it from posing as another. Strangers who see what
//! nodes send cannot read or make it, but could send it again, or elsewhere; so
//! datagrams and connections are bound to the node they are for ([`NodeTag`]).

pub mod clients;
pub mod grpc;
pub mod key;
pub mod outbox;
pub mod seal;
pub mod server;
pub mod socket;
pub mod steer;
pub mod tls;

#[cfg(test)]
mod tests;

use std::fmt;

pub use clients::PeerClients;
pub use grpc::{Flush, Frame, PeerService, Receiver};
pub use key::{ClusterKey, create_file as create_key_file};
pub use outbox::Outbox;
pub use seal::{Opener, Recipient, Refusal, Sealer};
pub use server::{PeerServer, ServerCounters};
pub use socket::{GossipSocket, RefusalCounters, bind};

/// The cell number of what is no cell: a node's gossip.
pub const GOSSIP: u8 = 255;

/// Stands for a node's name where that would be too long.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeTag([u8; 8]);

impl NodeTag {
    /// Gossip is for whoever is reached at an address: a node that joins knows
    /// no names yet.
    const ANYBODY: NodeTag = NodeTag([0; 8]);

    /// The tag of the node called `name`.
    pub fn of(name: &str) -> Self {
        NodeTag::from_tag(cluster::name_tag(name))
    }

    /// The tag of the node whose name has this `cluster::name_tag`.
    pub fn from_tag(tag: u64) -> Self {
        NodeTag(tag.to_be_bytes())
    }
}

impl fmt::Display for NodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for NodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeTag({self})")
    }
}
