//! Clusters of gossiping nodes in one process, on a network in memory and a
//! clock that the tests turn: seconds pass in no time.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use cluster::Standing;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::record::member_for_tests;
use super::super::{Coordinator, Membership};
use super::*;

/// A day: no key rotates unless a test wants it.
const NEVER: Duration = Duration::from_secs(24 * 3600);

type Datagram = (SocketAddr, Vec<u8>);

/// Who can send to whom.
#[derive(Debug, Default)]
struct Network {
    inboxes: Mutex<HashMap<SocketAddr, mpsc::UnboundedSender<Datagram>>>,
    /// Addresses on the far side of a partition.
    apart: Mutex<HashSet<SocketAddr>>,
}

impl Network {
    fn open(self: &Arc<Self>, address: SocketAddr) -> Wire {
        let (sender, inbox) = mpsc::unbounded_channel();
        self.inboxes.lock().unwrap().insert(address, sender);
        let inbox = tokio::sync::Mutex::new(inbox);
        Wire { network: self.clone(), address, inbox, received: AtomicU32::new(0) }
    }

    fn part(&self, apart: &[&Member]) {
        *self.apart.lock().unwrap() = apart.iter().map(|member| member.peer).collect();
    }
}

/// One node's socket; every seventh message is an error instead.
#[derive(Debug)]
struct Wire {
    network: Arc<Network>,
    address: SocketAddr,
    inbox: tokio::sync::Mutex<mpsc::UnboundedReceiver<Datagram>>,
    received: AtomicU32,
}

impl GossipSocket for Wire {
    async fn send(&self, to: SocketAddr, octets: &[u8]) -> io::Result<()> {
        let apart = self.network.apart.lock().unwrap();
        if apart.contains(&to) == apart.contains(&self.address)
            && let Some(inbox) = self.network.inboxes.lock().unwrap().get(&to)
        {
            let _ = inbox.send((self.address, octets.to_vec()));
        }
        Ok(())
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (from, octets) =
            self.inbox.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected)?;
        if self.received.fetch_add(1, Ordering::Relaxed) % 7 == 6 {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        buffer[..octets.len()].copy_from_slice(&octets);
        Ok((octets.len(), from))
    }
}

/// Starts `own` as a node that knows only the node called a.
fn start(network: &Arc<Network>, own: &Member, key_rotation: Duration) -> Coordinator {
    let socket = Arc::new(network.open(own.peer));
    let seeds = vec![member_for_tests("a", 1).peer.to_string()];
    Coordinator::run(Gossip { seeds, key_rotation, socket }, own.clone())
}

fn start_all(network: &Arc<Network>, members: &[Member], rotation: Duration) -> Vec<Coordinator> {
    members.iter().map(|own| start(network, own, rotation)).collect()
}

/// Waits until `is_so` is true of what the node knows.
async fn until(node: &Coordinator, is_so: impl FnMut(&Arc<Membership>) -> bool) -> Arc<Membership> {
    let mut membership = node.membership();
    let known = timeout(Duration::from_secs(60), membership.wait_for(is_so)).await;
    known.expect("it comes to pass within a minute").expect("the node runs").clone()
}

fn sees(known: &Membership, members: &[Member]) -> bool {
    known.view.members() == members
}

