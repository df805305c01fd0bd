//! Keyed hashes of names, one for every suffix in one pass.
//!
//! The hash of a name is made from the hash of its parent and its leftmost
//! label, so the hashes of all suffixes of a question's name cost as much as
//! the hash of the name. The keys are drawn once per process: tenants choose
//! the names in their zones, and must not be able to choose where these land.
//! A collision costs a comparison, never a wrong answer.

use wire::name::LABELS_MAX;
use wire::{Name, QueryName};

/// The keys of one process's hashes.
#[derive(Clone, Copy, Debug)]
pub struct NameHasher {
    seed: u64,
    factor: u64,
}

/// Hashes of all suffixes of one name. Reused from question to question.
#[derive(Clone, Debug)]
pub struct SuffixHashes([u64; LABELS_MAX + 1]);

impl Default for SuffixHashes {
    fn default() -> Self {
        SuffixHashes([0; LABELS_MAX + 1])
    }
}

impl SuffixHashes {
    /// Hash of the suffix that starts at the `index`th label from the left.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        self.0[index]
    }
}

impl NameHasher {
    /// Takes 16 random octets; see the module's text for why.
    pub fn new(random: [u8; 16]) -> Self {
        let word =
            |at: usize| u64::from_le_bytes(random[at..at + 8].try_into().expect("8 of 16 octets"));
        // An odd factor with bits in both halves mixes whatever was drawn.
        NameHasher { seed: word(0), factor: word(8) | 0x8000_0001_0000_0001 }
    }

    /// Hash of the root name.
    pub fn root(&self) -> u64 {
        self.seed
    }

    /// Hash of the name with `label` in front of the name hashed as `parent`.
    pub fn child(&self, parent: u64, label: &[u8]) -> u64 {
        let mut hash = parent;
        let mut chunks = label.chunks_exact(8);
        for chunk in &mut chunks {
            hash = self.mix(hash, u64::from_le_bytes(chunk.try_into().expect("8 octets")));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.close(hash, u64::from_le_bytes(last), label.len())
    }

    /// Hash of a lowered name.
    pub fn name(&self, name: Name<'_>) -> u64 {
        let mut labels = [&[][..]; LABELS_MAX];
        let mut count = 0;
        for label in name.labels() {
            labels[count] = label;
            count += 1;
        }
        labels[..count].iter().rev().fold(self.root(), |hash, label| self.child(hash, label))
    }

    /// Hashes of all suffixes of `name`, from the right.
    #[inline]
    pub fn suffixes(&self, name: &QueryName, hashes: &mut SuffixHashes) {
        let count = name.label_count();
        let mut hash = self.root();
        hashes.0[count] = hash;
        let mut end = name.label_start(count);
        for index in (0..count).rev() {
            let start = name.label_start(index) + 1;
            let len = end - start;
            let mut at = start;
            while end - at >= 8 {
                hash = self.mix(hash, name.word_at(at));
                at += 8;
            }
            let mask = (1u64 << ((end - at) * 8)) - 1;
            hash = self.close(hash, name.word_at(at) & mask, len);
            hashes.0[index] = hash;
            end = start - 1;
        }
    }

    #[inline]
    fn mix(&self, hash: u64, word: u64) -> u64 {
        let wide = u128::from(hash ^ word) * u128::from(self.factor);
        (wide as u64) ^ (wide >> 64) as u64
    }

    /// The last, partial word of a label, with the label's length in the octet
    /// that a partial word leaves free. Names that count up differ in few bits,
    /// which one multiplication by an unlucky key leaves crowded: a second one,
    /// by a constant known to spread well, tears them apart under any key.
    #[inline]
    fn close(&self, hash: u64, word: u64, len: usize) -> u64 {
        let hash = self.mix(hash.rotate_left(23), word ^ ((len as u64) << 56) ^ 0x2545_f491);
        (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::slot_of;
    use proptest::prelude::*;

    /// Steps from the slot of each hash to where it ends up, on average, in a
    /// table in order of the hashes that is two thirds full.
    fn mean_steps(mut hashes: Vec<u32>) -> f64 {
        hashes.sort_unstable();
        let slots = hashes.len() * 3 / 2;
        let (mut free, mut steps) = (0, 0);
        for hash in &hashes {
            let slot = slot_of(*hash, slots);
            free = free.max(slot);
            steps += free - slot;
            free += 1;
        }
        steps as f64 / hashes.len() as f64
    }

    /// The ways tenants count their hosts, under keys good and bad.
    #[test]
    fn names_that_count_up_spread_under_any_key() {
        let names: [fn(u32) -> String; 4] = [
            |n| format!("h{n:04}"),
            |n| n.to_string(),
            |n| format!("ip-10-0-{}-{}", n / 256, n % 256),
            |n| format!("customer-{n:07}"),
        ];
        for key in 0..64u8 {
            let random = std::array::from_fn(|at| match key {
                // Patterns that chance hardly draws. Only all ones are hopeless,
                // one draw of 2^64.
                0..4 => [0, 0x07, 0x55, 0xfe][key as usize],
                _ => u32::from(key).wrapping_mul(0x9e37_79b1).rotate_left(5 * at as u32) as u8,
            });
            let hasher = NameHasher::new(random);
            let parent = hasher.child(hasher.root(), b"example");
            for name in names {
                let hashes: Vec<u64> =
                    (0..1000).map(|n| hasher.child(parent, name(n).as_bytes())).collect();
                let upper = mean_steps(hashes.iter().map(|hash| (hash >> 32) as u32).collect());
                let lower = mean_steps(hashes.iter().map(|hash| *hash as u32).collect());
                assert!(upper < 4.0 && lower < 4.0, "{random:02x?} {}: {upper} {lower}", name(7));
            }
        }
    }

    proptest! {
        #[test]
        fn both_ways_to_hash_agree(
            labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=63), 0..4),
            random in any::<[u8; 16]>(),
        ) {
            let hasher = NameHasher::new(random);
            let mut wire = Vec::new();
            for label in &labels {
                wire.push(label.len() as u8);
                wire.extend(label.iter().map(u8::to_ascii_lowercase));
            }
            wire.push(0);
            prop_assume!(wire.len() <= 255);
            let mut query = QueryName::default();
            query.set(Name::parse(&wire).unwrap());
            let mut hashes = SuffixHashes::default();
            hasher.suffixes(&query, &mut hashes);
            for index in 0..=labels.len() {
                let suffix = Name::parse(query.suffix(index)).unwrap();
                prop_assert_eq!(hashes.get(index), hasher.name(suffix));
            }
        }
    }
}
