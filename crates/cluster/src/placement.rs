//! The ways to give slots to members.

use std::fmt;
use std::str::FromStr;

/// How slots are given to members. All nodes of a cluster must use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Every member ranks every slot by itself; a slot belongs to those that
    /// rank it highest. Shares are even, a change of members moves nothing
    /// without need, and the next in rank is who inherits.
    #[default]
    Rendezvous,
    /// Consistent hashing with bounded loads, as DNSZoo has it: to compare
    /// with.
    BoundedRing,
}

impl Placement {
    /// Every placement.
    pub const ALL: [Placement; 2] = [Placement::Rendezvous, Placement::BoundedRing];

    /// The name used in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Rendezvous => "rendezvous",
            Placement::BoundedRing => "bounded-ring",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Placement {
    type Err = UnknownPlacement;

    fn from_str(text: &str) -> Result<Self, UnknownPlacement> {
        let named = Placement::ALL.into_iter().find(|placement| placement.name() == text);
        named.ok_or_else(|| UnknownPlacement(text.to_owned()))
    }
}

/// A text that names no placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPlacement(pub String);

impl fmt::Display for UnknownPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accepted = Placement::ALL.map(Placement::name).join(", ");
        write!(f, "no placement is called {:?}; accepted: {accepted}", self.0)
    }
}

impl std::error::Error for UnknownPlacement {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for placement in Placement::ALL {
            assert_eq!(placement.to_string().parse(), Ok(placement));
        }
        assert_eq!(format!("{:>12}.", Placement::Rendezvous), "  rendezvous.");
    }

    #[test]
    fn other_names_are_refused_with_those_accepted() {
        for text in ["", "Rendezvous", "bounded_ring", " rendezvous"] {
            assert_eq!(text.parse::<Placement>(), Err(UnknownPlacement(text.to_owned())));
        }
        assert_eq!(
            "ring".parse::<Placement>().unwrap_err().to_string(),
            "no placement is called \"ring\"; accepted: rendezvous, bounded-ring"
        );
    }
}
