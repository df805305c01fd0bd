//! Effects that fail, are cut off, or are not heard of.

use super::*;

#[test]
fn effects_that_fail_are_tried_again_and_then_given_up() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.broken.insert(KnobId(0), Ended::Done { found: Some(Value::Number(1.0)) });
    world.until("it is given up", |world| world.phase(web) == Phase::Failed);
    let tried = world.writes(KnobId(0)).len() as u32;
    assert_eq!(tried, ATTEMPTS_MAX);
    let why = world.run.state().task(web).last_failure.clone().unwrap();
    assert_eq!(why, "wrote 0.9, read back 1");
    world.broken.clear();
    world.say(Command::Retry { task: web });
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn what_is_refused_is_not_tried_again() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.broken.insert(KnobId(0), Ended::Refused { why: "fenced off".into() });
    world.until("it is given up", |world| world.phase(web) == Phase::Failed);
    assert_eq!(world.writes(KnobId(0)).len(), 1);
}

#[test]
fn an_effect_in_flight_is_known_after_a_crash() {
    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    let plan = Arc::new(sketch.plan);
    let (mut run, mut log) = Run::open(plan.clone(), "ann", "", Mode::Drill, Time(0));
    let look = Event::Looked { knob: KnobId(0), asked: Time(0), found: Ok(Value::Number(1.0)) };
    log.extend(run.handle(Time(0), look).unwrap());
    // It died before it heard of the end.
    let mut again = Run::resume(plan, &log).unwrap();
    let (effect, in_flight) = again.state().in_flight.first_key_value().unwrap();
    let write = Effect::Write { knob: KnobId(0), value: Value::Number(0.9) };
    assert_eq!((*effect, &in_flight.what), (EffectId(1), &write));
    let done = Ended::Done { found: Some(Value::Number(0.9)) };
    let ended = Event::Ended { effect: EffectId(1), result: done };
    assert_eq!(again.handle(Time(9), ended.clone()).unwrap().len(), 1);
    assert_eq!(again.handle(Time(9), ended).unwrap().len(), 0, "once is enough");
}

#[test]
fn what_is_not_answered_is_waited_for_and_that_is_said() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 1);
    world.held_back = Some(Vec::new());
    world.until("the next step", |world| world.writes(KnobId(0)).len() == 2);
    world.passes(Millis::from_secs(119));
    assert_eq!(world.run.state().task(web).hold, None);
    world.passes(Millis::from_secs(600));
    let (_, hold) = world.run.state().task(web).hold.clone().unwrap();
    assert_eq!(hold, Hold::Unanswered { effect: EffectId(2) });
    assert_eq!(world.writes(KnobId(0)).len(), 2, "it may still be done: nothing else is begun");
    world.say(Command::Abort { how: Abort::Hold });
    world.passes(Millis::from_secs(10));
    assert_eq!(world.outcome(), None, "not even an abort leaves it halfway");
    world.answer();
    assert_eq!(world.run.state().task(web).hold, None);
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Held));
    world.check_replay();
}

#[test]
fn all_tries_of_an_act_are_one_occasion() {
    let mut sketch = Sketch::new();
    let act = Act { driver: "jobs".into(), action: "stop".into(), arguments: BTreeMap::new() };
    let stages = vec![
        stage("first", StageKind::Act(act.clone()), Next::Stage(StageId(1))),
        stage("second", StageKind::Act(act), Next::Exit(Exit::Done)),
    ];
    let job = sketch.task("job", &[], stages);
    let plan = Arc::new(sketch.plan);
    let (mut run, _) = Run::open(plan, "ann", "", Mode::Drill, Time(0));
    let mut occasions = Vec::new();
    let mut now = Time(0);
    for round in 0..3 * u64::from(ATTEMPTS_MAX) {
        now = now + Millis::from_secs(60);
        run.handle(now, Event::Tick).unwrap();
        if run.state().task(job).phase == Phase::Failed {
            let retry = Command::Retry { task: job };
            let said = Event::Said { by: "ann".into(), reason: "".into(), command: retry };
            run.handle(now, said).unwrap();
        }
        let Some(effect) = run.state().in_flight.keys().next().copied() else { break };
        occasions.push(run.state().occasion(effect));
        let result = match round {
            12 | 20 => Ended::Done { found: None },
            _ => Ended::Failed { why: "no answer".into() },
        };
        run.handle(now, Event::Ended { effect, result }).unwrap();
    }
    occasions.dedup();
    assert_eq!(occasions, [EffectId(1), EffectId(14)], "one for each stage, whoever retries");
}

