//! What a seed makes up: a small world, and plans to drain one of its
//! datacenters and to restore it.

use std::sync::Arc;

use drain::{
    Act, Budget, BudgetId, Comparison, ConditionId, Direction, Millis, NoData, OnBreach, Pace,
    Plan, StageKind, TaskId,
};

use super::sketch::Sketch;
use super::world::{Cache, Link, Place, Service, Sessions, Site, Store};
use crate::chance::Chance;

/// The datacenter that is drained.
pub const DRAINED: &str = "a";

#[derive(Clone, Debug)]
pub struct Scenario {
    pub site: Arc<Site>,
    pub drain: Plan,
    pub restore: Plan,
}

impl Scenario {
    pub fn draw(chance: &mut Chance) -> Self {
        let site = draw_site(chance);
        let drain = Draft::new(&site, Direction::Drain, chance).drain();
        let restore = Draft::new(&site, Direction::Restore, chance).restore();
        Scenario { site: Arc::new(site), drain, restore }
    }
}

fn draw_site(chance: &mut Chance) -> Site {
    let places = chance.among(3..5) as usize;
    let names = ["a", "b", "c", "d"];
    let (backs, fronts) = (chance.among(1..3) as usize, chance.among(1..4) as usize);
    let stores = chance.among(0..3) as usize;
    let mut services = Vec::new();
    for at in 0..backs + fronts {
        let is_front = at >= backs;
        let is_sticky = is_front && chance.happens(300);
        let count = chance.among(20..60) as f64;
        services.push(Service {
            name: format!("{}-{at}", if is_front { "front" } else { "back" }),
            user_facing: is_front,
            demand: if is_sticky { 0.0 } else { count },
            cost: 1.0,
            weights: vec![1.0; places],
            propagation: Millis::from_secs(chance.among(0..20)),
            cache: chance.happens(500).then_some(Cache {
                cold_cost: 1.5,
                warms_in: Millis::from_secs(30),
                cools_in: Millis::from_secs(600),
            }),
            sessions: is_sticky.then_some(Sessions {
                count,
                half_life: Millis::from_secs(chance.among(60..900)),
                cost: 1.0,
                setup_cost: 2.0,
            }),
            calls: (0..backs).filter(|_| is_front && chance.happens(600)).collect(),
            reads: (0..stores).filter(|_| chance.happens(400)).collect(),
            uses: if stores > 0 && chance.happens(300) { vec![(0, 2.0)] } else { Vec::new() },
        });
    }
    let load: f64 =
        services.iter().map(|own| own.sessions.map_or(own.demand, |all| all.count)).sum();
    let store = |at: usize| Store {
        name: format!("store-{at}"),
        primaries: vec![Some(1.0 / places as f64); places],
        load: load / 20.0,
        promotes: 0.05,
        writes: 1.0,
        catch_up: 200.0,
        link: Some(0),
        stale_after: Millis::from_secs(60),
    };
    Site {
        name: "drawn".into(),
        scrape: Millis::from_secs(chance.among(2..10)),
        noise: 0.02,
        latency: Millis(chance.among(50..2000)),
        downtime: Millis::from_secs(chance.among(0..1200)),
        datacenters: names[..places]
            .iter()
            .map(|name| Place {
                name: (*name).into(),
                capacity: load / places as f64 / 0.4,
                line: 0.75,
            })
            .collect(),
        services,
        stores: (0..stores).map(store).collect(),
        links: vec![Link { name: "backbone".into(), capacity: 60.0, load: 20.0 }],
    }
}

/// A plan in the making.
struct Draft<'d> {
    site: &'d Site,
    sketch: Sketch,
    chance: &'d mut Chance,
}

impl<'d> Draft<'d> {
    fn new(site: &'d Site, direction: Direction, chance: &'d mut Chance) -> Self {
        let mut sketch = Sketch::new(site, DRAINED, direction);
        for place in &site.datacenters {
            let query = format!("utilisation{{dc=\"{}\"}}", place.name);
            let id = sketch.condition(&query, Comparison::Below, 0.95);
            sketch.plan.health.push(id);
        }
        // The size is what is left of the link.
        sketch.plan.budgets.push(Budget { name: "backbone".into(), size: 25.0 });
        Draft { site, sketch, chance }
    }

    fn drain(mut self) -> Plan {
        let mut of_services = vec![Vec::new(); self.site.services.len()];
        // Whoever calls goes before who is called.
        for at in (0..self.site.services.len()).rev() {
            let callers = (0..self.site.services.len())
                .filter(|caller| self.site.services[*caller].calls.contains(&at));
            let after: Vec<TaskId> =
                callers.flat_map(|caller| of_services[caller].clone()).collect();
            of_services[at] = self.move_service(at, 0.0, &after);
        }
        for at in 0..self.site.stores.len() {
            let readers = (0..self.site.services.len())
                .filter(|reader| self.site.services[*reader].reads.contains(&at));
            let after: Vec<TaskId> =
                readers.flat_map(|reader| of_services[reader].clone()).collect();
            self.drain_store(at, &after);
        }
        self.finish()
    }

    fn restore(mut self) -> Plan {
        let stores: Vec<TaskId> =
            (0..self.site.stores.len()).map(|at| self.restore_store(at)).collect();
        let mut of_services: Vec<Vec<TaskId>> = vec![Vec::new(); self.site.services.len()];
        for at in 0..self.site.services.len() {
            let own = &self.site.services[at];
            let mut after: Vec<TaskId> = own.reads.iter().map(|store| stores[*store]).collect();
            after.extend(own.calls.iter().flat_map(|callee| of_services[*callee].clone()));
            of_services[at] = self.move_service(at, 1.0, &after);
        }
        self.finish()
    }

