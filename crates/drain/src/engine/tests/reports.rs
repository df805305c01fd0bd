//! What a report says of a run.

use proptest::prelude::*;

use super::*;
use crate::report::{CostlyEdge, Report};

/// Tasks that only wait, each after some of those before it.
pub(super) fn waits(tasks: &[(u64, Vec<usize>)]) -> Sketch {
    let mut sketch = Sketch::new();
    for (at, (secs, after)) in tasks.iter().enumerate() {
        let span = Millis::from_secs(*secs);
        let wait = stage("wait", StageKind::TimedWait { span }, Next::Exit(Exit::Done));
        let after: Vec<TaskId> = after.iter().map(|parent| TaskId(*parent as u32)).collect();
        sketch.task(&format!("t{at}"), &after, vec![wait]);
    }
    sketch
}

fn report_of(world: &World) -> Report {
    Report::of(world.run.plan(), &world.log).unwrap()
}

fn carried_out(sketch: Sketch) -> Report {
    let mut world = World::open(sketch);
    world.until("all have waited", |world| world.outcome().is_some());
    report_of(&world)
}

#[test]
fn the_critical_path_is_what_was_waited_for_and_its_costliest_link_is_named() {
    // t3 waits for t1, which waits for t0; t2 is ready long before.
    let report = carried_out(waits(&[(10, vec![]), (5, vec![0]), (7, vec![]), (3, vec![1, 2])]));
    assert_eq!(report.critical_path, ["t0", "t1", "t3"]);
    assert_eq!(report.makespan, Millis::from_secs(18));
    let critical: Vec<bool> = report.tasks.iter().map(|task| task.is_critical).collect();
    assert_eq!(critical, [true, true, false, true]);
    // Without it t3 would end after 10 s, as t0 does.
    let saves = Millis::from_secs(8);
    let costliest = CostlyEdge { task: "t1".into(), after: "t0".into(), is_weak: false, saves };
    assert_eq!(report.costliest, Some(costliest));
}

#[test]
fn what_nothing_waits_for_has_no_costly_link() {
    let report = carried_out(waits(&[(10, vec![]), (5, vec![])]));
    assert_eq!((report.critical_path, report.costliest), (vec!["t0".into()], None));
}

#[test]
fn a_weak_link_counts_while_it_is_waited_for() {
    let sketch = || {
        let mut sketch = waits(&[(10, vec![]), (5, vec![])]);
        sketch.last().after_weak = vec![TaskId(0)];
        sketch
    };
    let costliest = carried_out(sketch()).costliest.unwrap();
    assert!(costliest.is_weak);
    assert_eq!(costliest.saves, Millis::from_secs(5));

    let mut world = World::open(sketch());
    world.say(Command::SetMode { mode: Mode::Disaster });
    world.until("all have waited", |world| world.outcome().is_some());
    let report = report_of(&world);
    assert_eq!((report.critical_path, report.costliest), (vec!["t0".into()], None));
}

#[test]
fn close_calls_and_holds_are_told_with_their_values() {
    let (mut world, web, errors) = watched(OnBreach::Hold);
    world.values[errors.index()] = Some(0.85);
    world.pass();
    world.values[errors.index()] = Some(3.0);
    world.until("it is held", |world| world.run.state().task(web).hold.is_some());
    world.passes(Millis(4000));
    world.values[errors.index()] = Some(0.0);
    world.until("it is drained", |world| world.outcome().is_some());
    let report = report_of(&world);
    assert_eq!(report.close.len(), 1);
    assert_eq!((report.close[0].condition.as_str(), report.close[0].value), ("errors", 3.0));
    let [(why, held)] = &report.tasks[0].held[..] else { panic!("{:?}", report.tasks[0].held) };
    assert_eq!(why, "breach of errors < 1");
    assert_eq!(report.holds[0].why, "breach: errors is 3, must be < 1");
    assert!(*held >= Millis(4000), "{held:?}");
    assert_eq!(report.tasks[0].breaches, 1);
}

#[test]
fn curves_have_their_bounds_and_what_was_missing_or_too_much() {
    let (mut world, _, errors) = watched(OnBreach::Hold);
    world.values[errors.index()] = Some(0.25);
    world.passes(Millis(2000));
    let began = world.now;
    world.values[errors.index()] = None;
    world.passes(Millis(40_000));
    world.values[errors.index()] = Some(3.0);
    world.passes(Millis(7000));
    world.values[errors.index()] = Some(0.5);
    world.until("it is drained", |world| world.outcome().is_some());
    let report = report_of(&world);
    let [curve] = &report.conditions[..] else { panic!("{:?}", report.conditions) };
    assert_eq!((curve.name.as_str(), curve.comparison, curve.bound), ("errors", "<", 1.0));
    assert!(curve.points.iter().any(|(_, value)| *value == Some(0.25)), "{curve:?}");
    assert_eq!(curve.nearness, 3.0);
    let [outage] = curve.outages[..] else { panic!("{:?}", curve.outages) };
    assert!(outage.from > began && outage.to - outage.from >= Millis(8000), "{outage:?}");
    let [breach] = curve.breaches[..] else { panic!("{:?}", curve.breaches) };
    assert_eq!(breach.from, outage.to);
    assert!(breach.to - breach.from >= Millis(6000), "{breach:?}");
    let kinds: Vec<&str> = report.holds.iter().map(|hold| hold.kind).collect();
    assert!(kinds.contains(&"no_data") && kinds.contains(&"breach"), "{kinds:?}");
}

