//! Runs the bodies of the fuzz targets over the committed corpora, and over
//! the findings in `artifacts/` if a run of `fuzz/run` left any.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Files of a directory in order of their names; none if it is not there.
fn inputs(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut inputs: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

/// Replays everything, then names all inputs that failed.
fn replay(target: &str, body: fn(&[u8])) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = inputs(&root.join("corpus").join(target));
    assert!(!all.is_empty(), "no inputs in fuzz/corpus/{target}");
    all.extend(inputs(&root.join("artifacts").join(target)));
    let fails =
        |input: &&(String, Vec<u8>)| catch_unwind(AssertUnwindSafe(|| body(&input.1))).is_err();
    let failed: Vec<_> = all.iter().filter(fails).map(|input| &input.0).collect();
    assert!(failed.is_empty(), "{} of {} inputs failed: {failed:#?}", failed.len(), all.len());
}

#[test]
fn messages() {
    replay("message", fuzz::message);
}

#[test]
fn zone_files() {
    replay("zone_file", fuzz::zone_file);
}

#[test]
fn allocator_states() {
    replay("allocator_state", fuzz::allocator_state);
}

#[test]
fn zones_and_messages() {
    replay("zone_and_message", fuzz::zone_and_message);
}

#[test]
fn upstream_answers() {
    replay("upstream_answer", fuzz::upstream_answer);
}

#[test]
fn peer_frames() {
    replay("peer_frame", fuzz::peer_frame);
}

#[test]
fn cached_answers() {
    replay("cached_answer", fuzz::cached_answer);
}

#[test]
fn expositions() {
    replay("exposition", fuzz::exposition);
}

#[test]
fn haproxy_answers() {
    replay("haproxy_answer", fuzz::haproxy_answer);
}

#[test]
fn runbooks() {
    replay("runbook", fuzz::runbook);
}

#[test]
fn queries() {
    replay("query", fuzz::query);
}

#[test]
fn worlds() {
    replay("world", fuzz::world);
}
