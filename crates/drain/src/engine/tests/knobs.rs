//! Knobs that others turn, and the last look at all.

use super::*;

#[test]
fn drift_is_noticed_and_repaired_and_a_fight_is_given_up() {
    let (mut world, web, _) = watched(OnBreach::Hold);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.values[0] = Some(1.5);
    world.pass();
    let left = world.knobs[0].clone();
    for round in 0..10 {
        // As a load balancer does when it is loaded anew.
        world.knobs[0] = Value::Number(1.0);
        world.sweep();
        world.pass();
        let is_repaired = world.knobs[0] == left;
        assert_eq!(is_repaired, round < DRIFTS_MAX, "round {round}");
    }
    world.values[0] = Some(0.0);
    world.pass();
    let (_, hold) = world.run.state().task(web).hold.clone().unwrap();
    assert_eq!(hold, Hold::Contested { knob: KnobId(0) });
    world.say(Command::Resume { task: Some(web) });
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn a_look_from_before_a_write_is_no_drift() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    let asked = Time(0);
    world.event(Event::Looked { knob: KnobId(0), asked, found: Ok(Value::Number(1.0)) });
    assert_eq!(world.writes(KnobId(0)).len(), 2);
}

/// `web`, then `db`: the knob of what is done is lost while the other goes on.
fn two_in_a_row() -> (World, TaskId, TaskId) {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let db = sketch.shift("db", &[web]);
    let mut world = World::open(sketch);
    world.until("the second began", |world| world.writes(KnobId(1)).len() == 2);
    (world, web, db)
}

#[test]
fn drift_of_what_is_done_is_repaired_while_the_run_goes_on() {
    let (mut world, web, _) = two_in_a_row();
    assert_eq!(world.phase(web), Phase::Done);
    world.knobs[0] = Value::Number(1.0);
    world.pass();
    world.sweep();
    assert_eq!(world.knobs[0], Value::Number(0.0));
    assert_eq!(world.outcome(), None);
    world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
    let report = crate::report::Report::of(world.run.plan(), &world.log).unwrap();
    assert_eq!((report.drifts.len(), report.astray.len()), (1, 0));
    world.check_replay();
}

#[test]
fn what_is_lost_now_and_then_is_no_fight() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.values[0] = Some(1.5);
    world.passes(Millis(1000));
    let left = world.knobs[0].clone();
    for _ in 0..3 * DRIFTS_MAX {
        world.passes(Millis::from_secs(601));
        world.knobs[0] = Value::Number(1.0);
        world.sweep();
        assert_eq!(world.knobs[0], left);
    }
}

#[test]
fn a_run_is_not_closed_before_a_last_look() {
    let (mut world, ..) = two_in_a_row();
    world.knobs[0] = Value::Number(1.0);
    // Nobody looks now and then.
    world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs, [0.0, 0.0].map(Value::Number), "the last look finds it");
    world.check_replay();
}

#[test]
fn what_cannot_be_read_at_the_end_is_said() {
    let (mut world, ..) = two_in_a_row();
    world.unreadable.insert(KnobId(0));
    world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
    let report = crate::report::Report::of(world.run.plan(), &world.log).unwrap();
    let said: Vec<_> = report.astray.iter().map(|own| (own.knob.as_str(), &own.found)).collect();
    assert_eq!(said, [("edge:web", &None)]);
    world.check_replay();
}

#[test]
fn what_somebody_keeps_turning_is_said_at_the_end() {
    let (mut world, ..) = two_in_a_row();
    for _ in 0..DRIFTS_MAX {
        world.knobs[0] = Value::Number(1.0);
        world.pass();
        world.sweep();
    }
    world.knobs[0] = Value::Number(0.4);
    world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
    let report = crate::report::Report::of(world.run.plan(), &world.log).unwrap();
    let astray = &report.astray[0];
    assert_eq!((&astray.expected, &astray.found), (&Value::Number(0.0), &Some(Value::Number(0.4))));
    assert_eq!(astray.why, "somebody else keeps turning it");
    world.check_replay();
}

#[test]
fn what_was_put_back_and_is_not_there_is_not_reverted() {
    let (mut world, web, _) = two_in_a_row();
    world.say(Command::Abort { how: Abort::Revert });
    world.until("the first is back", |world| world.phase(web) == Phase::Reverting);
    world.unreadable.insert(KnobId(1));
    world.until("it is over", |world| world.outcome().is_some());
    assert_eq!(world.outcome(), Some(RunOutcome::PartlyReverted));
    world.check_replay();
}

