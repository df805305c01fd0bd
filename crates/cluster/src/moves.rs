//! What changes hands between two routings: which owners of a slot are new to
//! it, and who has what they need.

use crate::member::Member;
use crate::routing::Routing;
use crate::slot::Slot;

/// The difference between two routings. All members are named by their places
/// in the later view.
///
/// A member is the same in both if name and incarnation are: a node that was
/// restarted in between owns the same slots as before, but has none of their
/// entries, so it is new to all of them.
#[derive(Clone, Debug)]
pub struct Moves<'a> {
    before: &'a Routing,
    after: &'a Routing,
    /// The later places of the earlier view's members; none for those that
    /// are gone.
    places: Vec<Option<u16>>,
}

impl<'a> Moves<'a> {
    /// What moves from `before` to `after`. `None` if their epochs differ:
    /// then slots hold other questions, and every question has moved.
    pub fn between(before: &'a Routing, after: &'a Routing) -> Option<Self> {
        (before.epoch() == after.epoch()).then(|| {
            let members = before.view().members().iter();
            let place = |member: &Member| {
                let index = after.index_of(&member.name)?;
                let now = &after.view().members()[index as usize];
                (now.incarnation == member.incarnation).then_some(index)
            };
            Moves { before, after, places: members.map(place).collect() }
        })
    }

