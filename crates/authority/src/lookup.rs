//! What a zone holds at a name: a question's outcome as a value.
//!
//! This is the algorithm of RFC 1034, 4.3.2 with the wildcards of RFC 4592
//! and the redirections of RFC 6672, over a hash table instead of a tree: the
//! name itself is tried first, its ancestors only if that fails, and never
//! more of them than the zone is deep.

use wire::{QueryName, rtype};

use crate::hash::{NameHasher, SuffixHashes};
use crate::image::{
    Image, NODE_ALIAS, NODE_BELOW_CUT, NODE_CUT, NODE_REDIRECT, NODE_WILDCARD_BELOW, Node, Set,
};

/// What a zone holds at a name.
#[derive(Clone, Copy)]
pub(crate) enum Lookup<'z> {
    /// Records of the type asked for.
    Found { set: Set<'z>, from: From },
    /// The name exists and any of its sets may be the answer: ANY or RRSIG.
    Several { node: Node<'z>, from: From },
    /// The name is an alias.
    Alias { set: Set<'z>, from: From },
    /// The name lies below a DNAME; `label` is where its owner starts.
    Redirect { set: Set<'z>, label: usize },
    /// The name exists, records of the type do not.
    NoData { from: From },
    /// The name does not exist; `label` is where its closest ancestor starts.
    NoName { label: usize },
    /// Another zone is the authority; `label` is where its name starts.
    Delegated { node: Node<'z>, label: usize },
}

/// Where the records of an answer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The name itself.
    Name,
    /// The wildcard below the ancestor that starts at this label.
    Wildcard { label: usize },
}

/// Looks `name` up in `image`, whose own name starts at label `apex`.
// Always: a second, rare caller would cost every answer a call otherwise.
#[inline(always)]
pub(crate) fn lookup<'z>(
    image: &'z Image,
    hasher: &NameHasher,
    name: &QueryName,
    hashes: &SuffixHashes,
    apex: usize,
    qtype: u16,
) -> Lookup<'z> {
    let search = Search { image, name, hashes, apex };
    if let Some(node) = search.node(0)
        && !node.has(NODE_BELOW_CUT)
    {
        // The parent's side of a cut holds its DS records (RFC 4035, 3.1.4.1).
        if node.has(NODE_CUT) && qtype != rtype::DS {
            return Lookup::Delegated { node, label: 0 };
        }
        return at_node(node, From::Name, qtype);
    }
    let (closest, label) = search.closest();
    if closest.has(NODE_CUT | NODE_BELOW_CUT) {
        return search.topmost_cut(closest, label);
    }
    if closest.has(NODE_REDIRECT)
        && let Some(set) = closest.set(rtype::DNAME)
    {
        return Lookup::Redirect { set, label };
    }
    if closest.has(NODE_WILDCARD_BELOW) {
        let hash = hasher.child(hashes.get(label), b"*");
        if let Some(node) = search.wildcard(hash, label) {
            return at_node(node, From::Wildcard { label }, qtype);
        }
    }
    Lookup::NoName { label }
}

/// What a node that answers the question holds of the type.
#[inline]
fn at_node(node: Node<'_>, from: From, qtype: u16) -> Lookup<'_> {
    if qtype == rtype::ANY || qtype == rtype::RRSIG {
        return match node.set_count() {
            0 => Lookup::NoData { from },
            _ => Lookup::Several { node, from },
        };
    }
    if let Some(set) = node.set(qtype) {
        return Lookup::Found { set, from };
    }
    if node.has(NODE_ALIAS)
        && let Some(set) = node.set(rtype::CNAME)
    {
        return Lookup::Alias { set, from };
    }
    Lookup::NoData { from }
}

struct Search<'z, 'q> {
    image: &'z Image,
    name: &'q QueryName,
    hashes: &'q SuffixHashes,
    apex: usize,
}

impl<'z> Search<'z, '_> {
    /// The node of the suffix that starts at `label`.
    #[inline]
    fn node(&self, label: usize) -> Option<Node<'z>> {
        if label == self.apex {
            return Some(self.image.apex());
        }
        if self.apex - label > self.image.depth() {
            return None;
        }
        let end = self.name.label_start(self.apex);
        let relative = &self.name.as_bytes()[self.name.label_start(label)..end];
        self.image.find(self.hashes.get(label), |known| known == relative)
    }

    /// The closest ancestor that exists, and where it starts.
    fn closest(&self) -> (Node<'z>, usize) {
        let first = self.apex.saturating_sub(self.image.depth()).max(1);
        (first..self.apex)
            .find_map(|label| self.node(label).map(|node| (node, label)))
            .unwrap_or_else(|| (self.image.apex(), self.apex))
    }

    /// The delegation that hides `node`, or that it is.
    fn topmost_cut(&self, node: Node<'z>, label: usize) -> Lookup<'z> {
        let (mut cut, mut at) = (node, label);
        if !node.has(NODE_BELOW_CUT) {
            return Lookup::Delegated { node, label };
        }
        let mut above = label;
        // Ancestors of a node exist, so the walk stays on nodes.
        while above < self.apex {
            if let Some(node) = self.node(above)
                && node.has(NODE_CUT)
            {
                (cut, at) = (node, above);
            }
            above += 1;
        }
        Lookup::Delegated { node: cut, label: at }
    }

    /// The name `*` below the suffix that starts at `label`.
    fn wildcard(&self, hash: u64, label: usize) -> Option<Node<'z>> {
        let end = self.name.label_start(self.apex);
        let parent = &self.name.as_bytes()[self.name.label_start(label)..end];
        self.image.find(hash, |known| known.strip_prefix(b"\x01*") == Some(parent))
    }
}
