//! Plans for chosen and for random wishes, replayed; and plans made wrong on
//! purpose, which the replay must catch.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::fleet::{Columns, Fleet, STRIPE};
use crate::hosts::Applied;
use crate::key::Key;

fn fleet(kind: usize) -> (Design, SlotMap) {
    let columns = |fleet: &Fleet, size| -> Columns { fleet.columns(size, &[STRIPE]).unwrap() };
    let key = Key::PUBLIC;
    let (fleet, design) = match kind {
        0 => {
            let fleet = Fleet::numbered(16, Some(4)).unwrap();
            let design = Design::striped(columns(&fleet, 4), 2, Some(6), &key);
            (fleet, design)
        }
        1 => {
            let fleet = Fleet::numbered(15, Some(3)).unwrap();
            let design = Design::striped(columns(&fleet, 3), 1, None, &key);
            (fleet, design)
        }
        2 => {
            let fleet = Fleet::numbered(13, None).unwrap();
            let design = Design::quadruples(fleet.columns(1, &[]).unwrap(), &key);
            (fleet, design)
        }
        _ => {
            let fleet = Fleet::numbered(7, None).unwrap();
            let design = Design::searched(fleet.columns(1, &[]).unwrap(), 3, 1, &key).unwrap();
            (fleet, design)
        }
    };
    let map = SlotMap::of_fleet(&design, &fleet);
    (design, map)
}

fn shards(design: &Design) -> Vec<Shard> {
    design.shards(0).map(|(_, shard)| shard).collect()
}

fn tenants(design: &Design, slot: u32) -> u64 {
    shards(design).iter().filter(|shard| shard.contains(&Slot(slot))).count() as u64
}

fn plan(map: &SlotMap, design: &Design, wish: &Resize) -> ResizePlan {
    plan_resize(map, wish, shards(design).into_iter()).unwrap()
}

fn carry_out(map: &mut SlotMap, plan: &ResizePlan) {
    for step in plan.steps() {
        assert_eq!(map.apply(step), Ok(Applied::Now), "{plan}");
    }
}

fn moves(plan: &ResizePlan) -> Vec<String> {
    let name = |id: &Option<HostId>| id.as_ref().map_or("-".to_owned(), HostId::to_string);
    let show = |one: &Move| format!("{}:{}>{}", one.slot, name(&one.from), name(&one.to));
    plan.moves().map(show).collect()
}

#[test]
fn a_replacement_is_one_move() {
    let (design, map) = fleet(0);
    let plan = plan(&map, &design, &Resize::new().join(Host::in_column("x", 1)).replace("5", "x"));
    assert_eq!(moves(&plan), ["5:5>x"]);
    assert_eq!(plan.moves().next().unwrap().tenants, tenants(&design, 5));
    assert_eq!((plan.steps().len(), plan.dark().len()), (3, 0));
    assert_eq!(plan.check(&design, &shards(&design)).unwrap().dark_at_once, 0);
}

#[test]
fn a_spare_host_lets_two_hosts_change_places() {
    let (design, map) = fleet(0);
    let swap = Resize::new().replace("0", "1").replace("1", "0");
    let spare = swap.clone().spare(Host::anywhere("x"));
    let with_spare = plan(&map, &design, &spare);
    assert_eq!(moves(&with_spare), ["0:0>x", "1:1>0", "0:x>1"]);
    assert!(with_spare.dark().is_empty());
    // A spare host of another column is of no use.
    let foreign = plan(&map, &design, &swap.clone().spare(Host::in_column("x", 3)));
    let without = plan(&map, &design, &swap);
    let lost = tenants(&design, 0);
    assert_eq!(moves(&without), ["0:0>-", "1:1>0", "0:->1"]);
    assert_eq!(without.dark(), [Dark { slot: Slot(0), from: 0, until: Some(2), tenants: lost }]);
    assert_eq!(moves(&foreign), moves(&without));
    assert_eq!(without.check(&design, &shards(&design)).unwrap().dark_at_once, 1);
    assert!(without.to_string().contains(&format!("{lost} tenants lose one of 4 slots")));
}

#[test]
fn a_host_that_waits_for_its_slot_stands_in_first() {
    let (design, mut map) = fleet(0);
    assert!(plan(&map, &design, &Resize::new()).is_empty());
    let first = plan(&map, &design, &Resize::new().remove("2"));
    carry_out(&mut map, &first);
    let wish = Resize::new().replace("0", "1").replace("1", "0").join(Host::in_column("x", 0));
    let next = plan(&map, &design, &wish);
    assert_eq!(moves(&next), ["0:0>x", "1:1>0", "0:x>1", "2:->x"]);
    assert!(next.dark().is_empty() && next.left_dark().is_empty());
}

