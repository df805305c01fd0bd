//! Words of which no two agree in more than `overlap` places.
//!
//! A word has one letter for each stripe of a fleet, so a word is a shard and
//! the code is the design. All codes here are linear: a word is a sum of rows,
//! each times a letter. The first row moves every place of the word by a unit,
//! so its multiples carry a word through every letter of every place exactly
//! once: such a *class* loads each worker of each stripe alike.
//!
//! | overlap | code | alphabets |
//! |---|---|---|
//! | 0 | the same letter at every place | any |
//! | size - 1 | all words | any |
//! | size - 2 | the last letter is the sum of the others | any |
//! | other | values of polynomials of degree ≤ overlap | products of prime powers ≥ size |
//!
//! Two polynomials of degree ≤ t that agree in t + 1 points are the same one;
//! a sum and all of its terms but one decide that one. Over a product of
//! fields, words agree at a place if they do in every field, so the bound of
//! one field holds for the product. The point at infinity makes room for one
//! stripe more over a single field.

use crate::ring::{Addition, Ring, prime_powers};
use crate::shard::SIZE_MAX;

/// A linear code of distance `size - overlap`.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    kind: CodeKind,
    ring: Ring,
    size: usize,
    overlap: usize,
    /// `overlap + 1` rows of `size` letters.
    rows: Vec<Vec<u32>>,
    /// From the letters that the rows are taken times, to the word.
    to_word: LinearMap,
    /// From the first `overlap + 1` letters of a word back.
    from_word: LinearMap,
    /// The same for sums, without looking every step up.
    sums: Option<Sums>,
    is_even: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeKind {
    Repeat,
    Free,
    Sum,
    Polynomial,
}

impl Code {
    /// The code for words of `size` letters of an alphabet of `len`, or `None`
    /// if no code here fits.
    pub fn new(len: u32, size: usize, overlap: usize) -> Option<Self> {
        assert!(len > 0 && overlap < size && size <= SIZE_MAX);
        let kind = match size - overlap {
            _ if overlap == 0 => CodeKind::Repeat,
            1 => CodeKind::Free,
            2 => CodeKind::Sum,
            _ => CodeKind::Polynomial,
        };
        let (ring, rows) = match kind {
            CodeKind::Repeat => (Ring::integers(len), vec![vec![1 % len; size]]),
            CodeKind::Free => free_rows(len, size),
            CodeKind::Sum => sum_rows(len, size),
            CodeKind::Polynomial => polynomial_rows(len, size, overlap)?,
        };
        let to_word = LinearMap::new(&ring, &rows);
        let first: Vec<usize> = (0..=overlap).collect();
        let from_word = LinearMap::new(&ring, &invert(&ring, &columns(&rows, &first))?);
        let is_even = rows[0].iter().all(|&letter| ring.inverse(letter).is_some());
        let sums = (kind == CodeKind::Sum).then(|| Sums::new(&ring, &rows));
        Some(Code { kind, ring, size, overlap, rows, to_word, from_word, sums, is_even })
    }

    /// The smallest alphabet of `len` letters or more that there is a code for.
    pub fn alphabet_for(len: u32, size: usize, overlap: usize) -> u32 {
        let fits =
            |len: &u32| overlap == 0 || overlap + 2 >= size || polynomials_fit(*len, size, overlap);
        // Between a number and its double there is a power of 2, and a prime.
        (len..).find(fits).expect("there is a prime above every number")
    }

    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    pub fn overlap(&self) -> usize {
        self.overlap
    }

    pub fn alphabet_len(&self) -> u32 {
        self.ring.len()
    }

    /// Number of words; `None` beyond what 128 bits can count.
    pub fn word_count(&self) -> Option<u128> {
        u128::from(self.ring.len()).checked_pow(self.overlap as u32 + 1)
    }

    /// Classes of words. Where there are more than 64 bits can count with
    /// their words, the rest is not used.
    pub fn class_count(&self) -> u64 {
        let len = u64::from(self.ring.len());
        len.checked_pow(self.overlap as u32).unwrap_or(u64::MAX).min((u64::MAX >> 1) / len)
    }

    /// Every class carries every letter of every place once. Otherwise only
    /// pairs of classes do so, twice: 0 and 1, 2 and 3, and so on.
    pub fn is_even(&self) -> bool {
        self.is_even
    }

