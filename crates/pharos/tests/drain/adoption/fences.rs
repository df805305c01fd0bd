//! Fences that two runs share, and fences that a promotion leaves closed.

use std::path::Path;

use super::fleet::Fleet;
use super::runbooks::{CHAT, WEB, evacuation, orders, orders_confirmed, orders_of_dc2};
use super::writer::Writer;
use super::{LOOK, drain, is_here, lag_was_measured_after_the_fence, nothing_is_lost, with_orders};
use crate::commands::runs;
use crate::common::eventually;
use crate::server::Status;

/// What needs a person because a fence is closed.
fn closed_fences(status: &Status) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let needs = status.0["needs_person"].as_array().unwrap().iter();
    let fenced = needs.filter(|need| need["kind"] == "fenced");
    fenced.map(|need| (text(&need["knob"]), text(&need["todo"]))).collect()
}

/// For how long the first closed fence has been closed, by a status.
fn fenced_for_ms(status: &Status) -> Option<u64> {
    let mut needs = status.0["needs_person"].as_array()?.iter();
    let fenced = needs.find(|need| need["kind"] == "fenced")?;
    Some(status.0["now"].as_u64()? - fenced["since"].as_u64()?)
}

/// The first run is open, its promotion is done, and it corrects drift. The second
/// one closes the same fence, and its promotion takes a while. Whoever opens the
/// fence then loses what is acknowledged meanwhile.
#[test]
fn a_run_does_not_open_the_fence_that_another_run_has_closed() {
    if !is_here() {
        return;
    }
    let (dc1, dc2) =
        (evacuation("dc1", "web, chat, orders"), evacuation("dc2", "web, chat, orders-of-dc2"));
    let fleet = Fleet::start(&[
        ("web.yaml", WEB),
        ("chat.yaml", CHAT),
        ("orders.yaml", &orders_confirmed(5000)),
        ("orders-of-dc2.yaml", &orders_of_dc2(5000)),
        ("dc1.yaml", &dc1),
        ("dc2.yaml", &dc2),
    ]);
    let writer = Writer::start(fleet.redis().addresses(), false);
    drain(&fleet, "dc1");
    fleet.until("the operator is asked", |status| status.phase("orders.confirm") == "running");
    // With epochs of another order than that of the runs.
    let fleet = fleet.restarted();
    fleet.set_gate("promotion-gate", true);
    drain(&fleet, "dc2");
    fleet.until("the second promotion begins", |_| {
        fleet.command_at("begin write primary dc1").is_some()
    });
    let opened = || {
        let commands = fleet.commands();
        let closed = commands.iter().rposition(|own| own.1 == "end write writes fenced");
        commands[closed.unwrap()..].iter().any(|own| own.1 == "begin write writes open")
    };
    fleet.stays("the fence", LOOK, || !opened());
    fleet.set_gate("promotion-gate", false);
    fleet.until("the second run goes on", |status| status.phase("orders-of-dc2.promote") == "done");
    nothing_is_lost(&fleet, writer, "dc1");
}

/// Whether the replica was promoted is not known, so the fence stays: that writes are
/// refused is the first thing that status says, during the run and after it.
#[test]
fn a_fence_that_a_failed_promotion_leaves_closed_is_named_until_it_is_open() {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    fleet.set_gate("no-quorum", true);
    drain(&fleet, "dc1");
    let failed = fleet.until("it fails", |status| status.phase("orders.promote") == "failed");
    let todo = "`retry orders.promote`, or `abort --revert`, which promotes back and sets it to \
                \"open\"; if neither gets through: see that redis:primary is one server alone, and \
                set it to \"open\" by hand, then `skip orders.promote`";
    assert_eq!(closed_fences(&failed), [("redis:writes".to_owned(), todo.to_owned())]);
    assert_eq!(failed.0["needs_person"][0]["kind"], "fenced", "{:#}", failed.0);
    fleet.pharos.say(&["abort", "--reason", "in a hurry"]);
    let held = fleet.until("it is over", |status| status.outcome() == Some("held"));
    assert_eq!(closed_fences(&held).len(), 1, "{:#}", held.0);
    let text = fleet.pharos.say(&["status"]);
    assert!(text.contains("redis:writes") && text.contains("writes are refused"), "{text}");
    // For how long, also when the run is over.
    fleet.until("time passes", |status| {
        fenced_for_ms(status) >= Some(fenced_for_ms(&held).unwrap() + 2000)
    });
    let metric = "pharos_drain_fences_left_closed{datacenter=\"dc1\"}";
    let value = |of: &str| fleet.metric(metric).is_some_and(|value| value == of);
    eventually("the metric says so", || value("1"));
    // Whatever runs come later, also while they go on.
    drain(&fleet, "dc1");
    fleet.pharos.say(&["pause", "--reason", "wait"]);
    let again = fleet.until("it is named", |status| {
        status.outcome().is_none() && closed_fences(status).len() == 1
    });
    assert_eq!(again.0["needs_person"][0]["kind"], "fenced", "{:#}", again.0);
    assert!(value("1"), "{:?}", fleet.metric(metric));
    fleet.pharos.say(&["abort", "--reason", "another time"]);
    fleet.until("it is over", |status| status.outcome() == Some("held"));
    fleet.set_gate("no-quorum", false);
    fleet.pharos.say(&["restore", "dc1", "--reason", "as it was"]);
    let restored = fleet.completes();
    assert_eq!(closed_fences(&restored), []);
    nothing_is_lost(&fleet, writer, "dc1");
    eventually("the metric is gone", || !value("1"));
}

