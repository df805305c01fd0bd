//! Numbers for views where nobody counts for all.
//!
//! Every node tells the others the number and the digest of its view. A node
//! whose members changed takes a number above all it has heard of, or that of
//! somebody who already sees the same members; nodes that see the same members
//! take the highest of their numbers. So numbers only grow, and once all nodes
//! see the same members they also use the same number.

use std::str::FromStr;

/// Numbers above this are not believed: nobody gets there by counting.
const NUMBER_MAX: u64 = 1 << 62;

/// A view's number and digest, as nodes tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub number: u64,
    pub digest: u64,
}

impl std::fmt::Display for Numbered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:016x}", self.number, self.digest)
    }
}

impl FromStr for Numbered {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, digest) = text.split_once(' ').ok_or(())?;
        let number = number.parse().ok().filter(|number| *number <= NUMBER_MAX).ok_or(())?;
        Ok(Numbered { number, digest: u64::from_str_radix(digest, 16).map_err(drop)? })
    }
}

/// The number for a view with this `digest`, after `own` and having `heard` of
/// those of others.
pub fn number(own: Numbered, digest: u64, heard: &[Numbered]) -> u64 {
    let peak = heard.iter().map(|view| view.number).fold(own.number, u64::max);
    let same = heard.iter().filter(|view| view.digest == digest).map(|view| view.number).max();
    match same {
        // Nothing above it is known, and it is news here: no need to count on.
        Some(same) if digest != own.digest && same == peak && same > own.number => same,
        _ if digest != own.digest => peak + 1,
        Some(same) => same.max(own.number),
        None => own.number,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn view(number: u64, digest: u64) -> Numbered {
        Numbered { number, digest }
    }

    #[test]
    fn a_change_takes_the_next_number_or_that_of_who_saw_it_first() {
        // Own view, its digest now, what the others said, the number it gets.
        for (own, digest, heard, expected) in [
            (view(5, 1), 1, vec![], 5),
            (view(5, 1), 2, vec![], 6),
            (view(5, 1), 2, vec![view(5, 1), view(9, 3)], 10),
            (view(5, 1), 2, vec![view(6, 2), view(5, 1)], 6),
            (view(5, 1), 2, vec![view(6, 2), view(7, 1)], 8),
            (view(5, 1), 2, vec![view(5, 2)], 6),
            (view(5, 1), 1, vec![view(7, 1)], 7),
            (view(5, 1), 1, vec![view(7, 2)], 5),
            (view(5, 1), 1, vec![view(3, 1)], 5),
        ] {
            assert_eq!(number(own, digest, &heard), expected, "{own:?} {digest} {heard:?}");
        }
    }

    #[test]
    fn what_nodes_say_comes_back() {
        let said = view(17, u64::MAX - 1);
        assert_eq!(said.to_string().parse(), Ok(said));
        for text in ["", "1", "x 1", "1 y", "4611686018427387905 1", "-1 1"] {
            assert_eq!(text.parse::<Numbered>(), Err(()), "{text}");
        }
    }

    proptest! {
        /// Whatever changes in whatever order, numbers only grow, a change is
        /// always a new number, and nodes that see the same end with the same.
        #[test]
        fn nodes_that_see_the_same_agree_on_its_number(
            steps in proptest::collection::vec((0usize..5, 0u64..4, 0u8..32), 0..60),
            last in 0u64..4,
        ) {
            let mut nodes = [view(0, 100); 5];
            let step = |nodes: &mut [Numbered; 5], node: usize, digest: u64, heard: u8| {
                let others: Vec<Numbered> = (0..5)
                    .filter(|other| *other != node && heard >> other & 1 == 1)
                    .map(|other| nodes[other])
                    .collect();
                let next = number(nodes[node], digest, &others);
                assert!(next >= nodes[node].number);
                assert!(next > nodes[node].number || digest == nodes[node].digest);
                nodes[node] = view(next, digest);
            };
            for (node, digest, heard) in steps {
                step(&mut nodes, node, digest, heard);
            }
            for _ in 0..2 {
                (0..5).for_each(|node| step(&mut nodes, node, last, u8::MAX));
            }
            prop_assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
        }
    }
}
