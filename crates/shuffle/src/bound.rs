//! How many shards there can be at the most.

use crate::fleet::Columns;

/// The packing bound: no more than `C(workers, overlap + 1) / C(size,
/// overlap + 1)` shards exist, because every group of `overlap + 1` workers is
/// in one of them at the most. Beyond 128 bits it is the largest number.
pub fn packing(workers: u64, size: usize, overlap: usize) -> u128 {
    let group = overlap as u64 + 1;
    match (choose(workers, group), choose(size as u64, group)) {
        (Some(groups), Some(each)) if each > 0 => groups / each,
        _ => u128::MAX,
    }
}

/// Johnson's bound, which is lower where the packing bound cannot be met: a
/// worker's shards, without it, are themselves shards of the others.
pub fn johnson(workers: u64, size: usize, overlap: usize) -> u128 {
    (0..=overlap).rev().fold(1u128, |inner, at| {
        let rest = workers.saturating_sub(at as u64);
        inner.saturating_mul(rest.into()) / (size - at) as u128
    })
}

/// The most shards with one slot of each column: the letters of any
/// `overlap + 1` columns decide a shard, so those of the shortest bound them.
pub fn striped(columns: &Columns, size: usize, overlap: usize) -> u128 {
    if columns.count() < size {
        return u128::MAX;
    }
    let mut sizes: Vec<u32> = columns.sizes().collect();
    sizes.sort_unstable();
    sizes[..=overlap].iter().fold(1u128, |n, &size| n.saturating_mul(size.into()))
}

/// Binomial coefficient; `None` beyond 128 bits.
pub(crate) fn choose(of: u64, count: u64) -> Option<u128> {
    if count > of {
        return Some(0);
    }
    (0..count).try_fold(1u128, |n, at| Some(n.checked_mul((of - at).into())? / u128::from(at + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_books() {
        assert_eq!(packing(2048, 4, 2), 357_389_824);
        assert_eq!(johnson(2048, 4, 2), 357_389_824);
        assert_eq!(packing(8, 2, 1), 28);
        assert_eq!((packing(8, 3, 1), johnson(8, 3, 1)), (9, 8));
        assert_eq!(johnson(7, 3, 1), 7);
        assert_eq!(packing(3, 4, 2), 0);
        assert_eq!(packing(1 << 20, 16, 15), u128::MAX);
        assert_eq!(choose(52, 5), Some(2_598_960));
    }
}
