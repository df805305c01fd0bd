//! The nodes there are, each in its seat, for all threads to look at.
//!
//! A node keeps its seat for as long as it is there, so that a set of nodes is
//! a set of seats and a question knows its node by number. The set of nodes may
//! change at any time ([`Board::replace`]); whoever places questions notices by
//! one number that something did ([`Board::version`]).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::choice::{NODES_MAX, Seats, Sharding, Shards, Standings};
use super::node::{Node, NodeSpec, Standing};

/// The nodes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Table {
    seats: Vec<Option<Arc<Node>>>,
    shards: Option<Shards>,
}

impl Table {
    /// The node in a seat.
    #[inline]
    pub fn node(&self, seat: usize) -> Option<&Arc<Node>> {
        self.seats.get(seat)?.as_ref()
    }

    /// The nodes and their seats.
    pub fn nodes(&self) -> impl Iterator<Item = (usize, &Arc<Node>)> {
        let taken = |(seat, node)| Option::<&Arc<Node>>::map(node, |node| (seat, node));
        self.seats.iter().map(Option::as_ref).enumerate().filter_map(taken)
    }

    /// The nodes that a client's questions go to, if not to all.
    #[inline]
    pub fn shard_of(&self, client: IpAddr) -> Option<Seats> {
        self.shards.as_ref().map(|shards| shards.of(client))
    }

    /// How they stand now.
    pub fn standings(&self) -> Standings {
        let mut standings = Standings::default();
        for (seat, node) in self.nodes() {
            standings.all = standings.all.with(seat);
            if node.is_ready() {
                standings.ready = standings.ready.with(seat);
                if node.standing() == Standing::Up {
                    standings.trusted = standings.trusted.with(seat);
                }
            }
        }
        standings
    }
}

/// The nodes, now and later.
#[derive(Debug)]
pub struct Board {
    table: ArcSwap<Table>,
    version: AtomicU64,
    /// Held by whoever changes the table, from reading to storing.
    writing: Mutex<()>,
    /// No node is ready, and that was said.
    is_open: AtomicBool,
    threads: usize,
    pub sharding: Option<Sharding>,
}

impl Board {
    /// Without nodes yet, for so many threads.
    pub fn new(threads: usize, sharding: Option<Sharding>) -> Self {
        Board {
            table: ArcSwap::default(),
            version: AtomicU64::new(1),
            writing: Mutex::default(),
            is_open: AtomicBool::new(false),
            threads,
            sharding,
        }
    }

    /// The nodes there are now.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Another number whenever the nodes or their standings have changed.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Makes `specs`, whose names differ, the nodes there are. One that is the
    /// same as before stays as it stands; what waits for one that goes may
    /// still be answered. Those whose names are in `parting` get nothing new.
    /// Returns the new ones, which nobody probes yet.
    pub fn replace(
        &self,
        specs: &[NodeSpec],
        parting: &BTreeSet<String>,
    ) -> Result<Vec<Arc<Node>>, String> {
        if specs.len() > NODES_MAX {
            let count = specs.len();
            return Err(format!("{count} nodes are too many; accepted: at most {NODES_MAX}"));
        }
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.table();
        let mut seats = vec![None; NODES_MAX];
        let mut new = Vec::new();
        for spec in specs {
            match old.nodes().find(|(_, node)| node.spec == *spec) {
                Some((seat, node)) => seats[seat] = Some(node.clone()),
                None => new.push(Arc::new(Node::new(spec.clone(), self.threads))),
            }
        }
        // Seats that were empty first: those that nodes just left have
        // questions whose answers may still come.
        let is_free = |seat: &usize| seats[*seat].is_none();
        let mut free: Vec<usize> = (0..NODES_MAX).filter(is_free).collect();
        free.sort_by_key(|seat| (old.node(*seat).is_some(), *seat));
        for (node, seat) in new.iter().zip(free) {
            seats[seat] = Some(node.clone());
        }
        let mut table = Table { seats, shards: None };
        for (_, node) in table.nodes() {
            node.set_parting(parting.contains(&node.spec.name));
        }
        if let Some(sharding) = &self.sharding {
            let named: Vec<(&str, usize)> =
                table.nodes().map(|(seat, node)| (node.spec.name.as_str(), seat)).collect();
            table.shards = Shards::draw(&named, sharding);
        }
        self.table.store(Arc::new(table));
        self.announce();
        Ok(new)
    }

