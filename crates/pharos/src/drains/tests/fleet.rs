//! Limits, capacity and kept drains of several datacenters, with files for
//! knobs.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;
use drain::Millis;
use drain::engine::{DRIFTS_MAX, RunOutcome};

pub(super) const DATACENTERS: [&str; 3] = ["east", "west", "south"];

/// A service whose weights are files. `pace` is that of its drain.
pub(super) fn web(pace: &str, more: &str) -> String {
    format!(
        r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {{east: 10, west: 10, south: 10}}
{more}
drain:
  shift:
    template: TrafficShift
    with: {{knob: "files:web-$dc", to: 0%}}
    pace: {pace}
restore:
  shift:
    template: TrafficShift
    with: {{knob: "files:web-$dc", to: original}}
    pace: {{first: 100%, step_max: 100%, wait: 1ms, wait_max: 1ms}}
"#
    )
}

/// One step, and done at once; or looked at for ever.
pub(super) const AT_ONCE: &str = "{first: 100%, step_max: 100%, wait: 1ms, wait_max: 1ms}";
const LOOKED_AT: &str = "{first: 100%, step_max: 100%, wait: 1h, wait_max: 1h}";
const TO_A_TENTH: &str = "{first: 90%, step_max: 90%, adaptive: false, wait: 1h, wait_max: 1h}";

pub(super) struct Site {
    pub(super) home: tempfile::TempDir,
    pub(super) drains: Arc<Drains>,
}

fn named(name: &str) -> Actor {
    user(if name == "ann" { 1000 } else { 1001 })
}

impl Site {
    /// Two or three datacenters with weights of 1.
    pub(super) async fn start(count: usize, web: &str, evacuation: &str) -> Site {
        let health = HealthConfig::Scrape { targets: vec![], interval: Duration::from_secs(60) };
        Site::start_with(count, web, evacuation, health).await
    }

    pub(super) async fn start_with(
        count: usize,
        web: &str,
        evacuation: &str,
        health: HealthConfig,
    ) -> Site {
        let home = tempfile::tempdir().unwrap();
        let names = &DATACENTERS[..count];
        let web = if count < 3 { web.replace(", south: 10", "") } else { web.to_owned() };
        write_runbooks(home.path(), &[("web", &web)]);
        let all: Vec<String> =
            names.iter().map(|name| format!("{name}: {{capacity: 100}}")).collect();
        for name in names {
            std::fs::write(home.path().join(format!("web-{name}")), "1").unwrap();
            let text = format!(
                "pharos: evacuation/v1\ndatacenter: {name}\ndatacenters: {{{}}}\n\
                 services: [web]\n{evacuation}\n",
                all.join(", ")
            );
            write_runbooks(home.path(), &[(name, &text)]);
        }
        let mut config = DrainConfig { health, ..config("one", home.path()) };
        let socket = home.path().join("haproxy.sock");
        let haproxy = serde_json::json!({"kind": "haproxy", "socket": socket});
        config.drivers.insert("edge".into(), serde_json::from_value(haproxy).unwrap());
        Site { drains: Drains::start(config).await.unwrap(), home }
    }

    pub(super) fn weight(&self, datacenter: &str) -> f64 {
        let text = std::fs::read_to_string(self.home.path().join(format!("web-{datacenter}")));
        // It may be being written.
        text.unwrap().trim().parse().unwrap_or(f64::NAN)
    }

    pub(super) fn set(&self, datacenter: &str, weight: &str) {
        std::fs::write(self.home.path().join(format!("web-{datacenter}")), weight).unwrap();
    }

    /// Lets time pass, until the next run is begun.
    pub(super) fn pass(&self, time: Millis) {
        let clock = &self.drains.world.clock;
        clock.resume_at(clock.now() + time);
    }

    pub(super) async fn begin(
        &self,
        datacenter: &str,
        direction: Direction,
        mode: Mode,
    ) -> Result<RunId, String> {
        let wanted = Wanted {
            datacenter: datacenter.into(),
            direction,
            mode,
            by: named("ann"),
            reason: "a test".into(),
            overload: false,
            give_up: Vec::new(),
        };
        let begun = self.drains.begin(wanted).await;
        begun.map(|(run, _)| run).map_err(|refused| refused.to_string())
    }

    pub(super) async fn drain(&self, datacenter: &str) -> Result<RunId, String> {
        self.begin(datacenter, Direction::Drain, Mode::Drill).await
    }

