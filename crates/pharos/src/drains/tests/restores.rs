//! What counts after a restore that did not have everything: services and knobs
//! that runbooks no longer know, and restores that moved nothing.

use super::fleet::{AT_ONCE, DATACENTERS, Site, web};
use super::*;
use drain::engine::{Phase, RunOutcome};

const ANY_SHARE: &str = "limits: {drained_max: 100%}";

/// A service that no knob carries.
fn knobless(name: &str) -> String {
    format!(
        r#"
pharos: service/v1
service: {name}
traffic: stateless
user_facing: true
load: {{east: 10, west: 10, south: 10}}
drain:
  stop: {{template: Exec, with: {{driver: files, action: "stop-$dc"}}}}
restore:
  start: {{template: Exec, with: {{driver: files, action: "start-$dc"}}}}
"#
    )
}

/// Evacuations of three datacenters with these services.
fn evacuate(site: &Site, services: &str) {
    for name in DATACENTERS {
        let text = format!(
            "pharos: evacuation/v1\ndatacenter: {name}\nservices: [{services}]\n{ANY_SHARE}\n\
             datacenters: {{east: {{capacity: 100}}, west: {{capacity: 100}}, \
             south: {{capacity: 100}}}}\n"
        );
        write_runbooks(site.home.path(), &[(name, &text)]);
    }
}

async fn completes(site: &Site, datacenter: &str, direction: Direction, mode: Mode) -> RunId {
    let run = site.begin(datacenter, direction, mode).await.unwrap();
    assert_eq!(site.over(run).await, Some(RunOutcome::Completed));
    run
}

#[tokio::test]
async fn a_service_without_knobs_is_gone_until_a_restore_had_it() {
    let site = Site::start(3, &web(AT_ONCE, ""), ANY_SHARE).await;
    write_runbooks(site.home.path(), &[("jobs", &knobless("jobs"))]);
    evacuate(&site, "web, jobs");
    completes(&site, "east", Direction::Drain, Mode::Drill).await;
    // A restore that does not have it is refused in a drill, and brings nothing of it back.
    evacuate(&site, "web");
    let refused = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap_err();
    assert!(refused.contains("service jobs: run 1 moved it out of east"), "{refused}");
    completes(&site, "east", Direction::Restore, Mode::Disaster).await;
    evacuate(&site, "web, jobs");
    let west = completes(&site, "west", Direction::Drain, Mode::Drill).await;
    let refused = site.drain("south").await.unwrap_err();
    assert!(refused.contains("without south 0 datacenters would serve jobs"), "{refused}");
    assert!(refused.contains(&format!("west is drained (drain, run {west})")), "{refused}");
    // Also after a second restore that did not have it.
    evacuate(&site, "web");
    completes(&site, "west", Direction::Restore, Mode::Disaster).await;
    evacuate(&site, "web, jobs");
    let refused = site.drain("south").await.unwrap_err();
    assert!(refused.contains("without south 0 datacenters would serve jobs"), "{refused}");
    // The weight is back; one that has the service brings the rest.
    let back = completes(&site, "east", Direction::Restore, Mode::Drill).await;
    let status = site.drains.status(back).await.unwrap();
    let reasons: Vec<_> = status.tasks.iter().map(|own| (&*own.name, &own.reason)).collect();
    assert!(matches!(&reasons[..], [("web.shift", Some(_)), ("jobs.start", None)]), "{reasons:?}");
    completes(&site, "south", Direction::Drain, Mode::Drill).await;
}

/// A drain that ended before it came to a knob.
#[tokio::test]
async fn a_restore_undoes_what_a_drain_did_before_it_came_to_a_knob() {
    let asked = r#"
  stop: {template: Exec, with: {driver: files, action: "stop-$dc"}}
  ask: {template: Approval, with: {question: Now?}, after: [stop]}
  shift:
    after: [ask]"#;
    let started = r#"restore:
  start: {template: Exec, with: {driver: files, action: "start-$dc"}}"#;
    let service = web(AT_ONCE, "").replacen("\n  shift:", asked, 1).replace("restore:", started);
    let site = Site::start(3, &service, ANY_SHARE).await;
    let run = site.begin("east", Direction::Drain, Mode::Drill).await.unwrap();
    until(async || {
        let status = site.drains.status(run).await.unwrap();
        status.tasks.iter().any(|own| own.name == "web.ask" && own.phase == Phase::Running)
    })
    .await;
    site.say(run, "ann", Verb::Abort { how: Abort::Hold }).await;
    assert_eq!(site.over(run).await, Some(RunOutcome::Held));
    completes(&site, "east", Direction::Restore, Mode::Drill).await;
    // Now there is nothing to undo.
    let refused = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap_err();
    assert!(refused.contains("nothing says where"), "{refused}");
}

