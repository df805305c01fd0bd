//! Two servers and one store: who drives a run, and who does not any more.

use std::path::Path;

use tempfile::TempDir;

use crate::common::eventually;
use crate::operator::{evacuation, prepare, start};
use crate::server::{Pharos, write_runbooks};

/// A service that leaves in many small steps.
const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {east: 10, west: 10}
drain:
  shift:
    template: TrafficShift
    with: {knob: "files:web-$dc", to: 0%}
    pace: {first: 5%, step_max: 5%, wait: 100ms}
restore:
  shift:
    template: TrafficShift
    with: {knob: "files:web-$dc", to: original}
"#;

/// A folder of another server with the store, the runbooks and the knobs of
/// `home`.
fn beside(home: &Path, name: &str) -> TempDir {
    let own = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(home.join("pharos.toml")).unwrap();
    let [theirs, control] = [home, own.path()].map(|at| at.join("control.sock"));
    let text = text
        .replace(theirs.to_str().unwrap(), control.to_str().unwrap())
        .replace("name = \"one\"", &format!("name = \"{name}\""));
    std::fs::write(own.path().join("pharos.toml"), text).unwrap();
    own
}

#[test]
fn a_second_server_of_the_same_name_does_not_start_while_the_first_lives() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east"]);
    let twin = beside(home.path(), "one");
    let log = Pharos::refuse_start(twin.path());
    assert!(log.contains("another server named `one` has it, pid"), "{log}");
    assert!(log.contains("accepted: another `name` under [node]"), "{log}");
    assert_eq!(pharos.json(&["history"])["runs"][0]["driven_by"], "one");
    pharos.say(&["pause"]);
    // Killed, its lease not given back: the same name goes on at once.
    let instance = |pharos: &Pharos| pharos.json(&["history"])["runs"][0]["instance"].clone();
    let before = instance(&pharos);
    pharos.kill();
    let started = std::time::Instant::now();
    let pharos = Pharos::start(home.path());
    pharos.say(&["resume"]);
    assert!(started.elapsed().as_secs() < 12, "it waited for a lease of 15 s");
    assert_ne!(instance(&pharos), before, "another process is another holder");
}

/// The epoch of every write that reached the knobs, in order.
fn epochs(home: &Path) -> Vec<u64> {
    let log = std::fs::read_to_string(home.join("writes")).unwrap();
    log.lines().map(|line| line.parse::<u64>().unwrap() >> 32).collect()
}

#[test]
fn a_server_that_was_stopped_does_not_write_after_another_took_over() {
    let home = prepare("one");
    let (east, west) = (evacuation("east"), evacuation("west"));
    write_runbooks(home.path(), &[("web.yaml", WEB), ("east.yaml", &east), ("west.yaml", &west)]);
    let config = home.path().join("pharos.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let log = format!("'echo \"$PHAROS_FENCE\" >> \"{}/writes\"; printf", home.path().display());
    let logged = text.replace("'printf", &log);
    assert_ne!(text, logged);
    std::fs::write(&config, logged).unwrap();

    let first = Pharos::start(home.path());
    first.say(&["drain", "east"]);
    first.until("it moves", |status| status.steps("web.shift") >= 2);
    first.signal("STOP");
    let other = beside(home.path(), "two");
    let second = Pharos::start(other.path());
    // It waits until the lease has run out: the first may live.
    let status = second.status();
    assert_eq!(status.0["elsewhere"], "driven by one", "{}", status.0);
    second.until("it takes over and ends", |status| status.outcome() == Some("completed"));
    let taken_over = epochs(home.path());
    first.signal("CONT");
    eventually("the first knows", || first.log().contains("taken by another server"));
    // A step of the first would have come by now: it has answered since.
    first.say(&["history"]);
    let writes = epochs(home.path());
    assert_eq!(writes, taken_over, "the first wrote after it went on");
    assert!(writes.is_sorted(), "an older epoch after a newer one: {writes:?}");
    assert!(writes.first() < writes.last(), "both wrote: {writes:?}");
    assert_eq!(std::fs::read_to_string(home.path().join("web-east")).unwrap(), "0");
}
