//! Slots, shards and the numbers of shards.

use std::fmt;
use std::ops::Deref;

/// Workers of the largest shard.
pub const SIZE_MAX: usize = 16;

/// A place in a fleet that a worker fills. Shards are made of slots: which
/// host serves a slot may change without touching any shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The slots that serve one tenant, in the order of the stripes; in a fleet
/// without stripes, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    slots: [Slot; SIZE_MAX],
    len: u8,
}

impl Shard {
    /// A shard of these slots, of which there are at most [`SIZE_MAX`].
    pub fn new(slots: impl IntoIterator<Item = Slot>) -> Self {
        let mut shard = Shard { slots: [Slot(0); SIZE_MAX], len: 0 };
        slots.into_iter().for_each(|slot| shard.push(slot));
        shard
    }

    /// The slots that `slot` gives for each place of a word and the letter
    /// there. Common sizes have code of their own, in which a shard is not
    /// copied just after its slots were written one by one: processors wait
    /// for such copies.
    #[inline]
    pub(crate) fn of_word(word: &[u32], slot: impl Fn(usize, u32) -> Option<Slot>) -> Option<Self> {
        match word.len() {
            2 => Shard::of_letters::<2>(word, slot),
            3 => Shard::of_letters::<3>(word, slot),
            4 => Shard::of_letters::<4>(word, slot),
            8 => Shard::of_letters::<8>(word, slot),
            _ => {
                let mut shard = Shard::new([]);
                for (at, &letter) in word.iter().enumerate() {
                    shard.push(slot(at, letter)?);
                }
                Some(shard)
            }
        }
    }

    #[inline]
    fn of_letters<const SIZE: usize>(
        word: &[u32],
        slot: impl Fn(usize, u32) -> Option<Slot>,
    ) -> Option<Self> {
        let mut slots = [Slot(0); SIZE_MAX];
        for at in 0..SIZE {
            slots[at] = slot(at, word[at])?;
        }
        Some(Shard { slots, len: SIZE as u8 })
    }

    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) {
        self.slots[usize::from(self.len)] = slot;
        self.len += 1;
    }

    /// How many slots this shard shares with another.
    pub fn overlap(&self, other: &Shard) -> usize {
        self.iter().filter(|slot| other.contains(slot)).count()
    }
}

impl Deref for Shard {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        &self.slots[..usize::from(self.len)]
    }
}

impl AsRef<[Slot]> for Shard {
    fn as_ref(&self) -> &[Slot] {
        self
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|slot| slot.0)).finish()
    }
}

/// The number of a shard in its design.
///
/// It comes from an [`Allocator`](crate::Allocator), which counts, or from a
/// shard of the design; there is no other way to make one. In particular a
/// hash of a tenant's name is none: a million tenants hashed into the 134
/// million shards of the default design gave 3,717 pairs on the same shard.
///
/// ```compile_fail
/// let index = shuffle::DesignIndex::from(0x5eed_u64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DesignIndex(pub(crate) u64);

impl DesignIndex {
    /// The number, to be kept; [`Allocator::confirm`](crate::Allocator::confirm)
    /// takes it back.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for DesignIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
