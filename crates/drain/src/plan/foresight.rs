//! What a plan will do, before anything is moved: in which order, how long it
//! takes, whether the rest can carry the load, and which knobs move.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::*;

/// What stages take of which nothing is known. Rough on purpose: what matters is
/// that the first plan is not off by an order of magnitude; after that, history
/// speaks.
const SET_USUALLY: Millis = Millis::from_secs(5);
const ACT_USUALLY: Millis = Millis::from_secs(30);
const AWAIT_USUALLY: Millis = Millis::from_secs(60);
const CHECK_USUALLY: Millis = Millis::from_secs(5);
const APPROVE_USUALLY: Millis = Millis::from_secs(300);

/// A plan looked at before it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Foresight {
    /// Tasks that can run at the same time, each set after the one before.
    pub waves: Vec<Vec<TaskId>>,
    /// One for each task of the plan, in its order.
    pub tasks: Vec<Predicted>,
    /// The tasks that decide how long it takes, in their order.
    pub critical_path: Vec<TaskId>,
    pub total: Millis,
    /// One for each datacenter of the plan, in its order.
    pub capacity: Vec<Capacity>,
    /// Load that has no place below the lines of the others.
    pub too_much: f64,
    /// Whether all load has a place.
    pub fits: bool,
    pub moves: Vec<Move>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    pub wave: u32,
    pub lasts: Millis,
    pub basis: Basis,
    /// At the earliest, from the start of the run.
    pub starts: Millis,
    pub ends: Millis,
    /// How much longer it may take without the run taking longer.
    pub slack: Millis,
}

/// What a prediction stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// How long the task took before.
    History,
    /// Its pace, and what its stages usually take.
    Pace,
}

/// A datacenter after the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    pub datacenter: String,
    pub capacity: f64,
    /// What may be used of it.
    pub usable: f64,
    pub before: f64,
    pub after: f64,
    /// The share of its capacity that is used afterwards.
    pub utilisation: f64,
    pub fits: bool,
}

/// A knob that will move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    pub task: TaskId,
    pub knob: KnobId,
    /// `None`: nobody has read it.
    pub from: Option<Value>,
    pub to: Value,
}

impl Plan {
    /// Looks ahead. `positions` are what knobs stand at now, as far as they were
    /// read.
    pub fn foresee(&self, positions: &BTreeMap<KnobId, Value>) -> Foresight {
        let tasks = self.schedule();
        let last_wave = tasks.iter().map(|task| task.wave as usize + 1).max().unwrap_or(0);
        let mut waves = vec![Vec::new(); last_wave];
        for (id, task) in self.task_ids().zip(&tasks) {
            waves[task.wave as usize].push(id);
        }
        let (capacity, too_much) = self.capacity_after();
        Foresight {
            waves,
            critical_path: self.critical_path(&tasks),
            total: tasks.iter().map(|task| task.ends).max().unwrap_or_default(),
            tasks,
            fits: too_much <= 0.0 && capacity.iter().all(|datacenter| datacenter.fits),
            capacity,
            too_much,
            moves: self.moves(positions),
        }
    }

    /// Every task as early as its parents allow. Parents come first in a plan,
    /// so one pass each way is enough.
    fn schedule(&self) -> Vec<Predicted> {
        let mut tasks: Vec<Predicted> = Vec::with_capacity(self.tasks.len());
        for task in &self.tasks {
            let parents = || task.parents().map(|parent| &tasks[parent.index()]);
            let (lasts, basis) = self.predict(task);
            let starts = parents().map(|parent| parent.ends).max().unwrap_or_default();
            let wave = parents().map(|parent| parent.wave + 1).max().unwrap_or(0);
            let ends = starts + lasts;
            tasks.push(Predicted { wave, lasts, basis, starts, ends, slack: Millis::ZERO });
        }
        let total = tasks.iter().map(|task| task.ends).max().unwrap_or_default();
        let mut latest_end = vec![total; tasks.len()];
        for id in self.task_ids().rev() {
            let at = id.index();
            let latest_start = Millis(latest_end[at].0.saturating_sub(tasks[at].lasts.0));
            tasks[at].slack = Millis(latest_end[at].0.saturating_sub(tasks[at].ends.0));
            for parent in self.task(id).parents() {
                let limit = &mut latest_end[parent.index()];
                *limit = (*limit).min(latest_start);
            }
        }
        tasks
    }

    fn critical_path(&self, tasks: &[Predicted]) -> Vec<TaskId> {
        let mut path = Vec::new();
        // Among equals the earlier task, so that the same plan has the same path.
        let rank = |id: &TaskId| (tasks[id.index()].ends, Reverse(*id));
        let mut next = self.task_ids().max_by_key(rank);
        while let Some(id) = next {
            path.push(id);
            next = self.task(id).parents().max_by_key(rank);
        }
        path.reverse();
        path
    }

