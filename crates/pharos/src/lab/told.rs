//! What a simulated run looks like to people.

use std::io::{self, Write};

use drain::Direction;
use lab::drains::Report;

pub fn tell(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (done, was) = match report.direction {
        Direction::Drain => ("Drain", "drained"),
        Direction::Restore => ("Restore", "restored"),
    };
    let outcome = match report.outcome {
        Some(outcome) => format!("{outcome:?}").to_lowercase(),
        None => format!("not {was} when the simulation gave up"),
    };
    writeln!(
        out,
        "{done} of {} in the world {}, seed {}",
        report.datacenter, report.world, report.seed
    )?;
    if !report.ablations.is_empty() {
        writeln!(out, "without            {}", report.ablations.join(", "))?;
    }
    writeln!(out, "outcome            {outcome}")?;
    writeln!(
        out,
        "makespan           {} ({} steps of {} tasks)",
        minutes(report.makespan_secs),
        report.steps,
        report.tasks.len()
    )?;
    let ratio = report.makespan_secs / report.lower_bound_secs.max(1.0);
    writeln!(
        out,
        "lower bound        {} (makespan is {ratio:.3} of it)",
        minutes(report.lower_bound_secs)
    )?;
    let errors = &report.user_errors;
    writeln!(
        out,
        "user errors        {:.0} of {:.0} requests ({:.4} %)",
        errors.failed,
        errors.requests,
        errors.share * 100.0
    )?;
    let peaks = report.peak_utilisation.iter();
    let peaks: Vec<String> =
        peaks.map(|(name, peak)| format!("{name} {:.1} %", peak * 100.0)).collect();
    writeln!(out, "peak utilisation   {}", peaks.join(", "))?;
    writeln!(out, "critical path")?;
    for name in &report.critical_path {
        let task = report.tasks.iter().find(|task| task.name == *name);
        let times = task.and_then(|task| Some((task.started_secs?, task.ended_secs?)));
        let (from, to) = times.unwrap_or_default();
        let steps = task.map_or(0, |task| task.steps);
        writeln!(out, "  {name:<32} {:>8} → {:>8}  {steps} steps", minutes(from), minutes(to))?;
    }
    Ok(())
}

fn minutes(secs: f64) -> String {
    format!("{:.1} min", secs / 60.0)
}
