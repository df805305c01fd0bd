//! Promotions: nothing that was acknowledged is lost, on no way, and nothing
//! stays fenced.

use super::*;
use crate::plan::Fence;
use crate::runbook::Library;

const SERVICE: &str = "
pharos: service/v1
service: db
traffic: stateful
user_facing: false
health:
  writes: {query: failed_writes, below: 1, no_data: block}
drain:
  promote:
    template: Promote
    with:
      knob: db:primary
      to: WEST
      from: EAST
      fence: db:fence/east
      nearly_caught_up: {name: lag, query: lag, at_most: 5000, no_data: block}
      BACK
  watch:
    template: Wait
    with: {span: 10m}
    after: [promote]
restore:
  promote:
    template: Promote
    with: {knob: db:primary, to: original, fence: db:fence/west, unfence_to: open,
           caught_up: {name: lag-to-east, query: lag_back, at_most: 0, no_data: block}, from: WEST}
  unfence:
    template: ConfigChange
    with: {knob: db:fence/east, content: original}
    after: [promote]
";
const EVACUATION: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 10}, west: {capacity: 10}}
services: [db]
";
pub(super) const BACK: &str = "back_fence: db:fence/west
      back_caught_up: {name: lag-back, query: lag_back, equals: 0, no_data: block}";

pub(super) const DB: TaskId = TaskId(0);

pub(super) struct Pair {
    pub world: World,
    pub primary: KnobId,
    pub fence: KnobId,
    pub fence_new: Option<KnobId>,
    writes: usize,
    nearly: usize,
    pub exactly: usize,
    pub back: Option<usize>,
}

/// A primary in east with a replica in west that is far behind.
pub(super) fn pair(back: &str) -> Pair {
    pair_of(back, "east", "west")
}

