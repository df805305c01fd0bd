//! Plans from a server's runbooks: with what earlier runs say about their tasks,
//! where knobs stood before they were turned, and what others have drained.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drain::engine::Mode;
use drain::fleet::Limit;
use drain::history::{STUCK_MARGIN, Sample, expect};
use drain::runbook::{Library, Problem, Severity};
use drain::{Away, Direction, Expected, Knob, LeftBehind, Millis, Plan, StageKind, Task, Value};
use tokio::sync::Semaphore;

use super::ledger::{self, direction_name};
use super::runbooks::read_most_files;
use super::{Drains, Refused, Survey, fleet, read_files};
use store::{Filter, RUNS_LIMIT_MAX};

/// Whose turn work on runbooks takes. Plans can be asked for by everybody who
/// reaches the admin address; what a person begins must not wait behind those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Of a drain that is begun.
    Run,
    /// Of a restore that is begun: it waits for nothing else.
    Restore,
    /// Of a page.
    Page,
}

impl Turn {
    /// The turn of a run that is begun.
    pub fn of(direction: Direction) -> Turn {
        match direction {
            Direction::Drain => Turn::Run,
            Direction::Restore => Turn::Restore,
        }
    }
}

/// Turns of work on runbooks: one piece at a time for each kind.
#[derive(Debug)]
pub(super) struct Readings {
    runs: Arc<Semaphore>,
    restores: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

impl Default for Readings {
    fn default() -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Readings { runs: one(), restores: one(), pages: one() }
    }
}

impl Readings {
    pub(super) fn of(&self, turn: Turn) -> &Arc<Semaphore> {
        match turn {
            Turn::Run => &self.runs,
            Turn::Restore => &self.restores,
            Turn::Page => &self.pages,
        }
    }
}

/// Samples of a task that a plan looks at.
const SAMPLES_MAX: u32 = drain::history::SAMPLES_MAX as u32;

impl Drains {
    /// What would be done, with what earlier runs say about it.
    pub async fn plan(
        &self,
        datacenter: &str,
        direction: Direction,
        turn: Turn,
    ) -> Result<Plan, Refused> {
        let (library, left_out) = match direction {
            Direction::Drain => (self.library(turn).await.map_err(Refused::Failed)?, Vec::new()),
            Direction::Restore => self.library_to_restore(datacenter, turn).await?,
        };
        let refuse = |problems: Vec<Problem>| refuse(problems, &left_out);
        if library.is_sound() && !library.evacuations().any(|known| known == datacenter) {
            let known: Vec<&str> = library.evacuations().collect();
            return Err(Refused::Unknown(format!(
                "there is no evacuation of `{datacenter}` in {}; accepted: {}",
                self.runbooks.display(),
                if known.is_empty() { "none".into() } else { known.join(", ") }
            )));
        }
        // Knobs may be back, or untouched, and a service without knobs not: the restore did not
        // have it. What a drain did beside knobs is undone, too.
        let recorded = fleet::recorded(&self.world, datacenter).await.ok().flatten();
        let is_away =
            recorded.is_some_and(|own| own.has_acted || own.services_away().next().is_some());
        let originals = self.originals(datacenter).await?.for_plan(is_away);
        let compiled = |expectations: BTreeMap<String, Expected>| {
            let (library, datacenter) = (library.clone(), datacenter.to_owned());
            let originals = originals.clone();
            let work = move || library.plan(&datacenter, direction, &expectations, &originals);
            self.apart(turn, work)
        };
        let blank = compiled(BTreeMap::new()).await.map_err(Refused::Failed)?.map_err(&refuse)?;
        let expectations = self.expectations(&blank).await?;
        let mut plan = compiled(expectations).await.map_err(Refused::Failed)?.map_err(refuse)?;
        if direction == Direction::Restore {
            plan.left_behind = self.left_behind(&plan, turn).await?;
        }
        self.place(&mut plan).await?;
        fleet::measure(&self.world, &mut plan).await;
        Ok(plan)
    }