/// Whoever retries it means the act, and not what was done about its failure.
#[test]
fn a_retry_begins_with_what_did_not_work_and_is_the_same_occasion() {
    for timeout in [None, Some(Millis::from_secs(20))] {
        let mut sketch = Sketch::new();
        let act = Act { driver: "jobs".into(), action: "stop".into(), arguments: BTreeMap::new() };
        let tell = StageKind::Say(Saying { channel: Some("ops".into()), text: "help".into() });
        let mut stages = vec![
            stage("act", StageKind::Act(act), Next::Exit(Exit::Done)),
            stage("tell", tell, Next::Exit(Exit::Failed)),
        ];
        stages[0].timeout = timeout;
        (stages[0].failed, stages[0].late) = (Next::Stage(StageId(1)), Next::Stage(StageId(1)));
        let job = sketch.task("job", &[], stages);
        let (mut run, records) = Run::open(Arc::new(sketch.plan), "ann", "", Mode::Drill, Time(0));
        let (mut now, mut log, mut occasions) = (Time(0), records, Vec::new());
        let retry = Command::Retry { task: job };
        let retry = Event::Said { by: "ann".into(), reason: "".into(), command: retry };
        while run.state().closed.is_none() {
            now = now + Millis::from_secs(5);
            let is_failed = run.state().task(job).phase == Phase::Failed;
            let event = if is_failed { retry.clone() } else { Event::Tick };
            log.extend(run.handle(now, event).unwrap());
            let in_flight = run.state().in_flight.first_key_value();
            let Some((effect, what)) = in_flight.map(|(id, own)| (*id, own.what.clone())) else {
                continue;
            };
            let is_act = matches!(what, Effect::Act(_));
            if is_act {
                occasions.push(run.state().occasion(effect));
            }
            let fails = is_act && occasions.len() < 12;
            let result = match fails {
                true => Ended::Failed { why: "no answer".into() },
                false => Ended::Done { found: None },
            };
            log.extend(run.handle(now, Event::Ended { effect, result }).unwrap());
        }
        assert_eq!(run.state().closed.unwrap().1, RunOutcome::Completed);
        occasions.dedup();
        assert_eq!(occasions, [EffectId(1)], "{timeout:?}");
        assert_eq!(Run::resume(run.plan().clone(), &log).unwrap().state(), run.state());
    }
}

#[test]
fn what_is_done_again_after_a_crash_is_given_its_time() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.held_back = Some(Vec::new());
    world.until("it began", |world| world.run.state().in_flight.len() == 1);
    let plan = world.run.plan().clone();
    world.run = Run::resume(plan, &world.log).unwrap();
    // It was down for an hour.
    world.now = world.now + Millis::from_secs(3600);
    world.passes(Millis::from_secs(60));
    assert_eq!(world.run.state().task(web).hold, None);
    world.passes(Millis::from_secs(120));
    let (_, hold) = world.run.state().task(web).hold.clone().unwrap();
    assert_eq!(hold, Hold::Unanswered { effect: EffectId(1) });
}

/// It was done before the process died, and is refused when it is done again.
#[test]
fn a_write_that_is_refused_after_a_crash_may_have_been_done_and_is_put_back() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.held_back = Some(Vec::new());
    world.until("it began", |world| world.run.state().in_flight.len() == 1);
    world.knobs[0] = Value::Number(0.9);
    let plan = world.run.plan().clone();
    world.run = Run::resume(plan, &world.log).unwrap();
    world.held_back = None;
    let result = Ended::Refused { why: "it is locked".into() };
    world.event(Event::Ended { effect: EffectId(1), result });
    assert_eq!(world.phase(web), Phase::Failed);
    world.say(Command::Abort { how: Abort::Revert });
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(world.knobs[0], Value::Number(1.0));
    world.check_replay();
}
