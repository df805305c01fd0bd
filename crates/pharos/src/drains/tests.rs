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
    let runbooks = home.join("runbooks");
    std::fs::create_dir_all(&runbooks).unwrap();
    std::fs::write(runbooks.join("web.yaml"), WEB).unwrap();
    std::fs::write(runbooks.join("east.yaml"), EAST).unwrap();
    let config = DrainConfig {
        name: "twin".into(),
        store: home.join("drain.db"),
        runbooks,
        drivers: BTreeMap::new(),
        health: HealthConfig::Scrape { targets: Vec::new(), interval: Duration::from_secs(60) },
    };
    Drains::start(config).await.unwrap()
}

async fn begin(drains: &Arc<Drains>) -> RunId {
    let wanted = Wanted {
        datacenter: "east".into(),
        direction: Direction::Drain,
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
