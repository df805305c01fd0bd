//! The overlap spectrum: with how many others a shard shares how many slots.
//!
//! In a full design it is the same for every shard and known in closed form:
//! the words that any `overlap + 1` letters decide are a code that meets
//! Singleton's bound, and how many of its words are how far apart does not
//! depend on the code (MacWilliams and Sloane, chapter 11). Where the fleet
//! has fewer slots than the design has letters, it depends on the shard.

use crate::blast::of_tenant;
use crate::bound::choose;
use crate::design::{Design, Family};
use crate::shard::Shard;
use crate::tally::CountError;

/// Designs of this many shards are looked at shard by shard.
pub const ENUMERATED_MAX: u128 = 2048;
/// Shards that are looked at in larger ones.
pub const SAMPLE_LEN: u64 = 64;

/// With how many other shards of the design a shard shares how many slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spectrum {
    /// At `i`, how many others share exactly `i` slots with it.
    pub by_shared: Vec<u128>,
}

impl Spectrum {
    /// The most slots that it shares with another shard.
    pub fn overlap(&self) -> usize {
        self.by_shared.iter().rposition(|&count| count > 0).unwrap_or(0)
    }
}

/// The spectra of many shards of a design.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectrumRange {
    /// At `i`, the fewest others that a shard shares exactly `i` slots with.
    pub least: Vec<u128>,
    pub mean: Vec<f64>,
    pub most: Vec<u128>,
    /// How many shards were looked at; all, if the range is exact.
    pub shards: u128,
    /// The range is that of all shards, not of a sample.
    pub is_exact: bool,
}

/// The spectrum that all shards of a design have, in closed form; `None` if
/// they differ or if there are more words than numbers.
pub fn of_full_design(design: &Design) -> Option<Spectrum> {
    let len = design.columns().slot_count() as u128;
    let by_shared = match design.family() {
        Family::Words(code) => {
            let words = code.word_count()?;
            let is_full = words == u128::from(design.index_end()) && words == design.capacity();
            is_full.then(|| of_words(code.alphabet_len(), design.guarantee()))?
        }
        Family::Quadruples(system) => {
            let is_full = u128::from(system.point_count()) == len;
            is_full.then(|| of_quadruples(len))?
        }
        Family::Pairs(_) => vec![(len - 2) * len.saturating_sub(3) / 2, 2 * (len - 2), 0],
        Family::Found(_) => return None,
    };
    Some(Spectrum { by_shared })
}

fn of_words(len: u32, crate::Guarantee { size, overlap, .. }: crate::Guarantee) -> Vec<u128> {
    let binomial = |of: usize, count: usize| {
        choose(of as u64, count as u64).expect("shards are small") as i128
    };
    let distance = size - overlap;
    // Words that differ from a given one at `places` of its places.
    let at = |places: usize| {
        let term = |less: usize| {
            let words = i128::from(len).pow((places - distance + 1 - less) as u32) - 1;
            let sign = if less.is_multiple_of(2) { 1 } else { -1 };
            sign * binomial(places, less) * words
        };
        let terms = if places < distance { 0 } else { places - distance + 1 };
        (binomial(size, places) * (0..terms).map(term).sum::<i128>()) as u128
    };
    (0..=size).map(|shared| if shared == size { 0 } else { at(size - shared) }).collect()
}

/// Any pair of points is in `(len - 2) / 2` quadruples, any point in as many
/// as the other points have triples, each quadruple holding one.
fn of_quadruples(len: u128) -> Vec<u128> {
    let of_point = (len - 1) * (len - 2) / 6;
    let two = 6 * ((len - 2) / 2 - 1);
    let one = 4 * (of_point - 1) - 2 * two;
    let all = of_point * len / 4;
    vec![all - 1 - one - two, one, two, 0, 0]
}

/// The spectrum of one shard, counted exactly over all others of its design.
pub fn of_shard(design: &Design, shard: &Shard) -> Result<Spectrum, CountError> {
    of_tenant(design, shard).map(|blast| Spectrum { by_shared: blast.by_lost })
}

/// The spectra of all shards, if they are equal or at most
/// [`ENUMERATED_MAX`]; else those of [`SAMPLE_LEN`] shards, evenly spaced by
/// their numbers, each exact.
pub fn across(design: &Design) -> Result<SpectrumRange, CountError> {
    if let Some(spectrum) = of_full_design(design) {
        return Ok(range([spectrum], design.capacity(), true));
    }
    let is_small = design.is_capacity_exact() && design.capacity() <= ENUMERATED_MAX;
    let step = if is_small { 1 } else { (design.index_end() / SAMPLE_LEN).max(1) };
    let mut spectra = Vec::new();
    let mut next = 0;
    while let Some((index, shard)) = design.shards(next).next() {
        spectra.push(of_shard(design, &shard)?);
        next = index.get() + step;
    }
    let count = spectra.len() as u128;
    Ok(range(spectra, count, count == design.capacity() && design.is_capacity_exact()))
}

