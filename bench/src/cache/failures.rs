//! The paper's figure 2c again: throughput over time while two of four nodes are killed, one
//! after the other, and come back in the same order.
//!
//! The load is paced below what the cluster can do, so that questions come whatever the nodes
//! do. A client that a dead node's port refuses asks another node at once; its latency goes on
//! meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::names::Names;
use super::report::{Event, Failures, Phase, SpanResult};
use super::rounds::REPLICAS;
use super::servers::{Cluster, Setup, Stub};
use super::{Bench, fill, paced, seconds, sockets};
use crate::interrupt;
use crate::load::{self, Histogram, Idle, Load, Outcome, Pressure, Refusal, SPAN, Span};
use crate::process::LOAD_CORE;

const NODES: usize = 4;
const TAG: &str = "failures";
/// Of what the cluster answers when it is saturated.
const RATE_SHARE: f64 = 0.6;
const SATURATED_SECS: f64 = 1.0;

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Kill(usize),
    Restart(usize),
}

const CHANGES: [Change; 4] =
    [Change::Kill(2), Change::Kill(3), Change::Restart(2), Change::Restart(3)];

impl Change {
    fn make(self, cluster: &mut Cluster) -> Result<()> {
        match self {
            Change::Kill(node) => cluster.kill(node),
            Change::Restart(node) => cluster.restart(node),
        }
    }

    fn what(self) -> String {
        match self {
            Change::Kill(node) => format!("node {} killed", node + 1),
            Change::Restart(node) => format!("node {} back", node + 1),
        }
    }
}

pub fn measure(bench: &Bench, stub: &Stub) -> Result<Failures> {
    let setup = Setup::pharos(NODES);
    let mut cluster = bench.start(setup, stub, REPLICAS)?;
    fill(&cluster, TAG, bench.names, 2)?;
    let names = Names::uniform(TAG, bench.names);
    let rate = (RATE_SHARE * saturated(&cluster, &names)?) as u32;
    let pause = Duration::from_secs_f64(bench.args.event_seconds);
    let addresses = cluster.addresses();
    let pressure =
        Pressure { refusal: Refusal::AskAnother, spans: true, ..paced(NODES, rate.max(1)) };
    let total = bench.args.event_seconds * (CHANGES.len() + 1) as f64;
    let started = Instant::now();
    let (outcome, events) = thread::scope(|scope| {
        let load = scope.spawn(|| {
            load::pin_to(LOAD_CORE)?;
            Load::new(&addresses, &names, pressure)?.run(seconds(total))
        });
        let events = make_changes(&mut cluster, started, pause, || load.is_finished());
        (load.join(), events)
    });
    let Ok(outcome) = outcome else { bail!("the load thread panicked") };
    Ok(summarise(setup, rate, outcome?, &events?, total))
}

/// Answers a second in a closed loop.
pub fn saturated(cluster: &Cluster, names: &Names) -> Result<f64> {
    let addresses = cluster.addresses();
    let sockets = sockets(addresses.len());
    let pressure = Pressure { sockets, idle: Idle::Wait, ..Pressure::default() };
    let outcome = Load::new(&addresses, names, pressure)?.run(seconds(SATURATED_SECS))?;
    if let Some(complaint) = outcome.complaint() {
        bail!("{}, before anything happens: {complaint}{}", cluster.setup, cluster.log_tail());
    }
    Ok(outcome.answers_per_second())
}

fn make_changes(
    cluster: &mut Cluster,
    started: Instant,
    pause: Duration,
    ended: impl Fn() -> bool,
) -> Result<Vec<(Change, Duration)>> {
    let mut made = Vec::new();
    for change in CHANGES {
        let due = started + pause * (made.len() as u32 + 1);
        while Instant::now() < due {
            interrupt::check()?;
            // The load says itself why it ended.
            if ended() {
                return Ok(made);
            }
            let left = due.saturating_duration_since(Instant::now());
            thread::sleep(left.min(Duration::from_millis(50)));
        }
        eprintln!("failures: {}", change.what());
        change.make(cluster)?;
        made.push((change, started.elapsed()));
    }
    Ok(made)
}

