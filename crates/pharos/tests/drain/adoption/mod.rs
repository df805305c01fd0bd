//! What an operator tries before adopting Pharos: three datacenters behind a
//! real HAProxy, a Redis pair with a second of replication delay, a real
//! Prometheus, clients that count every failure and a writer that remembers
//! every acknowledged write. Something fails in each scenario.

mod delay;
mod exporter;
mod fences;
mod fleet;
mod redis;
mod runbooks;
mod sample;
mod writer;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::common::eventually;
use crate::server::Status;
use exporter::Manner;
use fleet::{DATACENTERS, Fleet};
use runbooks::{CHAT, WEB, evacuation, orders, orders_confirmed};
use writer::Writer;

/// What a rate over the metrics of the edge needs to forget the past, and then
/// some: a run that is held for a reason stays held for at least this long.
const LOOK: Duration = Duration::from_secs(8);

/// Whether what the tests need is installed; CI must have it.
fn is_here() -> bool {
    if redis::find().is_none() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "CI must have Redis");
        eprintln!("SKIPPED: no Redis here; `scripts/need test` installs it");
        return false;
    }
    crate::proxy::is_here()
}

/// A fleet whose `dc1` has the primary, and the runbooks that drain it.
fn with_orders(orders: &str) -> Fleet {
    let dc1 = evacuation("dc1", "web, chat, orders");
    Fleet::start(&[
        ("web.yaml", WEB),
        ("chat.yaml", CHAT),
        ("orders.yaml", orders),
        ("dc1.yaml", &dc1),
    ])
}

/// A fleet of the stateless and the sticky service alone.
fn without_orders() -> Fleet {
    with_services(WEB, CHAT)
}

fn with_services(web: &str, chat: &str) -> Fleet {
    let evacuations = DATACENTERS.map(|name| evacuation(name, "web, chat"));
    Fleet::start(&[
        ("web.yaml", web),
        ("chat.yaml", chat),
        ("dc1.yaml", &evacuations[0]),
        ("dc2.yaml", &evacuations[1]),
        ("dc3.yaml", &evacuations[2]),
    ])
}

fn drain(fleet: &Fleet, datacenter: &str) {
    fleet.pharos.say(&["drain", datacenter, "--by", "ann", "--reason", "power works"]);
}

/// Ends the writer, once it could write to the present primary: every write that
/// was acknowledged is there.
fn nothing_is_lost(fleet: &Fleet, writer: Writer, at: &str) {
    let (primary, address) = fleet.redis().primary();
    assert_eq!(primary, at, "{}", fleet.logs());
    let before = writer.acknowledged();
    eventually("the primary takes writes", || writer.acknowledged() > before);
    let (written, (refused, gap, refusal)) = (writer.acknowledged(), writer.refused());
    let lost = writer.lost_on(address);
    eprintln!(
        "{written} writes acknowledged, {} lost, {refused} refused ({refusal}), none for {gap:?}",
        lost.len()
    );
    let complaint = format!("of {written} acknowledged writes\n{}", fleet.logs());
    assert_eq!(lost, Vec::<u64>::new(), "lost {complaint}");
}

/// The last promotion of `datacenter` was based on a value that the exporter
/// measured after the fence was set, and that said that nothing was missing.
fn lag_was_measured_after_the_fence(fleet: &Fleet, datacenter: &str) {
    let commands = fleet.commands();
    let promotion = format!("begin write primary {datacenter}");
    let at = commands.iter().rposition(|own| own.1 == promotion).expect("it was promoted");
    let fence = commands[..at].iter().rfind(|own| own.1 == "end write writes fenced");
    let (fenced, promoted) = (fence.expect("it was fenced").0, commands[at].0);
    let scrapes = fleet.redis().exporter.scrapes();
    let is_between = |own: &&exporter::Scrape| own.at > fenced && own.at < promoted;
    let between: Vec<_> = scrapes.iter().filter(is_between).collect();
    let took = promoted.checked_sub(fenced);
    eprintln!("{datacenter} promoted {took:?} after the fence; lag measured: {between:?}");
    assert!(between.iter().any(|own| own.lag == 0), "{took:?}, {between:?}\n{}", fleet.logs());
}

/// Nothing is written until the fence is about to be set. The lag of that time,
/// which is 0, says nothing about the writes that are acknowledged until then.
#[test]
fn writes_that_are_acknowledged_while_the_fence_is_set_are_not_lost() {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders(0));
    let writer = Writer::start(fleet.redis().addresses(), true);
    fleet.drain_and_before_the_fence(|| {
        writer.set_quiet(false);
        eventually("writes", || writer.acknowledged() >= 10);
    });
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc2");
    lag_was_measured_after_the_fence(&fleet, "dc2");
    assert_eq!(fleet.weights("dc1"), [0, 0]);
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());
}

