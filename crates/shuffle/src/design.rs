//! A design: every shard of a fleet, by number, and the number of every shard.
//!
//! Nothing is stored but a few small tables. The number of a shard is turned
//! into a class of the design and a place in the class, both under the key;
//! the class and the place into a word; the letters of the word into slots.
//! Every step can be undone, so a shard tells its number.
//!
//! A class holds every slot once, or once per stripe. Since classes are taken
//! one after the other, the loads of the slots of a stripe differ by one at
//! the most, however many shards are taken. The key decides the order of the
//! classes and the order within each.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::bound;
use crate::code::{Code, CodeKind};
use crate::count::{WordCount, words_within};
use crate::fleet::Columns;
use crate::key::{Key, Permutation, mix, scale};
use crate::pairs::Pairs;
use crate::quadruple::Quadruples;
use crate::search::Packing;
use crate::shard::{DesignIndex, SIZE_MAX, Shard};

/// All shards of a fleet that keep a promise, in an order that a key decides.
#[derive(Clone, Debug)]
pub struct Design {
    family: Family,
    size: usize,
    overlap: usize,
    columns: Columns,
    order: Order,
    capacity: WordCount,
    fingerprint: u64,
}

/// Where the shards come from.
#[derive(Clone, Debug)]
pub(crate) enum Family {
    /// A word has a letter for each column.
    Words(Code),
    /// One column, `2^n` points or fewer.
    Quadruples(Quadruples),
    /// One column.
    Pairs(Pairs),
    /// Found by search and stored.
    Found(Packing),
}

/// What a design promises of its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// Slots of every shard.
    pub size: usize,
    /// Slots that two shards share at the most.
    pub overlap: usize,
    /// Every shard has one slot of each column.
    pub is_striped: bool,
    /// By how much the loads of two slots of a column differ at the most,
    /// however many shards are taken, from the first on. `None`: they are near
    /// to each other, but nothing is promised.
    pub spread: Option<u32>,
}

impl Guarantee {
    /// How many tenants can be flooded at the same time so that everybody else
    /// keeps a slot; `None` if any number can.
    pub fn survives_attackers(&self) -> Option<usize> {
        (self.size - 1).checked_div(self.overlap)
    }
}

/// The order in which the shards of a design are taken.
#[derive(Clone, Debug)]
struct Order {
    /// Runs of classes that carry every letter alike only together.
    runs: Permutation,
    run_len: u64,
    class_len: u32,
    places: Vec<u32>,
    places_back: Vec<u32>,
    turns: [u64; 2],
    /// Numbers are below this.
    end: u64,
}

impl Design {
    /// Shards of one slot of each column, of which no two share more than
    /// `overlap`. There are `room` letters for the slots of a column, so that
    /// columns can grow to that size without moving any shard; by default as
    /// many as the longest column has, or a few more.
    pub fn striped(columns: Columns, overlap: usize, room: Option<u32>, key: &Key) -> Self {
        let size = columns.count();
        assert!(overlap < size, "two shards may share fewer slots than they have");
        let longest = columns.sizes().max().unwrap_or(0).max(room.unwrap_or(0));
        let alphabet = Code::alphabet_for(longest, size, overlap);
        let code = Code::new(alphabet, size, overlap).expect("the alphabet has a code");
        let order =
            Order::new(key, code.class_count(), alphabet, if code.is_even() { 1 } else { 2 });
        let capacity = words_within(&code, &columns);
        Design::new(Family::Words(code), size, overlap, columns, order, capacity, key)
    }

    /// Shards of four slots, of which no two share more than two, for a fleet
    /// without stripes. With `2^n` slots there cannot be more of them.
    pub fn quadruples(columns: Columns, key: &Key) -> Self {
        let columns = single_column(columns);
        let len = columns.slot_count() as u32;
        let bits = len.next_power_of_two().ilog2().max(Quadruples::BITS_MIN);
        let system = Quadruples::new(bits);
        let order = Order::new(key, system.class_count(), system.class_len(), 1);
        let capacity = WordCount { count: system.count_below(len), is_exact: true };
        Design::new(Family::Quadruples(system), 4, 2, columns, order, capacity, key)
    }