    pub(super) async fn say(&self, run: RunId, by: &str, verb: Verb) {
        self.drains.say(run, named(by), "a test".into(), &verb).await.unwrap();
    }

    pub(super) async fn over(&self, run: RunId) -> Option<RunOutcome> {
        until(async || !self.drains.driven().contains_key(&run)).await;
        self.drains.status(run).await.unwrap().outcome
    }

    /// Drains it, and waits for the end.
    pub(super) async fn drained(&self, datacenter: &str, mode: Mode) -> RunId {
        let run = self.begin(datacenter, Direction::Drain, mode).await.unwrap();
        assert_eq!(self.over(run).await, Some(RunOutcome::Completed));
        assert_eq!(self.weight(datacenter), 0.0);
        run
    }

    /// Begins a drain, aborts it once the weight is there, and waits for the end.
    pub(super) async fn aborted(&self, datacenter: &str, at: f64) -> RunId {
        let run = self.drain(datacenter).await.unwrap();
        until(async || {
            let status = self.drains.status(run).await.unwrap();
            status.tasks[0].steps == 1 && (self.weight(datacenter) - at).abs() < 1e-6
        })
        .await;
        self.say(run, "ann", Verb::Abort { how: Abort::Hold }).await;
        assert_eq!(self.over(run).await, Some(RunOutcome::Held));
        run
    }

    /// The load of each datacenter before and after a plan.
    pub(super) async fn loads(
        &self,
        datacenter: &str,
        direction: Direction,
    ) -> (Vec<f64>, Vec<f64>) {
        let plan = self.drains.plan(datacenter, direction, Turn::Run).await.unwrap();
        let seen = self.drains.survey(&plan, Turn::Run).await.foresight;
        let rounded = |value: f64| (value * 10.0).round() / 10.0;
        let before = seen.capacity.iter().map(|own| rounded(own.before)).collect();
        (before, seen.capacity.iter().map(|own| rounded(own.after)).collect())
    }

    pub(super) async fn metric(&self, line: &str) -> Option<f64> {
        let mut page = crate::metrics::Page::default();
        write_metrics(&self.drains, &mut page).await;
        let page = page.text();
        let found = page.lines().find_map(|own| own.strip_prefix(line));
        found.map(|value| value.trim().parse().unwrap())
    }

    pub(super) async fn newest(&self) -> store::Run {
        self.drains.runs(Filter::default(), 1).await.unwrap().remove(0)
    }
}

#[tokio::test]
async fn a_drain_is_refused_while_an_aborted_one_has_emptied_the_other_datacenter() {
    let site = Site::start(2, &web(LOOKED_AT, ""), "limits: {drained_max: 100%}").await;
    let first = site.aborted("east", 0.0).await;
    let refused = site.drain("west").await.unwrap_err();
    assert!(
        refused.contains(&format!(
            "limit: serving_min is 1, and without west 0 datacenters would serve web: east is \
             drained (drain, run {first})"
        )),
        "{refused}"
    );
    // In a disaster it is begun, and waits for two people.
    let second = site.begin("west", Direction::Drain, Mode::Disaster).await.unwrap();
    let mut status = site.drains.handle(second).await.unwrap().status;
    let held = status.wait_for(|status| status.tasks[0].hold.is_some()).await.unwrap().clone();
    let why = &held.tasks[0].hold.as_ref().unwrap().why;
    assert!(why.contains("serving_min is 1") && why.contains("run 1"), "{why}");
    site.say(second, "ann", Verb::Waive {}).await;
    assert_eq!(site.weight("west"), 1.0);
    site.say(second, "bob", Verb::Waive {}).await;
    until(async || site.weight("west") == 0.0).await;
}

#[tokio::test]
async fn a_restore_that_was_skipped_has_restored_nothing() {
    let site = Site::start(2, &web(AT_ONCE, ""), "limits: {drained_max: 100%}").await;
    site.drained("east", Mode::Drill).await;
    std::fs::write(site.home.path().join("broken"), "").unwrap();
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    site.say(back, "ann", Verb::Pause { task: None }).await;
    let refused = site.drain("west").await.unwrap_err();
    assert!(refused.contains("east is drained (open restore, run 2)"), "{refused}");
    site.say(back, "ann", Verb::Skip { task: "web.shift".into() }).await;
    assert_eq!(site.over(back).await, Some(RunOutcome::CompletedWithSkips));
    assert_eq!(site.weight("east"), 0.0);
    let refused = site.drain("west").await.unwrap_err();
    assert!(refused.contains("east is drained (restore, run 2)"), "{refused}");
    site.drains.look_between_runs().await.unwrap();
    assert_eq!(site.metric("pharos_drain_share{datacenter=\"east\"}").await, Some(1.0));
}

