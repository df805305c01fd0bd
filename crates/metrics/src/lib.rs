//! Series of samples in memory, and a part of PromQL over them.
//!
//! Plain functions of their arguments: nothing here knows a socket or a clock, so
//! that real metrics (`health`) and simulated ones (`lab`) are evaluated by the
//! same code. What comes from outside is taken for hostile: every length, count
//! and depth is bounded.
#![forbid(unsafe_code)]

pub mod query;
pub mod series;
mod worst;

pub use worst::worst;
