//! What something else moves out of a datacenter stays out, whatever the task that moves
//! the knob is doing: a run brings traffic in by steps alone, and steps ask health.

use super::promotion::text;
use super::*;

const BAD: Option<f64> = Some(99.0);
const GOOD: Option<f64> = Some(0.1);

/// A restore of one knob from a value to 1.
fn restore(from: f64) -> World {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    let StageKind::Shift { to, .. } = &mut sketch.last().stages[0].kind else { unreachable!() };
    *to = Goal::Value(Value::Number(1.0));
    sketch.plan.direction = Direction::Restore;
    sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
        knob: sketch.plan.knobs[0].clone(),
        goal: Value::Number(0.0),
        original: Some(Value::Number(1.0)),
    }];
    let mut world = World::open(sketch);
    // The look that the first task asks for is answered by the next event.
    world.knobs[0] = Value::Number(from);
    world
}

/// Something else sets a knob, and the run sees it.
fn set(world: &mut World, value: f64) {
    world.knobs[0] = Value::Number(value);
    world.pass();
    world.sweep();
}

/// Passes time with looks at everything; the knob stays where it is.
#[track_caller]
fn stays(world: &mut World, value: f64) {
    for _ in 0..12 {
        world.passes(Millis::from_secs(5));
        world.sweep();
    }
    assert_eq!(world.knobs[0], Value::Number(value), "{:?}", world.writes(KnobId(0)));
}

/// The largest step in, by the writes since so many.
fn largest_step_in(world: &World, since: usize, from: f64) -> f64 {
    let writes = world.writes(KnobId(0));
    let (mut at, mut largest) = (from, 0.0f64);
    for to in &writes[since..] {
        largest = largest.max(to - at);
        at = *to;
    }
    largest
}

#[test]
fn on_the_way_back_of_a_drain_it_stays_and_comes_back_in_small_steps() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it is nearly out", |world| world.knobs[0].number() <= Some(0.2));
    world.say(Command::Abort { how: Abort::Revert });
    world.until("it comes back", |world| world.knobs[0].number() >= Some(0.6));
    world.values[0] = BAD;
    world.exporter_died = Some(world.now);
    set(&mut world, 0.0);
    stays(&mut world, 0.0);
    let writes = world.writes(KnobId(0)).len();
    (world.values[0], world.exporter_died) = (GOOD, None);
    world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(world.knobs[0], Value::Number(1.0));
    let first = world.writes(KnobId(0))[writes];
    assert!(first <= PACE.first + 1e-9, "{first}");
    assert!(largest_step_in(&world, writes, 0.0) <= PACE.step_max + 1e-9);
    world.check_replay();
}

#[test]
fn what_was_reverted_and_is_moved_out_again_is_told_and_stays() {
    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    sketch.shift("api", &[]);
    let mut world = World::open(sketch);
    world.until("both began", |world| world.knobs.iter().all(|knob| knob.number() <= Some(0.6)));
    // The other one cannot be put back for now, and the run stays open.
    world.broken.insert(KnobId(1), Ended::Failed { why: "not now".into() });
    world.say(Command::Abort { how: Abort::Revert });
    world.until("web is back", |world| world.phase(TaskId(0)) == Phase::Reverted);
    assert_eq!(world.outcome(), None);
    let writes = world.writes(KnobId(0)).len();
    set(&mut world, 0.0);
    assert_eq!(world.run.away().collect::<Vec<_>>(), [(KnobId(0), &Value::Number(0.0))]);
    world.broken.clear();
    world.until("it is over", |world| world.outcome().is_some());
    assert_eq!(world.writes(KnobId(0)).len(), writes);
    assert_eq!(world.knobs[0], Value::Number(0.0));
    world.check_replay();
}

/// The way back of a restore leads out: what was moved further out is on its way.
#[test]
fn on_the_way_back_of_a_restore_it_is_not_brought_in() {
    let mut world = restore(0.0);
    world.until("it is half-way", |world| world.knobs[0].number() >= Some(0.5));
    world.say(Command::Abort { how: Abort::Revert });
    world.values[0] = BAD;
    world.passes(Millis::from_secs(5));
    let writes = world.writes(KnobId(0)).len();
    set(&mut world, 0.0);
    stays(&mut world, 0.0);
    world.values[0] = GOOD;
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert!(world.writes(KnobId(0))[writes..].iter().all(|to| *to == 0.0));
    world.check_replay();
}