#[tokio::test]
async fn a_tenth_that_is_left_alone_carries_everything() {
    let site = Site::start(2, &web(TO_A_TENTH, ""), "").await;
    let first = site.aborted("east", 0.1).await;
    assert_eq!(site.loads("west", Direction::Drain).await, (vec![1.8, 18.2], vec![20.0, 0.0]));
    let refused = site.drain("west").await.unwrap_err();
    assert!(refused.contains("drained_max is 50 %"), "{refused}");
    assert!(refused.contains(&format!("east is 90 % drained (drain, run {first})")), "{refused}");
    // Somebody empties the other one by hand.
    site.set("west", "0");
    let (before, _) = site.loads("east", Direction::Drain).await;
    assert_eq!(before, [20.0, 0.0]);
    let plan = site.drains.plan("east", Direction::Drain, Turn::Run).await.unwrap();
    let seen = site.drains.survey(&plan, Turn::Run).await.foresight;
    let mut text = Vec::new();
    write_plan(&mut text, &plan, &seen).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("unserved               0 →      20 of web"), "{text}");
    assert!(text.contains("utilization limit 75 %") && !text.contains("-0"), "{text}");
    let refused = site.drain("east").await.unwrap_err();
    assert!(refused.contains("without east 0 datacenters would serve web"), "{refused}");
}

#[tokio::test]
async fn a_plan_while_another_datacenter_is_drained_adds_up() {
    let site = Site::start(3, &web(AT_ONCE, ""), "limits: {drained_max: 70%}").await;
    assert_eq!(site.loads("west", Direction::Drain).await.0, [10.0, 10.0, 10.0]);
    site.drained("east", Mode::Drill).await;
    let (before, after) = site.loads("west", Direction::Drain).await;
    assert_eq!((before, after), (vec![0.0, 15.0, 15.0], vec![0.0, 0.0, 30.0]));
    let (before, after) = site.loads("east", Direction::Restore).await;
    assert_eq!((before, after), (vec![0.0, 15.0, 15.0], vec![10.0, 10.0, 10.0]));
    site.drained("west", Mode::Drill).await;
}

#[tokio::test]
async fn a_restore_is_accepted_while_everything_is_down() {
    // Neither datacenter can carry all: there is no room anywhere.
    let heavy = web(AT_ONCE, "").replace("east: 10, west: 10, south: 10", "east: 70, west: 70");
    let site = Site::start(2, &heavy, "limits: {drained_max: 100%}").await;
    for datacenter in ["east", "west"] {
        let wanted = Wanted {
            datacenter: datacenter.into(),
            direction: Direction::Drain,
            mode: Mode::Disaster,
            by: named("ann"),
            reason: "fire".into(),
            overload: true,
            give_up: Vec::new(),
        };
        let (run, _) = site.drains.begin(wanted).await.unwrap();
        if datacenter == "west" {
            site.say(run, "ann", Verb::Waive {}).await;
            site.say(run, "bob", Verb::Waive {}).await;
        }
        assert_eq!(site.over(run).await, Some(RunOutcome::Completed));
    }
    assert_eq!((site.weight("east"), site.weight("west")), (0.0, 0.0));
    let (before, after) = site.loads("east", Direction::Restore).await;
    assert_eq!((before, after), (vec![0.0, 0.0], vec![140.0, 0.0]));
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 1.0);
}

#[tokio::test]
async fn a_knob_that_cannot_be_read_bars_a_drill_and_warns_in_a_disaster() {
    let site = Site::start(2, &web(LOOKED_AT, ""), "").await;
    std::fs::remove_file(site.home.path().join("web-west")).unwrap();
    let refused = site.drain("east").await.unwrap_err();
    assert!(refused.contains("whether web is served elsewhere is unknown: west"), "{refused}");
    let run = site.begin("east", Direction::Drain, Mode::Disaster).await.unwrap();
    until(async || site.weight("east") == 0.0).await;
    site.say(run, "ann", Verb::Abort { how: Abort::Hold }).await;
    site.over(run).await;
    // What a run recorded counts where nothing can be read.
    site.set("west", "1");
    std::fs::remove_file(site.home.path().join("web-east")).unwrap();
    let refused = site.drain("west").await.unwrap_err();
    assert!(refused.contains("east is drained (drain, run 1)"), "{refused}");
}

