//! Instructions of the answer path, counted by callgrind.
//!
//! Counts do not depend on how busy the machine is, so they show a regression
//! that a noisy benchmark would hide. Each shape of query is answered `n` and
//! `2n` times in two runs of this program under valgrind; the difference is
//! what `n` answers cost, start-up excluded.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use authority::respond::{Arrival, Context, Scratch, Settings, Transport, respond};
use authority::zonefile::{self, NoIncludes};
use authority::{Catalog, Change, Compiler, NameHasher, Placement, Problems, RecordSet};
use clap::Args;

use crate::data;
use crate::queries::{EdnsMode, query_packet};

/// Answers per measured run: enough for a count per answer without remainder
/// effects, few enough for valgrind.
const ANSWERS: u64 = 2000;
/// More than this above the recorded count is a regression.
const GROWTH_MAX: f64 = 1.03;

/// The shapes: name, question, type, with DO.
const SHAPES: [(&str, &str, u16, EdnsMode); 6] = [
    ("positive", "www.example.org", 1, EdnsMode::None),
    ("nxdomain", "nonesuch12ab.example.org", 1, EdnsMode::None),
    ("wildcard", "anything12ab.apps.example.org", 1, EdnsMode::None),
    ("delegation", "host.cloud.example.org", 1, EdnsMode::None),
    ("signed positive", "www.signed.example", 1, EdnsMode::Dnssec),
    ("signed nxdomain", "nonesuch12ab.signed.example", 1, EdnsMode::Dnssec),
];

const ZONES: [&str; 2] = [
    include_str!("../../crates/pharos/samples/example.org.zone"),
    include_str!("../../crates/pharos/samples/signed.example.zone"),
];

#[derive(Debug, Args)]
pub struct InstructionsArgs {
    /// Write the counts as the new record instead of comparing with it.
    #[arg(long)]
    record: bool,
    /// The record.
    #[arg(long, default_value = "bench/results/instructions.json")]
    file: PathBuf,
}

/// Counts every shape and compares with the record.
pub fn run(args: &InstructionsArgs) -> Result<()> {
    let recorded: BTreeMap<String, u64> = match std::fs::read(&args.file) {
        Ok(text) => serde_json::from_slice(&text).context("the record is not readable")?,
        Err(_) if args.record => BTreeMap::new(),
        Err(error) => bail!("{}: {error}; make it with --record", args.file.display()),
    };
    let mut counts = BTreeMap::new();
    let mut grown = Vec::new();
    println!("{:<18} {:>12} {:>12} {:>7}", "shape", "instructions", "recorded", "ratio");
    for (name, ..) in SHAPES {
        let count = (collected(name, 2 * ANSWERS)? - collected(name, ANSWERS)?) / ANSWERS;
        let before = recorded.get(name).copied();
        let ratio = before.map(|before| count as f64 / before as f64);
        println!(
            "{name:<18} {count:>12} {:>12} {:>7}",
            before.map_or("-".into(), |before| before.to_string()),
            ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"))
        );
        if ratio.is_some_and(|ratio| ratio > GROWTH_MAX) {
            grown.push(name);
        }
        counts.insert(name, count);
    }
    if args.record {
        std::fs::write(&args.file, serde_json::to_string_pretty(&counts)? + "\n")?;
        println!("wrote {}", args.file.display());
    } else if !grown.is_empty() {
        bail!(
            "more than {:.0} % above the record: {}; if the growth is worth it, run with --record",
            (GROWTH_MAX - 1.0) * 100.0,
            grown.join(", ")
        );
    }
    Ok(())
}

/// Instructions of one run of this program that answers `count` times.
fn collected(shape: &str, count: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["answer-shape", shape, &count.to_string()])
        .output()
        .context("valgrind did not start; install Debian's package valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected : "));
    match line.and_then(|(_, number)| number.trim().parse().ok()) {
        Some(count) if output.status.success() => Ok(count),
        _ => bail!("valgrind failed: {text}"),
    }
}

/// Answers one shape `count` times: what valgrind watches.
pub fn answer(shape: &str, count: u64) -> Result<()> {
    let Some((_, name, qtype, edns)) = SHAPES.into_iter().find(|known| known.0 == shape) else {
        bail!("no shape `{shape}`");
    };
    let hasher = data::hasher();
    let catalog = catalog(hasher)?;
    let settings = Settings::default();
    let context = Context { catalog: &catalog, hasher: &hasher, settings: &settings, now_secs: 0 };
    let request = query_packet(name, qtype, edns);
    let mut scratch = Scratch::default();
    let mut out = [0; 1232];
    let arrival = Arrival::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Transport::Udp);
    let mut total = 0;
    for _ in 0..count {
        let request = std::hint::black_box(&request);
        total += respond(&context, &mut scratch, request, arrival, &mut out).len;
    }
    if total < 12 * count as usize {
        bail!("the shape `{shape}` was not answered");
    }
    Ok(())
}

fn catalog(hasher: NameHasher) -> Result<Catalog> {
    let mut changes = Vec::new();
    for text in ZONES {
        let mut records = RecordSet::default();
        let mut problems = Problems::new("sample");
        zonefile::read(text.as_bytes(), None, &mut NoIncludes, &mut records, &mut problems);
        let image =
            Compiler::new(hasher).compile(&mut records, &Placement::Everywhere, &mut problems);
        changes.push(Change::Put(image.with_context(|| problems.to_string())?));
    }
    Ok(Catalog::default().with(changes))
}
