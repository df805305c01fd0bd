//! What holds of every run, one checker for each property. Checkers see the
//! log, what the run was told, and what the world was made to do; of the engine
//! they know no more than the plan.

mod approvals;
mod barriers;
mod budgets;
mod claims;
mod ends;
mod fences;
mod gates;
mod limits;
mod once;
mod order;
mod outages;
mod places;
mod primaries;
mod progress;
mod reasons;
mod recorded;
mod replay;
mod said;
mod stated;
mod waits;
mod ways;

use std::fmt;
use std::sync::Arc;

use drain::engine::{Effect, EffectId, Record, State};
use drain::{ConditionId, KnobId, Measurement, Plan, Time, Value};

use super::world::{World, Written};
use crate::Violation;

/// What a checker sees. The time beside it is the run's.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// A record is durable.
    Recorded(&'e Record),
    /// Nothing is left to be decided for now.
    Rested { state: &'e State },
    /// A run was told the value of a condition, and when that was taken.
    Told { condition: ConditionId, asked: Time, found: Option<Measurement> },
    /// A person says something: what the kernel knows of who it is.
    Said { uid: u32 },
    /// A run was told how much of each datacenter others have drained.
    Fleet { drained: &'e [f64] },
    /// The run was taken up from its log; what it was told is forgotten.
    Resumed { state: &'e State },
    /// The world is about to be made to do something: where all knobs of the plan are.
    Performing { effect: EffectId, what: &'e Effect, knobs: &'e [Value] },
    /// The world was made to do something.
    Performed { effect: EffectId, what: &'e Effect, written: &'e Written },
    /// A run looks at a knob, and is told where it stands.
    Looked { knob: KnobId },
    /// Somebody else turned a knob, and where to, if that is known.
    Meddled { knob: KnobId, value: Option<&'e Value> },
    /// Another run uses a knob, until then by the clock of this one.
    Used { knob: KnobId, until: Time },
    /// Nothing more will happen.
    Finished { state: &'e State, world: &'e World },
}

pub trait Checker: fmt::Debug {
    fn name(&self) -> &'static str;

    /// Sees one event; says what is wrong with it.
    fn see(&mut self, now: Time, event: &Event<'_>) -> Result<(), String>;
}

#[derive(Debug)]
pub struct Checkers(Vec<Box<dyn Checker>>);

impl Checkers {
    /// `executed` is what is carried out: the plan, unless something is wrong
    /// with it on purpose.
    pub fn all(plan: &Arc<Plan>, executed: &Arc<Plan>) -> Self {
        Checkers(vec![
            Box::new(order::Order::new(plan)),
            Box::new(gates::Gates::new(plan)),
            Box::new(outages::Outages::new(plan)),
            Box::new(fences::Fences::new(plan)),
            Box::new(primaries::Primaries::new(plan)),
            Box::new(claims::Claims::new(plan)),
            Box::new(limits::Limits::new(plan)),
            Box::new(budgets::Budgets::new(plan)),
            Box::new(waits::Waits::new(plan)),
            Box::new(ways::Ways::new(plan)),
            Box::new(places::Places::new(plan)),
            Box::new(barriers::Barriers::new(plan)),
            Box::new(approvals::Approvals::new(plan)),
            Box::new(said::Said::new(plan)),
            Box::new(recorded::Recorded::default()),
            Box::new(once::Once::default()),
            // Before whoever sees that a record was changed.
            Box::new(reasons::Reasons::new(executed)),
            Box::new(replay::Replay::new(executed)),
            Box::new(stated::Stated::new(plan)),
            Box::new(ends::Ends::new(plan)),
        ])
    }

    pub fn none() -> Self {
        Checkers(Vec::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Shows an event to all; returns the first violation.
    pub fn see(&mut self, now: Time, event: &Event<'_>) -> Option<Violation> {
        self.0.iter_mut().find_map(|checker| {
            let what = checker.see(now, event).err()?;
            Some(Violation { checker: checker.name(), what })
        })
    }
}
