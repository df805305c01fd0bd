//! Virtual name servers: many addresses, one host.
//!
//! A fleet has up to 65536 virtual name servers. Each has an address of its
//! own, and a zone is answered on the few of its shard, so that a flood on one
//! zone reaches no more than those.
//!
//! The sockets need to know which address is which server ([`pool`]), which of
//! them this host serves now ([`served`]), and what keeps them from being
//! anything else ([`filter`]). Zones need their shards ([`assignments`]), whose
//! servers have names ([`names`]) in zones of the fleet's own ([`own_zones`]).
//! [`state`] holds it together: which host has which servers ([`map`]), and
//! which are switched off.

pub mod assignments;
pub mod command;
pub mod drill;
pub mod filter;
pub mod map;
pub mod names;
pub mod own_zones;
pub mod pool;
pub mod served;
pub mod state;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};

use authority::Placement;
use socket2::Socket;
use wire::{DropReason, Name};

pub use assignments::Unkept;
pub use pool::{Family, Pool};
pub use served::Served;
pub use state::{FleetState, OFF_SECS_MAX, Placing};

/// The virtual name servers that a host may have.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    pub pool: Pool,
    /// UDP and TCP; 0 takes a free one.
    pub port: u16,
}

/// Knows where zones live. Whoever reads zones asks for each.
pub trait Placements: std::fmt::Debug + Send + Sync {
    /// Where the zone `origin`, lowered, is answered; an error says why it
    /// cannot be.
    fn placement_of(&self, origin: Name<'_>) -> Result<Placement, String>;

    /// Keeps what was said of new zones. Those that it names in the error must
    /// not be served.
    fn commit(&self) -> Result<(), Unkept> {
        Ok(())
    }
}

/// Whose questions a socket takes.
#[derive(Clone, Copy, Debug)]
pub enum Door {
    /// Those to an address of the host, where every zone is answered.
    Host,
    /// Those to virtual name servers.
    Fleet(Pool),
}

impl Door {
    /// Keeps a socket that is not bound yet to what it is for.
    pub fn keep(&self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        let Door::Fleet(pool) = self else { return Ok(()) };
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        if address.is_ipv6() {
            // Answers leave from addresses that are routed here and need not
            // be those of an interface. IPv4 allows that by itself.
            socket.set_freebind_v6(true)?;
        }
        match pool.range(family) {
            Some((first, last)) => {
                socket.attach_filter(&filter::only(first, last)).map_err(|error| {
                    io::Error::other(format!("the system takes no filter for it: {error}"))
                })
            }
            None => Err(io::Error::other("the pool has no such addresses")),
        }
    }

    /// Which virtual name server a question was sent to, if it may come in.
    /// The kernel's filter lets no address outside of the pool pass; it does
    /// not know which servers the host has now.
    #[inline]
    pub fn admit(
        &self,
        served: &Served,
        destination: impl FnOnce() -> Option<IpAddr>,
    ) -> Result<Option<u16>, DropReason> {
        let Door::Fleet(pool) = self else { return Ok(None) };
        let server = destination().and_then(|address| pool.server_of(address));
        match server {
            Some(server) if served.contains(server) => Ok(Some(server)),
            _ => Err(DropReason::NotServed),
        }
    }
}