    /// Lets no new questions go to a node, or lets them again.
    pub fn drain(&self, name: &str, draining: bool) -> Result<(), String> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table();
        let Some((_, node)) = table.nodes().find(|(_, node)| node.spec.name == name) else {
            let names: Vec<&str> = table.nodes().map(|(_, node)| node.spec.name.as_str()).collect();
            return Err(format!("no node is called `{name}`; accepted: {}", names.join(", ")));
        };
        let is_other = |(_, other): &(usize, &Arc<Node>)| !Arc::ptr_eq(other, node);
        if draining && !table.nodes().filter(is_other).any(|(_, other)| other.is_ready()) {
            return Err(format!(
                "without {name} no node would be left for questions; accepted: a node beside which \
                 another is up and not draining"
            ));
        }
        if !draining && node.is_parting() && !node.is_drained() {
            return Err(format!(
                "{name} was drained in its cluster, not here; accepted: `pharos cache undrain \
                 {name}`"
            ));
        }
        node.set_drained(draining);
        tracing::warn!(node = name, draining, "told to let a node go, or to take it back");
        self.announce();
        Ok(())
    }

    /// Says that a node was silent, if nobody did so before.
    pub fn suspect(&self, node: &Node) {
        if node.turn(Standing::Up, Standing::Suspect) {
            self.announce();
        }
        node.wake.notify_one();
    }

    /// Takes over what probes found out about a node.
    pub fn turn(&self, node: &Node, from: Standing, to: Standing) {
        if !node.turn(from, to) {
            return;
        }
        let name = &node.spec.name;
        match to {
            Standing::Down => tracing::warn!(node = name, "a node is down"),
            _ if from == Standing::Down => tracing::info!(node = name, "a node is up again"),
            _ => {}
        }
        self.announce();
    }

    /// Lets everybody look again; says so when no node is left, and when one
    /// is back.
    fn announce(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        let Standings { ready, all, .. } = self.table().standings();
        let is_open = ready.is_empty();
        if self.is_open.swap(is_open, Ordering::AcqRel) == is_open {
            return;
        }
        match is_open {
            true => tracing::error!(
                "NO NODE IS UP: questions go to all {} nodes, in the hope that one answers",
                all.len()
            ),
            false => tracing::warn!("{} of {} nodes are up again", ready.len(), all.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(texts: &[&str]) -> Vec<NodeSpec> {
        texts.iter().map(|text| NodeSpec::parse(text).unwrap()).collect()
    }

    fn nobody() -> BTreeSet<String> {
        BTreeSet::new()
    }

    fn seats_of(board: &Board) -> Vec<(usize, String)> {
        board.table().nodes().map(|(seat, node)| (seat, node.spec.name.clone())).collect()
    }

    #[test]
    fn nodes_keep_their_seats_and_standing_while_others_come_and_go() {
        let board = Board::new(1, None);
        let new = board.replace(&specs(&["a=192.0.2.1:53", "b=192.0.2.2:53"]), &nobody()).unwrap();
        assert_eq!(new.len(), 2);
        board.turn(&new[1], Standing::Up, Standing::Down);
        let before = board.version();
        let new = board.replace(&specs(&["c=192.0.2.3:53", "b=192.0.2.2:53"]), &nobody()).unwrap();
        assert!(board.version() > before);
        assert_eq!(new.len(), 1);
        // The seat that `a` left is used last.
        assert_eq!(seats_of(&board), [(1, "b".into()), (2, "c".into())]);
        assert_eq!(board.table().node(1).unwrap().standing(), Standing::Down);
        // The same name elsewhere is another node.
        let new = board.replace(&specs(&["b=192.0.2.9:53"]), &nobody()).unwrap();
        assert_eq!(new[0].standing(), Standing::Up);
    }

    #[test]
    fn too_many_nodes_change_nothing() {
        let board = Board::new(1, None);
        let name = |n: usize| NodeSpec::parse(&format!("n{n}=192.0.2.1:53")).unwrap();
        let many: Vec<NodeSpec> = (0..=NODES_MAX).map(name).collect();
        assert!(board.replace(&many, &nobody()).unwrap_err().contains("at most 128"));
        assert_eq!(board.table().nodes().count(), 0);
        assert_eq!(board.replace(&many[1..], &nobody()).unwrap().len(), NODES_MAX);
        assert_eq!(board.table().standings().ready.len(), 128);
    }

    #[test]
    fn the_last_node_is_not_drained() {
        let board = Board::new(1, None);
        board.replace(&specs(&["a=192.0.2.1:53", "b=192.0.2.2:53"]), &nobody()).unwrap();
        assert!(board.drain("x", true).unwrap_err().contains("accepted: a, b"));
        board.drain("a", true).unwrap();
        assert_eq!(board.table().standings().ready, Seats::one(1));
        assert!(board.drain("b", true).unwrap_err().contains("no node would be left"));
        board.drain("a", false).unwrap();
        board.drain("b", true).unwrap();
        assert_eq!(board.table().standings().ready, Seats::one(0));
    }

    #[test]
    fn a_node_that_parts_gets_nothing_new_until_it_stays() {
        let board = Board::new(1, None);
        let both = specs(&["a=192.0.2.1:53", "b=192.0.2.2:53"]);
        let a_parts = BTreeSet::from(["a".to_owned()]);
        assert_eq!(board.replace(&both, &a_parts).unwrap().len(), 2);
        assert_eq!(board.table().standings().ready, Seats::one(1));
        assert!(board.drain("b", true).unwrap_err().contains("no node would be left"));
        assert!(board.drain("a", false).unwrap_err().contains("`pharos cache undrain a`"));
        // Drained here as well, it needs both to be over.
        board.drain("a", true).unwrap();
        assert!(board.replace(&both, &nobody()).unwrap().is_empty());
        assert_eq!(board.table().standings().ready, Seats::one(1));
        board.drain("a", false).unwrap();
        assert_eq!(board.table().standings().ready.len(), 2);
    }

    #[test]
    fn suspects_are_ready_but_not_trusted() {
        let board = Board::new(1, None);
        let new = board.replace(&specs(&["a=192.0.2.1:53", "b=192.0.2.2:53"]), &nobody()).unwrap();
        board.suspect(&new[0]);
        let standings = board.table().standings();
        assert_eq!((standings.ready.len(), standings.trusted), (2, Seats::one(1)));
    }
}