#[test]
fn two_rings_are_never_dark_at_once() {
    let (design, map) = fleet(0);
    let swap = |wish: Resize, a: &str, b: &str| wish.replace(a, b).replace(b, a);
    let wish = swap(swap(Resize::new(), "0", "1"), "4", "5").replace("8", "9").replace("9", "10");
    let plan = plan(&map, &design, &wish.replace("10", "8"));
    assert_eq!(plan.dark().len(), 3);
    assert_eq!(plan.check(&design, &shards(&design)).unwrap().dark_at_once, 1);
}

#[test]
fn a_ring_goes_dark_where_the_fewest_tenants_notice() {
    let (design, mut map) = fleet(2);
    let removal = plan_resize(&map, &Resize::new().remove("12"), [].into_iter()).unwrap();
    carry_out(&mut map, &removal);
    // Shards with slot 12, which is dark, and slot 0; more with slot 1 alone.
    let held = |shard: &Shard| shard.contains(&Slot(12)) && shard.contains(&Slot(0));
    let alone = |shard: &Shard| shard.contains(&Slot(1)) && !shard.contains(&Slot(12));
    let used: Vec<Shard> = shards(&design)
        .into_iter()
        .filter(|shard| (held(shard) && !shard.contains(&Slot(1))) || alone(shard))
        .filter(|shard| !shard.contains(&Slot(0)) || held(shard))
        .collect();
    let swap = Resize::new().replace("0", "1").replace("1", "0");
    let plan = plan_resize(&map, &swap, used.iter().copied()).unwrap();
    assert_eq!(plan.dark()[0].slot, Slot(1));
    assert_eq!(plan.check(&design, &used).unwrap().dark_at_once, 1);
}

#[test]
fn a_removed_host_leaves_tenants_who_get_other_shards() {
    let (design, map) = fleet(0);
    let design = Arc::new(design);
    let mut allocator = Allocator::new(design.clone());
    let everyone = Admission::everyone();
    let mut held: Vec<DesignIndex> =
        (0..30).map(|_| allocator.allocate(&everyone).unwrap().0).collect();
    let used = |held: &[DesignIndex]| -> Vec<Shard> {
        held.iter().map(|index| design.shard(*index).unwrap()).collect()
    };
    let plan = plan_resize(&map, &Resize::new().remove("3"), used(&held).into_iter()).unwrap();
    let touched = used(&held).iter().filter(|shard| shard.contains(&Slot(3))).count() as u64;
    assert_eq!((plan.left_dark(), plan.tenants_short()), (&[Slot(3)][..], touched));
    assert_eq!(plan.dark()[0].until, None);
    let relocations = plan.relocate(&mut allocator, &everyone, held.iter().copied());
    assert_eq!(relocations.moved.len() as u64, touched);
    assert!(relocations.stranded.is_empty());
    for (old, new) in relocations.moved {
        held.push(new);
        assert!(design.shard(old).unwrap().contains(&Slot(3)));
        assert!(!design.shard(new).unwrap().contains(&Slot(3)));
    }
    // While tenants move, they have both.
    plan.check(&design, &used(&held)).unwrap();
}

#[test]
fn when_no_shard_is_left_tenants_are_stranded() {
    let (design, map) = fleet(3);
    let design = Arc::new(design);
    let mut allocator = Allocator::new(design.clone());
    let everyone = Admission::everyone();
    let held: Vec<DesignIndex> =
        std::iter::from_fn(|| Some(allocator.allocate(&everyone)?.0)).collect();
    let plan = plan_resize(&map, &Resize::new().remove("0"), shards(&design).into_iter()).unwrap();
    let relocations = plan.relocate(&mut allocator, &everyone, held.into_iter());
    assert_eq!((relocations.moved.len(), relocations.stranded.len()), (0, 3));
}

