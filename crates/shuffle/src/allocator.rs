//! Hands out the shards of a design, one tenant each.
//!
//! All it remembers is how far it has counted and which numbers came back, so
//! a fleet with a million tenants is a few bytes. Whoever keeps those bytes
//! writes them before a tenant is told its shard: then no shard is ever handed
//! out twice, whatever happens in between.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher24;

use crate::admission::Admission;
use crate::design::Design;
use crate::shard::{DesignIndex, SIZE_MAX, Shard};

/// Hands out numbers of shards and takes them back.
#[derive(Clone, Debug)]
pub struct Allocator {
    design: Arc<Design>,
    /// Numbers from here on were never handed out.
    next: u64,
    /// Numbers that came back.
    free: Ranges,
    /// Numbers that were passed over, because a slot takes fewer tenants.
    passed: Ranges,
    used: u64,
}

/// Why kept state cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// It is no allocator's state, or it was damaged.
    Damaged,
    /// It is the state of another design, or of one with another key.
    OtherDesign,
    /// A column has fewer slots than when it was kept, so that shards in use
    /// would miss some.
    Shrunk,
}

/// The first octets of kept state, with the version of its form.
const MAGIC: &[u8; 4] = b"psa1";

impl Allocator {
    /// Nothing handed out yet.
    pub fn new(design: Arc<Design>) -> Self {
        let (free, passed) = (Ranges::default(), Ranges::default());
        Allocator { design, next: 0, free, passed, used: 0 }
    }

    /// The design whose shards are handed out.
    pub fn design(&self) -> &Arc<Design> {
        &self.design
    }

    /// A shard that nobody has, if there is one left: the lowest that came
    /// back, else the next.
    pub fn allocate(&mut self, admission: &Admission) -> Option<(DesignIndex, Shard)> {
        let mut found = None;
        for number in self.free.iter() {
            let Some(shard) = self.design.shard_at(number) else { continue };
            let index = DesignIndex(number);
            if admission.admits(index, &shard) {
                found = Some((index, shard));
                break;
            }
        }
        if let Some((index, _)) = found {
            self.free.remove(index.0);
        } else {
            found = self.count_on(admission);
        }
        self.used += u64::from(found.is_some());
        found
    }

    fn count_on(&mut self, admission: &Admission) -> Option<(DesignIndex, Shard)> {
        while self.next < self.design.index_end() {
            let index = DesignIndex(self.next);
            self.next += 1;
            let Some(shard) = self.design.shard_at(index.0) else { continue };
            if admission.admits(index, &shard) {
                return Some((index, shard));
            }
            self.passed.insert(index.0);
        }
        None
    }

    /// Takes a number back; false if nobody has it.
    pub fn release(&mut self, index: DesignIndex) -> bool {
        let is_used = self.confirm(index.0).is_some();
        if is_used {
            self.free.insert(index.0);
            self.used -= 1;
        }
        is_used
    }

    /// The number of a shard that was handed out before and kept as a plain
    /// one; `None` if it is not handed out.
    pub fn confirm(&self, number: u64) -> Option<DesignIndex> {
        let is_used = number < self.next
            && !self.free.contains(number)
            && !self.passed.contains(number)
            && self.design.shard_at(number).is_some();
        is_used.then_some(DesignIndex(number))
    }

    /// Lets shards that were passed over be handed out: after slots were
    /// opened or weights raised.
    pub fn reconsider(&mut self) {
        let passed = std::mem::take(&mut self.passed);
        for (start, end) in passed.0 {
            self.free.insert_range(start, end);
        }
    }

    /// How many tenants have a shard.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// How many shards can still be handed out; at least as many, if the
    /// capacity of the design is not exact.
    pub fn left(&self) -> u128 {
        self.design.capacity().saturating_sub(self.used.into())
    }