#[test]
fn a_knob_that_another_task_writes_is_not_adrift() {
    let mut sketch = Sketch::new();
    let half = sketch.shift("web", &[]);
    let StageKind::Shift { knob, .. } = sketch.last().stages[0].kind else { unreachable!() };
    let to = Goal::Value(Value::Number(0.5));
    sketch.last().stages[0].kind = StageKind::Shift { knob, to };
    let to = Goal::Value(Value::Number(0.0));
    let stages = vec![stage("rest", StageKind::Set { knob, to, of: None }, Next::Exit(Exit::Done))];
    sketch.task("rest", &[half], stages);
    let mut world = World::open(sketch);
    world.until("half is gone", |world| {
        world.phase(half) == Phase::Settling || world.phase(half) == Phase::Done
    });
    world.held_back.get_or_insert_default();
    world.until("the rest goes", |world| world.writes(knob).last() == Some(&0.0));
    // It has arrived, and nobody has heard of it.
    world.pass();
    assert_eq!(world.run.kept().count(), 0);
    let found = Ok(Value::Number(0.0));
    world.event(Event::Looked { knob, asked: world.now, found });
    assert!(!world.log.iter().any(|record| matches!(record.fact, Fact::Drifted { .. })));
    world.answer();
    world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
}

#[test]
fn what_cannot_be_put_back_is_given_up_and_said() {
    for (result, why) in [
        (Ended::Failed { why: "no route".into() }, "it could not be put back: no route"),
        (Ended::Refused { why: "fenced off".into() }, "it could not be put back: fenced off"),
    ] {
        let (mut world, ..) = two_in_a_row();
        // Long enough that earlier drifts would be forgotten.
        world.say(Command::Pause { task: Some(TaskId(1)) });
        world.passes(DRIFT_FORGOTTEN_AFTER + Millis::from_secs(60));
        world.say(Command::Resume { task: Some(TaskId(1)) });
        world.knobs[0] = Value::Number(1.0);
        world.broken.insert(KnobId(0), result);
        world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
        let tries = world.log.iter().filter(|record| matches!(record.fact, Fact::Drifted { .. }));
        assert_eq!(tries.count() as u32, DRIFTS_MAX);
        let report = crate::report::Report::of(world.run.plan(), &world.log).unwrap();
        assert_eq!(report.astray[0].why, why);
        world.check_replay();
    }
}

#[test]
fn a_paused_run_that_is_aborted_to_hold_ends_and_says_what_is_elsewhere() {
    for drifted in [0, 1] {
        let (mut world, ..) = two_in_a_row();
        world.say(Command::Pause { task: None });
        world.knobs[drifted] = Value::Number(0.6);
        world.pass();
        world.say(Command::Abort { how: Abort::Hold });
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Held));
        assert_eq!(world.knobs[drifted], Value::Number(0.6), "nothing is turned while paused");
        let report = crate::report::Report::of(world.run.plan(), &world.log).unwrap();
        assert_eq!(report.astray.len(), 1);
        world.check_replay();
    }
}

#[test]
fn the_last_look_does_not_ask_again_at_once() {
    let (mut world, _, db) = two_in_a_row();
    world.until("it is through", |world| world.writes(KnobId(1)).last() == Some(&0.0));
    world.say(Command::Pause { task: Some(TaskId(0)) });
    world.knobs[0] = Value::Number(1.0);
    world.until("it is done", |world| world.phase(db) == Phase::Done);
    assert_eq!(world.run.wanted(world.now).count(), 0);
    assert_eq!(world.run.wanted(world.now + Millis(1000)).count(), 1);
    world.say(Command::Resume { task: Some(TaskId(0)) });
    world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], Value::Number(0.0));
}

/// A log that holds what JSON has no word for could not be read again.
#[test]
fn a_position_that_is_no_number_counts_as_unreadable() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    for odd in [f64::NAN, f64::INFINITY] {
        let mut again = World::open(Sketch { plan: (**world.run.plan()).clone() });
        again.run = Run::open(again.run.plan().clone(), "ann", "", Mode::Drill, Time(0)).0;
        again.now = again.now + Millis(1000);
        let found = Ok(Value::Number(odd));
        let looked = Event::Looked { knob: KnobId(0), asked: again.now, found };
        let records = again.run.handle(again.now, looked).unwrap();
        assert!(!records.iter().any(|record| matches!(record.fact, Fact::Found { .. })));
        let (_, hold) = again.run.state().task(web).hold.clone().unwrap();
        assert_eq!(hold, Hold::Unreadable { knob: KnobId(0) });
    }
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
}

