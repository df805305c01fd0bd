//! Tasks as runbooks make them: of every built-in template, and of templates that
//! somebody wrote. Plans that are drawn take them from here, so
//! what is tried is what templates really consist of.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use drain::runbook::Library;
use drain::{
    BudgetId, Condition, ConditionId, Direction, Fence, Goal, KnobId, Opening, Plan, Source, Stage,
    StageKind, TaskId, Value,
};

use super::scenario::DRAINED;
use super::sketch::Sketch;

const FILES: [(&str, &str); 4] = [
    ("cutover.yaml", include_str!("stock/cutover.yaml")),
    ("handover.yaml", include_str!("stock/handover.yaml")),
    ("service.yaml", include_str!("stock/service.yaml")),
    ("evacuation.yaml", include_str!("stock/evacuation.yaml")),
];

/// Where knobs stand before a drain; all others are settings that nobody made.
const ORIGINALS: [(&str, f64); 3] =
    [("weight:SERVICE/a", 1.0), ("primary:SERVICE/a", 0.0), ("primary:STORE/a", 0.0)];

/// The plans that the stock makes, to drain and to restore.
fn plan(direction: Direction) -> &'static Plan {
    static PLANS: OnceLock<[Plan; 2]> = OnceLock::new();
    let [drain, restore] = PLANS.get_or_init(|| {
        let files = FILES.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let library = Library::new(files.into());
        let settings = ["state", "spare", "motd", "network"].map(|name| format!("{name}/SERVICE"));
        let fences = ["fence/STORE", "fence-new/STORE", "writes/all"].map(str::to_owned);
        let settings = settings.into_iter().chain(fences);
        let originals: BTreeMap<String, Value> = ORIGINALS
            .map(|(knob, at)| (knob.to_owned(), Value::Number(at)))
            .into_iter()
            .chain(settings.map(|name| (format!("config:{name}"), Value::Text(String::new()))))
            .collect();
        [Direction::Drain, Direction::Restore].map(|direction| {
            library.plan(DRAINED, direction, &BTreeMap::new(), &originals).unwrap_or_else(
                |problems| {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    panic!("the stock is sound: {}", problems.join("\n"))
                },
            )
        })
    });
    match direction {
        Direction::Drain => drain,
        Direction::Restore => restore,
    }
}

impl Sketch {
    /// Adds the task that is called so in the stock, as one of `owner`, a service
    /// or a store.
    pub fn take(&mut self, from: &str, owner: &str, after: &[TaskId]) -> TaskId {
        let stock = plan(self.plan.direction);
        let found = stock.find_task(&format!("SERVICE.{from}"));
        let found = stock.task(found.unwrap_or_else(|| panic!("the stock has no {from}")));
        let mut graft = Graft { stock, owner, sketch: self };
        let stages = found.stages.iter().map(|stage| graft.stage(stage)).collect();
        let budgets: Vec<(BudgetId, f64)> =
            found.budgets.iter().map(|(id, wants)| (graft.budget(*id), *wants)).collect();
        let fences = found.fences.iter();
        let fences =
            fences.map(|own| Fence { knob: graft.knob(own.knob), ..own.clone() }).collect();
        let opens = found.opens.iter();
        let opens = opens.map(|own| Opening {
            fence: graft.knob(own.fence),
            primary: graft.knob(own.primary),
            ..own.clone()
        });
        let opens = opens.collect();
        let task = self.task(&format!("{owner}.{from}"), after, Vec::new());
        let own = self.last();
        own.template.clone_from(&found.template);
        (own.stages, own.undo, own.budgets) = (stages, found.undo.clone(), budgets);
        (own.fences, own.opens) = (fences, opens);
        task
    }
}

/// Brings what a task of the stock names into another plan.
struct Graft<'g> {
    stock: &'static Plan,
    owner: &'g str,
    sketch: &'g mut Sketch,
}

impl Graft<'_> {
    fn text(&self, text: &str) -> String {
        text.replace("SERVICE", self.owner).replace("STORE", self.owner)
    }

    fn knob(&mut self, id: KnobId) -> KnobId {
        let knob = self.stock.knob(id);
        let name = self.text(&knob.name);
        self.sketch.knob(&knob.driver, &name)
    }

    fn budget(&self, id: BudgetId) -> BudgetId {
        let name = &self.stock.budgets[id.index()].name;
        let at = self.sketch.plan.budgets.iter().position(|own| own.name == *name);
        BudgetId(at.expect("the plan has the budgets of the stock") as u32)
    }

    fn condition(&mut self, id: ConditionId) -> ConditionId {
        let of = self.stock.condition(id).clone();
        let source = match of.source {
            Source::Query(query) => Source::Query(self.text(&query)),
            Source::Gauge(knob) => Source::Gauge(self.knob(knob)),
        };
        self.sketch.adopt(Condition { name: self.text(&of.name), source, ..of })
    }

    fn stage(&mut self, stage: &Stage) -> Stage {
        let kind = match &stage.kind {
            StageKind::Shift { knob, to } => {
                StageKind::Shift { knob: self.knob(*knob), to: to.clone() }
            }
            StageKind::Set { knob, to, of } => {
                StageKind::Set { knob: self.knob(*knob), to: to.clone(), of: of.clone() }
            }
            StageKind::PutBack { knob } => StageKind::PutBack { knob: self.knob(*knob) },
            StageKind::Verify { knob, to } => {
                StageKind::Verify { knob: self.knob(*knob), to: to.clone() }
            }
            StageKind::Govern { knob, budget } => {
                StageKind::Govern { knob: self.knob(*knob), budget: self.budget(*budget) }
            }
            StageKind::Act(act) => {
                let mut act = act.clone();
                for value in act.arguments.values_mut() {
                    *value = self.text(value);
                }
                StageKind::Act(act)
            }
            StageKind::Await { condition } => {
                StageKind::Await { condition: self.condition(*condition) }
            }
            StageKind::Check { condition } => {
                StageKind::Check { condition: self.condition(*condition) }
            }
            StageKind::Say(saying) => {
                let mut saying = saying.clone();
                saying.text = self.text(&saying.text);
                StageKind::Say(saying)
            }
            same @ (StageKind::TimedWait { .. }
            | StageKind::Barrier { .. }
            | StageKind::Approve { .. }) => same.clone(),
        };
        Stage { kind, ..stage.clone() }
    }
}

/// Says which share of the primaries the fences of a drain keep from taking writes: all
/// that the datacenter has.
pub fn fence_all(stages: &mut [Stage], share: f64) {
    for stage in stages {
        if let StageKind::Set { of: Some(of), .. } = &mut stage.kind
            && *of == Value::Number(1.0)
        {
            *of = Value::Number(share).into_name();
        }
    }
}

/// Has a task bring a knob that is its own to where it stood in this world.
pub fn aim(stages: &mut [Stage], knob: KnobId, at: f64) {
    for stage in stages {
        match &mut stage.kind {
            StageKind::Shift { knob: own, to } if *own == knob => {
                *to = Goal::Original(Value::Number(at));
            }
            // As plans have it of what is promoted.
            StageKind::Set { knob: own, to, .. } if *own == knob => {
                *to = Goal::Original(Value::Number(at).into_name());
            }
            _ => {}
        }
    }
}
