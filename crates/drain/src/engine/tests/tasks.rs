//! When tasks begin, what their stages do, and where those lead.

use super::*;

#[test]
fn tasks_follow_their_parents_and_the_rest_goes_in_parallel() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let chat = sketch.shift("chat", &[]);
    let db = sketch.shift("db", &[web, chat]);
    let mut world = World::open(sketch);
    assert_eq!((world.phase(web), world.phase(chat)), (Phase::Running, Phase::Running));
    assert_eq!(world.phase(db), Phase::Waiting);
    world.until("it is drained", |world| world.outcome().is_some());
    assert_eq!(world.outcome(), Some(RunOutcome::Completed));
    assert!(world.knobs.iter().all(|knob| *knob == Value::Number(0.0)));
    assert_eq!(world.writes(KnobId(0)), [0.9, 0.7, 0.3, 0.0]);
    let (ended, started) = (world.run.state().task(web).ended, world.run.state().task(db).started);
    assert!(ended <= started);
    world.check_replay();
}

#[test]
fn weak_parents_are_not_waited_for_in_a_disaster() {
    let mut sketch = Sketch::new();
    let first = sketch.shift("first", &[]);
    let second = sketch.shift("second", &[]);
    sketch.last().after_weak = vec![first];
    let mut world = World::open(sketch);
    assert_eq!(world.phase(second), Phase::Waiting);
    world.say(Command::SetMode { mode: Mode::Disaster });
    assert_eq!(world.phase(second), Phase::Running);
}

#[test]
fn pre_conditions_are_waited_for_and_post_conditions_too() {
    let mut sketch = Sketch::new();
    let (ready, healthy) = (sketch.below("ready", 1.0), sketch.below("healthy", 1.0));
    let web = sketch.shift("web", &[]);
    (sketch.last().pre, sketch.last().post) = (vec![ready], vec![healthy]);
    let mut world = World::open(sketch);
    world.values = vec![None, Some(2.0)];
    world.passes(Millis(2000));
    assert_eq!(world.phase(web), Phase::Waiting);
    let hold = world.run.state().task(web).hold.clone().unwrap().1;
    assert_eq!(hold, Hold::NoData { condition: ready });
    world.values[0] = Some(0.0);
    world.until("its stages are through", |world| world.phase(web) == Phase::Settling);
    world.passes(Millis(5000));
    assert_eq!(world.phase(web), Phase::Settling);
    world.values[1] = Some(0.0);
    world.pass();
    assert_eq!(world.phase(web), Phase::Done);
}

#[test]
fn stages_lead_where_their_outcomes_say() {
    let mut sketch = Sketch::new();
    let (open, switch) = (sketch.below("open", 1.0), sketch.knob("switch"));
    let on = Goal::Value(Value::Text("on".into()));
    let act = Act { driver: "jobs".into(), action: "stop".into(), arguments: BTreeMap::new() };
    let next = |at| Next::Stage(StageId(at));
    let mut stages = vec![
        stage("ask", StageKind::Approve { people: 2, question: "really?".into() }, next(1)),
        stage("wait", StageKind::TimedWait { span: Millis(3000) }, next(2)),
        stage("look", StageKind::Check { condition: open }, next(4)),
        stage("other", StageKind::Set { knob: switch, to: on, of: None }, Next::Exit(Exit::Done)),
        stage("act", StageKind::Act(act), Next::Exit(Exit::Done)),
    ];
    stages[2].failed = next(3);
    let job = sketch.task("job", &[], stages);
    let mut world = World::open(sketch);
    world.values[0] = Some(2.0);
    world.passes(Millis(5000));
    world.say(Command::Approve { task: job });
    let twice = Event::Said {
        by: "ann".into(),
        reason: "".into(),
        command: Command::Approve { task: job },
    };
    assert!(world.run.handle(world.now, twice).is_err(), "the same person");
    let bob = Event::Said {
        by: "bob".into(),
        reason: "".into(),
        command: Command::Approve { task: job },
    };
    world.event(bob);
    world.until("it is done", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.knobs[0], Value::Text("on".into()));
    let left: Vec<u32> = world
        .log
        .iter()
        .filter_map(|record| match record.fact {
            Fact::Left { stage, .. } => Some(stage.0),
            _ => None,
        })
        .collect();
    assert_eq!(left, [0, 1, 2, 3]);
    world.check_replay();
}

