//! How many words of a code have their letters in given sets.
//!
//! Any `overlap + 1` letters of a word can be chosen freely and decide it. So
//! words with up to that many letters in given sets are counted by a product;
//! with more of them, the smallest sets are gone through.

use crate::code::{Code, CodeKind};
use crate::fleet::Columns;
use crate::shard::SIZE_MAX;

/// Steps of one count at the most: a second or two.
const STEPS_MAX: u128 = 1 << 26;

/// A set of letters of one place.
#[derive(Clone, Debug)]
pub(crate) struct LetterSet {
    letters: Vec<u32>,
    is_in: Vec<bool>,
}

impl LetterSet {
    pub fn new(alphabet_len: u32, letters: impl IntoIterator<Item = u32>) -> Self {
        let mut is_in = vec![false; alphabet_len as usize];
        letters.into_iter().for_each(|letter| is_in[letter as usize] = true);
        let letters = (0..alphabet_len).filter(|&letter| is_in[letter as usize]).collect();
        LetterSet { letters, is_in }
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }
}

/// A number of words, or a number that there are at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordCount {
    pub count: u128,
    pub is_exact: bool,
}

/// Words whose letters at `places` are in the sets of these places; `None` if
/// counting them takes more than `steps`, which are used up.
fn words_through(
    code: &Code,
    places: &[usize],
    sets: &[LetterSet],
    steps: &mut u128,
) -> Option<u128> {
    let free = code.overlap() + 1;
    let mut places = places.to_vec();
    places.sort_by_key(|&place| sets[place].len());
    let product = |places: &[usize]| {
        places.iter().try_fold(1u128, |n, &place| n.checked_mul(sets[place].len() as u128))
    };
    if places.len() <= free {
        let rest = (free - places.len()) as u32;
        return product(&places)?.checked_mul(u128::from(code.alphabet_len()).checked_pow(rest)?);
    }
    let (decide, check) = places.split_at(free);
    // The map from these letters to words has a table for each term.
    let tables = u128::from(code.alphabet_len()) * (free * sets.len()) as u128;
    *steps = steps.checked_sub(product(decide)?.checked_add(tables)?)?;
    let completion = code.completion(decide);
    let (mut word, mut count) = ([0; SIZE_MAX], 0);
    each_choice(decide, sets, |letters| {
        completion.word(letters, &mut word);
        let is_in = |&place: &usize| sets[place].is_in[word[place] as usize];
        count += u128::from(check.iter().all(is_in));
    });
    Some(count)
}

/// Calls `visit` with every choice of one letter for each of `places`.
pub(crate) fn each_choice(places: &[usize], sets: &[LetterSet], mut visit: impl FnMut(&[u32])) {
    if places.iter().any(|&place| sets[place].letters.is_empty()) {
        return;
    }
    let mut at = vec![0; places.len()];
    let mut letters: Vec<u32> = places.iter().map(|&place| sets[place].letters[0]).collect();
    loop {
        visit(&letters);
        let mut turn = 0;
        loop {
            if turn == places.len() {
                return;
            }
            let set = &sets[places[turn]].letters;
            at[turn] = (at[turn] + 1) % set.len();
            letters[turn] = set[at[turn]];
            if at[turn] > 0 {
                break;
            }
            turn += 1;
        }
    }
}

/// Words all of whose letters stand for a slot.
pub(crate) fn words_within(code: &Code, columns: &Columns) -> WordCount {
    let len = code.alphabet_len();
    let sizes: Vec<u32> = columns.sizes().collect();
    let exact = |count| WordCount { count, is_exact: true };
    let product = |skip: Option<usize>| {
        let kept = sizes.iter().enumerate().filter(|(at, _)| Some(*at) != skip);
        kept.fold(1u128, |n, (_, &size)| n.saturating_mul(size.into()))
    };
    match code.kind() {
        _ if sizes.iter().all(|&size| size == len) => {
            return exact(code.word_count().unwrap_or(u128::MAX));
        }
        CodeKind::Repeat => return exact(sizes.iter().min().copied().unwrap_or(0).into()),
        CodeKind::Free => return exact(product(None)),
        // Whatever the other letters are, the full column has the last one.
        CodeKind::Sum if sizes.contains(&len) => {
            return exact(product(sizes.iter().position(|&size| size == len)));
        }
        _ => {}
    }
    let gaps: Vec<LetterSet> = sizes.iter().map(|&size| LetterSet::new(len, size..len)).collect();
    let counted = words_outside(code, &gaps);
    // Every letter that stands for no slot takes one word of each class.
    let gap_sum: u64 = gaps.iter().map(|gap| gap.len() as u64).sum();
    let least = u128::from(code.class_count()) * u128::from(u64::from(len).saturating_sub(gap_sum));
    match counted.is_exact {
        true => counted,
        false => WordCount { count: counted.count.max(least), is_exact: false },
    }
}

