//! Who owns which slot: computed once for a view, looked up for every question.

use std::fmt;

use crate::member::Standing;
use crate::placement::Placement;
use crate::slot::{SLOTS, Slot};
use crate::view::View;
use crate::{rendezvous, ring};

/// Owners of a slot at the most. More copies than that would be a copy
/// everywhere, which is what the first layer of every node is for.
pub const RANKS_MAX: usize = 16;

/// The ranked owners of every slot under one view.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotTable {
    /// Of slot 0, of slot 1, and so on: `ranks` members each.
    owners: Box<[u16]>,
    ranks: usize,
    members: usize,
    serving: usize,
}

impl fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable")
            .field("ranks", &self.ranks)
            .field("members", &self.members)
            .field("serving", &self.serving)
            .finish_non_exhaustive()
    }
}

impl SlotTable {
    /// Gives every slot `width` owners, or as many as serve. A width outside
    /// 1..=[`RANKS_MAX`] is taken for the nearest inside.
    pub fn new(view: &View, placement: Placement, width: usize) -> SlotTable {
        let members = view.members();
        let serving: Vec<u16> = (0u16..)
            .zip(members)
            .filter(|(_, member)| member.standing == Standing::Serving)
            .map(|(index, _)| index)
            .collect();
        let names: Vec<&str> =
            serving.iter().map(|index| &*members[*index as usize].name).collect();
        let ranks = width.clamp(1, RANKS_MAX).min(names.len());
        let ranked = match placement {
            _ if names.is_empty() => Vec::new(),
            Placement::Rendezvous => rendezvous::rank(&names, ranks),
            Placement::BoundedRing => ring::rank(&names, ranks),
        };
        SlotTable {
            owners: ranked.into_iter().map(|place| serving[place as usize]).collect(),
            ranks,
            members: members.len(),
            serving: serving.len(),
        }
    }

    /// The owners of `slot`, first the one to ask first, as places in
    /// [`View::members`]. None if nobody serves.
    #[inline]
    pub fn owners(&self, slot: Slot) -> &[u16] {
        let start = slot.number() * self.ranks;
        &self.owners[start..start + self.ranks]
    }

    /// Members that own slots.
    pub fn serving(&self) -> usize {
        self.serving
    }

    /// Slots that each member owns as the first.
    pub fn loads(&self) -> Vec<usize> {
        let mut loads = vec![0; self.members];
        for slot in Slot::all() {
            if let Some(first) = self.owners(slot).first() {
                loads[*first as usize] += 1;
            }
        }
        loads
    }

    /// The largest load of a member, in average loads of those that serve: 1 is
    /// perfect. Also 1 if nobody serves.
    pub fn imbalance(&self) -> f64 {
        match self.loads().into_iter().max() {
            Some(largest) if self.serving > 0 => (largest * self.serving) as f64 / SLOTS as f64,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::member::Member;
    use crate::testing::{count, member, members, members_in_two_orders, view};

    fn table(members: &[Member], placement: Placement) -> SlotTable {
        SlotTable::new(&view(members), placement, 3)
    }

    /// Owners of `slot` by name.
    fn names<'a>(table: &SlotTable, view: &'a View, slot: Slot) -> Vec<&'a str> {
        let name = |index: &u16| &*view.members()[*index as usize].name;
        table.owners(slot).iter().map(name).collect()
    }

    #[test]
    fn nobody_owns_anything_if_nobody_serves() {
        let draining = Member { standing: Standing::Draining, ..member("a") };
        for members in [vec![], vec![draining]] {
            for placement in Placement::ALL {
                let table = table(&members, placement);
                assert!(Slot::all().all(|slot| table.owners(slot).is_empty()));
                assert_eq!(table.loads(), vec![0; members.len()]);
                assert_eq!(table.imbalance(), 1.0);
            }
        }
    }

    #[test]
    fn one_member_owns_everything() {
        for placement in Placement::ALL {
            let table = table(&[member("a")], placement);
            assert!(Slot::all().all(|slot| table.owners(slot) == [0]));
            assert_eq!(table.loads(), [SLOTS]);
            assert_eq!(table.imbalance(), 1.0);
        }
    }

    #[test]
    fn widths_are_kept_within_their_bounds() {
        let view = view(&count(RANKS_MAX + 2));
        for placement in Placement::ALL {
            for (width, ranks) in [(0, 1), (1, 1), (5, 5), (RANKS_MAX, RANKS_MAX), (99, RANKS_MAX)]
            {
                let table = SlotTable::new(&view, placement, width);
                assert!(Slot::all().all(|slot| table.owners(slot).len() == ranks), "{width}");
            }
        }
    }

    #[test]
    fn a_wider_table_begins_with_the_narrower_one() {
        let view = view(&count(9));
        for placement in Placement::ALL {
            let narrow = SlotTable::new(&view, placement, 2);
            let wide = SlotTable::new(&view, placement, 6);
            assert!(Slot::all().all(|slot| wide.owners(slot).starts_with(narrow.owners(slot))));
        }
    }

