//! A small seeded generator (SplitMix64): the algorithm is written here so that a seed noted in
//! a bug report gives the same zones and questions whatever happens to crates.

#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// An independent stream: what one part draws does not move what another part draws.
    pub fn stream(seed: u64, part: u64) -> Self {
        let mut random = Random(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        random
    }

    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform enough below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0);
        (self.next() % bound as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_sequence_never_changes() {
        let mut random = Random::new(1);
        let drawn = [random.next(), random.next(), random.next()];
        assert_eq!(drawn, [0x910a2dec89025cc1, 0xbeeb8da1658eec67, 0xf893a2eefb32555e]);
    }
}
