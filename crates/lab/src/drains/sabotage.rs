//! Things that are wrong on purpose, each one that a checker has to find. None
//! is in the engine: it is given another plan than the checkers know, or what
//! it says and hears is changed on the way.

use drain::engine::{Effect, Fact, Record};
use drain::{Direction, Measurement, Millis, NoData, Plan, Stage, StageKind, Time, Value};

/// Longer than any run takes.
const FOR_EVER: Millis = Millis::from_secs(30 * 24 * 3600);

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Dependencies are forgotten.
    NoParents,
    /// Health is forgotten.
    NoHealth,
    /// Nobody hears of other runs.
    DeafToOthers,
    /// There is twice as much of everything to share.
    DoubledBudgets,
    /// Timed waits take no time.
    NoWaits,
    /// Effects are done before they are written down.
    EffectFirst,
    /// The world does not know fences.
    NoFences,
    /// A record is changed on its way to disk.
    AlteredRecord,
    /// What is said to be put back is not.
    FeignedRevert,
    /// The end of an effect is never heard.
    LostEnd,
    /// Every try of an act counts as another one.
    NoOccasions,
    /// Looks find every knob where it was left.
    BlindLooks,
    /// Nobody waits for others at a barrier.
    NoBarriers,
    /// One person less is asked.
    FewerPeople,
    /// Who somebody is follows from the name that was typed.
    TypedNames,
    /// Nobody says anything, and all go on.
    Mute,
    /// What was being said when the run died counts as said.
    TakenAsSaid,
    /// What stages wait for and check is forgotten.
    NoLooks,
    /// What goes wrong leads where all is well.
    NoFailures,
    /// Nobody has as much time as it should.
    ShortTimeouts,
    /// What is set is tried without end.
    EndlessTries,
    /// A sample counts as taken when it is given.
    TimeOfAnswer,
    /// What is undone is undone by putting knobs back.
    NoUndo,
    /// What follows a fence is held by whatever holds other stages.
    HeldFences,
    /// What is done behind a fence is repeated as anything else is.
    ForgottenFences,
    /// On the way back of a restore all seems well.
    BlindReturns,
    /// What divides 0 by 0 counts as 0: nothing fails.
    ZeroByZeroIsZero,
    /// What divides 0 by 0 blocks, whatever the plan says.
    ZeroByZeroBlocks,
    /// Bad health holds a restore for ever.
    HeldRestores,
    /// Whoever is primary is fenced and promoted over.
    AnyPrimary,
    /// What an effect requires is not looked at when it is done.
    NothingRequired,
    /// Every claim is granted.
    SharedClaims,
    /// Until a task is over its knobs seem to be where it left them.
    BlindSteps,
    /// What is elsewhere seems to be where it was before the task.
    TurnedLooks,
    /// Why a task failed is lost on the way.
    EmptyReasons,
    /// That a task is held is lost on the way.
    DroppedHolds,
}

impl Sabotage {
    /// Every sabotage with the checker that must find it.
    pub const ALL: [(Sabotage, &str); 36] = [
        (Sabotage::BlindReturns, "gates"),
        (Sabotage::ForgottenFences, "fences"),
        (Sabotage::NoParents, "order"),
        (Sabotage::NoHealth, "gates"),
        (Sabotage::DeafToOthers, "limits"),
        (Sabotage::DoubledBudgets, "budgets"),
        (Sabotage::NoWaits, "waits"),
        (Sabotage::EffectFirst, "recorded"),
        (Sabotage::NoFences, "once"),
        (Sabotage::AlteredRecord, "replay"),
        (Sabotage::FeignedRevert, "stated"),
        (Sabotage::LostEnd, "ends"),
        (Sabotage::NoOccasions, "once"),
        (Sabotage::BlindLooks, "stated"),
        (Sabotage::BlindSteps, "places"),
        (Sabotage::TurnedLooks, "places"),
        (Sabotage::NoBarriers, "barriers"),
        (Sabotage::FewerPeople, "approvals"),
        (Sabotage::TypedNames, "approvals"),
        (Sabotage::Mute, "said"),
        (Sabotage::TakenAsSaid, "said"),
        (Sabotage::NoLooks, "gates"),
        (Sabotage::NoFailures, "ways"),
        (Sabotage::ShortTimeouts, "ways"),
        (Sabotage::EndlessTries, "ways"),
        (Sabotage::TimeOfAnswer, "gates"),
        (Sabotage::NoUndo, "fences"),
        (Sabotage::HeldFences, "fences"),
        (Sabotage::ZeroByZeroIsZero, "gates"),
        (Sabotage::ZeroByZeroBlocks, "gates"),
        (Sabotage::HeldRestores, "outages"),
        (Sabotage::AnyPrimary, "primaries"),
        (Sabotage::NothingRequired, "primaries"),
        (Sabotage::SharedClaims, "claims"),
        (Sabotage::EmptyReasons, "reasons"),
        (Sabotage::DroppedHolds, "reasons"),
    ];

