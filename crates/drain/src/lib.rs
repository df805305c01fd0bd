//! Moves the traffic of interdependent services out of a failing datacenter,
//! and back, as fast as their health allows.
//!
//! A [`Plan`] says what is to be done: tasks, what each waits for, and the
//! stages it consists of. A [`Run`] carries a plan out. It has no clock and
//! touches nothing: events and the time go in, [`Record`]s come out; whoever
//! drives it makes them durable first and then does what they ask for. The
//! state of a run is nothing but its records, applied in order, so a run that
//! was cut off goes on from the last one that was written.
#![forbid(unsafe_code)]

mod condition;
pub mod date;
pub mod engine;
pub mod fleet;
mod forecast;
pub mod history;
mod number;
mod plan;
pub mod report;
pub mod runbook;
mod time;
mod value;

pub use condition::{Comparison, Condition, Measurement, NoData, Observed, Source, Verdict};
pub use forecast::{Eta, Forecast, forecast};
pub use number::{number, percent};
pub use plan::{
    Act, Away, Basis, Budget, BudgetId, Capacity, ConditionId, Datacenter, DatacenterId, Direction,
    Exit, Expected, Fence, Foresight, Goal, IdleTask, KeepDrained, Knob, KnobId, LOAD_MAX,
    LeftBehind, Limits, Move, Next, OnBreach, Opening, Outcome, Pace, Plan, Position, Predicted,
    Saying, ServiceTraffic, Stage, StageId, StageKind, TakesOut, Task, TaskId, TrafficAt,
    TrafficKnob, Undo, UndoBy, Unserved,
};
pub use runbook::promql;
pub use time::{Millis, Time};
pub use value::Value;
