//! What drains turn, and how: one small trait, and a driver for each thing that
//! is turned.
//!
//! A run names *knobs*. [`Drivers`] knows which driver a knob belongs to; the
//! [`Driver`] reads it, writes it, and reads it back. Everything that a driver
//! needs to remember beyond a call is in the thing it drives or may be lost.
#![forbid(unsafe_code)]

mod config;
mod doubt;
mod driver;
mod error;
pub mod exec;
mod fence;
pub mod haproxy;
mod pattern;
mod permit;
mod registry;

pub use config::{Config, ConfigProblem};
pub use doubt::{Doubt, doubts};
pub use driver::{Accepts, Action, Description, Driver, Gauged, KnobForm, Shape};
pub use error::{Error, Result};
pub use fence::{Fence, Fences};
pub use pattern::Pattern;
pub use permit::{Permit, ask_permit};
pub use registry::{CALL_MAX, Drivers};
