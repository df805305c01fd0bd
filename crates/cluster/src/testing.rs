//! Members and views for tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use proptest::prelude::*;

use crate::member::{Member, Standing};
use crate::view::View;

pub(crate) fn member(name: &str) -> Member {
    Member {
        name: name.into(),
        datacenter: "dc".into(),
        incarnation: 1,
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 7053)),
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))],
        cells: 1,
        standing: Standing::Serving,
    }
}

/// As many members.
pub(crate) fn count(members: usize) -> Vec<Member> {
    (1..=members).map(|number| member(&format!("node-{number:02}"))).collect()
}

pub(crate) fn view(members: &[Member]) -> View {
    View::new(1, members.to_vec()).expect("members have names of their own")
}

/// The same members twice, the second time in any order.
pub(crate) fn members_in_two_orders(
    count: Range<usize>,
) -> impl Strategy<Value = (Vec<Member>, Vec<Member>)> {
    members(count).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle()))
}

/// Members with different names, in order, some of them on their way out.
pub(crate) fn members(count: Range<usize>) -> impl Strategy<Value = Vec<Member>> {
    prop::collection::btree_map("[a-z0-9.-]{1,12}", (any::<u64>(), 0..8u8), count).prop_map(|all| {
        let standing = |chance| match chance {
            0 => Standing::Draining,
            _ => Standing::Serving,
        };
        all.into_iter()
            .map(|(name, (incarnation, chance))| Member {
                incarnation,
                standing: standing(chance),
                ..member(&name)
            })
            .collect()
    })
}
