//! From sick workers back to the tenant that made them sick.
//!
//! Whoever is on all of them is a suspect. Since two shards of a design share
//! few slots, more sick slots than that have one shard that explains them all,
//! of all the millions there are, and it is found without looking at any other.

use crate::design::{Design, Family};
use crate::shard::{DesignIndex, SIZE_MAX, Shard, Slot};
use crate::tally::{CountError, STEPS_MAX, SlotSet, tally};

/// A tenant on sick workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect<T> {
    pub tenant: T,
    /// Sick workers that it is on.
    pub sick: usize,
    /// Workers that it is on.
    pub size: usize,
}

/// Tenants on sick workers, the most likely cause first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspects<T> {
    /// Those on most sick workers first; of these, those who have the fewest
    /// others: the largest share of their shard is sick.
    pub ranked: Vec<Suspect<T>>,
    /// How many tenants are on all sick workers.
    pub on_all: u64,
    /// How many tenants are on a sick worker.
    pub on_some: u64,
}

/// Ranks tenants by the sick workers that they are on, and keeps the first
/// `most`. Tenants that rank alike stay in the order in which they come.
pub fn rank<T, S: AsRef<[Slot]>>(
    tenants: impl IntoIterator<Item = (T, S)>,
    sick: &[Slot],
    most: usize,
) -> Suspects<T> {
    let sick = SlotSet::new(sick);
    let mut suspects = Suspects { ranked: Vec::new(), on_all: 0, on_some: 0 };
    for (tenant, shard) in tenants {
        let slots = shard.as_ref();
        let count = sick.count(slots);
        if count == 0 {
            continue;
        }
        suspects.on_some += 1;
        suspects.on_all += u64::from(count == sick.len());
        suspects.ranked.push(Suspect { tenant, sick: count, size: slots.len() });
        // Sorted now and then, so that those who are kept stay few.
        if suspects.ranked.len() >= most.saturating_mul(2).max(1024) {
            sort(&mut suspects.ranked, most);
        }
    }
    sort(&mut suspects.ranked, most);
    suspects
}

fn sort<T>(ranked: &mut Vec<Suspect<T>>, most: usize) {
    ranked.sort_by_key(|suspect| (std::cmp::Reverse(suspect.sick), suspect.size));
    ranked.truncate(most);
}

/// The shards of a design that have all sick slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// No shard has them all: more than one tenant is the cause, or none.
    NoShard,
    /// This shard alone. Whether a tenant has it, its allocator knows.
    OneShard(DesignIndex, Shard),
    /// So many shards: there are too few sick slots to tell.
    Shards(u128),
}

/// Which shards of a design have all the sick slots: one at the most, if these
/// are more than two shards may share.
pub fn explain(design: &Design, sick: &[Slot]) -> Result<Explanation, CountError> {
    let mut slots = sick.to_vec();
    slots.sort_unstable();
    slots.dedup();
    if let Some(slot) = slots.iter().find(|slot| design.columns().place(**slot).is_none()) {
        return Err(CountError::UnknownSlot(*slot));
    }
    let guarantee = design.guarantee();
    if slots.len() > guarantee.size {
        return Ok(Explanation::NoShard);
    }
    if slots.len() > guarantee.overlap {
        let found =
            completed(design, &slots).filter(|shard| slots.iter().all(|s| shard.contains(s)));
        let index = found.and_then(|shard| design.index(&shard));
        let found = index.and_then(|index| Some((index, design.shard(index)?)));
        return Ok(found
            .map_or(Explanation::NoShard, |(index, shard)| Explanation::OneShard(index, shard)));
    }
    Ok(match tally(design, &slots, STEPS_MAX)?[slots.len()] {
        0 => Explanation::NoShard,
        count => Explanation::Shards(count),
    })
}

