//! What people say.

use super::*;

#[test]
fn an_abort_holds_or_reverts_in_reverse_order() {
    for how in [Abort::Hold, Abort::Revert] {
        let mut sketch = Sketch::new();
        let web = sketch.shift("web", &[]);
        let db = sketch.shift("db", &[web]);
        let mut world = World::open(sketch);
        world.until("the second began", |world| world.writes(KnobId(1)).len() == 2);
        world.say(Command::Abort { how });
        world.until("it is over", |world| world.outcome().is_some());
        match how {
            Abort::Hold => {
                assert_eq!(world.outcome(), Some(RunOutcome::Held));
                assert_eq!((world.phase(web), world.phase(db)), (Phase::Done, Phase::Abandoned));
                assert_eq!(world.writes(KnobId(1)), [0.9, 0.7]);
                assert_eq!(world.knobs[0], Value::Number(0.0));
            }
            Abort::Revert => {
                assert_eq!(world.outcome(), Some(RunOutcome::Reverted));
                assert_eq!(world.knobs, [1.0, 1.0].map(Value::Number));
                let back = world.writes(KnobId(0));
                assert!(back.len() >= 7, "in steps: {back:?}");
                let ended = |task: TaskId| world.run.state().task(task).ended.unwrap();
                assert!(ended(db) < ended(web), "dependents go first");
            }
        }
        world.check_replay();
    }
}

#[test]
fn limits_are_set_aside_by_two_people_or_not_at_all() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    sketch.drained_by_others([0.0, 1.0, 0.0]);
    let mut world = World::open(sketch);
    world.passes(Millis(3000));
    assert_eq!(world.phase(web), Phase::Waiting);
    assert!(matches!(world.run.state().task(web).hold, Some((_, Hold::Limit(_)))));
    world.say(Command::WaiveLimits);
    world.pass();
    assert_eq!(world.phase(web), Phase::Waiting);
    let (by, reason) = ("ann".into(), "again".to_owned());
    let again = Event::Said { by, reason, command: Command::WaiveLimits };
    assert!(world.run.handle(world.now, again).is_err());
    let (by, reason) = ("bob".into(), "there is no other way".to_owned());
    world.event(Event::Said { by, reason, command: Command::WaiveLimits });
    assert_eq!(world.phase(web), Phase::Running);
}

#[test]
fn verbs_are_refused_where_they_make_no_sense() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    let mut refuse = |command: Command, reason: &str| {
        let said = Event::Said { by: "ann".into(), reason: reason.into(), command };
        world.run.handle(world.now, said).unwrap_err().to_string()
    };
    assert_eq!(
        refuse(Command::Retry { task: web }, "why not"),
        "web is running and cannot be retried; accepted: a task that is failed, stopped, \
         reverted, unreverted"
    );
    assert_eq!(
        refuse(Command::Skip { task: web }, " "),
        "no reason is given; accepted: one that a post-mortem can use"
    );
    assert_eq!(
        refuse(Command::Stop { task: web }, &"x".repeat(5000)),
        "the reason has 5000 octets; accepted: at most 4096"
    );
    assert_eq!(refuse(Command::Approve { task: web }, ""), "web does not ask for approval now");
}

#[test]
fn one_person_is_not_two_whatever_name_is_typed() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    sketch.drained_by_others([0.0, 1.0, 0.0]);
    let mut world = World::open(sketch);
    let waive = |by: Actor| Event::Said {
        by,
        reason: "there is no other way".into(),
        command: Command::WaiveLimits,
    };
    let ann = Actor::from("ann");
    world.event(waive(ann.clone()));
    for typed in [None, Some("ann"), Some("mallory"), Some("bob (uid 1001)")] {
        let again = waive(ann.clone().commented(typed));
        let refusal = world.run.handle(world.now, again).unwrap_err().to_string();
        assert!(refusal.starts_with(&format!("{ann} has set the limits aside already")));
        assert!(refusal.ends_with("accepted: an operator with another uid"), "{refusal}");
    }
    let server = world.run.handle(world.now, waive(Actor::automatic("pharos")));
    assert!(server.unwrap_err().to_string().contains("is no person"));
    world.passes(Millis(2000));
    assert_eq!(world.phase(web), Phase::Waiting);
    world.event(waive("bob".into()));
    assert_eq!(world.phase(web), Phase::Running);
}