/// A driver that prints nothing has read nothing: that is no value to go back to.
/// A switch beside the weights of its service, such as one that makes it read-only.
#[test]
fn a_switch_beside_a_weight_may_be_empty() {
    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    let (weight, switch) = (sketch.plan.knobs[0].clone(), sketch.plan.knobs[0].clone());
    let to = Goal::Value(Value::Text("read-only".into()));
    sketch.last().stages[0].kind = StageKind::Set { knob: KnobId(0), to, of: None };
    let carrier = |knob, goal| TrafficKnob { knob, goal, original: None };
    sketch.plan.traffic[0].datacenters[0].knobs = vec![
        carrier(beside(weight), Value::Number(0.0)),
        carrier(switch, Value::Text("read-only".into())),
    ];
    let mut world = World::open(sketch);
    world.knobs[0] = Value::Text(String::new());
    world.until("it is over", |world| world.outcome().is_some());
    assert_eq!(world.knobs[0], Value::Text("read-only".into()));
    world.check_replay();
}

/// Another knob than the one that the task sets.
fn beside(knob: Knob) -> Knob {
    Knob { name: "weight".into(), ..knob }
}

#[test]
fn nothing_is_no_value_of_a_knob_that_carries_traffic() {
    let text = |text: &str| Value::Text(text.into());
    for odd in ["", " \n", "null", "NULL"] {
        for (carries, goal) in [(true, "off"), (false, "off"), (true, odd)] {
            let mut sketch = Sketch::new();
            sketch.shift("web", &[]);
            let to = Goal::Value(text(goal));
            sketch.last().stages[0].kind = StageKind::Set { knob: KnobId(0), to, of: None };
            if carries {
                sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
                    knob: sketch.plan.knobs[0].clone(),
                    goal: text(goal),
                    original: None,
                }];
            }
            let mut world = World::open(sketch);
            world.knobs[0] = text(odd);
            world.passes(Millis::from_secs(5));
            let state = world.run.state().task(TaskId(0));
            // A file may be empty, and so may be what the drain sets.
            let is_value = !carries || goal == odd;
            assert_eq!(state.origin(KnobId(0)).is_some(), is_value, "{odd:?}");
            if !is_value {
                assert!(matches!(state.hold, Some((_, Hold::Unreadable { .. }))), "{odd:?}");
                world.knobs[0] = text("on");
                world.until("it is over", |world| world.outcome().is_some());
                let state = world.run.state().task(TaskId(0));
                assert_eq!(state.origin(KnobId(0)), Some(&text("on")));
            }
            world.check_replay();
        }
    }
}

/// A knob that stood at a number and was set to a text is written back at once:
/// between them there are no steps. Also if nobody heard that it was set.
#[test]
fn what_went_from_a_number_to_a_text_goes_back() {
    for is_heard in [true, false] {
        let mut sketch = Sketch::new();
        let switch = sketch.knob("switch");
        let to = Goal::Value(Value::Text("off".into()));
        let set =
            stage("set", StageKind::Set { knob: switch, to, of: None }, Next::Exit(Exit::Done));
        let web = sketch.task("web", &[], vec![set]);
        sketch.shift("other", &[web]);
        let mut world = World::open(sketch);
        if !is_heard {
            world.broken.insert(switch, Ended::Failed { why: "no answer".into() });
        }
        world.until("it was tried", |world| world.log.len() > 6);
        (world.knobs[0], world.broken) = (Value::Text("off".into()), BTreeMap::new());
        world.say(Command::Abort { how: Abort::Revert });
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
        assert_eq!(world.knobs[0], Value::Number(1.0), "{is_heard}");
        world.check_replay();
    }
}

#[test]
fn a_knob_that_cannot_be_put_back_is_named_with_the_value_it_had() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.broken.insert(KnobId(0), Ended::Refused { why: "no such server".into() });
    world.say(Command::Abort { how: Abort::Revert });
    world.until("it gives up", |world| world.phase(web) == Phase::Unreverted);
    let why = world.run.state().task(web).failure.clone();
    assert_eq!(why.as_deref(), Some("edge:web cannot be put back to 1: no such server"));
}

