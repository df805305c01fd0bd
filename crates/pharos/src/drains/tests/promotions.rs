//! Promotions of one database out of several datacenters, with files for its
//! primary and its fences.

use super::fleet::export;
use super::*;
use drain::engine::{Phase, RunOutcome};

/// The database, as a service of its own for each datacenter that it leaves.
fn database(from: &str, to: &str) -> String {
    let caught_up = "{name: behind, query: lag, at_most: 0, no_data: block}";
    format!(
        "
pharos: service/v1
service: db-{from}
traffic: stateful
user_facing: false
drain:
  promote:
    template: Promote
    with: {{knob: \"files:primary\", from: {from}, to: {to}, fence: \"files:writes-{from}\",
           nearly_caught_up: {caught_up}}}
restore:
  promote:
    template: Promote
    with: {{knob: \"files:primary\", from: {to}, to: original, fence: \"files:writes-{to}\",
           unfence_to: open, nearly_caught_up: {caught_up}}}
  open:
    template: ConfigChange
    with: {{knob: \"files:writes-{from}\", content: original}}
    after: [promote]
"
    )
}

fn evacuation(from: &str) -> String {
    format!(
        "pharos: evacuation/v1\ndatacenter: {from}\nscrape_interval: 1s\n\
         datacenters: {{east: {{capacity: 1}}, west: {{capacity: 1}}}}\nservices: [db-{from}]\n"
    )
}

/// Writes the runbooks of both datacenters, and where the knobs are: nothing is drained.
fn write_site(home: &Path) {
    for (from, to) in [("east", "west"), ("west", "east")] {
        let name = format!("db-{from}");
        let files = [(&*name, &*database(from, to)), (from, &*evacuation(from))];
        write_runbooks(home, &files);
        std::fs::write(home.join(format!("writes-{from}")), "open").unwrap();
    }
    std::fs::write(home.join("primary"), "east").unwrap();
}

fn wanted(datacenter: &str, direction: Direction) -> Wanted {
    Wanted {
        datacenter: datacenter.into(),
        direction,
        mode: Mode::Drill,
        by: user(1000),
        reason: "a test".into(),
        overload: false,
        give_up: Vec::new(),
    }
}

/// Runs to its end what is wanted.
async fn complete(drains: &Arc<Drains>, wanted: Wanted) {
    let (run, _) = drains.begin(wanted).await.unwrap();
    until(async || !drains.driven().contains_key(&run)).await;
    assert_eq!(drains.status(run).await.unwrap().outcome, Some(RunOutcome::Completed));
}

/// Somebody opens the fence right after it was read. Whichever read that was, the
/// primary is not set while it is open.
#[tokio::test]
async fn a_fence_is_read_once_more_right_before_a_promotion() {
    // The third is the last one before the write: nothing closes that gap but the store.
    for trap in 1..=2 {
        let home = tempfile::tempdir().unwrap();
        write_site(home.path());
        // The read with that number of a fence that is closed opens it.
        let read = format!(
            r#"cat "$0/$1"; test "$1" = writes-east && test "$(cat "$0/$1")" = fenced || exit 0
               echo x >> "$0/reads"; test "$(wc -l < "$0/reads")" = {trap} || exit 0
               printf open > "$0/$1""#
        );
        let write = r#"test "$PHAROS_KNOB" = primary && cat "$0/writes-east" > "$0/behind"
                       printf %s "$PHAROS_VALUE" > "$0/$PHAROS_KNOB""#;
        let files = serde_json::json!({
            "kind": "exec",
            "read": ["sh", "-c", read, home.path(), "{knob}"],
            "write": ["sh", "-c", write, home.path()],
        });
        let mut config = DrainConfig { health: export("lag 0\n"), ..config("one", home.path()) };
        config.drivers.insert("files".into(), serde_json::from_value(files).unwrap());
        let drains = Drains::start(config).await.unwrap();
        complete(&drains, wanted("east", Direction::Drain)).await;
        let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
        assert!(at("reads").len() >= 2 * trap, "the trap was not set off");
        assert_eq!((at("primary"), at("behind")), ("west".into(), "fenced".into()), "read {trap}");
    }
}

/// Something else may promote a third server while a promotion waits behind its fence.
#[tokio::test]
async fn a_primary_is_read_once_more_right_before_a_promotion() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    // The first read of the primary behind the fence is followed by a change of it.
    let read = r#"cat "$0/$1"; test "$1" = primary && test "$(cat "$0/writes-east")" = fenced || exit 0
                  test -e "$0/moved" || { : > "$0/moved"; printf south > "$0/primary"; }"#;
    let files = serde_json::json!({
        "kind": "exec",
        "read": ["sh", "-c", read, home.path(), "{knob}"],
        "write": ["sh", "-c", r#"printf %s "$PHAROS_VALUE" > "$0/$PHAROS_KNOB""#, home.path()],
    });
    let mut config = DrainConfig { health: export("lag 0\n"), ..config("one", home.path()) };
    config.drivers.insert("files".into(), serde_json::from_value(files).unwrap());
    let drains = Drains::start(config).await.unwrap();
    let (run, _) = drains.begin(wanted("east", Direction::Drain)).await.unwrap();
    until(async || drains.status(run).await.unwrap().tasks[0].phase == Phase::Failed).await;
    assert!(home.path().join("moved").exists(), "the trap was not set off");
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
    assert_eq!(at("primary"), "south");
    let status = drains.status(run).await.unwrap();
    let failure = status.tasks[0].failure.clone().unwrap_or_default();
    assert!(failure.contains("files:primary is \"south\""), "{failure}");
}

/// A drain leaves the old primary fenced. Whoever makes it the primary again by
/// the drain of another datacenter has a primary that refuses every write.
#[tokio::test]
async fn a_drain_does_not_promote_a_server_that_another_drain_left_fenced() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    let config = DrainConfig { health: export("lag 0\n"), ..config("one", home.path()) };
    let drains = Drains::start(config).await.unwrap();
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();

    complete(&drains, wanted("east", Direction::Drain)).await;
    assert_eq!((at("primary"), at("writes-east")), ("west".into(), "fenced".into()));

    let refused = drains.begin(wanted("west", Direction::Drain)).await;
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    let why = "files:writes-east is \"fenced\" since the drain of east, and this run sets \
               files:primary";
    assert!(refused.contains(why), "{refused}");
    assert_eq!((at("primary"), at("writes-west")), ("west".into(), "open".into()));

    // What is said to be accepted is.
    complete(&drains, wanted("east", Direction::Restore)).await;
    assert_eq!((at("primary"), at("writes-east")), ("east".into(), "open".into()));
    assert!(drains.begin(wanted("west", Direction::Drain)).await.is_ok());
}

/// In a disaster the fenced server may be the only one that is left. Whoever looks at any run
/// is told that it refuses all writes.
#[tokio::test]
async fn a_primary_that_an_earlier_drain_fenced_is_told_until_its_fence_is_open() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    let config = DrainConfig { health: export("lag 0\n"), ..config("one", home.path()) };
    let drains = Drains::start(config).await.unwrap();
    complete(&drains, wanted("east", Direction::Drain)).await;
    let disaster = Wanted { mode: Mode::Disaster, ..wanted("west", Direction::Drain) };
    let (run, _) = drains.begin(disaster).await.unwrap();
    until(async || !drains.driven().contains_key(&run)).await;
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
    assert_eq!((at("primary"), at("writes-east")), ("east".into(), "fenced".into()));
    let fenced = async |run: RunId| {
        drains.look_between_runs().await.unwrap();
        let needs = drains.status(run).await.unwrap().needs_person.clone();
        let needs = needs.into_iter().filter(|need| need.kind == status::NeedKind::Fenced);
        needs.map(|need| (need.knob.unwrap_or_default(), need.why)).collect::<Vec<_>>()
    };
    let why = "run 1 of east left files:writes-east at \"fenced\", and \"east\", which it fences, \
               is the primary: writes are refused";
    for of in [RunId(1), run] {
        assert_eq!(fenced(of).await, [("files:writes-east".to_owned(), why.to_owned())]);
    }
    assert_eq!(drains.fences_left_closed().get("east"), Some(&1));
    // Who is primary cannot be read for a while, and then for long.
    std::fs::write(home.path().join("primary"), "north").unwrap();
    assert_eq!(fenced(run).await.len(), 0);
    std::fs::remove_file(home.path().join("primary")).unwrap();
    assert_eq!(fenced(run).await.len(), 0);
    let clock = &drains.world.clock;
    clock.resume_at(clock.now() + drain::Millis::from_secs(20));
    let told = fenced(run).await;
    let is_told = |of: &str| {
        let why = "primary cannot be read";
        told.iter().any(|(knob, own)| knob == of && own.contains(why))
    };
    assert!(is_told("files:writes-east") && is_told("files:writes-west"), "{told:?}");
    std::fs::write(home.path().join("primary"), "east").unwrap();
    assert_eq!(fenced(run).await.len(), 1);
    std::fs::write(home.path().join("writes-east"), "open").unwrap();
    assert_eq!(fenced(run).await, []);
    assert_eq!(drains.fences_left_closed().get("east"), None);
}

