//! A cluster of caches as its nodes see it: who is a member, which of 16384
//! slots a question falls into, and which members own that slot, in order.
//!
//! Everything here is a value made from a [`View`]; nothing waits, and nothing
//! knows where views come from. What a node routes by is a [`Routing`]; what a
//! change of members asks of it is in [`Moves`].
#![forbid(unsafe_code)]

mod epoch;
mod member;
mod moves;
mod overflow;
mod placement;
mod rendezvous;
mod ring;
mod routing;
mod slot;
mod table;
#[cfg(test)]
mod testing;
mod view;

pub use epoch::Epoch;
pub use member::{Member, Standing, name_tag};
pub use moves::Moves;
pub use overflow::{LoadBound, pick};
pub use placement::{Placement, UnknownPlacement};
pub use routing::Routing;
pub use slot::{HashKey, SLOTS, Slot};
pub use table::{RANKS_MAX, SlotTable};
pub use view::{MEMBERS_MAX, View, ViewError};