    /// Chance decides how uneven shares are, once for these names. Drawn one by
    /// one, with a standard deviation of 1/√(slots each); as orders of all
    /// slots, with 1/√2 of it, of which three are allowed.
    #[test]
    fn rendezvous_shares_are_even() {
        for members in 2..=64 {
            let imbalance = table(&count(members), Placement::Rendezvous).imbalance();
            let deviation = (members as f64 / (2 * SLOTS) as f64).sqrt();
            assert!(imbalance <= 1.0 + 3.0 * deviation, "{members} members: {imbalance}");
        }
    }

    /// What a member leaves behind is spread over all others.
    #[test]
    fn rendezvous_heirs_are_even() {
        let table = table(&count(16), Placement::Rendezvous);
        let mut pairs = vec![0; 16 * 16];
        for slot in Slot::all() {
            let owners = table.owners(slot);
            pairs[owners[0] as usize * 16 + owners[1] as usize] += 1;
        }
        // On average 68; four standard deviations are 33.
        for (pair, slots) in pairs.into_iter().enumerate() {
            let (first, second) = (pair / 16, pair % 16);
            let expected = if first == second { 0..=0 } else { 35..=101 };
            assert!(expected.contains(&slots), "{first} then {second}: {slots}");
        }
    }

    #[test]
    fn a_bounded_ring_keeps_its_bound() {
        for members in 1..=64 {
            let loads = table(&count(members), Placement::BoundedRing).loads();
            let bound = (SLOTS as f64 * 1.25 / members as f64).ceil() as usize;
            assert!(loads.iter().all(|load| *load <= bound), "{members} members: {loads:?}");
        }
    }

    /// The heir of a ring is the next member on it, so most of what a member
    /// leaves behind goes there; some goes past it, because it is full.
    #[test]
    fn most_slots_of_a_ring_go_to_their_second_owner() {
        let all = count(8);
        let (full, less) = (view(&all), view(&all[1..]));
        let before = SlotTable::new(&full, Placement::BoundedRing, 2);
        let after = SlotTable::new(&less, Placement::BoundedRing, 2);
        let left: Vec<Slot> = Slot::all().filter(|slot| before.owners(*slot)[0] == 0).collect();
        let inherited = left
            .iter()
            .filter(|slot| names(&after, &less, **slot)[0] == names(&before, &full, **slot)[1])
            .count();
        assert!(inherited * 2 > left.len(), "{inherited} of {}", left.len());
    }

    #[test]
    fn tables_print_in_a_line() {
        let shown = format!("{:?}", table(&[member("a")], Placement::Rendezvous));
        assert_eq!(shown, "SlotTable { ranks: 1, members: 1, serving: 1, .. }");
    }

    fn placement() -> impl Strategy<Value = Placement> {
        prop::sample::select(&Placement::ALL[..])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn owners_are_distinct_and_serve(
            members in members(0..12), placement in placement(), width in 1..5usize,
        ) {
            let view = view(&members);
            let table = SlotTable::new(&view, placement, width);
            let is_serving = |index: &u16| {
                view.members()[*index as usize].standing == Standing::Serving
            };
            let serving = members.iter().filter(|m| m.standing == Standing::Serving).count();
            for slot in Slot::all() {
                let owners = table.owners(slot);
                prop_assert_eq!(owners.len(), width.min(serving));
                prop_assert!(owners.iter().all(is_serving));
                prop_assert_eq!(owners.iter().collect::<BTreeSet<_>>().len(), owners.len());
            }
            prop_assert_eq!(table.loads().iter().sum::<usize>(), SLOTS * usize::from(serving > 0));
        }

        #[test]
        fn order_and_incarnation_change_nothing(
            (members, mut others) in members_in_two_orders(1..8),
            placement in placement(),
            restart: u64,
        ) {
            others.iter_mut().for_each(|member| member.incarnation ^= restart);
            prop_assert_eq!(table(&members, placement), table(&others, placement));
        }

        /// Removal read forwards, joining read backwards.
        #[test]
        fn rendezvous_moves_only_what_it_must(
            members in members(2..10), gone: prop::sample::Index, draining: bool,
        ) {
            let with = view(&members);
            let gone = gone.index(members.len());
            let name = members[gone].name.clone();
            let mut rest = members;
            if draining {
                rest[gone].standing = Standing::Draining;
            } else {
                rest.remove(gone);
            }
            let without = view(&rest);
            let wide = SlotTable::new(&with, Placement::Rendezvous, 4);
            let narrow = SlotTable::new(&without, Placement::Rendezvous, 3);
            for slot in Slot::all() {
                let mut expected = names(&wide, &with, slot);
                expected.retain(|owner| *owner != &*name);
                expected.truncate(3);
                prop_assert_eq!(names(&narrow, &without, slot), expected);
            }
        }
    }
}
