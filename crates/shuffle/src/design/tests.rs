//! Every law of a design, on every pair of shards of small ones and on samples
//! of the large ones.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::fleet::{Fleet, STRIPE};
use crate::shard::Slot;

fn stripes(workers: usize, size: usize) -> Columns {
    Fleet::numbered(workers, Some(size)).unwrap().columns(size, &[STRIPE]).unwrap()
}

fn striped(workers: usize, size: usize, overlap: usize, room: Option<u32>, key: &Key) -> Design {
    Design::striped(stripes(workers, size), overlap, room, key)
}

fn whole(workers: usize) -> Columns {
    Fleet::numbered(workers, None).unwrap().columns(1, &[]).unwrap()
}

/// Small designs of every family, even and uneven.
fn small_designs(key: &Key) -> Vec<Design> {
    let mut designs = vec![
        Design::searched(whole(7), 3, 1, key).unwrap(),
        Design::searched(stripes(24, 4), 4, 1, key).unwrap(),
    ];
    for (workers, size, overlap) in [
        (12, 3, 0),
        (12, 2, 1),
        (12, 3, 1),
        (18, 3, 1),
        (20, 4, 2),
        (22, 4, 2),
        (24, 4, 2),
        (16, 4, 1),
        (28, 4, 1),
        (26, 4, 1),
        (35, 5, 2),
        (33, 5, 2),
        (20, 5, 2),
        (40, 5, 1),
    ] {
        designs.push(striped(workers, size, overlap, None, key));
    }
    designs.push(striped(20, 4, 2, Some(7), key));
    designs.push(striped(20, 4, 1, Some(7), key));
    designs.extend([4, 8, 13, 16, 17].map(|workers| Design::quadruples(whole(workers), key)));
    designs.extend([2, 3, 8, 11].map(|workers| Design::pairs(whole(workers), key)));
    designs
}

#[test]
fn no_two_shards_share_more_than_the_overlap() {
    for design in small_designs(&Key::from_hex("5eed").unwrap()) {
        let shards: Vec<Shard> = design.shards(0).map(|(_, shard)| shard).collect();
        assert_eq!(shards.len() as u128, design.capacity(), "{}", design.name());
        let Guarantee { size, overlap, is_striped, .. } = design.guarantee();
        for (at, shard) in shards.iter().enumerate() {
            assert_eq!(shard.len(), size);
            assert_eq!(shard.overlap(shard), size);
            for (column, slot) in shard.iter().enumerate() {
                assert!(!is_striped || design.columns().place(*slot).unwrap().0 == column);
            }
            for other in &shards[..at] {
                assert!(shard.overlap(other) <= overlap, "{} {shard:?} {other:?}", design.name());
            }
        }
    }
}

#[test]
fn numbers_without_a_shard_have_none() {
    for design in small_designs(&Key::PUBLIC) {
        let found: Vec<_> = (0..design.index_end()).filter_map(|at| design.at(at)).collect();
        assert_eq!(found, design.shards(0).collect::<Vec<_>>());
        assert!(found.iter().all(|(index, _)| design.at(index.get()).unwrap().0 == *index));
        assert_eq!(design.at(design.index_end()), None);
        assert_eq!(design.at(u64::MAX), None);
    }
}

#[test]
fn shards_tell_their_numbers_in_any_order_of_slots() {
    for design in small_designs(&Key::PUBLIC) {
        for (index, shard) in design.shards(0) {
            assert_eq!(design.shard(index), Some(shard));
            assert_eq!(design.index(&shard), Some(index));
            let reversed = Shard::new(shard.iter().rev().copied());
            assert_eq!(design.index(&reversed), Some(index));
        }
        assert_eq!(design.shard_at(design.index_end()), None);
        assert_eq!(design.index(&Shard::new([Slot(0)])), None);
        let size = design.guarantee().size;
        assert_eq!(design.index(&Shard::new(vec![Slot(0); size])), None);
        assert_eq!(design.index(&Shard::new((0..size as u32).map(|n| Slot(n + 1000)))), None);
    }
}

/// The largest difference of the loads of two slots of a column.
fn spread(design: &Design, loads: &HashMap<Slot, u32>) -> u32 {
    let columns = (0..design.columns().count()).map(|number| design.columns().column(number));
    let spreads = columns.map(|column| {
        let load = |slot: &Slot| loads.get(slot).copied().unwrap_or(0);
        column.iter().map(load).max().unwrap_or(0) - column.iter().map(load).min().unwrap_or(0)
    });
    spreads.max().unwrap_or(0)
}

#[test]
fn loads_keep_their_spread_at_every_prefix() {
    for design in small_designs(&Key::from_hex("77").unwrap()) {
        let Some(promised) = design.guarantee().spread else { continue };
        let mut loads: HashMap<Slot, u32> = HashMap::new();
        for (_, shard) in design.shards(0) {
            shard.iter().for_each(|slot| *loads.entry(*slot).or_default() += 1);
            let seen = spread(&design, &loads);
            assert!(seen <= promised, "{} {seen} > {promised}", design.name());
        }
    }
}

