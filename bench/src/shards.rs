//! `bench shuffle`: what shards cost by construction, and what by search.
//!
//! Times are CPU times of one thread, medians of rounds in which everything
//! that is compared takes its turn. Results go through `black_box`, and so does
//! the design at every call: the compiler must not know which one it is.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::Args;
use shuffle::{
    Admission, Allocator, Columns, Design, DesignIndex, Fleet, Key, STRIPE, Shard, Slot, blast,
    compare,
};

use crate::against_peers::write_file;
use crate::interrupt;
use crate::machine::{Machine, date};
use crate::measure::thread_nanos;
use crate::placing;
use crate::shards_plot;
use crate::shards_report::{
    Allocation, BlastTime, DesignTimes, FORMAT, FORMAT_VERSION, FloodPoint, ShuffleReport, bars,
    render,
};
use crate::stats::{Random, Spread};

/// Shards that are asked for in one round: too many for the branch predictor
/// to know them by heart.
const ASKED: usize = 1 << 16;
/// The most tenants that are flooded for the curve of the blast radius.
const FLOODED_MAX: u32 = 100;
/// Workers that fail at the same time, for the exact count.
const FAILED: [usize; 3] = [4, 64, 1024];
/// Every so manieth tenant leaves.
const LEAVES: usize = 10;

#[derive(Debug, Args)]
pub struct ShuffleArgs {
    #[arg(long, default_value_t = 1_000_000)]
    tenants: u64,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seeds of the search on small stripes.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Where shuffle.json and shuffle.svg go.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
}

/// Measures everything, prints the tables and writes the results.
pub fn run(args: &ShuffleArgs) -> Result<()> {
    ensure!(args.tenants > 0 && args.rounds > 0 && args.seeds > 0, "nothing to measure");
    let designs = design_times(args.rounds)?;
    let allocation = allocation(args.tenants, args.rounds)?;
    let blast = blast_times(args.tenants, args.rounds)?;
    let report = ShuffleReport {
        format: FORMAT.to_owned(),
        version: FORMAT_VERSION,
        date: date(),
        machine: Machine::describe(),
        rounds: args.rounds,
        tenants: args.tenants,
        bars: bars(&designs),
        designs,
        allocation,
        blast,
        curves: placing::curves(args.tenants, args.rounds.min(3))?,
        saturation: placing::saturation(args.seeds)?,
        flood: flood(),
    };
    print!("{}", render(&report));
    write_file(&args.results, "shuffle.json", &serde_json::to_string_pretty(&report)?)?;
    write_file(&args.results, "shuffle.svg", &shards_plot::render(&report))
}

/// `count` stripes of `len` workers.
pub fn even_columns(count: usize, len: usize) -> Columns {
    columns(&vec![len; count])
}

/// Stripes of these sizes, whose workers are numbered on.
fn columns(sizes: &[usize]) -> Columns {
    let mut slots = (0..).map(Slot);
    Columns::new(sizes.iter().map(|&len| slots.by_ref().take(len).collect()).collect())
}

/// The design of the default fleet: 2048 workers in four stripes.
fn default_design() -> Result<Arc<Design>> {
    let columns = Fleet::numbered(2048, Some(4))?.columns(4, &[STRIPE])?;
    Ok(Arc::new(Design::striped(columns, 2, None, &Key::PUBLIC)))
}

/// Designs to be timed, and whether they have a bar to hold.
fn timed_designs() -> Result<Vec<(&'static str, Design, bool)>> {
    let striped =
        |sizes: &[usize], overlap| Design::striped(columns(sizes), overlap, None, &Key::PUBLIC);
    Ok(vec![
        ("4 × 512, overlap 2", Arc::unwrap_or_clone(default_design()?), true),
        ("2048, overlap 2", Design::quadruples(columns(&[2048]), &Key::PUBLIC), true),
        ("8 × 256, overlap 2", striped(&[256; 8], 2), false),
        ("4 × 500, overlap 1", striped(&[500; 4], 1), false),
        ("500/505/512/512, overlap 2", striped(&[500, 505, 512, 512], 2), false),
    ])
}

/// A direction of a design, asked many times; returns nanoseconds for each.
type Ask = fn(&Design, &[(DesignIndex, Shard)]) -> f64;

/// One after the other, and each as soon as the one before is known.
const ASKS: [Ask; 4] = [ask_shards, ask_indices, ask_shards_in_turn, ask_indices_in_turn];

