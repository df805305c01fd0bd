//! The DNS fast path: a question read from untrusted bytes, an answer written
//! into a caller's buffer. Nothing here allocates, blocks or knows a zone.
//! Everything else about DNS data comes from the `domain` crate.
#![forbid(unsafe_code)]

pub mod name;

pub use name::Name;
