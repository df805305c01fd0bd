//! What bad health does to a shift.

use super::*;

#[test]
fn a_breach_holds_until_health_is_back() {
    let (mut world, web, errors) = watched(OnBreach::Hold);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.values[0] = Some(1.5);
    world.passes(Millis(60_000));
    assert_eq!(world.writes(KnobId(0)).len(), 2, "no step past a breach");
    let (_, hold) = world.run.state().task(web).hold.clone().unwrap();
    assert_eq!(hold, Hold::Breach { condition: errors, value: Some(1.5) });
    world.values[0] = None;
    world.passes(Millis(5_000));
    let (_, hold) = world.run.state().task(web).hold.clone().unwrap();
    assert_eq!(hold, Hold::NoData { condition: errors });
    world.values[0] = Some(0.1);
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn a_breach_that_lasts_can_back_off() {
    let (mut world, ..) = watched(OnBreach::BackOff);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 3);
    world.values[0] = Some(1.5);
    world.passes(Millis(6_000));
    assert_eq!(world.writes(KnobId(0)), [0.9, 0.7, 0.3, 0.7]);
    world.passes(Millis(60_000));
    assert_eq!(world.knobs[0], Value::Number(1.0), "all the way, if nothing less helps");
    world.values[0] = Some(0.1);
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn a_breach_that_lasts_can_revert_in_steps_and_be_tried_again() {
    let (mut world, web, _) = watched(OnBreach::Revert);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 3);
    world.values[0] = Some(1.5);
    world.until("it is back", |world| world.phase(web) == Phase::Reverted);
    let why = world.run.state().task(web).failure.clone();
    assert_eq!(why.as_deref(), Some("shift: breach: errors is 1.5, must be < 1"));
    let writes = world.writes(KnobId(0));
    assert!(writes.len() > 5 && writes.last() == Some(&1.0), "{writes:?}");
    assert_eq!(world.outcome(), None);
    world.values[0] = Some(0.1);
    world.say(Command::Retry { task: web });
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn waits_grow_when_a_bound_is_close_and_steps_shrink_when_they_bring_it_closer() {
    let drain = |value: fn(f64) -> f64| {
        let (mut world, ..) = watched(OnBreach::Hold);
        world.values[0] = Some(value(1.0));
        for steps in 1.. {
            world.until("the next step", |world| {
                world.writes(KnobId(0)).len() >= steps || world.outcome().is_some()
            });
            if world.outcome().is_some() {
                break;
            }
            world.values[0] = world.writes(KnobId(0)).last().map(|weight| value(*weight));
        }
        (world.writes(KnobId(0)).len(), world.now)
    };
    let (calm, close) = (drain(|_| 0.1), drain(|_| 0.9));
    assert_eq!(calm.0, close.0, "other things make it close");
    assert!(calm.1 < close.1);
    let closer = drain(|weight| 0.99 - 0.19 * weight);
    assert!(closer.0 > close.0 && closer.1 > close.1, "{closer:?} {close:?}");
}

#[test]
fn what_went_back_begins_anew_when_it_is_retried() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    let (first, second) = (sketch.knob("weight"), sketch.knob("sessions"));
    let to = || Goal::Value(Value::Number(0.0));
    let stages = vec![
        stage("weight", StageKind::Shift { knob: first, to: to() }, Next::Stage(StageId(1))),
        stage("sessions", StageKind::Shift { knob: second, to: to() }, Next::Exit(Exit::Done)),
    ];
    let chat = sketch.task("chat", &[], stages);
    (sketch.last().health, sketch.last().pace.on_breach) = (vec![errors], OnBreach::Revert);
    let mut world = World::open(sketch);
    world.until("sessions are ended", |world| world.writes(second).len() == 2);
    world.values[0] = Some(1.5);
    world.until("it is back", |world| world.phase(chat) == Phase::Reverted);
    assert_eq!(world.knobs, [1.0, 1.0].map(Value::Number));
    world.values[0] = Some(0.1);
    world.say(Command::Retry { task: chat });
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs, [0.0, 0.0].map(Value::Number), "both, the first one too");
    world.check_replay();
}

/// Steps are shares of the way, none smaller than a two-hundredth: whatever
/// health does, the way back ends.
#[test]
fn the_way_back_ends_however_bad_health_is() {
    for first in [0.0, 0.001, 0.05, 1.0] {
        let (mut world, web, _) = watched(OnBreach::Hold);
        let mut plan = (**world.run.plan()).clone();
        plan.tasks[0].pace = Pace { first, wait: Millis(100), wait_max: Millis(400), ..PACE };
        plan.tasks[0].pace.patience = Millis(200);
        world = World::open(Sketch { plan });
        world.tick = Millis(100);
        world.until("it began", |world| world.knobs[0].number() < Some(0.5));
        let before = world.writes(KnobId(0)).len();
        world.values[0] = Some(99.0);
        world.say(Command::Abort { how: Abort::Revert });
        world.until("it is over", |world| world.outcome().is_some());
        assert_eq!(world.outcome(), Some(RunOutcome::Reverted));
        assert_eq!(world.phase(web), Phase::Reverted);
        let steps = world.writes(KnobId(0)).len() - before;
        assert!(steps <= 201, "{steps} steps of {first}");
    }
}

