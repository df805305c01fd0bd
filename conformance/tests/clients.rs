//! dig, kdig, delv, drill and Zonemaster against Pharos. The binary comes from `PHAROS_BIN`.

use std::path::PathBuf;

use conformance::clients::{self, Options};
use conformance::peers::Program;

#[test]
fn real_clients_accept_pharos() {
    let mut missing = clients::missing();
    let binary = std::env::var_os("PHAROS_BIN").map(PathBuf::from).filter(|path| path.exists());
    if binary.is_none() {
        missing.push(
            "PHAROS_BIN does not name the binary: cargo build --release -p pharos, \
             then PHAROS_BIN=$PWD/target/release/pharos"
                .to_owned(),
        );
    }
    for line in &missing {
        eprintln!("CLIENTS NOT TESTED: {line}");
    }
    let must_run = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(missing.is_empty() || !must_run, "CI is set and something is missing: {missing:?}");
    let Some(binary) = binary.filter(|_| missing.is_empty()) else { return };
    let options = Options { subject: Program::Pharos(binary), keep: None, zonemaster: true };
    let outcomes = clients::run(&options).expect("the run itself succeeds");
    let failures: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| Some(format!("{}: {}", outcome.name, outcome.failure.as_ref()?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(outcomes.len() > 40);
}