/// Below where the restore began, too: the next step is a first one, and not a share of the
/// whole way.
#[test]
fn below_where_a_restore_began_steps_are_small_again() {
    for (from, at) in [(0.3, 0.6), (0.0, 0.5)] {
        let mut world = restore(from);
        world.until("it is half-way", |world| world.knobs[0].number() >= Some(at));
        world.values[0] = BAD;
        world.passes(Millis::from_secs(5));
        let writes = world.writes(KnobId(0)).len();
        set(&mut world, 0.0);
        stays(&mut world, 0.0);
        world.values[0] = GOOD;
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        let first = world.writes(KnobId(0))[writes];
        assert!(first <= PACE.first + 1e-9, "{first} from {from}");
        assert!(largest_step_in(&world, writes, 0.0) <= PACE.step_max + 1e-9);
        world.check_replay();
    }
}

/// Also where nothing was to do: a reload had opened it before the restore began.
#[test]
fn what_was_in_its_place_when_a_restore_began_is_not_brought_back_either() {
    for from in [1.0, 0.999] {
        let mut sketch = Sketch::new();
        let errors = sketch.below("errors", 1.0);
        for name in ["web", "api"] {
            sketch.shift(name, &[]);
            sketch.last().health = vec![errors];
            let StageKind::Shift { to, .. } = &mut sketch.last().stages[0].kind else {
                unreachable!()
            };
            *to = Goal::Value(Value::Number(1.0));
        }
        sketch.last().after = vec![TaskId(0)];
        sketch.plan.direction = Direction::Restore;
        sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
            knob: sketch.plan.knobs[0].clone(),
            goal: Value::Number(0.0),
            original: Some(Value::Number(1.0)),
        }];
        let mut world = World::open(sketch);
        world.knobs = vec![Value::Number(from), Value::Number(0.0)];
        world.until("web is done", |world| world.phase(TaskId(0)) == Phase::Done);
        world.values[0] = BAD;
        set(&mut world, 0.0);
        stays(&mut world, 0.0);
    }
}

#[test]
fn neither_back_off_nor_revert_brings_it_back() {
    for on_breach in [OnBreach::BackOff, OnBreach::Revert] {
        let (mut world, ..) = watched(on_breach);
        world.until("it began", |world| world.knobs[0].number() <= Some(0.8));
        // Before its patience is over, or it would be on its way back by itself.
        world.values[0] = BAD;
        world.pass();
        set(&mut world, 0.0);
        stays(&mut world, 0.0);
        world.values[0] = GOOD;
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        world.check_replay();
    }
}

