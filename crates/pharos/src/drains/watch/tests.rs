use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use drain::engine::{
    Abort, Actor, Command, Effect, Ended, Fact, Hold, Phase, Record, Run, Trigger, User,
};
use drain::runbook::Library;
use drain::{ConditionId, Direction, Eta, KnobId, Plan, StageKind, TaskId, Time, Value, Verdict};
use lab::drains::{Options, Site, World, simulate};
use proptest::prelude::*;
use store::RunId;

use super::picture::state;
use super::screen::width;
use super::*;
use crate::drains::status::{NeedKind, NeedsPerson, Unseen};
use crate::drains::{read_file, read_files};

/// 2026-11-17 03:12:04 in Berlin.
const START: Time = Time(1_794_881_524_000);

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)
}

fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
}

/// The plan of 79 tasks, and what a simulated run of it wrote down.
fn paper() -> &'static (Arc<Plan>, Vec<Record>) {
    static PAPER: OnceLock<(Arc<Plan>, Vec<Record>)> = OnceLock::new();
    PAPER.get_or_init(|| {
        let library = Library::new(read_files(&[file("runbooks/paper")]).unwrap());
        let none = BTreeMap::new();
        let plan = library.plan("east", Direction::Drain, &none, &BTreeMap::new()).unwrap();
        let (name, text) = read_file(&file("worlds/paper.yaml")).unwrap();
        let world = World::new(Arc::new(Site::read(&name, &text).unwrap()), START);
        let mut log = simulate(world, &plan, 1, &Options::default()).unwrap().log;
        if let Fact::Opened { by, reason, .. } = &mut log[0].fact {
            (*by, *reason) = (person("ann"), "chiller failed in hall 2, INC-4711".into());
        }
        (Arc::new(plan), log)
    })
}

fn person(name: &str) -> Actor {
    let uid = if name.starts_with("ann") { 1000 } else { 1001 };
    let name = name.split(' ').next().map(str::to_owned);
    Actor::user(User { uid, gid: uid, pid: None, name })
}

/// A run as it was after a share of its time.
struct Past {
    plan: Arc<Plan>,
    log: Vec<Record>,
}

impl Past {
    fn after(share: f64) -> Past {
        let (plan, log) = paper();
        let (first, last) = (log[0].at, log.last().unwrap().at);
        let until = first + (last - first) * share;
        let log = log.iter().filter(|record| record.at <= until).cloned().collect();
        Past { plan: plan.clone(), log }
    }

    fn now(&self) -> Time {
        self.log.last().unwrap().at
    }

    fn add(&mut self, secs: u64, fact: Fact) {
        let (seq, at) = (self.log.len() as u64, self.now() + drain::Millis::from_secs(secs));
        self.log.push(Record { seq, at, fact });
    }

    fn run(&self) -> Run {
        Run::resume(self.plan.clone(), &self.log).unwrap()
    }

    fn said(&mut self, secs: u64, by: &str, reason: &str, command: Command) {
        let (by, reason) = (person(by), reason.to_owned());
        self.add(secs, Fact::Commanded { by, reason, command, observed: Vec::new() });
    }

    /// Tasks that run and are not held.
    fn running(&self) -> Vec<TaskId> {
        let run = self.run();
        let is_free = |id: &TaskId| {
            let own = run.state().task(*id);
            own.phase == Phase::Running && own.hold.is_none() && own.in_flight.is_none()
        };
        self.plan.task_ids().filter(is_free).collect()
    }

    /// Its status, with values where the health of a run is measured.
    fn status(&self, wait_secs: u64) -> Status {
        let now = self.now() + drain::Millis::from_secs(wait_secs);
        let mut status = Status::of(&self.run(), RunId(7), now, &Unseen::default());
        for own in &mut status.conditions {
            (own.value, own.verdict) = (Some(own.bound * 0.5), Verdict::Holds);
        }
        status
    }
}

fn early() -> Status {
    Past::after(0.06).status(1)
}

