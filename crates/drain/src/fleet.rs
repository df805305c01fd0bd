//! The position of the fleet: what has left which datacenter, whatever moved
//! it. It follows from the values of all traffic knobs and the loads of the
//! services, not from what tasks of runs say, so it is the same after an abort,
//! a skip, a partial restore or a change by hand.
//!
//! Weights are relative: what a datacenter serves of a service follows from the
//! weights of all. A lone 0.10 carries everything.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine::{Mode, Phase, State};
use crate::plan::{
    Datacenter, Direction, Knob, KnobId, Plan, Position, ServiceTraffic, TrafficKnob,
};

/// Shares that differ by less are the same.
const ROUNDING: f64 = 1e-9;
/// Multipliers are recorded in steps of one of so many.
const STEPS: f64 = 1000.0;

/// Changes of a multiplier that are smaller are recorded only if they matter.
const MOVED_MIN: f64 = 0.05;

/// What every datacenter of a plan is open to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// For each service of [`Plan::traffic`] and each datacenter of the plan:
    /// the share of its traffic knobs that is open, 0 to 1. `None`: unknown.
    pub multipliers: Vec<Vec<Option<f64>>>,
    /// For each datacenter: the run that was there last, if any.
    pub runs: Vec<Option<RunAt>>,
}

/// A run that moved the traffic of a datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAt {
    pub run: u64,
    pub direction: Direction,
    /// It goes on, so its datacenter counts as drained: it will be, or it is
    /// not served yet.
    pub is_open: bool,
}

/// What is known of a run, of whatever datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherRun<'r> {
    pub run: u64,
    pub datacenter: &'r str,
    pub direction: Direction,
    pub is_open: bool,
}

/// A limit that would be broken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitReached {
    pub limit: Limit,
    /// The service that would be served by too few datacenters.
    pub service: Option<String>,
    /// Datacenters that serve, or the share of the capacity that is drained.
    pub found: f64,
    pub bound: f64,
    /// Which datacenters do not serve, and because of which runs.
    pub because: Vec<Absent>,
    /// The datacenter that the run drains.
    pub datacenter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    ServingMin,
    DrainedMax,
    /// Whether a limit would be broken cannot be told.
    Unknown,
}

/// A datacenter that does not serve, or not all that it could.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    pub datacenter: String,
    /// The share that is drained; `None` if its knobs cannot be read.
    pub drained: Option<f64>,
    pub run: Option<RunAt>,
}