    fn predict(&self, task: &Task) -> (Millis, Basis) {
        if let Some(usual) = task.expected.usual {
            return (usual, Basis::History);
        }
        let mut lasts = self.longest_hold(&task.pre) + self.longest_hold(&task.post);
        // Along the way on which everything goes well. A template may come back
        // to a stage; each counts once.
        let mut seen = vec![false; task.stages.len()];
        let mut next = Next::Stage(StageId(0));
        while let Next::Stage(id) = next
            && let Some(stage) = task.stages.get(id.index())
            && !std::mem::replace(&mut seen[id.index()], true)
        {
            lasts = lasts + self.predict_stage(task, stage);
            next = stage.done;
        }
        (lasts, Basis::Pace)
    }

    fn predict_stage(&self, task: &Task, stage: &Stage) -> Millis {
        let hold = |condition: ConditionId| self.condition(condition).hold_for;
        match &stage.kind {
            StageKind::Shift { .. } => {
                let steps = task.pace.steps();
                Millis(task.pace.wait.0.saturating_mul(u64::from(steps)))
            }
            StageKind::Set { .. } | StageKind::PutBack { .. } => SET_USUALLY,
            StageKind::Act(_) => ACT_USUALLY,
            StageKind::Await { condition } => AWAIT_USUALLY.max(hold(*condition)),
            StageKind::Check { condition } => CHECK_USUALLY + hold(*condition),
            StageKind::TimedWait { span } => *span,
            StageKind::Approve { .. } => APPROVE_USUALLY,
            StageKind::Govern { .. } | StageKind::Barrier { .. } | StageKind::Say(_) => {
                Millis::ZERO
            }
        }
    }

    fn longest_hold(&self, conditions: &[ConditionId]) -> Millis {
        let holds = conditions.iter().map(|condition| self.condition(*condition).hold_for);
        holds.max().unwrap_or_default()
    }

    /// Where the load of the drained datacenter goes: to the others, in
    /// proportion to what each has free below its line. What finds no place
    /// there still has to be served, and goes by capacity.
    fn capacity_after(&self) -> (Vec<Capacity>, f64) {
        let drains = |datacenter: &Datacenter| {
            self.direction == Direction::Drain && datacenter.name == self.datacenter
        };
        let usable = |datacenter: &Datacenter| {
            datacenter.capacity * datacenter.line * (1.0 - datacenter.drained)
        };
        let free = |datacenter: &Datacenter| (usable(datacenter) - datacenter.load).max(0.0);
        let stays = || self.datacenters.iter().filter(|datacenter| !drains(datacenter));
        let moved: f64 = self.datacenters.iter().filter(|dc| drains(dc)).map(|dc| dc.load).sum();
        let free_all: f64 = stays().map(free).sum();
        let capacity_all: f64 = stays().map(|dc| dc.capacity).sum();
        let placed = moved.min(free_all);
        let too_much = moved - placed;
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        let capacity = self.datacenters.iter().map(|datacenter| {
            let after = if drains(datacenter) {
                0.0
            } else {
                datacenter.load
                    + placed * share(free(datacenter), free_all)
                    + too_much * share(datacenter.capacity, capacity_all)
            };
            // Sums of fractions are never exact.
            let rounding = datacenter.capacity * 1e-9;
            Capacity {
                datacenter: datacenter.name.clone(),
                capacity: datacenter.capacity,
                usable: usable(datacenter),
                before: datacenter.load,
                after,
                utilisation: share(after, datacenter.capacity),
                fits: after <= usable(datacenter) + rounding,
            }
        });
        (capacity.collect(), too_much)
    }

    fn moves(&self, positions: &BTreeMap<KnobId, Value>) -> Vec<Move> {
        // Where each knob stands after the tasks so far.
        let mut stands = positions.clone();
        let mut moves = Vec::new();
        for id in self.task_ids() {
            for stage in self.task(id).forward() {
                let (StageKind::Shift { knob, to } | StageKind::Set { knob, to }) = &stage.kind
                else {
                    continue;
                };
                let from = stands.insert(*knob, to.value().clone());
                moves.push(Move { task: id, knob: *knob, from, to: to.value().clone() });
            }
        }
        moves
    }
}

