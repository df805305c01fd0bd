//! Pharos against Knot, NSD and BIND with a fixed seed. The binary comes from `PHAROS_BIN`.

use std::path::PathBuf;

use conformance::differ::{self, Options};
use conformance::peers::{Kind, PEERS, Program};
use conformance::report::Report;

/// `None` after saying loudly what is missing; a failure where everything must be there.
fn pharos() -> Option<PathBuf> {
    let mut missing: Vec<String> = PEERS.iter().filter_map(|peer| peer.missing()).collect();
    let binary = std::env::var_os("PHAROS_BIN").map(PathBuf::from);
    if binary.as_ref().is_none_or(|path| !path.exists()) {
        missing.push(
            "PHAROS_BIN does not name the binary: cargo build --release -p pharos, \
             then PHAROS_BIN=$PWD/target/release/pharos"
                .to_owned(),
        );
    }
    announce(&missing);
    if missing.is_empty() { binary } else { None }
}

fn announce(missing: &[String]) {
    for line in missing {
        eprintln!("CONFORMANCE NOT TESTED: {line}");
    }
    let must_run = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(missing.is_empty() || !must_run, "CI is set and something is missing: {missing:?}");
}

fn run(subject: Program, peers: &[Kind], queries: usize, plant: bool) -> Report {
    let options = Options {
        subject,
        seed: 20_261_115,
        zones: 16,
        queries,
        peers: peers.to_vec(),
        only: None,
        keep: None,
        plant,
    };
    differ::run(options).expect("the run itself succeeds")
}

#[test]
fn pharos_agrees_with_its_peers() {
    let Some(binary) = pharos() else { return };
    let report = run(Program::Pharos(binary), &PEERS, 3000, false);
    assert_eq!(report.findings(), 0, "{}", report.markdown());
    // A run that compares nothing would pass too.
    assert!(report.answers >= 12_000 && report.uses_of("any-one-rrset") > 0);
}

/// The checker is trusted because it fails: one address differs in the subject's copy.
#[test]
fn a_planted_bug_is_found() {
    let Some(binary) = pharos() else { return };
    let report = run(Program::Pharos(binary), &PEERS, 3000, true);
    let kinds: Vec<&str> = report.kinds().map(|(kind, _)| kind).collect();
    for by in ["knot: ", "nsd: ", "bind: ", "invariant: answer missing A"] {
        let found = kinds.iter().any(|kind| {
            kind.starts_with(by) && (kind.contains("Answer A") || by.starts_with("invariant"))
        });
        assert!(found, "nothing by `{by}` in {kinds:?}");
    }
}

/// The same without Pharos, so that the checker itself is tested wherever the peers are.
#[test]
fn a_bug_planted_in_a_peer_is_found() {
    let missing: Vec<String> =
        [Kind::Knot, Kind::Nsd].iter().filter_map(|peer| peer.missing()).collect();
    announce(&missing);
    if !missing.is_empty() {
        return;
    }
    let count = |plant| {
        let report = run(Program::Peer(Kind::Knot), &[Kind::Nsd], 1500, plant);
        let about = report.kinds().filter(|(kind, _)| *kind == "invariant: answer missing A");
        about.map(|(_, count)| count).sum::<usize>()
    };
    assert_eq!(count(false), 0);
    assert!(count(true) > 0);
}
