//! What goes wrong between a run and its world. All of it is drawn before the
//! run begins, but for what each effect meets.

use drain::engine::{Abort, Actor, Command, Mode, User};
use drain::{
    Comparison, Condition, ConditionId, Direction, KnobId, Millis, Plan, TaskId, Time, Value,
};

use crate::chance::Chance;

/// Out of a thousand restores, so many begin in an outage.
const OUTAGES: u32 = 250;

/// Everything that goes wrong with one run.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Out of a thousand effects, so many meet something.
    pub effects: u32,
    /// What happens when.
    pub script: Vec<(Time, Fault)>,
    pub crashes: Crashes,
    /// From then on nothing goes wrong any more, and somebody tidies up.
    pub until: Time,
    /// What people then say when they are asked.
    pub manner: Manner,
    /// Whether they go on without what does not come for a long time. Where
    /// nothing goes wrong it comes, and is waited for.
    pub gives_up: bool,
}

/// What people do about a task that asks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    #[default]
    Approve,
    /// They go on without it: whoever waits for it is released.
    Skip,
    /// They never answer.
    Ignore,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The process dies and is back after a while.
    Crash { back_after: Millis },
    /// A metric says something else until then.
    Lie { condition: ConditionId, lie: Lie, until: Time },
    /// Somebody or something else turns a knob.
    Drift { knob: KnobId, value: Value },
    /// Nothing turns a knob until then: tries fail, or are refused.
    Break { knob: KnobId, is_refused: bool, until: Time },
    /// A person says something.
    Say { by: Person, command: Command },
    /// Other runs drain other datacenters, or have restored them.
    Fleet { drained: Vec<f64> },
    /// The clock is set, by so many milliseconds.
    Jump { by: i64 },
    /// Another run uses a knob until then, if no task of this one does.
    Use { knob: KnobId, until: Time },
    /// Nothing that must be healthy is, until then.
    Outage { how: Outage, until: Time },
}

/// What the metrics say while nothing is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The health of everything is bad.
    Bad,
    /// Nobody asks for anything: the error rate of every service is 0/0.
    NoTraffic,
}

impl Outage {
    pub const ALL: [Outage; 2] = [Outage::Bad, Outage::NoTraffic];

    /// What each condition says meanwhile.
    pub fn lies(self, plan: &Plan) -> Vec<(ConditionId, Lie)> {
        let of_tasks = plan.tasks.iter().flat_map(|task| &task.health).copied();
        match self {
            Outage::Bad => {
                let all = of_tasks.chain(plan.health.iter().copied());
                all.map(|id| (id, Lie::Stuck(breaching(plan.condition(id))))).collect()
            }
            // The load of a datacenter is no ratio of requests.
            Outage::NoTraffic => of_tasks.map(|id| (id, Lie::NoTraffic)).collect(),
        }
    }
}

/// A value that breaches a condition.
fn breaching(condition: &Condition) -> f64 {
    let far = condition.bound.abs() + 1.0;
    match condition.comparison {
        Comparison::Below | Comparison::AtMost | Comparison::Equals => condition.bound + far,
        Comparison::Above | Comparison::AtLeast => condition.bound - far,
    }
}

/// Whoever says something: a uid, and the name that was typed beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Person {
    pub uid: u32,
    pub typed: &'static str,
}

pub const ANN: Person = Person { uid: 1000, typed: "ann" };
pub const BOB: Person = Person { uid: 1001, typed: "bob" };
/// One person who types the name of another.
pub const ANN_AS_BOB: Person = Person { uid: 1000, typed: "bob" };

impl Person {
    pub fn actor(self) -> Actor {
        // Only accounts are people.
        let name = Some(format!("user-{}", self.uid));
        let user = User { uid: self.uid, gid: self.uid, pid: None, name };
        Actor::user(user).commented(Some(self.typed))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    /// It stays at what it says.
    Stuck(f64),
    /// It is off by a factor.
    Wrong(f64),
    Missing,
    /// The exporter is dead, and its last sample is given again and again.
    Frozen,
    /// It divides 0 by 0, and its samples are fresh.
    NoTraffic,
}

/// Crashes at records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Crashes {
    #[default]
    Never,
    /// At the record with this number, once.
    At(u64, Moment),
    /// At every fourth record or so.
    Often(Moment),
}

/// When exactly a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The record was decided, but is not on disk.
    BeforeItIsDurable,
    /// It is on disk; what it asks for was not begun.
    BeforeItsEffect,
    /// What it asks for was done; nobody heard of that.
    AfterItsEffect,
}