/// The same with other names of its servers.
pub(super) fn pair_of(back: &str, east: &str, west: &str) -> Pair {
    let service = SERVICE.replace("BACK", back).replace("EAST", east).replace("WEST", west);
    let files = [("db.yaml", service), ("east.yaml", EVACUATION.into())];
    let files = files.map(|(name, text)| (name.to_owned(), text)).to_vec();
    let library = Library::new(files);
    assert!(library.is_sound(), "{:?}", library.problems());
    let none = BTreeMap::new();
    let plan = library.plan("east", Direction::Drain, &none, &BTreeMap::new()).unwrap();
    let knob = |name: &str| plan.knobs.iter().position(|own| own.to_string() == name);
    let knob = |name: &str| knob(name).map(|at| KnobId(at as u32));
    let condition = |end: &str| plan.conditions.iter().position(|own| own.name.ends_with(end));
    let mut pair = Pair {
        primary: knob("db:primary").unwrap(),
        fence: knob("db:fence/east").unwrap(),
        fence_new: knob("db:fence/west"),
        writes: condition("writes").unwrap(),
        nearly: condition("lag").unwrap(),
        exactly: condition("(exactly)").unwrap(),
        back: condition("lag-back"),
        world: World::open(Sketch { plan }),
    };
    let world = &mut pair.world;
    world.knobs.fill(text("open"));
    world.knobs[pair.primary.index()] = text("east");
    (world.values[pair.nearly], world.values[pair.exactly]) = (Some(9000.0), Some(9000.0));
    if let Some(back) = pair.back {
        world.values[back] = None;
    }
    pair
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

impl Pair {
    pub fn lag(&mut self, lag: f64) {
        (self.world.values[self.nearly], self.world.values[self.exactly]) = (Some(lag), Some(lag));
    }

    pub fn refused_writes(&mut self, count: Option<f64>) {
        self.world.values[self.writes] = count;
    }

    pub fn at(&self, knob: KnobId) -> &str {
        match &self.world.knobs[knob.index()] {
            Value::Text(text) => text,
            Value::Number(_) => "a number",
        }
    }

    pub fn fenced(&mut self) {
        let fence = self.fence;
        self.world.until("it is fenced", |world| world.knobs[fence.index()] == text("fenced"));
    }

    pub fn promoted(&mut self) {
        self.lag(0.0);
        let primary = self.primary;
        self.world.until("it is promoted", |world| world.knobs[primary.index()] == text("west"));
    }

    /// What knobs were set to, in order.
    pub fn sets(&self) -> Vec<String> {
        let sets = self.world.log.iter().filter_map(|record| match &record.fact {
            Fact::Issued { what: Effect::Write { knob, value }, .. } => {
                Some(format!("{}={value}", self.world.run.plan().knob(*knob).name))
            }
            _ => None,
        });
        sets.collect()
    }
}

#[test]
fn a_promotion_waits_until_nothing_is_missing_however_tolerant_its_beginning_is() {
    let mut pair = pair("");
    pair.world.passes(Millis(10_000));
    assert_eq!(pair.at(pair.fence), "open", "too far behind to begin");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.passes(Millis(20_000));
    assert_eq!(pair.at(pair.primary), "east", "4000 writes are missing");
    pair.promoted();
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(pair.at(pair.fence), "fenced", "the old primary stays fenced until the restore");
    pair.world.check_replay();
}

/// The lag was 0 in the sample from before the fence, and 5000 at the fence.
#[test]
fn a_promotion_counts_only_samples_taken_after_the_fence() {
    let mut pair = pair("");
    pair.lag(0.0);
    // The last sample there is was taken just before the fence.
    pair.world.exporter_died = Some(Time(0));
    pair.fenced();
    for _ in 0..20 {
        pair.world.pass();
        assert_eq!(pair.at(pair.primary), "east", "nobody has looked since the fence");
    }
    pair.world.exporter_died = None;
    pair.promoted();
    let fenced = pair.world.log.iter().find_map(|record| match &record.fact {
        Fact::Ended { .. } => Some(record.at),
        _ => None,
    });
    let left = pair.world.log.iter().find_map(|record| match &record.fact {
        Fact::Left { stage: StageId(2), .. } => Some(record.at),
        _ => None,
    });
    assert!(left > fenced, "{left:?} {fenced:?}");
}

#[test]
fn a_fence_is_lifted_when_the_last_writes_do_not_arrive_and_a_retry_begins_anew() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("open", "east"));
    assert_eq!(
        pair.world.run.state().task(DB).trouble(),
        Some(
            "last-writes was not through within 1m: waits: db.promote.last-writes.lag (exactly) is 4000, must be <= 0"
        )
    );
    pair.world.say(Command::Retry { task: DB });
    pair.fenced();
    assert_eq!(pair.at(pair.primary), "east", "the fence comes first again");
    pair.promoted();
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Completed));
    assert_eq!(
        pair.sets(),
        [
            r#"fence/east="fenced""#,
            r#"fence/east="open""#,
            r#"fence/east="fenced""#,
            r#"primary="west""#
        ]
    );
    pair.world.check_replay();
}