    /// Says where the fleet of a plan stands now.
    pub(super) async fn place(&self, plan: &mut Plan) -> Result<(), Refused> {
        let mut originals = BTreeMap::new();
        for datacenter in &plan.datacenters {
            originals.extend(self.originals(&datacenter.name).await?.values);
        }
        let at = plan.traffic.iter_mut().flat_map(|own| &mut own.datacenters);
        for own in at.flat_map(|at| &mut at.knobs) {
            let recorded = originals.get(&own.knob.to_string());
            own.original = recorded.cloned().or(own.original.take());
        }
        plan.fleet = fleet::position(&self.world, plan, None).await?;
        Ok(())
    }

    /// The runbooks as they are now.
    pub(super) async fn library(&self, turn: Turn) -> Result<Arc<Library>, String> {
        let path = self.runbooks.clone();
        self.apart(turn, move || read_files(&[path]).map(Library::new).map(Arc::new)).await?
    }

    /// What a restore of a datacenter needs of them, and what was left out since it
    /// cannot be read.
    async fn library_to_restore(
        &self,
        datacenter: &str,
        turn: Turn,
    ) -> Result<(Arc<Library>, Vec<String>), Refused> {
        let (path, datacenter) = (self.runbooks.clone(), datacenter.to_owned());
        let read = self.apart(turn, move || {
            let (mut files, mut left_out) = read_most_files(&[path])?;
            leave_out_copies(&mut files, &mut left_out);
            let library = Library::for_restore(files, &datacenter);
            left_out.extend(library.left_out().iter().map(ToString::to_string));
            Ok((Arc::new(library), left_out))
        });
        read.await.flatten().map_err(Refused::Failed)
    }