fn design_times(rounds: usize) -> Result<Vec<DesignTimes>> {
    let designs = timed_designs()?;
    let asked: Vec<_> = designs.iter().map(|(_, design, _)| draw(design)).collect();
    let mut nanos = vec![[const { Vec::new() }; ASKS.len()]; designs.len()];
    // The first round warms the caches.
    for round in 0..=rounds {
        interrupt::check()?;
        for (((_, design, _), asked), nanos) in designs.iter().zip(&asked).zip(&mut nanos) {
            for (ask, nanos) in ASKS.iter().zip(nanos) {
                let measured = ask(design, asked);
                if round > 0 {
                    nanos.push(measured);
                }
            }
        }
    }
    let times = |((name, design, has_bar), nanos): (_, [Vec<f64>; 4])| {
        let [shard_ns, index_ns, shard_in_turn_ns, index_in_turn_ns] =
            nanos.map(|rounds| Spread::of(rounds).unwrap_or_default());
        let design: Design = design;
        DesignTimes {
            name: str::to_owned(name),
            construction: design.name().to_owned(),
            capacity: design.capacity() as u64,
            has_bar,
            shard_ns,
            index_ns,
            shard_in_turn_ns,
            index_in_turn_ns,
        }
    };
    Ok(designs.into_iter().zip(nanos).map(times).collect())
}

/// Pseudo-random shards of a design and their numbers.
fn draw(design: &Design) -> Vec<(DesignIndex, Shard)> {
    let mut random = Random::new(1);
    let any = || design.shards(random.below(design.index_end() as usize) as u64).next();
    std::iter::repeat_with(any).flatten().take(ASKED).collect()
}

fn per_ask(started: u64) -> f64 {
    (thread_nanos() - started) as f64 / ASKED as f64
}

fn ask_shards(design: &Design, asked: &[(DesignIndex, Shard)]) -> f64 {
    let indices: Vec<DesignIndex> = asked.iter().map(|(index, _)| *index).collect();
    let started = thread_nanos();
    for index in &indices {
        black_box(&black_box(design).shard(*index));
    }
    per_ask(started)
}

fn ask_indices(design: &Design, asked: &[(DesignIndex, Shard)]) -> f64 {
    let started = thread_nanos();
    for (_, shard) in asked {
        black_box(&black_box(design).index(shard));
    }
    per_ask(started)
}

/// Which one is asked for next depends on the answer, as far as the processor
/// can tell: it cannot work on two at the same time.
fn ask_shards_in_turn(design: &Design, asked: &[(DesignIndex, Shard)]) -> f64 {
    let indices: Vec<DesignIndex> = asked.iter().map(|(index, _)| *index).collect();
    let nothing = black_box(0);
    let mut offset = 0;
    let started = thread_nanos();
    for at in 0..indices.len() {
        let shard = black_box(design).shard(indices[at + offset]);
        offset = shard.map_or(0, |shard| shard.iter().map(|slot| slot.0 as usize).sum()) & nothing;
    }
    black_box(offset);
    per_ask(started)
}

fn ask_indices_in_turn(design: &Design, asked: &[(DesignIndex, Shard)]) -> f64 {
    let nothing = black_box(0);
    let mut offset = 0;
    let started = thread_nanos();
    for at in 0..asked.len() {
        let index = black_box(design).index(&asked[at + offset].1);
        offset = index.map_or(0, |index| index.get() as usize) & nothing;
    }
    black_box(offset);
    per_ask(started)
}

/// Takes shards for all tenants, gives every tenth back, and takes them again.
fn allocation(tenants: u64, rounds: usize) -> Result<Allocation> {
    let design = default_design()?;
    let admission = Admission::everyone();
    let mut nanos = [const { Vec::new() }; 3];
    let (mut fresh_octets, mut released_octets) = (0, 0);
    for _ in 0..rounds {
        interrupt::check()?;
        let mut allocator = Allocator::new(design.clone());
        let mut taken = Vec::with_capacity(tenants as usize);
        nanos[0].push(each(tenants, |_| {
            taken.extend(allocator.allocate(&admission).map(|(index, _)| index));
        }));
        ensure!(taken.len() as u64 == tenants, "no shards for {tenants} tenants");
        fresh_octets = allocator.to_bytes().len();
        let leaving = leaving(&taken);
        nanos[1].push(each(leaving.len() as u64, |at| {
            black_box(allocator.release(leaving[at as usize]));
        }));
        released_octets = allocator.to_bytes().len();
        nanos[2].push(each(leaving.len() as u64, |_| {
            black_box(allocator.allocate(&admission));
        }));
        ensure!(allocator.used() == tenants, "some tenants got no shard again");
    }
    let [allocate_ns, release_ns, reuse_ns] =
        nanos.map(|rounds| Spread::of(rounds).unwrap_or_default());
    Ok(Allocation { allocate_ns, release_ns, reuse_ns, fresh_octets, released_octets })
}