#[test]
fn added_hosts_fill_dark_slots_then_columns_then_wait() {
    let (design, mut map) = fleet(0);
    let removal = plan(&map, &design, &Resize::new().remove("3"));
    carry_out(&mut map, &removal);
    let add = |wish: Resize, n: usize| wish.join(Host::in_column(format!("x{n}"), 0));
    let growth = plan(&map, &design, &(0..4).fold(Resize::new(), add));
    assert_eq!(moves(&growth), ["3:->x0", "16:->x1", "17:->x2"]);
    let beyond = growth.beyond().unwrap();
    assert_eq!((beyond.hosts.len(), beyond.second_fleet), (1, 0));
    assert_eq!(u128::from(beyond.tenants_moved), design.capacity());
    growth.check(&design, &shards(&design)).unwrap();
    carry_out(&mut map, &growth);
    assert_eq!(map.spares().count(), 1);
    let grown = Design::striped(map.columns(), 2, Some(6), &Key::PUBLIC);
    assert_eq!(grown.fingerprint(), design.fingerprint());
    assert!(design.shards(0).all(|(index, shard)| grown.shard(index) == Some(shard)));
    assert!(grown.capacity() > design.capacity());
}

#[test]
fn enough_hosts_beyond_the_room_are_a_second_fleet() {
    let (design, map) = fleet(1);
    let wish = (0..9).fold(Resize::new(), |wish, n| wish.join(Host::anywhere(format!("x{n}"))));
    let beyond = plan(&map, &design, &wish).beyond().cloned().unwrap();
    assert_eq!((beyond.hosts.len(), beyond.second_fleet), (9, 9));
    assert!(beyond.to_string().contains("up to 9 shards, nobody"), "{beyond}");
}

#[test]
fn a_host_without_a_column_makes_way_for_one_that_has() {
    let (design, mut map) = fleet(0);
    let free = Resize::new().spare(Host::anywhere("free")).replace("0", "free").remove("15");
    let first = plan(&map, &design, &free);
    carry_out(&mut map, &first);
    let plan = plan(&map, &design, &Resize::new().spare(Host::in_column("x", 0)));
    assert_eq!(moves(&plan), ["0:free>x", "15:->free"]);
}

#[test]
fn wishes_that_make_no_sense_are_refused() {
    let (design, map) = fleet(0);
    let check = |wish: Resize, said: &str| {
        let refused = plan_resize(&map, &wish, shards(&design).into_iter()).unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    };
    let x = || Resize::new().join(Host::in_column("x", 0));
    check(Resize::new().remove("y"), "no host `y`");
    check(Resize::new().replace("0", "y"), "no host `y`");
    check(x().join(Host::anywhere("x")), "is there already");
    check(Resize::new().join(Host::anywhere("3")), "`3` is to join");
    check(x().replace("0", "x").replace("1", "x"), "exclude");
    check(x().replace("0", "x").remove("0"), "exclude");
    check(x().replace("0", "x").remove("x"), "exclude");
    check(x().spare(Host::anywhere("y")).replace("x", "y"), "serves nothing");
    check(x().replace("15", "x"), "another column");
    check(Resize::new().join(Host::in_column("y", 4)), "columns 0 to 3");
}

/// Steps that break the promise, each in its own way.
#[test]
fn planted_violations_are_caught() {
    let (design, map) = fleet(0);
    let good = plan(&map, &design, &Resize::new().join(Host::in_column("x", 0)).replace("1", "x"));
    let all = shards(&design);
    let planted = |change: &dyn Fn(&mut Vec<Step>)| {
        let mut bad = good.clone();
        change(&mut bad.steps);
        bad.check(&design, &all).unwrap_err()
    };
    let to = |id: &'static str| {
        move |steps: &mut Vec<Step>| {
            let HostChange::Move(one) = &mut steps[1].change else { panic!("a move") };
            one.to = Some(id.into());
        }
    };
    // Two slots on one host: shards that differ there do not any more.
    let caught = planted(&to("0"));
    assert!(matches!(caught, Violation::Overlap { step: 1, .. }), "{caught}");
    let mut bad = good.clone();
    to("0")(&mut bad.steps);
    let caught = bad.check(&design, &all[..1]).unwrap_err();
    assert!(matches!(caught, Violation::TwoSlots { step: 1, .. }), "{caught}");
    assert!(bad.steps.iter().any(|step| map.clone().apply(step).is_err()));
    let broken = |caught: Violation| matches!(caught, Violation::Broken { .. });
    assert!(broken(planted(&to("nobody"))));
    assert!(broken(planted(&|steps| drop(steps.remove(0)))));
    assert!(broken(planted(&|steps| steps.swap(1, 2))));
    assert!(broken(planted(&|steps| {
        let mut leave = steps[2].clone();
        leave.change = HostChange::Leave("0".into());
        steps[2] = leave;
    })));
    let foreign = planted(&|steps| {
        steps[0].change = HostChange::Join(Host::in_column("x", 3));
    });
    assert!(matches!(foreign, Violation::Column { .. }), "{foreign}");
    let shard = Shard::new([Slot(0), Slot(1), Slot(2), Slot(3)]);
    assert_eq!(good.check(&design, &[shard]), Err(Violation::ForeignShard(shard)));
    assert_eq!(good.check(&fleet(1).0, &[]), Err(Violation::OtherDesign));
}