/// A second drain begins elsewhere while this one goes on: no step is taken
/// that would leave too little, and the way back is not barred.
#[test]
fn limits_hold_for_a_run_that_goes_on_when_another_begins() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.event(Event::Fleet { fleet: fleet([0.0, 1.0, 0.0]) });
    world.passes(Millis::from_secs(60));
    assert_eq!(world.writes(KnobId(0)).len(), 2);
    assert!(matches!(world.run.state().task(web).hold, Some((_, Hold::Limit(_)))));
    let mut back = World {
        log: world.log.clone(),
        knobs: world.knobs.clone(),
        ..World::open(Sketch { plan: (**world.run.plan()).clone() })
    };
    (back.run, back.now) = (world.run.clone(), world.now);
    back.say(Command::Abort { how: Abort::Revert });
    back.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    world.event(Event::Fleet { fleet: fleet([0.0; 3]) });
    world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
}

#[test]
fn the_way_back_is_a_later_word_than_a_pause_and_can_be_paused_itself() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    world.until("it began", |world| world.writes(KnobId(0)).len() == 3);
    world.say(Command::Pause { task: None });
    world.say(Command::Pause { task: Some(web) });
    world.say(Command::Abort { how: Abort::Revert });
    world.until("it goes back", |world| world.writes(KnobId(0)).len() == 4);
    world.say(Command::Pause { task: None });
    world.passes(Millis::from_secs(60));
    assert_eq!((world.phase(web), world.writes(KnobId(0)).len()), (Phase::Reverting, 4));
    world.say(Command::Resume { task: None });
    world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    world.check_replay();
}

#[test]
fn the_mode_can_be_switched_both_ways() {
    let mut sketch = Sketch::new();
    let first = sketch.shift("first", &[]);
    let [second, third] = ["second", "third"].map(|name| {
        let task = sketch.shift(name, &[]);
        sketch.last().after_weak = vec![first];
        task
    });
    let not_yet = sketch.below("ready", 1.0);
    sketch.last().pre = vec![not_yet];
    let mut world = World::open(sketch);
    world.values[0] = Some(2.0);
    world.pass();
    world.say(Command::SetMode { mode: Mode::Disaster });
    world.until("it goes", |world| world.writes(KnobId(1)).len() == 2);
    assert_eq!(world.phase(third), Phase::Waiting, "for its condition");
    world.say(Command::SetMode { mode: Mode::Drill });
    world.say(Command::Pause { task: Some(first) });
    world.values[0] = Some(0.0);
    world.until("what began goes on", |world| world.phase(second) == Phase::Done);
    world.passes(Millis::from_secs(60));
    assert_eq!(world.phase(third), Phase::Waiting, "for its parent again");
    world.say(Command::Resume { task: Some(first) });
    world.until("it is drained", |world| world.outcome() == Some(RunOutcome::Completed));
    let state = world.run.state();
    assert!(state.task(third).started >= state.task(first).ended);
    world.check_replay();
}