impl Fleet {
    /// The position of the fleet: from the positions of knobs as far as they are
    /// known, what runs `recorded` of services without knobs (by service and
    /// datacenter; `None` if that is unknown), and the runs that there are. `own` is the run that asks.
    ///
    /// An open run counts as if it were through: of two drains the earlier one
    /// for the later, so that one of them continues, and a restore for all, since
    /// it may be put back. Of what has ended the values decide.
    pub fn of(
        plan: &Plan,
        own: Option<u64>,
        position: impl Fn(&Knob) -> Option<Position>,
        recorded: impl Fn(&str, &str) -> Option<f64>,
        runs: &[OtherRun<'_>],
    ) -> Fleet {
        let row = |traffic: &ServiceTraffic| {
            let row = plan.datacenters.iter().enumerate().map(|(at, datacenter)| {
                let recorded = recorded(&traffic.service, &datacenter.name);
                traffic.multiplier(at, &position, recorded)
            });
            row.collect()
        };
        let run_at = |datacenter: &Datacenter| {
            let there = runs.iter().filter(|run| run.datacenter == datacenter.name);
            let newest = there.filter(|run| Some(run.run) != own).max_by_key(|run| run.run)?;
            let counts =
                newest.direction == Direction::Restore || own.is_none_or(|own| newest.run < own);
            Some(RunAt {
                run: newest.run,
                direction: newest.direction,
                is_open: newest.is_open && counts && datacenter.name != plan.datacenter,
            })
        };
        Fleet {
            multipliers: plan.traffic.iter().map(row).collect(),
            runs: plan.datacenters.iter().map(run_at).collect(),
        }
    }

    /// The position in which a run left its own datacenter, by what it wrote. The
    /// others are as they were when it was planned.
    ///
    /// A service without traffic knobs has left once a drain began to move it,
    /// and is back once a restore has completed all of its tasks.
    pub fn left_by(plan: &Plan, state: &State) -> Fleet {
        let mut fleet = match plan.fleet.is_of(plan) {
            true => plan.fleet.clone(),
            false => Fleet::unmoved(plan),
        };
        let Some(own) = plan.own_index() else { return fleet };
        let position = |knob: &Knob| {
            let at = plan.knobs.iter().position(|other| other == knob)?;
            let found = state.tasks.iter().find_map(|task| task.origin(KnobId(at as u32)));
            let value = state.knobs[at].as_ref().map(|left| &left.value).or(found)?.clone();
            let original = found.filter(|_| plan.direction == Direction::Drain).cloned();
            Some(Position { value, original, is_out: false })
        };
        for (traffic, row) in plan.traffic.iter().zip(&mut fleet.multipliers) {
            let knobs = &traffic.datacenters[own].knobs;
            let planned = row[own];
            let shares: Option<Vec<f64>> = knobs
                .iter()
                .map(|knob| match position(&knob.knob) {
                    Some(Position { value, original, .. }) => {
                        let original = knob.original.clone().or(original);
                        Some(TrafficKnob { original, ..knob.clone() }.multiplier(&value))
                    }
                    None => planned,
                })
                .collect();
            row[own] = match shares {
                _ if knobs.is_empty() => knobless(plan, state, &traffic.service).or(planned),
                Some(shares) => Some(shares.into_iter().fold(1.0, f64::min)),
                None => None,
            };
        }
        fleet
    }

    /// Nothing was moved, except what a restore is there for.
    pub fn unmoved(plan: &Plan) -> Fleet {
        let is_away =
            |at: usize| plan.direction == Direction::Restore && Some(at) == plan.own_index();
        let open = |own: &ServiceTraffic, at| !is_away(at) && own.is_in(at);
        let row = |own: &ServiceTraffic| {
            let row = (0..plan.datacenters.len()).map(|at| Some(f64::from(open(own, at))));
            row.collect()
        };
        Fleet {
            multipliers: plan.traffic.iter().map(row).collect(),
            runs: vec![None; plan.datacenters.len()],
        }
    }

    /// Whether it is about the services and datacenters of a plan.
    pub fn is_of(&self, plan: &Plan) -> bool {
        self.multipliers.len() == plan.traffic.len()
            && self.multipliers.iter().all(|row| row.len() == plan.datacenters.len())
            && self.runs.len() == plan.datacenters.len()
            && self.multipliers.iter().flatten().flatten().all(|own| (0.0..=1.0).contains(own))
    }

    /// The same as the limits of a plan count it: its own datacenter and those
    /// of open runs are drained, and small changes are none.
    pub fn counted(&self, plan: &Plan) -> Fleet {
        let mut counted = self.clone();
        for row in &mut counted.multipliers {
            for (at, own) in row.iter_mut().enumerate() {
                let is_open = self.runs[at].is_some_and(|run| run.is_open);
                *own = match own {
                    _ if is_open || Some(at) == plan.own_index() => Some(0.0),
                    // What lets a little in lets something in.
                    Some(share) => Some((*share * STEPS).ceil() / STEPS),
                    None => None,
                };
            }
        }
        counted
    }

    /// Whether another position is worth a record: the limits say something
    /// else of it, another run is there, or something moved by more than a bit.
    /// Load balancers that follow the load change weights all the time.
    pub fn differs(&self, known: &Fleet, plan: &Plan) -> bool {
        let is_barred = |fleet: &Fleet, mode| fleet.check_limits(plan, mode).is_err();
        let moved = |(own, known): (&Option<f64>, &Option<f64>)| match (own, known) {
            (Some(own), Some(known)) => {
                (own - known).abs() >= MOVED_MIN || (*own > 0.0) != (*known > 0.0)
            }
            (own, known) => own.is_some() != known.is_some(),
        };
        let shares = self.multipliers.iter().flatten().zip(known.multipliers.iter().flatten());
        !known.is_of(plan)
            || self.runs != known.runs
            || [Mode::Drill, Mode::Disaster]
                .into_iter()
                .any(|mode| is_barred(self, mode) != is_barred(known, mode))
            || shares.into_iter().any(moved)
    }

    /// The share of a datacenter that is drained: the mean over its services,
    /// each as heavy as its load there. What is unknown is as `unknown` says.
    pub fn drained_share(&self, plan: &Plan, datacenter: usize, unknown: f64) -> f64 {
        let is_loaded = plan.traffic.iter().any(|own| own.datacenters[datacenter].load > 0.0);
        let (mut gone, mut all) = (0.0, 0.0);
        for (own, row) in plan.traffic.iter().zip(&self.multipliers) {
            let weight = match is_loaded {
                true => own.datacenters[datacenter].load,
                false => f64::from(own.is_in(datacenter)),
            };
            gone += weight * (1.0 - row[datacenter].unwrap_or(unknown));
            all += weight;
        }
        if all > 0.0 { (gone / all).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Whether the limits of a plan hold with its own datacenter drained; if
    /// not, which one does not, and why. In a disaster what is unknown is taken
    /// to serve.
    pub fn check_limits(&self, plan: &Plan, mode: Mode) -> Result<(), LimitReached> {
        if !self.is_of(plan) {
            // A plan from before there was a position to speak of.
            return Ok(());
        }
        let counted = self.counted(plan);
        if mode == Mode::Drill {
            counted.check_known(plan)?;
        }
        for at in 0..plan.traffic.len() {
            counted.check_serving(plan, at)?;
        }
        counted.check_drained(plan)
    }

    /// With all that is unknown taken to serve nothing.
    pub fn with_unknown_drained(&self) -> Fleet {
        let mut fleet = self.clone();
        fleet.multipliers.iter_mut().flatten().for_each(|share| _ = share.get_or_insert(0.0));
        fleet
    }

    fn check_known(&self, plan: &Plan) -> Result<(), LimitReached> {
        for (own, row) in plan.traffic.iter().zip(&self.multipliers) {
            let unknown = |at: &usize| row[*at].is_none();
            let because: Vec<Absent> = (0..row.len())
                .filter(unknown)
                .map(|at| Absent {
                    datacenter: plan.datacenters[at].name.clone(),
                    drained: None,
                    run: self.runs[at],
                })
                .collect();
            if !because.is_empty() {
                return Err(LimitReached {
                    limit: Limit::Unknown,
                    service: Some(own.service.clone()),
                    found: 0.0,
                    bound: 0.0,
                    because,
                    datacenter: plan.datacenter.clone(),
                });
            }
        }
        Ok(())
    }

    /// A service that is in fewer datacenters than must serve has to be in all
    /// of the others.
    fn check_serving(&self, plan: &Plan, service: usize) -> Result<(), LimitReached> {
        let (own, row) = (&plan.traffic[service], &self.multipliers[service]);
        let others = || (0..row.len()).filter(|at| Some(*at) != plan.own_index());
        let expected = others().filter(|at| own.is_in(*at)).count() as u32;
        let needs_one = own.datacenters.iter().any(|at| !at.knobs.is_empty());
        let bound = plan.limits.serving_min.min(expected.max(u32::from(needs_one)));
        // Its knob may exist, and be open, where the service is not.
        let serves = |at: &usize| own.is_in(*at) && row[*at].unwrap_or(1.0) > 0.0;
        let serving = others().filter(serves).count() as u32;
        if serving >= bound {
            return Ok(());
        }
        let absent = others().filter(|at| own.is_in(*at) && row[*at] == Some(0.0));
        let because = absent.map(|at| Absent {
            datacenter: plan.datacenters[at].name.clone(),
            drained: Some(1.0),
            run: self.runs[at],
        });
        Err(LimitReached {
            limit: Limit::ServingMin,
            service: Some(own.service.clone()),
            found: f64::from(serving),
            bound: f64::from(bound),
            because: because.collect(),
            datacenter: plan.datacenter.clone(),
        })
    }

    fn check_drained(&self, plan: &Plan) -> Result<(), LimitReached> {
        let share = |at: usize| match Some(at) == plan.own_index() {
            true => 1.0,
            // Without services there is nothing but the run to go by.
            false if self.runs[at].is_some_and(|run| run.is_open) => 1.0,
            false => self.drained_share(plan, at, 1.0),
        };
        let all: f64 = plan.datacenters.iter().map(|own| own.capacity).sum();
        let gone: f64 =
            plan.datacenters.iter().enumerate().map(|(at, own)| own.capacity * share(at)).sum();
        if all <= 0.0 || gone / all <= plan.limits.drained_max + ROUNDING {
            return Ok(());
        }
        let absent = (0..plan.datacenters.len())
            .filter(|at| Some(*at) != plan.own_index() && share(*at) > 0.0);
        let because = absent.map(|at| Absent {
            datacenter: plan.datacenters[at].name.clone(),
            drained: Some(share(at)),
            run: self.runs[at],
        });
        Err(LimitReached {
            limit: Limit::DrainedMax,
            service: None,
            found: gone / all,
            bound: plan.limits.drained_max,
            because: because.collect(),
            datacenter: plan.datacenter.clone(),
        })
    }
}

/// What a run says about a service that no knob carries, if it moved it.
fn knobless(plan: &Plan, state: &State, service: &str) -> Option<f64> {
    let mut of = plan
        .task_ids()
        .filter(|id| plan.task(*id).service == service)
        .map(|id| state.task(id))
        .peekable();
    of.peek()?;
    match plan.direction {
        Direction::Drain => {
            let has_begun = of.any(|own| own.started.is_some() && own.phase != Phase::Reverted);
            has_begun.then_some(0.0)
        }
        Direction::Restore => of.all(|own| own.phase == Phase::Done).then_some(1.0),
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, found, bound, datacenter, because, .. } = self;
        let service = service.as_deref().unwrap_or("the fleet");
        let because: Vec<String> = because.iter().map(Absent::to_string).collect();
        let because = match because.is_empty() {
            true => String::new(),
            false => format!(": {}", because.join(", ")),
        };
        match self.limit {
            Limit::ServingMin => write!(
                f,
                "serving_min is {bound}, and without {datacenter} {found} {} would serve \
                 {service}{because}",
                if *found == 1.0 { "datacenter" } else { "datacenters" },
            ),
            Limit::DrainedMax => write!(
                f,
                "drained_max is {} %, and without {datacenter} {} % of the capacity would be \
                 drained{because}",
                percent(*bound),
                percent(*found),
            ),
            Limit::Unknown => {
                write!(f, "whether {service} is served elsewhere is unknown{because}")
            }
        }
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.datacenter)?;
        match self.drained {
            None => write!(f, ", of which a traffic knob cannot be read")?,
            Some(share) if share < 1.0 => write!(f, " is {} % drained", percent(share))?,
            Some(_) => write!(f, " is drained")?,
        }
        let Some(RunAt { run, direction, is_open }) = self.run else { return Ok(()) };
        let what = match direction {
            Direction::Drain => "drain",
            Direction::Restore => "restore",
        };
        let open = if is_open { "open " } else { "" };
        write!(f, " ({open}{what}, run {run})")
    }
}

/// Whole percent, but what is not all is never shown as all.
fn percent(share: f64) -> f64 {
    let percent = (share * 100.0).round();
    if share < 1.0 && percent >= 100.0 { 99.0 } else { percent + 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{KeepDrained, Limits, TrafficAt};
    use crate::value::Value;

    fn plan(serving_min: u32, drained_max: f64) -> Plan {
        let names = ["east", "west", "south"];
        let datacenter =
            |name: &str| Datacenter { name: name.into(), capacity: 100.0, load: 0.0, line: 0.75 };
        let at = |service: &str, name: &str| TrafficAt {
            load: 10.0,
            knobs: vec![TrafficKnob {
                knob: Knob { driver: "edge".into(), name: format!("{service}/{name}") },
                goal: Value::Number(0.0),
                original: None,
            }],
            ..TrafficAt::default()
        };
        let traffic = |service: &str| ServiceTraffic {
            service: service.into(),
            datacenters: names.map(|name| at(service, name)).to_vec(),
        };
        Plan {
            datacenter: "east".into(),
            direction: Direction::Drain,
            tasks: Vec::new(),
            knobs: Vec::new(),
            conditions: Vec::new(),
            health: Vec::new(),
            budgets: Vec::new(),
            datacenters: names.map(datacenter).to_vec(),
            limits: Limits { serving_min, drained_max },
            traffic: ["web", "chat"].map(traffic).to_vec(),
            fleet: Fleet::default(),
            keep_drained: KeepDrained::default(),
            puts_back: None,
            changed: None,
            services: Default::default(),
            left_behind: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// What the limits say when each knob has such a value, with 1 before.
    fn verdict(plan: &Plan, values: [[Option<f64>; 3]; 2], runs: &[OtherRun<'_>]) -> String {
        let position = |knob: &Knob| {
            let (service, name) = knob.name.split_once('/')?;
            let at = plan.datacenters.iter().position(|own| own.name == name)?;
            let value = Value::Number(values[usize::from(service == "chat")][at]?);
            Some(Position { value, original: Some(Value::Number(1.0)), is_out: false })
        };
        let fleet = Fleet::of(plan, Some(7), position, |_, _| Some(1.0), runs);
        assert!(fleet.is_of(plan));
        match fleet.check_limits(plan, Mode::Drill) {
            Ok(()) => "within".into(),
            Err(reached) => reached.to_string(),
        }
    }

    fn run(run: u64, datacenter: &str, direction: Direction, is_open: bool) -> OtherRun<'_> {
        OtherRun { run, datacenter, direction, is_open }
    }

    const ALL: [Option<f64>; 3] = [Some(1.0); 3];

    #[test]
    fn the_limit_that_blocks_is_named_with_its_run() {
        let aborted = [run(3, "west", Direction::Drain, false)];
        let values = [[Some(1.0), Some(0.0), Some(1.0)], ALL];
        assert_eq!(
            verdict(&plan(2, 1.0), values, &aborted),
            "serving_min is 2, and without east 1 datacenter would serve web: west is drained \
             (drain, run 3)"
        );
        assert_eq!(verdict(&plan(1, 1.0), values, &aborted), "within");
        assert_eq!(
            verdict(&plan(1, 0.4), values, &aborted),
            "drained_max is 40 %, and without east 50 % of the capacity would be drained: west is \
             50 % drained (drain, run 3)"
        );
    }

    #[test]
    fn an_open_run_counts_as_if_it_were_through() {
        let limits = plan(2, 1.0);
        let reason = "serving_min is 2, and without east 1 datacenter would serve web: west is \
                      drained ";
        let verdict = |of: OtherRun<'_>| verdict(&limits, [ALL; 2], &[of]);
        let earlier = verdict(run(3, "west", Direction::Drain, true));
        assert_eq!(earlier, format!("{reason}(open drain, run 3)"));
        assert_eq!(verdict(run(9, "west", Direction::Drain, true)), "within", "it waits for us");
        let restore = verdict(run(9, "west", Direction::Restore, true));
        assert_eq!(restore, format!("{reason}(open restore, run 9)"));
        assert_eq!(verdict(run(3, "west", Direction::Drain, false)), "within", "it is over");
    }

    #[test]
    fn what_is_unknown_bars_a_drill_but_not_a_disaster() {
        let limits = plan(1, 0.5);
        let said = verdict(&limits, [ALL, [Some(1.0), None, Some(1.0)]], &[]);
        assert_eq!(
            said,
            "whether chat is served elsewhere is unknown: west, of which a traffic knob cannot be \
             read"
        );
        let fleet =
            Fleet { multipliers: vec![vec![Some(1.0), None, Some(1.0)]; 2], runs: vec![None; 3] };
        assert_eq!(fleet.check_limits(&limits, Mode::Disaster), Ok(()));
    }

    #[test]
    fn a_little_traffic_is_traffic_and_a_little_less_than_all_is_not_all() {
        let values = [[Some(1.0), Some(0.005), Some(0.0)], ALL];
        assert_eq!(verdict(&plan(1, 1.0), values, &[]), "within");
        assert_eq!((percent(0.999), percent(1.0), percent(-0.0)), (99.0, 100.0, 0.0));
    }

    #[test]
    fn small_changes_are_recorded_only_where_a_limit_turns_on_them() {
        let limits = plan(1, 0.51);
        let at = |west: f64| Fleet {
            multipliers: vec![vec![Some(1.0), Some(west), Some(1.0)]; 2],
            runs: vec![None; 3],
        };
        let differs = |own: f64, known: f64| at(own).differs(&at(known), &limits);
        assert!(!differs(0.98, 1.0) && !differs(0.62, 0.6));
        assert!(differs(0.9, 1.0), "it moved");
        assert!(differs(0.001, 0.0), "it serves");
        // 33 % are drained with east, and 51 % are allowed: west may be without 53 %.
        assert!(differs(0.46, 0.48) && !differs(0.55, 0.57), "the limit turns on it");
        let runs = vec![Some(RunAt { run: 1, direction: Direction::Drain, is_open: true }); 3];
        assert!(Fleet { runs, ..at(1.0) }.differs(&at(1.0), &limits));
    }

    #[test]
    fn a_service_that_is_nowhere_else_is_not_drained_without_two_people() {
        let mut lone = plan(1, 1.0);
        for at in [1, 2] {
            lone.traffic[0].datacenters[at].load = 0.0;
        }
        let values = [[Some(1.0), None, None], ALL];
        assert_eq!(
            verdict(&lone, values, &[]),
            "serving_min is 1, and without east 0 datacenters would serve web"
        );
        // In two of three it has to be in the other one, whatever serving_min says.
        lone.limits.serving_min = 2;
        lone.traffic[0].datacenters[1].load = 10.0;
        let values = [[Some(1.0), Some(1.0), None], ALL];
        assert_eq!(verdict(&lone, values, &[]), "within");
    }

    #[test]
    fn a_datacenter_that_a_service_is_not_in_does_not_serve_it() {
        let mut limits = plan(1, 1.0);
        // Its knob exists there all the same, and is open.
        limits.traffic[0].datacenters[2].load = 0.0;
        let values = [[Some(1.0), Some(0.0), Some(1.0)], ALL];
        assert_eq!(
            verdict(&limits, values, &[]),
            "serving_min is 1, and without east 0 datacenters would serve web: west is drained"
        );
        // Where no load is declared at all, nothing says where it is.
        limits.traffic[0].datacenters.iter_mut().for_each(|own| own.load = 0.0);
        assert_eq!(verdict(&limits, values, &[]), "within");
    }
}
