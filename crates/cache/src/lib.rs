//! The engine of a clustered DNS cache, without any I/O: time, questions,
//! answers and messages come in as values, and what is to be sent goes out as
//! values.
#![forbid(unsafe_code)]

pub mod answer;
pub mod cell;
pub mod counts;
pub mod peer;
pub mod question;
pub mod sketch;
mod slab;
pub mod store;
pub mod time;
pub mod upstream;

pub use answer::Answer;
pub use cell::{Cell, Config, Effects};
pub use counts::Counts;
pub use question::{Bits, Question};
pub use time::Moment;
