//! Who did something is what the kernel says, never what was typed; and what is
//! kept of it can be proven.

use crate::common::{eventually, http};
use crate::operator::{prepare, start};
use crate::server::{Pharos, open_to_operators};

/// Accounts that every host has.
pub const BIN: u32 = 2;
const SYS: u32 = 3;
/// A uid that no account has, as processes in a user namespace can take.
const NO_ACCOUNT: u32 = 2_000_100_000;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn two_people_are_two_uids_and_others_do_not_get_in() {
    let home = prepare("one");
    if !open_to_operators(home.path()) {
        return;
    }
    let runbook = home.path().join("runbooks/web.yaml");
    let two = std::fs::read_to_string(&runbook).unwrap();
    let two = two.replace("May web leave?\"", "May web leave?\", people: 2");
    std::fs::write(&runbook, two).unwrap();
    let pharos = Pharos::start(home.path());
    pharos.say(&["drain", "east", "--by", "ann", "--reason", "works"]);
    pharos.until("it asks", |status| status.phase("web.ask") == "running");

    // One user, two names: one person.
    let approve = |by: &'static str| ["approve", "web.ask", "--by", by];
    let first = pharos.run_as(BIN, true, &approve("ann"));
    assert!(first.status.success(), "{first:?}");
    let again = pharos.run_as(BIN, true, &approve("mallory"));
    let complaint = text(&again.stderr);
    assert!(complaint.contains("bin (uid 2) has approved web.ask already"), "{complaint}");
    assert!(complaint.contains("accepted: an operator with another uid"), "{complaint}");
    // Who is not in the group does not even connect.
    let outsider = pharos.run_as(4713, false, &approve("bob"));
    let complaint = text(&outsider.stderr);
    assert!(complaint.contains("a member of its `admin.control_group`"), "{complaint}");
    assert_eq!(pharos.status().phase("web.ask"), "running");
    // One person has thousands of uids without an account: they count as nobody.
    let subordinate = pharos.run_as(NO_ACCOUNT, true, &approve("bob"));
    let complaint = text(&subordinate.stderr);
    assert!(complaint.contains("uid 2000100000 has no account on this host"), "{complaint}");
    assert_eq!(pharos.status().phase("web.ask"), "running");
    // They may look, and change nothing else either.
    let look = pharos.run_as(NO_ACCOUNT, true, &["history"]);
    assert!(look.status.success(), "{look:?}");
    let pause = pharos.run_as(NO_ACCOUNT, true, &["pause"]);
    assert!(!pause.status.success(), "{pause:?}");
    // Another user with the same name: another person.
    let second = pharos.run_as(SYS, true, &approve("ann"));
    assert!(second.status.success(), "{second:?}");
    pharos.until("it ends", |status| status.outcome() == Some("completed"));

    let log = pharos.json(&["audit", "list"]);
    let entries = log["entries"].as_array().unwrap();
    let of = |at: usize| {
        let entry = &entries[at];
        let user = &entry["identity"]["user"];
        assert!(user["pid"].as_i64().is_some_and(|pid| pid > 1), "{entry}");
        (user["uid"].as_u64(), user["gid"].as_u64(), entry["by"].as_str().unwrap().to_owned())
    };
    assert_eq!(of(0), (Some(0), Some(0), "root (uid 0)".into()));
    assert_eq!(of(1), (Some(2), Some(1), "bin (uid 2)".into()));
    assert_eq!(of(2), (Some(3), Some(1), "sys (uid 3)".into()));
    assert_eq!(entries[1]["comment"], "ann");
    let shown = pharos.say(&["history"]);
    assert!(shown.contains("root (uid 0)"), "{shown}");
}

