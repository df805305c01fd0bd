//! The engine of a clustered DNS cache, without any I/O: time, questions,
//! answers and messages come in as values, and what is to be sent goes out as
//! values.
#![forbid(unsafe_code)]

pub mod answer;
pub mod question;
pub mod sketch;
pub mod store;
pub mod time;

pub use answer::{Answer, Asked, Kind, Refusal, ReplyTo, TtlLimits, Written};
pub use question::{Bits, Question};
pub use store::{Limits, Store};
pub use time::Moment;