fn range(
    spectra: impl IntoIterator<Item = Spectrum>,
    shards: u128,
    is_exact: bool,
) -> SpectrumRange {
    let mut range =
        SpectrumRange { least: Vec::new(), mean: Vec::new(), most: Vec::new(), shards, is_exact };
    let mut count = 0.0;
    for Spectrum { by_shared } in spectra {
        count += 1.0;
        if range.most.is_empty() {
            range.least.clone_from(&by_shared);
            range.mean = vec![0.0; by_shared.len()];
            range.most.clone_from(&by_shared);
        }
        for (shared, &others) in by_shared.iter().enumerate() {
            range.least[shared] = range.least[shared].min(others);
            range.mean[shared] += others as f64;
            range.most[shared] = range.most[shared].max(others);
        }
    }
    range.mean.iter_mut().for_each(|sum| *sum /= count);
    range
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::tally::tests::{small_designs, striped, whole};

    fn by_brute_force(design: &Design, shard: &Shard) -> Spectrum {
        let mut by_shared = vec![0; design.guarantee().size + 1];
        for (_, other) in design.shards(0).filter(|(_, other)| other != shard) {
            by_shared[shard.overlap(&other)] += 1;
        }
        Spectrum { by_shared }
    }

    #[test]
    fn spectra_are_those_of_enumeration() {
        let mut in_closed_form = 0;
        for design in small_designs() {
            let closed = of_full_design(&design);
            in_closed_form += usize::from(closed.is_some());
            for (_, shard) in design.shards(0).step_by(5) {
                let counted = by_brute_force(&design, &shard);
                assert_eq!(of_shard(&design, &shard).as_ref(), Ok(&counted), "{}", design.name());
                assert_eq!(closed.as_ref().unwrap_or(&counted), &counted, "{}", design.name());
            }
        }
        assert_eq!(in_closed_form, 18);
    }

    #[test]
    fn the_full_designs_are_as_the_books_say() {
        let of = |design: &Design| of_full_design(design).unwrap().by_shared;
        let four = striped(&[512; 4], 2, None);
        assert_eq!(of(&four), [133_172_221, 1_042_440, 3_066, 0, 0]);
        let (_, shard) = four.shards(1_000_000).next().unwrap();
        assert_eq!(of_shard(&four, &shard).unwrap().by_shared, of(&four));
        let unstriped = Design::quadruples(whole(2048), &Key::PUBLIC);
        assert_eq!(of(&unstriped), [354_603_851, 2_779_840, 6_132, 0, 0]);
        let (_, shard) = unstriped.shards(1_000_000).next().unwrap();
        assert_eq!(of_shard(&unstriped, &shard).unwrap().by_shared, of(&unstriped));
        let eight = striped(&[256; 8], 2, None);
        let (_, shard) = eight.shards(99).next().unwrap();
        assert_eq!(of_shard(&eight, &shard).unwrap().by_shared, of(&eight));
        assert_eq!(of(&eight)[2], 28 * 255);
        assert_eq!(of_full_design(&striped(&[500, 505, 512, 512], 2, None)), None);
        assert_eq!(of_full_design(&striped(&[64; 16], 11, None)), None);
    }

    #[test]
    fn ranges_say_whether_they_are_exact() {
        let full = across(&striped(&[512; 4], 2, None)).unwrap();
        assert!(full.is_exact && full.shards == 134_217_728 && full.least == full.most);
        let small = striped(&[5, 4, 5, 3], 2, None);
        let range = across(&small).unwrap();
        assert!(range.is_exact && range.shards == small.capacity());
        let spectra: Vec<_> = small.shards(0).map(|(_, s)| by_brute_force(&small, &s)).collect();
        assert_eq!(range.most[2], spectra.iter().map(|s| s.by_shared[2]).max().unwrap());
        assert_eq!(range.least[1], spectra.iter().map(|s| s.by_shared[1]).min().unwrap());
        let sum: f64 = spectra.iter().map(|s| s.by_shared[1] as f64).sum();
        assert!((range.mean[1] - sum / spectra.len() as f64).abs() < 1e-9);
        let large = striped(&[100, 100, 99, 98], 2, None);
        let range = across(&large).unwrap();
        assert!(!range.is_exact && (60..=65).contains(&range.shards), "{}", range.shards);
    }
}