    /// All pairs of slots, for a fleet without stripes.
    pub fn pairs(columns: Columns, key: &Key) -> Self {
        let columns = single_column(columns);
        let len = columns.slot_count() as u32;
        let pairs = Pairs::new(len);
        let order = Order::new(key, pairs.class_count(), pairs.class_len(), 1);
        let count = u128::from(len) * u128::from(len - 1) / 2;
        let capacity = WordCount { count, is_exact: true };
        Design::new(Family::Pairs(pairs), 2, 1, columns, order, capacity, key)
    }

    /// The most shards that an exhaustive search finds, for a small fleet that
    /// no construction covers: one slot of each column if there are `size`
    /// columns, else any slots of the single column. `None` if the fleet is
    /// too large to be searched.
    pub fn searched(columns: Columns, size: usize, overlap: usize, key: &Key) -> Option<Self> {
        let packing = Packing::search(&columns, size, overlap)?;
        Some(Design::found(packing, columns, key))
    }

    fn found(packing: Packing, columns: Columns, key: &Key) -> Self {
        let (size, overlap) = (packing.size(), packing.overlap());
        let labels: Vec<Permutation> = (0..)
            .zip(columns.sizes())
            .map(|(number, len): (u32, u32)| {
                Permutation::new(key, &format!("letters {number}"), u64::from(len))
            })
            .collect();
        let packing =
            packing.relabelled(|column, letter| labels[column].forward(u64::from(letter)) as u32);
        let order = Order::fixed(key, packing.len() as u32);
        let capacity = WordCount { count: packing.len() as u128, is_exact: true };
        Design::new(Family::Found(packing), size, overlap, columns, order, capacity, key)
    }

    fn new(
        family: Family,
        size: usize,
        overlap: usize,
        columns: Columns,
        order: Order,
        capacity: WordCount,
        key: &Key,
    ) -> Self {
        let mut design = Design { family, size, overlap, columns, order, capacity, fingerprint: 0 };
        design.fingerprint = design.take_fingerprint(key);
        design
    }

    /// What holds for its shards.
    pub fn guarantee(&self) -> Guarantee {
        let spread = match &self.family {
            Family::Words(code) => self.is_full().then(|| if code.is_even() { 1 } else { 2 }),
            Family::Quadruples(_) => self.is_full().then_some(1),
            Family::Pairs(_) if self.columns.slot_count().is_multiple_of(2) => Some(1),
            Family::Pairs(_) => Some(2),
            Family::Found(_) => None,
        };
        let is_striped = self.columns.count() == self.size;
        Guarantee { size: self.size, overlap: self.overlap, is_striped, spread }
    }

    /// How many shards there are; at least as many, if it is not exact.
    pub fn capacity(&self) -> u128 {
        self.capacity.count
    }

    /// The capacity is not only a lower bound. It is one where a design has
    /// much room to grow, many stripes and a large overlap: counting its words
    /// would take too long.
    pub fn is_capacity_exact(&self) -> bool {
        self.capacity.is_exact
    }

    /// Numbers of shards are below this. There are more of them than shards if
    /// the design has room for slots that the fleet does not have.
    pub fn index_end(&self) -> u64 {
        self.order.end()
    }

    /// Every number has a shard.
    pub fn is_full(&self) -> bool {
        self.capacity.count >= u128::from(self.index_end())
    }

    /// It is known that no design has more shards: this one reaches a bound,
    /// or a search went through all others.
    pub fn is_largest(&self) -> bool {
        let slots = self.columns.slot_count() as u64;
        let johnson = bound::johnson(slots, self.size, self.overlap);
        let striped = bound::striped(&self.columns, self.size, self.overlap);
        let is_proved = matches!(&self.family, Family::Found(packing) if packing.is_proved());
        is_proved || self.capacity.count >= johnson.min(striped)
    }

