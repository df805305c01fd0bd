//! `conformance`: differential testing and real clients, from the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use conformance::clients;
use conformance::differ::{self, Options};
use conformance::peers::{Kind, Program};

#[derive(Parser)]
#[command(about = "The same questions to Pharos and its peers; every difference explained")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare with Knot, NSD and BIND; exits with 1 when something is found.
    Differ(Differ),
    /// Ask with dig, kdig, delv, drill and Zonemaster; exits with 1 when one objects.
    Clients(Clients),
}

#[derive(Args)]
struct Clients {
    /// The Pharos binary to judge.
    #[arg(long, required_unless_present = "subject")]
    pharos: Option<PathBuf>,
    /// Judge a peer instead (knot, nsd or bind).
    #[arg(long, conflicts_with = "pharos")]
    subject: Option<String>,
    /// Leave zones, configurations and logs in this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Without Zonemaster, which needs a network namespace.
    #[arg(long)]
    skip_zonemaster: bool,
}

#[derive(Args)]
struct Differ {
    /// The Pharos binary to judge.
    #[arg(long, required_unless_present = "subject")]
    pharos: Option<PathBuf>,
    /// Judge a peer instead (knot, nsd or bind), to learn how the peers differ.
    #[arg(long, conflicts_with = "pharos")]
    subject: Option<String>,
    /// Decides every zone and every question.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 40)]
    zones: usize,
    #[arg(long, default_value_t = 100_000)]
    queries: usize,
    #[arg(long, default_value = "knot,nsd,bind", value_delimiter = ',')]
    peers: Vec<String>,
    /// Write the report here, as Markdown.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Leave zones, configurations and logs in this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Ask only the query with this index and show every answer.
    #[arg(long)]
    only: Option<usize>,
    /// Change the address of `www` in the subject's zones: the run must find it.
    #[arg(long)]
    plant: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Differ(arguments) => run_differ(arguments),
        Command::Clients(arguments) => run_clients(arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn program(pharos: Option<PathBuf>, subject: Option<String>) -> Result<Program> {
    match (pharos, subject) {
        (Some(path), _) => Ok(Program::Pharos(path.canonicalize().context("find --pharos")?)),
        (None, Some(peer)) => Ok(Program::Peer(Kind::parse(&peer)?)),
        (None, None) => unreachable!("clap requires one of them"),
    }
}

fn run_clients(arguments: Clients) -> Result<bool> {
    let subject = program(arguments.pharos, arguments.subject)?;
    let zonemaster = !arguments.skip_zonemaster;
    let options = clients::Options { subject, keep: arguments.keep, zonemaster };
    let outcomes = clients::run(&options)?;
    for outcome in &outcomes {
        let verdict = if outcome.failure.is_some() { "FAIL" } else { "pass" };
        println!("{verdict} {}", outcome.name);
        for note in &outcome.notes {
            println!("     {note}");
        }
        if let Some(failure) = &outcome.failure {
            println!("{failure}");
        }
    }
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    println!("{} checks, {failed} failed", outcomes.len());
    Ok(failed == 0)
}

fn run_differ(arguments: Differ) -> Result<bool> {
    let subject = program(arguments.pharos, arguments.subject)?;
    let peers = arguments.peers.iter().map(|peer| Kind::parse(peer)).collect::<Result<_>>()?;
    let report = differ::run(Options {
        subject,
        seed: arguments.seed,
        zones: arguments.zones,
        queries: arguments.queries,
        peers,
        only: arguments.only,
        keep: arguments.keep,
        plant: arguments.plant,
    })?;
    let markdown = report.markdown();
    match &arguments.report {
        Some(path) => std::fs::write(path, &markdown).context("write the report")?,
        None => println!("{markdown}"),
    }
    for (kind, count) in report.kinds() {
        eprintln!("FINDING ({count} times) {kind}");
    }
    eprintln!("{} findings, seed {}", report.findings(), arguments.seed);
    Ok(report.findings() == 0)
}