/// A person who keeps setting a knob has it: the task is held, and says so.
#[test]
fn who_keeps_moving_it_is_contested() {
    let mut world = restore(0.0);
    world.until("it began", |world| world.knobs[0].number() >= Some(0.3));
    for _ in 0..2 * DRIFTS_MAX {
        set(&mut world, 0.0);
        world.passes(Millis::from_secs(2));
    }
    let held = world.run.state().task(TaskId(0)).hold.clone();
    assert!(matches!(held, Some((_, Hold::Contested { .. }))), "{held:?}");
    set(&mut world, 0.0);
    stays(&mut world, 0.0);
    world.say(Command::Resume { task: Some(TaskId(0)) });
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// One wrong read of a restore moves nothing, neither in nor out.
#[test]
fn one_wrong_read_of_a_restore_moves_nothing() {
    let mut world = restore(0.0);
    world.until("it is half-way", |world| world.knobs[0].number() >= Some(0.5));
    world.values[0] = BAD;
    world.passes(Millis::from_secs(5));
    let (at, writes) = (world.knobs[0].clone(), world.writes(KnobId(0)).len());
    let found = Ok(Value::Number(0.0));
    world.event(Event::Looked { knob: KnobId(0), asked: world.now, found });
    for _ in 0..12 {
        world.passes(Millis::from_secs(5));
        world.sweep();
    }
    assert_eq!((world.knobs[0].clone(), world.writes(KnobId(0)).len()), (at, writes));
    world.values[0] = GOOD;
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// A drain or a restore that finds its knob at its goal at once looks again before it believes
/// that: else a later look would bring it there at one go, with the wrong original.
#[test]
fn one_wrong_read_of_the_goal_ends_no_shift() {
    for (direction, health) in [
        (Direction::Drain, GOOD),
        (Direction::Restore, GOOD),
        // Bad health, as it is where a restore is needed most.
        (Direction::Restore, BAD),
    ] {
        let mut world = match direction {
            Direction::Drain => watched(OnBreach::Hold).0,
            Direction::Restore => restore(1.0),
        };
        let (goal, place) = if direction == Direction::Drain { (0.0, 1.0) } else { (1.0, 0.0) };
        world.knobs[0] = Value::Number(goal);
        world.values[0] = health;
        world.until("it is read", |world| {
            world.run.state().task(TaskId(0)).origin(KnobId(0)).is_some()
        });
        world.knobs[0] = Value::Number(place);
        world.until("it begins", |world| !world.writes(KnobId(0)).is_empty());
        let state = world.run.state().task(TaskId(0));
        assert_eq!(state.origin(KnobId(0)), Some(&Value::Number(place)), "{direction:?}");
        let first = world.writes(KnobId(0))[0];
        assert!((first - place).abs() <= PACE.first + 1e-9, "{first} {direction:?}");
        world.values[0] = GOOD;
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        assert_eq!(world.knobs[0], Value::Number(goal));
        world.check_replay();
    }
}

/// Also where it is held right after that, and where a crash comes between.
#[test]
fn a_shift_that_was_held_at_its_goal_begins_where_the_knob_is() {
    for crashes in [false, true] {
        let (mut world, ..) = watched(OnBreach::Hold);
        world.values[0] = BAD;
        world.knobs[0] = Value::Number(0.0);
        world.passes(Millis::from_secs(3));
        world.knobs[0] = Value::Number(1.0);
        if crashes {
            world.run = Run::resume(world.run.plan().clone(), &world.log).unwrap();
        }
        world.passes(Millis::from_secs(3));
        world.sweep();
        world.passes(Millis::from_secs(3));
        assert!(world.writes(KnobId(0)).is_empty(), "health is bad");
        world.values[0] = GOOD;
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        assert_eq!(world.writes(KnobId(0))[0], 0.9);
        world.check_replay();
    }
}

/// And on the way back.
#[test]
fn one_wrong_read_of_the_original_ends_no_way_back() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.5));
    let at = world.knobs[0].clone();
    let records = world.log.len();
    world.say(Command::Pause { task: None });
    world.passes(Millis::from_secs(3));
    world.knobs[0] = Value::Number(1.0);
    world.say(Command::Abort { how: Abort::Revert });
    let is_found = |record: &Record| matches!(record.fact, Fact::Found { .. });
    world.until("it is read", |world| world.log[records..].iter().any(is_found));
    let writes = world.writes(KnobId(0)).len();
    world.knobs[0] = at.clone();
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(world.knobs[0], Value::Number(1.0));
    assert!(largest_step_in(&world, writes, at.number().unwrap()) <= PACE.step_max + 1e-9);
    assert!(world.writes(KnobId(0)).len() > writes + 1, "in steps");
    world.check_replay();
}

/// What a task found at its goal and never set is none of its own: it is told when it is
/// elsewhere, and not brought there at one go.
#[test]
fn what_was_found_at_its_goal_and_never_set_is_not_put_back() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    sketch.shift("db", &[web]);
    let mut world = World::open(sketch);
    world.knobs[0] = Value::Number(0.0);
    world.until("the second began", |world| world.writes(KnobId(1)).len() == 2);
    assert_eq!(world.phase(web), Phase::Done);
    set(&mut world, 1.0);
    assert_eq!(world.run.away().collect::<Vec<_>>(), [(KnobId(0), &Value::Number(1.0))]);
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!((world.writes(KnobId(0)).len(), &world.knobs[0]), (0, &Value::Number(1.0)));
    let report = crate::report::Report::of(world.run.plan(), &world.log).unwrap();
    assert_eq!(report.astray[0].why, "web found it there and never set it: it is not its own");
    world.check_replay();
}

/// Some servers of a group may be there and some not: a step that failed is done again,
/// whatever is read.
#[test]
fn a_step_that_failed_is_written_again_although_its_value_is_read() {
    for is_last in [false, true] {
        let (mut world, ..) = watched(OnBreach::Hold);
        let least = if is_last { 0.45 } else { 0.8 };
        world.until("it is on its way", |world| world.knobs[0].number() <= Some(least));
        let writes = world.writes(KnobId(0)).len();
        world.broken.insert(KnobId(0), Ended::Failed { why: "three of ten are set".into() });
        world.until("a step fails", |world| world.writes(KnobId(0)).len() > writes);
        let step = *world.writes(KnobId(0)).last().unwrap();
        world.knobs[0] = Value::Number(step);
        world.pass();
        world.sweep();
        world.broken.clear();
        let writes = world.writes(KnobId(0)).len();
        world.until("it is written again", |world| world.writes(KnobId(0)).len() > writes);
        assert_eq!(world.writes(KnobId(0))[writes], step);
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        assert!(world.writes(KnobId(0)).windows(2).all(|pair| pair[1] <= pair[0]));
        world.check_replay();
    }
}