impl Moment {
    pub const ALL: [Moment; 3] =
        [Moment::BeforeItIsDurable, Moment::BeforeItsEffect, Moment::AfterItsEffect];
}

/// What an effect meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Normal,
    Slow,
    /// Done, but what is heard, late, is that it failed.
    LostAnswer,
    /// Not done, and that is heard late.
    LostRequest,
    /// Not done, and that is heard at once.
    Failed,
    /// Done twice.
    Doubled,
}

impl Faults {
    /// What goes wrong in `span` from `start` on.
    pub fn draw(plan: &Plan, start: Time, span: Millis, chance: &mut Chance) -> Self {
        let mut script = Vec::new();
        for _ in 0..chance.among(2..25) {
            let at = start + Millis(chance.among(0..span.0.max(1)));
            script.push((at, draw_fault(plan, at, chance)));
        }
        if plan.direction == Direction::Restore && chance.happens(OUTAGES) {
            let until = start + Millis(chance.among(0..span.0.max(1)));
            script.push((start, Fault::Outage { how: chance.pick(&Outage::ALL), until }));
        }
        // A clock that is set a lot would leave nothing to see.
        Faults {
            effects: chance.pick(&[0, 50, 300]),
            script,
            crashes: Crashes::Never,
            until: start + span,
            manner: chance.weigh(&[(7, Manner::Approve), (2, Manner::Skip), (1, Manner::Ignore)]),
            gives_up: true,
        }
    }

    pub fn fate(&self, now: Time, chance: &mut Chance) -> Fate {
        if now >= self.until || !chance.happens(self.effects) {
            return Fate::Normal;
        }
        chance.pick(&[Fate::Slow, Fate::LostAnswer, Fate::LostRequest, Fate::Failed, Fate::Doubled])
    }
}

fn draw_fault(plan: &Plan, at: Time, chance: &mut Chance) -> Fault {
    match chance.among(0..12) {
        0..=1 => Fault::Crash { back_after: Millis(chance.among(0..90_000)) },
        2..=4 if !plan.conditions.is_empty() => Fault::Lie {
            condition: ConditionId(chance.index(plan.conditions.len()) as u32),
            lie: match chance.among(0..6) {
                0 => Lie::Stuck(chance.pick(&[0.0, 0.01, 0.5, 2.0])),
                1 => Lie::Wrong(chance.pick(&[0.0, 0.5, 1.5, 10.0])),
                2 => Lie::Missing,
                3 => Lie::NoTraffic,
                _ => Lie::Frozen,
            },
            until: at + Millis(chance.among(1000..300_000)),
        },
        5 => Fault::Drift {
            knob: KnobId(chance.index(plan.knobs.len()) as u32),
            value: Value::Number(chance.pick(&[0.0, 0.3, 1.0])),
        },
        6 => {
            let own = |name: &str| name == plan.datacenter;
            let drained = plan.datacenters.iter().map(|place| match own(&place.name) {
                true => 0.0,
                false => chance.pick(&[0.0, 0.0, 0.0, 0.5, 1.0]),
            });
            Fault::Fleet { drained: drained.collect() }
        }
        10 => Fault::Break {
            knob: KnobId(chance.index(plan.knobs.len()) as u32),
            is_refused: chance.happens(300),
            until: at + Millis(chance.among(1000..600_000)),
        },
        11 => Fault::Use {
            knob: KnobId(chance.index(plan.knobs.len()) as u32),
            until: at + Millis(chance.among(1000..300_000)),
        },
        7 => Fault::Jump { by: chance.pick(&[-60_000, -3000, 2000, 45_000, 600_000]) },
        _ => Fault::Say {
            by: chance.pick(&[ANN, BOB, ANN_AS_BOB]),
            command: draw_command(plan, chance),
        },
    }
}

fn draw_command(plan: &Plan, chance: &mut Chance) -> Command {
    let task = TaskId(chance.index(plan.tasks.len()) as u32);
    let any = chance.happens(500).then_some(task);
    match chance.among(0..14) {
        0..=1 => Command::Pause { task: any },
        2..=3 => Command::Resume { task: any },
        4 => Command::Skip { task },
        5 => Command::Stop { task },
        6 => Command::Retry { task },
        7 if !plan.conditions.is_empty() => Command::Override {
            condition: ConditionId(chance.index(plan.conditions.len()) as u32),
            task: any,
        },
        8 => Command::Accelerate { task: any },
        9..=10 => Command::Approve { task },
        11 => Command::SetMode { mode: chance.pick(&[Mode::Drill, Mode::Disaster]) },
        12 => Command::WaiveLimits,
        _ => Command::Abort { how: chance.pick(&[Abort::Hold, Abort::Revert]) },
    }
}
