mod faults;
mod fleet;
mod instances;
mod promotions;
mod restores;
mod tampering;

use std::path::Path;
use std::sync::atomic::Ordering;

use drain::Value;
use drain::engine::{Abort, Fact, Hold, User};

pub use faults::{Faults, Mutation};

use super::api::Follower;
use super::*;

const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
drain:
  ask: {template: Approval, with: {question: "May web leave?"}}
restore:
  ask: {template: Approval, with: {question: "May web come back?"}}
"#;
const EAST: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 1}, west: {capacity: 1}}
services: [web]
keep_drained: never
";

async fn start(home: &Path) -> Arc<Drains> {
    start_as("twin", home).await
}

async fn start_as(name: &str, home: &Path) -> Arc<Drains> {
    start_with(name, home, WEB).await
}

/// A server with runbooks for one service in `east`.
async fn start_with(name: &str, home: &Path, web: &str) -> Arc<Drains> {
    try_start(name, home, web).await.unwrap()
}

async fn try_start(name: &str, home: &Path, web: &str) -> Result<Arc<Drains>, String> {
    write_runbooks(home, &[("web", web), ("east", EAST)]);
    Drains::start(config(name, home)).await
}

fn write_runbooks(home: &Path, runbooks: &[(&str, &str)]) {
    let folder = home.join("runbooks");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in runbooks {
        std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
    }
}

/// Of a server with two drivers: `files` has a file for each knob, logs every
/// write and takes none while there is a file `broken`; nothing of `broken` can
/// be read.
fn config(name: &str, home: &Path) -> DrainConfig {
    let write = "test ! -e \"$0/broken\" && \
                 printf '%s %s %s\\n' \"$PHAROS_FENCE\" \"$PHAROS_KNOB\" \"$PHAROS_VALUE\" \
                 >> \"$0/log\" && printf %s \"$PHAROS_VALUE\" > \"$0/$PHAROS_KNOB\"";
    let files = serde_json::json!({
        "kind": "exec",
        "read": ["cat", "--", home.join("{knob}")],
        "write": ["sh", "-c", write, home],
        "act": ["true", "{action}"],
    });
    let broken = serde_json::json!({
        "kind": "exec", "read": ["sh", "-c", "echo no such luck >&2; exit 1"],
    });
    let drivers = [("files", files), ("broken", broken)]
        .map(|(name, config)| (name.to_owned(), serde_json::from_value(config).unwrap()));
    DrainConfig {
        name: name.into(),
        store: home.join("drain.db"),
        runbooks: home.join("runbooks"),
        drivers: BTreeMap::from(drivers),
        health: HealthConfig::Scrape { targets: Vec::new(), interval: Duration::from_secs(60) },
        audit_key: home.join("audit.key"),
        audit_sink: Sink::File(home.join("heads")),
        notify: BTreeMap::new(),
        alert: None,
    }
}

#[tokio::test]
async fn the_page_of_a_report_runs_and_loads_nothing() {
    use tower::ServiceExt;

    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let run = begin(&drains).await;
    let path = format!("/v1/drains/{run}/report.html");
    let request = axum::extract::Request::get(path).body(axum::body::Body::empty()).unwrap();
    let response = api::reading(drains).oneshot(request).await.unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap();
    assert!(header("content-security-policy").starts_with("default-src 'none'; style-src"));
    assert_eq!(header("x-content-type-options"), "nosniff");
}

/// A runbook that took long to check held runs, and with them a fence.
#[tokio::test]
async fn runbooks_that_take_long_hold_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let runbooks = home.path().join("runbooks");
    std::fs::remove_dir_all(&runbooks).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &runbooks, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Nobody writes to the pipe for a second: so long it takes to read.
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        std::fs::OpenOptions::new().write(true).open(runbooks).map(drop)
    });
    let began = Instant::now();
    let plan = drains.plan("east", Direction::Drain, Turn::Run);
    assert!(tokio::time::timeout(Duration::from_millis(100), plan).await.is_err());
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    // The next waits for its turn, and finds a pipe that ends at once.
    let plan = drains.plan("east", Direction::Drain, Turn::Run);
    assert!(tokio::time::timeout(Duration::from_millis(100), plan).await.is_err());
    writer.join().unwrap().unwrap();
}