    /// The word number `offset` of a class.
    #[inline]
    pub fn word(&self, class: u64, offset: u32, word: &mut [u32]) {
        let mut letters = [0; SIZE_MAX];
        letters[0] = offset;
        digits(class, self.ring.len(), &mut letters[1..=self.overlap]);
        if let Some(sums) = &self.sums {
            return sums.word(&self.ring, &letters[..=self.overlap], &mut word[..self.size]);
        }
        self.to_word.apply(&self.ring, &letters, &mut word[..self.size]);
    }

    /// The class of a word and its number there; `None` if the code does not
    /// hold the word.
    #[inline]
    pub fn locate(&self, word: &[u32]) -> Option<(u64, u32)> {
        let (word, mut letters) = (&word[..self.size], [0; SIZE_MAX]);
        let is_held = match &self.sums {
            Some(sums) => sums.letters(&self.ring, word, &mut letters[..=self.overlap]),
            None => self.letters(word, &mut letters[..=self.overlap]),
        };
        if !is_held {
            return None;
        }
        let len = u64::from(self.ring.len());
        let places = letters[1..=self.overlap].iter().rev();
        let class = places.fold(0u64, |class, &digit| class * len + u64::from(digit));
        (class < self.class_count()).then_some((class, letters[0]))
    }

    /// The letters that the rows are taken times; whether they make the word.
    #[inline]
    fn letters(&self, word: &[u32], letters: &mut [u32]) -> bool {
        self.from_word.apply(&self.ring, word, letters);
        // The first letters of the word are right, since these were taken.
        let first = letters.len();
        let mut rest = [0; SIZE_MAX];
        let rest = &mut rest[..self.size - first];
        self.to_word.apply_from(first, &self.ring, letters, rest);
        rest.iter().zip(&word[first..]).all(|(right, letter)| right == letter)
    }

    /// The sum of two letters: words are added letter by letter.
    #[inline]
    pub fn add(&self, one: u32, other: u32) -> u32 {
        self.ring.add(one, other)
    }

    /// The map from the letters at `places`, `overlap + 1` of them, to words.
    pub fn completion(&self, places: &[usize]) -> Completion<'_> {
        assert_eq!(places.len(), self.overlap + 1);
        let inverse = invert(&self.ring, &columns(&self.rows, places))
            .expect("any overlap + 1 letters decide a word");
        let rows = multiply(&self.ring, &inverse, &self.rows);
        Completion { ring: &self.ring, map: LinearMap::new(&self.ring, &rows) }
    }
}

/// Words of a sum, most of whose rows are ones: see [`sum_rows`].
#[derive(Clone, Debug)]
struct Sums {
    /// What each letter of the first row adds to the last place.
    of_first: Vec<u32>,
    /// What each letter of the last row adds to the last place.
    of_last: Vec<u32>,
}

impl Sums {
    fn new(ring: &Ring, rows: &[Vec<u32>]) -> Self {
        let products = |row: &Vec<u32>| {
            let factor = row[row.len() - 1];
            (0..ring.len()).map(|letter| ring.multiply(letter, factor)).collect()
        };
        Sums { of_first: products(&rows[0]), of_last: products(&rows[rows.len() - 1]) }
    }

    #[inline]
    fn word(&self, ring: &Ring, letters: &[u32], word: &mut [u32]) {
        let xor = |a, b| a ^ b;
        match (ring.addition(), word.len()) {
            // What most fleets have: loops of known length are no loops.
            (Addition::Xor, 4) => self.word_with(&letters[..3], &mut word[..4], xor),
            (Addition::Xor, _) => self.word_with(letters, word, xor),
            _ => self.word_with(letters, word, |a, b| ring.add(a, b)),
        }
    }

    #[inline]
    fn word_with(&self, letters: &[u32], word: &mut [u32], add: impl Fn(u32, u32) -> u32) {
        let (Some((&first, others)), Some((end, places))) =
            (letters.split_first(), word.split_last_mut())
        else {
            return;
        };
        places[0] = first;
        *end = self.last(first, others, &add);
        for (place, &letter) in places[1..].iter_mut().zip(others) {
            *place = add(first, letter);
        }
    }

