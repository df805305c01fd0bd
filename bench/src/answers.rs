//! The answer path without sockets: CPU time of one answer in this process.
//!
//! What a server spends in its own code is a twentieth of what the kernel
//! spends on a packet, too little to be read from /proc with any precision.
//! Here the same questions are answered from memory to memory, in groups, as
//! the UDP threads do it, and the thread's own clock is read.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use authority::respond::{Arrival, Context, Scratch, Settings, Transport, approach};
use authority::zonefile::{self, NoIncludes};
use authority::{Catalog, Change, Compiler, NameHasher, Placement, Problems, RecordSet};
use clap::{Args, ValueEnum as _};

use crate::data::{self, Scenario};
use crate::interrupt;
use crate::measure::thread_nanos;
use crate::progress::Progress;
use crate::queries::{QuerySet, check_answer};
use crate::stats::Spread;

/// Questions asked in one round.
const QUESTIONS: usize = 200_000;
/// Questions between two looks at the clock, as many as a batch of the server.
const BATCH_LEN: usize = 64;
/// Room for the largest answer over UDP.
const ANSWER_LEN_MAX: usize = 1232;

#[derive(Debug, Args)]
pub struct AnswersArgs {
    /// Only these scenarios.
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<Scenario>,
    /// Zones of the scenario `million`.
    #[arg(long, default_value_t = 1_000_000)]
    zones: usize,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Questions read before the first of them is answered.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    group: u16,
    /// Where generated zones are kept.
    #[arg(long, default_value = "bench/work")]
    out: PathBuf,
}

/// Answers every scenario and prints what an answer costs.
pub fn run(args: &AnswersArgs) -> Result<()> {
    let scenarios = match &args.scenarios[..] {
        [] => Scenario::value_variants(),
        chosen => chosen,
    };
    println!("{:<12} {:>10} {:>10} {:>10}", "scenario", "median ns", "min ns", "max ns");
    for &scenario in scenarios {
        let hasher = data::hasher();
        let zones = match scenario {
            Scenario::Million => data::many_names(&args.out, args.zones),
            _ => data::small_zones(&args.out)?,
        };
        let texts = |index: usize| match scenario {
            Scenario::Million => Ok(data::zone_text(index, 1, data::www_address(index))),
            _ => fs::read_to_string(zones.file(&zones.names[index])),
        };
        let mut progress = Progress::new("compiling zones", zones.names.len());
        let mut compiler = Compiler::new(hasher);
        let mut changes = Vec::with_capacity(zones.names.len());
        for index in 0..zones.names.len() {
            changes.push(Change::Put(compile(&mut compiler, &texts(index)?)?));
            if index % 1000 == 0 {
                interrupt::check()?;
                progress.show(index);
            }
        }
        progress.finish();
        let catalog = Catalog::default().with(changes);
        let queries = scenario.queries(&zones, QUESTIONS);
        let mut rounds = Vec::new();
        for round in 0..args.rounds.max(1) + 1 {
            interrupt::check()?;
            let nanos = answer_all(&catalog, &hasher, &queries, args.group as usize)?;
            // The first round warms the caches.
            if round > 0 {
                rounds.push(nanos);
            }
        }
        let spread = Spread::of(rounds).context("no rounds")?;
        println!(
            "{:<12} {:>10.0} {:>10.0} {:>10.0}",
            scenario.name(),
            spread.median,
            spread.min,
            spread.max
        );
    }
    Ok(())
}

fn compile(compiler: &mut Compiler, text: &str) -> Result<authority::Image> {
    let mut records = RecordSet::default();
    let mut problems = Problems::new("bench");
    zonefile::read(text.as_bytes(), None, &mut NoIncludes, &mut records, &mut problems);
    compiler
        .compile(&mut records, &Placement::Everywhere, &mut problems)
        .with_context(|| problems.to_string())
}

/// Answers all questions once; returns nanoseconds of this thread per answer.
fn answer_all(
    catalog: &Catalog,
    hasher: &NameHasher,
    queries: &QuerySet,
    group: usize,
) -> Result<f64> {
    let settings = Settings::default();
    let context = Context { catalog, hasher, settings: &settings, now_secs: 0 };
    let arrival = Arrival::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Transport::Udp);
    let mut scratches = vec![Scratch::default(); group];
    let mut outs = vec![[0; ANSWER_LEN_MAX]; BATCH_LEN];
    let mut lens = [0; BATCH_LEN];
    let mut nanos = 0;
    for start in (0..queries.len()).step_by(BATCH_LEN) {
        let batch: Vec<_> =
            (start..queries.len().min(start + BATCH_LEN)).map(|index| queries.get(index)).collect();
        let started = thread_nanos();
        for ((requests, outs), lens) in
            batch.chunks(group).zip(outs.chunks_mut(group)).zip(lens.chunks_mut(group))
        {
            for ((request, _), scratch) in requests.iter().zip(&mut scratches) {
                scratch.read(hasher, request);
            }
            if group > 1 {
                approach(catalog, &scratches[..requests.len()]);
            }
            for (((request, _), scratch), (out, len)) in
                requests.iter().zip(&mut scratches).zip(outs.iter_mut().zip(lens))
            {
                *len = scratch.answer(&context, request, arrival, out).len;
            }
        }
        nanos += thread_nanos() - started;
        for (((request, expect), out), len) in batch.iter().zip(&outs).zip(lens) {
            let checked = check_answer(request, &out[..len], expect);
            ensure!(checked.is_ok(), "wrong answer to {request:02x?}: {checked:?}");
        }
    }
    Ok(nanos as f64 / queries.len() as f64)
}
