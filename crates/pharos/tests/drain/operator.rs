//! What people do to runs, what is kept of it, and what cannot be done.

use std::path::Path;

use tempfile::TempDir;

use crate::common::{complaints_of_promtool, eventually, http};
use crate::server::{Pharos, configure, open_to_operators, write_runbooks};

/// A service that is moved when somebody has said yes. Its weight is a file.
const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {east: 10, west: 10}
drain:
  ask:
    template: Approval
    with: {question: "May web leave?"}
  shift:
    template: TrafficShift
    with: {knob: "files:web-$dc", to: 0%}
    pace: {first: 50%, step_max: 50%, wait: 100ms}
    after: [ask]
restore:
  shift:
    template: TrafficShift
    with: {knob: "files:web-$dc", to: original}
    pace: {first: 50%, step_max: 50%, wait: 100ms}
"#;

pub fn evacuation(datacenter: &str) -> String {
    format!(
        "pharos: evacuation/v1\ndatacenter: {datacenter}\ndatacenters:\n  east: {{capacity: 100}}\n  \
         west: {{capacity: 100}}\nlimits: {{serving_min: 1, drained_max: 50%}}\nservices: [web]\n"
    )
}

/// A folder in which a server named `name` can be started.
pub fn prepare(name: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let (east, west) = (evacuation("east"), evacuation("west"));
    let files = [("web.yaml", WEB), ("east.yaml", &east), ("west.yaml", &west)];
    write_runbooks(home.path(), &files);
    for knob in ["web-east", "web-west"] {
        std::fs::write(home.path().join(knob), "0.8").unwrap();
    }
    tell(home.path(), name);
    home
}

fn tell(folder: &Path, name: &str) {
    let at = folder.display();
    let drain = format!(
        "[drain.drivers.files]\nkind = \"exec\"\nread = [\"cat\", \"--\", \"{at}/{{knob}}\"]\n\
         write = [\"sh\", \"-c\", 'printf %s \"$PHAROS_VALUE\" > \"{at}/$PHAROS_KNOB\"']\n"
    );
    configure(folder, name, &drain);
}

pub fn start() -> (TempDir, Pharos) {
    let home = prepare("one");
    let pharos = Pharos::start(home.path());
    (home, pharos)
}

/// The actions in the audit log, each with what was typed and why. All of them
/// are by the user that runs the tests, whatever was typed.
fn deeds(pharos: &Pharos) -> Vec<String> {
    let log = pharos.json(&["audit", "list"]);
    let uid = rustix::process::geteuid().as_raw();
    for entry in log["entries"].as_array().unwrap() {
        assert_eq!(entry["identity"]["user"]["uid"], uid, "{entry}");
        assert!(entry["by"].as_str().unwrap().contains(&format!("uid {uid}")), "{entry}");
    }
    let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let entries = log["entries"].as_array().unwrap().iter();
    let told = entries.map(|entry| {
        let [by, action, reason] = ["comment", "action", "reason"].map(|key| text(entry, key));
        format!("{by}: {action} ({reason})")
    });
    told.collect()
}