/// Clients that asked for plans kept a restore from beginning for as long as they
/// liked.
#[tokio::test]
async fn a_run_that_a_person_begins_does_not_wait_behind_pages() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let own = drains.clone();
    let work = move || is_released.recv().is_err();
    let slow = tokio::spawn(async move { own.apart(Turn::Page, work).await });
    until(async || drains.readings.of(Turn::Page).available_permits() == 0).await;
    let flood: Vec<_> = (0..40)
        .map(|_| {
            let own = drains.clone();
            tokio::spawn(
                async move { own.plan("east", Direction::Drain, Turn::Page).await.is_ok() },
            )
        })
        .collect();
    tokio::task::yield_now().await;
    let begun = tokio::time::timeout(Duration::from_secs(20), begin(&drains)).await;
    assert!(begun.is_ok(), "it waits for pages");
    assert!(flood.iter().all(|page| !page.is_finished()), "pages take turns");
    drop(release);
    slow.await.unwrap().unwrap();
    for page in flood {
        assert!(page.await.unwrap());
    }
}

/// Nor behind drains that another operator begins.
#[tokio::test]
async fn a_restore_does_not_wait_behind_drains() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let own = drains.clone();
    let work = move || is_released.recv().is_err();
    let slow = tokio::spawn(async move { own.apart(Turn::of(Direction::Drain), work).await });
    until(async || drains.readings.of(Turn::Run).available_permits() == 0).await;
    let turn = Turn::of(Direction::Restore);
    let plan = drains.plan("east", Direction::Restore, turn);
    let made = tokio::time::timeout(Duration::from_secs(20), plan).await;
    assert!(made.is_ok(), "it waits for a drain");
    drop(release);
    slow.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_open_run_counts_as_a_change_however_many_came_after_it() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let run = begin(&drains).await;
    for _ in 0..60 {
        let new = NewRun {
            datacenter: "west",
            direction: "drain",
            plan: "{}",
            actor: "ann",
            reason: "",
            at: 1,
        };
        let step = store::Step { ended: Some(("held".into(), 2)), ..store::Step::default() };
        drains.store().begin_run(new, "twin", 1, &step).await.unwrap();
    }
    let now = drains.world.clock.now();
    assert_eq!(drains.last_change(now).await.unwrap(), Some(now));
    say(&drains, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
    until(async || !drains.driven().contains_key(&run)).await;
    let ended = drains.find(run).await.unwrap().ended_at.map(Time);
    let later = drains.world.clock.now();
    assert_eq!(drains.last_change(later).await.unwrap(), ended);
}

fn user(uid: u32) -> Actor {
    let name = Some(format!("user-{uid}"));
    Actor::user(User { uid, gid: uid, pid: None, name })
}

async fn begin(drains: &Arc<Drains>) -> RunId {
    go(drains, Direction::Drain).await
}

async fn go(drains: &Arc<Drains>, direction: Direction) -> RunId {
    let wanted = Wanted {
        datacenter: "east".into(),
        direction,
        mode: Mode::Disaster,
        by: user(1000),
        reason: String::new(),
        overload: false,
        give_up: Vec::new(),
    };
    drains.begin(wanted).await.unwrap().0
}

async fn say(drains: &Drains, run: RunId, verb: Verb) -> Result<(), Refused> {
    drains.say(run, user(1000), "why not".into(), &verb).await
}

/// Waits for something that others do.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..6000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never was so");
}

