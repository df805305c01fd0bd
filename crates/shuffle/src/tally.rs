//! How many shards of a design have how many of their slots in a given set.
//!
//! Everything that is said of a whole design comes from here: what a failure
//! takes from whom, and how many slots a shard shares with the others. Nothing
//! is estimated. A count that would take too long is refused.
//!
//! | family | how |
//! |---|---|
//! | all words | a product, one factor for each place |
//! | sums | place by place: how many beginnings have which sum |
//! | other codes | see [`Letters::by_enumeration`] |
//! | quadruples | a transform of the set, see [`Quadruples`] |
//! | pairs | binomials |
//!
//! [`Quadruples`]: crate::quadruple::Quadruples

use std::fmt;

use crate::bound::choose;
use crate::code::{Code, CodeKind};
use crate::count::{LetterSet, each_choice};
use crate::design::{Design, Family};
use crate::shard::{SIZE_MAX, Slot};

/// Words that are looked at for one count at the most: some seconds.
pub(crate) const STEPS_MAX: u128 = 1 << 27;
/// Additions that take as long as one word.
const ADDITIONS_PER_STEP: u128 = 8;

/// Why the shards of a design were not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountError {
    /// The fleet has no such slot.
    UnknownSlot(Slot),
    /// It would take this many steps, and that is too many.
    TooLong { steps: u128, steps_max: u128 },
    /// The design has more words than there are numbers, so which of them are
    /// shards is not counted.
    Unnumbered,
}

impl fmt::Display for CountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CountError::UnknownSlot(slot) => write!(f, "the fleet has no slot {slot}"),
            CountError::TooLong { steps, steps_max } => write!(
                f,
                "counting all shards of the design would take {steps} steps, more than \
                 {steps_max}; count the tenants that there are instead"
            ),
            CountError::Unnumbered => f.write_str(
                "the design has more words than 64 bits can number; count the tenants that there \
                 are instead",
            ),
        }
    }
}

impl std::error::Error for CountError {}

/// A set of slots, one bit each.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotSet {
    bits: Vec<u64>,
    len: usize,
}

impl SlotSet {
    pub fn new(slots: &[Slot]) -> Self {
        let end = slots.iter().map(|slot| slot.0 as usize + 1).max().unwrap_or(0);
        let mut set = SlotSet { bits: vec![0; end.div_ceil(64)], len: 0 };
        slots.iter().for_each(|slot| set.insert(*slot));
        set
    }

    fn insert(&mut self, slot: Slot) {
        let (word, bit) = (&mut self.bits[slot.0 as usize / 64], 1 << (slot.0 % 64));
        self.len += usize::from(*word & bit == 0);
        *word |= bit;
    }

    /// How many different slots there are.
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn contains(&self, slot: Slot) -> bool {
        self.bits.get(slot.0 as usize / 64).is_some_and(|word| word >> (slot.0 % 64) & 1 == 1)
    }

    /// How many of these slots are in the set.
    #[inline]
    pub fn count(&self, slots: &[Slot]) -> usize {
        slots.iter().filter(|slot| self.contains(**slot)).count()
    }
}

/// At `i`, how many shards of the design have exactly `i` slots in the set.
pub(crate) fn tally(
    design: &Design,
    slots: &[Slot],
    steps_max: u128,
) -> Result<Vec<u128>, CountError> {
    let columns = design.columns();
    if let Some(slot) = slots.iter().find(|slot| columns.place(**slot).is_none()) {
        return Err(CountError::UnknownSlot(*slot));
    }
    let set = SlotSet::new(slots);
    let slot_count = columns.slot_count() as u32;
    match design.family() {
        Family::Words(code) if code.word_count() != Some(design.index_end().into()) => {
            Err(CountError::Unnumbered)
        }
        Family::Words(code) => Letters::new(design, code, &set).count(steps_max),
        Family::Quadruples(system) => {
            let is_marked = |letter| columns.slot(0, letter).is_some_and(|slot| set.contains(slot));
            Ok(system.count_by_marked(slot_count, is_marked).to_vec())
        }
        Family::Pairs(_) => {
            let (marked, rest) = (set.len() as u128, u128::from(slot_count) - set.len() as u128);
            let pairs = |len: u128| len * len.saturating_sub(1) / 2;
            Ok(vec![pairs(rest), marked * rest, pairs(marked)])
        }
        Family::Found(_) => {
            let mut counts = vec![0; design.guarantee().size + 1];
            design.shards(0).for_each(|(_, shard)| counts[set.count(&shard)] += 1);
            Ok(counts)
        }
    }
}