#[test]
fn a_revert_of_a_promotion_fences_catches_up_and_promotes_back() {
    let mut pair = pair(BACK);
    pair.lag(0.0);
    pair.fenced();
    pair.promoted();
    let back = pair.back.unwrap();
    pair.world.values[back] = Some(41.0);
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.passes(Millis(20_000));
    let fence_new = pair.fence_new.unwrap();
    assert_eq!(pair.at(fence_new), "fenced", "no more writes to the new primary");
    assert_eq!(pair.at(pair.primary), "west", "41 writes are missing at the old one");
    pair.world.values[back] = Some(0.0);
    pair.world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(pair.at(pair.primary), "east");
    assert_eq!((pair.at(pair.fence), pair.at(fence_new)), ("open", "open"));
    let promoted = pair.sets().iter().position(|set| set == r#"primary="east""#);
    let lifted = pair.sets().iter().rposition(|set| set == r#"fence/west="open""#);
    assert!(promoted < lifted, "{:?}", pair.sets());
    pair.world.check_replay();
}

/// The new primary must not stay fenced when the old one does not catch up.
#[test]
fn a_revert_that_does_not_catch_up_lifts_its_fence_and_can_be_retried() {
    let mut pair = pair(BACK);
    pair.lag(0.0);
    pair.promoted();
    let (back, fence_new) = (pair.back.unwrap(), pair.fence_new.unwrap());
    pair.world.values[back] = Some(41.0);
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Unreverted);
    assert_eq!((pair.at(pair.primary), pair.at(fence_new)), ("west", "open"));
    let trouble = pair.world.run.state().task(DB).trouble().unwrap();
    assert!(trouble.contains("lag-back is 41, must be == 0"), "{trouble}");
    pair.world.check_replay();
}

#[test]
fn a_revert_that_would_lose_writes_is_refused_and_says_what_to_do() {
    let mut pair = pair("");
    pair.lag(0.0);
    pair.promoted();
    let command = Command::Abort { how: Abort::Revert };
    let said = Event::Said { by: "ann".into(), reason: "too slow".into(), command };
    let refusal = pair.world.run.handle(pair.world.now, said).unwrap_err().to_string();
    assert!(refusal.contains("`back_fence` and `back_caught_up`"), "{refusal}");
    assert!(refusal.contains("`restore east`"), "{refusal}");
    pair.world.say(Command::Abort { how: Abort::Hold });
}

#[test]
fn a_revert_before_the_promotion_only_lifts_the_fence() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!(pair.sets(), [r#"fence/east="fenced""#, r#"fence/east="open""#]);
    pair.world.check_replay();
}

#[test]
fn a_promotion_that_did_not_happen_is_not_undone_by_another() {
    let mut pair = pair(BACK);
    let primary = pair.primary;
    pair.world.broken.insert(primary, Ended::Refused { why: "no quorum".into() });
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.world.run.state().task(DB).trouble(), Some("promote: no quorum"));
    pair.world.broken.clear();
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    let fence_new = pair.fence_new.unwrap();
    assert_eq!((pair.at(pair.fence), pair.at(fence_new)), ("open", "open"));
    assert!(!pair.sets().iter().any(|set| set.starts_with("fence/west")), "{:?}", pair.sets());
    pair.world.check_replay();
}

/// While nothing takes writes, nothing may keep it so.
#[test]
fn nothing_interrupts_a_task_between_its_fence_and_what_lifts_it() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    // The fence itself is what makes writes fail.
    pair.world.values[pair.writes] = Some(99.0);
    pair.world.say(Command::Pause { task: None });
    for command in [Command::Stop { task: DB }, Command::Skip { task: DB }] {
        let said = Event::Said { by: "ann".into(), reason: "now".into(), command };
        let refusal = pair.world.run.handle(pair.world.now, said).unwrap_err().to_string();
        assert!(refusal.contains("between a fence and what lifts it"), "{refusal}");
    }
    pair.world.say(Command::Abort { how: Abort::Hold });
    assert_eq!(pair.world.phase(DB), Phase::Running, "it does not stay fenced");
    pair.promoted();
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Held));
    pair.world.check_replay();
}

/// By then it may have taken writes that the other one does not have.
#[test]
fn a_primary_that_somebody_else_changed_is_not_changed_back() {
    let mut pair = pair("");
    pair.lag(0.0);
    pair.promoted();
    pair.world.until("it is done", |world| world.phase(DB) == Phase::Done);
    let (primary, before) = (pair.primary, pair.sets().len());
    pair.world.knobs[primary.index()] = text("east");
    for _ in 0..20 {
        pair.world.pass();
        pair.world.sweep();
    }
    assert_eq!(pair.at(primary), "east");
    assert_eq!(pair.sets().len(), before, "{:?}", pair.sets());
    let drifts =
        pair.world.log.iter().filter(|own| matches!(own.fact, Fact::Drifted { .. })).count();
    assert_eq!(drifts, 1, "it is said once");
    let left = pair.world.run.state().knobs[primary.index()].as_ref().unwrap();
    assert_eq!(left.drifts, DRIFTS_MAX, "a person has to see to it");
    pair.world.check_replay();
}