/// The one shard that has the first `overlap + 1` of these slots, if any has.
fn completed(design: &Design, slots: &[Slot]) -> Option<Shard> {
    let columns = design.columns();
    match design.family() {
        Family::Words(code) => {
            let places = slots.iter().map(|slot| columns.place(*slot));
            let (places, letters): (Vec<usize>, Vec<u32>) = places.collect::<Option<_>>()?;
            if (0..places.len()).any(|at| places[..at].contains(&places[at])) {
                return None;
            }
            let mut word = [0; SIZE_MAX];
            let decide = code.overlap() + 1;
            code.completion(&places[..decide]).word(&letters[..decide], &mut word);
            let slots: Option<Vec<Slot>> =
                (0..columns.count()).map(|place| columns.slot(place, word[place])).collect();
            slots.map(Shard::new)
        }
        Family::Quadruples(_) => {
            let letters = slots[..3].iter().map(|slot| Some(columns.place(*slot)?.1));
            let last = letters.reduce(|sum, letter| Some(sum? ^ letter?))??;
            Some(Shard::new([slots[0], slots[1], slots[2], columns.slot(0, last)?]))
        }
        Family::Pairs(_) => Some(Shard::new(slots.iter().copied())),
        Family::Found(_) => {
            let mut shards = design.shards(0).map(|(_, shard)| shard);
            shards.find(|shard| slots.iter().all(|slot| shard.contains(slot)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::tally::tests::{small_designs, striped, whole};

    fn by_brute_force(design: &Design, sick: &[Slot]) -> Vec<Shard> {
        let shards = design.shards(0).map(|(_, shard)| shard);
        shards.filter(|shard| sick.iter().all(|slot| shard.contains(slot))).collect()
    }

    fn check(design: &Design, sick: &[Slot]) {
        let found = by_brute_force(design, sick);
        let expected = match (&found[..], sick.len() > design.guarantee().overlap) {
            ([], _) => Explanation::NoShard,
            ([shard], true) => Explanation::OneShard(design.index(shard).unwrap(), *shard),
            (shards, _) => Explanation::Shards(shards.len() as u128),
        };
        assert_eq!(explain(design, sick), Ok(expected), "{} {sick:?}", design.name());
    }

    #[test]
    fn explanations_are_those_of_looking_at_every_shard() {
        for design in small_designs() {
            for (_, shard) in design.shards(0).step_by(11) {
                for len in 0..=shard.len() {
                    let mut sick = shard[shard.len() - len..].to_vec();
                    check(&design, &sick);
                    if let Some(first) = sick.first_mut() {
                        *first = Slot(first.0.saturating_sub(1));
                        sick.sort_unstable();
                        sick.dedup();
                        check(&design, &sick);
                    }
                }
            }
            let too_many: Vec<Slot> = (0..design.columns().slot_count() as u32).map(Slot).collect();
            if too_many.len() > design.guarantee().size {
                assert_eq!(explain(&design, &too_many), Ok(Explanation::NoShard));
            }
        }
    }

    #[test]
    fn three_sick_slots_name_one_shard_of_134_million() {
        for design in [striped(&[512; 4], 2, None), Design::quadruples(whole(2048), &Key::PUBLIC)] {
            let (index, shard) = design.shards(98_765_432).next().unwrap();
            let one = Explanation::OneShard(index, shard);
            assert_eq!(explain(&design, &[shard[3], shard[0], shard[2]]), Ok(one));
            assert_eq!(explain(&design, &[shard[3], shard[0], shard[3], shard[1]]), Ok(one));
            assert_eq!(explain(&design, &shard), Ok(one));
            let many = explain(&design, &shard[..2]).unwrap();
            let expected = if design.columns().count() == 4 { 512 } else { 1023 };
            assert_eq!(many, Explanation::Shards(expected));
        }
        let design = striped(&[512; 4], 2, None);
        assert_eq!(explain(&design, &[Slot(0), Slot(1), Slot(600)]), Ok(Explanation::NoShard));
        assert_eq!(explain(&design, &[Slot(2048)]), Err(CountError::UnknownSlot(Slot(2048))));
    }

    #[test]
    fn tenants_on_most_sick_workers_come_first() {
        let shard = |slots: &[u32]| slots.iter().map(|slot| Slot(*slot)).collect::<Vec<Slot>>();
        let tenants = [
            ("one of four", shard(&[1, 7, 8, 9])),
            ("two of four", shard(&[1, 2, 8, 9])),
            ("none", shard(&[6, 7])),
            ("three of four", shard(&[1, 2, 3, 9])),
            ("two of two", shard(&[2, 3])),
            ("one more of four", shard(&[3, 7, 8, 9])),
        ];
        let found = rank(tenants.clone(), &[Slot(1), Slot(2), Slot(3), Slot(3)], 4);
        let names: Vec<&str> = found.ranked.iter().map(|suspect| suspect.tenant).collect();
        assert_eq!(names, ["three of four", "two of two", "two of four", "one of four"]);
        assert_eq!((found.on_all, found.on_some), (1, 5));
        assert_eq!(rank(tenants, &[Slot(1)], 0).ranked, []);
        let many = rank((0..5_000).map(|n| (n, [Slot(n % 100)])), &[Slot(7)], 3);
        let names: Vec<u32> = many.ranked.iter().map(|suspect| suspect.tenant).collect();
        assert_eq!((names, many.on_all), (vec![7, 107, 207], 50));
    }
}