    /// The slots that have an owner who is new to them.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        Slot::all().filter(|slot| self.gained(*slot).next().is_some())
    }

    /// The owners of `slot` that did not own it before, in their ranks.
    pub fn gained(&self, slot: Slot) -> impl Iterator<Item = u16> {
        let owners = self.after.owners(slot).iter().copied();
        owners.filter(move |owner| !self.former(slot).any(|former| former == *owner))
    }

    /// The owners that `slot` had before and that are still members, in their
    /// former ranks: the first is the one to hand entries over, and all may be
    /// asked for them. Those on their way out are among them.
    pub fn former(&self, slot: Slot) -> impl Iterator<Item = u16> {
        self.before.owners(slot).iter().filter_map(|owner| self.places[*owner as usize])
    }

    /// Those of [`Moves::former`] that do not own `slot` any more.
    pub fn lost(&self, slot: Slot) -> impl Iterator<Item = u16> {
        self.former(slot).filter(move |former| !self.after.owners(slot).contains(former))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::epoch::Epoch;
    use crate::member::Standing;
    use crate::placement::Placement;
    use crate::slot::{HashKey, SLOTS};
    use crate::testing::{count, member, members, view};

    const EPOCH: Epoch = Epoch { number: 3, key: HashKey([7; 16]) };

    fn routing(members: &[Member]) -> Routing {
        Routing::new(Arc::new(view(members)), Placement::Rendezvous, 2, EPOCH)
    }

    /// Slots in which each of `members` is named by `of`.
    fn tally(members: usize, of: impl Fn(Slot) -> Vec<u16>) -> Vec<usize> {
        let mut tally = vec![0; members];
        Slot::all().flat_map(of).for_each(|member| tally[member as usize] += 1);
        tally
    }

    /// Slots of which `member` is the second owner.
    fn second(routing: &Routing, member: u16) -> usize {
        Slot::all().filter(|slot| routing.owners(*slot)[1] == member).count()
    }

    #[test]
    fn nothing_moves_between_equal_routings() {
        let routing = routing(&count(4));
        let moves = Moves::between(&routing, &routing).unwrap();
        assert_eq!(moves.slots().count(), 0);
        assert!(
            Slot::all().all(|slot| moves.former(slot).eq(routing.owners(slot).iter().copied()))
        );
        assert!(Slot::all().all(|slot| moves.lost(slot).next().is_none()));
    }

    #[test]
    fn another_epoch_is_no_move() {
        let before = routing(&count(2));
        let later = Epoch { number: 4, ..EPOCH };
        let after = Routing::new(before.view().clone(), Placement::Rendezvous, 2, later);
        assert!(Moves::between(&before, &after).is_none());
    }

    #[test]
    fn who_joins_gains_its_slots_and_nobody_else_does() {
        let mut all = count(4);
        let before = routing(&all);
        all.push(member("a-node"));
        let after = routing(&all);
        let moves = Moves::between(&before, &after).unwrap();
        let gains = tally(5, |slot| moves.gained(slot).collect());
        let owned = tally(5, |slot| after.owners(slot).to_vec());
        assert_eq!(gains, [owned[0], 0, 0, 0, 0]);
        assert_eq!(moves.slots().count(), owned[0]);
        for slot in moves.slots() {
            assert!(moves.former(slot).all(|former| former != 0), "it has nothing to hand over");
            assert_eq!(moves.lost(slot).count(), 1);
        }
    }

    #[test]
    fn who_drains_hands_over_to_the_heirs() {
        let mut all = count(4);
        let before = routing(&all);
        all[2].standing = Standing::Draining;
        let after = routing(&all);
        let moves = Moves::between(&before, &after).unwrap();
        let lost = tally(4, |slot| moves.lost(slot).collect());
        let owned = tally(4, |slot| before.owners(slot).to_vec());
        assert_eq!(lost, [0, 0, owned[2], 0]);
        for slot in moves.slots() {
            assert!(moves.former(slot).any(|former| former == 2));
            assert_eq!(moves.gained(slot).next(), after.owners(slot).last().copied());
        }
    }

    #[test]
    fn who_is_gone_hands_over_nothing() {
        let all = count(3);
        let (before, after) = (routing(&all), routing(&all[1..]));
        let moves = Moves::between(&before, &after).unwrap();
        for slot in moves.slots() {
            assert_eq!(moves.former(slot).count(), 1);
            assert_eq!(moves.lost(slot).count(), 0);
        }
        assert_eq!(moves.slots().count(), before.table().loads()[0] + second(&before, 0));
    }

    #[test]
    fn who_was_restarted_is_new_to_its_own_slots() {
        let mut all = count(3);
        let before = routing(&all);
        all[1].incarnation += 1;
        let after = routing(&all);
        let moves = Moves::between(&before, &after).unwrap();
        assert_eq!(before.table(), after.table());
        let gains = tally(3, |slot| moves.gained(slot).collect());
        assert_eq!(gains, [0, before.table().loads()[1] + second(&before, 1), 0]);
        assert!(Slot::all().all(|slot| moves.former(slot).all(|former| former != 1)));
        assert!(gains[1] < SLOTS);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The laws by name, for views that may have nothing in common.
        #[test]
        fn owners_are_former_or_gained(
            earlier in members(0..8), later in members(0..8), keep: prop::sample::Index,
        ) {
            let kept = keep.index(earlier.len() + 1);
            let mut both = later;
            both.retain(|member| earlier[..kept].iter().all(|kept| kept.name != member.name));
            both.extend_from_slice(&earlier[..kept]);
            let (before, after) = (routing(&earlier), routing(&both));
            let moves = Moves::between(&before, &after).unwrap();
            let self_of = |routing: &Routing, index: u16| {
                let member = &routing.view().members()[index as usize];
                (member.name.clone(), member.incarnation)
            };
            for slot in Slot::all() {
                let selves = |routing: &Routing| -> Vec<_> {
                    routing.owners(slot).iter().map(|owner| self_of(routing, *owner)).collect()
                };
                let (were, are) = (selves(&before), selves(&after));
                let mut gained = moves.gained(slot).map(|index| self_of(&after, index));
                prop_assert!(gained.all(|new| are.contains(&new) && !were.contains(&new)));
                let new = are.iter().filter(|owner| !were.contains(owner)).count();
                prop_assert_eq!(moves.gained(slot).count(), new);
                let mut lost = moves.lost(slot).map(|index| self_of(&after, index));
                prop_assert!(lost.all(|old| were.contains(&old) && !are.contains(&old)));
            }
        }
    }
}
