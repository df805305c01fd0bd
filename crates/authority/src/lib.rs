//! Zones compiled to immutable snapshots, and the answer to a question as a
//! value. Nothing here touches a socket, a clock or a file.
#![forbid(unsafe_code)]

pub mod problem;
pub mod records;
pub mod zonefile;

pub use problem::{Position, Problem, Problems, Severity};
pub use records::{Record, RecordSet};
