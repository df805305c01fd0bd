//! A plan with something left out, to see what that was good for.

use drain::{Millis, Plan, TaskId};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ablation {
    /// No task waits for another.
    Dependencies,
    /// Every shift is one step.
    Pacing,
    /// Every step is as large as the first.
    AdaptivePace,
    /// Everybody gets as much of every budget as it wants.
    Budgets,
    /// One task at a time, in the order of the plan.
    Parallelism,
}

impl Ablation {
    pub const ALL: [Ablation; 5] = [
        Ablation::Dependencies,
        Ablation::Pacing,
        Ablation::AdaptivePace,
        Ablation::Budgets,
        Ablation::Parallelism,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Ablation::Dependencies => "dependencies",
            Ablation::Pacing => "pacing",
            Ablation::AdaptivePace => "adaptive-pace",
            Ablation::Budgets => "budgets",
            Ablation::Parallelism => "parallelism",
        }
    }

    pub fn named(name: &str) -> Option<Ablation> {
        Ablation::ALL.into_iter().find(|own| own.name() == name)
    }

    pub fn apply(self, plan: &mut Plan) {
        match self {
            Ablation::Dependencies => {
                for task in &mut plan.tasks {
                    task.after.clear();
                    task.after_weak.clear();
                }
            }
            Ablation::Pacing => {
                for task in &mut plan.tasks {
                    let pace = &mut task.pace;
                    (pace.first, pace.step_max, pace.adaptive) = (1.0, 1.0, false);
                    pace.wait = Millis::ZERO;
                }
            }
            Ablation::AdaptivePace => {
                plan.tasks.iter_mut().for_each(|task| task.pace.adaptive = false);
            }
            Ablation::Budgets => {
                let wanted = |at: usize| -> f64 {
                    let of_tasks = plan.tasks.iter().flat_map(|task| &task.budgets);
                    of_tasks.filter(|(id, _)| id.index() == at).map(|(_, wants)| wants).sum()
                };
                let sizes: Vec<f64> = (0..plan.budgets.len()).map(wanted).collect();
                for (budget, size) in plan.budgets.iter_mut().zip(sizes) {
                    budget.size = budget.size.max(size);
                }
            }
            Ablation::Parallelism => {
                for at in 1..plan.tasks.len() {
                    plan.tasks[at].after.push(TaskId(at as u32 - 1));
                }
            }
        }
    }
}