    /// The letter of the last place.
    #[inline]
    fn last(&self, first: u32, others: &[u32], add: impl Fn(u32, u32) -> u32) -> u32 {
        let mut sum = self.of_first[first as usize];
        if let Some((&last, others)) = others.split_last() {
            sum = others.iter().fold(sum, |sum, &letter| add(sum, letter));
            sum = add(sum, self.of_last[last as usize]);
        }
        sum
    }

    /// The letters that the rows are taken times; whether they make the word.
    #[inline]
    fn letters(&self, ring: &Ring, word: &[u32], letters: &mut [u32]) -> bool {
        let xor = |a, b| a ^ b;
        match (ring.addition(), word.len()) {
            (Addition::Xor, 4) => self.letters_with(&word[..4], &mut letters[..3], xor, xor),
            (Addition::Xor, _) => self.letters_with(word, letters, xor, xor),
            _ => {
                let (add, subtract) = (|a, b| ring.add(a, b), |a, b| ring.subtract(a, b));
                self.letters_with(word, letters, add, subtract)
            }
        }
    }

    #[inline]
    fn letters_with(
        &self,
        word: &[u32],
        letters: &mut [u32],
        add: impl Fn(u32, u32) -> u32,
        subtract: impl Fn(u32, u32) -> u32,
    ) -> bool {
        let Some((first, others)) = letters.split_first_mut() else { return false };
        *first = word[0];
        for (letter, &place) in others.iter_mut().zip(&word[1..]) {
            *letter = subtract(place, *first);
        }
        word.last() == Some(&self.last(*first, others, add))
    }
}

/// Makes whole words of some of their letters.
pub(crate) struct Completion<'c> {
    ring: &'c Ring,
    map: LinearMap,
}

impl Completion<'_> {
    pub fn word(&self, letters: &[u32], word: &mut [u32]) {
        self.map.apply(self.ring, letters, word);
    }
}

#[inline]
fn digits(mut number: u64, base: u32, digits: &mut [u32]) {
    // Divisions of 32 bits are much faster, and nearly all are.
    if base.is_power_of_two() {
        for digit in digits {
            *digit = number as u32 & (base - 1);
            number >>= base.trailing_zeros();
        }
        return;
    }
    for digit in digits {
        if let Ok(small) = u32::try_from(number) {
            (number, *digit) = (u64::from(small / base), small % base);
        } else {
            (number, *digit) = (number / u64::from(base), (number % u64::from(base)) as u32);
        }
    }
}

/// A matrix over a ring, applied to letters by looking products up.
#[derive(Clone, Debug)]
struct LinearMap {
    /// The terms of all outputs, one output after the other.
    terms: Vec<Term>,
    /// Where the terms of each output start.
    starts: Vec<u8>,
    tables: Vec<u32>,
}

/// A letter of the input, as it is or times another.
#[derive(Clone, Copy, Debug)]
struct Term {
    /// Where its products start, or [`Term::AS_IT_IS`].
    table: u32,
    input: u8,
    /// The sum is complete with this term.
    is_last: bool,
}

impl Term {
    const AS_IT_IS: u32 = u32::MAX;
}

impl LinearMap {
    fn new(ring: &Ring, rows: &[Vec<u32>]) -> Self {
        let mut map = LinearMap { terms: Vec::new(), starts: Vec::new(), tables: Vec::new() };
        let mut known = Vec::new();
        for column in 0..rows[0].len() {
            map.starts.push(map.terms.len() as u8);
            let factors = (0..).zip(rows).map(|(input, row)| (input, row[column]));
            let mut needed: Vec<(u8, u32)> = factors.filter(|(_, factor)| *factor != 0).collect();
            if needed.is_empty() {
                // Nothing of any letter is the same as nothing of the first.
                needed.push((0, 0));
            }
            let last = needed.len() - 1;
            for (at, (input, factor)) in needed.into_iter().enumerate() {
                let table = map.table(ring, factor, &mut known);
                map.terms.push(Term { table, input, is_last: at == last });
            }
        }
        map
    }

    /// Where the products with `factor` are; makes them, if they are not known.
    fn table(&mut self, ring: &Ring, factor: u32, known: &mut Vec<(u32, u32)>) -> u32 {
        if factor == ring.one() {
            return Term::AS_IT_IS;
        }
        if let Some((_, table)) = known.iter().find(|(known, _)| *known == factor) {
            return *table;
        }
        let table = self.tables.len() as u32;
        self.tables.extend((0..ring.len()).map(|letter| ring.multiply(letter, factor)));
        known.push((factor, table));
        table
    }