/// What puts a knob back between runs has a plan without a promotion.
#[tokio::test]
async fn a_restore_without_a_fence_is_refused_after_knobs_were_put_back_too() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    let web = super::fleet::web(super::fleet::AT_ONCE, "").replace(", south: 10", "");
    let both = evacuation("east").replace("[db-east]", "[db-east, web]");
    let both = both.replace("capacity: 1}", "capacity: 100}");
    write_runbooks(home.path(), &[("web", &web), ("east", &both)]);
    for name in ["web-east", "web-west"] {
        std::fs::write(home.path().join(name), "1").unwrap();
    }
    let config = DrainConfig { health: export("lag 0\n"), ..config("one", home.path()) };
    let drains = Drains::start(config).await.unwrap();
    let disaster = Wanted { mode: Mode::Disaster, ..wanted("east", Direction::Drain) };
    complete(&drains, disaster).await;
    std::fs::write(home.path().join("web-east"), "1").unwrap();
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
    until(async || {
        drains.look_between_runs().await.unwrap();
        at("web-east") == "0" && drains.driven().is_empty()
    })
    .await;
    let newest = drains.runs(Filter::default(), 1).await.unwrap().remove(0);
    assert!(newest.actor.contains("keep_drained"), "{newest:?}");
    // The same service, promoted without a fence both ways: sound by itself.
    let open = "