/// Answers for HAProxy: of the servers in each datacenter, what
/// `show servers state` says (srv_op_state, srv_admin_state, srv_uweight).
fn answer_for_haproxy(site: &Site, servers: &[(&str, &str)]) {
    let head = "1\n# be_name srv_name srv_op_state srv_admin_state srv_uweight srv_iweight\n";
    let rows = servers.iter().map(|(name, state)| format!("web {name} {state} 100\n"));
    let states = format!("{head}{}\n", rows.collect::<String>());
    let socket = site.home.path().join("haproxy.sock");
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 200];
            let len = stream.read(&mut asked).unwrap_or(0);
            let is_state = asked[..len].starts_with(b"show servers state");
            let answer = if is_state { states.as_str() } else { "admin\n\n" };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
}

/// A service that HAProxy's states switch.
const SWITCHED: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
load: {east: 10, west: 10, south: 10}
drain:
  off: {template: ConfigChange, with: {knob: "edge:state/web/@$dc-*", content: maint}}
restore:
  on: {template: ConfigChange, with: {knob: "edge:state/web/@$dc-*", content: original}}
"#;

#[tokio::test]
async fn a_drill_is_refused_while_the_servers_elsewhere_are_down_though_they_are_ready() {
    let site = Site::start(3, SWITCHED, "").await;
    let servers = [("east-0", "2 0 100"), ("west-0", "0 0 100"), ("south-0", "0 0 100")];
    answer_for_haproxy(&site, &servers);
    let refused = site.drain("east").await.unwrap_err();
    let expected = "serving_min is 1, and without east 0 datacenters would serve web: west is \
                    drained, south is drained";
    assert!(refused.contains(expected), "{refused}");
}

#[tokio::test]
async fn a_drill_is_refused_while_the_servers_elsewhere_are_up_without_weight_or_down_with_it() {
    let weighted = web(AT_ONCE, "").replace("files:web-$dc", "edge:weight/web/@$dc-*");
    let site = Site::start(2, &weighted, "limits: {drained_max: 100%}").await;
    let servers = [("east-0", "2 0 100"), ("west-0", "2 0 0"), ("west-1", "0 0 100")];
    answer_for_haproxy(&site, &servers);
    let refused = site.drain("east").await.unwrap_err();
    assert!(refused.contains("without east 0 datacenters would serve web"), "{refused}");
}

/// West was restored once, and is lost since: its record must not stand in for it.
#[tokio::test]
async fn what_a_run_recorded_as_open_is_unknown_once_it_cannot_be_read() {
    let site = Site::start(2, &web(AT_ONCE, ""), "limits: {drained_max: 100%}").await;
    site.drained("west", Mode::Drill).await;
    let back = site.begin("west", Direction::Restore, Mode::Drill).await.unwrap();
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("west"), 1.0);
    std::fs::remove_file(site.home.path().join("web-west")).unwrap();
    // What was written or read a moment ago is known.
    let plan = site.drains.plan("east", Direction::Drain, Turn::Run).await.unwrap();
    assert_eq!(plan.fleet.multipliers, [[Some(1.0); 2]]);
    site.pass(Millis::from_secs(16));
    let refused = site.drain("east").await.unwrap_err();
    assert!(refused.contains("whether web is served elsewhere is unknown: west"), "{refused}");
    // A disaster continues, and warns.
    let (run, warnings) = {
        let wanted = Wanted {
            datacenter: "east".into(),
            direction: Direction::Drain,
            mode: Mode::Disaster,
            by: named("ann"),
            reason: "fire".into(),
            overload: false,
            give_up: Vec::new(),
        };
        site.drains.begin(wanted).await.unwrap()
    };
    assert!(warnings.iter().any(|own| own.contains("is unknown: west")), "{warnings:?}");
    assert_eq!(site.over(run).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 0.0);
    // East was left closed: that counts for as long as nothing else is read.
    std::fs::remove_file(site.home.path().join("web-east")).unwrap();
    site.pass(Millis::from_secs(3600));
    let plan = site.drains.plan("east", Direction::Restore, Turn::Run).await.unwrap();
    assert_eq!(plan.fleet.multipliers, [[Some(0.0), None]]);
    // And nothing of it keeps anybody from bringing it back.
    site.set("east", "0");
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 1.0);
}