    /// Moves the weight of a service, and what sessions are left.
    fn move_service(&mut self, at: usize, to: f64, after: &[TaskId]) -> Vec<TaskId> {
        let own = self.site.services[at].clone();
        let name = format!("{}/{DRAINED}", own.name);
        let mut stages = Vec::new();
        if self.chance.happens(100) {
            stages.push(StageKind::Approve { people: 1, question: "now?".into() });
        }
        if self.chance.happens(100) {
            stages.push(StageKind::TimedWait { span: Millis::from_secs(self.chance.among(1..60)) });
        }
        stages.push(self.sketch.shift("weight", &name, to));
        let weight = self.sketch.task(&format!("{}.weight", own.name), after, stages);
        self.dress(&own);
        let mut tasks = vec![weight];
        if own.sessions.is_some() && to == 0.0 {
            let stages = vec![
                StageKind::TimedWait { span: Millis::from_secs(self.chance.among(0..120)) },
                self.sketch.shift("sessions", &name, 0.0),
            ];
            let teardown = self.sketch.task(&format!("{}.sessions", own.name), &[weight], stages);
            self.dress(&own);
            tasks.push(teardown);
        }
        if self.chance.happens(200) {
            tasks.push(self.jobs(&own, to, &tasks.clone()));
        }
        tasks
    }

    fn jobs(&mut self, own: &Service, to: f64, after: &[TaskId]) -> TaskId {
        let action = if to == 0.0 { "note" } else { "start" };
        let arguments = [("jobs".to_owned(), format!("{}/{DRAINED}", own.name))];
        let act = Act {
            driver: "job".into(),
            action: action.into(),
            arguments: arguments.into_iter().collect(),
        };
        self.sketch.task(&format!("{}.jobs", own.name), after, vec![StageKind::Act(act)])
    }

    fn drain_store(&mut self, at: usize, after: &[TaskId]) {
        let name = self.site.stores[at].name.clone();
        let knob = format!("{name}/{DRAINED}");
        let query = format!("primaries{{store=\"{name}\",dc=\"{DRAINED}\"}}");
        let gone = self.sketch.condition(&query, Comparison::AtMost, 0.001);
        let stages = vec![self.sketch.shift("primary", &knob, 0.0)];
        let primaries = self.sketch.task(&format!("{name}.primaries"), &[], stages);
        self.sketch.last().pace = self.pace();
        self.sketch.last().post = vec![gone];
        let stages = vec![self.sketch.set("replication", &knob, "off")];
        let after: Vec<TaskId> = after.iter().copied().chain([primaries]).collect();
        self.sketch.task(&format!("{name}.replication"), &after, stages);
    }

    fn restore_store(&mut self, at: usize) -> TaskId {
        let name = self.site.stores[at].name.clone();
        let knob = format!("{name}/{DRAINED}");
        let rate = self.sketch.knob("rate", &knob);
        let query = format!("lag{{store=\"{name}\",dc=\"{DRAINED}\"}}");
        let caught_up = self.sketch.condition(&query, Comparison::Below, 2.0);
        let stages = vec![
            StageKind::Govern { knob: rate, budget: BudgetId(0) },
            self.sketch.set("replication", &knob, "on"),
            StageKind::Await { condition: caught_up },
        ];
        let replication = self.sketch.task(&format!("{name}.replication"), &[], stages);
        self.sketch.last().budgets = vec![(BudgetId(0), 20.0)];
        let share = 1.0 / self.site.datacenters.len() as f64;
        let stages = vec![self.sketch.shift("primary", &knob, share)];
        self.sketch.task(&format!("{name}.primaries"), &[replication], stages);
        self.sketch.last().pace = self.pace();
        replication
    }

    /// Health and pace of the task that was made last.
    fn dress(&mut self, own: &Service) {
        let pace = self.pace();
        let health: Vec<ConditionId> = match own.user_facing || self.chance.happens(500) {
            true => {
                let query = format!("errors{{service=\"{}\"}}", own.name);
                let id = self.sketch.condition(&query, Comparison::Below, 0.02);
                let span = Millis::from_secs(self.chance.pick(&[0, 0, 5, 15]));
                let no_data =
                    self.chance.weigh(&[(4, NoData::Block), (1, NoData::Pass), (1, NoData::Fail)]);
                let condition = &mut self.sketch.plan.conditions[id.index()];
                (condition.hold_for, condition.no_data) = (span, no_data);
                vec![id]
            }
            false => Vec::new(),
        };
        let is_pre = self.chance.happens(300);
        let priority = i32::from(own.user_facing);
        let task = self.sketch.last();
        (task.pace, task.priority) = (pace, priority);
        if is_pre {
            (task.pre, task.post) = (health.clone(), health.clone());
        }
        task.health = health;
    }

    fn pace(&mut self) -> Pace {
        Pace {
            first: self.chance.pick(&[0.02, 0.1, 0.25]),
            step_max: self.chance.pick(&[0.25, 0.5]),
            wait: Millis::from_secs(self.chance.among(1..20)),
            wait_max: Millis::from_secs(30),
            adaptive: self.chance.happens(800),
            on_breach: self.chance.weigh(&[
                (3, OnBreach::Hold),
                (2, OnBreach::BackOff),
                (1, OnBreach::Revert),
            ]),
            patience: Millis::from_secs(self.chance.among(5..60)),
        }
    }

    /// Some dependencies are weak ones.
    fn finish(mut self) -> Plan {
        for task in &mut self.sketch.plan.tasks {
            for parent in std::mem::take(&mut task.after) {
                match self.chance.happens(150) {
                    true => task.after_weak.push(parent),
                    false => task.after.push(parent),
                }
            }
        }
        self.sketch.plan
    }
}
