//! When a run is said to end.

use proptest::prelude::*;

use super::reports::waits;
use super::*;
use crate::forecast::{Eta, forecast};

fn eta(world: &World) -> Eta {
    forecast(world.run.plan(), world.run.state(), world.now).eta
}

fn expected(world: &World) -> Time {
    match eta(world) {
        Eta::Expected { at } => at,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shift_is_predicted_by_the_steps_that_are_left() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    let mut world = World::open(sketch);
    let all = Millis(1000 * u64::from(PACE.steps()));
    assert_eq!(expected(&world), world.now + all);
    world.until("it is half-way", |world| {
        world.run.state().task(web).shift.is_some_and(|shift| shift.at >= 0.5)
    });
    let left = expected(&world) - world.now;
    assert!(left > Millis::ZERO && left < all * 0.7, "{left} of {all}");
    let told = expected(&world);
    world.until("it is drained", |world| world.outcome().is_some());
    let ended = world.run.state().closed.unwrap().0;
    assert!(ended - told <= Millis(1500) && told - ended <= Millis(1500), "{told:?} {ended:?}");
    assert_eq!(eta(&world), Eta::Ended { at: ended });
}

#[test]
fn what_is_held_has_no_end_and_what_goes_beside_it_has_a_lower_bound() {
    let (mut world, _, errors) = watched(OnBreach::Hold);
    world.values[errors.index()] = Some(3.0);
    world.until("it is held", |world| world.run.state().tasks[0].hold.is_some());
    assert_eq!(eta(&world), Eta::Unknown { why: "web is held".into() });

    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    sketch.shift("web", &[]);
    sketch.last().health = vec![errors];
    sketch.shift("chat", &[]);
    let mut world = World::open(sketch);
    world.values[errors.index()] = Some(3.0);
    world.until("it is held", |world| world.run.state().tasks[0].hold.is_some());
    let Eta::AtLeast { at, why } = eta(&world) else { panic!("{:?}", eta(&world)) };
    assert!(at > world.now && why == "web is held", "{at:?} {why}");
}

#[test]
fn a_pause_and_a_failure_are_said() {
    let mut sketch = Sketch::new();
    sketch.shift("web", &[]);
    let knob = KnobId(0);
    let mut world = World::open(sketch);
    world.say(Command::Pause { task: None });
    assert_eq!(eta(&world), Eta::Unknown { why: "the run is paused".into() });
    let paused = world.run.state().pause.clone().unwrap();
    assert_eq!((paused.by, paused.reason.as_str()), (Actor::from("ann").to_string(), "a test"));
    world.say(Command::Resume { task: None });
    assert_eq!(world.run.state().pause, None);
    world.broken.insert(knob, Ended::Refused { why: "no".into() });
    world.until("it fails", |world| world.phase(TaskId(0)) == Phase::Failed);
    assert_eq!(eta(&world), Eta::Unknown { why: "web failed".into() });
}

#[test]
fn the_way_back_is_predicted_too() {
    let mut sketch = Sketch::new();
    let web = sketch.shift("web", &[]);
    sketch.shift("chat", &[web]);
    let mut world = World::open(sketch);
    world.until("chat is half-way", |world| {
        world.run.state().tasks[1].shift.is_some_and(|shift| shift.at >= 0.5)
    });
    world.say(Command::Abort { how: Abort::Revert });
    let Eta::Expected { at } = eta(&world) else { panic!("{:?}", eta(&world)) };
    assert!(at - world.now >= Millis(1000 * u64::from(PACE.steps())), "{:?}", at - world.now);
    world.until("it is back", |world| world.outcome().is_some());
    assert!(matches!(eta(&world), Eta::Ended { .. }));
}

proptest! {
    /// Where every task takes what is predicted of it, the end is known from the
    /// beginning on, whatever waits for what.
    #[test]
    fn nothing_that_goes_as_predicted_changes_the_end(
        tasks in (1..9_usize).prop_flat_map(|count| {
            (0..count)
                .map(|at| (1..20_u64, prop::sample::subsequence((0..at).collect::<Vec<_>>(), 0..=at)))
                .collect::<Vec<_>>()
        })
    ) {
        let mut world = World::open(waits(&tasks));
        world.tick = Millis(1000);
        let first = expected(&world);
        while world.outcome().is_none() {
            let told = expected(&world);
            prop_assert!(told - first <= Millis(1000) && first - told <= Millis(1000));
            world.pass();
        }
        let ended = world.run.state().closed.unwrap().0;
        prop_assert!(ended - first <= Millis(1000) && first - ended <= Millis(1000));
    }
}
