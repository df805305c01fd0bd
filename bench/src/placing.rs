//! Shards placed one after the other, by the allocator and by a search: how
//! long each takes, what must be kept, and where it ends.

use std::sync::Arc;

use anyhow::Result;
use shuffle::{Admission, Allocator, Design, Key};

use crate::interrupt;
use crate::measure::thread_nanos;
use crate::search_sharder::SearchSharder;
use crate::shards::even_columns;
use crate::shards_report::{Curve, CurvePoint, Saturation, Scheme};
use crate::stats::Spread;

const SIZE: usize = 4;
const OVERLAP: usize = 2;
/// Stripes of the curves: of the default fleet, and of one that gets full.
const STRIPE_LENS: [usize; 2] = [512, 64];
/// Stripes that are small enough to be filled many times.
const SMALL_LENS: [usize; 3] = [8, 16, 32];
/// Failed attempts in a row after which the search gives up.
const ATTEMPTS: [u32; 4] = [1, 10, 100, 1000];
const CURVE_ATTEMPTS: u32 = 100;
/// Where curves have their points.
const COUNTS: [u64; 11] =
    [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 150_000, 200_000, 500_000, 1_000_000];

/// Hands out one shard after the other.
trait Placer {
    /// Whether there was one.
    fn place(&mut self) -> bool;
    /// Octets that must be kept.
    fn state_octets(&self) -> usize;
    fn fragments(&self) -> usize;
}

struct ByConstruction {
    allocator: Allocator,
    admission: Admission,
}

impl ByConstruction {
    fn new(stripe_len: usize) -> Self {
        let columns = even_columns(SIZE, stripe_len);
        let design = Arc::new(Design::striped(columns, OVERLAP, None, &Key::PUBLIC));
        ByConstruction { allocator: Allocator::new(design), admission: Admission::everyone() }
    }
}

impl Placer for ByConstruction {
    fn place(&mut self) -> bool {
        std::hint::black_box(self.allocator.allocate(&self.admission)).is_some()
    }

    fn state_octets(&self) -> usize {
        self.allocator.to_bytes().len()
    }

    fn fragments(&self) -> usize {
        0
    }
}

impl Placer for SearchSharder {
    fn place(&mut self) -> bool {
        std::hint::black_box(SearchSharder::place(self)).is_some()
    }

    fn state_octets(&self) -> usize {
        self.table_bytes()
    }

    fn fragments(&self) -> usize {
        self.fragment_count()
    }
}

/// What was known when so many shards were placed.
struct Step {
    placed: u64,
    /// For all of them.
    nanos: u64,
    state_octets: usize,
    fragments: usize,
}

/// Places shards up to the largest of `counts`, or until there are no more.
fn steps(placer: &mut impl Placer, counts: &[u64]) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut placed, mut nanos) = (0, 0);
    for &count in counts {
        interrupt::check()?;
        let before = placed;
        let started = thread_nanos();
        while placed < count && placer.place() {
            placed += 1;
        }
        nanos += thread_nanos() - started;
        if placed > before {
            let (state_octets, fragments) = (placer.state_octets(), placer.fragments());
            steps.push(Step { placed, nanos, state_octets, fragments });
        }
        if placed < count {
            break;
        }
    }
    Ok(steps)
}

/// Both schemes on both fleets, taking turns.
pub fn curves(most: u64, rounds: usize) -> Result<Vec<Curve>> {
    let counts: Vec<u64> = COUNTS.iter().copied().filter(|&n| n < most).chain([most]).collect();
    let mut rounds_of = [const { Vec::new() }; 2 * STRIPE_LENS.len()];
    for _ in 0..rounds {
        for (pair, len) in rounds_of.chunks_exact_mut(2).zip(STRIPE_LENS) {
            // The same seed, so that all rounds end at the same place.
            let mut search = SearchSharder::new(SIZE, len, OVERLAP, CURVE_ATTEMPTS, 1);
            pair[0].push(steps(&mut search, &counts)?);
            pair[1].push(steps(&mut ByConstruction::new(len), &counts)?);
        }
    }
    let kinds =
        STRIPE_LENS.iter().flat_map(|&len| [(Scheme::Search, len), (Scheme::Construction, len)]);
    let curve = |((scheme, stripe_len), rounds): ((Scheme, usize), Vec<Vec<Step>>)| Curve {
        scheme,
        stripe_len,
        points: points(&rounds),
    };
    Ok(kinds.zip(rounds_of).map(curve).collect())
}

