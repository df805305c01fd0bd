//! What tasks share.

use super::*;

#[test]
fn a_budget_is_shared_and_governed_knobs_follow_it() {
    let mut sketch = Sketch::new();
    sketch.plan.budgets.push(Budget { name: "network".into(), size: 10.0 });
    let network = BudgetId(0);
    let done = sketch.below("caught up", 1.0);
    let mut resync = |name: &str| {
        let knob = sketch.knob(name);
        let stages = vec![
            stage("govern", StageKind::Govern { knob, budget: network }, Next::Stage(StageId(1))),
            stage("catch up", StageKind::Await { condition: done }, Next::Exit(Exit::Done)),
        ];
        let task = sketch.task(name, &[], stages);
        sketch.last().budgets = vec![(network, 8.0)];
        task
    };
    let (one, two) = (resync("one"), resync("two"));
    let mut world = World::open(sketch);
    world.values[0] = Some(2.0);
    world.passes(Millis(3000));
    assert_eq!(world.knobs, [5.0, 5.0].map(Value::Number));
    world.say(Command::Stop { task: one });
    world.passes(Millis(1000));
    assert_eq!(world.knobs[1], Value::Number(8.0), "what the other left");
    assert_eq!(world.phase(two), Phase::Running);
    world.check_replay();
}

const NETWORK: BudgetId = BudgetId(0);

/// Tasks that catch up within a budget of 10; each wants 8.
fn resyncs(names: &[&str]) -> World {
    let mut sketch = Sketch::new();
    sketch.plan.budgets.push(Budget { name: "network".into(), size: 10.0 });
    let done = sketch.below("caught up", 1.0);
    let open = sketch.below("open", 1.0);
    for (at, name) in names.iter().enumerate() {
        let knob = sketch.knob(name);
        let stages = vec![
            stage("govern", StageKind::Govern { knob, budget: NETWORK }, Next::Stage(StageId(1))),
            stage("catch up", StageKind::Await { condition: done }, Next::Exit(Exit::Done)),
        ];
        sketch.task(name, &[], stages);
        sketch.last().budgets = vec![(NETWORK, 8.0)];
        // All but the first wait.
        sketch.last().pre = if at == 0 { vec![] } else { vec![open] };
    }
    let mut world = World::open(sketch);
    world.values = vec![Some(2.0), Some(2.0)];
    world.knobs = vec![Value::Number(0.0); names.len()];
    world.sum_max = 10.0;
    world.passes(Millis(1000));
    assert_eq!(world.knobs[0], Value::Number(8.0));
    world
}

#[test]
fn nobody_is_raised_before_others_are_known_to_be_lower() {
    let mut world = resyncs(&["one", "two"]);
    world.held_back = Some(Vec::new());
    world.values[1] = Some(0.0);
    world.passes(Millis(5000));
    assert_eq!(world.writes(KnobId(0)), [8.0, 5.0], "it is being lowered");
    assert_eq!(world.writes(KnobId(1)), [2.0], "what is left, and no more");
    world.answer();
    world.passes(Millis(1000));
    assert_eq!(world.knobs, [5.0, 5.0].map(Value::Number));
    world.check_replay();
}

#[test]
fn a_lowering_that_fails_keeps_what_it_may_use() {
    let mut world = resyncs(&["one", "two"]);
    world.broken.insert(KnobId(0), Ended::Failed { why: "no answer".into() });
    world.values[1] = Some(0.0);
    world.passes(Millis(3000));
    assert_eq!(world.knobs[1], Value::Number(2.0));
    world.broken.clear();
    world.until("it is lowered", |world| world.knobs[0] == Value::Number(5.0));
    assert_eq!(world.knobs[1], Value::Number(5.0));
}

#[test]
fn where_nothing_is_left_others_wait() {
    let mut world = resyncs(&["one", "two", "three"]);
    world.values[1] = Some(0.0);
    world.passes(Millis(1000));
    let sum = |world: &World| world.knobs.iter().filter_map(Value::number).sum::<f64>();
    assert!((sum(&world) - 10.0).abs() < 1e-6, "{:?}", world.knobs);
    world.check_replay();
}

#[test]
fn who_fails_or_is_stopped_lets_go_and_then_others_get_it() {
    let mut world = resyncs(&["one", "two"]);
    world.values[1] = Some(0.0);
    world.passes(Millis(1000));
    world.held_back = Some(Vec::new());
    world.say(Command::Stop { task: TaskId(0) });
    world.passes(Millis(1000));
    assert_eq!(world.writes(KnobId(0)).last(), Some(&0.0), "nobody sees to it any more");
    assert_eq!(world.knobs[1], Value::Number(5.0), "not before that is known");
    world.answer();
    world.passes(Millis(1000));
    assert_eq!(world.knobs, [0.0, 8.0].map(Value::Number));
    world.say(Command::Retry { task: TaskId(0) });
    world.passes(Millis(2000));
    assert_eq!(world.knobs, [5.0, 5.0].map(Value::Number), "as before");
    world.check_replay();
}