    #[inline]
    fn apply(&self, ring: &Ring, input: &[u32], output: &mut [u32]) {
        self.apply_from(0, ring, input, output);
    }

    /// The outputs from number `first` on. How letters are added is decided
    /// once, not for every term.
    #[inline]
    fn apply_from(&self, first: usize, ring: &Ring, input: &[u32], output: &mut [u32]) {
        let Some(&start) = self.starts.get(first) else { return };
        let terms = &self.terms[usize::from(start)..];
        match ring.addition() {
            Addition::Xor => self.sum_up(terms, input, output, |a, b| a ^ b),
            Addition::Modulo => self.sum_up(terms, input, output, |a, b| {
                // Without a branch: a difference below 0 is a large number.
                (a + b).min((a + b).wrapping_sub(ring.len()))
            }),
            Addition::Digits(_) => self.sum_up(terms, input, output, |a, b| ring.add(a, b)),
        }
    }

    #[inline]
    fn sum_up(
        &self,
        terms: &[Term],
        input: &[u32],
        output: &mut [u32],
        add: impl Fn(u32, u32) -> u32,
    ) {
        let mut sum = 0;
        let mut output = output.iter_mut();
        for term in terms {
            let value = input[usize::from(term.input)];
            let value = match term.table {
                Term::AS_IT_IS => value,
                table => self.tables[(table + value) as usize],
            };
            sum = add(sum, value);
            if term.is_last {
                let Some(letter) = output.next() else { return };
                *letter = sum;
                sum = 0;
            }
        }
    }
}

fn free_rows(len: u32, size: usize) -> (Ring, Vec<Vec<u32>>) {
    let one = 1 % len;
    let row =
        |row: usize| (0..size).map(|at| if row == 0 || row == at { one } else { 0 }).collect();
    (Ring::integers(len), (0..size).map(row).collect())
}

/// All letters but the last are free; the last is their sum, the one before
/// the last taken times a unit that makes the first row all units.
fn sum_rows(len: u32, size: usize) -> (Ring, Vec<Vec<u32>>) {
    let overlap = size - 2;
    let (ring, factor) = sum_factor(len, overlap as u32);
    let sum = (0..overlap).fold(factor, |sum, _| ring.add(sum, ring.one()));
    let row = |row: usize| {
        let last = match row {
            0 => sum,
            _ if row == overlap => factor,
            _ => ring.one(),
        };
        let free = |at: usize| if row == 0 || row == at { ring.one() } else { 0 };
        (0..=overlap).map(free).chain([last]).collect()
    };
    let rows = (0..=overlap).map(row).collect();
    (ring, rows)
}

/// A ring and a unit of it that, added to `ones` times 1, gives a unit; or, if
/// no ring of this size has one, gives a letter that is as near to a unit as
/// can be: in all fields but the one of two elements.
fn sum_factor(len: u32, ones: u32) -> (Ring, u32) {
    let find = |ring: &Ring| {
        let ones = (0..ones).fold(0, |sum, _| ring.add(sum, ring.one()));
        let is_unit = |letter: u32| ring.inverse(letter).is_some();
        (0..ring.len()).find(|&letter| is_unit(letter) && is_unit(ring.add(letter, ones)))
    };
    let rings: [fn(u32) -> Ring; 2] = match len {
        1 => return (Ring::integers(1), 0),
        // Without carries the words are quadruples of the Boolean system too.
        _ if len.is_power_of_two() => [Ring::fields, Ring::integers],
        _ => [Ring::integers, Ring::fields],
    };
    for ring in rings {
        let ring = ring(len);
        if let Some(factor) = find(&ring) {
            return (ring, factor);
        }
    }
    let ring = Ring::fields(len);
    match len {
        2 => (ring, 1),
        _ => {
            // The field of two elements comes first: its letter is the lowest bit.
            let odd = Ring::fields(len / 2);
            let ones = (0..ones).fold(0, |sum, _| odd.add(sum, odd.one()));
            let is_unit = |letter: u32| odd.inverse(letter).is_some();
            let factor = (0..odd.len()).find(|&a| is_unit(a) && is_unit(odd.add(a, ones)));
            (ring, factor.expect("fields of three elements and more have one") * 2 + 1)
        }
    }
}