/// Every tenth, in random order.
fn leaving(taken: &[DesignIndex]) -> Vec<DesignIndex> {
    let mut leaving: Vec<DesignIndex> = taken.iter().copied().step_by(LEAVES).collect();
    let mut random = Random::new(2);
    for last in (1..leaving.len()).rev() {
        leaving.swap(last, random.below(last + 1));
    }
    leaving
}

/// Nanoseconds that `act` takes on average.
fn each(count: u64, mut act: impl FnMut(u64)) -> f64 {
    let started = thread_nanos();
    (0..count).for_each(&mut act);
    (thread_nanos() - started) as f64 / count as f64
}

fn blast_times(tenants: u64, rounds: usize) -> Result<Vec<BlastTime>> {
    let design = default_design()?;
    let first = || design.shards(0).map(|(_, shard)| shard).take(tenants as usize);
    let kept: Vec<Shard> = first().collect();
    let flooded = kept.first().context("no tenants")?.to_vec();
    let mut times = vec![
        blast_time("given shards", tenants, flooded.len(), rounds, || {
            Ok(blast::of_shards(&kept, black_box(&flooded)))
        })?,
        blast_time("shards from their numbers", tenants, flooded.len(), rounds, || {
            Ok(blast::of_shards(first(), black_box(&flooded)))
        })?,
    ];
    let mut random = Random::new(3);
    for count in FAILED {
        interrupt::check()?;
        let failed: Vec<Slot> = match count {
            4 => flooded.clone(),
            _ => random_slots(&mut random, design.columns().slot_count(), count),
        };
        let capacity = design.capacity() as u64;
        times.push(blast_time("all shards of the design", capacity, count, rounds, || {
            Ok(blast::of_design(&design, black_box(&failed))?)
        })?);
    }
    Ok(times)
}

fn blast_time(
    name: &str,
    shards: u64,
    failed: usize,
    rounds: usize,
    mut count: impl FnMut() -> Result<blast::Blast>,
) -> Result<BlastTime> {
    let mut millis = Vec::new();
    for _ in 0..rounds {
        let started = thread_nanos();
        let blast = count()?;
        millis.push((thread_nanos() - started) as f64 / 1e6);
        ensure!(blast.tenants() == u128::from(shards), "not all shards were counted");
    }
    let millis = Spread::of(millis).context("no rounds")?;
    Ok(BlastTime { name: name.to_owned(), shards, failed, millis })
}

fn random_slots(random: &mut Random, of: usize, count: usize) -> Vec<Slot> {
    let mut slots: Vec<Slot> = (0..of as u32).map(Slot).collect();
    for at in 0..count {
        slots.swap(at, at + random.below(of - at));
    }
    slots.truncate(count);
    slots
}

/// What flooded tenants take with them under each scheme.
fn flood() -> Vec<FloodPoint> {
    let design = Design::striped(even_columns(4, 512), 2, None, &Key::PUBLIC);
    let point = |point: compare::Point| FloodPoint {
        flooded: point.count,
        none: point.none.lost_all,
        plain: point.plain.lost_all,
        shuffled: point.shuffled.lost_all,
    };
    compare::flood(&design, FLOODED_MAX, 1).points.into_iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_shards_belong_to_their_numbers() {
        for (name, design, _) in timed_designs().unwrap() {
            let drawn = draw(&design);
            assert_eq!(drawn.len(), ASKED);
            for (index, shard) in drawn.iter().step_by(997) {
                assert_eq!(design.shard(*index), Some(*shard), "{name}");
                assert_eq!(design.index(shard), Some(*index), "{name}");
            }
        }
    }

    #[test]
    fn constructions_and_capacities_are_those_to_be_timed() {
        let designs = timed_designs().unwrap();
        let known: Vec<_> = designs.iter().map(|(_, d, _)| (d.name(), d.capacity())).collect();
        assert_eq!(
            known,
            [
                ("striped-sum", 134_217_728),
                ("boolean-quadruple", 357_389_824),
                ("striped-polynomial", 16_777_216),
                ("striped-polynomial", 250_000),
                ("striped-sum", 129_280_000),
            ]
        );
    }

    #[test]
    fn allocation_and_blast_are_measured() {
        let allocation = allocation(1000, 1).unwrap();
        assert!(allocation.released_octets > allocation.fresh_octets);
        assert_eq!(blast_times(1000, 1).unwrap().len(), 2 + FAILED.len());
        assert_eq!(flood().len(), FLOODED_MAX as usize);
    }
}
