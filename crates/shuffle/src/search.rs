//! Shards by exhaustive search, for small fleets that no construction covers.
//!
//! Every group of `overlap + 1` slots is in one shard at the most. The search
//! takes the first group that is not decided yet and tries every shard that
//! holds it, and that none does; it goes back when what is left cannot beat
//! the best found. It ends when the best is proved to be the largest possible,
//! or when its steps are used up, and says which. A shard is never short.

use std::collections::HashMap;

use crate::fleet::Columns;
use crate::shard::SIZE_MAX;

/// Slots of the largest fleet that is searched.
pub(crate) const SEARCHED_SLOTS_MAX: usize = 64;
const CANDIDATES_MAX: usize = 1 << 16;
const GROUPS_MAX: usize = 1 << 12;
const STEPS_MAX: usize = 1 << 18;

/// Shards that a search found, as words over columns or points of one column.
#[derive(Clone, Debug)]
pub(crate) struct Packing {
    size: usize,
    overlap: usize,
    words: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, u32>,
    is_one_column: bool,
    is_proved: bool,
}

impl Packing {
    /// Searches shards of `size` slots: one of each column if there are as
    /// many columns, else any slots of the single column. `None` if the fleet
    /// is too large for that.
    pub fn search(columns: &Columns, size: usize, overlap: usize) -> Option<Self> {
        let is_one_column = columns.count() == 1;
        assert!(is_one_column || columns.count() == size);
        if columns.slot_count() > SEARCHED_SLOTS_MAX {
            return None;
        }
        let candidates = match is_one_column {
            true => subsets(columns.slot_count() as u32, size)?,
            false => all_words(&columns.sizes().collect::<Vec<u32>>())?,
        };
        let mut search = Search::new(candidates, overlap, is_one_column)?;
        search.bound = crate::bound::johnson(columns.slot_count() as u64, size, overlap)
            .min(crate::bound::striped(columns, size, overlap)) as usize;
        let is_proved = search.run();
        let words = spread_loads(
            search.best.iter().map(|&n| search.candidates[n].clone()).collect(),
            is_one_column,
        );
        Some(Packing::new(size, overlap, words, is_one_column, is_proved))
    }

    fn new(
        size: usize,
        overlap: usize,
        words: Vec<Vec<u32>>,
        is_one_column: bool,
        is_proved: bool,
    ) -> Self {
        let numbers = words.iter().cloned().zip(0..).collect();
        Packing { size, overlap, words, numbers, is_one_column, is_proved }
    }