/// A template may lead from a look to itself.
#[test]
fn who_goes_in_circles_does_so_now_and_then() {
    let mut sketch = Sketch::new();
    let open = sketch.below("open", 1.0);
    let mut stages =
        vec![stage("look", StageKind::Check { condition: open }, Next::Exit(Exit::Done))];
    stages[0].failed = Next::Stage(StageId(0));
    sketch.task("job", &[], stages);
    let mut world = World::open(sketch);
    world.values[0] = Some(2.0);
    world.passes(Millis::from_secs(60));
    let looks = world.log.iter().filter(|record| matches!(record.fact, Fact::Left { .. })).count();
    assert!((12..=36).contains(&looks), "{looks}");
    world.values[0] = Some(0.0);
    world.passes(Millis::from_secs(6));
    assert_eq!(world.outcome(), Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn a_stage_that_takes_too_long_is_late() {
    let mut sketch = Sketch::new();
    let open = sketch.below("open", 1.0);
    let mut stages =
        vec![stage("wait", StageKind::Await { condition: open }, Next::Exit(Exit::Done))];
    (stages[0].timeout, stages[0].late) = (Some(Millis(3000)), Next::Exit(Exit::Done));
    sketch.task("job", &[], stages);
    let mut world = World::open(sketch);
    world.values[0] = Some(2.0);
    world.until("it is done", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(world.now, Time(3000));
}

#[test]
fn a_barrier_waits_for_all_who_have_it() {
    let mut sketch = Sketch::new();
    let meet = StageKind::Barrier { name: "meet".into() };
    let slow = vec![
        stage("wait", StageKind::TimedWait { span: Millis(9000) }, Next::Stage(StageId(1))),
        stage("meet", meet.clone(), Next::Exit(Exit::Done)),
    ];
    let fast = vec![stage("meet", meet, Next::Exit(Exit::Done))];
    let (slow, fast) = (sketch.task("slow", &[], slow), sketch.task("fast", &[], fast));
    let mut world = World::open(sketch);
    world.passes(Millis(8000));
    assert_eq!((world.phase(slow), world.phase(fast)), (Phase::Running, Phase::Running));
    world.passes(Millis(1500));
    assert_eq!((world.phase(slow), world.phase(fast)), (Phase::Done, Phase::Done));
}

/// Whoever comes to a barrier wakes the others once all are there. When each
/// woke all, and all looked at all, these took half a minute.
#[test]
fn many_meet_at_a_barrier_and_each_is_looked_at_a_few_times() {
    let mut sketch = Sketch::new();
    for at in 0..1500 {
        let span = Millis(at);
        let meet = StageKind::Barrier { name: "meet".into() };
        let stages = vec![
            stage("wait", StageKind::TimedWait { span }, Next::Stage(StageId(1))),
            stage("meet", meet, Next::Exit(Exit::Done)),
        ];
        sketch.task(&format!("web-{at}"), &[], stages);
    }
    let (mut run, _) = Run::open(Arc::new(sketch.plan), "ann", "", Mode::Drill, Time(0));
    for at in 0..1500 {
        run.handle(Time(at), Event::Tick).unwrap();
    }
    assert_eq!(run.state().closed, Some((Time(1499), RunOutcome::Completed)));
    assert!(run.toil.examined <= 10 * 1500, "{:?}", run.toil);
}

/// Whoever leaves without having been at it is not waited for either.
#[test]
fn a_barrier_does_not_wait_for_who_went_another_way() {
    let mut sketch = Sketch::new();
    let later = sketch.below("later", 1.0);
    let meet = StageKind::Barrier { name: "meet".into() };
    let other = vec![
        stage("wait", StageKind::TimedWait { span: Millis(3000) }, Next::Exit(Exit::Done)),
        stage("meet", meet.clone(), Next::Exit(Exit::Done)),
    ];
    sketch.task("other", &[], other);
    sketch.last().post = vec![later];
    let own = sketch.task("own", &[], vec![stage("meet", meet, Next::Exit(Exit::Done))]);
    let mut world = World::open(sketch);
    world.values[0] = Some(2.0);
    world.passes(Millis(3000));
    assert_eq!(world.phase(own), Phase::Done);
}

/// A stage may stand behind the barrier in the file, and lead to it.
#[test]
fn a_barrier_waits_for_who_is_on_the_way_to_it_wherever_that_stands() {
    let mut sketch = Sketch::new();
    let meet = StageKind::Barrier { name: "meet".into() };
    let wait = |secs| StageKind::TimedWait { span: Millis::from_secs(secs) };
    let other = vec![
        stage("begin", wait(1), Next::Stage(StageId(2))),
        stage("meet", meet.clone(), Next::Stage(StageId(3))),
        stage("prepare", wait(5), Next::Stage(StageId(1))),
        stage("work", wait(60), Next::Exit(Exit::Done)),
    ];
    sketch.task("other", &[], other);
    let own = sketch.task("own", &[], vec![stage("meet", meet, Next::Exit(Exit::Done))]);
    let mut world = World::open(sketch);
    world.passes(Millis::from_secs(5));
    assert_eq!(world.phase(own), Phase::Running, "the other one prepares");
    world.passes(Millis::from_secs(2));
    assert_eq!(world.phase(own), Phase::Done, "the other one is past it");
    world.check_replay();
}

#[test]
fn whoever_takes_too_long_is_flagged_once() {
    let (mut world, web, _) = watched(OnBreach::Hold);
    world.values[0] = Some(1.5);
    world.passes(Millis::from_secs(700));
    let flags = world.log.iter().filter(|record| record.fact == Fact::Stuck { task: web }).count();
    assert_eq!(flags, 1);
}

/// What a stage meets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meets {
    Nothing,
    Breach,
    NoData,
    Failures,
    Refusal,
    /// Nobody answers, approves, comes or lets it pass, and it may take a minute.
    Timeout,
}

/// Every kind of stage, with everything that it can meet: how it ends, or what
/// it waits for.
#[test]
fn every_kind_of_stage_and_how_it_ends() {
    use std::fmt::Write;

    let mut table = String::new();
    for at in 0..10 {
        for meets in [
            Meets::Nothing,
            Meets::Breach,
            Meets::NoData,
            Meets::Failures,
            Meets::Refusal,
            Meets::Timeout,
        ] {
            let mut sketch = Sketch::new();
            sketch.plan.budgets.push(Budget { name: "network".into(), size: 10.0 });
            let (errors, knob) = (sketch.below("errors", 1.0), sketch.knob("web"));
            let (come, begin) = (sketch.below("come", 1.0), sketch.below("begin", 1.0));
            let to = Goal::Value(Value::Number(0.0));
            let act = Act { driver: "job".into(), action: "stop".into(), arguments: [].into() };
            let name = "meet".to_owned();
            let kinds = [
                StageKind::Shift { knob, to: to.clone() },
                StageKind::Set { knob, to, of: None },
                StageKind::Govern { knob, budget: BudgetId(0) },
                StageKind::Act(act),
                StageKind::Say(Saying { channel: None, text: "gone".into() }),
                StageKind::Await { condition: errors },
                StageKind::Check { condition: errors },
                StageKind::TimedWait { span: Millis::from_secs(90) },
                StageKind::Barrier { name: name.clone() },
                StageKind::Approve { people: 1, question: "now?".into() },
            ];
            let shown = format!("{:?}", kinds[at]);
            let shown = shown.split([' ', '(']).next().unwrap_or_default();
            let mut own = stage("own", kinds[at].clone(), Next::Exit(Exit::Done));
            own.timeout = (meets == Meets::Timeout).then_some(Millis::from_secs(60));
            let web = sketch.task("web", &[], vec![own]);
            sketch.last().pre = vec![begin];
            (sketch.last().health, sketch.last().budgets) =
                (vec![errors], vec![(BudgetId(0), 8.0)]);
            let meet = stage("meet", StageKind::Barrier { name }, Next::Exit(Exit::Done));
            sketch.task("other", &[], vec![meet]);
            sketch.last().pre = vec![come];
            let mut world = World::open(sketch);
            let broken = match meets {
                Meets::Failures => Some(Ended::Failed { why: "no answer".into() }),
                Meets::Refusal => Some(Ended::Refused { why: "no".into() }),
                _ => None,
            };
            (world.broken_acts, world.values[0]) = (
                broken.clone(),
                match meets {
                    Meets::NoData => None,
                    Meets::Breach | Meets::Timeout => Some(2.0),
                    _ => Some(0.0),
                },
            );
            broken.into_iter().for_each(|ended| _ = world.broken.insert(knob, ended));
            if meets == Meets::Timeout {
                world.held_back = Some(Vec::new());
                world.values[1] = Some(2.0);
            }
            world.passes(Millis::from_secs(40));
            if meets == Meets::Nothing && shown == "Approve" {
                world.say(Command::Approve { task: web });
            }
            world.passes(Millis::from_secs(240));
            let end = world.log.iter().find_map(|record| match record.fact {
                Fact::Left { task, outcome, .. } if task == web => Some(format!("{outcome:?}")),
                _ => None,
            });
            let state = world.run.state().task(web);
            let waits = state.hold.as_ref().map(|(_, hold)| {
                let said = crate::report::describe(world.run.plan(), hold);
                format!("waits: {said}")
            });
            let end = end.or(waits).unwrap_or_else(|| "waits".into());
            let end = format!("{end:<31} {:?}", state.phase);
            writeln!(table, "{shown:<10} {:<9} {end}", format!("{meets:?}")).unwrap();
            world.check_replay();
        }
    }
    insta::assert_snapshot!(table);
}