/// A second drain finds the fence closed. What it finds is not what it puts back.
#[test]
fn a_revert_opens_a_fence_that_an_earlier_run_left_closed() {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders_confirmed(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    fleet.set_gate("no-quorum", true);
    drain(&fleet, "dc1");
    fleet.until("it fails", |status| status.phase("orders.promote") == "failed");
    fleet.pharos.say(&["abort", "--reason", "in a hurry"]);
    fleet.until("it is over", |status| status.outcome() == Some("held"));
    fleet.set_gate("no-quorum", false);
    drain(&fleet, "dc1");
    fleet.until("the operator is asked", |status| status.phase("orders.confirm") == "running");
    fleet.pharos.say(&["abort", "--revert", "--reason", "wrong datacenter"]);
    let reverted = fleet.until("it is over", |status| status.outcome().is_some());
    assert_eq!(reverted.outcome(), Some("reverted"), "{:#}\n{}", reverted.0, fleet.logs());
    nothing_is_lost(&fleet, writer, "dc1");
}

/// One person alone does not lose what is missing on the replica.
#[test]
fn what_is_missing_behind_a_fence_is_not_overridden_by_one_person() {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    fleet.drain_and_before_the_fence(|| fleet.redis().exporter.behave(super::Manner::Empty));
    fleet.until("it is fenced", |_| fleet.command_at("end write writes fenced").is_some());
    let condition = "orders.promote.last-writes.nothing-missing";
    fleet.pharos.say(&["override", condition, "--reason", "in a hurry"]);
    let refusal = fleet.pharos.refuse(&["override", condition, "--by", "bob", "--reason", "now"]);
    assert!(refusal.contains("accepted: an operator with another uid"), "{refusal}");
    fleet.stays("the primary", LOOK, || fleet.redis().primary().0 == "dc1");
    fleet.redis().exporter.behave(super::Manner::Works);
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc2");
}

/// A fleet whose promotion is under way, and waits at its gate.
fn promoting() -> (Fleet, Writer) {
    let fleet = with_orders(&orders(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    fleet.set_gate("promotion-gate", true);
    drain(&fleet, "dc1");
    fleet.until("the promotion begins", |_| fleet.command_at("begin write primary dc2").is_some());
    (fleet, writer)
}

/// It would promote at some later time, whatever the next server has done by then.
#[test]
fn a_promotion_that_is_under_way_ends_with_a_server_that_is_killed() {
    if !is_here() {
        return;
    }
    let (fleet, writer) = promoting();
    let fleet = fleet.replaced(|pharos, folder| {
        let command = format!("{} write primary dc2", folder.join("redis").display());
        assert!(runs(&command), "{command}");
        pharos.kill();
        eventually("the command is killed", || !runs(&command));
        std::fs::remove_file(folder.join("promotion-gate")).unwrap();
    });
    let status = fleet.completes();
    assert_eq!(status.phase("orders.promote"), "done", "{:#}", status.0);
    nothing_is_lost(&fleet, writer, "dc2");
}

/// Nothing goes on while nothing can be written: a closed fence stays closed.
#[test]
fn a_fence_that_is_closed_while_the_disk_is_full_is_named() {
    if !is_here() {
        return;
    }
    let (fleet, writer) = promoting();
    fleet.pharos.fill_disk(true);
    fleet.set_gate("promotion-gate", false);
    let still = fleet.until("it stands still", |status| !status.0["stands_still"].is_null());
    assert_eq!(closed_fences(&still).len(), 1, "{:#}", still.0);
    fleet.until("time passes", |status| {
        fenced_for_ms(status) >= Some(fenced_for_ms(&still).unwrap() + 2000)
    });
    fleet.pharos.fill_disk(false);
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc2");
}

/// Opens the fence, and waits until writes are acknowledged that the replica does not
/// have yet.
fn open_by_hand(folder: &Path, writer: &Writer) {
    let before = writer.acknowledged();
    Fleet::by_hand(folder, &["write", "writes", "open"]);
    eventually("writes are acknowledged", || writer.acknowledged() > before + 5);
}

/// The promotion is tried again for a while. A person who sees refused writes opens the
/// fence meanwhile.
#[test]
fn a_promotion_that_fails_is_not_repeated_after_its_fence_was_opened() {
    if !is_here() {
        return;
    }
    let fleet = with_orders(&orders(5000));
    let writer = Writer::start(fleet.redis().addresses(), false);
    fleet.set_gate("not-now", true);
    drain(&fleet, "dc1");
    fleet.until("it was tried", |_| fleet.command_at("begin write primary dc2").is_some());
    open_by_hand(fleet.folder(), &writer);
    fleet.set_gate("not-now", false);
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc2");
    lag_was_measured_after_the_fence(&fleet, "dc2");
}

/// The server is killed while it promotes, and a person opens the fence before it is
/// started again.
#[test]
fn a_new_server_does_not_promote_on_what_the_old_one_saw() {
    if !is_here() {
        return;
    }
    let (fleet, writer) = promoting();
    let fleet = fleet.replaced(|pharos, folder| {
        pharos.kill();
        let command = format!("{} write primary dc2", folder.join("redis").display());
        eventually("the command is killed", || !runs(&command));
        std::fs::remove_file(folder.join("promotion-gate")).unwrap();
        open_by_hand(folder, &writer);
    });
    fleet.completes();
    nothing_is_lost(&fleet, writer, "dc2");
    lag_was_measured_after_the_fence(&fleet, "dc2");
}