#[tokio::test]
async fn an_original_outlives_a_second_drain_that_is_reverted() {
    let site = Site::start(2, &web(TO_A_TENTH, ""), "").await;
    site.aborted("east", 0.1).await;
    let again = site.drain("east").await.unwrap();
    site.say(again, "ann", Verb::Abort { how: Abort::Revert }).await;
    site.over(again).await;
    let refused = site.drain("west").await.unwrap_err();
    assert!(refused.contains("drained_max"), "a tenth is not all of it: {refused}");
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 1.0);
}

/// An exporter of a page, scraped every second.
pub(super) fn export(page: &'static str) -> HealthConfig {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n\
                        connection: close\r\ncontent-length";
            let _ = write!(stream, "{head}: {}\r\n\r\n{page}", page.len());
        }
    });
    let endpoint = format!("http://{address}/metrics").parse().unwrap();
    let targets = vec![Target { endpoint, job: String::new(), credentials: None }];
    HealthConfig::Scrape { targets, interval: Duration::from_secs(1) }
}

/// The plan panicked, and with it every restore.
#[tokio::test]
async fn a_restore_is_accepted_whatever_load_is_measured() {
    let health = export("load{dc=\"east\"} 1e308\nload{dc=\"west\"} 1e308\nup_now 1\n");
    let query = "measured_load: sum(load{dc=\"$dc\"})";
    let site = Site::start_with(2, &web(AT_ONCE, query), "", health).await;
    let condition = drain::Condition {
        name: "up".into(),
        source: drain::Source::Query("up_now".into()),
        comparison: drain::Comparison::AtLeast,
        bound: 1.0,
        hold_for: Millis::ZERO,
        max_age: Millis::from_secs(60),
        no_data: drain::NoData::Block,
        no_traffic: drain::NoData::Block,
        no_traffic_back: drain::NoData::Block,
        is_exact: false,
    };
    until(async || site.drains.world.health.measure(&condition).await.is_ok()).await;
    assert_eq!(site.loads("east", Direction::Drain).await, (vec![10.0, 10.0], vec![0.0, 20.0]));
    site.drained("east", Mode::Drill).await;
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
}

#[tokio::test]
async fn the_load_is_measured_where_a_query_says_how() {
    let health = export("load{dc=\"east\"} 12\nload{dc=\"west\"} 24\n");
    let query = "measured_load: sum(load{dc=\"$dc\"})";
    let site = Site::start_with(2, &web(AT_ONCE, query), "", health).await;
    until(async || {
        site.loads("east", Direction::Drain).await == (vec![12.0, 24.0], vec![0.0, 36.0])
    })
    .await;
    // Without values the declared load counts, and the plan says so.
    let site = Site::start(2, &web(AT_ONCE, query), "").await;
    assert_eq!(site.loads("east", Direction::Drain).await, (vec![10.0, 10.0], vec![0.0, 20.0]));
    let plan = site.drains.plan("east", Direction::Drain, Turn::Run).await.unwrap();
    let warnings = site.drains.survey(&plan, Turn::Run).await.warnings;
    let expected =
        "the load of web in east, west could not be measured; the declared `load` is used";
    assert!(warnings.iter().any(|own| own == expected), "{warnings:?}");
}

#[tokio::test]
async fn a_reload_after_a_drain_is_put_back_at_once_and_audited() {
    let site = Site::start(2, &web(AT_ONCE, ""), "").await;
    site.set("east", "0.8");
    let first = site.drained("east", Mode::Disaster).await;
    site.set("east", "0.8");
    // Nobody calls for it: the server looks by itself.
    until(async || site.weight("east") == 0.0).await;
    until(async || site.newest().await.outcome.is_some()).await;
    let run = site.newest().await;
    assert_eq!(
        (run.actor.as_str(), run.outcome.as_deref()),
        ("keep_drained (automatic)", Some("completed"))
    );
    let reason = format!("files:web-east was 0.8, and run {first} left it at 0");
    assert_eq!(run.reason, reason);
    let audit = site.drains.store().audit(1, 100).await.unwrap();
    let entry = audit
        .iter()
        .find(|entry| entry.actor == "keep_drained (automatic)")
        .expect("an audit entry");
    assert_eq!((entry.action.as_str(), entry.reason.as_str()), ("drain east", reason.as_str()));
    site.drains.look_between_runs().await.unwrap();
    assert_eq!(site.metric("pharos_drain_share{datacenter=\"east\"}").await, Some(1.0));
    // Where it was at first is not forgotten.
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 0.8);
    site.drains.look_between_runs().await.unwrap();
    assert_eq!(site.newest().await.id, back, "what is restored is not kept drained");
}

