//! Shuffle shards by construction.
#![forbid(unsafe_code)]

mod admission;
mod allocator;
pub mod bound;
mod code;
mod count;
mod design;
mod fleet;
mod key;
mod pairs;
mod plan;
mod quadruple;
mod ring;
mod search;
mod shard;

pub use admission::Admission;
pub use allocator::{Allocator, StateError};
pub use design::{Design, Guarantee};
pub use fleet::{Columns, Fleet, FleetError, STRIPE, WORKERS_MAX, Worker};
pub use key::{Key, KeyError};
pub use plan::{Change, Plan, Refusal, Wish};
pub use shard::{DesignIndex, SIZE_MAX, Shard, Slot};
