//! The world and the runbooks that are measured: those with the paper's shape.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use drain::engine::Record;
use drain::runbook::Library;
use drain::{Direction, Plan, Time, Value};
use lab::drains::{Ablation, Options, Simulation, Site, World, originals, pass_downtime, simulate};

/// When worlds begin: any time will do, but not none.
pub const START: Time = Time(1_000_000_000_000);
/// The datacenter that is drained, and the service whose traffic the paper's figures follow.
pub const DRAINED: &str = "east";
pub const WEB: &str = "web";

/// A world and the runbooks for it.
#[derive(Clone, Debug)]
pub struct Sample {
    pub site: Arc<Site>,
    library: Arc<Library>,
}

/// A world that was drained, with the plan to restore it.
#[derive(Debug)]
pub struct Drained {
    pub plan: Plan,
    pub simulation: Simulation,
    /// The world when its downtime is over.
    pub waiting: World,
    pub restore: Plan,
}

impl Sample {
    pub fn read(world: &Path, runbooks: &Path) -> Result<Sample> {
        let text = read(world)?;
        let site =
            Site::read(&world.display().to_string(), &text).map_err(|bad| anyhow!("{bad}"))?;
        let listed = std::fs::read_dir(runbooks)
            .with_context(|| format!("cannot list {}", runbooks.display()))?;
        let mut files = Vec::new();
        for entry in listed {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                files.push((path.display().to_string(), read(&path)?));
            }
        }
        files.sort();
        let library = Library::new(files);
        let problems: Vec<String> = library.problems().iter().map(ToString::to_string).collect();
        ensure!(library.is_sound(), "{}", problems.join("\n"));
        Ok(Sample { site: Arc::new(site), library: Arc::new(library) })
    }

    /// The same with so much of the capacity of every datacenter.
    pub fn with_capacity(&self, share: f64) -> Sample {
        let mut site = Site::clone(&self.site);
        site.datacenters.iter_mut().for_each(|place| place.capacity *= share);
        Sample { site: Arc::new(site), library: self.library.clone() }
    }

    pub fn world(&self) -> World {
        World::new(self.site.clone(), START)
    }

    pub fn drain_plan(&self) -> Result<Plan> {
        self.plan(Direction::Drain, &BTreeMap::new())
    }

    /// Drains the world, and lets it wait for its restore.
    pub fn drain(&self, seed: u64, options: &Options) -> Result<Drained> {
        let plan = self.drain_plan()?;
        let simulation = carry_out(self.world(), &plan, seed, options)?;
        let restore = self.restore_plan(&plan, &simulation.log)?;
        let waiting = pass_downtime(simulation.world.clone());
        Ok(Drained { plan, simulation, waiting, restore })
    }

    fn restore_plan(&self, drain: &Plan, log: &[Record]) -> Result<Plan> {
        let found = originals(drain, log).into_iter();
        let found = found.map(|(knob, value)| (knob.to_string(), value)).collect();
        self.plan(Direction::Restore, &found)
    }

    fn plan(&self, direction: Direction, originals: &BTreeMap<String, Value>) -> Result<Plan> {
        self.library.plan(DRAINED, direction, &BTreeMap::new(), originals).map_err(|problems| {
            anyhow!(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        })
    }

    pub fn is_user_facing(&self, service: &str) -> bool {
        self.site.service(service).is_some_and(|at| self.site.services[at].user_facing)
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub fn carry_out(world: World, plan: &Plan, seed: u64, options: &Options) -> Result<Simulation> {
    simulate(world, plan, seed, options).map_err(|missing| anyhow!(missing.join("\n")))
}

pub fn without(ablations: &[Ablation]) -> Options {
    let ablations: BTreeSet<Ablation> = ablations.iter().copied().collect();
    Options { ablations, ..Options::default() }
}

pub fn with_series(options: Options) -> Options {
    Options { has_series: true, ..options }
}

pub fn with_bound(options: Options) -> Options {
    Options { has_bound: true, ..options }
}

/// How many parents all tasks have together.
pub fn dependencies(plan: &Plan) -> usize {
    plan.tasks.iter().map(|task| task.parents().count()).sum()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample() -> Sample {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        Sample::read(&root.join("worlds/paper.yaml"), &root.join("runbooks/paper")).unwrap()
    }

    #[test]
    fn the_sample_has_the_papers_shape() {
        let sample = sample();
        let plan = sample.drain_plan().unwrap();
        assert_eq!((plan.tasks.len(), dependencies(&plan)), (79, 109));
        assert!(sample.is_user_facing(WEB) && !sample.is_user_facing("graph"));
        let half = sample.with_capacity(0.5);
        let (all, half) = (&sample.site.datacenters[0], &half.site.datacenters[0]);
        assert_eq!(all.capacity, 2.0 * half.capacity);
    }
}