#[tokio::test]
async fn a_restore_does_not_wait_for_drains_that_are_begun() {
    let site = Site::start(3, &web(AT_ONCE, ""), ANY_SHARE).await;
    site.drained("east", Mode::Drill).await;
    // As while a drain waits for knobs that do not respond.
    let _begun = site.drains.begins.lock().await;
    completes(&site, "east", Direction::Restore, Mode::Drill).await;
}

#[tokio::test]
async fn a_renamed_service_without_knobs_is_not_taken_to_serve() {
    let site = Site::start(3, &web(AT_ONCE, ""), ANY_SHARE).await;
    write_runbooks(site.home.path(), &[("jobs", &knobless("jobs"))]);
    evacuate(&site, "jobs");
    completes(&site, "east", Direction::Drain, Mode::Drill).await;
    completes(&site, "west", Direction::Drain, Mode::Drill).await;
    let refused = site.drain("south").await.unwrap_err();
    assert!(refused.contains("without south 0 datacenters would serve jobs"), "{refused}");
    write_runbooks(site.home.path(), &[("jobs", &knobless("workers"))]);
    evacuate(&site, "workers");
    let refused = site.drain("south").await.unwrap_err();
    assert!(refused.contains("whether workers is served elsewhere is unknown"), "{refused}");
    assert!(refused.contains("jobs, which run 1 moved out of east"), "{refused}");
    // Once restores had it under its new name it is known.
    completes(&site, "east", Direction::Restore, Mode::Disaster).await;
    completes(&site, "west", Direction::Restore, Mode::Disaster).await;
    completes(&site, "south", Direction::Drain, Mode::Drill).await;
}

#[tokio::test]
async fn a_restore_that_does_not_know_a_knob_keeps_its_original() {
    let site = Site::start(2, &web(AT_ONCE, ""), "").await;
    site.set("east", "0.8");
    site.drained("east", Mode::Drill).await;
    // The same knobs under other names.
    for name in ["east", "west"] {
        let new = site.home.path().join(format!("shop-{name}"));
        std::os::unix::fs::symlink(format!("web-{name}"), new).unwrap();
    }
    let web = web(AT_ONCE, "").replace(", south: 10", "");
    write_runbooks(site.home.path(), &[("web", &web.replace("files:web-", "files:shop-"))]);
    let refused = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap_err();
    assert!(refused.contains("files:web-east: run 1 set it, it was 0.8 before"), "{refused}");
    let back = completes(&site, "east", Direction::Restore, Mode::Disaster).await;
    assert_eq!(site.weight("east"), 0.0);
    let status = site.drains.status(back).await.unwrap();
    let need = status.needs_person.iter().find(|own| own.knob.is_some()).expect("an entry");
    assert_eq!(need.knob.as_deref(), Some("files:web-east"));
    assert!(need.why.contains("was 0.8 before"), "{need:?}");
    let reason = status.tasks[0].reason.as_deref().unwrap_or_default();
    assert!(reason.contains("nothing to bring back"), "{reason:?}");
    // Under its old name it comes back, and waits for no person any more.
    write_runbooks(site.home.path(), &[("web", &web)]);
    completes(&site, "east", Direction::Restore, Mode::Drill).await;
    assert_eq!(site.weight("east"), 0.8);
    assert_eq!(site.drains.status(back).await.unwrap().needs_person, []);
    assert_eq!(site.drains.store().originals("east").await.unwrap(), []);
}

