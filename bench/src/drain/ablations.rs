//! What each part of the engine is good for: the same drain and restore with it left out.

use anyhow::{Context, Result};
use drain::{Direction, Plan};
use lab::drains::{Ablation, Report, Series, Simulation, World};

use super::report::{AblationRow, Curve, PacePoint};
use super::sample::{Drained, Sample, WEB, carry_out, with_series, without};
use crate::interrupt;
use crate::progress::Progress;
use crate::stats::Spread;

/// What is left out of what.
const ABLATIONS: [(Direction, Option<Ablation>); 11] = [
    (Direction::Drain, None),
    (Direction::Drain, Some(Ablation::Dependencies)),
    (Direction::Drain, Some(Ablation::Pacing)),
    (Direction::Drain, Some(Ablation::AdaptivePace)),
    (Direction::Drain, Some(Ablation::Parallelism)),
    (Direction::Restore, None),
    (Direction::Restore, Some(Ablation::Dependencies)),
    (Direction::Restore, Some(Ablation::Pacing)),
    (Direction::Restore, Some(Ablation::AdaptivePace)),
    (Direction::Restore, Some(Ablation::Budgets)),
    (Direction::Restore, Some(Ablation::Parallelism)),
];

/// Steps of a fixed pace, as shares of the way.
const FIXED_STEPS: [f64; 7] = [0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 1.0];
/// Worlds in which paces are compared, by how much of its capacity each datacenter has. In the
/// last one it is close: what is left is used to nine tenths when one datacenter is drained.
const CAPACITIES: [(&str, f64); 2] = [("roomy", 1.0), ("tight", 0.78)];

/// All rows, each over some seeds.
pub fn measure(sample: &Sample, seeds: u64) -> Result<Vec<AblationRow>> {
    let mut progress = Progress::new("ablations", ABLATIONS.len() * seeds as usize);
    let mut reports = vec![Vec::new(); ABLATIONS.len()];
    for seed in 1..=seeds {
        let drained = sample.drain(seed, &without(&[]))?;
        for (at, (direction, ablation)) in ABLATIONS.iter().enumerate() {
            interrupt::check()?;
            let left_out: Vec<Ablation> = ablation.iter().copied().collect();
            let options = with_series(without(&left_out));
            reports[at].push(run(sample, &drained, *direction, seed, &options)?.report);
            progress.show((seed as usize - 1) * ABLATIONS.len() + at + 1);
        }
    }
    progress.finish();
    ABLATIONS.iter().zip(reports).map(|(of, reports)| row(of, &reports)).collect()
}

fn run(
    sample: &Sample,
    drained: &Drained,
    direction: Direction,
    seed: u64,
    options: &lab::drains::Options,
) -> Result<Simulation> {
    match direction {
        Direction::Drain => carry_out(sample.world(), &drained.plan, seed, options),
        Direction::Restore => carry_out(drained.waiting.clone(), &drained.restore, seed, options),
    }
}

fn row(
    (direction, ablation): &(Direction, Option<Ablation>),
    reports: &[Report],
) -> Result<AblationRow> {
    let over = |of: fn(&Report) -> f64| Spread::of(reports.iter().map(of)).context("no seeds");
    Ok(AblationRow {
        direction: *direction,
        without: ablation.map(|own| own.name().to_owned()),
        ended: reports.iter().filter(|report| report.outcome.is_some()).count(),
        seeds: reports.len(),
        makespan_secs: over(|report| report.makespan_secs)?,
        failed_share: over(|report| report.user_errors.share)?,
        failed_requests: over(|report| report.user_errors.failed)?,
        peak_utilisation: over(peak_utilisation)?,
        peak_link: over(|report| peak(&report.series, "link/"))?,
        steps: over(|report| f64::from(report.steps))?,
        breaches: over(breaches)?,
    })
}

fn peak_utilisation(report: &Report) -> f64 {
    report.peak_utilisation.values().copied().fold(0.0, f64::max)
}

fn breaches(report: &Report) -> f64 {
    report.tasks.iter().map(|task| f64::from(task.breaches)).sum()
}

/// The highest point of all lines whose names begin so.
fn peak(series: &Series, prefix: &str) -> f64 {
    let lines = series.lines.iter().filter(|(name, _)| name.starts_with(prefix));
    lines.flat_map(|(_, line)| line).copied().fold(0.0, f64::max)
}

/// A dependency that nobody knew, as in the paper's Fig. 6: web comes back before what it calls.
/// Once nobody watches its errors, as then; once they are watched; and once it is known.
pub fn unknown_dependency(sample: &Sample, seed: u64) -> Result<Vec<(String, Curve)>> {
    let drained = sample.drain(seed, &without(&[]))?;
    let mut found = Vec::new();
    for (name, is_known, is_watched) in [
        ("not known, errors not watched", false, false),
        ("not known, errors watched", false, true),
        ("known", true, true),
    ] {
        interrupt::check()?;
        let mut plan = drained.restore.clone();
        for task in plan.tasks.iter_mut().filter(|task| task.service == WEB) {
            if !is_known {
                task.after.clear();
                task.after_weak.clear();
            }
            if !is_watched {
                task.health.clear();
            }
        }
        let options = with_series(without(&[]));
        let run = carry_out(drained.waiting.clone(), &plan, seed, &options)?;
        found
            .push((name.to_owned(), Curve::of(&run.report.series, &["traffic/web", "errors/web"])));
    }
    Ok(found)
}

/// Fixed steps against adaptive ones, where there is room and where there is little.
pub fn paces(sample: &Sample, seed: u64) -> Result<Vec<PacePoint>> {
    let mut progress = Progress::new("paces", CAPACITIES.len() * (FIXED_STEPS.len() + 1));
    let mut points = Vec::new();
    for (name, capacity) in CAPACITIES {
        let sample = sample.with_capacity(capacity);
        let plan = sample.drain_plan()?;
        for step in [None].into_iter().chain(FIXED_STEPS.map(Some)) {
            interrupt::check()?;
            let report = pace(sample.world(), &plan, step, seed)?;
            points.push(PacePoint {
                world: name.to_owned(),
                step,
                has_ended: report.outcome.is_some(),
                makespan_secs: report.makespan_secs,
                peak_utilisation: peak_utilisation(&report),
                failed_share: report.user_errors.share,
                failed_requests: report.user_errors.failed,
                breaches: breaches(&report),
            });
            progress.show(points.len());
        }
    }
    progress.finish();
    Ok(points)
}

/// Every shift in steps of one size, or by its own adaptive pace.
fn pace(world: World, plan: &Plan, step: Option<f64>, seed: u64) -> Result<Report> {
    let mut plan = plan.clone();
    if let Some(step) = step {
        for task in &mut plan.tasks {
            let pace = &mut task.pace;
            (pace.first, pace.step_max, pace.adaptive) = (step, step, false);
        }
    }
    Ok(carry_out(world, &plan, seed, &without(&[]))?.report)
}