/// Waits until all nodes know `members` by the same number, and the same epoch.
async fn agree(nodes: &[Coordinator], members: &[Member]) -> Arc<Membership> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let known: Vec<Arc<Membership>> =
            nodes.iter().map(|node| node.membership().borrow().clone()).collect();
        let has_epoch = known[0].epochs.current.number > 0;
        if has_epoch && sees(&known[0], members) && known.iter().all(|other| *other == known[0]) {
            return known[0].clone();
        }
        assert!(Instant::now() < deadline, "they never agree: {known:#?}");
        sleep(INTERVAL / 4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_start_together_agree_on_members_number_and_epoch() {
    let network = Arc::new(Network::default());
    let members = ["a", "b", "c", "d", "e"].map(|name| member_for_tests(name, 1));
    let nodes = start_all(&network, &members, NEVER);
    let first = agree(&nodes, &members).await;
    assert_eq!(first.epochs.current.number, 1);
    assert!(nodes.iter().all(Coordinator::is_reached));

    // One more, and the number grows for all.
    let members = ["a", "b", "c", "d", "e", "f"].map(|name| member_for_tests(name, 1));
    let mut nodes = nodes;
    nodes.push(start(&network, &members[5], NEVER));
    let second = agree(&nodes, &members).await;
    assert!(second.view.number() > first.view.number());
    assert_eq!(second.epochs, first.epochs);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_is_missed_within_seconds() {
    let network = Arc::new(Network::default());
    let members = ["a", "b", "c"].map(|name| member_for_tests(name, 1));
    let mut nodes = start_all(&network, &members, NEVER);
    let before = agree(&nodes, &members).await;
    drop(nodes.pop());
    let went = Instant::now();
    let after = agree(&nodes, &members[..2]).await;
    // Of the clock that the test turns.
    let missed = went.elapsed();
    assert!(missed > Duration::from_secs(1) && missed < Duration::from_secs(4), "{missed:?}");
    assert!(after.view.number() > before.view.number());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_is_gone_at_once() {
    let network = Arc::new(Network::default());
    let members = ["a", "b", "c"].map(|name| member_for_tests(name, 1));
    let mut nodes = start_all(&network, &members, NEVER);
    agree(&nodes, &members).await;
    let left = Instant::now();
    nodes.pop().unwrap().leave().await;
    agree(&nodes, &members[..2]).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_replaces_its_former_self_without_a_gap() {
    let network = Arc::new(Network::default());
    let members = ["a", "b"].map(|name| member_for_tests(name, 1));
    let mut nodes = start_all(&network, &members, NEVER);
    agree(&nodes, &members).await;
    let mut seen_by_a = nodes[0].membership();
    drop(nodes.pop());
    let again = member_for_tests("b", 2);
    nodes.push(start(&network, &again, NEVER));
    loop {
        timeout(Duration::from_secs(2), seen_by_a.changed()).await.expect("soon").unwrap();
        let known = seen_by_a.borrow_and_update().clone();
        let b = known.view.find("b").expect("b is never missed");
        if known.view.members()[b].incarnation == 2 {
            break;
        }
    }
    agree(&nodes, &[members[0].clone(), again]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_changes_nobodys_key() {
    let network = Arc::new(Network::default());
    let members = ["a", "b"].map(|name| member_for_tests(name, 1));
    let mut nodes = start_all(&network, &members, NEVER);
    let before = agree(&nodes, &members).await;
    // One luck or another: salts are random.
    for incarnation in 2..12 {
        drop(nodes.pop());
        let again = member_for_tests("b", incarnation);
        nodes.push(start(&network, &again, NEVER));
        let after = agree(&nodes, &[members[0].clone(), again]).await;
        assert_eq!(after.epochs, before.epochs);
    }
}

#[tokio::test(start_paused = true)]
async fn the_others_hear_of_a_drain() {
    let network = Arc::new(Network::default());
    let members = ["a", "b", "c"].map(|name| member_for_tests(name, 1));
    let nodes = start_all(&network, &members, NEVER);
    let before = agree(&nodes, &members).await;
    nodes[1].set_standing(Standing::Draining);
    let [a, b, c] = members;
    let draining = [a, Member { standing: Standing::Draining, ..b }, c];
    let after = agree(&nodes, &draining).await;
    assert!(after.view.number() > before.view.number());
}

#[tokio::test(start_paused = true)]
async fn after_a_partition_both_sides_agree_again() {
    let network = Arc::new(Network::default());
    let members = ["a", "b", "c", "d"].map(|name| member_for_tests(name, 1));
    let nodes = start_all(&network, &members, NEVER);
    let before = agree(&nodes, &members).await;
    network.part(&[&members[2], &members[3]]);
    let (near, far) = nodes.split_at(2);
    agree(near, &members[..2]).await;
    let parted = agree(far, &members[2..]).await;
    network.part(&[]);
    let healed = agree(&nodes, &members).await;
    assert!(healed.view.number() > parted.view.number());
    assert!(parted.view.number() > before.view.number());
}

#[tokio::test(start_paused = true)]
async fn the_key_rotates_once_for_all() {
    let network = Arc::new(Network::default());
    let members = ["a", "b", "c"].map(|name| member_for_tests(name, 1));
    let nodes = start_all(&network, &members, Duration::from_secs(120));
    let first = agree(&nodes, &members).await;
    for node in &nodes {
        let seen = timeout(Duration::from_secs(180), async {
            let mut membership = node.membership();
            membership.wait_for(|known| known.epochs.current.number == 2).await.unwrap().clone()
        });
        assert_eq!(seen.await.unwrap().epochs.previous, Some(first.epochs.current));
    }
    agree(&nodes, &members).await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_rotated_on_both_sides_of_a_partition_become_one() {
    let network = Arc::new(Network::default());
    let members = ["a", "b"].map(|name| member_for_tests(name, 1));
    let nodes = start_all(&network, &members, Duration::from_secs(40));
    agree(&nodes, &members).await;
    network.part(&[&members[1]]);
    let near = until(&nodes[0], |known| known.epochs.current.number == 2).await;
    let far = until(&nodes[1], |known| known.epochs.current.number == 2).await;
    assert_ne!(near.epochs.current.salt, far.epochs.current.salt);
    network.part(&[]);
    let healed = agree(&nodes, &members).await;
    assert!(healed.epochs.current.number >= 2);
}

#[tokio::test(start_paused = true)]
async fn of_two_nodes_with_one_name_the_later_is_the_member() {
    let network = Arc::new(Network::default());
    let (a, b) = (member_for_tests("a", 1), member_for_tests("b", 1));
    let peer = SocketAddr::from(([127, 0, 0, 2], 4000));
    let late = Member { incarnation: 2, peer, ..b.clone() };
    let nodes = start_all(&network, &[a.clone(), b.clone(), late.clone()], NEVER);
    let is_late = |known: &Arc<Membership>| sees(known, &[a.clone(), late.clone()]);
    until(&nodes[0], is_late).await;
    until(&nodes[2], is_late).await;
    // The earlier one still finds itself in its own view.
    until(&nodes[1], |known| sees(known, &[a.clone(), b.clone()])).await;
}