#[tokio::test]
async fn after_a_drill_it_is_only_warned_of() {
    let site = Site::start(2, &web(AT_ONCE, ""), "").await;
    let first = site.drained("east", Mode::Drill).await;
    site.set("east", "1");
    site.drains.look_between_runs().await.unwrap();
    let strayed = site.drains.status(first).await.unwrap().strayed.clone();
    assert_eq!(strayed[0].why, "keep_drained is `disaster`, and the drain was a drill");
    assert_eq!(site.weight("east"), 1.0);
    assert_eq!(site.metric("pharos_drain_share{datacenter=\"east\"}").await, Some(0.0));
}

#[tokio::test]
async fn whoever_keeps_changing_a_knob_wins_and_is_reported() {
    let site = Site::start(2, &web(AT_ONCE, ""), "keep_drained: always").await;
    site.drained("east", Mode::Drill).await;
    for time in 1..=DRIFTS_MAX {
        site.set("east", "1");
        site.drains.look_between_runs().await.unwrap();
        until(async || site.weight("east") == 0.0).await;
        until(async || site.newest().await.outcome.is_some()).await;
        assert_eq!(site.newest().await.id, RunId(1 + u64::from(time)));
    }
    site.set("east", "1");
    site.drains.look_between_runs().await.unwrap();
    let newest = site.newest().await;
    assert_eq!(newest.id, RunId(1 + u64::from(DRIFTS_MAX)), "no further run");
    let strayed = site.drains.status(newest.id).await.unwrap().strayed.clone();
    assert!(strayed[0].why.starts_with("somebody else keeps changing it"), "{strayed:?}");
    assert_eq!(site.weight("east"), 1.0);
    let metric = "pharos_drain_knobs_contested{datacenter=\"east\"}";
    assert_eq!(site.metric(metric).await, Some(1.0));
}

#[tokio::test]
async fn what_is_put_back_respects_limits() {
    let limits = "keep_drained: always\nlimits: {drained_max: 100%}";
    let site = Site::start(2, &web(AT_ONCE, ""), limits).await;
    let first = site.drained("east", Mode::Drill).await;
    // The other one goes down by hand, and somebody turns east on again.
    site.set("west", "0");
    site.set("east", "1");
    site.drains.look_between_runs().await.unwrap();
    let strayed = site.drains.status(first).await.unwrap().strayed.clone();
    assert!(strayed[0].why.starts_with("limit: serving_min is 1"), "{strayed:?}");
    assert_eq!((site.weight("east"), site.newest().await.id), (1.0, first));
}

#[tokio::test]
async fn a_run_that_puts_knobs_back_gives_way_to_a_restore() {
    let site = Site::start(2, &web(AT_ONCE, ""), "keep_drained: always").await;
    site.drained("east", Mode::Drill).await;
    let broken = site.home.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    site.set("east", "0.5");
    site.drains.look_between_runs().await.unwrap();
    let stuck = site.newest().await;
    assert_eq!((stuck.actor.as_str(), stuck.outcome), ("keep_drained (automatic)", None));
    std::fs::remove_file(&broken).unwrap();
    let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
    assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
    assert_eq!(site.weight("east"), 1.0);
}

/// Held before its first step, a drain finds that somebody did its work, or part of it:
/// where the knob stood when it began is where a restore brings it.
#[tokio::test]
async fn what_is_drained_by_hand_before_the_first_step_is_restored_to_where_it_stood() {
    for by_hand in ["0", "0.3"] {
        let health = "health: {errors: {query: nothing_has_it, below: 1, no_data: block}}";
        let site = Site::start(2, &web(AT_ONCE, health), "limits: {drained_max: 100%}").await;
        let run = site.drain("east").await.unwrap();
        let mut status = site.drains.handle(run).await.unwrap().status;
        status.wait_for(|status| status.tasks[0].hold.is_some()).await.unwrap();
        site.set("east", by_hand);
        let verb = Verb::Override { condition: "web.errors".into(), task: None };
        // It looks again before its first step, a second after the last look at the latest.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        site.say(run, "ann", verb).await;
        assert_eq!(site.over(run).await, Some(RunOutcome::Completed));
        assert_eq!(site.weight("east"), 0.0);
        let back = site.begin("east", Direction::Restore, Mode::Drill).await.unwrap();
        let verb = Verb::Override { condition: "web.errors".into(), task: None };
        site.say(back, "ann", verb).await;
        assert_eq!(site.over(back).await, Some(RunOutcome::Completed));
        assert_eq!(site.weight("east"), 1.0, "by hand: {by_hand}");
    }
}