/// The run says `completed`; the person who took it out, or another, has to bring it back.
#[tokio::test]
async fn a_restore_that_left_a_knob_out_says_so_until_another_brings_it_back() {
    let unsigned = web(AT_ONCE, "").replace(", south: 10", "");
    let signed = unsigned.clone()
        + "  sign:\n    template: Approval\n    with: {question: \"does east look well?\"}\n    \
           after: [shift]\n";
    let site = Site::start(2, &signed, "").await;
    site.drained("east", Mode::Drill).await;
    let run = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    until(async || site.drains.status(run).await.unwrap().tasks[1].phase == Phase::Running).await;
    assert_eq!(site.weight("east"), 1.0);
    site.set("east", "0");
    let task = site.drains.status(run).await.unwrap().tasks[1].name.clone();
    site.say(run, "ann", Verb::Approve { task }).await;
    assert_eq!(site.over(run).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 0.0);
    let needs = site.drains.status(run).await.unwrap().needs_person.clone();
    let [need] = &needs[..] else { panic!("{needs:?}") };
    assert_eq!((need.kind, need.knob.as_deref()), (NeedKind::NotBack, Some("files:web-east")));
    assert!(need.why.starts_with("0 at the end, not 1: "), "{need:?}");
    // It is still the original that comes back, and then nothing waits for a person.
    write_runbooks(site.home.path(), &[("web", &unsigned)]);
    completes(&site, "east", Direction::Restore, Mode::Drill).await;
    assert_eq!(site.weight("east"), 1.0);
    assert_eq!(site.drains.status(run).await.unwrap().needs_person, []);
    assert_eq!(site.drains.store().originals("east").await.unwrap(), []);
}

#[tokio::test]
async fn only_what_the_operator_gives_up_is_forgotten() {
    let site = Site::start(3, &web(AT_ONCE, ""), ANY_SHARE).await;
    write_runbooks(site.home.path(), &[("jobs", &knobless("jobs")), ("cron", &knobless("cron"))]);
    evacuate(&site, "web, jobs");
    completes(&site, "east", Direction::Drain, Mode::Drill).await;
    // Both are gone for good.
    for name in ["web", "jobs"] {
        std::fs::remove_file(site.home.path().join(format!("runbooks/{name}.yaml"))).unwrap();
    }
    evacuate(&site, "cron");
    let give_up = async |names: &[&str]| {
        let wanted = Wanted {
            datacenter: "east".into(),
            direction: Direction::Restore,
            mode: Mode::Drill,
            by: user(1000),
            reason: "it is gone".into(),
            overload: false,
            give_up: names.iter().map(|&name| name.to_owned()).collect(),
        };
        site.drains.begin(wanted).await.map_err(|refused| refused.to_string())
    };
    let refused = give_up(&["jbos"]).await.unwrap_err();
    assert!(refused.contains("`jbos`") && refused.ends_with("files:web-east, jobs"), "{refused}");
    let refused = give_up(&["jobs"]).await.unwrap_err();
    assert!(refused.contains("files:web-east") && !refused.contains("jobs"), "{refused}");
    let refused = site.drain("west").await.unwrap_err();
    assert!(refused.contains("it may be jobs, which run 1 moved out of east"), "{refused}");
    let (run, _) = give_up(&["jobs", "files:web-east"]).await.unwrap();
    assert_eq!(site.over(run).await, Some(RunOutcome::Completed));
    assert_eq!(site.drains.status(run).await.unwrap().needs_person, []);
    assert_eq!(site.drains.store().originals("east").await.unwrap(), []);
    let audit = site.drains.store().audit(1, 100).await.unwrap();
    let action = "restore east, give up files:web-east, give up jobs";
    assert!(audit.iter().any(|entry| entry.action == action), "{audit:?}");
    let plan = site.drains.plan("east", Direction::Restore, Turn::Run).await.unwrap();
    assert_eq!(plan.left_behind, []);
    completes(&site, "west", Direction::Drain, Mode::Drill).await;
}

#[tokio::test]
async fn a_restore_that_moved_nothing_ends_no_kept_drain() {
    let asking = web(AT_ONCE, "").replace(
        "restore:\n  shift:\n",
        "restore:\n  ask: {template: Approval, with: {question: \"Now?\"}}\n  shift:\n    \
         after: [ask]\n",
    );
    let site = Site::start(2, &asking, "keep_drained: always").await;
    site.drained("east", Mode::Disaster).await;
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    site.say(back, "ann", Verb::Abort { how: Abort::Hold }).await;
    assert_eq!(site.over(back).await, Some(RunOutcome::Held));
    site.set("east", "1");
    until(async || site.weight("east") == 0.0).await;
    until(async || site.newest().await.outcome.is_some()).await;
    assert_eq!(site.newest().await.actor, "keep_drained (automatic)");
    // One that moved it ends it.
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    site.say(back, "ann", Verb::Approve { task: "web.ask".into() }).await;
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 1.0);
    site.drains.look_between_runs().await.unwrap();
    assert_eq!(site.newest().await.id, back);
}