#[test]
fn an_act_that_nothing_undoes_is_named_by_its_stage() {
    let mut sketch = Sketch::new();
    let act = Act { driver: "jobs".into(), action: "stop".into(), arguments: BTreeMap::new() };
    let stages = vec![stage("stop-jobs", StageKind::Act(act), Next::Exit(Exit::Done))];
    let jobs = sketch.task("jobs", &[], stages);
    sketch.shift("web", &[jobs]);
    let mut world = World::open(sketch);
    world.until("it is done", |world| world.phase(jobs) == Phase::Done);
    world.say(Command::Abort { how: Abort::Revert });
    world.until("it gives up", |world| world.phase(jobs) == Phase::Unreverted);
    let why = world.run.state().task(jobs).failure.clone().unwrap();
    assert!(why.contains("stop-jobs"), "{why}");
}

/// A driver that once reads nothing must not decide where a knob goes back to.
#[test]
fn a_bad_read_is_no_origin_and_a_retry_reads_again() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    let knob = KnobId(0);
    world.knobs[0] = Value::Text(String::new());
    world.until("it fails", |world| world.phase(web) == Phase::Failed);
    let trouble = world.run.state().task(web).trouble().unwrap().to_owned();
    assert!(trouble.contains("steps need a number"), "{trouble}");
    assert_eq!(world.run.state().task(web).origin(knob), None);
    world.knobs[0] = Value::Number(1.0);
    world.say(Command::Retry { task: web });
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.run.state().task(web).origin(knob), Some(&Value::Number(1.0)));
    world.check_replay();
}

/// A person or a reload brings a knob back while a breach holds the task: the samples
/// that are good again are of there, and not of where the next step would begin.
#[test]
fn a_step_begins_where_the_knob_is_and_not_where_it_was() {
    for pauses in [false, true] {
        let (mut world, web, _) = watched(OnBreach::Hold);
        world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
        world.values[0] = Some(99.0);
        world.passes(Millis::from_secs(5));
        let left = world.knobs[0].clone();
        if pauses {
            world.say(Command::Pause { task: Some(web) });
        }
        world.knobs[0] = Value::Number(1.0);
        let writes = world.writes(KnobId(0)).len();
        // Good at 1, bad where it was left.
        for _ in 0..60 {
            world.values[0] = Some(if world.knobs[0] == left { 99.0 } else { 0.1 });
            world.pass();
            if pauses && world.run.state().task(web).paused {
                world.say(Command::Resume { task: Some(web) });
            }
            assert!(world.knobs[0].number() >= left.number(), "{:?}", world.knobs[0]);
        }
        assert!(world.writes(KnobId(0)).len() > writes, "it was put back");
        world.check_replay();
    }
}

/// Held before its first step: what it found then is long ago.
#[test]
fn a_task_that_was_held_before_its_first_step_looks_again() {
    let (mut world, web, _) = watched(OnBreach::Hold);
    let mut plan = (**world.run.plan()).clone();
    plan.tasks[0].pace.patience = Millis::from_secs(3600);
    world = World::open(Sketch { plan });
    world.values[0] = Some(99.0);
    world.passes(Millis::from_secs(10));
    assert_eq!(world.writes(KnobId(0)), [0.0; 0]);
    // A person drains it by hand, which is what it needed.
    world.knobs[0] = Value::Number(0.0);
    world.values[0] = Some(0.1);
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.writes(KnobId(0)), [0.0; 0], "nothing is sent back");
    assert_eq!(world.phase(web), Phase::Done);
    assert_eq!(world.run.state().task(web).origin(KnobId(0)), Some(&Value::Number(1.0)));
    world.check_replay();
}

/// An operator hurries a drain on by hand: traffic is never sent back into the
/// datacenter for that, and the next step is judged from where the knob is.
#[test]
fn a_knob_that_is_moved_towards_its_goal_by_hand_is_not_put_back() {
    for (by_hand, pauses) in [(0.0, false), (0.2, false), (0.2, true)] {
        let (mut world, web, _) = watched(OnBreach::Hold);
        world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
        world.values[0] = Some(99.0);
        world.passes(Millis::from_secs(5));
        if pauses {
            world.say(Command::Pause { task: Some(web) });
        }
        let writes = world.writes(KnobId(0)).len();
        world.knobs[0] = Value::Number(by_hand);
        world.pass();
        world.sweep();
        world.passes(Millis::from_secs(30));
        assert_eq!(world.knobs[0], Value::Number(by_hand), "{by_hand} {pauses}");
        assert_eq!(world.writes(KnobId(0)).len(), writes, "held by health, and not put back");
        if pauses {
            world.say(Command::Resume { task: Some(web) });
        }
        world.values[0] = Some(0.1);
        world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        assert!(world.writes(KnobId(0))[writes..].iter().all(|to| *to <= by_hand));
        let report = crate::report::Report::of(world.run.plan(), &world.log).unwrap();
        assert_eq!(report.drifts.len(), 1, "it is reported");
        world.check_replay();
    }
}

