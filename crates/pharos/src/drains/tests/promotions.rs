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