#[test]
fn every_word_to_a_run_is_kept_with_who_and_why() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann", "--reason", "works"]);
    let as_bob = |words: &[&str]| {
        pharos.say(&[words, &["--by", "bob", "--reason", "why not"]].concat());
    };
    for words in [
        &["pause"][..],
        &["resume"],
        &["mode", "disaster"],
        &["accelerate"],
        &["stop", "web.ask"],
        &["retry", "web.ask"],
        &["approve", "web.ask"],
    ] {
        as_bob(words);
    }
    let status = pharos.until("it ends", |status| status.outcome().is_some());
    assert_eq!(status.outcome(), Some("completed"), "{:#}", status.0);
    assert_eq!(std::fs::read_to_string(home.path().join("web-east")).unwrap(), "0");
    let expected = [
        "ann: drain east (works)",
        "bob: pause all (why not)",
        "bob: resume all (why not)",
        "bob: go on as a disaster (why not)",
        "bob: accelerate all (why not)",
        "bob: stop web.ask (why not)",
        "bob: retry web.ask (why not)",
        "bob: approve web.ask (why not)",
    ];
    assert_eq!(deeds(&pharos), expected);
    let page = pharos.say(&["audit", "list", "--limit", "2", "--from", "3"]);
    assert!(page.ends_with("… there are more; go on with --from 5\n"), "{page}");
    assert_eq!(page.lines().count(), 3, "{page}");
    assert!(!pharos.say(&["audit", "list", "--from", "7"]).contains("go on with"));
    assert!(pharos.refuse(&["history", "--limit", "0"]).contains("--limit"));
    assert!(pharos.refuse(&["pause"]).contains("no run goes on"));
    assert!(pharos.refuse(&["pause", "--run", "1"]).contains("run 1 is over: completed"));

    // Back to where it stood, not to all of it.
    pharos.say(&["restore", "east"]);
    pharos.until("it is back", |status| status.outcome() == Some("completed"));
    assert_eq!(std::fs::read_to_string(home.path().join("web-east")).unwrap(), "0.8");
}

#[test]
fn an_abort_puts_everything_back() {
    let (home, pharos) = start();
    // Enough time to think again after the first step.
    let slow = WEB.replace("wait: 100ms", "wait: 3s");
    std::fs::write(home.path().join("runbooks/web.yaml"), slow).unwrap();
    pharos.say(&["drain", "east"]);
    pharos.say(&["skip", "web.ask", "--reason", "nobody is there"]);
    pharos.until("it moves", |status| status.steps("web.shift") >= 1);
    pharos.say(&["abort", "--revert", "--reason", "wrong datacenter"]);
    let status = pharos.until("it ends", |status| status.outcome().is_some());
    assert_eq!(status.outcome(), Some("reverted"), "{:#}", status.0);
    assert_eq!(std::fs::read_to_string(home.path().join("web-east")).unwrap(), "0.8");
}

#[test]
fn what_a_drain_began_can_be_restored_before_it_came_to_the_rest() {
    let (home, pharos) = start();
    let two = WEB
        .replace("    after: [ask]\n", "")
        .replace("  ask:\n", "  more:\n    template: TrafficShift\n    with: {knob: \"files:chat-$dc\", to: 0%}\n    after: [ask]\n  ask:\n    after: [shift]\n")
        .replace("restore:\n", "restore:\n  more:\n    template: TrafficShift\n    with: {knob: \"files:chat-$dc\", to: original}\n");
    std::fs::write(home.path().join("runbooks/web.yaml"), two).unwrap();
    for knob in ["chat-east", "chat-west"] {
        std::fs::write(home.path().join(knob), "0.7").unwrap();
    }
    pharos.say(&["drain", "east"]);
    pharos.until("half is drained", |status| status.phase("web.ask") == "running");
    pharos.say(&["abort", "--reason", "false alarm"]);
    pharos.until("it is held", |status| status.outcome() == Some("held"));
    let knob = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    assert_eq!((knob("web-east"), knob("chat-east")), ("0".into(), "0.7".into()));
    // That it cannot be read is no reason to leave the rest drained.
    std::fs::rename(home.path().join("chat-east"), home.path().join("away")).unwrap();
    pharos.say(&["restore", "east"]);
    pharos.until("it is back", |status| status.outcome() == Some("completed"));
    std::fs::rename(home.path().join("away"), home.path().join("chat-east")).unwrap();
    assert_eq!((knob("web-east"), knob("chat-east")), ("0.8".into(), "0.7".into()));
}

