//! Names that tests ask for, the same ones every time.

/// The keyed hash of a name, as good as one: SplitMix64 of its number.
pub(crate) fn mix(name: u64) -> u64 {
    let mut hash = name.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Names by Zipf's law: the n-th is asked for in proportion to n^-exponent.
pub(crate) struct Zipf {
    /// The chance of each name or one before it.
    shares: Vec<f64>,
    drawn: u64,
}

impl Zipf {
    pub fn new(names: usize, exponent: f64, seed: u64) -> Self {
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=names)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        Zipf { shares, drawn: mix(seed) }
    }
}

impl Iterator for Zipf {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.drawn = self.drawn.wrapping_add(1);
        let chance = mix(self.drawn) as f64 / u64::MAX as f64;
        let rank = self.shares.partition_point(|share| *share < chance);
        Some(rank.min(self.shares.len() - 1) as u64)
    }
}
