//! A cluster of caches in a world of its own: simulated time, network, upstream
//! servers, clients and coordination service around the real cells of `cache`.
//!
//! One seed decides everything that happens, so that a world in which
//! something went wrong can be had again: [`run`] it with the same seed. What
//! must hold is in [`checkers`], one type for each property. That a checker
//! would notice is shown by a [`Sabotage`]: something wrong with the world
//! that it has to find.
//!
//! Beside it, [`drains`] are simulated in the same spirit.
#![forbid(unsafe_code)]

mod chance;
pub mod checkers;
pub mod drains;
mod inquiry;
mod message;
mod names;
mod network;
mod node;
mod plan;
mod queue;
mod sabotage;
mod service;
mod settings;
mod trace;
mod upstream;
mod world;

pub use chance::Chance;
pub use checkers::Violation;
pub use sabotage::Sabotage;
pub use settings::{Kind, Settings};
pub use world::{Outcome, Tally, run, run_kind};
