//! A datacenter is drained and restored under load, while everything around
//! the run fails once.

use crate::load::Load;
use crate::prometheus::Prometheus;
use crate::proxy;
use crate::server::{Pharos, configure, write_runbooks};
use crate::site::Shop;

const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {east: 30, west: 30}
health:
  errors:
    query: sum(rate(haproxy_backend_http_responses_total{proxy="web", code="5xx"}[2s])) / sum(rate(haproxy_backend_http_responses_total{proxy="web"}[2s]))
    below: 0.01
    no_data: block
drain:
  shift:
    template: TrafficShift
    with: {knob: "edge:weight/web/$dc", to: 0%}
    pace: {first: 10%, step_max: 30%, wait: 1s, wait_max: 2s}
restore:
  shift:
    template: TrafficShift
    with: {knob: "edge:weight/web/$dc", to: original}
    pace: {first: 20%, step_max: 40%, wait: 500ms, wait_max: 2s}
"#;

const CHAT: &str = r#"
pharos: service/v1
service: chat
traffic: sticky
user_facing: true
load: {east: 10, west: 10}
health:
  refused:
    query: sum(rate(haproxy_backend_connection_errors_total{proxy="chat"}[2s]))
    below: 1
    no_data: block
drain:
  shift:
    template: SessionDrain
    with: {knob: "edge:weight/chat/$dc", sessions: "edge:sessions/chat/$dc", grace: 8s}
    pace: {first: 20%, step_max: 40%, wait: 500ms, wait_max: 2s}
  empty:
    template: Check
    with:
      condition: {gauge: "edge:count/chat/$dc", equals: 0, no_data: block}
      settle: 1s
    after: [shift]
restore:
  shift:
    template: TrafficShift
    with: {knob: "edge:weight/chat/$dc", to: original}
    pace: {first: 20%, step_max: 40%, wait: 500ms, wait_max: 2s}
"#;

/// The window sends people to the chat, so it leaves first and comes back last.
const EAST: &str = r#"
pharos: evacuation/v1
datacenter: east
datacenters:
  east: {capacity: 120}
  west: {capacity: 120, line: 75%}
limits: {serving_min: 1, drained_max: 50%}
services: [web, chat]
drain:
  - task: chat.shift
    after: [web.shift]
restore:
  - task: web.shift
    after: [chat.shift]
"#;

fn set_up(shop: &Shop, prometheus: &Prometheus) -> Pharos {
    let folder = shop.folder.path();
    let files = [("web.yaml", WEB), ("chat.yaml", CHAT), ("east.yaml", EAST)];
    write_runbooks(folder, &files);
    let drain = format!(
        "prometheus = \"http://{}\"\n[drain.drivers.edge]\nkind = \"haproxy\"\nsocket = \"{}\"\n",
        prometheus.address,
        shop.edge.admin.display()
    );
    configure(folder, "one", &drain);
    Pharos::start(folder)
}

#[test]
fn a_datacenter_is_drained_and_restored_whatever_fails_on_the_way() {
    if !proxy::is_here() {
        return;
    }
    let shop = Shop::start();
    let mut prometheus = Prometheus::start(shop.folder.path(), shop.metrics);
    let load = Load::start(&shop);
    let pharos = set_up(&shop, &prometheus);
    load.pass("web");
    load.pass("chat");
    for service in ["web", "chat"] {
        assert!(load.lately(service, "east") > 0, "{service} is in both datacenters");
    }
    let planned = pharos.say(&["plan", "east"]);
    assert!(planned.contains("edge:weight/web/east") && planned.contains("1 → 0"), "{planned}");

    pharos.say(&["drain", "east", "--by", "ann", "--reason", "power works"]);
    loses_its_metrics(&pharos, &mut prometheus, &shop);
    loses_its_weights(&pharos, &shop);
    let pharos = is_killed(pharos, &shop);
    let drained = pharos.until("the drain ends", |status| status.outcome().is_some());
    assert_eq!(drained.outcome(), Some("completed"), "{:#}\n{}", drained.0, pharos.log());
    for service in ["web", "chat"] {
        load.pass(service);
        assert_eq!(load.lately(service, "east"), 0, "{service} has left");
    }

    pharos.say(&["restore", "east", "--by", "ann", "--reason", "power is back"]);
    let restored = pharos.until("the restore ends", |status| status.outcome().is_some());
    assert_eq!(restored.outcome(), Some("completed"), "{:#}", restored.0);
    for service in ["web", "chat"] {
        assert_eq!(shop.edge.weight(&format!("{service}/east")), 100);
    }
    load.pass("web");
    assert!(load.lately("web", "east") > 10, "east serves again");

    accounts_for_it(&pharos, &shop);
    let begun_anew = load.of("chat", |counts| counts.begun_anew);
    assert_eq!(load.stop(), Vec::<String>::new(), "no request failed");
    assert!(begun_anew > 0, "conversations in east were ended");
}

