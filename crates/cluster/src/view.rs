//! A view: the members at one moment, numbered.

use std::fmt;
use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;

use crate::member::Member;

/// Members of a cluster at the most.
pub const MEMBERS_MAX: usize = 1024;

/// The members of a cluster at one moment.
///
/// The number orders views where one source numbers them for all nodes; the
/// digest says whether two nodes see the same members, whoever numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    number: u64,
    digest: u64,
    /// By name.
    members: Vec<Member>,
}

/// Why members make no view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewError {
    /// Two members have this name.
    Duplicate(String),
    /// More than [`MEMBERS_MAX`].
    TooMany(usize),
    /// This member has no cells.
    NoCells(String),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewError::Duplicate(name) => write!(f, "two members are called {name}"),
            ViewError::TooMany(count) => {
                write!(f, "{count} members; accepted: at most {MEMBERS_MAX}")
            }
            ViewError::NoCells(name) => write!(f, "member {name} has no cells"),
        }
    }
}

impl std::error::Error for ViewError {}

impl View {
    /// A view of `members`, in any order.
    pub fn new(number: u64, mut members: Vec<Member>) -> Result<Self, ViewError> {
        if members.len() > MEMBERS_MAX {
            return Err(ViewError::TooMany(members.len()));
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(ViewError::Duplicate(pair[0].name.to_string()));
        }
        if let Some(member) = members.iter().find(|member| member.cells == 0) {
            return Err(ViewError::NoCells(member.name.to_string()));
        }
        // Fixed keys: all nodes must come to the same digest.
        let mut hasher = SipHasher24::new_with_keys(0, 0);
        members.hash(&mut hasher);
        Ok(View { number, digest: hasher.finish(), members })
    }

    /// The number that whoever keeps the members gave it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Equal for equal members.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The members, by name.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The place of the member called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.members.binary_search_by(|member| (*member.name).cmp(name)).ok()
    }
}
