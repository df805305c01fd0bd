//! Virtual name servers: many addresses, one host.

use authority::Placement;
use wire::Name;

/// Knows where zones live. Whoever reads zones asks for each.
pub trait Placements: std::fmt::Debug + Send + Sync {
    /// Where the zone `origin`, lowered, is answered.
    fn placement_of(&self, origin: Name<'_>) -> Placement;
}
