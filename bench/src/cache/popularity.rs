//! The paper's figure 2a again: latency by how much of the load the popular names have.
//!
//! 2,000 names that the cache has never seen, 10,000 requests: 100 − p % of the names make up
//! p % of the requests (section 5.1). The higher p, the more requests find their answer cached.

use anyhow::{Context, Result, bail};

use super::names::Names;
use super::report::PopularityPoint;
use super::rounds::REPLICAS;
use super::servers::{Kind, Setup, Stub};
use super::{Bench, paced};
use crate::load::{Histogram, Load, Until};

const NAMES: usize = 2_000;
const REQUESTS: usize = 10_000;
const PERCENTS: [u8; 7] = [50, 60, 70, 80, 90, 95, 99];
/// Requests a second: the paper's clients ask one thing at a time, so nobody waits in line.
const RATE: u32 = 5_000;
const ROUNDS_MAX: usize = 3;
/// The largest cluster that is compared.
const NODES_MAX: usize = 4;

/// Every cache at every percentage, in interleaved rounds.
pub fn measure(bench: &Bench, stub: &Stub) -> Result<Vec<PopularityPoint>> {
    let mut clusters = Vec::new();
    for setup in compared(&bench.setups) {
        clusters.push(bench.start(setup, stub, REPLICAS)?);
    }
    let mut sums = vec![(Histogram::default(), 0, 0); clusters.len() * PERCENTS.len()];
    let rounds = bench.args.rounds.min(ROUNDS_MAX);
    for round in 1..=rounds {
        for (place, percent) in PERCENTS.into_iter().enumerate() {
            eprintln!("popularity, round {round} of {rounds}: {percent} %");
            let tag = format!("p{percent}r{round}");
            let names = Names::popular(&tag, NAMES, percent, REQUESTS);
            for (index, cluster) in clusters.iter().enumerate() {
                let setup = cluster.setup;
                let upstream = stub.total()?;
                let pressure = paced(setup.nodes, RATE);
                let mut load = Load::new(&cluster.addresses(), &names, pressure)?;
                let outcome = load.run(Until::Asked(REQUESTS as u64));
                let outcome = outcome.with_context(|| format!("popularity: {setup}"))?;
                if let Some(complaint) = outcome.complaint() {
                    bail!("popularity: {setup}: {complaint}{}", cluster.log_tail());
                }
                let sum = &mut sums[index * PERCENTS.len() + place];
                sum.0.merge(&outcome.latencies);
                sum.1 += outcome.lost;
                sum.2 += stub.total()? - upstream;
            }
        }
    }
    let keys = clusters.iter().flat_map(|cluster| PERCENTS.map(|percent| (cluster.setup, percent)));
    let points = keys.zip(sums).map(|((setup, percent), (histogram, lost, upstream))| {
        let latencies = histogram.latencies();
        PopularityPoint { setup, percent, latencies, lost, upstream }
    });
    Ok(points.collect())
}

/// The peers, Pharos alone, and its largest cluster.
fn compared(setups: &[Setup]) -> Vec<Setup> {
    let is_small = |setup: &Setup| setup.is_standard_pharos() && setup.nodes <= NODES_MAX;
    let largest = setups.iter().copied().filter(is_small).max_by_key(|setup| setup.nodes);
    let is_compared =
        |it: &Setup| it.kind != Kind::Floor && (it.nodes == 1 || Some(*it) == largest);
    setups.iter().copied().filter(is_compared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_and_four_stand_for_pharos() {
        let all: Vec<Setup> =
            [Setup::alone(Kind::Unbound)].into_iter().chain((1..=5).map(Setup::pharos)).collect();
        assert_eq!(
            compared(&all),
            [Setup::alone(Kind::Unbound), Setup::pharos(1), Setup::pharos(4)]
        );
        assert_eq!(compared(&all[..2]), all[..2]);
    }
}