    /// Works on runbooks where it holds neither runs nor fences, however long it
    /// takes, and one piece of work at a time for each kind of turn.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        turn: Turn,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let turn = self.readings.of(turn).clone().acquire_owned().await;
        let turn = turn.map_err(|closed| closed.to_string())?;
        let work = move || {
            // Kept even if nobody waits for the work any more.
            let _turn = turn;
            work()
        };
        let broke = |_| "the runbooks could not be read: the work broke off".to_owned();
        tokio::task::spawn_blocking(work).await.map_err(broke)
    }

    async fn expectations(&self, plan: &Plan) -> Result<BTreeMap<String, Expected>, Refused> {
        let direction = direction_name(plan.direction);
        let mut expectations = BTreeMap::new();
        for task in &plan.tasks {
            let known = self.world.store.history(&task.name, direction, SAMPLES_MAX).await?;
            let mut samples: Vec<Sample> = known
                .iter()
                .map(|known| Sample {
                    took: Millis(known.duration_ms),
                    step: known.step.unwrap_or(0.0),
                    was_breached: known.outcome == ledger::BREACHED,
                })
                .collect();
            // The store has the newest first.
            samples.reverse();
            expectations.insert(task.name.clone(), expect(&samples, STUCK_MARGIN));
        }
        Ok(expectations)
    }

    /// What a plan would do and find, from where its knobs stand now.
    pub async fn survey(&self, plan: &Plan, turn: Turn) -> Survey {
        let mut survey = Survey::of(plan, &self.world.drivers, self.is_alone).await;
        if plan.direction == Direction::Restore {
            judge_left_behind(plan, &mut survey);
            if let Ok(Some(recorded)) = fleet::recorded(&self.world, &plan.datacenter).await {
                for drained in &recorded.drain_plans {
                    let found = unfenced(drained, plan);
                    let new = found.into_iter().filter(|why| !survey.problems.contains(why));
                    let new: Vec<String> = new.collect();
                    survey.problems.extend(new);
                }
            }
            let read = self.library_to_restore(&plan.datacenter, turn).await;
            let left_out = read.map(|(_, left_out)| left_out).unwrap_or_default();
            let warned =
                left_out.iter().map(|why| format!("left out, a restore does without: {why}"));
            survey.warnings.extend(warned);
        }
        self.judge_originals(plan, &mut survey).await;
        self.judge_fences_of_others(plan, &mut survey).await;
        survey.judge_load(plan);
        survey.judge_limits(plan);
        if plan.direction == Direction::Drain {
            let unknown = fleet::unknown_services(&self.world, plan).await;
            match plan.fleet.check_limits(plan, Mode::Drill) {
                Err(reached) if reached.limit == Limit::Unknown => survey.problems.extend(unknown),
                _ => survey.warnings.extend(unknown),
            }
        }
        survey
    }

    /// A drain leaves the old primary fenced until its restore. A promotion in another
    /// datacenter may make just that server the primary: then every write is refused.
    async fn judge_fences_of_others(&self, plan: &Plan, survey: &mut Survey) {
        let promoted: Vec<(&Knob, &Value)> = (plan.tasks.iter())
            .filter_map(|task| Some((plan.knob(task.undone_knob()?), task.undone_goal()?)))
            .collect();
        if promoted.is_empty() {
            return;
        }
        let makes = |primary: &Knob, of: &Value| {
            promoted.iter().any(|(own, goal)| *own == primary && of.is_met_by(goal))
        };
        if plan.direction == Direction::Drain {
            survey.problems.extend(self.fenced_by_open_drains(plan, makes).await);
        }
        // What this plan sets on its way is looked at by its own tasks. That it would set a
        // fence on the way back says nothing: that one is the new primary's.
        let is_set = |knob: &Knob| {
            let mut stages = plan.tasks.iter().flat_map(Task::forward);
            stages.any(|stage| match stage.kind {
                StageKind::Set { knob: own, .. } => plan.knob(own) == knob,
                _ => false,
            })
        };
        let Ok(drained) = self.world.store.drained().await else { return };
        let others = drained.into_iter().filter(|own| own.datacenter != plan.datacenter);
        for other in others {
            let Ok(Some(left)) = fleet::recorded(&self.world, &other.datacenter).await else {
                continue;
            };
            for left in &left.drain_plans {
                for (fence, primary, of) in left.tasks.iter().flat_map(Task::fenced_primaries) {
                    let (knob, primary) = (left.knob(fence.knob), left.knob(primary));
                    if !makes(primary, of) || is_set(knob) {
                        continue;
                    }
                    let Ok(found) = self.world.drivers.read(knob).await else { continue };
                    if !fence.is_closed_in_part(&found) {
                        continue;
                    }
                    let why = format!(
                        "{knob} is {found} since the drain of {}, and this run sets {primary} to \
                         {of}, which that fences: all writes would be refused; accepted: a \
                         restore of {0} first, or --disaster and then opening it by hand",
                        other.datacenter
                    );
                    let found = match plan.direction {
                        Direction::Drain => &mut survey.problems,
                        Direction::Restore => &mut survey.warnings,
                    };
                    if !found.contains(&why) {
                        found.push(why);
                    }
                }
            }
        }
    }

    /// Drains of other datacenters that are open, and will leave a server fenced which this
    /// plan makes the primary.
    async fn fenced_by_open_drains(
        &self,
        plan: &Plan,
        makes: impl Fn(&Knob, &Value) -> bool,
    ) -> Vec<String> {
        let mut found = Vec::new();
        let open = Filter { ended: Some(false), ..Filter::default() };
        let Ok(open) = self.world.store.runs(open, RUNS_LIMIT_MAX).await else { return found };
        for run in open.into_iter().filter(|run| run.datacenter != plan.datacenter) {
            let Ok((other, _)) = fleet::plan_of(&self.world.store, run.id).await else { continue };
            let tasks = other.tasks.iter().filter(|_| other.direction == Direction::Drain);
            for (fence, primary, of) in tasks
                .flat_map(|task| task.fenced_primaries().map(move |own| (task, own)))
                .filter(|(task, (fence, ..))| task.leaves_closed(fence.knob))
                .map(|(_, own)| own)
            {
                let (fence, primary) = (other.knob(fence.knob), other.knob(primary));
                if makes(primary, of) {
                    found.push(format!(
                        "run {} drains {} and leaves {of} fenced by {fence}, and this run sets \
                         {primary} to {of}: all writes would be refused; accepted: a restore of \
                         {1} first, or --disaster and then opening the fence by hand",
                        run.id, run.datacenter
                    ));
                }
            }
        }
        found
    }

    /// What drains moved and a restore would not bring back, since the runbooks that
    /// there are now do not know it.
    async fn left_behind(&self, restore: &Plan, turn: Turn) -> Result<Vec<LeftBehind>, Refused> {
        let originals = self.world.store.originals(&restore.datacenter).await?;
        let mut left = Vec::new();
        if !originals.is_empty() {
            let (library, _) = self.library_to_restore(&restore.datacenter, turn).await?;
            let datacenter = restore.datacenter.clone();
            let drain = self.apart(turn, move || {
                let none = BTreeMap::new();
                library.plan(&datacenter, Direction::Drain, &none, &BTreeMap::new())
            });
            // What a drain sets and no restore puts back comes back by itself, or the runbooks
            // would not be sound.
            let drain = drain.await.map_err(Refused::Failed)?.ok();
            let drained = drain.iter().flat_map(|drain| &drain.knobs);
            let known: BTreeSet<String> =
                drained.chain(&restore.knobs).map(Knob::to_string).collect();
            let lost = originals.into_iter().filter(|original| !known.contains(&original.knob));
            left.extend(lost.map(|original| LeftBehind {
                what: Away::Knob { name: original.knob, original: original.json },
                run: original.run.0,
                is_given_up: false,
            }));
        }
        // What nobody can tell any more keeps no restore from beginning.
        let Ok(Some(recorded)) = fleet::recorded(&self.world, &restore.datacenter).await else {
            return Ok(left);
        };
        let has = |name: &String| restore.traffic.iter().any(|own| own.service == *name);
        let lost = recorded.services_away().filter(|(name, _)| !has(name));
        left.extend(lost.map(|(name, run)| LeftBehind {
            what: Away::Service { name: name.clone() },
            run: run.0,
            is_given_up: false,
        }));
        Ok(left)
    }
}