    /// The plan that is carried out in place of the real one.
    pub fn alter(self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        match self {
            Sabotage::NoParents => {
                plan.tasks.iter_mut().for_each(|task| {
                    task.after.clear();
                    task.after_weak.clear();
                });
            }
            Sabotage::NoHealth => {
                plan.health.clear();
                plan.tasks.iter_mut().for_each(|task| task.health.clear());
            }
            Sabotage::ForgottenFences => plan.tasks.iter_mut().for_each(|task| {
                task.fences.clear();
            }),
            Sabotage::NoUndo => plan.tasks.iter_mut().for_each(|task| task.undo = None),
            Sabotage::ZeroByZeroBlocks => {
                plan.conditions.iter_mut().for_each(|own| {
                    (own.no_traffic, own.no_traffic_back) = (NoData::Block, NoData::Block);
                });
            }
            Sabotage::HeldRestores if plan.direction == Direction::Restore => {
                plan.tasks.iter_mut().for_each(|task| task.pace.patience = FOR_EVER);
            }
            Sabotage::DoubledBudgets => {
                plan.budgets.iter_mut().for_each(|budget| budget.size *= 2.0);
            }
            _ => {}
        }
        let stages = plan.tasks.iter_mut().flat_map(|task| &mut task.stages);
        stages.for_each(|stage| self.alter_stage(stage));
        plan
    }

    fn alter_stage(self, stage: &mut Stage) {
        match (self, &mut stage.kind) {
            (Sabotage::NoWaits, StageKind::TimedWait { span }) => *span = Millis::ZERO,
            (Sabotage::FewerPeople, StageKind::Approve { people, .. }) => *people -= 1,
            (Sabotage::NoBarriers, kind @ StageKind::Barrier { .. })
            | (Sabotage::NoLooks, kind @ (StageKind::Await { .. } | StageKind::Check { .. })) => {
                *kind = StageKind::TimedWait { span: Millis::ZERO };
            }
            (Sabotage::AnyPrimary, StageKind::Set { of, .. }) => *of = None,
            (Sabotage::HeldFences, _) => stage.is_interruptible = true,
            (Sabotage::NoFailures, _) => (stage.failed, stage.late) = (stage.done, stage.done),
            (Sabotage::ShortTimeouts, _) => {
                stage.timeout = stage.timeout.map(|timeout| timeout * 0.5);
            }
            (Sabotage::EndlessTries, StageKind::Set { .. }) => stage.timeout = None,
            _ => {}
        }
    }

    /// What is written in place of a record.
    pub fn rewrite(self, record: Record) -> Record {
        let Record { seq, at, fact } = record;
        let fact = match fact {
            Fact::Issued {
                effect,
                task,
                what: Effect::Write { knob, value: Value::Number(value) },
            } if self == Sabotage::AlteredRecord => {
                let value = Value::Number(value * 0.9 + 0.01);
                Fact::Issued { effect, task, what: Effect::Write { knob, value } }
            }
            Fact::Failed { task, .. } if self == Sabotage::EmptyReasons => {
                Fact::Failed { task, why: String::new() }
            }
            Fact::Held { task, .. } if self == Sabotage::DroppedHolds => Fact::Released { task },
            other => other,
        };
        Record { seq, at, fact }
    }

    /// Whether a record is lost for good: the run is taken up without it.
    pub fn loses(self, record: &Record) -> bool {
        self == Sabotage::DroppedHolds && matches!(record.fact, Fact::Held { .. })
    }

    /// What a run is told in place of what was measured.
    pub fn distort(self, asked: Time, found: Measurement) -> Measurement {
        match self {
            // As if the time of the answer were that of the sample.
            Sabotage::TimeOfAnswer => Measurement::at(asked, found.value),
            Sabotage::ZeroByZeroIsZero if found.value.is_nan() => {
                Measurement { value: 0.0, ..found }
            }
            _ => found,
        }
    }
}
