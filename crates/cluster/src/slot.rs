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