/// A shift that was held and goes on shares what there is from its next step on.
#[test]
fn who_was_held_does_not_go_on_at_full_speed() {
    let mut sketch = Sketch::new();
    sketch.plan.budgets.push(Budget { name: "network".into(), size: 10.0 });
    let errors = sketch.below("errors", 1.0);
    for name in ["one", "two"] {
        sketch.shift(name, &[]);
        sketch.last().budgets = vec![(NETWORK, 10.0)];
        sketch.last().pace.adaptive = false;
    }
    sketch.last().health = vec![errors];
    let mut world = World::open(sketch);
    world.until("both began", |world| world.writes(KnobId(1)).len() == 2);
    assert_eq!(world.writes(KnobId(1)), [0.95, 0.9], "half of the speed each");
    world.values[0] = Some(2.0);
    world.passes(Millis(2000));
    world.values[0] = Some(0.0);
    world.until("it goes on", |world| world.writes(KnobId(1)).len() == 3);
    assert_eq!(world.writes(KnobId(1)), [0.95, 0.9, 0.85]);
    world.check_replay();
}

#[test]
fn who_is_skipped_goes_on_and_keeps_its_share() {
    let mut world = resyncs(&["one", "two"]);
    world.values[1] = Some(0.0);
    world.passes(Millis(1000));
    world.say(Command::Skip { task: TaskId(0) });
    world.passes(Millis(2000));
    assert_eq!(world.knobs, [5.0, 5.0].map(Value::Number));
}

#[test]
fn a_rate_is_lowered_at_once_and_raised_when_health_allows() {
    let mut world = resyncs(&["one", "two"]);
    world.values[1] = Some(0.0);
    world.passes(Millis(1000));
    world.say(Command::Pause { task: Some(TaskId(1)) });
    world.say(Command::Stop { task: TaskId(0) });
    world.passes(Millis(2000));
    assert_eq!(world.knobs, [0.0, 5.0].map(Value::Number), "no step while it is paused");
    world.say(Command::Resume { task: Some(TaskId(1)) });
    world.passes(Millis(1000));
    assert_eq!(world.knobs[1], Value::Number(8.0));
}

/// The way back uses what the way there did.
#[test]
fn who_goes_back_shares_too() {
    let largest_step_back = |others: usize| {
        let mut sketch = Sketch::new();
        sketch.plan.budgets.push(Budget { name: "network".into(), size: 10.0 });
        for at in 0..=others {
            sketch.shift(&format!("web-{at}"), &[]);
            sketch.last().budgets = vec![(NETWORK, 10.0)];
        }
        let mut world = World::open(sketch);
        world.until("it is gone", |world| world.writes(KnobId(0)).last() == Some(&0.0));
        let gone = world.writes(KnobId(0)).len() - 1;
        world.say(Command::Abort { how: Abort::Revert });
        world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
        let back = world.writes(KnobId(0)).split_off(gone);
        back.windows(2).map(|step| step[1] - step[0]).fold(0.0, f64::max)
    };
    assert!(largest_step_back(3) < largest_step_back(0) / 2.0);
}

/// All that begin at once share once. It takes as long as there are tasks, so
/// doing it for each of them took half a minute for these.
#[test]
fn ten_thousand_tasks_share_a_budget_at_once() {
    let mut sketch = Sketch::new();
    sketch.plan.budgets.push(Budget { name: "network".into(), size: 10.0 });
    let errors = sketch.below("errors", 1.0);
    sketch.plan.health = vec![errors];
    for at in 0..10_000 {
        sketch.shift(&format!("web-{at}"), &[]);
        sketch.last().budgets = vec![(NETWORK, 10.0)];
    }
    let (mut run, _) = Run::open(Arc::new(sketch.plan), "ann", "", Mode::Drill, Time(0));
    // Health is bad, and then it is not.
    for (at, value) in [2.0, 0.0].into_iter().enumerate() {
        let asked = Time(1000 * at as u64);
        let found = Some(Measurement::at(asked, value));
        run.handle(asked, Event::Observed { condition: errors, asked, found }).unwrap();
    }
    assert!(run.toil.divided <= 6, "{:?}", run.toil);
}