fn polynomials_fit(len: u32, size: usize, overlap: usize) -> bool {
    let powers = prime_powers(len);
    let fields = powers.iter().map(|&(prime, exponent)| prime.pow(exponent) as usize);
    let with_infinity = powers.len() == 1 && overlap >= 2;
    len > 1 && fields.min().is_some_and(|least| size <= least + usize::from(with_infinity))
}

fn polynomial_rows(len: u32, size: usize, overlap: usize) -> Option<(Ring, Vec<Vec<u32>>)> {
    if !polynomials_fit(len, size, overlap) {
        return None;
    }
    let is_plain = prime_powers(len).iter().all(|(_, exponent)| *exponent == 1);
    let ring = if is_plain { Ring::integers(len) } else { Ring::fields(len) };
    let powers = |row: usize, count: usize| -> Vec<u32> {
        (0..count as u32).map(|point| power(&ring, ring.letter(point), row)).collect()
    };
    let rows = match size <= len as usize {
        true => (0..=overlap).map(|row| powers(row, size)).collect(),
        // The value at infinity is the leading coefficient. Multiples of a
        // polynomial of full degree without roots move it like the others.
        false => {
            let rootless = rootless_values(&ring, overlap);
            let lower = (0..overlap).map(|row| with_last(powers(row, size - 1), 0));
            [with_last(rootless, ring.one())].into_iter().chain(lower).collect()
        }
    };
    Some((ring, rows))
}

fn with_last(mut row: Vec<u32>, last: u32) -> Vec<u32> {
    row.push(last);
    row
}

fn power(ring: &Ring, letter: u32, exponent: usize) -> u32 {
    (0..exponent).fold(ring.one(), |power, _| ring.multiply(power, letter))
}

/// The values of a monic polynomial that is nowhere zero.
fn rootless_values(ring: &Ring, degree: usize) -> Vec<u32> {
    let tails = (0..u64::from(ring.len()).saturating_pow(degree as u32)).map(|number| {
        let mut tail = [0; SIZE_MAX];
        digits(number, ring.len(), &mut tail[..degree]);
        tail
    });
    let value = |tail: &[u32; SIZE_MAX], x: u32| {
        let terms = tail[..degree].iter().rev();
        terms.fold(ring.one(), |value, &c| ring.add(ring.multiply(value, x), c))
    };
    tails
        .map(|tail| (0..ring.len()).map(|x| value(&tail, x)).collect::<Vec<u32>>())
        .find(|values| values.iter().all(|&value| value != 0))
        .expect("there are irreducible polynomials of every degree above 1")
}

/// Some columns of a matrix.
fn columns(rows: &[Vec<u32>], places: &[usize]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| places.iter().map(|&place| row[place]).collect()).collect()
}

fn multiply(ring: &Ring, left: &[Vec<u32>], right: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let cell = |row: &Vec<u32>, column: usize| {
        let products = row.iter().zip(right).map(|(&a, b)| ring.multiply(a, b[column]));
        products.fold(0, |sum, product| ring.add(sum, product))
    };
    left.iter().map(|row| (0..right[0].len()).map(|at| cell(row, at)).collect()).collect()
}