/// In a total outage the first step back is what brings traffic, and with it health, back:
/// it waits for `patience`, not for a `wait_max` that may be much longer.
#[test]
fn the_first_step_back_in_bad_health_waits_for_patience_alone() {
    let (world, ..) = watched(OnBreach::Hold);
    let mut plan = (**world.run.plan()).clone();
    plan.tasks[0].pace.wait_max = Millis::from_secs(300);
    let mut world = World::open(Sketch { plan });
    world.until("it began", |world| world.knobs[0].number() < Some(0.5));
    let before = world.writes(KnobId(0)).len();
    world.values[0] = Some(99.0);
    world.say(Command::Abort { how: Abort::Revert });
    world.passes(PACE.patience + Millis(1000));
    assert_eq!(world.writes(KnobId(0)).len(), before + 1, "the first step");
    world.passes(Millis::from_secs(30));
    assert_eq!(world.writes(KnobId(0)).len(), before + 1, "the next one is judged for longer");
    world.values[0] = Some(0.1);
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    world.check_replay();
}

#[test]
fn a_revert_without_traffic_is_not_held_if_a_restore_would_not_be() {
    let (world, ..) = watched(OnBreach::Hold);
    let mut plan = (**world.run.plan()).clone();
    plan.conditions[0].no_traffic_back = NoData::Pass;
    plan.tasks[0].pace.patience = Millis::from_secs(3600);
    let mut world = World::open(Sketch { plan });
    world.until("it began", |world| world.knobs[0].number() < Some(0.5));
    world.values[0] = Some(f64::NAN);
    world.passes(Millis::from_secs(60));
    let held = world.run.state().task(TaskId(0)).hold.clone();
    assert!(matches!(held, Some((_, Hold::NoData { .. }))), "a drain waits: {held:?}");
    world.say(Command::Abort { how: Abort::Revert });
    world.passes(Millis::from_secs(60));
    assert_eq!(world.outcome(), Some(RunOutcome::Reverted));
    world.check_replay();
}

#[test]
fn what_nobody_could_look_at_yet_is_nothing_to_be_held_for() {
    let (mut world, web, errors) = watched(OnBreach::Hold);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    let plan = world.run.plan().clone();
    world.run = Run::resume(plan, &world.log).unwrap();
    let known = world.log.len();
    for _ in 0..20 {
        world.now = world.now + Millis(1000);
        world.event(Event::Tick);
    }
    assert_eq!(world.log.len(), known, "{:?}", &world.log[known..]);
    assert_eq!(world.writes(KnobId(0)).len(), 2, "and no step is taken");
    // Somebody should have looked by now.
    world.now = world.now + Millis(11_000);
    world.event(Event::Tick);
    let (_, hold) = world.run.state().task(web).hold.clone().unwrap();
    assert_eq!(hold, Hold::NoData { condition: errors });
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// Each of two conditions is breached in turn: together they are bad health for
/// as long as either is.
#[test]
fn patience_ends_though_it_is_another_condition_each_time() {
    let mut sketch = Sketch::new();
    let health = vec![sketch.below("errors", 1.0), sketch.below("latency", 1.0)];
    sketch.shift("web", &[]);
    (sketch.last().health, sketch.last().pace.on_breach) = (health, OnBreach::BackOff);
    let mut world = World::open(sketch);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 3);
    for round in 0..12 {
        let (bad, good) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        // The other one is breached before this one is well again.
        world.values[bad] = Some(1.5);
        world.pass();
        world.values[good] = Some(0.1);
        world.pass();
    }
    assert_eq!(world.writes(KnobId(0))[..4], [0.9, 0.7, 0.3, 0.7]);
    world.check_replay();
}

/// The datacenters that take the load have a say in every step.
#[test]
fn the_health_of_receiving_datacenters_slows_and_holds_every_shift() {
    let drain = |utilisation: fn(f64) -> f64| {
        let mut sketch = Sketch::new();
        let receiving = sketch.below("utilisation of b", 0.95);
        sketch.plan.health = vec![receiving];
        sketch.shift("web", &[]);
        let mut world = World::open(sketch);
        for _ in 0..2000 {
            let moved = 1.0 - world.knobs[0].number().unwrap();
            world.values[0] = Some(utilisation(moved));
            world.pass();
            if world.outcome().is_some() {
                break;
            }
        }
        (world.outcome(), world.writes(KnobId(0)).len(), world.now)
    };
    let (roomy, tight) = (drain(|moved| 0.4 + 0.2 * moved), drain(|moved| 0.6 + 0.34 * moved));
    assert_eq!((roomy.0, tight.0), (Some(RunOutcome::Completed), Some(RunOutcome::Completed)));
    assert!(tight.1 > roomy.1 && tight.2 > roomy.2, "{roomy:?} {tight:?}");
    let full = drain(|moved| 0.6 + 0.8 * moved);
    assert_eq!(full.0, None, "held at what the others bear: {full:?}");
}

