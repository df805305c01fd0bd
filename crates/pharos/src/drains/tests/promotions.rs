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

/// Knobs that are files, read by a script: `$0` is their directory, `$1` the knob.
fn read_by(home: &Path, read: &str) -> DrainConfig {
    let files = serde_json::json!({
        "kind": "exec",
        "read": ["sh", "-c", read, home, "{knob}"],
        "write": ["sh", "-c", r#"printf %s "$PHAROS_VALUE" > "$0/$PHAROS_KNOB""#, home],
    });
    let mut config = DrainConfig { health: export("lag 0\n"), ..config("one", home) };
    config.drivers.insert("files".into(), serde_json::from_value(files).unwrap());
    config
}

/// The fences that the status of a run names, and why.
async fn fenced(drains: &Arc<Drains>, run: RunId) -> Vec<(String, String)> {
    drains.look_between_runs().await.unwrap();
    let needs = drains.status(run).await.unwrap().needs_person.clone();
    let needs = needs.into_iter().filter(|need| need.kind == status::NeedKind::Fenced);
    needs.map(|need| (need.knob.unwrap_or_default(), need.why)).collect()
}

fn later(drains: &Drains) {
    let clock = &drains.world.clock;
    clock.resume_at(clock.now() + drain::Millis::from_secs(20));
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
    // What south takes is not refused.
    let why = "db-east.promote left files:writes-east at \"fenced\": \"east\" takes no writes";
    assert_eq!(fenced(&drains, run).await, [("files:writes-east".to_owned(), why.to_owned())]);
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
    let fenced = async |run: RunId| fenced(&drains, run).await;
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
    later(&drains);
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

/// A read of the knob whose name is in `slow` takes 2.3 s.
const SLOW: &str = r#"value=$(cat "$0/$1") || exit 1
                      test "$(cat "$0/slow" 2> /dev/null)" = "$1" && sleep 2.3
                      printf %s "$value""#;

/// What the servers of a primary said may be as old as the read of it took, and something else
/// may have promoted another one meanwhile.
#[tokio::test]
async fn nothing_is_promoted_after_a_slow_read_of_the_primary() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    std::fs::write(home.path().join("slow"), "primary").unwrap();
    let drains = Drains::start(read_by(home.path(), SLOW)).await.unwrap();
    let (run, _) = drains.begin(wanted("east", Direction::Drain)).await.unwrap();
    let task = async || drains.status(run).await.unwrap().tasks[0].clone();
    let failure = async || task().await.failure.unwrap_or_default();
    until(async || failure().await.contains("took") || task().await.phase == Phase::Done).await;
    let told = failure().await;
    assert!(told.contains("files:primary took 2."), "{told}");
    assert!(told.contains("accepted: at most 2 s"), "{told}");
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
    assert_eq!(at("primary"), "east");
    std::fs::remove_file(home.path().join("slow")).unwrap();
    until(async || task().await.phase == Phase::Done).await;
    assert_eq!(at("primary"), "west");
}

/// Whoever begins a drill is told that its promotion will fail.
#[tokio::test]
async fn a_slow_read_of_a_fence_or_a_primary_is_warned_of() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    let drains = Drains::start(read_by(home.path(), SLOW)).await.unwrap();
    let plan = drains.plan("east", Direction::Drain, Turn::Run).await.unwrap();
    for knob in ["primary", "writes-east"] {
        std::fs::write(home.path().join("slow"), knob).unwrap();
        let warnings = drains.survey(&plan, Turn::Run).await.warnings;
        let is_told = |own: &String| own.contains(&format!("files:{knob} took 2."));
        assert_eq!(warnings.iter().filter(|own| is_told(own)).count(), 1, "{warnings:?}");
    }
    std::fs::remove_file(home.path().join("slow")).unwrap();
    assert_eq!(drains.survey(&plan, Turn::Run).await.warnings, [""; 0]);
}