/// Two tasks with one knob: who comes second begins where the first has left it.
#[test]
fn a_step_begins_where_the_knob_is_although_another_task_left_it_there() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.shift("web", &[]);
    let mut stages = sketch.last().stages.clone();
    stages[0].kind = StageKind::Shift { knob: KnobId(0), to: Goal::Value(Value::Number(0.0)) };
    sketch.task("api", &[], stages);
    sketch.last().health = vec![errors];
    let mut world = World::open(sketch);
    world.values[0] = BAD;
    world.until("web is done", |world| world.phase(TaskId(0)) == Phase::Done);
    world.values[0] = GOOD;
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    let writes = world.writes(KnobId(0));
    assert!(writes.windows(2).all(|pair| pair[1] <= pair[0]), "{writes:?}");
    world.check_replay();
}

/// Traffic comes back to where nobody looks: the way back of a drain waits for samples from
/// after each of its steps, good or bad, and `no_data: fail` does not make them known.
#[test]
fn the_way_back_of_a_drain_waits_for_newer_samples() {
    for (no_data, value) in
        [(NoData::Block, GOOD), (NoData::Block, Some(1.5)), (NoData::Fail, GOOD)]
    {
        let mut sketch = Sketch::new();
        let errors = sketch.below("errors", 1.0);
        sketch.plan.conditions[0].no_data = no_data;
        sketch.shift("web", &[]);
        sketch.last().health = vec![errors];
        let mut world = World::open(sketch);
        world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
        world.passes(Millis(500));
        world.values[0] = value;
        world.passes(Millis(500));
        world.exporter_died = Some(world.now);
        world.say(Command::Abort { how: Abort::Revert });
        let writes = world.writes(KnobId(0)).len();
        world.passes(Millis::from_secs(120));
        let unseen = world.writes(KnobId(0)).len() - writes;
        assert!(unseen <= 1, "{unseen} steps without a sample: {:?}", world.writes(KnobId(0)));
        (world.exporter_died, world.values[0]) = (None, GOOD);
        world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
        world.check_replay();
    }
}

/// Once is not again and again: where something else moved a knob past its goal is noted once.
#[test]
fn a_knob_that_is_moved_past_its_goal_after_it_arrived_is_noted_once() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    let StageKind::Shift { to, .. } = &mut sketch.last().stages[0].kind else { unreachable!() };
    *to = Goal::Value(Value::Number(0.4));
    let mut world = World::open(sketch);
    world.until("it is there", |world| world.knobs[0] == Value::Number(0.4));
    world.values[0] = BAD;
    set(&mut world, 0.0);
    for _ in 0..10 {
        world.passes(Millis::from_secs(3));
        world.sweep();
    }
    let moved = |record: &&Record| matches!(record.fact, Fact::MovedOut { .. });
    assert_eq!(world.log.iter().filter(moved).count(), 1);
    let held = world.run.state().task(TaskId(0)).hold.clone();
    assert!(matches!(held, Some((_, Hold::Breach { .. }))), "{held:?}");
    world.values[0] = GOOD;
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], Value::Number(0.0));
    world.check_replay();
}

/// On the way back, too, and it says so.
#[test]
fn who_keeps_moving_it_is_contested_on_the_way_back() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.5));
    world.say(Command::Abort { how: Abort::Revert });
    for _ in 0..2 * DRIFTS_MAX {
        world.passes(Millis::from_secs(3));
        set(&mut world, 0.0);
    }
    let writes = world.writes(KnobId(0)).len();
    stays(&mut world, 0.0);
    assert_eq!(world.writes(KnobId(0)).len(), writes);
    let held = world.run.state().task(TaskId(0)).hold.clone();
    assert!(matches!(held, Some((_, Hold::Contested { .. }))), "{held:?}");
    world.say(Command::Resume { task: Some(TaskId(0)) });
    world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    world.check_replay();
}