#[tokio::test]
async fn a_second_server_of_the_same_name_is_refused_while_the_first_lives() {
    let home = tempfile::tempdir().unwrap();
    let first = start(home.path()).await;
    let run = begin(&first).await;
    let refused = try_start("twin", home.path(), WEB).await.unwrap_err();
    assert!(refused.contains("another server named `twin` has it, pid"), "{refused}");
    assert!(refused.contains("accepted: another `name` under [node]"), "{refused}");
    say(&first, run, Verb::Pause { task: None }).await.unwrap();
    say(&first, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
}

#[tokio::test]
async fn a_server_of_the_same_name_waits_for_a_lease_whose_holder_may_live() {
    let home = tempfile::tempdir().unwrap();
    let first = start(home.path()).await;
    let run = begin(&first).await;
    // A lock that says nothing about the first, as on another host.
    let lock = home.path().join("drain.db.twin.lock");
    std::fs::rename(&lock, home.path().join("away")).unwrap();
    let second = start(home.path()).await;
    assert!(!second.driven().contains_key(&run));
    let status = second.status(run).await.unwrap();
    let expected = "driven by twin, another server of this name";
    assert_eq!(status.elsewhere.as_deref(), Some(expected));
    say(&first, run, Verb::Pause { task: None }).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_drive_a_run_says_which_one_does() {
    let home = tempfile::tempdir().unwrap();
    let first = start_as("one", home.path()).await;
    let run = begin(&first).await;
    let second = start_as("two", home.path()).await;
    let refused = say(&second, run, Verb::Pause { task: None }).await.unwrap_err().to_string();
    let expected = "run 1 is driven by one; accepted: the same on the control socket of one";
    assert_eq!(refused, expected);
    let refusal = async |drains: &Arc<Drains>| {
        drains.refuse_beside_open("east").await.unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&first).await,
        "run 1 on east has not ended, and is driven here; accepted: `pharos abort --run 1 --reason \
         …`, or the same when the run has ended"
    );
    assert_eq!(
        refusal(&second).await,
        "run 1 on east has not ended, and is driven by one; accepted: `pharos abort --run 1 \
         --reason …` on the control socket of one, or the same when the run has ended"
    );
    let keeper = Actor::automatic(vigil::KEEPER).to_string();
    let put_back = store::Run { actor: keeper, ..first.find(run).await.unwrap() };
    assert_eq!(
        second.beside(&put_back),
        "run 1 on east has not ended, and is driven by one; accepted: the same on the control \
         socket of one, where that run, which puts knobs back (keep_drained), gives way to one \
         that a person begins"
    );
}

#[tokio::test]
async fn a_server_started_again_takes_its_runs_up_at_once() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("drain.db");
    let run = {
        let first = start(home.path()).await;
        let run = begin(&first).await;
        // Killed: nothing is given back but what the kernel gives back.
        first.stop.send_replace(true);
        while !first.driven().is_empty() {
            tokio::task::yield_now().await;
        }
        let holder = first.instance.holder().to_owned();
        first.world.store.lease(run, &holder, first.world.clock.now().0, LEASE_MS).await.unwrap();
        run
    };
    while Instance::claim(&store, "twin").is_err() {
        tokio::task::yield_now().await;
    }
    // That claim took the place of the first in the file: put the first back there.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let again = Store::open(&store).await.unwrap();
    let holder = again.run(run).await.unwrap().holder.unwrap();
    let note = format!("{holder}\n1\n{}\nend\n", boot.trim());
    std::fs::write(home.path().join("drain.db.twin.lock"), note).unwrap();
    let second = start(home.path()).await;
    assert!(second.driven().contains_key(&run), "the lease had not run out");
}

#[tokio::test]
async fn one_uid_is_one_person_whatever_is_typed() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let run = begin(&drains).await;
    let waive = async |uid: u32, typed: &str| {
        let by = user(uid).commented(Some(typed));
        let said = drains.say(run, by, "both burn".into(), &Verb::Waive {}).await;
        said.map_err(|no| no.to_string())
    };
    assert_eq!(waive(1000, "ann").await, Ok(()));
    let refused = waive(1000, "mallory").await.unwrap_err();
    assert!(
        refused.starts_with("user-1000 (uid 1000) has set the limits aside already"),
        "{refused}"
    );
    assert!(refused.ends_with("accepted: an operator with another uid"), "{refused}");
    assert_eq!(waive(1001, "ann").await, Ok(()));
    let entries = drains.store().audit(1, 10).await.unwrap();
    let actors: Vec<_> = entries.iter().map(|entry| entry.actor.as_str()).collect();
    assert_eq!(actors, ["user-1000 (uid 1000)", "user-1000 (uid 1000)", "user-1001 (uid 1001)"]);
    assert!(entries[1].json.contains(r#""comment":"ann""#), "{}", entries[1].json);
}

#[tokio::test]
async fn a_run_whose_task_panics_is_taken_up_again() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("switch"), "on").unwrap();
    let drains = start_with("one", home.path(), SWITCH).await;
    drains.world.faults.panics.store(2, Ordering::Relaxed);
    let run = begin(&drains).await;
    let status = loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let status = drains.status(run).await.unwrap();
        if status.stands_still.is_some() {
            break status;
        }
    };
    let why = status.stands_still.as_deref().unwrap();
    assert!(why.starts_with("the task that drives it panicked (1 in a row): an injected panic"));
    let refused = say(&drains, run, Verb::Pause { task: None }).await.unwrap_err().to_string();
    assert!(refused.contains("stands still: the task that drives it panicked"), "{refused}");
    while drains.status(run).await.unwrap().outcome.is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    is_over(&drains, run).await;
    assert_eq!(std::fs::read_to_string(home.path().join("switch")).unwrap(), "off");
    let mut page = crate::metrics::Page::default();
    write_metrics(&drains, &mut page).await;
    assert!(page.text().contains("pharos_drain_panics_total 2\n"));
}