    /// What must be kept, as octets.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut octets = MAGIC.to_vec();
        octets.extend(self.design.fingerprint().to_le_bytes());
        put(&mut octets, self.design.columns().count() as u64);
        self.design.columns().sizes().for_each(|size| put(&mut octets, size.into()));
        put(&mut octets, self.next);
        put(&mut octets, self.used);
        self.free.put(&mut octets);
        self.passed.put(&mut octets);
        octets.extend(checksum(&octets).to_le_bytes());
        octets
    }

    /// Goes on from kept octets. The columns of the design may have grown into
    /// its room since: the shards that became possible are free.
    pub fn from_bytes(design: Arc<Design>, octets: &[u8]) -> Result<Self, StateError> {
        let damaged = StateError::Damaged;
        let (octets, sum) = octets.split_last_chunk::<8>().ok_or(damaged)?;
        if checksum(octets) != u64::from_le_bytes(*sum) {
            return Err(damaged);
        }
        let octets = octets.strip_prefix(MAGIC).ok_or(damaged)?;
        let (fingerprint, mut rest) = octets.split_first_chunk::<8>().ok_or(damaged)?;
        if u64::from_le_bytes(*fingerprint) != design.fingerprint() {
            return Err(StateError::OtherDesign);
        }
        let sizes = get_sizes(&mut rest).ok_or(damaged)?;
        let (next, used) = (get(&mut rest).ok_or(damaged)?, get(&mut rest).ok_or(damaged)?);
        let free = Ranges::get(&mut rest, next).ok_or(damaged)?;
        let passed = Ranges::get(&mut rest, next).ok_or(damaged)?;
        if !rest.is_empty() || next > design.index_end() || free.overlaps(&passed) {
            return Err(damaged);
        }
        if sizes.len() != design.columns().count() {
            return Err(damaged);
        }
        if design.columns().sizes().zip(&sizes).any(|(now, kept)| u64::from(now) < *kept) {
            return Err(StateError::Shrunk);
        }
        let mut allocator = Allocator { design, next, free, passed, used };
        allocator.free_grown(&sizes);
        // Numbers without a shard are neither used nor free.
        let taken = next - allocator.free.len() - allocator.passed.len();
        let is_exact = allocator.design.is_full();
        if used > taken || (is_exact && used < taken) {
            return Err(damaged);
        }
        Ok(allocator)
    }

    /// Frees the shards that were passed by when columns had these sizes,
    /// because they need a slot that came later.
    fn free_grown(&mut self, sizes: &[u64]) {
        let design = self.design.clone();
        if design.columns().sizes().zip(sizes).all(|(now, kept)| u64::from(now) == *kept) {
            return;
        }
        for number in 0..self.next {
            let Some(shard) = design.shard_at(number) else { continue };
            let is_new = shard.iter().any(|slot| {
                let place = design.columns().place(*slot);
                place.is_some_and(|(column, letter)| u64::from(letter) >= sizes[column])
            });
            if is_new && !self.free.contains(number) && !self.passed.contains(number) {
                self.free.insert(number);
            }
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StateError::Damaged => "the kept state is damaged, or none of an allocator",
            StateError::Shrunk => {
                "a column has fewer slots than when the state was kept; shards in use need them \
                 all: leave a slot without a host instead"
            }
            StateError::OtherDesign => {
                "the kept state is that of another design or key; placements made with one cannot \
                 be continued with another"
            }
        })
    }
}

impl std::error::Error for StateError {}

fn checksum(octets: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(octets);
    hasher.finish()
}

/// The sizes of the columns that a state was kept with.
fn get_sizes(octets: &mut &[u8]) -> Option<Vec<u64>> {
    let count = get(octets)?;
    (count <= SIZE_MAX as u64).then(|| (0..count).map(|_| get(octets)).collect())?
}

/// Writes seven bits an octet, the lowest first.
fn put(octets: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        octets.push(number as u8 | 0x80);
        number >>= 7;
    }
    octets.push(number as u8);
}