/// Whoever asks for the way back after that wants the knob where the other one puts it.
#[test]
fn a_revert_takes_a_contested_knob() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it began", |world| world.knobs[0].number() <= Some(0.8));
    for _ in 0..2 * DRIFTS_MAX {
        set(&mut world, 1.0);
        world.passes(Millis::from_secs(2));
    }
    let held = world.run.state().task(TaskId(0)).hold.clone();
    assert!(matches!(held, Some((_, Hold::Contested { .. }))), "{held:?}");
    world.say(Command::Abort { how: Abort::Revert });
    world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(world.knobs[0], Value::Number(1.0));
    world.check_replay();
}

/// A step that failed may have been done. Once the knob was read where it was before, and was
/// moved since, it was not: what leads there now is something else.
#[test]
fn a_step_that_was_not_done_does_not_excuse_what_something_else_does_later() {
    for is_moved_between in [false, true] {
        let mut world = restore(0.0);
        world.until("it is half-way", |world| world.knobs[0].number() >= Some(0.5));
        let at = world.knobs[0].clone();
        let writes = world.writes(KnobId(0)).len();
        world.broken.insert(KnobId(0), Ended::Failed { why: "no answer".into() });
        world.until("a step fails", |world| world.writes(KnobId(0)).len() > writes);
        let step = *world.writes(KnobId(0)).last().unwrap();
        world.values[0] = BAD;
        world.broken.clear();
        world.pass();
        world.sweep();
        if is_moved_between {
            set(&mut world, 0.0);
            // A crash forgets what was only read.
            world.run = Run::resume(world.run.plan().clone(), &world.log).unwrap();
        }
        set(&mut world, step);
        stays(&mut world, at.number().unwrap());
        world.values[0] = GOOD;
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        world.check_replay();
    }
}

/// How bad it is where nothing can be seen is not known: no patience makes it known.
#[test]
fn a_restore_without_data_does_not_begin_with_what_is_set_at_once() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.plan.conditions[0].no_data = NoData::Fail;
    sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    sketch.last().stages[0].kind =
        StageKind::Set { knob: KnobId(0), to: Goal::Value(text("ready")), of: None };
    sketch.plan.direction = Direction::Restore;
    let mut world = World::open(sketch);
    world.knobs[0] = text("maint");
    world.values[0] = None;
    for _ in 0..20 {
        world.passes(Millis::from_secs(60));
    }
    assert_eq!(world.knobs[0], text("maint"));
    let held = world.run.state().task(TaskId(0)).hold.clone();
    assert!(matches!(held, Some((_, Hold::NoData { .. }))), "{held:?}");
    // Bad health that is seen is what it may cure.
    world.values[0] = BAD;
    world.until("it is set", |world| world.knobs[0] == text("ready"));
    world.values[0] = GOOD;
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// A step in that was done although it failed: backing off leads out from there by no more
/// than a step, and not from where it began.
#[test]
fn backing_off_begins_where_the_knob_is() {
    let (mut world, ..) = watched(OnBreach::BackOff);
    world.until("it began", |world| world.knobs[0].number() <= Some(0.8));
    let writes = world.writes(KnobId(0)).len();
    world.broken.insert(KnobId(0), Ended::Failed { why: "no answer".into() });
    world.until("a step fails", |world| world.writes(KnobId(0)).len() > writes);
    let at = *world.writes(KnobId(0)).last().unwrap();
    world.broken.clear();
    world.values[0] = BAD;
    let writes = world.writes(KnobId(0)).len();
    world.knobs[0] = Value::Number(at);
    world.until("it backs off", |world| world.writes(KnobId(0)).len() > writes);
    let next = world.writes(KnobId(0))[writes];
    assert!(next - at <= PACE.step_max + 1e-9 && next > at, "{at} to {next}");
    world.check_replay();
}

/// A run that sets a knob, or moves it, to an original that lets in less than it has by now.
fn back_to_less(direction: Direction, original: Value, found: Value, goal: Value) -> World {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    let to = match direction {
        Direction::Drain => goal.clone(),
        Direction::Restore => original.clone(),
    };
    let to = Goal::Value(to);
    sketch.last().stages[0].kind = match goal.number() {
        Some(_) => StageKind::Shift { knob: KnobId(0), to },
        None => StageKind::Set { knob: KnobId(0), to, of: None },
    };
    sketch.plan.direction = direction;
    sketch.plan.traffic[0].datacenters[0].knobs =
        vec![TrafficKnob { knob: sketch.plan.knobs[0].clone(), goal, original: Some(original) }];
    // No other serves.
    sketch.drained_by_others([0.0, 1.0, 1.0]);
    let mut world = World::open(sketch);
    world.knobs[0] = found;
    world
}

