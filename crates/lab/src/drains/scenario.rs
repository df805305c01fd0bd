//! What a seed makes up: a small world, and plans to drain one of its
//! datacenters and to restore it.

use std::sync::Arc;

use drain::{
    Budget, Comparison, ConditionId, Direction, Millis, NoData, OnBreach, Pace, Plan, StageKind,
    TaskId,
};

use super::sketch::Sketch;
use super::stock;
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
        knobs: Vec::new(),
        metrics: Vec::new(),
    }
}

/// What people do before and after they move a service, and how they move who
/// leads a store: tasks of the stock.
const BEFORE: [&str; 5] = ["approval", "approval-of-two", "notify", "wait", "check"];
const AFTER: [&str; 6] = ["jobs", "cutover", "exec", "config", "isolate", "check-weight"];
const LEADERS: [&str; 3] = ["shards", "promote", "promote-shared"];

/// A plan in the making.
struct Draft<'d> {
    site: &'d Site,
    /// Whether what people see leaves and comes back together.
    is_together: bool,
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
        let is_together = chance.happens(500);
        Draft { site, is_together, sketch, chance }
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

    /// Moves the weight of a service and what sessions are left, with what else
    /// people do on such an occasion.
    fn move_service(&mut self, at: usize, to: f64, after: &[TaskId]) -> Vec<TaskId> {
        let own = self.site.services[at].clone();
        let mut after = after.to_vec();
        if own.sessions.is_some() && to > 0.0 {
            after.push(self.sketch.take("state", &own.name, &after));
        }
        if self.chance.happens(300) {
            let before = self.chance.pick(&BEFORE);
            after.push(self.sketch.take(before, &own.name, &after));
        }
        let way = match own.sessions.is_some() && to == 0.0 {
            true => self.chance.pick(&["sessions", "shift"]),
            false if own.user_facing && self.is_together => {
                self.chance.pick(&["handover", "shift-together"])
            }
            false => "shift",
        };
        let weight = self.sketch.take(way, &own.name, &after);
        self.dress(&own);
        let mut tasks = vec![weight];
        if own.sessions.is_some() && to == 0.0 && way == "shift" {
            let stages = vec![
                StageKind::TimedWait { span: Millis::from_secs(self.chance.among(0..120)) },
                self.sketch.shift("sessions", &format!("{}/{DRAINED}", own.name), 0.0),
            ];
            let teardown = self.sketch.task(&format!("{}.teardown", own.name), &[weight], stages);
            self.dress(&own);
            tasks.push(teardown);
        }
        if way == "handover" && to > 0.0 {
            tasks.push(self.sketch.take("spare", &own.name, &tasks));
        }
        if self.chance.happens(400) {
            let then = self.chance.pick(&AFTER);
            tasks.push(self.sketch.take(then, &own.name, &tasks));
        }
        tasks
    }

    fn drain_store(&mut self, at: usize, after: &[TaskId]) {
        let name = &self.site.stores[at].name;
        let primaries = self.sketch.take(self.chance.pick(&LEADERS), name, &[]);
        let share = 1.0 / self.site.datacenters.len() as f64;
        stock::fence_all(&mut self.sketch.last().stages, share);
        self.sketch.last().pace = self.pace();
        let after: Vec<TaskId> = after.iter().copied().chain([primaries]).collect();
        self.sketch.take("replication", name, &after);
    }

    fn restore_store(&mut self, at: usize) -> TaskId {
        let name = &self.site.stores[at].name;
        // Some come when others are under way, and want their share.
        let is_later = self.chance.happens(300);
        let after = is_later.then(|| self.sketch.take("wait", name, &[]));
        let replication = self.sketch.take("replication", name, after.as_slice());
        self.sketch.take(self.chance.pick(&LEADERS), name, &[replication]);
        self.sketch.last().pace = self.pace();
        let primary = self.sketch.knob("primary", &format!("{name}/{DRAINED}"));
        let share = 1.0 / self.site.datacenters.len() as f64;
        stock::aim(&mut self.sketch.last().stages, primary, share);
        replication
    }

    /// Health and pace of the task that was made last.
    fn dress(&mut self, own: &Service) {
        let pace = self.pace();
        let health: Vec<ConditionId> = match own.user_facing || self.chance.happens(500) {
            true => vec![self.watch(own)],
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

    /// The errors of a service, as runbooks watch them: everywhere, or of the
    /// datacenter alone, where nobody is served before a restore and after a drain.
    fn watch(&mut self, own: &Service) -> ConditionId {
        let is_ratio = self.chance.happens(150);
        let query = match is_ratio {
            true => error_ratio(&own.name),
            false => format!("errors{{service=\"{}\"}}", own.name),
        };
        let id = self.sketch.condition(&query, Comparison::Below, 0.02);
        let span = Millis::from_secs(self.chance.pick(&[0, 0, 5, 15]));
        let no_data =
            self.chance.weigh(&[(4, NoData::Block), (1, NoData::Pass), (1, NoData::Fail)]);
        // As with `no_traffic: pass_on_restore`: what leads in passes more often.
        let is_restore = self.sketch.plan.direction == Direction::Restore;
        let [no_traffic, no_traffic_back] = [is_restore, !is_restore].map(|is_inward| {
            let (block, pass) = if is_inward { (1, 4) } else { (4, 1) };
            let drawn = [(block, NoData::Block), (pass, NoData::Pass), (1, NoData::Fail)];
            if is_ratio { NoData::Pass } else { self.chance.weigh(&drawn) }
        });
        let condition = &mut self.sketch.plan.conditions[id.index()];
        (condition.hold_for, condition.no_data) = (span, no_data);
        (condition.no_traffic, condition.no_traffic_back) = (no_traffic, no_traffic_back);
        id
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

/// The share of requests that fail in the datacenter: 0/0 where there are none.
fn error_ratio(service: &str) -> String {
    let rate =
        |of: &str| format!("sum(rate({of}_total{{service=\"{service}\",dc=\"{DRAINED}\"}}[30s]))");
    format!("{} / {}", rate("failures"), rate("requests"))
}