/// The inverse of a square matrix, by elimination; `None` if there is none.
fn invert(ring: &Ring, matrix: &[Vec<u32>]) -> Option<Vec<Vec<u32>>> {
    let len = matrix.len();
    let mut work: Vec<Vec<u32>> = matrix.to_vec();
    for (at, row) in work.iter_mut().enumerate() {
        row.extend((0..len).map(|column| if column == at { ring.one() } else { 0 }));
    }
    for pivot in 0..len {
        let unit = (pivot..len).find(|&row| ring.inverse(work[row][pivot]).is_some())?;
        work.swap(pivot, unit);
        let inverse = ring.inverse(work[pivot][pivot])?;
        let lead: Vec<u32> = work[pivot].iter().map(|&a| ring.multiply(a, inverse)).collect();
        for (at, row) in work.iter_mut().enumerate() {
            let factor = row[pivot];
            if at != pivot && factor != 0 {
                for (cell, &a) in row.iter_mut().zip(&lead) {
                    *cell = ring.subtract(*cell, ring.multiply(a, factor));
                }
            }
        }
        work[pivot] = lead;
    }
    Some(work.into_iter().map(|row| row[len..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and overlaps of codes over small alphabets, of every kind.
    pub(crate) const SMALL: [(u32, usize, usize); 28] = [
        (1, 3, 1),
        (5, 3, 0),
        (4, 2, 1),
        (3, 3, 2),
        (2, 3, 1),
        (3, 3, 1),
        (4, 3, 1),
        (6, 3, 1),
        (10, 3, 1),
        (12, 3, 1),
        (15, 3, 1),
        (2, 4, 2),
        (3, 4, 2),
        (4, 4, 2),
        (5, 4, 2),
        (6, 4, 2),
        (8, 4, 2),
        (9, 4, 2),
        (3, 5, 3),
        (4, 5, 3),
        (5, 5, 3),
        (6, 5, 3),
        (4, 4, 1),
        (7, 5, 2),
        (4, 5, 2),
        (9, 6, 2),
        (20, 4, 1),
        (7, 8, 3),
    ];

    fn words(code: &Code) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        for class in 0..code.class_count() {
            for offset in 0..code.alphabet_len() {
                let mut word = vec![0; code.size];
                code.word(class, offset, &mut word);
                assert_eq!(code.locate(&word), Some((class, offset)));
                all.push(word);
            }
        }
        all
    }

    fn agreements(a: &[u32], b: &[u32]) -> usize {
        a.iter().zip(b).filter(|(a, b)| a == b).count()
    }

    #[test]
    fn no_two_words_agree_in_more_than_overlap_places() {
        for (len, size, overlap) in SMALL {
            let code = Code::new(len, size, overlap).expect("a code");
            let all = words(&code);
            assert_eq!(Some(all.len() as u128), code.word_count());
            for (at, word) in all.iter().enumerate() {
                for other in &all[..at] {
                    assert!(agreements(word, other) <= overlap, "{len} {size} {overlap}");
                }
            }
        }
    }

    #[test]
    fn classes_or_their_pairs_carry_every_letter_alike() {
        for (len, size, overlap) in SMALL {
            let code = Code::new(len, size, overlap).expect("a code");
            let is_uneven = len % 4 == 2 && size == overlap + 2 && overlap % 2 == 1;
            assert_eq!(code.is_even(), !is_uneven, "{len} {size} {overlap}");
            let run = len as usize * if code.is_even() { 1 } else { 2 };
            for class in words(&code).chunks(run) {
                for place in 0..size {
                    let mut loads = vec![0; len as usize];
                    class.iter().for_each(|word| loads[word[place] as usize] += 1);
                    let each = run / len as usize;
                    assert!(loads.iter().all(|&load| load == each), "{len} {size} {overlap}");
                }
            }
        }
    }

    #[test]
    fn any_letters_that_decide_a_word_complete_it() {
        for (len, size, overlap) in SMALL {
            let code = Code::new(len, size, overlap).expect("a code");
            let all = words(&code);
            for start in 0..=size - overlap - 1 {
                let mut places: Vec<usize> = (start..=start + overlap).collect();
                places.reverse();
                let completion = code.completion(&places);
                for word in all.iter().step_by(all.len().div_ceil(50)) {
                    let letters: Vec<u32> = places.iter().map(|&place| word[place]).collect();
                    let mut again = vec![0; size];
                    completion.word(&letters, &mut again);
                    assert_eq!(&again, word);
                }
            }
        }
    }

    #[test]
    fn foreign_words_are_not_found() {
        let code = Code::new(5, 4, 2).expect("a code");
        let held = words(&code);
        let mut found = 0;
        for number in 0..5u64.pow(4) {
            let mut word = [0; 4];
            digits(number, 5, &mut word);
            let is_held = held.iter().any(|held| *held == word);
            assert_eq!(code.locate(&word).is_some(), is_held);
            found += usize::from(is_held);
        }
        assert_eq!(found, 125);
    }

    #[test]
    fn alphabets_without_a_code_are_passed_over() {
        assert_eq!(Code::alphabet_for(6, 4, 1), 7);
        assert_eq!(Code::alphabet_for(20, 4, 1), 20);
        assert_eq!(Code::alphabet_for(6, 4, 2), 6);
        assert_eq!(Code::alphabet_for(3, 5, 2), 4);
        assert_eq!(Code::alphabet_for(3, 5, 1), 5);
        assert_eq!(Code::alphabet_for(500, 8, 2), 503);
        assert!(Code::new(6, 4, 1).is_none());
    }
}