fn get(octets: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&octet, rest) = octets.split_first()?;
        *octets = rest;
        let bits = u64::from(octet & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if octet & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A set of numbers as ranges: start and end, the end not in the set.
#[derive(Clone, Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    fn overlaps(&self, other: &Ranges) -> bool {
        self.0.iter().any(|(start, end)| {
            let before = other.0.range(..end).next_back();
            before.is_some_and(|(_, its_end)| start < its_end)
        })
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|(&start, &end)| start..end)
    }

    fn insert(&mut self, number: u64) {
        self.insert_range(number, number + 1);
    }

    /// Inserts numbers of which none is in the set.
    fn insert_range(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &its_end)) = self.0.range(..start).next_back()
            && its_end == start
        {
            start = before;
        }
        if let Some(its_end) = self.0.remove(&end) {
            end = its_end;
        }
        self.0.insert(start, end);
    }

    /// Removes a number that is in the set.
    fn remove(&mut self, number: u64) {
        let Some((&start, &end)) = self.0.range(..=number).next_back() else { return };
        self.0.remove(&start);
        if start < number {
            self.0.insert(start, number);
        }
        if number + 1 < end {
            self.0.insert(number + 1, end);
        }
    }

    fn put(&self, octets: &mut Vec<u8>) {
        put(octets, self.0.len() as u64);
        let mut last = 0;
        for (&start, &end) in &self.0 {
            put(octets, start - last);
            put(octets, end - start);
            last = end;
        }
    }

    /// Reads ranges that end at `limit` at the latest.
    fn get(octets: &mut &[u8], limit: u64) -> Option<Self> {
        let count = get(octets)?;
        let mut ranges = BTreeMap::new();
        let mut last = 0u64;
        for at in 0..count {
            let (gap, len) = (get(octets)?, get(octets)?);
            let start = last.checked_add(gap)?;
            last = start.checked_add(len)?;
            if len == 0 || last > limit || (gap == 0 && at > 0) {
                return None;
            }
            ranges.insert(start, last);
        }
        Some(Ranges(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Columns, Fleet, STRIPE};
    use crate::key::Key;
    use crate::shard::Slot;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn design(workers: usize) -> Arc<Design> {
        let columns = Fleet::numbered(workers, Some(4)).unwrap().columns(4, &[STRIPE]).unwrap();
        Arc::new(Design::striped(columns, 2, None, &Key::PUBLIC))
    }

    #[test]
    fn a_design_is_handed_out_to_the_last_shard() {
        for workers in [16, 18, 20] {
            let mut allocator = Allocator::new(design(workers));
            let mut seen = HashSet::new();
            while let Some((index, shard)) = allocator.allocate(&Admission::everyone()) {
                assert!(seen.insert(shard));
                assert_eq!(allocator.confirm(index.get()), Some(index));
            }
            assert_eq!(seen.len() as u128, allocator.design().capacity());
            assert_eq!((allocator.used() as u128, allocator.left()), (seen.len() as u128, 0));
        }
    }

    #[test]
    fn passed_shards_come_back_when_slots_open() {
        let mut allocator = Allocator::new(design(16));
        let mut admission = Admission::everyone();
        admission.close(Slot(0));
        let mut count = 0;
        while let Some((_, shard)) = allocator.allocate(&admission) {
            assert!(!shard.contains(&Slot(0)));
            count += 1;
        }
        assert_eq!(count, 48);
        admission.open(Slot(0));
        assert!(allocator.allocate(&admission).is_none(), "not before it is asked to");
        allocator.reconsider();
        while allocator.allocate(&admission).is_some() {
            count += 1;
        }
        assert_eq!(count, 64);
    }

    #[test]
    fn state_is_small_and_bound_to_its_design() {
        let mut allocator = Allocator::new(design(2048));
        for _ in 0..100_000 {
            allocator.allocate(&Admission::everyone()).unwrap();
        }
        let kept = allocator.to_bytes();
        assert!(kept.len() < 48, "{}", kept.len());
        let other = Allocator::from_bytes(design(2044), &kept);
        assert_eq!(other.map(|_| ()), Err(StateError::OtherDesign));
        for at in 0..kept.len() {
            let mut damaged = kept.clone();
            damaged[at] ^= 1;
            let read = Allocator::from_bytes(design(2048), &damaged);
            assert_eq!(read.map(|_| ()), Err(StateError::Damaged));
        }
        assert!(Allocator::from_bytes(design(2048), &kept[..kept.len() - 1]).is_err());
        assert!(Allocator::from_bytes(design(2048), &[]).is_err());
    }

    #[test]
    fn shards_that_growth_makes_possible_are_free_and_not_in_use() {
        let grown = |len: u32| {
            let column = |number: u32| (0..len).map(|letter| Slot(letter * 4 + number)).collect();
            let columns = Columns::new((0..4).map(column).collect());
            Arc::new(Design::striped(columns, 2, Some(7), &Key::PUBLIC))
        };
        let mut allocator = Allocator::new(grown(5));
        let held: HashSet<DesignIndex> =
            (0..50).map(|_| allocator.allocate(&Admission::everyone()).unwrap().0).collect();
        let mut allocator = Allocator::from_bytes(grown(7), &allocator.to_bytes()).unwrap();
        let confirmed = (0..343).filter_map(|number| allocator.confirm(number));
        assert_eq!(confirmed.collect::<HashSet<_>>(), held);
        let mut count = 50;
        while let Some((index, _)) = allocator.allocate(&Admission::everyone()) {
            assert!(!held.contains(&index));
            count += 1;
        }
        assert_eq!(count, 343);
        let shrunk = Allocator::from_bytes(grown(6), &allocator.to_bytes());
        assert_eq!(shrunk.map(|_| ()), Err(StateError::Shrunk));
    }

    /// What a user of an allocator may do; a crash loses what was not kept.
    #[derive(Clone, Debug)]
    enum Step {
        Allocate,
        Release(usize),
        Crash,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => Just(Step::Allocate),
            3 => any::<usize>().prop_map(Step::Release),
            1 => Just(Step::Crash),
        ];
        proptest::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn no_shard_is_ever_handed_out_twice(steps in steps(), workers in 16usize..24) {
            let design = design(workers);
            let mut allocator = Allocator::new(design.clone());
            let mut kept = allocator.to_bytes();
            let mut held: Vec<DesignIndex> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate => {
                        let Some((index, shard)) = allocator.allocate(&Admission::everyone()) else {
                            prop_assert_eq!(held.len() as u128, design.capacity());
                            continue;
                        };
                        prop_assert!(!held.contains(&index));
                        prop_assert_eq!(design.index(&shard), Some(index));
                        // Written before the tenant is told.
                        kept = allocator.to_bytes();
                        held.push(index);
                    }
                    Step::Release(at) if !held.is_empty() => {
                        let index = held.swap_remove(at % held.len());
                        prop_assert!(allocator.release(index));
                        prop_assert!(!allocator.release(index));
                        kept = allocator.to_bytes();
                    }
                    Step::Release(_) => {}
                    Step::Crash => {
                        // One more was handed out, but neither kept nor told.
                        allocator.allocate(&Admission::everyone());
                        allocator = Allocator::from_bytes(design.clone(), &kept).unwrap();
                    }
                }
                prop_assert_eq!(allocator.used(), held.len() as u64);
                prop_assert!(held.iter().all(|index| allocator.confirm(index.get()).is_some()));
            }
        }
    }
}
