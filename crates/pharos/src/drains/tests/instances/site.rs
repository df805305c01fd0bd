//! What the servers of a scenario drain: a service with traffic and one with a
//! primary, in files.

use std::path::Path;

use super::super::write_runbooks;

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
    pace: {first: 40%, step_max: 40%, wait: 1ms, wait_max: 1ms}
  ASK
  off: {template: ConfigChange, with: {knob: "files:switch-$dc", content: "off"}, after: [AFTER]}
restore:
  on: {template: ConfigChange, with: {knob: "files:switch-$dc", content: original}}
  shift:
    template: TrafficShift
    with: {knob: "files:web-$dc", to: original}
    pace: {first: 50%, step_max: 50%, wait: 1ms, wait_max: 1ms}
    after: [on]
"#;
/// An operator has to agree, or the run waits.
const ASK: &str =
    r#"ask: {template: Approval, with: {question: "May the switch go off?"}, after: [shift]}"#;
const DB: &str = r#"
pharos: service/v1
service: db
traffic: stateful
user_facing: false
drain:
  promote:
    template: Promote
    with:
      knob: "files:primary"
      to: west
      from: $dc
      fence: "files:fence-$dc"
      nearly_caught_up: {name: lag, gauge: "files:lag", at_most: 0, no_data: block}
      back_fence: "files:fence-west"
      back_caught_up: {name: lag-back, gauge: "files:lag", equals: 0, no_data: block}
restore:
  promote:
    template: Promote
    with:
      knob: "files:primary"
      to: original
      from: west
      fence: "files:fence-west"
      unfence_to: open
      caught_up: {name: lag-to-east, gauge: "files:lag", equals: 0, no_data: block}
  unfence:
    template: ConfigChange
    with: {knob: "files:fence-$dc", content: original}
    after: [promote]
"#;
const EAST: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 100}, west: {capacity: 100}}
services: [web, db]
keep_drained: disaster
";
const KNOBS: [(&str, &str); 8] = [
    ("web-east", "1"),
    ("web-west", "1"),
    ("switch-east", "on"),
    ("switch-west", "on"),
    ("primary", "east"),
    ("fence-east", "open"),
    ("fence-west", "open"),
    ("lag", "0"),
];

/// Runbooks of a service with traffic and of one with a primary, and the knobs
/// of both.
pub fn write_site(home: &Path, asks: bool) {
    let web = match asks {
        true => WEB.replace("ASK", ASK).replace("AFTER", "ask"),
        false => WEB.replace("ASK", "").replace("AFTER", "shift"),
    };
    write_runbooks(home, &[("web", &web), ("db", DB), ("east", EAST)]);
    KNOBS.iter().for_each(|(knob, value)| put(home, knob, value));
}

/// Sets a knob at once, as others do it.
pub fn put(home: &Path, knob: &str, value: &str) {
    let new = home.join(format!("{knob}.new"));
    std::fs::write(&new, value).unwrap();
    std::fs::rename(new, home.join(knob)).unwrap();
}