/// Leaves out files that are copies of another one: they define the same once more.
fn leave_out_copies(files: &mut Vec<(String, String)>, left_out: &mut Vec<String>) {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    files.retain(|(name, text)| match known.entry(text.clone()) {
        Entry::Vacant(entry) => {
            entry.insert(name.clone());
            true
        }
        Entry::Occupied(first) => {
            left_out.push(format!("{name}: a copy of {}", first.get()));
            false
        }
    });
}

/// What a restore sets without a fence, and the drain set behind one.
fn unfenced(recorded: &Plan, plan: &Plan) -> Vec<String> {
    let mut found = Vec::new();
    let is_set_openly = |task: &Task, knob: &Knob| {
        let mut stages = task.forward().iter();
        task.fences.is_empty()
            && stages.any(|stage| match stage.kind {
                StageKind::Set { knob: own, .. } | StageKind::Shift { knob: own, .. } => {
                    plan.knob(own) == knob
                }
                _ => false,
            })
    };
    for drained in recorded.tasks.iter().filter(|task| !task.fences.is_empty()) {
        let Some(primary) = drained.undone_knob().map(|knob| recorded.knob(knob)) else { continue };
        for task in plan.tasks.iter().filter(|task| is_set_openly(task, primary)) {
            let fence = recorded.knob(drained.fences[0].knob);
            found.push(format!(
                "`{}` sets {primary} without a fence, and the drain set it behind {fence}: writes \
                 that have not arrived are lost; accepted: `Promote` with `fence` and \
                 `caught_up`, or --disaster, which loses them",
                task.name
            ));
        }
    }
    found
}