/// A wish out of random numbers that does not contradict itself.
fn random_wish(map: &SlotMap, columns: usize, numbers: &[(u8, u16, u16)], round: usize) -> Resize {
    let mut free: Vec<Host> = map.hosts().collect();
    let mut wish = Resize::new();
    for (at, &(kind, one, other)) in numbers.iter().enumerate() {
        let column = usize::from(other) % (columns + 1);
        let id = HostId::from(format!("r{round}-{at}"));
        let host = Host { id: id.clone(), column: Some(column).filter(|c| *c < columns) };
        if kind < 2 {
            wish = if kind == 0 { wish.join(host) } else { wish.spare(host) };
            continue;
        }
        if free.len() < 4 {
            continue;
        }
        let old = free.swap_remove(usize::from(one) % free.len());
        let column_of = |id: &HostId| map.slot(id).and_then(|slot| map.column_of(slot));
        let Some(column) = column_of(&old.id).filter(|_| kind > 3) else {
            wish = wish.remove(old.id);
            continue;
        };
        let fits = |host: &Host| column_of(&host.id) == Some(column) && host.fits(column);
        match free.iter().position(fits).filter(|_| kind > 4 && old.fits(column)) {
            // Two hosts change places, or three.
            Some(at) => {
                let new = free.swap_remove(at);
                let third = free.iter().position(fits).filter(|_| one % 2 == 0);
                wish = wish.replace(old.id.clone(), new.id.clone());
                wish = match third.map(|at| free.swap_remove(at)) {
                    Some(third) => wish.replace(new.id, third.id.clone()).replace(third.id, old.id),
                    None => wish.replace(new.id, old.id),
                };
            }
            None => {
                wish = wish.spare(Host::in_column(id.clone(), column)).replace(old.id, id);
            }
        }
    }
    wish
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_step_of_every_plan_keeps_the_promise(
        kind in 0usize..4,
        rounds in proptest::collection::vec(
            proptest::collection::vec((0u8..7, any::<u16>(), any::<u16>()), 0..9), 1..4),
    ) {
        let (design, mut map) = fleet(kind);
        let used: Vec<Shard> = shards(&design).into_iter().step_by(1 + kind % 2).collect();
        for (round, numbers) in rounds.iter().enumerate() {
            let wish = random_wish(&map, design.columns().count(), numbers, round);
            let plan = plan_resize(&map, &wish, used.iter().copied()).unwrap();
            let replay = plan.check(&design, &used);
            prop_assert!(replay.is_ok(), "{} {:?}", plan, replay);
            let was_lit = map.dark_slots().next().is_none();
            if was_lit && plan.left_dark().is_empty() {
                prop_assert!(replay.unwrap().dark_at_once <= 1, "{}", plan);
            }
            prop_assert!(dark_is_needed(&map, &plan, &wish), "{}", plan);
            let old_slots: Vec<_> =
                wish.replace.iter().map(|(old, new)| (map.slot(old), new.clone())).collect();
            carry_out(&mut map, &plan);
            for (slot, new) in old_slots {
                prop_assert_eq!(map.host(slot.unwrap()), Some(&new));
            }
            prop_assert!(map.hosts().all(|host| !wish.leaving().contains(&host.id)));
            prop_assert_eq!(map.dark_slots().collect::<Vec<_>>(), plan.left_dark());
            for slot in plan.left_dark() {
                let column = map.column_of(*slot).unwrap();
                prop_assert!(map.hosts().all(|host| map.slot(&host.id).is_some() || !host.fits(column)));
            }
        }
    }
}

/// Slots go dark for a while only if no host that stays was free for them.
fn dark_is_needed(map: &SlotMap, plan: &ResizePlan, wish: &Resize) -> bool {
    let mut map = map.clone();
    plan.steps().iter().enumerate().all(|(number, step)| {
        let goes_dark = plan.dark().iter().find(|dark| dark.from == number && dark.until.is_some());
        let is_needed = goes_dark.is_none_or(|dark| {
            let column = map.column_of(dark.slot).unwrap();
            let is_free = |host: &Host| map.slot(&host.id).is_none() && host.fits(column);
            !map.hosts().any(|host| is_free(&host) && !wish.leaving().contains(&host.id))
        });
        map.apply(step).unwrap();
        is_needed
    })
}