#[tokio::test]
async fn who_follows_slowly_misses_nothing_and_holds_nothing_up() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let run = begin(&drains).await;
    let mut follower = Follower::new(drains.clone(), run, 0).await;
    let first = follower.more().await.unwrap().unwrap();
    let first: Record =
        serde_json::from_slice(first.split(|octet| *octet == b'\n').next().unwrap())
            .expect("a record a line");
    // More than are kept for whoever is late.
    let events = drains.handle(run).await.unwrap().events;
    let first = Arc::new(first);
    for _ in 0..3000 {
        events.send(first.clone()).unwrap();
    }
    drop(events);
    say(&drains, run, Verb::Pause { task: None }).await.unwrap();
    say(&drains, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
    let mut text = String::new();
    while let Some(more) = follower.more().await.unwrap() {
        text += std::str::from_utf8(&more).unwrap();
    }
    assert!(text.contains("\"pause\"") && text.contains("\"closed\""), "{text}");
}

const SWITCH: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
drain:
  off: {template: ConfigChange, with: {knob: "files:switch", content: "off"}}
restore:
  on: {template: ConfigChange, with: {knob: "files:switch", content: original}}
"#;

async fn is_over(drains: &Arc<Drains>, run: RunId) {
    while drains.driven().contains_key(&run) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = drains.status(run).await.unwrap();
    assert_eq!(status.outcome, Some(drain::engine::RunOutcome::Completed), "{status:#?}");
}

#[tokio::test]
async fn what_a_drain_left_is_watched_until_it_is_restored() {
    let home = tempfile::tempdir().unwrap();
    let switch = home.path().join("switch");
    std::fs::write(&switch, "on").unwrap();
    let drains = start_with("one", home.path(), SWITCH).await;
    let strayed = async |run: RunId| {
        drains.look_between_runs().await.unwrap();
        let status = drains.status(run).await.unwrap();
        let strayed = status.strayed.iter();
        strayed.map(|own| (own.knob.clone(), own.found.to_string(), own.run)).collect::<Vec<_>>()
    };
    let text = |value: &str| Value::Text(value.into()).to_string();
    let metric = async || {
        let mut page = crate::metrics::Page::default();
        write_metrics(&drains, &mut page).await;
        let page = page.text();
        let line = page.lines().find(|line| line.starts_with("pharos_drain_knobs_strayed{"));
        line.map(str::to_owned)
    };

    let first = begin(&drains).await;
    is_over(&drains, first).await;
    assert_eq!(strayed(first).await, []);
    let expected = "pharos_drain_knobs_strayed{datacenter=\"east\"} 0";
    assert_eq!(metric().await.as_deref(), Some(expected));

    // What it belongs to is restarted.
    std::fs::write(&switch, "on").unwrap();
    assert_eq!(strayed(first).await, [("files:switch".into(), text("on"), first.0)]);
    let expected = "pharos_drain_knobs_strayed{datacenter=\"east\"} 1";
    assert_eq!(metric().await.as_deref(), Some(expected));

    // What cannot be read is not known to be elsewhere.
    std::fs::remove_file(&switch).unwrap();
    assert_eq!(strayed(first).await, []);

    std::fs::write(&switch, "on").unwrap();
    let again = begin(&drains).await;
    is_over(&drains, again).await;
    assert_eq!(std::fs::read_to_string(&switch).unwrap(), "off");
    assert_eq!((strayed(first).await, strayed(again).await), (vec![], vec![]));
    std::fs::write(&switch, "on").unwrap();
    assert_eq!(strayed(again).await, [("files:switch".into(), text("on"), again.0)]);

    let back = go(&drains, Direction::Restore).await;
    is_over(&drains, back).await;
    assert_eq!(std::fs::read_to_string(&switch).unwrap(), "on");
    std::fs::write(&switch, "off").unwrap();
    assert_eq!(strayed(back).await, [], "what is restored is everybody's again");
    assert_eq!(metric().await, None);
}

/// The next records of a run, as text.
async fn more(follower: &mut Follower) -> String {
    let more = follower.more().await.unwrap().expect("the run goes on");
    String::from_utf8(more.to_vec()).unwrap()
}

