//! Fences that a restore opens, which the drain closed: none over two primaries, and none
//! that a person closed since.

use super::promotion::text;
use super::*;
use crate::runbook::Library;

const EVACUATION: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 10}, west: {capacity: 10}}
services: [db]
";
/// Each server has a fence of its own.
const OF_EACH: &str = "
pharos: service/v1
service: db
traffic: stateful
user_facing: false
health:
  lag: {query: lag, at_most: 0, no_data: block}
drain:
  promote:
    template: Promote
    with: {knob: db:primary, from: east, to: west, fence: db:fence/east, caught_up: lag, nearly_caught_up: lag}
restore:
  promote:
    template: Promote
    with: {knob: db:primary, from: west, to: original, fence: db:fence/west, unfence_to: open,
           caught_up: lag, nearly_caught_up: lag}
  open:
    template: ConfigChange
    with: {knob: db:fence/east, content: original}
    after: [promote]
  watch: {template: Wait, with: {span: 10m}, after: [open]}
";
/// One fence keeps all writes out.
const OF_ALL: &str = "
pharos: service/v1
service: db
traffic: stateful
user_facing: false
health:
  lag: {query: lag, at_most: 0, no_data: block}
drain:
  promote:
    template: Promote
    with: {knob: db:primary, from: east, to: west, fence: db:fence, unfence_to: open,
           caught_up: lag, nearly_caught_up: lag, back_fence: db:fence, back_caught_up: lag}
restore:
  promote:
    template: Promote
    with: {knob: db:primary, from: west, to: original, fence: db:fence, unfence_to: open,
           caught_up: lag, nearly_caught_up: lag, back_fence: db:fence, back_caught_up: lag}
";

struct Restore {
    world: World,
    primary: KnobId,
    fence: KnobId,
}

/// The restore of a drain that closed a fence and did not come to the primary.
fn restore(service: &str, fence: &str) -> Restore {
    let files = [("db.yaml", service), ("east.yaml", EVACUATION)];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
    let library = Library::new(files);
    assert!(library.is_sound(), "{:?}", library.problems());
    let originals = BTreeMap::from([(fence.to_owned(), text("open"))]);
    let planned = library.plan("east", Direction::Restore, &BTreeMap::new(), &originals);
    let plan = planned.expect("a plan");
    let named = |name: &str| {
        let at = plan.knobs.iter().position(|own| own.to_string() == name);
        KnobId(at.unwrap_or_else(|| panic!("{name}")) as u32)
    };
    let (primary, fence) = (named("db:primary"), named(fence));
    let mut knobs = vec![text("open"); plan.knobs.len()];
    (knobs[primary.index()], knobs[fence.index()]) = (text("east+west"), text("fenced"));
    let mut world = World::open_at(Sketch { plan }, knobs);
    world.values.fill(Some(0.0));
    world.knobs[primary.index()] = text("east");
    Restore { world, primary, fence }
}

impl Restore {
    fn opened(&mut self) {
        let fence = self.fence;
        self.world.until("it is open", |world| world.knobs[fence.index()] == text("open"));
    }

    fn is_closed(&self) -> bool {
        self.world.knobs[self.fence.index()] == text("fenced")
    }
}

#[test]
fn a_restore_does_not_open_a_fence_over_two_primaries() {
    for (service, fence) in [(OF_EACH, "db:fence/east"), (OF_ALL, "db:fence")] {
        let mut restore = restore(service, fence);
        restore.world.knobs[restore.primary.index()] = text("east+west");
        restore.world.passes(Millis(60_000));
        assert!(restore.is_closed(), "{fence}");
        let holds = restore.world.run.state().tasks.iter().filter_map(|task| task.hold.as_ref());
        let primary = restore.primary;
        let is_held = |(_, why): &(Time, Hold)| *why == Hold::Unreadable { knob: primary };
        assert!(holds.into_iter().any(is_held), "{fence}: it is told");
        // Whichever of them it is.
        restore.world.knobs[restore.primary.index()] = text("west");
        restore.opened();
        restore.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        restore.world.check_replay();
    }
}

/// Something else may promote another server between the read and the write.
#[test]
fn a_restore_asks_for_the_primary_that_it_saw_when_it_opens_a_fence() {
    let mut restore = restore(OF_EACH, "db:fence/east");
    restore.world.broken.insert(restore.fence, Ended::Failed { why: "not now".into() });
    restore.world.passes(Millis(2000));
    restore.world.held_back = Some(Vec::new());
    restore.world.broken.clear();
    let fence = restore.fence;
    restore.world.until("it is to be opened", |world| {
        world
            .run
            .state()
            .in_flight
            .values()
            .any(|own| matches!(&own.what, Effect::Write { knob, .. } if *knob == fence))
    });
    let effect = restore.world.held_back.as_ref().and_then(|held| held.last()).copied().unwrap();
    let required = restore.world.run.required_by(effect);
    assert_eq!(required, [(restore.primary, vec![text("east")])]);
    restore.world.knobs[restore.primary.index()] = text("east+west");
    restore.world.answer();
    restore.world.passes(Millis(60_000));
    assert!(restore.is_closed());
    restore.world.knobs[restore.primary.index()] = text("east");
    restore.opened();
    restore.world.check_replay();
}

#[test]
fn a_fence_that_a_person_closes_during_a_restore_is_not_opened_again() {
    let mut restore = restore(OF_EACH, "db:fence/east");
    restore.opened();
    restore.world.passes(Millis(5000));
    restore.world.knobs[restore.fence.index()] = text("fenced");
    let before = restore.world.log.len();
    for _ in 0..20 {
        restore.world.pass();
        restore.world.sweep();
    }
    assert!(restore.is_closed());
    let is_write =
        |record: &Record| matches!(record.fact, Fact::Issued { what: Effect::Write { .. }, .. });
    assert!(!restore.world.log[before..].iter().any(is_write));
    let drifted = |record: &Record| matches!(record.fact, Fact::Drifted { .. });
    assert!(restore.world.log.iter().any(drifted), "it is told");
    restore.world.check_replay();
}

/// A promotion of another run would make its server the primary behind the fence that is opened.
#[test]
fn a_task_that_opens_a_fence_claims_the_primary_too() {
    for (service, fence) in [(OF_EACH, "db:fence/east"), (OF_ALL, "db:fence")] {
        let mut restore = restore(service, fence);
        restore.world.broken.insert(restore.fence, Ended::Failed { why: "not now".into() });
        restore.world.passes(Millis(2000));
        for knob in [restore.primary, restore.fence] {
            assert!(restore.world.claims.contains_key(&knob), "{fence}: {knob:?}");
        }
        restore.world.broken.clear();
        restore.opened();
        restore.world.passes(Millis(2000));
        assert!(restore.world.claims.is_empty(), "{:?}", restore.world.claims);
    }
}

/// Whoever is primary by then, its writes would be refused.
#[test]
fn a_revert_of_a_restore_does_not_close_a_fence_that_the_restore_opened() {
    let mut restore = restore(OF_EACH, "db:fence/east");
    restore.opened();
    restore.world.passes(Millis(2000));
    restore.world.say(Command::Abort { how: Abort::Revert });
    restore.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert!(!restore.is_closed());
    restore.world.check_replay();
}