    /// The name of the construction.
    pub fn name(&self) -> &'static str {
        match &self.family {
            Family::Words(code) => match code.kind() {
                CodeKind::Repeat => "disjoint",
                CodeKind::Free => "all-words",
                CodeKind::Sum => "striped-sum",
                CodeKind::Polynomial => "striped-polynomial",
            },
            Family::Quadruples(_) => "boolean-quadruple",
            Family::Pairs(_) => "all-pairs",
            Family::Found(_) => "search",
        }
    }

    /// The slots in their columns.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// How many slots a column can have before shards must move.
    pub fn room(&self) -> u32 {
        match &self.family {
            Family::Words(code) => code.alphabet_len(),
            Family::Quadruples(system) => system.point_count(),
            Family::Pairs(_) | Family::Found(_) => self.columns.sizes().max().unwrap_or(0),
        }
    }

    /// Differs between designs and keys: state that was kept for one must not
    /// be used for another. It stays the same while a fleet grows into the
    /// room of its design.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn family(&self) -> &Family {
        &self.family
    }

    /// The shard of a number; `None` if it would need a slot that the fleet
    /// does not have.
    #[inline]
    pub fn shard(&self, index: DesignIndex) -> Option<Shard> {
        self.shard_at(index.0)
    }

    /// The number of a shard; `None` if the design does not hold it. The slots
    /// may come in any order.
    #[inline]
    pub fn index(&self, shard: &Shard) -> Option<DesignIndex> {
        if shard.len() != self.size {
            return None;
        }
        let mut word = [u32::MAX; SIZE_MAX];
        for (at, slot) in shard.iter().enumerate() {
            let (column, letter) = self.columns.place(*slot)?;
            let at = if self.columns.count() == 1 { at } else { column };
            if word[at] != u32::MAX {
                return None;
            }
            word[at] = letter;
        }
        let word = &mut word[..self.size];
        let (class, place) = match &self.family {
            Family::Words(code) => code.locate(word)?,
            Family::Quadruples(system) => system.locate([word[0], word[1], word[2], word[3]])?,
            Family::Pairs(pairs) => pairs.locate([word[0], word[1]])?,
            Family::Found(packing) => (0, packing.locate(word)?),
        };
        Some(DesignIndex(self.order.number(class, place)))
    }

    /// The shards from number `from` on, with their numbers; those that the
    /// fleet has no slots for are left out.
    pub fn shards(&self, from: u64) -> impl Iterator<Item = (DesignIndex, Shard)> {
        (from..self.index_end()).filter_map(|number| self.at(number))
    }

    /// The shard that a number has, if it has one. This is for looking around;
    /// tenants get their numbers from an [`Allocator`](crate::Allocator).
    pub fn at(&self, number: u64) -> Option<(DesignIndex, Shard)> {
        Some((DesignIndex(number), self.shard_at(number)?))
    }

    #[inline]
    pub(crate) fn shard_at(&self, number: u64) -> Option<Shard> {
        if number >= self.order.end() {
            return None;
        }
        let (class, place) = self.order.place(number);
        let single = |_, letter| self.columns.slot(0, letter);
        let mut word = [0; SIZE_MAX];
        match &self.family {
            Family::Words(code) => code.word(class, place, &mut word),
            Family::Quadruples(system) => {
                return Shard::of_word(&system.quadruple(class, place), single);
            }
            Family::Pairs(pairs) => return Shard::of_word(&pairs.pair(class, place), single),
            Family::Found(packing) => packing.word(place, &mut word),
        }
        let word = &word[..self.size];
        match self.columns.count() {
            1 => Shard::of_word(word, single),
            _ => Shard::of_word(word, |at, letter| self.columns.slot(at, letter)),
        }
    }

    fn take_fingerprint(&self, key: &Key) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&key.to_bytes());
        hasher.write(self.name().as_bytes());
        for number in [self.size as u64, self.overlap as u64, self.room().into(), self.index_end()]
        {
            hasher.write_u64(number);
        }
        // What the shards are, not only what they are called.
        let step = (self.index_end() / 64).max(1);
        for number in (0..self.index_end()).step_by(step as usize) {
            let (class, place) = self.order.place(number);
            hasher.write_u64(class);
            hasher.write_u32(place);
        }
        if let Family::Found(packing) = &self.family {
            packing
                .words()
                .for_each(|word| word.iter().for_each(|&letter| hasher.write_u32(letter)));
        }
        hasher.finish()
    }
}

