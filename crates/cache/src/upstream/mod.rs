//! Upstream servers: which of them is asked, and what is in flight to them.

mod budget;
mod flight;
mod server;

pub use budget::{Budget, Turn};
pub use flight::{Flight, Flights};
pub use server::{Address, Group, Server, ServerId, Upstreams};