/// Whoever serves last stays in, whatever it was before its drain: a load balancer that was
/// reloaded has brought it back.
#[test]
fn a_restore_does_not_take_out_what_serves_last() {
    let maint = || text("maint");
    let number = Value::Number;
    for (original, found, goal) in
        [(maint(), text("ready"), maint()), (number(0.0), number(1.0), number(0.0))]
    {
        for health in [GOOD, BAD] {
            let (original, goal) = (original.clone(), goal.clone());
            let mut world = back_to_less(Direction::Restore, original.clone(), found.clone(), goal);
            world.values[0] = health;
            world.passes(Millis::from_secs(600));
            assert_eq!(world.knobs[0], found);
            let held = world.run.state().task(TaskId(0)).hold.clone();
            assert!(matches!(held, Some((_, Hold::Limit(_)))), "{held:?}");
            assert_eq!(world.run.takes_back_out(TaskId(0)), TakesOut::Yes);
            // While health is bad neither, although others serve again.
            world.event(Event::Fleet { fleet: fleet([0.0; 3]) });
            world.passes(Millis::from_secs(600));
            assert_eq!(world.knobs[0] == found, health == BAD);
            world.values[0] = GOOD;
            world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
            assert_eq!(world.knobs[0], original);
            world.check_replay();
        }
    }
}

/// Nor does the way back of a drain, where a server was out before it and is in by now.
#[test]
fn a_revert_does_not_take_out_what_serves_last() {
    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    let to = Goal::Value(text("maint"));
    sketch.last().stages[0].kind = StageKind::Set { knob: KnobId(0), to, of: None };
    sketch.shift("api", &[]);
    sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
        knob: sketch.plan.knobs[0].clone(),
        goal: text("maint"),
        original: None,
    }];
    let mut world = World::open(sketch);
    world.knobs[0] = text("maint");
    world.until("web is done", |world| world.phase(TaskId(0)) == Phase::Done);
    world.knobs[0] = text("ready");
    world.event(Event::Fleet { fleet: fleet([0.0, 1.0, 1.0]) });
    world.say(Command::Abort { how: Abort::Revert });
    for _ in 0..60 {
        world.passes(Millis::from_secs(10));
        world.sweep();
    }
    assert_eq!(world.knobs[0], text("ready"));
    world.event(Event::Fleet { fleet: fleet([0.0; 3]) });
    world.until("it is over", |world| world.outcome().is_some());
    world.check_replay();
}

/// A task may have waited since it read its knob: what it sets is judged by what is there now.
#[test]
fn what_is_set_at_once_is_read_right_before() {
    let maint = || text("maint");
    let mut world = back_to_less(Direction::Restore, maint(), maint(), maint());
    world.values[0] = BAD;
    world.passes(Millis::from_secs(2));
    world.say(Command::Pause { task: None });
    world.values[0] = GOOD;
    world.passes(Millis::from_secs(60));
    // A load balancer is reloaded meanwhile.
    world.knobs[0] = text("ready");
    world.say(Command::Resume { task: None });
    world.passes(Millis::from_secs(600));
    assert_eq!(world.knobs[0], text("ready"));
    let held = world.run.state().task(TaskId(0)).hold.clone();
    assert!(matches!(held, Some((_, Hold::Limit(_)))), "{held:?}");
    // Whoever takes it out himself leaves nothing to be held for.
    world.knobs[0] = maint();
    world.event(Event::Fleet { fleet: fleet([0.0, 1.0, 1.0]) });
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// And the value to go back to is the last one from before it was set.
#[test]
fn the_original_of_what_is_set_at_once_is_read_right_before() {
    let (ready, maint) = (text("ready"), text("maint"));
    let mut world = back_to_less(Direction::Drain, ready.clone(), ready, maint.clone());
    world.event(Event::Fleet { fleet: fleet([0.0; 3]) });
    world.values[0] = BAD;
    world.passes(Millis::from_secs(2));
    world.say(Command::Pause { task: None });
    world.values[0] = GOOD;
    world.knobs[0] = text("drain");
    world.passes(Millis::from_secs(60));
    world.say(Command::Resume { task: None });
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], maint);
    assert_eq!(world.run.state().task(TaskId(0)).origin(KnobId(0)), Some(&text("drain")));
    world.check_replay();
}