#[test]
fn what_comes_back_by_itself_is_shown_below_the_last_run() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann"]);
    let metrics = http(pharos.admin, "GET", "/metrics").1;
    let runs = "pharos_drain_tasks{datacenter=\"east\",direction=\"drain\",phase=\"running\"} 1";
    assert!(metrics.lines().any(|line| line == runs), "{metrics}");
    pharos.say(&["approve", "web.ask", "--by", "bob"]);
    pharos.until("it is drained", |status| status.outcome() == Some("completed"));
    pharos.stop();
    // A server looks when it starts, and then every 3 s.
    std::fs::write(home.path().join("web-east"), "0.8").unwrap();
    let pharos = Pharos::start(home.path());
    let status = pharos.until("it is noticed", |status| status.0["strayed"][0].is_object());
    assert_eq!(status.0["strayed"][0]["knob"], "files:web-east");
    let shown = pharos.say(&["status"]);
    let line = shown.lines().find(|line| line.contains("files:web-east")).expect(&shown);
    assert!(line.ends_with(" 0.8, was left at 0"), "{shown}");
    assert!(shown.contains("`drain east` sets them again"), "{shown}");
    let why = "it is not put back: keep_drained is `disaster`, and the drain was a drill; `pharos \
               drain east` does that";
    assert!(pharos.log().contains(why), "{}", pharos.log());
    let metrics = http(pharos.admin, "GET", "/metrics").1;
    assert_eq!(complaints_of_promtool(&metrics), "");
    let drifted = "pharos_drain_knobs_strayed{datacenter=\"east\"} 1";
    // Nothing is drained any more.
    for line in ["pharos_drain_share{datacenter=\"east\"} 0", "pharos_drain_runs 0", drifted] {
        assert!(metrics.lines().any(|own| own == line), "{metrics}");
    }
}

#[test]
fn a_changed_entry_of_the_audit_log_is_found() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann", "--reason", "the honest reason"]);
    pharos.say(&["abort", "--by", "bob", "--reason", "enough"]);
    pharos.until("it ends", |status| status.outcome() == Some("held"));
    let verified = pharos.say(&["audit", "verify"]);
    assert!(verified.starts_with("2 entries, the chain is whole; head 2:"), "{verified}");
    assert!(verified.contains(": entries 1 to 2; nobody without that key changed"), "{verified}");
    // Whoever remembers the head sees also what was cut off.
    let head = verified.lines().next().unwrap().rsplit(' ').next().unwrap();
    pharos.say(&["audit", "verify", "--head", head]);
    let longer = head.replacen("2:", "3:", 1);
    let output = pharos.run(&["audit", "verify", "--head", &longer]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("the log ends after 2 entries; 3 are in the head that was given"),
        "{said}"
    );
    assert!(pharos.refuse(&["audit", "verify", "--head", "2"]).contains("head=N:DIGEST"));
    pharos.stop();
    // Past every guard of the database: in the file itself.
    let path = home.path().join("drain.db");
    let mut octets = std::fs::read(&path).unwrap();
    let (honest, forged) = (b"the honest reason", b"the better reason");
    let places: Vec<usize> =
        (0..octets.len() - honest.len()).filter(|at| octets[*at..].starts_with(honest)).collect();
    assert!(!places.is_empty(), "everything is in the one file after a stop");
    for at in places {
        octets[at..at + forged.len()].copy_from_slice(forged);
    }
    std::fs::write(&path, octets).unwrap();
    let pharos = Pharos::start(home.path());
    let output = pharos.run(&["audit", "verify"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("entry 1 is not as it was"), "{said}");
}

#[test]
fn a_store_is_taken_elsewhere_and_its_runs_go_on_there() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--disaster", "--by", "ann"]);
    pharos.until("it waits", |status| status.phase("web.ask") == "running");
    let before = pharos.status();
    let shown = pharos.say(&["status"]);
    assert!(shown.contains("(0 of 1 said yes: `approve web.ask`)"), "{shown}");
    pharos.stop();
    let elsewhere = prepare("two");
    std::fs::copy(home.path().join("drain.db"), elsewhere.path().join("drain.db")).unwrap();
    let pharos = Pharos::start(elsewhere.path());
    let after = pharos.status();
    assert_eq!(after.0["run"], before.0["run"]);
    assert_eq!(after.0["mode"], "disaster");
    pharos.say(&["approve", "web.ask", "--by", "bob"]);
    pharos.until("it ends", |status| status.outcome() == Some("completed"));
    let moved = |home: &TempDir| std::fs::read_to_string(home.path().join("web-east")).unwrap();
    assert_eq!((moved(&home), moved(&elsewhere)), ("0.8".into(), "0".into()));
}

