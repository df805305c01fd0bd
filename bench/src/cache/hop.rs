//! What the way to another node adds to the time of an answer.
//!
//! One node of a cluster is asked, now for names that it has in its small cache, now for names
//! that mostly another node has. The two take turns of half a second, so that a machine that is
//! slow for a while is slow for both.

use anyhow::{Context, Result, bail};

use super::names::Names;
use super::report::{Hop, REMOTE_NODES};
use super::servers::{Cluster, Setup, Stub};
use super::{Bench, fill, paced, quiet, seconds};
use crate::load::{Histogram, Load, Pressure};

const NEAR: &str = "near";
const NEAR_NAMES: usize = 1_000;
const FAR: &str = "far";
/// Each entry has one owner: three of four questions for far names go to another node.
const REPLICAS: usize = 1;
/// Questions a second: so few that nobody waits in line.
const RATE: u32 = 5_000;
const TURN_SECS: f64 = 0.5;
/// Turns of each in a round.
const TURNS: usize = 4;
/// Times that each near name is asked for at the start, so that it is kept.
const NEAR_PASSES: usize = 4;

pub fn measure(bench: &Bench, stub: &Stub) -> Result<Hop> {
    let setup = Setup::pharos(REMOTE_NODES);
    let cluster = bench.start(setup, stub, REPLICAS)?;
    // Twice: a question lost the first time is asked again.
    fill(&cluster, FAR, bench.names, 2)?;
    fill(&cluster, NEAR, NEAR_NAMES, NEAR_PASSES * REMOTE_NODES)?;
    let near = Names::uniform(NEAR, NEAR_NAMES);
    let far = Names::uniform(FAR, bench.names);
    let (mut near_seen, mut far_seen) = (Histogram::default(), Histogram::default());
    let turns = bench.args.rounds * TURNS;
    for turn in 1..=turns {
        eprintln!("hop, turn {turn} of {turns}");
        near_seen.merge(&ask(&cluster, &near)?);
        far_seen.merge(&ask(&cluster, &far)?);
    }
    Ok(Hop { setup, rate: RATE, near: near_seen.latencies(), far: far_seen.latencies() })
}

/// The latencies of a turn, while the host stole no time.
fn ask(cluster: &Cluster, names: &Names) -> Result<Histogram> {
    let first = &cluster.addresses()[..1];
    let pressure = Pressure { spans: true, ..paced(first.len(), RATE) };
    let mut load = Load::new(first, names, pressure)?;
    let (outcome, stolen) = quiet::watch(|| load.run(seconds(TURN_SECS)))?;
    if let Some(complaint) = outcome.complaint() {
        bail!("hop: {complaint}{}", cluster.log_tail());
    }
    let (latencies, _) = quiet::latencies(&outcome.spans, &stolen);
    (latencies.count() > 0).then_some(latencies).context("hop: no answer at all")
}
