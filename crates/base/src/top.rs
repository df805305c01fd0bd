use crate::Counter;

/// The heaviest of any number of keys in a fixed number of places, after
/// Space-Saving (Metwally et al., 2005): a key that is not there takes the
/// place of the lightest and inherits its weight. Any key heavier than 1/`N`
/// of everything counted is there. One writer; a reader may see a key with
/// the weight of the one it just replaced.
#[derive(Debug)]
pub struct Top<const N: usize> {
    keys: [Counter; N],
    weights: [Counter; N],
}

impl<const N: usize> Default for Top<N> {
    fn default() -> Self {
        Top {
            keys: std::array::from_fn(|_| Counter::default()),
            weights: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl<const N: usize> Top<N> {
    /// Counts `key`, which is not 0, with `weight`.
    pub fn add(&self, key: u64, weight: u64) {
        let mut lightest = 0;
        let mut least = u64::MAX;
        for index in 0..N {
            if self.keys[index].get() == key {
                return self.weights[index].add(weight);
            }
            let weight = self.weights[index].get();
            if weight < least {
                (lightest, least) = (index, weight);
            }
        }
        self.keys[lightest].set(key);
        self.weights[lightest].add(weight);
    }

    /// Keys with their weights, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.keys
            .iter()
            .zip(&self.weights)
            .map(|(key, weight)| (key.get(), weight.get()))
            .filter(|(key, _)| *key != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_key_stays_among_many_light_ones() {
        let top = Top::<8>::default();
        for key in 1..=10_000 {
            top.add(1_000_000 + key, 1);
            if key % 3 == 0 {
                top.add(7, 1);
            }
        }
        let heavy = top.entries().find(|(key, _)| *key == 7).expect("the heavy key is kept");
        assert!(heavy.1 >= 3333);
        assert_eq!(top.entries().count(), 8);
    }
}
