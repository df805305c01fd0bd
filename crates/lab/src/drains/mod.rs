//! Drains in a world of their own: simulated datacenters, traffic, sessions,
//! stores and links around the real engine of `drain`.
//!
//! [`world`] is what is drained. [`driver`] carries a run out in it, as whoever
//! drives the engine has to, and [`faults`] are what goes wrong on the way. What
//! must hold is in [`checkers`]; that each would notice is shown by a
//! [`Sabotage`]. One seed decides everything.

mod ablation;
pub mod checkers;
mod coverage;
pub mod driver;
pub mod faults;
mod report;
mod sabotage;
mod scenario;
mod simulate;
mod sketch;
mod stock;
mod trial;
pub mod world;

pub use ablation::Ablation;
pub use coverage::Coverage;
pub use report::{Report, Series, TaskReport, UserErrors};
pub use sabotage::Sabotage;
pub use scenario::Scenario;
pub use simulate::{Options, Simulation, originals, pass_downtime, simulate};
pub use sketch::Sketch;
pub use trial::{OUTAGE, Outcome, Trial, run};
pub use world::{Site, World};