    /// The same with other letters: `letter(column, old)` is the new one.
    pub fn relabelled(&self, letter: impl Fn(usize, u32) -> u32) -> Self {
        let relabel = |word: &Vec<u32>| {
            let column = |at| if self.is_one_column { 0 } else { at };
            let letters = word.iter().enumerate().map(|(at, &old)| letter(column(at), old));
            let mut word: Vec<u32> = letters.collect();
            if self.is_one_column {
                word.sort_unstable();
            }
            word
        };
        let words = self.words.iter().map(relabel).collect();
        Packing::new(self.size, self.overlap, words, self.is_one_column, self.is_proved)
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn overlap(&self) -> usize {
        self.overlap
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// It is proved that there are not more.
    pub fn is_proved(&self) -> bool {
        self.is_proved
    }

    pub fn words(&self) -> impl Iterator<Item = &[u32]> {
        self.words.iter().map(Vec::as_slice)
    }

    pub fn word(&self, number: u32, word: &mut [u32; SIZE_MAX]) {
        word[..self.size].copy_from_slice(&self.words[number as usize]);
    }

    pub fn locate(&self, word: &mut [u32]) -> Option<u32> {
        if self.is_one_column {
            word.sort_unstable();
        }
        self.numbers.get(word).copied()
    }
}

struct Search {
    candidates: Vec<Vec<u32>>,
    /// The groups that each candidate holds.
    groups_of: Vec<Vec<u32>>,
    /// The candidates that hold each group.
    holders: Vec<Vec<u32>>,
    groups_each: usize,
    bound: usize,
    is_used: Vec<bool>,
    chosen: Vec<usize>,
    best: Vec<usize>,
    steps: usize,
}

impl Search {
    fn new(candidates: Vec<Vec<u32>>, overlap: usize, is_one_column: bool) -> Option<Self> {
        let mut numbers: HashMap<Vec<(usize, u32)>, u32> = HashMap::new();
        let mut groups_of = Vec::new();
        for word in &candidates {
            let points: Vec<(usize, u32)> = word
                .iter()
                .enumerate()
                .map(|(at, &l)| (if is_one_column { 0 } else { at }, l))
                .collect();
            let mut own = Vec::new();
            for group in subsets(word.len() as u32, overlap + 1)? {
                let group = group.iter().map(|&at| points[at as usize]).collect();
                let next = numbers.len() as u32;
                own.push(*numbers.entry(group).or_insert(next));
            }
            groups_of.push(own);
        }
        if numbers.len() > GROUPS_MAX {
            return None;
        }
        let mut holders = vec![Vec::new(); numbers.len()];
        for (candidate, groups) in groups_of.iter().enumerate() {
            groups.iter().for_each(|&group| holders[group as usize].push(candidate as u32));
        }
        Some(Search {
            groups_each: groups_of.first().map_or(1, Vec::len),
            is_used: vec![false; numbers.len()],
            candidates,
            groups_of,
            holders,
            bound: usize::MAX,
            chosen: Vec::new(),
            best: Vec::new(),
            steps: 0,
        })
    }

    /// True if the best is proved to be the largest.
    fn run(&mut self) -> bool {
        self.visit(0, self.holders.len());
        self.best.len() >= self.bound || self.steps < STEPS_MAX
    }

    /// Decides the groups from number `from` on, `open` of which may still be
    /// in a shard.
    fn visit(&mut self, from: usize, open: usize) {
        self.steps += 1;
        if self.chosen.len() > self.best.len() {
            self.best.clone_from(&self.chosen);
        }
        let is_over =
            |search: &Search| search.steps >= STEPS_MAX || search.best.len() >= search.bound;
        let most = self.chosen.len() + open / self.groups_each;
        if is_over(self) || most <= self.best.len() {
            return;
        }
        let Some(group) = (from..self.is_used.len()).find(|&group| !self.is_used[group]) else {
            return;
        };
        for at in 0..self.holders[group].len() {
            let candidate = self.holders[group][at] as usize;
            let is_free = |&group: &u32| !self.is_used[group as usize];
            if !self.groups_of[candidate].iter().all(is_free) {
                continue;
            }
            self.take(candidate, true);
            self.visit(group + 1, open - self.groups_each);
            self.take(candidate, false);
            if is_over(self) {
                return;
            }
        }
        // No shard holds this group.
        self.is_used[group] = true;
        self.visit(group + 1, open - 1);
        self.is_used[group] = false;
    }

    fn take(&mut self, candidate: usize, taken: bool) {
        for &group in &self.groups_of[candidate] {
            self.is_used[group as usize] = taken;
        }
        match taken {
            true => self.chosen.push(candidate),
            false => drop(self.chosen.pop()),
        }
    }
}

/// All subsets of `size` of the numbers below `len`, in order; `None` if they
/// are too many.
pub(crate) fn subsets(len: u32, size: usize) -> Option<Vec<Vec<u32>>> {
    let mut all = Vec::new();
    let mut subset: Vec<u32> = (0..size as u32).collect();
    if size as u32 > len {
        return Some(all);
    }
    loop {
        all.push(subset.clone());
        if all.len() > CANDIDATES_MAX {
            return None;
        }
        let can_grow = |&at: &usize| subset[at] < len - (size - at) as u32;
        let Some(at) = (0..size).rev().find(can_grow) else { return Some(all) };
        subset[at] += 1;
        for next in at + 1..size {
            subset[next] = subset[next - 1] + 1;
        }
    }
}

fn all_words(sizes: &[u32]) -> Option<Vec<Vec<u32>>> {
    let mut all = vec![Vec::new()];
    for &size in sizes {
        if all.len() * size as usize > CANDIDATES_MAX {
            return None;
        }
        let longer = |word: &Vec<u32>| {
            let word = word.clone();
            (0..size).map(move |letter| [&word[..], &[letter]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    Some(all)
}

/// Puts words in an order that loads all slots as evenly as it can.
fn spread_loads(mut words: Vec<Vec<u32>>, is_one_column: bool) -> Vec<Vec<u32>> {
    let mut loads: HashMap<(usize, u32), u32> = HashMap::new();
    let mut ordered = Vec::with_capacity(words.len());
    let place = |at: usize, letter: u32| (if is_one_column { 0 } else { at }, letter);
    while !words.is_empty() {
        let strain = |word: &Vec<u32>| {
            let load = |(at, &letter)| loads.get(&place(at, letter)).copied().unwrap_or(0);
            let own: Vec<u32> = word.iter().enumerate().map(load).collect();
            (own.iter().max().copied(), own.iter().sum::<u32>())
        };
        let next = (0..words.len()).min_by_key(|&at| strain(&words[at])).unwrap_or(0);
        let word = words.remove(next);
        for (at, &letter) in word.iter().enumerate() {
            *loads.entry(place(at, letter)).or_default() += 1;
        }
        ordered.push(word);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sizes: &[u32], size: usize, overlap: usize, len: usize, is_proved: bool) {
        let packing = Packing::search(&Columns::of_sizes(sizes), size, overlap).unwrap();
        assert_eq!((packing.len(), packing.is_proved()), (len, is_proved), "{sizes:?}");
        for (at, word) in packing.words().enumerate() {
            assert_eq!(packing.locate(&mut word.to_vec()), Some(at as u32));
            for other in packing.words().take(at) {
                let shared = match sizes.len() {
                    1 => word.iter().filter(|letter| other.contains(letter)).count(),
                    _ => word.iter().zip(other).filter(|(a, b)| a == b).count(),
                };
                assert!(shared <= overlap);
            }
        }
    }

    #[test]
    fn small_packings_are_the_largest_and_proved_so() {
        check(&[7], 3, 1, 7, true);
        check(&[9], 3, 1, 12, true);
        check(&[13], 4, 1, 13, true);
        check(&[8], 4, 2, 14, true);
        check(&[6], 3, 1, 4, true);
        check(&[2, 2, 2], 3, 1, 4, true);
        check(&[3, 3, 3, 3], 4, 1, 9, true);
        check(&[5], 5, 3, 1, true);
    }

    #[test]
    fn large_fleets_are_not_searched() {
        assert!(Packing::search(&Columns::of_sizes(&[65]), 3, 1).is_none());
        assert!(Packing::search(&Columns::of_sizes(&[8; 4]), 4, 3).is_some());
        assert!(Packing::search(&Columns::of_sizes(&[40]), 10, 3).is_none());
    }

    #[test]
    fn a_search_that_gives_up_says_so() {
        let packing = Packing::search(&Columns::of_sizes(&[6, 6, 6, 6]), 4, 1).unwrap();
        assert!(!packing.is_proved(), "{}", packing.len());
        assert!(packing.len() >= 24, "{}", packing.len());
    }
}
