//! The nodes of a store: places that are used again, and the lists that string
//! them together by links inside of them.

use super::pieces::Pieces;

/// No node.
pub(super) const NIL: u32 = u32::MAX;

/// Nodes by number. A freed one is the next to be used; none goes back to the
/// system, since what was needed once is needed again.
pub(super) struct Slab<V> {
    nodes: Pieces<Node<V>>,
    /// The last node freed; each links to the one freed before it.
    free: u32,
}

/// A value, or a free place for one.
pub(super) struct Node<V> {
    pub hash: u64,
    /// The next node of the same place of the index.
    pub chain: u32,
    /// Towards the front of its list.
    newer: u32,
    /// Towards the back of its list, or the next free node.
    older: u32,
    pub bytes: u32,
    pub part: Part,
    pub value: Option<V>,
}

/// The lists a value may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// What just came.
    Window,
    /// What may go next.
    Probation,
    /// What was asked for while on probation.
    Protected,
}

/// Nodes from the newest to the oldest, and what they weigh together.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub front: u32,
    pub back: u32,
    pub len: usize,
    pub bytes: usize,
}

impl<V> Slab<V> {
    pub fn new() -> Self {
        Slab { nodes: Pieces::new(), free: NIL }
    }

    /// Places there are, used or free.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    #[inline]
    pub fn node(&self, at: u32) -> &Node<V> {
        &self.nodes[at as usize]
    }

    #[inline]
    pub fn node_mut(&mut self, at: u32) -> &mut Node<V> {
        &mut self.nodes[at as usize]
    }

    /// Puts `value` into a node that is in no list yet.
    pub fn add(&mut self, hash: u64, value: V, bytes: u32) -> u32 {
        let at = self.free;
        let node = Node {
            hash,
            chain: NIL,
            newer: NIL,
            older: NIL,
            bytes,
            part: Part::Window,
            value: Some(value),
        };
        if at == NIL {
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        self.free = self.node(at).older;
        *self.node_mut(at) = node;
        at
    }

    /// Takes the value out of a node that is in no list any more.
    pub fn free(&mut self, at: u32) -> Option<V> {
        let free = self.free;
        let node = self.node_mut(at);
        node.older = free;
        let value = node.value.take();
        self.free = at;
        value
    }

    /// Every value, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.nodes.iter().filter_map(|node| Some((node.hash, node.value.as_ref()?)))
    }

    /// The nodes of `list`, newest first.
    pub fn newest_first(&self, list: &List) -> impl Iterator<Item = (u32, &Node<V>)> {
        self.follow(list.front, |node| node.older)
    }

    /// The nodes of `list`, oldest first.
    pub fn oldest_first(&self, list: &List) -> impl Iterator<Item = (u32, &Node<V>)> {
        self.follow(list.back, |node| node.newer)
    }

    fn follow(
        &self,
        start: u32,
        next: impl Fn(&Node<V>) -> u32,
    ) -> impl Iterator<Item = (u32, &Node<V>)> {
        let step = |at: u32| (at != NIL).then(|| (at, self.node(at)));
        std::iter::successors(step(start), move |(_, node)| step(next(node)))
    }
}

impl List {
    pub const EMPTY: List = List { front: NIL, back: NIL, len: 0, bytes: 0 };

    /// Puts a node that is in no list before all others.
    pub fn push_front<V>(&mut self, slab: &mut Slab<V>, at: u32) {
        let front = self.front;
        let node = slab.node_mut(at);
        (node.newer, node.older) = (NIL, front);
        self.len += 1;
        self.bytes += node.bytes as usize;
        match front {
            NIL => self.back = at,
            front => slab.node_mut(front).newer = at,
        }
        self.front = at;
    }

    /// Takes a node of this list out of it.
    pub fn unlink<V>(&mut self, slab: &mut Slab<V>, at: u32) {
        let node = slab.node(at);
        let (newer, older) = (node.newer, node.older);
        self.len -= 1;
        self.bytes -= node.bytes as usize;
        match newer {
            NIL => self.front = older,
            newer => slab.node_mut(newer).older = older,
        }
        match older {
            NIL => self.back = newer,
            older => slab.node_mut(older).newer = newer,
        }
    }

    /// Puts a node of this list before all others.
    #[inline]
    pub fn refresh<V>(&mut self, slab: &mut Slab<V>, at: u32) {
        if self.front != at {
            self.unlink(slab, at);
            self.push_front(slab, at);
        }
    }
}

#[cfg(test)]
impl<V> Slab<V> {
    /// The numbers of all free nodes, as far as they are known to be.
    pub fn free_places(&self) -> Vec<u32> {
        let free = self.follow(self.free, |node| node.older);
        free.map(|(at, _)| at).take(self.nodes.len() + 1).collect()
    }

    /// Damages the slab, for the test of whoever looks for damage.
    pub fn forget_free_places(&mut self) {
        self.free = NIL;
    }
}