/// A drain that is through with its promotion and waits for something else.
async fn open_drain(home: &Path) -> (Arc<Drains>, RunId) {
    write_site(home);
    let watch = "  watch: {template: Wait, with: {span: 10m}, after: [promote]}\nrestore:\n";
    let service = database("east", "west").replace("restore:\n", watch);
    write_runbooks(home, &[("db-east", &service)]);
    let config = DrainConfig { health: export("lag 0\n"), ..config("one", home) };
    let drains = Drains::start(config).await.unwrap();
    let (run, _) = drains.begin(wanted("east", Direction::Drain)).await.unwrap();
    until(async || drains.status(run).await.unwrap().tasks[0].phase == Phase::Done).await;
    (drains, run)
}

/// Something else makes the fenced server the primary while the run waits for something else:
/// all writes are refused.
#[tokio::test]
async fn a_fence_that_an_open_run_left_closed_is_told_while_its_server_is_the_primary() {
    let home = tempfile::tempdir().unwrap();
    let (drains, run) = open_drain(home.path()).await;
    assert_eq!(fenced(&drains, run).await, []);
    std::fs::write(home.path().join("primary"), "east").unwrap();
    let why = "run 1 of east left files:writes-east at \"fenced\", and \"east\", which it fences, \
               is the primary: writes are refused";
    let of_east = [("files:writes-east".to_owned(), why.to_owned())];
    assert_eq!(fenced(&drains, run).await, of_east);
    assert_eq!(drains.fences_left_closed().get("east"), Some(&1));
    // The other one died, and the driver asks all servers.
    std::fs::remove_file(home.path().join("primary")).unwrap();
    fenced(&drains, run).await;
    later(&drains);
    let told = fenced(&drains, run).await;
    assert!(told.iter().any(|(_, why)| why.contains("primary cannot be read")), "{told:?}");
    std::fs::write(home.path().join("primary"), "west").unwrap();
    assert_eq!(fenced(&drains, run).await, []);
    assert_eq!(drains.fences_left_closed().get("east"), Some(&0));
}

/// The operator opens the fence of the primary by hand, so that writes go on.
#[tokio::test]
async fn a_fence_that_a_person_opens_for_the_primary_stays_open_while_the_run_is_open() {
    let home = tempfile::tempdir().unwrap();
    let (drains, run) = open_drain(home.path()).await;
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
    std::fs::write(home.path().join("primary"), "east").unwrap();
    std::fs::write(home.path().join("writes-east"), "open").unwrap();
    let contested = async || {
        let needs = drains.status(run).await.unwrap().needs_person.clone();
        let is_told = |need: &status::NeedsPerson| {
            need.kind == status::NeedKind::Contested
                && need.knob.as_deref() == Some("files:writes-east")
        };
        needs.into_iter().find(is_told).map(|need| need.why)
    };
    until(async || contested().await.is_some() || at("writes-east") == "fenced").await;
    assert_eq!(at("writes-east"), "open", "it refuses the writes of the primary");
    let why = contested().await.unwrap();
    assert!(why.contains("files:primary is \"east\""), "{why}");
    assert_eq!(fenced(&drains, run).await, []);
}