/// Three are held, one failed, one is stuck, and a knob drifts.
fn troubled() -> Status {
    let mut past = Past::after(0.4);
    let running = past.running();
    let [a, b, c, failing, stuck, ..] = running[..] else { panic!("{} run", running.len()) };
    let errors = past.plan.health[0];
    let wait = ConditionId(past.plan.conditions.len() as u32 - 1);
    let knob = (0..past.plan.knobs.len() as u32).map(KnobId);
    let left = past.run().state().knobs.clone();
    let knob = knob.rev().find(|knob| left[knob.index()].is_some()).unwrap();
    let expected = left[knob.index()].as_ref().unwrap().value.clone();
    for _ in 0..2 {
        let found = Value::Number(1.0);
        past.add(20, Fact::Drifted { knob, expected: expected.clone(), found });
    }
    let usual = Some(drain::Millis::from_secs(60));
    let own = &mut Arc::make_mut(&mut past.plan).tasks[stuck.index()];
    (own.expected.usual, own.expected.stuck_after) = (usual, Some(drain::Millis::from_secs(90)));
    past.add(5, Fact::Stuck { task: stuck });
    let effect = past.run().state().next_effect;
    let what = Effect::Write { knob: KnobId(0), value: Value::Number(0.5) };
    past.add(1, Fact::Issued { effect, task: failing, what });
    let why = "edge: writing web/east: 127.0.0.1:9999 refuses: No such backend.".to_owned();
    past.add(1, Fact::Ended { effect, result: Ended::Refused { why } });
    past.add(0, Fact::Moved { task: failing, trigger: Trigger::StagesFailed });
    past.add(
        40,
        Fact::Held { task: a, why: Hold::Breach { condition: errors, value: Some(0.97) } },
    );
    past.add(2, Fact::Held { task: b, why: Hold::Breach { condition: errors, value: Some(0.97) } });
    past.add(3, Fact::Held { task: c, why: Hold::NoData { condition: wait } });
    let mut status = past.status(9);
    let name = past.plan.condition(errors).name.clone();
    let own = status.conditions.iter_mut().find(|own| own.name == name).unwrap();
    (own.value, own.verdict) = (Some(0.97), Verdict::Breached);
    own.series = Some("{dc=\"west\", service=\"feed\"}".into());
    own.age_ms = Some(4200);
    status
}

fn paused() -> Status {
    let mut past = Past::after(0.3);
    past.said(3, "bob (uid 1001)", "wait for the crew in hall 2", Command::Pause { task: None });
    for task in past.running() {
        past.add(0, Fact::Held { task, why: Hold::Paused });
    }
    past.status(95)
}

fn reverting() -> Status {
    let mut past = Past::after(0.5);
    let how = Abort::Revert;
    past.said(2, "ann (uid 1000)", "west cannot bear it", Command::Abort { how });
    for task in past.running().into_iter().take(6) {
        past.add(1, Fact::Moved { task, trigger: Trigger::Revert });
    }
    past.status(2)
}

fn over() -> Status {
    Past::after(1.0).status(0)
}

fn view<'a>(columns: usize, rows: usize, zone: &'a TimeZone) -> View<'a> {
    View { columns, rows: Some(rows), has_colours: false, zone, warnings: &[] }
}

#[test]
fn a_run_of_79_tasks_fits_every_terminal() {
    let zone = berlin();
    for (columns, rows) in [(80, 24), (100, 30), (200, 50)] {
        for (name, status) in [
            ("early", early()),
            ("troubled", troubled()),
            ("paused", paused()),
            ("reverting", reverting()),
            ("over", over()),
        ] {
            assert_eq!(status.tasks.len(), 79);
            let picture = render(&status, &view(columns, rows, &zone));
            insta::assert_snapshot!(format!("{name}_{columns}x{rows}"), picture);
        }
    }
}

#[test]
fn what_needs_a_person_comes_first_with_what_to_do() {
    let zone = berlin();
    let picture = render(&troubled(), &view(80, 24, &zone));
    let place = |text: &str| picture.find(text).unwrap_or_else(|| panic!("no {text}: {picture}"));
    assert!(place("needs a person: 2") < place("held: 3"), "{picture}");
    assert!(place("held: 3") < place("drift: 1") && place("drift: 1") < place("running:"));
    assert!(picture.contains("No such backend") && picture.contains("{dc=\"west\""), "{picture}");
}