#[test]
fn a_retry_of_a_promotion_that_failed_begins_before_the_fence() {
    let mut pair = pair("");
    let (primary, fence) = (pair.primary, pair.fence);
    pair.world.broken.insert(primary, Ended::Refused { why: "no quorum".into() });
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    pair.world.broken.clear();
    // Somebody ends the outage by hand, and writes come in again.
    pair.world.knobs[fence.index()] = text("open");
    pair.lag(4000.0);
    pair.world.say(Command::Retry { task: DB });
    pair.fenced();
    assert_eq!(pair.at(primary), "east", "4000 writes are missing");
    pair.promoted();
    pair.world.check_replay();
}

#[test]
fn a_fence_that_was_lifted_is_set_again_before_the_promotion() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    // A reload, and nobody has looked since.
    let fence = pair.fence;
    pair.world.knobs[fence.index()] = text("open");
    pair.promoted();
    let fences = pair.sets().iter().filter(|set| *set == r#"fence/east="fenced""#).count();
    assert_eq!(fences, 2, "{:?}", pair.sets());
    pair.world.check_replay();
}

#[test]
fn nothing_interrupts_the_way_back_of_a_promotion() {
    let mut pair = pair(BACK);
    pair.lag(0.0);
    pair.promoted();
    let (back, fence_new) = (pair.back.unwrap(), pair.fence_new.unwrap());
    pair.world.values[back] = Some(41.0);
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is fenced", |world| world.knobs[fence_new.index()] == text("fenced"));
    pair.world.say(Command::Pause { task: None });
    pair.world.say(Command::Abort { how: Abort::Hold });
    assert_eq!(pair.world.phase(DB), Phase::Reverting, "the new primary does not stay fenced");
    pair.world.values[back] = Some(0.0);
    let primary = pair.primary;
    pair.world.until("it is back", |world| world.knobs[primary.index()] == text("east"));
    pair.world.until("it is over", |world| world.outcome().is_some());
    assert_eq!((pair.at(pair.fence), pair.at(fence_new)), ("open", "open"), "writes are accepted");
    pair.world.check_replay();
}

#[test]
fn an_abort_that_holds_waits_for_a_fence_that_is_being_set() {
    let mut pair = pair("");
    pair.world.held_back = Some(Vec::new());
    pair.lag(4000.0);
    pair.world.until("the fence is being set", |world| {
        world.held_back.as_ref().is_some_and(|held_back| !held_back.is_empty())
    });
    for command in [Command::Skip { task: DB }, Command::Stop { task: DB }] {
        let said = Event::Said { by: "ann".into(), reason: "now".into(), command };
        assert!(pair.world.run.handle(pair.world.now, said).is_err());
    }
    pair.world.say(Command::Abort { how: Abort::Hold });
    pair.world.answer();
    assert_eq!(pair.world.phase(DB), Phase::Running, "it does not stay fenced");
    pair.world.until("it gives up", |world| world.outcome() == Some(RunOutcome::Held));
    assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("open", "east"));
    pair.world.check_replay();
}

/// The clock of another host may be ahead of the one that wrote the records.
#[test]
fn who_takes_a_run_up_counts_only_samples_since_then() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    let world = &mut pair.world;
    world.run = Run::resume(world.run.plan().clone(), &world.log).unwrap();
    // What was taken before the fence seems to be taken after it.
    let taken = world.now + Millis(5_000);
    world.now = world.now + Millis(10_000);
    world.exporter_died = Some(taken);
    pair.lag(0.0);
    for _ in 0..10 {
        pair.world.pass();
        assert_eq!(pair.at(pair.primary), "east");
    }
    pair.world.exporter_died = None;
    pair.promoted();
}

/// What an earlier promotion left closed, this one must not close for ever.
#[test]
fn a_fence_that_was_found_closed_is_opened_when_the_promotion_gives_up() {
    let mut pair = pair("unfence_to: open");
    let fence = pair.fence;
    pair.world.knobs[fence.index()] = text("fenced");
    pair.lag(4000.0);
    pair.world.until("it gives up", |world| world.phase(DB) == Phase::Failed);
    assert_eq!((pair.at(fence), pair.at(pair.primary)), ("open", "east"));
    pair.world.check_replay();
}