/// A replica that is a second behind is near enough to begin. It is not near
/// enough to be promoted.
#[test]
fn a_tolerant_bound_before_the_fence_loses_no_write() {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    drain(&fleet, "dc1");
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc2");
    lag_was_measured_after_the_fence(&fleet, "dc2");
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());
}

/// The way back is a promotion too.
#[test]
fn a_promotion_is_reverted_without_a_lost_write() {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders_confirmed(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    drain(&fleet, "dc1");
    fleet.until("the operator is asked", |status| status.phase("orders.confirm") == "running");
    let written = writer.acknowledged();
    eventually("the new primary is written to", || writer.acknowledged() > written + 10);
    fleet.pharos.say(&["abort", "--revert", "--by", "ann", "--reason", "wrong datacenter"]);
    let status = fleet.until("the run ends", |status| status.outcome().is_some());
    assert_eq!(status.outcome(), Some("reverted"), "{:#}\n{}", status.0, fleet.logs());
    nothing_is_lost(&fleet, writer, "dc1");
    lag_was_measured_after_the_fence(&fleet, "dc1");
    assert_eq!(fleet.weights("dc1"), [100, 100]);
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());
}

/// Without a way to fence the new primary, the promotion stays. The restore has
/// one.
#[test]
fn a_revert_that_would_lose_writes_is_refused_with_what_to_do() {
    if !is_here() {
        return;
    }
    let orders: Vec<String> = orders_confirmed(5000)
        .lines()
        .filter(|line| !line.contains("back_"))
        .map(|line| format!("{line}\n"))
        .collect();
    let fleet = with_orders(&orders.concat());
    let writer = Writer::start(fleet.redis().addresses(), false);
    drain(&fleet, "dc1");
    fleet.until("the operator is asked", |status| status.phase("orders.confirm") == "running");
    let refusal = fleet.pharos.refuse(&["abort", "--revert", "--by", "ann", "--reason", "wrong"]);
    eprintln!("{refusal}");
    assert!(refusal.contains("back_fence") && refusal.contains("restore dc1"), "{refusal}");
    assert_eq!(fleet.redis().primary().0, "dc2");
    fleet.pharos.say(&["abort", "--by", "ann", "--reason", "wrong datacenter"]);
    fleet.until("the run ends", |status| status.outcome() == Some("held"));
    fleet.pharos.say(&["restore", "dc1", "--by", "ann", "--reason", "wrong datacenter"]);
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc1");
    lag_was_measured_after_the_fence(&fleet, "dc1");
    assert_eq!(fleet.weights("dc1"), [100, 100]);
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());
}

/// The edge serves; what it does is not seen any more, and so not judged.
#[test]
fn no_traffic_is_moved_while_the_exporter_is_dead() {
    if !is_here() {
        return;
    }
    let fleet = without_orders();
    drain(&fleet, "dc1");
    fleet.until("web begins to move", |status| status.steps("web.shift") >= 1);
    fleet.edge.ask("disable frontend metrics").unwrap();
    let before = (fleet.status().steps("web.shift"), fleet.weights("dc1"));
    let held = fleet.until("the run is held", |status| {
        let after = (status.steps("web.shift"), fleet.weights("dc1"));
        // What had begun when the exporter died may take effect.
        assert!(after.0 <= before.0 + 1, "from {before:?} to {after:?}: {:#}", status.0);
        says_what_it_cannot_see(status, "web.shift", "web.errors")
    });
    let weights = fleet.weights("dc1");
    assert!(weights[0] > 0, "{weights:?}");
    fleet.stays("a weight", LOOK, || fleet.weights("dc1") == weights);
    let text = fleet.pharos.say(&["status"]);
    assert!(text.contains("web.errors"), "{text}");
    fleet.edge.ask("enable frontend metrics").unwrap();
    fleet.until("the run continues", |status| status.steps("web.shift") > held.steps("web.shift"));
    fleet.completes();
    assert_eq!(fleet.weights("dc1"), [0, 0]);
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());
}

/// Why a task is held, and why conditions of a name have no value.
fn reasons(status: &Status, task: &str, condition: &str) -> (String, Vec<String>) {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = status.0["conditions"].as_array().unwrap().iter();
    let silences = conditions
        .filter(|own| text(&own["name"]).contains(condition))
        .map(|own| text(&own["silence"]))
        .filter(|silence| !silence.is_empty());
    (text(&status.task(task)["hold"]["why"]), silences.collect())
}

