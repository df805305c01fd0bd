//! The map in ARCHITECTURE.md, held by a test: who may depend on whom.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Each crate of the house and the rooms it may enter. A crate that is not
/// listed fails the test: decide its place first.
const ROOMS: [(&str, &[&str]); 16] = [
    ("base", &[]),
    ("shuffle", &[]),
    ("wire", &["base"]),
    ("authority", &["base", "wire"]),
    ("cluster", &["base", "shuffle"]),
    ("cache", &["base", "wire", "cluster"]),
    ("drain", &["base"]),
    ("metrics", &["base", "drain"]),
    ("health", &["base", "drain", "metrics"]),
    ("store", &["base"]),
    ("drivers", &["base", "drain"]),
    ("lab", &["base", "shuffle", "wire", "cluster", "cache", "drain", "metrics"]),
    (
        "pharos",
        &[
            "base",
            "shuffle",
            "wire",
            "authority",
            "cluster",
            "cache",
            "drain",
            "health",
            "store",
            "drivers",
            "lab",
        ],
    ),
    (
        "bench",
        &["base", "shuffle", "wire", "authority", "cluster", "cache", "drain", "store", "lab"],
    ),
    ("conformance", &["base", "wire", "authority"]),
    (
        "fuzz",
        &[
            "base",
            "shuffle",
            "wire",
            "authority",
            "cluster",
            "cache",
            "drain",
            "health",
            "drivers",
            "lab",
        ],
    ),
];
/// Crates that never wait, sleep or touch a socket, not even indirectly.
const PURE: [&str; 9] =
    ["base", "shuffle", "wire", "authority", "cluster", "cache", "drain", "metrics", "lab"];
/// What a pure crate must not have in its tree.
const IMPURE: [&str; 8] = ["tokio", "mio", "socket2", "async-std", "smol", "hyper", "axum", "libc"];
/// Reached by pure crates through others, where they do no I/O: `libc` comes
/// with the detection of CPU features, on some processors.
const EXCUSED: [(&str, &str); 1] = [("authority", "libc")];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// Names of the crates that each crate needs to be built, tests not counted.
fn graph(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut names = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let (id, name) = (package["id"].as_str().unwrap(), package["name"].as_str().unwrap());
        names.insert(id.to_owned(), name.to_owned());
    }
    let mut graph = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().expect("nodes") {
        let is_needed = |dependency: &&Value| {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            kinds.iter().any(|kind| kind["kind"].is_null())
        };
        let needs = node["deps"].as_array().unwrap().iter().filter(is_needed);
        let needs = needs.map(|dependency| names[dependency["pkg"].as_str().unwrap()].clone());
        graph.insert(names[node["id"].as_str().unwrap()].clone(), needs.collect());
    }
    graph
}

fn reachable(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(name) = next.pop() {
        for needed in graph.get(&name).into_iter().flatten() {
            if seen.insert(needed.clone()) {
                next.push(needed.clone());
            }
        }
    }
    seen
}

/// Everything that breaks the map.
fn violations(graph: &BTreeMap<String, BTreeSet<String>>, members: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for member in members {
        let Some((_, allowed)) = ROOMS.iter().find(|room| room.0 == member) else {
            found.push(format!("{member} has no place in the map"));
            continue;
        };
        for needed in graph.get(member).into_iter().flatten() {
            if members.contains(needed) && !allowed.contains(&needed.as_str()) {
                found.push(format!("{member} must not depend on {needed}"));
            }
        }
    }
    for pure in PURE {
        let tree = reachable(graph, pure);
        for impure in IMPURE {
            if tree.contains(impure) && !EXCUSED.contains(&(pure, impure)) {
                found.push(format!("{pure} is pure but reaches {impure}"));
            }
        }
    }
    found
}

#[test]
fn dependencies_point_downwards() {
    let metadata = metadata();
    let ids = metadata["workspace_members"].as_array().expect("members");
    let packages = metadata["packages"].as_array().expect("packages");
    let members: Vec<String> = packages
        .iter()
        .filter(|package| ids.contains(&package["id"]))
        .map(|package| package["name"].as_str().unwrap().to_owned())
        .collect();
    assert!(members.len() >= 5, "{members:?}");
    assert_eq!(violations(&graph(&metadata), &members), Vec::<String>::new());
}

#[test]
fn the_check_notices_what_it_is_for() {
    let needs = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
    let members = ["base", "wire", "pharos", "attic"].map(String::from);
    let graph = BTreeMap::from([
        ("base".to_owned(), needs(&["wire"])),
        ("wire".to_owned(), needs(&["helper"])),
        ("helper".to_owned(), needs(&["tokio"])),
    ]);
    let found = violations(&graph, &members);
    for expected in [
        "attic has no place in the map",
        "base must not depend on wire",
        "wire is pure but reaches tokio",
        "base is pure but reaches tokio",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected} in {found:?}");
    }
}