/// The samples from before the change by hand say nothing about it.
#[test]
fn what_was_moved_by_hand_is_judged_by_samples_taken_after_that() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
    // It takes no step meanwhile, and has samples from after the last one.
    world.say(Command::Pause { task: None });
    world.passes(Millis::from_secs(5));
    world.knobs[0] = Value::Number(0.1);
    world.pass();
    world.sweep();
    world.exporter_died = Some(world.now);
    world.say(Command::Resume { task: None });
    world.passes(Millis::from_secs(20));
    assert_eq!(world.knobs[0], Value::Number(0.1));
    world.exporter_died = None;
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// Past the goal of the runbook: it stays out until health allows the step to the goal.
#[test]
fn a_knob_that_is_moved_past_its_goal_stays_there_while_health_is_bad() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    let StageKind::Shift { knob, .. } = sketch.last().stages[0].kind else { unreachable!() };
    let to = Goal::Value(Value::Number(0.4));
    sketch.last().stages[0].kind = StageKind::Shift { knob, to };
    let mut world = World::open(sketch);
    world.until("it began", |world| world.knobs[0].number() <= Some(0.8));
    world.values[0] = Some(99.0);
    world.passes(Millis::from_secs(5));
    world.knobs[0] = Value::Number(0.0);
    world.pass();
    world.sweep();
    world.passes(Millis::from_secs(60));
    assert_eq!(world.knobs[0], Value::Number(0.0));
    world.values[0] = Some(0.1);
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], Value::Number(0.4));
    world.check_replay();
}

/// What a step did although the server died before it heard of it is not undone.
#[test]
fn a_step_that_was_in_flight_at_a_crash_and_was_done_is_not_put_back() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
    world.held_back = Some(Vec::new());
    world.until("a step is in flight", |world| {
        world.held_back.as_ref().is_some_and(|held_back| !held_back.is_empty())
    });
    world.held_back = None;
    let step = *world.writes(KnobId(0)).last().unwrap();
    world.knobs[0] = Value::Number(step);
    world.run = Run::resume(world.run.plan().clone(), &world.log).unwrap();
    let (records, _) = world.run.take_up(world.now);
    world.take(records);
    world.now = world.now + Millis(100);
    world.sweep();
    assert_eq!(world.knobs[0], Value::Number(step));
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert!(world.writes(KnobId(0)).windows(2).all(|pair| pair[1] <= pair[0]));
    world.check_replay();
}

/// Nothing is put back while a run is paused; what is elsewhere is shown all the same.
#[test]
fn a_pause_does_not_hide_what_was_moved_by_hand() {
    let (mut world, web, _) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
    world.say(Command::Pause { task: Some(web) });
    world.knobs[0] = Value::Number(1.0);
    world.pass();
    world.sweep();
    let away: Vec<_> = world.run.away().collect();
    assert_eq!(away, [(KnobId(0), &Value::Number(1.0))]);
    world.say(Command::Resume { task: Some(web) });
    world.until("it is put back", |world| world.knobs[0].number() < Some(1.0));
    world.sweep();
    assert_eq!(world.run.away().count(), 0);
}

/// A drain that is held half-way by bad health; where its knob is, and how often it was
/// written.
fn held_half_way() -> (World, Value, usize) {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
    world.values[0] = Some(99.0);
    world.passes(Millis::from_secs(5));
    let (at, writes) = (world.knobs[0].clone(), world.writes(KnobId(0)).len());
    (world, at, writes)
}

/// Nothing but a step moves traffic out, and steps ask health.
#[test]
fn one_wrong_read_does_not_move_traffic_out() {
    let (mut world, at, writes) = held_half_way();
    let found = Ok(Value::Number(0.0));
    world.event(Event::Looked { knob: KnobId(0), asked: world.now, found });
    for _ in 0..20 {
        world.passes(Millis::from_secs(5));
        world.sweep();
    }
    assert_eq!((world.knobs[0].clone(), world.writes(KnobId(0)).len()), (at, writes));
    world.values[0] = Some(0.1);
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    let written = world.writes(KnobId(0));
    assert!(written.windows(2).all(|pair| pair[0] - pair[1] <= PACE.step_max + 1e-9));
    world.check_replay();
}