/// Whether a task is held for want of a fresh sample of a condition, and the
/// status says since when, and why there is none.
fn says_what_it_cannot_see(status: &Status, task: &str, condition: &str) -> bool {
    let (why, silences) = reasons(status, task, condition);
    let has_time = status.task(task)["hold"]["since"].is_u64();
    why.contains(condition) && why.contains("no ") && has_time && !silences.is_empty()
}

/// The fence is set, and the exporter dies: what is missing on the replica cannot
/// be seen, so it waits; whether the page is gone or merely empty.
fn waits_for_the_exporter(manner: Manner) {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    fleet.drain_and_before_the_fence(|| fleet.redis().exporter.behave(manner));
    let mut texts = BTreeSet::new();
    fleet.until("the promotion is held", |status| {
        let promoted = fleet.command_at("begin write primary dc2");
        assert_eq!(promoted, None, "promoted unseen: {:#}\n{}", status.0, fleet.logs());
        texts.insert(reasons(status, "orders.promote", "nothing-missing"));
        assert_ne!(status.phase("orders.promote"), "failed", "{texts:#?}");
        says_what_it_cannot_see(status, "orders.promote", "nothing-missing")
    });
    fleet.stays("the primary", LOOK, || fleet.redis().primary().0 == "dc1");
    fleet.redis().exporter.behave(Manner::Works);
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc2");
    lag_was_measured_after_the_fence(&fleet, "dc2");
}

#[test]
fn no_replica_is_promoted_while_the_exporter_responds_with_an_error() {
    waits_for_the_exporter(Manner::NotFound);
}

#[test]
fn no_replica_is_promoted_while_the_page_of_the_exporter_is_empty() {
    waits_for_the_exporter(Manner::Empty);
}

/// The reload brings the weights of the configuration back, and with them traffic
/// to a datacenter that is gone.
#[test]
fn a_reload_between_runs_does_not_bring_traffic_back_to_a_lost_datacenter() {
    if !is_here() {
        return;
    }
    let fleet = without_orders();
    fleet.pharos.say(&["drain", "dc1", "--disaster", "--by", "ann", "--reason", "fire"]);
    fleet.completes();
    fleet.set_down("dc1", true);
    fleet.load.pass("web");
    fleet.load.pass("chat");
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());

    let reloaded = Instant::now();
    fleet.edge.reload();
    let complaint = || format!("{} requests failed\n{}", fleet.failures().len(), fleet.logs());
    while fleet.weights("dc1") != [0, 0] {
        let elapsed = reloaded.elapsed();
        assert!(elapsed < Duration::from_secs(10), "no weight put back: {}", complaint());
        std::thread::sleep(Duration::from_millis(20));
    }
    let repaired = Instant::now();
    // A request that was under way then may fail yet.
    let settled = repaired + Duration::from_secs(1);
    fleet.load.pass("web");
    fleet.load.pass("chat");
    let failures = fleet.failures();
    eprintln!("put back after {:?}, {} requests failed", repaired - reloaded, failures.len());
    assert!(failures.iter().all(|own| own.0 > reloaded && own.0 < settled), "{}", complaint());
    assert!(fleet.pharos.log().contains("edge:weight/web/dc1"), "{}", fleet.pharos.log());
}

/// dc1 is drained. The tasks of dc2 cannot become complete: all of its traffic has
/// left when its drain is aborted, and none of them counts as done. dc3 is the last
/// that serves.
#[test]
fn an_aborted_drain_counts_by_the_traffic_that_has_left() {
    if !is_here() {
        return;
    }
    let post = |service: &str| {
        format!(
            "    post: [{{name: dc2-serves, gauge: \"edge:weight/{service}/dc2\", above: 0, \
             no_data: block}}]\nrestore:\n"
        )
    };
    let web = WEB.replace("restore:\n", &post("web"));
    let fleet = with_services(&web, &CHAT.replace("restore:\n", &post("chat")));
    drain(&fleet, "dc1");
    fleet.completes();
    drain(&fleet, "dc2");
    fleet.until("its weights are 0", |_| fleet.weights("dc2") == [0, 0]);
    fleet.pharos.say(&["abort", "--by", "ann", "--reason", "enough for today"]);
    let aborted = fleet.until("the run ends", |status| status.outcome().is_some());
    assert_eq!(aborted.outcome(), Some("held"), "{:#}", aborted.0);
    for task in ["web.shift", "chat.shift"] {
        assert_ne!(aborted.phase(task), "done", "{:#}", aborted.0);
    }
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());

    let attempt = fleet.pharos.run(&["drain", "dc3", "--by", "ann", "--reason", "in a hurry"]);
    let refusal = String::from_utf8(attempt.stderr).unwrap();
    eprintln!("drain dc3: {} {refusal}", attempt.status);
    if attempt.status.success() {
        fleet.until("the limit holds it", |status| {
            let (weights, failures) = (fleet.weights("dc3"), fleet.failures().len());
            let found = format!("weights {weights:?}, {failures} requests failed");
            assert_ne!(status.outcome(), Some("completed"), "{found}");
            assert_eq!(failures, 0, "{found}: {:#}", status.0);
            let why = status.task("web.shift")["hold"]["why"].as_str().unwrap_or_default();
            why.contains("serving_min") || why.contains("must serve")
        });
    } else {
        assert!(refusal.contains("serving_min"), "{refusal}");
    }
    fleet.stays("the last weight", LOOK, || fleet.weights("dc3") == [100, 100]);
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());

    // With dc1 back, dc3 may leave.
    if attempt.status.success() {
        fleet.pharos.say(&["abort", "--by", "ann", "--reason", "dc1 comes first"]);
        fleet.until("the run ends", |status| status.outcome().is_some());
    }
    fleet.pharos.say(&["restore", "dc1", "--by", "ann", "--reason", "dc3 must leave"]);
    fleet.completes();
    drain(&fleet, "dc3");
    fleet.until("dc3 moves", |status| status.steps("web.shift") >= 1);
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());
}