/// Everything that can be said, to a task in every phase, in a run that goes
/// on and in one that is aborted either way: what it does, or why not.
#[test]
fn every_verb_in_every_phase() {
    use std::fmt::Write;

    let mut sketch = Sketch::new();
    let (errors, other) = (sketch.below("errors", 1.0), sketch.below("other", 1.0));
    let knob = sketch.knob("web");
    let to = Goal::Value(Value::Number(0.0));
    let stages = vec![
        stage(
            "ask",
            StageKind::Approve { people: 2, question: "?".into() },
            Next::Stage(StageId(1)),
        ),
        stage("shift", StageKind::Shift { knob, to }, Next::Exit(Exit::Done)),
    ];
    let web = sketch.task("web", &[], stages);
    sketch.last().health = vec![errors];
    let plan = Arc::new(sketch.plan);
    let (fresh, _) = Run::open(plan.clone(), "ann", "", Mode::Drill, Time(0));
    let (all, one) = (None, Some(web));
    let verbs = [
        Command::Pause { task: all },
        Command::Pause { task: one },
        Command::Resume { task: all },
        Command::Resume { task: one },
        Command::Skip { task: web },
        Command::Stop { task: web },
        Command::Retry { task: web },
        Command::Override { condition: errors, task: all },
        Command::Override { condition: errors, task: one },
        Command::Override { condition: other, task: one },
        Command::Accelerate { task: all },
        Command::Accelerate { task: one },
        Command::Approve { task: web },
        Command::SetMode { mode: Mode::Disaster },
        Command::WaiveLimits,
        Command::Abort { how: Abort::Hold },
        Command::Abort { how: Abort::Revert },
    ];
    let mut table = String::new();
    for abort in [None, Some(Abort::Hold), Some(Abort::Revert)] {
        for phase in Phase::ALL {
            let is_aborted = abort.map_or("".into(), |how| format!(", aborted: {how:?}"));
            writeln!(table, "{phase:?}{is_aborted}").unwrap();
            for verb in &verbs {
                let mut run = fresh.clone();
                run.state.abort = abort;
                run.state.tasks[0].phase = phase;
                run.state.census = run.state.tasks.iter().map(|task| task.phase).collect();
                run.wake_all();
                let said =
                    Event::Said { by: "ann".into(), reason: "so".into(), command: verb.clone() };
                let does = match run.handle(Time(1), said) {
                    Err(refusal) => format!("refused: {refusal}"),
                    Ok(records) => {
                        let told = records.iter().filter_map(|record| match &record.fact {
                            Fact::Moved { trigger, .. } => Some(format!("{trigger:?}")),
                            Fact::Closed { outcome } => Some(format!("closed {outcome:?}")),
                            _ => None,
                        });
                        told.collect::<Vec<_>>().join(", ")
                    }
                };
                let line = format!("  {:<25} {does}", verb.describe(&plan));
                writeln!(table, "{}", line.trim_end()).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// How a run ends, by how it was aborted and where its tasks are: each phase
/// alone, and beside one that is done.
#[test]
fn every_end_of_a_run() {
    use std::fmt::Write;

    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    sketch.shift("db", &[]);
    let (mut run, _) = Run::open(Arc::new(sketch.plan), "ann", "", Mode::Drill, Time(0));
    let mut table = format!(
        "{:<11} {:<11} {:<19} {:<19} aborted to revert\n",
        "", "", "not aborted", "aborted to hold"
    );
    for one in Phase::ALL {
        for other in [one, Phase::Done, Phase::Abandoned] {
            (run.state.tasks[0].phase, run.state.tasks[1].phase) = (one, other);
            run.state.census = run.state.tasks.iter().map(|task| task.phase).collect();
            let [none, hold, revert] =
                [None, Some(Abort::Hold), Some(Abort::Revert)].map(|abort| {
                    run.state.abort = abort;
                    run.outcome().map_or("-".to_owned(), |outcome| format!("{outcome:?}"))
                });
            let (one, other) = (format!("{one:?}"), format!("{other:?}"));
            writeln!(table, "{one:<11} {other:<11} {none:<19} {hold:<19} {revert}").unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

/// Who dies between a start and the record of the stage it enters has entered it
/// all the same: what was approved before does not count, and what is to be
/// governed is.
#[test]
fn a_stage_is_entered_with_the_start() {
    let mut sketch = Sketch::new();
    sketch.plan.budgets.push(Budget { name: "network".into(), size: 10.0 });
    let ask = stage(
        "ask",
        StageKind::Approve { people: 2, question: "now?".into() },
        Next::Exit(Exit::Done),
    );
    let asks = sketch.task("asks", &[], vec![ask]);
    let knob = sketch.knob("rate");
    let kind = StageKind::Govern { knob, budget: BudgetId(0) };
    let governs = sketch.task("governs", &[], vec![stage("govern", kind, Next::Exit(Exit::Done))]);
    sketch.last().budgets = vec![(BudgetId(0), 8.0)];
    let mut world = World::open(sketch);
    world.say(Command::Approve { task: asks });
    world.say(Command::Stop { task: asks });
    world.say(Command::Retry { task: asks });
    for task in [asks, governs] {
        let starts = |record: &Record| match record.fact {
            Fact::Moved { task: own, trigger: Trigger::Start } => own == task,
            _ => false,
        };
        let started = world.log.iter().rposition(starts).unwrap();
        let cut = Run::resume(world.run.plan().clone(), &world.log[..=started]).unwrap();
        let whole = Run::resume(world.run.plan().clone(), &world.log[..=started + 1]).unwrap();
        assert_eq!(cut.state().task(task), whole.state().task(task));
    }
}

#[test]
fn one_person_cannot_skip_what_asks_two() {
    let mut sketch = Sketch::new();
    let question = "Really?".to_owned();
    let kind = StageKind::Approve { people: 2, question };
    let ask = sketch.task("ask", &[], vec![stage("ask", kind, Next::Exit(Exit::Done))]);
    let mut world = World::open(sketch);
    world.pass();
    let skip = |world: &mut World| {
        let command = Command::Skip { task: ask };
        let said = Event::Said { by: "ann".into(), reason: "alone".into(), command };
        world.run.handle(world.now, said).map_err(|refusal| refusal.to_string())
    };
    let refusal = skip(&mut world).unwrap_err();
    assert!(refusal.contains("`approve` by 2 more"), "{refusal}");
    world.say(Command::Stop { task: ask });
    assert!(skip(&mut world).is_err(), "a detour is none");
    world.say(Command::Retry { task: ask });
    for by in ["ann", "bob"] {
        let command = Command::Approve { task: ask };
        world.event(Event::Said { by: by.into(), reason: String::new(), command });
    }
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
}

/// What one person approved alone opens no way around what takes two.
#[test]
fn one_person_cannot_skip_what_asks_two_after_a_stage_that_asked_one() {
    let mut sketch = Sketch::new();
    let asks = |people| StageKind::Approve { people, question: "Really?".into() };
    let stages = vec![
        stage("one", asks(1), Next::Stage(StageId(1))),
        stage("two", asks(2), Next::Exit(Exit::Done)),
    ];
    let ask = sketch.task("ask", &[], stages);
    let mut world = World::open(sketch);
    let say = |world: &mut World, by: &str, command| {
        let said = Event::Said { by: by.into(), reason: "alone".into(), command };
        let records = world.run.handle(world.now, said).map_err(|refusal| refusal.to_string());
        records.map(|records| world.take(records))
    };
    world.pass();
    for _ in 0..2 {
        say(&mut world, "ann", Command::Approve { task: ask }).unwrap();
        let refusal = say(&mut world, "ann", Command::Skip { task: ask }).unwrap_err();
        assert!(refusal.contains("`approve` by"), "{refusal}");
    }
    say(&mut world, "bob", Command::Approve { task: ask }).unwrap();
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn one_user_gives_a_bounded_number_of_commands_and_can_still_abort() {
    let (mut world, ..) = watched(OnBreach::Hold);
    let say = |world: &mut World, by: Actor, command| {
        let said = Event::Said { by, reason: "a test".into(), command };
        world.run.handle(world.now, said).map(|_| ())
    };
    let user =
        |uid, name: &str| Actor::user(User { uid, gid: 1, pid: None, name: Some(name.into()) });
    let given =
        (0..).find(|_| say(&mut world, user(7, "bob"), Command::Pause { task: None }).is_err());
    assert_eq!(given, Some(COMMANDS_MAX + 4));
    let refused = say(&mut world, user(7, "bob"), Command::Resume { task: None }).unwrap_err();
    assert!(refused.to_string().contains("at most 1004 by one user"), "{refused}");
    say(&mut world, user(8, "cid"), Command::Resume { task: None }).expect("another user");
    say(&mut world, user(7, "bob"), Command::Abort { how: Abort::Revert }).expect("a way out");
}

/// What bad health put back was never approved.
#[test]
fn one_person_cannot_skip_what_asks_two_after_it_was_put_back() {
    let (mut world, web, _) = watched(OnBreach::Revert);
    let mut plan = (**world.run.plan()).clone();
    let asks = StageKind::Approve { people: 2, question: "Really?".into() };
    let stages = &mut plan.tasks[0].stages;
    let last = StageId(stages.len() as u32);
    stages.iter_mut().for_each(|own| own.done = Next::Stage(last));
    stages.push(stage("ask", asks, Next::Exit(Exit::Done)));
    world = World::open(Sketch { plan });
    world.until("it began", |world| world.writes(KnobId(0)).len() == 2);
    world.values[0] = Some(99.0);
    world.until("it was put back", |world| world.phase(web) == Phase::Reverted);
    let command = Command::Skip { task: web };
    let said = Event::Said { by: "ann".into(), reason: "alone".into(), command };
    let refusal = world.run.handle(world.now, said).unwrap_err().to_string();
    assert!(refusal.contains("asks more than one person"), "{refusal}");
}