/// Words that have no letter in the set of its place, by inclusion and
/// exclusion of the places that do.
pub(crate) fn words_outside(code: &Code, sets: &[LetterSet]) -> WordCount {
    let touched: Vec<usize> = (0..sets.len()).filter(|&place| sets[place].len() > 0).collect();
    // Ending after words with an odd number of such letters gives too few.
    let mut sums = vec![Some(0i128); touched.len() + 1];
    let mut steps = STEPS_MAX;
    for subset in 0..1u32 << touched.len() {
        let places: Vec<usize> =
            (0..touched.len()).filter(|at| subset >> at & 1 == 1).map(|at| touched[at]).collect();
        let count = words_through(code, &places, sets, &mut steps);
        let count = count.and_then(|n| i128::try_from(n).ok());
        let sum = &mut sums[places.len()];
        *sum = sum.zip(count).and_then(|(sum, count)| sum.checked_add(count));
    }
    let known = sums.iter().take_while(|sum| sum.is_some()).count();
    let is_exact = known == sums.len();
    let used = if is_exact || known % 2 == 0 { known } else { known - 1 };
    let signed = sums[..used].iter().flatten().enumerate();
    let count: i128 = signed.map(|(n, sum)| if n % 2 == 0 { *sum } else { -sum }).sum();
    WordCount { count: count.max(0) as u128, is_exact }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_all(code: &Code, is_wanted: impl Fn(&[u32]) -> bool) -> u128 {
        let mut word = [0; SIZE_MAX];
        let mut count = 0;
        for class in 0..code.class_count() {
            for offset in 0..code.alphabet_len() {
                code.word(class, offset, &mut word);
                count += u128::from(is_wanted(&word));
            }
        }
        count
    }

    #[test]
    fn words_for_uneven_columns_are_counted_as_they_are() {
        for (len, overlap, sizes) in [
            (7, 1, &[7, 6, 5, 7][..]),
            (7, 2, &[6, 6, 6, 6, 6]),
            (9, 1, &[8, 8, 7, 9]),
            (5, 2, &[4, 3, 5, 5]),
            (6, 2, &[4, 3, 5, 5]),
            (6, 1, &[4, 3, 6]),
            (4, 2, &[4, 3, 2]),
            (5, 0, &[4, 3, 5]),
        ] {
            let code = Code::new(len, sizes.len(), overlap).unwrap();
            let counted =
                count_all(&code, |word| word.iter().zip(sizes).all(|(letter, size)| letter < size));
            let expected = WordCount { count: counted, is_exact: true };
            assert_eq!(
                words_within(&code, &Columns::of_sizes(sizes)),
                expected,
                "{len} {overlap} {sizes:?}"
            );
        }
    }

    #[test]
    fn words_through_sets_are_counted_as_they_are() {
        let code = Code::new(7, 5, 2).unwrap();
        let sets: Vec<LetterSet> = [&[1, 2, 3][..], &[0], &[4, 5], &[], &[0, 1, 2, 3, 4, 5, 6]]
            .iter()
            .map(|letters| LetterSet::new(7, letters.iter().copied()))
            .collect();
        for subset in 0..32 {
            let places: Vec<usize> = (0..5).filter(|place| subset >> place & 1 == 1).collect();
            let counted = count_all(&code, |word| {
                places.iter().all(|&place| sets[place].is_in[word[place] as usize])
            });
            let found = words_through(&code, &places, &sets, &mut { STEPS_MAX });
            assert_eq!(found, Some(counted), "{places:?}");
        }
    }

    #[test]
    fn what_takes_too_long_to_count_is_bounded_from_below() {
        let code = Code::new(503, 8, 4).unwrap();
        let counted = words_within(&code, &Columns::of_sizes(&[250; 8]));
        assert!(!counted.is_exact);
        let code = Code::new(503, 8, 2).unwrap();
        let counted = words_within(&code, &Columns::of_sizes(&[500; 8]));
        let near = 503f64.powi(3) * (500f64 / 503.0).powi(8);
        assert!(counted.is_exact && (counted.count as f64 / near - 1.0).abs() < 1e-3);
    }
}