#[test]
fn a_revert_opens_a_fence_that_was_found_closed() {
    let mut pair = pair(&format!("unfence_to: open\n      {BACK}"));
    let fence = pair.fence;
    pair.world.knobs[fence.index()] = text("fenced");
    pair.lag(0.0);
    pair.promoted();
    pair.world.values[pair.back.unwrap()] = Some(0.0);
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is back", |world| world.outcome() == Some(RunOutcome::Reverted));
    assert_eq!((pair.at(fence), pair.at(pair.primary)), ("open", "east"));
    pair.world.check_replay();
}

#[test]
fn a_fence_that_nothing_says_how_to_open_is_not_closed_again() {
    let mut pair = pair("");
    let fence = pair.fence;
    pair.world.knobs[fence.index()] = text("fenced");
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(
        pair.world.run.state().task(DB).trouble(),
        Some(
            "fence: db:fence/east was \"fenced\" already, and nothing says what opens it; \
             accepted: open it, then `retry`"
        )
    );
    assert!(pair.sets().is_empty(), "{:?}", pair.sets());
    pair.world.knobs[fence.index()] = text("open");
    pair.world.say(Command::Retry { task: DB });
    pair.promoted();
    pair.world.check_replay();
}

#[test]
fn a_fence_that_a_failed_promotion_left_closed_is_named() {
    let mut pair = pair("");
    let primary = pair.primary;
    pair.world.broken.insert(primary, Ended::Refused { why: "no quorum".into() });
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    let closed = |pair: &Pair| {
        let state = pair.world.run.state();
        let fences = state.left_closed(pair.world.run.plan());
        fences.map(|(task, fence)| (task, fence.knob)).collect::<Vec<_>>()
    };
    assert_eq!(closed(&pair), [(DB, pair.fence)]);
    pair.world.say(Command::Abort { how: Abort::Hold });
    pair.world.until("it is over", |world| world.outcome() == Some(RunOutcome::Held));
    assert_eq!(closed(&pair), [(DB, pair.fence)], "it still is");
}

/// Whoever overrides it loses what is missing.
#[test]
fn the_exact_condition_behind_a_fence_is_overridden_by_two_people_alone() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    let condition = ConditionId(pair.exactly as u32);
    let say = |pair: &mut Pair, by: &str, task: Option<TaskId>| {
        let command = Command::Override { condition, task };
        let said = Event::Said { by: by.into(), reason: "now".into(), command };
        pair.world.run.handle(pair.world.now, said).map_err(|refusal| refusal.to_string())
    };
    let records = say(&mut pair, "ann", Some(DB)).unwrap();
    pair.world.take(records);
    pair.world.passes(Millis(10_000));
    assert_eq!(pair.at(pair.primary), "east", "one person does not lose 4000 writes");
    let refusal = say(&mut pair, "ann", Some(DB)).unwrap_err();
    assert!(refusal.contains("has overridden"), "{refusal}");
    let records = say(&mut pair, "ann", None).unwrap();
    pair.world.take(records);
    pair.world.passes(Millis(10_000));
    assert_eq!(pair.at(pair.primary), "east", "she is one person for each task");
    let records = say(&mut pair, "bob", None).unwrap();
    pair.world.take(records);
    let primary = pair.primary;
    pair.world.until("it is promoted", |world| world.knobs[primary.index()] == text("west"));
    pair.world.check_replay();
}

/// `abort --revert` is the way out that everything names behind a fence.
#[test]
fn an_abort_that_holds_behind_a_fence_can_be_turned_into_a_revert() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.world.say(Command::Abort { how: Abort::Hold });
    pair.world.passes(Millis(5000));
    assert_eq!(pair.at(pair.fence), "fenced");
    pair.world.say(Command::Abort { how: Abort::Revert });
    pair.world.until("it is over", |world| world.outcome().is_some());
    assert_eq!((pair.at(pair.fence), pair.at(pair.primary)), ("open", "east"));
    pair.world.check_replay();
}

