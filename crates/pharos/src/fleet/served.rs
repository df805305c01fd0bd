//! Which virtual name servers a host serves.

use std::sync::Arc;

/// A set of virtual name servers. Part of a snapshot and never changed: a host
/// that picks up or drops servers publishes the next set. Cloning shares it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served(Arc<[u64]>);

impl Served {
    #[inline]
    pub fn contains(&self, server: u16) -> bool {
        let (word, bit) = place(server);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}

impl FromIterator<u16> for Served {
    fn from_iter<I: IntoIterator<Item = u16>>(servers: I) -> Self {
        let mut words = Vec::new();
        for server in servers {
            let (word, bit) = place(server);
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= bit;
        }
        Served(words.into())
    }
}

/// The word that a server's bit stands in, and the bit.
#[inline]
fn place(server: u16) -> (usize, u64) {
    (server as usize / 64, 1 << (server % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let numbers = [65535, 0, 63, 64, 2047, 64];
        let served: Served = numbers.into_iter().collect();
        assert_eq!(served.len(), 5);
        let all = (0..=u16::MAX).filter(|server| served.contains(*server));
        assert_eq!(all.collect::<Vec<_>>(), [0, 63, 64, 2047, 65535]);
        let none = Served::default();
        assert!(none.len() == 0 && !none.contains(0) && !none.contains(65535));
    }
}