/// Says what a restore does not bring back, and which of its tasks have nothing to.
fn judge_left_behind(plan: &Plan, survey: &mut Survey) {
    let left: Vec<&LeftBehind> = plan.left_behind.iter().filter(|own| !own.is_given_up).collect();
    for own in &left {
        let known = match own.what {
            Away::Knob { .. } => "runbooks that do".to_owned(),
            Away::Service { .. } => format!("an evacuation of {} with it", plan.datacenter),
        };
        survey.problems.push(format!(
            "{}; accepted: {known}, --disaster, which leaves it as it is, or --give-up {}, if \
             nobody expects it back",
            own.describe(&plan.datacenter),
            own.name()
        ));
    }
    // After a drain that was aborted there are such tasks, too: then nothing is lost.
    if !left.is_empty() {
        let idle = plan.idle.iter().map(|own| format!("{}: {}", own.task, own.describe()));
        survey.warnings.extend(idle);
    }
}

/// Why runbooks give no plan: all that is wrong with them, and with the files that were
/// left out.
fn refuse(problems: Vec<Problem>, left_out: &[String]) -> Refused {
    // The errors are why.
    let (errors, warnings): (Vec<&Problem>, Vec<&Problem>) =
        problems.iter().partition(|problem| problem.severity == Severity::Error);
    let mut lines: Vec<String> = errors.iter().chain(&warnings).map(ToString::to_string).collect();
    lines.extend(left_out.iter().map(|why| format!("left out: {why}")));
    Refused::Conflict(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVACUATION: &str = "pharos: evacuation/v1\ndatacenter: east\nservices: [db]\n\
        datacenters: {east: {capacity: 10}, west: {capacity: 10}}\n";
    const FENCED: &str = "{template: Promote, with: {knob: \"db:primary\", from: FROM, to: GOAL, \
        fence: \"db:writes\", caught_up: lag, unfence_to: open}}";
    const OPEN: &str = "{template: ConfigChange, with: {knob: \"db:primary\", content: GOAL}}";

    fn plan(direction: Direction, drain: &str, restore: &str) -> Plan {
        let service = format!(
            "pharos: service/v1\nservice: db\ntraffic: stateful\nuser_facing: false\n\
             health: {{lag: {{query: max(lag), at_most: 0, no_data: block}}}}\n\
             drain:\n  move: {}\nrestore:\n  move: {}\n",
            drain.replace("GOAL", "west").replace("FROM", "east"),
            restore.replace("GOAL", "original").replace("FROM", "west"),
        );
        let files = [("east.yaml", EVACUATION), ("db.yaml", &service)];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let original = drain::Value::Text("east".into());
        let originals = BTreeMap::from([("db:primary".to_owned(), original)]);
        let library = Library::new(files.to_vec());
        let planned = library.plan("east", direction, &BTreeMap::new(), &originals);
        planned.unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    /// Each runbook is sound by itself: they were changed between drain and restore.
    #[test]
    fn a_restore_without_the_fence_of_its_drain_is_a_problem() {
        let drained = plan(Direction::Drain, FENCED, FENCED);
        assert_eq!(unfenced(&drained, &plan(Direction::Restore, FENCED, FENCED)), [""; 0]);
        let found = unfenced(&drained, &plan(Direction::Restore, OPEN, OPEN));
        assert!(found[0].contains("`db.move` sets db:primary without a fence"), "{found:?}");
        assert!(found[0].contains("behind db:writes"), "{found:?}");
        let drained = plan(Direction::Drain, OPEN, OPEN);
        assert_eq!(unfenced(&drained, &plan(Direction::Restore, OPEN, OPEN)), [""; 0]);
    }

    #[test]
    fn copies_of_a_file_are_left_out() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let mut files = vec![file("a", "1"), file("b", "2"), file("c", "1")];
        let mut left_out = Vec::new();
        leave_out_copies(&mut files, &mut left_out);
        assert_eq!(files, [file("a", "1"), file("b", "2")]);
        assert_eq!(left_out, ["c: a copy of a"]);
    }
}