/// A read that began before says what was then.
#[test]
fn a_fence_is_verified_by_a_read_that_began_after_the_last_writes() {
    let mut pair = pair("");
    pair.lag(4000.0);
    pair.fenced();
    pair.lag(0.0);
    // A slow read of the fence is under way, and something lifts it meanwhile.
    let (fence, asked) = (pair.fence, pair.world.now);
    pair.world.unreadable.insert(fence);
    pair.world.passes(Millis(2000));
    pair.world.knobs[fence.index()] = text("open");
    let found = Ok(text("fenced"));
    pair.world.event(Event::Looked { knob: fence, asked, found });
    pair.world.passes(Millis(2000));
    assert_eq!(pair.at(pair.primary), "east", "the fence is open");
    pair.world.unreadable.clear();
    pair.promoted();
    let fences = pair.sets().iter().filter(|set| *set == r#"fence/east="fenced""#).count();
    assert_eq!(fences, 2, "{:?}", pair.sets());
    pair.world.check_replay();
}

#[test]
fn a_fence_that_was_left_closed_is_not_named_any_more_when_it_is_open() {
    let mut pair = pair("");
    let (primary, fence) = (pair.primary, pair.fence);
    pair.world.broken.insert(primary, Ended::Refused { why: "no quorum".into() });
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    let is_named =
        |pair: &Pair| pair.world.run.state().left_closed(pair.world.run.plan()).next().is_some();
    assert!(is_named(&pair));
    pair.world.knobs[fence.index()] = text("open");
    pair.world.pass();
    pair.world.sweep();
    assert!(!is_named(&pair));
    assert_eq!(pair.world.phase(DB), Phase::Failed);
    pair.world.check_replay();
}

/// What was under way in a process that died may have been done.
#[test]
fn a_fence_that_may_be_closed_is_named_until_it_is_read_open() {
    let mut pair = pair("");
    let fence = pair.fence;
    pair.world.broken.insert(fence, Ended::Refused { why: "no such driver".into() });
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    let is_named =
        |pair: &Pair| pair.world.run.state().left_closed(pair.world.run.plan()).next().is_some();
    assert!(is_named(&pair));
    pair.world.pass();
    pair.world.sweep();
    assert!(!is_named(&pair), "it is open");
    pair.world.check_replay();
}

/// Closed in part, it refuses writes for as long as somebody tries to close it.
#[test]
fn a_fence_that_cannot_be_set_is_lifted_after_its_bound() {
    let mut pair = pair("");
    let fence = pair.fence;
    // What another task has is not this one's time.
    pair.world.used_elsewhere.insert(fence);
    pair.lag(4000.0);
    pair.world.passes(Millis::from_secs(90));
    assert_eq!(pair.sets(), [""; 0]);
    pair.world.used_elsewhere.clear();
    pair.world.broken.insert(fence, Ended::Failed { why: "one of two servers".into() });
    let first = |pair: &Pair, to: &str| {
        let written = pair.world.log.iter().find(|record| {
            matches!(&record.fact, Fact::Issued { what: Effect::Write { value, .. }, .. }
                if *value == text(to))
        });
        written.map(|record| record.at)
    };
    let is_lifted = |world: &World| {
        let state = world.run.state().task(DB);
        state.phase == Phase::Failed
            || world.run.plan().task(DB).stages[state.stage.index()].name == "lift"
    };
    pair.world.until("it gives up", is_lifted);
    pair.world.broken.clear();
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    let (began, lifted) = (first(&pair, "fenced").unwrap(), first(&pair, "open").unwrap());
    assert!(lifted - began <= Millis::from_secs(61), "lifted after {}", lifted - began);
    assert_eq!((pair.at(fence), pair.at(pair.primary)), ("open", "east"));
    assert_eq!(
        pair.world.run.state().task(DB).trouble(),
        Some("fence was not through within 1m: one of two servers")
    );
    pair.world.check_replay();
}

/// Of several servers one was restarted, and the others refuse writes.
#[test]
fn a_fence_that_is_open_in_part_is_closed() {
    let mut pair = pair(BACK);
    let primary = pair.primary;
    pair.world.broken.insert(primary, Ended::Refused { why: "no quorum".into() });
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    let is_named =
        |pair: &Pair| pair.world.run.state().left_closed(pair.world.run.plan()).next().is_some();
    for (found, expected) in [("fenced+open", true), ("", true), ("open", false)] {
        pair.world.knobs[pair.fence.index()] = text(found);
        pair.world.pass();
        pair.world.sweep();
        assert_eq!(is_named(&pair), expected, "{found:?}");
        assert_eq!(pair.world.run.claims().contains(&DB), expected, "{found:?}");
    }
    pair.world.check_replay();
}

/// Two tasks may wait for one condition, and each loses writes of its own.
#[test]
fn who_overrides_an_exact_condition_for_one_task_says_nothing_of_another() {
    let mut sketch = Sketch::new();
    let condition = sketch.below("lag", 1.0);
    sketch.plan.conditions[condition.index()].is_exact = true;
    let waits = || vec![stage("wait", StageKind::Await { condition }, Next::Exit(Exit::Done))];
    let (orders, bills) = (sketch.task("orders", &[], waits()), sketch.task("bills", &[], waits()));
    let mut world = World::open(sketch);
    world.values[0] = Some(5000.0);
    let say = |world: &mut World, by: &str, task: TaskId| {
        let command = Command::Override { condition, task: Some(task) };
        let said = Event::Said { by: by.into(), reason: "now".into(), command };
        world.event(said);
    };
    say(&mut world, "ann", orders);
    say(&mut world, "bob", bills);
    world.passes(Millis(5000));
    assert_eq!([orders, bills].map(|task| world.phase(task)), [Phase::Running; 2]);
    say(&mut world, "bob", orders);
    world.passes(Millis(5000));
    assert_eq!((world.phase(orders), world.phase(bills)), (Phase::Done, Phase::Running));
    world.check_replay();
}

/// fence, then a message, then what is to be judged after the fence.
#[test]
fn an_effect_counts_for_all_tasks_behind_it_whatever_is_between() {
    let mut sketch = Sketch::new();
    let condition = sketch.below("lag", 1.0);
    let fence = sketch.shift("fence", &[]);
    let says = StageKind::Say(Saying { channel: None, text: "fenced".into() });
    let says = vec![stage("say", says, Next::Exit(Exit::Done))];
    let between = sketch.task("between", &[fence], says);
    let promote = sketch.shift("promote", &[between]);
    sketch.last().pre = vec![condition];
    let mut world = World::open(sketch);
    world.exporter_died = Some(Time(0));
    world.until("it is fenced", |world| world.phase(between) == Phase::Done);
    world.passes(Millis(10_000));
    assert_eq!(world.phase(promote), Phase::Waiting, "nobody has looked since the fence");
    world.exporter_died = None;
    world.until("it begins", |world| world.phase(promote) == Phase::Running);
    world.check_replay();
}

/// What is told to retry may wait for its parents or its conditions first.
#[test]
fn a_retry_that_waits_keeps_its_closed_fence_and_its_claim() {
    let mut pair = pair(BACK);
    let (primary, writes) = (pair.primary, pair.writes);
    pair.world.broken.insert(primary, Ended::Refused { why: "connection lost".into() });
    pair.lag(0.0);
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    pair.world.values[writes] = None;
    pair.lag(9000.0);
    pair.world.passes(Millis(5000));
    pair.world.say(Command::Retry { task: DB });
    pair.world.passes(Millis(60_000));
    let own = pair.world.run.state().task(DB);
    assert!(matches!(own.phase, Phase::Waiting | Phase::Running), "{own:?}");
    assert!(pair.world.run.claims().contains(&DB), "{:?}", pair.world.phase(DB));
    assert!(pair.world.run.state().has_closed_fence(DB));
    pair.world.check_replay();
}

/// It would refuse writes for nothing.
#[test]
fn a_fence_is_not_closed_while_what_must_hold_behind_it_has_no_value() {
    let mut pair = pair("");
    let (nearly, exactly) = (pair.nearly, pair.exactly);
    (pair.world.values[nearly], pair.world.values[exactly]) = (Some(10.0), None);
    pair.world.passes(Millis(40_000));
    assert_eq!(pair.at(pair.fence), "open");
    let hold = pair.world.run.state().task(DB).hold.clone();
    assert!(matches!(hold, Some((_, Hold::NoData { .. }))), "{hold:?}");
    // A query may have none until nothing is missing.
    pair.fenced();
    pair.promoted();
}

/// What two people gave up is what was missing then.
#[test]
fn an_override_of_an_exact_condition_ends_with_a_retry() {
    let mut pair = pair("");
    let (primary, condition) = (pair.primary, ConditionId(pair.exactly as u32));
    pair.lag(4000.0);
    pair.world.broken.insert(primary, Ended::Refused { why: "no quorum".into() });
    pair.fenced();
    for (by, task) in [("ann", None), ("bob", None), ("ann", Some(DB)), ("bob", Some(DB))] {
        let command = Command::Override { condition, task };
        pair.world.event(Event::Said { by: by.into(), reason: "now".into(), command });
    }
    pair.world.until("it fails", |world| world.phase(DB) == Phase::Failed);
    pair.world.broken.clear();
    pair.world.say(Command::Retry { task: DB });
    pair.world.passes(Millis(30_000));
    assert_eq!(pair.at(pair.primary), "east", "4000 writes are missing");
    pair.promoted();
    pair.world.check_replay();
}

/// Whoever opens it loses nothing, and nobody may be there to say it again.
#[test]
fn a_fence_that_cannot_be_opened_is_tried_again() {
    let mut pair = pair("");
    let fence = pair.fence;
    pair.lag(4000.0);
    pair.fenced();
    pair.world.broken.insert(fence, Ended::Refused { why: "no such program".into() });
    let stage = |world: &World| {
        let at = world.run.state().task(DB).stage;
        world.run.plan().task(DB).stages[at.index()].name.clone()
    };
    pair.world.until("it is to be lifted", |world| stage(world) == "lift");
    pair.world.passes(Millis(5000));
    pair.world.broken.clear();
    pair.world.until("it is over", |world| world.phase(DB) == Phase::Failed);
    assert_eq!(pair.at(fence), "open");
    pair.world.check_replay();
}

#[test]
fn a_fence_that_was_found_closed_in_part_is_not_put_back_so() {
    let mut fence = Fence { knob: KnobId(0), closed: text("fenced"), open: Some(text("open")) };
    for (value, expected) in [("fenced+open", true), ("open+fenced", true), ("open", false)] {
        assert_eq!(fence.is_closed_in_part(&text(value)), expected, "{value}");
    }
    fence.closed = Value::Number(1.0);
    assert!(fence.is_closed_in_part(&Value::Number(1.0)) && fence.is_closed_in_part(&text("0+1")));
    assert!(
        !fence.is_closed_in_part(&text("0+10")) && !fence.is_closed_in_part(&Value::Number(0.0))
    );
}

/// Another run may have closed it, and its promotion may still come.
#[test]
fn a_fence_that_something_else_closes_is_not_opened() {
    let mut pair = pair("unfence_to: open");
    pair.lag(0.0);
    pair.fenced();
    let fence = pair.fence;
    pair.world.until("it is promoted", |world| world.phase(DB) == Phase::Done);
    assert_eq!(pair.at(fence), "open");
    pair.world.knobs[fence.index()] = text("fenced");
    for _ in 0..20 {
        pair.world.pass();
        pair.world.sweep();
    }
    assert_eq!(pair.at(fence), "fenced");
    let drifted = |record: &Record| matches!(record.fact, Fact::Drifted { .. });
    assert!(pair.world.log.iter().any(drifted), "it is told");
    pair.world.check_replay();
}