impl Pace {
    /// How many steps the whole way takes if health never objects.
    pub fn steps(&self) -> u32 {
        const STEPS_MAX: u32 = 100_000;
        let (mut step, mut way, mut steps) = (self.first, 0.0, 0);
        // The same rounding as where a knob counts as there.
        while way < 1.0 - 1e-9 && steps < STEPS_MAX && step > 0.0 {
            way += step;
            steps += 1;
            if self.adaptive {
                step = (step * 2.0).min(self.step_max);
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        first: 0.05,
        step_max: 0.25,
        wait: Millis::from_secs(10),
        wait_max: Millis::from_secs(60),
        adaptive: true,
        on_breach: OnBreach::Hold,
        patience: Millis::from_secs(60),
    };

    fn task(name: &str, after: &[u32], wait_secs: u64) -> Task {
        let span = Millis::from_secs(wait_secs);
        let done = Next::Exit(Exit::Done);
        let failed = Next::Exit(Exit::Failed);
        let kind = StageKind::TimedWait { span };
        let name = name.to_owned();
        Task {
            service: name.clone(),
            name,
            template: "Wait".into(),
            priority: 0,
            after: after.iter().copied().map(TaskId).collect(),
            after_weak: Vec::new(),
            pre: Vec::new(),
            health: Vec::new(),
            post: Vec::new(),
            stages: vec![Stage {
                name: "wait".into(),
                kind,
                timeout: None,
                done,
                failed,
                late: failed,
                retry: StageId(0),
                is_interruptible: true,
            }],
            undo: None,
            pace: PACE,
            timeout: Millis::from_secs(3600),
            budgets: Vec::new(),
            expected: Expected::default(),
        }
    }

    fn plan(tasks: Vec<Task>, loads: &[(f64, f64)]) -> Plan {
        let datacenters = loads.iter().enumerate().map(|(at, (capacity, load))| Datacenter {
            name: format!("dc{at}"),
            capacity: *capacity,
            load: *load,
            line: 0.75,
            drained: 0.0,
        });
        Plan {
            datacenter: "dc0".into(),
            direction: Direction::Drain,
            tasks,
            knobs: Vec::new(),
            conditions: Vec::new(),
            health: Vec::new(),
            budgets: Vec::new(),
            datacenters: datacenters.collect(),
            limits: Limits { serving_min: 1, drained_max: 0.5 },
        }
    }

    #[test]
    fn steps_double_up_to_the_largest() {
        // 5, 10, 20, 25, 25, and 15 that are left.
        assert_eq!(PACE.steps(), 6);
        assert_eq!(Pace { adaptive: false, ..PACE }.steps(), 20);
        assert_eq!(Pace { first: 1.0, step_max: 1.0, ..PACE }.steps(), 1);
    }

    #[test]
    fn the_longest_way_decides() {
        let tasks = vec![
            task("a", &[], 10),
            task("b", &[], 30),
            task("c", &[0], 15),
            task("d", &[1, 2], 5),
            task("e", &[0], 1),
        ];
        let mut foresight = plan(tasks.clone(), &[]).foresee(&BTreeMap::new());
        assert_eq!(foresight.total, Millis::from_secs(35));
        assert_eq!(foresight.critical_path, [TaskId(1), TaskId(3)]);
        let waves: Vec<_> = foresight.waves.iter().map(Vec::len).collect();
        assert_eq!(waves, [2, 2, 1]);
        assert_eq!(foresight.tasks[2].slack, Millis::from_secs(5));
        assert_eq!(foresight.tasks[3].slack, Millis::ZERO);
        // What is known of a task goes before what its stages say.
        let mut known = tasks;
        known[2].expected.usual = Some(Millis::from_secs(60));
        foresight = plan(known, &[]).foresee(&BTreeMap::new());
        assert_eq!(foresight.critical_path, [TaskId(0), TaskId(2), TaskId(3)]);
        assert_eq!(foresight.tasks[2].basis, Basis::History);
    }

    #[test]
    fn load_goes_where_there_is_room_below_the_line() {
        let foresight = plan(Vec::new(), &[(100.0, 30.0), (100.0, 55.0), (100.0, 35.0)])
            .foresee(&BTreeMap::new());
        let after: Vec<_> = foresight.capacity.iter().map(|dc| dc.after).collect();
        assert_eq!(after, [0.0, 65.0, 55.0]);
        assert!(foresight.fits);
        let foresight = plan(Vec::new(), &[(100.0, 70.0), (100.0, 55.0), (100.0, 35.0)])
            .foresee(&BTreeMap::new());
        assert!(!foresight.fits);
        assert!((foresight.too_much - 10.0).abs() < 1e-9);
        assert_eq!(foresight.capacity[1].after, 80.0);
    }

    #[test]
    fn an_empty_plan_is_foreseen() {
        let foresight = plan(Vec::new(), &[]).foresee(&BTreeMap::new());
        assert_eq!((foresight.total, foresight.fits), (Millis::ZERO, true));
    }
}
