mod fleet;

use std::path::Path;

use drain::Value;
use drain::engine::{Abort, Fact, Hold};

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

/// A server with two drivers: `files` has a file for each knob, and nothing of
/// `broken` can be read.
async fn start_with(name: &str, home: &Path, web: &str) -> Arc<Drains> {
    let runbooks = home.join("runbooks");
    std::fs::create_dir_all(&runbooks).unwrap();
    std::fs::write(runbooks.join("web.yaml"), web).unwrap();
    std::fs::write(runbooks.join("east.yaml"), EAST).unwrap();
    let files = serde_json::json!({
        "kind": "exec",
        "read": ["cat", "--", home.join("{knob}")],
        "write": ["sh", "-c", "printf %s \"$PHAROS_VALUE\" > \"$0/$PHAROS_KNOB\"", home],
    });
    let broken = serde_json::json!({
        "kind": "exec", "read": ["sh", "-c", "echo no such luck >&2; exit 1"],
    });
    let drivers = [("files", files), ("broken", broken)]
        .map(|(name, config)| (name.to_owned(), serde_json::from_value(config).unwrap()));
    let config = DrainConfig {
        name: name.into(),
        store: home.join("drain.db"),
        runbooks,
        drivers: BTreeMap::from(drivers),
        health: HealthConfig::Scrape { targets: Vec::new(), interval: Duration::from_secs(60) },
    };
    Drains::start(config).await.unwrap()
}

async fn begin(drains: &Arc<Drains>) -> RunId {
    go(drains, Direction::Drain).await
}

async fn go(drains: &Arc<Drains>, direction: Direction) -> RunId {
    let wanted = Wanted {
        datacenter: "east".into(),
        direction,
        mode: Mode::Disaster,
        by: "ann".into(),
        reason: String::new(),
        overload: false,
    };
    drains.begin(wanted).await.unwrap().0
}

async fn say(drains: &Drains, run: RunId, verb: Verb) -> Result<(), Refused> {
    drains.say(run, "ann".into(), "why not".into(), &verb).await
}

#[tokio::test]
async fn servers_of_one_name_do_not_take_a_run_from_each_other_for_ever() {
    let home = tempfile::tempdir().unwrap();
    let first = start(home.path()).await;
    let run = begin(&first).await;
    let second = start(home.path()).await;
    assert!(second.driven().contains_key(&run), "it is taken for the first, started again");
    // The first finds out when it has something to write.
    let said = say(&first, run, Verb::Pause { task: None }).await;
    assert!(matches!(said, Err(Refused::Conflict(_))), "{said:?}");
    while first.driven().contains_key(&run) {
        tokio::task::yield_now().await;
    }
    first.take_up(&mut BTreeMap::new()).await.unwrap();
    assert!(!first.driven().contains_key(&run));
    say(&second, run, Verb::Abort { how: Abort::Hold }).await.unwrap();
}

#[tokio::test]
async fn blanks_make_no_second_person() {
    let home = tempfile::tempdir().unwrap();
    let drains = start(home.path()).await;
    let run = begin(&drains).await;
    let waive = async |by: &str| {
        drains
            .say(run, by.into(), "both burn".into(), &Verb::Waive)
            .await
            .map_err(|no| no.to_string())
    };
    assert_eq!(waive("ann").await, Ok(()));
    assert!(waive(" ann\t").await.unwrap_err().contains("a second person"));
    assert!(waive(" ").await.unwrap_err().contains("the name of a person"));
    assert_eq!(waive("bob").await, Ok(()));
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
    let refused = drains.plan("north", Direction::Drain).await.unwrap_err();
    assert!(matches!(refused, Refused::Unknown(_)), "{refused:?}");
    assert!(refused.to_string().ends_with("accepted: east"), "{refused}");
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
    let next = |run: &Run| Status::of(run, RunId(1), now, &Unseen::default(), &[]).tasks[0].clone();
    assert!(next(&shifting).next_step_at.is_some(), "{:?}", next(&shifting));
    let last = records.last().unwrap();
    let fact = Fact::Held { task, why: Hold::Contested { knob } };
    records.push(Record { seq: last.seq + 1, at: last.at, fact });
    let contested = next(&Run::resume(plan.into(), &records).unwrap());
    assert_eq!(contested.next_step_at, None);
    let why = contested.hold.unwrap().why;
    assert_eq!(why, "somebody else turns broken:web; `resume web.ask` goes on once nobody does");
}