/// A breach holds everything at once: one reason is said once.
#[test]
fn tasks_that_one_reason_holds_are_one_item() {
    let mut past = Past::after(0.06);
    let (tasks, condition) = (past.running(), past.plan.health[1]);
    for task in &tasks {
        past.add(0, Fact::Held { task: *task, why: Hold::Breach { condition, value: Some(0.95) } });
    }
    let zone = berlin();
    for (secs, title) in [(9, "held: "), (90, "needs a person: ")] {
        let picture = render(&past.status(secs), &view(80, 24, &zone));
        let count = tasks.len();
        assert!(picture.contains(&format!("{title}{count}")), "{picture}");
        assert!(picture.contains(&format!("‖* {count} tasks")), "{picture}");
        assert_eq!(picture.matches("is 0.95, must be").count(), 1, "{picture}");
        assert!(picture.contains("messaging.sessions") && picture.contains("web.shift"));
        if secs == 90 {
            assert!(picture.contains("`skip TASK` or `abort`"), "{picture}");
        }
    }
}

/// Whoever looks does not wait for a minute to learn what helps.
#[test]
fn missing_data_shows_at_once_what_helps() {
    let mut past = Past::after(0.06);
    let (tasks, condition) = (past.running(), past.plan.health[1]);
    past.add(0, Fact::Held { task: tasks[0], why: Hold::NoData { condition } });
    let name = &past.plan.condition(condition).name;
    let zone = berlin();
    for secs in [1, 90] {
        let picture = render(&past.status(secs), &view(80, 24, &zone));
        assert_eq!(picture.matches(&format!("`override {name}`")).count(), 1, "{picture}");
    }
}

#[test]
fn a_failed_task_always_has_a_reason() {
    let mut past = Past::after(0.4);
    let task = past.running()[0];
    past.add(1, Fact::Moved { task, trigger: Trigger::StagesFailed });
    let status = past.status(1);
    let own = &status.tasks[task.index()];
    assert!(own.failure.is_some() && own.reason == own.failure, "{own:?}");
    assert_eq!(status.needs_person[0].task.as_ref(), Some(&own.name));
}

/// It does not begin again by itself, and the run stays open for it.
#[test]
fn a_task_that_a_breach_put_back_needs_a_person() {
    let mut past = Past::after(0.4);
    let task = past.running()[0];
    let why = "shift: errors is 0.97, must be < 0.01".to_owned();
    past.add(1, Fact::Failed { task, why: why.clone() });
    past.add(0, Fact::Moved { task, trigger: Trigger::Revert });
    past.add(9, Fact::Moved { task, trigger: Trigger::RevertDone });
    let status = past.status(1);
    let need = status.needs_person.iter().find(|own| own.kind == NeedKind::Reverted).unwrap();
    let name = &past.plan.task(task).name;
    assert_eq!((need.task.as_ref(), &need.why), (Some(name), &why));
    assert_eq!(need.todo, format!("`retry {name}` or `skip {name}`, or `abort`"));
}

/// What is refused is not offered.
#[test]
fn skip_is_not_offered_where_it_is_refused() {
    let mut past = Past::after(0.4);
    let task = past.running()[0];
    let name = past.plan.task(task).name.clone();
    past.add(1, Fact::Moved { task, trigger: Trigger::StagesFailed });
    let todo = |past: &Past| {
        let status = past.status(1);
        let need = status.needs_person.iter().find(|own| own.task.as_ref() == Some(&name));
        need.unwrap().todo.clone()
    };
    assert!(todo(&past).contains("`skip"), "{}", todo(&past));
    let stages = &mut Arc::make_mut(&mut past.plan).tasks[task.index()].stages;
    let asks = StageKind::Approve { question: "Now?".into(), people: 2 };
    let more = drain::Stage { kind: asks, ..stages[0].clone() };
    stages.push(more);
    assert!(!todo(&past).contains("`skip"), "{}", todo(&past));
}

#[test]
fn the_first_line_says_what_keeps_a_run() {
    let running = Status { paused: false, abort: None, outcome: None, ..early() };
    let told = |change: &dyn Fn(&mut Status)| {
        let mut status = running.clone();
        change(&mut status);
        state(&status)
    };
    assert_eq!(told(&|_| {}), "running");
    assert_eq!(told(&|status| status.paused = true), "paused");
    assert_eq!(told(&|status| status.abort = Some(Abort::Revert)), "aborting (revert)");
    // It does not go back until somebody says that it may.
    let both = |status: &mut Status| (status.abort, status.paused) = (Some(Abort::Revert), true);
    assert_eq!(told(&both), "aborting (revert), paused");
    let full = Some("the disk is full".to_owned());
    assert_eq!(told(&|status| status.stands_still.clone_from(&full)), "standing still");
    let outcome = drain::engine::RunOutcome::PartlyReverted;
    assert_eq!(told(&|status| status.outcome = Some(outcome)), "partly reverted");
}