/// What a person took out of a datacenter that burns is not brought back: neither at once
/// nor by anything but a restore.
#[tokio::test]
async fn what_a_person_moved_out_after_a_drain_is_not_brought_back() {
    let slow = "{first: 40%, step_max: 40%, adaptive: false, wait: 1h, wait_max: 1h}";
    let site = Site::start(2, &web(slow, ""), "keep_drained: always").await;
    let drain = site.begin("east", Direction::Drain, Mode::Disaster).await.unwrap();
    until(async || site.weight("east") == 0.6).await;
    site.say(drain, "ann", Verb::Abort { how: Abort::Hold }).await;
    site.over(drain).await;
    site.set("east", "0");
    for _ in 0..3 {
        site.drains.look_between_runs().await.unwrap();
    }
    assert_eq!(site.newest().await.id, drain, "no run puts it back");
    assert_eq!(site.weight("east"), 0.0);
    let strayed = site.drains.status(drain).await.unwrap().strayed.clone();
    assert!(strayed[0].why.contains("lets less in than the drain left"), "{strayed:?}");
}

/// A reload that brings traffic back while a restore waits for its first step is told.
#[tokio::test]
async fn what_comes_back_while_a_restore_waits_is_told() {
    let asking = web(AT_ONCE, "").replace(
        "restore:\n  shift:\n",
        "restore:\n  ask: {template: Approval, with: {question: \"Now?\"}}\n  shift:\n    \
         after: [ask]\n",
    );
    let site = Site::start(2, &asking, "keep_drained: always").await;
    site.drained("east", Mode::Disaster).await;
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    site.set("east", "1");
    site.drains.look_between_runs().await.unwrap();
    let strayed = site.drains.status(back).await.unwrap().strayed.clone();
    assert!(strayed[0].why.contains(&format!("run {back} is open")), "{strayed:?}");
    let metric = "pharos_drain_knobs_strayed{datacenter=\"east\"}";
    assert_eq!(site.metric(metric).await, Some(1.0));
    assert_eq!(site.metric("pharos_drain_share{datacenter=\"east\"}").await, Some(0.0));
    // Aborted, it is kept drained again.
    site.say(back, "ann", Verb::Abort { how: Abort::Hold }).await;
    site.over(back).await;
    until(async || site.weight("east") == 0.0).await;
}

/// Who restores the last datacenter is told what lets through what nobody knows to take out
/// traffic.
#[tokio::test]
async fn a_restore_that_a_limit_holds_for_words_says_that_a_disaster_lets_it_through() {
    let switch = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {east: 10, west: 10}
drain:
  off: {template: ConfigChange, with: {knob: "files:web-$dc", content: "off"}}
restore:
  on: {template: ConfigChange, with: {knob: "files:web-$dc", content: original}}
"#;
    let site = Site::start(2, switch, ANY_SHARE).await;
    site.set("east", "on");
    site.set("west", "on");
    completes(&site, "east", Direction::Drain, Mode::Drill).await;
    // The driver has a word of its own for it, and the other datacenter dies.
    site.set("east", "offline");
    site.set("west", "off");
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    let told = async || site.drains.status(back).await.unwrap().needs_person.clone();
    until(async || told().await.iter().any(|need| need.kind == status::NeedKind::Limit)).await;
    assert_eq!(
        told().await[0].todo,
        "`skip web.on`, which leaves in what serves now, or `mode disaster` if what is in now \
         does not serve, or let another datacenter serve first"
    );
    site.say(back, "ann", Verb::Mode { mode: Mode::Disaster }).await;
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    let found = std::fs::read_to_string(site.home.path().join("web-east")).unwrap();
    assert_eq!(found.trim(), "on");
}

/// A restore that ended while a person had moved a knob out again leaves its original.
#[tokio::test]
async fn what_was_moved_out_during_a_restore_is_brought_back_by_another_one() {
    let asking = web(AT_ONCE, "").replace(
        "restore:\n  shift:\n",
        "restore:\n  ask:\n    template: Approval\n    with: {question: \"Done?\"}\n    \
         after: [shift]\n  shift:\n",
    );
    let site = Site::start(2, &asking, "").await;
    site.drained("east", Mode::Drill).await;
    let asks = async |run: RunId| {
        let status = site.drains.status(run).await.unwrap();
        status.tasks.iter().any(|own| own.name == "web.ask" && own.phase == Phase::Running)
    };
    for weight in [0.0, 1.0] {
        let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
        until(async || asks(back).await).await;
        assert_eq!(site.weight("east"), 1.0);
        site.set("east", &weight.to_string());
        site.say(back, "ann", Verb::Approve { task: "web.ask".into() }).await;
        assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
        assert_eq!(site.weight("east"), weight);
    }
}

