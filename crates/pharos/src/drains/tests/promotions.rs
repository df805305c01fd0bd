//! Promotions of one database out of several datacenters, with files for its
//! primary and its fences.

use super::fleet::export;
use super::*;
use drain::engine::RunOutcome;

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
    with: {{knob: \"files:primary\", to: {to}, fence: \"files:writes-{from}\",
           nearly_caught_up: {caught_up}}}
restore:
  promote:
    template: Promote
    with: {{knob: \"files:primary\", to: original, fence: \"files:writes-{to}\",
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

/// A drain leaves the old primary fenced. Whoever makes it the primary again by
/// the drain of another datacenter has a primary that refuses every write.
#[tokio::test]
async fn a_drain_does_not_promote_a_server_that_another_drain_left_fenced() {
    let home = tempfile::tempdir().unwrap();
    for (from, to) in [("east", "west"), ("west", "east")] {
        let name = format!("db-{from}");
        let files = [(&*name, &*database(from, to)), (from, &*evacuation(from))];
        write_runbooks(home.path(), &files);
        std::fs::write(home.path().join(format!("writes-{from}")), "open").unwrap();
    }
    std::fs::write(home.path().join("primary"), "east").unwrap();
    let config = DrainConfig { health: export("lag 0\n"), ..config("one", home.path()) };
    let drains = Drains::start(config).await.unwrap();
    let wanted = |datacenter: &str, direction, mode| Wanted {
        datacenter: datacenter.into(),
        direction,
        mode,
        by: user(1000),
        reason: "a test".into(),
        overload: false,
        give_up: Vec::new(),
    };
    let over = async |run: RunId| {
        until(async || !drains.driven().contains_key(&run)).await;
        assert_eq!(drains.status(run).await.unwrap().outcome, Some(RunOutcome::Completed));
    };
    let at = |knob: &str| std::fs::read_to_string(home.path().join(knob)).unwrap();

    let (run, _) = drains.begin(wanted("east", Direction::Drain, Mode::Drill)).await.unwrap();
    over(run).await;
    assert_eq!((at("primary"), at("writes-east")), ("west".into(), "fenced".into()));

    let refused = drains.begin(wanted("west", Direction::Drain, Mode::Drill)).await;
    let refused = refused.map(|_| ()).unwrap_err().to_string();
    let why = "files:writes-east is \"fenced\" since the drain of east, and this run sets \
               files:primary";
    assert!(refused.contains(why), "{refused}");
    assert_eq!((at("primary"), at("writes-west")), ("west".into(), "open".into()));

    // What is said to be accepted is.
    let (run, _) = drains.begin(wanted("east", Direction::Restore, Mode::Drill)).await.unwrap();
    over(run).await;
    assert_eq!((at("primary"), at("writes-east")), ("east".into(), "open".into()));
    assert!(drains.begin(wanted("west", Direction::Drain, Mode::Drill)).await.is_ok());
}
