//! What a plan will do, before anything is moved: in which order, how long it
//! takes, whether the rest can carry the load, and which knobs move.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::load::{Loads, Unserved};
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
    /// Services that no datacenter serves, before or after.
    #[serde(default)]
    pub unserved: Vec<Unserved>,
    /// Load that a drain moves and that has no place below the utilization
    /// limits of the others.
    pub too_much: f64,
    /// Whether all load that a drain moves has a place, and is served. A restore
    /// always fits: there is no better place than where it comes from.
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

/// A datacenter before the run and after it, from the present position of all
/// datacenters. The sums of both are the same, with what is unserved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    pub datacenter: String,
    pub capacity: f64,
    /// What may be used of it: its utilization limit.
    pub usable: f64,
    pub before: f64,
    pub after: f64,
    /// The share of its capacity that is used afterwards.
    pub utilisation: f64,
    /// Whether it is within its limit, or at least not loaded more than before.
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
        let loads = Loads::of(self);
        let capacity = self.capacity_after(&loads);
        let too_much = self.too_much(&capacity);
        let is_lost = |own: &Unserved| own.after > own.before;
        let loses = self.direction == Direction::Drain && loads.unserved.iter().any(is_lost);
        Foresight {
            waves,
            critical_path: self.critical_path(&tasks),
            total: tasks.iter().map(|task| task.ends).max().unwrap_or_default(),
            tasks,
            fits: too_much <= 0.0 && !loses,
            capacity,
            unserved: loads.unserved,
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

    pub(crate) fn predict(&self, task: &Task) -> (Millis, Basis) {
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

    pub(crate) fn predict_stage(&self, task: &Task, stage: &Stage) -> Millis {
        let hold = |condition: ConditionId| self.condition(condition).hold_for;
        match &stage.kind {
            StageKind::Shift { .. } => {
                let steps = task.pace.steps();
                Millis(task.pace.wait.0.saturating_mul(u64::from(steps)))
            }
            StageKind::Set { .. } | StageKind::PutBack { .. } | StageKind::Verify { .. } => {
                SET_USUALLY
            }
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

    pub(crate) fn longest_hold(&self, conditions: &[ConditionId]) -> Millis {
        let holds = conditions.iter().map(|condition| self.condition(*condition).hold_for);
        holds.max().unwrap_or_default()
    }

    /// What each datacenter serves before and after.
    fn capacity_after(&self, loads: &Loads) -> Vec<Capacity> {
        let capacity = self.datacenters.iter().zip(loads.before.iter().zip(&loads.after));
        let capacity = capacity.map(|(datacenter, (before, after))| {
            let usable = datacenter.capacity * datacenter.line;
            // Sums of fractions are never exact.
            let rounding = datacenter.capacity.max(*before) * 1e-9;
            Capacity {
                datacenter: datacenter.name.clone(),
                capacity: datacenter.capacity,
                usable,
                before: *before,
                after: *after,
                utilisation: if datacenter.capacity > 0.0 {
                    after / datacenter.capacity
                } else {
                    0.0
                },
                fits: *after <= usable.max(*before) + rounding,
            }
        });
        capacity.collect()
    }

    /// What a drain moves to where it has no place. What was too much before is
    /// not its doing.
    fn too_much(&self, capacity: &[Capacity]) -> f64 {
        if self.direction == Direction::Restore {
            return 0.0;
        }
        let over = capacity.iter().filter(|own| !own.fits);
        over.fold(0.0, |all, own| all + own.after - own.usable.max(own.before))
    }

    fn moves(&self, positions: &BTreeMap<KnobId, Value>) -> Vec<Move> {
        // Where each knob stands after the tasks so far.
        let mut stands = positions.clone();
        let mut moves = Vec::new();
        for id in self.task_ids() {
            for stage in self.task(id).forward() {
                let (StageKind::Shift { knob, to } | StageKind::Set { knob, to, .. }) = &stage.kind
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
        self.steps_from(0.0, self.first)
    }

    /// How many steps are left from a share of the way on, if health never
    /// objects and the next one is `step`.
    pub fn steps_from(&self, way: f64, step: f64) -> u32 {
        const STEPS_MAX: u32 = 100_000;
        let (mut step, mut way, mut steps) = (step, way, 0);
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
            fences: vec![],
            opens: vec![],
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
        });
        let at = |(_, load): &(f64, f64)| TrafficAt { load: *load, ..TrafficAt::default() };
        let traffic =
            ServiceTraffic { service: "web".into(), datacenters: loads.iter().map(at).collect() };
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
            traffic: vec![traffic],
            fleet: Fleet::default(),
            keep_drained: KeepDrained::default(),
            puts_back: None,
            changed: None,
            services: Default::default(),
            left_behind: Vec::new(),
            idle: Vec::new(),
        }
    }

    fn with_open(mut plan: Plan, open: &[f64]) -> Plan {
        plan.fleet = Fleet {
            multipliers: vec![open.iter().copied().map(Some).collect()],
            runs: vec![None; open.len()],
        };
        plan
    }

    fn before_and_after(plan: &Plan) -> (Vec<f64>, Vec<f64>, Foresight) {
        let foresight = plan.foresee(&BTreeMap::new());
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        let before = foresight.capacity.iter().map(|own| rounded(own.before)).collect();
        let after = foresight.capacity.iter().map(|own| rounded(own.after)).collect();
        (before, after, foresight)
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
    fn load_goes_to_the_others_by_their_weights() {
        let even = plan(Vec::new(), &[(100.0, 30.0), (100.0, 40.0), (100.0, 20.0)]);
        let (before, after, foresight) = before_and_after(&even);
        assert_eq!(before, [30.0, 40.0, 20.0]);
        assert_eq!(after, [0.0, 60.0, 30.0]);
        assert!(foresight.fits && foresight.unserved.is_empty());
        let tight = plan(Vec::new(), &[(100.0, 70.0), (100.0, 50.0), (100.0, 40.0)]);
        let (_, after, foresight) = before_and_after(&tight);
        assert_eq!(after, [0.0, 88.89, 71.11]);
        assert!(!foresight.fits && !foresight.capacity[1].fits && foresight.capacity[2].fits);
        assert!((foresight.too_much - 13.888_888).abs() < 1e-3);
    }

    #[test]
    fn the_load_of_a_drained_datacenter_is_where_its_weights_sent_it() {
        let loads = [(100.0, 30.0), (100.0, 30.0), (100.0, 30.0)];
        // dc1 was drained before: its load is on the others already, and it is not overloaded.
        let drained = with_open(plan(Vec::new(), &loads), &[1.0, 0.0, 1.0]);
        let (before, after, foresight) = before_and_after(&drained);
        assert_eq!(before, [45.0, 0.0, 45.0]);
        assert_eq!(after, [0.0, 0.0, 90.0]);
        assert!(foresight.capacity[1].fits, "nothing is no overload");
        assert!(!foresight.capacity[2].fits);
        assert_eq!(foresight.too_much, 15.0);
    }

    #[test]
    fn a_lone_weight_of_a_tenth_carries_everything() {
        let loads = [(100.0, 30.0), (100.0, 30.0)];
        let lone = with_open(plan(Vec::new(), &loads), &[0.1, 0.0]);
        let (before, after, foresight) = before_and_after(&lone);
        assert_eq!((before, after), (vec![60.0, 0.0], vec![0.0, 0.0]));
        let nowhere = Unserved { service: "web".into(), before: 0.0, after: 60.0 };
        assert_eq!(foresight.unserved, [nowhere]);
        assert_eq!((foresight.fits, foresight.too_much), (false, 0.0));
    }

    #[test]
    fn a_restore_fits_whatever_is_down() {
        let loads = [(100.0, 60.0), (100.0, 60.0)];
        for open in [[0.0, 0.0], [0.0, 1.0]] {
            let mut both = with_open(plan(Vec::new(), &loads), &open);
            both.direction = Direction::Restore;
            let (before, after, foresight) = before_and_after(&both);
            assert!(foresight.fits, "{foresight:?}");
            assert_eq!(foresight.too_much, 0.0);
            match open[1] > 0.0 {
                true => assert_eq!((before, after), (vec![0.0, 120.0], vec![60.0, 60.0])),
                false => assert_eq!((before, after), (vec![0.0, 0.0], vec![120.0, 0.0])),
            }
        }
    }

    #[test]
    fn what_was_overloaded_before_is_not_the_fault_of_a_plan() {
        let mut over = plan(Vec::new(), &[(100.0, 0.0), (100.0, 90.0)]);
        over.traffic[0].datacenters[0].load = 0.0;
        assert!(over.foresee(&BTreeMap::new()).fits, "it does not grow");
    }

    #[test]
    fn measured_load_goes_before_the_declared_one_if_all_of_it_is_known() {
        let loads = [(100.0, 30.0), (100.0, 30.0), (100.0, 30.0)];
        let mut measured = with_open(plan(Vec::new(), &loads), &[1.0, 0.5, 1.0]);
        let set = |plan: &mut Plan, values: [Option<f64>; 3]| {
            let own = plan.traffic[0].datacenters.iter_mut();
            own.zip(values).for_each(|(own, value)| own.measured = value);
        };
        set(&mut measured, [Some(20.0), Some(10.0), Some(60.0)]);
        let (before, after, _) = before_and_after(&measured);
        assert_eq!(before, [20.0, 10.0, 60.0]);
        assert_eq!(after, [0.0, 12.86, 77.14], "by what they draw now");
        set(&mut measured, [Some(20.0), None, Some(60.0)]);
        let (before, ..) = before_and_after(&measured);
        assert_eq!(before, [36.0, 18.0, 36.0], "the declared one");
        // What is drained has no series.
        let mut drained = with_open(plan(Vec::new(), &loads), &[1.0, 0.0, 1.0]);
        set(&mut drained, [Some(20.0), None, Some(60.0)]);
        let (before, after, _) = before_and_after(&drained);
        assert_eq!((before, after), (vec![20.0, 0.0, 60.0], vec![0.0, 0.0, 80.0]));
    }

    #[test]
    fn an_empty_plan_is_foreseen() {
        let foresight = plan(Vec::new(), &[]).foresee(&BTreeMap::new());
        assert_eq!((foresight.total, foresight.fits), (Millis::ZERO, true));
    }
}