/// What a letter of a place stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// A slot that is not in the set.
    Plain,
    /// A slot that is in the set.
    Marked,
    /// No slot: the column is not that long.
    Gap,
}

/// The letters of a code, in classes.
struct Letters<'c> {
    code: &'c Code,
    /// The class of each letter of each place.
    classes: Vec<Vec<Class>>,
}

impl<'c> Letters<'c> {
    fn new(design: &Design, code: &'c Code, set: &SlotSet) -> Self {
        let columns = design.columns();
        let class = |place: usize, letter: u32| match columns.slot(place, letter) {
            None => Class::Gap,
            Some(slot) if set.contains(slot) => Class::Marked,
            Some(_) => Class::Plain,
        };
        let place = |place| (0..code.alphabet_len()).map(|letter| class(place, letter)).collect();
        Letters { code, classes: (0..columns.count()).map(place).collect() }
    }

    fn size(&self) -> usize {
        self.classes.len()
    }

    /// How many letters of a place are of a class.
    fn len(&self, place: usize, class: Class) -> i128 {
        self.classes[place].iter().filter(|of| **of == class).count() as i128
    }

    fn count(&self, steps_max: u128) -> Result<Vec<u128>, CountError> {
        if self.code.kind() == CodeKind::Free {
            return Ok(self.by_product());
        }
        let len = u128::from(self.code.alphabet_len());
        let size = self.size() as u128;
        let sum_steps = match self.code.kind() {
            CodeKind::Sum => len * len * size * (size - 1) / 2 / ADDITIONS_PER_STEP,
            _ => u128::MAX,
        };
        let rests = [Class::Plain, Class::Marked, Class::Gap];
        let steps = rests.map(|rest| self.enumeration_steps(rest));
        let fewest = (0..rests.len()).min_by_key(|&at| steps[at]).unwrap_or(0);
        match steps[fewest].min(sum_steps) {
            least if least > steps_max => Err(CountError::TooLong { steps: least, steps_max }),
            least if least == steps[fewest] => Ok(self.by_enumeration(rests[fewest])),
            _ => Ok(self.by_sums()),
        }
    }

    /// Every word is one of the code.
    fn by_product(&self) -> Vec<u128> {
        let mut counts = vec![1u128];
        for place in 0..self.size() {
            let plain = self.len(place, Class::Plain) as u128;
            let marked = self.len(place, Class::Marked) as u128;
            counts.push(0);
            for at in (0..counts.len()).rev() {
                let before = if at > 0 { counts[at - 1] } else { 0 };
                counts[at] = counts[at] * plain + before * marked;
            }
        }
        counts
    }

    /// Any letters but the last, which is a sum of them: counts beginnings of
    /// words by their sum and by their marked letters, place by place.
    fn by_sums(&self) -> Vec<u128> {
        let (last, len) = (self.size() - 1, self.code.alphabet_len() as usize);
        let free: Vec<usize> = (0..last).collect();
        let completion = self.code.completion(&free);
        let mut beginnings = vec![vec![0u64; len]];
        beginnings[0][0] = 1;
        for place in 0..last {
            let mut longer = vec![vec![0u64; len]; place + 2];
            for letter in 0..len as u32 {
                let class = self.classes[place][letter as usize];
                if class == Class::Gap {
                    continue;
                }
                let (mut letters, mut word) = ([0; SIZE_MAX], [0; SIZE_MAX]);
                letters[place] = letter;
                completion.word(&letters, &mut word);
                let term = word[last];
                for (marked, counts) in beginnings.iter().enumerate() {
                    let to = &mut longer[marked + usize::from(class == Class::Marked)];
                    for (sum, count) in (0..).zip(counts) {
                        to[self.code.add(sum, term) as usize] += count;
                    }
                }
            }
            beginnings = longer;
        }
        let mut counts = vec![0; self.size() + 1];
        for (marked, by_sum) in beginnings.iter().enumerate() {
            for (class, &count) in self.classes[last].iter().zip(by_sum) {
                if *class != Class::Gap {
                    counts[marked + usize::from(*class == Class::Marked)] += u128::from(count);
                }
            }
        }
        counts
    }

    /// Words that [`Letters::by_enumeration`] looks at, and what it takes to
    /// get ready for them.
    fn enumeration_steps(&self, rest: Class) -> u128 {
        let decide = self.code.overlap() + 1;
        // At `n`: choices of `n` places and of a named letter for each.
        let mut choices = vec![0u128; decide + 1];
        choices[0] = 1;
        for place in 0..self.size() {
            let named = (self.classes[place].len() as i128 - self.len(place, rest)) as u128;
            for at in (1..=decide).rev() {
                choices[at] = choices[at].saturating_add(choices[at - 1].saturating_mul(named));
            }
        }
        let maps = choose(self.size() as u64, decide as u64).unwrap_or(u128::MAX);
        let tables = (self.size() * self.classes[0].len()) as u128 / ADDITIONS_PER_STEP;
        choices[decide].saturating_add(maps.saturating_mul(tables))
    }

