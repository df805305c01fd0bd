//! A fifth node joins a warm cluster of four: what of the load is asked upstream meanwhile.
//!
//! The cluster knows every name that is asked for, so each question upstream is one that the
//! join costs. The load is paced, and the newcomer is asked as soon as its port is open.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::failures::saturated;
use super::names::Names;
use super::report::{JoinPoint, Joining};
use super::rounds::REPLICAS;
use super::servers::{Cluster, Setup, Stub};
use super::{Bench, fill, paced, seconds};
use crate::interrupt;
use crate::load::{self, Load, Outcome, Pressure, Refusal};
use crate::process::LOAD_CORE;

const NODES: usize = 5;
const TAG: &str = "joining";
/// Of what the four answer when they are saturated: five have no more CPU than four here.
const RATE_SHARE: f64 = 0.4;
/// Between two looks at the stub's count.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Times the time between two events: before the join, and from then on.
const BEFORE: f64 = 1.0;
const AFTER: f64 = 3.0;

/// The questions that had reached the stub by a moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    upstream: u64,
}

pub fn measure(bench: &Bench, stub: &Stub) -> Result<Joining> {
    let setup = Setup::pharos(NODES);
    let mut cluster =
        Cluster::start_some(setup, &bench.programs, stub.listen, REPLICAS, NODES - 1)?;
    fill(&cluster, TAG, bench.names, 2)?;
    let names = Names::uniform(TAG, bench.names);
    let rate = ((RATE_SHARE * saturated(&cluster, &names)?) as u32).max(1);
    let addresses = cluster.all_addresses();
    let pressure = Pressure { refusal: Refusal::AskAnother, ..paced(NODES, rate) };
    let unit = bench.args.event_seconds;
    let started = Instant::now();
    let (outcome, looks) = thread::scope(|scope| {
        let load = scope.spawn(|| {
            load::pin_to(LOAD_CORE)?;
            Load::new(&addresses, &names, pressure)?.run(seconds(unit * (BEFORE + AFTER)))
        });
        let joins_at = Duration::from_secs_f64(unit * BEFORE);
        let looks = look(&mut cluster, stub, started, joins_at, || load.is_finished());
        (load.join(), looks)
    });
    let Ok(outcome) = outcome else { bail!("the load thread panicked") };
    let (joined, looks) = looks?;
    Ok(summarise(setup, rate, bench.names, joined, &looks, outcome?))
}

/// Starts the last node when it is time; returns when that was, and the stub's counts.
fn look(
    cluster: &mut Cluster,
    stub: &Stub,
    started: Instant,
    joins_at: Duration,
    ended: impl Fn() -> bool,
) -> Result<(Duration, Vec<Look>)> {
    let mut looks = Vec::new();
    let mut joined = None;
    let mut next = started;
    while !ended() {
        interrupt::check()?;
        looks.push(Look { at: started.elapsed(), upstream: stub.total()? });
        if joined.is_none() && started.elapsed() >= joins_at {
            eprintln!("joining: node {NODES} starts");
            cluster.restart(NODES - 1)?;
            joined = Some(started.elapsed());
        }
        next += LOOK_EVERY;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok((joined.unwrap_or(joins_at), looks))
}

fn summarise(
    setup: Setup,
    rate: u32,
    names: usize,
    joined: Duration,
    looks: &[Look],
    outcome: Outcome,
) -> Joining {
    let point = |pair: &[Look]| {
        let (from, to) = (pair[0], pair[1]);
        let asked = f64::from(rate) * (to.at - from.at).as_secs_f64();
        JoinPoint {
            at_secs: to.at.as_secs_f64(),
            missed_percent: 100.0 * (to.upstream - from.upstream) as f64 / asked,
        }
    };
    let upstream_since = |at: Duration| {
        let before = looks.iter().rfind(|look| look.at <= at).map_or(0, |look| look.upstream);
        looks.last().map_or(0, |look| look.upstream - before)
    };
    Joining {
        setup,
        rate,
        names,
        joined_secs: joined.as_secs_f64(),
        points: looks.windows(2).map(point).collect(),
        missed: upstream_since(joined),
        answers: outcome.answers,
        failed: outcome.failed,
        lost: outcome.lost,
        wrong: outcome.wrong,
        first_wrong: outcome.first_wrong.clone(),
        latencies: outcome.latencies.latencies(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_counted_by_the_questions_asked_meanwhile() {
        let look = |millis, upstream| Look { at: Duration::from_millis(millis), upstream };
        let looks = [look(0, 50), look(100, 50), look(200, 55), look(400, 55)];
        let joined = Duration::from_millis(100);
        let joining = summarise(Setup::pharos(5), 1000, 10, joined, &looks, Outcome::default());
        let found: Vec<f64> = joining.points.iter().map(|point| point.missed_percent).collect();
        assert_eq!(found, [0.0, 5.0, 0.0]);
        assert_eq!((joining.missed, joining.missed_percent_max()), (5, 5.0));
    }
}
