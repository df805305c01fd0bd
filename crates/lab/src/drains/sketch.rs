//! Plans of few lines, for worlds that have no runbooks.

use drain::fleet::Fleet;
use drain::{
    Comparison, Condition, ConditionId, Datacenter, Direction, Exit, Expected, Goal, KeepDrained,
    Knob, KnobId, Limits, Millis, Next, NoData, OnBreach, Pace, Plan, ServiceTraffic, Source,
    Stage, StageId, StageKind, Task, TaskId, TrafficAt, Value,
};

use super::world::Site;

/// Makes a plan, piece by piece.
#[derive(Clone, Debug)]
pub struct Sketch {
    pub plan: Plan,
}

/// A pace that suits most.
pub const PACE: Pace = Pace {
    first: 0.05,
    step_max: 0.25,
    wait: Millis::from_secs(20),
    wait_max: Millis::from_secs(60),
    adaptive: true,
    on_breach: OnBreach::Hold,
    patience: Millis::from_secs(60),
};

impl Sketch {
    pub fn new(site: &Site, datacenter: &str, direction: Direction) -> Self {
        let place = |place: &super::world::Place| Datacenter {
            name: place.name.clone(),
            capacity: place.capacity,
            load: 0.0,
            line: place.line,
        };
        // One service that is everywhere: limits are about it, and others move its traffic.
        let everywhere = ServiceTraffic {
            service: "all".into(),
            datacenters: vec![
                TrafficAt { load: 1.0, ..TrafficAt::default() };
                site.datacenters.len()
            ],
        };
        Sketch {
            plan: Plan {
                datacenter: datacenter.into(),
                direction,
                tasks: Vec::new(),
                knobs: Vec::new(),
                conditions: Vec::new(),
                health: Vec::new(),
                budgets: Vec::new(),
                datacenters: site.datacenters.iter().map(place).collect(),
                limits: Limits { serving_min: 1, drained_max: 0.5 },
                traffic: vec![everywhere],
                fleet: Fleet::default(),
                keep_drained: KeepDrained::default(),
                puts_back: None,
                changed: None,
                services: Default::default(),
                left_behind: Vec::new(),
                idle: Vec::new(),
            },
        }
    }

    /// The knob that is called so: `weight:web/a`.
    pub fn knob(&mut self, driver: &str, name: &str) -> KnobId {
        let knob = Knob { driver: driver.into(), name: name.into() };
        let known = self.plan.knobs.iter().position(|own| *own == knob);
        let at = known.unwrap_or_else(|| {
            self.plan.knobs.push(knob);
            self.plan.knobs.len() - 1
        });
        KnobId(at as u32)
    }

    pub fn condition(&mut self, query: &str, comparison: Comparison, bound: f64) -> ConditionId {
        let condition = Condition {
            name: format!("{query} {} {bound}", comparison.symbol()),
            source: Source::Query(query.into()),
            comparison,
            bound,
            hold_for: Millis::ZERO,
            max_age: Millis::from_secs(30),
            no_data: NoData::Block,
            no_traffic: NoData::Block,
            no_traffic_back: NoData::Block,
            is_exact: false,
        };
        self.adopt(condition)
    }

    /// The condition that is called so; this one, if there is none.
    pub fn adopt(&mut self, condition: Condition) -> ConditionId {
        let known = self.plan.conditions.iter().position(|own| own.name == condition.name);
        let at = known.unwrap_or_else(|| {
            self.plan.conditions.push(condition);
            self.plan.conditions.len() - 1
        });
        ConditionId(at as u32)
    }

    /// A task whose stages follow each other.
    pub fn task(&mut self, name: &str, after: &[TaskId], kinds: Vec<StageKind>) -> TaskId {
        let count = kinds.len();
        let stage = |(at, kind): (usize, StageKind)| {
            let is_last = at + 1 == count;
            let failed = Next::Exit(Exit::Failed);
            Stage {
                name: format!("stage-{at}"),
                kind,
                timeout: None,
                done: match is_last {
                    true => Next::Exit(Exit::Done),
                    false => Next::Stage(StageId(at as u32 + 1)),
                },
                failed,
                late: failed,
                retry: StageId(at as u32),
                is_interruptible: true,
            }
        };
        self.plan.tasks.push(Task {
            name: name.into(),
            service: name.split('.').next().unwrap_or(name).into(),
            template: "Sketch".into(),
            priority: 0,
            after: after.to_vec(),
            after_weak: Vec::new(),
            pre: Vec::new(),
            health: Vec::new(),
            post: Vec::new(),
            stages: kinds.into_iter().enumerate().map(stage).collect(),
            undo: None,
            fences: vec![],
            opens: Vec::new(),
            pace: PACE,
            timeout: Millis::from_secs(3600),
            budgets: Vec::new(),
            expected: Expected::default(),
        });
        TaskId(self.plan.tasks.len() as u32 - 1)
    }

    pub fn shift(&mut self, driver: &str, name: &str, to: f64) -> StageKind {
        StageKind::Shift { knob: self.knob(driver, name), to: Goal::Value(Value::Number(to)) }
    }

    pub fn set(&mut self, driver: &str, name: &str, to: &str) -> StageKind {
        StageKind::Set {
            knob: self.knob(driver, name),
            to: Goal::Value(Value::Text(to.into())),
            of: None,
        }
    }

    /// The task that was made last.
    pub fn last(&mut self) -> &mut Task {
        self.plan.tasks.last_mut().expect("a task was made")
    }
}