/// Prometheus goes on answering with the last sample. What cannot be seen is not
/// moved.
#[test]
fn no_step_is_taken_on_samples_from_before_the_last_step() {
    let (mut world, web, errors) = watched(OnBreach::Hold);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.exporter_died = Some(world.now);
    world.passes(Millis(20_000));
    assert_eq!(world.writes(KnobId(0)).len(), 2, "the last sample is fresh, but says nothing");
    world.passes(Millis(20_000));
    assert_eq!(world.writes(KnobId(0)).len(), 2);
    let (_, hold) = world.run.state().task(web).hold.clone().unwrap();
    assert_eq!(hold, Hold::NoData { condition: errors }, "by then it is too old");
    world.exporter_died = None;
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// A rate over 5 s that ends 2 s after a step is mostly about what was before.
#[test]
fn a_step_waits_until_the_whole_window_of_its_health_lies_after_it() {
    let step = |window: Millis| {
        let (mut world, ..) = watched(OnBreach::Hold);
        world.window = window;
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        let issued = world.log.iter().filter(|own| matches!(own.fact, Fact::Issued { .. }));
        let at: Vec<Time> = issued.map(|own| own.at).collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap()
    };
    assert_eq!(step(Millis::ZERO), Millis(1000), "as the pace says");
    assert_eq!(step(Millis(5000)), Millis(5500), "the window, and the next sample");
}

/// Bad health from before a step back is no reason for another one.
#[test]
fn a_step_back_is_judged_before_the_next_one() {
    let (mut world, ..) = watched(OnBreach::BackOff);
    world.window = Millis(30_000);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.values[0] = Some(1.5);
    world.until("it goes back", |world| world.writes(KnobId(0)).len() == 3);
    world.passes(Millis(20_000));
    assert_eq!(world.writes(KnobId(0)).len(), 3, "the window still holds what was before");
    world.until("it goes back further", |world| world.writes(KnobId(0)).len() == 4);
}

/// Where nothing is served everything is breached, and nothing but a restore
/// will change that.
#[test]
fn a_restore_is_not_held_for_ever_by_health_from_before_its_first_step() {
    let (world, ..) = watched(OnBreach::Hold);
    let mut plan = (**world.run.plan()).clone();
    plan.direction = Direction::Restore;
    let mut world = World::open(Sketch { plan });
    world.values[0] = Some(99.0);
    world.passes(PACE.patience);
    assert!(world.writes(KnobId(0)).is_empty(), "it may pass by itself");
    world.until("it begins", |world| world.writes(KnobId(0)) == [0.9]);
    world.passes(Millis(60_000));
    assert_eq!(world.writes(KnobId(0)), [0.9], "the first step did not help");
    world.values[0] = Some(0.0);
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// Whoever aborts and drains again and again would move traffic blindly.
#[test]
fn a_first_step_is_judged_by_samples_taken_after_the_change_of_another_run() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    sketch.plan.changed = Some(Time(10_000));
    let mut world = World::open(sketch);
    let web = KnobId(0);
    world.passes(Millis(10_000));
    assert_eq!(world.writes(web), [0.0; 0], "by samples from before the change");
    world.passes(Millis(1000));
    assert_eq!(world.writes(web), [0.9]);
}

/// Nobody looks at the conditions of a task that failed. What was seen of them before has
/// become old meanwhile, which says nothing.
#[test]
fn a_retried_task_waits_for_its_first_sample_without_a_word() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.plan.conditions[errors.index()].max_age = Millis(2_000);
    let web = sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    let mut world = World::open(sketch);
    world.broken.insert(KnobId(0), Ended::Refused { why: "no".into() });
    world.until("it failed", |world| world.phase(web) == Phase::Failed);
    world.broken.clear();
    world.now = world.now + Millis(10_000);
    world.say(Command::Retry { task: web });
    world.event(Event::Tick);
    assert_eq!(world.phase(web), Phase::Running);
    assert_eq!(world.run.state().task(web).hold, None, "nobody has looked since");
    // Now somebody does, in vain.
    world.values[0] = None;
    world.pass();
    let hold = world.run.state().task(web).hold.clone();
    assert!(matches!(hold, Some((_, Hold::NoData { .. }))), "{hold:?}");
    world.values[0] = Some(0.0);
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}