#[test]
fn what_a_killed_server_left_goes_on_elsewhere() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann"]);
    pharos.until("it waits", |status| status.phase("web.ask") == "running");
    pharos.kill();
    let elsewhere = prepare("two");
    // Nobody folded the one into the other: the run is in both.
    for file in ["drain.db", "drain.db-wal", "drain.db.audit-key"] {
        std::fs::copy(home.path().join(file), elsewhere.path().join(file)).unwrap();
    }
    assert!(std::fs::metadata(elsewhere.path().join("drain.db-wal")).unwrap().len() > 0);
    let pharos = Pharos::start(elsewhere.path());
    // Its name is another, so it waits until the lease is over.
    eventually("it is taken up", || pharos.json(&["history"])["runs"][0]["driven_by"] == "two");
    pharos.say(&["approve", "web.ask", "--by", "bob"]);
    pharos.until("it ends", |status| status.outcome() == Some("completed"));
    assert_eq!(std::fs::read_to_string(elsewhere.path().join("web-east")).unwrap(), "0");
    assert_eq!(deeds(&pharos), ["ann: drain east ()", "bob: approve web.ask ()"]);
    assert!(pharos.say(&["audit", "verify"]).starts_with("2 entries, the chain is whole"));
}

#[test]
fn who_watches_goes_on_when_the_server_does() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann"]);
    let seen = home.path().join("seen");
    let mut watching = std::process::Command::new(crate::common::PHAROS)
        .args(["status", "1", "--watch", "--json", "--control"])
        .arg(home.path().join("control.sock"))
        .stdout(std::fs::File::create(&seen).unwrap())
        .spawn()
        .unwrap();
    eventually("it is seen", || !std::fs::read_to_string(&seen).unwrap().is_empty());
    pharos.kill();
    let pharos = Pharos::start(home.path());
    pharos.say(&["abort", "--by", "ann", "--reason", "enough"]);
    assert_eq!(watching.wait().unwrap().code(), Some(1), "it was not completed");
    let seen = std::fs::read_to_string(&seen).unwrap();
    assert!(seen.lines().last().unwrap().contains("\"outcome\":\"held\""), "{seen}");
}