    /// Of the three classes of letters one is the `rest`; the letters of the
    /// other two are *named*. Words with more than `overlap` named letters are
    /// few and gone through: any `overlap + 1` letters decide a word. For the
    /// others, sums are known without looking: words with given letters at
    /// `overlap` places or fewer are as many for all such letters. From these
    /// sums and the words that were counted, the others follow.
    fn by_enumeration(&self, rest: Class) -> Vec<u128> {
        let named = match rest {
            Class::Plain => [Class::Marked, Class::Gap],
            Class::Marked => [Class::Plain, Class::Gap],
            Class::Gap => [Class::Marked, Class::Plain],
        };
        let mut counts = self.with_many_named(named);
        self.add_with_few_named(named, &mut counts);
        let size = self.size();
        let count = |marked: usize| match rest {
            Class::Plain => counts[marked][0],
            Class::Marked => counts[size - marked][0],
            Class::Gap => counts[marked][size - marked],
        };
        (0..=size).map(|marked| count(marked) as u128).collect()
    }

    /// At `[x][y]`, how many words have `x` letters of the one named class and
    /// `y` of the other, if these are more than `overlap`.
    fn with_many_named(&self, named: [Class; 2]) -> Vec<Vec<i128>> {
        let (size, decide) = (self.size(), self.code.overlap() + 1);
        let sets: Vec<LetterSet> = self
            .classes
            .iter()
            .map(|classes| {
                let is_named = |(letter, class)| named.contains(class).then_some(letter);
                LetterSet::new(self.code.alphabet_len(), (0..).zip(classes).filter_map(is_named))
            })
            .collect();
        let mut visits = vec![vec![0i128; size + 1]; size + 1];
        for places in place_sets(size, decide) {
            if places.iter().any(|&place| sets[place].len() == 0) {
                continue;
            }
            let completion = self.code.completion(&places);
            let mut word = [0; SIZE_MAX];
            each_choice(&places, &sets, |letters| {
                completion.word(letters, &mut word);
                let (mut one, mut other) = (0, 0);
                for (classes, &letter) in self.classes.iter().zip(&word) {
                    one += usize::from(classes[letter as usize] == named[0]);
                    other += usize::from(classes[letter as usize] == named[1]);
                }
                visits[one][other] += 1;
            });
        }
        // A word is met once for each choice of the letters that decide it.
        for (one, row) in visits.iter_mut().enumerate() {
            for (other, visits) in row.iter_mut().enumerate() {
                *visits /= binomial(one + other, decide).max(1);
            }
        }
        visits
    }

    /// Adds the words with `overlap` named letters or fewer.
    fn add_with_few_named(&self, named: [Class; 2], counts: &mut [Vec<i128>]) {
        let (size, overlap) = (self.size(), self.code.overlap());
        // At `[x][y]`: choices of `x` places with a letter of the one class
        // and of `y` with a letter of the other.
        let mut choices = vec![vec![0i128; overlap + 1]; overlap + 1];
        choices[0][0] = 1;
        for place in 0..size {
            let [one, other] = named.map(|class| self.len(place, class));
            for x in (0..=overlap).rev() {
                for y in (0..=overlap - x).rev() {
                    let with_one = if x > 0 { choices[x - 1][y] * one } else { 0 };
                    let with_other = if y > 0 { choices[x][y - 1] * other } else { 0 };
                    choices[x][y] += with_one + with_other;
                }
            }
        }
        let len = i128::from(self.code.alphabet_len());
        for sum in (0..=overlap).rev() {
            for x in 0..=sum {
                let y = sum - x;
                let words = choices[x][y] * len.pow((overlap + 1 - sum) as u32);
                let mut more = 0;
                for (at, row) in counts.iter().enumerate().skip(x) {
                    for (to, &count) in row.iter().enumerate().skip(y) {
                        more += count * binomial(at, x) * binomial(to, y);
                    }
                }
                counts[x][y] = words - more;
            }
        }
    }
}

fn binomial(of: usize, count: usize) -> i128 {
    choose(of as u64, count as u64).expect("shards are small") as i128
}