/// An operator who sets a knob by hand, sees what comes of it and sets it back has the
/// last word, paused or not.
#[test]
fn what_was_moved_by_hand_may_be_moved_back_by_hand() {
    for pauses in [false, true] {
        let (mut world, at, writes) = held_half_way();
        if pauses {
            world.say(Command::Pause { task: None });
        }
        for value in [Value::Number(0.0), at.clone()] {
            world.knobs[0] = value;
            world.pass();
            world.sweep();
            world.passes(Millis::from_secs(5));
        }
        if pauses {
            world.say(Command::Resume { task: None });
            world.sweep();
            world.passes(Millis::from_secs(5));
        }
        assert_eq!((world.knobs[0].clone(), world.writes(KnobId(0)).len()), (at, writes));
        world.values[0] = Some(0.1);
        world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
        world.check_replay();
    }
}

/// A reload behind it puts the knob back to where the last step left it, which health was
/// asked for, and not to where a person moved it on to.
#[test]
fn what_comes_back_after_a_move_by_hand_is_put_where_the_last_step_left_it() {
    let (mut world, at, _) = held_half_way();
    for value in [0.0, 1.0] {
        world.knobs[0] = Value::Number(value);
        world.pass();
        world.sweep();
        world.passes(Millis::from_secs(5));
    }
    assert_eq!(world.knobs[0], at);
    world.check_replay();
}

/// What a person moved to its goal is done when health allows, and by a step of the task.
#[test]
fn a_knob_that_is_moved_to_its_goal_by_hand_is_done_when_health_allows() {
    let (mut world, _, writes) = held_half_way();
    world.knobs[0] = Value::Number(0.0);
    world.pass();
    world.sweep();
    world.passes(Millis::from_secs(120));
    assert_eq!((world.outcome(), world.writes(KnobId(0)).len()), (None, writes));
    world.values[0] = Some(0.1);
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.writes(KnobId(0))[writes..], [0.0]);
    world.check_replay();
}

/// A step back that was done although nobody heard of it is not undone in bad health.
#[test]
fn a_step_back_that_was_in_flight_at_a_crash_and_was_done_is_not_undone() {
    let (mut world, ..) = watched(OnBreach::BackOff);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
    world.values[0] = Some(1.5);
    world.held_back = Some(Vec::new());
    world.until("a step back is in flight", |world| {
        let written = world.writes(KnobId(0));
        written.last() > written.iter().rev().nth(1)
    });
    world.held_back = None;
    let back = *world.writes(KnobId(0)).last().unwrap();
    world.knobs[0] = Value::Number(back);
    world.run = Run::resume(world.run.plan().clone(), &world.log).unwrap();
    let (records, _) = world.run.take_up(world.now);
    let writes = world.writes(KnobId(0)).len();
    world.take(records);
    world.now = world.now + Millis(100);
    world.sweep();
    world.passes(Millis::from_secs(30));
    let no_worse = world.writes(KnobId(0))[writes..].iter().all(|to| *to >= back);
    assert!(no_worse, "{:?}", world.writes(KnobId(0)));
    world.values[0] = Some(0.1);
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

/// Who stopped a task has it no more: nothing is put back when the run is resumed.
#[test]
fn a_stopped_task_puts_nothing_back() {
    let (mut world, web, _) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
    world.say(Command::Pause { task: Some(web) });
    world.knobs[0] = Value::Number(1.0);
    world.pass();
    world.sweep();
    assert_eq!(world.run.away().count(), 1);
    world.say(Command::Stop { task: web });
    assert_eq!(world.run.away().count(), 0);
}

/// A load balancer that has lost its entries: the restore is what writes them again.
#[test]
fn a_restore_sets_a_knob_that_reads_as_nothing() {
    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    sketch.plan.direction = Direction::Restore;
    let to = Goal::Original(Value::Text("on".into()));
    sketch.last().stages[0].kind = StageKind::Set { knob: KnobId(0), to, of: None };
    sketch.plan.traffic[0].datacenters[0].knobs = vec![TrafficKnob {
        knob: sketch.plan.knobs[0].clone(),
        goal: Value::Text("off".into()),
        original: Some(Value::Text("on".into())),
    }];
    let mut world = World::open(sketch);
    world.knobs[0] = Value::Text(String::new());
    world.until("it is over", |world| world.outcome().is_some());
    assert_eq!(world.knobs[0], Value::Text("on".into()));
    world.check_replay();
}