#[test]
fn a_control_socket_that_another_server_answers_on_is_refused_and_a_left_over_is_not() {
    let (home, pharos) = start();
    let other = prepare("two");
    let config = other.path().join("pharos.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let [own, taken] = [other.path(), home.path()].map(|at| at.join("control.sock"));
    let text = text.replace(own.to_str().unwrap(), taken.to_str().unwrap());
    std::fs::write(&config, text).unwrap();
    let log = Pharos::refuse_start(other.path());
    assert!(log.contains("another server answers on it; accepted: that server stopped"), "{log}");
    // Nothing of it was begun, and the first still answers.
    pharos.say(&["history"]);
    pharos.kill();
    assert!(taken.exists(), "a killed server leaves it behind");
    let pharos = Pharos::start(home.path());
    pharos.say(&["history"]);
}

#[test]
fn a_server_whose_store_cannot_be_written_is_not_ready_until_it_can_be() {
    let (_home, pharos) = start();
    let health = || http(pharos.admin, "GET", "/healthz");
    assert_eq!(health().0, 200);
    pharos.fill_disk(true);
    eventually("it says so", || health().0 == 503);
    let (_, body) = health();
    assert!(body.contains("store not writable"), "{body}");
    assert!(body.contains("writing to the store: the disk takes nothing more"), "{body}");
    let metrics = http(pharos.admin, "GET", "/metrics").1;
    assert!(metrics.contains("pharos_drain_store_writable 0"), "{metrics}");
    pharos.fill_disk(false);
    eventually("it is ready again", || health().0 == 200);
}

#[test]
fn an_audit_log_that_was_cut_off_is_found_with_its_sink() {
    let home = prepare("one");
    let at = |name: &str| home.path().join(name);
    let config = std::fs::read_to_string(at("pharos.toml")).unwrap();
    let sink = at("heads");
    let sink = sink.to_str().unwrap();
    let with_sink = format!("[drain]\naudit_sink = \"file:{sink}\"\n");
    std::fs::write(at("pharos.toml"), config.replace("[drain]\n", &with_sink)).unwrap();
    let pharos = Pharos::start(home.path());
    pharos.say(&["drain", "east", "--reason", "works"]);
    pharos.stop();
    std::fs::copy(at("drain.db"), at("early.db")).unwrap();
    let pharos = Pharos::start(home.path());
    pharos.say(&["abort", "--reason", "enough"]);
    pharos.until("it ends", |status| status.outcome() == Some("held"));
    eventually("the head is sent", || std::fs::read_to_string(sink).unwrap().contains("\n2 "));

    let verified = pharos.say(&["audit", "verify"]);
    assert!(verified.contains("not proven: that nothing was cut off at the end"), "{verified}");
    assert!(verified.contains("not proven: that nobody who has the key"), "{verified}");
    let verified = pharos.say(&["audit", "verify", "--sink", sink]);
    assert!(verified.contains("entries 1 to 2 are as they were when they were"), "{verified}");
    assert!(!verified.contains("not proven"), "{verified}");
    pharos.stop();

    // Without a server, with the public key alone.
    let alone = |store: &str, sink: &[&str]| {
        let output = std::process::Command::new(crate::common::PHAROS)
            .args(["audit", "verify", "--store", at(store).to_str().unwrap()])
            .args(["--key", at("drain.db.audit-key.pub").to_str().unwrap()])
            .args(sink)
            .output()
            .unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = alone("drain.db", &["--sink", sink]);
    assert!(code == Some(0) && said.contains("all 3 heads are in the log"), "{said}");
    let (code, said) = alone("early.db", &[]);
    assert!(code == Some(0) && said.starts_with("1 entries"), "{said}");
    let (code, said) = alone("early.db", &["--sink", sink]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the log ends after 1 entries; 2 are in"), "{said}");
    // And with a server that was given the early one.
    std::fs::rename(at("early.db"), at("drain.db")).unwrap();
    let pharos = Pharos::start(home.path());
    pharos.say(&["audit", "verify"]);
    let output = pharos.run(&["audit", "verify", "--sink", sink]);
    let said = text(&output.stdout);
    assert!(output.status.code() == Some(1) && said.contains("the log ends after"), "{said}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (home, pharos) = start();
    pharos.stop();
    let key = home.path().join("drain.db.audit-key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let log = Pharos::refuse_start(home.path());
    assert!(log.contains("others can read or write it (mode 0644)"), "{log}");
}