#[test]
fn full_sizes_are_as_computed() {
    let key = Key::PUBLIC;
    assert_eq!(striped(2048, 4, 2, None, &key).capacity(), 134_217_728);
    assert_eq!(Design::quadruples(whole(2048), &key).capacity(), 357_389_824);
    assert_eq!(striped(2048, 8, 2, None, &key).capacity(), 16_777_216);
    let columns = {
        let mut next = 0;
        let column = |len: u32| {
            next += len;
            (next - len..next).map(Slot).collect()
        };
        Columns::new([500, 505, 512, 512].map(column).to_vec())
    };
    let uneven = Design::striped(columns, 2, None, &key);
    assert_eq!((uneven.capacity(), uneven.is_capacity_exact()), (129_280_000, true));
    assert_eq!(striped(2048, 8, 2, None, &key).guarantee().survives_attackers(), Some(3));
    assert_eq!(striped(2048, 4, 2, None, &key).guarantee().survives_attackers(), Some(1));
    assert_eq!(striped(12, 3, 0, None, &key).guarantee().survives_attackers(), None);
}

#[test]
fn a_million_tenants_load_2048_workers_within_one() {
    for design in
        [striped(2048, 4, 2, None, &Key::PUBLIC), Design::quadruples(whole(2048), &Key::PUBLIC)]
    {
        let mut loads = vec![0u32; 2048];
        for (_, shard) in design.shards(0).take(1_000_000) {
            shard.iter().for_each(|slot| loads[slot.0 as usize] += 1);
        }
        let (least, most) = (loads.iter().min(), loads.iter().max());
        assert_eq!((least, most), (Some(&1953), Some(&1954)));
    }
}

#[test]
fn growing_into_the_room_moves_no_shard() {
    let key = Key::from_hex("beef").unwrap();
    let numbered = |len: u32| {
        Columns::new((0..5).map(|c| (0..len).map(|l| Slot(l * 5 + c)).collect()).collect())
    };
    let small = Design::striped(numbered(7), 2, Some(11), &key);
    let large = Design::striped(numbered(11), 2, Some(11), &key);
    assert_eq!(small.fingerprint(), large.fingerprint());
    assert!(small.capacity() < large.capacity());
    for (index, shard) in small.shards(0) {
        assert_eq!(large.shard(index), Some(shard));
    }
}

#[test]
fn another_key_is_another_placement() {
    let (one, other) = (Key::from_hex("1").unwrap(), Key::from_hex("2").unwrap());
    let shards =
        |key| striped(2048, 4, 2, None, key).shards(0).map(|s| s.1).take(1000).collect::<Vec<_>>();
    let same = std::iter::zip(shards(&one), shards(&other)).filter(|(a, b)| a == b).count();
    assert_eq!(same, 0);
    let print = |key| striped(2048, 4, 2, None, key).fingerprint();
    assert_ne!(print(&one), print(&other));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn large_designs_go_both_ways_and_keep_the_bound(
        key: [u8; 16], numbers in proptest::collection::vec(any::<u64>(), 2..40), kind in 0..6,
    ) {
        let key = Key::from_bytes(key);
        let design = match kind {
            0 => striped(2048, 4, 2, None, &key),
            1 => Design::quadruples(whole(2048), &key),
            2 => striped(2048, 8, 2, None, &key),
            3 => striped(2000, 5, 1, None, &key),
            4 => striped(1001, 7, 3, None, &key),
            _ => Design::quadruples(whole(1000), &key),
        };
        let end = design.index_end();
        let some = numbers.iter().filter_map(|number| design.shards(number % end).next());
        let shards: HashMap<DesignIndex, Shard> = some.collect();
        for (index, shard) in &shards {
            prop_assert_eq!(design.index(shard), Some(*index));
            for (other_index, other) in &shards {
                prop_assert!(index == other_index || shard.overlap(other) <= design.guarantee().overlap);
            }
        }
    }

    #[test]
    fn balance_holds_at_random_prefixes(key: [u8; 16], count in 1usize..5_000, kind in 0..4) {
        let key = Key::from_bytes(key);
        let design = match kind {
            0 => striped(2048, 4, 2, None, &key),
            1 => Design::quadruples(whole(256), &key),
            2 => striped(800, 8, 2, None, &key),
            _ => striped(150, 3, 1, None, &key),
        };
        let mut loads = HashMap::new();
        for (_, shard) in design.shards(0).take(count) {
            shard.iter().for_each(|slot| *loads.entry(*slot).or_default() += 1);
        }
        if let Some(promised) = design.guarantee().spread {
            prop_assert!(spread(&design, &loads) <= promised);
        }
    }
}
