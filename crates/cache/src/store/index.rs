//! Where a hash is in the slab: chains through the nodes, one for each place of
//! a table that grows with the slab, by one place at a time.

#[cfg(test)]
use super::consistency::ensure;
use super::linear::{parent, place};
use super::pieces::Pieces;
use super::slab::{NIL, Node, Slab};

/// Places for each node of the slab, so that most chains have one node or none:
/// every further one is another wait for memory.
const PLACES_PER_NODE: usize = 2;

/// The first node of each chain.
pub(super) struct Index {
    heads: Pieces<u32>,
}

impl Index {
    pub fn new() -> Self {
        Index { heads: Pieces::of(NIL, 1) }
    }

    /// The node with `hash` whose value is the one that `is_it` says it is.
    #[inline]
    pub fn find<V>(
        &self,
        slab: &Slab<V>,
        hash: u64,
        mut is_it: impl FnMut(&V) -> bool,
    ) -> Option<u32> {
        let mut at = self.heads[place(hash, self.heads.len())];
        while at != NIL {
            let node = slab.node(at);
            if node.hash == hash && node.value.as_ref().is_some_and(&mut is_it) {
                return Some(at);
            }
            at = node.chain;
        }
        None
    }

    /// Adds a node, and the places that a slab of this size needs.
    pub fn add<V>(&mut self, slab: &mut Slab<V>, at: u32) {
        while self.heads.len() < PLACES_PER_NODE * slab.len() {
            self.split(slab);
        }
        self.attach(slab, at);
    }

    /// Removes a node.
    pub fn remove<V>(&mut self, slab: &mut Slab<V>, at: u32) {
        let &Node { hash, chain, .. } = slab.node(at);
        let place = place(hash, self.heads.len());
        if self.heads[place] == at {
            self.heads[place] = chain;
            return;
        }
        let mut before = self.heads[place];
        while before != NIL {
            let node = slab.node_mut(before);
            if node.chain == at {
                node.chain = chain;
                return;
            }
            before = node.chain;
        }
    }

    /// Adds a place and moves to it what belongs there now.
    fn split<V>(&mut self, slab: &mut Slab<V>) {
        let origin = parent(self.heads.len());
        self.heads.push(NIL);
        let mut at = std::mem::replace(&mut self.heads[origin], NIL);
        while at != NIL {
            let next = slab.node(at).chain;
            self.attach(slab, at);
            at = next;
        }
    }

    fn attach<V>(&mut self, slab: &mut Slab<V>, at: u32) {
        let node = slab.node_mut(at);
        let place = place(node.hash, self.heads.len());
        node.chain = std::mem::replace(&mut self.heads[place], at);
    }
}

#[cfg(test)]
impl Index {
    /// Says if a value is not in the chain it belongs to, or in another too.
    pub fn check<V>(&self, slab: &Slab<V>) -> Result<(), String> {
        let mut chained = 0;
        for (number, head) in self.heads.iter().enumerate() {
            let mut at = *head;
            while at != NIL {
                let node = slab.node(at);
                chained += 1;
                let is_home = place(node.hash, self.heads.len()) == number;
                ensure(is_home && node.value.is_some(), || format!("index: {at} in {number}"))?;
                ensure(chained <= slab.len(), || "index: a chain without an end".to_owned())?;
                at = node.chain;
            }
        }
        let used = slab.iter().count();
        ensure(chained == used, || format!("index: {chained} of {used}"))
    }
}