/// Without values nothing goes on; with them it does.
fn loses_its_metrics(pharos: &Pharos, prometheus: &mut Prometheus, shop: &Shop) {
    pharos.until("web begins to move", |status| status.steps("web.shift") >= 1);
    prometheus.kill();
    let held = pharos.until("the run is held", |status| {
        let why = status.task("web.shift")["hold"]["why"].as_str();
        why.is_some_and(|why| why.contains("no data"))
    });
    let weight = shop.edge.weight("web/east");
    assert!(weight > 0 && weight < 100, "in the middle: {weight}");
    let silences = held.0["conditions"].as_array().unwrap().iter();
    let silences: Vec<_> = silences.filter_map(|own| own["silence"].as_str()).collect();
    assert!(silences.iter().any(|why| why.contains("does not answer")), "{:#}", held.0);
    prometheus.revive();
    let gone_on = pharos
        .until("the run goes on", |status| status.steps("web.shift") > held.steps("web.shift"));
    assert!(gone_on.task("web.shift")["failure"].is_null(), "{:#}", gone_on.0);
}

/// A reload puts every weight back to what the configuration says.
fn loses_its_weights(pharos: &Pharos, shop: &Shop) {
    pharos.until("web has left and the chat gets its grace", |status| {
        status.phase("web.shift") == "done" && status.task("chat.shift")["stage"] == "grace"
    });
    shop.edge.reload();
    pharos.until("it is noticed and repaired", |_| {
        let report = pharos.json(&["report", "1"]);
        let drifts = report["drifts"].as_array().unwrap();
        let is_noticed =
            |knob: &str| drifts.iter().any(|drift| drift["knob"].as_str().unwrap() == knob);
        is_noticed("edge:weight/web/east")
            && is_noticed("edge:weight/chat/east")
            && shop.edge.weight("web/east") == 0
            && shop.edge.weight("chat/east") == 0
    });
}

/// The next one goes on with the last thing that is written down.
fn is_killed(pharos: Pharos, shop: &Shop) -> Pharos {
    let before = pharos.status();
    assert_eq!(before.outcome(), None);
    pharos.kill();
    let pharos = Pharos::start(shop.folder.path());
    let after = pharos.status();
    assert_eq!(after.0["run"], before.0["run"]);
    assert_eq!(after.phase("web.shift"), "done");
    assert_eq!(after.steps("web.shift"), before.steps("web.shift"));
    assert!(after.next_seq() >= before.next_seq(), "nothing is forgotten");
    assert_eq!(after.outcome(), None, "{:#}", after.0);
    pharos
}

fn accounts_for_it(pharos: &Pharos, shop: &Shop) {
    let report = pharos.json(&["report", "1"]);
    let tasks = report["tasks"].as_array().unwrap();
    let web = tasks.iter().find(|task| task["name"] == "web.shift").unwrap();
    let held = web["held"].to_string();
    assert!(held.contains("no data"), "{held}");
    assert_eq!(report["critical_path"].as_array().unwrap().len(), 3, "{report:#}");
    let page = shop.folder.path().join("report.html");
    pharos.say(&["report", "1", "--html", page.to_str().unwrap()]);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("edge:weight/web/east") && html.contains("</html>"));
    let runs = pharos.json(&["history"]);
    let outcomes: Vec<_> =
        runs["runs"].as_array().unwrap().iter().map(|run| &run["outcome"]).collect();
    assert_eq!(outcomes, ["completed", "completed"]);
    assert!(pharos.say(&["audit", "verify"]).contains("the chain is whole"));
    // What was learnt is in the next plan.
    let planned = pharos.json(&["plan", "east"]);
    let expected = &planned["plan"]["tasks"][0]["expected"];
    assert!(expected["usual"].is_u64(), "{expected}");
}
