//! Linear hashing: which place of a table a hash belongs to while the table
//! grows by one place at a time.
//!
//! A table that doubles moves everything it holds at once, and the thread that
//! answers waits for it: tenths of a second for a few million entries. One
//! that grows by a single place splits a single place, its [`parent`].

/// The place of `hash` in a table of `len` places, at least one.
#[inline]
pub(crate) fn place(hash: u64, len: usize) -> usize {
    let mask = len.next_power_of_two() - 1;
    let at = hash as usize & mask;
    if at < len { at } else { at & (mask >> 1) }
}

/// Where everything was that belongs to place `at` from now on, when `at` is
/// the place a table just grew by.
pub(crate) fn parent(at: usize) -> usize {
    at.checked_ilog2().map_or(0, |bit| at & !(1 << bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_by_one_moves_hashes_from_the_parent_to_the_new_place_and_no_others() {
        for len in 1..300 {
            let mut moved = 0;
            for hash in 0..2048 {
                let (before, after) = (place(hash, len), place(hash, len + 1));
                assert!(before < len);
                if after != before {
                    assert_eq!((before, after), (parent(len), len), "{hash} of {len}");
                    moved += 1;
                }
            }
            assert!(moved > 0, "{len}");
        }
    }
}
