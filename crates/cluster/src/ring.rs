//! Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam,
//! 2016), with the settings that DNSZoo had.
//!
//! Members stand at several points of a ring. A slot has a point too, and
//! belongs to the first member clockwise that has not had its share yet. The
//! next owners are the next members on the ring from where the *owner* stands,
//! not from where the slot is: they are the ones that a slot moves on to when
//! its owner leaves, so they are the ones that must have its entries.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::slot::{SLOTS, Slot};

/// Points of a member on the ring.
const POINTS: u64 = 20;
/// How far above the average a member may be loaded: 5/4, as in DNSZoo.
const LOAD_NUMERATOR: usize = 5;
const LOAD_DENOMINATOR: usize = 4;

/// For each slot the places in `names` of the `ranks` members that own it, best
/// first.
///
/// There must be at least `ranks` names, in order, and `ranks` must not be 0.
pub(crate) fn rank(names: &[&str], ranks: usize) -> Vec<u16> {
    let ring = Ring::new(names);
    let bound = load_bound(names.len());
    let mut loads = vec![0; names.len()];
    let mut owners = Vec::with_capacity(SLOTS * ranks);
    for slot in Slot::all() {
        let at = ring.first_open(position_of_slot(slot), |place| loads[place as usize] < bound);
        loads[ring.points[at].place as usize] += 1;
        ring.push_members_from(at, ranks, &mut owners);
    }
    owners
}

/// Slots that one of `members` may own at the most. All together may always own
/// more than there are, so no slot is left without an owner.
fn load_bound(members: usize) -> usize {
    (SLOTS * LOAD_NUMERATOR).div_ceil(LOAD_DENOMINATOR * members)
}

struct Ring {
    /// Clockwise.
    points: Vec<Point>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    position: u64,
    /// Of its member.
    place: u16,
}

impl Ring {
    fn new(names: &[&str]) -> Self {
        let mut points = Vec::with_capacity(names.len() * POINTS as usize);
        for (place, name) in names.iter().enumerate() {
            points.extend((0..POINTS).map(|number| Point {
                position: position_of_member(name, number),
                place: place as u16,
            }));
        }
        points.sort_unstable();
        Ring { points }
    }

    /// Index of the first point from `position` on, clockwise, whose member is
    /// open. At least one must be.
    fn first_open(&self, position: u64, is_open: impl Fn(u16) -> bool) -> usize {
        let start = self.points.partition_point(|point| point.position < position);
        let mut clockwise = (start..self.points.len()).chain(0..start);
        clockwise.find(|at| is_open(self.points[*at].place)).expect("shares exceed the slots")
    }

    /// Appends the first `count` members from the point `at` on, clockwise.
    fn push_members_from(&self, at: usize, count: usize, members: &mut Vec<u16>) {
        let start = members.len();
        for point in self.points[at..].iter().chain(&self.points[..at]) {
            if !members[start..].contains(&point.place) {
                members.push(point.place);
            }
            if members.len() == start + count {
                return;
            }
        }
    }
}

/// Where a member stands. Fixed keys: all nodes must come to the same ring.
fn position_of_member(name: &str, number: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(2, number);
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn position_of_slot(slot: Slot) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(3, 0);
    hasher.write(&(slot.number() as u64).to_le_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(places: &[u16]) -> Ring {
        let point = |(at, place): (usize, &u16)| Point { position: at as u64 * 10, place: *place };
        Ring { points: places.iter().enumerate().map(point).collect() }
    }

    #[test]
    fn a_slot_goes_clockwise_past_members_that_are_full() {
        let ring = ring(&[0, 1, 0, 2]);
        assert_eq!(ring.first_open(0, |_| true), 0, "at the point itself");
        assert_eq!(ring.first_open(1, |_| true), 1);
        assert_eq!(ring.first_open(31, |_| true), 0, "past the end it starts over");
        assert_eq!(ring.first_open(1, |place| place == 2), 3);
        assert_eq!(ring.first_open(11, |place| place == 1), 1, "all the way round");
    }

    #[test]
    fn heirs_are_the_next_members_from_where_the_owner_stands() {
        let ring = ring(&[0, 1, 1, 0, 2]);
        let members_from = |at, count| {
            let mut members = vec![9];
            ring.push_members_from(at, count, &mut members);
            members.split_off(1)
        };
        assert_eq!(members_from(0, 3), [0, 1, 2]);
        assert_eq!(members_from(2, 3), [1, 0, 2]);
        assert_eq!(members_from(3, 3), [0, 2, 1]);
        assert_eq!(members_from(4, 2), [2, 0]);
        assert_eq!(members_from(4, 1), [2]);
    }

    #[test]
    fn bounds_are_a_quarter_above_the_average_rounded_up() {
        assert_eq!(load_bound(1), 20_480);
        assert_eq!(load_bound(3), 6_827);
        assert_eq!(load_bound(1024), 20);
        for members in 1..=crate::MEMBERS_MAX {
            assert!(load_bound(members) * members >= SLOTS);
        }
    }

    /// Nodes of different versions must come to the same owners.
    #[test]
    fn ranks_stay_what_they_were() {
        let ranked = rank(&["a", "b", "c", "d", "e"], 3);
        assert_eq!(ranked[..9], [4, 3, 0, 3, 4, 0, 4, 0, 3]);
        assert_eq!(ranked[3 * 9_999..3 * 10_002], [3, 2, 0, 3, 0, 2, 2, 0, 1]);
    }
}