/// The same slots in one column.
fn single_column(columns: Columns) -> Columns {
    match columns.count() {
        1 => columns,
        _ => Columns::new(vec![(0..columns.slot_count() as u32).map(crate::Slot).collect()]),
    }
}

impl Order {
    fn new(key: &Key, class_count: u64, class_len: u32, run_len: u64) -> Self {
        let mut places: Vec<u32> = (0..class_len).collect();
        for last in (1..class_len).rev() {
            let other = scale(key.draw("places", u64::from(last)), u64::from(last) + 1);
            places.swap(last as usize, other as usize);
        }
        Order::with_places(key, class_count, places, run_len)
    }

    /// One class, in the order that it has.
    fn fixed(key: &Key, class_len: u32) -> Self {
        let mut order = Order::with_places(key, 1, (0..class_len).collect(), 1);
        order.turns = [0; 2];
        order
    }

    fn with_places(key: &Key, class_count: u64, places: Vec<u32>, run_len: u64) -> Self {
        let mut places_back = vec![0; places.len()];
        for (place, &moved) in places.iter().enumerate() {
            places_back[moved as usize] = place as u32;
        }
        let runs = Permutation::new(key, "classes", class_count / run_len);
        let end = runs.len() * run_len * places.len() as u64;
        Order {
            runs,
            run_len,
            end,
            class_len: places.len() as u32,
            places,
            places_back,
            turns: [key.draw("turns", 0), key.draw("turns", 1)],
        }
    }

    #[inline]
    fn end(&self) -> u64 {
        self.end
    }

    /// The class and the place of a number.
    #[inline]
    fn place(&self, number: u64) -> (u64, u32) {
        let (count, place) = divide(number, self.class_len);
        let class = match self.run_len {
            1 => self.runs.forward(count),
            len => self.runs.forward(count / len) * len + count % len,
        };
        let turned = place + self.turn(class);
        let turned = if turned >= self.class_len { turned - self.class_len } else { turned };
        (class, self.places[turned as usize])
    }

    /// The number of a place of a class.
    #[inline]
    fn number(&self, class: u64, place: u32) -> u64 {
        let turned = self.places_back[place as usize];
        let turn = self.turn(class);
        let place = if turned >= turn { turned - turn } else { turned + self.class_len - turn };
        let count = match self.run_len {
            1 => self.runs.backward(class),
            len => self.runs.backward(class / len) * len + class % len,
        };
        count * u64::from(self.class_len) + u64::from(place)
    }

    /// Where a class begins.
    #[inline]
    fn turn(&self, class: u64) -> u32 {
        scale(mix(class, self.turns), u64::from(self.class_len)) as u32
    }
}

#[inline]
fn divide(number: u64, by: u32) -> (u64, u32) {
    if by.is_power_of_two() {
        return (number >> by.trailing_zeros(), number as u32 & (by - 1));
    }
    match u32::try_from(number) {
        Ok(small) => (u64::from(small / by), small % by),
        Err(_) => (number / u64::from(by), (number % u64::from(by)) as u32),
    }
}

#[cfg(test)]
mod tests;
