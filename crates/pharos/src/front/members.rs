//! Nodes that are the members of a cache cluster, as its coordination lists
//! them.
//!
//! Whoever can write there can list anything, so an address is only taken if
//! questions can go there and do not come back.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Member, Standing};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Front;
use super::choice::NODES_MAX;
use super::node::NodeSpec;
use crate::config;
use crate::coordination::Observer;

/// How long a front that knows no node waits for the first list before it says
/// that it is ready.
const FIRST_LIST_MAX: Duration = Duration::from_secs(3);

/// The nodes that members are, and what is wrong with the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    pub specs: Vec<NodeSpec>,
    /// Names of those that are about to go.
    pub parting: BTreeSet<String>,
    pub problems: Vec<String>,
}

/// Makes the members that `observer` lists the nodes of `front`, now and
/// whenever they change. Waits a moment for the first list if there are no
/// nodes.
pub async fn follow(front: &Arc<Front>, observer: &Observer, listen: Vec<SocketAddr>) {
    let mut members = observer.members();
    if front.board.table().nodes().next().is_none() {
        let listed = members.wait_for(|members| !members.is_empty());
        if timeout(FIRST_LIST_MAX, listed).await.is_err() {
            tracing::error!("no node is known yet: the coordination has listed none");
        }
    }
    let front = front.clone();
    let take_over_listed = move |members: &mut watch::Receiver<Arc<[Member]>>| {
        let listed = members.borrow_and_update().clone();
        if !listed.is_empty() {
            take_over(&front, &listed, &listen);
        }
    };
    take_over_listed(&mut members);
    tokio::spawn(async move {
        while members.changed().await.is_ok() {
            take_over_listed(&mut members);
        }
    });
}

fn take_over(front: &Front, members: &[Member], listen: &[SocketAddr]) {
    let Nodes { specs, parting, problems } = nodes_of(members, listen);
    problems.iter().for_each(|problem| tracing::error!("coordination: {problem}"));
    if specs.is_empty() {
        return tracing::error!("coordination: the nodes stay as they are: no member is usable");
    }
    match front.set_nodes(&specs, &parting) {
        Ok(()) => tracing::info!(
            nodes = specs.len(),
            parting = parting.len(),
            "the nodes are those that the coordination lists"
        ),
        Err(problem) => tracing::error!("the nodes stay as they are: {problem}"),
    }
}

/// The nodes that `members` are for a front that listens on `listen`.
fn nodes_of(members: &[Member], listen: &[SocketAddr]) -> Nodes {
    let mut nodes = Nodes::default();
    // Of two that say they are at one address, the later one is.
    let mut by_age: Vec<&Member> = members.iter().collect();
    by_age.sort_by_key(|member| std::cmp::Reverse(member.incarnation));
    for member in by_age {
        match node_of(member, listen, &nodes.specs) {
            Ok(spec) => nodes.specs.push(spec),
            Err(problem) => nodes.problems.push(format!("{} is left out: {problem}", member.name)),
        }
    }
    // By name, so that all fronts leave out the same.
    nodes.specs.sort_by(|one, other| one.name.cmp(&other.name));
    if nodes.specs.len() > NODES_MAX {
        let count = nodes.specs.len();
        nodes.problems.push(format!(
            "{count} members are too many; the first {NODES_MAX} by name are the nodes"
        ));
        nodes.specs.truncate(NODES_MAX);
    }
    let is_parting = |member: &&Member| member.standing == Standing::Draining;
    let parting = members.iter().filter(is_parting).map(|member| member.name.to_string());
    nodes.parting = parting.collect();
    nodes
}

fn node_of(
    member: &Member,
    listen: &[SocketAddr],
    others: &[NodeSpec],
) -> Result<NodeSpec, String> {
    let address = address_of(member).ok_or_else(|| {
        format!(
            "none of its addresses for clients can be sent to: {:?}; accepted: an address and port",
            member.listen
        )
    })?;
    if listen.iter().any(|own| config::overlap(*own, address) && !own.ip().is_unspecified()) {
        return Err(format!("{address} is where this front listens"));
    }
    if let Some(other) = others.iter().find(|other| other.address == address) {
        return Err(format!("{address} is that of {}, which started later", other.name));
    }
    Ok(NodeSpec { name: member.name.to_string(), address, health: None })
}

/// Where questions reach a member: best where others than its own host do.
fn address_of(member: &Member) -> Option<SocketAddr> {
    let reachable = || member.listen.iter().filter_map(|listen| reach(*listen, member.peer));
    reachable().find(|address| !address.ip().is_loopback()).or_else(|| reachable().next())
}