/// What cannot be read does not count as serving here, also in a disaster.
#[test]
fn a_restore_does_not_take_out_what_serves_where_others_cannot_be_read() {
    let (maint, ready) = (text("maint"), text("ready"));
    let mut world = back_to_less(Direction::Restore, maint.clone(), ready.clone(), maint.clone());
    world.say(Command::SetMode { mode: Mode::Disaster });
    let unknown = Fleet { multipliers: vec![vec![Some(1.0), None, None]], runs: vec![None; 3] };
    world.event(Event::Fleet { fleet: unknown });
    world.passes(Millis::from_secs(60));
    assert_eq!(world.knobs[0], ready);
    world.event(Event::Fleet { fleet: fleet([0.0; 3]) });
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], maint);
    world.check_replay();
}

/// Some servers of a group may be out while others serve: to bring all in is no step out.
#[test]
fn a_restore_of_a_group_that_is_in_part_is_not_held_by_a_limit() {
    let (ready, mixed) = (text("ready"), text("a=ready,b=maint"));
    let mut world = back_to_less(Direction::Restore, ready.clone(), mixed, text("maint"));
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], ready);
    world.check_replay();
}

/// What a drain has closed takes nothing out when it is restored, whatever its words mean: in
/// a total outage nothing else would bring it back.
#[test]
fn what_is_at_the_goal_of_the_drain_is_restored_although_no_other_serves() {
    for (original, goal) in
        [("mode=on", "mode=off"), ("fra,ams", "ams"), ("a=1,b=2", "a=0,b=0"), ("ready", "standby")]
    {
        let (original, goal) = (text(original), text(goal));
        let mut world =
            back_to_less(Direction::Restore, original.clone(), goal.clone(), goal.clone());
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        assert_eq!(world.knobs[0], original);
        world.check_replay();
    }
}

/// Changes of which nobody knows whether they take out what serves last: original, found, goal.
const DOUBTFUL: [(&str, &str, &str); 5] = [
    // The driver has a word of its own for `off`.
    ("on", "offline", "off"),
    ("mode=on", "mode=offline", "mode=off"),
    ("fra,ams", "ams,lhr", "ams"),
    // A server that something else brought in, and may be down, goes; another one comes.
    ("a=ready,b=maint", "a=maint,b=ready", "maint"),
    // Some drivers call a standby `ready`.
    ("ready", "active", "off"),
];

#[test]
fn a_restore_that_may_take_out_what_serves_last_takes_a_disaster() {
    for (original, found, goal) in DOUBTFUL {
        for health in [GOOD, BAD] {
            let (original, found) = (text(original), text(found));
            let mut world =
                back_to_less(Direction::Restore, original.clone(), found.clone(), text(goal));
            world.values[0] = health;
            world.passes(Millis::from_secs(60));
            assert_eq!(world.knobs[0], found, "in a drill");
            let held = world.run.state().task(TaskId(0)).hold.clone();
            assert!(matches!(held, Some((_, Hold::Limit(_)))), "{held:?}");
            assert_eq!(world.run.takes_back_out(TaskId(0)), TakesOut::Maybe);
            world.say(Command::SetMode { mode: Mode::Disaster });
            world.until("it is set", |world| world.knobs[0] == original);
            world.values[0] = GOOD;
            world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
            world.check_replay();
        }
    }
}

/// Whoever swaps the servers by hand does so after the mode was asked for.
#[test]
fn the_repair_of_drift_does_not_swap_servers_back_in_a_disaster() {
    let mut sketch = Sketch::new();
    for _ in 0..2 {
        sketch.shift("web", &[]);
    }
    let before = text("a=maint,b=ready");
    let to = Goal::Original(before.clone());
    sketch.plan.tasks[0].stages[0].kind = StageKind::Set { knob: KnobId(0), to, of: None };
    sketch.plan.tasks[1].stages[0].kind = StageKind::TimedWait { span: Millis::from_secs(600) };
    sketch.plan.direction = Direction::Restore;
    sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
        knob: sketch.plan.knobs[0].clone(),
        goal: text("maint"),
        original: Some(before.clone()),
    }];
    sketch.drained_by_others([0.0, 1.0, 1.0]);
    let knobs = vec![text("maint"); sketch.plan.knobs.len()];
    let mut world = World::open_at(sketch, knobs);
    world.say(Command::SetMode { mode: Mode::Disaster });
    world.until("it is restored", |world| world.knobs[0] == before);
    world.passes(Millis::from_secs(5));
    let swapped = text("a=ready,b=maint");
    world.knobs[0] = swapped.clone();
    for _ in 0..20 {
        world.passes(Millis::from_secs(3));
        world.sweep();
    }
    assert_eq!(world.knobs[0], swapped, "the other one may be dead");
    world.check_replay();
}

