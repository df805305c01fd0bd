//! A view: the members at one moment, numbered.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::member::{Member, Standing};

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
        Ok(View { number, digest: digest(&members), members })
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

/// Hashed octet by octet rather than by `derive(Hash)`, whose form may differ
/// between compilers and processors, under fixed keys: all nodes must come to
/// the same digest.
fn digest(members: &[Member]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(0, 0);
    for member in members {
        write_text(&mut hasher, &member.name);
        write_text(&mut hasher, &member.datacenter);
        hasher.write(&member.incarnation.to_le_bytes());
        write_text(&mut hasher, &member.peer.to_string());
        hasher.write(&(member.listen.len() as u64).to_le_bytes());
        member.listen.iter().for_each(|listen| write_text(&mut hasher, &listen.to_string()));
        let standing = match member.standing {
            Standing::Serving => 0,
            Standing::Draining => 1,
        };
        hasher.write(&[member.cells, standing]);
    }
    hasher.finish()
}

/// With its length first, so that no two lists of texts are alike.
fn write_text(hasher: &mut SipHasher24, text: &str) {
    hasher.write(&(text.len() as u64).to_le_bytes());
    hasher.write(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{count, member, members_in_two_orders, view};

    #[test]
    fn members_are_found_by_name() {
        let mut all = count(3);
        all.reverse();
        let view = view(&all);
        assert_eq!(view.find("node-01"), Some(0));
        assert_eq!(view.find("node-03"), Some(2));
        assert_eq!(view.find("node-04"), None);
        assert_eq!(view.find(""), None);
        assert_eq!(view.members()[1].name, all[1].name);
        assert_eq!(view.number(), 1);
    }

    #[test]
    fn members_that_make_no_view_are_refused() {
        let check = |members, expected: &str| {
            assert_eq!(View::new(1, members).unwrap_err().to_string(), expected);
        };
        check(vec![member("b"), member("a"), member("b")], "two members are called b");
        check(vec![member("a"), Member { cells: 0, ..member("b") }], "member b has no cells");
        check(count(MEMBERS_MAX + 1), "1025 members; accepted: at most 1024");
        assert!(View::new(1, count(MEMBERS_MAX)).is_ok());
        assert!(View::new(1, vec![]).is_ok());
    }

    #[test]
    fn digests_change_when_a_member_does() {
        let plain = || member("a");
        let (first, second) =
            ("192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap());
        let views = [
            vec![],
            vec![plain()],
            vec![plain(), member("b")],
            vec![member("b")],
            vec![Member { datacenter: "elsewhere".into(), ..plain() }],
            vec![Member { incarnation: 2, ..plain() }],
            vec![Member { peer: first, ..plain() }],
            vec![Member { listen: vec![], ..plain() }],
            vec![Member { listen: vec![first, second], ..plain() }],
            vec![Member { listen: vec![second, first], ..plain() }],
            vec![Member { cells: 2, ..plain() }],
            vec![Member { standing: Standing::Draining, ..plain() }],
            // Octets must not pass from one field to the next.
            vec![Member { name: "ad".into(), datacenter: "c".into(), ..plain() }],
        ];
        let digests: Vec<u64> = views.iter().map(|members| view(members).digest()).collect();
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest), "{:?}", views[index]);
        }
    }

    /// Nodes of different versions must come to the same digest.
    #[test]
    fn digests_stay_what_they_were() {
        assert_eq!(view(&count(3)).digest(), 0xb2dd_c94f_7180_1bb0);
    }

    proptest! {
        #[test]
        fn neither_order_nor_number_is_in_the_digest(
            (members, shuffled) in members_in_two_orders(0..6),
            number: u64,
        ) {
            let (one, other) = (view(&members), View::new(number, shuffled).unwrap());
            prop_assert_eq!(one.digest(), other.digest());
            prop_assert_eq!(one.members(), other.members());
        }
    }
}