/// Where a socket is reached that is bound to `listen` on the host that others
/// reach at `peer`.
fn reach(listen: SocketAddr, peer: SocketAddr) -> Option<SocketAddr> {
    let ip = match listen.ip().to_canonical() {
        // All addresses of its family, and no others.
        ip if ip.is_unspecified() => {
            let peer = peer.ip().to_canonical();
            Some(peer).filter(|peer| peer.is_ipv4() == ip.is_ipv4())?
        }
        ip => ip,
    };
    Some(SocketAddr::new(ip, listen.port())).filter(|address| address.port() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, incarnation: u64, peer: &str, listen: &[&str]) -> Member {
        Member {
            name: name.into(),
            datacenter: "".into(),
            incarnation,
            peer: peer.parse().unwrap(),
            listen: listen.iter().map(|text| text.parse().unwrap()).collect(),
            cells: 1,
            standing: Standing::Serving,
        }
    }

    /// Where a member that listens so is asked.
    fn check(peer: &str, listen: &[&str], expected: Option<&str>) {
        let address = address_of(&member("a", 1, peer, listen));
        assert_eq!(address, expected.map(|text| text.parse().unwrap()), "{peer} {listen:?}");
    }

    #[test]
    fn members_are_asked_where_they_listen() {
        check("192.0.2.1:5310", &["192.0.2.9:53"], Some("192.0.2.9:53"));
        check("192.0.2.1:5310", &["127.0.0.1:53", "192.0.2.9:53"], Some("192.0.2.9:53"));
        check("192.0.2.1:5310", &["127.0.0.1:53"], Some("127.0.0.1:53"));
        check("192.0.2.1:5310", &["0.0.0.0:53"], Some("192.0.2.1:53"));
        check("192.0.2.1:5310", &["[::]:53", "0.0.0.0:54"], Some("192.0.2.1:54"));
        check("[2001:db8::1]:5310", &["0.0.0.0:53", "[::]:53"], Some("[2001:db8::1]:53"));
        check("192.0.2.1:5310", &["[::ffff:192.0.2.7]:53"], Some("192.0.2.7:53"));
        check("192.0.2.1:5310", &["[::]:53"], None);
        check("192.0.2.1:5310", &["192.0.2.1:0"], None);
        check("192.0.2.1:5310", &[], None);
    }

    fn named(nodes: &Nodes) -> Vec<(&str, String)> {
        nodes.specs.iter().map(|spec| (&*spec.name, spec.address.to_string())).collect()
    }

    #[test]
    fn who_cannot_be_asked_is_left_out_and_said() {
        let peer = "192.0.2.1:5310";
        let mut members = [
            member("a", 1, peer, &["192.0.2.1:53"]),
            // The same host after a change of its name.
            member("b", 2, peer, &["192.0.2.1:53"]),
            member("c", 3, peer, &["192.0.2.3:53"]),
            member("front", 4, peer, &["192.0.2.4:53"]),
            member("nowhere", 5, peer, &[]),
        ];
        members[2].standing = Standing::Draining;
        let nodes = nodes_of(&members, &["192.0.2.4:53".parse().unwrap()]);
        assert_eq!(
            named(&nodes),
            [("b", "192.0.2.1:53".to_owned()), ("c", "192.0.2.3:53".to_owned())]
        );
        assert_eq!(nodes.parting, BTreeSet::from(["c".to_owned()]));
        for (problem, part) in nodes.problems.iter().zip([
            "nowhere is left out: none of its addresses",
            "front is left out: 192.0.2.4:53 is where this front listens",
            "a is left out: 192.0.2.1:53 is that of b",
        ]) {
            assert!(problem.starts_with(part), "{problem}");
        }
        assert_eq!(nodes.problems.len(), 3);
    }

    #[test]
    fn of_too_many_the_first_by_name_are_taken() {
        let many: Vec<Member> = (0..NODES_MAX as u64 + 2)
            .rev()
            .map(|n| {
                member(&format!("n{n:03}"), n, "192.0.2.1:1", &[&format!("192.0.2.1:{}", n + 1)])
            })
            .collect();
        let nodes = nodes_of(&many, &[]);
        assert_eq!((nodes.specs.len(), &*nodes.specs[0].name), (NODES_MAX, "n000"));
        assert_eq!(nodes.specs.last().unwrap().name, "n127");
        assert!(nodes.problems[0].contains("130 members are too many"), "{:?}", nodes.problems);
    }
}
