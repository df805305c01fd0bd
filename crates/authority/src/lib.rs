//! Zones compiled to immutable snapshots, and the answer to a question as a
//! value. Nothing here touches a socket, a clock or a file.
//!
//! The way of a zone: text is read to [`RecordSet`] by [`zonefile`], compiled
//! to an [`Image`] by [`Compiler`], and put into a [`Catalog`]. The way of a
//! question: [`respond()`] reads it, finds the zone in the catalogue, looks the
//! name up in the image, and writes the answer.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod compile;
mod denial;
mod hash;
mod image;
mod lookup;
pub mod placement;
pub mod problem;
pub mod records;
pub mod respond;
pub mod zonefile;

pub use catalog::{Catalog, Change, Totals};
pub use compile::Compiler;
pub use hash::{NameHasher, SuffixHashes};
pub use image::Image;
pub use placement::{Placement, Shard, ShardServer};
pub use problem::{Position, Problem, Problems, Severity};
pub use records::{Record, RecordSet};
pub use respond::{Arrival, Context, Outcome, Scratch, Settings, Transport, respond};