/// A fence under another name since the drain: the restore does not know the old one, and makes
/// its server the primary again.
#[tokio::test]
async fn a_fence_that_a_restore_did_not_open_is_told_until_it_is_open() {
    for is_given_up in [true, false] {
        let home = tempfile::tempdir().unwrap();
        write_site(home.path());
        let config = DrainConfig { health: export("lag 0\n"), ..config("one", home.path()) };
        let drains = Drains::start(config).await.unwrap();
        complete(&drains, wanted("east", Direction::Drain)).await;
        for (from, to) in [("east", "west"), ("west", "east")] {
            let (old, new) = (format!("writes-{from}"), format!("fence-{from}"));
            std::os::unix::fs::symlink(home.path().join(old), home.path().join(new)).unwrap();
            let service = database(from, to).replace("files:writes-", "files:fence-");
            write_runbooks(home.path(), &[(&*format!("db-{from}"), &*service)]);
        }
        let restore = wanted("east", Direction::Restore);
        let restore = match is_given_up {
            true => Wanted { give_up: vec!["files:writes-east".into()], ..restore },
            false => Wanted { mode: Mode::Disaster, ..restore },
        };
        complete(&drains, restore).await;
        let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
        assert_eq!((at("primary"), at("writes-east")), ("east".into(), "fenced".into()));
        let why = "run 2 of east left files:writes-east at \"fenced\", and \"east\", which it \
                   fences, is the primary: writes are refused";
        for run in [RunId(1), RunId(2)] {
            let told = fenced(&drains, run).await;
            assert_eq!(told, [("files:writes-east".to_owned(), why.to_owned())]);
        }
        assert_eq!(drains.fences_left_closed().get("east"), Some(&1));
        // The old name is gone from its driver, too.
        std::fs::rename(home.path().join("writes-east"), home.path().join("gone")).unwrap();
        fenced(&drains, RunId(2)).await;
        later(&drains);
        let told = fenced(&drains, RunId(2)).await;
        assert!(told.iter().any(|(_, why)| why.contains("cannot be read")), "{told:?}");
        // Another primary, then the first one with its fence open.
        std::fs::write(home.path().join("writes-east"), "fenced").unwrap();
        std::fs::write(home.path().join("primary"), "west").unwrap();
        assert_eq!(fenced(&drains, RunId(2)).await, []);
        std::fs::write(home.path().join("primary"), "east").unwrap();
        assert_eq!(fenced(&drains, RunId(2)).await.len(), 1);
        std::fs::write(home.path().join("writes-east"), "open").unwrap();
        assert_eq!(fenced(&drains, RunId(2)).await, []);
        assert_eq!(drains.world.store.fences().await.unwrap(), []);
    }
}

/// The replica dies behind the fence, and the driver asks all servers who is primary.
#[tokio::test]
async fn a_fence_whose_primary_cannot_be_read_says_what_leads_out() {
    let home = tempfile::tempdir().unwrap();
    write_site(home.path());
    let service =
        database("east", "west").replace("nearly_caught_up", "fence_max: 2s, nearly_caught_up");
    write_runbooks(home.path(), &[("db-east", &service)]);
    let read = r#"test "$1" = primary && test "$(cat "$0/writes-east")" = fenced && : > "$0/dead"
                  test "$1" = primary && test -e "$0/dead" && exit 1; cat "$0/$1""#;
    let drains = Drains::start(read_by(home.path(), read)).await.unwrap();
    let (run, _) = drains.begin(wanted("east", Direction::Drain)).await.unwrap();
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();
    let stage = async || drains.status(run).await.unwrap().tasks[0].stage.clone();
    until(async || stage().await == "lift").await;
    later(&drains);
    let told = async |kind: status::NeedKind| {
        let needs = drains.status(run).await.unwrap().needs_person.clone();
        needs.into_iter().find(|need| need.kind == kind).map(|need| need.todo)
    };
    until(async || told(status::NeedKind::Fenced).await.is_some()).await;
    let todo = "make files:primary readable, or see that \"east\" alone is the primary, and set \
                files:writes-east to \"open\" by hand: Pharos then goes on";
    assert_eq!(told(status::NeedKind::Fenced).await.as_deref(), Some(todo));
    assert_eq!(told(status::NeedKind::Unreadable).await.as_deref(), Some(todo));
    std::fs::write(home.path().join("writes-east"), "open").unwrap();
    until(async || drains.status(run).await.unwrap().tasks[0].phase == Phase::Failed).await;
    let abort = Verb::Abort { how: Abort::Hold };
    drains.say(run, user(1000), "the replica is dead".into(), &abort).await.unwrap();
    until(async || !drains.driven().contains_key(&run)).await;
    assert_eq!((at("primary"), at("writes-east")), ("east".into(), "open".into()));
}
