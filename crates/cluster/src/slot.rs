//! Slots: the 16384 parts that names are divided into.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Number of slots: enough that shares differ by a few percent at most, few
/// enough that a table of their owners is made in milliseconds.
pub const SLOTS: usize = 16_384;

/// One of the [`SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number; `None` if there is none.
    pub fn new(number: u16) -> Option<Self> {
        ((number as usize) < SLOTS).then_some(Slot(number))
    }

    /// Its number, below [`SLOTS`].
    pub fn number(self) -> usize {
        self.0 as usize
    }

    /// All slots.
    pub fn all() -> impl Iterator<Item = Slot> {
        (0..SLOTS as u16).map(Slot)
    }
}

/// The key that decides which slot a question falls into. Whoever knows it can
/// aim a flood at one node, so it is a secret, and it changes from time to
/// time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey(pub [u8; 16]);

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

impl HashKey {
    /// The slot of what `octets` encode.
    pub fn slot(&self, octets: &[u8]) -> Slot {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(octets);
        Slot((hasher.finish() >> 50) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_numbered_below_their_count() {
        assert_eq!(Slot::new(0).map(Slot::number), Some(0));
        assert_eq!(Slot::new(16_383).map(Slot::number), Some(16_383));
        assert_eq!(Slot::new(16_384), None);
        assert_eq!(Slot::new(u16::MAX), None);
        assert!(Slot::all().map(Slot::number).eq(0..SLOTS));
    }

    /// Nodes of different versions must come to the same slot.
    #[test]
    fn slots_of_questions_stay_what_they_were() {
        let key = HashKey(std::array::from_fn(|at| at as u8));
        // From the reference vectors of SipHash-2-4: the octets 0 to 14 under
        // this key give a129ca6149be45e5.
        let octets: [u8; 15] = std::array::from_fn(|at| at as u8);
        assert_eq!(key.slot(&octets).number(), 0xa129_ca61_49be_45e5_u64 as usize >> 50);
    }

    #[test]
    fn questions_spread_over_all_slots_and_the_key_decides_how() {
        let (one, other) = (HashKey([1; 16]), HashKey([2; 16]));
        let mut counts = vec![0; SLOTS];
        let mut alike = 0;
        for number in 0..32 * SLOTS as u32 {
            let octets = number.to_be_bytes();
            counts[one.slot(&octets).number()] += 1;
            alike += usize::from(one.slot(&octets) == other.slot(&octets));
        }
        // On average 32 each and 32 in all; chance keeps them within 8 standard deviations.
        assert!(counts.iter().all(|count| (1..=78).contains(count)));
        assert!(alike <= 78, "{alike} questions have the same slot under both keys");
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", HashKey([0xab; 16])), "HashKey(..)");
    }
}