#[test]
fn what_people_write_is_shown_and_never_obeyed() {
    let (home, pharos) = start();
    let hostile = "\u{1b}[2J\u{9b}31m</td><script>alert(1)</script>\nrun 2: all is well";
    pharos.say(&["drain", "east", "--by", hostile, "--reason", hostile]);
    pharos.say(&["abort", "--by", hostile, "--reason", hostile]);
    pharos.until("it ends", |status| status.outcome().is_some());
    for words in [&["history"][..], &["audit", "list"], &["status"], &["report", "1"]] {
        let shown = pharos.say(words);
        assert!(!shown.contains(['\u{1b}', '\u{9b}']), "{words:?}: {shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with("run 2")), "{words:?}: {shown}");
    }
    let complaint = pharos.refuse(&["skip", hostile, "--run", "1", "--reason", "x"]);
    assert!(!complaint.contains(['\u{1b}', '\u{9b}']), "{complaint:?}");
    let page = home.path().join("report.html");
    pharos.say(&["report", "1", "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
    // Machines get what was written, in JSON.
    assert_eq!(pharos.json(&["history"])["runs"][0]["reason"], hostile);
}

/// Any user of the host can take the port while the server is down.
#[test]
fn a_run_is_driven_although_something_else_has_the_admin_port() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east"]);
    pharos.kill();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let config = home.path().join("pharos.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("127.0.0.1:0", &taken.to_string())).unwrap();
    let pharos = Pharos::start_beside(home.path(), taken);
    assert!(pharos.log().contains("drains are driven"), "{}", pharos.log());
    pharos.say(&["approve", "web.ask"]);
    pharos.until("it is drained", |status| status.outcome() == Some("completed"));
    drop(other);
    eventually("the port is taken again", || {
        std::net::TcpStream::connect(taken).is_ok() && pharos.log().contains("answers on")
    });
    assert_eq!(http(taken, "GET", "/healthz").0, 200);
}

#[test]
fn machines_read_in_json_what_did_not_work() {
    let (home, pharos) = start();
    let nowhere = home.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    let pharos_alone = |words: &[&str]| {
        std::process::Command::new(crate::common::PHAROS).args(words).output().unwrap()
    };
    for (output, expected) in [
        (pharos.run(&["drain", "north", "--json"]), "no evacuation of `north`"),
        (pharos.run(&["status", "--json"]), "there was no run yet"),
        (pharos.run(&["pause", "--json"]), "no run goes on"),
        (pharos.run(&["status", "9", "--json"]), "no run 9"),
        (pharos.run(&["report", "9", "--json"]), "no run 9"),
        (pharos_alone(&["history", "--json", "--control", nowhere]), "no server answers"),
        (pharos_alone(&["runbook", "check", "--json", nowhere]), "cannot be read"),
        (pharos_alone(&["runbook", "plan", "--json", "east", nowhere]), "cannot be read"),
        (pharos_alone(&["lab", "run", "--json", nowhere, "--runbook", nowhere]), "cannot be read"),
    ] {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(said["error"].as_str().unwrap().contains(expected), "{said}");
    }
}

#[test]
fn the_way_back_can_be_planned_and_drawn_without_a_server() {
    let home = prepare("one");
    let runbooks = home.path().join("runbooks");
    let alone = |words: &[&str]| {
        let output = std::process::Command::new(crate::common::PHAROS)
            .args(["runbook"])
            .args(words)
            .args(["--restore", "east"])
            .arg(&runbooks)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(alone(&["plan"]).contains("files:web-east                       ? → 1  (web.shift)"));
    assert!(alone(&["graph"]).contains("Restore of east: 1 task"));
}

#[test]
fn limits_count_what_other_runs_drain() {
    let home = prepare("one");
    let is_open = open_to_operators(home.path());
    let pharos = Pharos::start(home.path());
    pharos.say(&["drain", "east", "--overload"]);
    let refused = pharos.refuse(&["drain", "west", "--overload"]);
    assert!(refused.contains("east is drained (open drain, run 1)"), "{refused}");
    pharos.say(&["drain", "west", "--overload", "--disaster"]);
    let held = pharos.until("the second is held", |status| {
        status.0["datacenter"] == "west" && !status.task("web.ask")["hold"].is_null()
    });
    let why = held.task("web.ask")["hold"]["why"].as_str().unwrap();
    assert!(why.starts_with("limit: serving_min is 1") && why.contains("run 1"), "{why}");
    let several = pharos.refuse(&["approve", "web.ask"]);
    assert!(several.contains("several runs go on; say which with --run"), "{several}");
    // One alone may not set limits aside, whatever is typed.
    let waive = |by: &'static str| ["waive", "--run", "2", "--by", by, "--reason", "both burn"];
    pharos.say(&waive("ann"));
    let refused = pharos.refuse(&waive("bob"));
    assert!(refused.contains("accepted: an operator with another uid"), "{refused}");
    assert_eq!(pharos.status().phase("web.ask"), "waiting");
    if !is_open {
        return;
    }
    let output = pharos.run_as(crate::identity::BIN, true, &waive("ann"));
    assert!(output.status.success(), "{output:?}");
    pharos.until("it begins", |status| status.phase("web.ask") == "running");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_moved() {
    let (home, pharos) = start();
    assert!(pharos.refuse(&["drain", "north"]).contains("no evacuation of `north`"));
    let complaint = pharos.refuse(&["restore", "east"]);
    assert!(complaint.contains("nothing says where"), "{complaint}");
    let nowhere = WEB.replace("files:web-", "fails:web-");
    std::fs::write(home.path().join("runbooks/web.yaml"), nowhere).unwrap();
    let complaint = pharos.refuse(&["drain", "east"]);
    assert!(complaint.contains("no driver \"fails\"; configured: files"), "{complaint}");
    let heavy = WEB.replace("east: 10, west: 10", "east: 70, west: 70");
    std::fs::write(home.path().join("runbooks/web.yaml"), heavy).unwrap();
    let complaint = pharos.refuse(&["drain", "east"]);
    assert!(complaint.contains("does not fit") && complaint.contains("--overload"), "{complaint}");
    eventually("nothing was begun", || pharos.say(&["history"]).starts_with("no runs"));
    // Better half of a drain than none; but what cannot be done is said.
    let nowhere = WEB.replace("files:web-", "fails:web-");
    std::fs::write(home.path().join("runbooks/web.yaml"), nowhere).unwrap();
    let said = pharos.say(&["drain", "east", "--disaster"]);
    assert!(said.starts_with("warning: fails:web-east: there is no driver"), "{said}");
}

#[test]
fn a_run_that_cannot_be_written_says_so_and_keeps_nobody_waiting() {
    let (_home, pharos) = start();
    pharos.say(&["drain", "east", "--by", "ann"]);
    pharos.until("it waits", |status| status.phase("web.ask") == "running");
    pharos.fill_disk(true);
    let approve = ["approve", "web.ask", "--by", "bob"];
    let complaint = pharos.refuse(&approve);
    assert!(complaint.contains("run 1 stands still"), "{complaint}");
    assert!(complaint.contains("what was said counts when it goes on"), "{complaint}");
    let complaint = pharos.refuse(&["pause"]);
    assert!(complaint.contains("nothing was said to it"), "{complaint}");
    let shown = pharos.say(&["status"]);
    assert!(shown.contains("standing still"), "{shown}");
    assert!(shown.contains("nothing is done until it can be written: keeping a step"), "{shown}");
    pharos.fill_disk(false);
    let status = pharos.until("it ends", |status| status.outcome().is_some());
    assert_eq!(status.outcome(), Some("completed"));
    assert!(status.0["stands_still"].is_null());
    assert_eq!(deeds(&pharos), ["ann: drain east ()", "bob: approve web.ask ()"]);
}

#[test]
fn who_watches_from_the_beginning_is_warned_as_well() {
    let (home, pharos) = start();
    let nowhere = WEB.replace("files:web-", "fails:web-");
    std::fs::write(home.path().join("runbooks/web.yaml"), nowhere).unwrap();
    let said = home.path().join("said");
    let mut watching = std::process::Command::new(crate::common::PHAROS)
        .args(["drain", "east", "--disaster", "--watch", "--control"])
        .arg(home.path().join("control.sock"))
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    eventually("it is begun", || pharos.say(&["history"]).contains("goes on"));
    pharos.say(&["abort", "--reason", "enough"]);
    watching.wait().unwrap();
    let said = std::fs::read_to_string(&said).unwrap();
    assert!(said.starts_with("warning: fails:web-east: there is no driver"), "{said}");
}

#[test]
fn what_runbooks_do_not_know_any_more_is_not_left_behind_in_silence() {
    let (home, pharos) = start();
    pharos.say(&["drain", "east"]);
    pharos.say(&["approve", "web.ask"]);
    pharos.until("it is drained", |status| status.outcome() == Some("completed"));
    // Renamed while it was drained.
    let renamed = WEB.replace("files:web-", "files:shop-");
    std::fs::write(home.path().join("runbooks/web.yaml"), renamed).unwrap();
    std::fs::write(home.path().join("shop-east"), "0.8").unwrap();
    let complaint = pharos.refuse(&["restore", "east"]);
    let expected =
        "files:web-east: run 1 set it, it was 0.8 before, and this restore does not bring it back";
    assert!(complaint.contains(expected), "{complaint}");
    let plan = pharos.run(&["plan", "east", "--restore"]);
    assert_eq!(plan.status.code(), Some(1));
    assert!(String::from_utf8(plan.stdout).unwrap().contains(expected));
    // The runbooks as they were put it back.
    std::fs::write(home.path().join("runbooks/web.yaml"), WEB).unwrap();
    pharos.say(&["restore", "east"]);
    pharos.until("it is back", |status| status.outcome() == Some("completed"));
    assert_eq!(std::fs::read_to_string(home.path().join("web-east")).unwrap(), "0.8");
}