#[test]
fn a_revert_that_may_take_out_what_serves_last_takes_a_disaster() {
    for (original, found, goal) in DOUBTFUL {
        let (original, found) = (text(original), text(found));
        let mut sketch = Sketch::new();
        sketch.shift("web", &[]);
        let to = Goal::Value(text(goal));
        sketch.last().stages[0].kind = StageKind::Set { knob: KnobId(0), to, of: None };
        sketch.shift("api", &[]);
        sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
            knob: sketch.plan.knobs[0].clone(),
            goal: text(goal),
            original: None,
        }];
        let mut world = World::open(sketch);
        world.knobs[0] = original.clone();
        world.until("web is done", |world| world.phase(TaskId(0)) == Phase::Done);
        world.say(Command::Pause { task: None });
        world.passes(Millis::from_secs(2));
        world.knobs[0] = found.clone();
        world.event(Event::Fleet { fleet: fleet([0.0, 1.0, 1.0]) });
        world.say(Command::Abort { how: Abort::Revert });
        world.passes(Millis::from_secs(60));
        assert_eq!(world.knobs[0], found, "in a drill");
        assert_eq!(world.run.takes_back_out(TaskId(0)), TakesOut::Maybe);
        world.say(Command::SetMode { mode: Mode::Disaster });
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
        assert_eq!(world.knobs[0], original);
        world.check_replay();
    }
}

/// What certainly takes out what serves last is held in a disaster, too: whoever waives limits
/// does it.
#[test]
fn a_disaster_does_not_take_out_what_serves_last() {
    for (original, found, goal) in [
        ("maint", "ready", "maint"),
        ("a=ready,b=maint", "ready", "maint"),
        ("a=ready,b=maint", "a=ready,b=ready", "maint"),
        ("mode=off", "mode=ready", "mode=off"),
    ] {
        let (original, found) = (text(original), text(found));
        let mut world = back_to_less(Direction::Restore, original, found.clone(), text(goal));
        world.say(Command::SetMode { mode: Mode::Disaster });
        world.passes(Millis::from_secs(60));
        assert_eq!(world.knobs[0], found);
        let held = world.run.state().task(TaskId(0)).hold.clone();
        assert!(matches!(held, Some((_, Hold::Limit(_)))), "{held:?}");
        world.check_replay();
    }
}

/// A weight that is higher than before the drain goes down by steps that health allows.
#[test]
fn a_restore_takes_no_step_out_while_health_is_bad() {
    let number = Value::Number;
    let mut world = back_to_less(Direction::Restore, number(0.1), number(1.0), number(0.0));
    world.values[0] = BAD;
    world.passes(Millis::from_secs(600));
    assert_eq!(world.knobs[0], number(1.0));
    world.values[0] = GOOD;
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], number(0.1));
    world.check_replay();
}

/// On the way back, too: what was set by hand while the run was paused counts.
#[test]
fn what_goes_back_at_once_is_read_right_before() {
    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    let to = Goal::Value(text("maint"));
    sketch.last().stages[0].kind = StageKind::Set { knob: KnobId(0), to, of: None };
    sketch.shift("api", &[]);
    sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
        knob: sketch.plan.knobs[0].clone(),
        goal: text("maint"),
        original: None,
    }];
    let mut world = World::open(sketch);
    world.knobs[0] = text("drain");
    world.until("web is done", |world| world.phase(TaskId(0)) == Phase::Done);
    world.say(Command::Pause { task: None });
    world.passes(Millis::from_secs(2));
    world.knobs[0] = text("ready");
    world.event(Event::Fleet { fleet: fleet([0.0, 1.0, 1.0]) });
    world.say(Command::Abort { how: Abort::Revert });
    world.passes(Millis::from_secs(600));
    assert_eq!(world.knobs[0], text("ready"));
    world.event(Event::Fleet { fleet: fleet([0.0; 3]) });
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(world.knobs[0], text("drain"));
    world.check_replay();
}