/// Neither many runs that moved nothing nor a restore that did not have the knob end it.
#[tokio::test]
async fn what_no_restore_brought_back_stays_kept() {
    let site = Site::start(2, &web(AT_ONCE, ""), "keep_drained: always").await;
    site.drained("east", Mode::Disaster).await;
    for name in ["east", "west"] {
        let new = site.home.path().join(format!("shop-{name}"));
        std::os::unix::fs::symlink(format!("web-{name}"), new).unwrap();
    }
    let web = web(AT_ONCE, "").replace(", south: 10", "");
    write_runbooks(site.home.path(), &[("web", &web.replace("files:web-", "files:shop-"))]);
    completes(&site, "east", Direction::Restore, Mode::Disaster).await;
    assert_eq!(site.weight("east"), 0.0);
    put_back(&site).await;
    // And so do more of them than are looked through: none moves anything.
    for _ in 0..60 {
        completes(&site, "east", Direction::Restore, Mode::Disaster).await;
    }
    put_back(&site).await;
    // One that has it ends it.
    write_runbooks(site.home.path(), &[("web", &web)]);
    let back = completes(&site, "east", Direction::Restore, Mode::Drill).await;
    assert_eq!(site.weight("east"), 1.0);
    site.drains.look_between_runs().await.unwrap();
    assert_eq!(site.newest().await.id, back);
}

/// Traffic comes back to a drained datacenter, and is moved out again.
async fn put_back(site: &Site) {
    let before = site.newest().await.id;
    site.set("east", "1");
    until(async || site.weight("east") == 0.0).await;
    until(async || site.newest().await.outcome.is_some()).await;
    let newest = site.newest().await;
    assert!(newest.id > before);
    assert_eq!(newest.actor, "keep_drained (automatic)");
}

#[tokio::test]
async fn what_an_unreadable_run_left_is_not_taken_to_serve() {
    let site = Site::start(3, &web(AT_ONCE, ""), ANY_SHARE).await;
    write_runbooks(site.home.path(), &[("jobs", &knobless("jobs"))]);
    evacuate(&site, "jobs");
    completes(&site, "west", Direction::Drain, Mode::Drill).await;
    let east = completes(&site, "east", Direction::Drain, Mode::Drill).await;
    let sql = format!("UPDATE records SET json = 'x' WHERE run = {}", east.0);
    super::tampering::tamper(site.home.path(), sql).await;
    // Another server, which has not read it before.
    let other = Drains::start(config("two", site.home.path())).await.unwrap();
    let wanted = Wanted {
        datacenter: "south".into(),
        direction: Direction::Drain,
        mode: Mode::Drill,
        by: user(1000),
        reason: "a test".into(),
        overload: false,
        give_up: Vec::new(),
    };
    let refused = other.begin(wanted).await.unwrap_err().to_string();
    assert!(refused.contains("whether east serves jobs is unknown"), "{refused}");
}

/// A server whose alerts are files in a folder.
async fn alerting(home: &Path) -> Arc<Drains> {
    write_runbooks(home, &[("web", WEB), ("east", EAST)]);
    let mut config = config("one", home);
    let alert = home.join("alert");
    let command = ["sh", "-c", "cat > \"$0\"", alert.to_str().unwrap()];
    let command = command.map(str::to_owned).to_vec();
    config.notify.insert("oncall".into(), notify::Channel { command });
    config.alert = Some("oncall".into());
    Drains::start(config).await.unwrap()
}

#[tokio::test]
async fn what_waits_for_a_person_from_the_first_status_on_is_told() {
    let home = tempfile::tempdir().unwrap();
    let alert = home.path().join("alert");
    let is_told = async || std::fs::read_to_string(&alert).is_ok_and(|own| own.ends_with('\n'));
    let drains = alerting(home.path()).await;
    begin(&drains).await;
    until(is_told).await;
    let text = std::fs::read_to_string(&alert).unwrap();
    assert!(text.contains("May web leave?"), "{text}");
    // And again by whoever takes it up.
    drains.stop().await;
    drop(drains);
    std::fs::remove_file(&alert).unwrap();
    let _again = alerting(home.path()).await;
    until(is_told).await;
}