#[test]
fn a_failure_is_told_also_where_a_retry_mended_it() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.broken.insert(KnobId(0), Ended::Refused { why: "no such server".into() });
    world.until("it fails", |world| world.phase(web) == Phase::Failed);
    let failed = world.now;
    world.broken.clear();
    world.say(Command::Retry { task: web });
    world.until("it is drained", |world| world.outcome().is_some());
    let [failure] = &report_of(&world).failures[..] else { panic!("not one") };
    assert_eq!((failure.task.as_str(), failure.at), ("web", failed));
    assert!(failure.why.contains("no such server"), "{failure:?}");
}

/// A run of hours writes down a bounded number of values, and goes on after a
/// crash where it was.
#[test]
fn measured_values_are_few_and_survive_a_crash() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    let hours = StageKind::TimedWait { span: Millis::from_secs(6 * 3600) };
    sketch.task("web", &[], vec![stage("wait", hours, Next::Exit(Exit::Done))]);
    sketch.last().health = vec![errors];
    let mut world = World::open(sketch);
    world.tick = Millis(12_000);
    for pass in 0..1700 {
        // It flaps all the time.
        world.values[errors.index()] = (pass % 2 == 0).then_some(0.5);
        world.pass();
    }
    let count = |is: fn(&Fact) -> bool| world.log.iter().filter(|own| is(&own.fact)).count();
    let measured = count(|fact| matches!(fact, Fact::Measured { .. }));
    let changed = count(|fact| matches!(fact, Fact::Changed { .. }));
    assert!((100..300).contains(&measured), "{measured}");
    assert!(changed <= 400, "{changed}");
    world.check_replay();
}

#[test]
fn a_page_escapes_everything_and_says_who_when_and_why() {
    let hostile = "</text><script>alert(1)</script>'\"\u{202e}\u{2028}";
    let mut sketch = Sketch::new();
    let errors = sketch.below(hostile, 1.0);
    sketch.shift(hostile, &[]);
    sketch.last().health = vec![errors];
    sketch.plan.datacenter = hostile.into();
    let mut world = World::open(sketch);
    world.event(Event::Said {
        by: hostile.into(),
        reason: hostile.into(),
        command: Command::Pause { task: None },
    });
    world.passes(Millis(3000));
    world.say(Command::Resume { task: None });
    world.until("it is drained", |world| world.outcome().is_some());
    let report = report_of(&world).identified(7, &jiff::tz::TimeZone::UTC);
    let page = crate::report::render(&report, &jiff::tz::TimeZone::UTC);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
    assert!(!page.contains(['\u{202e}', '\u{2028}']), "{page}");
    assert!(page.contains("Run 7: drain of") && page.contains("resume all"), "{page}");
    assert!(page.contains(" UTC") && !page.contains("-0 %") && !page.contains("NaN"), "{page}");
    assert_eq!(report.opened_at.as_deref().map(|at| &at[at.len() - 6..]), Some("+00:00"));
}

proptest! {
    /// What a report says that a link cost is what is saved when the same run is
    /// carried out without it, and no other link of the path would save more.
    #[test]
    fn the_costliest_link_saves_what_it_is_said_to(
        tasks in (2..9_usize).prop_flat_map(|count| {
            (0..count)
                .map(|at| (1..20_u64, prop::sample::subsequence((0..at).collect::<Vec<_>>(), 0..=at)))
                .collect::<Vec<_>>()
        })
    ) {
        let report = carried_out(waits(&tasks));
        let without = |parent: &str, task: &str| {
            let at = |name: &str| name[1..].parse::<usize>().unwrap();
            let mut fewer = tasks.clone();
            fewer[at(task)].1.retain(|own| *own != at(parent));
            Millis(report.makespan.0 - carried_out(waits(&fewer)).makespan.0)
        };
        let saved = report.critical_path.windows(2).map(|link| without(&link[0], &link[1])).max();
        let told = report.costliest.as_ref().map(|edge| edge.saves);
        prop_assert_eq!(told.unwrap_or_default(), saved.unwrap_or_default());
        if let Some(edge) = &report.costliest {
            prop_assert_eq!(without(&edge.after, &edge.task), edge.saves);
        }
    }
}