#[tokio::test]
async fn whoever_does_not_drive_a_run_tells_of_it_too() {
    let home = tempfile::tempdir().unwrap();
    let (first, second) = (start_as("one", home.path()).await, start_as("two", home.path()).await);
    let run = begin(&first).await;
    let mut follower = Follower::new(second.clone(), run, 0).await;
    assert!(more(&mut follower).await.contains("\"opened\""));
    let status = second.status(run).await.unwrap();
    assert_eq!(status.elsewhere.as_deref(), Some("driven by one"));
    assert_eq!(first.status(run).await.unwrap().elsewhere, None);
    // It is said once, whatever its lease says about the time.
    let mut told = BTreeMap::new();
    second.take_up(&mut told).await.unwrap();
    assert_eq!(told.get(&run).map(String::as_str), Some("driven by one"));

    say(&first, run, Verb::Pause { task: None }).await.unwrap();
    while !more(&mut follower).await.contains("\"pause\"") {}
    say(&first, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
    while !more(&mut follower).await.contains("\"closed\"") {}
    assert_eq!(follower.more().await.unwrap(), None);
    assert_eq!(second.status(run).await.unwrap().elsewhere, None);
}

#[tokio::test]
async fn an_unknown_datacenter_is_unknown() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let refused = drains.plan("north", Direction::Drain, Turn::Run).await.unwrap_err();
    assert!(matches!(refused, Refused::Unknown(_)), "{refused:?}");
    assert!(refused.to_string().ends_with("accepted: east"), "{refused}");
}

#[tokio::test]
async fn a_restore_is_planned_although_the_runbooks_of_others_have_errors() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let runbooks = home.path().join("runbooks");
    std::fs::write(runbooks.join("notes.yaml"), "call bob\n").unwrap();
    std::os::unix::fs::symlink("/no/such/file", runbooks.join("gone.yaml")).unwrap();
    std::fs::write(runbooks.join("latin.yaml"), b"\xff").unwrap();
    std::fs::copy(runbooks.join("web.yaml"), runbooks.join("web-old.yaml")).unwrap();
    std::os::unix::fs::symlink(".", runbooks.join("current")).unwrap();
    assert!(drains.plan("east", Direction::Drain, Turn::Run).await.is_err());
    let plan = drains.plan("east", Direction::Restore, Turn::Run).await.unwrap();
    let warnings = drains.survey(&plan, Turn::Run).await.warnings;
    let left_out = |name: &str| {
        let start = "left out, a restore does without: ";
        warnings.iter().any(|own| own.starts_with(start) && own.contains(name))
    };
    let wrong = ["notes.yaml", "latin.yaml", "gone.yaml", "a copy of"];
    assert!(wrong.into_iter().all(left_out), "{warnings:?}");
}

#[tokio::test]
async fn a_task_that_is_held_says_why_and_promises_nothing() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let shift = "ask: {template: TrafficShift, with: {knob: \"broken:web\", to: 0%}}";
    let web = WEB.replace("ask: {template: Approval, with: {question: \"May web leave?\"}}", shift);
    let back = "ask: {template: TrafficShift, with: {knob: \"broken:web\", to: original}}";
    let web =
        web.replace("ask: {template: Approval, with: {question: \"May web come back?\"}}", back);
    std::fs::write(home.path().join("runbooks/web.yaml"), web).unwrap();
    let run = begin(&drains).await;
    let mut status = drains.handle(run).await.unwrap().status;
    let held = status.wait_for(|status| status.tasks[0].hold.is_some()).await.unwrap().clone();
    let why = &held.tasks[0].hold.as_ref().unwrap().why;
    assert!(
        why.starts_with("broken:web cannot be read: broken: reading web: `sh` failed"),
        "{why}"
    );
    assert!(why.ends_with("no such luck"), "{why}");

    // Half-way down, and somebody else keeps turning it.
    let (plan, mut records) = drains.records(run).await.unwrap();
    let (task, knob) = (drain::TaskId(0), drain::KnobId(0));
    let mut add = |fact| {
        let last = records.last().unwrap();
        let record = Record { seq: last.seq + 1, at: last.at, fact };
        records.push(record);
    };
    add(Fact::Released { task });
    add(Fact::Found { task, knob, value: Value::Number(1.0) });
    let shifting = Run::resume(plan.clone().into(), &records).unwrap();
    let now = records.last().unwrap().at;
    let next = |run: &Run| Status::of(run, RunId(1), now, &Unseen::default()).tasks[0].clone();
    assert!(next(&shifting).next_step_at.is_some(), "{:?}", next(&shifting));
    let last = records.last().unwrap();
    let fact = Fact::Held { task, why: Hold::Contested { knob } };
    records.push(Record { seq: last.seq + 1, at: last.at, fact });
    let contested = next(&Run::resume(plan.into(), &records).unwrap());
    assert_eq!(contested.next_step_at, None);
    let why = contested.hold.unwrap().why;
    assert_eq!(why, "somebody else turns broken:web; `resume web.ask` goes on once nobody does");
}