pharos: service/v1
service: db-east
traffic: stateful
user_facing: false
drain:
  promote: {template: ConfigChange, with: {knob: \"files:primary\", content: west}}
restore:
  promote: {template: ConfigChange, with: {knob: \"files:primary\", content: original}}
  open: {template: ConfigChange, with: {knob: \"files:writes-east\", content: original}}
";
    write_runbooks(home.path(), &[("db-east", open)]);
    std::fs::remove_file(home.path().join("runbooks/west.yaml")).unwrap();
    std::fs::remove_file(home.path().join("runbooks/db-west.yaml")).unwrap();
    let refused = drains.begin(wanted("east", Direction::Restore)).await.map(|_| ());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("sets files:primary without a fence"), "{refused}");
    assert_eq!(at("primary"), "west");
}

/// Two drills that are begun right after each other: neither fence is closed yet.
#[tokio::test]
async fn a_drill_does_not_promote_a_server_that_an_open_drill_will_leave_fenced() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    // Nothing is promoted as long as the replica lags.
    let config = DrainConfig { health: export("lag 9\n"), ..config("one", home.path()) };
    let drains = Drains::start(config).await.unwrap();
    let (run, _) = drains.begin(wanted("east", Direction::Drain)).await.unwrap();
    let refused = drains.begin(wanted("west", Direction::Drain)).await.map(|_| ());
    let refused = refused.unwrap_err().to_string();
    let why = format!(
        "run {run} drains east and leaves \"east\" fenced by files:writes-east, and this run sets \
         files:primary to \"east\""
    );
    assert!(refused.contains(&why), "{refused}");
}
