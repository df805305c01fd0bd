//! Small values that every room shares: generations that only go forward,
//! counters whose size is bounded whatever is counted, and text of others as it
//! may be shown.
//!
//! Counters here have one writer each: a thread owns its counters and writes
//! them without locked instructions, any other thread may read them.
#![forbid(unsafe_code)]

mod counter;
mod generation;
mod histogram;
pub mod text;
mod top;

pub use counter::Counter;
pub use generation::Generation;
pub use histogram::Histogram;
pub use top::Top;
