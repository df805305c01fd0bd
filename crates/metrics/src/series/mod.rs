//! Series of samples in memory, bounded in every way.

mod labels;
mod store;

pub use labels::Labels;
pub use store::{Bounds, Counts, Sample, Store};

/// The label that holds the name of a metric.
pub const NAME: &str = "__name__";