#[test]
fn a_run_that_cannot_be_read_says_so_and_how_to_close_it() {
    let run = store::Run {
        id: RunId(7),
        datacenter: "east".into(),
        direction: "drain".into(),
        actor: "ann (uid 1000)".into(),
        reason: "power works".into(),
        created_at: START.0,
        ended_at: None,
        outcome: None,
        records: 12,
        epoch: 3,
        holder: None,
        held_until: None,
    };
    let why = "record 5 of run 7: missing field `seq`";
    let status = crate::drains::custody::bare_status(&run, START, why.into());
    let zone = berlin();
    let picture = render(&status, &view(80, 24, &zone));
    assert!(
        picture.contains("standing still") && picture.contains("record 5 of run 7"),
        "{picture}"
    );
    assert!(picture.contains("pharos abort --run 7"), "{picture}");
}

#[test]
fn a_status_is_read_as_it_was_written() {
    for mut status in [early(), troubled(), paused(), reverting(), over()] {
        // The server keeps it for itself.
        status.touched.clear();
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(serde_json::from_value::<Status>(json).unwrap(), status);
    }
}

#[test]
fn a_frame_clears_what_was_there_and_takes_no_letter() {
    assert_eq!(frame("a\nb", false), "\u{1b}[H\u{1b}[Ka\n\u{1b}[Jb");
    assert_eq!(frame("a", true), "\u{1b}[2J\u{1b}[H\u{1b}[Ja");
}

/// A text that somebody may have written anywhere.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "\\PC{0,300}",
        "[a-z .]{0,400}",
        "[日本語ｗ🚀é\u{301}\u{200d}]{0,120}",
        "(-0 %|[\u{1b}\n\t\r\u{202e}]){0,20}x",
    ]
}

fn some_status() -> impl Strategy<Value = Status> {
    let numbers = prop_oneof![Just(-0.0), Just(f64::NAN), Just(f64::MAX), -2.0..2.0];
    let base = prop_oneof![
        Just(early()),
        Just(troubled()),
        Just(paused()),
        Just(reverting()),
        Just(over())
    ];
    let task = (any::<prop::sample::Index>(), texts(), numbers, 0..11_usize, texts());
    let changes = prop::collection::vec(task, 0..30);
    (base, texts(), texts(), changes, 0..40_usize).prop_map(|(base, by, reason, changes, needs)| {
        let mut status = Status { by, reason: reason.replace("-0 %", ""), ..base };
        for (at, name, progress, phase, why) in changes {
            let why = why.replace("-0 %", "");
            let count = status.tasks.len();
            let task = &mut status.tasks[at.index(count)];
            task.phase = Phase::ALL[phase];
            task.progress = Some(progress);
            task.name = name.replace("-0 %", "");
            task.failure = Some(why.clone());
            if let Some(hold) = &mut task.hold {
                hold.why.clone_from(&why);
            }
            status.critical_path.push(task.name.clone());
            status.eta = Eta::AtLeast { at: Time(status.now.0 + 5_000_000_000), why };
        }
        let known = status.needs_person.clone();
        let many = known.iter().cycle().take(needs).cloned();
        status.needs_person = many.collect::<Vec<NeedsPerson>>();
        status.by = status.by.replace("-0 %", "");
        status
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_picture_is_larger_than_its_terminal(
        status in some_status(),
        columns in 80..260_usize,
        rows in 24..80_usize,
        warnings in prop::collection::vec("[a-z ]{0,200}", 0..4),
    ) {
        let zone = TimeZone::UTC;
        let view = View { warnings: &warnings, ..view(columns, rows, &zone) };
        let picture = render(&status, &view);
        prop_assert!(picture.split('\n').count() <= rows, "{}", picture);
        for line in picture.split('\n') {
            prop_assert!(width(line) <= columns, "{} > {columns}: {line}", width(line));
        }
        prop_assert!(!picture.contains("-0 %"), "{}", picture);
        prop_assert!(!picture.contains(|letter: char| base::text::is_hidden(letter) && letter != '\n'));
        // The same in colours takes no more room.
        let painted = render(&status, &View { has_colours: true, ..view });
        prop_assert_eq!(painted.split('\n').count(), picture.split('\n').count());
    }
}
