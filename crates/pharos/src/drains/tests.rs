use std::path::Path;

use drain::engine::Abort;

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
";

async fn start(home: &Path) -> Arc<Drains> {
    start_with(home, WEB).await
}

/// A server whose driver `files` has a file for each knob.
async fn start_with(home: &Path, web: &str) -> Arc<Drains> {
    let runbooks = home.join("runbooks");
    std::fs::create_dir_all(&runbooks).unwrap();
    std::fs::write(runbooks.join("web.yaml"), web).unwrap();
    std::fs::write(runbooks.join("east.yaml"), EAST).unwrap();
    let files: drivers::Config = serde_json::from_value(serde_json::json!({
        "kind": "exec",
        "read": ["cat", "--", home.join("{knob}")],
        "write": ["sh", "-c", "printf %s \"$PHAROS_VALUE\" > \"$0/$PHAROS_KNOB\"", home],
    }))
    .unwrap();
    let config = DrainConfig {
        name: "twin".into(),
        store: home.join("drain.db"),
        runbooks,
        drivers: BTreeMap::from([("files".into(), files)]),
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
        mode: Mode::Drill,
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
    let drains = start_with(home.path(), SWITCH).await;
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