/// dc1 and dc2 are drained, and dc3 is lost. No server gets a request, so there is
/// no share of errors, and no other datacenter has room: that is when a restore is
/// needed most.
#[test]
fn a_restore_completes_during_a_total_outage() {
    if !is_here() {
        return;
    }
    let fleet = without_orders();
    for datacenter in ["dc1", "dc2"] {
        drain(&fleet, datacenter);
        fleet.completes();
    }
    assert_eq!(fleet.failures().len(), 0, "{:?}", fleet.failures());
    fleet.set_down("dc3", true);
    for service in ["web", "chat"] {
        fleet.edge.ask(&format!("set weight {service}/dc3 0")).unwrap();
    }
    let total = r#"rate(haproxy_server_http_responses_total{proxy="web"}[2s])"#;
    let query = format!("sum by (server) ({total}) / sum by (server) ({total})");
    eventually("every share is 0/0", || {
        let values = fleet.prometheus.query(&query);
        !values.is_empty() && values.iter().all(|value| value == "NaN")
    });
    let before = fleet.failures().len();
    eventually("every request fails", || fleet.failures().len() > before + 50);

    fleet.pharos.say(&["restore", "dc1", "--by", "ann", "--reason", "the last one"]);
    fleet.completes();
    assert_eq!(fleet.weights("dc1"), [100, 100]);
    let restored = Instant::now();
    fleet.load.pass("web");
    fleet.load.pass("chat");
    let failures = fleet.failures();
    eprintln!("{} requests failed in the outage", failures.len());
    let late: Vec<_> = failures.iter().filter(|own| own.0 > restored).collect();
    assert!(late.is_empty(), "{late:?}");
}

/// What is in maintenance serves nobody, whatever its weight is.
#[test]
fn the_last_datacenter_that_serves_is_not_drained() {
    if !is_here() {
        return;
    }
    let fleet = without_orders();
    let set = |state: &str| {
        for server in ["web/dc2", "web/dc3", "chat/dc2", "chat/dc3"] {
            fleet.edge.ask(&format!("set server {server} state {state}")).unwrap();
        }
    };
    set("maint");
    let refusal = fleet.pharos.refuse(&["drain", "dc1", "--by", "ann", "--reason", "power works"]);
    assert!(refusal.contains("limit: "), "{refusal}");
    set("ready");
    drain(&fleet, "dc1");
    fleet.completes();
}

/// No limit sees in time that such a drain empties the fleet: it is refused, also in a
/// disaster.
#[test]
fn a_drain_that_sets_servers_of_another_datacenter_is_refused() {
    if !is_here() {
        return;
    }
    let web = WEB
        .replace(
            "restore:",
            "  stop: {template: ConfigChange, after: [shift], \
             with: {knob: \"edge:state/web/@dc*\", content: maint}}\nrestore:",
        )
        .replace("to: original}", "to: original}\n    after: [start]")
        + "  start: {template: ConfigChange, \
           with: {knob: \"edge:state/web/@dc*\", content: original}}\n";
    let fleet = with_services(&web, CHAT);
    for mode in [&[][..], &["--disaster"]] {
        let words = ["drain", "dc1", "--by", "ann", "--reason", "power works"];
        let refusal = fleet.pharos.refuse(&[&words[..], mode].concat());
        let why = "edge:state/web/@dc* and edge:weight/web/dc2 both move web/dc2: what leaves dc1";
        assert!(refusal.contains(why), "{refusal}");
    }
    assert_eq!(fleet.weights("dc2"), [100, 100]);
}
