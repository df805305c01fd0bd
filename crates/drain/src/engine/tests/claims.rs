//! Tasks that set the same fence or the same primary: never two at a time, of
//! one run or of several.

use super::*;
use crate::report::describe;
use crate::runbook::Library;

/// Two databases behind one switch that refuses writes to both.
const SERVICE: &str = "
pharos: service/v1
service: NAME
traffic: stateful
user_facing: false
drain:
  promote:
    template: Promote
    with:
      knob: db:primary/NAME
      to: west
      from: east
      fence: db:writes
      unfence_to: open
      nearly_caught_up: {name: lag, query: lag_NAME, at_most: 5000, no_data: block}
      back_fence: db:writes
      back_caught_up: {name: back, query: back_NAME, at_most: 0, no_data: block}
      settled: {name: settled, query: settled_NAME, above: 0, no_data: block}
  watch:
    template: Wait
    with: {span: 10m}
    after: [promote]
restore:
  promote:
    template: Promote
    with: {knob: db:primary/NAME, to: original, fence: db:writes, unfence_to: open,
           nearly_caught_up: {name: lag, query: lag_NAME, at_most: 5000, no_data: block}, from: west}
";
const EVACUATION: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 10}, west: {capacity: 10}}
services: [orders, users]
";

fn two() -> World {
    let file = |name: &str| (format!("{name}.yaml"), SERVICE.replace("NAME", name));
    let files = vec![file("orders"), file("users"), ("east.yaml".into(), EVACUATION.into())];
    let library = Library::new(files);
    assert!(library.is_sound(), "{:?}", library.problems());
    let none = BTreeMap::new();
    let plan = library.plan("east", Direction::Drain, &none, &BTreeMap::new()).unwrap();
    let mut world = World::open(Sketch { plan });
    let plan = world.run.plan().clone();
    for (at, knob) in plan.knobs.iter().enumerate() {
        let value = if knob.name == "writes" { "open" } else { "east" };
        world.knobs[at] = text(value);
    }
    for (at, condition) in plan.conditions.iter().enumerate() {
        if condition.name.ends_with("settled") {
            world.values[at] = Some(1.0);
        }
    }
    world
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn knob(world: &World, name: &str) -> KnobId {
    let knobs = &world.run.plan().knobs;
    KnobId(knobs.iter().position(|own| own.name == name).unwrap() as u32)
}

fn promotions(world: &World) -> [TaskId; 2] {
    ["orders.promote", "users.promote"].map(|name| world.run.plan().find_task(name).unwrap())
}

/// How many tasks have claims.
fn claimants(world: &World) -> usize {
    world.claims.values().collect::<BTreeSet<_>>().len()
}

#[test]
fn two_tasks_of_a_run_never_use_one_fence_at_the_same_time() {
    let mut world = two();
    let writes = knob(&world, "writes");
    world.until("it is over", |world| {
        assert!(claimants(world) <= 1, "{:?}", world.log.last());
        world.outcome() == Some(RunOutcome::Completed)
    });
    assert_eq!(world.knobs[writes.index()], text("open"));
    world.check_replay();
}

#[test]
fn a_task_waits_while_another_run_uses_its_fence_and_says_so() {
    let mut world = two();
    let writes = knob(&world, "writes");
    world.used_elsewhere.insert(writes);
    world.passes(Millis(20_000));
    assert_eq!(world.knobs[writes.index()], text("open"), "it is the other run's");
    let [orders, _] = promotions(&world);
    let hold = world.run.state().task(orders).hold.clone().map(|(_, why)| why);
    let why = describe(world.run.plan(), &hold.unwrap());
    assert_eq!(why, "db:writes is in use by another");
    world.used_elsewhere.clear();
    world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    world.check_replay();
}

#[test]
fn two_tasks_of_a_run_never_go_back_through_one_fence_at_the_same_time() {
    let mut world = two();
    world.until("both are promoted", |world| {
        promotions(world).iter().all(|task| world.phase(*task) == Phase::Done)
    });
    world.say(Command::Abort { how: Abort::Revert });
    let writes = knob(&world, "writes");
    let mut fences = 0;
    world.until("it is over", |world| {
        let is_fenced = world.knobs[writes.index()] == text("fenced");
        fences += usize::from(is_fenced);
        assert!(claimants(world) <= 1);
        world.outcome() == Some(RunOutcome::Reverted)
    });
    assert!(fences > 0);
    for (knob, at) in world.run.plan().knobs.iter().zip(&world.knobs) {
        let expected = if knob.name == "writes" { "open" } else { "east" };
        assert_eq!(*at, text(expected), "{knob}");
    }
    world.check_replay();
}

/// A run that is open corrects drift of what its tasks have set. A fence that
/// another run has closed since is no drift: whoever lifts it loses writes.
#[test]
fn drift_is_not_corrected_where_another_run_has_closed_the_fence() {
    let mut world = two();
    let writes = knob(&world, "writes");
    world.until("both are promoted", |world| {
        promotions(world).iter().all(|task| world.phase(*task) == Phase::Done)
    });
    world.passes(Millis(60_000));
    world.used_elsewhere.insert(writes);
    world.knobs[writes.index()] = text("fenced");
    for _ in 0..40 {
        world.pass();
        world.sweep();
        assert_eq!(world.knobs[writes.index()], text("fenced"), "{:?}", world.log.last());
    }
    // That run may have ended and left it so, and its promotion may still come.
    world.used_elsewhere.clear();
    for _ in 0..20 {
        world.pass();
        world.sweep();
    }
    assert_eq!(world.knobs[writes.index()], text("fenced"));
}

#[test]
fn a_claim_is_given_back_when_its_task_is_over() {
    let mut world = two();
    let tasks = promotions(&world);
    world.until("one is promoted", |world| {
        tasks.iter().any(|task| world.phase(*task) == Phase::Done)
    });
    let done = tasks.into_iter().find(|task| world.phase(*task) == Phase::Done).unwrap();
    assert!(!world.run.claims().contains(&done));
}

/// Otherwise a drain that waits for a replica would hold up a restore elsewhere.
#[test]
fn a_task_that_waits_before_its_fence_claims_nothing() {
    let mut world = two();
    let lag = world.run.plan().conditions.iter().position(|own| own.name.ends_with("lag"));
    world.values[lag.unwrap()] = Some(9000.0);
    let [orders, users] = promotions(&world);
    world.until("the other is promoted", |world| {
        [orders, users].iter().any(|task| world.phase(*task) == Phase::Done)
    });
    let waiting = [orders, users].into_iter().find(|task| world.phase(*task) == Phase::Running);
    assert!(waiting.is_some(), "it waits for its replica");
    assert_eq!(claimants(&world), 0);
}

/// Whether the replica was promoted is not known: whoever opens the fence then may
/// have two primaries.
#[test]
fn a_fence_that_was_left_closed_stays_claimed() {
    let mut world = two();
    let [orders, _] = promotions(&world);
    let primary = knob(&world, "primary/orders");
    world.broken.insert(primary, Ended::Refused { why: "no quorum".into() });
    world.until("it fails", |world| world.phase(orders) == Phase::Failed);
    let writes = knob(&world, "writes");
    for _ in 0..200 {
        world.pass();
        world.sweep();
        assert_eq!(world.knobs[writes.index()], text("fenced"), "{:?}", world.log.last());
    }
    world.broken.clear();
    world.say(Command::Abort { how: Abort::Revert });
    world.until("it is over", |world| world.outcome().is_some());
    assert_eq!(world.knobs[writes.index()], text("open"));
    world.check_replay();
}

/// In a disaster nothing replicates any more, and what waits for that waits for ever.
#[test]
fn a_task_that_waits_after_its_fence_was_opened_holds_up_no_other() {
    let mut world = two();
    let conditions = &world.run.plan().conditions;
    let settled = conditions.iter().position(|own| own.name == "orders.promote.settle.settled");
    world.values[settled.unwrap()] = Some(0.0);
    let [orders, users] = promotions(&world);
    world.until("the other is promoted", |world| world.phase(users) == Phase::Done);
    let primary = knob(&world, "primary/orders");
    world.until("it is promoted", |world| world.knobs[primary.index()] == text("west"));
    world.passes(Millis(5000));
    assert_eq!(world.phase(orders), Phase::Running, "it waits until it is settled");
    assert_eq!(claimants(&world), 0);
}