/// All sets of `count` of the places below `size`.
fn place_sets(size: usize, count: usize) -> impl Iterator<Item = Vec<usize>> {
    let is_wanted = move |set: &u32| set.count_ones() as usize == count;
    let places = move |set: u32| (0..size).filter(|place| set >> place & 1 == 1).collect();
    (0..1u32 << size).filter(is_wanted).map(places)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fleet::{Columns, Fleet};
    use crate::key::Key;

    pub(crate) fn whole(workers: usize) -> Columns {
        Fleet::numbered(workers, None).unwrap().columns(1, &[]).unwrap()
    }

    pub(crate) fn striped(sizes: &[u32], overlap: usize, room: Option<u32>) -> Design {
        Design::striped(Columns::of_sizes(sizes), overlap, room, &Key::from_hex("7a11").unwrap())
    }

    /// Small designs of every family, full ones and others.
    pub(crate) fn small_designs() -> Vec<Design> {
        let key = Key::from_hex("7a11").unwrap();
        let mut designs = vec![
            striped(&[4; 4], 2, None),
            striped(&[5; 4], 2, None),
            striped(&[7; 4], 2, None),
            striped(&[6; 3], 1, None),
            striped(&[4; 4], 1, None),
            striped(&[5; 5], 2, None),
            striped(&[4; 5], 2, None),
            striped(&[7; 5], 2, None),
            striped(&[20; 4], 1, None),
            striped(&[4; 3], 2, None),
            striped(&[6; 3], 0, None),
            // Uneven columns, and room to grow.
            striped(&[5, 4, 5, 3], 2, None),
            striped(&[5, 4, 5, 3], 2, Some(6)),
            striped(&[6, 7, 5, 5], 1, None),
            striped(&[4, 4, 3, 4, 4], 2, Some(7)),
            striped(&[2, 3, 2, 3, 2], 2, Some(7)),
            striped(&[3, 4, 2], 2, Some(5)),
            striped(&[3, 4, 5], 0, Some(7)),
            striped(&[4, 3, 6], 1, None),
        ];
        designs.extend([4, 8, 13, 16, 17].map(|len| Design::quadruples(whole(len), &key)));
        designs.extend([2, 3, 8, 11].map(|len| Design::pairs(whole(len), &key)));
        designs.push(Design::searched(whole(7), 3, 1, &key).unwrap());
        designs.push(Design::searched(Columns::of_sizes(&[4; 3]), 3, 1, &key).unwrap());
        designs
    }

    fn by_brute_force(design: &Design, set: &[Slot]) -> Vec<u128> {
        let mut counts = vec![0; design.guarantee().size + 1];
        for (_, shard) in design.shards(0) {
            counts[shard.iter().filter(|slot| set.contains(slot)).count()] += 1;
        }
        counts
    }

    /// Sets of slots of every density, the same every time.
    fn sets(slot_count: u32) -> Vec<Vec<Slot>> {
        let density = [0, 1, 3, 8, 13, 15, 16];
        let is_in = |slot: u32, density: u32| {
            crate::key::mix(slot.into(), [0x9e37_79b9, 0x5851_f42d_4c95_7f2d]) >> 7 & 15
                < density.into()
        };
        let set = |density| (0..slot_count).filter(|s| is_in(*s, density)).map(Slot).collect();
        density.map(set).to_vec()
    }

    #[test]
    fn tallies_are_those_of_enumeration() {
        for design in small_designs() {
            for set in sets(design.columns().slot_count() as u32) {
                let counted = tally(&design, &set, STEPS_MAX).unwrap();
                assert_eq!(counted, by_brute_force(&design, &set), "{} {set:?}", design.name());
            }
        }
    }

    #[test]
    fn every_way_to_count_gives_the_same() {
        for design in small_designs() {
            let Family::Words(code) = design.family() else { continue };
            for set in sets(design.columns().slot_count() as u32) {
                let letters = Letters::new(&design, code, &SlotSet::new(&set));
                let expected = by_brute_force(&design, &set);
                for rest in [Class::Plain, Class::Marked, Class::Gap] {
                    assert_eq!(letters.by_enumeration(rest), expected, "{rest:?}");
                }
                if code.kind() == CodeKind::Sum {
                    assert_eq!(letters.by_sums(), expected);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let design = striped(&[250; 8], 4, Some(503));
        let refused = tally(&design, &[Slot(1)], STEPS_MAX);
        assert!(matches!(refused, Err(CountError::TooLong { .. })), "{refused:?}");
        assert_eq!(
            tally(&design, &[Slot(2000)], STEPS_MAX),
            Err(CountError::UnknownSlot(Slot(2000)))
        );
        let huge = striped(&[64; 16], 11, None);
        assert_eq!(tally(&huge, &[], STEPS_MAX), Err(CountError::Unnumbered));
    }
}