fn summarise(
    setup: Setup,
    rate: u32,
    outcome: Outcome,
    events: &[(Change, Duration)],
    total_secs: f64,
) -> Failures {
    let span = |(index, span): (usize, &Span)| {
        let latencies = span.latencies.latencies();
        SpanResult {
            at_secs: (SPAN * index as u32).as_secs_f64(),
            answers_per_second: span.latencies.count() as f64 / SPAN.as_secs_f64(),
            failed: span.failed,
            lost: span.lost,
            p99_us: latencies.p99_us,
            max_us: latencies.max_us,
        }
    };
    let listed = |(change, at): &(Change, Duration)| Event {
        at_secs: at.as_secs_f64(),
        what: change.what(),
    };
    // While the last answers are waited for nothing is asked.
    let asking = (total_secs / SPAN.as_secs_f64()) as usize;
    Failures {
        setup,
        rate,
        events: events.iter().map(listed).collect(),
        spans: outcome.spans.iter().enumerate().take(asking).map(span).collect(),
        phases: phases(&outcome.spans, events),
        wrong: outcome.wrong,
        first_wrong: outcome.first_wrong,
        refused: outcome.refused,
        silence_ms_max: outcome.silence_max.as_secs_f64() * 1e3,
        load_late_ms_max: outcome.late_max.as_secs_f64() * 1e3,
    }
}

/// The run in parts, each from one event to the next.
fn phases(spans: &[Span], events: &[(Change, Duration)]) -> Vec<Phase> {
    let index = |at: &Duration| (at.as_nanos() / SPAN.as_nanos()) as usize;
    let starts: Vec<usize> =
        [0].into_iter().chain(events.iter().map(|(_, at)| index(at))).collect();
    let ends = starts.iter().skip(1).copied().chain([spans.len()]);
    let changes = [None].into_iter().chain(events.iter().map(|(change, _)| Some(*change)));
    let bounds = starts.iter().copied().zip(ends);
    bounds
        .zip(changes)
        .map(|((start, end), change)| {
            let start = start.min(spans.len());
            let part = &spans[start..end.clamp(start, spans.len())];
            let mut latencies = Histogram::default();
            part.iter().for_each(|span| latencies.merge(&span.latencies));
            Phase {
                name: change.map_or("all up".to_owned(), Change::what),
                killed: matches!(change, Some(Change::Kill(_))),
                failed: part.iter().map(|span| span.failed).sum(),
                lost: part.iter().map(|span| span.lost).sum(),
                latencies: latencies.latencies(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_go_from_event_to_event() {
        let mut spans = vec![Span::default(); 30];
        for (index, span) in spans.iter_mut().enumerate() {
            span.latencies.add(Duration::from_micros(1 + index as u64 / 10));
            span.lost = u64::from(index == 10);
        }
        let events = [
            (Change::Kill(2), Duration::from_millis(1000)),
            (Change::Restart(2), Duration::from_millis(2049)),
        ];
        let phases = phases(&spans, &events);
        let found: Vec<_> = phases
            .iter()
            .map(|it| (it.name.as_str(), it.killed, it.lost, it.latencies.answers))
            .collect();
        assert_eq!(
            found,
            [
                ("all up", false, 0, 10),
                ("node 3 killed", true, 1, 10),
                ("node 3 back", false, 0, 10)
            ]
        );
        assert_eq!(phases[2].latencies.max_us, 3.0);
    }

    #[test]
    fn a_run_that_ended_early_has_empty_phases() {
        let late = [(Change::Kill(2), Duration::from_secs(9))];
        let phases = phases(&[Span::default()], &late);
        assert_eq!(phases.len(), 2);
        assert_eq!(phases[1].latencies.answers, 0);
    }
}
