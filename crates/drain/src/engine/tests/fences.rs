//! What is done behind a fence is done on what was seen behind it: not on what was
//! seen before a try in vain, a crash, or a person who opened the fence meanwhile.

use super::promotion::{BACK, DB, Pair, pair, pair_of, text};
use super::*;
use crate::runbook::Library;

fn failed(why: &str) -> Ended {
    Ended::Failed { why: why.into() }
}

/// A promotion that was tried once, in vain.
fn tried(back: &str) -> Pair {
    let mut pair = pair(back);
    let primary = pair.primary;
    pair.world.broken.insert(primary, failed("not now"));
    pair.lag(0.0);
    pair.world.until("it was tried", |world| world.run.state().task(DB).tries_in_vain > 0);
    pair
}

fn writes_of(pair: &Pair, what: &str) -> usize {
    pair.sets().iter().filter(|set| *set == what).count()
}

/// A person opens the fence between two tries, and writes are acknowledged.
#[test]
fn a_promotion_that_failed_is_repeated_only_after_fence_and_catching_up() {
    let mut pair = tried("");
    let tries = writes_of(&pair, r#"primary="west""#);
    pair.world.knobs[pair.fence.index()] = text("open");
    pair.lag(5000.0);
    pair.world.broken.clear();
    for _ in 0..40 {
        pair.world.pass();
        assert_eq!(writes_of(&pair, r#"primary="west""#), tries, "5000 writes are missing");
    }
    assert_eq!(pair.at(pair.fence), "fenced", "closed again");
    pair.promoted();
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    pair.world.check_replay();
}

#[test]
fn a_promotion_that_keeps_failing_is_given_up_behind_its_fence() {
    let mut pair = tried("");
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(writes_of(&pair, r#"primary="west""#), ATTEMPTS_MAX as usize);
    assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("fenced", "east"));
    assert_eq!(pair.world.run.state().left_closed(pair.world.run.plan()).count(), 1);
    let trouble = pair.world.run.state().task(DB).trouble().unwrap();
    assert!(trouble.contains("not now"), "{trouble}");
    pair.world.check_replay();
}

/// What was in flight is not done again by whoever takes the run up.
#[test]
fn a_promotion_that_was_in_flight_at_a_crash_begins_again_with_its_fence() {
    let mut pair = pair("");
    pair.lag(0.0);
    pair.fenced();
    pair.world.held_back = Some(Vec::new());
    pair.world.until("it is in flight", |world| {
        world.held_back.as_ref().is_some_and(|held_back| !held_back.is_empty())
    });
    pair.world.held_back = None;
    // The command was killed with the server, and a person opened the fence.
    pair.world.knobs[pair.fence.index()] = text("open");
    pair.lag(194.0);
    let plan = pair.world.run.plan().clone();
    pair.world.run = Run::resume(plan, &pair.world.log).unwrap();
    let (records, messages) = pair.world.run.take_up(pair.world.now);
    assert_eq!(messages, []);
    pair.world.take(records);
    for _ in 0..40 {
        pair.world.pass();
        assert_eq!(pair.at(pair.primary), "east", "194 writes are missing");
    }
    pair.promoted();
    pair.world.check_replay();
}

#[test]
fn a_promotion_that_worked_although_it_failed_is_not_repeated() {
    let mut pair = tried("");
    let tries = writes_of(&pair, r#"primary="west""#);
    pair.world.knobs[pair.primary.index()] = text("west");
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(writes_of(&pair, r#"primary="west""#), tries);
    pair.world.check_replay();
}

/// Some servers have changed and some have not, by this run or by something else:
/// nothing tells any more what is missing.
#[test]
fn a_promotion_that_is_half_done_takes_a_person() {
    let mut pair = tried("");
    let tries = writes_of(&pair, r#"primary="west""#);
    pair.world.knobs[pair.primary.index()] = text("east+west");
    pair.world.values[pair.exactly] = None;
    pair.world.broken.clear();
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(writes_of(&pair, r#"primary="west""#), tries);
    assert_eq!(pair.at(pair.fence), "fenced");
    let trouble = pair.world.run.state().task(DB).trouble().unwrap().to_owned();
    assert!(trouble.contains(r#"db:primary is "east+west""#), "{trouble}");
    pair.world.knobs[pair.primary.index()] = text("east");
    pair.world.say(Command::Retry { task: DB });
    pair.promoted();
    pair.world.check_replay();
}

/// The read of the fence takes its time, and the replica is replaced meanwhile.
#[test]
fn nothing_is_promoted_that_was_caught_up_and_is_not_any_more() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.unreadable.insert(pair.fence);
    pair.lag(0.0);
    let verifies = |world: &World| world.run.wanted(world.now + Millis(1000)).next().is_some();
    pair.world.until("it looks at its fence", verifies);
    pair.world.values[pair.exactly] = None;
    pair.world.passes(Millis(11_000));
    pair.world.unreadable.clear();
    for _ in 0..40 {
        pair.world.pass();
        assert_eq!(pair.at(pair.primary), "east", "what is missing now is not known");
    }
    pair.promoted();
    pair.world.check_replay();
}

/// The fence was opened, and the server died before it heard of it: nothing closes it
/// again, for writes are taken since.
#[test]
fn a_fence_whose_opening_was_in_flight_at_a_crash_is_not_closed_again() {
    let mut pair = pair(BACK);
    pair.lag(0.0);
    pair.promoted();
    pair.world.until("it is done", |world| world.phase(DB) == Phase::Done);
    pair.world.values[pair.back.unwrap()] = Some(0.0);
    pair.world.say(Command::Abort { how: Abort::Revert });
    let opened = opening(&mut pair);
    pair.world.held_back = None;
    pair.world.knobs[opened.index()] = text("open");
    let plan = pair.world.run.plan().clone();
    pair.world.run = Run::resume(plan, &pair.world.log).unwrap();
    let (records, _) = pair.world.run.take_up(pair.world.now);
    let closed = format!("{}=\"fenced\"", pair.world.run.plan().knob(opened).name);
    let before = writes_of(&pair, &closed);
    // Who is primary is not known for a while, and the fence is looked at meanwhile.
    pair.world.unreadable.insert(pair.primary);
    pair.world.take(records);
    for _ in 0..10 {
        pair.world.pass();
        let (asked, found) = (pair.world.now, Ok(text("open")));
        pair.world.event(Event::Looked { knob: opened, asked, found });
    }
    pair.world.unreadable.clear();
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(writes_of(&pair, &closed), before, "writes are taken since");
    pair.world.check_replay();
}

/// Lets time pass until a fence is being opened; which one that is.
fn opening(pair: &mut Pair) -> KnobId {
    pair.world.held_back = Some(Vec::new());
    for _ in 0..100 {
        pair.world.pass();
        let mut in_flight = pair.world.run.state().in_flight.values();
        let opened = in_flight.find_map(|own| match &own.what {
            Effect::Write { knob, value } if *value == text("open") => Some(*knob),
            _ => None,
        });
        if let Some(opened) = opened {
            return opened;
        }
        let held_back = pair.world.held_back.replace(Vec::new()).unwrap_or_default();
        pair.world.perform(held_back);
    }
    panic!("no fence is opened");
}

/// A fence that is open in part and belongs to a promotion that is under way is closed
/// at once: there is nothing to wait for.
#[test]
fn a_fence_that_is_open_in_part_behind_a_promotion_is_closed_without_data() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.unreadable.insert(pair.fence);
    pair.lag(0.0);
    let verifies = |world: &World| world.run.wanted(world.now + Millis(1000)).next().is_some();
    pair.world.until("it looks at its fence", verifies);
    pair.world.values[pair.exactly] = None;
    pair.world.knobs[pair.fence.index()] = text("fenced+open");
    pair.world.passes(Millis::from_secs(40));
    pair.world.unreadable.clear();
    pair.world.passes(Millis::from_secs(3));
    assert_eq!(pair.at(pair.fence), "fenced");
    pair.promoted();
    pair.world.check_replay();
}

/// A person promoted another server, whole or in part, after a try that failed: what it has
/// acknowledged since is at no other.
#[test]
fn a_promotion_is_not_retried_over_a_primary_that_something_else_changed() {
    for (found, is_fenced) in [("east+west", true), ("south", true), ("east+west", false)] {
        let mut pair = pair("");
        if is_fenced {
            pair.world.broken.insert(pair.primary, failed("not now"));
            pair.lag(0.0);
        } else {
            // The last writes do not arrive, and the fence is lifted.
            pair.lag(4000.0);
        }
        pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
        assert_eq!(pair.at(pair.fence) == "fenced", is_fenced);
        pair.world.broken.clear();
        pair.world.knobs[pair.primary.index()] = text(found);
        pair.lag(0.0);
        let sets = writes_of(&pair, r#"primary="west""#);
        pair.world.say(Command::Retry { task: DB });
        pair.world.passes(Millis::from_secs(60));
        assert_eq!(writes_of(&pair, r#"primary="west""#), sets, "{found} {is_fenced}");
        assert_eq!(pair.at(pair.primary), found);
        let state = pair.world.run.state().task(DB);
        let is_told = matches!(&state.hold, Some((_, Hold::Unreadable { knob })) if *knob == pair.primary)
            || state.trouble().is_some_and(|why| why.contains(found));
        assert!(is_told, "{state:?}");
        pair.world.check_replay();
        // Once one server takes writes again it goes on.
        pair.world.knobs[pair.primary.index()] = text("east");
        if pair.world.phase(DB) == Phase::Failed {
            pair.world.say(Command::Retry { task: DB });
        }
        pair.promoted();
    }
}

/// A fence of one server says nothing of another one that is the primary.
#[test]
fn nothing_is_fenced_or_promoted_while_the_fence_is_not_that_of_the_primary() {
    let mut pair = pair(BACK);
    pair.lag(0.0);
    pair.world.knobs[pair.primary.index()] = text("south");
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.sets(), [""; 0]);
    let failure = pair.world.run.state().task(DB).failure.clone().unwrap_or_default();
    assert_eq!(
        failure,
        "fence: db:primary is \"south\", and db:fence/east keeps \"east\" from taking writes: what \
         \"south\" has taken would be lost; accepted: \"east\" again and `retry`, or `skip`, which \
         leaves \"south\" the primary"
    );
    pair.world.check_replay();
    // It is neither where the promotion goes back to.
    pair.world.knobs[pair.primary.index()] = text("east");
    pair.world.say(Command::Retry { task: DB });
    pair.promoted();
    if let Some(back) = pair.back {
        pair.world.values[back] = Some(0.0);
    }
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!((pair.at(pair.primary), pair.at(pair.fence)), ("east", "open"));
    pair.world.check_replay();
}

/// Whoever closed it: the writes of that server would be refused, and nothing promoted.
#[test]
fn a_fence_that_was_found_closed_is_not_set_over_another_primary() {
    let mut pair = pair("unfence_to: open");
    pair.lag(0.0);
    pair.world.knobs[pair.fence.index()] = text("fenced");
    pair.world.knobs[pair.primary.index()] = text("south");
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.sets(), [""; 0]);
    let failure = pair.world.run.state().task(DB).failure.clone().unwrap_or_default();
    assert!(failure.contains("db:primary is \"south\""), "{failure}");
    pair.world.check_replay();
}

/// An earlier try left it closed, and a person opened it for another server: a try again sees
/// who is primary before it closes the fence, and does not close it where it gives up.
#[test]
fn a_fence_that_was_opened_between_two_tries_is_not_closed_over_another_primary() {
    let mut pair = pair("unfence_to: open");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.knobs[pair.primary.index()] = text("south");
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.at(pair.fence), "fenced", "two servers would take writes");
    pair.world.knobs[pair.fence.index()] = text("open");
    let before = pair.sets().len();
    pair.lag(0.0);
    for _ in 0..2 {
        // Once before the fence is to be closed, and once before it is to be opened.
        pair.world.unreadable.insert(pair.primary);
        pair.world.say(Command::Retry { task: DB });
        pair.world.passes(Millis(2000));
        pair.world.sweep();
        pair.world.unreadable.remove(&pair.primary);
        pair.world.until("it gives up", |world| {
            let task = world.run.state().task(DB);
            task.phase == Phase::Failed
                || world.run.plan().task(DB).stages[task.stage.index()].name == "lift"
        });
        pair.world.sweep();
        pair.world.until("it gives up again", |world| world.phase(DB) == Phase::Failed);
    }
    assert_eq!(pair.sets()[before..], [""; 0]);
    assert_eq!(pair.at(pair.fence), "open");
    pair.world.check_replay();
}

/// The writes of the old primary are accepted again, and nobody is told that it is promoted.
#[test]
fn a_promotion_that_something_else_undoes_before_its_fence_is_opened_is_not_done() {
    let mut pair = pair("unfence_to: open");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.broken.insert(pair.fence, failed("not now"));
    pair.promoted();
    pair.world.knobs[pair.primary.index()] = text("east");
    pair.world.broken.clear();
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.at(pair.fence), "open");
    let failure = pair.world.run.state().task(DB).failure.clone().unwrap_or_default();
    assert!(failure.contains("db:primary is \"east\" again"), "{failure}");
    // A person promotes it.
    pair.world.knobs[pair.primary.index()] = text("west");
    pair.world.say(Command::Retry { task: DB });
    pair.world.until("it is done", |world| world.phase(DB) == Phase::Done);
    pair.world.check_replay();
}

/// The fence makes it bad: what waits for it would wait for itself.
#[test]
fn bad_health_does_not_hold_a_fence_that_is_closed_already() {
    let mut pair = pair("fence_max: 20s");
    pair.lag(4000.0);
    pair.fenced();
    pair.refused_writes(Some(5.0));
    let since = pair.world.now;
    pair.lag(0.0);
    pair.world.unreadable.insert(pair.fence);
    pair.world.until("it looks at its fence", |world| {
        let stage = world.run.state().task(DB).stage;
        world.run.plan().task(DB).stages[stage.index()].name == "still-fenced"
    });
    pair.lag(4000.0);
    pair.world.passes(Millis(3000));
    pair.world.unreadable.clear();
    pair.world.until("it is lifted", |world| world.phase(DB) == Phase::Failed);
    assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("open", "east"));
    assert!(pair.world.now - since < Millis::from_secs(60), "{}", pair.world.now - since);
    pair.world.check_replay();
}

/// A promotion that is through, in a run that goes on.
fn done(back: &str) -> Pair {
    let mut pair = pair(back);
    pair.lag(0.0);
    pair.promoted();
    pair.world.until("it is done", |world| world.phase(DB) == Phase::Done);
    pair
}

fn sweeps(pair: &mut Pair) {
    for _ in 0..40 {
        pair.world.passes(Millis::from_secs(3));
        pair.world.sweep();
    }
}

/// Something else made the fenced server the primary, and a person opens its fence so that
/// writes go on. Which of both is seen first does not matter.
#[test]
fn a_fence_that_a_promotion_left_is_not_closed_over_another_primary() {
    for is_seen_first in [true, false] {
        let mut pair = done("");
        let closed = |pair: &Pair| writes_of(pair, r#"fence/east="fenced""#);
        let before = closed(&pair);
        pair.world.passes(Millis::from_secs(5));
        pair.world.knobs[pair.primary.index()] = text("east");
        if is_seen_first {
            pair.world.sweep();
        }
        pair.world.knobs[pair.fence.index()] = text("open");
        let (knob, asked, found) = (pair.fence, pair.world.now, Ok(text("open")));
        pair.world.event(Event::Looked { knob, asked, found });
        assert_eq!(pair.at(pair.fence), "open", "it would refuse the writes of the primary");
        sweeps(&mut pair);
        assert_eq!(pair.at(pair.fence), "open");
        assert!(closed(&pair) <= before + usize::from(!is_seen_first), "{:?}", pair.sets());
        assert!(pair.world.run.is_contested(pair.fence));
        let why = pair.world.run.why_left_open(pair.fence).unwrap_or_default();
        assert_eq!(why, "db:primary is \"east\"");
        pair.world.check_replay();
        // It stays as it is until a person says that the promoted one is the primary again.
        pair.world.knobs[pair.primary.index()] = text("west");
        pair.world.say(Command::Resume { task: Some(DB) });
        sweeps(&mut pair);
        assert_eq!(pair.at(pair.fence), "fenced");
        pair.world.check_replay();
    }
}

/// It is not tried for ever.
#[test]
fn a_fence_that_a_promotion_left_is_not_closed_while_the_primary_cannot_be_read() {
    let mut pair = done("");
    pair.world.passes(Millis::from_secs(5));
    pair.world.unreadable.insert(pair.primary);
    pair.world.knobs[pair.fence.index()] = text("open");
    let before = writes_of(&pair, r#"fence/east="fenced""#);
    sweeps(&mut pair);
    assert_eq!(pair.at(pair.fence), "open");
    let tries = writes_of(&pair, r#"fence/east="fenced""#) - before;
    assert!((1..=DRIFTS_MAX as usize).contains(&tries), "{tries}");
    assert!(pair.world.run.is_contested(pair.fence));
    let why = pair.world.run.why_left_open(pair.fence).unwrap_or_default();
    assert!(why.contains("db:primary cannot be read"), "{why}");
    pair.world.check_replay();
}

/// The stage that a task waits in behind its fence for a primary that cannot be read: the
/// replica died, and the driver asks all servers.
fn unread(stage: &str) -> Pair {
    let mut pair = pair(BACK);
    pair.lag(if stage == "promote" { 0.0 } else { 4000.0 });
    let primary = pair.primary;
    match stage {
        // It dies while the fence is being closed.
        "fence" => {
            pair.world.held_back = Some(Vec::new());
            let closing = |world: &World| !world.held_back.as_ref().unwrap().is_empty();
            pair.world.until("it is being fenced", closing);
            pair.world.unreadable.insert(primary);
            pair.world.answer();
        }
        "lift" => pair.fenced(),
        _ => _ = pair.world.broken.insert(primary, failed("not now")),
    }
    if stage == "promote" {
        pair.world.until("it was tried", |world| world.run.state().task(DB).failures > 0);
    }
    pair.world.unreadable.insert(primary);
    pair.world.until("it waits", |world| {
        let state = world.run.state().task(DB);
        let is_held =
            matches!(&state.hold, Some((_, Hold::Unreadable { knob })) if *knob == primary);
        is_held && world.run.plan().task(DB).stages[state.stage.index()].name == stage
    });
    assert_eq!(pair.at(pair.fence), "fenced");
    pair
}

/// One fence for all servers cannot be read either while one of them is dead: what a person
/// opened by hand nobody sees.
#[test]
fn an_abort_ends_although_neither_the_primary_nor_the_fence_can_be_read() {
    for how in [Abort::Hold, Abort::Revert] {
        let mut pair = unread("lift");
        pair.world.unreadable.insert(pair.fence);
        pair.world.knobs[pair.fence.index()] = text("open");
        pair.world.say(Command::Abort { how });
        pair.world.passes(Millis::from_secs(30));
        assert_eq!(pair.world.outcome(), None, "it may be read again soon");
        pair.world.until("it is over", |world| world.outcome().is_some());
        assert_eq!(pair.at(pair.fence), "open");
        let failure = pair.world.run.state().task(DB).failure.clone().unwrap_or_default();
        assert!(failure.contains("db:primary cannot be read"), "{failure}");
        let plan = pair.world.run.plan().clone();
        let mut left = pair.world.run.state().left_closed(&plan);
        assert!(left.any(|(_, fence)| fence.knob == pair.fence), "it is told");
        pair.world.check_replay();
    }
}

/// The healthy primary would stay fenced for as long as the replica is dead.
#[test]
fn a_fence_that_a_person_opens_while_the_primary_cannot_be_read_ends_the_task() {
    for stage in ["fence", "promote", "lift"] {
        for is_restarted in [false, true] {
            let mut pair = unread(stage);
            if is_restarted {
                let plan = pair.world.run.plan().clone();
                pair.world.run = Run::resume(plan, &pair.world.log).unwrap();
                let (records, _) = pair.world.run.take_up(pair.world.now);
                pair.world.take(records);
            }
            let sets = pair.sets().len();
            pair.world.knobs[pair.fence.index()] = text("open");
            pair.world.now = pair.world.now + Millis(100);
            pair.world.sweep();
            pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
            pair.world.sweep();
            assert_eq!(pair.sets()[sets..], [""; 0], "{stage} {is_restarted}");
            assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("open", "east"));
            assert_eq!(pair.world.run.state().left_closed(pair.world.run.plan()).count(), 0);
            pair.world.check_replay();
            pair.world.say(Command::Abort { how: Abort::Hold });
            pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Held));
        }
    }
}

/// The same after the run was aborted.
#[test]
fn an_abort_ends_once_a_person_opened_the_fence_whose_primary_cannot_be_read() {
    for stage in ["fence", "promote", "lift"] {
        for how in [Abort::Hold, Abort::Revert] {
            let mut pair = unread(stage);
            pair.world.say(Command::Abort { how });
            pair.world.passes(Millis::from_secs(3));
            assert_eq!(pair.world.outcome(), None);
            let sets = pair.sets().len();
            pair.world.knobs[pair.fence.index()] = text("open");
            pair.world.sweep();
            pair.world.passes(Millis::from_secs(3));
            if (stage, how) == ("promote", Abort::Revert) {
                // Whether the replica was promoted is not known.
                assert_eq!(pair.world.phase(DB), Phase::Reverting);
                pair.world.say(Command::Abort { how: Abort::Hold });
            }
            pair.world.until("it is over", |world| world.outcome().is_some());
            assert_eq!(pair.sets()[sets..], [""; 0], "{stage} {how:?}");
            assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("open", "east"));
            pair.world.check_replay();
        }
    }
}

/// A primary that can be read again goes on behind its fence.
#[test]
fn a_primary_that_can_be_read_again_is_promoted_over_behind_its_fence() {
    for stage in ["fence", "promote"] {
        let mut pair = unread(stage);
        pair.world.unreadable.clear();
        pair.world.broken.clear();
        pair.promoted();
        pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
        assert_eq!(pair.at(pair.fence), "fenced");
        pair.world.check_replay();
    }
}

/// Right before a promotion both are read once more: its fence, and the primary.
#[test]
fn a_promotion_asks_for_its_fence_and_for_the_primary() {
    let mut pair = pair(BACK);
    pair.lag(0.0);
    let (fence, primary) = (pair.fence, pair.primary);
    let required = |pair: &mut Pair| {
        pair.world.until("it is promoted", |world| {
            let mut held = world.held_back.iter().flatten();
            held.any(|id| matches!(&world.run.state().in_flight[id].what, Effect::Write { knob, .. } if *knob == primary))
        });
        let effect = pair.world.held_back.as_ref().and_then(|held| held.last()).copied();
        pair.world.run.required_by(effect.expect("one"))
    };
    pair.fenced();
    pair.world.held_back = Some(Vec::new());
    let both = vec![text("east"), text("west")];
    assert_eq!(required(&mut pair), [(primary, both.clone()), (fence, vec![text("fenced")])]);
    pair.world.answer();
    if let Some(back) = pair.back {
        pair.world.values[back] = Some(0.0);
    }
    pair.world.say(Command::Abort { how: Abort::Revert });
    let new = pair.fence_new.unwrap();
    pair.world.until("it is fenced", |world| world.knobs[new.index()] == text("fenced"));
    pair.world.held_back = Some(Vec::new());
    assert_eq!(required(&mut pair), [(primary, both), (new, vec![text("fenced")])]);
}

/// A replica whose series ended behind the first fence is missed by every try after it.
#[test]
fn a_retry_misses_what_ended_behind_the_first_fence() {
    let mut pair = pair("");
    pair.lag(4000.0);
    let exactly = ConditionId(pair.exactly as u32);
    let before = pair.world.run.misses_within(pair.world.now, exactly);
    assert_eq!(before, Millis::from_secs(300));
    pair.fenced();
    let fenced = pair.world.now;
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.at(pair.fence), "open");
    pair.world.passes(Millis::from_secs(400));
    pair.world.say(Command::Retry { task: DB });
    pair.fenced();
    let now = pair.world.now;
    assert!(pair.world.run.misses_within(now, exactly) >= before + (now - fenced));
    pair.world.check_replay();
}

/// Both would take writes: whichever is kept, those of the other are lost.
#[test]
fn a_fence_is_not_opened_over_two_primaries() {
    let mut pair = tried(BACK);
    pair.world.knobs[pair.primary.index()] = text("east+west");
    (pair.world.values[pair.exactly], pair.world.values[pair.back.unwrap()]) = (None, None);
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.at(pair.fence), "fenced");
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it gives up", |world| world.outcome().is_some());
    assert_eq!(pair.world.phase(DB), Phase::Unreverted);
    let fence_new = pair.fence_new.unwrap();
    assert_eq!((pair.at(pair.fence), pair.at(fence_new)), ("fenced", "fenced"));
    let trouble = pair.world.run.state().task(DB).trouble().unwrap().to_owned();
    assert!(
        trouble.contains(r#"db:primary is "east+west", so db:fence/west stays closed"#),
        "{trouble}"
    );
    assert_eq!(pair.world.run.state().left_closed(pair.world.run.plan()).count(), 2);
    pair.world.check_replay();
}

/// A person promoted another one meanwhile: the old one must not take writes again.
#[test]
fn a_fence_is_not_lifted_after_something_else_promoted() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.knobs[pair.primary.index()] = text("west");
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.at(pair.fence), "fenced");
    pair.world.check_replay();
}

/// `east+west` is what a driver says whose servers differ. It is no value to go back to.
#[test]
fn a_promotion_does_not_begin_while_its_servers_differ() {
    let mut pair = pair("");
    pair.lag(0.0);
    // Whether the one to be promoted is among them or not.
    for differ in ["east+west", "east+south"] {
        pair.world.knobs[pair.primary.index()] = text(differ);
        pair.world.passes(Millis(20_000));
        assert_eq!(pair.sets(), [""; 0]);
        let held = pair.world.run.state().task(DB).hold.clone();
        assert!(
            matches!(held, Some((_, Hold::Unreadable { knob })) if knob == pair.primary),
            "{held:?}"
        );
    }
    pair.world.knobs[pair.primary.index()] = text("east");
    pair.promoted();
    assert_eq!(pair.world.run.state().task(DB).origin(pair.primary), Some(&text("east")));
    pair.world.check_replay();
}

/// Names of servers that look like numbers with a fraction, such as the end of an address.
#[test]
fn servers_with_names_that_are_nearly_the_same_number_are_told_apart() {
    let mut pair = pair_of("", "10.51", "10.52");
    let primary = pair.primary;
    pair.world.knobs[primary.index()] = Value::Number(10.51);
    pair.world.broken.insert(primary, failed("not now"));
    pair.lag(0.0);
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    pair.world.check_replay();
    let mut pair = pair_of("", "10.51", "10.52");
    pair.world.knobs[primary.index()] = Value::Number(10.51);
    pair.lag(0.0);
    pair.world.until("it is promoted", |world| world.knobs[primary.index()] == text("10.52"));
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    pair.world.check_replay();
}

/// A fence that cannot be read may be opened and closed again, and acknowledge writes
/// meanwhile.
#[test]
fn a_fence_that_could_not_be_read_begins_again() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    let fence = pair.fence;
    pair.world.unreadable.insert(fence);
    pair.lag(0.0);
    pair.world.passes(Millis(10_000));
    assert_eq!(pair.at(pair.primary), "east");
    // A person opened it, 22 writes were acknowledged, and closed it again; the sample of
    // before is the newest there is.
    pair.world.exporter_died = Some(pair.world.now);
    pair.world.now = pair.world.now + Millis(100);
    pair.world.unreadable.clear();
    pair.world.passes(Millis(10_000));
    assert_eq!(pair.at(pair.primary), "east", "by a sample from before the fence was read");
    pair.world.exporter_died = None;
    pair.promoted();
    pair.world.check_replay();
}

/// Writes are refused meanwhile: it is not tried for ever, and the fence counts as closed from
/// the first time on.
#[test]
fn a_fence_that_can_hardly_be_read_is_lifted_in_the_end() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    let (fence, since) = (pair.fence, pair.world.now);
    pair.lag(0.0);
    let is_over = |pair: &Pair| pair.world.phase(DB) == Phase::Failed;
    for _ in 0..40 {
        if is_over(&pair) {
            break;
        }
        let closed = pair.world.run.state().closed_fences.get(&(DB, fence)).copied();
        assert!(closed.is_some_and(|at| at <= since), "{closed:?}");
        pair.world.unreadable.insert(fence);
        pair.world.until("it begins again", |world| {
            let state = world.run.state().task(DB);
            world.run.plan().task(DB).stages[state.stage.index()].name == "still-fenced"
                || state.phase == Phase::Failed
        });
        pair.world.passes(Millis(3_000));
        pair.world.unreadable.remove(&fence);
        pair.world.pass();
    }
    assert!(is_over(&pair), "{:?}", pair.world.run.state().task(DB));
    assert_eq!((pair.at(fence), pair.at(pair.primary)), ("open", "east"));
    let failure = pair.world.run.state().task(DB).failure.clone().unwrap_or_default();
    assert!(failure.contains("could not be read"), "{failure}");
    pair.world.check_replay();
}

/// A switch that is a number, such as `read_only`, is one or the other: it has no half.
#[test]
fn a_fence_that_is_a_number_goes_back_at_once() {
    let fence_to = "back_fence: db:fence/west
      back_caught_up: {name: lag-back, query: lag_back, equals: 0, no_data: block}
      fence_to: 1";
    let mut pair = pair(fence_to);
    pair.world.knobs[pair.fence.index()] = Value::Number(0.0);
    pair.lag(4000.0);
    let fence = pair.fence;
    pair.world.until("it is fenced", |world| world.knobs[fence.index()] == Value::Number(1.0));
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(pair.world.writes(fence), [1.0, 0.0]);
    pair.world.check_replay();
}

#[test]
fn a_fence_that_was_open_while_it_was_waited_for_begins_again() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.knobs[pair.fence.index()] = text("open");
    pair.world.passes(Millis(1_000));
    pair.world.sweep();
    assert_eq!(pair.at(pair.fence), "fenced", "drift is put back");
    pair.promoted();
    assert_eq!(writes_of(&pair, r#"fence/east="fenced""#), 3, "closed, put back, closed again");
    pair.world.check_replay();
}

fn user(uid: u32, name: &str) -> Actor {
    Actor::user(User { uid, gid: uid, pid: None, name: Some(name.into()) })
}

#[test]
fn what_two_people_gave_up_for_a_promotion_is_not_given_up_on_its_way_back() {
    let mut pair = pair(BACK);
    // One condition serves both ways.
    let mut plan = (**pair.world.run.plan()).clone();
    let (there, back) = (ConditionId(pair.exactly as u32), pair.back.unwrap());
    for stage in &mut plan.tasks[DB.index()].stages {
        if let StageKind::Await { condition } = &mut stage.kind
            && condition.index() == back
        {
            *condition = there;
        }
    }
    let knobs = pair.world.knobs.clone();
    pair.world = World::open(Sketch { plan });
    pair.world.knobs = knobs;
    pair.lag(4000.0);
    pair.fenced();
    for by in [user(7, "ann"), user(8, "bob")] {
        let command = Command::Override { condition: there, task: Some(DB) };
        pair.world.event(Event::Said { by, reason: "lost anyway".into(), command });
    }
    let primary = pair.primary;
    pair.world.until("it is promoted", |world| world.knobs[primary.index()] == text("west"));
    pair.world.say(Command::Abort { how: Abort::Revert });
    for _ in 0..60 {
        pair.world.pass();
        assert_eq!(pair.at(primary), "west", "4000 writes of west are missing at east");
    }
    pair.lag(0.0);
    pair.world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    pair.world.check_replay();
}

/// A restore of one task that moves a knob from 0 to 1.
fn restore(on_breach: OnBreach) -> World {
    let (world, ..) = watched(on_breach);
    let mut plan = (**world.run.plan()).clone();
    plan.direction = Direction::Restore;
    for stage in &mut plan.tasks[0].stages {
        if let StageKind::Shift { to, .. } = &mut stage.kind {
            *to = Goal::Value(Value::Number(1.0));
        }
    }
    let mut world = World::open(Sketch { plan });
    world.knobs[0] = Value::Number(0.0);
    world.until("it is half-way", |world| world.knobs[0].number() >= Some(0.5));
    world
}

/// The others may be what is bad, and nothing else serves.
#[test]
fn a_restore_never_moves_traffic_out_by_itself() {
    for on_breach in [OnBreach::Hold, OnBreach::BackOff, OnBreach::Revert] {
        let mut world = restore(on_breach);
        let at = world.knobs[0].clone();
        world.values[0] = Some(99.0);
        world.passes(Millis::from_secs(60));
        assert_eq!(world.knobs[0], at, "{on_breach:?}");
        world.values[0] = Some(0.1);
        world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
        world.check_replay();
    }
}

/// A load balancer that is reloaded in a restore sends all of the traffic in: that is put
/// back to what health was asked for, however good it is.
#[test]
fn what_something_else_brought_in_during_a_restore_is_put_back() {
    for errors in [0.1, 99.0] {
        let mut world = restore(OnBreach::Hold);
        world.until("it is on its way", |world| world.knobs[0].number() >= Some(0.3));
        world.values[0] = Some(errors);
        world.pass();
        let before = world.knobs[0].clone();
        world.knobs[0] = Value::Number(1.0);
        world.sweep();
        world.until("it is put back", |world| world.knobs[0] == before);
        world.values[0] = Some(0.1);
        world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
        world.check_replay();
    }
}

/// An operator who takes traffic out of a datacenter that fails has the last word: steps of
/// the restore begin there, when health allows.
#[test]
fn what_a_person_moved_out_during_a_restore_is_not_brought_back_at_once() {
    for value in [0.0, 0.1] {
        let mut world = restore(OnBreach::Hold);
        world.until("it is on its way", |world| world.knobs[0].number() >= Some(0.5));
        world.values[0] = None;
        world.passes(Millis::from_secs(5));
        let writes = world.writes(KnobId(0)).len();
        world.knobs[0] = Value::Number(value);
        for _ in 0..20 {
            world.passes(Millis::from_secs(5));
            world.sweep();
        }
        assert_eq!(world.knobs[0], Value::Number(value), "{:?}", world.writes(KnobId(0)));
        world.values[0] = Some(0.1);
        world.until("it goes on", |world| world.outcome() == Some(RunOutcome::Completed));
        assert!(world.writes(KnobId(0))[writes] - value <= PACE.step_max + 1e-9);
        world.check_replay();
    }
}

/// Neither after its task is done, while others go on: that takes a person, who hears of it.
#[test]
fn what_a_person_moved_out_after_its_task_is_told_and_not_brought_back() {
    let mut sketch = Sketch::new();
    let errors = sketch.below("errors", 1.0);
    for name in ["web", "api"] {
        sketch.shift(name, &[]);
        sketch.last().health = vec![errors];
        let StageKind::Shift { to, .. } = &mut sketch.last().stages[0].kind else { unreachable!() };
        *to = Goal::Value(Value::Number(1.0));
    }
    sketch.last().after = vec![TaskId(0)];
    sketch.plan.direction = Direction::Restore;
    let mut world = World::open(sketch);
    world.knobs = vec![Value::Number(0.0); 2];
    world.until("web is done", |world| world.phase(TaskId(0)) == Phase::Done);
    world.values[0] = Some(99.0);
    world.knobs[0] = Value::Number(0.0);
    world.pass();
    world.sweep();
    assert_eq!(world.run.away().collect::<Vec<_>>(), [(KnobId(0), &Value::Number(0.0))]);
    world.values[0] = Some(0.1);
    world.until("it is over", |world| world.outcome().is_some());
    assert_eq!(world.knobs[0], Value::Number(0.0));
    let is_told = |record: &Record| matches!(&record.fact, Fact::Astray { knob: KnobId(0), why, .. } if why.contains("moved it out"));
    assert!(world.log.iter().any(is_told));
    world.check_replay();
}

/// What cannot be seen is not moved, on the way back of a drain neither: whoever sees the
/// datacenter fail may have put it out of reach of the exporter.
#[test]
fn the_way_back_of_a_drain_waits_for_data() {
    let (mut world, ..) = watched(OnBreach::Hold);
    world.until("it is half-way", |world| world.knobs[0].number() <= Some(0.6));
    world.values[0] = None;
    world.passes(Millis::from_secs(60));
    let at = world.knobs[0].clone();
    world.say(Command::Abort { how: Abort::Revert });
    world.passes(Millis::from_secs(600));
    assert_eq!(world.knobs[0], at);
    let holds = world
        .run
        .plan()
        .task_ids()
        .filter_map(|id| world.run.state().task(id).hold.as_ref().map(|(_, why)| why.clone()));
    assert!(holds.into_iter().any(|why| matches!(why, Hold::NoData { .. })));
    world.values[0] = Some(0.1);
    world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(world.knobs[0], Value::Number(1.0));
    world.check_replay();
}

/// The way back of a restore leads out: what cannot be seen is not moved.
#[test]
fn the_way_back_of_a_restore_waits_for_health_and_for_data() {
    for value in [None, Some(99.0)] {
        let mut world = restore(OnBreach::Hold);
        world.values[0] = value;
        world.say(Command::Abort { how: Abort::Revert });
        // What was in flight is waited for.
        world.passes(Millis(1_000));
        let at = world.knobs[0].clone();
        world.passes(Millis::from_secs(120));
        assert_eq!(world.knobs[0], at, "{value:?}");
        let held = world.run.state().task(TaskId(0)).hold.clone();
        assert!(held.is_some(), "{value:?}");
        world.say(Command::Override { condition: ConditionId(0), task: None });
        world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
        world.check_replay();
    }
}

/// A promotion that is through, with its fence closed and looked at a last time,
/// while another knob cannot be read and keeps the run open.
fn looked_at_last() -> Pair {
    let mut pair = pair("");
    pair.lag(0.0);
    pair.promoted();
    let primary = pair.primary;
    pair.world.unreadable.insert(primary);
    let watch = pair.world.run.plan().find_task("db.watch").unwrap();
    pair.world.until("all tasks are over", |world| world.phase(watch) == Phase::Done);
    let wanted = pair.world.run.wanted(pair.world.now + Millis(1000));
    assert_eq!(wanted.collect::<Vec<_>>(), [primary], "the fence was looked at");
    pair
}

#[test]
fn a_fence_that_opens_after_its_last_look_is_closed_again_before_the_run_ends() {
    let mut pair = looked_at_last();
    pair.world.knobs[pair.fence.index()] = text("open");
    pair.world.now = pair.world.now + Millis(100);
    pair.world.sweep();
    pair.world.unreadable.clear();
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(pair.at(pair.fence), "fenced");
    pair.world.check_replay();
}

#[test]
fn a_fence_that_another_run_uses_at_the_end_is_said_to_be_astray() {
    let mut pair = looked_at_last();
    pair.world.knobs[pair.fence.index()] = text("open");
    pair.world.used_elsewhere.insert(pair.fence);
    pair.world.now = pair.world.now + Millis(100);
    pair.world.sweep();
    pair.world.unreadable.clear();
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(pair.at(pair.fence), "open", "it is the other run's");
    let report = crate::report::Report::of(pair.world.run.plan(), &pair.world.log).unwrap();
    let said: Vec<_> = report.astray.iter().map(|own| (&*own.knob, &*own.why)).collect();
    assert_eq!(said, [("db:fence/east", "another uses it")]);
    pair.world.check_replay();
}

/// Between the promotion and the opening somebody makes the old one a primary, too.
#[test]
fn a_fence_is_not_opened_after_the_promotion_over_two_primaries() {
    let mut pair = pair("unfence_to: open");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.broken.insert(pair.fence, failed("not now"));
    pair.promoted();
    pair.world.knobs[pair.primary.index()] = text("east+west");
    pair.world.passes(Millis(2_000));
    pair.world.broken.clear();
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.at(pair.fence), "fenced");
    let trouble = pair.world.run.state().task(DB).trouble().unwrap().to_owned();
    let why = r#"db:primary is "east+west", so db:fence/east stays closed"#;
    assert!(trouble.contains(why), "{trouble}");
    pair.world.knobs[pair.primary.index()] = text("west");
    pair.world.say(Command::Retry { task: DB });
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(pair.at(pair.fence), "open");
    pair.world.check_replay();
}

#[test]
fn a_fence_is_not_opened_on_the_way_back_over_two_primaries() {
    let mut pair = pair(BACK);
    pair.promoted();
    pair.world.say(Command::Abort { how: Abort::Revert });
    let (fence_new, primary) = (pair.fence_new.unwrap(), pair.primary);
    let fenced = |world: &World| world.knobs[fence_new.index()] == text("fenced");
    pair.world.until("it is fenced", fenced);
    for fence in [pair.fence, fence_new] {
        pair.world.broken.insert(fence, failed("not now"));
    }
    pair.world.values[pair.back.unwrap()] = Some(0.0);
    pair.world.until("it is back", |world| world.knobs[primary.index()] == text("east"));
    pair.world.knobs[primary.index()] = text("east+west");
    pair.world.broken.clear();
    pair.world.until("it gives up", |world| world.outcome() == Some(RunOutcome::PartlyReverted));
    assert_eq!((pair.at(pair.fence), pair.at(fence_new)), ("fenced", "fenced"));
    let trouble = pair.world.run.state().task(DB).trouble().unwrap().to_owned();
    assert!(trouble.contains(r#"db:primary is "east+west""#), "{trouble}");
    pair.world.check_replay();
}

/// Whether a promotion was done that a crash cut off is looked at, and not made sure of
/// by writing the old primary again: a person may have promoted meanwhile.
#[test]
fn a_revert_never_writes_a_primary_without_a_fence() {
    let mut pair = pair(BACK);
    pair.lag(0.0);
    pair.fenced();
    pair.world.held_back = Some(Vec::new());
    pair.world.until("it is in flight", |world| {
        world.held_back.as_ref().is_some_and(|held_back| !held_back.is_empty())
    });
    pair.world.held_back = None;
    let plan = pair.world.run.plan().clone();
    pair.world.run = Run::resume(plan, &pair.world.log).unwrap();
    let (records, _) = pair.world.run.take_up(pair.world.now);
    pair.world.take(records);
    pair.world.broken.insert(pair.primary, failed("not now"));
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(writes_of(&pair, r#"primary="east""#), 0);
    assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("open", "east"));
    pair.world.check_replay();
}

/// A database of one's own shape, with a primary in east, and its knobs by name.
fn own(service: &str, more: &[(&str, &str)]) -> World {
    let evacuation = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 10}, west: {capacity: 10}}
services: [db]
";
    let files = [("db", service), ("east", evacuation)];
    let files =
        files.iter().chain(more).map(|(name, text)| (format!("{name}.yaml"), (*text).into()));
    let library = Library::new(files.collect());
    assert!(library.is_sound(), "{:?}", library.problems());
    let none = BTreeMap::new();
    let plan = library.plan("east", Direction::Drain, &none, &BTreeMap::new()).unwrap();
    let mut world = World::open(Sketch { plan });
    for (at, knob) in world.run.plan().clone().knobs.iter().enumerate() {
        world.knobs[at] = text(if knob.name == "fence" { "open" } else { "east" });
    }
    world
}

fn knob(world: &World, name: &str) -> KnobId {
    let at = world.run.plan().knobs.iter().position(|own| own.name == name);
    KnobId(at.unwrap() as u32)
}

/// It may have taken writes since.
#[test]
fn a_primary_without_a_fence_is_not_changed_back_by_itself() {
    let mut world = own(
        "
pharos: service/v1
service: db
traffic: stateful
user_facing: false
drain:
  promote:
    template: Promote
    with: {knob: db:primary, to: west}
  watch: {template: Wait, with: {span: 10m}, after: [promote]}
restore:
  promote:
    template: Promote
    with: {knob: db:primary, to: original}
",
        &[],
    );
    let primary = knob(&world, "primary");
    world.until("it is promoted", |world| world.knobs[primary.index()] == text("west"));
    world.passes(Millis(5_000));
    world.knobs[primary.index()] = text("east");
    for _ in 0..20 {
        world.pass();
        world.sweep();
        assert_eq!(world.knobs[primary.index()], text("east"), "somebody switched it back");
    }
    world.check_replay();
}