/// Medians over the rounds, which have the same steps.
fn points(rounds: &[Vec<Step>]) -> Vec<CurvePoint> {
    let before = |round: &[Step], at: usize| match at.checked_sub(1) {
        Some(at) => (round[at].placed, round[at].nanos),
        None => (0, 0),
    };
    let lately = |round: &Vec<Step>, at: usize| {
        let (placed, nanos) = before(round, at);
        (round[at].nanos - nanos) as f64 / (round[at].placed - placed) as f64
    };
    let point = |(at, step): (usize, &Step)| CurvePoint {
        placed: step.placed,
        nanos_lately: Spread::of(rounds.iter().map(|round| lately(round, at))).unwrap_or_default(),
        nanos_so_far: Spread::of(
            rounds.iter().map(|round| round[at].nanos as f64 / round[at].placed as f64),
        )
        .unwrap_or_default(),
        state_octets: step.state_octets,
        fragments: step.fragments,
    };
    rounds.first().map_or(&[][..], |round| round).iter().enumerate().map(point).collect()
}

/// Fills small stripes until nothing more is found.
pub fn saturation(seeds: u64) -> Result<Vec<Saturation>> {
    let mut results = Vec::new();
    for stripe_len in SMALL_LENS {
        let bound = (stripe_len as u64).pow(OVERLAP as u32 + 1);
        let share = |placed: u64| placed as f64 / bound as f64;
        for attempts in ATTEMPTS {
            let (mut shares, mut exhausted) = (Vec::new(), 0);
            for seed in 0..seeds {
                interrupt::check()?;
                let mut search = SearchSharder::new(SIZE, stripe_len, OVERLAP, attempts, seed);
                shares.push(share(fill(&mut search)));
                exhausted += u64::from(search.is_exhausted());
            }
            let share = Spread::of(shares).unwrap_or_default();
            results.push(Saturation {
                scheme: Scheme::Search,
                stripe_len,
                bound,
                attempts,
                share,
                seeds,
                exhausted,
            });
        }
        let placed = fill(&mut ByConstruction::new(stripe_len));
        results.push(Saturation {
            scheme: Scheme::Construction,
            stripe_len,
            bound,
            attempts: 0,
            share: Spread::of([share(placed)]).unwrap_or_default(),
            seeds: 1,
            exhausted: 1,
        });
    }
    Ok(results)
}

fn fill(placer: &mut impl Placer) -> u64 {
    std::iter::from_fn(|| placer.place().then_some(())).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn construction_fills_stripes_and_search_does_not() {
        let results = saturation(2).unwrap();
        for result in &results {
            match result.scheme {
                Scheme::Construction => assert_eq!(result.share.median, 1.0),
                Scheme::Search => assert!(result.share.max < 1.0),
            }
        }
        assert_eq!(results.len(), SMALL_LENS.len() * (ATTEMPTS.len() + 1));
    }

    #[test]
    fn curves_reach_what_was_asked_for() {
        let curves = curves(2_500, 2).unwrap();
        for curve in &curves {
            let placed: Vec<u64> = curve.points.iter().map(|point| point.placed).collect();
            assert_eq!(placed, [1_000, 2_000, 2_500]);
        }
        assert_eq!(curves[0].points[2].fragments, 4 * 2_500);
        assert!(curves[1].points[2].state_octets < 64);
    }

    #[test]
    fn steps_end_where_shards_do() {
        let steps = steps(&mut ByConstruction::new(4), &[10, 50, 100, 200]).unwrap();
        let placed: Vec<u64> = steps.iter().map(|step| step.placed).collect();
        assert_eq!(placed, [10, 50, 64]);
    }
}
